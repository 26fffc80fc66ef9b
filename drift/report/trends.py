"""Trends: one small panel for each model, one under the other, over a common axis of time.

A line with its band of uncertainty, marks for what is known of few runs alone. Every panel
carries its name and its last value, so that nothing rests on a colour.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from drift.report.figures import COLOURS, LINE, MUTED, Picture
from drift.report.tables import each

#: Height of a panel and of the room above it, in inches.
PANEL, ROOM = 0.75, 0.3


def parts(frame: pd.DataFrame) -> pd.Series:
    """Return for each row the number of its unbroken stretch of runs.

    Columns: model, measure, series, slot (None in a record of ad-hoc runs), usable. A
    stretch ends with the series, at a missed slot and at a run that is not usable.
    """
    number = pd.Series(0, index=frame.index)
    slots = pd.to_numeric(frame.slot)
    for _, rows in frame.groupby(["model", "measure"], sort=False):
        before = rows.shift()
        ends = [
            rows.series != before.series,
            ~rows.usable,
            before.usable.eq(False),
            slots[rows.index].diff() > 1,
        ]
        number[rows.index] = np.logical_or.reduce(ends).cumsum()
    return number


def draw(frame: pd.DataFrame, axes: Axes, *, ylabel: str, bottom: float, top: float) -> None:
    """Draw the panels of `frame` on one pair of axes.

    Columns: panel (its name), x (UTC time), y, low and high (missing where there is no
    interval), note (said beside the last value), mark (True: a diamond with its interval,
    False: a point of the line), series (a change is marked), part (no line joins two).
    """
    step, ticks, names = 1 + ROOM / PANEL, [], []
    for place, (name, rows) in enumerate(frame.groupby("panel", sort=False)):
        floor = place * step + 1

        def at(value: pd.Series, floor: float = floor) -> pd.Series:
            return floor - (value - bottom) / (top - bottom)

        names.append(str(name))
        for value in (bottom, (bottom + top) / 2, top):
            height = floor - (value - bottom) / (top - bottom)
            ticks.append((height, f"{value:g}"))
            axes.axhline(height, color=LINE, linewidth=0.8, zorder=0)
        axes.text(0, floor - 1.09, str(name), weight="bold", transform=axes.get_yaxis_transform())
        line, marks = rows[~rows["mark"]], rows[rows["mark"]]
        for _, part in line.groupby("part"):
            axes.fill_between(
                part.x, at(part.low), at(part.high), color=COLOURS[0], alpha=0.22, linewidth=0
            )
            axes.plot(part.x, at(part.y), color=COLOURS[0], linewidth=1.4, marker=".", markersize=4)
        for row in each(marks.dropna(subset="y")):
            axes.plot([row.x, row.x], [at(row.low), at(row.high)], color=COLOURS[1], linewidth=1.1)
            axes.plot([row.x], [at(row.y)], "D", color=COLOURS[1], mfc="none", markersize=5)
        for begun in line.x[line.series.ne(line.series.shift()) & (line.index != line.index[0])]:
            axes.plot(
                [begun, begun], [floor, floor - 1], color=MUTED, linestyle=(0, (4, 2)), lw=1.2
            )
        known = (line if len(line) else marks).dropna(subset="y")
        said = f"{known.y.iloc[-1]:.3g} ({known.note.iloc[-1]})" if len(known) else "not estimable"
        height = float(at(known.y).iloc[-1]) if len(known) else floor - 0.5
        axes.text(1.015, height, said, va="center", transform=axes.get_yaxis_transform())
    axes.set_yticks([at for at, _ in ticks], [text for _, text in ticks])
    axes.tick_params(axis="y", labelsize=7.5, labelcolor=MUTED)
    axes.set_ylim(len(names) * step + 1 - step + 0.08, -0.25)
    axes.margins(x=0.02)
    axes.set_xlabel("run, UTC")
    across = axes.get_yaxis_transform()
    axes.text(1, -0.09, ylabel, ha="right", color=MUTED, fontsize=8.5, transform=across)


def describe(frame: pd.DataFrame, *, unit: str) -> str:
    """Return the alternative text of :func:`draw`: first, last, lowest and highest by panel."""
    said = [unit]
    for name, rows in frame.groupby("panel", sort=False):
        line = rows[~rows["mark"]] if (~rows["mark"]).any() else rows
        known = line.dropna(subset="y")
        if known.empty:
            said.append(f"{name}: not estimable")
            continue
        first, last = known.iloc[0], known.iloc[-1]
        text = f"{name}: {first.y:.3g} at {first.x:%Y-%m-%d %H:%M} and {last.y:.3g}"
        if not np.isnan(last.low):
            text += f", 95 % interval {last.low:.3g} to {last.high:.3g}"
        text += f" ({last.note}) at {last.x:%Y-%m-%d %H:%M} UTC"
        text += f"; between {known.y.min():.3g} and {known.y.max():.3g} in {len(known)} runs"
        if broken := line.series.nunique() - 1:
            text += f", {broken} new series"
        said.append(text)
    return "; ".join(said)


def trend(unit: str, bottom: float, top: float) -> Picture:
    """Return the picture of :func:`draw` for values of this unit between `bottom` and `top`."""
    return Picture(
        partial(draw, ylabel=unit, bottom=bottom, top=top),
        partial(describe, unit=unit),
        lambda frame: 0.7 + (PANEL + ROOM) * frame.panel.nunique(),
        left=0.5,
        right=1.3,
        top=0.15,
    )
