"""The sheet of a coder study: a CSV that a spreadsheet opens safely and that keeps every text.

A spreadsheet reads a cell that begins with ``= + - @``, a tab or a line end as a formula or eats
it. Such a cell, and one that begins with an apostrophe, is written with an apostrophe before it;
reading takes that one off again, so the exact text comes back. Every cell is quoted: line ends,
quotation marks, NUL and U+2028 in a text stay where they are.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson

from drift.errors import ConfigurationError
from drift.records.draw import SheetRow
from drift.records.scheme import REFUSAL, Scheme

COLUMNS = ("id", "question", "answer", "cut", "language", "label", "note")
CUT = "cut at the length limit"
_GUARDED = tuple("=+-@\t\r\n'＝＋－＠")
#: Longest cell that the common spreadsheet programs keep.
_LONGEST = 32_000


@dataclass(frozen=True)
class Marks:
    """What one coder's file says: labels and notes by row id, and who the file says coded it."""

    coder: str
    labels: dict[str, str]
    notes: dict[str, str]
    study: str = ""


def guarded(text: str) -> str:
    """Return a cell that no spreadsheet takes for a formula."""
    return "'" + text if text.startswith(_GUARDED) else text


def restored(cell: str) -> str:
    """Return the text that :func:`guarded` made this cell of."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(_GUARDED) else cell


def rank(coder: str, row: str) -> int:
    """Return the place of a row in a coder's own order: a 32-bit hash, as the page computes it.

    FNV-1a over ``coder|row``, with the last mixing step of MurmurHash3.
    """
    value = 0x811C9DC5
    for byte in f"{coder}|{row}".encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    for shift, times in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        value = (value ^ value >> shift) * times & 0xFFFFFFFF
    return value


def sheet_bytes(rows: Iterable[SheetRow], coder: str = "") -> bytes:
    """Return the sheet as CSV in UTF-8 with a byte-order mark, in the order of `coder`."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, quoting=csv.QUOTE_ALL)
    writer.writerow(COLUMNS)
    for row in sorted(rows, key=lambda it: (rank(coder, it.id), it.id)):
        texts = (row.question, row.answer, CUT if row.cut else "", row.language, "", "")
        writer.writerow([row.id, *map(guarded, texts)])
    return stream.getvalue().encode("utf-8-sig")


def read_sheet(path: Path) -> dict[str, SheetRow]:
    """Read an untouched sheet back, by row id; every text is the exact one."""
    return {
        cells["id"]: SheetRow(
            cells["id"], cells["question"], cells["answer"], bool(cells["cut"]), cells["language"]
        )
        for _, cells in _cells(path, _decoded(path))
    }


def read_marks(path: Path, sheet: Mapping[str, SheetRow], *, scheme: Scheme = REFUSAL) -> Marks:
    """Read what a coder wrote: the sheet with labels, or an export of the page, CSV or JSON lines.

    Labels are words of `scheme`, or their keys or Chinese names, in any case. A row without a label
    is not coded yet. The coder is who the file names, else the file's stem.

    Raises
    ------
    ConfigurationError
        It cannot be read; or names the line whose row is not in the study or comes twice, whose
        label is none of ours, or whose text is not the row's: a column was then sorted alone.
    """
    text = _decoded(path)
    jsonl = text.lstrip().startswith("{")
    found = _objects(path, text) if jsonl else _cells(path, text)
    labels: dict[str, str] = {}
    notes: dict[str, str] = {}
    seen: set[str] = set()
    coders, studies = set(), set()
    for where, cells in found:
        row = cells["id"].strip()
        if row not in sheet:
            raise ConfigurationError(
                "no such row in the study",
                where=where,
                got=row,
                next_step="was the file made for another study?",
            )
        if row in seen:
            raise ConfigurationError("this row comes twice", where=where, got=row)
        seen.add(row)
        for name, text in (("question", sheet[row].question), ("answer", sheet[row].answer)):
            if not _same(cells.get(name), text):
                raise ConfigurationError(
                    f"the {name} beside this id is another one",
                    where=where,
                    got=row,
                    next_step="was a column sorted or filled without the others?",
                )
        coders.add(cells.get("coder", ""))
        studies.add(cells.get("study", ""))
        if word := cells["label"].strip().casefold():
            if word not in scheme.typed:
                names, keys = zip(*((it.name, it.key) for it in scheme.words), strict=True)
                expected = f"{', '.join(names)}, or {', '.join(keys)}"
                raise ConfigurationError("no label", where=where, got=word, expected=expected)
            labels[row] = scheme.typed[word]
        if note := cells.get("note", "").strip():
            notes[row] = note
    if len(coders) > 1:
        got = ", ".join(sorted(coders))
        raise ConfigurationError("a file of several coders", where=str(path), got=got)
    return Marks("".join(coders) or path.stem, labels, notes, "".join(studies))


def _decoded(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        why = "not UTF-8"
    except OSError as error:
        why = str(error.strerror)
    raise ConfigurationError(
        "the file cannot be read",
        where=str(path),
        got=why,
        next_step="a spreadsheet must save it as “CSV UTF-8”",
    )


def _cells(path: Path, text: str) -> Iterable[tuple[str, dict[str, str]]]:
    """Yield each row of a CSV with its place; the separator is that of the first line."""
    first = text.partition("\n")[0]
    mark = max(",;\t", key=first.count)
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=mark, strict=True))
    except csv.Error as error:
        raise ConfigurationError("not a CSV", where=str(path), got=str(error)) from None
    names = [name.strip() for name in rows[0]] if rows else []
    if missing := [name for name in ("id", "label") if name not in names]:
        got = ", ".join(names)[:80]
        raise ConfigurationError(
            "a column is missing", where=f"{path}:1", got=got, expected=", ".join(missing)
        )
    for number, row in enumerate(rows[1:], start=2):
        if any(row):
            cells = dict(zip(names, map(restored, row), strict=False))
            yield f"{path}: row {number}", dict.fromkeys(("id", "label"), "") | cells


def _objects(path: Path, text: str) -> Iterable[tuple[str, dict[str, str]]]:
    """Yield each line of an export of the page with its place."""
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = orjson.loads(line)
            cells = {name: row[name] for name in ("study", "coder", "id", "label", "note")}
            if not all(isinstance(cell, str) for cell in cells.values()):
                raise TypeError("every field is a text")
        except (orjson.JSONDecodeError, LookupError, TypeError) as error:
            raise ConfigurationError(
                "line is not one that the page exports",
                where=f"{path}:{number}",
                got=repr(error),
                expected="study, coder, id, label, note",
            ) from None
        yield f"{path}:{number}", cells


def _same(cell: str | None, text: str) -> bool:
    """Tell whether a cell that a spreadsheet may have saved again still holds this text.

    Line ends, white space and control characters may have changed, and a long end be lost.
    """
    if cell is None:
        return True
    found, stored = (re.sub(r"[\s\x00-\x1f\x7f'�]+", "", it) for it in (cell, text))
    return found == stored or (len(cell) >= _LONGEST and stored.startswith(found))
