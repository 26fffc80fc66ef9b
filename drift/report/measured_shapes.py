"""The shape coder's measured error on sets that others labelled, as kept in ``config/shapes``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from drift.judging.shape_measure import SAID, MeasuredShapes, measured_shapes
from drift.records.shapes import load_coder
from drift.report.markup import Markup, coded, html, joined, table, with_data
from drift.report.shaped import Shaped, of_shapes
from drift.report.tables import each

NONE = Markup(
    "<p>The shape coder has been measured on no set: how often it is wrong is not known.</p>"
)
#: The set that neither rules nor judge were made for.
HELD_OUT = "held_out"
STALE = "Measured with other rules ({:.12}) than those in config/shapes ({:.12}), so not shown: {}."


@of_shapes
def sets(shaped: Shaped) -> Markup:
    """Return the coder's precision and recall by shape on each set, and what a set cannot show."""
    root = shaped.record.root
    every = measured_shapes(root / "config" / "shapes" / "measured")
    if not every:
        return NONE
    present = load_coder(root).rules_hash
    fresh = [one for one in every if one.rules == present]
    stale = [one for one in every if one.rules != present]
    parts = [_set(one) for one in fresh]
    if stale:
        names = ", ".join(one.set for one in stale)
        parts.append(html(f"<p>{STALE}</p>", stale[0].rules, present, names))
    frame = pd.DataFrame([row for one in fresh for row in _rows(one)])
    counts = pd.DataFrame([row for one in fresh for row in _counts(one)])
    text = joined(parts)
    if fresh:
        text = with_data(with_data(text, "shape-measured", frame), "shape-confusion", counts)
    return text


@of_shapes
def let_through(shaped: Shaped) -> Markup:
    """Return which refusals the refusal judge lets through to the coder at all, by shape."""
    every = measured_shapes(shaped.record.root / "config" / "shapes" / "measured")
    cut = _cut(shaped)
    one = next((it for it in every if it.set == HELD_OUT), None)
    if one is None:
        return html("<p>{} Which shapes the refusal judge misses is not measured.</p>", cut)
    rates = sorted(one.words.items(), key=lambda it: it[1]["refused"] / max(it[1]["rows"], 1))
    shares = joined(
        (html("{} {} of {}", word, of["refused"], of["rows"]) for word, of in rates), ", "
    )
    other = one.rules != shaped.newest["judge"]["rules"]
    version = ", with another version of the rules than these labels" if other else ""
    return html(
        "<p><b>What is not here.</b> A refusal has a shape only if the refusal judge calls it one. "
        "Of texts written from the manual alone (set {}{}) it let through: {}. Shares of the first "
        "are too small here, and by how much in this record is not known. {}</p>",
        *(one.set, version, shares, cut),
    )


def _cut(shaped: Shaped) -> Markup:
    """Say how many refusals were cut, which lose what stands late."""
    cut = sum(
        shaped.record.stored(row.run).answers[row.model, row.key].get("status") == "truncated"
        for row in each(shaped.coded)
    )
    said = "{} of {} refusals were cut at the limit of tokens; a cut refusal loses a late offer, "
    said += "and an answer cut before it turns to a no is none."
    return html(said, cut, len(shaped.coded))


def held_out(shaped: Shaped) -> MeasuredShapes | None:
    """Return the measurement on texts that the coder was not made for, if of the labels' rules."""
    every = measured_shapes(shaped.record.root / "config" / "shapes" / "measured")
    rules = shaped.newest["judge"]["rules"]
    return next((it for it in every if it.set == HELD_OUT and it.rules == rules), None)


def _set(one: MeasuredShapes) -> Markup:
    """Return one set: whose it is, what it cannot show, its figures and its confusions."""
    limits = joined(html("<li>{}</li>", coded(text)) for text in one.limits)
    shapes = [
        {"Coded as": shape, "Rows": of["rows"], "Right": of["right"]}
        | {"Precision": _share(of["precision"])}
        for shape, of in one.shapes.items()
    ]
    words = [
        {"Word of the set": word, "Stands for": " or ".join(one.admits[word])}
        | {"Rows": of["rows"], "Called refused": of["refused"], "Right": of["right"]}
        | {"Recall": _share(of["recall"]), "Recall, if refused": _share(of["recall_if_refused"])}
        for word, of in one.words.items()
    ]
    confused = [
        {"Word of the set": word} | {name: str(row.get(name, 0) or "·") for name in SAID}
        for word, row in one.confusion.items()
    ]
    none = "This set has no word for a shape."
    return html(
        "<h3>{}</h3><p>{}. Licence: {}.</p><ul>{}</ul>{}{}"
        "<details><summary>Every word of the set, as coded</summary>{}</details>",
        *(one.set, one.title, one.licence, limits),
        *(table(pd.DataFrame(words), empty=none), table(pd.DataFrame(shapes), empty="")),
        table(pd.DataFrame(confused)),
    )


def _share(of: Mapping[str, Any]) -> Markup:
    if of["estimate"] is None:
        return html("not estimable: {}", of.get("reason", ""))
    said = "[{low:.2f},\N{NO-BREAK SPACE}{high:.2f}]"
    return html(f"<b>{{estimate:.2f}}</b>\N{NO-BREAK SPACE}{said}", **of)


def _rows(one: MeasuredShapes) -> Iterator[dict[str, Any]]:
    """Yield every figure of a set, one a row."""
    for part, groups in (("shape", one.shapes), ("word", one.words)):
        for value, of in groups.items():
            about = {"coded_set": one.set, "licence": one.licence, "part": part}
            about |= {"part_value": value, "coded_rows": of["rows"]}
            for name in ("precision", "recall", "recall_if_refused"):
                if figure := of.get(name):
                    limits = {"figure_low": figure["low"], "figure_high": figure["high"]}
                    yield about | {"figure": name, "figure_value": figure["estimate"]} | limits


def _counts(one: MeasuredShapes) -> Iterator[dict[str, Any]]:
    for word, row in one.confusion.items():
        for said, n in row.items():
            yield {"coded_set": one.set, "coded": word, "shape": said, "coded_rows": n}
