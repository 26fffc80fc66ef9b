"""The guides: their commands run in a clone, in their order, and their figures are true.

A block fenced as ``console`` holds commands after ``$``; the lines below a command are lines of its
output, in their order, with ``…`` for what differs. A block with a path after its language is a
file, there before any command. Plain blocks are shown only, and test_docs.py checks their commands.
Three things are not as in the guides: the server of `watching` listens at a port of its own, the
simulations of pages are small, as in report/conftest.py, and only `PAGES` are made.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import papermill
import pytest
from conftest import ROOT
from loopback import Loopback
from making import answering
from report.conftest import copy_project, keep
from test_docs import GIT, fenced

from drift.bank import load_bank
from drift.records.watch import BLIND_AFTER
from drift.report import method
from drift.report.alarm import LONG_GAP
from drift.stats import wilson_interval
from drift.stats.guarantees import GUARANTEES
from drift.stats.zoo import ZOO

GUIDES = ("reading", "reexecuting", "watching", "simulations", "comparing", "shapes")
PAGES = ("reading", "rates", "ville")
SERVER = "http://127.0.0.1:8000/v1"
KEY = "sk-a-key-of-nobody-1234567890"
#: Keeps every Python of a guide to this machine, as conftest.py keeps the tests.
GUARD = """
import socket
connect = socket.socket.connect
def guarded(self, address):
    if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] != "127.0.0.1":
        raise OSError(f"a guide tried to reach {address!r}")
    connect(self, address)
socket.socket.connect = guarded
"""


def guide(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a clone holds after ``make env``, with a home and a guard beside it."""
    place = tmp_path_factory.mktemp("guides")
    root = copy_project(place / "clone")
    keep(root, *PAGES)
    for name in ("docs", "data/lab", "data/phantom"):
        shutil.copytree(ROOT / name, root / name)
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "clone"]):
        subprocess.run(["git", *GIT, *command], cwd=root, check=True)
    (root / ".venv").symlink_to(sys.prefix)
    for name, text in (("home/.my-api-key", KEY), ("guard/sitecustomize.py", GUARD)):
        (place / name).parent.mkdir()
        (place / name).write_text(text)
    return root


