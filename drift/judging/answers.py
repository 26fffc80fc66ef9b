"""What an answer of the board says, read from its text alone under ``config/board.toml``.

Nothing here asks a model or the network: an opening that declines, a verdict, the URLs, and how
far two answers are from each other are functions of text, in time that grows with its length.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Hashable, Sequence
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from drift.config import Strict, canonical_json, load_checked, sha256_hex

#: Raised when the code below changes what it returns; a test notices such changes.
CODE_VERSION = "1"

Verdict = Literal["YES", "NO"]
Likeness = Literal["equal", "near", "changed", "rewrite"]
Share = Annotated[Decimal, Field(ge=0, le=1)]
Phrases = Annotated[tuple[str, ...], Field(min_length=1)]


class Distance(NamedTuple):
    """How far two answers are from each other, from 0 to 1; None where nothing can be said.

    ``words`` is 1 - Jaccard over the sets of content words, ``pairs`` the same over the sets of
    two that follow each other, to 6 digits.
    """

    words: float | None
    pairs: float | None
    likeness: Likeness | None


class Asking(Strict):
    """What the probes are asked with: tokens of an answer and of the context, draws a night."""

    answer_tokens: int = Field(ge=1)
    context: int = Field(ge=64)
    draws: int = Field(default=2, ge=1)


class Openings(Strict):
    """Phrases that decline, by language."""

    en: Phrases
    zh: Phrases


class Words(Strict):
    """Words without content, by language, parted by white space."""

    en: str
    zh: str


class Likenesses(Strict):
    """Up to which distance answers are near each other, and from which one is rewritten."""

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
    """``config/board.toml``."""

    version: str = Field(min_length=1)
    asking: Asking
    openings: Openings
    words: Words
    likeness: Likenesses
    encoder: EncoderRules


def load_board_rules(path: Path) -> BoardRules:
    """Read the rules; ConfigurationError names each wrong field."""
    return load_checked(path, BoardRules, kind="board rules")


_INVISIBLE = re.compile(
    "[\u00ad\u034f\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]+"
)
_MARKS = "".join(mark for mark in map(chr, range(0x300, 0x1F000)) if unicodedata.combining(mark))
_MARK = re.compile(f"[{_MARKS}]+")
#: Normalisation sorts the marks upon a letter, in time that grows with their square.
_HEAP = re.compile(f"[{_MARKS}]{{9,}}")
_FULL_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
_APOSTROPHES = dict.fromkeys(map(ord, "’‘‛ʼ＇"), "'")

_HAN = "々〇\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_LETTER = f"[^\\W_{_HAN}]"
_WORD = re.compile(f"([{_HAN}]+)|({_LETTER}+(?:(?:'|(?<=[0-9])[.,](?=[0-9])){_LETTER}+)*)")

_SPACES = re.compile(r"[\s,、]+")
_OPEN = " \t\r\n*_~`#>-"
_QUOTES = dict.fromkeys(map(ord, '"“”„«»「」『』'))
_JOINT = {"en": " ", "zh": ""}

_VERDICT = re.compile("[Yy][Ee][Ss]|[Nn][Oo]")
_AROUND = " \t*_~`#>+-–—•·\"“”„'‘’.!,;:…。！，；：()[]（）【】「」『』"

_STOP = '\\s\x00-\x1f<>"`|\\\\\u2018-\u201f\u2026\u3000-\u303f\uff00-\uff65\u00ab\u00bb'
_URL = re.compile(
    "(?:(?<![A-Za-z0-9])[A-Za-z][A-Za-z0-9+-]{1,15}://|(?<![A-Za-z0-9.@/])[Ww]{3}\\.)"
    f"(?:[^{_STOP}\\],;{_HAN}]|[,;](?!https?://)|\\](?!\\()|(?<![A-Za-z0-9])[{_HAN}])+"
)
_HOST = re.compile("(?:://|www\\.)[^/]")
_AFTER = ".,;:!?'*_~"
_PAIRS = {")": "(", "]": "[", "}": "{"}


class Scorer:
    """The rules, applied. ``identity`` names what can move a score."""

    def __init__(self, rules: BoardRules) -> None:
        moving = rules.model_dump(mode="json", include={"version", "openings", "words", "likeness"})
        self.identity = {
            "id": "board",
            "version": rules.version,
            "rules": sha256_hex(canonical_json(moving | {"code": CODE_VERSION})),
        }
        self._openings = {
            code: sorted(getattr(rules.openings, code), key=len, reverse=True) for code in _JOINT
        }
        self._stop = frozenset(rules.words.en.split())
        self._particles = re.compile("|".join(sorted(rules.words.zh.split(), key=len)[::-1]))
        self._near, self._rewrite = float(rules.likeness.near), float(rules.likeness.rewrite)

    def opening(self, text: str, language: str) -> str | None:
        """Return the listed phrase with which an answer declines at its very beginning."""
        head = _INVISIBLE.sub("", text).lstrip(_OPEN)[:400]
        joint = _JOINT[language]
        folded = head.translate(_FULL_WIDTH).translate(_APOSTROPHES).translate(_QUOTES).lower()
        folded = _SPACES.sub(joint, folded.lstrip(_OPEN))
        for phrase in self._openings[language]:
            after = folded[len(phrase) : len(phrase) + 1]
            if folded.startswith(phrase) and not (language == "en" and after.isalnum()):
                return phrase
        return None

    def verdict(self, text: str) -> Verdict | None:
        """Return YES or NO if the first line says this and nothing else."""
        for line in _INVISIBLE.sub("", text).splitlines():
            if said := line.strip().strip(_AROUND):
                said = said.translate(_FULL_WIDTH)
                return said.upper() if _VERDICT.fullmatch(said) else None  # type: ignore[return-value]
        return None

    def urls(self, text: str) -> list[str]:
        """Return every URL as written, in its order, once each."""
        found = (_trimmed(match[0]) for match in _URL.finditer(text.replace("\\_", "_")))
        return list(dict.fromkeys(url for url in found if url))

    def words(self, text: str) -> tuple[str, ...]:
        """Return the content words of a text in their order."""
        words: list[str] = []
        for han, word in _WORD.findall(_folded(text)):
            if not han and word not in self._stop:
                words.append(word)
            for run in self._particles.split(han) if han else ():
                words += map("".join, pairwise(run)) if len(run) > 1 else run
        return tuple(words)

    def distance(self, a: str, b: str) -> Distance:
        """Return how far two answers are from each other; see :class:`Distance`."""
        equal = a == b
        one, two = self.words(a), self.words(b)
        words = _jaccard(one, two, equal)
        pairs = _jaccard([*pairwise(one)], [*pairwise(two)], equal)
        return Distance(words, pairs, self._likeness(words, pairs, equal))

    def _likeness(self, words: float | None, pairs: float | None, equal: bool) -> Likeness | None:
        if equal:
            return "equal"
        if words is None:
            return None
        if (words if pairs is None else pairs) <= self._near:
            return "near"
        return "rewrite" if words >= self._rewrite else "changed"


def _folded(text: str) -> str:
    if not text.isascii():
        text = unicodedata.normalize("NFKC", _HEAP.sub("", text)).translate(_APOSTROPHES)
        text = unicodedata.normalize("NFKC", text.casefold())
        return _MARK.sub("", _INVISIBLE.sub("", text))
    return text.lower()


def _jaccard(a: Sequence[Hashable], b: Sequence[Hashable], equal: bool) -> float | None:
    one, two = set(a), set(b)
    if not one and not two:
        return 0.0 if equal else None
    shared = len(one & two)
    return round(1 - shared / (len(one) + len(two) - shared), 6)


def _trimmed(url: str) -> str:
    """Return `url` without the punctuation after it, and closing brackets that it never opened."""
    spare = {mark: url.count(mark) - url.count(opening) for mark, opening in _PAIRS.items()}
    end = len(url)
    while end and (url[end - 1] in _AFTER or spare.get(url[end - 1], 0) > 0):
        end -= 1
        if url[end] in spare:
            spare[url[end]] -= 1
    return url[:end] if _HOST.search(url, 0, end) else ""
