"""What asking costs: estimated before a question is put, counted afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from drift.config import ModelSpec

#: UTF-8 bytes per prompt token: low on purpose, so that the estimate errs upwards.
BYTES_PER_TOKEN = 3
#: Tokens which the chat format adds to a question.
FRAME_TOKENS = 16

Usage = dict[str, Any]


def estimate(model: ModelSpec, prompts: Iterable[str]) -> Usage:
    """Estimate what asking `prompts` once uses, in the form of :func:`usage`.

    Every answer is taken to use all of ``model.max_tokens``, and every prompt one
    token for 3 bytes of UTF-8 and 16 for its frame; retries are not counted.
    """
    system = len((model.system_prompt or "").encode())
    sizes = [system + len(text.encode()) for text in prompts]
    prompt = sum(FRAME_TOKENS + size // BYTES_PER_TOKEN for size in sizes)
    return _priced(model, prompt, model.max_tokens * len(sizes))


def usage(model: ModelSpec | None, rows: Iterable[Mapping[str, Any]]) -> Usage:
    """Return the tokens that responses report, ``{prompt_tokens, completion_tokens, cost_usd}``.

    The cost is a decimal string in USD, None where the panel states no price.
    """
    tokens = [row.get("usage") or {} for row in rows]
    prompt = sum(item.get("prompt_tokens", 0) for item in tokens)
    return _priced(model, prompt, sum(item.get("completion_tokens", 0) for item in tokens))


def _priced(model: ModelSpec | None, prompt: int, completion: int) -> Usage:
    paid = None
    if model and model.price_prompt is not None and model.price_completion is not None:
        paid = (prompt * model.price_prompt + completion * model.price_completion) / 1_000_000
    cost = None if paid is None else format(Decimal(paid), "f")
    return {"prompt_tokens": prompt, "completion_tokens": completion, "cost_usd": cost}
