from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, multinomial

from drift.stats.attribution import (
    Pairs,
    Setting,
    attribute,
    paired_interval,
    pairs_of,
    simulate,
)
from drift.stats.floor import floor_value
from drift.stats.paired import midp_mcnemar

STILL = Pairs(100, 0, 0, 60)


def judged(target, reference=STILL, floor=0.02, alpha=0.05, same_bytes=False):
    return attribute(target, reference, floor=floor, alpha=alpha, same_bytes=same_bytes)


@st.composite
def pairs(draw, most=60):
    n = draw(st.integers(0, most))
    before = draw(st.integers(0, n))
    return Pairs(n, draw(st.integers(0, before)), draw(st.integers(0, n - before)), before)


def test_pairs_count_the_items_that_are_determined_twice():
    base = {"a": "refused", "b": "refused", "c": "answered", "d": "undetermined", "e": "answered"}
    later = {"a": "answered", "b": "refused", "c": "refused", "d": "refused", "e": None}
    assert pairs_of(base, later) == Pairs(n=3, fell=1, rose=1, refused_before=2)
    assert pairs_of(base, later).delta == 0
    assert pairs_of({}, {}).delta is None


def test_items_that_stand_in_one_batch_alone_are_named():
    with pytest.raises(ValueError, match=r"in one alone: b/two, c/three"):
        pairs_of({"a": None, "b/two": "refused"}, {"a": None, "c/three": "refused"})


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ((3, 0, 0, 4), r"refused_before in \[0, n\], got 4 of 3"),
        ((3, 2, 0, 1), r"fell in \[0, refused_before\], got 2 of 1"),
        ((3, 0, 3, 1), r"rose in \[0, answered_before\], got 3 of 2"),
    ],
)
def test_counts_that_do_not_fit_are_refused(counts, message):
    with pytest.raises(ValueError, match=message):
        Pairs(*counts)


def test_the_interval_is_the_one_that_was_published():
    # By hand: a = 4/52, b = 13/52; a - b = -9/52, variance (17/52 - (9/52)^2)/52.
    found = paired_interval(Pairs(50, 12, 3, 30))
    half = 1.959963984540054 * ((17 / 52 - (9 / 52) ** 2) / 52) ** 0.5
    assert (found.low, found.high) == pytest.approx((-9 / 52 - half, -9 / 52 + half), rel=1e-12)
    assert paired_interval(Pairs(0, 0, 0, 0)).reason == "no item is determined in both batches"


def coverage(n, fell, rose):
    """P(the 95 % interval holds rose - fell), exactly."""
    counts = np.array([(b, c, n - b - c) for b, c in product(range(n + 1), repeat=2) if b + c <= n])
    chance = multinomial.pmf(counts, n, [fell, rose, 1 - fell - rose])
    held = 0.0
    for (b, c, _), p in zip(counts.tolist(), chance, strict=True):
        found = paired_interval(Pairs(n, b, c, b))
        held += p * (found.low <= rose - fell <= found.high)
    return held


@pytest.mark.parametrize("n", [20, 41])
def test_the_interval_covers_a_paired_change_nearly_as_often_as_it_says(n):
    shares = (0.01, 0.05, 0.1, 0.2, 0.3)
    found = [coverage(n, fell, rose) for fell, rose in product(shares, repeat=2)]
    assert np.mean(found) > 0.955
    assert min(found) > 0.94


@given(pairs())
def test_a_rise_is_the_mirror_of_a_fall(one):
    other = Pairs(one.n, one.rose, one.fell, one.n - one.refused_before)
    low, high = paired_interval(one).low, paired_interval(one).high
    if one.n:
        assert (paired_interval(other).low, paired_interval(other).high) == pytest.approx(
            (-high, -low), abs=1e-15
        )
    kinds = [judged(p, Pairs(100, 0, 0, 50)).kind for p in (one, other)]
    assert kinds[0] == kinds[1]


def test_a_fall_of_the_target_beside_a_still_reference_is_attributed():
    found = judged(Pairs(100, 20, 2, 90))
    assert (found.kind, found.reason, found.reference_delta) == ("attributable", None, 0)
    assert found.delta == -0.18
    assert found.midp == midp_mcnemar(20, 2)
    assert found.interval.high < found.difference_interval.high < 0


def test_a_reference_that_moves_beyond_the_floor_voids_whatever_the_target_did():
    moved = Pairs(100, 3, 0, 60)
    for target in (Pairs(100, 20, 2, 90), Pairs(100, 0, 0, 90)):
        assert judged(target, moved).kind == "drifted"
        assert judged(target, moved, floor=0.03).kind != "drifted"


