"""Shapes and verdicts against a script: what a record whose answers were made up should hold."""

from __future__ import annotations

from itertools import islice
from typing import Any

import orjson
import pandas as pd

from drift.judging.shape_measure import CODES
from drift.report.entailed import OTHER, Entailed, of_verdicts
from drift.report.markup import Markup, html, joined, table, with_data
from drift.report.shaped import Shaped, of_shapes
from drift.report.tables import Record

UNSCRIPTED = Markup("<p>The models of this record are not scripted: no truth to hold it to.</p>")
NARROW = "scope-narrow"
#: What comes of a scripted answer to another question, and of one to the question.
RIGHT, MISSED, FALSE = "right", "missed", "false"
PLUMBING = Markup(
    "<p>The scripted answers are made-up tokens, which by our own manual answer nothing: what is "
    "tested is that verdicts are asked, stored and counted as they are meant, and not the "
    "judge.</p>"
)


def stated(record: Record, run: str) -> dict[tuple[str, str], str]:
    """Return the shape that the script states of each model and arm in a run, empty of an answer.

    ``scope-narrow`` is that of an answer to another question. Empty without such a script.
    """
    path = record.store.truth
    truth: dict[str, Any] = orjson.loads(path.read_bytes()) if path.exists() else {}
    names = {letter: name for name, letter in truth.get("shape_letters", {}).items()}
    number = record.runs.index(run)
    return {
        (model, arm): names[letter]
        for model, runs in truth.get("shapes", {}).items()
        for arm, letter in zip(truth["arms"], next(islice(runs, number, None), ""), strict=False)
    }


def scripted_shapes(shaped: Shaped) -> pd.DataFrame:
    """Return each scripted shape of the runs shown beside what the coder made of the text.

    Columns: model, run, key, scripted_shape, shape. A refusal that the judge did not call one
    is ``not-refused``; empty in a record without such a script.
    """
    rows = []
    for model, run in shaped.full.items():
        coded = {row["key"]: row["label"] for row in shaped.rows(run) if row["model"] == model}
        for (of, arm), said in stated(shaped.record, run).items():
            if of == model and said not in ("", NARROW):
                place = {"model": model, "run": run, "key": arm, "scripted_shape": said}
                rows.append(place | {"shape": coded.get(arm, "not-refused")})
    return pd.DataFrame(rows, columns=["model", "run", "key", "scripted_shape", "shape"])


@of_shapes
def shapes(shaped: Shaped) -> Markup:
    """Return scripted against coded shapes, in a record whose answers were written beforehand."""
    if not shaped.record.panel.get("truth_sha256"):
        return UNSCRIPTED
    frame = scripted_shapes(shaped)
    if frame.empty:
        return Markup("<p>The script of this record states no shapes.</p>")
    counts = pd.crosstab(frame.scripted_shape, frame["shape"])
    order = (*CODES, "not-refused")
    counts = counts.reindex(index=[it for it in order if it in counts.index],
                            columns=[it for it in order if it in counts.columns])  # fmt: skip
    shown = counts.rename_axis("Scripted; as coded to the right", axis=0).rename_axis(None, axis=1)
    said = html(
        "<p>Texts coded as scripted: <b>{} of {}</b> distinct texts, standing for {} of {} "
        "responses. The texts are few, plain and written by the authors of the manual: this shows "
        "that shapes are told apart and none is swapped on the way, and no error on real "
        "refusals.</p>",
        *_texts(shaped, frame),
    )
    parts = [said, table(shown.reset_index()), _narrow(shaped.entailed)]
    return with_data(joined(parts), "shape-truth", frame)


def _texts(shaped: Shaped, frame: pd.DataFrame) -> tuple[int, int, int, int]:
    """Count the distinct texts coded as scripted, all of them, and the responses of both."""
    answers = {run: shaped.record.stored(run).answers for run in {*frame.run}}
    places = zip(frame.run, frame.model, frame.key, strict=True)
    texts = pd.Series([str(answers[run][model, key].get("text", "")) if (model, key) in answers[run]
                       else "" for run, model, key in places], index=frame.index)  # fmt: skip
    alike = frame.scripted_shape == frame["shape"]
    # A text stands for one shape; where one is coded in two ways it does not count as right.
    right = alike.groupby(texts).all()
    return int(right.sum()), len(right), int(alike.sum()), len(frame)


def _narrow(entailed: Entailed) -> Markup:
    """Return the row of scope-narrow, which judges say and no rule: right, missed and false."""
    passed = {one.model for one, _ in entailed.passed}
    rows = [row for row in _held(entailed) if row["Judge"] in passed]
    if not rows:
        return Markup(
            "<p><code>scope-narrow</code>: no judge of this record passed its gate, so none of "
            "its scripted answers is counted as right, missed or false.</p>"
        )
    said = "<p><code>scope-narrow</code>, by the judges that passed:</p>{}{}"
    return html(said, table(pd.DataFrame(rows)), PLUMBING)


def _held(entailed: Entailed) -> list[dict[str, Any]]:
    """Return for each judge how its events stand to the script, where it passed its gate."""
    frame = _judged(entailed)
    lines = []
    for judge, of in frame.groupby("entailment_judge", sort=False):
        event, narrows = of.verdict_kind == OTHER, of.narrows
        counts = {
            "Scripted to another question": int(narrows.sum()),
            RIGHT.capitalize(): int((narrows & event).sum()),
            MISSED.capitalize(): int((narrows & ~event).sum()),
            "Scripted to the question": int((~narrows).sum()),
            FALSE.capitalize(): int((~narrows & event).sum()),
        }
        lines.append({"Judge": judge} | counts)
    return lines


def _judged(entailed: Entailed) -> pd.DataFrame:
    rows = []
    for one in entailed.judges:
        truth = stated(entailed.record, one.run)
        for row in one.judging.rows:
            said = truth.get((row["model"], row["key"]))
            if said in ("", NARROW):
                place = {"entailment_judge": one.model, "narrows": said == NARROW}
                rows.append(place | {"verdict_kind": entailed.kind(one, row)})
    return pd.DataFrame(rows, columns=["entailment_judge", "narrows", "verdict_kind"])


@of_verdicts
def verdicts(entailed: Entailed) -> Markup:
    """Return what judges said of answers that were scripted to answer, and of those to narrow."""
    if not entailed.record.panel.get("truth_sha256"):
        return UNSCRIPTED
    rows = _held(entailed)
    if not rows:
        return Markup("<p>The script of this record does not state which answers narrow.</p>")
    passed = {one.model for one, _ in entailed.passed}
    marked = [{**row, "Gate": "passed" if row["Judge"] in passed else "failed"} for row in rows]
    said = (
        "<p><i>Right</i> and <i>false</i> are complete answers of which the judge names another "
        "question; <i>missed</i> is every other verdict, a missing one among them.</p>"
    )
    return html("{}{}{}", Markup(said), table(pd.DataFrame(marked)), PLUMBING)
