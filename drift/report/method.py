"""The method checked by simulation: what the processes claim, and what they can see.

Frames of results from :mod:`drift.stats`, and the tables and figures made of them.
Parameters that list names or numbers hold them with commas between; members of the zoo, whose
names hold commas, with semicolons.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from drift.report.curves import lines_picture
from drift.report.display import figure, shown
from drift.report.figures import COLOURS, INK, LINE, MUTED, SHAPES, Picture
from drift.report.markup import Markup, html, joined, percent, table, with_data
from drift.report.tables import each
from drift.stats.likelihood import churn_bound, mixture_no_growth, restart_no_growth
from drift.stats.power import delay, point_null_passage, reference_table
from drift.stats.simulation import crossings, load_process
from drift.stats.zoo import ZOO, Member, iid_flips

#: Design, model and the least share of lifetimes that must reach watch, or the check is blind.
CONTROLS = (
    ("conformal on adjacent flips", "iid glitch 0.75 %", 0.20),
    ("point null", "iid flips 1.5 %", 0.25),
)
#: Exact values of the design note: n = 12, 5 pairs, 1.5 % churn, threshold 20.
POINT_NULL = {100: "5.44 %", 500: "32.08 %", 1000: "39.00 %", 1500: "40.16 %"}
AXES = {
    "quiet": "quiet refreshes before the change",
    "after": "churn after the change, share of arms",
    "burn_in": "values in the burn-in",
}
#: Where a share of 0 is drawn on a log axis.
FLOOR = 2e-4
#: What columns are called in a download, where a name alone would not say whose they are.
CROSSED = {
    "n": "arms",
    "crossed": "lifetimes_crossed",
    "entered": "lifetimes_entered",
    "share": "share_crossed",
    "limit": "share_limit",
    "covered": "is_claimed",
    "above": "is_above",
}
DELAYED = {
    "n": "arms",
    "before": "churn_before",
    "after": "churn_after",
    "quiet": "quiet_refreshes",
    "within": "within_refreshes",
    "followed": "followed_refreshes",
    "early": "lifetimes_early",
    "median": "median_delay",
    "share": "share_within",
}


#: Of the values of each parameter: the type, a test, and both in words.
EXPECTED: dict[str, tuple[Callable[[str], Any], Callable[[Any], bool], str]] = {
    "process": (str, bool, "at least one name"),
    "n": (int, lambda x: 1 <= x <= 64, "whole numbers from 1 to 64, commas between"),
    "p": (float, lambda x: 0 <= x < 1, "a share below 1, or 0 for none"),
    "threshold": (float, lambda x: 1 < x < math.inf, "a number above 1"),
    "horizon": (int, lambda x: x >= 2, "a whole number, 2 or more"),
    "lifetimes": (int, lambda x: x >= 1, "a whole number, 1 or more"),
} | dict.fromkeys(("before", "after"), (float, lambda x: 0 < x < 1, "a share between 0 and 1"))
EXPECTED |= dict.fromkeys(("burn_in", "quiet", "seed"), (int, lambda x: x >= 0, "0 or more, whole"))


def unfit(name: str, value: object, expected: str) -> ValueError:
    """Return the error of a parameter: what was got, what is expected, and the next step."""
    return ValueError(f"{name}: got {value!r}, expected {expected}; set {name} so and run again")


def checked(**given: Any) -> dict[str, list[Any]]:
    """Return the values in each of the parameters, if they are as `EXPECTED`."""
    found: dict[str, list[Any]] = {}
    for name, value in given.items():
        kind, fits, words = EXPECTED[name]
        with suppress(ValueError):
            found[name] = [kind(one) for part in str(value).split(",") if (one := part.strip())]
        if not found.get(name) or not all(map(fits, found[name])):
            raise unfit(name, value, words)
    return found


@shown
def zoo_table() -> Markup:
    """Return the members of the zoo, their parameters, and which processes claim to hold there."""
    rows = []
    for name, one in ZOO.items():
        values = (f"{key} = {value:g}" for key, value in getattr(one.draw, "keywords", {}).items())
        claimed = ", ".join(sorted(one.gated))
        rows.append((name, ", ".join(values), one.description.replace("`", ""), claimed))
    frame = pd.DataFrame(rows, columns=["member", "parameters", "description", "claimed_by"])
    named = frame.member + " (" + frame.parameters.replace("", "no parameter") + ")"
    kinds = frame.assign(Models=named).groupby(["description", "claimed_by"], sort=False)
    shown = kinds.Models.agg("; ".join).reset_index()[["Models", "description", "claimed_by"]]
    return with_data(
        table(shown.set_axis(["Models", "What they do", "Claimed"], axis=1)), "zoo", frame
    )


def ville(
    process: str,
    *,
    member: str,
    p: float,
    n: str | int,
    horizon: int,
    burn_in: int,
    lifetimes: int,
    seed: int,
) -> pd.DataFrame:
    """Return one row for each listed process and n, model and threshold.

    The models are the zoo, or the members of it that `member` lists with semicolons between, and
    with `p` one more with iid flips of that churn. Columns: those of
    :class:`drift.stats.simulation.Crossing`; nominal, the bound of the process, whether or not it
    is claimed for the model; covered, whether it is; and above, whether the share exceeds `limit`
    where it is, and the bound with its interval where not.
    """
    given = checked(process=process, n=n, p=p, burn_in=burn_in, horizon=horizon)
    checked(lifetimes=lifetimes, seed=seed)
    listed = [name for part in member.split(";") if (name := part.strip())]
    models: dict[str, str | Member] = {name: name for name in listed or ZOO}
    if p:
        gated = ZOO["iid flips 1.5 %"].gated
        models[f"iid flips {100 * p:g} %"] = Member(0, partial(iid_flips, p=p), gated)
    size: dict[str, Any] = {"refreshes": horizon, "burn_in": burn_in or None}
    size |= {"lifetimes": lifetimes, "seed": seed}
    rows = []
    for name, arms, model in itertools.product(given["process"], given["n"], models):
        for found in crossings(name, models[model], n=arms, **size):
            nominal = getattr(load_process(name), "excess", 0.0) + 1 / found.threshold
            covered = found.bound is not None
            above = found.verdict == "beyond the bound" if covered else (found.low or 0) > nominal
            more = {"member": model, "nominal": nominal, "covered": covered, "above": above}
            rows.append(asdict(found) | more)
    return pd.DataFrame(rows)


@shown
def crossings_summary(frame: pd.DataFrame) -> Markup:
    """Return for each process whether its claim held where it is made, and what lies outside."""
    lines = []
    for process, rows in frame.groupby("process", sort=False):
        names = rows.member + " (n = " + rows.n.astype(str) + ")"
        beyond, outside = (
            "; ".join(dict.fromkeys(names[rows.above & (rows.covered == covered)]))
            for covered in (True, False)
        )
        verdict = html("✓ within its bound in all {} cells that have one", rows.covered.sum())
        if beyond:
            verdict = html('<b class="drift-warning">✗ beyond its bound: {}</b>', beyond)
        rest = html(" Above it where nothing is claimed: {}.", outside) if outside else ""
        lines.append(html("<p><b>{}</b>: {}.{}</p>", process, verdict, rest))
    return joined(lines)


def _crossing(row: Any) -> Markup:
    share = f"{percent(row.share)} ({100 * row.low:.1f} to {100 * row.high:.1f})"
    if row.entered != row.crossed:
        share += f", entered {percent(row.entered / row.lifetimes)}"
    claimed = "" if row.covered else ", not claimed"
    if row.above:
        look = '<span class="drift-warning">✗ {}, above {}{}</span>'
        return html(look, share, percent(row.nominal), claimed)
    return html("{}{}{}", "✓ " if row.covered else "", share, claimed)


def crossing_plot(frame: pd.DataFrame, axes: Axes) -> None:
    """Draw the share of lifetimes that crossed, members down; filled marks are `above`.

    Columns: member, process, share, low, high, nominal, above; one threshold, one n.
    """
    members, processes = (frame[name].unique().tolist() for name in ("member", "process"))
    looks: list[dict[str, Any]] = [
        {"color": ink, "marker": shape, "markeredgewidth": 1.2, "markersize": 5}
        for ink, shape in zip((INK, *COLOURS, MUTED), SHAPES, strict=True)
    ]
    for row in each(frame):
        place = processes.index(row.process)
        y = members.index(row.member) + 0.17 * (place - 1.5)
        look = looks[place % 6]
        axes.plot([max(row.low, FLOOR), row.high], [y, y], color=look["color"], linewidth=1.1)
        face = look["color"] if row.above else "none"
        axes.plot([max(row.share, FLOOR)], [y], **look, markerfacecolor=face, clip_on=False)
    for place, bound in enumerate(sorted(frame.nominal.unique())):
        axes.axvline(bound, color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=0)
        side = "left" if place else "right"
        axes.text(bound, -0.75, f" {percent(bound)} ", ha=side, color=MUTED, fontsize=7.5)
    axes.set_xscale("log")
    axes.set_xlim(FLOOR, 1)
    axes.set_xticks([FLOOR, 1e-3, 1e-2, 1e-1, 1], ["0", "0.1", "1", "10", "100"])
    axes.minorticks_off()
    axes.set_yticks(range(len(members)), members)
    axes.set_ylim(len(members) - 0.4, -0.6)
    axes.set_xlabel("lifetimes that ever crossed, %")
    axes.hlines(
        [y - 0.5 for y in range(1, len(members))], 0, 1, color=LINE, linewidth=0.6, zorder=0
    )
    marks = [Line2D([], [], **looks[i % 6], markerfacecolor="none") for i in range(len(processes))]
    axes.legend(marks, processes, loc="lower left", bbox_to_anchor=(0, 1.02), ncols=5)


def describe_crossings(frame: pd.DataFrame) -> str:
    """Return the alternative text of :func:`crossing_plot`: which models are above which bound."""
    parts = []
    for process, rows in frame.groupby("process", sort=False):
        above = [f"{row.member} {percent(row.share)}" for row in each(rows[rows.above])]
        named = f": {', '.join(above)}" if above else ""
        of = f"{len(above)} of {len(rows)} models above it{named}"
        parts.append(f"{process}, bound {percent(rows.nominal.iloc[0])}: {of}")
    return "; ".join(parts)


CROSSINGS = Picture(
    crossing_plot, describe_crossings, lambda frame: 1 + 0.36 * frame.member.nunique(), right=0.2
)


@shown
def crossings_plot(frame: pd.DataFrame, caption: str) -> Markup:
    """Return one figure for each n and threshold, the shares in the table behind it."""
    parts = []
    for (n, threshold), rows in frame.groupby(["n", "threshold"], sort=False):
        cells = rows.assign(shown=[_crossing(row) for row in each(rows)])
        behind = cells.pivot_table("shown", "member", "process", aggfunc="first", sort=False)
        name, text = f"crossings-{n}-{threshold:g}", f"n = {n}, threshold {threshold:g}. {caption}"
        data = rows.rename(columns=CROSSED)
        parts.append(figure(name, CROSSINGS, rows, behind.reset_index(), text, data=data))
    return joined(parts, "\n")


@shown
def controls_table(*, n: str | int, lifetimes: int, seed: int) -> Markup:
    """Return the designs which must fail, and whether they do."""
    rows, shown = [], []
    for (process, model, least), arms in itertools.product(CONTROLS, checked(n=n)["n"]):
        size = {"n": arms, "lifetimes": lifetimes, "seed": seed}
        share = crossings(process, model, thresholds=[20], **size)[0].share
        word: object = "✓ fails, as it must"
        if share <= least:
            word = html('<b class="drift-warning">✗ passes: the check is too weak</b>')
        rows.append((process, model, arms, lifetimes, share, least, share > least))
        shown.append((process, model, arms, percent(share), percent(least), word))
    names = ["Design", "Model", "n", "Watch", "Must exceed", "Verdict"]
    columns = ["process", "member", "arms", "lifetimes", "share_crossed", "share_due", "fails"]
    data = pd.DataFrame(rows, columns=columns)
    return with_data(table(pd.DataFrame(shown, columns=names)), "controls-of-the-check", data)


@shown
def point_null_table() -> Markup:
    """Return the exact chance to cross 20 with an estimate for the bound, by length of life."""
    passage = point_null_passage()
    rows = [(t, float(passage[t - 1]), stated) for t, stated in POINT_NULL.items()]
    frame = pd.DataFrame(rows, columns=["refreshes", "share_crossed", "claimed_value"])
    shown = frame.assign(share_crossed=[f"{100 * share:.2f} %" for share in frame.share_crossed])
    names = ["Refreshes", "Ours", "Design note"]
    return with_data(table(shown.set_axis(names, axis=1)), "point-null", frame)


def bounds(n: str | int, *, churn: float) -> pd.DataFrame:
    """Return p0 after burn-ins of up to 160 transitions which saw as many flips as expected.

    Columns: transitions, arms, p0 (share of 1).
    """
    rows = [
        (pairs, arms, churn_bound(round(churn * arms * pairs), arms * pairs) or 1.0)
        for arms in checked(n=n, before=churn)["n"]
        for pairs in (5, 10, 20, 30, 40, 60, 80, 120, 160)
    ]
    return pd.DataFrame(rows, columns=["transitions", "arms", "p0"])


@shown
def bounds_plot(frame: pd.DataFrame, caption: str) -> Markup:
    """Return the figure of :func:`bounds`."""
    kind = lines_picture(xlabel="transitions in the burn-in", ylabel="p0, %")
    lines = frame.assign(x=frame.transitions, y=100 * frame.p0, part=0, entered="")
    lines["series"] = [f"n = {arms}" for arms in frame.arms]
    behind = lines.pivot_table("y", "transitions", "series", sort=False).round(2).reset_index()
    behind = behind.rename(columns={"transitions": "Transitions"})
    return figure("bounds", kind, lines, behind, caption, data=frame)


@shown
def no_growth_table(frame: pd.DataFrame) -> Markup:
    """Return for bounds on churn where mixture and restart process begin to grow."""
    frame = frame[frame.transitions.isin([20, 40])]
    mixture, restart = (frame.p0.map(of) for of in (mixture_no_growth, restart_no_growth))
    data = pd.concat(
        [
            frame.assign(process=name, no_growth_at_or_below=shares)
            for name, shares in (("mixture", mixture), ("restart", restart))
        ]
    )
    shown = frame.assign(arms=[f"n = {arms}" for arms in frame.arms])
    for name, shares in (("p0", frame.p0), ("mixture", mixture), ("restart", restart)):
        shown[name] = [f"{100 * share:.2f} %" for share in shares]
    names = ["Transitions", "Arms", "p0", "No growth at or below, mixture", "… restart"]
    return with_data(table(shown.set_axis(names, axis=1)), "no-growth", data)


def delays(
    process: str, *, n: str | int, quiet: str, after: str, burn_in: str = "0", **options: Any
) -> pd.DataFrame:
    """Return one row for each process and each combination of the listed numbers.

    Columns: those of :class:`drift.stats.power.Delay`. A burn-in of 0 is the process's own.
    """
    grid = checked(process=process, n=n, quiet=quiet, after=after, burn_in=burn_in)
    options = {"horizon": 1500} | options
    checked(**{name: options[name] for name in EXPECTED if name in options})
    if max(grid["quiet"]) >= options["horizon"]:
        raise unfit("quiet", quiet, f"fewer refreshes than the horizon, {options['horizon']}")
    found = []
    for name, arms, before, churn, length in itertools.product(*grid.values()):
        options |= {"n": arms, "quiet": before, "burn_in": length or None}
        found.append(delay(name, after=churn, **options))
    return pd.DataFrame(map(asdict, found))


def _median(found: Any) -> str:
    return str(found.reason) if pd.isna(found.median) else f"{found.median:g}"


@shown
def delays_plot(frame: pd.DataFrame, by: str, caption: str) -> Markup:
    """Return one figure for each n: the median delay against one column of the frame."""
    kind = lines_picture(xlabel=AXES[by], ylabel="median delay, refreshes")
    names = ["Process", AXES[by], "Median", f"Within {frame.within.iloc[0]}", "False before"]
    one, parts = frame.iloc[0], []
    after = "" if by == "after" else f" and {percent(one.after)} after"
    size = f"Threshold {one.threshold:g}, {one.lifetimes:,} lifetimes a point, churn"
    size += f" {percent(one.before)} before the change{after}."
    for n, rows in frame.groupby("n", sort=False):
        lines = rows.assign(x=rows[by], y=rows["median"], series=rows.process, part=0, entered="")
        shares, early = rows.share.map(percent), rows.early / rows.lifetimes
        medians = [_median(row) for row in each(rows)]
        columns = (rows.process, rows[by], medians, shares, early.map(percent))
        behind = pd.DataFrame(dict(zip(names, columns, strict=True)))
        name, text = f"delay-by-{by.replace('_', '-')}-{n}", f"n = {n}. {size} {caption}"
        data = rows.rename(columns=DELAYED)
        parts.append(figure(name, kind, lines, behind, text, data=data))
    return joined(parts, "\n")


@shown
def references(*, lifetimes: int, seed: int) -> Markup:
    """Return every delay of the design note beside our own."""
    rows, known = [], []
    for row in reference_table(lifetimes=lifetimes, seed=seed):
        ours = row.measured
        known.append(asdict(ours) | {"claimed_median": row.median, "claimed_share": row.share})
        place = (ours.process, f"{ours.threshold:g}", ours.n, percent(ours.after), ours.quiet)
        shares = ("" if share is None else percent(share) for share in (row.share, ours.share))
        stated = "" if row.median is None else f"{row.median:g}"
        rows.append((*place, stated, _median(ours), ours.within, *shares))
    names = ["Process", "At", "n", "Churn after", "Quiet", "Median, design note", "Ours"]
    names += ["Within", "Share, design note", "Our share"]
    data = pd.DataFrame(known).rename(columns=DELAYED)
    return with_data(table(pd.DataFrame(rows, columns=names)), "delays-stated", data)
