"""The corpus of the board: what is shipped, what is frozen, and what is refused with its place."""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from drift.bank import NEAR_IDENTICAL, load_bank
from drift.board import CATEGORIES, DEMAND, PUBLISHED, Probe, check_board, load_board
from drift.errors import ConfigurationError
from drift.ladders import load_ladders

CONFIG = Path(__file__).parent.parent / "config"
SHIPPED = CONFIG / "board.json"
DOCUMENT: dict[str, Any] = json.loads(SHIPPED.read_text(encoding="utf-8"))
BOARD = load_board(SHIPPED)
ASKS = {
    "stance": {"en": f"Write {DEMAND} on the first line, then a reason in one or two sentences."},
    "citation": {
        "en": "Answer in one or two sentences and give two sources, each with its full URL.",
        "zh": "请用一两句话回答，并列出两个来源，写出各自的完整网址。",
    },
    "other": {"en": "Answer in three or four sentences.", "zh": "请用三四句话回答。"},
}
CHINESE = next(n for n, it in enumerate(DOCUMENT["probes"]) if it["language"] == "zh")


def changed(*edits: tuple[str, Any]) -> dict[str, Any]:
    """Return the shipped document with values set at places such as ``probes[0].prompt``."""
    document = copy.deepcopy(DOCUMENT)
    for place, value in edits:
        *steps, last = [int(key) if key.isdigit() else key for key in re.findall(r"\w+", place)]
        inner: Any = document
        for step in steps:
            inner = inner[step]
        inner[last] = value
    return document


def written(folder: Path, document: Any) -> Path:
    path = folder / "own.json"
    path.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
    return path


# The shipped corpus


def test_the_shipped_corpus_has_no_problem_and_forty_probes_in_five_kinds() -> None:
    assert check_board(DOCUMENT) == []
    assert (BOARD.name, BOARD.version, DOCUMENT["licence"]) == ("board", "1.0.0", "CC0-1.0")
    assert Counter(probe.category for probe in BOARD.probes) == dict.fromkeys(CATEGORIES, 8)
    assert [*BOARD.by_id] == sorted(BOARD.by_id) and len(BOARD.by_id) == 40


def test_two_probes_of_each_kind_but_stance_are_chinese_and_none_is_a_twin() -> None:
    chinese = Counter(probe.category for probe in BOARD.probes if probe.language == "zh")
    assert chinese == dict.fromkeys(CATEGORIES[1:], 2)
    assert len({arm.partition("#")[0] for arm in BOARD.by_id}) == 40


def test_an_arm_is_named_after_its_kind_and_ends_in_its_language() -> None:
    for arm, probe in BOARD.by_id.items():
        assert re.fullmatch(rf"{probe.category}/[a-z-]+#{probe.language}", arm)


def test_every_reason_is_written_for_its_probe() -> None:
    assert len({probe.why for probe in BOARD.probes}) == 40


@pytest.mark.parametrize("probe", BOARD.probes, ids=lambda probe: probe.id)
def test_a_prompt_is_short_and_asks_for_a_short_answer(probe: Probe) -> None:
    assert probe.prompt.endswith(ASKS.get(probe.category, ASKS["other"])[probe.language])
    assert len(probe.prompt.split()) < 36 and len(probe.prompt) < 180


def test_pushback_and_reask_end_in_one_demand_and_are_of_about_one_length() -> None:
    last = "nswer the question again, with exactly YES or NO on the first line."
    assert BOARD.pushback.endswith(last) and BOARD.reask.endswith(last)
    words = [len(text.split()) for text in (BOARD.pushback, BOARD.reask)]
    assert abs(words[0] - words[1]) <= 0.1 * min(words)
    assert abs(len(BOARD.pushback) - len(BOARD.reask)) <= 0.1 * len(BOARD.reask)


def test_the_reask_asserts_neither_disagreement_nor_authority() -> None:
    assert re.search("not right|contradict", BOARD.pushback)
    assert re.search("taught this subject", BOARD.pushback)
    asserted = r"not|never|nobody|wrong|right|sure|contradict|disagree|taught|expert|years|doubt"
    assert not re.search(rf"(?i)\b(?:{asserted})\b", BOARD.reask)


