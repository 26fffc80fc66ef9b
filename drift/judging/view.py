"""The speech-act view: what of a stored text can decline or answer.

Visible reasoning and template residue are set aside, then only the head and the
tail of the answer are looked at. Inside this window look-alikes are folded, quoted
matter is blanked (a mention is not an act) and markup is deleted. Every position
of the view can be traced back to the stored text.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from dataclasses import dataclass
from functools import cache, cached_property

#: Characters of the answer that are read at its head and at its tail. A decline
#: stands in one of them; the bound keeps the cost of a long text down.
HEAD, TAIL = 700, 200

_OPEN = re.compile(r"\s*<(?:think|thinking|thought|reasoning)>", re.I)
_CLOSE = re.compile(r"</(?:think|thinking|thought|reasoning)>", re.I)
_RESIDUE = re.compile(
    r"\s*(?:<\|[\w ]{1,24}\|>(?:\s*assistant\b:?)?|</?s>|\[/?(?:INST|OUT|SYS|ASSISTANT)\]"
    r"|#{1,4} ?(?:Response|Answer|Assistant)\b:?"
    r"|\**(?:Assistant|AI|Bot|Answer|Response|Output)\**[:：]\**)",
    re.I,
)
_END = re.compile(r"<\|(?:im_end|im_start|endoftext|eot_id|end)\|>|</s>")
_FENCE = re.compile(r"```[^`]*```")
_BLOCKQUOTE = re.compile(r"^ *>[^\n]*", re.M)
_JSON = re.compile(r"\s*(?:```(?:json)?\s*)?[{\[]\s*[\"{]", re.I)
_KEY = re.compile(r'"[\w -]{1,40}"\s*:|\\n|\\"|[\[\]{}"]')
_QUOTED = {
    '"': re.compile(r'(?<![\w"])"(?=\S)[^"\n]*(?<=\S)"(?!\w)'),
    "'": re.compile(r"(?<![\w'])'(?=[a-z])(?:[^'\n]|(?<=\w)'(?=\w)){2,200}'(?![\w'])"),
    "“": re.compile(r"“[^“”\n]*”"),
    "「": re.compile(r"「[^「」\n]*」"),
    "『": re.compile(r"『[^『』\n]*』"),
}
# A quotation mark that is still there when quotations are blanked is unmatched.
_MARKUP = re.compile(r"[*#`|~_\"“”「」『』\u200b-\u200f\u2060\ufeff\u00ad]+")
_UNIT_END = re.compile(r"[.!?;:…。！？；\n]++[\"')\]]*(?:\s\W*|(?<=[。！？；])\W*|$)")
#: A turn against what was just said; "not only … but also" is none.
CONTRAST = re.compile(
    r"\b(?:but(?! (?:also|rather|not|instead|ultimately)\b)|however|nevertheless|nonetheless"
    r"|that said|that being said)\b|(?:但|不过|然而)"
)
_TURNS = ("but", "however", "nevertheless", "nonetheless", "that")
_CONCESSION = re.compile(r"\b(?:while|although|though) [^,.!?\n]{1,120}, (?!but )")
_CLAUSE = re.compile(r"[,，、](?=但|不过|然而|可是|如果|建议|请)")
_PUNCTUATION = str.maketrans(dict.fromkeys('.,;:!?()[]{}"<>/\\\n', " "))
WORD = re.compile(r"[^\W_]")
HAN = re.compile("[\u4e00-\u9fff]")
_EXOTIC = re.compile("[^\x00-\x7f\u00a1-\u024f\u2010-\u2026\u20ac]")
_GREEK_CYRILLIC = re.compile("[\u0370-\u04ff]")
_CYRILLIC_ONLY = re.compile("[бвгдёжзийклмнптфцчшщъыьэюя]", re.I)

_COMMON = {"’": "'", "‘": "'", "\u00a0": " ", "‐": "-", "‑": "-", "´": "'"}
_LOOKALIKE = str.maketrans("аеорсухіјѕАЕОРСХІЈЅΑΕΟΙο", "aeopcyxijsAEOPCXIJSAEOIo")
# Traditional forms of the characters which the Chinese rules use.
_TRADITIONAL = str.maketrans(
    "對無說請問題這個們會為創寫論協幫關話換討評應與當規違內輸聽談參議權責讓遺絕點實現",
    "对无说请问题这个们会为创写论协帮关话换讨评应与当规违内输听谈参议权责让遗绝点实现",
)


@cache
def _word_pattern(word: str) -> re.Pattern[str]:
    # The literal comes first, so that it is found at the speed of a plain search.
    return re.compile(rf"{word}(?![\w'])(?<!\w{word})")


def _fold_table() -> dict[int, int | str]:
    table: dict[int, int | str] = {}
    for first, last in ((0xFF01, 0xFF5E), (0x1D400, 0x1D7FF), (0x2100, 0x214F), (0x24B6, 0x24E9)):
        for code in range(first, last + 1):
            folded = unicodedata.normalize("NFKC", chr(code))
            if len(folded) == 1:
                table[code] = folded
    table |= dict.fromkeys(map(ord, "ʼ＇′ʹ"), "'")
    table |= dict.fromkeys([0x1680, 0x202F, 0x205F, 0x3000, 0x85, *range(0x2000, 0x200B)], " ")
    return table | {ord("İ"): "i", 0x2028: "\n", 0x2029: "\n"} | _TRADITIONAL


_FOLD = _fold_table()


@dataclass(frozen=True)
class View:
    """One stored text as the rules see it.

    ``text`` is in lower case; ``start`` and ``end`` bound the stored text without
    reasoning and residue; ``unfinished`` says that all of it is reasoning;
    ``windows`` are the stored ranges that are read; ``folded`` is the window
    before quotations (``quoted``) are blanked in ``masked`` and markup is deleted.
    """

    stored: str
    start: int
    end: int
    unfinished: bool
    windows: tuple[tuple[int, int], ...]
    folded: str
    masked: str
    quoted: str
    text: str

    @property
    def answer(self) -> str:
        """The stored text without reasoning and residue."""
        return self.stored[self.start : self.end]

    @property
    def middle(self) -> int:
        """Number of characters between head and tail which are not read."""
        return self.windows[-1][0] - self.windows[0][1] if len(self.windows) > 1 else 0

    @cached_property
    def words(self) -> set[str]:
        """The words of the view; apostrophes and hyphens belong to words."""
        plain = self.text
        if not plain.isascii():
            plain = plain.encode("ascii", "replace").decode()
        return set(plain.translate(_PUNCTUATION).split())

    @cached_property
    def _places(self) -> dict[str, list[int]]:
        return {}

    def places(self, word: str) -> list[int]:
        """Return where `word` stands in the view."""
        if word not in self.words:
            return []
        if word not in self._places:
            self._places[word] = [m.start() for m in _word_pattern(word).finditer(self.text)]
        return self._places[word]

    @cached_property
    def han(self) -> bool:
        """Whether a Chinese character stands in the view."""
        return has_han(self.text)

    @cached_property
    def units(self) -> list[int]:
        """Where each sentence or contrasted clause of the view starts, in order."""
        text = self.text
        first = WORD.search(text)
        starts = {first.start() if first else 0}
        starts.update(match.end() for match in _UNIT_END.finditer(text))
        places = (place for turn in _TURNS for place in self.places(turn))
        starts.update(place for place in places if CONTRAST.match(text, place))
        if not self.words.isdisjoint(("while", "although", "though")):
            starts.update(match.end() for match in _CONCESSION.finditer(text))
        if self.han:
            starts.update(match.end() for match in _CLAUSE.finditer(text))
        starts.discard(len(text))
        return sorted(starts)

    @cached_property
    def _cuts(self) -> tuple[list[int], list[int]]:
        kept, removed, total = [0], [0], 0
        for match in _MARKUP.finditer(self.masked):
            total += match.end() - match.start()
            kept.append(match.end() - total)
            removed.append(total)
        return kept, removed

    def origin(self, position: int) -> int:
        """Return the offset in the stored text of a position of the view."""
        kept, removed = self._cuts
        return self.stored_offset(position + removed[bisect_right(kept, position) - 1])

    def stored_offset(self, position: int) -> int:
        """Return the offset in the stored text of a position of ``folded``."""
        for start, end in self.windows[:-1]:
            if position < end - start:
                return start + position
            position -= end - start + 1
        return self.windows[-1][0] + position

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return the stored offsets of the view's characters `start` to `end`."""
        return self.origin(start), self.origin(end - 1) + 1


