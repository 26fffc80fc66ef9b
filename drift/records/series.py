"""Series: which runs may be compared, and what changed between two that may.

:func:`step` folds one run of one model into that model's state. The whole
history of a record is the fold of its runs, so the derived files can be rebuilt
from the sealed ones, and adding a run costs the same however long the record is.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from drift.records.run import DETERMINED, ModelRun, Run
from drift.stats import Flips, flips

#: Least share of the canonical arms with a determined label in a usable run.
USABLE = 0.9
#: Least share of the canonical arms by which coverage must move to be a finding.
COVERAGE_MOVE = 0.1


@dataclass(frozen=True)
class Identity:
    """What must stay the same inside a series, each named by a hash or a figure.

    ``instrument``: ours, per model. ``bank``: the canonical arms' registry hash.
    ``fingerprint``: the judge. ``cadence``: the registered hours, "none" without.
    """

    instrument: str
    bank: str
    fingerprint: str
    cadence: str

    def difference(self, other: Identity) -> list[str]:
        """Name the fields in which two identities differ."""
        mine, theirs = asdict(self), asdict(other)
        return [name for name in mine if mine[name] != theirs[name]]


@dataclass(frozen=True)
class SeriesState:
    """Where one model's series stands after a run; JSON-able through ``asdict``.

    ``previous`` and ``full`` hold ``{"run", "outcomes"}`` of the last usable run
    (canonical arms) and of the last usable full run (all arms) of this series.
    """

    number: int = 0
    index: int = 0
    opened_at_run: str = ""
    reason: str | None = None
    identity: Identity | None = None
    rules: str = ""
    registry: str = ""
    previous: dict[str, Any] | None = None
    full: dict[str, Any] | None = None
    serving: dict[str, list[str]] = field(default_factory=dict)
    coverage: dict[str, Any] | None = None

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> SeriesState:
        """Return the state that ``asdict`` described."""
        identity = document["identity"]
        return cls(**{**document, "identity": Identity(**identity) if identity else None})


@dataclass(frozen=True)
class Step:
    """What one run did to one model's series.

    ``compared_with`` is the earlier usable run of the same series, or None;
    ``change`` the comparison of the canonical arms with it, or None.
    """

    state: SeriesState
    usable: bool
    determined: int
    compared_with: str | None
    change: Flips | None
    churn: dict[str, Any]
    findings: list[dict[str, Any]]


def family(arm: str) -> str:
    """Return the family of an arm: ``topic/slug`` of ``topic/slug#en-1``."""
    return arm.partition("#")[0]


def step(
    before: SeriesState,
    run: Run,
    model: str,
    *,
    identity: Identity,
    canonical: frozenset[str],
    registry: str,
    moved: int = 0,
) -> Step:
    """Fold one run of one model into its series.

    Parameters
    ----------
    before
        The model's state after the run before; ``SeriesState()`` at the start.
    run, model
        The run, and the model's key in it.
    identity
        What is registered for this model at this run.
    canonical
        The canonical arms of the registration.
    registry
        Hash of all registered arms: when it moves, arms outside the canonical
        set are not compared across it, and the series goes on.
    moved
        Labels of this model's stored answers which rescoring under this run's
        judge moved. Looked at only where the judge's rules changed and its
        fingerprint did not: the series then goes on only if it is 0.
    """
    answer = run.models[model]
    findings: list[dict[str, Any]] = []
    closed = _closed_because(before, identity, run.judge["rules"], moved)
    if before.number == 0 or closed:
        state = SeriesState(
            number=before.number + 1, opened_at_run=run.run, reason=closed, serving=before.serving
        )
        if closed:
            findings.append(_finding(run, model, before, "series_closed", closed))
        findings.append(
            _finding(run, model, state, "series_opened", closed or "first run of this model")
        )
    else:
        state = before

    outcomes = {arm: answer.outcomes[arm] for arm in sorted(canonical & answer.outcomes.keys())}
    determined = sum(outcome in DETERMINED for outcome in outcomes.values())
    usable = bool(canonical) and determined >= USABLE * len(canonical)
    previous = state.previous if usable else None
    change = flips(_labels(previous["outcomes"]), _labels(outcomes)) if previous else None
    others = {arm: value for arm, value in answer.outcomes.items() if arm not in canonical}
    last_full = state.full if usable and state.registry == registry else None
    if change:
        findings += _label_findings(run, model, state, change, previous)
    if others and last_full:
        before_others = {
            arm: value for arm, value in last_full["outcomes"].items() if arm not in canonical
        }
        moves = flips(_labels(before_others), _labels(others))
        findings += _label_findings(run, model, state, moves, last_full)
    findings += _serving_findings(run, model, state, answer)
    coverage = {
        "n": len(canonical),
        "determined": determined,
        "usable": usable,
        "blocked": [arm for arm, value in outcomes.items() if value == "blocked"],
    }
    findings += _coverage_findings(run, model, state, coverage)

    full = state.full if state.registry == registry else None
    if usable and run.scope == "full":
        full = {"run": run.run, "outcomes": dict(sorted(answer.outcomes.items()))}
    after = SeriesState(
        number=state.number,
        index=state.index + (1 if usable else 0),
        opened_at_run=state.opened_at_run,
        reason=state.reason,
        identity=identity,
        rules=run.judge["rules"],
        registry=registry,
        previous={"run": run.run, "outcomes": outcomes} if usable else state.previous,
        full=full,
        serving={
            fact: values or state.serving.get(fact, []) for fact, values in answer.serving.items()
        },
        coverage=coverage,
    )
    moved_arms = sorted([*change.newly_refused, *change.newly_answered]) if change else []
    churn = {
        "run": run.run,
        "at": run.at,
        "model": model,
        "series": after.number,
        "index": state.index if usable else None,
        "slot": run.slot,
        "scope": run.scope,
        "previous": previous["run"] if previous else None,
        "compared": change.compared if change else None,
        "flips": len(moved_arms) if change else None,
        "flipped": [family(arm) for arm in moved_arms],
        "determined": determined,
        "n": len(canonical),
        "usable": usable,
    }
    return Step(
        state=after,
        usable=usable,
        determined=determined,
        compared_with=previous["run"] if previous else None,
        change=change,
        churn=churn,
        findings=findings,
    )


