"""The page of ladders: what became of a question that was asked again, turn by turn.

Batches of different elicitors are never pooled, and neither are sensitive questions with
controls, or English ladders with Chinese ones.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import pairwise
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle

from drift.judging.ladder import ANSWERS, LADDER_OUTCOMES, TURN_OUTCOMES, ladder_outcome
from drift.ladders import Ladder, Ladders, turn_key
from drift.records.batch import person, registered_ladders, sealed_batches
from drift.records.passes import by_place, targets
from drift.records.store import judge_folder, read_rows
from drift.report.display import Shown, figure, shown
from drift.report.figures import COLOURS, LINE, MUTED, Picture
from drift.report.instrument import elicitor_name
from drift.report.markup import (
    Markup,
    html,
    joined,
    rate_text,
    table,
    when,
    with_data,
)
from drift.report.pages import anchor
from drift.report.tables import Record, each
from drift.report.verdicts import plan_of
from drift.stats import wilson_interval

NO_BATCH = Markup(
    "<p>This record holds no batch of ladders; <code>drift elicit</code> makes one.</p>"
)
SETS = ("sensitive", "control", "Chinese")
MISSING = "missing"
SIGNS = dict(zip((*TURN_OUTCOMES, MISSING), "●◐○■◇–", strict=True))
#: How a part of a bar is drawn, from its left end: colour and opacity.
BARS: dict[str, tuple[str, float]] = {
    "declined": (COLOURS[1], 0.55),
    "undetermined": (MUTED, 0.45),
    MISSING: (LINE, 0.3),
    "beside": (COLOURS[0], 0.12),
    "partial": (COLOURS[0], 0.3),
    "full": (COLOURS[0], 0.6),
}
#: What a ladder came to that is worth a link.
TOLD = ("released", "softened", "held", "hardened", "incomplete")
NAME = '<span class="drift-run">{}</span>'
#: Where a share or a count of turns is of.
WHERE = ["elicitor", "run", "batch", "model", "set", "turn", "rung"]


class Batches:
    """The batches of a record up to the run that is shown, each as its last judge read it."""

    def __init__(self, record: Record) -> None:
        self.record = record
        found = sealed_batches(line for line, _ in record.sealed)
        self.judged = [(body, lines[-1]) for body, lines in found if lines]

    @functools.cache  # noqa: B019  # as long as the page
    def corpus(self, sha256: str) -> Ladders:
        """Return a corpus that batches name, from the record's own copy."""
        body = next(it for it, _ in self.judged if it["corpus"]["sha256"] == sha256)
        return registered_ladders(self.record.store, body)

    @cached_property
    def turns(self) -> pd.DataFrame:
        """Every turn that was to be asked: what the person said, and what came.

        Columns: run, batch (its name), elicitor, model, arm, set, turn, rung, said, written
        (whether a model wrote what was said), text, status, label, outcome, points, rule, span.
        """
        rows = [row for body, judged in self.judged for row in self._rows(body, judged)]
        return pd.DataFrame(rows)

    def _rows(self, body: Mapping[str, Any], judged: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        store, scripted = self.record.store, body["elicitor"]["kind"] == "script"
        corpus = self.corpus(body["corpus"]["sha256"])
        rows = by_place(read_rows(store.transcript(body["run"])))
        labels = by_place(read_rows(store.labels(judge_folder(judged["judge"]), body["run"])))
        of = {"run": body["run"], "batch": body["name"] or body["run"]}
        of["elicitor"] = elicitor_name(body["elicitor"])
        for model in targets(body):
            for arm in body["keys"]:
                ladder = corpus.by_id[arm]
                for turn, rung in enumerate(corpus.rungs, start=1):
                    key = turn_key(arm, turn)
                    row, label = rows.get((model, key), {}), labels.get((model, key), {})
                    yield of | {
                        "model": model,
                        "arm": arm,
                        "set": _set(ladder),
                        "turn": turn,
                        "rung": rung,
                        "said": person(rows, model, ladder, turn, scripted=scripted) or "",
                        "written": not scripted and turn > 1,
                        "text": row.get("text", ""),
                        "status": row.get("status", MISSING),
                        "label": label.get("label"),
                        "outcome": label.get("outcome", MISSING),
                        "points": label.get("points"),
                        "rule": label.get("rule") or "",
                        "span": tuple(label.get("span") or (0, 0)),
                    }

    @cached_property
    def climbs(self) -> pd.DataFrame:
        """Every ladder of every model: columns as in `turns`; outcomes (of its turns), came_to."""
        keys = ["run", "batch", "elicitor", "model", "arm", "set"]
        frame = self.turns.groupby(keys, sort=False).outcome.agg(tuple).reset_index(name="outcomes")
        known = (tuple(None if it == MISSING else it for it in of) for of in frame.outcomes)
        return frame.assign(came_to=[ladder_outcome(of) for of in known])

    @cached_property
    def by_turn(self) -> pd.DataFrame:
        """Counts of each outcome by batch, model, set and turn, with the share declined.

        Columns beside those: each outcome; refused, n, estimate, low, high, of the turns
        with a determined label.
        """
        rows = []
        for place, of in self.turns.groupby(WHERE, sort=False):
            counts = Counter(of.outcome)
            refused, n = counts["declined"], sum(counts[it] for it in TURN_OUTCOMES[:4])
            interval = wilson_interval(refused, n)
            rows.append(
                dict(zip(WHERE, place, strict=True))
                | {name: counts[name] for name in SIGNS}
                | {"refused": refused, "n": n, "estimate": refused / n if n else None}
                | {"low": interval.low, "high": interval.high, "reason": interval.reason}
            )
        numbers = dict.fromkeys(("estimate", "low", "high"), float)
        return pd.DataFrame(rows).astype(numbers)


def _set(ladder: Ladder) -> str:
    if ladder.language != "en":
        return "Chinese"
    return "control" if ladder.control else "sensitive"


def of_batches(function: Callable[..., Markup]) -> Callable[..., Shown]:
    """Make a function of batches a piece of a page; without one it says so."""

    @functools.wraps(function)
    def text(batches: Batches, *args: Any) -> Markup:
        return function(batches, *args) if batches.judged else NO_BATCH

    return shown(text)


@of_batches
def made(batches: Batches) -> Markup:
    """Return the batches: who asked whom, what was done, and by which judge they are read."""
    done = {it.name: it.what for it in plan_of(batches.record).batches}
    rows = []
    for body, judged in batches.judged:
        corpus, judge = batches.corpus(body["corpus"]["sha256"]), judged["judge"]
        kinds = Counter(_set(corpus.by_id[arm]) for arm in body["keys"])
        rows.append(
            {
                "run": body["run"],
                "batch": body["name"],
                "started_at": body["started_at"],
                "elicitor": elicitor_name(body["elicitor"]),
                "models": ", ".join(targets(body)),
                "ladders": ", ".join(f"{kinds[name]} {name}" for name in SETS if kinds[name]),
                "done": done.get(body["name"], ""),
                "judge_fingerprint": judge["fingerprint"],
                "rubric": judge["rubric"],
            }
        )
    frame = pd.DataFrame(rows)
    words = '{}<br><span class="drift-small">{}</span>'
    told = {
        "Batch": [html(words, row.batch or "no name", when(row.started_at)) for row in each(frame)],
        "Asked by, and whom": [html(words, row.elicitor, row.models) for row in each(frame)],
        "What was done": frame.done.replace("", "not stated"),
        "Ladders": [html("{ladders}; rubric {rubric}", **row._asdict()) for row in each(frame)],
    }
    return with_data(table(pd.DataFrame(told)), "batches", frame)


# Figures: a line for each batch of each model, a column for each turn.


def _cells(frame: pd.DataFrame, axes: Axes) -> Iterator[tuple[float, float, Any]]:
    """Write the names of models, batches and turns; yield where each row's cell begins."""
    position, step = 0.0, 1.42
    rungs = dict(zip(frame.turn, frame.rung, strict=True))
    for turn, rung in rungs.items():
        axes.text(step * (turn - 1), -1.1, f"{turn} {rung}", weight="bold", va="center")
    for model, rows in frame.groupby("model", sort=False):
        axes.text(-0.06, position, str(model), weight="bold", ha="right", va="center")
        for batch, cells in rows.groupby("batch", sort=False):
            position += 1
            axes.text(-0.06, position, str(batch), color=MUTED, ha="right", va="center")
            for cell in each(cells):
                yield step * (cell.turn - 1), position, cell
        position += 1.2
    axes.set_xlim(0, step * len(rungs) - 0.05)
    axes.set_ylim(position - 0.4, -1.6)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)


