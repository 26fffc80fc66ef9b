"""Retries by shape: known values, cover, and what lengths alone or words alone bring about."""

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.special import expit

from drift.stats.retries import logistic, retries_by_shape
from drift.stats.shapes import exact_share

MODELS = 2


def drawn(rng, n, *, shape=0.0, length=0.0, model=0.0, longer=2.0, spread=0.7, base=-1.1):
    """Return refusals of shapes 0 and 1, these `longer` at the median; effects are log odds."""
    shapes, models = rng.integers(0, 2, n), rng.integers(0, MODELS, n)
    lengths = np.ceil(np.exp(rng.normal(np.log(120 * longer**shapes), spread)))
    odds = base + shape * shapes + length * np.log(lengths / 120) + model * models
    return rng.random(n) < expit(odds), shapes, lengths, models


def second(data):
    return retries_by_shape(*data, k=2)[1]


def test_rates_have_exact_limits_and_the_base_is_compared_with_none():
    again = [True] * 3 + [False] * 9 + [True] * 5
    shapes = [0] * 12 + [2] * 5
    found = retries_by_shape(again, shapes, np.full(17, np.nan), np.zeros(17, int), k=3)
    assert [(it.refusals, it.retried) for it in found] == [(12, 3), (0, 0), (5, 5)]
    assert found[0].rate == exact_share(3, 12)
    # Clopper and Pearson of 5 of 5: 0.025^(1/5).
    assert (found[2].rate.low, found[2].rate.high) == (pytest.approx(0.025**0.2), 1)
    assert found[0].unadjusted.reason == "the shape that others are compared with"
    assert found[1].rate.reason == "no trials"
    assert found[1].unadjusted.reason == "no refusal of this shape"


def test_the_difference_before_lengths_is_newcombes_example():
    # Newcombe (1998), table II (a): 56/70 - 48/80, method 10: .0524 to .3339.
    again = [True] * 56 + [False] * 14 + [True] * 48 + [False] * 32
    shapes = [1] * 70 + [0] * 80
    found = second((again, shapes, np.full(150, np.nan), np.zeros(150, int)))
    it = found.unadjusted
    assert (it.estimate, it.low, it.high) == pytest.approx((0.2, 0.0524, 0.3339), abs=5e-5)
    assert found.adjusted.reason == "no refusal of this shape and of the base with a length"
    assert (found.support, found.with_length) == (None, 0)


def test_the_fit_of_one_factor_is_the_log_odds_ratio_of_its_table():
    # 30 of 50 against 10 of 40: log (30 * 30 / 20 * 10), variance the sum of reciprocals.
    own = np.repeat([1.0, 0.0], [50, 40])
    again = np.repeat([True, False, True, False], [30, 20, 10, 30])
    beta, covariance = logistic(np.column_stack([np.ones(90), own]), again)
    assert beta == pytest.approx([np.log(1 / 3), np.log(4.5)])
    assert covariance[1, 1] == pytest.approx(1 / 30 + 1 / 20 + 1 / 10 + 1 / 30)


def test_the_fit_is_that_of_another_program():
    again, shapes, lengths, models = drawn(
        np.random.default_rng(20261110), 300, shape=1, length=0.5
    )
    design = np.column_stack([np.ones(300), shapes, np.log(lengths), models == 1]).astype(float)
    beta, covariance = logistic(design, again)
    other = sm.Logit(again.astype(float), design).fit(disp=0)
    assert beta == pytest.approx(other.params, rel=1e-6)
    assert covariance == pytest.approx(other.cov_params(), rel=1e-5)


