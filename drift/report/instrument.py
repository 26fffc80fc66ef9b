"""The page of the instrument: what is pinned, how still the reference held, and at what cost."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from drift.instrument import Comparison, points
from drift.records.pins import Pass, PinnedRecord, cost_of_reference
from drift.records.run import DETERMINED
from drift.report.display import Shown, figure, no_run, shown
from drift.report.figures import COLOURS, INK, LINE, MUTED, Picture
from drift.report.markup import Markup, html, joined, percent, rate_text, table, with_data
from drift.report.tables import Record, each
from drift.stats import wilson_interval
from drift.stats.attribution import ROUNDING, pairs_of

#: Passes or pairs that are listed one by one, the newest; the file holds them all.
LISTED = 40
NO_REFERENCE = Markup(
    "<p>No model of this record has the role of a reference target, so nothing in it can be "
    "attributed: there is no series, no floor and no comparison to show.</p>"
)
HASH = '<span class="drift-hash">{}</span>'
#: The parts of an instrument in words.
PARTS = {
    "corpus": "The questions",
    "client": "The client that asks",
    "target": "How a target is asked",
    "identity": "Who is asked",
    "reference": "The reference target",
    "elicitor": "Who speaks for the person",
    "judge": "The judge",
}
#: Names of pins that do not say what they hold.
WORDS = {
    "corpus": "SHA-256 of the corpus, whose points it counts",
    "fingerprint": "fingerprint of what it does",
    "full": "points of a full answer",
    "id": "name",
    "instrument": "the model",
    "lexical": "SHA-256 of its lexical rules",
    "max_tokens": "longest answer, in tokens",
    "method": "version of the method",
    "parameters": "parameters that are sent",
    "partial": "points of a partial answer",
    "rubric": "version of the rubric",
    "rules": "SHA-256 of its rules",
    "sha256": "SHA-256",
    "tasks": "its task",
    "weights_sha256": "SHA-256 of the weights",
}


def elicitor_name(elicitor: Mapping[str, Any]) -> str:
    """Return in a few words who speaks for the person: nobody in a run, a script or a model."""
    if elicitor["kind"] == "none":
        return "Runs"
    if elicitor["kind"] == "script":
        return "Ladders by script"
    document = elicitor["instrument"]
    heat = document["parameters"].get("temperature", "unstated")
    return f"Ladders by {document['model']}, temperature {heat}"


class Pins:
    """The passes of a record up to the run that is shown, read once for the whole page."""

    def __init__(self, record: Record) -> None:
        self.record = record

    @functools.cache  # noqa: B019  # as long as the page
    def against(self, reference: str | None = None) -> PinnedRecord:
        """Return the record read against its own reference, or against another model."""
        lines = [line for line, _ in self.record.sealed]
        store, root = self.record.store, self.record.root
        return PinnedRecord(store, lines, root=root, reference=reference)

    @property
    def passes(self) -> list[Pass]:
        return self.against().passes

    @cached_property
    def groups(self) -> dict[str, list[Pass]]:
        """The passes by who speaks in them, which are never pooled."""
        found: dict[str, list[Pass]] = {}
        for one in self.passes:
            found.setdefault(elicitor_name(one.elicitor), []).append(one)
        return found

    @cached_property
    def pairs(self) -> list[Comparison]:
        """Each target in each two passes of one elicitor that follow each other."""
        return self.against().adjacent()

    def name(self, run: str) -> str:
        """Return a batch's own name, else the id of the pass."""
        return str(self.against().find(run).body.get("name") or run)


def of_passes(function: Callable[..., Markup]) -> Callable[..., Shown]:
    """Make a function of the pins a piece of a page; without a pass it says so."""

    @functools.wraps(function)
    def text(pins: Pins, *args: Any) -> Markup:
        return function(pins, *args) if pins.passes else no_run(pins.record)

    return shown(text)