def draw_refusals(frame: pd.DataFrame, axes: Axes) -> None:
    """Draw the share declined with its interval on a line from 0 to 100 %, counts beside it."""
    for left, y, row in _cells(frame, axes):
        axes.plot([left, left + 1], [y, y], color=LINE, linewidth=0.8, zorder=0)
        if pd.notna(row.estimate):
            limits = [left + row.low, left + row.high]
            axes.plot(limits, [y, y], color=COLOURS[0], solid_capstyle="butt")
            axes.plot([left + row.estimate], [y], "o", color=COLOURS[0], markersize=5)
        axes.text(left + 1.04, y, f"{row.refused}/{row.n}", va="center", fontsize=7.5)


def draw_outcomes(frame: pd.DataFrame, axes: Axes) -> None:
    """Draw what the turns came to as a bar of counts, declined first."""
    for left, y, row in _cells(frame, axes):
        total = sum(getattr(row, name) for name in BARS)
        for name, (colour, opacity) in BARS.items():
            if count := getattr(row, name):
                width = count / total
                look: dict[str, Any] = {"facecolor": colour, "alpha": opacity, "linewidth": 0}
                axes.add_patch(Rectangle((left, y - 0.4), width, 0.8, **look))
                axes.plot([left + width] * 2, [y - 0.4, y + 0.4], color=LINE, linewidth=0.8)
                initial = name[0].upper() if width >= 0.14 else ""
                text = f"{initial}{count}"
                middle: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7}
                axes.text(left + width / 2, y, text, **middle)
                left += width
    keys = [
        Patch(facecolor=colour, alpha=opacity, label=f"{name[0].upper()} {name}")
        for name, (colour, opacity) in BARS.items()
        if frame[name].any()
    ]
    axes.legend(handles=keys, loc="upper left", bbox_to_anchor=(0, 0), ncols=len(keys))


