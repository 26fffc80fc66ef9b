"""Commands that read one record, or judge it again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from drift.cli.options import DataOption, JsonOption, PanelOption, known, open_record
from drift.config import project_root
from drift.errors import ConfigurationError
from drift.records.coding import read_coding, recount, seal_coding
from drift.records.compare import compare_runs
from drift.records.ledger import Ledger
from drift.records.status import record_status
from drift.records.store import Store
from drift.terminal import say

LOOK = "newly refused: {newly_refused}; newly answered: {newly_answered}; mid-p {midp}. {sentence}"


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
    record = open_record(panel, data)
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
        published, recounted = (rate_text(rate[name]) for name in ("published", "recounted"))
        say(f"{rate['run']} {rate['model']} {rate['measure']} rate: {published}; now {recounted}")
    if coder:
        runs = ", ".join(found["sealed"]) or "nothing new"
        say(f"sealed as labels of {coder}: {runs}; `drift verify` cannot derive them again")


def rate_text(rate: dict[str, Any] | None) -> str:
    if not rate:
        return "not published"
    if rate["estimate"] is None:
        return f"not estimable, {rate['reason']}"
    share, low, high = (f"{100 * rate[name]:.1f}" for name in ("estimate", "low", "high"))
    return f"{rate['refused']} of {rate['n']}, {share} % [{low}, {high}]"


def status(
    panel: PanelOption = "embedded", data: DataOption = None, as_json: JsonOption = False
) -> None:
    """Show what a record holds, what a run costs, and what is still open."""
    record = open_record(panel, data)
    found = record_status(record.panel, record.store, record.ledger, bank=record.bank_file)
    found["undeclared"] = record.undeclared()
    if as_json:
        print(json.dumps(found))
        return
    models = found.pop("models")
    if changes := ", ".join(found.pop("undeclared")):
        found["changed_since"] = (
            f"{changes}; undo it, or declare it by `drift register` with the same "
            "--panel and --data"
        )
    for name, value in found.items():
        say(f"{name.replace('_', ' ')}: {'none' if value is None else value}")
    for row in models:
        say(f"{row['model']}: {state_text(row)}; {cost_text(row)}")
    say("costs are upper estimates at the prices in the panel file")


def state_text(row: dict[str, Any]) -> str:
    """Return the state of a model's alarm, and how many runs it has seen."""
    if row["state"] is None:
        return "no run yet"
    runs = row["calibration"] or row["runs"]
    return f"{row['state']}, {runs} usable runs in series {row['series']}"


def cost_text(row: dict[str, Any]) -> str:
    """Return requests and US dollars of a full run, a day and a year, where there are any."""
    day = f", {row['requests_a_day']} a day" if row["requests_a_day"] else ""
    text = f"{row['requests_a_full_run']} requests a full run{day}"
    if row["usd_a_full_run"] is None:
        return text
    year = f", {row['usd_a_year']} a year" if row["usd_a_year"] else ""
    return f"{text}; {row['usd_a_full_run']} USD a full run{year}"


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
    known(folder, [panel])
    found = compare_runs(Store(folder / panel), Ledger(folder / panel), first, second)
    if as_json:
        print(json.dumps(found))
    else:
        for name, item in found["models"].items():
            named = {key: ", ".join(item[key]) or "none" for key in item if key.startswith("newly")}
            say(f"{name}: {item.get('reason') or LOOK.format(**item | named)}")
        say(found["words"])
    raise typer.Exit(2 if any("reason" in item for item in found["models"].values()) else 0)
