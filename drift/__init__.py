"""Refusal drift: ask, seal, judge, count and show a model's answering behaviour."""

__version__ = "0.1.0"
