"""Rules and anchors as data: read, checked, and named when they are wrong."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from drift.config import load_toml
from drift.errors import ConfigurationError
from drift.judging.view import SIMPLIFIED, View, extent, scripts, words

Word = Literal["refused", "answered", "undetermined"]

#: Kinds without which a text of some length is an answer, weightiest first.
ACTS = ("decline", "disclaimer", "caveat", "rebuttal", "sermon", "exhortation")
#: Kinds which only say that a sentence is no substance, weightiest first.
FILLERS = ("redirect", "referral", "evasion", "moral", "courtesy")
#: Kinds that mark no sentence: what only looks like a decline, what announces an answer.
MARKERS = ("idiom", "engagement")
QUESTIONS = (
    "yes_or_no verdict compose declining why negation because function_word other_language"
).split()
Language = Literal["en", "es", "fr", "de", "pt", "zh", "ja", "ko", "ru", "ar", "hi"]
#: Languages whose rules are found by words; those of the others by pieces of text.
SPACED = ("en", "es", "fr", "de", "pt")
_STRICT = ConfigDict(extra="forbid")


class Hit(NamedTuple):
    """Where a rule was found in the view's text; `SUBSTANCE` where none was."""

    start: int
    end: int
    kind: str
    rule: str
    place: str


SUBSTANCE = Hit(0, 0, "substance", "", "any")
#: Where a unit starts, its size, and its weightiest hit.
Unit = tuple[int, int, Hit]


@dataclass(frozen=True, config=_STRICT)
class Rule:
    """One rule.

    ``needs`` are words (in languages of other scripts, pieces of text) of which one must
    stand in the text; ``heads`` are the words that the pattern may begin with; ``place``
    is ``start`` if the match must open a sentence, ``end`` if a decline counts even after
    an answer, else ``any``.
    """

    id: str
    kind: str
    language: Language
    pattern: re.Pattern[str]
    needs: Annotated[frozenset[str], Field(min_length=1)]
    reason: str
    examples: Annotated[tuple[str, ...], Field(min_length=1)]
    heads: frozenset[str] = frozenset()
    place: Literal["any", "start", "end"] = "any"

    def find(self, view: View) -> list[Hit]:
        """Return every match, in their order in the text, if what the rule needs stands in it."""
        text, match_at = view.text, self.pattern.match
        if self.place == "start":
            heads = self.heads
            matches = [
                match_at(text, start)
                for start, word in view.openings.items()
                if not heads or word in heads
            ]
        elif self.heads:
            matches = [match_at(text, place) for place in view.places(*self.heads)]
        elif self.language in SPACED:
            matches = [*self.pattern.finditer(text)]
        else:
            matches = [*self.pattern.finditer(text, *view.foreign)]
        act = (self.kind, self.id, self.place)
        return [Hit(*match.span(), *act) for match in matches if match]


@dataclass(frozen=True, config=_STRICT)
class Anchor:
    """A frozen text with its author's label."""

    id: str
    prompt: str
    text: str
    label: Word
    kind: str
    language: str
    status: str = "ok"
    declined: bool = False


