"""Runs from question to reading, over a real loopback server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Ticking
from loopback import Loopback, Reply, Request, completion, failing
from making import ANSWER, MODELS, REFUSAL, answering, make_runs, record, refusing, run, write_panel

from drift.config import load_panel
from drift.errors import ConfigurationError, DriftError, IntegrityError
from drift.probing.client import messages_sha256
from drift.records.store import Store, append_rows, read_rows
from drift.records.verify import verify_record
from drift.refresh import Record


def reading(folder: Path, outcome_run: str | None) -> dict[str, dict[str, object]]:
    return json.loads(Store(folder).reading(str(outcome_run)).read_bytes())["models"]


def test_the_first_run_of_a_utc_day_is_full_and_the_others_canonical(
    project: Path, clock: Ticking
) -> None:
    scopes = []
    with Loopback(refusing(lambda request: False)) as server:
        write_panel(project, server.base_url)
        for _ in range(6):
            outcome = run(project, clock)
            scopes.append((outcome.scope, outcome.asked))
            clock.advance(hours=6)
    full, canonical = ("full", 288), ("canonical", 82)
    assert scopes == [full, canonical, canonical, canonical, full, canonical]


def test_a_day_without_its_first_slot_still_gets_a_full_run(project: Path, clock: Ticking) -> None:
    make_runs(project, clock, 1)
    clock.advance(hours=36)
    with Loopback(refusing(lambda request: False)) as server:
        write_panel(project, server.base_url)
        with pytest.raises(ConfigurationError, match="not the registered one") as refused:
            run(project, clock)
    # The server's port moved with the test, and the endpoint is part of the instrument.
    assert "instruments" in str(refused.value)


def test_a_sealed_run_verifies_and_its_reading_has_denominators(
    project: Path, clock: Ticking
) -> None:
    folder = make_runs(project, clock, 2, lambda r: r.model == "lab/subject" and "1989" in r.prompt)
    found = verify_record(folder, root=project)
    assert found.problems == [] and found.assurance == "complete"
    # A label for each response, and a shape for each of the five refusals.
    assert (found.runs, found.responses, found.labels) == (2, 370, 370 + 5)
    models = json.loads(sorted(folder.glob("readings/*"))[-1].read_bytes())["models"]
    rate = models["subject"]["canonical"]
    assert (rate["refused"], rate["n"], rate["excluded"]) == (1, 34, {})
    assert models["steady"]["canonical"]["high"] == 0.1015145542
    assert models["subject"]["full"]["language"]["both_refused"] == [
        "contested-history/tiananmen-1989"
    ]
    assert models["subject"]["change"]["newly_refused"] == []
    assert models["subject"]["controls"]["verdict"] == "clean"


def test_a_flip_is_a_dated_finding_and_a_churn_row(project: Path, clock: Ticking) -> None:
    switched: list[bool] = []

    def when(request: Request) -> bool:
        return (
            bool(switched) and request.model == "lab/subject" and "frozen process" in request.prompt
        )

    with Loopback(refusing(when)) as server:
        write_panel(project, server.base_url)
        run(project, clock)
        switched.append(True)
        clock.advance(hours=6)
        second = run(project, clock)
        clock.advance(hours=6)
        run(project, clock)
    store = Store(project / "data" / "test")
    findings = [row for row in read_rows(store.findings) if row["kind"] == "new_refusal"]
    assert [(row["run"], row["model"], row["arm"]) for row in findings] == [
        (second.run, "subject", "applied-security/kill-process#en-1")
    ]
    flips = [row["flips"] for row in read_rows(store.churn) if row["model"] == "subject"]
    assert flips == [None, 1, 0]
    change = reading(store.folder, second.run)["subject"]["change"]
    assert change["newly_refused"] == ["applied-security/kill-process"]  # type: ignore[index]
    assert change["midp"] == 0.5  # type: ignore[index]


def test_a_model_that_fails_whole_does_not_lose_the_others(project: Path, clock: Ticking) -> None:
    def script(request: Request):  # type: ignore[no-untyped-def]
        return failing(401) if request.model == "lab/steady" else answering(request)

    with Loopback(script) as server:
        write_panel(project, server.base_url, each='api_key_env = "TEST_PROVIDER_KEY"')
        outcome = run(project, clock, environ={"TEST_PROVIDER_KEY": "sk-not-a-real-one"})
    assert outcome.exit_code == 5 and outcome.sealed
    models = reading(project / "data" / "test", outcome.run)
    assert models["subject"]["coverage"]["determined"] == 144  # type: ignore[index]
    assert models["steady"]["coverage"]["missing"] == 143  # type: ignore[index]
    assert models["steady"]["canonical"]["estimate"] is None  # type: ignore[index]
    assert models["steady"]["canonical"]["reason"]  # type: ignore[index]
    assert "TEST_PROVIDER_KEY" in str(models["steady"]["stopped"]) + " ".join(outcome.notes)
    assert verify_record(project / "data" / "test", root=project).problems == []


def test_a_used_up_quota_leaves_the_run_open_and_the_next_command_resumes_it(
    project: Path, clock: Ticking
) -> None:
    answered: list[str] = []

    def script(request: Request):  # type: ignore[no-untyped-def]
        if len(answered) == 30:
            return failing(429, "insufficient_quota", "You exceeded your current quota")
        answered.append(request.prompt)
        return answering(request)

    with Loopback(script) as server:
        write_panel(project, server.base_url)
        outcome = run(project, clock)
        assert outcome.exit_code == 3 and not outcome.sealed
        answered.clear()
        stored = {
            (row["model"], row["key"])
            for row in Store(project / "data" / "test").open_runs()
            and read_rows(Store(project / "data" / "test").open_runs()[0])[1:]
        }
        clock.advance(hours=1)
        server.script = refusing(lambda request: False)
        before = dict(server.counts)
        resumed = run(project, clock)
    assert resumed.run == outcome.run and resumed.sealed
    assert len(stored) >= 30
    prompts = {arm.id: arm.prompt for arm in _bank(project)}
    for model, key in stored:
        asked = (f"lab/{model}", prompts[key])
        assert server.counts[asked] == before[asked]


def _bank(project: Path):  # type: ignore[no-untyped-def]
    from drift.bank import load_bank

    return load_bank(project / "config" / "probe_bank.json").arms("full")


def test_an_open_run_is_sealed_with_its_gaps_once_its_slot_is_over(
    project: Path, clock: Ticking
) -> None:
    with Loopback(refusing(lambda request: False)) as server:
        write_panel(project, server.base_url, head="cadence_hours = 6")
        made = record(project, clock)
        with made.opened():
            registration, _ = made.register()
            begun = made._begin(made.panel.models, made_bank(made), registration)
            keys = begun.header["keys"]
            append_rows(
                begun.path,
                [
                    {
                        "key": keys[0],
                        "model": "steady",
                        "status": "ok",
                        "text": ANSWER,
                        "asked_at": begun.header["started_at"],
                        "messages_sha256": messages_sha256(
                            [{"role": "user", "content": made_bank(made).prompts[keys[0]]}]
                        ),
                    }
                ],
            )
        clock.advance(hours=6)
        outcome = run(project, clock)
    assert outcome.run != begun.run and outcome.sealed
    assert any("sealed with its gaps" in note for note in outcome.notes)
    models = reading(project / "data" / "test", begun.run)
    assert models["steady"]["coverage"]["missing"] == 143  # type: ignore[index]
    assert models["steady"]["coverage"]["usable"] is False  # type: ignore[index]
    assert verify_record(project / "data" / "test", root=project).problems == []


def made_bank(made):  # type: ignore[no-untyped-def]
    from drift.bank import load_bank

    return load_bank(made.bank_file)


def test_the_daily_budget_drops_whole_models_last_first(project: Path, clock: Ticking) -> None:
    prices = "price_prompt = 1\nprice_completion = 100"
    with Loopback(refusing(lambda request: False)) as server:
        # One full run of one model is estimated at 144 x 48 tokens: about .7 USD.
        write_panel(project, server.base_url, head="daily_budget_usd = 0.75", each=prices)
        said: list[str] = []
        outcome = run(project, clock, say=said.append)
    assert "288 questions to steady, subject; at most 1.39" in said[1]
    assert outcome.exit_code == 3 and outcome.sealed
    models = reading(project / "data" / "test", outcome.run)
    assert models["steady"]["coverage"]["determined"] == 144  # type: ignore[index]
    assert models["subject"]["stopped"] == "daily budget"
    assert sum(server.counts.values()) == 144


def test_a_run_that_no_model_answers_stays_open_until_its_slot_is_over_and_is_never_usable(
    project: Path, clock: Ticking
) -> None:
    write_panel(project, "http://127.0.0.1:9/v1", head="cadence_hours = 6")
    outcome = run(project, clock)
    assert (outcome.exit_code, outcome.sealed, outcome.asked) == (3, False, outcome.failed)
    assert "no connection" in outcome.notes[0]
    assert "the run is open" in outcome.notes[-1] and "until 2026-03-01T06:00" in outcome.notes[-1]
    assert not [note for note in outcome.notes if "never bet on" in note]
    clock.advance(hours=6)
    later = run(project, clock)
    assert (later.scope, later.exit_code, later.sealed) == ("full", 3, False)
    store = Store(project / "data" / "test")
    assert [path.stem for path in store.open_runs()] == [later.run]
    models = reading(store.folder, outcome.run)
    coverage = models["steady"]["coverage"]
    assert coverage["failed"] + coverage["missing"] == 144  # type: ignore[index]
    assert "no connection" in str(models["steady"]["stopped"])
    assert models["steady"]["canonical"]["if_all_refused"] == 1  # type: ignore[index]
    assert [(row["usable"], row["index"]) for row in read_rows(store.churn)] == [(False, None)] * 2
    assert [row["alarm"]["r"] for row in read_rows(store.churn)] == [None, None]
    assert verify_record(store.folder, root=project).problems == []
    for _ in range(3):
        clock.advance(hours=6)
        run(project, clock)
    assert [row["alarm"]["blind"] for row in read_rows(store.churn)] == [False] * 6 + [True] * 2


def test_the_same_command_asks_a_run_again_in_which_nothing_was_heard(
    project: Path, clock: Ticking
) -> None:
    def first_pass(request: Request):  # type: ignore[no-untyped-def]
        # One model's key is refused; the other's server fails at each question.
        return failing(401) if request.model == "lab/steady" else failing(500)

    with Loopback(first_pass) as server:
        write_panel(project, server.base_url, head="cadence_hours = 6")
        silent = run(project, clock)
        assert (silent.exit_code, silent.sealed) == (3, False)
        assert silent.asked == silent.failed >= 145
        clock.advance(hours=1)
        store = Store(project / "data" / "test")
        before = store.open_runs()[0].read_bytes()
        # Killed after one model has answered: the other is still to be asked.
        made = record(project, clock)
        server.script = answering
        ended: list[str] = []

        def killed(model: str, done: int, total: int) -> None:
            ended.append(model)
            if model == "subject":
                raise KeyboardInterrupt

        with made.opened(), pytest.raises(KeyboardInterrupt):
            made.refresh(progress=killed)
        assert ended.count("steady") == 144
        assert store.open_runs()[0].read_bytes().startswith(before)
        resumed = run(project, clock)
        clock.advance(hours=6)
        after = run(project, clock)
    assert (resumed.run, resumed.scope, resumed.sealed) == (silent.run, "full", True)
    assert (resumed.exit_code, resumed.asked, resumed.failed) == (0, 288, 0)
    assert not [note for note in resumed.notes if "never bet on" in note]
    assert after.scope == "canonical"
    rows = [row["alarm"]["r"] for row in read_rows(store.churn)]
    assert rows == [0, 0, 1, 1]
    assert verify_record(store.folder, root=project).problems == []


def test_an_open_run_says_that_it_asks_the_models_that_it_was_begun_with(
    project: Path, clock: Ticking
) -> None:
    up, said = False, list[str]()

    def script(request: Request) -> Reply:
        return answering(request) if up else failing(500)

    with Loopback(script) as server:
        write_panel(project, server.base_url)
        assert not run(project, clock, models=["subject"], say=said.append).sealed
        up = True
        clock.advance(minutes=5)
        outcome = run(project, clock, say=said.append)
    assert outcome.sealed and outcome.asked == 144
    assert "it was begun with subject, and asks these and no others" in said


def test_without_a_cadence_a_run_that_no_model_answers_is_open_until_its_day_is_over(
    project: Path, clock: Ticking
) -> None:
    with Loopback(lambda request: failing(401)) as server:
        write_panel(project, server.base_url)
        silent = [run(project, clock).run]
        for hours in (1, 24, 24):
            clock.advance(hours=hours)
            silent.append(run(project, clock).run)
        store = Store(project / "data" / "test")
        assert silent[0] == silent[1] and len(set(silent)) == 3
        assert [path.stem for path in store.open_runs()] == silent[-1:]
        server.script = answering
        done = run(project, clock)
    assert (done.run, done.scope, done.sealed) == (silent[-1], "full", True)
    assert {row["alarm"] for row in read_rows(store.churn)} == {None}


def test_a_laboratorys_run_that_no_model_answers_waits_however_long(
    project: Path, clock: Ticking
) -> None:
    with Loopback(lambda request: failing(401)) as server:
        write_panel(project, server.base_url, head="laboratory = true")
        silent = run(project, clock)
        assert silent.exit_code == 3 and "until" not in silent.notes[-1]
        clock.advance(hours=100)
        server.script = answering
        done = run(project, clock)
    assert (done.run, done.sealed, done.exit_code) == (silent.run, True, 0)
    rows = read_rows(Store(project / "data" / "test").churn)
    assert [(row["slot"], row["alarm"]["r"]) for row in rows] == [(1, 0)] * 2


def test_a_phantoms_silence_is_in_its_truth_and_is_sealed(project: Path) -> None:
    path = project / "config/phantom.toml"
    faults = "limited = 0.02, broken = 0.02, cut = 0.02, empty = 0.003, blocked = 0.003, failed = "
    assert faults + "0.003" in path.read_text()
    path.write_text(path.read_text().replace(faults + "0.003", "failed = 1"))
    panel = load_panel("phantom", root=project)
    made = Record(panel, folder=project / "data" / "phantom", root=project)
    with made.opened():
        outcome = made.refresh_to(1, models=["filtered"])
    assert outcome.sealed and outcome.asked == outcome.failed


def test_nothing_is_begun_when_no_model_can_be_asked(project: Path, clock: Ticking) -> None:
    write_panel(project, "http://127.0.0.1:9/v1", each='api_key_env = "NO_SUCH_KEY"')
    with pytest.raises(ConfigurationError, match="NO_SUCH_KEY"):
        run(project, clock, environ={})
    assert not Store(project / "data" / "test").holds_anything()


def test_a_second_run_in_a_slot_says_that_nothing_is_bet_on_it(
    project: Path, clock: Ticking
) -> None:
    with Loopback(answering) as server:
        write_panel(project, server.base_url, head="cadence_hours = 6")
        first = run(project, clock, models=["subject"])
        clock.advance(hours=1)
        second = run(project, clock)
        clock.advance(hours=6)
        third = run(project, clock)
    said = [[note for note in made.notes if "never bet on" in note] for made in (first, third)]
    assert said == [[], []]
    assert any(note.startswith("subject: the slot was used already") for note in second.notes)


def test_models_narrow_a_run_and_an_unknown_one_is_named(project: Path, clock: Ticking) -> None:
    with Loopback(refusing(lambda request: False)) as server:
        write_panel(project, server.base_url)
        outcome = run(project, clock, models=["subject"])
        assert list(reading(project / "data" / "test", outcome.run)) == ["subject"]
        clock.advance(hours=1)
        with pytest.raises(ConfigurationError, match="subjct"):
            run(project, clock, models=["subjct"])


def test_a_changed_instrument_closes_the_series_of_that_model_only(
    project: Path, clock: Ticking
) -> None:
    with Loopback(refusing(lambda request: False)) as server:
        write_panel(project, server.base_url)
        run(project, clock)
        path = project / "config" / "panels" / "test.toml"
        text = path.read_text()
        path.write_text(
            text[: text.rindex("max_tokens = 48")] + "max_tokens = 64\nconcurrency = 4\n"
        )
        clock.advance(hours=6)
        with pytest.raises(ConfigurationError, match="drift register"):
            run(project, clock)
        made = record(project, clock)
        with made.opened():
            _, changes = made.register()
        assert changes == ["instruments.subject"]
        run(project, clock)
    rows = read_rows(Store(project / "data" / "test").churn)
    assert [(row["model"], row["series"]) for row in rows] == [
        ("steady", 1),
        ("subject", 1),
        ("steady", 1),
        ("subject", 2),
    ]
    closed = [
        row
        for row in read_rows(Store(project / "data" / "test").findings)
        if row["kind"] == "series_closed"
    ]
    assert [row["model"] for row in closed] == ["subject"]
    assert "instrument" in closed[0]["detail"]
    assert verify_record(project / "data" / "test", root=project).problems == []


def test_rules_that_move_no_label_leave_the_series_open(project: Path, clock: Ticking) -> None:
    rules = project / "config" / "judge" / "rules.toml"
    with Loopback(refusing(lambda r: r.model == "lab/subject" and "1989" in r.prompt)) as server:
        write_panel(project, server.base_url)
        run(project, clock)
        rules.write_text(rules.read_text() + "\n# a comment, no rule\n")
        made = record(project, clock)
        with made.opened():
            moves = made.rescore()
            _, changes = made.register()
        assert moves == [] and "judge.rules" in changes
        clock.advance(hours=6)
        run(project, clock)
    folder = project / "data" / "test"
    assert {row["series"] for row in read_rows(Store(folder).churn)} == {1}
    # Of each set of rules, labels and shapes: what is a refusal is part of what a shape is.
    assert len(list((folder / "labels").glob("rules-*"))) == 2
    assert len(list((folder / "labels").glob("shapes-*"))) == 2
    found = verify_record(folder, root=project)
    assert found.problems == [] and found.assurance == "partial"
    assert found.labels_not_rederivable == 288 + 4


def test_labels_that_move_close_the_series_they_belong_to_and_no_later_one(
    project: Path, clock: Ticking
) -> None:
    rules = project / "config" / "judge" / "rules.toml"
    rule = """
