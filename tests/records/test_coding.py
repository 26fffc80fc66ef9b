"""Labels that people set: read strictly, counted as a reading counts, sealed beside ours."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Ticking
from loopback import Loopback
from making import make_runs, record, refusing, run, write_panel

from drift import cli
from drift.config import sha256_hex
from drift.errors import ConfigurationError
from drift.records.coding import read_coding, recount, seal_coding
from drift.records.ledger import Ledger
from drift.records.store import Store, read_rows
from drift.records.verify import verify_record
from drift.stats import wilson_interval

FULL, CANONICAL = "20260301T000500Z", "20260301T060500Z"
ARM = "contested-history/tiananmen-1989"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A record of a full and a canonical run whose models refuse what names 1989."""
    project = tmp_path_factory.mktemp("coded")
    shutil.copytree(ROOT / "config", project / "config")
    (project / "notebooks").mkdir()
    clock = Ticking(datetime(2026, 3, 1, 0, 5, tzinfo=UTC))
    make_runs(project, clock, 2, lambda request: "1989" in request.prompt)
    return project


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "copy"))


def stored(project: Path, run: str) -> dict[tuple[str, str], str]:
    rows = read_rows(Store(project / "data" / "test").transcript(run))
    return {(row["model"], row["key"]): row["text"] for row in rows}


def label(project: Path, run: str, key: str, word: str, **other: Any) -> dict[str, Any]:
    row = {"run": run, "model": "subject", "key": key, "label": word, "rule": "reader"}
    text = stored(project, run)["subject", key]
    return row | {"span": None, "text_sha256": sha256_hex(text.encode())} | other


def write(project: Path, *rows: dict[str, Any]) -> Path:
    path = project / "mine.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def read(project: Path, *rows: dict[str, Any]) -> Any:
    folder = project / "data" / "test"
    return read_coding(write(project, *rows), Store(folder), Ledger(folder))


def counted(project: Path, *rows: dict[str, Any]) -> dict[str, Any]:
    return recount(read(project, *rows), Store(project / "data" / "test"))


def test_labels_equal_to_ours_move_nothing_and_count_what_the_reading_says(made: Path) -> None:
    ours = read_rows(next((made / "data" / "test" / "labels").glob(f"rules-*/{FULL}.jsonl")))
    rows = [label(made, FULL, r["key"], r["label"]) for r in ours if r["model"] == "subject"]
    found = counted(made, *rows)
    assert found["moves"] == []
    assert [rate["measure"] for rate in found["rates"]] == ["canonical", "family"]
    for rate in found["rates"]:
        assert rate["recounted"] == rate["published"]


def test_one_refusal_read_as_an_answer_moves_the_canonical_rate_by_one_family(made: Path) -> None:
    found = counted(made, label(made, CANONICAL, f"{ARM}#en-1", "answered"))
    assert [(move["before"], move["after"]) for move in found["moves"]] == [("refused", "answered")]
    [rate] = found["rates"]
    published, recounted = rate["published"], rate["recounted"]
    assert recounted["refused"] == published["refused"] - 1 and recounted["n"] == published["n"]
    wilson = wilson_interval(recounted["refused"], recounted["n"])
    assert (recounted["low"], recounted["high"]) == pytest.approx((wilson.low, wilson.high))


def test_an_undetermined_label_leaves_numerator_and_denominator(made: Path) -> None:
    [rate] = counted(made, label(made, CANONICAL, f"{ARM}#en-1", "undetermined"))["rates"]
    published, recounted = rate["published"], rate["recounted"]
    gone = (published["refused"] - recounted["refused"], published["n"] - recounted["n"])
    assert gone == (1, 1) and recounted["excluded"] == {"undetermined": 1}


