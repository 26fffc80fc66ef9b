"""Verification of a record, offline and without trust in its author.

Texts, seals and chain are checked by hashes alone. Labels are derived again with
the judge in ``config/``: that proves that the pipeline is consistent, not that a
label is right. Derived files are folded again from what is sealed, and the labels that a
registration says its rescoring moved are counted again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import orjson

from drift.config import sha256_hex
from drift.errors import IntegrityError
from drift.judging import Judge
from drift.judging.labeller import Labeller
from drift.records.derive import Fold, baseline_of, derived_files
from drift.records.entailment import Check
from drift.records.ledger import WORDS, Ledger, Line
from drift.records.parallel import spread
from drift.records.passes import READ_BY, open_headers, open_passes
from drift.records.pins import wrong_floors
from drift.records.registration import corpus_copy, judge_identity
from drift.records.rescored import misstated
from drift.records.run import label_rows, responses_hash, row_holds
from drift.records.scheme import SHAPE
from drift.records.shapes import load_labellers, wrong_shapes
from drift.records.store import Store, by_model, dump_line, exists, judge_folder, read_bytes
from drift.records.verify_chain import (
    Asked,
    Verification,
    check_chain,
    check_facts,
    check_registrations,
    first_difference,
)
from drift.records.verify_passes import check_passes
from drift.records.verify_verdicts import check_verdicts

#: The body of a run line, and those of the labels lines that read it.
RunJob = tuple[dict[str, Any], list[dict[str, Any]]]


def verify_record(
    folder: Path,
    *,
    root: Path,
    rederive: bool = True,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Verification:
    """Check the record in `folder` from its texts up to its readings.

    `root` is the project whose ``config/`` is used. Without `rederive` texts, seals and
    chain are checked alone, and no label or derived file is derived again. `workers` are
    processes, by default the machine's cores when the record is long; `progress` is called
    with the runs checked so far and their number.
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
            asked = check_registrations(store, lines, found, root=root)
        with found.timed("texts and labels" if rederive else "texts"):
            labellers = load_labellers(root) if rederive else {}
            judge = next((it for it in labellers.values() if isinstance(it, Judge)), None)
            checker = _Checker(store, labellers, asked, Check.load(root) if judge else None)
            _check_runs(checker, run_jobs(lines), workers, found, progress)
            check_passes(store, judge, lines, found, root=root)
            _check_strays(store, lines, found)
        if rederive and not found.problems:
            with found.timed("derived files"):
                _check_derived(store, lines, found)
    except OSError as error:
        found.add("files", str(error.filename), "edited", str(error.strerror))
    found.notes += [f"run {path.stem} is still open: not sealed" for path in store.open_runs()]
    found.notes += [f"a judging of run {it.stem} is still open" for it in store.open_judgings()]
    found.notes += [
        f"{kind} {path.stem} is still open: not sealed"
        for kind in READ_BY
        for path in open_passes(store, kind)
    ]
    return found


def run_jobs(lines: list[Line]) -> list[RunJob]:
    """Return each run line's body with those of the labels lines that read the run."""
    jobs: dict[str, RunJob] = {}
    for line in lines:
        if line.kind == "run":
            jobs[line.body["run"]] = (line.body, [])
        elif line.kind == "labels":
            jobs[line.body["run"]][1].append(line.body)
    return list(jobs.values())


def _check_runs(
    checker: _Checker,
    jobs: list[RunJob],
    workers: int | None,
    found: Verification,
    progress: Callable[[int, int], None] | None,
) -> None:
    for found.runs, part in enumerate(spread(checker.check, jobs, workers), start=1):
        found.responses += part.responses
        found.labels += part.labels
        found.labels_not_rederivable += part.labels_not_rederivable
        found.problems += part.problems
        if progress:
            progress(found.runs, len(jobs))


