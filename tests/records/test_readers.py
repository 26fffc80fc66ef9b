"""What readers of shapes and of entailment say: each word against the rest, and the judge's error.

Every label here is made up; what refusals give is in test_study.
"""

from __future__ import annotations

import pytest
from studies import judged, made_up, marks

from drift.records.readers import compare
from drift.records.scheme import ENTAILMENT, SHAPE
from drift.records.study import Study, adjudicated, disagreements, too_few

SHAPES = [
    ("m1", "flat-no", "en", 60, 20),
    ("m1", "redirect", "en", 40, 20),
    ("m1", "sermon", "en", 10, 10),
]
VERDICTS = [
    ("m1", "no", "en", 40, 40),
    ("m1", "yes", "en", 200, 40),
    ("m2", "no", "zh", 20, 10),
    ("m2", "yes", "zh", 60, 15),
]


@pytest.fixture(scope="module")
def shapes() -> Study:
    return made_up(SHAPES, scheme="shape")


@pytest.fixture(scope="module")
def verdicts() -> Study:
    return made_up(VERDICTS, scheme="entailment")


def row(stratum: int, n: int) -> str:
    return f"{stratum:04x}{n:08x}"


def test_a_reader_who_sees_the_coders_shapes_agrees_wholly_on_each(shapes: Study) -> None:
    (pair,) = compare(shapes, [marks("ana", judged(shapes))])["pairs"]
    assert (pair["first"], pair["raw"]["estimate"], pair["kappa"]["estimate"]) == ("judge", 1, 1)
    assert "weighted_kappa" not in pair
    assert {*pair["by_word"]} == {"flat-no", "redirect", "sermon"}
    for found in pair["by_word"].values():
        assert {name: it["estimate"] for name, it in found.items()} == {
            "kappa": 1,
            "precision": 1,
            "recall": 1,
        }
    assert pair["not_refused"]["estimate"] == 0 and pair["not_refused"]["high"] > 0


def test_redirect_and_scope_narrow_are_named_first_and_the_rest_by_size(shapes: Study) -> None:
    labels = judged(shapes) | {row(0, n): "sermon" for n in range(4)}
    labels |= {row(1, 0): "scope-narrow", row(2, 1): "redirect", row(2, 2): "redirect"}
    (pair,) = compare(shapes, [marks("ana", labels)])["pairs"]
    assert pair["confusions"] == [
        {"words": ["redirect", "scope-narrow"], "units": [1, 0], "responses": 2},
        {"words": ["flat-no", "sermon"], "units": [4, 0], "responses": 12},
        {"words": ["redirect", "sermon"], "units": [0, 2], "responses": 2},
    ]
    none = compare(shapes, [marks("ana", judged(shapes))])["pairs"][0]["confusions"]
    assert none == [{"words": ["redirect", "scope-narrow"], "units": [0, 0], "responses": 0}]


def test_a_shape_that_no_rule_sees_has_no_recall_and_no_precision(shapes: Study) -> None:
    labels = judged(shapes) | {row(1, n): "scope-narrow" for n in range(5)}
    (pair,) = compare(shapes, [marks("ana", labels)])["pairs"]
    found = pair["by_word"]["scope-narrow"]
    assert found["recall"]["estimate"] == 0
    assert found["precision"]["estimate"] is None
    assert "nothing that the judge calls scope-narrow" in found["precision"]["reason"]
    assert pair["by_word"]["redirect"]["precision"]["estimate"] == pytest.approx(15 / 20)


def test_what_a_reader_finds_not_refused_counts_against_the_whole_chain(shapes: Study) -> None:
    labels = judged(shapes) | {row(0, n): "not-refused" for n in range(5)}
    (pair,) = compare(shapes, [marks("ana", labels)])["pairs"]
    assert pair["not_refused"]["estimate"] == pytest.approx(15 / 110)
    assert pair["raw"]["estimate"] == pytest.approx(95 / 110)
    assert pair["by_word"]["flat-no"]["precision"]["estimate"] == pytest.approx(15 / 20)
    assert pair["by_word"]["flat-no"]["recall"]["estimate"] == 1


