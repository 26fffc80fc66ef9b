"""The page of the instrument: its pins, its reference, and what may be compared."""

from __future__ import annotations

import html as html_module
import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Ticking
from loopback import Loopback
from making import make_runs
from pinning import Story
from report.climbing import ENGLISH, HELD, RELEASED

from drift.report import instrument, load_record, verdicts
from drift.report.instrument import Pins
from drift.report.tables import each

CAPTION = "What to see."


def visible(shown: Any) -> str:
    text = shown if isinstance(shown, str) else str(shown.text)
    return " ".join(html_module.unescape(re.sub(r"<[^>]+>", " ", text)).split())


@pytest.fixture(scope="module")
def phantom() -> Pins:
    return Pins(load_record("phantom", root=ROOT))


@pytest.fixture(scope="module")
def replayed(climbed: Path) -> Pins:
    return Pins(load_record("test", root=climbed))


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Pins:
    """Five runs: in the third the reference moves, and before the fifth longer answers are due."""
    story = Story(tmp_path_factory.mktemp("moved"))
    with Loopback(story.script) as server:
        story.panel(server)
        story.refuse("steady", *range(20))
        story.run()
        story.run()
        story.refuse("steady", *range(23))
        story.refuse("subject", *range(9))
        story.run()
        story.run()
        story.panel(server, tokens=64)
        story.register()
        story.run()
    return Pins(load_record("test", root=story.project))


def test_every_pin_of_the_last_run_and_of_the_last_batch_of_each_elicitor_stands_there(
    replayed: Pins,
) -> None:
    shown = instrument.pinned(replayed)
    frame = shown.text.data["pins"]
    assert list(frame.elicitor.unique()) == [
        "Runs",
        "Ladders by script",
        "Ladders by lab/heated, temperature 0.7",
        "Ladders by lab/heated, temperature 0.9",
    ]
    for name, rows in frame.groupby("elicitor"):
        last = replayed.groups[str(name)][-1]
        for model, pins in rows.groupby("model"):
            named = zip(pins.pin, pins.pin_value, strict=True)
            assert tuple(named) == last.instrument(str(model)).pins
    words = visible(shown)
    assert (
        "longest answer, in tokens: 40" in words
        and "the model, parameters that are sent, temperature: 0.9" in words
    )
    assert replayed.passes[-1].instrument("operator").sha256 in shown.text
    # What differs between the targets says whose it is.
    assert "model: lab/heated (heated); lab/operator (operator)" in words


def test_the_reference_is_drawn_with_the_floor_that_each_step_is_read_by(moved: Pins) -> None:
    frame = instrument.reference_moves(moved)
    assert list(frame.refused) == [20, 20, 23, 23, 23] and set(frame.n) == {41}
    assert frame.moved_beyond.tolist()[2:4] == [True, False]
    # Two runs make the first floor. Longer answers are asked of the target alone.
    assert frame.floor.isna().tolist() == [True, True, False, False, False]
    assert frame.reference_delta[2] == pytest.approx(3 / 41) and frame.floor[2] == 0
    shown = instrument.reference_series(moved, CAPTION)
    run = frame.run[2]
    assert f"1 of 3 moves were beyond their floor ({run})" in html_module.unescape(shown.text)
    assert "+7.3 points" in visible(shown) and "Runs. What to see." in visible(shown)


def test_a_void_pair_says_why_and_withholds_what_the_target_did(moved: Pins) -> None:
    words = visible(verdicts.voided(moved))
    assert "void: instrument drifted (reference moved +7.3 points, floor 0.0 points)" in words
    assert "void: instrument changed (target.max_tokens) target.max_tokens: 48 -> 64" in words
    assert words.count("withheld") == 2 and "not estimable" in words
    strip = verdicts.comparable(moved)
    assert re.findall(r'<span class="drift-trend"[^>]*>([^<]*)</span>', strip.text) == ["–×·≠"]
    frame = strip.text.data["comparability"]
    assert list(frame.exit_code) == [5, 4, 0, 4]
    assert frame.target_delta.notna().tolist() == [False, False, True, False]


def test_a_record_of_119_pairs_shows_each_of_them_in_one_sign(phantom: Pins) -> None:
    shown = verdicts.comparable(phantom)
    strips = re.findall(r'aria-label="([^"]*)">([^<]*)</span>', shown.text)
    assert len(strips) == 9 and {len(signs) for _, signs in strips} == {119}
    frame = shown.text.data["comparability"]
    assert len(frame) == 9 * 119
    for (said, signs), (_, rows) in zip(strips, frame.groupby("model", sort=False), strict=True):
        counts = Counter(signs)
        assert {sign for sign in counts} <= set(verdicts.SIGNS.values())
        for words, number in rows.pair_kind.value_counts().items():
            assert counts[verdicts.SIGNS[str(words)]] == number
            assert f"{number} {words}" in said


