"""Commands that ask models, or ready what is asked."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from drift.bank import load_bank
from drift.cli.options import DataOption, JsonOption, PanelOption, open_record
from drift.config import Panel, load_panel, load_toml, project_root
from drift.elicit import elicit as make_batch
from drift.elicit import load_elicitor
from drift.errors import DriftError, PartialError
from drift.lab import record_batches, record_nights, record_runs
from drift.nights import board_nights
from drift.probing.weights import fetch_weights
from drift.records.replays import load_nights, load_replays
from drift.refresh import Outcome, Record
from drift.terminal import bar, say, warn


def refresh(
    panel: PanelOption = "embedded",
    data: DataOption = None,
    models: Annotated[
        str, typer.Option(help="Only these models, by key, with commas; also REFUSAL_DRIFT_MODELS.")
    ] = "",
    runs: Annotated[
        int | None, typer.Option(min=1, help="Of a phantom: go on until it holds so many runs.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make one run: ask the panel, seal the answers, judge them, derive the reading.

    A run that was killed or paused, or that no model answered, is resumed while its slot
    lasts. The record is registered first if it is new. Only a phantom's runs can follow
    each other at once.
    """
    record = open_record(panel, data)
    outcome = make_run(record, models, runs if record.truth or runs != 1 else None)
    end(outcome, as_json)


def make_run(record: Record, models: str, runs: int | None = None) -> Outcome:
    chosen = models or os.environ.get("REFUSAL_DRIFT_MODELS", "")
    keys = [key.strip() for key in chosen.split(",") if key.strip()]
    with record.opened(), bar("runs" if runs else "answers") as progress:
        if runs:
            return record.refresh_to(runs, models=keys, progress=progress)
        return record.refresh(models=keys, progress=progress, say=warn)


def end(outcome: Outcome, as_json: bool = False) -> NoReturn:
    """Say what came of a command, and leave with its exit code."""
    if as_json:
        print(json.dumps(asdict(outcome) | {"exit_code": outcome.exit_code}))
    else:
        say_outcome(outcome)
    raise typer.Exit(outcome.exit_code)


def say_outcome(outcome: Outcome) -> None:
    for note in outcome.notes:
        warn(note)
    state = "sealed" if outcome.sealed else "still open"
    if outcome.run:
        stored = f"{outcome.asked - outcome.failed} answers stored"
        failed = f", {outcome.failed} failed" if outcome.failed else ""
        say(f"run {outcome.run} ({outcome.scope}): {stored}{failed}, {state}")


def register(
    panel: PanelOption = "embedded",
    data: DataOption = None,
    seed: Annotated[
        str | None,
        typer.Option(help="Alarm seed, 64 lower-case hex digits; by default from the system."),
    ] = None,
) -> None:
    """Commit to corpus, panel, instruments, judge and alarm before the first run.

    Run again after a change of the configuration, it declares the change.
    """
    record = open_record(panel, data)
    with record.opened():
        sealed, changes = record.register(seed=seed)
    for note in record.notes:
        warn(note)
    for change in changes:
        say(f"changed: {change}")
    say(f"registration in force: {sealed.hash}")


def lab_record(
    plan: Annotated[Path, typer.Option(help="The plan whose hash the panel file declares.")],
    panel: PanelOption = "lab",
    data: DataOption = None,
    runs: Annotated[
        int | None, typer.Option(min=1, help="Stop at so many runs; by default at the plan's end.")
    ] = None,
) -> None:
    """Make the runs of a laboratory record, one after the other; go on where it stopped.

    Between them the server of a model changes as the plan says; what is sent never does.
    """
    record = open_record(panel, data)
    with record.opened():
        outcome = record_runs(record, plan, runs=runs, say=warn)
    end(outcome)