def test_a_floor_read_from_ten_printed_digits_is_the_floor():
    for k, n in product(range(8), (41, 77, 300)):
        reference = Pairs(n, k, 0, n)
        assert judged(STILL, reference, floor=float(f"{k / n:.10g}")).kind != "drifted"
        if k:
            assert judged(STILL, reference, floor=float(f"{(k - 1) / n:.10g}")).kind == "drifted"


def test_a_change_within_noise_is_no_change():
    assert judged(Pairs(100, 4, 0, 90)).reason == "the target's change is within noise"


def test_a_target_that_moved_less_than_the_reference_is_not_told_from_it():
    # Both within the floor; the difference is significant, but away from the target's own fall.
    found = judged(Pairs(1000, 50, 0, 900), Pairs(1000, 100, 0, 900), floor=0.1)
    assert found.difference_interval.low > 0
    assert found.kind == "no change"
    assert found.reason == "the target's change is not told from the reference's"


def test_a_reference_that_refuses_nothing_has_no_room_for_a_fall():
    fall, rise = Pairs(100, 20, 2, 90), Pairs(100, 2, 20, 10)
    blind = Pairs(100, 0, 0, 0)
    assert judged(fall, blind).kind == "no room"
    assert judged(rise, blind).kind == "attributable"
    assert judged(rise, Pairs(100, 0, 0, 100)).kind == "no room"
    assert judged(fall, blind, same_bytes=True).kind == "attributable"
    assert judged(fall, Pairs(100, 0, 0, 18)).kind == "attributable"
    assert judged(fall, Pairs(100, 0, 0, 17)).kind == "no room"


@pytest.mark.parametrize("few", [Pairs(0, 0, 0, 0), Pairs(4, 4, 0, 4)])
def test_too_few_items_are_not_estimable_and_the_reason_says_whose(few):
    found = judged(few)
    assert (found.kind, found.delta) == ("not estimable", few.delta)
    assert found.reason.startswith("target: too few pairs")
    assert judged(STILL, few).reason.startswith("reference: too few pairs")


@pytest.mark.parametrize(("name", "value"), [("floor", 1.5), ("floor", -0.1), ("alpha", 0)])
def test_a_floor_or_level_out_of_range_is_refused(name, value):
    with pytest.raises(ValueError, match=rf"{name} in [\[(]0, 1[\])], got {value}"):
        judged(STILL, **{name: value})


def test_a_level_next_to_nothing_is_a_level():
    # 2^-56 is above 1e-17 and 2^-57 below; 1 - 1e-17 is 1 to a float.
    for fell, kind in ((56, "no change"), (57, "attributable")):
        assert judged(Pairs(100, fell, 0, 90), alpha=1e-17).kind == kind
    found = judged(Pairs(100, 57, 0, 90), alpha=1e-17)
    assert found.interval.low < -0.57 < found.interval.high < 0