class Ruleset:
    """The rules and anchors of one folder; ConfigurationError names file, entry and fault.

    ``rules`` are sorted by kind; ``structural`` holds the reasons of the ids which have
    no pattern; ``asks`` are the patterns for what a question asks. A subclass names the
    kinds of its rules, weightiest first, its questions and the form of its anchors.
    """

    kinds: ClassVar[tuple[str, ...]] = ACTS + FILLERS + MARKERS
    questions: ClassVar[Sequence[str]] = QUESTIONS
    anchor: ClassVar[type[Any]] = Anchor

    def __init__(self, folder: Path) -> None:
        where = str(folder / "rules.toml")
        document = load_toml(Path(where), kind="judge rules")
        try:
            self.version, terms = document["version"], document["terms"]
            asked = document["questions"]
            self.asks = {name: _compile(asked[name], terms) for name in self.questions}
            self._read(document)
            self.structural = {entry["id"]: entry["reason"] for entry in document["structural"]}
            self.rules: dict[str, list[Rule]] = {kind: [] for kind in self.kinds}
            ids = set(self.structural)
            for number, entry in enumerate(document["rule"], start=1):
                where = f"{folder / 'rules.toml'}: rule {entry.get('id', number)!r}"
                needs = [need.translate(SIMPLIFIED) for need in entry["needs"]]
                pattern = _compile(entry["pattern"].translate(SIMPLIFIED), terms)
                rule = Rule(**entry | {"pattern": pattern, "needs": needs})
                self.rules[rule.kind].append(rule)
                if rule.id in ids:
                    raise ValueError("rule id used twice")
                ids.add(rule.id)
            self._index()
            for rule in self._numbered:
                where = f"{folder / 'rules.toml'}: rule {rule.id!r}"
                for example in rule.examples:
                    view = View(example)
                    if rule not in self.candidates(view) or not rule.find(view):
                        raise ValueError(f"example not found by its own rule: {example!r}")
            where = str(folder / "anchors.json")
            self.anchors: list[Any] = []
            for entry in json.loads(Path(where).read_text(encoding="utf-8"))["anchors"]:
                where = f"{folder / 'anchors.json'}: anchor {entry.get('id')!r}"
                anchor = self.anchor(**entry)
                if any(anchor.id == other.id for other in self.anchors):
                    raise ValueError("anchor id used twice")
                self.anchors.append(anchor)
            if not self.anchors:
                raise ValueError("no anchor given")
        except (KeyError, OSError, RecursionError, re.error, TypeError, ValueError) as error:
            what = f"missing or unknown: {error}" if isinstance(error, KeyError) else str(error)
            if isinstance(error, ValidationError):
                what = "; ".join(f"{item['loc'][0]}: {item['msg']}" for item in error.errors())
            raise ConfigurationError(what, where=where) from None

    def _read(self, document: dict[str, Any]) -> None:
        """Read what the file holds beside rules, before they are read."""

    def _index(self) -> None:
        """Number the rules by kind, and note which words or scripts each of them needs."""
        self._numbered = [rule for rules in self.rules.values() for rule in rules]
        self._by_word: dict[str, list[int]] = {}
        self._by_piece: dict[str, dict[str, list[int]]] = {}
        for number, rule in enumerate(self._numbered):
            for word in rule.needs if rule.language in SPACED else ():
                self._by_word.setdefault(word, []).append(number)
            for piece in rule.needs if rule.language not in SPACED else ():
                pieces = self._by_piece.setdefault(piece[0], {})
                pieces.setdefault(piece, []).append(number)
        self._needed = frozenset(self._by_word)

    def candidates(self, view: View, text: str | None = None) -> list[Rule]:
        """Return the rules which may be found in `view`, or in `text`, by weight of their kind."""
        found, letters, there = view.words, view.scripts, view.there
        if text is not None:
            found, letters, there = words(text), scripts(text), " ".join(text.split())
        numbers: set[int] = set()
        for word in found & self._needed:
            numbers.update(self._by_word[word])
        if letters:
            for first in self._by_piece.keys() & set(there):
                for piece, those in self._by_piece[first].items():
                    if piece in there:
                        numbers.update(those)
        rules = [self._numbered[number] for number in sorted(numbers)]
        return [
            rule
            for rule in rules
            if (
                not (rule.heads and rule.heads.isdisjoint(found))
                if rule.language in SPACED
                else rule.language in letters
            )
        ]


def find(view: View, rules: Iterable[Rule], kinds: Collection[str]) -> list[Hit]:
    """Return the hits of those of `rules` that are of these kinds, in their order."""
    return [hit for rule in rules if rule.kind in kinds for hit in rule.find(view)]


def mark(view: View, hits: Iterable[Hit]) -> list[Unit]:
    """Return the units of `view`, each with the first of its hits, which come weightiest first."""
    best: dict[int, Hit] = {}
    for hit in hits:
        best.setdefault(max(bisect_right(view.units, hit.start) - 1, 0), hit)
    size = len if view.text.isascii() else extent
    sizes = [size(view.text[start:end].rstrip()) for start, end in pairwise(view.units)]
    found = [best.get(number, SUBSTANCE) for number in range(len(sizes))]
    return [*zip(view.units, sizes, found, strict=False)]


def _compile(source: str, terms: dict[str, str]) -> re.Pattern[str]:
    source = re.sub(r"\{([a-z_]+)\}", lambda match: f"(?:{terms[match[1]]})", source)
    # A space stands for any white space, so that a line break hides nothing.
    return re.compile(source.replace(" ", r"(?:\s+)"))
