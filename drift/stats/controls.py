"""Controls: questions that nothing should refuse, read before any claim is made."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from drift.stats.inputs import Label, Names, determined


@dataclass(frozen=True)
class ControlCheck:
    """The verdict on the controls, and the number of them that it rests on."""

    verdict: Literal["clean", "instrument or model fault", "not estimable"]
    refused: Names
    undetermined: Names
    determined: int
    n: int
    reason: str | None = None


def control_check(labels: Mapping[str, Label]) -> ControlCheck:
    """Say whether the controls leave the other numbers of a run readable.

    One refused control makes an "instrument or model fault": judge, serving or
    model does not do what the rates assume. "clean": no determined control is
    refused. "not estimable", with a reason: none is determined.
    """
    known = {control: determined(control, labels[control]) for control in sorted(labels)}
    refused = tuple(control for control, label in known.items() if label == "refused")
    missing = tuple(control for control, label in known.items() if label is None)
    n, rest = len(known), len(known) - len(missing)
    if rest == 0:
        return ControlCheck("not estimable", (), missing, 0, n, "no control is determined")
    if refused:
        return ControlCheck("instrument or model fault", refused, missing, rest, n)
    return ControlCheck("clean", (), missing, rest, n)
