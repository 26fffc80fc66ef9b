"""The page of ladders counts what conversations came to; a copy of the record holds them."""

from __future__ import annotations

import html as html_module
import json
import re
import shutil
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from report.climbing import ENGLISH, FULL, HARDENED, HELD, HOSTILE, RELEASED, WRITTEN

from drift.records.reproduce import reproduce_record
from drift.records.verify import verify_record
from drift.report import conversations, integrity, ladders, load_record
from drift.report.ladders import Batches
from drift.report.site import RecordRef, plan
from drift.report.tables import each
from drift.stats import wilson_interval

CAPTION = "What to see."
SENSITIVE = [ladder for ladder in ENGLISH if not ladder.control]


def visible(shown: Any) -> str:
    text = shown if isinstance(shown, str) else str(shown.text)
    return " ".join(html_module.unescape(re.sub(r"<[^>]+>", " ", text)).split())


@pytest.fixture(scope="module")
def batches(climbed: Path) -> Batches:
    return Batches(load_record("test", root=climbed))


def due(turn: int) -> int:
    """Return how many sensitive ladders the scripted models decline at a turn."""
    declining = [*HELD, *(RELEASED if turn < 3 else ()), *(HARDENED if turn == 4 else ())]
    return sum(ladder in SENSITIVE for ladder in declining)


def test_the_share_declined_is_counted_turn_by_turn_with_its_denominator(batches: Batches) -> None:
    frame = ladders.refusals(batches, CAPTION).text.data["ladder-refusals"]
    rows = frame[(frame.set == "sensitive") & (frame.batch == "scripted-1")]
    for model, some in {"heated": 1, "operator": 1, "reference": 0}.items():
        of = rows[rows.model == model]
        assert list(of.refused) == [some * due(turn) for turn in range(1, 5)]
        assert set(of.n) == {len(SENSITIVE)}
    for row in each(rows):
        interval = wilson_interval(row.refused, row.n)
        assert (row.low, row.high) == (interval.low, interval.high)
    # English answers to Chinese questions have no determined label, and leave the denominator.
    chinese = frame[(frame.set == "Chinese") & (frame.batch == "scripted-1")]
    assert set(chinese.n) == {0} and chinese.reason.str.len().min() > 5


def test_elicitors_have_figures_of_their_own_and_are_never_pooled(batches: Batches) -> None:
    for piece in (ladders.refusals, ladders.outcomes):
        shown = piece(batches, CAPTION)
        assert len(shown.text.data) == 3
        for frame in shown.text.data.values():
            assert frame.elicitor.nunique() == 1
        assert set([*shown.text.data.values()][-1].batch) == {"asked-hotter"}


def test_the_alternative_text_holds_every_count_of_a_figure(batches: Batches) -> None:
    shown = ladders.refusals(batches, CAPTION).text
    alt = html_module.unescape(re.findall(r'aria-label="([^"]*)"', shown)[0])
    held, n = due(1), len(SENSITIVE)
    assert f"heated, scripted-1: ask {held} of {n} (" in alt
    bars = ladders.outcomes(batches, CAPTION).text
    alt = html_module.unescape(re.findall(r'aria-label="([^"]*)"', bars)[0])
    assert f"operator, operator-cautious, ask: {n} declined" in alt


def test_what_a_ladder_came_to_is_what_its_script_did(batches: Batches) -> None:
    shown = ladders.came_to(batches)
    frame = shown.text.data["ladders"]
    mine = frame[(frame.batch == "scripted-2") & (frame.model == "heated")]
    came = dict(zip(mine.ladder, mine.came_to, strict=True))
    for of, word in ((HELD, "held"), (RELEASED, "released"), (HARDENED, "hardened")):
        assert [came[ladder.id] for ladder in of] == [word] * len(of)
    assert came[FULL[0].id] == "answered"
    cautious = frame[(frame.batch == "operator-cautious") & (frame.model == "operator")]
    assert set(cautious.came_to) == {"held"}
    assert f'href="#{HARDENED[0].item.replace("/", "-")}"' in shown.text
    (row, *_) = re.findall(r"<tr><td>heated</td><td>[^<]*<span[^>]*>scripted-2.*?</tr>", shown.text)
    counts = Counter(mine.came_to[mine.set == "sensitive"])
    numbers = [int(n) for n in re.findall(r">(\d+)<", row)]
    assert sorted(filter(None, numbers)) == sorted(counts.values())


def test_each_ladder_takes_three_steps_and_each_step_is_counted_once(batches: Batches) -> None:
    shown = ladders.transitions(batches)
    frame = shown.text.data["ladder-transitions"]
    one = frame[(frame.batch == "scripted-1") & (frame.model == "operator")]
    assert one.steps.sum() == 3 * 24
    mine = one[one.set == "sensitive"]
    after = mine[mine.outcome_before == "declined"]
    held = sum(ladder in SENSITIVE for ladder in HELD)
    assert after.steps[after.outcome_after == "declined"].sum() >= 3 * held
    gone = sum(ladder in SENSITIVE for ladder in RELEASED)
    assert after.steps[after.outcome_after == "full"].sum() == gone
    assert "steps: " in visible(shown)


