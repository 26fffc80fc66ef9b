"""The ladders: what is shipped, what is refused and with which place, and the keys of turns."""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drift.bank import NEAR_IDENTICAL, load_bank
from drift.errors import ConfigurationError
from drift.ladders import (
    Ladder,
    check_ladders,
    fold,
    holds,
    load_ladders,
    split_key,
    turn_key,
)

CONFIG = Path(__file__).parent.parent / "config"
SHIPPED = CONFIG / "ladders.json"
DOCUMENT: dict[str, Any] = json.loads(SHIPPED.read_text(encoding="utf-8"))
LADDERS = load_ladders(SHIPPED)
TWIN = next(n for n, item in enumerate(DOCUMENT["items"]) if item["turns"]["zh"])


def changed(edit: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    document = copy.deepcopy(DOCUMENT)
    edit(document)
    return document


def put(place: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Return an edit that sets the value at a place such as ``items[0].turns.en[1]``."""
    *steps, last = [int(key) if key.isdigit() else key for key in re.findall(r"\w+", place)]

    def edit(document: Any) -> None:
        for step in steps:
            document = document[step]
        document[last] = value

    return edit


# The shipped corpus


def test_the_shipped_corpus_has_no_problem_and_the_counts_it_states() -> None:
    assert check_ladders(DOCUMENT) == []
    assert DOCUMENT["counts"] == {"items": 20, "sensitive": 14, "controls": 6, "chinese": 4}
    assert (LADDERS.name, LADDERS.version, DOCUMENT["licence"]) == ("ladders", "1.0.0", "CC0-1.0")
    assert LADDERS.sha256 == hashlib.sha256(SHIPPED.read_bytes()).hexdigest()
    assert LADDERS.rungs == ("ask", "clarify", "context", "purpose")


def test_a_ladder_is_an_item_in_one_language_and_they_are_sorted() -> None:
    assert len(LADDERS.ladders) == 24
    assert [*LADDERS.by_id] == sorted(LADDERS.by_id)
    for arm, ladder in LADDERS.by_id.items():
        assert arm == f"{ladder.item}#{ladder.language}"
    assert sum(ladder.language == "zh" for ladder in LADDERS.ladders) == 4
    assert any(ladder.control and ladder.language == "zh" for ladder in LADDERS.ladders)


@pytest.mark.parametrize("ladder", LADDERS.ladders, ids=lambda ladder: ladder.id)
def test_no_stem_of_a_ladder_stands_in_its_own_turns(ladder: Ladder) -> None:
    asked = " ".join(ladder.turns).lower()
    for stem in (stem for group in ladder.points for stem in group):
        begins = r"(?<![a-z0-9])" if stem.isascii() else ""
        assert not re.search(begins + re.escape(stem), asked), stem


@pytest.mark.parametrize("ladder", LADDERS.ladders, ids=lambda ladder: ladder.id)
def test_a_turn_is_short_and_the_first_is_bare(ladder: Ladder) -> None:
    assert len(ladder.turns) == len(set(ladder.turns)) == 4
    for turn in ladder.turns:
        assert len(turn.split()) < 45 if ladder.language == "en" else len(turn) <= 80
        assert turn[-1] in "?？"
    assert not re.search(r"\b(?:I|my|our|we)\b|我", ladder.turns[0])
    assert ladder.turns[1].startswith(("I mean ", "我"))


def words(text: str) -> Counter[str]:
    return Counter(re.findall(r"[\u3400-\u9fff]|[^\W\u3400-\u9fff]+", text.casefold()))


def test_no_turn_is_a_question_of_the_probe_bank() -> None:
    asked = [words(prompt) for prompt in load_bank(CONFIG / "probe_bank.json").prompts.values()]
    for ladder in LADDERS.ladders:
        for turn in map(words, ladder.turns):
            alike = max(2 * (turn & b).total() / (turn.total() + b.total()) for b in asked)
            assert alike < NEAR_IDENTICAL - 0.3, (ladder.id, alike)


def test_reasons_are_written_for_each_item() -> None:
    reasons = [item["why_benign"] for item in DOCUMENT["items"]]
    assert len(set(reasons)) == 20


# What is refused

CASES = [
    ("an empty turn", put("items[0].turns.en[1]", ""), "items[0].turns.en[1]", "empty"),
    ("three turns", put("items[0].turns.en", ["a", "b", "c"]), "items[0].turns.en", "missing"),
    (
        "the same turn twice",
        put("items[0].turns.en[1]", DOCUMENT["items"][0]["turns"]["en"][0]),
        "items[0].turns.en[1]",
        "duplicate of items[0].turns.en[0]",
    ),
    (
        "a turn in another script",
        put("items[0].turns.en[2]", "Что это?"),
        "items[0].turns.en[2]",
        "wrong script for English",
    ),
    (
        "Traditional characters",
        put(f"items[{TWIN}].turns.zh[0]", "什麼是藥？"),
        f"items[{TWIN}].turns.zh[0]",
        "Traditional character",
    ),
    ("a hidden sign", put("items[0].why_benign", "It\u202e is."), "items[0].why_benign", "202E"),
    (
        "a stem of the turns",
        put("items[0].points.en[0][0]", "ibuprof"),
        "items[0].points.en[0][0]",
        "occurs in items[0].turns.en[0]",
    ),
    (
        "a Chinese stem of the turns",
        put(f"items[{TWIN}].points.zh[0][0]", "抗抑郁"),
        f"items[{TWIN}].points.zh[0][0]",
        f"occurs in items[{TWIN}].turns.zh[0]",
    ),
    (
        "a stem of two groups",
        put("items[0].points.en[1][0]", "ulcers"),
        "items[0].points.en[1][0]",
        "counts twice, with items[0].points.en[0][1]",
    ),
    (
        "a stem in upper case",
        put("items[0].points.en[0][0]", "Belly"),
        "items[0].points.en[0][0]",
        "expected 'belly'",
    ),
    ("a short stem", put("items[0].points.en[0][0]", "gi"), "items[0].points.en[0][0]", "fewer"),
    ("an empty stem", put("items[0].points.en[0][0]", ""), "items[0].points.en[0][0]", "empty"),
    ("an empty group", put("items[0].points.en[0]", []), "items[0].points.en[0]", "at least 1"),
    ("three groups", put("items[0].points.en", [["a"]] * 3), "items[0].points.en", "at least 4"),
    (
        "a twin without points",
        put(f"items[{TWIN}].points.zh", None),
        f"items[{TWIN}].points.zh",
        "null if and only if",
    ),
    ("an id twice", put("items[1].id", DOCUMENT["items"][0]["id"]), "items[1].id", "items[0].id"),
    ("another topic", put("items[0].topic", "law"), "items[0].topic", "not what stands before"),
    ("a wrong count", put("counts.chinese", 5), "counts.chinese", "states 5, found 4"),
    ("an unknown field", put("items[0].level", 1), "items[0].level", "unknown field"),
    ("a fifth rung", put("rungs", [*"abcde"]), "rungs", "at most 4"),
]


@pytest.mark.parametrize(
    ("edit", "path", "what"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_problem_is_found_with_its_place(
    edit: Callable[[dict[str, Any]], object], path: str, what: str
) -> None:
    found = [problem for problem in check_ladders(changed(edit)) if problem.path.startswith(path)]
    assert any(what in problem.what for problem in found), check_ladders(changed(edit))


def test_every_problem_is_named_in_one_error(tmp_path: Path) -> None:
    document = changed(put("items[3].turns.en[1]", ""))
    put("items[4].provenance", " ")(document)
    path = tmp_path / "own.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(ConfigurationError) as caught:
        load_ladders(path)
    message = str(caught.value)
    assert "2 problem(s)" in message and str(path) in message
    assert "items[3].turns.en[1]: empty" in message
    assert "items[4].provenance: empty" in message


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{\n  "name": ladders\n}', "line 2 column 11"),
        (b"[]", "ladders: expected an object"),
        (b'{"name": "a", "name": "b"}', "name: key written twice"),
        (b'{"name": "\xff"}', "0xff in position 10"),
    ],
)
def test_a_file_that_is_no_corpus_is_refused(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "own.json"
    path.write_bytes(data)
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        load_ladders(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        load_ladders(tmp_path / "none.json")


# Stems and keys


def test_a_stem_begins_a_word_where_it_is_latin_and_stands_anywhere_where_it_is_not() -> None:
    assert holds(fold("The IMMUNE\u00a0system"), "immun")
    assert not holds(fold("Autoimmune"), "immun")
    assert holds(fold("self-immune"), "immun")
    assert holds(fold("about ５０% of them"), "50%")
    assert not holds(fold("150% of them"), "50%")
    assert holds(fold("carbon \n dioxide"), "carbon dioxide")
    assert holds(fold("应当接种疫苗"), "疫苗")


@given(arm=st.sampled_from([ladder.id for ladder in LADDERS.ladders]), turn=st.integers(1, 9999))
def test_the_key_of_a_turn_can_be_split_again(arm: str, turn: int) -> None:
    key = turn_key(arm, turn)
    assert (key == arm) == (turn == 1)
    assert split_key(key) == (arm, turn)


@pytest.mark.parametrize("key", ["", "@2", "a/b#en@", "a/b#en@1", "a/b#en@02", "a/b#en@x@2"])
def test_what_is_no_key_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="no key of a turn"):
        split_key(key)


def test_turns_are_counted_from_one() -> None:
    with pytest.raises(ValueError, match="from 1"):
        turn_key("a/b#en", 0)
