"""Paired comparison: the table of two labels each, its test, and what that cannot see."""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import special

from drift.stats.inputs import Determined, Label, Names, checked_count, checked_share, determined

Cell: TypeAlias = tuple[Determined, Determined] | None
#: Discordant pairs up to which mid-p is computed in integers, which grow too long beyond.
EXACT: Final = 1000


@dataclass(frozen=True)
class Detectable:
    """The fewest flips one way that one look can call significant; None if no count can."""

    flips: int | None
    pairs: int
    alpha: float
    opposite: int
    reason: str | None = None


def paired_table(pairs: Mapping[str, tuple[Label, Label]]) -> defaultdict[Cell, Names]:
    """Sort names by their (first, second) label; None keeps those not determined twice."""
    table: defaultdict[Cell, Names] = defaultdict(tuple)
    for name in sorted(pairs):
        first, second = (determined(name, label) for label in pairs[name])
        table[(first, second) if first and second else None] += (name,)
    return table


def midp_mcnemar(b: int, c: int) -> float:
    """Compute the two-sided mid-p value of McNemar's test, always defined.

    With n = b + c, m = min(b, c) and X ~ Binomial(n, 1/2)::

        2 P(X < m) + P(X = m)

    in integers, rounded once: 2^-k for k flips one way only, 1 when b = c (= 0). From
    1,001 discordant pairs on by the incomplete beta function, to about 11 digits.

    Parameters
    ----------
    b, c : int
        Discordant pairs in each direction, >= 0. Concordant pairs do not enter.

    Notes
    -----
    Null: a discordant pair is as likely in either direction, pairs independent.
    Guarantee: none at every n; at a nominal 5 % the conditional size reaches
    7.7 % (n = 16). It is for one look, fixed beforehand, never a series of looks.
    Source: Lancaster (1961), J. Am. Stat. Assoc. 56, 223-234; Fagerland, Lydersen,
    Laake (2013), BMC Medical Research Methodology 13, 91.
    """
    n = checked_count("b", b) + checked_count("c", c)
    m = min(b, c)
    if n > EXACT:
        return 1.0 if b == c else float(midp_of_counts(b, c))
    below = sum(math.comb(n, k) for k in range(m))
    return float(Fraction(2 * below + math.comb(n, m), 2**n))


def midp_of_counts(b: Any, c: Any) -> npt.NDArray[np.float64]:
    """Compute `midp_mcnemar` of arrays of counts, as P(X <= m) + P(X < m), to rounding."""
    m, n = np.minimum(b, c), np.add(b, c)
    below = np.where(m > 0, special.bdtr(np.maximum(m - 1, 0), n, 0.5), 0.0)
    return np.asarray(special.bdtr(m, n, 0.5) + below)


def minimum_detectable_flips(pairs: int, *, alpha: float = 0.05, opposite: int = 0) -> Detectable:
    """Find the smallest k > `opposite` with midp_mcnemar(k, opposite) <= alpha.

    At 5 %: 5, 7, 9, 11 for 0, 1, 2, 3 opposite flips. A property of the test,
    not its power: a real change of that size may show on fewer families.

    Parameters
    ----------
    pairs, opposite : int
        Families compared, and flips the other way, 0 <= opposite <= pairs;
        undefined when no k + opposite <= pairs is enough.
    alpha : float, default .05
        Nominal level of the one look, in (0, 1).
    """
    alpha = checked_share("alpha", alpha)
    most = checked_count("pairs", pairs) - checked_count("opposite", opposite, pairs=pairs)
    for k in range(opposite + 1, most + 1):
        if midp_mcnemar(k, opposite) <= alpha:
            return Detectable(k, pairs, alpha, opposite)
    reason = f"too few pairs: no count of flips among {pairs} reaches {alpha}"
    return Detectable(None, pairs, alpha, opposite, reason)


def detectability_sentence(detectable: Detectable) -> str:
    """Say in words what a quiet look at these pairs leaves open."""
    seen = f"Families compared: {detectable.pairs}"
    if detectable.opposite:
        seen += f", {detectable.opposite} of them flipped the other way"
    what = f"significant at {detectable.alpha * 100:g} %"
    if detectable.flips is None:
        return f"{seen}. No number of flips can be {what}: a quiet look rules out no change."
    return (
        f"{seen}. One look can call no fewer than {detectable.flips} flips one way {what}. "
        "A quiet look does not rule out fewer flips, nor does it exclude a larger change, "
        "which can show on too few families or be offset by flips the other way."
    )
