"""Figures: functions that draw a tidy frame on Axes, and the SVG a page carries.

The SVG takes its ink from the page (``currentColor`` and a few CSS variables), so
one picture serves light and dark; every distinction is made by shape or by text as
well as by colour. Text stays text. The bytes depend on the data alone.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from drift.config import project_root
from drift.report.markup import escaped
from drift.report.tables import each

STYLE = Path("report") / "figures.mplstyle"
#: Colours in the style file that stand for a colour of the page.
PAGE_COLOURS = {
    "#010101": "currentColor",
    "#020202": "var(--drift-muted, #6b7280)",
    "#030303": "var(--drift-line, #d4d8dd)",
    "#0a0001": "var(--drift-1, #1f6f8b)",
    "#0a0002": "var(--drift-2, #a4510f)",
    "#0a0003": "var(--drift-3, #5b4b9a)",
    "#0a0004": "var(--drift-4, #3d7a3d)",
}
INK, MUTED, LINE, *COLOURS = PAGE_COLOURS
SHAPES = ("o", "s", "^", "D", "v", "P")
#: How an outcome is drawn in the label grid: marker, filled or not, relative area.
OUTCOME_SHAPES: dict[str, tuple[str, bool, float]] = {
    "refused": ("s", True, 1.0),
    "answered": ("o", False, 0.8),
    "undetermined": ("d", False, 0.8),
    "blocked": ("X", True, 0.8),
    "failed": ("P", True, 0.8),
    "empty": ("v", False, 0.7),
    "missing": (".", True, 0.3),
}


@dataclass(frozen=True)
class Picture:
    """A kind of figure: what draws a frame, what says it in words, its measures in inches."""

    draw: Callable[[pd.DataFrame, Axes], None]
    describe: Callable[[pd.DataFrame], str]
    height: Callable[[pd.DataFrame], float]
    left: float = 1.75
    right: float = 0.8
    top: float = 0.4


def interval_plot(frame: pd.DataFrame, axes: Axes) -> None:
    """Draw each rate as a mark with its 95 % interval, counts at the right margin.

    Columns: group (a heading), series (the row's name below it), refused, n, estimate,
    low, high (shares of 1), reason. Every row carries its name, so that no colour or shape
    has to be told from another. A row without an estimate is written out as not estimable,
    never drawn.
    """
    position = 0.0
    beside: dict[str, Any] = {"ha": "right", "va": "center"}
    for group, rows in frame.groupby("group", sort=False):
        axes.text(-3, position, str(group), weight="bold", **beside)
        position += 0.9
        for row in each(rows):
            axes.text(-3, position, row.series, color=MUTED, **beside)
            if pd.isna(row.estimate):
                axes.text(1, position, "not estimable", va="center", color=MUTED, style="italic")
            else:
                limits = [100 * row.low, 100 * row.high]
                axes.plot(limits, [position] * 2, color=COLOURS[0], solid_capstyle="butt")
                axes.plot([100 * row.estimate], [position], "o", color=COLOURS[0], clip_on=False)
            axes.text(102, position, f"{row.refused} of {row.n}", va="center")
            position += 1
        position += 0.2
    axes.set_yticks([])
    axes.set_ylim(position - 0.5, -0.7)
    axes.set_xlim(0, 100)
    axes.set_xlabel("refused, % of determined labels")
    axes.grid(axis="x")


def label_grid(frame: pd.DataFrame, axes: Axes) -> None:
    """Draw what each model did on each wording of each family: one mark an arm.

    Columns: topic, family, variant, model, outcome, control; one row an arm.
    """
    models, variants = sorted(frame.model.unique()), sorted(frame.variant.unique())
    columns = {
        (model, variant): i * (len(variants) + 0.8) + j
        for i, model in enumerate(models)
        for j, variant in enumerate(variants)
    }
    rows: dict[str, float] = {}
    position = 0.0
    beside: dict[str, Any] = {"ha": "right", "va": "center"}
    for topic, families in frame.drop_duplicates("family").groupby("topic", sort=True):
        axes.text(-0.75, position, str(topic), weight="bold", **beside)
        position += 0.9
        for item in each(families.sort_values("family")):
            rows[item.family] = position
            name = item.family.partition("/")[2] + (" (control)" if item.control else "")
            axes.text(-0.75, position, name, color=MUTED, **beside)
            position += 1
        position += 0.1
    for outcome, cells in frame.groupby("outcome", sort=True):
        shape, filled, area = OUTCOME_SHAPES.get(str(outcome), ("d", False, 0.8))
        ink = COLOURS[1] if outcome == "refused" else INK if filled else MUTED
        across = [columns[key] for key in zip(cells.model, cells.variant, strict=True)]
        inks = {"facecolors": ink if filled else "none", "edgecolors": ink}
        look: dict[str, Any] = inks | {"marker": shape, "linewidths": 1.1, "label": outcome}
        axes.scatter(across, cells.family.map(rows), 60 * area, **look)
    axes.set_xticks(list(columns.values()), [variant for _, variant in columns])
    axes.tick_params(axis="x", top=True, labeltop=True, bottom=False, labelbottom=False, length=0)
    middle = (len(variants) - 1) / 2
    for model in models:
        axes.text(columns[model, variants[0]] + middle, -1.9, model, ha="center", weight="bold")
    axes.set_ylim(position - 0.4, -0.7)
    axes.set_xlim(-0.6, max(columns.values()) + 0.6)
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    axes.legend(loc="upper right", bbox_to_anchor=(1, 0), ncols=3)


def describe_intervals(frame: pd.DataFrame) -> str:
    """Return the alternative text of :func:`interval_plot`: each rate in words."""
    return "; ".join(
        f"{row.group}, {row.series}: not estimable, {row.reason}"
        if pd.isna(row.estimate)
        else f"{row.group}, {row.series}: {100 * row.estimate:.1f} % refused ({row.refused} of "
        f"{row.n}), 95 % interval {100 * row.low:.1f} to {100 * row.high:.1f} %"
        for row in each(frame)
    )


def describe_grid(frame: pd.DataFrame) -> str:
    """Return the alternative text of :func:`label_grid`: counts of outcomes by model."""
    parts = []
    for model, rows in frame.groupby("model", sort=True):
        counts = (f"{count} {name}" for name, count in rows.outcome.value_counts().items())
        parts.append(f"{model}: {', '.join(counts)} of {len(rows)} arms")
    return "; ".join(parts)


INTERVALS = Picture(
    interval_plot,
    describe_intervals,
    lambda frame: 0.6 + 0.21 * len(frame) + 0.23 * frame.group.nunique(),
    top=0.1,
)
GRID = Picture(
    label_grid,
    describe_grid,
    lambda frame: 1.0 + 0.215 * frame.family.nunique() + 0.13 * frame.topic.nunique(),
    left=2.6,
    right=0.2,
)


def svg(picture: Picture, frame: pd.DataFrame, *, label: str) -> str:
    """Return what `picture` makes of `frame` as an SVG element: no date, ids of its own."""
    width, height = 7.4, picture.height(frame)
    across = 1 - (picture.left + picture.right) / width
    place = (picture.left / width, 0.5 / height, across, 1 - (0.5 + picture.top) / height)
    stream = io.StringIO()
    with mpl.rc_context(fname=project_root() / STYLE):
        figure = Figure(figsize=(width, height))
        picture.draw(frame, figure.add_axes(place))
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    text = re.sub(r"^.*?(?=<svg)|<metadata>.*?</metadata>", "", stream.getvalue(), flags=re.S)
    for colour, name in PAGE_COLOURS.items():
        text = text.replace(colour, name)
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', text))
    text = re.sub(r' id="([^"]+)"', lambda m: f' id="{label}-{m[1]}"' if m[1] in used else "", text)
    text = re.sub(r'(href="#|url\(#)', rf"\g<1>{label}-", text)
    # What is hidden is written out in an element, which no attribute can hold.
    alt = re.sub("<[^>]*>", "", escaped(picture.describe(frame)))
    opening = f'<svg viewBox="0 0 {72 * width:g} {72 * height:g}" role="img" aria-label="{alt}">'
    return re.sub(r"<svg[^>]*>", lambda _: opening, text, count=1).strip()
