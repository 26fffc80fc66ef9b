"""The guard checked by simulation: what it lays to the target when an instrument moved.

Shares and floors are of 1. A shift is the part of all items that turns from refused to
answered. Parameters that list numbers hold them with commas between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from itertools import chain, product
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from scipy.optimize import brentq

from drift.report.curves import DASHES
from drift.report.display import figure, shown
from drift.report.figures import COLOURS, INK, MUTED, SHAPES, Picture
from drift.report.markup import Markup, html, joined, percent, table, with_data
from drift.report.method import unfit
from drift.report.tables import each
from drift.stats.attribution import Setting, Verdicts, simulate
from drift.stats.floor import beyond, floor_value

#: A floor that voids nothing: what is attributable under any floor is so under this one.
NO_FLOOR = 1.0
#: The floor that a document states, its items, and their rate.
STATED, ITEMS, RATE = 0.02, 500, 0.9
#: Share of the items that a model needs labels for, as registered in ``config/alarm.toml``.
USABLE = 0.9
#: The verdicts, as columns of a frame and in words.
VERDICTS = {
    "attributable": "Attributable",
    "drifted": "Drifted",
    "no_room": "No room",
    "no_change": "No change",
}
#: What columns are called in a download, where a name alone would not say whose they are.
NAMES = {
    "discordance": "target_discordance",
    "share": "share_attributable",
    "low": "attributable_low",
    "high": "attributable_high",
}
#: Of the numbers in each parameter: a test, and what passes it in words.
EXPECTED: dict[str, tuple[Callable[[float], bool], str]] = {
    **dict.fromkeys(
        ("sizes", "clusters", "pairs"),
        (lambda x: x >= 1 and x == int(x), "whole numbers, 1 or more"),
    ),
    **dict.fromkeys(
        ("discordances", "shifts", "rates", "lost"),
        (lambda x: 0 <= x <= 1, "shares from 0 to 1"),
    ),
    "sensitivities": (lambda x: 0 <= x < 100, "numbers, 0 or more"),
}


def listed(**given: str) -> list[list[float]]:
    """Return the numbers in each of the parameters, if they are as `EXPECTED`."""
    found: list[list[float]] = []
    for name, value in given.items():
        fits, words = EXPECTED[name]
        numbers: list[float] = []
        with suppress(ValueError):
            numbers = [float(part) for part in value.split(",")]
        if not numbers or not all(map(fits, numbers)):
            raise unfit(name, value, f"{words}, commas between")
        found.append(numbers)
    return found


def _frame(settings: Iterable[Setting], **options: Any) -> pd.DataFrame:
    """Return one row a setting: its fields and those of :class:`Verdicts`."""
    found: list[Verdicts] = [simulate(one, **options) for one in settings]
    rows = [asdict(one.setting) | asdict(one) for one in found]
    return pd.DataFrame(rows).drop(columns="setting")


def errors(
    *, sizes: str, discordances: str, shifts: str, sensitivities: str, rates: str, **options: Any
) -> pd.DataFrame:
    """Return the verdicts if an instrument moved the reference as far as the target or further.

    For each size all combinations that can be of the discordance of target and reference, the
    shift, the sensitivities of 1 or more and the reference's rate; without a floor.
    """
    counts, noise, moves = listed(sizes=sizes, discordances=discordances, shifts=shifts)
    kappas, shares = listed(sensitivities=sensitivities, rates=rates)
    kappas = sorted(kappa for kappa in kappas if kappa >= 1)
    settings = (
        Setting(int(n), NO_FLOOR, d, e, shift, kappa, rate)
        for n, d, e, shift, kappa, rate in product(counts, noise, noise, moves, kappas, shares)
        if d + shift <= 1 and e <= 2 * min(rate, 1 - rate) and (shift or kappa == kappas[0])
    )
    return _frame(settings, **options)


@shown
def errors_table(frame: pd.DataFrame, *, alpha: float, draws: int, seed: int) -> Markup:
    """Return the highest error for each size, drawn anew, and whether it is at most alpha.

    The highest of many simulated shares is high by luck too: its setting is simulated once
    more, with other draws, and only these are shown. The mark is for that setting alone.
    """
    highest = frame.loc[frame.groupby("items", sort=False).share.idxmax()]
    fields = [name for name in Setting.__dataclass_fields__ if name in frame]
    settings = [Setting(*row) for row in each(highest[fields])]
    found = _frame(settings, alpha=alpha, draws=draws, seed=seed + 1)
    words = {
        True: html("✓ at most {} here", percent(alpha)),
        False: html('<b class="drift-warning">✗ above {}</b>', percent(alpha)),
        None: html("not told from {} by so many draws", percent(alpha)),
    }
    holds = [True if r.high <= alpha else False if r.low > alpha else None for r in each(found)]
    rows = {
        "Items": found["items"],
        "Highest error, 95 % interval": [
            f"{percent(r.share)} ({100 * r.low:.2f} to {100 * r.high:.2f})" for r in each(found)
        ],
        "That setting": [words[one] for one in holds],
        "Which": [_where(row) for row in each(found)],
    }
    size = html(
        "<p>The highest of {:,} settings with {:,} draws each, for each size; then {:,} new draws "
        "of it. The mark is for that one setting; the others have only their first draws.</p>",
        *(len(frame), frame.draws.iloc[0], draws),
    )
    data = pd.concat([frame, found]).rename(columns=NAMES)
    return with_data(joined([size, table(pd.DataFrame(rows))]), "attribution-errors", data)


def _where(row: Any) -> str:
    flips = f"{percent(row.discordance)} of the target's and"
    flips += f" {percent(row.reference_discordance)} of the reference's items flip, "
    moved = f"shift {100 * row.shift:g} points, sensitivity {row.sensitivity:g}"
    return flips + (moved if row.shift else "nothing moved")


def verdict_lines(frame: pd.DataFrame, axes: Axes, *, xlabel: str, level: float, log: bool) -> None:
    """Draw the share attributed against x, with its interval, one line a series; dashed: level.

    Columns: x, series, share, low, high.
    """
    axes.axhline(100 * level, color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=0)
    for place, (name, rows) in enumerate(frame.groupby("series", sort=False)):
        ink = (INK, *COLOURS, MUTED)[place % 6]
        look: dict[str, Any] = {"color": ink, "linestyle": DASHES[place % 5], "linewidth": 1.6}
        mark: dict[str, Any] = {"marker": SHAPES[place % 6], "markersize": 4.5}
        axes.plot(rows.x, 100 * rows.share, label=name, clip_on=False, **look, **mark)
        axes.vlines(rows.x, 100 * rows.low, 100 * rows.high, color=ink, linewidth=1.2)
    axes.set_xscale("log" if log else "linear")
    axes.set_xticks(frame.x.unique(), [f"{x:g}" for x in frame.x.unique()])
    axes.minorticks_off()
    axes.set_ylim(0, 100)
    axes.grid(axis="y")
    axes.set_xlabel(xlabel)
    axes.set_ylabel("attributed to the target, %")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.02), ncols=4)


def describe_lines(frame: pd.DataFrame) -> str:
    """Return the alternative text of :func:`verdict_lines`: each line's shares in words."""
    return "; ".join(
        f"{name}: {', '.join(f'{percent(row.share)} at {row.x:g}' for row in each(rows))}"
        for name, rows in frame.groupby("series", sort=False)
    )


