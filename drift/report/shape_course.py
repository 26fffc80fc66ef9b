"""Shapes over the runs of a record, and from one full run to the next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from drift.judging import load_judge
from drift.judging.shape_measure import CODES
from drift.records.run import label_rows
from drift.records.shapes import load_coder
from drift.report.bars import COURSE
from drift.report.display import figure
from drift.report.markup import Markup, html, joined, table, with_data
from drift.report.metrics import p_text
from drift.report.shaped import Shaped, of_shapes
from drift.report.tables import each, is_full, readings
from drift.stats.shapes import Shift, margin_shift
from drift.stats.shapes import transitions as counted

#: Runs drawn; the file holds them all.
DRAWN = 16
#: What an arm can be in a run that is compared with another.
KINDS = (*CODES, "answered")


@of_shapes
def over_runs(shaped: Shaped, caption: str) -> Markup:
    """Return for each model the shapes of its canonical refusals, run by run."""
    rows = []
    for number, reading in enumerate(readings(shaped.record), start=1):
        if reading["run"] not in shaped.lines:
            continue
        labels: dict[str, list[str]] = {key: [] for key in reading["models"]}
        for row in shaped.rows(reading["run"]):
            if row["key"].endswith("#en-1"):
                labels[row["model"]].append(row["label"])
        for model, said in labels.items():
            place = {"model": model, "run": reading["run"], "number": number}
            place |= {"canonical_refusals": len(said)}
            rows += [place | {"shape": it, "shape_count": said.count(it)} for it in CODES]
    whole = pd.DataFrame(rows)
    made = figure("shapes-over-runs", COURSE, *_drawn(whole), caption, data=whole)
    notes = joined((html("{}: {}", key, shaped.told(key)) for key in shaped.treated), "; ")
    return html("{}<p>{}.</p>", made, notes) if notes else made


def _drawn(whole: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    newest = sorted(whole.run.unique())[-DRAWN:]
    drawn = whole[whole.run.isin(newest)]
    seen = drawn[drawn.shape_count > 0]
    pairs = set(zip(seen.model, seen["shape"], strict=True))
    told = [(row.model, row.shape) in pairs for row in each(drawn)]
    drawn = drawn[told] if any(told) else drawn[drawn["shape"] == CODES[0]]
    cases = drawn.canonical_refusals
    frame = pd.DataFrame(
        {
            "group": drawn.model,
            "series": drawn["shape"],
            "column": drawn.number.astype(str),
            "place": drawn.run.map(newest.index),
            "count_": drawn.shape_count,
            "share": (drawn.shape_count / cases).where(cases > 0),
            "cases": cases,
        }
    )
    behind = drawn.assign(arm=drawn.model + ", " + drawn["shape"])
    behind = behind.pivot_table("shape_count", "arm", "number", sort=False).astype(int)
    behind = behind.rename_axis("Model, shape; runs by number").reset_index()
    behind.columns = behind.columns.map(str)
    return frame, behind


# From one full run to the next.


class Answered:
    """What was answered, by the judge whose refusals the coder reads.

    Where the labels shown are of another version of the coder, its judge cannot be asked again,
    and the labels of the record's own judge say it.
    """

    def __init__(self, shaped: Shaped) -> None:
        self.record, root = shaped.record, shaped.record.root
        self.judge = load_judge(root / "config" / "judge")
        present = load_coder(root, self.judge)
        self.same = shaped.newest["judge"]["rules"] == present.rules_hash
        self.asked: set[str] = set()

    def arms(self, reading: Mapping[str, Any], model: str) -> set[str]:
        """Return the arms of a run that a model answered."""
        stored = self.record.stored(reading["run"])
        self.asked.add(reading["judge"]["rules"][:16])
        mine = [row for (of, _), row in stored.answers.items() if of == model]
        if self.same and stored.prompts and reading["judge"]["rules"] != self.judge.rules_hash:
            mine = label_rows(self.judge, mine, stored.prompts)
        return {row["key"] for row in mine if row.get("label") == "answered"}

    @property
    def said(self) -> Markup:
        if self.same:
            text = "Refused and answered are what one judge says of both runs: {}, hash {:.16}."
            return html(text, self.judge.id, self.judge.rules_hash)
        text = (
            "The shapes are of another version of the coder, so that <i>answered</i> is what the "
        )
        text += "record's own judge said of each run (rules {})."
        return html(text, " and ".join(sorted(self.asked)))


def _pairs(shaped: Shaped) -> dict[str, tuple[Mapping[str, Any], ...]]:
    """Return the last two usable full runs of each model coded by one version, older first."""
    found: dict[str, tuple[Mapping[str, Any], ...]] = {}
    version = shaped.newest["judge"]["rules"]
    for reading in readings(shaped.record):
        line = shaped.lines.get(reading["run"])
        for key, model in reading["models"].items() if line else ():
            full = is_full(reading, model) and model["coverage"]["usable"]
            if line and full and line["judge"]["rules"] == version:
                found[key] = (*found.get(key, ())[-1:], reading)
    return found


def _moves(shaped: Shaped, by: Answered) -> Iterator[tuple[str, pd.DataFrame, tuple[str, ...]]]:
    """Yield each model with its compared arms and their kinds in both runs, and the runs.

    An arm is of the kind of its shape, or answered; others are left out.
    """
    for model, pair in _pairs(shaped).items():
        if len(pair) == 2 and model in shaped.record.models:
            before, after = (
                dict.fromkeys(by.arms(reading, model), "answered")
                | {it["key"]: it["label"] for it in shaped.rows(reading["run"])
                   if it["model"] == model}
                for reading in pair
            )  # fmt: skip
            both = sorted(before.keys() & after.keys())
            rows = [(key.partition("#")[0], before[key], after[key]) for key in both]
            frame = pd.DataFrame(rows, columns=["family", "before", "after"])
            yield model, frame, tuple(reading["run"] for reading in pair)


#: The two tests: of all arms, an answer being a kind, and of those refused in both runs.
WHOLE, REFUSED = "refusals and shapes", "shapes among arms refused in both runs"


@of_shapes
def transitions(shaped: Shaped, *, draws: int, seed: int) -> Markup:
    """Return what became of each shape between the last two full runs, and two tests of it."""
    matrix = np.zeros((len(KINDS), len(KINDS)), dtype=np.int64)
    rows, behind, by = [], [], Answered(shaped)
    for model, frame, runs in _moves(shaped, by):
        both = frame[(frame.before != "answered") & (frame.after != "answered")]
        numbers = " to ".join(str(shaped.record.runs.index(run) + 1) for run in runs)
        for test, arms in ((WHOLE, frame), (REFUSED, both)):
            before, after = (_codes(arms[side]) for side in ("before", "after"))
            mine = counted(before, after, k=len(KINDS))
            clusters = pd.factorize(arms.family)[0]
            shift = margin_shift(before, after, clusters, k=len(KINDS), draws=draws, seed=seed)
            place = {"Model": shaped.name(model), "Runs": numbers, "Test": test}
            rows.append(place | _shift(shift, len(arms) - int(np.trace(mine))))
            if test == WHOLE:
                matrix += mine
                behind += _long(model, runs, mine)
    if not rows:
        return html("<p>No model has two usable full runs with shapes of one version yet.</p>")
    told = html(
        "<p>{}</p><p>All models together; rows: before, columns: after.</p>{}",
        *(by.said, _matrix(matrix)),
    )
    tests = table(pd.DataFrame(rows))
    if len(rows) > 8:
        fold = "<details><summary>Both tests of each model: {} rows</summary>{}</details>"
        tests = html(fold, len(rows), tests)
    return with_data(joined([told, tests]), "shape-transitions", pd.DataFrame(behind))


def _codes(kinds: pd.Series) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array([KINDS.index(it) for it in kinds], dtype=np.int64)


def _shift(shift: Shift, moved: int) -> dict[str, object]:
    p = f"not estimable: {shift.reason}" if shift.p is None else p_text(shift.p)
    least = "–" if shift.smallest is None else p_text(shift.smallest)
    return {
        "Arms compared": shift.pairs,
        "Arms moved": moved,
        "Families moved": f"{shift.moved} of {shift.clusters}",
        "p": p,
        "Smallest p": least,
    }


def _matrix(matrix: np.ndarray[Any, np.dtype[np.int64]]) -> Markup:
    seen = [n for n in range(len(KINDS)) if matrix[n].any() or matrix[:, n].any()]
    rows = []
    for n in seen:
        cells = {KINDS[m]: _count(int(matrix[n, m]), stayed=n == m) for m in seen}
        rows.append({"Before": KINDS[n]} | cells | {"All": int(matrix[n].sum())})
    return table(pd.DataFrame(rows))


def _count(count: int, *, stayed: bool) -> Markup:
    return html("<b>{}</b>" if stayed else "{}", count if count or stayed else "·")


def _long(
    model: str, runs: tuple[str, ...], matrix: np.ndarray[Any, np.dtype[np.int64]]
) -> list[dict[str, object]]:
    place = {"model": model, "previous": runs[0], "run": runs[1]}
    return [
        place | {"shape_before": KINDS[n], "shape_after": KINDS[m], "arms_moved": int(matrix[n, m])}
        for n, m in zip(*np.nonzero(matrix), strict=True)
    ]
