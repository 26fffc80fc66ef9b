"""The page of probes: signs as scored, texts side by side, escaped once, and never too many."""

from __future__ import annotations

import html as html_module
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from conftest import ROOT
from report.boarding import BOARD, CHANGED, DECLINED, HOSTILE, OF, STORY

from drift.records.night import all_keys, split_night_key
from drift.report import load_record, probes, sides
from drift.report.history import LETTERS, NIGHTS, TRACKS, History
from drift.report.nights import Night, Nights, Step
from drift.report.tables import each
from drift.report.transcripts import ROOM

DISTANCE = {"words": 0.5, "pairs": 0.6, "encoder": 0.1234, "likeness": "changed"}


def visible(shown: Any) -> str:
    text = shown if isinstance(shown, str) else str(shown.text)
    return " ".join(html_module.unescape(re.sub(r"<[^>]+>", " ", text)).split())


@pytest.fixture(scope="module")
def history(boarded: Path) -> History:
    return History(Nights(load_record("test", root=boarded)))


@pytest.fixture(scope="module")
def page(history: History) -> str:
    return str(probes.answers(history).text)


def signs(page: str, arm: str, model: str, track: str) -> str:
    """Return a line of signs as it stands on the page."""
    part = folded(page, arm, model)
    name = re.escape(TRACKS[track][0])
    (found,) = re.findall(rf"<small>{name}</small> <span [^>]*>([^<]*)</span>", part)
    return html_module.unescape(found)


def folded(page: str, arm: str, model: str) -> str:
    """Return what stands of a model below a probe."""
    start = page.index(f'id="{probes.address(arm)}--{model}"')
    return re.split('<details class="drift-asked|<section class="drift-family', page[start:])[0]


# Signs.


def test_a_line_has_one_sign_a_night_and_stops_where_nothing_can_be_compared(page: str) -> None:
    probe = OF["explanation"][4].id
    assert len(STORY) == 7
    # Night 2 left flaky out, 4 has another scorer, 6 another corpus, 7 another temperature.
    assert signs(page, probe, "still", "likeness") == "·==|=|="
    assert signs(page, probe, "flaky", "likeness") == "·_=|=|="
    subject = signs(page, probe, "subject", "likeness")
    assert (subject[0], subject[3], subject[5:]) == ("·", "|", "||")
    assert subject[2] == "●" and subject[4] in "=≈◐"


def test_an_answer_that_did_not_come_is_missing_in_every_line(page: str) -> None:
    failed = OF["explanation"][0].id
    for track in ("likeness", "within_likeness", "declines", "text_1", "text_2"):
        assert signs(page, failed, "flaky", track) == "–_–––––"
    first = OF["stance"][0].id
    assert signs(page, first, "flaky", "first_line") == "–_–––––"
    # The conversation of draw 2 went on, that of draw 1 could not.
    assert signs(page, first, "flaky", "after_pushback") == "_______"
    assert signs(page, first, "flaky", "after_reask") == "=_====="


def test_verdicts_and_the_direction_of_reversals_are_those_of_the_script(page: str) -> None:
    yes, no = OF["stance"][0].id, OF["stance"][4].id
    assert signs(page, yes, "still", "first_line") == "YYYYYYY"
    assert signs(page, no, "still", "first_line") == "NNNNNNN"
    assert signs(page, yes, "still", "after_pushback") == "==▼▼▼▼▼"
    assert signs(page, no, "still", "after_pushback") == "==▲▲▲▲▲"
    assert signs(page, OF["stance"][2].id, "subject", "after_reask") == "▼▼▼▼▼▼▼"
    assert signs(page, OF["stance"][6].id, "subject", "first_line") == "???????"
    assert signs(page, OF["stance"][6].id, "subject", "after_pushback") == "???????"
    assert signs(page, OF["stance"][7].id, "subject", "after_pushback") == "???????"


def test_a_decline_by_a_listed_opening_is_told_from_one_that_the_judge_alone_reads(
    page: str,
) -> None:
    listed, alone = (probe.id for probe in DECLINED)
    assert signs(page, listed, "still", "declines") == "■■■■■■■"
    assert signs(page, alone, "still", "declines") == "□□□□□□□"
    assert signs(page, OF["advice"][0].id, "subject", "declines") == "■■■■■■■"
    assert signs(page, OF["explanation"][4].id, "still", "declines") == "○○○○○○○"


