"""What a page shows: pieces of HTML out of a record, for the notebooks to display.

A piece of a record without a run is one sentence that says so. The notebooks hold the
prose, ``report/_templates/`` the longer HTML.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from drift.report import figures
from drift.report.display import NO_RUN, figure, piece
from drift.report.markup import (
    Markup,
    escaped,
    fill,
    html,
    joined,
    percent,
    rate_text,
    table,
    when,
)
from drift.report.tables import EXCLUDED, Record, each, rates, responses

NO_FULL = Markup("no full run in this series yet")
#: Findings listed on the page, newest first; findings.jsonl holds them all.
LISTED = 100
SCRIPTED = (
    "Scripted models in virtual time: every answer was written beforehand, by the truth that the "
    "registration declares (truth.json). No real model said any of this."
)
LABORATORY = (
    "Laboratory cadence: real models on one machine, runs one after the other, and changes that "
    "the recorder made on the servers by a plan whose hash was registered before the first run."
)


def front_page(records: Sequence[Record], note: str | None) -> str:
    """Return the generated part of the front page: each record and model at a glance."""
    parts = [html('<p class="drift-banner">{}</p>', note)] if note else []
    for record in records:
        inside = NO_RUN
        if record.reading:
            cards = joined(_card(record, key) for key in record.models)
            inside = _with_banner(record, "front", cards=cards)
        title = record.name.replace("-", " ").capitalize()
        section = html('<section class="drift-record"><h2>{}</h2>\n{}</section>', title, inside)
        # The pages of a record link to each other, and the front page to all of them.
        parts.append(Markup(section.replace('href="', f'href="report/{record.name}/')))
    return "\n".join(["```{=html}", *parts, "```", ""])


def _card(record: Record, key: str) -> Markup:
    model = record.models[key]
    rate = model["canonical"]
    shown = html('<p class="drift-big">not estimable</p><p>{reason}</p>', **rate)
    if rate["estimate"] is not None:
        low, high, mark = (round(100 * rate[name], 1) for name in ("low", "high", "estimate"))
        places = {"low": low, "high": high, "mark": mark, "width": round(high - low, 1)}
        shown = fill(record.root, "rate", rate=rate, big=percent(rate["estimate"]), **places)
    change, controls = change_text(model), controls_text(model["controls"])
    who = ", ".join(filter(None, (model["lab"], model["role"])))
    texts = {
        "rate": shown,
        "change": change,
        "alarm": alarm_text(model["alarm"]),
        "controls": controls,
        "who": who,
    }
    return fill(record.root, "card", key=key, model=model, **texts)


def _with_banner(record: Record, template: str, **values: object) -> Markup:
    """Fill a template with the reading, below what must be known before it is read."""
    notices = []
    if record.panel.get("truth_sha256"):
        notices.append(SCRIPTED)
    if record.panel.get("laboratory"):
        notices.append(LABORATORY)
    if record.as_of:
        notices.append(f"The record as of run {record.as_of}; later runs are left out.")
    reading = record.reading
    values |= {"record": record, "reading": reading, "when": when(reading["started_at"])}
    banners = [html('<p class="drift-banner">{}</p>\n', notice) for notice in notices]
    return joined([*banners, fill(record.root, template, **values)])


@piece
def masthead(record: Record) -> Markup:
    """What the page reads: run, judge, method, assurance and the head of the ledger."""
    return _with_banner(record, "masthead")


@piece
def provenance(record: Record) -> Markup:
    """The hashes that tie the page to the sealed record."""
    end: object = "not stored"
    if record.head:
        end = html('{seq}, <span class="drift-hash">{hash}</span>', **record.head)
    return fill(record.root, "provenance", reading=record.reading, end=end)


def anchor(family: str) -> str:
    """Return the lasting address of a family on the page `transcripts`."""
    return family.partition("#")[0].replace("/", "-")


def family_links(families: Iterable[str]) -> Markup:
    """Return links to the transcripts of families."""
    link = '<a href="transcripts.html#{}">{}</a>'
    links = [html(link, anchor(item), item.partition("/")[2]) for item in families]
    return joined(links or ["none"], ", ")


def controls_text(controls: Mapping[str, Any]) -> Markup:
    """Return the verdict on a model's controls, which comes before any claim about topics."""
    if controls["refused"]:
        warning = '<span class="drift-warning">{}</span>: refused {}'
        return html(warning, controls["verdict"], family_links(controls["refused"]))
    return html("{verdict}, {determined} of {n} determined", **controls)


def alarm_text(alarm: Mapping[str, Any]) -> Markup:
    """Return the state of a model's alarm in one line, with what earlier series entered."""
    if not alarm["processes"]:
        return html("<b>{}</b>, so no bound", alarm["state"])
    home = alarm["processes"]["home"]
    where = f"E = {home['evidence']:.3g}"
    if alarm["state"] == "calibrating":
        where = f"{home['values']} of {home['burn_in']} values"
    parts = [html("<b>{}</b> ({}, series {})", alarm["state"], where, alarm["series"])]
    for watch in alarm["watches"]:
        entered = watch["entered"]
        if highest := [name for name in ("home alarm", "home watch") if name in entered]:
            said = "series {} entered {} in run {}{}"
            pairs = ", confirmed by pairs" if {"home alarm", "pairs alarm"} <= set(entered) else ""
            level = highest[0].removeprefix("home ")
            parts.append(html(said, watch["series"], level, entered[highest[0]], pairs))
        if covered := [name for name in ("coverage alarm", "coverage watch") if name in entered]:
            said = '<span class="drift-warning">{}</span> entered in run {}'
            parts.append(html(said, covered[0], entered[covered[0]]))
    if alarm["blind"]:
        parts.append(html('<span class="drift-warning">blind</span>'))
    return joined(parts, ", ")


