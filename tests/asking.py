"""A small model and a way to ask it, for the tests of the client."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from loopback import Loopback, Script

from drift.config import ModelSpec
from drift.errors import DriftError
from drift.probing import Ask, Response, ask_model

KEY = "sk-test-Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5MA"
NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def subject(**fields: Any) -> ModelSpec:
    """Return a model asked through a key in PROVIDER_KEY, three tries, one at a time."""
    plain: dict[str, Any] = {
        "key": "subject",
        "kind": "openai",
        "model": "lab/model-1",
        "base_url": "http://127.0.0.1:9/v1",
        "api_key_env": "PROVIDER_KEY",
        "max_tokens": 48,
        "concurrency": 1,
        "attempts": 3,
        "timeout_s": 20,
    }
    return ModelSpec(**(plain | fields))


def questions(number: int, in_corpus: bool = True) -> list[Ask]:
    return [
        Ask(f"t/q-{n}#en-1", ({"role": "user", "content": f"Question {n}?"},), in_corpus)
        for n in range(number)
    ]


class Asked:
    """What one run of the client left: rows as kept, waits, the error, the number of requests."""

    def __init__(self) -> None:
        self.rows: list[Response] = []
        self.waits: list[float] = []
        self.error: DriftError | None = None
        self.tries = 0

    @property
    def row(self) -> Response:
        assert len(self.rows) == 1, self.rows
        return self.rows[0]


def ask_all(
    server: Loopback, asks: int | list[Ask] = 1, model: ModelSpec | None = None, **options: Any
) -> Asked:
    """Ask a server; no wait is really waited for, and the jitter is always one half."""
    asked = Asked()

    async def keep(row: Response) -> None:
        asked.rows.append(row)

    async def sleep(seconds: float) -> None:
        asked.waits.append(seconds)

    settings: dict[str, Any] = {
        "keep": keep,
        "clock": lambda: NOON,
        "base_url": server.base_url,
        "environ": {"PROVIDER_KEY": KEY},
        "sleep": sleep,
        "jitter": lambda: 0.5,
    }
    found = questions(asks) if isinstance(asks, int) else asks
    try:
        asyncio.run(ask_model(model or subject(), found, **(settings | options)))
    except DriftError as error:
        asked.error = error
    asked.tries = server.counts.total()
    return asked


def ask_script(script: Script, *args: Any, **options: Any) -> Asked:
    """As `ask_all`, of a server that follows `script` for this one call."""
    with Loopback(script) as server:
        return ask_all(server, *args, **options)
