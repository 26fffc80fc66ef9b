"""What a registration states of a rescoring is counted again, from the labels before it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Ticking
from loopback import Loopback
from making import record, refusing, run, write_panel

from drift.config import canonical_json, sha256_hex
from drift.records.ledger import GENESIS, Ledger
from drift.records.reproduce import reproduce_record
from drift.records.verify import verify_record
from drift.records.verify_chain import Problem

Bodies = list[dict[str, Any]]


@pytest.fixture(scope="module")
def rescored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A record of three runs, after each of which the rules changed and labels moved."""
    project = tmp_path_factory.mktemp("rescored")
    shutil.copytree(ROOT / "config", project / "config")
    clock = Ticking(datetime(2026, 3, 1, 0, 5, tzinfo=UTC))
    rules = project / "config" / "judge" / "rules.toml"
    first = rules.read_text(encoding="utf-8")
    # Without a rule that is a decline, each refusal becomes an answer.
    none = first.replace('kind = "decline"', 'kind = "courtesy"')
    with Loopback(refusing(lambda request: "1989" in request.prompt)) as server:
        write_panel(project, server.base_url)
        for text in (none, f"{first}\n# again\n", f"{none}\n# again\n"):
            assert run(project, clock).sealed
            clock.advance(hours=6)
            rules.write_text(text, encoding="utf-8")
            made = record(project, clock)
            with made.opened():
                made.register()
    return project


@pytest.fixture
def copy(rescored: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(rescored, tmp_path / "copy"))


def registrations(bodies: Bodies) -> Bodies:
    return [body for body in bodies if body["kind"] == "registration"]


def forge(project: Path, change: Callable[[Bodies], None]) -> None:
    """Rewrite the chain as its author could, with every hash that names a line of it."""
    folder = project / "data" / "test"
    ledger = Ledger(folder)
    bodies = [line.body for line in ledger.forwards()]
    named = {line.seq: line.hash for line in ledger.forwards() if line.kind == "registration"}
    change(bodies)
    lines: list[bytes] = []
    moved: dict[str, str] = {}
    for seq, body in enumerate(bodies):
        if "registration" in body:
            body["registration"] = moved[body["registration"]]
        old = named.get(body["seq"])
        body |= {"seq": seq, "prev": sha256_hex(lines[-1]) if lines else GENESIS}
        lines.append(canonical_json(body))
        if old:
            moved[old] = sha256_hex(lines[-1])
            (folder / "registration.json").write_bytes(lines[-1] + b"\n")
    ledger.chain.write_bytes(b"".join(line + b"\n" for line in lines))
    head = {"seq": len(lines) - 1, "hash": sha256_hex(lines[-1])}
    ledger.head.write_bytes(canonical_json(head) + b"\n")


def problems(project: Path) -> list[Problem]:
    """Return what does not hold, but for readings, which name lines by hashes that moved."""
    found = verify_record(project / "data" / "test", root=project)
    return [problem for problem in found.problems if problem.step != "derived files"]


def test_every_rescoring_of_a_record_is_counted_from_the_open_series_on(rescored: Path) -> None:
    assert verify_record(rescored / "data" / "test", root=rescored).problems == []
    folder = rescored / "data" / "test"
    stated = registrations([line.body for line in Ledger(folder).forwards()])
    moved = [body["rescored"]["moved"]["subject"] for body in stated[1:]]
    # The first run is full; what moved in it closed its series and is not counted again.
    assert moved[0] > moved[1] == moved[2] > 0


def no_move(stated: dict[str, Any]) -> None:
    stated["moved"] = dict.fromkeys(stated["moved"], 0)


def one_more(stated: dict[str, Any]) -> None:
    stated["moved"]["steady"] += 1


def one_model(stated: dict[str, Any]) -> None:
    del stated["moved"]["steady"]


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("change", [no_move, one_more, one_model])
def test_another_count_is_named_by_line_and_model_with_both_counts(
    copy: Path, change: Callable[[dict[str, Any]], None], number: int
) -> None:
    ledger = Ledger(copy / "data" / "test")
    line = [line for line in ledger.forwards() if line.kind == "registration"][number]
    true = line.body["rescored"]["moved"]["steady"]
    forge(copy, lambda bodies: change(registrations(bodies)[number]["rescored"]))
    stated = {no_move: 0, one_more: true + 1, one_model: 0}[change]
    detail = f"rescored.moved.steady: {stated}; the lines before it give {true}"
    where = f"chain.jsonl:{line.seq + 1}"
    assert Problem("registration", where, "edited", detail) in problems(copy)


