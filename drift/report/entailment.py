"""The page of entailment: who judged, and whether that judge may count."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pandas as pd

from drift.report.display import no_run, shown
from drift.report.entailed import UNJUDGED, Entailed, Judged, asked, of_verdicts
from drift.report.entailment_rates import UNVERIFIED, verdict_rows
from drift.report.judge import LANGUAGES
from drift.report.markup import Markup, html, joined, percent, table, with_data
from drift.stats.gate import Gate, least_right, passing_probability

#: Kappas of made-up judges for which it is said how often they would pass.
TRUE_KAPPAS = (0.5, 0.6, 0.7, 0.8, 0.9)
SAID = ("yes", "no", "missing")
HASH = '<span class="drift-hash">{:.16}</span>'
SELF = (
    '<p class="drift-banner"><b>{} judges itself or its like</b>: {}. A model can find its own '
    "evasion answer enough; readers alone can tell.</p>"
)


@shown
def result(entailed: Entailed) -> Markup:
    """Return what is known at all: who was asked, who may count, and what those say of answers."""
    if not entailed.record.reading:
        return no_run(entailed.record)
    if not entailed.bodies:
        return html(UNJUDGED, entailed.record.name)
    rows = [it for it in verdict_rows(entailed) if it["gate_passed"]]
    said = [
        _failed(one) for one in entailed.judges if not any(it.passed for it in one.gates.values())
    ]
    said += [
        html(
            "<li><b>{}</b> in {}, run {}: of {} complete answers {} answer another question that "
            "the judge names, {} leave the question open, says the judge ({}).</li>",
            *(one.model, LANGUAGES[language], one.run),
            *_sums(rows, one.model, language),
            UNVERIFIED if one.corrections.reason else "people have read some of these verdicts",
        )
        for one, language in entailed.passed
    ]
    return html("<p>{}</p>{}", asked(entailed), html("<ul>{}</ul>", joined(said)) if said else "")


def _failed(one: Judged) -> Markup:
    """Return how a judge failed its gate, in every language."""
    found = []
    for language, gate in one.gates.items():
        kappa = "kappa not estimable" if gate.kappa is None else f"kappa {gate.kappa:.2f}"
        if gate.low is not None:
            kappa += f" ({gate.low:.2f} to {gate.high:.2f})"
        found.append(f"{LANGUAGES[language]} {kappa}, {gate.missing} of {gate.n} without a verdict")
    text = "<li><b>{}</b> failed on the pairs whose verdict is known: {}.</li>"
    return html(text, one.model, "; ".join(found))


def _sums(rows: list[dict[str, Any]], judge: str, language: str) -> tuple[int, ...]:
    mine = [it for it in rows if (it["entailment_judge"], it["language"]) == (judge, language)]
    names = ("answers_complete", "answers_narrowed", "answers_left_open")
    return tuple(sum(it[name] for it in mine) for name in names)


@of_verdicts
def judges(entailed: Entailed) -> Markup:
    """Return who judged which run, asked with what, and which models are judges of themselves."""
    lines, banners = [], []
    for one in entailed.judges:
        sent = one.judging.asked
        instrument, wording = sent["instrument"], sent["wording"]
        what = [f"requested as {instrument['model']}"]
        if instrument.get("weights_sha256"):
            what.append(f"weights {instrument['weights_sha256']:.16}")
        parameters = instrument.get("parameters", {})
        what += [f"{name} {value}" for name, value in sorted(parameters.items())]
        same = wording == entailed.check.rules.wording
        lines.append(
            {
                "Judge": one.model,
                "Asked as": ", ".join(what),
                "Wording": html(
                    f"{{}}, {HASH}{{}}",
                    *(wording["version"], wording["sha256"], "" if same else ", not the present"),
                ),
                "Run, arms": f"{one.run}, {one.arms}",
                "Rules, fingerprint": html(
                    f"{HASH}<br>{HASH}",
                    one.judging.body["judge"]["rules"],
                    one.judging.body["judge"]["fingerprint"],
                ),
            }
        )
        banners += _kin(entailed, one)
    return joined([*banners, table(pd.DataFrame(lines))])


def _kin(entailed: Entailed, one: Judged) -> list[Markup]:
    models = dict.fromkeys(row["model"] for row in one.judging.rows)
    found = {model: one.kin(entailed.record, model) for model in models}
    said = ", ".join(f"{model} ({how})" for model, how in found.items() if how)
    return [html(SELF, one.model, said)] if said else []


# The gate.


@of_verdicts
def gate(entailed: Entailed) -> Markup:
    """Return how each judge did on the anchors of each language, and whether it may count."""
    rules, rows, lines = entailed.check.rules.gate, [], []
    for one in entailed.judges:
        for language, found in one.gates.items():
            rows.append(_gate_row(one, language, found))
            mark = ("yes", "passed") if found.passed else ("no", "failed")
            lines.append(
                {
                    "Judge": one.model,
                    "Language": LANGUAGES[language],
                    "Gate": html('<b class="drift-{}">{}</b>', *mark),
                    "Kappa": _kappa(found),
                    "Anchors": found.n,
                    "Without a verdict": found.missing,
                    "Why": found.why or "",
                }
            )
    said = html(
        "<p>A judge passes in a language with a kappa of at least <b>{}</b> on its anchors, and at "
        "most {} of them without a verdict, as <code>config/entailment.toml</code> states.</p>",
        rules.kappa,
        percent(float(rules.missing)),
    )
    text = joined([said, table(pd.DataFrame(lines)), _characteristic(entailed)])
    return with_data(text, "entailment-gate", pd.DataFrame(rows))


def _gate_row(one: Judged, language: str, found: Gate) -> dict[str, Any]:
    return {
        "entailment_judge": one.model,
        "run": one.run,
        "language": language,
        "anchors_asked": found.n,
        "anchors_missing": found.missing,
        "gate_kappa": found.kappa,
        "gate_low": found.low,
        "gate_high": found.high,
        "gate_passed": found.passed,
        "reason": found.why or "",
    }


def _kappa(found: Gate) -> Markup:
    if found.kappa is None:
        return html("not estimable")
    said = f"{found.kappa:.2f} [{found.low:.2f}, {found.high:.2f}]"
    return html("{}", said.replace(" ", "\N{NO-BREAK SPACE}").replace("-", "\N{MINUS SIGN}"))


def _characteristic(entailed: Entailed) -> Markup:
    """Return how often judges of a known kappa would pass with so many anchors."""
    least = float(entailed.check.rules.gate.kappa)
    counts = Counter(anchor.language for anchor in entailed.check.anchors.anchors)
    rows = []
    for language, n in counts.items():
        chances = {
            f"Kappa {kappa:g}": percent(passing_probability(n, true_kappa=kappa, kappa=least))
            for kappa in TRUE_KAPPAS
        }
        right = f"{least_right(n, kappa=least)} of {n}"
        rows.append({"Language": LANGUAGES[language], "Right to pass": right} | chances)
    return html(
        "<h3>How often would a judge pass?</h3><p>By the kappa that it has over all pairs like "
        "these, if it gives every verdict and errs pair by pair on its own.</p>{}",
        table(pd.DataFrame(rows)),
    )


@of_verdicts
def confusions(entailed: Entailed) -> Markup:
    """Return what each judge said of the anchors, by their kind and the author's word."""
    anchors = {anchor.id: anchor for anchor in entailed.check.anchors.anchors}
    rows = []
    for one in entailed.judges:
        for row in one.judging.anchors:
            anchor = anchors[row["anchor"]]
            place: dict[str, Any] = {"entailment_judge": one.model, "language": anchor.language}
            place |= {"anchor_kind": anchor.kind, "anchor_entailed": anchor.entailed}
            rows.append(place | {"verdict_said": row["label"]})
    frame = pd.DataFrame(rows)
    keys = [*frame.columns]
    counts = frame.groupby(keys, sort=True).size().reset_index(name="anchors_said")
    parts: list[Markup] = []
    for judge, of in counts.groupby("entailment_judge", sort=False):
        kinds = dict.fromkeys(zip(of.anchor_entailed, of.anchor_kind, strict=True))
        lines = []
        for right, kind in sorted(kinds, key=lambda it: (not it[0], it[1])):
            cells = of[(of.anchor_entailed == right) & (of.anchor_kind == kind)]
            said = {
                word: int(cells[cells.verdict_said == word].anchors_said.sum()) for word in SAID
            }
            line = {"Author": "Yes" if right else "No", "Kind": kind}
            lines.append(line | {f"Said {word}": _said(n, word, right) for word, n in said.items()})
        fold = "<details{}><summary>{}: verdicts on the anchors by kind</summary>{}</details>"
        first = Markup(" open") if not parts else ""
        parts.append(html(fold, first, judge, table(pd.DataFrame(lines))))
    return with_data(joined(parts), "entailment-anchors", counts)


def _said(count: int, word: str, entailed: bool) -> Markup:
    right = word == ("yes" if entailed else "no")
    return html("<b>{}</b>" if right else "{}", count if count or right else "·")