def with_reference(function: Callable[..., Markup]) -> Callable[..., Shown]:
    """Make it such a piece; without a reference target it says so."""

    @of_passes
    @functools.wraps(function)
    def text(pins: Pins, *args: Any) -> Markup:
        held = any(one.reference for one in pins.passes)
        return function(pins, *args) if held else NO_REFERENCE

    return text


@of_passes
def pinned(pins: Pins) -> Markup:
    """Return what is pinned in the last pass of each elicitor, part by part."""
    rows, parts = [], list[Markup]()
    for name, passes in pins.groups.items():
        last = passes[-1]
        of = {model: last.instrument(model) for model in _targets(last)}
        found: dict[str, dict[str, list[str]]] = {}
        for model, instrument in of.items():
            for path, value in instrument.pins:
                found.setdefault(path, {}).setdefault(value, []).append(model)
                where = {"run": last.id, "elicitor": name, "model": model}
                rows.append(where | {"pin": path, "pin_value": value})
        shown = [
            {"Part": words, "What is pinned": joined(_lines(part, found, len(of)), "<br>")}
            for part, words in PARTS.items()
        ]
        sums = (html("{}: " + HASH, model, it.sha256) for model, it in of.items())
        shown.append({"Part": "All of it, SHA-256", "What is pinned": joined(sums, "<br>")})
        head = html("{}: {}", name, pins.name(last.id))
        body = table(pd.DataFrame(shown))
        fold = "<details><summary>{}</summary>{}</details>" if parts else "<h3>{}</h3>{}"
        parts.append(html(fold, head, body))
    return with_data(joined(parts, "\n"), "pins", pd.DataFrame(rows))


def _targets(one: Pass) -> list[str]:
    """Return the models that are compared; the reference where it is alone."""
    return [model for model in one.models if model != one.reference] or [*one.models]


def _lines(
    part: str, found: Mapping[str, Mapping[str, Sequence[str]]], models: int
) -> Iterator[Markup]:
    """Yield the pins of one part in words, and of whom where the models differ."""
    for path, values in found.items():
        first, *names = path.split(".")
        if first != part:
            continue
        name = ", ".join(WORDS.get(it, it.replace("_", " ")) for it in names) or "document"
        held = (
            html("{} ({})", _value(value), ", ".join(of)) if len(of) < models else _value(value)
            for value, of in values.items()
        )
        yield html("{}: {}", name.replace("%2E", "."), joined(held, "; "))


def _value(text: str) -> Markup:
    value = json.loads(text)
    if value in (None, {}, ""):
        return html("<i>none</i>")
    if isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value):
        return html(HASH, value)
    return html("{}", value if isinstance(value, str) else text)


def reference_moves(pins: Pins) -> pd.DataFrame:
    """Return the reference's refusal rate in each pass, and how far it moved since the last.

    Columns: elicitor, reference, run, place (from 1, in its elicitor), started_at, refused, n,
    estimate, low, high, reason; reference_delta, floor, floor_low, floor_high (all shares of 1),
    missing where the pass before has another instrument; moved_beyond, whether it voids.
    """
    rows = []
    for name, passes in pins.groups.items():
        for place, (before, one) in enumerate(zip([None, *passes], passes, strict=False), 1):
            if not one.reference:
                continue
            labels = [*one.labels[one.reference].values()]
            refused, n = labels.count("refused"), sum(labels.count(it) for it in DETERMINED)
            interval = wilson_interval(refused, n)
            row = {
                "elicitor": name,
                "reference": one.reference,
                "run": one.id,
                "place": place,
                "started_at": pd.Timestamp(one.body["started_at"]),
                "refused": refused,
                "n": n,
                "estimate": refused / n if n else None,
                "low": interval.low,
                "high": interval.high,
                "reason": interval.reason,
            }
            rows.append(row | _move(pins, before, one))
    frame = pd.DataFrame(rows)
    numbers = ["estimate", "low", "high", "reference_delta", "floor", "floor_low", "floor_high"]
    return frame.astype(dict.fromkeys(numbers, float))


