from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from drift.stats.panel import (
    closed_e_bh,
    e_bh,
    expected_false,
    holm,
    merged_mean,
    union_threshold,
)

# Quarters keep the brute force exact, and small values bring ties.
ES = st.lists(st.integers(0, 200).map(lambda q: q / 4), min_size=1, max_size=6)
ALPHAS = st.sampled_from([0.05, 0.1, 0.2, 0.5])
PS = st.lists(st.floats(0, 1), min_size=1, max_size=8)


def test_thresholds_grow_with_the_panel():
    assert (union_threshold(20, 4), union_threshold(100, 4)) == (80, 400)


def test_a_model_that_calibrates_enters_the_mean_as_one():
    assert merged_mean([None, 4.0, None, 2.0]) == 2.0
    assert merged_mean([]) is None


@pytest.mark.parametrize(
    ("es", "rejected"),
    [
        ([80, 1, 1, 1], (0,)),
        ([40, 40, 1, 1], (0, 1)),
        ([39.9, 200, 1, 1], (1,)),
        ([26.6, 26.6, 26.6, 1], ()),
        ([20, 20, 20, 20], (0, 1, 2, 3)),
        ([80, None, None, None], (0,)),
        ([], ()),
    ],
)
def test_e_bh_rejects_these(es, rejected):
    assert e_bh(es, alpha=0.05) == rejected


def test_closed_e_bh_rejects_what_e_bh_just_misses():
    assert e_bh([26.6, 26.6, 26.6, 1], alpha=0.05) == ()
    assert closed_e_bh([26.6, 26.6, 26.6, 1], alpha=0.05) == (0, 1, 2)
    assert closed_e_bh([79.9, 1, 1, 1], alpha=0.05) == (0,)
    assert closed_e_bh([19.9, None], alpha=0.05) == ()


def subsets(items):
    return [set(s) for size in range(1, len(items) + 1) for s in combinations(items, size)]


@given(ES, ALPHAS)
def test_closed_e_bh_finds_the_largest_set_that_every_subset_allows(es, alpha):
    K, level = range(len(es)), Fraction(str(alpha))

    def allowed(R):
        return all(
            sum(Fraction(es[i]) for i in A) / len(A) >= len(A & R) / (len(R) * level)
            for A in subsets(K)
        )

    largest = max((len(R) for R in subsets(K) if allowed(R)), default=0)
    found = set(closed_e_bh(es, alpha=alpha))
    assert len(found) == largest
    assert not found or allowed(found)
    assert set(e_bh(es, alpha=alpha)) <= found


@given(ES, ALPHAS)
def test_the_order_of_models_does_not_matter(es, alpha):
    for procedure in (e_bh, closed_e_bh):
        forward, backward = procedure(es, alpha=alpha), procedure(es[::-1], alpha=alpha)
        assert sorted(es[i] for i in forward) == sorted(es[::-1][i] for i in backward)


def test_e_bh_keeps_the_false_discovery_rate_when_all_nulls_are_tight():
    # Two-point e-values with mean 1 that are e exactly when they reject: the worst case.
    rng, K, alpha, runs = np.random.default_rng(7), 4, 0.2, 5_000
    es = np.where(rng.random((runs, K)) < alpha / K, K / alpha, 0.0)
    false = np.mean([bool(closed_e_bh(row, alpha=alpha)) for row in es.tolist()])
    assert 0.15 < false <= alpha


def test_holm_has_the_exact_values():
    adjusted = holm([0.001, 0.0124, 0.0126, 0.04, 0.05])
    assert adjusted == pytest.approx([0.005, 0.0496, 0.0496, 0.08, 0.08], rel=1e-12)
    assert holm([]) == ()


@settings(max_examples=15)  # each call of theirs collects garbage
@given(PS)
def test_holm_agrees_with_statsmodels(ps):
    assert holm(ps) == pytest.approx(multipletests(ps, method="holm")[1], rel=1e-12, abs=0)


def test_false_entries_are_expected_in_proportion_to_the_watches_opened():
    expected = expected_false(7)
    assert (expected.watch, expected.alarm) == (0.35, 0.07)


def test_values_out_of_range_are_refused():
    with pytest.raises(ValueError, match=r"e >= 0, got -1"):
        e_bh([-1.0], alpha=0.05)
    with pytest.raises(ValueError, match=r"alpha in \(0, 1\), got 1"):
        closed_e_bh([2.0], alpha=1)
    with pytest.raises(ValueError, match=r"p in \[0, 1\], got 1.5"):
        holm([1.5])
