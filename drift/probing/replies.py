"""What one reply means: bytes, status and headers in, a verdict out. No socket here.

:func:`read_reply` never raises, whatever a server sends. Its :class:`Verdict` holds
the fields of a :class:`~drift.probing.response.Response`, whether asking again may
help, and the *wall* the reply shows: a reason to stop asking this model at all.
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

# 520, 522 and 524 are what a common reverse proxy says for a dead or slow upstream.
TRANSIENT = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
_TRANSIENT_NAMES = frozenset(
    "rate_limit_exceeded rate_limit_error overloaded overloaded_error engine_overloaded "
    "server_error internal_error internal_server_error service_unavailable "
    "timeout timeout_error bad_gateway".split()
)
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
    "finish_reason": "",
    "served_model": "model",
    "provider": "provider",
    "fingerprint": "system_fingerprint",
    "response_id": "id",
}
MASK = "[masked]"


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
    """A body that is not the JSON object which a chat completion must be."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def mask(text: str, secret: str | None, *, tokens: bool = True) -> str:
    """Return `text` without `secret` and, if `tokens`, without anything that looks like a key."""
    if secret and len(secret) >= 4:  # a shorter placeholder would hit ordinary words
        for form in (secret, json.dumps(secret)[1:-1], secret.replace("/", "\\/")):
            text = text.replace(form, MASK)
    return _TOKEN.sub(MASK, text) if tokens else text


def failure(code: str, message: str, *, secret: str | None = None, **verdict: Any) -> Verdict:
    """Return the verdict on a request that brought no usable reply; `message` is masked."""
    error = {"http": None, "code": code, "message": mask(message, secret)[:MESSAGE_CAP]}
    return Verdict({"status": "failed", "error": error}, **verdict)


