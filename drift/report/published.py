"""What is published beside the pages: tables, figures, notebooks, transcripts, the record.

Addresses are promised to readers (the page ``integrity`` lists them), so a name that
two pages of a record claim is an error.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import orjson
import pandas as pd
from pydantic import Field

from drift.config import Strict, load_checked
from drift.errors import DriftError
from drift.records.store import plain_name, read_bytes
from drift.report.archive import publish_record
from drift.report.display import DATA, plain_table
from drift.report.feed import UNFIT, publish_feeds
from drift.report.figures import PAGE_COLOURS
from drift.report.tables import Record, responses, run_ids

#: Columns of ``data/transcripts.csv`` that :func:`drift.report.tables.responses` has already.
TRANSCRIPT = "run model key topic family variant control full status outcome rule note".split()
SERVED = "served_model provider fingerprint error text".split()
#: A cell that begins so would be a formula in a spreadsheet.
FORMULA = ("=", "+", "-", "@", "\t", "\r")
FIGURE = re.compile(r'<figure class="drift-figure" id="([^"]+)">.*?(<svg.*?</svg>)', re.S)
#: The ink of a figure that stands on white, away from any page.
INK = "#1f2328"


class Column(Strict):
    """What a column of a download holds."""

    type: Literal["string", "integer", "number", "boolean", "time", "hash"]
    unit: str = ""
    meaning: str = Field(min_length=1)


class Codebook(Strict):
    """Every column of every download, by name."""

    column: dict[str, Column]


def load_codebook(root: Path) -> dict[str, Column]:
    """Return the columns of ``config/codebook.toml``; ConfigurationError if a field is wrong."""
    return load_checked(root / "config" / "codebook.toml", Codebook, kind="codebook").column


def publish_files(
    root: Path, shown: Sequence[Record], executed: Mapping[str, str], site: Path
) -> None:
    """Write into `site` all that is published beside the pages of the records `shown`.

    Parameters
    ----------
    root : Path
        The project: its codebook, and its cache of zips.
    executed : mapping
        Executed notebooks by ``<record>/<page>.ipynb``.

    Raises
    ------
    DriftError
        Two tables of a record have one name, or a file of the record is missing.
    """
    codebook = load_codebook(root)
    described = ([name, it.type, it.unit, it.meaning] for name, it in sorted(codebook.items()))
    _write(site / "codebook.csv", to_csv(["name", "type", "unit", "meaning"], described))
    records = {record.name: record for record in shown}
    for name, text in executed.items():
        place = (site / "report" / name).with_suffix("")
        _write(place.with_suffix(".ipynb"), text.encode())
        record = records.get(place.parent.name)
        about = {"page": place.name, "record": record.name if record else ""}
        about["run"] = record.reading.get("run", "") if record else ""
        for found, table in _tables(orjson.loads(text)):
            _publish_table(place.parent / "data" / plain_name(found), table, about, codebook)
        for found, picture in _pictures(orjson.loads(text)):
            _write(place.parent / "data" / f"{found}.svg", standing_alone(picture).encode())
    for record in shown:
        folder = site / "report" / record.name
        for run in run_ids(record.store.folder):
            if record.reading and run <= record.reading["run"]:
                _write(folder / "runs" / f"{run}.json", read_bytes(record.store.reading(run)))
        if record.reading:
            _publish_transcripts(record, folder / "data" / "transcripts")
        publish_record(record, folder / "record", cache=root / ".cache" / "record" / record.name)
    publish_feeds(root, shown, site)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _claim(path: Path) -> None:
    """Refuse the name of a download that another table of the record has taken."""
    if path.exists():
        raise DriftError(
            "two tables of one record have the same name",
            where="/".join(path.parts[-3:]),
            next_step="give one of them another name: it is the address of a download",
        )


def _outputs(notebook: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            yield output.get("data", {})


def _tables(notebook: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for data in _outputs(notebook):
        yield from data.get(DATA, {}).items()


def _pictures(notebook: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for data in _outputs(notebook):
        yield from FIGURE.findall("".join(data.get("text/html", "")))


def _publish_table(
    path: Path, table: Mapping[str, Any], about: Mapping[str, str], codebook: Mapping[str, Column]
) -> None:
    _claim(path.with_name(f"{path.name}.csv"))
    known = {name: codebook[name].model_dump() for name in table["columns"] if name in codebook}
    columns = [{"name": name} | known.get(name, {}) for name in table["columns"]]
    whole = [column.get("type") == "integer" for column in columns]
    rows = [list(map(_typed, row, whole)) for row in table["rows"]]
    document = {"name": path.name, **about, "columns": columns, "rows": rows}
    _write(path.with_name(f"{path.name}.json"), orjson.dumps(document) + b"\n")
    _write(path.with_name(f"{path.name}.csv"), to_csv(table["columns"], rows))


def _typed(value: Any, whole: bool) -> Any:
    """Return a value as its column has it: a frame holds integers with gaps as floats."""
    return int(value) if whole and isinstance(value, float) and value.is_integer() else value


def to_csv(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> bytes:
    """Return rows of plain values as RFC 4180 has it, in UTF-8.

    Empty is not known. An apostrophe is put before text that a spreadsheet would compute;
    JSON holds all text as it is.
    """
    stream = io.StringIO()
    writer = csv.writer(stream)
    writer.writerow(names)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return stream.getvalue().encode()


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def current_transcripts(record: Record) -> pd.DataFrame:
    """Return the responses of the latest run and of each model's last full run, with labels.

    One row a response that was to be asked; a span is that of the judge's words in the
    text, in characters, missing where it named none.
    """
    frame = responses(record)
    spans = [span if span[1] else (None, None) for span in frame.span]
    places = pd.DataFrame(spans, columns=["span_start", "span_end"], dtype=object)
    return pd.concat([frame[TRANSCRIPT], places, frame[SERVED]], axis=1)


def _publish_transcripts(record: Record, path: Path) -> None:
    _claim(path.with_suffix(".csv"))
    columns, rows = plain_table(current_transcripts(record)).values()
    _write(path.with_suffix(".csv"), to_csv(columns, rows))
    lines = (orjson.dumps(dict(zip(columns, row, strict=True))) + b"\n" for row in rows)
    _write(path.with_suffix(".jsonl"), b"".join(lines))


def standing_alone(picture: str) -> str:
    """Return the SVG element of a page as a file: on white, in colours of its own."""
    for name in PAGE_COLOURS.values():
        picture = picture.replace(name, name.rpartition(" ")[2].rstrip(")"))
    opening, _, rest = picture.replace("currentColor", INK).partition(">")
    spaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    ground = '<rect width="100%" height="100%" fill="#ffffff"/>'
    opening = opening.replace("<svg", f"<svg {spaces}", 1)
    whole = f'<?xml version="1.0" encoding="UTF-8"?>\n{opening}>{ground}{rest}\n'
    return UNFIT.sub("\ufffd", whole)
