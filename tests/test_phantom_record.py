"""A short phantom record through the whole pipeline: every injected fact is read back."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

from drift.bank import load_bank
from drift.config import load_panel, sha256_hex
from drift.errors import ConfigurationError
from drift.probing.citations import CLASSES
from drift.probing.phantom import Truth
from drift.records.ledger import Ledger
from drift.records.store import Store, read_bytes, read_rows
from drift.records.verify import verify_record
from drift.refresh import Record
from drift.report.board_truth import SCRIPTED, compared
from drift.report.nights import Nights
from drift.report.tables import load_record, run_ids
from drift.report.truth import Truth as Scripted

RUNS = 10
RULES = """
seed = "short"
alarm_seed = "abababababababababababababababababababababababababababababababab"
start = 2026-01-01T00:00:00Z
runs = 10

[models.still]
story = "Never changes."
served = "still-1"
refuses = [
  "privacy/tor-network",
  "science/fireworks-colours#en-2",
  "privacy/snowden-2013#en-1",
  "privacy/snowden-2013#en-2",
  "contested-history/nazi-rise#zh",
  "privacy/face-recognition#en-1",
  "privacy/face-recognition#en-2",
  "privacy/face-recognition#en-3",
]

[models.level]
story = "One family turns at run 6 and stays; the model reports another name from run 4 on."
served = "level-1"
changes = [{ run = 6, turns = ["privacy/tor-network"] }, { run = 4, served = "level-2" }]

[models.filtered]
story = "Faults throughout, and a filter in runs 5 to 7."
served = "filtered-1"
churn = 0.05
faults = { limited = 0.1, broken = 0.1, cut = 0.1, empty = 0.02, failed = 0.01 }
changes = [
  { run = 5, blocked = ["privacy/tor-network", "privacy/snowden-2013"] },
  { run = 8, blocked = [] },
]
"""
PANEL = """
name = "phantom"
title = "Short"
cadence_hours = 6
scope_plan = "listed"
full_runs = [1, 10]
"""
FAMILIES = (
    "science/photosynthesis", "science/fireworks-colours", "privacy/tor-network",
    "privacy/snowden-2013", "privacy/face-recognition", "contested-history/nazi-rise",
    "law/copyright-trademark", "health/mmr-side-effects", "social-science/census-survey",
    "civil-liberties/torture-ban",
)  # fmt: skip


def make_project(folder: Path) -> Path:
    """Write a project with a phantom of three models and a bank of ten families."""
    shutil.copytree(ROOT / "config", folder / "config")
    (folder / "notebooks").mkdir()
    bank = json.loads((folder / "config/probe_bank.json").read_bytes())
    bank["families"] = [item for item in bank["families"] if item["id"] in FAMILIES]
    controls = sum(item["control"] for item in bank["families"])
    number, chinese = len(bank["families"]), sum(bool(item["zh"]) for item in bank["families"])
    bank["counts"] = {"families": number, "sensitive": number - controls, "controls": controls}
    bank["counts"]["chinese"] = chinese
    (folder / "config/probe_bank.json").write_text(json.dumps(bank, ensure_ascii=False))
    shipped = (ROOT / "config/phantom.toml").read_text()
    (folder / "config/phantom.toml").write_text(RULES + shipped[shipped.index("[refusals.en]") :])
    models = "".join(
        f'[[models]]\nkey = "{key}"\nkind = "phantom"\nmodel = "{key}"\nattempts = 3\n'
        for key in ("still", "level", "filtered")
    )
    (folder / "config/panels/phantom.toml").write_text(PANEL + models)
    return folder


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose phantom record holds all its runs."""
    folder = make_project(tmp_path_factory.mktemp("phantom"))
    made = record(folder)
    with made.opened():
        outcome = made.refresh_to(RUNS)
    assert outcome.sealed and outcome.exit_code == 0, outcome.notes
    return folder


@pytest.fixture
def store(project: Path) -> Store:
    return Store(project / "data/phantom")


def record(project: Path) -> Record:
    panel = load_panel("phantom", root=project)
    return Record(panel, folder=project / "data/phantom", root=project)


def run_lines(store: Store) -> list[dict[str, Any]]:
    return [line.body for line in Ledger(store.folder).forwards() if line.kind == "run"]


def run_of(store: Store, number: int) -> str:
    return str(run_lines(store)[number - 1]["run"])


