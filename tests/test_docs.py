"""The documentation names commands, options and files that are there, and the schedules work."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
import yaml
from conftest import ROOT

from drift.cli import app

SCHEDULE = ROOT / "docs" / "schedule"
PROSE = [ROOT / f"{name}.md" for name in ("README", "PROTOCOL", "CHANGELOG", "CONTRIBUTING")]
PROSE += sorted((ROOT / "docs").glob("*.md"))
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
GIT = ["-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "init.defaultBranch=main"]


def fenced(text: str) -> list[tuple[str, str]]:
    """Return the fenced blocks of `text`, each with the words after its opening fence."""
    return re.findall(r"^```(.*?)\n(.*?)^```$", text, re.S | re.M)


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words after ``drift`` of every command in `text`, fenced or in code marks."""
    blocks = "\n".join(block for _, block in fenced(text))
    marked = "\n".join(re.findall(r"`([^`\n]+)`", text))
    pattern = r"(?:^|\.venv/bin/|\$\(BIN\)/)drift ([a-z][^\n#;|&<]*)"
    for found in re.findall(pattern, f"{blocks}\n{marked}", re.M):
        yield found.split()


def wrong(words: list[str]) -> str | None:
    """Say what is wrong with a command: no such command, or an option that it does not take."""
    command = typer.main.get_command(app)
    rest = list(words)
    while getattr(command, "commands", None):
        if not rest or rest[0] not in command.commands:  # type: ignore[attr-defined]
            return f"no command {' '.join(words)}"
        command = command.commands[rest.pop(0)]  # type: ignore[attr-defined]
    known = {opt for item in command.params for opt in (*item.opts, *item.secondary_opts)}
    given = {word.partition("=")[0] for word in rest if word.startswith("--")}
    unknown = given - known - {"--help"}
    return f"{words[0]} takes no {', '.join(sorted(unknown))}" if unknown else None


def prose(path: Path) -> str:
    if path.suffix != ".ipynb":
        return path.read_text(encoding="utf-8")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join("".join(it["source"]) for it in cells if it["cell_type"] == "markdown")


@pytest.mark.parametrize("path", [*PROSE, *NOTEBOOKS], ids=lambda path: path.name)
def test_every_command_that_is_named_exists_and_takes_its_options(path: Path) -> None:
    assert [said for words in commands(prose(path)) if (said := wrong(words))] == []


def test_the_commands_of_the_schedules_exist_and_take_their_options() -> None:
    found = []
    for path in SCHEDULE.iterdir():
        text = path.read_text(encoding="utf-8")
        found += [words.split() for words in re.findall(r"/bin/drift ([a-z][^\n|;]*)", text)]
    assert {words[0] for words in found} == {"refresh", "board", "verify", "report"}
    assert [said for words in found if (said := wrong(words))] == []


def test_a_command_or_option_that_is_not_there_would_be_found() -> None:
    text = "`drift reprot --data x`\n```\n.venv/bin/drift report --pannel x\n```\n"
    assert [wrong(words) for words in commands(text)] == [
        "report takes no --pannel",
        "no command reprot --data x",
    ]


