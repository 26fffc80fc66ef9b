"""What one reply means: bytes, status and headers in, a verdict out. No socket here.

:func:`read_reply` never raises, whatever a server sends.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from drift.config import ModelSpec
from drift.errors import DriftError
from drift.probing.walls import wall

#: Longest decoded body that is read, in bytes; anything longer is `failed`.
BODY_CAP = 8 * 1024 * 1024
#: Longest stretch of an unusual body, and of an error message, that is stored, in characters.
RAW_CAP = 65_536
MESSAGE_CAP = 500
FACT_CAP = 200
#: Most tokens that a reply can claim; more is a fault and would overflow the sum of a run.
USAGE_CAP = 10**9
MASK = "[masked]"

# 520, 522 and 524 are what a common reverse proxy says for a dead or slow upstream.
TRANSIENT = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
_TRANSIENT_NAMES = frozenset(
    "rate_limit_exceeded rate_limit_error overloaded overloaded_error engine_overloaded "
    "server_error internal_error internal_server_error service_unavailable "
    "timeout timeout_error bad_gateway".split()
) | frozenset(map(str, TRANSIENT))
_FILTER = re.compile(
    r"content[_ -]?(policy|filter)|responsible_?ai|moderation|data_inspection_failed"
    r"|prompt_blocked|invalid_prompt|prohibited_content|safety"
)
_FILTER_WORDS = re.compile(r"content[_ -]?(filter|management|policy)|flagged as potentially")
_FILTER_REASONS = frozenset(
    "content_filter content-filter safety prohibited_content recitation blocklist spii".split()
)
_CUT_REASONS = frozenset({"length", "max_tokens", "model_length"})
_TOKEN = re.compile(
    r"(?i:bearer\s+)[^\s\"',;]+|\b(?:sk|pk|rk|key|api)[-_][^\s\"',;]{6,}"
    r"|(?<![\w-])eyJ[\w-]+\.[\w.-]+|[A-Za-z0-9_-]{32,}"
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_FACTS = {
    "served_model": "model",
    "provider": "provider",
    "fingerprint": "system_fingerprint",
    "response_id": "id",
}


@dataclass(frozen=True)
class Verdict:
    """One reply, read. ``fields`` are fields of a Response that the reply decides.

    ``retry`` says that asking again may help, ``retry_after`` is that header's text,
    and ``wall`` the error that ends this model's part of the run.
    """

    fields: dict[str, Any] = field(repr=False)
    retry: bool = False
    retry_after: str | None = None
    wall: DriftError | None = None


class Malformed(ValueError):
    """A body that is no JSON object of a chat completion's form: code and message."""


def mask(text: str, secret: str | None, *, tokens: bool = True) -> str:
    """Return `text` without `secret` and, if `tokens`, without anything that looks like a key."""
    if secret and len(secret) >= 4:  # a shorter placeholder would hit ordinary words
        for form in (secret, json.dumps(secret)[1:-1], secret.replace("/", "\\/")):
            text = text.replace(form, MASK)
    return _TOKEN.sub(MASK, text) if tokens else text


def failure(
    code: str, message: str, *, http: int | None = None, secret: str | None = None, **verdict: Any
) -> Verdict:
    """Return the verdict on a request that brought no usable reply; `message` is masked."""
    error = {"http": http, "code": code, "message": mask(message, secret)[:MESSAGE_CAP]}
    return Verdict({"status": "failed", "error": error}, **verdict)


def read_reply(
    http: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    model: ModelSpec,
    secret: str | None = None,
    sent: Collection[str] = (),
) -> Verdict:
    """Read one HTTP reply to a chat completion.

    `headers` have lower-case names, and `body` is still encoded. `secret` is masked
    wherever the reply repeats it. `sent` are the names of the request's fields, by which
    a refused parameter is recognised.
    """
    text, document = "", dict[str, Any]()
    try:
        plain = _inflate(body, headers.get("content-encoding", "").strip().lower())
        text = plain.decode(errors="replace")
        document = _parse(plain)
        if http < 300 and document.get("choices"):
            verdict = _completion(document["choices"], document, secret)
        else:
            verdict = _no_completion(http, document, model, secret, sent)
    except (Malformed, LookupError, TypeError, AttributeError, RecursionError) as problem:
        if http < 300:
            code, what = problem.args if isinstance(problem, Malformed) else ("bad-shape", problem)
            verdict = failure(code, str(what), http=http)
        else:
            said = {"error": text.strip() or f"HTTP {http}"}
            verdict = _no_completion(http, said, model, secret, sent)
    answer = f"{verdict.fields.get('text')} {verdict.fields.get('reasoning')}"
    if secret and len(secret) >= 8 and secret in answer:
        # An answer is never altered and a key is never stored: what is left is to store neither.
        return failure("key-echoed", "the answer repeats the API key, so it is not stored")
    fields = _stored(verdict.fields, document, text, secret)
    return replace(verdict, fields=fields, retry_after=headers.get("retry-after"))


