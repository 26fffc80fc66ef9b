"""What a scorer makes of a night, from stored bytes alone: no request, no model that writes.

A row of scores holds what is read from one answer; that of a first draw also holds how far it
is from its repetition in the same night, and both from the two draws of the night before. What
the network said of addresses is a word of its own, and no score.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from numpy.typing import NDArray

from drift.board import Board, Probe
from drift.config import Clock, canonical_json, sha256_hex
from drift.errors import DriftError
from drift.judging import Judge
from drift.judging.answers import Scorer, load_board_rules
from drift.judging.encoder import TOLERANCE, Encoder, encoder_identity
from drift.records.ledger import Ledger, Line, write_atomically
from drift.records.night import DRAWS, night_key, registered_board, split_night_key
from drift.records.passes import SAID, Rows, Sealed, by_place, sealed_passes
from drift.records.run import label_rows
from drift.records.store import Store, dump_line, exists, judge_folder, read_bytes, read_rows

#: Of the identity of a scorer: what must be the same in two nights that are compared.
IDENTITIES = ("corpus", "scorer", "lexical", "encoder", "weights")


@dataclass(frozen=True)
class Scoring:
    """Judge, scorer and encoder. Without ``encoder`` that metric is empty; ``held`` says why."""

    judge: Judge
    scorer: Scorer
    pinned: Mapping[str, str]
    encoder: Encoder | None
    held: str = "yes"
    problem: DriftError | None = None
    _vectors: dict[str, NDArray[Any]] = field(default_factory=dict)

    @classmethod
    def load(cls, root: Path, judge: Judge) -> Scoring:
        """Return the present scorer; an encoder that is absent or another file is left out."""
        rules = load_board_rules(root / "config" / "board.toml")
        scorer, pinned = Scorer(rules), encoder_identity(rules.encoder, root=root)
        try:
            return cls(judge, scorer, pinned, Encoder.load(rules.encoder, root=root))
        except DriftError as error:
            return cls(judge, scorer, pinned, None, error.what, error)

    def identity(self, corpus_sha256: str, *, held: str = "") -> dict[str, str]:
        """Return the scorer of a night as its ``scores`` line names it.

        ``encoder`` and ``weights`` are the pinned ones, ``held`` says whether they were used;
        ``rules`` is the SHA-256 of all the rest.
        """
        parts = {
            "id": "board",
            "fingerprint": self.judge.fingerprint,
            "lexical": self.judge.rules_hash,
            "scorer": self.scorer.identity["rules"],
            "corpus": corpus_sha256,
            **self.pinned,
            "held": held or self.held,
        }
        return named(parts)

    def reading(self, who: Mapping[str, str]) -> Self | None:
        """Return this scorer as one that a ``scores`` line names; None if it is another.

        What was scored without the encoder, or with another, is derived without it.
        """
        mine, loose = self.identity(who["corpus"]), {"held", "rules", *self.pinned}
        if any(mine[name] != who[name] for name in mine.keys() - loose):
            return None
        same = who["held"] == "yes" and all(who[name] == mine[name] for name in self.pinned)
        return self if same else replace(self, encoder=None)

    def distance(self, a: str, b: str, language: str) -> dict[str, Any]:
        """Return how far two answers are from each other, by each metric."""
        found = self.scorer.distance(a, b)
        return {
            "words": found.words,
            "pairs": found.pairs,
            "encoder": self._cosine(a, b, language),
            "likeness": found.likeness,
        }

    def _cosine(self, a: str, b: str, language: str) -> float | None:
        if self.encoder is None or not self.encoder.reads(language):
            return None
        for text in (a, b):
            if text not in self._vectors:
                (self._vectors[text],) = self.encoder.vectors([text])
        return self.encoder.distance(self._vectors[a], self._vectors[b])


def named(parts: Mapping[str, str]) -> dict[str, str]:
    """Return the parts of a scorer's identity with ``rules``, the SHA-256 of all of them."""
    return {**parts, "rules": sha256_hex(canonical_json(dict(parts)))}


def compared_with(nights: Sequence[Mapping[str, Any]], body: Mapping[str, Any]) -> dict[str, str]:
    """Return the night that each model of `body` is compared with, of the `nights` before it.

    It is the last one in which the model said anything; none if that one has another corpus or
    asked the model with another instrument: nothing before a change is reached for.
    """
    found = {}
    for model, part in body["models"].items():
        asked = (it for it in reversed(nights) if said_anything(it["models"].get(model)))
        last = next(asked, None)
        same = last and last["corpus"]["sha256"] == body["corpus"]["sha256"]
        if last and same and said_anything(part):
            if last["models"][model]["instrument"] == part["instrument"]:
                found[model] = str(last["run"])
    return found


def said_anything(part: Mapping[str, Any] | None) -> bool:
    """Tell whether a model gave any answer that says something in a night."""
    return part is not None and any(status in part["counts"] for status in SAID)


