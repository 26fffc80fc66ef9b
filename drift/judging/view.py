"""The speech-act view: what of a stored text can decline or answer.

Visible reasoning and template residue are set aside, then only the head and the
tail of the answer are looked at. Inside this window look-alikes are folded, quoted
matter is blanked (a mention is not an act) and markup is deleted. Every position
of the view can be traced back to the stored text.
"""

from __future__ import annotations

import json
import re
import unicodedata
from functools import cache

#: Characters of the answer that are read at its head and at its tail. A decline
#: stands in one of them; the bound keeps the cost of a long text down.
HEAD, TAIL = 700, 200
#: What stands for quotation marks that open and close, and for dashes and bullets.
OPENING_MARK, CLOSING_MARK, DASH = "\1\2\3"
#: Characters from which a line without an end of a sentence was broken for its width.
LONG = 40

_OPEN = re.compile(r"\s*<(?:think|thinking|thought|reasoning)>", re.I)
_CLOSE = re.compile(r"</(?:think|thinking|thought|reasoning)>", re.I)
_RESIDUE = re.compile(
    r"\s*(?:<\|[\w ]{1,24}\|>(?:\s*assistant\b:?)?|</?s>|\[/?(?:INST|OUT|SYS|ASSISTANT)\]"
    r"|#{1,4} ?(?:Response|Answer|Assistant)\b:?"
    r"|\**(?:Assistant|AI|Bot|Answer|Response|Output)\**[:：]\**)",
    re.I,
)
_END = re.compile(r"<\|(?:im_end|im_start|endoftext|eot_id|end)\|>|</s>")
_BLOCK = re.compile(r" *>")
#: Marks of a quotation around the whole answer which are not deleted as markup.
_AROUND = re.compile(r"^ *>|\A *'|' *\Z", re.M)
_JSON = re.compile(r"\s*(?:(?:[^`\n]{0,60}:\s*)?```(?:json)?\s*)?[{\[]\s*[\"{]", re.I)
_KEY = re.compile(r'"[\w -]{1,40}"\s*:|",|(?:\\u[0-9a-f]{4})+|\\[nrt"/]|[\[\]{}"]')
#: What wraps an answer: fences, tags (some of which part sentences), cells of a table, ordinals.
_TAG = re.compile(r"</?([a-z][a-z0-9]{0,15})(?: [^<>\n]{0,80})?/?>")
_FENCE = re.compile(r"```[\w-]*")
_INLINE = frozenset("a abbr b code del em i ins mark q s small span strong sub sup u".split())
_ROW = re.compile(r"^ *\|[^\n]*", re.M)
_ORDINAL = re.compile(r"^[^\w\n]*(?:\d{1,3}|[a-z])\)", re.M)
#: A break of a line in whose place a space may have stood.
_BREAK = re.compile(r"\n(?<=[\w,;)'\"*`\3-]\n) *(?!\d{1,3}[.)]|[a-z]\))(?=\w)")
#: Marks and spaces as HTML writes them.
_ENTITIES = {"'": "#39 #039 #x27 apos lsquo rsquo", '"': "#34 quot ldquo rdquo", " ": "nbsp #160"}
_ENTITY = re.compile(f"&(?:{'|'.join(' '.join(_ENTITIES.values()).split())});")
_GRAVE = re.compile(r"(?<=[a-z])`(?=(?:t|s|m|d|re|ll|ve)\b)")
_NUMBER = re.compile(r"^ *\d{1,2}[.)]", re.M)
#: Quoted matter in the order in which it is blanked, by a mark that must stand in it.
_QUOTED = {
    "```": re.compile(r"```[^`]*```"),
    "~~~": re.compile(r"^~~~[^~]*~~~", re.M),
    "`": re.compile(r"`[^`\n]+`"),
    ">": re.compile(r"^ *>[^\n]*", re.M),
    '"': re.compile(r'"(?<![a-z0-9"]")(?=\S)[^"\n]*(?<=\S)"(?![a-z0-9])'),
    "'": re.compile(r"'(?<![\w']')(?=[a-z])(?:[^'\n]|(?<=\w)'(?=\w)){2,200}'(?![\w'])"),
    "</": re.compile(r"<(q|blockquote)>[^<]*</\1>"),
    "«": re.compile(r"«[^«»\n]*»|»[^«»\n]*«"),
    "„": re.compile("„[^„\1\2\n]*[\1\2]"),
    OPENING_MARK: re.compile("\1[^\1\2\n]*\2"),
    "「": re.compile(r"「[^「」\n]*」"),
    "『": re.compile(r"『[^『』\n]*』"),
}
# A quotation mark that is still there when quotations are blanked is unmatched.
# Combining marks and marks of direction are no letters either.
_MARKUP = re.compile(
    r"[*#`|~_\"\1\2„«»「」『』\u0300-\u036f\u064b-\u0652"
    r"\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufe00-\ufe0f\ufeff\u00ad]+"
)
# After it stands the first word of the next unit.
_UNIT_END = re.compile(
    r"[.!?;:。！？；؟।\n](?:(?<=\n)|[.!?;:。！？；؟।]*+[\"')\]]*(?:\s|(?<=[。！？；।])|$))\W*([a-z']*)"
)
# The same two for text of ASCII letters, where they are found in half the time.
_DELETED = dict.fromkeys(map(ord, '*#`|~_"\1\2'))
_PLAIN_END = re.compile(r"[.!?;:\n](?:(?<=\n)|[.!?;:]*+[\"')\]]*(?:\s|$))\W*([a-z']*)")
_FIRST = re.compile(r"[a-z']*")
#: A turn against what was just said; "not only … but also" is none.
CONTRAST = re.compile(
    r"\b(?:but(?! (?:also|rather|not|instead|ultimately)\b)|however|nevertheless|nonetheless"
    r"|that said|that being said|pero|sin embargo|no obstante|cependant|toutefois|aber"
    r"|jedoch|allerdings|dennoch|mas|porem|no entanto|contudo"
    r"|mais(?! (?:de|informac|detalhe|sobre|ou|uma?|d[oa])))\b"
    r"|(?:但|不过|然而|ただし|しかし|ですが|ただ、|하지만|그러나|다만|однако|тем не менее|но )"
    r"|(?:لكن|ولكن|लेकिन|हालांकि|परंतु|किंतु|फिर भी)"
)
_TURNS = (
    "but however nevertheless nonetheless that pero sin no mais cependant toutefois aber jedoch "
    "allerdings dennoch mas porem contudo"
).split()
_CONCESSION = re.compile(r"\b(?:while|although|though) [^,.!?\n]{1,120}, (?!but )")
_CLAUSE = re.compile(
    r"[,，、،] ?(?=但|不过|然而|可是|如果|建议|请|しかし|ただ|하지만|그러나|однако|но )"
    r"|[,，、،] ?(?=لكن|ولكن|लेकिन)|(?<=ですが)、|(?<=지만),? "
)
_PUNCTUATION = str.maketrans(dict.fromkeys('.,;:!?()[]{}"<>/\\\n\1\2\3', " "))
WORD = re.compile(r"[^\W_]")
_LETTER = re.compile(r"[^\W\d_]")
#: Letters of scripts other than the Latin one, by the language of the rules.
_SCRIPTS = {
    "zh": re.compile("[\u4e00-\u9fff]+"),
    "ja": re.compile("[\u3041-\u30ff]+"),
    "ko": re.compile("[\uac00-\ud7a3]+"),
    "ru": re.compile("[\u0400-\u04ff]+"),
    "ar": re.compile("[\u0600-\u06ff]+"),
    "hi": re.compile("[\u0900-\u097f]+"),
}
_CHINESE = _SCRIPTS["zh"]
_FOREIGN = re.compile("[\u0370-\u1dff\u3041-\ud7a3]+")
_WIDE = re.compile("[\u3041-\u30ff\u4e00-\u9fff\uac00-\ud7a3]+")
_GREEK_CYRILLIC = re.compile("[\u0370-\u04ff]")
_CYRILLIC_ONLY = re.compile("[бвгдёжзийклмнптфцчшщъыьэюяБГДЁЖЗИЙЛПУФЦЧШЩЪЫЬЭЮЯ]")
_LOOKALIKE = str.maketrans(
    "аеорсухіјѕһԁАВЕКМНОРСТХІЈЅΑΒΕΖΗΙΚΜΝΟΡΤΥΧοανρι",
    "aeopcyxijshdABEKMHOPCTXIJSABEZHIKMNOPTYXoavpi",
)


