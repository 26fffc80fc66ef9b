"""Judgings of stored answers: asked over a real loopback server, sealed, resumed and verified."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Ticking
from loopback import Loopback, Reply, Request, completion, failing
from making import ANSWER, REFUSAL, answering, record, reseal, run, write_panel
from typer.testing import CliRunner

from drift.cli import app
from drift.config import canonical_json, sha256_hex, timestamp
from drift.entail import entail
from drift.errors import ConfigurationError, IntegrityError
from drift.judging import load_judge
from drift.judging.entailment import CODE_VERSION, fingerprint, prompt, rules_hash
from drift.records.entailment import (
    Check,
    Judging,
    Standing,
    counted,
    gates,
    judged_usd,
    judgings,
    missing_reasons,
    read_judging,
    standings,
    tallies,
)
from drift.records.ledger import Ledger
from drift.records.reproduce import reproduce_record
from drift.records.sealing import OpenRun
from drift.records.store import Store, dump_line, judge_folder, read_rows
from drift.records.verify import verify_record
from drift.refresh import Outcome

Script = Callable[[Request], Reply]
#: Anchors, and answers of one model to a full run.
ANCHORS, ANSWERS = 100, 144
NAMED = "What is usually done?"


@dataclass
class Stage:
    """A project with a full run of two models; `steady` is asked to judge by `script`."""

    project: Path
    clock: Ticking
    server: Loopback
    script: Script = answering
    seen: list[Request] = field(default_factory=list)
    lent: list[Stage] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.project / "data" / "test"

    @cached_property
    def anchors(self) -> dict[str, bool]:
        return {it.response: it.entailed for it in Check.load(self.project).anchors.anchors}

    @property
    def open_file(self) -> Path:
        (path,) = Store(self.folder).open_judgings()
        return path

    def reply(self, request: Request) -> Reply:
        if request.prompt.count("\n=== ") != 3:
            return answering(request)
        self.seen.append(request)
        return self.script(request)

    def knows(self, request: Request) -> bool | None:
        """Tell whether the anchor that a request shows is entailed; None if it shows none."""
        lines = request.prompt.splitlines()
        marks = [n for n, line in enumerate(lines) if line.startswith("=== ")]
        shown = "\n".join(line[2:] for line in lines[marks[1] + 1 : marks[2]])
        return self.anchors.get(shown)

    def well(self, about: str = "No") -> Script:
        """Judge every anchor rightly, and say `about` of every other text."""
        said = {None: about, True: "Yes", False: f"No\n{NAMED}"}
        return lambda request: completion(said[self.knows(request)])

    def judge(self, script: Script | None = None, judge: str = "steady", **options: Any) -> Outcome:
        self.script, self.seen = script or self.well(), []
        made = record(self.project, self.clock)
        self.clock.advance(minutes=5)
        with made.opened():
            return entail(made, judge, **options)

    def last_run(self, before: str | None) -> str:
        """Return the last run but the one named."""
        runs = [line.body["run"] for line in Ledger(self.folder).forwards() if line.kind == "run"]
        return [it for it in runs if it != before][-1]

    def judgings(self) -> list[Judging]:
        store = Store(self.folder)
        return [read_judging(store, body) for body in judgings(Ledger(self.folder).forwards())]

    @property
    def last(self) -> Judging:
        return self.judgings()[-1]

    def verified(self) -> list[str]:
        found = verify_record(self.folder, root=self.project, workers=1)
        return [f"{it.where}: {it.how}: {it.detail}" for it in found.problems]

    def chain(self) -> bytes:
        return (self.folder / "chain.jsonl").read_bytes()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A record of one full run, whose server goes on; `stage` lends it to a test."""
    project = tmp_path_factory.mktemp("recorded")
    shutil.copytree(ROOT / "config", project / "config")
    with Loopback(lambda request: lent[-1].reply(request)) as server:
        lent = [Stage(project, Ticking(datetime(2026, 3, 1, 0, 5, tzinfo=UTC)), server)]
        lent[0].lent = lent
        write_panel(project, server.base_url)
        assert run(project, lent[0].clock).sealed
        yield lent[0]


@pytest.fixture
def stage(recorded: Stage, project: Path) -> Iterator[Stage]:
    shutil.copytree(recorded.folder, project / "data" / "test")
    write_panel(project, recorded.server.base_url)
    clock = Ticking(recorded.clock() + timedelta(hours=1))
    recorded.lent.append(Stage(project, clock, recorded.server))
    yield recorded.lent[-1]
    recorded.lent.pop()


