"""What gives responses a word by published rules: the judge, the coder of shapes."""

from __future__ import annotations

from typing import Any, Protocol


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
