"""The page of a phantom's truth: every injected fact of the shipped record is recovered."""

from __future__ import annotations

import html as html_module
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT

from drift.report import load_record, truth
from drift.report.tables import Record, each


@pytest.fixture(scope="module")
def record() -> Record:
    return load_record("phantom", root=ROOT)


@pytest.fixture(scope="module")
def facts(record: Record) -> list[truth.Fact]:
    return list(truth.Truth(record).facts())


def of(facts: list[truth.Fact], model: str, words: str) -> truth.Fact:
    [found] = [fact for fact in facts if fact.model == model and words in fact.injected]
    return found


def visible(text: str) -> str:
    return " ".join(html_module.unescape(re.sub(r"<[^>]+>", " ", text)).split())


def test_every_fact_of_which_something_is_claimed_is_recovered(facts: list[truth.Fact]) -> None:
    assert [fact for fact in facts if fact.recovered is False] == []
    unclaimed = [fact for fact in facts if fact.recovered is None]
    alone = [fact for fact in unclaimed if "follow from the labels" not in fact.due]
    assert [(fact.model, fact.injected) for fact in alone] == [("episodes", "bad runs that last")]
    assert (len(unclaimed), len(facts)) == (11, 35)
    assert {fact.model for fact in facts} == {
        "still", "steady", "shift", "ramp", "level", "burst", "glitch", "bad-runs", "episodes",
        "filtered",
    }  # fmt: skip


def test_each_change_is_dated_to_the_run_of_the_script(facts: list[truth.Fact]) -> None:
    assert of(facts, "shift", "churn moves").since == 71
    shown = of(facts, "shift", "churn moves").shown
    assert shown == "watch in run 82, alarm in run 83, pairs alarm in run 82"
    assert of(facts, "level", "1 family turns").shown == (
        "1 of 1 dated in that run, in the scripted direction"
    )
    burst = of(facts, "burst", "9 families turn")
    shown = "9 of 9 dated in that run, in the scripted direction, burst noticed in run 81"
    assert (burst.since, burst.shown) == (80, shown)
    assert "coverage watch in run 8" in of(facts, "filtered", "a filter blocks 9").shown
    assert of(facts, "filtered", "the filter is lifted").since == 101
    assert "its series goes on" in of(facts, "steady", "reports itself as steady-2026-01").shown


def test_what_must_not_ring_is_shown_to_have_been_quiet(facts: list[truth.Fact]) -> None:
    for model in ("still", "steady", "glitch", "bad-runs", "burst", "level", "filtered"):
        [quiet] = [fact for fact in facts if fact.model == model and "no state" in fact.due]
        assert quiet.shown.startswith("home never left quiet")
    assert "home entered alarm" in of(facts, "episodes", "bad runs that last").shown


def test_every_stored_label_is_the_scripted_one(record: Record) -> None:
    frame = truth.Truth(record).accuracy
    assert int(frame.labels_compared.sum()) == 120 * 41 * 10 + 5 * 103 * 10
    assert (frame.labels_compared == frame.as_scripted).all()


@pytest.fixture
def copied(tmp_path: Path) -> Iterator[Record]:
    """The shipped record, to be changed."""
    shutil.copytree(ROOT / "data" / "phantom", tmp_path / "phantom")
    yield load_record("phantom", folder=tmp_path / "phantom", root=ROOT)


def test_a_record_that_is_not_as_scripted_fails_on_its_page(copied: Record) -> None:
    script = json.loads(copied.store.truth.read_bytes())
    [first, *others] = script["labels"]["still"]
    script["labels"]["still"] = ["r" + first[1:] if first[0] == "a" else "a" + first[1:], *others]
    script["rules"]["models"]["level"]["changes"] = [{"run": 90, "turns": ["law/torture-ban"]}]
    script["rules"]["models"]["glitch"]["changes"] = [{"run": 50, "churn": "0.2"}]
    copied.store.truth.write_text(json.dumps(script))
    found = list(truth.Truth(copied).facts())
    assert of(found, "still", "a label for each answer").recovered is False
    assert of(found, "level", "1 family turns").recovered is False
    assert of(found, "glitch", "churn moves").recovered is False
    said = visible(truth.facts(copied).text)
    assert re.search(r"Recovered: (\d+) of (\d+) facts", said)
    shown = truth.facts(copied).text.data["truth"]
    assert [row.model for row in each(shown) if row.recovered is False] == [
        "glitch", "level", "still",
    ]  # fmt: skip


def test_a_family_that_turned_is_recovered_only_in_its_direction_and_without_an_alarm(
    copied: Record,
) -> None:
    run = copied.runs[79]
    [turned] = [item for item in copied.dated[run] if item["model"] == "level"]
    rung = turned | {"kind": "alarm_state", "arm": "home alarm 1"}
    for changed in ([turned | {"kind": "lifted_refusal"}], [turned, rung]):
        copied.dated[run] = changed
        fact = of(list(truth.Truth(copied).facts()), "level", "1 family turns")
        assert fact.recovered is False


def test_figures_that_differ_from_those_of_the_scripted_labels_are_not_recovered(
    copied: Record,
) -> None:
    copied.models["still"]["full"]["wording"]["tripwires"] = []
    found = list(truth.Truth(copied).facts())
    assert of(found, "still", "wordings, purposes").recovered is False


def test_a_change_after_the_run_that_is_read_is_not_yet_a_fact(record: Record) -> None:
    early = load_record("phantom", root=ROOT, as_of=record.runs[49])
    found = list(truth.Truth(early).facts())
    assert max(fact.since for fact in found) == 1
    assert not [fact for fact in found if "churn moves" in fact.injected]


def test_a_record_that_went_on_after_its_script_is_held_to_what_was_written(
    record: Record,
) -> None:
    found = truth.Truth(record)
    found.document["labels"] = {key: runs[:9] for key, runs in found.document["labels"].items()}
    assert set(found.accuracy.run) == set(record.runs[:9])


def test_a_record_of_real_models_says_that_it_declares_no_truth(built: Path) -> None:
    plain = load_record("embedded", root=built)
    assert "declares no truth" in truth.facts(plain).text
