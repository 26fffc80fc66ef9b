"""The alarm of a record: states, what they are worth, trajectories, and the tally.

Every bound is printed beside its value with its assumption, out of the reading: no
sentence here claims anything of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import date
from typing import Any

import numpy as np
import pandas as pd

from drift.report.curves import lines_picture
from drift.report.display import figure, piece
from drift.report.markup import Markup, coded, fill, html, joined, percent, table, with_data
from drift.report.pages import alarm_text, family_links
from drift.report.tables import Record, alarm_rows, evidence
from drift.stats.aftermath import dice, onset
from drift.stats.noise import noise

NO_CADENCE = Markup(
    "<p>This record registers no cadence: its runs are not slots, nothing is bet on them, and "
    "there is no state and no bound.</p>"
)
#: Missed slots in a row from which a gap is named.
LONG_GAP = 8
#: Families named after a state; findings and churn.jsonl hold them all.
MOST = 8
#: What the tally shows of the states a watch entered.
ENTRIES = {
    "Watch": "home watch",
    "Alarm": "home alarm",
    "Confirmed by pairs": "pairs alarm",
    "Coverage alarm": "coverage alarm",
}
#: Runs in the table behind a figure; churn.jsonl holds them all.
LAST = 40


def number(value: float | None) -> str:
    """Return E or P to three digits."""
    return "not estimable" if value is None else f"{value:.3g}"


def _alarms(record: Record) -> dict[str, dict[str, Any]]:
    """Return the alarm of each model that has a watch."""
    found = {key: model["alarm"] for key, model in record.models.items()}
    return {key: alarm for key, alarm in found.items() if alarm["processes"]}


@piece
def states(record: Record) -> Markup:
    """Return the state of each model, how far it has come, and whether the alarm sees now."""
    rows, known = [], []
    for key, alarm in _alarms(record).items():
        home = alarm["processes"]["home"]
        known.append(
            {"model": key, "run": record.reading["run"], "state": alarm["state"]}
            | {name: alarm[name] for name in ("series", "opened", "gap", "blind")}
            | {"usable_runs": alarm["runs"]}
            | {name: home[name] for name in ("values", "burn_in", "evidence", "highest")}
        )
        going = [
            f"{name} {one['values']} of {one['burn_in']}"
            for name, one in alarm["processes"].items()
            if one["values"] < one["burn_in"]
        ]
        rows.append(
            {
                "Model": key,
                "State": alarm_text(alarm),
                "Calibration": ", ".join(going) or "complete",
                "Opened": f"run {alarm['opened']}",
                "Usable runs": alarm["runs"],
                "Longest gap": f"{alarm['gap']} slots" + ", long" * (alarm["gap"] > LONG_GAP),
            }
        )
    shown = table(pd.DataFrame(rows)) if rows else NO_CADENCE
    return with_data(shown, "alarm-states", pd.DataFrame(known)) if rows else shown


@piece
def claims(record: Record) -> Markup:
    """Return what may be claimed of each process and of the panel, beside the values now."""
    alarms, parts, rows = _alarms(record), [], []
    merged = record.reading["alarm"]["model_based"]
    panel = {
        "panel": record.reading["alarm"]["panel_states"] or {"now": "no model has entered"},
        "merged": {
            f"{name}, at this look": f"mean E = {number(one['mean'])}; closed e-BH at "
            f"{percent(one['alpha'])} selects {', '.join(one['closed_e_bh']) or 'none'}"
            for name, one in merged.items()
        },
    }
    names = list(next(iter(alarms.values()), {"processes": {}})["processes"])
    for name in [*names, *panel] if names else []:
        claim = record.reading["alarm"]["guarantees"][name]
        bounds = [
            f"{level} at most {percent(claim[level])}"
            for level in ("watch", "alarm")
            if claim[level] is not None
        ]
        values = [html("<b>{}</b>: {}", *item) for item in panel.get(name, {}).items()]
        for key, alarm in alarms.items() if name in names else ():
            one = alarm["processes"][name]
            rows.append({"model": key, "run": record.reading["run"], "process": name} | one)
            highest = "no value yet" if one["highest"] is None else number(one["highest"])
            said = f"{number(one['evidence'])} (highest in series {alarm['series']}: {highest}"
            if one.get("p0"):
                said += f", p0 {percent(one['p0'])}, no growth at or below "
                said += f"{percent(one['no_growth_at_or_below'])} churn"
            values.append(html("<b>{}</b> {})", key, said))
        worded = {key: coded(value) for key, value in claim.items() if isinstance(value, str)}
        texts = {"name": name, "claim": claim | worded, "bounds": ", ".join(bounds) or "no bound"}
        texts |= {
            "horizon": f"horizon {claim['horizon']} bets" if claim["horizon"] else "no horizon"
        }
        texts |= {
            "not_covered": coded("; ".join(claim["not_covered"])),
            "values": joined(values, "; "),
        }
        parts.append(fill(record.root, "claim", **texts))
    if not rows:
        return NO_CADENCE
    frame = pd.DataFrame(rows).drop(columns="thresholds")
    return with_data(joined(parts, "\n"), "alarm-processes", frame)


@piece
def trajectories(record: Record, caption: str) -> Markup:
    """Return one figure for each model: E of every process against time, with the thresholds."""
    frame = evidence(record)
    frame = frame[frame.process != "coverage"]
    levels = record.reading["alarm"]["thresholds"]
    parts = [
        _lines(f"evidence-{key}", rows.assign(series=rows.process), levels, f"{key}. {caption}")
        for key, rows in frame.groupby("model", sort=False)
    ]
    return joined(parts, "\n") or NO_CADENCE


@piece
def by_model(record: Record, process: str, caption: str) -> Markup:
    """Return the figure of one process for all models, for `home` with the panel's thresholds."""
    frame, panel = evidence(record), record.reading["alarm"]
    frame = frame[frame.process == process]
    levels = dict(panel["thresholds"])
    if process == "home":
        levels |= {f"panel {name}": level for name, level in panel["panel_thresholds"].items()}
    return (
        NO_CADENCE
        if frame.empty
        else _lines(f"panel-{process}", frame.assign(series=frame.model), levels, caption)
    )


