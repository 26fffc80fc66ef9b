"""What people did after a refusal: traces that they consented to, read without anything personal.

A line is a JSON object: ``shape``, ``next_action``, ``model``, ``when``, ``consent`` and, where
known, ``length``; ``synthetic`` marks a made-up one. Only these are kept, each of a closed form.
Another field is dropped and counted, by its name where its words are all known here; one whose
name tells of a person or a device refuses the file, at any depth. Nothing of a value, and no name
that could be one, ever leaves this module in an error. What it cannot know is that a plain model
name with a digit (``maria4``) is a person's: who collects traces must fill that field themselves.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np

from drift.config import sha256_hex
from drift.errors import ConfigurationError
from drift.judging.shapes import SHAPES
from drift.stats.retries import Retries, retries_by_shape

#: What a refusal can be, and a reply that was none.
SHAPES_OR_NONE: Final = (*SHAPES, "none")
#: What people do next: the same again in the same words, or reworded; what was offered is taken;
#: another thing is asked; nothing more.
ACTIONS: Final = ("retry", "rephrase", "accept", "other", "stop")
#: Of these, those that ask the same again.
RETRIED: Final = ("retry", "rephrase")
#: The shape that the others are compared with.
BASE: Final = "flat-no"
MOST_BYTES: Final = 65_536  # of a line
MOST_OF_MODEL: Final = 60
MOST_LENGTH: Final = 100_000  # fewer digits than a telephone number has
UNSHOWN: Final = "(names that are not shown)"
FIRST_DAY: Final = date(2020, 1, 1)  # before it nobody asked such a model

#: Words of fields that tell of nobody, and are shown where they are dropped.
HARMLESS: Final = (
    "prompt", "question", "request", "response", "reply", "answer", "refusal", "text", "comment",
    "note", "notes", "rating", "score", "topic", "category", "language", "lang", "wording",
    "version", "source", "title", "region", "latency", "ms", "seconds", "temperature", "turn",
    "turns", "rule", "span", "row", "record", "run", "date", "time", "trace", "reason", "count",
)  # fmt: skip

#: Parts of a field's name that tell of a person, a device or a place, wherever they stand in it.
PERSONAL: Final = (
    "user", "email", "mail", "name", "session", "cookie", "device", "account", "phone", "mobile",
    "address", "uuid", "guid", "login", "client", "customer", "person", "patient", "claimant",
    "passport", "birth", "contact", "handle", "profile", "location", "postcode", "zipcode",
    "fingerprint", "token", "secret", "password", "author", "owner", "usr", "imei", "msisdn",
    "telephone", "telno", "fax", "employ", "staff", "worker", "payroll", "badge", "ninumber",
    "insurance", "cpf", "imsi", "nino", "street", "postal", "gender", "ethnic", "religio",
    "national", "citizen", "salary", "iban", "student", "pupil", "parent", "guardian", "spouse",
    "tenant", "caller", "sender", "recipient", "signature", "avatar", "nick", "licenceplate",
    "licenseplate",
    "性别", "出生", "生日", "年龄", "员工", "工号", "街道", "传真", "证件", "护照", "微信",
    "用户", "姓名", "名字", "邮箱", "邮件", "电话", "手机", "地址", "账号", "帐号", "账户", "身份",
    "会话", "设备",
)  # fmt: skip
#: Those that do so as a word of their own, or at the end of a name written in one.
PERSONAL_WORDS: Final = (
    "id", "ids", "ip", "nhs", "nino", "ssn", "dob", "lat", "lon", "geo", "mac",
    "ni", "sex", "age", "city", "town", "zip", "host", "url", "card", "vat", "tin", "rg",
)  # fmt: skip
_STARTS = ("tel", "dob", "ssn")
_ENDS = ("id", "ids", "ip", "tel", "dob", "ssn")
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[_-][A-Za-z0-9]+){0,4}")
_MODEL = re.compile(r"[a-z0-9]+(?:[._:/-][a-z0-9]+)*")
_DAY = re.compile(
    r"(\d{4}-\d{2}-\d{2})(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?(?:Z|[+-]\d{2}:?\d{2})?)?"
)
_DATE = re.compile(r"(?<!\d)20\d\d(-?)(?:0[1-9]|1[0-2])\1(?:[0-2]\d|3[01])(?!\d)")
#: Values that are no name of a model: a host, an address, a number to call, a key.
_TELLING = re.compile(
    r"@|://|\bwww\.|\.(?:com|org|net|edu|gov|info|io|ai|co|me|uk|de|fr|eu|cn|jp|us)(?:[/:]|$)"
    r"|(?<!\d)\d{1,3}(?:\.\d{1,3}){3}(?!\d)|(?:[0-9a-f]{0,4}:){3,}"
    r"|[0-9a-f]{8}-[0-9a-f]{4}-|(?<![a-z0-9])(?=[a-f]*\d)[0-9a-f]{16,}|[a-z0-9]{32,}"
    r"|\d(?:[ ._:/+-]{0,2}\d){6,}",
    re.I,
)


class Trace(NamedTuple):
    """One refusal, or one reply, and what was done next; ``when`` is a day."""

    when: str
    model: str
    shape: str
    next_action: str
    length: int | None
    synthetic: bool

    @property
    def document(self) -> dict[str, Any]:
        """The trace as it is kept, which can be read again."""
        found = {**self._asdict(), "consent": True}
        return {k: v for k, v in found.items() if v is not None and (k != "synthetic" or v)}


_KNOWN = frozenset(
    word
    for name in (*HARMLESS, *PERSONAL, *PERSONAL_WORDS, *Trace._fields, "consent")
    for word in name.split("_")
)


class Traces(NamedTuple):
    """The traces of a file, sorted so that its order says nothing, and what was dropped of it."""

    rows: tuple[Trace, ...]
    dropped: Mapping[str, int]
    sha256: str  # of the kept form

    @property
    def synthetic(self) -> int:
        """How many are made up."""
        return sum(row.synthetic for row in self.rows)


def read_traces(path: Path, *, today: date | None = None) -> Traces:
    """Read traces, one JSON object a line, in UTF-8 with or without a byte-order mark.

    With `today`, a day after tomorrow refuses the file: somewhere it is tomorrow already. The days
    of synthetic traces are made up, and not compared with it.

    Raises
    ------
    ConfigurationError
        The file cannot be read, or a line is not a consented trace or holds an identifier: the
        line and the field are named, never a value. Nothing of the file is then kept.
    """
    dropped: Counter[str] = Counter()
    rows = in_order(_trace(line, where, dropped, today) for where, line in _lines(path))
    if not rows:
        raise ConfigurationError("the file holds no trace", where=str(path))
    return Traces(rows, dict(sorted(dropped.items())), sha256_hex(kept_bytes(rows)))


def in_order(rows: Iterable[Trace]) -> tuple[Trace, ...]:
    """Return traces sorted by what they hold."""
    return tuple(sorted(rows, key=lambda row: (*row[:4], row.length or 0, row.synthetic)))


def kept_bytes(rows: Iterable[Trace]) -> bytes:
    """Return traces as they are kept: JSON lines, sorted."""
    lines = (json.dumps(row.document, sort_keys=True) + "\n" for row in in_order(rows))
    return "".join(lines).encode()


def after_shapes(rows: Sequence[Trace]) -> dict[str, Retries]:
    """Return how often the same was asked again after each shape, and beside a flat no."""
    _, models = np.unique([row.model for row in rows], return_inverse=True)
    found = retries_by_shape(
        [row.next_action in RETRIED for row in rows],
        [SHAPES_OR_NONE.index(row.shape) for row in rows],
        [np.nan if row.length is None else row.length for row in rows],
        models,
        k=len(SHAPES_OR_NONE),
        base=SHAPES_OR_NONE.index(BASE),
    )
    return dict(zip(SHAPES_OR_NONE, found, strict=True))


def _refuse(what: str, where: str, expected: str | None = None, hint: str = "") -> NoReturn:
    raise ConfigurationError(
        what,
        where=where,
        expected=expected,
        next_step=hint or "correct the line and import the file again; nothing of it was kept",
    ) from None


def _lines(path: Path) -> Iterator[tuple[str, bytes]]:
    try:
        with path.open("rb") as stream:
            number = 0
            while line := stream.readline(MOST_BYTES + 1):
                number += 1
                where = f"{path}:{number}"
                if len(line) > MOST_BYTES:
                    _refuse("the line is too long for a trace", where, f"{MOST_BYTES:,} bytes")
                line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
                if line.strip():
                    yield where, line
    except OSError as error:
        raise ConfigurationError(
            "the traces cannot be read", where=str(path), got=error.strerror
        ) from None


def _trace(line: bytes, where: str, dropped: Counter[str], today: date | None) -> Trace:
    row = _object(line, where)
    for place, name in _names(row):
        if personal(name):
            shown = f"field {shown_name(name, place)!r}"
            _refuse(
                f"{shown} may tell who it was: rows with identifiers are not taken",
                where,
                hint="take the field out of every row, then import the file again",
            )
    unknown = [name for name in row if name not in (*Trace._fields, "consent")]
    if row.get("consent") is not True:
        step = "take the line out, and import the file again; nothing of it was kept"
        _refuse("field 'consent' is not true: only consented traces are taken", where, hint=step)
    length, synthetic = row.get("length"), row.get("synthetic", False)
    if length is not None and (type(length) is not int or not 1 <= length <= MOST_LENGTH):
        _refuse("field 'length' is not of its form", where, f"characters, 1 to {MOST_LENGTH:,}")
    if type(synthetic) is not bool:
        _refuse("field 'synthetic' is not of its form", where, "true, or no such field")
    when = _day(row.get("when"), where, None if synthetic else today)
    model = _model(row.get("model"), where)
    shape = _word("shape", row.get("shape"), SHAPES_OR_NONE, where)
    action = _word("next_action", row.get("next_action"), ACTIONS, where)
    dropped.update(shown_name(name) for name in unknown)
    return Trace(when, model, shape, action, length, synthetic)


def _object(line: bytes, where: str) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        counts = Counter(name for name, _ in pairs)
        for place, (name, _) in enumerate(pairs, start=1):
            if counts[name] > 1:
                _refuse(f"field {shown_name(name, place)!r} comes twice", where)
        return dict(pairs)

    def refuse(constant: str) -> None:
        raise ValueError

    try:
        found = json.loads(line.decode(), object_pairs_hook=once, parse_constant=refuse)
    except (ValueError, RecursionError):
        # The parser's own words would quote the line.
        _refuse("the line is no JSON object in UTF-8", where)
    if not isinstance(found, dict):
        _refuse("the line is no JSON object in UTF-8", where)
    return found


def _names(row: dict[str, Any]) -> Iterator[tuple[int, str]]:
    """Yield every field name, at any depth, with the place of its field in the row."""
    for place, (name, value) in enumerate(row.items(), start=1):
        yield place, name
        waiting = [value]
        while waiting:
            match waiting.pop():
                case dict() as inner:
                    yield from ((place, key) for key in inner)
                    waiting += inner.values()
                case list() as items:
                    waiting += items


def personal(name: str) -> bool:
    """Tell whether a field's name, however it is written, tells of a person or a device.

    Letters of two alphabets in one name, which look alike, count as such too.
    """
    plain, words = unicodedata.normalize("NFKC", name), _words(name)
    whole = "".join(words)
    mixed = any("a" <= mark <= "z" for mark in whole) and any(
        unicodedata.name(mark, "").startswith(("CYRILLIC", "GREEK", "ARMENIAN")) for mark in whole
    )
    said = any(part in whole for part in PERSONAL) or any(it in PERSONAL_WORDS for it in words)
    ends = any(it.startswith(_STARTS) or it.endswith(_ENDS) for it in (*words, whole))
    return mixed or said or ends or bool(_TELLING.search(plain))


def _words(name: str) -> list[str]:
    """Return the words of a field's name, in small letters, however it joins them."""
    plain = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", unicodedata.normalize("NFKC", name))
    return re.findall(r"[^\W\d_]+", plain.casefold())