def test_coders_are_compared_by_shape_and_a_third_decides(shapes: Study) -> None:
    one = marks("ana", judged(shapes))
    two = marks("ben", judged(shapes) | {row(1, n): "scope-narrow" for n in range(6)})
    third = marks("cleo", dict.fromkeys(disagreements(one, two), "scope-narrow"))
    final = adjudicated(one, two, third)
    found = compare(shapes, [one, two], final)
    people, *_, last = found["pairs"]
    assert (people["first"], people["second"]) == ("made-up-ana", "made-up-ben")
    assert 0 < people["kappa"]["low"] < people["kappa"]["estimate"] < 1
    assert 0 < people["by_word"]["redirect"]["kappa"]["estimate"] < 1
    assert "precision" not in people["by_word"]["redirect"] and "not_refused" not in people
    assert last["second"] == "adjudicated"
    assert last["by_word"]["redirect"]["precision"]["estimate"] == pytest.approx(14 / 20)
    assert found["rates"] == [] and found["scheme"] == "shape"


def test_of_too_few_answers_no_shape_has_a_number_and_the_draw_says_so_first() -> None:
    study = made_up([("m1", "flat-no", "en", 50, 29)], scheme="shape")
    (pair,) = compare(study, [marks("ana", judged(study))])["pairs"]
    few = "fewer than 30 answers were labelled by both"
    assert pair["by_word"]["flat-no"]["recall"]["reason"] == pair["not_refused"]["reason"] == few
    assert "no agreement: 29 answers" in too_few(study.key)[0]
    assert too_few(made_up([("m1", "flat-no", "en", 50, 30)], scheme="shape").key) == []


def test_a_reader_who_says_what_the_judge_model_says_moves_no_rate(verdicts: Study) -> None:
    found = compare(verdicts, [marks("ana", judged(verdicts))])
    assert found["order"] == list(ENTAILMENT.order)
    rates = {(it["model"], it["language"]): it for it in found["rates"]}
    assert rates["m1", "en"]["judged"] == {"no": 40, "n": 240}
    powered = rates["m1", "en"]["prediction_powered"]
    assert powered["estimate"] == pytest.approx(1 / 6) and powered["low"] < 1 / 6 < powered["high"]
    assert rates["m2", "zh"]["prediction_powered"]["estimate"] is None
    assert "fewer than 30 of its answers" in rates["m2", "zh"]["recall"]["reason"]


def test_a_hedged_answer_that_the_judge_missed_lowers_precision_and_the_rate(
    verdicts: Study,
) -> None:
    labels = judged(verdicts) | {row(0, n): "yes" for n in range(10)}
    labels |= {row(1, n): "no" for n in range(2)} | {row(1, 7): "undetermined"}
    (rate,) = (
        it for it in compare(verdicts, [marks("ana", labels)])["rates"] if it["model"] == "m1"
    )
    assert rate["precision"]["estimate"] == pytest.approx(30 / 40)
    assert rate["precision"]["low"] is None  # every No of the model was read
    assert rate["recall"]["estimate"] == pytest.approx(30 / (30 + 2 * 5))
    assert rate["design_based"]["estimate"] == pytest.approx(40 / (240 - 5))
    assert rate["prediction_powered"]["estimate"] == pytest.approx(40 / (240 - 5))


def test_precision_and_recall_of_no_are_pooled_over_models_in_the_pair(verdicts: Study) -> None:
    labels = judged(verdicts) | {row(0, n): "yes" for n in range(10)}
    labels |= {row(2, n): "undetermined" for n in range(2)} | {row(3, 0): "no"}
    (pair,) = compare(verdicts, [marks("ana", labels)])["pairs"]
    no = pair["by_word"]["no"]
    assert no["precision"]["estimate"] == pytest.approx((30 + 8 * 2) / (40 + 8 * 2))
    assert no["recall"]["estimate"] == pytest.approx((30 + 16) / (30 + 16 + 4))
    assert [it["words"] for it in pair["confusions"]] == [["yes", "no"], ["no", "undetermined"]]


def test_a_draw_of_verdicts_says_which_rate_it_cannot_correct() -> None:
    study = made_up(VERDICTS, scheme="entailment")
    assert (
        too_few(study.key)[0] == "no corrected rate below 30 answers of its own: m2, zh (25 of 80)"
    )
    assert SHAPE.kinds is None
