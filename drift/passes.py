"""Passes beside the runs, from their beginning to their seal: batches of ladders, nights.

A pass is stored as it is asked, and resumed after a kill by the command that began it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from drift.config import ModelSpec, ServerSpec, canonical_json, timestamp
from drift.errors import ConfigurationError, PartialError, PausedError
from drift.records.ledger import complete_end
from drift.records.passes import (
    READ_BY,
    Kind,
    Sealed,
    open_folder,
    open_passes,
    seal_pass,
    sealed_passes,
)
from drift.records.run import run_id
from drift.records.sealing import OpenRun
from drift.records.store import append_rows
from drift.refresh import MISSING_SHARE, Outcome, Record


@dataclass(frozen=True)
class Passes:
    """The passes of one kind of a record. `read` says the first word on one that is sealed."""

    record: Record
    kind: Kind
    read: Callable[[dict[str, Any]], None]

    def sealed(self) -> list[Sealed]:
        """Return the sealed passes with what was said of them, oldest first."""
        return sealed_passes(self.record.ledger.forwards(), self.kind, READ_BY[self.kind])

    def finish(self, name: str = "") -> str | None:
        """Complete what a kill left: an open file of a sealed pass, a pass that nobody read.

        Returns the pass of this `name` if it only had to be read. ConfigurationError if one is
        sealed already.
        """
        sealed, finished = self.sealed(), None
        for path in open_passes(self.record.store, self.kind):
            if not complete_end(path) or path.stem in {body["run"] for body, _ in sealed}:
                path.unlink()
        for body, words in sealed:
            mine = bool(name) and body["name"] == name
            if not words:
                self.read(body)
                self.record.notes.append(f"judged {self.kind} {body['run']}")
                finished = body["run"] if mine else finished
            elif mine:
                raise ConfigurationError(
                    f"a {self.kind} of this name is sealed already",
                    got=f"{name}, {self.kind} {body['run']}",
                    next_step=f"give the new {self.kind} another --name, or none",
                )
        return finished

    def resume(
        self, wanted: Mapping[str, Any], say: Callable[[str], None], *, seal_open: bool
    ) -> OpenRun | None:
        """Return the open pass if it is the one that is wanted; seal another only if told to."""
        for path in open_passes(self.record.store, self.kind):
            current = OpenRun.read(path)
            header = {key: current.header.get(key) for key in wanted}
            if canonical_json(header) == canonical_json(dict(wanted)):
                say(f"resuming {self.kind} {current.run}")
                if not current.heard:
                    current.ask_again(self.record.clock())
                return current
            if not current.heard:
                path.unlink()
                say(f"{self.kind} {current.run} was begun otherwise, and nobody answered: dropped")
            elif seal_open:
                self.seal_with_gaps(current)
                say(f"{self.kind} {current.run} was begun otherwise: sealed with its gaps")
            else:
                differs = [key for key in wanted if current.header.get(key) != wanted[key]]
                name = current.header.get("name")
                raise ConfigurationError(
                    f"another {self.kind} is open, which was begun otherwise",
                    where=str(path),
                    got=f"{self.kind} {current.run}{f' of the name {name}' if name else ''}; "
                    f"it differs in {', '.join(differs)}",
                    next_step="resume it by the command that began it, or add --seal-open to seal "
                    "it with its gaps",
                )
        return None

    def begin(self, wanted: Mapping[str, Any]) -> OpenRun:
        """Begin a pass with this header; its id, its number and its time are added."""
        sealed, now = self.sealed(), self.record.clock()
        run = f"{run_id(now)}-{wanted['corpus']['name']}"
        if sealed and run <= sealed[-1][0]["run"]:
            raise ConfigurationError(
                f"a {self.kind} must begin after the last one",
                got=f"the clock says {run}",
                next_step="wait a second, or set the machine's clock",
            )
        begun = {"run": run, "number": len(sealed) + 1, "started_at": timestamp(now)}
        path = open_folder(self.record.store, self.kind) / f"{run}.jsonl"
        append_rows(path, [begun | dict(wanted)])
        return OpenRun(path, begun | dict(wanted))

    def close(
        self,
        current: OpenRun,
        specs: Mapping[str, ModelSpec],
        outcome: Outcome,
        *,
        total: int,
        what: str,
    ) -> None:
        """Seal a pass that was asked to its end, or say why it stays open.

        `total` is how many answers each model was to give, `what` their name.
        """
        outcome.count(current)
        if not current.heard:
            outcome.problem(
                PausedError(
                    f"no model gave any answer: the {self.kind} is open, not sealed",
                    where=f"{self.kind} {current.run}",
                    next_step="mend the cause and run the same command: "
                    f"it asks this {self.kind} again",
                )
            )
        elif not outcome.paused:
            report_missing(current, outcome, total=total, what=what)
            self.seal(current, specs)
            outcome.sealed = True

    def seal(self, current: OpenRun, specs: Mapping[str, ModelSpec]) -> dict[str, Any]:
        """Seal a pass and have it read; return its body."""
        record = self.record
        body = seal_pass(record.store, record.ledger, self.kind, current, specs, at=record.clock())
        self.read(body)
        current.path.unlink()
        return body

    def seal_with_gaps(self, current: OpenRun) -> None:
        """Seal a pass that is not asked any further."""
        for model in current.header["models"]:
            current.stop(model, "sealed with its gaps")
        self.seal(current, {})


def asked_as(
    model: ModelSpec, server: ServerSpec | None, *, answer_tokens: int, context: int
) -> ModelSpec:
    """Return a model as a pass asks it: its own parameters, the answer length of the pass.

    `server` starts its own server otherwise than the panel says; `context` is what it needs.
    """
    server = server or model.server
    server = server.model_copy(update={"context": max(server.context, context)})
    return model.model_copy(update={"max_tokens": answer_tokens, "server": server})


def asked_with(model: ModelSpec) -> dict[str, Any]:
    """Return how the line of a pass names what a model is asked with."""
    document = {"instrument": model.instrument_hash(), "document": model.instrument()}
    return {"role": model.role} | document


def report_missing(current: OpenRun, outcome: Outcome, *, total: int, what: str) -> None:
    """Print isolated gaps; a model gone, or more than a tenth of its `total`, is partial."""
    for name in current.header["models"]:
        gone = total - sum(row["status"] != "failed" for row in current.rows_of(name))
        if gone:
            said = f"{name}: {gone} of {total} {what} are missing in {current.run}"
            if gone > MISSING_SHARE * total:
                outcome.problem(PartialError(said))
            else:
                outcome.notes.append(said)
