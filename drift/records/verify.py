"""Verification of a record, offline and without trust in its author.

Texts, seals and chain are checked by hashes alone. Labels are derived again with
the judge in ``config/``: that proves that the pipeline is consistent, not that a
label is right. Derived files are folded again from what is sealed.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from drift.bank import Bank, load_bank, prompt_hashes, registry_hash
from drift.config import canonical_json, sha256_hex
from drift.errors import ConfigurationError, IntegrityError
from drift.judging import Judge, load_judge
from drift.records.derive import derive_all, reading_bytes, series_bytes
from drift.records.ledger import GENESIS, Ledger, Line, parse_line
from drift.records.registration import judge_identity, registered_bank
from drift.records.run import label_rows, responses_hash, row_holds
from drift.records.store import Store, dump_line, exists, judge_folder, read_bytes

#: Fewest runs for which worker processes pay.
PARALLEL_FROM = 64


@dataclass(frozen=True)
class Problem:
    """One disagreement: the step that found it, where, and how it came about.

    ``how`` is one of edited, reordered, inserted, deleted, cut, reworded prompt,
    judge moved.
    """

    step: str
    where: str
    how: str
    detail: str


@dataclass
class Verification:
    """What was checked and what disagreed; ``seconds`` by step.

    ``assurance`` is ``complete`` when every sealed label could be derived again
    with the judge in ``config/``, else ``partial``.
    """

    panel: str
    lines: int = 0
    runs: int = 0
    responses: int = 0
    labels: int = 0
    labels_not_rederivable: int = 0
    head: dict[str, Any] | None = None
    notes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def assurance(self) -> str:
        return "partial" if self.labels_not_rederivable else "complete"

    def add(self, step: str, where: str, how: str, detail: str) -> None:
        self.problems.append(Problem(step, where, how, detail))

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        start = time.monotonic()
        yield
        self.seconds[step] = round(time.monotonic() - start, 3)


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
    found = Verification(panel=folder.name)
    store, ledger = Store(folder), Ledger(folder)
    if not ledger.chain.exists():
        if ledger.head.exists() or any(folder.glob("transcripts/*/*")):
            found.add("chain", "chain.jsonl", "deleted", "there is no chain")
        else:
            found.notes.append("the record is empty")
        return found
    with found.timed("chain"):
        lines = _check_chain(ledger, found)
        if found.problems:
            found.notes.append("texts and labels were not checked: the chain does not hold")
            return found
        _check_registrations(store, lines, found, root=root)
    with found.timed("texts and labels" if rederive else "texts"):
        jobs, named = _jobs(store, lines)
        for count, part in enumerate(_check_runs(folder, root, jobs, rederive, workers), start=1):
            found.runs += 1
            found.responses += part.responses
            found.labels += part.labels
            found.labels_not_rederivable += part.labels_not_rederivable
            found.problems += part.problems
            if progress:
                progress(count, len(jobs))
        _check_strays(store, named, found)
    if rederive and not found.problems:
        with found.timed("derived files"):
            _check_derived(store, lines, found)
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


def _check_chain(ledger: Ledger, found: Verification) -> list[Line]:
    """Check every line's form, order and link, and the head; return the readable lines."""
    *pieces, torn = ledger.chain.read_bytes().split(b"\n")
    parsed: list[Line | None] = []
    for number, piece in enumerate(pieces, start=1):
        try:
            parsed.append(parse_line(piece, where=f"chain.jsonl:{number}"))
        except IntegrityError as error:
            parsed.append(None)
            found.add("chain", f"chain.jsonl:{number}", "edited", error.what)
    _check_links(parsed, found)
    lines = [line for line in parsed if line is not None]
    found.lines = len(lines)
    if torn:
        found.add("chain", f"chain.jsonl:{len(pieces) + 1}", "cut", "the last line does not end")
    try:
        head = found.head = ledger.read_head()
    except IntegrityError as error:
        found.add("head", "head.json", "edited", error.what)
        return lines
    seq, hash = (lines[-1].seq, lines[-1].hash) if lines else (-1, GENESIS)
    if head is None:
        found.add("head", "head.json", "deleted", "there is no head.json")
    elif ledger.head.read_bytes() != canonical_json(head) + b"\n":
        found.add("head", "head.json", "edited", "not in canonical form")
    elif head == {"seq": seq, "hash": hash} or not lines:
        pass
    elif (head["seq"], head["hash"]) == (seq - 1, lines[-1].body["prev"]):
        found.notes.append("unfinished seal: the next command brings head.json up to date")
    elif head["seq"] > seq:
        detail = f"the head counts {head['seq'] + 1} lines"
        found.add("chain", f"chain.jsonl:{len(pieces) + 1}", "cut", detail)
    elif head["seq"] == seq:
        detail = "the last line is not the one that head.json names"
        found.add("chain", f"chain.jsonl:{len(pieces)}", "edited", detail)
    else:
        detail = "lines which head.json does not count"
        found.add("chain", f"chain.jsonl:{head['seq'] + 2}", "inserted", detail)
    return lines


def _check_links(parsed: list[Line | None], found: Verification) -> None:
    """Name the first line whose place or link disagrees, and how that came about."""
    seqs = [line.seq if line else None for line in parsed]
    for position, line in enumerate(parsed):
        if line is None:
            continue
        where = f"chain.jsonl:{position + 1}"
        if line.seq != position:
            displaced = position in seqs[position + 1 :]
            if line.seq < position or seqs.count(line.seq) > 1:
                how = "inserted"
            else:
                how = "reordered" if displaced else "deleted"
            found.add("chain", where, how, f"line {line.seq} stands where {position} belongs")
            return
        before = parsed[position - 1] if position else None
        if (position and before is None) or line.body["prev"] == (
            before.hash if before else GENESIS
        ):
            continue
        after = parsed[position + 1] if position + 1 < len(parsed) else None
        if position and after is not None and after.body["prev"] == line.hash:
            where = f"chain.jsonl:{position}"
        found.add("chain", where, "edited", f"line {position} names another hash before it")
        return


