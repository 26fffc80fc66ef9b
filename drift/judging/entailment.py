"""Whether a reader comes away knowing the answer: what a model is asked, and how it is read.

The judge is a model. It is shown a question and a stored response as quoted material between
marked lines, and asked for one word. ``config/entailment.toml`` holds the wording and
``config/entailment_anchors.json`` the pairs that a judge is measured on; the functions here are
pure, and say of any text what is sent and of any reply what it means.

What is shown cannot give orders that look like ours: a line of ours never begins with ``> ``, the
marked lines hold a nonce that stands in neither text, and no sign is left that a chat template
reads as a role. A model may follow what it reads all the same; the anchors do not show how often.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self, get_args

from pydantic import Field, model_validator

from drift.bank import load_document
from drift.config import ModelSpec, Strict, canonical_json, load_checked, sha256_hex
from drift.errors import ConfigurationError
from drift.probing.client import messages_sha256

#: Raised when the code below shows otherwise, or reads a reply otherwise that a record holds.
CODE_VERSION = "1"

Word = Literal["yes", "no", "missing"]
VERDICTS: tuple[Word, ...] = get_args(Word)
Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = get_args(Language)
Share = Annotated[Decimal, Field(ge=0, le=1)]
Text = Annotated[str, Field(min_length=1)]

#: SHA-256 of the prompts of each published version.
PUBLISHED = {"1": "16db7d7e6b0190fb45e5d3f3fa530ae6b3bf24a2c4f7f24eae7663d5261977a2"}


class GateRules(Strict):
    """Least kappa on a language's anchors, and largest share of them without a verdict."""

    kappa: Share
    missing: Share


class EntailmentRules(Strict):
    """``config/entailment.toml``."""

    version: Text
    answer_tokens: int = Field(ge=1, le=1000)
    context: int = Field(ge=64)
    longest: int = Field(ge=1000)
    gate: GateRules
    prompts: dict[Language, Text]

    @model_validator(mode="after")
    def _complete(self) -> Self:
        for language in LANGUAGES:
            named = re.findall(r"{(\w*)}", self.prompts.get(language, ""))
            if Counter(named) != {"nonce": 3, "question": 1, "response": 1}:
                raise ValueError(f"prompts.{language} needs 3 times {{nonce}}, and each text once")
        return self

    @property
    def wording(self) -> dict[str, str]:
        """The version of the prompts, and their hash."""
        return {"version": self.version, "sha256": sha256_hex(canonical_json(self.prompts))}


def load_entailment(path: Path) -> EntailmentRules:
    """Read ``config/entailment.toml``; ConfigurationError if a published wording was changed."""
    rules = load_checked(path, EntailmentRules, kind="entailment check")
    found = rules.wording["sha256"]
    if (published := PUBLISHED.get(rules.version, found)) != found:
        raise ConfigurationError(
            f"wording {rules.version} is published, and this is another one",
            where=str(path),
            got=f"sha256 {found}",
            expected=f"sha256 {published}",
            next_step="restore the published prompts, or give the changed ones a new version",
        )
    return rules


class Anchor(Strict):
    """A pair of our own with the author's word: does this response answer this question?"""

    id: Annotated[str, Field(pattern=r"^(en|zh)-[0-9]{2,3}$")]
    language: Language
    kind: Text
    entailed: bool
    question: Text
    response: Text


class _Document(Strict):
    name: str
    version: Text
    licence: str
    anchors: tuple[Anchor, ...]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name in ("id", "question", "response"):
            written = Counter(getattr(anchor, name) for anchor in self.anchors)
            if twice := [value for value, number in written.items() if number > 1]:
                raise ValueError(f"{name} used twice: {twice[0][:60]!r}")
        for language in LANGUAGES:
            halves = Counter(it.entailed for it in self.anchors if it.language == language)
            if not halves[True] or halves[True] != halves[False]:
                raise ValueError(f"half of the {language} anchors must be entailed: {dict(halves)}")
        return self


@dataclass(frozen=True)
class Anchors:
    """The labelled pairs in their order; ``sha256`` is that of the file's bytes."""

    version: str
    sha256: str
    anchors: tuple[Anchor, ...]

    @property
    def identity(self) -> dict[str, str]:
        """What a judging names them by."""
        return {"version": self.version, "sha256": self.sha256}


def load_anchors(path: Path) -> Anchors:
    """Read ``config/entailment_anchors.json``; ConfigurationError says what is wrong."""

    def read(data: bytes) -> Anchors:
        document = _Document.model_validate_json(data)
        return Anchors(document.version, sha256_hex(data), document.anchors)

    return load_document(path, read, kind="entailment anchors", correct="run the command again")


# What is shown
_ANGLES = str.maketrans("<>", "‹›")
_ROLES = re.compile(r"\[(/?[A-Za-z]?[A-Z_]{2,30}|\|[^\[\]|\n]{1,30}\|)\]")
#: Digits of the nonce, of the 64 there are; more where the text holds them.
NONCE = 12


