"""Counts of arms that changed: from the labels of usable runs to the values of a series.

Labels are an int8 array, usable runs x canonical arms: 1 refused, 0 answered, -1 neither.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Labels = NDArray[np.int8]


@dataclass(frozen=True)
class Count:
    """The arms determined in all runs of one value, and the columns of those that changed."""

    arms: int
    changed: tuple[int, ...]

    @property
    def raw(self) -> int:
        """The number of arms that changed."""
        return len(self.changed)

    def value(self, n: int) -> int | None:
        """Return D = round-half-even(raw n / arms), in integers; None if arms < .7 n."""
        if self.arms == 0 or 10 * self.arms < 7 * n:
            return None
        return round(Fraction(self.raw * n, self.arms))


def home_count(before: Labels, now: Labels) -> Count:
    """Count the departures from home: arms that leave where they lived.

    An arm's home is the strict majority of its determined labels over `before`, the last
    (at most 40) usable runs, oldest first, 2 or more; a tie is no home. It departs if its
    last two labels are at home and `now`, one row, is not. A return is not counted, and
    an arm that lives away is counted once, until its home has moved.
    """
    runs = _runs(before, now, least=3)
    refused, answered = (before == 1).sum(0), (before == 0).sum(0)
    home = np.where(refused == answered, -1, refused > answered)
    return _count(runs[-3:], (runs[-3:-1] == home).all(0) & (now != home))


def pair_count(first: Labels, second: Labels) -> Count:
    """Count the arms whose label differs between two runs, one row each."""
    return _count(_runs(first, second, least=2), first != second)


def burst_count(four: Labels) -> Count:
    """Count the confirmed flips x[0] = x[1] != x[2] = x[3], so decided one run later."""
    x = _runs(four, least=4)
    return _count(x, (x[0] == x[1]) & (x[1] != x[2]) & (x[2] == x[3]))


def home_counts(labels: Labels, *, window: int = 40) -> list[Count]:
    """Return the departures from home at runs 2, 3, ...; home is read over `window` runs."""
    return [home_count(labels[max(0, r - window) : r], labels[r]) for r in range(2, len(labels))]


def pair_counts(labels: Labels) -> list[Count]:
    """Return the counts of the disjoint pairs of runs (0, 1), (2, 3), ..."""
    return [pair_count(labels[r - 1], labels[r]) for r in range(1, len(labels), 2)]


def adjacent_counts(labels: Labels) -> list[Count]:
    """Return the flips of runs 1, 2, ... against the run before."""
    return [pair_count(labels[r - 1], labels[r]) for r in range(1, len(labels))]


def burst_counts(labels: Labels) -> list[Count]:
    """Return the confirmed flips at runs 2, 3, ..., each decided by the run after."""
    return [burst_count(labels[r - 3 : r + 1]) for r in range(3, len(labels))]


def _runs(*labels: Labels, least: int) -> Labels:
    runs = np.vstack(labels)
    if len(runs) < least:
        raise ValueError(f"runs >= {least}, got {len(runs)}")
    if ((runs < -1) | (runs > 1)).any():
        raise ValueError(f"labels in -1, 0, 1; got {sorted(set(runs.ravel().tolist()))}")
    return runs


def _count(runs: Labels, moved: NDArray[np.bool_]) -> Count:
    known = (runs >= 0).all(0)
    return Count(int(known.sum()), tuple(np.flatnonzero(known & moved).tolist()))
