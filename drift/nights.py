"""Asks the board: the same probes every night, each twice, and stance probes once more.

A night is asked step by step, all probes of a step before the next, through the client that
asks a run; it is stored as it is asked, and resumed by the same command after a kill.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

from drift.board import Board, load_board
from drift.config import ModelSpec, ServerSpec, sha256_hex, timestamp
from drift.errors import ConfigurationError, DriftError, PartialError
from drift.judging.answers import load_board_rules
from drift.passes import Passes, asked_as, asked_with
from drift.probing.citations import Limits
from drift.probing.cost import BYTES_PER_TOKEN
from drift.probing.phantom import VirtualClock
from drift.probing.phantom_board import BoardTruth
from drift.probing.response import Ask
from drift.records.asking import Progress, afford, ask, cost_usd, seed_of
from drift.records.citations import check_citations, cited, open_citations
from drift.records.ledger import write_atomically
from drift.records.night import (
    SEEDS,
    STEPS,
    all_keys,
    due_keys,
    night_conversation,
    split_night_key,
)
from drift.records.passes import by_place, open_passes, sealed_passes
from drift.records.registration import corpus_copy, in_force
from drift.records.scores import Scoring, score_night, sealed_nights
from drift.records.sealing import OpenRun
from drift.refresh import Outcome, Record


def board_night(
    record: Record,
    *,
    models: Sequence[str] = (),
    servers: Mapping[str, ServerSpec] | None = None,
    what: str = "",
    citations: bool = False,
    seal_open: bool = False,
    progress: Progress | None = None,
    say: Callable[[str], None] = lambda text: None,
    environ: Mapping[str, str] = os.environ,
) -> Outcome:
    """Make one night: ask every probe of the board, seal the answers, score them.

    With `citations` the addresses in the answers are then looked for in the network; a
    phantom's are looked for in its own.

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
    rules = load_board_rules(record.root / "config" / "board.toml")
    length = {"answer_tokens": rules.asking.answer_tokens, "context": rules.asking.context}
    names = [model.model for model in record.panel.models]
    truth = BoardTruth(record.root, board, names) if record.truth else None
    narrowed = record.panel.narrowed(tuple(models))
    if truth:
        narrowed = tuple(model for model in narrowed if model.model in truth.models)
    chosen = [asked_as(model, (servers or {}).get(model.key), **length) for model in narrowed]
    if in_force(record.store, record.ledger) is None:
        # Nothing is committed to a record that cannot be asked from here.
        record.reachable(chosen, environ)
    registration = record.registered(say)
    if truth:
        _tick(record, truth)
    scoring = Scoring.load(record.root, record.judge)
    passes = Passes(record, "night", partial(_score, record, scoring))
    passes.finish()
    web = partial(_check_citations, record, rules.citations, truth) if citations else None
    if web:
        web(sealed_now=False)
    if made := _tonight(record, passes, say):
        outcome.run, outcome.scope, outcome.sealed = made, "board", True
        record.notes.append(f"the board was asked today already: night {made}; nothing is asked")
        return outcome
    wanted = _header(record, registration.hash, board, chosen, what)
    if truth:
        wanted["truth_sha256"] = sha256_hex(truth.file)
        write_atomically(record.store.board_truth, truth.file)
    write_atomically(corpus_copy(record.store, wanted["corpus"]), board_file.read_bytes())
    ready = record.reachable(chosen, environ)
    current = passes.resume(wanted, say, seal_open=seal_open) or passes.begin(wanted)
    outcome.run, outcome.scope = current.run, "board"
    asker = _Asker(record, current, board, ready, truth, progress, environ)
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
    if outcome.sealed and scoring.problem:
        outcome.problem(PartialError(**vars(scoring.problem)))
    if outcome.sealed and web:
        web(sealed_now=True)
    return outcome


