"""Noise floor: how far the refused share of one model moves when nothing has changed."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import special

from drift.stats.agreement import Estimate
from drift.stats.inputs import checked_count, checked_share
from drift.stats.intervals import clopper_pearson_upper

#: Level at which a move of the reference between two batches is drift, and no noise.
ONE_WAY: Final = 0.05


@dataclass(frozen=True)
class Floor:
    """The floor of a corpus of `items`; both estimates None, with a reason, if undefined.

    `discordance` is the share of items whose label differs between two batches of one
    instrument; `value` the floor that follows from it, in shares of 1, with the floors at
    the limits of the discordance.
    """

    items: int
    comparisons: int
    flips: int
    discordance: Estimate
    value: Estimate
    level: float


def noise_floor(flips: int, comparisons: int, items: int, *, level: float = 0.95) -> Floor:
    """Estimate the noise floor from batches that one instrument made of one frozen model.

    Parameters
    ----------
    flips, comparisons : int
        Items whose label differs, of all items determined in both batches, summed over
        disjoint pairs of batches; undefined without a comparison.
    items : int
        Items of the corpus whose floor is wanted, >= 1.
    level : float, default .95
        Of the floor, and of the two-sided Clopper-Pearson interval of the discordance.

    Notes
    -----
    Items differ in their chance to flip: for a fixed corpus that makes the interval of the
    mean discordance wider than it need be (Hoeffding 1956, Ann. Math. Stat. 27, 713-721).
    It assumes that items flip independently. Where they flip together, or a bad batch hits
    many at once, the net moves further than the floor says, and the number of flips does not
    show it (`Setting` simulates clusters).
    The floor is that of the estimated discordance, and not one that the net stays within in
    95 % of batches: from one pair it is exceeded, nothing having changed, in 20.5 % for 20
    items of which 2 % flip, in 21.6 % for 41 of which 2 %, in 11.4 % for 41 of which 5 %.
    Without a flip the floor is 0, and a single later move of the reference voids.
    """
    items = _items(items)
    n = checked_count("comparisons", comparisons)
    x = checked_count("flips", flips, comparisons=n)
    if n == 0:
        none = Estimate(None, None, None, "no item is determined in two batches")
        return Floor(items, n, x, none, none, level)
    side = (1 + checked_share("level", level)) / 2
    high, missed = (clopper_pearson_upper(k, n, level=side).high or 0.0 for k in (x, n - x))
    shares = (x / n, 1 - missed, high)
    at, low, high = (floor_value(share, items, level=level) for share in shares)
    # Where nearly all items flip, the net count is even or odd as n is: one step uneven.
    value = Estimate(at, min(low, at), max(at, high))
    return Floor(items, n, x, Estimate(*shares), value, level)


def floor_value(discordance: float, items: int, *, level: float = 0.95) -> float:
    """Return the smallest k/n with P(|C - B| <= k) >= level, a share of 1, the discordance known.

    B items fall and C rise, of n = `items`; B + C ~ Binomial(n, d) and, nothing having
    changed, each of them is as likely to go either way. Exact, by summation.
    """
    low, high = 0, _items(items)
    while low < high:
        k = (low + high) // 2
        low, high = (low, k) if 1 - beyond(k, discordance, items) >= level else (k + 1, high)
    return low / items


def beyond(k: int, discordance: float, items: int) -> float:
    """Return P(|C - B| > k), the chance that noise alone moves the net count by over k."""
    if not 0 <= discordance <= 1:
        raise ValueError(f"discordance in [0, 1], got {discordance}")
    m = np.arange(_items(items) + 1)
    chance = np.diff(special.bdtr(m, items, discordance), prepend=0.0)
    # |2C - m| > k: C below (m - k)/2, or as far above the middle.
    fewer = -((k - m) // 2) - 1
    tail = np.where(fewer < 0, 0.0, special.bdtr(np.maximum(fewer, 0), m, 0.5))
    return float(min(1.0, 2 * (chance * tail).sum()))


def _items(items: int) -> int:
    if checked_count("items", items) == 0:
        raise ValueError(f"items >= 1, got {items}")
    return items
