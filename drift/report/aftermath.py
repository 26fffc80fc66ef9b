"""What people do after a refusal: retries by shape, from traces in a folder of ``data/``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from drift.config import project_root
from drift.records.scenario import Scenario, scenario_of
from drift.records.traces import ACTIONS, BASE, RETRIED, Traces, after_shapes, read_traces
from drift.report.bars import BARS, bars
from drift.report.display import figure, shown
from drift.report.figures import Picture
from drift.report.markup import Markup, html, joined, percent, table, with_data
from drift.report.method import unfit
from drift.report.tables import each
from drift.stats.agreement import Estimate
from drift.stats.retries import LEAST_SUPPORT, Retries

#: The folder that comes with the project.
SYNTHETIC = "synthetic"


@dataclass(frozen=True)
class Found:
    """Traces, and what they say of each shape that occurs."""

    traces: Traces
    shapes: dict[str, Retries]

    @property
    def kind(self) -> str:
        """What they are, in a word that stands in every heading and name of a file."""
        made = self.traces.synthetic
        return SYNTHETIC if made == len(self.traces.rows) else "partly-synthetic" if made else "own"

    @property
    def heading(self) -> str:
        """What they are, as headings and captions say it."""
        words = {"synthetic": "Synthetic traces", "partly-synthetic": "Partly synthetic traces"}
        told = f", {self.scenario.heading}" if self.scenario else ""
        return f"{words.get(self.kind, 'Imported traces')}, {len(self.traces.rows):,}{told}"

    @property
    def name(self) -> str:
        """What they are, as names of files begin."""
        return f"{self.kind}-{self.scenario.name}" if self.scenario else self.kind

    @property
    def columns(self) -> dict[str, str | None]:
        """What they are, in every row that a reader downloads."""
        told = self.scenario.name if self.scenario else None
        return {"trace_kind": self.kind, "trace_scenario": told}

    @cached_property
    def scenario(self) -> Scenario | None:
        """The scenario whose traces these are, which states their truth."""
        return scenario_of(self.traces.rows)


def found(traces: str, file: str = "traces") -> Found:
    """Return what the traces in a file of a folder of ``data/`` say."""
    for name, value in (("traces", traces), ("file", file)):
        if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,63}", value):
            raise unfit(name, value, "the name of a folder of data/, and of a file in it")
    read = read_traces(project_root() / "data" / traces / f"{file}.jsonl")
    shapes = {shape: one for shape, one in after_shapes(read.rows).items() if one.refusals}
    return Found(read, shapes)


@shown
def banner(of: Found) -> Markup:
    """Return what these traces are, which must be known before they are read."""
    made, rows = of.traces.synthetic, len(of.traces.rows)
    text = f"{rows:,} imported traces, consented to, each by the word of whoever imported them."
    if made:
        text = f"Synthetic: {made:,} of {rows:,} traces are made up by a seeded program from a "
        text += "stated scenario. They are nobody's, and measure nothing."
        text += f" {of.scenario.note}" if of.scenario else ""
    return html('<p class="drift-banner">{}</p>', text)


def rates(of: Found) -> pd.DataFrame:
    """Return the share asked again after each shape, one row each, as a reader downloads it."""
    rows = [
        {"trace_shape": shape, **of.columns, "traces": one.refusals}
        | {"asked_again": one.retried}
        | {"again_stated": of.scenario.share(shape) if of.scenario else None}
        | _limits("again", one.rate)
        for shape, one in of.shapes.items()
    ]
    return pd.DataFrame(rows)


def differences(of: Found) -> pd.DataFrame:
    """Return what each shape's share is less that of a flat no, one row each."""
    rows = [
        {"trace_shape": shape, **of.columns, "traces": one.refusals}
        | {"again_difference_stated": of.scenario.difference(shape) if of.scenario else None}
        | {"again_adjusted_stated": of.scenario.adjusted(shape) if of.scenario else None}
        | _limits("again_difference", one.unadjusted)
        | _limits("again_adjusted", one.adjusted)
        | {"with_length": one.with_length, "length_support": one.support}
        | {"reason": one.adjusted.reason}
        for shape, one in of.shapes.items()
        if shape != BASE
    ]
    return pd.DataFrame(rows)


