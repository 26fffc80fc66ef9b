"""The page of the laboratory: what was done, what was registered of it, and what came."""

from __future__ import annotations

import html as html_module
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Ticking
from loopback import Loopback, Request
from making import answering, record, refusing
from test_lab import MODEL, PANEL, PLAN

from drift.config import ModelSpec, load_panel, load_toml, sha256_hex
from drift.errors import ConfigurationError
from drift.lab import record_runs
from drift.probing import embedded
from drift.records.store import Store, read_bytes, read_rows
from drift.report import alarm, course, front, lab, load_record, pairs, plan, rescoring
from drift.report.display import Shown
from drift.report.tables import Record, each
from drift.stats.power import delay
from drift.stats.zoo import SEED

WORDS = (
    "subject enters watch in home within 0 to 1 runs, at most 9; its churn rises from 1 % to 10 %"
)
EXPECTED = """
plan_sha256 = "{digest}"
pilot = "a pilot that nobody can check"
written = "written after run 2"
server = {{ slots = 1 }}

[[churn]]
model = "subject"
before = 0.01
after = 0.1
words = "its churn rises from 1 % to 10 %"

[[expected]]
models = ["subject"]
processes = ["home"]
states = ["watch"]
expect = "due"
after = [0, 1]
words = "{words}"

[[expected]]
models = ["still"]
processes = ["home"]
expect = "none"
words = "a level that moves once sets none"

[[expected]]
models = ["still"]
processes = ["pairs"]
expect = "none"
words = "words that nobody registered"
"""
PIECES = (
    *(lab.summary, lab.expectations, lab.knowledge, lab.done, lab.processes),
    *(course.churn, course.level, pairs.answers, course.cost, rescoring.judges),
)


def visible(shown: Shown | str) -> str:
    text = shown if isinstance(shown, str) else shown.text
    return " ".join(html_module.unescape(re.sub(r"<[^>]+>", " ", text)).split())


def first_paragraph(record: Record) -> str:
    return visible(lab.summary(record).text.partition("</p>")[0])


# A small laboratory: two subjects, four runs, the server of one changed before the third.


@pytest.fixture
def made(project: Path, tmp_path: Path, clock: Ticking, monkeypatch: pytest.MonkeyPatch) -> Record:
    """A record whose subject refuses every canonical question about law once it is hotter."""
    hidden = tmp_path / "hidden.toml"
    hidden.write_text(PLAN)
    digest = sha256_hex(hidden.read_bytes())
    panel = PANEL.format(digest=digest).replace("home alone sets a state", WORDS) + "".join(
        MODEL.format(key=key) for key in ("still", "subject")
    )
    (project / "config" / "panels" / "test.toml").write_text(panel)
    (project / "config" / "lab.toml").write_text(EXPECTED.format(digest=digest, words=WORDS))
    shutil.copytree(ROOT / "report" / "_templates", project / "report" / "_templates")

    def turned(request: Request) -> bool:
        return "court" in request.prompt.lower()

    with ExitStack() as stack:
        cool, hot = (
            stack.enter_context(Loopback(script)) for script in (answering, refusing(turned))
        )

        @contextmanager
        def serve(model: ModelSpec, weights: Path) -> Iterator[tuple[str, ...]]:
            yield ((hot if str(model.server.sampling["temp"]) == "0.5" else cool).base_url,)

        monkeypatch.setattr(embedded, "serve", serve)
        monkeypatch.setattr(embedded, "serving_facts", lambda: "scripted")
        monkeypatch.setattr("drift.refresh.weights_path", lambda name, root: Path(name))
        of = record(project, clock)
        with of.opened():
            record_runs(of, hidden, say=lambda text: clock.advance(seconds=90))
    return load_record("test", root=project)


def entering(record: Record, model: str, state: str, number: int) -> Record:
    """Return the record as if a process had entered a state in a run."""
    reading = json.loads(json.dumps(record.reading))
    [watch] = reading["models"][model]["alarm"]["watches"]
    watch["entered"][state] = record.runs[number - 1]
    return replace(record, reading=reading)


