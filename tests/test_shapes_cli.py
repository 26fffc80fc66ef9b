"""`drift shapes` on the command line; answers and codings are made up."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Said, Ticking
from making import ANSWER, REFUSAL, ZH_ANSWER, make_runs

from drift.judging import load_judge, load_shape_coder

OFFER = f"{REFUSAL} I could write a short poem about the river instead."
SERMON = f"{REFUSAL} Such questions are harmful, and you should respect other people."


@pytest.fixture
def drift(own: Path, command: Callable[..., Said]) -> Callable[..., Said]:
    """Call the command in a project of its own."""
    return partial(command, "shapes")


@pytest.fixture
def answers(tmp_path: Path) -> Path:
    """Twelve made-up answers under several names: ten refusals by two models, two answers."""
    rows: list[dict[str, Any]] = []
    for n in range(10):
        row = {
            "question": f"What is {n}?",
            "text": REFUSAL if n < 4 else OFFER if n < 7 else SERMON,
        }
        row |= {"model": "old" if n % 2 else "new", "topic": "rivers" if n < 5 else "towns"}
        rows.append(row | {"coded": "flat-no" if n < 5 else "redirect" if n < 7 else "sermon"})
    rows.append({"prompt": "什么？", "answer": ZH_ANSWER, "language": "zh", "coded": "other"})
    rows.append({"prompt": "Why?", "response": ANSWER, "coded": "other"})
    return write(tmp_path / "stored.jsonl", *rows)


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def test_the_shapes_of_anyones_answers_are_counted_by_model_and_topic(
    drift: Callable[..., Said], answers: Path
) -> None:
    code, said, _ = drift(str(answers), "--json")
    found = json.loads(said)
    assert code == 0 and (found["answers"], found["refused"]) == (12, 10)
    groups = {(group["by"], group["value"]): group for group in found["groups"]}
    everything = groups["", "all"]["shapes"]
    counts = {shape: one["count"] for shape, one in everything.items() if one["count"]}
    assert counts == {"flat-no": 4, "redirect": 3, "sermon": 3}
    assert everything["flat-no"]["estimate"] == 0.4
    assert everything["flat-no"]["low"] < 0.4 < everything["flat-no"]["high"]
    assert groups["model", "old"]["refused"] == groups["topic", "rivers"]["refused"] == 5
    assert groups["topic", "rivers"]["shapes"]["redirect"]["count"] == 1
    assert groups["language", "zh"]["shapes"]["flat-no"]["reason"]
    assert not [group for group in groups if group[0] == "wording"]
    coder = load_shape_coder(ROOT / "config/shapes", load_judge(ROOT / "config/judge"))
    assert (found["rules"], found["fingerprint"]) == (coder.rules_hash, coder.fingerprint)


def test_what_is_printed_names_counts_limits_and_what_no_rule_sees(
    drift: Callable[..., Said], answers: Path
) -> None:
    code, said, _ = drift(str(answers))
    assert code == 0 and "12 answers, 10 refused" in said
    assert "0.40 [" in said and "scope-narrow declines nothing" in said
    assert "nan" not in said.lower() and "None" not in said


def test_rows_are_written_with_shape_rule_and_span(
    drift: Callable[..., Said], answers: Path, tmp_path: Path
) -> None:
    out = tmp_path / "labels" / "shapes.jsonl"
    assert drift(str(answers), "--out", str(out))[0] == 0
    rows = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    texts = [json.loads(line) for line in answers.read_text("utf-8").splitlines()]
    assert len(rows) == len(texts) == 12
    for row, stored in zip(rows[:10], texts, strict=False):
        assert row["shape"] and row["rule"] and stored["text"][slice(*row["span"])].strip()
    assert rows[-1]["shape"] is rows[-1]["span"] is None


def test_shapes_are_written_over_nothing_that_is_there(
    drift: Callable[..., Said], answers: Path, tmp_path: Path
) -> None:
    before, link, there = answers.read_bytes(), tmp_path / "link", tmp_path / "there"
    there.write_text("kept")
    link.symlink_to(tmp_path / "nothing")
    for out in (answers, there, link, Path(os.devnull), tmp_path):
        code, _, errors = drift(str(answers), "--out", str(out))
        assert code == 2 and "there already" in errors
    assert answers.read_bytes() == before and there.read_text() == "kept"
    assert link.is_symlink() and not link.exists()


def test_a_coding_in_our_words_gives_precision_and_recall(
    drift: Callable[..., Said], answers: Path, tmp_path: Path
) -> None:
    code, said, _ = drift(str(answers), "--against", "coded", "--json")
    found = json.loads(said)
    assert code == 0
    assert found["words"]["flat-no"]["recall"]["estimate"] == 0.8
    assert found["shapes"]["redirect"]["precision"]["estimate"] == pytest.approx(2 / 3)
    assert found["confusion"]["other"]["no refusal"] == 2 and "other" not in found["words"]
    assert not (tmp_path / "config/shapes/measured/stored.json").exists()
    code, said, _ = drift(str(answers), "--against", "coded", "--keep", "--name", "made-up")
    assert code == 0 and "what this does not show" in said and "0.80 [" in said
    kept = (tmp_path / "config/shapes/measured/made-up.json").read_text()
    assert "river" not in kept and json.loads(kept)["set"] == "made-up"


def test_a_reader_of_our_manual_who_finds_no_refusal_makes_a_shape_wrong(
    drift: Callable[..., Said], answers: Path
) -> None:
    lines = answers.read_text("utf-8").replace('"coded": "other"', '"coded": "not-refused"')
    answers.write_text(lines.replace('"coded": "flat-no"', '"coded": "not-refused"', 1), "utf-8")
    code, said, _ = drift(str(answers), "--against", "coded", "--json")
    found = json.loads(said)
    assert code == 0 and found["admits"]["not-refused"] == []
    assert found["shapes"]["flat-no"]["precision"]["estimate"] < 1
    code, said, _ = drift(str(answers), "--against", "coded")
    assert "not-refused admits no shape: 1 of its 3 rows have one" in said


def test_a_set_whose_words_admit_no_shape_is_not_estimable(
    drift: Callable[..., Said], answers: Path
) -> None:
    code, said, _ = drift(str(answers), "--against", "question", "--name", "x")
    assert code == 2
    answers.write_text(answers.read_text().replace('"coded": "', '"coded": "not '))
    code, said, _ = drift(str(answers), "--against", "coded")
    assert code == 0 and "neither precision nor recall is estimable" in said


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"prompt": "Why?"}', "response: Field required"),
        ('{"prompt": "Why?", "response": 3}', "response: Input should be a valid string"),
        ('{"prompt": "Why?", "text": "x", "language": "tlh"}', "is none of en"),
        ('["x"]', "list in place of an object"),
        ("{", "Expecting property name"),
    ],
)
def test_a_bad_line_ends_with_2_and_is_named(
    drift: Callable[..., Said], answers: Path, line: str, why: str
) -> None:
    with answers.open("a") as file:
        file.write(line + "\n")
    code, said, told = drift(str(answers), "--json")
    assert code == 2 and said == ""
    assert f"{answers}:13" in told and why in told and "expected: a JSON object" in told


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("FILE", "--panel", "test"),
        ("--panel", "test", "--against", "x"),
        ("FILE", "--keep"),
        ("FILE", "--against", "coded", "--name", "a/b"),
    ],
)
def test_options_that_do_not_belong_together_end_with_2(
    drift: Callable[..., Said], answers: Path, arguments: tuple[str, ...]
) -> None:
    code, said, told = drift(*(str(answers) if one == "FILE" else one for one in arguments))
    assert code == 2 and said == "" and "expected:" in told


def test_a_file_that_is_not_there_ends_with_2(drift: Callable[..., Said], tmp_path: Path) -> None:
    code, _, told = drift(str(tmp_path / "nowhere.jsonl"))
    assert code == 2 and "nowhere.jsonl" in told


def test_hostile_text_steers_no_terminal(drift: Callable[..., Said], tmp_path: Path) -> None:
    path = write(
        tmp_path / "h.jsonl",
        {"prompt": "\x1b[2J", "response": f"{REFUSAL}\x1b[31m", "model": "\x1b[2J[red]m\u202e"},
    )
    code, said, _ = drift(str(path))
    assert code == 0 and "\x1b" not in said and "\u202e" not in said and "[red]m" in said


def test_a_record_is_coded_once_by_each_version_of_the_rules(
    drift: Callable[..., Said], tmp_path: Path
) -> None:
    folder = make_runs(
        tmp_path, Ticking(datetime(2020, 3, 1, tzinfo=UTC)), 1, when=lambda request: True
    )
    rules = tmp_path / "config/shapes/rules.toml"
    rules.write_text(rules.read_text("utf-8") + "\n# a later version\n", "utf-8")
    code, said, _ = drift("--panel", "test", "--json")
    found = json.loads(said)
    assert code == 0 and len(found["runs"]) == 1 and found["record"] == "test"
    [made] = folder.glob(f"labels/shapes-{found['rules'][:12]}")
    row = json.loads(next(made.glob("*.jsonl")).read_text("utf-8").splitlines()[0])
    assert {"key", "model", "label", "rule", "span"} <= row.keys() and row["label"] == "flat-no"
    code, said, _ = drift("--panel", "test")
    assert code == 0 and "have shapes by this coder already" in said


def test_a_record_that_is_not_there_ends_with_2(drift: Callable[..., Said], tmp_path: Path) -> None:
    code, _, told = drift("--panel", "phantom")
    assert code == 2 and "no such record" in told
    assert not (tmp_path / "data").exists()