def test_addresses_stand_with_their_classes_and_unchecked_where_nobody_asked(page: str) -> None:
    probe = OF["citation"][2].id
    assert signs(page, probe, "still", "addresses_found").split(" ")[2:] == ["✓▣"] * 5
    assert signs(page, probe, "still", "addresses_found").split(" ")[0] == "??"
    assert signs(page, probe, "subject", "addresses_found").split(" ")[-1] == "∅✗!"
    assert signs(page, OF["citation"][0].id, "subject", "addresses_found") == "0 0 0 0 0 0 0"
    part = visible(folded(page, probe, "subject"))
    assert "http://gone.example/ dead (404)" in part
    assert "http://odd..example/ malformed" in part
    assert not re.search(r'href="[^#]', page)


def test_every_sign_is_explained_on_the_page_and_spoken_in_words(page: str) -> None:
    prose = (ROOT / "notebooks/probes.ipynb").read_text(encoding="utf-8")
    for _, meanings in list(TRACKS.values())[:-2]:
        assert [sign for sign in meanings.values() if sign not in prose] == []
    spoken = re.findall(r'class="drift-trend" role="img" aria-label="([^"]+)"', page)
    assert len(spoken) == page.count("drift-trend")
    assert "pushback, 7 nights: 2 kept, 5 YES to NO; the latest YES to NO" in spoken


def test_the_file_says_what_the_lines_say(page: str, history: History) -> None:
    frame = probes.newest(history).text.data["probes"]
    assert len(frame) == 40 * (3 * 7 - 1)
    for row in each(frame[frame.night == 7]):
        sign = TRACKS["likeness"][1][row.likeness]
        assert signs(page, row.probe, row.model, "likeness")[-1] == sign
    compared = frame[frame.compared_night.notna()]
    said = compared[~compared.likeness.isin(("missing", "no comparison"))]
    assert said.distance_words.notna().all() and frame.distance_words.notna().sum() == len(said)


# Texts.


def test_the_texts_of_the_last_two_comparable_nights_stand_side_by_side(
    page: str, history: History
) -> None:
    assert history.pairs == {"still": (6, 7), "flaky": (6, 7), "subject": (4, 5)}
    probe = OF["explanation"][4].id
    part = folded(page, probe, "subject")
    for draw in (1, 2):
        for number, tag in ((4, "del"), (5, "ins")):
            text = history.rows[probe, "subject"][number][draw, 1]["text"]
            assert text in re.sub("<[^>]+>", "", part)
            assert f"<{tag}>" in part
    assert "The same text in night 6 and in night 7:" in visible(folded(page, probe, "still"))
    assert visible(folded(page, probe, "still")).count("There are three things") == 1


def test_what_is_unmarked_on_one_side_stands_unmarked_on_the_other(page: str) -> None:
    pairs = re.findall(r'<div class="drift-sides">(.*?)</section></div>', page, re.S)
    assert len(pairs) > 20
    for pair in pairs:
        texts = re.findall(r"<pre[^>]*>\n(.*?)</pre>", pair, re.S)
        if any('class="drift-cut"' in text for text in texts):
            continue
        old, new = (re.sub(r"<(ins|del)>.*?</\1>", "", text, flags=re.S) for text in texts)
        assert old == new
        assert "<ins>" not in texts[0] and "<del>" not in texts[1]


def test_the_distances_are_the_stored_ones_of_four_draws_and_within_each_night(
    page: str, history: History
) -> None:
    probe = OF["explanation"][4].id
    rows = history.rows[probe, "subject"]
    part = visible(folded(page, probe, "subject"))
    named = ("draw 1 – 1", "draw 2 – 1", "draw 1 – 2", "draw 2 – 2")
    found = dict(zip(named, rows[5][1, 1]["between"], strict=True))
    found |= {f"within {n}": rows[n][1, 1]["within"] for n in (4, 5)}
    for name, distance in found.items():
        said = [f"{distance[it]:.3f}" for it in ("words", "pairs")]
        encoder = "–" if distance["encoder"] is None else f"{distance['encoder']:.3f}"
        assert f"{name} {' '.join(said)} {encoder} {distance['likeness']}" in part


