"""Shapes of refusals: exact values, and what simulation says of cover, size and power."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, chi2

from drift.stats.agreement import Estimate
from drift.stats.shapes import margin_shift, simultaneous_shares, transitions

K = 7
SKEWED = np.array([0.55, 0.2, 0.1, 0.08, 0.04, 0.02, 0.01])


def one_each(counts):
    """Return families of one response, so many of each shape."""
    return np.repeat(np.eye(len(counts), dtype=int), counts, axis=0)


def test_one_response_a_family_gives_exact_limits_shared_out_over_the_shapes():
    found = simultaneous_shares(one_each([3, 7, 0]))
    alpha = 0.05 / 3
    assert found[0].estimate == 0.3
    assert found[0].low == pytest.approx(beta.ppf(alpha / 2, 3, 8))
    assert found[0].high == pytest.approx(beta.ppf(1 - alpha / 2, 4, 7))
    assert (found[2].estimate, found[2].low) == (0, 0)
    assert found[2].high == pytest.approx(1 - (alpha / 2) ** 0.1)


def test_a_family_weighs_the_same_however_often_it_was_asked():
    found = simultaneous_shares([[40, 0], *[[0, 1]] * 4])
    assert found[0].estimate == pytest.approx(0.2)
    assert simultaneous_shares([[40, 0], *[[0, 1]] * 4, [0, 0]]) == found


def test_shares_without_families_are_not_estimable_and_few_clusters_have_no_limits():
    nothing = Estimate(None, None, None, "no family with a response")
    assert simultaneous_shares(np.zeros((3, 2), dtype=int)) == (nothing, nothing)
    few = simultaneous_shares([[2, 0], [0, 2], [1, 1]])[0]
    assert few == Estimate(0.5, None, None, "3 values, fewer than 5")
    for wrong in ([1, 2], [[-1, 1]], [[0.5, 0.5]]):
        with pytest.raises(ValueError, match=r"counts of int >= 0, \(families, k\)"):
            simultaneous_shares(wrong)


@pytest.mark.parametrize("n", [3, 8, 40])
@pytest.mark.parametrize("p", [SKEWED, np.full(K, 1 / K)], ids=["skewed", "even"])
def test_all_shares_are_within_their_limits_at_once(n, p):
    rng, held = np.random.default_rng(20261101), 0
    for _ in range(300):
        found = simultaneous_shares(rng.multinomial(1, p, size=n))
        held += all(it.low <= share <= it.high for it, share in zip(found, p, strict=True))
    # At a cover of .95 fewer than 276 of 300 would be held once in 100 times.
    assert held >= 276


@pytest.mark.parametrize("n", [5, 20])
def test_clusters_of_alike_responses_do_not_break_the_cover(n):
    rng, held = np.random.default_rng(20261102), 0
    for _ in range(100):
        sizes, own = rng.integers(1, 5, size=n), rng.dirichlet(SKEWED, size=n)
        counts = [rng.multinomial(size, p) for size, p in zip(sizes, own, strict=True)]
        found = simultaneous_shares(np.array(counts))
        held += all(it.low <= share <= it.high for it, share in zip(found, SKEWED, strict=True))
    assert held >= 90


@pytest.mark.parametrize(("n", "exact", "betting"), [(10, 1.16, 1.30), (100, 1.05, 1.41)])
def test_limits_that_hold_at_every_size_have_their_price_beside_goodmans(n, exact, betting):
    x, c = 3 * n // 10, chi2.ppf(1 - 0.05 / K, 1)
    goodman = np.sqrt(c * (c + 4 * x * (n - x) / n)) / (n + c)
    table = one_each([x, n - x, 0, 0, 0, 0, 0])
    for counts, price in ((table, exact), (2 * table, betting)):
        it = simultaneous_shares(counts)[0]
        assert (it.high - it.low) / goodman == pytest.approx(price, abs=0.01)


# Two runs.


def test_transitions_count_pairs_by_shape_before_and_after():
    assert transitions([0, 0, 1, 2], [0, 1, 1, 0], k=3).tolist() == [
        [1, 1, 0],
        [0, 1, 0],
        [1, 0, 0],
    ]
    assert transitions([], [], k=2).tolist() == [[0, 0], [0, 0]]
    with pytest.raises(ValueError, match=r"after in \[0, 3\), got 0 to 3"):
        transitions([0, 1], [0, 3], k=3)
    with pytest.raises(ValueError, match="before, after of one length"):
        transitions([0, 1], [0], k=3)


def by_enumeration(before, after, clusters, k):
    """Return p and the least p by swapping the runs of each set of families in turn."""
    names = sorted(set(clusters))
    values = []
    for swapped in product((False, True), repeat=len(names)):
        turned = [swapped[names.index(c)] for c in clusters]
        first = [b if t else a for a, b, t in zip(before, after, turned, strict=True)]
        second = [a if t else b for a, b, t in zip(before, after, turned, strict=True)]
        margins = (np.bincount(it, minlength=k) for it in (first, second))
        values.append(int(((next(margins) - next(margins)) ** 2).sum()))
    return np.mean([v >= values[0] for v in values]), np.mean([v == max(values) for v in values])


@given(st.integers(0, 2**32), st.integers(2, 12))
def test_the_exact_p_value_goes_through_every_swap_of_families(seed, n):
    rng = np.random.default_rng(seed)
    before, after, clusters = rng.integers(0, 3, size=(3, n)).tolist()
    found = margin_shift(before, after, clusters, k=3, draws=9, seed=1)
    if found.p is None:
        assert found.moved == 0 and found.reason == "no family's shapes moved"
    else:
        assert found.exact
        assert (found.p, found.smallest) == pytest.approx(
            by_enumeration(before, after, clusters, 3)
        )


def test_few_families_cannot_reach_a_small_p_and_say_so():
    found = margin_shift([0, 0, 0], [1, 1, 1], [0, 1, 2], k=2, draws=99, seed=1)
    assert (found.p, found.smallest, found.moved, found.statistic) == (0.25, 0.25, 3, 18)
    together = margin_shift([0, 0, 0], [1, 1, 1], [0, 0, 0], k=2, draws=99, seed=1)
    assert together.p == 1


def test_a_shift_needs_a_pair_that_moved():
    assert margin_shift([], [], [], k=2, draws=9, seed=1).reason == "no pair"
    still = margin_shift([0, 1], [0, 1], [0, 1], k=2, draws=9, seed=1)
    assert (still.p, still.reason) == (None, "no family's shapes moved")
    exchanged = margin_shift([0, 1], [1, 0], [0, 0], k=2, draws=9, seed=1)
    assert exchanged.p is None


@pytest.mark.parametrize("families", [8, 30])
def test_the_test_of_a_shift_keeps_its_level_with_families_that_refuse_alike(families):
    rng, found = np.random.default_rng(20261103), []
    clusters = np.repeat(np.arange(families), 3)
    for seed in range(400):
        own = rng.dirichlet(3 * SKEWED, size=families)
        runs = [np.array([rng.choice(K, p=own[c]) for c in clusters]) for _ in range(2)]
        found.append(margin_shift(*runs, clusters, k=K, draws=199, seed=seed).p or 1)
    for alpha in (0.05, 0.2):
        assert np.mean(np.array(found) <= alpha) <= alpha + 3 * (alpha * (1 - alpha) / 400) ** 0.5


def test_a_shift_of_a_third_of_all_families_is_seen():
    rng = np.random.default_rng(20261104)
    before = rng.choice(K, size=60, p=SKEWED)
    after = np.where(rng.random(60) < 1 / 3, 3, before)
    found = margin_shift(before, after, np.arange(60), k=K, draws=999, seed=1)
    assert found.p <= 0.01 and not found.exact and found.smallest == 0.001