def _limits(name: str, it: Estimate) -> dict[str, Any]:
    return {name: it.estimate, f"{name}_low": it.low, f"{name}_high": it.high}


def retry_bars(frame: pd.DataFrame, axes: Axes) -> None:
    """Draw :func:`drift.report.bars.bars` of the shares asked again."""
    bars(frame, axes)
    axes.set_xlabel("asked the same again, %")


RETRIES = Picture(
    retry_bars, BARS.describe, BARS.height, left=BARS.left, right=BARS.right, top=BARS.top
)


@shown
def retries_plot(of: Found, caption: str) -> Markup:
    """Return the share asked again after each shape, with counts and limits."""
    data, note = rates(of), f"{len(of.traces.rows):,} traces, asked again"
    drawn = pd.DataFrame({"series": data.trace_shape, "group": of.kind, "note": note})
    drawn["text"] = [f"{row.asked_again} of {row.traces}" for row in each(data)]
    names = {"again": "estimate", "again_low": "low", "again_high": "high"}
    drawn = drawn.join(data[list(names)].rename(columns=names))
    behind = pd.DataFrame(
        {
            "Shape": data.trace_shape,
            "Asked again": drawn.text,
            "Share, 95 % interval": [_share(row) for row in each(drawn)],
        }
    )
    if of.scenario:
        behind["Truth"] = data.again_stated.map(percent)
    text = f"{of.heading}. {caption.strip()}"
    return figure(f"{of.name}-retries", RETRIES, drawn, behind, text, data=data)


def _share(row: Any) -> str:
    return f"{percent(row.estimate)} ({100 * row.low:.1f} to {100 * row.high:.1f})"


@shown
def differences_table(of: Found) -> Markup:
    """Return how each shape differs from a flat no, before and at the same length."""
    rows, told = [], of.scenario
    for shape, one in of.shapes.items():
        if shape != BASE:
            row = {
                "Shape": shape,
                "Difference, points": _points(one.unadjusted),
                **({"Its truth": _truth(told.difference(shape))} if told else {}),
                "At the same length": _points(one.adjusted),
                **({"Truth, same length": _truth(told.adjusted(shape))} if told else {}),
                "Lengths shared": "" if one.support is None else f"{100 * one.support:.0f} %",
            }
            rows.append(row)
    text = html(
        "<p><b>{}</b>. Asked again after a shape, less asked again after a {} ({} of them). In "
        "brackets: 95 % intervals, each for itself. Below {:.0f} % of lengths shared, nothing "
        "is compared.</p>",
        *(of.heading, BASE, of.shapes[BASE].refusals if BASE in of.shapes else 0),
        100 * LEAST_SUPPORT,
    )
    made = joined([text, table(pd.DataFrame(rows))])
    return with_data(made, f"{of.name}-retry-differences", differences(of))


def _truth(value: float) -> str:
    return f"{100 * value:+.0f}" if round(100 * value) else "0"


def _points(it: Estimate) -> str:
    if it.estimate is None or it.low is None or it.high is None:
        return f"not estimable: {it.reason}"
    return f"{100 * it.estimate:+.1f} ({100 * it.low:+.1f} to {100 * it.high:+.1f})"


@shown
def actions_table(of: Found) -> Markup:
    """Return what was done next after each shape, in counts."""
    counts = pd.DataFrame(of.traces.rows).groupby(["shape", "next_action"]).size()
    data = pd.DataFrame(
        [
            (shape, action, action in RETRIED, int(counts.get((shape, action), 0)))
            for shape in of.shapes
            for action in ACTIONS
        ],
        columns=["trace_shape", "next_action", "is_again", "traces"],
    ).assign(**of.columns)
    wide = data.pivot_table("traces", "trace_shape", "next_action", aggfunc="sum", sort=False)
    text = html("<p><b>{}</b>, by what was done next.</p>", of.heading)
    made = table(wide.reset_index().rename(columns={"trace_shape": "Shape"}))
    return with_data(joined([text, made]), f"{of.name}-next-actions", data)
