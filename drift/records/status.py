"""What a record holds, what a run of it costs, and what is still open."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

from drift.bank import SCOPES, load_bank
from drift.config import Panel
from drift.probing.cost import estimate
from drift.records.alarm import model_alarm
from drift.records.derive import read_series
from drift.records.ledger import Ledger
from drift.records.passes import open_passes
from drift.records.registration import in_force
from drift.records.store import Store
from drift.records.watch import Watch

#: Usable runs of a series before the process ``home`` has its first value.
BEFORE_VALUES = 2


def record_status(panel: Panel, store: Store, ledger: Ledger, *, bank: Path) -> dict[str, Any]:
    """Return the state of a record, and a row for each model of its panel under ``models``.

    Costs are upper estimates, in USD as text, at the prices in the panel file and for the
    questions in `bank`; None where a price or a cadence is missing. With a cadence ``runs``
    counts the usable runs of the series that entered the alarm, and ``calibration`` says how
    many of those needed there are, as text; None once there are enough.
    """
    registration = in_force(store, ledger)
    kept = read_series(store)["models"] if store.series.exists() else {}
    asked = load_bank(bank)
    scopes = {scope: [arm.prompt for arm in asked.arms(scope)] for scope in SCOPES}
    # One full run a day unless they are listed, canonical runs in the other slots.
    full = int(panel.scope_plan == "daily-full")
    slots = 24 // panel.cadence_hours if panel.cadence_hours else 0
    runs = {"full": full, "canonical": slots - full} if slots else {}
    models = []
    for model in panel.models:
        state = kept.get(model.key)
        watch = state.alarm.live[-1] if state and state.alarm.live else None
        costs = {scope: estimate(model, prompts)["cost_usd"] for scope, prompts in scopes.items()}
        priced = runs and costs["full"] is not None
        year = sum(365 * Decimal(costs[scope]) * n for scope, n in runs.items()) if priced else None
        models.append(
            {
                "model": model.key,
                "state": model_alarm(state)["state"] if state else None,
                "series": state.number if state else None,
                "runs": watch.runs if watch else state.index if state else None,
                "calibration": _calibration(watch) if watch else None,
                "requests_a_full_run": len(scopes["full"]),
                "requests_a_day": sum(len(scopes[scope]) * n for scope, n in runs.items()) or None,
                "usd_a_full_run": costs["full"],
                "usd_a_year": None if year is None else f"{year:.2f}",
            }
        )
    yearly = [Decimal(str(row["usd_a_year"])) for row in models if row["usd_a_year"]]
    last = (line.body["run"] for line in ledger.backwards() if line.kind == "run")
    return {
        "panel": panel.name,
        "folder": str(store.folder),
        "registration": registration.hash if registration else None,
        "last_run": next(last, None),
        "open_run": next((path.stem for path in store.open_runs()), None),
        "batches": sum(line.kind == "batch" for line in ledger.backwards()),
        "open_batch": next((path.stem for path in open_passes(store, "batch")), None),
        "nights": sum(line.kind == "night" for line in ledger.backwards()),
        "open_night": next((path.stem for path in open_passes(store, "night")), None),
        "requests_a_day": sum(row["requests_a_day"] or 0 for row in models) or None,
        "usd_a_year": str(sum(yearly)) if yearly else None,
        "models": models,
    }


def _calibration(watch: Watch) -> str | None:
    if watch.home.calibrated:
        return None
    done = min(watch.runs, BEFORE_VALUES) + watch.home.seen
    return f"{done} of {BEFORE_VALUES + watch.home.burn_in}"
