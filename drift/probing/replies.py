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
from dataclasses import dataclass, field
from typing import Any

from drift.config import ModelSpec
from drift.errors import ConfigurationError, DriftError, PartialError, PausedError

#: Longest decoded body that is read, in bytes; anything longer is `failed`.
BODY_CAP = 8 * 1024 * 1024
#: Longest stretch of an unusual body, and of an error message, that is stored, in characters.
RAW_CAP = 65_536
MESSAGE_CAP = 500
FACT_CAP = 200

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
_GONE = re.compile(
    r"model_not_found|model_decommissioned|invalid_model|not a valid model"
    r"|model\b.{0,80}\b(does not exist|not found|decommissioned|no longer)",
    re.DOTALL,
)
_BAD_KEY = re.compile(
    r"(invalid|incorrect|missing|no).{0,12}api.?key|api.?key.{0,12}(not valid|invalid|missing)"
)
_QUOTA = re.compile(
    r"insufficient.{0,20}(quota|credit|balance|fund)|quota_?exceeded|exceeded your current quota"
    r"|(quota|credits?|balance|spend\w*)\b.{0,60}\b(used up|exhausted|exceeded|too low|depleted)"
    r"|out of credits|(hard|spending).limit|billing|per.day",
    re.DOTALL,
)
_SOON = re.compile(r"per.(second|minute)|\b(rpm|tpm)\b")
_UNSUPPORTED = re.compile(
    r"support|not allowed|not permitted|cannot|can't|unknown|unrecogni[sz]ed|invalid|deprecated"
    r"|extra inputs|must be|at most|at least|mutually|only one"
)
_TOO_LONG = re.compile(r"context.{0,20}(length|size|window)|too (long|many tokens)|max_total")
_TOKEN = re.compile(
    r"(?i:bearer\s+)[^\s\"',;]+|\b(?:sk|pk|rk|key|api)[-_][^\s\"',;]{6,}"
    r"|\beyJ[\w-]+\.[\w.-]+|[A-Za-z0-9_-]{32,}"
)
#: Request fields whose names are ordinary words in an error's message.
_ORDINARY = frozenset({"model", "messages", "provider", "stop", "user"})
_SURROGATE = re.compile("[\ud800-\udfff]")
_SURROGATE_NOTE = "lone surrogate replaced by U+FFFD"
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
    http : int
        HTTP status.
    headers : mapping of str to str
        Reply headers, names in lower case.
    body : bytes
        Body as it came, still in its Content-Encoding.
    model : ModelSpec
        The asked model; it names the key's variable in a wall's message.
    secret : str, optional
        The API key, masked wherever the reply repeats it outside an answer.
    sent : collection of str
        Names of the request's fields, by which a refused parameter is recognised.
    """
    body_text, document, notes = "", None, []
    try:
        plain = inflate(body, headers.get("content-encoding", "").strip().lower())
        body_text = plain.decode("utf-8", errors="replace")
        document = _parse(plain)
        if http < 300 and document.get("choices"):
            verdict = _completion(document["choices"], document)
        else:
            verdict = _no_completion(http, headers, document, model, secret, sent)
    except Malformed as problem:
        if http < 300:
            verdict = Verdict({"status": "failed", "error": _error(http, problem.code, problem)})
        else:
            said = {"error": body_text.strip() or f"HTTP {http}"}
            verdict = _no_completion(http, headers, said, model, secret, sent)
    fields = verdict.fields
    if document is not None:
        _add_facts(fields, document)
    if (
        secret
        and len(secret) >= 16
        and any(secret in (fields.get(name) or "") for name in ("text", "reasoning"))
    ):
        # An answer is never altered, and a key is never stored: what is left is to store neither.
        message = "the answer repeats the API key, so it is not stored"
        return failure("key-echoed", message)
    for name in ("text", "reasoning"):
        clean = _SURROGATE.sub("\ufffd", fields.get(name) or "")
        if clean != (fields.get(name) or ""):
            fields[name] = clean
            notes.append(_SURROGATE_NOTE)
    for name in ("finish_reason", "served_model", "provider", "fingerprint", "response_id"):
        fields[name] = mask(_fact(fields.get(name) or ""), secret, tokens=False) or None
    if (error := fields.get("error")) is not None:
        error["message"] = mask(_printable(error["message"]), secret)[:MESSAGE_CAP]
        error["code"] = error["code"] and mask(_fact(error["code"]), secret)
    notes = [*fields.pop("notes", ()), *dict.fromkeys(notes)]
    if fields.pop("plain", False) is False and body_text:
        raw = mask(body_text, secret, tokens=not fields.get("text"))
        if len(raw) > RAW_CAP:
            notes.append(f"raw body cut at {RAW_CAP} of {len(raw)} characters")
        fields["raw"] = raw[:RAW_CAP]
        if secret and secret in _unescaped(fields["raw"]):
            del fields["raw"]
            notes.append("raw body not kept: it repeats the API key in an escaped form")
    if notes:
        fields["notes"] = tuple(notes)
    return verdict


def _parse(body: bytes) -> dict[str, Any]:
    if not body.strip():
        raise Malformed("not-json", "the body is empty")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Malformed("not-utf8", f"the body is not UTF-8 at byte {error.start}") from None
    if text.lstrip().startswith("<"):
        raise Malformed("not-json", "the body is HTML, not JSON")
    try:
        document = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
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
        fields["plain"] = isinstance(message["content"], str) and not odd
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
    http: int,
    headers: Mapping[str, str],
    document: dict[str, Any],
    model: ModelSpec,
    secret: str | None,
    sent: Collection[str],
) -> Verdict:
    """Read a reply that holds no completion: by the code in its body, then by its status."""
    said = document.get("error") or document
    code, message = _code_and_message(said)
    code = code and mask(_fact(code), secret)
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
    wall = _wall(http, f"{code or ''} {message}".strip()[:4000], named, model, sent)
    retry = wall is None and (http in TRANSIENT or (http < 300 and _is_transient(code)))
    return Verdict(fields, retry, headers.get("retry-after"), wall)


def _wall(
    http: int, said: str, named: object, model: ModelSpec, sent: Collection[str]
) -> DriftError | None:
    """Return why this model need not be asked again, if the reply shows that."""
    words = said.lower()
    seen = {"where": f"model {model.key}", "got": f"HTTP {http}: {said[:MESSAGE_CAP]}"}
    if http in (401, 403) or (http == 400 and _BAD_KEY.search(words)):
        variable = model.api_key_env
        return PartialError(
            f"{model.key}: the provider refused the API key"
            + (f" in {variable}" if variable else "; none was sent"),
            **seen,
            next_step=f"set {variable} to a valid key"
            if variable
            else "name the key's variable as api_key_env in the panel",
        )
    used_up = _QUOTA.search(words) and not _SOON.search(words)
    if http == 402 or (http == 429 and used_up):
        return PausedError(
            f"{model.key}: the quota or credit at the provider is used up",
            **seen,
            next_step="resume the run when the account has credit again",
        )
    if http in (404, 410) or (http in (400, 422) and _GONE.search(words)):
        return PartialError(
            f"{model.key}: the alias is dead: {model.model!r} is not served at this endpoint",
            **seen,
            next_step="check base_url and the model's name; a successor is a new model "
            "of the panel, with its own series",
        )
    if http in (400, 422) and not _TOO_LONG.search(words):
        found = [name for name in sent if re.search(rf"\b{re.escape(name.lower())}\b", words)]
        found = [name for name in found if name not in _ORDINARY]
        if isinstance(named, str) and named in sent and named not in ("model", "messages"):
            found = [named]
        if "unsupported_parameter" in words or (found and _UNSUPPORTED.search(words)):
            return ConfigurationError(
                f"{model.key}: the provider does not take the parameter "
                + (" with ".join(found) or "named in its reply"),
                **seen,
                next_step="change the model's parameters in the panel; that opens a new series",
            )
    return None


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


def _add_facts(fields: dict[str, Any], document: dict[str, Any]) -> None:
    names = {
        "served_model": "model",
        "provider": "provider",
        "fingerprint": "system_fingerprint",
        "response_id": "id",
    }
    for name, theirs in names.items():
        if isinstance(document.get(theirs), str):
            fields[name] = document[theirs]
    usage = document.get("usage")
    if isinstance(usage, dict):
        counts = {name: usage.get(name) for name in ("prompt_tokens", "completion_tokens")}
        fields["usage"] = {
            name: count
            for name, count in counts.items()
            if type(count) is int and 0 <= count < 2**53
        } or None


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
