"""Batches of ladders, asked over a real loopback server, sealed, resumed and verified."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Ticking
from loopback import Loopback, Reply, Request, completion, failing
from making import ANSWER, MODELS, REFUSAL, record, reseal, run, write_panel

from drift.config import canonical_json, load_panel, sha256_hex
from drift.elicit import Elicitor, elicit, load_elicitor
from drift.errors import ConfigurationError
from drift.judging import Judge, load_judge
from drift.judging.ladder import Rubric
from drift.ladders import load_ladders, turn_key
from drift.records.batch import (
    BatchRun,
    elicitor_of,
    read_batch,
    rescore_batches,
    sealed_batches,
)
from drift.records.ledger import GENESIS, Ledger
from drift.records.moves import REGISTERED, compare_judges
from drift.records.passes import open_passes
from drift.records.reproduce import reproduce_record
from drift.records.run import responses_hash, transcript_bytes
from drift.records.store import Store, judge_folder, read_rows
from drift.records.verify import verify_record
from drift.refresh import Outcome, Record

ROLES = 'role = "{role}"'
ASKED = """
[asked]
kind = "model"
panel = "test"
model = "subject"
temperature = 0.7
top_p = 0.95
seed = 7
max_tokens = 24
answer_tokens = 32
system_prompt = "Speak for the person."
tasks = { clarify = "Clarify.", context = "Give context.", purpose = "Say why." }

