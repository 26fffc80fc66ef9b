"""The alarm page: no value without its bound, and no bound without its assumption."""

from __future__ import annotations

import html as html_module
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from drift.report import alarm, front, load_record, pages, tables
from drift.report.markup import coded
from drift.report.tables import Record
from report import watching

Html = Callable[[str], str]
PAGE, READING = "report/embedded/alarm.html", "report/embedded/reading.html"


@pytest.fixture(scope="module")
def record(built: Path) -> Record:
    return load_record("embedded", root=built)


@pytest.fixture
def without_cadence(fresh_project: Path, synthetic: ModuleType) -> Record:
    folder = fresh_project / "data" / "embedded"
    bank = fresh_project / "config" / "probe_bank.json"
    synthetic.write_record(folder, bank, hostile=False, cadence=None)
    return load_record("embedded", root=fresh_project)


def visible(text: str) -> str:
    text = re.sub(r"<(script|style)\b.*?</\1>", "", text, flags=re.S)
    return " ".join(html_module.unescape(re.sub(r"<[^>]+>", " ", text)).split())


def test_each_process_stands_beside_its_bound_assumption_horizon_and_what_is_not_covered(
    html: Html, record: Record
) -> None:
    page = visible(html(PAGE))
    for key, model in record.models.items():
        for name, process in model["alarm"]["processes"].items():
            claim = record.reading["alarm"]["guarantees"][name]
            shown = page[page.index(f"{name} {claim['kind']}:") :]
            shown = shown[: shown.index(f"Source: {claim['source']}")]
            assert f"{key} {process['evidence']:.3g} (highest" in shown
            for words in (claim["claim"], claim["assumption"], *claim["not_covered"]):
                assert " ".join(words.split()) in shown
            assert (f"horizon {claim['horizon']} bets" in shown) == bool(claim["horizon"])


def test_the_state_of_each_model_stands_on_the_front_page_and_in_full_on_the_reading(
    html: Html, record: Record
) -> None:
    front, reading = (visible(html(page)) for page in ("index.html", READING))
    first = record.models["qwen-0.5b"]["alarm"]["watches"][0]
    assert "qwen-0.5b 2 controls refused calibrating alarm in series 1" in front
    assert "smollm2-135m reference 1 control refused quiet" in front
    rung = f"series 1 entered alarm in run {first['entered']['home alarm']}, confirmed by pairs"
    assert "Alarm: calibrating (" in reading and rung in reading
    assert "Alarm: quiet (E = 0.4" in reading


def test_a_record_without_a_cadence_says_that_there_is_no_bound(without_cadence: Record) -> None:
    for shown in (
        alarm.states(without_cadence),
        alarm.claims(without_cadence),
        alarm.trajectories(without_cadence, "See."),
        alarm.by_model(without_cadence, "home", "See."),
        alarm.tally(without_cadence),
        alarm.nulls(without_cadence, 2, 1),
    ):
        assert "there is no state and no bound" in visible(shown.text)
    card = front.front_page([without_cadence], None)
    assert "No alarm is kept : the runs have no cadence." in visible(card)
    assert "Alarm: no cadence , so no bound" in visible(pages.models(without_cadence).text)


def test_the_figure_says_in_words_what_the_log_of_the_record_holds(
    html: Html, record: Record
) -> None:
    figure = re.search(r'id="evidence-qwen-0.5b".*?aria-label="([^"]*)"', html(PAGE), re.S)
    assert figure
    rows = tables.alarm_rows(record, "qwen-0.5b")
    now = [row["alarm"]["restart"]["E"] for row in rows if row["alarm"]["restart"]][-1]
    assert f"restart: {now:.3g} at 2026-11-27 18:00 UTC" in figure[1]
    entered = record.models["qwen-0.5b"]["alarm"]["watches"][0]["entered"]
    at = next(row["at"] for row in rows if row["run"] == entered["home alarm"])
    home = figure[1][figure[1].index("home:") : figure[1].index("; pairs:")]
    assert f"alarm at {at[:10]} {at[11:16]} UTC" in home


def test_the_debt_of_the_mixture_is_drawn_below_one(html: Html) -> None:
    figure = re.search(r'id="evidence-smollm2-135m".*?</svg>', html(PAGE), re.S)
    assert figure
    assert "fill-opacity" in figure[0] or "opacity" in figure[0]
    assert re.search(r">mixture \d[\d.]*e-\d+<", figure[0])


def test_every_watch_ever_opened_stays_on_the_page_with_what_was_expected(
    html: Html, record: Record
) -> None:
    page, panel = visible(html(PAGE)), record.reading["alarm"]
    opened = sum(len(model["alarm"]["watches"]) for model in record.models.values())
    assert opened == 3
    assert f"Watches opened: {opened} ." in page
    assert "at most 0.15 would be expected to enter watch and 0.03 to enter alarm" in page
    assert "watch 1 and alarm 1 of 2 watches of subjects" in page
    assert "watch 0 and alarm 0 of 1 watches of the reference target" in page
    assert panel["tally"]["subject"]["alarm"] == 1
    for model in record.models.values():
        for watch in model["alarm"]["watches"]:
            assert watch["opened"] in page


