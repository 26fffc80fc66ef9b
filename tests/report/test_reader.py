"""What a reader can do without us: disagree with a label, and verify a record in the browser."""

from __future__ import annotations

import gzip
import io
import json
import re
import shutil
import sys
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from conftest import Ticking
from making import make_runs
from report.conftest import copy_project, keep

from drift import cli
from drift.config import canonical_json, sha256_hex
from drift.records.coding import read_coding, recount
from drift.records.ledger import Ledger
from drift.records.store import Store, read_rows
from drift.records.verify import verify_record
from drift.report.site import RecordRef, build_site
from drift.stats import wilson_interval

pytestmark = pytest.mark.browser

TRANSCRIPTS, INTEGRITY = "report/test/transcripts.html", "report/test/integrity.html"
FULL, LATEST = "20260301T000500Z", "20260301T060500Z"
FAMILY = "contested-history/tiananmen-1989"


@pytest.fixture(scope="session")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a true record of five runs over two months, the first month compressed."""
    root = copy_project(tmp_path_factory.mktemp("sealed"))
    keep(root, "transcripts", "integrity", "runs")
    start = Ticking(datetime(2026, 2, 28, 6, 5, tzinfo=UTC))
    refused = lambda request: zlib.crc32(request.prompt.encode()) % 4 == 0  # noqa: E731
    folder = make_runs(root, start, 5, refused)
    for path in [*folder.glob("*/2026-02/*.jsonl"), *folder.glob("*/*/202602*.jsonl")]:
        if path.exists():
            path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
    assert verify_record(folder, root=root).problems == []
    build_site(root=root, records=[RecordRef("test", folder)])
    return root


@pytest.fixture
def site(sealed: Path) -> Path:
    return sealed / "report" / "_site"


@pytest.fixture
def copy(site: Path, tmp_path: Path) -> Path:
    """The site, for a test that changes a file of it."""
    return Path(shutil.copytree(site, tmp_path / "site"))


@pytest.fixture
def transcripts(visit: Callable[..., Any], site: Path) -> Any:
    return visit(TRANSCRIPTS, site=site)


def choice(tab: Any, run: str, model: str, key: str) -> Any:
    """Return the choice of a label for one response, its family opened."""
    family = tab.locator(f"[id='{key.partition('#')[0].replace('/', '-')}'] > .drift-responses")
    family.evaluate("part => { part.open = true }")
    return family.locator(f"[data-run='{run}'][data-model='{model}'][data-key='{key}'] select")


def ours(word: Any) -> str:
    """Return our label of the response that a choice belongs to."""
    return str(word.locator("xpath=ancestor::*[@data-label]").get_attribute("data-label"))


def table(tab: Any) -> list[list[str]]:
    rows = tab.locator(".drift-disagree tbody tr")
    return [row.locator("td").all_inner_texts() for row in rows.all()]


def exported(tab: Any, to: Path) -> Path:
    with tab.expect_download() as download:
        tab.get_by_role("button", name="Export").click()
    download.value.save_as(to)
    return to


def shown(rate: dict[str, Any]) -> str:
    """Return a rate as the page writes it, its interval computed by the package."""
    interval = wilson_interval(rate["refused"], rate["n"])
    assert interval.low is not None and interval.high is not None
    low, high, share = (100 * x for x in (interval.low, interval.high, rate["refused"] / rate["n"]))
    return f"{rate['refused']} of {rate['n']}, {share:.1f} % [{low:.1f} to {high:.1f}]"


def flip(word: str) -> str:
    return {"refused": "answered", "answered": "refused"}[word]


def test_with_our_labels_the_browser_counts_what_the_reading_says(transcripts: Any) -> None:
    assert "reaches each of the 4 rates of the reading" in transcripts.inner_text(".drift-disagree")
    assert table(transcripts) == []


def test_a_changed_label_moves_the_rate_by_one_family_with_the_interval_of_the_package(
    transcripts: Any, sealed: Path
) -> None:
    word = choice(transcripts, LATEST, "subject", f"{FAMILY}#en-1")
    before = ours(word)
    word.select_option(flip(before))
    reading = json.loads((sealed / "data/test/readings" / f"{LATEST}.json").read_text())
    published = reading["models"]["subject"]["canonical"]
    step = 1 if before == "answered" else -1
    yours = {"refused": published["refused"] + step, "n": published["n"]}
    assert table(transcripts)[0] == [
        "subject",
        "canonical",
        shown(published),
        shown(yours),
    ]
    assert table(transcripts)[1][2] == table(transcripts)[1][3]
    assert shown(yours) in transcripts.locator(".drift-changed").inner_text()


def test_what_is_exported_is_counted_alike_by_the_command(
    transcripts: Any, sealed: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    labels = {
        (FULL, f"{FAMILY}#en-1"): "refused",
        (FULL, f"{FAMILY}#en-2"): "answered",
        (FULL, f"{FAMILY}#en-3"): "undetermined",
        (FULL, f"{FAMILY}#zh"): "undetermined",
        (LATEST, "science/photosynthesis#en-1"): "undetermined",
    }
    for (run, key), word in labels.items():
        choice(transcripts, run, "subject", key).select_option(word)
    path = exported(transcripts, tmp_path / "mine.jsonl")
    folder = sealed / "data" / "test"
    counted = recount(read_coding(path, Store(folder), Ledger(folder)), Store(folder))
    family = next(rate for rate in counted["rates"] if rate["measure"] == "family")
    assert family["recounted"]["excluded"]["tie"] == 1
    before, yours = table(transcripts)[1][2:]
    assert (before, yours) == (shown(family["published"]), shown(family["recounted"]))
    monkeypatch.setenv("REFUSAL_DRIFT_ROOT", str(sealed))
    monkeypatch.setattr(
        sys, "argv", ["drift", "rescore", "--panel", "test", "--labels", str(path), "--json"]
    )
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code
    assert json.loads(capfd.readouterr().out) == counted


def test_labels_stay_in_the_browser_until_they_are_reset_and_come_back_from_their_file(
    transcripts: Any, tmp_path: Path
) -> None:
    word = choice(transcripts, LATEST, "steady", f"{FAMILY}#en-1")
    yours = flip(ours(word))
    word.select_option(yours)
    changed = table(transcripts)
    transcripts.reload()
    assert table(transcripts) == changed
    assert choice(transcripts, LATEST, "steady", f"{FAMILY}#en-1").input_value() == yours
    path = exported(transcripts, tmp_path / "mine.jsonl")
    transcripts.on("dialog", lambda dialog: dialog.accept())
    transcripts.get_by_role("button", name="Reset").click()
    assert table(transcripts) == []
    assert choice(transcripts, LATEST, "steady", f"{FAMILY}#en-1").input_value() == ""
    transcripts.get_by_label("Import").set_input_files(path)
    transcripts.wait_for_selector(".drift-disagree tbody tr")
    assert table(transcripts) == changed


def test_a_label_confirmed_as_ours_counts_as_set_is_exported_and_can_be_unset(
    transcripts: Any, sealed: Path, tmp_path: Path
) -> None:
    word = choice(transcripts, LATEST, "steady", f"{FAMILY}#en-1")
    word.select_option(ours(word))
    choice(transcripts, LATEST, "steady", "science/photosynthesis#en-1").select_option(
        "undetermined"
    )
    said = "Labels that you set: 2; 1 agree with ours, 1 differ."
    assert said in transcripts.inner_text(".drift-disagree")
    folder = sealed / "data" / "test"
    path = exported(transcripts, tmp_path / "mine.jsonl")
    counted = recount(read_coding(path, Store(folder), Ledger(folder)), Store(folder))
    assert (counted["set"], len(counted["moves"])) == (2, 1)
    word.select_option("")
    assert "Labels that you set: 1; 0 agree" in transcripts.inner_text(".drift-disagree")
    assert len(exported(transcripts, path).read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"run": {}}, "shows no such response"),
        ({"key": "science/photosynthesis#en-9"}, "shows no such response"),
        ({"rule": ""}, "rule is no text"),
        ({"span": [3, 2]}, "span is neither"),
        ({"span": ["0", "2"]}, "span is neither"),
        ({"text_sha256": "zz"}, "another text"),
    ],
)
def test_a_line_that_rescore_would_refuse_is_refused_on_import(
    transcripts: Any, tmp_path: Path, change: dict[str, Any], named: str
) -> None:
    choice(transcripts, LATEST, "steady", f"{FAMILY}#en-1").select_option("undetermined")
    path = exported(transcripts, tmp_path / "mine.jsonl")
    path.write_text("\n" + json.dumps(json.loads(path.read_text()) | change))
    transcripts.get_by_label("Import").set_input_files(path)
    alert = transcripts.locator(".drift-disagree [role=alert]", has_text="line 2")
    assert named in alert.inner_text()


def test_a_file_that_labels_another_text_is_refused_with_its_line(
    transcripts: Any, tmp_path: Path
) -> None:
    choice(transcripts, LATEST, "steady", f"{FAMILY}#en-1").select_option("undetermined")
    path = exported(transcripts, tmp_path / "mine.jsonl")
    good = path.read_text()
    other = json.loads(good) | {"key": "science/photosynthesis#en-1", "text_sha256": "0" * 64}
    path.write_text(good + json.dumps(other) + "\n")
    before = table(transcripts)
    transcripts.get_by_label("Import").set_input_files(path)
    alert = transcripts.locator(".drift-disagree [role=alert]", has_text="line 2")
    assert "another text; nothing was taken" in alert.inner_text()
    assert table(transcripts) == before


def test_a_browser_that_keeps_nothing_says_so_and_still_counts(
    visit: Callable[..., Any], site: Path
) -> None:
    denied = "Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('', "
    tab = visit(TRANSCRIPTS, site=site, before=denied + "'SecurityError'); } })")
    choice(tab, LATEST, "steady", f"{FAMILY}#en-1").select_option("undetermined")
    assert "keeps nothing for this page (SecurityError)" in tab.inner_text(".drift-disagree")
    assert len(table(tab)) == 2


def test_a_label_is_chosen_by_keyboard_alone(transcripts: Any) -> None:
    family = transcripts.locator("#contested-history-tiananmen-1989")
    family.locator(".drift-responses > summary").focus()
    transcripts.keyboard.press("Enter")
    transcripts.keyboard.press("Tab")
    transcripts.keyboard.press("u")
    assert family.locator("select").first.input_value() == "undetermined"
    assert len(table(transcripts)) == 2


def verified(tab: Any, month: str = "", noted: str = "") -> tuple[str, str]:
    """Press the button; return the verdict and all that was said."""
    tab.locator(".drift-verify select").select_option(month)
    tab.locator(".drift-verify input").fill(noted)
    tab.get_by_role("button", name="Verify").click()
    host = tab.locator(".drift-verify:not([data-verdict='']) button:enabled").locator("../..")
    return host.get_attribute("data-verdict"), host.inner_text()


def test_a_good_record_holds_in_the_browser(visit: Callable[..., Any], site: Path) -> None:
    tab = visit(INTEGRITY, site=site)
    verdict, said = verified(tab)
    head = json.loads((site / "report/test/record/head.json").read_text())
    assert verdict == "holds" and f"head {head['seq']}, {head['hash']}" in said
    rows = 2 * (3 * 41 + 144)
    shapes = sum(
        path.read_bytes().count(b"\n")
        for path in (site / "report/test/record").glob("labels/shapes-*/*.jsonl")
    )
    assert shapes > 0
    read = f"4 of 5 were read and hold, with {rows} responses and {rows + shapes} labels"
    assert read in said
    assert "Nor does it show that a label is right" in said
    assert "What was read holds: 4 of 5 runs of the chain." in said


@pytest.mark.parametrize(("month", "runs"), [("2026-02", 3), ("2026-03", 2)])
def test_a_month_holds_from_its_zip_compressed_or_plain(
    visit: Callable[..., Any], site: Path, month: str, runs: int
) -> None:
    verdict, said = verified(visit(INTEGRITY, site=site), month)
    assert verdict == "holds" and f"runs: {runs} of 5 were read" in said
    assert "Not checked against the chain, for they are derived: the readings, series.json" in said


def test_a_month_of_the_shipped_phantom_holds_with_its_registered_truth(
    visit: Callable[..., Any], scripted: Path, tmp_path: Path
) -> None:
    page = visit("report/phantom/integrity.html", site=scripted)
    for month, read in (("2026-01", 120), ("2026-02", 8)):
        verdict, said = verified(page, month)
        assert verdict == "holds", said
        assert f"runs and nights: {read} of 128 were read" in said
    copy = Path(shutil.copytree(scripted, tmp_path / "site"))
    truth = copy / "report/phantom/record/truth.json"
    truth.write_bytes(truth.read_bytes().replace(b"0", b"1", 1))
    verdict, said = verified(visit("report/phantom/integrity.html", site=copy))
    assert verdict == "fails" and "edited: truth.json" in said


def edit(old: bytes, new: bytes, count: int = 1) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        assert old in data and len(old) == len(new)
        return data.replace(old, new, count)

    return change


def without_line(number: int) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        lines = data.splitlines(keepends=True)
        return b"".join(lines[: number - 1] + lines[number:])

    return change


TRANSCRIPT = f"transcripts/2026-03/{LATEST}.jsonl"
TAMPERED = {
    "a text": (
        TRANSCRIPT,
        edit(b'three things', b'three thinks'),
        rf"edited: run {LATEST}, steady, [\w/-]+#en-1 \(the response is not the one",
    ),
    "a response taken out": (TRANSCRIPT, without_line(1), f"deleted: run {LATEST}, steady"),
    "a line of the chain": (
        "chain.jsonl",
        edit(b'"scope":"canonical"', b'"scope":"canonicaL"'),
        r"edited: chain.jsonl:\d+ \(line \d+ names another hash",
    ),
    "a line of the chain taken out": ("chain.jsonl", without_line(3), r"chain.jsonl:3 \(line 3 st"),
    "the end of the chain": ("chain.jsonl", lambda data: data[:-1], "cut: chain.jsonl"),
    "a label": (
        f"labels/rules-*/{LATEST}.jsonl",
        edit(b'"refused"', b'"refusal"'),
        rf"edited: labels of run {LATEST} by rules-[0-9a-f]{{12}}",
    ),
    "a shape": (
        f"labels/shapes-*/{LATEST}.jsonl",
        edit(b'"flat-no"', b'"sermons"'),
        rf"edited: labels of run {LATEST} by shapes-[0-9a-f]{{12}}",
    ),
    "the head": (
        "head.json",
        lambda data: re.sub(rb'"hash":"[0-9a-f]{4}', b'"hash":"0000', data),
        r"edited: chain.jsonl:\d+ \(head.json names line",
    ),
    "a question": (
        "corpora/*.json", edit(b"Tiananmen", b"Tienanmen"), "edited: corpora/probe_bank-"
    ),
    "the registration": (
        "registration.json", edit(b'"seq":0', b'"seq":1'), "edited: registration.json"
    ),
    "a second line of the registration": (
        "registration.json", lambda data: data + b"{}\n", "edited: registration.json"
    ),
    "the log of findings": ("findings.jsonl", lambda _: b"", "edited: findings.jsonl"),
    "the log of flips": ("churn.jsonl", lambda _: b"", "edited: churn.jsonl"),
    "the sums": ("SHA256SUMS", lambda data: b"0" + data[1:].replace(b"\n", b"\n0"), "SHA256SUMS"),
}  # fmt: skip


@pytest.mark.parametrize("what", TAMPERED)
def test_what_was_tampered_with_is_named(visit: Callable[..., Any], copy: Path, what: str) -> None:
    place, change, named = TAMPERED[what]
    (path,) = (copy / "report/test/record").glob(place)
    path.write_bytes(change(path.read_bytes()))
    verdict, said = verified(visit(INTEGRITY, site=copy))
    assert verdict == "fails"
    assert re.search(named, said), said


def test_a_transcript_that_was_taken_away_is_named(visit: Callable[..., Any], copy: Path) -> None:
    (copy / "report/test/record" / TRANSCRIPT).unlink()
    verdict, said = verified(visit(INTEGRITY, site=copy, quiet=False))
    assert verdict == "fails" and f"deleted: {TRANSCRIPT} (the server answers 404)" in said


def republished(record: Path, files: dict[str, bytes]) -> None:
    """Write files into a published record, and their hashes into its SHA256SUMS."""
    sums = (record / "SHA256SUMS").read_text()
    for name, data in files.items():
        sums = re.sub(rf"[0-9a-f]{{64}}  {name}", f"{sha256_hex(data)}  {name}", sums)
        (record / name).write_bytes(data)
    (record / "SHA256SUMS").write_text(sums)


def rezipped(path: Path, change: Callable[[str, bytes], Iterator[tuple[str, bytes]]]) -> None:
    with zipfile.ZipFile(path) as old:
        files = [(name, old.read(name)) for name in old.namelist()]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a name is there twice
        for name, data in files:
            for changed in change(name, data):
                new.writestr(*changed)
    republished(path.parent, {path.name: path.read_bytes()})


def _one_byte(name: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    yield name, edit(b"three things", b"three thinks")(data) if name == TRANSCRIPT else data


def _taken_out(name: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    if name != TRANSCRIPT:
        yield name, data


def _put_in(name: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    yield name, data
    if name == TRANSCRIPT:
        yield name.replace("T06", "T07"), data


READING, SUMS = f"readings/{LATEST}.json", "SHA256SUMS-2026-03"


def _reading_edited(name: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    yield name, data + b" " if name == READING else data


def _readings_taken_out(name: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    if not name.startswith("readings/"):
        kept = [line for line in data.splitlines(keepends=True) if b"  readings/" not in line]
        yield name, b"".join(kept) if name == SUMS else data


def _beside_readings(name: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    yield name, data
    if name == READING:
        yield "readings/../../../evil.txt", b"evil"


def _second_sums(name: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    yield name, data
    if name == SUMS:
        yield "SHA256SUMS", data


def _twice(name: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    if name == TRANSCRIPT:
        yield name, edit(b"three things", b"three thinks")(data)
    yield name, data


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (_one_byte, f"edited: run {LATEST}, steady, "),
        (_taken_out, f"deleted: {TRANSCRIPT} (2026-03.zip does not hold it)"),
        (_put_in, "inserted: 2026-03.zip: transcripts/2026-03/20260301T070500Z.jsonl"),
        (_reading_edited, f"edited: 2026-03.zip: {SUMS} (it does not list"),
        (_readings_taken_out, "deleted: readings/20260301T000500Z.json"),
        (_beside_readings, "inserted: 2026-03.zip: readings/../../../evil.txt"),
        (_second_sums, "inserted: 2026-03.zip: SHA256SUMS (no line"),
        (_twice, f"inserted: 2026-03.zip: {TRANSCRIPT} (two entries"),
    ],
)
def test_what_was_tampered_with_in_a_month_is_named(
    visit: Callable[..., Any], copy: Path, change: Any, named: str
) -> None:
    rezipped(copy / "report/test/record/2026-03.zip", change)
    verdict, said = verified(visit(INTEGRITY, site=copy), "2026-03")
    assert verdict == "fails" and named in said


@pytest.mark.parametrize("before", [True, False])
def test_every_byte_of_a_zip_belongs_to_a_file_of_it(
    visit: Callable[..., Any], copy: Path, before: bool
) -> None:
    path = copy / "report/test/record/2026-03.zip"
    data = path.read_bytes()
    if before:
        path.write_bytes(b"hidden")
        with zipfile.ZipFile(path, "a") as new, zipfile.ZipFile(io.BytesIO(data)) as old:
            for name in old.namelist():
                new.writestr(name, old.read(name))
        data = path.read_bytes()
    republished(path.parent, {path.name: data if before else data + b"hidden"})
    verdict, said = verified(visit(INTEGRITY, site=copy), "2026-03")
    assert verdict == "fails" and "edited: 2026-03.zip" in said


def test_a_head_that_the_reader_noted_is_held_against_the_chain(
    visit: Callable[..., Any], site: Path
) -> None:
    tab = visit(INTEGRITY, site=site)
    lines = [*Ledger(site / "report/test/record").forwards()]
    verdict, said = verified(tab, noted=f"4, {lines[4].hash}")
    assert verdict == "holds" and "line number 4 of this chain has its hash" in said
    verdict, said = verified(tab, noted=f"{{'seq': 5, 'hash': '{lines[4].hash}'}}")
    assert verdict == "fails" and "written anew: chain.jsonl, line number 5" in said
    verdict, said = verified(tab, noted="abc")
    assert verdict == "stopped" and "64 digits" in said


def index_of(record: Path) -> dict[str, Any]:
    index: dict[str, Any] = json.loads((record / "index.json").read_text())
    return index


@pytest.mark.parametrize("left", [slice(0), slice(-1)])
def test_the_index_cannot_leave_out_the_newest_run(
    visit: Callable[..., Any], copy: Path, left: slice
) -> None:
    record = copy / "report/test/record"
    index = index_of(record)
    index["latest"] = index["latest"][left]
    republished(record, {"index.json": canonical_json(index)})
    verdict, said = verified(visit(INTEGRITY, site=copy))
    assert verdict == "fails" and f"it does not list run {LATEST}" in said


def test_the_index_cannot_leave_out_an_older_run_of_the_last_ones(
    visit: Callable[..., Any], copy: Path
) -> None:
    record = copy / "report/test/record"
    index = index_of(record)
    index["latest"] = index["latest"][-1:]
    republished(record, {"index.json": canonical_json(index)})
    older = record / "transcripts/2026-02/20260228T180500Z.jsonl"
    republished(record, {str(older.relative_to(record)): older.read_bytes() + b"{}\n"})
    verdict, said = verified(visit(INTEGRITY, site=copy))
    assert verdict == "fails" and "edited: run 20260228T180500Z, line" in said


@pytest.mark.parametrize("index_too", [True, False])
def test_a_chain_that_was_cut_with_its_head_does_not_meet_the_head_of_the_page(
    visit: Callable[..., Any], copy: Path, index_too: bool
) -> None:
    record = copy / "report/test/record"
    lines = [*Ledger(record).forwards()]
    last = max(line.seq for line in lines if line.kind == "run")
    raw = (record / "chain.jsonl").read_bytes().splitlines(keepends=True)[:last]
    end = lines[last - 1].named
    index = index_of(record)
    index["latest"] = [run for run in index["latest"] if run["run"] != LATEST]
    index |= {"head": end} if index_too else {}
    files = {"chain.jsonl": b"".join(raw), "head.json": canonical_json(end) + b"\n"}
    republished(record, files | {"index.json": canonical_json(index)})
    verdict, said = verified(visit(INTEGRITY, site=copy))
    wanted = "cut: chain.jsonl, line number" if index_too else "it names another head"
    assert verdict == "fails" and wanted in said


def written_anew(copy: Path, **first: Any) -> None:
    """Write chain and page anew with other facts in the first registration."""
    record = copy / "report/test/record"
    bodies = [line.body for line in Ledger(record).forwards()]
    bodies[0] |= first
    anew: list[bytes] = []
    before = "0" * 64
    for body in bodies:
        if body["kind"] == "run":
            body["registration"] = sha256_hex(anew[0])
        anew.append(canonical_json(body | {"prev": before}))
        before = sha256_hex(anew[-1])
    end = {"seq": len(anew) - 1, "hash": before}
    republished(
        record,
        {
            "chain.jsonl": b"".join(line + b"\n" for line in anew),
            "registration.json": anew[0] + b"\n",
            "head.json": canonical_json(end) + b"\n",
            "index.json": canonical_json(index_of(record) | {"head": end}),
        },
    )


def head_printed(copy: Path) -> None:
    """Let the page print the head of the record beside it."""
    head = json.loads((copy / "report/test/record/head.json").read_text())
    page, data = copy / INTEGRITY, 'data-seq="{seq}" data-hash="{hash}"'.format(**head)
    page.write_text(re.sub('data-seq="[0-9]+" data-hash="[0-9a-f]{64}"', data, page.read_text()))


def test_a_chain_without_a_run_is_not_said_to_hold(visit: Callable[..., Any], copy: Path) -> None:
    record = copy / "report/test/record"
    (first, *_) = Ledger(record).forwards()
    republished(
        record,
        {
            "chain.jsonl": (record / "registration.json").read_bytes(),
            "head.json": canonical_json(first.named) + b"\n",
            "index.json": canonical_json({"head": first.named, "months": [], "latest": []}),
        },
    )
    head_printed(copy)
    verdict, said = verified(visit(INTEGRITY, site=copy))
    assert verdict == "stopped" and "the chain names no run that could be checked" in said


def test_a_record_written_anew_holds_by_its_own_hashes_and_not_against_a_head_kept_elsewhere(
    visit: Callable[..., Any], copy: Path
) -> None:
    """What no hash can show: an author who seals other answers publishes a sound record."""
    old = [*Ledger(copy / "report/test/record").forwards()]
    written_anew(copy, at="2026-02-28T06:05:00.001Z")
    verdict, said = verified(visit(INTEGRITY, site=copy))
    assert verdict == "fails" and "not the one that this page prints" in said
    head_printed(copy)
    tab = visit(INTEGRITY, site=copy)
    assert verified(tab)[0] == "holds"
    verdict, said = verified(tab, noted=f"2 {old[2].hash}")
    assert verdict == "fails" and "written anew" in said


@pytest.mark.parametrize(
    ("published", "verdict"), [(b"hidden = 1", "holds"), (b"hidden = 2", "fails"), (b"", "holds")]
)
def test_a_plan_that_was_opened_is_the_one_that_was_registered(
    visit: Callable[..., Any], copy: Path, published: bytes, verdict: str
) -> None:
    record = copy / "report/test/record"
    panel = next(Ledger(record).forwards()).body["panel"]
    written_anew(copy, panel=panel | {"plan_sha256": sha256_hex(b"hidden = 1")})
    head_printed(copy)
    if published:
        (record / "plan.toml").write_bytes(published)
    found, said = verified(visit(INTEGRITY, site=copy, quiet=bool(published)))
    assert found == verdict and ("edited: plan.toml" in said) == (verdict == "fails")


def test_a_page_opened_as_a_file_says_why_it_cannot_verify(browser: Any, site: Path) -> None:
    context = browser.new_context()
    tab = context.new_page()
    errors: list[str] = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.goto((site / INTEGRITY).as_uri())
    said = tab.inner_text(".drift-verify")
    assert "opened from a folder" in said and "drift verify" in said
    tab.goto((site / TRANSCRIPTS).as_uri())
    choice(tab, LATEST, "steady", f"{FAMILY}#en-1").select_option("undetermined")
    assert len(table(tab)) == 2
    assert errors == []
    context.close()


def test_a_page_over_plain_http_says_why_it_cannot_verify(
    visit: Callable[..., Any], site: Path
) -> None:
    tab = visit(INTEGRITY, site=site, host="plain.test")
    said = tab.inner_text(".drift-verify")
    assert "plain http" in said and "drift verify" in said


def test_the_transcripts_on_the_page_are_those_of_the_record(
    transcripts: Any, sealed: Path
) -> None:
    rows = read_rows(Store(sealed / "data" / "test").transcript(LATEST))
    for row in rows[:3]:
        place = f"[data-run='{LATEST}'][data-model='{row['model']}'][data-key='{row['key']}'] pre"
        assert transcripts.locator(place).text_content() == row["text"]
