"""The page of transcripts: history, trend, room, and what the browser counts from."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from hashlib import sha256
from html import unescape
from pathlib import Path
from types import ModuleType

import pytest

from drift.report import load_record, tables, transcripts
from drift.report.markup import escaped
from drift.report.tables import Record


@pytest.fixture
def record(built: Path) -> Record:
    return load_record("embedded", root=built)


def test_a_family_shows_each_flip_with_a_link_to_its_finding(record: Record) -> None:
    flips = [item for item in record.findings if item["kind"].endswith("_refusal")]
    assert flips
    shown = transcripts.transcripts(record).text
    for item in flips:
        link = f'<a href="runs/{item["run"]}.html#{item["id"]}">'
        place = shown.index(link)
        section = shown[:place].rpartition('<section class="drift-family" id="')[2]
        assert section.startswith(f'{item["family"].replace("/", "-")}"')
        said = f"{item['model']}, en-1: {item['before']} → {item['after']}"
        assert said in shown[place : place + 300]


def test_the_trend_keeps_a_place_for_a_run_without_a_label(
    synthetic: ModuleType, fresh_project: Path
) -> None:
    folder = fresh_project / "data" / "embedded"
    synthetic.write_record(folder, fresh_project / "config" / "probe_bank.json", hostile=False)
    found = load_record("embedded", root=fresh_project)
    trends = transcripts._trends(found)
    failed = next(row for row in tables.each(tables.responses(found)) if row.outcome == "failed")
    trend = trends[failed.model, failed.family]
    assert len(trend) == len(found.runs) and trend[-1] == "none"
    assert trend.count("none") == 1
    assert all(len(labels) == len(found.runs) for labels in trends.values())


@pytest.mark.parametrize(
    ("text", "whole"),
    [("word " * 300, True), ("字" * 500, True), ("\u202e" * 400, False), ("x" * 10**6, False)],
)
def test_responses_are_cut_only_where_a_page_of_four_models_cannot_hold_them(
    text: str, whole: bool
) -> None:
    texts = [text] * (4 * 144 + 4 * 41)
    room = transcripts._room(texts)
    assert sum(len(escaped(one[:room]).encode()) for one in texts) < 2_600_000
    assert (room == transcripts.SHOWN) == whole


def test_each_response_carries_what_the_browser_counts_from(
    record: Record, html: Callable[[str], str]
) -> None:
    text = html("report/embedded/transcripts.html")
    parts = re.findall(r'<div class="drift-response"([^>]*)>', text)
    found = [dict(re.findall(r' data-(\w+)="([^"]*)"', part)) for part in parts]
    rows = list(tables.each(tables.responses(record)))
    assert len(found) == len(rows)
    by_place = {(part["run"], part["model"], unescape(part["key"])): part for part in found}
    for row in rows:
        part = by_place[row.run, row.model, row.key]
        assert part["label"] == row.outcome
        assert (part["control"], part["full"]) == (str(row.control).lower(), str(row.full).lower())
        assert part["sha256"] == sha256(row.text.encode()).hexdigest()


def test_the_published_rates_stand_beside_the_place_where_they_are_counted_again(
    record: Record, html: Callable[[str], str]
) -> None:
    text = html("report/embedded/transcripts.html")
    found = re.search(r'class="drift-disagree"[^>]* data-rates="([^"]*)"', text)
    assert found
    rates = json.loads(unescape(found[1]))
    for key, model in record.models.items():
        assert rates[key]["canonical"]["refused"] == model["canonical"]["refused"]
        assert rates[key]["family"]["run"] == model["full"]["run"]
