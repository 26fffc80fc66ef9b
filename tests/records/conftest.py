"""A small record of true runs, for the tests that check records."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from conftest import ROOT, Ticking
from making import make_runs


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a record of three runs, never changed by a test."""
    project = tmp_path_factory.mktemp("made")
    shutil.copytree(ROOT / "config", project / "config")
    clock = Ticking(datetime(2026, 3, 1, 0, 5, tzinfo=UTC))
    make_runs(project, clock, 3, lambda request: "1989" in request.prompt)
    return project


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "copy")
    return tmp_path / "copy"
