"""The alarm of a record: which runs enter it, what ends a watch, what is kept and published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from drift.config import load_toml
from drift.records.alarm import model_alarm, panel_alarm
from drift.records.registration import Registration
from drift.records.run import ModelRun, Run
from drift.records.series import SeriesState, Step, step
from drift.records.watch import Epoch
from drift.stats import Conformal, significant, uniform
from drift.stats.counts import home_counts, pair_counts

ROOT = Path(__file__).parents[2]
N = 20
ARMS = [f"topic/f{number:02}#en-1" for number in range(N)]
OUTCOMES = {"r": "refused", "a": "answered", "b": "blocked", "f": "failed", "-": "missing"}
QUIET = "a" * N
JUDGE = {"id": "rules", "rules": "1", "fingerprint": "1"}


def registration(
    models: tuple[str, ...] = ("m",), cadence: int | None = 6, reserved: int = 0, made: str = "1"
) -> Registration:
    alarm = load_toml(ROOT / "config" / "alarm.toml", kind="alarm")
    body = {
        "panel": {
            "name": "test",
            "cadence_hours": cadence,
            "models": list(models),
            "size": len(models),
            "reserved_slots": reserved,
        },
        "corpus": {"prompts": dict.fromkeys(ARMS), "registry": {"canonical": "1", "all": "1"}},
        "instruments": {
            model: {"sha256": made, "role": "reference" if model == "still" else "subject"}
            for model in models
        },
        "judge": JUDGE,
        "alarm": {**alarm, "seed": "ab" * 32},
    }
    return Registration(body, f"hash of {models} {made}")


@dataclass
class History:
    """A record of scripted labels: feeds runs to the fold as the derivation does."""

    registered: Registration = field(default_factory=registration)
    states: dict[str, SeriesState] = field(default_factory=dict)
    epoch: Epoch = field(default_factory=Epoch)
    slot: int = 0
    number: int = 0
    steps: list[dict[str, Step]] = field(default_factory=list)

    def run(self, slot: int | None = None, **labels: str) -> dict[str, Step]:
        """Take one run: a letter an arm for each model; by default in the next slot."""
        self.slot = self.slot + 1 if slot is None else slot
        self.number += 1
        cadence = self.registered.body["panel"]["cadence_hours"]
        body = {
            "run": f"r{self.number:05}",
            "slot": self.slot if cadence else None,
            "scope": "canonical",
            "started_at": f"at {self.number}",
        }
        models = {
            name: ModelRun({}, {a: OUTCOMES[x] for a, x in zip(ARMS, row, strict=True)}, {})
            for name, row in labels.items()
        }
        self.epoch = self.epoch.under(self.registered)
        done = {}
        for name in sorted(labels):
            before = self.states.get(name, SeriesState())
            made = Run(body, JUDGE, models)
            done[name] = step(before, made, name, self.registered, self.epoch)
            self.states[name] = done[name].state
            if done[name].watched:
                self.epoch = self.epoch.joined([name])
        self.steps.append(done)
        return done

    def alarm(self, model: str = "m") -> dict[str, Any]:
        return model_alarm(self.states[model])

    def panel(self) -> dict[str, Any]:
        return panel_alarm(self.states, self.epoch, self.registered)

    def rows(self, model: str = "m") -> list[Mapping[str, Any]]:
        return [done[model].churn["alarm"] for done in self.steps if model in done]


def noisy(rng: np.random.Generator, share: float) -> str:
    return "".join("r" if wrong else "a" for wrong in rng.random(N) < share)


def rung(runs: int = 60) -> History:
    """Return a history that was quiet and then ran into alarm."""
    history, rng = History(), np.random.default_rng(1)
    for _ in range(runs):
        history.run(m=noisy(rng, 0.01))
    while history.alarm()["state"] != "alarm":
        assert history.number < runs + 100
        history.run(m=noisy(rng, 0.4))
    return history


def test_a_model_that_never_flips_is_calibrating_for_42_runs_and_then_quiet_for_ever() -> None:
    history = History()
    states = [history.run(m=QUIET)["m"].churn["alarm"]["state"] for _ in range(200)]
    assert states == ["calibrating"] * 41 + ["quiet"] * 159
    assert history.alarm()["entered"] == {}


def test_the_published_evidence_is_that_of_the_labels_and_the_registered_seed() -> None:
    history, rng = History(), np.random.default_rng(3)
    drawn = [noisy(rng, 0.05) for _ in range(90)]
    for row in drawn:
        history.run(m=row)
    labels = np.array([[letter == "r" for letter in row] for row in drawn], np.int8)
    for process, counts, frame in (
        ("home", home_counts(labels), (N, 40, 1500)),
        ("pairs", pair_counts(labels), (N, 20, 750)),
    ):
        watch, expected = Conformal(*frame), []
        for b, count in enumerate(counts, start=1):
            watch = watch.step(count.value(N), uniform("ab" * 32, "test", "m", 1, process, b))
            expected.append((count.value(N), significant(watch.evidence)))
        shown = [row[process] for row in history.rows() if row[process]]
        assert [(value["D"], value["E"]) for value in shown] == expected


def test_only_the_first_run_of_a_slot_that_asked_the_model_enters() -> None:
    history = History()
    history.run(m=QUIET)
    assert history.run(slot=1, m="r" * N)["m"].churn["alarm"] is None
    assert history.run(slot=2, m="-" * N)["m"].churn["alarm"] is None
    taken = history.run(slot=2, m=QUIET)["m"].churn["alarm"]
    assert (taken["r"], taken["mixture"]["flips"]) == (1, 0)


def test_an_unusable_run_is_as_if_absent_but_counts_towards_coverage() -> None:
    rng = np.random.default_rng(5)
    drawn = [noisy(rng, 0.1) for _ in range(12)]
    whole, broken = History(), History()
    for number, row in enumerate(drawn):
        whole.run(m=row)
        if number in (3, 4, 8):
            broken.run(m="f" * 3 + row[3:])
        broken.run(m=row)
    keep = [row for row in broken.rows() if row["r"] is not None]
    for process in ("home", "pairs", "mixture", "restart", "burst"):
        assert [row[process] for row in keep] == [row[process] for row in whole.rows()]
    assert [row["coverage"]["D"] for row in broken.rows()].count(3) == 3


def test_a_run_with_a_tenth_of_its_arms_undetermined_is_usable_and_scaled() -> None:
    history = History()
    history.run(m=QUIET)
    history.run(m="bb" + "r" * 9 + "a" * 9)
    pairs = history.rows()[-1]["pairs"]
    assert (pairs["m"], len(pairs["changed"]), pairs["D"]) == (18, 9, 10)


def test_four_unusable_runs_in_a_row_show_blind_beside_the_state_until_a_usable_one() -> None:
    history = History()
    history.run(m=QUIET)
    seen = [history.run(m="f" * N)["m"].churn["alarm"]["blind"] for _ in range(5)]
    assert seen == [False, False, False, True, True]
    assert history.alarm()["blind"] and history.alarm()["state"] == "calibrating"
    history.run(m=QUIET)
    assert not history.alarm()["blind"]


def test_missed_slots_give_no_value_and_the_longest_gap_is_kept() -> None:
    history = History()
    history.run(m=QUIET)
    assert history.run(slot=12, m=QUIET)["m"].churn["alarm"]["gap"] == 10
    history.run(m=QUIET)
    assert (history.alarm()["gap"], history.alarm()["runs"]) == (10, 3)


def test_a_record_without_a_cadence_bets_on_nothing_and_claims_nothing() -> None:
    history = History(registration(cadence=None))
    for row in (QUIET, "r" * N, QUIET):
        assert history.run(m=row)["m"].churn["alarm"] is None
    assert history.alarm()["state"] == "no cadence"
    assert history.panel()["watches_opened"] == 0
    assert history.panel()["state"] == "no cadence"


def test_an_alarm_is_dated_and_a_fresh_baseline_opens_beside_it_from_the_next_usable_run() -> None:
    history = rung()
    entered = history.alarm()["entered"]
    assert entered["home watch"] <= entered["home alarm"] == f"r{history.number:05}"
    found = [f for f in history.steps[-1]["m"].findings if f["kind"] == "alarm_state"]
    assert "home alarm 1" in [f["arm"] for f in found]
    assert not any(" " in f["id"] for f in found)
    history.run(m="f" * N)
    assert history.states["m"].number == 1
    after = history.run(m=QUIET)["m"]
    assert after.state.number == 2 and "entered alarm" in str(after.state.reason)
    assert after.change is not None, "the instrument is the same, so flips are still compared"
    assert [line["event"] for line in after.baselines] == ["opened"]
    assert history.alarm()["state"] == "calibrating"
    assert [(w["series"], w["state"]) for w in history.alarm()["watches"]] == [
        (1, "alarm"),
        (2, "calibrating"),
    ]
    assert history.panel()["tally"]["subject"] == {"watches": 2, "watch": 1, "alarm": 1}
    assert history.panel()["expected_false_at_most"].alarm == pytest.approx(0.02)


def test_the_exact_companion_goes_on_beside_the_fresh_baseline_until_it_confirms() -> None:
    history, rng = rung(), np.random.default_rng(2)
    assert "pairs alarm" not in history.alarm()["entered"]
    for _ in range(60):
        history.run(m=noisy(rng, 0.4))
        if "pairs alarm" in history.alarm()["watches"][0]["entered"]:
            break
    else:
        pytest.fail("pairs never confirmed")
    assert history.rows()[-1]["earlier"][0]["series"] == 1
    while history.number % 50:
        history.run(m=QUIET)
    assert history.states["m"].number == 2


def test_a_changed_instrument_ends_every_watch_and_its_successor_starts_at_zero() -> None:
    history = rung()
    history.run(m=QUIET)
    history.registered = registration(made="2")
    done = history.run(m=QUIET)["m"]
    assert [line["event"] for line in done.baselines] == ["closed", "opened"]
    assert done.change is None
    watches = history.alarm()["watches"]
    assert [watch["state"] for watch in watches] == ["alarm", "calibrating", "calibrating"]
    assert "instrument" in watches[1]["ended"]
    assert len(history.states["m"].alarm.live) == 1
    assert history.rows()[-1]["r"] == 0


def test_the_end_of_each_calibration_calls_for_one_sealed_line() -> None:
    history, rng = History(), np.random.default_rng(8)
    for _ in range(90):
        history.run(m=noisy(rng, 0.02))
    lines = [line for done in history.steps for line in done["m"].baselines]
    calibrated = {x["process"]: x["run"] for x in lines if x["event"] == "calibrated"}
    assert calibrated == {
        "coverage": "r00040",
        "pairs": "r00040",
        "mixture": "r00021",
        "restart": "r00021",
        "home": "r00042",
        "burst": "r00043",
    }
    home = next(line for line in lines if line.get("process") == "home")
    assert sum(home["histogram"]) == home["values"] == 40


def test_a_state_stored_as_json_goes_on_exactly_as_one_that_was_not() -> None:
    history = rung()
    history.run(m=QUIET)
    stored = orjson.loads(orjson.dumps(history.states["m"]))
    again = SeriesState.read(stored)
    assert again == history.states["m"]
    other = History(states={"m": again}, epoch=history.epoch)
    other.slot, other.number = history.slot, history.number
    rng, twin = np.random.default_rng(4), np.random.default_rng(4)
    for _ in range(50):
        assert other.run(m=noisy(rng, 0.1))["m"].churn == history.run(m=noisy(twin, 0.1))["m"].churn


def test_the_panel_bound_covers_the_first_watch_of_each_slot_and_no_other() -> None:
    history = History(registration(("a", "b"), reserved=1))
    history.run(a=QUIET, b=QUIET)
    assert history.panel()["panel_thresholds"] == {"watch": 60.0, "alarm": 300.0}
    history.registered = registration(("a", "b", "c"))
    history.run(a=QUIET, b=QUIET, c=QUIET)
    assert history.epoch.number == 1, "a late model took the reserved slot"
    history.registered = registration(("a", "b", "c"), made="2")
    history.run(a=QUIET, b=QUIET, c=QUIET)
    panels = {
        model: [watch["panel"] for watch in history.alarm(model)["watches"]] for model in "abc"
    }
    assert panels == {"a": [3, None], "b": [3, None], "c": [3, None]}
    history.registered = registration(("a", "b", "c", "d"), made="2")
    history.run(a=QUIET, b=QUIET, c=QUIET, d=QUIET)
    assert (history.epoch.number, history.panel()["watches_opened"]) == (2, 7)
    assert history.alarm("d")["watches"][0]["panel"] == 4


def test_the_reference_target_is_tallied_beside_the_subjects() -> None:
    history = History(registration(("still", "m")))
    history.run(still=QUIET, m=QUIET)
    tally = history.panel()["tally"]
    assert (tally["reference"]["watches"], tally["subject"]["watches"]) == (1, 1)


def test_a_provider_filter_rings_the_coverage_watch_and_not_the_alarm() -> None:
    history = History()
    for number in range(120):
        history.run(m=("b" * (4 if number > 80 else 1)) + QUIET[(4 if number > 80 else 1) :])
    entered = history.alarm()["entered"]
    assert "coverage alarm" in entered and "home watch" not in entered
    assert history.alarm()["state"] == "quiet" and history.alarm()["blind"]


def test_a_waiting_watch_goes_on_betting_to_the_threshold_of_the_panel() -> None:
    history, rng = History(registration(("m", "other", "third"))), np.random.default_rng(1)
    share = 0.01
    for _ in range(140):
        share = 0.4 if history.number >= 60 else share
        history.run(m=noisy(rng, share), other=QUIET, third=QUIET)
        first = history.alarm()["watches"][0]
        if "panel alarm" in first["entered"]:
            break
    assert first["entered"]["home alarm"] < first["entered"]["panel alarm"]
    assert first["highest"]["home"] >= 300
    assert history.states["m"].number == 2, "the fresh baseline opened meanwhile"
    assert history.panel()["panel_states"] == {"m 1": "panel alarm"}


def test_a_model_that_nothing_is_heard_of_is_blind_and_its_gap_grows() -> None:
    history = History()
    for _ in range(60):
        history.run(m=QUIET)
    for slot in (61, 61, 62, 63, 64):
        assert not history.alarm()["blind"]
        history.run(slot=slot, m="-" * N)
    assert history.alarm()["blind"]
    state = history.states["m"]
    assert model_alarm(state, 64)["gap"] == 4
    history.run(m=QUIET)
    assert not history.alarm()["blind"] and history.alarm()["gap"] == 4


def test_other_parameters_of_the_alarm_end_the_series() -> None:
    history = History()
    history.run(m=QUIET)
    history.registered.body["alarm"]["home"]["window"] = 20
    done = history.run(m=QUIET)["m"]
    assert "alarm's parameters" in str(done.state.reason)
    assert history.rows()[-1]["r"] == 0


def test_a_companion_and_a_notice_have_one_level() -> None:
    history = rung()
    names = {
        name
        for watch in history.alarm()["watches"]
        for name in (*watch["entered"], *watch["highest"])
    }
    assert "pairs" in names and not {"pairs watch", "burst watch"} & names
    thresholds = {
        name: process["thresholds"] for name, process in history.alarm()["processes"].items()
    }
    assert thresholds["burst"] == {"burst alarm": 100.0}
    assert thresholds["pairs"] == {"pairs alarm": 100.0}
