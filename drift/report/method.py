"""The method checked by simulation: what the processes claim, and what they can see.

Frames of results from :mod:`drift.stats`, and the tables and figures made of them.
"""

from __future__ import annotations

import itertools
from dataclasses import asdict
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from drift.report.curves import lines_picture
from drift.report.figures import COLOURS, INK, LINE, MUTED, SHAPES, Picture
from drift.report.markup import Markup, html, joined, percent, table
from drift.report.pages import figure, shown
from drift.report.tables import each
from drift.stats.likelihood import churn_bound, mixture_no_growth, restart_no_growth
from drift.stats.power import delay, point_null_passage, reference_table
from drift.stats.simulation import crossings, load_process
from drift.stats.zoo import ZOO

#: Design, model and the least share of lifetimes that must reach watch, or the check is blind.
CONTROLS = (
    ("conformal on adjacent flips", "iid glitch 0.75 %", 0.20),
    ("point null", "iid flips 1.5 %", 0.25),
)
#: Exact values as published: n = 12, 5 pairs, 1.5 % churn, threshold 20.
POINT_NULL = {100: "5.44 %", 500: "32.08 %", 1000: "39.00 %", 1500: "40.16 %"}
AXES = {
    "quiet": "quiet refreshes before the change",
    "after": "churn after the change, share of arms",
    "burn_in": "values in the burn-in",
}
#: Where a share of 0 is drawn on a log axis.
FLOOR = 2e-4


