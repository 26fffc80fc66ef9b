"""Each reply that a provider may send, over a real connection: its status, and the tries made."""

from __future__ import annotations

from typing import Any

import pytest
from asking import ask_script, subject
from loopback import (
    Reply,
    Script,
    as_json,
    completion,
    completion_document,
    failing,
    gzip_cut,
    in_turn,
)

from drift.errors import ConfigurationError, PartialError, PausedError

REFUSAL = "I'm sorry, I can't help with that."
PLAIN = completion("Water boils at 100 °C.")


def always(reply: Reply) -> Script:
    return lambda request: reply


def choice(**fields: object) -> Reply:
    return as_json({"id": "r", "model": "served", "choices": [fields]})


def document(**changes: object) -> Reply:
    return as_json(completion_document("Text.") | changes)


#: name: reply, then status, text, tries, and further fields of the row.
ROWS: dict[str, tuple[Reply, str, str, int, dict[str, Any]]] = {
    "plain text": (PLAIN, "ok", "Water boils at 100 °C.", 1, {"raw": None, "error": None}),
    "text cut by the limit": (completion("Water", "length"), "truncated", "Water", 1, {}),
    "reasoning used up the limit": (
        as_json(completion_document("", "length", reasoning_content="Let me think")),
        "empty",
        "",
        1,
        {"reasoning": "Let me think"},
    ),
    "refusal field": (
        as_json(completion_document(None, "stop", refusal=REFUSAL)),
        "ok",
        REFUSAL,
        1,
        {"declined": True},
    ),
    "refusal part": (
        completion([{"type": "refusal", "refusal": REFUSAL}]),
        "ok",
        REFUSAL,
        1,
        {"declined": True},
    ),
    "text parts": (
        completion([{"type": "text", "text": "Water "}, {"type": "text", "text": "boils."}]),
        "ok",
        "Water boils.",
        1,
        {"declined": False},
    ),
    "no choices, a lasting error": (
        as_json({"choices": None, "error": {"code": "bad_thing", "message": "no"}}),
        "failed",
        "",
        1,
        {},
    ),
    "no choices, a filter's error": (
        as_json({"error": {"code": "content_filter", "message": "no"}}),
        "blocked",
        "",
        1,
        {},
    ),
    "no choices, a passing error": (
        as_json({"error": {"code": 502, "message": "upstream"}}),
        "failed",
        "",
        3,
        {},
    ),
    "withdrawn answer": (
        choice(
            message={"content": "To begin"},
            finish_reason="error",
            error={"code": 502, "message": "withdrawn"},
        ),
        "blocked",
        "To begin",
        1,
        {},
    ),
    "filter without text": (completion("", "content_filter"), "blocked", "", 1, {}),
    "filter with text": (completion("To be", "content_filter"), "blocked", "To be", 1, {}),
    "stop reason refusal": (
        choice(message={"content": ""}, stop_reason="refusal"),
        "blocked",
        "",
        1,
        {"declined": True},
    ),
    "stop reason refusal without choices": (
        as_json({"type": "message", "content": [], "stop_reason": "refusal"}),
        "blocked",
        "",
        1,
        {"declined": True},
    ),
    "message null": (choice(message=None, finish_reason=None), "blocked", "", 1, {}),
    "400 by the filter": (failing(400, "content_filter"), "blocked", "", 1, {}),
    "429 by the filter": (failing(429, "content_filter"), "blocked", "", 1, {}),
    "403 by moderation": (
        as_json({"error": {"code": 403, "message": "no", "metadata": {"reasons": ["x"]}}}, 403),
        "blocked",
        "",
        1,
        {},
    ),
    "400 by the filter, in words": (
        failing(400, "invalid_request_error", "Output blocked by content filtering policy"),
        "blocked",
        "",
        1,
        {},
    ),
    "400 flagged prompt": (failing(400, "invalid_prompt"), "blocked", "", 1, {}),
    "400 of an aggregator's provider": (
        failing(400, 400, "Provider returned error: invalid request"),
        "failed",
        "",
        1,
        {},
    ),
    "400 context too long": (
        failing(400, "context_length_exceeded", "max_tokens is too large for the context length"),
        "failed",
        "",
        1,
        {},
    ),
    "HTML": (Reply(b"<html>busy</html>"), "failed", "", 1, {}),
    "invalid JSON": (Reply(b'{"choices": ['), "failed", "", 1, {}),
    "invalid UTF-8": (Reply(b'{"choices": "\xff"}'), "failed", "", 1, {}),
    "empty body": (Reply(b""), "failed", "", 1, {}),
    "gzip cut short": (gzip_cut(completion_document("Text.")), "failed", "", 1, {}),
    "other served model": (
        document(model="lab/model-2", system_fingerprint="fp_9", provider="Elsewhere"),
        "ok",
        "Text.",
        1,
        {"served_model": "lab/model-2", "fingerprint": "fp_9", "provider": "Elsewhere"},
    ),
    "lone surrogate": (
        Reply(b'{"choices": [{"message": {"content": "a\\ud800b"}, "finish_reason": "stop"}]}'),
        "ok",
        "a\ufffdb",
        1,
        {"notes": ("lone surrogate replaced by U+FFFD in text: 1",)},
    ),
    "surrogate pair": (
        Reply(b'{"choices": [{"message": {"content": "\\ud83d\\ude00"}}]}'),
        "ok",
        "\U0001f600",
        1,
        {"notes": ()},
    ),
    "tool calls alone": (
        as_json(completion_document(None, "tool_calls", tool_calls=[{"id": "1"}])),
        "empty",
        "",
        1,
        {},
    ),
    "two choices": (
        document(
            choices=completion_document("One")["choices"] + completion_document("2")["choices"]
        ),
        "ok",
        "One",
        1,
        {"notes": ("2 choices; the first is read",)},
    ),
    "text kept to the last space": (
        completion(" \n a\u00a0\x00 "),
        "ok",
        " \n a\u00a0\x00 ",
        1,
        {},
    ),
    "white space only": (completion(" \n"), "empty", " \n", 1, {}),
    "choices a dictionary": (as_json({"choices": {"message": "x"}}), "failed", "", 1, {}),
    "choices of strings": (as_json({"choices": ["x"]}), "failed", "", 1, {}),
    "no choice at all": (as_json({"choices": []}), "failed", "", 1, {}),
    "content a number": (completion(7), "failed", "", 1, {}),
    "message a list": (choice(message=[]), "failed", "", 1, {}),
    "nested too deeply": (Reply(b"[" * 200_000), "failed", "", 1, {}),
    "not a number": (Reply(b'{"choices": NaN}'), "failed", "", 1, {}),
    "huge integer": (Reply(b'{"created": 1' + b"0" * 5000 + b"}"), "failed", "", 1, {}),
    "key named twice": (Reply(b'{"choices": null, "choices": null}'), "failed", "", 1, {}),
    "usage of strings": (document(usage={"prompt_tokens": "7"}), "ok", "Text.", 1, {"usage": None}),
    "redirect": (
        as_json({}, 307, headers=(("location", "http://127.0.0.1:9/"),)),
        "failed",
        "",
        1,
        {},
    ),
    "status not known": (failing(418), "failed", "", 1, {}),
    "truncated chunked body": (Reply(PLAIN.body, cut=True), "failed", "", 3, {}),
    "reset": (Reply(reset=True), "failed", "", 3, {}),
    "no HTTP at all": (Reply(raw=b"220 mail.example ESMTP\r\n"), "failed", "", 3, {}),
}


