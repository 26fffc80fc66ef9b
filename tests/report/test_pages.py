"""What the pages say equals the record, and nothing in a response can act on a page."""

from __future__ import annotations

import html as html_module
import json
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest
from conftest import ROOT

from drift.report import (
    figures,
    front,
    load_record,
    markup,
    pages,
    rates,
    runs,
    tables,
    transcripts,
)
from drift.report import wording as wording_pages
from drift.report.tables import Record
from drift.report.trends import parts

Html = Callable[[str], str]
OF_A_RECORD = "reading rates alarm wording language transcripts findings runs".split()
PAGES = [f"report/embedded/{page}.html" for page in OF_A_RECORD]
READING, RATES, ALARM, WORDING, LANGUAGE, TRANSCRIPTS, FINDINGS, RUNS = PAGES
METHOD = [
    f"report/method/{page}.html"
    for page in ("ville", "power", "reproduction", "attribution", "aftermath")
]


class Tree(HTMLParser):
    """The tags of a page with their attributes, and each <pre> with its codes read back."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.pre: list[str] = []
        self.inside = self.code = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.code = dict(attrs).get("class") == "drift-hidden"
        if tag == "pre":
            self.inside = True
            self.pre.append("")

    def handle_endtag(self, tag: str) -> None:
        self.inside, self.code = self.inside and tag != "pre", False

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.pre[-1] += chr(int(data.removeprefix("U+"), 16)) if self.code else data


@pytest.fixture(scope="module")
def record(built: Path) -> Record:
    return load_record("embedded", root=built)


def phantom() -> Record:
    """The shipped record of ten scripted models."""
    return load_record("phantom", root=ROOT)


@pytest.fixture(scope="session")
def reading(built: Path) -> dict[str, Any]:
    path = sorted((built / "data" / "embedded" / "readings").iterdir())[-1]
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def visible(text: str) -> str:
    """The page's text, spaces made plain."""
    text = re.sub(r"<(script|style)\b.*?</\1>", "", text, flags=re.S)
    return " ".join(html_module.unescape(re.sub(r"<[^>]+>", " ", text)).split())


def test_every_rate_of_the_reading_stands_on_the_page_with_interval_and_n(
    html: Html, reading: dict[str, Any]
) -> None:
    page, figures = visible(html(READING)), visible(html(RATES))
    for model in reading["models"].values():
        shown = [(page, model["canonical"]), (page, model["full"]["family"])]
        shown += [(figures, rate) for rate in model["by_topic"].values()]
        for text, rate in shown:
            assert (
                f"{100 * rate['estimate']:.1f} % ( {rate['refused']} of {rate['n']}; 95 % interval"
                f" {100 * rate['low']:.1f} to {100 * rate['high']:.1f} %)".replace("( ", "(")
            ) in text.replace("( ", "(")


def test_coverage_names_every_kind_of_answer_without_a_label(
    html: Html, reading: dict[str, Any], record: Record
) -> None:
    page, shown = visible(html(READING)), pages.coverage(record).text.data["coverage"]
    assert "Undetermined Truncated Empty Blocked Failed Missing" in page
    for (key, model), row in zip(reading["models"].items(), tables.each(shown), strict=True):
        found = model["coverage"]
        assert {name: getattr(row, name) for name in found} == found
        counts = " ".join(str(found[name]) for name in pages.UNLABELLED)
        assert f"{key} {found['asked']} {found['determined']} {counts}" in page


def test_the_reading_says_what_a_quiet_look_leaves_open(
    html: Html, reading: dict[str, Any]
) -> None:
    for model in reading["models"].values():
        assert model["change"]["sentence"] in visible(html(READING))


def test_the_p_value_of_a_look_stands_beside_its_adjustment_for_the_models(html: Html) -> None:
    assert "Mid-p 0.5, and 1 by Holm over the models of this run." in visible(html(READING))


def test_what_cannot_be_computed_says_not_estimable_and_why(html: Html) -> None:
    page = visible(html(LANGUAGE))
    assert "not estimable: no twin differs" in page
    assert not re.search(r"\bnan\b", page, re.I)


