"""Several models at once: thresholds, merged evidence, and procedures for many tests.

An e-value is None for a model that calibrates, is closed or is not estimable: it enters
as 1. Indices count from 0 in the order given. Conformal evidence must not enter here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from drift.stats.betting import total
from drift.stats.inputs import checked_count, checked_share


@dataclass(frozen=True)
class ExpectedFalse:
    """The most false entries to expect among the watches opened so far."""

    watches: int
    watch: float
    alarm: float


def union_threshold(c: float, models: int) -> float:
    """Return c M: P(any of M null series ever reaches it) <= 1/c under any dependence."""
    return c * checked_count("models", models)


def merged_mean(es: Sequence[float | None]) -> float | None:
    """Return the arithmetic mean of e-values, an e-value under any dependence; None of none.

    Null: that of every model, given the pasts of all. Each model adds 2.5 % for its p0.
    Source: Vovk, Wang (2021), Annals of Statistics 49, 1736-1754.
    """
    return total(_entered(es)) / len(es) if es else None


def e_bh(es: Sequence[float | None], *, alpha: float = 0.05) -> tuple[int, ...]:
    """Reject the r largest e-values for the greatest r whose r-th largest is >= K/(r alpha).

    Guarantee: false discovery rate <= alpha at one fixed look, any dependence; never of
    running maxima. With bounds p0 that fail at 2.5 % each, alpha + 2.5 % for each model.
    Source: Wang, Ramdas (2022), J. R. Statist. Soc. B 84, 822-852.
    """
    e, order = _ranked(es)
    alpha = checked_share("alpha", alpha)
    sizes = [r for r in range(1, len(e) + 1) if e[r - 1] * r * alpha >= len(e)]
    return tuple(sorted(order[: max(sizes, default=0)]))


def closed_e_bh(es: Sequence[float | None], *, alpha: float = 0.05) -> tuple[int, ...]:
    """Reject the largest set R which every set A of hypotheses allows, a superset of `e_bh`.

    A allows R when the mean of its e-values, an e-value if A are the true nulls, is at
    least |A and R| / (|R| alpha). R is the r largest; the A hardest to satisfy with a
    members inside and b outside R are the smallest of each, so sorting replaces the
    search over all 2^K sets by one over (a, b). Guarantee as `e_bh`.
    Source: Xu, Solari, Fischer, de Heide, Ramdas, Goeman (2025), Bringing closure to
    FDR control, arXiv 2509.02517.
    """
    e, order = _ranked(es)
    alpha = checked_share("alpha", alpha)
    for r in range(len(e), 0, -1):
        inside = np.cumsum(e[:r][::-1])[:, None]
        outside = np.cumsum([0.0, *e[r:][::-1]])
        a, b = np.arange(1, r + 1)[:, None], np.arange(len(e) - r + 1)
        if ((inside + outside) * r * alpha >= (a + b) * a).all():
            return tuple(sorted(order[:r]))
    return ()


def holm(ps: Sequence[float]) -> tuple[float, ...]:
    """Return Holm's adjusted p-values, in the order given: rejecting those <= alpha.

    The i-th smallest of K, counted from 0, becomes the largest (K - j) p_(j) over j <= i,
    at most 1. Guarantee: P(any false rejection) <= alpha, any dependence.
    Source: Holm (1979), Scandinavian J. Statistics 6, 65-70.
    """
    if outside := [p for p in ps if not 0 <= p <= 1]:
        raise ValueError(f"p in [0, 1], got {outside[0]}")
    adjusted, least = [0.0] * len(ps), 0.0
    for i, index in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        least = adjusted[index] = max(least, min(1.0, (len(ps) - i) * ps[index]))
    return tuple(adjusted)


def expected_false(watches: int) -> ExpectedFalse:
    """Return K x 5 % watches and K x 1 % alarms: at most that many, if nothing ever changes."""
    K = checked_count("watches", watches)
    return ExpectedFalse(K, K / 20, K / 100)


def _entered(es: Sequence[float | None]) -> list[float]:
    entered = [1.0 if e is None else float(e) for e in es]
    if negative := [e for e in entered if not e >= 0]:
        raise ValueError(f"e >= 0, got {negative[0]}")
    return entered


def _ranked(es: Sequence[float | None]) -> tuple[list[float], list[int]]:
    """Return the e-values, largest first, and their indices."""
    entered = _entered(es)
    order = sorted(range(len(entered)), key=lambda i: -entered[i])
    return [entered[i] for i in order], order
