"""What verdicts of a record rest on: the prompt, hashes that hold, two judges, and examples."""

from __future__ import annotations

from itertools import combinations, islice
from typing import Any

import numpy as np
import pandas as pd

from drift.records.entailment import language_of
from drift.records.run import family
from drift.report.display import no_run, shown
from drift.report.entailed import OPEN, OTHER, Entailed, Judged, named, of_verdicts
from drift.report.judge import LANGUAGES
from drift.report.markup import Markup, html, joined, table, with_data
from drift.report.pages import anchor
from drift.report.transcripts import marked
from drift.stats.agreement import Estimate, kappas, percentiles, resampled, too_few

#: Examples of No by model, and characters shown of each text.
EXAMPLES, ROOM = 2, 1200
#: Models of one judge from which on they are folded into one.
FOLDED = 4
WORDS = ("yes", "no")


@shown
def prompts(entailed: Entailed) -> Markup:
    """Return the words with which a judge is asked, whole."""
    if not entailed.record.reading:
        return no_run(entailed.record)
    rules = entailed.check.rules
    rows = [
        {"wording_version": rules.version, "wording_sha256": rules.wording["sha256"]}
        | {"language": language, "judge_prompt": text}
        for language, text in rules.prompts.items()
    ]
    texts = (
        html('<h3>{}</h3><div class="drift-response"><pre tabindex="0">\n{}</pre></div>', *of)
        for of in ((LANGUAGES[name], text) for name, text in rules.prompts.items())
    )
    said = html("<p>Version {}, <span class='drift-hash'>{sha256}</span>.</p>", rules.version,
                **rules.wording)  # fmt: skip
    text = joined([said, *texts])
    return with_data(text, "entailment-prompts", pd.DataFrame(rows))


@of_verdicts
def proof(entailed: Entailed) -> Markup:
    """Return how many verdicts are shown to be about the stored bytes, and nothing else."""
    rows, lines = [], []
    for one in entailed.judges:
        verdicts = one.judging.rows
        texts = sum(entailed.text_holds(one, row) for row in verdicts)
        sent = [entailed.messages_hold(one, row) for row in verdicts]
        unknown = sum(held is None for held in sent)
        held = sum(it is True for it in sent)
        of = {"entailment_judge": one.model, "run": one.run, "responses_judged": len(verdicts)}
        rows.append(of | {"texts_hold": texts, "messages_hold": held, "messages_unknown": unknown})
        again = f"{held} of {len(verdicts)}"
        again += f", {unknown} cannot be made again" if unknown else ""
        lines.append({"Judge": one.model, "Text is the stored one": f"{texts} of {len(verdicts)}",
                      "Messages are question and that text": again})  # fmt: skip
    return with_data(table(pd.DataFrame(lines)), "entailment-proof", pd.DataFrame(rows))


@of_verdicts
def examples(entailed: Entailed) -> Markup:
    """Return texts of which a judge said No, with the question that it says was answered."""
    parts: list[Markup] = []
    for one in entailed.judges:
        mine: list[Markup] = []
        models = dict.fromkeys(row["model"] for row in one.judging.rows)
        for model in models:
            found = [row for row in one.judging.rows if row["model"] == model]
            said_no = [row for row in found if row["label"] == "no"]
            # Those that count come first: complete answers to another question that is named.
            said_no.sort(key=lambda row: entailed.kind(one, row) != OTHER)
            chosen = {family(row["key"]): row for row in reversed(said_no)}
            rows = list(islice(reversed(chosen.values()), EXAMPLES))
            if rows:
                fold = "<details><summary>{} on {}: {} shown</summary>{}</details>"
                texts = joined(_example(entailed, one, row) for row in rows)
                mine.append(html(fold, one.model, model, len(rows), texts))
        if len(mine) > FOLDED:
            fold = "<details><summary><b>{}</b> on {} models</summary>{}</details>"
            mine = [html(fold, one.model, len(mine), joined(mine))]
        parts += mine
    return joined(parts or [Markup("<p>No judge said No of an answer here.</p>")])


