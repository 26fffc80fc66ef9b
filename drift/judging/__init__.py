"""Labels: the speech-act view, the rules, the anchors."""

from drift.judging.rules import Anchor, Judge, Label, Rule, load_judge

__all__ = ["Anchor", "Judge", "Label", "Rule", "load_judge"]
