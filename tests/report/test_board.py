"""The page of the board: counts as scripted, means as stored, and no delta across a change."""

from __future__ import annotations

import dataclasses
import html as html_module
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from conftest import ROOT
from report.boarding import BOARD, DECLINED, OF, STORY

from drift.judging.encoder import Encoder
from drift.records.replays import load_nights
from drift.report import board, load_record, metrics, multiples
from drift.report.nightly import Nightly
from drift.report.nights import Nights
from drift.report.tables import each
from drift.stats import holm, wilson_interval

CAPTION = "What to see."
FIGURES = (metrics.refusals, metrics.reversals, metrics.citations, metrics.drift, metrics.excess)
PIECES = (
    board.last_night,
    board.seeds,
    board.asked,
    board.identities,
    board.corpora,
    board.expected,
)
#: Nights in which nothing is compared, by model.
BROKEN = {"still": {1, 4, 6}, "subject": {1, 4, 6, 7}, "flaky": {1, 4, 6}}


def visible(shown: Any) -> str:
    text = shown if isinstance(shown, str) else str(shown.text)
    return " ".join(html_module.unescape(re.sub(r"<[^>]+>", " ", text)).split())


@pytest.fixture(scope="module")
def nightly(boarded: Path) -> Nightly:
    return Nightly(Nights(load_record("test", root=boarded)))


@pytest.fixture(scope="module")
def third(boarded: Path) -> Nightly:
    """The record as it was after the night in which `subject` was rewritten."""
    nights = Nights(load_record("test", root=boarded))
    nights.all = nights.all[:3]
    return Nightly(nights)


def rows(frame: pd.DataFrame, **where: Any) -> list[Any]:
    for name, value in where.items():
        frame = frame[frame[name] == value]
    return list(each(frame))


def row(frame: pd.DataFrame, **where: Any) -> Any:
    (found,) = rows(frame, **where)
    return found


# Refusals.


def test_declines_are_counted_by_opening_and_by_judge_each_of_what_it_read(
    nightly: Nightly,
) -> None:
    frame = nightly.refusals
    for night in range(1, 8):
        by = {it.reader: it for it in rows(frame, model="still", night=night)}
        assert (by["opening"].cases, by["opening"].out_of) == (1, 40)
        # Two answers to Chinese probes in English are none that the judge determines.
        assert by["judge"].cases == len(DECLINED) and by["judge"].out_of <= 40
        assert (by["opening"].opening_only, by["opening"].judge_only) == (0, 1)
    late = {it.reader: it for it in rows(frame, model="subject", night=5)}
    assert (late["opening"].cases, late["judge"].cases) == (1, 0)
    assert (late["opening"].opening_only, late["opening"].judge_only) == (1, 0)
    for it in each(frame):
        interval = wilson_interval(it.cases, it.out_of)
        assert (it.low, it.high) == (interval.low, interval.high)


def test_what_did_not_come_leaves_every_denominator_and_is_counted(nightly: Nightly) -> None:
    it = row(nightly.refusals, model="flaky", night=1, reader="opening")
    # One explanation failed, one is empty, one stance failed; one is cut short and read.
    assert (it.answers_due, it.answered, it.out_of, it.truncated) == (40, 37, 37, 1)
    asked = row(board.asked(nightly).text.data["board-nights"], model="flaky", night=1)
    assert asked.answers_said + asked.answers_failed + asked.answers_empty == 96 - 1
    assert (asked.answers_failed, asked.answers_empty, asked.answers_not_asked) == (5, 2, 1)
    words = visible(board.asked(nightly))
    assert "flaky: 88 of 96, 2 cut, 2 empty, 5 failed, 1 not asked" in words
    assert "none waits for a day to pass" in words


def test_declines_that_moved_are_those_of_probes_answered_in_both_nights(
    nightly: Nightly,
) -> None:
    judge = row(nightly.refusals, model="subject", night=3, reader="judge")
    assert (judge.newly_declined, judge.no_longer_declined) == (0, 2)
    opening = row(nightly.refusals, model="subject", night=3, reader="opening")
    assert (opening.newly_declined, opening.no_longer_declined) == (0, 1)
    assert opening.probes_compared == 40
    flaky = row(nightly.refusals, model="flaky", night=3, reader="opening")
    assert (flaky.compared_night, flaky.probes_compared) == (1, 37)
    for it in each(nightly.refusals):
        broken = it.night in BROKEN[it.model]
        assert pd.isna(it.newly_declined) == pd.isna(it.compared_night) == broken


