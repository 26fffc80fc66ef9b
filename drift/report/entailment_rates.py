"""The rate of No by model and language: where a judge passed its gate, and marked as what it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from drift.records.entailment import Tally, missing_reasons
from drift.report.entailed import OPEN, OTHER, Entailed, Judged, of_verdicts
from drift.report.judge import LANGUAGES
from drift.report.markup import Markup, fill, html, joined, percent, table, with_data
from drift.stats.agreement import Estimate

GATE_FAILED = Markup("gate failed")
UNVERIFIED = Markup('<span class="drift-warning">unverified</span>')
#: Rows of models from which on a table is folded.
LONG = 8
#: Why there is no verdict, in words; other reasons are those of the judge's server.
REASONS = {"form": "the reply is neither of the two forms", "failed": "no reply came"}


@of_verdicts
def rates(entailed: Entailed) -> Markup:
    """Return the share of No by model and language where the judge passed, and else why not."""
    parts, rows = [], verdict_rows(entailed)
    for one in entailed.judges:
        mine = [row for row in rows if row["entailment_judge"] == one.model]
        lines = [_line(entailed, one, row) for row in mine]
        head = html("<h3>{}</h3>{}", one.model, joined(_standing(one)))
        parts += [head, folded(pd.DataFrame(lines)), _reasons(one)]
    return with_data(joined(parts), "entailment-rates", pd.DataFrame(rows))


def _line(entailed: Entailed, one: Judged, row: Mapping[str, Any]) -> dict[str, Any]:
    line = {
        "Model": html("{}{}", row["model"], _mark(row["judge_is"])),
        "Language": LANGUAGES[row["language"]],
        "Judged": row["responses_judged"],
        "Complete": row["answers_complete"],
        "Without a verdict": row["verdicts_missing"],
    }
    if any(it.passed for it in one.gates.values()):
        line |= {
            "No, as judged": _as_judged(entailed, row),
            "Of these, another question named": _counted(row, "answers_narrowed"),
            "No, as readers correct it": _corrected(one, row),
            "Cut answers: yes, no, missing": cut_text(row),
        }
    return line


def cut_text(row: Mapping[str, Any]) -> str:
    """Return the verdicts on answers that were cut, which enter no rate."""
    if not row["gate_passed"]:
        return f"{row['judged_truncated']} cut"
    return "{truncated_yes}, {truncated_no}, {truncated_missing}".format(**row)


def _counted(row: Mapping[str, Any], name: str) -> object:
    return row[name] if row["gate_passed"] else GATE_FAILED


def folded(frame: pd.DataFrame) -> Markup:
    """Return a table of models, folded where it is long."""
    if len(frame) <= LONG:
        return table(frame)
    return html("<details><summary>{} rows</summary>{}</details>", len(frame), table(frame))


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
        "are prediction-powered, of all verdicts on complete answers of the study's runs, and may "
        "differ from those judged here.</p>",
        *(", ".join(found.readers) or found.reader, found.coded, found.reader),
        *(_share(found.precision), _share(found.recall)),
    )


def _share(one: Estimate) -> Markup:
    if one.estimate is None:
        return html("not estimable: {}", one.reason)
    if one.low is None or one.high is None:
        return html("{}, no limits{}", percent(one.estimate), f": {one.reason}" * bool(one.reason))
    return html("{} [{:.0f}, {:.0f}]", percent(one.estimate), 100 * one.low, 100 * one.high)


def _as_judged(entailed: Entailed, row: Mapping[str, Any]) -> Markup:
    if not row["gate_passed"]:
        return GATE_FAILED
    if row["no_as_judged"] is None:
        return html("not estimable: {}", row["reason"])
    place = round(100 * row["no_as_judged"], 1)
    bar = fill(entailed.record.root, "bar", share=place, low=place, width=0)
    no, given = row["verdicts_no"], row["verdicts_yes"] + row["verdicts_no"]
    return html("{} of {}, {}{}", no, given, percent(row["no_as_judged"]), bar)


def _corrected(one: Judged, row: Mapping[str, Any]) -> Markup:
    if not row["gate_passed"]:
        return GATE_FAILED
    if not (read := one.corrections.rates.get((row["model"], row["language"]))):
        return html("{}", UNVERIFIED)
    if read.rate.estimate is None:
        return html("{}: {}", UNVERIFIED, read.rate.reason)
    return html("{} ({} read)", _share(read.rate), read.coded)


def _reasons(one: Judged) -> Markup:
    found = missing_reasons(one.judging.rows)
    said = "; ".join(f"{REASONS.get(why, why)}: {n}" for why, n in found.most_common())
    return html('<p class="drift-small">Verdicts that are missing: {}.</p>', said or "none")


def verdict_rows(entailed: Entailed) -> list[dict[str, Any]]:
    """Return what a reader downloads, one row a judge, model and language.

    Yes and No are counted only where the judge passed, and of answers that were not cut.
    """
    return [
        _verdict_row(entailed, one, *place, counts)
        for one in entailed.judges
        for place, counts in entailed.counts(one).items()
    ]


def _verdict_row(
    entailed: Entailed, one: Judged, model: str, language: str, counts: Counter[str]
) -> dict[str, Any]:
    found, read = one.gates[language], one.corrections.rates.get((model, language))
    cut = sum(n for kind, n in counts.items() if kind.startswith("cut "))
    tally = Tally(counts["yes"], counts[OTHER] + counts[OPEN], counts["missing"])
    rate = tally.rate(found)
    known = {
        "verdicts_yes": tally.yes,
        "verdicts_no": tally.no,
        "answers_narrowed": counts[OTHER],
        "answers_left_open": counts[OPEN],
        "truncated_yes": counts["cut yes"],
        "truncated_no": counts["cut no"],
        "truncated_missing": counts["cut missing"],
        "no_corrected": read.rate.estimate if read else None,
        "no_corrected_low": read.rate.low if read else None,
        "no_corrected_high": read.rate.high if read else None,
    }
    why = "no complete answer with a verdict" if found.passed and rate.reason else rate.reason
    return {
        "entailment_judge": one.model,
        "model": model,
        "run": one.run,
        "language": language,
        "judge_is": one.kin(entailed.record, model),
        "gate_passed": found.passed,
        "responses_judged": counts.total(),
        "answers_complete": counts.total() - cut,
        "judged_truncated": cut,
        "verdicts_missing": tally.missing,
        **(known if found.passed else dict.fromkeys(known)),
        "no_as_judged": rate.estimate,
        "reason": why or (read.rate.reason if read else one.corrections.reason) or "",
    }
