"""The rate of No by model and language: where a judge passed its gate, and marked as what it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from drift.records.entailment import Tally, missing_reasons, tallies
from drift.report.entailed import Entailed, Judged, of_verdicts
from drift.report.judge import LANGUAGES
from drift.report.markup import Markup, fill, html, joined, percent, table, with_data
from drift.stats.agreement import Estimate
from drift.stats.gate import Gate

GATE_FAILED = Markup("gate failed")
UNVERIFIED = Markup('<span class="drift-warning">unverified</span>')
#: Why there is no verdict, in words; other reasons are those of the judge's server.
REASONS = {"form": "the reply is neither of the two forms", "failed": "no reply came"}


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
        "<p>Read by {} ({} verdicts; the labels of {} count). Of the judge's No, people call "
        "no: <b>{}</b>; of what they call no, the judge said No: <b>{}</b>. Corrected rates "
        "are prediction-powered, of all verdicts of the study's runs, and may differ from those "
        "judged here.</p>",
        *(", ".join(found.readers) or found.reader, found.coded, found.reader),
        *(_share(found.precision), _share(found.recall)),
    )


def _share(one: Estimate) -> Markup:
    if one.estimate is None:
        return html("not estimable: {}", one.reason)
    if one.low is None or one.high is None:
        return html("{}, no limits{}", percent(one.estimate), f": {one.reason}" * bool(one.reason))
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