def describe_refusals(frame: pd.DataFrame) -> str:
    """Return the alternative text of :func:`draw_refusals`."""
    return "; ".join(
        f"{model}, {batch}: "
        + ", ".join(
            f"{row.rung} {row.refused} of {row.n}"
            + ("" if pd.isna(row.low) else f" ({100 * row.low:.0f} to {100 * row.high:.0f} %)")
            for row in each(rows)
        )
        for (model, batch), rows in frame.groupby(["model", "batch"], sort=False)
    )


def describe_outcomes(frame: pd.DataFrame) -> str:
    """Return the alternative text of :func:`draw_outcomes`."""
    return "; ".join(
        f"{row.model}, {row.batch}, {row.rung}: "
        + ", ".join(f"{getattr(row, name)} {name}" for name in BARS if getattr(row, name))
        for row in each(frame)
    )


def _height(frame: pd.DataFrame) -> float:
    lines = frame[["model", "batch"]].drop_duplicates()
    return 1.0 + 0.2 * len(lines) + 0.24 * frame.model.nunique()


REFUSALS = Picture(draw_refusals, describe_refusals, _height, left=1.45, right=0.25, top=0.0)
OUTCOMES = Picture(draw_outcomes, describe_outcomes, _height, left=1.45, right=0.25, top=0.0)


@of_batches
def refusals(batches: Batches, caption: str) -> Markup:
    """Return the share declined by turn: a figure for each elicitor, all sets in its table."""
    data = batches.by_turn.drop(columns=[*SIGNS])
    return _figures(batches, "ladder-refusals", REFUSALS, caption, _rates, data)


@of_batches
def outcomes(batches: Batches, caption: str) -> Markup:
    """Return the outcomes by turn: a figure for each elicitor, all sets in its table."""
    data = batches.by_turn[[*WHERE, *SIGNS]].rename(columns={it: f"turns_{it}" for it in SIGNS})
    return _figures(batches, "ladder-outcomes", OUTCOMES, caption, _counts, data)


def _figures(
    batches: Batches,
    name: str,
    picture: Picture,
    caption: str,
    cell: Callable[[Any], Markup],
    data: pd.DataFrame,
) -> Markup:
    parts = []
    for number, (elicitor, frame) in enumerate(batches.by_turn.groupby("elicitor", sort=False)):
        drawn = frame[frame.set == SETS[0]]
        behind = frame.assign(cell=[cell(row) for row in each(frame)], head=frame.rung)
        behind = behind.pivot_table(
            "cell", ["model", "batch", "set"], "turn", aggfunc="first", sort=False
        )
        behind.columns = [f"Turn {turn}" for turn in behind.columns]
        behind = behind.reset_index().rename(columns=str.capitalize)
        place = f"{name}-{number}" if number else name
        said = f"{elicitor}: the same." if number else f"{elicitor}. {caption.strip()}"
        parts.append(figure(place, picture, drawn, behind, said, data=data.loc[frame.index]))
    return joined(parts, "\n")


