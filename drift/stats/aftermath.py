"""After a state: when the change may have set in, and how much of the state is dice."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from drift.stats.betting import Integers, exp, log, total, weight
from drift.stats.conformal import POWERS, Conformal, conformal
from drift.stats.guarantees import enters


@dataclass(frozen=True)
class Onset:
    """The value at which a change most likely set in, and the score of each start."""

    index: int
    relative: dict[int, float]  # score of each value as a share of the highest
    unweighted: int  # the start with the highest score if all had the same w_j


@dataclass(frozen=True)
class Dice:
    """How a state depends on the seed that breaks ties; descriptive, no error rate."""

    share: float  # of the other seeds which would be in this state or a higher one
    seeds: int
    evidence_at_one: float  # E with U = 1 throughout, the least that any seed gives


def onset(p: Mapping[int, float], *, horizon: int, powers: Sequence[float] = POWERS) -> Onset:
    """Find the start j whose bets contribute most to E now, the earliest of equals.

    The score of bet j is w_j mean_k prod_{t >= j} k P_t^(k-1).

    Parameters
    ----------
    p : mapping of value index to P, in order of time
        From the first bet of the watch, not empty.

    Notes
    -----
    A description, no interval: a start some values off may score almost as high. The first
    start has half of all weight and often wins for that alone; `unweighted` has no such
    preference, but no bound on E belongs to it.
    Source: Shin, Ramdas, Rinaldo (2023), as for `Conformal`.
    """
    if not p:
        raise ValueError("onset needs a P, got none")
    logs = [log(x) for x in list(p.values())[::-1]]
    sums = [list(accumulate(log(k) + (k - 1) * x for x in logs))[::-1] for k in powers]
    top = max(map(max, sums))
    products = [total(exp(x - top) for x in at) for at in zip(*sums, strict=True)]
    scores = [weight(t, horizon) * product for t, product in enumerate(products, start=1)]
    relative = {index: score / max(scores) for index, score in zip(p, scores, strict=True)}
    unweighted = list(p)[products.index(max(products))]
    return Onset(max(relative, key=relative.__getitem__), relative, unweighted)


def dice(
    D: Integers,
    *,
    threshold: float,
    seed: int,
    horizon: int = 1500,
    burn_in: int = 40,
    seed_count: int = 999,
) -> Dice:
    """Run the same values under other seeds, each with uniforms of its own.

    Parameters
    ----------
    D : ndarray of int, shape (values,)
        The values of one watch, burn-in included.
    threshold : float
        Of the state: 20 for watch, 100 for alarm.
    seed : int
        Of the other seeds' uniforms.
    """
    D = D[: burn_in + horizon]
    E = conformal(np.tile(D, (seed_count, 1)), horizon=horizon, seed=seed, burn_in=burn_in)
    share = float(enters(E, D, threshold).any(1).mean())
    watch = Conformal(int(D.max(initial=0)), burn_in, horizon)
    for value in D.tolist():
        watch = watch.step(value, 1.0)
    return Dice(share, seed_count, watch.evidence)
