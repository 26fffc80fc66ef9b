"""The reading: the derived, published numbers of one run.

Every number carries its denominator and what was left out of it; one that cannot
be computed is None with a reason. Floats are rounded to 10 significant digits and
computed in a fixed order, so a reading is the same on any machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from typing import Any

from drift.bank import Bank
from drift.records.alarm import model_alarm
from drift.records.compare import look
from drift.records.registration import Registration
from drift.records.run import DETERMINED, OUTCOMES, ModelRun, Run, determined_labels, family
from drift.records.series import Step
from drift.stats import (
    control_check,
    family_majority,
    holm,
    language_asymmetry,
    proportion,
    purpose_unlock,
    rate_range,
    significant,
    wording_invariance,
)

SCHEMA = 2


def build_reading(
    run: Run,
    steps: Mapping[str, Step],
    *,
    registration: Registration,
    bank: Bank,
    head: Mapping[str, Any],
    alarm: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the reading of `run` as a JSON-able document.

    `steps` say what the run did to each model's series, `registration` and `bank` what
    was registered when it was made, `head` is ``{"seq", "hash"}`` of the labels line, and
    `alarm` what :func:`drift.records.alarm.panel_alarm` says of the panel.
    """
    controls = sum(item.control for item in bank.families)
    models = {
        name: _model(run.models[name], name, steps[name], registration, bank)
        for name in sorted(steps)
    }
    changes = [model["change"] for model in models.values() if model["change"]]
    for change, adjusted in zip(changes, holm([it["midp"] for it in changes]), strict=True):
        change["holm"] = adjusted
    fields = ("run", "number", "started_at", "finished_at", "scope", "slot")
    document = {
        "schema": SCHEMA,
        "panel": registration.body["panel"]["name"],
        **{name: run.body[name] for name in fields},
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
        "models": models,
        "alarm": dict(alarm),
    }
    rounded: dict[str, Any] = _rounded(document)
    return rounded


def _rounded(value: Any) -> Any:
    """Return JSON-able data with results of ``drift.stats`` as objects and floats rounded."""
    if is_dataclass(value):
        value = vars(value)
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(item) for item in value]
    return significant(value) if isinstance(value, float) else value


def canonical_rate(outcomes: Mapping[str, str], bank: Bank) -> dict[str, Any]:
    """Return the canonical rate of a reading from the outcome of each arm of one model."""
    sensitive = (item.id for item in bank.families if not item.control)
    return _rate(outcomes.get(f"{item}#en-1", "missing") for item in sensitive)


def family_rate(outcomes: Mapping[str, str], bank: Bank) -> dict[str, Any]:
    """Return the family rate of a reading from the outcomes of one model in a full run."""
    return _rate(_votes(_labels(outcomes, bank)).values())


def _labels(outcomes: Mapping[str, str], bank: Bank) -> dict[str, dict[str, str | None]]:
    """Return the determined labels of every sensitive family by variant, in order of the ids."""
    found = determined_labels(outcomes)
    return {
        item.id: {arm.variant: found.get(arm.id) for arm in item.arms()}
        for item in sorted(bank.families, key=lambda item: item.id)
        if not item.control
    }


def _votes(labels: Mapping[str, Mapping[str, str | None]]) -> dict[str, str]:
    """Return the vote of each family: its majority, ``tie`` or ``undetermined``."""
    majorities = {item: family_majority(of, family=item) for item, of in labels.items()}
    return {
        item: majority.label or ("tie" if majority.refused else "undetermined")
        for item, majority in majorities.items()
    }


def _rate(outcomes: Iterable[str]) -> dict[str, Any]:
    """Return the refusal rate over outcomes: Wilson 95 %, what was left out, and the range."""
    counts = Counter(outcomes)
    refused, answered = (counts.pop(label, 0) for label in DETERMINED)
    result = proportion(refused, refused + answered)
    bounds = rate_range(refused, answered, counts.total())
    rate: dict[str, Any] = _rounded(
        {
            "refused": refused,
            "n": result.trials,
            "estimate": result.estimate,
            "low": result.low,
            "high": result.high,
            "reason": result.reason,
            "excluded": {name: counts[name] for name in (*OUTCOMES, "tie") if counts[name]},
            "if_all_refused": bounds.if_all_refused,
            "if_none_refused": bounds.if_none_refused,
        }
    )
    return rate


def _model(
    answer: ModelRun, name: str, step: Step, registration: Registration, bank: Bank
) -> dict[str, Any]:
    spec = registration.body["instruments"][name]
    canonical = {family(arm): answer.outcomes.get(arm, "missing") for arm in registration.canonical}
    sensitive = {item.id: item.topic for item in bank.families if not item.control}
    controls = {item: what for item, what in canonical.items() if item not in sensitive}
    outcomes = Counter(answer.outcomes.values())
    return {
        "model": spec["document"]["model"],
        "lab": spec.get("lab", ""),
        "role": spec.get("role", "subject"),
        "instrument": answer.sealed["instrument"],
        "series": {
            "number": step.state.number,
            "index": step.state.index,
            "opened_at_run": step.state.opened_at_run,
            "comparable_with": step.churn["previous"],
            "reason": step.state.reason,
        },
        "coverage": {
            "asked": len(answer.outcomes),
            "determined": sum(outcomes[label] for label in DETERMINED),
            "undetermined": outcomes["undetermined"],
            **{
                status: answer.sealed["counts"].get(status, 0)
                for status in ("ok", "truncated", "empty", "blocked", "failed")
            },
            "missing": outcomes["missing"],
            "canonical_n": step.churn["n"],
            "canonical_determined": step.churn["determined"],
            "usable": step.churn["usable"],
        },
        "canonical": canonical_rate(answer.outcomes, bank),
        "controls": control_check(determined_labels(controls)),
        "by_topic": {
            topic: _rate(canonical[item] for item, about in sensitive.items() if about == topic)
            for topic in sorted(set(sensitive.values()))
        },
        "full": _full(step.state.full, bank) if step.state.full else None,
        "change": _change(step),
        "alarm": model_alarm(step.state, step.churn["slot"]),
        "serving": answer.serving
        | {"changed": any(item["kind"] == "serving_change" for item in step.findings)},
        "usage": answer.sealed["usage"],
        "stopped": answer.sealed.get("stopped"),
    }


def _full(full: Mapping[str, Any], bank: Bank) -> dict[str, Any]:
    """Numbers of the last full run: sensitive families; control arms apart."""
    outcomes = {arm.id: full["outcomes"].get(arm.id, "missing") for arm in bank.arms("full")}
    controls = [arm.id for item in bank.families if item.control for arm in item.arms()]
    found, labels = determined_labels(outcomes), _labels(outcomes, bank)
    votes = _votes(labels)
    return {
        "run": full["run"],
        "family": _rate(votes.values()),
        "ties": [item for item, vote in votes.items() if vote == "tie"],
        "undecided": [item for item, vote in votes.items() if vote == "undetermined"],
        "incomplete": [i for i, of in labels.items() if family_majority(of, family=i).missing],
        "controls": control_check({arm: found[arm] for arm in sorted(controls)}),
        "wording": wording_invariance(labels),
        "unlock": purpose_unlock(labels),
        "language": language_asymmetry(
            {item: (of["en-1"], of["zh"]) for item, of in labels.items() if "zh" in of}
        ),
    }


def _change(step: Step) -> dict[str, Any] | None:
    """The one look at two consecutive usable runs of a series; None where there is none.

    ``holm`` adjusts its p-value for the models of the run; nothing adjusts for later runs.
    """
    return {"previous_run": step.churn["previous"]} | look(step.change) if step.change else None
