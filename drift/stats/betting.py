"""Betting against a null: wealth set aside for start times, and exact arithmetic.

A formula here serves one series (Python floats) and many lifetimes (numpy arrays of one
shape) alike. Floats are the record's: exp and log go through `decimal` at 40 digits and are
rounded once, the rest is + - * / in fixed order, so that a record
re-derives bit for bit on any machine. Arrays, which are simulations, take numpy's own.
"""

import operator
from collections.abc import Callable, Iterable
from decimal import Context, Decimal
from functools import lru_cache, reduce
from itertools import accumulate
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.integer[Any]]
X = TypeVar("X", float, Floats)

CAP: Final = 1e300  # of a wealth; capping only lowers the evidence
_DIGITS: Final = Context(prec=40)


def exp(x: X) -> X:
    """Return e to the power x."""
    return np.exp(x) if isinstance(x, np.ndarray) else float(_DIGITS.exp(Decimal(x)))


def log(x: X) -> X:
    """Return the natural logarithm of x > 0."""
    return np.log(x) if isinstance(x, np.ndarray) else _log(x)


@lru_cache(maxsize=4096)
def _log(x: float) -> float:
    return float(_DIGITS.ln(Decimal(x)))


def lesser(x: X, y: float) -> X:
    """Return the smaller of two numbers."""
    return np.minimum(x, y) if isinstance(x, np.ndarray) else min(x, y)


def greater(x: X, y: X) -> X:
    """Return the greater of two numbers."""
    return np.maximum(x, y) if isinstance(x, np.ndarray) else max(x, y)


def total(xs: Iterable[X]) -> X:
    """Return the sum, added one by one: `sum` is compensated from Python 3.12 on."""
    return reduce(operator.add, xs)


def weight(t: int, horizon: int) -> float:
    """Return w_t, the wealth that starts at bet t: half at once, the rest spread evenly.

    w_1 = 1/2 and w_t = 1 / (2 (H - 1)) for t = 2..H, 1 in all. A single start would have
    to repay, after a change, what quiet refreshes had cost it (evidence debt).
    """
    return 0.5 if t == 1 else 0.5 / (horizon - 1)


def spent(bets: int, horizon: int) -> float:
    """Return the sum of w_t over the first `bets` bets; exactly 1 at the horizon."""
    return 0.5 + 0.5 * (bets - 1) / (horizon - 1) if bets else 0.0


def wager(wealth: Iterable[X], factors: Iterable[X], w: float) -> tuple[X, ...]:
    """Return min((S_k + w) f_k, 1e300): one more start, then everything is bet at once."""
    return tuple(lesser((s + w) * f, CAP) for s, f in zip(wealth, factors, strict=True))


def evidence(wealth: tuple[X, ...], gone: float) -> X:
    """Return E = 1 - sum w + mean S: what is not yet bet, and what became of the rest.

    If each factor has mean 1 under the null given the past, E is a martingale
    from 1 and P(E ever >= c) <= 1/c (Ville).
    """
    return (1 - gone) + total(wealth) / len(wealth)


def trajectory(start: Any, steps: Iterable[tuple[Any, ...]]) -> Floats:
    """Return E after each step of a watch; the last one past the horizon, 1 if not estimable."""
    watches = accumulate(steps, lambda w, step: w if w.over else w.step(*step), initial=start)
    return np.array([1.0 if w.evidence is None else w.evidence for w in watches][1:])


def carried(counts: Integers, fold: Callable[[Integers], Floats]) -> Floats:
    """Apply `fold` to the values alone; at a gap (-1) E stands where it stood, 1 at first.

    `counts` has time as its last axis. `fold` sees no gap: each lifetime's values come
    first, then zeros whose results are not used, so a gap uses nothing up.
    """
    present = counts >= 0
    if present.all():
        with np.errstate(over="ignore"):  # a wealth that overflows is capped
            return fold(counts)
    order = np.argsort(~present, axis=-1, kind="stable")
    values = np.maximum(np.take_along_axis(counts, order, -1), 0)
    path = np.ones((*counts.shape[:-1], counts.shape[-1] + 1))
    path[..., 1:] = carried(values, fold)
    return np.take_along_axis(path, present.cumsum(-1), -1)
