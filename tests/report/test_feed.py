"""The feeds: well-formed whatever a record holds, and an entry never changes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from drift.report.feed import NEWEST, publish_feeds, record_entries
from drift.report.tables import Record, load_record

ROOT = Path(__file__).resolve().parents[2]
ATOM = "{http://www.w3.org/2005/Atom}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, synthetic: ModuleType) -> Path:
    made = tmp_path_factory.mktemp("record") / "embedded"
    synthetic.write_record(made, ROOT / "config" / "probe_bank.json")
    return made


@pytest.fixture
def record(folder: Path, tmp_path: Path) -> Record:
    """A record of a test's own, in a project that a test may change."""
    shutil.copy(ROOT / "_quarto.yml", tmp_path)
    own = shutil.copytree(folder, tmp_path / "data" / "embedded")
    return load_record("embedded", folder=own, root=tmp_path)


def finding(run: str, model: str, kind: str, **more: Any) -> dict[str, Any]:
    at = f"{run[:4]}-{run[4:6]}-{run[6:8]}T{run[9:11]}:00:00.000Z"
    said = {"id": f"{run}.{model}.{kind}", "detail": f"{model} {kind}", "series": 1}
    return said | {"run": run, "at": at, "model": model, "kind": kind} | more


def with_findings(record: Record, *findings: dict[str, Any]) -> Record:
    """The record with these findings and no others."""
    text = "".join(json.dumps(item) + "\n" for item in findings)
    record.store.findings.write_text(text)
    return load_record(record.name, folder=record.store.folder, root=record.root)


def feed(record: Record, site: Path, name: str = "report/embedded/feed.xml") -> ET.Element:
    publish_feeds(record.root, [record], site)
    return ET.parse(site / name).getroot()


def texts(found: ET.Element, name: str) -> list[str]:
    return [item.text or "" for item in found.iter(ATOM + name)]


RUN, LATER = "20261127T060000Z", "20261127T180000Z"


def test_alarms_and_closed_series_stand_alone_and_other_findings_of_a_run_share_an_entry(
    record: Record, tmp_path: Path
) -> None:
    flips = [finding(RUN, "a", "new_refusal", id=f"{RUN}.a.{n}", detail=f"{n}") for n in range(3)]
    record = with_findings(
        record,
        flips[0],
        finding(RUN, "a", "alarm_state", detail="home watch entered"),
        *flips[1:],
        finding(RUN, "a", "lifted_refusal"),
        finding(RUN, "b", "new_refusal", detail="only one"),
        finding(LATER, "a", "series_closed", detail="the instrument changed"),
    )
    found = feed(record, tmp_path)
    entries = {
        title.rpartition(": ")[2]: link.get("href")
        for entry in found.iter(f"{ATOM}entry")
        for title, link in [(entry.findtext(f"{ATOM}title") or "", entry.find(f"{ATOM}link"))]
        if link is not None
    }
    assert entries == {
        "the instrument changed": f"runs/{LATER}.html#{LATER}.a.series_closed",
        "only one": f"runs/{RUN}.html#{RUN}.b.new_refusal",
        "3 new refusals, 1 lifted refusal": f"runs/{RUN}.html#{RUN}.a.0",
        "home watch entered": f"runs/{RUN}.html#{RUN}.a.alarm_state",
    }
    shared = next(text for text in texts(found, "content") if "<li>2</li>" in text)
    assert "<ul><li>0</li><li>1</li><li>2</li><li>a lifted_refusal</li></ul>" in shared


def test_every_entry_names_the_line_that_seals_it(record: Record, tmp_path: Path) -> None:
    record = with_findings(record, finding(RUN, "a", "alarm_state"))
    head = json.loads(record.store.reading(RUN).read_bytes())["head"]
    (content,) = texts(feed(record, tmp_path), "content")
    assert f"line {head['seq']} of the ledger, {head['hash']}." in content


def test_every_entry_of_a_scripted_record_says_that_no_model_spoke(
    record: Record, tmp_path: Path
) -> None:
    record = with_findings(record, finding(RUN, "a", "alarm_state"))
    record.__dict__["registration"] = {"panel": record.panel | {"truth_sha256": "0" * 64}}
    (content,) = texts(feed(record, tmp_path), "content")
    assert "No real model said any of this" in content


def test_an_entry_is_the_same_after_later_runs_and_at_any_moment(
    record: Record, tmp_path: Path
) -> None:
    early = finding(RUN, "a", "alarm_state")
    before = record_entries(with_findings(record, early))
    after = with_findings(record, early, finding(LATER, "a", "series_closed"))
    assert record_entries(after)[1:] == before
    first, second = ((tmp_path / name, feed(after, tmp_path / name)) for name in ("a", "b"))
    for name in ("feed.xml", "report/embedded/feed.xml"):
        assert (first[0] / name).read_bytes() == (second[0] / name).read_bytes()
    assert texts(first[1], "updated") == [f"2026-11-27T{at}:00:00.000Z" for at in (18, 18, "06")]


