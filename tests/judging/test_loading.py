"""A wrong rule or anchor is named before anything is judged."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import pytest

from drift.config import project_root
from drift.errors import ConfigurationError
from drift.judging import load_judge

FOLDER = project_root() / "config" / "judge"
RULES = (FOLDER / "rules.toml").read_text(encoding="utf-8")
QUESTIONS = RULES[RULES.index("[questions]") : RULES.index("# ----")]
RULE = (
    f"""
version = "1"
{QUESTIONS}
[[structural]]
id = "echo"
reason = "An echo."
"""
    + """
[terms]
verbs = "help|assist"
[[rule]]
id = "one"
kind = "decline"
language = "en"
needs = ["cannot"]
pattern = '''i cannot {verbs}'''
reason = "A decline."
examples = ["I cannot help."]
"""
)


def write(folder: Path, rules: str, anchors: str | None = None) -> Path:
    (folder / "rules.toml").write_text(rules, encoding="utf-8")
    if anchors is None:
        shutil.copy(FOLDER / "anchors.json", folder / "anchors.json")
    else:
        (folder / "anchors.json").write_text(anchors, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("i cannot {verbs}", "i cannot ({verbs}", "unterminated"),
        ("i cannot {verbs}", "i cannot {nouns}", "nouns"),
        ('kind = "decline"', 'kind = "denial"', "denial"),
        ('reason = "A decline."', "", "reason"),
        ("I cannot help.", "I will help.", "I will help."),
        ('needs = ["cannot"]', "needs = []", "needs"),
        ('language = "en"', 'language = "en"\nplace = "middle"', "place"),
        ('language = "en"', 'language = "xx"', "language"),
        ('language = "en"', 'language = "en"\nhead = ["i"]', "head"),
    ],
)
def test_a_wrong_rule_is_named_with_its_fault(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert old in RULE
    with pytest.raises(ConfigurationError) as caught:
        load_judge(write(tmp_path, RULE.replace(old, new)))
    assert message in str(caught.value)
    assert "rules.toml: rule 'one'" in str(caught.value)


def test_an_id_used_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="used twice"):
        load_judge(write(tmp_path, RULE + RULE[RULE.index("[[rule]]") :]))


@pytest.mark.parametrize(
    "anchors",
    [
        "",
        "[]",
        '{"anchors": []}',
        '{"anchors": [{"id": "a"}]}',
        json.dumps(
            {
                "anchors": [
                    dict.fromkeys(("id", "prompt", "text", "kind", "language"), "a")
                    | {"label": "maybe"}
                ]
            }
        ),
    ],
)
def test_malformed_anchors_are_refused(tmp_path: Path, anchors: str) -> None:
    with pytest.raises(ConfigurationError, match="anchor"):
        load_judge(write(tmp_path, RULE, anchors))


def test_an_anchor_id_used_twice_is_named(tmp_path: Path) -> None:
    anchor = dict.fromkeys(("id", "prompt", "text", "kind", "language"), "a")
    anchors = json.dumps({"anchors": [anchor | {"label": "answered"}] * 2})
    with pytest.raises(ConfigurationError, match=r"used twice\n.*anchor 'a'"):
        load_judge(write(tmp_path, RULE, anchors))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"rules\.toml"):
        load_judge(tmp_path)


def test_the_rules_hash_moves_with_one_byte_and_the_fingerprint_with_a_label(
    tmp_path: Path,
) -> None:
    shipped = load_judge(FOLDER)
    rules = (FOLDER / "rules.toml").read_text(encoding="utf-8")
    commented = load_judge(write(tmp_path, rules + "# a comment\n"))
    assert commented.rules_hash != shipped.rules_hash
    assert commented.fingerprint == shipped.fingerprint
    other = load_judge(write(tmp_path, RULE))
    assert other.fingerprint != shipped.fingerprint
    assert other.agreement[0] < other.agreement[1]


def test_the_fingerprint_does_not_depend_on_the_order_of_the_anchors(tmp_path: Path) -> None:
    document = json.loads((FOLDER / "anchors.json").read_text(encoding="utf-8"))
    document["anchors"].reverse()
    rules = (FOLDER / "rules.toml").read_text(encoding="utf-8")
    again = load_judge(write(tmp_path, rules, json.dumps(document)))
    assert again.fingerprint == load_judge(FOLDER).fingerprint


def test_every_rule_states_its_reason_and_finds_its_examples() -> None:
    judge = load_judge(FOLDER)
    rules = [rule for rules in judge.rules.values() for rule in rules]
    assert {rule.language for rule in rules} == set(judge.names) - {"it", "nl", "id", "other"}
    for rule in rules:
        assert rule.reason.endswith(".")
        assert rule.examples


def test_a_judge_survives_the_way_into_a_worker_process() -> None:
    judge = load_judge(FOLDER)
    again = pickle.loads(pickle.dumps(judge))
    text = "I'm sorry, but I can't help with that."
    assert again.label(prompt="", text=text) == judge.label(prompt="", text=text)
