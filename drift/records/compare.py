"""One look at two runs or batches of a record: what changed, and whose doing it can be."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from drift.errors import ConfigurationError, worst_exit_code
from drift.instrument import VOID
from drift.records.pins import Pass, PinnedRecord
from drift.records.run import family
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


def compare_passes(
    record: PinnedRecord,
    base: str,
    candidate: str,
    *,
    model: str | None = None,
    floor: float | None = None,
    alpha: float = 0.05,
) -> dict[str, Any]:
    """Compare two runs or batches, each named ``ID``, ``ID:MODEL`` or by a batch's name.

    Without a model each target is compared that either of them asked. Returns ``{"base",
    "candidate", "alpha", "words", "noise", "models", "exit_code"}``. Of a model stands
    what :func:`look` and its :class:`~drift.instrument.Comparison` hold, the look only where
    the verdict is not void; ``error`` says why a model has none: it, or a reference with known
    weights, was not asked in both. ``noise`` holds the floor that the record gives.

    Raises
    ------
    ConfigurationError
        The record holds no such run or batch, or `base` is not before `candidate`.
    """
    (first, before), (second, after) = (_named(record, name) for name in (base, candidate))
    before, after = before or model or after, after or model or before
    order = [record.passes.index(one) for one in (first, second)]
    if order[0] > order[1] or (first is second and before == after):
        raise ConfigurationError(
            "BASE must be the earlier, or name another model of the same run",
            got=f"{base}, {candidate}",
        )
    pairs = [(before, after)] if before and after else _targets(first, second)
    found = {
        one if one == other else f"{one} -> {other}": _entry(
            record, first, second, one, other, floor=floor, alpha=alpha
        )
        for one, other in pairs
    }
    return {
        "base": first.id,
        "candidate": second.id,
        "alpha": alpha,
        "words": ONE_LOOK,
        "noise": None if floor is not None else _noise(record, first, second),
        "models": found,
        "exit_code": worst_exit_code(entry["exit_code"] for entry in found.values()),
    }


def _named(record: PinnedRecord, name: str) -> tuple[Pass, str]:
    run, _, model = name.partition(":")
    return record.find(run), model


def _targets(first: Pass, second: Pass) -> list[tuple[str, str]]:
    """Return the targets that either pass asked."""
    references = {one.reference for one in (first, second)}
    found = sorted((first.models.keys() | second.models.keys()) - references)
    if not found:
        raise ConfigurationError(
            "the reference alone was asked: there is no target to compare",
            got=f"{first.id}, {second.id}",
        )
    return [(model, model) for model in found]


def _noise(record: PinnedRecord, first: Pass, second: Pass) -> dict[str, Any]:
    noise, floor = record.noise(first, second), record.floor(first, second)
    return asdict(noise) | {"items": floor.items, "floor": asdict(floor.value)}


def _entry(
    record: PinnedRecord,
    first: Pass,
    second: Pass,
    model: str,
    other: str,
    *,
    floor: float | None,
    alpha: float,
) -> dict[str, Any]:
    """Return what the comparison of one target shows."""
    try:
        found = record.compare(first, second, model, other, floor=floor, alpha=alpha)
    except ConfigurationError as error:
        asked = model in first.models and other in second.models
        if asked and first.frozen and second.frozen:
            raise
        entry = {"error": str(error), "exit_code": error.exit_code}
        if not asked:
            return entry
        fields = first.instrument(model).differences(second.instrument(other))
        if fields:
            return entry | {"fields": [asdict(field) for field in fields]}
        return entry | look(flips(first.labels[model], second.labels[other]), alpha=alpha)
    entry = asdict(found) | {
        "error": None,
        "void": str(found.error()) if found.exit_code == VOID else None,
    }
    del entry["change"]
    return entry | (look(found.change, alpha=alpha) if found.change else {})


def look(change: Flips, *, alpha: float = 0.05) -> dict[str, Any]:
    """Return what one look at two passes shows, and what it could have shown.

    The families ``newly_refused`` and ``newly_answered``, the number ``compared``, ``midp``,
    ``minimum_detectable_flips`` with the flips the other way counted, and a ``sentence``.
    """
    refused = [family(arm) for arm in change.newly_refused]
    answered = [family(arm) for arm in change.newly_answered]
    opposite = min(len(refused), len(answered))
    detectable = minimum_detectable_flips(change.compared, alpha=alpha, opposite=opposite)
    return {
        "compared": change.compared,
        "newly_refused": refused,
        "newly_answered": answered,
        "midp": midp_mcnemar(len(refused), len(answered)),
        "minimum_detectable_flips": detectable.flips,
        "sentence": detectability_sentence(detectable),
    }