def _example(entailed: Entailed, one: Judged, row: dict[str, Any]) -> Markup:
    stored = entailed.stored(one, row)
    passed = one.gates[language_of(row["key"])].passed
    mark = "unverified" if passed else "unverified, by a judge that did not pass its gate"
    link = html('<a href="transcripts.html#{}">{}</a>', anchor(family(row["key"])), row["key"])
    text = _Text(str(stored.get("text", "")), (0, 0))
    asked = entailed.question(one, row) or "The record holds no copy of the question."
    cut = " · truncated, not counted" if stored.get("status") != "ok" else ""
    if entailed.kind(one, row) == OPEN:
        cut = " · question left open, says the judge"
    return html(
        '<div class="drift-response"><p>{} <span class="drift-warning">{}</span>{}</p>'
        '<p class="drift-question"><b>Asked:</b> {}</p><p><b>Answered, says the judge:</b> {}</p>'
        '<pre tabindex="0">\n{}</pre></div>',
        *(link, mark, cut, asked, named(row), marked(text, ROOM)),
    )


class _Text:
    """A text as :func:`marked` reads it."""

    def __init__(self, text: str, span: tuple[int, int]) -> None:
        self.text, self.span = text, span


@of_verdicts
def agreement(entailed: Entailed) -> Markup:
    """Return how far two judges of one run say the same, where both gave a verdict."""
    pairs = [
        (one, other) for one, other in combinations(entailed.judges, 2) if one.run == other.run
    ]
    if not pairs:
        return Markup("<p>No two judges were asked about one run.</p>")
    rows, lines = [], []
    for one, other in pairs:
        first, second = (
            {(row["model"], row["key"]): row["label"] for row in it.judging.rows}
            for it in (one, other)
        )
        both = [key for key in first if key in second]
        given = [key for key in both if {first[key], second[key]} <= {*WORDS}]
        alike = sum(first[key] == second[key] for key in given)
        found = _kappa([(family(key[1]), first[key], second[key]) for key in given])
        for judge, verdicts in ((one, first), (other, second)):
            if len(words := {verdicts[key] for key in given}) == 1:
                # Agreement with one word is that of chance, whatever the other says.
                why = f"{judge.model} says {words.pop()} of all"
                found = Estimate(None, None, None, why)
        rows.append(
            {"first_reader": one.model, "second_reader": other.model, "run": one.run}
            | {"responses_judged": len(both), "both_gave": len(given), "both_alike": alike}
            | {"figure": "kappa", "figure_value": found.estimate, "figure_low": found.low}
            | {"figure_high": found.high, "reason": found.reason or ""}
        )
        said = f"not estimable: {found.reason}"
        if found.estimate is not None:
            said = f"{found.estimate:.2f} [{found.low:.2f}, {found.high:.2f}]"
            said = said.replace(" ", "\N{NO-BREAK SPACE}").replace("-", "\N{MINUS SIGN}")
        lines.append(
            {"Judges": f"{one.model} and {other.model}", "Both asked": len(both)}
            | {"Both gave a verdict": len(given), "The same": alike, "Kappa": said}
        )
    return with_data(table(pd.DataFrame(lines)), "entailment-agreement", pd.DataFrame(rows))


def _kappa(pairs: list[tuple[str, str, str]]) -> Estimate:
    """Return Cohen's kappa of the verdicts of two judges, its limits over whole families."""
    of: dict[str, np.ndarray[Any, np.dtype[np.int64]]] = {}
    for place, first, second in pairs:
        cell = 2 * WORDS.index(first) + WORDS.index(second)
        of.setdefault(place, np.zeros(4, dtype=np.int64))[cell] += 1
    if few := too_few(len(pairs), len(of)):
        return Estimate(None, None, None, few)
    counts = np.array([*of.values()])
    value = float(kappas(counts.sum(axis=0).reshape(2, 2)))
    draws = resampled(counts, np.ones(len(counts), dtype=np.int64), seed=1)
    reason = "one verdict only on both sides, here or in over 1 % of draws"
    one = None if np.isnan(value) else value
    return percentiles(one, kappas(draws.reshape(-1, 2, 2)), reason)
