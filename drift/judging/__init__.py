"""Labels: the speech-act view, rules, anchors, shapes, and what a ladder came to."""

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
from drift.judging.shapes import SHAPES, Shape, ShapeCoder, load_shape_coder

__all__ = [
    "LADDER_OUTCOMES",
    "SHAPES",
    "TURN_OUTCOMES",
    "Anchor",
    "Judge",
    "Label",
    "Rubric",
    "Rule",
    "Shape",
    "ShapeCoder",
    "ladder_judge",
    "ladder_label",
    "ladder_outcome",
    "load_judge",
    "load_rubric",
    "load_shape_coder",
    "turn_outcome",
]
