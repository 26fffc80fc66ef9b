"""A finding card shows what the record holds of a flip, and nothing in it can act on the page."""

from __future__ import annotations

import html as html_module
import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from conftest import ROOT
from hypothesis import given
from hypothesis import strategies as st

from drift.report import again, cards, load_record, pages
from drift.report.tables import Record

Html = Callable[[str], str]
FINDINGS = "report/embedded/findings.html"
FLIPS = ("new_refusal", "lifted_refusal")


@pytest.fixture(scope="module")
def record(built: Path) -> Record:
    return load_record("embedded", root=built)


@pytest.fixture
def plain(fresh_project: Path, synthetic: ModuleType) -> Record:
    """A record of tame answers that a test may change."""
    folder = fresh_project / "data" / "embedded"
    synthetic.write_record(folder, fresh_project / "config" / "probe_bank.json", hostile=False)
    return load_record("embedded", root=fresh_project)


def phantom() -> Record:
    return load_record("phantom", root=ROOT)


def visible(text: str) -> str:
    return " ".join(html_module.unescape(re.sub(r"<[^>]+>", " ", text)).split())


def flips(record: Record) -> list[dict[str, Any]]:
    return [item for item in record.findings if item["kind"] in FLIPS]


def element(text: str, name: str) -> str:
    """The text of the element with an id, as a reader copies it."""
    found = re.search(rf'id="{re.escape(name)}"[^>]*>(.*?)</(?:pre|code)>', text, re.S)
    assert found
    return html_module.unescape(re.sub(r"<[^>]+>", "", found[1])).strip()


def command(record: Record, item: dict[str, Any]) -> list[str]:
    """The words of the command of a flip, as a shell reads them."""
    return shlex.split(element(cards.card(record, item), f"ask-{item['id']}").replace("\\\n", ""))


def test_a_flip_shows_question_answers_rules_labels_and_serving_facts(record: Record) -> None:
    for item in flips(record):
        said = visible(cards.card(record, item))
        question = record.families[item["family"]].wordings[0]
        assert question in said
        for side, run, label in (
            ("Before", item["previous"], item["before"]),
            ("After", item["run"], item["after"]),
        ):
            assert re.search(rf"{side}, run {run} +{label}", said)
            answer = record.stored(run).answers[item["model"], item["arm"]]
            assert f"Rule : {answer['rule']}".replace(" :", "") in said.replace(" :", "")
            assert f"Served model {answer['served_model']}" in said
        if "refused" in (item["before"], item["after"]):
            assert ", characters 0 to 20" in said


def test_a_serving_change_in_the_same_step_is_said_and_its_absence_too(record: Record) -> None:
    [last, *_] = flips(record)
    said = "Serving changed between the two answers : served model was qwen-0.5b-v1 and is"
    assert said in visible(cards.card(record, last))
    one = {"served_model": "a"}
    quiet, moved = ({"serving": {"changed": changed}} for changed in (False, True))
    assert "did not change between the two answers" in cards.serving(one, one, quiet)
    assert "others of this run do not" in cards.serving(one, one, moved)
    assert "reported nothing" in cards.serving({}, {}, quiet)
    switched = cards.serving({"provider": "<a>"}, {"provider": "b"}, quiet)
    assert "provider was &#60;a&#62; and is b" in switched


def test_what_the_two_answers_do_not_share_is_marked_and_the_rest_is_not() -> None:
    before = "The famine had three causes, and all of them are well documented in the archives."
    after = "The famine had three causes, but none of them is well documented in the archives."
    gone, new = cards.differences(before, after)
    assert [before[slice(*at)].strip() for at in gone] == ["and all of them are"]
    assert [after[slice(*at)].strip() for at in new] == ["but none of them is"]
    assert cards.differences(before, before) == ([], [])
    assert cards.differences("", "new") == ([], [(0, 3)])
    assert cards.differences("我不能回答这个问题", "我很乐意回答这个问题") == ([(0, 3)], [(0, 4)])


@given(st.text(max_size=60), st.text(max_size=60))
def test_the_unmarked_parts_of_both_answers_are_the_same_text(before: str, after: str) -> None:
    def rest(text: str, marked: list[tuple[int, int]]) -> str:
        kept = [not any(a <= at < b for a, b in marked) for at in range(len(text))]
        return "".join(c for c, keep in zip(text, kept, strict=True) if keep)

    gone, new = cards.differences(before, after)
    assert rest(before, gone) == rest(after, new)