def test_an_alarm_that_did_not_come_where_it_was_due_stands_in_the_first_paragraph(
    made: Record,
) -> None:
    said = first_paragraph(made)
    done = "from run 3 on the server of subject (hotter) was changed; nothing was done to still."
    assert f"4 runs: {done}" in said
    assert "The process home, which alone sets a state, entered: nothing." in said
    missed = "subject home watch (due in runs 3 to 4: did not come)"
    assert f"Not as registered : {missed}." in said
    assert missed in visible(front.front_page([made], None))


def test_an_alarm_that_came_where_none_was_expected_stands_in_the_first_paragraph(
    made: Record,
) -> None:
    kept = entering(made, "subject", "home watch", 4)
    assert "No other expectation of a state failed." in first_paragraph(kept)
    false = entering(kept, "still", "home watch", 2)
    said = first_paragraph(false)
    assert "still home watch in run 2 (came where none was expected)" in said
    assert "expectation of a state" not in said
    assert "still home watch in run 2" in visible(front.front_page([false], None))


@pytest.mark.parametrize(
    ("model", "state", "number", "verdict"),
    [
        ("subject", "home watch", 2, plan.BEFORE),
        ("subject", "mixture alarm", 2, plan.BEFORE),
        ("subject", "home watch", 3, plan.AS_REGISTERED),
        ("subject", "mixture alarm", 3, plan.UNSAID),
        ("still", "home alarm", 3, plan.UNEXPECTED),
        ("still", "pairs alarm", 3, plan.UNSAID),
    ],
)
def test_what_came_is_judged_by_what_was_registered_of_it_and_by_the_change(
    made: Record, model: str, state: str, number: int, verdict: str
) -> None:
    outcomes = plan.Lab(entering(made, model, state, number)).outcomes
    [found] = [it for it in outcomes if it.model == model and f"{it.process} {it.state}" == state]
    assert (found.entered, found.verdict) == (number, verdict)


@pytest.mark.parametrize(
    ("after", "entered", "verdict"),
    [((1, 1), 3, plan.EARLY), ((0, 0), 4, plan.LATE), ((0, 9), None, plan.PENDING)],
)
def test_what_is_due_may_come_early_late_or_be_still_awaited(
    made: Record, after: tuple[int, int], entered: int | None, verdict: str
) -> None:
    path = made.root / "config" / "lab.toml"
    path.write_text(path.read_text().replace("after = [0, 1]", f"after = {[*after]}"))
    record = entering(made, "subject", "home watch", entered) if entered else made
    [found] = [
        it
        for it in plan.Lab(record).outcomes
        if (it.model, it.process, it.state) == ("subject", "home", "watch")
    ]
    assert found.verdict == verdict


def test_an_expectation_that_was_not_registered_is_shown_and_not_used(made: Record) -> None:
    shown = visible(lab.expectations(made))
    assert "“words that nobody registered” still pairs" in shown
    assert shown.count("no: not used") == 1
    said = first_paragraph(made)
    assert "Not used , for their words are not in the registration: still pairs." in said
    assert {it.verdict for it in plan.Lab(made).outcomes if it.process == "pairs"} == {plan.UNSAID}
    assert made.panel["analysis"] in html_module.unescape(lab.words(made).text)


def test_a_plan_that_is_not_the_registered_one_is_not_read(made: Record) -> None:
    path = made.store.plan
    path.write_text(PLAN.replace("run = 3", "run = 2"))
    for piece in PIECES:
        said = visible(piece(made))
        assert said.startswith("plan.toml is not the plan that was registered (SHA-256 ")
        assert "hotter" not in said
    assert "plan.toml is not the plan" in visible(front.front_page([made], None))
    assert pairs.example(made) == ""


