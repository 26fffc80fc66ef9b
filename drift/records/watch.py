"""The alarm of one model: its watches, folded run by run.

A watch belongs to one series. What it computes is in :mod:`drift.stats`; here is which
run enters it, what is kept between runs, and what is published of it. The state kept is
bounded, so a run costs the same after ten years as on the first day.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from drift.records.registration import Registration
from drift.records.run import Run, family
from drift.stats import (
    Conformal,
    Count,
    Mixture,
    Restart,
    burst_count,
    enters,
    home_count,
    pair_count,
    significant,
    uniform,
    union_threshold,
)

#: Consecutive unusable runs after which the state is shown as blind.
BLIND_AFTER = 4
CONFORMAL, LIKELIHOOD = ("home", "pairs", "coverage"), ("mixture", "restart", "burst")
LEVELS = ("watch", "alarm")
#: Processes that are read at the alarm's threshold alone: a companion and a notice.
ONE_LEVEL = ("pairs", "burst")
#: Labels are kept as one letter an arm; an outcome that is not determined is ``-``.
_LETTERS = {"answered": "a", "refused": "r"}
_CODES = np.full(256, -1, np.int8)
_CODES[[ord("a"), ord("r")]] = 0, 1


@dataclass(frozen=True)
class Epoch:
    """Over which models the union bound of the panel is spread.

    ``size`` is M: the models of the registration and the slots it reserves. ``models`` are
    those that have had their first watch; later watches are outside the bound. A
    registration with another M begins a new epoch with a bound of its own.
    """

    number: int = 0
    size: int = 0
    models: tuple[str, ...] = ()

    def under(self, registration: Registration) -> Epoch:
        """Return the epoch that a run under `registration` belongs to."""
        panel = registration.body["panel"]
        size = panel["size"] + panel["reserved_slots"]
        return self if size == self.size else Epoch(self.number + 1, size)

    def bound_of(self, model: str) -> int | None:
        """Return M if a watch of `model` opened now is within the bound, else None."""
        within = model not in self.models and len(self.models) < self.size
        return self.size if within else None

    def joined(self, models: Iterable[str]) -> Epoch:
        """Return the epoch after watches of `models` were opened."""
        new = [model for model in models if self.bound_of(model)]
        return replace(self, models=(*self.models, *new))


@dataclass(frozen=True)
class Watch:
    """One series under the alarm.

    ``runs`` counts its usable runs, so the next one is r = ``runs``. ``panel`` is M where the
    watch is within the panel's bound, else None. ``entered`` names the run of each crossing,
    such as ``home watch``: entered only at a count above 0, and for good. ``gap`` is the
    longest row of missed slots, ``highest`` the greatest E of each process.
    """

    series: int
    opened: str
    role: str
    panel: int | None
    thresholds: tuple[float, float]
    home: Conformal
    pairs: Conformal
    coverage: Conformal
    mixture: Mixture
    restart: Restart
    burst: Restart
    runs: int = 0
    gap: int = 0
    entered: dict[str, str] = field(default_factory=dict)
    highest: dict[str, float] = field(default_factory=dict)

    @classmethod
    def begin(
        cls, series: int, run: str, model: str, panel: int | None, registration: Registration
    ) -> Watch:
        """Open the watch of a series at `run` with the registered parameters."""
        spec, n = registration.body["alarm"], len(registration.canonical)
        powers = tuple(map(float, spec["power_grid"]))
        odds = tuple(map(float, spec["restart"]["odds"]))
        begun: dict[str, Any] = {"mixture": Mixture(burn_in=spec["mixture"]["burn_in"])}
        for name in (*CONFORMAL, "restart", "burst"):
            frame = {"burn_in": spec[name]["burn_in"], "horizon": spec[name]["horizon"]}
            begun[name] = (
                Conformal(n=n, powers=powers, **frame)
                if name in CONFORMAL
                else Restart(odds=odds, **frame)
            )
        levels = float(spec["watch"]), float(spec["alarm"])
        role = registration.body["instruments"][model]["role"]
        return cls(series, run, role, panel, levels, **begun)

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Watch:
        """Return the watch whose ``asdict`` was stored as JSON."""
        kinds: dict[str, Any] = dict.fromkeys(CONFORMAL, Conformal)
        kinds |= {"mixture": Mixture, "restart": Restart, "burst": Restart}
        states = {name: kind(**document[name]) for name, kind in kinds.items()}
        return cls(**{**document, **states, "thresholds": tuple(document["thresholds"])})

    @property
    def ended(self) -> str | None:
        """Why a fresh baseline is due; None while the watch goes on."""
        if "home alarm" in self.entered:
            return f"series {self.series} entered alarm in run {self.entered['home alarm']}"
        if self.home.over:
            return f"series {self.series} reached its horizon of {self.home.horizon} bets"
        return None

    @property
    def awaited(self) -> tuple[str, ...]:
        """What goes on beside a fresh baseline: ``pairs`` until it confirms the alarm, and
        ``home`` until it has reached the panel's threshold as well; each to its horizon.
        """
        if "home alarm" not in self.entered:
            return ()
        open_yet = {"pairs": "pairs alarm", "home": "panel alarm" if self.panel else "home alarm"}
        return tuple(
            process
            for process, last in open_yet.items()
            if last not in self.entered and not getattr(self, process).over
        )

    def state(self, process: str = "home") -> str:
        """Return the state of a process: ``calibrating``, ``quiet``, ``watch`` or ``alarm``."""
        for level in reversed(LEVELS):
            if f"{process} {level}" in self.entered:
                return level
        return "quiet" if getattr(self, process).calibrated else "calibrating"

    def thresholds_of(self, process: str) -> dict[str, float]:
        """Return the thresholds of a process by the name of what crossing them enters."""
        levels = list(zip(LEVELS, self.thresholds, strict=True))[process in ONE_LEVEL :]
        found = {f"{process} {level}": threshold for level, threshold in levels}
        if process == "home" and self.panel:
            found |= {f"panel {level}": union_threshold(c, self.panel) for level, c in levels}
        return found

    def summary(self, closed: str | None = None) -> dict[str, Any]:
        """Return what stays on record of the watch for ever; `closed` says why its series was."""
        kept = ("series", "opened", "role", "panel", "runs", "gap", "entered", "highest")
        found = {name: getattr(self, name) for name in kept}
        state = {"state": self.state(), "ended": closed or self.ended}
        return found | state | {"horizon": self.home.horizon}

    def bet(self, process: str, change: Count, step: _Step) -> Watch:
        """Give one count to one process, if it makes a value; `step` collects what is shown."""
        state: Any = getattr(self, process)
        count: int | None = change.raw if change.arms else None
        if process in CONFORMAL:
            count = change.value(state.n)
        if count is None or (process != "mixture" and state.over):
            return self
        row: dict[str, Any]
        if process in CONFORMAL:
            state = state.step(count, step.draw(self.series, process, state.seen + 1))
            row = {"D": count, "m": change.arms, "P": significant(state.p)}
        else:
            state = state.step(count, change.arms)
            row = {"flips": count, "compared": change.arms, "p0": state.p0}
        evidence = state.evidence
        row |= {"E": significant(evidence)}
        if process not in ("restart", "coverage"):  # their arms are those of mixture, and missing
            row["changed"] = sorted(family(step.arms[column]) for column in change.changed)
        step.values[self.series, process] = row
        after = replace(self, **{process: state})
        if evidence is None:
            return after
        for name, threshold in self.thresholds_of(process).items():
            if name not in self.entered and enters(evidence, count, threshold):
                step.entries.append((self.series, name, evidence))
                after = replace(after, entered=after.entered | {name: step.run.id})
        highest = max(significant(evidence) or 0.0, self.highest.get(process, 0.0))
        return replace(after, highest=after.highest | {process: highest})


@dataclass(frozen=True)
class Alarm:
    """What is kept of one model's alarm between runs.

    ``window`` holds the labels of the last usable runs, one letter an arm in the order of
    the arms' ids. The last of ``live`` is the present watch; those before it have entered
    alarm and go on with what is awaited of them. ``past`` are the summaries of those that are
    over. ``slot`` is that of the last run that entered, ``silent`` the last one in which
    nothing was heard of the model, so far.
    """

    slot: int | None = None
    silent: int | None = None
    unusable: int = 0
    window: tuple[str, ...] = ()
    live: tuple[Watch, ...] = ()
    past: tuple[dict[str, Any], ...] = ()

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Alarm:
        """Return the alarm whose ``asdict`` was stored as JSON."""
        live, past = tuple(map(Watch.read, document["live"])), tuple(document["past"])
        window = tuple(document["window"])
        return cls(**{**document, "live": live, "past": past, "window": window})

    def enters(self, run: Run, model: str) -> bool:
        """Tell whether a run enters the alarm: the first of its slot that asked the model."""
        slot = run.body["slot"]
        asked = any(what != "missing" for what in run.models[model].outcomes.values())
        return slot is not None and asked and (self.slot is None or slot > self.slot)

    def unheard(self, slot: int) -> Alarm:
        """Return the alarm after a run without any answer: once a slot, towards blindness."""
        if slot in (self.slot, self.silent):
            return self
        return replace(self, silent=slot, unusable=self.unusable + 1)

    def opened(self, watch: Watch) -> Alarm:
        """Open a watch; an earlier one of which something is awaited goes on beside it."""
        over = tuple(item.summary() for item in self.live if not item.awaited)
        waiting = tuple(item for item in self.live if item.awaited)
        return replace(self, live=(*waiting, watch), past=(*self.past, *over))

    def closed(self, why: str, slot: int | None) -> Alarm:
        """End every watch: the instrument, or what was asked or judged, has changed."""
        over = tuple(watch.summary(why) for watch in self.live)
        return Alarm(slot=slot, past=(*self.past, *over))

    def summaries(self) -> list[dict[str, Any]]:
        """Return all watches that were ever opened, in the order of their series."""
        found = [*self.past, *(watch.summary() for watch in self.live)]
        return sorted(found, key=lambda item: int(item["series"]))


@dataclass
class _Step:
    """One run on its way through the watches of a model, and what it leaves."""

    run: Run
    arms: list[str]
    draw: Callable[[int, str, int], float]
    values: dict[tuple[int, str], dict[str, Any]] = field(default_factory=dict)
    entries: list[tuple[int, str, float]] = field(default_factory=list)


@dataclass(frozen=True)
class Taken:
    """What a run did to a model's alarm.

    ``row`` is what ``churn.jsonl`` holds of it; ``entries`` are the states entered, each as
    (series, name, E); ``calibrated`` says of each process whose burn-in ended what it froze.
    """

    alarm: Alarm
    row: dict[str, Any]
    entries: list[tuple[int, str, float]]
    calibrated: dict[str, Any]


def take(
    alarm: Alarm,
    run: Run,
    model: str,
    outcomes: Mapping[str, str],
    *,
    usable: bool,
    registration: Registration,
) -> Taken:
    """Let a run that enters the alarm into the watches of `model`.

    `outcomes` holds all canonical arms. An unusable run is as if absent, except for the
    coverage watch and for blindness.
    """
    seed, panel = registration.body["alarm"]["seed"], registration.body["panel"]["name"]
    step = _Step(run, sorted(outcomes), partial(uniform, seed, panel, model))
    labels = "".join(_LETTERS.get(outcomes[arm], "-") for arm in step.arms)
    rows = _CODES[[list(row.encode()) for row in (*alarm.window, labels)]]
    *waiting, before = alarm.live
    gap = 0 if alarm.slot is None else run.body["slot"] - alarm.slot - 1
    open_arms = tuple(i for i, letter in enumerate(labels) if letter == "-")
    watch = before.bet("coverage", Count(len(labels), open_arms), step)
    if usable:
        for process, change in _changes(rows, before.runs):
            watch = watch.bet(process, change, step)
        watch = replace(watch, runs=watch.runs + 1)
        for place, other in enumerate(waiting):
            for process, change in _changes(rows, other.runs):
                if process in other.awaited:
                    other = other.bet(process, change, step)
            waiting[place] = replace(other, runs=other.runs + 1)
    watch = replace(watch, gap=max(watch.gap, gap))
    kept = int(registration.body["alarm"]["home"]["window"])
    again = run.body["slot"] == alarm.silent
    now = Alarm(
        slot=run.body["slot"],
        unusable=0 if usable else alarm.unusable + (not again),
        window=(*alarm.window, labels)[-kept:] if usable else alarm.window,
        live=(*waiting, watch),
        past=alarm.past,
    )
    own_values = {name: step.values.get((watch.series, name)) for name in (*CONFORMAL, *LIKELIHOOD)}
    row = {
        "r": watch.runs - 1 if usable else None,
        "gap": gap,
        "state": watch.state(),
        "blind": now.unusable >= BLIND_AFTER,
        **own_values,
        "earlier": [
            {"series": series, "process": process} | value
            for (series, process), value in step.values.items()
            if series != watch.series
        ],
    }
    calibrated = {
        name: _frozen(getattr(watch, name))
        for name in (*CONFORMAL, *LIKELIHOOD)
        if getattr(watch, name).calibrated and not getattr(before, name).calibrated
    }
    return Taken(now, row, step.entries, calibrated)


def _changes(rows: Any, r: int) -> Iterator[tuple[str, Count]]:
    """Yield the counts that run r of a series makes; `rows` end with its own labels."""
    rows = rows[-1 - min(r, len(rows) - 1) :]
    if r >= 1:
        flips = pair_count(rows[-2], rows[-1])
        yield "mixture", flips
        yield "restart", flips
        if r % 2:
            yield "pairs", flips
    if r >= 2:
        yield "home", home_count(rows[:-1], rows[-1])
    if r >= 3:
        yield "burst", burst_count(rows[-4:])


def _frozen(state: Conformal | Mixture | Restart) -> dict[str, Any]:
    """Return what a burn-in leaves behind, fit for the ledger."""
    if isinstance(state, Conformal):
        return {"values": state.seen, "histogram": list(state.histogram)}
    p0 = None if state.p0 is None else f"{state.p0:.12g}"
    return {"flips": state.burn_flips, "compared": state.burn_compared, "p0": p0}
