"""Verification of what models said of stored answers: every row made again from its reply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from drift.config import sha256_hex
from drift.errors import IntegrityError
from drift.judging.entailment import read_verdict
from drift.judging.labeller import Labeller
from drift.records.entailment import Check, fingerprint_of, made_again, place
from drift.records.judging import checked_row
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

    Where the present code would ask the judging in the same words, every row is made again from
    the reply that it keeps. Otherwise all is checked that needs no words of ours: the form of the
    rows, that each is about one stored text, the texts, and the fingerprint. `judge` is that of
    refusals: it says which answers were to be judged.
    """
    where = f"run {line['run']}, {judge_folder(line['judge'])}"
    stored = data.splitlines(keepends=True)
    part.labels += len(stored)
    holds = sha256_hex(data) == line["labels"]
    try:
        asked = line["asked"]
        rows = [checked_row(orjson.loads(raw), f"line {n}") for n, raw in enumerate(stored, 1)]
        if differs := check.differing(asked, judge):
            part.labels_not_rederivable += len(stored)
            due = _checkable(rows, answers, read="code" not in differs)
        else:
            due = made_again(check, asked, rows, answers=answers, prompts=prompts, judge=judge)
    except (IntegrityError, ValueError) as error:
        said = f"{error.where}: {error.got}" if isinstance(error, IntegrityError) else str(error)
        part.add("labels", where, "edited", f"the judging cannot be read: {said}")
        return
    if difference := first_difference(stored, [*map(dump_line, due)]):
        position, how = difference
        wanted = (due[position:] or rows[position:])[0]
        found = rows[position] if position < len(rows) else {}
        fields = sorted(key for key in {*wanted, *found} if wanted.get(key) != found.get(key))
        name = f"run {line['run']}, {', '.join(place(wanted))}"
        why = f"not as it is made again in {', '.join(fields)}" if fields else "one row too many"
        detail = f"line {position + 1}: {why}"
        part.add("labels", name, "judge moved" if holds else how, detail)
    elif not holds:
        part.add("labels", where, "edited", "not the sealed bytes")
    elif line["judge"]["fingerprint"] != fingerprint_of(rows):
        part.add("labels", where, "judge moved", "its fingerprint is not that of its rows")


def _checkable(
    rows: Sequence[dict[str, Any]], answers: Sequence[Mapping[str, Any]], *, read: bool
) -> list[dict[str, Any]]:
    """Return the rows as they must be, whatever was asked: each once, anchors first.

    Rows on responses stand in the order of the transcript and name its texts; with `read` the
    verdicts are read from the replies again, where the code that read them is ours.
    """
    first: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in rows:
        first.setdefault(place(row), row)
    texts = {place(it): sha256_hex(it["text"].encode()) for it in answers}
    due = [row for row in first.values() if "anchor" in row]
    due += [first[at] | {"text_sha256": text} for at, text in texts.items() if at in first]
    return [_read_again(row) for row in due] if read else due


def _read_again(row: dict[str, Any]) -> dict[str, Any]:
    verdict = read_verdict(row["reply"], row["status"])
    return row | {"label": verdict.label} | ({"named": verdict.named} if "named" in row else {})
