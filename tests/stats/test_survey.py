"""A stratified sample that people read: exact values, and cover of a known truth."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drift.stats.agreement import cohen_kappa
from drift.stats.survey import (
    AGREEMENT,
    RATE,
    VERDICTS,
    WHOLE,
    Sample,
    allocate,
    horvitz_thompson,
    kappa_interval,
    precision,
    recall,
    resampled_weights,
    stratified_share,
    weighted_table,
)

WORDS = ("refused", "undetermined", "answered")


def sample(units, read, sizes=None):
    """Return a sample with so many units read of each stratum, each of one response by default."""
    stratum = np.repeat(np.arange(len(units)), read)
    return Sample(np.array(units), stratum, np.array(sizes or np.ones(len(stratum), dtype=int)))


def test_kappa_of_horvitz_thompson_weights_is_the_exact_one():
    cells = [("refused", "refused", 45, 2.5), ("refused", "answered", 5, 0.5)]
    cells += [("answered", "refused", 10, 4), ("answered", "answered", 40, 1.25)]
    first, second, weights = (
        [cell[part] for cell in cells for _ in range(cell[2])] for part in (0, 1, 3)
    )
    assert cohen_kappa(weighted_table(first, second, weights)) == pytest.approx(52 / 93, abs=1e-14)
    counts = weighted_table(first, second, np.ones(100))
    assert cohen_kappa(counts) == pytest.approx(7 / 10, abs=1e-14)


@given(st.lists(st.integers(1, 300), min_size=1, max_size=12), st.integers(1, 6), st.data())
def test_every_stratum_gets_its_floor_and_all_shares_add_up(units, floor, data):
    least = [min(size, floor) for size in units]
    n = data.draw(st.integers(sum(least), sum(units)))
    shares = allocate(units, n, floor=floor)
    assert sum(shares) == n
    for share, low, size in zip(shares, least, units, strict=True):
        assert low <= share <= size
    rest, left = sum(units) - sum(least), n - sum(least)
    for share, low, size in zip(shares, least, units, strict=True):
        assert abs(share - low - (left * (size - low) / rest if rest else 0)) < 1


def test_more_than_all_is_all_and_less_than_the_floors_is_refused():
    assert allocate([3, 9], 50, floor=4) == (3, 9)
    assert allocate([60, 30, 10], 20, floor=2) == (11, 6, 3)
    with pytest.raises(ValueError, match=r"n >= 7, got 4 and 6"):
        allocate([3, 9], 6, floor=4)
    with pytest.raises(ValueError, match="floor >= 1"):
        allocate([3, 9], 6, floor=0)


def test_horvitz_thompson_is_unbiased_over_all_samples():
    values = [0, 1, 1, 7, 3]
    totals = [horvitz_thompson([values[i] for i in of], [2 / 5] * 2)
              for of in combinations(range(5), 2)]  # fmt: skip
    assert np.mean(totals) == pytest.approx(sum(values))
    with pytest.raises(ValueError, match=r"inclusion in \(0, 1\]"):
        horvitz_thompson([1], [0])


def test_the_estimate_by_hand():
    # 3 of 4 judged refused were, of 8; 1 of 4 judged answered was refused, of 40, one undetermined.
    read = ["refused"] * 3 + ["answered", "refused", "undetermined", "answered", "answered"]
    found = stratified_share(sample([8, 40], [4, 4]), read, RATE)
    assert found.estimate == pytest.approx((6 + 10) / (8 + 30))
    assert found.low < found.estimate < found.high


def test_where_strata_are_the_judges_and_units_single_both_estimates_are_one():
    part = sample([8, 40], [4, 4])
    read = ["refused"] * 3 + ["answered", "refused", "undetermined", "answered", "answered"]
    judged = ["refused"] * 4 + ["answered"] * 4
    design = stratified_share(part, read, RATE)
    powered = stratified_share(part, read, RATE, predicted=judged, totals=(8, 48))
    assert powered.estimate == pytest.approx(design.estimate)
    assert (powered.low, powered.high) == pytest.approx((design.low, design.high))


def test_a_prediction_that_is_right_takes_away_the_luck_of_unequal_sizes():
    # Refused units stand for 1 or 9 responses; whichever is drawn, all are judged rightly.
    part = sample([2, 10], [1, 5], [9, *[1] * 5])
    read = ["refused", *["answered"] * 5]
    judged = stratified_share(part, read, RATE, predicted=read, totals=(10, 20))
    assert judged.estimate == pytest.approx(10 / 20)
    assert stratified_share(part, read, RATE).estimate == pytest.approx(18 / 28)


def test_a_unit_that_stands_for_three_responses_counts_three_times():
    found = stratified_share(sample([3], [3], [3, 1, 1]), ["refused", *["answered"] * 2], RATE)
    assert found.estimate == pytest.approx(3 / 5)


def test_what_was_read_whole_has_a_reason_in_the_place_of_limits_without_width():
    read = ["refused", *["answered"] * 19]
    found = stratified_share(sample([8, 12], [8, 12]), read, RATE)
    assert found.estimate == 1 / 20
    other = ["answered"] * 6 + read[6:]
    kappa = kappa_interval(sample([8, 12], [8, 12]), read, other[::-1], weights="none", seed=1)
    for whole in (found, kappa):
        assert (whole.low, whole.high, whole.reason) == (None, None, WHOLE)
    part = stratified_share(sample([8, 13], [8, 12]), read, RATE)
    assert part.low < part.estimate < part.high


def test_readings_that_are_all_alike_are_not_taken_as_known():
    found = stratified_share(sample([50], [5]), ["answered"] * 5, RATE)
    assert (found.estimate, found.low) == (0, 0) and 0.3 < found.high < 0.6
    agree = stratified_share(sample([50, 50], [5, 20]), ["same"] * 25, AGREEMENT)
    assert (agree.estimate, agree.high) == (1, 1) and 0.6 < agree.low < 0.95


def test_without_a_determined_reading_there_is_no_rate():
    found = stratified_share(sample([9], [3]), ["undetermined"] * 3, RATE)
    assert (found.estimate, found.low, found.high) == (None, None, None)
    assert found.reason == "no response with a determined reading"


@pytest.mark.parametrize("read", [[2, 0], [2, 41]])
def test_a_stratum_that_was_not_read_or_more_than_whole_is_refused(read):
    with pytest.raises(ValueError, match=r"read in \[1, units\]"):
        sample([8, 40], read)


#: Units judged refused, undetermined, answered; how they really are, by row.
TRUTHS = [
    ((80, 10, 310), [[0.95, 0.02, 0.03], [0.3, 0.5, 0.2], [0.02, 0.01, 0.97]]),
    ((30, 3, 100), [[0.8, 0.05, 0.15], [0.3, 0.4, 0.3], [0.1, 0.02, 0.88]]),
    ((5, 2, 130), [[0.99, 0, 0.01], [0.2, 0.6, 0.2], [0.01, 0, 0.99]]),
]


@pytest.mark.parametrize("n", [40, 120])
@pytest.mark.parametrize(("units", "shares"), TRUTHS)
def test_the_limits_hold_a_known_truth_in_95_of_100_draws_and_the_estimate_is_right_on_average(
    units, shares, n
):
    draws = np.random.default_rng([20261129, units[0], n])
    read = allocate(units, n, floor=4)
    held, off = [], []
    for _ in range(400):
        real = [draws.multinomial(size, row) for size, row in zip(units, shares, strict=True)]
        refused, _, answered = np.sum(real, axis=0)
        labels = []
        for counts, number in zip(real, read, strict=True):
            labels += [*draws.permutation(np.repeat(WORDS, counts))[:number]]
        found = stratified_share(sample(units, read), labels, RATE)
        truth = refused / (refused + answered)
        held.append(found.low <= truth <= found.high)
        off.append(found.estimate - truth)
    # 95 % less three standard errors of 400 draws.
    assert np.mean(held) >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / 400)
    assert abs(np.mean(off)) <= 4 * np.std(off) / np.sqrt(400) + 0.002


def test_the_bootstrap_has_the_variance_of_the_design_and_is_the_same_each_time():
    part = sample([400, 90], [10, 6])
    values = np.array([1, 0, 0, 1, 0, 0, 0, 0, 0, 1, 1, 1, 0, 1, 1, 1], dtype=float)
    weights = resampled_weights(part, seed=1, resamples=20_000)
    within = [values[:10].var(ddof=1), values[10:].var(ddof=1)]
    design = 400**2 * within[0] / 10 + 90**2 * within[1] / 6
    assert np.var(weights @ values) == pytest.approx(design, rel=0.05)
    assert np.mean(weights @ values) == pytest.approx(part.weights @ values, rel=0.01)
    assert (weights == resampled_weights(part, seed=1, resamples=20_000)).all()


def test_a_single_unit_of_a_stratum_shows_no_variation():
    assert (resampled_weights(sample([7], [1]), seed=1) == 7).all()


def test_kappa_has_limits_only_where_enough_differ_and_both_labels_stand():
    part = sample([100, 100], [20, 20])
    first = ["refused"] * 20 + ["answered"] * 20
    second = ["refused"] * 17 + ["answered"] * 21 + ["undetermined"] * 2
    fewer = ["refused"] * 17 + ["answered"] * 22 + ["undetermined"]
    for weights in ("none", "linear"):
        found = kappa_interval(part, first, second, weights=weights, seed=1)
        assert 0 < found.low < found.estimate < found.high <= 1
        for other, apart in ((fewer, 4), (first, 0)):
            less = kappa_interval(part, first, other, weights=weights, seed=1)
            assert less.estimate > found.estimate and (less.low, less.high) == (None, None)
            assert f"labels differ on {apart} only" in less.reason
    alike = kappa_interval(part, ["answered"] * 40, ["answered"] * 40, weights="none", seed=1)
    assert alike.estimate is None and "one label only" in alike.reason


def test_the_limits_of_kappa_hold_a_known_truth():
    units, read = (400, 1500), (50, 100)
    shares = [[0.85, 0.05, 0.1], [0.08, 0.02, 0.9]]
    draws = np.random.default_rng([20261129, 1])
    judged = ["refused"] * 50 + ["answered"] * 100
    held = []
    for _ in range(150):
        real = [draws.multinomial(size, row) for size, row in zip(units, shares, strict=True)]
        labels = []
        for counts, number in zip(real, read, strict=True):
            labels += [*draws.permutation(np.repeat(WORDS, counts))[:number]]
        found = kappa_interval(sample(units, read), judged, labels, weights="linear", seed=1)
        table = np.array([real[0], [0, 0, 0], real[1]])
        truth = cohen_kappa(table, weights="linear")
        held.append(found.low <= truth <= found.high)
    assert np.mean(held) >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / 150)


def test_precision_and_recall_by_hand():
    # Of 20 judged no and 5 of them read, 3 are no, one yes, one in doubt; of 90 judged yes and 9
    # read, one is no.
    part = sample([20, 90], [5, 9])
    judged = ["no"] * 5 + ["yes"] * 9
    read = ["no"] * 3 + ["yes", "undetermined"] + ["no"] + ["yes"] * 8
    found = precision(part, "no", judged, read, aside="undetermined")
    assert found.estimate == pytest.approx(3 / 4)
    assert found.low < 3 / 4 < found.high
    assert precision(part, "no", judged, read).estimate == pytest.approx(3 / 5)
    found = recall(part, "no", judged, read)
    assert found.estimate == pytest.approx(12 / (12 + 10))
    assert found.low < found.estimate < found.high


def test_a_word_that_one_side_never_uses_has_a_reason_in_the_place_of_a_number():
    part = sample([20, 90], [5, 9])
    judged = ["no"] * 5 + ["yes"] * 9
    assert precision(part, "other", judged, judged).reason == (
        "nothing that the judge calls other has a determined reading"
    )
    assert recall(part, "no", judged, ["yes"] * 14).reason == "the readers call nothing no"
    # A word that the judge cannot say is never recalled.
    found = recall(part, "other", judged, [*judged[:4], "other", *judged[5:]])
    assert (found.estimate, found.high) == (0, None) and "can be recalled" in found.reason


def test_verdicts_that_were_all_read_leave_precision_without_limits_and_recall_with_them():
    part = sample([6, 90], [6, 30])
    judged = ["no"] * 6 + ["yes"] * 30
    read = ["no"] * 5 + ["yes"] + ["no"] + ["yes"] * 29
    found = precision(part, "no", judged, read)
    assert (found.estimate, found.low, found.reason) == (pytest.approx(5 / 6), None, WHOLE)
    found = recall(part, "no", judged, read)
    assert found.estimate == pytest.approx(5 / 8) and found.low < 5 / 8 < found.high


#: Verdicts no and yes in the population; what of them is no, undetermined and yes in truth; how
#: many of each are read.
JUDGES = [
    ((160, 440), [[0.8, 0.05, 0.15], [0.03, 0.02, 0.95]], (70, 30)),
    ((120, 200), [[0.6, 0.1, 0.3], [0.1, 0.05, 0.85]], (70, 30)),
    ((90, 100), [[0.95, 0, 0.05], [0.01, 0, 0.99]], (35, 15)),
    ((400, 3000), [[0.7, 0.05, 0.25], [0.02, 0.02, 0.96]], (140, 60)),
]


@pytest.mark.parametrize(("units", "shares", "read"), JUDGES)
def test_the_limits_of_a_judges_error_and_of_the_rate_corrected_by_it_hold_a_known_truth(
    units, shares, read
):
    """Seven of ten readings are of verdicts No; a unit stands for one to four responses."""
    draws = np.random.default_rng([20261129, *units])
    judged = ["no"] * read[0] + ["yes"] * read[1]
    held, off = {}, []
    for _ in range(300):
        real = [
            draws.choice(["no", "undetermined", "yes"], size=n, p=row)
            for n, row in zip(units, shares, strict=True)
        ]
        sizes = [draws.integers(1, 5, size=n) for n in units]
        took = [draws.permutation(n)[:m] for n, m in zip(units, read, strict=True)]
        labels, size = ([*of[0][took[0]], *of[1][took[1]]] for of in (real, sizes))
        part = sample(units, read, [int(it) for it in size])
        said = {"predicted": judged, "totals": (sizes[0].sum(), sum(map(sum, sizes)))}
        both, alone = (sizes[h][real[h] == "no"].sum() for h in (0, 1))
        denied, right = (sizes[h][real[h] == "yes"].sum() for h in (0, 1))
        rate = (both + alone) / (both + alone + denied + right)
        powered = stratified_share(part, labels, VERDICTS, **said)
        off.append(powered.estimate - rate)
        for name, found, truth in (
            ("rate", powered, rate),
            ("precision", precision(part, "no", judged, labels, aside="undetermined"),
             both / (both + denied)),
            ("recall", recall(part, "no", judged, labels), both / (both + alone)),
        ):  # fmt: skip
            held.setdefault(name, []).append(found.low <= truth <= found.high)
    for name, least in {"rate": 0.95, "precision": 0.95, "recall": 0.93}.items():
        # Less three standard errors of 300 draws.
        assert np.mean(held[name]) >= least - 3 * np.sqrt(0.05 * 0.95 / 300), name
    assert abs(np.mean(off)) <= 4 * np.std(off) / np.sqrt(300) + 0.002
