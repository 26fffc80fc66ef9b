"""Verification of a record, offline and without trust in its author.

Texts, seals and chain are checked by hashes alone. Labels are derived again with
the judge in ``config/``: that proves that the pipeline is consistent, not that a
label is right. Derived files are folded again from what is sealed.
"""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from drift.config import sha256_hex
from drift.errors import ConfigurationError, IntegrityError
from drift.judging import Judge, load_judge
from drift.probing.client import messages_sha256
from drift.records.derive import derive_all, reading_bytes, series_bytes
from drift.records.ledger import Ledger, Line
from drift.records.registration import (
    corpus_copy,
    judge_identity,
    registered_bank,
)
from drift.records.run import label_rows, responses_hash, row_holds
from drift.records.store import (
    Store,
    dump_line,
    exists,
    judge_folder,
    read_bytes,
)
from drift.records.verify_chain import (
    Verification,
    check_chain,
    check_facts,
    check_registrations,
)

#: Fewest runs for which worker processes pay.
PARALLEL_FROM = 64


def verify_record(
    folder: Path,
    *,
    root: Path,
    rederive: bool = True,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Verification:
    """Check a record from its texts up to its readings.

    Parameters
    ----------
    folder, root
        The record, ``data/<panel>``, and the project whose ``config/`` is used.
    rederive
        Also derive labels and derived files again; False checks texts, seals and
        chain alone.
    workers
        Processes; by default the machine's cores when the record is long.
    progress
        Called with the runs checked so far and their number.
    """
    found = Verification(panel=folder.name, rederived=rederive)
    store, ledger = Store(folder), Ledger(folder)
    if not ledger.chain.exists():
        if store.holds_anything():
            found.add("chain", "chain.jsonl", "deleted", "there is no chain")
        else:
            found.notes.append("the record is empty")
        return found
    try:
        with found.timed("chain"):
            lines = check_chain(ledger, found)
            if not found.problems:
                check_facts(lines, found)
            if found.problems:
                found.notes.append("texts and labels were not checked: the chain does not hold")
                return found
            check_registrations(store, lines, found, root=root)
        with found.timed("texts and labels" if rederive else "texts"):
            jobs = _jobs(lines)
            parts = _check_runs(folder, root, jobs, rederive, workers)
            for count, part in enumerate(parts, start=1):
                found.runs += 1
                found.responses += part.responses
                found.labels += part.labels
                found.labels_not_rederivable += part.labels_not_rederivable
                found.problems += part.problems
                if progress:
                    progress(count, len(jobs))
            _check_strays(store, lines, found)
        if rederive and not found.problems:
            with found.timed("derived files"):
                _check_derived(store, lines, found)
    except OSError as error:
        found.add("files", str(error.filename), "edited", str(error.strerror))
    found.notes += [f"run {path.stem} is still open: not sealed" for path in store.open_runs()]
    return found


def first_difference(stored: Sequence[bytes], expected: Sequence[bytes]) -> tuple[int, str] | None:
    """Return position and kind of the first line that is not the expected one."""
    for position, (old, new) in enumerate(zip(stored, expected, strict=False)):
        if old == new:
            continue
        if old in expected:
            return position, "reordered" if new in stored else "deleted"
        if new in stored:
            return position, "inserted"
        return position, "cut" if not old.endswith(b"\n") and new.startswith(old) else "edited"
    if len(stored) != len(expected):
        return min(len(stored), len(expected)), "cut" if len(stored) < len(expected) else "inserted"
    return None


@dataclass(frozen=True)
class _Job:
    """One run line, the labels lines that speak of it, and what was registered for it."""

    run: dict[str, Any]
    labels: tuple[dict[str, Any], ...]
    registration: dict[str, Any]


def _jobs(lines: list[Line]) -> list[_Job]:
    registered: dict[str, dict[str, Any]] = {}
    labels: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        if line.kind == "registration":
            instruments = line.body["instruments"].items()
            registered[line.hash] = {
                "corpus": {name: line.body["corpus"][name] for name in ("name", "sha256")},
                "system": {model: item["document"]["system_prompt"] for model, item in instruments},
            }
        elif line.kind == "labels":
            labels.setdefault(line.body["run"], []).append(line.body)
    return [
        _Job(
            line.body,
            tuple(labels.get(line.body["run"], ())),
            registered[line.body["registration"]],
        )
        for line in lines
        if line.kind == "run"
    ]


def _check_runs(
    folder: Path, root: Path, jobs: list[_Job], rederive: bool, workers: int | None
) -> Iterator[Verification]:
    workers = workers or (os.cpu_count() or 1 if len(jobs) >= PARALLEL_FROM else 1)
    if workers == 1:
        _start_worker(folder, root, rederive)
        yield from map(_check_run, jobs)
        return
    spawn = multiprocessing.get_context("spawn")
    start = (folder, root, rederive)
    with ProcessPoolExecutor(workers, spawn, _start_worker, start) as pool:
        yield from pool.map(_check_run, jobs, chunksize=8)


@dataclass
class _Worker:
    """What a process reads once and not once a run."""

    store: Store
    judge: Judge | None
    prompts: dict[str, dict[str, str]] = field(default_factory=dict)
    sent: dict[tuple[str, str | None], dict[str, str]] = field(default_factory=dict)

    def sent_of(self, registration: dict[str, Any], model: str) -> dict[str, str]:
        """Return the hash of the messages that each arm of `model` was to be asked with.

        Empty where the record's copy of the corpus does not hold, which is found elsewhere.
        """
        system = registration["system"][model]
        key = (registration["corpus"]["sha256"], system)
        if key not in self.sent:
            head = [] if system is None else [{"role": "system", "content": system}]
            prompts = self.prompts_of(registration) or {}
            self.sent[key] = {
                arm: messages_sha256([*head, {"role": "user", "content": prompt}])
                for arm, prompt in prompts.items()
            }
        return self.sent[key]

    def prompts_of(self, registration: dict[str, Any]) -> dict[str, str] | None:
        """Return the registered prompts by arm; None where the record's copy does not hold."""
        sha256 = registration["corpus"]["sha256"]
        if sha256 not in self.prompts:
            try:
                bank = registered_bank(self.store, registration)
            except (IntegrityError, ConfigurationError):
                return None
            self.prompts[sha256] = bank.prompts
        return self.prompts[sha256]


_worker: _Worker


def _start_worker(folder: Path, root: Path, rederive: bool) -> None:
    global _worker
    _worker = _Worker(Store(folder), load_judge(root / "config" / "judge") if rederive else None)


def _check_run(job: _Job) -> Verification:
    part = Verification(panel=job.run["run"])
    path = _worker.store.transcript(job.run["run"])
    try:
        data = read_bytes(path)
    except IntegrityError as error:
        how = "edited" if exists(path) else "deleted"
        part.add("texts", f"run {job.run['run']}", how, error.what)
        return part
    if sha256_hex(data) != job.run["transcript"]:
        part.add("texts", *_locate_in_transcript(job.run, data))
        return part
    stored = data.splitlines()
    try:
        rows = [orjson.loads(raw) for raw in stored]
        places = [(row["model"], row["key"]) for row in rows]
        texts = [row["text"].encode() for row in rows]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        part.add("texts", f"run {job.run['run']}", "edited", f"not stored responses: {error!r}")
        return part
    part.responses = len(texts)
    for raw, row, (model, key) in zip(stored, rows, places, strict=True):
        name = f"run {job.run['run']}, {model}, {key}"
        if model not in job.run["models"] or key not in job.run["keys"]:
            part.add("texts", name, "inserted", "the run line does not name this model or arm")
        elif not row_holds(raw):
            part.add("texts", name, "edited", "the response is not the one that its row seals")
        elif (sent := _worker.sent_of(job.registration, model)) and (
            row.get("messages_sha256") != sent.get(key)
        ):
            part.add("texts", name, "reworded prompt", "another question was asked")
    if places != sorted(set(places)):
        part.add("texts", f"run {job.run['run']}", "inserted", "responses twice or out of order")
    for model, sealed in job.run["models"].items():
        answers = [row for row in rows if row["model"] == model]
        counts = dict(Counter(row["status"] for row in answers))
        if counts != sealed["counts"] or responses_hash(answers) != sealed["responses"]:
            part.add("texts", f"run {job.run['run']}, {model}", "edited", "seal does not hold")
    if not part.problems:
        for line in job.labels:
            _check_labels(job, line, rows, part)
    return part


def _locate_in_transcript(run: dict[str, Any], data: bytes) -> tuple[str, str, str]:
    """Return where, how and detail of the first response that is not as it was sealed."""
    where = f"run {run['run']}"
    stored = data.splitlines(keepends=True)
    places: list[tuple[str, str]] = []
    for number, raw in enumerate(stored, start=1):
        if not raw.endswith(b"\n"):
            return f"{where}, line {number}", "cut", "the line does not end"
        if not row_holds(raw[:-1]):
            try:
                row = orjson.loads(raw)
                name = f"{where}, {row['model']}, {row['key']}"
            except (orjson.JSONDecodeError, KeyError, TypeError):
                name = f"{where}, line {number}"
            return name, "edited", "the response is not the one that its row seals"
        row = orjson.loads(raw)
        places.append((row["model"], row["key"]))
    known = [place for place in places if place[0] in run["models"] and place[1] in run["keys"]]
    for position, place in enumerate(places):
        name = f"{where}, {place[0]}, {place[1]}"
        if place not in known or place in places[:position]:
            return name, "inserted", "no such response was sealed"
        if position and place < places[position - 1]:
            return name, "reordered", "rows are sorted by model and key"
    for model, sealed in run["models"].items():
        absent = sorted(set(run["keys"]) - {key for name, key in places if name == model})
        count = sum(sealed["counts"].values())
        if len(run["keys"]) - len(absent) != count:
            how = "deleted" if len(run["keys"]) - len(absent) < count else "inserted"
            arm = absent[0] if absent else run["keys"][0]
            return f"{where}, {model}, {arm}", how, f"{count} responses were sealed"
    return where, "edited", "the responses are not the sealed ones"


def _check_labels(
    job: _Job, line: dict[str, Any], rows: list[dict[str, Any]], part: Verification
) -> None:
    """Check one judge's labels of one run by hash and, where we have the judge, by deriving."""
    judge, run = _worker.judge, job.run["run"]
    path = _worker.store.labels(judge_folder(line["judge"]), run)
    try:
        data = read_bytes(path)
    except IntegrityError as error:
        how = "edited" if exists(path) else "deleted"
        part.add("labels", f"run {run}, {path.parent.name}", how, error.what)
        return
    stored = data.splitlines(keepends=True)
    part.labels += len(stored)
    holds = sha256_hex(data) == line["labels"]
    prompts = _worker.prompts_of(job.registration)
    if judge is None or prompts is None or judge.rules_hash != line["judge"]["rules"]:
        part.labels_not_rederivable += len(stored) if judge else 0
        if not holds:
            part.add("labels", f"run {run}, {path.parent.name}", "edited", "not the sealed bytes")
        return
    if judge_identity(judge) != line["judge"]:
        part.add("labels", f"run {run}", "judge moved", "its fingerprint is not the sealed one")
        return
    derived = [dump_line(row) for row in label_rows(judge, rows, prompts)]
    difference = first_difference(stored, derived)
    if difference:
        position, how = difference
        wanted = orjson.loads(derived[min(position, len(derived) - 1)])
        where = f"run {run}, {wanted['model']}, {wanted['key']}"
        detail = f"line {position + 1}; derived again: {wanted['label']} by {wanted['rule']}"
        part.add("labels", where, "judge moved" if holds else how, detail)
    elif not holds:
        part.add("labels", f"run {run}", "edited", "the sealed hash is not that of the labels")


def _check_strays(store: Store, lines: list[Line], found: Verification) -> None:
    """Name files that belong to no line of the chain."""
    known = {store.folder / name for name in ("chain.jsonl", "head.json", ".lock")}
    known |= {store.registration, store.series, store.churn, store.findings}
    runs = set()
    for line in lines:
        if line.kind == "registration":
            known.add(corpus_copy(store, line.body["corpus"]))
        elif line.kind == "run":
            runs.add(line.body["run"])
            known |= {store.transcript(line.body["run"]), store.reading(line.body["run"])}
        elif line.kind == "labels":
            known.add(store.labels(judge_folder(line.body["judge"]), line.body["run"]))
    for path in sorted(store.folder.rglob("*")):
        parts = path.relative_to(store.folder).parts
        plain = path.with_name(path.name.removesuffix(".gz"))
        packed = plain != path and parts[0] in ("transcripts", "labels")
        if path.is_dir() or parts[0] == "open" or path in known:
            continue
        if packed and plain in known and not plain.exists():
            continue
        name = "/".join(parts)
        if path.suffix == ".part":
            found.notes.append(f"left by a kill, and no part of the record: {name}")
        elif parts[0] == "labels" and path.stem in runs:
            found.notes.append(f"unfinished rescoring, and no part of the record: {name}")
        elif store.open_run(plain.name.partition(".")[0]).exists():
            found.notes.append(f"unfinished seal: {name}; the next command completes it")
        else:
            found.add("files", name, "inserted", "no ledger line names this file")


def _check_derived(store: Store, lines: list[Line], found: Verification) -> None:
    """Fold the sealed lines again and compare what is published byte for byte."""
    expected: dict[Path, bytearray] = {store.churn: bytearray(), store.findings: bytearray()}
    state = b""
    for fold, derived in derive_all(store, lines):
        state = series_bytes(fold)
        expected[store.churn] += b"".join(map(dump_line, derived.churn))
        expected[store.findings] += b"".join(map(dump_line, derived.findings))
        path = store.reading(derived.run)
        _compare(path, reading_bytes(derived.reading), found)
    for path, data in (*expected.items(), (store.series, state)):
        _compare(path, bytes(data), found)


def _compare(path: Path, expected: bytes, found: Verification) -> None:
    stored = path.read_bytes() if path.exists() else b""
    difference = first_difference(stored.splitlines(True), expected.splitlines(True))
    if difference:
        where = f"{path.name}, line {difference[0] + 1}"
        found.add("derived files", where, difference[1], "differs when it is derived again")
