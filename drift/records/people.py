"""What people's sealed labels say of a judge, computed again from the record alone.

A line of labels that people set under another scheme than refusals says whose words they read
(``of``) and what draws the sample again (``sample``), so that the inclusion probabilities need not
be believed: the record draws the study anew, and the labels are counted on that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from drift.errors import ConfigurationError, IntegrityError
from drift.records.draw import Key, Place, redraw
from drift.records.ledger import Line
from drift.records.readers import compare
from drift.records.scheme import ENTAILMENT, SCHEMES
from drift.records.sheet import Marks
from drift.records.store import Store, judge_folder, read_rows
from drift.records.study import FINAL, Study
from drift.stats.agreement import Estimate

NOT_READ = "no person has read any of this judge's verdicts"
NOT_DRAWN = "the record does not draw again the sample that was read"
NONE = Estimate(None, None, None, NOT_READ)


@dataclass(frozen=True)
class Correction:
    """One model and language: the judge's No among its verdicts, and what readers make of it."""

    coded: int
    units: int
    no: int
    n: int
    rate: Estimate
    design: Estimate
    precision: Estimate
    recall: Estimate


@dataclass(frozen=True)
class Corrections:
    """What readers say of one entailment judge; with a ``reason`` nothing is corrected.

    ``reader`` is whose labels count: those adjudicated, else those of who read most. ``readers``
    are all people whose labels of the study are sealed.
    """

    reason: str | None
    study: str | None = None
    readers: tuple[str, ...] = ()
    reader: str | None = None
    coded: int = 0
    precision: Estimate = NONE
    recall: Estimate = NONE
    rates: dict[tuple[str, str], Correction] = field(default_factory=dict)