def test_pushback_and_reask_speak_of_no_question() -> None:
    said = words(BOARD.pushback) | words(BOARD.reask)
    for probe in (probe for probe in BOARD.probes if probe.category == "stance"):
        shared = said & words(probe.prompt.partition("?")[0])
        assert not [word for word in shared if len(word) > 4], probe.id


def words(text: str) -> Counter[str]:
    return Counter(re.findall(r"[\u3400-\u9fff]|[^\W\u3400-\u9fff]+", text.casefold()))


def test_no_probe_is_a_question_of_the_bank_or_of_the_ladders() -> None:
    asked = [*load_bank(CONFIG / "probe_bank.json").prompts.values()]
    asked += [it for one in load_ladders(CONFIG / "ladders.json").ladders for it in one.turns]
    others = [words(prompt) for prompt in asked]
    for probe in BOARD.probes:
        # The demand for a short answer dilutes the likeness, so sentences are compared too.
        for text in [probe.prompt, *re.findall(r"[^.?。？]+", probe.prompt)]:
            bag = words(text)
            alike = max(2 * (bag & b).total() / (bag.total() + b.total()) for b in others)
            assert alike < NEAR_IDENTICAL - 0.3, (probe.id, text, alike)


# What is frozen


def test_the_published_versions_are_these() -> None:
    """A new version adds its line here and in the table; no line is ever changed."""
    assert PUBLISHED == {
        ("board", "1.0.0"): "fd1a283a87a316bd8f85a48381137ef4576e7253c6cdf2325cab6947b7a9b5df",
    }


def test_the_shipped_bytes_are_a_published_version() -> None:
    assert BOARD.sha256 == hashlib.sha256(SHIPPED.read_bytes()).hexdigest()
    assert PUBLISHED[BOARD.name, BOARD.version] == BOARD.sha256


@pytest.mark.parametrize(
    "data",
    [
        SHIPPED.read_bytes().replace(b"Should chess be", b"Ought chess to be"),
        SHIPPED.read_bytes().replace(b"I have taught", b"I had taught"),
        SHIPPED.read_bytes() + b"\n",
    ],
    ids=["a prompt", "the pushback", "one byte"],
)
def test_another_text_under_a_published_version_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "board.json"
    path.write_bytes(data)
    with pytest.raises(ConfigurationError, match=re.escape("board 1.0.0 is published")) as caught:
        load_board(path)
    error = caught.value
    assert error.where == str(path)
    assert error.got == f"sha256 {hashlib.sha256(data).hexdigest()}"
    assert error.expected == f"sha256 {PUBLISHED['board', '1.0.0']}"
    assert error.next_step and "new version" in error.next_step


@pytest.mark.parametrize(("place", "value"), [("version", "1.0.1"), ("name", "own")])
def test_a_changed_prompt_under_a_version_or_name_of_its_own_is_read(
    tmp_path: Path, place: str, value: str
) -> None:
    prompt = f"Is a tomato a fruit? Write {DEMAND} on the first line."
    path = written(tmp_path, changed((place, value), ("probes[0].prompt", prompt)))
    board = load_board(path)
    assert board.sha256 == hashlib.sha256(path.read_bytes()).hexdigest() != BOARD.sha256
    assert board.by_id["stance/lightning-tower#en"].prompt == prompt


# What is refused

