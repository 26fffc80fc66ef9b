"""A year of record: four models, 1,460 runs, about 390,000 responses of 1.5 kB.

Prints as JSON: seconds to verify texts, seals and chain, and to derive all labels again;
peak memory of the verifying process and its workers; and what adding one run costs
after a year, as a ratio to what it costs in week one (median of interleaved pairs).
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path

from drift.config import Panel, timestamp
from drift.probing.client import messages_sha256
from drift.records.derive import derive
from drift.records.registration import registered_bank
from drift.records.verify import verify_record
from drift.refresh import Record

ROOT = Path(__file__).resolve().parent.parent
START = datetime(2026, 1, 1, tzinfo=UTC)
WORDS = (ROOT / "PROTOCOL.md").read_text().split()
REFUSAL = "I'm sorry, but I can't help with that. "


def panel() -> Panel:
    models = [
        {
            "key": f"model-{n}",
            "kind": "openai",
            "model": f"lab/m{n}",
            "base_url": "http://127.0.0.1:9/v1",
        }
        for n in range(4)
    ]
    return Panel.model_validate(
        {"name": "year", "title": "A synthetic year", "cadence_hours": 6, "models": models}
    )


def new_record(folder: Path) -> Record:
    made = Record(panel(), folder=folder / "year", root=ROOT, clock=lambda: START)
    with made.opened():
        made.register(seed="0" * 64)
    return made


def add_run(made: Record, number: int, chance: random.Random) -> None:
    """Seal one run of synthetic answers and derive what follows from it."""
    now = START + timedelta(hours=6 * number)
    made.clock = lambda: now
    with made.opened():
        registration = made.register()[0]
        bank = registered_bank(made.store, registration.body)
        current, prompts = made._begin(made.panel.models, bank, registration), bank.prompts
        sent = {
            key: messages_sha256([{"role": "user", "content": prompts[key]}])
            for key in current.header["keys"]
        }
        for model in made.panel.models:
            for key in current.header["keys"]:
                at = chance.randrange(max(1, len(WORDS) - 260))
                text = " ".join(WORDS[at : at + 250])[:1500].ljust(1500, ".")
                # One arm in eleven is refused, and 1.5 % of the arms err for one run.
                if (zlib.crc32(key.encode()) % 11 == 0) != (chance.random() < 0.015):
                    text = REFUSAL + text
                current.rows.append(
                    {
                        "key": key,
                        "model": model.key,
                        "status": "ok",
                        "text": text,
                        "finish_reason": "stop",
                        "served_model": model.model,
                        "usage": {"prompt_tokens": 40, "completion_tokens": 300},
                        "attempts": 1,
                        "asked_at": timestamp(now),
                        "latency_ms": 900,
                        "messages_sha256": sent[key],
                    }
                )
        made._seal(current, registration)
        derive(made.store, made.ledger, clock=made.clock)


def timed_run(made: Record, number: int, chance: random.Random) -> float:
    start = time.perf_counter()
    add_run(made, number, chance)
    return time.perf_counter() - start


def verify_only(folder: Path, labels: bool) -> None:
    """Verify in this process and print seconds, counts and peak memory."""
    start = time.perf_counter()
    found = verify_record(folder, root=ROOT, rederive=labels)
    seconds = time.perf_counter() - start
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    workers = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(
        json.dumps(
            {
                "seconds": round(seconds, 2),
                "steps": found.seconds,
                "responses": found.responses,
                "labels": found.labels,
                "problems": len(found.problems),
                "peak_mb_main": own // 1024,
                "peak_mb_largest_worker": workers // 1024,
            }
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1460)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--verify", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--labels", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.verify:
        verify_only(options.verify, options.labels)
        return
    work = Path(tempfile.mkdtemp(prefix="year-"))
    chance = random.Random(20261129)
    try:
        week, year = new_record(work / "a"), new_record(work / "b")
        for number in range(28):
            add_run(week, number, chance)
        for number in range(options.runs):
            add_run(year, number, chance)
            if number % 100 == 99:
                print(f"{number + 1} runs made", file=sys.stderr)
        pairs = [
            (timed_run(week, 28 + n, chance), timed_run(year, options.runs + n, chance))
            for n in range(options.pairs)
        ]
        figures: dict[str, object] = {
            "add_a_run": {
                "week_one_s": round(statistics.median(a for a, _ in pairs), 4),
                "after_a_year_s": round(statistics.median(b for _, b in pairs), 4),
                "ratio": round(statistics.median(b / a for a, b in pairs), 3),
            }
        }
        for name, more in (("texts_seals_chain", []), ("and_labels", ["--labels"])):
            done = subprocess.run(
                [sys.executable, __file__, "--verify", str(work / "b" / "year"), *more],
                capture_output=True,
                text=True,
                check=True,
            )
            figures[name] = json.loads(done.stdout)
        print(json.dumps(figures, indent=2))
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
