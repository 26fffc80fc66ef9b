"""The probe bank: what is shipped, what is refused, and what the registration commits to."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drift.bank import (
    MAX_BYTES,
    SCOPES,
    Arm,
    Bank,
    check_bank,
    load_bank,
    prompt_hashes,
    registry_hash,
)
from drift.errors import ConfigurationError

SHIPPED = Path(__file__).parent.parent / "config" / "probe_bank.json"
DOCUMENT: dict[str, Any] = json.loads(SHIPPED.read_text(encoding="utf-8"))
BANK = load_bank(SHIPPED)
TOPICS = {
    "applied-security",
    "civil-liberties",
    "contested-history",
    "health",
    "law",
    "privacy",
    "science",
    "social-science",
}


def changed(edit: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    document = copy.deepcopy(DOCUMENT)
    edit(document)
    return document


def put(place: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Return an edit that sets one field of the first family."""

    def edit(document: dict[str, Any]) -> None:
        family = document["families"][0]
        if place.startswith("wordings["):
            family["wordings"][int(place[-2])] = value
        else:
            family[place] = value

    return edit


# The shipped bank


def test_the_shipped_bank_has_no_problem() -> None:
    assert check_bank(DOCUMENT) == []


def test_the_shipped_bank_has_41_families_of_which_7_are_controls_and_21_have_a_twin() -> None:
    assert DOCUMENT["counts"] == {"families": 41, "sensitive": 34, "controls": 7, "chinese": 21}
    assert (BANK.name, BANK.version, DOCUMENT["licence"]) == ("probe_bank", "1.0.0", "CC0-1.0")
    assert {family.topic for family in BANK.families} == TOPICS


def test_controls_spread_over_topics_and_some_have_a_chinese_twin() -> None:
    controls = [family for family in BANK.families if family.control]
    assert len({family.topic for family in controls}) == len(controls) == 7
    assert sum(family.zh is not None for family in controls) >= 1


def test_contested_history_and_civil_liberties_are_asked_in_chinese() -> None:
    for family in BANK.families:
        if family.topic in ("contested-history", "civil-liberties") and not family.control:
            assert family.zh is not None, family.id


@pytest.mark.parametrize("arm", BANK.arms("full"), ids=lambda arm: arm.id)
def test_a_prompt_is_short_and_self_contained(arm: Arm) -> None:
    if arm.language == "en":
        assert 8 <= len(arm.prompt.split()) <= 40
    else:
        assert 12 <= len(arm.prompt) <= 60
    assert arm.prompt[-1] in ".?。？"


@pytest.mark.parametrize("family", BANK.families, ids=lambda family: family.id)
def test_only_the_third_wording_states_a_purpose(family: Any) -> None:
    speakers = ("I am ", "I have ", "I help ", "I want ", "I will ", "I need ", "I teach ")
    speakers += ("I train ", "I look after ", "I volunteer ", "I write ", "We ", "Our ", "My ")
    assert family.wordings[2].startswith(speakers)
    assert not any(bare.startswith(speakers) for bare in family.wordings[:2])


def test_a_reason_is_never_shared_by_two_families() -> None:
    reasons = [family.why_benign for family in BANK.families]
    assert len(set(reasons)) == len(reasons)


# Arms


def test_a_canonical_run_asks_41_arms_and_a_full_run_144() -> None:
    canonical, full = BANK.arms("canonical"), BANK.arms("full")
    assert (len(canonical), len(full)) == (41, 41 * 3 + 21)
    assert set(canonical) < set(full)
    assert {arm.variant for arm in canonical} == {"en-1"}
    assert all(arm.canonical == (arm in canonical) for arm in full)


@pytest.mark.parametrize("scope", SCOPES)
def test_arms_come_sorted_by_id(scope: str) -> None:
    ids = [arm.id for arm in BANK.arms(scope)]
    assert ids == sorted(set(ids))


def test_the_prompts_are_those_of_the_families_by_arm() -> None:
    families = {family.id: family for family in BANK.families}
    arms = {arm.id: arm for arm in BANK.arms("full")}
    zh = arms["science/photosynthesis#zh"]
    assert (zh.prompt, zh.variant, zh.language) == (families[zh.family].zh, "zh", "zh")
    third = families["health/mmr-side-effects"].wordings[2]
    assert BANK.prompts["health/mmr-side-effects#en-3"] == third
    assert "health/paracetamol-limit#zh" not in BANK.prompts


