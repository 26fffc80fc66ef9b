import re

import numpy as np
import pytest

from drift.stats import wilson_interval
from drift.stats.agreement import (
    ORDER,
    Estimate,
    cohen_kappa,
    corrected_rate,
    kappas,
    percentiles,
    resampled,
    rogan_gladen,
    too_few,
)

#: Of 36 prompts coded refused 33 are judged so; of 84 answered 3 are misjudged.
PATTERNS = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
REPEATS = [33, 3, 3, 81]


def test_kappa_of_counts_and_of_population_weights_is_exact():
    table = np.array([[45, 5], [10, 40]])
    assert cohen_kappa(table) == pytest.approx(7 / 10, abs=1e-14)
    weights = np.array([[2.5, 0.5], [4, 1.25]])
    assert cohen_kappa(table * weights) == pytest.approx(52 / 93, abs=1e-14)


def test_linear_weights_count_a_miss_by_one_step_half():
    table = [[20, 5, 0], [5, 10, 5], [0, 5, 50]]
    cost = np.array([[0, 0.5, 1], [0.5, 0, 0.5], [1, 0.5, 0]])
    shares = np.array(table) / 100
    expected = np.outer(shares.sum(1), shares.sum(0))
    by_hand = 1 - (cost * shares).sum() / (cost * expected).sum()
    assert cohen_kappa(table, weights="linear") == pytest.approx(by_hand, abs=1e-14)
    assert ORDER == ("refused", "undetermined", "answered")


def test_of_two_labels_linear_weights_are_no_weights():
    table = [[45, 5], [10, 40]]
    assert cohen_kappa(table, weights="linear") == pytest.approx(0.7, abs=1e-14)


def test_the_order_of_labels_matters_to_weighted_kappa_alone():
    table = np.array([[20, 9, 0], [1, 10, 5], [0, 5, 50]])
    turned = table[np.ix_([1, 0, 2], [1, 0, 2])]
    assert cohen_kappa(table) == pytest.approx(cohen_kappa(turned), abs=1e-14)
    assert cohen_kappa(table, weights="linear") != pytest.approx(
        cohen_kappa(turned, weights="linear"), abs=1e-3
    )


@pytest.mark.parametrize("table", [[[7, 0], [0, 0]], [[0, 0], [0, 0]]])
def test_where_chance_alone_agrees_kappa_is_not_estimable(table):
    assert cohen_kappa(table) is None


def test_margins_alone_give_kappa_nought():
    assert cohen_kappa(np.outer([30, 70], [40, 60])) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("table", "said"),
    [([[1, 2, 3], [1, 2, 3]], "shape"), ([[1, -1], [0, 1]], "got -1"), ([1], "shape")],
)
def test_a_table_that_is_none_is_named(table, said):
    with pytest.raises(ValueError, match=said):
        cohen_kappa(table)


def test_rogan_gladen_is_exact_and_stays_a_share():
    assert rogan_gladen(10 / 41, 0.9, 0.98) == pytest.approx(0.254434589800443, abs=1e-14)
    assert rogan_gladen(0.01, 0.9, 0.98) == 0
    assert rogan_gladen(0.95, 0.9, 0.98) == 1
    assert rogan_gladen(0.3, 1, 1) == pytest.approx(0.3)


def test_a_judge_that_hardly_tells_corrects_nothing():
    assert rogan_gladen(0.3, 0.5, 0.6) is None
    assert rogan_gladen(0.3, 0.5, 0.61) is not None
    with pytest.raises(ValueError, match=r"se in \[0, 1\], got 1.2"):
        rogan_gladen(0.3, 1.2, 0.9)


def test_a_resample_draws_as_many_prompts_as_there_are_and_keeps_their_rows_together():
    sums = resampled([[2, 0, 1], [0, 3, 0]], [10, 20], seed=1)
    assert sums.shape == (2000, 3)
    assert (sums[:, 0] == 2 * sums[:, 2]).all()
    assert (sums[:, 0] / 2 + sums[:, 1] / 3 == 30).all()
    assert sums[:, 0].mean() / 2 == pytest.approx(10, abs=0.3)


def test_a_resample_is_that_of_a_bootstrap_over_prompts_one_by_one():
    rng = np.random.default_rng(3)
    rows = np.repeat([[1, 0], [0, 1], [1, 1]], [5, 9, 6], axis=0)
    one_by_one = rows[rng.integers(0, 20, (4000, 20))].sum(1)
    sums = resampled([[1, 0], [0, 1], [1, 1]], [5, 9, 6], seed=2, resamples=4000)
    assert sums.mean(0) == pytest.approx(one_by_one.mean(0), abs=0.2)
    assert np.cov(sums.T) == pytest.approx(np.cov(one_by_one.T), abs=0.5)


def test_neither_the_order_of_prompts_nor_a_second_call_moves_an_interval():
    one = corrected_rate(10, 34, PATTERNS, REPEATS, seed=7)
    assert one == corrected_rate(10, 34, PATTERNS, REPEATS, seed=7)
    assert one == corrected_rate(10, 34, PATTERNS[::-1], REPEATS[::-1], seed=7)
    assert one != corrected_rate(10, 34, PATTERNS, REPEATS, seed=8)


