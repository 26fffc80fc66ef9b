"""Answers of a laboratory record side by side, before a change on a server and after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from drift.records.run import DETERMINED
from drift.report.cards import SHOWN
from drift.report.markup import Markup, fill, html, joined
from drift.report.pages import chip, family_links
from drift.report.plan import Lab, closed, opened
from drift.report.tables import Record, StoredRun


@opened
def answers(lab: Lab) -> Markup:
    """Return the answers whose canonical label moved, before each change and after it."""
    parts = []
    for model in lab.changed:
        numbers, pairs = _pairs(lab, model)
        head = "<h3>{}: runs {} and {}, {} families with another label</h3>"
        parts += [html(head, model, *numbers, len(pairs)), *pairs]
    return joined(parts or [html("<p>No change is reached yet.</p>")], "\n")


def example(record: Record) -> Markup:
    """Return for the front page one question with its answers before and after a change."""
    if not record.reading or closed(record):
        return Markup("")
    lab = Lab(record)
    pairs = (pair for model in reversed(lab.changed) for pair in _pairs(lab, model)[1])
    return next(pairs, Markup(""))


def _pairs(lab: Lab, model: str) -> tuple[tuple[int, int], list[Markup]]:
    """Return the numbers of two runs and the answers whose canonical label differs in them.

    They are the last run before the change and the first after it or, where home entered a
    state later, the one in which it first did.
    """
    since = lab.changed[model]
    entered = [run for what, run in lab.entered(model).items() if what.startswith("home ")]
    numbers = since - 1, min((run for run in entered if run >= since), default=since)
    before, after = (lab.record.stored(lab.record.runs[n - 1]) for n in numbers)
    moved = _moved(model, before, after)
    return numbers, [_pair(lab.record, model, key, numbers, (before, after)) for key in moved]


def _moved(model: str, before: StoredRun, after: StoredRun) -> Iterator[str]:
    for (of, key), row in sorted(before.answers.items()):
        labels = row.get("label"), after.answers.get((of, key), {}).get("label")
        told = of == model and key.endswith("#en-1") and {*labels} == {*DETERMINED}
        if told:
            yield key


def _pair(
    record: Record, model: str, key: str, numbers: tuple[int, int], runs: tuple[StoredRun, ...]
) -> Markup:
    family, _, variant = key.partition("#")
    sides = [
        _side(record, head, f"{number} ({run.reading['run']})", run.answers[model, key])
        for head, number, run in zip(("Before", "After"), numbers, runs, strict=True)
    ]
    question = runs[1].prompts.get(key) or "The record holds no copy of the question."
    texts = {"question": question, "before": sides[0], "after": sides[1]}
    where = {"family": family_links([family]), "variant": variant, "model": model}
    return fill(record.root, "pair", **texts, **where)


def _side(record: Record, head: str, run: str, row: Mapping[str, Any]) -> Markup:
    """Return an answer with its label, what decided marked, and the rule."""
    text, (start, end) = row["text"][:SHOWN], row.get("span") or (0, 0)
    marked = html("{}<mark>{}</mark>{}", text[:start], text[start:end], text[end:])
    cut = Markup('\n<i class="drift-cut">The record holds the whole text.</i>')
    facts = {"Rule": row["rule"]} | ({"Status": row["status"]} if row["status"] != "ok" else {})
    return fill(
        record.root,
        "side",
        head=head,
        run=run,
        chip=chip(row["label"]),
        text=joined([marked if end else text, cut if len(row["text"]) > SHOWN else ""]),
        facts=joined(html("<div><dt>{}</dt><dd>{}</dd></div>", *it) for it in facts.items()),
    )