def _lines(**options: Any) -> Picture:
    draw = partial(verdict_lines, **options)
    return Picture(draw, describe_lines, lambda frame: 3.4, left=0.65, right=0.2)


def _interval(row: Any) -> str:
    return f"{percent(row.share)} ({100 * row.low:.1f} to {100 * row.high:.1f})"


@shown
def sensitivity_plot(
    caption: str, *, items: int, flips: float, shifts: str, sensitivities: str, **options: Any
) -> Markup:
    """Return how often an instrument's shift is laid to the target, by what the reference feels.

    `flips` is the discordance of both models; the floor is the one that follows from it.
    """
    floor = floor_value(flips, items)
    moves, kappas = listed(shifts=shifts, sensitivities=sensitivities)
    grid = product(kappas, moves)
    frame = _frame((Setting(items, floor, flips, flips, s, k) for k, s in grid), **options)
    frame["x"] = (100 * frame["shift"]).round(6)
    frame["series"] = [f"sensitivity {kappa:g}" for kappa in frame.sensitivity]
    shares = frame.assign(shown=[_interval(row) for row in each(frame)])
    behind = shares.pivot_table("shown", "x", "series", aggfunc="first", sort=False)
    behind = behind.reset_index().rename(columns={"x": "Shift, points"})
    text = f"{items} items, {percent(flips)} flip by noise, floor {percent(floor)}. {caption}"
    kind = _lines(xlabel="shift by the instrument, points", level=options["alpha"], log=False)
    data = frame.drop(columns=["x", "series"]).rename(columns=NAMES)
    return figure("attribution-by-sensitivity", kind, frame, behind, text, data=data)


