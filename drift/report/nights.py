"""The nights of a record as the pages of the board read them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from drift.board import Board
from drift.records.night import STEPS, due_keys, night_key, registered_board, split_night_key
from drift.records.passes import by_place, sealed_passes
from drift.records.scores import IDENTITIES, said_anything, sealed_nights
from drift.records.store import judge_folder, read_rows
from drift.report.tables import Record

#: What is called by which name where a comparison ends, by the part of a scorer's identity.
METHOD = {
    "corpus": "prompt set",
    "scorer": "scorer",
    "lexical": "scorer",
    "encoder": "encoder",
    "weights": "encoder weights",
}
#: Stands for an answer that was due and is not there.
MISSING = "missing"
#: Stands for a second turn that could not be asked, since the first was not answered.
NOT_ASKED = "not asked"


@dataclass(frozen=True)
class Night:
    """One night: its line, its last ``scores`` line, and its ``citations`` line if it has one."""

    body: Mapping[str, Any]
    scores: Mapping[str, Any]
    citations: Mapping[str, Any] | None

    @property
    def run(self) -> str:
        return str(self.body["run"])

    @property
    def number(self) -> int:
        return int(self.body["number"])


@dataclass(frozen=True)
class Step:
    """What a model's night is compared with: a night before it, or the reason why with none."""

    before: Night | None
    reason: str = ""


class Nights:
    """The nights of a record up to the run that is shown, each as its last scorer read it."""

    def __init__(self, record: Record) -> None:
        self.record = record
        lines = [line for line, _ in record.sealed]
        found = zip(sealed_nights(lines), sealed_passes(lines, "night", "citations"), strict=True)
        self.all = [
            Night(body, scores[-1], cited[-1] if cited else None)
            for (body, scores), (_, cited) in found
            if scores
        ]

    @cached_property
    def models(self) -> list[str]:
        """The models that were asked in any night, in the order in which they came."""
        return list(dict.fromkeys(model for night in self.all for model in night.body["models"]))

    @functools.cache  # noqa: B019  # as long as the page
    def board(self, sha256: str) -> Board:
        """Return a corpus that nights name, from the record's own copy."""
        body = next(it.body for it in self.all if it.body["corpus"]["sha256"] == sha256)
        return registered_board(self.record.store, body)

    def rows(self, night: Night) -> Iterator[dict[str, Any]]:
        """Yield every answer that was due in a night, with its scores.

        Fields: night (its number), run, model, key, arm, category, language, draw, turn,
        status, text, and of the scores: label, rule, opening, words, verdict, urls, within,
        between (None where there is none).
        """
        store, board = self.record.store, self.board(night.body["corpus"]["sha256"])
        rows = by_place(read_rows(store.transcript(night.run)))
        folder = judge_folder(night.scores["judge"])
        scores = by_place(read_rows(store.labels(folder, night.run)))
        of_scores = "label rule opening words verdict urls within between".split()
        for model in night.body["models"]:
            for key in (key for step in STEPS for key in due_keys(board, *step)):
                arm, draw, turn = split_night_key(key)
                first = rows.get((model, night_key(arm, draw)), {}).get("status")
                gone = MISSING if turn == 1 or first in ("ok", "truncated") else NOT_ASKED
                row, score = rows.get((model, key), {}), scores.get((model, key), {})
                yield {
                    "night": night.number,
                    "run": night.run,
                    "model": model,
                    "key": key,
                    "arm": arm,
                    "category": board.by_id[arm].category,
                    "language": board.by_id[arm].language,
                    "draw": draw,
                    "turn": turn,
                    "status": row.get("status", gone),
                    "text": row.get("text", ""),
                } | {name: score.get(name) for name in of_scores}

    def step(self, night: Night, model: str) -> Step:
        """Return what `model` is compared with in `night`: the last night that it spoke in.

        Four identities (prompt set, scorer, encoder, its weights) and the model's instrument: one
        that moved leaves no comparison, and nothing further back is reached for.
        """
        spoke = [
            it
            for it in self.all
            if it.number < night.number and said_anything(it.body["models"].get(model))
        ]
        if not said_anything(night.body["models"].get(model)):
            return Step(None, "no answer in this night")
        if not spoke:
            return Step(None, "first night")
        before = spoke[-1]
        old, new = before.scores["judge"], night.scores["judge"]
        moved = dict.fromkeys(METHOD[it] for it in IDENTITIES if old[it] != new[it])
        if moved:
            return Step(None, f"methodology changed: {', '.join(moved)}")
        hashes = [it.body["models"][model]["instrument"] for it in (before, night)]
        if len({*hashes}) > 1:
            return Step(None, "instrument changed")
        return Step(before)
