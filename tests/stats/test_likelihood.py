import json
import math
from dataclasses import asdict
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp
from scipy.stats import binom

from drift.stats import likelihood
from drift.stats.betting import evidence, spent, wager, weight
from drift.stats.intervals import wilson_interval
from drift.stats.likelihood import (
    ODDS,
    Mixture,
    Restart,
    churn_bound,
    mixture,
    mixture_evidence,
    mixture_grid,
    mixture_no_growth,
    restart,
    restart_factors,
    restart_no_growth,
)

PROCESSES = (partial(mixture, points=10), restart)
FLIPS = st.lists(st.integers(0, 6), max_size=40)
P0 = st.floats(0.002, 0.9)


def mixed(k, N, p0, points=100):
    return mixture_evidence(k, N, *mixture_grid(p0, points=points), points=points)


@pytest.mark.parametrize(
    ("k", "N", "p0", "expected"),
    [
        (0, 12, 0.04, 0.0720230585928861),
        (3, 12, 0.04, 8.20076876985999),
        (14, 140, 0.0421, 4.66223091257307),
        (0, 0, 0.04, 1.0),
    ],
)
def test_mixture_has_the_exact_values(k, N, p0, expected):
    assert mixed(k, N, p0) == pytest.approx(expected, rel=1e-12, abs=0)


def test_restart_has_the_exact_values(monkeypatch):
    monkeypatch.setattr(likelihood, "churn_bound", lambda flips, compared: 0.04)
    watch, path = Restart(burn_in=0), []
    for flips in [0, 1, 0, 3, 4, 2, 5, 6]:
        watch = watch.step(flips, 14)
        path.append(watch.evidence)
    start = [0.651210920239511, 0.662930541196003, 0.596737066874989, 0.893622882301653]
    end = [6.13966799805548, 15.889582061989, 2245.10937676915, 5580849.46073127]
    assert path == pytest.approx(start + end, rel=1e-12, abs=0)


def chances(m, p):
    return [math.comb(m, k) * p**k * (1 - p) ** (m - k) for k in range(m + 1)]


def rational_mixture(k, N, p0, points):
    grid = [p0 + (1 - p0) * Fraction(j, points) for j in range(1, points + 1)]
    return sum((q / p0) ** k * ((1 - q) / (1 - p0)) ** (N - k) for q in grid) / points


def test_the_mixture_has_mean_one_at_its_bound_and_less_below_it():
    p0, m = Fraction(1, 25), 8
    values = [rational_mixture(k, m, p0, 10) for k in range(m + 1)]
    assert sum(c * E for c, E in zip(chances(m, p0), values, strict=True)) == 1
    below = sum(c * E for c, E in zip(chances(m, p0 / 2), values, strict=True))
    assert float(below) == 0.17528515364453126
    for k, E in enumerate(values):
        assert mixed(k, m, 0.04, points=10) == pytest.approx(float(E), rel=1e-13)
        ahead = [rational_mixture(k + more, 2 * m, p0, 10) for more in range(m + 1)]
        assert sum(c * E for c, E in zip(chances(m, p0), ahead, strict=True)) == E


def test_the_restart_process_has_mean_one_at_its_bound_and_less_below_it():
    p0, m, odds = Fraction(1, 25), 3, (Fraction(3, 2), Fraction(5), Fraction(30))
    factors = [[c**k / (1 + (c - 1) * p0) ** m for c in odds] for k in range(m + 1)]
    for k, exact in enumerate(factors):
        assert restart_factors(k, m, 0.04, (1.5, 5, 30)) == pytest.approx(
            [float(f) for f in exact], rel=1e-13
        )

    def mean(p, wealth=(Fraction(0),) * 3, t=1):
        if t > 3:
            return evidence(wealth, Fraction(spent(3, 6)).limit_denominator(100))
        w = Fraction(weight(t, 6)).limit_denominator(100)
        paths = [mean(p, wager(wealth, f, w), t + 1) for f in factors]
        return sum(c * E for c, E in zip(chances(m, p), paths, strict=True))

    assert mean(p0) == 1
    assert mean(p0 / 2) < 1