[scripted]
kind = "script"
answer_tokens = 32
"""


def user_turns(request: Request) -> int:
    return sum(it["role"] == "user" for it in request.document["messages"])


def plain(request: Request) -> Reply:
    """Answer; speak for the person where the system prompt says so."""
    messages = request.document["messages"]
    if messages[0]["role"] == "system":
        return completion(f"And may I ask again, {len(messages[1]['content'])}?")
    return completion(ANSWER)


def panel(project: Path, url: str) -> None:
    """Write the test panel, with `steady` as its reference and a model that elicits."""
    write_panel(project, url)
    path = project / "config" / "panels" / "test.toml"
    text = path.read_text().replace('key = "steady"', 'key = "steady"\nrole = "reference"')
    path.write_text(text)
    (project / "config" / "elicitors.toml").write_text(ASKED)


def batch(project: Path, clock: Ticking, elicitor: str = "scripted", **options: Any) -> Outcome:
    made = record(project, clock)
    with made.opened():
        return elicit(made, load_elicitor(elicitor, root=project), **options)


def make(
    project: Path,
    clock: Ticking,
    script: Callable[[Request], Reply] = plain,
    elicitor: str = "scripted",
    **options: Any,
) -> BatchRun:
    """Make one batch of the test panel and read it back."""
    with Loopback(script) as server:
        panel(project, server.base_url)
        outcome = batch(project, clock, elicitor, **options)
    assert outcome.sealed and outcome.exit_code == 0, outcome.notes
    return last(project)


def last(project: Path) -> BatchRun:
    folder = project / "data" / "test"
    body, judged = sealed_batches(Ledger(folder).forwards())[-1]
    store, judge = Store(folder), judged[-1]["judge"]
    outcomes = read_rows(store.labels(judge_folder(judge), body["run"]))
    return read_batch(body, judge, outcomes, read_rows(store.transcript(body["run"])))


def verified(project: Path) -> list[str]:
    found = verify_record(project / "data" / "test", root=project)
    return [f"{it.step}: {it.where}: {it.how}" for it in found.problems]


def test_every_arm_is_asked_every_turn_with_all_that_was_said_before(
    project: Path, clock: Ticking
) -> None:
    seen: list[list[str]] = []

    def script(request: Request) -> Reply:
        seen.append([it["content"] for it in request.document["messages"]])
        return completion(f"{ANSWER} ({user_turns(request)})")

    found = make(project, clock, script)
    ladders = load_ladders(project / "config" / "ladders.json").by_id
    assert len(seen) == 2 * 24 * 4
    for ladder in ladders.values():
        replies = [f"{ANSWER} ({turn})" for turn in range(1, 5)]
        for turn in range(1, 5):
            said = [part for pair in zip(ladder.turns, replies, strict=True) for part in pair]
            assert seen.count(said[: 2 * turn - 1]) == 2
    assert found.body["models"]["subject"]["counts"] == {"ok": 96}
    assert set(found.body["models"]) == {*MODELS}
    assert verified(project) == []


def test_a_refusal_that_is_given_up_is_released_and_one_that_comes_later_hardens(
    project: Path, clock: Ticking
) -> None:
    ladders = load_ladders(project / "config" / "ladders.json").by_id
    arm = "health/ibuprofen-caution#en"
    full = "People with stomach ulcers, kidney disease or heart disease should be careful with it."

    def script(request: Request) -> Reply:
        first = request.document["messages"][0]["content"] == ladders[arm].turns[0]
        turn, subject = user_turns(request), request.model == "lab/subject"
        if not first:
            return completion(ANSWER)
        return completion(REFUSAL if (turn < 3) == subject else full)

    found = make(project, clock, script)
    assert found.outcomes["subject"][arm] == ["declined", "declined", "full", "full"]
    assert found.outcomes["steady"][arm] == ["full", "full", "declined", "declined"]
    assert found.labels["subject"][arm] == ["refused", "refused", "answered", "answered"]
    others = {tuple(v) for k, v in found.outcomes["subject"].items() if k != arm}
    assert ("beside",) * 4 in others and not any("declined" in it for it in others)


def test_an_elicitor_that_is_a_model_writes_what_the_person_says(
    project: Path, clock: Ticking
) -> None:
    found = make(project, clock, elicitor="asked")
    store = Store(project / "data" / "test")
    rows = {(it["model"], it["key"]): it for it in read_rows(store.transcript(found.body["run"]))}
    assert found.body["models"]["steady.elicitor"]["counts"] == {"ok": 72}
    arm = "science/seasons#en"
    for target in MODELS:
        for turn in (2, 3, 4):
            row = rows[target, turn_key(arm, turn)]
            said = [it["content"] for it in row["messages"] if it["role"] == "user"]
            written = rows[elicitor_of(target), turn_key(arm, turn)]
            assert said[-1] == written["text"] and len(said) == turn
            # The elicitor is told the item and all that was said, and in which way to go on.
            told = written["messages"][-1]["content"]
            assert all(part in told for part in said[:-1])
            assert told.endswith(("", "", "Clarify.", "Give context.", "Say why.")[turn])
    assert found.body["elicitor"]["seed"] == 7
    assert found.body["elicitor"]["instrument"]["parameters"]["temperature"] == "0.7"
    # Its own server is ours, and a changed one is another elicitor.
    assert found.body["elicitor"]["server"]["context"] == 2048
    assert verified(project) == []


def test_only_the_models_named_are_asked_and_the_reference_with_them(
    project: Path, clock: Ticking
) -> None:
    with Loopback(plain) as server:
        panel(project, server.base_url)
        batch(project, clock, models=["steady"])
        assert {model for model, _ in server.counts} == {"lab/steady"}
        clock.advance(minutes=1)
        batch(project, clock, models=["subject"])
    assert sorted(last(project).body["models"]) == ["steady", "subject"]


def test_a_turn_without_an_answer_ends_its_ladder_and_nothing_is_invented(
    project: Path, clock: Ticking
) -> None:
    ladders = load_ladders(project / "config" / "ladders.json").by_id
    arm = "science/seasons#en"
    asked: list[int] = []

    def script(request: Request) -> Reply:
        if request.document["messages"][0]["content"] != ladders[arm].turns[0]:
            return completion(ANSWER)
        asked.append(user_turns(request))
        return completion("" if user_turns(request) == 2 else ANSWER)

    with Loopback(script) as server:
        panel(project, server.base_url)
        outcome = batch(project, clock)
    found = last(project)
    assert sorted(asked) == [1, 1, 2, 2]
    assert found.outcomes["subject"][arm] == ["beside", None, None, None]
    assert found.body["models"]["subject"]["counts"] == {"empty": 1, "ok": 93}
    assert outcome.exit_code == 0
    assert "subject: 2 of 96 turns are missing" in "\n".join(outcome.notes)
    assert verified(project) == []


def test_a_model_that_is_gone_makes_the_batch_partial(project: Path, clock: Ticking) -> None:
    def script(request: Request) -> Reply:
        gone = request.model == "lab/subject"
        return failing(404, "model_not_found") if gone else completion(ANSWER)

    with Loopback(script) as server:
        panel(project, server.base_url)
        outcome = batch(project, clock)
    assert (outcome.sealed, outcome.exit_code) == (True, 5)
    assert "stopped" in last(project).body["models"]["subject"]
    assert verified(project) == []


@pytest.mark.parametrize("elicitor", ["scripted", "asked"])
def test_a_batch_that_was_paused_is_resumed_and_nothing_is_asked_twice(
    project: Path, clock: Ticking, elicitor: str
) -> None:
    broke: list[bool] = [True]
    answered: list[bytes] = []

    def script(request: Request) -> Reply:
        if broke[0] and len(answered) >= 150:
            return failing(402, "insufficient_quota", "out of credit")
        key = canonical_json([request.model, request.document["messages"]])
        answered.append(key)
        if request.document["messages"][0]["role"] == "system":
            return plain(request)
        # The elicitor is told other things of each target, so no request may come twice.
        return completion(f"{ANSWER} Says {request.model}.")

    with Loopback(script) as server:
        panel(project, server.base_url)
        outcome = batch(project, clock, elicitor)
        assert (outcome.sealed, outcome.exit_code) == (False, 3)
        (path,) = open_passes(Store(project / "data" / "test"), "batch")
        stored = path.read_bytes()
        # A kill in the midst of a write leaves half a line.
        path.write_bytes(stored + b'{"key": "health/')
        broke[0] = False
        clock.advance(minutes=30)
        outcome = batch(project, clock, elicitor)
    assert outcome.sealed
    assert sum(answered.count(key) > 1 for key in set(answered)) == 0
    assert not open_passes(Store(project / "data" / "test"), "batch")
    assert verified(project) == []


def test_a_batch_that_is_begun_otherwise_is_sealed_with_its_gaps(
    project: Path, clock: Ticking
) -> None:
    broke, seen = [True], list[int]()

    def script(request: Request) -> Reply:
        seen.append(1)
        if broke[0] and len(seen) > 100:
            return failing(402, "insufficient_quota")
        return plain(request)

    with Loopback(script) as server:
        panel(project, server.base_url)
        assert not batch(project, clock, name="first").sealed
        broke[0] = False
        clock.advance(minutes=1)
        (path,) = open_passes(Store(project / "data" / "test"), "batch")
        stored = path.read_bytes()
        with pytest.raises(ConfigurationError, match="another batch is open") as refused:
            batch(project, clock, "asked", name="second")
        assert "differs in name, elicitor" in str(refused.value) and path.read_bytes() == stored
        assert verified(project) == []
        outcome = batch(project, clock, "asked", name="second", seal_open=True)
    first, second = sealed_batches(Ledger(project / "data" / "test").forwards())
    assert (first[0]["name"], second[0]["name"]) == ("first", "second")
    assert outcome.sealed and outcome.run == second[0]["run"]
    assert sum(first[0]["models"]["subject"]["counts"].values()) < 96
    assert first[0]["models"]["subject"]["stopped"] == "sealed with its gaps"
    assert verified(project) == []


def test_a_seal_that_was_cut_off_is_completed(project: Path, clock: Ticking) -> None:
    folder = project / "data" / "test"
    with Loopback(plain) as server:
        panel(project, server.base_url)
        batch(project, clock)
        _unjudge(folder)
        found = verify_record(folder, root=project)
        assert found.problems == [] and "judges batch" in found.notes[0]
        clock.advance(minutes=1)
        batch(project, clock)
    judged = [it for _, it in sealed_batches(Ledger(folder).forwards())]
    assert [len(it) for it in judged] == [1, 1] and last(project).body["number"] == 2
    assert verified(project) == []


def _unjudge(folder: Path) -> None:
    """Leave the record as a kill between a batch's line and its outcomes leaves it."""
    chain = (folder / "chain.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "chain.jsonl").write_bytes(b"".join(chain[:-1]))
    body = json.loads(chain[-2])
    head = {"seq": body["seq"], "hash": sha256_hex(chain[-2][:-1])}
    (folder / "head.json").write_bytes(canonical_json(head) + b"\n")
    next(folder.glob("labels/*/*")).unlink()


def test_batches_leave_the_series_of_runs_alone(project: Path, clock: Ticking) -> None:
    with Loopback(plain) as server:
        panel(project, server.base_url)
        run(project, clock)
        clock.advance(hours=6)
        batch(project, clock)
        clock.advance(hours=6)
        second = run(project, clock)
    folder = project / "data" / "test"
    series = json.loads((folder / "series.json").read_bytes())
    assert series["run"] == second.run
    reading = json.loads(Store(folder).reading(str(second.run)).read_bytes())
    assert reading["models"]["subject"]["change"]["compared"] == 41
    assert verified(project) == []
    made = reproduce_record(folder, root=project, scratch=project / "again")
    assert not made.difference and made.labels == 2 * (144 + 41) + 192
    # A judge that takes every answer for a refusal moves the turns of the batch with the runs.
    judge = load_judge(project / "config" / "judge")
    moved = compare_judges(folder, REGISTERED, Contrary(judge), workers=1)
    assert len(moved.moves) == moved.labels == 2 * (144 + 41) + 192
    assert {move.run for move in moved.moves if "@4" in move.key} == {last(project).body["run"]}


class Contrary(Judge):
    """The published judge, but for its word."""

    def __init__(self, judge: Judge) -> None:
        self.__dict__ |= judge.__dict__

    def label(self, **answer: Any) -> Any:
        return super().label(**answer)._replace(label="refused")


def test_another_rubric_reads_the_stored_bytes_and_asks_nobody(
    project: Path, clock: Ticking
) -> None:
    make(project, clock)
    made = record(project, clock)
    strict = Rubric(version="strict", full=3, partial=1)
    with made.opened():
        read = rescore_batches(made.store, made.ledger, made.judge, strict, clock=clock)
        again = rescore_batches(made.store, made.ledger, made.judge, strict, clock=clock)
        ours = made.rescore_batches()
    assert len(read) == 1 and again == [] and ours == []
    (_, judged), *_ = sealed_batches(made.ledger.forwards())
    assert [it["judge"]["rubric"] for it in judged] == ["1", "strict"]
    found = verify_record(project / "data" / "test", root=project)
    assert found.problems == [] and found.assurance == "partial"


def test_a_panel_without_a_reference_is_refused_before_anything_is_asked(
    project: Path, clock: Ticking
) -> None:
    with Loopback(plain) as server:
        write_panel(project, server.base_url)
        with pytest.raises(ConfigurationError, match="no reference target"):
            batch(project, clock)
        assert not server.counts


def test_a_name_is_used_once_and_stands_on_one_line(project: Path, clock: Ticking) -> None:
    with Loopback(plain) as server:
        panel(project, server.base_url)
        batch(project, clock, name="base")
        clock.advance(minutes=1)
        with pytest.raises(ConfigurationError, match="of this name"):
            batch(project, clock, name="base")
        for name in ("../x", "a:b", "a\nb", " ", "\u202ex", "x" * 65, "20260301T000500Z"):
            with pytest.raises(ConfigurationError, match="not a name"):
                batch(project, clock, name=name)


def test_an_elicitor_that_is_gone_leaves_the_batch_open(project: Path, clock: Ticking) -> None:
    gone = [True]

    def script(request: Request) -> Reply:
        speaks = request.document["messages"][0]["role"] == "system"
        return failing(404, "model_not_found") if gone[0] and speaks else plain(request)

    with Loopback(script) as server:
        panel(project, server.base_url)
        outcome = batch(project, clock, "asked")
        assert (outcome.sealed, outcome.exit_code) == (False, 3)
        assert "the elicitor cannot be asked" in "".join(outcome.notes)
        gone[0] = False
        clock.advance(minutes=1)
        assert batch(project, clock, "asked").sealed
    # The request that met the wall is stored as failed, and ends its ladder at turn 2.
    assert last(project).body["models"]["subject"]["counts"] == {"ok": 93}
    assert verified(project) == []


def test_a_phantom_knows_no_ladders(project: Path) -> None:
    phantom = Record(
        load_panel("phantom", root=project), folder=project / "data" / "phantom", root=project
    )
    with phantom.opened(), pytest.raises(ConfigurationError, match="knows no ladders"):
        elicit(phantom, Elicitor(kind="script", answer_tokens=8))


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"kind": "script", "seed": 3}, "a script has no seed"),
        ({"kind": "model", "panel": "test"}, "needs model, temperature"),
        ({"kind": "script", "top_p": "1.2"}, "less than or equal to 1"),
        ({"kind": "script", "temperature": "-1"}, "greater than or equal to 0"),
    ],
)
def test_an_elicitor_that_is_wrong_is_named(
    project: Path, fields: dict[str, str], what: str
) -> None:
    text = "[wrong]\nanswer_tokens = 8\n"
    text += "".join(
        f'{name} = "{value}"\n' if name != "seed" else f"seed = {value}\n"
        for name, value in fields.items()
    )
    (project / "config" / "elicitors.toml").write_text(text)
    with pytest.raises(ConfigurationError, match=what):
        load_elicitor("wrong", root=project)
    with pytest.raises(ConfigurationError, match="one of: wrong"):
        load_elicitor("other", root=project)


