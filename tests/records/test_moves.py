"""A change of the judge is seen label by label, before it is made."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from drift.config import sha256_hex
from drift.errors import ConfigurationError
from drift.judging import load_judge
from drift.records.coding import coding_of, seal_coding
from drift.records.ledger import Ledger
from drift.records.moves import Comparison, anchor_moves, compare_judges, judge_or_stored
from drift.records.store import Store, dump_line, read_rows

REGISTERED = "registered"


def present(project: Path) -> Path:
    return project / "config" / "judge"


def folder(project: Path) -> Path:
    return project / "data" / "test"


def without(project: Path, to: Path, *rules: str) -> Path:
    """Copy the judge of a project and take these rules away."""
    shutil.copytree(present(project), to)
    head, *entries = (to / "rules.toml").read_text(encoding="utf-8").split("[[rule]]")
    kept = [entry for entry in entries if re.search(r'id = "([^"]+)"', entry)[1] not in rules]
    (to / "rules.toml").write_text("[[rule]]".join([head, *kept]), encoding="utf-8")
    return to


def declines(project: Path) -> list[str]:
    return [rule.id for rule in load_judge(present(project)).rules["decline"]]


def compared(project: Path, old: str | Path, new: str | Path) -> Comparison:
    return compare_judges(folder(project), *(judge_or_stored(str(one)) for one in (old, new)))


def test_the_present_judge_moves_no_label_of_a_record_it_judged(made: Path) -> None:
    found = compared(made, REGISTERED, present(made))
    assert (found.runs, found.labels, found.moves, found.other_rule) == (3, 452, [], 0)
    assert found.closes == {} and not found.fingerprint_moves
    assert found.before == found.after


def test_rules_taken_away_move_every_label_that_they_decided(made: Path, tmp_path: Path) -> None:
    rows = [row for path in folder(made).glob("labels/*/*") for row in read_rows(path)]
    refused = Counter(row["rule"] for row in rows if row["label"] == "refused")
    assert refused and set(refused) <= set(declines(made))
    found = compared(made, present(made), without(made, tmp_path / "judge", *declines(made)))
    assert Counter(move.before_rule for move in found.moves) == refused
    assert {move.before for move in found.moves} == {"refused"}
    document = found.document()
    assert document["moved"] == len(found.moves) == refused.total()
    assert sum(row["labels"] for row in document["by_label"]) == len(found.moves)
    assert {row["before_rule"] for row in document["by_rule"]} == set(refused)


def test_a_moved_fingerprint_closes_every_series_and_its_anchors_are_named(
    made: Path, tmp_path: Path
) -> None:
    poorer = without(made, tmp_path / "judge", *declines(made))
    old, new = load_judge(present(made)), load_judge(poorer)
    moved = anchor_moves(old, new)
    assert moved and {row["before"] for row in moved} == {"refused"}
    found = compared(made, present(made), poorer)
    assert found.fingerprint_moves
    assert set(found.closes) == {"steady", "subject"}
    assert "fingerprint moves" in found.closes["subject"]


def test_with_the_same_fingerprint_only_moved_labels_close_a_series(
    made: Path, tmp_path: Path
) -> None:
    spaced = without(made, tmp_path / "spaced")
    with (spaced / "rules.toml").open("a", encoding="utf-8") as file:
        file.write("# Another hash, the same rules.\n")
    found = compared(made, REGISTERED, spaced)
    assert found.before["rules"] != found.after["rules"]
    assert not found.fingerprint_moves and found.moves == [] and found.closes == {}
    poorer = without(made, tmp_path / "judge", *declines(made))
    for path in (spaced, poorer):
        path.joinpath("anchors.json").write_text(
            '{"anchors": [{"id": "a", "prompt": "Why?", "text": "Because it rained all day.", '
            '"label": "answered", "kind": "plain", "language": "en"}]}'
        )
    found = compared(made, spaced, poorer)
    moved = Counter(move.model for move in found.moves)
    assert not found.fingerprint_moves and moved
    assert found.closes == {
        model: f"series 1: {number} stored labels move" for model, number in moved.items()
    }


def test_nothing_of_the_record_is_written(made: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in made.rglob("*") if path.is_file()}
    compared(made, present(made), without(made, tmp_path / "judge", *declines(made)))
    assert before == {path: path.read_bytes() for path in made.rglob("*") if path.is_file()}


def test_workers_find_what_one_process_finds(made: Path, tmp_path: Path) -> None:
    sides = [load_judge(present(made))]
    sides += [load_judge(without(made, tmp_path / "judge", *declines(made)))]
    alone, two = (compare_judges(folder(made), *sides, workers=n) for n in (1, 2))
    assert alone == two


def test_a_stored_judge_is_named_by_the_beginning_of_its_rules_hash(made: Path) -> None:
    rules = load_judge(present(made)).rules_hash
    assert compared(made, rules[:8], present(made)).labels == 452
    other = f"{'0' if rules[0] != '0' else '1'}{rules[1:8]}"
    with pytest.raises(ConfigurationError, match="no such judge") as caught:
        compared(made, other, present(made))
    assert rules[:12] in str(caught.value)


def test_what_people_coded_is_compared_alone_and_closes_no_series(copy: Path) -> None:
    """The coder and the label are made up: one refusal of the full run, read as an answer."""
    store, ledger = Store(folder(copy)), Ledger(folder(copy))
    first = min(store.folder.glob("labels/*/*")).stem
    (path,) = store.folder.glob(f"labels/rules-*/{first}.jsonl")
    rows = read_rows(path)
    judged = next(row for row in rows if row["label"] == "refused")
    text = next(
        row["text"]
        for row in read_rows(store.transcript(first))
        if (row["model"], row["key"]) == (judged["model"], judged["key"])
    )
    row = {"run": first, "model": judged["model"], "key": judged["key"], "label": "answered"}
    row |= {"rule": "reader", "span": None, "text_sha256": sha256_hex(text.encode())}
    coding = coding_of(dump_line(row), Path("made-up.jsonl"), store, ledger)
    seal_coding(coding, "made-up", store, ledger, clock=lambda: datetime(2026, 4, 1, tzinfo=UTC))
    found = compared(copy, REGISTERED, coding.sha256)
    assert [(move.key, move.after) for move in found.moves] == [(judged["key"], "answered")]
    assert (found.labels, found.unread, found.closes) == (1, 2, {})
    assert found.one_sided == len(rows) - 1


def test_a_folder_of_an_older_format_says_to_name_the_stored_judge(
    made: Path, tmp_path: Path
) -> None:
    path = without(made, tmp_path / "older") / "rules.toml"
    path.write_text(re.sub(r"\ndeclining = .*", "", path.read_text(encoding="utf-8")))
    with pytest.raises(ConfigurationError, match="older format") as caught:
        judge_or_stored(str(path.parent))
    assert "rules hash" in str(caught.value)


def test_a_name_that_is_no_judge_says_what_is_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"a folder with rules\.toml"):
        judge_or_stored(str(tmp_path / "nowhere"))
    with pytest.raises(ConfigurationError, match=r"rules\.toml"):
        judge_or_stored(str(tmp_path))
