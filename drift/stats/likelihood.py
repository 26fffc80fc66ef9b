"""The model-based processes: flips as independent trials, against a bound on their rate."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from drift.stats.betting import (
    CAP,
    Floats,
    Integers,
    X,
    carried,
    evidence,
    exp,
    greater,
    lesser,
    log,
    spent,
    total,
    trajectory,
    wager,
    weight,
)
from drift.stats.inputs import checked_count
from drift.stats.intervals import clopper_pearson_upper, significant

ODDS: Final = (1.5, 2.0, 3.0, 5.0, 10.0, 30.0)


def churn_bound(flips: int, compared: int) -> float | None:
    """Return p0: `clopper_pearson_upper` at 97.5 % of the burn-in's flips, to 12 digits.

    None, not estimable, if all arms compared flipped or none was compared.
    """
    high = clopper_pearson_upper(flips, compared).high
    return None if high == 1 else significant(high, digits=12)


def mixture_grid(p0: X, *, points: int = 100) -> tuple[list[X], list[float]]:
    """Return log(q_j/p0) and log((1-q_j)/(1-p0)) of q_j = p0 + (1-p0) j/J, j = 1..J.

    The ratios are 1 + (1/p0 - 1) j/J and 1 - j/J. The last logarithm, of 0, is a finite
    -1e300: times no answered arm it is 0.
    """
    shares = [j / points for j in range(1, points + 1)]
    fall = [log(1 - share) for share in shares[:-1]] + [-CAP]
    return [log(1 + (1 / p0 - 1) * share) for share in shares], fall


def mixture_evidence(
    k: X, N: X | int, rise: Sequence[X], fall: Sequence[float], *, points: int = 100
) -> X:
    """Return mean_j (q_j/p0)^k ((1-q_j)/(1-p0))^(N-k) by logsumexp; at most e^690.

    `rise` and `fall` are those of `mixture_grid`, without a tail that is negligible.
    """
    terms = [k * a + (N - k) * b for a, b in zip(rise, fall, strict=True)]
    top = reduce(greater, terms)
    return exp(lesser(top, 690.0)) * (total(exp(term - top) for term in terms) / points)


def _reach(most: float, N: int, rise: Floats, fall: Sequence[float]) -> int:
    """Return how many of the first components matter when no more than `most` of N flipped.

    The fewer flips, the less likely a high q: terms below 3e-20 of the greatest at `most`
    are lost in rounding there and at every smaller k. `rise` has a row for each component.
    """
    terms = most * rise + (N - most) * np.array(fall)[:, None]
    return int(np.flatnonzero((terms > terms.max(0) - 45).any(1))[-1]) + 1


def mixture_no_growth(p0: float, *, points: int = 100) -> float:
    """Return the greatest churn at which no component of the mixture grows on average.

    The least p over j with p log(q_j/p0) + (1-p) log((1-q_j)/(1-p0)) = 0. Below it a
    crossing is unlikely, not impossible. Above p0, which is therefore not the blind zone.
    """
    return min(b / (b - a) for a, b in zip(*mixture_grid(p0, points=points), strict=True))


def restart_factors(k: X, N: int, p0: X, odds: Sequence[float] = ODDS) -> list[X]:
    """Return the likelihood ratio of k flips of N at each multiple c of the odds of p0.

    q/(1-q) = c p0/(1-p0) makes it c^k / (1 + (c-1) p0)^N.
    """
    return [exp(k * log(c) - N * log(1 + (c - 1) * p0)) for c in odds]


def restart_no_growth(p0: float, *, odds: Sequence[float] = ODDS) -> float:
    """Return the greatest churn at which no component of the restart process grows on average.

    min over c of log(1 + (c-1) p0) / log c; read as `mixture_no_growth`.
    """
    return min(log(1 + (c - 1) * p0) / log(c) for c in odds)


@dataclass(frozen=True)
class BurnIn:
    """The first transitions of a series, from which p0 is bounded."""

    burn_in: int = 20
    transitions: int = 0
    burn_flips: int = 0
    burn_compared: int = 0

    @property
    def calibrated(self) -> bool:
        """Whether the burn-in is complete."""
        return self.transitions >= self.burn_in

    @property
    def p0(self) -> float | None:
        """`churn_bound`; None in the burn-in and if not estimable."""
        return churn_bound(self.burn_flips, self.burn_compared) if self.calibrated else None

    def step(self, flips: int, compared: int) -> Self:
        """Take the next transition: `flips` of `compared` arms."""
        flips = checked_count("flips", flips, compared=compared)
        ahead = replace(self, transitions=self.transitions + 1)
        if self.calibrated:
            return ahead._bet(flips, compared)
        flips, compared = self.burn_flips + flips, self.burn_compared + compared
        return replace(ahead, burn_flips=flips, burn_compared=compared)

    def _bet(self, flips: int, compared: int) -> Self:
        raise NotImplementedError


@dataclass(frozen=True)
class Mixture(BurnIn):
    """The mixture with one start, kept as the reference line; `step` takes a transition.

    E = `mixture_evidence` of all flips since the burn-in.

    Null: flips are independent between arms and refreshes, each with a rate <= p0.
    Guarantee: P(E ever >= c) <= 1/c given the null, 2.5 % + 1/c with the bound's own
    error. A run of which many arms err breaks it, for each flips twice.
    Quiet refreshes drive log E down without end, and a later change must first repay
    that: see `Restart`. Undefined (None) when p0 is.
    Source: Robbins (1970), Ann. Math. Statist. 41, 1397-1409; Ramdas, Grünwald, Vovk,
    Shafer (2023), Statistical Science 38, 576-601.
    """

    over: ClassVar[bool] = False
    points: int = 100
    flips: int = 0
    compared: int = 0

    @property
    def evidence(self) -> float | None:
        """E; 1 in the burn-in, None if p0 is not estimable, 0 below the smallest float."""
        if not self.calibrated or (p0 := self.p0) is None:
            return None if self.calibrated else 1.0
        rise, fall = mixture_grid(p0, points=self.points)
        k, N = self.flips, self.compared
        used = _reach(k, N, np.array(rise)[:, None], fall)
        return mixture_evidence(k, N, rise[:used], fall[:used], points=self.points)

    def _bet(self, flips: int, compared: int) -> Self:
        return replace(self, flips=self.flips + flips, compared=self.compared + compared)


@dataclass(frozen=True)
class Restart(BurnIn):
    """A sum over start times of likelihood ratios; `step` takes a transition.

    Each S_c starts at 0 and becomes min((S_c + w_t) f_c, 1e300) with `restart_factors`;
    E = 1 - sum w + mean_c S_c. With a burn-in of 40 on `burst_counts` it is the confirmed
    burst, a notice outside every bound.

    Null and guarantee: as `Mixture`, up to the horizon. Undefined (None) when p0 is.
    Source: Shin, Ramdas, Rinaldo (2023), E-detectors, New England J. Stat. Data Sci. 2,
    229-260.
    """

    horizon: int = 1500
    odds: tuple[float, ...] = ODDS
    wealth: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Fill in the wealth at the start; take lists, as JSON has them, for tuples."""
        if self.horizon < 2:
            raise ValueError(f"horizon >= 2, got {self.horizon}")
        object.__setattr__(self, "odds", tuple(self.odds))
        object.__setattr__(self, "wealth", tuple(self.wealth) or (0.0,) * len(self.odds))

    @property
    def bets(self) -> int:
        """Transitions since the burn-in."""
        return max(0, self.transitions - self.burn_in)

    @property
    def over(self) -> bool:
        """Whether the horizon is reached: nothing is left to bet."""
        return self.bets >= self.horizon

    @property
    def evidence(self) -> float | None:
        """E; 1 in the burn-in, None if p0 is not estimable."""
        if self.calibrated and self.p0 is None:
            return None
        return evidence(self.wealth, spent(self.bets, self.horizon))

    def _bet(self, flips: int, compared: int) -> Self:
        if self.bets > self.horizon:
            raise ValueError(f"bets in [1, {self.horizon}], got {self.bets}")
        if (p0 := self.p0) is None:
            return self
        factors = restart_factors(flips, compared, p0, self.odds)
        w = weight(self.bets, self.horizon)
        return replace(self, wealth=wager(self.wealth, factors, w))


