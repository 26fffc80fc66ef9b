"""The probe bank: the frozen questions, the arms made of them, and their check.

A family is one question in three English wordings and, for some, a Simplified
Chinese twin of the first. :func:`check_bank` names every problem of a bank
with its place in the file; :func:`load_bank` refuses a bank that has any.
:func:`check_document`, :func:`entry_problems` and :func:`load_document` hold any
corpus to the same.
:func:`registry_hash` commits to the prompt texts themselves: rewording one
character makes another registration.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass

from drift.config import canonical_json, sha256_hex
from drift.errors import ConfigurationError

SCOPES = ("canonical", "full")
VARIANTS = ("en-1", "en-2", "en-3")

#: Two prompts are near-identical from this Dice coefficient of their words on, order
#: ignored; each Chinese character counts as a word.
NEAR_IDENTICAL = 0.8

#: A larger file is refused.
MAX_BYTES = 1_000_000

_SLUG = "[a-z0-9]+(-[a-z0-9]+)*"
CorpusName = Annotated[str, Field(pattern="^[a-z0-9]+([_-][a-z0-9]+)*$")]
Version = Annotated[str, Field(pattern=r"^(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*)){2}$")]

FORBID = ConfigDict(extra="forbid")
#: Where the prompts of each language stand.
_PROMPTS = {
    "en": re.compile(r"families\[\d+\]\.wordings(\[\d+\])?"),
    "zh": re.compile(r"families\[\d+\]\.zh(\[\d+\])?"),
}
_TOKEN = re.compile(r"[\u3400-\u9fff]|[^\W\u3400-\u9fff]+")
_LATIN_PROSE = re.compile(r"[A-Za-z]+(?:[ ,'’-]+[A-Za-z]+){2,}")
# Unicode calls these letters or marks, though they leave nothing to see.
_BLANK = re.compile(r"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0]")
# What pydantic says in the words of Python, in the words of JSON.
_SAID = {
    "model_type": "expected an object",
    "dataclass_type": "expected an object",
    "tuple_type": "expected a list",
    "extra_forbidden": "unknown field",
    "unexpected_keyword_argument": "unknown field",
    "missing": "missing",
}
# What a key that is written twice holds: no field accepts it.
_TWICE = object()


class Problem(NamedTuple):
    """One thing that is wrong with a corpus, and its place: ``families[3].wordings[1]``."""

    path: str
    what: str


@dataclass(frozen=True)
class Arm:
    """One prompt of one family: what a model is asked. ``id`` is ``topic/slug#variant``."""

    id: str
    family: str
    variant: str
    language: str
    prompt: str

    @property
    def canonical(self) -> bool:
        """Whether this is the bare wording that every run asks."""
        return self.variant == VARIANTS[0]


@checked_dataclass(frozen=True, config=FORBID)
class Entry:
    """What every item of a corpus states about itself."""

    id: Annotated[str, Field(pattern=f"^{_SLUG}/{_SLUG}$")]
    topic: Annotated[str, Field(pattern=f"^{_SLUG}$")]
    control: StrictBool
    why_benign: str
    provenance: str


@checked_dataclass(frozen=True, config=FORBID)
class Family(Entry):
    """One question of the bank: the statistical unit."""

    wordings: tuple[str, str, str]
    zh: str | None

    def arms(self) -> tuple[Arm, ...]:
        """Return the three English arms and, where there is one, the Chinese arm."""
        prompts = dict(zip((*VARIANTS, "zh"), (*self.wordings, self.zh), strict=True))
        return tuple(
            Arm(f"{self.id}#{variant}", self.id, variant, variant[:2], prompt)
            for variant, prompt in prompts.items()
            if prompt is not None
        )


@dataclass(frozen=True)
class Bank:
    """A checked probe bank; ``sha256`` is that of the whole file's bytes."""

    name: str
    version: str
    sha256: str
    families: tuple[Family, ...]

    def arms(self, scope: str) -> tuple[Arm, ...]:
        """Return the arms that a run of this scope asks, sorted by id."""
        if scope not in SCOPES:
            raise ConfigurationError("unknown scope", got=scope, expected=" or ".join(SCOPES))
        every = (arm for family in self.families for arm in family.arms())
        chosen = (arm for arm in every if scope == "full" or arm.canonical)
        return tuple(sorted(chosen, key=lambda arm: arm.id))

    @property
    def prompts(self) -> dict[str, str]:
        """The prompt of every arm, by arm."""
        return {arm.id: arm.prompt for arm in self.arms("full")}


