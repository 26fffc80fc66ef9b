import pytest
from hypothesis import given
from hypothesis import strategies as st

from drift.stats.language import language_asymmetry
from drift.stats.paired import midp_mcnemar

R, A, U = "refused", "answered", "undetermined"
LABELS = st.sampled_from([R, A, U, None])
PAIRS = st.dictionaries(st.text(max_size=3), st.tuples(LABELS, LABELS))


def test_both_directions_are_named_and_netted():
    pairs = {f"history/{i}": (A, R) for i in range(5)}
    pairs |= {"law/a": (R, A), "law/b": (R, A), "law/c": (R, R), "law/d": (A, A), "law/e": (A, U)}
    got = language_asymmetry(pairs)
    assert got.refused_zh_only == tuple(f"history/{i}" for i in range(5))
    assert got.refused_en_only == ("law/a", "law/b")
    assert (got.both_refused, got.both_answered) == (("law/c",), ("law/d",))
    assert got.not_compared == ("law/e",)
    assert (got.n, got.net, got.midp, got.reason) == (9, 3, 37 / 128, None)


def test_agreement_in_every_pair_is_no_evidence_of_asymmetry():
    got = language_asymmetry({"law/a": (R, R), "law/b": (A, A)})
    assert (got.n, got.net, got.midp) == (2, 0, 1.0)


@pytest.mark.parametrize("pairs", [{}, {"law/a": (R, None), "law/b": (U, A)}])
def test_no_determined_pair_gives_a_reason_and_no_number(pairs):
    got = language_asymmetry(pairs)
    assert (got.n, got.net, got.midp) == (0, None, None)
    assert got.reason == "no family is determined in both languages"
    assert got.not_compared == tuple(pairs)


@given(PAIRS)
def test_swapping_the_languages_turns_the_sign_and_keeps_midp(pairs):
    got = language_asymmetry(pairs)
    turned = language_asymmetry({family: (zh, en) for family, (en, zh) in pairs.items()})
    assert turned.refused_zh_only == got.refused_en_only
    assert turned.midp == got.midp
    if got.n:
        assert turned.net == -got.net
        assert got.midp == midp_mcnemar(len(got.refused_zh_only), len(got.refused_en_only))


@given(PAIRS)
def test_the_four_cells_hold_every_determined_pair(pairs):
    got = language_asymmetry(pairs)
    cells = (got.refused_zh_only, got.refused_en_only, got.both_refused, got.both_answered)
    assert sum(map(len, cells)) == got.n == len(pairs) - len(got.not_compared)