def test_what_the_reference_costs_is_counted_from_the_chain(phantom: Pins, replayed: Pins) -> None:
    spent: Counter[str] = Counter()
    for line in (ROOT / "data/phantom/chain.jsonl").read_text().splitlines():
        body = json.loads(line)
        if body["kind"] == "run":
            for model, part in body["models"].items():
                usage = part["usage"]["prompt_tokens"] + part["usage"]["completion_tokens"]
                spent[f"{model} tokens"] += usage
                spent["tokens"] += usage
    (row,) = each(instrument.cost(phantom).text.data["reference-cost"])
    assert (row.reference_tokens, row.all_tokens) == (spent["still tokens"], spent["tokens"])
    # An elicitor that is a model writes for the reference too.
    frame = instrument.cost(replayed).text.data["reference-cost"]
    asked = frame[frame.elicitor == "Ladders by lab/heated, temperature 0.7"].iloc[0]
    assert (asked.reference_requests, asked.all_requests) == (24 * 7, 2 * 24 * 7)
    assert frame.all_requests.iloc[-1] == frame.all_requests[:-1].sum()


def test_each_replay_of_known_truth_gets_the_verdict_that_is_due(replayed: Pins) -> None:
    shown = verdicts.replays(replayed)
    frame = shown.text.data["replays"].set_index("replay")
    assert list(frame.index) == ["a", "b", "c", "d", "e", "f", "b0", "c0", "f0"]
    assert frame.is_due.all() and "9 of 9 replays got the verdict that was due." in visible(shown)
    # The scripts of both servers, and nothing else, say how far each of them moved.
    assert frame.target_delta["c"] == 1.0 and frame.target_delta["f"] == -1.0
    refused = len(HELD) + 1  # and the ladder that hardens
    assert frame.reference_delta["d"] == -refused / len(ENGLISH)
    assert frame.reference_delta[["c", "e", "f"]].eq(0).all()
    assert frame.target_delta[["a", "d"]].isna().all() and frame.target_delta["e"] == 0
    assert frame.reference.tolist() == [
        "reference",
        *["heated"] * 4,
        "reference",
        *["heated"] * 2,
        "reference",
    ]
    assert RELEASED


def test_the_laboratory_gives_the_verdicts_that_are_published() -> None:
    shown = verdicts.replays(Pins(load_record("lab", root=ROOT)))
    frame = shown.text.data["replays"].set_index("replay")
    # Five falls of twenty, stated before the first batch, are too few beside a reference.
    assert list(frame.index[~frame.is_due]) == ["c0"]
    assert frame.pair_verdict["c0"] == "no change shown"
    assert frame.target_refused["b"] == "5 of 20 → 18 of 20"


def test_a_verdict_that_is_not_the_one_due_is_said_plainly(climbed: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(climbed, tmp_path / "project"))
    stated = root / "config" / "replays.toml"
    head, e, rest = stated.read_text().partition('title = "nothing changes"')
    rest = rest.replace('verdict = "no change shown"', 'verdict = "attributable to the target"', 1)
    stated.write_text(head + e + rest)
    shown = verdicts.replays(Pins(load_record("test", root=root)))
    assert "8 of 9 replays got the verdict that was due. Not so e:" in visible(shown)
    assert shown.text.count("not the one that was due") == 1


def test_a_record_without_batches_or_without_a_reference_says_so(
    phantom: Pins, project: Path, clock: Ticking
) -> None:
    assert "does not hold the batches" in visible(verdicts.replays(phantom))
    make_runs(project, clock, 1)
    bare = Pins(load_record("test", root=project))
    assert "longest answer" in visible(instrument.pinned(bare))
    for piece in (instrument.floors, verdicts.comparable, instrument.cost, verdicts.replays):
        assert "has the role of a reference target" in visible(piece(bare))


def test_a_record_with_one_run_has_no_pair(replayed: Pins, climbed: Path) -> None:
    run = replayed.passes[0].id
    first = Pins(load_record("test", root=climbed, as_of=run))
    assert "no pair to compare" in visible(verdicts.comparable(first))
    assert "one pass alone" in visible(instrument.reference_series(first, CAPTION))
    assert "unknown" in visible(instrument.floors(first))
    nothing = Pins(load_record("nothing", root=climbed))
    assert "holds no run yet" in visible(instrument.pinned(nothing))
