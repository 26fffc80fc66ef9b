"""The page of probes: each with every model's nights in lines of signs, and its texts behind."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from itertools import groupby, product
from typing import Any

import pandas as pd

from drift.board import Probe
from drift.report.display import Shown, shown
from drift.report.history import (
    ABSENT,
    LIKENESS,
    History,
    Place,
    answered,
)
from drift.report.markup import Markup, fill, html, joined, table, with_data
from drift.report.metrics import NO_NIGHT
from drift.report.nightly import said
from drift.report.nights import MISSING
from drift.report.pages import anchor
from drift.report.sides import compared, other
from drift.report.transcripts import ROOM

#: Bytes of HTML that one probe's lines of signs take for one model.
LINES = 2_000
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
    ":is(.drift-kind:not(:has({of})),.drift-probe:not(:has({of})),.drift-asked:not({of}))"
    "{{display:none}}"
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
    bodies, nights = _bodies(history)
    parts = [_chooser(history)]
    if nights < len(history.nights.all):
        kept = "Besides those compared, the texts of the newest {} of {} nights have room here."
        parts.append(html(f"<p>{kept}</p>", nights, len(history.nights.all)))
    kind = '<div class="drift-kind"><h2 id="topic-{0}">{0}</h2>\n{1}</div>'
    for category, probes in groupby(history.probes.values(), lambda probe: probe.category):
        sections = joined((_section(history, probe, bodies) for probe in probes), "\n")
        parts.append(html(kind, category, sections))
    return html('<div class="drift-probes">{}</div>', joined(parts, "\n"))


def _bodies(history: History) -> tuple[dict[Place, Markup], int]:
    """Return what is folded behind the lines of signs, and the nights whose texts all have room."""
    bodies, left = dict[Place, Markup](), ROOM - LINES * len(history.rows)
    for place in history.rows:
        body = compared(history, place)
        left -= len(body.encode())
        bodies[place] = body if left > 0 else FULL
    others, nights = _others(history, left)
    return {place: joined([body, others.get(place, "")]) for place, body in bodies.items()}, nights


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
                    fresh.append((place, other(history, place, answer)))
        left -= sum(len(it.encode()) for _, it in fresh)
        if left < 0:
            break
        nights += 1
        for place, it in fresh:
            found[place].append(it)
    fold = "<details><summary>{} other answer{} of these nights</summary>{}</details>"
    folded = {
        place: html(fold, len(them), "s" * (len(them) > 1), joined(them))
        for place, them in found.items()
    }
    return folded, nights


def _in_pair(history: History, place: Place) -> set[tuple[str, str]]:
    by_night, pair = history.rows[place], history.pairs.get(place[1], ())
    rows = (by_night.get(number, {}).items() for number in pair)
    return {(answered(*at), row["text"]) for of in rows for at, row in of}


def _differs(history: History, place: Place) -> list[str]:
    """Return which of :data:`CHOICES` the compared answers of a probe and model belong to."""
    pair, lines = history.pairs.get(place[1]), history.lines[place]
    if not pair or not lines.keys() >= {*pair}:
        return []
    old, new = (lines[number] for number in pair)
    tracks = ["declines", *BESIDE["stance"] * (history.probes[place[0]].category == "stance")]
    read = [{getattr(old, track), getattr(new, track)} for track in tracks]
    of = {"uneven": new.likeness in UNEVEN, "moved": new.likeness in ("changed", "rewrite")}
    of["read"] = any(len(words) > 1 and not words & ABSENT.keys() for words in read)
    return [name for name, met in of.items() if met]


def _chooser(history: History) -> Markup:
    """Return the choice of a model and of what differs, which works without a script."""
    counts = Counter(it for place in history.rows for it in _differs(history, place))
    offered = {
        "model": ["all", *history.nights.models],
        "differs": [f"{name} ({counts[it]})" if it else name for it, name in CHOICES.items()],
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


def _asked(history: History, place: Place, body: Markup) -> Markup:
    """Return a model's lines of signs for a probe, its texts folded behind them."""
    arm, model = place
    beside = BESIDE.get(history.probes[arm].category, ())
    tracks = ["likeness", "within_likeness", "declines", *beside]
    return fill(
        history.nights.record.root,
        "asked",
        anchor=f"{address(arm)}--{model}",
        number=history.nights.models.index(model) + 1,
        differs=" ".join(f"drift-{it}" for it in _differs(history, place)),
        model=model,
        lines=joined((history.line(place, it) for it in tracks), " "),
        letters=joined((history.line(place, it) for it in ("text_1", "text_2")), " "),
        body=body,
    )


def _section(history: History, probe: Probe, bodies: Mapping[Place, Markup]) -> Markup:
    boards = {night.number: history.board(night).by_id for night in history.shown}
    asked = {number: of[probe.id].prompt for number, of in boards.items() if probe.id in of}
    other = [str(number) for number, prompt in asked.items() if prompt != probe.prompt]
    reworded = '<p class="drift-small">Asked in other words in night{} {}.</p>'
    return fill(
        history.nights.record.root,
        "probe",
        anchor=address(probe.id),
        name=probe.id.partition("#")[0].partition("/")[2],
        language={"en": "English", "zh": "Chinese"}[probe.language],
        prompt=probe.prompt,
        why=probe.why,
        reworded=html(reworded, "s" * (len(other) > 1), ", ".join(other)) if other else "",
        rows=joined((_asked(history, it, bodies[it]) for it in bodies if it[0] == probe.id), "\n"),
    )


def address(arm: str) -> str:
    """Return the lasting address of a probe on the page."""
    return anchor(arm) + ("-zh" if arm.endswith("#zh") else "")