def error_of_a_still_instrument(n, discordance, alpha):
    """P(attributable) if nothing moved and the reference never does, exactly."""
    reference, error = Pairs(n, 0, 0, n), 0.0
    for m, chance in enumerate(binom.pmf(range(n + 1), n, discordance)):
        for fell in range(m // 2 + 1) if chance > 1e-9 else ():
            target = Pairs(n, fell, m - fell, n - m + fell)
            found = attribute(target, reference, floor=0, alpha=alpha, same_bytes=True)
            if found.kind != "attributable":
                break
            error += 2 * chance * binom.pmf(fell, m, 0.5)
    return error


def error_in_clusters(n, discordance, size):
    """The same at 5 %, if items flip in clusters: `size` at once, and what is left at once."""
    chances = {(0, 0): 1.0}
    for block in [size] * (n // size) + [n % size]:
        longer = Counter()
        for (fell, rose), chance in chances.items():
            longer[fell, rose] += chance * (1 - discordance)
            longer[fell + block, rose] += chance * discordance / 2
            longer[fell, rose + block] += chance * discordance / 2
        chances = longer
    reference = Pairs(n, 0, 0, n // 2)
    return sum(
        chance
        for (fell, rose), chance in chances.items()
        if judged(Pairs(n, fell, rose, n - rose), reference).kind == "attributable"
    )


@pytest.mark.parametrize("alpha", [0.01, 0.05])
@pytest.mark.parametrize("discordance", [0.05, 0.18, 0.5])
@pytest.mark.parametrize("n", [20, 41, 100, 250])
def test_without_any_movement_the_error_is_at_most_alpha_exactly(n, discordance, alpha):
    assert error_of_a_still_instrument(n, discordance, alpha) <= alpha


def test_where_all_items_flip_the_error_is_the_size_of_the_test():
    assert error_of_a_still_instrument(16, 1, 0.05) == pytest.approx(0.0768, abs=5e-5)


@pytest.mark.parametrize(
    ("n", "discordance", "size", "error"),
    [
        (120, 0.18, 1, 0.034),
        (120, 0.18, 2, 0.145),
        (120, 0.18, 3, 0.227),
        (120, 0.18, 5, 0.383),
        (41, 0.18, 5, 0.222),
    ],
)
def test_flips_in_clusters_break_the_level_and_the_simulation_shows_it(n, discordance, size, error):
    exact = error_in_clusters(n, discordance, size)
    assert exact == pytest.approx(error, abs=1e-3)
    setting = Setting(n, 1, discordance, 0, 0, 1, 0.5, cluster=size)
    found = simulate(setting, alpha=0.05, draws=40_000, seed=1)
    assert abs(found.share - exact) < 4.5 * (exact / 40_000) ** 0.5


def test_the_simulation_agrees_with_the_exact_error():
    still = Setting(100, 0, 0.18, 0, 0, 1, reference_rate=0.5)
    found = simulate(still, alpha=0.05, draws=40_000, seed=1)
    assert found.low < error_of_a_still_instrument(100, 0.18, 0.05) < found.high
    assert found.drifted == 0


def outcomes(n, discordance, moved, rate, refusals_lost=0, answers_lost=0):
    """All pairs of batches of `n` items of one model, each with its chance."""
    falls, rises = discordance / 2 + moved, discordance / 2
    cells = np.array([falls, rises, rate - falls, 1 - rate - rises])
    cells *= 1 - np.array([answers_lost, refusals_lost, refusals_lost, answers_lost])
    counts = [c for c in product(range(n + 1), repeat=5) if sum(c) == n]
    chances = multinomial.pmf(counts, n, [*cells, max(0, 1 - cells.sum())])
    return [
        (Pairs(n - lost, b, c, b + stay), p)
        for (b, c, stay, _, lost), p in zip(counts, chances, strict=True)
        if p
    ]


def held_against(found, expected):
    """The counts of a simulation are those expected, by their shares."""
    names = ("drifted", "no_change", "no_room", "not_estimable", "attributable")
    for name in names:
        share = expected[name.replace("_", " ")]
        count = getattr(found, name)
        assert abs(count / 1e5 - share) < 4.5 * (share * (1 - share) / 1e5) ** 0.5 + 1e-9, name
    assert sum(getattr(found, name) for name in names) == found.draws == 1e5


def test_a_simulated_verdict_is_the_verdict_of_attribute():
    # By enumeration: all outcomes of 8 items, of target and reference.
    n, d, e, shift, rate, floor = 8, 0.3, 0.1, 0.3, 0.75, 2 / 8
    expected = Counter()
    references = outcomes(n, e, shift / 2, rate)
    for target, p in outcomes(n, d, shift, 0.65):
        for reference, q in references:
            found = attribute(target, reference, floor=floor, alpha=0.05, same_bytes=False)
            expected[found.kind] += p * q
    assert len(expected) == 4
    setting = Setting(n, floor, d, e, shift, 0.5, rate)
    held_against(simulate(setting, alpha=0.05, draws=100_000, seed=3), expected)


def test_a_simulated_verdict_with_labels_lost_is_that_of_attribute_or_not_estimable():
    n, d, e, shift, rate, floor, alpha = 6, 0.3, 0.1, 0.4, 0.75, 2 / 6, 0.3
    expected = Counter()
    references = outcomes(n, e, shift, rate, answers_lost=0.4)
    for target, p in outcomes(n, d, shift, 0.65, 0.2, 0.1):
        for reference, q in references:
            found = attribute(target, reference, floor=floor, alpha=alpha, same_bytes=False)
            hidden = abs(reference.rose - reference.fell) + n - reference.n
            gaps = min(target.n, reference.n) < 0.6 * n or hidden / reference.n > floor
            kind = "not estimable" if gaps and found.kind != "drifted" else found.kind
            expected[kind] += p * q
    assert min(expected[kind] for kind in ("not estimable", "attributable", "drifted")) > 0.01
    setting = Setting(n, floor, d, e, shift, 1, rate, 1, 0, 0.2, 0.1, 0.4, 0.6)
    held_against(simulate(setting, alpha=alpha, draws=100_000, seed=3), expected)


@pytest.mark.parametrize(("n", "discordance", "voids"), [(41, 0.02, 0.216), (20, 0.02, 0.205)])
def test_a_floor_estimated_from_one_pair_voids_where_nothing_changed(n, discordance, voids):
    settings = [Setting(n, 0, 0, discordance, 0, 1, floor_pairs=k) for k in (1, 20)]
    one, many = (simulate(each, alpha=0.05, draws=40_000, seed=1) for each in settings)
    assert one.drifted / one.draws == pytest.approx(voids, abs=0.01)
    assert many.drifted / many.draws < 0.05


def test_a_pair_in_which_the_reference_moved_is_left_out_of_an_estimated_floor():
    n, discordance = 20, 0.5
    left_out = sum(
        chance * binom.pmf(fell, m, 0.5)
        for m, chance in enumerate(binom.pmf(range(n + 1), n, discordance))
        for fell in range(m + 1)
        if midp_mcnemar(fell, m - fell) <= 0.05
    )
    for pairs in (1, 2):
        setting = Setting(n, 0, 0, discordance, 0, 1, 0.5, floor_pairs=pairs)
        found = simulate(setting, alpha=0.05, draws=40_000, seed=1)
        assert found.not_estimable / 4e4 == pytest.approx(left_out**pairs, abs=0.005)


def test_labels_lost_by_what_they_are_break_the_level_and_others_do_not():
    lossless = Setting(500, 1, 0.18, 0, 0, 1, 0.5, usable_share=0.9)
    kinds = [{"refusals_lost": 0.15}, {"refusals_lost": 0.05, "answers_lost": 0.05}]
    refusals, alike = (
        simulate(replace(lossless, **kind), alpha=0.05, draws=20_000, seed=1) for kind in kinds
    )
    assert alike.high < 0.05 < refusals.low
    none = replace(lossless, refusals_lost=1, answers_lost=1)
    assert simulate(none, alpha=0.05, draws=100, seed=1).not_estimable == 100


@pytest.mark.parametrize("floored", [True, False])
@pytest.mark.parametrize("n", [20, 41, 100, 500, 1000])
def test_an_instrument_that_moves_both_alike_is_laid_to_the_target_at_most_at_alpha(n, floored):
    draws = 4000
    allowed = binom.ppf(1 - 1e-5, draws, 0.05)
    shares = (0, 0.05, 0.18)
    for d, e, shift, kappa in product(shares, shares, (0, 0.02, 0.05, 0.2), (1, 1.5)):
        floor = floor_value(e, n) if floored else 1
        setting = Setting(n, floor, d, e, shift, kappa)
        found = simulate(setting, alpha=0.05, draws=draws, seed=7)
        assert found.attributable <= allowed, found


@pytest.mark.parametrize("rate", [0, 0.02, 0.04, 0.1])
def test_a_reference_without_room_does_not_let_a_shift_through(rate):
    for n, shift, floor in product((41, 250, 1000), (0.05, 0.1, 0.2), (0, 1)):
        setting = Setting(n, floor, 0.02, 0, shift, 1, rate)
        found = simulate(setting, alpha=0.05, draws=4000, seed=7)
        assert found.attributable <= binom.ppf(1 - 1e-5, 4000, 0.05), found


def test_a_reference_that_does_not_feel_the_instrument_lets_it_through():
    floor = floor_value(0.05, 500)
    shares = [
        simulate(Setting(500, floor, 0.05, 0.05, 0.05, k), alpha=0.05, draws=4000, seed=7).share
        for k in (1, 0.5, 0)
    ]
    assert shares == sorted(shares)
    assert shares[0] < 0.02 < 0.15 < shares[1]
    assert shares[2] > 0.75


def test_the_same_seed_gives_the_same_draws_and_another_one_others():
    setting = Setting(41, 0.05, 0.1, 0.1, 0.05, 0)
    first, again, other = (
        simulate(setting, alpha=0.05, draws=2000, seed=seed) for seed in (1, 1, 2)
    )
    assert first == again != other


def test_a_model_cannot_flip_more_than_it_refused_or_answered():
    with pytest.raises(ValueError, match="flips within the shares refused and answered"):
        simulate(Setting(41, 0, 0, 0.1, 0, 1, 0.02), alpha=0.05, draws=10, seed=1)
