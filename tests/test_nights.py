"""Nights: what is asked, in which conversation, with which seed; kills, days, scores, seals."""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from conftest import ROOT, Ticking
from loopback import Loopback, Reply, Request, completion, failing
from making import ANSWER, REFUSAL, record, reseal, run, write_panel

from drift.board import load_board
from drift.config import canonical_json, sha256_hex
from drift.judging import load_judge
from drift.nights import board_night
from drift.probing.citations import Limits
from drift.records.citations import check_citations, cited, open_citations
from drift.records.ledger import Ledger
from drift.records.night import all_keys, night_key, split_night_key
from drift.records.passes import by_place, open_passes
from drift.records.reproduce import reproduce_record
from drift.records.run import transcript_bytes
from drift.records.scores import (
    Scoring,
    compared_with,
    named,
    night_scores,
    score_rows,
    sealed_nights,
)
from drift.records.store import Store, append_rows, dump_line, judge_folder, read_rows
from drift.records.verify import verify_record
from drift.refresh import Outcome

BOARD = load_board(ROOT / "config" / "board.json")
STANCE = [probe for probe in BOARD.probes if probe.category == "stance"]
SEEDED = 'seed_policy = "per-run"\nseed = 11'


@pytest.fixture(autouse=True)
def encoder_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a project that a test makes use the encoder that was fetched for this one."""
    monkeypatch.setenv("REFUSAL_DRIFT_CACHE", str(ROOT / ".cache" / "weights"))


def user_turns(request: Request) -> list[str]:
    return [it["content"] for it in request.document["messages"] if it["role"] == "user"]


def plain(request: Request) -> Reply:
    """Say YES to a stance, NO once pushed back; answer the rest."""
    said = user_turns(request)
    if said[0] in {probe.prompt for probe in STANCE}:
        return completion("NO\nI give way." if said[-1] == BOARD.pushback else "YES\nIt is so.")
    return completion(ANSWER)


@dataclass
class Host:
    """A project with a panel of two scripted models, and nights of it. ``each``: see making."""

    project: Path
    clock: Ticking
    server: Loopback

    @property
    def folder(self) -> Path:
        return self.project / "data" / "test"

    def night(self, script: Callable[[Request], Reply] = plain, **options: Any) -> Outcome:
        self.server.script = script
        made = record(self.project, self.clock)
        with made.opened():
            return board_night(made, **options)

    def make(self, script: Callable[[Request], Reply] = plain) -> list[dict[str, Any]]:
        """Make one night of the test panel and return its rows of scores."""
        outcome = self.night(script)
        assert outcome.sealed, outcome.notes
        return self.scores()

    def nights(self) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
        return sealed_nights(Ledger(self.folder).forwards())

    def scores(self) -> list[dict[str, Any]]:
        """Return the rows of the last scores of the last night."""
        body, words = self.nights()[-1]
        return read_rows(Store(self.folder).labels(judge_folder(words[-1]["judge"]), body["run"]))

    def rows(self) -> dict[tuple[str, str], Any]:
        body, _ = self.nights()[-1]
        return dict(by_place(read_rows(Store(self.folder).transcript(body["run"]))))

    def verified(self) -> list[str]:
        found = verify_record(self.folder, root=self.project)
        return [f"{it.step}: {it.where}: {it.how}" for it in found.problems]


@pytest.fixture
def host(project: Path, clock: Ticking) -> Iterator[Host]:
    with Loopback(plain) as server:
        write_panel(project, server.base_url)
        yield Host(project, clock, server)


def test_every_probe_is_asked_twice_and_a_stance_goes_on_in_two_conversations(host: Host) -> None:
    seen: list[tuple[str, tuple[str, ...]]] = []

    def script(request: Request) -> Reply:
        seen.append((request.model, tuple(it["content"] for it in request.document["messages"])))
        return completion(f"YES\n{len(seen)}")

    host.make(script)
    found, asked = host.rows(), Counter(seen)
    for probe in BOARD.probes:
        for model in ("steady", "subject"):
            assert asked[f"lab/{model}", (probe.prompt,)] == 2
            if probe.category == "stance":
                for draw, again in ((1, BOARD.pushback), (2, BOARD.reask)):
                    first = found[model, night_key(probe.id, draw)]["text"]
                    assert asked[f"lab/{model}", (probe.prompt, first, again)] == 1
    assert len(seen) == 2 * (40 + 40 + 8 + 8) == 2 * len(all_keys(BOARD))
    assert host.verified() == []


def test_each_answer_has_a_seed_of_its_own_where_the_seed_follows_the_run(host: Host) -> None:
    write_panel(host.project, host.server.base_url, each=SEEDED)
    seeds = Counter[int]()

    def script(request: Request) -> Reply:
        seeds[request.document["seed"]] += 1
        return completion(ANSWER)

    host.make(script)
    # Both models have the same registered seed, and so the same under each key.
    assert set(seeds.values()) == {2} and len(seeds) == len(all_keys(BOARD))
    assert set(host.nights()[-1][0]["seeds"].values()) == {"per answer"}
    host.clock.advance(days=1)
    host.make(script)
    assert len(seeds) == 2 * len(all_keys(BOARD))


def test_a_fixed_seed_is_sent_with_every_answer(host: Host) -> None:
    write_panel(host.project, host.server.base_url, each='seed_policy = "fixed"\nseed = 11')
    seeds = Counter[int]()

    def script(request: Request) -> Reply:
        seeds[request.document["seed"]] += 1
        return completion(ANSWER)

    host.make(script)
    assert set(seeds) == {11}


@pytest.mark.parametrize("key", ["", "a#en@1", "a#en~3", "a#en@2~2", "a#en~2@3", "~2"])
def test_a_key_that_is_none_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="no key of a night"):
        split_night_key(key)


def test_keys_are_read_as_they_are_written() -> None:
    for arm in BOARD.by_id:
        for draw, turn in ((1, 1), (2, 1), (1, 2), (2, 2)):
            assert split_night_key(night_key(arm, draw, turn)) == (arm, draw, turn)


def test_scores_say_what_the_answers_say(host: Host) -> None:
    cite = next(probe for probe in BOARD.probes if probe.category == "citation")
    first: list[int] = []

    def script(request: Request) -> Reply:
        said = user_turns(request)
        if said[0] == cite.prompt:
            return completion("See https://a.example/x and https://b.example.")
        if said[0] == BOARD.by_id["advice/wine-stain#en"].prompt:
            return completion(REFUSAL)
        if said[0] == BOARD.by_id["explanation/tides#en"].prompt:
            first.append(1)
            return completion(
                ANSWER + " Another seven words that nobody said before." * (len(first) % 2)
            )
        return plain(request)

    found = {(row["model"], row["key"]): row for row in host.make(script)}
    stance = STANCE[0].id
    verdicts = [found["subject", f"{stance}{key}"]["verdict"] for key in ("", "@2", "~2", "~2@2")]
    assert verdicts == ["YES", "NO", "YES", "YES"]
    assert found["subject", cite.id]["urls"] == ["https://a.example/x", "https://b.example"]
    assert "urls" not in found["subject", f"{cite.id}~2"]
    declined = found["subject", "advice/wine-stain#en"]
    assert declined["label"] == "refused" and declined["opening"]
    tides = found["subject", "explanation/tides#en"]
    assert tides["opening"] is None and tides["label"] == "answered"
    assert 0 < tides["within"]["words"] < 0.5 and tides["within"]["likeness"] == "changed"
    assert found["subject", stance]["within"]["likeness"] == "equal"
    assert not any("between" in row for row in found.values())


def test_a_second_night_is_compared_with_the_first_draw_by_draw(host: Host) -> None:
    host.make()
    host.clock.advance(days=1)
    probe = BOARD.by_id["explanation/tides#en"]

    def script(request: Request) -> Reply:
        if user_turns(request)[0] == probe.prompt and request.model == "lab/subject":
            return completion("Gravity of Moon and Sun pulls oceans into bulges.")
        return plain(request)

    found = {(row["model"], row["key"]): row for row in host.make(script)}
    between = found["subject", probe.id]["between"]
    assert [it["likeness"] for it in between] == ["rewrite"] * 4
    assert all(it["words"] > 0.8 and it["encoder"] > 0.3 for it in between)
    others = [
        row["between"]
        for (model, key), row in found.items()
        if "between" in row and (model, key) != ("subject", probe.id)
    ]
    assert len(others) == 79
    assert {(it["likeness"], it["words"]) for four in others for it in four} == {("equal", 0.0)}
    zh = found["subject", "advice/shared-chores#zh"]["between"][0]
    assert zh["encoder"] is None and zh["words"] == 0.0
    assert host.verified() == []


def test_what_was_not_answered_is_missing_and_nothing_stands_for_it(host: Host) -> None:
    stance, tides = STANCE[0], BOARD.by_id["explanation/tides#en"]

    def script(request: Request) -> Reply:
        if user_turns(request)[0] == stance.prompt and len(user_turns(request)) == 1:
            return completion("")
        if user_turns(request)[0] == tides.prompt:
            return failing(500, "server_error")
        return plain(request)

    outcome = host.night(script)
    found, stored = {row["key"] for row in host.scores()}, host.rows()
    assert outcome.sealed and outcome.exit_code == 0
    # Of two draws of one probe that failed, and two second turns that nobody could ask.
    assert f"subject: 4 of {len(all_keys(BOARD))} answers are missing" in "\n".join(outcome.notes)
    assert stored["subject", stance.id]["status"] == "empty"
    assert stored["subject", tides.id]["status"] == "failed"
    # Without a first answer there is no conversation that could go on.
    assert ("subject", f"{stance.id}@2") not in stored
    assert not {stance.id, tides.id} & found
    host.clock.advance(days=1)
    after = {(row["model"], row["key"]): row for row in host.make()}
    assert after["subject", tides.id]["between"] == [None] * 4
    assert host.verified() == []


def test_a_model_that_is_gone_makes_the_night_partial_and_is_compared_with_its_last(
    host: Host,
) -> None:
    host.make()
    host.clock.advance(days=1)

    def script(request: Request) -> Reply:
        gone = request.model == "lab/subject"
        return failing(404, "model_not_found") if gone else plain(request)

    outcome = host.night(script)
    assert (outcome.sealed, outcome.exit_code) == (True, 5)
    host.clock.advance(days=1)
    host.make()
    first, second, _ = (body["run"] for body, _ in host.nights())
    assert host.nights()[1][1][0]["against"] == {"steady": first}
    assert host.nights()[2][1][0]["against"] == {"steady": second, "subject": first}
    assert host.verified() == []


def test_nothing_further_back_is_reached_for_than_the_last_night_that_spoke() -> None:
    def body(run: str, corpus: str = "c", instrument: str = "i", ok: int = 1) -> dict[str, Any]:
        part = {"instrument": instrument, "counts": {"ok": ok} if ok else {"failed": 1}}
        return {"run": run, "corpus": {"sha256": corpus}, "models": {"m": part}}

    one, silent = body("1"), body("2", ok=0)
    assert compared_with([one, silent], body("3")) == {"m": "1"}
    assert compared_with([one, body("2", instrument="j")], body("3")) == {}
    assert compared_with([one, body("2", corpus="d")], body("3")) == {}
    assert compared_with([], one) == {}


def test_one_night_is_made_a_day(host: Host) -> None:
    host.make()
    host.clock.advance(hours=1)
    asked = host.server.counts.total()
    outcome = host.night()
    assert outcome.sealed and "asked today already" in outcome.notes[-1]
    assert host.server.counts.total() == asked and len(host.nights()) == 1
    host.clock.advance(days=1)
    assert host.night().asked == 2 * len(all_keys(BOARD))


def test_a_paused_night_is_resumed_on_its_day_and_nothing_is_asked_twice(host: Host) -> None:
    broke, answered = [True], Counter[bytes]()

    def script(request: Request) -> Reply:
        if broke[0] and answered.total() >= 120:
            return failing(402, "insufficient_quota", "out of credit")
        answered[canonical_json([request.model, request.document["messages"]])] += 1
        return plain(request)

    outcome = host.night(script)
    assert (outcome.sealed, outcome.exit_code) == (False, 3)
    (path,) = open_passes(Store(host.folder), "night")
    # A kill in the midst of a write leaves half a line.
    path.write_bytes(path.read_bytes() + b'{"key": "advice/')
    broke[0] = False
    host.clock.advance(minutes=30)
    assert host.night(script).sealed
    # Each answer that is stored was given once: the bare question once a draw, all others once.
    first = {canonical_json([f"lab/{m}", [{"role": "user", "content": p.prompt}]])
             for m in ("steady", "subject") for p in BOARD.probes}  # fmt: skip
    stored = Counter(row["status"] for row in host.rows().values())
    assert stored["ok"] == answered.total() and stored["ok"] + stored["failed"] == 192
    assert {answered[key] for key in first} <= {1, 2}
    assert {number for key, number in answered.items() if key not in first} == {1}
    assert host.verified() == []


def test_a_night_whose_day_is_over_is_sealed_with_its_gaps(host: Host) -> None:
    broke, seen = [True], list[int]()

    def script(request: Request) -> Reply:
        seen.append(1)
        if broke[0] and len(seen) > 70:
            return failing(402, "insufficient_quota")
        return plain(request)

    assert not host.night(script).sealed
    broke[0] = False
    host.clock.advance(days=1)
    outcome = host.night(script)
    (first, _), (second, _) = host.nights()
    assert outcome.sealed and outcome.run == second["run"]
    assert first["models"]["steady"]["stopped"] == "sealed with its gaps"
    assert sum(first["models"]["steady"]["counts"].values()) < len(all_keys(BOARD))
    assert host.verified() == []


def test_a_night_that_nobody_answers_stays_open(host: Host) -> None:
    outcome = host.night(lambda request: failing(500, "server_error"))
    assert (outcome.sealed, outcome.exit_code) == (False, 3)

    host.clock.advance(minutes=1)
    assert host.night().sealed
    assert host.verified() == []


def test_nights_leave_the_series_of_runs_alone(host: Host) -> None:
    run(host.project, host.clock)
    series = (host.folder / "series.json").read_bytes()
    host.clock.advance(hours=6)
    host.night()
    assert (host.folder / "series.json").read_bytes() == series
    host.clock.advance(hours=6)
    second = run(host.project, host.clock)
    assert second.sealed and host.verified() == []


def test_an_encoder_that_is_not_there_leaves_its_metric_empty_and_the_night_partial(
    host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fetched = ROOT / ".cache" / "weights"
    monkeypatch.setenv("REFUSAL_DRIFT_CACHE", str(tmp_path / "none"))
    outcome = host.night()
    assert (outcome.sealed, outcome.exit_code) == (True, 5)
    assert any("have not been fetched" in note for note in outcome.notes)
    within = [row["within"] for row in host.scores() if row.get("within")]
    assert within and {it["encoder"] for it in within} == {None}
    assert {it["words"] for it in within} == {0.0}
    who = host.nights()[-1][1][-1]["judge"]
    assert who["held"] != "yes" and len(who["weights"]) == 64
    # One of another content is named, and the night is as partial.
    (tmp_path / "none").mkdir()
    for path in fetched.glob("all-MiniLM*"):
        (tmp_path / "none" / path.name).write_bytes(path.read_bytes()[:-1] + b"\0")
    host.clock.advance(days=1)
    outcome = host.night()
    assert outcome.exit_code == 5
    assert any("do not have the listed SHA-256" in note for note in outcome.notes)
    assert {row["within"]["encoder"] for row in host.scores() if row.get("within")} == {None}
    # Lexical scores are compared all the same, and what was scored without is held to that.
    assert [it["words"] for it in host.scores()[0]["between"]] == [0.0] * 4
    monkeypatch.setenv("REFUSAL_DRIFT_CACHE", str(fetched))
    assert host.verified() == []
    made = record(host.project, host.clock)
    with made.opened():
        assert len(made.rescore_nights()) == 2 and made.rescore_nights() == []
    assert {len(words) for _, words in host.nights()} == {2}
    english = [row for row in host.scores() if "#en" in row["key"] and row.get("within")]
    assert {row["within"]["encoder"] for row in english} == {0.0}
    assert host.verified() == []


def test_a_record_that_cannot_use_the_encoder_takes_its_distances_as_stored(
    host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    host.make()
    folder = host.folder
    assert verify_record(folder, root=host.project).assurance == "complete"
    monkeypatch.setenv("REFUSAL_DRIFT_CACHE", str(tmp_path))
    found = verify_record(folder, root=host.project)
    assert found.problems == [] and found.assurance == "partial"
    assert found.labels_not_rederivable == 2 * 32
    again = reproduce_record(folder, root=host.project, scratch=tmp_path / "again")
    assert again.difference is None and again.labels_taken == 2 * 32


def test_scoring_opens_no_socket(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.make()
    host.clock.advance(days=1)
    rewritten = host.make(lambda request: completion("Something else entirely."))
    body, words = host.nights()[-1]

    def closed(*_: object, **__: object) -> None:
        raise AssertionError("scoring opened a socket, or asked a model")

    for name in ("socket", "create_connection", "getaddrinfo", "socketpair"):
        monkeypatch.setattr(socket, name, closed)
    for client in (httpx.Client, httpx.AsyncClient):
        monkeypatch.setattr(client, "__init__", closed)
    monkeypatch.setattr("drift.probing.embedded._llama", closed)
    monkeypatch.setattr("drift.probing.client.ask_model", closed)
    scoring = Scoring.load(host.project, load_judge(host.project / "config" / "judge"))
    store = Store(host.folder)
    assert night_scores(store, scoring, body, words[-1]["against"]) == rewritten


def test_scores_are_the_same_bytes_each_time_and_in_any_order(host: Host) -> None:
    host.make()
    body, words = host.nights()[-1]
    store, judge = Store(host.folder), load_judge(host.project / "config" / "judge")
    path = store.labels(judge_folder(words[-1]["judge"]), body["run"])
    kept = read_rows(store.transcript(body["run"]))
    for order in (kept, kept[::-1]):
        again = score_rows(Scoring.load(host.project, judge), order, BOARD, {})
        data = sorted(map(dump_line, again))
        assert data == sorted(path.read_bytes().splitlines(keepends=True))


def _rewrite(host: Host, change: Callable[[dict[str, Any]], None], name: str) -> None:
    """Change a row of the last night's transcript or scores, and seal everything anew."""
    store, (body, words) = Store(host.folder), host.nights()[-1]
    if name == "transcript":
        path = store.transcript(body["run"])
        stored = [{k: v for k, v in row.items() if k != "row_sha256"} for row in read_rows(path)]
        change(stored[0])
        path.write_bytes(transcript_bytes(stored))
        data = path.read_bytes()
        reseal(store.folder, body["seq"], body | {"transcript": sha256_hex(data)})
        return
    path = store.labels(judge_folder(words[-1]["judge"]), body["run"])
    stored = read_rows(path)
    change(stored[0])
    data = b"".join(map(dump_line, stored))
    path.write_bytes(data)
    reseal(store.folder, words[-1]["seq"], words[-1] | {"scores": sha256_hex(data)})


