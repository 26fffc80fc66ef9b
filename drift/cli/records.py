"""Commands that read one record, or judge it again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from drift.cli.options import DataOption, JsonOption, PanelOption, known, open_record
from drift.config import project_root
from drift.errors import ConfigurationError
from drift.instrument import points
from drift.records.coding import read_coding, recount, seal_coding
from drift.records.compare import compare_passes
from drift.records.ledger import Ledger
from drift.records.pins import PinnedRecord
from drift.records.status import record_status
from drift.records.store import Store
from drift.terminal import say, warn

CAUTION = "caution, the provider says otherwise of itself: {path}: {before} -> {after}"
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
            batches, nights = record.rescore_batches(), record.rescore_nights()
    if as_json:
        print(json.dumps(found if labels else found["moves"]))
        return
    for move in found["moves"]:
        say("{run} {model} {key}: {before} -> {after} by {rule}".format(**move))
    moved = len(found["moves"])
    same = f"{found['set']} labels set, {found['set'] - moved} agree with ours; " if labels else ""
    say(f"{same}{moved} labels move")
    if not labels and batches:
        say(f"batches judged again: {', '.join(batches)}")
    if not labels and nights:
        say(f"nights scored again: {', '.join(nights)}")
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
    base: Annotated[str, typer.Argument(metavar="BASE", help="The earlier run or batch.")],
    candidate: Annotated[str, typer.Argument(metavar="CANDIDATE", help="The later one.")],
    model: Annotated[str | None, typer.Option(help="Only this target, by key.")] = None,
    reference: Annotated[
        str | None, typer.Option(help="The model that must hold still; else the panel's reference.")
    ] = None,
    floor: Annotated[
        float | None, typer.Option(help="Noise floor, a share such as 0.02; else the record's own.")
    ] = None,
    alpha: Annotated[float, typer.Option(help="Level of the one look.")] = 0.05,
    panel: Annotated[str, typer.Option(help="The record's name.")] = "embedded",
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what changed between two runs or batches, and whether it is the target's doing.

    Each is a run's or batch's id or a batch's name; ID:MODEL names a target, another in each to
    compare two. A change is attributed only if all of the instrument is byte-identical and the
    reference moved by no more than its noise floor. One look, fixed beforehand.

    Exit code 0 attributable, or no change shown; 2 cannot be compared; 4 void: the instrument
    changed or drifted; 5 not estimable. Of several targets the worst counts.
    """
    record = pinned_record(panel, data, reference)
    found = compare_passes(record, base, candidate, model=model, floor=floor, alpha=alpha)
    if as_json:
        print(json.dumps(found))
        raise typer.Exit(found["exit_code"])
    if floor is not None:
        say(f"floor: {points(floor)}, given by --floor and not measured here")
    elif found["noise"]:
        say(noise_text(found["noise"]))
    for name, entry in found["models"].items():
        say(f"{name}: {comparison_text(entry)}")
    say(found["words"])
    for error in dict.fromkeys(entry["error"] for entry in found["models"].values()):
        if error:
            warn(f"error: {error}")
    raise typer.Exit(found["exit_code"])


def pinned_record(name: str, data: Path | None, reference: str | None = None) -> PinnedRecord:
    folder = data or project_root() / "data"
    known(folder, [name])
    lines = Ledger(folder / name).forwards()
    store, root = Store(folder / name), project_root()
    record = PinnedRecord(store, lines, root=root, reference=reference)
    asked = {model for one in record.passes for model in one.models}
    if reference and reference not in asked:
        raise ConfigurationError(
            "the record has no such model",
            where=str(store.folder),
            got=reference,
            expected=f"one of: {', '.join(sorted(asked))}",
            next_step="correct --reference",
        )
    return record


def noise_text(noise: dict[str, Any]) -> str:
    """Say what the noise floor is, and where it comes from."""
    drifted = ""
    if noise["drifted"]:
        drifted = f"; left out, for the reference moved one way: {', '.join(noise['drifted'])}"
    if not noise["comparisons"]:
        unknown = "floor: unknown, no two earlier passes of the reference under this instrument"
        return unknown + drifted
    value = noise["floor"]
    what = "sealed, measured" if noise["sealed"] else "not sealed, estimated"
    return (
        f"floor: {points(value['estimate'])} [{100 * value['low']:.1f}, {100 * value['high']:.1f}]"
        f" at {noise['items']} items; {what} on {len(noise['batches'])} passes, "
        f"{noise['flips']} of {noise['comparisons']} labels of the reference differ{drifted}"
    )


def comparison_text(entry: dict[str, Any]) -> str:
    """Return the verdict on one target, what it rests on, and what one look shows."""
    cautions = [CAUTION.format(**field) for field in entry.get("cautions", ())]
    if entry.get("void"):
        return "\n  ".join([str(entry["void"]), *cautions])
    parts = []
    if entry["error"]:
        fields = ["{path}: {before} -> {after}".format(**it) for it in entry.get("fields", ())]
        parts += [f"not compared: the instrument changed, {'; '.join(fields)}"] if fields else []
    else:
        parts.append(": ".join(filter(None, (entry["verdict"], entry["reason"]))))
        parts.append(f"the reference moved {points(entry['reference_delta'], signed=True)}")
    if found := entry.get("attribution"):
        parts.append(
            f"{points(found['delta'], signed=True)} {limits(found['interval'])}, "
            f"less the reference's {limits(found['difference_interval'])}"
        )
    if "sentence" in entry:
        names = {key: ", ".join(entry[key]) or "none" for key in entry if key.startswith("newly")}
        parts.append(LOOK.format(**entry | names))
    if entry.get("next_step"):
        parts.append(f"next: {entry['next_step']}")
    return "\n  ".join([*parts, *cautions]) or "not compared"


def limits(interval: dict[str, Any]) -> str:
    if interval["low"] is None:
        return f"({interval['reason']})"
    return f"[{100 * interval['low']:+.1f}, {100 * interval['high']:+.1f}]"
