"""Puts the questions of an open run to one model, stores each answer, and counts the cost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

from drift.config import Clock, ModelSpec, Panel, sha256_hex
from drift.errors import PausedError
from drift.probing import embedded, phantom
from drift.probing.client import ask_model
from drift.probing.cost import estimate, usage
from drift.probing.response import Ask, Response
from drift.records.sealing import OpenRun
from drift.records.store import Appender

DAILY_BUDGET = "daily budget"

Prompts = Mapping[str, str]
Progress = Callable[[str, int, int], None]


def ask(
    current: OpenRun,
    model: ModelSpec,
    prompts: Prompts,
    *,
    weights: Path | None,
    truth: phantom.Truth | None,
    clock: Clock,
    time_budget_s: int,
    progress: Progress | None,
    environ: Mapping[str, str],
) -> None:
    """Ask one model what it has not been asked in this run; see :func:`ask_model`."""
    asks = [
        Ask(key, ({"role": "user", "content": prompts[key]},)) for key in current.unasked(model.key)
    ]
    total, number = len(current.header["keys"]), current.header["number"]

    async def work() -> None:
        served = _served(model, number, weights, truth)
        async with Appender(current.path) as appender, served as how:

            async def keep(response: Response) -> None:
                document = response.document()
                if truth:
                    document.pop("latency_ms", None)  # of real time
                await appender.append(document)
                current.rows.append(document)
                if progress:
                    progress(model.key, total - len(current.unasked(model.key)), total)

            how |= {"time_budget_s": time_budget_s, "environ": environ}
            await ask_model(model, asks, keep=keep, clock=clock, seed=seed_of(model, number), **how)

    if asks:
        asyncio.run(work())


@asynccontextmanager
async def _served(
    model: ModelSpec, number: int, weights: Path | None, truth: phantom.Truth | None
) -> AsyncIterator[dict[str, Any]]:
    """Start a server of our own where the model needs one; yield how it is asked."""
    if truth:
        async with phantom.serve(truth, model.model, number) as how:
            yield how
    elif weights:
        with embedded.serve(model, weights) as base_url:
            yield {"base_url": base_url, "fingerprint": embedded.serving_facts()}
    else:
        yield {}


def seed_of(model: ModelSpec, number: int) -> int | None:
    """Return the seed to send: fixed, or derived from the registered one and the run."""
    if model.seed_policy != "per-run":
        return model.seed
    return int(sha256_hex(f"{model.seed}|{number}".encode())[:8], 16) & 0x7FFFFFFF


def announcement(current: OpenRun, chosen: Sequence[ModelSpec], prompts: Prompts) -> str:
    """Say how much is to be asked, and what that costs at most where prices are stated."""
    questions = sum(len(current.unasked(model.key)) for model in chosen)
    text = f"run {current.run} ({current.header['scope']}): {questions} questions to "
    text += ", ".join(model.key for model in chosen)
    costs = [_cost(model, current, prompts) for model in chosen]
    priced = [cost for cost in costs if cost is not None]
    return text + (f"; at most {sum(priced):.4f} USD" if priced else "")


def afford(
    current: OpenRun, model: ModelSpec, prompts: Prompts, panel: Panel, today: Iterable[Any]
) -> None:
    """Refuse a model whose estimated cost the day's budget cannot pay; `today` holds run lines.

    Raises
    ------
    PausedError
        The budget is used up; the error stands at :data:`DAILY_BUDGET`.
    """
    budget, cost = panel.daily_budget_usd, _cost(model, current, prompts)
    if budget is None or cost is None:
        return
    paid = [usage(item, current.rows_of(item.key)) for item in panel.models]
    paid += [part["usage"] for run in today for part in run["models"].values()]
    spent = sum((Decimal(item["cost_usd"] or 0) for item in paid), Decimal(0))
    if spent + cost > budget:
        raise PausedError(
            f"{model.key} is left out of this run: the daily budget cannot pay it",
            where=DAILY_BUDGET,
            got=f"{spent} USD spent today, at most {cost} USD more",
            expected=f"at most {budget} USD a day",
            next_step="raise daily_budget_usd, or wait for the next UTC day",
        )


def _cost(model: ModelSpec, current: OpenRun, prompts: Prompts) -> Decimal | None:
    """Return what a model's open questions cost at most, in USD; None without prices."""
    cost = estimate(model, [prompts[key] for key in current.unasked(model.key)])["cost_usd"]
    return None if cost is None else Decimal(cost)
