"""One look: the canonical labels of two comparable runs, compared once."""

from __future__ import annotations

from typing import Any

from drift.errors import ConfigurationError
from drift.records.ledger import Ledger
from drift.records.run import Run, determined_labels, family, load_run
from drift.records.store import Store, read_rows
from drift.stats import (
    Flips,
    detectability_sentence,
    flips,
    midp_mcnemar,
    minimum_detectable_flips,
)

ONE_LOOK = (
    "One look, at two runs fixed beforehand. Its p-value holds for no pair of runs that was "
    "chosen after seeing them, and for no series of looks: that is what the alarm is for."
)


def compare_runs(store: Store, ledger: Ledger, first: str, second: str) -> dict[str, Any]:
    """Compare two runs model by model, under the judge that each was first labelled by.

    Returns ``{"first", "second", "words", "models"}``. Of a model stands what :func:`look`
    returns; a model that was not asked in both, or whose series closed between them, has
    ``reason`` alone. A fresh baseline of the alarm closes nothing.

    Raises
    ------
    ConfigurationError
        The record holds no such run, or one that is not before the other.
    """
    if not first < second:
        raise ConfigurationError("the first run must be the earlier", got=f"{first}, {second}")
    before, after = (_run(store, ledger, run) for run in (first, second))
    closed = {
        item["model"]: item["detail"]
        for item in read_rows(store.findings)
        if item["kind"] == "series_closed" and first < item["run"] <= second
    }
    models: dict[str, dict[str, Any]] = {}
    for name in sorted(before.models.keys() | after.models.keys()):
        if name not in before.models or name not in after.models:
            models[name] = {"reason": "not asked in both runs"}
        elif name in closed:
            models[name] = {"reason": f"its series closed between them: {closed[name]}"}
        else:
            models[name] = look(flips(_canonical(before, name), _canonical(after, name)))
    return {"first": first, "second": second, "words": ONE_LOOK, "models": models}


def _run(store: Store, ledger: Ledger, wanted: str) -> Run:
    """Return a run as it was first labelled: by the judge registered for it."""
    sealed = None
    for line in ledger.forwards():
        if line.kind == "run" and line.body["run"] == wanted:
            sealed = line.body
        elif line.kind == "labels" and sealed and line.body["run"] == wanted:
            return load_run(store, sealed, line.body)
    raise ConfigurationError("the record holds no such run", where=str(store.folder), got=wanted)


def _canonical(run: Run, name: str) -> dict[str, str | None]:
    outcomes = run.models[name].outcomes
    return determined_labels({arm: outcomes[arm] for arm in outcomes if arm.endswith("#en-1")})


def look(change: Flips) -> dict[str, Any]:
    """Return what one look at two runs shows, and what it could have shown.

    The families ``newly_refused`` and ``newly_answered``, the number ``compared``, ``midp``,
    ``minimum_detectable_flips`` with the flips the other way counted, and a ``sentence``.
    """
    refused = [family(arm) for arm in change.newly_refused]
    answered = [family(arm) for arm in change.newly_answered]
    opposite = min(len(refused), len(answered))
    detectable = minimum_detectable_flips(change.compared, opposite=opposite)
    return {
        "compared": change.compared,
        "newly_refused": refused,
        "newly_answered": answered,
        "midp": midp_mcnemar(len(refused), len(answered)),
        "minimum_detectable_flips": detectable.flips,
        "sentence": detectability_sentence(detectable),
    }