def test_a_rate_without_an_estimate_is_written_out_and_never_drawn() -> None:
    known = {"refused": 1, "n": 4, "estimate": 0.25, "low": 0.05, "high": 0.7, "reason": None}
    none = dict.fromkeys(known) | {"refused": 0, "n": 0, "reason": "no determined label"}
    assert markup.rate_text(none) == "not estimable: no determined label"
    frame = pd.DataFrame(
        [{"group": "law", "series": "a", **known}, {"group": "law", "series": "b", **none}]
    )
    drawn = figures.svg(figures.INTERVALS, frame, label="x")
    assert "law, b: not estimable, no determined label" in drawn
    assert ">not estimable<" in drawn
    assert ">1 of 4<" in drawn
    assert ">0 of 0<" in drawn
    marks = re.findall(r'<use [^>]*x="([\d.]+)" y="([\d.]+)"', drawn)
    alone = figures.svg(figures.INTERVALS, frame[frame.series == "a"], label="x")
    assert len(marks) == len(re.findall("<use ", alone))


def test_a_refused_control_is_named_as_a_fault_before_any_topic(html: Html) -> None:
    page = visible(html(READING))
    assert page.index("instrument or model fault : refused") < page.index("Two consecutive usable")


@pytest.mark.parametrize("page", [*PAGES, "index.html"])
def test_every_page_prints_head_judge_and_method_and_no_assurance_that_nobody_gave(
    html: Html, reading: dict[str, Any], page: str
) -> None:
    text = visible(html(page)).lower()
    assert reading["head"]["hash"] in text
    assert reading["judge"]["fingerprint"][:12] in text
    assert re.search(r"(method )?version 1", text)
    assert "assurance" not in text
    assert "rendered with smalldocs 0.5.4" in text


def test_the_front_page_shows_rate_change_coverage_and_time_of_each_model(
    html: Html, reading: dict[str, Any]
) -> None:
    page = visible(html("index.html"))
    assert "2026-11-27 18:00 UTC" in page
    for key, model in reading["models"].items():
        rate, found, change = model["canonical"], model["coverage"], model["change"]
        row = page[page.index(f" {key} ", page.index("Labelled")) :]
        low, high = 100 * rate["low"], 100 * rate["high"]
        assert f"{100 * rate['estimate']:.1f} %" in row[:200]
        assert f"{rate['refused']} of {rate['n']}, {low:.0f} to {high:.0f} %" in row[:200]
        assert f"of {change['compared']} " in row[:200]
        assert f"{found['canonical_determined']} of {found['canonical_n']}" in row[:200]
    assert "The lab's run is missing: <no weights>." in page


def test_the_headline_says_what_is_in_the_reading_and_what_it_does_not_show(
    record: Record,
) -> None:
    said = visible(front.headline(record))
    assert "Alarm entered by qwen-0.5b, last on 2026-11-23." in said
    assert "Control questions refused by qwen-0.5b and smollm2-135m" in said
    assert "2 of 2 models with a usable run." in said
    assert "1 newly refused, 1 newly answered since the run before." in said
    assert "This does not show that nothing changed, or why anything did." in said
    assert "fewer than 5 flips one way are never significant." in said


def test_answers_that_were_cut_short_are_counted_beside_those_labelled(record: Record) -> None:
    found = record.models["qwen-0.5b"]["coverage"]
    said = f"{found['truncated']} of {found['asked']} cut short"
    assert found["truncated"] and said in front.front_page([record], None)


def test_the_headline_of_a_quiet_record_begins_with_no_alarm(record: Record) -> None:
    quiet = json.loads(json.dumps(record.reading))
    for model in quiet["models"].values():
        model["alarm"] |= {"state": "quiet", "watches": []}
        model["controls"]["refused"] = []
        model["change"] |= {"newly_refused": [], "newly_answered": []}
    said = visible(front.headline(replace(record, reading=quiet)))
    assert said.startswith("No alarm. 2 of 2 models with a usable run. No flip since the run bef")


def test_the_headline_says_how_many_models_cannot_ring_yet(record: Record) -> None:
    early = json.loads(json.dumps(record.reading))
    for model, state in zip(early["models"].values(), ("calibrating", "quiet"), strict=True):
        model["alarm"] |= {"state": state, "watches": []}
    said = visible(front.headline(replace(record, reading=early)))
    assert said.startswith("No alarm yet. 1 of 2 models still calibrating: their process home")


