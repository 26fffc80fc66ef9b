"""``drift traces``: figures for people and for scripts, and a file that holds nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from conftest import ROOT, Said

SYNTHETIC = str(ROOT / "data" / "synthetic" / "traces.jsonl")


@pytest.fixture
def drift(command: Callable[..., Said]) -> Callable[..., Said]:
    """Call the command."""
    return partial(command, "traces")


def test_the_terminal_shows_rates_and_differences_and_says_what_is_synthetic(
    drift: Callable[..., Said],
) -> None:
    code, said, _ = drift(SYNTHETIC)
    assert code == 0
    assert said.startswith("1100 traces, 1100 of them synthetic\n")
    assert "sermon: asked again after 138 of 220, 62.7 % [56.0, 69.1]" in said
    assert "not estimable: 16 refusals against 260, fewer than 20 of one" in said
    assert "uncodable" not in said


def test_json_holds_every_shape_with_reasons(drift: Callable[..., Said]) -> None:
    code, said, _ = drift(SYNTHETIC, "--json")
    found = json.loads(said)
    assert code == 0 and (found["rows"], found["synthetic"], found["dropped"]) == (1100, 1100, {})
    assert found["base"] == "flat-no" and found["shapes"]["flat-no"]["retried"] == 68
    assert found["shapes"]["uncodable"]["rate"]["reason"] == "no trials"


def test_what_is_kept_holds_nothing_that_was_dropped_and_overwrites_nothing(
    drift: Callable[..., Said], tmp_path: Path
) -> None:
    row = json.loads(Path(SYNTHETIC).read_text().splitlines()[0])
    file, kept = tmp_path / "own.jsonl", tmp_path / "kept" / "traces.jsonl"
    file.write_text(json.dumps(row | {"comment": "let me have it", "\x1b[2J": 1}))
    code, said, _ = drift(str(file), "--keep", str(kept))
    assert code == 0 and "1 fields dropped: comment" in said and "\x1b" not in said
    assert json.loads(kept.read_text()) == row
    code, _, errors = drift(str(file), "--keep", str(kept))
    assert code == 2 and "there already" in errors
    link = tmp_path / "link.jsonl"
    link.symlink_to(tmp_path / "nothing.jsonl")
    code, _, errors = drift(str(file), "--keep", str(link))
    assert code == 2 and "there already" in errors and not link.exists()


def test_a_row_with_an_identifier_ends_with_2_and_keeps_nothing(
    drift: Callable[..., Said], tmp_path: Path
) -> None:
    lines = Path(SYNTHETIC).read_text().splitlines()[:3]
    lines[2] = json.dumps(json.loads(lines[2]) | {"User_ID": "Xylophon4711"})
    file, kept = tmp_path / "own.jsonl", tmp_path / "kept.jsonl"
    file.write_text("\n".join(lines))
    code, said, errors = drift(str(file), "--keep", str(kept))
    assert code == 2 and not kept.exists() and not said
    assert "own.jsonl:3" in errors and "User_ID" in errors and "Xylophon" not in errors
