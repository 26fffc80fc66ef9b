"""The client against a bare httpx loop: 2,000 requests at 200 ms, 64 in flight.

The server runs in a process of its own. The client stores every answer durably before
it asks again; the bare loop reads each reply's text and stores nothing. Both are run in
turn, and the median of the pairs' ratios is the figure; the target is at most 1.15.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

from drift.config import ModelSpec, utc_now
from drift.probing import Ask, Response, ask_model
from drift.records.store import Appender

ROOT = Path(__file__).resolve().parent.parent


async def bare(url: str, prompts: list[str], in_flight: int) -> int:
    """Ask all prompts in a plain loop; return the number of texts read."""
    queue, texts = iter(prompts), []
    limits = httpx.Limits(max_connections=in_flight, max_keepalive_connections=in_flight)
    async with httpx.AsyncClient(limits=limits, timeout=60, trust_env=False) as client:

        async def work() -> None:
            for prompt in queue:
                messages = [{"role": "user", "content": prompt}]
                body = {"model": "m", "messages": messages, "max_tokens": 512, "temperature": 0}
                reply = await client.post(f"{url}/chat/completions", json=body)
                texts.append(reply.json()["choices"][0]["message"]["content"])

        async with asyncio.TaskGroup() as group:
            for _ in range(in_flight):
                group.create_task(work())
    return len(texts)


async def ours(url: str, prompts: list[str], in_flight: int, path: Path) -> int:
    """Ask all prompts with the client; return the number of lines stored."""
    model = ModelSpec(
        key="m",
        kind="openai",
        model="m",
        base_url=url,
        parameters={"temperature": 0},
        concurrency=in_flight,
    )
    asks = [Ask(f"t/{n}#en-1", ({"role": "user", "content": p},)) for n, p in enumerate(prompts)]
    async with Appender(path) as appender:

        async def keep(response: Response) -> None:
            await appender.append(response.document())

        await ask_model(model, asks, keep=keep, clock=utc_now)
    with path.open("rb") as stream:
        return sum(1 for _ in stream)


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--delay", type=float, default=0.2, help="seconds before each reply")
    parser.add_argument("--pairs", type=int, default=5)
    options = parser.parse_args()
    prompts = [f"Question {n}: why does water boil?" for n in range(options.requests)]
    command = [sys.executable, str(ROOT / "tests" / "loopback.py"), "--delay", str(options.delay)]
    scratch = ROOT / ".cache"  # on a disk, where fsync costs what it costs a record
    scratch.mkdir(exist_ok=True)
    pairs = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        try:
            for _ in range(options.pairs):
                began = time.perf_counter()
                assert asyncio.run(bare(url, prompts, options.in_flight)) == len(prompts)
                between = time.perf_counter()
                with tempfile.TemporaryDirectory(dir=scratch) as folder:
                    path = Path(folder) / "open.jsonl"
                    stored = asyncio.run(ours(url, prompts, options.in_flight, path))
                    assert stored == len(prompts)
                pairs.append((between - began, time.perf_counter() - between))
        finally:
            server.kill()
    least = options.requests / options.in_flight * options.delay
    figures = {
        "requests": options.requests,
        "in_flight": options.in_flight,
        "delay_s": options.delay,
        "arithmetic_limit_s": round(least, 3),
        "bare_s": [round(pair[0], 3) for pair in pairs],
        "ours_s": [round(pair[1], 3) for pair in pairs],
        "bare_over_limit": round(statistics.median(pair[0] for pair in pairs) / least, 3),
        "ours_over_limit": round(statistics.median(pair[1] for pair in pairs) / least, 3),
        "ratio": round(statistics.median(pair[1] / pair[0] for pair in pairs), 3),
        "target": 1.15,
    }
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
