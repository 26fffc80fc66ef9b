"""The laboratory record: what is declared, what is hidden, and what never changes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import Ticking
from loopback import Loopback
from making import answering, record

from drift.config import ModelSpec, sha256_hex
from drift.errors import ConfigurationError
from drift.lab import record_runs
from drift.probing import embedded
from drift.records.ledger import Ledger
from drift.records.store import Store, read_rows
from drift.records.verify import verify_record
from drift.refresh import Outcome

PLAN = """
salt = "0123456789abcdef0123456789abcdef"
runs = 4

[[interventions]]
model = "subject"
run = 3
what = "hotter"
server = { slots = 1, sampling = { temp = 0.5 } }
"""
PANEL = """
name = "test"
title = "Test laboratory"
laboratory = true
scope_plan = "listed"
full_runs = [1]
plan_sha256 = "{digest}"
analysis = "home alone sets a state; a level that moves once sets none."
"""
MODEL = """
[[models]]
key = "{key}"
kind = "embedded"
model = "{key}"
weights = "SmolLM2-135M-Instruct.Q4_1.gguf"
max_tokens = 40
seed_policy = "per-run"
seed = 7
server = {{ slots = 1, sampling = {{ temp = 0.1 }} }}
"""


@pytest.fixture
def plan(project: Path, tmp_path: Path) -> Path:
    path = tmp_path / "hidden.toml"
    path.write_text(PLAN)
    text = PANEL.format(digest=sha256_hex(path.read_bytes()))
    text += "".join(MODEL.format(key=key) for key in ("still", "subject"))
    (project / "config" / "panels" / "test.toml").write_text(text)
    return path


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str]]]:
    """Scripted answers in place of llama.cpp; holds the temperature of each server started."""
    servers: list[tuple[str, str]] = []
    with Loopback(answering) as loopback:

        @contextmanager
        def serve(model: ModelSpec, weights: Path) -> Iterator[tuple[str, ...]]:
            servers.append((model.key, str(model.server.sampling["temp"])))
            yield (loopback.base_url,)

        monkeypatch.setattr(embedded, "serve", serve)
        monkeypatch.setattr(embedded, "serving_facts", lambda: "scripted")
        monkeypatch.setattr("drift.refresh.weights_path", lambda name, root: Path(name))
        yield servers


def go_on(project: Path, clock: Ticking, plan: Path, runs: int | None = None) -> Outcome:
    made = record(project, clock)

    def say(text: str) -> None:
        clock.advance(seconds=90)

    with made.opened():
        return record_runs(made, plan, runs=runs, say=say)


def test_the_servers_follow_the_plan_and_what_is_sent_never_changes(
    project: Path, clock: Ticking, plan: Path, started: list[tuple[str, str]]
) -> None:
    go_on(project, clock, plan, runs=2)
    folder = project / "data" / "test"
    found = verify_record(folder, root=project)
    assert (found.problems, found.runs) == ([], 2)
    assert found.notes == ["plan.toml is declared, and not opened yet"]
    clock.advance(seconds=90)
    go_on(project, clock, plan)
    assert [at for key, at in started if key == "subject"] == ["0.1", "0.1", "0.5", "0.5"]
    assert {at for key, at in started if key == "still"} == {"0.1"}
    store, lines = Store(folder), list(Ledger(folder).forwards())
    runs = [line.body for line in lines if line.kind == "run"]
    assert [(run["slot"], run["scope"]) for run in runs] == [
        (1, "full"),
        (2, "canonical"),
        (3, "canonical"),
        (4, "canonical"),
    ]
    assert len({run["models"]["subject"]["instrument"] for run in runs}) == 1
    churn = read_rows(store.churn)
    assert {row["series"] for row in churn} == {1}
    assert [row["alarm"]["r"] for row in churn if row["model"] == "subject"] == [0, 1, 2, 3]
    assert store.plan.read_bytes() == plan.read_bytes()
    found = verify_record(folder, root=project)
    assert (found.problems, found.notes) == ([], [])
    store.plan.write_text(PLAN.replace("run = 3", "run = 2"))
    (problem,) = verify_record(folder, root=project).problems
    assert "plan.toml" in problem.where


def test_another_plan_than_the_declared_one_is_refused_before_anything_is_asked(
    project: Path, clock: Ticking, plan: Path, started: list[tuple[str, str]]
) -> None:
    plan.write_text(PLAN.replace("run = 3", "run = 2"))
    with pytest.raises(ConfigurationError, match="not the plan that the panel declares"):
        go_on(project, clock, plan)
    assert not started and not (project / "data" / "test" / "chain.jsonl").exists()