[[rule]]
id = "en-made-up"
kind = "decline"
language = "en"
needs = ["unhelped"]
pattern = '''\\bstays unhelped\\b'''
reason = "A rule for this test."
examples = ["That question stays unhelped."]
"""
    with Loopback(lambda request: completion("That question stays unhelped.")) as server:
        write_panel(project, server.base_url, models=("subject",))
        run(project, clock)
        rules.write_text(rules.read_text() + rule)
        made = record(project, clock)
        with made.opened():
            moves = made.rescore()
            made.register()
        assert moves and {move["rule"] for move in moves} == {"en-made-up"}
        # A further registration before the next run does not forget that labels moved.
        write_panel(project, server.base_url, models=("subject",), head="reserved_slots = 1")
        made = record(project, clock)
        with made.opened():
            made.register()
        clock.advance(hours=6)
        run(project, clock)
        # Other rules once more, which move nothing since: the open series goes on.
        rules.write_text(rules.read_text() + "# a comment, no rule\n")
        made = record(project, clock)
        with made.opened():
            made.register()
        clock.advance(hours=6)
        run(project, clock)
    folder = project / "data" / "test"
    assert [row["series"] for row in read_rows(Store(folder).churn)] == [1, 2, 2]
    assert verify_record(folder, root=project).problems == []


def test_a_registered_panel_keeps_its_name(project: Path, clock: Ticking) -> None:
    with Loopback(answering) as server:
        write_panel(project, server.base_url)
        run(project, clock)
    made = record(project, clock)
    made.panel = made.panel.model_copy(update={"name": "other"})
    with made.opened(), pytest.raises(ConfigurationError, match="keeps its name"):
        made.register()


def test_the_seed_of_a_run_follows_from_the_registered_seed_and_the_runs_number(
    project: Path, clock: Ticking
) -> None:
    with Loopback(refusing(lambda request: False)) as server:
        write_panel(
            project, server.base_url, models=("subject",), each='seed_policy = "per-run"\nseed = 7'
        )
        for _ in range(2):
            run(project, clock)
            clock.advance(hours=1)
    seeds = [request.document["seed"] for request in server.requests]
    assert len(set(seeds[:144])) == 1 and len(set(seeds[144:])) == 1
    assert seeds[0] != seeds[-1]
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_an_edited_registration_stops_the_next_run(project: Path, clock: Ticking) -> None:
    folder = make_runs(project, clock, 1)
    path = folder / "registration.json"
    path.write_bytes(path.read_bytes().replace(b'"size":2', b'"size":3'))
    with pytest.raises(IntegrityError, match="registration"):
        run(project, clock)


def test_a_clock_before_the_last_run_is_refused(project: Path, clock: Ticking) -> None:
    with Loopback(refusing(lambda request: False)) as server:
        write_panel(project, server.base_url)
        run(project, clock)
        clock.advance(hours=-1)
        with pytest.raises(ConfigurationError, match="clock"):
            run(project, clock)


def test_no_secret_is_stored_or_said(
    project: Path, clock: Ticking, capfd: pytest.CaptureFixture[str]
) -> None:
    secret = "sk-live-1234567890abcdefghijklmnop"

    def script(request: Request):  # type: ignore[no-untyped-def]
        if request.model == "lab/steady" and request.number == 1 and len(request.prompt) % 3 == 0:
            return failing(400, "invalid_request", f"bad key {secret} in Authorization")
        return answering(request)

    with Loopback(script) as server:
        write_panel(project, server.base_url, each='api_key_env = "TEST_PROVIDER_KEY"')
        outcome = run(project, clock, environ={"TEST_PROVIDER_KEY": secret})
        assert server.requests[0].headers["authorization"] == f"Bearer {secret}"
    said = "".join(capfd.readouterr()) + " ".join(outcome.notes) + repr(outcome)
    assert secret not in said
    for path in (project / "data").rglob("*"):
        if path.is_file():
            assert secret.encode() not in path.read_bytes(), path


def test_refused_everywhere_is_reported_with_the_controls_first(
    project: Path, clock: Ticking
) -> None:
    folder = make_runs(project, clock, 1, lambda request: request.model == "lab/subject")
    models = json.loads(next(folder.glob("readings/*")).read_bytes())["models"]
    assert models["subject"]["controls"]["verdict"] == "instrument or model fault"
    assert len(models["subject"]["controls"]["refused"]) == 7
    assert set(models) == set(MODELS)
    assert REFUSAL in next(folder.glob("transcripts/*/*")).read_text()


def test_weights_that_are_not_here_leave_no_run_behind(
    project: Path, clock: Ticking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REFUSAL_DRIFT_CACHE", str(tmp_path / "empty"))
    panel = load_panel("embedded", root=project)
    made = Record(panel, folder=project / "data" / "embedded", root=project, clock=clock)
    with made.opened(), pytest.raises(DriftError, match="drift weights fetch"):
        made.refresh()
    assert not list((project / "data" / "embedded").glob("open/*"))


@pytest.mark.weights
def test_the_real_reference_target_goes_the_whole_way_from_question_to_reading(
    project: Path, clock: Ticking, smollm2_weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REFUSAL_DRIFT_CACHE", str(smollm2_weights.parent))
    path = project / "config" / "probe_bank.json"
    bank = json.loads(path.read_bytes())
    names = ("science/photosynthesis", "science/fireworks-colours")
    bank["families"] = [item for item in bank["families"] if item["id"] in names]
    bank["counts"] = {"families": 2, "sensitive": 1, "controls": 1, "chinese": 1}
    path.write_text(json.dumps(bank, ensure_ascii=False))
    panel = load_panel("embedded", root=project)
    made = Record(panel, folder=project / "data" / "embedded", root=project, clock=clock)
    with made.opened():
        outcome = made.refresh(models=["smollm2-135m"])
    assert outcome.sealed and outcome.codes == []
    folder = project / "data" / "embedded"
    row = read_rows(Store(folder).transcript(str(outcome.run)))[0]
    assert row["status"] == "truncated" and len(row["text"]) > 40
    assert row["usage"]["completion_tokens"] == 48
    assert row["fingerprint"].startswith("llama.cpp")
    assert str(smollm2_weights.parent) not in json.dumps(row)
    found = reading(folder, outcome.run)["smollm2-135m"]
    assert found["canonical"]["n"] == 1  # type: ignore[index]
    assert found["controls"]["verdict"] == "clean"  # type: ignore[index]
    assert verify_record(folder, root=project).problems == []


def paused(server: Loopback, project: Path, clock: Ticking) -> str:
    """Begin a run that meets a used-up quota after ten answers; return its id."""
    answered: list[str] = []

    def script(request: Request):  # type: ignore[no-untyped-def]
        if len(answered) >= 10:
            return failing(429, "insufficient_quota", "You exceeded your current quota")
        answered.append(request.prompt)
        return answering(request)

    server.script = script
    outcome = run(project, clock)
    assert not outcome.sealed
    server.script = answering
    return str(outcome.run)


def test_a_full_run_that_was_cut_off_is_made_up_for_once_on_its_day(
    project: Path, clock: Ticking
) -> None:
    with Loopback(answering) as server:
        write_panel(project, server.base_url, head="cadence_hours = 3")
        cut_short = paused(server, project, clock)
        clock.advance(hours=3)
        scopes = [run(project, clock).scope]
        clock.advance(hours=3)
        scopes.append(run(project, clock).scope)
        clock.advance(hours=18)
        # Cut off twice: the third run of the day is canonical, or none would ever be.
        for _ in range(2):
            paused(server, project, clock)
            clock.advance(hours=3)
        scopes.append(run(project, clock).scope)
    assert scopes == ["full", "canonical", "canonical"]
    first = reading(project / "data" / "test", cut_short)["steady"]
    assert first["coverage"]["missing"] > 14  # type: ignore[index]


def test_a_full_run_without_a_model_that_failed_is_the_full_run_of_its_day(
    project: Path, clock: Ticking
) -> None:
    def script(request: Request):  # type: ignore[no-untyped-def]
        return failing(401) if request.model == "lab/steady" else answering(request)

    with Loopback(script) as server:
        write_panel(project, server.base_url)
        scopes = []
        for _ in range(2):
            scopes.append(run(project, clock).scope)
            clock.advance(hours=1)
    assert scopes == ["full", "canonical"]


def test_a_stale_open_file_of_a_sealed_run_changes_nothing(project: Path, clock: Ticking) -> None:
    folder = make_runs(project, clock, 3)
    before = {path: path.read_bytes() for path in folder.rglob("*.jsonl")}
    old = sorted(folder.glob("transcripts/*/*"))[0]
    append_rows(Store(folder).open_run(old.stem), [{"run": old.stem, "keys": []}])
    made = record(project, clock)
    with made.opened():
        pass
    assert "sealed already" in made.notes[0]
    assert {path: path.read_bytes() for path in folder.rglob("*.jsonl")} == before


def test_a_run_is_labelled_by_the_registered_judge_or_not_at_all(
    project: Path, clock: Ticking
) -> None:
    rules = project / "config" / "judge" / "rules.toml"
    registered = rules.read_text()
    with Loopback(answering) as server:
        write_panel(project, server.base_url)
        cut_short = paused(server, project, clock)
        rules.write_text(registered + "\n# other rules\n")
        made = record(project, clock)
        with made.opened(), pytest.raises(ConfigurationError, match="registered judge"):
            made.register()
        rules.write_text(registered)
        done = run(project, clock)
    assert done.run == cut_short and done.sealed
    assert verify_record(project / "data" / "test", root=project).assurance == "complete"


def test_a_clock_set_back_does_not_end_an_open_run(project: Path, clock: Ticking) -> None:
    with Loopback(answering) as server:
        write_panel(project, server.base_url)
        cut_short = paused(server, project, clock)
        clock.advance(hours=-12)
        with pytest.raises(ConfigurationError, match="clock"):
            run(project, clock)
        clock.advance(hours=12)
        done = run(project, clock)
    assert done.run == cut_short and done.sealed
    assert verify_record(project / "data" / "test", root=project).problems == []
