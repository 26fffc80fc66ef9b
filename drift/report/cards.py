"""Finding cards, and the page of a run: where a finding has its permanent address.

A card shows what the record holds of a flip: the question, both answers with their
differences marked, the deciding rules, what the provider reported, how to cite it, and how
to ask again. A finding is dated and never taken back, so its card never changes either.
"""

from __future__ import annotations

import difflib
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import orjson
import pandas as pd

from drift.report.again import command
from drift.report.display import piece
from drift.report.markup import (
    Markup,
    escaped,
    fill,
    html,
    joined,
    rate_text,
    table,
    when,
    with_data,
)
from drift.report.pages import (
    alarm_text,
    change_text,
    chip,
    citation,
    controls_text,
    copyable,
    family_links,
    notices,
)
from drift.report.tables import Record

#: Cards on the page of findings, and rows of its table; findings.jsonl holds them all.
CARDS, LISTED = 30, 500
#: Cards of the newest states and ended series, whatever their age; of the flips of a run and model.
LASTING, EACH = 6, 3
#: Every one of so many newest runs has a page, with a finding or without.
LAST = 30
#: Characters of an answer shown in a card.
SHOWN = 2000
#: Tokens in a row that both answers must share to be left unmarked.
ALIKE = 3
FLIPS = ("new_refusal", "lifted_refusal")
STATES = ("alarm_state", "series_closed")
_TOKEN = re.compile(r"[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]|\w+\s*|\s+|[^\w\s]\s*")
_FACTS = {"served_model": "served model", "provider": "provider", "fingerprint": "fingerprint"}
#: Where a further page about a kind of finding is.
_MORE = {
    "alarm_state": "alarm.html",
    "coverage_change": "alarm.html",
    "serving_change": "reading.html",
    "series_opened": "runs.html",
    "series_closed": "runs.html",
}


@piece
def findings(record: Record) -> Markup:
    """States and the newest findings as cards, others in a table that leads to their runs."""
    found = record.findings
    if not found:
        return html("<p>No finding so far.</p>")
    carded = _carded(found)
    cards = joined((card(record, item) for item in carded), "\n")
    shown = {item["id"] for item in carded}
    rest = [item for item in found if item["id"] not in shown]
    listed = [item for i, item in enumerate(rest) if i < LISTED or item["kind"] == "alarm_state"]
    rows = [
        {
            "When": html('<span id="{}">{}</span>', item["id"], when(item["at"])),
            "Model": item["model"],
            "Kind": item["kind"].replace("_", " "),
            "What": html('<a href="{}">{}</a>', address(item), item["detail"]),
        }
        for item in listed
    ]
    parts = [cards]
    if rows:
        parts += [html("<h2>Other findings</h2>"), table(pd.DataFrame(rows))]
    if more := len(rest) - len(listed):
        said = "{:,} older ones are left out here; the file and the pages of the runs hold them."
        parts.append(html(f"<p>{said}</p>", more))
    return with_data(joined(parts, "\n"), "findings", pd.DataFrame(map(_plain, found)))


