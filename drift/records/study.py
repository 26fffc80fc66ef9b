"""A coder study: the folder that was drawn, what coders handed in, and the labels to seal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from drift.config import sha256_hex
from drift.errors import ConfigurationError, IntegrityError
from drift.records.coding import CODER, Row
from drift.records.draw import Key, SheetRow, Unit, read_key, redraw
from drift.records.ledger import Ledger
from drift.records.scheme import SCHEMES, Scheme, taken
from drift.records.sheet import Marks, read_marks, read_sheet
from drift.records.store import Store, dump_line

#: Fewest answers labelled by both from which agreement, and of one model and language from which
#: a rate, is estimated; fewest coded by people in the study.
FEWEST_ROWS, FEWEST_CODED = 30, 100
JUDGE, FINAL = "judge", "adjudicated"


@dataclass(frozen=True)
class Study:
    """The folder that `drift code draw` wrote: the key, and what coders see."""

    folder: Path
    key: Key
    sheet: dict[str, SheetRow]

    @property
    def scheme(self) -> Scheme:
        """The vocabulary that it is read in."""
        return SCHEMES[self.key.scheme]

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
        same = redraw(study.key, store, ledger.forwards()).key == study.key
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
    named = sorted({JUDGE, FINAL, *judges})
    if not CODER.fullmatch(name) or name in named or taken(name):
        raise ConfigurationError(
            "not a coder's name",
            where=where,
            got=name,
            expected=f"lower-case letters, digits, '.', '_' and '-'; not {', '.join(named)}",
            next_step=next_step,
        )


def read_coders(study: Study, paths: Sequence[Path]) -> list[Marks]:
    """Read what coders handed in; ConfigurationError if two files name the same coder."""
    found = [read_marks(path, study.sheet, scheme=study.scheme) for path in paths]
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

    By the limits of :func:`drift.records.readers.compare`; empty if every model and language can
    have a corrected rate, or in a scheme without rates, if agreement can be computed.
    """
    drawn, there = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for stratum in key.strata:
        drawn[stratum.model, stratum.language] += stratum.drawn
        there[stratum.model, stratum.language] += stratum.units
    few = [name for name in sorted(drawn) if drawn[name] < FEWEST_ROWS]
    if SCHEMES[key.scheme].kinds is None:
        if len(key.rows) >= FEWEST_ROWS:
            return []
        why = f"no agreement: {len(key.rows)} answers, {FEWEST_ROWS} are needed"
        more = there.total() > drawn.total()
    elif len(key.rows) < FEWEST_CODED:
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


def sealed_of(key: Key) -> dict[str, Any] | None:
    """Return what a ledger line says of a study besides its labels; None of refusals."""
    if key.scheme == "refusal":
        return None
    return {"scheme": key.scheme, "of": key.judge, "sample": key.arguments}
