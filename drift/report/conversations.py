"""The ladders of a record as conversations: each item with all that was said about it.

What the elicitor wrote is told from what the script says, and both from the answers.
"""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pandas as pd

from drift.report.ladders import MISSING, SIGNS, Batches, of_batches, place
from drift.report.markup import Markup, escaped, fill, html, joined
from drift.report.tables import each
from drift.report.transcripts import AROUND, ROOM, marked

#: Characters of an answer that are shown.
SHOWN = 4_000
SCRIPTED = "<b>{} {}</b>, as scripted"
WRITTEN = "<b>{} {}</b>, written by the elicitor, a model: <q>{}</q>"
TURN = '<p class="drift-question">{}</p><div class="drift-response"><p>{}</p>{}</div>'


@of_batches
def transcripts(batches: Batches) -> Markup:
    """Return every ladder of the newest batches as a conversation, by item."""
    chosen, kept = _fitting(batches.turns)
    parts = [html("<p>{}</p>", kept)] if kept else []
    came = batches.climbs.set_index(["run", "model", "arm"]).came_to
    found: dict[str, list[pd.DataFrame]] = defaultdict(list)
    for (_, _, arm), rows in chosen.groupby(["run", "model", "arm"], sort=False):
        found[str(arm)].append(rows)
    for arm, conversations in sorted(found.items()):
        parts.append(_ladder(batches, arm, conversations, came))
    return joined(parts, "\n")


def _fitting(turns: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Return the turns of the newest batches that a page holds, and a word on those left out."""
    left, runs = ROOM, list[str]()
    for run, rows in reversed([*turns.groupby("run", sort=True)]):
        texts = [*rows.text.str[:SHOWN], *rows.said[rows.written]]
        left -= sum(len(escaped(it).encode()) for it in texts) + AROUND * len(rows)
        if left < 0 and runs:
            break
        runs.append(str(run))
    rest = turns.run.nunique() - len(runs)
    said = f"The newest {len(runs)} batches; the record holds {rest} older ones." if rest else ""
    return turns[turns.run.isin(runs)], said


def _ladder(
    batches: Batches, arm: str, conversations: list[pd.DataFrame], came: pd.Series
) -> Markup:
    (newest,) = (it for it, _ in batches.judged if it["run"] == conversations[-1].run.iloc[0])
    ladder = batches.corpus(newest["corpus"]["sha256"]).by_id[arm]
    folded = []
    for rows in conversations:
        first = rows.iloc[0]
        signs = " ".join(SIGNS[it] for it in rows.outcome)
        said = f"{', '.join(rows.outcome)}: {came[first.run, first.model, arm]}"
        strip = '<span class="drift-trend" role="img" aria-label="{}">{}</span> {}'
        line = html(strip, said, signs, came[first.run, first.model, arm])
        turns = joined((_turn(row) for row in each(rows)), "\n")
        head = "<details><summary>{}, {}: {}</summary>{}</details>"
        folded.append(html(head, first.model, first.batch, line, turns))
    asked = (html("<li>{}</li>", turn) for turn in ladder.turns)
    points = "; ".join("/".join(group) for group in ladder.points)
    script = (
        "<details><summary>What the script says, and the points of an answer</summary><ol>{}</ol>"
        '<p class="drift-small">Points, by beginnings of words: {}</p></details>'
    )
    return fill(
        batches.record.root,
        "family",
        anchor=place(arm),
        name=arm,
        control=Markup(' <span class="drift-control">control</span>') if ladder.control else "",
        question=ladder.turns[0],
        chips="",
        history=html(script, joined(asked), points),
        count=sum(len(rows) for rows in conversations),
        responses=joined(folded, "\n"),
    )


def _turn(row: Any) -> Markup:
    """Return one turn: the person's words, whose they are, and the answer with what decided."""
    who = html(WRITTEN if row.written else SCRIPTED, row.turn, row.rung, row.said or "nothing")
    facts = [f"rule {row.rule}" if row.rule else "", row.status if row.status != "ok" else ""]
    if row.label == "answered":
        facts.insert(0, f"points {row.points:.0f}")
    signed = f"{SIGNS[row.outcome]} {row.outcome}"
    answer = html("<pre>\n{}</pre>", marked(SimpleNamespace(text=row.text, span=row.span), SHOWN))
    said = answer if row.status != MISSING else ""
    return html(TURN, who, " · ".join(filter(None, [signed, *facts])), said)