def _carded(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the findings that get a card: states first, then the newest, a few of each flip."""
    chosen = [item for item in found if item["kind"] in STATES][:LASTING]
    flips = Counter[tuple[str, str]]()
    for item in found:
        flips[item["run"], item["model"]] += item["kind"] in FLIPS
        many = item["kind"] in FLIPS and flips[item["run"], item["model"]] > EACH
        if len(chosen) < CARDS and not many and item not in chosen:
            chosen.append(item)
    return chosen


def _plain(item: Mapping[str, Any]) -> dict[str, Any]:
    kept = "id run model series family arm previous detail".split()
    found = {name: item.get(name) for name in kept}
    found |= {"started_at": pd.Timestamp(item["at"]), "finding_kind": item["kind"]}
    return found | {name: _text(item.get(name)) for name in ("before", "after")}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str | None) else orjson.dumps(value).decode()


def address(item: Mapping[str, Any]) -> str:
    """Return the permanent address of a finding, as seen from a page of its record."""
    return f"runs/{item['run']}.html#{item['id']}"


def run_pages(record: Record) -> list[str]:
    """Return the runs that have a page: those with a finding, and the newest; oldest first."""
    return sorted({*record.dated, *record.runs[-LAST:]})


def run_page(record: Record, run: str) -> Markup:
    """Return the page of a run, its links as seen from ``runs/`` below the record's pages.

    Runs are best asked for in their order: those just read stay in memory.
    """
    reading, pages = record.stored(run).reading, run_pages(record)
    place = bisect_left(pages, run)
    beside = {
        name: html('<a href="runs/{0}.html">{1}: {0}</a>', pages[at], name)
        for name, at in (("earlier", place - 1), ("later", place + 1))
        if 0 <= at < len(pages)
    }
    rows = [
        {
            "Model": key,
            "Alarm": alarm_text(model["alarm"]),
            "Refused": rate_text(model["canonical"]),
            "Controls": controls_text(model["controls"]),
            "Change": change_text(model),
            "Determined": f"{model['coverage']['determined']} of {model['coverage']['asked']}",
        }
        for key, model in reading["models"].items()
    ]
    found = [card(record, item) for item in record.dated.get(run, ())]
    text = fill(
        record.root,
        "run",
        record=record,
        reading=reading,
        when=when(reading["started_at"]),
        beside=joined(beside.values(), " · "),
        notices=joined(html('<p class="drift-banner">{}</p>', said) for said in notices(record)),
        models=table(pd.DataFrame(rows)),
        cite=copyable(record.root, "cite", citation(record, reading), "citation"),
        findings=joined(found or [html("<p>No finding in this run.</p>")], "\n"),
    )
    return Markup(text.replace('href="', 'href="../'))


def card(record: Record, item: Mapping[str, Any]) -> Markup:
    """Return one finding as a card with its anchor, its links as seen from the record's pages."""
    now = record.stored(item["run"])
    cited = citation(record, now.reading, item["id"])
    texts: dict[str, Any] = {
        "id": item["id"],
        "address": address(item),
        "kind": item["kind"].replace("_", " ").capitalize(),
        "item": item,
        "when": when(item["at"]),
        "cite": copyable(record.root, f"cite-{item['id']}", cited, "citation"),
    }
    before = after = None
    if item["kind"] in FLIPS and item.get("previous") in record.runs:
        place = (item["model"], item["arm"])
        before = record.stored(item["previous"]).answers.get(place)
        after = now.answers.get(place)
    if not before or not after:
        return fill(record.root, "finding", more=_MORE.get(item["kind"], "runs.html"), **texts)
    gone, new = differences(_cut(before)[0], _cut(after)[0])
    prompt = now.prompts.get(item["arm"])
    asked = after.get("messages") or [{"role": "user", "content": prompt}]
    question = asked[-1]["content"]
    return fill(
        record.root,
        "flip",
        family=family_links([item["family"]]),
        variant=item["arm"].partition("#")[2],
        question=question or "The record holds no copy of the question.",
        before=_side(record, "Before", item["previous"], before, gone, "del"),
        after=_side(record, "After", item["run"], after, new, "ins"),
        serving=serving(before, after, now.reading["models"][item["model"]]),
        ask=command(record, now, item, asked) if question else "",
        **texts,
    )


Range = tuple[int, int]


def differences(before: str, after: str) -> tuple[list[Range], list[Range]]:
    """Return the ranges of characters of each text that the other does not share.

    Words are compared, in Chinese characters; less than :data:`ALIKE` of them in a row that
    happen to be the same are not taken for a likeness.
    """
    old, new = ([match.span() for match in _TOKEN.finditer(text)] for text in (before, after))
    words = [before[slice(*at)] for at in old], [after[slice(*at)] for at in new]
    blocks = difflib.SequenceMatcher(None, *words, autojunk=True).get_matching_blocks()
    kept = [block for block in blocks if block.size >= ALIKE or before == after]
    return (
        _between([(old[at][0], old[at + n - 1][1]) for at, _, n in kept if n], len(before)),
        _between([(new[at][0], new[at + n - 1][1]) for _, at, n in kept if n], len(after)),
    )


def _between(shared: Iterable[Range], length: int) -> list[Range]:
    """Return the ranges that lie between the shared ones of a text."""
    starts, ends = zip(*shared, (length, length), strict=True)
    return [gap for gap in zip((0, *ends), starts, strict=False) if gap[0] < gap[1]]


def _cut(row: Mapping[str, Any]) -> tuple[str, Range, int]:
    """Return what a card shows of an answer, the judge's span in it, and where it begins."""
    text, (start, end) = row["text"], row.get("span") or (0, 0)
    first = max(0, start - SHOWN // 2) if end > SHOWN else 0
    shown = text[first : first + SHOWN]
    return shown, (min(max(start - first, 0), len(shown)), min(end - first, len(shown))), first


def _side(
    record: Record, head: str, run: str, row: Mapping[str, Any], changed: Iterable[Range], tag: str
) -> Markup:
    text, span, first = _cut(row)
    parts, at = [], 0
    for start, end in changed:
        parts += [_spanned(text, at, start, span)]
        parts += [html("<{0}>{1}</{0}>", Markup(tag), _spanned(text, start, end, span))]
        at = end
    parts.append(_spanned(text, at, len(text), span))
    if len(text) < len(row["text"]):
        cut = '\n<i class="drift-cut">Characters {:,} to {:,} of {:,}.</i>'
        parts.append(html(cut, first, first + len(text), len(row["text"])))
    if not text:
        parts = [html('<i class="drift-cut">no text</i>')]
    decided = row.get("rule") or "none"
    if row.get("span"):
        decided += ", characters {} to {}".format(*row["span"])
    facts = {"Rule": decided} | ({"Note": row["note"]} if row.get("note") else {})
    facts |= {name.capitalize(): row.get(fact) or "not reported" for fact, name in _FACTS.items()}
    if row["status"] != "ok":
        facts["Status"] = row["status"]
    return fill(
        record.root,
        "side",
        head=head,
        run=run,
        chip=chip(row.get("label") or row["status"]),
        # HTML drops one newline after <pre>: ours, so that none of the text's is lost.
        text=joined(parts),
        facts=joined(html("<div><dt>{}</dt><dd>{}</dd></div>", *fact) for fact in facts.items()),
    )


def _spanned(text: str, first: int, last: int, span: Range) -> Markup:
    """Return a part of a text with what of the judge's span lies in it marked."""
    start, end = max(first, span[0]), min(last, span[1])
    if start >= end:
        return escaped(text[first:last])
    return html("{}<mark>{}</mark>{}", text[first:start], text[start:end], text[end:last])


def serving(
    before: Mapping[str, Any], after: Mapping[str, Any], model: Mapping[str, Any]
) -> Markup:
    """Say in a sentence whether what the provider reports changed together with the label."""
    facts = [(name, before.get(fact), after.get(fact)) for fact, name in _FACTS.items()]
    moved = [
        f"{name} was {old or 'not reported'} and is {new or 'not reported'}"
        for name, old, new in facts
        if old != new
    ]
    if moved:
        said = '<span class="drift-warning">Serving changed between the two answers</span>: {}.'
        return html(said, "; ".join(moved))
    if not any(after.get(fact) for fact in _FACTS):
        return escaped("The provider reported nothing about what served these answers.")
    if model["serving"]["changed"]:
        return escaped(
            "These two answers report the same serving facts, others of this run do not."
        )
    return escaped("What the provider reports did not change between the two answers.")
