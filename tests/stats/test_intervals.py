import math

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest, norm
from statsmodels.stats.proportion import proportion_confint

from drift.stats.intervals import (
    Interval,
    RateRange,
    clopper_pearson_upper,
    proportion,
    rate_range,
    significant,
    wilson_interval,
)

LEVELS = st.floats(0.5, 0.999)


@st.composite
def counts(draw, least=1, most=1500):
    trials = draw(st.integers(least, most))
    return draw(st.integers(0, trials)), trials


@pytest.mark.parametrize(
    ("successes", "trials", "limit", "expected"),
    [
        (0, 34, "low", 0.0),
        (0, 34, "high", 0.101514554153324),
        (0, 11, "high", 0.258832966968032),
        (3, 12, "low", 0.0889416683940547),
        (3, 12, "high", 0.532305334933566),
        (12, 12, "low", 0.757505993344759),
        (12, 12, "high", 1.0),
        (4, 240, "high", 0.0420621818883419),
        (12, 820, "high", 0.0254038352217566),
    ],
)
def test_wilson_has_the_exact_values(successes, trials, limit, expected):
    got = getattr(wilson_interval(successes, trials), limit)
    assert got == pytest.approx(expected, rel=1e-12, abs=0)


@pytest.mark.parametrize(
    ("successes", "trials", "expected"),
    [
        (0, 60, 0.0596294922861669),
        (1, 60, 0.089399050057487),
        (4, 240, 0.0421211225845269),
        (12, 820, 0.0254232574002621),
        (0, 820, 0.00448852978564859),
    ],
)
def test_clopper_pearson_has_the_exact_values(successes, trials, expected):
    assert clopper_pearson_upper(successes, trials).high == pytest.approx(
        expected, rel=1e-12, abs=0
    )


@given(counts(), LEVELS)
def test_wilson_agrees_with_statsmodels_and_scipy(data, level):
    successes, trials = data
    got = wilson_interval(successes, trials, level=level)
    theirs = proportion_confint(successes, trials, alpha=1 - level, method="wilson")
    assert (got.low, got.high) == pytest.approx(theirs, rel=1e-8, abs=1e-12)
    other = binomtest(successes, trials).proportion_ci(level, method="wilson")
    assert (got.low, got.high) == pytest.approx((other.low, other.high), rel=1e-8, abs=1e-12)


@given(counts(), LEVELS)
def test_clopper_pearson_agrees_with_statsmodels_and_scipy(data, level):
    successes, trials = data
    got = clopper_pearson_upper(successes, trials, level=level).high
    # The two-sided interval of statsmodels puts half of alpha above.
    theirs = proportion_confint(successes, trials, alpha=2 * (1 - level), method="beta")[1]
    assert got == pytest.approx(theirs, rel=1e-9)
    other = binomtest(successes, trials, alternative="less").proportion_ci(level, method="exact")
    assert got == pytest.approx(other.high, rel=1e-9)


@given(counts(), LEVELS)
def test_limits_hold_the_estimate_inside_zero_and_one(data, level):
    successes, trials = data
    wilson = wilson_interval(successes, trials, level=level)
    assert 0 <= wilson.low <= successes / trials <= wilson.high <= 1
    exact = clopper_pearson_upper(successes, trials, level=level)
    assert exact.low == 0
    assert successes / trials <= exact.high <= 1


@given(st.integers(1, 1500), LEVELS)
def test_none_refused_and_all_refused_touch_the_ends_exactly(trials, level):
    assert wilson_interval(0, trials, level=level).low == 0
    assert wilson_interval(trials, trials, level=level).high == 1
    assert clopper_pearson_upper(trials, trials, level=level).high == 1


@given(counts(), LEVELS)
def test_limits_rise_with_successes(data, level):
    successes, trials = data
    assume(successes < trials)
    less, more = (wilson_interval(x, trials, level=level) for x in (successes, successes + 1))
    assert less.low < more.low
    assert less.high < more.high
    less, more = (clopper_pearson_upper(x, trials, level=level) for x in (successes, successes + 1))
    assert less.high < more.high


@given(counts(), LEVELS)
def test_more_answers_without_a_refusal_lower_the_upper_limits(data, level):
    successes, trials = data
    for limit in (wilson_interval, clopper_pearson_upper):
        fewer = limit(successes, trials, level=level)
        assert limit(successes, trials + 1, level=level).high < fewer.high


@given(counts(), st.floats(0.5, 0.99), st.floats(0.001, 0.009))
def test_a_higher_level_widens_the_interval(data, level, more):
    successes, trials = data
    narrow = wilson_interval(successes, trials, level=level)
    wide = wilson_interval(successes, trials, level=level + more)
    assert wide.low <= narrow.low
    assert wide.high >= narrow.high
    assert wide.high - wide.low > narrow.high - narrow.low
    if successes < trials:
        exact = clopper_pearson_upper(successes, trials, level=level)
        assert exact.high < clopper_pearson_upper(successes, trials, level=level + more).high


@given(counts(), LEVELS)
def test_wilson_treats_refused_and_answered_alike(data, level):
    successes, trials = data
    refused = wilson_interval(successes, trials, level=level)
    answered = wilson_interval(trials - successes, trials, level=level)
    assert refused.low == pytest.approx(1 - answered.high, abs=1e-12)


@given(counts(), LEVELS)
def test_wilson_inverts_the_score_test(data, level):
    successes, trials = data
    interval = wilson_interval(successes, trials, level=level)
    for limit in (interval.low, interval.high):
        if 0 < limit < 1:
            z = (successes - trials * limit) / math.sqrt(trials * limit * (1 - limit))
            assert 2 * norm.sf(abs(z)) == pytest.approx(1 - level, rel=1e-6)


