"""What is published is derived again from the answers, and the first other number is named."""

from __future__ import annotations

import gzip
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drift import cli
from drift.records.reproduce import Reproduction, reproduce_record
from drift.records.store import Store

#: Labels, readings, and the three logs.
FILES = 3 + 3 + 3 + 3
#: Refusals in the three runs, each of which has a shape.
SHAPES = 12


def again(project: Path) -> Reproduction:
    folder, scratch = project / "data" / "test", project / "scratch"
    return reproduce_record(folder, root=project, scratch=scratch)


def files(project: Path, part: str) -> list[Path]:
    return sorted(path for path in (project / "data/test" / part).rglob("*") if path.is_file())


def edit(path: Path, change: Callable[[Any], None], line: int | None = None) -> None:
    """Change one JSON document, or one line of JSON documents, in place, as orjson writes it."""
    import orjson

    if line is None:
        document = orjson.loads(path.read_bytes())
        change(document)
        path.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")
        return
    rows = path.read_bytes().splitlines()
    row = orjson.loads(rows[line - 1])
    change(row)
    rows[line - 1] = orjson.dumps(row)
    path.write_bytes(b"\n".join(rows) + b"\n")


def test_an_untouched_record_is_made_again_byte_for_byte(made: Path, tmp_path: Path) -> None:
    found = again(made)
    assert found.difference is None
    assert (found.runs, found.files, found.labels) == (3, FILES, 288 + 82 + 82 + SHAPES)
    assert str(found) == "test: 3 runs, 464 labels, 12 files derived again: equal byte for byte"


def test_nothing_that_was_derived_before_is_read_to_derive_it_again(copy: Path, made: Path) -> None:
    for part in ("labels", "readings"):
        shutil.rmtree(copy / "data/test" / part)
    for name in ("churn.jsonl", "findings.jsonl", "series.json"):
        (copy / "data/test" / name).unlink()
    found = again(copy)
    assert found.difference is not None and found.difference.published == "absent"
    for part in ("labels", "readings"):
        for path in files(made, part):
            same = copy / "scratch" / path.relative_to(made / "data/test")
            assert same.read_bytes() == path.read_bytes()


def test_a_changed_number_of_a_reading_is_named_by_file_and_path_inside_it(copy: Path) -> None:
    path = files(copy, "readings")[1]
    before = json.loads(path.read_bytes())["models"]["subject"]["canonical"]["refused"]

    def change(reading: Any) -> None:
        reading["models"]["subject"]["canonical"]["refused"] = before + 3
        reading["models"]["subject"]["controls"]["n"] = 99  # derived later: not the first

    edit(path, change)
    named = f"readings/{path.name}: models.subject.canonical.refused: "
    assert str(again(copy)) == f"test: differs: {named}published {before + 3}, derived {before}"


@pytest.mark.parametrize(
    ("name", "line", "field"), [("churn.jsonl", 3, "flips"), ("findings.jsonl", 2, "kind")]
)
def test_a_changed_row_of_a_log_is_named_by_its_line(
    copy: Path, name: str, line: int, field: str
) -> None:
    edit(copy / "data/test" / name, lambda row: row.update({field: "other"}), line)
    difference = again(copy).difference
    assert difference is not None
    assert (difference.file, difference.place) == (name, f"line {line}: {field}")
    assert difference.published == '"other"'


def test_a_changed_label_is_named_though_the_readings_are_those_of_the_true_one(
    copy: Path,
) -> None:
    (path, *_) = files(copy, "labels")
    edit(path, lambda row: row.update(label="undetermined"), 7)
    difference = again(copy).difference
    assert difference is not None
    assert difference.file == path.relative_to(copy / "data/test").as_posix()
    assert difference.place == "line 7: label"
    assert difference.published == '"undetermined"'


def test_an_edited_answer_shows_in_its_label_and_not_as_another_chain(copy: Path) -> None:
    (path, *_) = files(copy, "transcripts")
    edit(path, lambda row: row.update(text="I'm sorry, but I can't help with that."), 7)
    difference = again(copy).difference
    assert difference is not None and difference.place == "line 7: label"
    assert (difference.published, difference.derived) == ('"answered"', '"refused"')


@pytest.mark.parametrize("cut", [1, 40])
def test_a_cut_log_is_named_where_it_ends(copy: Path, cut: int) -> None:
    path = copy / "data/test/churn.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    difference = again(copy).difference
    assert difference is not None
    assert difference.file == "churn.jsonl"
    assert difference.place == ("line 7" if cut == 1 else "line 6")


def test_numbers_in_another_layout_are_no_other_numbers_and_are_named_so(copy: Path) -> None:
    path = files(copy, "readings")[0]
    path.write_text(json.dumps(json.loads(path.read_bytes())), encoding="utf-8")
    difference = again(copy).difference
    assert difference is not None
    assert difference.published == "the same values in other bytes"


def test_a_reading_that_no_run_gives_is_named(copy: Path) -> None:
    path = files(copy, "readings")[0]
    shutil.copy(path, path.with_name("20250101T000000Z.json"))
    difference = again(copy).difference
    assert difference is not None
    assert difference.file == "readings/20250101T000000Z.json"
    assert difference.derived == "absent"


def test_a_packed_file_is_compared_by_what_it_holds(copy: Path) -> None:
    for path in files(copy, "readings"):
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert again(copy).difference is None


def test_labels_of_a_judge_that_is_not_here_are_taken_as_stored_and_counted(copy: Path) -> None:
    rules = copy / "config/judge/rules.toml"
    rules.write_text(rules.read_text(encoding="utf-8") + "\n# another judge\n", encoding="utf-8")
    found = again(copy)
    assert found.difference is None
    assert found.labels_taken == found.labels == 464
    assert "(464 of them taken as stored)" in str(found)


def test_a_record_without_a_run_has_nothing_to_differ_in(copy: Path) -> None:
    store = Store(copy / "data" / "test")
    first = store.folder.joinpath("chain.jsonl").read_bytes().split(b"\n")[0] + b"\n"
    corpora = store.folder / "corpora"
    kept = copy / "data" / "fresh"
    shutil.copytree(corpora, kept / "corpora")
    (kept / "chain.jsonl").write_bytes(first)
    found = reproduce_record(kept, root=copy, scratch=copy / "scratch")
    assert (found.runs, found.difference) == (0, None)


def test_the_command_names_each_record_and_ends_with_4_where_one_differs(
    copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (copy / "notebooks").mkdir()
    monkeypatch.setenv("REFUSAL_DRIFT_ROOT", str(copy))
    shutil.copytree(copy / "data/test", copy / "data/other")
    edit(files(copy, "readings")[0], lambda reading: reading.update(number=9))

    def call(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["drift", "reproduce", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return int(ended.value.code or 0), capsys.readouterr().out

    code, said = call()
    assert code == 4
    same, other = said.splitlines()
    assert same.startswith("other: 3 runs") and "equal byte for byte" in same
    assert (
        other.startswith("test: differs: readings/") and "number: published 9, derived 1" in other
    )
    code, said = call("--panel", "other", "--json")
    assert code == 0
    assert json.loads(said)[0]["difference"] is None