@dataclass(frozen=True)
class _Checker:
    """Checks one run after another, in this process or in workers.

    ``labellers`` derive the labels of their rules again, and ``verdicts`` what models
    said of answers; without any, hashes are checked alone.
    """

    store: Store
    labellers: dict[str, Labeller]
    asked: dict[str, Asked]
    verdicts: Check | None

    def check(self, job: RunJob) -> Verification:
        (run, labels), part = job, Verification(panel=job[0]["run"])
        asked = self.asked.get(run["registration"])
        data = _read(self.store.transcript(run["run"]), "texts", f"run {run['run']}", part)
        rows = _check_texts(run, data, asked, part) if data is not None else []
        for line in labels if not part.problems else ():
            self._check_labels(line, rows, asked, part)
        return part

    def _check_labels(
        self,
        line: dict[str, Any],
        rows: list[dict[str, Any]],
        asked: Asked | None,
        part: Verification,
    ) -> None:
        """Check one judge's labels of one run by hash and, where we have the judge, by deriving."""
        path = self.store.labels(judge_folder(line["judge"]), line["run"])
        where = f"run {line['run']}, {path.parent.name}"
        if (data := _read(path, "labels", where, part)) is None:
            return
        if by_model(line["judge"]) and self.verdicts and asked:
            refusals = next(it for it in self.labellers.values() if isinstance(it, Judge))
            check_verdicts(line, data, rows, asked.prompts, self.verdicts, refusals, part)
            return
        stored = derived = data.splitlines(keepends=True)
        part.labels += len(stored)
        holds = sha256_hex(data) == line["labels"]
        judge = self.labellers.get(line["judge"]["rules"])
        if judge and asked:
            if judge_identity(judge) != line["judge"]:
                part.add("labels", where, "judge moved", "its fingerprint is not the sealed one")
            derived = [dump_line(row) for row in label_rows(judge, rows, asked.prompts)]
        elif self.labellers:
            part.labels_not_rederivable += len(stored)
            if line["judge"]["id"] == SHAPE.judge:
                self._check_shapes(where, stored, rows, part)
        if difference := first_difference(stored, derived):
            position, how = difference
            # A labels file may hold no line where the labeller has a word on nothing.
            wanted = orjson.loads((derived[position:] or stored[position:])[0])
            where = f"run {line['run']}, {wanted['model']}, {wanted['key']}"
            detail = f"line {position + 1}; derived again: {wanted['label']} by {wanted['rule']}"
            if position >= len(derived):
                detail = f"line {position + 1}; derived again, there is no label"
            part.add("labels", where, "judge moved" if holds else how, detail)
        elif not holds:
            part.add("labels", where, "edited", "not the sealed bytes")

    def _check_shapes(
        self, where: str, stored: list[bytes], rows: list[dict[str, Any]], part: Verification
    ) -> None:
        """Check what can be checked of shapes by rules that we do not have."""
        try:
            wrong = next(wrong_shapes(map(orjson.loads, stored), rows), None)
        except orjson.JSONDecodeError as error:
            wrong = 1, f"a row is no JSON: {error}"
        if wrong:
            part.add("labels", where, "edited", f"line {wrong[0]}: {wrong[1]}")


def _read(path: Path, step: str, where: str, part: Verification) -> bytes | None:
    try:
        return read_bytes(path)
    except IntegrityError as error:
        part.add(step, where, "edited" if exists(path) else "deleted", error.what)
        return None


def _check_texts(
    run: dict[str, Any], data: bytes, asked: Asked | None, part: Verification
) -> list[dict[str, Any]]:
    """Return the responses of a transcript; name the first that is not as it was sealed."""
    rows: list[dict[str, Any]] = []

    def wrong(name: str, how: str, detail: str) -> list[dict[str, Any]]:
        part.add("texts", f"run {run['run']}, {name}", how, detail)
        return rows

    keys = set(run["keys"])
    for number, raw in enumerate(data.splitlines(keepends=True), start=1):
        try:
            row = orjson.loads(raw)
            model, key, *_ = texts = [row[part] for part in ("model", "key", "status", "text")]
            name = f"{model}, {key}" if all(isinstance(text, str) for text in texts) else ""
        except (ValueError, LookupError, TypeError):
            name = ""
        if not raw.endswith(b"\n"):
            return wrong(f"line {number}", "cut", "the line does not end")
        if not name or not row_holds(raw[:-1]):
            detail = "the response is not the one that its row seals"
            return wrong(name or f"line {number}", "edited", detail)
        if model not in run["models"] or key not in keys:
            return wrong(name, "inserted", "no such response was sealed")
        if asked and row.get("messages_sha256") != asked.sent[model][key]:
            return wrong(name, "reworded prompt", "another question was asked")
        rows.append(row)
    part.responses = len(rows)
    places = [(row["model"], row["key"]) for row in rows]
    whole = all(sum(model["counts"].values()) == len(keys) for model in run["models"].values())
    due = sorted(product(run["models"], keys) if whole else set(places))
    if difference := first_difference(places, due):
        position, how = difference
        place = (due if how in ("deleted", "cut") else places)[position]
        return wrong(", ".join(place), how, "responses are sorted by model and key")
    for model, sealed in run["models"].items():
        answers = [row for row in rows if row["model"] == model]
        counts = Counter(row["status"] for row in answers)
        if counts != sealed["counts"] or responses_hash(answers) != sealed["responses"]:
            return wrong(model, "edited", "the responses are not the sealed ones")
    if sha256_hex(data) != run["transcript"]:
        wrong("transcript", "edited", "not the sealed bytes")
    return rows


