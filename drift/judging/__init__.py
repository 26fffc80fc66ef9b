"""Labels: the speech-act view, the rules, the anchors, and what a ladder came to."""

from drift.judging.ladder import (
    LADDER_OUTCOMES,
    TURN_OUTCOMES,
    Rubric,
    ladder_judge,
    ladder_label,
    ladder_outcome,
    load_rubric,
    turn_outcome,
)
from drift.judging.rules import Judge, Label, load_judge
from drift.judging.ruleset import Anchor, Rule

__all__ = [
    "LADDER_OUTCOMES",
    "TURN_OUTCOMES",
    "Anchor",
    "Judge",
    "Label",
    "Rubric",
    "Rule",
    "ladder_judge",
    "ladder_label",
    "ladder_outcome",
    "load_judge",
    "load_rubric",
    "turn_outcome",
]
