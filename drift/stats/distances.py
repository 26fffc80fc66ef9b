"""Distances between answers: their mean with an interval, and their excess over own noise."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from drift.stats.inputs import checked_share

#: Values below which no interval of a mean is given.
LEAST: Final = 5
#: Shares of the largest bet that the capital is spread over.
_BETS: Final = np.arange(1, 21) / 21
#: Halvings after which a limit is known to 1e-12.
_HALVINGS: Final = 40
#: The unit in which :func:`split_p` counts distances.
_UNIT: Final = 1000


@dataclass(frozen=True)
class Mean:
    """The mean of `n` values and its limits; None, with a reason, if undefined."""

    n: int
    estimate: float | None
    low: float | None
    high: float | None
    reason: str | None = None


class Quartet(NamedTuple):
    """The six distances between the two answers of one night and the two of another.

    ``within`` holds that of each night's two answers, ``between`` those of answer i of one to
    answer j of the other, in the order 11, 12, 21, 22.
    """

    within: tuple[float, float]
    between: tuple[float, float, float, float]

    @property
    def excess(self) -> float:
        """The mean of the four between nights less half of the two within: an energy distance.

        Its expectation is 0 if all four answers have one distribution, whatever that is. By the
        triangle inequality it is at least -1/2 where distances go up to 1.
        """
        return sum(self.between) / 4 - sum(self.within) / 2


def mean_interval(
    values: Sequence[float], *, least: float = 0.0, most: float = 1.0, level: float = 0.95
) -> Mean:
    """Compute an interval of a mean from values that lie in [`least`, `most`], by betting.

    With values scaled to x_i in [0, 1], capital spread evenly over K = 20 bets, and
    b = 1/21, ..., 20/21::

        C(m) = 1/K sum_b prod_i (1 + b (x_i/m - 1))

    The low limit is the m at which C(m) = 2/(1 - level); it falls in m. The high limit is
    that of 1 - x, turned round. The mean of x lies between them. Undefined below 5 values.

    Parameters
    ----------
    values : sequence of float
        One a probe, in any order: the limits do not depend on it.
    least, most : float
        What no value can lie beyond but by rounding; the wider apart, the wider the interval.
    level : float, default .95
        Two-sided, in (0, 1).

    Notes
    -----
    Null inverted: the values are independent with mean m. C is then the end of a
    nonnegative martingale from 1, so that P(C(m) >= c) <= 1/c (Ville), at each side.
    Guarantee: coverage >= level at every n and every distribution on [`least`, `most`], point
    masses included. The probes are taken for draws from questions like them; a corpus of one
    author's choosing is none, and the interval then says how much single probes weigh.
    Price: against the t interval, which promises nothing at a given n, 1.4 times its width for
    40 values spread evenly over the range, and 3.7 times where their deviation is .05 of it.
    Source: Waudby-Smith, Ramdas (2024), J. R. Statist. Soc. B 86, 1-27 (hedged grid Kelly).
    """
    level, n = checked_share("level", level), len(values)
    x = (np.asarray(values, dtype=float) - least) / (most - least)
    if outside := [v for v, at in zip(values, x, strict=True) if not abs(at - 0.5) < 0.5001]:
        raise ValueError(f"values in [{least}, {most}], got {outside[0]}")
    x = x.clip(0, 1)
    if n < LEAST:
        mean = sum(values) / n if n else None
        return Mean(n, mean, None, None, f"{n} values, fewer than {LEAST}")
    limits = _lower(x, (1 - level) / 2), 1 - _lower(1 - x, (1 - level) / 2)
    low, high = (round(least + (most - least) * limit, 9) for limit in limits)
    return Mean(n, sum(values) / n, low, high)


def _lower(x: npt.NDArray[np.float64], alpha: float) -> float:
    """Return the largest m up to which 1/C(m) <= alpha; C falls, and C <= 1 at the mean."""
    low, high = 0.0, float(x.sum()) / len(x)
    for _ in range(_HALVINGS):
        m = (low + high) / 2
        if m == 0:
            return 0.0
        with np.errstate(over="ignore"):
            capital = np.multiply.reduce(1 + _BETS * (x[:, None] / m - 1), axis=0).sum()
        low, high = (m, high) if capital >= len(_BETS) / alpha else (low, m)
    return low


def split_p(quartets: Sequence[Quartet]) -> float | None:
    """Return the probability of so large an excess if nothing had changed; None of no probes.

    Four answers to a probe make three splits into two nights of two. Over all 3^n, each
    probe's split being drawn on its own, the p-value is the share whose sum of excesses is
    at least that of the nights as they were. It is counted out, in thousandths of a distance.

    Notes
    -----
    Null: in each probe the four answers are exchangeable, and probes are independent.
    Guarantee: P(p <= alpha) <= alpha at every n and alpha, for one look fixed beforehand.
    Anything that moves the answers of a whole night counts as a change: another server, other
    hardware or load as well as another model.
    """
    if not quartets:
        return None
    within = np.rint([_within(it) for it in quartets]).astype(int)
    # Of six distances with a fixed sum the excess falls as the two within a night grow.
    within -= within.min(axis=1, keepdims=True)
    observed = int(within[:, 0].sum())
    chances = np.zeros(observed + 1)
    chances[0] = 1.0
    for splits in within:
        before, chances = chances, np.zeros(observed + 1)
        for shift in splits[splits <= observed]:
            chances[shift:] += before[: observed + 1 - shift] / 3
    return min(1.0, float(chances.sum()))


def _within(of: Quartet) -> list[float]:
    """Return, for each split, the two distances within its nights, the real one first."""
    b = of.between
    return [_UNIT * it for it in (sum(of.within), b[0] + b[3], b[1] + b[2])]
