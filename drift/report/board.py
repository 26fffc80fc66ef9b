"""The page of the board: what changed last night, and each metric over nights, model by model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from drift.records.registration import corpus_copy
from drift.records.replays import load_nights
from drift.report.display import shown
from drift.report.markup import Markup, html, joined, table, when, with_data
from drift.report.metrics import READER_NAMES, SHOWN, number, of_nights, p_text
from drift.report.nightly import (
    ALPHA,
    LIKENESS,
    MOVED,
    TESTED,
    Asked,
    Nightly,
    Row,
    one_seed,
)
from drift.report.nights import Nights
from drift.report.pages import kind
from drift.report.tables import each

#: What the banner of a record says of its runs alone, and what holds for its nights.
PREMISES = {
    "laboratory": "The plan whose hash was registered is that of the runs. What is done to servers "
    "before a night stands in config/nights.toml and in the night's line. No line of the chain "
    "seals that file: that it was there before the first night, the repository's history says.",
    "scripted": "That truth is of the runs. The nights follow board_truth.json, whose hash every "
    "night seals.",
}
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


@shown
def premises(nights: Nights) -> Markup:
    """Return what of the banner above holds for runs alone, in a record that has nights."""
    told = PREMISES.get(kind(nights.record), "") if nights.all else ""
    return html('<p class="drift-banner">{}</p>', told) if told else Markup("")


# Last night, in words.

#: What is said of the models of a night, by how their test came out.
STANDINGS = {
    "moved": "<b>Answers moved beyond the model's own noise</b>: {}.",
    "unmoved": "No move of first answers, in words, is shown: {}.",
    "quiet": "Without noise of its own in either night; first answers that are not equal: {}.",
    "few": "Not tested, too few probes: {}.",
    "alone": "Not compared: {}.",
}


@of_nights
def last_night(nightly: Nightly) -> Markup:
    """Return what changed in the last night in a paragraph, then each model in a column."""
    night = nightly.nights.all[-1]
    ones = [one for one in nightly.asked if one.night is night]
    found = [_standing(nightly, one) for one in ones]
    told = [
        html(text, joined((who for kind, who in found if kind == standing), ", "))
        for standing, text in STANDINGS.items()
        if standing in dict(found)
    ]
    declines = [*_declines(nightly, ones)]
    told += [html("Declines since then: {}.", joined(declines, ", "))] if declines else []
    what = f" ({done})" if (done := night.body["what"]) else ""
    said = html("<b>Night {}</b>, {}{}.", night.number, when(night.body["started_at"]), what)
    columns = pd.DataFrame({one.model: _column(nightly, one) for one in ones})
    shown = table(columns.rename_axis("In brackets: the night compared with").reset_index())
    parts = (joined([said, *told], " "), shown, _looks(nightly))
    return html('<p>{}</p><div class="drift-night">{}</div>{}', *parts)


def _standing(nightly: Nightly, one: Asked) -> tuple[str, Markup]:
    """Return how the test of a model's night came out, and what is said of the model."""
    within, between, look = (
        nightly.row("drifts", one, quantity=it, **OF_TESTED)
        for it in ("within", "between", "excess")
    )
    if look["night_holm"] is None:
        return "alone", html("{} ({})", one.model, look["reason"])
    if look["night_holm"] <= ALPHA:
        numbers = number(look["mean_distance"]), p_text(look["night_holm"])
        return "moved", html("<b>{}</b> (excess {}, p {})", one.model, *numbers)
    if nightly.too_few(look):
        return "few", html("{} ({})", one.model, look["probes_compared"])
    then = nightly.row("drifts", nightly.before(one), quantity="within", **OF_TESTED)
    if within["mean_distance"] == then["mean_distance"] == 0:
        moved = sum(between[f"{it}_answers"] for it in LIKENESS if it != "equal")
        counted = moved, sum(between[f"{it}_answers"] for it in LIKENESS)
        return "quiet", html("{} {} of {}", one.model, *counted)
    return "unmoved", html("{}", one.model)


def _looks(nightly: Nightly) -> Markup:
    """Say how often was tested, and what the level comes to."""
    night = nightly.nights.all[-1]
    twins = nightly.repeated.items()
    distinct = nightly.looks - sum((len(models) - 1) * len(of) for models, of in twins)
    same = "{} gave the same first answers, byte for byte, in night{} {} and the night before"
    told = (same.format(" and ".join(it), "s" * (len(of) > 1), _spans(of)) for it, of in twins)
    alike = f", {distinct} of them distinct ({'; '.join(told)})" if twins else ""
    look = (
        "One test for each model in each night, {} so far{}; p is adjusted by Holm over the {} of "
        "this night. If nothing ever changed, some model would be named in at most one night of "
        "{:.0f} on average{}."
    )
    seeds = "; but one seed served all probes of a draw, and p is too small"
    numbers = (nightly.looks, alike, nightly.looks_of(night.number), 1 / ALPHA)
    return html(f'<p class="drift-small">{look}</p>', *numbers, seeds if one_seed(night) else "")