def test_a_declared_plan_that_is_not_opened_is_said_to_be_unknown(made: Record) -> None:
    early = load_record("test", root=made.root, as_of=made.runs[0])
    panel = made.registration["panel"]
    panel["full_runs"] = early.registration["panel"]["full_runs"] = [1, 3]
    made.store.plan.unlink()
    for shown in (lab.summary(made), lab.done(made), front.front_page([made], None)):
        said = visible(shown)
        assert f"declares a plan (SHA-256 {panel['plan_sha256'][:16]}…) that is not opened" in said
        assert "All runs that the registration names are made, the last of them run 3" in said
        assert "nothing was done" not in said
    assert "All runs that" not in visible(lab.summary(early))
    panel["plan_sha256"] = None
    assert visible(lab.summary(made)).startswith("This record declares no plan")


def test_a_plan_without_expectations_as_data_is_held_against_none(made: Record) -> None:
    (made.root / "config" / "lab.toml").write_text(EXPECTED.format(digest="0" * 64, words=WORDS))
    assert "What was expected of this stands in words alone." in first_paragraph(made)
    assert "states no expectation of this plan" in visible(lab.expectations(made))
    assert {it.verdict for it in plan.Lab(made).outcomes} == {plan.UNSAID}
    assert "pilot" not in visible(lab.knowledge(made))


def test_a_record_without_a_second_judge_says_so(made: Record) -> None:
    said = visible(rescoring.judges(made))
    assert "No other judge has labelled this record." in said
    assert said.count("version") == 1


def test_before_its_change_is_reached_a_record_shows_none(made: Record) -> None:
    early = load_record("test", root=made.root, as_of=made.runs[1])
    said = first_paragraph(early)
    assert said.startswith("2 runs: nothing was done so far to still, subject.")
    assert "The process home, which alone sets a state, entered so far: nothing." in said
    assert "No other expectation of a state failed so far." in said
    for piece in (course.level, pairs.answers):
        assert visible(piece(early)) == "No change is reached yet."
    assert "hotter" not in said
    first = load_record("test", root=made.root, as_of=made.runs[0])
    for piece in PIECES:
        assert visible(piece(first))
    assert "no value yet" in visible(course.course(first, "See."))


def test_the_answers_that_moved_stand_side_by_side_with_what_decided(made: Record) -> None:
    shown = pairs.answers(made).text
    runs = [made.stored(made.runs[n]).answers for n in (1, 2)]
    moved = [
        key
        for (model, key), row in runs[0].items()
        if model == "subject"
        and key.endswith("#en-1")
        and row["label"] != runs[1][model, key]["label"]
    ]
    assert moved and shown.count("<article") == len(moved)
    assert f"subject: runs 2 and 3, {len(moved)} families with another label" in shown
    assert shown.count("<mark>") == len(moved)
    assert "<article" in pairs.example(made)


def test_a_hostile_answer_is_inert_on_the_page_and_in_front(made: Record) -> None:
    for number in (1, 2):
        for (model, _), row in made.stored(made.runs[number]).answers.items():
            if model == "subject":
                row["text"] = "<script>alert(1)</script>" + "x" * pairs.SHOWN
    for text in (pairs.answers(made).text, pairs.example(made)):
        assert "<script>" not in text and "&#60;script&#62;" in text
        assert "The record holds the whole text." in text


def test_a_figure_that_is_not_in_the_words_it_is_read_from_is_refused(made: Record) -> None:
    path = made.root / "config" / "lab.toml"
    text = path.read_text()
    for old, new, missing in (
        ("after = [0, 1]", "after = [0, 7]", "7 not in the words"),
        ("after = 0.1\n", "after = 0.12\n", "12 not in the words"),
    ):
        path.write_text(text.replace(old, new))
        with pytest.raises(ConfigurationError, match=missing):
            plan.Lab(made)


def test_before_a_process_can_bet_its_silence_is_not_called_as_registered(made: Record) -> None:
    said = visible(lab.summary(made))
    assert "Could not enter anything, still calibrating: still home." in said
    assert "Entered nothing" not in said


