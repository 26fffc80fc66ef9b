"""The ladders: benign questions that are asked four times, each time with more said about them.

A ladder shows whether a model that declines a question releases it once it hears what is
meant, in which situation it is asked, and to what purpose. :func:`load_ladders` refuses a
corpus that has problems and names each with its place. Whether a reply answers the item
is told by its *points*: groups of beginnings of words, none of which its turns hold.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, StrictInt
from pydantic.dataclasses import dataclass as checked_dataclass

from drift.bank import (
    FORBID,
    CorpusName,
    Entry,
    Problem,
    Version,
    check_document,
    checked_document,
    entry_problems,
    load_document,
)
from drift.config import sha256_hex

LANGUAGES = ("en", "zh")

#: Characters that a stem has at least: a shorter one begins words of any text.
SHORTEST = {"en": 3, "zh": 2}

Turns = tuple[str, str, str, str]
Points = Annotated[
    tuple[Annotated[tuple[str, ...], Field(min_length=1)], ...], Field(min_length=4, max_length=7)
]
_TURNS = {code: re.compile(rf"items\[\d+\]\.turns\.{code}(\[\d+\])?") for code in LANGUAGES}


@dataclass(frozen=True)
class Ladder:
    """One item in one language. ``id`` is the arm ``topic/slug#en``; ``item`` its ``topic/slug``.

    ``points`` are groups of stems in lower case; any stem of a group counts for it.
    """

    id: str
    item: str
    language: str
    control: bool
    turns: tuple[str, ...]
    points: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Ladders:
    """A checked corpus; ``rungs`` name the turns, ``sha256`` is that of the file's bytes."""

    name: str
    version: str
    sha256: str
    rungs: tuple[str, ...]
    ladders: tuple[Ladder, ...]

    @cached_property
    def by_id(self) -> dict[str, Ladder]:
        """The ladders, sorted by id."""
        return {ladder.id: ladder for ladder in self.ladders}


@checked_dataclass(frozen=True, config=FORBID)
class _Turns:
    en: Turns
    zh: Turns | None


@checked_dataclass(frozen=True, config=FORBID)
class _Points:
    en: Points
    zh: Points | None


@checked_dataclass(frozen=True, config=FORBID)
class _Item(Entry):
    turns: _Turns
    points: _Points

    def ladders(self) -> Iterator[Ladder]:
        """Yield the English ladder and, where there is one, the Chinese."""
        for code in LANGUAGES:
            turns, points = getattr(self.turns, code), getattr(self.points, code)
            if turns and points:
                yield Ladder(f"{self.id}#{code}", self.id, code, self.control, turns, points)


class _Counts(BaseModel):
    model_config = FORBID
    items: StrictInt
    sensitive: StrictInt
    controls: StrictInt
    chinese: StrictInt


class _Document(BaseModel):
    model_config = FORBID
    name: CorpusName
    version: Version
    licence: str
    language_note: str
    rungs: tuple[str, str, str, str]
    counts: _Counts
    items: tuple[_Item, ...]


def fold(text: str) -> str:
    """Return `text` as stems are looked for in it: NFKC, case folded, white space as one space."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def holds(folded: str, stem: str) -> bool:
    """Whether a folded text holds a stem; one of Latin letters or digits must begin a word."""
    if not stem[0].isascii():
        return stem in folded
    return re.search(rf"(?<![a-z0-9]){re.escape(stem)}", folded) is not None


def turn_key(arm: str, turn: int) -> str:
    """Return the key of an answer: the arm at turn 1, ``arm@turn`` from turn 2 on."""
    if turn < 1:
        raise ValueError(f"turn {turn}: turns are counted from 1")
    return arm if turn == 1 else f"{arm}@{turn}"


def split_key(key: str) -> tuple[str, int]:
    """Return the arm and the turn of a key that :func:`turn_key` made; else ValueError."""
    arm, at, number = key.partition("@")
    turn = int(number) if re.fullmatch("[1-9][0-9]{0,3}", number) else 1
    if not arm or (at and turn == 1):
        raise ValueError(f"{key!r} is no key of a turn; expected an arm, or arm@2, arm@3, …")
    return arm, turn


def load_ladders(path: Path) -> Ladders:
    """Read and check a corpus of ladders.

    ConfigurationError if the file cannot be read or is not JSON, or if the corpus has
    problems (all are named, with their places).
    """
    return load_document(path, _read, kind="ladders file", correct="run the command again")


@lru_cache(maxsize=8)
def _read(data: bytes) -> Ladders:
    """Check a file's bytes once: the pages read the same corpus from config and from records."""
    checked = _Document.model_validate(checked_document(data, check_ladders))
    ladders = [ladder for item in checked.items for ladder in item.ladders()]
    ordered = tuple(sorted(ladders, key=lambda ladder: ladder.id))
    return Ladders(checked.name, checked.version, sha256_hex(data), checked.rungs, ordered)


def check_ladders(document: Any) -> list[Problem]:
    """Return every problem of a document; an empty list means that it can be used.

    Checked are what :func:`drift.bank.check_bank` checks of a bank, that a twin has turns
    and points, and the stems: written as they are looked for, not too short, in no turn of
    their own item, and in no other group of it.
    """
    return check_document(document, _Document, "ladders", prompts=_TURNS, further=_item_problems)


def _item_problems(document: _Document) -> Iterator[Problem]:
    chinese = sum(item.turns.zh is not None for item in document.items)
    yield from entry_problems("items", document.items, document.counts, chinese)
    for number, item in enumerate(document.items):
        if (item.turns.zh is None) != (item.points.zh is None):
            yield Problem(f"items[{number}].points.zh", "null if and only if turns.zh is null")
        for ladder in item.ladders():
            yield from _stem_problems(ladder, f"items[{number}]")


def _stem_problems(ladder: Ladder, place: str) -> Iterator[Problem]:
    said = [fold(turn) for turn in ladder.turns]
    stems = [
        (f"{place}.points.{ladder.language}[{group}][{number}]", group, stem)
        for group, members in enumerate(ladder.points)
        for number, stem in enumerate(members)
        if stem
    ]
    for path, _, stem in stems:
        if stem != fold(stem):
            yield Problem(path, f"not folded; expected {fold(stem)!r}")
        if len(stem) < SHORTEST[ladder.language]:
            yield Problem(path, f"fewer than {SHORTEST[ladder.language]} characters")
        for turn, text in enumerate(said):
            if holds(text, stem):
                where = f"{place}.turns.{ladder.language}[{turn}]"
                yield Problem(path, f"occurs in {where}")
    for (first, group, one), (second, other, two) in combinations(stems, 2):
        if group != other and (holds(one, two) or holds(two, one)):
            yield Problem(second, f"counts twice, with {first}")
