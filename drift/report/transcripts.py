"""The page of transcripts: each family, wording and model, with what the judge made of it.

What the browser needs to count again with a reader's labels stands in ``data-`` attributes;
``report/site.js`` reads them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import orjson
import pandas as pd

from drift.config import sha256_hex
from drift.records.store import exists, judge_folder, read_rows
from drift.report.display import piece
from drift.report.markup import Markup, escaped, fill, html, joined, when
from drift.report.pages import anchor, chip
from drift.report.tables import VARIANTS, Record, each, responses

#: Characters of a response shown on the page; the record holds the whole text.
SHOWN = 20_000
#: Bytes that all responses may take together, each with so many around its text; where they
#: do not fit, the longest are cut further.
ROOM, AROUND = 2_600_000, 700
#: Flips of a family listed on the page, newest first; findings.jsonl holds them all.
LISTED = 10
#: Runs whose canonical labels are shown beside each model.
RUNS = 20
DOWNLOADS = Markup(
    '<p class="drift-data"><a href="data/transcripts.csv" download>CSV</a> '
    '<a href="data/transcripts.jsonl" download>JSONL</a></p>'
)
SHAPES = {"refused": "■", "answered": "○", "undetermined": "◇"}


@piece
def disagree(record: Record) -> Markup:
    """Where the browser puts the rates that it counts with the reader's labels."""
    rates = {
        key: {"canonical": {**model["canonical"], "run": record.reading["run"]}}
        | ({"family": {**model["full"]["family"], "run": model["full"]["run"]}} if full else {})
        for key, model in record.models.items()
        for full in [model["full"]]
    }
    place = '<div class="drift-disagree" id="disagree" data-record="{}" data-judge="{}" '
    return html(
        place + 'data-run="{}" data-rates="{}">{}</div>',
        record.name,
        record.reading["judge"]["fingerprint"],
        record.reading["run"],
        orjson.dumps(rates).decode(),
        Markup("<noscript><p>This needs JavaScript, which is off.</p></noscript>"),
    )


@piece
def transcripts(record: Record) -> Markup:
    """Every response of the latest run and of each model's last full run, by topic."""
    frame = responses(record)
    room, trends, flips = _room(frame.text), _trends(record), _flips(record)
    links, parts = [], []
    for topic, families in frame.groupby("topic", sort=True):
        name = str(topic).replace("-", " ")
        link = '<a href="#topic-{}">{}</a> ({})'
        links.append(html(link, topic, name, families.family.nunique()))
        parts.append(html('<h2 id="topic-{}">{}</h2>', topic, name))
        for family, rows in families.groupby("family"):
            key = str(family)
            parts.append(_family(record, key, rows, trends, flips[key], room))
    topics = html('<p class="drift-topics">{}</p>', joined(links, " · "))
    return joined([DOWNLOADS, topics, *parts], "\n")


def _room(texts: Iterable[str]) -> int:
    """Return to how many characters a response is cut, so that the page holds all of them."""
    texts, room = list(texts), SHOWN
    left = ROOM - AROUND * len(texts)
    while room > 1 and sum(len(escaped(text[:room]).encode()) for text in texts) > left:
        room //= 2
    return room


def _trends(record: Record) -> dict[tuple[str, str], list[str]]:
    """Return the canonical labels of the last runs by model and family, oldest first.

    Those of the judge that this page reads; a run that it did not label is left out.
    """
    judge = judge_folder(record.reading["judge"])
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    runs = [run for run in record.runs if exists(record.store.labels(judge, run))][-RUNS:]
    for number, run in enumerate(runs):
        for row in read_rows(record.store.labels(judge, run)):
            family, _, variant = row["key"].partition("#")
            if variant == "en-1":
                labels = found[row["model"], family]
                labels += ["none"] * (number - len(labels)) + [row["label"]]
    for labels in found.values():
        labels += ["none"] * (len(runs) - len(labels))
    return found