def _lines(name: str, frame: pd.DataFrame, levels: Mapping[str, float], caption: str) -> Markup:
    named = {f"{level} {value:g}": value for level, value in levels.items()}
    kind = lines_picture(xlabel="run, UTC", ylabel="evidence E", levels=named, debt="mixture")
    behind = frame.assign(y=frame.y.map(number)).pivot_table("y", "run", "series", aggfunc="last")
    tidy = frame[["model", "process", "run", "entered"]]
    tidy = tidy.assign(started_at=frame.x, evidence=frame.y, series=frame.part)
    newest = behind.tail(LAST)[::-1].reset_index().fillna("")
    return figure(name, kind, frame, newest, caption, data=tidy)


@piece
def tally(record: Record) -> Markup:
    """Return every watch ever opened, what was to be expected of them, and what came."""
    panel, rows, known = record.reading["alarm"], [], []
    for watch in panel["watches"]:
        kept = ("model", "role", "series", "opened", "gap", "state", "horizon")
        entered = {name.replace(" ", "_"): watch["entered"].get(name) for name in ENTRIES.values()}
        more = {"usable_runs": watch["runs"], "ended_because": watch["ended"]}
        known.append({name: watch[name] for name in kept} | more | entered)
        row = {"Model": f"{watch['model']} ({watch['role']})", "Series": watch["series"]}
        row |= {"Opened": watch["opened"], "Usable runs": watch["runs"]}
        entered = {head: watch["entered"].get(name, "") for head, name in ENTRIES.items()}
        rows.append(row | entered | {"State": watch["state"], "End": watch["ended"] or ""})
    if not rows:
        return NO_CADENCE
    expected = panel["expected_false_at_most"]
    return fill(
        record.root,
        "tally",
        panel=panel,
        expected=expected,
        watches=with_data(table(pd.DataFrame(rows)), "watches", pd.DataFrame(known)),
    )


