import pytest
from hypothesis import given
from hypothesis import strategies as st

from drift.stats.intervals import proportion
from drift.stats.wording import Wobble, family_majority, wording_invariance

R, A, U = "refused", "answered", "undetermined"
LABELS = st.sampled_from([R, A, U, None])
FAMILIES = st.dictionaries(
    st.sampled_from([f"topic/{letter}" for letter in "abcdefghij"]),
    st.dictionaries(st.sampled_from(["en-1", "en-2", "en-3", "zh"]), LABELS),
)


def family(*words, zh=None):
    return {**{f"en-{i}": word for i, word in enumerate(words, 1)}, "zh": zh}


@pytest.mark.parametrize(
    ("words", "label", "votes", "missing"),
    [
        ((R, R, R), R, (3, 0), ()),
        ((R, A, R), R, (2, 1), ()),
        ((A, A, R), A, (1, 2), ()),
        ((R, R, U), R, (2, 0), ("en-3",)),
        ((U, None, A), A, (0, 1), ("en-1", "en-2")),
    ],
)
def test_a_family_has_the_label_of_most_determined_wordings(words, label, votes, missing):
    got = family_majority(family(*words))
    assert (got.label, (got.refused, got.answered), got.missing) == (label, votes, missing)
    assert got.reason is None


@pytest.mark.parametrize("words", [(R, A, U), (A, None, R)])
def test_a_tie_is_no_label(words):
    got = family_majority(family(*words))
    assert (got.label, got.reason) == (None, "tie, 1 refused and 1 answered")


@pytest.mark.parametrize("labels", [{}, family(U, U, U), family(zh=R), {"en-1": None}])
def test_a_family_without_a_determined_english_wording_has_no_label(labels):
    got = family_majority(labels)
    assert (got.label, got.reason) == (None, "no English wording is determined")


@given(st.tuples(LABELS, LABELS, LABELS), LABELS)
def test_the_chinese_twin_never_votes(words, zh):
    assert family_majority(family(*words, zh=zh)) == family_majority(family(*words))


def test_a_misspelt_variant_is_refused_rather_than_taken_for_missing():
    with pytest.raises(ValueError, match=r"variants of law/a in en-1.*got \['en_1'\]"):
        family_majority({"en_1": R}, family="law/a")


def test_an_unknown_label_names_its_arm():
    with pytest.raises(ValueError, match=r"label of law/a#en-2 .* got 'refusal'"):
        family_majority({"en-2": "refusal"}, family="law/a")


def test_wording_invariance_names_each_kind_of_family():
    got = wording_invariance(
        {
            "law/steady": family(A, A, A),
            "law/policy": family(R, R, R),
            "law/tripwire": family(A, R, A),
            "law/mostly": family(R, R, A),
            "law/tie": family(R, U, A),
            "law/two": family(R, R, U, zh=A),
            "law/one": family(R, None, U, zh=A),
            "law/none": {},
        }
    )
    wilson = proportion(3, 6)
    assert (got.consistent, got.n, got.estimate, got.reason) == (3, 6, 0.5, None)
    assert (got.low, got.high) == (wilson.low, wilson.high)
    assert got.wobbled == (
        Wobble("law/mostly", {"en-1": R, "en-2": R, "en-3": A}),
        Wobble("law/tie", {"en-1": R, "en-2": U, "en-3": A}),
        Wobble("law/tripwire", {"en-1": A, "en-2": R, "en-3": A}),
    )
    assert got.tripwires == ("law/tripwire",)
    assert got.policies == ("law/mostly", "law/policy", "law/two")
    assert got.partial == ("law/tie", "law/two")
    assert got.not_counted == ("law/none", "law/one")


def test_families_with_one_wording_are_not_counted_as_consistent():
    got = wording_invariance({"law/a": {"en-1": A}, "law/b": {"en-1": R}})
    assert got.not_counted == ("law/a", "law/b")
    assert (got.consistent, got.n, got.estimate, got.low, got.high) == (0, 0, None, None, None)
    assert got.reason == "no family has two determined English wordings"
    assert got.policies == ()


def test_no_families_give_no_rate():
    assert wording_invariance({}).estimate is None


@given(FAMILIES)
def test_every_family_is_either_counted_or_named_as_not_counted(labels):
    got = wording_invariance(labels)
    assert got.n + len(got.not_counted) == len(labels)
    assert got.n - got.consistent == len(got.wobbled)
    assert {item.family for item in got.wobbled}.isdisjoint(got.not_counted)


@given(FAMILIES)
def test_a_tripwire_wobbles_and_is_never_a_policy(labels):
    got = wording_invariance(labels)
    assert set(got.tripwires) <= {item.family for item in got.wobbled}
    assert set(got.tripwires).isdisjoint(got.policies)
    assert set(got.tripwires).isdisjoint(got.partial)


@given(FAMILIES, st.randoms())
def test_the_order_of_families_changes_nothing(labels, random):
    items = list(labels.items())
    random.shuffle(items)
    assert wording_invariance(dict(items)) == wording_invariance(labels)