# Verdicts.


def test_reversals_keep_their_direction_and_leave_out_what_cannot_be_read(
    nightly: Nightly,
) -> None:
    def counts(model: str, night: int, after: str) -> tuple[int, ...]:
        it = row(nightly.reversals, model=model, night=night, asked_after=after)
        assert it.out_of == it.answers_due - it.unreadable - it.unanswered
        assert it.cases == it.yes_to_no + it.no_to_yes
        return (it.yes_to_no, it.no_to_yes, it.out_of, it.unreadable, it.unanswered)

    assert counts("still", 1, "pushback") == (0, 0, 8, 0, 0)
    assert counts("still", 3, "pushback") == (1, 2, 8, 0, 0)
    assert counts("still", 3, "plain re-ask") == (0, 0, 8, 0, 0)
    # The sixth is no verdict from the first, the seventh none after the pushback.
    assert counts("subject", 2, "pushback") == (1, 0, 6, 2, 0)
    assert counts("subject", 2, "plain re-ask") == (1, 0, 7, 1, 0)
    # The first of draw 1 failed, the second turn of another failed in both draws.
    assert counts("flaky", 3, "pushback") == (0, 0, 6, 0, 2)
    assert counts("flaky", 3, "plain re-ask") == (0, 0, 7, 0, 1)
    assert rows(nightly.reversals, model="flaky", night=2) == []


# Citations.


def test_addresses_are_counted_by_class_and_the_rate_is_of_those_checked(
    nightly: Nightly,
) -> None:
    still = row(nightly.citations, model="still", night=3)
    assert (still.addresses, still.addresses_resolvable, still.addresses_blocked) == (16, 8, 8)
    assert (still.cases, still.out_of, still.estimate) == (8, 16, 0.5)
    subject = row(nightly.citations, model="subject", night=3)
    found = (subject.addresses_nonexistent_domain, subject.addresses_dead)
    assert (*found, subject.addresses_malformed, subject.out_of) == (7, 6, 6, 19)
    assert (subject.without_address, subject.answered) == (1, len(OF["citation"]))


def test_a_night_whose_network_was_not_asked_is_not_checked_and_no_zero(
    nightly: Nightly,
) -> None:
    it = row(nightly.citations, model="still", night=1)
    assert (it.addresses_unchecked, it.out_of) == (16, 0) and pd.isna(it.estimate)
    assert it.reason == "not checked: nobody asked the network" and pd.isna(it.share_drawn)
    second = row(nightly.citations, model="still", night=2)
    assert second.share_drawn == 0.5 and 0 < second.addresses_unchecked < 16
    assert second.out_of == 16 - second.addresses_unchecked
    assert "not drawn into the sample" in second.unchecked_why
    # Another budget is another check, and none at all no comparison.
    assert second.not_compared_why == "addresses not checked"
    third = row(nightly.citations, model="still", night=3)
    assert third.not_compared_why == "methodology changed: link check"
    assert row(nightly.citations, model="still", night=5).compared_night == 4
    words = visible(metrics.citations(nightly, CAPTION))
    assert "16 where 16 were asked for" in words and "50 %" in words


# Distances.


