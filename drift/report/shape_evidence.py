"""What the shapes of a record rest on: texts with the deciding words, rules and readers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from drift.records.people import read_by_people
from drift.records.shapes import load_coder
from drift.report.markup import Markup, html, joined, table, with_data
from drift.report.pages import anchor
from drift.report.shaped import Shaped, of_shapes
from drift.report.shapes import MEANINGS
from drift.report.tables import each
from drift.report.transcripts import marked

#: Examples of one shape by one model, and characters shown of each around the deciding words.
EXAMPLES, ROOM = 2, 900


@of_shapes
def examples(shaped: Shaped) -> Markup:
    """Return for each shape and model a text or two of the record, the deciding words marked."""
    parts, chosen = [], []
    for shape in shaped.present:
        found = [*_chosen(shaped, shape)]
        chosen += found
        texts = joined(map(_example(shaped), found))
        fold = "<details><summary><b>{}</b>: {}; {} shown</summary>{}</details>"
        parts.append(html(fold, shape, MEANINGS[shape], len(found), texts))
    columns = ["model", "run", "key", "shape", "rule", "note"]
    behind = pd.DataFrame([{name: getattr(row, name) for name in columns} for row in chosen])
    return with_data(joined(parts), "shape-examples", behind)


def _chosen(shaped: Shaped, shape: str) -> Iterator[Any]:
    """Yield the first refusals of each model with a shape: of two families where there are."""
    events = shaped.coded[shaped.coded["shape"] == shape]
    for model in shaped.full:
        mine = events[events.model == model].sort_values(["variant", "family"])
        spread = pd.concat([mine.drop_duplicates("family"), mine[mine.duplicated("family")]])
        yield from each(spread.head(EXAMPLES))


def _example(shaped: Shaped) -> Any:
    def said(row: Any) -> Markup:
        question = shaped.record.stored(row.run).prompts.get(row.key)
        question = question or "The record holds no copy of the question."
        link = html('<a href="transcripts.html#{}">{}</a>', anchor(row.family), row.key)
        facts = joined(filter(None, (link, f"rule {row.rule}", row.note)), " · ")
        shown = marked(row, ROOM)
        tall = Markup(' tabindex="0"')
        return html(
            '<div class="drift-response"><p><b>{}</b> {}</p><p class="drift-question">{}</p>'
            "<pre{}>\n{}</pre></div>",
            *(
                shaped.name(row.model),
                facts,
                question or "The record holds no copy of the question.",
            ),
            *(tall, shown),
        )

    return said


@of_shapes
def rules(shaped: Shaped) -> Markup:
    """Return every rule of the present coder with its reason, and how often each decided here."""
    present = load_coder(shaped.record.root)
    known = {rule.id: (kind, rule.reason) for kind, of in present.rules.items() for rule in of}
    known |= {name: ("structural", reason) for name, reason in present.structural.items()}
    coded = shaped.coded
    theirs = {rule.id: rule.reason for of in present.judge.rules.values() for rule in of}
    theirs |= present.judge.structural
    for name in coded.rule.value_counts().index.difference([*known]):
        whose = "of the refusal judge" if name in theirs else "of another version"
        known[name] = (whose, theirs.get(name, ""))
    rows = [
        {"rule": name, "rule_kind": kind, "rule_reason": reason}
        | {"decided_full": int((coded.rule == name).sum())}
        | {"shapes_decided": _shapes_of(coded[coded.rule == name])}
        for name, (kind, reason) in known.items()
    ]
    frame = pd.DataFrame(rows)
    shown = frame[frame.decided_full > 0].sort_values(
        "decided_full", ascending=False, kind="stable"
    )
    text = table(
        pd.DataFrame(
            {
                "Rule": [html("{}<br>{}", row.rule, row.rule_kind) for row in each(shown)],
                "Reason": shown.rule_reason.to_list(),
                "Decided": shown.decided_full.to_list(),
                "Shape": shown.shapes_decided.to_list(),
            }
        )
    )
    idle = "<p>{} of {} rules decided nothing here: this record does not test them.</p>"
    unused = int((frame.decided_full == 0).sum())
    return with_data(joined([text, html(idle, unused, len(frame))]), "shape-rules", frame)


def _shapes_of(rows: pd.DataFrame) -> str:
    counts = rows["shape"].value_counts()
    return ", ".join(f"{name} {n}" for name, n in counts.items())


# People.


@of_shapes
def people(shaped: Shaped) -> Markup:
    """Return how far people who read refusals of this record agree with the coder, by shape."""
    lines = [line for line, _ in shaped.record.sealed]
    studies = read_by_people(shaped.record.store, lines, scheme="shape", of=shaped.newest["judge"])
    if not studies:
        return Markup(
            "<p><b>No person has read refusals of this record for their shape</b>, so how often "
            "the coder is right here is not known. <code>drift code draw --scheme shape</code> "
            "draws a sample for readers.</p>"
        )
    study = studies[-1]
    if study["reason"]:
        return html("<p>Sealed readings are not shown: {}.</p>", study["reason"])
    found = [row for pair in study["pairs"] for row in _words(pair)]
    shown = [
        {"Readers": " and ".join(of), "Shape": shape, "Texts": n}
        | {name.capitalize(): _estimate(one) for name, one in figures.items()}
        for of, shape, n, figures in found
    ]
    behind = [
        {"first_reader": of[0], "second_reader": of[1], "shape": shape, "coded_rows": n}
        | {"figure": name, "figure_value": one["estimate"]}
        | {"figure_low": one["low"], "figure_high": one["high"], "reason": one["reason"] or ""}
        for of, shape, n, figures in found
        for name, one in figures.items()
    ]
    parts = [table(pd.DataFrame(shown)), *map(_confused, study["pairs"])]
    return with_data(joined(parts), "shape-people", pd.DataFrame(behind))


NONE = {"estimate": None, "low": None, "high": None, "reason": ""}
_Word = tuple[tuple[str, str], str, int, dict[str, Mapping[str, Any]]]


def _words(pair: Mapping[str, Any]) -> Iterator[_Word]:
    """Yield the figures of two readers over all shapes, then for each against the rest."""
    of = pair["first"].replace("judge", "the coder"), pair["second"]
    for shape, figures in {"all": {"kappa": pair["kappa"]}, **pair["by_word"]}.items():
        known = {name: figures.get(name) or NONE for name in ("kappa", "precision", "recall")}
        yield of, shape, pair["rows"], known


def _estimate(one: Mapping[str, Any]) -> Markup:
    if one["estimate"] is None:
        return html("not estimable: {}", one["reason"]) if one["reason"] else Markup("–")
    if one["low"] is None:
        return html("<b>{:.2f}</b>", one["estimate"])
    return html("<b>{:.2f}</b> [{:.2f}, {:.2f}]", one["estimate"], one["low"], one["high"])


def _confused(pair: Mapping[str, Any]) -> Markup:
    """Return which shapes two readers take for each other."""
    said = [
        html("{} and {}: {}", *it["words"], " and ".join(map(str, it["units"])))
        for it in pair["confusions"]
    ]
    line = "<p>{} and {}, shapes taken for each other: {}.</p>"
    return html(line, pair["first"], pair["second"], joined(said, "; ") or "none")
