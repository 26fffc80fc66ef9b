"""The loop around the replies: what is sent, waits, walls, keeping, secrets."""

from __future__ import annotations

import asyncio
import gzip
import logging
import random
from decimal import Decimal
from typing import Any

import httpx
import pytest
from asking import KEY, NOON, ask_all, ask_script, questions, subject
from loopback import Loopback, Reply, Request, as_json, completion, failing, in_turn

from drift.config import ModelSpec, canonical_json, sha256_hex
from drift.errors import ConfigurationError, DriftError, PartialError, PausedError
from drift.probing import Ask, Response, ask_model
from drift.probing.replies import BODY_CAP

PLAIN = completion("Water boils at 100 °C.")


def sent(model: ModelSpec, asks: int | list[Ask] = 1, **options: Any) -> Request:
    with Loopback(lambda request: PLAIN) as server:
        ask_all(server, asks, model, **options)
    return server.requests[0]


def test_the_request_holds_the_instrument_and_nothing_else() -> None:
    model = subject(
        parameters={"temperature": Decimal("0.70"), "top_p": Decimal("1.0"), "top_k": 40},
        system_prompt="Be brief.",
        provider={"order": ["lab"], "max_price": {"prompt": Decimal("0.5")}},
    )
    request = sent(model, seed=7)
    assert request.path == "/v1/chat/completions"
    assert request.document == {
        "model": "lab/model-1",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Question 0?"},
        ],
        "max_tokens": 48,
        "temperature": 0.7,
        "top_p": 1,
        "top_k": 40,
        "seed": 7,
        "provider": {"order": ["lab"], "max_price": {"prompt": 0.5}},
    }
    assert type(request.document["top_p"]) is int
    assert request.headers["authorization"] == f"Bearer {KEY}"


def test_max_completion_tokens_takes_the_place_of_max_tokens() -> None:
    document = sent(subject(parameters={"max_completion_tokens": 900})).document
    assert document["max_completion_tokens"] == 900
    assert "max_tokens" not in document


def test_no_key_variable_means_no_authorization() -> None:
    assert "authorization" not in sent(subject(api_key_env=None), environ={}).headers


def test_a_row_carries_the_hash_of_the_messages_that_were_sent() -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi?"}]
    asks = [Ask("board/x@2", (messages[1],), in_corpus=False)]
    row = ask_script(lambda request: PLAIN, asks, subject(system_prompt="Be brief.")).row
    assert row.messages == messages
    assert row.messages_sha256 == sha256_hex(canonical_json(messages))
    assert (row.asked_at, row.model) == ("2026-03-01T12:00:00.000Z", "subject")
    assert ask_script(lambda request: PLAIN).row.messages is None


def test_our_own_fingerprint_wins_over_the_servers() -> None:
    reply = as_json({"choices": [{"message": {"content": "a"}}], "system_fingerprint": "b0"})
    assert ask_script(lambda request: reply, fingerprint="llama.cpp, AVX2").row.fingerprint == (
        "llama.cpp, AVX2"
    )


@pytest.mark.parametrize(
    "reply",
    [
        Reply(b" " * (1 << 20), repeat=50),
        Reply(gzip.compress(b" " * (9 << 20)), headers=(("content-encoding", "gzip"),)),
    ],
    ids=["50 MB", "9 MB in a small gzip"],
)
def test_a_body_over_the_cap_is_failed_without_reading_the_rest(reply: Reply) -> None:
    with Loopback(lambda request: reply) as server:
        row = ask_all(server).row
    assert row.status == "failed"
    assert row.error is not None and row.error["code"] == "too-large"
    assert server.bytes_sent < 2 * BODY_CAP + (8 << 20)
    assert row.raw is None or len(row.raw) < 100_000


def test_a_slow_reply_is_failed_after_the_timeout_of_each_try() -> None:
    slow = completion("late", delay=30)
    asked = ask_script(lambda request: slow, 1, subject(timeout_s=1, attempts=2))
    assert asked.row.error == {
        "http": None,
        "code": "timeout",
        "message": "no complete reply within 1 s",
    }
    assert asked.tries == 2


def test_a_refused_connection_is_failed_and_the_next_question_is_asked() -> None:
    with Loopback(lambda request: PLAIN) as server:
        gone = server.base_url
    with Loopback(lambda request: PLAIN) as server:
        asked = ask_all(server, 2, base_url=gone)
    assert [row.error and row.error["code"] for row in asked.rows] == ["connection"] * 2


def test_a_server_that_is_never_there_ends_the_model_after_three_questions() -> None:
    with Loopback(lambda request: PLAIN) as server:
        gone = server.base_url
    with Loopback(lambda request: PLAIN) as server:
        asked = ask_all(server, 20, base_url=gone)
    assert len(asked.rows) == 3
    assert asked.error is not None and asked.error.exit_code == 5
    assert "no connection" in str(asked.error) and "next:" in str(asked.error)


