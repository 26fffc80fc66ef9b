"""What a model answered to a probe in two nights, side by side, with what differs marked.

What a text does not share with the other is marked by the rule of
:func:`drift.report.cards.differences`: words, in Chinese characters.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from drift.report.cards import Range, differences
from drift.report.history import (
    NO_COMPARISON,
    SHOWN,
    UNREADABLE,
    History,
    Place,
    Row,
    answered,
)
from drift.report.markup import Markup, escaped, fill, html, joined, table
from drift.report.nightly import said
from drift.report.pages import chip

#: An answer is shown and compared up to so many characters and bytes of HTML.
CHARACTERS, BYTES = 1_000, 2_400
#: Stretches of a text that are marked, and characters of an address that are shown.
MARKS, URL = 60, 200
ALIKE = Markup("<p>All four answers to the probe are one text.</p>")


def compared(history: History, place: Place) -> Markup:
    """Return what a model answered to a probe in the two nights that are compared."""
    pair, by_night = history.pairs.get(place[1]), history.rows[place]
    if not pair or not by_night.keys() >= {*pair}:
        return html("<p>No two nights of this probe and model can be compared.</p>")
    board = history.board(history.by_number[pair[1]])
    old, new = (by_night[number] for number in pair)
    firsts = [row for rows in (old, new) for (_, turn), row in rows.items() if turn == 1]
    alike = all(map(said, firsts)) and len({row["text"] for row in firsts}) == 1
    parts = [ALIKE if alike else _distances(pair, old[1, 1], new[1, 1])]
    for draw, question in ((1, board.pushback), (2, board.reask)):
        if draw == 1 or not alike:
            parts += [html("<p><b>Draw {}</b></p>", draw), _sides(history, place, pair, (draw, 1))]
        if (draw, 2) in new:
            asked = '<p class="drift-question"><b>Draw {}, {}</b> <q>{}</q></p>'
            parts.append(html(asked, draw, answered(draw, 2), question))
            parts.append(_sides(history, place, pair, (draw, 2)))
    return joined(parts, "\n")


def _distances(pair: tuple[int, int], old: Row, new: Row) -> Markup:
    """Return how far the four answers are from each other, between the nights and within each."""
    between = new["between"] or [None] * 4
    draws = ((1, 1), (1, 2), (2, 1), (2, 2))
    named = [
        (f"draw {then} – {now}", found) for (now, then), found in zip(draws, between, strict=True)
    ]
    named += [
        (f"within {pair[0]}", old["within"]),
        (f"within {pair[1]}", new["within"]),
    ]
    rows = [
        {f"Night {pair[0]} – {pair[1]}": name}
        | {it.capitalize(): _number(found, it) for it in ("words", "pairs", "encoder")}
        | {"Likeness": (found and found["likeness"]) or NO_COMPARISON}
        for name, found in named
    ]
    return table(pd.DataFrame(rows))


def _number(found: Row | None, metric: str) -> str:
    return "–" if not found or found[metric] is None else f"{found[metric]:.3f}"


def _sides(history: History, place: Place, pair: tuple[int, int], at: tuple[int, int]) -> Markup:
    """Return one answer in both nights side by side; once, if both are the same text."""
    old, new = (history.rows[place][number][at] for number in pair)
    texts = [_cut(row["text"]) for row in (old, new)]
    same = said(old) and said(new) and old["text"] == new["text"]
    changed = differences(*texts) if said(old) and said(new) else ([], [])
    sides = [
        _side(history, place, number, row, text, ranges, tag)
        for number, row, text, ranges, tag in zip(
            pair, (old, new), texts, changed, ("del", "ins"), strict=True
        )
    ]
    alike = "<p>The same text in night {} and in night {}:</p>\n{}"
    if same:
        return html(alike, *pair, sides[1])
    return html('<div class="drift-sides">{}\n{}</div>', *sides)


def _cut(text: str) -> str:
    """Return as much of a text as is shown and compared."""
    room = CHARACTERS
    while len(escaped(text[:room]).encode()) > BYTES:
        room //= 2
    return text[:room]


def _side(
    history: History,
    place: Place,
    number: int,
    row: Row,
    text: str,
    changed: Sequence[Range],
    tag: str,
) -> Markup:
    facts = (
        [("Text", history.letters(place)[row["text"]])] if said(row) and row["turn"] == 1 else []
    )
    facts += [("Opening", row["opening"])] if row["opening"] else []
    if said(row) and place[0].startswith("stance/"):
        facts.append(("Verdict", row["verdict"] or UNREADABLE))
    if said(row) and row["status"] != "ok":
        facts.append(("Status", row["status"]))
    known, asked = history.addresses(number), "<code>{}</code> {} ({})"
    for url in (row["urls"] or ())[:SHOWN]:
        found = known.get(url, {"found": "unchecked", "reason": "not looked for"})
        why = ", ".join(str(found[it]) for it in ("http", "reason") if found.get(it))
        facts.append(("Address", html(asked, url[:URL], found["found"], why)))
    return fill(
        history.nights.record.root,
        "side",
        head=f"Night {number}",
        run=row["run"],
        chip=chip(row["label"] or row["status"]),
        text=_marked(text, changed, tag, row),
        facts=joined(html("<div><dt>{}</dt><dd>{}</dd></div>", *fact) for fact in facts),
    )


def _marked(text: str, changed: Sequence[Range], tag: str, row: Row) -> Markup:
    """Return a text with what changed in it marked, and a word on what is left out."""
    parts, at, cut = list[object](), 0, '\n<i class="drift-cut">{}</i>'
    for start, end in changed[:MARKS]:
        parts += [text[at:start], html("<{0}>{1}</{0}>", Markup(tag), text[start:end])]
        at = end
    parts.append(text[at:])
    if not text:
        parts.append(html(cut, "no text"))
    if len(text) < len(row["text"]):
        kept = "The first {:,} of {:,} characters are shown and compared."
        parts.append(html(cut, kept.format(len(text), len(row["text"]))))
    if len(changed) > MARKS:
        parts.append(html(cut, f"{len(changed) - MARKS} further differences are not marked."))
    return joined(parts)


def other(history: History, place: Place, answer: tuple[str, str]) -> Markup:
    """Return an answer with its letter, and where it came first."""
    to, text = answer
    where, shown = history.texts(place)[answer], _cut(text)
    name = to.capitalize() or html("<b>{}</b>", history.letters(place)[text])
    times = "once" if len(where) == 1 else f"{len(where)} times"
    head = html("{}, {}, first in night {} as draw {}", name, times, *where[0])
    body = _marked(shown, (), "", {"text": text})
    return html('<div class="drift-response"><p>{}</p><pre>\n{}</pre></div>', head, body)
