"""The judge's measured error on the pages: whose labels, how sure, and raw rates first.

The coded sets here are made up, label and all.
"""

from __future__ import annotations

import html as html_module
import json
import re
import shutil
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import pytest
from conftest import Ticking
from making import make_runs
from report.synthetic import CODED as ROWS
from report.synthetic import keep_measurement as keep
from words import make_read

from drift.config import sha256_hex
from drift.judging import load_judge
from drift.judging.measured import OPTIMISTIC
from drift.records.coding import coding_of, read_coding, seal_coding
from drift.records.draw import draw
from drift.records.ledger import Ledger
from drift.records.scheme import SHAPE
from drift.records.sheet import Marks
from drift.records.store import Store, read_rows
from drift.records.study import Study, label_lines, sealed_of
from drift.report import front, load_record, measured, pages
from drift.report.markup import rate_text
from drift.report.tables import Record
from drift.stats import corrected_rate, rogan_gladen

ROOT = Path(__file__).resolve().parents[2]


def visible(text: str) -> str:
    return " ".join(html_module.unescape(re.sub(r"<[^>]+>", " ", text)).split())


@pytest.fixture
def record(tmp_path: Path, synthetic: ModuleType) -> Record:
    """A record in a project without a measurement."""
    shutil.copytree(ROOT / "config", tmp_path / "config")
    shutil.copytree(ROOT / "report" / "_templates", tmp_path / "report" / "_templates")
    shutil.rmtree(tmp_path / "config/judge/measured", ignore_errors=True)
    synthetic.write_record(tmp_path / "data/embedded", tmp_path / "config/probe_bank.json")
    return load_record("embedded", root=tmp_path)


def of_record(record: Record) -> str:
    return str(record.reading["judge"]["rules"])


def present(record: Record) -> str:
    return load_judge(record.root / "config" / "judge").rules_hash


def test_without_a_measurement_the_error_is_not_known_and_rates_stand_alone(
    record: Record,
) -> None:
    text = visible(measured.corrected(record).text)
    assert "its error is not known" in text and "Corrected by" not in text
    for model in record.models.values():
        assert visible(rate_text(model["canonical"])) in text


def test_each_rate_stands_raw_first_and_then_corrected(record: Record) -> None:
    keep(record.root, "made-up", of_record(record))
    shown = measured.corrected(record).text
    assert "assumes our answers are misjudged as that set's are" in visible(shown)
    assert OPTIMISTIC in visible(shown)
    heads = [visible(head) for head in re.findall("<th.*?</th>", shown)][:3]
    assert heads == ["Model", "Raw canonical rate", "Corrected by made-up (human labels)"]
    frame = shown.data["rates-corrected"].set_index("model")
    for key, model in record.models.items():
        rate, row = model["canonical"], frame.loc[key]
        assert (row.refused, row.n) == (rate["refused"], rate["n"])
        if not rate["n"]:
            assert row.isna().corrected and row.reason
            continue
        # Sensitivity and specificity are shares of the rows with a judge's word.
        assert row.corrected == rogan_gladen(rate["estimate"], 40 / 45, 45 / 50)
        assert row.corrected_low <= row.corrected <= row.corrected_high
    assert "40 of 45" in visible(shown) and "45 of 50" in visible(shown)


def test_the_correction_is_the_same_at_every_look(record: Record) -> None:
    keep(record.root, "made-up", of_record(record))
    first, second = (measured.corrected(record).text for _ in range(2))
    assert first == second
    frame = first.data["rates-corrected"]
    row = frame[frame.n > 0].iloc[0]
    patterns = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    again = corrected_rate(row.refused, row.n, patterns, [40, 5, 5, 5, 45], seed=20261129)
    assert row.corrected == pytest.approx(again.estimate)


def test_a_set_that_no_person_coded_corrects_nothing(record: Record) -> None:
    keep(record.root, "silver", of_record(record), label_by="llm:one")
    assert "silver" not in visible(measured.corrected(record).text)


def test_a_set_without_an_english_row_corrects_nothing_and_says_so(record: Record) -> None:
    keep(record.root, "chinese", of_record(record), language="zh")
    frame = measured.corrected(record).text.data["rates-corrected"]
    assert frame.corrected.isna().all()
    assert set(frame.reason) >= {"the set holds no English row"}


def test_a_judge_that_hardly_tells_corrects_nothing_and_says_so(record: Record) -> None:
    keep(record.root, "deaf", of_record(record), rows=[*ROWS[:45], *[ROWS[-1]] * 45, ROWS[-10]])
    shown = measured.corrected(record).text
    frame = shown.data["rates-corrected"]
    assert frame.corrected.isna().all()
    assert "not estimable: se + sp - 1 is" in visible(shown)


def test_what_was_measured_with_other_rules_is_not_shown(record: Record) -> None:
    keep(record.root, "old", "3" * 64)
    shown = {"the judge of this record": measured.corrected, "those in config": measured.sets}
    for whose, piece in shown.items():
        text = visible(piece(record).text)
        assert f"Measured with other rules (333333333333) than {whose}" in text
        assert "so not shown: old" in text and "Title of old" not in text
    assert measured.NOTHING in visible(measured.confusions(record).text)
    assert measured.NOTHING in visible(measured.groups(record).text)


