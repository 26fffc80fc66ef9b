"""What is asked and what came back: the two values that probing exchanges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

Status = Literal["ok", "truncated", "empty", "blocked", "failed"]
STATUSES: tuple[str, ...] = get_args(Status)


@dataclass(frozen=True)
class Ask:
    """One question to one model.

    ``messages`` come before the panel's system prompt is put in front; ``in_corpus``
    says that they can be rebuilt from the corpus and need not be stored again. ``seed`` is
    sent in place of the one of all questions.
    """

    key: str
    messages: tuple[dict[str, str], ...]
    in_corpus: bool = True
    seed: int | None = None


@dataclass(frozen=True)
class Response:
    """What came back for one key of one model: a line of a transcript.

    ``text`` is exact: never trimmed or normalised. A lone surrogate is replaced
    by U+FFFD and named in ``notes``. ``declined`` means that the provider itself
    says the model refused. ``error`` holds ``http`` (int or None), ``code`` and a
    masked ``message``. ``usage`` holds ``prompt_tokens`` and ``completion_tokens``
    where they were reported. ``raw`` is the reply's body where it was not the
    plain case.
    """

    key: str
    model: str
    status: Status
    text: str = ""
    finish_reason: str | None = None
    declined: bool = False
    reasoning: str | None = None
    error: dict[str, Any] | None = None
    served_model: str | None = None
    provider: str | None = None
    fingerprint: str | None = None
    response_id: str | None = None
    usage: dict[str, int] | None = None
    attempts: int = 1
    asked_at: str = ""
    latency_ms: int = 0
    messages_sha256: str = ""
    messages: list[dict[str, str]] | None = None
    raw: str | None = None
    notes: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return the fields that hold something, in the order of the class."""
        always = ("key", "model", "status", "text")
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in vars(self).items()
            if name in always or value not in (None, False, (), "")
        }
