"""Passes over a corpus beside the runs: a batch of ladders, a night of the board.

A pass is one line of the record's ledger, and each word on it, such as a judge's, is another.
None is a run: no series, rate or alarm reads them. Rows are stored like those of a run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import orjson

from drift.config import ModelSpec, sha256_hex
from drift.probing.cost import usage
from drift.records.ledger import Ledger, Line, write_atomically
from drift.records.run import responses_hash, transcript_bytes
from drift.records.sealing import OpenRun
from drift.records.store import Store

Kind = Literal["batch", "night"]
#: The line that says the first word on a pass, by its kind.
READ_BY: dict[Kind, str] = {"batch": "outcomes", "night": "scores"}
#: A pass's body, and those of the lines that say something of it.
Sealed = tuple[dict[str, Any], list[dict[str, Any]]]

#: What can be answered to, and is judged.
SAID = ("ok", "truncated")

Message = dict[str, str]
#: Rows by (model, key).
Rows = Mapping[tuple[str, str], Mapping[str, Any]]


def by_place(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], Mapping[str, Any]]:
    """Return rows by (model, key)."""
    return {(row["model"], row["key"]): row for row in rows}


def seal_pass(
    store: Store,
    ledger: Ledger,
    kind: Kind,
    current: OpenRun,
    specs: Mapping[str, ModelSpec],
    *,
    at: datetime,
) -> dict[str, Any]:
    """Write the transcript of an open pass, then its ledger line; return the line's body."""
    responses = current.responses()
    data = transcript_bytes(responses)
    write_atomically(store.transcript(current.run), data)
    models: dict[str, dict[str, Any]] = {}
    for name, part in current.header["instruments"].items():
        rows = current.rows_of(name)
        models[name] = part | {
            "counts": dict(sorted(Counter(row["status"] for row in rows).items())),
            "responses": responses_hash(rows),
            "usage": usage(specs.get(name), rows),
        }
        if name in current.stopped:
            models[name]["stopped"] = current.stopped[name]
    left_out = ("instruments", "models", "scope", "slot")
    header = {name: value for name, value in current.header.items() if name not in left_out}
    asked = [row["asked_at"] for row in responses]
    body = {
        **header,
        "finished_at": max([header["started_at"], *asked]),
        "models": models,
        "transcript": sha256_hex(data),
    }
    return ledger.append(kind, body, at=at).body


def targets(body: Mapping[str, Any]) -> list[str]:
    """Return the models that a pass asks, without an elicitor's parts."""
    return [name for name, part in body["models"].items() if part["role"] != "elicitor"]


def sealed_passes(lines: Iterable[Line], kind: Kind, word: str) -> list[Sealed]:
    """Return each pass's body with those of the lines `word` that read it, in order."""
    found: dict[str, Sealed] = {}
    for line in lines:
        if line.kind == kind:
            found[line.body["run"]] = (line.body, [])
        elif line.kind == word and line.body["run"] in found:
            found[line.body["run"]][1].append(line.body)
    return list(found.values())


def open_passes(store: Store, kind: Kind) -> list[Path]:
    """Return the passes still being asked, oldest first; at most one in a sound record."""
    return sorted(open_folder(store, kind).glob("*.jsonl"))


def open_folder(store: Store, kind: Kind) -> Path:
    """Return where a pass is stored while it is asked."""
    return store.folder / "open" / {"batch": "batches", "night": "nights"}[kind]


def open_headers(store: Store) -> Iterator[dict[str, Any]]:
    """Yield what the open passes begin with, where a kill left that much."""
    for path in (path for kind in READ_BY for path in open_passes(store, kind)):
        with path.open("rb") as stream, suppress(orjson.JSONDecodeError):
            yield orjson.loads(stream.readline())