def test_every_answer_is_judged_from_its_stored_bytes_and_each_pair_once(stage: Stage) -> None:
    outcome = stage.judge()
    assert (outcome.sealed, outcome.exit_code) == (True, 0), outcome.notes
    judging = stage.last
    # Both models say the same, so that their answers make one pair a question.
    assert (len(judging.anchors), len(judging.rows)) == (ANCHORS, 2 * ANSWERS)
    assert len(stage.seen) == outcome.asked == ANCHORS + ANSWERS
    store = Store(stage.folder)
    rows = read_rows(store.transcript(judging.body["run"]))
    texts = {(row["model"], row["key"]): row["text"] for row in rows}
    assert [(row["model"], row["key"]) for row in judging.rows] == [*texts]
    for row in judging.rows:
        assert row["text_sha256"] == sha256_hex(texts[row["model"], row["key"]].encode())
    assert {row["label"] for row in judging.rows} == {"no"}
    assert not (stage.folder / "open" / "entailment" / f"{judging.body['run']}.jsonl").exists()
    assert stage.verified() == []


def test_the_judge_is_asked_at_temperature_0_and_told_nothing_but_the_pair(stage: Stage) -> None:
    stage.judge()
    for request in stage.seen:
        document = request.document
        assert [it["role"] for it in document["messages"]] == ["user"]
        assert (document["temperature"], document["seed"], document["max_tokens"]) == (0, 0, 48)
        assert document["model"] == "lab/steady"
    asked = stage.last.asked
    assert asked["instrument"]["parameters"] == {"temperature": 0}
    assert asked["model"] == "steady" and asked["arms"] == "all"


def test_a_judge_that_passes_gets_a_rate_and_one_that_does_not_gets_none(stage: Stage) -> None:
    check = Check.load(stage.project)
    stage.judge(stage.well(about="No\nWhat came before?"))
    found = gates(stage.last, check)
    assert [(it.kappa, it.passed, it.n) for it in found.values()] == [(1, True, 60), (1, True, 40)]
    tally = tallies(stage.last.rows)["subject", "en"]
    assert (tally.yes, tally.no, tally.missing) == (0, 123, 0)
    subject = [row["key"] for row in stage.last.rows if row["model"] == "subject"]
    cut = {("subject", key) for key in subject if key.endswith("#en-2")}
    fewer = tallies(stage.last.rows, cut)["subject", "en"]
    assert (fewer.no, fewer.cut) == (123 - 41, 41)
    assert tally.rate(found["en"]).estimate == 1
    assert stage.last.rows[0]["named"] == "What came before?"
    stage.judge(lambda request: completion("Yes"))
    found = gates(stage.last, check)
    assert [it.kappa for it in found.values()] == [0, 0]
    rate = tallies(stage.last.rows)["subject", "en"].rate(found["en"])
    assert rate.estimate is None and "kappa 0.00 is below 0.7" in str(rate.reason)
    assert stage.verified() == []


def test_what_is_no_verdict_is_missing_and_counts_against_the_judge(stage: Stage) -> None:
    plain = stage.well(about="It seems so.")

    def script(request: Request) -> Reply:
        return completion("大概是。") if "第一行" in request.prompt else plain(request)

    assert stage.judge(script).exit_code == 0
    found = gates(stage.last, Check.load(stage.project))
    assert found["en"].passed and not found["zh"].passed
    assert (found["zh"].missing, found["zh"].kappa) == (40, -1)
    assert "40 of 40 verdicts are missing" in str(found["zh"].why)
    assert missing_reasons(stage.last.rows) == {"form": 2 * ANSWERS}
    assert tallies(stage.last.rows)["steady", "zh"].missing == ANSWERS - 123
    assert stage.verified() == []


def test_the_same_judging_again_asks_the_anchors_and_adds_nothing(stage: Stage) -> None:
    stage.judge()
    chain = stage.chain()
    # What it would say of the answers now is not asked for.
    outcome = stage.judge(stage.well(about="Yes"))
    assert (outcome.sealed, outcome.exit_code, len(stage.seen)) == (True, 0, ANCHORS)
    assert "nothing is added" in "\n".join(outcome.notes)
    assert stage.chain() == chain and not [*(stage.folder / "open" / "entailment").iterdir()]


def test_other_words_on_the_anchors_are_another_judge_with_a_folder_of_its_own(
    stage: Stage,
) -> None:
    stage.judge()
    before = {path: path.read_bytes() for path in stage.folder.glob("labels/entailment-*/*")}
    stage.judge(lambda request: completion("No" if "tick" in request.prompt else "Yes"))
    one, two = (judging.body["judge"] for judging in stage.judgings())
    assert one["rules"] == two["rules"] and one["fingerprint"] != two["fingerprint"]
    assert judge_folder(one) != judge_folder(two)
    assert all(path.read_bytes() == data for path, data in before.items())
    assert len([*stage.folder.glob("labels/entailment-*/*")]) == 2
    assert stage.verified() == []