def score_rows(
    scoring: Scoring,
    rows: Sequence[dict[str, Any]],
    board: Board,
    earlier: Mapping[str, Rows],
) -> list[dict[str, Any]]:
    """Return a row of scores for each answer of a night that says something.

    `earlier` holds, by model, the rows of the night that it is compared with.
    """
    prompts = {row["key"]: board.by_id[split_night_key(row["key"])[0]].prompt for row in rows}
    texts, scored = by_place(rows), []
    for label in label_rows(scoring.judge, rows, prompts):
        model, key = label["model"], label["key"]
        arm, draw, turn = split_night_key(key)
        probe, text = board.by_id[arm], str(texts[model, key]["text"])
        row = {name: label[name] for name in ("key", "model", "label", "rule")}
        row["opening"] = scoring.scorer.opening(text, probe.language)
        row["words"] = len(scoring.scorer.words(text))
        if probe.category == "stance":
            row["verdict"] = scoring.scorer.verdict(text)
        if (draw, turn) == (1, 1):
            row["urls"] = scoring.scorer.urls(text)
            row |= _distances(scoring, texts, earlier.get(model), model, probe)
        scored.append(row)
    return scored


def _distances(
    scoring: Scoring, tonight: Rows, before: Rows | None, model: str, probe: Probe
) -> dict[str, Any]:
    """Return how far the draws of a probe are from each other and from those before."""

    def between(one: str | None, two: str | None) -> dict[str, Any] | None:
        said = one is not None and two is not None
        return scoring.distance(str(one), str(two), probe.language) if said else None

    now = [_said(tonight, model, night_key(probe.id, draw)) for draw in DRAWS]
    found: dict[str, Any] = {"within": between(*now)}
    if before is not None:
        then = [_said(before, model, night_key(probe.id, draw)) for draw in DRAWS]
        found["between"] = [between(one, two) for one in now for two in then]
    return found


def _said(rows: Rows, model: str, key: str) -> str | None:
    row = rows.get((model, key))
    return str(row["text"]) if row and row["status"] in SAID else None


def night_scores(
    store: Store, scoring: Scoring, body: Mapping[str, Any], against: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the rows of scores of a sealed night, compared with the nights `against`."""
    read = {run: by_place(read_rows(store.transcript(run))) for run in {*against.values()}}
    earlier = {model: read[run] for model, run in against.items()}
    rows = read_rows(store.transcript(body["run"]))
    return score_rows(scoring, rows, registered_board(store, body), earlier)


def scores_again(
    store: Store, scoring: Scoring, body: Mapping[str, Any], line: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], int] | None:
    """Derive again what a ``scores`` line says of a night; None where its scorer is another.

    Returns the rows, and how many encoder distances in them were taken from the stored ones
    because that encoder is not here. One that is derived and lies within its tolerance of the
    stored is that one: another machine may round otherwise.
    """
    if (reader := scoring.reading(line["judge"])) is None:
        return None
    rows, taken = night_scores(store, reader, body, line["against"]), 0
    stored = by_place(read_rows(store.labels(judge_folder(line["judge"]), body["run"])))
    absent = reader.encoder is None and line["judge"]["held"] == "yes"
    for row in rows:
        kept = distances(stored.get((row["model"], row["key"]), {}))
        read = absent and Encoder.reads("zh" if "#zh" in row["key"] else "en")
        for new, old in zip(distances(row), kept, strict=False):
            value = old["encoder"] if new and old else None
            if not new or not isinstance(value, float | int):
                continue
            near = new["encoder"] is not None and abs(new["encoder"] - value) <= TOLERANCE
            if near or (read and new["encoder"] is None):
                new["encoder"] = value
                taken += not near
    return rows, taken


def distances(row: Mapping[str, Any]) -> list[dict[str, Any] | None]:
    """Return the distances of a row of scores: within the night, then those between nights."""
    return [row.get("within"), *row.get("between", ())]


def score_night(
    store: Store, ledger: Ledger, scoring: Scoring, body: Mapping[str, Any], *, at: datetime
) -> None:
    """Score a sealed night from stored bytes, and seal the scores."""
    who = scoring.identity(body["corpus"]["sha256"])
    against = compared_with(nights_before(ledger.forwards(), body["run"]), body)
    data = b"".join(map(dump_line, night_scores(store, scoring, body, against)))
    path = store.labels(judge_folder(who), body["run"])
    if not exists(path) or read_bytes(path) != data:
        write_atomically(path, data)
    fields = {"run": body["run"], "judge": who, "against": against, "scores": sha256_hex(data)}
    ledger.append("scores", fields, at=at)


def sealed_nights(lines: Iterable[Line]) -> list[Sealed]:
    """Return each night's body with those of the scores lines that read it, in order."""
    return sealed_passes(lines, "night", "scores")


def nights_before(lines: Iterable[Line], run: str) -> list[dict[str, Any]]:
    """Return the bodies of the nights before the night `run`."""
    return [body for body, _ in sealed_nights(lines) if body["run"] < run]


def rescore_nights(store: Store, ledger: Ledger, scoring: Scoring, *, clock: Clock) -> list[str]:
    """Score every sealed night whose last word is not that of `scoring`; return their ids.

    Pages read the last word. Without its encoder a scorer has nothing to add to one that it
    said with it.
    """
    read = []
    for body, words in sealed_nights(list(ledger.forwards())):
        corpus, last = body["corpus"]["sha256"], words[-1]["judge"] if words else {}
        fuller = scoring.encoder is None and last == scoring.identity(corpus, held="yes")
        if last != scoring.identity(corpus) and not fuller:
            score_night(store, ledger, scoring, body, at=clock())
            read.append(str(body["run"]))
    return read
