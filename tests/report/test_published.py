"""What lies beside the pages: exact, complete up to the run shown, and nothing besides."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import shutil
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pandas as pd
import pytest
from conftest import Ticking
from making import make_runs

from drift.config import canonical_json
from drift.errors import ConfigurationError, DriftError, IntegrityError
from drift.records.coding import read_coding, seal_coding
from drift.records.ledger import Ledger
from drift.records.store import Store, read_rows
from drift.records.verify import verify_record
from drift.report import (
    board_truth,
    figures,
    instrument,
    lab,
    ladders,
    shape_truth,
    truth,
    verdicts,
)
from drift.report.archive import publish_record
from drift.report.display import DATA
from drift.report.nightly import Nightly
from drift.report.nights import Nights
from drift.report.published import load_codebook, publish_files, standing_alone, to_csv
from drift.report.shaped import Shaped
from drift.report.tables import Record, load_record

ROOT = Path(__file__).resolve().parents[2]
CODEBOOK = """
[column.run]
type = "string"
meaning = "The run."
[column.estimate]
type = "number"
unit = "share of 1"
meaning = "The rate."
[column.n]
type = "integer"
meaning = "Its denominator."
"""


def notebook(tables: dict[str, Any], html: str = "") -> str:
    """An executed notebook whose only cell shows `tables` and `html`."""
    output = {"output_type": "display_data", "data": {DATA: tables, "text/html": [html]}}
    return json.dumps({"cells": [{"cell_type": "code", "outputs": [output]}]})


def table(**columns: list[Any]) -> dict[str, Any]:
    return {"columns": list(columns), "rows": list(map(list, zip(*columns.values(), strict=True)))}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a record of four runs in two months, the last two in April."""
    root = tmp_path_factory.mktemp("project")
    shutil.copytree(ROOT / "config", root / "config")
    (root / "notebooks").mkdir()
    (root / "config" / "codebook.toml").write_text(CODEBOOK)
    shutil.copy(ROOT / "_quarto.yml", root)
    turned = iter(range(10**6))
    clock = Ticking(datetime(2026, 3, 31, 12, 5, tzinfo=UTC))
    make_runs(root, clock, 4, when=lambda request: next(turned) % 7 == 0)
    return root


@pytest.fixture
def folder(project: Path, tmp_path: Path) -> Path:
    """A copy of the record for a test that changes it."""
    return Path(shutil.copytree(project / "data" / "test", tmp_path / "data" / "test"))


def shown(project: Path, folder: Path | None = None, as_of: str = "") -> Record:
    return load_record(
        "test", folder=folder or project / "data" / "test", as_of=as_of, root=project
    )


def publish(
    project: Path, site: Path, *records: Record, executed: dict[str, str] | None = None
) -> Path:
    publish_files(project, records, executed or {}, site)
    return site / "report"


def unpacked(published: Path, to: Path) -> Path:
    """The record as a reader puts it together: what belongs to no run, and every month."""
    copied = (published / name for name in ("chain.jsonl", "head.json", "registration.json"))
    to.mkdir()
    for path in (*copied, *published.glob("*.jsonl"), published / "series.json"):
        shutil.copy(path, to)
    shutil.copytree(published / "corpora", to / "corpora")
    for path in published.glob("*.zip"):
        with zipfile.ZipFile(path) as packed:
            packed.extractall(to)
    return to


def files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def test_a_table_is_published_as_csv_and_json_with_what_its_columns_mean(
    project: Path, tmp_path: Path
) -> None:
    text = notebook({"rates": table(run=["r1", "r2"], estimate=[0.25, None], n=[4.0, None])})
    report = publish(project, tmp_path, shown(project), executed={"test/rates.ipynb": text})
    assert (report / "test" / "data" / "rates.csv").read_bytes() == (
        b"run,estimate,n\r\nr1,0.25,4\r\nr2,,\r\n"
    )
    found = json.loads((report / "test" / "data" / "rates.json").read_bytes())
    assert found == {
        "name": "rates",
        "page": "rates",
        "record": "test",
        "run": "20260401T060500Z",
        "columns": [
            {"name": "run", "type": "string", "unit": "", "meaning": "The run."},
            {"name": "estimate", "type": "number", "unit": "share of 1", "meaning": "The rate."},
            {"name": "n", "type": "integer", "unit": "", "meaning": "Its denominator."},
        ],
        "rows": [["r1", 0.25, 4], ["r2", None, None]],
    }
    assert (report / "test" / "rates.ipynb").read_text() == text


