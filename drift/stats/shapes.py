"""Shapes of refusals: their shares, and their change between runs.

A shape is a number from 0 to k - 1. The unit is the family: its responses are not independent.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from drift.stats.agreement import Estimate
from drift.stats.distances import mean_interval
from drift.stats.intervals import clopper_pearson_upper

ALPHA: Final = 0.05
#: Sign vectors up to which a test goes through all of them.
MOST_SIGNS: Final = 2**13

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Shift:
    """A test that shapes are distributed alike in two runs; p None, with a reason, if none."""

    pairs: int
    clusters: int  # with a pair
    moved: int  # of these, whose own distribution of shapes changed: they alone inform
    statistic: int | None
    p: float | None
    smallest: float | None  # p that these clusters could have reached
    exact: bool = False  # all sign vectors were gone through
    reason: str | None = None


def simultaneous_shares(counts: ArrayLike) -> tuple[Estimate, ...]:
    """Compute the shares of k shapes in one group, with limits that hold for all k at once.

    The share of shape j is the mean, over families with a response, of the family's own share::

        s_j = 1/F sum_f n_fj / n_f

    Parameters
    ----------
    counts : array_like of int, (families, k)
        Responses of a family by shape, >= 0. Families without a response do not count.

    Returns
    -------
    tuple of Estimate
        One a shape; None, with a reason, without a family, and no limits for fewer than five
        families if one of them has several responses.

    Notes
    -----
    If every family has one response the limits of each share are those of Clopper and Pearson
    at 1 - .05/k, else those of :func:`drift.stats.distances.mean_interval` at 1 - .05/k.
    Null inverted: each share, by the exact binomial test, or by betting against its mean.
    Guarantee: P(all k shares are within their limits) >= 95 %, wherever there are limits: from
    one family on if each has one response, else from five; for families drawn independently,
    whatever the dependence within them (Bonferroni). It holds for each group by itself, not for
    several tables together, and for shares of what the coder calls so: the errors of the coder,
    and of the judge that chose the refusals, are not in the limits. Families of one author's
    choosing are no draw; the limits then say how much single families weigh.
    Cover in 1,000 simulated sets of k = 7 a time, skewed shares: 98 to 100 % with 3 to 60
    families of one response; in 200 sets, 100 % with families of 1 to 4 that answer alike.
    Price: against Goodman's limits (Wilson's at chi² of .05/k; no guarantee at a given n), for
    k = 7 and a share of .3, 1.16 times the width at 10 families of one response, 1.05 times at
    100; by betting (families of several) 1.3 and 1.4 times.
    Source: Clopper, Pearson (1934), Biometrika 26, 404-413; Goodman (1965), Technometrics 7,
    247-254; Waudby-Smith, Ramdas (2024), J. R. Statist. Soc. B 86, 1-27.
    """
    table = np.asarray(counts)
    if table.ndim != 2 or table.shape[1] < 2 or table.dtype.kind not in "iu" or (table < 0).any():
        raise ValueError(f"counts of int >= 0, (families, k), k >= 2; got {table.shape}")
    table = table[table.sum(axis=1) > 0].astype(np.int64)
    n, k = int(table.shape[0]), int(table.shape[1])
    if n == 0:
        return (Estimate(None, None, None, "no family with a response"),) * k
    if (table.sum(axis=1) == 1).all():
        return tuple(exact_share(int(x), n, level=1 - ALPHA / k) for x in table.sum(axis=0))
    means = (mean_interval(own, level=1 - ALPHA / k) for own in _shares(table).T.tolist())
    return tuple(Estimate(it.estimate, it.low, it.high, it.reason) for it in means)


def exact_share(x: int, n: int, *, level: float = 0.95) -> Estimate:
    """Return x/n with the two-sided limits of Clopper and Pearson; undefined when n = 0."""
    if n == 0:
        return Estimate(None, None, None, "no trials")
    side = (1 + level) / 2
    high, rest = (clopper_pearson_upper(at, n, level=side).high or 0.0 for at in (x, n - x))
    return Estimate(x / n, 1 - rest, high)


def _shares(table: Ints) -> Floats:
    return np.asarray(table / table.sum(axis=1, keepdims=True))


def transitions(before: ArrayLike, after: ArrayLike, *, k: int) -> Ints:
    """Count pairs by shape before (rows) and after (columns).

    Parameters
    ----------
    before, after : array_like of int, (pairs,)
        Shapes, in [0, k), of the same responses of two runs.
    """
    first, second = codes(k, before=before, after=after)
    return np.bincount(first * k + second, minlength=k * k).reshape(k, k)


def margin_shift(
    before: ArrayLike, after: ArrayLike, clusters: ArrayLike, *, k: int, draws: int, seed: int
) -> Shift:
    """Test that shapes are distributed alike in two runs, by swapping runs of whole families.

    With d_cj the pairs of cluster c that had shape j before less those that have it after, and
    signs s_c of -1 or 1::

        T(s) = sum_j (sum_c s_c d_cj)²

    p is the share of sign vectors with T(s) >= T(1): of all of them if those of the clusters
    with d_c != 0 are at most 8,192, else (1 + #)/(1 + draws) of so many drawn ones.

    Parameters
    ----------
    before, after : array_like of int, (pairs,)
        Shapes, in [0, k), of the same responses of two runs.
    clusters : array_like of int, (pairs,)
        The family of each.

    Notes
    -----
    Null: in each family, which of the two runs came first says nothing of its shapes; families
    are independent. Guarantee: P(p <= alpha) <= alpha at every n, for one look fixed beforehand.
    The sign of all d_c can be turned without changing T, so with m clusters that moved p is at
    least 2^(1 - m): `smallest` says what these could reach. Shapes that were exchanged between
    families without moving the distribution are not seen; :func:`transitions` shows them.
    Undefined without a pair, or if no cluster moved.
    Source: Pesarin (2001), Multivariate Permutation Tests; Phipson, Smyth (2010), Stat. Appl.
    Genet. Mol. Biol. 9, 39 (the 1 that is added).
    """
    first, second = codes(k, before=before, after=after)
    places, cluster = groups("clusters", clusters, len(first))
    change = np.zeros((places, k), dtype=np.int64)
    np.add.at(change, (cluster, first), 1)
    np.subtract.at(change, (cluster, second), 1)
    change = change[change.any(axis=1)]
    m, pairs = len(change), len(first)
    if m == 0:
        reason = "no family's shapes moved" if pairs else "no pair"
        return Shift(pairs, places, 0, 0 if pairs else None, None, None, reason=reason)
    observed = int((change.sum(axis=0) ** 2).sum())
    if 2**m <= MOST_SIGNS:
        signs = 1 - 2 * (np.arange(2**m)[:, None] >> np.arange(m) & 1)
        values = ((signs @ change) ** 2).sum(axis=1)
        p, smallest = float((values >= observed).mean()), float((values == values.max()).mean())
        return Shift(pairs, places, m, observed, p, smallest, exact=True)
    rng = np.random.default_rng(seed)
    signs = 1 - 2 * rng.integers(0, 2, size=(draws, m), dtype=np.int64)
    higher = int((((signs @ change) ** 2).sum(axis=1) >= observed).sum())
    smallest = max(1 / (1 + draws), 2.0 ** (1 - m))
    return Shift(pairs, places, m, observed, (1 + higher) / (1 + draws), smallest)


def codes(k: int, **given: ArrayLike) -> tuple[Ints, ...]:
    """Return arrays of shapes, of one length."""
    found = []
    for name, value in given.items():
        codes = np.asarray(value, dtype=np.int64) if np.size(value) == 0 else np.asarray(value)
        if codes.ndim != 1 or codes.dtype.kind not in "iu":
            raise ValueError(f"{name} of int, one dimension; got {codes.dtype} {codes.shape}")
        if codes.size and not 0 <= codes.min() <= codes.max() < k:
            raise ValueError(f"{name} in [0, {k}), got {codes.min()} to {codes.max()}")
        found.append(codes.astype(np.int64))
    if len({len(codes) for codes in found}) > 1:
        raise ValueError(f"{', '.join(given)} of one length, got {[len(it) for it in found]}")
    return tuple(found)


def groups(name: str, values: ArrayLike, n: int) -> tuple[int, Ints]:
    """Return how many groups there are, and each value's from 0."""
    if np.shape(values) != (n,):
        raise ValueError(f"{name} of shape ({n},), got {np.shape(values)}")
    names, codes = np.unique(np.asarray(values), return_inverse=True)
    return len(names), codes.astype(np.int64)