class _Counts(BaseModel):
    model_config = FORBID
    families: StrictInt
    sensitive: StrictInt
    controls: StrictInt
    chinese: StrictInt


class _Document(BaseModel):
    model_config = FORBID
    name: CorpusName
    version: Version
    licence: str
    language_note: str
    counts: _Counts
    families: tuple[Family, ...]


def prompt_hashes(arms: Iterable[Arm]) -> dict[str, str]:
    """Return for each arm id the SHA-256 of its prompt as UTF-8, in order of the ids."""
    ordered = sorted(arms, key=lambda arm: arm.id)
    hashes = {arm.id: sha256_hex(arm.prompt.encode("utf-8")) for arm in ordered}
    if len(hashes) != len(ordered):
        raise ValueError("an arm id was given twice; expected every arm once")
    return hashes


def registry_hash(arms: Iterable[Arm]) -> str:
    """Return the SHA-256 of the canonical JSON of :func:`prompt_hashes`."""
    return sha256_hex(canonical_json(prompt_hashes(arms)))


def load_bank(path: Path) -> Bank:
    """Read and check a probe bank.

    ConfigurationError if the file cannot be read, is larger than :data:`MAX_BYTES` or is
    not JSON (line and column are named), or if the bank has problems (all are named).
    """
    return load_document(path, _read, kind="probe bank", correct="run `drift bank check`")


@lru_cache(maxsize=8)
def _read(data: bytes) -> Bank:
    """Check a file's bytes once: a run reads the same bank from config and from its record."""
    checked = _Document.model_validate(checked_document(data, check_bank))
    return Bank(checked.name, checked.version, sha256_hex(data), checked.families)


Read = TypeVar("Read")


