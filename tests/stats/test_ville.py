import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from drift.stats import counts as per_series
from drift.stats.guarantees import GUARANTEES, enters
from drift.stats.simulation import (
    PROCESSES,
    counts,
    crossings,
    evidence,
    homes,
    load_process,
    point_null,
)
from drift.stats.zoo import BIT, ZOO, Lifetimes, Member, iid_flips

# c = 20 and 100, and 20 M and 100 M for a panel of M = 4.
THRESHOLDS = (20, 100, 80, 400)
GATES = [
    (process, member, n)
    for process in ("home", "pairs", "mixture", "restart")
    for member in ZOO
    for n in (14, 41)
    if process in ZOO[member].gated
]
FLIPS = {f"iid flips {p} %" for p in ("0.2", "0.5", "1.5", "3")}
EXACT = FLIPS | {name for name in ZOO if name.startswith(("iid glitch", "knife-edge", "bad runs"))}
RIVAL = """
import numpy as np

def quiet(D, *, horizon, seed):
    return np.ones(D.shape)

def reckless(D, *, horizon, seed):
    return np.where(D > 0, 1000.0, 1.0)

def sure(D, *, horizon, seed, n, burn_in=3):
    assert n == 14 and D.shape[-1] >= burn_in + horizon
    return np.full(D.shape, 1e6)
sure.reads = "pairs"
sure.excess = 0.5

def short(D, *, horizon, seed):
    return np.ones(D.shape)[..., 1:]

def undefined(D, *, horizon, seed):
    return np.full(D.shape, np.nan)

number = 3
"""


@pytest.fixture
def rival(tmp_path, monkeypatch):
    (tmp_path / "rival_methods.py").write_text(RIVAL)
    monkeypatch.syspath_prepend(tmp_path)


def packed(labels):
    """Put int8 labels, lifetimes x runs x arms, into words."""
    words = [(BIT[: labels.shape[2]] * (labels == value)).sum(axis=2).T for value in (1, -1)]
    return Lifetimes(*(word.astype(np.uint64) for word in words))


LABELS = st.tuples(st.integers(1, 3), st.integers(4, 90), st.integers(1, 7)).flatmap(
    lambda shape: arrays(
        np.int8, shape, elements=st.sampled_from([0, 0, 0, 1, 1, -1]), fill=st.just(0)
    )
)
BATCH = {
    "home": per_series.home_counts,
    "pairs": per_series.pair_counts,
    "flips": per_series.adjacent_counts,
    "burst": per_series.burst_counts,
}


@settings(max_examples=60, deadline=None)
@given(LABELS)
@pytest.mark.parametrize("reads", BATCH)
def test_counts_in_bits_are_those_of_the_series(reads, labels):
    n = labels.shape[2]
    got = counts(packed(labels), reads, n=n)
    for one, row in zip(labels, got, strict=True):
        values = [count.value(n) for count in BATCH[reads](one)]
        assert row.tolist() == [-1 if value is None else value for value in values]


@pytest.mark.parametrize("n", [14, 41])
@pytest.mark.parametrize("member", ["missingness", "visits 0.005, 0.05", "knife-edge 0.5"])
def test_counts_of_a_long_lifetime_are_those_of_the_series(member, n):
    drawn = ZOO[member](n=n, runs=330, lifetimes=3)
    refused, missing = drawn
    missing = np.zeros_like(refused) if missing is None else missing
    for reads, batch in BATCH.items():
        got = counts(drawn, reads, n=n)
        for lifetime in range(3):
            arms = [(word[:, lifetime, None] & BIT[:n]) != 0 for word in (refused, missing)]
            values = [
                count.value(n) for count in batch(np.where(arms[1], -1, arms[0]).astype(np.int8))
            ]
            assert got[lifetime].tolist() == [-1 if v is None else v for v in values]


