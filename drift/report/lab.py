"""The laboratory record held against its plan and against what was registered of it.

``plan.toml`` says what was done to which server, and the registration, sealed before run 1, what
was expected of that in words. ``config/lab.toml`` states these words as data. What came is read
from the record.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, Literal

import pandas as pd
from pydantic import model_validator

from drift.config import ServerSpec, Strict, load_checked, load_toml, sha256_hex
from drift.records.watch import LEVELS, ONE_LEVEL
from drift.report.display import Shown, piece
from drift.report.markup import Markup, fill, html, joined, percent, table, when, with_data
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
UNREAD = Markup(
    '<p class="drift-banner">config/lab.toml states no expectation of this plan as data: the '
    "registered words stand below, and what came is not held against them.</p>"
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
#: How states are told that came and did not fail.
HELD = {
    AS_REGISTERED: "as registered",
    LEFT_OPEN: "where it was left open",
    UNSAID: "though nothing was said of it",
}
FAILED = (LATE, EARLY, MISSED, UNEXPECTED, BEFORE)
#: How it is told that nothing was entered where nothing was expected.
SILENT = {
    AS_REGISTERED: "Entered nothing, as registered: {}.",
    SO_FAR: "Entered nothing so far, as registered: {}.",
    CALIBRATING: "Could not enter anything, still calibrating: {}.",
    VACUOUS: "Entered nothing, as registered, and could not have: {}. A state needs a count above "
    "0, and since they were calibrated these counted none. Such a silence shows a steady "
    "instrument, and nothing about false alarms.",
}


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


@opened
def summary(lab: Lab) -> Markup:
    """Return what was done, what home said of it, and whether each expectation held."""
    rest = joined(html("<li>{}</li>", said) for said in _rest(lab))
    return html("<p>{}</p><ul>{}</ul>", joined(_headline(lab), " "), rest)


def headline(record: Record) -> Markup:
    """Return for the front page what was done and what came of it; nothing without one declared."""
    if not record.reading or not record.panel.get("plan_sha256"):
        return Markup("")
    if other := closed(record):
        return other
    lab = Lab(record)
    more = Markup('<a href="lab.html">What was done, and what each process said.</a>')
    return html("<p>{}</p>{}", joined([*_headline(lab), more], " "), _strips(lab))


def _headline(lab: Lab) -> Iterator[Markup]:
    """Say what was done, what home entered, and which expectations failed."""
    done: dict[int, list[Markup]] = {}
    for it in lab.plan["interventions"]:
        if it["run"] <= len(lab.numbers):
            prompt = it["server"].get("system_prompt")
            words = html(": “{}”", prompt) if prompt else ""
            change = html("<b>{model}</b> ({what}{words})", words=words, **it)
            done.setdefault(it["run"], []).append(change)
    said = [
        html("from run {} on the server of {} was changed", run, joined(of, ", that of "))
        for run, of in sorted(done.items())
    ]
    still = ", ".join(model for model in lab.record.models if model not in lab.changed)
    later = " so far" if len(lab.changed) < len(lab.planned) else ""
    said += [html("nothing was done{} to {}", later, still)] if still else []
    yield html("{} runs: {}.", len(lab.numbers), joined(said, "; "))
    home = _came(it for it in lab.outcomes if it.process == "home")
    so = "" if lab.ended else " so far"
    yield html("The process home, which alone sets a state, entered{}: {}.", so, home or "nothing")
    failed = [_failure(lab, it) for it in lab.outcomes if it.verdict in FAILED]
    if not lab.about_this:
        yield html("What was expected of this stands in words alone.")
        return
    if dropped := joined(lab.dropped, "; "):
        yield html("<b>Not used</b>, for their words are not in the registration: {}.", dropped)
    if failed:
        yield html("<b>Not as registered</b>: {}.", joined(failed, "; "))
    else:
        which = "other" if dropped else "registered"
        yield html("<b>No {} expectation of a state failed{}.</b>", which, so)
    yield from _churns(lab)


def _churns(lab: Lab) -> Iterator[Markup]:
    """Say of each changed subject the churn it showed where the registered words expect one."""
    said = (
        "Churn of <b>{}</b>: {} before its change and {} from it on, where the registered words "
        "expect {:g} % and {:g} % and name no tolerance."
    )
    for model, since in lab.changed.items():
        if meant := lab.churn(model):
            shares = map(churn_text, lab.flips(model, since))
            yield html(said, model, *shares, 100 * meant.before, 100 * meant.after)


def churn_text(counted: tuple[int, int]) -> str:
    """Return flips per arm compared as a percentage, with both counts."""
    flips, compared = counted
    share = percent(flips / compared) if compared else "not estimable"
    return f"{share} ({flips} of {compared:,})"


def _rest(lab: Lab) -> Iterator[Markup]:
    """Say what else came, what did not, and what each change moved at once."""
    of: dict[str, list[Outcome]] = {name: [] for name in (*HELD, *SILENT, *FAILED, PENDING)}
    for it in lab.outcomes:
        of[it.verdict].append(it)
    for name, said in HELD.items() if lab.about_this else ():
        if came := _came(of[name]):
            yield html("Came {}: {}.", said, came)
    for name, said in SILENT.items():
        if quiet := _quiet(of[name]):
            yield html(said, quiet)
    if quiet := _quiet([*of[LEFT_OPEN], *of[PENDING]]):
        so = "" if lab.ended else " so far"
        yield html("Did not come{}, and did not have to: {}.", so, quiet)
    for model, since in lab.changed.items():
        before, now = (
            lab.record.reading_of(lab.record.runs[n])["models"][model]
            for n in (since - 2, since - 1)
        )
        look = now["change"] or dict.fromkeys(("newly_refused", "newly_answered"), ())
        said = "Run {} of {} dated {} families newly refused and {} newly answered; refused were "
        said += "{refused} of {n}, in the run before {} of {}."
        flips = len(look["newly_refused"]), len(look["newly_answered"])
        was = before["canonical"]["refused"], before["canonical"]["n"]
        yield html(said, since, model, *flips, *was, **now["canonical"])


def _came(outcomes: Iterable[Outcome]) -> Markup:
    """Return the states that were entered, those of a process in one run together."""
    found: dict[tuple[str, str, int], list[str]] = {}
    for it in outcomes:
        if it.entered:
            found.setdefault((it.model, it.process, it.entered), []).append(it.state)
    return joined(
        (
            html("<b>{}</b> {} {} in run {}", model, process, " and ".join(states), run)
            for (model, process, run), states in found.items()
        ),
        "; ",
    )


def _quiet(outcomes: Iterable[Outcome]) -> Markup:
    """Return the processes of each model that did not enter these states."""
    found: dict[str, dict[str, list[str]]] = {}
    for it in outcomes:
        if not it.entered:
            found.setdefault(it.model, {}).setdefault(it.process, []).append(it.state)
    parts = []
    for model, processes in found.items():
        # A process is named with its state where another of its states is told elsewhere.
        named = [
            name if len(states) == 2 or name in ONE_LEVEL else f"{name} {states[0]}"
            for name, states in processes.items()
        ]
        parts.append(html("<b>{}</b> {}", model, ", ".join(named)))
    return joined(parts, "; ")


def _failure(lab: Lab, it: Outcome) -> Markup:
    changed = lab.planned.get(it.model)
    named = _came([it]) or html("<b>{}</b> {} {}", it.model, it.process, it.state)
    meant = it.expected.said(changed) if it.expected else UNSAID
    due = f"{meant}: " if it.verdict in (LATE, EARLY, MISSED) else ""
    since = it.entered - changed if it.entered and changed else 0
    after = f", {since} runs after the change" if since > 0 else ""
    return html("{}{} ({}{})", named, after, due, it.verdict)


def _strips(lab: Lab) -> Markup:
    """Return the flips of each run as bars, a line a subject, with its change marked."""
    record, lines = lab.record, []
    top = max((row["flips"] or 0 for row in record.churn), default=0) or 1
    for model in record.models:
        flips = [row["flips"] or 0 for row in record.churn if row["model"] == model]
        bars = [f"M{at} 8V{8 - 8 * n / top:.2f}h.8V8z" for at, n in enumerate(flips) if n]
        since = lab.changed.get(model)
        texts = {"bars": " ".join(bars), "since": f"M{since - 1.1:.1f} 0V8" if since else ""}
        said = f"{model}, flips run by run: {', '.join(map(str, flips))}"
        said += f"; changed from run {since} on" if since else ""
        lines.append(fill(record.root, "flips", model=model, runs=len(flips), said=said, **texts))
    note = (
        "Labels that flipped in each run, at most {}; the dashed line is the change on the server."
    )
    return joined([*lines, html(f'<p class="drift-small">{note}</p>', top)], "\n")


@piece
def words(record: Record) -> Markup:
    """Return the analysis as it was registered, to the letter."""
    text = record.panel.get("analysis")
    if not text:
        return html("<p>No analysis was registered in words.</p>")
    return html('<pre tabindex="0">\n{}</pre>', text)


@opened
def expectations(lab: Lab) -> Markup:
    """Return what is read out of the registered words, each beside the words."""
    if not lab.about_this:
        return UNREAD
    rows = [
        {
            "Registered words": f"“{it.words}”",
            "Subjects": ", ".join(it.models),
            "Processes": ", ".join(it.processes),
            "States": it.levels,
            "Read as": it.said(lab.planned.get(it.models[0])),
            "Stand in the registration": "yes" if lab.registered(it) else "no: not used",
        }
        for it in lab.stated.expected
    ]
    rows += [
        {
            "Registered words": f"“{it.words}”",
            "Subjects": it.model,
            "Processes": "none: its churn",
            "States": "",
            "Read as": f"{100 * it.before:g} % before its change, {100 * it.after:g} % from it on",
            "Stand in the registration": "yes" if lab.registered(it) else "no: not used",
        }
        for it in lab.stated.churn
    ]
    return table(pd.DataFrame(rows))


@opened
def knowledge(lab: Lab) -> Markup:
    """Return what was sealed when: the declared plan, the analysis, the first run."""
    record = lab.record
    line = next(line for line, _ in record.sealed if line.hash == record.reading["registration"])
    first = next(line.body for line, _ in record.sealed if line.kind == "run")
    hashed = '<span class="drift-hash">{}</span>'
    rows = {
        "Analysis and plan hash registered": html(
            f"line {{}}, {{}}, {hashed}", line.body["seq"], line.body["at"], line.hash
        ),
        "Run 1 began": first["started_at"],
        "SHA-256 of the plan, as registered": html(hashed, record.panel["plan_sha256"]),
        "SHA-256 of plan.toml, as this page reads it": html(
            hashed, sha256_hex(record.store.plan.read_bytes())
        ),
        "Runs of the plan": f"{lab.plan['runs']}, of which {len(lab.numbers)} are read here",
    }
    shown = table(pd.DataFrame({"What": list(rows), "Sealed": list(rows.values())}))
    parts = [shown, _read_when(lab)]
    if lab.about_this:
        parts += [html("<p>Outside the record: {}.</p>", lab.stated.pilot)]
        said = (
            "<p>The rows that state the registered words as data, in config/lab.toml, were {}.</p>"
        )
        parts += [html(said, lab.stated.written)]
    return joined(parts)


def _read_when(lab: Lab) -> Markup:
    """Say what the record shows of when the alarm was read."""
    lines = [line for line, _ in lab.record.sealed]
    last = max(at for at, line in enumerate(lines) if line.kind == "run")
    early = sum(line.body.get("event") == "calibrated" for line in lines[:last])
    said = (
        "<p>That the analysis was read once, after the last run, the record cannot show. Readings "
        "are derived after every run, and {} lines sealed before run {} say what a process had "
        "calibrated: whoever recorded could see the alarm as it went.</p>"
    )
    return html(said, early, len(lab.numbers))


@opened
def done(lab: Lab) -> Markup:
    """Return each subject with its weights, its server before and after, and its runs."""
    record, rows = lab.record, []
    before = _settings(lab.stated.server.model_dump(exclude_none=True))
    for model, instrument in record.instruments.items():
        document = instrument["document"]
        made = [it for it in lab.plan["interventions"] if it["model"] == model]
        rows.append(
            {
                "Subject": model,
                "Weights": html(
                    '{}, <span class="drift-hash">{:.16}…</span>',
                    document["model"],
                    document["weights_sha256"] or "not hashed",
                ),
                "Server before": before if lab.about_this else "not stated",
                "What was done": joined(
                    (html("from run {run} on {what}", **it) for it in made), "; "
                )
                or "nothing",
                "Server after": joined((_settings(it["server"]) for it in made), "; ")
                or "as before",
            }
        )
    first, last = (record.reading_of(run) for run in (record.runs[0], record.runs[-1]))
    said = "{} runs from {} to {}; {}. Full runs, with every wording: {}; the others ask the "
    said += "{} canonical arms."
    note = record.panel.get("cadence_note") or "no cadence is noted"
    full = ", ".join(map(str, record.panel["full_runs"]))
    arms = next(iter(record.models.values()))["coverage"]["canonical_n"]
    moments = when(first["started_at"]), when(last["finished_at"])
    text = html(f"<p>{said}</p>", len(record.runs), *moments, note, full, arms)
    return joined([table(pd.DataFrame(rows)), text, _twins(lab)])


def _settings(server: Mapping[str, Any]) -> Markup:
    """Return what a server is started with, its sampling in one with the rest."""
    flat = {**server, **server.get("sampling", {})}
    flat.pop("sampling", None)
    return joined(
        (html("{}: {}", key.replace("_", " "), value) for key, value in flat.items()), "; "
    )


def _twins(lab: Lab) -> Markup:
    """Say of subjects with the same weights in how many runs they answered alike, to the letter."""
    runs = [line.body["models"] for line, _ in lab.record.sealed if line.kind == "run"]
    since, parts = min(lab.changed.values(), default=len(runs) + 1), []
    of: dict[str, list[str]] = {}
    for model, instrument in lab.record.instruments.items():
        of.setdefault(instrument["sha256"], []).append(model)
    for twins in (models for models in of.values() if len(models) > 1):
        before = runs[: since - 1]
        alike = sum(len({run[model]["responses"] for model in twins}) == 1 for run in before)
        said = (
            "<p>{} have the same weights and are asked alike, with the same seeds: in {} of the {} "
        )
        said += "runs before the change their sealed answers are the same to the letter.{}</p>"
        one = (
            " Until then they are one subject shown twice, not two." if alike == len(before) else ""
        )
        parts.append(html(said, " and ".join(twins), alike, len(before), one))
    return joined(parts)


@opened
def processes(lab: Lab) -> Markup:
    """Return the run in which each process of each subject entered watch and alarm."""
    rows, known = [], []
    for (model, process), group in groupby(lab.outcomes, lambda it: (it.model, it.process)):
        of = {it.state: it for it in group}
        meant = {
            state: it.expected.said(lab.planned.get(model)) if it.expected else UNSAID
            for state, it in of.items()
        }
        runs = {state: str(of[state].entered or "") if state in of else "–" for state in LEVELS}
        rows.append(
            {"Subject": model, "Process": process}
            | {f"{state.capitalize()} in run": run for state, run in runs.items()}
            | {"Expected": _told(meant)}
            | {"Verdict": _told({state: said for state, it in of.items() if (said := it.said)})}
        )
        known += [
            {"model": model, "process": process, "state": state, "expected": meant[state]}
            | {"entered_in": it.entered, "verdict": it.verdict}
            for state, it in of.items()
        ]
    frame = pd.DataFrame(known).astype({"entered_in": "Int64"})
    return with_data(table(pd.DataFrame(rows)), "lab-processes", frame)


def _told(said: Mapping[str, str]) -> str:
    """Return what is said of the states, once where it is the same of all."""
    if len({*said.values()}) == 1 and {*said} in ({*LEVELS}, {LEVELS[-1]}):
        return next(iter(said.values()))
    return "; ".join(f"{state}: {words}" for state, words in said.items())
