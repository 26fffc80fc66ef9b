"""The hash chain of a record: ``chain.jsonl`` and its ``head.json``.

One RFC 8785 canonical JSON object a line. Every line holds ``seq``, ``prev``
(SHA-256 of the bytes of the line before, without its newline; 64 zeros for the
first), ``kind`` and ``at``. ``head.json`` repeats ``seq`` and ``hash`` of the last
line, so that an accidental cut of the tail shows; against the author of the record
only copies of a head kept elsewhere help.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from drift.config import canonical_json, sha256_hex, timestamp
from drift.errors import IntegrityError

GENESIS = "0" * 64
#: What a head names that counts no line.
NO_LINE: dict[str, Any] = {"seq": -1, "hash": GENESIS}
KINDS = ("registration", "run", "labels", "baseline", "release")


@dataclass(frozen=True)
class Line:
    """One sealed line: its parsed body and the SHA-256 of its exact bytes."""

    body: dict[str, Any]
    hash: str

    @property
    def seq(self) -> int:
        return int(self.body["seq"])

    @property
    def kind(self) -> str:
        return str(self.body["kind"])

    @property
    def named(self) -> dict[str, Any]:
        """What the head holds when this is the last line."""
        return {"seq": self.seq, "hash": self.hash}

    @property
    def before(self) -> dict[str, Any]:
        """What the head held before this line was sealed."""
        return {"seq": self.seq - 1, "hash": self.body["prev"]}


def parse_line(raw: bytes, *, where: str) -> Line:
    """Return the line held by `raw` (no newline).

    Raises
    ------
    IntegrityError
        The bytes are not the canonical form of a JSON object with the four
        fields every line has: edited, or written by another program.
    """
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise IntegrityError("ledger line is not JSON", where=where, got=str(error)) from None
    known = isinstance(body, dict) and {"seq", "prev", "kind", "at"} <= body.keys()
    if not known or not isinstance(body["seq"], int) or body["kind"] not in KINDS:
        raise IntegrityError(
            "ledger line lacks seq, prev, kind or at", where=where, expected=f"kind in {KINDS}"
        )
    # Sorted compact JSON is already canonical unless a key or number is exotic.
    if orjson.dumps(body, option=orjson.OPT_SORT_KEYS) != raw:
        try:
            canonical = canonical_json(body)
        except (TypeError, ValueError) as error:
            raise IntegrityError(
                "ledger line is not canonical JSON", where=where, got=str(error)
            ) from None
        if canonical != raw:
            raise IntegrityError(
                "ledger line is not in canonical form: it was edited or re-encoded", where=where
            )
    return Line(body, sha256_hex(raw))


class Ledger:
    """Reads and appends the chain of the record in `folder`.

    Nothing here takes the record's lock: the caller that writes holds it.
    """

    def __init__(self, folder: Path) -> None:
        self.chain = folder / "chain.jsonl"
        self.head = folder / "head.json"

    def last(self) -> Line | None:
        """Return the last line, in time independent of the chain's length."""
        return next(self.backwards(), None)

    def backwards(self) -> Iterator[Line]:
        """Yield the lines from the last to the first, reading only what is asked for."""
        for raw in lines_backwards(self.chain):
            yield parse_line(raw, where=f"{self.chain}: from the end")

    def forwards(self) -> Iterator[Line]:
        """Yield the lines from the first to the last; each is checked by :func:`parse_line`."""
        if not self.chain.exists():
            return
        with self.chain.open("rb") as stream:
            for number, raw in enumerate(stream, start=1):
                yield parse_line(raw.removesuffix(b"\n"), where=f"{self.chain}:{number}")

    def append(self, kind: str, fields: dict[str, Any], *, at: datetime) -> Line:
        """Seal one line: durable in the chain first, then repeated in the head.

        ``at`` is never earlier than in the line before: a clock that is set back a
        little while a command runs does not show.

        Raises
        ------
        TypeError
            A field holds a float.
        """
        previous = self.last()
        body = {
            **fields,
            "seq": 0 if previous is None else previous.seq + 1,
            "prev": GENESIS if previous is None else previous.hash,
            "kind": kind,
            "at": max(timestamp(at), "" if previous is None else previous.body["at"]),
        }
        raw = canonical_json(body)
        self.chain.parent.mkdir(parents=True, exist_ok=True)
        write_durably(self.chain, raw + b"\n", os.O_APPEND)
        line = Line(body, sha256_hex(raw))
        self._write_head(line)
        return line

    def _write_head(self, line: Line) -> None:
        write_atomically(self.head, canonical_json(line.named) + b"\n")

    def read_head(self) -> dict[str, Any] | None:
        """Return ``{"seq", "hash"}`` of the head file, or None where there is none."""
        if not self.head.exists():
            return None
        raw = self.head.read_bytes()
        if found := re.fullmatch(rb'{"hash":"([0-9a-f]{64})","seq":(0|[1-9][0-9]{0,15})}\n', raw):
            return {"seq": int(found[2]), "hash": found[1].decode()}
        raise IntegrityError("head.json is not of its form", where=str(self.head))

    def recover(self) -> list[str]:
        """Complete a seal which a kill interrupted; return what was done, in words.

        A torn last line is dropped when the head does not count it; a head one
        line behind is brought up to date.

        Raises
        ------
        IntegrityError
            Chain and head disagree in a way that no interrupted seal explains.
        """
        done = []
        head = self.read_head() or NO_LINE
        tail = torn_tail(self.chain)
        if tail and head["hash"] == sha256_hex(tail):
            write_durably(self.chain, b"\n", os.O_APPEND)
            done.append("ended the last line of chain.jsonl, which head.json counts")
        elif drop_torn_tail(self.chain):
            done.append("dropped a torn last line of chain.jsonl")
        last = self.last()
        if last and head == last.before:
            self._write_head(last)
            done.append(f"brought head.json up to line {last.seq}")
        elif head != (last.named if last else NO_LINE):
            raise IntegrityError(
                "head.json and chain.jsonl disagree: the chain was cut or edited",
                where=str(self.chain),
                got=f"last line {last.named if last else NO_LINE}",
                expected=f"what head.json names: {head}",
                next_step="run `drift verify` and restore the record from a copy",
            )
        return done