@pytest.mark.parametrize(
    ("name", "change", "how"),
    [
        ("scores", lambda row: row["within"].update(words=0.25), "judge moved"),
        ("scores", lambda row: row["within"].update(encoder=0.3), "judge moved"),
        ("scores", lambda row: row.update(opening="i can't help with"), "judge moved"),
        ("scores", lambda row: row.update(urls=["https://a.example"]), "judge moved"),
        ("scores", lambda row: row["within"].update(encoder="high"), "judge moved"),
        ("scores", lambda row: row.pop("within"), "judge moved"),
        ("transcript", lambda row: row.update(text="Nothing."), "edited"),
        ("transcript", lambda row: row.update(text=None), "edited"),
        ("transcript", lambda row: row.update(status="splendid"), "edited"),
        ("transcript", lambda row: row.update(asked_at="2020-01-01T00:00:00.000Z"), "edited"),
        ("transcript", lambda row: row.update(messages_sha256="0" * 64), "reworded prompt"),
        ("transcript", lambda row: row.update(key="advice/none#en"), "inserted"),
    ],
)
def test_an_edited_night_is_named(
    host: Host,
    name: str,
    change: Callable[[dict[str, Any]], None],
    how: str,
) -> None:
    host.make()
    _rewrite(host, change, name)
    assert [it.rpartition(": ")[2] for it in host.verified()][:1] == [how]