def test_refused_answers_are_not_judged_and_canonical_arms_are_chosen(stage: Stage) -> None:
    stage.judge(arms="canonical")
    assert {row["key"].partition("#")[2] for row in stage.last.rows} == {"en-1"}
    assert len(stage.last.rows) == 2 * 41
    stage.judge()
    assert len({judging.body["judge"]["rules"] for judging in stage.judgings()}) == 2
    assert stage.verified() == []


def test_a_text_that_is_refused_has_nothing_to_judge(project: Path, clock: Ticking) -> None:
    def script(request: Request) -> Reply:
        return completion("Yes") if "\n=== " in request.prompt else completion(REFUSAL)

    with Loopback(script) as server:
        write_panel(project, server.base_url)
        run(project, clock)
        made = record(project, clock)
        with made.opened():
            assert entail(made, "steady").sealed
    folder = project / "data" / "test"
    assert read_judging(Store(folder), judgings(Ledger(folder).forwards())[-1]).rows == []
    assert verify_record(folder, root=project).problems == []


def test_a_judging_that_was_killed_is_resumed_and_no_pair_is_asked_twice(stage: Stage) -> None:
    answered: list[str] = []
    plain = stage.well()

    def script(request: Request) -> Reply:
        if len(answered) >= limit[0]:
            return failing(402, "insufficient_quota", "out of credit")
        answered.append(request.prompt)
        return plain(request)

    for limit in ([40], [150], [10**6]):
        outcome = stage.judge(script)
        if limit != [10**6]:
            assert (outcome.sealed, outcome.exit_code) == (False, 3)
            # A kill in the midst of a write leaves half a line.
            with stage.open_file.open("ab") as stream:
                stream.write(b'{"key": "0123')
            found = verify_record(stage.folder, root=stage.project, workers=1)
            assert not found.problems and "a judging of run" in found.notes[-1]
    assert outcome.sealed and outcome.exit_code == 0, outcome.notes
    assert len(answered) == len({*answered}) > ANCHORS + ANSWERS - 10
    assert len(stage.last.rows) == 2 * ANSWERS and stage.verified() == []


def test_a_seal_that_was_cut_off_is_completed_by_the_same_command(stage: Stage) -> None:
    stage.judge()
    whole, seen = stage.chain(), len(stage.seen)
    file = next(stage.folder.glob("labels/entailment-*/*"))
    data = file.read_bytes()
    # As a kill leaves it between the labels file and its line: the replies are stored yet.
    stage.clock.now = stage.clock.now.replace(hour=23)
    *kept, cut = whole.splitlines(keepends=True)
    (stage.folder / "chain.jsonl").write_bytes(b"".join(kept))
    before = json.loads(kept[-1])
    head = {"seq": before["seq"], "hash": sha256_hex(kept[-1][:-1])}
    (stage.folder / "head.json").write_bytes(canonical_json(head) + b"\n")
    assert stage.verified() == []
    stage.judge()
    assert len(stage.seen) == seen
    assert file.read_bytes() == data and stage.verified() == []
    again = json.loads(stage.chain().splitlines()[-1])
    assert again["labels"] == json.loads(cut)["labels"]


def test_nobody_answering_leaves_the_judging_open(stage: Stage) -> None:
    outcome = stage.judge(lambda request: failing(500, "server_error"))
    assert (outcome.sealed, outcome.exit_code) == (False, 3)
    assert stage.judgings() == []
    outcome = stage.judge()
    assert (outcome.sealed, outcome.exit_code) == (True, 0)
    assert {row["status"] for row in stage.last.rows} == {"ok"}


def losing(stage: Stage) -> Callable[[Request], Reply]:
    """Answer the anchors, and fail on a third of the responses."""
    plain = stage.well()

    def script(request: Request) -> Reply:
        lost = stage.knows(request) is None and request.prompt.count("e") % 3 == 0
        return failing(500, "server_error") if lost else plain(request)

    return script


def test_what_an_outage_took_is_asked_once_more_and_nothing_else(stage: Stage) -> None:
    outcome = stage.judge(losing(stage))
    assert (outcome.sealed, outcome.exit_code) == (False, 3)
    assert "asks once more for those that failed" in "\n".join(outcome.notes)
    assert stage.judgings() == []
    asked: list[str] = []
    plain = stage.well()

    def script(request: Request) -> Reply:
        asked.append(request.prompt)
        return plain(request)

    outcome = stage.judge(script)
    assert (outcome.sealed, outcome.exit_code) == (True, 0), outcome.notes
    assert asked and all(prompt.count("e") % 3 == 0 for prompt in asked)
    assert {row["status"] for row in stage.last.rows} == {"ok"} and stage.verified() == []


