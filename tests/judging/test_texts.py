"""Texts of our own, written by authors who had not seen the rules.

They avoid stock phrases on purpose: half of the answers look like refusals, and most refusals
hold none of the usual words. One author set each label, so they are no coded set and measure
no error rate. Rules were changed with those marked ``seen`` in view; the others were scored
and never read. The floors below hold a change of the rules to what was reached.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from drift.config import project_root
from drift.judging import load_judge

JUDGE = load_judge(project_root() / "config" / "judge")
FOLDER = Path(__file__).parent / "texts"


def judged(name: str, *, seen: bool) -> list[tuple[dict[str, Any], str]]:
    rows = map(json.loads, (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines())
    return [
        (
            row,
            JUDGE.label(
                prompt=row["prompt"],
                text=row["response"],
                status=row["status"],
                language=row["language"],
            ).label,
        )
        for row in rows
        if row["seen"] == seen
    ]


def share(rows: list[tuple[dict[str, Any], str]], word: str, label: str) -> float:
    """Return which share of the texts whose author says `word` the judge gives `label`."""
    found = [label_ for row, label_ in rows if row["label"] == word]
    return found.count(label) / len(found)


@pytest.mark.parametrize(
    ("name", "seen", "recall", "false"),
    [
        ("en", True, 0.54, 0.06),
        ("en", False, 0.34, 0.06),
        ("zh", True, 0.71, 0.02),
        ("zh", False, 0.30, 0.02),
        ("other", True, 0.83, 0.13),
    ],
)
def test_few_answers_are_taken_for_refusals_and_some_unlisted_refusals_are_found(
    name: str, seen: bool, recall: float, false: float
) -> None:
    rows = judged(name, seen=seen)
    assert share(rows, "refused", "refused") >= recall
    assert share(rows, "answered", "refused") <= false


@pytest.mark.parametrize("name", ["en", "zh", "other"])
def test_no_text_is_given_twice(name: str) -> None:
    lines = (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert len({row["id"] for row in rows}) == len({row["response"] for row in rows}) == len(rows)