def test_the_headline_names_alarms_of_coverage_and_the_range_of_what_a_look_can_tell() -> None:
    said = visible(front.headline(phantom()))
    assert "Coverage alarm entered by filtered, last on 2026-01-22." in said
    assert "3 of 10 models still calibrating" in said
    assert "fewer than 5 to 11 flips, by model, one way are never significant." in said


def test_models_that_enter_alarm_in_one_run_are_all_named(record: Record) -> None:
    both = json.loads(json.dumps(record.reading))
    [watch, *_] = both["models"]["qwen-0.5b"]["alarm"]["watches"]
    both["models"]["smollm2-135m"]["alarm"]["watches"] = [watch]
    said = visible(front.headline(replace(record, reading=both)))
    assert said.startswith("Alarm entered by qwen-0.5b and smollm2-135m, last on 2026-11-23.")


def test_records_made_to_measure_come_last_and_ten_scripted_models_are_folded(
    record: Record, fresh_project: Path, synthetic: ModuleType
) -> None:
    made = phantom()
    shown = front.front_page([made, record], None)
    assert shown.index('id="record-embedded"') < shown.index('id="record-phantom"')
    inside = shown[shown.index('id="record-phantom"') :]
    assert "<details><summary>10 models</summary>" in inside
    assert "Phantom models <small>scripted, known truth</small>" in inside
    assert "<summary>2 models</summary>" not in shown


def test_a_record_of_one_machine_is_named_so(record: Record, fresh_project: Path) -> None:
    assert pages.kind(record) == "real"
    registered = json.loads(json.dumps(record.registration))
    for one in registered["instruments"].values():
        one["document"]["endpoint"] = "embedded"
    mine = replace(record)
    mine.__dict__["registration"] = registered
    assert pages.kind(mine) == "machine"


def test_an_empty_record_says_so_in_a_sentence_on_each_of_its_pages(html: Html) -> None:
    for page in OF_A_RECORD:
        assert "This record holds no run yet" in visible(html(f"report/empty/{page}.html"))
    assert "This record holds no run yet" in visible(html("index.html"))


def test_no_tag_or_attribute_of_a_page_comes_from_a_response(html: Html) -> None:
    for page in (*PAGES, "index.html"):
        text = html(page)
        tree = Tree(text)
        for tag, attributes in tree.tags:
            assert attributes.get("id") not in ("forged", "forged-div", "raw")
            handlers = {name for name in attributes if name.startswith("on")}
            assert handlers <= {"onclick"}, (tag, attributes)
            if "onclick" in attributes:
                assert attributes["onclick"] == "window.smalldocsToggleScheme(); return false;"
            for name in ("src", "href", "xlink:href", "action"):
                value = attributes.get(name) or ""
                assert not re.match(r"\s*(javascript:|data:|https?:|//)", value), (tag, value)
        scripts = [attributes for tag, attributes in tree.tags if tag == "script"]
        assert [item.get("src") for item in scripts].count(None) == 1  # the renderer's own
        assert "window.pwned" not in "".join(re.findall(r"<script.*?</script>", text, re.S))
        assert not {tag for tag, _ in tree.tags} & {"iframe", "img", "video", "object", "embed"}


def test_every_response_is_on_the_page_exactly_as_it_came(html: Html, built: Path) -> None:
    record = load_record("embedded", root=built)
    rows = list(tables.responses(record).text)
    shown = [text.removeprefix("\n") for text in Tree(html(TRANSCRIPTS)).pre]
    assert len(shown) == len(rows)
    cut = re.compile(r"\nCharacters 0 to ([\d,]+) of ([\d,]+); the record holds the whole text\.$")
    whole = [text for text in shown if not cut.search(text)]
    short = [text or "no text" for text in rows if len(text) <= transcripts.SHOWN]
    assert sorted(whole) == sorted(short)
    long = {f"{len(text):,}" for text in rows if len(text) > transcripts.SHOWN}
    parts = [match for text in shown if (match := cut.search(text))]
    assert {match[2] for match in parts} == long
    assert {match[1] for match in parts} == {f"{transcripts.SHOWN:,}"}


def test_shortcodes_fences_and_maths_of_a_response_are_not_read(html: Html, built: Path) -> None:
    text = html(TRANSCRIPTS)
    assert "{{<" not in text
    assert "The same benign questions" not in text  # index.qmd, had the include been followed
    assert 'class="math' not in text
    assert "katex" not in text.lower()
    assert "&#123;&#123;&lt;" in text or "&#123;&#123;&#60;" in text
    notebook = (built / "report" / "embedded" / "transcripts.ipynb").read_text(encoding="utf-8")
    assert "{{<" not in notebook
    assert "```{=html}" not in notebook


