"""What a laboratory makes beside its runs: batches whose comparison has a known truth, nights."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from drift.config import ServerSpec, Strict, load_checked
from drift.errors import ConfigurationError
from drift.judging.ladder import Rubric


class PlannedBatch(Strict):
    """One batch of the replays: its name, its elicitor, and servers that are started otherwise."""

    name: str = Field(min_length=1)
    elicitor: str
    what: str
    purpose: Literal["batch", "calibration"] = "batch"
    models: tuple[str, ...] = ()
    servers: dict[str, ServerSpec] = Field(default={})


class Replay(Strict):
    """A comparison of two batches whose truth is known, and the verdict that it must get.

    ``rubric`` reads the candidate with another judge than the base.
    """

    id: str
    stated: str
    title: str
    truth: str
    model: str
    reference: str
    base: str
    candidate: str
    verdict: str
    rubric: Rubric | None = None


class Replays(Strict):
    """``config/replays.toml``: batches to be made one after the other, and what they must show."""

    batches: tuple[PlannedBatch, ...]
    replays: tuple[Replay, ...]


class PlannedNight(Strict):
    """One night of the laboratory's board, and servers that are started otherwise."""

    what: str
    servers: dict[str, ServerSpec] = Field(default={})


class Nights(Strict):
    """``config/nights.toml``: nights to be made, what was expected, and how that was read after."""

    expected: str
    read: str = ""
    nights: tuple[PlannedNight, ...]


def load_nights(root: Path) -> Nights:
    """Read the laboratory's nights."""
    return load_checked(root / "config" / "nights.toml", Nights, kind="nights")


def load_replays(root: Path) -> Replays:
    """Read the known-truth replays; ConfigurationError if one names a batch that is not made."""
    path = root / "config" / "replays.toml"
    found = load_checked(path, Replays, kind="replays")
    made = {item.name for item in found.batches}
    if odd := sorted({name for it in found.replays for name in (it.base, it.candidate)} - made):
        raise ConfigurationError(
            "a replay compares what is not made", where=str(path), got=", ".join(odd)
        )
    return found
