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
from drift.probing.phantom_board import BoardTruth
from drift.probing.phantom_judge import EntailmentTruth
from drift.probing.response import Ask, Response
from drift.records.sealing import OpenRun
from drift.records.store import Appender

DAILY_BUDGET = "daily budget"

Prompts = Mapping[str, str]
Scripted = phantom.Truth | BoardTruth | EntailmentTruth
Progress = Callable[[str, int, int], None]


def bare_questions(current: OpenRun, model: str, prompts: Prompts) -> list[Ask]:
    """Return what `model` has not been asked in a run: each arm is one bare question."""
    keys = current.unasked(model)
    return [Ask(key, ({"role": "user", "content": prompts[key]},)) for key in keys]


def ask(
    current: OpenRun,
    model: ModelSpec,
    asks: Sequence[Ask],
    *,
    weights: Path | None,
    truth: Scripted | None,
    clock: Clock,
    time_budget_s: int,
    progress: Progress | None,
    environ: Mapping[str, str],
    draw: int = 1,
) -> None:
    """Put `asks` to one model and store each answer in the open run; see :func:`ask_model`.

    A phantom is told which `draw` of the same questions it is asked for.
    """
    number = current.header["number"]
    total = sum(row["model"] == model.key for row in current.rows) + len(asks)

    async def work() -> None:
        served = _served(model, number, draw, weights, truth)
        async with Appender(current.path) as appender, served as how:

            async def keep(response: Response) -> None:
                document = response.document()
                if truth:
                    document.pop("latency_ms", None)  # of real time
                await appender.append(document)
                current.rows.append(document)
                if progress:
                    done = sum(row["model"] == model.key for row in current.rows)
                    progress(model.key, done, total)

            how |= {"time_budget_s": time_budget_s, "environ": environ}
            await ask_model(model, asks, keep=keep, clock=clock, seed=seed_of(model, number), **how)

    if asks:
        asyncio.run(work())


@asynccontextmanager
async def _served(
    model: ModelSpec, number: int, draw: int, weights: Path | None, truth: Scripted | None
) -> AsyncIterator[dict[str, Any]]:
    """Start a server of our own where the model needs one; yield how it is asked."""
    if truth:
        async with truth.serve(model.model, number, draw) as how:
            yield how
    elif weights:
        with embedded.serve(model, weights) as base_url:
            yield {"base_url": base_url, "fingerprint": embedded.serving_facts()}
    else:
        yield {}


def seed_of(model: ModelSpec, number: int, key: str = "") -> int | None:
    """Return the seed to send: fixed, or derived from the registered one, the run and a key.

    One seed for all questions of a run ties their answers to each other.
    """
    if model.seed_policy != "per-run":
        return model.seed
    drawn = f"{model.seed}|{number}" + (f"|{key}" if key else "")
    return int(sha256_hex(drawn.encode())[:8], 16) & 0x7FFFFFFF


def announcement(current: OpenRun, chosen: Sequence[ModelSpec], prompts: Prompts) -> str:
    """Say how much is to be asked, and what that costs at most where prices are stated."""
    questions = sum(len(current.unasked(model.key)) for model in chosen)
    text = f"run {current.run} ({current.header['scope']}): {questions} questions to "
    text += ", ".join(model.key for model in chosen)
    costs = [open_cost(model, current, prompts) for model in chosen]
    priced = [cost for cost in costs if cost is not None]
    return text + (f"; at most {sum(priced):.4f} USD" if priced else "")


def afford(model: ModelSpec, panel: Panel, *, cost: Decimal | None, spent: Decimal) -> None:
    """Refuse a model whose estimated cost the day's budget cannot pay; both in USD.

    Raises
    ------
    PausedError
        The budget is used up; the error stands at :data:`DAILY_BUDGET`.
    """
    budget = panel.daily_budget_usd
    if budget is not None and cost is not None and spent + cost > budget:
        raise PausedError(
            f"{model.key} is left out: the daily budget cannot pay it",
            where=DAILY_BUDGET,
            got=f"{spent} USD spent today, at most {cost} USD more",
            expected=f"at most {budget} USD a day",
            next_step="raise daily_budget_usd, or wait for the next UTC day",
        )


def spent_usd(panel: Panel, current: OpenRun, today: Iterable[Mapping[str, Any]]) -> Decimal:
    """Return what was paid today, in USD: by the open run, and by the lines of `today`."""
    paid = [usage(item, current.rows_of(item.key)) for item in panel.models]
    paid += [part["usage"] for body in today for part in body["models"].values()]
    return sum((Decimal(item["cost_usd"] or 0) for item in paid), Decimal(0))


def cost_usd(model: ModelSpec, prompts: Iterable[str]) -> Decimal | None:
    """Return what `prompts` cost at most, in USD; None without prices."""
    cost = estimate(model, prompts)["cost_usd"]
    return None if cost is None else Decimal(cost)


def open_cost(model: ModelSpec, current: OpenRun, prompts: Prompts) -> Decimal | None:
    """Return what a model's open questions of a run cost at most, in USD."""
    return cost_usd(model, [prompts[key] for key in current.unasked(model.key)])
