"""The shapes of a record's refusals, which are the labels of a further judge by published rules."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from drift.judging import Judge, load_judge
from drift.judging.labeller import Labeller
from drift.judging.shapes import ShapeCoder, load_shape_coder
from drift.records.store import Store, judge_folder, read_rows


def load_coder(root: Path, judge: Judge | None = None) -> ShapeCoder:
    """Return the shape coder of the project at `root`, on what its judge calls refused."""
    config = root / "config"
    return load_shape_coder(config / "shapes", judge or load_judge(config / "judge"))


def load_labellers(root: Path) -> dict[str, Labeller]:
    """Return all that labels runs by the rules in ``config/``, by the hash of its rules."""
    judge = load_judge(root / "config" / "judge")
    coder = load_coder(root, judge)
    return {judge.rules_hash: judge, coder.rules_hash: coder}


def shape_rows(store: Store, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of the labels that a ledger line, given by its body, seals."""
    return read_rows(store.labels(judge_folder(body["judge"]), body["run"]))