def test_a_rescored_record_is_corrected_by_its_rescored_labels() -> None:
    lab = load_record("lab", root=ROOT)
    rules, run = present(lab), lab.reading["run"]
    assert rules != of_record(lab)
    shown = measured.corrected(lab).text
    assert f"Rescored with the measured rules ({rules[:12]})" in visible(shown)
    frame = shown.data["rates-corrected"]
    rescored = read_rows(lab.store.folder / "labels" / f"rules-{rules[:12]}" / f"{run}.jsonl")
    sensitive = {family.id for family in lab.families.values() if not family.control}
    for model, rows in frame.groupby("model"):
        said = Counter(
            row["label"]
            for row in rescored
            if row["model"] == model and row["key"] in {f"{family}#en-1" for family in sensitive}
        )
        assert {*rows.refused} == {said["refused"]}
        assert {*rows.n} == {said["refused"] + said["answered"]}
    assert {*frame.coded_set} == {"chatgpt_refusals", "xstest", "speechmap_gold_v1"}


def test_human_is_said_of_human_labels_alone(record: Record) -> None:
    rules = present(record)
    keep(record.root, "people", rules)
    keep(record.root, "both", rules, label_by="llm_consensus")
    path = record.root / "config/judge/measured/both.json"
    document = json.loads(path.read_bytes())
    document["label_by"] = {"human1": 10, "llm_consensus": 90}
    path.write_text(json.dumps(document))
    keep(record.root, "silver", rules, label_by="llm:one")
    shown = measured.sets(record).text
    said = {
        visible(name): visible(rest)
        for name, rest in re.findall(r"<li><b>(\w+)</b>: (.*?)</li>", shown, re.S)
    }
    assert "Labels: human labels." in said["people"]
    mixed = "Labels: 10 of 100 rows by people, the rest by llm_consensus: not human."
    assert mixed in said["both"]
    assert "Labels: by llm:one: not human." in said["silver"]
    assert all(OPTIMISTIC.capitalize() in one for one in said.values())
    assert all("Licence: none." in one for one in said.values())


def test_figures_groups_and_disagreements_are_those_that_are_kept(record: Record) -> None:
    keep(record.root, "made-up", present(record))
    frame = measured.sets(record).text.data["judge-measured"]
    whole = frame[frame.part == "all"].set_index("figure")
    assert whole.figure_value["accuracy"] == 0.85
    assert (whole.with_label == 0.95).all() and (whole.coded_rows == 100).all()
    shown = measured.confusions(record).text
    table = shown.data["judge-confusion"]
    assert table.coded_rows.sum() == 100
    assert shown.data["judge-disagreements"].coded_rows.sum() == 15
    assert "15 disagreements by rule" in visible(shown)
    assert "language en 100 0.850" in visible(measured.groups(record).text)


def test_every_headlined_rate_says_by_what_it_is_classified(record: Record) -> None:
    said = "as classified by a published lexical rule"
    assert said in visible(pages.masthead(record).text)
    assert visible(pages.models(record).text).count(said) == len(record.models)
    assert said in visible(front.front_page([record], None))


def test_who_reads_for_shapes_is_not_counted_among_who_codes_refusals(tmp_path: Path) -> None:
    """The coder and the labels are made up for the test."""
    folder = make_read(tmp_path)
    store, ledger = Store(folder), Ledger(folder)
    drawn = draw(store, ledger, n=90, seed=1, floor=1, arms="all", scheme=SHAPE)
    study = Study(tmp_path, drawn.key, drawn.rows)
    marks = Marks("made-up-1", dict.fromkeys(drawn.rows, "sermon"), {})
    lines, more = label_lines(study, marks), sealed_of(drawn.key)
    coding = coding_of(lines, tmp_path / "made-up.jsonl", store, ledger, scheme=SHAPE)
    now = datetime(2026, 4, 2, tzinfo=UTC)
    seal_coding(coding, "made-up-1", store, ledger, clock=lambda: now, study=more)
    coded = load_record("test", root=tmp_path)
    assert pages.coded_by(coded) == {}
    assert pages.coded_by(coded, scheme="shape") == {"made-up-1": len(drawn.rows)}
    assert pages.classified(coded) == "as classified by a published lexical rule"


def test_a_record_with_sealed_codings_says_who_coded_how_many(tmp_path: Path) -> None:
    """The coder and the labels are made up for the test."""
    shutil.copytree(ROOT / "config", tmp_path / "config")
    shutil.copytree(ROOT / "report" / "_templates", tmp_path / "report" / "_templates")
    folder = make_runs(tmp_path, Ticking(datetime(2026, 3, 1, tzinfo=UTC)), 1)
    seen = load_record("test", root=tmp_path)
    assert pages.coded_by(seen) == {}
    texts = read_rows(seen.store.transcript(seen.reading["run"]))[:3]
    rows = [
        {"run": seen.reading["run"], "model": row["model"], "key": row["key"], "span": None}
        | {"label": "answered", "rule": "reader", "text_sha256": sha256_hex(row["text"].encode())}
        for row in texts
    ]
    path = tmp_path / "made-up.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    store, ledger = Store(folder), Ledger(folder)
    now = datetime(2026, 3, 2, tzinfo=UTC)
    seal_coding(read_coding(path, store, ledger), "made-up-1", store, ledger, clock=lambda: now)
    coded = load_record("test", root=tmp_path)
    assert pages.coded_by(coded) == {"made-up-1": 3}
    assert pages.coded_by(coded, scheme="shape") == {}
    said = "as classified by a published lexical rule; beside it made-up-1 coded 3 answers"
    assert said in visible(pages.masthead(coded).text)
    assert said in visible(front.front_page([coded], None))
