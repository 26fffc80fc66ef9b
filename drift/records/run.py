"""One sealed and labelled run, as the series and the reading see it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from drift.config import canonical_json, sha256_hex
from drift.judging.labeller import Labeller
from drift.records.store import Store, judge_folder, read_rows

#: What can stand for an arm: a label, or why there is none.
OUTCOMES = ("refused", "answered", "undetermined", "empty", "blocked", "failed", "missing")
DETERMINED = ("refused", "answered")
ROW_SEAL = b',"row_sha256":"'
SERVING = ("served_model", "provider", "fingerprint")


@dataclass(frozen=True)
class ModelRun:
    """What one model did in one run.

    ``sealed`` is its entry in the run's ledger line: instrument, counts by status,
    usage, and why it stopped. ``outcomes`` maps every key that was to be asked to one
    of :data:`OUTCOMES`; ``serving`` holds the distinct serving facts, sorted.
    """

    sealed: Mapping[str, Any]
    outcomes: dict[str, str]
    serving: dict[str, list[str]]


@dataclass(frozen=True)
class Run:
    """One run under one judge: its ledger line, the judge's identity, and the answers."""

    body: Mapping[str, Any]
    judge: dict[str, str]
    models: dict[str, ModelRun]

    @property
    def id(self) -> str:
        return str(self.body["run"])


def family(arm: str) -> str:
    """Return the family of an arm: ``topic/slug`` of ``topic/slug#en-1``."""
    return arm.partition("#")[0]


def determined_labels(outcomes: Mapping[str, str]) -> dict[str, str | None]:
    """Return the outcomes that are determined labels, and None in place of the others."""
    return {key: what if what in DETERMINED else None for key, what in outcomes.items()}


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
    judge: Labeller, rows: Iterable[dict[str, Any]], prompts: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return a judge's labels of the responses which have a text to judge, in their order.

    `prompts` maps each key to the question as it was asked. What a judge has no word on, as a
    shape coder on an answer, is left out.
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
            language="zh" if "#zh" in row["key"] else "en",
        )
        if label is None:
            continue
        document = {"key": row["key"], "model": row["model"]} | label._asdict()
        if not label.note:
            del document["note"]
        labelled.append(document)
    return labelled


def load_run(store: Store, run: Mapping[str, Any], labels: Mapping[str, Any]) -> Run:
    """Return the run sealed by the ledger bodies `run` and `labels`."""
    judge = labels["judge"]
    labelled = {
        (row["model"], row["key"]): row["label"]
        for row in read_rows(store.labels(judge_folder(judge), run["run"]))
    }
    rows = read_rows(store.transcript(run["run"]))
    models = {}
    for name, sealed in run["models"].items():
        mine = [row for row in rows if row["model"] == name]
        found = {row["key"]: labelled.get((name, row["key"]), row["status"]) for row in mine}
        models[name] = ModelRun(
            sealed,
            dict.fromkeys(run["keys"], "missing") | found,
            {fact: sorted({row[fact] for row in mine if row.get(fact)}) for fact in SERVING},
        )
    return Run(run, judge, models)
