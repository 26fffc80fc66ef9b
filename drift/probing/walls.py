"""Walls: replies that show that this model need not be asked again in this run."""

from __future__ import annotations

import re
from collections.abc import Collection

from drift.config import ModelSpec
from drift.errors import ConfigurationError, DriftError, PartialError, PausedError

_BAD_KEY = re.compile(
    r"(invalid|incorrect|missing|no).{0,12}api.?key|api.?key.{0,12}(not valid|invalid|missing)"
)
_QUOTA = re.compile(
    r"insufficient.{0,20}(quota|credit|balance|fund)|quota_?exceeded|exceeded your current quota"
    r"|(quota|credits?|balance|spend\w*)\b.{0,60}\b(used up|exhausted|exceeded|too low|depleted)"
    r"|out of credits|(hard|spending).limit|billing|per.day"
)
#: A limit by the second or minute passes by itself.
_SOON = re.compile(r"per.(second|minute)|\b(rpm|tpm)\b")
_GONE = re.compile(
    r"model_not_found|model_decommissioned|invalid_model|not a valid model"
    r"|model\b.{0,80}\b(does not exist|not found|decommissioned|no longer)"
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

    Parameters
    ----------
    http : int
        The status, or the numeric code in the body of a 200.
    said : str
        The error's code and message, masked.
    named : object
        What the error names as the wrong parameter, if anything.
    model : ModelSpec
        The asked model; its key's variable is named in the message.
    sent : collection of str
        Names of the request's fields, by which a refused parameter is recognised.
    """
    words, wrong = " ".join(said.lower().split()), http in (400, 422)
    seen = {"where": f"model {model.key}", "got": f"HTTP {http}: {said[:500]}"}
    if http in (401, 403) or (wrong and _BAD_KEY.search(words)):
        variable = model.api_key_env
        return PartialError(
            f"{model.key}: the provider refused the API key"
            + (f" in {variable}" if variable else "; none was sent"),
            next_step=f"set {variable or 'api_key_env in the panel'}, then run the command again",
            **seen,
        )
    if http == 402 or (http == 429 and _QUOTA.search(words) and not _SOON.search(words)):
        return PausedError(
            f"{model.key}: the quota or credit at the provider is used up",
            next_step="resume the run when the account has credit again",
            **seen,
        )
    if http in (404, 410) or (wrong and _GONE.search(words)):
        return PartialError(
            f"{model.key}: the alias is dead: {model.model!r} is not served at this endpoint",
            next_step="check base_url and the model's name; a successor is a new model "
            "of the panel, with its own series",
            **seen,
        )
    if wrong and not _TOO_LONG.search(words):
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