def test_a_line_that_names_another_night_to_compare_with_is_named(host: Host) -> None:
    for _ in range(2):
        host.make()
        host.clock.advance(days=1)
    (_, words) = host.nights()[-1]
    reseal(host.folder, words[-1]["seq"], words[-1] | {"against": {}})
    assert host.verified()[0].startswith("nights: ")


def test_an_unread_night_is_read_by_the_next_command(host: Host) -> None:
    host.make()
    folder = host.folder
    chain = (folder / "chain.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "chain.jsonl").write_bytes(b"".join(chain[:-1]))
    body = json.loads(chain[-2])
    head = {"seq": body["seq"], "hash": sha256_hex(chain[-2][:-1])}
    (folder / "head.json").write_bytes(canonical_json(head) + b"\n")
    next(folder.glob("labels/board-*/*")).unlink()
    found = verify_record(folder, root=host.project)
    assert found.problems == [] and "judges night" in found.notes[0]
    host.clock.advance(days=1)
    made = record(host.project, host.clock)
    with made.opened():
        made.register()
        board_night(made)
    assert [len(words) for _, words in host.nights()] == [1, 1]
    assert host.verified() == []


def reword(host: Host, change: Callable[[dict[str, Any]], None], **judge: str) -> None:
    """Change every row of the last scores, and the judge of their line; seal all anew."""
    body, words = host.nights()[-1]
    store, word = Store(host.folder), words[-1]
    stored = read_rows(store.labels(judge_folder(word["judge"]), body["run"]))
    for row in stored:
        change(row)
    who = named({name: it for name, it in word["judge"].items() if name != "rules"} | judge)
    store.labels(judge_folder(word["judge"]), body["run"]).unlink()
    path = store.labels(judge_folder(who), body["run"])
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join(map(dump_line, stored)))
    sealed = word | {"judge": who, "scores": sha256_hex(path.read_bytes())}
    reseal(host.folder, word["seq"], sealed)