def test_hidden_and_direction_characters_are_written_out(html: Html) -> None:
    text = html(TRANSCRIPTS)
    for character in "\u202e\u202c\u2066\u2069\u200f\u00ad\u2028\x1b\x07\x9b\x85":
        assert character not in text
        assert f"U+{ord(character):04X}" in text


@pytest.mark.parametrize("code", [0x00, 0x1B, 0x7F, 0x85, 0x200B, 0x202E, 0xFEFF, 0xFFFE, 0xE0041])
def test_an_invisible_character_is_named_by_its_code(code: int) -> None:
    shown = f'a<span class="drift-hidden">U+{code:04X}</span>b'
    assert markup.escaped(f"a{chr(code)}b") == shown


def test_text_is_escaped_once_however_often_it_is_passed_on() -> None:
    once = markup.escaped("<b>&amp;")
    assert once == "&#60;b&#62;&#38;amp;"
    assert markup.escaped(once) == once


def test_a_value_put_into_html_is_inert_whatever_it_holds() -> None:
    hostile = "<b>{0} \"x\" 'y'"
    shown = markup.html(
        '<i title="{}">{a[b]:.3}{}</i>', hostile, markup.html("<u>{}</u>", "<"), a={"b": "<i>long"}
    )
    assert shown == (
        '<i title="&#60;b&#62;&#123;0&#125; &#34;x&#34; &#39;y&#39;">&#60;i&#62;<u>&#60;</u></i>'
    )
    assert markup.html("{}", shown) == shown


def test_the_span_of_a_label_is_marked(html: Html) -> None:
    assert "<mark>I cannot help with t</mark>hat request." in html(TRANSCRIPTS)


def test_a_span_far_into_a_long_text_is_shown_with_its_surroundings() -> None:
    text = "x" * 50_000 + "I decline" + "y" * 50_000
    frame = pd.DataFrame([{"text": text, "span": (50_000, 50_009)}])
    shown = transcripts.marked(next(tables.each(frame)))
    assert "<mark>I decline</mark>" in shown
    assert len(shown) < 1.1 * transcripts.SHOWN


def test_every_family_has_a_lasting_anchor(
    html: Html, built: Path, reading: dict[str, Any]
) -> None:
    ids = [attributes.get("id") for _, attributes in Tree(html(TRANSCRIPTS)).tags]
    record = load_record("embedded", root=built)
    for family in record.families:
        assert ids.count(family.replace("/", "-")) == 1
    named = [identity for identity in ids if identity]
    assert len(named) == len(set(named))


def test_every_link_inside_the_site_leads_somewhere(html: Html, built: Path) -> None:
    site = built / "report" / "_site"
    for page in ("index.html", *PAGES, *METHOD):
        for tag, attributes in Tree(html(page)).tags:
            target, _, anchor = (attributes.get("href") or "").partition("#")
            if tag != "a" or not (target or anchor):
                continue
            there = (site / page).parent / target if target else site / page
            assert there.exists(), (page, target)
            if anchor:
                assert f'id="{anchor}"' in there.read_text(encoding="utf-8"), (page, anchor)


def test_a_figure_says_in_words_what_it_draws_and_shows_its_table(
    html: Html, reading: dict[str, Any]
) -> None:
    page = html(RATES)
    pictures = [a for tag, a in Tree(page).tags if tag == "svg"]
    assert len(pictures) == 4
    for key, model in reading["models"].items():
        rate = model["canonical"]
        said = f"{key}, canonical: {100 * rate['estimate']:.1f} % refused ({rate['refused']} of"
        assert said in (pictures[0]["aria-label"] or "")
    assert page.count("<summary>Table behind the figure</summary>") == 4
    assert "<metadata" not in page
    assert "#010101" not in page  # every ink is a colour of the page


