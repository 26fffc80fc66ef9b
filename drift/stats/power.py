"""Power: how long a change goes unseen, by simulation; and the mixture's crossings, exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from drift.stats.guarantees import enters
from drift.stats.inputs import checked_share
from drift.stats.likelihood import mixture_evidence, mixture_grid
from drift.stats.simulation import (
    Evidence,
    counts,
    default_burn_in,
    evidence,
    load_process,
    reads,
    uniform_seed,
)
from drift.stats.zoo import SEED, Member, change

_FIRST: Final = {"home": 2, "flips": 1, "burst": 3, "pairs": 1}  # the run of the first value


@dataclass(frozen=True)
class Delay:
    """Refreshes from a change to the value at which a process first reaches a threshold.

    Delay 1 is the first refresh with the new churn. `median` is None, with a reason, if half
    of the lifetimes stay below the threshold in the refreshes `followed`; `share` of them
    reach it `within` so many refreshes. Both are over the lifetimes which had not reached it
    before the change; the others are counted as `early`.
    """

    process: str
    threshold: float
    n: int
    burn_in: int
    before: float
    after: float
    quiet: int
    within: int
    followed: int
    lifetimes: int
    early: int
    median: float | None
    share: float | None
    reason: str | None = None


def delay(
    process: str,
    *,
    n: int,
    after: float,
    before: float = 0.015,
    quiet: int = 0,
    threshold: float = 20,
    within: int = 30,
    followed: int = 600,
    burn_in: int | None = None,
    horizon: int = 1500,
    lifetimes: int = 2000,
    seed: int = SEED,
) -> Delay:
    """Measure the delay after churn goes from `before` to `after`.

    The change comes with the first refresh after the burn-in and `quiet` further ones. Each
    arm flips independently of its label and of all else. The threshold is reached as a state
    is entered, at D > 0. `horizon` is in refreshes.
    """
    run = load_process(process)
    length = default_burn_in(run) if burn_in is None else burn_in
    pace = 2 if reads(run) == "pairs" else 1
    decided = _FIRST[reads(run)] + pace * np.arange(length + (quiet + followed) // pace)
    at = int(decided[0]) - pace + 1 + pace * length + quiet
    draw = partial(change, before=before, after=after, at=at)
    model = Member(0, draw)  # no member of the zoo has this index
    labels = model(n=n, runs=int(decided[-1]) + 1, lifetimes=lifetimes, seed=seed)
    D, own = counts(labels, reads(run), n=n), uniform_seed(seed, model, n)
    E = evidence(run, D, n=n, horizon=horizon // pace, seed=own, burn_in=burn_in)
    hit = enters(E, D, threshold)
    early = hit[:, decided < at].any(axis=1)
    hit, late = hit[~early][:, decided >= at], decided[decided >= at] - at + 1
    delays = np.where(hit.any(axis=1), late[hit.argmax(axis=1)], np.inf)
    place = (process, threshold, n, length, before, after, quiet, within, followed, lifetimes)
    if not delays.size:
        return Delay(*place, lifetimes, None, None, "every lifetime had reached it before")
    median, share = float(np.median(delays)), float((delays <= within).mean())
    if np.isinf(median):
        return Delay(*place, int(early.sum()), None, share, f"over {followed} refreshes")
    return Delay(*place, int(early.sum()), median, share)


# What the design states, process, threshold, n and churn after: the median and the share
# within 30 refreshes if the change comes after 0, 100 and 500 quiet ones.
_STATED: Final[tuple[Any, ...]] = (
    ("mixture", 20, 14, 0.10, ((10, 0.93), (77, 0.06), (258, 0.01))),
    ("mixture", 20, 41, 0.10, ((3, None), (31, 0.49), (117, 0.01))),
    ("restart", 20, 14, 0.10, ((8, 0.95), (19, 0.78), (19, 0.77))),
    ("restart", 20, 41, 0.10, ((2, None), (5, None), (5, None))),
    ("home", 20, 14, 0.10, ((27, 0.53), (36, 0.38), (23, 0.76))),
    ("home", 20, 41, 0.10, ((5, 0.99), (10, 1.0), (7, 1.0))),
    ("home", 100, 14, 0.10, ((105, 0.23), (46, 0.21), (29, 0.56))),
    ("home", 100, 41, 0.10, ((10, 0.90), (13, 0.99), (8, 1.0))),
    ("pairs", 100, 14, 0.10, ((70, 0.23), (40, 0.29), (24, 0.72))),
    ("pairs", 100, 41, 0.10, ((22, 0.69), (18, 0.96), (12, 1.0))),
    ("home", 20, 41, 0.20, ((4, None), (6, None), (4, None))),
    ("home", 100, 41, 0.20, ((6, None), (8, None), (5, None))),
    ("home", 20, 41, 0.05, ((35, 0.46), (41, 0.30), (26, 0.65))),
)


@dataclass(frozen=True)
class Reference:
    """A delay as the design states it, None where it states none, and as measured here."""

    median: float | None
    share: float | None
    measured: Delay


def reference_table(*, lifetimes: int = 2000, seed: int = SEED) -> list[Reference]:
    """Recompute every delay of the design, side by side with what it states."""
    measure = partial(delay, lifetimes=lifetimes, seed=seed)
    rows = [
        Reference(median, share, measure(process, threshold=c, n=n, after=after, quiet=quiet))
        for process, c, n, after, cells in _STATED
        for quiet, (median, share) in zip((0, 100, 500), cells, strict=True)
    ]
    for n, within in ((41, 5), (14, 10)):
        found = measure("home", n=n, after=0.5, quiet=1000, within=within)
        rows.append(Reference(None, 0.997, found))
    return rows


def _binomial(n: int, p: float) -> Evidence:
    return np.array([math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)])


def first_passage(
    *, n: int, p0: float, p: float, threshold: float = 20, refreshes: int = 1500
) -> Evidence:
    """Compute P(the mixture against p0 has reached the threshold) after each refresh.

    Exact, by dynamic programming over the cumulative flips k of N = n t arms: E rises with k,
    so refresh t is crossed from a least k on; below it the mass is convolved with
    Binomial(n, p). Flips are independent with chance p; E is read after each refresh.
    """
    p0, p = checked_share("p0", p0), checked_share("p", p)
    N = n * np.arange(1.0, refreshes + 1)
    grid = mixture_grid(p0)
    low, high = np.zeros(refreshes), N + 1  # the least k lies in [low, high]; N + 1 is none
    while (low < high).any():
        k = np.floor((low + high) / 2)
        over = (mixture_evidence(np.minimum(k, N), N, *grid) >= threshold) | (k > N)
        low, high = np.where(over | (low == high), low, k + 1), np.where(over, k, high)
    flips = _binomial(n, p)
    mass, crossed, found = np.ones(1), 0.0, np.empty(refreshes)
    for t, least in enumerate(high.astype(np.int64)):
        mass = np.convolve(mass, flips)
        crossed += float(mass[least:].sum())
        mass, found[t] = mass[:least], crossed
    return found


def point_null_passage(
    *, n: int = 12, burn_in: int = 5, p: float = 0.015, threshold: float = 20, refreshes: int = 1500
) -> Evidence:
    """Compute how often the mixture crosses if the burn-in's estimate is taken for a bound.

    The mean of `first_passage` over the flips x ~ Binomial(n B, p) of the burn-in, with
    p0 = max(x, 1/2)/(n B). Terms whose chance is below 1e-15 are left out.
    """
    compared = n * burn_in
    chance = _binomial(compared, checked_share("p", p))
    found = np.zeros(refreshes)
    for x in np.flatnonzero(chance >= 1e-15).tolist():
        p0 = max(x, 0.5) / compared
        if p0 < 1:
            shape = {"n": n, "refreshes": refreshes}
            found += chance[x] * first_passage(**shape, p0=p0, p=p, threshold=threshold)
    return found
