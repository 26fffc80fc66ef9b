"""The judge's measured error on the pages: figures by coded set, and rates corrected for it.

What is shown was measured with the present rules, or is not shown. Raw rates come first; a
corrected rate is computed here, from the reading and the kept counts, and enters no reading.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from drift.judging import load_judge
from drift.judging.measure import CODED, JUDGED, MEASURES
from drift.judging.measured import OPTIMISTIC, Measured, measured_sets
from drift.records.reading import canonical_rate
from drift.records.run import load_run
from drift.report.display import piece
from drift.report.markup import Markup, html, joined, percent, rate_text, table, with_data
from drift.report.tables import Record
from drift.stats import Estimate, corrected_rate
from drift.stats.agreement import LEAST_PROMPTS, LEAST_ROWS

LIMITS = ("estimate", "low", "high")
NONE = Markup("<p>The judge has been measured on no coded set: its error is not known.</p>")
NOTHING = "Nothing was measured with the present rules."
ASSUMED = "Each corrected rate assumes our answers are misjudged as that set's are."
STALE = (
    "Measured with other rules ({:.12}) than {} ({:.12}), so not shown: {}. "
    "`drift judge evaluate` measures again."
)
WHOSE = {"human": "human labels", "mixed": "not human"}
WHO = {
    "human": "human labels",
    "mixed": "{people} of {rows} rows by people, the rest by {others}: not human",
    "machine": "by {others}: not human",
}


def coders(found: Measured) -> str:
    """Return in words who coded a set."""
    others = ", ".join(who for who in found.label_by if not who.startswith("human"))
    return WHO[found.coders].format(people=found.by_people, rows=found.rows, others=others)


def _sets(root: Path, rules: str, whose: str) -> tuple[list[Measured], Markup]:
    """Return the measurements made with these rules, and a sentence about the others."""
    every = measured_sets(root / "config" / "judge" / "measured")
    fresh = [one for one in every if one.rules == rules]
    stale = [one for one in every if one.rules != rules]
    if not every:
        return [], NONE
    if not stale:
        return fresh, Markup("")
    names = ", ".join(one.set for one in stale)
    said = STALE.format(stale[0].rules, whose, rules, names).split("`")
    return fresh, html("<p>{}<code>{}</code>{}</p>", *said)


def _present(record: Record) -> tuple[list[Measured], Markup]:
    rules = load_judge(record.root / "config" / "judge").rules_hash
    return _sets(record.root, rules, "those in config/judge")


def _figure(one: Mapping[str, Any]) -> Markup:
    if one["estimate"] is None:
        return html("not estimable: {}", one["reason"])
    return html("<b>{:.3f}</b> [{:.3f}, {:.3f}]", *(one[name] for name in LIMITS))


def _share(one: Mapping[str, Any]) -> Markup:
    if one["estimate"] is None:
        return html("not estimable: {}", one["reason"])
    share, low, high = (100 * one[name] for name in LIMITS)
    return html("<b>{}</b> [{:.1f}, {:.1f}]", percent(share / 100), low, high)


def _figures(group: Mapping[str, Any]) -> dict[str, Markup]:
    return {name.capitalize(): _figure(group[name]) for name in MEASURES}


@piece
def sets(record: Record) -> Markup:
    """Return the judge's agreement with each coded set, and who coded it."""
    found, stale = _present(record)
    about = "<li><b>{}</b>: {}. Labels: {}. Licence: {}. {}</li>"
    named = [
        html(about, one.set, one.title, coders(one), one.licence or "not stated", _seen(one))
        for one in found
    ]
    shown = [
        {"Coded set": one.set, "Labels": one.coders, "Rows": one.rows}
        | _figures(one.model_dump())
        | {"Determined": "none" if one.coverage is None else percent(one.coverage)}
        for one in found
    ]
    text = html("<ul>{}</ul>{}", joined(named), table(pd.DataFrame(shown), empty=NOTHING))
    return joined([stale, with_data(text, "judge-measured", _long(found))])


def _seen(one: Measured) -> Markup:
    """Say of a set what makes its figures optimistic."""
    return html("<b>{}.</b>", one.note.capitalize()) if one.note else Markup("")


def _long(found: list[Measured]) -> pd.DataFrame:
    """Return every figure of every group, one a row."""
    rows: list[dict[str, Any]] = []
    for one in found:
        for part, group, of in _groups(one):
            about: dict[str, Any] = {
                "coded_set": one.set,
                "coders": one.coders,
                "licence": one.licence,
            }
            about |= {"development": one.development, "part": part, "part_value": group}
            about |= {"coded_rows": of["rows"], "with_label": of["coverage"]}
            rows += [
                about
                | {"figure": name, "figure_value": of[name]["estimate"]}
                | {"figure_low": of[name]["low"], "figure_high": of[name]["high"]}
                | {"reason": of[name].get("reason", "")}
                for name in MEASURES
            ]
    return pd.DataFrame(rows)


def _groups(one: Measured) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    yield "all", "", one.model_dump()
    for part, groups in one.groups.items():
        for value, group in groups.items():
            yield part, value, group


@piece
def groups(record: Record) -> Markup:
    """Return the figures by model and language; groups that are too small are counted."""
    found, _ = _present(record)
    rows, small = [], []
    for one in found:
        few = 0
        for part, value, group in _groups(one):
            if part == "all":
                continue
            if "reason" in group["accuracy"]:
                few += 1
                continue
            about = {"Coded set": one.set, "Group": f"{part} {value}", "Rows": group["rows"]}
            rows.append(about | _figures(group))
        if few:
            small.append(f"{one.set}: {few}")
    said = html(
        "<p>Groups that are not estimable, with fewer than {} rows or {} questions, or one coded "
        "label only: {}.</p>", LEAST_ROWS, LEAST_PROMPTS, "; ".join(small) or "none",
    )  # fmt: skip
    return joined([table(pd.DataFrame(rows), empty=NOTHING), said])