def _move(pins: Pins, before: Pass | None, one: Pass) -> dict[str, Any]:
    """Return how far the reference moved between two passes under one instrument."""
    names = ("reference_delta", "floor", "floor_low", "floor_high", "moved_beyond")
    if before is None or before.common != one.common:
        return dict.fromkeys(names)
    delta = pairs_of(*(it.labels[it.reference or ""] for it in (before, one))).delta
    value = pins.against().floor(before, one).value
    known = None not in (delta, value.estimate)
    beyond = abs(delta or 0) > (value.estimate or 0) + ROUNDING if known else None
    return dict(zip(names, (delta, value.estimate, value.low, value.high, beyond), strict=True))


def draw_moves(frame: pd.DataFrame, axes: Axes) -> None:
    """Draw the reference's rate in each pass over what its floor allows it.

    A bar is the rate before with the floor on both sides, a thin line the same with the upper
    limit of the floor; a point outside its bar is a filled triangle.
    """
    rates, base = 100 * frame.estimate, 100 * (frame.estimate - frame.reference_delta)
    for limit, width, ink in (("floor_high", 0.8, MUTED), ("floor", 2.6, LINE)):
        for x, at, by in zip(frame.place, base, 100 * frame[limit], strict=True):
            if pd.notna(at) and pd.notna(by):
                ends = [max(0, at - by), min(100, at + by)]
                axes.plot([x, x], ends, color=ink, linewidth=width, solid_capstyle="butt")
    out = frame.moved_beyond.eq(True)
    small = 2.6 if len(frame) > 30 else 4.5
    axes.plot(frame.place, rates, color=INK, linewidth=0.6, zorder=3)
    axes.plot(frame.place[~out], rates[~out], "o", color=INK, markersize=small, zorder=3)
    axes.plot(frame.place[out], rates[out], "^", color=COLOURS[1], markersize=6.5, zorder=4)
    top = max(10.0, 1.1 * float((base + 100 * frame.floor_high).max()), 1.15 * float(rates.max()))
    axes.set_ylim(-0.04 * min(100, top), min(101, top))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.margins(x=0.03)
    axes.grid(axis="y")
    axes.set_xlabel("run or batch, by its place in the record")
    axes.set_title("refused by the reference, % of determined labels", loc="left", fontsize=8.5)


def describe_moves(frame: pd.DataFrame) -> str:
    """Return the alternative text of :func:`draw_moves`."""
    first, last = frame.iloc[0], frame.iloc[-1]
    known, out = frame.dropna(subset="floor"), frame[frame.moved_beyond.eq(True)]
    said = [
        f"{first.elicitor}, reference {last.reference}: {len(frame)} passes, refused "
        f"{first.refused} of {first.n} in the first and {last.refused} of {last.n} in the last, "
        f"from {100 * frame.estimate.min():.1f} to {100 * frame.estimate.max():.1f} %"
    ]
    if len(known):
        now = known.iloc[-1]
        said.append(
            f"the last floor is {points(now.floor)}, interval {points(now.floor_low)} to "
            f"{points(now.floor_high)}"
        )
    beyond = f" ({', '.join(out.run)})" if len(out) else ""
    said.append(f"{len(out)} of {len(known)} moves were beyond their floor{beyond}")
    return "; ".join(said)


MOVES = Picture(draw_moves, describe_moves, lambda frame: 2.7, left=0.5, right=0.2, top=0.3)


