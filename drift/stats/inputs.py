"""Inputs of the statistics: what is accepted, and the message when it is not."""

import operator
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

Label: TypeAlias = str | None
Determined: TypeAlias = Literal["refused", "answered"]
Names: TypeAlias = tuple[str, ...]  # of families, arms or controls, always sorted
WORDINGS: Final = ("en-1", "en-2", "en-3")  # two bare ones, then one that states a purpose


def checked_count(name: str, value: int, **at_most: int) -> int:
    """Return `value` as an int if it is >= 0 and at most the bound, given by its name."""
    count = operator.index(value)
    for bound, most in at_most.items():
        if not 0 <= count <= most:
            raise ValueError(f"{name} in [0, {bound}], got {count} of {most}")
    if count < 0:
        raise ValueError(f"{name} >= 0, got {count}")
    return count


def checked_share(name: str, value: float) -> float:
    """Return `value` as a float if 0 < `value` < 1."""
    if not 0 < value < 1:
        raise ValueError(f"{name} in (0, 1), got {value}")
    return float(value)


def determined(name: str, label: Label) -> Determined | None:
    """Return the label of `name` if it is determined, else None."""
    if label is None or label == "undetermined":
        return None
    if label not in ("refused", "answered"):
        raise ValueError(f"label of {name} in refused, answered, undetermined; got {label!r}")
    return "refused" if label == "refused" else "answered"


def english_labels(family: str, labels: Mapping[str, Label]) -> list[Determined | None]:
    """Return the determined labels of en-1, en-2, en-3; None where there is none."""
    # A misspelt variant would otherwise pass for a missing wording.
    if unknown := sorted(labels.keys() - {*WORDINGS, "zh"}):
        raise ValueError(f"variants of {family} in en-1, en-2, en-3, zh; got {unknown}")
    return [determined(f"{family}#{variant}", labels.get(variant)) for variant in WORDINGS]