def _inflate(body: bytes, encoding: str) -> bytes:
    if encoding in ("", "identity"):
        return body
    stream = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        plain = stream.decompress(body, BODY_CAP + 1)
    except zlib.error as error:
        raise Malformed("encoding", f"the compressed body is damaged: {error}") from None
    if len(plain) > BODY_CAP:
        raise Malformed("too-large", f"the body is longer than {BODY_CAP} bytes when unpacked")
    if not stream.eof:
        raise Malformed("encoding", "the compressed body is cut short")
    return plain


def _parse(body: bytes) -> dict[str, Any]:
    try:
        text = body.decode()
        document = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        html = body.lstrip().startswith(b"<")
        what = "the body is HTML, not JSON" if html else f"the body is not JSON: {error}"
        raise Malformed("not-json", what) from None
    if not isinstance(document, dict):
        raise Malformed("bad-shape", f"the JSON is a {type(document).__name__}, not an object")
    return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is named twice")
    return found


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def _completion(choices: list[Any], document: dict[str, Any], secret: str | None) -> Verdict:
    """Read a document that has choices."""
    choice = choices[0]
    error = choice.get("error") or document.get("error")
    message = choice.get("message") if error else choice["message"]
    notes = [f"{len(choices)} choices; the first is read"] if len(choices) > 1 else []
    reason, native = choice.get("finish_reason"), choice.get("native_finish_reason")
    fields: dict[str, Any] = {"finish_reason": reason, "notes": notes}
    if message is None and not error:
        return Verdict(fields | {"status": "blocked"})
    text, refusal, reasoning = _contents({} if message is None else message)
    fields |= {"text": refusal or text, "reasoning": reasoning, "declined": bool(refusal.strip())}
    lowered = reason.lower() if isinstance(reason, str) else ""
    if error:
        fields["error"] = said = _said(200, error, secret)
        fields["status"] = "blocked" if text.strip() or _is_filter(error) else "failed"
        return Verdict(fields, retry=not text.strip() and _is_transient(said))
    if "refusal" in (reason, native, choice.get("stop_reason"), document.get("stop_reason")):
        fields |= {"status": "blocked", "declined": True}
    elif lowered in _FILTER_REASONS:
        fields["status"] = "blocked"
    elif lowered == "error":
        failed = failure("error", "finish_reason is error", http=200)
        return Verdict(fields | failed.fields, retry=True)
    elif not fields["text"].strip():
        fields["status"] = "empty"
    else:
        fields["status"] = "truncated" if lowered in _CUT_REASONS else "ok"
        odd = notes or refusal or message.get("tool_calls")
        fields["plain"] = isinstance(message.get("content"), str) and not odd
    return Verdict(fields)


def _contents(message: dict[str, Any]) -> tuple[str, str, str | None]:
    """Return the text, the refusal text and the reasoning of a message.

    A content of another form than text or typed parts raises an error of Python's own.
    """
    content, refusal = message.get("content"), message.get("refusal")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    parts = [] if content is None else [(part["type"].lower(), part) for part in content]
    text = "".join(part["text"] for kind, part in parts if kind in ("text", "output_text"))
    refused = "".join(part["refusal"] for kind, part in parts if kind == "refusal")
    thoughts = [message.get(name) for name in ("reasoning_content", "reasoning")]
    reasoning = next((item for item in thoughts if isinstance(item, str) and item), None)
    return text, (refusal if isinstance(refusal, str) else "") + refused, reasoning


