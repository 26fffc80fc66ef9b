"""The sheet: safe in a spreadsheet, exact in its texts, and strict about what comes back."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drift.errors import ConfigurationError
from drift.records.draw import SheetRow
from drift.records.sheet import (
    COLUMNS,
    guarded,
    read_marks,
    read_sheet,
    restored,
    sheet_bytes,
)

HOSTILE = [
    "=HYPERLINK(\"http://x\")", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "'=1", "''", "＝1",
    'a "quoted"; cell, with\nlines\r\nand \x00 NUL', "U+2028:\u2028 and \u2029", "", "  ", "\ufeff",
    "</script><img src=x onerror=alert(1)>", "\u202egnp.exe", "拒绝", "line\rline",
]  # fmt: skip


def rows(*texts: str) -> dict[str, SheetRow]:
    return {
        f"id{n}": SheetRow(f"id{n}", "Why?", text, n == 1, "en") for n, text in enumerate(texts)
    }


def written(path: Path, sheet: dict[str, SheetRow]) -> dict[str, SheetRow]:
    path.write_bytes(sheet_bytes(sheet.values()))
    return read_sheet(path)


@given(st.text())
def test_any_text_comes_back_from_its_cell(text: str) -> None:
    cell = guarded(text)
    assert restored(cell) == text
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))


def test_every_text_survives_the_file_and_no_cell_is_a_formula(tmp_path: Path) -> None:
    sheet = rows(*HOSTILE)
    assert written(tmp_path / "sheet.csv", sheet) == sheet
    text = sheet_bytes(sheet.values()).decode("utf-8-sig")
    for cells in csv.reader(io.StringIO(text, newline="")):
        assert not any(cell.startswith(tuple("=+-@\t\r\n")) for cell in cells)


def test_each_coder_has_an_order_that_is_the_same_each_time() -> None:
    sheet = rows(*map(str, range(40)))
    orders = [sheet_bytes(sheet.values(), name) for name in ("made-up-ana", "made-up-ben", "")]
    assert len(set(orders)) == 3
    assert orders[0] == sheet_bytes(reversed(sheet.values()), "made-up-ana")
    assert sorted(orders[0].splitlines()) == sorted(orders[1].splitlines())


def code(path: Path, sheet: dict[str, SheetRow], labels: dict[str, str], mark: str = ",") -> Path:
    """Write made-up labels into a sheet as a spreadsheet would."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, delimiter=mark)
    writer.writerow(COLUMNS)
    for row in sheet.values():
        answer = guarded(row.answer.replace("\r\n", "\n").replace("\x00", ""))
        writer.writerow([row.id, row.question, answer, "", "en", labels.get(row.id, ""), "-note"])
    path.write_text(stream.getvalue(), encoding="utf-8")
    return path


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_a_sheet_that_a_spreadsheet_saved_again_is_read(tmp_path: Path, mark: str) -> None:
    sheet = rows(*HOSTILE)
    words = {"id0": "refused", "id1": "A", "id2": " u ", "id3": "拒绝", "id5": "无法判断"}
    found = read_marks(code(tmp_path / "made-up-ana.csv", sheet, words, mark), sheet)
    assert found.coder == "made-up-ana" and found.notes["id0"] == "-note"
    assert found.labels == {
        "id0": "refused",
        "id1": "answered",
        "id2": "undetermined",
        "id3": "refused",
        "id5": "undetermined",
    }


def test_a_very_long_answer_may_have_lost_its_end_but_not_a_short_one(tmp_path: Path) -> None:
    sheet = rows("word " * 9000, "one two three")
    for end, text in ((32_767, "word " * 9000), (7, "one two three")):
        row = sheet["id0"] if end > 7 else sheet["id1"]
        path = tmp_path / "made-up-ana.csv"
        path.write_text(f"id,answer,label\n{row.id},{text[:end]},r\n", encoding="utf-8")
        if end > 7:
            assert read_marks(path, sheet).labels == {"id0": "refused"}
        else:
            with pytest.raises(ConfigurationError, match="is another one"):
                read_marks(path, sheet)


def test_an_answer_of_any_length_is_read_back(tmp_path: Path) -> None:
    sheet = rows("word " * 60_000)
    assert written(tmp_path / "sheet.csv", sheet) == sheet
    path = code(tmp_path / "made-up-ana.csv", sheet, {"id0": "answered"})
    assert read_marks(path, sheet).labels == {"id0": "answered"}


def test_an_export_of_the_page_is_read_and_names_its_coder(tmp_path: Path) -> None:
    sheet = rows("one", "two")
    line = {"study": "s", "coder": "made-up-ana", "note": ""}
    lines = [line | {"id": "id0", "label": "answered"}, line | {"id": "id1", "label": ""}]
    path = tmp_path / "download.jsonl"
    path.write_text("".join(json.dumps(it) + "\n" for it in lines))
    found = read_marks(path, sheet)
    assert (found.coder, found.study, found.labels) == ("made-up-ana", "s", {"id0": "answered"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id,label\nid9,r\n", "no such row"),
        ("id,label\nid0,r\nid0,r\n", "comes twice"),
        ("id,label\nid0,maybe\n", "no label"),
        ("id,answer,label\nid0,two,r\n", "the answer beside this id is another one"),
        ("id,question,label\nid0,Who?,r\n", "the question beside this id is another one"),
        ("id,word\nid0,r\n", "a column is missing"),
        ("", "a column is missing"),
        ('id,label\n"id0,r\n', "not a CSV"),
        ('{"id": "id0"}\n', "not one that the page exports"),
        ('{"id": 3, "study": "", "coder": "", "label": "", "note": ""}\n', "not one that the page"),
        ("id,label,coder\nid0,r,ana\nid1,r,ben\n", "several coders"),
    ],
)
def test_a_file_that_is_none_of_the_study_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "made-up-ana.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=said) as error:
        read_marks(path, rows("one", "two"))
    assert str(path) in str(error.value.where)


def test_a_file_in_another_encoding_or_absent_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("id,label\n拒".encode("utf-16"))
    for name in ("a.csv", "b.csv"):
        with pytest.raises(ConfigurationError, match="cannot be read") as error:
            read_marks(tmp_path / name, {})
        assert "CSV UTF-8" in str(error.value)