def lines_backwards(path: Path, *, block: int = 1 << 16) -> Iterator[bytes]:
    """Yield the complete lines of a file from the last to the first, without newlines."""
    position = complete_end(path)
    rest = b""
    with path.open("rb") if position else contextlib.nullcontext() as stream:
        while stream and position > 0:
            step = min(block, position)
            position -= step
            stream.seek(position)
            rest, *later = (stream.read(step) + rest).split(b"\n")
            yield from (raw for raw in reversed(later) if raw)
    if rest:
        yield rest


def complete_end(path: Path, *, block: int = 1 << 16) -> int:
    """Return the offset behind the last newline of a file; 0 if it has none or is absent."""
    if not path.exists():
        return 0
    with path.open("rb") as stream:
        position = stream.seek(0, os.SEEK_END)
        while position > 0:
            step = min(block, position)
            position -= step
            stream.seek(position)
            found = stream.read(step).rfind(b"\n")
            if found >= 0:
                return position + found + 1
    return 0


def torn_tail(path: Path) -> bytes:
    """Return what follows the last newline of a file; nothing if it is absent."""
    if not path.exists():
        return b""
    with path.open("rb") as stream:
        stream.seek(complete_end(path))
        return stream.read()


def drop_torn_tail(path: Path) -> bool:
    """Cut what follows the last newline of a file; return whether there was anything."""
    torn = bool(torn_tail(path))
    if torn:
        os.truncate(path, complete_end(path))
    return torn


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data`; ``os.write`` alone may stop early."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def write_durably(path: Path, data: bytes, how: int) -> None:
    """Write `data` and wait for the disk; `how` is ``os.O_APPEND`` or ``os.O_TRUNC``."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | how, 0o644)
    try:
        write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, data: bytes) -> None:
    """Replace `path` by `data`, durably: readers see the old bytes or the new ones."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    write_durably(part, data, os.O_TRUNC)
    part.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