@piece
def aftermath(record: Record, seed: int) -> Markup:
    """Return for each watch that entered a state when it may have begun, and what is dice."""
    rows, known, levels = [], [], record.reading["alarm"]["thresholds"]
    for watch in record.reading["alarm"]["watches"]:
        if watch["state"] not in levels:
            continue
        of = [
            row
            for row in alarm_rows(record, watch["model"], watch["series"])
            if row["alarm"]["home"]
        ]
        values = [row["alarm"]["home"] for row in of]
        p = {i: value["P"] for i, value in enumerate(values) if value["P"] is not None}
        begun = onset(p, horizon=watch["horizon"])
        departed = Counter(
            name for value in values[begun.unweighted :] for name in value["changed"]
        )
        found = dice(
            np.array([value["D"] for value in values]),
            threshold=levels[watch["state"]],
            horizon=watch["horizon"],
            burn_in=min(p),
            seed=seed,
        )
        place = {"model": watch["model"], "series": watch["series"], "state": watch["state"]}
        known.append(
            place
            | {"onset_by_stakes": of[begun.index]["run"]}
            | {"onset_unweighted": of[begun.unweighted]["run"], "other_seeds": found.seeds}
            | {"in_state": found.share, "evidence_at_one": found.evidence_at_one}
        )
        rows.append(
            {name.capitalize(): value for name, value in place.items()}
            | {
                "May have begun": f"run {of[begun.index]['run']} by the stakes, "
                f"{of[begun.unweighted]['run']} if all starts had the same stake",
                "Departed since, at equal stakes": _most(departed),
                "Other seeds": f"{percent(found.share)} of {found.seeds} in this state; "
                f"E = {number(found.evidence_at_one)} at U = 1",
            }
        )
    shown = table(pd.DataFrame(rows), empty="No watch or alarm was entered.")
    return with_data(shown, "aftermath", pd.DataFrame(known)) if known else shown


def _most(departed: Counter[str]) -> Markup:
    most = [
        html("{} ({})", family_links([name]), times) for name, times in departed.most_common(MOST)
    ]
    rest = len(departed) - len(most)
    return joined([*most, f"and {rest} more"] if rest else most, ", ")


@piece
def nulls(record: Record, lifetimes: int, seed: int) -> Markup:
    """Return what the flips of each model's series look like, and which member of the zoo."""
    shown, known = [], []
    for key, alarm in _alarms(record).items():
        rows = alarm_rows(record, key, alarm["series"])
        rows = [row for row in rows if row["alarm"]["mixture"]]
        found = noise(
            [row["alarm"]["mixture"]["changed"] for row in rows],
            [row["alarm"]["mixture"]["compared"] for row in rows],
            [date.fromisoformat(row["at"][:10]) for row in rows],
            n=record.models[key]["coverage"]["canonical_n"],
            lifetimes=lifetimes,
            seed=seed,
        )
        place = {"model": key, "series": alarm["series"]}
        known += [
            place | {"statistic": one.name, "value": one.value, "reason": one.reason}
            for one in found.statistics
        ]
        known += [
            place | {"statistic": f"distance to {name}", "value": far, "reason": None}
            for name, far in found.nearest
        ]
        near = "; ".join(f"{name} ({far:.2g})" for name, far in found.nearest[:3])
        days = (f"{one.day[:3]} {one.flips}/{one.transitions}" for one in found.weekdays)
        shown.append(
            {
                "Model": key,
                "Flips": f"{found.flips} in {found.transitions} transitions",
                **{
                    one.name.capitalize(): one.reason or f"{one.value:.3g}"
                    for one in found.statistics
                },
                "Nearest in the zoo (distance)": near or f"not estimable: {found.reason}",
                "Flips by weekday": ", ".join(days),
            }
        )
    made = table(pd.DataFrame(shown)) if shown else NO_CADENCE
    return with_data(made, "noise", pd.DataFrame(known)) if shown else made
