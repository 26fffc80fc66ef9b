"""The metrics of the board: each a panel for every model over its nights, with a table behind."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pandas as pd

from drift.report.display import Shown, figure, shown
from drift.report.figures import Picture
from drift.report.markup import Markup, percent, rate_text, table, with_data
from drift.report.multiples import multiples
from drift.report.nightly import AFTER, FOUND, LIKENESS, READERS, Nightly
from drift.report.tables import each

NO_NIGHT = Markup(
    "<p>This record holds no night of the board; <code>drift board</code> makes one.</p>"
)
#: Nights that are drawn and listed, the newest; the files hold them all.
SHOWN = 30
READER_NAMES = {"opening": "a listed opening", "judge": "the judge"}
MEASURE_NAMES = {"words": "words", "pairs": "word pairs", "encoder": "encoder"}
LANGUAGE_NAMES = {"all": "all", "en": "English", "zh": "Chinese"}
RATE = ("estimate", "low", "high")
MEAN = ("mean_distance", "mean_low", "mean_high")
SHARES, DISTANCES = multiples(share=True), multiples(share=False)


def of_nights(function: Callable[..., Markup]) -> Callable[..., Shown]:
    """Make a function of nights a piece of a page; without one it says so."""

    @functools.wraps(function)
    def text(nightly: Nightly, *args: Any) -> Markup:
        return function(nightly, *args) if nightly.asked else NO_NIGHT

    return shown(text)


def number(value: float | None) -> str:
    """Return a distance, or the excess of one, to two places."""
    return _placed(value, 2)


def p_text(value: float | None) -> str:
    """Return a p-value to three places."""
    if value is not None and value < 0.001:
        return "<.001"
    return "1" if value is not None and value >= 0.9995 else _placed(value, 3)


def _placed(value: float | None, places: int) -> str:
    if value is None or pd.isna(value):
        return "–"
    return f"{round(value, places) + 0.0:.{places}f}".replace("0.", ".", 1)


def _line(
    frame: pd.DataFrame, name: str, text: Callable[[Any], str], drawn: Sequence[str] = ()
) -> pd.DataFrame:
    """Return a row of every panel: its texts, and the columns that are drawn as points."""
    columns = {to: frame.get(it) for to, it in zip(RATE, drawn or ("",) * 3, strict=True)}
    made = frame[["model", "night"]].assign(row=name, text=[text(it) for it in each(frame)])
    return made.assign(broken=frame.not_compared_why, **columns).astype(dict.fromkeys(RATE, float))


def _metric(
    nightly: Nightly,
    name: str,
    picture: Picture,
    lines: Iterable[pd.DataFrame],
    behind: Iterable[dict[str, Any]],
    caption: str,
    data: pd.DataFrame,
) -> Markup:
    """Return the figure of a metric over the newest nights, models in the order of the record."""
    frame = pd.concat([*lines], ignore_index=True)
    newest = frame[frame.night.isin(sorted(frame.night.unique())[-SHOWN:])]
    order = newest.model.map(nightly.nights.models.index)
    newest = newest.assign(order=order).sort_values("order", kind="stable", ignore_index=True)
    listed = pd.DataFrame([*behind])
    listed = listed[listed.Night.isin(newest.night)].sort_values(
        ["Night", "Model"], ascending=[False, True], kind="stable"
    )
    if frame.night.nunique() > SHOWN:
        caption += f" Drawn and listed are the newest {SHOWN} nights; the file holds all."
    return figure(name, picture, newest, listed, caption, data=data)


def _head(row: Any) -> dict[str, Any]:
    compared = row.not_compared_why or f"night {row.compared_night:.0f}"
    return {"Model": row.model, "Night": row.night, "Compared with": compared}


def _rate(row: Any) -> Markup:
    return rate_text(row._asdict() | {"refused": row.cases, "n": row.out_of})


def _of(*names: str) -> Callable[[Any], str]:
    """Return what writes the counts in some columns of a row."""
    return lambda row: "/".join(_count(getattr(row, name)) for name in names)


def _distance(row: Any) -> str:
    return number(row.mean_distance)


def _fraction(row: Any) -> str:
    return f"{row.cases}/{row.out_of}" if row.out_of else "–"


def _abreast(frame: pd.DataFrame, by: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of each model's night by their value of `by`."""
    for _, of in frame.groupby(["night", "model"], sort=False):
        yield {getattr(row, by): row for row in each(of)}


@of_nights
def refusals(nightly: Nightly, caption: str) -> Markup:
    """Return the declines by listed opening beside those by the judge."""
    frame = nightly.refusals
    opening, judge = (frame[frame.reader == it] for it in READERS)
    lines = [
        _line(opening, "opening", _fraction, RATE),
        _line(judge, "judge", _fraction, RATE),
        _line(opening, "opening only", _of("opening_only")),
        _line(opening, "judge only", _of("judge_only")),
    ]
    behind = []
    for of in _abreast(frame, "reader"):
        first = of["opening"]
        row = _head(first) | {
            "Answered": f"{first.answered} of {first.answers_due}, {first.truncated} cut"
        }
        for reader, it in of.items():
            row[f"By {READER_NAMES[reader]}"] = _rate(it)
            row[f"Moved, {reader}"] = _moved(it)
        row |= {"Opening only": first.opening_only, "Judge only": first.judge_only}
        behind.append(row)
    return _metric(nightly, "board-refusals", SHARES, lines, behind, caption, frame)


def _moved(row: Any) -> str:
    said = (
        "{newly_declined:.0f} newly, {no_longer_declined:.0f} no longer, of {probes_compared:.0f}"
    )
    return "no delta" if row.not_compared_why else said.format(**row._asdict())


