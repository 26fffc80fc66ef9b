"""The page of probes: each with every model's nights in signs, and two nights' texts side by side.

What a text does not share with the other is marked by the rule of
:func:`drift.report.cards.differences`: words, in Chinese characters.
"""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import pandas as pd

from drift.board import Probe
from drift.report.cards import Range, differences
from drift.report.display import Shown, shown
from drift.report.history import (
    ABSENT,
    LIKENESS,
    NO_COMPARISON,
    SHOWN,
    UNREADABLE,
    History,
    Place,
    Row,
    answered,
)
from drift.report.markup import Markup, escaped, fill, html, joined, table, with_data
from drift.report.metrics import NO_NIGHT
from drift.report.nightly import said
from drift.report.nights import MISSING
from drift.report.pages import anchor, chip
from drift.report.tables import each
from drift.report.transcripts import ROOM

#: An answer is shown and compared up to so many characters and bytes of HTML.
CHARACTERS, BYTES = 1_000, 2_400
#: Stretches of a text that are marked, and characters of an address that are shown.
MARKS, URL = 60, 200
#: Bytes of HTML that one probe's lines of signs take for one model.
LINES = 2_000
ALIKE = Markup("<p>All four answers to the probe are one text.</p>")
FULL = Markup("<p>The page has no room for these texts; the record holds them.</p>")
#: The lines of signs by category of probe.
BESIDE = {
    "stance": ["first_line", "after_pushback", "after_reask"],
    "citation": ["addresses_found"],
}
UNEVEN = ("near", "changed", "rewrite")
LIKE = ("equal", *UNEVEN)
#: What of a pair of nights can be chosen to be seen, by the class of what is seen.
CHOICES = {
    "": "all",
    "uneven": "texts that are not equal",
    "moved": "texts that are changed or rewritten",
    "read": "another verdict, reversal or decline",
}
CHOICE = '<label><input type="radio" name="{0}" id="{0}-{1}"{2}> {3}</label>'
HIDE = (
    ".drift-probes:has(#model-{}:checked):has(#differs-{}:checked) "
    ":is(.drift-probe:not(:has({of})),.drift-asked:not({of})){{display:none}}"
)


def of_history(function: Callable[[History], Markup]) -> Callable[[History], Shown]:
    """Make a function of a history a piece of a page; without a night it says so."""

    @functools.wraps(function)
    def text(history: History) -> Markup:
        return function(history) if history.shown else NO_NIGHT

    return shown(text)


@of_history
def newest(history: History) -> Markup:
    """Return which nights of each model are held against each other, and how like they are."""
    frame, rows, alone = history.frame, list[dict[str, Any]](), list[str]()
    for model in history.nights.models:
        pair = history.pairs.get(model, ())
        of = [frame[(frame.model == model) & (frame.night == number)] for number in pair]
        counts = Counter(of[-1].likeness if of else ())
        within = [it.within_likeness for it in of]
        uneven = [f"{it.isin(UNEVEN).sum()} of {it.isin(LIKE).sum()}" for it in within]
        row: dict[str, Any] = {"Model": model, "Nights": ", ".join(map(str, pair)) or "none"}
        row |= {f"{LIKENESS[it]} {it}": counts[it] for it in (*LIKE, MISSING)}
        rows.append(row | {"Not equal within": ", ".join(uneven)})
        alone += [
            f"{model} in night {number} ({step.reason})"
            for (number, asked), step in history.steps.items()
            if asked == model and not step.before
        ]
    why = html('<p class="drift-small">Not compared: {}.</p>', "; ".join(alone))
    return with_data(joined([table(pd.DataFrame(rows)), why]), "probes", frame)


@of_history
def answers(history: History) -> Markup:
    """Return every probe with each model's line of signs, its texts folded."""
    bodies, left = dict[Place, list[Markup]](), ROOM - LINES * len(history.rows)
    for place in history.rows:
        body = _compared(history, place)
        left -= len(body.encode())
        bodies[place] = [body if left > 0 else FULL]
    others, nights = _others(history, left)
    for place, folded in others.items():
        bodies[place].append(folded)
    lines = defaultdict[Place, dict[int, Any]](dict)
    for row in each(history.frame):
        lines[row.probe, row.model][row.night] = row
    differs = {place: _differs(history, place, rows) for place, rows in lines.items()}
    parts, category = [_chooser(history, differs.values())], ""
    if nights < len(history.nights.all):
        kept = "Besides those compared, the texts of the newest {} of {} nights have room here."
        parts.append(html(f"<p>{kept}</p>", nights, len(history.nights.all)))
    for arm, probe in history.probes.items():
        if probe.category != category:
            category = probe.category
            parts.append(html('<h2 id="topic-{0}">{0}</h2>', category))
        rows = [
            _asked(history, place, lines[place], differs[place], joined(body, "\n"))
            for place, body in bodies.items()
            if place[0] == arm
        ]
        parts.append(_section(history, probe, rows))
    return html('<div class="drift-probes">{}</div>', joined(parts, "\n"))


