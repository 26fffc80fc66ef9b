"""The hash chain of a record: ``chain.jsonl`` and its ``head.json``.

One RFC 8785 canonical JSON object a line. Every line holds ``seq``, ``prev``
(SHA-256 of the bytes of the line before, without its newline; 64 zeros for the
first), ``kind`` and ``at``. ``head.json`` repeats ``seq`` and ``hash`` of the last
line, so that an accidental cut of the tail shows; against the author of the record
only copies of a head kept elsewhere help.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import orjson

from drift.config import canonical_json, sha256_hex, timestamp
from drift.errors import IntegrityError

GENESIS = "0" * 64
#: What a head names that counts no line.
NO_LINE: dict[str, Any] = {"seq": -1, "hash": GENESIS}
KINDS = (
    "registration", "run", "labels", "baseline", "release",
    "batch", "outcomes", "floor", "night", "scores", "citations",
)  # fmt: skip
#: Kinds of lines that hold answers.
PASSES = ("run", "batch", "night")
#: Kinds of lines that say something of a run or a pass, by a judge and in a file of its own.
WORDS = ("labels", "outcomes", "scores", "citations")
_HEAD = re.compile(rb'{"hash":"([0-9a-f]{64})","seq":(0|[1-9][0-9]{0,15})}\n')


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

    IntegrityError unless the bytes are the canonical form of a JSON object with the four
    fields every line has: they were edited, or written by another program.
    """
    try:
        body = orjson.loads(raw)
        # Sorted compact JSON is already canonical unless a key or number is exotic.
        plain = orjson.dumps(body, option=orjson.OPT_SORT_KEYS) == raw
        sound = plain or canonical_json(body) == raw
        fields = isinstance(body["seq"], int) and body["kind"] in KINDS
        if sound and fields and {"prev", "at"} <= body.keys():
            return Line(body, sha256_hex(raw))
        found = "another form"
    except (KeyError, TypeError, ValueError) as error:
        found = repr(error)
    raise IntegrityError(
        "ledger line is not canonical JSON with seq, prev, kind and at: edited or re-encoded",
        where=where,
        got=found,
    )


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
        little while a command runs does not show. TypeError if a field holds a float.
        """
        previous = self.last()
        named = previous.named if previous else NO_LINE
        body = {
            **fields,
            "seq": named["seq"] + 1,
            "prev": named["hash"],
            "kind": kind,
            "at": max(timestamp(at), previous.body["at"] if previous else ""),
        }
        raw = canonical_json(body)
        self.chain.parent.mkdir(parents=True, exist_ok=True)
        write_durably(self.chain, raw + b"\n", "ab")
        line = Line(body, sha256_hex(raw))
        self._write_head(line)
        return line

    def _write_head(self, line: Line) -> None:
        write_atomically(self.head, canonical_json(line.named) + b"\n")

    def read_head(self) -> dict[str, Any] | None:
        """Return ``{"seq", "hash"}`` of the head file, or None where there is none."""
        if not self.head.exists():
            return None
        if found := _HEAD.fullmatch(self.head.read_bytes()):
            return {"seq": int(found[2]), "hash": found[1].decode()}
        raise IntegrityError("head.json is not of its form", where=str(self.head))

    def recover(self) -> list[str]:
        """Complete a seal which a kill interrupted; return what was done, in words.

        A torn last line is dropped when the head does not count it; a head one
        line behind is brought up to date. IntegrityError if chain and head disagree
        in a way that no interrupted seal explains.
        """
        done = []
        head = self.read_head() or NO_LINE
        with _mapped(self.chain) as data:
            tail = data[data.rfind(b"\n") + 1 :]
        if tail and head["hash"] == sha256_hex(tail):
            write_durably(self.chain, b"\n", "ab")
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


@contextmanager
def _mapped(path: Path) -> Iterator[mmap.mmap | bytes]:
    """Give a file's bytes without reading them; none if it is absent."""
    if not path.exists() or not path.stat().st_size:
        yield b""
        return
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        yield data


def lines_backwards(path: Path) -> Iterator[bytes]:
    """Yield the complete lines of a file from the last to the first, without newlines."""
    with _mapped(path) as data:
        end = data.rfind(b"\n")
        while end >= 0:
            start = data.rfind(b"\n", 0, end)
            if raw := data[start + 1 : end]:
                yield raw
            end = start


def complete_end(path: Path) -> int:
    """Return the offset behind the last newline of a file; 0 if it has none or is absent."""
    with _mapped(path) as data:
        return data.rfind(b"\n") + 1


def drop_torn_tail(path: Path) -> bool:
    """Cut what follows the last newline of a file; return whether there was anything."""
    return cut(path, complete_end(path))


def cut(path: Path, end: int) -> bool:
    """Cut a file behind `end`; return whether there was anything."""
    longer = path.exists() and end < path.stat().st_size
    if longer:
        os.truncate(path, end)
    return longer


def write_durably(path: Path, data: bytes, mode: Literal["ab", "wb"]) -> None:
    """Append or write `data`, and wait for the disk."""
    with path.open(mode) as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def write_atomically(path: Path, data: bytes) -> None:
    """Replace `path` by `data`, durably: readers see the old bytes or the new ones."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    write_durably(part, data, "wb")
    part.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
