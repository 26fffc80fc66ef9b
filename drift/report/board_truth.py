"""The phantom's board beside its truth: what every score was to be, and what it is.

``board_truth.json`` states both beforehand, by night, model and key; its hash is sealed with
each night.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson
import pandas as pd

from drift.config import sha256_hex
from drift.records.store import judge_folder, read_rows
from drift.report.markup import Markup, html, joined, table, with_data
from drift.report.metrics import of_nights
from drift.report.nightly import ALPHA, Nightly
from drift.report.nights import Night, Nights
from drift.report.tables import each

#: What is scripted of an answer, and how the page calls it.
SCRIPTED = {
    "label": "label of the judge",
    "opening": "listed opening that declines, or none",
    "verdict": "verdict of a first line, or none",
    "urls": "addresses in an answer",
    "within": "likeness of the two draws of a night",
    "between": "likeness to the draws of the night before",
    "reversal": "reversal under pushback, with its direction",
    "re-ask": "reversal on the plain re-ask, with its direction",
    "address": "what is found at an address",
    "fault": "what became of an answer that says nothing",
}
#: What is scripted of a model's night, which the test of the excess is to tell.
NAMED = {
    "change": "a change of first answers: named by the test",
    "no change": "no change of first answers: not named by the test",
}
COLUMNS = ["night", "model", "key", "scripted_what", "due", "shown"]
#: What of a script no first answer depends on.
SECOND = {"yields", "wavers"}


def truth_of(nights: Nights) -> dict[str, Any]:
    """Return the truth that the nights of a record were made under; empty without one."""
    path = nights.record.store.board_truth
    data = path.read_bytes() if path.exists() else b"{}"
    sealed = {night.body.get("truth_sha256") for night in nights.all}
    return orjson.loads(data) if sealed == {sha256_hex(data)} else {}


def compared(nights: Nights) -> pd.DataFrame:
    """Return each scripted fact beside what was found: night, model, key, scripted_what, due,
    shown.
    """
    truth, rows = truth_of(nights), list[dict[str, Any]]()
    for night in nights.all if truth else ():
        for model, stated in truth["nights"][night.number - 1].items():
            found = {row["key"]: row for row in nights.rows(night) if row["model"] == model}
            place = {"night": night.number, "model": model}
            rows += (place | fact for fact in _facts(stated, found))
        rows += _addresses(nights, night, truth)
    return pd.DataFrame(rows, columns=COLUMNS)


def _facts(stated: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what was stated of the answers of one model in one night, and what is read."""
    for key, due in stated.items():
        row = found[key]
        if "label" not in due:
            shown = {"due": due["fault"], "shown": row["status"]}
            yield {"key": key, "scripted_what": "fault"} | shown
            continue
        read = {
            "label": row["label"],
            "opening": row["opening"] is not None,
            "verdict": row["verdict"],
            "urls": sorted(row["urls"] or ()),
            "within": row["within"] and row["within"]["likeness"],
            "between": [it and it["likeness"] for it in row["between"] or ()],
        }
        due = due | ({"urls": sorted(due["urls"])} if "urls" in due else {})
        for kind in due.keys() & read.keys():
            yield {"key": key, "scripted_what": kind, "due": due[kind], "shown": read[kind]}
        if key.endswith("@2"):
            first = key.removesuffix("@2")
            kind = "re-ask" if "~" in key else "reversal"
            verdicts = stated[first].get("verdict"), due["verdict"]
            seen = found[first]["verdict"], row["verdict"]
            yield {
                "key": key,
                "scripted_what": kind,
                "due": _turn(*verdicts),
                "shown": _turn(*seen),
            }


def _turn(before: str | None, after: str | None) -> str:
    if not before or not after:
        return "not readable"
    return "held" if before == after else f"{before} to {after}"


def _addresses(nights: Nights, night: Night, truth: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the class that each scripted address has, and the one that was found."""
    if not night.citations:
        return
    classes = {fate: found for found, fates in truth["fates"].items() for fate in fates}
    folder = judge_folder(night.citations["judge"])
    path = nights.record.store.labels(folder, night.run)
    seen = {row["url"]: row["found"] for row in read_rows(path)}
    for model, stated in truth["nights"][night.number - 1].items():
        for key, due in stated.items():
            for url, fate in due.get("urls", {}).items():
                yield {
                    "night": night.number,
                    "model": model,
                    "key": key,
                    "scripted_what": "address",
                    "due": classes[fate],
                    "shown": seen.get(url, "not asked"),
                }


def named(nightly: Nightly) -> pd.DataFrame:
    """Return for each look if first answers were to change, and if the test names the model."""
    rules, rows = truth_of(nightly.nights)["rules"], list[dict[str, Any]]()
    for look in each(nightly.tested[nightly.tested.split_p.notna()]):
        then = rules["models"][look.model].get("then", {}).keys() - SECOND
        due = bool(then) and look.night == rules["turn"]
        what = "change" if due else "no change"
        place = {"night": look.night, "model": look.model, "key": "", "scripted_what": what}
        rows.append(place | {"due": due, "shown": look.night_holm <= ALPHA})
    return pd.DataFrame(rows, columns=COLUMNS)


@of_nights
def recovered(nightly: Nightly) -> Markup:
    """Return how much of what was scripted is read as it was scripted, by kind."""
    nights = nightly.nights
    facts = compared(nights)
    if facts.empty:
        return Markup("<p>The models of this record are not scripted: no truth to hold it to.</p>")
    tests, kinds = named(nightly), SCRIPTED | NAMED
    facts = pd.concat([facts, tests], ignore_index=True)
    facts = facts.assign(alike=facts.due.map(str) == facts.shown.map(str))
    by_kind = (
        facts.groupby("scripted_what").alike.agg(["sum", "size"]).reindex(list(kinds), fill_value=0)
    )
    shown = pd.DataFrame(
        {
            "Scripted": list(kinds.values()),
            "Stated": by_kind["size"].to_list(),
            "Found as stated": by_kind["sum"].to_list(),
        }
    )
    stories = truth_of(nights)["rules"]["models"]
    told = (html("<li><b>{}</b>: {}</li>", name, it["story"]) for name, it in stories.items())
    listed = html("<ul>{}</ul>", joined(told))
    due, found = (
        joined((f"{it.model} in night {it.night}" for it in each(tests[tests[of]])), ", ") or "none"
        for of in ("due", "shown")
    )
    looks = "<p>First answers change by the script: {}. Named by the test, of {} looks: {}.</p>"
    kept = facts.assign(due=facts.due.map(str), shown=facts.shown.map(str)).drop(columns="alike")
    return with_data(
        joined([listed, html(looks, due, len(tests), found), table(shown)]), "board-truth", kept
    )
