"""Lines: evidence against time on a log axis, and the curves of power, named at their ends.

Every line has a dash pattern and its name beside it, so none is told by colour alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from drift.report.figures import COLOURS, INK, LINE, MUTED, SHAPES, Picture
from drift.report.tables import each

DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (6, 2, 1, 2)), (0, (2, 3)))
#: What a log axis can show; a line beyond runs along the edge, and its end states the value.
EDGES = (1e-9, 1e9)
#: A figure of so few places shows its points.
FEW = 12


def curves(
    frame: pd.DataFrame,
    axes: Axes,
    *,
    xlabel: str,
    ylabel: str,
    levels: Mapping[str, float] | None = None,
    debt: str = "",
) -> None:
    """Draw one line for each series on a log axis, its last value at the right margin.

    Columns: x (a number or a UTC time), y (above 0; missing breaks the line), series, part
    (no line joins two parts), entered (the state entered there, else empty: an open triangle for
    watch, a filled one for alarm). `levels`
    are drawn across by name; the ground between the line named `debt` and 1 is shaded.
    """
    levels = levels or {}
    span = [*frame.y.dropna(), *levels.values(), *([1.0] if debt else [])]
    low, high = np.clip([min(span) / 2, 2.5 * max(span)], *EDGES)
    inks, ends = (INK, *COLOURS, MUTED), []
    for place, (name, rows) in enumerate(frame.groupby("series", sort=False)):
        look: dict[str, Any] = {"color": inks[place % 6], "linestyle": DASHES[place % 5]}
        for _, part in rows.groupby("part"):
            y = part.y.clip(low, high)
            points = SHAPES[place % 6] if frame.x.nunique() <= FEW else None
            axes.plot(
                part.x, y, marker=points, markersize=4, linewidth=1.6 if place else 2.2, **look
            )
            if name == debt:
                below = y.clip(upper=1).fillna(1)
                axes.fill_between(part.x, below, 1, color=look["color"], alpha=0.12, linewidth=0)
        for row in each(rows[rows.entered != ""]):
            filled = look["color"] if row.entered == "alarm" else "none"
            mark = {"color": look["color"], "markerfacecolor": filled, "markeredgewidth": 1.4}
            axes.plot([row.x], [min(row.y, high)], "^", markersize=8, **mark)
        last = rows.y.dropna()
        if len(last):
            ends.append((float(last.iloc[-1]), f"{name} {last.iloc[-1]:.3g}", look))
    for place, (name, value) in enumerate(levels.items()):
        axes.axhline(value, color=LINE, linewidth=1.2, zorder=0)
        across = axes.get_yaxis_transform()
        axes.text(0.01 + 0.17 * place, 1.06 * value, name, color=MUTED, transform=across)
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    if high < 1e3 * low:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())
    axes.margins(x=0.01)
    axes.set_xlabel(xlabel)
    axes.set_title(ylabel, loc="left", fontsize=8.5, color=MUTED)
    ends.sort(key=lambda end: end[0])
    heights = np.log(np.clip([end for end, *_ in ends], low, high) / low) / np.log(high / low)
    for height, (_, name, look) in zip(_apart(heights), ends, strict=True):
        beside: dict[str, Any] = {"transform": axes.transAxes, "clip_on": False}
        # A sample of the line ties the name to it where names were moved apart.
        axes.plot([1.01, 1.05], [height, height], linewidth=1.6, **look, **beside)
        axes.text(1.06, height, name, color=look["color"], va="center", **beside)


def _apart(heights: Iterable[float], gap: float = 0.065) -> list[float]:
    """Return sorted heights (shares of the axis) moved apart, so that no two names overlap."""
    found: list[float] = []
    for height in heights:
        found.append(max([height, *(below + gap for below in found[-1:])]))
    for i in reversed(range(len(found))):
        found[i] = min(found[i], found[i + 1] - gap if i + 1 < len(found) else 1)
    return found


def describe_curves(frame: pd.DataFrame) -> str:
    """Return the alternative text of :func:`curves`: last and highest value, states entered."""
    parts = []
    for name, rows in frame.groupby("series", sort=False):
        known = rows.dropna(subset="y")
        if known.empty:
            parts.append(f"{name}: no value")
            continue
        top, last = known.iloc[int(known.y.argmax())], known.iloc[-1]
        said = [f"{name}: {last.y:.3g} at {_place(last.x)}"]
        said.append(f"highest {top.y:.3g} at {_place(top.x)}")
        said += [f"{row.entered} at {_place(row.x)}" for row in each(rows[rows.entered != ""])]
        parts.append(", ".join(said))
    return "; ".join(parts)


def _place(x: Any) -> str:
    return f"{x:%Y-%m-%d %H:%M} UTC" if isinstance(x, pd.Timestamp) else f"{x:g}"


def lines_picture(**options: Any) -> Picture:
    """Return the picture of :func:`curves` with these options."""
    draw = partial(curves, **options)
    return Picture(draw, describe_curves, lambda frame: 3.6, left=0.65, right=1.5)
