from itertools import product

import numpy as np
import pytest
from scipy.stats import binom

from drift.stats.intervals import wilson_interval
from drift.stats.likelihood import churn_bound
from drift.stats.power import delay, first_passage, point_null_passage, reference_table

QUIET = {"before": 0.015, "lifetimes": 2000}


def test_first_passage_of_the_mixture_has_the_exact_values():
    p0 = wilson_interval(4, 240).high
    found = first_passage(n=12, p0=p0, p=p0, threshold=20, refreshes=1500)
    assert found[[9, 99, 1499]] == pytest.approx(
        [0.0038195756, 0.0052756499, 0.0059934297], abs=5e-11
    )
    assert (np.diff(found) >= 0).all()


def test_the_point_null_has_the_exact_values():
    found = point_null_passage(n=12, burn_in=5, p=0.015, threshold=20, refreshes=1500)
    shares = found[[99, 499, 999, 1499]]
    assert (100 * shares).round(2).tolist() == [5.44, 32.08, 39.00, 40.16]


def mixture_by_its_definition(k, N, p0):
    q = p0 + (1 - p0) * np.arange(1, 101) / 100
    return ((q / p0) ** k * ((1 - q) / (1 - p0)) ** (N - k)).mean()


@pytest.mark.parametrize(("p0", "p", "threshold"), [(0.1, 0.1, 3), (0.2, 0.5, 2), (0.04, 0.3, 20)])
def test_first_passage_is_the_sum_over_all_histories(p0, p, threshold):
    n, refreshes = 2, 5
    chance = [(1 - p) ** 2, 2 * p * (1 - p), p * p]
    crossed = np.zeros(refreshes)
    for history in product(range(n + 1), repeat=refreshes):
        weight = np.prod([chance[k] for k in history])
        path = [
            mixture_by_its_definition(sum(history[:t]), n * t, p0) >= threshold
            for t in range(1, refreshes + 1)
        ]
        crossed += weight * np.maximum.accumulate(path)
    found = first_passage(n=n, p0=p0, p=p, threshold=threshold, refreshes=refreshes)
    assert found == pytest.approx(crossed, rel=1e-12)
    assert crossed[-1] > 0


def test_a_simulated_mixture_crosses_as_often_as_the_exact_values_say():
    # Churn 10 % against the p0 of a burn-in at 1.5 %, whose flips vary: the mean over them.
    found = delay("mixture", n=12, after=0.10, within=10, followed=10, lifetimes=4000)
    exact = 0.0
    for x in range(30):
        bound = churn_bound(x, 240)
        exact += binom.pmf(x, 240, 0.015) * first_passage(n=12, p0=bound, p=0.10, refreshes=10)[-1]
    assert abs(found.share - exact) < 4.5 * np.sqrt(exact * (1 - exact) / 4000)


@pytest.mark.parametrize(("n", "within"), [(41, 5), (14, 10)])
def test_half_of_the_arms_flipping_after_a_thousand_quiet_refreshes_is_seen_at_once(n, within):
    found = delay("home", n=n, after=0.5, quiet=1000, within=within, followed=30, **QUIET)
    assert found.share >= 0.95
    assert found.early < 100


def test_home_sees_ten_per_cent_churn_after_a_hundred_quiet_refreshes_of_41_arms():
    found = delay("home", n=41, after=0.10, quiet=100, followed=60, **QUIET)
    assert found.median <= 11
    assert found.share > 0.99


def test_quiet_refreshes_put_the_mixture_into_debt_and_not_home():
    fast, slow = (
        [delay(process, n=41, after=0.10, quiet=quiet, followed=300, **QUIET) for quiet in (0, 500)]
        for process in ("home", "mixture")
    )
    assert slow[0].median < 5
    assert slow[1].median > 100
    assert fast[1].median <= 9


def test_more_arms_and_more_churn_are_seen_sooner():
    shape = {"quiet": 100, "followed": 200, "lifetimes": 500}
    medians = [
        delay("home", n=n, after=after, **shape).median
        for n, after in ((14, 0.10), (41, 0.10), (41, 0.20))
    ]
    assert medians == sorted(medians, reverse=True)
    assert len(set(medians)) == 3


def test_pairs_are_decided_every_second_refresh():
    shape = {"n": 41, "after": 0.9, "quiet": 100, "followed": 60, "lifetimes": 200}
    shares = [delay("pairs", **shape, within=within).share for within in (10, 11, 12)]
    assert shares[0] == shares[1] < shares[2]
    # After an odd number of refreshes the change falls within a pair, which sees it.
    shape["quiet"] = 101
    shares = [delay("pairs", **shape, within=within).share for within in (11, 12, 13)]
    assert shares[0] == shares[1] < shares[2]


def test_what_half_of_the_lifetimes_do_not_reach_has_no_median():
    found = delay("home", n=14, after=0.015, followed=50, lifetimes=100)
    assert (found.median, found.reason) == (None, "over 50 refreshes")
    assert found.share < 0.5


def test_lifetimes_which_rang_before_the_change_are_counted_apart(tmp_path, monkeypatch):
    (tmp_path / "ringing.py").write_text(
        "import numpy as np\ndef always(D, *, horizon, seed):\n    return np.full(D.shape, 50.0)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    found = delay(
        "ringing:always", n=41, after=0.5, before=0.2, quiet=100, followed=10, lifetimes=20
    )
    assert (found.early, found.median, found.share) == (20, None, None)
    assert found.reason == "every lifetime had reached it before"


def test_every_delay_the_design_states_is_recomputed():
    rows = reference_table(lifetimes=2)
    stated = [
        (r.measured.process, r.measured.threshold, r.measured.n, r.measured.quiet) for r in rows
    ]
    assert len(rows) == 41
    assert ("mixture", 20, 14, 500) in stated
    assert [r.measured.within for r in rows[-2:]] == [5, 10]
    assert all(r.median is not None or r.share is not None for r in rows)
