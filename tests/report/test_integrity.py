"""The page of integrity counts what the chain holds, and its commands do what they say."""

from __future__ import annotations

import html as html_module
import json
import re
import shutil
import subprocess
import tomllib
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from conftest import Ticking, need
from making import make_runs, record

from drift.records.reproduce import reproduce_record
from drift.records.verify import verify_record
from drift.report import integrity, load_record, statements
from drift.report.archive import Sealed, publish_record
from drift.report.tables import Record

ROOT = Path(__file__).resolve().parents[2]
STATED = tomllib.loads((ROOT / "config/statements.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def phantom() -> Record:
    return load_record("phantom", root=ROOT)


@pytest.fixture(scope="module")
def chain() -> list[dict[str, Any]]:
    lines = (ROOT / "data/phantom/chain.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture
def changed(project: Path, clock: Ticking) -> Record:
    """A record of two runs whose cadence was then declared another, and one run more."""
    shutil.copytree(ROOT / "report/_templates", project / "report/_templates")
    make_runs(project, clock, 2)
    panel = project / "config/panels/test.toml"
    panel.write_text("cadence_hours = 6\n" + panel.read_text())
    made = record(project, clock)
    with made.opened():
        made.register()
    return load_record("test", root=project)


def visible(text: str) -> str:
    return " ".join(html_module.unescape(re.sub(r"<[^>]+>", " ", text)).split())


def test_the_chain_is_counted_by_kind_with_its_ends_and_its_head(
    phantom: Record, chain: list[dict[str, Any]]
) -> None:
    shown = visible(integrity.chain(phantom).text)
    for kind, lines in Counter(line["kind"] for line in chain).items():
        seqs = [line["seq"] for line in chain if line["kind"] == kind]
        assert re.search(rf"{kind} {lines} {seqs[0]} \S+ \S+ UTC {seqs[-1]} \S+ \S+ UTC", shown)
    head = json.loads((ROOT / "data/phantom/head.json").read_bytes())
    assert f"{len(chain)} lines. Head: line {head['seq']}, {head['hash']}" in shown


def test_every_line_of_the_chain_is_in_the_download(
    phantom: Record, chain: list[dict[str, Any]]
) -> None:
    frame = integrity.chain(phantom).text.data["chain"]
    assert list(frame.seq) == [line["seq"] for line in chain]
    # The hash of a line is what the next one names.
    assert list(frame.line_hash)[:-1] == [line["prev"] for line in chain[1:]]


def test_a_page_as_of_a_run_counts_no_later_line(chain: list[dict[str, Any]]) -> None:
    runs = [line["run"] for line in chain if line["kind"] == "run"]
    earlier = load_record("phantom", root=ROOT, as_of=runs[20])
    lines = integrity.ledger_lines(earlier)
    assert {line.body["run"] for line in lines if line.kind == "run"} == set(runs[:21])
    # The mixture's calibration ended with that run: its baselines belong to it.
    assert lines[-1].kind == "baseline" and lines[-1].body["run"] == runs[20]
    assert earlier.reading["head"]["seq"] < lines[-1].seq


def test_a_later_registration_names_what_it_changed_and_whose_labels_are_read(
    changed: Record,
) -> None:
    shown = visible(integrity.registrations(changed).text)
    assert "first registration" in shown
    assert "panel.cadence_hours" in shown
    frame = integrity.registrations(changed).text.data["registrations"]
    assert list(frame.cadence_hours.fillna(0)) == [0, 6]
    judges = integrity.judges(changed).text.data["labels-lines"]
    found = list(zip(judges.judge, judges.labels_lines, judges.is_read, strict=True))
    assert found == [("rules", 2, True), ("shapes", 2, False)]


def test_the_newest_baselines_are_shown_and_all_are_in_the_download(
    phantom: Record, chain: list[dict[str, Any]]
) -> None:
    due = [line for line in chain if line["kind"] == "baseline"]
    text = integrity.baselines(phantom).text
    assert list(text.data["baselines"].seq) == [line["seq"] for line in due]
    shown = re.findall(r"<tr><td>(\d+)<br>", text)
    newest = [str(line["seq"]) for line in reversed(due[-integrity.LISTED :])]
    assert shown == newest
    assert f"{len(due) - integrity.LISTED} older ones are in the file" in text


@pytest.mark.parametrize("as_of", ["", "20260106T000000Z"])
def test_the_command_for_the_head_prints_the_hash_that_the_page_promises(as_of: str) -> None:
    shown = integrity.head(load_record("phantom", root=ROOT, as_of=as_of)).text
    command, expected = (
        html_module.unescape(one) for one in re.findall(r"<code>([^<]+)</code></pre>", shown)
    )
    done = subprocess.run(
        ["sh", "-c", command], cwd=ROOT / "data/phantom", check=True, capture_output=True, text=True
    )
    assert done.stdout.split()[0] == expected


def test_a_copy_fetched_by_the_commands_of_the_page_verifies_and_is_derived_again(
    changed: Record, project: Path, tmp_path: Path
) -> None:
    need("curl", shutil.which("curl") is not None)
    site = tmp_path / "site"
    publish_record(changed, site / "report/test/record", cache=tmp_path / "cache")
    fetch, check = re.findall(r"<code>([^<]{60,})</code></pre>", integrity.commands(changed).text)
    script = html_module.unescape(fetch).replace("https://…", f"file://{site}")
    subprocess.run(["sh", "-euc", script], cwd=tmp_path, check=True)
    copy = tmp_path / "copy" / "test"
    found = verify_record(copy, root=project)
    assert (found.problems, found.assurance) == ([], "complete")
    again = reproduce_record(copy, root=project, scratch=tmp_path / "scratch")
    assert again.difference is None and again.runs == 2
    assert html_module.unescape(check).split("\n") == [
        ".venv/bin/drift verify --data copy",
        ".venv/bin/drift reproduce --data copy",
    ]


def test_the_months_of_the_record_are_those_that_it_gives_away(phantom: Record) -> None:
    shown = re.findall(r'href="record/([^"]+\.zip)"', integrity.months(phantom).text)
    assert shown == [f"{month}.zip" for month in Sealed(phantom).months()]


def test_the_steps_explained_are_the_steps_that_verify_takes() -> None:
    source = "".join(path.read_text() for path in (ROOT / "drift/records").glob("verify*.py"))
    named = set(re.findall(r'\.add\(\s*"([a-z ]+)"', source)) | set(
        re.findall(r'(?:part,|"batch":|"night":) "([a-z]+)"', source)
    )
    # "files" is a file that no line names, or one that the disk does not give.
    assert {entry["step"] for entry in STATED["step"]} == named - {"files"}
    for entry in STATED["step"]:
        assert all(len(entry[part]) > 15 for part in ("checks", "proves", "does_not_prove"))


def test_readers_without_scripts_are_told_where_the_button_would_be(phantom: Record) -> None:
    shown = str(integrity.verifier(phantom).text)
    named = phantom.head
    data = f'data-record="record/" data-seq="{named["seq"]}" data-hash="{named["hash"]}"'
    assert shown.count(f'<div class="drift-verify" {data}>') == 1
    assert "Without scripts" in visible(shown)


def test_a_record_without_a_chain_says_so(tmp_path: Path, synthetic: ModuleType) -> None:
    shutil.copytree(ROOT / "config", tmp_path / "config")
    synthetic.write_record(tmp_path / "data/embedded", tmp_path / "config/probe_bank.json")
    (tmp_path / "data/embedded/chain.jsonl").unlink(missing_ok=True)
    loaded = load_record("embedded", root=tmp_path)
    for shown in (integrity.chain, integrity.registrations, integrity.judges):
        assert "has no chain.jsonl" in shown(loaded).text


def test_every_promised_address_says_what_is_there_and_what_stays() -> None:
    frame = statements.statements("address")
    assert frame.address.is_unique
    assert (frame.found_there.str.len() > 10).all() and (frame.promise.str.len() > 10).all()


#: Of each promised address, a file of the built site that stands at it.
EXAMPLES = {
    "feed.xml, report/<record>/feed.xml": ["feed.xml", "report/embedded/feed.xml"],
    "codebook.csv": ["codebook.csv"],
    "report/<record>/<page>.html": ["report/embedded/reading.html"],
    "report/<record>/<page>.ipynb": ["report/embedded/reading.ipynb", "report/method/limits.ipynb"],
    "report/<record>/transcripts.html#<topic>-<slug>": ["report/embedded/transcripts.html"],
    "report/<record>/data/<name>.csv, .json, .svg": [
        "report/embedded/data/chain.csv", "report/embedded/data/chain.json",
        "report/embedded/data/rates-by-model.svg", "report/method/data/limits.csv",
    ],
    "report/<record>/data/transcripts.csv, .jsonl": [
        "report/embedded/data/transcripts.csv", "report/embedded/data/transcripts.jsonl",
    ],
    "report/<record>/runs/<run>.json": ["report/embedded/runs/20261127T180000Z.json"],
    "report/<record>/runs/<run>.html#<finding>": ["report/embedded/runs/20261127T180000Z.html"],
    "report/<record>/record/chain.jsonl, head.json": [
        "report/embedded/record/chain.jsonl", "report/embedded/record/head.json",
    ],
    "report/<record>/record/transcripts/, labels/": [
        "report/embedded/record/transcripts/2026-11/20261127T180000Z.jsonl",
        "report/embedded/record/labels",
    ],
    "report/<record>/record/index.json": ["report/embedded/record/index.json"],
    "report/<record>/record/<YYYY-MM>.zip": ["report/embedded/record/2026-11.zip"],
    "report/<record>/record/SHA256SUMS": ["report/embedded/record/SHA256SUMS"],
}  # fmt: skip
DERIVED = "registration.json, series.json, churn.jsonl, findings.jsonl, corpora/"


def test_a_file_stands_at_every_promised_address(built: Path) -> None:
    site = built / "report" / "_site"
    promised = {entry["address"] for entry in STATED["address"]}
    (derived,) = promised - EXAMPLES.keys()
    assert derived.startswith(f"report/<record>/record/{DERIVED}")
    assert EXAMPLES.keys() <= promised
    expected = [path for paths in EXAMPLES.values() for path in paths]
    expected += [f"report/embedded/record/{name}" for name in DERIVED.split(", ")]
    assert [path for path in expected if not (site / path).exists()] == []
