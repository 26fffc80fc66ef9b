"""The versions of the judge, and the kinds of text that it is known to get wrong, as data."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from drift.config import Strict, load_checked

_Hash = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
_Text = Annotated[str, Field(min_length=1)]


class Version(Strict):
    """A version of the judge.

    ``moved`` counts, by record, the stored labels that it moved when it came; a record that
    is not named was not judged again then. ``code`` is a digest of the modules that decide,
    without their prose, in the last version: a test holds them to it.
    """

    version: str
    since: date
    rules: _Hash
    fingerprint: _Hash
    code: _Hash | None = None
    changed: _Text
    reason: _Text
    moved: dict[str, Annotated[int, Field(ge=0)]] = Field(default_factory=dict)


class Miss(Strict):
    """A kind of text that the rules get wrong, in words: what they say, what people say."""

    id: str
    text: _Text
    judged: Literal["refused", "answered", "undetermined"]
    people: Literal["refused", "answered"]
    reason: _Text


class History(Strict):
    """``config/judge/history.toml``: versions, the oldest first, and known misses."""

    version: Annotated[list[Version], Field(min_length=1)]
    miss: list[Miss] = Field(default_factory=list)


def load_history(folder: Path) -> History:
    """Read the history of the judge in `folder`; ConfigurationError names a wrong field."""
    return load_checked(folder / "history.toml", History, kind="judge history")
