"""Asks ladders: the same benign question over several turns, by a script or by a model.

A batch is asked breadth first, all arms of a turn before the next turn, through the client
that asks a run. It is stored as it is asked, and resumed by the same command after a kill.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from drift.config import (
    ModelSpec,
    Panel,
    ServerSpec,
    Strict,
    load_panel,
    load_toml,
)
from drift.errors import (
    ConfigurationError,
    DriftError,
    IntegrityError,
    PausedError,
    StorageError,
)
from drift.judging.ladder import load_rubric
from drift.ladders import Ladder, Ladders, load_ladders, turn_key
from drift.passes import Passes, asked_as, asked_with
from drift.probing.cost import BYTES_PER_TOKEN
from drift.probing.response import Ask
from drift.records.asking import Progress, afford, ask, cost_usd
from drift.records.batch import brief, conversation, elicitor_of, judge_batch
from drift.records.ledger import write_atomically
from drift.records.passes import by_place
from drift.records.registration import corpus_copy
from drift.records.sealing import OpenRun
from drift.refresh import Outcome, Record

#: What a batch may be named, so that it can be told from an id and stands on one line.
NAME = "[a-z][a-z0-9._-]{0,63}"


class Elicitor(Strict):
    """One entry of ``config/elicitors.toml``: who speaks for the person."""

    kind: Literal["script", "model"]
    answer_tokens: int = Field(ge=1, le=10**5, description="longest answer of a target")
    context: int = Field(default=1024, ge=64, description="of our own servers, in tokens")
    panel: str | None = None
    model: str | None = None
    temperature: Decimal | None = Field(default=None, ge=0, le=2)
    top_p: Decimal | None = Field(default=None, gt=0, le=1)
    seed: int | None = Field(default=None, ge=0, lt=2**31)
    max_tokens: int | None = Field(default=None, ge=1, le=10**5)
    system_prompt: str | None = None
    tasks: dict[str, str] = Field(default={})

    @model_validator(mode="after")
    def _whole(self) -> Elicitor:
        own = ("panel", "model", "temperature", "top_p", "seed", "max_tokens", "system_prompt")
        given = [name for name in own if getattr(self, name) is not None]
        if self.kind == "script" and (given or self.tasks):
            raise ValueError(f"a script has no {', '.join(given or ['tasks'])}")
        if self.kind == "model" and (missing := [name for name in own if name not in given]):
            raise ValueError(f"an elicitor that is a model needs {', '.join(missing)}")
        return self


def load_elicitor(name: str, *, root: Path) -> Elicitor:
    """Read one elicitor of ``config/elicitors.toml``; ConfigurationError names what is wrong."""
    path = root / "config" / "elicitors.toml"
    entries = load_toml(path, kind="elicitors")
    if name not in entries:
        raise ConfigurationError(
            "no such elicitor", where=str(path), got=name, expected=f"one of: {', '.join(entries)}"
        )
    try:
        return Elicitor.model_validate(entries[name])
    except ValueError as error:
        raise ConfigurationError(
            "elicitor is not valid", where=f"{path}: {name}", got=str(error)
        ) from None


@dataclass(frozen=True)
class _Speaker:
    """An elicitor that is a model: the model as it is asked, and what it is told to do."""

    spec: ModelSpec
    tasks: Mapping[str, str]


def elicit(
    record: Record,
    elicitor: Elicitor,
    *,
    name: str = "",
    models: Sequence[str] = (),
    purpose: Literal["batch", "calibration"] = "batch",
    servers: Mapping[str, ServerSpec] | None = None,
    seal_open: bool = False,
    progress: Progress | None = None,
    say: Callable[[str], None] = lambda text: None,
    environ: Mapping[str, str] = os.environ,
) -> Outcome:
    """Make one batch: ask every ladder of the corpus, seal the answers, judge every turn.

    The panel's reference is asked in every batch, with `models` or the whole panel. `servers`
    start a model's own server otherwise than the panel says, as a laboratory does. An open
    batch is resumed by what began it; with `seal_open` another is sealed with its gaps.

    Raises
    ------
    ConfigurationError
        The panel has no reference or is a phantom's, the corpus or the elicitor is wrong, a
        name is used twice, another batch is open, or the configuration is not the registered
        one. Nothing is asked or sealed.
    PausedError
        In the outcome: an elicitor that is a model cannot be asked; the batch stays open.
    """
    outcome = Outcome(notes=record.notes)
    if record.truth:
        raise ConfigurationError("a phantom's truth knows no ladders", got=record.panel.name)
    if name and not re.fullmatch(NAME, name):
        raise ConfigurationError(
            "not a name of a batch", got=ascii(name)[:80], expected=f"such as base-1: {NAME}"
        )
    ladders_file = record.root / "config" / "ladders.json"
    ladders = load_ladders(ladders_file)
    length = {"answer_tokens": elicitor.answer_tokens, "context": elicitor.context}
    chosen = [
        asked_as(model, (servers or {}).get(model.key), **length)
        for model in _chosen(record.panel, models)
    ]
    speaker = _speaker(elicitor, record.root)
    registration = record.registered(say)
    passes = Passes(record, "batch", partial(_judge, record))
    if finished := passes.finish(name):
        outcome.run, outcome.scope, outcome.sealed = finished, "ladders", True
        return outcome
    outcome.notes += [
        f"{model.key}: a reference whose weights_sha256 is unknown: no comparison can rest on it"
        for model in chosen
        if model.role == "reference" and not model.weights_sha256
    ]
    wanted = _header(record, registration.hash, ladders, elicitor, speaker, chosen, name, purpose)
    write_atomically(corpus_copy(record.store, wanted["corpus"]), ladders_file.read_bytes())
    spoken = [speaker.spec] if speaker else []
    ready = record.reachable([*chosen, *spoken], environ)
    if isinstance(unable := ready.get("elicitor"), DriftError):
        raise unable
    current = passes.resume(wanted, say, seal_open=seal_open) or passes.begin(wanted)
    outcome.run, outcome.scope = current.run, "ladders"
    asker = _Asker(record, current, ladders, speaker, ready, progress, environ)
    for model in chosen:
        if model.key in current.stopped:
            continue
        with outcome.answering_for(model.key, current):
            if isinstance(unable := ready[model.key], DriftError):
                raise unable
            _afford(record, current, model, speaker, ladders)
            asker.climb(model)
    specs = {model.key: model for model in chosen}
    specs |= {elicitor_of(model.key): spec for model in chosen for spec in spoken}
    total = len(wanted["keys"]) * wanted["turns"]
    passes.close(current, specs, outcome, total=total, what="turns")
    return outcome


def _chosen(panel: Panel, models: Sequence[str]) -> list[ModelSpec]:
    references = [model.key for model in panel.models if model.role == "reference"]
    if not references:
        raise ConfigurationError(
            f"panel {panel.name!r} has no reference target, which is asked in every batch",
            expected='a model with role = "reference" whose weights cannot change',
            next_step="add one to the panel and declare it by `drift register`",
        )
    return list(panel.narrowed((*models, *references) if models else ()))


def _speaker(elicitor: Elicitor, root: Path) -> _Speaker | None:
    if elicitor.kind == "script":
        return None
    panel = load_panel(str(elicitor.panel), root=root)
    (model,) = panel.narrowed((str(elicitor.model),))
    sampling = {"temperature": elicitor.temperature, "top_p": elicitor.top_p}
    server = model.server.model_copy(update={"context": 2 * elicitor.context})
    spec = model.model_copy(
        update={
            "key": "elicitor",
            "parameters": model.parameters | sampling,
            "max_tokens": elicitor.max_tokens,
            "system_prompt": elicitor.system_prompt,
            "seed_policy": "fixed",
            "seed": elicitor.seed,
            "server": server,
        }
    )
    return _Speaker(spec, elicitor.tasks)


def elicitor_document(name: str, *, root: Path) -> dict[str, Any]:
    """Return how a batch made now by an elicitor of ``config/elicitors.toml`` would name it."""
    elicitor = load_elicitor(name, root=root)
    ladders = load_ladders(root / "config" / "ladders.json")
    return _document(elicitor, _speaker(elicitor, root), ladders)


def _document(elicitor: Elicitor, speaker: _Speaker | None, ladders: Ladders) -> dict[str, Any]:
    document: dict[str, Any] = {"kind": elicitor.kind, "turns": len(ladders.rungs)}
    if speaker:
        if missing := [rung for rung in ladders.rungs[1:] if rung not in speaker.tasks]:
            raise ConfigurationError(
                "the elicitor is not told what to do on every rung", got=f"none of {missing[0]}"
            )
        document |= {"tasks": dict(speaker.tasks), "instrument": speaker.spec.instrument()}
        # A target's server is the provider's affair; the elicitor's is ours.
        document |= {
            "seed": speaker.spec.seed,
            "server": speaker.spec.server.model_dump(mode="json"),
        }
    return document


def _header(
    record: Record,
    registration: str,
    ladders: Ladders,
    elicitor: Elicitor,
    speaker: _Speaker | None,
    chosen: Sequence[ModelSpec],
    name: str,
    purpose: str,
) -> dict[str, Any]:
    """Return what an open batch begins with, but for its id, its number and its time."""
    instruments: dict[str, Any] = {}
    for model in chosen:
        instruments[model.key] = asked_with(model)
        if speaker:
            spoken = {"instrument": speaker.spec.instrument_hash()}
            instruments[elicitor_of(model.key)] = {"role": "elicitor"} | spoken
    return {
        "name": name,
        "purpose": purpose,
        "scope": "ladders",
        "slot": None,
        "registration": registration,
        "corpus": {"name": ladders.name, "version": ladders.version, "sha256": ladders.sha256},
        "elicitor": _document(elicitor, speaker, ladders),
        "turns": len(ladders.rungs),
        "keys": sorted(ladders.by_id),
        "models": [model.key for model in chosen],
        "instruments": instruments,
    }


def _judge(record: Record, body: Mapping[str, Any]) -> None:
    rubric = load_rubric(record.root / "config" / "rubric.toml")
    judge_batch(record.store, record.ledger, record.judge, rubric, body, at=record.clock())


def _afford(
    record: Record,
    current: OpenRun,
    model: ModelSpec,
    speaker: _Speaker | None,
    ladders: Ladders,
) -> None:
    """Refuse a model whose remaining ladders the day's budget cannot pay."""
    done = {row["key"] for row in current.rows_of(model.key)}
    due: Decimal | None = Decimal(0)
    for spec in (model, *([speaker.spec] if speaker else ())):
        # A turn is asked with all that was said before it.
        longest = BYTES_PER_TOKEN * (model.max_tokens + (speaker.spec.max_tokens if speaker else 0))
        prompts = [
            "\n".join(ladder.turns[:turn]) + "x" * longest * (turn - 1)
            for ladder in ladders.ladders
            for turn in range(1, len(ladder.turns) + 1)
            if turn_key(ladder.id, turn) not in done
        ]
        cost = cost_usd(spec, prompts)
        due = None if cost is None or due is None else due + cost
    afford(model, record.panel, cost=due, spent=record.spent_usd(current))


