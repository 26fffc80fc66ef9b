"""The gate of a judge: kappa on pairs of which half are true, its limits, and who passes it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from drift.stats.agreement import cohen_kappa
from drift.stats.gate import Gate, agreement_gate, least_right, passing_probability

HALVES = [True, False] * 30


def gate(wrong: int, missing: int = 0, truth: list[bool] = HALVES) -> Gate:
    said: list[bool | None] = list(truth)
    for place in range(wrong):
        said[place] = not truth[place]
    for place in range(wrong, wrong + missing):
        said[place] = None
    return agreement_gate(truth, said, kappa=0.7, missing=0.1)


def test_kappa_is_twice_the_share_right_less_one_whatever_the_judge_prefers() -> None:
    random = np.random.default_rng(7)
    for _ in range(50):
        said = [bool(random.random() < 0.3) for _ in HALVES]
        found = agreement_gate(HALVES, said, kappa=0.7, missing=0.1)
        right = sum(a == b for a, b in zip(HALVES, said, strict=True))
        table = [[0, 0], [0, 0]]
        for true, word in zip(HALVES, said, strict=True):
            table[true][word] += 1
        assert found.kappa == pytest.approx(2 * right / 60 - 1)
        assert found.kappa == pytest.approx(cohen_kappa(table))


def test_a_judge_passes_from_the_least_number_right_on() -> None:
    assert least_right(60, kappa=0.7) == 51 and least_right(40, kappa=0.7) == 34
    assert gate(9).passed and gate(9).why is None
    found = gate(10)
    assert not found.passed
    assert found.why == "kappa 0.67 is below 0.7"


def test_a_missing_verdict_counts_as_a_wrong_one_and_many_of_them_fail_by_themselves() -> None:
    assert gate(0, missing=6).kappa == gate(6).kappa
    assert gate(0, missing=6).passed
    found = gate(0, missing=7)
    assert not found.passed and found.missing == 7
    assert found.why == "7 of 60 verdicts are missing, more than 10%"


def test_a_judge_that_always_says_the_same_has_kappa_0() -> None:
    for word in (True, False):
        assert agreement_gate(HALVES, [word] * 60, kappa=0.7, missing=0.1).kappa == 0


def test_limits_are_those_of_clopper_and_pearson() -> None:
    found = agreement_gate(HALVES, [not HALVES[0], *HALVES[1:]], kappa=0.7, missing=0.1)
    low, high = stats.binomtest(59, 60).proportion_ci(0.95, method="exact")
    assert (found.low, found.high) == pytest.approx((2 * low - 1, 2 * high - 1))
    whole = agreement_gate(HALVES, HALVES, kappa=0.7, missing=0.1)
    assert whole.high == 1 and 0.85 < float(whole.low or 0) < 0.9


def test_limits_hold_also_where_one_half_is_misjudged_more_often() -> None:
    random = np.random.default_rng(11)
    truth, held = np.array(HALVES), 0
    for _ in range(400):
        wrong = random.random(60) < np.where(truth, 0.05, 0.35)
        said = [bool(it) for it in truth ^ wrong]
        found = agreement_gate(HALVES, said, kappa=0.7, missing=0.1)
        held += float(found.low or 0) <= 0.6 <= float(found.high or 0)
    assert held >= 0.95 * 400


def test_the_probability_of_passing_is_that_of_the_simulated_judge() -> None:
    chances = [passing_probability(60, true_kappa=it, kappa=0.7) for it in (0.5, 0.6, 0.7, 0.8)]
    assert chances == sorted(chances) and chances[0] < 0.05 and chances[3] > 0.9
    random = np.random.default_rng(3)
    right = random.binomial(60, 0.85, 20_000)
    assert chances[2] == pytest.approx(np.mean(right >= 51), abs=0.012)


def test_pairs_that_are_not_halved_are_refused_and_none_are_not_estimable() -> None:
    with pytest.raises(ValueError, match="half of 3 pairs true"):
        agreement_gate([True, False, True], [True, False, True], kappa=0.7, missing=0.1)
    found = agreement_gate([], [], kappa=0.7, missing=0.1)
    assert (found.kappa, found.passed, found.why) == (None, False, "no labelled pairs")