@pytest.mark.parametrize("path", PROSE, ids=lambda path: path.name)
def test_every_file_that_a_page_links_to_is_there(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target


@pytest.mark.parametrize("path", PROSE, ids=lambda path: path.name)
def test_every_make_target_that_is_named_is_there(path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"(?:`|^)make ([a-z]+)", path.read_text(encoding="utf-8"), re.M):
        assert re.search(rf"^{target}:", makefile, re.M), target


def test_no_documentation_names_the_host_of_a_package_index() -> None:
    texts = [*PROSE, *(path for path in SCHEDULE.iterdir())]
    for path in texts:
        assert not re.search(r"pypi|pythonhosted|index-url", path.read_text(encoding="utf-8"))


# The schedules.


def test_the_workflow_publishes_one_slot_at_a_time_and_opens_an_issue_on_failure() -> None:
    flow = yaml.safe_load((SCHEDULE / "report.yml").read_text(encoding="utf-8"))
    assert flow["concurrency"] == {"group": "drift", "cancel-in-progress": False}
    on = flow[True]  # YAML reads the key `on` as a truth value
    assert [item["cron"] for item in on["schedule"]] == ["5 0,6,12,18 * * *"]
    steps = {step.get("name", step.get("uses")): step for step in flow["jobs"]["slot"]["steps"]}
    order = list(steps)
    assert order.index("Keep the record") < order.index("Verify") < order.index("Report")
    assert steps["Keep the record"]["if"] == "always()"
    assert steps["Open an issue"]["if"] == "failure()"
    assert "0 | 3 | 5" in steps["Refresh"]["run"]
    secret = [name for name, step in steps.items() if "secrets." in str(step)]
    assert secret == ["Refresh"]


def test_the_units_name_each_other_and_let_paused_and_partial_runs_pass() -> None:
    service = (SCHEDULE / "drift.service").read_text(encoding="utf-8")
    assert "Type=oneshot" in service
    assert "SuccessExitStatus=3 5\n" in service
    for named in re.findall(r"OnFailure=(\S+)", service):
        assert (SCHEDULE / named).exists()
    for path in SCHEDULE.glob("*.service"):
        (script,) = re.findall(r"ExecStart=/bin/sh docs/schedule/(\S+)", path.read_text())
        assert (SCHEDULE / script).exists()
    assert "OnCalendar=*-*-* 00/6:05:00 UTC" in (SCHEDULE / "drift.timer").read_text()


@pytest.fixture
def slot(tmp_path: Path) -> Path:
    """A clone whose commands only say that they were called, and a record with a remote."""
    (tmp_path / "clone/.venv/bin").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    said = 'echo "{0} $*" >> "$CALLS"\n'
    refresh = 'if [ "$1" = refresh ]; then echo row > "$DATA/row"; exit "$CODE"; fi\n'
    refresh += 'if [ "$1" = board ]; then exit "${NIGHT:-0}"; fi\n'
    refresh += 'if [ "$1" = verify ]; then exit "$FOUND"; fi\n'
    for path, name, more in (
        (tmp_path / "clone/.venv/bin/drift", "drift", refresh),
        (tmp_path / "bin/rsync", "rsync", ""),
    ):
        path.write_text(f"#!/bin/sh\n{said.format(name)}{more}")
        path.chmod(0o755)
    for command in (
        ["git", *GIT, "init", "--quiet", "--bare", "remote"],
        ["git", *GIT, "clone", "--quiet", "remote", "record"],
        ["git", *GIT, "-C", "record", "commit", "--quiet", "--allow-empty", "--message", "first"],
        ["git", "-C", "record", "push", "--quiet"],
    ):
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    return tmp_path


def run_slot(slot: Path, **settings: object) -> tuple[int, list[str]]:
    """Run the script of a slot; return its exit code and what it called."""
    calls = slot / "calls"
    settings |= {"PANEL": "mine", "DATA": slot / "record", "SITE": "/srv/site/", "CALLS": calls}
    lines = "".join(f"{name}={value}\n" for name, value in settings.items())
    (slot / "drift.env").write_text(lines)
    who = {
        f"GIT_{role}_{part}": "a@b"
        for role in ("AUTHOR", "COMMITTER")
        for part in ("NAME", "EMAIL")
    }
    environ = os.environ | who | {"PATH": f"{slot / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", SCHEDULE / "run.sh", slot / "drift.env"], cwd=slot / "clone", env=environ
    )
    return done.returncode, calls.read_text().splitlines()


@pytest.mark.parametrize(("code", "found"), [*((code, 0) for code in range(6)), (0, 4)])
def test_a_slot_is_published_when_whole_paused_or_partial_if_it_holds_and_always_kept(
    slot: Path, code: int, found: int
) -> None:
    record = slot / "record"
    ended, said = run_slot(slot, CODE=code, FOUND=found)
    assert ended == (code or found)
    assert said[0] == f"drift refresh --panel mine --data {record}"
    steps = [
        f"drift verify --data {record}",
        f"drift report --data {record}",
        "rsync --archive --delete report/_site/ /srv/site/",
    ]
    assert said[1:] == (steps[: 1 if found else 3] if code in (0, 3, 5) else [])
    log = ["git", "-C", "remote", "log", "--format=%s"]
    kept = subprocess.run(log, cwd=slot, check=True, capture_output=True, text=True).stdout
    assert kept.split("\n")[0] == "Run of mine"


@pytest.mark.parametrize(
    ("code", "night", "ended"),
    [
        (0, 0, 0),
        (0, 5, 5),
        (5, 0, 5),
        (3, 5, 5),
        (0, 3, 3),
        (0, 1, 1),
        (0, 4, 4),
        (2, 0, 2),
        (4, 5, 4),
    ],
)
def test_a_slot_makes_the_night_of_the_board_if_told_to_and_ends_with_what_went_wrong(
    slot: Path, code: int, night: int, ended: int
) -> None:
    found, said = run_slot(slot, CODE=code, FOUND=0, BOARD="yes", NIGHT=night)
    assert found == ended
    assert said[1] == f"drift board --panel mine --data {slot / 'record'}"
    # A failure of either leaves the last good site.
    assert len(said) == (5 if ended in (0, 3, 5) else 2)