def mixture(
    D: Integers, *, horizon: int, seed: object, n: int, burn_in: int = 20, points: int = 100
) -> Floats:
    """Return E of `Mixture` after each count of flips among n arms; 1 if not estimable.

    `D` and the result as in `conformal`. `horizon` and `seed` belong to the form of a
    process: the mixture has no horizon and uses no chance.
    """

    def one(values: Integers) -> Floats:
        steps = ((k, n) for k in values.tolist())
        return trajectory(Mixture(burn_in, points=points), steps)

    def many(values: Integers) -> Floats:
        p0, lane, estimable = _bounds(values[:, :burn_in], n)
        by_bound, fall = mixture_grid(p0, points=points)
        rise = [log_ratio[lane] for log_ratio in by_bound]
        table = np.array(by_bound)
        E = np.ones(values.shape[::-1])
        for t, k in enumerate(values[:, burn_in:].cumsum(1, dtype=np.float64).T):
            N = n * (t + 1)
            used = _reach(k.max(), N, table, fall)
            E[burn_in + t] = mixture_evidence(k, N, rise[:used], fall[:used], points=points)
        return np.where(estimable, E, 1.0).T

    return carried(D, one if D.ndim == 1 else many)


def restart(
    D: Integers,
    *,
    horizon: int,
    seed: object,
    n: int,
    burn_in: int = 20,
    odds: Sequence[float] = ODDS,
) -> Floats:
    """Return E of `Restart` after each count of flips among n arms; 1 if not estimable.

    `D` and the result as in `conformal`; `seed` is not used.
    """

    def one(values: Integers) -> Floats:
        steps = ((k, n) for k in values.tolist())
        return trajectory(Restart(burn_in, horizon=horizon, odds=tuple(odds)), steps)

    def many(values: Integers) -> Floats:
        p0, lane, estimable = _bounds(values[:, :burn_in], n)
        factors = np.array(restart_factors(np.arange(n + 1.0)[:, None], n, p0, odds))
        wealth = tuple(np.zeros(len(values)) for _ in odds)
        E, end = np.ones(values.shape[::-1]), burn_in + horizon
        for t, k in enumerate(values.T[burn_in:end], start=1):
            wealth = wager(wealth, factors[:, k, lane], weight(t, horizon))
            E[burn_in + t - 1] = evidence(wealth, spent(t, horizon))
        E[end:] = E[end - 1 : end]
        return np.where(estimable, E, 1.0).T

    return carried(D, one if D.ndim == 1 else many)


def _bounds(burnt: Integers, n: int) -> tuple[Floats, NDArray[np.intp], NDArray[np.bool_]]:
    """Return the distinct bounds p0, which one each lifetime has, and where it is estimable."""
    flips, lane = np.unique(burnt.sum(1), return_inverse=True)
    bounds = [churn_bound(x, burnt.shape[1] * n) for x in flips.tolist()]
    estimable = np.array([p0 is not None for p0 in bounds])
    return np.array([p0 or 0.5 for p0 in bounds]), lane, estimable[lane]