@pytest.mark.parametrize("name", ROWS)
def test_each_reply_has_its_status_and_number_of_tries(name: str) -> None:
    reply, status, text, tries, further = ROWS[name]
    asked = ask_script(always(reply), 1, subject(provider={"order": ["lab"]}))
    row = asked.row
    assert (row.status, row.text, row.attempts) == (status, text, tries)
    assert asked.tries == tries
    for field, value in further.items():
        assert getattr(row, field) == value, field
    assert asked.error is None
    assert (row.error is not None) == (status == "failed" or "error" in repr(reply.body))


@pytest.mark.parametrize("http", [408, 409, 425, 429, 500, 502, 503, 504, 529])
def test_a_passing_failure_is_asked_again_and_then_answered(http: int) -> None:
    asked = ask_script(in_turn(failing(http, "busy"), PLAIN))
    assert (asked.row.status, asked.row.attempts) == ("ok", 2)


@pytest.mark.parametrize("http", [408, 409, 425, 429, 500, 502, 503, 504, 529])
def test_a_lasting_one_is_failed_after_all_tries(http: int) -> None:
    asked = ask_script(always(failing(http, "busy")), 2)
    assert [(row.status, row.attempts) for row in asked.rows] == [("failed", 3)] * 2
    assert asked.rows[0].error == {"http": http, "code": "busy", "message": "no"}
    assert asked.error is None


WALLS: dict[str, tuple[Reply, type[Exception], str]] = {
    "401": (failing(401), PartialError, "PROVIDER_KEY"),
    "403": (failing(403), PartialError, "PROVIDER_KEY"),
    "400 bad key": (failing(400, "INVALID_ARGUMENT", "API key not valid."), PartialError, "_KEY"),
    "404": (failing(404, "model_not_found"), PartialError, "alias is dead"),
    "400 withdrawn model": (
        failing(400, None, "The model x has been decommissioned"),
        PartialError,
        "alias is dead",
    ),
    "402": (failing(402), PausedError, "credit"),
    "429 quota": (failing(429, "insufficient_quota"), PausedError, "used up"),
    "429 credit": (failing(429, None, "Your credit balance is too low"), PausedError, "used up"),
    "200 quota": (
        as_json({"error": {"code": 429, "message": "You exceeded your current quota"}}),
        PausedError,
        "used up",
    ),
    "400 parameter by name": (
        as_json(
            {"error": {"code": "unsupported_value", "param": "temperature", "message": "no"}}, 400
        ),
        ConfigurationError,
        "the parameter temperature",
    ),
    "400 parameters in the message": (
        failing(400, None, "`temperature` and `top_p` cannot both be specified for this model."),
        ConfigurationError,
        "the parameter temperature with top_p",
    ),
    "400 parameter, told through an aggregator": (
        as_json(
            {
                "error": {
                    "code": 400,
                    "message": "Provider returned error",
                    "metadata": {"raw": '{"code": "unsupported_parameter", "param": "top_p"}'},
                }
            },
            400,
        ),
        ConfigurationError,
        "the parameter top_p",
    ),
    "422 extra field": (
        as_json({"detail": [{"loc": ["body", "top_p"], "msg": "Extra inputs not permitted"}]}, 422),
        ConfigurationError,
        "the parameter top_p",
    ),
}


@pytest.mark.parametrize("name", WALLS)
def test_a_wall_stops_the_model_at_its_first_reply(name: str) -> None:
    reply, kind, words = WALLS[name]
    model = subject(parameters={"temperature": 0, "top_p": 1}, provider={"order": ["lab"]})
    asked = ask_script(always(reply), 20, model)
    assert type(asked.error) is kind
    assert words in str(asked.error)
    assert asked.row.status == "failed"
    assert asked.tries == 1
