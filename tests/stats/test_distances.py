from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t

from drift.stats.distances import LEAST, Mean, Quartet, mean_interval, split_p

SHARES = st.lists(st.floats(0, 1), min_size=LEAST, max_size=40)
#: What draws n values of a mean: point masses, skew, and values that lie together.
DRAWN = {
    "mass at 0": (lambda rng, n: (rng.random(n) < 0.05) * 1.0, 0.05),
    "mass at 1": (lambda rng, n: (rng.random(n) < 0.97) * 1.0, 0.97),
    "both masses": (lambda rng, n: (rng.random(n) < 0.5) * 1.0, 0.5),
    "skewed": (lambda rng, n: rng.beta(0.2, 2, n), 1 / 11),
    "skewed with a mass at 0": (
        lambda rng, n: np.where(rng.random(n) < 0.6, 0, rng.beta(5, 5, n)),
        0.2,
    ),
    "even": (lambda rng, n: rng.random(n), 0.5),
    "close": (lambda rng, n: rng.beta(40, 40, n), 0.5),
}


@pytest.mark.parametrize("n", [5, 8, 40])
@pytest.mark.parametrize("name", DRAWN)
def test_an_interval_covers_its_mean_at_every_size_and_shape(name, n):
    draw, mean = DRAWN[name]
    rng = np.random.default_rng(20260801)
    found = [mean_interval(draw(rng, n)) for _ in range(200)]
    # At a coverage of .95 fewer than 182 would be covered once in 200 times.
    assert sum(it.low <= mean <= it.high for it in found) >= 182


@pytest.mark.parametrize(("name", "times"), [("even", 1.4), ("skewed", 1.8), ("close", 3.7)])
def test_the_guarantee_has_its_price_in_width(name, times):
    rng = np.random.default_rng(20260802)
    draws = [DRAWN[name][0](rng, 40) for _ in range(200)]
    mine = np.mean([it.high - it.low for it in map(mean_interval, draws)])
    usual = np.mean([2 * t.ppf(0.975, 39) * x.std(ddof=1) / 40**0.5 for x in draws])
    assert mine / usual == pytest.approx(times, abs=0.12)


def test_a_t_interval_of_a_point_mass_does_not_keep_its_promise():
    rng, draw = np.random.default_rng(20260803), DRAWN["mass at 0"][0]
    covered = 0
    for x in (draw(rng, 40) for _ in range(300)):
        half = t.ppf(0.975, 39) * x.std(ddof=1) / 40**0.5
        covered += abs(x.mean() - 0.05) <= half
    assert covered < 275


@given(SHARES)
def test_limits_lie_on_both_sides_of_the_mean_whatever_the_order(values):
    found = mean_interval(values)
    assert 0 <= found.low <= found.estimate + 1e-6 and found.estimate - 1e-6 <= found.high <= 1
    again = mean_interval(values[::-1])
    assert (again.low, again.high) == pytest.approx((found.low, found.high), abs=1e-6)


@given(SHARES)
def test_limits_turn_round_with_the_values_and_move_with_their_range(values):
    found, turned = mean_interval(values), mean_interval([1 - it for it in values])
    assert (1 - turned.high, 1 - turned.low) == pytest.approx((found.low, found.high), abs=1e-6)
    moved = mean_interval([3 * it - 1 for it in values], least=-1, most=2)
    assert (moved.low, moved.high) == pytest.approx(
        (3 * found.low - 1, 3 * found.high - 1), abs=1e-5
    )


def test_equal_answers_leave_open_what_their_number_leaves_open():
    none, all_of_it = mean_interval([0.0] * 40), mean_interval([1.0] * 40)
    assert none.low == 0 and none.high == pytest.approx(0.127, abs=0.001)
    assert all_of_it.high == 1 and all_of_it.low == pytest.approx(0.873, abs=0.001)
    assert mean_interval([0.0] * 8).high > none.high


