"""From an open run to sealed answers, and from sealed answers to labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from drift.config import Clock, ModelSpec, sha256_hex, timestamp
from drift.errors import IntegrityError
from drift.judging.labeller import Labeller
from drift.probing.cost import usage
from drift.records.ledger import Ledger, drop_torn_tail, write_atomically
from drift.records.registration import Registration, judge_identity, registered_bank
from drift.records.run import label_rows, responses_hash, transcript_bytes
from drift.records.store import Store, append_rows, dump_line, judge_folder, read_rows

HEADER = frozenset(("run", "number", "scope", "slot", "started_at", "registration"))
HEADER |= {"models", "keys"}


@dataclass
class OpenRun:
    """A run that is being asked: its header, its rows so far, and which models stopped.

    ``unanswered`` are the failed rows of earlier passes in which nothing was heard: they
    stay stored, and stand in the run for what is not asked again.
    """

    path: Path
    header: dict[str, Any]
    rows: list[dict[str, Any]] = field(default_factory=list)
    stopped: dict[str, str] = field(default_factory=dict)
    unanswered: list[dict[str, Any]] = field(default_factory=list)

    @property
    def run(self) -> str:
        return str(self.header["run"])

    @property
    def heard(self) -> bool:
        """Whether anything came back from any model: a text, an empty one, a block."""
        return any(row["status"] != "failed" for row in self.rows)

    @classmethod
    def read(cls, path: Path) -> OpenRun:
        """Read an open run back; a torn last line is dropped."""
        drop_torn_tail(path)
        header, *rest = read_rows(path) or [{}]
        if header.get("run") != path.stem or not HEADER <= header.keys():
            raise IntegrityError(
                "an open run does not begin with its header",
                where=str(path),
                next_step="restore the file, or delete it: its answers are then asked again",
            )
        found = cls(path, header)
        for row in rest:
            if "again" in row:
                found._set_aside()
            elif "stopped" in row:
                found.stopped[row["stopped"]] = row["reason"]
            else:
                found.rows.append(row)
        return found

    def responses(self) -> list[dict[str, Any]]:
        """Return one row for each model and key that was asked: the last one stored."""
        passes = (*self.unanswered, *self.rows)
        return list({(row["model"], row["key"]): row for row in passes}.values())

    def rows_of(self, model: str) -> list[dict[str, Any]]:
        return [row for row in self.responses() if row["model"] == model]

    def unasked(self, model: str) -> list[str]:
        """Return the keys that `model` is still to be asked, in the run's order."""
        stored = {row["key"] for row in self.rows if row["model"] == model}
        return [key for key in self.header["keys"] if key not in stored]

    def ask_again(self, at: datetime) -> None:
        """Store that a run in which nothing was heard is asked anew, every model of it."""
        append_rows(self.path, [{"again": timestamp(at)}])
        self._set_aside()

    def _set_aside(self) -> None:
        self.unanswered, self.rows, self.stopped = self.responses(), [], {}

    def stop(self, model: str, reason: str) -> None:
        """Store that `model` is not asked any further in this run."""
        append_rows(self.path, [{"stopped": model, "reason": reason}])
        self.stopped[model] = reason


def seal_run(
    store: Store,
    ledger: Ledger,
    current: OpenRun,
    registration: Registration,
    specs: Mapping[str, ModelSpec],
    *,
    at: datetime,
) -> dict[str, Any]:
    """Write the transcript, then its ledger line; return the line's body.

    `specs` give the prices of the models, by key. Done twice, after a kill between
    the two, it writes the same transcript.
    """
    header = current.header
    if header["registration"] != registration.hash:
        raise IntegrityError("an open run belongs to another registration", where=current.run)
    responses = current.responses()
    data = transcript_bytes(responses)
    write_atomically(store.transcript(current.run), data)
    models = {}
    for name in header["models"]:
        rows = current.rows_of(name)
        models[name] = {
            "instrument": registration.body["instruments"][name]["sha256"],
            "counts": dict(sorted(Counter(row["status"] for row in rows).items())),
            "responses": responses_hash(rows),
            "usage": usage(specs.get(name), rows),
        }
        if name in current.stopped:
            models[name]["stopped"] = current.stopped[name]
    corpus = registration.body["corpus"]
    asked = [row["asked_at"] for row in responses]
    body = {
        **header,
        "corpus": {name: corpus[name] for name in ("name", "version", "sha256")},
        "finished_at": max([header["started_at"], *asked]),
        "models": models,
        "transcript": sha256_hex(data),
    }
    return ledger.append("run", body, at=at).body


def label_run(
    store: Store,
    ledger: Ledger,
    judge: Labeller,
    run: Mapping[str, Any],
    registration: Registration,
    *,
    at: datetime,
) -> None:
    """Judge a sealed run from its stored bytes and seal the labels."""
    rows = read_rows(store.transcript(run["run"]))
    prompts = registered_bank(store, registration.body).prompts
    labelled = label_rows(judge, rows, prompts)
    seal_labels(store, ledger, judge_identity(judge), run["run"], labelled, at=at)


def seal_labels(
    store: Store,
    ledger: Ledger,
    judge: dict[str, str],
    run: str,
    rows: Iterable[dict[str, Any]],
    *,
    at: datetime,
    more: Mapping[str, Any] | None = None,
) -> None:
    """Write a judge's labels of a sealed run, then their ledger line, which may say `more`."""
    data = b"".join(map(dump_line, rows))
    write_atomically(store.labels(judge_folder(judge), run), data)
    body = {"run": run, "judge": judge, "labels": sha256_hex(data)}
    ledger.append("labels", {**(more or {}), **body}, at=at)


def label_unread(store: Store, ledger: Ledger, judge: Labeller, *, clock: Clock) -> list[str]:
    """Label every sealed run that `judge` has not read, from its stored bytes; return the runs."""
    runs: dict[str, dict[str, Any]] = {}
    registrations: dict[str, Registration] = {}
    mine = judge_identity(judge)
    for line in ledger.forwards():
        if line.kind == "registration":
            registrations[line.hash] = Registration(line.body, line.hash)
        elif line.kind == "run":
            runs[line.body["run"]] = line.body
        elif line.kind == "labels" and line.body["judge"] == mine:
            runs.pop(line.body["run"], None)
    for body in runs.values():
        registration = registrations[body["registration"]]
        label_run(store, ledger, judge, body, registration, at=clock())
    return [*runs]


def rescore(store: Store, ledger: Ledger, judge: Labeller, *, clock: Clock) -> list[dict[str, str]]:
    """Label every sealed run with `judge` from its stored bytes; earlier labels stay.

    Returns the labels that differ from the ones their run was first read with, each
    as {run, model, key, before, after, rule}.
    """
    label_unread(store, ledger, judge, clock=clock)
    first: dict[str, dict[str, str]] = {}
    for line in ledger.forwards():
        if line.kind == "labels":
            first.setdefault(line.body["run"], line.body["judge"])
    moves = []
    for run, judged in first.items():
        old, new = (
            {(row["model"], row["key"]): row for row in read_rows(path)}
            for path in (
                store.labels(judge_folder(by), run) for by in (judged, judge_identity(judge))
            )
        )
        for (model, key), row in new.items():
            before = old[model, key]["label"]
            if before != row["label"]:
                move = {"run": run, "model": model, "key": key, "before": before}
                moves.append(move | {"after": row["label"], "rule": row["rule"]})
    return moves
