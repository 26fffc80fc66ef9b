"""Rates of refusal: the estimate, its interval, its upper bound and its range."""

import math
from dataclasses import dataclass

from scipy import special

from drift.stats.inputs import checked_count, checked_share


@dataclass(frozen=True)
class Interval:
    """Two limits, of a share or of a change; both None, with a reason, if undefined."""

    low: float | None
    high: float | None
    reason: str | None = None


@dataclass(frozen=True)
class Proportion:
    """Successes of trials with Wilson limits; the numbers None, with a reason, if undefined."""

    successes: int
    trials: int
    estimate: float | None
    low: float | None
    high: float | None
    reason: str | None = None


@dataclass(frozen=True)
class RateRange:
    """The rate if none, and if all, of the missing answers were refusals."""

    if_none_refused: float | None
    if_all_refused: float | None
    reason: str | None = None


def wilson_interval(successes: int, trials: int, *, level: float = 0.95) -> Interval:
    """Compute the Wilson score interval of a binomial probability.

    With x successes of n trials and z the normal quantile at (1 + level)/2::

        (x + z²/2 ± z sqrt(x (n - x)/n + z²/4)) / (n + z²)

    Undefined when n = 0. The low limit of x = 0 is 0, the high one of x = n is 1.

    Parameters
    ----------
    successes, trials : int
        0 <= x <= n.
    level : float, default .95
        Two-sided, in (0, 1).

    Notes
    -----
    Null inverted: the limits are the p at which the score test of Binomial(n, p)
    just does not reject, |x - np| = z sqrt(np(1 - p)).
    Guarantee: none at a given n and p. Mean coverage over p is close to the level; a
    nominal 95 % falls to about 84 % near 0 and 1. Trials must be independent (wordings
    of a family are not); nothing is said about questions outside the corpus.
    Source: Wilson (1927), J. Am. Stat. Assoc. 22, 209-212; Brown, Cai, DasGupta
    (2001), Statistical Science 16, 101-133.
    """
    n = checked_count("trials", trials)
    x = checked_count("successes", successes, trials=n)
    z = -float(special.ndtri((1 - checked_share("level", level)) / 2))
    if n == 0:
        return Interval(None, None, "no trials")
    centre = x + z * z / 2
    half = z * math.sqrt(x * (n - x) / n + z * z / 4)
    low = 0.0 if x == 0 else (centre - half) / (n + z * z)
    high = 1.0 if x == n else (centre + half) / (n + z * z)
    return Interval(low, high)


def clopper_pearson_upper(successes: int, trials: int, *, level: float = 0.975) -> Interval:
    """Compute the one-sided exact interval [0, u] of a binomial probability; u is `high`.

    u solves P(Binomial(n, u) <= x) = 1 - level: the `level` quantile of
    Beta(x + 1, n - x). It is 1 when x = n, and undefined when n = 0.
    Arguments as in `wilson_interval`; `level` is one-sided.

    Null inverted: p >= u, by the exact binomial test against smaller p.
    Guarantee: P(u >= p) >= level at every n and p, for independent trials of one p.
    Source: Clopper, Pearson (1934), Biometrika 26, 404-413.
    """
    n = checked_count("trials", trials)
    x = checked_count("successes", successes, trials=n)
    level = checked_share("level", level)
    if n == 0:
        return Interval(None, None, "no trials")
    return Interval(0.0, 1.0 if x == n else float(special.betaincinv(x + 1, n - x, level)))


def proportion(successes: int, trials: int) -> Proportion:
    """Return x/n with its `wilson_interval` at 95 %; undefined when n = 0."""
    wilson = wilson_interval(successes, trials)
    share = successes / trials if trials else None
    return Proportion(successes, trials, share, wilson.low, wilson.high, wilson.reason)


def rate_range(refused: int, answered: int, missing: int) -> RateRange:
    """Return refused / n and (refused + missing) / n, with n all that were asked.

    Undefined when n = 0. Nothing is assumed of the missing; sampling error comes on top.
    Source: Manski (1989), Journal of Human Resources 24, 343-360.
    """
    r, m = checked_count("refused", refused), checked_count("missing", missing)
    n = r + checked_count("answered", answered) + m
    if n == 0:
        return RateRange(None, None, "nothing was asked")
    return RateRange(r / n, (r + m) / n)


def significant(x: float | None, *, digits: int = 10) -> float | None:
    """Round to `digits` >= 1 significant digits, those of a reading; None stays None."""
    if x is None:
        return None
    if digits < 1 or not math.isfinite(x):
        raise ValueError(f"x finite and digits >= 1, got {x} and {digits}")
    return float(f"{x:.{digits - 1}e}") + 0.0  # -0.0 becomes 0.0
