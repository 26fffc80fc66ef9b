"""The page of transcripts: each family, wording and model, with what the judge made of it."""

from __future__ import annotations

from typing import Any

import pandas as pd

from drift.report import figures
from drift.report.display import piece
from drift.report.markup import Markup, fill, html, joined
from drift.report.pages import anchor
from drift.report.tables import VARIANTS, Record, each, responses

#: Characters of a response shown on the page; the record holds the whole text.
SHOWN = 20_000


@piece
def transcripts(record: Record) -> Markup:
    """Every response of the latest run and of each model's last full run, by topic."""
    links, parts = [], []
    for topic, families in responses(record).groupby("topic", sort=True):
        name = str(topic).replace("-", " ")
        link = '<a href="#topic-{}">{}</a> ({})'
        links.append(html(link, topic, name, families.family.nunique()))
        parts.append(html('<h2 id="topic-{}">{}</h2>', topic, name))
        parts += [_family(record, str(key), rows) for key, rows in families.groupby("family")]
    return joined([html('<p class="drift-topics">{}</p>', joined(links, " · ")), *parts], "\n")


def _family(record: Record, family: str, rows: pd.DataFrame) -> Markup:
    item = record.families.get(family)
    asked = dict(zip(VARIANTS, (*item.wordings, item.zh), strict=True)) if item else {}
    control = Markup(' <span class="drift-control">control</span>')
    latest = rows.sort_values("run").drop_duplicates(["model", "key"], keep="last")
    chips = []
    for model, answers in latest.sort_values("key").groupby("model"):
        marks = joined((_chip(row.outcome, row.variant) for row in each(answers)), " ")
        chips.append(html("<div><b>{}</b> {}</div>", model, marks))
    shown = [html("<p>Why it is benign: {}</p>", item.why_benign)] if item else []
    for variant, answers in rows.groupby("variant", sort=True):
        question = asked.get(str(variant)) or "The record holds no copy of the question."
        shown.append(html('<p class="drift-question"><b>{}</b> {}</p>', variant, question))
        shown += [_response(row) for row in each(answers)]
    return fill(
        record.root,
        "family",
        anchor=anchor(family),
        name=family.partition("/")[2],
        control=control if item and item.control else "",
        question=asked.get("en-1", ""),
        chips=joined(chips),
        count=len(rows),
        responses=joined(shown),
    )


def _chip(outcome: str, text: str) -> Markup:
    kind = outcome if outcome in figures.OUTCOME_SHAPES else "other"
    return html('<span class="drift-chip drift-{}">{} {}</span>', kind, text, outcome)


def _response(row: Any) -> Markup:
    facts = [row.run, f"rule {row.rule}" if row.rule else "", row.note]
    facts += [f"status {row.status}" if row.status != "ok" else "", row.error]
    facts += [f"served by {row.served_model}" if row.served_model else "", row.provider]
    # HTML drops one newline after <pre>: ours, so that none of the text's is lost.
    text = html("<pre>\n{}</pre>", _marked(row)) if row.status != "missing" else ""
    return html(
        '<div class="drift-response"><p><b>{}</b> {} {}</p>{}</div>',
        *(row.model, _chip(row.outcome, ""), " · ".join(filter(None, facts)), text),
    )


def _marked(row: Any) -> Markup:
    """Return the text with the judge's span marked, cut to what a page can hold."""
    start, end = row.span
    first = max(0, start - SHOWN // 2) if end > SHOWN else 0
    last = min(len(row.text), first + SHOWN)
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