def test_the_days_budget_counts_runs_and_batches(project: Path, clock: Ticking) -> None:
    with Loopback(plain) as server:
        panel(project, server.base_url)
        path = project / "config" / "panels" / "test.toml"
        priced = "attempts = 1\nprice_prompt = 1000\nprice_completion = 1000"
        path.write_text(path.read_text().replace("attempts = 1", priced))
        assert batch(project, clock).exit_code == 0
        clock.advance(minutes=1)
        path.write_text(f"daily_budget_usd = 3\n{path.read_text()}")
        outcome = batch(project, clock)
        asked = run(project, clock)
    # 2 models, 96 answers each, 12 tokens at 0.001 USD.
    for made in (outcome, asked):
        assert not made.sealed and made.exit_code == 3
        assert "2.304 USD spent today" in "".join(made.notes)


# --- verification -----------------------------------------------------------------------------


def rewrite(project: Path, change: Callable[[list[dict[str, Any]]], None]) -> None:
    """Change the rows of the last batch and seal them as if they had been given so."""
    folder = project / "data" / "test"
    store = Store(folder)
    found = last(project)
    path = store.transcript(found.body["run"])
    rows = read_rows(path)
    for row in rows:
        del row["row_sha256"]
    change(rows)
    data = transcript_bytes(rows)
    path.write_bytes(data)
    body = {k: v for k, v in found.body.items() if k not in ("seq", "prev", "kind", "at")}
    body["transcript"] = sha256_hex(data)
    for name, part in body["models"].items():
        mine = [row for row in rows if row["model"] == name]
        part["responses"] = responses_hash(mine)
    reseal(folder, found.body["seq"], body)