def test_two_tables_of_one_record_cannot_have_one_name(project: Path, tmp_path: Path) -> None:
    text = notebook({"rates": table(run=["r1"])})
    executed = {"test/rates.ipynb": text, "method/limits.ipynb": text}
    publish(project, tmp_path / "good", shown(project), executed=executed)
    with pytest.raises(DriftError, match="same name"):
        publish(project, tmp_path, shown(project), executed=executed | {"test/b.ipynb": text})
    taken = {"test/a.ipynb": notebook({"transcripts": table(run=["r1"])})}
    with pytest.raises(DriftError, match="same name"):
        publish(project, tmp_path / "taken", shown(project), executed=taken)


def test_a_name_that_leads_elsewhere_is_refused(project: Path, tmp_path: Path) -> None:
    executed = {"test/a.ipynb": notebook({"../../index": table(run=["r1"])})}
    with pytest.raises(IntegrityError):
        publish(project, tmp_path, shown(project), executed=executed)


def test_csv_gives_back_any_text_and_computes_none() -> None:
    texts = ['a "quoted", word', "two\r\nlines", "", "汉字 \u202e", "plain", "=1+1", "-x", "@a"]
    rows = list(csv.reader(io.StringIO(to_csv(["text"], [[text] for text in texts]).decode(), "")))
    assert rows == [["text"], *([text] for text in texts[:5]), ["'=1+1"], ["'-x"], ["'@a"]]
    assert to_csv(["a", "b", "c"], [[-1.5, True, None]]) == b"a,b,c\r\n-1.5,true,\r\n"


def test_a_figure_stands_alone_as_a_file(project: Path, tmp_path: Path) -> None:
    page = (
        '<figure class="drift-figure" id="f"><div><svg viewBox="0 0 9 9" aria-label="a, b">'
        '<path style="fill: currentColor; stroke: var(--drift-2, #a4510f)"/>'
        '<use xlink:href="#f-m"/></svg></div></figure>'
    )
    executed = {"test/rates.ipynb": notebook({"f": table(run=["r1"])}, page)}
    report = publish(project, tmp_path, shown(project), executed=executed)
    text = (report / "test" / "data" / "f.svg").read_text()
    assert "var(" not in text and "currentColor" not in text
    svg = ET.fromstring(text)
    assert svg.tag == "{http://www.w3.org/2000/svg}svg" and svg.get("viewBox") == "0 0 9 9"
    assert svg[0].attrib == {"width": "100%", "height": "100%", "fill": "#ffffff"}


def test_a_figure_is_a_sound_file_whatever_it_is_of() -> None:
    rate = {"refused": 1, "n": 2, "estimate": 0.5, "low": 0.1, "high": 0.9}
    name = 'a "<b>&\u00ad'
    frame = pd.DataFrame([{"group": name, "series": name, **rate}])
    svg = ET.fromstring(standing_alone(figures.svg(figures.INTERVALS, frame, label="f")))
    assert (svg.get("aria-label") or "").startswith('a "<b>&U+00AD')
    ET.fromstring(standing_alone("<svg><text>\x0b\uffff</text></svg>"))


def test_the_current_transcripts_hold_every_text_as_it_was_stored(
    project: Path, tmp_path: Path
) -> None:
    report = publish(project, tmp_path, shown(project))
    lines = (report / "test" / "data" / "transcripts.jsonl").read_text().splitlines()
    found = {(row["run"], row["model"], row["key"]): row for row in map(json.loads, lines)}
    stored = project / "data" / "test" / "transcripts"
    for run in ("20260401T000500Z", "20260401T060500Z"):
        for line in (stored / "2026-04" / f"{run}.jsonl").read_text().splitlines():
            row = json.loads(line)
            assert found.pop((run, row["model"], row["key"]))["text"] == row["text"]
    assert not found
    whole = (report / "test" / "data" / "transcripts.csv").read_bytes().decode()
    rows = list(csv.DictReader(io.StringIO(whole, "")))
    assert len(rows) == len(lines)
    assert {row["outcome"] for row in rows} == {"answered", "refused"}
    refused = next(row for row in rows if row["outcome"] == "refused")
    assert refused["text"][int(refused["span_start"]) : int(refused["span_end"])]


