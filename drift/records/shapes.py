"""The shapes of a record's refusals, which are the labels of a further judge by published rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from drift.errors import IntegrityError
from drift.judging import Judge, load_judge
from drift.judging.labeller import Labeller
from drift.judging.shapes import SHAPES, ShapeCoder, load_shape_coder
from drift.records.ledger import Line
from drift.records.scheme import SHAPE
from drift.records.store import Store, judge_folder, read_rows


def load_coder(root: Path, judge: Judge | None = None) -> ShapeCoder:
    """Return the shape coder of the project at `root`, on what its judge calls refused."""
    config = root / "config"
    return load_shape_coder(config / "shapes", judge or load_judge(config / "judge"))


def load_labellers(root: Path) -> dict[str, Labeller]:
    """Return all that labels runs by the rules in ``config/``, by the hash of its rules."""
    judge = load_judge(root / "config" / "judge")
    coder = load_coder(root, judge)
    return {judge.rules_hash: judge, coder.rules_hash: coder}


class Coding(NamedTuple):
    """The line whose shapes of a run are read; ``present`` if by the rules in ``config/``."""

    body: Mapping[str, Any]
    present: bool


def codings(lines: Iterable[Line], coder: ShapeCoder) -> dict[str, Coding]:
    """Return by run which coding is read: the newest by `coder`'s rules, else the newest of all.

    Anyone can seal a line by rules that nobody knows; it is never read in the place of one that
    can be derived again.
    """
    found: dict[str, Coding] = {}
    for line in lines:
        if line.kind != "labels" or line.body["judge"]["id"] != SHAPE.judge:
            continue
        run, present = line.body["run"], line.body["judge"]["rules"] == coder.rules_hash
        if present or not (run in found and found[run].present):
            found[run] = Coding(line.body, present)
    return found


def shape_rows(store: Store, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of the labels that a ledger line, given by its body, seals.

    IntegrityError names the first that is no shape of a response.
    """
    path = store.labels(judge_folder(body["judge"]), body["run"])
    rows = read_rows(path)
    if wrong := next(wrong_shapes(rows), None):
        number, why = wrong
        raise IntegrityError(
            f"a row is no shape of a response: {why}",
            where=f"{path}:{number}",
            expected=f"key, model, label ({', '.join(SHAPES)}), rule and span",
            next_step="`drift verify` names the row; restore it from a copy of the record",
        )
    return rows


def wrong_shapes(
    rows: Iterable[Any], answers: Sequence[Mapping[str, Any]] | None = None
) -> Iterator[tuple[int, str]]:
    """Yield the number of each row that no coder of any rules can have written, and why.

    With the stored `answers` of its run, each row must be about one of them, in their order.
    """
    at = {(it["model"], it["key"]): n for n, it in enumerate(answers or ())}
    texts = {(it["model"], it["key"]): it["text"] for it in answers or ()}
    last, seen = -1, set[tuple[str, str]]()
    for number, row in enumerate(rows, start=1):
        if why := _wrong_form(row):
            yield number, why
            continue
        where = (row["model"], row["key"])
        if where in seen:
            yield number, "the response has a shape already"
        elif answers is not None and where not in at:
            yield number, "the run holds no such response"
        elif answers is not None and at[where] < last:
            yield number, "it is out of the order of the transcript"
        elif answers is not None and row["span"] and row["span"][1] > len(texts[where]):
            yield number, "the span ends after the text"
        seen.add(where)
        last = max(last, at.get(where, -1))


def _wrong_form(row: Any) -> str:
    if not isinstance(row, dict) or row.keys() - {"note"} != {*_FIELDS, "span"}:
        return "it has other fields"
    if any(not isinstance(row[name], str) for name in (*_FIELDS, *({"note"} & row.keys()))):
        return "a field is no text"
    if row["label"] not in SHAPES:
        return "the label is no shape"
    span = row["span"]
    if span is not None and not (
        isinstance(span, list) and [*map(type, span)] == [int, int] and 0 <= span[0] < span[1]
    ):
        return "the span is none"
    return ""


_FIELDS = ("key", "model", "label", "rule")
