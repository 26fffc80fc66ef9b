import json
from dataclasses import asdict
from decimal import Decimal, localcontext
from fractions import Fraction
from hashlib import sha256
from itertools import permutations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.integrate import quad

from drift.stats.betting import CAP, evidence, exp, log, spent, total, wager, weight
from drift.stats.conformal import POWERS, Conformal, conformal, rank, rank_factors, uniform
from drift.stats.guarantees import enters

SEEDS = st.integers(0, 2**32)
VALUES = st.lists(st.integers(0, 5), max_size=40)
UNIFORM = st.floats(0, 1, exclude_min=True)
POSITIVE = st.floats(1e-30, 1e30)


def watched(values, uniforms, **start):
    """Return every state of a watch, the first one included."""
    states = [Conformal(5, **start)]
    for value, u in zip(values, uniforms, strict=True):
        states.append(states[-1].step(value, u))
    return states


def test_the_reference_series():
    values = [0] * 15 + [1] * 4 + [2] + [0, 1, 0, 3, 4]
    states = watched(values, [0.5] * 20 + [0.5, 0.25, 0.75, 0.5, 0.125], burn_in=20)[-5:]
    ranks = [13 / 21, 0.102272727272727, 0.815217391304348, 0.0208333333333333, 0.005]
    assert [s.p for s in states] == pytest.approx(ranks, rel=1e-12, abs=0)
    first = [0.736932888668932, 0.833611488011169, 0.677589321907918, 1.04868053575311]
    expected = [*first, 4.48997476948023]
    assert [s.evidence for s in states] == pytest.approx(expected, rel=1e-12, abs=0)


def test_the_uniform_is_the_hash_of_its_place():
    digest = int(sha256(b"ab|frontier|grok|2|home|41").hexdigest(), 16)
    assert uniform("ab", "frontier", "grok", 2, "home", 41) == float(
        (digest + Fraction(1, 2)) / 2**256
    )
    with pytest.raises(ValueError, match=r'ids without "\|"'):
        uniform("ab", "fron|tier", "grok", 2, "home", 41)


def mean_evidence(values, burn_in, horizon, powers, exact):
    """Return the mean of E over all orders of the values, U integrated within each rank."""
    found = []
    for order in set(permutations(values)):
        wealth, E = (exact(0),) * len(powers), exact(1)
        for b in range(burn_in + 1, len(order) + 1):
            before, value = order[: b - 1], order[b - 1]
            greater = sum(other > value for other in before)
            low, high = (rank(exact(greater), before.count(value), u, b) for u in (0, 1))
            mean = [(high**k - low**k) / (high - low) for k in powers]
            t = b - burn_in
            w = exact(weight(t, horizon)).limit_denominator(100)
            wealth = wager(wealth, mean, w)
            E = evidence(wealth, exact(spent(t, horizon)).limit_denominator(100))
        found.append(E)
    return sum(found) / len(found)


class Real(float):
    """A float that is its own nearest fraction."""

    def limit_denominator(self, _):
        return float(self)


@pytest.mark.parametrize(
    ("values", "burn_in"), [([0, 0, 0, 1, 2], 2), ([0, 0, 0, 0, 1, 1, 2], 3), ([0, 1, 2, 3], 1)]
)
def test_the_mean_over_all_orders_is_one(values, burn_in):
    # In rationals the powers are whole; those of the alarm have irrational integrals.
    assert mean_evidence(values, burn_in, 6, (1, 2, 5), Fraction) == 1
    assert mean_evidence(values, burn_in, 6, (0.1, 0.35, 0.7), Real) == pytest.approx(1, rel=1e-14)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.0, 0.05), (0.2, 0.9)])
def test_the_bets_integrate_to_what_the_enumeration_uses(low, high):
    for i, k in enumerate(POWERS):
        area, _ = quad(lambda p, i=i: rank_factors(p)[i], low, high)
        assert area == pytest.approx(high**k - low**k, rel=1e-6)


def test_the_weights_start_with_a_half_and_sum_to_one():
    assert [weight(t, 6) for t in range(1, 7)] == [0.5] + [0.1] * 5
    assert [spent(t, 6) for t in range(7)] == pytest.approx([0, 0.5, 0.6, 0.7, 0.8, 0.9, 1])
    assert spent(1500, 1500) == 1


@given(VALUES, VALUES, SEEDS, st.integers(0, 9))
def test_later_values_change_no_earlier_evidence(values, later, seed, burn_in):
    short = conformal(np.array(values, int), horizon=30, seed=seed, burn_in=burn_in)
    both = conformal(np.array(values + later, int), horizon=30, seed=seed, burn_in=burn_in)
    assert short.tolist() == both[: len(values)].tolist()


@given(st.permutations([0, 0, 0, 1, 1, 2, 5]), VALUES, st.data())
def test_the_order_of_the_burn_in_changes_no_later_p(burnt, values, data):
    uniforms = data.draw(st.lists(UNIFORM, min_size=len(values), max_size=len(values)))
    for first in (burnt, sorted(burnt)):
        states = watched([*first, *values], [1.0] * 7 + uniforms, burn_in=7)
        found = [(s.p, s.evidence) for s in states[7:]]
        if first is burnt:
            expected = found
    assert found == expected
    assert expected[0] == (None, 1.0)