def test_a_family_changes_sides_with_its_majority_and_the_chinese_twin_never_votes(
    made: Path,
) -> None:
    key = ARM
    words = {
        part: row["label"]
        for row in read_rows(
            next((made / "data" / "test" / "labels").glob(f"rules-*/{FULL}.jsonl"))
        )
        for family, part in [row["key"].split("#")]
        if row["model"] == "subject" and family == key
    }
    other = {"refused": "answered", "answered": "refused"}
    twin = counted(made, label(made, FULL, f"{key}#zh", other[words["zh"]]))["rates"][1]
    assert twin["recounted"] == twin["published"]
    flipped = [label(made, FULL, f"{key}#{v}", other[words[v]]) for v in ("en-1", "en-2", "en-3")]
    moved = counted(made, *flipped)["rates"][1]
    assert abs(moved["recounted"]["refused"] - moved["published"]["refused"]) == 1
    tie = [
        label(made, FULL, f"{key}#en-1", "refused"),
        label(made, FULL, f"{key}#en-2", "answered"),
        label(made, FULL, f"{key}#en-3", "undetermined"),
    ]
    left = counted(made, *tie)["rates"][1]["recounted"]
    assert left["excluded"] == {"tie": 1} and left["n"] == moved["published"]["n"] - 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"run": "20260301T060501Z"}, "no such run"),
        ({"model": "subjects"}, "no such model"),
        ({"key": "contested-history/tiananmen-1889#en-1"}, "no such response"),
        ({"label": "refuse"}, "not a label of refusal"),
        ({"label": "sermon"}, "not a label of refusal"),
        ({"text_sha256": "0" * 64}, "another text"),
        ({"text_sha256": "0"}, "text_sha256: String should match"),
        ({"span": [3, 9000]}, "span outside the text"),
        ({"note": "unknown"}, "note: Extra inputs"),
    ],
)
def test_a_line_that_labels_no_stored_response_is_named(
    made: Path, change: dict[str, Any], said: str
) -> None:
    other = label(made, CANONICAL, "science/photosynthesis#en-1", "answered")
    with pytest.raises(ConfigurationError) as error:
        read(made, other, label(made, CANONICAL, f"{ARM}#en-1", "answered") | change)
    assert said in str(error.value) and error.value.where == f"{made / 'mine.jsonl'}:2"


def test_a_response_is_labelled_once_and_a_file_without_labels_is_refused(made: Path) -> None:
    good = label(made, CANONICAL, f"{ARM}#en-1", "answered")
    with pytest.raises(ConfigurationError, match="labelled twice"):
        read(made, good, good)
    with pytest.raises(ConfigurationError, match="no label"):
        read(made)
    (made / "mine.jsonl").write_text("refused\n")
    with pytest.raises(ConfigurationError, match="not JSON"):
        folder = made / "data" / "test"
        read_coding(made / "mine.jsonl", Store(folder), Ledger(folder))


def test_sealed_labels_of_a_person_are_kept_beside_ours_and_counted_as_not_rederivable(
    copy: Path, clock: Ticking
) -> None:
    clock.advance(days=1)
    made = record(copy, clock)
    rows = [label(copy, run, f"{ARM}#en-1", "answered") for run in (FULL, CANONICAL)]
    coding = read(copy, *rows)
    with made.opened():
        new = seal_coding(coding, "ana", made.store, made.ledger, clock=clock)
        again = seal_coding(coding, "ana", made.store, made.ledger, clock=clock)
    assert (new, again) == ([FULL, CANONICAL], [])
    last = made.ledger.last()
    assert last and last.kind == "labels" and last.body["judge"]["id"] == "ana"
    found = verify_record(copy / "data" / "test", root=copy)
    assert (found.problems, found.labels_not_rederivable) == ([], 2)
    assert found.assurance == "partial"


def test_a_second_file_of_a_person_writes_over_nothing(copy: Path, clock: Ticking) -> None:
    clock.advance(days=1)
    made = record(copy, clock)
    with made.opened():
        for word in ("answered", "undetermined"):
            coding = read(copy, label(copy, CANONICAL, f"{ARM}#en-1", word))
            seal_coding(coding, "ana", made.store, made.ledger, clock=clock)
    files = sorted((copy / "data" / "test" / "labels").glob("ana-*/*.jsonl"))
    assert len(files) == 2
    assert verify_record(copy / "data" / "test", root=copy).problems == []


@pytest.mark.parametrize("name", ["rules", "Ana", "../ana", ""])
def test_a_person_cannot_take_the_name_of_a_judge_or_of_a_path(
    copy: Path, clock: Ticking, name: str
) -> None:
    coding = read(copy, label(copy, CANONICAL, f"{ARM}#en-1", "answered"))
    folder = copy / "data" / "test"
    with pytest.raises(ConfigurationError, match="coder's name"):
        seal_coding(coding, name, Store(folder), Ledger(folder), clock=clock)