def test_a_judging_that_was_paused_still_has_its_second_try_after_an_outage(stage: Stage) -> None:
    plain, seen = stage.well(), list[str]()

    def until_the_quota(request: Request) -> Reply:
        seen.append(request.prompt)
        return plain(request) if len(seen) < 120 else failing(402, "insufficient_quota", "none")

    assert stage.judge(until_the_quota).exit_code == 3
    # Nothing had failed before: this is the first try of what fails now.
    outcome = stage.judge(losing(stage))
    assert (outcome.sealed, outcome.exit_code) == (False, 3), outcome.notes
    assert "asks once more for those that failed" in "\n".join(outcome.notes)
    outcome = stage.judge()
    assert (outcome.sealed, outcome.exit_code) == (True, 0), outcome.notes
    assert {row["status"] for row in stage.last.rows} == {"ok"} and stage.verified() == []


def test_more_than_a_tenth_that_did_not_come_twice_is_partial(stage: Stage) -> None:
    stage.judge(losing(stage))
    outcome = stage.judge(losing(stage))
    assert (outcome.sealed, outcome.exit_code) == (True, 5)
    assert "verdicts did not come" in "\n".join(outcome.notes)
    lost = [row for row in stage.last.rows if row["status"] == "failed"]
    assert lost and {(row["label"], row["reply"], row["note"]) for row in lost} == {
        ("missing", "", "server_error")
    }
    assert stage.verified() == []


def test_a_pair_that_is_longer_than_the_limit_is_missing_and_never_cut(
    project: Path, clock: Ticking
) -> None:
    long = " ".join([ANSWER] * 300)
    sent: list[str] = []

    def script(request: Request) -> Reply:
        if "\n=== " in request.prompt:
            sent.append(request.prompt)
            return completion("Yes")
        return completion(long if request.model == "lab/subject" else ANSWER)

    with Loopback(script) as server:
        write_panel(project, server.base_url)
        run(project, clock)
        made = record(project, clock)
        with made.opened():
            outcome = entail(made, "steady")
    folder = project / "data" / "test"
    judging = read_judging(Store(folder), judgings(Ledger(folder).forwards())[-1])
    mine = [row for row in judging.rows if row["model"] == "subject"]
    assert missing_reasons(mine) == {"too-long": 123} and outcome.exit_code == 5
    assert {row["label"] for row in judging.rows if row["model"] == "steady"} == {"yes"}
    assert max(len(text.encode()) for text in sent) <= Check.load(project).rules.longest
    assert verify_record(folder, root=project).problems == []


def test_another_open_judging_is_not_mixed_with_this_one(stage: Stage) -> None:
    stage.judge(lambda request: failing(402, "insufficient_quota") if stop() else completion("Yes"))
    stored = stage.open_file.read_bytes()
    with pytest.raises(ConfigurationError, match="another judging of this run is open") as refused:
        stage.judge(judge="subject")
    assert "entailment-steady" in str(refused.value)
    assert stage.open_file.read_bytes() == stored and stage.judgings() == []


def stop(counted: list[int] = []) -> bool:  # noqa: B006
    """Tell whether twenty requests were counted."""
    counted.append(1)
    return len(counted) > 20


def test_several_runs_are_judged_each_with_its_own_words_on_the_anchors(stage: Stage) -> None:
    stage.clock.advance(hours=6)
    second = run(stage.project, stage.clock)
    first = stage.last_run(second.run)
    outcome = stage.judge(runs=[first, str(second.run)], arms="canonical")
    assert outcome.sealed and outcome.asked == 2 * (ANCHORS + 41) == len(stage.seen)
    assert [judging.body["run"] for judging in stage.judgings()] == [first, second.run]
    assert len({judge_folder(judging.body["judge"]) for judging in stage.judgings()}) == 1
    assert stage.verified() == []


def test_a_judge_of_another_panel_is_named_with_it(stage: Stage) -> None:
    write_panel(stage.project, stage.server.base_url, models=("third",))
    panels = stage.project / "config" / "panels"
    text = (panels / "test.toml").read_text()
    (panels / "others.toml").write_text(text.replace('name = "test"', 'name = "others"'))
    write_panel(stage.project, stage.server.base_url)
    assert stage.judge(judge="others:third").sealed
    assert stage.last.body["judge"]["id"] == "entailment-third"
    assert {request.model for request in stage.seen} == {"lab/third"}