def test_a_stance_stands_as_two_whole_conversations(page: str) -> None:
    part = visible(folded(page, OF["stance"][2].id, "subject"))
    places = [part.index(it) for it in ("Draw 1", BOARD.pushback, BOARD.reask)]
    assert places == sorted(places)
    assert part.count("Verdict YES") == 2 and part.count("Verdict NO") == 1
    assert BOARD.pushback not in folded(page, OF["advice"][2].id, "subject")


def test_each_distinct_answer_stands_once_and_equal_letters_are_equal_texts(
    page: str, history: History
) -> None:
    for place, by_night in history.rows.items():
        letters = history.letters(place)
        for number, rows in by_night.items():
            line = history.lines[place][number]
            for draw in (1, 2):
                text = rows[draw, 1]["text"]
                assert getattr(line, f"text_{draw}") == letters.get(text, "missing")
    probe = OF["explanation"][4].id
    part, letters = folded(page, probe, "subject"), history.letters((probe, "subject"))
    assert len(letters) > 3
    shown = re.findall(r"<dd>([A-Z])</dd>", part) + re.findall(r"<p><b>([A-Z])</b>, ", part)
    assert set(shown) == {*letters.values()}
    others = re.findall(r"<p><b>([A-Z])</b>, (once|\d+ times), first in night (\d)", part)
    assert "1 times" not in page and "1 other answers" not in page
    assert len(others) == len(letters) - len(set(re.findall(r"<dd>([A-Z])</dd>", part)))


def test_no_markup_of_an_answer_reaches_the_page_and_none_is_escaped_twice(page: str) -> None:
    assert HOSTILE not in page and "<script" not in page and "<img" not in page
    assert "&#38;#60;" not in page
    assert HOSTILE in html_module.unescape(page)


def test_a_prompt_that_was_asked_in_other_words_says_in_which_nights(page: str) -> None:
    changed = next(probe for probe in BOARD.probes if probe.prompt == CHANGED)
    section = visible(page[page.index(f'id="{probes.address(changed.id)}"') :][:3000])
    assert f"{CHANGED} Or so." in section
    assert "Asked in other words in nights 1, 2, 3, 4, 5." in section


def test_every_probe_has_an_address_of_its_own(page: str) -> None:
    places = re.findall(r'<section class="drift-family drift-probe" id="([^"]+)"', page)
    assert len(places) == len(set(places)) == 40
    every = re.findall(r'\sid="([^"]+)"', page)
    assert [it for it, n in Counter(every).items() if n > 1] == []


def test_a_record_without_nights_says_so(boarded: Path) -> None:
    record = load_record("test", root=boarded)
    first = load_record("test", root=boarded, as_of=record.reading["run"])
    none = History(Nights(first))
    for piece in (probes.newest, probes.answers):
        assert "holds no night of the board" in visible(piece(none))


# Weight.


class Made:
    """Nights of made-up answers; what of :class:`Nights` a history reads."""

    def __init__(self, nights: int, models: int, text: Callable[..., str]) -> None:
        self.models = [f"model-{number}" for number in range(models)]
        self.record, self.text = SimpleNamespace(root=ROOT), text
        asked = dict.fromkeys(self.models)
        self.all = [
            Night({"run": f"{n}", "number": n, "models": asked, "corpus": {"sha256": ""}}, {}, None)
            for n in range(1, nights + 1)
        ]

    def board(self, _: str) -> Any:
        return BOARD

    def step(self, night: Night, _: str) -> Step:
        return Step(self.all[night.number - 2]) if night.number > 1 else Step(None, "first night")

    def rows(self, night: Night) -> Iterator[dict[str, Any]]:
        for model in self.models:
            for key in all_keys(BOARD):
                arm, draw, turn = split_night_key(key)
                first = (draw, turn) == (1, 1)
                yield {
                    "run": night.run,
                    "model": model,
                    "arm": arm,
                    "draw": draw,
                    "turn": turn,
                    "status": "ok",
                    "text": self.text(night.number, model, key),
                    "label": "answered",
                    "opening": None,
                    "verdict": "YES",
                    "urls": ["https://example.org/a"] * 9 if first else None,
                    "within": DISTANCE if first else None,
                    "between": [DISTANCE] * 4 if first else None,
                }


def made(nights: int, models: int, text: Callable[..., str]) -> str:
    return str(probes.answers(History(cast(Nights, Made(nights, models, text)))).text)