def test_a_mean_is_over_the_probes_that_can_be_compared_and_says_how_many(
    nightly: Nightly, encoder: Encoder
) -> None:
    nights = nightly.nights
    answers = pd.DataFrame(row for night in nights.all for row in nights.rows(night))
    first = answers[(answers.draw == 1) & (answers.turn == 1) & (answers.model == "subject")]
    now, then = (first[first.night == night].set_index("arm") for night in (3, 2))
    for measure, codes in (("words", ("en", "zh")), ("pairs", ("zh",)), ("encoder", ("en",))):
        of = now[now.language.isin(codes)]
        where = {"model": "subject", "night": 3, "distance_measure": measure}
        where |= {"probe_language": "all" if len(codes) > 1 else codes[0]}

        def far(found: Any, measure: str = measure) -> float:
            return min(1.0, float(found[measure]))

        between = [sum(map(far, four)) / 4 for four in of.between]
        own = [(far(it.within) + far(then.within[it.Index])) / 2 for it in of.itertuples()]
        beyond = [one - two for one, two in zip(between, own, strict=True)]
        for quantity, values in (("between", between), ("excess", beyond)):
            it = row(nightly.drifts, quantity=quantity, **where)
            assert it.probes_compared == len(of)
            assert it.mean_distance == pytest.approx(sum(values) / len(values))
            assert it.mean_low <= it.mean_distance <= it.mean_high


def test_nothing_is_compared_across_a_change_and_the_reason_stands_there(
    nightly: Nightly,
) -> None:
    reasons = {
        ("still", 1): "first night",
        ("still", 4): "methodology changed: scorer",
        ("still", 6): "methodology changed: prompt set",
        ("subject", 7): "instrument changed",
    }
    for (model, night), reason in reasons.items():
        for quantity in ("between", "excess"):
            for it in rows(nightly.drifts, model=model, night=night, quantity=quantity):
                assert (it.reason, it.probes_compared) == (reason, 0)
                assert pd.isna(it.mean_distance) and pd.isna(it.split_p)
    assert {it.compared_night for it in rows(nightly.drifts, model="flaky", night=3)} == {1}
    drawn = str(metrics.drift(nightly, CAPTION).text)
    picture = drawn.split("</svg>")[0]
    assert picture.count(">methodology changed<") == 6
    assert picture.count(">instrument changed<") == 1
    assert "methodology changed: scorer" in visible(drawn)


def test_the_counts_of_likeness_are_of_first_draws_and_add_up(nightly: Nightly) -> None:
    names = ("equal", "near", "changed", "rewrite")
    for it in rows(nightly.tested, quantity="between"):
        counts = [getattr(it, f"{name}_answers") for name in names]
        if it.night in BROKEN[it.model]:
            assert all(pd.isna(n) for n in counts)
        else:
            assert sum(counts) == it.probes_compared
    still = row(nightly.tested, model="still", night=2, quantity="between")
    assert (still.equal_answers, still.mean_distance, still.mean_low) == (40, 0, 0)
    moved = row(nightly.tested, model="subject", night=3, quantity="between")
    plain = [*OF["explanation"], *OF["advice"][1:], *OF["sensitive"]]
    assert moved.rewrite_answers == sum(probe.language == "en" for probe in plain)


def test_the_excess_sees_a_rewrite_and_no_model_that_only_drifts_from_itself(
    nightly: Nightly,
) -> None:
    def look(model: str, night: int) -> Any:
        return row(nightly.tested, model=model, night=night, quantity="excess")

    within = row(nightly.tested, model="subject", night=2, quantity="within")
    assert within.mean_distance > 0.05
    assert look("subject", 2).split_p > 0.2 and look("still", 3).split_p == pytest.approx(1)
    assert look("subject", 3).split_p < 1e-6 and look("subject", 3).mean_low > 0
    assert look("subject", 3).mean_distance > 0.25
    # Adjusted over the models of a night, and the only ones that are tested.
    tested = nightly.drifts[nightly.drifts.split_p.notna()]
    assert nightly.looks == len(tested) == sum(7 - len(it) for it in BROKEN.values()) - 1
    for _, of in tested.groupby("night"):
        assert list(of.night_holm) == pytest.approx(list(holm(list(of.split_p))))


def test_chinese_has_no_encoder_distance_and_a_missing_encoder_says_so(
    nightly: Nightly, encoder: Encoder
) -> None:
    of = nightly.drifts[nightly.drifts.distance_measure == "encoder"]
    assert set(of.probe_language) == {"en"}
    english = sum(probe.language == "en" for probe in BOARD.probes)
    with_it = row(of, model="still", night=2, quantity="between")
    assert (with_it.probes_compared, with_it.mean_distance) == (english, 0)
    without = row(of, model="still", night=5, quantity="between")
    assert without.probes_compared == 0 and "have not been fetched" in without.reason
    assert row(of, model="subject", night=3, quantity="between").mean_distance > 0.2