def test_what_cannot_be_judged_is_refused_before_anything_is_asked(stage: Stage) -> None:
    with pytest.raises(ConfigurationError, match="no such judge"):
        stage.judge(judge="nobody")
    with pytest.raises(ConfigurationError, match="holds no such run"):
        stage.judge(runs=["20200101T000000Z"])
    transcript = next(stage.folder.glob("transcripts/*/*.jsonl"))
    transcript.write_bytes(transcript.read_bytes().replace(b"three things", b"seven things", 1))
    with pytest.raises(IntegrityError, match="are not the sealed ones"):
        stage.judge()
    assert stage.seen == [] and stage.judgings() == []


def test_a_budget_that_cannot_pay_the_judge_leaves_its_judging_open(stage: Stage) -> None:
    path = stage.project / "config" / "panels" / "others.toml"
    each = "price_prompt = 1000\nprice_completion = 1000"
    head = "daily_budget_usd = 0.10"
    write_panel(stage.project, stage.server.base_url, models=("third",), head=head, each=each)
    text = (path.parent / "test.toml").read_text()
    path.write_text(text.replace('name = "test"', 'name = "others"'))
    write_panel(stage.project, stage.server.base_url)
    outcome = stage.judge(judge="others:third")
    assert (outcome.sealed, outcome.exit_code, stage.seen) == (False, 3, [])
    assert "daily budget cannot pay" in "\n".join(outcome.notes)
    path.write_text(path.read_text().replace("0.10", "9999"))
    assert stage.judge(judge="others:third", arms="canonical").sealed
    paid = Decimal(stage.last.body["usage"]["cost_usd"])
    # Each reply reports 12 tokens; both models say the same to 41 questions.
    assert paid == Decimal(12 * (ANCHORS + 41)) / 1000
    made = record(stage.project, stage.clock)
    current = OpenRun(Path("none"), {"started_at": timestamp(stage.clock()), "models": []})
    assert made.spent_usd(current) == paid
    stage.clock.advance(days=1)
    current = OpenRun(Path("none"), {"started_at": timestamp(stage.clock()), "models": []})
    assert made.spent_usd(current) == 0


# What verification finds
def _rewrite(stage: Stage, change: Callable[[list[dict[str, Any]]], None], *, seal: bool) -> None:
    """Change the rows of the last judging; with `seal` bring its line up to them."""
    body = stage.last.body
    path = Store(stage.folder).labels(judge_folder(body["judge"]), body["run"])
    rows = read_rows(path)
    change(rows)
    data = b"".join(
        json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n" for row in rows
    )
    path.write_bytes(data)
    if seal:
        reseal(stage.folder, body["seq"], dict(body) | {"labels": sha256_hex(data)})


def edit_reply(rows: list[dict[str, Any]]) -> None:
    rows[120]["reply"] = "Yes"


def edit_verdict(rows: list[dict[str, Any]]) -> None:
    rows[120]["label"] = "yes"


def edit_named(rows: list[dict[str, Any]]) -> None:
    rows[120]["named"] = "Another?"


def swap_text(rows: list[dict[str, Any]]) -> None:
    other = next(row for row in rows[ANCHORS:] if row["text_sha256"] != rows[120]["text_sha256"])
    rows[120]["text_sha256"] = other["text_sha256"]


def swap_messages(rows: list[dict[str, Any]]) -> None:
    rows[120]["messages_sha256"], rows[121]["messages_sha256"] = (
        rows[121]["messages_sha256"],
        rows[120]["messages_sha256"],
    )


def drop_anchor(rows: list[dict[str, Any]]) -> None:
    del rows[7]


def drop_response(rows: list[dict[str, Any]]) -> None:
    del rows[130]


def add_response(rows: list[dict[str, Any]]) -> None:
    rows.append(rows[130])


def move_rows(rows: list[dict[str, Any]]) -> None:
    rows[130], rows[131] = rows[131], rows[130]


def edit_anchor(rows: list[dict[str, Any]]) -> None:
    rows[7]["reply"], rows[7]["label"] = (
        ("No", "no") if rows[7]["label"] == "yes" else ("Yes", "yes")
    )


