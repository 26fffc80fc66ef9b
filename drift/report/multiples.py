"""Small multiples: a panel for each model over its nights, each point with its counts below it."""

from __future__ import annotations

from functools import partial
from math import ceil
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from drift.report.figures import COLOURS, MUTED, SHAPES, Picture
from drift.report.tables import each

#: Up to so many nights two panels stand beside each other, and texts upright below their points.
NARROW, UPRIGHT = 8, 16
#: In inches: the ground of a panel, what stands above it and between two, a line of upright text.
GROUND, ABOVE, LINE = 0.95, 0.58, 0.165
SIGNS = "●□▲"


def _across(frame: pd.DataFrame) -> int:
    return 2 if frame.night.nunique() <= NARROW else 1


def _lines(frame: pd.DataFrame) -> dict[str, float]:
    """Return how high the texts of each row are, in inches."""
    longest = frame.groupby("row", sort=False).text.agg(lambda of: of.str.len().max())
    upright = frame.night.nunique() <= UPRIGHT
    return {str(name): LINE if upright else 0.1 + 0.062 * n for name, n in longest.items()}


def _cell(frame: pd.DataFrame) -> float:
    return GROUND + ABOVE + sum(_lines(frame).values())


def _height(frame: pd.DataFrame) -> float:
    return 0.1 + ceil(frame.model.nunique() / _across(frame)) * _cell(frame)


def panels(frame: pd.DataFrame, axes: Axes, *, share: bool) -> None:
    """Draw what has an estimate as points with limits, and write every row's text below.

    Columns: model, night, row (its name), text, estimate, low, high, broken (why nothing joins
    the night to the one before, else empty). Shares go from 0 to 100 %; other numbers are drawn
    over 0 to 1, or as far as they go.
    """
    axes.set_axis_off()
    nights = {night: x for x, night in enumerate(sorted(frame.night.unique()))}
    drawn = list(dict.fromkeys(frame[frame.estimate.notna()].row))
    total, across = _height(frame) - 0.5, _across(frame)
    span = [min(0, frame.low.min()), max(1, frame.high.max())]
    for place, (model, rows) in enumerate(frame.groupby("model", sort=False)):
        top = total - place // across * _cell(frame) - 0.22
        left, width = 0.155 + place % across * 0.515, 1 / across - 0.17
        panel = axes.inset_axes((left, (top - GROUND) / total, width, GROUND / total))
        panel.set_title(str(model), loc="left", fontsize=9.5, weight="bold", pad=3)
        for number, name in enumerate(drawn):
            shift = 0.24 * (number - (len(drawn) - 1) / 2)
            _points(panel, rows[rows.row == name], nights, shift, number)
        for row in each(rows[rows.broken.str.contains("changed")].drop_duplicates("night")):
            x = nights[row.night] - 0.5
            panel.axvline(x, color=MUTED, linestyle=(0, (1, 1.5)), linewidth=1)
            why: dict[str, Any] = {"rotation": 90, "ha": "right", "va": "center"}
            panel.text(x, sum(span) / 2, row.broken.partition(":")[0], color=MUTED, size=7, **why)
        _texts(panel, rows, nights, drawn, _lines(frame))
        panel.set_xlim(-0.6, len(nights) - 0.4)
        panel.set_ylim(span[0] - 0.05, span[1] + 0.05)
        ticks = [it for it in (-0.5, 0, 0.5, 1) if span[0] <= it <= span[1]]
        panel.set_yticks(ticks, [f"{100 * it:g} %" if share else f"{it:g}" for it in ticks])
        panel.set_xticks([])
        panel.tick_params(labelsize=8)
        panel.grid(axis="y")


def _points(
    panel: Axes, rows: pd.DataFrame, nights: dict[int, int], shift: float, number: int
) -> None:
    look: dict[str, Any] = {"color": COLOURS[number]}
    x = rows.night.map(nights) + shift
    for at, low, high in zip(x, rows.low, rows.high, strict=True):
        panel.plot([at, at], [low, high], linewidth=1.4, solid_capstyle="butt", alpha=0.55, **look)
    part = (rows.broken != "").cumsum()
    for _, of in rows.groupby(part):
        panel.plot(x[of.index], of.estimate, linewidth=0.6, **look)
    filled: dict[str, Any] = (
        {} if number != 1 else {"markerfacecolor": "none", "markeredgewidth": 1.1}
    )
    panel.plot(x, rows.estimate, SHAPES[number], markersize=4.2, clip_on=False, **look, **filled)


def _texts(
    panel: Axes,
    rows: pd.DataFrame,
    nights: dict[int, int],
    drawn: list[str],
    lines: dict[str, float],
) -> None:
    """Write the nights, then a line of texts for each row, with the sign that it is drawn by."""
    turned = 0 if len(nights) <= UPRIGHT else 90
    look: dict[str, Any] = {"transform": panel.get_xaxis_transform(), "va": "center", "size": 7.5}
    y, side = -0.14 / GROUND, -0.6 - 0.02 * len(nights)
    panel.text(side, y, "night", ha="right", color=MUTED, **look)
    for night, x in nights.items():
        panel.text(x, y, f"{night}", ha="center", color=MUTED, **look)
    y -= 0.08 / GROUND
    for name, height in lines.items():
        y -= height / 2 / GROUND
        number = drawn.index(name) if name in drawn else None
        sign, ink = ("", MUTED) if number is None else (f"{SIGNS[number]} ", COLOURS[number])
        panel.text(side, y, f"{sign}{name}", ha="right", color=ink, **look)
        for row in each(rows[rows.row == name]):
            panel.text(nights[row.night], y, row.text, ha="center", rotation=turned, **look)
        y -= height / 2 / GROUND


def describe_panels(frame: pd.DataFrame) -> str:
    """Return the alternative text of :func:`panels`: the last night of each model in words."""
    said = []
    for model, rows in frame.groupby("model", sort=False):
        last = rows[rows.night == rows.night.max()]
        texts = ", ".join(f"{row.row} {row.text}" for row in each(last))
        broken = last.broken.iloc[0]
        why = f" (not compared: {broken})" if broken else ""
        said.append(f"{model}, {rows.night.nunique()} nights, night {last.night.iloc[0]}{why}: ")
        said[-1] += texts
    return "; ".join(said)


def multiples(*, share: bool) -> Picture:
    """Return the picture of :func:`panels`."""
    return Picture(
        partial(panels, share=share), describe_panels, _height, left=0.1, right=0.1, top=0.0
    )
