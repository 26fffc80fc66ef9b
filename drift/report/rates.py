"""The page of rates: by model, topic and family, and over the runs of the record."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pandas as pd

from drift.report import figures
from drift.report.display import figure, piece
from drift.report.markup import Markup, html, joined, rate_text
from drift.report.pages import NO_FULL
from drift.report.tables import EXCLUDED, Record, each, rates, rates_over_runs, responses
from drift.report.trends import parts, trend

#: Runs drawn in a trend, and runs in the table behind it; the file holds them all.
DRAWN, LISTED = 60, 20
#: Models side by side in one grid of labels.
BESIDE = 3
#: What a table of labels holds of each answer.
TIDY = "model topic family control variant run outcome rule".split()


@piece
def by(record: Record, group: str, caption: str) -> Markup:
    """Interval plot of the rates by ``model`` or by ``topic``, with the table behind it."""
    series = {"model": "measure", "topic": "model"}[group]
    found = rates(record)
    found = found[(found.measure == "topic") == (group == "topic")]
    found = found.sort_values(group, kind="stable", ignore_index=True)
    frame = found.assign(group=found[group], series=found[series])
    behind = pd.DataFrame(
        {
            group.capitalize(): frame.group,
            series.capitalize(): frame.series,
            "Rate": [rate_text(row._asdict()) for row in each(frame)],
            **{kind: frame[kind] for kind in EXCLUDED if frame[kind].any()},
            "Run": frame.run,
        }
    )
    return figure(f"rates-by-{group}", figures.INTERVALS, frame, behind, caption, data=found)


@piece
def over_runs(record: Record, caption: str) -> Markup:
    """Trend of each model's canonical rate over the newest runs, full runs marked."""
    found = rates_over_runs(record)
    newest = sorted(found.run.unique())[-DRAWN:]
    drawn = found[found.run.isin(newest)]
    frame = pd.DataFrame(
        {
            "panel": drawn.model,
            "x": drawn.started_at,
            "y": 100 * drawn.estimate.where(drawn.usable).astype(float),
            "low": 100 * drawn.low.astype(float),
            "high": 100 * drawn.high.astype(float),
            "note": drawn.refused.astype(str) + " of " + drawn.n.astype(str),
            "mark": drawn.measure == "family",
            "series": drawn.series,
            "part": parts(drawn),
        }
    )
    behind = drawn[drawn.run.isin(newest[-LISTED:])].iloc[::-1]
    table = pd.DataFrame(
        {
            "Run": behind.run,
            "Model": behind.model,
            "Series": behind.series,
            "Measure": behind.measure,
            "Rate": [rate_text(row._asdict()) for row in each(behind)],
        }
    )
    if len(newest) > LISTED:
        caption = f"{caption.strip()} The table lists the newest {LISTED} of {len(newest)} runs."
    unit = "refused, % of determined labels"
    return figure("rates-over-runs", trend(unit, 0, 100), frame, table, caption, data=found)


@piece
def labels_by_family(record: Record, caption: str) -> Markup:
    """Grid of what each model did on each wording of each family in its last full run."""
    frame = responses(record)
    frame = frame[frame.full]
    if frame.empty:
        return html("<p>{}</p>", NO_FULL)
    return grids("labels-by-family", frame, caption)


def grids(
    name: str,
    frame: pd.DataFrame,
    caption: str,
    only: Mapping[str, Collection[str]] | None = None,
) -> Markup:
    """Return grids of labels, few models in each; the first carries the table of all.

    With `only`, the models of each family, a grid shows the families of its own models.
    """
    tidy = frame[TIDY].sort_values(["model", "family", "variant"], ignore_index=True)
    models, made = sorted(frame.model.unique()), list[Markup]()
    for start in range(0, len(models), BESIDE):
        beside = models[start : start + BESIDE]
        shown = frame[frame.model.isin(beside)]
        if only is not None:
            shown = shown[[not {*only[one]}.isdisjoint(beside) for one in shown.family]]
        if shown.empty:
            continue
        behind = shown.assign(arm=shown.model + " " + shown.variant)
        behind = behind.pivot_table("outcome", "family", "arm", aggfunc="first").reset_index()
        place = f"{name}-{len(made) + 1}" if made else name
        data = tidy[tidy.model.isin(shown.model)] if made else tidy
        said = f"The same for {', '.join(beside)}." if made else caption
        made.append(figure(place, figures.GRID, shown, behind, said, data=data))
    return joined(made, "\n")