def test_a_few_values_have_a_mean_and_no_interval():
    reason = "4 values, fewer than 5"
    assert mean_interval([0.25] * 4) == Mean(4, 0.25, None, None, reason)
    assert mean_interval([]) == Mean(0, None, None, None, "0 values, fewer than 5")


def test_a_value_that_cannot_be_is_refused():
    for wrong in (1.2, -0.3, float("nan")):
        with pytest.raises(ValueError, match=r"values in \[0\.0, 1\.0\], got"):
            mean_interval([0.5] * 5 + [wrong])
    assert mean_interval([1.000001] * 5).high == 1


# The excess, and its test.


def quartets(rng, n, moved=0.0):
    """Return distances of answers that are sets of words; a share of probes has others tonight."""

    def answer(words, other):
        chosen = words[rng.random(len(words)) < 0.7]
        return frozenset(chosen + 100 if other else chosen)

    def distance(a, b):
        return round(1 - len(a & b) / len(a | b), 6) if a | b else 0.0

    found = []
    for _ in range(n):
        words = rng.choice(100, size=rng.integers(3, 30), replace=False)
        other = rng.random() < moved
        now, then = ([answer(words, late) for _ in range(2)] for late in (other, False))
        between = tuple(distance(a, b) for a in now for b in then)
        found.append(Quartet((distance(*now), distance(*then)), between))
    return found


def test_the_excess_is_what_two_nights_have_beyond_their_own_noise():
    assert Quartet((0.0, 0.0), (0.0,) * 4).excess == 0
    assert Quartet((0.0, 0.0), (0.75,) * 4).excess == 0.75
    assert Quartet((0.5, 0.3), (0.4, 0.4, 0.4, 0.4)).excess == pytest.approx(0)
    rng = np.random.default_rng(20260804)
    still = [it.excess for it in quartets(rng, 4000)]
    assert abs(np.mean(still)) < 4 * np.std(still) / 4000**0.5
    assert min(still) >= -0.5


def by_enumeration(four):
    """Return the p-value by looking at every split of every probe."""

    def excesses(it):
        a, b = it.within, it.between
        splits = [Quartet(a, b)]
        splits.append(Quartet((b[0], b[3]), (a[0], b[1], b[2], a[1])))
        splits.append(Quartet((b[1], b[2]), (a[0], b[0], b[3], a[1])))
        return [split.excess for split in splits]

    sums = [sum(chosen) for chosen in product(*map(excesses, four))]
    return sum(it >= sums[0] - 1e-9 for it in sums) / len(sums)


@given(st.integers(1, 6), st.integers(0, 2**32))
def test_the_p_value_counts_every_split_of_every_probe(n, seed):
    rng = np.random.default_rng(seed)
    four = [
        Quartet(tuple(row[:2] / 1000), tuple(row[2:] / 1000))
        for row in rng.integers(0, 1001, size=(n, 6))
    ]
    assert split_p(four) == pytest.approx(by_enumeration(four))


def test_the_test_keeps_its_level_if_nothing_changed():
    rng = np.random.default_rng(20260805)
    found = np.array([split_p(quartets(rng, 12)) for _ in range(800)])
    for alpha in (0.01, 0.05, 0.2):
        # Three standard errors above the level.
        assert (found <= alpha).mean() <= alpha + 3 * (alpha * (1 - alpha) / 800) ** 0.5
    assert (found <= 0.2).mean() > 0.15


def test_the_test_sees_a_change_of_some_answers():
    rng = np.random.default_rng(20260806)
    assert np.median([split_p(quartets(rng, 40, moved=0.3)) for _ in range(20)]) < 0.001


def test_answers_that_never_vary_say_nothing_until_they_change():
    still, changed = Quartet((0.0, 0.0), (0.0,) * 4), Quartet((0.0, 0.0), (0.5,) * 4)
    assert split_p([still] * 40) == pytest.approx(1)
    assert split_p([changed] * 3 + [still] * 37) == pytest.approx(3.0**-3)
    assert 0 < split_p([changed] * 40) < 1e-15
    assert split_p([]) is None
