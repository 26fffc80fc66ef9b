"""A run killed at any point loses no stored answer and asks none of them again."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from conftest import Ticking
from loopback import Loopback, Reply, Request
from making import answering, record, run, write_panel

from drift.bank import load_bank
from drift.records import derive, ledger, store
from drift.records.ledger import write_durably
from drift.records.store import Store
from drift.records.verify import verify_record

KILLS = 24
IN_FLIGHT = 4


def slowly(request: Request) -> Reply:
    plain = answering(request)
    return Reply(plain.body, delay=0.004)


def stored_rows(folder: Path) -> dict[tuple[str, str], str]:
    """Every complete row of the open run, or of the sealed transcript."""
    found = Store(folder)
    rows: list[dict[str, Any]] = []
    for path in (*found.open_runs(), *folder.glob("transcripts/*/*.jsonl")):
        whole = path.read_bytes().rpartition(b"\n")[0]
        rows += map(json.loads, whole.splitlines())
    return {(row["model"], row["key"]): row["text"] for row in rows if "key" in row}


def sealed(folder: Path) -> bool:
    chain = folder / "chain.jsonl"
    return chain.exists() and b'"kind":"run"' in chain.read_bytes()


def test_killed_at_random_points_a_run_keeps_every_stored_answer(project: Path) -> None:
    folder = project / "data" / "test"
    prompts = {
        arm.id: arm.prompt for arm in load_bank(project / "config/probe_bank.json").arms("full")
    }
    command = [sys.executable, "-c", "from drift.cli import main; main()", "refresh"]
    command += ["--panel", "test"]
    environ = os.environ | {"REFUSAL_DRIFT_ROOT": str(project)}
    chance = random.Random(20261129)
    kept: dict[tuple[str, str], str] = {}
    counted: dict[tuple[str, str], int] = {}
    with Loopback(slowly) as server:
        write_panel(project, server.base_url)
        kills = 0
        # A run that was sealed when its command was killed is over: the next begins another.
        while kills < KILLS and not sealed(folder):
            asked_before = sum(server.counts.values())
            child = subprocess.Popen(
                command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
            # Kill after a random number of questions: in flight, between groups, at the seal.
            target = asked_before + chance.randrange(0, 22)
            while sum(server.counts.values()) < target and child.poll() is None:
                time.sleep(0.0005)
            time.sleep(chance.random() * 0.02)
            child.send_signal(signal.SIGKILL)
            _, said = child.communicate()
            kills += 1
            assert b"Traceback" not in said, said.decode()
            now = stored_rows(folder)
            assert kept.items() <= now.items(), "a stored answer was lost or changed"
            for model, key in kept:
                assert server.counts[f"lab/{model}", prompts[key]] == counted[model, key]
            kept = now
            counted = {place: server.counts[f"lab/{place[0]}", prompts[place[1]]] for place in kept}
        assert kills > KILLS // 3
        if sealed(folder):
            command[-3] = "shapes"
        done = subprocess.run(command, env=environ, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        assert kept.items() <= stored_rows(folder).items()
        for model, key in kept:
            assert server.counts[f"lab/{model}", prompts[key]] == counted[model, key]
        assert sum(server.counts.values()) <= 288 + (KILLS + 1) * IN_FLIGHT
    found = verify_record(folder, root=project)
    assert found.problems == [] and found.responses >= 288
    assert found.notes == []


class Killed(BaseException):
    """Stands for a kill at one system call: nothing of ours handles it."""


def crashing_at(number: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let the n-th call that makes something durable never happen."""
    calls = [0]

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            calls[0] += 1
            if calls[0] == number:
                if function is write_durably:
                    arguments[0].touch()  # opened, and nothing written
                raise Killed
            return function(*arguments, **named)

        return called

    monkeypatch.setattr(ledger, "write_durably", counted(write_durably))
    for module in (derive, store):
        monkeypatch.setattr(module, "append_rows", counted(store.append_rows))
    monkeypatch.setattr(Path, "replace", counted(Path.replace))
    monkeypatch.setattr(Path, "unlink", counted(Path.unlink))
    return calls


def test_killed_before_any_durable_step_of_a_seal_the_next_command_completes_it(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Loopback(answering) as server:
        write_panel(project, server.base_url)
        number, crashed = 1, 0
        while True:
            folder = project / "data" / "test"
            clock = Ticking(datetime(2026, 3, 1, 0, 5, tzinfo=UTC))
            with monkeypatch.context() as patch:
                calls = crashing_at(number, patch)
                try:
                    run(project, clock)
                except Killed:
                    crashed += 1
                else:
                    assert calls[0] < number
                    break
            before = sum(server.counts.values())
            clock.advance(minutes=1)
            made = record(project, clock)
            with made.opened():
                finished = next(folder.glob("readings/*"), None) is not None
                if not finished:
                    made.refresh()
            assert verify_record(folder, root=project).problems == [], number
            assert sum(server.counts.values()) - before in (0, 288), number
            assert len(list(folder.glob("readings/*"))) == 1
            folder.rename(folder.with_name(f"done-{number}"))
            number += 1
    assert crashed >= 12
