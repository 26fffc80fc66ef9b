"""The page of entailment: who judged, whether that judge may count, and the rate if it may."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from drift.records.entailment import Tally, missing_reasons, tallies
from drift.report.entailed import Entailed, Judged, of_verdicts
from drift.report.judge import LANGUAGES
from drift.report.markup import Markup, fill, html, joined, percent, table, with_data
from drift.stats.agreement import Estimate
from drift.stats.gate import Gate, least_right, passing_probability

#: Kappas of made-up judges for which it is said how often they would pass.
TRUE_KAPPAS = (0.5, 0.6, 0.7, 0.8, 0.9)
SAID = ("yes", "no", "missing")
HASH = '<span class="drift-hash">{:.16}</span>'
GATE_FAILED = Markup("gate failed")
UNVERIFIED = Markup('<span class="drift-warning">unverified</span>')
SELF = (
    '<p class="drift-banner"><b>{} judges itself or its like</b>: {}. A model can find its own '
    "evasion answer enough; readers alone can tell.</p>"
)


@of_verdicts
def judges(entailed: Entailed) -> Markup:
    """Return who judged which run, asked with what, and which models are judges of themselves."""
    shown, banners = [], []
    for one in entailed.judges:
        asked = one.judging.asked
        instrument, wording = asked["instrument"], asked["wording"]
        what = [f"requested as {instrument['model']}"]
        if instrument.get("weights_sha256"):
            what.append(f"weights {instrument['weights_sha256']:.16}")
        parameters = instrument.get("parameters", {})
        what += [f"{name} {value}" for name, value in sorted(parameters.items())]
        same = wording == entailed.check.rules.wording
        shown.append(
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
    return joined([*banners, table(pd.DataFrame(shown)), _earlier(entailed)])


def _kin(entailed: Entailed, one: Judged) -> list[Markup]:
    models = dict.fromkeys(row["model"] for row in one.judging.rows)
    found = {model: one.kin(entailed.record, model) for model in models}
    said = ", ".join(f"{model} ({how})" for model, how in found.items() if how)
    return [html(SELF, one.model, said)] if said else []


def _earlier(entailed: Entailed) -> Markup:
    """Say how many judgings the record holds beside those shown."""
    rest = len(entailed.bodies) - len(entailed.judges)
    if not rest:
        return Markup("")
    said = "<p>The newest judging by each judge is shown; the record holds {} more.</p>"
    return html(said, rest)


# The gate.


@of_verdicts
def gate(entailed: Entailed) -> Markup:
    """Return how each judge did on the anchors of each language, and whether it may count."""
    rules, rows, shown = entailed.check.rules.gate, [], []
    for one in entailed.judges:
        for language, found in one.gates.items():
            rows.append(_gate_row(one, language, found))
            mark = ("yes", "passed") if found.passed else ("no", "failed")
            shown.append(
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
    text = joined([said, table(pd.DataFrame(shown)), _characteristic(entailed)])
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
        if one.judging.asked["anchors"] != entailed.check.anchors.identity:
            continue
        for row in one.judging.anchors:
            anchor = anchors[row["anchor"]]
            place: dict[str, Any] = {"entailment_judge": one.model, "language": anchor.language}
            place |= {"anchor_kind": anchor.kind, "anchor_entailed": anchor.entailed}
            rows.append(place | {"verdict_said": row["label"]})
    if not rows:
        return Markup("<p>No judge was asked about the anchors that are in config/ now.</p>")
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


# The rate, where it may be shown.


@of_verdicts
def rates(entailed: Entailed) -> Markup:
    """Return the share of No by model and language where the judge passed, and else why not."""
    parts, rows = [], []
    for one in entailed.judges:
        lines = []
        for (model, language), tally in tallies(one.judging.rows).items():
            found = one.gates[language]
            rows.append(_rate_row(entailed, one, model, language, tally))
            line = {
                "Model": html("{}{}", model, _mark(one.kin(entailed.record, model))),
                "Language": LANGUAGES[language],
                "Judged": tally.yes + tally.no + tally.missing,
                "Truncated": _truncated(entailed, one, model, language),
                "Without a verdict": tally.missing,
            }
            if any(it.passed for it in one.gates.values()):
                line["No, as judged"] = _as_judged(entailed, tally, found)
                line["No, as readers correct it"] = _corrected(one, model, language, found)
            lines.append(line)
        head = html("<h3>{}</h3>{}", one.model, joined(_standing(one)))
        parts += [head, table(pd.DataFrame(lines)), _reasons(one)]
    return with_data(joined(parts), "entailment-rates", pd.DataFrame(rows))


def _mark(how: str) -> Markup:
    return html(' <small class="drift-control">{}</small>', how) if how else Markup("")


def _standing(one: Judged) -> Iterator[Markup]:
    """Say of a judge what its verdicts may be used for."""
    passed = [LANGUAGES[name] for name, found in one.gates.items() if found.passed]
    failed = [LANGUAGES[name] for name, found in one.gates.items() if not found.passed]
    if failed:
        said = "<p><b>No rate in {}</b>: the judge did not pass its gate there. Its verdicts are "
        said += "stored and sealed with the record, and are not counted here as Yes and No.</p>"
        yield html(said, " and ".join(failed))
    if passed and (why := one.corrections.reason):
        said = "<p>{}: {}. A share of No is then the word of one model about others.</p>"
        yield html(said, UNVERIFIED, why)
    elif passed:
        yield _read(one)


def _read(one: Judged) -> Markup:
    found = one.corrections
    return html(
        "<p>Read by {} ({} verdicts, {} counted). Of the judge's No, people call no: <b>{}</b>; of "
        "what they call no, the judge said No: <b>{}</b>. Corrected rates are prediction-powered, "
        "of all verdicts of the study's runs, and may differ from those judged here.</p>",
        *(", ".join(found.readers) or found.reader, found.coded, found.reader),
        *(_share(found.precision), _share(found.recall)),
    )


def _share(one: Estimate) -> Markup:
    if one.estimate is None:
        return html("not estimable: {}", one.reason)
    if one.low is None or one.high is None:
        return html("{}", percent(one.estimate))
    return html("{} [{:.0f}, {:.0f}]", percent(one.estimate), 100 * one.low, 100 * one.high)


def _as_judged(entailed: Entailed, tally: Tally, found: Gate) -> Markup:
    if not found.passed:
        return GATE_FAILED
    rate = tally.rate(found)
    if rate.estimate is None:
        return html("not estimable: {}", rate.reason)
    place = round(100 * rate.estimate, 1)
    bar = fill(entailed.record.root, "bar", share=place, low=place, width=0)
    said = "{} of {}, {}{}"
    return html(said, tally.no, tally.yes + tally.no, percent(rate.estimate), bar)


def _corrected(one: Judged, model: str, language: str, found: Gate) -> Markup:
    if not found.passed:
        return GATE_FAILED
    if not (read := one.corrections.rates.get((model, language))):
        return html("{}", UNVERIFIED)
    if read.rate.estimate is None:
        return html("{}: {}", UNVERIFIED, read.rate.reason)
    return html("{} ({} read)", _share(read.rate), read.coded)


def _truncated(entailed: Entailed, one: Judged, model: str, language: str) -> int:
    zh = language == "zh"
    mine = (r for r in one.judging.rows if r["model"] == model and ("#zh" in r["key"]) == zh)
    return sum(entailed.stored(one, row).get("status") == "truncated" for row in mine)


#: Why there is no verdict, in words; other reasons are those of the judge's server.
REASONS = {"form": "the reply is neither of the two forms", "failed": "no reply came"}


def _reasons(one: Judged) -> Markup:
    found = missing_reasons(one.judging.rows)
    said = "; ".join(f"{REASONS.get(why, why)}: {n}" for why, n in found.most_common())
    return html('<p class="drift-small">Verdicts that are missing: {}.</p>', said or "none")


def _rate_row(
    entailed: Entailed, one: Judged, model: str, language: str, tally: Tally
) -> dict[str, Any]:
    """Return what a reader downloads; Yes and No are counted only where the judge passed."""
    found = one.gates[language]
    rate, read = tally.rate(found), one.corrections.rates.get((model, language))
    row: Mapping[str, Any] = {
        "entailment_judge": one.model,
        "model": model,
        "run": one.run,
        "language": language,
        "judge_is": one.kin(entailed.record, model),
        "gate_passed": found.passed,
        "responses_judged": tally.yes + tally.no + tally.missing,
        "judged_truncated": _truncated(entailed, one, model, language),
        "verdicts_missing": tally.missing,
        "verdicts_yes": tally.yes if found.passed else None,
        "verdicts_no": tally.no if found.passed else None,
        "no_as_judged": rate.estimate,
        "no_corrected": read.rate.estimate if read and found.passed else None,
        "no_corrected_low": read.rate.low if read and found.passed else None,
        "no_corrected_high": read.rate.high if read and found.passed else None,
        "reason": rate.reason or (read.rate.reason if read else one.corrections.reason) or "",
    }
    return dict(row)