def load_document(path: Path, read: Callable[[bytes], Read], *, kind: str, correct: str) -> Read:
    """Return what `read` makes of a file's bytes; ConfigurationError says what is wrong."""
    try:
        return read(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigurationError(
            f"{kind} cannot be used: {why}",
            where=str(path),
            next_step=f"correct it and {correct}",
        ) from None


def checked_document(data: bytes, check: Callable[[Any], list[Problem]]) -> Any:
    """Return the JSON document of a corpus; ValueError names every problem `check` finds."""
    if len(data) > MAX_BYTES:
        raise ValueError(f"more than {MAX_BYTES} bytes")
    document = json.loads(data.decode("utf-8"), object_pairs_hook=_once)
    if problems := check(document):
        named = "".join(f"\n    {place}: {what}" for place, what in problems)
        raise ValueError(f"{len(problems)} problem(s):{named}")
    return document


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    written = Counter(key for key, _ in pairs)
    return {key: value if written[key] == 1 else _TWICE for key, value in pairs}


def check_bank(document: Any) -> list[Problem]:
    """Return every problem of a bank's document; an empty list means that it can be used.

    Checked are fields and types, and where these are right ids, topics and the counts
    that the file states; empty or untrimmed texts, characters that cannot be seen, the
    script of each wording, and duplicate or near-identical prompts over the whole bank.
    """
    return check_document(document, _Document, "bank", prompts=_PROMPTS, further=_family_problems)


Checked = TypeVar("Checked", bound=BaseModel)


def check_document(
    document: Any,
    form: type[Checked],
    name: str,
    *,
    prompts: Mapping[str, re.Pattern[str]],
    further: Callable[[Checked], Iterable[Problem]],
) -> list[Problem]:
    """Return every problem of a corpus of this form, and those that `further` finds in it.

    `prompts` says for each language where its prompts stand; `name` is the place of
    what concerns the whole document.
    """
    problems: list[Problem] = []
    try:
        problems += further(form.model_validate(document))
    except ValidationError as error:
        for item in error.errors(include_url=False):
            what = "key written twice" if item["input"] is _TWICE else _SAID.get(item["type"])
            problems.append(Problem(_path(item["loc"]) or name, what or item["msg"]))
    asked: list[tuple[str, str]] = []
    for path, text in _texts((), document):
        language = next((key for key, place in prompts.items() if place.fullmatch(path)), None)
        asked += [(path, text)] if language else []
        problems += [Problem(path or name, what) for what in _faults(text, language)]
    return [*problems, *_likeness_problems(asked)]


def _texts(loc: tuple[Any, ...], value: Any) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of every string, in a document of any form."""
    if isinstance(value, str):
        yield _path(loc), value
    items = value.items() if isinstance(value, dict) else ()
    for key, item in enumerate(value) if isinstance(value, list) else items:
        yield from _texts((*loc, key), item)


def _path(loc: tuple[Any, ...]) -> str:
    # An unknown key may hold anything, and the path is printed on a terminal.
    names = [k if re.fullmatch(r"\w+", str(k), re.ASCII) else ascii(k) for k in loc]
    joined = "".join(f"[{k}]" if isinstance(k, int) else f".{k}" for k in names)
    return joined.removeprefix(".")


def _faults(text: str, language: str | None) -> Iterator[str]:
    """Say what is wrong with one text; `language` is that of a prompt, else None."""
    if text != text.strip() or not text:
        yield "space at the start or the end" if text.strip() else "empty"
    letters = {c for c in text if c.isalpha()}
    latin = {c for c in letters if unicodedata.name(c, "").startswith("LATIN")}
    han = {c for c in letters if unicodedata.name(c, "").startswith("CJK UNIFIED")}
    # Every category of control, format (bidi, zero width), surrogate and space but U+0020.
    hidden = {c for c in text if unicodedata.category(c)[0] in "CZ" and c != " "}
    found = {"invisible or control character": hidden | set(_BLANK.findall(text))}
    if language == "en":
        wide = {c for c in text if unicodedata.east_asian_width(c) in "WF"}
        found["wrong script for English:"] = (letters - latin) | wide
    if language == "zh":
        if _LATIN_PROSE.search(text):
            yield "wrong script for Chinese: three Latin words in a row"
        if text.strip() and not han:
            yield "wrong script for Chinese: no Chinese character"
        found["wrong script for Chinese:"] = letters - han - latin
        # Traditional only: in Big5, and not in GB 2312, the Simplified set.
        big5, gb2312 = ({c for c in han if c.encode(n, "ignore")} for n in ("big5", "gb2312"))
        found["Traditional character"] = big5 - gb2312
    for what, characters in found.items():
        if characters:
            yield f"{what} {', '.join(f'U+{ord(c):04X}' for c in sorted(characters))}"


def _family_problems(document: _Document) -> Iterator[Problem]:
    chinese = sum(family.zh is not None for family in document.families)
    return entry_problems("families", document.families, document.counts, chinese)


def entry_problems(
    name: str, entries: Sequence[Entry], counts: Iterable[tuple[str, int]], chinese: int
) -> Iterator[Problem]:
    """Compare ids with each other and with topics, and the entries with the stated counts."""
    first = dict[str, int]()
    for number, entry in enumerate(entries):
        if (earlier := first.setdefault(entry.id, number)) != number:
            yield Problem(f"{name}[{number}].id", f"same as {name}[{earlier}].id")
        if entry.id.partition("/")[0] != entry.topic:
            yield Problem(f"{name}[{number}].topic", "not what stands before / in the id")
    controls = sum(entry.control for entry in entries)
    found = {
        name: len(entries),
        "sensitive": len(entries) - controls,
        "controls": controls,
        "chinese": chinese,
    }
    for key, stated in counts:
        if stated != found[key]:
            yield Problem(f"counts.{key}", f"states {stated}, found {found[key]}")


def _likeness_problems(prompts: list[tuple[str, str]]) -> Iterator[Problem]:
    """Name each prompt that is too like an earlier one, once, with the closest of them."""
    words = [Counter(_TOKEN.findall(text.casefold())) for _, text in prompts]
    sizes = [bag.total() for bag in words]
    for later, bag in enumerate(words):
        pairs = zip(words[:later], sizes, strict=False)
        shared = [2 * (bag & w).total() / max(1, sizes[later] + size) for w, size in pairs]
        if (dice := max(shared, default=0)) >= NEAR_IDENTICAL:
            how = "duplicate of" if dice == 1 else f"near-identical ({dice:.2f}) to"
            yield Problem(prompts[later][0], f"{how} {prompts[shared.index(dice)][0]}")
