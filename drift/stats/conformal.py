"""The conformal alarm: whether a value is large among all values of its own series."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final

import numpy as np

from drift.stats.betting import (
    Floats,
    Integers,
    X,
    carried,
    evidence,
    exp,
    log,
    spent,
    trajectory,
    wager,
    weight,
)
from drift.stats.inputs import checked_count

POWERS: Final = (0.1, 0.2, 0.35, 0.5, 0.7)


def uniform(seed: str, panel: str, model: str, series: int, process: str, b: int) -> float:
    """Return U_b, which breaks the ties of value b of a series, in (0, 1].

    (int(sha256("seed|panel|model|series|process|b")) + 1/2) / 2^256, from a seed sealed
    before run 1: nobody chooses it, everybody can recompute it. Ids hold no "|".
    """
    ids = [str(part) for part in (seed, panel, model, series, process, b)]
    if any("|" in part for part in ids):
        raise ValueError(f'ids without "|", got {ids}')
    return (2 * int(sha256("|".join(ids).encode()).hexdigest(), 16) + 1) / 2**257


def rank(greater: X, equal: X, u: X, b: int) -> X:
    """Return P_b = (#{s < b: D_s > D_b} + U_b (1 + #{s < b: D_s = D_b})) / b."""
    return (greater + u * (1 + equal)) / b


def rank_factors(p: X, powers: Sequence[float] = POWERS) -> tuple[X, ...]:
    """Return k p^(k-1) for each k in (0, 1): mean 1 for uniform p, large where p is small."""
    log_p = log(p)
    return tuple(k * exp((k - 1) * log_p) for k in powers)


@dataclass(frozen=True)
class Conformal:
    """One watch of one series, in bounded memory; `step` takes the next value.

    `rank` among all earlier values, burn-in included; then each S_k starts at 0 and
    becomes min((S_k + w_t) k P^(k-1), 1e300), E = 1 - sum w + mean_k S_k, E = 1 in the
    burn-in. The burn-in only adds values to rank among.

    Null: the values are exchangeable over time. No rate and no bound on it is estimated,
    and arms of a run may depend in any way.
    Guarantee: given the null, P(E ever >= c) <= 1/c up to the horizon. Whether a series
    of counts meets the null is another matter: see `GUARANTEES`.
    E is a martingale in the filtration of the ranks alone: it must not be averaged over
    models nor given to e-BH.
    Source: Vovk (2021), Testing randomness online, and arXiv 2102.10439, 2412.03464 for
    conformal test martingales; Ramdas, Ruf, Larsson, Koolen, arXiv 2102.00630, for
    exchangeability; Shin, Ramdas, Rinaldo (2023) for the sum over start times.

    Parameters
    ----------
    n : int
        The greatest value, the number of arms.
    burn_in, horizon : int
        Values before the first bet, and bets before the watch is over, >= 2.
        `home` and coverage 40 and 1500, `pairs` 20 and 750.
    seen, histogram, wealth, p
        The state: values so far, how many of each size, S_k, and P of the last value
        (None in the burn-in). `dataclasses.asdict` gives JSON from which it is rebuilt.
    """

    n: int
    burn_in: int = 40
    horizon: int = 1500
    powers: tuple[float, ...] = POWERS
    seen: int = 0
    histogram: tuple[int, ...] = ()
    wealth: tuple[float, ...] = ()
    p: float | None = None

    def __post_init__(self) -> None:
        """Fill in the state at the start; take lists, as JSON has them, for tuples."""
        if self.horizon < 2:
            raise ValueError(f"horizon >= 2, got {self.horizon}")
        object.__setattr__(self, "powers", tuple(self.powers))
        object.__setattr__(self, "histogram", tuple(self.histogram) or (0,) * (self.n + 1))
        object.__setattr__(self, "wealth", tuple(self.wealth) or (0.0,) * len(self.powers))

    @property
    def bets(self) -> int:
        """Values since the burn-in."""
        return max(0, self.seen - self.burn_in)

    @property
    def calibrated(self) -> bool:
        """Whether the burn-in is complete."""
        return self.seen >= self.burn_in

    @property
    def over(self) -> bool:
        """Whether the horizon is reached: nothing is left to bet."""
        return self.bets >= self.horizon

    @property
    def evidence(self) -> float:
        """E; 1 in the burn-in."""
        return evidence(self.wealth, spent(self.bets, self.horizon))

    def step(self, value: int, u: float) -> "Conformal":
        """Take the next value, in [0, n], with its uniform u in (0, 1]."""
        value = checked_count("value", value, n=self.n)
        if not 0 < u <= 1:
            raise ValueError(f"u in (0, 1], got {u}")
        if self.over:
            raise ValueError(f"bets < horizon, got {self.bets} of {self.horizon}")
        p, wealth, b = None, self.wealth, self.seen + 1
        if self.calibrated:
            p = rank(sum(self.histogram[value + 1 :]), self.histogram[value], u, b)
            w = weight(self.bets + 1, self.horizon)
            wealth = wager(wealth, rank_factors(p, self.powers), w)
        histogram = list(self.histogram)
        histogram[value] += 1
        return replace(self, seen=b, histogram=tuple(histogram), wealth=wealth, p=p)


def conformal(
    D: Integers,
    *,
    horizon: int,
    seed: int | Sequence[int],
    burn_in: int = 40,
    powers: Sequence[float] = POWERS,
) -> Floats:
    """Return E of `Conformal` after each value of many lifetimes, or of one.

    Parameters
    ----------
    D : ndarray of int, shape (lifetimes, values) or (values,)
        Values >= 0; -1 where a run gave none. One lifetime is a fold of `Conformal.step`
        bit for bit; many use the same formulas on arrays.
    seed
        Of `numpy.random.default_rng`, from which the uniforms come.

    Returns
    -------
    ndarray of float, shape of D
        1 in the burn-in; the last E past the horizon and at a gap.
    """
    rng = np.random.default_rng(seed)
    n = int(D.max(initial=0))

    def one(values: Integers) -> Floats:
        steps = ((value, 1 - rng.random()) for value in values.tolist())
        return trajectory(Conformal(n, burn_in, horizon, tuple(powers)), steps)

    def many(values: Integers) -> Floats:
        lanes = np.arange(len(values))
        at_least = np.zeros((n + 2, len(values)), np.int32)  # earlier values >= row number
        levels = np.arange(n + 2)[:, None]
        wealth = tuple(np.zeros(len(values)) for _ in powers)
        E = np.ones(values.shape[::-1])
        for b, value in enumerate(values.T[: burn_in + horizon].astype(np.intp)):
            u, greater = 1 - rng.random(len(values)), at_least[value + 1, lanes]
            equal = at_least[value, lanes] - greater
            at_least += levels <= value
            if (t := b + 1 - burn_in) > 0:
                p = rank(greater, equal, u, b + 1)
                wealth = wager(wealth, rank_factors(p, powers), weight(t, horizon))
                E[b] = evidence(wealth, spent(t, horizon))
        E[burn_in + horizon :] = E[burn_in + horizon - 1 : burn_in + horizon]
        return E.T

    return carried(D, one if D.ndim == 1 else many)