# The page.


def test_the_page_begins_with_what_changed_last_night(third: Nightly, nightly: Nightly) -> None:
    words = visible(board.last_night(third))
    assert words.startswith("Night 3 , 2026-03-01 00:20 UTC (subject is rewritten;")
    moved, rest = words.split("Without noise of its own in either night;")
    assert "Answers moved beyond the model's own noise" in moved and "subject (excess" in moved
    assert rest.strip().startswith(
        "first answers that are not equal: flaky 0 of 37, still 0 of 40."
    )
    assert "subject 1 no longer declined by a listed opening" in rest
    assert "by the judge" not in rest and "1, 2 (0, 0)" in rest
    within = row(third.tested, model="subject", night=2, quantity="within").mean_distance
    assert f"n 40 ({metrics.number(within)}, n 40)" in rest
    assert "3 of 8 (0 of 8)" in rest and "5 so far; p is adjusted by Holm over the 3" in rest
    assert "at most one night of 20 on average." in rest
    last = visible(board.last_night(nightly))
    assert "Not compared: subject (instrument changed)" in last
    assert "Answers moved" not in last and "Declines since then" not in last


def test_a_model_with_too_few_probes_is_not_tested_and_no_unmoved_one(nightly: Nightly) -> None:
    look = nightly.row("drifts", nightly.asked[-1], quantity="excess", **board.OF_TESTED)
    # Three models are tested in night 3: 3^-4 < .05/3 < 3^-3.
    for n, too_few in ((3, True), (4, False), (40, False)):
        look |= {"night": 3, "probes_compared": n, "night_holm": 0.4}
        assert nightly.too_few(look) == too_few
        assert board._p(nightly, look) == (
            "too few probes" if too_few else "p\N{NO-BREAK SPACE}.400"
        )
    assert not nightly.too_few(look | {"probes_compared": 3, "night_holm": 0.05})


def test_models_that_answered_alike_are_one_look_shown_twice(third: Nightly) -> None:
    assert third.repeated == {}
    twin = Nightly(third.nights)
    (still,) = (one for one in twin.asked if (one.model, one.night.number) == ("still", 3))
    twin.asked.append(dataclasses.replace(still, model="flaky"))
    assert twin.repeated == {("still", "flaky"): [3]}
    said = "6 so far, 5 of them distinct (still and flaky gave the same first answers"
    assert said in visible(str(board._looks(twin)))


def test_nights_whose_seed_served_all_probes_say_that_p_is_too_small(boarded: Path) -> None:
    nights = Nights(load_record("test", root=boarded))
    old = [dataclasses.replace(night, body=_seeded(night.body, "per-run")) for night in nights.all]
    assert "No seed that was sent served two" in visible(board.seeds(Nightly(nights)))
    nights.all = [*old[:2], *nights.all[2:]]
    assert "In nights 1 to 2 one seed served all probes" in visible(board.seeds(Nightly(nights)))
    nights.all = old[:2]
    assert "served all probes of a draw, and p is too small" in visible(
        board.last_night(Nightly(nights))
    )


def _seeded(body: Any, policy: str) -> dict[str, Any]:
    """Return a night's line as it was before it told of seeds, under a policy of seeds."""
    models = {
        name: model | {"document": model["document"] | {"seed_policy": policy}}
        for name, model in body["models"].items()
    }
    return {name: of for name, of in body.items() if name != "seeds"} | {"models": models}


def test_the_banner_of_the_record_is_put_right_for_nights(boarded: Path) -> None:
    record = load_record("test", root=boarded)
    assert "No line of the chain seals that file" in visible(board.premises(Nights(record)))
    early = load_record("test", root=boarded, as_of=record.reading["run"])
    assert visible(board.premises(Nights(early))) == ""


def test_identities_say_which_nights_are_of_one_make(nightly: Nightly) -> None:
    frame = board.identities(nightly).text.data["board-identities"]
    of = frame.groupby("identity").nights.agg(list)
    assert of["prompt set"] == ["1 to 5", "6 to 7"]
    assert of["scorer, code and rules"] == ["1 to 3", "4 to 7"]
    assert of["encoder weights"] == ["1 to 7"]


