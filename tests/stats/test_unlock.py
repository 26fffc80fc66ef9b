import itertools

from hypothesis import given
from hypothesis import strategies as st

from drift.stats.unlock import purpose_unlock

R, A, U = "refused", "answered", "undetermined"


def family(*words):
    return {f"en-{i}": word for i, word in enumerate(words, 1)}


def test_all_27_patterns_fall_where_the_docstring_says():
    patterns = {"/".join(p): family(*p) for p in itertools.product((R, A, U), repeat=3)}
    got = purpose_unlock(patterns)
    assert got.unlocked == (f"{R}/{R}/{A}",)
    assert got.reverse == (f"{A}/{A}/{R}",)
    assert (got.refused_bare, got.answered_bare, got.n) == (2, 2, 4)
    assert len(got.mixed) == 4
    assert len(got.incomplete) == 19
    assert got.reason is None


def test_a_purpose_that_answers_one_refused_wording_of_two_unlocks_nothing():
    got = purpose_unlock({"law/a": family(R, A, A)})
    assert (got.unlocked, got.mixed, got.n) == ((), ("law/a",), 0)


def test_a_missing_wording_is_named_and_not_guessed():
    got = purpose_unlock({"law/a": family(R, R), "law/b": family(R, None, A), "law/c": {}})
    assert got.incomplete == ("law/a", "law/b", "law/c")
    assert got.reason == "no family is determined throughout with bare wordings that agree"


def test_the_chinese_twin_takes_no_part():
    assert purpose_unlock({"law/a": {**family(R, R, A), "zh": U}}).unlocked == ("law/a",)


LABELS = st.sampled_from([R, A, U, None])


@given(st.dictionaries(st.text(max_size=3), st.builds(family, LABELS, LABELS, LABELS)))
def test_each_family_is_counted_once(labels):
    got = purpose_unlock(labels)
    assert got.n + len(got.mixed) + len(got.incomplete) == len(labels)
    assert got.n == got.refused_bare + got.answered_bare
    assert len(got.unlocked) <= got.refused_bare
    assert len(got.reverse) <= got.answered_bare
    assert (got.reason is None) == (got.n > 0)