# Traditional forms of the characters which the Chinese rules use.
_TRADITIONAL = (
    "對無說請問題這個們會為創寫論協幫關話換討評應與當規違內輸聽談參議權責讓遺絕點實現範圍據庫"
    "訓練數檢條決單訊選擇確認開啟務執項觀導擔樂該讀經專業醫師構諮詢閱報結審過濾屬僅國稅從動歡終製處"
    "聯繫資質時備"
)
_SIMPLIFIED = (
    "对无说请问题这个们会为创写论协帮关话换讨评应与当规违内输听谈参议权责让遗绝点实现范围据库"
    "训练数检条决单讯选择确认开启务执项观导担乐该读经专业医师构咨询阅报结审过滤属仅国税从动欢终制处"
    "联系资质时备"
)
#: Both are looked for in the simplified form, and so are the characters of Japanese rules; dashes
#: as the one sign that stands for them.
SIMPLIFIED = str.maketrans(f"{_TRADITIONAL}–—", f"{_SIMPLIFIED}{2 * DASH}")
_PLAIN = {
    **dict.fromkeys("\t\r\x0b\x0c\x85\u1680\u202f\u205f\u2800\u3000\u3164", " "),
    **dict.fromkeys(map(chr, range(0x2000, 0x200B)), " "),
    **dict.fromkeys("‛´ʼʻꞌ＇′ʹ❛❜", "'"),
    **{"\u2028": "\n", "\u2029": "\n", "İ": "i", "ı": "i", "‐": "-", "‑": "-"},
    **dict(zip("ßøØłŁđĐæÆœŒ", "soOlLdDaAoO", strict=True)),
    **dict(zip("ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢ", "abcdefghijklmnoprstuvwyz", strict=True)),
    **dict(zip(_TRADITIONAL, _SIMPLIFIED, strict=True)),
}
# Accented, enclosed, full-width and mathematical letters become the plain ones.
for _start, _stop in ((0xC0, 0x180), (0x1E00, 0x1F00), (0x2100, 0x2150), (0x24B6, 0x24EA),
                      (0xFF01, 0xFF5F), (0x1D400, 0x1D800)):  # fmt: skip
    for _character in map(chr, range(_start, _stop)):
        _parts = unicodedata.normalize("NFKD", _character)
        if all(map(unicodedata.combining, _parts[1:])):
            _PLAIN.setdefault(_character, _parts[0])