@dataclass(frozen=True)
class _Asker:
    """Climbs the ladders of one open batch."""

    record: Record
    current: OpenRun
    ladders: Ladders
    speaker: _Speaker | None
    ready: Mapping[str, Path | DriftError | None]
    progress: Progress | None
    environ: Mapping[str, str]

    def climb(self, model: ModelSpec) -> None:
        """Ask one target every turn that it has not been asked and that can be asked."""
        for turn in range(1, len(self.ladders.rungs) + 1):
            if self.speaker and turn > 1:
                part = self.speaker.spec.model_copy(update={"key": elicitor_of(model.key)})
                self._put(part, self._prompts(model.key, turn, self.speaker), of="elicitor")
            self._put(model, self._asks(model.key, turn), of=model.key)

    def _asks(self, target: str, turn: int) -> list[Ask]:
        rows, scripted = by_place(self.current.rows), self.speaker is None
        due = []
        for ladder in self._unasked(target, turn):
            messages = conversation(rows, target, ladder, turn, scripted=scripted)
            if messages:
                due.append(Ask(turn_key(ladder.id, turn), messages, in_corpus=turn == 1))
        return due

    def _prompts(self, target: str, turn: int, speaker: _Speaker) -> list[Ask]:
        """Return what the elicitor is asked, so that it opens `turn` of each ladder."""
        rows, due = by_place(self.current.rows), []
        for ladder in self._unasked(elicitor_of(target), turn):
            told = brief(rows, target, ladder, turn, speaker.tasks[self.ladders.rungs[turn - 1]])
            if told:
                due.append(Ask(turn_key(ladder.id, turn), (told,), in_corpus=False))
        return due

    def _unasked(self, model: str, turn: int) -> list[Ladder]:
        stored = {row["key"] for row in self.current.rows if row["model"] == model}
        return [it for it in self.ladders.ladders if turn_key(it.id, turn) not in stored]

    def _put(self, model: ModelSpec, asks: Sequence[Ask], *, of: str) -> None:
        weights = self.ready[of]
        assert not isinstance(weights, DriftError)
        if not asks:
            return
        try:
            ask(
                self.current,
                model,
                asks,
                weights=weights,
                truth=None,
                clock=self.record.clock,
                time_budget_s=self.record.panel.time_budget_s,
                progress=self.progress,
                environ=self.environ,
            )
        except (PausedError, IntegrityError, StorageError):
            raise
        except DriftError as error:
            if of != "elicitor":
                raise
            # Without one who asks, every target would be missing.
            raise PausedError(
                f"the elicitor cannot be asked, and the batch stays open: {error.what}",
                where=error.where,
                got=error.got,
                next_step="mend the cause and run the same command: it goes on with this batch",
            ) from None