def board_nights(record: Record, nights: int, **options: Any) -> Outcome:
    """Make one night; of a phantom as many as make `nights` in all. See :func:`board_night`.

    Raises
    ------
    ConfigurationError
        More than one night is wanted of a record whose time is not virtual.
    """
    if record.truth is None:
        if nights > 1:
            raise ConfigurationError(
                "only a phantom's nights follow each other at once: its time is virtual",
                got=f"{nights} nights of panel {record.panel.name}",
                next_step="make one night a day, for example from a scheduler",
            )
        return board_night(record, **options)
    outcome = Outcome(notes=record.notes, sealed=True)
    while outcome.sealed and len(sealed_nights(record.ledger.forwards())) < nights:
        outcome = board_night(record, **options)
    return outcome


def _tick(record: Record, truth: BoardTruth) -> None:
    """Move a phantom's clock to the beginning of its next night, which no other clock times."""
    made = len(sealed_nights(record.ledger.forwards()))
    assert isinstance(record.clock, VirtualClock)
    record.clock.now = truth.rules.start + timedelta(days=made)


def _score(record: Record, scoring: Scoring, body: Mapping[str, Any]) -> None:
    score_night(record.store, record.ledger, scoring, body, at=record.clock())


def _check_citations(
    record: Record, limits: Limits, truth: BoardTruth | None, *, sealed_now: bool
) -> None:
    """Look for the addresses of the last night, if that was not done and its day is not over.

    A link check that was begun and cut off is ended on another day without a request.
    """
    scored = sealed_nights(record.ledger.forwards())[-1:]
    checked = sealed_passes(record.ledger.forwards(), "night", "citations")[-1:]
    for (body, scores), (_, done) in zip(scored, checked, strict=True):
        path = open_citations(record.store, body)
        today = sealed_now or body["finished_at"][:10] == timestamp(record.clock())[:10]
        if done:
            path.unlink(missing_ok=True)
        if done or not scores or not (today or path.exists()):
            continue
        check_citations(
            record.store,
            record.ledger,
            body,
            cited(record.store, body, scores[-1]),
            limits.model_copy(update={"control": truth.rules.control}) if truth else limits,
            over=not today,
            web=truth.web(body["number"]) if truth else nullcontext({}),
            clock=record.clock,
        )


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
        if current.header["started_at"][:10] == today:
            continue
        if not current.heard:
            path.unlink()
            say(f"night {current.run} was begun on another day, and nobody answered: dropped")
        else:
            passes.seal_with_gaps(current)
            say(f"night {current.run} was not ended on its day: sealed with its gaps")
    last = passes.sealed()[-1:]
    return next((str(it["run"]) for it, _ in last if it["started_at"][:10] == today), None)


def _header(
    record: Record,
    registration: str,
    board: Board,
    chosen: Sequence[ModelSpec],
    what: str,
) -> dict[str, Any]:
    """Return what an open night begins with, but for its id, its number and its time."""
    return {
        "name": "",
        "what": what,
        "scope": "board",
        "slot": None,
        "registration": registration,
        "corpus": {"name": board.name, "version": board.version, "sha256": board.sha256},
        "cadence": cadence(record),
        "seeds": {model.key: SEEDS[model.seed_policy] for model in chosen},
        "keys": sorted(board.by_id),
        "models": [model.key for model in chosen],
        "instruments": {model.key: asked_with(model) for model in chosen},
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
    truth: BoardTruth | None
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
                self._asks(model, draw, turn),
                weights=weights,
                truth=self.truth,
                clock=self.record.clock,
                time_budget_s=self.record.panel.time_budget_s,
                progress=self.progress,
                environ=self.environ,
                draw=draw,
            )

    def _asks(self, model: ModelSpec, draw: int, turn: int) -> list[Ask]:
        rows, number = by_place(self.current.rows), self.current.header["number"]
        due = []
        for key in due_keys(self.board, draw, turn):
            messages = night_conversation(rows, model.key, self.board, key)
            if messages and (model.key, key) not in rows:
                # Answers under one seed are not independent of each other.
                own = seed_of(model, number, key) if model.seed_policy == "per-run" else None
                due.append(Ask(key, messages, in_corpus=turn == 1, seed=own))
        return due