def test_a_corrected_rate_holds_the_error_of_the_run_and_of_the_set():
    found = corrected_rate(10, 34, PATTERNS, REPEATS, seed=7)
    assert found.estimate == pytest.approx(rogan_gladen(10 / 34, 11 / 12, 27 / 28), abs=1e-14)
    assert found.low < found.estimate < found.high
    exact = corrected_rate(10, 34, [[1, 0, 0, 0], [0, 0, 0, 1]], [30, 30], seed=7)
    assert exact.estimate == pytest.approx(10 / 34)
    # With a judge that never errs only the Beta draws are left: Beta(10.5, 24.5).
    assert (exact.low, exact.high) == pytest.approx((0.160, 0.456), abs=0.015)
    assert found.high - found.low > exact.high - exact.low


def test_a_corrected_rate_covers_a_known_truth():
    rng = np.random.default_rng(5)
    truth, se, sp, covered = 0.3, 0.85, 0.95, 0
    for number in range(300):
        refused = rng.binomial(60, truth * se + (1 - truth) * (1 - sp))
        rr, aa = rng.binomial(100, se), rng.binomial(100, sp)
        found = corrected_rate(
            refused, 60, PATTERNS, [rr, 100 - rr, 100 - aa, aa], seed=number, resamples=400
        )
        covered += found.low <= truth <= found.high
    assert covered / 300 == pytest.approx(0.95, abs=0.04)


@pytest.mark.parametrize(
    ("refused", "n", "repeats", "said"),
    [
        (0, 0, REPEATS, "no determined label"),
        (3, 9, [30, 30, 30, 30], "se \\+ sp - 1 is 0.00"),
        (3, 9, [0, 0, 3, 90], "coded refused, fewer than 30 rows: 0"),
        (3, 9, [40, 5, 2, 20], "coded answered, fewer than 30 rows: 22"),
        (3, 9, [17, 13, 17, 13], "over 1 %"),
    ],
)
def test_what_cannot_be_corrected_says_why(refused, n, repeats, said):
    found = corrected_rate(refused, n, PATTERNS, repeats, seed=1)
    assert (found.estimate, found.low, found.high) == (None, None, None)
    assert re.search(said, found.reason)


def test_twelve_rows_or_rows_of_few_prompts_correct_no_rate():
    patterns = [[1, 0, 0, 0], [0, 0, 0, 1]]
    assert corrected_rate(10, 60, patterns, [6, 6], seed=1).estimate is None
    found = corrected_rate(10, 60, [[40, 0, 0, 0], [0, 0, 0, 9]], [1, 20], seed=1)
    assert found.reason == "of the set's answers coded refused, fewer than 10 prompts: 1"
    assert corrected_rate(10, 60, patterns, [30, 30], seed=1).low is not None


@pytest.mark.parametrize(("sp", "below"), [(54 / 56, True), (1, False)])
def test_with_nothing_refused_the_limits_follow_from_the_formula(sp, below):
    repeats = [40, 0, round(56 * (1 - sp)), round(56 * sp)]
    found, raw = corrected_rate(0, 60, PATTERNS, repeats, seed=1), wilson_interval(0, 60)
    assert found.estimate == 0 and found.high < raw.high
    assert (found.low == 0) is below


def test_a_few_lost_draws_are_left_out_and_many_make_an_interval_not_estimable():
    draws = np.append(np.linspace(0, 1, 995), [np.nan] * 5)
    assert percentiles(0.5, draws, "lost") == Estimate(
        0.5, pytest.approx(0.025), pytest.approx(0.975)
    )
    draws[:50] = np.nan
    assert percentiles(0.5, draws, "lost") == Estimate(None, None, None, "lost")


def test_kappas_of_many_tables_are_the_kappas_of_each():
    tables = np.array([[[45, 5], [10, 40]], [[7, 0], [0, 0]]])
    assert kappas(tables)[0] == pytest.approx(0.7)
    assert np.isnan(kappas(tables)[1])


@pytest.mark.parametrize(("prompts", "held"), [(1, 0.02), (5, 0.75), (10, 0.88), (30, 0.92)])
def test_limits_over_few_prompts_hold_a_known_share_too_seldom(prompts, held):
    """Prompts whose share is Beta(3.4, .6): .85 on average, intraclass correlation .2."""
    rng, rows, covered = np.random.default_rng(1), max(6, 30 // prompts), 0
    for number in range(400):
        right = rng.binomial(rows, rng.beta(3.4, 0.6, prompts))
        counts = np.stack([right, rows - right], axis=1)
        sums = resampled(counts, np.ones(prompts), seed=number, resamples=400)
        low, high = np.quantile(sums[:, 0] / sums.sum(axis=1), [0.025, 0.975])
        covered += low <= 0.85 <= high
    assert covered / 400 == pytest.approx(held, abs=0.05)
    assert bool(too_few(prompts * rows, prompts)) is (prompts < 10)
