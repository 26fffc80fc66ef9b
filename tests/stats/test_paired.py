from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest
from statsmodels.stats.contingency_tables import mcnemar

from drift.stats.paired import (
    EXACT,
    detectability_sentence,
    midp_mcnemar,
    midp_of_counts,
    minimum_detectable_flips,
    paired_table,
)

FLIPS = st.integers(0, 200)


@pytest.mark.parametrize(
    ("b", "c", "expected"),
    [
        (1, 0, Fraction(1, 2)),
        (4, 0, Fraction(1, 16)),
        (5, 0, Fraction(1, 32)),
        (7, 1, Fraction(5, 128)),
        (5, 2, Fraction(37, 128)),
        (10, 3, Fraction(235, 4096)),
        (3, 3, Fraction(1)),
        (0, 0, Fraction(1)),
    ],
)
def test_midp_has_the_exact_values(b, c, expected):
    assert midp_mcnemar(b, c) == float(expected)


@given(FLIPS, FLIPS)
def test_midp_does_not_depend_on_the_direction(b, c):
    assert midp_mcnemar(b, c) == midp_mcnemar(c, b)


@given(FLIPS, FLIPS)
def test_midp_is_a_probability_and_one_only_when_balanced(b, c):
    p = midp_mcnemar(b, c)
    assert 0 < p <= 1
    assert (p == 1) == (b == c)


@given(FLIPS, FLIPS)
def test_one_more_flip_on_the_larger_side_lowers_midp(b, c):
    more, fewer = max(b, c), min(b, c)
    assert midp_mcnemar(more + 1, fewer) < midp_mcnemar(more, fewer)


@given(FLIPS, FLIPS)
def test_midp_is_the_exact_test_less_the_mass_of_the_outcome(b, c):
    n, m = b + c, min(b, c)
    if b == c:
        return
    mass = binom.pmf(m, n, 0.5)
    exact = binomtest(m, n, 0.5).pvalue
    assert midp_mcnemar(b, c) == pytest.approx(exact - mass, rel=1e-9, abs=1e-300)
    theirs = mcnemar([[3, b], [c, 4]], exact=True).pvalue
    assert midp_mcnemar(b, c) == pytest.approx(theirs - mass, rel=1e-9, abs=1e-300)


@given(st.integers(1, 60))
def test_flips_one_way_only_halve_midp_each_time(k):
    assert midp_mcnemar(k, 0) == 2.0**-k


def test_midp_is_not_exact_its_conditional_size_reaches_seven_point_seven_percent():
    def size(n):
        return sum(binom.pmf(b, n, 0.5) for b in range(n + 1) if midp_mcnemar(b, n - b) <= 0.05)

    sizes = {n: size(n) for n in range(1, 120)}
    worst = max(sizes, key=sizes.get)
    assert worst == 16
    assert sizes[worst] == pytest.approx(0.0768, abs=5e-5)


def in_integers(b, c):
    """Mid-p as `midp_mcnemar` has it of few flips, each coefficient from the one before."""
    n, m = b + c, min(b, c)
    below, coefficient = 0, 1
    for k in range(m):
        below += coefficient
        coefficient = coefficient * (n - k) // (k + 1)
    return float(Fraction(2 * below + coefficient, 2**n))