def test_backoff_doubles_with_full_jitter() -> None:
    asked = ask_script(lambda request: failing(503), 1, subject(attempts=9))
    assert asked.waits == [0.5, 1, 2, 4, 8, 16, 30, 30]


@pytest.mark.parametrize(
    ("header", "wait"),
    [
        ("7", 7),
        ("0.1", 0.5),
        ("Sun, 01 Mar 2026 12:00:09 GMT", 9),
        ("Sun, 01 Mar 2026 11:00:00 GMT", 0.5),
        ("Sun, 01 Mar 2026 12:00:09", 9),
        ("soon", 0.5),
        ("-3", 0.5),
        ("9" * 30, 0.5),
        ("Sun, 99 Mar 99999999999 12:00:09 GMT", 0.5),
    ],
)
def test_retry_after_is_honoured_in_seconds_and_as_a_date(header: str, wait: float) -> None:
    asked = ask_script(in_turn(failing(503, retry_after=header), PLAIN))
    assert asked.waits == [wait]
    assert asked.row.status == "ok"


def test_a_wait_beyond_the_time_budget_fails_the_question_at_once() -> None:
    asked = ask_script(lambda request: failing(503, retry_after="4000"), time_budget_s=3600)
    assert (asked.row.status, asked.row.attempts, asked.waits) == ("failed", 1, [])
    assert asked.error is None


def test_a_rate_limit_beyond_the_time_budget_pauses_the_model() -> None:
    asked = ask_script(lambda request: failing(429, retry_after="4000"), 5, time_budget_s=3600)
    assert isinstance(asked.error, PausedError)
    assert (asked.row.status, asked.tries) == ("failed", 1)


def test_no_question_is_begun_when_the_time_is_over() -> None:
    asked = ask_script(lambda request: PLAIN, 5, time_budget_s=0)
    assert isinstance(asked.error, PausedError)
    assert (asked.rows, asked.tries) == ([], 0)


def test_concurrency_is_bounded_and_used() -> None:
    with Loopback(lambda request: completion("a", delay=0.01)) as server:
        ask_all(server, 60, subject(concurrency=8))
    assert server.most_in_flight == 8
    assert set(server.counts.values()) == {1}


@pytest.mark.parametrize("concurrency", [1, 3])
def test_an_answer_is_durable_before_its_worker_asks_again(concurrency: int) -> None:
    """At every request, all earlier ones but those in flight have been kept."""
    kept: list[str] = []
    unkept: list[int] = []

    def script(request: Request) -> Reply:
        unkept.append(len(server.requests) - len(kept))
        return PLAIN

    async def keep(row: Response) -> None:
        await asyncio.sleep(0.002)
        kept.append(row.key)

    with Loopback(script) as server:
        ask_all(server, 30, subject(concurrency=concurrency), keep=keep)
    assert len(kept) == 30
    assert max(unkept) <= concurrency


def test_a_wall_keeps_one_failed_row_and_every_answer_that_came() -> None:
    def script(request: Request) -> Reply:
        number = int(request.prompt.split()[1].rstrip("?"))
        return completion("a") if number < 10 else failing(401)

    with Loopback(script) as server:
        asked = ask_all(server, 40, subject(concurrency=4))
    assert isinstance(asked.error, PartialError)
    statuses = [row.status for row in asked.rows]
    assert (statuses.count("ok"), statuses.count("failed")) == (10, 1)
    assert server.counts.total() <= 14


def test_a_wall_ends_the_waits_of_other_questions() -> None:
    waiting = asyncio.Event()

    async def sleep(seconds: float) -> None:
        waiting.set()
        await asyncio.Event().wait()

    def script(request: Request) -> Reply:
        return failing(503) if request.prompt == "Question 0?" else as_json({}, 401, delay=0.05)

    with Loopback(script) as server:
        asked = ask_all(server, 2, subject(concurrency=2), sleep=sleep)
    assert waiting.is_set()
    assert isinstance(asked.error, PartialError)
    assert asked.row.key == "t/q-1#en-1"


def test_an_answer_that_cannot_be_stored_ends_the_run_with_that_error() -> None:
    async def keep(row: Response) -> None:
        raise DriftError("the disk is full")

    asked = ask_script(lambda request: PLAIN, 20, subject(concurrency=4), keep=keep)
    assert str(asked.error) == "the disk is full"
    assert asked.tries <= 4


@pytest.mark.parametrize("value", [None, "", "  ", "two words", "ключ", "line\nbreak"])
def test_an_unusable_key_is_named_by_its_variable_before_any_request(value: str | None) -> None:
    environ = {} if value is None else {"PROVIDER_KEY": value}
    asked = ask_script(lambda request: PLAIN, environ=environ)
    assert isinstance(asked.error, ConfigurationError)
    assert "PROVIDER_KEY" in str(asked.error)
    assert asked.tries == 0
    assert not (value or "").strip() or value not in str(asked.error)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://127.0.0.1/v1",
        "http://",
        "http://127.0.0.1:99999/v1",
        "http://[::1/v1",
        "http://user:pass@127.0.0.1/v1",
        "http://127.0.0.1/v1?key=abc",
        "http://127.0.0.1/\x00",
    ],
)
def test_an_unusable_base_url_is_a_configuration_error(url: str) -> None:
    asked = ask_script(lambda request: PLAIN, base_url=url)
    assert isinstance(asked.error, ConfigurationError)
    assert "base_url" in str(asked.error)