def elicit(
    panel: PanelOption = "embedded",
    data: DataOption = None,
    elicitor: Annotated[str, typer.Option(help="A name in config/elicitors.toml.")] = "scripted",
    models: Annotated[
        str, typer.Option(help="Only these models, by key, with commas; the reference comes along.")
    ] = "",
    name: Annotated[str, typer.Option(help="A name for the batch, used once in a record.")] = "",
    seal_open: Annotated[
        bool, typer.Option("--seal-open", help="Seal another open batch with its gaps first.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Make one batch of ladders: each question over several turns, sealed and judged by turn.

    A batch that was killed or paused is resumed by the same command.
    """
    record = open_record(panel, data)
    keys = [key.strip() for key in models.split(",") if key.strip()]
    with record.opened(), bar("turns") as progress:
        outcome = make_batch(
            record,
            load_elicitor(elicitor, root=record.root),
            name=name,
            models=keys,
            seal_open=seal_open,
            progress=progress,
            say=warn,
        )
    end(outcome, as_json)


def lab_ladders(panel: PanelOption = "lab", data: DataOption = None) -> None:
    """Make the batches of config/replays.toml that the record lacks; go on where it stopped."""
    record = open_record(panel, data)
    with record.opened():
        outcome = record_batches(record, load_replays(record.root), say=warn)
    end(outcome)


def lab_nights(panel: PanelOption = "lab", data: DataOption = None) -> None:
    """Make the nights of config/nights.toml that the record lacks; go on where it stopped."""
    record = open_record(panel, data)
    with record.opened():
        outcome = record_nights(record, load_nights(record.root), say=warn)
    end(outcome)


def board(
    panel: PanelOption = "embedded",
    data: DataOption = None,
    models: Annotated[str, typer.Option(help="Only these models, by key, with commas.")] = "",
    citations: Annotated[
        bool, typer.Option(help="Look in the network for the addresses that answers cite.")
    ] = True,
    seal_open: Annotated[
        bool, typer.Option("--seal-open", help="Seal another open night with its gaps first.")
    ] = False,
    nights: Annotated[
        int, typer.Option(min=1, help="Of a phantom: go on until it holds so many nights.")
    ] = 1,
    as_json: JsonOption = False,
) -> None:
    """Make one night of the board: ask its probes twice, push back, seal and score the answers.

    Once a UTC day; a night that was killed or paused is resumed by the same command that day.
    """
    record = open_record(panel, data)
    chosen = models or os.environ.get("REFUSAL_DRIFT_MODELS", "")
    keys = [key.strip() for key in chosen.split(",") if key.strip()]
    with record.opened(), bar("answers") as progress:
        outcome = board_nights(
            record,
            nights,
            models=keys,
            citations=citations,
            seal_open=seal_open,
            progress=progress,
            say=warn,
        )
    end(outcome, as_json)


def bank_check(
    file: Annotated[Path | None, typer.Argument(help="By default config/probe_bank.json.")] = None,
) -> None:
    """Validate a probe bank; each problem is printed with its place in the file."""
    path = file or project_root() / "config" / "probe_bank.json"
    bank = load_bank(path)
    controls = sum(family.control for family in bank.families)
    chinese = sum(family.zh is not None for family in bank.families)
    say(
        f"{path}: version {bank.version}, {len(bank.families)} families "
        f"({len(bank.families) - controls} sensitive, {controls} controls), "
        f"{chinese} with a Chinese twin, {len(bank.arms('full'))} arms; no problem"
    )


def weights_fetch(
    panel: Annotated[
        str | None, typer.Option("--panel", help="Only the weights this panel names.")
    ] = None,
) -> None:
    """Fetch the embedded weights and check them by SHA-256; cached files are only checked.

    Exit code 4 when a file has a wrong byte, 5 when it cannot be had from here.
    """
    root = project_root()
    if panel:
        return fetch_panel(load_panel(panel, root=root))
    return _fetch_named(load_toml(root / "config" / "weights.toml", kind="weights list"))


def fetch_panel(panel: Panel) -> None:
    _fetch_named(model.weights for model in panel.models if model.weights)


def _fetch_named(names: Iterable[str]) -> None:
    with bar("bytes") as progress:
        for name in sorted(set(names)):
            try:
                path = fetch_weights(name, root=project_root(), progress=progress)
            except DriftError as error:
                if error.exit_code != 1:
                    raise
                raise PartialError(**vars(error)) from None
            warn(f"{name}: checked, {path.stat().st_size} bytes")