@given(VALUES, SEEDS, st.integers(0, 9), st.integers(2, 50))
def test_one_lifetime_is_the_fold_of_the_steps_bit_for_bit(values, seed, burn_in, horizon):
    rng, watch, path = np.random.default_rng(seed), Conformal(5, burn_in, horizon), []
    for value in values:
        if not watch.over:
            watch = watch.step(value, 1 - rng.random())
        path.append(watch.evidence)
    batch = conformal(np.array(values, int), horizon=horizon, seed=seed, burn_in=burn_in)
    assert batch.tolist() == path


@given(VALUES, SEEDS, st.integers(0, 9), st.integers(2, 50))
def test_many_lifetimes_follow_the_formulas_of_one(values, seed, burn_in, horizon):
    D = np.array(values, int)
    one = conformal(D, horizon=horizon, seed=seed, burn_in=burn_in)
    many = conformal(D[None], horizon=horizon, seed=seed, burn_in=burn_in)
    assert many.shape == (1, len(values))
    np.testing.assert_allclose(many[0], one, rtol=1e-12)


@given(st.lists(st.integers(-1, 3), min_size=1, max_size=40), SEEDS)
def test_a_gap_uses_nothing_up(values, seed):
    D = np.array([values, values[::-1]])
    both = conformal(D, horizon=20, seed=seed, burn_in=3)
    for gappy, E in zip(D, both, strict=True):
        alone = conformal(gappy, horizon=20, seed=seed, burn_in=3)
        dense = conformal(gappy[gappy >= 0], horizon=20, seed=seed, burn_in=3)
        assert alone[gappy >= 0].tolist() == dense.tolist()
        previous = np.concatenate([[1.0], E[:-1]])
        assert (E == previous)[gappy < 0].all()


@given(VALUES, st.data())
def test_a_state_read_back_from_json_goes_on_alike(values, data):
    uniforms = data.draw(st.lists(UNIFORM, min_size=len(values) + 1, max_size=len(values) + 1))
    state = watched(values, uniforms[1:], burn_in=4)[-1]
    again = Conformal(**json.loads(json.dumps(asdict(state))))
    assert again == state
    assert again.step(3, uniforms[0]) == state.step(3, uniforms[0])


@given(VALUES, UNIFORM, UNIFORM)
def test_a_smaller_uniform_is_more_evidence(values, u, v):
    assume(u < v)
    low, high = (watched([*values, 2], [x] * (len(values) + 1), burn_in=2)[-1] for x in (u, v))
    assert low.evidence >= high.evidence


@given(SEEDS)
def test_a_model_that_never_flips_stays_quiet_for_any_seed(seed):
    D = np.zeros((1, 200), int)
    E = conformal(D, horizon=1500, seed=seed, burn_in=5)
    assert not enters(1e9 * E, D, 20).any()


def test_zeros_alone_can_reach_the_threshold_which_is_why_a_state_needs_a_flip():
    E = conformal(np.zeros((2000, 1500), np.int8), horizon=1500, seed=5)
    assert 0 < (E >= 20).any(1).mean() < 0.05


def test_wealth_is_capped_and_never_overflows():
    watch = Conformal(2000, burn_in=1)
    for value in range(60):
        watch = watch.step(value, 2.0**-60)
    assert max(watch.wealth) == CAP
    assert CAP / 5 <= watch.evidence <= CAP
    with np.errstate(over="raise"):
        capped = wager((np.array([1e300, 1.0]),), (np.array([1e8, 2.0]),), 0.5)
    assert capped[0].tolist() == [CAP, 3.0]


def test_the_watch_ends_at_its_horizon_and_its_evidence_stands():
    watch = watched([0, 1, 0, 2], [0.5] * 4, burn_in=2, horizon=2)[-1]
    assert (watch.over, watch.bets) == (True, 2)
    with pytest.raises(ValueError, match=r"bets < horizon, got 2 of 2"):
        watch.step(0, 0.5)
    E = conformal(np.array([[0, 1, 0, 2, 5, 5]]), horizon=2, seed=1, burn_in=2)[0]
    assert E[3] == E[4] == E[5] != E[2]


@pytest.mark.parametrize(
    ("value", "u", "message"),
    [(6, 0.5, r"value in \[0, n\], got 6 of 5"), (-1, 0.5, "got -1"), (0, 0.0, r"u in \(0, 1\]")],
)
def test_a_value_or_uniform_out_of_range_is_refused(value, u, message):
    with pytest.raises(ValueError, match=message):
        Conformal(5).step(value, u)


@given(POSITIVE)
def test_float_logarithms_and_exponentials_are_correctly_rounded(x):
    with localcontext(prec=60):
        assert log(x) == float(Decimal(x).ln())
        assert exp(log(x)) == float(Decimal(log(x)).exp())


def test_sums_are_not_compensated_so_that_every_python_agrees():
    assert total([1e16, 1.0, -1e16]) == 0.0
