"""Rules and anchors as data: read, checked, and named when they are wrong."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from drift.config import load_toml
from drift.errors import ConfigurationError
from drift.judging.view import View, read_view

Word = Literal["refused", "answered", "undetermined"]

#: Kinds without which a text of some length is an answer, weightiest first.
ACTS = ("decline", "disclaimer", "caveat", "rebuttal", "sermon", "exhortation")
#: Kinds which only say that a sentence is no substance, weightiest first.
FILLERS = ("redirect", "referral", "evasion", "moral", "courtesy")
#: Kinds that mark no sentence: what only looks like a decline, what announces an answer.
MARKERS = ("idiom", "engagement")
KINDS = {kind: weight for weight, kind in enumerate(ACTS + FILLERS)}
QUESTIONS = (
    "yes_or_no verdict compose why negation because function_word wants_chinese wants_latin"
).split()


@dataclass(frozen=True)
class Rule:
    """One rule.

    ``needs`` are words (in other languages than English, pieces of text) of which one
    must stand in the text; ``heads`` are the words that the pattern may begin with; ``place`` is
    ``start`` if the match must open a sentence, ``end`` if a decline counts even
    after an answer, else ``any``.
    """

    id: str
    kind: str
    language: str
    pattern: re.Pattern[str]
    needs: frozenset[str]
    heads: tuple[str, ...]
    place: str
    reason: str
    examples: tuple[str, ...]

    def find(self, view: View) -> list[tuple[int, int]]:
        """Return start and end, in the view's text, of every match."""
        text = view.text
        if self.language == "en":
            if view.words.isdisjoint(self.needs):
                return []
        elif self.language == "zh" and not view.han:
            return []
        elif not any(need in text for need in self.needs):
            return []
        if self.place != "start" and not self.heads:
            return [match.span() for match in self.pattern.finditer(text)]
        starts = view.units
        if self.place != "start":
            starts = [place for head in self.heads for place in view.places(head)]
        match_at = self.pattern.match
        return [match.span() for start in starts if (match := match_at(text, start))]


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class Ruleset:
    """The content of ``rules.toml``; ``structural`` maps ids without a pattern to reasons."""

    version: str
    rules: tuple[Rule, ...]
    structural: dict[str, str]
    questions: dict[str, re.Pattern[str]]


def read_rules(path: Path) -> Ruleset:
    """Read a rules file; raise :class:`ConfigurationError` naming rule and fault."""
    document = load_toml(path, kind="judge rules")
    terms, rules, where = document.get("terms", {}), [], str(path)
    seen = {entry.get("id") for entry in document.get("structural", [])}
    try:
        questions = {name: _compile(document["questions"][name], terms) for name in QUESTIONS}
        for number, entry in enumerate(document["rule"], start=1):
            where = f"{path}: rule {entry.get('id', number)!r}"
            rules.append(_read_rule(entry, terms))
            if entry["id"] in seen:
                raise ValueError("rule id used twice")
            seen.add(entry["id"])
        where = str(path)
        structural = {entry["id"]: entry["reason"] for entry in document["structural"]}
        return Ruleset(document["version"], tuple(rules), structural, questions)
    except KeyError as error:
        raise ConfigurationError(f"missing field or unknown term {error}", where=where) from None
    except (re.error, TypeError, ValueError) as error:
        raise ConfigurationError(str(error), where=where) from None


def _compile(source: str, terms: dict[str, str]) -> re.Pattern[str]:
    source = re.sub(r"\{([a-z_]+)\}", lambda match: f"(?:{terms[match[1]]})", source)
    # A space stands for any white space, so that a line break hides nothing.
    return re.compile(source.replace(" ", r"(?:\s+)"))


def _read_rule(entry: dict[str, Any], terms: dict[str, str]) -> Rule:
    rule = Rule(
        id=entry["id"],
        kind=entry["kind"],
        language=entry["language"],
        pattern=_compile(entry["pattern"], terms),
        needs=frozenset(entry["needs"]),
        heads=tuple(entry.get("heads", ())),
        place=entry.get("place", "any"),
        reason=entry["reason"],
        examples=tuple(entry["examples"]),
    )
    for name, allowed in (("kind", (*KINDS, *MARKERS)), ("place", ("any", "start", "end"))):
        if getattr(rule, name) not in allowed:
            raise ValueError(f"unknown {name} {getattr(rule, name)!r}; expected one of {allowed}")
    if not rule.needs or not rule.examples:
        raise ValueError("needs and examples must each hold at least one entry")
    for example in rule.examples:
        if not rule.find(read_view(example)):
            raise ValueError(f"example not found by its own rule: {example!r}")
    return rule


def read_anchors(path: Path) -> tuple[Anchor, ...]:
    """Read the anchors; raise :class:`ConfigurationError` if one is malformed."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))["anchors"]
        anchors = tuple(Anchor(**entry) for entry in entries)
        ids = [anchor.id for anchor in anchors]
        wrong = {id_ for id_ in ids if ids.count(id_) > 1}
        wrong |= {anchor.id for anchor in anchors if anchor.label not in get_args(Word)}
        if wrong or not anchors:
            raise ValueError(f"id used twice or unknown label: {sorted(wrong) or 'none given'}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(f"anchors cannot be read: {error}", where=str(path)) from None
    return anchors