def inflate(body: bytes, encoding: str) -> bytes:
    """Undo a Content-Encoding of gzip or deflate; a cut or oversized stream is refused."""
    if encoding in ("", "identity"):
        return body
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise Malformed("encoding", f"content-encoding {encoding[:40]!r} was not asked for")
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

    Parameters
    ----------
    http, headers, body : int, mapping, bytes
        The reply as it came: header names in lower case, the body still encoded.
    model : ModelSpec
        The asked model.
    secret : str, optional
        The API key, masked wherever the reply repeats it.
    sent : collection of str
        Names of the request's fields, by which a refused parameter is recognised.
    """
    text, document = "", None
    try:
        plain = inflate(body, headers.get("content-encoding", "").strip().lower())
        text = plain.decode("utf-8", errors="replace")
        document = _parse(plain)
        if http < 300 and document.get("choices"):
            verdict = _completion(document["choices"], document)
        else:
            verdict = _no_completion(http, document, model, secret, sent)
    except Malformed as problem:
        if http < 300:
            verdict = Verdict({"status": "failed", "error": _error(http, problem.code, problem)})
        else:
            said = {"error": text.strip() or f"HTTP {http}"}
            verdict = _no_completion(http, said, model, secret, sent)
    answer = f"{verdict.fields.get('text')} {verdict.fields.get('reasoning')}"
    if secret and len(secret) >= 8 and secret in answer:
        # An answer is never altered and a key is never stored: what is left is to store neither.
        return failure("key-echoed", "the answer repeats the API key, so it is not stored")
    fields = _stored(verdict.fields, document or {}, text, secret)
    return replace(verdict, fields=fields, retry_after=headers.get("retry-after"))


def _stored(
    fields: dict[str, Any], document: dict[str, Any], body: str, secret: str | None
) -> dict[str, Any]:
    """Return the fields as they may be stored: facts added, masked, clean, the body if odd."""
    notes = list(fields.pop("notes", ()))
    for name, theirs in _FACTS.items():
        fact = fields.get(name) or document.get(theirs)
        fact = mask(fact, secret, tokens=False) if isinstance(fact, str) else ""
        fields[name] = _fact(fact) or None
    usage = document.get("usage")
    counts = usage if isinstance(usage, dict) else {}
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
        error["message"] = mask(_printable(error["message"]), secret)[:MESSAGE_CAP]
        error["code"] = error["code"] and _fact(mask(error["code"], secret))
    if not fields.pop("plain", False) and body:
        raw = mask(body, secret, tokens=not fields.get("text"))
        if len(raw) > RAW_CAP:
            notes.append(f"raw body cut at {RAW_CAP} of {len(raw)} characters")
        if secret and secret in _unescaped(raw):
            notes.append("raw body not kept: it repeats the API key in an escaped form")
        else:
            fields["raw"] = raw[:RAW_CAP]
    return fields | {"notes": tuple(notes)}


def _parse(body: bytes) -> dict[str, Any]:
    if not body.strip():
        raise Malformed("not-json", "the body is empty")
    if body.lstrip().startswith(b"<"):
        raise Malformed("not-json", "the body is HTML, not JSON")
    try:
        text = body.decode("utf-8")
        document = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise Malformed("not-utf8", f"the body is not UTF-8 at byte {error.start}") from None
    except Malformed:
        raise
    except RecursionError:
        raise Malformed("not-json", "the JSON is nested too deeply") from None
    except ValueError as error:
        raise Malformed("not-json", f"the body is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise Malformed("bad-shape", f"the JSON is a {type(document).__name__}, not an object")
    return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Malformed("not-json", "the JSON names a key twice in one object")
    return found


def _no_constant(name: str) -> Any:
    raise Malformed("not-json", f"the body is not JSON: it holds {name}")


def _completion(choices: Any, document: dict[str, Any]) -> Verdict:
    """Read a document that has choices and no error of its own."""
    if not isinstance(choices, list) or not isinstance(choices[0], dict):
        raise Malformed("bad-shape", "choices is not a list of objects")
    choice = choices[0]
    reason = choice.get("finish_reason")
    stops = [reason, choice.get("native_finish_reason")]
    stops += [part.get("stop_reason") for part in (choice, document)]
    notes = [f"{len(choices)} choices; the first is read"] if len(choices) > 1 else []
    fields: dict[str, Any] = {"finish_reason": reason if isinstance(reason, str) else None}
    message: Any = choice.get("message")
    error = choice.get("error") or document.get("error")
    if message is None and "message" in choice and not error:
        return Verdict(fields | {"status": "blocked", "notes": notes})
    if message is None and not error:
        raise Malformed("bad-shape", "the choice has no message")
    text, refusal, reasoning = _contents({} if message is None else message)
    fields |= {"text": refusal or text, "reasoning": reasoning, "declined": bool(refusal.strip())}
    lowered = reason.lower() if isinstance(reason, str) else ""
    retry = False
    if error:
        code, said = _code_and_message(error)
        fields["error"] = _error(200, code, said)
        retry = not text.strip() and _is_transient(code)
        filtered = bool(text.strip()) or _is_filter(code, error)
        fields["status"] = "blocked" if filtered else "failed"
    elif "refusal" in stops:
        fields |= {"status": "blocked", "declined": True}
    elif lowered in _FILTER_REASONS:
        fields["status"] = "blocked"
    elif lowered == "error":
        fields |= {"status": "failed", "error": _error(200, "error", "finish_reason is error")}
        retry = True
    elif not fields["text"].strip():
        fields["status"] = "empty"
    else:
        fields["status"] = "truncated" if lowered in _CUT_REASONS else "ok"
        odd = notes or refusal or message.get("tool_calls")
        fields["plain"] = isinstance(message.get("content"), str) and not odd
    return Verdict(fields | {"notes": notes}, retry)


def _contents(message: Any) -> tuple[str, str, str | None]:
    """Return the text, the refusal text and the reasoning of a message."""
    if not isinstance(message, dict):
        raise Malformed("bad-shape", "message is not an object")
    refusal, content = message.get("refusal"), message.get("content")
    texts, refusals = [], [refusal] if isinstance(refusal, str) else []
    thoughts = [message.get(name) for name in ("reasoning_content", "reasoning")]
    reasoning = next((item for item in thoughts if isinstance(item, str) and item), None)
    if isinstance(content, str):
        texts.append(content)
    elif isinstance(content, list):
        for part in content:
            kind = part.get("type") if isinstance(part, dict) else None
            if kind in ("text", "output_text", "refusal"):
                piece = part.get("refusal" if kind == "refusal" else "text")
                if not isinstance(piece, str):
                    raise Malformed("bad-shape", f"a content part of type {kind} holds no text")
                (refusals if kind == "refusal" else texts).append(piece)
            elif kind is None:
                raise Malformed("bad-shape", "a content part is not an object with a type")
    elif content is not None:
        raise Malformed("bad-shape", f"content is a {type(content).__name__}, not text")
    return "".join(texts), "".join(refusals), reasoning


def _no_completion(
    http: int, document: dict[str, Any], model: ModelSpec, secret: str | None, sent: Collection[str]
) -> Verdict:
    """Read a reply that holds no completion: by the code in its body, then by its status."""
    said = document.get("error") or document
    code, message = _code_and_message(said)
    code = code and _fact(mask(code, secret))
    message = mask(_printable(message[:RAW_CAP]), secret)
    fields: dict[str, Any] = {"status": "failed", "error": _error(http, code, message)}
    if 300 <= http < 400:
        message = "a redirect is not followed, since a key must not leave its host"
        return Verdict(fields | {"error": _error(http, "redirect", message)})
    told = http not in (401, 403, 429) and _FILTER_WORDS.search(message.lower())
    if told or _is_filter(code, said):
        return Verdict(fields | {"status": "blocked"})
    if http < 300:
        if document.get("stop_reason") == "refusal":
            return Verdict({"status": "blocked", "declined": True})
        if not document.get("error"):
            raise Malformed("bad-shape", "the reply has neither choices nor an error")
        if code and re.fullmatch(r"[45]\d\d", code):
            http = int(code)
    named = said.get("param") if isinstance(said, dict) else None
    whole = f"{code or ''} {message}".strip()[:4000]
    stop = wall(http, whole, named, model=model, sent=sent)
    retry = stop is None and (http in TRANSIENT or (http < 300 and _is_transient(code)))
    return Verdict(fields, retry, wall=stop)


def _code_and_message(said: Any) -> tuple[str | None, str]:
    """Return the code and the message of an error in any of the shapes in use."""
    if not isinstance(said, dict):
        return None, said if isinstance(said, str) else _dump(said)
    names = [said.get(name) for name in ("code", "type", "status")]
    code = next((str(item) for item in names if isinstance(item, (str, int)) and item), None)
    message, metadata = said.get("message"), said.get("metadata")
    if not isinstance(message, str) or not message:
        return code, _dump(said)
    # An aggregator passes on what the provider behind it said.
    inner = metadata.get("raw") if isinstance(metadata, dict) else None
    return code, f"{message}: {inner}" if isinstance(inner, str) else message


def _is_filter(code: str | None, said: Any) -> bool:
    named = [code]
    if isinstance(said, dict):
        inner = said.get("innererror")
        named += [said.get("code"), said.get("type")]
        named += [inner.get("code")] if isinstance(inner, dict) else []
        metadata = said.get("metadata")
        if isinstance(metadata, dict) and {"flagged_input", "reasons"} & metadata.keys():
            return True
    return any(isinstance(item, str) and _FILTER.search(item.lower()) for item in named)


def _is_transient(code: str | None) -> bool:
    lowered = (code or "").lower()
    return lowered in _TRANSIENT_NAMES or (lowered.isdecimal() and lowered in map(str, TRANSIENT))


def _error(http: int, code: str | None, message: object) -> dict[str, Any]:
    return {"http": http, "code": code, "message": str(message)}


def _printable(text: str) -> str:
    return "".join(mark if mark.isprintable() else " " for mark in text)


def _fact(text: str) -> str:
    return "".join(mark for mark in text if mark.isprintable())[:FACT_CAP]


def _dump(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "an error nested too deeply to show"


def _unescaped(text: str) -> str:
    text = text.replace("\\/", "/")
    return re.sub(r"\\u([0-9a-fA-F]{4})", lambda found: chr(int(found[1], 16)), text)
