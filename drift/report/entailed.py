"""What judges of a record said of its answers: did each answer the question that was asked."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from drift.config import sha256_hex
from drift.judging import load_judge
from drift.judging.entailment import prompt, sent_sha256
from drift.records.entailment import (
    Check,
    Judging,
    Standing,
    counted,
    gates,
    judgings,
    language_of,
    standings,
)
from drift.records.people import Corrections, corrections
from drift.report.display import Shown, no_run, shown
from drift.report.judge import LANGUAGES
from drift.report.markup import Markup, html, joined
from drift.report.tables import Record
from drift.stats.gate import Gate

#: How a judge stands to a model that it judges, where it is no other model.
ITSELF, SAME_WEIGHTS, SAME_NAME = "itself", "same weights", "same requested model"
#: What a No on a complete answer is counted as: the judge names another question, or names none.
OTHER, OPEN = "other", "open"
#: Characters shown of a question that a judge names.
NAMED = 300
UNJUDGED = (
    "<p><b>No judge was asked</b> whether the answers of this record answer the question that was "
    "asked, so nothing is known of that; <code>drift entail --panel {} --judge MODEL</code> asks "
    "one, about the stored bytes. The sections below say how, and hold no verdict yet.</p>"
)


@dataclass(frozen=True)
class Judged:
    """The judging by one judge that counts, its gates by language, and what readers made of it."""

    judging: Judging
    gates: Mapping[str, Gate]
    corrections: Corrections

    @property
    def model(self) -> str:
        return str(self.judging.asked["model"])

    @property
    def run(self) -> str:
        return str(self.judging.body["run"])

    @property
    def arms(self) -> str:
        return str(self.judging.asked["arms"])

    def kin(self, record: Record, model: str) -> str:
        """Return how this judge is the model of the record that it judges; empty if it is not."""
        mine = self.judging.asked["instrument"]
        other = record.instruments.get(model, {}).get("document", {})
        weights = mine.get("weights_sha256")
        same = weights == other.get("weights_sha256") if weights else False
        if not same and mine.get("model") != other.get("model"):
            return ""
        # A judge of another panel can have the key of a model here.
        return ITSELF if model == self.model else SAME_WEIGHTS if same else SAME_NAME


class Entailed:
    """The judgings of a record up to the run that is shown."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.bodies = judgings(line for line, _ in record.sealed)

    @cached_property
    def check(self) -> Check:
        """The wording and the anchors in ``config/``."""
        return Check.load(self.record.root)

    @cached_property
    def standings(self) -> list[Standing]:
        """Every judging of the record, and whether it may count."""
        judge = load_judge(self.record.root / "config" / "judge")
        lines = [line for line, _ in self.record.sealed]
        return standings(self.record.store, lines, self.check, judge)

    @cached_property
    def judges(self) -> list[Judged]:
        """The judging that counts by each judge; the judge that was asked first comes first."""
        return [self._judged(it.judging) for it in counted(self.standings)]

    def _judged(self, judging: Judging) -> Judged:
        lines = [line for line, _ in self.record.sealed]
        read = corrections(self.record.store, lines, of=judging.body["judge"])
        return Judged(judging, gates(judging, self.check), read)

    @property
    def passed(self) -> list[tuple[Judged, str]]:
        """Every judge with each language in which it passed its gate."""
        return [
            (one, language)
            for one in self.judges
            for language, gate in one.gates.items()
            if gate.passed
        ]

    def kind(self, one: Judged, row: Mapping[str, Any]) -> str:
        """Return what a verdict is counted as: yes, other, open or missing; cut yes, no or missing.

        A judge is not told that a text is cut, so that verdicts on such texts are kept apart.
        """
        if self.stored(one, row).get("status") != "ok":
            return f"cut {row['label']}"
        if row["label"] == "no":
            return OTHER if row["named"] else OPEN
        return str(row["label"])

    def counts(self, one: Judged) -> dict[tuple[str, str], Counter[str]]:
        """Return how many verdicts of each kind a judge gave, by model and language."""
        found: dict[tuple[str, str], Counter[str]] = {}
        for row in one.judging.rows:
            place = row["model"], language_of(row["key"])
            found.setdefault(place, Counter())[self.kind(one, row)] += 1
        return dict(sorted(found.items()))

    def stored(self, one: Judged, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the response that a row of a judging is about."""
        return self.record.stored(one.run).answers.get((row["model"], row["key"]), {})

    def question(self, one: Judged, row: Mapping[str, Any]) -> str:
        """Return the question that was asked; empty without a copy of the bank."""
        return self.record.stored(one.run).prompts.get(row["key"], "")

    def text_holds(self, one: Judged, row: Mapping[str, Any]) -> bool:
        """Tell whether a verdict is about the bytes that are stored."""
        text = str(self.stored(one, row).get("text", ""))
        return bool(row["text_sha256"] == sha256_hex(text.encode()))

    def messages_hold(self, one: Judged, row: Mapping[str, Any]) -> bool | None:
        """Tell whether the judge was sent question and stored text and no more; None if unknown.

        Other words than those in ``config/`` cannot be made again.
        """
        question = self.question(one, row)
        if not question or one.judging.asked["wording"] != self.check.rules.wording:
            return None
        text = str(self.stored(one, row).get("text", ""))
        sent = prompt(
            self.check.rules,
            question=question,
            response=text,
            language=language_of(row["key"]),
        )
        return bool(row["messages_sha256"] == sent_sha256(sent))


def named(row: Mapping[str, Any]) -> str:
    """Return the question that a judge says was answered, cut where it is no question any more."""
    said = str(row["named"] or "it named no question")
    return said if len(said) <= NAMED else f"{said[:NAMED]}…"


def asked(entailed: Entailed) -> Markup:
    """Say how many judges were asked and how many of them may count, and what several mean."""
    if not entailed.bodies:
        return Markup("No judge was asked.")
    why = Counter(it.reason for it in entailed.standings if not it.counts)
    aside = joined(
        html(" Stored, and not counted: {} of which {}.", n, it) for it, n in why.items()
    )
    if not entailed.judges:
        return html("No judging of this record counts.{}", aside)
    n = len(entailed.judges)
    by = Counter(language for _, language in entailed.passed)
    each = ", ".join(f"{by[it]} in {LANGUAGES[it]}" for it in entailed.judges[0].gates)
    more = len(entailed.bodies) - n - why.total()
    earlier = f" (the record also holds {more} judging{'s' * (more > 1)} of earlier runs)"
    lead = f"{n} judge{'s were' if n > 1 else ' was'} asked{earlier * (more > 0)}; {{}}.{{}}"
    if not entailed.passed:
        return html(lead, Markup("<b>none passed its gate</b>, so no verdict is counted"), aside)
    several = len(entailed.bodies) > 1
    tries = " Each further try raises the chance that a bad judge passes." if several else ""
    return html("{}{}", html(lead, f"the gate was passed by {each}", aside), tries)


def of_verdicts(function: Callable[..., Markup]) -> Callable[..., Shown]:
    """Make a function of verdicts a piece of a page: without a run it says so, without a judging
    that counts it shows nothing, since the head of the page says that."""

    @functools.wraps(function)
    def text(entailed: Entailed, *args: Any, **options: Any) -> Markup:
        if not entailed.record.reading:
            return no_run(entailed.record)
        return function(entailed, *args, **options) if entailed.judges else Markup("")

    return shown(text)
