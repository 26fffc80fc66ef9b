"""Flips: what changed between two runs over the arms which both determined."""

from collections.abc import Mapping
from dataclasses import dataclass

from drift.stats.inputs import Label, Names
from drift.stats.paired import paired_table


@dataclass(frozen=True)
class Flips:
    """Arms whose label changed; `churn` None, with a reason, if no arm was compared."""

    compared: int
    newly_refused: Names
    newly_answered: Names
    not_compared: Names  # in either run, without a determined label in both
    churn: float | None  # flips per compared arm
    reason: str | None = None


def flips(before: Mapping[str, Label], after: Mapping[str, Label]) -> Flips:
    """Compare two runs of one series over the arms with a determined label in both.

    Churn holds serving noise as well as policy. Flips share their run and come
    in return pairs, so they are not independent trials and get no interval.
    `before` and `after` map arms of the caller's choice, canonical for churn, to labels.
    """
    arms = before.keys() | after.keys()
    table = paired_table({arm: (before.get(arm), after.get(arm)) for arm in arms})
    refused, answered = table["answered", "refused"], table["refused", "answered"]
    n = len(arms) - len(table[None])
    if n == 0:
        return Flips(0, (), (), table[None], None, "no arm is determined in both runs")
    return Flips(n, refused, answered, table[None], (len(refused) + len(answered)) / n)
