"""Verification of what models said of stored answers: every row made again from its reply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from drift.config import sha256_hex
from drift.judging.entailment import judge_id, rules_hash
from drift.judging.labeller import Labeller
from drift.records.entailment import (
    FACTS,
    Check,
    Unit,
    answered_rows,
    fingerprint_of,
    reply_of,
    row_of,
    units,
)
from drift.records.store import dump_line, judge_folder
from drift.records.verify_chain import Verification, first_difference


def check_verdicts(
    line: Mapping[str, Any],
    data: bytes,
    answers: Sequence[dict[str, Any]],
    prompts: Mapping[str, str],
    check: Check,
    judge: Labeller,
    part: Verification,
) -> None:
    """Check a judging whose file holds `data` against the stored `answers` of its run.

    Where the judging can be repeated with what stands in ``config/``, every row is made again
    from the reply that it keeps. Otherwise texts, fingerprint and bytes are checked. `judge` is
    that of refusals: it says which answers were to be judged.
    """
    where = f"run {line['run']}, {judge_folder(line['judge'])}"
    stored = data.splitlines(keepends=True)
    part.labels += len(stored)
    holds = sha256_hex(data) == line["labels"]
    try:
        asked, rows = line["asked"], [orjson.loads(raw) for raw in stored]
        if check.can_repeat(asked, judge):
            answered = answered_rows(answers, prompts, judge, asked["arms"])
            kept = {_place(row): row for row in rows}
            due = [_again(unit, kept) for unit in units(check, answered, prompts)]
        else:
            part.labels_not_rederivable += len(stored)
            texts = {_place(it): sha256_hex(it["text"].encode()) for it in answers}
            due = [_with_text(row, texts) for row in rows]
        named = {"id": judge_id(asked["model"]), "rules": rules_hash(asked)}
        named |= {"fingerprint": fingerprint_of(rows)}
        difference = first_difference(stored, [*map(dump_line, due)])
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        part.add("labels", where, "edited", f"the judging cannot be read: {error!r}")
        return
    if difference:
        position, how = difference
        wanted = (due[position:] or rows[position:])[0]
        found = rows[position] if position < len(rows) else {}
        fields = sorted(key for key in {*wanted, *found} if wanted.get(key) != found.get(key))
        name = f"run {line['run']}, {', '.join(_place(wanted))}"
        detail = f"line {position + 1}: not as it is made again in {', '.join(fields)}"
        part.add("labels", name, "judge moved" if holds else how, detail)
    elif not holds:
        part.add("labels", where, "edited", "not the sealed bytes")
    elif line["judge"] != named:
        part.add("labels", where, "judge moved", "its line names another judge than its rows do")


def _place(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (f"anchor {row['anchor']}",) if "anchor" in row else (row["model"], row["key"])


def _again(unit: Unit, kept: Mapping[tuple[str, ...], Mapping[str, Any]]) -> dict[str, Any]:
    row = kept.get(_place(unit.place))
    if row is None:
        return row_of(unit, reply_of(None))
    facts = ("reply", "status", *FACTS, "note")
    return row_of(unit, {name: row[name] for name in facts if name in row})


def _with_text(row: dict[str, Any], texts: Mapping[tuple[str, ...], str]) -> dict[str, Any]:
    return row if "anchor" in row else row | {"text_sha256": texts[_place(row)]}
