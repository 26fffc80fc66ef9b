"""The laboratory record held against its plan and against what was registered of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

import pandas as pd

from drift.config import sha256_hex
from drift.records.watch import LEVELS, ONE_LEVEL
from drift.report.display import piece
from drift.report.markup import Markup, fill, html, joined, percent, table, when, with_data
from drift.report.plan import (
    AS_REGISTERED,
    CALIBRATING,
    EARLY,
    FAILED,
    LATE,
    LEFT_OPEN,
    MISSED,
    PENDING,
    SO_FAR,
    UNSAID,
    VACUOUS,
    Lab,
    Outcome,
    closed,
    opened,
)
from drift.report.tables import Record

UNREAD = Markup(
    '<p class="drift-banner">config/lab.toml states no expectation of this plan as data: the '
    "registered words stand below, and what came is not held against them.</p>"
)
#: How states are told that came and did not fail.
HELD = {
    AS_REGISTERED: "as registered",
    LEFT_OPEN: "where it was left open",
    UNSAID: "though nothing was said of it",
}
#: How it is told that nothing was entered where nothing was expected.
SILENT = {
    AS_REGISTERED: "Entered nothing, as registered: {}.",
    SO_FAR: "Entered nothing so far, as registered: {}.",
    CALIBRATING: "Could not enter anything, still calibrating: {}.",
    VACUOUS: "Entered nothing, as registered, and could not have: {}. A state needs a count above "
    "0, and since they were calibrated these counted none. Such a silence shows a steady "
    "instrument, and nothing about false alarms.",
}


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
