import pytest
from hypothesis import given
from hypothesis import strategies as st

from drift.stats.flips import flips

R, A, U = "refused", "answered", "undetermined"
RUNS = st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from([R, A, U, None]))


def test_flips_are_named_by_direction_over_shared_determined_arms():
    before = {"a": A, "b": R, "c": A, "d": R, "e": U, "f": A, "g": R}
    after = {"a": R, "b": A, "c": R, "d": R, "e": A, "f": None, "h": R}
    got = flips(before, after)
    assert got.newly_refused == ("a", "c")
    assert got.newly_answered == ("b",)
    assert got.not_compared == ("e", "f", "g", "h")
    assert (got.compared, got.churn, got.reason) == (4, 0.75, None)


@pytest.mark.parametrize(
    ("before", "after"), [({}, {}), ({"a": R}, {"b": R}), ({"a": U}, {"a": R})]
)
def test_churn_over_no_shared_arm_is_not_zero(before, after):
    got = flips(before, after)
    assert (got.compared, got.churn) == (0, None)
    assert got.reason == "no arm is determined in both runs"


def test_a_full_run_against_a_canonical_one_shows_no_movement_of_its_own():
    canonical = {"law/a#en-1": A, "law/b#en-1": R}
    got = flips(canonical, {**canonical, "law/a#en-2": R, "law/a#zh": R})
    assert (got.compared, got.churn) == (2, 0.0)
    assert got.not_compared == ("law/a#en-2", "law/a#zh")


@given(RUNS)
def test_a_run_against_itself_has_no_flip(run):
    got = flips(run, run)
    assert got.newly_refused == got.newly_answered == ()


@given(RUNS, RUNS)
def test_reading_the_transition_backwards_swaps_the_directions(before, after):
    there, back = flips(before, after), flips(after, before)
    assert there.newly_refused == back.newly_answered
    assert (there.compared, there.churn) == (back.compared, back.churn)
    assert there.compared + len(there.not_compared) == len(before.keys() | after.keys())