@pytest.mark.parametrize("page", [RATES, ALARM, WORDING, LANGUAGE, *METHOD])
def test_every_figure_has_a_caption_words_and_a_label_of_its_own(html: Html, page: str) -> None:
    figures = re.findall(
        r'<figure class="drift-figure" id="([^"]+)">.*?</figure>', html(page), re.S
    )
    whole = re.findall(r'<figure class="drift-figure".*?</figure>', html(page), re.S)
    assert len(figures) == len(set(figures)) == len(whole) > 0
    for one in whole:
        assert re.search(r"<figcaption>\s*\S.{20,}</figcaption>", one, re.S)
        assert re.search(r'role="img" aria-label="[^"]{20,}"', one)
        assert not re.search(r"\bnan\b", one)


def test_the_readings_own_run_is_shown_when_later_runs_are_left_out(
    built: Path, synthetic: ModuleType
) -> None:
    earlier = synthetic.RUNS[1][0]
    record = load_record("embedded", root=built, as_of=earlier)
    assert record.reading["run"] == earlier
    assert all(item["run"] <= earlier for item in record.findings)
    assert f"as of run {earlier}" in pages.masthead(record).text
    assert runs.every_run(record).text.data["runs"].run.tolist() == record.runs
    assert record.runs[-1] == earlier


def test_a_record_as_of_a_run_before_its_first_holds_none(built: Path) -> None:
    record = load_record("embedded", root=built, as_of="20200101T000000Z")
    assert record.reading == {}
    assert record.findings == []
    assert "no run up to 20200101T000000Z" in pages.models(record).text


def test_a_bank_that_was_not_asked_is_not_shown_as_if_it_had_been(
    fresh_project: Path, synthetic: ModuleType
) -> None:
    bank = fresh_project / "config" / "probe_bank.json"
    synthetic.write_record(fresh_project / "data" / "embedded", bank, hostile=False)
    (copy,) = (fresh_project / "data" / "embedded" / "corpora").iterdir()
    copy.write_bytes(copy.read_bytes() + b"\n")
    record = load_record("embedded", root=fresh_project)
    assert record.bank is None
    shown = transcripts.transcripts(record).text
    assert "The record holds no copy of the question." in shown
    assert "Why it is benign" not in shown


def test_the_trend_holds_the_rate_of_every_run_and_draws_the_newest(record: Record) -> None:
    whole = rates.over_runs(record, "See.").text.data["rates-over-runs"]
    canonical = whole[whole.measure == "canonical"]
    assert canonical.run.tolist() == [run for run in record.runs for _ in record.models]
    for run in record.runs:
        for key, model in record.reading_of(run)["models"].items():
            [row] = tables.each(canonical[(canonical.run == run) & (canonical.model == key)])
            assert (row.refused, row.n) == (model["canonical"]["refused"], model["canonical"]["n"])
    assert set(whole[whole.measure == "family"].run) == {record.runs[0], record.runs[2]}
    older = rates.over_runs(phantom(), "See.").text
    drawn = re.search(r'aria-label="([^"]*)"', older)
    assert drawn and f"in {rates.DRAWN} runs" in drawn[1]
    assert older.data["rates-over-runs"].run.nunique() == 120


def test_a_trend_breaks_at_a_missed_slot_a_new_series_and_an_unusable_run() -> None:
    frame = pd.DataFrame(
        {
            "model": "m",
            "measure": "canonical",
            "series": [1, 1, 1, 1, 1, 1, 2],
            "slot": [1, 2, 4, 5, 6, 7, 8],
            "usable": [True, True, True, True, False, True, True],
        }
    )
    stretches = parts(frame).tolist()
    assert stretches == [1, 1, 2, 2, 3, 4, 5]
    assert parts(frame.assign(slot=None)).nunique() == 4


def test_ten_models_are_told_apart_in_every_figure_without_colour() -> None:
    made = phantom()
    by_topic = rates.by(made, "topic", "See.").text
    for key in made.models:
        assert by_topic.count(f">{key}</text>") == 8
    trend = rates.over_runs(made, "See.").text
    assert all(f">{key}</text>" in trend for key in made.models)
    grids = rates.labels_by_family(made, "See.").text
    shown = [re.findall(r">([a-z-]+)</text>", one) for one in grids.split("<figure")[1:]]
    assert [sum(key in names for key in made.models) for names in shown] == [3, 3, 3, 1]


