"""The command on traces: what people did after a refusal, read without anything personal."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from drift.cli.options import JsonOption, refuse_existing
from drift.config import utc_now
from drift.records.ledger import write_atomically
from drift.records.traces import BASE, Traces, after_shapes, kept_bytes, read_traces
from drift.stats.agreement import Estimate
from drift.terminal import say, warn


def traces(
    file: Annotated[Path, typer.Argument(help="Consented traces, one JSON object a line.")],
    keep: Annotated[
        Path | None,
        typer.Option(help="Write what is kept of them to this new file: closed words and days."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Count retries after refusals by shape, from traces that people consented to.

    A line holds shape (one of the shapes, or none), next_action (retry: the same words again;
    rephrase; accept: what was offered; other; stop), model, when (kept to the day), consent:
    true, and, where known, length: characters of the refusal. Other fields are dropped and
    counted, by name if it is on a list of harmless ones. A field whose name tells of a person or a
    device (user, id, mail, session, ip and the like, however written), or a value that is no plain
    name of a model (with a digit, or maker/model), refuses the file with exit 2, naming the line
    and where it can the field, never a value. Asked again is retry or rephrase.
    Length follows from the shape: a difference at the same length leaves out what goes with a
    shape through its length, and neither difference is causal.
    """
    refuse_existing(keep, "--keep")
    found = read_traces(file, today=utc_now().date())
    if keep:
        write_atomically(keep, kept_bytes(found.rows))
        warn(f"kept in {keep}")
    if as_json:
        shapes = {name: asdict(one) for name, one in after_shapes(found.rows).items()}
        about = {"rows": len(found.rows), "synthetic": found.synthetic, "sha256": found.sha256}
        print(json.dumps(about | {"dropped": found.dropped, "base": BASE, "shapes": shapes}))
        return
    _say(found)


def _say(found: Traces) -> None:
    made = f", {found.synthetic} of them synthetic" if found.synthetic else ""
    say(f"{len(found.rows)} traces{made}")
    for name, number in found.dropped.items():
        say(f"  {number} fields dropped: {name}")
    for shape, one in after_shapes(found.rows).items():
        if one.refusals:
            say(f"{shape}: asked again after {one.retried} of {one.refusals}, {_share(one.rate)}")
        if one.refusals and shape != BASE:
            say(f"  less that of {BASE}, in points: {_points(one.unadjusted)}")
            say(f"  at the same length: {_points(one.adjusted)}")
            if one.support is not None:
                say(f"  lengths that both have: {100 * one.support:.0f} % of either's or more")


def _share(it: Estimate) -> str:
    return _numbers(it, "{:.1f} % [{:.1f}, {:.1f}]")


def _points(it: Estimate) -> str:
    return _numbers(it, "{:+.1f} [{:+.1f}, {:+.1f}]")


def _numbers(it: Estimate, form: str) -> str:
    if it.estimate is None or it.low is None or it.high is None:
        return f"not estimable: {it.reason}"
    return form.format(*(100 * value for value in (it.estimate, it.low, it.high)))
