"""Asks the board: the same probes every night, each twice, and stance probes once more.

A night is asked step by step, all probes of a step before the next, through the client that
asks a run; it is stored as it is asked, and resumed by the same command after a kill.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from drift.board import Board, load_board
from drift.config import ModelSpec, ServerSpec, timestamp
from drift.errors import DriftError
from drift.judging.answers import Asking, load_board_rules
from drift.passes import Passes
from drift.probing.cost import BYTES_PER_TOKEN
from drift.probing.response import Ask
from drift.records.asking import Progress, afford, ask, cost_usd
from drift.records.ledger import write_atomically
from drift.records.night import STEPS, all_keys, due_keys, night_conversation, split_night_key
from drift.records.passes import by_place, open_passes
from drift.records.registration import corpus_copy
from drift.records.sealing import OpenRun
from drift.refresh import Outcome, Record


def board_night(
    record: Record,
    *,
    models: Sequence[str] = (),
    servers: Mapping[str, ServerSpec] | None = None,
    what: str = "",
    seal_open: bool = False,
    progress: Progress | None = None,
    say: Callable[[str], None] = lambda text: None,
    environ: Mapping[str, str] = os.environ,
) -> Outcome:
    """Make one night: ask every probe of the board, seal the answers, score them.

    One night is made a UTC day: a second command on the same day asks nothing, and a night
    whose day is over is sealed with its gaps. In a laboratory one follows the other at once.
    `servers` start a model's own server otherwise than the panel says, and `what` says so.

    Raises
    ------
    ConfigurationError
        The corpus is wrong, another night is open, or the configuration is not the
        registered one. Nothing is asked or sealed.
    """
    outcome = Outcome(notes=record.notes)
    board_file = record.root / "config" / "board.json"
    board = load_board(board_file)
    asking = load_board_rules(record.root / "config" / "board.toml").asking
    narrowed = record.panel.narrowed(tuple(models))
    chosen = [_asked(model, asking, servers or {}) for model in narrowed]
    registration = record.registered(say)
    passes = Passes(record, "night", lambda body: None)
    passes.finish()
    if made := _tonight(record, passes, say):
        outcome.run, outcome.scope, outcome.sealed = made, "board", True
        record.notes.append(f"the board was asked today already: night {made}; nothing is asked")
        return outcome
    wanted = _header(record, registration.hash, board, asking, chosen, what)
    write_atomically(corpus_copy(record.store, wanted["corpus"]), board_file.read_bytes())
    ready = record.reachable(chosen, environ)
    current = passes.resume(wanted, say, seal_open=seal_open) or passes.begin(wanted)
    outcome.run, outcome.scope = current.run, "board"
    asker = _Asker(record, current, board, ready, progress, environ)
    for model in chosen:
        if model.key in current.stopped:
            continue
        with outcome.answering_for(model.key, current):
            if isinstance(unable := ready[model.key], DriftError):
                raise unable
            _afford(record, current, model, board)
            asker.ask(model)
    specs = {model.key: model for model in chosen}
    total = len(all_keys(board))
    passes.close(current, specs, outcome, total=total, what="answers")
    return outcome


def _asked(model: ModelSpec, asking: Asking, servers: Mapping[str, ServerSpec]) -> ModelSpec:
    """Return a model as a night asks it: its own parameters, the board's answer length."""
    server = servers.get(model.key, model.server)
    server = server.model_copy(update={"context": max(server.context, asking.context)})
    return model.model_copy(update={"max_tokens": asking.answer_tokens, "server": server})


def cadence(record: Record) -> str:
    """Return how nights follow each other: ``nightly``, ``laboratory`` or ``virtual``."""
    if record.truth:
        return "virtual"
    return "laboratory" if record.panel.laboratory else "nightly"


def _tonight(record: Record, passes: Passes, say: Callable[[str], None]) -> str | None:
    """Return today's night if it is sealed; seal with its gaps an open one of another day."""
    if cadence(record) != "nightly":
        return None
    today = timestamp(record.clock())[:10]
    for path in open_passes(record.store, "night"):
        current = OpenRun.read(path)
        if current.header["started_at"][:10] != today:
            passes.seal_with_gaps(current)
            say(f"night {current.run} was not ended on its day: sealed with its gaps")
    last = passes.sealed()[-1:]
    return next((str(it["run"]) for it, _ in last if it["started_at"][:10] == today), None)


def _header(
    record: Record,
    registration: str,
    board: Board,
    asking: Asking,
    chosen: Sequence[ModelSpec],
    what: str,
) -> dict[str, Any]:
    """Return what an open night begins with, but for its id, its number and its time."""
    instruments = {
        model.key: {
            "role": model.role,
            "instrument": model.instrument_hash(),
            "document": model.instrument(),
        }
        for model in chosen
    }
    return {
        "name": "",
        "what": what,
        "scope": "board",
        "slot": None,
        "registration": registration,
        "corpus": {"name": board.name, "version": board.version, "sha256": board.sha256},
        "cadence": cadence(record),
        "keys": sorted(board.by_id),
        "models": [model.key for model in chosen],
        "instruments": instruments,
    }


def _afford(record: Record, current: OpenRun, model: ModelSpec, board: Board) -> None:
    """Refuse a model whose remaining probes the day's budget cannot pay."""
    done, prompts = {row["key"] for row in current.rows_of(model.key)}, []
    for key in all_keys(board):
        arm, _, turn = split_night_key(key)
        said = board.by_id[arm].prompt
        if turn == 2:
            said += max(board.pushback, board.reask, key=len)
            said += "x" * BYTES_PER_TOKEN * model.max_tokens
        prompts += [] if key in done else [said]
    cost: Decimal | None = cost_usd(model, prompts)
    afford(model, record.panel, cost=cost, spent=record.spent_usd(current))


@dataclass(frozen=True)
class _Asker:
    """Asks the probes of one open night."""

    record: Record
    current: OpenRun
    board: Board
    ready: Mapping[str, Path | DriftError | None]
    progress: Progress | None
    environ: Mapping[str, str]

    def ask(self, model: ModelSpec) -> None:
        """Ask one model all that it has not been asked and that can be asked."""
        weights = self.ready[model.key]
        assert not isinstance(weights, DriftError)
        for draw, turn in STEPS:
            ask(
                self.current,
                model,
                self._asks(model.key, draw, turn),
                weights=weights,
                truth=self.record.truth,
                clock=self.record.clock,
                time_budget_s=self.record.panel.time_budget_s,
                progress=self.progress,
                environ=self.environ,
                draw=draw,
            )

    def _asks(self, model: str, draw: int, turn: int) -> list[Ask]:
        rows = by_place(self.current.rows)
        due = []
        for key in due_keys(self.board, draw, turn):
            messages = night_conversation(rows, model, self.board, key)
            if messages and (model, key) not in rows:
                due.append(Ask(key, messages, in_corpus=turn == 1))
        return due