def listed(text: str) -> list[str]:
    """Return the names in a parameter that lists them with commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def ville(
    process: str, *, member: str, n: str, horizon: int, lifetimes: int, burn_in: int, seed: int
) -> pd.DataFrame:
    """Return one row for each process, member of the zoo, n and threshold.

    Columns: those of :class:`drift.stats.simulation.Crossing`, and nominal (the bound that is
    claimed of the process where its claim covers the model).
    """
    rows = []
    for name in listed(process):
        excess = getattr(load_process(name), "excess", 0.0)
        for arms in listed(n):
            for model in [member] if member else ZOO:
                found = crossings(
                    name,
                    model,
                    n=int(arms),
                    lifetimes=lifetimes,
                    refreshes=horizon,
                    burn_in=burn_in or None,
                    seed=seed,
                )
                rows += [asdict(item) | {"nominal": excess + 1 / item.threshold} for item in found]
    return pd.DataFrame(rows)


@shown
def zoo_table() -> str:
    """Return the members of the zoo, and which processes claim to hold there."""
    frame = pd.DataFrame(
        {
            "Models": name,
            "What they do": model.description,
            "Claimed": ", ".join(sorted(model.gated)),
        }
        for name, model in ZOO.items()
    )
    kinds = frame.groupby(["What they do", "Claimed"], sort=False).Models.agg("; ".join)
    return table(kinds.reset_index()[["Models", "What they do", "Claimed"]])


@shown
def crossings_summary(frame: pd.DataFrame) -> str:
    """Return for each process whether its claim held where it is made, and what lies outside."""
    lines = []
    for process, rows in frame.groupby("process", sort=False):
        claimed, outside = rows[rows.bound.notna()], rows[rows.bound.isna()]
        beyond = claimed[claimed.verdict == "beyond the bound"]
        above = outside[outside.low > outside.nominal]
        verdict = html("✓ within its bound in all {} cells where one is claimed", len(claimed))
        if len(beyond):
            verdict = html('<b class="drift-warning">✗ beyond its bound: {}</b>', _cells(beyond))
        rest = html(" Above it where nothing is claimed: {}.", _cells(above)) if len(above) else ""
        lines.append(html("<p><b>{}</b>: {}.{}</p>", process, verdict, rest))
    return joined(lines)


def _cells(rows: pd.DataFrame) -> str:
    names = rows.member + " (n = " + rows.n.astype(str) + ")"
    return "; ".join(dict.fromkeys(names))


def _crossing(row: Any) -> Markup:
    share = f"{percent(row.share)} ({100 * row.low:.1f} to {100 * row.high:.1f})"
    above = row.verdict == "beyond the bound" or (pd.isna(row.bound) and row.low > row.nominal)
    where = "" if pd.notna(row.bound) else " not claimed"
    look = '<span class="drift-warning">✗ {}, above {}{}</span>' if above else "{}{3}"
    if row.verdict == "within the bound":
        look = "✓ {}"
    return html(look, share, percent(row.nominal), where, where)


def crossing_plot(frame: pd.DataFrame, axes: Axes) -> None:
    """Draw the share of lifetimes that crossed, members down; filled marks are above the bound.

    Columns: member, process, share, low, high, nominal; one threshold, one n.
    """
    members, processes = frame.member.unique().tolist(), frame.process.unique().tolist()
    for row in each(frame):
        place = processes.index(row.process)
        ink, y = (INK, *COLOURS)[place % 5], members.index(row.member) + 0.17 * (place - 1.5)
        face = ink if row.low > row.nominal else "none"
        axes.plot([max(row.low, FLOOR), row.high], [y, y], color=ink, linewidth=1.1)
        look: dict[str, Any] = {
            "color": ink,
            "markerfacecolor": face,
            "markeredgewidth": 1.2,
            "markersize": 5,
        }
        axes.plot([max(row.share, FLOOR)], [y], SHAPES[place % 6], clip_on=False, **look)
    for bound, side in zip(sorted(frame.nominal.unique()), ("right", "left", "left"), strict=False):
        axes.axvline(bound, color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=0)
        axes.text(bound, -0.75, f" {percent(bound)} ", ha=side, color=MUTED, fontsize=7.5)
    axes.set_xscale("log")
    axes.set_xlim(FLOOR, 1)
    ticks = {FLOOR: "0", 1e-3: "0.1", 1e-2: "1", 1e-1: "10", 1: "100"}
    axes.set_xticks(list(ticks), list(ticks.values()), minor=False)
    axes.minorticks_off()
    axes.set_yticks(range(len(members)), members)
    axes.set_ylim(len(members) - 0.4, -0.6)
    axes.set_xlabel("lifetimes that ever crossed, %")
    for y in range(1, len(members)):
        axes.axhline(y - 0.5, color=LINE, linewidth=0.6, zorder=0)
    marks = [
        Line2D([], [], color=(INK, *COLOURS)[i % 5], marker=SHAPES[i % 6], markerfacecolor="none")
        for i in range(len(processes))
    ]
    axes.legend(marks, processes, loc="lower left", bbox_to_anchor=(0, 1.02), ncols=5)


def describe_crossings(frame: pd.DataFrame) -> str:
    """Return the alternative text of :func:`crossing_plot`: which models are above which bound."""
    parts = []
    for process, rows in frame.groupby("process", sort=False):
        above = [
            f"{row.member} {percent(row.share)}" for row in each(rows[rows.low > rows.nominal])
        ]
        parts.append(
            f"{process}, bound {percent(rows.nominal.iloc[0])}: {len(above)} of {len(rows)} models "
            f"above it{': ' if above else ''}{', '.join(above)}"
        )
    return "; ".join(parts)


CROSSINGS = Picture(
    crossing_plot,
    describe_crossings,
    lambda frame: 1.0 + 0.36 * frame.member.nunique(),
    left=1.75,
    right=0.2,
)


@shown
def crossings_plot(frame: pd.DataFrame, caption: str) -> str:
    """Return one figure for each n and threshold, the shares in the table behind it."""
    parts = []
    for (n, threshold), rows in frame.groupby(["n", "threshold"], sort=False):
        cells = rows.assign(shown=[_crossing(row) for row in each(rows)])
        behind = cells.pivot_table("shown", "member", "process", aggfunc="first", sort=False)
        name, text = f"crossings-{n}-{threshold:g}", f"n = {n}, threshold {threshold:g}."
        parts.append(
            figure(name, CROSSINGS, rows, behind.reset_index(), f"{text} {caption.strip()}")
        )
    return joined(parts, "\n")


@shown
def controls_table(*, n: str, lifetimes: int, seed: int) -> str:
    """Return the designs which must fail, and whether they do."""
    rows = []
    for process, model, least in CONTROLS:
        for arms in listed(n):
            size = {"n": int(arms), "lifetimes": lifetimes, "seed": seed}
            found = crossings(process, model, thresholds=[20], **size)[0]
            fails = html("✓ fails, as it must")
            passes = html('<b class="drift-warning">✗ passes: the check is too weak</b>')
            row = {"Design": process, "Model": model, "n": arms, "Watch": percent(found.share)}
            row |= {"Must exceed": percent(least), "": fails if found.share > least else passes}
            rows.append(row)
    return table(pd.DataFrame(rows))


@shown
def point_null_table() -> str:
    """Return the exact chance to cross 20 with an estimate for the bound, by length of life."""
    passage = point_null_passage()
    rows = [
        {"Refreshes": t, "Ours": f"{100 * passage[t - 1]:.2f} %", "Stated": stated}
        for t, stated in POINT_NULL.items()
    ]
    return table(pd.DataFrame(rows))


def bounds(n: str, *, churn: float) -> pd.DataFrame:
    """Return p0 after burn-ins of up to 160 transitions which saw as many flips as expected.

    Columns: x (transitions), y (p0 in %), series, part, entered.
    """
    rows = [
        (pairs, 100 * (churn_bound(round(churn * arms * pairs), arms * pairs) or 1), f"n = {arms}")
        for arms in map(int, listed(n))
        for pairs in (5, 10, 20, 30, 40, 60, 80, 120, 160)
    ]
    return pd.DataFrame(rows, columns=["x", "y", "series"]).assign(part=0, entered="")


@shown
def bounds_plot(frame: pd.DataFrame, caption: str) -> str:
    """Return the figure of :func:`bounds`."""
    kind = lines_picture(xlabel="transitions in the burn-in", ylabel="p0, %")
    behind = frame.pivot_table("y", "x", "series", sort=False).round(2).reset_index()
    return figure("bounds", kind, frame, behind.rename(columns={"x": "Transitions"}), caption)


@shown
def no_growth_table(frame: pd.DataFrame) -> str:
    """Return for bounds on churn where mixture and restart process begin to grow."""
    rows = [
        {
            "Burn-in": f"{row.x} transitions, {row.series}",
            "p0": f"{row.y:.2f} %",
            "No growth at or below, mixture": f"{100 * mixture_no_growth(row.y / 100):.2f} %",
            "… restart": f"{100 * restart_no_growth(row.y / 100):.2f} %",
        }
        for row in each(frame[frame.x.isin([20, 40])])
    ]
    return table(pd.DataFrame(rows))


def delays(
    process: str, *, n: str, quiet: str, after: str, burn_in: str = "0", **options: Any
) -> pd.DataFrame:
    """Return one row for each process and each combination of the listed numbers.

    Columns: those of :class:`drift.stats.power.Delay`. A burn-in of 0 is the process's own.
    """
    grid = itertools.product(*map(listed, (process, n, quiet, after, burn_in)))
    found = [
        delay(
            name,
            n=int(arms),
            quiet=int(before),
            after=float(churn),
            burn_in=int(length) or None,
            **options,
        )
        for name, arms, before, churn, length in grid
    ]
    return pd.DataFrame(map(asdict, found))


@shown
def delays_plot(frame: pd.DataFrame, by: str, caption: str) -> str:
    """Return one figure for each n: the median delay against one column of the frame."""
    parts = []
    for n, rows in frame.groupby("n", sort=False):
        lines = rows.assign(x=rows[by], y=rows["median"], series=rows.process, part=0, entered="")
        kind = lines_picture(xlabel=AXES[by], ylabel="median delay, refreshes")
        behind = pd.DataFrame(
            {
                "Process": rows.process,
                AXES[by].capitalize(): rows[by],
                "Median": [
                    row.reason if pd.isna(row.median) else f"{row.median:g}" for row in each(rows)
                ],
                f"Within {rows.within.iloc[0]}": rows.share.map(percent),
                f"False before, of {rows.lifetimes.iloc[0]}": rows.early,
            }
        )
        text = f"n = {n}. {caption.strip()}"
        parts.append(figure(f"delay-by-{by}-{n}", kind, lines, behind, text))
    return joined(parts, "\n")


@shown
def references(*, lifetimes: int, seed: int) -> str:
    """Return every published delay beside our own."""
    rows = []
    for row in reference_table(lifetimes=lifetimes, seed=seed):
        ours = row.measured
        rows.append(
            {
                "Process": ours.process,
                "At": f"{ours.threshold:g}",
                "n": ours.n,
                "Churn after": f"{100 * ours.after:g} %",
                "Quiet": ours.quiet,
                "Median stated": "" if row.median is None else f"{row.median:g}",
                "Ours": ours.reason if ours.median is None else f"{ours.median:g}",
                "Within": ours.within,
                "Share stated": "" if row.share is None else f"{row.share:.3g}",
                "Ours ": "" if ours.share is None else f"{ours.share:.3g}",
            }
        )
    return table(pd.DataFrame(rows))