def _no_completion(
    http: int, document: dict[str, Any], model: ModelSpec, secret: str | None, sent: Collection[str]
) -> Verdict:
    """Read a reply that holds no completion: by the code in its body, then by its status."""
    error = document.get("error") or document
    said = _said(http, error, secret)
    if 300 <= http < 400:
        message = "a redirect is not followed, since a key must not leave its host"
        return failure("redirect", message, http=http)
    told = http not in (401, 403, 429) and _FILTER_WORDS.search(said["message"].lower())
    if told or _is_filter(error):
        return Verdict({"status": "blocked", "error": said})
    if http < 300:
        if document.get("stop_reason") == "refusal":
            return Verdict({"status": "blocked", "declined": True})
        if not document.get("error"):
            raise Malformed("bad-shape", "the reply has neither choices nor an error")
        if re.fullmatch(r"[45]\d\d", said["code"] or ""):
            http = int(said["code"])
    whole = f"{said['code'] or ''} {said['message']}".strip()[:4000]
    stop = wall(http, whole, _dict(error).get("param"), model=model, sent=sent)
    retry = stop is None and (http in TRANSIENT or (http < 300 and _is_transient(said)))
    return Verdict({"status": "failed", "error": said}, retry, wall=stop)


def _stored(
    fields: dict[str, Any], document: dict[str, Any], body: str, secret: str | None
) -> dict[str, Any]:
    """Return the fields as they may be stored: facts added, masked, clean, the body if odd."""
    notes, plain = list(fields.pop("notes", ())), fields.pop("plain", False)
    facts = {name: document.get(theirs) for name, theirs in _FACTS.items()}
    for name, fact in (facts | {"finish_reason": fields.get("finish_reason")}).items():
        clean = mask(fact, secret, tokens=False) if isinstance(fact, str) else ""
        fields[name] = _printable(clean)[:FACT_CAP] or None
    counts = _dict(document.get("usage"))
    fields["usage"] = {
        name: counts[name]
        for name in ("prompt_tokens", "completion_tokens")
        if type(counts.get(name)) is int and 0 <= counts[name] <= USAGE_CAP
    } or None
    for name in ("text", "reasoning"):
        if found := _SURROGATE.findall(fields.get(name) or ""):
            fields[name] = _SURROGATE.sub("\ufffd", fields[name])
            notes.append(f"lone surrogate replaced by U+FFFD in {name}: {len(found)}")
    if error := fields.get("error"):
        error["message"] = error["message"][:MESSAGE_CAP]
    if body and not plain:
        raw = mask(body, secret, tokens=not fields.get("text"))
        if len(raw) > RAW_CAP:
            notes.append(f"raw body cut at {RAW_CAP} of {len(raw)} characters")
        read = re.sub(r"\\u([0-9a-fA-F]{4})", lambda escape: chr(int(escape[1], 16)), raw)
        if secret and secret in read.replace("\\/", "/"):
            notes.append("raw body not kept: it repeats the API key in an escaped form")
        else:
            fields["raw"] = raw[:RAW_CAP]
    return fields | {"notes": tuple(notes)}


def _said(http: int, error: Any, secret: str | None) -> dict[str, Any]:
    """Return status, code and message, masked, of an error in any of the shapes in use."""
    parts = _dict(error)
    names = [parts.get(name) for name in ("code", "type", "status")]
    code = next((str(item) for item in names if isinstance(item, (str, int)) and item), "")
    message, inner = parts.get("message"), _dict(parts.get("metadata")).get("raw")
    if not isinstance(message, str) or not message:
        message = error if isinstance(error, str) else json.dumps(error, ensure_ascii=False)
    elif isinstance(inner, str):
        # An aggregator passes on what the provider behind it said.
        message = f"{message}: {inner}"
    code = _printable(mask(code, secret))[:FACT_CAP]
    message = mask(_printable(message[:RAW_CAP], " "), secret)
    return {"http": http, "code": code or None, "message": message}


def _is_filter(said: Any) -> bool:
    error = _dict(said)
    names = [error.get(name) for name in ("code", "type", "status")]
    names.append(_dict(error.get("innererror")).get("code"))
    return not _dict(error.get("metadata")).keys().isdisjoint(("flagged_input", "reasons")) or any(
        isinstance(name, str) and _FILTER.search(name.lower()) for name in names
    )


def _is_transient(said: dict[str, Any]) -> bool:
    return (said["code"] or "").lower() in _TRANSIENT_NAMES


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _printable(text: str, instead: str = "") -> str:
    return "".join(mark if mark.isprintable() else instead for mark in text)
