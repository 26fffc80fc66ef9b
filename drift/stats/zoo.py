"""The stationary zoo: simulated models which never change, and the changes power is measured on.

The labels of all n <= 64 arms of one run of one lifetime are one word: bit i is set where arm i
was refused. Every count is the same if an arm's two labels are swapped, so the label an arm
begins with, or its usual one, is 0 throughout.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Rng: TypeAlias = np.random.Generator
Bits: TypeAlias = npt.NDArray[np.uint64]
Places: TypeAlias = npt.NDArray[np.bool_]  # a mask over (runs, lifetimes)
SEED: Final = 20261129
BIT: Final = np.uint64(1) << np.arange(64, dtype=np.uint64)
CHUNK: Final = 1 << 18  # gaps drawn at a time, which bounds the memory


class Size(NamedTuple):
    """How much to draw."""

    runs: int
    lifetimes: int
    n: int  # arms, at most 64


class Lifetimes(NamedTuple):
    """Labels, shape (runs, lifetimes); `missing` marks arms without one, None where all have."""

    refused: Bits
    missing: Bits | None = None


def scattered(rng: Rng, words: int, n: int, p: float) -> Bits:
    """Draw `words` words of n bits, each set with chance p, by the geometric gaps between them."""
    drawn = np.zeros(words, np.uint64)
    end, last = words * n, -1 if p else words * n
    size = min(CHUNK, int(1.05 * end * p) + 64)
    while last < end:
        at = last + np.cumsum(rng.geometric(p, size))
        last = int(at[-1])
        word, arm = np.divmod(at[at < end], n)
        first = np.flatnonzero(np.diff(word, prepend=-1))
        # A chunk may end inside a word, so the next one adds to it.
        drawn[word[first]] |= np.bitwise_or.reduceat(BIT[arm], first) if first.size else BIT[:0]
    return drawn


def by_place(rng: Rng, n: int, *places: tuple[Places, float]) -> Bits:
    """Draw words of n bits with the chance that belongs to each place; elsewhere 0."""
    drawn = np.zeros(places[0][0].shape, np.uint64)
    for where, p in places:
        drawn[where] = scattered(rng, int(where.sum()), n, p)
    return drawn


def chains(rng: Rng, size: Size, leave: float, back: float) -> Bits:
    """Draw n two-state chains per lifetime from their stationary law; a set bit is away."""
    runs, lifetimes, n = size
    arm = np.arange(lifetimes * n)
    at = np.zeros_like(arm)
    away = rng.random(arm.size) < leave / (leave + back)
    moved = np.zeros(runs * lifetimes, np.uint64)
    np.bitwise_or.at(moved, arm[away] // n, BIT[arm[away] % n])
    while arm.size:
        at = at + rng.geometric(np.where(away, back, leave))
        inside = at < runs
        at, arm, away = at[inside], arm[inside], ~away[inside]
        np.bitwise_or.at(moved, at * lifetimes + arm // n, BIT[arm % n])
    return np.bitwise_xor.accumulate(moved.reshape(runs, lifetimes), axis=0)


def clock(rng: Rng, size: Size, period: int) -> npt.NDArray[np.int_]:
    """Return the place of each run in a cycle of `period` runs, begun at random per lifetime."""
    return (np.arange(size.runs)[:, None] + rng.integers(period, size=size.lifetimes)) % period


def walk(flips: Bits) -> Lifetimes:
    """Return the labels which these flips lead through."""
    return Lifetimes(np.bitwise_xor.accumulate(flips, axis=0))


def iid_flips(rng: Rng, size: Size, *, p: float) -> Lifetimes:
    """Each arm flips with chance p at each run, whatever its label."""
    return walk(scattered(rng, size.runs * size.lifetimes, size.n, p).reshape(size[:2]))


def iid_glitch(rng: Rng, size: Size, *, p: float) -> Lifetimes:
    """Each arm errs with chance p, for one run."""
    return Lifetimes(scattered(rng, size.runs * size.lifetimes, size.n, p).reshape(size[:2]))


def knife_edge(rng: Rng, size: Size, *, p: float) -> Lifetimes:
    """One arm in twenty (one of 14, two of 41) errs with chance p at each run, the others never."""
    return iid_glitch(rng, size._replace(n=max(1, size.n // 20)), p=p)


def bad_runs(rng: Rng, size: Size, *, share: float, p: float) -> Lifetimes:
    """Arms err with chance p in a bad run, else never; a run is bad with chance `share`."""
    return Lifetimes(by_place(rng, size.n, (rng.random(size[:2]) < share, p)))


def backends(rng: Rng, size: Size, *, leave: float, back: float) -> Lifetimes:
    """One of two backends answers a whole run; they differ on 15 % of arms (2 of 14, 6 of 41)."""
    other = chains(rng, size._replace(n=1), leave, back)
    return Lifetimes(other * BIT[: round(0.15 * size.n)].sum())


def visits(rng: Rng, size: Size, *, leave: float, back: float) -> Lifetimes:
    """Each arm leaves its home label with chance `leave` and returns with chance `back`."""
    return Lifetimes(chains(rng, size, leave, back))


def weekday(rng: Rng, size: Size) -> Lifetimes:
    """Flips with chance .5 % on weekdays and 4 % at weekends, at four runs a day."""
    weekend = clock(rng, size, 28) >= 20
    return walk(by_place(rng, size.n, (weekend, 0.04), (~weekend, 0.005)))


def every_fourth(rng: Rng, size: Size) -> Lifetimes:
    """Every fourth (full) run each arm errs for that run with chance 3 %, else .25 %."""
    full = clock(rng, size, 4) == 0
    return Lifetimes(by_place(rng, size.n, (full, 0.03), (~full, 0.0025)))


def episodes(rng: Rng, size: Size) -> Lifetimes:
    """Episodes begin with chance .5 % and last 4 runs in the mean; in one each arm errs at .35."""
    inside = chains(rng, size._replace(n=1), 0.005, 0.25)
    return Lifetimes(by_place(rng, size.n, (inside == 1, 0.35)))


def missingness(rng: Rng, size: Size, *, p: float) -> Lifetimes:
    """Flips with chance p; 10 % of the arms (1 of 14, 4 of 41) are missing until run 300.

    They are drawn anew each run without replacement (Floyd's algorithm), and are as many
    as a usable run may miss.
    """
    labels = iid_flips(rng, size, p=p)
    missing = np.zeros_like(labels.refused)
    early = missing[:300]
    for most in range(size.n - size.n // 10, size.n):
        arm = BIT[rng.integers(most, size=early.shape, endpoint=True)]
        early |= np.where(early & arm, BIT[most], arm)
    return labels._replace(missing=missing)


def change(rng: Rng, size: Size, *, before: float, after: float, at: int) -> Lifetimes:
    """Each arm flips with chance `before` until run `at`, and with chance `after` from it on."""
    late = np.broadcast_to(np.arange(size.runs)[:, None] >= at, size[:2])
    return walk(by_place(rng, size.n, (~late, before), (late, after)))


@dataclass(frozen=True)
class Member:
    """A model; those of the zoo never change.

    Attributes
    ----------
    index : int
        Fixed for ever: the labels come from ``default_rng([seed, index, n])``.
    draw : callable
        ``(rng, size) -> Lifetimes``; its docstring opens with what the model does.
    gated : frozenset of str
        The processes whose claim covers the model.
    """

    index: int
    draw: Callable[[Rng, Size], Lifetimes]
    gated: frozenset[str] = frozenset()

    @property
    def description(self) -> str:
        """What the model does."""
        draw = self.draw.func if isinstance(self.draw, partial) else self.draw
        return (draw.__doc__ or "").partition("\n")[0]

    def __call__(self, *, n: int, runs: int, lifetimes: int, seed: int = SEED) -> Lifetimes:
        """Draw the labels."""
        if not 1 <= n <= 64:
            raise ValueError(f"n in [1, 64], got {n}")
        return self.draw(np.random.default_rng([seed, self.index, n]), Size(runs, lifetimes, n))


_HOME: Final = frozenset({"home"})
_EXACT: Final = frozenset({"home", "pairs"})
_ALL: Final = frozenset({"home", "pairs", "mixture", "restart"})

ZOO: Final[dict[str, Member]] = {
    "iid flips 0.2 %": Member(1, partial(iid_flips, p=0.002), _ALL),
    "iid flips 0.5 %": Member(2, partial(iid_flips, p=0.005), _ALL),
    "iid flips 1.5 %": Member(3, partial(iid_flips, p=0.015), _ALL),
    "iid flips 3 %": Member(4, partial(iid_flips, p=0.03), _ALL),
    "iid glitch 0.25 %": Member(5, partial(iid_glitch, p=0.0025), _EXACT),
    "iid glitch 0.75 %": Member(6, partial(iid_glitch, p=0.0075), _EXACT),
    "knife-edge 0.1": Member(7, partial(knife_edge, p=0.1), _EXACT),
    "knife-edge 0.5": Member(8, partial(knife_edge, p=0.5), _EXACT),
    "bad runs 2 %, 0.35": Member(9, partial(bad_runs, share=0.02, p=0.35), _EXACT),
    "bad runs 0.5 %, 0.5": Member(10, partial(bad_runs, share=0.005, p=0.5), _EXACT),
    "symmetric backends": Member(11, partial(backends, leave=0.03, back=0.03), _EXACT),
    "asymmetric backends": Member(12, partial(backends, leave=0.002, back=0.05), _HOME),
    "visits 0.005, 0.05": Member(13, partial(visits, leave=0.005, back=0.05), _HOME),
    "visits 0.001, 0.1": Member(14, partial(visits, leave=0.001, back=0.1), _HOME),
    "visits 0.002, 0.02": Member(15, partial(visits, leave=0.002, back=0.02), _HOME),
    "visits 0.01, 0.5": Member(16, partial(visits, leave=0.01, back=0.5), _HOME),
    "weekday": Member(17, weekday, _HOME),
    "every fourth run": Member(18, every_fourth, _HOME),
    "missingness": Member(19, partial(missingness, p=0.015), _HOME),
    "episodes": Member(20, episodes),
    "all zero": Member(21, partial(iid_flips, p=0), _ALL),
}
