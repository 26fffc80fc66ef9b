"""Walls: replies that show that this model need not be asked again in this run."""

from __future__ import annotations

import re
from collections.abc import Collection

from drift.config import ModelSpec
from drift.errors import ConfigurationError, DriftError, PartialError, PausedError

#: A wall's pattern of ``<status> <what is said>``, its error, what is wrong, and what to do.
_WALLS: tuple[tuple[re.Pattern[str], type[DriftError], str, str], ...] = (
    (
        re.compile(
            r"40[13] |4(00|22) .*((invalid|incorrect|missing|no).{0,12}api.?key"
            r"|api.?key.{0,12}(not valid|invalid|missing))"
        ),
        PartialError,
        "the provider refused the API key",
        "set {key}, then run the command again",
    ),
    (
        # A limit by the second or minute passes by itself.
        re.compile(
            r"402 |429 (?!.*(per.(second|minute)|\b(rpm|tpm)\b))"
            r".*(insufficient.{0,20}(quota|credit|balance|fund)|quota_?exceeded"
            r"|(quota|credits?|balance|spend\w*)\b.{0,60}\b(used up|exhausted|exceeded|too low"
            r"|depleted)|exceeded your current quota|out of credits|(hard|spending).limit|billing"
            r"|per.day)"
        ),
        PausedError,
        "the quota or credit at the provider is used up",
        "resume the run when the account has credit again",
    ),
    (
        re.compile(
            r"(404|410) |4(00|22) .*(model_not_found|model_decommissioned|invalid_model"
            r"|not a valid model|model\b.{0,80}\b(does not exist|not found|decommissioned"
            r"|no longer))"
        ),
        PartialError,
        "the alias is dead: {model.model!r} is not served at this endpoint",
        "check base_url and the model's name; a successor is a new model of the panel, "
        "with its own series",
    ),
)
_UNSUPPORTED = re.compile(
    r"support|not allowed|not permitted|cannot|can't|unknown|unrecogni[sz]ed|invalid|deprecated"
    r"|extra inputs|must be|at most|at least|mutually|only one"
)
_TOO_LONG = re.compile(r"context.{0,20}(length|size|window)|too (long|many tokens)|max_total")
#: Request fields whose names are ordinary words in an error's message.
_ORDINARY = frozenset({"model", "messages", "provider", "stop", "user"})


def wall(
    http: int, said: str, named: object, *, model: ModelSpec, sent: Collection[str]
) -> DriftError | None:
    """Return the error that ends this model's part of the run, or None.

    `http` is the status, or the numeric code in the body of a 200; `said` the error's
    code and message, masked; `named` what it names as the wrong parameter, if anything;
    `sent` the names of the request's fields.
    """
    words = " ".join(said.lower().split())
    seen = {"where": f"model {model.key}", "got": f"HTTP {http}: {said[:500]}"}
    key = model.api_key_env or "api_key_env in the panel"
    for pattern, kind, what, step in _WALLS:
        if pattern.match(f"{http} {words}"):
            told = what.format(model=model)
            return kind(f"{model.key}: {told}", next_step=step.format(key=key), **seen)
    if http not in (400, 422) or _TOO_LONG.search(words):
        return None
    found = [
        name
        for name in sent
        if name not in _ORDINARY and re.search(rf"\b{re.escape(name.lower())}\b", words)
    ]
    if isinstance(named, str) and named in sent and named not in ("model", "messages"):
        found = [named]
    if "unsupported_parameter" in words or (found and _UNSUPPORTED.search(words)):
        return ConfigurationError(
            f"{model.key}: the provider does not take the parameter "
            + (" with ".join(found) or "named in its reply"),
            next_step="change the model's parameters in the panel; that opens a new series",
            **seen,
        )
    return None
