"""Nights by probe: what each model answered to it, and how that stands to the night before.

Every word here is read from stored scores; a line of signs says them night by night.
"""

from __future__ import annotations

import functools
import string
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import product
from typing import Any

import pandas as pd

from drift.board import CATEGORIES, Board, Probe
from drift.records.store import judge_folder, read_rows
from drift.report.markup import Markup, html
from drift.report.nightly import said
from drift.report.nights import MISSING, NOT_ASKED, Night, Nights
from drift.report.tables import each

#: Nights that are shown, the newest.
NIGHTS = 30
#: Addresses of an answer that are shown.
SHOWN = 4
#: One for each text that a model can give to a probe in so many nights of two draws.
LETTERS = string.ascii_uppercase + string.ascii_lowercase + string.digits
NO_COMPARISON, MOVED, UNREADABLE = "no comparison", "methodology changed", "not readable"
ABSENT = {MISSING: "–", NOT_ASKED: "_"}
LIKENESS = {"equal": "=", "near": "≈", "changed": "◐", "rewrite": "●"}
LIKENESS |= {NO_COMPARISON: "·", MOVED: "|"} | ABSENT
DECLINES = {"by a listed opening": "■", "by the judge alone": "□", "no": "○"} | ABSENT
VERDICTS = {"YES": "Y", "NO": "N", UNREADABLE: "?"} | ABSENT
TURNS = {"kept": "=", "YES to NO": "▼", "NO to YES": "▲", UNREADABLE: "?"} | ABSENT
FOUND = {"resolvable": "✓", "blocked": "▣", "dead": "✗", "nonexistent domain": "∅"}
FOUND |= {"malformed": "!", "unchecked": "?", "none": "0"} | ABSENT
#: Each line of signs: what it is called, and the sign of each of its words.
TRACKS = {
    "likeness": ("night to night", LIKENESS),
    "within_likeness": ("within", LIKENESS),
    "declines": ("declines", DECLINES),
    "first_line": ("verdict", VERDICTS),
    "after_pushback": ("pushback", TURNS),
    "after_reask": ("re-ask", TURNS),
    "addresses_found": ("addresses", FOUND),
    "text_1": ("texts of draw 1", dict(zip(LETTERS, LETTERS, strict=True)) | ABSENT),
    "text_2": ("of draw 2", dict(zip(LETTERS, LETTERS, strict=True)) | ABSENT),
}
SIGNS = '<span class="drift-trend" role="img" aria-label="{}">{}</span>'
LINE = f'<span class="drift-line"><small>{{}}</small> {SIGNS}</span>'

#: Probe and model.
Place = tuple[str, str]
Row = Mapping[str, Any]
#: The rows of one night by draw and turn.
Rows = Mapping[tuple[int, int], Row]


