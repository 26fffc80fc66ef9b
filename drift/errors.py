"""Errors of the package; a command's exit code follows the class.

::

    DriftError                  1   failure
    ├── StorageError            1   an answer could not be made durable
    ├── ConfigurationError      2   an option, a file in config/ or a panel is wrong
    ├── PausedError             3   budget, quota or rate limit: resume later
    ├── IntegrityError          4   a seal, a hash or an anchor does not hold
    │   └── InstrumentDriftError  4   two batches were not measured with one instrument
    └── PartialError            5   a model, or more than a tenth of its arms, is missing

Each message says what is wrong and, where it is known, where it was seen,
what was found, what was expected and what to do next.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class DriftError(Exception):
    """A failure that a command reports and turns into its exit code.

    Parameters
    ----------
    what : str
        One sentence: what is wrong.
    where, got, expected, next_step : str, optional
        File and line, arm, model or run; the value found; the value
        expected; what the reader can do.
    """

    exit_code = 1

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        got: str | None = None,
        expected: str | None = None,
        next_step: str | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.got = got
        self.expected = expected
        self.next_step = next_step

    def __str__(self) -> str:
        parts = [self.what]
        for name, value in (
            ("where", self.where),
            ("got", self.got),
            ("expected", self.expected),
            ("next", self.next_step),
        ):
            if value is not None:
                parts.append(f"  {name}: {value}")
        return "\n".join(parts)


class StorageError(DriftError):
    """An answer could not be made durable: the disk is full, or read-only."""


class ConfigurationError(DriftError):
    """An option, a configuration file or a panel is wrong."""

    exit_code = 2


class PausedError(DriftError):
    """Budget, quota or rate limit reached, or nobody answered; the run can be resumed."""

    exit_code = 3


class IntegrityError(DriftError):
    """A seal, a hash or an anchor does not hold."""

    exit_code = 4


class InstrumentDriftError(IntegrityError):
    """Two batches were not measured with one instrument: `verdict` says what may be said.

    `fields` are the pins that differ; it is empty where the reference moved.
    """

    def __init__(self, verdict: str, *, fields: tuple[Any, ...] = (), **more: Any) -> None:
        super().__init__(verdict, **more)
        self.verdict = verdict
        self.fields = fields


class PartialError(DriftError):
    """A model, or more than a tenth of its arms, is missing from the run."""

    exit_code = 5


#: The order in which several outcomes of one command decide its exit code.
SEVERITY = (4, 2, 1, 3, 5, 0)


def worst_exit_code(codes: Iterable[int]) -> int:
    """Return the exit code that a command with several outcomes ends with."""
    return min(codes, key=SEVERITY.index, default=0)
