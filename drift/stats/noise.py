"""Which null does this record support? Its noise beside that of the stationary zoo."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from drift.stats.inputs import checked_count
from drift.stats.simulation import Counts, scaled
from drift.stats.zoo import BIT, SEED, ZOO

Values: TypeAlias = npt.NDArray[np.float64]
LEAST_TRANSITIONS: Final = 30
LEAST_FLIPS: Final = 10
WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_UNDEFINED: Final = {
    "churn": "no transition",
    "variance over mean": "fewer than two values, or no flip",
    "lag-1 autocorrelation": "fewer than three values, or all are equal",
    "share of return flips": "no flip with a transition before it",
    "median visit": "no arm left its usual label and came back",
}
_LOGARITHM: Final = np.array([True, True, False, False, True])  # of ratios and lengths


@dataclass(frozen=True)
class Statistic:
    """One statistic of a record; None, with a reason, if undefined."""

    name: str
    value: float | None
    reason: str | None = None


@dataclass(frozen=True)
class Weekday:
    """Flips at the transitions that end on one day of the week."""

    day: str
    transitions: int
    flips: int


@dataclass(frozen=True)
class Noise:
    """What the flips of one record look like; `nearest` has every member compared, by distance."""

    transitions: int
    flips: int
    statistics: tuple[Statistic, ...]
    weekdays: tuple[Weekday, ...]
    nearest: tuple[tuple[str, float], ...]
    resembles: str | None
    distance: float | None
    reason: str | None = None


def noise(
    flipped: Sequence[Collection[str]],
    compared: Sequence[int],
    dates: Sequence[date],
    *,
    n: int,
    lifetimes: int = 40,
    seed: int = SEED,
) -> Noise:
    """Describe the flips between adjacent usable runs, and name the member they resemble.

    Parameters
    ----------
    flipped, compared, dates
        For each transition: the arms that flipped, how many were compared, and the day (UTC)
        of its later run.
    n : int
        Canonical arms.
    lifetimes : int
        Simulated for each member, of the length of the record.

    Notes
    -----
    Churn is flips per compared arm. Variance over mean and autocorrelation are those of D,
    the flips scaled to n; independent flips give 1 - churn and 0. A return flip takes back
    the same arm's flip of the transition before: half of the flips if all are glitches of
    one run. A visit is a completed stretch of runs away from the label that an arm has in
    most runs of the record; the median is over all arms.
    The distance to a member is the root mean square, over the statistics the record has, of
    the difference from the mean of the member's lifetimes, in units of the standard deviation
    of a lifetime (the mean over members); ratios and lengths are compared by logarithm. A
    member is compared if half of its lifetimes or more have these statistics. The distance is
    a description without a level: the nearest member may be far. The weekday table does not
    enter it.
    """
    if not len(flipped) == len(compared) == len(dates):
        raise ValueError(
            f"one set of arms, count and date a transition,"
            f" got {len(flipped)}, {len(compared)} and {len(dates)}"
        )
    arms = sorted({arm for names in flipped for arm in names})
    checked_count("arms that flipped", len(arms), n=n)
    flips = np.zeros((len(flipped), n), bool)
    for row, names in zip(flips, flipped, strict=True):
        row[[arms.index(name) for name in names]] = True
    known = np.array(compared, np.int64)
    values = _statistics(flips, known)
    statistics = tuple(
        Statistic(name, None, reason) if np.isnan(value) else Statistic(name, float(value))
        for (name, reason), value in zip(_UNDEFINED.items(), values, strict=True)
    )
    table = []
    for number, day in enumerate(WEEKDAYS):
        here = [row for row, at in zip(flips, dates, strict=True) if at.weekday() == number]
        table.append(Weekday(day, len(here), int(np.sum(here))))
    total, place = int(flips.sum()), (statistics, tuple(table))
    nearest: tuple[tuple[str, float], ...] = ()
    most = len(BIT)
    need = f"{LEAST_TRANSITIONS} transitions and {LEAST_FLIPS} flips are needed"
    reason = f"{need}, got {len(flips)} and {total}"
    if n > most:
        reason = f"the zoo has at most {most} arms, got {n}"
    elif len(flips) >= LEAST_TRANSITIONS and total >= LEAST_FLIPS:
        nearest = _nearest(values, transitions=len(flips), n=n, lifetimes=lifetimes, seed=seed)
        reason = "no member of the zoo has the same statistics"
    if not nearest:
        return Noise(len(flips), total, *place, nearest, None, None, reason)
    return Noise(len(flips), total, *place, nearest, *nearest[0])


def _statistics(flips: npt.NDArray[np.bool_], known: Counts) -> Values:
    """Return the statistics of `_UNDEFINED` in order, NaN where undefined."""
    raw, n = flips.sum(axis=1), flips.shape[1]
    D = scaled(raw, known, n=n)
    D = D[D >= 0].astype(float)
    found = np.full(len(_UNDEFINED), np.nan)
    if known.sum():
        found[0] = raw.sum() / known.sum()
    if D.size > 1 and D.any():
        found[1] = D.var(ddof=1) / D.mean()
    if D.size > 2 and D.var():
        apart = D - D.mean()
        found[2] = (apart[1:] * apart[:-1]).sum() / (apart**2).sum()
    if later := flips[1:].sum():
        found[3] = (flips[1:] & flips[:-1]).sum() / later
    labels = np.vstack([np.zeros(n, bool), np.logical_xor.accumulate(flips, axis=0)])
    refused = 2 * labels.sum(axis=0)
    # An arm that held either label in half of the runs has no usual one, so no visit.
    away = (labels ^ (refused > len(labels)))[:, refused != len(labels)]
    visits: list[int] = []
    for arm, begun in zip(np.diff(away.astype(np.int8), axis=0).T, away[0], strict=True):
        left, back = np.flatnonzero(arm == 1), np.flatnonzero(arm == -1)[int(begun) :]
        visits += (back - left[: back.size]).tolist()
    if visits:
        found[4] = np.median(visits)
    return found


def _nearest(
    values: Values, *, transitions: int, n: int, lifetimes: int, seed: int
) -> tuple[tuple[str, float], ...]:
    """Return the members and their distances, nearest first."""
    own = _comparable(values)
    has = ~np.isnan(own)
    means, spreads = {}, []
    for name, member in ZOO.items():
        refused, missing = member(n=n, runs=transitions + 1, lifetimes=lifetimes, seed=seed)
        gone = np.zeros_like(refused) if missing is None else missing
        absent = gone[1:] | gone[:-1]
        moved = (refused[1:] ^ refused[:-1]) & ~absent
        known = n - np.bitwise_count(absent).astype(np.int64)
        bits = (moved[..., None] & BIT[:n]) != 0
        found = np.array([_statistics(bits[:, i], known[:, i]) for i in range(lifetimes)])
        found = _comparable(found)[:, has]
        found = found[~np.isnan(found).any(axis=1)]
        if len(found) >= max(2, lifetimes / 2):
            means[name] = found.mean(axis=0)
            spreads.append(found.std(axis=0, ddof=1))
    unit = np.mean(spreads or [1.0], axis=0)
    unit = np.where(unit > 0, unit, 1.0)
    apart = {k: float(np.sqrt((((own[has] - m) / unit) ** 2).mean())) for k, m in means.items()}
    return tuple(sorted(apart.items(), key=lambda item: item[1]))


def _comparable(values: Values) -> Values:
    logarithms = np.log(values, where=values > 0, out=np.full(values.shape, np.nan))
    return np.where(_LOGARITHM, logarithms, values)