def reading(store: Store, number: int, model: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(read_bytes(store.reading(run_of(store, number))))
    return found["models"][model]  # type: ignore[no-any-return]


def findings(store: Store, model: str, kind: str) -> list[tuple[str, str | None]]:
    rows = [row for row in read_rows(store.findings) if row["kind"] == kind]
    return [(row["run"], row.get("arm")) for row in rows if row["model"] == model]


def files(folder: Path) -> dict[str, bytes]:
    """Every file of a record but its lock, by its path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def test_each_run_begins_with_its_slot_of_virtual_time(store: Store) -> None:
    lines = run_lines(store)
    assert [line["started_at"][:16] for line in lines[:5]] == [
        "2026-01-01T00:00", "2026-01-01T06:00", "2026-01-01T12:00", "2026-01-01T18:00",
        "2026-01-02T00:00",
    ]  # fmt: skip
    slots = [line["slot"] for line in lines]
    assert slots == list(range(slots[0], slots[0] + RUNS))
    assert [line["scope"] for line in lines] == ["full", *["canonical"] * 8, "full"]
    stamps = [line.body["at"] for line in Ledger(store.folder).forwards()]
    assert stamps == sorted(stamps) and stamps[0] < "2026" and stamps[-1] < "2026-01-03T07"


def test_the_truth_is_registered_before_run_1_and_published_beside_the_record(
    store: Store,
) -> None:
    registered = next(Ledger(store.folder).forwards()).body
    published = (store.folder / "truth.json").read_bytes()
    assert registered["panel"]["truth_sha256"] == sha256_hex(published)
    assert registered["alarm"]["seed"] == json.loads(published)["rules"]["alarm_seed"] == "ab" * 32


def test_every_label_of_the_record_is_the_one_that_was_scripted(
    project: Path, store: Store
) -> None:
    frame = Scripted(load_record("phantom", root=project)).accuracy
    asked = sum(len(line["keys"]) * len(line["models"]) for line in run_lines(store))
    assert frame.labels_compared.sum() == frame.as_scripted.sum() == asked


def test_every_injected_fact_of_the_record_is_recovered_on_its_page(project: Path) -> None:
    facts = list(Scripted(load_record("phantom", root=project)).facts())
    assert {"follow from the labels" in fact.due for fact in facts if not fact.recovered} == {True}
    assert not [fact for fact in facts if fact.recovered is False]
    assert {fact.since for fact in facts} == {1, 4, 5, 6, 8}


def test_a_refusal_set_is_read_with_its_wordings_purposes_and_languages(store: Store) -> None:
    for number in (1, RUNS):
        found = reading(store, number, "still")
        assert found["canonical"]["refused"] == 3
        full = found["full"]
        assert full["wording"]["tripwires"] == ["science/fireworks-colours"]
        assert full["unlock"]["unlocked"] == ["privacy/snowden-2013"]
        assert full["language"]["refused_zh_only"] == ["contested-history/nazi-rise"]
        only = ["privacy/face-recognition", "privacy/snowden-2013"]
        assert full["language"]["refused_en_only"] == only
        assert full["language"]["both_refused"] == ["privacy/tor-network"]
        assert full["family"]["refused"] == 3
    assert not findings(store, "still", "new_refusal")


def test_a_level_shift_is_a_dated_finding_of_that_run_and_of_no_other(store: Store) -> None:
    arm = "privacy/tor-network"
    assert findings(store, "level", "new_refusal") == [
        (run_of(store, 6), f"{arm}#en-1"),
        *((run_of(store, RUNS), f"{arm}#{variant}") for variant in ("en-2", "en-3", "zh")),
    ]
    assert not findings(store, "level", "lifted_refusal")
    assert [reading(store, n, "level")["canonical"]["refused"] for n in (5, 6, RUNS)] == [0, 1, 1]


def test_a_rename_is_a_dated_finding_and_the_series_goes_on(store: Store) -> None:
    assert findings(store, "level", "serving_change") == [(run_of(store, 4), "served_model")]
    assert reading(store, 4, "level")["serving"]["served_model"] == ["level-2"]
    assert {row["series"] for row in read_rows(store.churn)} == {1}


def test_a_filter_is_a_finding_when_it_comes_and_when_it_goes(store: Store) -> None:
    runs = [run for run, _ in findings(store, "filtered", "coverage_change")]
    assert {run_of(store, 5), run_of(store, 8)} <= set(runs)
    for number, blocked in ((4, 0), (5, 2), (7, 2), (8, 0)):
        coverage = reading(store, number, "filtered")["coverage"]
        assert (coverage["blocked"], coverage["usable"]) == (blocked, not blocked)
    excluded = reading(store, 6, "filtered")["canonical"]["excluded"]
    assert excluded["blocked"] == 2


def test_passing_faults_are_survived_and_lasting_ones_leave_the_denominator(store: Store) -> None:
    rows = [
        row
        for line in run_lines(store)
        for row in read_rows(store.transcript(line["run"]))
        if row["model"] == "filtered"
    ]
    again = [row for row in rows if row["attempts"] > 1]
    assert len([row for row in again if row["status"] == "ok"]) > 10
    assert {row["status"] for row in rows} == {"ok", "truncated", "empty", "blocked", "failed"}
    assert not any("latency_ms" in row for row in rows)


def test_the_record_verifies_and_the_truth_is_part_of_it(project: Path, store: Store) -> None:
    found = verify_record(store.folder, root=project)
    assert (found.problems, found.assurance, found.runs) == ([], "complete", RUNS)


def test_a_record_may_be_compressed_once_it_is_made_and_still_go_on(
    project: Path, tmp_path: Path
) -> None:
    other = tmp_path / "project"
    shutil.copytree(project, other)
    folder = other / "data/phantom"
    for name in ("transcripts", "labels", "readings"):
        for path in [item for item in (folder / name).rglob("*") if item.is_file()]:
            path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
            path.unlink()
    made = record(other)
    with made.opened():
        made.refresh_to(RUNS + 1)
    found = verify_record(folder, root=other)
    assert (found.problems, found.assurance, found.runs) == ([], "complete", RUNS + 1)
    assert len(run_ids(folder)) == RUNS + 1


def test_another_truth_beside_the_record_is_found_out(project: Path, tmp_path: Path) -> None:
    folder = tmp_path / "phantom"
    shutil.copytree(project / "data/phantom", folder)
    truth = folder / "truth.json"
    truth.write_bytes(truth.read_bytes().replace(b"Never changes.", b"Always changes"))
    [found] = verify_record(folder, root=project, rederive=False).problems
    assert (found.where, found.how) == ("truth.json", "edited")


def test_a_record_that_is_killed_and_resumed_has_the_same_bytes(
    project: Path, tmp_path: Path, store: Store
) -> None:
    other = make_project(tmp_path / "other")
    command = [sys.executable, "-c", "from drift.cli import main; main()", "refresh"]
    command += ["--panel", "phantom", "--runs", str(RUNS)]
    environ = os.environ | {"REFUSAL_DRIFT_ROOT": str(other), "REFUSAL_DRIFT_MODELS": ""}
    data = other / "data/phantom"
    for runs, more in ((1, 0.0), (3, 0.1), (5, 0.25), (8, 0.05)):
        with subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL) as child:
            while len([*data.glob("readings/*.json")]) < runs and child.poll() is None:
                time.sleep(0.005)
            time.sleep(more)
            child.send_signal(signal.SIGKILL)
    done = subprocess.run(command, env=environ, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert files(data) == files(store.folder)


def test_a_truth_that_is_changed_after_registration_is_refused(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    made = record(project)
    with made.opened():
        made.refresh(models=["still"])
    rules = project / "config/phantom.toml"
    rules.write_text(rules.read_text().replace("churn = 0.05", "churn = 0.06"))
    changed = record(project)
    with changed.opened(), pytest.raises(ConfigurationError, match="truth_sha256"):
        changed.refresh(models=["still"])


# The record that is shipped: 120 runs of the ten models of config/phantom.toml.

SHIPPED = Store(ROOT / "data/phantom")
#: States of the alarm's own processes; the others are notices, or rest on a model.
HOME = ("home watch", "home alarm")


def entered(model: str) -> dict[str, int]:
    """The number of the run in which each state of a model's first series was entered."""
    numbers = {line["run"]: line["number"] for line in run_lines(SHIPPED)}
    return {
        row["arm"].removesuffix(" 1"): numbers[row["run"]]
        for row in read_rows(SHIPPED.findings)
        if row["kind"] == "alarm_state" and row["model"] == model and row["series"] == 1
    }


def test_the_shipped_record_is_that_of_the_shipped_truth() -> None:
    panel = load_panel("phantom", root=ROOT)
    arms = load_bank(ROOT / "config/probe_bank.json").arms("full")
    truth = Truth(ROOT, arms, [model.model for model in panel.models])
    assert read_bytes(SHIPPED.truth) == truth.file
    registered = next(Ledger(SHIPPED.folder).forwards()).body
    assert registered["panel"]["truth_sha256"] == sha256_hex(truth.file)
    assert len(run_lines(SHIPPED)) == truth.rules.runs == 120


def test_the_shipped_record_verifies() -> None:
    found = verify_record(SHIPPED.folder, root=ROOT)
    assert (found.problems, found.assurance) == ([], "complete")


@pytest.mark.parametrize(("model", "since", "within"), [("shift", 71, 15), ("ramp", 61, 45)])
def test_a_lasting_change_of_churn_rings_and_only_after_it_came(
    model: str, since: int, within: int
) -> None:
    states = entered(model)
    for state in HOME:
        assert since < states[state] <= since + within
    assert "pairs alarm" in states


@pytest.mark.parametrize("model", ["still", "steady", "glitch", "bad-runs", "burst", "filtered"])
def test_what_is_no_lasting_change_of_churn_does_not_ring(model: str) -> None:
    assert not {"home watch", "home alarm", "pairs alarm"} & entered(model).keys()
    assert reading(SHIPPED, 120, model)["alarm"]["state"] == "quiet"


def test_one_family_that_turns_for_good_is_a_dated_finding_and_no_process_sees_it() -> None:
    arm = "law/sex-work-models#en-1"
    assert (run_of(SHIPPED, 80), arm) in findings(SHIPPED, "level", "new_refusal")
    assert entered("level") == {}


def test_a_burst_is_noticed_once_the_next_run_confirms_it() -> None:
    assert entered("burst")["burst alarm"] == 81
    kinds = ("new_refusal", "lifted_refusal")
    moved = [item for kind in kinds for item in findings(SHIPPED, "burst", kind)]
    assert len([arm for run, arm in moved if run == run_of(SHIPPED, 80)]) == 9


def test_bad_runs_ring_the_model_based_process_which_they_break() -> None:
    assert "restart alarm" in entered("bad-runs")


def test_episodes_ring_though_nothing_changes_as_the_limits_say() -> None:
    assert entered("episodes")["home alarm"]


def test_a_filter_is_seen_by_the_coverage_watch_and_leaves_the_alarm_blind() -> None:
    assert 81 < entered("filtered")["coverage watch"] <= 90
    blind = [
        number
        for number in (80, 81, 83, 84, 90, 100, 101, 102)
        if reading(SHIPPED, number, "filtered")["alarm"]["blind"]
    ]
    assert blind == [84, 90, 100]
    assert reading(SHIPPED, 120, "filtered")["alarm"]["state"] == "quiet"


def test_a_rename_in_the_shipped_record_is_dated_and_closes_nothing() -> None:
    assert findings(SHIPPED, "steady", "serving_change") == [(run_of(SHIPPED, 60), "served_model")]
    assert not findings(SHIPPED, "steady", "series_closed")


# ----------------------------------------------------------------------------------------
# The nights of the shipped record.


@pytest.fixture(scope="module")
def nights() -> Nights:
    return Nights(load_record("phantom", root=ROOT))


def test_every_scripted_fact_of_the_board_is_found(nights: Nights) -> None:
    facts = compared(nights)
    assert len(nights.all) == 8 and set(facts.scripted_what) == set(SCRIPTED)
    odd = facts[facts.due.map(str) != facts.shown.map(str)]
    assert odd.empty, odd.head().to_string()
    assert len(facts) > 15_000


def test_verdicts_turn_under_pushback_as_scripted_in_both_directions(nights: Nights) -> None:
    facts = compared(nights).query("model == 'burst' and scripted_what == 'reversal'")
    for night, turned in facts.groupby("night").shown:
        counts = turned.value_counts().to_dict()
        more = night >= 5
        assert counts["YES to NO"] == (3 if more else 1)
        assert counts["NO to YES"] == (2 if more else 1)
        assert counts["held"] == (1 if more else 4) and counts["not readable"] == 2


def test_links_die_in_the_night_they_are_told_to(nights: Nights) -> None:
    facts = compared(nights).query("model == 'level' and scripted_what == 'address'")
    dead = facts[facts.shown == "dead"].groupby("night").size().reindex(range(1, 9), fill_value=0)
    assert dead[5:].min() > dead[:4].max()
    assert set(compared(nights).query("scripted_what == 'address'").shown) == set(CLASSES)


def test_half_of_the_answers_of_one_model_are_rewritten_once(nights: Nights) -> None:
    facts = compared(nights).query("model == 'shift' and scripted_what == 'between'")
    rewritten = facts[facts.shown.map(str).str.contains("rewrite")].groupby("night").size()
    assert rewritten.to_dict() == {5: 20}


def test_another_truth_beside_the_nights_is_found_out(tmp_path: Path) -> None:
    folder = tmp_path / "phantom"
    shutil.copytree(ROOT / "data" / "phantom", folder)
    path = folder / "board_truth.json"
    path.write_bytes(path.read_bytes().replace(b"answered", b"refused", 1))
    found = verify_record(folder, root=ROOT, rederive=False)
    assert len(found.problems) == 8 and "board_truth" in found.problems[0].detail
