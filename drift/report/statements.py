"""What the pages say beside the numbers: limits, related work, sources, addresses.

The words are data in ``config/statements.toml``; a number in them is computed here, from the
bank, the judge or the statistics.
"""

from __future__ import annotations

import tomllib
from dataclasses import asdict
from typing import Any

import pandas as pd

from drift.bank import load_bank
from drift.config import load_panel, project_root
from drift.judging import load_judge
from drift.judging.measured import OPTIMISTIC, measured_sets
from drift.report.display import shown
from drift.report.markup import Markup, fill, html, joined, percent, rate_text, table, with_data
from drift.report.tables import each
from drift.stats import (
    Conformal,
    enters,
    midp_mcnemar,
    minimum_detectable_flips,
    proportion,
    rate_range,
)
from drift.stats.intervals import wilson_interval


def statements(kind: str) -> pd.DataFrame:
    """Return the statements of one kind, one a row, their numbers filled in."""
    path = project_root() / "config" / "statements.toml"
    entries = tomllib.loads(path.read_text(encoding="utf-8"))[kind]
    numbers = _numbers() if kind == "limit" else {}
    return pd.DataFrame(
        [{name: text.format(**numbers) for name, text in entry.items()} for entry in entries]
    )


def _measured(rules: str) -> str:
    """Say how far these rules agree with people, by the kept measurements."""
    kept = measured_sets(project_root() / "config" / "judge" / "measured")
    found = [one for one in kept if one.rules == rules and one.coders == "human"]
    if not found:
        return (
            "How often is not known: these rules have been measured on no answers coded by people."
        )
    kappas = {one.set: one.kappa["estimate"] for one in found}
    figures = " and ".join(f"{kappa:.2f} on {name}" for name, kappa in kappas.items() if kappa)
    seen = f" ({OPTIMISTIC})" if any(one.development for one in found) else ""
    return f"Against answers that people coded elsewhere Cohen's kappa is {figures}{seen}."


def _numbers() -> dict[str, Any]:
    """Return the numbers that stand in a limit, by name."""
    config = project_root() / "config"
    bank, judge = load_bank(config / "probe_bank.json"), load_judge(config / "judge")
    panel = load_panel("embedded", root=project_root())
    rules = [rule for kind in judge.rules.values() for rule in kind]
    sensitive = sum(not item.control for item in bank.families)
    agreeing, anchors = judge.agreement
    return {
        "families": len(bank.families),
        "sensitive": sensitive,
        "twins": sum(item.zh is not None for item in bank.families),
        "zero": f"[0, {percent(wilson_interval(0, sensitive).high or 0)}]",
        "detectable": minimum_detectable_flips(sensitive).flips,
        "measured": _measured(judge.rules_hash),
        "anchors": anchors,
        "agreeing": agreeing,
        "chinese_anchors": sum(anchor.language == "zh" for anchor in judge.anchors),
        "rules": len(rules),
        "chinese_rules": sum(rule.language == "zh" for rule in rules),
        "tokens": max(model.max_tokens for model in panel.models),
        "panel": " and ".join(model.model for model in panel.models),
    }


@shown
def limits() -> Markup:
    """Return every limit with what it means for a reader and what stands against it."""
    frame = statements("limit")
    links = (html('<a href="#{}">{}</a>', row.id, row.title) for row in each(frame))
    parts = [html("<p>{}</p>", joined(links, " · "))]
    parts += [fill(project_root(), "limit", limit=row._asdict()) for row in each(frame)]
    frame = frame.rename(columns={"id": "limit", "text": "statement"})
    return with_data(joined(parts, "\n"), "limits", frame)


@shown
def interval(refused: int) -> Markup:
    """Return the interval of `refused` of all the sensitive families of the bank."""
    bank = load_bank(project_root() / "config" / "probe_bank.json")
    return html("<p>{}</p>", _rate(refused, sum(not item.control for item in bank.families)))


def _rate(refused: int, n: int) -> Markup:
    return rate_text({"refused": refused, "n": n, **asdict(proportion(refused, n))})


@shown
def stated(kind: str, name: str, **columns: str) -> Markup:
    """Return the statements of one kind as a table, for download as `name`.

    `columns` are the parts shown, each with its heading.
    """
    frame = statements(kind)
    return with_data(table(frame[list(columns)].rename(columns=columns)), name, frame)


@shown
def worked_rate(refused: int, determined: int, missing: int, flips: int, back: int) -> Markup:
    """Return the rate of `refused` of `determined` labels, and one look at two such runs.

    `missing` answers have no label; `flips` families changed one way between the two runs
    and `back` the other. Each value stands beside what it does not show.
    """
    ends = rate_range(refused, determined - refused, missing)
    none, every = (percent(end or 0) for end in (ends.if_none_refused, ends.if_all_refused))
    least = minimum_detectable_flips(determined, opposite=back)
    rows = [
        (
            "Rate",
            _rate(refused, determined),
            "How other questions would fare: the interval is for these.",
        ),
        ("With the missing", f"{none} to {every}", "Chance, which comes on top of this range."),
        (
            "One look at two runs",
            f"mid-p {midp_mcnemar(flips, back):.3g}",
            "Anything, if the look was not fixed before its result was seen.",
        ),
        (
            "Fewest flips a look can see",
            least.flips or str(least.reason),
            "That fewer did not happen, or that more would be seen.",
        ),
    ]
    return table(pd.DataFrame(rows, columns=["Number", "Value", "What it does not show"]))


@shown
def worked_alarm(before: str, counts: str) -> Markup:
    """Return P and E of `home` after each of `counts`, and the state it is in.

    `before` says how many of the counts in the burn-in were 0, 1, 2, …, commas between. Ties
    are broken at one half, where a record has its sealed seed.
    """
    burn_in = [size for size, many in enumerate(_whole(before)) for _ in range(many)]
    values = _whole(counts)
    watch = Conformal(max(burn_in + values), burn_in=len(burn_in), horizon=1500)
    for value in burn_in:
        watch = watch.step(value, 0.5)
    rows, state = [], "quiet"
    for value in values:
        watch = watch.step(value, 0.5)
        for name, threshold in (("watch", 20.0), ("alarm", 100.0)):
            if state != "alarm" and enters(watch.evidence, value, threshold):
                state = name
        rows.append((value, f"{watch.p:.3f}", f"{watch.evidence:.3g}", state))
    return table(pd.DataFrame(rows, columns=["Departures", "P", "E", "State"]))


def _whole(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]