#: Marks of the printer, each as one sign of ASCII: most texts are then ASCII, and read at its
#: speed. Signs that nobody types stand for those which are told apart.
_PRINTED = {
    **dict.fromkeys("’‘", "'"),
    **dict.fromkeys("–—•·", DASH),
    **{"“": OPENING_MARK, "”": CLOSING_MARK, "…": ".", "\u00a0": " "},
}
_TABLE = str.maketrans(_PLAIN)
# What is folded: tabs and the like, and what is not ASCII; of East Asia's letters, which have no
# lower case, those in the table alone.
_LETTERED = "".join(mark for mark in _PLAIN if "\u3041" <= mark < "\ud7a4")
_ODD = re.compile(f"([\t\x0b-\r\x80-\u3040\ud7a4-\U0010ffff{_LETTERED}]+)")


def fold(text: str) -> str:
    """Return `text` in lower case, look-alikes and accents folded, length unchanged."""
    if not text.isascii():
        for mark, sign in _PRINTED.items():
            if mark in text:
                text = text.replace(mark, sign)
    if text.isascii() and "\t" not in text and "\r" not in text:
        return text.lower()
    pieces = _ODD.split(text)
    odd = [piece.translate(_TABLE) for piece in pieces[1::2]]
    if _GREEK_CYRILLIC.search(letters := "".join(odd)) and not _CYRILLIC_ONLY.search(letters):
        odd = [piece.translate(_LOOKALIKE) for piece in odd]
    pieces[1::2] = odd
    # Piece by piece, since most are ASCII, whose lower case costs next to nothing.
    return "".join([piece.lower() for piece in pieces])


def scripts(text: str) -> dict[str, int]:
    """Count the letters of `text` in other scripts than the Latin one, by language.

    Chinese characters beside kana are Japanese.
    """
    if text.isascii() or not (foreign := "".join(_FOREIGN.findall(text))):
        return {}
    if _CHINESE.fullmatch(foreign):
        return {"zh": len(foreign)}
    counts = {name: _total(letter, foreign) for name, letter in _SCRIPTS.items()}
    if 4 * counts["ja"] > counts["zh"]:
        counts["ja"] += counts.pop("zh")
    counts["other"] = len(foreign) - sum(counts.values())
    return {name: count for name, count in counts.items() if count > 0}