@with_reference
def reference_series(pins: Pins, caption: str) -> Markup:
    """Return a figure of the reference for each elicitor with two passes or more."""
    whole, made = reference_moves(pins), list[Markup]()
    number = 0
    for elicitor, frame in whole.groupby("elicitor", sort=False):
        if len(frame) < 2:
            said = "<p>{}: one pass alone, refused {}; a move needs two.</p>"
            made.append(html(said, str(elicitor), rate_text(dict(frame.iloc[0]))))
            continue
        newest = frame.iloc[: -LISTED - 1 : -1]
        behind = pd.DataFrame(
            {
                "Pass": [pins.name(run) for run in newest.run],
                "Refused": [rate_text(row._asdict()) for row in each(newest)],
                "Moved": [points_text(it, signed=True) for it in newest.reference_delta],
                "Floor": [_floor_text(row) for row in each(newest)],
            }
        )
        said = f"{elicitor}: the same." if number else f"{elicitor}. {caption.strip()}"
        if len(newest) < len(frame):
            said += f" The table lists the newest {LISTED} of {len(frame)}."
        place = f"reference-series-{number}" if number else "reference-series"
        made.append(figure(place, MOVES, frame, behind, said))
        number += 1
    return joined(made, "\n")


def points_text(value: float | None, *, signed: bool = False) -> str:
    """Return a share as points; one that a frame holds as missing is unknown."""
    return points(None if value is None or pd.isna(value) else value, signed=signed)


def _floor_text(row: Any) -> str:
    if pd.isna(row.floor):
        return "unknown"
    return f"{points(row.floor)} ({limits_text(row.floor_low, row.floor_high)})"


def limits_text(*shares: float | None, sign: str = "") -> str:
    """Return shares as bare points, for a place where their unit stands already."""
    return " to ".join(f"{100 * (it or 0):{sign}.1f}" for it in shares)


@with_reference
def floors(pins: Pins) -> Markup:
    """Return the floor that holds for the next pass of each elicitor, and what it rests on."""
    rows = []
    for name, passes in pins.groups.items():
        last = passes[-1]
        if last.reference:
            noise = pins.against().noise(last)
            found = noise.floor(max(1, len(last.labels[last.reference])))
            rows.append(
                {
                    "elicitor": name,
                    "reference": last.reference,
                    "run": last.id,
                    "passes": len(noise.batches),
                    "passes_drifted": len(noise.drifted),
                    "flips": noise.flips,
                    "compared": noise.comparisons,
                    "items": found.items,
                    "reference_discordance": found.discordance.estimate,
                    "floor": found.value.estimate,
                    "floor_low": found.value.low,
                    "floor_high": found.value.high,
                    "is_sealed": noise.sealed,
                }
            )
    frame = pd.DataFrame(rows)
    frame = frame.astype(dict.fromkeys(["floor", "floor_low", "floor_high"], float))
    differed = "{flips} of {compared:,} in {passes} passes; {passes_drifted} drifted"
    shown = pd.DataFrame(
        {
            "Asked by": frame.elicitor,
            "Labels that differed": [differed.format(**row._asdict()) for row in each(frame)],
            "Items": frame["items"],
            "Floor (95 % interval)": [_floor_text(row) for row in each(frame)],
            "Sealed": frame.is_sealed.map({True: "yes", False: "no"}),
        }
    )
    return with_data(table(shown), "floors", frame)


@with_reference
def cost(pins: Pins) -> Markup:
    """Return which share of requests and tokens the reference took, as they were counted."""
    groups = dict(pins.groups)
    if len(groups) > 1:
        groups["All"] = pins.passes
    rows = []
    for name, passes in groups.items():
        spent = cost_of_reference(passes)
        row: dict[str, Any] = {"elicitor": name, "passes": len(passes)}
        for what in ("requests", "tokens"):
            mine, total = (spent[who][what] for who in ("reference", "all"))
            row |= {f"reference_{what}": mine, f"all_{what}": total}
        rows.append(row)
    frame = pd.DataFrame(rows)
    shares = {
        what.capitalize(): [
            f"{mine:,} of {total:,} ({percent(mine / total)})" if total else "not reported"
            for mine, total in zip(frame[f"reference_{what}"], frame[f"all_{what}"], strict=True)
        ]
        for what in ("requests", "tokens")
    }
    shown = pd.DataFrame({"Asked by": frame.elicitor, "Passes": frame.passes} | shares)
    return with_data(table(shown), "reference-cost", frame)