def _rates(row: Any) -> Markup:
    return rate_text(row._asdict())


def _counts(row: Any) -> Markup:
    return html("{}", ", ".join(f"{getattr(row, it)} {it}" for it in BARS if getattr(row, it)))


@of_batches
def came_to(batches: Batches) -> Markup:
    """Return what the ladders came to, by elicitor, batch and model, with links to them."""
    parts = []
    for elicitor, frame in batches.climbs.groupby("elicitor", sort=False):
        parts.append(html("<h3>{}</h3>", str(elicitor)))
        for kind in SETS:
            rows, links = [], []
            of_kind = frame[frame.set == kind].sort_values("model", kind="stable")
            known = [name for name in LADDER_OUTCOMES if (of_kind.came_to == name).any()]
            for (model, batch), of in of_kind.groupby(["model", "batch"], sort=False):
                counts = Counter(of.came_to)
                row = {"Model": model, "Batch": html(NAME, batch)}
                rows.append(row | {name.capitalize(): counts[name] for name in known})
                told = of[of.came_to.isin(TOLD)].groupby("came_to", sort=False)
                line = "<li>{}, {}, {}: {}</li>"
                links += [html(line, model, batch, name, _links(it.arm)) for name, it in told]
            which = "{}<details><summary>Which they are</summary><ul>{}</ul></details>"
            body = html(which, table(pd.DataFrame(rows)), joined(links))
            fold = "<details><summary>{0}</summary>{1}</details>" if kind != SETS[0] else "{1}"
            parts.append(html(fold, f"{kind.capitalize()} ladders", body))
    kept = batches.climbs.drop(columns="outcomes").rename(columns={"arm": "ladder"})
    kept["turn_outcomes"] = [" ".join(it) for it in batches.climbs.outcomes]
    return with_data(joined(parts, "\n"), "ladders", kept)


def place(arm: str) -> str:
    """Return the address of a ladder on the page."""
    return anchor(arm) + ("-zh" if arm.endswith("#zh") else "")


def _links(arms: Iterable[str]) -> Markup:
    links = (html('<a href="#{}">{}</a>', place(arm), arm.partition("/")[2]) for arm in arms)
    return joined(links, ", ")


@of_batches
def transitions(batches: Batches) -> Markup:
    """Return what followed a decline and what followed an answer, summed over the steps."""
    steps: Counter[tuple[Any, ...]] = Counter()
    for row in each(batches.climbs):
        for turn, (before, after) in enumerate(pairwise(row.outcomes), start=2):
            steps[row.elicitor, row.batch, row.model, row.set, turn, before, after] += 1
    names = ["elicitor", "batch", "model", "set", "turn", "outcome_before", "outcome_after"]
    frame = pd.DataFrame([(*place, n) for place, n in steps.items()], columns=[*names, "steps"])
    parts = []
    shown = frame[frame.set == SETS[0]].sort_values("model", kind="stable")
    for elicitor, of in shown.groupby("elicitor", sort=False):
        rows = [
            {"Model": model, "Batch": html(NAME, batch)}
            | {"After a decline": _followed(it, TURN_OUTCOMES[3:4])}
            | {"After an answer of any kind": _followed(it, ANSWERS)}
            for (model, batch), it in of.groupby(["model", "batch"], sort=False)
        ]
        parts.append(html("<h3>{}</h3>{}", str(elicitor), table(pd.DataFrame(rows))))
    return with_data(joined(parts, "\n"), "ladder-transitions", frame)


def _followed(steps: pd.DataFrame, before: tuple[str, ...]) -> str:
    """Return in words what came after turns with these outcomes."""
    of = steps[steps.outcome_before.isin(before)]
    counts = {name: of.steps[of.outcome_after == name].sum() for name in BARS}
    said = ", ".join(f"{n} {name}" for name, n in counts.items() if n)
    return f"{of.steps.sum()} steps" + (f": {said}" if said else "")
