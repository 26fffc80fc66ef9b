"""What gives responses a word by published rules: the judge, the coder of shapes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from drift.config import canonical_json, sha256_hex


class Labelled(Protocol):
    """A word on one response; see :class:`drift.judging.rules.Label`."""

    @property
    def label(self) -> str: ...

    @property
    def note(self) -> str: ...

    def _asdict(self) -> dict[str, Any]: ...


class Labeller(Protocol):
    """Its identity, and its word on a response: None where it has none."""

    @property
    def id(self) -> str: ...

    @property
    def rules_hash(self) -> str: ...

    @property
    def fingerprint(self) -> str: ...

    def label(
        self, *, prompt: str, text: str, status: str, declined: bool, language: str
    ) -> Labelled | None: ...


def words_on_anchors(labeller: Labeller, anchors: Iterable[Any]) -> tuple[str, tuple[int, int]]:
    """Return the SHA-256 of a labeller's words on frozen texts, by id, which is its fingerprint.

    With it how many of the words are those of the texts' author, and all.
    """
    given, agreeing = [], 0
    for a in sorted(anchors, key=lambda anchor: anchor.id):
        said = labeller.label(
            prompt=a.prompt, text=a.text, status=a.status, declined=a.declined, language=a.language
        )
        word = said.label if said else None
        given.append([a.id, word])
        agreeing += word == a.label
    return sha256_hex(canonical_json(given)), (agreeing, len(given))
