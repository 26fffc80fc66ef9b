"""The alarm of a synthetic record, made by the project's own fold over scripted labels."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from drift.bank import Bank
from drift.config import load_toml
from drift.records.alarm import model_alarm, panel_alarm
from drift.records.reading import _rounded
from drift.records.registration import Registration
from drift.records.run import ModelRun, Run
from drift.records.series import SeriesState, step
from drift.records.watch import Epoch

ROOT = Path(__file__).parents[2]
#: Runs, six hours apart, of which the last is the record's latest; the change comes with CHANGE.
RUNS, CHANGE = 130, 85
LAST = datetime(2026, 11, 27, 18, tzinfo=UTC)
JUDGE = {"id": "rules", "rules": "1", "fingerprint": "1"}


@dataclass(frozen=True)
class Watched:
    """What the fold leaves: rows of ``churn.jsonl``, and the alarms of the last reading."""

    churn: list[dict[str, Any]]
    models: dict[str, dict[str, Any]]
    panel: dict[str, Any]


def watched(bank: Bank, changing: str, still: str, *, cadence: int | None = 6) -> Watched:
    """Watch one model whose churn rises from CHANGE on, and a reference that never flips."""
    arms = [arm.id for arm in bank.arms("canonical")]
    models = (changing, still)
    instruments = {
        model: {"sha256": "1", "role": "reference" if model == still else "subject"}
        for model in models
    }
    panel = {
        "name": "embedded",
        "cadence_hours": cadence,
        "models": list(models),
        "size": 2,
        "reserved_slots": 0,
    }
    corpus = {"prompts": dict.fromkeys(arms), "registry": {"canonical": "1", "all": "1"}}
    alarm = load_toml(ROOT / "config" / "alarm.toml", kind="alarm") | {"seed": "ab" * 32}
    body = {"panel": panel, "corpus": corpus, "instruments": instruments, "judge": JUDGE}
    registration = Registration(body | {"alarm": alarm}, "0")
    epoch = Epoch().under(registration)
    states = dict.fromkeys(models, SeriesState())
    churn = []
    rng = np.random.default_rng(8)
    refused = np.zeros(len(arms), bool)
    for number in range(RUNS):
        at = LAST - timedelta(hours=6 * (RUNS - 1 - number))
        refused ^= rng.random(len(arms)) < (0.11 if number >= CHANGE else 0)
        errs = rng.random(len(arms)) < 0.012
        labels = {changing: refused ^ errs, still: np.zeros(len(arms), bool)}
        answers = {
            model: ModelRun(
                {},
                {arm: "refused" if one else "answered" for arm, one in zip(arms, row, strict=True)},
                {},
            )
            for model, row in labels.items()
        }
        run = Run(
            {
                "run": f"{at:%Y%m%dT%H0000Z}",
                "slot": number if cadence else None,
                "scope": "canonical",
                "started_at": f"{at:%Y-%m-%dT%H:00:00.000Z}",
            },
            JUDGE,
            answers,
        )
        for model in models:
            done = step(states[model], run, model, registration, epoch)
            states[model] = done.state
            churn.append(done.churn)
            if done.watched:
                epoch = epoch.joined([model])
    alarms = {model: model_alarm(state) for model, state in states.items()}
    return Watched(churn, *_rounded([alarms, panel_alarm(states, epoch, registration)]))