def shown(text: str) -> str:
    """Return a text as a judge sees it: quoted by lines, without signs of a chat template.

    ``<`` and ``>`` become ``‹`` and ``›``, and the brackets of ``[INST]`` and its like
    parentheses, whatever stands in them.
    """
    plain = _ROLES.sub(r"(\1)", text.translate(_ANGLES))
    return "\n".join(f"> {line}" for line in plain.splitlines() or [""])


def nonce(question: str, response: str) -> str:
    """Return hexadecimal digits that stand in neither text, and are the same at every call."""
    digest = sha256_hex(canonical_json([question, response]))
    inside = f"{question}\n{response}".lower()
    # A text that held all 64 would be a fixed point of SHA-256.
    return next((digest[:n] for n in range(NONCE, 64) if digest[:n] not in inside), digest)


def prompt(rules: EntailmentRules, *, question: str, response: str, language: Language) -> str:
    """Return what a judge is asked about a response, in the language of the question."""
    return rules.prompts[language].format(
        nonce=nonce(question, response), question=shown(question), response=shown(response)
    )


def sent_sha256(text: str) -> str:
    """Return the hash of the messages that carry a prompt: a judge gets no system prompt."""
    return messages_sha256([{"role": "user", "content": text}])


# What is replied
_WORDS: dict[str, Word] = {"yes": "yes", "no": "no", "是": "yes", "否": "no"}
_BREAK = re.compile(r"[\r\n]+")
#: Words that after No would take it back, or say it twice.
_AGAIN = frozenset((*_WORDS, "是的", "不是", "对", "不", "不对", "yeah", "yep", "nope"))
#: Characters kept of a question that a judge names; the reply is kept whole.
MOST_NAMED = 300


class Verdict(NamedTuple):
    """A judge's word, and the question that it says was answered instead."""

    label: Word
    named: str | None = None


MISSING = Verdict("missing")


def read_verdict(reply: str, status: str) -> Verdict:
    """Return what a reply says; ``missing`` for all that is not of one of two forms.

    They are Yes, and No with or without one more line that names a question; Chinese 是 and 否
    alike. Case, one full stop after the word, blank lines, and spaces and tabs around lines do not
    matter. A line after No that begins with such a word, or in which no letter or digit stands,
    names no question. A reply that was cut off counts only if the word's line had ended.
    """
    lines = [line.strip(" \t") for line in _BREAK.split(reply.strip(" \t\r\n"))]
    first, *rest = [line for line in lines if line] or [""]
    word = _WORDS.get((first[:-1] if first[-1:] in (".", "。") else first).lower())
    if word is None or status not in ("ok", "truncated") or (status == "truncated" and not rest):
        return MISSING
    if not rest:
        return Verdict(word)
    if word == "yes" or len(rest) > 1 or not _names(rest[0]):
        return MISSING
    return Verdict(word, rest[0][:MOST_NAMED])


def _names(line: str) -> bool:
    """Tell whether a line can name a question: it has words, and they do not begin a verdict.

    Quotes, Markdown, and what has no width are no part of a word.
    """
    seen = (mark for mark in line if unicodedata.category(mark) != "Cf")
    words = re.findall(r"[^\W_]+", unicodedata.normalize("NFKC", "".join(seen)).lower())
    return bool(words) and _AGAIN.isdisjoint((words[0], "".join(words)))


# Who judges
def as_asked(model: ModelSpec) -> ModelSpec:
    """Return a model as a judge: at temperature 0, under a fixed seed, told nothing before."""
    parameters = dict(model.parameters) | {"temperature": 0}
    if "max_completion_tokens" in parameters:
        parameters["max_completion_tokens"] = model.max_tokens
    fixed = {"seed_policy": "fixed", "seed": 0, "system_prompt": None, "parameters": parameters}
    return model.model_copy(update=fixed)


def asked_document(model: ModelSpec, rules: EntailmentRules, anchors: Anchors) -> dict[str, Any]:
    """Return all that we choose about a judging; its hash is the judge's ``rules``."""
    return {
        "model": model.key,
        "instrument": model.instrument(),
        "server": model.server.model_dump(mode="json"),
        "wording": rules.wording,
        "longest": rules.longest,
        "anchors": anchors.identity,
        "code": CODE_VERSION,
    }


def judge_id(model: str) -> str:
    """Return the id under which a model's verdicts are sealed."""
    return f"entailment-{model}"


def rules_hash(asked: Mapping[str, Any]) -> str:
    """Return the ``rules`` of a judge that is asked by this document."""
    return sha256_hex(canonical_json(dict(asked)))


def fingerprint(verdicts: Iterable[tuple[str, str]]) -> str:
    """Return the SHA-256 of a judging's verdicts on the anchors, in their order."""
    return sha256_hex(canonical_json([list(pair) for pair in verdicts]))