@shown
def power_plot(
    caption: str, *, sizes: str, discordances: str, drop: float, **options: Any
) -> Markup:
    """Return how often a real drop of the target is attributed, by items and discordance.

    Both models flip alike; the floor of each point follows from items and discordance.
    """
    counts, noise = listed(sizes=sizes, discordances=discordances)
    settings = (
        Setting(int(n), floor_value(d, int(n)), d, d, drop, 0) for d in noise for n in counts
    )
    frame = _frame(settings, **options)
    frame["x"] = frame["items"]
    frame["series"] = [f"{100 * d:g} % flip" for d in frame.discordance]
    behind = pd.DataFrame(
        {
            "Items": frame["items"],
            "Flips": frame.discordance.map(percent),
            "Floor": frame.floor.map(percent),
            "Attributed": [_interval(row) for row in each(frame)],
            "Void": (frame.drifted / frame.draws).map(percent),
        }
    )
    kind = _lines(xlabel="items of the corpus", level=0.8, log=True)
    text = f"A drop of {100 * drop:g} points. Dashed: 80 %. {caption}"
    data = frame.drop(columns=["x", "series"]).rename(columns=NAMES)
    return figure("attribution-power", kind, frame, behind, text, data=data)


@shown
def verdicts_table(*, items: int, flips: float, drop: float, **options: Any) -> Markup:
    """Return how often each verdict falls in six cases of one size."""
    floor = floor_value(flips, items)
    moved = partial(Setting, items, floor, flips, flips)
    cases = {
        "Nothing changed": moved(0, 1),
        "The target alone changed": moved(drop, 0),
        "The instrument moved both alike": moved(drop, 1),
        "… the reference half as far": moved(drop, 0.5),
        "… the reference not at all": moved(drop, 0),
        "… and the reference refuses nothing": Setting(items, 0, flips, 0, drop, 1, 0),
    }
    frame = _frame(cases.values(), **options)
    frame.insert(0, "case", list(cases))
    shares = {words: (frame[name] / frame.draws).map(percent) for name, words in VERDICTS.items()}
    text = html(
        "<p>{} items, {} flip by noise, floor {}; a change is a fall of {:g} points.</p>",
        *(items, percent(flips), percent(floor), 100 * drop),
    )
    shown = table(pd.DataFrame({"What happened": frame.case} | shares))
    return with_data(joined([text, shown]), "attribution-verdicts", frame.rename(columns=NAMES))


def _crossed(cells: Iterable[Any], across: Iterable[str], rows: Mapping[str, Any]) -> Markup:
    """Return a table of `cells`: one row for each combination of `rows`, columns by `across`."""
    long = pd.DataFrame({**rows, "cell": list(cells), "": list(across)})
    wide = long.pivot_table("cell", list(rows), "", aggfunc="first", sort=False)
    return table(wide.reset_index())


def _errors(frame: pd.DataFrame, alpha: float) -> list[Markup]:
    """Write the error of each row: marked if its interval is above alpha, with what has none."""
    above = '<b class="drift-warning">✗\N{NO-BREAK SPACE}{}</b>'
    shares = [html(above if r.low > alpha else "{}", percent(r.share)) for r in each(frame)]
    none = frame.not_estimable / frame.draws
    more = [f", {percent(share)} not estimable" if share >= 5e-4 else "" for share in none]
    return [
        html("not estimable") if lost > 0.9995 else html("{}{}", share, text)
        for lost, share, text in zip(none, shares, more, strict=True)
    ]


def _by_noise(frame: pd.DataFrame) -> dict[str, Any]:
    return {"Items": frame["items"], "Flips": frame.discordance.map(percent)}


@shown
def clusters_table(*, sizes: str, discordances: str, clusters: str, **options: Any) -> Markup:
    """Return the error, and the share voided, if nothing changed but items flip in clusters."""
    counts, noise, lumps = listed(sizes=sizes, discordances=discordances, clusters=clusters)
    grid = [(int(n), d, int(c)) for n, d, c in product(counts, noise, lumps) if d]
    still = (Setting(n, NO_FLOOR, d, 0, 0, 1, 0.5, cluster=c) for n, d, c in grid)
    alike = (Setting(n, floor_value(d, n), d, d, 0, 1, 0.5, cluster=c) for n, d, c in grid)
    first, second = (_frame(settings, **options) for settings in (still, alike))
    heads = [f"{c} at once" if c > 1 else "one by one" for _, _, c in grid]
    void = (second.drifted / second.draws).map(percent)
    parts = [
        html("<p>Attributed, the reference still and without a floor. Items flip …</p>"),
        _crossed(_errors(first, options["alpha"]), heads, _by_noise(first)),
        html("<p>Void by the floor of independent flips, the reference flipping alike …</p>"),
        _crossed(void, heads, _by_noise(second)),
    ]
    data = pd.concat([first, second]).rename(columns=NAMES)
    return with_data(joined(parts), "attribution-clusters", data)


