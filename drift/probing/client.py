"""Asks one model over HTTP: bounded concurrency, retries, walls, answers kept at once.

Any server that speaks the OpenAI-compatible ``/chat/completions`` will do: a remote
provider, an aggregator, vLLM, Ollama, llama.cpp, or our own embedded server.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from decimal import Decimal
from email.utils import parsedate_to_datetime
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpx

from drift import __version__
from drift.config import Clock, ModelSpec, canonical_json, sha256_hex, timestamp
from drift.errors import ConfigurationError, DriftError, PartialError, PausedError
from drift.probing.replies import BODY_CAP, Verdict, failure, read_reply
from drift.probing.response import Ask, Response

#: The n-th retry waits a uniform share of BACKOFF_S * 2**(n-1) seconds, at most BACKOFF_CAP_S.
BACKOFF_S, BACKOFF_CAP_S = 1.0, 60.0
#: Longest wait for a connection, in seconds; a whole reply may take ``model.timeout_s``.
CONNECT_S = 15
#: Questions that must find no server before a model is given up in a run.
UNREACHED = 3
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_OURS = frozenset({"model", "messages", "stream", "n"})

Keep = Callable[[Response], Awaitable[None]]


def messages_sha256(messages: Iterable[Mapping[str, str]]) -> str:
    """Return the SHA-256 of the canonical JSON of `messages`, system prompt included."""
    return sha256_hex(canonical_json([dict(message) for message in messages]))


async def ask_model(
    model: ModelSpec,
    asks: Sequence[Ask],
    *,
    keep: Keep,
    clock: Clock,
    base_url: str | Sequence[str] | None = None,
    seed: int | None = None,
    time_budget_s: float = 3600,
    transport: httpx.AsyncBaseTransport | None = None,
    environ: Mapping[str, str] = os.environ,
    fingerprint: str | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    jitter: Callable[[], float] = random.random,
) -> None:
    """Ask every key of `asks` in this order, with ``model.concurrency`` in flight.

    `keep` returns once the answer is durable. It is awaited before its worker takes the
    next question, so that at most ``model.concurrency`` answers can be lost. `base_url` is
    used in place of ``model.base_url``; several are equal servers, for workers in turn.
    `seed` is the one to send, and `fingerprint` is stored in place of what the server
    reports. After `time_budget_s` seconds no question is begun and no retry waited for.
    `clock` gives the present UTC time; `transport`, `sleep` and `jitter` (a number in
    [0, 1)) can stand in for network, time and chance.

    A wrong base URL, key variable or parameter is a ConfigurationError; a used-up quota,
    credit or time budget a PausedError; a refused key, a model that is gone and a server
    that was never there a PartialError. Everything else becomes a row. The first reply
    that shows a reason to stop is kept as a `failed` row; questions in flight that meet
    one too stay unasked. ``asked_at`` and ``latency_ms`` are those of the attempt stored.
    """
    secret = read_secret(model, environ)
    given = base_url or model.base_url or ""
    urls = [_checked(model, url) for url in ([given] if isinstance(given, str) else given)]
    payload, deadline = request_of(model, seed), time.monotonic() + time_budget_s
    asker = _Asker(model, payload, secret, clock, fingerprint, sleep, jitter, deadline)
    headers = {"user-agent": f"refusal-drift/{__version__}", "accept-encoding": "gzip"}
    headers |= {"content-type": "application/json"}
    headers |= {"authorization": f"Bearer {secret}"} if secret else {}
    remote = urls[0].host not in _LOOPBACK
    settings: dict[str, Any] = {
        "headers": headers,
        # A cookie would tie later requests to earlier ones.
        "cookies": CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        "timeout": httpx.Timeout(None, connect=min(CONNECT_S, model.timeout_s)),
        "limits": httpx.Limits(max_connections=1),
        "trust_env": remote,
        "verify": httpx.create_ssl_context(trust_env=remote),
        "transport": transport,
    }
    queue = iter(asks)
    try:
        async with asyncio.TaskGroup() as group:
            for number in range(min(model.concurrency, len(asks))):
                # A pool of httpx scans its connections for each of them at each request: one
                # pool a worker takes a fifth of the processor time at 64 in flight.
                client = httpx.AsyncClient(base_url=urls[number % len(urls)], **settings)
                group.create_task(asker.work(client, queue, keep))
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    if asker.stopped:
        raise asker.stopped


@dataclass
class _Asker:
    """What the workers of one model share."""

    model: ModelSpec
    payload: dict[str, Any]
    secret: str | None = field(repr=False)
    clock: Clock
    fingerprint: str | None
    sleep: Callable[[float], Awaitable[None]]
    jitter: Callable[[], float]
    deadline: float
    stopped: DriftError | None = None
    reached: bool = False
    unreached: int = 0
    waiting: set[asyncio.Future[None]] = field(default_factory=set)

    async def work(self, client: httpx.AsyncClient, queue: Iterable[Ask], keep: Keep) -> None:
        async with client:
            for ask in queue:
                if time.monotonic() >= self.deadline and not self.stopped:
                    self.stopped = self.out_of_time()
                if self.stopped:
                    return
                response, wall = await self.ask(client, ask)
                if response is None or (wall and self.stopped):
                    return
                if wall:
                    self.stopped = wall
                    for wait in self.waiting:
                        wait.cancel()
                await keep(response)

    async def ask(
        self, client: httpx.AsyncClient, ask: Ask
    ) -> tuple[Response | None, DriftError | None]:
        """Return the response to one question and the wall it met; None if given up."""
        messages = [dict(message) for message in ask.messages]
        if self.model.system_prompt is not None:
            messages.insert(0, {"role": "system", "content": self.model.system_prompt})
        payload = self.payload | {"messages": messages}
        payload |= {} if ask.seed is None else {"seed": ask.seed}
        body = json.dumps(payload, ensure_ascii=False, default=json_number).encode()
        for attempt in range(1, self.model.attempts + 1):
            asked_at, began = timestamp(self.clock()), time.monotonic()
            verdict = await self.exchange(client, body)
            latency = round((time.monotonic() - began) * 1000)
            wall, error = verdict.wall, verdict.fields.get("error") or {}
            if not verdict.retry or attempt == self.model.attempts:
                break
            if self.stopped:
                return None, None
            wait = self.wait(attempt, verdict.retry_after)
            if time.monotonic() + wait > self.deadline:
                wall = self.out_of_time() if error["http"] == 429 else None
                break
            await self.pause(wait)
        if error.get("code") == "connection" and not self.reached:
            wall = self.silence(error["message"])
        fingerprint = {"fingerprint": self.fingerprint} if self.fingerprint is not None else {}
        response = Response(
            key=ask.key,
            model=self.model.key,
            attempts=attempt,
            asked_at=asked_at,
            latency_ms=latency,
            messages_sha256=messages_sha256(messages),
            messages=None if ask.in_corpus else messages,
            **verdict.fields | fingerprint,
        )
        return response, wall

    async def pause(self, seconds: float) -> None:
        """Wait before a retry; a wall met meanwhile ends the worker instead."""
        waiting = asyncio.ensure_future(self.sleep(seconds))
        self.waiting.add(waiting)
        waiting.add_done_callback(self.waiting.discard)
        await waiting

    def wait(self, attempt: int, retry_after: str | None) -> float:
        """Return the seconds to wait: full jitter, or what the provider asks if that is longer."""
        wait: float = self.jitter() * min(BACKOFF_CAP_S, BACKOFF_S * 2.0 ** (attempt - 1))
        text = (retry_after or "").strip()
        if re.fullmatch(r"\d{1,9}(\.\d+)?", text):
            return max(wait, float(text))
        try:
            moment = parsedate_to_datetime(text)
        except (ValueError, TypeError, IndexError, OverflowError):
            return wait
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return max(wait, (moment - self.clock()).total_seconds())

    async def exchange(self, client: httpx.AsyncClient, body: bytes) -> Verdict:
        """Send one request and read its reply, whatever happens on the way."""
        try:
            async with (
                asyncio.timeout(self.model.timeout_s),
                client.stream("POST", "chat/completions", content=body) as reply,
            ):
                self.reached = True
                headers, received = reply.headers, bytearray()
                if reply.is_stream_consumed:  # an in-memory transport's, read and decoded
                    headers, received = httpx.Headers(), bytearray(reply.content)
                else:
                    async for chunk in reply.aiter_raw():
                        received += chunk
                        if len(received) > BODY_CAP:
                            message = f"the body is longer than {BODY_CAP} bytes"
                            return failure("too-large", message)
            return read_reply(
                reply.status_code,
                headers,
                bytes(received),
                model=self.model,
                secret=self.secret,
                sent=self.payload,
            )
        except (TimeoutError, httpx.TimeoutException):
            message = f"no complete reply within {self.model.timeout_s} s"
            return failure("timeout", message, retry=True)
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError, ValueError) as error:
            broken = isinstance(error, (httpx.TransportError, OSError))
            code, message = (
                "connection" if broken else "protocol",
                f"{type(error).__name__}: {error}",
            )
            return failure(code, message, secret=self.secret, retry=broken)

    def silence(self, said: str) -> DriftError | None:
        """Count a question that found no server; return why to stop after several of them."""
        self.unreached += 1
        if self.unreached < UNREACHED:
            return None
        return PartialError(
            f"{self.model.key}: no connection to its server at {self.model.base_url}",
            got=said,
            next_step="start the server or correct base_url, then run the command again",
        )

    def out_of_time(self) -> PausedError:
        return PausedError(
            f"{self.model.key}: the run's time budget is used up",
            next_step="resume the run later, or raise time_budget_s in the panel",
        )


def read_secret(model: ModelSpec, environ: Mapping[str, str]) -> str | None:
    """Return the API key of `model`; ConfigurationError where its variable holds no usable one."""
    if model.api_key_env is None:
        return None
    secret = environ.get(model.api_key_env, "").strip()
    if not re.fullmatch("[!-~]+", secret):
        raise ConfigurationError(
            f"{model.key}: no usable API key in the environment",
            where=f"variable {model.api_key_env}",
            got="a value with spaces, control or non-ASCII characters" if secret else "no value",
            next_step=f"set {model.api_key_env}, or leave the model out with --models",
        )
    return secret


def _checked(model: ModelSpec, base_url: str) -> httpx.URL:
    with contextlib.suppress(httpx.InvalidURL, ValueError):
        url = httpx.URL(base_url)
        plain = not (url.userinfo or url.query or url.fragment)
        if plain and url.scheme in ("http", "https") and url.host and 0 < (url.port or 80) < 65536:
            return url
    raise ConfigurationError(
        f"{model.key}: base_url is not usable",
        expected="such as https://openrouter.ai/api/v1; a key belongs into api_key_env",
    )


def request_of(model: ModelSpec, seed: int | None) -> dict[str, Any]:
    """Return the request without its messages: what the instrument holds, and nothing else."""
    if wrong := sorted(_OURS & model.parameters.keys()):
        raise ConfigurationError(
            f"{model.key}: the client itself sets the parameter {', '.join(wrong)}",
            next_step="leave it out of the panel",
        )
    payload: dict[str, Any] = {"model": model.model, "messages": []}
    if "max_completion_tokens" not in model.parameters:
        payload["max_tokens"] = model.max_tokens
    further = {"seed": seed, "provider": model.provider}
    return payload | model.parameters | {k: v for k, v in further.items() if v is not None}


def json_number(value: Any) -> int | float:
    """Write a decimal as the shortest JSON number."""
    if not isinstance(value, Decimal):
        raise TypeError(f"{type(value).__name__} in a request")
    return int(value) if value == value.to_integral_value() else float(value)
