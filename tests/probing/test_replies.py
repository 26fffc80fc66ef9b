"""The reply parser alone: whatever bytes arrive, a verdict leaves."""

from __future__ import annotations

import json
import zlib
from typing import Any

import orjson
import pytest
from asking import KEY, subject
from hypothesis import given
from hypothesis import strategies as st

from drift.probing.replies import MESSAGE_CAP, RAW_CAP, Verdict, mask, read_reply
from drift.probing.response import Response

STATUSES = {"ok", "truncated", "empty", "blocked", "failed"}
SENT = ("model", "messages", "max_tokens", "temperature")


def read(document: object, http: int = 200, **headers: str) -> Verdict:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return read_reply(http, named, body, model=subject(), secret=KEY, sent=SENT)


def check(verdict: Verdict) -> None:
    """A verdict's fields make a row that can be stored, holds no key, and claims no impossible."""
    row = Response(key="t/q#en-1", model="subject", **verdict.fields)
    assert row.status in STATUSES
    stored = orjson.loads(orjson.dumps(row.document()))
    assert Response(**stored | {"notes": tuple(stored.get("notes", ()))}) == row
    assert KEY not in repr(row)
    assert KEY not in str(verdict.wall)
    assert row.status not in ("ok", "truncated") or row.text.strip()
    assert row.status != "empty" or not row.text.strip()
    assert not (verdict.retry and verdict.wall)
    assert (row.status == "failed") <= (row.error is not None)
    assert verdict.wall is None or row.status == "failed"


statuses = st.integers(200, 599)
headers = st.fixed_dictionaries(
    {},
    optional={
        "content-encoding": st.sampled_from(["gzip", "deflate", "br", "identity", "GZIP"]),
        "retry-after": st.text(max_size=20),
    },
)


@given(http=statuses, headers=headers, body=st.binary(max_size=300), packed=st.booleans())
def test_any_bytes_become_a_row(
    http: int, headers: dict[str, str], body: bytes, packed: bool
) -> None:
    body = zlib.compress(body) if packed else body
    check(read_reply(http, headers, body, model=subject(), secret=KEY, sent=SENT))


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(), max_size=8)
    | st.sampled_from(
        [
            KEY,
            "stop",
            "length",
            "content_filter",
            "refusal",
            "429",
            "model",
            "temperature",
            "\ud800",
        ]
    )
)
names = st.sampled_from(
    [
        *(
            "id model provider system_fingerprint usage choices error message content refusal"
        ).split(),
        *("finish_reason stop_reason code type param metadata innererror reasons text").split(),
        *("reasoning_content reasoning prompt_tokens tool_calls detail").split(),
    ]
)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)
messages = st.fixed_dictionaries(
    {"content": anything}, optional={"refusal": anything, "reasoning": anything}
)
choices = st.fixed_dictionaries(
    {"message": messages | anything, "finish_reason": scalars},
    optional={"error": anything, "stop_reason": scalars},
)
documents = anything | st.fixed_dictionaries(
    {"choices": st.lists(choices | anything, max_size=3) | anything},
    optional={"error": anything, "model": anything, "usage": anything, "stop_reason": scalars},
)


@given(http=st.sampled_from([200]) | statuses, document=documents)
def test_any_json_becomes_a_row(http: int, document: Any) -> None:
    check(read(document, http))


@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=60))
def test_an_answers_text_is_exact(text: str) -> None:
    fields = read({"choices": [{"message": {"content": text}}]}).fields
    assert fields["text"] == text
    assert fields["status"] == ("ok" if text.strip() else "empty")


@pytest.mark.parametrize(
    "code", ["rate_limit_exceeded", "overloaded_error", "server_error", 429, "503"]
)
def test_a_code_in_a_200_body_decides_whether_asking_again_may_help(code: object) -> None:
    assert read({"choices": None, "error": {"code": code, "message": "x"}}).retry
    assert not read({"choices": None, "error": {"code": "other", "message": "x"}}).retry