@shown
def floors_table(
    one: tuple[int, float, float], *, sizes: str, discordances: str, pairs: str, **options: Any
) -> Markup:
    """Return what a floor estimated from few pairs of batches does, beside a known one.

    First the share that is void though nothing changed; then what is attributed, of `one`:
    items, discordance and the drop.
    """
    counts, noise, numbers = listed(sizes=sizes, discordances=discordances, pairs=pairs)
    items, flips, drop = one
    cases = {"Nothing changed": (0, 1), "Both fell": (drop, 1), "The target fell": (drop, 0)}
    tries = [*map(int, numbers), 0]

    def draw(grid: Iterable[Any]) -> tuple[pd.DataFrame, list[str]]:
        settings = (
            Setting(int(n), floor_value(d, int(n)), d, d, shift, sensitivity, floor_pairs=k)
            for n, d, (shift, sensitivity), k in grid
        )
        frame = _frame(settings, **options)
        names = {k: f"{k} pair{'s' * (k > 1)}" for k in tries} | {0: "known"}
        return frame, [names[k] for k in frame.floor_pairs]

    first, heads = draw(product(counts, filter(None, noise), [(0, 1)], tries))
    second, floors = draw(product([items], [flips], cases.values(), tries))
    void = (first.drifted / first.draws).map(percent)
    text = "<p>Attributed, of {} items of which {} flip; a fall is of {:g} points.</p>"
    named = [name for name in cases for _ in tries]
    parts = [
        html("<p>Void though nothing changed. The floor is estimated from …</p>"),
        _crossed(void, heads, _by_noise(first)),
        html(text, items, percent(flips), 100 * drop),
        _crossed(map(_interval, each(second)), named, {"Floor from": floors}),
    ]
    data = pd.concat([first, second]).rename(columns=NAMES)
    return with_data(joined(parts), "attribution-floors", data)


@shown
def losses_table(
    *, items: int, drop: float, discordances: str, lost: str, **options: Any
) -> Markup:
    """Return the error if the second batch lacks labels, whatever they are or of one kind."""
    noise, shares = listed(discordances=discordances, lost=lost)
    grid = [(d, q) for d, q in product(noise, shares) if d]
    of = partial(Setting, items, usable_share=USABLE)
    still, fallen = partial(of, NO_FLOOR), partial(of, shift=drop, sensitivity=1)
    cases = {
        "Any of the target's": (
            still(d, 0, 0, 1, 0.5, refusals_lost=q, answers_lost=q) for d, q in grid
        ),
        "Its refusals": (still(d, 0, 0, 1, 0.5, refusals_lost=q) for d, q in grid),
        "The reference's answers": (
            fallen(floor_value(d, items), d, d, reference_answers_lost=q) for d, q in grid
        ),
    }
    frame = _frame(chain.from_iterable(cases.values()), **options)
    rows = {
        "Flips": [percent(d) for d, _ in grid] * len(cases),
        "Lost": [percent(q) for _, q in grid] * len(cases),
        "Of each of 4 turns": [percent(1 - (1 - q) ** 0.25) for _, q in grid] * len(cases),
    }
    heads = [name for name in cases for _ in grid]
    text = html("<p>Attributed, of {} items, if labels of the second batch are lost:</p>", items)
    shown = joined([text, _crossed(_errors(frame, options["alpha"]), heads, rows)])
    return with_data(shown, "attribution-losses", frame.rename(columns=NAMES))


@shown
def stated_table(discordances: str) -> Markup:
    """Return what noise alone does to 500 items, and how often it leaves a floor of 2 points."""
    drawn = round(2 * RATE * (1 - RATE), 9)
    (noise,) = listed(discordances=discordances)
    k = round(STATED * ITEMS)
    most = brentq(lambda d: beyond(k, d, ITEMS) - 0.05, 1e-6, 0.5)
    shares = sorted({*noise, drawn, most})
    frame = pd.DataFrame({"target_discordance": shares})
    frame["standard_deviation"] = [(d / ITEMS) ** 0.5 for d in shares]
    frame["floor"] = [floor_value(d, ITEMS) for d in shares]
    frame["share_beyond"] = [beyond(k, d, ITEMS) for d in shares]
    independent = f"two independent draws, every item refused at {RATE:g}"
    notes = {most: "the most for which it is right", drawn: independent}
    shown = pd.DataFrame(
        {
            "Flips": [f"{100 * d:.2f}\N{NO-BREAK SPACE}%" for d in shares],
            "SD of the change, points": [f"{100 * x:.2f}" for x in frame.standard_deviation],
            "95 % floor, points": [f"{100 * x:.1f}" for x in frame.floor],
            "Noise beyond 2 points": frame.share_beyond.map(percent),
            "Note": [notes.get(d, "") for d in shares],
        }
    )
    return with_data(table(shown), "floor-of-two-points", frame)