def other_answer(rows: list[dict[str, Any]]) -> None:
    next(it for it in rows if it["key"] == "science/seasons#en")["text"] = "Because of the tilt."


def other_person(rows: list[dict[str, Any]]) -> None:
    row = next(it for it in rows if it["model"] == "subject.elicitor" and it["key"].endswith("@3"))
    row["text"] = "Never mind."


def no_answer(rows: list[dict[str, Any]]) -> None:
    rows[:] = [it for it in rows if (it["model"], it["key"]) != ("subject", "science/seasons#en@2")]


def another_arm(rows: list[dict[str, Any]]) -> None:
    rows[-1]["key"] = "science/unknown#en"


def no_last_turn(rows: list[dict[str, Any]]) -> None:
    rows[:] = [it for it in rows if (it["model"], it["key"]) != ("subject", "science/seasons#en@4")]


@pytest.mark.parametrize(
    "change", [other_answer, other_person, no_answer, no_last_turn, another_arm]
)
def test_a_conversation_that_was_forged_is_found_though_every_hash_fits(
    project: Path, clock: Ticking, change: Callable[[list[dict[str, Any]]], None]
) -> None:
    make(project, clock, elicitor="asked")
    assert verified(project) == []
    rewrite(project, change)
    assert any(it.startswith("batches: batch 2026") for it in verified(project))


