"""The phantom's truth: pure, deterministic, each process as its rules say, served as scripted."""

from __future__ import annotations

import asyncio
import json
import tomllib
from collections import Counter
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import pytest
from asking import NOON, subject

from drift.bank import load_bank
from drift.config import load_panel
from drift.errors import ConfigurationError, PartialError
from drift.judging import load_judge
from drift.probing import Ask, Response, ask_model, phantom
from drift.probing.phantom import LETTERS, Truth

ROOT = Path(__file__).resolve().parents[2]
ARMS = load_bank(ROOT / "config" / "probe_bank.json").arms("full")
SHIPPED = (ROOT / "config" / "phantom.toml").read_text()
TEXTS = SHIPPED[SHIPPED.index("[refusals.en]") :]
HEAD = f'seed = "s"\nalarm_seed = "{"0" * 64}"\nstart = 2026-01-01T00:00:00Z\nruns = 40\n'


@pytest.fixture
def truth(tmp_path: Path) -> Callable[..., Truth]:
    """Write rules for a model ``m``, told in TOML, and return the truth that follows."""
    (tmp_path / "config").mkdir()

    def told(rules: str = "", head: str = HEAD, models: tuple[str, ...] = ("m",)) -> Truth:
        text = f'{head}[models.m]\nstory = "A test."\nserved = "m-1"\n{rules}\n{TEXTS}'
        (tmp_path / "config" / "phantom.toml").write_text(text)
        return Truth(tmp_path, ARMS, models)

    return told


def outcomes(truth: Truth, run: int) -> dict[str, str]:
    return {arm: said.outcome for arm, said in truth.said("m", run).items()}


def refused(truth: Truth, run: int) -> set[str]:
    return {arm for arm, outcome in outcomes(truth, run).items() if outcome == "refused"}


def moved(truth: Truth, runs: range = range(2, 41)) -> list[int]:
    """How many arms changed their label in each run."""
    return [len(refused(truth, run) ^ refused(truth, run - 1)) for run in runs]