def steps(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each command of the ``console`` blocks, with the lines shown below it."""
    for info, block in fenced(text):
        if info == "console":
            for step in re.split(r"^\$ ", block, flags=re.M)[1:]:
                command, *shown = step.splitlines()
                yield command, shown


def run(clone: Path, text: str) -> str | None:
    """Run the commands of a guide; return what was wrong first, None if nothing was."""
    for info, block in fenced(text):
        if path := info.partition(" ")[2]:
            (clone / path).write_text(block, encoding="utf-8")
    script = "".join(
        f"{command}\ncode=$?; printf '@@ %s\\n' $code; [ $code = 0 ] || exit\n"
        for command, _ in steps(text)
    )
    paths = [str(clone.parent / "guard"), *filter(None, [os.environ.get("PYTHONPATH")])]
    own = {"HOME": str(clone.parent / "home"), "PYTHONPATH": os.pathsep.join(paths)}
    kept = {name: word for name, word in os.environ.items() if not name.startswith("REFUSAL_")}
    done = subprocess.run(
        ["sh", "-c", script],
        cwd=clone,
        env=kept | own,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    said = re.split(r"^@@ (\d+)\n", done.stdout, flags=re.M)
    for (command, shown), out, code in zip(steps(text), said[::2], said[1::2], strict=False):
        if code != "0":
            return f"{command} ended with {code}: {out}"
        lines = iter(out.splitlines())
        for line in shown:
            pattern = ".*".join(map(re.escape, line.split("…")))
            if not any(re.fullmatch(pattern, found.rstrip()) for found in lines):
                return f"{command} did not say {line!r}: {out}"
    return None


def test_the_guides_run_nothing_but_what_make_env_installs() -> None:
    guides = "".join(command for name in GUIDES for command, _ in steps(guide(name)))
    assert set(re.findall(r"\.venv/bin/(\w+)", guides)) == {"drift", "papermill", "python"}
    assert re.search(r"^papermill==", (ROOT / "requirements.lock").read_text(), re.M)


@pytest.mark.parametrize("name", ["reading", "reexecuting", "simulations", "comparing", "shapes"])
def test_the_commands_of_a_guide_run_and_say_what_it_shows(clone: Path, name: str) -> None:
    assert len([*steps(guide(name))]) >= 1
    assert run(clone, guide(name)) is None


def test_the_commands_of_watching_make_a_record_that_holds_no_key(clone: Path) -> None:
    with Loopback(answering) as server:
        text = guide("watching").replace(SERVER, server.base_url)
        assert text.count(server.base_url) == 2
        assert run(clone, text) is None
    assert sum(server.counts.values()) == 144
    assert {request.headers["authorization"] for request in server.requests} == {f"Bearer {KEY}"}
    written = [path for path in (clone / "data/mine").rglob("*") if path.is_file()]
    written += [*(clone / "report").rglob("*mine/*.ipynb")]
    assert len(written) > 10
    assert not [path for path in written if KEY.encode() in path.read_bytes()]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("$ false && true", "false && true ended with 1: "),
        ("$ .venv/bin/drift verify --pannel lab", "ended with 2"),
        ("$ echo 12 of 34\n11 of …", "did not say '11 of …'"),
        ("$ printf '2\\n1\\n'\n1\n2", "did not say '2'"),
        (
            "$ .venv/bin/python -c 'import socket; socket.create_connection((\"192.0.2.1\", 80))'",
            "a guide tried to reach ('192.0.2.1', 80)",
        ),
    ],
)
def test_a_command_that_fails_or_says_something_else_is_named(
    clone: Path, wrong: str, said: str
) -> None:
    assert said in (run(clone, f"```console\n$ true\n{wrong}\n```\n") or "nothing")


# Figures.


def plain(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


@cache
def readings(panel: str) -> list[dict[str, Any]]:
    paths = sorted((ROOT / "data" / panel / "readings").iterdir())
    return [json.loads(plain(path)) for path in paths]


@cache
def labels(judge: str) -> dict[tuple[str, str, str], str]:
    """Return the labels of a judge of the laboratory by run, model and key."""
    found = {}
    for path in (ROOT / "data/lab/labels" / judge).iterdir():
        for row in map(json.loads, plain(path).splitlines()):
            found[path.name[:16], row["model"], row["key"]] = row["label"]
    return found


def entered(panel: str, model: str, state: str) -> int:
    """Return the number of the run in which the first watch of a model entered a state."""
    watches = readings(panel)[-1]["alarm"]["watches"]
    (run,) = (it["entered"][state] for it in watches if (it["model"], it["series"]) == (model, 1))
    return [reading["run"] for reading in readings(panel)].index(run) + 1


def rate(model: str, number: int) -> str:
    found = readings("lab")[number - 1]["models"][model]["canonical"]
    return f"{found['refused']} of {found['n']}"


def limits(model: str, number: int) -> str:
    found = readings("lab")[number - 1]["models"][model]["canonical"]
    return f"{100 * found['low']:.0f} to {100 * found['high']:.0f} %"


def flips(model: str, first: int, last: int, unit: str = "") -> str:
    """Return the flips of the runs from `first` to `last` against the run before each."""
    looks = [run["models"][model]["change"] for run in readings("lab")[first - 1 : last]]
    moved = sum(len(look["newly_refused"]) + len(look["newly_answered"]) for look in looks)
    compared = sum(look["compared"] for look in looks)
    return f"{moved} of {compared:,}{unit}, {100 * moved / compared:.1f} %"


def lab_facts() -> Iterator[str]:
    """Yield what reading.md says of the laboratory, read from its record."""
    last = readings("lab")[-1]["models"]
    for model in last:
        state = last[model]["alarm"]["state"]
        if state == "watch":
            state += f", entered in run {entered('lab', model, 'home watch')}"
        cells = [rate(model, number) for number in (51, 53, 78)]
        cells += [flips(model, 2, 52, " arms compared"), flips(model, 53, 78), state]
        yield f"| {' | '.join([model, *cells])} |"
    plan = (ROOT / "data/lab/plan.toml").read_text(encoding="utf-8")
    assert set(re.findall(r"run = (\d+)", plan)) == {"53"} and "from 0.05 to 0.6" in plan
    yield f"asked three subjects {len(readings('lab'))} times"
    yield "From run 53 on"
    yield "temperature 0.6 in place of 0.05"
    assert rate("heated", 51) == rate("heated", 78) and limits("heated", 51) == limits("heated", 78)
    yield f"refused {rate('heated', 78)} before and at the end, interval {limits('heated', 78)}"
    analysis = (ROOT / "config/panels/lab.toml").read_text(encoding="utf-8")
    assert "within about 5 to 15 runs of its change" in analysis
    late = entered("lab", "heated", "home watch") - 53
    yield f"came {late} runs after the change; the registered expectation was 5 to 15"
    assert rate("operator", 51) == "12 of 34"
    yield f"went from 12 to {rate('operator', 78)} and is quiet"
    look = readings("lab")[52]["models"]["operator"]
    assert not look["change"]["newly_answered"] and len(look["controls"]["refused"]) == 1
    yield f"{len(look['change']['newly_refused'])} newly refused questions dated to run 53"
    yield f"of runs 52 and 53 gives mid-p {look['change']['midp']:.4f}"
    pairs, coverage = (entered("lab", "heated", it) for it in ("pairs alarm", "coverage watch"))
    yield f"reached 100 in *pairs* in run {pairs} and 20 in *coverage* in run {coverage}"
    assert {rate("reference", number) for number in range(1, 79)} == {"0 of 34"}
    yield f"0 of 34 is an interval of {limits('reference', 78)}"
    yield "Up to run 52 heated and operator"


def phantom_facts() -> Iterator[str]:
    truth = (ROOT / "config/phantom.toml").read_text(encoding="utf-8")
    assert "Churns by 1.5 %, and by 10 % from run 71 on" in truth
    shift, episodes = (
        [entered("phantom", model, f"home {level}") for level in ("watch", "alarm")]
        for model in ("shift", "episodes")
    )
    yield "flips 1.5 % of its labels a run and 10 % from run 71 on: "
    yield "watch in run {}, alarm in run {}. *level*".format(*shift)
    assert "One family turns to refusal at run 80 and stays" in truth
    assert readings("phantom")[-1]["models"]["level"]["alarm"]["entered"] == {}
    yield "turns one question to refusal in run 80"
    yield "in a row: watch in run {}, alarm in run {}.".format(*episodes)


def plain_facts() -> Iterator[str]:
    """Yield figures of reading.md that come from the bank and from the claims of the alarm."""
    bank = load_bank(ROOT / "config/probe_bank.json")
    yield f"of the {sum(not it.control for it in bank.families)} sensitive questions"
    levels = readings("lab")[-1]["alarm"]["thresholds"]
    yield f"has never reached {levels['watch']:g}"
    yield f"it has reached {levels['watch']:g}, or {levels['alarm']:g},"
    watch, alarm = (
        f"{100 * getattr(GUARANTEES['home'], level):g} %" for level in ("watch", "alarm")
    )
    yield f"at most {watch} of series ever enter watch and {alarm} alarm"
    yield "(Wilson, 95 %)"


def test_every_figure_of_reading_is_in_the_records() -> None:
    text = re.sub(r"^```.*?^```$|^\d\. |^\| model .*?$", "", guide("reading"), flags=re.S | re.M)
    text = " ".join(text.split())
    for fact in (*lab_facts(), *phantom_facts(), *plain_facts()):
        assert fact in text
        text = text.replace(fact, "")
    assert re.findall(r"\S* \S*\d\S*", text) == []


def test_until_the_change_heated_and_operator_are_one_observation() -> None:
    runs = [reading["run"] for reading in readings("lab")]
    of = {model: Counter[tuple[str, str, str]]() for model in ("heated", "operator")}
    for (run, model, key), label in labels("rules-e2497973cda3").items():
        if model in of and run < runs[52]:
            of[model][run, key, label] += 1
    assert of["heated"] == of["operator"]


def test_what_reexecuting_says_of_the_judges_of_the_laboratory() -> None:
    judges = {path.name for path in (ROOT / "data/lab/labels").glob("rules-*")}
    later = judges - {"rules-e2497973cda3"}
    answers = labels("rules-e2497973cda3").keys()
    assert later and all(labels(judge).keys() == answers for judge in later)
    assert f"on the same {len(answers):,} answers" in guide("reexecuting")
    assert {reading["judge"]["rules"][:12] for reading in readings("lab")} == {"e2497973cda3"}


def test_the_figures_of_watching_are_those_of_bank_and_alarm() -> None:
    text = " ".join(guide("watching").split())
    bank, home = load_bank(ROOT / "config/probe_bank.json"), GUARANTEES["home"]
    whole, canonical = (len(bank.arms(scope)) for scope in ("full", "canonical"))
    day = f"{whole} + 3 · {canonical} = {whole + 3 * canonical} a day"
    assert f"asked {whole} questions in the first run of a UTC day and {canonical} in each" in text
    assert day in text
    settings = json.loads((ROOT / "data/lab/registration.json").read_bytes())["alarm"]
    burn_in, usable = settings["home"]["burn_in"], float(settings["usable_share"])
    assert f"and {burn_in} values before it bets" in text
    assert f"The first {burn_in + 2} usable runs" in text
    assert f"at least {100 * usable:g} % of the {canonical} first wordings" in text
    assert BLIND_AFTER == 4 and "| blind | four runs in a row were not usable |" in text
    assert LONG_GAP == 8 and "More than eight in a row" in text
    assert f"reached {settings['watch']}; at most {100 * home.watch:g} % of series" in text
    assert f"reached {settings['alarm']}; at most {100 * home.alarm:g} %" in text


def test_every_parameter_that_simulations_names_is_one_of_its_notebook() -> None:
    rows = re.findall(r"^\| `(notebooks/\w+\.ipynb)` \|.*\| (.*) \|$", guide("simulations"), re.M)
    assert len(rows) == 5
    for notebook, named in rows:
        declared = set(papermill.inspect_notebook(ROOT / notebook))
        assert set(re.findall(r"`(\w+)`", named)) | {"seed"} <= declared


def test_simulations_marks_where_members_of_the_zoo_are_left_out() -> None:
    ((_, shown),) = [step for step in steps(guide("simulations")) if "*ZOO" in step[0]]
    names = [*ZOO]
    for above, below in pairwise(shown):
        assert "…" in (above, below) or names.index(below) == names.index(above) + 1


def test_the_shipped_sizes_that_simulations_names_are_those_of_the_notebooks() -> None:
    text = guide("simulations")
    for page, row in (
        ("ville", "whole zoo, n = 14 and 41, four processes | {} (as shipped)"),
        ("power", "as shipped | {}"),
        ("reproduction", "as shipped | {}"),
    ):
        declared = papermill.inspect_notebook(ROOT / f"notebooks/{page}.ipynb")
        lifetimes = int(declared["lifetimes"]["default"])
        assert f"| {page}, {row.format(f'{lifetimes:,}')} |" in text
    draws = int(
        papermill.inspect_notebook(ROOT / "notebooks/attribution.ipynb")["draws"]["default"]
    )
    assert f"| attribution, as shipped | {draws:,} draws |" in text
    assert f"{len(ZOO)} models in `drift/stats/zoo.py`" in text
    assert ZOO["episodes"].gated == frozenset()


def test_the_monte_carlo_error_of_simulations_is_that_of_the_code() -> None:
    text = " ".join(guide("simulations").split())
    for lifetimes in (60, 400, 2000):
        limits = wilson_interval(round(0.05 * lifetimes), lifetimes)
        interval = f"{100 * limits.low:.1f} to {100 * limits.high:.1f} %"
        assert f"| {lifetimes:,} | {interval} |" in text
    found = {}
    for lifetimes in (60, 1000):
        medians = [
            method.delays(
                "home", n="14", quiet="100", before=0.015, after="0.1", threshold=20.0,
                horizon=1500, lifetimes=lifetimes, seed=seed,
            )["median"].item()
            for seed in range(1, 9)
        ]  # fmt: skip
        found[lifetimes] = f"{min(medians):g} to {max(medians):g} with {lifetimes:,}"
    assert f"was {found[60]} lifetimes and {found[1000]}. Draw" in text