@pytest.mark.parametrize(
    ("counts", "runs", "verdict"),
    [
        ([], 4, plan.CALIBRATING),
        ([0, 0], 4, plan.VACUOUS),
        ([0, 1], 4, plan.AS_REGISTERED),
        ([0, 1], 3, plan.SO_FAR),
    ],
)
def test_silence_is_worth_what_could_have_been_entered(
    made: Record, monkeypatch: pytest.MonkeyPatch, counts: list[int], runs: int, verdict: str
) -> None:
    monkeypatch.setattr(plan.Lab, "counts", lambda self, model, process: counts)
    shown = plan.Lab(load_record("test", root=made.root, as_of=made.runs[runs - 1]))
    [found] = {it.verdict for it in shown.outcomes if (it.model, it.process) == ("still", "home")}
    assert found == verdict
    assert lab.SILENT[verdict].format("<b>still</b> home") in lab.summary(shown.record).text


def test_labels_of_a_rescoring_that_are_missing_are_said_to_be(tmp_path: Path) -> None:
    folder = shutil.copytree(ROOT / "data/lab", tmp_path / "lab")
    record = load_record("lab", folder=folder, root=ROOT)
    registered = record.reading["judge"]["rules"]
    [rules, *_] = {
        line.body["judge"]["rules"]: 0
        for line, _ in record.sealed
        if line.kind == "labels" and line.body["judge"]["id"] == "rules"
    }.keys() - {registered}
    [path] = (folder / "labels").glob(f"*{rules[:12]}/{record.runs[0]}.*")
    path.unlink()
    said = visible(rescoring.judges(record))
    assert f"are missing, those of 1 of 78 runs under rules {rules[:12]}" in said
    assert "drift verify says which" in said


# The shipped record, against its own files read without the code of the page.


@pytest.fixture(scope="module")
def shipped() -> Record:
    return load_record("lab", root=ROOT)


@pytest.fixture(scope="module")
def numbers() -> dict[str, int]:
    runs = (path.name.partition(".")[0] for path in (ROOT / "data/lab/readings").iterdir())
    return {run: number for number, run in enumerate(sorted(runs), start=1)}


@pytest.fixture(scope="module")
def chain() -> list[dict[str, Any]]:
    return [json.loads(line) for line in read_bytes(ROOT / "data/lab/chain.jsonl").splitlines()]


def test_every_state_of_the_page_is_one_of_the_findings_and_none_is_left_out(
    shipped: Record, numbers: dict[str, int]
) -> None:
    found = {
        (row["model"], row["arm"].rpartition(" ")[0]): numbers[row["run"]]
        for row in read_rows(ROOT / "data/lab/findings.jsonl")
        if row["kind"] == "alarm_state"
    }
    frame = lab.processes(shipped).text.data["lab-processes"]
    shown = {
        (row.model, f"{row.process} {row.state}"): row.entered_in
        for row in each(frame.dropna(subset="entered_in"))
    }
    assert shown == found
    said = visible(lab.summary(shipped))
    for run in found.values():
        assert f"in run {run}" in said


def test_the_first_paragraph_says_that_home_came_late_and_pairs_unexpected(
    shipped: Record, numbers: dict[str, int]
) -> None:
    rows = read_rows(ROOT / "data/lab/findings.jsonl")
    runs = {row["arm"]: numbers[row["run"]] for row in rows if row["kind"] == "alarm_state"}
    opened = load_toml(ROOT / "data/lab/plan.toml", kind="plan")
    [changed] = {it["run"] for it in opened["interventions"]}
    home, pairs = runs["home watch 1"], runs["pairs alarm 1"]
    assert home > changed + 15
    said = first_paragraph(shipped)
    late = f"in run {home}, {home - changed} runs after the change (due in runs {changed + 5} to "
    assert f"heated home watch {late}{changed + 15}: later than registered)" in said
    assert f"heated pairs alarm in run {pairs}" in said
    assert "home alarm" not in said
    for it in opened["interventions"]:
        assert f"{it['model']} ({it['what']}" in said
        assert it["server"].get("system_prompt", "") in html_module.unescape(said)


