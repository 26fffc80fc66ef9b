"""What a page shows: pieces of HTML out of a record, for the notebooks to display.

A piece of a record without a run is one sentence that says so. The notebooks hold the
prose, ``report/_templates/`` the longer HTML.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from drift.records.store import judge_folder, read_rows
from drift.report.display import piece
from drift.report.figures import OUTCOME_SHAPES
from drift.report.markup import (
    Markup,
    fill,
    html,
    joined,
    percent,
    rate_text,
    table,
    when,
    with_data,
)
from drift.report.tables import Record

SCRIPTED = (
    "Scripted models in virtual time: every answer was written beforehand, by the truth that the "
    "registration declares (truth.json). No real model said any of this."
)
LABORATORY = (
    "Laboratory cadence: real models on one machine, runs one after the other, and changes that "
    "the recorder made on the servers by a plan whose hash was registered before the first run."
)
NO_FULL = Markup("no full run in this series yet")
#: What a record can be, in the order of the front page.
KIND_NAMES = {
    "real": "real models",
    "machine": "this machine's own run; the weights are fixed by hash",
    "laboratory": "real models, changes declared beforehand",
    "scripted": "scripted, known truth",
}
KINDS = list(KIND_NAMES)
NOTICES = {"scripted": SCRIPTED, "laboratory": LABORATORY}
UNLABELLED = ("undetermined", "truncated", "empty", "blocked", "failed", "missing")


def kind(record: Record) -> str:
    """Return what a record is: one of :data:`KINDS`."""
    if record.panel.get("truth_sha256"):
        return "scripted"
    if record.panel.get("laboratory"):
        return "laboratory"
    endpoints = {one["document"]["endpoint"] for one in record.instruments.values()}
    return "machine" if endpoints == {"embedded"} else "real"


def title(record: Record) -> str:
    """Return the title that the panel registered, else the record's name."""
    return str(record.panel.get("title") or record.name.replace("-", " ").capitalize())


def strip(record: Record, rate: Mapping[str, Any]) -> Markup:
    """Return the picture of a rate with its interval on a line from 0 to 100 %; else nothing."""
    if rate["estimate"] is None:
        return Markup("")
    low, high, mark = (round(100 * rate[name], 1) for name in ("low", "high", "estimate"))
    return fill(record.root, "strip", low=low, width=round(high - low, 1), mark=mark)


def notices(record: Record) -> list[str]:
    """Return what must be known of a record before it is read."""
    said = [NOTICES[name] for name in (kind(record),) if name in NOTICES]
    if record.as_of:
        said.append(f"The record as of run {record.as_of}; later runs are left out.")
    return said


def coded_by(record: Record, *, scheme: str = "refusal") -> dict[str, int]:
    """Return how many answers of the record each coder labelled, by the coder's public name.

    A coding states no rules: its file's hash stands for rules and fingerprint alike. Its line
    names the scheme of its words, if that is another than refusals.
    """
    found: dict[str, int] = {}
    for line, _ in record.sealed:
        judge = line.body["judge"] if line.kind == "labels" else {"rules": "", "fingerprint": "-"}
        of = line.body.get("scheme", "refusal")
        if judge["rules"] == judge["fingerprint"] and of == scheme:
            path = record.store.labels(judge_folder(judge), line.body["run"])
            found[judge["id"]] = found.get(judge["id"], 0) + len(read_rows(path))
    return found


def classified(record: Record) -> str:
    """Return by whom answers are classified, which stands wherever a rate is headlined."""
    by = "as classified by a published lexical rule"
    coders = [f"{name} coded {number} answers" for name, number in coded_by(record).items()]
    return f"{by}; beside it {', '.join(coders)}" if coders else by


@piece
def masthead(record: Record) -> Markup:
    """What the page reads: run, judge, method and the head of the ledger."""
    reading = record.reading
    banners = [html('<p class="drift-banner">{}</p>\n', notice) for notice in notices(record)]
    facts = {"record": record, "reading": reading, "when": when(reading["started_at"])}
    facts |= {"classified": classified(record), "head": head(record, shown=16)}
    return joined([*banners, fill(record.root, "masthead", **facts)])


@piece
def provenance(record: Record) -> Markup:
    """The hashes that tie the page to the sealed record."""
    return fill(record.root, "provenance", reading=record.reading, end=head(record))


def head(record: Record, *, shown: int = 64) -> Markup:
    """Return number and hash of the last line of the ledger that a page may read."""
    if not record.head:
        return Markup("not stored")
    text = '{}, <span class="drift-hash">{}{}</span>'
    return html(text, record.head["seq"], record.head["hash"][:shown], "…" if shown < 64 else "")


def citation(record: Record, reading: Mapping[str, Any], finding: str = "") -> str:
    """Return how to cite a run, or a finding of it, in one line with the head of its ledger."""
    text = (record.root / "CITATION.cff").read_text(encoding="utf-8")
    cff = dict(re.findall(r'^(?:  - )?(\w+): "?([^"\n]+)"?$', text, re.M))
    what = f"{cff['name']}. {cff['title']}. Version {cff['version']}. Record {record.name}"
    what += f", run {reading['run']}" + (f", finding {finding}" if finding else "")
    return what + ", ledger head {seq} {hash}.".format(**reading["head"])


