"""The command line: help, exit codes, JSON, and errors that say what to do next."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest
from conftest import ROOT, Ticking
from loopback import Loopback, Reply, Request, completion, failing
from making import REFUSAL, answering, run, write_panel

from drift import cli
from drift.cli import asking, options
from drift.errors import DriftError
from drift.refresh import Record

Said = tuple[int, str, str]


@pytest.fixture
def drift(
    project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., Said]:
    """Call the command in a project of its own; return exit code, output and errors."""
    monkeypatch.setenv("REFUSAL_DRIFT_ROOT", str(project))
    monkeypatch.setenv("REFUSAL_DRIFT_MODELS", "")

    def call(*arguments: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["drift", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        code = ended.value.code
        return (0 if code is None else int(code), *capfd.readouterr())

    return call


COMMANDS = [
    "refresh", "report", "verify", "reproduce", "register", "rescore", "status", "compare",
    "traces", "elicit", "board", "shapes", "lab record", "lab ladders", "lab nights",
    "code draw", "code adjudicate", "code agreement", "code seal",
    "bank check", "weights fetch", "judge evaluate", "judge diff",
    "instrument calibrate", "instrument show",
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(drift: Callable[..., Said], command: str) -> None:
    code, said, _ = drift(*command.split(), "--help")
    assert code == 0
    assert "Usage: drift" in said and len(said) > 200


def test_the_readme_names_every_command(drift: Callable[..., Said]) -> None:
    readme = (ROOT / "README.md").read_text()
    for command in COMMANDS:
        assert f"`drift {command}`" in readme
    _, said, _ = drift("--help")
    for command in COMMANDS:
        assert command.split()[0] in said


def test_a_run_from_the_command_line_is_sealed_verified_and_reported_as_json(
    drift: Callable[..., Said], project: Path
) -> None:
    with Loopback(answering) as server:
        write_panel(project, server.base_url)
        code, said, _ = drift("refresh", "--panel", "test", "--json")
        assert code == 0
        outcome = json.loads(said)
        assert (outcome["sealed"], outcome["asked"], outcome["exit_code"]) == (True, 288, 0)
    code, said, _ = drift("verify", "--json")
    assert code == 0
    [found] = json.loads(said)
    assert found["panel"] == "test" and found["assurance"] == "complete"
    code, said, _ = drift("status", "--panel", "test", "--json")
    assert code == 0 and json.loads(said)["last_run"] == outcome["run"]
    code, said, _ = drift("rescore", "--panel", "test")
    assert code == 0 and "0 labels move" in said
    panel = project / "config" / "panels" / "test.toml"
    panel.write_text(panel.read_text().replace("max_tokens = 48", "max_tokens = 50"))
    code, said, _ = drift("status", "--panel", "test")
    assert code == 0 and "changed since: instruments." in said and "drift register" in said


def test_a_record_may_lie_in_another_folder(
    drift: Callable[..., Said], project: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    with Loopback(answering) as server:
        write_panel(project, server.base_url)
        assert drift("refresh", "--panel", "test", "--data", str(elsewhere))[0] == 0
    assert (elsewhere / "test" / "chain.jsonl").exists()
    assert not (project / "data").exists()
    assert drift("verify", "--data", str(elsewhere))[0] == 0


def test_a_tampered_record_is_exit_4_and_names_the_response(
    drift: Callable[..., Said], project: Path
) -> None:
    with Loopback(answering) as server:
        write_panel(project, server.base_url)
        drift("refresh", "--panel", "test")
    path = next((project / "data" / "test").glob("transcripts/*/*"))
    path.write_bytes(path.read_bytes().replace(b"three things", b"four things", 1))
    code, said, _ = drift("verify")
    assert code == 4
    assert "edited: run" in said and "steady, applied-security/file-backups#en-1" in said


def test_a_partial_run_is_exit_5_and_failures_are_no_answers(
    drift: Callable[..., Said], project: Path
) -> None:
    def script(request: Request) -> Reply:
        return failing(400) if request.model == "lab/steady" else answering(request)

    with Loopback(script) as server:
        write_panel(project, server.base_url)
        code, said, complained = drift("refresh", "--panel", "test")
    assert code == 5 and "144 of 144 arms are missing" in complained
    assert said.endswith("(full): 144 answers stored, 144 failed, sealed\n")


def test_a_server_that_is_down_is_exit_3_and_the_run_stays_open(
    drift: Callable[..., Said], project: Path
) -> None:
    write_panel(project, "http://127.0.0.1:9/v1")
    code, said, complained = drift("refresh", "--panel", "test")
    assert code == 3 and "the run is open" in complained and "same command" in complained
    assert ": 0 answers stored, " in said and said.endswith(" failed, still open\n")
    assert "sealed with its gaps" in complained and "never bet on" not in complained
    assert drift("verify", "--panel", "test")[0] == 0


def test_an_unknown_panel_is_exit_2_and_names_the_known_ones(drift: Callable[..., Said]) -> None:
    code, _, complained = drift("refresh", "--panel", "nosuch")
    assert code == 2
    assert "nosuch" in complained and "embedded" in complained and "frontier" in complained


def test_a_folder_that_holds_no_record_is_not_taken_for_one(
    drift: Callable[..., Said], project: Path
) -> None:
    (project / "data" / "notes").mkdir(parents=True)
    for command in ("report", "verify"):
        code, _, complained = drift(command, "--panel", "notes")
        assert code == 2
        assert "no such record" in complained


def test_an_unknown_option_is_exit_2(drift: Callable[..., Said]) -> None:
    assert drift("refresh", "--pannel", "x")[0] == 2


def test_a_wrong_field_in_a_panel_is_named_with_its_place(
    drift: Callable[..., Said], project: Path
) -> None:
    write_panel(project, "http://127.0.0.1:9/v1", each="temprature = 0")
    code, _, complained = drift("refresh", "--panel", "test")
    assert code == 2 and "models.0.temprature" in complained


def test_a_missing_key_is_exit_2_and_names_the_variable(
    drift: Callable[..., Said], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    code, _, complained = drift("refresh", "--panel", "frontier")
    assert code == 2 and "OPENROUTER_API_KEY" in complained


def test_a_wrong_byte_in_the_weights_is_exit_4_and_names_the_file(
    drift: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REFUSAL_DRIFT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    name = "SmolLM2-135M-Instruct.Q4_1.gguf"
    (tmp_path / "cache" / name).write_bytes(b"GGUF, but not the right one")
    code, _, complained = drift("refresh", "--panel", "embedded")
    assert code == 4 and name in complained and "b179c952" in complained


def test_a_bank_with_a_problem_is_exit_2_with_its_place(
    drift: Callable[..., Said], project: Path
) -> None:
    assert drift("bank", "check")[0] == 0
    path = project / "config" / "probe_bank.json"
    text = path.read_text().replace("science/photosynthesis", "science/Photo synthesis", 1)
    path.write_text(text)
    code, _, complained = drift("bank", "check")
    assert code == 2 and ".id" in complained


def test_frontier_status_does_the_yearly_arithmetic(drift: Callable[..., Said]) -> None:
    code, said, _ = drift("status", "--panel", "frontier", "--json")
    found = json.loads(said)
    assert code == 0 and found["requests_a_day"] == 1068
    assert float(found["usd_a_year"]) > 0


def test_status_counts_the_runs_that_entered_the_alarm_towards_those_that_calibrate_it(
    drift: Callable[..., Said], project: Path, clock: Ticking
) -> None:
    prices = "price_prompt = 0.4\nprice_completion = 1.6"
    with Loopback(answering) as server:
        write_panel(project, server.base_url, head="cadence_hours = 6", each=prices)
        assert "subject: no run yet; " in drift("status", "--panel", "test")[1]
        for hours in (1, 5, 6, 6):  # the second run is made in the slot of the first
            run(project, clock)
            clock.advance(hours=hours)
        code, said, _ = drift("status", "--panel", "test")
        assert code == 0 and "subject: calibrating, 3 of 42 usable runs in series 1; " in said
        [_, row] = json.loads(drift("status", "--panel", "test", "--json")[1])["models"]
        assert (row["state"], row["runs"], row["calibration"]) == ("calibrating", 3, "3 of 42")
        # No column is there to cut it, however narrow the terminal.
        assert f"{row['usd_a_full_run']} USD a full run, {row['usd_a_year']} a year\n" in said
        assert len(row["usd_a_full_run"]) > 8 and "…" not in said
        write_panel(project, server.base_url, models=("subject",))
        path = project / "config/panels/test.toml"
        path.rename(path.with_name("adhoc.toml"))
        path = path.with_name("adhoc.toml")
        path.write_text(path.read_text().replace('name = "test"', 'name = "adhoc"'))
        drift("refresh", "--panel", "adhoc")
    assert (
        "subject: no cadence, 1 usable runs in series 1; " in drift("status", "--panel", "adhoc")[1]
    )


def test_a_change_is_declared_with_the_options_that_named_the_record(
    drift: Callable[..., Said], project: Path, tmp_path: Path
) -> None:
    write_panel(project, "http://127.0.0.1:9/v1")
    path = tmp_path / "elsewhere" / "test.toml"
    path.parent.mkdir()
    (project / "config/panels/test.toml").rename(path)
    named = ("--panel", str(path), "--data", str(path.parent))
    assert drift("register", *named)[0] == 0
    path.write_text(path.read_text().replace("max_tokens = 48", "max_tokens = 50"))
    code, _, complained = drift("refresh", *named)
    assert code == 2 and "`drift register` with the same --panel and --data" in complained
    assert "`drift register` with the same --panel and --data" in drift("status", *named)[1]
    assert drift("register", *named)[0] == 0


def test_no_command_leaves_a_record_locked(drift: Callable[..., Said], project: Path) -> None:
    write_panel(project, "http://127.0.0.1:9/v1")
    assert drift("register", "--panel", "test")[0] == 0
    assert drift("register", "--panel", "test")[0] == 0
    assert len((project / "data/test/chain.jsonl").read_bytes().splitlines()) == 1


def test_a_provider_cannot_speak_to_the_terminal(drift: Callable[..., Said], project: Path) -> None:
    def script(request: Request) -> Reply:
        return failing(401, "no", "\x1b[2J\x1b]0;owned\x07 [bold]look[/bold]")

    with Loopback(script) as server:
        write_panel(project, server.base_url)
        code, said, complained = drift("refresh", "--panel", "test")
    assert code == 3 and "[bold]look[/bold]" in complained
    assert "\x1b" not in said + complained and "\x07" not in said + complained


def test_a_seed_that_is_no_seed_is_exit_2(drift: Callable[..., Said], project: Path) -> None:
    write_panel(project, "http://127.0.0.1:9/v1")
    code, _, complained = drift("register", "--panel", "test", "--seed", "42")
    assert code == 2 and "64 lower-case hex digits" in complained
    assert drift("register", "--panel", "test", "--seed", "ab" * 32)[0] == 0
    assert drift("register", "--panel", "test", "--seed", "cd" * 32)[0] == 2


def test_weights_that_cannot_be_had_do_not_stop_the_site_and_the_front_page_says_so(
    drift: Callable[..., Said], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_network(name: str, **_: object) -> Path:
        raise DriftError(f"weights {name} cannot be fetched")

    monkeypatch.setattr(asking, "fetch_weights", no_network)
    for name in ("notebooks", "report"):
        made = shutil.ignore_patterns("_site*", "_generated", "embedded")
        shutil.copytree(ROOT / name, project / name, dirs_exist_ok=True, ignore=made)
    for name in ("_quarto.yml", "index.qmd", "CITATION.cff"):
        shutil.copy(ROOT / name, project / name)
    for path in (project / "notebooks").glob("*.ipynb"):
        if path.stem != "reading":
            path.unlink()
    code, said, _ = drift("report", "--refresh")
    assert code == 0
    index = Path(said.strip().splitlines()[-1])
    text = index.read_text()
    assert "run is missing" in text and "cannot be fetched" in text


def test_why_a_page_would_run_again_is_told_and_nothing_is_made(
    drift: Callable[..., Said], project: Path
) -> None:
    shutil.copy(ROOT / "notebooks" / "reading.ipynb", project / "notebooks")
    code, said, _ = drift("report", "--why", "reading")
    assert code == 0 and "new        notebooks/reading.ipynb" in said
    assert said.endswith("embedded/reading runs again: no such page is kept\n")
    code, _, complained = drift("report", "--only", "embedded/raeding")
    assert code == 2 and "did you mean 'embedded/reading'?" in complained
    assert not (project / "report").exists()


def test_a_folder_that_can_be_no_record_is_left_out_and_others_bring_no_record_of_this_machine(
    drift: Callable[..., Said], project: Path, tmp_path: Path
) -> None:
    shutil.copy(ROOT / "notebooks" / "reading.ipynb", project / "notebooks")
    data = tmp_path / "elsewhere"
    for name in ("mine", "Phantom copy"):
        (data / name).mkdir(parents=True)
        (data / name / "chain.jsonl").touch()
    code, said, complained = drift("report", "--data", str(data), "--why", "reading")
    assert code == 0 and "not shown: record cannot be named 'Phantom copy'" in complained
    assert "mine/reading runs again" in said and "embedded/reading" not in said
    named = ("report", "--data", str(data), "--panel", "Phantom copy", "--why", "reading")
    assert drift(*named)[0] == 2


def test_a_record_that_is_not_there_is_exit_2_and_the_site_stays(
    drift: Callable[..., Said], tmp_path: Path
) -> None:
    for command in (["report", "--panel", "mime"], ["verify", "--panel", "mime"]):
        code, _, complained = drift(*command)
        assert code == 2 and "mime" in complained and "next:" in complained
    assert drift("verify", "--data", str(tmp_path / "nowhere"))[0] == 2


def test_only_a_phantoms_runs_can_follow_each_other_at_once(
    drift: Callable[..., Said], project: Path
) -> None:
    with Loopback(answering) as server:
        write_panel(project, server.base_url)
        code, _, complained = drift("refresh", "--panel", "test", "--runs", "2")
        assert code == 2 and "virtual" in complained and "scheduler" in complained
        assert drift("refresh", "--panel", "test", "--runs", "1")[0] == 0


def test_a_phantom_is_refreshed_until_it_holds_so_many_runs(
    drift: Callable[..., Said], project: Path
) -> None:
    path = project / "config/panels/phantom.toml"
    path.write_text(path.read_text().replace("full_runs = [1, ", "full_runs = ["))
    code, said, _ = drift(
        "refresh", "--panel", "phantom", "--models", "still", "--runs", "2", "--json"
    )
    outcome = json.loads(said)
    assert (code, outcome["run"], outcome["asked"]) == (0, "20260101T060000Z", 82)
    code, said, complained = drift("refresh", "--panel", "phantom", "--runs", "2")
    assert (code, said) == (0, "") and "the record holds 2 runs" in complained


def test_without_a_reference_one_look_is_shown_and_nothing_is_attributed(
    drift: Callable[..., Said], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = iter(f"2026-03-01T{hour:02}:00:00+00:00" for hour in (1, 2, 3, 4))
    refusing_now: list[str] = []

    def script(request: Request) -> Reply:
        steady = request.model == "lab/steady"
        refused = not steady and any(word in request.prompt for word in refusing_now)
        return completion(REFUSAL) if refused else answering(request)

    def run_at_the_next_moment() -> str:
        now = datetime.fromisoformat(next(moments))
        monkeypatch.setattr(options, "Record", partial(Record, clock=lambda: now))
        return str(json.loads(drift("refresh", "--panel", "test", "--json")[1])["run"])

    with Loopback(script) as server:
        write_panel(project, server.base_url)
        first = run_at_the_next_moment()
        refusing_now += ["Tiananmen", "Morris", "Tor network"]
        second = run_at_the_next_moment()
        code, said, _ = drift("compare", first, second, "--panel", "test", "--json")
        assert code == 2
        found = json.loads(said)["models"]["subject"]
        assert found["newly_refused"] == [
            "applied-security/morris-worm",
            "contested-history/tiananmen-1989",
            "privacy/tor-network",
        ]
        assert (found["newly_answered"], found["compared"], found["midp"]) == ([], 41, 0.125)
        assert found["minimum_detectable_flips"] == 5
        code, said, complained = drift("compare", first, second, "--panel", "test")
        assert code == 2 and complained.count("without a reference target") == 1
        assert "verdict" not in found and "attributable" not in said
        assert "morris-worm" in said and "never" not in said.split("\n")[0]
        assert "fixed beforehand" in said and "no series of looks" in said
        # Another instrument for one model: its series ends, and the other's goes on.
        path = project / "config/panels/test.toml"
        head, limit, tail = path.read_text().rpartition("max_tokens = 48")
        path.write_text(head + limit.replace("48", "64") + tail)
        monkeypatch.setattr(options, "Record", Record)
        assert drift("register", "--panel", "test")[0] == 0
        third = str(json.loads(drift("refresh", "--panel", "test", "--json")[1])["run"])
    code, said, _ = drift("compare", first, third, "--panel", "test")
    assert code == 2 and "steady: newly refused: none" in said
    assert "subject: not compared: the instrument changed, target.max_tokens: 48 -> 64" in said
    assert drift("compare", first, "20991231T000000Z", "--panel", "test")[0] == 2
    assert drift("compare", second, first, "--panel", "test")[0] == 2


def test_a_night_from_the_command_line_is_made_once_a_day_and_shown_by_status(
    drift: Callable[..., Said], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REFUSAL_DRIFT_CACHE", str(ROOT / ".cache" / "weights"))
    board = ("board", "--panel", "test", "--no-citations")
    with Loopback(answering) as server:
        write_panel(project, server.base_url)
        code, said, _ = drift(*board, "--json")
        outcome = json.loads(said)
        assert outcome["sealed"] and outcome["asked"] == 192 and outcome["scope"] == "board"
        # 5 only where this machine has no encoder.
        assert code == (0 if not outcome["codes"] else 5)
        code, _, told = drift(*board)
        assert code == 0 and "asked today already" in told
        assert sum(server.counts.values()) == 192
        code, _, complained = drift(*board, "--nights", "2")
        assert code == 2 and "virtual" in complained
        code, _, complained = drift(*board, "--models", "nobody")
        assert code == 2 and "'nobody'" in complained
    _, said, _ = drift("status", "--panel", "test")
    assert "nights: 1" in said and "open night: none" in said
    code, said, _ = drift("verify", "--panel", "test")
    assert code == 0 and "holds" in said
