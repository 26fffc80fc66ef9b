"""The files of one record: where they are, how they are written and read back.

``transcripts/<YYYY-MM>/<run>.jsonl`` holds the sealed answers of a run,
``labels/<judge>/<run>.jsonl`` what a judge said of them, ``open/<run>.jsonl`` a run
that is still being asked. Readers take ``.jsonl`` and ``.jsonl.gz`` alike; a hash is
always over the uncompressed bytes.
"""

from __future__ import annotations

import asyncio
import fcntl
import gzip
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from drift.errors import DriftError, IntegrityError, StorageError
from drift.records.ledger import complete_end, cut, lines_backwards, write_durably

#: What the id of a judge that is a model begins with.
MODEL_JUDGE = "entailment-"
#: What a folder holds any of that holds a record.
_PARTS = "chain.jsonl head.json registration.json transcripts labels readings".split()


def plain_name(name: str) -> str:
    """Return `name` if it can be the name of a file; IntegrityError otherwise.

    Run ids and judges come from a chain that anyone may have written.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}", name):
        raise IntegrityError("a name in the ledger cannot be a file's name", got=repr(name[:80]))
    return name


def judge_folder(judge: Mapping[str, str]) -> str:
    """Return the folder name below ``labels/`` of one judge with one version of its rules.

    A judge that is a model can say other words at another time, though it is asked by the same
    rules: the fingerprint of its words tells such judgings apart.
    """
    folder = f"{judge['id']}-{judge['rules'][:12]}"
    return f"{folder}-{judge['fingerprint'][:8]}" if by_model(judge) else folder


def by_model(judge: Mapping[str, str]) -> bool:
    """Tell whether a judge is a model that was asked, and not a set of rules or a person."""
    return judge["id"].startswith(MODEL_JUDGE)


class Store:
    """Paths and plain files of the record in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.registration = folder / "registration.json"
        self.churn = folder / "churn.jsonl"
        self.findings = folder / "findings.jsonl"
        self.series = folder / "series.json"
        self.truth = folder / "truth.json"
        self.plan = folder / "plan.toml"
        self.board_truth = folder / "board_truth.json"

    def holds_anything(self) -> bool:
        """Tell whether the folder holds any part of a record."""
        return any((self.folder / part).exists() for part in _PARTS)

    def open_run(self, run: str) -> Path:
        return self.folder / "open" / f"{plain_name(run)}.jsonl"

    def open_runs(self) -> list[Path]:
        """Return the runs still being asked, oldest first; at most one in a sound record."""
        return sorted((self.folder / "open").glob("*.jsonl"))

    def open_judging(self, run: str) -> Path:
        return self.folder / "open" / "entailment" / f"{plain_name(run)}.jsonl"

    def open_judgings(self) -> list[Path]:
        """Return the judgings of runs by models that are still being asked."""
        return sorted((self.folder / "open" / "entailment").glob("*.jsonl"))

    def transcript(self, run: str) -> Path:
        return self.folder / "transcripts" / f"{run[:4]}-{run[4:6]}" / f"{plain_name(run)}.jsonl"

    def labels(self, judge: str, run: str) -> Path:
        return self.folder / "labels" / plain_name(judge) / f"{plain_name(run)}.jsonl"

    def reading(self, run: str) -> Path:
        return self.folder / "readings" / f"{plain_name(run)}.json"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the record's lock, or DriftError: one command at a time changes a record."""
        with locked(self.folder / ".lock", doing="changing this record"):
            yield


@contextmanager
def locked(path: Path, *, doing: str) -> Iterator[None]:
    """Hold the lock at `path`, or DriftError: one command at a time is `doing` this."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DriftError(
                f"another command is {doing}",
                where=str(path.parent),
                next_step="wait until it has ended; a killed command leaves no lock behind",
            ) from None
        yield


def dump_line(document: dict[str, Any]) -> bytes:
    """Return one JSON line with its newline, keys in the order given."""
    return orjson.dumps(document) + b"\n"


def exists(path: Path) -> bool:
    """Tell whether `path` is there, plain or compressed."""
    return path.exists() or path.with_name(path.name + ".gz").exists()


def read_bytes(path: Path) -> bytes:
    """Return the uncompressed bytes of `path`, or of ``<path>.gz`` if only that exists.

    IntegrityError if neither file is there, or the compressed one is damaged.
    """
    try:
        if path.exists():
            return path.read_bytes()
        return gzip.decompress(path.with_name(path.name + ".gz").read_bytes())
    except FileNotFoundError:
        raise IntegrityError(
            "a file which the chain names is missing",
            where=str(path),
            next_step="restore it from a copy of the record",
        ) from None
    except (EOFError, OSError) as error:
        raise IntegrityError(f"file cannot be read: {error}", where=str(path)) from None


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a transcript, labels, churn or findings file.

    IntegrityError if it cannot be read or a line, which is named, is not a JSON object.
    """
    lines = enumerate(read_bytes(path).split(b"\n"), start=1)
    return [_row(raw, f"{path}:{number}") for number, raw in lines if raw]


def _row(raw: bytes, where: str) -> dict[str, Any]:
    try:
        row = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise IntegrityError("line is not JSON", where=where, got=str(error)) from None
    if not isinstance(row, dict):
        raise IntegrityError("line is not a JSON object", where=where)
    return row


def append_rows(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Append rows to a derived log, durably."""
    if data := b"".join(map(dump_line, rows)):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(path, data, "ab")


def drop_rows_of(path: Path, run: str) -> None:
    """Cut the rows of `run` and a torn line from the end of a derived log."""
    keep = complete_end(path)
    for raw in lines_backwards(path):
        if _row(raw, f"{path}: from the end").get("run") != run:
            break
        keep -= len(raw) + 1
    cut(path, keep)


class Appender:
    """Appends rows to one file; a row counts only after its group's fsync.

    What gathers while one group is written makes the next one. A thread writes,
    so the event loop never waits for the disk.

    Examples
    --------
    ``async with Appender(path) as appender: await appender.append(row)``
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._gathered: list[bytes] = []
        self._group: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()
        self._failure: StorageError | None = None

    async def __aenter__(self) -> Appender:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._group:
            await asyncio.wait({self._group})
        async with self._writing:
            return

    async def append(self, document: dict[str, Any]) -> None:
        """Return once the row is durable.

        StorageError if the disk refuses it (full, read-only): the row is not stored.
        """
        self._gathered.append(dump_line(document))
        self._group = self._group or asyncio.create_task(self._write())
        await asyncio.shield(self._group)

    async def _write(self) -> None:
        async with self._writing:
            data, self._gathered, self._group = b"".join(self._gathered), [], None
            if not self._failure:
                try:
                    await asyncio.to_thread(write_durably, self._path, data, "ab")
                except OSError as error:
                    # A part of the group may be on disk: nothing may follow it.
                    self._failure = StorageError(
                        f"an answer could not be stored: {error.strerror}",
                        where=str(self._path),
                        next_step="free the disk and run the command again; it resumes the run",
                    )
        if self._failure:
            raise self._failure