def without(bodies: Bodies) -> None:
    del registrations(bodies)[-1]["rescored"]


def too_early(bodies: Bodies) -> None:
    first, *_, last = registrations(bodies)
    first["rescored"] = last["rescored"]


def other_rules(bodies: Bodies) -> None:
    registrations(bodies)[-1]["rescored"]["from"] = "0" * 64


def unlabelled(bodies: Bodies) -> None:
    rules = registrations(bodies)[-1]["judge"]["rules"]
    bodies.remove(next(it for it in bodies if it.get("judge", {}).get("rules") == rules))


def no_number(bodies: Bodies) -> None:
    registrations(bodies)[-1]["rescored"]["moved"]["steady"] = "2"


def no_table(bodies: Bodies) -> None:
    registrations(bodies)[-1]["rescored"] = 5


@pytest.mark.parametrize(
    ("change", "step", "said"),
    [
        (without, "registration", "rescored: absent; the lines before it give a rescoring of 3"),
        (too_early, "registration", "rescored: a rescoring of 0 runs; the lines before it give"),
        (other_rules, "registration", f"rescored.from: {'0' * 64}; the lines before it give"),
        (unlabelled, "registration", "of 2, none of run 20260301T000500Z"),
        (no_number, "chain", "rescored"),
        (no_table, "chain", "TypeError"),
    ],
)
def test_a_rescoring_that_is_missing_undue_or_not_whole_does_not_hold(
    copy: Path, change: Callable[[Bodies], None], step: str, said: str
) -> None:
    forge(copy, change)
    (problem,) = problems(copy)
    assert problem.step == step and said in problem.detail


def test_reproduction_counts_the_labels_that_it_made(copy: Path) -> None:
    folder, scratch = copy / "data" / "test", copy / "scratch"
    assert reproduce_record(folder, root=copy, scratch=scratch).difference is None
    forge(copy, lambda bodies: no_move(registrations(bodies)[-1]["rescored"]))
    difference = reproduce_record(folder, root=copy, scratch=scratch).difference
    assert difference is not None and difference.file == "chain.jsonl"
    assert difference.place.endswith("rescored.moved.steady") and difference.published == "0"


def labels_of(bodies: Bodies, number: int) -> Bodies:
    """Return the labels lines of a run by its number, the registered judge's first."""
    name = [body["run"] for body in bodies if body["kind"] == "run"][number - 1]
    return [body for body in bodies if body["kind"] == "labels" and body["run"] == name]


def read_late(bodies: Bodies) -> None:
    first = labels_of(bodies, 2)[0]
    bodies.remove(first)
    runs = [place for place, body in enumerate(bodies) if body["kind"] == "run"]
    bodies.insert(runs[2] + 1, first)


def read_by_another_alone(bodies: Bodies) -> None:
    bodies.remove(labels_of(bodies, 2)[0])


def read_by_another_first(bodies: Bodies) -> None:
    first, second = labels_of(bodies, 1)[:2]
    bodies.remove(second)
    bodies.insert(bodies.index(first), second)


def ghost(bodies: Bodies) -> None:
    registrations(bodies)[-1]["rescored"]["moved"]["ghost"] = 0


@pytest.mark.parametrize(
    ("change", "step", "how", "said"),
    [
        (read_late, "chain", "reordered", "stand after a later run"),
        (read_by_another_alone, "chain", "edited", "judge, who is not the registered one"),
        (read_by_another_first, "chain", "edited", "judge, who is not the registered one"),
        (ghost, "registration", "edited", "rescored.moved.ghost: 0; the lines before it give"),
    ],
)
def test_a_run_is_read_by_its_registered_judge_before_any_other_and_before_the_next_run(
    copy: Path, change: Callable[[Bodies], None], step: str, how: str, said: str
) -> None:
    forge(copy, change)
    found = [it for it in problems(copy) if (it.step, it.how) == (step, how)]
    assert any(said in problem.detail for problem in found)