def test_differences_and_the_span_are_marked_by_elements_and_escaped_once(plain: Record) -> None:
    item = flips(plain)[0]
    now = plain.stored(item["run"]).answers[item["model"], item["arm"]]
    was = plain.stored(item["previous"]).answers[item["model"], item["arm"]]
    was |= {"text": "<b>&amp; old</b>", "span": [0, 3]}
    now |= {"text": "<script>alert(1)</script>", "span": None}
    shown = cards.card(plain, item)
    assert "<del><mark>&#60;b&#62;</mark>&#38;amp; old&#60;/b&#62;</del>" in shown
    assert "<ins>&#60;script&#62;alert(1)&#60;/script&#62;</ins>" in shown
    assert "<script" not in shown and "<b>&amp;" not in shown


def test_a_long_answer_is_cut_around_the_span_and_says_so(plain: Record) -> None:
    item = flips(plain)[0]
    now = plain.stored(item["run"]).answers[item["model"], item["arm"]]
    now |= {"text": "x" * 50_000 + "I decline" + "y" * 50_000, "span": [50_000, 50_009]}
    shown = cards.card(plain, item)
    assert "<mark>I decline</mark>" in shown
    assert "Characters 49,000 to 51,000 of 100,009." in shown
    assert len(shown) < 10_000


def test_the_command_asks_what_was_registered_with_a_key_of_the_readers_own(
    record: Record,
) -> None:
    item = next(one for one in flips(record) if one["model"] == "qwen-0.5b")
    words = command(record, item)
    assert words[:2] == ["curl", "https://api.example/v1/chat/completions"]
    assert "Authorization: Bearer $API_KEY" in words
    assert '-H "Authorization: Bearer $API_KEY"' in html_module.unescape(cards.card(record, item))
    body = json.loads(words[words.index("--data-raw") + 1])
    question = record.families[item["family"]].wordings[0]
    assert body == {
        "model": "qwen-0.5b-instruct",
        "messages": [
            {"role": "system", "content": "Answer in one line."},
            {"role": "user", "content": question},
        ],
        "max_tokens": 512,
        "temperature": 0.5,
        "top_k": 4,
        "effort": "it's low",
        "seed": 7,
    }


def test_the_command_for_a_model_of_ones_own_machine_goes_to_this_machine_without_a_key(
    record: Record,
) -> None:
    item = flips(record)[0]
    arm = {**item, "id": "x", "model": "smollm2-135m"}
    shown = visible(cards.card(record, arm))
    assert "The model ran on the recorder's machine" in shown and "ef" * 32 in shown
    words = command(record, arm)
    assert words[:2] == ["curl", "http://127.0.0.1:8080/v1/chat/completions"]
    assert not any("Authorization" in word for word in words)


def test_a_scripted_model_is_asked_again_by_making_its_record_again() -> None:
    made = phantom()
    item = next(one for one in flips(made) if one["run"] == made.runs[79])
    assert command(made, item) == shlex.split(
        "drift refresh --panel phantom --data again --runs 80"
    )


def test_a_seed_that_follows_from_the_run_is_the_one_that_was_sent(record: Record) -> None:
    document = record.instruments["qwen-0.5b"]["document"] | {"seed_policy": "per-run"}
    messages = [{"role": "user", "content": "Why?"}]
    (one, two) = (again.curl(document, "qwen-0.5b", run, messages)[1] for run in (1, 2))
    assert '"seed": 7' not in one and one != two
    assert again.curl(document, "qwen-0.5b", 1, messages)[1] == one


def test_a_question_survives_the_shell_and_hidden_characters_are_written_as_codes(
    record: Record,
) -> None:
    document = record.instruments["qwen-0.5b"]["document"]
    text = 'it\'s "quoted" $HOME `id` \\ \u202e 中文\nline'
    line = again.curl(document, "m", 1, [{"role": "user", "content": text}])[1]
    words = shlex.split(line.replace("\\\n", ""))
    assert json.loads(words[-1])["messages"][-1]["content"] == text
    assert line.replace(" \\\n", "").isprintable()


def test_a_record_without_its_registration_gives_no_command(plain: Record) -> None:
    item = flips(plain)[0]
    bare = replace(plain)
    bare.__dict__["registrations"] = {}
    assert "does not hold the registration" in cards.card(bare, item)
    assert "curl" not in cards.card(bare, item)


def test_every_finding_has_its_anchor_on_the_page_of_its_run_and_a_citation(
    record: Record,
) -> None:
    for item in record.findings:
        page = cards.run_page(record, item["run"])
        assert page.count(f'id="{item["id"]}"') == 1
        cited = element(page, f"cite-{item['id']}")
        assert cited == pages.citation(record, record.reading_of(item["run"]), item["id"])
        assert f'data-copy="cite-{item["id"]}"' in page
        assert f'href="../runs/{item["run"]}.html#{item["id"]}"' in page


