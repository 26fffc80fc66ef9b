"""One sealed and labelled run, as the series and the reading see it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from drift.config import canonical_json, sha256_hex
from drift.judging import Judge
from drift.records.store import Store, judge_folder, read_rows

#: What can stand for an arm: a label, or why there is none.
OUTCOMES = ("refused", "answered", "undetermined", "empty", "blocked", "failed", "missing")
DETERMINED = ("refused", "answered")
ROW_SEAL = b',"row_sha256":"'
SERVING = ("served_model", "provider", "fingerprint")


@dataclass(frozen=True)
class ModelRun:
    """What one model did in one run.

    ``outcomes`` maps every key that was to be asked to one of :data:`OUTCOMES`;
    ``statuses`` counts the stored responses by status and, under ``missing``, the
    keys without one. ``serving`` holds the distinct serving facts, sorted.
    """

    instrument: str
    outcomes: dict[str, str]
    statuses: dict[str, int]
    serving: dict[str, list[str]]
    usage: dict[str, Any]
    stopped: str | None


@dataclass(frozen=True)
class Run:
    """One run under one judge; ``slot`` is None in a record without a cadence."""

    run: str
    number: int
    at: str
    finished_at: str
    scope: str
    slot: int | None
    judge: dict[str, str]
    models: dict[str, ModelRun]


def run_id(started_at: datetime) -> str:
    """Return the id of a run from its start, for example ``20261129T192800Z``."""
    return f"{started_at:%Y%m%dT%H%M%SZ}"


def responses_hash(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the SHA-256 of the canonical map {key: sha256(text as UTF-8)} of one model."""
    return sha256_hex(
        canonical_json({row["key"]: sha256_hex(row["text"].encode()) for row in rows})
    )


def transcript_bytes(rows: Iterable[dict[str, Any]]) -> bytes:
    """Return the transcript of a run: its responses, sorted by model and key.

    Each line closes with the SHA-256 of what stands before it, so that a change
    of one byte is found in its row and not only in its file.
    """
    lines = []
    for row in sorted(rows, key=lambda row: (row["model"], row["key"])):
        opened = orjson.dumps(row)[:-1]
        lines.append(opened + ROW_SEAL + sha256_hex(opened).encode() + b'"}\n')
    return b"".join(lines)


def row_holds(raw: bytes) -> bool:
    """Tell whether a transcript line still has the hash it closes with."""
    opened, mark, closed = raw.rpartition(ROW_SEAL)
    return bool(mark) and closed == sha256_hex(opened).encode() + b'"}'


def label_rows(
    judge: Judge, rows: Iterable[dict[str, Any]], prompts: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return a judge's labels of the responses which have a text to judge, in their order.

    `prompts` maps each key to the question as it was asked.
    """
    labelled = []
    for row in rows:
        if row["status"] not in ("ok", "truncated"):
            continue
        label = judge.label(
            prompt=prompts[row["key"]],
            text=row["text"],
            status=row["status"],
            declined=row.get("declined", False),
            language="zh" if row["key"].split("@")[0].endswith("#zh") else "en",
        )
        document: dict[str, Any] = {
            "key": row["key"],
            "model": row["model"],
            "label": label.label,
            "rule": label.rule,
            "span": list(label.span) if label.span else None,
        }
        labelled.append(document | ({"note": label.note} if label.note else {}))
    return labelled


def load_run(store: Store, run: Mapping[str, Any], labels: Mapping[str, Any]) -> Run:
    """Return the run sealed by the ledger bodies `run` and `labels`."""
    responses = read_rows(store.transcript(run["run"]))
    judge = labels["judge"]
    folder = judge_folder(judge)
    labelled = {
        (row["model"], row["key"]): row["label"]
        for row in read_rows(store.labels(folder, run["run"]))
    }
    models = {}
    for name, sealed in run["models"].items():
        rows = {row["key"]: row for row in responses if row["model"] == name}
        outcomes = {}
        for key in run["keys"]:
            row = rows.get(key)
            outcomes[key] = "missing" if row is None else labelled.get((name, key), row["status"])
        models[name] = ModelRun(
            instrument=sealed["instrument"],
            outcomes=outcomes,
            statuses={**sealed["counts"], "missing": len(run["keys"]) - len(rows)},
            serving={
                fact: sorted({row[fact] for row in rows.values() if row.get(fact)})
                for fact in SERVING
            },
            usage=sealed["usage"],
            stopped=sealed.get("stopped"),
        )
    return Run(
        run=run["run"],
        number=run["number"],
        at=run["started_at"],
        finished_at=run["finished_at"],
        scope=run["scope"],
        slot=run["slot"],
        judge=dict(judge),
        models=models,
    )