def test_every_conversation_stands_there_escaped_with_the_elicitors_words_marked(
    batches: Batches,
) -> None:
    shown = str(conversations.transcripts(batches).text)
    assert WRITTEN not in shown and HOSTILE not in shown and "<script" not in shown
    assert shown.count("written by the elicitor, a model") == 2 * 2 * 24 * 3
    assert HOSTILE in html_module.unescape(shown) and WRITTEN in html_module.unescape(shown)
    held = 5 * 3 * 24 + 2 * 2 * 24
    assert shown.count('<div class="drift-response">') == 4 * held
    assert shown.count("<section") == 24 and "rule en-sorry-cannot" in shown
    places = re.findall(r'<section[^>]* id="([^"]+)"', shown)
    assert len(set(places)) == 24
    for link in re.findall(r'href="#([^"]+)"', ladders.came_to(batches).text):
        assert link in places


def test_a_page_holds_the_newest_batches_that_fit(
    batches: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversations, "ROOM", 200_000)
    shown = visible(conversations.transcripts(batches))
    assert re.match(r"The newest 1 batches; the record holds 6 older ones\.", shown)
    assert "asked-hotter" in shown and "scripted-1" not in shown


def test_a_record_without_batches_says_so_and_has_no_such_page(climbed: Path) -> None:
    for record in (
        load_record("phantom", root=ROOT),
        load_record("test", root=climbed, as_of=load_record("test", root=climbed).reading["run"]),
    ):
        none = Batches(record)
        for piece in (
            ladders.made,
            ladders.came_to,
            ladders.transitions,
            conversations.transcripts,
        ):
            assert "holds no batch of ladders" in visible(piece(none))
    jobs = plan(climbed, [RecordRef("phantom", ROOT / "data/phantom")])
    assert "phantom/ladders" not in {job.page for job in jobs}
    assert (climbed / "report/_site/report/test/ladders.html").exists()


def test_the_batches_name_what_was_done_and_by_which_judge_they_are_read(batches: Batches) -> None:
    frame = ladders.made(batches).text.data["batches"]
    assert list(frame.batch)[:2] == ["scripted-1", "operator-direct"]
    assert frame.done.str.len().min() > 10 and set(frame.rubric) == {"1"}
    assert set(frame.ladders) == {"14 sensitive, 6 control, 4 Chinese"}


# A copy of the record, as the site gives it away.


def test_a_downloaded_record_verifies_with_its_batches(climbed: Path, tmp_path: Path) -> None:
    given = climbed / "report/_site/report/test/record"
    copy = tmp_path / "copy" / "test"
    shutil.copytree(given / "corpora", copy / "corpora")
    for path in given.glob("*.json*"):
        if path.name != "index.json":
            shutil.copy(path, copy)
    for path in given.glob("*.zip"):
        with zipfile.ZipFile(path) as packed:
            packed.extractall(copy)
    found = verify_record(copy, root=climbed)
    assert (found.problems, found.assurance, found.batches) == ([], "complete", 7)
    again = reproduce_record(copy, root=climbed, scratch=tmp_path / "scratch")
    assert again.difference is None
    (month,) = json.loads((given / "index.json").read_bytes())["months"]
    assert len(month["batches"]) == 7 and len(month["runs"]) == 1


def test_the_commands_fetch_the_questions_of_the_batches(climbed: Path) -> None:
    record = load_record("test", root=climbed)
    assert re.search(r"corpora/ladders-[0-9a-f]{12}\.json", integrity.commands(record).text)
    words = visible(integrity.chain(record))
    assert re.search(r"batch 7 \d", words) and re.search(r"outcomes 7 \d", words)
    judges = integrity.judges(record).text.data["labels-lines"].set_index("judge")
    assert judges.labels_lines["ladder"] == 7 and not judges.is_read["ladder"]
    assert re.search(r"2026-03.zip 1 7", visible(integrity.months(record)))


@pytest.mark.browser
def test_a_month_with_batches_holds_in_the_browser_and_an_edited_answer_does_not(
    visit: Callable[..., Any], climbed: Path, tmp_path: Path
) -> None:
    site = climbed / "report" / "_site"
    page = "report/test/integrity.html"
    verdict, said = verified(visit(page, site=site), "2026-03")
    assert verdict == "holds" and "runs and batches: 8 of 8 were read" in said
    assert verified(visit(page, site=site), "")[0] == "holds"
    copy = Path(shutil.copytree(site, tmp_path / "site"))
    corpus = next((copy / "report/test/record/corpora").glob("ladders-*"))
    corpus.write_bytes(corpus.read_bytes().replace(b"ibuprofen", b"iburpofen", 1))
    verdict, said = verified(visit(page, site=copy), "2026-03")
    assert verdict == "fails" and "not the questions that the chain names" in said


def verified(tab: Any, month: str) -> tuple[str, str]:
    tab.locator(".drift-verify select").select_option(month)
    tab.get_by_role("button", name="Verify").click()
    host = tab.locator(".drift-verify:not([data-verdict='']) button:enabled").locator("../..")
    return host.get_attribute("data-verdict"), host.inner_text()


@pytest.mark.browser
@pytest.mark.parametrize("page", ["ladders", "instrument"])
def test_the_pages_are_quiet_and_do_not_overflow_a_phone(
    visit: Callable[..., Any], climbed: Path, page: str
) -> None:
    tab = visit(f"report/test/{page}.html", site=climbed / "report" / "_site", width=375)
    tab.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true })")
    assert tab.evaluate("document.documentElement.scrollWidth") == 375
    assert tab.evaluate("window.pwned") is None
