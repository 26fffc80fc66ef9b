"""Any change of a record is found and located."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drift.config import canonical_json, sha256_hex
from drift.records.derive import derive
from drift.records.ledger import GENESIS, Ledger
from drift.records.run import transcript_bytes
from drift.records.store import Store
from drift.records.verify import first_difference, verify_record
from drift.records.verify_chain import Problem, Verification


def check(project: Path) -> Verification:
    return verify_record(project / "data" / "test", root=project)


def sealed_files(project: Path) -> list[Path]:
    folder = project / "data" / "test"
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]
    return sorted(files)


def first(found: Verification) -> Problem:
    assert found.problems, "the change was not found"
    return found.problems[0]


def test_an_untouched_record_holds_from_texts_to_readings(made: Path) -> None:
    found = check(made)
    assert found.problems == [] and found.notes == []
    assert (found.lines, found.runs, found.responses) == (12, 3, 288 + 82 + 82)
    assert set(found.seconds) == {"chain", "texts and labels", "derived files"}


#: Refusals in the three runs, each of which has a shape.
SHAPES = 12

#: A part of its path that the first problem of a changed file must name.
LOCATED = {
    "chain.jsonl": "chain.jsonl:",
    "head.json": "",
    "registration.json": "registration.json",
    "corpora": "corpora/",
    "transcripts": "run 2026",
    "labels": "run 2026",
    "readings": "2026",
    "churn.jsonl": "churn.jsonl",
    "findings.jsonl": "findings.jsonl",
    "series.json": "series.json",
}


def located(path: Path, project: Path, found: Verification) -> bool:
    part = path.relative_to(project / "data" / "test").parts[0]
    return LOCATED[part] in first(found).where


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_changed_byte_is_found_and_located(made: Path, data: st.DataObject) -> None:
    files = sealed_files(made)
    path = data.draw(st.sampled_from(files), label="file")
    original = path.read_bytes()
    at = data.draw(st.integers(0, len(original) - 1), label="byte")
    bit = data.draw(st.integers(0, 7), label="bit")
    changed = bytearray(original)
    changed[at] ^= 1 << bit
    try:
        path.write_bytes(changed)
        found = check(made)
        assert located(path, made, found), found.problems[:3]
    finally:
        path.write_bytes(original)


LINES = ("chain.jsonl", "churn.jsonl", "findings.jsonl", "transcripts", "labels")


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), kind=st.sampled_from(["deleted", "inserted", "reordered", "cut"]))
def test_lines_deleted_inserted_swapped_or_cut_are_found_and_located(
    made: Path, data: st.DataObject, kind: str
) -> None:
    files = [
        path
        for path in sealed_files(made)
        if path.relative_to(made / "data" / "test").parts[0] in LINES
        and path.read_bytes().count(b"\n") > 1
    ]
    path = data.draw(st.sampled_from(files), label="file")
    original = path.read_bytes()
    lines = original.splitlines(keepends=True)
    one = data.draw(st.integers(0, len(lines) - 1), label="line")
    other = data.draw(st.integers(0, len(lines) - 1), label="other")
    if kind == "deleted":
        del lines[one]
    elif kind == "inserted":
        lines.insert(one, lines[other])
    elif kind == "reordered":
        lines[one], lines[other] = lines[other], lines[one]
    else:
        lines = [original[: data.draw(st.integers(0, len(original) - 1), label="kept")]]
    if b"".join(lines) == original:
        return
    try:
        path.write_bytes(b"".join(lines))
        found = check(made)
        assert located(path, made, found), found.problems[:3]
    finally:
        path.write_bytes(original)


def rewrite(path: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))


def transcript(project: Path) -> Path:
    return sorted((project / "data" / "test").glob("transcripts/*/*"))[0]


def label_file(project: Path) -> Path:
    return sorted((project / "data" / "test").glob("labels/*/*"))[0]


@pytest.mark.parametrize(
    ("change", "how"),
    [
        (lambda rows: rows[:4] + rows[5:], "deleted"),
        (lambda rows: [*rows[:5], *rows[4:]], "inserted"),
        (lambda rows: [*rows[:4], rows[5], rows[4], *rows[6:]], "reordered"),
        (lambda rows: [*rows[:4], rows[4].replace(b"three", b"threw"), *rows[5:]], "edited"),
        (lambda rows: [*rows[:-1], rows[-1][:-30]], "cut"),
    ],
)
def test_a_changed_response_is_named_by_model_and_arm_and_how(
    copy: Path, change: Callable[[list[bytes]], list[bytes]], how: str
) -> None:
    path = transcript(copy)
    row = json.loads(path.read_bytes().splitlines()[4])
    rewrite(path, change)
    problem = first(check(copy))
    assert (problem.step, problem.how) == ("texts", how)
    if how in ("deleted", "edited", "inserted"):
        assert f"{row['model']}, {row['key']}" in problem.where


@pytest.mark.parametrize(
    ("change", "how"),
    [
        (lambda rows: rows[:4] + rows[5:], "deleted"),
        (lambda rows: [*rows[:4], rows[9].replace(b"#en", b"#ne"), *rows[4:]], "inserted"),
        (lambda rows: [*rows[:4], rows[5], rows[4], *rows[6:]], "reordered"),
        (lambda rows: [*rows[:4], rows[4].replace(b"answered", b"refused"), *rows[5:]], "edited"),
        (lambda rows: rows[:-2], "cut"),
    ],
)
def test_a_changed_label_is_named_by_model_and_arm_and_how(
    copy: Path, change: Callable[[list[bytes]], list[bytes]], how: str
) -> None:
    rewrite(label_file(copy), change)
    problem = first(check(copy))
    assert (problem.step, problem.how) == ("labels", how)
    assert "#" in problem.where


@pytest.mark.parametrize(
    ("change", "how", "line"),
    [
        (lambda rows: rows[:2] + rows[3:], "deleted", 3),
        (lambda rows: [*rows[:2], *rows[1:]], "inserted", 3),
        (lambda rows: [*rows[:2], rows[3], rows[2], *rows[4:]], "reordered", 3),
        (lambda rows: [*rows[:2], rows[2].replace(b'"kind"', b'"kond"'), *rows[3:]], "edited", 3),
        (
            lambda rows: [*rows[:2], rows[2].replace(b'"at":"2026', b'"at":"2025'), *rows[3:]],
            "edited",
            3,
        ),
        (lambda rows: rows[:-2], "cut", 11),
    ],
)
def test_a_changed_chain_names_the_line_and_how(
    copy: Path, change: Callable[[list[bytes]], list[bytes]], how: str, line: int
) -> None:
    rewrite(copy / "data" / "test" / "chain.jsonl", change)
    problem = first(check(copy))
    assert (problem.where, problem.how) == (f"chain.jsonl:{line}", how)


def test_a_reworded_prompt_in_config_is_named_by_its_arm(copy: Path) -> None:
    path = copy / "config" / "probe_bank.json"
    path.write_text(path.read_text().replace("What is photosynthesis,", "What is Photosynthesis,"))
    problem = first(check(copy))
    assert (problem.how, problem.where) == ("reworded prompt", "science/photosynthesis#en-1")


def test_a_new_bank_version_in_config_is_a_note_and_no_problem(copy: Path) -> None:
    path = copy / "config" / "probe_bank.json"
    path.write_text(
        path.read_text()
        .replace('"1.0.0"', '"1.1.0"', 1)
        .replace("What is photosynthesis,", "What is Photosynthesis,")
    )
    found = check(copy)
    assert found.problems == []
    assert any("1.1.0" in note for note in found.notes)


def test_a_judge_with_other_rules_leaves_labels_hash_checked_and_assurance_partial(
    copy: Path,
) -> None:
    path = copy / "config" / "judge" / "rules.toml"
    path.write_text(path.read_text() + "\n# another rules hash\n")
    found = check(copy)
    assert found.problems == [] and found.assurance == "partial"
    assert found.labels_not_rederivable == found.labels == 452 + SHAPES
    rewrite(label_file(copy), lambda rows: rows[:-1])
    assert first(check(copy)).step == "labels"


def test_a_run_file_that_no_line_names_is_found(copy: Path) -> None:
    path = transcript(copy)
    shutil.copy(path, path.with_name("20260301T000501Z.jsonl"))
    assert (first(check(copy)).how, first(check(copy)).step) == ("inserted", "files")


def test_compressed_transcripts_hold_as_well(copy: Path) -> None:
    for path in (copy / "data" / "test").glob("transcripts/*/*"):
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    found = check(copy)
    assert found.problems == [] and found.responses == 452


def test_a_missing_transcript_is_deleted(copy: Path) -> None:
    transcript(copy).unlink()
    assert first(check(copy)).how == "deleted"


def test_an_empty_record_says_so(tmp_path: Path) -> None:
    found = verify_record(tmp_path / "nothing", root=ROOT)
    assert found.problems == [] and found.notes == ["the record is empty"]


def test_a_forgery_resealed_by_the_author_holds_but_has_another_head(copy: Path) -> None:
    # The chain alone cannot show this; a head that was printed elsewhere does.
    kept = check(copy).head
    assert kept is not None
    ledger = Ledger(copy / "data" / "test")
    lines = list(ledger.forwards())[:-3]
    run = lines[-3].body["run"]
    rewrite(ledger.chain, lambda rows: rows[: len(lines)])
    ledger._write_head(lines[-1])
    folder = copy / "data" / "test"
    for path in folder.rglob("*2026*"):
        if path.is_file() and path.name.split(".")[0] > run:
            path.unlink()
    for name in ("series.json", "churn.jsonl", "findings.jsonl"):
        (folder / name).unlink()
    derive(Store(folder), ledger, clock=lambda: datetime(2026, 3, 2, tzinfo=UTC))
    found = check(copy)
    assert found.problems == []
    assert found.head != kept


def test_many_runs_are_checked_by_worker_processes_with_the_same_result(copy: Path) -> None:
    rewrite(transcript(copy), lambda rows: rows[1:])
    folder = copy / "data" / "test"
    alone = verify_record(folder, root=copy, workers=1)
    together = verify_record(folder, root=copy, workers=2)
    assert alone.problems == together.problems != []
    assert alone.responses == together.responses


@given(st.lists(st.binary(max_size=3), max_size=6), st.lists(st.binary(max_size=3), max_size=6))
def test_a_difference_is_reported_exactly_when_two_sequences_differ(
    stored: list[bytes], expected: list[bytes]
) -> None:
    difference = first_difference(stored, expected)
    assert (difference is None) == (stored == expected)
    if difference:
        position = difference[0]
        assert stored[:position] == expected[:position]
        assert stored[position : position + 1] != expected[position : position + 1]


def reseal(project: Path, change: Callable[[list[dict[str, Any]]], None]) -> None:
    """Rewrite the chain as its author could: all links and the head hold again."""
    folder = project / "data" / "test"
    ledger = Ledger(folder)
    bodies = [line.body for line in ledger.forwards()]
    change(bodies)
    lines: list[bytes] = []
    for seq, body in enumerate(bodies):
        previous = sha256_hex(lines[-1]) if lines else GENESIS
        lines.append(canonical_json(body | {"seq": seq, "prev": previous}))
    ledger.chain.write_bytes(b"".join(line + b"\n" for line in lines))
    head = {"seq": len(lines) - 1, "hash": sha256_hex(lines[-1])}
    ledger.head.write_bytes(canonical_json(head) + b"\n")


def drop_model(bodies: list[dict[str, Any]]) -> None:
    del bodies[1]["models"]["subject"]


def drop_key(bodies: list[dict[str, Any]]) -> None:
    bodies[1]["keys"].pop()


def drop_labels(bodies: list[dict[str, Any]]) -> None:
    del bodies[2]


def repeat_run(bodies: list[dict[str, Any]]) -> None:
    bodies.insert(1, dict(bodies[1]))


def other_instrument(bodies: list[dict[str, Any]]) -> None:
    bodies[1]["models"]["subject"]["instrument"] = "0" * 64


def other_document(bodies: list[dict[str, Any]]) -> None:
    bodies[0]["instruments"]["subject"]["document"]["max_tokens"] = 999


def earlier(bodies: list[dict[str, Any]]) -> None:
    bodies[-1]["at"] = "2025-01-01T00:00:00.000Z"


def other_scope(bodies: list[dict[str, Any]]) -> None:
    bodies[1]["scope"] = "canonical"


def other_number(bodies: list[dict[str, Any]]) -> None:
    bodies[5]["number"] = 7


def other_baseline(bodies: list[dict[str, Any]]) -> None:
    bodies[3]["reason"] = "none"


def drop_baseline(bodies: list[dict[str, Any]]) -> None:
    del bodies[4]


def late_baseline(bodies: list[dict[str, Any]]) -> None:
    bodies.append(bodies.pop(4))


def wrong_size(bodies: list[dict[str, Any]]) -> None:
    bodies[0]["panel"]["size"] = 1


def wrong_models(bodies: list[dict[str, Any]]) -> None:
    bodies[0]["panel"]["models"] = ["steady", "third"]


def wrong_seed(bodies: list[dict[str, Any]]) -> None:
    bodies[0]["alarm"]["seed"] = bodies[0]["alarm"]["seed"].upper()


def repeat_baseline(bodies: list[dict[str, Any]]) -> None:
    bodies.append(dict(bodies[4]))


def outside(bodies: list[dict[str, Any]]) -> None:
    bodies[1]["run"] = "../../../etc/passwd"


def malformed(bodies: list[dict[str, Any]]) -> None:
    del bodies[1]["models"]["subject"]["counts"]


def no_judge(bodies: list[dict[str, Any]]) -> None:
    bodies[2]["judge"] = None


@pytest.mark.parametrize(
    "change",
    [
        drop_model,
        drop_key,
        drop_labels,
        repeat_run,
        other_instrument,
        other_document,
        earlier,
        other_scope,
        other_number,
        other_baseline,
        drop_baseline,
        late_baseline,
        repeat_baseline,
        outside,
        malformed,
        no_judge,
    ],
)
def test_a_chain_resealed_around_a_false_statement_does_not_hold(
    copy: Path, change: Callable[[list[dict[str, Any]]], None]
) -> None:
    reseal(copy, change)
    assert check(copy).problems


@pytest.mark.parametrize(
    ("change", "word"),
    [(wrong_size, "panel.size"), (wrong_models, "panel.models"), (wrong_seed, "alarm.seed")],
)
def test_a_registration_that_contradicts_itself_is_named(
    copy: Path, change: Callable[[list[dict[str, Any]]], None], word: str
) -> None:
    reseal(copy, change)
    assert any(word in problem.detail for problem in check(copy).problems)


def test_an_answer_to_another_question_is_named(copy: Path) -> None:
    path = transcript(copy)
    rows = [json.loads(row) for row in path.read_bytes().splitlines()]
    for row in rows:
        del row["row_sha256"]
    rows[3]["messages_sha256"] = "0" * 64
    path.write_bytes(transcript_bytes(rows))
    sealed = sha256_hex(path.read_bytes())
    reseal(copy, lambda bodies: bodies[1].update(transcript=sealed))
    problems = [problem for problem in check(copy).problems if problem.step == "texts"]
    assert problems and problems[0].how == "reworded prompt"
    assert rows[3]["key"] in problems[0].where


@pytest.mark.parametrize(
    "name", ["chain.jsonl", "head.json", "registration.json", "series.json", "churn.jsonl"]
)
def test_a_folder_in_place_of_a_file_is_a_problem_and_no_crash(copy: Path, name: str) -> None:
    path = copy / "data" / "test" / name
    path.unlink()
    path.mkdir()
    assert check(copy).problems


@pytest.mark.parametrize(
    "name", ["corpora/evil.json", "transcripts/evil.jsonl", "chain.jsonl.bak", "readings/x.json"]
)
def test_a_file_that_belongs_to_no_line_is_found(copy: Path, name: str) -> None:
    (copy / "data" / "test" / name).write_text("{}")
    assert (first(check(copy)).how, first(check(copy)).where) == ("inserted", name)


def test_a_record_without_its_chain_is_a_problem(copy: Path) -> None:
    for name in ("chain.jsonl", "head.json"):
        (copy / "data" / "test" / name).unlink()
    assert first(check(copy)).how == "deleted"


def test_without_deriving_labels_the_assurance_is_partial(copy: Path) -> None:
    found = verify_record(copy / "data" / "test", root=copy, rederive=False)
    assert found.problems == [] and found.assurance == "partial"


@pytest.mark.parametrize("missing", ["head.json", "registration.json"])
def test_a_registration_killed_before_its_last_file_is_an_unfinished_seal(
    copy: Path, missing: str
) -> None:
    folder = copy / "data" / "new"
    shutil.copytree(copy / "data" / "test" / "corpora", folder / "corpora")
    chain = (copy / "data" / "test" / "chain.jsonl").read_bytes().splitlines(keepends=True)[0]
    (folder / "chain.jsonl").write_bytes(chain)
    head = canonical_json({"seq": 0, "hash": sha256_hex(chain[:-1])}) + b"\n"
    (folder / "head.json").write_bytes(head)
    (folder / "registration.json").write_bytes(chain)
    (folder / missing).unlink()
    found = verify_record(folder, root=copy)
    assert found.problems == [] and "unfinished seal" in found.notes[0]


def test_a_damaged_copy_of_the_corpus_is_named_and_accuses_no_answer(copy: Path) -> None:
    path = next((copy / "data" / "test" / "corpora").iterdir())
    path.write_bytes(path.read_bytes().replace(b"photosynthesis", b"photosynthesls", 1))
    found = check(copy)
    assert [problem.step for problem in found.problems] == ["registration"]
    assert found.labels_not_rederivable == found.labels