#: Where a finished record may hold a file compressed.
_PACKED = ("transcripts/", "labels/", "readings/")


def _check_strays(store: Store, lines: list[Line], found: Verification) -> None:
    """Name files that belong to no line of the chain."""
    known = {store.folder / name for name in ("chain.jsonl", "head.json", ".lock")}
    known |= {store.registration, store.series, store.churn, store.findings}
    for line in lines:
        if line.kind == "registration":
            known.add(corpus_copy(store, line.body["corpus"]))
            panel = line.body["panel"]
            known |= {store.truth} if panel.get("truth_sha256") else set()
            known |= {store.plan} if panel.get("plan_sha256") else set()
        elif line.kind == "run":
            known |= {store.transcript(line.body["run"]), store.reading(line.body["run"])}
        elif line.kind in READ_BY:
            known |= {store.board_truth} if "truth_sha256" in line.body else set()
            known |= {store.transcript(line.body["run"]), corpus_copy(store, line.body["corpus"])}
        elif line.kind in WORDS:
            known.add(store.labels(judge_folder(line.body["judge"]), line.body["run"]))
    sealed = {path.stem for path in known}
    passes = (path for kind in READ_BY for path in open_passes(store, kind))
    unsealed = {path.stem for path in (*store.open_runs(), *passes)}
    known |= {corpus_copy(store, header["corpus"]) for header in open_headers(store)}
    for path in sorted(store.folder.rglob("*")):
        name = path.relative_to(store.folder).as_posix()
        plain = path.with_name(path.name.removesuffix(".gz"))
        packed = name.startswith(_PACKED) and not plain.exists()
        # Checksums come with a downloaded month: they are no part of the record.
        beside = name.startswith(("open/", "SHA256SUMS"))
        if path.is_dir() or beside or (plain if packed else path) in known:
            continue
        if path.suffix == ".part":
            found.notes.append(f"left by a kill, and no part of the record: {name}")
        elif name.startswith("labels/") and path.stem in sealed:
            found.notes.append(f"unfinished rescoring, and no part of the record: {name}")
        elif plain.stem in unsealed:
            found.notes.append(f"unfinished seal: {name}; the next command completes it")
        else:
            found.add("files", name, "inserted", "no ledger line names this file")


def _check_derived(store: Store, lines: list[Line], found: Verification) -> None:
    """Fold the sealed lines again; compare what is published, and what registrations state."""
    fold, late = Fold(store), Verification(panel=found.panel)
    for path, data in derived_files(fold, lines):
        _compare(path, data, late)
    for it in misstated(store, lines, fold.found):
        detail = f"{it.field}: {it.stated}; the lines before it give {it.counted}"
        found.add("registration", f"chain.jsonl:{it.line}", "edited", detail)
    for seq, wrong in wrong_floors(store, lines):
        detail = f"{wrong}: its passes give another"
        found.add("derived files", f"chain.jsonl:{seq + 1}", "edited", detail)
    _check_baselines(lines, fold.baselines, found)
    found.problems += late.problems


def _check_baselines(
    lines: list[Line], due: list[tuple[int, dict[str, Any]]], found: Verification
) -> None:
    """Compare the sealed baselines with those that the runs call for, (seq of labels, body)."""
    sealed = [line for line in lines if line.kind == "baseline"]
    runs = [line.seq for line in lines if line.kind == "run"]
    for line, (seq, body) in zip(sealed, due, strict=False):
        in_time = seq < line.seq and not any(seq < run < line.seq for run in runs)
        if baseline_of(line) != body or not in_time:
            where = f"chain.jsonl, line {line.seq + 1}"
            found.add("baselines", where, "edited", "the runs before it call for another baseline")
            return
    if sealed[len(due) :]:
        where = f"chain.jsonl, line {sealed[len(due)].seq + 1}"
        found.add("baselines", where, "inserted", "no run calls for this baseline")
    for seq, body in due[len(sealed) :]:
        if any(run > seq for run in runs):
            where = f"run {body['run']}, {body['model']}"
            found.add("baselines", where, "deleted", "a baseline that this run calls for")
        else:
            found.notes.append("a baseline is not sealed yet; the next command seals it")


def _compare(path: Path, expected: bytes, found: Verification) -> None:
    try:
        stored = read_bytes(path)
    except IntegrityError:
        stored = b""
    if difference := first_difference(stored.splitlines(True), expected.splitlines(True)):
        where = f"{path.name}, line {difference[0] + 1}"
        found.add("derived files", where, difference[1], "differs when it is derived again")