def test_the_pages_of_wording_and_language_show_the_figures_of_the_last_full_run(
    html: Html, record: Record
) -> None:
    wording, language = visible(html(WORDING)), visible(html(LANGUAGE))
    for key, model in record.models.items():
        full = model["full"]
        share = full["wording"]
        counts = f"{share['consistent']} of {share['n']}; 95 % interval"
        assert f"{key} {100 * share['estimate']:.1f} % ( {counts}".replace("( ", "(") in wording
        found = full["unlock"]
        said = f"({len(found['unlocked'])} of {found['refused_bare']}; 95 % interval"
        assert (said if found["refused_bare"] else "not estimable: no such family") in wording
        twins = full["language"]
        only = (len(twins["refused_zh_only"]), len(twins["refused_en_only"]))
        assert f"{key} {twins['n']} {only[0]} {only[1]} " in language
    assert "This shows a dependence and not its cause." in wording
    assert "how well it is translated is not controlled" in language


def test_a_grid_of_wobbling_families_shows_those_of_its_own_models_only() -> None:
    made = phantom()
    shown = wording_pages.wobbles(made, "See.").text.split("<figure")[1:]
    drawn = [set(re.findall(r">([a-z0-9-]+)</text>", one)) for one in shown]
    for names in drawn:
        beside = [key for key in made.models if key in names]
        wobbling = {
            item["family"].partition("/")[2]
            for key in beside
            for item in made.models[key]["full"]["wording"]["wobbled"]
        }
        families = {family.partition("/")[2] for family in made.families}
        assert names & families == wobbling
    assert all(any(key in names for names in drawn) for key in ("bad-runs", "still"))


def test_a_share_of_unlocked_families_has_its_interval() -> None:
    shown = visible(wording_pages.unlock(phantom()).text)
    assert "bad-runs 100.0 % (2 of 2; 95 % interval 34.2 to 100.0 %): armenians-1915" in shown
    assert "38.9 % (7 of 18; 95 % interval 20.3 to 61.4 %)" in shown


def test_a_wobbling_family_is_shown_wording_by_wording(record: Record) -> None:
    shown = wording_pages.patterns(record).text
    wobbled = {
        (key, item["family"]): item["labels"]
        for key, model in record.models.items()
        for item in model["full"]["wording"]["wobbled"]
    }
    assert wobbled
    letters = {"refused": "R", "answered": "A"}
    for (_, family), labels in wobbled.items():
        row = shown[shown.index(f"#{pages.anchor(family)}") :].split("</tr>")[0]
        said = "\N{NO-BREAK SPACE}".join(letters.get(labels[w], "–") for w in sorted(labels))
        assert f"<b>{said}</b>" in row


def test_every_run_is_listed_with_its_missed_slots_counts_and_cost(
    fresh_project: Path, synthetic: ModuleType
) -> None:
    folder = fresh_project / "data" / "embedded"
    synthetic.write_record(folder, fresh_project / "config" / "probe_bank.json", hostile=False)
    last = sorted((folder / "readings").iterdir())[-1]
    late = json.loads(last.read_text())
    late["slot"] += 2
    late["models"]["qwen-0.5b"]["coverage"]["usable"] = False
    last.write_text(json.dumps(late))
    shown = runs.every_run(load_record("embedded", root=fresh_project)).text
    text, frame = visible(shown), shown.data["runs"]
    assert "gap: 2 slots missed" in text
    assert "1 of 2 without qwen-0.5b" in text
    assert "states no prices" in text and "8,000 + 14,000" in text
    assert frame.missed_before.fillna(0).tolist() == [0, 0, 0, 2]
    assert frame.failed.tolist()[-1] == 1
    assert text.index(late["run"]) < text.index("gap: 2 slots") < text.index(frame.run[2])


def test_tokens_and_cost_of_a_run_say_what_they_do_not_hold(
    fresh_project: Path, synthetic: ModuleType
) -> None:
    folder = fresh_project / "data" / "embedded"
    synthetic.write_record(folder, fresh_project / "config" / "probe_bank.json", hostile=False)
    one, none, *_ = sorted((folder / "readings").iterdir())
    used = {"prompt_tokens": 1000, "completion_tokens": 2000, "cost_usd": "0.5"}
    silent = {"prompt_tokens": 0, "completion_tokens": 0, "cost_usd": "0"}
    for path, usages in ((one, (used, silent)), (none, (silent, silent))):
        reading = json.loads(path.read_text())
        for model, usage in zip(reading["models"].values(), usages, strict=True):
            model["usage"] = usage
        path.write_text(json.dumps(reading))
    shown = runs.every_run(load_record("embedded", root=fresh_project)).text
    first, second = (visible(shown).rpartition(path.stem)[2] for path in (one, none))
    assert "at least 1,000 + 2,000 at least 0.5000" in first
    assert "not reported not known" in second
    assert shown.data["runs"].prompt_tokens.isna().tolist()[:2] == [False, True]


