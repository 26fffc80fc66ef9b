"""The board: short prompts of five kinds that are asked night by night, to see what changes.

:func:`load_board` refuses a corpus that has problems and names each with its place. A
published version is frozen: :data:`PUBLISHED` holds the hash of its bytes, so that two
nights on one version were asked the same text, and a changed prompt is a new version.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, Field, StrictInt

from drift.bank import (
    FORBID,
    CorpusName,
    Problem,
    Version,
    check_document,
    checked_document,
    load_document,
)
from drift.config import sha256_hex
from drift.errors import ConfigurationError

Category = Literal["stance", "citation", "explanation", "advice", "sensitive"]
Language = Literal["en", "zh"]
CATEGORIES: tuple[Category, ...] = get_args(Category)

#: What the first line is asked to be, in these words, wherever a verdict is read from it.
DEMAND = "exactly YES or NO"

#: SHA-256 of the bytes of every published version, by name and version.
PUBLISHED = {
    ("board", "1.0.0"): "fd1a283a87a316bd8f85a48381137ef4576e7253c6cdf2325cab6947b7a9b5df",
}


@dataclass(frozen=True)
class Probe:
    """One prompt, the statistical unit. ``id`` is the arm ``category/slug#en``."""

    id: str
    category: str
    language: str
    prompt: str
    why: str


@dataclass(frozen=True)
class Board:
    """A checked corpus; ``sha256`` is that of the file's bytes.

    A stance probe's conversation goes on with ``pushback``, which asserts disagreement and
    authority and no fact, or with ``reask``, which asks the same again and asserts neither.
    """

    name: str
    version: str
    sha256: str
    pushback: str
    reask: str
    probes: tuple[Probe, ...]

    @cached_property
    def by_id(self) -> dict[str, Probe]:
        """The probes, sorted by id."""
        return {probe.id: probe for probe in self.probes}


class _Probe(BaseModel):
    model_config = FORBID
    id: Annotated[str, Field(pattern=f"^({'|'.join(CATEGORIES)})/[a-z0-9]+(-[a-z0-9]+)*$")]
    category: Category
    language: Language
    why: str
    prompt: str


class _Document(BaseModel):
    model_config = FORBID
    name: CorpusName
    version: Version
    licence: str
    language_note: str
    pushback: str
    reask: str
    counts: dict[CorpusName, StrictInt]
    probes: tuple[_Probe, ...]


def load_board(path: Path) -> Board:
    """Read and check the corpus of the board.

    ConfigurationError if the file cannot be read or is not JSON, if the corpus has
    problems (all are named, with their places), or if it is not, byte for byte, the
    published text of its version.
    """
    board = load_document(path, _read, kind="board", correct="run the command again")
    published = PUBLISHED.get((board.name, board.version), board.sha256)
    if board.sha256 != published:
        raise ConfigurationError(
            f"{board.name} {board.version} is published, and this is another text",
            where=str(path),
            got=f"sha256 {board.sha256}",
            expected=f"sha256 {published}",
            next_step="restore the published file, or give the changed text a new version",
        )
    return board


@lru_cache(maxsize=8)
def _read(data: bytes) -> Board:
    """Check a file's bytes once: the pages read the same corpus from config and from records."""
    checked = _Document.model_validate(checked_document(data, check_board))
    probes = [
        Probe(f"{it.id}#{it.language}", it.category, it.language, it.prompt, it.why)
        for it in checked.probes
    ]
    return Board(
        checked.name,
        checked.version,
        sha256_hex(data),
        checked.pushback,
        checked.reask,
        tuple(sorted(probes, key=lambda probe: probe.id)),
    )


def check_board(document: Any) -> list[Problem]:
    """Return every problem of a document; an empty list means that it can be used.

    Checked are what :func:`drift.bank.check_bank` checks of a bank, in the language that
    each probe states; that ids agree with categories; and that each stance probe, the
    pushback and the re-ask are in English and demand a verdict in the words of :data:`DEMAND`.
    """
    prompts = _places(document)
    return check_document(document, _Document, "board", prompts=prompts, further=_probe_problems)


def _places(document: Any) -> dict[str, re.Pattern[str]]:
    """Say for each language where its prompts stand, in a document of any form."""
    listed = document.get("probes") if isinstance(document, dict) else None
    stated = {
        number: probe.get("language")
        for number, probe in enumerate(listed if isinstance(listed, list) else ())
        if isinstance(probe, dict)
    }
    patterns = dict[str, str]()
    for code in get_args(Language):
        found = "|".join(str(number) for number, said in stated.items() if said == code)
        patterns[code] = rf"probes\[({found})\]\.prompt"
    patterns["en"] += "|pushback|reask"
    return {code: re.compile(pattern) for code, pattern in patterns.items()}


def _probe_problems(document: _Document) -> Iterator[Problem]:
    first = dict[str, int]()
    demanding = {"pushback": document.pushback, "reask": document.reask}
    for number, probe in enumerate(document.probes):
        place = f"probes[{number}]"
        if (earlier := first.setdefault(probe.id, number)) != number:
            yield Problem(f"{place}.id", f"same as probes[{earlier}].id")
        if probe.id.partition("/")[0] != probe.category:
            yield Problem(f"{place}.category", "not what stands before / in the id")
        if probe.category == "stance":
            demanding[f"{place}.prompt"] = probe.prompt
            if probe.language != "en":
                yield Problem(f"{place}.language", "a stance probe is asked in English")
    for place, text in demanding.items():
        if DEMAND not in text:
            yield Problem(place, f"does not demand {DEMAND!r}")
    found = Counter[str](probe.category for probe in document.probes)
    found["probes"] = len(document.probes)
    found["chinese"] = sum(probe.language == "zh" for probe in document.probes)
    for key in sorted(document.counts.keys() | found.keys()):
        if (stated := document.counts.get(key, 0)) != found[key]:
            yield Problem(f"counts.{key}", f"states {stated}, found {found[key]}")
