"""Attribution of a change: to the target, or to the instrument that asked and judged it.

A reference, whose weights cannot change, is asked in the same two batches. What moves the
reference is the instrument's doing; what moves the target alone is laid to the target.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import special

from drift.stats.floor import ONE_WAY, floor_value
from drift.stats.inputs import Label, checked_count, checked_share
from drift.stats.intervals import Interval, clopper_pearson_upper
from drift.stats.paired import (
    midp_mcnemar,
    midp_of_counts,
    minimum_detectable_flips,
    paired_table,
)

Kind: TypeAlias = Literal["attributable", "drifted", "no room", "no change", "not estimable"]
Counts: TypeAlias = npt.NDArray[np.int64]
#: What a floor read from ten printed digits may lack of the count that it stands for.
ROUNDING: Final = 1e-6


@dataclass(frozen=True)
class Pairs:
    """Counts of the items determined in both of two batches.

    Of `n`, `fell` went from refused to answered, `rose` the other way; `refused_before` were
    refused in the first batch.
    """

    n: int
    fell: int
    rose: int
    refused_before: int

    def __post_init__(self) -> None:
        """Check that the counts fit into each other."""
        n = checked_count("n", self.n)
        before = checked_count("refused_before", self.refused_before, n=n)
        checked_count("fell", self.fell, refused_before=before)
        checked_count("rose", self.rose, answered_before=n - before)

    @property
    def delta(self) -> float | None:
        """The change of the refused share, (rose - fell)/n; None without an item."""
        return (self.rose - self.fell) / self.n if self.n else None


@dataclass(frozen=True)
class Attribution:
    """The verdict on two batches, and what it rests on; None where there is no number.

    `difference_interval` is of the target's delta less the reference's.
    """

    kind: Kind
    delta: float | None
    interval: Interval
    midp: float | None
    reference_delta: float | None
    difference_interval: Interval
    reason: str | None = None


def pairs_of(base: Mapping[str, Label], candidate: Mapping[str, Label]) -> Pairs:
    """Count the items with a determined label in both of two batches of the same items."""
    if unpaired := sorted(base.keys() ^ candidate.keys()):
        raise ValueError(f"the same items in both batches; in one alone: {', '.join(unpaired)}")
    table = paired_table({item: (base[item], candidate[item]) for item in base})
    fell, rose = len(table["refused", "answered"]), len(table["answered", "refused"])
    refused = len(table["refused", "refused"]) + fell
    return Pairs(len(base) - len(table[None]), fell, rose, refused)


def paired_interval(pairs: Pairs, *, level: float = 0.95) -> Interval:
    """Compute the Bonett-Price interval of a change of paired shares; undefined when n = 0.

    With a = (rose + 1)/(n + 2), b = (fell + 1)/(n + 2) and z the normal quantile::

        a - b ± z sqrt((a + b - (a - b)²)/(n + 2)),  cut at -1 and 1

    Notes
    -----
    Guarantee: none at every n and share; mean coverage is close to the level.
    Its centre is drawn towards 0, and it has a width when nothing moved.
    Source: Bonett, Price (2012), J. Educ. Behav. Stat. 37, 479-488; compared with others,
    Newcombe's among them, by Fagerland, Lydersen, Laake (2014), Stat. Med. 33, 2850-2875.
    """
    return _interval(1 - checked_share("level", level), pairs)


def attribute(
    target: Pairs, reference: Pairs, *, floor: float, alpha: float, same_bytes: bool
) -> Attribution:
    """Say whether a change is the target's own, by a reference asked in the same batches.

    In this order: *not estimable*, if no count of flips among the items of one of them could
    be significant; *drifted*, if the reference moved by more than the floor; *no change*,
    unless the target moved (`midp_mcnemar` <= alpha); *no room*, if the reference could not
    have moved as far the same way; *no change*, unless the target moved from the reference,
    and the same way (MOVER interval of the difference beyond 0); else *attributable*.

    Parameters
    ----------
    floor : float
        `noise_floor` of the reference, a share in [0, 1].
    alpha : float
        Of this one look, in (0, 1); the intervals have level 1 - alpha.
    same_bytes : bool
        All texts of the reference are byte-identical in both batches: room is not asked for.
        It shows that the reference did not move, not that it feels what the target does.

    Notes
    -----
    Null: an instrument moves the reference's share as far as the target's or further; items
    flip independently, and so do the two models. The error is then at most alpha, for
    discordance up to 1/2, the most that two batches of one instrument can have. That is no
    theorem: it is found by simulation (`simulate`) and, where nothing moved, by enumeration,
    at 1 and 5 % for 20, 41, 100 and 250 items. Above 1/2 it fails: 16 of 16 items that flip
    are attributed in 7.7 % at 5 %.
    It is not held either if the reference is less sensitive than the target, if items flip
    together (those of one run are no independent trials: see `flips`), if labels are lost
    more often where the model refused, nor by a choice among several looks. The page
    *attribution* has figures for all but the last.
    Source: MOVER, the difference of two estimates by their intervals, is of Zou, Donner
    (2008), Stat. Med. 27, 1693-1702.
    """
    if not 0 <= floor <= 1:
        raise ValueError(f"floor in [0, 1], got {floor}")
    checked_share("alpha", alpha)
    delta, moved = target.delta, reference.delta
    interval, difference = _interval(alpha, target), _interval(alpha, target, reference)
    p = midp_mcnemar(target.fell, target.rose)
    place = (delta, interval, p, moved, difference)
    for name, pairs in (("target", target), ("reference", reference)):
        if reason := minimum_detectable_flips(pairs.n, alpha=alpha).reason:
            return Attribution("not estimable", *place, f"{name}: {reason}")
    drifted, shown, room = _flags(
        target, reference, significant=p <= alpha, floor=floor, alpha=alpha
    )
    if drifted:
        return Attribution("drifted", *place, "the reference moved by more than the floor")
    if p > alpha:
        return Attribution("no change", *place, "the target's change is within noise")
    if not (room or same_bytes):
        return Attribution("no room", *place, "the reference could not have moved as far")
    if not shown:
        reason = "the target's change is not told from the reference's"
        return Attribution("no change", *place, reason)
    return Attribution("attributable", *place)


def _interval(alpha: float, pairs: Pairs, less: Pairs | None = None) -> Interval:
    z = _quantile(alpha)
    if pairs.n == 0 or (less and less.n == 0):
        return Interval(None, None, "no item is determined in both batches")
    centre, spread = _change(pairs)
    most = 1.0
    if less:
        other, its = _change(less)
        centre, spread, most = centre - other, float(np.hypot(spread, its)), 2.0
    return Interval(max(centre - z * spread, -most), min(centre + z * spread, most))


def _change(pairs: Any) -> tuple[Any, Any]:
    """Return centre and standard error of the Bonett-Price interval, of arrays too."""
    total = pairs.n + 2
    a, b = (pairs.rose + 1) / total, (pairs.fell + 1) / total
    return a - b, np.sqrt((a + b - (a - b) ** 2) / total)


def _flags(
    target: Any, reference: Any, *, significant: Any, floor: Any, alpha: float
) -> tuple[Any, Any, Any]:
    """Return whether the reference drifted, a change is shown, and there was room for it.

    Of pairs, or of arrays of them; `significant` says whether the target moved.
    """
    net, before = target.rose - target.fell, reference.refused_before
    drifted = abs(reference.rose - reference.fell) > floor * reference.n + ROUNDING
    centre, spread = _change(target)
    other, its = _change(reference)
    limit = _quantile(alpha) * np.hypot(spread, its)
    shown = significant & ((centre - other) * np.sign(net) > limit)
    room = np.where(net < 0, before, reference.n - before)
    return drifted, shown, room * target.n >= abs(net) * reference.n


def _quantile(alpha: float) -> float:
    return -float(special.ndtri(alpha / 2))


@dataclass(frozen=True)
class Setting:
    """Two batches as they are simulated; shares of 1.

    Noise moves `discordance` of a model's items, either way alike. A `shift` makes that much
    more of the target's items fall, and `sensitivity` times as much of the reference's, as
    far as it has refusals left; `reference_rate` of its items were refused before, and half
    of the target's. The rest is outside of what `attribute` assumes: `cluster` items each
    move together; with `floor_pairs` the floor is estimated from so many pairs of batches and
    `floor` is not used; labels of the second batch are lost, whichever model's and of
    whichever kind, by the shares named so, and both models need `usable_share` of their items.
    """

    items: int
    floor: float
    discordance: float
    reference_discordance: float
    shift: float
    sensitivity: float
    reference_rate: float = 0.9
    cluster: int = 1
    floor_pairs: int = 0
    refusals_lost: float = 0.0
    answers_lost: float = 0.0
    reference_answers_lost: float = 0.0
    usable_share: float = 0.0


@dataclass(frozen=True)
class Verdicts:
    """How many of the draws came to each verdict; `low`, `high` limit the attributable share."""

    setting: Setting
    draws: int
    drifted: int
    no_change: int
    no_room: int
    not_estimable: int
    attributable: int
    share: float
    low: float
    high: float


class _Drawn(NamedTuple):
    n: int | Counts
    fell: Counts
    rose: Counts
    refused_before: Counts


def simulate(setting: Setting, *, alpha: float, draws: int, seed: int) -> Verdicts:
    """Draw two batches many times over and give each pair its verdict, as `compare` does.

    With `sensitivity` 1 or more, or a `shift` of 0, *attributable* is an error. With 0 the
    target alone moves: if it changed, the share of *attributable* is the power; if an
    instrument did it which the reference does not feel, the same share is the error.
    A pair of batches whose reference moved significantly (`midp_mcnemar` <= `ONE_WAY`) is left
    out of an estimated floor. *Not estimable* is what has no floor then, too few labels, or
    more labels of the reference lost than may hide, with its move, beyond the floor.

    Notes
    -----
    A fall alone is simulated, and a rise is its mirror image, except that `compare` wants it
    on labels derived anew too, which takes from what is attributed. No texts are
    byte-identical. The limits are 95 % Clopper-Pearson.
    """
    n, rate = setting.items, setting.reference_rate
    rng = np.random.default_rng([seed, *(round(1e9 * value) for value in astuple(setting))])
    # The rate of the target has to hold its flips, and matters where labels are lost.
    middle = (1 + setting.shift) / 2
    target = _draw(rng, draws, setting, setting.discordance, setting.shift, middle)
    moved = min(setting.sensitivity * setting.shift, rate)
    reference = _draw(rng, draws, setting, setting.reference_discordance, moved, rate)
    floor = _floors(rng, draws, setting) if setting.floor_pairs else setting.floor
    target = _kept(rng, target, setting.refusals_lost, setting.answers_lost)
    reference = _kept(rng, reference, 0.0, setting.reference_answers_lost)
    significant = midp_of_counts(target.fell, target.rose) <= alpha
    drifted, shown, room = _flags(
        target, reference, significant=significant, floor=floor, alpha=alpha
    )
    few = np.minimum(target.n, reference.n) < setting.usable_share * n - ROUNDING
    most = abs(reference.rose - reference.fell) + n - reference.n
    unsure = few | np.isnan(floor) | (most > floor * reference.n + ROUNDING)
    unsure &= ~drifted
    shown, moved = (flags & ~drifted & ~unsure for flags in (shown, significant))
    void, hits, blind = (int(flags.sum()) for flags in (drifted, shown & room, moved & ~room))
    unusable = int(unsure.sum())
    high, missed = (clopper_pearson_upper(k, draws).high or 0.0 for k in (hits, draws - hits))
    counts = (void, draws - void - blind - unusable - hits, blind, unusable, hits)
    return Verdicts(setting, draws, *counts, hits / draws, 1 - missed, high)


def _draw(
    rng: np.random.Generator,
    draws: int,
    setting: Setting,
    discordance: float,
    shift: float,
    rate: float,
) -> _Drawn:
    """Draw counts of the items of one model, of which a share `rate` was refused before."""
    noise = discordance / 2
    if not 0 <= noise <= min(rate, 1 - rate) or not 0 <= shift <= rate:
        raise ValueError(
            f"flips within the shares refused and answered, {rate:g} and {1 - rate:g};"
            f" got {noise:g} each way and a shift of {shift:g}"
        )
    falls = min(noise + shift, rate)  # where no more can fall, fewer rise
    rises = falls - shift
    steady = 1 - falls - rises
    moves = (falls, rises, steady)
    clusters, left = divmod(setting.items, setting.cluster)
    counts = setting.cluster * rng.multinomial(clusters, moves, size=draws)
    if left:
        counts += left * rng.multinomial(1, moves, size=draws)
    fell, rose, rest = counts.T
    refused = rng.binomial(rest, (rate - falls) / steady if steady else 0.0)
    return _Drawn(setting.items, fell, rose, fell + refused)


def _kept(rng: np.random.Generator, drawn: _Drawn, refusals: float, answers: float) -> _Drawn:
    """Lose these shares of the labels of the second batch."""
    if not refusals and not answers:
        return drawn
    _, fell, rose, before = drawn
    kept = (1 - answers, 1 - refusals, 1 - refusals, 1 - answers)
    counts = (fell, rose, before - fell, drawn.n - before - rose)
    fell, rose, stayed, other = map(rng.binomial, counts, kept)
    return _Drawn(fell + rose + stayed + other, fell, rose, fell + stayed)


def _floors(rng: np.random.Generator, draws: int, setting: Setting) -> npt.NDArray[np.float64]:
    """Estimate a floor for each draw, from pairs of batches; nan where no pair is left."""
    noise, pairs = setting.reference_discordance, setting.floor_pairs
    found = _draw(rng, draws * pairs, setting, noise, 0.0, setting.reference_rate)
    still = midp_of_counts(found.fell, found.rose) > ONE_WAY
    flips = (still * (found.fell + found.rose)).reshape(draws, pairs).sum(1)
    compared = setting.items * still.reshape(draws, pairs).sum(1)
    seen, place = np.unique(np.stack([flips, compared]), axis=1, return_inverse=True)
    floors = [floor_value(x / n, setting.items) if n else np.nan for x, n in seen.T.tolist()]
    return np.array(floors)[place.ravel()]
