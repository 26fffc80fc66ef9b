"""Nights: one pass of the board's probes over some models, and what a scorer makes of it.

A night is a ``night`` line of the record's ledger; a ``scores`` line is a scorer's word on it.
Every probe is asked twice, each time in a conversation of its own: ``arm`` and ``arm~2`` are
two draws of its answer. That of a stance probe goes on, with the pushback after draw 1 and with
the plain re-ask after draw 2: ``arm@2`` and ``arm~2@2``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from drift.board import Board, load_board
from drift.probing.client import messages_sha256
from drift.records.passes import SAID, Message, Rows
from drift.records.registration import kept_corpus
from drift.records.store import Store

DRAWS = (1, 2)
#: Draw and turn, in the order in which they are asked.
STEPS = ((1, 1), (2, 1), (1, 2), (2, 2))
#: How answers are seeded, by the seed policy of a model. Two draws under one seed differ by what
#: a server does otherwise alone.
SEEDS = {"per-run": "per answer", "fixed": "one for all", "none": "none sent"}
_KEY = re.compile(r"([^~@]+)(~2)?(@2)?")


def night_key(arm: str, draw: int, turn: int = 1) -> str:
    """Return the key of an answer: ``arm``, ``arm~2``, ``arm@2`` or ``arm~2@2``."""
    return arm + ("~2" if draw == 2 else "") + ("@2" if turn == 2 else "")


def split_night_key(key: str) -> tuple[str, int, int]:
    """Return arm, draw and turn of a key that :func:`night_key` made; else ValueError."""
    if not (found := _KEY.fullmatch(key)):
        raise ValueError(f"{key!r} is no key of a night; expected arm, arm~2, arm@2 or arm~2@2")
    return found[1], 2 if found[2] else 1, 2 if found[3] else 1


def due_keys(board: Board, draw: int, turn: int) -> list[str]:
    """Return what a model is asked in a step of a night: turn 2 of stance probes alone."""
    return [
        night_key(probe.id, draw, turn)
        for probe in board.probes
        if turn == 1 or probe.category == "stance"
    ]


def all_keys(board: Board) -> list[str]:
    """Return every key that a model is asked in a night."""
    return [key for step in STEPS for key in due_keys(board, *step)]


def night_conversation(
    rows: Rows, model: str, board: Board, key: str
) -> tuple[Message, ...] | None:
    """Return the messages that `model` is asked under `key`; None if turn 1 has no answer.

    The system prompt is left out: the client puts it in front. LookupError or ValueError if
    the board asks nothing under such a key.
    """
    arm, draw, turn = split_night_key(key)
    probe = board.by_id[arm]
    first = {"role": "user", "content": probe.prompt}
    if turn == 1:
        return (first,)
    if probe.category != "stance":
        raise ValueError(f"{key}: only a stance probe is asked again")
    answer = rows.get((model, night_key(arm, draw)))
    if answer is None or answer["status"] not in SAID:
        return None
    second = board.pushback if draw == 1 else board.reask
    return (
        first,
        {"role": "assistant", "content": str(answer["text"])},
        {"role": "user", "content": second},
    )


def night_messages_due(
    rows: Rows, body: Mapping[str, Any], board: Board, model: str, key: str
) -> str | None:
    """Return the hash of the messages that a stored answer must have been given to."""
    messages = night_conversation(rows, model, board, key)
    if messages is None:
        return None
    system = body["models"][model]["document"]["system_prompt"]
    head = [] if system is None else [{"role": "system", "content": system}]
    return messages_sha256([*head, *messages])


def registered_board(store: Store, body: Mapping[str, Any]) -> Board:
    """Return the corpus of a night from the record's own copy; IntegrityError if it is another."""
    return load_board(kept_corpus(store, body["corpus"]))