def test_the_prompts_are_linked_as_the_record_keeps_them(nightly: Nightly, boarded: Path) -> None:
    text = str(board.corpora(nightly).text)
    links = re.findall(r'href="([^"]+)"', text)
    page = boarded / "report" / "_site" / "report" / "test"
    assert len(links) == 2
    assert (page / links[0]).read_bytes() == (ROOT / "config/board.json").read_bytes()
    assert (page / links[1]).exists()
    assert BOARD.pushback in html_module.unescape(text)


def test_what_a_laboratory_expected_stands_beside_what_came(
    nightly: Nightly, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "No expectation was stated" in visible(board.expected(nightly))
    plan = load_nights(ROOT)
    mine = plan.nights[0].model_copy(update={"what": STORY[0]})
    monkeypatch.setattr(
        board, "load_nights", lambda root: plan.model_copy(update={"nights": (mine,)})
    )
    words = visible(board.expected(nightly))
    assert " ".join(plan.expected.split())[:200] in words
    assert "methodology changed: scorer; within .00, n 40" in words and "not asked" in words
    came = (
        r"excess \.\d\d, n 40; p <\.001; between \.\d\d, n 40; within \.\d\d, n 40; 20 of 40 first"
    )
    assert re.search(came, words)


def test_every_measure_stands_by_language_for_the_last_night_of_each_model(
    nightly: Nightly,
) -> None:
    words = visible(metrics.measures(nightly))
    for language in ("all", "English", "Chinese"):
        assert f"still 7 words {language} .00 (.00 to" in words
    assert "still 7 encoder English" in words and "encoder Chinese" not in words
    assert "subject 7 words all not estimable: instrument changed" in words


def test_a_long_record_draws_its_newest_nights_and_keeps_all_in_the_file(
    nightly: Nightly, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "SHOWN", 2)
    text = metrics.refusals(nightly, CAPTION).text
    assert "Drawn and listed are the newest 2 nights" in text
    assert set(text.data["board-refusals"].night) == set(range(1, 8))
    assert "flaky, 2 nights" in text


def test_many_nights_stand_in_one_column_with_their_texts_turned(
    nightly: Nightly, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = str(metrics.refusals(nightly, CAPTION).text)
    monkeypatch.setattr(multiples, "NARROW", 3)
    monkeypatch.setattr(multiples, "UPRIGHT", 3)
    many = str(metrics.refusals(nightly, CAPTION).text)
    tall = [float(re.findall(r'viewBox="0 0 \S+ (\S+)"', text)[0]) for text in (few, many)]
    assert tall[1] > 1.4 * tall[0] and many.count("rotate(-90)") > few.count("rotate(-90)")
    assert many.count(">1/40<") == few.count(">1/40<") > 0


def test_a_record_without_nights_says_so_and_how_to_make_one(boarded: Path) -> None:
    record = load_record("test", root=boarded)
    none = Nightly(Nights(load_record("test", root=boarded, as_of=record.reading["run"])))
    for shown in [*(piece(none) for piece in PIECES), *(it(none, CAPTION) for it in FIGURES)]:
        assert visible(shown) == "This record holds no night of the board; drift board makes one."


def test_what_a_night_says_of_itself_is_inert(boarded: Path) -> None:
    page = (boarded / "report/_site/report/test/board.html").read_text(encoding="utf-8")
    assert "window.pwned" in html_module.unescape(page) and "<script>window.pwned" not in page
    front = (boarded / "report/_site/index.html").read_text(encoding="utf-8")
    assert 'href="report/test/board.html"' in front and 'href="report/test/probes.html"' in front


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_quiet_and_does_not_overflow_a_phone(
    visit: Callable[..., Any], boarded: Path, scheme: str
) -> None:
    site = boarded / "report" / "_site"
    tab = visit("report/test/board.html", site=site, width=375, scheme=scheme)
    tab.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true })")
    assert tab.evaluate("document.documentElement.scrollWidth") == 375
    assert tab.evaluate("window.pwned") is None
    assert tab.locator("figure.drift-figure svg").count() == len(FIGURES)
