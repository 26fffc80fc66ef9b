"""The command that makes the site."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from drift.cli.asking import fetch_panel, make_run, say_outcome
from drift.cli.options import DataOption, known, open_record
from drift.config import project_root
from drift.errors import ConfigurationError, DriftError
from drift.terminal import bar, say, warn


def report(
    panel: Annotated[
        list[str] | None, typer.Option("--panel", help="Show only these records; may be repeated.")
    ] = None,
    data: DataOption = None,
    as_of: Annotated[str, typer.Option("--as-of", help="Leave out every run after this one.")] = "",
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Run this page, record/page or page, in any case, and show the others as they are "
            "kept; may be repeated. With --no-render nothing else is done."
        ),
    ] = None,
    why: Annotated[
        str, typer.Option(help="Only say what of a page's inputs changed since it was kept.")
    ] = "",
    render: Annotated[
        bool, typer.Option(help="Render the site; without it only execute the notebooks.")
    ] = True,
    refresh_first: Annotated[
        bool,
        typer.Option("--refresh", help="First fetch weights and make a run of the embedded panel."),
    ] = False,
) -> None:
    """Execute the notebooks over the records and render the site.

    With --refresh it also renders when the run is partial, paused or impossible on
    this machine, and says so on the front page.
    """
    from drift.report.execute import why_again
    from drift.report.site import RecordRef, build_site, plan, sidebar_lines

    root = project_root()
    folder = data or root / "data"
    note = _run_of_this_machine(data) if refresh_first and not why else ""
    # What this project's first run makes is announced before it is there.
    own = refresh_first or folder.resolve() == (root / "data").resolve()
    known(folder, [*(name for name in panel or () if name != "embedded"), *([] if own else ["."])])
    there = {path.parent.name for path in folder.glob("*/chain.jsonl")}
    names = panel or sorted(there | ({"embedded"} if own else set()))
    records = []
    for name in names:
        try:
            records.append(RecordRef(name, folder / name))
        except ConfigurationError as error:
            if panel:
                raise
            warn(f"not shown: {error}")
    if why:
        for line in why_again(plan(root, records, as_of), why, root):
            say(line)
        return
    with bar("pages") as progress:
        made = build_site(
            root=root,
            records=records,
            as_of=as_of,
            only=only or (),
            render=render,
            note=note,
            progress=progress,
            say=warn,
        )
    for line in sidebar_lines(root, [ref.name for ref in records]):
        warn(line)
    say(str(made))


def _run_of_this_machine(data: Path | None) -> str:
    """Refresh the embedded panel; return why there is no whole run, empty if there is one."""
    record = open_record("embedded", data)
    try:
        fetch_panel(record.panel)
        outcome = make_run(record, "")
    except DriftError as error:
        if error.exit_code not in (3, 5):
            raise
        warn(str(error))
        return f"This machine's run is missing: {error.what}."
    say_outcome(outcome)
    if outcome.exit_code not in (0, 3, 5):
        raise typer.Exit(outcome.exit_code)
    problems = [note for note in outcome.notes if outcome.codes]
    return f"This machine's run is not whole: {'; '.join(problems)}." if problems else ""
