import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drift.stats.aftermath import dice, onset
from drift.stats.betting import spent, weight
from drift.stats.conformal import POWERS, Conformal, conformal

PS = st.lists(st.floats(1e-6, 1), min_size=1, max_size=25)


def scored(ps, horizon):
    return [
        weight(j + 1, horizon)
        * np.mean([np.prod([k * p ** (k - 1) for p in ps[j:]]) for k in POWERS])
        for j in range(len(ps))
    ]


@given(PS, st.integers(2, 50))
def test_onset_is_the_start_whose_bets_contribute_most(ps, horizon):
    scores = scored(ps, horizon)
    found = onset(dict(enumerate(ps, start=41)), horizon=horizon)
    assert scores[found.index - 41] == pytest.approx(max(scores), rel=1e-9)
    expected = [score / max(scores) for score in scores]
    assert list(found.relative.values()) == pytest.approx(expected, rel=1e-9)
    assert list(found.relative) == list(range(41, 41 + len(ps)))


@given(st.lists(st.tuples(st.integers(0, 4), st.floats(0.01, 1)), min_size=4, max_size=25))
def test_the_scores_of_all_starts_make_up_the_evidence(steps):
    state, ps = Conformal(4, burn_in=3, horizon=30), []
    for value, u in steps:
        state = state.step(value, u)
        ps += [] if state.p is None else [state.p]
    assert state.evidence == pytest.approx(1 - spent(len(ps), 30) + sum(scored(ps, 30)), rel=1e-9)


def test_onset_names_the_value_from_which_ranks_are_small():
    ps = [0.9, 0.4, 0.7, 0.6, 0.8, 0.5] * 5 + [0.01] * 5
    found = onset(dict(enumerate(ps, start=41)), horizon=1500)
    assert found.index == 71
    assert found.relative[71] == 1.0
    assert found.relative[72] < found.relative[71]


def test_long_products_neither_vanish_nor_overflow():
    found = onset(dict(enumerate([0.9] * 1000 + [1e-9] * 200)), horizon=1500)
    assert found.index == 1000


def test_no_onset_without_a_bet():
    with pytest.raises(ValueError, match="needs a P"):
        onset({}, horizon=1500)


QUIET = np.array([0] * 30 + [1] * 10)


def test_a_strong_change_does_not_depend_on_the_dice():
    D = np.concatenate([QUIET, np.arange(5, 25)])
    result = dice(D, threshold=100, seed=1)
    assert (result.share, result.seeds) == (1.0, 999)
    assert result.evidence_at_one > 100


def test_what_the_dice_alone_did_shows_as_a_small_share():
    D = np.concatenate([QUIET, [1, 0, 1, 0, 1, 1, 0, 1, 1]])
    result = dice(D, threshold=20, seed=1)
    assert 0 <= result.share < 0.2
    assert result.evidence_at_one < 1


def test_zeros_reach_no_state_under_any_seed():
    assert dice(np.zeros(1500, int), threshold=20, seed=3).share == 0


def test_fewer_seeds_are_in_the_higher_state():
    D = np.concatenate([QUIET, [2, 1, 2, 0, 2, 1]])
    watch, alarm = (dice(D, threshold=c, seed=2).share for c in (20, 100))
    assert 0 < alarm < watch < 1
    raised = dice(D, threshold=80, seed=2).share
    assert raised < watch


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30), st.integers(0, 99))
def test_evidence_at_one_is_the_least_that_any_seed_gives(values, seed):
    D = np.array(values)
    least = dice(D, threshold=20, seed=0, seed_count=3, burn_in=5).evidence_at_one
    for E in conformal(np.tile(D, (3, 1)), horizon=1500, seed=seed, burn_in=5):
        assert least <= E[-1] * (1 + 1e-12)


def test_without_stakes_an_early_change_is_not_drawn_to_the_first_start():
    quiet, changed = [0.5] * 3, [0.002] * 12
    found = onset(dict(enumerate(quiet + changed)), horizon=1500)
    assert (found.index, found.unweighted) == (0, 3)
    assert found.relative[0] == 1
