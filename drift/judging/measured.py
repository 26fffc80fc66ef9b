"""Measurements of the judge as they are kept in ``config/judge/measured``.

Of a coded set only counts are kept: per prompt, how many of its answers were coded and judged
in which way. Every figure and interval follows from them, without the set.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from drift.errors import ConfigurationError

#: Said wherever a figure of a set is shown that the authors of the rules could read.
OPTIMISTIC = "development half, seen while the rules were written: optimistic"


class Measured(BaseModel):
    """A measurement as it is kept in ``config/judge/measured/<set>.json``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    set: str
    title: str
    licence: str
    development: bool
    note: str
    sha256: str
    rules: str
    fingerprint: str
    accuracy: dict[str, Any]
    precision: dict[str, Any]
    recall: dict[str, Any]
    kappa: dict[str, Any]
    coverage: float | None
    rows: int
    confusion: dict[str, dict[str, int]]
    prompts: list[list[int]]
    groups: dict[str, dict[str, dict[str, Any]]]
    disagreements: list[dict[str, Any]]
    apart: dict[str, dict[str, int]]
    label_by: dict[str, int]
    seed: int
    resamples: int

    @property
    def by_people(self) -> int:
        """Rows whose ``label_by`` says that a human gave the label."""
        return sum(n for who, n in self.label_by.items() if re.fullmatch(r"human\d*", who))

    @property
    def coders(self) -> Literal["human", "mixed", "machine"]:
        """Who coded the rows: people all of them, some, or none."""
        if self.by_people == self.rows:
            return "human"
        return "mixed" if self.by_people else "machine"

    def determined(self, language: str) -> tuple[list[list[int]], list[int]]:
        """Return, of the rows in one language, the counts with a judge's word, and how often.

        Per distinct prompt: coded refused and judged refused, refused and answered, answered and
        refused, answered and answered.
        """
        found = self.groups["language"].get(language, {}).get("prompts", [])
        return [[row[0], row[1], row[3], row[4]] for row in found], [row[-1] for row in found]


def measured_name(path: Path, named: str = "") -> str:
    """Return the name of a coded set: as given, or that of its file, without ``_dev``."""
    name = named or path.stem.removesuffix("_dev")
    if not re.fullmatch("[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        raise ConfigurationError(
            "not a name of a set", got=name, expected="letters, digits, '.', '_' and '-'"
        )
    return name


def measured_sets(folder: Path) -> list[Measured]:
    """Return the measurements kept in `folder`, those by people first, then by name."""
    found = [read_measured(path) for path in sorted(folder.glob("*.json"))]
    return sorted(found, key=lambda one: ("human mixed machine".split().index(one.coders), one.set))


def read_measured(path: Path) -> Measured:
    """Return the measurement kept in a file, or ConfigurationError."""
    try:
        return Measured.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigurationError(
            "not a measurement of the judge",
            where=str(path),
            got=f"{'.'.join(map(str, first['loc']))}: {first['msg']}",
            next_step="make it again with `drift judge evaluate`",
        ) from None


def kept_bytes(found: Mapping[str, Any]) -> bytes:
    """Return a measurement as its file holds it, one group or pattern a line."""
    Measured.model_validate(dict(found))
    lines = []
    for name, value in found.items():
        if name == "groups":
            parts = [
                f'  "{kind}": {{\n'
                + ",\n".join(f"   {_json(k)}: {_json(v)}" for k, v in rows.items())
                + "\n  }"
                for kind, rows in value.items()
            ]
            text = "{\n" + ",\n".join(parts) + "\n }"
        elif name in ("prompts", "disagreements"):
            text = "[\n" + ",\n".join(f"  {_json(row)}" for row in value) + "\n ]"
        else:
            text = _json(value)
        lines.append(f" {_json(name)}: {text}")
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
