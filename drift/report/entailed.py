"""What judges of a record said of its answers: did each answer the question that was asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from drift.report.tables import Record


class Entailed:
    """Stub."""

    def __init__(self, record: Record) -> None:
        self.record = record

    def narrow(self, full: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        yield from ()
