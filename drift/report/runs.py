"""The page of runs: what each one asked, kept and cost, the slots that were missed, the series."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pandas as pd

from drift.report.cards import run_pages
from drift.report.display import piece
from drift.report.markup import Markup, escaped, html, table, with_data
from drift.report.pages import UNLABELLED
from drift.report.tables import Record, readings

#: Runs in the table on the page, newest first; the file holds them all.
LISTED = 200
KINDS = ("series_opened", "series_closed")
TOKENS = ("prompt_tokens", "completion_tokens")
TOKENS_TEXT = "{prompt_tokens:,}\N{NO-BREAK SPACE}+\N{NO-BREAK SPACE}{completion_tokens:,}"


@piece
def every_run(record: Record) -> Markup:
    """Return the runs, newest first, with the slots between them that no run filled."""
    found = Counter(item["run"] for item in record.findings)
    closed = {item["run"] for item in record.findings if item["kind"] == "series_closed"}
    rows = [_run(reading) | {"findings": found[reading["run"]]} for reading in readings(record)]
    frame = pd.DataFrame(rows).astype(dict.fromkeys(TOKENS, "Int64"))
    frame["missed_before"] = (pd.to_numeric(frame.slot).diff() - 1).clip(lower=0)
    pages = set(run_pages(record))
    counted = ["ok", *(name for name in UNLABELLED if frame[name].any())]
    priced = frame.cost_usd.notna().any()
    shown: list[dict[str, object]] = []
    for row in frame.tail(LISTED).iloc[::-1].to_dict("records"):
        there = f"runs/{row['run']}." + ("html" if row["run"] in pages else "json")
        shown.append(
            {
                "Run": html('<a class="drift-run" href="{}">{}</a>', there, row["run"]),
                "Scope": row["scope"],
                "Usable models": _usable(row),
                **{name.capitalize(): row[name] for name in counted},
                "Tokens": _known(row, "tokens", TOKENS_TEXT),
                **({"Cost, USD": _known(row, "cost", "{cost_usd:.4f}")} if priced else {}),
                "Minutes": f"{row['minutes']:.1f}",
                "Findings": f"{row['findings']}" + ", series closed" * (row["run"] in closed),
            }
        )
        if missed := 0 if pd.isna(row["missed_before"]) else int(row["missed_before"]):
            gap = html("<i>gap: {} slot{} missed</i>", missed, "s" if missed > 1 else "")
            shown.append({"Run": gap})
    # A gap has no counts, and the others stay whole numbers.
    listed = table(pd.DataFrame(shown).astype(dict.fromkeys(map(str.capitalize, counted), "Int64")))
    if not priced:
        listed = html("{}<p>The panel states no prices, so no cost is known.</p>", listed)
    if older := len(frame) - LISTED if len(frame) > LISTED else 0:
        listed = html("{}<p>{} older runs are in the file.</p>", listed, older)
    return with_data(listed, "runs", frame)


def _known(row: Mapping[Any, Any], what: str, sum_of: str) -> str:
    """Return a sum over models: a lower limit without some of them, nothing without all."""
    missing = row[f"models_without_{what}"]
    if missing == row["models_asked"]:
        return "not reported" if what == "tokens" else "not known"
    return ("at least " if missing else "") + sum_of.format(**row)


def _usable(row: Mapping[Any, Any]) -> Markup:
    said = f"{row['usable_models']} of {row['models_asked']}"
    if row["unusable_models"]:
        return html(
            '{} <span class="drift-warning">without {}</span>', said, row["unusable_models"]
        )
    return escaped(said)


def _run(reading: Mapping[str, Any]) -> dict[str, Any]:
    """Return one run in a row: counts over its models."""
    models = reading["models"]
    counts = Counter[str]()
    for model in models.values():
        counts.update({name: model["coverage"][name] for name in ("ok", *UNLABELLED)})
    # A provider that reports no usage has answers, and no tokens for the questions.
    told = [
        model["usage"]
        for model in models.values()
        if model["usage"]["prompt_tokens"] or not model["coverage"]["ok"]
    ]
    priced = [float(one["cost_usd"]) for one in told if one["cost_usd"] is not None]
    moments = [datetime.fromisoformat(reading[name]) for name in ("started_at", "finished_at")]
    usable = [key for key, model in models.items() if model["coverage"]["usable"]]
    return {
        "run": reading["run"],
        "number": reading["number"],
        "started_at": pd.Timestamp(reading["started_at"]),
        "slot": reading.get("slot"),
        "scope": reading["scope"],
        "models_asked": len(models),
        "usable_models": len(usable),
        "unusable_models": ", ".join(sorted(models.keys() - usable)),
        **{name: counts[name] for name in ("ok", *UNLABELLED)},
        **{name: sum(one[name] or 0 for one in told) if told else None for name in TOKENS},
        "models_without_tokens": len(models) - len(told),
        "cost_usd": sum(priced) if priced else None,
        "models_without_cost": len(models) - len(priced),
        "minutes": (moments[1] - moments[0]).total_seconds() / 60,
        "head_seq": reading["head"]["seq"],
        "head_hash": reading["head"]["hash"],
    }


@piece
def every_series(record: Record) -> Markup:
    """Return every series of every model: where it began and ended, and why."""
    runs: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in record.churn:
        runs.setdefault((row["model"], row["series"]), []).append(row)
    said = {
        (item["kind"], item["model"], item["series"]): item
        for item in record.findings
        if item["kind"] in KINDS
    }
    rows = []
    for (model, series), of in sorted(runs.items()):
        opened, closed = (said.get((kind, model, series)) for kind in KINDS)
        later = (model, series + 1) in runs
        rows.append(
            {
                "model": model,
                "series": series,
                "opened": of[0]["run"],
                "opened_because": opened["detail"] if opened else None,
                "last_run": of[-1]["run"],
                "usable_runs": sum(row["index"] is not None for row in of),
                "families_compared": sum(row["compared"] or 0 for row in of),
                "flips": sum(row["flips"] or 0 for row in of),
                "ended_because": closed["detail"] if closed else _fresh(said, model, series, later),
            }
        )
    if not rows:
        return html("<p>No series yet.</p>")
    frame = pd.DataFrame(rows)
    heads = ["Model", "Series", "Opened", "Because", "Last run", "Usable runs", "Families compared"]
    shown = frame.fillna("not stored").set_axis([*heads, "Flips", "Ended"], axis=1)
    return with_data(table(shown), "series", frame)


def _fresh(said: Mapping[Any, Any], model: str, series: int, later: bool) -> str:
    """Say why a series that nothing closed was followed by another, or that it goes on."""
    following = said.get(("series_opened", model, series + 1))
    if following:
        return f"fresh baseline: {following['detail']}"
    return "not stored" if later else "goes on"