@piece
def confusions(record: Record) -> Markup:
    """Return what the judge says of rows by their coded label, and the rules where they differ."""
    found, _ = _present(record)
    if not found:
        return html("<p>{}</p>", NOTHING)
    parts, tables, wrong = list[Markup](), [], []
    for one in found:
        whole = {**one.confusion, **one.apart}
        tables += [
            {"coded_set": one.set, "coded": coded, "judged": said, "coded_rows": n}
            | {"in_figures": coded in CODED}
            for coded, row in whole.items()
            for said, n in row.items()
        ]
        shown = [
            {"Coded": coded if coded in CODED else f"{coded}, in no figure"}
            | {f"Judged {said}": row[said] for said in JUDGED}
            for coded, row in whole.items()
        ]
        differ = pd.DataFrame(one.disagreements)
        wrong += [{"coded_set": one.set} | row for row in one.disagreements]
        differ.columns = [str(name).capitalize() for name in differ.columns]
        fold = "<h3>{}</h3><p>{}. {}</p>{}"
        fold += "<details><summary>{} disagreements by rule</summary>{}</details>"
        total = sum(row["rows"] for row in one.disagreements)
        parts.append(
            html(fold, one.set, coders(one).capitalize(), _seen(one),
                 table(pd.DataFrame(shown)), total, table(differ))
        )  # fmt: skip
    text = with_data(joined(parts), "judge-confusion", pd.DataFrame(tables))
    behind = pd.DataFrame(wrong).rename(columns={"rows": "coded_rows"})
    return with_data(text, "judge-disagreements", behind)


@piece
def corrected(record: Record) -> Markup:
    """Return each model's canonical rate as it is, then corrected for the error on each set.

    Of sets whose rows no person coded nothing is shown. p is a share of determined labels, so
    sensitivity and specificity are shares of the rows on which the judge gave a word. A record
    that was rescored with the rules that were measured is corrected by its rescored labels.
    """
    named = record.reading["judge"]["rules"]
    every, stale = _sets(record.root, named, "the judge of this record")
    rates = {key: model["canonical"] for key, model in record.models.items()}
    head, present = "", load_judge(record.root / "config" / "judge").rules_hash
    if not every and (rescored := _rescored(record, present)):
        every, stale = _sets(record.root, present, "those in config/judge")
        rates, head = rescored, f"Rescored with the measured rules ({present:.12})"
    found = [one for one in every if one.coders != "machine"]
    rows, shown = [], []
    for key, model in record.models.items():
        line: dict[str, object] = {
            "Model": key,
            "Raw canonical rate": rate_text(model["canonical"]),
        }
        rate = rates[key]
        line |= {head: rate_text(rate)} if head else {}
        for one in found:
            fixed = _corrected(rate, one)
            line[f"Corrected by {one.set} ({WHOSE[one.coders]})"] = _share(vars(fixed))
            known = {name: rate[name] for name in ("refused", "n", "estimate", "low", "high")}
            rows.append(
                {"model": key, "run": record.reading["run"]} | known
                | {"coded_set": one.set, "coders": one.coders, "development": one.development}
                | {"corrected": fixed.estimate, "corrected_low": fixed.low}
                | {"corrected_high": fixed.high, "reason": fixed.reason or rate["reason"] or ""}
            )  # fmt: skip
        shown.append(line)
    text = table(pd.DataFrame(shown))
    if not found:
        return joined([text, stale])
    said = html("<p><b>{}</b></p>", ASSUMED)
    behind = html("<p>What each column is corrected with:</p>{}", table(_errors(found)))
    return with_data(joined([said, text, behind, stale]), "rates-corrected", pd.DataFrame(rows))


def _rescored(record: Record, rules: str) -> dict[str, dict[str, Any]]:
    """Return each model's canonical rate by a sealed rescoring of the run that is shown, if any."""
    run = record.reading["run"]
    bodies = [line.body for line, _ in record.sealed if line.body.get("run") == run]
    labels = [it for it in bodies if it["kind"] == "labels" and it["judge"]["rules"] == rules]
    if not labels or not record.bank:
        return {}
    sealed = next(body for body in bodies if body["kind"] == "run")
    models = load_run(record.store, sealed, labels[-1]).models
    return {key: canonical_rate(models[key].outcomes, record.bank) for key in record.models}


def _corrected(rate: Mapping[str, Any], one: Measured) -> Estimate:
    patterns, repeats = one.determined("en")
    if not patterns:
        return Estimate(None, None, None, "the set holds no English row")
    options = {"seed": one.seed, "resamples": one.resamples}
    return corrected_rate(rate["refused"], rate["n"], patterns, repeats, **options)


def _errors(found: list[Measured]) -> pd.DataFrame:
    """Return the sensitivity and specificity of the judge on each set, among determined labels."""
    rows = []
    for one in found:
        patterns, repeats = one.determined("en")
        counts = zip(*patterns, strict=True) if patterns else [()] * 4
        rr, ra, ar, aa = (
            sum(n * times for n, times in zip(column, repeats, strict=True)) for column in counts
        )
        rows.append(
            {
                "Coded set": one.set,
                "What it is": f"{one.title}. {coders(one).capitalize()}.",
                "Coded refused, judged so": f"{rr} of {rr + ra}",
                "Coded answered, judged so": f"{aa} of {aa + ar}",
                "In view of the rules": OPTIMISTIC if one.development else "no",
            }
        )
    return pd.DataFrame(rows)
