"""The plan that a laboratory record opens, what was registered of it, and what came.

``plan.toml`` says what was done to which server, and the registration, sealed before run 1, what
was expected of that in words. ``config/lab.toml`` states these words as data. What came is read
from the record.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from pydantic import model_validator

from drift.config import ServerSpec, Strict, load_checked, load_toml, sha256_hex
from drift.records.watch import LEVELS, ONE_LEVEL
from drift.report.display import Shown, piece
from drift.report.markup import Markup, html
from drift.report.tables import PROCESSES, Record, alarm_rows

NO_PLAN = Markup("<p>This record declares no plan: nothing was done to its servers by one.</p>")
UNOPENED = (
    "<p>This record declares a plan (SHA-256 {:.16}…) that is not opened: what was done to which "
    "server, and from which run on, is not known here.{}</p>"
)
OVERDUE = (
    " All runs that the registration names are made, the last of them run {}, and the plan is "
    "still not opened."
)
OTHER_PLAN = (
    '<p class="drift-banner"><span class="drift-warning">plan.toml is not the plan that was '
    "registered</span> (SHA-256 {:.16}… here, {:.16}… there): nothing is read from it.</p>"
)
#: What is read of each model: the processes, and home at the thresholds of the panel.
READ = (PROCESSES[0], "panel", *PROCESSES[1:])
AS_REGISTERED, LEFT_OPEN, UNSAID = "as registered", "left open", "nothing was said of it"
LATE, EARLY = "later than registered", "earlier than registered"
MISSED, UNEXPECTED, BEFORE = "did not come", "came where none was expected", "before the change"
PENDING = "not due yet"
#: Why it says less than it might that nothing was entered where nothing was expected.
SO_FAR, CALIBRATING = "as registered so far", "could not enter: calibrating"
VACUOUS = "could not enter: no count above 0"
FAILED = (LATE, EARLY, MISSED, UNEXPECTED, BEFORE)


def _stand(words: str, *figures: float) -> None:
    """Raise ValueError for a figure that is not in the words it is said to be read from."""
    said = re.findall(r"\d+(?:\.\d+)?", words)
    if missing := [figure for it in figures if (figure := f"{it:g}") not in said]:
        raise ValueError(f"{' and '.join(missing)} not in the words {words!r}")


class Expectation(Strict):
    """What `words` of the registered analysis expect; `after` counts runs after the changed one."""

    models: tuple[str, ...]
    processes: tuple[str, ...]
    states: tuple[str, ...] = LEVELS
    expect: Literal["due", "may", "none"]
    after: tuple[int, int] = (0, 0)
    words: str

    @model_validator(mode="after")
    def _in_words(self) -> Expectation:
        if self.expect == "due":
            _stand(self.words, *self.after)
        return self

    @property
    def levels(self) -> str:
        """The states in words; of processes that have but one level, that level alone."""
        single = [name for name in self.processes if name in ONE_LEVEL]
        said = " and ".join(self.states)
        if single == [*self.processes]:
            return LEVELS[-1]
        return said + (f" ({' and '.join(single)}: {LEVELS[-1]})" if single else "")

    def said(self, changed: int | None) -> str:
        """Return in words what is expected of a subject changed in run `changed`."""
        if self.expect == "due" and changed:
            return "due in runs {} to {}".format(*(changed + n for n in self.after))
        return {"due": "due", "may": LEFT_OPEN, "none": "none expected"}[self.expect]


class Churn(Strict):
    """The churn, in shares of the arms a run, that `words` expect of a model and its change."""

    model: str
    before: float
    after: float
    words: str

    @model_validator(mode="after")
    def _in_words(self) -> Churn:
        _stand(self.words, 100 * self.before, 100 * self.after)
        return self


class Expectations(Strict):
    """``config/lab.toml``: the expectations of one plan, and what is sealed nowhere."""

    plan_sha256: str
    pilot: str
    written: str
    server: ServerSpec
    churn: tuple[Churn, ...] = ()
    expected: tuple[Expectation, ...]


@dataclass(frozen=True)
class Outcome:
    """One state of one process: what was expected of it, and the run that entered it."""

    model: str
    process: str
    state: str
    expected: Expectation | None
    entered: int | None
    verdict: str

    @property
    def said(self) -> str:
        """The verdict, or only that it came where nothing was to come or not to come."""
        if self.verdict in (UNSAID, LEFT_OPEN):
            return "came" if self.entered else ""
        return self.verdict


class Lab:
    """A record with the plan that it opens, up to the run that is shown.

    ``planned`` holds the number of each subject's first changed run, ``changed`` of those whose
    change is reached.
    """

    def __init__(self, record: Record) -> None:
        self.record = record
        self.plan = load_toml(record.store.plan, kind="plan")
        path = record.root / "config" / "lab.toml"
        self.stated = load_checked(path, Expectations, kind="laboratory")
        self.numbers = {run: number for number, run in enumerate(record.runs, start=1)}
        self.planned: dict[str, int] = {}
        for it in sorted(self.plan["interventions"], key=lambda it: int(it["run"])):
            self.planned.setdefault(it["model"], it["run"])
        reached = [key for key in record.models if self.planned.get(key, 0) <= len(record.runs)]
        self.changed = {key: self.planned[key] for key in reached if key in self.planned}

    @property
    def about_this(self) -> bool:
        """Whether the expectations stated as data are those of this plan."""
        return bool(self.stated.plan_sha256 == self.record.panel["plan_sha256"])

    @property
    def ended(self) -> bool:
        """Whether the last run of the plan is among those that are read."""
        return len(self.numbers) >= int(self.plan["runs"])

    def registered(self, expected: Expectation | Churn) -> bool:
        """Tell whether the words of an expectation stand in the registered analysis."""
        return " ".join(expected.words.split()) in " ".join(self.record.panel["analysis"].split())

    @cached_property
    def expected(self) -> list[Expectation]:
        """The expectations of this plan whose words were registered."""
        return [it for it in self.stated.expected if self.about_this and self.registered(it)]

    @property
    def dropped(self) -> Iterator[Markup]:
        """What is not used, since its words were not registered."""
        stated = [it for it in self.stated.expected if not self.registered(it)]
        for it in stated if self.about_this else ():
            yield html("<b>{}</b> {}", ", ".join(it.models), ", ".join(it.processes))
        rates = [it for it in self.stated.churn if not self.registered(it)]
        for rate in rates if self.about_this else ():
            yield html("<b>{}</b> churn", rate.model)

    def churn(self, model: str) -> Churn | None:
        """Return the churn that the registered words expect of a model, if they do."""
        stated = self.stated.churn if self.about_this else ()
        return next((it for it in stated if it.model == model and self.registered(it)), None)

    def flips(self, model: str, since: int) -> list[tuple[int, int]]:
        """Return the flips and the arms compared before run `since`, and from it on."""
        sides = [[0, 0], [0, 0]]
        for row in self.record.churn:
            if row["model"] == model and row["compared"]:
                side = sides[self.numbers[row["run"]] >= since]
                side[0] += row["flips"]
                side[1] += row["compared"]
        return [(flips, compared) for flips, compared in sides]

    def counts(self, model: str, process: str) -> list[int]:
        """Return the counts that a process bet on; the panel's are those of home."""
        name, found = process.replace("panel", "home"), []
        for row in alarm_rows(self.record, model):
            earlier = (it for it in row["alarm"]["earlier"] if it["process"] == name)
            for value in (row["alarm"][name], *earlier):
                # A process bets once it has a P or, if it rests on a model of churn, its p0.
                if value and value.get("P", value.get("p0")) is not None:
                    found.append(value["D"] if "D" in value else value["flips"])
        return found

    def entered(self, model: str) -> dict[str, int]:
        """Return the number of the run in which each state of a model was first entered."""
        found: dict[str, int] = {}
        for watch in self.record.models[model]["alarm"]["watches"]:
            for state, run in watch["entered"].items():
                found.setdefault(state, self.numbers[run])
        return found

    @cached_property
    def outcomes(self) -> list[Outcome]:
        """Every state of every process of every model, each judged once."""
        return [
            self._outcome(model, process, state, entered.get(f"{process} {state}"))
            for model in self.record.models
            for entered in [self.entered(model)]
            for process in READ
            for state in LEVELS[process in ONE_LEVEL :]
        ]

    def _outcome(self, model: str, process: str, state: str, entered: int | None) -> Outcome:
        meant = (
            it
            for it in self.expected
            if model in it.models and process in it.processes and state in it.states
        )
        expected = next(meant, None)
        verdict = self._verdict(expected, self.planned.get(model), entered)
        if verdict == AS_REGISTERED and not entered:
            verdict = self._silence(self.counts(model, process))
        return Outcome(model, process, state, expected, entered, verdict)

    def _verdict(
        self, expected: Expectation | None, changed: int | None, entered: int | None
    ) -> str:
        if entered and changed and entered < changed:
            return BEFORE
        if expected is None:
            return UNSAID
        if expected.expect == "may":
            return LEFT_OPEN
        if expected.expect == "none":
            return UNEXPECTED if entered else AS_REGISTERED
        first, last = ((changed or 0) + n for n in expected.after)
        if entered is None:
            return MISSED if len(self.numbers) >= last else PENDING
        return EARLY if entered < first else LATE if entered > last else AS_REGISTERED

    def _silence(self, counts: list[int]) -> str:
        if not any(counts):
            return VACUOUS if counts else CALIBRATING
        return AS_REGISTERED if self.ended else SO_FAR


def opened(function: Callable[..., Markup]) -> Callable[..., Shown]:
    """Make a function of a laboratory a piece of a page; without the declared plan it says so."""

    @functools.wraps(function)
    def text(record: Record, *args: Any) -> Markup:
        return closed(record) or function(Lab(record), *args)

    return piece(text)


def closed(record: Record) -> Markup:
    """Say why a record has no opened plan to be read; nothing if it has."""
    declared = record.panel.get("plan_sha256")
    if not declared:
        return NO_PLAN
    if not record.store.plan.exists():
        last = max(record.panel["full_runs"], default=0)
        overdue = html(OVERDUE, last) if 0 < last <= len(record.runs) else ""
        return html(UNOPENED, declared, overdue)
    found = sha256_hex(record.store.plan.read_bytes())
    return Markup("") if found == declared else html(OTHER_PLAN, found, declared)