def test_a_series_says_why_it_began_and_that_a_fresh_baseline_closed_nothing(
    record: Record,
) -> None:
    shown = runs.every_series(record).text
    frame = shown.data["series"]
    assert frame.groupby("model").series.apply(list).to_dict() == {
        "qwen-0.5b": [1, 2],
        "smollm2-135m": [1],
    }
    assert frame.usable_runs.sum() == sum(row["index"] is not None for row in record.churn)
    assert "goes on" in visible(shown)


def test_a_citation_names_record_run_head_and_software(html: Html, record: Record) -> None:
    cited = pages.citation(record, record.reading, "a-finding")
    head = record.reading["head"]
    for part in ("Record embedded", record.reading["run"], "finding a-finding", head["hash"]):
        assert part in cited
    cff = (ROOT / "CITATION.cff").read_text()
    for name in ("title", "version"):
        [value] = re.findall(rf'^{name}: "?([^"\n]+)', cff, re.M)
        assert value in cited
    page = html(READING)
    assert 'data-copy="cite"' in page
    assert markup.escaped(pages.citation(record, record.reading)) in page


def test_every_table_of_a_record_is_offered_as_a_file(html: Html) -> None:
    for page in PAGES:
        text = html(page)
        main = text[text.index("<main") :]
        tables_shown = main.count("<table") - 1  # provenance
        assert main.count('<p class="drift-data">') >= min(1, tables_shown), page


SHOWN_ALWAYS: list[tuple[Callable[..., Any], tuple[str, ...]]] = [
    *((of, ()) for of in (pages.models, pages.changes, pages.coverage, pages.serving)),
    *((rates.by, (group, "See.")) for group in ("model", "topic")),
    *((of, ("See.",)) for of in (rates.over_runs, rates.labels_by_family)),
    *((of, ()) for of in (wording_pages.consistency, wording_pages.kinds, wording_pages.patterns)),
    *((of, ()) for of in (wording_pages.unlock, wording_pages.twins, wording_pages.pairs)),
    *((of, ("See.",)) for of in (wording_pages.wobbles, wording_pages.twin_labels)),
    *(
        (of, ("See.",))
        for of in (wording_pages.wording_over_runs, wording_pages.language_over_runs)
    ),
    *((of, ()) for of in (runs.every_run, runs.every_series)),
]


def without_a_full_run(model: dict[str, Any]) -> None:
    model["full"] = None


def without_a_label(model: dict[str, Any]) -> None:
    none = dict.fromkeys(model["canonical"]) | {"refused": 0, "n": 0, "excluded": {"failed": 34}}
    model["canonical"] = none | {"reason": "no determined label"}
    model["by_topic"] = dict.fromkeys(model["by_topic"], model["canonical"])
    model["change"] = None
    model["coverage"]["usable"] = False


@pytest.mark.parametrize("change", [without_a_full_run, without_a_label])
@pytest.mark.parametrize("alone", [False, True])
def test_what_a_record_cannot_show_yet_is_said_in_words(
    fresh_project: Path,
    synthetic: ModuleType,
    change: Callable[[dict[str, Any]], None],
    alone: bool,
) -> None:
    folder = fresh_project / "data" / "embedded"
    synthetic.write_record(folder, fresh_project / "config" / "probe_bank.json", hostile=False)
    for path in sorted((folder / "readings").iterdir()):
        document = json.loads(path.read_text())
        for model in document["models"].values():
            change(model)
        path.write_text(json.dumps(document))
    if alone:
        for path in sorted((folder / "readings").iterdir())[1:]:
            path.unlink()
        (folder / "churn.jsonl").unlink()
    bare = load_record("embedded", root=fresh_project)
    said = "".join(piece(bare, *options).text for piece, options in SHOWN_ALWAYS)
    said += front.front_page([bare], None)
    assert not re.search(r"\bnan\b|\bNone\b", visible(said))
    assert ("no full run in this series yet" in said) == (change is without_a_full_run)
    assert ("no determined label" in said) == (change is without_a_label)