def test_readings_are_published_byte_for_byte_and_uncompressed(
    project: Path, folder: Path, tmp_path: Path
) -> None:
    first = next((folder / "readings").iterdir())
    whole = first.read_bytes()
    first.with_name(first.name + ".gz").write_bytes(gzip.compress(whole))
    first.unlink()
    report = publish(project, tmp_path / "site", shown(project, folder))
    assert (report / "test" / "runs" / first.name).read_bytes() == whole
    assert len(list((report / "test" / "runs").iterdir())) == 4


def test_the_published_record_put_together_again_holds(project: Path, tmp_path: Path) -> None:
    report = publish(project, tmp_path / "site", shown(project))
    again = unpacked(report / "test" / "record", tmp_path / "test")
    found = verify_record(again, root=project, workers=1)
    assert found.problems == [] and found.assurance == "complete" and found.runs == 4


def test_months_hold_the_files_as_they_lie_in_the_record(
    project: Path, folder: Path, tmp_path: Path
) -> None:
    path = next(folder.glob("transcripts/2026-03/*.jsonl"))
    packed = gzip.compress(path.read_bytes())
    path.with_name(path.name + ".gz").write_bytes(packed)
    path.unlink()
    report = publish(project, tmp_path / "site", shown(project, folder))
    with zipfile.ZipFile(report / "test" / "record" / "2026-03.zip") as month:
        names = set(month.namelist())
        assert month.read(f"transcripts/2026-03/{path.name}.gz") == packed
        sums = month.read("SHA256SUMS-2026-03").decode().splitlines()
        assert {line.split("  ")[1] for line in sums} == names - {"SHA256SUMS-2026-03"}
        assert all(sha256(month.read(line[66:])).hexdigest() == line[:64] for line in sums)
    assert len(names) == 2 * 4 + 1
    again = unpacked(report / "test" / "record", tmp_path / "test")
    assert verify_record(again, root=project, workers=1).problems == []


def test_every_published_file_of_the_record_has_its_checksum(project: Path, tmp_path: Path) -> None:
    record = publish(project, tmp_path, shown(project)) / "test" / "record"
    sums = {line[66:]: line[:64] for line in (record / "SHA256SUMS").read_text().splitlines()}
    found = {path.relative_to(record).as_posix(): path.read_bytes() for path in files(record)}
    del found["SHA256SUMS"]
    assert sums == {name: sha256(data).hexdigest() for name, data in found.items()}
    index = json.loads(found["index.json"])
    assert index["head"] == json.loads(found["head.json"])
    assert [month["month"] for month in index["months"]] == ["2026-03", "2026-04"]
    assert [len(month["runs"]) for month in index["months"]] == [2, 2]
    for month in index["months"]:
        assert sums[month["file"]] == month["sha256"]
    for run in index["latest"]:
        assert {run["transcript"], *run["labels"]} <= found.keys()
    assert len(index["latest"]) == 4


def test_only_what_the_chain_names_is_published(
    project: Path, folder: Path, tmp_path: Path
) -> None:
    strays = (
        "open/20260401T120500Z.jsonl",
        "transcripts/2026-04/20260401T120500Z.jsonl",
        "transcripts/2026-04/notes.jsonl",
        "labels/mine-000000000000/20260401T060500Z.jsonl",
        "corpora/private.json",
        "plan.toml",
        "truth.json",
        ".env",
        "keys.txt",
    )
    for name in strays:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("SECRET")
    site = tmp_path / "site"
    publish(project, site, shown(project, folder))
    for path in files(site):
        assert not path.as_posix().endswith(strays)
        assert b"SECRET" not in path.read_bytes()
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as month:
                assert not set(strays) & set(month.namelist())