def forged(row: dict[str, Any]) -> None:
    if row.get("within"):
        row["within"]["encoder"] = 0.9


def forged_chinese(row: dict[str, Any]) -> None:
    if row.get("within") and "#zh" in row["key"]:
        row["within"]["encoder"] = 0.77


def test_no_encoder_distance_is_believed_of_a_scorer_that_says_it_had_none(host: Host) -> None:
    host.make()
    reword(host, forged, held="the weights have not been fetched")
    assert [it.rpartition(": ")[2] for it in host.verified()] == ["judge moved"]


def test_no_encoder_distance_is_believed_of_a_language_that_it_does_not_read(
    host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    host.make()
    reword(host, forged_chinese)
    assert [it.rpartition(": ")[2] for it in host.verified()] == ["judge moved"]
    monkeypatch.setenv("REFUSAL_DRIFT_CACHE", str(tmp_path))
    assert [it.rpartition(": ")[2] for it in host.verified()] == ["judge moved"]


def test_a_scorer_whose_hash_is_not_that_of_its_parts_is_named(host: Host) -> None:
    host.make()
    _, words = host.nights()[-1]
    for judge in ({"rules": "0" * 64}, {"held": "no"}):
        sealed = words[-1] | {"judge": words[-1]["judge"] | judge}
        reseal(host.folder, words[-1]["seq"], sealed)
        assert host.verified()[0].startswith("chain: ")


@pytest.mark.parametrize("how", ["inserted", "reordered"])
def test_answers_stand_once_and_in_order(host: Host, how: str) -> None:
    host.make()
    store, (body, _) = Store(host.folder), host.nights()[-1]
    lines = store.transcript(body["run"]).read_bytes().splitlines(keepends=True)
    lines = [*lines, lines[-1]] if how == "inserted" else [*lines[1:2], lines[0], *lines[2:]]
    store.transcript(body["run"]).write_bytes(b"".join(lines))
    reseal(store.folder, body["seq"], body | {"transcript": sha256_hex(b"".join(lines))})
    assert host.verified()[0].endswith(how)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"cadence": "laboratory"}, "cadence"),
        ({"truth_sha256": "0" * 64}, "truth_sha256"),
        ({"seeds": {"steady": "per answer", "subject": "per answer"}}, "seeds.steady"),
    ],
)
def test_how_nights_are_made_follows_from_the_registration(
    host: Host, change: dict[str, Any], field: str
) -> None:
    host.make()
    body, _ = host.nights()[-1]
    reseal(host.folder, body["seq"], body | change)
    found = verify_record(host.folder, root=host.project)
    assert field in found.problems[0].detail


