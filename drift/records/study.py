"""A coder study once it is read: who agrees with whom, what the labels are, and the rates.

Coders are compared with each other and with the judge, in raw agreement, Cohen's kappa and kappa
with linear weights over refused < undetermined < answered, each weighted to all answers that the
study was drawn from. An answer that a coder left uncoded counts as not drawn: each coder reads in
an order of their own, so who stops early has read a random part; who passes over the hard ones
has not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from drift.config import sha256_hex
from drift.errors import ConfigurationError, IntegrityError
from drift.judging.ruleset import Word
from drift.records.coding import CODER, Row
from drift.records.draw import Key, SheetRow, Unit, read_key, redraw
from drift.records.ledger import Ledger
from drift.records.sheet import Marks, read_marks, read_sheet
from drift.records.store import Store, dump_line
from drift.stats.agreement import ORDER, Estimate
from drift.stats.survey import (
    AGREEMENT,
    RATE,
    Sample,
    kappa_interval,
    stratified_share,
    weighted_table,
)

#: Fewest answers labelled by both from which agreement, and of one model and language from which
#: a rate, is estimated; fewest coded by people in the study; the seed of the bootstrap.
FEWEST_ROWS, FEWEST_CODED, SEED = 30, 100, 20261129
JUDGE, FINAL = "judge", "adjudicated"


@dataclass(frozen=True)
class Study:
    """The folder that `drift code draw` wrote: the key, and what coders see."""

    folder: Path
    key: Key
    sheet: dict[str, SheetRow]

    @property
    def units(self) -> list[tuple[str, Unit]]:
        """Every drawn unit with the id of the row in which it is read."""
        return [(row, unit) for row, keyed in self.key.rows.items() for unit in keyed.units]


def read_study(folder: Path) -> Study:
    """Read a study; IntegrityError if its key was changed or its sheet is another.

    ConfigurationError if it cannot be read, or what its key calls a panel is a path.
    """
    key, path = read_key(folder / "key.json"), folder / "sheet.csv"
    if key != key.named:
        raise IntegrityError(
            "the key is not the one that its study is named by",
            where=str(folder / "key.json"),
            got=key.named.study,
            expected=key.study,
            next_step="it was changed after the draw: restore it, or draw again with the same "
            "arguments",
        )
    if Path(key.panel).name != key.panel:
        raise ConfigurationError(
            "the panel that a key names is a plain name",
            where=str(folder / "key.json"),
            got=key.panel,
            next_step="give the folder that `drift code draw` wrote",
        )
    sheet = read_sheet(path)
    if {row: it.sha256 for row, it in sheet.items()} != {
        row: keyed.read_sha256 for row, keyed in key.rows.items()
    }:
        raise IntegrityError(
            "the sheet is not the one that its key was drawn with",
            where=str(path),
            next_step="draw again with the same arguments: the same sheet comes out; "
            "coded files are copies of it under another name",
        )
    return Study(folder, key, sheet)


def check_study(study: Study, store: Store, ledger: Ledger) -> None:
    """Raise IntegrityError unless the record draws the same key again: strata, labels and texts."""
    try:
        same = redraw(study.key, store, ledger).key == study.key
    except ConfigurationError:
        same = False
    if not same:
        raise IntegrityError(
            "the record does not draw this key",
            where=str(study.folder / "key.json"),
            next_step="is this the record that was drawn from? `drift verify` checks it",
        )


def check_reader(
    name: str,
    judges: Collection[str] = (),
    *,
    where: str | None = None,
    next_step: str | None = None,
) -> None:
    """Raise ConfigurationError if no coder of a study of these judges can have this name."""
    taken = sorted({JUDGE, FINAL, *judges})
    if not CODER.fullmatch(name) or name in taken:
        raise ConfigurationError(
            "not a coder's name",
            where=where,
            got=name,
            expected=f"lower-case letters, digits, '.', '_' and '-'; not {', '.join(taken)}",
            next_step=next_step,
        )


def read_coders(study: Study, paths: Sequence[Path]) -> list[Marks]:
    """Read what coders handed in; ConfigurationError if two files name the same coder."""
    found = [read_marks(path, study.sheet) for path in paths]
    for marks, path in zip(found, paths, strict=True):
        if marks.study not in ("", study.key.study):
            where, got = str(path), marks.study
            raise ConfigurationError("a file of another study", where=where, got=got)
        step = "rename the file, or set the name on the page"
        check_reader(marks.coder, where=str(path), next_step=step)
    if len({marks.coder for marks in found}) < len(found):
        got = ", ".join(marks.coder for marks in found)
        raise ConfigurationError("a file each, of coders who are not the same", got=got)
    return found


def disagreements(first: Marks, second: Marks) -> list[str]:
    """Return the rows which both coded, and coded differently."""
    both = first.labels.keys() & second.labels.keys()
    return sorted(row for row in both if first.labels[row] != second.labels[row])


def adjudicated(first: Marks, second: Marks, third: Marks) -> Marks:
    """Return the labels on which two coders agree, and where they do not the adjudicator's.

    Raises
    ------
    ConfigurationError
        A disagreement is not adjudicated: what is left over would be the hard ones. Or a row is
        on which the two do not differ: the adjudicator's file is then most likely a coder's.
    """
    due = disagreements(first, second)
    if left := [row for row in due if row not in third.labels]:
        raise ConfigurationError(
            f"{len(left)} of {len(due)} disagreements are not adjudicated",
            got=", ".join(left[:5]),
            next_step="code every row of the sheet that `drift code adjudicate` wrote",
        )
    if more := sorted(third.labels.keys() - set(due)):
        raise ConfigurationError(
            f"{third.coder} codes rows that {first.coder} and {second.coder} do not call "
            "differently",
            got=f"{len(more)} such rows: {', '.join(more[:5])}",
            expected=f"the {len(due)} rows of their disagreements",
            next_step="is it the file of a coder? --adjudicated takes the sheet that "
            "`drift code adjudicate` wrote, coded by a third",
        )
    both = first.labels.keys() & second.labels.keys()
    labels = {row: third.labels[row] if row in due else first.labels[row] for row in both}
    return replace(third, coder=FINAL, labels=dict(sorted(labels.items())))


def too_few(key: Key) -> list[str]:
    """Return why rates could not be corrected even if all was read, and what may help.

    By the limits of :func:`compare`; empty if every model and language can have a corrected rate.
    """
    drawn, there = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for stratum in key.strata:
        drawn[stratum.model, stratum.language] += stratum.drawn
        there[stratum.model, stratum.language] += stratum.units
    few = [name for name in sorted(drawn) if drawn[name] < FEWEST_ROWS]
    if len(key.rows) < FEWEST_CODED:
        why = f"no model gets a corrected rate: {len(key.rows)} answers, {FEWEST_CODED} are needed"
        more = there.total() > drawn.total()
    elif few:
        named = ("{}, {} ({} of {})".format(*name, drawn[name], there[name]) for name in few)
        why = f"no corrected rate below {FEWEST_ROWS} answers of its own: {'; '.join(named)}"
        more = any(there[name] >= FEWEST_ROWS for name in few)
    else:
        return []
    helps = ["a larger --n"] * more + ["--arms all"] * (key.arms == "canonical")
    return [why, f"what may help: {', '.join([*helps, 'further runs by --run'])}"]


def label_lines(study: Study, marks: Marks) -> bytes:
    """Return the labels of a coder as a labels file: a line for every response of a unit read."""
    of = [(row, unit) for row, unit in study.units if row in marks.labels]
    strata = np.bincount([unit.stratum for _, unit in of], minlength=len(study.key.strata))
    rows = [
        Row(
            **place.model_dump(),
            label=marks.labels[row],
            rule="reader",
            span=None,
            text_sha256=sha256_hex(study.sheet[row].answer.encode()),
            drawn=(int(strata[unit.stratum]), study.key.strata[unit.stratum].units),
        )
        for row, unit in of
        for place in unit.responses
    ]
    rows.sort(key=lambda row: (row.run, row.model, row.key))
    return b"".join(dump_line(row.model_dump(mode="json")) for row in rows)


def compare(study: Study, coders: Sequence[Marks], final: Marks | None = None) -> dict[str, Any]:
    """Return agreement and rates of a study as a JSON-able document.

    ``pairs`` compares the coders with each other and the judge with each of them and with the
    adjudicated labels; ``rates`` gives for each model and language what :func:`_rates` says, by
    the adjudicated labels, or without any by those of each coder. What cannot be computed is None
    with a reason.
    """
    readers = [*coders, *([final] if final else [])]
    pairs = [_pair(study, *coders)] if len(coders) == 2 else []
    pairs += [_pair(study, None, marks) for marks in readers]
    key = study.key
    return {
        "study": key.study,
        "panel": key.panel,
        "judge": key.judge,
        "order": list(ORDER),
        "rows": len(key.rows),
        "units": len(study.units),
        "responses": sum(stratum.responses for stratum in key.strata),
        "pairs": pairs,
        "rates": [it for marks in ([final] if final else coders) for it in _rates(study, marks)],
    }


def _sample(study: Study, units: Sequence[tuple[str, Unit]]) -> Sample:
    """Return these units as a sample of the strata in which any of them was read."""
    numbers = [unit.stratum for _, unit in units]
    present = sorted(set(numbers))
    return Sample(
        np.array([study.key.strata[number].units for number in present], dtype=np.int64),
        np.searchsorted(present, numbers),
        np.array([len(unit.responses) for _, unit in units], dtype=np.int64),
    )


def _judged(study: Study, units: Sequence[tuple[str, Unit]]) -> list[Word]:
    return [study.key.strata[unit.stratum].label for _, unit in units]


def _pair(study: Study, first: Marks | None, second: Marks) -> dict[str, Any]:
    """Compare two coders, or the judge (None) with one, on the units that both labelled."""
    units = [
        (row, unit)
        for row, unit in study.units
        if row in second.labels and (first is None or row in first.labels)
    ]
    rows = {row for row, _ in units}
    ours = [first.labels[row] for row, _ in units] if first else _judged(study, units)
    theirs = [second.labels[row] for row, _ in units]
    found: dict[str, Any] = {
        "first": first.coder if first else JUDGE,
        "second": second.coder,
        "rows": len(rows),
        "not_coded": len(study.key.rows) - len(rows),
        "strata_not_read": len(study.key.strata) - len({unit.stratum for _, unit in units}),
        "counts": weighted_table(ours, theirs, np.ones(len(units))).astype(int).tolist(),
    }
    why = ""
    if len(rows) < FEWEST_ROWS:
        why = f"fewer than {FEWEST_ROWS} answers were labelled by both"
    elif len(set(ours)) < 2 or len(set(theirs)) < 2:
        why = "one class only"
    if not units:
        return found | {"weighted": None} | dict.fromkeys(_MEASURES, asdict(_none(why)))
    sample = _sample(study, units)
    weighted = weighted_table(ours, theirs, sample.weights)
    found["weighted"] = [[round(cell, 6) for cell in row] for row in weighted.tolist()]
    if why:
        return found | dict.fromkeys(_MEASURES, asdict(_none(why)))
    same = ["same" if a == b else "other" for a, b in zip(ours, theirs, strict=True)]
    measures = {"raw": stratified_share(sample, same, AGREEMENT)}
    for name, kind in _KAPPAS.items():
        measures[name] = kappa_interval(sample, ours, theirs, weights=kind, seed=SEED)
    return found | {name: asdict(measure) for name, measure in measures.items()}


_KAPPAS: dict[str, Literal["none", "linear"]] = {"kappa": "none", "weighted_kappa": "linear"}
_MEASURES = ("raw", *_KAPPAS)


def _none(reason: str) -> Estimate:
    return Estimate(None, None, None, reason)


def _rates(study: Study, marks: Marks) -> list[dict[str, Any]]:
    """Return refusal rates of each model and language as one reader's labels correct them.

    ``judged`` is the judge's own rate over all answers drawn from, ``design_based`` and
    ``prediction_powered`` are those of :func:`drift.stats.survey.stratified_share`. They are
    answers of the study's runs and arms; a rate of a reading is of one run's canonical arms.
    """
    names = sorted({(stratum.model, stratum.language) for stratum in study.key.strata})
    return [
        {"reader": marks.coder, "model": model, "language": language}
        | _rate(study, marks, model, language)
        for model, language in names
    ]


def _rate(study: Study, marks: Marks, model: str, language: str) -> dict[str, Any]:
    strata = {
        number: stratum
        for number, stratum in enumerate(study.key.strata)
        if (stratum.model, stratum.language) == (model, language)
    }
    units = [it for it in study.units if it[1].stratum in strata and it[0] in marks.labels]
    said: Counter[str] = Counter()
    for stratum in strata.values():
        said[stratum.label] += stratum.responses
    totals = (said["refused"], said["refused"] + said["answered"])
    coded, unread = len(marks.labels), len(strata) - len({unit.stratum for _, unit in units})
    if coded < FEWEST_CODED:
        design = powered = _none(
            f"fewer than {FEWEST_CODED} answers of our own are coded ({coded})"
        )
    elif len(units) < FEWEST_ROWS:
        design = powered = _none(
            f"fewer than {FEWEST_ROWS} of its answers are coded ({len(units)})"
        )
    elif unread:
        why = f"{unread} of its {len(strata)} strata have no answer that was coded"
        design = powered = _none(why)
    else:
        sample, labels = _sample(study, units), [marks.labels[row] for row, _ in units]
        judged = _judged(study, units)
        design = stratified_share(sample, labels, RATE)
        powered = stratified_share(sample, labels, RATE, predicted=judged, totals=totals)
    return {
        "coded": len(units),
        "units": sum(stratum.units for stratum in strata.values()),
        "judged": {"refused": totals[0], "n": totals[1]},
        "design_based": asdict(design),
        "prediction_powered": asdict(powered),
    }
