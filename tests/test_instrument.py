"""The instrument: pins field by field, and which verdict two batches get."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import FrozenInstanceError, replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drift.errors import ConfigurationError, InstrumentDriftError, IntegrityError
from drift.instrument import (
    Batch,
    Comparison,
    Field,
    Instrument,
    Rescored,
    compare,
    judgement,
)

PARTS: dict[str, Any] = {
    "target": {"parameters": {"temperature": "0"}, "max_tokens": 48, "system_prompt": None},
    "identity": {"endpoint": "embedded", "model": "m", "weights_sha256": "1d"},
    "reference": {"model": "still", "weights_sha256": "b1", "max_tokens": 48},
    "elicitor": {"kind": "none"},
    "judge": {"id": "rules", "rules": "e2", "fingerprint": "b4"},
    "corpus": {"name": "probe_bank", "version": "1.0.0", "sha256": "e7"},
    "client": {"method": "1"},
}
ITEMS = [f"item-{number:02}" for number in range(40)]
FLOOR = 0.025


def instrument(**parts: dict[str, Any]) -> Instrument:
    """The instrument with the fields of some parts changed or added."""
    return Instrument(**{name: part | parts.get(name, {}) for name, part in PARTS.items()})


def labels(refused: int) -> dict[str, str | None]:
    return {item: "refused" if at < refused else "answered" for at, item in enumerate(ITEMS)}


def batch(
    name: str, refused: int, reference: int = 20, *, model: str = "m", said: str = "x", **more: Any
) -> Batch:
    """A batch in which the first so many items are refused."""
    texts, pins = dict.fromkeys(ITEMS, said), more.pop("instrument", instrument())
    return Batch(name, model, pins, labels(refused), labels(reference), texts, **more)


def verdict(base: Batch, candidate: Batch, **more: Any) -> str:
    return judgement(base, candidate, **{"floor": FLOOR} | more).verdict


def test_pins_are_flat_sorted_exact_and_frozen() -> None:
    pins = dict(instrument(target={"parameters": {}, "top.p": "0.9"}).pins)
    assert pins["target.parameters"] == "{}" and pins["target.top%2Ep"] == '"0.9"'
    assert pins["target.system_prompt"] == "null" and pins["target.max_tokens"] == "48"
    assert list(pins) == sorted(pins)
    with pytest.raises(FrozenInstanceError):
        instrument().pins = ()  # type: ignore[misc]
    assert len({instrument(), instrument(), instrument(client={"method": "2"})}) == 2
    given = {"parameters": {"temperature": Decimal("0.7")}}
    one = instrument(target=given)
    before = one.sha256
    given["parameters"]["temperature"] = Decimal("0.9")
    assert one.sha256 == before


def test_a_difference_is_named_by_field_with_both_values() -> None:
    hotter = instrument(target={"parameters": {"temperature": "0.9", "seed": 1}})
    assert instrument().differences(hotter) == (
        Field("target.parameters.seed", "absent", "1"),
        Field("target.parameters.temperature", '"0"', '"0.9"'),
    )
    assert str(instrument().differences(hotter)[1]) == (
        'target.parameters.temperature: "0" -> "0.9"'
    )
    assert hotter.differences(hotter) == ()


@pytest.mark.parametrize(("one", "other"), [(1, "1"), (1, True), (0, False), (None, "null")])
def test_values_that_only_look_alike_differ(one: object, other: object) -> None:
    first, second = instrument(target={"x": one}), instrument(target={"x": other})
    assert [field.path for field in first.differences(second)] == ["target.x"]
    assert first.sha256 != second.sha256


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(".%a2E", max_size=3), inner)
    ),
    max_leaves=6,
)
DOCUMENT = st.dictionaries(st.text(".%a2E", max_size=3), JSON, max_size=3)


@given(DOCUMENT, DOCUMENT)
def test_two_instruments_are_one_if_no_field_differs(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    first, second = instrument(client=one), instrument(client=other)
    same = first.differences(second) == ()
    assert same == (first == second) == (first.sha256 == second.sha256)
    assert len(first.pins) == len(dict(first.pins))


def test_what_is_no_pin_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"float 0\.7"):
        instrument(elicitor={"temperature": 0.7})
    with pytest.raises(ConfigurationError, match="target has the name 1"):
        instrument(target={1: "x"})  # type: ignore[dict-item]
    for kind in ("agent", "Model", "", None):
        with pytest.raises(ConfigurationError, match="not a kind of elicitor"):
            instrument(elicitor={"kind": kind})


def test_nothing_changed() -> None:
    found = compare(batch("a", 20), batch("b", 20), floor=FLOOR)
    assert (found.verdict, found.exit_code, found.fields) == ("no change shown", 0, ())
    assert found.reference_delta == 0 and found.reason == "the target's change is within noise"


def test_a_fall_under_equal_pins_is_the_targets() -> None:
    found = compare(batch("a", 20), batch("b", 10), floor=FLOOR)
    assert (found.verdict, found.exit_code) == ("attributable to the target", 0)
    assert found.attribution is not None and found.attribution.delta == -0.25
    assert found.change is not None and found.change.newly_answered == tuple(ITEMS[10:20])


def test_a_reference_that_moved_beyond_its_floor_voids_and_hides_the_target() -> None:
    with pytest.raises(InstrumentDriftError) as raised:
        compare(batch("a", 20), batch("b", 10, reference=18), floor=FLOOR)
    error = raised.value
    assert error.verdict == (
        "void: instrument drifted (reference moved -5.0 points, floor 2.5 points)"
    )
    assert isinstance(error, IntegrityError) and error.exit_code == 4 and error.fields == ()
    assert "where: m: a -> b" in str(error) and "expected: a byte-identical" in str(error)
    assert "drift instrument calibrate" in str(error.next_step)
    found = judgement(batch("a", 20), batch("b", 10, reference=18), floor=FLOOR)
    assert found.change is None and found.attribution is None and found.reference_delta == -0.05
    assert verdict(batch("a", 20), batch("b", 10, reference=19)) == "attributable to the target"


def without(labels: Mapping[str, str | None], *places: int) -> dict[str, str | None]:
    return {item: None if at in places else labels[item] for at, item in enumerate(ITEMS)}


@pytest.mark.parametrize("lost", [None, "undetermined"])
def test_lost_labels_of_the_reference_hide_no_drift(lost: str | None) -> None:
    base, candidate = batch("a", 20), batch("b", 10)
    gone = without(labels(20), *range(10)) | dict.fromkeys(ITEMS[:10], lost)
    found = compare(base, replace(candidate, reference=gone), floor=0.0)
    assert (found.verdict, found.exit_code) == ("not estimable", 5)
    assert found.reason == (
        "reference: a determined label in both batches on 30 of 40 items, fewer than 90 %"
    )
    # Few enough to be usable, and enough to have moved further than the floor, either way round.
    for places in ((0,), (39,)):
        odd = without(labels(20), *places)
        for sides in (
            (base, replace(candidate, reference=odd)),
            (replace(base, reference=odd), candidate),
        ):
            found = compare(*sides, floor=0.0)
            assert found.exit_code == 5 and "in one of the batches alone on 1 of" in str(
                found.reason
            )
            assert compare(*sides, floor=0.026).verdict == "attributable to the target"
    # One that is missing in both has switched nowhere.
    both = [replace(one, reference=without(labels(20), 3)) for one in (base, candidate)]
    assert compare(both[0], both[1], floor=0.0).verdict == "attributable to the target"
    # A move that is shown is void, whatever is missing besides.
    fallen = replace(candidate, reference=without(labels(17), 0, 1, 2, 3, 4))
    assert verdict(base, fallen).startswith("void: instrument drifted")


def test_a_target_needs_as_many_labels() -> None:
    base, candidate = batch("a", 20), batch("b", 10)
    few = replace(candidate, target=without(labels(10), *range(5)))
    found = compare(base, few, floor=0.0)
    assert found.exit_code == 5 and str(found.reason).startswith("target: a determined label")
    assert compare(base, few, floor=0.0, usable_share=0.8).exit_code == 0
    assert compare(
        base, replace(few, target=without(labels(10), *range(4))), floor=0.0
    ).exit_code == 0  # fmt: skip


def test_same_bytes_are_those_of_every_item() -> None:
    # A reference that refuses nothing has no room; the same bytes show that it did not move.
    base, candidate = batch("a", 20, 0), batch("b", 10, 0)
    assert verdict(base, candidate) == "attributable to the target"
    for texts in ({}, {ITEMS[0]: "x"}, {"elsewhere": "x"}, dict.fromkeys(ITEMS[1:], "x")):
        sides = [replace(one, reference_texts=texts) for one in (base, candidate)]
        assert verdict(*sides) == "not estimable"
    other = replace(candidate, reference_texts=dict.fromkeys(ITEMS, "x") | {ITEMS[0]: "y"})
    assert verdict(base, other) == "not estimable"


def test_serving_facts_that_differ_are_told_and_change_nothing() -> None:
    facts = {"served_model": ["s"], "fingerprint": ["f"]}
    base, candidate = (
        replace(one, serving={"target": facts, "reference": facts})
        for one in (batch("a", 20), batch("b", 10))
    )
    assert compare(base, candidate, floor=FLOOR).cautions == ()
    other = replace(candidate, serving={"target": facts | {"fingerprint": []}, "reference": facts})
    found = compare(base, other, floor=FLOOR)
    assert (found.verdict, found.exit_code) == ("attributable to the target", 0)
    assert found.cautions == (Field("served.target.fingerprint", '["f"]', "[]"),)
    # Two models that are named apart are served apart.
    assert compare(base, replace(other, model="n"), floor=FLOOR).cautions == ()


CHANGES: list[tuple[dict[str, Any], str]] = [
    ({"target": {"max_tokens": 64}}, "target.max_tokens"),
    ({"identity": {"weights_sha256": "2e"}}, "identity.weights_sha256"),
    ({"reference": {"weights_sha256": "c2"}}, "reference.weights_sha256"),
    ({"corpus": {"version": "1.0.1"}}, "corpus.version"),
    ({"client": {"method": "2"}}, "client.method"),
    (
        {"elicitor": {"kind": "script"}, "judge": {"rules": "20"}},
        "elicitor.kind, judge.rules",
    ),
]


@pytest.mark.parametrize(("parts", "named"), CHANGES)
def test_a_changed_pin_voids_and_is_named(parts: dict[str, Any], named: str) -> None:
    candidate = batch("b", 10, instrument=instrument(**parts))
    with pytest.raises(InstrumentDriftError) as raised:
        compare(batch("a", 20), candidate, floor=FLOOR)
    assert raised.value.verdict == f"void: instrument changed ({named})"
    assert ", ".join(field.path for field in raised.value.fields) == named
    assert all(f"{field.before} -> {field.after}" in str(raised.value.got)
               for field in raised.value.fields)  # fmt: skip


def test_a_changed_pin_is_named_even_where_the_items_are_others() -> None:
    other = batch("b", 10, instrument=instrument(corpus={"version": "2"}))
    fewer = replace(other, target={"x": None}, reference={"x": None})
    assert verdict(batch("a", 20), fewer) == "void: instrument changed (corpus.version)"


def test_an_elicitor_alone_makes_a_new_suite() -> None:
    hot, hotter = (
        instrument(elicitor={"kind": "model", "temperature": heat}) for heat in ("0.7", "0.9")
    )
    sides = [batch("a", 20, instrument=hot, seeds=1), batch("b", 10, instrument=hotter, seeds=1)]
    found = judgement(sides[0], sides[1], floor=FLOOR)
    assert found.verdict == "elicitor changed: new suite version, fresh baseline"
    assert found.exit_code == 4 and found.attribution is None
    assert [field.path for field in found.fields] == ["elicitor.temperature"]


def test_two_models_named_apart_may_differ_in_identity_and_in_nothing_else() -> None:
    other = instrument(identity={"model": "n", "weights_sha256": "2e"})
    assert verdict(batch("a", 20), batch("b", 10, model="n", instrument=other)) == (
        "attributable to the target"
    )
    longer = instrument(identity={"model": "n"}, target={"max_tokens": 64})
    found = judgement(batch("a", 20), batch("b", 10, model="n", instrument=longer), floor=FLOOR)
    assert found.verdict == "void: instrument changed (target.max_tokens)"
    assert found.model == "m -> n"


STRICTER = instrument(judge={"rules": "20"})


def rescored(before: int, after: int, pins: Instrument = STRICTER, **more: Any) -> Rescored:
    one, other = (batch(name, n, instrument=pins) for name, n in (("a", before), ("b", after)))
    return lambda: (replace(one, **more), replace(other, **more), FLOOR)


def test_a_stricter_judge_on_the_same_answers_is_rescored() -> None:
    sides = batch("a", 20), batch("b", 30, instrument=STRICTER)
    asked = judgement(*sides, floor=FLOOR)
    assert (asked.verdict, asked.exit_code) == ("judge changed only: not rescored", 4)
    assert [field.path for field in asked.fields] == ["judge.rules"] and asked.next_step
    found = compare(*sides, floor=FLOOR, rescored=rescored(30, 30))
    assert found.verdict == (
        "judge changed only: rescored from stored transcripts; no change shown"
    )
    assert found.exit_code == 0 and [str(field) for field in found.fields] == [
        'judge.rules: "e2" -> "20"'
    ]


def test_across_judges_a_rise_may_hold_and_a_fall_never_does() -> None:
    sides = batch("a", 20), batch("b", 30, instrument=STRICTER)
    found = compare(*sides, floor=FLOOR, rescored=rescored(20, 30))
    assert found.verdict.endswith("stored transcripts; attributable to the target")
    with pytest.raises(InstrumentDriftError, match="void: a fall needs every pin") as raised:
        compare(*sides, floor=FLOOR, rescored=rescored(30, 20))
    assert raised.value.verdict.startswith("judge changed only: rescored from stored transcripts")
    one, other, _ = rescored(20, 30)()
    other = replace(other, reference=labels(28))
    drifted = verdict(*sides, rescored=lambda: (one, other, FLOOR))
    assert "; void: instrument drifted (reference moved +20.0 points, floor 2.5" in drifted
    # The floor is that of the labels which are compared.
    near = replace(other, reference=labels(22))
    assert verdict(*sides, floor=0.0, rescored=lambda: (one, near, 0.05)).endswith("target")
    assert "floor 2.5 points" in verdict(*sides, floor=0.05, rescored=lambda: (one, near, 0.025))
    assert verdict(*sides, rescored=lambda: (one, near, None)).endswith("not estimable")


def test_a_rise_is_attributed_only_if_it_holds_on_labels_derived_anew() -> None:
    sides = batch("a", 20), batch("b", 30)
    asked = judgement(*sides, floor=FLOOR)
    assert (asked.verdict, asked.exit_code) == ("not estimable", 5)
    assert "derived anew" in str(asked.reason)
    assert verdict(*sides, rescored=rescored(20, 30)) == "attributable to the target"
    for lost in (rescored(20, 20), rescored(30, 20)):
        found = compare(*sides, floor=FLOOR, rescored=lost)
        assert (found.verdict, found.exit_code) == ("not estimable", 5)
        assert "does not hold" in str(found.reason)


def test_what_cannot_be_estimated_says_why() -> None:
    unknown = compare(batch("a", 20), batch("b", 10), floor=None)
    assert (unknown.verdict, unknown.exit_code) == ("not estimable", 5)
    assert "noise floor" in str(unknown.reason) and "calibrate" in str(unknown.next_step)
    silent = dict.fromkeys(ITEMS)
    empty = compare(batch("a", 20), replace(batch("b", 10), target=silent), floor=FLOOR)
    assert empty.exit_code == 5 and "target: a determined label in both" in str(empty.reason)
    few: list[Batch] = [
        replace(one, target={"x": one.target["item-05"]}, reference={"x": "refused"})
        for one in (batch("a", 20), batch("b", 0))
    ]
    assert "too few pairs" in str(compare(few[0], few[1], floor=FLOOR).reason)
    # A reference that refuses nothing could not have fallen along.
    roomless = compare(batch("a", 20, 0, said="x"), batch("b", 10, 0, said="y"), floor=FLOOR)
    assert roomless.exit_code == 5 and "could not have moved" in str(roomless.reason)
    assert verdict(batch("a", 20, 0), batch("b", 10, 0)) == "attributable to the target"


def pins(**parts: Any) -> dict[str, Any]:
    return {"instrument": Instrument(**PARTS | parts)}


ASKED: dict[str, Any] = pins(elicitor={"kind": "model"})
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"reference": {}}, "without a reference"),
    ({"target": labels(3) | {"item-00": "maybe"}}, "not a label"),
    (ASKED, "seeds"),
    (ASKED | {"seeds": ()}, "seeds"),
    (ASKED | {"seeds": {}}, "seeds"),
    (pins(client={}), "nothing is pinned"),
    (pins(client=None, corpus={}), "nothing is pinned"),
    (pins(reference={"model": "far"}), "weights of the reference are unknown"),
    (pins(reference={"model": "far", "weights_sha256": None}), "weights of the reference"),
]


def test_a_seed_may_be_zero() -> None:
    assert replace(batch("a", 20), **ASKED, seeds=0).seeds == 0


@pytest.mark.parametrize(("fields", "words"), WRONG)
def test_a_wrong_batch_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as raised:
        replace(batch("a", 20), **fields)
    assert raised.value.exit_code == 2 and "a" in str(raised.value.where)


def test_batches_that_are_not_paired_are_refused() -> None:
    fewer = {item: label for item, label in labels(10).items() if item != "item-07"}
    with pytest.raises(ConfigurationError, match="not paired") as raised:
        judgement(batch("a", 20), replace(batch("b", 10), target=fewer), floor=FLOOR)
    assert "item-07" in str(raised.value.got)
    with pytest.raises(ConfigurationError, match="not paired"):
        judgement(replace(batch("a", 20), reference=fewer), batch("b", 10), floor=FLOOR)
    model = instrument(elicitor={"kind": "model"})
    sides = [batch(name, 20, seeds=seed) for name, seed in (("a", 1), ("b", 2))]
    sides = [replace(side, instrument=model) for side in sides]
    with pytest.raises(ConfigurationError, match="seeds are not paired"):
        judgement(sides[0], sides[1], floor=FLOOR)


NO_FLOORS = (-0.1, 1.5, float("nan"), float("inf"), "0.02", True)
NO_LEVELS = (0, 1, 1e-17, 1e-300, float("nan"), "0.05")


@pytest.mark.parametrize(
    "levels",
    [
        *({"floor": value} for value in NO_FLOORS),
        *({"alpha": value} for value in NO_LEVELS),
        *({"usable_share": value} for value in (-0.1, 2, "0.9")),
    ],
)
def test_levels_outside_their_range_are_refused(levels: dict[str, Any]) -> None:
    for candidate in (batch("b", 10), batch("b", 10, instrument=instrument(client={"x": "y"}))):
        with pytest.raises(ConfigurationError, match="not a"):
            judgement(batch("a", 20), candidate, **{"floor": FLOOR} | levels)
    if "floor" in levels:
        again = (batch("a", 20), batch("b", 30), levels["floor"])
        with pytest.raises(ConfigurationError, match="not a noise floor"):
            judgement(batch("a", 20), batch("b", 30), floor=FLOOR, rescored=lambda: again)


SLIPS: list[dict[str, Any]] = [
    {"name": "c"},
    {"model": "n"},
    {"seeds": 1},
    {"reference_texts": dict.fromkeys(ITEMS, "y")},
    {"serving": {"target": {"provider": ["x"]}}},
    {"target": {item: "refused" for item in ITEMS[:39]}},
    {"target": labels(20) | {"more": None}, "reference": labels(20) | {"more": None}},
    {"instrument": instrument(judge={"rules": "20"}, target={"max_tokens": 64})},
]


@pytest.mark.parametrize("slip", SLIPS)
def test_rescored_batches_are_the_two_but_for_their_labels(slip: dict[str, Any]) -> None:
    for sides in (
        (batch("a", 20), batch("b", 30)),
        (batch("a", 20), batch("b", 30, instrument=STRICTER)),
    ):
        with pytest.raises(ConfigurationError, match="under one judge"):
            judgement(*sides, floor=FLOOR, rescored=rescored(20, 30, **slip))


def test_rescored_batches_have_one_judge() -> None:
    one, other, floor = rescored(20, 30)()
    apart = replace(other, instrument=instrument())
    with pytest.raises(ConfigurationError, match="under one judge"):
        verdict(batch("a", 20), batch("b", 30), rescored=lambda: (one, apart, floor))


def test_labels_are_derived_anew_only_where_they_are_needed() -> None:
    def never() -> tuple[Batch, Batch, float | None]:
        raise AssertionError("labelled anew for nothing")

    longer = instrument(judge={"rules": "20"}, target={"max_tokens": 64})
    for candidate in (batch("b", 20), batch("b", 10), batch("b", 30, instrument=longer)):
        judgement(batch("a", 20), candidate, floor=FLOOR, rescored=never)
    with pytest.raises(AssertionError):
        judgement(batch("a", 20), batch("b", 30), floor=FLOOR, rescored=never)


def test_pairing_is_checked_before_anything_is_labelled_anew() -> None:
    model = instrument(elicitor={"kind": "model"})
    stricter = instrument(elicitor={"kind": "model"}, judge={"rules": "20"})
    base = batch("a", 20, instrument=model, seeds=1)
    candidate = batch("b", 30, instrument=stricter, seeds=2)
    again = (replace(base, instrument=stricter), replace(candidate, seeds=1), FLOOR)
    with pytest.raises(ConfigurationError, match="seeds are not paired"):
        judgement(base, candidate, floor=FLOOR, rescored=lambda: again)


def test_a_comparison_is_frozen() -> None:
    found: Comparison = judgement(batch("a", 20), batch("b", 20), floor=FLOOR)
    with pytest.raises(FrozenInstanceError):
        found.verdict = "attributable to the target"  # type: ignore[misc]