def test_scores_that_were_taken_away_are_missed_once_a_night_follows(host: Host) -> None:
    host.make()
    host.clock.advance(days=1)
    host.make()
    chain = [json.loads(raw) for raw in (host.folder / "chain.jsonl").read_bytes().splitlines()]
    at = next(number for number, line in enumerate(chain) if line["kind"] == "scores")
    gone = chain.pop(at)
    Store(host.folder).labels(judge_folder(gone["judge"]), gone["run"]).unlink()
    lines = [line | {"seq": seq} for seq, line in enumerate(chain)]
    (host.folder / "chain.jsonl").write_bytes(b"".join(canonical_json(x) + b"\n" for x in lines))
    reseal(host.folder, 0, lines[0])
    assert [it.rpartition(": ")[2] for it in host.verified()] == ["deleted"]


def check(host: Host, *, over: bool = False) -> None:
    """Seal a link check that is switched off: every address is unchecked, and says so."""
    store, ledger = Store(host.folder), Ledger(host.folder)
    body, words = host.nights()[-1]
    urls = cited(store, body, words[-1])
    how = {"web": nullcontext({}), "clock": host.clock, "over": over}
    check_citations(store, ledger, body, urls, Limits(enabled=False), **how)


def citing(request: Request) -> Reply:
    return completion(f"See https://{len(user_turns(request)[0])}.example/x.")