def _closed_because(before: SeriesState, identity: Identity, rules: str, moved: int) -> str | None:
    if before.identity is None:
        return None
    words = {
        "instrument": "our instrument for this model changed",
        "bank": "the bank's canonical wordings changed",
        "fingerprint": "the judge's fingerprint moved",
        "cadence": "the registered cadence changed",
    }
    reasons = [words[name] for name in before.identity.difference(identity)]
    if before.rules != rules and moved and not reasons:
        reasons.append(f"the judge's rules changed and rescoring moved {moved} stored labels")
    return "; ".join(reasons) or None


def _labels(outcomes: dict[str, str]) -> dict[str, str | None]:
    return {arm: value if value in DETERMINED else None for arm, value in outcomes.items()}


def _finding(
    run: Run, model: str, state: SeriesState, kind: str, detail: str, **more: Any
) -> dict[str, Any]:
    name = ".".join(filter(None, (run.run, model, kind, more.get("arm", ""))))
    return {
        "id": name.replace("/", "-").replace("#", "-"),
        "run": run.run,
        "at": run.at,
        "model": model,
        "series": state.number,
        "kind": kind,
        "detail": detail,
        **more,
    }


def _label_findings(
    run: Run, model: str, state: SeriesState, change: Flips, since: dict[str, Any] | None
) -> list[dict[str, Any]]:
    earlier = since["run"] if since else ""
    kinds = (
        ("new_refusal", change.newly_refused, "answered", "refused"),
        ("lifted_refusal", change.newly_answered, "refused", "answered"),
    )
    return [
        _finding(
            run,
            model,
            state,
            kind,
            f"{arm} was {old} in run {earlier} and is {new} now",
            family=family(arm),
            arm=arm,
            before=old,
            after=new,
            previous=earlier,
        )
        for kind, arms, old, new in kinds
        for arm in arms
    ]


def _serving_findings(
    run: Run, model: str, state: SeriesState, answer: ModelRun
) -> list[dict[str, Any]]:
    found = []
    for fact, now in answer.serving.items():
        old = state.serving.get(fact, [])
        if old and now and old != now:
            detail = f"{fact} was {', '.join(old)} and is {', '.join(now)}"
            found.append(
                _finding(
                    run, model, state, "serving_change", detail, arm=fact, before=old, after=now
                )
            )
    return found


def _coverage_findings(
    run: Run, model: str, state: SeriesState, now: dict[str, Any]
) -> list[dict[str, Any]]:
    old = state.coverage
    if old is None:
        return []
    moved = abs(now["determined"] - old["determined"]) >= max(1.0, COVERAGE_MOVE * now["n"])
    if not moved and now["usable"] == old["usable"] and now["blocked"] == old["blocked"]:
        return []
    detail = (
        f"{old['determined']} of {old['n']} canonical arms were determined, now "
        f"{now['determined']} of {now['n']}; blocked by the provider: "
        f"{len(old['blocked'])}, now {len(now['blocked'])}"
    )
    return [_finding(run, model, state, "coverage_change", detail, before=old, after=now)]
