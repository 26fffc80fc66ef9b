"""Batches: one pass of a ladder corpus over some models, sealed and judged turn by turn.

A batch is a ``batch`` line of the record's ledger; an ``outcomes`` line is one judge's word on
it. Neither is a run: no series, rate or alarm reads them. Rows are stored like those of a run,
under the key ``arm@turn``; what an elicitor that is a model wrote for a target stands under the
name of :func:`elicitor_of`, with the key of the turn that it opens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from drift.config import Clock, sha256_hex
from drift.judging import Judge
from drift.judging.ladder import Rubric, ladder_judge, turn_outcome
from drift.ladders import Ladder, Ladders, load_ladders, split_key, turn_key
from drift.probing.client import messages_sha256
from drift.records.ledger import Ledger, Line, write_atomically
from drift.records.passes import (
    SAID,
    Message,
    Rows,
    Sealed,
    by_place,
    sealed_passes,
    targets,
)
from drift.records.registration import kept_corpus
from drift.records.run import label_rows, responses_hash
from drift.records.store import Store, dump_line, judge_folder, read_rows


def elicitor_of(target: str) -> str:
    """Return the name under which the elicitor's words to `target` are stored."""
    return f"{target}.elicitor"


def target_of(elicitor: str) -> str:
    """Return the target that an elicitor's part speaks to: :func:`elicitor_of`, undone."""
    return elicitor.removesuffix(".elicitor")


def person(rows: Rows, target: str, ladder: Ladder, turn: int, *, scripted: bool) -> str | None:
    """Return what the person says in turn `turn` (from 1); None where an elicitor wrote nothing."""
    if scripted or turn == 1:
        return ladder.turns[turn - 1]
    written = rows.get((elicitor_of(target), turn_key(ladder.id, turn)))
    return str(written["text"]) if written and written["status"] in SAID else None


def conversation(
    rows: Rows, target: str, ladder: Ladder, turn: int, *, scripted: bool
) -> tuple[Message, ...] | None:
    """Return the messages that `target` is asked in `turn`; None once a turn before has no answer.

    The system prompt is left out: the client puts it in front.
    """
    messages: list[Message] = []
    for number in range(1, turn + 1):
        said = person(rows, target, ladder, number, scripted=scripted)
        if said is None:
            return None
        messages.append({"role": "user", "content": said})
        if number < turn:
            answer = rows.get((target, turn_key(ladder.id, number)))
            if answer is None or answer["status"] not in SAID:
                return None
            messages.append({"role": "assistant", "content": str(answer["text"])})
    return tuple(messages)


def brief(rows: Rows, target: str, ladder: Ladder, turn: int, task: str) -> Message | None:
    """Return what an elicitor is told, so that it opens `turn`; None without an answer before.

    It gets the item, the conversation so far, and its task on this rung.
    """
    said = conversation(rows, target, ladder, turn - 1, scripted=False)
    answer = rows.get((target, turn_key(ladder.id, turn - 1)))
    if said is None or answer is None or answer["status"] not in SAID:
        return None
    who = {"user": "Person", "assistant": "Assistant"}
    spoken = [*said, {"role": "assistant", "content": str(answer["text"])}]
    lines = [f"{who[message['role']]}: {message['content']}" for message in spoken]
    head = (f"The person wants to know: {ladder.turns[0]}", "Conversation so far:")
    return {"role": "user", "content": "\n\n".join((*head, *lines, task))}


def registered_ladders(store: Store, body: Mapping[str, Any]) -> Ladders:
    """Return the corpus of a batch from the record's own copy; IntegrityError if it is another."""
    return load_ladders(kept_corpus(store, body["corpus"]))


def label_turns(
    judge: Judge, body: Mapping[str, Any], rows: Sequence[dict[str, Any]], ladders: Ladders
) -> list[dict[str, Any]]:
    """Return a judge's labels of the targets' turns.

    A turn is judged as an answer to the item's own question, whatever the elicitor asked.
    """
    mine = [row for row in rows if row["model"] in targets(body)]
    prompts = {row["key"]: ladders.by_id[split_key(row["key"])[0]].turns[0] for row in mine}
    return label_rows(judge, mine, prompts)


