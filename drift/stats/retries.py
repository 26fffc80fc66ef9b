"""Retries after a refusal: their rate by shape, and shapes compared at the same length.

Each refusal is a row: the number of its shape, whether the same was asked again, how long the
refusal was, and the number of the model. Rows are taken to be independent.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from drift.stats.agreement import Estimate
from drift.stats.intervals import wilson_interval
from drift.stats.shapes import exact_share

#: Refusals of a shape, and of the rarer outcome for each coefficient, below which none is fitted.
LEAST_REFUSALS: Final = 20
LEAST_EVENTS: Final = 5
#: Quantiles of a shape's lengths between which it counts as covered.
COVERED: Final = (0.05, 0.95)
#: Share of either shape's refusals, of lengths that both cover, below which nothing is compared.
LEAST_SUPPORT: Final = 0.25
_Z: Final = 1.959963984540054
_STEPS: Final = 50

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Retries:
    """Retries after one shape, and their rate less that of the base, before and after lengths."""

    refusals: int
    retried: int
    rate: Estimate
    unadjusted: Estimate
    adjusted: Estimate
    with_length: int
    support: float | None  # see `retries_by_shape`; None without lengths of both shapes


def retries_by_shape(
    retried: ArrayLike,
    shapes: ArrayLike,
    lengths: ArrayLike,
    models: ArrayLike,
    *,
    k: int,
    base: int = 0,
) -> tuple[Retries, ...]:
    """Compute the rate of retries after each shape, and its difference from the base shape's.

    For a shape and the base, and their refusals alone, a logistic regression::

        logit P(retried) = a + b [shape] + c log(length) + d_model

    The adjusted difference is the mean, over the refusals whose length both shapes cover, of
    the fitted P(retried) as the shape less that as the base.

    Parameters
    ----------
    retried : array_like of bool, (refusals,)
    shapes, models : array_like of int, (refusals,)
        Shapes in [0, k).
    lengths : array_like of float, (refusals,)
        In characters, >= 1; nan where unknown, which leaves the adjusted difference.
    base : int
        The shape that others are compared with; its own differences are undefined.

    Notes
    -----
    Rate: limits of Clopper and Pearson, which cover at least 95 % at every n. Unadjusted: hybrid
    score limits (Newcombe's method 10). Adjusted: delta method from the inverse information of
    the fit, clipped to [-1, 1]; no guarantee at a given n. In 400 simulated sets a time they held
    the true difference in 92 to 96 % with 100 to 1,000 refusals of two shapes, whether shape,
    length or neither moved retries. Lengths and models are taken as given.
    A shape covers the lengths between its 5th and 95th percentile. `support` is the smaller of
    the two shapes' shares of refusals whose length both cover: .9 where lengths are alike.
    Not estimable: fewer than 20 refusals of either shape, fewer than 5 of the rarer outcome for
    each coefficient, support below .25 (what would be compared is then the model's line and no
    refusal), a model or length that goes with the shape throughout, and separation: a
    combination of the covariates parts the retried from the others, and no fit exists.
    Null inverted: the difference, by Wald's test. The line in log(length) is assumed.
    Length follows from the shape (a lecture takes words), so that the adjusted difference leaves
    out whatever goes with a shape through its length; the unadjusted one holds it. What was asked
    can move shape and retry alike: neither difference is causal.
    Source: Newcombe (1998), Stat. Med. 17, 873-890; Konis (2007), thesis, Oxford (separation by
    a linear programme); Vittinghoff, McCulloch (2007), Am. J. Epidemiol. 165, 710-718.
    """
    again, shape = np.asarray(retried, dtype=bool), np.asarray(shapes, dtype=np.int64)
    length, model = np.asarray(lengths, dtype=np.float64), np.asarray(models, dtype=np.int64)
    if not again.shape == shape.shape == length.shape == model.shape == (len(again),):
        sizes = [np.shape(it) for it in (retried, shapes, lengths, models)]
        raise ValueError(f"retried, shapes, lengths, models of one length, got {sizes}")
    if len(shape) and not 0 <= shape.min() <= shape.max() < k:
        raise ValueError(f"shapes in [0, {k}), got {shape.min()} to {shape.max()}")
    if (length < 1).any():
        raise ValueError(f"lengths >= 1, got {np.nanmin(length)}")
    found = []
    for one in range(k):
        own, other = shape == one, shape == base
        n, x = int(own.sum()), int(again[own].sum())
        rate, known = exact_share(x, n), ~np.isnan(length)
        if one == base:
            itself = Estimate(None, None, None, "the shape that others are compared with")
            found.append(Retries(n, x, rate, itself, itself, int((own & known).sum()), None))
            continue
        plain = _newcombe(x, n, int(again[other].sum()), int(other.sum()))
        rows = (own | other) & known
        adjusted, support = _adjusted(again[rows], own[rows], np.log(length[rows]), model[rows])
        found.append(Retries(n, x, rate, plain, adjusted, int((own & known).sum()), support))
    return tuple(found)


def _newcombe(x: int, n: int, y: int, m: int) -> Estimate:
    """Return x/n - y/m with hybrid score limits."""
    if not n or not m:
        return Estimate(
            None, None, None, f"no refusal of {'this shape' if m else 'the shape to compare with'}"
        )
    p, q = x / n, y / m
    first, second = wilson_interval(x, n), wilson_interval(y, m)
    assert first.low is not None and first.high is not None
    assert second.low is not None and second.high is not None
    low = p - q - math.hypot(p - first.low, second.high - q)
    high = p - q + math.hypot(first.high - p, q - second.low)
    return Estimate(p - q, low, high)


def _adjusted(
    again: Bools, own: Bools, size: Floats, model: NDArray[np.int64]
) -> tuple[Estimate, float | None]:
    """Return the adjusted difference, and the support; `size` is the log of the length."""
    counts = int(own.sum()), int((~own).sum())
    if not all(counts):
        return _none("no refusal of this shape and of the base with a length"), None
    both = _covered(size, own)
    support = float(min(both[own].mean(), both[~own].mean()))
    if min(counts) < LEAST_REFUSALS:
        few = f"{counts[0]} refusals against {counts[1]}, fewer than {LEAST_REFUSALS} of one"
        return _none(few), support
    if support < LEAST_SUPPORT:
        few = f"lengths hardly overlap: {100 * support:.0f} % of one shape's refusals are of a"
        return _none(
            f"{few} length that both have, fewer than {100 * LEAST_SUPPORT:.0f} %"
        ), support
    names = np.unique(model)[1:]
    spread = float(size.std()) or 1.0
    rest = [(size - size.mean()) / spread, *(model == name for name in names)]
    covariates = np.column_stack([np.ones(len(size)), own, *rest]).astype(np.float64)
    width = covariates.shape[1]
    if np.linalg.matrix_rank(covariates) < width:
        return _none("model or length goes with the shape throughout"), support
    events = int(min(again.sum(), (~again).sum()))
    if events < LEAST_EVENTS * width:
        rare = f"{events} of the rarer outcome for {width} coefficients, fewer than {LEAST_EVENTS}"
        return _none(f"{rare} each"), support
    if _separated(covariates, again):
        return _none("separation: no fit exists"), support
    fit = logistic(covariates, again)
    if fit is None:
        return _none("the fit does not converge"), support
    at = covariates[both]
    as_own, as_base = at.copy(), at.copy()
    as_own[:, 1], as_base[:, 1] = 1, 0
    mean = _expit(as_own @ fit[0]), _expit(as_base @ fit[0])
    slope = [(p * (1 - p)) @ x / len(x) for p, x in zip(mean, (as_own, as_base), strict=True)]
    gradient = slope[0] - slope[1]
    error = math.sqrt(float(gradient @ fit[1] @ gradient))
    value = float((mean[0] - mean[1]).mean())
    return Estimate(value, max(-1.0, value - _Z * error), min(1.0, value + _Z * error)), support


def _none(reason: str) -> Estimate:
    return Estimate(None, None, None, reason)


def _covered(size: Floats, own: Bools) -> Bools:
    """Tell which lengths both shapes cover."""
    ranges = [np.quantile(size[rows], COVERED) for rows in (own, ~own)]
    low, high = max(it[0] for it in ranges), min(it[1] for it in ranges)
    return np.asarray((size >= low) & (size <= high))


def _separated(covariates: Floats, again: Bools) -> bool:
    """Tell whether a combination of covariates parts the outcomes, if only weakly.

    The programme seeks b in [-1, 1] with (2y - 1) x'b >= 0 in all rows, and above 0 in one.
    """
    from scipy.optimize import linprog  # takes longer to load than all else here, for few callers

    signed = np.where(again, 1.0, -1.0)[:, None] * covariates
    found = linprog(-signed.sum(axis=0), A_ub=-signed, b_ub=np.zeros(len(signed)), bounds=(-1, 1))
    return bool(found.status != 0 or -found.fun > 1e-7)


def logistic(covariates: Floats, outcome: Bools) -> tuple[Floats, Floats] | None:
    """Fit a logistic regression by iteratively reweighted least squares.

    Returns
    -------
    tuple or None
        Coefficients and their covariance, the inverse information; None if 50 steps do not
        settle them. Whether a fit exists is for the caller to know.
    """
    beta = np.zeros(covariates.shape[1])
    for _ in range(_STEPS):
        p = _expit(covariates @ beta)
        information = (covariates * (p * (1 - p))[:, None]).T @ covariates
        step = np.linalg.solve(information, covariates.T @ (outcome - p))
        beta = beta + step
        if np.abs(step).max() < 1e-9:
            return beta, np.asarray(np.linalg.inv(information), dtype=np.float64)
    return None


def _expit(x: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-np.clip(x, -700, 700))))