def shown_name(name: str, place: int | None = None) -> str:
    """Return a field's name if all its words are listed here, else its place.

    A name too can be a value.
    """
    if len(name) <= 32 and _PLAIN.fullmatch(name) and _KNOWN.issuperset(_words(name)):
        return name
    return UNSHOWN if place is None else f"number {place}"


def _word(name: str, value: Any, words: tuple[str, ...], where: str) -> str:
    if not isinstance(value, str) or value not in words:
        _refuse(f"field {name!r} is none of its words", where, ", ".join(words))
    return value


def _model(value: Any, where: str) -> str:
    """Return a plain name of a model in small letters, which has a digit, or its maker before /.

    Dates are part of many, other long numbers of none. Made-up models are called synthetic-….
    """
    name = value.lower() if isinstance(value, str) else ""
    if len(name) <= MOST_OF_MODEL and _MODEL.fullmatch(name):
        told = any(part in name for part in ("user", "mail", "account", "session"))
        plain = name.startswith("synthetic-") or re.search("[0-9/]", name)
        if plain and not told and not _TELLING.search(_DATE.sub("", name)):
            return name
    expected = f"letters, digits and . _ - / : between them, at most {MOST_OF_MODEL}, with a digit"
    _refuse("field 'model' is no plain name of a model", where, f"{expected} or as maker/model")


def _day(value: Any, where: str, today: date | None) -> str:
    """Return the day, in UTC where the time has a zone."""
    day = _read_day(value, where)
    if day < FIRST_DAY or (today and day > today + timedelta(days=1)):
        _refuse("field 'when' is too early, or not yet", where, f"a day from {FIRST_DAY} to today")
    return day.isoformat()


def _read_day(value: Any, where: str) -> date:
    try:
        if not isinstance(value, str) or not (found := _DAY.fullmatch(value)):
            raise ValueError
        if value == found[1]:
            return date.fromisoformat(value)
        moment = datetime.fromisoformat(value)
        return (moment.astimezone(UTC) if moment.tzinfo else moment).date()
    except (ValueError, OverflowError):
        _refuse("field 'when' is no time", where, "a day or an ISO 8601 time; the day is kept")
