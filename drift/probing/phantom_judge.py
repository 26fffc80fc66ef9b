"""Scripted judges of entailment: models whose every verdict is settled beforehand.

``config/phantom_judges.toml`` says how often each errs. What is true of the anchors stands in
their file, and of a phantom's answers in ``config/phantom.toml``: a plain answer answers its
question, one that narrows does not.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from drift.config import ModelSpec, Strict, load_checked, sha256_hex
from drift.errors import ConfigurationError
from drift.probing import phantom
from drift.probing.phantom import Share, uniform

_WORDS = {"en": ("No", "Yes"), "zh": ("否", "是")}


class Script(Strict):
    """One judge: the shares of pairs that it misjudges, and that it says no verdict of."""

    story: str
    errs: Share = Decimal(0)
    talks: Share = Decimal(0)
    obliges: bool = False


class Rules(Strict):
    """``config/phantom_judges.toml``."""

    seed: str
    named: dict[str, str]
    prose: dict[str, str]
    judges: dict[str, Script]


class Pair(NamedTuple):
    """What is true of a prompt that a judge is shown."""

    entailed: bool
    language: str


def scripted_judge(name: str, *, root: Path) -> tuple[ModelSpec, Rules]:
    """Return a scripted judge as a model; ConfigurationError if there is none of this name."""
    path = root / "config" / "phantom_judges.toml"
    rules = load_checked(path, Rules, kind="scripted judges")
    if name not in rules.judges:
        raise ConfigurationError(
            "no such scripted judge",
            where=str(path),
            got=name,
            expected=f"one of: {', '.join(rules.judges)}",
        )
    return ModelSpec(key=name, kind="phantom", model=name, lab="phantom", attempts=3), rules


def plain_answers(rules: phantom.Rules) -> frozenset[str]:
    """Return the texts of a phantom that answer what was asked, whole and cut off."""
    texts = {text for said in rules.answers.values() for text in said}
    return frozenset(texts | {phantom.cut(text) for text in texts})


@dataclass(frozen=True)
class EntailmentTruth:
    """The script applied to what a judge may be shown: the truth of each prompt."""

    rules: Rules
    pairs: Mapping[str, Pair]

    def reply(self, judge: str, prompt: str) -> str:
        """Return what a judge replies to a prompt."""
        script, (entailed, language) = self.rules.judges[judge], self.pairs[prompt]
        errs, talks, names, _ = uniform(self.rules.seed, judge, sha256_hex(prompt.encode()))
        if talks < script.talks:
            return self.rules.prose[language]
        said = script.obliges or (entailed ^ (errs < script.errs))
        word = _WORDS[language][said]
        return word if said or names < 0.5 else f"{word}\n{self.rules.named[language]}"

    @asynccontextmanager
    async def serve(self, model: str, number: int, draw: int) -> AsyncIterator[dict[str, Any]]:
        """Serve a judge, whatever the run and the draw; yield how to ask it, as a phantom's."""
        hashes = {prompt: sha256_hex(prompt.encode()) for prompt in self.pairs}
        keys: dict[tuple[str, ...], str] = {(prompt,): key for prompt, key in hashes.items()}
        said: dict[str, tuple[str, phantom.Fault | None]] = {
            key: (self.reply(model, prompt), None) for prompt, key in hashes.items()
        }
        async with phantom.chat(model, model, keys, said, name=f"judge-{number}") as how:
            yield how