@pytest.mark.parametrize(
    ("window", "expected"), [(40, [0, 1, 1, 1, 0, 0, 0, 1]), (4, [0, 1, 1, 1, 1, 0, 0, 1])]
)
def test_departures_of_five_arms_over_ten_runs(window, expected):
    arms = ["aaaaraaaaa", "aaarrraaaa", "aaaaarrrrr", "rarararara", "aaaaaaaaar"]
    labels = np.array([[[letter == "r" for letter in arm] for arm in arms]], np.int8)
    drawn = packed(labels.transpose(0, 2, 1))
    assert counts(drawn, "home", n=5, window=window).tolist() == [expected]
    assert counts(drawn, "pairs", n=5).tolist() == [[1, 2, 3, 1, 2]]


def test_a_tie_is_no_home():
    refused = np.array([[1], [0], [0]], np.uint64)
    at_home_refused, at_home_answered = homes(refused, np.zeros_like(refused))
    assert (at_home_refused & BIT[0])[:, 0].tolist() == [0, 1, 0]
    assert (at_home_answered & BIT[0])[:, 0].tolist() == [0, 0, 0]


def test_an_unknown_count_is_refused():
    with pytest.raises(ValueError, match="reads in home, pairs, flips, burst; got 'levels'"):
        counts(ZOO["all zero"](n=1, runs=5, lifetimes=1), "levels", n=1)


def test_the_claims_cover_the_members_which_they_name():
    assert {m for m in ZOO if "home" in ZOO[m].gated} == set(ZOO) - {"episodes"}
    pairs = EXACT | {"symmetric backends", "all zero"}
    assert {m for m in ZOO if "pairs" in ZOO[m].gated} == pairs
    for process in ("mixture", "restart"):
        assert {m for m in ZOO if process in ZOO[m].gated} == FLIPS | {"all zero"}
    assert not any("burst" in member.gated for member in ZOO.values())


@pytest.mark.parametrize(("process", "member", "n"), GATES)
def test_a_model_which_never_changes_rings_no_oftener_than_claimed(process, member, n):
    rows = crossings(process, member, n=n, thresholds=THRESHOLDS)
    assert [row.verdict for row in rows] == ["within the bound"] * 4, rows
    if member == "all zero":
        assert [row.entered for row in rows] == [0, 0, 0, 0]


def test_at_2000_lifetimes_a_share_is_beyond_the_bound_from_these_limits_on():
    rows = crossings("pairs", "all zero", n=1, refreshes=20, thresholds=THRESHOLDS)
    assert [round(100 * row.limit, 2) for row in rows] == [6.46, 1.67, 2.0, 0.58]