def _declines(nightly: Nightly, ones: Sequence[Asked]) -> Iterator[str]:
    """Say for each model how many probes a listed opening newly declines, and no longer."""
    for one in ones:
        row = nightly.row("refusals", one, reader="opening")
        counts = {name.replace("_", " "): row[name] for name in MOVED[:2]}
        if said := " and ".join(f"{n:.0f} {name}" for name, n in counts.items() if n):
            yield f"{one.model} {said} by {READER_NAMES['opening']}"


def _column(nightly: Nightly, one: Asked) -> dict[str, str]:
    """Return what a model did in a night, beside the night that it is compared with."""
    due, silent = len(one.rows), one.silent
    came = [f"{due - silent.total()} of {due}", *(f"{n} {name}" for name, n in silent.items())]
    between, excess = (
        nightly.row("drifts", one, quantity=it, **OF_TESTED) for it in ("between", "excess")
    )
    pushed, plain = {"asked_after": "pushback"}, {"asked_after": "plain re-ask"}
    cited, within = nightly.row("citations", one), {"quantity": "within", **OF_TESTED}
    return {
        "Compared with": one.step.reason or f"night {between['compared_night']:.0f}",
        "Answers": ", ".join(map(_unbroken, came)),
        "Distance in words": _far(between),
        "Within the night": _beside(nightly, "drifts", one, _far, **within),
        "Excess": f"{_far(excess)}; {_p(nightly, excess)}" if one.step.before else "–",
        "Declined by a listed opening": _beside(nightly, "refusals", one, _of, reader="opening"),
        "Declined, says the judge": _beside(nightly, "refusals", one, _of, reader="judge"),
        "Reversed under pushback": _beside(nightly, "reversals", one, _of, **pushed),
        "YES to NO, NO to YES": _beside(nightly, "reversals", one, _turned, **pushed),
        "Reversed when re-asked": _beside(nightly, "reversals", one, _of, **plain),
        "Addresses that resolve": cited["reason"] or _beside(nightly, "citations", one, _of),
    }


def _unbroken(text: str) -> str:
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def _of(row: Row) -> str:
    return _unbroken("{cases} of {out_of}".format(**row))


def _turned(row: Row) -> str:
    return _unbroken("{yes_to_no}, {no_to_yes}".format(**row))


def _far(row: Row) -> str:
    """Return a mean distance with the number of probes that it is over."""
    if not row["probes_compared"]:
        return number(None)
    return _unbroken(f"{number(row['mean_distance'])}, n {row['probes_compared']}")


def _p(nightly: Nightly, look: Row) -> str:
    p = p_text(look["night_holm"])
    return "too few probes" if nightly.too_few(look) else _unbroken(f"p {p}")


def _beside(
    nightly: Nightly, name: str, one: Asked, said: Callable[[Row], str], **where: str
) -> str:
    """Return what is said of a night, and in brackets of the night that it is compared with."""
    row = nightly.row(name, one, **where)
    then = row["compared_night"] and nightly.row(name, nightly.before(one), **where)
    return said(row) + (f" ({said(then)})" if then else "")


# The seeds, on which the test leans.


@of_nights
def seeds(nightly: Nightly) -> Markup:
    """Return in which nights one seed served all probes of a draw, and what follows for p."""
    shared = [night.number for night in nightly.nights.all if one_seed(night)]
    if not shared:
        return Markup("<p>No seed that was sent served two answers of a night.</p>")
    return html(
        "<p>In night{} {} one seed served all probes of a draw. Their answers are not independent: "
        "p is too small, and the intervals may be too narrow. {}</p>",
        "s" * (len(shared) > 1),
        _spans(shared),
        UNTOUCHED,
    )


#: Measured once: every two draws against every two others of those to which nothing was done.
UNTOUCHED = (
    "How much too small was measured once, on six nights of three small models at temperature .05 "
    "with such seeds (30 November 2026), by splitting into two nights of two the draws to which "
    "nothing was done. Where p should be at most .05 in 5 % of splits and at most .01 in 1 %, it "
    "was in 8.0 and 3.2 % of the 1,485 splits of one model's 12 draws, and in 15.2 and 9.0 % of "
    "the 210 of another's 8. The splits overlap: these are rough figures."
)


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
            by = {it.quantity: it._asdict() for it in each(of[of.model == model])}
            row[model] = _came(nightly, by) if by else "not asked"
        rows.append(row)
    quote = html("<blockquote>{}</blockquote>", plan.expected.strip())
    after = "<p>Written after the last night, when all had come in sight: {}</p>"
    read = html(after, plan.read.strip()) if plan.read else Markup("")
    return joined([quote, table(pd.DataFrame(rows)), read])


def _came(nightly: Nightly, by: Mapping[str, Row]) -> Markup:
    """Say how far a model was from the night before and from itself, and how many answers moved."""
    between, excess = by["between"], by["excess"]
    own = f"within {_far(by['within'])}"
    if excess["not_compared_why"]:
        return html("{}; {}", excess["not_compared_why"], own)
    said = "excess {}; {}; between {}; {}; {} of {} first answers changed or rewritten"
    moved = between["changed_answers"] + between["rewrite_answers"]
    counts = (moved, sum(between[f"{it}_answers"] for it in LIKENESS))
    return html(said, _far(excess), _p(nightly, excess), _far(between), own, *counts)
