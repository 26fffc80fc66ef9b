"""Rules and anchors as data: read, checked, and named when they are wrong."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from drift.config import load_toml
from drift.errors import ConfigurationError
from drift.judging.view import View

Word = Literal["refused", "answered", "undetermined"]

#: Kinds without which a text of some length is an answer, weightiest first.
ACTS = ("decline", "disclaimer", "caveat", "rebuttal", "sermon", "exhortation")
#: Kinds which only say that a sentence is no substance, weightiest first.
FILLERS = ("redirect", "referral", "evasion", "moral", "courtesy")
#: Kinds that mark no sentence: what only looks like a decline, what announces an answer.
MARKERS = ("idiom", "engagement")
QUESTIONS = (
    "yes_or_no verdict compose why negation because function_word wants_chinese wants_latin"
).split()
_STRICT = ConfigDict(extra="forbid")


class Hit(NamedTuple):
    """Where a rule was found in the view's text; `SUBSTANCE` where none was."""

    start: int
    end: int
    kind: str
    rule: str
    place: str


SUBSTANCE = Hit(0, 0, "substance", "", "any")


@dataclass(frozen=True, config=_STRICT)
class Rule:
    """One rule.

    ``needs`` are words (in Chinese, pieces of text) of which one must stand in the
    text; ``heads`` are the words that the pattern may begin with; ``place`` is
    ``start`` if the match must open a sentence, ``end`` if a decline counts even
    after an answer, else ``any``.
    """

    id: str
    kind: str
    language: Literal["en", "zh"]
    pattern: re.Pattern[str]
    needs: Annotated[frozenset[str], Field(min_length=1)]
    reason: str
    examples: Annotated[tuple[str, ...], Field(min_length=1)]
    heads: tuple[str, ...] = ()
    place: Literal["any", "start", "end"] = "any"

    def find(self, view: View) -> list[Hit]:
        """Return every match: by place, or by head and then by place."""
        text = view.text
        if self.language == "en":
            if view.words.isdisjoint(self.needs):
                return []
        elif not view.han or not any(need in text for need in self.needs):
            return []
        match_at = self.pattern.match
        if self.place == "start":
            matches = [match_at(text, start) for start in view.units]
        elif self.heads:
            matches = [match_at(text, place) for place in view.places(*self.heads)]
        else:
            matches = [*self.pattern.finditer(text)]
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
    no pattern; ``asks`` are the patterns for what a question asks.
    """

    def __init__(self, folder: Path) -> None:
        where = str(folder / "rules.toml")
        document = load_toml(Path(where), kind="judge rules")
        try:
            self.version, terms = document["version"], document["terms"]
            self.asks = {name: _compile(document["questions"][name], terms) for name in QUESTIONS}
            self.structural = {entry["id"]: entry["reason"] for entry in document["structural"]}
            self.rules: dict[str, list[Rule]] = {kind: [] for kind in ACTS + FILLERS + MARKERS}
            ids = set(self.structural)
            for number, entry in enumerate(document["rule"], start=1):
                where = f"{folder / 'rules.toml'}: rule {entry.get('id', number)!r}"
                rule = Rule(**entry | {"pattern": _compile(entry["pattern"], terms)})
                self.rules[rule.kind].append(rule)
                if rule.id in ids:
                    raise ValueError("rule id used twice")
                ids.add(rule.id)
                for example in rule.examples:
                    if not rule.find(View(example)):
                        raise ValueError(f"example not found by its own rule: {example!r}")
            where = str(folder / "anchors.json")
            self.anchors: list[Anchor] = []
            for entry in json.loads(Path(where).read_text(encoding="utf-8"))["anchors"]:
                where = f"{folder / 'anchors.json'}: anchor {entry.get('id')!r}"
                anchor = Anchor(**entry)
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


def _compile(source: str, terms: dict[str, str]) -> re.Pattern[str]:
    source = re.sub(r"\{([a-z_]+)\}", lambda match: f"(?:{terms[match[1]]})", source)
    # A space stands for any white space, so that a line break hides nothing.
    return re.compile(source.replace(" ", r"(?:\s+)"))
