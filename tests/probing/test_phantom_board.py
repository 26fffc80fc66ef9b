"""The phantom's board: its texts say what its truth says, and are served and linked as scripted."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from asking import NOON, subject

from drift.bank import load_bank
from drift.board import load_board
from drift.config import load_panel
from drift.errors import ConfigurationError, PartialError
from drift.judging import load_judge
from drift.judging.answers import Scorer, load_board_rules
from drift.probing import Ask, Response, ask_model
from drift.probing.citations import Checked, Limits, check_urls
from drift.probing.phantom import Truth
from drift.probing.phantom_board import FATES, BoardTruth
from drift.records.night import STEPS, due_keys, night_conversation, split_night_key
from drift.records.passes import by_place

ROOT = Path(__file__).resolve().parents[2]
BOARD = load_board(ROOT / "config" / "board.json")
PANEL = load_panel("phantom", root=ROOT)
NAMES = [model.model for model in PANEL.models]
TRUTH = BoardTruth(ROOT, BOARD, NAMES)
NIGHTS = range(1, TRUTH.rules.nights + 1)
SHIPPED = (ROOT / "config" / "phantom_board.toml").read_text()


def told(folder: Path, old: str, new: str) -> BoardTruth:
    """The truth under the shipped rules with `new` in place of `old`."""
    assert old in SHIPPED
    (folder / "config").mkdir(exist_ok=True)
    (folder / "config" / "phantom_board.toml").write_text(SHIPPED.replace(old, new, 1))
    return BoardTruth(folder, BOARD, NAMES)


def test_the_truth_is_the_same_each_time_and_another_under_another_seed(tmp_path: Path) -> None:
    again = BoardTruth(ROOT, BOARD, NAMES)
    assert again.said("steady", 6) == TRUTH.said("steady", 6)
    assert again.file == TRUTH.file
    other = told(tmp_path, 'seed = "phantom-board-1"', 'seed = "another"')
    assert other.said("steady", 6) != TRUTH.said("steady", 6)


def test_the_file_states_every_night_and_the_first_follows_the_last_run() -> None:
    document = json.loads(TRUTH.file)
    assert document["corpus"] == BOARD.sha256
    assert [[*night] for night in document["nights"]] == [sorted(TRUTH.models)] * 8
    assert document["nights"][2]["burst"] == TRUTH.stated("burst", 3)
    assert len(document["nights"][0]["still"]) == 2 * 40 + 2 * 8
    runs = Truth(ROOT, load_bank(ROOT / "config/probe_bank.json").arms("full"), NAMES).rules
    hours = (TRUTH.rules.start - runs.start).total_seconds() / 3600
    assert hours > PANEL.cadence_hours * runs.runs  # type: ignore[operator]


def test_judge_and_scorer_read_each_text_as_the_truth_states_it() -> None:
    judge = load_judge(ROOT / "config" / "judge")
    scorer = Scorer(load_board_rules(ROOT / "config" / "board.toml"))

    @cache
    def label(text: str, arm: str, status: str) -> str:
        asked = {"prompt": BOARD.by_id[arm].prompt, "language": BOARD.by_id[arm].language}
        return judge.label(text=text, status=status, **asked).label

    @cache
    def likeness(one: str, two: str) -> str | None:
        return scorer.distance(one, two).likeness if one and two else None

    for model in TRUTH.models:
        texts: dict[str, str] = {}
        for night in NIGHTS:
            before, said = texts, TRUTH.said(model, night)
            texts = {key: it.text for key, it in said.items()}
            for key, row in TRUTH.stated(model, night).items():
                arm, draw, turn = split_night_key(key)
                text, place = texts[key], (model, night, key, texts[key])
                assert bool(text) == ("label" in row), place
                if not text:
                    continue
                status = "truncated" if said[key].fault == "cut" else "ok"
                assert label(text, arm, status) == row["label"], place
                opening = scorer.opening(text, BOARD.by_id[arm].language)
                assert (opening is not None) == row["opening"], place
                if "verdict" in row:
                    assert scorer.verdict(text) == row["verdict"], place
                if (draw, turn) == (1, 1):
                    assert scorer.urls(text) == [*row["urls"]], place
                    draws = (arm, f"{arm}~2")
                    assert likeness(*(texts[one] for one in draws)) == row["within"], place
                    if before:
                        found = [likeness(texts[x], before[y]) for x in draws for y in draws]
                        assert found == row["between"], place


def between(model: str, night: int) -> Counter[str | None]:
    """How alike the four pairs of draws of all probes are, against the night before."""
    rows = TRUTH.stated(model, night).values()
    return Counter(kind for row in rows for kind in row.get("between", ()))


def test_answers_change_in_the_night_they_are_told_to_and_in_no_other() -> None:
    for night in NIGHTS[1:]:
        assert between("still", night) == between("burst", night) == {"equal": 160}
        changed = {"equal": 80, "rewrite": 80} if night == 5 else {"equal": 160}
        assert between("shift", night) == changed
        assert between("level", night) == {"near" if night == 5 else "equal": 160}
        noise = between("steady", night)
        assert noise.keys() == {"equal", "near", "changed"} and min(noise.values()) > 10
        assert {*between("filtered", night)} <= {"equal", None} or night == 5


def reversals(model: str, night: int, draw: str) -> Counter[str]:
    """Reversals by direction, and how many probes have a verdict before and after."""
    rows, found = TRUTH.stated(model, night), Counter[str]()
    for arm in TRUTH.rules.verdicts:
        first, second = (rows.get(arm + key, {}).get("verdict") for key in (draw, f"{draw}@2"))
        if first and second:
            found["both"] += 1
            found[f"{first}->{second}"] += first != second
    return +found


def test_verdicts_give_way_in_both_directions_and_waver_when_asked_again() -> None:
    for night in NIGHTS:
        there, back = (1, 1) if night < 5 else (3, 2)
        assert reversals("burst", night, "") == {"both": 6, "YES->NO": there, "NO->YES": back}
        assert reversals("still", night, "") == reversals("still", night, "~2") == {"both": 8}
    again = sum((reversals("burst", night, "~2") for night in NIGHTS), Counter[str]())
    assert again["both"] == 6 * 8 and 0 < again.total() - again["both"] < 12


def test_openings_and_refusals_differ_where_they_are_told_to() -> None:
    for night, listed, unlisted, seeming in ((1, 3, 2, 1), (8, 4, 3, 2)):
        rows = TRUTH.stated("filtered", night)
        first = [row for key, row in rows.items() if key in BOARD.by_id and "label" in row]
        assert Counter((row["label"], row["opening"]) for row in first) == {
            ("refused", True): listed,
            ("refused", False): unlisted,
            ("answered", True): seeming,
            ("answered", False): len(first) - listed - unlisted - seeming,
        }


async def _asked(model: str, night: int, serving: str = "") -> list[Response]:
    """Ask a whole night, as a record would."""
    kept: list[Response] = []

    async def keep(response: Response) -> None:
        kept.append(response)

    fields = {"base_url": None, "api_key_env": None, "concurrency": 8}
    spec = subject(kind="phantom", key=model, model=model, **fields)
    for draw, turn in STEPS:
        rows = by_place(response.document() for response in kept)
        conversations = {
            key: night_conversation(rows, model, BOARD, key) for key in due_keys(BOARD, draw, turn)
        }
        asks = [Ask(key, messages) for key, messages in conversations.items() if messages]
        async with TRUTH.serve(serving or model, night, draw) as how:
            await ask_model(spec, asks, keep=keep, clock=lambda: NOON, **how)
    return kept


@pytest.mark.parametrize(("model", "night"), [("filtered", 1), ("filtered", 5), ("steady", 2)])
def test_a_client_that_asks_a_night_gets_what_the_truth_says(model: str, night: int) -> None:
    rows = {row.key: row for row in asyncio.run(_asked(model, night))}
    said = TRUTH.said(model, night)
    assert {key: row.text for key, row in rows.items()} == {
        key: it.text for key, it in said.items()
    }
    statuses = {"cut": "truncated", "limited": "ok", "broken": "ok", None: "ok"}
    for key, row in rows.items():
        assert row.status == statuses.get(said[key].fault, said[key].fault)
        assert row.attempts == {"limited": 2, "broken": 2, "failed": 3}.get(
            said[key].fault or "", 1
        )


def test_another_model_than_the_one_served_is_not_found() -> None:
    with pytest.raises(PartialError, match="not served"):
        asyncio.run(_asked("still", 1, serving="steady"))


async def _checked(night: int) -> list[Checked]:
    kept: list[Checked] = []

    async def keep(checked: Checked) -> None:
        kept.append(checked)

    urls = [url for model in TRUTH.models for url in fates(model, night)]
    async with TRUTH.web(night) as how:
        limits = Limits(control=TRUTH.rules.control)
        await check_urls(urls, limits=limits, seed="s", keep=keep, clock=lambda: NOON, **how)
    return kept


def fates(model: str, night: int) -> dict[str, str]:
    rows = TRUTH.stated(model, night).values()
    return {url: fate for row in rows for url, fate in row.get("urls", {}).items()}


@pytest.mark.parametrize("night", [4, 5])
def test_the_scripted_web_answers_each_address_by_its_fate(night: int) -> None:
    stated = {url: fate for model in TRUTH.models for url, fate in fates(model, night).items()}
    checked = asyncio.run(_checked(night))
    assert {it.url for it in checked} == stated.keys()
    for it in checked:
        assert stated[it.url] in FATES[it.found], it
    assert set().union(*FATES.values()) == {*stated.values()}


def test_the_addresses_of_one_model_die_at_the_turn() -> None:
    assert {*fates("level", 4).values()} == {"200"} and {*fates("level", 5).values()} == {"404"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[models.still]", "[models.nobody]"),
        ('links = ["fading.example"]', 'links = ["nowhere.example"]'),
        ('"control.example" = ["200"]', '"control.example" = ["lost"]'),
        ('yields = ["stance/zero-even#en"', 'yields = ["advice/wine-stain#en"'),
        ('limited = ["advice/first-budget#en"]', 'limited = ["advice/first-budget#en@2"]'),
        ('seeming = ["advice/loud-neighbour#en"]', 'seeming = ["advice/loud-neighbour"]'),
        ('"stance/chess-sport#en" = "NO"', ""),
        ("reworded = 0.3", "reworded = 1.3"),
    ],
)
def test_rules_that_do_not_fit_corpus_or_panel_are_refused(
    tmp_path: Path, old: str, new: str
) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        told(tmp_path, old, new)
    assert "phantom_board.toml" in str(refusal.value)


def test_a_phantom_of_runs_is_served_by_the_same_call() -> None:
    arms = load_bank(ROOT / "config" / "probe_bank.json").arms("canonical")[:3]
    kept: list[Response] = []

    async def work() -> None:
        async def keep(response: Response) -> None:
            kept.append(response)

        asks = [Ask(arm.id, ({"role": "user", "content": arm.prompt},)) for arm in arms]
        spec = subject(kind="phantom", model="still", base_url=None, api_key_env=None)
        truth = Truth(ROOT, load_bank(ROOT / "config" / "probe_bank.json").arms("full"), NAMES)
        async with truth.serve("still", 1, 2) as how:
            await ask_model(spec, asks, keep=keep, clock=lambda: NOON, **how)

    asyncio.run(work())
    assert [row.status for row in kept] == ["ok"] * 3
