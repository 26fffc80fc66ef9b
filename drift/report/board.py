"""The page of the board: what changed last night, and each metric over nights, model by model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import pandas as pd

from drift.records.registration import corpus_copy
from drift.records.replays import load_nights
from drift.report.markup import Markup, html, joined, table, when, with_data
from drift.report.metrics import READER_NAMES, SHOWN, number, of_nights, p_text
from drift.report.nightly import MOVED, READERS, TESTED, Asked, Nightly
from drift.report.tables import each

#: Up to which p-value, adjusted over the models of a night, answers are said to have changed.
ALPHA = 0.05
CADENCES = {
    "nightly": "nightly",
    "laboratory": "laboratory: each after the other, none waits for a day to pass",
    "virtual": "virtual: scripted models, a night is a step of their script",
}
#: Parts of a scorer's identity in words; those of one line belong together.
IDENTITY = {
    "corpus": "prompt set",
    "scorer": "scorer, code and rules",
    "lexical": "scorer, the judge's rules",
    "encoder": "encoder",
    "weights": "encoder weights",
    "held": "encoder used",
}
OF_TESTED = dict(zip(("distance_measure", "probe_language"), TESTED, strict=True))
HASH = '<span class="drift-hash">{}</span>'


# Last night, in words.


@of_nights
def last_night(nightly: Nightly) -> Markup:
    """Return what changed in the last night in a paragraph, then each model in a column."""
    night = nightly.nights.all[-1]
    ones = [one for one in nightly.asked if one.night is night]
    looks = [nightly.row("drifts", one, quantity="excess", **OF_TESTED) for one in ones]
    tested = [it for it in looks if it["night_holm"] is not None]
    beyond = "<b>{}</b> (excess {}, p {})"
    moved = [
        html(beyond, it["model"], number(it["mean_distance"]), p_text(it["night_holm"]))
        for it in tested
        if it["night_holm"] <= ALPHA
    ]
    still = [it["model"] for it in tested if it["night_holm"] > ALPHA]
    rest = [f"{it['model']} ({it['reason']})" for it in looks if it["night_holm"] is None]
    what = f" ({done})" if (done := night.body["what"]) else ""
    said = [html("<b>Night {}</b>, {}{}.", night.number, when(night.body["started_at"]), what)]
    for words, names in (
        ("<b>Answers moved beyond the model's own noise</b>: {}.", moved),
        ("No move beyond the model's own noise is shown: {}.", still),
        ("Not compared: {}.", rest),
        ("Declines since then: {}.", [*_declines(nightly, ones)]),
    ):
        said += [html(words, joined(names, ", "))] if names else []
    columns = pd.DataFrame({one.model: _column(nightly, one) for one in ones})
    told = table(columns.rename_axis("In brackets: the night compared with").reset_index())
    look = (
        "One test for each model in each night, {} so far; p is adjusted by Holm over the {} of "
        "this night. If nothing ever changed, some model would be named in one night of {:.0f}."
    )
    small = html(f'<p class="drift-small">{look}</p>', nightly.looks, len(tested), 1 / ALPHA)
    return html("<p>{}</p>{}{}", joined(said, " "), told, small)


def _declines(nightly: Nightly, ones: Sequence[Asked]) -> Iterator[str]:
    """Say for each model and reader how many probes are newly declined, and no longer."""
    for one, reader in product(ones, READERS):
        row = nightly.row("refusals", one, reader=reader)
        counts = {name.replace("_", " "): row[name] for name in MOVED[:2]}
        if said := " and ".join(f"{n:.0f} {name}" for name, n in counts.items() if n):
            yield f"{one.model} {said} by {READER_NAMES[reader]}"


def _column(nightly: Nightly, one: Asked) -> dict[str, str]:
    """Return what a model did in a night, beside the night that it is compared with."""
    due, silent = len(one.rows), one.silent
    gaps = "".join(f", {n} {name}" for name, n in silent.items())
    within, between, excess = (
        nightly.row("drifts", one, quantity=it, **OF_TESTED)
        for it in ("within", "between", "excess")
    )
    turned = nightly.row("reversals", one, asked_after="pushback")
    cited = nightly.row("citations", one)
    return {
        "Compared with": one.step.reason or f"night {between['compared_night']:.0f}",
        "Answers": f"{due - silent.total()} of {due}{gaps}",
        "Distance in words": number(between["mean_distance"]),
        "Within the night": number(within["mean_distance"]),
        "Excess": f"{number(excess['mean_distance'])}, p {p_text(excess['night_holm'])}",
        "Declined by a listed opening": _counts(nightly, "refusals", one, reader="opening"),
        "Declined, says the judge": _counts(nightly, "refusals", one, reader="judge"),
        "Reversed under pushback": _counts(nightly, "reversals", one, asked_after="pushback"),
        "YES to NO, NO to YES": "{yes_to_no}, {no_to_yes}".format(**turned),
        "Reversed when re-asked": _counts(nightly, "reversals", one, asked_after="plain re-ask"),
        "Addresses that resolve": cited["reason"] or _counts(nightly, "citations", one),
    }


def _counts(nightly: Nightly, name: str, one: Asked, **where: str) -> str:
    """Return counts in a night, and in brackets those of the night that it is compared with."""
    row, said = nightly.row(name, one, **where), "{cases} of {out_of}"
    then = row["compared_night"] and nightly.row(name, nightly.before(one), **where)
    return said.format(**row) + (f" ({said.format(**then)})" if then else "")


# Where list and judge disagree.


@of_nights
def discordant(nightly: Nightly) -> Markup:
    """Return what decided where the list and the judge disagree, over all nights and models."""
    found = Counter[tuple[str, str, str]]()
    for night in nightly.nights.all:
        for row in nightly.nights.rows(night):
            if (row["draw"], row["turn"]) == (1, 1) and row["label"]:
                listed, refused = row["opening"] is not None, row["label"] == "refused"
                if listed != refused:
                    alone, by = ("list", "opening") if listed else ("judge", "rule")
                    found[alone, str(row[by]), row["category"]] += 1
    rows = [
        {"declined_by": alone, "decided_by": by, "probe_category": kind, "answers_apart": count}
        for (alone, by, kind), count in found.most_common()
    ]
    if not rows:
        return Markup("<p>List and judge agree on every first answer of draw 1.</p>")
    frame = pd.DataFrame(rows)
    shown = frame.set_axis(["Declined by", "Phrase or rule", "Category", "Answers"], axis=1)
    return with_data(table(shown), "board-discordant", frame)


# ----------------------------------------------------------------------------------------
# What was asked, under which identities, and what was expected of it.


@of_nights
def asked(nightly: Nightly) -> Markup:
    """Return the nights: when, what was done, and what came of the answers that were due."""
    rows, told = [], []
    for one in nightly.asked:
        counts = Counter(row["status"] for row in one.rows.values())
        rows.append(
            one.place
            | {"started_at": pd.Timestamp(one.night.body["started_at"])}
            | {"cadence": one.night.body["cadence"], "night_done": one.night.body["what"]}
            | {"answers_due": len(one.rows), "answers_said": counts["ok"] + counts["truncated"]}
            | {"truncated": counts["truncated"]}
            | {f"answers_{name.replace(' ', '_')}": counts[name] for name in GONE}
        )
    frame = pd.DataFrame(rows)
    for night in reversed(nightly.nights.all[-SHOWN:]):
        of = frame[frame.night == night.number]
        told.append(
            {
                "Night": night.number,
                "When": when(night.body["started_at"]),
                "What was done": night.body["what"] or "not stated",
                "Answers": joined((_answers(row) for row in each(of)), "<br>"),
            }
        )
    cadences = [CADENCES[it] for it in dict.fromkeys(frame.cadence)]
    said = html("<p>{} nights. Cadence: {}.</p>", len(nightly.nights.all), "; ".join(cadences))
    return with_data(joined([said, table(pd.DataFrame(told))]), "board-nights", frame)


GONE = ("empty", "blocked", "failed", "missing", "not asked")


def _answers(row: Any) -> Markup:
    gaps = {name: getattr(row, f"answers_{name.replace(' ', '_')}") for name in GONE}
    rest = "".join(f", {n} {name}" for name, n in gaps.items() if n)
    cut = f", {row.truncated} cut" if row.truncated else ""
    return html("{}: {} of {}{}{}", row.model, row.answers_said, row.answers_due, cut, rest)


@of_nights
def identities(nightly: Nightly) -> Markup:
    """Return by what each night was asked and read: two are compared where all are the same."""
    rows = []
    for part, name in IDENTITY.items():
        found: dict[str, list[int]] = {}
        for night in nightly.nights.all:
            found.setdefault(str(night.scores["judge"][part]), []).append(night.number)
        for value, numbers in found.items():
            rows.append({"identity": name, "identity_value": value, "nights": _spans(numbers)})
    frame = pd.DataFrame(rows)
    hashed = [html(HASH, it) if len(it) == 64 else html("{}", it) for it in frame.identity_value]
    told = {"What": frame.identity, "Which": hashed, "Nights": frame.nights}
    return with_data(table(pd.DataFrame(told)), "board-identities", frame)


def _spans(numbers: Sequence[int]) -> str:
    """Return ascending numbers in words: 1 to 3, 5."""
    spans: list[list[int]] = []
    for it in numbers:
        if spans and it == spans[-1][-1] + 1:
            spans[-1].append(it)
        else:
            spans.append([it])
    return ", ".join(f"{of[0]} to {of[-1]}" if len(of) > 1 else f"{of[0]}" for of in spans)


@of_nights
def corpora(nightly: Nightly) -> Markup:
    """Return the prompts that were asked: version, counts, and a link to the record's copy."""
    rows = []
    named = {it.body["corpus"]["sha256"]: it.body["corpus"] for it in nightly.nights.all}
    for sha256, corpus in named.items():
        board = nightly.nights.board(sha256)
        kinds = Counter(probe.category for probe in board.probes)
        chinese = sum(probe.language == "zh" for probe in board.probes)
        file = corpus_copy(nightly.nights.record.store, corpus).name
        link = html('<a href="record/corpora/{0}" download>{0}</a>', file)
        counted = ", ".join(f"{n} {kind}" for kind, n in kinds.items())
        rows.append(
            {
                "Version": f"{board.name} {board.version}",
                "Prompts": f"{len(board.probes)}: {counted}; {chinese} in Chinese",
                "Raw JSON": link,
                "Pushback": f"“{board.pushback}”",
                "Plain re-ask": f"“{board.reask}”",
            }
        )
    return table(pd.DataFrame(rows))


