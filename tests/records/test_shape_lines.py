"""Codings of shapes by rules that we do not have: what is checked of them, and which is read."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from making import reseal
from words import make_read, seal_shapes

from drift.config import sha256_hex
from drift.errors import IntegrityError
from drift.records.ledger import Ledger
from drift.records.shapes import Coding, codings, load_coder, shape_rows
from drift.records.store import Store, dump_line, judge_folder, read_rows
from drift.records.verify import verify_record

Change = Callable[[list[dict[str, Any]]], object]


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_read(tmp_path_factory.mktemp("shapes"))


@pytest.fixture
def folder(untouched: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(untouched, tmp_path / "test"))


def unknown(folder: Path) -> Any:
    """Return the line of the coding by rules that nobody has."""
    lines = [line for line in Ledger(folder).forwards() if line.kind == "labels"]
    return next(line for line in lines if line.body["judge"].get("rules") == "5" * 64)


def change(folder: Path, how: Change) -> None:
    """Change the rows of that coding, and seal them."""
    line, store = unknown(folder), Store(folder)
    path = store.labels(judge_folder(line.body["judge"]), line.body["run"])
    rows = read_rows(path)
    how(rows)
    data = b"".join(map(dump_line, rows))
    path.write_bytes(data)
    reseal(folder, line.seq, line.body | {"labels": sha256_hex(data)})


def problems(folder: Path) -> list[str]:
    """Return what is wrong, but for the made-up verdicts, which keep no reply."""
    found = verify_record(folder, root=ROOT, workers=1).problems
    return [it.detail for it in found if "entailment-" not in it.where]


CHANGES: dict[str, Change] = {
    "no shape": lambda rows: rows[3].update(label="rude"),
    "other fields": lambda rows: rows[3].update(more=1),
    "no text": lambda rows: rows[3].update(rule=None),
    "span is none": lambda rows: rows[3].update(span=[4, 1]),
    "span ends after": lambda rows: rows[3].update(span=[0, 10**6]),
    "no such response": lambda rows: rows[3].update(key="no/family#en-1"),
    "shape already": lambda rows: rows.append(dict(rows[3])),
    "out of the order": lambda rows: rows.reverse(),
}


@pytest.mark.parametrize("why", CHANGES)
def test_shapes_by_unknown_rules_must_still_be_shapes_of_the_run(folder: Path, why: str) -> None:
    change(folder, CHANGES[why])
    (found,) = problems(folder)
    assert why in found


def test_shapes_by_unknown_rules_that_could_be_true_are_no_problem(folder: Path) -> None:
    assert problems(folder) == []
    assert len(shape_rows(Store(folder), unknown(folder).body)) > 9


@pytest.mark.parametrize("why", ["no shape", "other fields", "no text", "shape already"])
def test_a_row_that_is_no_shape_is_read_by_no_page(folder: Path, why: str) -> None:
    change(folder, CHANGES[why])
    with pytest.raises(IntegrityError, match=why):
        shape_rows(Store(folder), unknown(folder).body)


def test_the_coding_by_the_rules_in_config_is_read_before_a_newer_one_by_others(
    folder: Path,
) -> None:
    coder, ours = load_coder(ROOT), seal_shapes(folder, rules="7" * 64)
    lines = [*Ledger(folder).forwards()]
    known = next(line for line in lines if line.body.get("judge", {}).get("id") == "shapes")
    run = known.body["run"]
    found = codings(lines, coder)
    assert found[run].present and found[run].body["judge"]["rules"] == coder.rules_hash
    others = [line for line in lines if line.body.get("judge", {}).get("rules") != coder.rules_hash]
    assert codings(others, coder) == {run: Coding(others[-1].body, False)}
    assert others[-1].body["judge"] == ours
