"""What asking costs, estimated before a question is put."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from drift.bank import Bank
from drift.config import ModelSpec

#: UTF-8 bytes per prompt token: low on purpose, so that the estimate errs upwards.
BYTES_PER_TOKEN = 3
#: Tokens which the chat format adds to a question.
FRAME_TOKENS = 16


@dataclass(frozen=True)
class Estimate:
    """An upper estimate; ``usd`` is None where the panel states no price."""

    requests: int
    prompt_tokens: int
    completion_tokens: int
    usd: Decimal | None


def estimate(model: ModelSpec, prompts: Sequence[str]) -> Estimate:
    """Estimate what asking `prompts` once costs, retries not counted.

    Every answer is taken to use all of ``model.max_tokens``, and every prompt one
    token for 3 bytes of UTF-8 and 16 for its frame.
    """
    system = len((model.system_prompt or "").encode())
    prompt = sum(
        FRAME_TOKENS + (system + len(text.encode())) // BYTES_PER_TOKEN for text in prompts
    )
    completion = model.max_tokens * len(prompts)
    usd = None
    if model.price_prompt is not None and model.price_completion is not None:
        usd = (prompt * model.price_prompt + completion * model.price_completion) / 1_000_000
    return Estimate(len(prompts), prompt, completion, usd)


def daily_requests(bank: Bank, cadence_hours: int) -> int:
    """Return the requests one model gets a day: one full run and canonical ones between."""
    canonical = len(bank.arms("canonical"))
    return len(bank.arms("full")) + (24 // cadence_hours - 1) * canonical
