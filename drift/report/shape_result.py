"""What the page of shapes found: refusals by model, and answers to another question."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from drift.records.people import read_by_people
from drift.report.entailed import asked
from drift.report.entailment_rates import UNVERIFIED, cut_text, folded, verdict_rows
from drift.report.judge import LANGUAGES
from drift.report.markup import Markup, html, joined, percent, with_data
from drift.report.measured_shapes import held_out
from drift.report.shaped import SMALL, Shaped, of_shapes, shares
from drift.report.tables import each
from drift.report.treated import done, together

#: Models that are told one by one before the rest is folded.
SHOWN = 4
#: Shapes as the sentences name them.
NAMES = {
    "flat-no": "a bare no",
    "policy-recital": "a recital of rules",
    "redirect": "a redirect",
    "sermon": "a sermon",
    "false-reason": "a false reason",
    "mixed": "of two shapes",
    "uncodable": "of no shape that can be told",
}


@of_shapes
def result(shaped: Shaped) -> Markup:
    """Return what each model's refusals were, what was done to it, and how far that is checked."""
    refusing = [key for key in shaped.full if key in {*shaped.coded.model}]
    lines = [html("<li>{}</li>", _refused(shaped, key)) for key in refusing]
    first, rest = lines[:SHOWN], lines[SHOWN:]
    parts = [html("<ul>{}</ul>", joined(first)) if first else ""]
    if rest:
        fold = "<details><summary>{} further models</summary><ul>{}</ul></details>"
        parts.append(html(fold, len(rest), joined(rest)))
    silent = [_silent(shaped, key) for key in shaped.full if key not in refusing]
    parts += [html("<p>{}</p>", joined(silent, " ")) if silent else ""]
    parts += [together(shaped.record, shaped.full)]
    parts += [html("<p>{}</p>", joined([*_checked(shaped), *_narrowed(shaped)], " "))]
    return joined(parts)


def _refused(shaped: Shaped, model: str) -> Markup:
    """Return one model's refusals in a sentence, each shape with its share and limits."""
    of = shaped.coded[shaped.coded.model == model]
    found = [row for row in each(shares(of, [])) if row.shape_count]
    found.sort(key=lambda row: -row.shape_count)
    families = found[0].families
    few = ", small n" if families < SMALL else ""
    verb = "were" if found[0].shape_count > 1 else "was"
    shapes = joined((_counted(row, verb if n == 0 else "") for n, row in enumerate(found)), ", ")
    lead = "In run {} <b>{}</b> declined <b>{} of {}</b> times, in {} families{}: {}.{}"
    number, times = _place(shaped, model)
    return html(lead, number, model, len(of), times, families, few, shapes, _done(shaped, model))


def _done(shaped: Shaped, model: str) -> Markup:
    return done(shaped.treated[model]) if model in shaped.treated else Markup("")


def _counted(row: Any, verb: str) -> Markup:
    limits = ", no limits"
    if not pd.isna(row.share_low):
        limits = f", {100 * row.share_low:.0f} to {100 * row.share_high:.0f}"
    lead = "share of families " if verb else ""
    share = f"{lead}{percent(row.estimate)}{limits}"
    counted = f"{row.shape_count} {verb}".strip()
    return html("{} {} ({})", counted, NAMES[row.shape], share)


def _silent(shaped: Shaped, model: str) -> Markup:
    number, times = _place(shaped, model)
    said = "In run {} <b>{}</b> declined none of {} times.{}"
    return html(said, number, model, times, _done(shaped, model))


def _place(shaped: Shaped, model: str) -> tuple[int, int]:
    """Return the number of a model's run, and how often it was asked there."""
    run = shaped.full[model]
    times = sum(of == model for of, _ in shaped.record.stored(run).answers)
    return shaped.record.runs.index(run) + 1, times


