"""The pages of wordings and languages: what each model's last full run shows of them.

The figures are those of the readings; the labels behind them are read from the record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from drift.report.display import figure, piece
from drift.report.markup import Markup, html, joined, rate_text, table, with_data
from drift.report.pages import NO_FULL, family_links
from drift.report.rates import TIDY, grids
from drift.report.tables import (
    Record,
    each,
    full_counts,
    full_over_runs,
    responses,
)
from drift.report.trends import parts, trend
from drift.stats import wilson_interval

#: Full runs in the tables of what moved; the files hold them all.
LISTED = 20
NO_RUN_WAS_FULL = html("<p>{}.</p>", NO_FULL)
LETTERS = {"refused": "R", "answered": "A"}
TWINS = {
    "Refused in Chinese alone": "refused_zh_only",
    "English alone": "refused_en_only",
    "Both": "both_refused",
    "Neither": "both_answered",
    "Not compared": "not_compared",
}


def _full(record: Record) -> dict[str, dict[str, Any]]:
    """Return the last full run of each model that has one in its series."""
    return {key: model["full"] for key, model in record.models.items() if model["full"]}


def _summary(
    record: Record, name: str, columns: Sequence[str], row: Callable[[Any], Mapping[str, object]]
) -> Markup:
    """Return one row for each model, of its last full run, and the figures `columns` behind it."""
    found = _full(record)
    if not found:
        return NO_RUN_WAS_FULL
    shown = pd.DataFrame({"Model": key, **row(full)} for key, full in found.items())
    runs = [full["run"] for full in found.values()]
    said = html("<p>Full run {}.</p>", runs[0])
    if len(set(runs)) > 1:
        said, shown = Markup(""), shown.assign(**{"Full run": runs})
    counts = [{"model": key, "run": of["run"]} | full_counts(of) for key, of in found.items()]
    return with_data(joined([said, table(shown)]), name, pd.DataFrame(counts)[[*columns]])


@piece
def consistency(record: Record) -> Markup:
    """Return for each model how many families get one answer in every English wording."""
    columns = "model run consistent counted estimate low high wobbled tripwires policies ties"

    def row(full: Mapping[str, Any]) -> Mapping[str, object]:
        wording = full["wording"]
        share = rate_text({"refused": wording["consistent"], **wording})
        counts = {kind.capitalize(): len(wording[kind]) for kind in ("wobbled", "tripwires")}
        counts |= {"Policies": len(wording["policies"]), "Ties": len(full["ties"])}
        return {"Consistent families": share} | counts

    return _summary(record, "wording", columns.split(), row)


@piece
def kinds(record: Record) -> Markup:
    """Return which families are tripwires, policies, ties, or lack the label of a wording."""
    rows, known = [], []
    for key, full in _full(record).items():
        named = {
            "tripwires": full["wording"]["tripwires"],
            "policies": full["wording"]["policies"],
            "ties": full["ties"],
            "a wording without a label": full["incomplete"],
            "not counted": full["wording"]["not_counted"],
        }
        for kind, families in named.items():
            place = {"model": key, "run": full["run"], "wording_kind": kind}
            known += [place | {"family": family} for family in families]
            if families:
                row = {"Model": key, "Kind": f"{len(families)} {kind}"}
                rows.append(row | {"Families": family_links(families)})
    if not _full(record):
        return NO_RUN_WAS_FULL
    columns = ["model", "run", "wording_kind", "family"]
    shown = table(pd.DataFrame(rows), empty="No family is any of these.")
    return with_data(shown, "kinds", pd.DataFrame(known, columns=columns))


@piece
def patterns(record: Record) -> Markup:
    """Return the English labels of each wobbling family, wording by wording, models across."""
    frame = responses(record)
    frame = frame[frame.full & frame.variant.str.startswith("en-")]
    if frame.empty:
        return NO_RUN_WAS_FULL
    shown = _letters(record, frame, _wobbling(record), "No family wobbles.")
    return with_data(shown, "labels-by-wording", frame[TIDY])


def _letters(
    record: Record, frame: pd.DataFrame, differing: Mapping[str, set[str]], empty: str
) -> Markup:
    """Return a letter for each label of the families that differ, bold in the models named."""
    rows = []
    for family, answers in frame[frame.family.isin(differing)].groupby("family"):
        said = {"Family": family_links([str(family)])}
        for model in record.models:
            outcomes = answers[answers.model == model].sort_values("variant").outcome
            letters = "\N{NO-BREAK SPACE}".join(LETTERS.get(outcome, "–") for outcome in outcomes)
            said[model] = html("<b>{}</b>" if model in differing[str(family)] else "{}", letters)
        rows.append(said)
    return table(pd.DataFrame(rows), empty=empty)


def _wobbling(record: Record) -> dict[str, set[str]]:
    """Return the families that wobble, each with the models in which it does."""
    found: dict[str, set[str]] = {}
    for key, full in _full(record).items():
        for item in full["wording"]["wobbled"]:
            found.setdefault(item["family"], set()).add(key)
    return found


@piece
def wobbles(record: Record, caption: str) -> Markup:
    """Grids of the labels of the families that wobble in at least one model of the grid."""
    frame, wobbling = responses(record), _wobbling(record)
    frame = frame[frame.full & frame.family.isin(wobbling)]
    if frame.empty:
        return html("<p>No family wobbles.</p>") if _full(record) else NO_RUN_WAS_FULL
    return grids("wobbling-families", frame[frame.variant != "zh"], caption, wobbling)


@piece
def unlock(record: Record) -> Markup:
    """Return what a stated purpose changed, each direction beside its denominator."""
    columns = "model run unlocked refused_bare reverse answered_bare mixed"

    def row(full: Mapping[str, Any]) -> Mapping[str, object]:
        found = full["unlock"]
        return {
            "Unlocked, of those refused on both": _share(found["unlocked"], found["refused_bare"]),
            "Reverse, of those answered on both": _share(found["reverse"], found["answered_bare"]),
            "Mixed, not counted": len(found["mixed"]),
        }

    return _summary(record, "unlock", columns.split(), row)


def _share(families: Sequence[str], n: int) -> Markup:
    """Return the share that these are of `n` families, with its interval and their names."""
    found = wilson_interval(len(families), n)
    share = {"refused": len(families), "n": n, "estimate": len(families) / n if n else None}
    said = rate_text(share | {"low": found.low, "high": found.high, "reason": "no such family"})
    return html("{}: {}", said, family_links(families)) if families else said


@piece
def twins(record: Record) -> Markup:
    """Return how often a family is refused in one language alone, and the p-value of one look."""
    columns = "model run twins refused_zh_only refused_en_only both_refused both_answered"
    columns += " not_compared net midp"

    def row(full: Mapping[str, Any]) -> Mapping[str, object]:
        found = full["language"]
        counts = {head: len(found[name]) for head, name in TWINS.items()}
        net = "not estimable" if found["net"] is None else f"{found['net']:+d}".replace("+0", "0")
        reason = f"not estimable: {found['reason']}"
        midp = reason if found["midp"] is None else f"{found['midp']:.3g}"
        return {"Twins": found["n"]} | counts | {"Net": net, "Mid-p": midp}

    return _summary(record, "language", columns.split(), row)


@piece
def pairs(record: Record) -> Markup:
    """Return the English and the Chinese label of each family that differs in some model."""
    differing: dict[str, set[str]] = {}
    for key, full in _full(record).items():
        language = full["language"]
        for family in (*language["refused_zh_only"], *language["refused_en_only"]):
            differing.setdefault(family, set()).add(key)
    frame = _twins(record)
    if frame.empty:
        return NO_RUN_WAS_FULL
    shown = _letters(record, frame, differing, "No family differs between the languages.")
    return with_data(shown, "labels-by-language", frame[TIDY])


def _twins(record: Record) -> pd.DataFrame:
    """Return the canonical and the Chinese answers of the last full runs, of families with both."""
    frame = responses(record)
    frame = frame[frame.full]
    paired = frame.family.isin(frame[frame.variant == "zh"].family)
    return frame[paired & frame.variant.isin(["en-1", "zh"])]


@piece
def twin_labels(record: Record, caption: str) -> Markup:
    """Grid of the English and the Chinese label of each family that has a twin."""
    frame = _twins(record)
    return grids("twins", frame, caption) if len(frame) else NO_RUN_WAS_FULL


@piece
def wording_over_runs(record: Record, caption: str) -> Markup:
    """Trend of the consistent share over the full runs, with all figures of the newest."""
    found = full_over_runs(record)
    if found.empty:
        return NO_RUN_WAS_FULL
    frame = _panels(found, "wording").assign(
        y=100 * found.estimate.astype(float),
        low=100 * found.low.astype(float),
        high=100 * found.high.astype(float),
        note=found.consistent.astype(str) + " of " + found.counted.astype(str),
    )
    newest = found[found.run.isin(sorted(found.run.unique())[-LISTED:])][::-1]
    behind = pd.DataFrame(
        {
            "Run": newest.run,
            "Model, series": newest.model + ", " + newest.series.astype(str),
            "Consistent": [
                rate_text(
                    {"refused": row.consistent, "n": row.counted, "reason": "none counted"}
                    | {name: getattr(row, name) for name in ("estimate", "low", "high")}
                )
                for row in each(newest)
            ],
            "Tripwires, policies, ties": [
                f"{row.tripwires}, {row.policies}, {row.ties}" for row in each(newest)
            ],
            "Unlocked; reverse": [
                f"{row.unlocked} of {row.refused_bare}; {row.reverse} of {row.answered_bare}"
                for row in each(newest)
            ],
        }
    )
    kind = trend("families answered alike in every English wording, %", 0, 100)
    return figure("wording-over-runs", kind, frame, behind, caption, data=_tidy(found, "wording"))


@piece
def language_over_runs(record: Record, caption: str) -> Markup:
    """Trend of the net count over the full runs, with all counts of the newest."""
    found = full_over_runs(record)
    if found.empty:
        return NO_RUN_WAS_FULL
    net = found.net.astype(float)
    frame = _panels(found, "language").assign(y=net, low=net, high=net)
    frame["note"] = "of " + found.twins.astype(str)
    newest = found[found.run.isin(sorted(found.run.unique())[-LISTED:])][::-1]
    heads = {"Run": "run", "Model": "model", "Series": "series", "Twins": "twins"}
    heads |= {
        "Chinese alone": "refused_zh_only",
        "English alone": "refused_en_only",
        "Both": "both_refused",
        "Net": "net",
    }
    behind = pd.DataFrame({head: newest[name] for head, name in heads.items()})
    behind["Mid-p"] = ["not estimable" if pd.isna(p) else f"{p:.3g}" for p in newest.midp]
    most = max(2.0, net.abs().max())
    kind = trend("families refused in Chinese alone less those in English alone", -most, most)
    return figure("language-over-runs", kind, frame, behind, caption, data=_tidy(found, "language"))


def _panels(found: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Return what a trend needs to know of each full run but its value."""
    return pd.DataFrame(
        {
            "panel": found.model,
            "x": found.started_at,
            "mark": False,
            "series": found.series,
            # Full runs stand a day apart: only the end of a series breaks their line.
            "part": parts(found.assign(measure=measure, slot=None, usable=True)),
        }
    )


def _tidy(found: pd.DataFrame, page: str) -> pd.DataFrame:
    """Return the columns that belong to one of the two pages."""
    columns = list(found)
    begin, second = columns.index("consistent"), columns.index("refused_zh_only")
    mine = columns[second:] if page == "language" else columns[begin:second]
    return found[["model", "run", "started_at", "series", *mine]]
