"""Series: which runs may be compared, and what changed between two that may.

:func:`step` folds one run of one model into that model's state. The whole
history of a record is the fold of its runs, so the derived files can be rebuilt
from the sealed ones, and adding a run costs the same however long the record is.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from drift.records.registration import Registration
from drift.records.run import DETERMINED, Run, determined_labels, family
from drift.records.watch import Alarm, Epoch, Watch, take
from drift.stats import Flips, flips

#: Least share of the canonical arms by which coverage must move to be a finding.
COVERAGE_MOVE = 0.1

_CLOSING = {
    "instrument": "our instrument for this model changed",
    "bank": "the bank's canonical wordings changed",
    "fingerprint": "the judge's fingerprint moved",
    "cadence": "the registered cadence changed",
    "alarm": "the alarm's parameters changed",
}


@dataclass(frozen=True)
class SeriesState:
    """Where one model's series stands after a run, as ``series.json`` holds it.

    ``identity`` is :meth:`Registration.identity`. ``previous`` and ``full`` hold
    ``{"run", "outcomes"}`` of the last usable run (canonical arms) and of the last
    usable full run (all arms) of this series.
    """

    number: int = 0
    index: int = 0
    opened_at_run: str = ""
    reason: str | None = None
    identity: dict[str, str] | None = None
    rules: str = ""
    registry: str = ""
    previous: dict[str, Any] | None = None
    full: dict[str, Any] | None = None
    serving: dict[str, list[str]] = field(default_factory=dict)
    coverage: dict[str, Any] | None = None
    alarm: Alarm = field(default_factory=Alarm)

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> SeriesState:
        """Return the state that was stored as JSON."""
        return cls(**{**document, "alarm": Alarm.read(document["alarm"])})


@dataclass(frozen=True)
class Step:
    """What one run did to one model's series.

    ``change`` compares the canonical arms with the run that ``churn["previous"]``
    names, the last usable one of the series; it is None where there is none. ``baselines``
    are the bodies of the ledger lines that this run calls for; ``watched`` tells whether it
    opened a watch.
    """

    state: SeriesState
    change: Flips | None
    churn: dict[str, Any]
    findings: list[dict[str, Any]]
    baselines: list[dict[str, Any]]
    watched: bool


def step(
    before: SeriesState, run: Run, model: str, registration: Registration, epoch: Epoch
) -> Step:
    """Fold one run of one model into its series.

    `before` is the model's state after the run before (``SeriesState()`` at the start),
    `registration` the one under which the run was made, `epoch` the panel's, with the
    models that have a watch already.
    """
    canonical, registry = registration.canonical, registration.registry
    answers, serving = run.models[model].outcomes, run.models[model].serving
    identity, rules = registration.identity(model), run.judge["rules"]
    outcomes = {arm: answers[arm] for arm in sorted(canonical & answers.keys())}
    determined = sum(outcome in DETERMINED for outcome in outcomes.values())
    share = Decimal(registration.body["alarm"]["usable_share"])
    usable = bool(canonical) and determined >= share * len(canonical)

    state, closed = before, _closed_because(before, identity, rules, registration.moved(model))
    findings, baselines = [], []
    due = None
    if closed:
        findings.append(_finding(run, model, before.number, "series_closed", closed))
        baselines.append(_baseline("closed", run, model, before.number, reason=closed))
        same = before.identity and before.identity["cadence"] == identity["cadence"]
        alarm = before.alarm.closed(closed, before.alarm.slot if same else None)
        state = SeriesState(before.number, serving=before.serving, alarm=alarm)
    enters = state.alarm.enters(run, model)
    if usable and enters and state.alarm.live:
        due = state.alarm.live[-1].ended
    watched = False
    if closed or due or not before.number:
        number = before.number + 1
        state = replace(state, number=number, index=0, opened_at_run=run.id, reason=closed or due)
        why = state.reason or "first run of this model"
        findings.append(_finding(run, model, number, "series_opened", why))
        baselines.append(_baseline("opened", run, model, number, reason=why))
        watched = run.body["slot"] is not None
        if watched:
            watch = Watch.begin(number, run.id, model, epoch.bound_of(model), registration)
            state = replace(state, alarm=state.alarm.opened(watch))

    coverage = {
        "n": len(canonical),
        "determined": determined,
        "usable": usable,
        "blocked": [arm for arm, outcome in outcomes.items() if outcome == "blocked"],
    }
    # Where the registry moved, arms outside the canonical set are not compared across it.
    full = state.full if state.registry == registry else None
    previous = state.previous if usable else None
    change = _compare(previous, answers, canonical)
    others = _compare(full if usable else None, answers, answers.keys() - canonical)
    for kind, detail, more in (
        *_label_findings(previous, change),
        *_label_findings(full, others),
        *_serving_findings(state.serving, serving),
        *_coverage_findings(state.coverage, coverage),
    ):
        findings.append(_finding(run, model, state.number, kind, detail, **more))
    taken = None
    if enters:
        whole = {arm: outcomes.get(arm, "missing") for arm in canonical}
        taken = take(state.alarm, run, model, whole, usable=usable, registration=registration)
        for series, name, evidence in taken.entries:
            more = {"arm": f"{name} {series}", "E": f"{evidence:.6g}"}
            detail = f"{name} entered: E = {evidence:.4g}"
            findings.append(_finding(run, model, series, "alarm_state", detail, **more))
        baselines += [
            _baseline("calibrated", run, model, state.number, process=process, **frozen)
            for process, frozen in taken.calibrated.items()
        ]
    flipped = sorted([*change.newly_refused, *change.newly_answered]) if change else []
    churn = {
        "run": run.id,
        "at": run.body["started_at"],
        "model": model,
        "series": state.number,
        "index": state.index if usable else None,
        "slot": run.body["slot"],
        "scope": run.body["scope"],
        "previous": previous["run"] if previous else None,
        "compared": change.compared if change else None,
        "flips": len(flipped) if change else None,
        "flipped": [family(arm) for arm in flipped],
        "determined": determined,
        "n": len(canonical),
        "usable": usable,
        "alarm": taken.row if taken else None,
    }
    if usable:
        if run.body["scope"] == "full":
            full = {"run": run.id, "outcomes": dict(sorted(answers.items()))}
        previous = {"run": run.id, "outcomes": outcomes}
        state = replace(state, index=state.index + 1, previous=previous)
    state = replace(
        state,
        identity=identity,
        rules=rules,
        registry=registry,
        full=full,
        serving={fact: now or state.serving.get(fact, []) for fact, now in serving.items()},
        coverage=coverage,
        alarm=taken.alarm if taken else _unheard(state.alarm, run, model),
    )
    return Step(state, change, churn, findings, baselines, watched)


def _unheard(alarm: Alarm, run: Run, model: str) -> Alarm:
    """Return the alarm after a run that did not enter it."""
    heard = any(what != "missing" for what in run.models[model].outcomes.values())
    return alarm if heard or run.body["slot"] is None else alarm.unheard(run.body["slot"])


def _baseline(event: str, run: Run, model: str, series: int, **more: Any) -> dict[str, Any]:
    """Return the body of a ledger line: a series opened or closed, a calibration ended."""
    return {"event": event, "model": model, "series": series, "run": run.id, **more}


def _closed_because(
    before: SeriesState, identity: dict[str, str], rules: str, moved: int
) -> str | None:
    """Say why the series ends before this run; None if it goes on.

    Other rules of the judge end it only if rescoring the stored answers moved a label.
    """
    if before.identity is None:
        return None
    changed = [why for name, why in _CLOSING.items() if before.identity[name] != identity[name]]
    if before.rules != rules and moved and not changed:
        return f"the judge's rules changed and rescoring moved {moved} stored labels"
    return "; ".join(changed) or None


def _compare(
    since: dict[str, Any] | None, outcomes: dict[str, str], arms: Collection[str]
) -> Flips | None:
    """Compare `arms` with the run `since`; None without it."""
    if since is None:
        return None
    then, now = (
        determined_labels({arm: of[arm] for arm in of if arm in arms})
        for of in (since["outcomes"], outcomes)
    )
    return flips(then, now)


#: Kind, detail and further fields of a finding.
_Found = Iterator[tuple[str, str, dict[str, Any]]]


def _label_findings(since: dict[str, Any] | None, change: Flips | None) -> _Found:
    if since is None or change is None:
        return
    for kind, arms, old, new in (
        ("new_refusal", change.newly_refused, "answered", "refused"),
        ("lifted_refusal", change.newly_answered, "refused", "answered"),
    ):
        for arm in arms:
            more = {"family": family(arm), "arm": arm, "before": old, "after": new}
            detail = f"{arm} was {old} in run {since['run']} and is {new} now"
            yield kind, detail, more | {"previous": since["run"]}


def _serving_findings(before: dict[str, list[str]], after: dict[str, list[str]]) -> _Found:
    for fact, now in after.items():
        old = before.get(fact)
        if old and now and old != now:
            detail = f"{fact} was {', '.join(old)} and is {', '.join(now)}"
            yield "serving_change", detail, {"arm": fact, "before": old, "after": now}


def _coverage_findings(old: dict[str, Any] | None, now: dict[str, Any]) -> _Found:
    if old is None:
        return
    moved = abs(now["determined"] - old["determined"]) >= max(1.0, COVERAGE_MOVE * now["n"])
    if moved or now["usable"] != old["usable"] or now["blocked"] != old["blocked"]:
        detail = (
            f"{old['determined']} of {old['n']} canonical arms were determined, now "
            f"{now['determined']} of {now['n']}; blocked by the provider: "
            f"{len(old['blocked'])}, now {len(now['blocked'])}"
        )
        yield "coverage_change", detail, {"before": old, "after": now}


def _finding(
    run: Run, model: str, series: int, kind: str, detail: str, **more: Any
) -> dict[str, Any]:
    name = ".".join(filter(None, (run.id, model, kind, more.get("arm"))))
    return {
        "id": re.sub("[/# ]", "-", name),
        "run": run.id,
        "at": run.body["started_at"],
        "model": model,
        "series": series,
        "kind": kind,
        "detail": detail,
        **more,
    }
