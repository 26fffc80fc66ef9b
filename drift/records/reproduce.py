"""Reproduction: labels, readings and logs made again from the stored answers, and compared.

They are made below a scratch folder from the chain, the transcripts, the registered questions and
the judge in ``config/``; what is published is read only to be compared, and so are the moves that
registrations state. That the answers are the sealed ones is for :mod:`drift.records.verify` to say.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import orjson

from drift.judging import Judge
from drift.judging.labeller import Labeller
from drift.judging.ladder import ladder_judge, load_rubric
from drift.records.batch import outcome_rows, registered_ladders, sealed_batches
from drift.records.derive import Fold, derived_files
from drift.records.entailment import Check, made_again, read_judging
from drift.records.ledger import Ledger, Line, write_atomically
from drift.records.parallel import spread
from drift.records.registration import registered_bank
from drift.records.rescored import ABSENT, misstated
from drift.records.run import label_rows
from drift.records.scores import Scoring, scores_again, sealed_nights
from drift.records.shapes import load_labellers
from drift.records.store import (
    Store,
    by_model,
    dump_line,
    exists,
    judge_folder,
    read_bytes,
    read_rows,
)
from drift.records.verify import RunJob, run_jobs


@dataclass(frozen=True)
class Difference:
    """The first thing published that is derived otherwise: file, place in it, both values."""

    file: str
    place: str
    published: str
    derived: str

    def __str__(self) -> str:
        where = f"{self.file}: {self.place}" if self.place else self.file
        return f"{where}: published {self.published}, derived {self.derived}"


@dataclass
class Reproduction:
    """What was made again of one record, and the first difference if there is one.

    ``labels_taken`` counts labels that were read as stored, since their judge is not the
    one in ``config/``.
    """

    record: str
    runs: int = 0
    labels: int = 0
    labels_taken: int = 0
    files: int = 0
    difference: Difference | None = None

    def __str__(self) -> str:
        if self.difference:
            return f"{self.record}: differs: {self.difference}"
        taken = f" ({self.labels_taken} of them taken as stored)" if self.labels_taken else ""
        return (
            f"{self.record}: {self.runs} runs, {self.labels} labels{taken}, "
            f"{self.files} files derived again: equal byte for byte"
        )


def reproduce_record(
    folder: Path,
    *,
    root: Path,
    scratch: Path,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Reproduction:
    """Make the derived files of the record in `folder` again, below `scratch`, and compare.

    `scratch` is emptied first and left for the reader. `root` is the project whose
    ``config/`` is used; `workers` and `progress` are as in ``verify_record``.

    Raises
    ------
    IntegrityError
        A line of the chain, or a file that it names, cannot be read.
    """
    store, made = Store(folder), Store(scratch)
    found, lines = Reproduction(folder.name), list(Ledger(folder).forwards())
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    for part in ("transcripts", "corpora"):
        (scratch / part).symlink_to((folder / part).resolve())
    labellers = load_labellers(root)
    judge = next(it for it in labellers.values() if isinstance(it, Judge))
    labeller = _Labeller(store, made, labellers, _prompts(store, lines), Check.load(root), judge)
    jobs = run_jobs(lines)
    for found.runs, (labels, taken) in enumerate(spread(labeller, jobs, workers), start=1):
        found.labels += labels
        found.labels_taken += taken
        if progress:
            progress(found.runs, len(jobs))
    for labels, taken in _words(store, made, judge, lines, root=root):
        found.labels += labels
        found.labels_taken += taken
    fold = Fold(made)
    for path, data in derived_files(fold, lines):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    found.files, found.difference = _compared(store, made)
    if not found.difference and (it := next(misstated(made, lines, fold.found), None)):
        place = f"line {it.line}: {it.field}"
        found.difference = Difference("chain.jsonl", place, it.stated, it.counted)
    return found


def _prompts(store: Store, lines: list[Line]) -> dict[str, dict[str, str]]:
    """Return the prompts of each registration, by the hash of its line."""
    registrations = (line for line in lines if line.kind == "registration")
    return {line.hash: registered_bank(store, line.body).prompts for line in registrations}


@dataclass(frozen=True)
class _Labeller:
    """Labels one run after another, in this process or in workers."""

    store: Store
    made: Store
    labellers: dict[str, Labeller]
    prompts: dict[str, dict[str, str]]
    check: Check
    refusals: Judge

    def __call__(self, job: RunJob) -> tuple[int, int]:
        """Write the labels of a run; return how many there are, and how many were taken."""
        run, lines = job
        count = taken = 0
        for line in lines:
            name = judge_folder(line["judge"])
            if by_model(line["judge"]):
                data, whole = self._verdicts(run, line)
                taken += 0 if whole else data.count(b"\n")
            elif judge := self.labellers.get(line["judge"]["rules"]):
                answers = read_rows(self.store.transcript(run["run"]))
                rows = label_rows(judge, answers, self.prompts[run["registration"]])
                data = b"".join(map(dump_line, rows))
            else:
                data = read_bytes(self.store.labels(name, run["run"]))
                taken += data.count(b"\n")
            count += data.count(b"\n")
            path = self.made.labels(name, run["run"])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return count, taken

    def _verdicts(self, run: dict[str, Any], line: dict[str, Any]) -> tuple[bytes, bool]:
        """Return a judging made again of its replies, and whether it could be."""
        judging = read_judging(self.store, line)
        if self.check.differing(judging.asked, self.refusals):
            return read_bytes(self.store.labels(judge_folder(line["judge"]), run["run"])), False
        rows = made_again(
            self.check,
            judging.asked,
            [*judging.anchors, *judging.rows],
            answers=read_rows(self.store.transcript(run["run"])),
            prompts=self.prompts[run["registration"]],
            judge=self.refusals,
        )
        return b"".join(map(dump_line, rows)), True


def _words(
    store: Store, made: Store, judge: Judge, lines: list[Line], *, root: Path
) -> Iterator[tuple[int, int]]:
    """Write what was said of every batch and night; yield its rows, and those taken as stored."""
    yield from _outcomes(store, made, judge, lines, root=root)
    if sealed_nights(lines):
        yield from _scores(store, made, Scoring.load(root, judge), lines)


def _outcomes(
    store: Store, made: Store, judge: Judge, lines: list[Line], *, root: Path
) -> Iterator[tuple[int, int]]:
    """Write the outcomes of every batch; yield how many there are, and how many were taken."""
    rubric = load_rubric(root / "config" / "rubric.toml")
    for body, judged in sealed_batches(lines):
        ladders = registered_ladders(store, body)
        answers = read_rows(store.transcript(body["run"]))
        for line in judged:
            path = store.labels(judge_folder(line["judge"]), body["run"])
            ours = line["judge"] == ladder_judge(judge, rubric, ladders.sha256)
            rows = outcome_rows(judge, rubric, body, answers, ladders) if ours else []
            data = b"".join(map(dump_line, rows)) if ours else read_bytes(path)
            write_atomically(made.folder / path.relative_to(store.folder), data)
            yield data.count(b"\n"), 0 if ours else data.count(b"\n")


def _scores(
    store: Store, made: Store, scoring: Scoring, lines: list[Line]
) -> Iterator[tuple[int, int]]:
    """Write the scores of every night; yield how many rows there are, and how many were taken."""
    for body, words in sealed_nights(lines):
        for line in words:
            path = store.labels(judge_folder(line["judge"]), body["run"])
            again = scores_again(store, scoring, body, line)
            data = b"".join(map(dump_line, again[0])) if again else read_bytes(path)
            write_atomically(made.folder / path.relative_to(store.folder), data)
            count = data.count(b"\n")
            yield count, again[1] if again else count


def _compared(store: Store, made: Store) -> tuple[int, Difference | None]:
    """Return how many files were compared and equal, and the first difference."""
    files = list(_files(made))
    for number, path in enumerate(files):
        name = path.relative_to(made.folder).as_posix()
        if difference := _difference(name, store.folder / name, path.read_bytes()):
            return number, difference
    for path in sorted(store.folder.glob("readings/*.json*")):
        name = f"readings/{path.name.removesuffix('.gz')}"
        if made.folder / name not in files:
            return len(files), Difference(name, "", "a reading", ABSENT)
    return len(files), None


def _files(made: Store) -> Iterator[Path]:
    yield from sorted(made.folder.glob("labels/*/*"))
    yield from sorted(made.folder.glob("readings/*"))
    yield from (made.churn, made.findings, made.series)


def _difference(name: str, path: Path, derived: bytes) -> Difference | None:
    """Return the first difference between a published file and what is derived for it."""
    # A log without a row is never written.
    published = read_bytes(path) if exists(path) else b""
    if published == derived:
        return None
    if not published:
        return Difference(name, "", ABSENT, "a file")
    if path.suffix == ".json":
        return Difference(name, *_first(published, derived))
    lines = [data.split(b"\n") for data in (published, derived)]
    number = next(i for i, (old, new) in enumerate(zip_longest(*lines)) if old != new)
    place, *values = _first(*(part[number] if number < len(part) else b"" for part in lines))
    return Difference(name, f"line {number + 1}" + f": {place}" * bool(place), *values)


def _first(published: bytes, derived: bytes) -> tuple[str, str, str]:
    """Return the place of the first difference in two JSON documents, and both values there."""
    try:
        old, new = (orjson.loads(data) if data else _NONE for data in (published, derived))
    except orjson.JSONDecodeError:
        return "", "what is not JSON", "JSON"
    for place, *values in _places(old, new, ""):
        before, after = map(_short, values)
        return place.removeprefix("."), before, after
    return "", "the same values in other bytes", "these bytes"


_NONE: Any = object()


def _places(old: Any, new: Any, place: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield every place at which two values differ, in the order of the derived one."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys([*new, *old]):
            yield from _places(old.get(name, _NONE), new.get(name, _NONE), f"{place}.{name}")
    elif isinstance(old, list) and isinstance(new, list):
        for index, (was, now) in enumerate(zip_longest(old, new, fillvalue=_NONE)):
            yield from _places(was, now, f"{place}.{index}")
    elif type(old) is not type(new) or old != new:
        yield place, old, new


def _short(value: Any) -> str:
    text = ABSENT if value is _NONE else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:79]}…"