def read_view(stored: str) -> View:
    """Return the speech-act view of one stored text; never raises."""
    start, end, unfinished = 0, len(stored), False
    if "<" in stored:
        start, unfinished = _after_reasoning(stored)
    while match := _RESIDUE.match(stored, start):
        start = match.end()
    if "<" in stored and (closed := _END.search(stored, start)):
        end = closed.start()
    windows: tuple[tuple[int, int], ...] = ((start, end),)
    if end - start > HEAD + TAIL:
        windows = ((start, start + HEAD), (end - TAIL, end))
    folded = fold("\n".join(stored[first:last] for first, last in windows))
    masked, quoted = _blank_mentions(folded)
    return View(
        stored, start, end, unfinished, windows, folded, masked, quoted, _MARKUP.sub("", masked)
    )


def fold(text: str) -> str:
    """Return `text` in lower case with look-alike characters folded, length unchanged."""
    if not text.isascii():
        for char, plain in _COMMON.items():
            text = text.replace(char, plain)
        if _EXOTIC.search(text):
            text = text.translate(_FOLD)
            if _GREEK_CYRILLIC.search(text) and not _CYRILLIC_ONLY.search(text):
                text = text.translate(_LOOKALIKE)
        text = text.replace("İ", "i")
    for space in "\t\r\x0b\x0c":
        text = text.replace(space, " ")
    return text.lower()


def has_han(text: str) -> bool:
    """Return whether a Chinese character stands in `text`."""
    return not text.isascii() and HAN.search(text) is not None


def _after_reasoning(stored: str) -> tuple[int, bool]:
    closed = [match.end() for match in _CLOSE.finditer(stored)]
    if closed:
        return closed[-1], False
    return (len(stored), True) if _OPEN.match(stored) else (0, False)


def _blank_mentions(text: str) -> tuple[str, str]:
    mentions: list[str] = []

    def blank(match: re.Match[str]) -> str:
        mentions.append(match[0])
        return " " * len(match[0])

    if _JSON.match(text):
        # The strings of a JSON answer are its wrapper, not quotations.
        return _KEY.sub(blank, text), ""
    blanked = text
    if "```" in text:
        blanked = _FENCE.sub(blank, blanked)
    if ">" in text:
        blanked = _BLOCKQUOTE.sub(blank, blanked)
    for mark, pattern in _QUOTED.items():
        if mark in blanked:
            blanked = pattern.sub(blank, blanked)
    # A quotation around the whole answer is the answer.
    if mentions and not WORD.search(blanked):
        return text, ""
    return blanked, "\n".join(mentions)
