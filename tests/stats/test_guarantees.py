import pytest
from hypothesis import given
from hypothesis import strategies as st

from drift.stats.guarantees import GUARANTEES, STATES, next_state

STEPS = st.lists(st.tuples(st.floats(0, 1e300), st.integers(0, 41)), max_size=30)


def entered(state, evidence, value, calibrated=True, **thresholds):
    return next_state(state, evidence=evidence, value=value, calibrated=calibrated, **thresholds)


@pytest.mark.parametrize(
    ("evidence", "value", "expected"),
    [
        (19.99, 3, "quiet"),
        (20, 1, "watch"),
        (99.9, 1, "watch"),
        (100, 1, "alarm"),
        (1e9, 0, "quiet"),
    ],
)
def test_a_state_is_entered_at_its_threshold_and_only_with_a_flip(evidence, value, expected):
    assert entered("quiet", evidence, value) == expected


def test_nothing_is_entered_before_the_baseline_is_complete():
    assert entered("calibrating", 1.0, 5, calibrated=False) == "calibrating"
    assert entered("calibrating", 1.0, 5) == "quiet"


def test_a_panel_raises_the_thresholds():
    assert entered("quiet", 100, 1, watch=80, alarm=400) == "watch"
    assert entered("quiet", 79, 1, watch=80, alarm=400) == "quiet"


@given(STEPS)
def test_states_are_latched(steps):
    state, ranks = "quiet", [1]
    for evidence, value in steps:
        state = entered(state, evidence, value)
        ranks.append(STATES.index(state))
    assert ranks == sorted(ranks)
    highest = max((e for e, value in steps if value), default=1.0)
    assert state == entered("quiet", highest, 1)


@given(st.lists(st.floats(0, 1e300), max_size=30))
def test_a_model_that_never_flips_stays_quiet(path):
    state = "quiet"
    for evidence in path:
        state = entered(state, evidence, 0)
    assert state == "quiet"


def test_bounds_are_those_of_their_thresholds():
    bounds = {name: (g.kind, g.watch, g.alarm, g.horizon) for name, g in GUARANTEES.items()}
    assert bounds == {
        "home": ("verified by simulation", 1 / 20, 1 / 100, 1500),
        "pairs": ("theorem", None, 1 / 100, 750),
        "mixture": ("model-based", 0.075, 0.035, None),
        "restart": ("model-based", 0.075, 0.035, 1500),
        "burst": ("none", None, None, 1500),
        "coverage": ("theorem", 1 / 20, 1 / 100, 1500),
        "panel": ("verified by simulation", 1 / 20, 1 / 100, 1500),
        "merged": ("model-based", None, None, None),
        "look": ("none", None, None, None),
    }


def test_each_guarantee_says_what_it_assumes_and_what_it_leaves_out():
    for guarantee in GUARANTEES.values():
        assert guarantee.not_covered
        for text in (guarantee.claim, guarantee.assumption):
            assert text.endswith(".")
    assert "not a theorem" in GUARANTEES["home"].claim
    assert "independent across arms and across refreshes" in GUARANTEES["mixture"].assumption
    assert "outside every bound" in GUARANTEES["burst"].claim
