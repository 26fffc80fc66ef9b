"""The ``drift`` command.

Exit codes: 0 ok, 1 failure, 2 usage or configuration, 3 paused (resume later),
4 integrity, 5 partial.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from drift import __version__
from drift.bank import load_bank
from drift.config import Panel, load_panel, load_toml, project_root
from drift.errors import ConfigurationError, DriftError, PartialError
from drift.lab import record_runs
from drift.probing.weights import fetch_weights
from drift.records.coding import read_coding, recount, seal_coding
from drift.records.compare import compare_runs
from drift.records.ledger import Ledger
from drift.records.reproduce import reproduce_record
from drift.records.status import record_status
from drift.records.store import Store, locked
from drift.records.verify import verify_record
from drift.records.verify_chain import Verification
from drift.refresh import Outcome, Record
from drift.terminal import bar, out, say, warn

app = typer.Typer(
    help="Ask a panel of models the same benign questions, seal and judge the answers, "
    "and show when a model's answering behaviour changes.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
lab_app = typer.Typer(help="The laboratory record.", no_args_is_help=True)
bank_app = typer.Typer(help="The probe bank.", no_args_is_help=True)
weights_app = typer.Typer(help="Weights of the embedded models.", no_args_is_help=True)
app.add_typer(lab_app, name="lab")
app.add_typer(bank_app, name="bank")
app.add_typer(weights_app, name="weights")

PanelOption = Annotated[
    str, typer.Option("--panel", help="A name in config/panels, or the path of a panel file.")
]
DataOption = Annotated[
    Path | None,
    typer.Option("--data", help="Folder that holds the records; by default data/ of the project."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


def main() -> None:
    """Run the command line; a known error becomes a message and its exit code."""
    try:
        app(prog_name="drift", standalone_mode=True)
    except DriftError as error:
        warn(f"error: {error}")
        sys.exit(error.exit_code)
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        warn(f"error: {error.strerror or error}{where}; what was stored stays, run it again")
        sys.exit(1)
    except KeyboardInterrupt:
        warn("interrupted; a run that was being asked is resumed by the next refresh")
        sys.exit(130)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"drift {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def _record(panel: str, data: Path | None) -> Record:
    root = project_root()
    loaded = load_panel(panel, root=root)
    return Record(loaded, folder=(data or root / "data") / loaded.name, root=root)


def _refresh(record: Record, models: str, runs: int | None = None) -> Outcome:
    chosen = models or os.environ.get("REFUSAL_DRIFT_MODELS", "")
    keys = [key.strip() for key in chosen.split(",") if key.strip()]
    with record.opened(), bar("runs" if runs else "answers") as progress:
        if runs:
            return record.refresh_to(runs, models=keys, progress=progress)
        return record.refresh(models=keys, progress=progress, say=warn)


def _say_outcome(outcome: Outcome) -> None:
    for note in outcome.notes:
        warn(note)
    state = "sealed" if outcome.sealed else "still open"
    if outcome.run:
        say(f"run {outcome.run} ({outcome.scope}): {outcome.asked} answers stored, {state}")


@app.command()
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

    A run that was killed or paused is resumed while its slot lasts. The record is
    registered first if it is new. Only a phantom's runs can follow each other at once.
    """
    record = _record(panel, data)
    outcome = _refresh(record, models, runs if record.truth or runs != 1 else None)
    if as_json:
        print(json.dumps(asdict(outcome) | {"exit_code": outcome.exit_code}))
    else:
        _say_outcome(outcome)
    raise typer.Exit(outcome.exit_code)


@app.command()
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
    _known(folder, [*(name for name in panel or () if name != "embedded"), *([] if own else ["."])])
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
    record = _record("embedded", data)
    try:
        _fetch(record.panel)
        outcome = _refresh(record, "")
    except DriftError as error:
        if error.exit_code not in (3, 5):
            raise
        warn(str(error))
        return f"This machine's run is missing: {error.what}."
    _say_outcome(outcome)
    if outcome.exit_code not in (0, 3, 5):
        raise typer.Exit(outcome.exit_code)
    problems = [note for note in outcome.notes if outcome.codes]
    return f"This machine's run is not whole: {'; '.join(problems)}." if problems else ""


@app.command()
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
    for name, folder in _records(panel, data):
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


@app.command()
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
    for name, folder in _records(panel, data):
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


def _records(panel: list[str] | None, data: Path | None) -> list[tuple[str, Path]]:
    """Return the records named, or all that are there, each with its folder."""
    folder = data or project_root() / "data"
    names = panel or sorted(path.name for path in folder.glob("*") if Store(path).holds_anything())
    _known(folder, names if data is None else [*names, "."])
    return [(name, folder / name) for name in names]


def _known(folder: Path, names: list[str]) -> None:
    """Refuse a record, or a folder of records, that is not there."""
    missing = [
        name
        for name in names
        if not (folder.is_dir() if name == "." else Store(folder / name).holds_anything())
    ]
    if missing:
        present = sorted(path.name for path in folder.glob("*") if Store(path).holds_anything())
        raise ConfigurationError(
            "no such record",
            where=str(folder),
            got=", ".join(missing),
            expected=", ".join(present) or "a folder that holds records",
            next_step="correct --panel or --data",
        )


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