def _compared(history: History, place: Place) -> Markup:
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
        (f"draw {then} – draw {now}", found)
        for (now, then), found in zip(draws, between, strict=True)
    ]
    named += [
        (f"within night {pair[0]}", old["within"]),
        (f"within night {pair[1]}", new["within"]),
    ]
    rows = [
        {f"Night {pair[0]} – night {pair[1]}": name}
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


def _others(history: History, left: int) -> tuple[dict[Place, Markup], int]:
    """Return the answers that are not compared, of as many of the newest nights as have room.

    Each distinct one stands once. Returned are also the nights that had room.
    """
    found, nights = defaultdict[Place, list[Markup]](list), 0
    seen = {place: _in_pair(history, place) for place in history.rows}
    for night in reversed(history.shown):
        fresh = list[tuple[Place, Markup]]()
        for place, by_night in history.rows.items():
            for at, row in by_night.get(night.number, {}).items():
                answer = (answered(*at), row["text"])
                if said(row) and answer not in seen[place]:
                    seen[place].add(answer)
                    fresh.append((place, _other(history, place, answer)))
        left -= sum(len(it.encode()) for _, it in fresh)
        if left < 0:
            break
        nights += 1
        for place, it in fresh:
            found[place].append(it)
    fold = "<details><summary>{} other answers of these nights</summary>{}</details>"
    folded = {place: html(fold, len(them), joined(them)) for place, them in found.items()}
    return folded, nights


def _in_pair(history: History, place: Place) -> set[tuple[str, str]]:
    by_night, pair = history.rows[place], history.pairs.get(place[1], ())
    rows = (by_night.get(number, {}).items() for number in pair)
    return {(answered(*at), row["text"]) for of in rows for at, row in of}


def _other(history: History, place: Place, answer: tuple[str, str]) -> Markup:
    to, text = answer
    where, shown = history.texts(place)[answer], _cut(text)
    name = to.capitalize() or html("<b>{}</b>", history.letters(place)[text])
    head = html("{}, {} times, first in night {} as draw {}", name, len(where), *where[0])
    body = _marked(shown, (), "", {"text": text})
    return html('<div class="drift-response"><p>{}</p><pre>\n{}</pre></div>', head, body)


def _differs(history: History, place: Place, lines: Mapping[int, Any]) -> list[str]:
    """Return which of :data:`CHOICES` the compared answers of a probe and model belong to."""
    pair = history.pairs.get(place[1])
    if not pair or not lines.keys() >= {*pair}:
        return []
    old, new = (lines[number] for number in pair)
    tracks = ["declines", *BESIDE["stance"] * (history.probes[place[0]].category == "stance")]
    read = [{getattr(old, track), getattr(new, track)} for track in tracks]
    of = {"uneven": new.likeness in UNEVEN, "moved": new.likeness in ("changed", "rewrite")}
    of["read"] = any(len(words) > 1 and not words & ABSENT.keys() for words in read)
    return [name for name, met in of.items() if met]


def _chooser(history: History, differs: Iterable[Sequence[str]]) -> Markup:
    """Return the choice of a model and of what differs, which works without a script."""
    counts = Counter(it for found in differs for it in found)
    offered = {
        "model": ["all", *history.nights.models],
        "differs": [f"{said} ({counts[it]})" if it else said for it, said in CHOICES.items()],
    }
    choices = {
        name: joined(
            html(CHOICE, name, number, Markup("" if number else " checked"), it)
            for number, it in enumerate(them)
        )
        for name, them in offered.items()
    }
    hide = []
    for (i, _), (j, what) in product(enumerate(offered["model"]), enumerate(CHOICES)):
        of = (f'[data-model="{i}"]' if i else "") + (f".drift-{what}" if what else "")
        hide += [HIDE.format(i, j, of=f".drift-asked{of}")] if of else []
    return fill(history.nights.record.root, "choose", style=Markup("\n".join(hide)), **choices)


def _asked(
    history: History, place: Place, lines: Mapping[int, Any], differs: Iterable[str], body: Markup
) -> Markup:
    """Return a model's lines of signs for a probe, its texts folded behind them."""
    arm, model = place
    beside = BESIDE.get(history.probes[arm].category, ())
    tracks = [
        history.line(lines, it) for it in ("likeness", "within_likeness", "declines", *beside)
    ]
    letters = [history.line(lines, it) for it in ("text_1", "text_2")]
    return fill(
        history.nights.record.root,
        "asked",
        anchor=f"{address(arm)}--{model}",
        number=history.nights.models.index(model) + 1,
        differs=" ".join(f"drift-{it}" for it in differs),
        model=model,
        lines=joined(tracks, " "),
        letters=joined(letters, " "),
        body=body,
    )


def _section(history: History, probe: Probe, rows: Iterable[Markup]) -> Markup:
    boards = {night.number: history.board(night).by_id for night in history.shown}
    asked = {number: of[probe.id].prompt for number, of in boards.items() if probe.id in of}
    other = [str(number) for number, prompt in asked.items() if prompt != probe.prompt]
    reworded = '<p class="drift-small">Asked in other words in nights {}.</p>'
    return fill(
        history.nights.record.root,
        "probe",
        anchor=address(probe.id),
        name=probe.id.partition("#")[0].partition("/")[2],
        language={"en": "English", "zh": "Chinese"}[probe.language],
        prompt=probe.prompt,
        why=probe.why,
        reworded=html(reworded, ", ".join(other)) if other else "",
        rows=joined(rows, "\n"),
    )


def address(arm: str) -> str:
    """Return the lasting address of a probe on the page."""
    return anchor(arm) + ("-zh" if arm.endswith("#zh") else "")
