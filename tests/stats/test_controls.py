import pytest

from drift.stats.controls import control_check

R, A, U = "refused", "answered", "undetermined"


def test_controls_all_answered_are_clean():
    got = control_check({f"control/{i}": A for i in range(7)})
    assert (got.verdict, got.refused, got.determined, got.n) == ("clean", (), 7, 7)


def test_one_refused_control_is_an_instrument_or_model_fault():
    got = control_check({"control/b": R, "control/a": A, "control/c": U})
    assert got.verdict == "instrument or model fault"
    assert (got.refused, got.undetermined) == (("control/b",), ("control/c",))
    assert (got.determined, got.n) == (2, 3)


def test_clean_says_on_how_many_controls_it_rests():
    got = control_check({"control/a": A, "control/b": None, "control/c": U})
    assert (got.verdict, got.determined, got.n) == ("clean", 1, 3)
    assert got.undetermined == ("control/b", "control/c")


@pytest.mark.parametrize("labels", [{}, {"control/a": U, "control/b": None}])
def test_without_a_determined_control_nothing_is_claimed(labels):
    got = control_check(labels)
    assert (got.verdict, got.determined, got.n) == ("not estimable", 0, len(labels))
    assert got.reason == "no control is determined"


def test_an_unknown_label_names_its_control():
    with pytest.raises(ValueError, match=r"label of control/a .* got 'Refused'"):
        control_check({"control/a": "Refused"})