def _check_registrations(
    store: Store, lines: list[Line], found: Verification, *, root: Path
) -> None:
    registrations = [line for line in lines if line.kind == "registration"]
    if not registrations:
        found.add("registration", "chain.jsonl:1", "deleted", "the chain holds no registration")
        return
    last = registrations[-1]
    raw = store.registration.read_bytes() if store.registration.exists() else b""
    if not raw.endswith(b"\n") or sha256_hex(raw[:-1]) != last.hash:
        how = "edited" if raw else "deleted"
        found.add("registration", "registration.json", how, f"is not line {last.seq} of the chain")
    for line in registrations:
        corpus = line.body["corpus"]
        try:
            bank = registered_bank(store, line.body)
        except (IntegrityError, ConfigurationError) as error:
            found.add("registration", str(error.where), "edited", error.what)
            continue
        _check_prompts(corpus, bank, "the record's copy", found)
        hashes = {"canonical": registry_hash(bank.arms("canonical"))}
        if hashes | {"all": registry_hash(bank.arms("full"))} != corpus["registry"]:
            found.add("registration", f"chain.jsonl:{line.seq + 1}", "edited", "registry hash")
    corpus = last.body["corpus"]
    config = root / "config" / f"{corpus['name']}.json"
    present = load_bank(config) if config.exists() else None
    if present and present.version == corpus["version"]:
        _check_prompts(corpus, present, "config", found)
    elif present:
        found.notes.append(
            f"config holds version {present.version} of {corpus['name']}, "
            f"the record registered {corpus['version']}"
        )


def _check_prompts(corpus: dict[str, Any], bank: Bank, place: str, found: Verification) -> None:
    present = prompt_hashes(bank.arms("full"))
    for arm in sorted(present.keys() | corpus["prompts"].keys()):
        if present.get(arm) != corpus["prompts"].get(arm):
            detail = f"the prompt in {place} is not the registered one"
            found.add("registration", arm, "reworded prompt", detail)


@dataclass(frozen=True)
class _Job:
    """One run line, the labels lines that speak of it, and its registration's corpus."""

    run: dict[str, Any]
    labels: tuple[dict[str, Any], ...]
    registration: dict[str, Any]


def _jobs(store: Store, lines: list[Line]) -> tuple[list[_Job], set[Path]]:
    """Return a job per run, and the files that the chain names."""
    corpora: dict[str, dict[str, Any]] = {}
    runs: dict[str, dict[str, Any]] = {}
    labels: dict[str, list[dict[str, Any]]] = {}
    named: set[Path] = set()
    for line in lines:
        body = line.body
        if line.kind == "registration":
            corpora[line.hash] = {name: body["corpus"][name] for name in ("name", "sha256")}
        elif line.kind == "run":
            runs[body["run"]] = body
            named.add(store.transcript(body["run"]))
        elif line.kind == "labels":
            labels.setdefault(body["run"], []).append(body)
            named.add(store.labels(judge_folder(body["judge"]), body["run"]))
    return [
        _Job(body, tuple(labels.get(run, ())), {"corpus": corpora.get(body["registration"])})
        for run, body in runs.items()
    ], named


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
    rows = [orjson.loads(raw) for raw in data.splitlines()]
    part.responses = len(rows)
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


def _check_strays(store: Store, named: set[Path], found: Verification) -> None:
    """Name files that stand among the sealed ones and that no line names."""
    for path in sorted((*store.folder.glob("transcripts/*/*"), *store.folder.glob("labels/*/*"))):
        plain = path.with_name(path.name.removesuffix(".gz"))
        name = str(path.relative_to(store.folder))
        if plain in named and (plain == path or not plain.exists()):
            continue
        if store.open_run(plain.stem).exists() or path.suffix == ".part":
            found.notes.append(f"unfinished seal: {name}; the next command completes it")
        else:
            found.add("texts", name, "inserted", "no ledger line names this file")


def _check_derived(store: Store, lines: list[Line], found: Verification) -> None:
    """Fold the sealed lines again and compare what is published byte for byte."""
    expected: dict[Path, bytearray] = {store.churn: bytearray(), store.findings: bytearray()}
    state = b""
    readings = set(store.folder.glob("readings/*"))
    for fold, derived in derive_all(store, lines):
        state = series_bytes(fold)
        expected[store.churn] += b"".join(map(dump_line, derived.churn))
        expected[store.findings] += b"".join(map(dump_line, derived.findings))
        path = store.reading(derived.run)
        readings.discard(path)
        _compare(path, reading_bytes(derived.reading), found)
    for path, data in (*expected.items(), (store.series, state)):
        _compare(path, bytes(data), found)
    for path in sorted(readings):
        found.add("derived files", path.name, "inserted", "no run in the chain has this reading")


def _compare(path: Path, expected: bytes, found: Verification) -> None:
    stored = path.read_bytes() if path.exists() else b""
    difference = first_difference(stored.splitlines(True), expected.splitlines(True))
    if difference:
        where = f"{path.name}, line {difference[0] + 1}"
        found.add("derived files", where, difference[1], "differs when it is derived again")