def _total(letters: re.Pattern[str], text: str) -> int:
    return sum(map(len, letters.findall(text)))


def words(text: str) -> set[str]:
    """Return the words of ASCII letters in a folded text, with apostrophes and hyphens."""
    # Characters outside ASCII part words; without them `translate` is fast.
    plain = text if text.isascii() else text.encode("ascii", "replace").decode()
    return set(plain.translate(_PUNCTUATION).split())


def extent(text: str) -> int:
    """Return the length of `text`, in which a character of East Asia counts as three letters."""
    return len(text) if text.isascii() else len(text) + 2 * _total(_WIDE, text)


@cache
def _word_pattern(word: str) -> re.Pattern[str]:
    # The literal comes first, so that it is found at the speed of a plain search.
    return re.compile(rf"{word}(?![\w'])(?<!\w{word})")


class View:
    """One stored text as the rules see it.

    ``answer`` is the stored text from ``start`` on, without reasoning and residue;
    ``unfinished`` says that all is reasoning; ``middle`` counts the characters between
    head and tail. What is read is ``folded``; ``masked`` is the same with quotations
    blanked (they are kept in ``quoted``), and ``text``, which the rules are tried on,
    is that without markup. Of ``text``, ``words`` are the :func:`words`, ``scripts`` the
    counts of :func:`scripts`, ``foreign`` the offsets between which these stand, and
    ``units`` the offsets where its sentences and contrasted clauses start, and the one where
    it ends; ``openings`` the first word of each.
    """

    def __init__(self, stored: str) -> None:
        self.start = max((match.end() for match in _CLOSE.finditer(stored)), default=0)
        self.unfinished = not self.start and _OPEN.match(stored) is not None
        if self.unfinished:
            self.start = len(stored)
        while match := _RESIDUE.match(stored, self.start):
            self.start = match.end()
        end = _END.search(stored, self.start)
        text = stored[self.start : end.start() if end else None]
        self.start += len(text) - len(text.lstrip())
        self.answer = window = text.strip()
        self.middle = max(0, len(window) - HEAD - TAIL)
        if self.middle:
            # The tail of a line in a blockquote stands in the blockquote.
            line = window.rfind("\n", 0, -TAIL) + 1
            self.joint = "\n> " if _BLOCK.match(window, line) else "\n"
            window = f"{window[:HEAD]}{self.joint}{window[-TAIL:]}"
        self.folded = fold(window)
        if "&" in self.folded:
            self.folded = _ENTITY.sub(_entity, self.folded)
        if "`" in self.folded:
            self.folded = _GRAVE.sub("'", self.folded)
        self.masked, self.quoted = _blank_mentions(self.folded)
        self.masked = _join_lines(_blank_wrappers(self.masked), window)
        plain = self.masked.isascii()
        self.text = self.masked.translate(_DELETED) if plain else _MARKUP.sub("", self.masked)
        self.scripts = scripts(self.text)
        self.words = words(self.text)
        self._places: dict[str, list[int]] = {}
        self.openings, self.foreign = self._openings()
        self.units = [*sorted(self.openings), len(self.text)]
        #: What stands in `foreign`, its white space made single spaces.
        self.there = " ".join(self.text[slice(*self.foreign)].split())

    def _openings(self) -> tuple[dict[int, str], tuple[int, int]]:
        """Return where units open, with their first words, and what other scripts span."""
        text = self.text
        letter = WORD.search(text)
        starts = [letter.start() if letter else 0]
        starts += [at for at in self.places(*_TURNS) if CONTRAST.match(text, at)]
        if not self.words.isdisjoint(("while", "although", "though")):
            starts += [match.end() for match in _CONCESSION.finditer(text)]
        first = last = 0
        if self.scripts:
            # No mark that ends a clause stands far from the letters of these scripts.
            runs = [match.span() for match in _FOREIGN.finditer(text)]
            first, last = runs[0][0], runs[-1][1]
            clauses = _CLAUSE.finditer(text, max(0, first - 2), last + 2)
            starts += [match.end() for match in clauses]
        ends = _PLAIN_END if text.isascii() else _UNIT_END
        openings = {match.start(1): match[1] for match in ends.finditer(text)}
        for at in starts:
            word = _FIRST.match(text, at)
            openings[at] = word[0] if word else ""
        openings.pop(len(text), None)
        if self.scripts:
            last = min((at for at in openings if at >= last), default=len(text))
        return openings, (first, last)

    def places(self, *words: str) -> list[int]:
        """Return where `words` stand in the view, in their order there."""
        found: list[int] = []
        for word in self.words.intersection(words):
            if word not in self._places:
                matches = _word_pattern(word).finditer(self.text)
                self._places[word] = [match.start() for match in matches]
            found += self._places[word]
        found.sort()
        return found

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return the stored offsets of the view's characters `start` to `end`."""
        last = end - 1
        if len(self.masked) > len(self.text):
            for match in _MARKUP.finditer(self.masked):
                place, after = match.span()
                if place > last:
                    break
                if place <= start:
                    start += after - place
                last += after - place
        return self.stored_offset(start), self.stored_offset(last) + 1

    def origin(self, position: int) -> int:
        """Return the offset in the stored text of a position of `text`."""
        return self.span(position, position + 1)[0]

    def stored_offset(self, position: int) -> int:
        """Return the offset in the stored text of a position of `folded`."""
        # What stands between head and tail is not in the stored text.
        skipped = self.middle - len(self.joint) if self.middle and position >= HEAD else 0
        return self.start + position + skipped


