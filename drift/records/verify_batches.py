"""Verification of batches: what was asked, what was said, and what a judge made of it.

Every question of a batch follows from the corpus and from what stands before it in the
transcript: an answer that was given to other messages is named.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import orjson

from drift.config import sha256_hex
from drift.errors import ConfigurationError, IntegrityError
from drift.judging import Judge
from drift.judging.ladder import Rubric, ladder_judge, load_rubric
from drift.ladders import Ladders, turn_key
from drift.records.batch import messages_due, outcome_rows, registered_ladders, sealed_batches
from drift.records.ledger import Line
from drift.records.passes import Rows, by_place, targets
from drift.records.run import responses_hash, row_holds
from drift.records.store import Store, dump_line, judge_folder, read_bytes
from drift.records.verify_chain import Verification, first_difference


def check_batches(
    store: Store, judge: Judge | None, lines: list[Line], found: Verification, *, root: Path
) -> None:
    """Check the texts of every batch and, with `judge`, derive its outcomes again."""
    rubric = load_rubric(root / "config" / "rubric.toml") if judge else None
    for body, judged in sealed_batches(lines):
        where = f"batch {body['run']}"
        try:
            ladders = registered_ladders(store, body)
            data = read_bytes(store.transcript(body["run"]))
        except (IntegrityError, ConfigurationError) as error:
            found.add("batches", where, "edited", error.what)
            continue
        stated = (body["turns"], body["elicitor"]["turns"], body["keys"])
        if stated != (len(ladders.rungs), len(ladders.rungs), sorted(ladders.by_id)):
            found.add("batches", where, "edited", "its turns or arms are not those of its corpus")
            continue
        if (rows := _rows(body, data, ladders, found)) is None:
            continue
        found.batches += 1
        found.responses += len(rows)
        for line in judged:
            _check_outcomes(store, judge, rubric, body, line, rows, ladders, found)


def _rows(
    body: dict[str, Any], data: bytes, ladders: Ladders, found: Verification
) -> list[dict[str, Any]] | None:
    """Return the rows of a batch's transcript; name the first that is not as it was sealed."""
    where = f"batch {body['run']}"
    rows: list[dict[str, Any]] = []
    for number, raw in enumerate(data.splitlines(keepends=True), start=1):
        if not raw.endswith(b"\n") or not row_holds(raw[:-1]):
            detail = "the answer is not the one that its row seals"
            found.add("batches", f"{where}, line {number}", "edited", detail)
            return None
        rows.append(orjson.loads(raw))
    places = by_place(rows)
    for row in rows:
        name = f"{where}, {row['model']}, {row['key']}"
        try:
            due = messages_due(places, body, ladders, row["model"], row["key"])
        except (LookupError, ValueError):
            found.add("batches", name, "inserted", "no such answer was asked for")
            return None
        if due != row.get("messages_sha256"):
            found.add("batches", name, "reworded prompt", "another question was asked")
            return None
    if problem := _gap(body, places, ladders):
        found.add("batches", f"{where}, {problem}", "deleted", "the turn was to be asked")
        return None
    if body["finished_at"] != max([body["started_at"], *(row["asked_at"] for row in rows)]):
        found.add("batches", where, "edited", "finished_at is not that of its last answer")
        return None
    for model, sealed in body["models"].items():
        mine = [row for row in rows if row["model"] == model]
        counts = Counter(row["status"] for row in mine)
        if counts != sealed["counts"] or responses_hash(mine) != sealed["responses"]:
            found.add(
                "batches", f"{where}, {model}", "edited", "the answers are not the sealed ones"
            )
            return None
    if sha256_hex(data) != body["transcript"]:
        found.add("batches", where, "edited", "not the sealed bytes")
        return None
    return rows


def _gap(body: dict[str, Any], places: Rows, ladders: Ladders) -> str | None:
    """Name the first turn that a model which did not stop was not asked, though it could be."""
    for model in targets(body):
        if "stopped" in body["models"][model]:
            continue
        for ladder in ladders.ladders:
            for turn in range(1, body["turns"] + 1):
                key = turn_key(ladder.id, turn)
                due = messages_due(places, body, ladders, model, key)
                if due is not None and (model, key) not in places:
                    return f"{model}, {key}"
    return None


def _check_outcomes(
    store: Store,
    judge: Judge | None,
    rubric: Rubric | None,
    body: dict[str, Any],
    line: dict[str, Any],
    rows: list[dict[str, Any]],
    ladders: Ladders,
    found: Verification,
) -> None:
    """Check one judge's outcomes by hash and, where it is the present judge, by deriving them."""
    where = f"batch {body['run']}, {judge_folder(line['judge'])}"
    try:
        data = read_bytes(store.labels(judge_folder(line["judge"]), body["run"]))
    except IntegrityError as error:
        found.add("batches", where, "deleted", error.what)
        return
    stored = data.splitlines(keepends=True)
    found.labels += len(stored)
    if sha256_hex(data) != line["outcomes"]:
        found.add("batches", where, "edited", "not the sealed bytes")
    elif judge and rubric and ladder_judge(judge, rubric, ladders.sha256) == line["judge"]:
        derived = [dump_line(row) for row in outcome_rows(judge, rubric, body, rows, ladders)]
        if difference := first_difference(stored, derived):
            at = f"{where}, line {difference[0] + 1}"
            found.add("batches", at, "judge moved", "differs when it is derived again")
    elif judge:
        found.labels_not_rederivable += len(stored)
