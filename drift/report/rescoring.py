"""What another version of the judge would have read out of a laboratory record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pandas as pd

from drift.records.derive import derive_under
from drift.records.moves import compare_judges
from drift.records.store import exists, judge_folder, read_rows
from drift.report.markup import Markup, html, joined, table
from drift.report.plan import Lab, opened


@opened
def judges(lab: Lab) -> Markup:
    """Return every judge of the record, the labels that moved, and whether any entry did."""
    record, named = lab.record, dict[str, Any]()
    versions = {it["judge"]["rules"]: it["judge"] for it in record.registrations.values()}
    counts: dict[str, list[int]] = {}
    lost = Counter[str]()
    for line, _ in record.sealed:
        judge = line.body["judge"] if line.kind == "labels" else {}
        if judge.get("rules") in versions:
            named[judge["rules"]] = judge
            path = record.store.labels(judge_folder(judge), line.body["run"])
            lost[judge["rules"]] += not exists(path)
            found = len(read_rows(path)) if exists(path) else 0
            counts.setdefault(judge["rules"], []).append(found)
    registered, hashed = record.reading["judge"]["rules"], '<span class="drift-hash">{}</span>'
    rows = [
        {
            "Judge": f"{judge['id']}, version {versions[rules].get('version', 'not stated')}",
            "Rules": html(hashed, rules),
            "Fingerprint": html(hashed, judge["fingerprint"]),
            "Labels": f"{sum(counts[rules]):,}",
            "Runs": len(counts[rules]),
            "Read as registered": "yes" if rules == registered else "no, a declared rescoring",
        }
        for rules, judge in named.items()
    ]
    others = [rules for rules in named if rules != registered]
    missing = (
        "<p>Labels of {} are missing, those of {} of {} runs under rules {:.12}: nothing is held "
        "against them, and <code>drift verify</code> says which.</p>"
    )
    parts = [
        html(missing, named[rules]["id"], lost[rules], len(counts[rules]), rules)
        if lost[rules]
        else _rescored(lab, registered, rules)
        for rules in others
    ]
    alone = html("<p>No other judge has labelled this record.</p>")
    return joined([table(pd.DataFrame(rows)), *(parts or [alone])])


def _rescored(lab: Lab, registered: str, rules: str) -> Markup:
    """Return what another judge's labels move, and the entries that would differ under them."""
    record = lab.record
    found = compare_judges(record.store.folder, registered, rules, workers=1)
    moves = [move for move in found.moves if move.run in lab.numbers]
    rows = [
        {
            "Run": lab.numbers[move.run],
            "Subject": move.model,
            "Arm": move.key,
            "Registered judge": f"{move.before} by {move.before_rule}",
            "Rescored": f"{move.after} by {move.after_rule}",
        }
        for move in moves
    ]
    canonical = sum(move.key.endswith("#en-1") for move in moves)
    said = (
        "<p>Under rules {:.12} {} of {:,} labels differ; {} of them are of canonical arms, which "
    )
    said += "alone enter the alarm. {}</p>"
    under = _differing(lab, rules)
    text = html(said, rules, len(moves), found.labels, canonical, under)
    return joined([text, table(pd.DataFrame(rows), empty="No label moves.")])


def _differing(lab: Lab, rules: str) -> Markup:
    """Say whether the alarm, read over another judge's labels, enters the same states."""
    record = lab.record
    lines = [line for line, _ in record.sealed]
    read = [derived.reading for _, derived in derive_under(record.store, lines, rules)]
    if len(read) < len(record.runs):
        said = "It has labelled {} of {} runs: no second reading."
        return html(said, len(read), len(record.runs))
    here, there = (_entries(models) for models in (record.models, read[-1]["models"]))
    if here == there:
        said = "The same analysis read over its labels enters the same {} states in the same runs."
        return html(said, len(here))
    runs = {run: f"run {number}" for run, number in lab.numbers.items()}
    told = ", ".join(
        f"{' '.join(state)} in {runs.get(there.get(state, ''), 'no run')} instead of "
        f"{runs.get(here.get(state, ''), 'none')}"
        for state in sorted(here.keys() | there.keys())
        if here.get(state) != there.get(state)
    )
    said = "Read over its labels, the same analysis enters {} states, and differs in {}."
    return html(f"<b>{said}</b>", len(there), told)


def _entries(models: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """Return the run in which each state was entered, by model and process with state."""
    return {
        (model, state): run
        for model, found in models.items()
        for watch in found["alarm"]["watches"]
        for state, run in watch["entered"].items()
    }
