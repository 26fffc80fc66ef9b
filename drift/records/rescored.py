"""What a registration states of a rescoring, counted again from the labels that are sealed.

A registration by which other rules of the judge follow those that a series was read with states
in ``rescored`` how many stored labels of each model's open series moved. A series ends where any
did, so the counts decide which runs are compared. They follow from the labels lines before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from drift.records.ledger import Line
from drift.records.series import SeriesState
from drift.records.store import Store, judge_folder, read_rows

#: What stands for a value, a line or a file that one side has and the other has not.
ABSENT = "absent"

#: The labels lines of each run, in their order.
_Read = Mapping[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class Misstated:
    """A field of a registration that the labels before it do not give; `line` counts from 1."""

    line: int
    field: str
    stated: str
    counted: str


def misstated(
    store: Store, lines: Iterable[Line], series: Mapping[str, Mapping[str, SeriesState]]
) -> Iterator[Misstated]:
    """Yield what registrations among `lines` state otherwise than the labels in `store` give.

    `series` holds the states of the models that each registration found, by its line's hash.
    Labels are read only where a registration moves the rules that an open series is read with.
    """
    read: dict[str, list[dict[str, Any]]] = {}
    rules = ""
    for line in lines:
        if line.kind == "run":
            read[line.body["run"]] = []
        elif line.kind == "labels":
            read[line.body["run"]].append(line.body)
        elif line.kind == "registration":
            for field, stated, counted in _wrong(store, line.body, rules, read, series[line.hash]):
                yield Misstated(line.seq + 1, field, stated, counted)
            rules = line.body["judge"]["rules"]


def _wrong(
    store: Store,
    body: Mapping[str, Any],
    rules: str,
    read: _Read,
    series: Mapping[str, SeriesState],
) -> Iterator[tuple[str, str, str]]:
    """Yield field, what is stated, and what follows; `rules` are those registered before."""
    judge = {name: body["judge"][name] for name in ("id", "rules", "fingerprint")}
    due = any(state.rules != judge["rules"] for state in series.values())
    whole = f"a rescoring of {len(read)} runs"
    if "rescored" not in body or not due:
        if due or "rescored" in body:
            yield "rescored", *((ABSENT, whole) if due else (whole, ABSENT))
        return
    stated = body["rescored"]
    if stated["from"] != rules:
        yield "rescored.from", stated["from"], rules
    unread = [run for run, labels in read.items() if all(it["judge"] != judge for it in labels)]
    if unread:
        there = f"labels by {judge_folder(judge)} of {len(read) - len(unread)}"
        yield "rescored", whole, f"{there}, none of run {unread[0]}"
        return
    moved = _moved(store, judge, read, series)
    for model in sorted(moved.keys() | stated["moved"].keys()):
        if model not in series:
            yield f"rescored.moved.{model}", str(stated["moved"][model]), ABSENT
        elif stated["moved"].get(model, 0) != moved[model]:
            yield f"rescored.moved.{model}", str(stated["moved"].get(model, 0)), str(moved[model])


def _moved(
    store: Store, judge: Mapping[str, str], read: _Read, series: Mapping[str, SeriesState]
) -> Counter[str]:
    """Count by model the labels in open series that differ from those first read."""
    opened = {model: state.opened_at_run for model, state in series.items()}
    moved: Counter[str] = Counter()
    for run, labels in read.items():
        again = next(it for it in labels if it["judge"] == judge)
        # Equal hashes: the same labels by the same rules.
        if run < min(opened.values(), default=run) or again["labels"] == labels[0]["labels"]:
            continue
        before, after = (
            {(row["model"], row["key"], row["label"]) for row in read_rows(path)}
            for path in (store.labels(judge_folder(it["judge"]), run) for it in (labels[0], again))
        )
        others = (model for model, *_ in after - before if model in opened)
        moved.update(model for model in others if run >= opened[model])
    return moved