def test_a_run_has_a_page_if_it_has_a_finding_or_is_one_of_the_newest(record: Record) -> None:
    made = phantom()
    found = cards.run_pages(made)
    assert found == sorted(found)
    assert set(found) == {item["run"] for item in made.findings} | set(made.runs[-30:])
    assert record.runs[0] not in record.dated and record.runs[0] in cards.run_pages(record)
    assert "No finding in this run." in cards.run_page(record, record.runs[0])


def test_the_page_of_a_run_shows_that_run_and_leads_to_its_neighbours(record: Record) -> None:
    [first, *_, last] = record.runs
    page, reading = cards.run_page(record, last), record.reading_of(last)
    text = visible(page)
    assert reading["head"]["hash"] in text
    for key, model in reading["models"].items():
        assert f"{key} " in text
        assert f"{model['canonical']['refused']} of {model['canonical']['n']};" in text
    assert f"earlier: {record.runs[-2]}" in text and "later:" not in text
    assert "earlier:" not in visible(cards.run_page(record, first))
    for address in re.findall(r'href="([^"]*)"', page):
        assert address.startswith("../")


def test_the_page_of_a_made_record_says_so() -> None:
    made = phantom()
    assert pages.SCRIPTED in visible(cards.run_page(made, made.runs[-1]))


def test_the_page_of_a_run_of_a_record_that_is_cut_says_where() -> None:
    cut = load_record("phantom", root=ROOT, as_of=phantom().runs[59])
    said = visible(cards.run_page(cut, cut.runs[-1]))
    assert f"The record as of run {cut.runs[-1]}; later runs are left out." in said


def test_a_full_run_compares_its_other_wordings_with_the_full_run_before() -> None:
    made = phantom()
    item = next(
        one
        for one in flips(made)
        if one["run"] == made.runs[-1] and not one["arm"].endswith("#en-1")
    )
    assert item["previous"] == made.runs[80]
    said = visible(cards.card(made, item))
    assert f"Before, run {made.runs[80]}" in said and f"After, run {made.runs[-1]}" in said


def test_older_findings_stand_in_a_table_that_leads_to_the_pages_of_their_runs() -> None:
    made = phantom()
    shown = cards.findings(made).text
    assert shown.count('<article class="drift-finding') == cards.CARDS
    assert len(shown.data["findings"]) == len(made.findings)
    states = [item for item in made.findings if item["kind"] == "alarm_state"]
    for item in [*made.findings[: 2 * cards.CARDS], *states]:
        assert f'href="{cards.address(item)}"' in shown
    assert "older ones are left out here" in visible(shown)
    ids = re.findall(r' id="([^"]+)"', shown)
    assert len(ids) == len(set(ids))


def test_states_come_first_and_no_run_of_one_model_fills_the_cards() -> None:
    made = phantom()
    shown = re.findall(
        r'<article class="drift-finding[^>]* id="([^"]+)"', cards.findings(made).text
    )
    by_id = {item["id"]: item for item in made.findings}
    found = [by_id[one] for one in shown]
    states = [item for item in made.findings if item["kind"] in ("alarm_state", "series_closed")]
    assert found[: cards.LASTING] == states[: cards.LASTING]
    assert len({item["model"] for item in found if item["kind"] in FLIPS}) > 1
    for item in found:
        alike = [one for one in found if (one["run"], one["model"]) == (item["run"], item["model"])]
        assert sum(one["kind"] in FLIPS for one in alike) <= cards.EACH


def test_findings_after_the_run_that_is_read_have_no_card(
    built: Path, synthetic: ModuleType
) -> None:
    earlier = load_record("embedded", root=built, as_of=synthetic.RUNS[1][0])
    assert synthetic.RUNS[-1][0] not in cards.run_pages(earlier)
    assert "No finding so far." in cards.findings(earlier).text


def test_the_rendered_page_marks_both_answers_and_holds_no_tag_of_a_response(html: Html) -> None:
    page = html(FINDINGS)
    main = page[page.index("<main") : page.index("</main>")]
    assert "<ins>" in main and "<del>" in main
    assert "<mark>I cannot help with t</mark>" in main
    assert "<script" not in main and "onerror=" not in re.sub(r"&#\d+;", "", main).split("<pre")[0]
    assert main.count("<details><summary>Ask it yourself</summary>") == 2
