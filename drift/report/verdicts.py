"""Which passes of a record may be compared, what each pair shows, and replays of known truth.

Each verdict is that of :mod:`drift.instrument`, computed here from the record.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pandas as pd

from drift.errors import ConfigurationError
from drift.instrument import ATTRIBUTABLE, NO_CHANGE, VOID, Comparison, points
from drift.records.pins import Pass
from drift.records.replays import Replay, Replays, load_replays
from drift.report.instrument import (
    LISTED,
    Pins,
    elicitor_name,
    limits_text,
    points_text,
    with_reference,
)
from drift.report.markup import Markup, html, joined, table, with_data
from drift.report.tables import Record

#: Characters of why pins differ: a task of an elicitor is long.
LONGEST = 600
NO_REPLAYS = Markup(
    "<p>This record does not hold the batches of config/replays.toml: nothing of known truth "
    "is compared in it.</p>"
)
TRUTH = (
    '{truth}<br><span class="drift-small">{base} → {candidate}; {model} read against '
    "{reference}; stated {stated}</span>"
)
FIGURES = "target: {}<br>reference: {}<br>floor: {}<br>reason: {}"
#: What became of a pair: a sign, and words. The first whose beginning a verdict has.
KINDS = {
    ATTRIBUTABLE: ("▲", "attributable to the target"),
    NO_CHANGE: ("·", "no change shown"),
    "not estimable": ("–", "not estimable"),
    "void: instrument drifted": ("×", "void: the reference moved"),
    "": ("≠", "void: pins differ"),
}
SIGNS = {words: sign for sign, words in KINDS.values()}


def kind_of(found: Comparison) -> str:
    """Return what became of a pair, as in :data:`KINDS`; a rescored one by what it came to."""
    inner = found.verdict.rpartition("; ")[2]
    return next(words for start, (_, words) in KINDS.items() if inner.startswith(start))


def _figures(found: Comparison) -> dict[str, Any]:
    """Return a verdict and the figures that it rests on, as columns of a download."""
    laid = found.attribution
    return {
        "pair_verdict": found.verdict,
        "pair_reason": found.reason,
        "floor": found.floor,
        "reference_delta": found.reference_delta,
        "target_delta": laid and laid.delta,
        "target_low": laid and laid.interval.low,
        "target_high": laid and laid.interval.high,
        "midp": laid and laid.midp,
    }


def comparisons(pins: Pins) -> pd.DataFrame:
    """Return every pair of adjacent passes as a row; see ``config/codebook.toml``."""
    rows = []
    for found in pins.pairs:
        name = elicitor_name(pins.against().find(found.base).elicitor)
        row: dict[str, Any] = {"elicitor": name, "model": found.model, "previous": found.base}
        row |= {"run": found.candidate, "pair_kind": kind_of(found), "exit_code": found.exit_code}
        row["pins_that_differ"] = "; ".join(map(str, found.fields))
        row["serving_that_differs"] = "; ".join(map(str, found.cautions))
        rows.append(row | _figures(found) | {"next_step": found.next_step})
    return pd.DataFrame(rows)


@with_reference
def comparable(pins: Pins) -> Markup:
    """Return a sign for each pair of adjacent passes by model, and the counts of each verdict."""
    if not pins.pairs:
        return Markup("<p>No target was asked twice: there is no pair to compare.</p>")
    frame, lines = comparisons(pins), []
    for (elicitor, model), rows in frame.groupby(["elicitor", "model"], sort=False):
        counts = Counter(rows.pair_kind)
        said = "; ".join(f"{counts[words]} {words}" for words in SIGNS if counts[words])
        signs = "".join(rows.pair_kind.map(SIGNS))
        strip = '<div><b>{}</b> <span class="drift-trend" role="img" aria-label="{}">{}</span> '
        strip += "{}, {} pairs: {}</div>"
        lines.append(html(strip, model, said, signs, elicitor, len(rows), said))
    key = ", ".join(f"{sign} {words}" for words, sign in SIGNS.items())
    text = html('<div class="drift-chips">{}</div><p>{}.</p>', joined(lines), key)
    return with_data(text, "comparability", frame)


@with_reference
def voided(pins: Pins) -> Markup:
    """Return the pairs of which more can be said than that they show no change, newest first."""
    told: dict[tuple[str, ...], list[Comparison]] = {}
    for found in pins.pairs:
        if kind_of(found) != NO_CHANGE:
            place = (found.base, found.candidate, found.verdict, _why(found))
            told.setdefault(place, []).append(found)
    newest = sorted(told.items(), key=lambda item: item[0][1], reverse=True)
    rows = [
        {
            "Pair": html("{}<br>→ {}", pins.name(base), pins.name(candidate)),
            "Models": ", ".join(it.model for it in found),
            "Verdict, and why": html("<b>{}</b><br>{}", verdict, why),
            "Target moved": joined(map(_moved, found), "<br>"),
        }
        for (base, candidate, verdict, why), found in newest[:LISTED]
    ]
    rest = len(newest) - len(rows)
    more = f"<p>The newest {LISTED}; {rest} older ones are in the file above.</p>" if rest else ""
    empty = "None: every pair is comparable, and none shows a change."
    return joined([Markup(more), table(pd.DataFrame(rows), empty=empty)])


def _why(found: Comparison) -> str:
    """Return which pins differ, else the reason, and what the servers report otherwise."""
    why = "; ".join(map(str, found.fields)) or found.reason or ""
    if served := "; ".join(map(str, found.cautions)):
        why += f"; the servers report otherwise: {served}"
    return why if len(why) < LONGEST else f"{why[:LONGEST]}…"


def _moved(found: Comparison) -> Markup:
    """Return how far a target moved, with its interval and mid-p, unless that is withheld."""
    laid = found.attribution
    if laid is None or laid.delta is None:
        return html("withheld" if found.exit_code == VOID else "not estimable")
    limits = limits_text(laid.interval.low, laid.interval.high, sign="+")
    return html("{} ({}), mid-p {:.3g}", points(laid.delta, signed=True), limits, laid.midp or 0.0)


@dataclass(frozen=True)
class Replayed:
    """A replay of known truth, its two passes as they were read, and the verdict they got."""

    stated: Replay
    base: Pass
    candidate: Pass
    got: Comparison

    @property
    def due(self) -> bool:
        """Whether the verdict is the one that was due."""
        return self.got.verdict.startswith(self.stated.verdict)

    def counts(self, model: str) -> list[str]:
        """Return how many items `model` refused of those with a label, in either pass."""
        labels = [Counter(one.labels[model].values()) for one in (self.base, self.candidate)]
        return [f"{it['refused']} of {it['refused'] + it['answered']}" for it in labels]


def plan_of(record: Record) -> Replays:
    """Return what config/replays.toml states of a laboratory record; of another, nothing."""
    laboratory = record.panel.get("laboratory")
    return load_replays(record.root) if laboratory else Replays(batches=(), replays=())


def replayed(pins: Pins) -> list[Replayed]:
    """Return the replays of known truth whose batches the record holds, each compared now.

    Each is read against its own reference. Where the batches cannot be compared at all, the
    error's words stand for the verdict.
    """
    made = {one.body.get("name") for one in pins.passes}
    stated = plan_of(pins.record).replays
    return [_replay(pins, it) for it in stated if {it.base, it.candidate} <= made]


def _replay(pins: Pins, it: Replay) -> Replayed:
    read = pins.against(it.reference)
    base, candidate = read.find(it.base), read.find(it.candidate)
    if it.rubric:
        candidate = read.read_with(candidate, it.rubric)
    try:
        got = read.compare(base, candidate, it.model)
    except ConfigurationError as error:
        got = Comparison(base.id, candidate.id, it.model, error.what, error.exit_code)
    return Replayed(it, base, candidate, got)


@with_reference
def replays(pins: Pins) -> Markup:
    """Return each replay: its truth, the verdict that is due, the verdict that it got."""
    found = replayed(pins)
    if not found:
        return NO_REPLAYS
    rows, shown = [], []
    for replay in found:
        it, got = replay.stated, replay.got
        counts = {name: replay.counts(name) for name in (it.model, it.reference)}
        plain = "<br>".join(html("{}: {} → {}", name, *of) for name, of in counts.items())
        rows.append(
            {"replay": it.id, "replay_title": it.title, "truth": it.truth, "model": it.model}
            | {"stated_when": it.stated}
            | {"reference": it.reference, "base_batch": it.base, "candidate_batch": it.candidate}
            | {"verdict_due": it.verdict, "is_due": replay.due}
            | {"target_refused": " → ".join(counts[it.model])}
            | {"reference_refused": " → ".join(counts[it.reference])}
            | _figures(got)
        )
        mark = '<span class="drift-yes">as due</span>'
        if not replay.due:
            mark = '<b class="drift-no">not the one that was due</b>'
        moved = points_text(got.reference_delta, signed=True)
        figures = (_moved(got), moved, points_text(got.floor), got.reason or "none")
        shown.append(
            {
                "Replay": html("({}) {}", it.id, it.title),
                "Truth": html(TRUTH, **it.model_dump()),
                "Refused, plainly counted": Markup(plain),
                "Verdict": html("due: {}<br>got: {}<br>{}", it.verdict, got.verdict, Markup(mark)),
                "Figures": html(FIGURES, *figures),
            }
        )
    missed = [replay.stated.id for replay in found if not replay.due]
    said = f"{len(found) - len(missed)} of {len(found)} replays got the verdict that was due."
    if missed:
        said += f" Not so {', '.join(missed)}: there the guard does not do what was stated, or what"
        said += " was done did not do what was expected of it."
    text = html("<p>{}</p>{}", said, table(pd.DataFrame(shown)))
    return with_data(text, "replays", pd.DataFrame(rows))
