"""The laboratory record: real models, and changes on the server's side that nobody asked for.

What we send never changes, so each series stays open; what the server does with it follows
a plan. Only the plan's hash is in the registration: it is opened after the last run, so the
analysis, which is registered in words, cannot have been fitted to it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pydantic import Field

from drift.config import Panel, ServerSpec, Strict, load_checked, sha256_hex
from drift.elicit import elicit, load_elicitor
from drift.errors import ConfigurationError
from drift.nights import board_night
from drift.records.batch import sealed_batches
from drift.records.ledger import write_atomically
from drift.records.replays import Nights, Replays
from drift.refresh import Outcome, Record


class Intervention(Strict):
    """From run `run` on the server of `model` is started as `server` says."""

    model: str
    run: int = Field(ge=2)
    what: str
    server: ServerSpec


class Plan(Strict):
    """How many runs are made, and what is done to which model.

    `salt` keeps a short plan from being guessed from its hash.
    """

    salt: str = Field(min_length=32)
    runs: int = Field(ge=2)
    interventions: tuple[Intervention, ...]

    def applied(self, panel: Panel, run: int) -> Panel:
        """Return the panel with the servers of one run; nothing that is sent differs."""
        servers = {item.model: item.server for item in self.interventions if item.run <= run}
        models = (
            model.model_copy(update={"server": servers.get(model.key, model.server)})
            for model in panel.models
        )
        return panel.model_copy(update={"models": tuple(models)})


def load_plan(path: Path, panel: Panel) -> Plan:
    """Read the plan that `panel` declares by its hash.

    Raises
    ------
    ConfigurationError
        It is another file, is no plan, or names a model that the panel has not.
    """
    plan = load_checked(path, Plan, kind="plan")
    found = sha256_hex(path.read_bytes())
    if found != panel.plan_sha256:
        raise ConfigurationError(
            "not the plan that the panel declares",
            where=str(path),
            got=found,
            expected=str(panel.plan_sha256),
            next_step="state its hash as plan_sha256 before the record is registered",
        )
    panel.narrowed(tuple(item.model for item in plan.interventions))
    return plan


def record_runs(
    record: Record, path: Path, *, runs: int | None = None, say: Callable[[str], None]
) -> Outcome:
    """Make the runs of the plan at `path`, or so many in all; a killed one is resumed.

    After the last run the plan is opened: it is written beside the record.
    """
    panel = record.panel
    plan = load_plan(path, panel)
    outcome = Outcome(notes=record.notes, sealed=True)
    while outcome.sealed and record.runs < min(runs or plan.runs, plan.runs):
        record.panel = plan.applied(panel, record.runs + 1)
        outcome = record.refresh(say=say)
    if record.runs >= plan.runs:
        write_atomically(record.store.plan, path.read_bytes())
        outcome.notes.append("all runs of the plan are made: plan.toml opens it")
    return outcome


def record_batches(record: Record, replays: Replays, *, say: Callable[[str], None]) -> Outcome:
    """Make the batches of the replays that the record does not hold; a killed one is resumed."""
    outcome = Outcome(notes=record.notes, sealed=True)
    made = {body["name"] for body, _ in sealed_batches(record.ledger.forwards())}
    for item in replays.batches:
        if item.name not in made and outcome.sealed:
            outcome = elicit(
                record,
                load_elicitor(item.elicitor, root=record.root),
                name=item.name,
                models=item.models,
                purpose=item.purpose,
                servers=item.servers,
                say=say,
            )
            say(f"batch {item.name}: {outcome.asked} answers, {outcome.failed} failed")
    return outcome


def record_nights(record: Record, planned: Nights, *, say: Callable[[str], None]) -> Outcome:
    """Make the planned nights that the record does not hold; a killed one is resumed."""
    outcome = Outcome(notes=record.notes, sealed=True)
    made = sum(line.kind == "night" for line in record.ledger.forwards())
    for number, item in enumerate(planned.nights[made:], start=made + 1):
        if outcome.sealed:
            outcome = board_night(record, servers=item.servers, what=item.what, say=say)
            say(f"night {number}: {outcome.asked} answers, {outcome.failed} failed")
    return outcome