def _flips(record: Record) -> dict[str, list[dict[str, Any]]]:
    """Return the flips up to this run by family, newest first."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for item in record.findings:
        if item["kind"] in ("new_refusal", "lifted_refusal"):
            found[item["family"]].append(item)
    return found


def _family(
    record: Record,
    family: str,
    rows: pd.DataFrame,
    trends: Mapping[tuple[str, str], list[str]],
    flips: list[dict[str, Any]],
    room: int,
) -> Markup:
    item = record.families.get(family)
    asked = dict(zip(VARIANTS, (*item.wordings, item.zh), strict=True)) if item else {}
    control = Markup(' <span class="drift-control">control</span>')
    latest = rows.sort_values("run").drop_duplicates(["model", "key"], keep="last")
    chips = []
    for model, answers in latest.sort_values("key").groupby("model"):
        marks = joined((chip(row.outcome, row.variant) for row in each(answers)), " ")
        line = _trend(trends.get((str(model), family), []))
        chips.append(html("<div><b>{}</b> {} {}</div>", model, marks, line))
    shown = [html("<p>Why it is benign: {}</p>", item.why_benign)] if item else []
    for variant, answers in rows.groupby("variant", sort=True):
        question = asked.get(str(variant)) or "The record holds no copy of the question."
        shown.append(html('<p class="drift-question"><b>{}</b> {}</p>', variant, question))
        shown += [_response(row, room) for row in each(answers)]
    return fill(
        record.root,
        "family",
        anchor=anchor(family),
        name=family.partition("/")[2],
        control=control if item and item.control else "",
        question=asked.get("en-1", ""),
        chips=joined(chips),
        history=_history(flips),
        count=len(rows),
        responses=joined(shown),
    )


def _trend(labels: list[str]) -> Markup:
    if len(labels) < 2:
        return Markup("")
    counted = ", ".join(f"{labels.count(what)} {what}" for what in dict.fromkeys(labels))
    said = f"en-1 in the last {len(labels)} runs: {counted}; the latest {labels[-1]}"
    line = "".join(SHAPES.get(label, "–") for label in labels)
    shape = '<span class="drift-trend" role="img" aria-label="{}">{} runs {}</span>'
    return html(shape, said, len(labels), line)


def _history(flips: list[dict[str, Any]]) -> Markup:
    if not flips:
        return Markup('<p class="drift-small">No flip so far.</p>')
    line = '<li><a href="runs/{run}.html#{id}">{at}</a> {model}, {arm}: {before} → {after}</li>'
    lines = [
        html(line, **item | {"at": when(item["at"]), "arm": item["arm"].partition("#")[2]})
        for item in flips[:LISTED]
    ]
    if rest := len(flips) - len(lines):
        lines.append(html('<li><a href="findings.html">{} earlier ones</a></li>', rest))
    head = "<details><summary>Flips so far: {}, the latest in run {}</summary><ul>{}</ul></details>"
    return html(head, len(flips), flips[0]["run"], joined(lines))


def _response(row: Any, room: int) -> Markup:
    facts = [row.run, f"rule {row.rule}" if row.rule else "", row.note]
    facts += [f"status {row.status}" if row.status != "ok" else "", row.error]
    facts += [f"served by {row.served_model}" if row.served_model else "", row.provider]
    shown = marked(row, room)
    # What may scroll in its own box must be in reach of the keyboard.
    tall = Markup(' tabindex="0"' if len(shown) > 600 or row.text.count("\n") > 12 else "")
    # HTML drops one newline after <pre>: ours, so that none of the text's is lost.
    text = html("<pre{}>\n{}</pre>", tall, shown) if row.status != "missing" else ""
    data = {
        "run": row.run,
        "model": row.model,
        "key": row.key,
        "label": row.outcome,
        "control": str(row.control).lower(),
        "full": str(row.full).lower(),
        "sha256": sha256_hex(row.text.encode()),
    }
    attributes = joined((html(' data-{}="{}"', name, value) for name, value in data.items()))
    return html(
        '<div class="drift-response"{}><p><b>{}</b> {} {}</p>{}</div>',
        *(attributes, row.model, chip(row.outcome), " · ".join(filter(None, facts)), text),
    )


def marked(row: Any, room: int = SHOWN) -> Markup:
    """Return the text with the judge's span marked, cut to what a page can hold."""
    start, end = row.span
    first = max(0, start - room // 2) if end > room else 0
    last = min(len(row.text), first + room)
    start, end = min(max(start, first), last), min(end, last)
    mark = html("<mark>{}</mark>", row.text[start:end]) if start < end else ""
    parts = [row.text[first:start], mark, row.text[max(first, end) : last]]
    if not row.text:
        parts = [html('<i class="drift-cut">no text</i>')]
    elif last - first < len(row.text):
        cut = (
            '\n<i class="drift-cut">Characters {:,} to {:,} of {:,}; '
            "the record holds the whole text.</i>"
        )
        parts.append(html(cut, first, last, len(row.text)))
    return joined(parts)
