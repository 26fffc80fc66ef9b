"""Labels: the speech-act view, the rules, the anchors."""

from drift.judging.rules import Judge, Label, load_judge
from drift.judging.ruleset import Anchor, Rule

__all__ = ["Anchor", "Judge", "Label", "Rule", "load_judge"]