def test_records_do_not_share_ids_and_the_first_registration_gives_them(
    record: Record, tmp_path: Path
) -> None:
    record = with_findings(record, finding(RUN, "a", "alarm_state"))
    chain = record.store.folder / "chain.jsonl"
    ids = []
    own = chain.read_bytes()
    for first in (own, own.replace(b'"method_version":"1"', b'"method_version":"9"', 1)):
        for whole in (first, first + first):
            chain.write_bytes(whole)
            ids.append(texts(feed(record, tmp_path), "id"))
    assert ids[0] == ids[1] and ids[2] == ids[3] and not set(ids[0]) & set(ids[2])
    assert all(one.startswith("urn:uuid:") for one in ids[0])


@pytest.mark.parametrize(
    "hostile",
    ["<script>alert(1)</script>", "]]>&amp;&#0;", "\x00\x0b\x1b[31m", "\ufffe \uffff", "\u202eabc"],
)
def test_a_feed_is_well_formed_and_inert_whatever_the_record_holds(
    record: Record, tmp_path: Path, hostile: str
) -> None:
    at = {"kind": hostile, "model": hostile, "detail": hostile, "id": hostile}
    found = feed(with_findings(record, finding(RUN, "a", "x") | at), tmp_path)
    for text in texts(found, "title") + texts(found, "content"):
        assert "<script" not in text and "\u202e" not in text
    assert len(texts(found, "entry")) == 1


def test_a_feed_holds_the_newest_entries_alone(record: Record, tmp_path: Path) -> None:
    made = [finding(RUN, "a", "alarm_state", id=str(n)) for n in range(NEWEST + 20)]
    found = feed(with_findings(record, *made), tmp_path)
    links = [link.get("href", "") for link in found.iter(f"{ATOM}link")][2:]
    assert [link.rpartition("#")[2] for link in links] == [
        str(n) for n in range(NEWEST + 19, 19, -1)
    ]
    assert len(texts(ET.parse(tmp_path / "feed.xml").getroot(), "entry")) == NEWEST


def test_the_site_s_feed_holds_all_records_and_leads_to_their_pages(
    record: Record, tmp_path: Path
) -> None:
    record = with_findings(record, finding(RUN, "a", "alarm_state"))
    own = shutil.copytree(record.store.folder, tmp_path / "data" / "other")
    other = with_findings(
        load_record("other", folder=own, root=record.root), finding(LATER, "b", "series_closed")
    )
    publish_feeds(record.root, [record, other], tmp_path)
    found = ET.parse(tmp_path / "feed.xml").getroot()
    links = [link.get("href") for link in found.iter(f"{ATOM}link")]
    assert links == [
        "feed.xml",
        "index.html",
        f"report/other/runs/{LATER}.html#{LATER}.b.series_closed",
        f"report/embedded/runs/{RUN}.html#{RUN}.a.alarm_state",
    ]


def test_the_site_s_feed_keeps_its_id_when_the_site_gets_an_address_or_another_record(
    record: Record, tmp_path: Path
) -> None:
    def whole(*shown: Record) -> str:
        publish_feeds(record.root, shown, tmp_path)
        return texts(ET.parse(tmp_path / "feed.xml").getroot(), "id")[0]

    record = with_findings(record)
    none = load_record("another", folder=tmp_path / "none", root=record.root)
    first = whole(record)
    project = record.root / "_quarto.yml"
    text = project.read_text(encoding="utf-8")
    project.write_text(text.replace("website:\n", "website:\n  site-url: https://example.org/d\n"))
    assert whole(none, record) == first
    project.write_text(text)
    chain = record.store.folder / "chain.jsonl"
    chain.write_bytes(chain.read_bytes().replace(b'"2026-11-26T00', b'"2026-11-25T00', 1))
    assert whole(with_findings(record)) != first


def test_links_are_seen_from_the_address_that_the_site_states(
    record: Record, tmp_path: Path
) -> None:
    base = "{http://www.w3.org/XML/1998/namespace}base"
    assert feed(record, tmp_path).get(base) is None
    config = record.root / "_quarto.yml"
    text = config.read_text(encoding="utf-8")
    stated = text.replace("  search: true", "  search: true\n  site-url: https://example.org/d")
    config.write_text(stated, encoding="utf-8")
    assert feed(record, tmp_path).get(base) == "https://example.org/d/report/embedded/"
    assert feed(record, tmp_path, "feed.xml").get(base) == "https://example.org/d/"


def test_a_record_without_a_finding_has_an_empty_feed(record: Record, tmp_path: Path) -> None:
    found = feed(with_findings(record), tmp_path)
    assert texts(found, "entry") == [] and len(texts(found, "updated")) == 1
