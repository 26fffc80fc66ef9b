"""`drift judge` on the command line; the coded answers are made up, labels and all."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Said, Ticking
from making import ANSWER, REFUSAL, make_runs

from drift.judging import load_judge


@pytest.fixture
def drift(own: Path, command: Callable[..., Said]) -> Callable[..., Said]:
    """Call the command in a project of its own."""
    return partial(command, "judge")


@pytest.fixture
def coded(tmp_path: Path) -> Path:
    """Forty made-up answers: the judge misses four of each label; two are coded partial."""
    rows: list[dict[str, Any]] = []
    for i in range(42):
        refusal = i % 2 == 0
        row = {"prompt": f"What is {i}?", "response": REFUSAL if refusal else ANSWER}
        label = "refused" if refusal != (i < 8) else "answered"
        row |= {"label": "partial" if i >= 40 else label, "label_by": "made-up"}
        rows.append(row | {"model": "even" if refusal else "odd", "language": "en"})
    path = tmp_path / "made_up_dev.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_json_holds_the_figures_and_nothing_else_is_printed(
    drift: Callable[..., Said], coded: Path
) -> None:
    code, said, _ = drift("evaluate", str(coded), "--json")
    found = json.loads(said)
    assert code == 0 and found["rows"] == 40 and found["coverage"] == 1
    for name in ("accuracy", "precision", "recall"):
        assert found[name]["estimate"] == 0.8
        assert found[name]["low"] < 0.8 < found[name]["high"]
    assert found["kappa"]["estimate"] == pytest.approx(0.6)
    assert found["confusion"]["refused"] == {"refused": 16, "answered": 4, "undetermined": 0}
    assert found["apart"] == {"partial": {"refused": 1, "answered": 1, "undetermined": 0}}
    assert found["set"] == "made_up" and found["label_by"] == {"made-up": 40}
    assert found["rules"] == load_judge(ROOT / "config/judge").rules_hash
    assert (found["seed"], found["resamples"]) == (20261129, 2000)
    assert found["groups"]["model"]["even"]["kappa"]["reason"] == "fewer than 30 rows: 20"
    assert "optimistic" in found["note"]


def test_two_measurements_are_equal_byte_for_byte(drift: Callable[..., Said], coded: Path) -> None:
    assert drift("evaluate", str(coded), "--json") == drift("evaluate", str(coded), "--json")


def test_what_is_kept_holds_no_text_and_keeps_its_title(
    drift: Callable[..., Said], coded: Path, tmp_path: Path
) -> None:
    path = tmp_path / "config/judge/measured/made_up.json"
    assert drift("evaluate", str(coded), "--no-store")[0] == 0 and not path.exists()
    about = ("--title", "Made up for a test", "--licence", "none")
    assert drift("evaluate", str(coded), *about)[0] == 0
    assert drift("evaluate", str(coded))[0] == 0
    found = json.loads(path.read_bytes())
    assert (found["title"], found["licence"]) == ("Made up for a test", "none")
    assert "What is" not in path.read_text() and REFUSAL not in path.read_text()
    assert sum(row[-1] for row in found["prompts"]) == 40


def test_the_terminal_shows_figures_tables_and_single_disagreements(
    drift: Callable[..., Said], coded: Path
) -> None:
    code, said, _ = drift("evaluate", str(coded), "--no-store", "--show", "1")
    assert code == 0
    assert "optimistic" in said and "labels by made-up 40" in said
    assert "0.800 [" in said and "not estimable: model even: fewer than 30 rows: 20" in said
    assert "4 coded answered, judged refused by" in said
    assert "partial (apart, in no figure)" in said
    assert said.count("asked: What is") == 1 and "»" in said
    _, said, _ = drift("evaluate", str(coded), "--no-store")
    assert "What is" not in said


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("nowhere.jsonl",), "nowhere.jsonl"),
        (("{coded}", "--name", "../up"), "not a name of a set"),
        (("{coded}", "--json", "--show", "3"), "--json prints no text"),
    ],
)
def test_bad_input_ends_with_2(
    drift: Callable[..., Said], coded: Path, arguments: tuple[str, ...], what: str
) -> None:
    code, said, why = drift("evaluate", *(one.format(coded=coded) for one in arguments))
    assert code == 2 and said == "" and what in why


def test_a_bad_line_ends_with_2_and_is_named(drift: Callable[..., Said], coded: Path) -> None:
    with coded.open("a") as file:
        file.write('{"prompt": "Why?"}\n')
    code, said, why = drift("evaluate", str(coded), "--json")
    assert code == 2 and said == ""
    assert f"{coded}:43" in why and "response: Field required" in why and "expected: a JSON" in why


@pytest.mark.parametrize(("language", "ends"), [("en-US", 0), ("EN", 0), ("English", 2)])
def test_the_way_a_language_is_written_changes_no_figure_or_is_an_error(
    drift: Callable[..., Said], coded: Path, language: str, ends: int
) -> None:
    _, plain, _ = drift("evaluate", str(coded), "--json")
    coded.write_text(coded.read_text().replace('"language": "en"', f'"language": "{language}"'))
    code, said, why = drift("evaluate", str(coded), "--json")
    assert code == ends and ("is none of en" in why) is bool(ends)
    if not ends:
        assert json.loads(said)["kappa"] == json.loads(plain)["kappa"]


def test_diff_lists_moves_and_ends_with_0(drift: Callable[..., Said], tmp_path: Path) -> None:
    make_runs(tmp_path, Ticking(datetime(2026, 3, 1, tzinfo=UTC)), 1)
    present = str(tmp_path / "config/judge")
    code, said, _ = drift("diff", present, present, "--json")
    found = json.loads(said)
    assert code == 0 and found["anchors"] == []
    [record] = found["records"]
    assert (record["record"], record["moved"], record["closes"]) == ("test", 0, {})
    assert record["labels"] == 288
    code, said, _ = drift("diff", "registered", "--panel", "test")
    assert code == 0 and "anchors: not compared" in said


def test_diff_of_a_record_or_judge_that_is_not_there_ends_with_2(
    drift: Callable[..., Said], tmp_path: Path
) -> None:
    assert drift("diff", "nowhere")[0] == 2
    code, _, why = drift("diff", "registered", "--panel", "nowhere")
    assert code == 2 and "no such record" in why
