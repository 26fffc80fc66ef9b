"""A project with a panel of two scripted models, and runs of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conftest import Ticking
from loopback import Loopback, Reply, Request, completion

from drift.config import canonical_json, load_panel, sha256_hex
from drift.records.ledger import GENESIS
from drift.refresh import Outcome, Record

REFUSAL = "I'm sorry, but I can't help with that."
ANSWER = (
    "There are three things to know here. The first is when it began, the second is who "
    "took part, and the third is what followed from it in the years after."
)
ZH_ANSWER = "这件事主要有三个方面：第一是它开始的时间，第二是参与的人，第三是此后几年里带来的影响。"
MODELS = ("steady", "subject")


def write_panel(
    project: Path,
    base_url: str,
    *,
    models: tuple[str, ...] = MODELS,
    head: str = "",
    each: str = "",
) -> None:
    """Write ``config/panels/test.toml``; `each` is added to every model."""
    text = f'name = "test"\ntitle = "Test panel"\n{head}\n'
    for key in models:
        text += (
            f'[[models]]\nkey = "{key}"\nkind = "openai"\nmodel = "lab/{key}"\n'
            f'base_url = "{base_url}"\nmax_tokens = 48\nconcurrency = 4\nattempts = 1\n{each}\n'
        )
    (project / "config" / "panels" / "test.toml").write_text(text)


def record(project: Path, clock: Ticking) -> Record:
    panel = load_panel("test", root=project)
    return Record(panel, folder=project / "data" / "test", root=project, clock=clock)


def run(project: Path, clock: Ticking, **options: object) -> Outcome:
    """Make one run of the test panel."""
    made = record(project, clock)
    with made.opened():
        return made.refresh(**options)  # type: ignore[arg-type]


def answering(request: Request) -> Reply:
    """Answer in the language of the question."""
    chinese = any("\u4e00" <= character <= "\u9fff" for character in request.prompt)
    return completion(ZH_ANSWER if chinese else ANSWER)


def refusing(when: Callable[[Request], bool]) -> Callable[[Request], Reply]:
    """Script a server that refuses when `when` says so, and answers otherwise."""
    return lambda request: completion(REFUSAL) if when(request) else answering(request)


def make_runs(
    project: Path, clock: Ticking, number: int, when: Callable[[Request], bool] | None = None
) -> Path:
    """Make `number` runs six hours apart and return the record's folder."""
    with Loopback(refusing(when or (lambda request: False))) as server:
        write_panel(project, server.base_url)
        for _ in range(number):
            outcome = run(project, clock)
            assert outcome.sealed and outcome.exit_code == 0, outcome.notes
            clock.advance(hours=6)
    return project / "data" / "test"


def reseal(folder: Path, seq: int, body: dict[str, Any]) -> None:
    """Put another body in the place of a ledger line, and link what follows anew."""
    chain = [json.loads(raw) for raw in (folder / "chain.jsonl").read_bytes().splitlines()]
    kept = {name: chain[seq][name] for name in ("seq", "prev", "kind", "at")}
    chain[seq] = body | kept
    prev, raws = GENESIS, []
    for line in chain:
        raw = canonical_json(line | {"prev": prev})
        prev = sha256_hex(raw)
        raws.append(raw + b"\n")
    (folder / "chain.jsonl").write_bytes(b"".join(raws))
    head = {"seq": chain[-1]["seq"], "hash": prev}
    (folder / "head.json").write_bytes(canonical_json(head) + b"\n")
