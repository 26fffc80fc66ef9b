"""Asks: what is sent to a model, and what came back. Takes questions, yields responses."""

from drift.probing.client import ask_model, messages_sha256
from drift.probing.response import Ask, Response

__all__ = ["Ask", "Response", "ask_model", "messages_sha256"]