def _checked(shaped: Shaped) -> Iterator[Markup]:
    """Say what people made of these shapes, and that the coder errs."""
    lines = [line for line, _ in shaped.record.sealed]
    studies = read_by_people(shaped.record.store, lines, scheme="shape", of=shaped.newest["judge"])
    pairs = studies[-1]["pairs"] if studies and not studies[-1]["reason"] else []
    read = [_agreed(pair) for pair in pairs if pair["first"] == "judge"]
    yield joined(read, " ") if read else Markup("<b>No person has read these.</b>")
    link = Markup('<a href="#measured-error">measured error</a>')
    if one := held_out(shaped):
        right = sum(of["right"] for of in one.words.values())
        refused = sum(of["refused"] for of in one.words.values())
        told = "The coder errs: of {} refusals that it was not made for it shaped {} as their "
        yield html(told + "author does ({}).", refused, right, link)
    else:
        yield html("The coder errs; how often is told under {}.", link)


def _agreed(pair: Any) -> Markup:
    kappa = pair["kappa"]
    known = "not estimable" if kappa["estimate"] is None else f"{kappa['estimate']:.2f}"
    link = Markup('<a href="#readers-of-this-record">kappa</a>')
    return html("{} read {}; {} with the coder {}.", pair["second"], pair["rows"], link, known)


# Answers to another question, which are no refusals.


def _rows(shaped: Shaped) -> list[dict[str, Any]]:
    """Return what judges that passed say of the runs shown, by judge, model and language."""
    return [
        row
        for row in verdict_rows(shaped.entailed)
        if row["gate_passed"] and shaped.full.get(row["model"]) == row["run"]
    ]


def _narrowed(shaped: Shaped) -> Iterator[Markup]:
    """Say how many answers are to another question, by each judge that passed."""
    yield html(
        "Answers to another question (<code>scope-narrow</code>): {}", asked(shaped.entailed)
    )
    totals: dict[tuple[str, str], list[int]] = {}
    for row in _rows(shaped):
        of = totals.setdefault((row["entailment_judge"], row["language"]), [0, 0])
        of[0] += row["answers_narrowed"]
        of[1] += row["answers_complete"]
    read = {one.model: one.corrections for one, _ in shaped.entailed.passed}
    for (judge, language), (narrow, complete) in totals.items():
        told = "{} of {} complete answers in {}, says {} ({})."
        unread = read[judge].reason is not None
        mark = UNVERIFIED if unread else Markup('<a href="#answers-to-another-question">read</a>')
        yield html(told, narrow, complete, LANGUAGES[language], judge, mark)


@of_shapes
def narrowed(shaped: Shaped) -> Markup:
    """Return by model how many answers are to another question, says each judge that passed."""
    rows = _rows(shaped)
    lead = html("<p>{}</p>", asked(shaped.entailed))
    if not rows and shaped.entailed.passed:
        return html("{}<p>Those that passed judged other runs than those shown.</p>", lead)
    if not rows:
        return lead
    read = {one.model: one.corrections for one, _ in shaped.entailed.passed}
    lines = [
        {
            "Model": shaped.name(row["model"]),
            "Judge": row["entailment_judge"],
            "Language": LANGUAGES[row["language"]],
            "To another question": _of(row, "answers_narrowed"),
            "Left open, none named": _of(row, "answers_left_open"),
            "No verdict": row["verdicts_missing"],
            "Cut: yes, no, missing": cut_text(row),
            "No, as people correct it": _corrected(row, read[row["entailment_judge"]].reason),
        }
        for row in rows
    ]
    return with_data(
        html("{}{}", lead, folded(pd.DataFrame(lines))), "shape-narrow", pd.DataFrame(rows)
    )


def _of(row: dict[str, Any], name: str) -> str:
    complete = row["answers_complete"]
    return f"{row[name]} of {complete}" if complete else "no complete answer"


def _corrected(row: dict[str, Any], unread: str | None) -> Markup:
    if unread or row["no_corrected"] is None:
        return UNVERIFIED
    share = percent(row["no_corrected"])
    if row["no_corrected_low"] is None:
        return html("corrected {}, no limits", share)
    low, high = 100 * row["no_corrected_low"], 100 * row["no_corrected_high"]
    return html("corrected {} [{:.0f}, {:.0f}]", share, low, high)