def outcome_rows(
    judge: Judge,
    rubric: Rubric,
    body: Mapping[str, Any],
    rows: Sequence[dict[str, Any]],
    ladders: Ladders,
) -> list[dict[str, Any]]:
    """Return the judged turns of a batch: the judge's label of each, its outcome and points."""
    places, scripted = by_place(rows), body["elicitor"]["kind"] == "script"
    labelled = label_turns(judge, body, rows, ladders)
    for document in labelled:
        arm, turn = split_key(document["key"])
        ladder, model = ladders.by_id[arm], document["model"]
        said = [
            person(places, model, ladder, number, scripted=scripted) or ""
            for number in range(1, turn + 1)
        ]
        text = str(places[model, document["key"]]["text"])
        outcome, points = turn_outcome(
            document["label"], text, "\n".join(said), ladder.points, rubric
        )
        document |= {"outcome": outcome, "points": points}
    return labelled


def judge_batch(
    store: Store,
    ledger: Ledger,
    judge: Judge,
    rubric: Rubric,
    body: Mapping[str, Any],
    *,
    at: datetime,
) -> dict[str, Any]:
    """Judge a sealed batch from its stored bytes and seal the outcomes; return the line's body."""
    ladders = registered_ladders(store, body)
    who = ladder_judge(judge, rubric, ladders.sha256)
    rows = outcome_rows(judge, rubric, body, read_rows(store.transcript(body["run"])), ladders)
    data = b"".join(map(dump_line, rows))
    write_atomically(store.labels(judge_folder(who), body["run"]), data)
    fields = {"run": body["run"], "judge": who, "outcomes": sha256_hex(data)}
    return ledger.append("outcomes", fields, at=at).body


def rescore_batches(
    store: Store, ledger: Ledger, judge: Judge, rubric: Rubric, *, clock: Clock
) -> list[str]:
    """Judge every sealed batch that `judge` under `rubric` has not read; return their ids."""
    read = []
    for body, judged in sealed_batches(list(ledger.forwards())):
        who = ladder_judge(judge, rubric, body["corpus"]["sha256"])
        if all(line["judge"] != who for line in judged):
            judge_batch(store, ledger, judge, rubric, body, at=clock())
            read.append(str(body["run"]))
    return read


@dataclass(frozen=True)
class BatchRun:
    """A batch under one judge.

    ``outcomes`` holds for each target and arm the outcome of each turn, None where there is no
    answer to judge; ``labels`` the judge's word on the same turns; ``texts`` the SHA-256 of the
    canonical map of all that a target said on an arm.
    """

    body: Mapping[str, Any]
    judge: Mapping[str, str]
    outcomes: dict[str, dict[str, list[str | None]]]
    labels: dict[str, dict[str, list[str | None]]]
    texts: dict[str, dict[str, str]]


def read_batch(
    body: Mapping[str, Any],
    judge: Mapping[str, str],
    outcomes: Iterable[Mapping[str, Any]],
    rows: Iterable[Mapping[str, Any]],
) -> BatchRun:
    """Return a batch from the rows of a judge and those of its transcript."""
    judged, places = by_place(outcomes), by_place(rows)
    turns = range(1, body["turns"] + 1)

    def of(name: str, target: str) -> dict[str, list[str | None]]:
        return {
            arm: [judged.get((target, turn_key(arm, turn)), {}).get(name) for turn in turns]
            for arm in body["keys"]
        }

    texts = {
        target: {
            arm: responses_hash(
                places[target, key]
                for key in (turn_key(arm, turn) for turn in turns)
                if (target, key) in places
            )
            for arm in body["keys"]
        }
        for target in targets(body)
    }
    named = targets(body)
    return BatchRun(
        body=body,
        judge=judge,
        outcomes={target: of("outcome", target) for target in named},
        labels={target: of("label", target) for target in named},
        texts=texts,
    )


def sealed_batches(lines: Iterable[Line]) -> list[Sealed]:
    """Return each batch line's body with those of the outcomes lines that read it, in order."""
    return sealed_passes(lines, "batch", "outcomes")


def messages_due(
    rows: Rows, body: Mapping[str, Any], ladders: Ladders, model: str, key: str
) -> str | None:
    """Return the hash of the messages that a stored answer must have been given to.

    `model` may be a target or an elicitor's part. None where what stands before it in the
    transcript leads to no question.
    """
    arm, turn = split_key(key)
    ladder, elicitor = ladders.by_id[arm], body["elicitor"]
    if model in targets(body):
        document = body["models"][model]["document"]
        scripted = elicitor["kind"] == "script"
        messages = conversation(rows, model, ladder, turn, scripted=scripted)
    else:
        document = elicitor["instrument"]
        task = elicitor["tasks"][ladders.rungs[turn - 1]]
        told = brief(rows, target_of(model), ladder, turn, task)
        messages = (told,) if told else None
    if messages is None:
        return None
    system = document["system_prompt"]
    head = [] if system is None else [{"role": "system", "content": system}]
    return messages_sha256([*head, *messages])
