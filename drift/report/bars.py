"""Figures of shares: a bar for each with its limits and counts, and small bars over runs."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from drift.report.figures import COLOURS, INK, LINE, MUTED, Picture
from drift.report.tables import each

#: Height of a row of small bars, and of a bar in it that stands for all.
ROW, TALL = 1.35, 0.85
#: Inches of a unit of the axis down which rows of small bars stand.
UNIT = 0.19


def bars(frame: pd.DataFrame, axes: Axes) -> None:
    """Draw each share as a bar with its limits; names to the left, counts to the right.

    Columns: group (a heading), note (beside it), series (the bar's name), estimate, low, high
    (shares of 1), text. A bar without an estimate is written out as not estimable.
    """
    position = 0.0
    beside: dict[str, Any] = {"ha": "right", "va": "center"}
    for group, rows in frame.groupby("group", sort=False):
        axes.text(-2, position, str(group), weight="bold", **beside)
        axes.text(0, position, rows.note.iloc[0], color=MUTED, va="center", size=8.5)
        position += 0.95
        for row in each(rows):
            axes.text(-2, position, row.series, color=MUTED, **beside)
            if pd.isna(row.estimate):
                axes.text(1, position, "not estimable", va="center", color=MUTED, style="italic")
            else:
                share, limits = 100 * row.estimate, [100 * row.low, 100 * row.high]
                axes.barh(position, share, 0.62, color=COLOURS[0], alpha=0.35, linewidth=0)
                axes.plot([share] * 2, [position - 0.31, position + 0.31], color=COLOURS[0])
                axes.plot(limits, [position] * 2, color=INK, linewidth=1.1)
                axes.plot(limits, [position] * 2, "|", color=INK, markersize=5)
            axes.text(102, position, row.text, va="center", size=8.5)
            position += 1
        position += 0.35
    axes.set_yticks([])
    axes.set_ylim(position - 0.6, -0.7)
    axes.set_xlim(0, 100)
    axes.set_xlabel("share, % (mean over families)")
    axes.grid(axis="x")


def describe_bars(frame: pd.DataFrame) -> str:
    """Return the alternative text of :func:`bars`: each share in words."""
    said = []
    for group, rows in frame.groupby("group", sort=False):
        texts = (
            f"{row.series} not estimable"
            if pd.isna(row.estimate)
            else f"{row.series} {100 * row.estimate:.0f} % ({_limits(row)}; {row.text})"
            for row in each(rows)
        )
        said.append(f"{group}, {rows.note.iloc[0]}: {', '.join(texts)}")
    return "; ".join(said)


def _limits(row: Any) -> str:
    return "no limits" if pd.isna(row.low) else f"{100 * row.low:.0f} to {100 * row.high:.0f}"


BARS = Picture(
    bars,
    describe_bars,
    lambda frame: 0.65 + 0.2 * len(frame) + 0.28 * frame.group.nunique(),
    left=1.55,
    right=1.0,
    top=0.05,
)


def course(frame: pd.DataFrame, axes: Axes) -> None:
    """Draw for each group a row for each series, and in it a bar with its count for each run.

    Columns: group, series, column (the run's name), place (its number from the left), count,
    share (of the run's cases; missing where there was none), cases.
    """
    position, columns = 0.0, frame.place.max() + 1
    beside: dict[str, Any] = {"ha": "right", "va": "center"}
    small: dict[str, Any] = {"ha": "center", "size": 7.5}
    for group, rows in frame.groupby("group", sort=False):
        runs = [*each(rows.drop_duplicates("place"))]
        axes.text(-0.7, position, str(group), weight="bold", **beside)
        for run in runs:
            axes.text(
                run.place,
                position,
                f"run {run.column}" if columns <= 8 else run.column,
                color=MUTED,
                va="center",
                **small,
            )
        floor = position + 0.7
        for series, cells in rows.groupby("series", sort=False):
            floor += ROW
            axes.text(-0.7, floor - 0.2, str(series), color=MUTED, **beside)
            axes.plot(
                [-0.45, columns - 0.55], [floor] * 2, clip_on=False, color=LINE, linewidth=0.8
            )
            for cell in each(cells[cells.share.notna()]):
                top = -TALL * cell.share
                look: dict[str, Any] = {"color": COLOURS[0], "alpha": 0.4, "clip_on": False}
                axes.bar(cell.place, top, 0.5, bottom=floor, **look)
                said = f"{cell.count_}" if cell.count_ else "·"
                axes.text(cell.place, floor + top - 0.04, said, va="bottom", **small)
        axes.text(-0.7, floor + 0.65, "refusals", color=MUTED, style="italic", **beside)
        for run in runs:
            axes.text(run.place, floor + 0.65, f"{run.cases}", va="center", **small)
        position = floor + 2.1
    # A figure keeps half an inch for an axis, which this one has not: the last rows stand there.
    axes.set_ylim(-0.8 + (_course_height(frame) - 0.5) / UNIT, -0.8)
    axes.set_xlim(-0.6, max(columns, 8) - 0.4)
    axes.set_axis_off()


def describe_course(frame: pd.DataFrame) -> str:
    """Return the alternative text of :func:`course`: the first and the last run of each group."""
    said = []
    for group, rows in frame.groupby("group", sort=False):
        for place in dict.fromkeys((rows.place.min(), rows.place.max())):
            cells = rows[rows.place == place]
            counts = (f"{row.count_} {row.series}" for row in each(cells) if row.count_)
            of = f"{group}, {cells.column.iloc[0]}, {cells.cases.iloc[0]} refusals"
            said.append(f"{of}: {', '.join(counts) or 'none'}")
    return "; ".join(said)


def _course_height(frame: pd.DataFrame) -> float:
    rows = len(frame.drop_duplicates(["group", "series"]))
    return UNIT * (ROW * rows + 2.75 * frame.group.nunique() + 0.6)


COURSE = Picture(course, describe_course, _course_height, left=1.55, right=0.1, top=0.0)