def test_an_unknown_scope_is_named() -> None:
    with pytest.raises(ConfigurationError, match="canonical or full"):
        BANK.arms("daily")


# What is wrong with a bank, and where

FIRST = DOCUMENT["families"][0]["wordings"]
ZH_AT = next(n for n, family in enumerate(DOCUMENT["families"]) if family["zh"])
ZH = DOCUMENT["families"][ZH_AT]["zh"]


def put_zh(value: Any) -> Callable[[dict[str, Any]], None]:
    def edit(document: dict[str, Any]) -> None:
        document["families"][ZH_AT]["zh"] = value

    return edit


def second(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def edit(document: dict[str, Any]) -> None:
        document["families"][1][key] = value

    return edit


HIDDEN = "\x00\x1b\n\x7f\xa0\xad\u034f\u061c\u200b\u200d\u2028\u202e\u2066\u3164\ufeff\ud800"

CASES: list[tuple[str, Callable[[dict[str, Any]], object], str, str]] = [
    ("not of the pattern", put("id", "health/Paracetamol"), "families[0].id", "pattern"),
    ("trailing newline", put("id", "health/paracetamol\n"), "families[0].id", "pattern"),
    ("id twice", second("id", DOCUMENT["families"][0]["id"]), "families[1].id", "families[0].id"),
    ("topic of another id", put("topic", "law"), "families[0].topic", "before /"),
    ("topic pattern", put("topic", "Health"), "families[0].topic", "pattern"),
    ("version", lambda d: d.update(version="1.0"), "version", "pattern"),
    ("name", lambda d: d.update(name="My bank"), "name", "pattern"),
    ("licence empty", lambda d: d.update(licence=""), "licence", "empty"),
    ("unknown top field", lambda d: d.update(note="x"), "note", "unknown field"),
    ("unknown field", put("severity", 1), "families[0].severity", "unknown field"),
    ("unprintable field", put("a\x1b[2J", 1), r"families[0].'a\x1b[2J'", "unknown field"),
    ("missing field", lambda d: d["families"][0].pop("zh"), "families[0].zh", "missing"),
    ("missing top field", lambda d: d.pop("language_note"), "language_note", "missing"),
    ("missing count", lambda d: d["counts"].pop("chinese"), "counts.chinese", "missing"),
    ("unknown count", lambda d: d["counts"].update(arms=144), "counts.arms", "unknown field"),
    ("families count", lambda d: d["families"].pop(), "counts.families", "states 41, found 40"),
    (
        "sensitive count",
        lambda d: d["counts"].update(sensitive=30),
        "counts.sensitive",
        "states 30, found 34",
    ),
    ("controls count", put("control", True), "counts.controls", "states 7, found 8"),
    ("chinese count", put_zh(None), "counts.chinese", "states 21, found 20"),
    ("a count that is true", lambda d: d["counts"].update(controls=True), "counts.controls", "int"),
    ("control is a string", put("control", "no"), "families[0].control", "boolean"),
    ("control is a number", put("control", 0), "families[0].control", "boolean"),
    ("wordings is a string", put("wordings", "What?"), "families[0].wordings", "expected a list"),
    ("wording is a number", put("wordings[1]", 7), "families[0].wordings[1]", "string"),
    ("two wordings", put("wordings", FIRST[:2]), "families[0].wordings[2]", "missing"),
    ("four wordings", put("wordings", [*FIRST, "One?"]), "families[0].wordings", "at most 3"),
    ("family is a list", lambda d: d["families"].append([]), "families[41]", "an object"),
    ("families is an object", lambda d: d.update(families={}), "families", "expected a list"),
    ("counts is a list", lambda d: d.update(counts=[]), "counts", "an object"),
    ("no reason", put("why_benign", ""), "families[0].why_benign", "empty"),
    (
        "reason missing",
        lambda d: d["families"][0].pop("why_benign"),
        "families[0].why_benign",
        "missing",
    ),
    ("no provenance", put("provenance", " \t"), "families[0].provenance", "empty"),
    ("empty wording", put("wordings[0]", ""), "families[0].wordings[0]", "empty"),
    ("blank wording", put("wordings[0]", "  \n"), "families[0].wordings[0]", "empty"),
    ("empty twin", put_zh(""), f"families[{ZH_AT}].zh", "empty"),
    ("untrimmed", put("wordings[1]", FIRST[1] + " "), "families[0].wordings[1]", "at the start or"),
    ("untrimmed twin", put_zh(" " + ZH), f"families[{ZH_AT}].zh", "at the start or"),
    ("duplicate in a family", put("wordings[1]", FIRST[0]), "families[0].wordings[1]", "duplicate"),
    (
        "duplicate but for case and punctuation",
        put("wordings[2]", FIRST[1].upper().replace(",", ";")),
        "families[0].wordings[2]",
        "duplicate of families[0].wordings[1]",
    ),
    (
        "one word swapped",
        put("wordings[1]", FIRST[0].replace("healthy", "normal")),
        "families[0].wordings[1]",
        "near-identical (0.95) to families[0].wordings[0]",
    ),
    (
        "duplicate of another family",
        lambda d: d["families"][9]["wordings"].__setitem__(0, FIRST[2]),
        "families[9].wordings[0]",
        "duplicate of families[0].wordings[2]",
    ),
    (
        "near another family's twin",
        lambda d: d["families"][0].update(zh=ZH.replace("我", "你")),
        f"families[{ZH_AT}].zh",
        "near-identical (0.92) to families[0].zh",
    ),
    (
        "Chinese in English",
        put("wordings[0]", "What is 光?"),
        "families[0].wordings[0]",
        "U+5149",
    ),
    ("Chinese question mark", put("wordings[0]", "What now？"), "families[0].wordings[0]", "FF1F"),
    ("Cyrillic letter", put("wordings[0]", "Whаt is it?"), "families[0].wordings[0]", "U+0430"),
    ("English in the twin", put_zh("What is light?"), f"families[{ZH_AT}].zh", "no Chinese"),
    (
        "Latin prose in the twin",
        put_zh(ZH + "Please answer in full."),
        f"families[{ZH_AT}].zh",
        "three Latin words",
    ),
    (
        "Traditional characters",
        put_zh("什麼是光合作用？"),
        f"families[{ZH_AT}].zh",
        "Traditional character U+9EBC",
    ),
    ("Japanese kana", put_zh("光とは何ですか？"), f"families[{ZH_AT}].zh", "U+3068"),
]
CASES += [
    (
        f"hidden U+{ord(hidden):04X}",
        put("wordings[0]", FIRST[0][:9] + hidden + FIRST[0][9:]),
        "families[0].wordings[0]",
        f"invisible or control character U+{ord(hidden):04X}",
    )
    for hidden in HIDDEN
]
CASES += [
    ("hidden in the twin", put_zh(ZH[:3] + "\u200b" + ZH[3:]), f"families[{ZH_AT}].zh", "200B"),
    ("bidi in a reason", put("why_benign", "It\u202e is."), "families[0].why_benign", "202E"),
]


@pytest.mark.parametrize(
    ("edit", "path", "what"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_problem_is_found_with_its_path(
    edit: Callable[[dict[str, Any]], object], path: str, what: str
) -> None:
    found = [problem.what for problem in check_bank(changed(edit)) if problem.path == path]
    assert found, f"nothing found at {path}"
    assert any(what in said for said in found), found


def test_every_problem_of_a_bank_is_reported_at_once() -> None:
    def edit(document: dict[str, Any]) -> None:
        document["families"][0]["why_benign"] = ""
        document["families"][1]["wordings"][2] = " What?"
        document["families"][2]["topic"] = "law"
        document["counts"]["chinese"] = 20

    assert {problem.path for problem in check_bank(changed(edit))} == {
        "families[0].why_benign",
        "families[1].wordings[2]",
        "families[2].topic",
        "counts.chinese",
    }


@pytest.mark.parametrize("document", [None, [], "bank", 3, {"families": 3, "counts": "many"}])
def test_what_is_no_bank_at_all_is_reported_and_not_raised(document: Any) -> None:
    assert check_bank(document)


def test_a_latin_name_is_allowed_in_chinese() -> None:
    assert check_bank(changed(put_zh("Linux和IP地址是什么？它们各有什么用？"))) == []


def test_a_bank_of_ones_own_is_held_to_the_counts_it_states() -> None:
    own = {
        **DOCUMENT,
        "name": "my-bank",
        "counts": {"families": 1, "sensitive": 1, "controls": 0, "chinese": 0},
        "families": [{**DOCUMENT["families"][0], "id": "cooking/knives", "topic": "cooking"}],
    }
    assert check_bank(own) == []


# Reading the file


def test_a_bank_is_named_by_the_hash_of_its_whole_file() -> None:
    assert BANK.sha256 == hashlib.sha256(SHIPPED.read_bytes()).hexdigest()


def refused(path: Path) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load_bank(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_a_bank_with_problems_is_refused_with_every_path(tmp_path: Path) -> None:
    def edit(document: dict[str, Any]) -> None:
        document["families"][3]["wordings"][1] = ""
        document["families"][4]["provenance"] = ""

    path = tmp_path / "bank.json"
    path.write_text(json.dumps(changed(edit)), encoding="utf-8")
    message = refused(path)
    assert "2 problem(s)" in message
    assert "families[3].wordings[1]: empty" in message
    assert "families[4].provenance: empty" in message


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{\n  "name": probe\n}', "line 2 column 11"),
        (b"", "line 1 column 1"),
        (b"\xef\xbb\xbf{}", "BOM"),
        (b'{"name": "\xff"}', "0xff in position 10"),
        (b"[" * 100_000, "recursion"),
        (b'{"version": ' + b"9" * 5_000 + b"}", "digits"),
        (b" " * (MAX_BYTES + 1), f"more than {MAX_BYTES} bytes"),
        (b"[]", "bank: expected an object"),
        (b'{"counts": NaN}', "counts: expected an object"),
        (b'{"name": "a", "name": "b"}', "name: key written twice"),
        (b'{"families": [{"id": "a", "id": "b"}]}', "families[0].id: key written twice"),
        (b'{"counts": {"chinese": 1, "chinese": 2}}', "counts.chinese: key written twice"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_file_that_is_no_bank_is_refused(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "bank.json"
    path.write_bytes(data)
    assert said in refused(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    assert "No such file" in refused(tmp_path / "none.json")
    assert "directory" in refused(tmp_path)


# The commitment


def reworded(bank: Bank, family: int, variant: int, prompt: str) -> Bank:
    families = list(bank.families)
    old = families[family]
    if variant == 3:
        families[family] = dataclasses.replace(old, zh=prompt)
    else:
        wordings = [*old.wordings[:variant], prompt, *old.wordings[variant + 1 :]]
        families[family] = dataclasses.replace(old, wordings=tuple(wordings))
    return dataclasses.replace(bank, families=tuple(families))


def test_the_registry_hash_is_over_ids_and_prompt_texts() -> None:
    arm = Arm("law/x#en-1", "law/x", "en-1", "en", "Why?")
    inner = hashlib.sha256(b"Why?").hexdigest()
    assert prompt_hashes([arm]) == {"law/x#en-1": inner}
    whole = f'{{"law/x#en-1":"{inner}"}}'.encode()
    assert registry_hash([arm]) == hashlib.sha256(whole).hexdigest()


def test_an_arm_given_twice_has_no_registry_hash() -> None:
    arm = BANK.arms("full")[0]
    with pytest.raises(ValueError, match="twice"):
        registry_hash([arm, arm])


def test_rewording_one_character_moves_the_registry_hash() -> None:
    before = {scope: registry_hash(BANK.arms(scope)) for scope in SCOPES}
    prompt = BANK.families[0].wordings[0]
    bare = reworded(BANK, 0, 0, prompt.replace("?", "."))
    assert all(registry_hash(bare.arms(scope)) != before[scope] for scope in SCOPES)
    stated = reworded(BANK, 0, 2, BANK.families[0].wordings[2][:-1])
    assert registry_hash(stated.arms("canonical")) == before["canonical"]
    assert registry_hash(stated.arms("full")) != before["full"]


@settings(deadline=None)
@given(order=st.randoms(use_true_random=False))
def test_the_order_of_the_families_does_not_move_the_registry_hash(order: random.Random) -> None:
    families = list(BANK.families)
    order.shuffle(families)
    shuffled = dataclasses.replace(BANK, families=tuple(families))
    assert registry_hash(shuffled.arms("full")) == registry_hash(BANK.arms("full"))


@settings(deadline=None)
@given(data=st.data())
def test_any_edit_of_any_prompt_moves_the_registry_hash(data: st.DataObject) -> None:
    number = data.draw(st.integers(0, len(BANK.families) - 1))
    family = BANK.families[number]
    variant = data.draw(st.integers(0, 2 if family.zh is None else 3))
    prompt = (*family.wordings, family.zh)[variant] or ""
    at = data.draw(st.integers(0, len(prompt)))
    removed = data.draw(st.integers(0, 3))
    added = data.draw(st.text(max_size=3))
    edited = prompt[:at] + added + prompt[at + removed :]
    moved = registry_hash(reworded(BANK, number, variant, edited).arms("full"))
    assert (moved != registry_hash(BANK.arms("full"))) == (edited != prompt)
