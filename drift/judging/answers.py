"""What an answer of the board says, read from its text alone by ``config/board.toml``.

An opening that declines, a verdict, the URLs, and how far two answers are from each other are
functions of text. Nothing here asks a model or the network. The rules are stated in the file; each
takes time that grows with the length of the text, whatever stands in it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Hashable, Iterable
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from drift.config import Strict, canonical_json, load_checked, sha256_hex
from drift.probing.citations import Limits

#: Raised when the code below changes what it returns; a test notices such changes.
CODE_VERSION = "2"

Verdict = Literal["YES", "NO"]
Likeness = Literal["equal", "near", "changed", "rewrite"]
LIKENESS: tuple[Likeness, ...] = ("equal", "near", "changed", "rewrite")
Share = Annotated[Decimal, Field(ge=0, le=1)]
Phrases = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)]


class Distance(NamedTuple):
    """How far two answers are from each other, from 0 to 1; None where nothing can be said.

    ``words`` is 1 - Jaccard over the sets of content words, ``pairs`` the same over the sets of
    two content words that follow each other, both to 6 digits. Each is a metric on its sets, but
    for the last digit. Where both sets are empty it is 0 if the texts are equal, else None.

    Source: Broder (1997), On the resemblance and containment of documents,
    doi:10.1109/SEQUEN.1997.666900.
    """

    words: float | None
    pairs: float | None
    likeness: Likeness | None


class Asking(Strict):
    """What probes are asked with: tokens of an answer and of the context."""

    answer_tokens: int = Field(ge=1)
    context: int = Field(ge=64)


class Declines(Strict):
    """Leads that may come first, and what declines: a subject with an act, or a phrase alone."""

    leads: Phrases
    subjects: Phrases
    acts: Phrases
    alone: Phrases


class Openings(Strict):
    """How an answer declines, by language."""

    en: Declines
    zh: Declines


class VerdictRules(Strict):
    """``marks`` are set aside at both ends of the line which is to be a verdict."""

    marks: str


class Words(Strict):
    """Words that count for no content, by language, parted by white space."""

    en: str
    zh: str


class Degrees(Strict):
    """Up to which distance answers are near each other, and from which one is a rewrite."""

    near: Share
    rewrite: Share

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.near >= self.rewrite:
            raise ValueError(f"near = {self.near} is not less than rewrite = {self.rewrite}")
        return self


class EncoderRules(Strict):
    """Two names in ``config/weights.toml``, and the tokens of a text that the encoder reads."""

    weights: str
    tokenizer: str
    tokens: int = Field(ge=8, le=512)


class BoardRules(Strict):
    """How the board asks, and how it reads."""

    version: str = Field(min_length=1)
    asking: Asking
    openings: Openings
    verdict: VerdictRules
    words: Words
    likeness: Degrees
    encoder: EncoderRules
    citations: Limits


def load_board_rules(path: Path) -> BoardRules:
    """Read ``config/board.toml``; ConfigurationError names each wrong field."""
    return load_checked(path, BoardRules, kind="board rules")


_INVISIBLE = (
    "\u00ad\u034f\u061c\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
)
_UNSEEN = re.compile(f"[{_INVISIBLE}]+")
_FULL_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
_APOSTROPHES = dict.fromkeys(map(ord, "’‘‛ʼ"), "'")

# Words
_COMBINING = "".join(
    mark for mark in map(chr, range(0x300, 0x1F000)) if unicodedata.combining(mark)
)
_DELETED = re.compile(f"[{_COMBINING}{_INVISIBLE}]+")
#: Marks upon one letter are put in order in time that grows with their square; no spelling has so
#: many (UAX #15 calls a text without such heaps stream-safe).
_HEAP = re.compile(f"[{_COMBINING}]{{31,}}")
_HAN = "々〇\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_LETTERS = f"[^\\W_{_HAN}]+"
_WORD = re.compile(f"([{_HAN}]+)|({_LETTERS}(?:(?:'|(?<=[0-9])[.,](?=[0-9])){_LETTERS})*)")

# Openings
_ASIDE = dict.fromkeys(map(ord, '*_`"“”„«»「」『』'))
_SPACES = re.compile(r"\s+")
#: What white space is read as, and what may not follow a phrase: a word that goes on.
_SPACE, _END = {"en": " ", "zh": ""}, {"en": r"(?![\w'])", "zh": ""}
_MARKS = ".,!?;:…。、—–-"
#: Characters of an answer that are looked at: several times the longest opening.
_HEAD = 400

# URLs
_ENDS = f'\\s\x00-\x1f\x7f<>"`|\\\\\u2018-\u201f\u2026«»\u3000-\u303f\uff00-\uff65{_INVISIBLE}'
_URL = re.compile(
    "(?:(?<![A-Za-z0-9])[A-Za-z][A-Za-z0-9+-]{1,15}://|(?<![A-Za-z0-9.@/])[Ww]{3}\\.)"
    f"(?:[^{_ENDS}\\],;{_HAN}]|\\](?!\\()|[,;](?![A-Za-z][A-Za-z0-9+-]{{1,15}}://)"
    f"|(?<![A-Za-z0-9])[{_HAN}])+"
)
_HOST = re.compile(r"(?://|^[Ww]{3}\.)[^/:]")
_AFTER = ".,;:!?'*_~"
_BRACKETS = {")": "(", "]": "[", "}": "{"}


class Scorer:
    """The rules, applied. ``identity`` names what can move a score, ``rules`` by its hash."""

    def __init__(self, rules: BoardRules) -> None:
        moving = rules.model_dump(
            mode="json", include={"version", "openings", "verdict", "words", "likeness"}
        )
        self.identity = {
            "id": "board",
            "version": rules.version,
            "rules": sha256_hex(canonical_json(moving | {"code": CODE_VERSION})),
        }
        self._openings = {
            "en": _declines(rules.openings.en, "en"),
            "zh": _declines(rules.openings.zh, "zh"),
        }
        self._around = f" \t{rules.verdict.marks}"
        self._stop = frozenset(rules.words.en.split())
        self._cut = re.compile("|".join(sorted(rules.words.zh.split(), key=len, reverse=True)))
        self._near, self._rewrite = float(rules.likeness.near), float(rules.likeness.rewrite)

    def opening(self, text: str, language: str) -> str | None:
        """Return the listed words with which an answer declines at its very beginning.

        They are a subject and an act, or a phrase that stands alone, without what led to them.
        """
        head = _UNSEEN.sub("", text).lstrip("#>-*_` \t\r\n")[:_HEAD]
        head = head.translate(_FULL_WIDTH).translate(_APOSTROPHES).translate(_ASIDE).lower()
        head = _SPACES.sub(_SPACE[language], head.lstrip("#>- \t\r\n"))
        found = self._openings[language].match(head)
        return found[1] if found else None

    def verdict(self, text: str) -> Verdict | None:
        """Return YES or NO if the first line that says anything says this and nothing else."""
        for line in _UNSEEN.sub("", text).splitlines():
            if said := line.strip().strip(self._around):
                said = said.translate(_FULL_WIDTH)
                # Without regard to case, but for the letters of ASCII alone: "ſ" is no "S".
                return _VERDICTS.get(said.upper()) if said.isascii() else None
        return None

    def urls(self, text: str) -> list[str]:
        """Return every URL as written, in its order, once each."""
        found = (_trimmed(match[0]) for match in _URL.finditer(text.replace("\\_", "_")))
        return [*dict.fromkeys(url for url in found if _HOST.search(url))]

    def words(self, text: str) -> tuple[str, ...]:
        """Return the content words of a text in their order."""
        words: list[str] = []
        for han, word in _WORD.findall(_normal(text)):
            if word and word not in self._stop:
                words.append(word)
            for run in self._cut.split(han) if han else ():
                words += map("".join, pairwise(run)) if len(run) > 1 else run
        return tuple(words)

    def distance(self, a: str, b: str) -> Distance:
        """Return how far two answers are from each other."""
        equal, one, two = a == b, self.words(a), self.words(b)
        words = _distance(one, two, equal)
        pairs = _distance(pairwise(one), pairwise(two), equal)
        return Distance(words, pairs, self._likeness(words, pairs, equal))

    def _likeness(self, words: float | None, pairs: float | None, equal: bool) -> Likeness | None:
        if equal or words is None:
            return "equal" if equal else None
        if (words if pairs is None else pairs) <= self._near:
            return "near"
        return "rewrite" if words >= self._rewrite else "changed"


_VERDICTS: dict[str, Verdict] = {"YES": "YES", "NO": "NO"}


def _declines(declines: Declines, language: str) -> re.Pattern[str]:
    """Return the pattern of an opening: leads and marks in any number, then what declines.

    No lead is made of others, so there is one way to read a text, and none is tried twice.
    """
    leads, subjects, acts, alone = (
        "|".join(_phrase(phrase, _END[language]) for phrase in sorted(listed, key=len)[::-1])
        for listed in (declines.leads, declines.subjects, declines.acts, declines.alone)
    )
    declining = f"(?:{subjects}){_SPACE[language]}(?:{acts})|{alone}"
    return re.compile(f"(?:(?:{leads})[ {_MARKS}]*)*+({declining})")


def _phrase(phrase: str, end: str) -> str:
    """Return the pattern of a listed phrase; a point at its end stands for any mark."""
    if phrase.endswith("."):
        end = f"(?= ?[{_MARKS}]|$)"
    return re.escape(phrase.removesuffix(".")) + end


def _normal(text: str) -> str:
    """Return a text as its words are looked for: NFKC, no case, nothing that is not seen."""
    if text.isascii():
        return text.lower()
    if " " in text:
        # No space joins with its neighbours, and of most words ASCII is all that there is.
        return " ".join(map(_normal, text.split(" ")))
    text = unicodedata.normalize("NFKC", _HEAP.sub("", text)).translate(_APOSTROPHES)
    return _DELETED.sub("", unicodedata.normalize("NFKC", text.casefold()))


def _distance(a: Iterable[Hashable], b: Iterable[Hashable], equal: bool) -> float | None:
    one, two = set(a), set(b)
    if not one and not two:
        return 0.0 if equal else None
    shared = len(one & two)
    return round(1 - shared / (len(one) + len(two) - shared), 6)


def _trimmed(url: str) -> str:
    """Return `url` without the punctuation after it and closing brackets that it never opened."""
    spare = {mark: url.count(mark) - url.count(opening) for mark, opening in _BRACKETS.items()}
    end = len(url)
    while end and (url[end - 1] in _AFTER or spare.get(url[end - 1], 0) > 0):
        end -= 1
        if url[end] in spare:
            spare[url[end]] -= 1
    return url[:end]