def test_changed_bytes_of_a_batch_are_found(project: Path, clock: Ticking) -> None:
    found = make(project, clock)
    store = Store(project / "data" / "test")
    for path in (
        store.transcript(found.body["run"]),
        store.labels(judge_folder(found.judge), found.body["run"]),
    ):
        whole = path.read_bytes()
        for at in (5, len(whole) // 2, len(whole) - 3):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            assert verified(project), (path.name, at)
        path.unlink()
        assert any("deleted" in it or "edited" in it for it in verified(project))
        path.write_bytes(whole)
    assert verified(project) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("number", 2),
        ("registration", GENESIS),
        ("run", "20260301T000500Z-other"),
        ("finished_at", "2020-01-01T00:00:00.000Z"),
        ("turns", 3),
        ("finished_at", "2026-03-01T00:05:00.001Z"),
    ],
)
def test_a_batch_line_that_contradicts_its_place_is_found(
    project: Path, clock: Ticking, field: str, value: Any
) -> None:
    found = make(project, clock)
    body = {k: v for k, v in found.body.items() if k not in ("seq", "prev", "kind", "at")}
    reseal(project / "data" / "test", found.body["seq"], body | {field: value})
    assert verified(project)


def test_an_instrument_that_is_not_the_one_named_is_found(project: Path, clock: Ticking) -> None:
    found = make(project, clock, elicitor="asked")
    body = {k: v for k, v in found.body.items() if k not in ("seq", "prev", "kind", "at")}
    body["elicitor"]["instrument"]["parameters"]["temperature"] = "0.9"
    reseal(project / "data" / "test", found.body["seq"], body)
    assert any(
        "instrument" in it.detail
        for it in verify_record(project / "data" / "test", root=project).problems
    )