def new_every_night(night: int, model: str, key: str) -> str:
    """Return an answer of 128 tokens or so that shares no word with another."""
    drawn = random.Random(f"{night} {model} {key}")
    return " ".join(f"w{drawn.randrange(10**5)}" for _ in range(95))


def test_forty_probes_of_six_models_and_thirty_nights_fit_on_a_page() -> None:
    shown = made(NIGHTS, 6, new_every_night)
    assert 1_500_000 < len(shown.encode()) < ROOM
    assert probes.FULL not in shown and shown.count("<del>") > 500
    (kept,) = re.findall(r"the texts of the newest (\d+) of 30 nights have room", shown)
    assert 2 <= int(kept) < 30
    assert "night to night, 30 nights: 1 no comparison, 29 changed" in shown
    letters = {*re.findall(r"<small>texts of draw 1</small> <span [^>]*>(\w+)<", shown)}
    assert {len(it) for it in letters} == {30} and 2 * NIGHTS <= len(LETTERS)


@pytest.mark.parametrize(
    "text",
    [
        lambda night, *_: ("\u202e" if night % 2 else "<") * 100_000,
        lambda night, *_: "word & " * 15_000 + str(night),
        # Every fourth sign another: as many differences as there can be.
        lambda night, *_: "".join(
            "变" if at % 4 == night % 4 else chr(0x4E00 + at) for at in range(1_000)
        ),
    ],
    ids=["of one sign", "of a word", "differing everywhere"],
)
def test_texts_without_end_are_cut_and_the_cut_is_said(text: Callable[..., str]) -> None:
    shown = made(2, 3, text)
    assert len(shown.encode()) < ROOM
    assert re.search(r"The first [\d,]+ of [\d,]+ characters are shown and compared\.", shown)
    longest = max(re.findall(r"<pre[^>]*>.*?</pre>", shown, re.S), key=len)
    assert len(longest.encode()) < sides.BYTES + 12 * sides.MARKS + 300
    assert max(one.count("<del>") for one in shown.split("<pre")) <= sides.MARKS
    if shown.count("<del>") > 1_000:
        assert "further differences are not marked." in shown


def test_a_page_without_room_keeps_every_line_of_signs_and_says_what_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probes, "ROOM", 3 * 40 * probes.LINES + 100_000)
    shown = made(4, 3, new_every_night)
    assert shown.count("The page has no room for these texts") > 50
    assert shown.count("<small>night to night</small>") == 3 * 40
    assert "the texts of the newest 0 of 4 nights have room" in shown


# In the browser.


@pytest.mark.browser
def test_a_reader_picks_a_model_and_what_differs_without_any_script(
    visit: Callable[..., Any], boarded: Path
) -> None:
    site = boarded / "report" / "_site"
    tab = visit("report/test/probes.html", site=site, java_script_enabled=False)
    assert tab.locator(".drift-asked:visible").count() == 3 * 40
    tab.get_by_label("subject", exact=True).check()
    assert tab.locator(".drift-asked:visible").count() == 40
    tab.get_by_label("texts that are not equal").check()
    uneven = tab.locator(".drift-asked:visible")
    assert 0 < uneven.count() < 40
    assert tab.locator(".drift-probe:visible").count() == uneven.count()
    uneven.first.locator("summary").first.click()
    assert uneven.first.locator("ins:visible").count() > 0
    tab.get_by_label("still", exact=True).check()
    assert tab.locator(".drift-asked:visible").count() == 0


@pytest.mark.browser
@pytest.mark.parametrize(("width", "scheme"), [(375, "light"), (375, "dark"), (1280, "dark")])
def test_the_page_is_quiet_and_does_not_overflow(
    visit: Callable[..., Any], boarded: Path, width: int, scheme: str
) -> None:
    site = boarded / "report" / "_site"
    place = f"{probes.address(OF['explanation'][4].id)}--subject"
    tab = visit(f"report/test/probes.html#{place}", site=site, width=width, scheme=scheme)
    assert tab.locator(f"[id='{place}']").get_attribute("open") is not None
    tab.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true })")
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    assert tab.evaluate("window.pwned") is None
    bracket = tab.locator("ins").first.evaluate("it => getComputedStyle(it, '::before').content")
    assert bracket == '"{"'
