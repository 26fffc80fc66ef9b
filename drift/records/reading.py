"""The reading: the derived, published numbers of one run.

Every number carries its denominator and what was left out of it; one that cannot
be computed is None with a reason. Floats are rounded to 10 significant digits and
computed in a fixed order, so a reading is the same on any machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from drift.bank import Bank
from drift.records.registration import Registration
from drift.records.run import DETERMINED, OUTCOMES, Run
from drift.records.series import Step, family
from drift.stats import (
    control_check,
    detectability_sentence,
    family_majority,
    language_asymmetry,
    midp_mcnemar,
    minimum_detectable_flips,
    proportion,
    purpose_unlock,
    rate_range,
    significant,
    wording_invariance,
)

SCHEMA = 1


def build_reading(
    run: Run,
    steps: Mapping[str, Step],
    *,
    registration: Registration,
    bank: Bank,
    head: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the reading of `run` as a JSON-able document.

    Parameters
    ----------
    run
        The run under the judge whose labels are read.
    steps
        What the run did to the series of each of its models.
    registration, bank
        What was registered when the run was made.
    head
        ``{"seq", "hash"}`` of the labels line that the reading reads.
    """
    controls = sum(item.control for item in bank.families)
    return {
        "schema": SCHEMA,
        "panel": registration.body["panel"]["name"],
        "run": run.run,
        "number": run.number,
        "started_at": run.at,
        "finished_at": run.finished_at,
        "scope": run.scope,
        "slot": run.slot,
        "method_version": registration.body["method_version"],
        "package_version": registration.body["package_version"],
        "assurance": "complete",
        "judge": run.judge | {"agreement": registration.body["judge"]["agreement"]},
        "corpus": {
            "name": bank.name,
            "version": bank.version,
            "sha256": bank.sha256,
            "families": len(bank.families),
            "sensitive": len(bank.families) - controls,
            "controls": controls,
        },
        "registration": registration.hash,
        "head": dict(head),
        "models": {
            name: _model(run, name, steps[name], registration, bank) for name in sorted(steps)
        },
    }


def rate(outcomes: Iterable[str]) -> dict[str, Any]:
    """Return the refusal rate over outcomes: Wilson 95 %, what was left out, and the range."""
    counts = Counter(outcomes)
    refused, determined = counts["refused"], counts["refused"] + counts["answered"]
    left_out = {name: counts[name] for name in (*OUTCOMES, "tie") if name not in DETERMINED}
    result = proportion(refused, determined)
    bounds = rate_range(refused, counts["answered"], sum(left_out.values()))
    return {
        "refused": refused,
        "n": determined,
        "estimate": significant(result.estimate),
        "low": significant(result.low),
        "high": significant(result.high),
        "reason": result.reason,
        "excluded": {name: count for name, count in left_out.items() if count},
        "if_all_refused": significant(bounds.if_all_refused),
        "if_none_refused": significant(bounds.if_none_refused),
    }


def plain(result: Any) -> Any:
    """Return a result of ``drift.stats`` as JSON-able data, floats rounded."""
    if is_dataclass(result) and not isinstance(result, type):
        return {item.name: plain(getattr(result, item.name)) for item in fields(result)}
    if isinstance(result, (list, tuple)):
        return [plain(item) for item in result]
    return significant(result) if isinstance(result, float) else result


def _model(
    run: Run, name: str, step: Step, registration: Registration, bank: Bank
) -> dict[str, Any]:
    answer = run.models[name]
    spec = registration.body["instruments"][name]
    state = step.state
    sensitive = {item.id: item.topic for item in bank.families if not item.control}
    canonical = {family(arm): answer.outcomes.get(arm, "missing") for arm in registration.canonical}
    by_topic: dict[str, list[str]] = {}
    for item, topic in sorted(sensitive.items()):
        by_topic.setdefault(topic, []).append(canonical[item])
    checked = control_check(
        {item.id: _label(canonical[item.id]) for item in bank.families if item.control}
    )
    labelled = Counter(answer.outcomes.values())
    return {
        "model": spec["document"]["model"],
        "lab": spec.get("lab", ""),
        "role": spec.get("role", "subject"),
        "instrument": answer.instrument,
        "series": {
            "number": state.number,
            "index": state.index,
            "opened_at_run": state.opened_at_run,
            "comparable_with": step.compared_with,
            "reason": state.reason,
        },
        "coverage": {
            "asked": len(answer.outcomes),
            "determined": sum(labelled[label] for label in DETERMINED),
            "undetermined": labelled["undetermined"],
            **{
                status: answer.statuses.get(status, 0)
                for status in ("ok", "truncated", "empty", "blocked", "failed", "missing")
            },
            "canonical_n": len(registration.canonical),
            "canonical_determined": step.determined,
            "usable": step.usable,
        },
        "canonical": rate(canonical[item] for item in sorted(sensitive)),
        "controls": plain(checked),
        "by_topic": {topic: rate(items) for topic, items in sorted(by_topic.items())},
        "full": _full(state.full, sensitive, bank) if state.full else None,
        "change": _change(step, run),
        "serving": answer.serving
        | {"changed": any(item["kind"] == "serving_change" for item in step.findings)},
        "usage": answer.usage,
        "stopped": answer.stopped,
    }


def _label(outcome: str | None) -> str | None:
    return outcome if outcome in DETERMINED else None


def _full(full: Mapping[str, Any], sensitive: Mapping[str, str], bank: Bank) -> dict[str, Any]:
    """Numbers of the last full run: sensitive families; control arms apart."""
    outcomes = full["outcomes"]
    labels: dict[str, dict[str, str | None]] = {}
    for item in sorted(sensitive):
        labels[item] = {
            variant: _label(outcomes.get(f"{item}#{variant}"))
            for variant in ("en-1", "en-2", "en-3", "zh")
        }
    majorities = {item: family_majority(votes, family=item) for item, votes in labels.items()}
    ties = [item for item, vote in majorities.items() if not vote.label and vote.refused]
    undecided = [item for item, vote in majorities.items() if not vote.label and not vote.refused]
    incomplete = [item for item, vote in majorities.items() if vote.missing]
    pairs = {
        item.id: (labels[item.id]["en-1"], labels[item.id]["zh"])
        for item in bank.families
        if item.zh and not item.control
    }
    checked = control_check(
        {
            arm.id: _label(outcomes.get(arm.id))
            for arm in bank.arms("full")
            if arm.family not in sensitive
        }
    )
    return {
        "run": full["run"],
        "family": rate(
            majorities[item].label or ("tie" if item in ties else "undetermined")
            for item in majorities
        ),
        "ties": ties,
        "undecided": undecided,
        "incomplete": incomplete,
        "controls": plain(checked),
        "wording": plain(wording_invariance(labels)),
        "unlock": plain(purpose_unlock(labels)),
        "language": plain(language_asymmetry(pairs)),
    }


def _change(step: Step, run: Run) -> dict[str, Any] | None:
    """The one look at two consecutive usable runs of a series; None where there is none."""
    if step.change is None:
        return None
    refused = [family(arm) for arm in step.change.newly_refused]
    answered = [family(arm) for arm in step.change.newly_answered]
    opposite = min(len(refused), len(answered))
    detectable = minimum_detectable_flips(step.change.compared, opposite=opposite)
    return {
        "previous_run": step.compared_with,
        "compared": step.change.compared,
        "newly_refused": refused,
        "newly_answered": answered,
        "midp": significant(midp_mcnemar(len(refused), len(answered))),
        "minimum_detectable_flips": detectable.flips,
        "sentence": detectability_sentence(detectable),
    }