@of_nights
def expected(nightly: Nightly) -> Markup:
    """Return what the laboratory expected of its nights, held against what came."""
    plan = load_nights(nightly.nights.record.root)
    planned = {night.what for night in plan.nights}
    if not any(night.body["what"] in planned for night in nightly.nights.all):
        return html("<p>No expectation was stated of these nights.</p>")
    mine, rows = nightly.tested, []
    for night in nightly.nights.all:
        of = mine[mine.night == night.number]
        row = {"Night": night.number, "What was done": night.body["what"]}
        for model in nightly.nights.models:
            by = {it.quantity: it for it in each(of[of.model == model])}
            row[model] = _came(by) if by else "not asked"
        rows.append(row)
    quote = html("<blockquote>{}</blockquote>", plan.expected.strip())
    after = "<p>Written after the last night, when all had come in sight: {}</p>"
    read = html(after, plan.read.strip()) if plan.read else Markup("")
    return joined([quote, table(pd.DataFrame(rows)), read])


def _came(by: Mapping[str, Any]) -> Markup:
    """Say how far a model was from the night before and from itself, and how many answers moved."""
    within, between, excess = (by[it] for it in ("within", "between", "excess"))
    own = f"within {number(within.mean_distance)}"
    if excess.not_compared_why:
        return html("{}; {}", excess.not_compared_why, own)
    said = "excess {}, p {}; between {}, {}; {} of {} changed or rewritten"
    moved = between.changed_answers + between.rewrite_answers
    numbers = (number(excess.mean_distance), p_text(excess.night_holm))
    counts = (moved, between.probes_compared)
    return html(said, *numbers, number(between.mean_distance), own, *counts)
