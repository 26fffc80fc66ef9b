"""The vocabularies that people read in: complete, and no two ways to type one label."""

from __future__ import annotations

import pytest

from drift.judging.shapes import SHAPES
from drift.records.scheme import ENTAILMENT, REFUSAL, SCHEMES, SHAPE, Scheme, scheme_of, taken

#: Keys that move, undo or go to the note on the page.
BOUND = {"z", "n"}


@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=list(SCHEMES))
def test_what_a_coder_may_type_means_one_label_alone(scheme: Scheme) -> None:
    texts = [text for it in scheme.words for text in (it.name, it.key, it.zh)]
    assert len(set(texts)) == len(texts) == len(scheme.typed)
    assert not BOUND & {it.key for it in scheme.words}
    assert all(text == text.casefold() for text in texts)


def test_readers_of_shapes_have_every_shape_and_a_word_for_what_is_no_refusal() -> None:
    assert SHAPE.order == (*SHAPES, "not-refused")
    assert SHAPE.judged == SHAPES and not SHAPE.ordered and SHAPE.kinds is None
    assert SHAPE.first == ("redirect", "scope-narrow")


def test_a_doubtful_reading_leaves_the_rate_of_either_vocabulary() -> None:
    for scheme in (REFUSAL, ENTAILMENT):
        assert scheme.kinds is not None and {*scheme.kinds} == {*scheme.order}
        assert scheme.kinds[scheme.aside] == (0, 0) and scheme.kinds[scheme.counted] == (1, 1)


@pytest.mark.parametrize(
    ("judge", "more", "scheme"),
    [
        ("rules", {}, REFUSAL),
        ("shapes", {}, SHAPE),
        ("entailment-qwen", {}, ENTAILMENT),
        ("ana", {}, REFUSAL),
        ("ana", {"scheme": "shape"}, SHAPE),
    ],
)
def test_a_line_of_labels_is_of_its_judges_scheme_or_of_the_one_that_people_name(
    judge: str, more: dict[str, str], scheme: Scheme
) -> None:
    assert scheme_of({"judge": {"id": judge}, **more}) is scheme


@pytest.mark.parametrize("name", ["rules", "shapes", "entailment-qwen", "entailment-"])
def test_a_judges_name_is_no_coders(name: str) -> None:
    assert taken(name)
    assert not taken(f"x-{name}")