def copyable(root: Any, name: str, text: str, what: str) -> Markup:
    """Return a text with a button that copies it; `name` is the id of its element."""
    return fill(root, "copyable", name=name, text=text, what=what)


@piece
def cite(record: Record) -> Markup:
    """How to cite the run that the page reads."""
    return copyable(record.root, "cite", citation(record, record.reading), "citation")


def anchor(family: str) -> str:
    """Return the lasting address of a family on the page `transcripts`."""
    return family.partition("#")[0].replace("/", "-")


def family_links(families: Iterable[str]) -> Markup:
    """Return links to the transcripts of families."""
    link = '<a href="transcripts.html#{}">{}</a>'
    links = [html(link, anchor(item), item.partition("/")[2]) for item in families]
    return joined(links or ["none"], ", ")


def chip(outcome: str, text: str = "") -> Markup:
    """Return an outcome in its frame, told from others by its sign and word."""
    kind = outcome if outcome in OUTCOME_SHAPES else "other"
    return html('<span class="drift-chip drift-{}">{} {}</span>', kind, text, outcome)


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
def models(record: Record) -> Markup:
    """Return each model in a card: rate, change, state, controls, coverage."""
    cards = joined(_card(record, key, model) for key, model in record.models.items())
    return html('<div class="drift-cards">{}</div>', cards)


def _card(record: Record, key: str, model: Mapping[str, Any]) -> Markup:
    rate, full = model["canonical"], model["full"]
    big = "not estimable" if rate["estimate"] is None else percent(rate["estimate"])
    texts = {
        "big": big,
        "strip": strip(record, rate),
        "rate": rate_text(rate),
        "classified": classified(record),
        "family": html("{} in run {}", rate_text(full["family"]), full["run"]) if full else NO_FULL,
        "change": change_text(model),
        "alarm": alarm_text(model["alarm"]),
        "controls": controls_text(model["controls"]),
        "who": ", ".join(filter(None, (model["lab"], model["role"]))),
        "when": when(record.reading["started_at"]),
    }
    return fill(record.root, "card", key=key, model=model, **texts)


@piece
def changes(record: Record) -> Markup:
    """Return for each model what one look at the run before and this one can see."""
    parts, rows = [], []
    for key, model in record.models.items():
        look = model["change"] or {}
        seen = "Mid-p {midp:.3g}, and {holm:.3g} by Holm over the models of this run. {sentence}"
        said = html(seen, **look) if look else ""
        parts.append(html("<p><b>{}</b>: {} {}</p>", key, change_text(model), said))
        row = {"model": key, "run": record.reading["run"], "previous": look.get("previous_run")}
        row |= {"families_compared": look.get("compared")}
        row |= {kind: len(look.get(kind, ())) for kind in ("newly_refused", "newly_answered")}
        numbers = ("midp", "holm", "minimum_detectable_flips")
        rows.append(row | {name: look.get(name) for name in numbers})
    return with_data(joined(parts), "changes", pd.DataFrame(rows))


@piece
def coverage(record: Record) -> Markup:
    """Return what was asked of each model and what has no label, one model a row."""
    rows, shown = [], []
    for key, model in record.models.items():
        found, rate = model["coverage"], model["canonical"]
        bounds = {name: rate[name] for name in ("if_none_refused", "if_all_refused")}
        known = {"model": key, "run": record.reading["run"]} | found | bounds
        rows.append(known | {"stopped": model["stopped"]})
        outer = None in bounds.values() or " to ".join(map(percent, bounds.values()))
        shown.append(
            {"Model": key, "Asked": found["asked"], "Determined": found["determined"]}
            | {name.capitalize(): found[name] for name in UNLABELLED}
            | {
                "Canonical arms determined": f"{found['canonical_determined']} of "
                f"{found['canonical_n']}",
                "Canonical rate if none or all of the rest were refusals": "not estimable"
                if outer is True
                else outer,
                "Usable": "yes" if found["usable"] else "no",
                "Stopped early": model["stopped"] or "no",
            }
        )
    return with_data(table(pd.DataFrame(shown)), "coverage", pd.DataFrame(rows))


@piece
def serving(record: Record) -> Markup:
    """Return what the provider of each model reported about itself."""
    facts = ("served_model", "provider", "fingerprint")
    rows: list[dict[str, object]] = []
    shown: list[dict[str, object]] = []
    for key, model in record.models.items():
        said = {name: "; ".join(model["serving"][name]) for name in facts}
        row = {"model": key, "run": record.reading["run"], "requested": model["model"]} | said
        rows.append(row | {"serving_changed": bool(model["serving"]["changed"])})
        told = {name.replace("_", " ").capitalize(): said[name] or "not reported" for name in facts}
        moved = "yes" if model["serving"]["changed"] else "no"
        shown.append(
            {"Model": key, "Requested": model["model"]} | told | {"Changed at this run": moved}
        )
    return with_data(table(pd.DataFrame(shown)), "serving", pd.DataFrame(rows))