def change_text(model: Mapping[str, Any]) -> Markup:
    """Return what changed since the last comparable run, in one sentence."""
    change, opened = model["change"], model["series"]["reason"]
    if not change:
        usable = model["coverage"]["usable"]
        plain = "no earlier usable run in this series" if usable else "this run is not usable"
        return html("Not compared: {}.", opened or plain)
    kinds = (("newly_refused", "newly refused"), ("newly_answered", "newly answered"))
    moved = [
        html("{} {} ({})", len(change[kind]), word, family_links(change[kind]))
        for kind, word in kinds
        if change[kind]
    ]
    flips = joined(moved or ["No flip"], " and ")
    since = "{} in {compared} families since run {previous_run}."
    return html(since, flips, **change)


@piece
def changes(record: Record) -> Markup:
    """Return for each model what changed since the run before, and what such a look can see."""
    parts = []
    for key, model in record.models.items():
        look = "Mid-p {midp:.3g}, and {holm:.3g} by Holm over the models of this run. {sentence}"
        seen = html(look, **model["change"]) if model["change"] else ""
        parts.append(html("<p><b>{}</b>: {} {}</p>", key, change_text(model), seen))
    return joined(parts)


@piece
def lines(record: Record, places: Mapping[str, str]) -> Markup:
    """Return lines of the reading, the models across.

    `places` says for each line what it is called, and where its value stands in the
    reading of a model: ``coverage.asked``.
    """
    columns: dict[str, list[Any]] = {"": list(places)}
    for key, model in record.models.items():
        columns[key] = [_line(model, place) for place in places.values()]
    return table(pd.DataFrame(columns))


def _line(model: Mapping[str, Any], place: str) -> Markup:
    """Return one value of a reading, written as its shape demands."""
    value: Any = model
    for name in place.split("."):
        if value is None:
            return NO_FULL
        value = value[name]
    match value:
        case None if place == "series.reason":
            return escaped("first run of this model")
        case None if place.startswith("canonical."):
            return escaped("not estimable")
        case bool() | None:
            return escaped("yes" if value else "no")
        case float():
            return escaped(percent(value))
        case list() if place.startswith("serving."):
            return joined(value or ["not reported"], ", ")
        case list():
            return family_links(item if isinstance(item, str) else item["family"] for item in value)
        case {"verdict": _}:
            return controls_text(value)
        case {"consistent": consistent}:
            return rate_text({"refused": consistent, **value})
        case {"estimate": _}:
            return rate_text(value)
        case {"midp": midp, "reason": reason}:
            return html("not estimable: {}", reason) if reason else html("{:.4g}", midp)
    return html('<span class="drift-hash">{}</span>' if place == "instrument" else "{}", value)


@piece
def findings(record: Record) -> Markup:
    """The newest dated findings up to this run, and every entry of a state."""
    items = record.findings
    kept = [item for i, item in enumerate(items) if i < LISTED or item["kind"] == "alarm_state"]
    rest = "{} older findings are left out here; findings.jsonl holds all {}."
    more = html(f"<p>{rest}</p>", len(items) - len(kept), len(items)) if items[len(kept) :] else ""
    found = [
        {
            "When": html('<span id="finding-{}">{}</span>', item["id"], when(item["at"])),
            "Model": item["model"],
            "Kind": item["kind"].replace("_", " "),
            "What": item["detail"],
            "Family": family_links([item["family"]]) if item.get("family") else "",
        }
        for item in kept
    ]
    return joined([more, table(pd.DataFrame(found), empty="No finding so far.")])


@piece
def rates_plot(record: Record, by: str, caption: str) -> Markup:
    """Interval plot of the rates by ``model`` or by ``topic``, with the table behind it."""
    series = {"model": "measure", "topic": "model"}[by]
    frame = rates(record)
    frame = frame[(frame.measure == "topic") == (by == "topic")]
    frame = frame.sort_values(by, kind="stable", ignore_index=True)
    frame = frame.assign(group=frame[by], series=frame[series])
    behind = pd.DataFrame(
        {
            by.capitalize(): frame.group,
            series.capitalize(): frame.series,
            "Rate": [rate_text(row._asdict()) for row in each(frame)],
            **{kind: frame[kind] for kind in EXCLUDED if frame[kind].any()},
            "Run": frame.run,
        }
    )
    return figure(f"rates-by-{by}", figures.INTERVALS, frame, behind, caption)


@piece
def labels_by_family(record: Record, caption: str) -> Markup:
    """Grid of what each model did on each wording of each family in its last full run."""
    frame = responses(record)
    frame = frame[frame.full]
    if frame.empty:
        return html("<p>{}</p>", NO_FULL)
    behind = frame.assign(arm=frame.model + " " + frame.variant)
    behind = behind.pivot_table("outcome", "family", "arm", aggfunc="first").reset_index()
    return figure("labels-by-family", figures.GRID, frame, behind, caption)
