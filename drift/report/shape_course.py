"""Shapes over the runs of a record, from one full run to the next, and by model against topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from drift.judging.shapes import SHAPES
from drift.report.bars import COURSE
from drift.report.display import figure
from drift.report.markup import Markup, html, joined, percent, table, with_data
from drift.report.metrics import p_text
from drift.report.shaped import Shaped, of_shapes
from drift.report.tables import each, is_full, readings
from drift.stats.agreement import Estimate
from drift.stats.shapes import Shift, margin_shift
from drift.stats.shapes import transitions as counted
from drift.stats.variation import Explained, Variation, variation

#: Runs drawn; the file holds them all.
DRAWN = 16
#: What an arm can be in a run that is compared with another.
KINDS = (*SHAPES, "answered")


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
            rows += [place | {"shape": it, "shape_count": said.count(it)} for it in SHAPES]
    whole = pd.DataFrame(rows)
    return figure("shapes-over-runs", COURSE, *_drawn(whole), caption, data=whole)


def _drawn(whole: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    newest = sorted(whole.run.unique())[-DRAWN:]
    drawn = whole[whole.run.isin(newest)]
    seen = drawn[drawn.shape_count > 0]
    pairs = set(zip(seen.model, seen["shape"], strict=True))
    told = [(row.model, row.shape) in pairs for row in each(drawn)]
    drawn = drawn[told] if any(told) else drawn[drawn["shape"] == SHAPES[0]]
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


def _pairs(shaped: Shaped) -> dict[str, tuple[Mapping[str, Any], ...]]:
    """Return the last two usable full runs of each model that have shapes, older first."""
    found: dict[str, tuple[Mapping[str, Any], ...]] = {}
    for reading in readings(shaped.record):
        for key, model in reading["models"].items() if reading["run"] in shaped.lines else ():
            if is_full(reading, model) and model["coverage"]["usable"]:
                found[key] = (*found.get(key, ())[-1:], reading)
    return found


def _kinds(shaped: Shaped, reading: Mapping[str, Any], model: str) -> dict[str, str]:
    """Return what each arm of a run was: a shape, or answered; others are left out.

    A response without a shape is answered where the record's judge says so.
    """
    found = {
        key: "answered"
        for (of, key), row in shaped.record.stored(reading["run"]).answers.items()
        if of == model and row.get("label") == "answered"
    }
    coded = {
        row["key"]: row["label"] for row in shaped.rows(reading["run"]) if row["model"] == model
    }
    return found | coded


def _moves(shaped: Shaped) -> Iterator[tuple[str, pd.DataFrame, tuple[str, ...]]]:
    """Yield each model with its compared arms and their kinds in both runs, and the runs."""
    for model, pair in _pairs(shaped).items():
        if len(pair) == 2 and model in shaped.record.models:
            before, after = (_kinds(shaped, reading, model) for reading in pair)
            both = sorted(before.keys() & after.keys())
            rows = [(key.partition("#")[0], before[key], after[key]) for key in both]
            frame = pd.DataFrame(rows, columns=["family", "before", "after"])
            yield model, frame, tuple(reading["run"] for reading in pair)


@of_shapes
def transitions(shaped: Shaped, *, draws: int, seed: int) -> Markup:
    """Return what became of each shape between the last two full runs, and a test of the shift."""
    matrix = np.zeros((len(KINDS), len(KINDS)), dtype=np.int64)
    rows, behind = [], []
    for model, frame, runs in _moves(shaped):
        before, after = (_codes(frame[side]) for side in ("before", "after"))
        mine = counted(before, after, k=len(KINDS))
        matrix += mine
        clusters = pd.factorize(frame.family)[0]
        shift = margin_shift(before, after, clusters, k=len(KINDS), draws=draws, seed=seed)
        moved = len(frame) - int(np.trace(mine))
        numbers = " to ".join(str(shaped.record.runs.index(run) + 1) for run in runs)
        rows.append({"Model": model, "Runs": numbers} | _shift(shift, moved))
        behind += _long(model, runs, mine)
    if not rows:
        return html("<p>No model has two usable full runs with shapes yet.</p>")
    told = html("<p>All models together; rows: before, columns: after.</p>{}", _matrix(matrix))
    text = joined([told, table(pd.DataFrame(rows))])
    return with_data(text, "shape-transitions", pd.DataFrame(behind))


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


# By model against topic.


@of_shapes
def against_topic(shaped: Shaped, *, draws: int, seed: int) -> Markup:
    """Return how much of the variation of shapes goes with the model, and with the topic."""
    events = shaped.coded[shaped.coded.variant == "en-1"]
    labs = sorted({*events.lab})
    by = "lab" if len(labs) > 1 else "model"
    # One refusal of a family stands for a lab: that of its first model in the panel's order.
    order = events.model.map([*shaped.record.models].index)
    chosen = events.assign(order=order).sort_values("order").drop_duplicates([by, "family"])
    codes = {name: pd.factorize(chosen[name], sort=True)[0] for name in (by, "topic", "family")}
    shape = np.array([SHAPES.index(it) for it in chosen["shape"]], dtype=np.int64)
    found = variation(
        shape, codes[by], codes["topic"], codes["family"], k=len(SHAPES), draws=draws, seed=seed
    )
    whose = {"lab": "lab, one refusal of a family each", "model": "model, all of one lab"}[by]
    both = {by: found.models, "topic": found.topics}
    frame = pd.DataFrame([_behind(name, part) for name, part in both.items()])
    parts = {whose: found.models, "topic": found.topics}
    rows = [{"Shape by": name} | _part(part) for name, part in parts.items()]
    text = joined([table(pd.DataFrame(rows)), _difference(found)])
    return with_data(text, "shape-variation", frame)


def _part(part: Explained) -> dict[str, object]:
    counts = {"Groups": part.groups, "Refusals": part.refusals, "Families": part.families}
    if part.effect is None:
        return counts | {"Explained": "–", "By chance": "–", "p": "–",
                         "Adjusted effect": f"not estimable: {part.reason}"}  # fmt: skip
    return counts | {
        "Explained": percent(part.r2 or 0),
        "By chance": percent(part.by_chance or 0),
        "p": p_text(part.p),
        "Adjusted effect": html("<b>{:.2f}</b>{}", part.effect, _limits(part)),
    }


def _limits(of: Explained | Estimate) -> str:
    """Return limits in brackets that stay on one line with what stands before them."""
    said = "" if of.low is None else f" [{of.low:.2f}, {of.high:.2f}]"
    return said.replace(" ", "\N{NO-BREAK SPACE}").replace("-", "\N{MINUS SIGN}")


def _behind(name: str, part: Explained) -> dict[str, object]:
    return {
        "shape_by": name,
        "refusals": part.refusals,
        "families": part.families,
        "shape_groups": part.groups,
        "explained": part.r2,
        "explained_by_chance": part.by_chance,
        "effect": part.effect,
        "effect_low": part.low,
        "effect_high": part.high,
        "effect_p": part.p,
        "reason": part.reason or "",
    }


def _difference(found: Variation) -> Markup:
    one = found.difference
    if one.estimate is None:
        return html("<p>The difference is not estimable: {}.</p>", one.reason)
    if one.low is None:
        said = f"it has no limits: {one.reason}"
    elif one.low > 0:
        said = "more of it goes with the model than with the topic, in these refusals"
    elif (one.high or 0) < 0:
        said = "more of it goes with the topic than with the model, in these refusals"
    else:
        said = "these refusals do not tell which of the two is larger"
    return html(
        "<p>Difference, models less topics: <b>{:.2f}</b>{}: {}.</p>",
        one.estimate,
        _limits(one),
        said,
    )
