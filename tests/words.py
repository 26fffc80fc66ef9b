"""Labels lines of made-up judges: words that a rule of the test gives, sealed like any judge's."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from conftest import ROOT, Ticking
from loopback import Loopback, Reply, Request, completion
from making import ANSWER, REFUSAL, ZH_ANSWER, run, write_panel

from drift.config import sha256_hex
from drift.judging.entailment import rules_hash
from drift.records.ledger import Ledger
from drift.records.scheme import SHAPE
from drift.records.sealing import seal_labels
from drift.records.store import Store, read_rows

#: What the made-up judge model says of its anchors, which are of no model of the panel.
ANCHORS = [{"anchor": f"a{n}", "label": "yes", "rule": "reply", "span": None} for n in range(3)]


def make_read(project: Path, *, runs: int = 1) -> Path:
    """Make runs of models that refuse a quarter and never answer alike; return the record.

    Its refusals have a shape each and its answers a verdict, of made-up judges.
    """
    shutil.copytree(ROOT / "config", project / "config")
    clock = Ticking(datetime(2026, 3, 1, 0, 5, tzinfo=UTC))

    def script(request: Request) -> Reply:
        if int(sha256_hex(request.prompt.encode())[0], 16) < 4:
            return completion(f"{REFUSAL} That is {request.model}.")
        chinese = any("\u4e00" <= character <= "\u9fff" for character in request.prompt)
        return completion(f"{ZH_ANSWER if chinese else ANSWER} {request.model}")

    with Loopback(script) as server:
        write_panel(project, server.base_url)
        for _ in range(runs):
            outcome = run(project, clock)
            assert outcome.sealed and outcome.exit_code == 0, outcome.notes
            clock.advance(hours=6)
    folder = project / "data" / "test"
    seal_shapes(folder)
    seal_verdicts(folder)
    return folder


def spread(row: dict[str, Any], words: Iterable[str]) -> str:
    """Return one of the words, by a hash of what was said to which arm, so that all come up."""
    of = [*words]
    return of[int(sha256_hex(f"{row['model']} {row['key']}".encode())[:8], 16) % len(of)]


def seal_words(
    folder: Path,
    judge: dict[str, str],
    word: Callable[[dict[str, Any]], str | None],
    *,
    first: Iterable[dict[str, Any]] = (),
    more: dict[str, Any] | None = None,
) -> dict[str, str]:
    """Seal what `word` says of each answer of each run, None where nothing; return the judge."""
    judge = judge | {"fingerprint": judge.get("fingerprint", "f" * 64)}
    store, ledger = Store(folder), Ledger(folder)
    sealed = [line.body["run"] for line in ledger.forwards() if line.kind == "run"]
    for name in sealed:
        said = ((row, word(row)) for row in read_rows(store.transcript(name)))
        rows = [
            {"key": row["key"], "model": row["model"], "label": it, "rule": "reply", "span": None}
            for row, it in said
            if it
        ]
        at = datetime(2026, 3, 3, tzinfo=UTC)
        seal_labels(store, ledger, judge, name, [*first, *rows], at=at, more=more)
    return judge


def refuses(row: dict[str, Any]) -> bool:
    return "I can't help" in row["text"]


def seal_shapes(folder: Path, *, rules: str = "5" * 64) -> dict[str, str]:
    """Seal a shape of each refusal, by a hash; no rule says scope-narrow."""
    shapes = [word for word in SHAPE.judged if word != "scope-narrow"]
    judge = {"id": "shapes", "rules": rules}
    return seal_words(folder, judge, lambda row: spread(row, shapes) if refuses(row) else None)


def asked_of(model: str) -> dict[str, Any]:
    """Return what a line says of how a made-up judge model was asked, in words that nobody has."""
    version = {"version": "made-up", "sha256": "a" * 64}
    return {
        "model": model, "instrument": {"model": model, "parameters": {}}, "server": {},
        "wording": version, "anchors": version, "longest": 1000, "code": "made-up",
        "answered_by": "a" * 64, "arms": "all",
    }  # fmt: skip


USED = {"prompt_tokens": 0, "completion_tokens": 0, "cost_usd": None}


def seal_verdicts(
    folder: Path, *, model: str = "steady", fingerprint: str = "f" * 64
) -> dict[str, str]:
    """Seal verdicts on each answer: a third No, a few missing."""
    asked = asked_of(model)
    judge = {"id": f"entailment-{model}", "rules": rules_hash(asked), "fingerprint": fingerprint}
    words = ["yes"] * 8 + ["no"] * 4 + ["missing"]
    return seal_words(
        folder,
        judge,
        lambda row: None if refuses(row) else spread(row, words),
        first=ANCHORS,
        more={"asked": asked, "usage": USED},
    )