def test_without_covariates_that_matter_both_differences_agree():
    found = second(drawn(np.random.default_rng(20261111), 4000, shape=1.5, longer=1))
    assert found.adjusted.estimate == pytest.approx(found.unadjusted.estimate, abs=0.01)
    assert found.support == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize(
    ("n", "effects"),
    [(150, {"shape": 1.6}), (300, {"length": 0.8}), (300, {"shape": 1, "length": 0.5, "model": 1})],
)
def test_the_limits_hold_the_true_difference(n, effects):
    rng, held, made = np.random.default_rng(20261112), 0, 0
    for _ in range(250):
        data = drawn(rng, n, **effects)
        it = second(data).adjusted
        if it.estimate is None:
            continue
        _, shapes, lengths, models = data
        ranges = [np.quantile(lengths[shapes == one], (0.05, 0.95)) for one in (0, 1)]
        low, high = max(r[0] for r in ranges), min(r[1] for r in ranges)
        both = (lengths >= low * 0.999) & (lengths <= high * 1.001)
        odds = -1.1 + effects.get("length", 0) * np.log(lengths / 120)
        odds = odds + effects.get("model", 0) * models
        true = (expit(odds + effects.get("shape", 0)) - expit(odds))[both].mean()
        held, made = held + (it.low <= true <= it.high), made + 1
    # At a cover of .93 fewer than 220 of 250 would be held once in 500 times.
    assert made > 240 and held / made >= 0.88


def test_where_length_alone_drives_retries_the_effect_of_the_shape_vanishes():
    rng = np.random.default_rng(20261113)
    found = [second(drawn(rng, 400, length=1.0, longer=3)) for _ in range(120)]
    plain = np.mean([it.unadjusted.estimate for it in found])
    assert plain > 0.2
    assert np.mean([it.unadjusted.low > 0 for it in found]) > 0.9
    fitted = [it.adjusted for it in found if it.adjusted.estimate is not None]
    assert len(fitted) > 100
    assert abs(np.mean([it.estimate for it in fitted])) < 0.02
    assert np.mean([it.low <= 0 <= it.high for it in fitted]) >= 0.88


def test_where_the_framing_alone_drives_retries_its_effect_stays():
    rng = np.random.default_rng(20261114)
    found = [second(drawn(rng, 400, shape=1.6, longer=3)) for _ in range(60)]
    fitted = [it.adjusted for it in found if it.adjusted.estimate is not None]
    # From 25 % to 62 %.
    assert np.mean([it.estimate for it in fitted]) == pytest.approx(0.37, abs=0.03)
    assert np.mean([it.low > 0 for it in fitted]) > 0.95


def test_shapes_whose_lengths_hardly_overlap_are_not_compared():
    found = second(drawn(np.random.default_rng(20261115), 400, shape=1, longer=20, spread=0.3))
    assert found.adjusted.estimate is None and found.support < 0.05
    assert found.adjusted.reason.startswith("lengths hardly overlap: ")
    assert found.unadjusted.estimate is not None


def test_too_few_rows_or_retries_are_not_fitted():
    rng = np.random.default_rng(20261116)
    few = second(drawn(rng, 30))
    assert "fewer than 20 of one" in few.adjusted.reason and few.unadjusted.estimate is not None
    rare = second(drawn(rng, 200, base=-4))
    assert "of the rarer outcome for 4 coefficients, fewer than 5 each" in rare.adjusted.reason


def test_separation_is_told_and_no_number_is_made_of_it():
    rng = np.random.default_rng(20261117)
    _, shapes, lengths, models = drawn(rng, 200, longer=1)
    for again in (
        shapes == 1,  # the shape settles it
        lengths > np.median(lengths),  # so does the length
        (models == 1) & (rng.random(200) < 0.7),  # one model is never asked again
    ):
        found = second((again, shapes, lengths, models))
        assert found.adjusted.reason == "separation: no fit exists"


def test_a_model_that_goes_with_the_shape_cannot_be_told_from_it():
    again, shapes, lengths, _ = drawn(np.random.default_rng(20261118), 200)
    found = second((again, shapes, lengths, shapes))
    assert found.adjusted.reason == "model or length goes with the shape throughout"
    same = second((again, shapes, np.full(200, 80.0), np.zeros(200, int)))
    assert same.adjusted.reason == "model or length goes with the shape throughout"


def test_rows_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="of one length"):
        retries_by_shape([True], [0, 1], [1.0], [0], k=2)
    with pytest.raises(ValueError, match=r"shapes in \[0, 2\), got 0 to 2"):
        retries_by_shape([True] * 2, [0, 2], [1.0, 2.0], [0, 0], k=2)
    with pytest.raises(ValueError, match=r"lengths >= 1, got 0\.0"):
        retries_by_shape([True] * 2, [0, 1], [0.0, np.nan], [0, 0], k=2)