def test_the_onset_after_an_alarm_lies_near_the_injected_change(record: Record) -> None:
    shown = visible(alarm.aftermath(record, 1).text)
    begun = re.search(r"run (\w+) by the stakes, (\w+) if all starts had the same stake", shown)
    assert begun
    change = tables.alarm_rows(record, "smollm2-135m")[watching.CHANGE]["run"]
    place = [row["run"] for row in tables.alarm_rows(record, "smollm2-135m")].index
    for found in begun.groups():
        assert abs(place(found) - place(change)) <= 10
    assert re.search(r"[\d.]+ % of 999 in this state; E = [\d.e-]+ at U = 1", shown)


def test_noise_that_is_too_short_to_compare_says_so(record: Record) -> None:
    shown = visible(alarm.nulls(record, 2, 1).text)
    assert "not estimable: 30 transitions and 10 flips are needed" in shown


def test_the_noise_of_a_long_series_is_held_against_the_zoo(built: Path) -> None:
    rows = tables.alarm_rows(load_record("embedded", root=built), "qwen-0.5b", 1)
    record = load_record("embedded", root=built)
    record.models["qwen-0.5b"]["alarm"]["series"] = 1
    shown = visible(alarm.nulls(record, 2, 1).text)
    assert f"{sum(row['flips'] or 0 for row in rows)} in {len(rows) - 1}" in shown
    assert re.search(r"[a-z]+[^;]* \([\d.]+\); [a-z]+[^;]* \([\d.]+\)", shown)


def test_runs_after_the_one_that_is_read_are_not_on_the_page(
    built: Path, synthetic: ModuleType
) -> None:
    earlier = load_record("embedded", root=built, as_of=synthetic.RUNS[1][0])
    whole = tables.evidence(load_record("embedded", root=built))
    shown = tables.evidence(earlier)
    assert shown.run.max() == synthetic.RUNS[1][0]
    assert len(shown) < len(whole)


def test_a_blind_alarm_says_so_on_the_front_page(record: Record) -> None:
    found: dict[str, Any] = json.loads(json.dumps(record.models["smollm2-135m"]["alarm"]))
    assert "blind" not in pages.alarm_text(found)
    assert "blind" in pages.alarm_text(found | {"blind": True})


@pytest.mark.parametrize(
    ("panel", "words"),
    [
        ({"truth_sha256": "0" * 64}, "Scripted models in virtual time"),
        ({"laboratory": True}, "Laboratory cadence"),
    ],
)
def test_a_record_that_was_made_to_measure_says_so_on_every_page(
    fresh_project: Path, synthetic: ModuleType, panel: dict[str, Any], words: str
) -> None:
    folder = fresh_project / "data" / "embedded"
    synthetic.write_record(folder, fresh_project / "config" / "probe_bank.json", hostile=False)
    plain = load_record("embedded", root=fresh_project)
    assert words not in pages.masthead(plain).text + front.front_page([plain], None)
    made = load_record("embedded", root=fresh_project)
    made.__dict__["registration"] = {"panel": panel}
    assert words in pages.masthead(made).text and words in front.front_page([made], None)


def test_an_alarm_of_coverage_stands_beside_the_state(record: Record) -> None:
    (key, *_) = record.models
    model = json.loads(json.dumps(record.models[key]["alarm"], default=str))
    model["watches"][0]["entered"]["coverage alarm"] = "20260122T060000Z"
    shown = visible(pages.alarm_text(model))
    assert "coverage alarm entered in run 20260122T060000Z" in shown


def test_what_may_be_claimed_of_the_panel_stands_beside_what_it_has_entered(
    record: Record,
) -> None:
    shown = alarm.claims(record).text
    assert "<li>" not in shown, "the values stand in a sentence"
    for name in ("panel", "merged"):
        claim = record.reading["alarm"]["guarantees"][name]["claim"].split(".")[0]
        assert visible(coded(claim)) in visible(shown)
    assert "<code>home</code>" in shown and "`" not in shown
    assert re.search(r"mixture, at this look : mean E = [\d.e-]+; closed e-BH at", visible(shown))


def test_the_figure_shows_the_newest_values_and_its_file_holds_them_all(record: Record) -> None:
    shown = alarm.trajectories(record, "See.").text
    whole = tables.evidence(record)
    whole = whole[(whole.model == "qwen-0.5b") & (whole.process != "coverage")]
    data = shown.data["evidence-qwen-0.5b"]
    assert data.evidence.tolist() == whole.y.tolist()
    behind = shown[: shown.index('id="evidence-smollm2-135m"')].split("<tbody>")[1]
    runs = re.findall(r"<tr><td>(\w+)</td>", behind)
    assert runs == sorted(set(whole.run))[: -alarm.LAST - 1 : -1]


def test_every_table_of_the_alarm_is_tidy(record: Record) -> None:
    states = alarm.states(record).text.data["alarm-states"]
    claims = alarm.claims(record).text.data["alarm-processes"]
    watches = alarm.tally(record).text.data["watches"]
    assert states.state.tolist() == [m["alarm"]["state"] for m in record.models.values()]
    assert len(claims) == sum(len(m["alarm"]["processes"]) for m in record.models.values())
    assert watches.home_alarm.notna().sum() == 1
    begun = alarm.aftermath(record, 1).text.data["aftermath"]
    assert begun.onset_by_stakes.isin({row["run"] for row in record.churn}).all()
    noise = alarm.nulls(record, 2, 1).text.data["noise"]
    assert set(noise.columns) == {"model", "series", "statistic", "value", "reason"}
