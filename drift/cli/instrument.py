"""Commands on the instrument: its pins, its noise floor, and what the reference costs."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict
from typing import Annotated, Any

import typer

from drift.cli.asking import say_outcome
from drift.cli.options import DataOption, JsonOption, PanelOption, open_record
from drift.cli.records import noise_text, pinned_record
from drift.config import canonical_json
from drift.elicit import elicit, elicitor_document, load_elicitor
from drift.errors import ConfigurationError
from drift.records.pins import NO_ELICITOR, Pass, PinnedRecord, cost_of_reference, seal_floor
from drift.refresh import Record
from drift.terminal import bar, say, warn


def instrument_calibrate(
    batches: Annotated[int, typer.Option(min=2, help="How many, compared in pairs.")],
    panel: PanelOption = "embedded",
    data: DataOption = None,
    elicitor: Annotated[
        str | None,
        typer.Option(help="A name in config/elicitors.toml; with --stored, by default none: runs."),
    ] = None,
    stored: Annotated[
        bool, typer.Option("--stored", help="Ask nothing: the last runs or batches of the record.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Measure the noise floor of the reference target, and seal it in the record.

    The reference is asked the ladders so many times under the present instrument. The floor is
    how far its refusal rate moves when nothing has changed; `drift compare` calls a comparison
    void where it moved further. Batches that were made before a kill count with --stored.
    """
    record = open_record(panel, data)
    with record.opened():
        if stored:
            passes = _stored(record, batches, elicitor)
        else:
            passes = _asked(record, batches, elicitor or "scripted")
        sealed = seal_floor(record.ledger, passes, clock=record.clock)
    if as_json:
        print(json.dumps(sealed))
        return
    floor = sealed["floor"]
    text = {name: float(floor["value"][name]) for name in ("estimate", "low", "high")}
    found = {"floor": text, "sealed": True, "drifted": sealed.get("drifted", ())}
    found["batches"] = sealed["batches"]
    say(noise_text(found | {name: floor[name] for name in ("items", "flips", "comparisons")}))


def _pinned(record: Record) -> PinnedRecord:
    return PinnedRecord(record.store, record.ledger.forwards(), root=record.root)


def _asked(record: Record, batches: int, elicitor: str) -> list[Pass]:
    """Ask the reference so many times."""
    chosen = load_elicitor(elicitor, root=record.root)
    references = [model for model in record.panel.models if model.role == "reference"]
    if not all(model.weights_sha256 for model in references):
        raise ConfigurationError(
            "a floor needs a reference whose weights are known: others may change unseen",
            got=", ".join(model.key for model in references),
            next_step='give the role "reference" to an embedded model',
        )
    made = []
    for _ in range(batches):
        with bar("turns") as progress:
            outcome = elicit(
                record,
                chosen,
                models=[model.key for model in references],
                purpose="calibration",
                progress=progress,
                say=warn,
            )
        if not outcome.sealed:
            say_outcome(outcome)
            raise typer.Exit(outcome.exit_code)
        made.append(str(outcome.run))
    pinned = _pinned(record)
    return [pinned.find(run) for run in made]


def _stored(record: Record, batches: int, elicitor: str | None) -> list[Pass]:
    """Return the last passes of one instrument, as many as are wanted."""
    document = elicitor_document(elicitor, root=record.root) if elicitor else NO_ELICITOR
    found = _pinned(record).latest(document)
    if len(found) < batches:
        raise ConfigurationError(
            "the record holds fewer usable runs or batches under its last instrument",
            where=str(record.store.folder),
            got=str(len(found)),
            expected=str(batches),
            next_step="make more, or lower --batches",
        )
    return found[-batches:]


def instrument_show(
    panel: Annotated[str, typer.Option(help="The record's name.")] = "embedded",
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the pins field by field, the noise floor, and what the reference costs.

    Of the last run, and of the last batch of each elicitor.
    """
    record = pinned_record(panel, data)
    groups: dict[bytes, list[Pass]] = defaultdict(list)
    for one in record.passes:
        groups[canonical_json(one.elicitor)].append(one)
    if not groups:
        raise ConfigurationError("the record holds no run yet", where=str(record.store.folder))
    found = [instrument_document(record, passes) for passes in groups.values()]
    if as_json:
        print(json.dumps(found))
        return
    for document in found:
        say(f"{document['pass']}: instrument {document['instrument']}")
        for path, value in document["pins"].items():
            say(f"  {path}: {value}")
        for model, pins in document["targets"].items():
            own = [f"{path}: {value}" for path, value in pins.items()]
            say(f"  {model}: {', '.join(own) or 'no other pins'}")
        say(noise_text(document["noise"]))
        say(cost_text(document["cost"]))


def instrument_document(record: PinnedRecord, passes: list[Pass]) -> dict[str, Any]:
    """Return what is pinned in the last of `passes`, its floor, and the cost over all of them.

    ``pins`` are those that all targets share; ``targets`` holds the others of each.
    """
    last = passes[-1]
    targets = [model for model in last.models if model != last.reference] or list(last.models)
    pins = {model: dict(last.instrument(model).pins) for model in targets}
    shared = set.intersection(*({*each.items()} for each in pins.values()))
    noise = record.noise(last)
    floor = noise.floor(max(1, len(last.labels.get(last.reference or "", ()))))
    return {
        "pass": last.id,
        "instrument": last.common,
        "reference": last.reference,
        "pins": dict(sorted(shared)),
        "targets": {model: dict(sorted({*each.items()} - shared)) for model, each in pins.items()},
        "noise": asdict(noise) | {"items": floor.items, "floor": asdict(floor.value)},
        "cost": cost_of_reference(passes),
    }


def cost_text(cost: dict[str, Any]) -> str:
    """Say which share of requests and tokens the reference takes."""
    parts = [
        f"{mine} of {total} {name} ({100 * mine / total:.1f} %)"
        for name, total in cost["all"].items()
        if total
        for mine in [cost["reference"][name]]
    ]
    return f"the reference takes {' and '.join(parts) or 'nothing'}"