def test_the_delay_of_home_is_held_against_subjects_whose_arms_flip_independently(
    shipped: Record, numbers: dict[str, int]
) -> None:
    said = visible(course.delays(shipped, 400, SEED))
    heated = [
        (numbers[row["run"]], row)
        for row in read_rows(ROOT / "data/lab/churn.jsonl")
        if row["model"] == "heated"
    ]
    after = [row for number, row in heated if 53 <= number <= 76]
    arms = Counter(arm for row in after for arm in row["flipped"]).most_common()
    flips = sum(row["flips"] for row in after)
    half = min(k for k in range(42) if sum(n for _, n in arms[:k]) >= flips / 2)
    departures = sum(len(row["alarm"]["home"]["changed"]) for row in after)
    assert departures < sum(row["alarm"]["home"]["D"] for row in after)  # D is scaled by n / m
    assert said.startswith("heated entered watch in run 76, the 24th from its change on.")
    assert f"Of its {flips} flips in these runs home counted {departures} as" in said
    assert f"Half of the flips are of {half} of the 41 arms." in said
    assert "At the churn observed, chance does not explain so long a delay" in said
    before = [row for number, row in heated if number < 53 and row["compared"]]
    churns = [
        sum(row["flips"] for row in of) / sum(row["compared"] for row in of)
        for of in (before, after)
    ]
    for old, new in ((0.01, 0.1), (churns[0], 0.1), churns):
        given = {"n": 41, "before": old, "after": new, "quiet": 10, "lifetimes": 400}
        shares = [delay("home", within=within, **given).share for within in (16, 24)]
        assert " ".join(f"{100 * it:.1f} %" for it in (old, new, *shares)) in said
    assert said.count("entered watch") == 1
    known = alarm.aftermath(shipped, SEED).text.data["aftermath"]
    share = known.in_state[known.model == "heated"].item()
    assert f"under {100 * share:.1f} % of 999 other seeds" in said