def test_the_odds_ratio_form_is_the_likelihood_ratio():
    p0, k, N = 0.07, 3, 11
    for c, factor in zip(ODDS, restart_factors(k, N, p0), strict=True):
        odds = c * p0 / (1 - p0)
        q = odds / (1 + odds)
        assert factor == pytest.approx(binom.pmf(k, N, q) / binom.pmf(k, N, p0), rel=1e-12)


@given(st.integers(0, 400), st.integers(0, 4000), P0)
def test_mixture_agrees_with_scipy(k, answered, p0):
    q = p0 + (1 - p0) * np.arange(1, 100) / 100
    terms = k * np.log(q / p0) + answered * np.log((1 - q) / (1 - p0))
    last = [-k * math.log(p0)] if answered == 0 else []
    expected = logsumexp([*terms, *last]) - math.log(100)
    got = mixed(k, k + answered, p0)
    if expected < 690:
        assert got == pytest.approx(math.exp(expected), rel=1e-9)
    assert got <= math.exp(690)


def test_the_mixture_first_crosses_twenty_as_dynamic_programming_says():
    n, p0 = 12, wilson_interval(4, 240).high
    grid, step = mixture_grid(p0), binom.pmf(np.arange(n + 1), n, p0)
    alive, crossed, limit, found = np.ones(1), 0.0, 0, {}
    for t in range(1, 1501):
        alive = np.convolve(alive, step)
        # More arms compared need more flips: the boundary never falls.
        while mixed_of(limit, n * t, grid) < 20:
            limit += 1
        crossed, alive = crossed + alive[limit:].sum(), alive[:limit]
        found[t] = crossed
    assert [found[t] for t in (10, 100, 1500)] == pytest.approx(
        [0.0038195756, 0.0052756499, 0.0059934297], rel=1e-7
    )


def mixed_of(k, N, grid):
    return mixture_evidence(np.array([float(k)]), N, *grid)[0]


@pytest.mark.parametrize(
    ("p0", "by_mixture", "by_restart"),
    [(0.0421, 0.0467340, 0.0513768), (0.0254, 0.0300179, 0.0311248)],
)
def test_no_growth_reaches_beyond_the_bound(p0, by_mixture, by_restart):
    assert mixture_no_growth(p0) == pytest.approx(by_mixture, abs=5e-8)
    assert restart_no_growth(p0) == pytest.approx(by_restart, abs=5e-8)


@given(P0)
def test_at_no_growth_every_component_has_a_drift_of_at_most_zero(p0):
    def drift(p, q):
        return p * math.log(q / p0) + (1 - p) * math.log((1 - q) / (1 - p0))

    mixed_q = [p0 + (1 - p0) * j / 100 for j in range(1, 100)]
    restart_q = [c * p0 / (1 - p0 + c * p0) for c in ODDS]
    for grid, limit in ((mixed_q, mixture_no_growth(p0)), (restart_q, restart_no_growth(p0))):
        assert p0 < limit < 1
        assert max(drift(limit, q) for q in grid) == pytest.approx(0, abs=1e-12)


def test_the_bound_on_churn_has_twelve_digits_and_may_not_exist():
    assert churn_bound(4, 240) == 0.0421211225845
    assert churn_bound(12, 820) == 0.0254232574003
    assert churn_bound(240, 240) is None
    assert churn_bound(0, 0) is None


def walked(watch, flips, compared=6):
    path = []
    for k in flips:
        watch = watch if getattr(watch, "over", False) else watch.step(k, compared)
        path.append(1.0 if watch.evidence is None else watch.evidence)
    return path


@given(FLIPS, st.integers(0, 9), st.integers(2, 40))
def test_one_lifetime_is_the_fold_of_the_steps_bit_for_bit(flips, burn_in, horizon):
    D = np.array(flips, int)
    got = mixture(D, horizon=horizon, seed=0, n=6, burn_in=burn_in)
    assert got.tolist() == walked(Mixture(burn_in), flips)
    got = restart(D, horizon=horizon, seed=0, n=6, burn_in=burn_in)
    assert got.tolist() == walked(Restart(burn_in, horizon=horizon), flips)


