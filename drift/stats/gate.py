"""Whether a judge agrees well enough with labelled pairs for a rate to rest on its word."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.special import bdtrc

from drift.stats.agreement import cohen_kappa
from drift.stats.inputs import checked_count, checked_share
from drift.stats.intervals import clopper_pearson_upper


@dataclass(frozen=True)
class Gate:
    """How a judge did on `n` labelled pairs; ``why`` says why it did not pass.

    ``missing`` pairs got no verdict. The numbers are None, with the reason in ``why``, where
    there are no pairs.
    """

    kappa: float | None
    low: float | None
    high: float | None
    n: int
    missing: int
    passed: bool
    why: str | None = None


def agreement_gate(
    truth: Sequence[bool], said: Sequence[bool | None], *, kappa: float, missing: float
) -> Gate:
    """Compare a judge's verdicts with the author's on pairs of which half are true.

    A pair without a verdict (None) counts as misjudged. With half of the pairs true, the
    agreement by chance is 1/2 whatever the judge prefers, so that with x of n pairs right::

        kappa = 2 x / n - 1

    and limits of the share right are limits of kappa.

    Parameters
    ----------
    truth : sequence of bool
        As many True as False.
    said : sequence of bool or None
    kappa, missing : float
        It passes at this kappa or more, with at most this share without a verdict.

    Returns
    -------
    Gate
        Limits: Clopper and Pearson's at 95 % for x of n. Undefined, and not passed, at n = 0.

    Notes
    -----
    Guarantee: the limits hold 2 p - 1 in at least 95 % of repetitions for independent pairs
    that are each judged rightly with probability p. With the probabilities unequal (a judge that
    errs on one half more often), x varies less than a binomial of the same mean (Hoeffding), and
    the limits are too wide rather than too narrow. They say nothing of other texts than pairs
    like these.
    Source: Cohen (1960), Educ. Psychol. Meas. 20, 37-46; Clopper, Pearson (1934), Biometrika 26,
    404-413; Hoeffding (1956), Ann. Math. Statist. 27, 713-721.
    """
    least, most = checked_share("kappa", kappa), checked_share("missing", missing)
    if len(truth) != len(said) or 2 * sum(truth) != len(truth):
        raise ValueError(f"half of {len(truth)} pairs true, got {sum(truth)} and {len(said)} words")
    n, gone = len(truth), sum(word is None for word in said)
    if n == 0:
        return Gate(None, None, None, 0, 0, False, "no labelled pairs")
    table = [[0, 0], [0, 0]]
    for true, word in zip(truth, said, strict=True):
        table[true][not true if word is None else word] += 1
    x = table[0][0] + table[1][1]
    low = 1 - (clopper_pearson_upper(n - x, n).high or 0.0)
    high = clopper_pearson_upper(x, n).high or 0.0
    found, why = cohen_kappa(table) or 0.0, []
    if x < least_right(n, kappa=least):
        why.append(f"kappa {found:.2f} is below {least:g}")
    if gone > most * n:
        why.append(f"{gone} of {n} verdicts are missing, more than {most:.0%}")
    return Gate(found, 2 * low - 1, 2 * high - 1, n, gone, not why, "; ".join(why) or None)


def least_right(n: int, *, kappa: float) -> int:
    """Return how many of n pairs must be judged rightly for a kappa of at least this."""
    return math.ceil(n * (1 + kappa) / 2 - 1e-9)


def passing_probability(n: int, *, true_kappa: float, kappa: float) -> float:
    """Compute the probability that a judge passes `agreement_gate`, with every verdict there.

    ::

        P(Binomial(n, (1 + true_kappa) / 2) >= least_right(n))

    Parameters
    ----------
    n : int
        Pairs, >= 1, half of them true.
    true_kappa, kappa : float
        In (0, 1): the judge's own, over all pairs like these, and the least that passes.

    Notes
    -----
    Null: pairs are judged independently, each rightly with one probability.
    """
    pairs = checked_count("n", n)
    share = (1 + checked_share("true_kappa", true_kappa)) / 2
    return float(bdtrc(least_right(pairs, kappa=kappa) - 1, pairs, share))
