import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from drift.stats.agreement import Estimate
from drift.stats.floor import beyond, floor_value, noise_floor

SIZES, SHARES = st.integers(1, 60), st.floats(0, 1)


def chances(items, discordance):
    """P(net count), item by item."""
    steps = ((-1, discordance / 2), (0, 1 - discordance), (1, discordance / 2))
    found = {0: 1.0}
    for _ in range(items):
        longer = dict.fromkeys(range(-items, items + 1), 0.0)
        for net, chance in found.items():
            for step, p in steps:
                if chance:
                    longer[net + step] += chance * p
        found = longer
    return found


@pytest.mark.parametrize("discordance", [0, 0.05, 0.18, 0.5, 1])
@pytest.mark.parametrize("items", [1, 2, 7, 20])
def test_the_chance_to_move_is_the_sum_over_all_ways_that_items_flip(items, discordance):
    exact = chances(items, discordance)
    for k in range(items + 1):
        expected = sum(p for net, p in exact.items() if abs(net) > k)
        assert beyond(k, discordance, items) == pytest.approx(expected, abs=1e-13)


@given(SHARES, SIZES, st.sampled_from([0.8, 0.95, 0.99]))
def test_the_floor_is_the_smallest_count_that_noise_stays_within(discordance, items, level):
    k = round(items * floor_value(discordance, items, level=level))
    assert 1 - beyond(k, discordance, items) >= level
    assert k == 0 or 1 - beyond(k - 1, discordance, items) < level


def test_two_points_at_five_hundred_items_is_a_false_floor_for_independent_draws():
    flips = 2 * 0.9 * 0.1  # of an item that is refused nine times in ten, drawn twice
    assert (500 * flips) ** 0.5 / 500 == pytest.approx(0.01897, abs=5e-6)
    assert floor_value(flips, 500) == 19 / 500
    assert beyond(10, flips, 500) == pytest.approx(0.26798, abs=5e-6)
    assert beyond(9, flips, 500) == pytest.approx(0.31621, abs=5e-6)


def test_two_points_at_five_hundred_items_holds_up_to_less_than_six_per_cent_of_flips():
    assert beyond(10, 0.05744, 500) < 0.05 < beyond(10, 0.05745, 500)
    assert floor_value(0.05744, 500) == 10 / 500 < floor_value(0.05745, 500)
    normal = (10 / 1.959964) ** 2 / 500  # without a correction for whole items
    assert normal == pytest.approx(0.05206, abs=5e-6)


def test_without_a_flip_the_floor_is_nothing_and_its_upper_limit_is_not():
    found = noise_floor(0, 60, 20)
    assert found.discordance.estimate == found.value.estimate == 0
    assert found.discordance.high == pytest.approx(0.0596294922861669, rel=1e-12)
    assert found.value == Estimate(0, 0, 2 / 20)


def test_every_item_that_flips_has_an_interval_up_to_one():
    found = noise_floor(20, 20, 20)
    assert (found.discordance.estimate, found.discordance.high) == (1, 1)
    assert found.discordance.low == pytest.approx(0.025 ** (1 / 20), rel=1e-12)


@given(st.data(), SIZES)
def test_the_floor_lies_within_its_limits(data, items):
    comparisons = data.draw(st.integers(1, 200))
    found = noise_floor(data.draw(st.integers(0, comparisons)), comparisons, items)
    for numbers in (found.discordance, found.value):
        assert 0 <= numbers.low <= numbers.estimate <= numbers.high <= 1


def test_without_a_comparison_there_is_no_floor():
    found = noise_floor(0, 0, 20)
    assert found.discordance.estimate is found.value.high is None
    assert found.value.reason == "no item is determined in two batches"


@pytest.mark.parametrize(
    ("items", "discordance", "voids"), [(20, 0.02, 0.205), (41, 0.02, 0.216), (41, 0.05, 0.114)]
)
def test_a_floor_from_one_pair_is_exceeded_more_often_than_in_one_of_twenty(
    items, discordance, voids
):
    chances = binom.pmf(range(items + 1), items, discordance)
    floors = [noise_floor(flips, items, items).value.estimate for flips in range(items + 1)]
    exceeded = [beyond(round(items * floor), discordance, items) for floor in floors]
    assert sum(chances * exceeded) == pytest.approx(voids, abs=5e-4)
    known = round(items * floor_value(discordance, items))
    assert beyond(known, discordance, items) < 0.05


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: noise_floor(3, 2, 5), r"flips in \[0, comparisons\], got 3 of 2"),
        (lambda: noise_floor(0, 2, 0), "items >= 1, got 0"),
        (lambda: noise_floor(0, 2, 5, level=1), r"level in \(0, 1\), got 1"),
        (lambda: floor_value(1.2, 5), r"discordance in \[0, 1\], got 1.2"),
    ],
)
def test_what_is_out_of_range_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
