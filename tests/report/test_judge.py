"""The page of the judge shows its rules and anchors as they are, and counts the stored labels."""

from __future__ import annotations

import html as html_module
import json
import re
import shutil
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from drift.judging import Judge, load_judge
from drift.judging.view import View
from drift.records.store import judge_folder, read_rows
from drift.report import judge as page
from drift.report import load_record
from drift.report.tables import Record

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def phantom() -> Record:
    return load_record("phantom", root=ROOT)


@pytest.fixture(scope="module")
def judge() -> Judge:
    return load_judge(ROOT / "config/judge")


@pytest.fixture
def elsewhere(tmp_path: Path, synthetic: ModuleType) -> Record:
    """A record whose labels were given by another judge than the project's."""
    shutil.copytree(ROOT / "config", tmp_path / "config")
    synthetic.write_record(tmp_path / "data/embedded", tmp_path / "config/probe_bank.json")
    return load_record("embedded", root=tmp_path)


def visible(text: str) -> str:
    return " ".join(html_module.unescape(re.sub(r"<[^>]+>", " ", text)).split())


def stored_rules(record: Record) -> Counter[str]:
    """The rules that decided the labels of the latest run, from its file."""
    name = judge_folder(record.reading["judge"])
    return Counter(
        row["rule"] for row in read_rows(record.store.labels(name, record.reading["run"]))
    )


def test_the_judge_is_named_by_the_hashes_of_the_reading_and_is_the_present_one(
    phantom: Record, judge: Judge
) -> None:
    shown = visible(page.identity(phantom).text)
    assert f"Rules hash {judge.rules_hash}" in shown
    assert f"Fingerprint {judge.fingerprint}" in shown
    assert f"{judge.agreement[0]} of {judge.agreement[1]} anchors" in shown
    assert "Is the judge in config/judge yes" in shown


def test_labels_of_another_judge_are_counted_and_the_page_says_whose_they_are(
    elsewhere: Record,
) -> None:
    shown = visible(page.identity(elsewhere).text)
    assert "another judge than the one in config/judge" in shown
    assert "Is the judge in config/judge no" in shown
    rules = page.rules(elsewhere).text.data["judge-rules"].set_index("rule")
    for name, number in stored_rules(elsewhere).items():
        assert rules.decided_latest[name] == number
        assert rules.rule_kind[name] == "unknown"


def test_every_rule_stands_there_with_its_reason_and_marked_examples(
    phantom: Record, judge: Judge
) -> None:
    text = page.rules(phantom).text
    rows = re.findall(r"<tr><td>([a-z-]+)<br>(.*?)</tr>", text)
    shown = {name: visible(cells) for name, cells in rows}
    marks = {
        name: [html_module.unescape(m) for m in re.findall("<mark>(.*?)</mark>", cells)]
        for name, cells in rows
    }
    rules = [rule for kind in judge.rules.values() for rule in kind]
    assert set(shown) == {rule.id for rule in rules} | set(judge.structural)
    for rule in rules:
        assert rule.reason in shown[rule.id]
        assert len(marks[rule.id]) == len(rule.examples)
        for mark, example in zip(marks[rule.id], rule.examples, strict=True):
            assert mark in example
            assert rule.find(View(example))
    for name, reason in judge.structural.items():
        assert reason in shown[name]


def test_a_rule_decided_as_often_as_the_stored_labels_name_it(phantom: Record) -> None:
    rules = page.rules(phantom).text.data["judge-rules"]
    assert dict(zip(rules.rule, rules.decided_latest, strict=True)) == {
        name: stored_rules(phantom)[name] for name in rules.rule
    }
    assert rules.decided_latest.sum() == sum(stored_rules(phantom).values())


def test_each_anchor_stands_there_with_both_labels_and_what_decided(
    phantom: Record, judge: Judge
) -> None:
    frame = page.anchors(phantom).text.data["judge-anchors"]
    assert list(frame.anchor) == [anchor.id for anchor in judge.anchors]
    assert (frame.label == frame.author_label).sum() == judge.agreement[0]
    text = page.anchors(phantom).text
    assert "<mark>I am not able to answer</mark>" in text


def test_an_anchor_that_the_judge_labels_otherwise_is_named(elsewhere: Record) -> None:
    path = elsewhere.root / "config/judge/anchors.json"
    anchors = json.loads(path.read_bytes())
    anchors["anchors"][0]["label"] = "answered"
    path.write_text(json.dumps(anchors), encoding="utf-8")
    assert visible(page.anchors(elsewhere).text).count("the author says answered") == 1


def test_labels_are_counted_by_run_model_and_language(phantom: Record) -> None:
    frame = page.labels(phantom).text.data["judge-labels"]
    name = judge_folder(phantom.reading["judge"])
    rows = read_rows(phantom.store.labels(name, phantom.reading["run"]))
    chinese = sum(row["key"].endswith("#zh") for row in rows)
    assert chinese > 0
    latest = frame[frame.run == phantom.reading["run"]]
    assert latest[latest.language == "zh"].labels.sum() == chinese
    assert latest.labels.sum() == len(rows)


def test_an_undetermined_label_is_listed_with_its_reason_and_family(elsewhere: Record) -> None:
    text = page.undetermined(elsewhere).text
    found = text.data["judge-undetermined"]
    assert len(found) == 2 and set(found.rule) == {"en-undetermined-1"}
    assert "en-undetermined-1" in visible(text)
    assert 'href="transcripts.html#' in text


def test_a_record_in_which_every_label_is_determined_says_so(phantom: Record) -> None:
    assert "No response of these runs is undetermined." in page.undetermined(phantom).text