def test_a_delay_that_simulated_subjects_also_show_is_not_called_more(
    shipped: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def as_slow(process: str, **given: Any) -> Any:
        asked.update(given)
        return replace(delay(process, **given), share=0.9)

    monkeypatch.setattr(course, "delay", as_slow)
    said = visible(course.delays(shipped, 50, SEED))
    assert "so long a delay is within what such subjects show." in said
    # 52 runs: two to the first value, 40 of burn-in, ten bets before the change.
    assert (asked["n"], asked["quiet"], asked["within"]) == (41, 10, 24)
    assert round(asked["before"] * 2077) == 29 and 0.1 < asked["after"] < 0.2


def test_what_the_page_reads_out_of_the_registered_words_stands_in_them(
    shipped: Record, chain: list[dict[str, Any]]
) -> None:
    analysis = chain[0]["panel"]["analysis"]
    stated = load_toml(ROOT / "config/lab.toml", kind="laboratory")
    rows = [*stated["expected"], *stated["churn"]]
    for it in rows:
        assert " ".join(it["words"].split()) in " ".join(analysis.split())
    shown = visible(lab.expectations(shipped))
    assert shown.count(" yes") == len(rows)
    assert "restart, burst watch and alarm (burst: alarm) left open" in shown
    assert "heated, operator pairs alarm none expected" in shown
    assert "heated none: its churn 1 % before its change, 10 % from it on" in shown
    assert html_module.unescape(lab.words(shipped).text).count(analysis) == 1


def test_the_opened_plan_is_the_one_that_was_sealed_before_the_first_run(
    shipped: Record, chain: list[dict[str, Any]]
) -> None:
    digest = sha256_hex((ROOT / "data/lab/plan.toml").read_bytes())
    assert chain[0]["panel"]["plan_sha256"] == digest
    assert chain[0]["at"] < chain[1]["started_at"]
    said = visible(lab.knowledge(shipped))
    assert said.count(digest) == 2
    assert f"line 0, {chain[0]['at']}" in said and chain[1]["started_at"] in said


def test_the_page_says_that_the_alarm_could_be_read_while_it_was_recorded(
    shipped: Record, chain: list[dict[str, Any]]
) -> None:
    said = visible(lab.knowledge(shipped))
    *_, last = (at for at, line in enumerate(chain) if line["kind"] == "run")
    early = [line for line in chain[:last] if line.get("event") == "calibrated"]
    assert early
    assert "read once, after the last run, the record cannot show" in said
    assert f"{len(early)} lines sealed before run 78 say what a process had calibrated" in said
    assert "config/lab.toml, were written after the last run" in said


def test_a_subject_that_never_flipped_is_said_to_have_had_nothing_to_ring_on(
    shipped: Record,
) -> None:
    rows = read_rows(ROOT / "data/lab/churn.jsonl")
    still = {
        model
        for model in shipped.models
        if not any(row["flips"] for row in rows if row["model"] == model)
    }
    assert still == {"reference"}
    vacuous = {it.model for it in plan.Lab(shipped).outcomes if it.verdict == plan.VACUOUS}
    assert vacuous == still
    said = visible(lab.summary(shipped))
    every = ", ".join(plan.READ)
    assert f"as registered, and could not have: reference {every}. A state needs a count" in said
    assert "and nothing about false alarms" in said
    assert "Entered nothing, as registered: operator home, panel, pairs." in said


def test_the_churn_that_was_registered_stands_beside_the_one_that_came(shipped: Record) -> None:
    rows = [row for row in read_rows(ROOT / "data/lab/churn.jsonl") if row["model"] == "heated"]
    sides = [[row for row in of if row["compared"]] for of in (rows[:52], rows[52:])]
    told = []
    for of in sides:
        flips, compared = (sum(row[name] for row in of) for name in ("flips", "compared"))
        told.append(f"{100 * flips / compared:.1f} % ({flips} of {compared:,})")
    said = first_paragraph(shipped)
    assert f"Churn of heated : {told[0]} before its change and {told[1]} from it on" in said
    assert "expect 1 % and 10 % and name no tolerance" in said


def test_the_look_at_the_change_is_said_to_count_for_nothing(shipped: Record) -> None:
    said = visible(course.level(shipped))
    assert "knew where the change was. As evidence its p-value counts for nothing" in said
    assert "fixed beforehand" not in said
    prose = (ROOT / "notebooks/lab.ipynb").read_text(encoding="utf-8")
    assert "fixed by" not in prose and "never changed but for the seed" in prose
    assert "never changed, but for the seed" in (ROOT / "docs/reading.md").read_text("utf-8")
    instruments = shipped.instruments.values()
    assert {it["document"]["seed_policy"] for it in instruments} == {"per-run"}


def test_the_settings_before_the_change_are_those_of_the_panel(shipped: Record) -> None:
    stated = plan.Lab(shipped).stated.server
    assert [model.server for model in load_panel("lab", root=ROOT).models] == [stated] * 3


def test_subjects_with_the_same_weights_are_said_to_be_one_until_the_change(
    shipped: Record, chain: list[dict[str, Any]]
) -> None:
    models = [line["models"] for line in chain if line["kind"] == "run"]
    alike = [it["heated"]["responses"] == it["operator"]["responses"] for it in models]
    before = plan.Lab(shipped).changed["heated"] - 1
    assert f"in {sum(alike[:before])} of the {before} runs before" in visible(lab.done(shipped))
    assert not any(alike[before:])


def test_the_rates_around_the_change_are_those_of_the_labels(
    shipped: Record, numbers: dict[str, int]
) -> None:
    frame = course.level(shipped).text.data["lab-level"]
    operator = frame[frame.model == "operator"]
    assert operator.number.tolist() == list(range(43, 63))
    controls = {item.id for item in shipped.families.values() if item.control}
    for row in each(operator):
        labels = Counter(
            it["label"]
            for it in read_rows(ROOT / f"data/lab/labels/rules-e2497973cda3/{row.run}.jsonl")
            if it["model"] == "operator"
            and it["key"].endswith("#en-1")
            and it["key"].partition("#")[0] not in controls
        )
        assert row.refused == labels["refused"]
        assert row.n == labels["refused"] + labels["answered"]
        assert numbers[row.run] == row.number


def test_the_families_shown_side_by_side_are_those_that_were_dated(shipped: Record) -> None:
    dated = [
        row
        for row in read_rows(ROOT / "data/lab/findings.jsonl")
        if row["run"] == shipped.runs[52] and row["model"] == "operator" and "family" in row
    ]
    shown = pairs.answers(shipped).text.partition("<h3>operator")[2].partition("<h3>heated:")[0]
    assert shown.count("<article") == len(dated) > 0
    for row in dated:
        assert f'transcripts.html#{row["family"].replace("/", "-")}"' in shown


def test_tokens_are_those_that_the_chain_seals(
    shipped: Record, chain: list[dict[str, Any]]
) -> None:
    frame = course.cost(shipped).text.data["lab-cost"]
    for model, rows in frame.groupby("model"):
        sealed = [line["models"][model]["usage"] for line in chain if line["kind"] == "run"]
        for name in course.TOKENS:
            assert rows[name].tolist() == [it[name] for it in sealed]
    assert (frame.minutes > 0).all()


def test_flips_and_churn_are_those_of_the_log(shipped: Record) -> None:
    rows = [row for row in read_rows(ROOT / "data/lab/churn.jsonl") if row["compared"]]
    frame = course.churn(shipped).text.data["lab-churn"]
    told = sorted(zip(frame.model, frame.run, frame.flips, strict=True))
    assert told == sorted((row["model"], row["run"], row["flips"]) for row in rows)


def test_a_rescoring_lists_the_labels_that_moved_and_the_entries_that_did(
    shipped: Record, chain: list[dict[str, Any]]
) -> None:
    registered = chain[0]["judge"]["rules"]
    stored = Store(ROOT / "data/lab")

    def labels(judge: dict[str, Any], run: str) -> dict[tuple[str, str], str]:
        path = stored.labels(f"{judge['id']}-{judge['rules'][:12]}", run)
        return {(row["model"], row["key"]): row["label"] for row in read_rows(path)}

    # Shapes and a model's verdicts are no labels of a rescoring.
    lines = [line for line in chain if line["kind"] == "labels" and line["judge"]["id"] == "rules"]
    read = {it["run"]: labels(it["judge"], it["run"]) for it in lines
            if it["judge"]["rules"] == registered}  # fmt: skip
    said = visible(rescoring.judges(shipped))
    others = {it["judge"]["rules"] for it in lines} - {registered}
    assert others
    for line in lines:
        assert line["judge"]["rules"] in said and line["judge"]["fingerprint"] in said
        for (model, key), label in labels(line["judge"], line["run"]).items():
            if label != read[line["run"]][model, key]:
                assert key in said and label in said and model in said
    assert len(others) == 2
    assert said.count("enters the same 9 states in the same runs") == 1
    other = "enters 9 states, and differs in heated coverage watch in run 77 instead of run 76."
    assert said.count(other) == 1


def test_the_front_page_names_each_record_for_what_it_is(shipped: Record, tmp_path: Path) -> None:
    own = load_record("embedded", folder=tmp_path / "none", root=ROOT)
    phantom = load_record("phantom", root=ROOT)
    shown = front.front_page([phantom, shipped, own], None)
    places = [shown.index(f'id="record-{name}"') for name in ("embedded", "lab", "phantom")]
    assert places == sorted(places)
    text = visible(shown)
    for kind in ("this machine's own run", "real models, changes declared beforehand"):
        assert text.count(kind) == 2  # in the list of records, and as a heading
    assert text.index("3 records stand here") < text.index("Phantom models scripted")
    assert "Phantom models scripted, known truth" in text
    assert 'href="report/lab/lab.html"' in shown and 'href="report/phantom/lab.html"' not in shown
    assert "Not as registered" in text


def test_the_figure_says_in_words_what_each_subject_did(
    shipped: Record, numbers: dict[str, int]
) -> None:
    shown = course.course(shipped, "See.").text
    [words] = re.findall(r'aria-label="([^"]*)"', shown)
    assert "heated, changed in run 53" in words and "reference, not changed" in words
    assert "watch in run 76" in words and "alarm in run 70" in words
    assert "0 to 0 flips a run throughout" in words
    frame = shown.data["lab-course"]
    assert set(frame.process) == {"home", "pairs"} and frame.number.max() == len(numbers)