@app.command()
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
    record = _record(panel, data)
    with record.opened():
        sealed, changes = record.register(seed=seed)
    for note in record.notes:
        warn(note)
    for change in changes:
        say(f"changed: {change}")
    say(f"registration in force: {sealed.hash}")


@app.command()
def rescore(
    panel: PanelOption = "embedded",
    data: DataOption = None,
    labels: Annotated[
        Path | None, typer.Option(help="Count with the labels of this file instead; JSON lines.")
    ] = None,
    coder: Annotated[
        str | None, typer.Option(help="Seal the labels of the file under this public name.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Label all stored answers with the present judge; list the labels that move.

    Earlier labels stay sealed. Which labels the series read is settled by `register`. With
    --labels no judge is asked: the file's labels, such as the page `transcripts` exports, are
    counted beside the published ones. With --coder they become labels of a further judge.
    """
    if coder and not labels:
        raise ConfigurationError("--coder seals the labels of a file", next_step="add --labels")
    record = _record(panel, data)
    found: dict[str, Any] = {}
    if labels:
        coding = read_coding(labels, record.store, record.ledger)
        found = recount(coding, record.store)
        if coder:
            with record.opened():
                found["sealed"] = seal_coding(
                    coding, coder, record.store, record.ledger, clock=record.clock
                )
    else:
        with record.opened():
            found["moves"] = record.rescore()
    if as_json:
        print(json.dumps(found if labels else found["moves"]))
        return
    for move in found["moves"]:
        say("{run} {model} {key}: {before} -> {after} by {rule}".format(**move))
    moved = len(found["moves"])
    same = f"{found['set']} labels set, {found['set'] - moved} agree with ours; " if labels else ""
    say(f"{same}{moved} labels move")
    for rate in found.get("rates", ()):
        published, recounted = (_rate_text(rate[name]) for name in ("published", "recounted"))
        say(f"{rate['run']} {rate['model']} {rate['measure']} rate: {published}; now {recounted}")
    if coder:
        runs = ", ".join(found["sealed"]) or "nothing new"
        say(f"sealed as labels of {coder}: {runs}; `drift verify` cannot derive them again")


def _rate_text(rate: dict[str, Any] | None) -> str:
    if not rate:
        return "not published"
    if rate["estimate"] is None:
        return f"not estimable, {rate['reason']}"
    share, low, high = (f"{100 * rate[name]:.1f}" for name in ("estimate", "low", "high"))
    return f"{rate['refused']} of {rate['n']}, {share} % [{low}, {high}]"


@app.command()
def status(
    panel: PanelOption = "embedded", data: DataOption = None, as_json: JsonOption = False
) -> None:
    """Show what a record holds, what a run costs, and what is still open."""
    record = _record(panel, data)
    found = record_status(record.panel, record.store, record.ledger, bank=record.bank_file)
    if as_json:
        print(json.dumps(found))
        return
    models = found.pop("models")
    for name, value in found.items():
        say(f"{name.replace('_', ' ')}: {'none' if value is None else value}")
    table = Table(*(name.replace("_", " ") for name in models[0]), box=None)
    for row in models:
        table.add_row(*("" if value is None else str(value) for value in row.values()))
    out.print(table)
    say("costs are upper estimates at the prices in the panel file")


@app.command()
def compare(
    first: Annotated[str, typer.Argument(metavar="RUN_A", help="The earlier run.")],
    second: Annotated[str, typer.Argument(metavar="RUN_B", help="The later run.")],
    panel: Annotated[str, typer.Option(help="The record's name.")] = "embedded",
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare two runs of one series: one look, fixed beforehand, and never a series of looks.

    Shows for each model what was newly refused and newly answered, the mid-p value, and the
    fewest flips that this look can call significant. Exit code 2 if a model's series ended.
    """
    folder = data or project_root() / "data"
    _known(folder, [panel])
    found = compare_runs(Store(folder / panel), Ledger(folder / panel), first, second)
    if as_json:
        print(json.dumps(found))
    else:
        for name, item in found["models"].items():
            named = {key: ", ".join(item[key]) or "none" for key in item if key.startswith("newly")}
            say(f"{name}: {item.get('reason') or _LOOK.format(**item | named)}")
        say(found["words"])
    raise typer.Exit(2 if any("reason" in item for item in found["models"].values()) else 0)


_LOOK = "newly refused: {newly_refused}; newly answered: {newly_answered}; mid-p {midp}. {sentence}"


@lab_app.command("record")
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
    record = _record(panel, data)
    with record.opened():
        outcome = record_runs(record, plan, runs=runs, say=warn)
    _say_outcome(outcome)
    raise typer.Exit(outcome.exit_code)


@bank_app.command("check")
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


@weights_app.command("fetch")
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
        return _fetch(load_panel(panel, root=root))
    return _fetch_named(load_toml(root / "config" / "weights.toml", kind="weights list"))


def _fetch(panel: Panel) -> None:
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
