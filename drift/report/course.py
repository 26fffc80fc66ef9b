"""What a laboratory record did before and after the change on each server, and what it cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import partial
from itertools import accumulate, zip_longest
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from drift.config import parse_timestamp
from drift.records.compare import look
from drift.records.pins import read_passes
from drift.report.alarm import aftermath, number
from drift.report.display import figure
from drift.report.figures import COLOURS, INK, LINE, MUTED, Picture
from drift.report.lab import churn_text
from drift.report.markup import Markup, html, joined, percent, rate_text, table, with_data
from drift.report.pages import family_links
from drift.report.plan import Lab, opened
from drift.report.tables import Record, each, evidence, rates_over_runs, readings
from drift.stats import flips
from drift.stats.power import Delay, delay

#: Processes drawn, the state-setting one first; how each is drawn.
DRAWN: dict[str, dict[str, Any]] = {
    "home": {"color": INK, "linewidth": 2.0},
    "pairs": {"color": COLOURS[0], "linewidth": 1.4, "linestyle": (0, (4, 2))},
}
FLIPS = "flips"
#: Share of simulated subjects that are quicker, above which a delay is not called chance.
RARE = 0.95
#: What a look at two runs is worth that were chosen by the change between them.
KNOWN = Markup(
    "<p>Whoever chose the runs of a look knew where the change was. As evidence its p-value counts "
    "for nothing; it shows the size of the step, and no more.</p>"
)
#: Runs shown on either side of a change.
BESIDE = 10
TOKENS = ["prompt_tokens", "completion_tokens"]


@opened
def course(lab: Lab, caption: str) -> Markup:
    """Return the figure of evidence and flips against runs, one row of panels a subject."""
    record = lab.record
    found = evidence(record)
    found = found[found.process.isin(DRAWN)]
    if found.empty:
        return html("<p>There is no value yet.</p>")
    found = found.assign(number=found.run.map(lab.numbers))
    flips = pd.DataFrame(
        [
            {"model": row["model"], "process": FLIPS, "run": row["run"], "y": row["flips"]}
            for row in record.churn
            if row["flips"] is not None
        ]
    )
    flips = flips.assign(number=flips.run.map(lab.numbers), part=0, entered="")
    frame = pd.concat([found, flips], ignore_index=True)
    frame["changed"] = frame.model.map(lab.changed)
    order = frame.model.map(list(record.models).index)
    frame = frame.assign(order=order).sort_values("order", kind="stable", ignore_index=True)
    behind = frame.assign(
        what=frame.model + " " + frame.process,
        said=[number(row.y) if row.process != FLIPS else f"{row.y:.0f}" for row in each(frame)],
    ).pivot_table("said", "number", "what", aggfunc="last", sort=False)
    behind = behind.sort_index(ascending=False).reset_index().rename(columns={"number": "Run"})
    tidy = found[["model", "process", "run", "number", "entered"]].assign(evidence=found.y)
    kind = Picture(
        partial(panels, levels=record.reading["alarm"]["thresholds"]),
        describe_panels,
        lambda frame: 1.8 * frame.model.nunique(),
        left=0.45,
        right=0.1,
        top=0.15,
    )
    return figure("lab-course", kind, frame, behind.fillna(""), caption, data=tidy)


def panels(frame: pd.DataFrame, axes: Axes, *, levels: Mapping[str, float]) -> None:
    """Draw for each model its evidence on a log axis and, beside it, its flips run by run.

    Columns: model, process (one of :data:`DRAWN`, or flips), number (of the run), y, part (no
    line joins two), entered (as in :func:`curves`), changed (the model's first changed run).
    """
    axes.set_axis_off()
    lines = frame[frame.process != FLIPS]
    low, high = min([*lines.y, 1.0]) / 2, 2.5 * max([*lines.y, *levels.values()])
    runs, most = (1, frame.number.max()), frame[frame.process == FLIPS].y.max()
    names = list(frame.model.unique())
    for place, model in enumerate(map(str, names)):
        rows, floor = frame[frame.model == model], 1 - (place + 1) / len(names)
        height = 0.66 / len(names)
        left = axes.inset_axes((0, floor + 0.18 / len(names), 0.58, height))
        right = axes.inset_axes((0.65, floor + 0.18 / len(names), 0.35, height))
        _evidence(left, rows[rows.process != FLIPS], levels)
        bars = rows[rows.process == FLIPS]
        right.bar(bars.number, bars.y, width=0.9, color=COLOURS[1])
        left.set_title(
            f"{model}: E of home, of pairs dashed", loc="left", fontsize=8.5, weight="bold"
        )
        right.set_title("flips in the run", loc="left", fontsize=8.5, color=MUTED)
        left.set_ylim(low, high)
        right.set_ylim(0, max(most, 1))
        for one in (left, right):
            one.set_xlim(runs[0] - 1, runs[1] + 1)
            one.tick_params(labelsize=7.5)
            for changed in rows.changed.dropna().unique():
                one.axvline(changed - 0.5, color=MUTED, linestyle=(0, (2, 2)), linewidth=1.2)
        if place == len(names) - 1:
            left.set_xlabel("run")
            right.set_xlabel("run")


def _evidence(axes: Axes, rows: pd.DataFrame, levels: Mapping[str, float]) -> None:
    for name, value in levels.items():
        axes.axhline(value, color=LINE, linewidth=1.2, zorder=0)
        across = axes.get_yaxis_transform()
        side = "bottom" if value == max(levels.values()) else "top"
        look: dict[str, Any] = {"color": MUTED, "fontsize": 7.5, "va": side, "transform": across}
        axes.text(0.01, value, f"{name} {value:g}", **look)
    for (process, _), line in rows.groupby(["process", "part"]):
        axes.plot(line.number, line.y, **DRAWN[str(process)])
        for row in each(line[line.entered != ""]):
            ink = DRAWN[str(process)]["color"]
            filled = ink if row.entered == "alarm" else "none"
            axes.plot([row.number], [row.y], "^", color=ink, markerfacecolor=filled, markersize=8)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(numticks=5))
    axes.yaxis.set_minor_locator(NullLocator())


def describe_panels(frame: pd.DataFrame) -> str:
    """Return the alternative text of :func:`panels`: what was entered, and the flips, by model."""
    said = []
    for model, rows in frame.groupby("model", sort=False):
        changed = next(iter(rows.changed.dropna()), None)
        parts = [f"{model}, " + (f"changed in run {changed:.0f}" if changed else "not changed")]
        for process in DRAWN:
            of = rows[rows.process == process]
            if of.empty:
                continue
            top, last = of.iloc[int(of.y.argmax())], of.iloc[-1]
            text = f"{process} at most {top.y:.3g} in run {top.number}, last {last.y:.3g}"
            entered = of[of.entered != ""]
            text += "".join(f", {row.entered} in run {row.number}" for row in each(entered))
            parts.append(text)
        bars = rows[rows.process == FLIPS]
        for span, some in (
            ("before the change", bars[bars.number < (changed or bars.number.max() + 1)]),
            ("from it on", bars[bars.number >= (changed or bars.number.max() + 1)]),
        ):
            if len(some):
                where = span if changed else "throughout"
                parts.append(f"{some.y.min():.0f} to {some.y.max():.0f} flips a run {where}")
        said.append("; ".join(parts))
    return ". ".join(said)


@opened
def churn(lab: Lab) -> Markup:
    """Return the flips per compared arm of each subject before the first change and from it on."""
    since, rows = min(lab.changed.values(), default=len(lab.numbers) + 1), []
    known = []
    for model in lab.record.models:
        mine = [row for row in lab.record.churn if row["model"] == model and row["compared"]]
        before, after = map(churn_text, lab.flips(model, since))
        heads = f"Churn before run {since}", f"Churn from run {since} on"
        rows.append({"Subject": model, heads[0]: before, heads[1]: after})
        known += [
            {"model": model, "run": it["run"], "number": lab.numbers[it["run"]]}
            | {"flips": it["flips"], "families_compared": it["compared"]}
            for it in mine
        ]
    return with_data(table(pd.DataFrame(rows)), "lab-churn", pd.DataFrame(known))


@opened
def delays(lab: Lab, lifetimes: int, seed: int) -> Markup:
    """Return home's delay beside that of simulated subjects whose arms flip independently."""
    parts = [_delay(lab, model, since, lifetimes, seed) for model, since in lab.changed.items()]
    return joined(parts) or html("<p>No change was followed by a watch of home.</p>")


def _delay(lab: Lab, model: str, since: int, lifetimes: int, seed: int) -> Markup:
    entered = lab.entered(model).get("home watch", 0)
    rows = [row for row in lab.record.churn if row["model"] == model and row["compared"]]
    before = [row for row in rows if lab.numbers[row["run"]] < since]
    after = [row for row in rows if since <= lab.numbers[row["run"]] <= entered]
    values = [(row["alarm"] or {}).get("home") or {} for row in before]
    bets, n = sum(value.get("P") is not None for value in values), rows[-1]["n"] if rows else 0
    if not bets or not after:
        return Markup("")
    observed = tuple(
        sum(it[FLIPS] for it in of) / sum(it["compared"] for it in of) for of in (before, after)
    )
    run = partial(delay, "home", n=n, quiet=bets, lifetimes=lifetimes, seed=seed)
    shown, share = _simulated(lab, model, run, observed, len(after))
    if share is None:
        return Markup("")
    explained = "At the churn observed, so long a delay is within what such subjects show."
    if share > RARE:
        explained = (
            "At the churn observed, chance does not explain so long a delay: arms do not flip so "
            "here."
        )
    flips = Counter(arm for row in after for arm in row["flipped"])
    held = list(accumulate(sorted(flips.values(), reverse=True)))
    half = 1 + sum(2 * some < held[-1] for some in held)
    departures = sum(len((row["alarm"]["home"] or {}).get("changed", ())) for row in after)
    said = (
        "<p><b>{}</b> entered watch in run {}, the {}th from its change on. Of {:,} simulated "
        "subjects whose arms flip independently this share did, by the churn they are given:</p>{}"
        "<p>{} Of its {} flips in these runs home counted {} as departures: it counts an arm where "
        "it leaves its usual label after two runs at it, and not where it comes back. Half of the "
        "flips are of {} of the {} arms. {}</p>"
    )
    facts = (explained, held[-1], departures, half, n, _dice(lab.record, model, seed))
    return html(said, model, entered, len(after), lifetimes, shown, *facts)


def _simulated(
    lab: Lab, model: str, run: Callable[..., Delay], observed: tuple[float, ...], came: int
) -> tuple[Markup, float | None]:
    """Return the shares of simulated subjects in watch, by churn and by window of runs.

    The churn is what was registered, and what was `observed` before and after the change; the
    window too, and the `came` runs in which the watch came. Also the share of these last two.
    """
    churns = {"as observed": observed}
    if meant := lab.churn(model):
        churns = {
            "as registered": (meant.before, meant.after),
            "as observed before, as registered after": (observed[0], meant.after),
        } | churns
    windows = {
        f"Within {last} runs, as registered": last
        for it in lab.expected
        if it.expect == "due" and model in it.models and "home" in it.processes
        for last in [it.after[1] + 1]
    }
    windows[f"Within {came} runs, as here"] = came
    rows, share = [], None
    for name, (old, new) in churns.items():
        row = {"Churn": name, "Before": percent(old), "From the change on": percent(new)}
        for head, within in windows.items():
            share = run(before=old, after=new, within=within, followed=within).share
            row[head] = "not estimable" if share is None else percent(share)
        rows.append(row)
    return table(pd.DataFrame(rows)), share


def _dice(record: Record, model: str, seed: int) -> Markup:
    """Return how often a model's state is entered under other seeds, as the page alarm has it."""
    found = aftermath(record, seed).text.data["aftermath"].set_index("model").loc[[model]].iloc[-1]
    said = (
        "Part of it is dice: under {} of {} other seeds of the process the same values lead to a "
        '{} (page <a href="alarm.html">alarm</a>).'
    )
    return html(said, percent(found.in_state), found.other_seeds, found.state)


@opened
def level(lab: Lab) -> Markup:
    """Return the rate run by run around each change, what was dated then, and one look."""
    if not lab.changed:
        return html("<p>No change is reached yet.</p>")
    rates = rates_over_runs(lab.record)
    rates = rates[rates.measure == "canonical"].assign(number=rates.run.map(lab.numbers))
    near = [
        rates[(rates.model == model) & rates.number.between(since - BESIDE, since + BESIDE - 1)]
        for model, since in lab.changed.items()
    ]
    parts = [
        _level(lab, model, since, rows)
        for (model, since), rows in zip(lab.changed.items(), near, strict=True)
    ]
    kept = "model run number started_at refused n estimate low high reason".split()
    parts.append(KNOWN)
    return with_data(joined(parts, "\n"), "lab-level", pd.concat(near)[kept])


def _level(lab: Lab, model: str, since: int, rows: pd.DataFrame) -> Markup:
    record = lab.record
    sides = [rows[rows.number < since], rows[rows.number >= since]]
    cells = [[(row.number, rate_text(row._asdict())) for row in each(side)] for side in sides]
    heads = ["Run", "Refused before", "Run ", "Refused from then on"]
    shown = [[*old, *new] for old, new in zip_longest(*cells, fillvalue=("", ""))]
    ranges = [
        f"{percent(side.estimate.min())} to {percent(side.estimate.max())}"
        if side.estimate.notna().any()
        else "not estimable"
        for side in sides
    ]
    first, second = record.runs[since - 2], record.runs[since - 1]
    dated = [it for it in record.dated.get(second, ()) if it["model"] == model]
    events = [
        html("{} {} ({})", len(of), name, family_links(of))
        for name, kind in (("new refusals", "new_refusal"), ("refusals lifted", "lifted_refusal"))
        if (of := [it["family"] for it in dated if it["kind"] == kind])
    ]
    lines = [line for line, _ in record.sealed]
    before, after = read_passes(record.store, lines, only=(first, second))
    if fields := before.instrument(model).differences(after.instrument(model)):
        seen = html("not compared: {}.", joined(map(str, fields), "; "))
    else:
        seen = html(
            "mid-p {midp:.3g}. {sentence}",
            **look(flips(before.labels[model], after.labels[model])),
        )
    said = (
        "<h3>{}</h3><p>Shares in the {} runs before: {}; in the {} from run {} on: {}. Dated in "
        '<a href="runs/{}.html">run {}</a>: {}. One look at runs {} and {}: {}</p>{}'
    )
    return html(
        said,
        model,
        len(sides[0]),
        ranges[0],
        len(sides[1]),
        since,
        ranges[1],
        second,
        since,
        joined(events, ", ") or "no flip",
        since - 1,
        since,
        seen,
        table(pd.DataFrame(shown, columns=heads)),
    )


@opened
def cost(lab: Lab) -> Markup:
    """Return tokens and minutes of each subject, in all and in a canonical run, and of all runs."""
    frame = pd.DataFrame(list(_spent(lab)))
    rows = []
    for model, of in frame.groupby("model", sort=False):
        short = of[of.scope == "canonical"]
        rows.append(
            {
                "Subject": model,
                "Answers": f"{of.answers.sum():,}",
                "Tokens asked + answered": "{:,} + {:,}".format(*of[TOKENS].sum()),
                "Minutes": f"{of.minutes.sum():.1f}",
                "In a canonical run, median": "{:.0f} + {:.0f} tokens, {:.2f} minutes".format(
                    *short[[*TOKENS, "minutes"]].median()
                )
                if len(short)
                else "no canonical run",
            }
        )
    spans = [
        parse_timestamp(it["finished_at"]) - parse_timestamp(it["started_at"])
        for it in readings(lab.record)
    ]
    lasted = [span.total_seconds() / 60 for span in spans]
    total = "<p>All subjects: {:,} answers, {:,} + {:,} tokens. The {} runs lasted {:.0f} minutes "
    total += "from start to finish, the shortest {:.1f} and the longest {:.1f}.</p>"
    sums = frame.answers.sum(), *frame[TOKENS].sum()
    said = html(total, *sums, len(lasted), sum(lasted), min(lasted), max(lasted))
    tidy = frame.drop(columns="answers")
    return with_data(joined([table(pd.DataFrame(rows)), said]), "lab-cost", tidy)


def _spent(lab: Lab) -> Iterator[dict[str, Any]]:
    """Yield tokens and minutes, from first question to last answer, by run and subject."""
    for run in lab.record.runs:
        stored = lab.record.stored(run)
        for model, found in stored.reading["models"].items():
            mine = [row for (of, _), row in stored.answers.items() if of == model]
            asked = [parse_timestamp(row["asked_at"]) for row in mine]
            lasted = [timedelta(milliseconds=row.get("latency_ms") or 0) for row in mine]
            ends = [at + span for at, span in zip(asked, lasted, strict=True)]
            yield {
                "model": model,
                "run": run,
                "number": lab.numbers[run],
                "scope": stored.reading["scope"],
                **{name: found["usage"][name] or 0 for name in TOKENS},
                "minutes": (max(ends) - min(asked)).total_seconds() / 60 if mine else 0.0,
                "answers": len(mine),
            }
