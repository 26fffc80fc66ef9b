"""What a reading says of the alarm: states, evidence, and what may be claimed of them.

The guarantee of each process, with its assumption, its horizon and what it does not
cover, is part of every reading, so that no number travels without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from drift.records.registration import Registration
from drift.records.series import SeriesState
from drift.records.watch import BLIND_AFTER, CONFORMAL, LEVELS, LIKELIHOOD, Epoch, Watch
from drift.stats import (
    GUARANTEES,
    closed_e_bh,
    e_bh,
    expected_false,
    merged_mean,
    mixture_no_growth,
    restart_no_growth,
    union_threshold,
)

#: Level of the model-based selection over the panel.
ALPHA = 0.05
NO_CADENCE = "no cadence"


def model_alarm(state: SeriesState, slot: int | None = None) -> dict[str, Any]:
    """Return the alarm of one model after a run: its present watch, and all it ever had.

    ``state`` is ``no cadence`` in a record of ad-hoc runs: nothing is bet on, and there is
    no bound. ``confirmed_by_pairs`` is of the last alarm, None without one. ``gap`` is the
    longest row of slots without a run that entered, the present one included.
    """
    alarm = state.alarm
    rung = [item["entered"] for item in alarm.summaries() if item["state"] == "alarm"]
    found: dict[str, Any] = {
        "state": NO_CADENCE,
        "blind": alarm.unusable >= BLIND_AFTER,
        "unusable_in_a_row": alarm.unusable,
        "confirmed_by_pairs": "pairs alarm" in rung[-1] if rung else None,
        "watches": alarm.summaries(),
        "processes": {},
    }
    if not alarm.live:
        return found
    watch = alarm.live[-1]
    return found | {
        "state": watch.state(),
        "series": watch.series,
        "opened": watch.opened,
        "runs": watch.runs,
        "gap": max(watch.gap, slot - alarm.slot if slot and alarm.slot else 0),
        "entered": watch.entered,
        "processes": {name: _process(watch, name) for name in (*CONFORMAL, *LIKELIHOOD)},
    }


def _process(watch: Watch, name: str) -> dict[str, Any]:
    state: Any = getattr(watch, name)
    found = {
        "state": watch.state(name),
        "values": state.seen if name in CONFORMAL else state.transitions,
        "burn_in": state.burn_in,
        "bets": None if name == "mixture" else state.bets,
        "horizon": None if name == "mixture" else state.horizon,
        "evidence": state.evidence,
        "highest": watch.highest.get(name),
        "thresholds": watch.thresholds_of(name),
    }
    if name in LIKELIHOOD:
        blind_zone = mixture_no_growth if name == "mixture" else restart_no_growth
        at = None if state.p0 is None else blind_zone(state.p0)
        found |= {"p0": state.p0, "no_growth_at_or_below": at}
    return found


def panel_alarm(
    series: Mapping[str, SeriesState], epoch: Epoch, registration: Registration
) -> dict[str, Any]:
    """Return the alarm of the panel: its thresholds, the watches opened, what is expected.

    K counts every watch ever opened, of models that have left the panel too. Its expected
    false states are at most what the bounds allow if no model ever changed.
    """
    watches = [
        {"model": model} | item
        for model, state in sorted(series.items())
        for item in state.alarm.summaries()
    ]
    opened = len(watches)
    live = {
        model: series[model].alarm.live if model in series else ()
        for model in registration.body["panel"]["models"]
    }
    spec = registration.body["alarm"]
    size = max(epoch.size, 1)
    return {
        "state": NO_CADENCE if registration.cadence == "none" else "watching",
        "cadence": registration.cadence,
        "epoch": epoch.number,
        "size": epoch.size,
        "thresholds": {level: float(spec[level]) for level in LEVELS},
        "panel_thresholds": {level: union_threshold(float(spec[level]), size) for level in LEVELS},
        "watches": watches,
        "watches_opened": opened,
        "expected_false_at_most": expected_false(opened),
        "tally": _tally(watches),
        "panel_states": {
            f"{item['model']} {item['series']}": name
            for item in watches
            for name in ("panel watch", "panel alarm")
            if name in item["entered"]
        },
        "model_based": {name: _merged(live, name) for name in ("mixture", "restart")},
        "guarantees": {name: asdict(guarantee) for name, guarantee in GUARANTEES.items()},
    }


def _tally(watches: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Count watches and the states they entered, the reference target beside the subjects."""
    tally = {role: dict.fromkeys(("watches", *LEVELS), 0) for role in ("reference", "subject")}
    for item in watches:
        counts = tally[item["role"]]
        counts["watches"] += 1
        for level in LEVELS:
            counts[level] += f"home {level}" in item["entered"]
    return tally


def _merged(live: Mapping[str, tuple[Watch, ...]], process: str) -> dict[str, Any]:
    """Merge one model-based process over the panel; a model that has no value enters as 1."""
    names = list(live)
    es = [getattr(watches[-1], process).evidence if watches else None for watches in live.values()]
    return {
        "mean": merged_mean(es),
        "alpha": ALPHA,
        "e_bh": [names[i] for i in e_bh(es, alpha=ALPHA)],
        "closed_e_bh": [names[i] for i in closed_e_bh(es, alpha=ALPHA)],
    }