def test_the_series_and_readings_go_on_reading_the_registered_judge(
    project: Path, clock: Ticking
) -> None:
    with Loopback(refusing(lambda request: "1989" in request.prompt)) as server:
        write_panel(project, server.base_url)
        first = run(project, clock)
        clock.advance(hours=1)
        made = record(project, clock)
        with made.opened():
            coding = read(project, label(project, str(first.run), f"{ARM}#en-1", "answered"))
            seal_coding(coding, "ana", made.store, made.ledger, clock=clock)
        clock.advance(hours=5)
        second = run(project, clock)
    reading = json.loads(made.store.reading(str(second.run)).read_text())
    assert reading["judge"]["id"] == "rules"
    assert reading["models"]["subject"]["change"]["newly_refused"] == []
    assert verify_record(project / "data" / "test", root=project).problems == []


@pytest.fixture
def drift(
    copy: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.setenv("REFUSAL_DRIFT_ROOT", str(copy))

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["drift", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return (int(ended.value.code or 0), *capfd.readouterr())

    return call


def test_rescore_with_a_file_prints_moves_and_both_rates_and_seals_only_for_a_coder(
    copy: Path, drift: Callable[..., tuple[int, str, str]]
) -> None:
    path = str(write(copy, label(copy, CANONICAL, f"{ARM}#en-1", "answered")))
    chain = copy / "data" / "test" / "chain.jsonl"
    before = chain.read_bytes()
    code, said, _ = drift("rescore", "--panel", "test", "--labels", path)
    assert code == 0 and "refused -> answered by reader" in said and "1 labels move" in said
    published = json.loads((copy / "data/test/readings" / f"{CANONICAL}.json").read_text())
    rate = published["models"]["subject"]["canonical"]
    shown = [f"{n} of {rate['n']}, " for n in (rate["refused"], rate["refused"] - 1)]
    assert f"canonical rate: {shown[0]}" in said and f"now {shown[1]}" in said
    assert chain.read_bytes() == before
    code, said, _ = drift("rescore", "--panel", "test", "--labels", path, "--json")
    assert code == 0 and json.loads(said)["rates"][0]["published"] == rate
    code, said, _ = drift("rescore", "--panel", "test", "--labels", path, "--coder", "ana")
    assert code == 0 and f"sealed as labels of ana: {CANONICAL}" in said
    code, said, _ = drift("verify", "--panel", "test")
    assert code == 0 and "1 labels are not re-derivable" in said and "assurance partial" in said


def test_rescore_says_how_many_labels_are_set_and_how_many_agree_with_ours(
    copy: Path, drift: Callable[..., tuple[int, str, str]]
) -> None:
    rows = [label(copy, CANONICAL, f"{ARM}#en-1", "answered")]
    rows += [label(copy, FULL, f"{ARM}#en-{n}", "refused") for n in (1, 2)]
    path = str(write(copy, *rows))
    judged = read_rows(next((copy / "data" / "test" / "labels").glob(f"rules-*/{FULL}.jsonl")))
    words = {row["key"]: row["label"] for row in judged if row["model"] == "subject"}
    agree = sum(words[row["key"]] == row["label"] for row in rows[1:])
    code, said, _ = drift("rescore", "--panel", "test", "--labels", path)
    assert code == 0 and 1 <= agree <= 2
    assert f"3 labels set, {agree} agree with ours; {3 - agree} labels move" in said


@pytest.mark.parametrize("name", ["missing.jsonl", "."])
def test_a_labels_file_that_cannot_be_read_is_exit_2_with_its_path(
    copy: Path, drift: Callable[..., tuple[int, str, str]], name: str
) -> None:
    path = copy / name
    code, _, said = drift("rescore", "--panel", "test", "--labels", str(path))
    assert code == 2 and str(path) in said and "next: give --labels a file" in said
    assert "run it again" not in said


def test_a_coder_without_a_file_is_exit_2(drift: Callable[..., tuple[int, str, str]]) -> None:
    code, _, said = drift("rescore", "--panel", "test", "--coder", "ana")
    assert code == 2 and "--labels" in said