@pytest.mark.parametrize("n", [EXACT + 1, 2000, 5000, 10_000])
def test_midp_of_many_flips_agrees_with_the_integers(n):
    for fewer in {0, 1, n // 4, n // 3, *(n // 2 - k for k in (0, 1, 20, 60, 100, 200))}:
        exact = in_integers(n - fewer, fewer)
        assert midp_mcnemar(n - fewer, fewer) == pytest.approx(exact, rel=1e-11, abs=1e-299)
    assert midp_mcnemar(n, n - 1) < midp_mcnemar(n, n) == 1


def test_midp_is_exact_up_to_a_thousand_flips():
    for fewer in (0, 1, 400, 470, 499, 500):
        assert midp_mcnemar(EXACT - fewer, fewer) == in_integers(EXACT - fewer, fewer)


def test_midp_of_arrays_is_that_of_each_pair_of_counts():
    b, c = (counts.ravel() for counts in np.mgrid[:60, :60])
    exact = [midp_mcnemar(*both) for both in zip(b.tolist(), c.tolist(), strict=True)]
    assert midp_of_counts(b, c) == pytest.approx(exact, rel=1e-12)


def test_a_negative_number_of_flips_is_refused():
    with pytest.raises(ValueError, match="c >= 0, got -2"):
        midp_mcnemar(3, -2)


@pytest.mark.parametrize(("opposite", "expected"), [(0, 5), (1, 7), (2, 9), (3, 11)])
@pytest.mark.parametrize("pairs", [14, 34, 41])
def test_the_fewest_flips_that_one_look_can_detect(pairs, opposite, expected):
    assert minimum_detectable_flips(pairs, opposite=opposite).flips == expected


def test_a_midp_equal_to_alpha_is_significant():
    assert minimum_detectable_flips(34, alpha=1 / 32).flips == 5


@given(st.integers(0, 80), st.integers(0, 80), st.floats(0.001, 0.5))
def test_the_detectable_count_is_significant_and_the_count_below_it_is_not(pairs, opposite, alpha):
    opposite = min(opposite, pairs)
    got = minimum_detectable_flips(pairs, alpha=alpha, opposite=opposite)
    if got.flips is None:
        assert got.reason
        most = pairs - opposite
        assert most <= opposite or midp_mcnemar(most, opposite) > alpha
    else:
        assert got.reason is None
        assert opposite < got.flips <= pairs - opposite
        assert midp_mcnemar(got.flips, opposite) <= alpha < midp_mcnemar(got.flips - 1, opposite)


@pytest.mark.parametrize(("pairs", "opposite"), [(0, 0), (4, 0), (7, 1), (10, 2)])
def test_too_few_pairs_detect_nothing_and_say_why(pairs, opposite):
    got = minimum_detectable_flips(pairs, opposite=opposite)
    assert got.flips is None
    assert got.reason == f"too few pairs: no count of flips among {pairs} reaches 0.05"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pairs": 3, "opposite": 4}, r"opposite in \[0, pairs\], got 4 of 3"),
        ({"pairs": -1}, "pairs >= 0, got -1"),
        ({"pairs": 3, "alpha": 1}, r"alpha in \(0, 1\), got 1"),
    ],
)
def test_detectable_flips_refuse_what_is_out_of_range(arguments, message):
    with pytest.raises(ValueError, match=message):
        minimum_detectable_flips(**arguments)


def test_the_sentence_says_that_quiet_neither_rules_out_fewer_nor_excludes_more():
    sentence = detectability_sentence(minimum_detectable_flips(34))
    assert "Families compared: 34." in sentence
    assert "no fewer than 5 flips one way significant at 5 %" in sentence
    assert "does not rule out fewer flips" in sentence
    assert "nor does it exclude a larger change" in sentence


def test_the_sentence_counts_the_opposite_flips():
    sentence = detectability_sentence(minimum_detectable_flips(34, opposite=2))
    assert "2 of them flipped the other way" in sentence
    assert "no fewer than 9 flips" in sentence


@pytest.mark.parametrize("pairs", [0, 4])
def test_the_sentence_of_too_few_pairs_rules_out_nothing(pairs):
    assert detectability_sentence(minimum_detectable_flips(pairs)) == (
        f"Families compared: {pairs}. No number of flips can be significant at 5 %: "
        "a quiet look rules out no change."
    )


LABELS = st.sampled_from(["refused", "answered", "undetermined", None])


@given(st.dictionaries(st.text(max_size=3), st.tuples(LABELS, LABELS), max_size=12))
def test_the_paired_table_holds_each_name_once(pairs):
    table = paired_table(pairs)
    assert sorted(name for names in table.values() for name in names) == sorted(pairs)
    for cell, names in table.items():
        for name in names:
            known = not {None, "undetermined"} & set(pairs[name])
            assert cell == (pairs[name] if known else None)