def _blank_wrappers(text: str) -> str:
    """Return `text` with its wrappers blanked, by a line break where they part sentences."""
    if "```" in text:
        text = _FENCE.sub(lambda fence: _blank(fence[0]), text)
    if "<" in text:
        text = _TAG.sub(lambda tag: _blank(tag[0], line=tag[1] not in _INLINE), text)
    if "|" in text:
        text = _ROW.sub(lambda row: row[0].replace("|", "\n"), text)
    if "1)" in text or "a)" in text:
        text = _ORDINAL.sub(lambda ordinal: _blank(ordinal[0], line=True), text)
    return text


def _join_lines(text: str, window: str) -> str:
    """Return `text` with the breaks within its sentences made spaces; `window` has its capitals.

    A line that was broken for its width goes on in lower case, or is long; what follows a
    heading, and an item of a list, begins anew.
    """
    if "\n" not in text:
        return text

    def joined(match: re.Match[str]) -> str:
        start, end = match.span()
        line = text[text.rfind("\n", 0, start) + 1 : start].lstrip()
        long = len(line) >= LONG and not line.startswith("#")
        return " " * (end - start) if window[end].islower() or long else match[0]

    return _BREAK.sub(joined, text)


def _entity(match: re.Match[str]) -> str:
    """Return the mark that an entity stands for, filled up with marks that are deleted later."""
    mark = next(mark for mark, names in _ENTITIES.items() if match[0][1:-1] in names.split())
    return mark.ljust(len(match[0]), "\u200b")


def _blank(text: str, *, line: bool = False) -> str:
    return ("\n" if line else " ").ljust(len(text))


def _blank_mentions(text: str) -> tuple[str, str]:
    mentions: list[str] = []

    def blank(match: re.Match[str]) -> str:
        mentions.append(match[0])
        return _blank(match[0])

    if ("{" in text or "[" in text) and _JSON.match(text):
        # The strings of a JSON answer are its wrapper, not quotations.
        return _KEY.sub(lambda key: _escaped(key[0]), text), ""
    blanked = text
    for mark, pattern in _QUOTED.items():
        if mark in blanked:
            blanked = pattern.sub(blank, blanked)
    # A quotation around the whole answer is the answer.
    if mentions and not (_LETTER.search(blanked) or WORD.search(_NUMBER.sub("", blanked))):
        return _AROUND.sub(lambda mark: _blank(mark[0]), text), ""
    return blanked, "\n".join(mentions)


def _escaped(key: str) -> str:
    """Return what a piece of JSON's own stands for, at its length: a letter, a space, a new line.

    Escapes of letters are filled up with a mark that is deleted later.
    """
    if not key.startswith("\\u"):
        return _blank(key, line=key[-1] in ":,n")
    characters = fold(json.loads(f'"{key}"'))
    return characters + "\u200b" * (len(key) - len(characters))