def citations(host: Host) -> tuple[dict[str, Any], Path]:
    line = [it.body for it in Ledger(host.folder).forwards() if it.kind == "citations"][-1]
    return line, Store(host.folder).labels(judge_folder(line["judge"]), line["run"])


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows[:-1],
        lambda rows: [*rows, rows[-1]],
        lambda rows: [rows[0] | {"url": "https://invented.example/"}, *rows[1:]],
        lambda rows: [rows[0] | {"found": "wonderful"}, *rows[1:]],
        lambda rows: [{"found": "dead"}, *rows[1:]],
        lambda rows: rows[::-1],
    ],
)
def test_a_link_check_is_of_the_addresses_of_its_night(
    host: Host, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]
) -> None:
    host.make(citing)
    check(host)
    assert host.verified() == []
    line, path = citations(host)
    assert len(read_rows(path)) > 5
    path.write_bytes(b"".join(map(dump_line, change(read_rows(path)))))
    reseal(host.folder, line["seq"], line | {"citations": sha256_hex(path.read_bytes())})
    assert host.verified()[0].startswith("nights: ")


def test_a_link_check_that_was_cut_off_is_ended_on_another_day_without_a_request(
    host: Host,
) -> None:
    host.make(citing)
    body, words = host.nights()[-1]
    store = Store(host.folder)
    urls = cited(store, body, words[-1])
    path = open_citations(store, body)
    kept = {"url": urls[0], "found": "resolvable", "http": 200, "hops": 0, "attempts": 1}
    append_rows(path, [kept])
    path.write_bytes(path.read_bytes() + b'{"url": "https://')
    host.clock.advance(days=1)
    rules = host.project / "config" / "board.toml"
    rules.write_text(rules.read_text().replace("enabled = true", "enabled = false"))
    outcome = host.night(citing, citations=True, models=["steady"])
    assert outcome.sealed and not path.exists()
    first = next(it.body for it in Ledger(host.folder).forwards() if it.kind == "citations")
    rows = read_rows(store.labels(judge_folder(first["judge"]), body["run"]))
    found = Counter(row["found"] for row in rows)
    assert first["run"] == body["run"] and found["resolvable"] == 1
    assert found["unchecked"] == len(urls) - 1 and host.verified() == []