@given(counts(), LEVELS)
@example((0, 60), 0.975)
def test_clopper_pearson_inverts_the_binomial_test(data, level):
    successes, trials = data
    assume(successes < trials)
    upper = clopper_pearson_upper(successes, trials, level=level).high
    assert binom.cdf(successes, trials, upper) == pytest.approx(1 - level, rel=1e-6)


@pytest.mark.parametrize("trials", [1, 12, 60, 240])
def test_clopper_pearson_covers_every_rate_at_its_level(trials):
    uppers = [clopper_pearson_upper(x, trials).high for x in range(trials + 1)]
    # Coverage is least just above an upper bound, where one outcome more misses.
    for p in [*np.linspace(0.001, 0.999, 97), *np.nextafter(uppers[:-1], 1)]:
        mass = binom.pmf(np.arange(trials + 1), trials, p)
        assert mass[np.array(uppers) >= p].sum() >= 0.975 - 1e-9


def test_wilson_undercovers_near_zero_which_its_docstring_admits():
    trials, p = 34, 0.0051
    intervals = [wilson_interval(x, trials) for x in range(trials + 1)]
    coverage = sum(binom.pmf(x, trials, p) for x, i in enumerate(intervals) if i.low <= p <= i.high)
    assert coverage == pytest.approx(0.84, abs=0.01)


@pytest.mark.parametrize(
    "got", [wilson_interval(0, 0), clopper_pearson_upper(0, 0)], ids=["wilson", "exact"]
)
def test_no_trials_give_a_reason_and_no_limits(got):
    assert got == Interval(None, None, "no trials")


def test_every_arm_flipped_leaves_the_bound_at_one():
    assert clopper_pearson_upper(12, 12) == Interval(0.0, 1.0)


def test_a_level_next_to_one_gives_wide_limits_and_no_nan():
    level = math.nextafter(1.0, 0.0)
    interval = wilson_interval(3, 12, level=level)
    assert 0 <= interval.low < 0.02
    assert 0.9 < interval.high <= 1


@pytest.mark.parametrize(
    ("successes", "trials", "level", "message"),
    [
        (5, 3, 0.95, r"successes in \[0, trials\], got 5 of 3"),
        (-1, 3, 0.95, r"successes in \[0, trials\], got -1 of 3"),
        (0, -1, 0.95, r"trials >= 0, got -1"),
        (0, 3, 1.0, r"level in \(0, 1\), got 1.0"),
        (0, 3, 0.0, r"level in \(0, 1\), got 0.0"),
        (0, 3, math.nan, r"level in \(0, 1\), got nan"),
    ],
)
@pytest.mark.parametrize("limit", [wilson_interval, clopper_pearson_upper])
def test_an_argument_out_of_range_is_refused_with_bound_and_value(
    limit, successes, trials, level, message
):
    with pytest.raises(ValueError, match=message):
        limit(successes, trials, level=level)


def test_a_fraction_of_a_refusal_is_not_a_count():
    with pytest.raises(TypeError):
        wilson_interval(1.5, 3)


def test_numpy_counts_are_counts():
    assert wilson_interval(np.int64(3), np.int64(12)) == wilson_interval(3, 12)


def test_a_proportion_carries_its_denominator_and_wilson_limits():
    got = proportion(3, 12)
    assert (got.successes, got.trials, got.estimate, got.reason) == (3, 12, 0.25, None)
    wilson = wilson_interval(3, 12)
    assert (got.low, got.high) == (wilson.low, wilson.high)


def test_a_proportion_of_nothing_is_not_zero():
    got = proportion(0, 0)
    assert (got.estimate, got.low, got.high, got.reason) == (None, None, None, "no trials")


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50))
def test_the_range_holds_the_rate_whatever_the_missing_answers_were(refused, answered, missing):
    assume(refused + answered + missing > 0)
    got = rate_range(refused, answered, missing)
    n = refused + answered + missing
    rates = [(refused + turned) / n for turned in range(missing + 1)]
    assert (got.if_none_refused, got.if_all_refused) == (min(rates), max(rates))


def test_the_range_of_nothing_asked_has_a_reason():
    assert rate_range(0, 0, 0) == RateRange(None, None, "nothing was asked")


def test_a_negative_count_of_missing_answers_is_refused():
    with pytest.raises(ValueError, match="missing >= 0, got -1"):
        rate_range(1, 1, -1)


@pytest.mark.parametrize(
    ("value", "digits", "expected"),
    [
        (0.101514554153324, 10, 0.1015145542),
        (1234567890123.0, 10, 1234567890000.0),
        (2 / 3, 3, 0.667),
        (0.0, 10, 0.0),
        (1, 10, 1.0),
    ],
)
def test_readings_hold_significant_digits(value, digits, expected):
    assert significant(value, digits=digits) == expected


def test_rounding_leaves_none_alone_and_drops_the_sign_of_zero():
    assert significant(None) is None
    assert math.copysign(1, significant(-0.0)) == 1


@given(st.floats(-1e300, 1e300))
def test_rounding_twice_is_rounding_once(value):
    once = significant(value)
    assert significant(once) == once
    assert once == pytest.approx(value, rel=5.1e-10, abs=1e-300)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_reading_holds_no_nan_or_infinity(value):
    with pytest.raises(ValueError, match="x finite"):
        significant(value)