def test_a_chain_that_names_a_corpus_elsewhere_publishes_nothing_of_it(
    project: Path, folder: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "data" / "own-aaaaaaaaaaaa.json"
    elsewhere.write_text("SECRET")
    line = json.loads((folder / "chain.jsonl").read_bytes().splitlines()[0])
    line["corpus"] |= {"name": "../../own", "sha256": "a" * 64}
    (folder / "chain.jsonl").write_bytes(canonical_json(line) + b"\n")
    with pytest.raises(IntegrityError, match="name"):
        publish_record(shown(project, folder), tmp_path / "site", cache=tmp_path / "cache")


def test_as_of_a_run_nothing_that_came_later_is_published(project: Path, tmp_path: Path) -> None:
    runs = sorted(path.stem for path in (project / "data" / "test" / "readings").iterdir())
    site = tmp_path / "site"
    report = publish(project, site, shown(project, as_of=runs[1]))
    record = report / "test" / "record"
    for path in files(site):
        data = path.read_bytes()
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as month:
                data = b"".join(month.read(name) + name.encode() for name in month.namelist())
        assert not any(run.encode() in data or run in path.name for run in runs[2:]), path
    last = (record / "chain.jsonl").read_bytes().splitlines()[-1]
    head = json.loads((record / "head.json").read_bytes())
    assert head == {"hash": sha256(last).hexdigest(), "seq": json.loads(last)["seq"]}
    assert head == shown(project, as_of=runs[1]).head
    again = unpacked(record, tmp_path / "test")
    found = verify_record(again, root=project, workers=1)
    assert found.problems == [] and found.runs == 2


def test_a_page_is_of_the_panel_that_was_registered_when_its_run_was_made(
    project: Path, folder: Path
) -> None:
    ledger, before = Ledger(folder), shown(project, folder)
    body = before.registration | {"panel": before.panel | {"title": "Declared later"}}
    later = ledger.append("registration", body, at=datetime(2026, 4, 2, tzinfo=UTC))
    (folder / "registration.json").write_bytes(canonical_json(later.body) + b"\n")
    assert shown(project, folder).panel == before.panel
    then = shown(project, folder, as_of=before.reading["run"])
    assert (then.panel, then.head) == (before.panel, before.head)


def test_labels_of_a_second_judge_are_published_but_not_as_of_a_run_before_them(
    project: Path, folder: Path, tmp_path: Path
) -> None:
    runs = sorted(path.stem for path in (folder / "readings").iterdir())
    store, ledger = Store(folder), Ledger(folder)
    (text, *_) = (row for row in read_rows(store.transcript(runs[0])) if row["status"] == "ok")
    mine = {name: text[name] for name in ("model", "key")} | {"run": runs[0], "label": "refused"}
    mine |= {
        "rule": "reader",
        "span": None,
        "text_sha256": sha256(text["text"].encode()).hexdigest(),
    }
    (tmp_path / "mine.jsonl").write_text(json.dumps(mine) + "\n")
    coding = read_coding(tmp_path / "mine.jsonl", store, ledger)
    clock = Ticking(datetime(2026, 4, 2, tzinfo=UTC))
    assert seal_coding(coding, "reader", store, ledger, clock=clock) == runs[:1]
    for as_of, name in (("", "now"), (runs[-1], "then")):
        record = publish(project, tmp_path / name, shown(project, folder, as_of=as_of))
        again = unpacked(record / "test" / "record", tmp_path / f"{name}-again")
        assert verify_record(again, root=project, workers=1).problems == []
        judges = {path.name for path in (again / "labels").iterdir()}
        assert len(judges) == (2 if as_of else 3)


def test_a_zip_is_made_again_only_when_its_month_has_changed(
    project: Path, folder: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"

    def made(name: str) -> dict[str, tuple[int, bytes]]:
        publish_record(shown(project, folder), tmp_path / name, cache=cache)
        paths = (tmp_path / name).glob("*.zip")
        return {path.name: (path.stat().st_ino, path.read_bytes()) for path in paths}

    first = made("a")
    assert made("b") == first
    reading = sorted((folder / "readings").iterdir())[-1]
    reading.write_bytes(reading.read_bytes() + b"\n")
    third = made("c")
    assert third["2026-03.zip"] == first["2026-03.zip"]
    assert third["2026-04.zip"][1] != first["2026-04.zip"][1]
    shutil.rmtree(cache)
    assert {name: data for name, (_, data) in made("d").items()} == {
        name: data for name, (_, data) in third.items()
    }


def test_a_zip_that_was_edited_in_the_site_is_never_published_again(
    project: Path, tmp_path: Path
) -> None:
    publish_record(shown(project), tmp_path / "a", cache=tmp_path / "cache")
    whole = (tmp_path / "a" / "2026-03.zip").read_bytes()
    with (tmp_path / "a" / "2026-03.zip").open("r+b") as stream:
        stream.write(b"edited")
    publish_record(shown(project), tmp_path / "b", cache=tmp_path / "cache")
    assert (tmp_path / "b" / "2026-03.zip").read_bytes() == whole


def test_a_missing_transcript_stops_the_publication(
    project: Path, folder: Path, tmp_path: Path
) -> None:
    next(folder.glob("transcripts/2026-03/*")).unlink()
    with pytest.raises(IntegrityError, match="missing"):
        publish(project, tmp_path / "site", shown(project, folder))


def test_a_record_without_a_run_publishes_no_table_and_no_record(
    project: Path, tmp_path: Path
) -> None:
    empty = load_record("empty", folder=tmp_path / "none", root=project)
    report = publish(project, tmp_path / "site", empty)
    assert [path.name for path in files(report)] == ["feed.xml"]


def test_the_codebook_is_read_strictly(project: Path, tmp_path: Path) -> None:
    path = tmp_path / "config" / "codebook.toml"
    path.parent.mkdir()
    for wrong in ('[column.a]\ntype = "text"\nmeaning = "x"', '[column.a]\ntype = "string"'):
        path.write_text(wrong)
        with pytest.raises(ConfigurationError, match=r"column\.a"):
            load_codebook(tmp_path)


#: What a value of each type is, where it is known.
FITS: dict[str, Any] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "time": lambda value: re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", value),
    "hash": lambda value: re.fullmatch("[0-9a-f]{64}", value),
}


@pytest.fixture(scope="module")
def columns(built: Path, boarded: Path, judged: Path) -> dict[str, list[Any]]:
    """The known values of every column of every download of the built sites.

    No record of them has a truth, a plan or a batch: those tables are of shipped ones.
    """
    found: dict[str, list[Any]] = {}
    tables = [
        json.loads(path.read_bytes())
        for root in (built, boarded, judged)
        for path in root.glob("report/_site/report/*/data/*.json")
    ]
    for one in tables:
        for place, column in enumerate(one["columns"]):
            values = [row[place] for row in one["rows"] if row[place] is not None]
            found.setdefault(column["name"], []).extend(values)
    for path in built.glob("report/_site/report/*/data/transcripts.jsonl"):
        for row in map(json.loads, path.read_bytes().splitlines()):
            for name, value in row.items():
                found.setdefault(name, []).extend([] if value is None else [value])
    phantom, laboratory = (load_record(name, root=ROOT) for name in ("phantom", "lab"))
    climbed = ladders.Batches(laboratory)
    tallies = [piece(climbed) for piece in (ladders.made, ladders.came_to, ladders.transitions)]
    drawn = [piece(climbed, "") for piece in (ladders.refusals, ladders.outcomes)]
    replayed = verdicts.replays(instrument.Pins(laboratory))
    known = (truth.facts(phantom), truth.labels(phantom), lab.processes(laboratory), replayed)
    scripted = board_truth.recovered(Nightly(Nights(phantom)))
    shapes = shape_truth.shapes(Shaped(phantom))
    for shown in (*known, *tallies, *drawn, scripted, shapes):
        for frame in shown.text.data.values():
            for name in frame:
                found.setdefault(str(name), []).extend(frame[name].dropna().tolist())
    return found


def test_every_column_of_every_download_is_described_and_no_other(
    columns: dict[str, list[Any]],
) -> None:
    described = set(load_codebook(ROOT))
    assert columns.keys() - described == set()
    assert described - columns.keys() == set()


def test_every_value_is_of_the_type_that_the_codebook_states(
    columns: dict[str, list[Any]],
) -> None:
    wrong = {
        (name, column.type, repr(value))
        for name, column in load_codebook(ROOT).items()
        for value in columns[name]
        if not FITS[column.type](value)
    }
    assert wrong == set()


def test_the_codebook_is_published_as_one_table(built: Path) -> None:
    whole = (built / "report" / "_site" / "codebook.csv").read_bytes().decode()
    rows = list(csv.DictReader(io.StringIO(whole, "")))
    assert {row["name"]: row["meaning"].removeprefix("'") for row in rows} == {
        name: column.meaning for name, column in load_codebook(ROOT).items()
    }