def test_what_another_scorer_read_can_be_read_again_by_the_first(host: Host) -> None:
    host.make()
    host.clock.advance(days=1)
    host.make()
    path = host.project / "config" / "board.toml"
    text, made = path.read_text(), record(host.project, host.clock)
    other = text.replace("rewrite = 0.9", "rewrite = 0.7")
    assert other != text
    for now in (other, text, text):
        path.write_text(now)
        with made.opened():
            again = made.rescore_nights()
    assert again == [] and [len(words) for _, words in host.nights()] == [3, 3]
    first, second, third = host.nights()[-1][1]
    assert first["judge"] == third["judge"] != second["judge"]
    assert first["scores"] == third["scores"] and host.verified() == []


def test_a_scorer_without_its_encoder_does_not_take_back_what_it_said_with_it(
    host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    host.make()
    monkeypatch.setenv("REFUSAL_DRIFT_CACHE", str(tmp_path))
    made = record(host.project, host.clock)
    with made.opened():
        assert made.rescore_nights() == []


def test_scores_of_another_encoder_are_derived_but_for_its_distances(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.make()
    monkeypatch.setattr("drift.judging.encoder.version", lambda package: "99.0")
    found = verify_record(host.folder, root=host.project)
    assert (found.problems, found.assurance) == ([], "partial")
    assert found.labels_not_rederivable == 2 * 32
    reword(host, lambda row: row.update(opening="i can't help with"))
    assert host.verified()[0].endswith("judge moved")