def test_every_text_is_judged_as_scripted_whatever_was_asked() -> None:
    judge, texts = load_judge(ROOT / "config" / "judge"), tomllib.loads(TEXTS)
    for arm in ARMS:
        asked = {"prompt": arm.prompt, "language": arm.language}
        for text in chain.from_iterable(texts["refusals"][arm.language].values()):
            assert judge.label(text=text, **asked).label == "refused", (arm.id, text)
        for text in (*texts["answers"][arm.language], *texts["narrow"][arm.language]):
            assert judge.label(text=text, **asked).label == "answered", (arm.id, text)
            cut = text[: len(text) * 2 // 3]
            found = judge.label(text=cut, status="truncated", **asked)
            assert found.label == "answered", (arm.id, cut)


def test_the_shipped_truth_names_the_shipped_panel_and_bank_and_states_every_label() -> None:
    panel = load_panel("phantom", root=ROOT)
    names = [model.model for model in panel.models]
    found = Truth(ROOT, ARMS, names)
    document = json.loads(found.file)
    assert set(document["labels"]) == set(found.rules.models) == set(names)
    assert {len(runs) for runs in document["labels"].values()} == {found.rules.runs}
    assert {len(run) for runs in document["labels"].values() for run in runs} == {len(ARMS)}
    stated = dict(zip(document["arms"], document["labels"]["filtered"][80], strict=True))
    said = found.said("filtered", 81)
    assert stated == {arm: LETTERS[said[arm].outcome] for arm in said}


def test_the_truth_of_a_run_depends_on_nothing_asked_before(truth: Callable[..., Truth]) -> None:
    rules = "churn = 0.05\nglitch = 0.05\nepisodes = { start = 0.1, mean_runs = 3, error = 0.3 }"
    in_order, at_once = truth(rules), truth(rules)
    for run in range(1, 30):
        in_order.said("m", run)
    assert in_order.said("m", 30) == at_once.said("m", 30)
    assert in_order.file == truth(rules).file
    assert truth(rules, HEAD.replace('"s"', '"t"')).said("m", 30) != at_once.said("m", 30)


def test_families_and_single_arms_are_refused_as_they_are_named(
    truth: Callable[..., Truth],
) -> None:
    named = ["science/photosynthesis", "law/sex-work-models#en-2", "privacy/tor-network#zh"]
    assert refused(truth(f"refuses = {named}"), 7) == {
        *(f"science/photosynthesis#{variant}" for variant in ("en-1", "en-2", "en-3", "zh")),
        *named[1:],
    }


def shapes(truth: Truth, run: int) -> dict[str, str]:
    return {arm: said.shape for arm, said in truth.said("m", run).items()}


def test_refusals_have_the_shapes_of_their_story_and_an_arm_keeps_its_own(
    truth: Callable[..., Truth],
) -> None:
    every = f"refuses = {sorted({arm.family for arm in ARMS})}\n"
    mixed = "shapes = { sermon = 0.25, flat-no = 0.75 }"
    told = truth(every + mixed)
    found = Counter(shapes(told, 3).values())
    # A quarter of 144, give or take four standard errors.
    assert found.keys() == {"sermon", "flat-no"} and 16 <= found["sermon"] <= 56
    assert shapes(told, 3) == shapes(told, 30)
    texts = told.rules.refusals
    for arm in ARMS:
        said = told.said("m", 3)[arm.id]
        assert said.text in texts[arm.language][said.shape]


def test_a_change_of_shapes_moves_texts_and_no_label(truth: Callable[..., Truth]) -> None:
    every = f"refuses = {sorted({arm.family for arm in ARMS})}\nshapes = {{ flat-no = 1 }}\n"
    told = truth(every + "changes = [{ run = 5, shapes = { redirect = 1 } }]")
    assert {*shapes(told, 4).values()} == {"flat-no"} != {*shapes(told, 5).values()}
    assert outcomes(told, 4) == outcomes(told, 5)


def test_a_share_of_the_answers_narrows_the_question_and_is_labelled_answered(
    truth: Callable[..., Truth],
) -> None:
    told = truth("narrow = 0.3\nchanges = [{ run = 9, narrow = 0 }]")
    narrowed = {arm for arm, shape in shapes(told, 8).items() if shape == "scope-narrow"}
    assert 21 <= len(narrowed) <= 65
    assert {*outcomes(told, 8).values()} == {"answered"}
    for arm in ARMS:
        text = told.said("m", 8)[arm.id].text
        assert (text in told.rules.narrow[arm.language]) == (arm.id in narrowed)
    assert {*shapes(told, 9).values()} == {""}
    stated = json.loads(told.file)
    letters = dict(zip(stated["arms"], stated["shapes"]["m"][7], strict=True))
    assert {arm for arm, letter in letters.items() if letter == "n"} == narrowed


@pytest.mark.parametrize(
    "shares", ["{ flat-no = 0.5 }", "{ scope-narrow = 1 }", "{ shrug = 1 }", "{}"]
)
def test_shapes_that_are_no_whole_or_cannot_be_said_are_refused(
    truth: Callable[..., Truth], shares: str
) -> None:
    with pytest.raises(ConfigurationError, match="shapes of a scripted model"):
        truth(f"shapes = {shares}")


def test_churn_turns_an_arm_for_good_and_a_glitch_for_one_run(
    truth: Callable[..., Truth],
) -> None:
    churning, glitching = truth("churn = 0.02"), truth("glitch = 0.02")
    assert not refused(churning, 1)
    # 2 % of 144 arms in 39 runs: 112 moves, give or take four standard errors.
    assert 70 < sum(moved(churning)) < 154
    assert len(refused(churning, 40)) > 30
    erring = [refused(glitching, run) for run in range(1, 41)]
    assert 70 < sum(map(len, erring)) < 160 and max(map(len, erring)) < 12


def test_episodes_last_as_long_as_they_are_told_to(truth: Callable[..., Truth]) -> None:
    def struck(rules: str) -> str:
        found = truth(f"episodes = {{ {rules}, error = 0.35 }}")
        counts = [len(refused(found, run)) for run in range(1, 401)]
        assert all(count == 0 or 20 < count < 85 for count in counts)
        return "".join("x" if count else "." for count in counts)

    single, long = struck("start = 0.05, mean_runs = 1"), struck("start = 0.02, mean_runs = 8")
    assert 8 <= single.count("x") <= 36
    assert max(map(len, single.split("."))) <= 2
    lengths = [len(stretch) for stretch in long.split(".") if stretch]
    assert 4 < sum(lengths) / len(lengths) < 14


@pytest.mark.parametrize("families", [1, 9])
def test_a_level_shift_and_a_burst_come_once_and_stay(
    truth: Callable[..., Truth], families: int
) -> None:
    names = sorted({arm.family for arm in ARMS})[:families]
    found = truth(f"changes = [{{ run = 11, turns = {names} }}]")
    arms = {arm.id for arm in ARMS if arm.family in names}
    assert [run for run, count in enumerate(moved(found), start=2) if count] == [11]
    assert refused(found, 11) == refused(found, 40) == arms


def test_churn_shifts_at_once_and_ramps_evenly(truth: Callable[..., Truth]) -> None:
    rules = "churn = 0.01\nchanges = [{ run = 5, churn = 0.1 }, { run = 11, to = 20, churn = 0.3 }]"
    story = truth(rules).rules.models["m"]
    rates = [round(story.churn_at(run), 9) for run in (1, 2, 4, 5, 10, 11, 15, 20, 99)]
    assert rates == [0, 0.01, 0.01, 0.1, 0.1, 0.12, 0.2, 0.3, 0.3]
    shifted = moved(truth("changes = [{ run = 21, churn = 0.1 }]"))
    assert sum(shifted[:19]) == 0 and sum(shifted[19:]) > 150


def test_a_filter_comes_and_goes_and_a_name_moves(truth: Callable[..., Truth]) -> None:
    found = truth(
        'changes = [{ run = 3, blocked = ["privacy/tor-network"] }, '
        '{ run = 5, blocked = [], served = "m-2" }]'
    )
    arm = "privacy/tor-network#en-2"
    assert [outcomes(found, run)[arm] for run in (2, 3, 4, 5)] == [
        "answered", "blocked", "blocked", "answered",
    ]  # fmt: skip
    served = [found.rules.models["m"].latest("served", run) for run in (1, 4, 5, 6)]
    assert served == ["m-1", "m-1", "m-2", "m-2"]


def test_faults_come_at_their_rates(truth: Callable[..., Truth]) -> None:
    found = truth("faults = { empty = 0.1, blocked = 0.05, failed = 0.02, cut = 0.1 }")
    said = [item for run in range(1, 41) for item in found.said("m", run).values()]
    shares = {fault: sum(item.fault == fault for item in said) / len(said) for fault in LETTERS}
    assert abs(shares["empty"] - 0.1) < 0.02 and abs(shares["blocked"] - 0.05) < 0.015
    assert abs(shares["failed"] - 0.02) < 0.01


@pytest.mark.parametrize(
    "rules",
    [
        'refuses = ["law/nosuch"]',
        'refuses = ["law/torture-ban#fr"]',
        'changes = [{ run = 2, turns = ["nosuch/family"] }]',
        'changes = [{ run = 2, blocked = ["nosuch/family"] }]',
        "churn = 1.5",
        "chrun = 0.5",
    ],
)
def test_a_truth_about_what_the_bank_does_not_hold_is_refused(
    truth: Callable[..., Truth], rules: str
) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        truth(rules)
    assert "phantom.toml" in str(refusal.value)


def test_every_model_of_the_panel_needs_a_story(truth: Callable[..., Truth]) -> None:
    with pytest.raises(ConfigurationError, match="name the same"):
        truth(models=("m", "other"))


async def _asked(truth: Truth, run: int, model: str = "m", question: str = "") -> list[Response]:
    kept: list[Response] = []

    async def keep(response: Response) -> None:
        kept.append(response)

    asks = [Ask(arm.id, ({"role": "user", "content": question or arm.prompt},)) for arm in ARMS]
    spec = subject(kind="phantom", model=model, base_url=None, api_key_env=None, concurrency=8)
    async with phantom.serve(truth, "m", run) as how:
        await ask_model(spec, asks, keep=keep, clock=lambda: NOON, **how)
    return kept


@pytest.mark.parametrize(
    ("fault", "status", "attempts"),
    [
        ("limited", "ok", 2),
        ("broken", "ok", 2),
        ("failed", "failed", 3),
        ("empty", "empty", 1),
        ("blocked", "blocked", 1),
        ("cut", "truncated", 1),
    ],
)
def test_the_client_meets_each_fault_as_a_provider_would_serve_it(
    truth: Callable[..., Truth], fault: str, status: str, attempts: int
) -> None:
    rows = asyncio.run(_asked(truth(f"faults = {{ {fault} = 1 }}"), 4))
    assert {(row.status, row.attempts) for row in rows} == {(status, attempts)}
    assert len(rows) == len(ARMS)


def test_what_is_served_is_the_text_and_the_facts_of_the_truth(
    truth: Callable[..., Truth],
) -> None:
    found = truth('glitch = 0.1\nchanges = [{ run = 4, served = "m-2" }]')
    rows = asyncio.run(_asked(found, 4))
    assert {row.key: row.text for row in rows} == {
        arm: said.text for arm, said in found.said("m", 4).items()
    }
    assert {row.served_model for row in rows} == {"m-2"}
    assert len({row.text for row in rows}) > 12


@pytest.mark.parametrize("wrong", [{"model": "other"}, {"question": "What is this?"}])
def test_a_model_or_a_question_it_does_not_know_is_not_found(
    truth: Callable[..., Truth], wrong: dict[str, str]
) -> None:
    with pytest.raises(PartialError, match="not served"):
        asyncio.run(_asked(truth(), 1, **wrong))