@pytest.mark.parametrize("parameters", [{"stream": True}, {"n": 2}, {"messages": "x"}])
def test_a_parameter_that_the_client_sets_itself_is_a_configuration_error(parameters: Any) -> None:
    asked = ask_script(lambda request: PLAIN, 1, subject(parameters=parameters))
    assert isinstance(asked.error, ConfigurationError)
    assert asked.tries == 0


def test_a_redirect_does_not_carry_the_key_to_another_host() -> None:
    with Loopback(lambda request: PLAIN) as other:
        reply = as_json({}, 307, headers=(("location", f"{other.base_url}/chat/completions"),))
        row = ask_script(lambda request: reply).row
    assert row.error is not None and row.error["code"] == "redirect"
    assert other.requests == []


def test_no_cookie_ties_a_request_to_an_earlier_one() -> None:
    reply = as_json({"choices": []}, headers=(("set-cookie", "route=7; Path=/"),))
    with Loopback(lambda request: reply) as server:
        ask_all(server, 2)
    assert all("cookie" not in request.headers for request in server.requests)


def test_a_proxy_of_the_environment_is_not_used_for_loopback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    assert ask_script(lambda request: PLAIN).row.status == "ok"


ECHO = f"Incorrect API key provided: {KEY}. Header was 'Bearer {KEY}'"


@pytest.mark.parametrize(
    "reply",
    [
        failing(401, "invalid_api_key", ECHO),
        failing(400, KEY, ECHO),
        failing(429, "insufficient_quota", ECHO),
        failing(500, "x", ECHO),
        Reply(f"<html>{ECHO}</html>".encode(), 502),
        Reply(ECHO.encode()),
        as_json({"choices": [{"message": {"content": None}, "error": {"message": ECHO}}]}),
        as_json({"choices": [{"message": {"content": ""}}], "model": KEY, "id": KEY}),
        as_json({"choices": [{"message": {"content": f"Your key is {KEY}."}}]}),
        as_json({"choices": [{"message": {"content": "", "reasoning": f"Key {KEY}"}}]}),
        Reply(('{"error": "\\u0073' + KEY[1:] + '"}').encode(), 400),
        as_json({}, 302, headers=(("location", f"http://127.0.0.1/?key={KEY}"),)),
        Reply(raw=b"HTTP/1.1 200 " + KEY.encode() + b"\r\nbad header " + KEY.encode()),
    ],
)
def test_a_key_that_the_provider_repeats_is_stored_nowhere(
    reply: Reply, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.DEBUG, logger="httpx"):
        asked = ask_script(lambda request: reply)
    said = [repr(asked.rows), str(asked.error), repr(asked.error), caplog.text, *capfd.readouterr()]
    said += [str(row.document()) for row in asked.rows]
    assert asked.rows
    assert not [text for text in said if KEY in text or KEY[8:] in text]


def test_an_answer_with_a_token_in_it_is_not_altered() -> None:
    text = "Use sk-abcdefghijklmnopqrstuvwxyz0123456789 as an example."
    assert ask_script(lambda request: completion(text)).row.text == text


def test_the_client_can_be_asked_without_a_network() -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"choices": [{"message": {"content": "offline"}}]})

    rows = []

    async def keep(row: Response) -> None:
        rows.append(row.text)

    asyncio.run(
        ask_model(
            subject(),
            questions(1),
            keep=keep,
            clock=lambda: NOON,
            transport=httpx.MockTransport(handle),
            environ={"PROVIDER_KEY": KEY},
        )
    )
    assert rows == ["offline"]


def test_a_damaged_http_reply_becomes_a_row() -> None:
    chance = random.Random(20261129)
    whole = b'{"choices":[{"message":{"content":"hello there"}}]}'
    whole = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(whole), whole)
    pieces = [b"\r\n", b"transfer-encoding: chunked\r\n", b"content-length: -1\r\n", b"\x00" * 99]

    def script(request: Request) -> Reply:
        damaged = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            place = chance.randrange(len(damaged))
            damaged[place : place + chance.randint(0, 9)] = chance.choice(
                [b"", chance.randbytes(3), *pieces]
            )
        return Reply(raw=bytes(damaged))

    asked = ask_script(script, 200, subject(concurrency=8, attempts=1))
    assert (len(asked.rows), asked.error) == (200, None)
    assert {row.status for row in asked.rows} >= {"ok", "failed"}