def test_the_bounds_simulated_are_the_bounds_published():
    for process, threshold, bound in (
        ("home", 20, GUARANTEES["home"].watch),
        ("home", 100, GUARANTEES["home"].alarm),
        ("pairs", 100, GUARANTEES["pairs"].alarm),
        ("mixture", 20, GUARANTEES["mixture"].watch),
        ("restart", 100, GUARANTEES["restart"].alarm),
    ):
        (row,) = crossings(
            process, "all zero", n=1, lifetimes=2, refreshes=50, thresholds=(threshold,)
        )
        assert row.bound == pytest.approx(bound, abs=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_a_model_which_never_flips_never_leaves_quiet_whatever_the_dice(seed):
    for process in PROCESSES.values():
        D = np.zeros((50, 400), np.int64)
        E = evidence(process, D, n=41, horizon=360, seed=seed)
        assert not enters(E, D, 20).any()


def test_dice_alone_do_take_the_evidence_of_an_unmoving_model_past_a_threshold():
    (row,) = crossings("home", "all zero", n=41, thresholds=(20,))
    assert row.crossed > 0 == row.entered


@pytest.mark.parametrize("n", [14, 41])
def test_conformal_on_adjacent_flips_rings_falsely_for_glitches_count_twice(n):
    (row,) = crossings("conformal on adjacent flips", "iid glitch 0.75 %", n=n, thresholds=(20,))
    assert row.share > 0.2
    assert row.verdict == "beyond the bound"


def test_the_estimate_in_place_of_the_bound_rings_falsely():
    (row,) = crossings(
        "point null", "iid flips 1.5 %", n=12, lifetimes=500, refreshes=1000, thresholds=(20,)
    )
    assert row.share > 0.25
    assert row.low < 0.39 < row.high
    assert row.verdict == "beyond the bound"


def test_the_point_null_is_one_in_its_burn_in():
    D = np.array([[1, 0, 1, 0, 0, 2, 1, 3, 0], [0, -1, 0, 0, 0, 0, 2, 0, 1]])
    E = point_null(D, horizon=4, seed=0, n=12)
    assert (E == 1).tolist() == [[True] * 5 + [False] * 4, [True] * 6 + [False] * 3]
    # A gap is passed over, and one lifetime alone gives the same values.
    without = point_null(np.delete(D[1], 1), horizon=4, seed=0, n=12)
    assert np.delete(E[1], 1) == pytest.approx(without, rel=1e-12)


def test_episodes_ring_and_no_claim_covers_them():
    rows = crossings("home", "episodes", n=41, lifetimes=500)
    assert rows[0].share > 0.8
    assert {(row.verdict, row.bound, row.limit) for row in rows} == {
        ("not covered by a claim", None, None)
    }


def test_a_crossing_carries_its_interval_and_its_limit():
    row, _ = crossings("pairs", "iid flips 3 %", n=14, lifetimes=400, refreshes=300)
    assert row.share == row.crossed / row.lifetimes
    assert row.low <= row.share <= row.high
    assert row.limit == pytest.approx(0.05 + 3 * math.sqrt(0.05 * 0.95 / 400))


def test_a_model_of_ones_own_is_held_to_the_claims_that_it_names():
    own = Member(100, partial(iid_flips, p=0.02), frozenset({"pairs"}))
    shape = {"n": 20, "lifetimes": 200, "refreshes": 300}
    assert {row.verdict for row in crossings("pairs", own, **shape)} == {"within the bound"}
    (row,) = crossings("home", own, **shape, thresholds=(20,))
    assert row.verdict == "not covered by a claim"
    assert row.member == "Each arm flips with chance p at each run, whatever its label."


def test_a_rival_runs_on_any_member_and_is_held_to_its_claim(rival):
    shape = {"n": 14, "lifetimes": 20, "refreshes": 100}
    quiet = crossings("rival_methods:quiet", "episodes", **shape)
    assert [(row.crossed, row.verdict) for row in quiet] == [(0, "within the bound")] * 2
    reckless = crossings("rival_methods:reckless", "iid flips 3 %", **shape)
    assert [(row.share, row.verdict) for row in reckless] == [(1.0, "beyond the bound")] * 2
    sure = crossings("rival_methods:sure", "iid flips 3 %", **shape, thresholds=(2, 10))
    assert [row.bound for row in sure] == [1.0, 0.6]
    assert [row.verdict for row in sure] == ["within the bound", "beyond the bound"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("homes", r"process in home, pairs, mixture, restart, burst, .* or module:function"),
        ("rival_methods:", r"or module:function, got 'rival_methods:'"),
        ("no_such_module:f", "'no_such_module:f': cannot import 'no_such_module'"),
        ("rival_methods:loud", "'rival_methods' has no 'loud'"),
        ("rival_methods:number", "not a function but int"),
    ],
)
def test_a_process_that_cannot_be_loaded_is_named_with_the_reason(rival, name, message):
    with pytest.raises(ValueError, match=message):
        load_process(name)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("short", {}, r"E of the shape of D, \(5, 141\), got \(5, 140\)"),
        ("undefined", {}, "E >= 0 at every value, got a negative one or NaN"),
        ("quiet", {"burn_in": 7}, "burn_in = 7, but the process takes none"),
    ],
)
def test_a_rival_with_a_broken_answer_is_refused(rival, name, options, message):
    with pytest.raises(ValueError, match=message):
        crossings(f"rival_methods:{name}", "weekday", n=14, lifetimes=5, refreshes=100, **options)


def test_an_unknown_member_is_refused_with_the_members_there_are():
    said = r"^member: got 'dragons', expected one of iid flips 0\.2 %; "
    with pytest.raises(ValueError, match=said):
        crossings("home", "dragons", n=14)