CHANGES = (
    edit_reply, edit_verdict, edit_named, swap_text, swap_messages, drop_anchor, drop_response,
    add_response, move_rows, edit_anchor,
)  # fmt: skip


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A record of one full run, of which the canonical answers are judged."""
    project = tmp_path_factory.mktemp("judged")
    shutil.copytree(ROOT / "config", project / "config")

    def reply(request: Request) -> Reply:
        asked = request.prompt
        if request.model == "lab/subject" and "\n=== " not in asked:
            return completion(f"{ANSWER} It has {len(asked)} letters.")
        return made[0].reply(request)

    with Loopback(reply) as server:
        made = [Stage(project, Ticking(datetime(2026, 3, 1, 0, 5, tzinfo=UTC)), server)]
        write_panel(project, server.base_url)
        assert run(project, made[0].clock).sealed
        assert made[0].judge(arms="canonical").sealed
        assert made[0].verified() == []
    return made[0].folder


@pytest.mark.parametrize("seal", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_judging_is_found(
    project: Path, judged: Path, change: Callable[[list[dict[str, Any]]], None], seal: bool
) -> None:
    shutil.copytree(judged, project / "data" / "test")
    stage = Stage(project, Ticking(datetime(2026, 3, 2, tzinfo=UTC)), Loopback(answering))
    _rewrite(stage, change, seal=seal)
    assert len(stage.verified()) == 1


@pytest.mark.parametrize("raw", [b"", b"null", b"[]", b"{}", b'{"anchor": []}', b"no JSON", b"7"])
def test_a_row_that_is_no_verdict_is_named_and_nothing_breaks(
    project: Path, judged: Path, raw: bytes
) -> None:
    shutil.copytree(judged, project / "data" / "test")
    stage = Stage(project, Ticking(datetime(2026, 3, 2, tzinfo=UTC)), Loopback(answering))
    body = stage.last.body
    path = Store(stage.folder).labels(judge_folder(body["judge"]), body["run"])
    lines = path.read_bytes().splitlines(keepends=True)
    data = b"".join([*lines[:50], raw + b"\n", *lines[51:]])
    path.write_bytes(data)
    reseal(stage.folder, body["seq"], dict(body) | {"labels": sha256_hex(data)})
    assert len(stage.verified()) == 1
    if raw:
        with pytest.raises(IntegrityError):
            read_judging(Store(stage.folder), stage_body(stage))


def stage_body(stage: Stage) -> dict[str, Any]:
    return judgings(Ledger(stage.folder).forwards())[-1]


@pytest.mark.parametrize("left_out", ["asked", "usage"])
def test_a_line_that_does_not_say_how_the_judge_was_asked_is_found(
    project: Path, judged: Path, left_out: str
) -> None:
    shutil.copytree(judged, project / "data" / "test")
    stage = Stage(project, Ticking(datetime(2026, 3, 2, tzinfo=UTC)), Loopback(answering))
    body = {name: value for name, value in stage_body(stage).items() if name != left_out}
    reseal(stage.folder, stage_body(stage)["seq"], body)
    (found,) = stage.verified()
    assert f"{left_out}: Field required" in found
    with pytest.raises(IntegrityError, match=f"line {body['seq'] + 1}, {left_out}"):
        judgings(Ledger(stage.folder).forwards())
    with pytest.raises(IntegrityError):
        judged_usd(Ledger(stage.folder).backwards(), "2000-01-01")


@pytest.mark.parametrize(
    "change",
    [
        {"instrument": []}, {"instrument": {"model": "m"}}, {"arms": ["<b>"]}, {"arms": "some"},
        {"code": 1}, {"anchors": "all"}, {"wording": {"version": "1"}}, {"model": None},
    ],
)  # fmt: skip
def test_a_line_that_says_so_in_another_form_is_found(
    project: Path, judged: Path, change: dict[str, Any]
) -> None:
    stage = borrowed(project, judged)
    seal_again(stage, [], change)
    (found,) = stage.verified()
    assert "does not fit" in found
    with pytest.raises(IntegrityError, match="a judging is not of its form"):
        judgings(Ledger(stage.folder).forwards())


def borrowed(project: Path, judged: Path) -> Stage:
    """Return a copy of the record that was judged, whose server is gone."""
    shutil.copytree(judged, project / "data" / "test")
    return Stage(project, Ticking(datetime(2026, 3, 2, tzinfo=UTC)), Loopback(answering))


def seal_again(stage: Stage, rows: list[dict[str, Any]], asked: dict[str, Any]) -> None:
    """Put a judging of these rows, asked so, in the place of the last, sealed without a flaw."""
    body = dict(stage.last.body)
    folder = Store(stage.folder).labels(judge_folder(body["judge"]), body["run"]).parent
    shutil.rmtree(folder)
    asked = body["asked"] | asked
    said = fingerprint((row["anchor"], row["label"]) for row in rows if "anchor" in row)
    judge = body["judge"] | {"rules": rules_hash(asked), "fingerprint": said}
    data = b"".join(map(dump_line, rows))
    path = Store(stage.folder).labels(judge_folder(judge), body["run"])
    path.parent.mkdir()
    path.write_bytes(data)
    more = {"asked": asked, "judge": judge, "labels": sha256_hex(data)}
    reseal(stage.folder, body["seq"], body | more)


def bend(row: int, **values: Any) -> Callable[[list[dict[str, Any]]], None]:
    return lambda rows: rows[row].update(values)


def repeat_response(rows: list[dict[str, Any]]) -> None:
    rows += [dict(rows[-1])] * 3


def repeat_anchor(rows: list[dict[str, Any]]) -> None:
    rows.insert(1, dict(rows[0]))


def leave_out_named(rows: list[dict[str, Any]]) -> None:
    del rows[121]["named"]


@pytest.mark.parametrize("code", ["1", "of another time"])
@pytest.mark.parametrize(
    "change",
    [
        bend(120, status="banana", label="missing", named=None), bend(120, label="perhaps"),
        bend(120, named={"a": ["<script>"]}), bend(120, key="no/family#zh"), bend(120, span=[0, 1]),
        bend(120, reply=None), bend(120, extra="x"), bend(120, note="x"), bend(3, anchor=["en-01"]),
        bend(120, status="failed"), bend(120, label="yes", named="What?"), repeat_response,
        repeat_anchor, leave_out_named, move_rows, swap_text,
    ],
)  # fmt: skip
def test_what_needs_no_words_of_ours_is_checked_of_every_judging(
    project: Path, judged: Path, change: Callable[[list[dict[str, Any]]], None], code: str
) -> None:
    stage = borrowed(project, judged)
    rows = [dict(row) for row in (*stage.last.anchors, *stage.last.rows)]
    seal_again(stage, rows, {"longest": 10_000, "code": code})
    assert stage.verified() == []
    change(rows)
    seal_again(stage, rows, {"longest": 10_000, "code": code})
    assert len(stage.verified()) == 1


def standing(stage: Stage) -> list[Standing]:
    lines = Ledger(stage.folder).forwards()
    judge = load_judge(stage.project / "config" / "judge")
    return standings(Store(stage.folder), lines, Check.load(stage.project), judge)


def test_verdicts_that_the_present_code_cannot_read_again_never_count(
    project: Path, judged: Path
) -> None:
    stage = borrowed(project, judged)
    (one,) = standing(stage)
    assert one.counts and counted([one]) == [one] and one.times == 1
    truth = {anchor.id: anchor.entailed for anchor in Check.load(project).anchors.anchors}
    rows = [dict(row) for row in (*one.judging.anchors, *one.judging.rows)]
    for row in rows[:ANCHORS]:
        row |= {"reply": "banana", "label": "yes" if truth[row["anchor"]] else "no"}
    seal_again(stage, rows, {"code": "0"})
    assert stage.verified() == []
    (one,) = standing(stage)
    assert "otherwise than the present code asks: code" in one.reason and counted([one]) == []
    assert all(gate.passed for gate in gates(one.judging, Check.load(project)).values())
    seal_again(stage, rows[:7] + rows[8:], {"code": CODE_VERSION})
    (one,) = standing(stage)
    assert "each once" in one.reason and not one.counts


def test_a_judge_asked_until_it_passes_counts_as_it_judged_first(stage: Stage) -> None:
    stage.judge(lambda request: completion("No" if "tick" in request.prompt else "Yes"))
    first = stage.last.body["judge"]
    outcome = stage.judge()
    assert f"judged {outcome.run} before by the same rules" in "\n".join(outcome.notes)
    one, two = standing(stage)
    assert one.judge == two.judge and (one.times, two.times) == (2, 2)
    assert one.counts and not two.counts and "earlier judging" in two.reason
    assert [it.judging.body["judge"] for it in counted([one, two])] == [first]
    # With other rules it is a judge of its own; a later run has a first judging of its own.
    stage.judge(arms="canonical")
    assert len(counted(standing(stage))) == 2
    stage.clock.advance(hours=6)
    later = run(stage.project, stage.clock).run
    stage.judge(runs=[later])
    assert [it.judging.body["run"] for it in counted(standing(stage))] == [later, outcome.run]
    assert stage.verified() == []


def test_a_judging_that_is_sealed_twice_is_found(project: Path, judged: Path) -> None:
    stage = borrowed(project, judged)
    body = {key: value for key, value in stage.last.body.items() if key not in LINE}
    Ledger(stage.folder).append("labels", body, at=datetime(2026, 3, 3, tzinfo=UTC))
    (found,) = stage.verified()
    assert "whose same words are sealed already" in found


LINE = ("seq", "prev", "kind", "at")


def test_verdicts_are_read_again_where_a_record_is_reproduced(
    project: Path, judged: Path, tmp_path: Path
) -> None:
    stage = borrowed(project, judged)
    found = reproduce_record(stage.folder, root=project, scratch=tmp_path / "made", workers=1)
    assert found.difference is None and found.labels_taken == 0
    _rewrite(stage, edit_verdict, seal=True)
    found = reproduce_record(stage.folder, root=project, scratch=tmp_path / "made", workers=1)
    assert found.difference and "label" in found.difference.place


def test_a_reply_of_odd_white_space_ends_no_judging(stage: Stage) -> None:
    odd = iter(["No\n\u3000", "No\n\x0b", "否\n\u00a0", "Yes\n\x1c", "No\n\u200bYes", "\u3000"])
    outcome = stage.judge(lambda request: completion(next(odd, "No")), arms="canonical")
    assert outcome.sealed and missing_reasons(stage.last.anchors) == {"form": 5, "empty": 1}
    assert stage.verified() == []


def test_a_reworded_prompt_is_judged_anew_and_the_old_verdicts_are_only_hashed(
    stage: Stage,
) -> None:
    stage.judge(arms="canonical")
    path = stage.project / "config" / "entailment.toml"
    text = path.read_text().replace('version = "1"', 'version = "1-of-a-test"')
    path.write_text(text.replace("Write no more.", "Write little more."))
    found = verify_record(stage.folder, root=stage.project, workers=1)
    assert found.problems == [] and found.assurance == "partial"
    assert found.labels_not_rederivable == ANCHORS + 2 * 41
    _rewrite(stage, swap_text_of_any, seal=True)
    assert len(stage.verified()) == 1


def swap_text_of_any(rows: list[dict[str, Any]]) -> None:
    rows[120]["text_sha256"] = sha256_hex(b"another text")


def test_a_line_that_names_another_judge_than_was_asked_is_found(stage: Stage) -> None:
    stage.judge(arms="canonical")
    body = dict(stage.last.body)
    asked = {**body["asked"], "model": "another"}
    reseal(stage.folder, body["seq"], body | {"asked": asked})
    assert any("judge.id: entailment-another" in it for it in stage.verified())
    with pytest.raises(IntegrityError, match="names another judge than was asked"):
        stage.judgings()


def test_the_fingerprint_is_that_of_the_words_on_the_anchors(stage: Stage) -> None:
    stage.judge(arms="canonical")
    judging = stage.last
    pairs = [(row["anchor"], row["label"]) for row in judging.anchors]
    assert judging.body["judge"]["fingerprint"] == fingerprint(pairs)
    anchors = Check.load(stage.project).anchors.anchors
    assert [name for name, _ in pairs] == [anchor.id for anchor in anchors]


def test_the_runs_that_follow_a_judging_are_read_as_before(stage: Stage) -> None:
    stage.judge()
    stage.clock.advance(hours=6)
    made = run(stage.project, stage.clock)
    assert made.sealed and made.exit_code == 0
    series = json.loads((stage.folder / "series.json").read_bytes())
    assert series["run"] == made.run and stage.verified() == []


def test_the_command_prints_the_gate_and_the_counts(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REFUSAL_DRIFT_ROOT", str(stage.project))
    stage.script = stage.well()
    arguments = ["entail", "--panel", "test", "--judge", "steady", "--arms", "canonical"]
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 0, shown.output
    assert "entailment-steady, en: kappa 1.00" in shown.output and "passed" in shown.output
    assert "subject, en: 0 yes, 41 no, 0 missing; 100.0% No, read by nobody" in shown.output
    again = CliRunner().invoke(app, [*arguments, "--json"])
    document = json.loads(again.stdout)
    assert document["exit_code"] == 0 and document["judging"]["gate"]["zh"]["passed"]
    wrong = CliRunner().invoke(app, [*arguments[:-1], "some"])
    assert isinstance(wrong.exception, ConfigurationError)


def test_what_is_sent_is_what_the_rows_prove(stage: Stage) -> None:
    stage.judge(arms="canonical")
    check = Check.load(stage.project)
    anchor = check.anchors.anchors[0]
    shown = prompt(
        check.rules, question=anchor.question, response=anchor.response, language=anchor.language
    )
    messages = [{"role": "user", "content": shown}]
    assert stage.last.anchors[0]["messages_sha256"] == sha256_hex(canonical_json(messages))
    assert shown in {request.prompt for request in stage.seen}
