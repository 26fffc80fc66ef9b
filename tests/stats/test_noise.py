from datetime import date, timedelta

import numpy as np
import pytest

from drift.stats.noise import WEEKDAYS, noise
from drift.stats.zoo import ZOO

MONDAY = date(2026, 3, 2)


def days(transitions, *, runs_a_day=4):
    return [MONDAY + timedelta(days=t // runs_a_day) for t in range(transitions)]


def described(flipped, *, n, **options):
    return noise(flipped, [n] * len(flipped), days(len(flipped)), n=n, **options)


def values(found):
    return {statistic.name: statistic.value for statistic in found.statistics}


def record(member, *, n, transitions, seed):
    """Draw a record of one member: arms that flipped and arms compared, per transition."""
    refused, missing = member(n=n, runs=transitions + 1, lifetimes=1, seed=seed)
    gone = np.zeros_like(refused) if missing is None else missing
    absent = (gone[1:] | gone[:-1])[:, 0]
    moved = (refused[1:] ^ refused[:-1])[:, 0] & ~absent
    flipped = [{f"law/{arm}" for arm in range(n) if int(word) >> arm & 1} for word in moved]
    return flipped, (n - np.bitwise_count(absent).astype(int)).tolist()


def test_a_glitch_is_two_flips_of_which_the_second_returns():
    found = described([{"a"}, {"a"}, set(), {"b"}, {"b"}, set(), set(), set()], n=4)
    assert values(found) == pytest.approx(
        {
            "churn": 4 / 32,
            "variance over mean": 4 / 7,
            "lag-1 autocorrelation": 1 / 8,
            "share of return flips": 2 / 3,
            "median visit": 1.0,
        }
    )


def test_a_visit_lasts_from_leaving_the_usual_label_to_coming_back():
    # Arm a is away for three runs; b moves for good halfway and has no usual label.
    flipped = [set() for _ in range(19)]
    for at, arm in ((4, "a"), (7, "a"), (9, "b")):
        flipped[at] = {arm}
    assert values(described(flipped, n=3))["median visit"] == 3.0


def test_a_visit_under_way_at_either_end_has_no_length():
    flipped = [{"a"}] + [set()] * 8 + [{"a"}]
    assert values(described(flipped, n=1))["median visit"] is None


def test_independent_flips_vary_like_a_binomial():
    flipped, compared = record(ZOO["iid flips 3 %"], n=41, transitions=1500, seed=8)
    found = values(noise(flipped, compared, days(1500), n=41, lifetimes=2))
    assert found["churn"] == pytest.approx(0.03, abs=0.003)
    assert found["variance over mean"] == pytest.approx(0.97, abs=0.15)
    assert found["lag-1 autocorrelation"] == pytest.approx(0, abs=0.1)
    assert found["share of return flips"] == pytest.approx(0.03, abs=0.02)


def test_flips_are_tabled_by_the_day_of_the_later_run():
    flipped = [{"a", "b"} if t // 4 % 7 >= 5 else set() for t in range(28)]
    table = described(flipped, n=2).weekdays
    assert [row.day for row in table] == list(WEEKDAYS)
    assert [row.transitions for row in table] == [4] * 7
    assert [row.flips for row in table] == [0, 0, 0, 0, 0, 8, 8]


@pytest.mark.parametrize(
    "name",
    [
        "iid flips 0.2 %",
        "iid flips 3 %",
        "iid glitch 0.75 %",
        "knife-edge 0.5",
        "bad runs 2 %, 0.35",
        "symmetric backends",
        "visits 0.005, 0.05",
        "weekday",
        "every fourth run",
        "episodes",
    ],
)
def test_a_record_of_a_member_resembles_that_member(name):
    flipped, compared = record(ZOO[name], n=41, transitions=900, seed=77)
    found = noise(flipped, compared, days(900), n=41, lifetimes=24)
    assert found.resembles == name
    assert found.nearest[0] == (name, found.distance)
    distances = [distance for _, distance in found.nearest]
    assert distances == sorted(distances)
    assert found.distance < 5
    assert found.reason is None


def test_a_record_unlike_any_member_is_far_from_all():
    every_arm = [{f"law/{arm}" for arm in range(41)} if t % 7 == 0 else set() for t in range(300)]
    assert described(every_arm, n=41, lifetimes=10).distance > 10


def test_too_little_data_resembles_nothing_and_says_why():
    for flipped, got in (([{"a"}] * 29, "29 and 29"), ([{"a"}] * 9 + [set()] * 200, "209 and 9")):
        found = described(flipped, n=3)
        assert (found.resembles, found.distance, found.nearest) == (None, None, ())
        assert found.reason == f"30 transitions and 10 flips are needed, got {got}"


@pytest.mark.parametrize(
    ("flipped", "name", "reason"),
    [
        ([], "churn", "no transition"),
        ([set()] * 5, "variance over mean", "fewer than two values, or no flip"),
        ([{"a"}] * 5, "lag-1 autocorrelation", "fewer than three values, or all are equal"),
        ([{"a"}, set()], "share of return flips", "no flip with a transition before it"),
        ([{"a"}, set()], "median visit", "no arm left its usual label and came back"),
    ],
)
def test_an_undefined_statistic_has_a_reason_and_no_value(flipped, name, reason):
    found = {s.name: s for s in described(flipped, n=2).statistics}
    assert (found[name].value, found[name].reason) == (None, reason)


def test_an_even_record_is_compared_by_the_statistics_it_has():
    # The same number of flips at each transition: no autocorrelation, and a variance of 0.
    flipped = [{f"law/{t % 41}"} for t in range(300)]
    found = described(flipped, n=41, lifetimes=10)
    assert values(found)["variance over mean"] == 0
    assert found.resembles is not None
    assert np.isfinite(found.distance)


def test_flips_are_scaled_to_the_arms_compared():
    found = noise([{"a"}, set(), set()], [8, 8, 3], days(3), n=10)
    # One flip of eight arms stands for one of ten, and three arms give no value.
    assert values(found)["variance over mean"] == pytest.approx(1.0)
    assert values(found)["churn"] == pytest.approx(1 / 19)


def test_a_resemblance_is_the_same_for_the_same_seed():
    flipped, compared = record(ZOO["weekday"], n=14, transitions=200, seed=3)
    one, again = (noise(flipped, compared, days(200), n=14, lifetimes=10) for _ in range(2))
    assert one == again


@pytest.mark.parametrize(
    ("flipped", "compared", "message"),
    [
        ([{"a"}], [3, 3], "one set of arms, count and date a transition, got 1, 2 and 1"),
        ([{"a", "b"}], [1], r"arms that flipped in \[0, n\], got 2 of 1"),
    ],
)
def test_a_record_that_does_not_fit_is_refused(flipped, compared, message):
    with pytest.raises(ValueError, match=message):
        noise(flipped, compared, days(1), n=1)