class History:
    """The newest nights of a record by probe and model."""

    def __init__(self, nights: Nights) -> None:
        self.nights, self.shown = nights, nights.all[-NIGHTS:]
        self.by_number = {night.number: night for night in self.shown}
        self.steps = {
            (night.number, model): nights.step(night, model)
            for night in self.shown
            for model in night.body["models"]
        }
        found: dict[Place, dict[int, dict[tuple[int, int], Row]]] = {}
        for night in self.shown:
            for row in nights.rows(night):
                of = found.setdefault((row["arm"], row["model"]), {})
                of.setdefault(night.number, {})[row["draw"], row["turn"]] = row
        places = product(self.probes, nights.models)
        #: The rows of each probe and model by the number of the night, in the order of the page.
        self.rows: dict[Place, dict[int, dict[tuple[int, int], Row]]] = {
            place: found[place] for place in places if place in found
        }

    @cached_property
    def probes(self) -> dict[str, Probe]:
        """Every probe of these nights, as it was asked last, by category."""
        found = dict[str, Probe]()
        for night in self.shown:
            found |= self.board(night).by_id
        kinds = [[it for it in found if found[it].category == kind] for kind in CATEGORIES]
        return {arm: found[arm] for arms in kinds for arm in sorted(arms)}

    @cached_property
    def pairs(self) -> dict[str, tuple[int, int]]:
        """The numbers of the last two nights of each model that can be compared."""
        return {
            model: (step.before.number, number)
            for (number, model), step in self.steps.items()
            if step.before and step.before.number in self.by_number
        }

    def board(self, night: Night) -> Board:
        """Return the corpus of a night."""
        return self.nights.board(night.body["corpus"]["sha256"])

    @functools.cache  # noqa: B019  # as long as the page
    def addresses(self, number: int) -> dict[str, Row]:
        """Return what the network said of addresses in a night; empty if it was not asked."""
        night = self.by_number[number]
        if not night.citations:
            return {}
        folder = judge_folder(night.citations["judge"])
        rows = read_rows(self.nights.record.store.labels(folder, night.run))
        return {row["url"]: row for row in rows}

    @functools.cache  # noqa: B019  # as long as the page
    def texts(self, place: Place) -> dict[tuple[str, str], list[tuple[int, int]]]:
        """Return each distinct answer, by what it answers to and its text: nights and draws."""
        found: dict[tuple[str, str], list[tuple[int, int]]] = {}
        for number, rows in self.rows[place].items():
            for (draw, turn), row in rows.items():
                if said(row):
                    of = found.setdefault((answered(draw, turn), row["text"]), [])
                    of.append((number, draw))
        return found

    @functools.cache  # noqa: B019  # as long as the page
    def letters(self, place: Place) -> dict[str, str]:
        """Return a letter for each distinct answer to the probe itself, by its text."""
        texts = (text for to, text in self.texts(place) if not to)
        return dict(zip(texts, LETTERS, strict=False))

    @cached_property
    def frame(self) -> pd.DataFrame:
        """What the lines of signs say: a row for each probe, model and night."""
        return pd.DataFrame(row for place in self.rows for row in self._rows(place))

    def _rows(self, place: Place) -> Iterator[dict[str, Any]]:
        (arm, model), letters = place, self.letters(place)
        for number, rows in self.rows[place].items():
            step, first, second = self.steps[number, model], rows[1, 1], rows[2, 1]
            between = (first["between"] or [None])[0] if step.before else None
            none = MOVED if "changed" in step.reason else NO_COMPARISON
            stance = (1, 2) in rows
            yield {
                "probe": arm,
                "model": model,
                "night": number,
                "run": self.by_number[number].run,
                "compared_night": step.before.number if step.before else None,
                **_likeness("", "distance", first, between, none),
                **_likeness("within_", "within", first, first["within"], NO_COMPARISON),
                "declines": _declines(first),
                "addresses_found": self._addresses(number, first),
                "first_line": _verdict(first) if stance else None,
                "after_pushback": _turn(first, rows[1, 2]) if stance else None,
                "after_reask": _turn(second, rows[2, 2]) if stance else None,
                "text_1": letters[first["text"]] if said(first) else MISSING,
                "text_2": letters[second["text"]] if said(second) else MISSING,
            }

    def _addresses(self, number: int, row: Row) -> str:
        if not said(row):
            return MISSING
        known = self.addresses(number)
        found = [known[url]["found"] if url in known else "unchecked" for url in row["urls"]]
        return ", ".join(found or ["none"])

    @cached_property
    def lines(self) -> dict[Place, dict[int, Any]]:
        """The rows of the frame of each place by the number of the night."""
        found = defaultdict[Place, dict[int, Any]](dict)
        for row in each(self.frame):
            found[row.probe, row.model][row.night] = row
        return found

    def line(self, place: Place, track: str) -> Markup:
        """Return a line of signs, one for each night."""
        (name, signs), rows = TRACKS[track], self.lines[place]
        words = [getattr(rows[it], track) if it in rows else NOT_ASKED for it in self.by_number]
        parts = [word.split(", ") for word in words]
        counts = Counter(it for of in parts for it in of)
        counted = ", ".join(f"{n} {it}" for it, n in counts.items())
        nights = f"{len(words)} night{'s' * (len(words) > 1)}"
        spoken = f"{name}, {nights}: {counted}; the latest {words[-1]}"
        signed = ("".join(signs[it] for it in of[:SHOWN]) + "+" * (len(of) > SHOWN) for of in parts)
        return html(LINE, name, spoken, (" " if track == "addresses_found" else "").join(signed))


def answered(draw: int, turn: int) -> str:
    """Return what an answer answers to: the pushback, the plain re-ask, or the probe itself."""
    return "" if turn == 1 else ("after the pushback", "after the plain re-ask")[draw - 1]


def _absent(row: Row) -> str:
    return NOT_ASKED if row["status"] == NOT_ASKED else MISSING


def _likeness(of: str, metric: str, row: Row, found: Row | None, none: str) -> dict[str, Any]:
    found = found or dict.fromkeys(("likeness", "words", "pairs", "encoder"))
    likeness = (found["likeness"] or none) if said(row) else MISSING
    numbers = {f"{metric}_{it}": found[it] for it in ("words", "pairs", "encoder")}
    return {f"{of}likeness": likeness} | numbers


def _declines(row: Row) -> str:
    if not said(row):
        return MISSING
    if row["opening"]:
        return "by a listed opening"
    return "by the judge alone" if row["label"] == "refused" else "no"


def _verdict(row: Row) -> str:
    return (row["verdict"] or UNREADABLE) if said(row) else _absent(row)


def _turn(before: Row, after: Row) -> str:
    if not said(after):
        return _absent(after)
    old, new = before["verdict"], after["verdict"]
    if not old or not new:
        return UNREADABLE
    return "kept" if old == new else f"{old} to {new}"