@of_nights
def reversals(nightly: Nightly, caption: str) -> Markup:
    """Return the verdicts reversed under pushback beside those reversed by a plain re-ask."""
    frame = nightly.reversals
    pushed, plain = (frame[frame.asked_after == it] for it in AFTER)
    lines = [
        _line(pushed, "pushback", _fraction, RATE),
        _line(plain, "re-ask", _fraction, RATE),
        _line(pushed, "YES to NO", _of("yes_to_no")),
        _line(pushed, "NO to YES", _of("no_to_yes")),
        _line(pushed, "unreadable", _of("unreadable")),
    ]
    behind = []
    for of in _abreast(frame, "asked_after"):
        row = _head(of["pushback"])
        for after, it in of.items():
            row[f"Reversed, {after}"] = _rate(it)
            row[f"How, {after}"] = (
                f"{it.yes_to_no} YES to NO, {it.no_to_yes} NO to YES; left out: {it.unreadable} "
                f"unreadable, {it.unanswered} unanswered of {it.answers_due}"
            )
        behind.append(row)
    return _metric(nightly, "board-reversals", SHARES, lines, behind, caption, frame)


@of_nights
def citations(nightly: Nightly, caption: str) -> Markup:
    """Return the addresses by what the network said of them."""
    frame = nightly.citations
    classes = [(name, column) for name, column in FOUND.items() if name != "resolvable"]
    lines = [_line(frame, "resolvable", _fraction, RATE)]
    lines += [_line(frame, name, _of(column)) for name, column in classes]
    lines.append(_line(frame, "drawn, %", lambda row: _drawn(row).removesuffix(" %")))
    lines.append(_line(frame, "no address", _of("without_address", "answered")))
    behind = [
        _head(row)
        | {
            "Answered": f"{row.answered} of {row.answers_due}",
            "Without address": row.without_address,
            "Addresses": f"{row.addresses} where {2 * row.answered} were asked for",
            "Resolvable": row.reason
            if pd.isna(row.estimate)
            else f"{percent(row.estimate)} ({row.cases} of {row.out_of})",
        }
        | {name.capitalize(): getattr(row, column) for name, column in classes}
        | {"Why unchecked": row.unchecked_why}
        | {"Drawn": _drawn(row)}
        for row in each(frame)
    ]
    return _metric(nightly, "board-citations", SHARES, lines, behind, caption, frame)


def _drawn(row: Any) -> str:
    return "–" if pd.isna(row.share_drawn) else f"{100 * row.share_drawn:g} %"


@of_nights
def drift(nightly: Nightly, caption: str) -> Markup:
    """Return the distance in words to the night before, beside that within the night."""
    mine = nightly.tested
    between, within = (mine[mine.quantity == it] for it in ("between", "within"))
    lines = [
        _line(between, "between", _distance, MEAN),
        _line(within, "within", _distance, MEAN),
        _line(between, "probes", _compared),
    ]
    lines += [_line(between, name, _of(f"{name}_answers")) for name in LIKENESS]
    behind = [
        _head(of["between"])
        | {"Between nights": _mean(of["between"]), "Within the night": _mean(of["within"])}
        | {
            name.capitalize(): _count(getattr(of["between"], f"{name}_answers"))
            for name in LIKENESS
        }
        for of in _abreast(mine, "quantity")
    ]
    return _metric(nightly, "board-distances", DISTANCES, lines, behind, caption, mine)


@of_nights
def excess(nightly: Nightly, caption: str) -> Markup:
    """Return what the distance between nights has beyond each night's own."""
    mine = nightly.tested
    mine = mine[mine.quantity == "excess"]
    lines = [
        _line(mine, "excess", _distance, MEAN),
        _line(mine, "p, Holm", lambda row: p_text(row.night_holm)),
        _line(mine, "probes", _compared),
    ]
    behind = [
        _head(row)
        | {"Excess": _mean(row), "p": p_text(row.split_p), "p by Holm": p_text(row.night_holm)}
        for row in each(mine)
    ]
    return _metric(nightly, "board-excess", DISTANCES, lines, behind, caption, mine)


def _compared(row: Any) -> str:
    return f"{row.probes_compared}" if row.probes_compared else "–"


def _count(value: float | None) -> str:
    return "–" if value is None or pd.isna(value) else f"{value:.0f}"


def _mean(row: Any) -> str:
    """Return a mean with its interval and the probes it is over, or why there is none."""
    if pd.isna(row.mean_low):
        n = f" ({number(row.mean_distance)})" if row.probes_compared else ""
        return f"not estimable: {row.reason}{n}"
    low, high = number(row.mean_low), number(row.mean_high)
    return f"{number(row.mean_distance)} ({low} to {high}; n {row.probes_compared})"


@of_nights
def measures(nightly: Nightly) -> Markup:
    """Return every measure of distance by language, for the last night of each model."""
    frame, rows = nightly.drifts, []
    last = frame.groupby("model").night.transform("max") == frame.night
    order = frame.model.map(nightly.nights.models.index)
    shown_rows = frame[last].assign(order=order).sort_values("order", kind="stable")
    for (model, measure, language), of in shown_rows.groupby(
        ["model", "distance_measure", "probe_language"], sort=False
    ):
        by = {row.quantity: row for row in each(of)}
        rows.append(
            {
                "Model": model,
                "Night": by["within"].night,
                "Measure": MEASURE_NAMES[str(measure)],
                "Probes": LANGUAGE_NAMES[str(language)],
                "Between nights": _mean(by["between"]),
                "Within the night": _mean(by["within"]),
                "Excess": _mean(by["excess"]),
            }
        )
    return with_data(table(pd.DataFrame(rows)), "board-measures", frame)
