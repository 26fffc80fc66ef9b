"""Commands that check records without trust and without a network."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from typing import Annotated

import typer

from drift.cli.options import DataOption, JsonOption, named_records
from drift.config import project_root
from drift.records.reproduce import reproduce_record
from drift.records.store import locked
from drift.records.verify import verify_record
from drift.records.verify_chain import Verification
from drift.terminal import bar, say, warn


def verify(
    panel: Annotated[
        list[str] | None, typer.Option("--panel", help="Records to check; by default all.")
    ] = None,
    data: DataOption = None,
    labels: Annotated[
        bool, typer.Option(help="Also derive labels, series and readings again.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Check records offline, from texts to seals to chain to labels to readings.

    Names the first line, response or label that disagrees, and how; exit code 4 then.
    """
    found = []
    for name, folder in named_records(panel, data):
        with bar("runs") as progress:
            told = partial(progress, name)
            found.append(verify_record(folder, root=project_root(), rederive=labels, progress=told))
    if as_json:
        print(json.dumps([asdict(item) | {"assurance": item.assurance} for item in found]))
    else:
        for item in found:
            _say_verification(item)
        if not found:
            say(f"no record in {data or project_root() / 'data'}")
    raise typer.Exit(4 if any(item.problems for item in found) else 0)


def _say_verification(item: Verification) -> None:
    say(
        f"{item.panel}: {item.lines} ledger lines, {item.runs} runs, {item.responses} responses, "
        f"{item.labels} labels"
    )
    for step, seconds in item.seconds.items():
        say(f"  {step}: {seconds:.1f} s")
    for note in item.notes:
        say(f"  note: {note}")
    if item.labels_not_rederivable:
        say(f"  {item.labels_not_rederivable} labels are not re-derivable with this code")
    for problem in item.problems:
        say(f"  {problem.how}: {problem.where} ({problem.step}: {problem.detail})")
    if item.problems:
        say("  does not hold")
    elif item.head:
        why = "" if item.rederived else " (by hashes alone, nothing was derived again)"
        head = f"head {item.head['seq']} {item.head['hash']}"
        say(f"  holds; assurance {item.assurance}{why}; {head}")


def reproduce(
    panel: Annotated[
        list[str] | None, typer.Option("--panel", help="Records to make again; by default all.")
    ] = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Derive labels, readings and logs of records again, offline, and compare byte for byte.

    Names the first published number that is derived otherwise; exit code 4 then. Whether the
    answers are the sealed ones is for `verify` to say.
    """
    root, found = project_root(), []
    for name, folder in named_records(panel, data):
        scratch = root / ".cache" / "reproduce" / name
        busy = locked(scratch.with_name(f"{name}.lock"), doing="deriving this record again")
        with busy, bar("runs") as progress:
            told = partial(progress, name)
            found.append(reproduce_record(folder, root=root, scratch=scratch, progress=told))
        if found[-1].difference:
            warn(f"{name}: what was derived is in {scratch}")
    if as_json:
        print(json.dumps([asdict(item) for item in found]))
    else:
        for item in found:
            say(str(item))
        if not found:
            say(f"no record in {data or project_root() / 'data'}")
    raise typer.Exit(4 if any(item.difference for item in found) else 0)
