"""The alarm against a second implementation of it, over random histories of labels."""

from __future__ import annotations

import copy
import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest
from records.oracle import CLOSING, Oracle, Setting
from records.test_watch import ARMS, History, N, registration

from drift.records.registration import Registration

#: Histories in which much happens; those of 3 mod 4 have the registered parameters.
SEEDS = (0, 1, 3, 4, 5, 8, 9, 14, 16, 17, 20, 21)
MODELS = ("a", "b", "still")
#: (process, parameter) and the range from which a short watch takes it.
SHORT = {
    ("home", "burn_in"): (5, 15),
    ("home", "horizon"): (20, 120),
    ("home", "window"): (3, 9),
    ("pairs", "burn_in"): (2, 6),
    ("pairs", "horizon"): (10, 60),
    ("coverage", "burn_in"): (3, 12),
    ("coverage", "horizon"): (20, 90),
    ("mixture", "burn_in"): (1, 8),
    ("restart", "burn_in"): (1, 8),
    ("restart", "horizon"): (20, 60),
    ("burst", "burn_in"): (1, 8),
    ("burst", "horizon"): (20, 60),
}


class Script:
    """What happens in a random history: its labels, its slots, and what is registered."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.runs = self.rng.randint(120, 300)
        self.models = MODELS[: self.rng.randint(1, 3)]
        self.made = dict.fromkeys(MODELS, 1)
        self.reserved, self.slot = self.rng.randint(0, 1), 5
        self.cadence: int | None = 6
        self.coming = iter((12, None, 24, None, 48))
        self.short = seed % 4 != 3
        self.parameters = self.drawn_parameters()
        self.living = {model: ["a"] * N for model in MODELS}
        self.churn = dict.fromkeys(MODELS, 0.01)
        self.stays = dict.fromkeys(MODELS, True)
        self.outage, self.filtered = dict.fromkeys(MODELS, 0), dict.fromkeys(MODELS, 0)
        self.registered = self.registration()

    def drawn_parameters(self) -> dict[tuple[str, str], int]:
        return {key: self.rng.randint(*span) for key, span in SHORT.items()} if self.short else {}

    def registration(self) -> Registration:
        plain = registration(self.models, self.cadence, self.reserved)
        body = copy.deepcopy(plain.body)
        for model in self.models:
            body["instruments"][model]["sha256"] = str(self.made[model])
        for (process, name), value in self.parameters.items():
            body["alarm"][process][name] = value
        return Registration(body, plain.hash)

    def setting(self) -> Setting:
        body = self.registered.body
        alarm = {name: value for name, value in body["alarm"].items() if name != "seed"}
        return Setting(
            seed=body["alarm"]["seed"],
            panel=body["panel"]["name"],
            size=len(self.models) + self.reserved,
            cadence=self.cadence,
            alarm=alarm,
            instruments={model: str(self.made[model]) for model in self.models},
            roles={model: "reference" if model == "still" else "subject" for model in self.models},
        )

    def amend(self) -> None:
        """Now and then register something else."""
        rng = self.rng
        if rng.random() >= 0.01:
            return
        what = rng.choice(("instrument", "cadence", "models", "reserved", "alarm"))
        if what == "instrument":
            self.made[rng.choice(self.models)] += 1
        elif what == "cadence":
            self.cadence, self.slot = next(self.coming, 96), rng.randint(1, 1000)
        elif what == "models":
            self.models = tuple(sorted(rng.sample(MODELS, rng.randint(1, 3))))
        elif what == "reserved":
            self.reserved = rng.randint(0, 2)
        else:
            self.parameters = self.drawn_parameters()
        self.registered = self.registration()

    def advance(self) -> None:
        """Go to the next slot; sometimes past it, sometimes nowhere: a rerun."""
        chance = self.rng.random()
        self.slot += 1 if chance < 0.9 else self.rng.choice((2, 3, 12)) if chance < 0.95 else 0

    def labels(self) -> dict[str, str]:
        return {model: self.row(model) for model in self.models if self.rng.random() > 0.05}

    def row(self, model: str) -> str:
        """Return labels that stay flipped or err for one run, some of them not determined."""
        rng = self.rng
        if rng.random() < 0.03:
            calm = self.churn[model] < 0.05
            self.churn[model] = rng.choice((0.1, 0.4, 0.5, 0.5) if calm else (0, 0.005, 0.01))
            self.stays[model] = rng.random() < 0.3
        lived = self.living[model]
        now = [("r" if x == "a" else "a") if rng.random() < self.churn[model] else x for x in lived]
        if self.stays[model]:
            self.living[model] = list(now)
        chance = rng.random()
        self.outage[model] = rng.randint(1, 8) if chance > 0.99 else max(0, self.outage[model] - 1)
        if self.outage[model]:
            return rng.choice("-f") * N
        if rng.random() < 0.02:
            self.filtered[model] = 2 - self.filtered[model]
        undetermined = rng.randint(1, 2) if chance < 0.1 else rng.randint(3, N)
        for arm in rng.sample(range(N), undetermined if chance < 0.13 else 0):
            now[arm] = rng.choice("bf-")
        blocked = self.filtered[model]
        return "b" * blocked + "".join(now[blocked:])


def differences(got: Any, expected: Any, at: str = "") -> Iterator[str]:
    """Name every place where two documents differ; figures agree to eight digits."""
    if isinstance(got, Mapping) and isinstance(expected, Mapping):
        for key in sorted(got.keys() | expected.keys(), key=str):
            yield from differences(
                got.get(key, "absent"), expected.get(key, "absent"), f"{at} {key}"
            )
    elif isinstance(got, list | tuple) and isinstance(expected, list) and len(got) == len(expected):
        for place, (one, other) in enumerate(zip(got, expected, strict=True)):
            yield from differences(one, other, f"{at} {place}")
    elif isinstance(got, float) and isinstance(expected, float):
        if not math.isclose(got, expected, rel_tol=1e-8, abs_tol=1e-290):
            yield f"{at}: {got}, not {expected}"
    elif got != expected:
        yield f"{at}: {got}, not {expected}"


@cache
def compared(seed: int) -> tuple[list[str], Counter[str]]:
    """Return the differences in the first run that has any, and what the history contained."""
    script, history, oracle = Script(seed), History(), Oracle(ARMS)
    found: Counter[str] = Counter()
    for _ in range(script.runs):
        script.amend()
        script.advance()
        labels = script.labels()
        if not labels:
            continue
        history.registered = script.registered
        done = history.run(script.slot, **labels)
        run, slot = f"r{history.number:05}", script.slot if script.cadence else None
        before = {name: model.slot for name, model in oracle.models.items()}
        expected = oracle.run(run, slot, labels, script.setting())
        wrong: list[str] = []
        for model, row in expected.items():
            wrong += differences(done[model].churn["alarm"], row, f"{run} {model}")
            heard = set(labels[model]) != {"-"}
            found["unheard runs"] += not heard
            found["reruns"] += heard and slot is not None and slot == before.get(model)
            found["runs without a cadence"] += slot is None
            if row:
                found["rows"] += 1
                found["unusable runs"] += row["r"] is None
                found["blind runs"] += row["blind"]
                found["values scaled"] += bool(row["home"]) and row["home"]["m"] < N
        for name, model in oracle.models.items():
            summaries = [watch.summary() for watch in model.watches]
            wrong += differences(
                history.states[name].alarm.summaries(), summaries, f"{run} {name} watches"
            )
        epoch = (history.epoch.number, history.epoch.size)
        wrong += differences(epoch, [oracle.epoch, oracle.size], f"{run} epoch")
        if wrong:
            return wrong, found
    opened = history.panel()["watches_opened"]
    found["epochs"] += oracle.epoch
    for watch in (watch for model in oracle.models.values() for watch in model.watches):
        found["watches"] += 1
        alarm = watch.entered.get("home alarm", "")
        for name in watch.entered:
            found[name] += 1
        for name in ("pairs alarm", "panel alarm"):
            found[f"{name} beside a fresh baseline"] += "" < alarm < watch.entered.get(name, "")
        found["horizons"] += "horizon" in str(watch.ended)
        found.update((watch.closed or "open").split("; "))
    return list(differences(opened, oracle.watches_opened, "watches opened")), found


@pytest.mark.parametrize("seed", SEEDS)
def test_a_second_implementation_gives_every_row_and_every_watch(seed: int) -> None:
    assert compared(seed)[0] == []


def test_the_histories_compared_contain_all_that_the_alarm_tells_apart() -> None:
    found = sum((compared(seed)[1] for seed in SEEDS), Counter())
    wanted = (
        "home watch",
        "home alarm",
        "pairs alarm",
        "panel watch",
        "panel alarm",
        "coverage alarm",
        "mixture alarm",
        "restart alarm",
        "burst alarm",
        "pairs alarm beside a fresh baseline",
        "panel alarm beside a fresh baseline",
        "horizons",
        *CLOSING.values(),
        "unusable runs",
        "blind runs",
        "unheard runs",
        "reruns",
        "runs without a cadence",
        "values scaled",
    )
    assert [name for name in wanted if not found[name]] == []
    assert found["epochs"] > len(SEEDS)