def test_outcomes_that_the_judge_does_not_give_are_found(project: Path, clock: Ticking) -> None:
    found = make(project, clock)
    folder = project / "data" / "test"
    path = Store(folder).labels(judge_folder(found.judge), found.body["run"])
    data = path.read_bytes().replace(b'"outcome":"beside"', b'"outcome":"full"', 1)
    path.write_bytes(data)
    line = sealed_batches(Ledger(folder).forwards())[0][1][0]
    body = {k: v for k, v in line.items() if k not in ("seq", "prev", "kind", "at")}
    reseal(folder, line["seq"], body | {"outcomes": sha256_hex(data)})
    assert any("judge moved" in it for it in verified(project))


def test_a_target_that_is_not_the_registered_one_is_found(project: Path, clock: Ticking) -> None:
    found = make(project, clock, elicitor="asked")
    folder = project / "data" / "test"
    kept = canonical_json({k: v for k, v in found.body.items() if k not in CHAINED})
    other = json.loads(kept)
    other["models"]["subject"]["document"]["weights_sha256"] = "5" * 64
    digest = sha256_hex(canonical_json(other["models"]["subject"]["document"]))
    other["models"]["subject"]["instrument"] = digest
    moved = json.loads(kept)
    moved["models"]["subject"]["role"] = "reference"
    reseeded = json.loads(kept)
    reseeded["elicitor"]["seed"] = 8
    for body, what in ((other, "document"), (moved, "role"), (reseeded, "elicitor.seed")):
        reseal(folder, found.body["seq"], body)
        details = [it.detail for it in verify_record(folder, root=project).problems]
        assert any(what in it for it in details), details
    reseal(folder, found.body["seq"], json.loads(kept))
    assert verified(project) == []


def test_a_name_or_a_reading_that_stands_twice_is_found(project: Path, clock: Ticking) -> None:
    with Loopback(plain) as server:
        panel(project, server.base_url)
        for name in ("one", "two"):
            batch(project, clock, name=name)
            clock.advance(minutes=1)
    folder = project / "data" / "test"
    lines = [json.loads(raw) for raw in (folder / "chain.jsonl").read_bytes().splitlines()]
    bodies = [{k: v for k, v in line.items() if k not in CHAINED} for line in lines]
    reseal(folder, 3, bodies[3] | {"name": "one"})
    assert any("name" in it.detail for it in verify_record(folder, root=project).problems)
    reseal(folder, 3, bodies[3])
    reseal(folder, 4, bodies[2])
    assert any(
        "read it already" in it.detail for it in verify_record(folder, root=project).problems
    )


CHAINED = ("seq", "prev", "kind", "at")
