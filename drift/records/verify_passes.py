"""Verification of batches and nights: what was asked, what was said, and what was made of it.

Every question of a pass follows from the corpus and from what stands before it in the
transcript: an answer that was given to other messages is named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import orjson

from drift.board import Board
from drift.config import sha256_hex
from drift.errors import ConfigurationError, IntegrityError
from drift.judging import Judge
from drift.judging.ladder import ladder_judge, load_rubric
from drift.ladders import Ladders, turn_key
from drift.probing.response import STATUSES
from drift.records.batch import messages_due, outcome_rows, registered_ladders, sealed_batches
from drift.records.citations import wrong_citations
from drift.records.ledger import Line
from drift.records.night import all_keys, night_messages_due, registered_board
from drift.records.passes import Kind, Rows, by_place, sealed_passes, targets
from drift.records.run import responses_hash, row_holds
from drift.records.scores import Scoring, compared_with, scores_again, sealed_nights
from drift.records.store import Store, dump_line, judge_folder, read_bytes
from drift.records.verify_chain import Verification, first_difference

#: Returns the hash of the messages due to a model under a key, from the rows of the pass; None
#: where these lead to no question. LookupError or ValueError: nothing is asked under the key.
Due = Callable[[Rows, str, str], str | None]
Corpus = TypeVar("Corpus", Ladders, Board)
#: A pass and its corpus.
Of: TypeAlias = tuple[Mapping[str, Any], Corpus]


def check_passes(
    store: Store, judge: Judge | None, lines: list[Line], found: Verification, *, root: Path
) -> None:
    """Check the texts of every pass and, with `judge`, derive again what was said of it."""
    _check_batches(store, judge, lines, found, root=root)
    _check_nights(store, judge, lines, found, root=root)


def _check_batches(
    store: Store, judge: Judge | None, lines: list[Line], found: Verification, *, root: Path
) -> None:
    rubric = load_rubric(root / "config" / "rubric.toml") if judge else None
    for body, judged in sealed_batches(lines):
        one = _Pass(store, "batch", body, found)
        try:
            ladders = registered_ladders(store, body)
        except (IntegrityError, ConfigurationError) as error:
            one.wrong("", "edited", error.what)
            continue

        def due(rows: Rows, model: str, key: str, of: Of[Ladders] = (body, ladders)) -> str | None:
            return messages_due(rows, of[0], of[1], model, key)

        turns = len(ladders.rungs)
        keys = [turn_key(it.id, turn) for it in ladders.ladders for turn in range(1, turns + 1)]
        stated = (body["turns"], body["elicitor"]["turns"], body["keys"])
        if stated != (turns, turns, sorted(ladders.by_id)):
            one.wrong("", "edited", "its turns or arms are not those of its corpus")
        elif one.holds(due, keys):
            for line in judged:
                ours = judge and rubric and ladder_judge(judge, rubric, ladders.sha256)
                rows = None
                if judge and rubric and ours == line["judge"]:
                    rows = outcome_rows(judge, rubric, body, one.rows, ladders)
                one.check_word(line, "outcomes", rows, expected=judge is not None)


def _check_nights(
    store: Store, judge: Judge | None, lines: list[Line], found: Verification, *, root: Path
) -> None:
    nights, before = sealed_nights(lines), list[dict[str, Any]]()
    scoring = Scoring.load(root, judge) if judge and nights else None
    path = store.board_truth
    truth = sha256_hex(path.read_bytes()) if path.exists() else "no file"
    asked = {body["run"]: words for body, words in sealed_passes(lines, "night", "citations")}
    for body, scored in nights:
        one = _Pass(store, "night", body, found)
        against = compared_with(before, body)
        before.append(body)
        if "truth_sha256" in body and body["truth_sha256"] != truth:
            one.wrong("", "edited", "board_truth.json is not the file that it was made under")
        try:
            board = registered_board(store, body)
        except (IntegrityError, ConfigurationError) as error:
            one.wrong("", "edited", error.what)
            continue

        def due(rows: Rows, model: str, key: str, of: Of[Board] = (body, board)) -> str | None:
            return night_messages_due(rows, of[0], of[1], model, key)

        if body["keys"] != sorted(board.by_id):
            one.wrong("", "edited", "its arms are not those of its corpus")
        elif one.holds(due, all_keys(board)):
            for line in scored:
                if line["against"] != against or line["judge"]["corpus"] != board.sha256:
                    one.wrong("scores", "edited", "it reads another corpus, or compares otherwise")
                    continue
                again = one.scores_again(scoring, line) if scoring else None
                rows, taken = again or (None, 0)
                one.check_word(line, "scores", rows, expected=scoring is not None)
                found.labels_not_rederivable += taken
            for line in asked[body["run"]]:
                # What the network said once cannot be derived, only kept.
                one.check_word(line, "citations", None, expected=False)
                if problem := wrong_citations(store, body, scored, line):
                    one.wrong("citations", "edited", problem)


def _form(row: dict[str, Any], body: Mapping[str, Any]) -> str:
    """Return what is wrong with the form of a row of a pass; empty if nothing is."""
    texts = ("model", "key", "status", "text", "asked_at", "messages_sha256")
    if any(not isinstance(row.get(name), str) for name in texts):
        return "a field is missing or no text"
    if row["status"] not in STATUSES:
        return "no status that an answer can have"
    if not body["started_at"] <= row["asked_at"] <= body["at"]:
        return "asked before the pass began, or after it was sealed"
    return ""


@dataclass
class _Pass:
    """One sealed pass that is checked; ``rows`` are those of its transcript, once they hold."""

    store: Store
    kind: Kind
    body: Mapping[str, Any]
    found: Verification
    rows: list[dict[str, Any]] = field(default_factory=list)

    def wrong(self, where: str, how: str, detail: str) -> bool:
        """Name a problem of this pass; return False, for a check that ends with it."""
        place = f"{self.kind} {self.body['run']}" + (f", {where}" if where else "")
        step = {"batch": "batches", "night": "nights"}[self.kind]
        self.found.add(step, place, how, detail)
        return False

    def holds(self, due: Due, keys: Iterable[str]) -> bool:
        """Read the transcript; name the first row that is not as it was sealed, or was not due."""
        body, rows = self.body, list[dict[str, Any]]()
        try:
            data = read_bytes(self.store.transcript(body["run"]))
        except IntegrityError as error:
            return self.wrong("", "edited", error.what)
        for number, raw in enumerate(data.splitlines(keepends=True), start=1):
            if not raw.endswith(b"\n") or not row_holds(raw[:-1]):
                detail = "the answer is not the one that its row seals"
                return self.wrong(f"line {number}", "edited", detail)
            rows.append(orjson.loads(raw))
            if problem := _form(rows[-1], body):
                return self.wrong(f"line {number}", "edited", problem)
        order = [(row["model"], row["key"]) for row in rows]
        if order != sorted(set(order)):
            odd = next(one for one, two in pairwise([*order, ("", "")]) if one >= two)
            how = "inserted" if order.count(odd) > 1 else "reordered"
            return self.wrong(", ".join(odd), how, "answers stand once, in order")
        places = by_place(rows)
        for row in rows:
            name = f"{row['model']}, {row['key']}"
            try:
                wanted = due(places, row["model"], row["key"])
            except (LookupError, ValueError):
                return self.wrong(name, "inserted", "no such answer was asked for")
            if wanted != row.get("messages_sha256"):
                return self.wrong(name, "reworded prompt", "another question was asked")
        if gap := self._gap(places, due, keys):
            return self.wrong(gap, "deleted", "the turn was to be asked")
        if body["finished_at"] != max([body["started_at"], *(row["asked_at"] for row in rows)]):
            return self.wrong("", "edited", "finished_at is not that of its last answer")
        for model, sealed in body["models"].items():
            mine = [row for row in rows if row["model"] == model]
            counts = Counter(row["status"] for row in mine)
            if counts != sealed["counts"] or responses_hash(mine) != sealed["responses"]:
                return self.wrong(model, "edited", "the answers are not the sealed ones")
        if sha256_hex(data) != body["transcript"]:
            return self.wrong("", "edited", "not the sealed bytes")
        self.rows = rows
        self.found.count_pass(self.kind, len(rows))
        return True

    def _gap(self, places: Rows, due: Due, keys: Iterable[str]) -> str | None:
        """Name the first key that a model which did not stop was not asked, though it could be."""
        whole = [name for name in targets(self.body) if "stopped" not in self.body["models"][name]]
        return next(
            (
                f"{model}, {key}"
                for model in whole
                for key in keys
                if (model, key) not in places and due(places, model, key) is not None
            ),
            None,
        )

    def scores_again(
        self, scoring: Scoring, line: Mapping[str, Any]
    ) -> tuple[list[dict[str, Any]], int] | None:
        """Derive the scores of a line again; None where they are missing, which is said later."""
        try:
            return scores_again(self.store, scoring, self.body, line)
        except (IntegrityError, LookupError, TypeError, AttributeError) as error:
            # A file that is missing is named where its hash is checked.
            if not isinstance(error, IntegrityError):
                self.wrong(judge_folder(line["judge"]), "edited", f"no rows of scores: {error!r}")
            return None

    def check_word(
        self,
        line: Mapping[str, Any],
        name: str,
        derived: list[dict[str, Any]] | None,
        *,
        expected: bool,
    ) -> None:
        """Check what a line says of this pass by hash and against what is `derived` again.

        Where nothing is derived though it is `expected`, the rows are counted as such.
        """
        where = judge_folder(line["judge"])
        try:
            data = read_bytes(self.store.labels(where, self.body["run"]))
        except IntegrityError as error:
            self.wrong(where, "deleted", error.what)
            return
        stored = data.splitlines(keepends=True)
        self.found.labels += len(stored)
        if sha256_hex(data) != line[name]:
            self.wrong(where, "edited", "not the sealed bytes")
        elif derived is not None:
            if difference := first_difference(stored, list(map(dump_line, derived))):
                at = f"{where}, line {difference[0] + 1}"
                self.wrong(at, "judge moved", "differs when it is derived again")
        elif expected:
            self.found.labels_not_rederivable += len(stored)
