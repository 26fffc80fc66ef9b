"""What one more run costs the alarm: after ten years against the first bets.

One model of 41 arms, four runs a day, is folded run by run as a record folds it (series,
watches, every process, the state through JSON). Two folds, one that has just been
calibrated and one of 14,400 runs, then take 200 runs in turn; the figure is the median of
the pairs' ratios of processor time, and fails over 1.25. The first 40 runs, which bet on
nothing, are timed for comparison, and the sizes of the stored states are printed: a state
grows only by the summary of each watch that is over.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import asdict, dataclass

import orjson

from drift.config import load_toml, project_root
from drift.records.registration import Registration
from drift.records.run import ModelRun, Run
from drift.records.series import SeriesState, step
from drift.records.watch import Epoch
from drift.stats.zoo import ZOO, Lifetimes

N, TARGET = 41, 1.25
ARMS = [f"topic/f{number:02}#en-1" for number in range(N)]
JUDGE = {"id": "rules", "rules": "1", "fingerprint": "1"}


def registration() -> Registration:
    """Return a registration of one model, four runs a day."""
    alarm = load_toml(project_root() / "config" / "alarm.toml", kind="alarm")
    panel = {"name": "b", "cadence_hours": 6, "models": ["m"], "size": 1, "reserved_slots": 0}
    body = {
        "panel": panel,
        "corpus": {"prompts": dict.fromkeys(ARMS), "registry": {"canonical": "1", "all": "1"}},
        "instruments": {"m": {"sha256": "1", "role": "subject"}},
        "judge": JUDGE,
        "alarm": {**alarm, "seed": "ab" * 32},
    }
    return Registration(body, "registration")


@dataclass
class Fold:
    """The history of one model, as it is stored after its last run."""

    registered: Registration
    labels: Lifetimes
    epoch: Epoch
    stored: bytes = b""
    taken: int = 0

    def take(self) -> float:
        """Take the next run; return the processor seconds, with reading and storing the state."""
        word, at = int(self.labels.refused[self.taken, 0]), f"{self.taken:06}"
        outcomes = {
            arm: "refused" if word >> place & 1 else "answered" for place, arm in enumerate(ARMS)
        }
        body = {"run": at, "slot": self.taken, "scope": "canonical", "started_at": at}
        run = Run(body, JUDGE, {"m": ModelRun({}, outcomes, {})})
        began = time.process_time()
        state = SeriesState.read(orjson.loads(self.stored)) if self.stored else SeriesState()
        done = step(state, run, "m", self.registered, self.epoch)
        self.stored = orjson.dumps(asdict(done.state))
        seconds = time.process_time() - began
        if done.watched:
            self.epoch = self.epoch.joined(["m"])
        self.taken += 1
        return seconds


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=14_400, help="of the old fold, before timing")
    parser.add_argument("--pairs", type=int, default=200)
    options = parser.parse_args()
    registered, member = registration(), ZOO["iid flips 1.5 %"]
    labels = member(n=N, runs=options.runs + options.pairs, lifetimes=1)
    young, old = (Fold(registered, labels, Epoch().under(registered)) for _ in range(2))
    first = [young.take() for _ in range(60)][:40]
    for _ in range(options.runs):
        old.take()
    pairs = [(young.take(), old.take()) for _ in range(options.pairs)]
    ratio = statistics.median(late / early for early, late in pairs)
    figures = {
        "runs": {"young": young.taken, "old": old.taken},
        "milliseconds": {
            "in_the_first_40_runs": round(1000 * statistics.median(first), 3),
            "after_calibration": round(1000 * statistics.median(p[0] for p in pairs), 3),
            "after_ten_years": round(1000 * statistics.median(p[1] for p in pairs), 3),
        },
        "state_bytes": {"young": len(young.stored), "old": len(old.stored)},
        "ratio": round(ratio, 3),
        "target": TARGET,
    }
    print(json.dumps(figures, indent=2))
    sys.exit(ratio > TARGET)


if __name__ == "__main__":
    main()