def read_by_people(
    store: Store, lines: Iterable[Line], *, scheme: str, of: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """Return what is sealed of people's labels under a scheme, a document for each study.

    Each is that of :func:`drift.records.readers.compare`, of all coders and what was adjudicated,
    with a ``reason`` in the place of numbers where the record does not draw the study again;
    the study whose labels were sealed last comes last. `of` is the judge that was read.
    """
    lines = list(lines)
    studies: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        body = line.body
        if line.kind != "labels" or "scheme" not in body:
            continue
        if wrong := [*wrong_in_reading(body)]:
            raise IntegrityError(
                "a line of people's labels does not say what was read",
                where=f"chain.jsonl, line {line.seq + 1}, {wrong[0]}",
                got=repr(body.get(wrong[0]))[:80],
                next_step="restore the chain from a copy of the record",
            )
        if body["scheme"] == scheme and of in (None, body["of"]):
            studies.setdefault(body["sample"]["study"], []).append(body)
    return [_document(store, lines, bodies) for bodies in studies.values()]


def wrong_in_reading(body: Mapping[str, Any]) -> Iterator[str]:
    """Name the fields of a line of people's labels that do not say whose words were read, and how.

    Whether the sample is drawn again is another question: only the record can say.
    """
    scheme, of, sample = (body.get(name) for name in ("scheme", "of", "sample"))
    known = SCHEMES.get(scheme) if isinstance(scheme, str) else None
    if known is None:
        yield "scheme"
    if not isinstance(of, dict) or {*map(type, of.values())} != {str}:
        yield "of"
    elif not {"id", "rules", "fingerprint"} <= of.keys():
        yield "of"
    elif known and not known.reads(of["id"]):
        yield "of"
    if not isinstance(sample, dict) or not isinstance(sample.get("study"), str):
        yield "sample"


def corrections(store: Store, lines: Iterable[Line], *, of: Mapping[str, str]) -> Corrections:
    """Return rates of No as people's labels correct the entailment judge `of`."""
    found = read_by_people(store, lines, scheme=ENTAILMENT.name, of=of)
    if not found:
        return Corrections(NOT_READ)
    last = found[-1]
    readers = tuple(pair["second"] for pair in last["pairs"] if pair["first"] == "judge")
    if last["reason"]:
        return Corrections(last["reason"], study=last["study"])
    most = {pair["second"]: pair for pair in last["pairs"] if pair["first"] == "judge"}
    reader = FINAL if FINAL in most else max(sorted(most), key=lambda name: most[name]["rows"])
    by_no = most[reader]["by_word"].get(ENTAILMENT.counted, {})
    none = {"estimate": None, "low": None, "high": None, "reason": "no verdict No was read"}
    return Corrections(
        None,
        study=last["study"],
        readers=tuple(name for name in readers if name != FINAL),
        reader=reader,
        coded=most[reader]["rows"],
        precision=Estimate(**by_no.get("precision", none)),
        recall=Estimate(**by_no.get("recall", none)),
        rates={
            (it["model"], it["language"]): _correction(it)
            for it in last["rates"]
            if it["reader"] == reader
        },
    )


def _correction(rate: Mapping[str, Any]) -> Correction:
    names = ("prediction_powered", "design_based", "precision", "recall")
    measures = (Estimate(**rate[name]) for name in names)
    judged = rate["judged"]
    return Correction(rate["coded"], rate["units"], judged["no"], judged["n"], *measures)


def _document(store: Store, lines: list[Line], bodies: list[dict[str, Any]]) -> dict[str, Any]:
    study = _drawn(store, lines, bodies[0])
    if study is None:
        study_id, scheme = bodies[0]["sample"]["study"], SCHEMES[bodies[0]["scheme"]]
        named = {"study": study_id, "panel": store.folder.name, "scheme": scheme.name}
        counts = dict.fromkeys(("rows", "units", "responses"), 0)
        return {
            **named, **counts, "judge": bodies[0]["of"], "order": list(scheme.order),
            "pairs": [], "rates": [], "reason": NOT_DRAWN,
        }  # fmt: skip
    # Who sealed two files of one study is read by the newer.
    newest = {body["judge"]["id"]: body["judge"] for body in bodies}
    marks = {
        name: _marks(store, study, name, [it for it in bodies if it["judge"] == judge])
        for name, judge in newest.items()
    }
    final = marks.pop(FINAL, None)
    return compare(study, [marks[name] for name in sorted(marks)], final) | {"reason": None}


def _drawn(store: Store, lines: list[Line], body: Mapping[str, Any]) -> Study | None:
    """Return the study that a line names, drawn again; None if the record draws another."""
    sample = body["sample"]
    named = {"panel": store.folder.name, "scheme": body["scheme"], "judge": body["of"]}
    empty: dict[str, Any] = {"left_out": {}, "strata": (), "rows": {}}
    try:
        drawn = redraw(Key.model_validate({**named, **empty, **sample}), store, lines)
    except (ConfigurationError, IntegrityError, ValueError):
        return None
    if drawn.key.study != sample["study"]:
        return None
    return Study(store.folder, drawn.key, drawn.rows)


def _marks(store: Store, study: Study, coder: str, bodies: list[dict[str, Any]]) -> Marks:
    """Return one reader's sealed labels by the rows in which they were read."""
    said = {}
    for body in bodies:
        path = store.labels(judge_folder(body["judge"]), body["run"])
        for number, row in enumerate(read_rows(path), start=1):
            model, key, label = (row.get(name) for name in ("model", "key", "label"))
            words = (label in SCHEMES[body["scheme"]].order) if isinstance(label, str) else False
            if not isinstance(model, str) or not isinstance(key, str) or not words:
                raise IntegrityError(
                    "a row is no label of people",
                    where=f"{path}:{number}",
                    got=repr(label)[:80],
                    next_step="restore the file from a copy of the record",
                )
            said[Place(run=body["run"], model=model, key=key)] = str(label)
    read = ((row, unit.responses[0]) for row, unit in study.units)
    return Marks(coder, {row: said[place] for row, place in read if place in said}, {})
