import numpy as np
import pytest

from drift.stats.guarantees import GUARANTEES, enters


@pytest.mark.parametrize(
    ("evidence", "value", "expected"),
    [(19.99, 3, False), (20, 1, True), (1e9, 0, False)],
)
def test_a_state_is_entered_at_its_threshold_and_only_with_a_flip(evidence, value, expected):
    assert enters(evidence, value, 20) is expected
    assert enters(np.array([evidence]), np.array([value]), 20).tolist() == [expected]


def test_bounds_are_those_of_their_thresholds():
    bounds = {name: (g.kind, g.watch, g.alarm, g.horizon) for name, g in GUARANTEES.items()}
    assert bounds == {
        "home": ("verified by simulation", 1 / 20, 1 / 100, 1500),
        "pairs": ("theorem", None, 1 / 100, 750),
        "mixture": ("model-based", 0.075, 0.035, None),
        "restart": ("model-based", 0.075, 0.035, 1500),
        "burst": ("none", None, None, 1500),
        "coverage": ("theorem", 1 / 20, 1 / 100, 3000),
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