@given(FLIPS, FLIPS, st.integers(1, 9))
def test_many_lifetimes_follow_the_formulas_of_one(flips, others, burn_in):
    length = min(len(flips), len(others))
    D = np.array([flips[:length], others[:length]], int)
    for process in PROCESSES:
        many = process(D, horizon=20, seed=0, n=6, burn_in=burn_in)
        for row, E in zip(D, many, strict=True):
            one = process(row, horizon=20, seed=0, n=6, burn_in=burn_in)
            np.testing.assert_allclose(E, one, rtol=1e-11)


@given(st.lists(st.integers(-1, 6), min_size=1, max_size=40))
def test_a_gap_uses_nothing_up(flips):
    D = np.array(flips)
    for process in PROCESSES:
        for shaped in (D, D[None]):
            E = process(shaped, horizon=20, seed=0, n=6, burn_in=3).reshape(-1)
            dense = process(D[D >= 0], horizon=20, seed=0, n=6, burn_in=3)
            np.testing.assert_allclose(E[D >= 0], dense, rtol=1e-11)
            assert (E == np.concatenate([[1.0], E[:-1]]))[D < 0].all()


@given(FLIPS, FLIPS)
def test_later_flips_change_no_earlier_evidence(flips, later):
    for process in PROCESSES:
        short, both = (
            process(np.array(values, int), horizon=20, seed=0, n=6, burn_in=4)
            for values in (flips, flips + later)
        )
        assert short.tolist() == both[: len(flips)].tolist()


@given(FLIPS)
def test_a_state_read_back_from_json_goes_on_alike(flips):
    for start in (Mixture(4), Restart(4)):
        watch = start
        for k in flips:
            watch = watch.step(k, 6)
        again = type(start)(**json.loads(json.dumps(asdict(watch))))
        assert again == watch
        assert again.step(2, 5) == watch.step(2, 5)


def test_a_burn_in_in_which_every_arm_flipped_bounds_nothing():
    for watch in (Mixture(2), Restart(2)):
        assert (watch.evidence, watch.calibrated, watch.p0) == (1.0, False, None)
        watch = watch.step(6, 6).step(5, 5)
        assert (watch.evidence, watch.calibrated, watch.p0) == (None, True, None)
        assert watch.step(0, 6).evidence is None
    for process in (mixture, restart):
        E = process(np.array([[6, 6, 0, 6], [0, 0, 6, 6]]), horizon=9, seed=0, n=6, burn_in=2)
        assert E[0].tolist() == [1, 1, 1, 1]
        assert E[1, 3] > E[1, 2] > 1


def test_quiet_refreshes_put_the_mixture_in_debt_and_not_the_restart_process():
    quiet = [0] * 19 + [6] + [0] * 300
    D = np.array([*quiet, *[7] * 12])
    debt = mixture(D, horizon=1500, seed=0, n=41)
    fresh = restart(D, horizon=1500, seed=0, n=41)
    assert debt[len(quiet) - 1] < 1e-20
    assert debt.max() < 20
    assert fresh[len(quiet) - 1] > 0.3
    assert fresh.argmax() > len(quiet)
    assert fresh.max() > 100


def test_a_restart_watch_ends_at_its_horizon():
    watch = Restart(1, horizon=2)
    for flips in (0, 1, 1):
        assert not watch.over
        watch = watch.step(flips, 6)
    assert (watch.over, watch.bets) == (True, 2)
    with pytest.raises(ValueError, match=r"bets in \[1, 2\], got 3"):
        watch.step(0, 6)


def test_more_flips_than_arms_are_refused():
    with pytest.raises(ValueError, match=r"flips in \[0, compared\], got 7 of 6"):
        Mixture().step(7, 6)
