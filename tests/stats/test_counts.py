import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from drift.stats.counts import (
    Count,
    adjacent_counts,
    burst_count,
    burst_counts,
    home_count,
    home_counts,
    pair_count,
    pair_counts,
)

LETTERS = {"a": 0, "r": 1, ".": -1}
LABELS = arrays(
    np.int8, st.tuples(st.integers(0, 60), st.integers(1, 6)), elements=st.integers(-1, 1)
)


def labels(*arms):
    """One word for each arm, a letter for each run."""
    return np.array([[LETTERS[letter] for letter in arm] for arm in arms], np.int8).T


FIVE = labels("aaaaraaaaa", "aaarrraaaa", "aaaaarrrrr", "rarararara", "aaaaaaaaar")


def raw(counts):
    return [count.raw for count in counts]


def test_departures_and_pairs_of_five_arms_over_ten_runs():
    assert raw(home_counts(FIVE)) == [0, 1, 1, 1, 0, 0, 0, 1]
    assert raw(home_counts(FIVE, window=4)) == [0, 1, 1, 1, 1, 0, 0, 1]
    assert raw(pair_counts(FIVE)) == [1, 2, 3, 1, 2]


def test_flips_and_confirmed_flips_name_their_arms():
    moved = labels("aarr", "aara", "rraa", "aaaa")
    assert [count.changed for count in adjacent_counts(moved)] == [(), (0, 1, 2), (1,)]
    assert [count.changed for count in burst_counts(moved)] == [(0, 2)]


def test_a_return_home_is_not_counted_and_living_away_counts_once():
    assert raw(home_counts(labels("aaaaraa"))) == [0, 0, 1, 0, 0]
    assert raw(home_counts(labels("aaaarrrr"))) == [0, 0, 1, 0, 0, 0]


def test_a_moved_home_can_be_left_again():
    assert raw(home_counts(labels("aaarrrrra")))[-1] == 1


def test_a_tie_is_no_home_and_a_missing_label_does_not_vote():
    # Home is tied at two each before the last run, then three to two.
    assert home_count(labels("aarr"), labels("a")[0]).raw == 0
    assert home_count(labels(".arr"), labels("a")[0]).raw == 1


def test_an_arm_missing_in_any_run_of_a_value_is_not_among_its_arms():
    before, now = labels("aaa", "aa.", "aaa", ".aa"), labels("r", "r", ".", "r").T[:, 0]
    assert home_count(before, now) == Count(arms=2, changed=(0, 3))
    assert pair_count(before[1], before[2]) == Count(arms=3, changed=())
    assert burst_count(labels("aarr", "aar.")) == Count(arms=1, changed=(0,))


def test_windows_of_forty_runs_forget_what_came_before():
    long = labels("r" * 21 + "a" * 21 + "r")
    assert raw(home_counts(long))[-1] == 1
    assert raw(home_counts(long, window=100))[-1] == 0


@pytest.mark.parametrize(
    ("changed", "arms", "n", "expected"),
    [
        (1, 10, 14, 1),  # 1.4
        (5, 10, 14, 7),
        (3, 12, 14, 4),  # 3.5 to even
        (1, 4, 2, 0),  # .5 to even
        (3, 4, 2, 2),  # 1.5 to even
        (0, 7, 10, 0),
        (7, 7, 10, 10),
        (0, 6, 10, None),
        (0, 0, 1, None),
        (5, 28, 41, None),  # 28 < 28.7
        (5, 29, 41, 7),
    ],
)
def test_a_value_scales_to_all_arms_and_needs_seven_tenths_of_them(changed, arms, n, expected):
    assert Count(arms, tuple(range(changed))).value(n) == expected


@given(LABELS)
def test_counts_stay_within_the_arms_that_are_determined(runs):
    n = runs.shape[1]
    for counts in (home_counts(runs), pair_counts(runs), adjacent_counts(runs), burst_counts(runs)):
        for count in counts:
            assert 0 <= count.raw <= count.arms <= n
            value = count.value(n)
            assert value is None or 0 <= value <= n


@given(LABELS)
def test_later_runs_change_no_earlier_count(runs):
    for batch in (home_counts, pair_counts, adjacent_counts, burst_counts):
        whole, part = batch(runs), batch(runs[: len(runs) * 2 // 3])
        assert whole[: len(part)] == part


@given(LABELS)
def test_refused_and_answered_are_treated_alike(runs):
    turned = np.where(runs < 0, runs, 1 - runs)
    for batch in (home_counts, pair_counts, adjacent_counts, burst_counts):
        assert batch(turned) == batch(runs)


@given(LABELS)
def test_a_confirmed_flip_is_a_flip_and_a_departure_one_run_before(runs):
    flips = [set(count.changed) for count in adjacent_counts(runs)]
    for r, count in enumerate(burst_counts(runs), start=2):
        assert set(count.changed) <= flips[r - 1]


def test_too_few_runs_or_another_label_are_refused():
    with pytest.raises(ValueError, match=r"runs >= 3, got 2"):
        home_count(FIVE[:1], FIVE[1])
    with pytest.raises(ValueError, match=r"labels in -1, 0, 1; got \[0, 2\]"):
        pair_count(np.array([0], np.int8), np.array([2], np.int8))