@pytest.mark.parametrize(
    "message",
    [
        "Rate limit reached for requests per minute",
        "Quota exceeded for quota metric 'Requests per minute'",
        "Too many requests",
    ],
)
def test_a_rate_limit_by_the_minute_is_not_a_used_up_quota(message: str) -> None:
    verdict = read({"error": {"code": "rate_limit", "message": message}}, 429, retry_after="2")
    assert (verdict.wall, verdict.retry, verdict.retry_after) == (None, True, "2")


def test_facts_are_strings_without_control_characters_of_at_most_200() -> None:
    document = {
        "choices": [{"message": {"content": "a"}}],
        "model": "m\x1b[31m\n" + "x" * 300,
        "provider": 7,
        "system_fingerprint": ["fp"],
        "id": "\ud800r",
        "usage": {"prompt_tokens": 3, "completion_tokens": True, "cost": 0.1},
    }
    fields = read(document).fields
    assert fields["served_model"] == ("m[31m" + "x" * 300)[:200]
    assert fields["response_id"] == "r"
    assert fields["provider"] is fields["fingerprint"] is None
    assert fields["usage"] == {"prompt_tokens": 3}


def test_a_long_error_is_cut_where_it_is_stored() -> None:
    fields = read({"error": {"message": "long word " * 20_000}}, 500).fields
    assert len(fields["error"]["message"]) == MESSAGE_CAP
    assert len(fields["raw"]) == RAW_CAP
    assert fields["notes"] == ("raw body cut at 65536 of 200026 characters",)


def test_the_raw_body_is_kept_only_where_the_reply_was_not_plain() -> None:
    plain = {"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]}
    assert "raw" not in read(plain).fields
    odd = {"choices": [{"message": {"content": None, "refusal": "No."}}]}
    assert json.loads(read(odd).fields["raw"]) == odd


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("Bearer abc.def", "[masked]"),
        ("key sk-proj-12345678 wrong", "key [masked] wrong"),
        ("0123456789abcdef0123456789abcdef", "[masked]"),
        ("model openai/gpt-5-mini not found", "model openai/gpt-5-mini not found"),
        ("max_completion_tokens must be positive", "max_completion_tokens must be positive"),
    ],
)
def test_what_looks_like_a_key_is_masked_and_words_are_not(text: str, masked: str) -> None:
    assert mask(text, None) == masked


def test_the_repr_of_a_verdict_shows_no_content() -> None:
    assert "hello" not in repr(read({"choices": [{"message": {"content": "hello"}}]}))


def test_a_refusal_without_a_content_key_is_a_declined_answer() -> None:
    message = {"role": "assistant", "refusal": "I can't help with that."}
    verdict = read({"choices": [{"message": message, "finish_reason": "stop"}]})
    assert verdict.fields["status"] == "ok" and verdict.fields["declined"]
    assert verdict.fields["text"] == "I can't help with that."


@pytest.mark.parametrize("field", ["model", "provider", "system_fingerprint", "id"])
@pytest.mark.parametrize("before", [0, 150, 180, 199])
def test_a_key_is_masked_before_a_fact_is_cut(field: str, before: int) -> None:
    choices = [{"message": {"content": "Water boils."}, "finish_reason": "stop"}]
    verdict = read({field: "x" * before + KEY, "choices": choices})
    assert not any(KEY[:8] in str(value) for value in verdict.fields.values())


def test_a_claim_of_impossibly_many_tokens_is_not_counted() -> None:
    choices = [{"message": {"content": "Water boils."}, "finish_reason": "stop"}]
    usage = {"prompt_tokens": 2**53 - 1, "completion_tokens": 5}
    assert read({"choices": choices, "usage": usage}).fields["usage"] == {"completion_tokens": 5}


@pytest.mark.parametrize("part", ["eyJé-", "eyJa-", "sk-", "bearer ", "eyJa.", "key_"])
def test_masking_stays_linear(part: str) -> None:
    steps = [len(mask(part * count, KEY)) for count in (1000, 100_000)]
    assert steps[0] <= 1000 * len(part) + 16 and steps[1] <= 100_000 * len(part) + 16