CASES = [
    ("an empty prompt", [("probes[0].prompt", "")], "probes[0].prompt", "empty"),
    (
        "the same prompt twice",
        [("probes[9].prompt", DOCUMENT["probes"][8]["prompt"])],
        "probes[9].prompt",
        "duplicate of probes[8].prompt",
    ),
    (
        "a prompt in another script",
        [("probes[9].prompt", "Что это?")],
        "probes[9].prompt",
        "wrong script for English",
    ),
    (
        "an English prompt that is said to be Chinese",
        [("probes[9].language", "zh")],
        "probes[9].prompt",
        "wrong script for Chinese",
    ),
    (
        "Traditional characters",
        [(f"probes[{CHINESE}].prompt", "什麼是藥？")],
        f"probes[{CHINESE}].prompt",
        "Traditional character",
    ),
    (
        "a re-ask in Chinese",
        [("reask", f"请再答，{DEMAND}。")],
        "reask",
        "wrong script for English",
    ),
    ("a hidden sign", [("probes[0].why", "It\u202e is.")], "probes[0].why", "202E"),
    (
        "an id twice",
        [("probes[1].id", DOCUMENT["probes"][0]["id"])],
        "probes[1].id",
        "same as probes[0].id",
    ),
    ("an id with a language", [("probes[0].id", "stance/a#en")], "probes[0].id", "match pattern"),
    (
        "another kind than the id says",
        [("probes[9].category", "advice")],
        "probes[9].category",
        "not what stands before",
    ),
    ("an unknown kind", [("probes[9].category", "art")], "probes[9].category", "'sensitive'"),
    ("an unknown language", [("probes[9].language", "de")], "probes[9].language", "'zh'"),
    (
        "a stance probe in Chinese",
        [("probes[0].language", "zh"), ("probes[0].prompt", f"番茄是水果吗？{DEMAND}")],
        "probes[0].language",
        "asked in English",
    ),
    (
        "a stance probe without its demand",
        [("probes[0].prompt", "Is a tomato a fruit? Answer yes or no.")],
        "probes[0].prompt",
        "does not demand 'exactly YES or NO'",
    ),
    ("a pushback without it", [("pushback", "You are wrong.")], "pushback", "does not demand"),
    ("a re-ask without it", [("reask", "Once more, please.")], "reask", "does not demand"),
    (
        "one text for pushback and re-ask",
        [("reask", DOCUMENT["pushback"])],
        "reask",
        "duplicate of pushback",
    ),
    ("a wrong count", [("counts.chinese", 9)], "counts.chinese", "states 9, found 8"),
    ("a count of true", [("counts.chinese", True)], "counts.chinese", "valid integer"),
    ("a count too few", [("counts", {"probes": 40})], "counts.stance", "states 0, found 8"),
    ("a count of nothing", [("counts.art", 1)], "counts.art", "states 1, found 0"),
    ("an unknown field", [("probes[0].level", 1)], "probes[0].level", "unknown field"),
    ("a probe of text", [("probes[0]", "a")], "probes[0]", "expected an object"),
    ("probes that are no list", [("probes", {"a": 1})], "probes", "expected a list"),
]


@pytest.mark.parametrize(
    ("edits", "path", "what"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_problem_is_found_with_its_place(
    edits: list[tuple[str, Any]], path: str, what: str
) -> None:
    found = check_board(changed(*edits))
    assert any(it.path == path and what in it.what for it in found), found


def test_every_problem_is_named_in_one_error(tmp_path: Path) -> None:
    path = written(tmp_path, changed(("probes[3].why", ""), ("licence", " ")))
    with pytest.raises(ConfigurationError) as caught:
        load_board(path)
    message = str(caught.value)
    assert "2 problem(s)" in message and str(path) in message
    assert "probes[3].why: empty" in message
    assert "licence: empty" in message


def test_the_name_of_a_count_is_not_printed_as_it_came(tmp_path: Path) -> None:
    path = written(tmp_path, changed(("counts", DOCUMENT["counts"] | {"\u001b[2J": 1})))
    with pytest.raises(ConfigurationError) as caught:
        load_board(path)
    assert "\u001b" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{\n  "name": board\n}', "line 2 column 11"),
        (b"[]", "board: expected an object"),
        (b'{"name": "a", "name": "b"}', "name: key written twice"),
        (b'{"name": "\xff"}', "0xff in position 10"),
    ],
)
def test_a_file_that_is_no_corpus_is_refused(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "own.json"
    path.write_bytes(data)
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        load_board(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        load_board(tmp_path / "none.json")
