"""The coder study from the command line, on made-up labels, by the commands of its manual."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from conftest import ROOT, Said, Ticking
from making import make_runs
from words import asked_of, make_read, seal_verdicts

from drift.judging.entailment import rules_hash
from drift.records.draw import key_bytes, read_key
from drift.records.sheet import guarded


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a record of one full run of two models, which refuse what names 1989."""
    project = tmp_path_factory.mktemp("coding")
    shutil.copytree(ROOT / "config", project / "config")
    (project / "notebooks").mkdir()
    clock = Ticking(datetime(2026, 3, 1, 0, 5, tzinfo=UTC))
    make_runs(project, clock, 1, lambda request: "1989" in request.prompt)
    return project


@pytest.fixture
def there(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the project, and the folder that commands are called in."""
    project = Path(shutil.copytree(made, tmp_path / "project"))
    monkeypatch.setenv("REFUSAL_DRIFT_ROOT", str(project))
    monkeypatch.chdir(tmp_path)
    return project


@pytest.fixture
def drift(there: Path, command: Callable[..., Said]) -> Callable[..., Said]:
    """Call a command in the copy."""
    return command


def code(source: Path, to: Path, word: Callable[[int, str], str]) -> Path:
    """Hand in made-up labels of a sheet: `word` of the row's number and its answer."""
    rows = list(csv.DictReader(io.StringIO(source.read_text("utf-8-sig"), newline="")))
    stream = io.StringIO(newline="")
    writer = csv.DictWriter(stream, rows[0])
    writer.writeheader()
    for number, row in enumerate(sorted(rows, key=lambda row: row["id"])):
        writer.writerow(row | {"label": word(number, row["answer"])})
    to.write_text(stream.getvalue(), "utf-8")
    return to


def plain(number: int, answer: str) -> str:
    return "refused" if "I can't help" in answer else "answered"


def slipping(number: int, answer: str) -> str:
    return "u" if number % 10 == 3 else plain(number, answer)[0]


#: What made-up readers say of shapes and of verdicts.
SHAPES = (
    lambda number, answer: "flat-no",
    lambda number, answer: "3" if number == 1 else "1",
)
VERDICTS = (
    lambda number, answer: "yes" if number % 3 else "no",
    lambda number, answer: "1" if number % 4 else "2",
)


def commands() -> list[list[str]]:
    """Return the commands that the manual of the study shows, in their order."""
    text = (ROOT / "docs" / "coding.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```\n(.*?)^```", text, re.S | re.M)
    return [line.split()[1:] for block in blocks for line in block.splitlines()]


def test_the_commands_of_the_manual_run_in_their_order(
    there: Path, tmp_path: Path, drift: Callable[..., Said]
) -> None:
    said = []
    readers = {"study": (plain, slipping), "shapes": SHAPES, "verdicts": VERDICTS}
    for words in commands():
        words = ["test" if word == "mine" else word for word in words]
        assert [*there.parent.glob("study")] or words[1] == "draw"
        if "--verdict" in words:
            seal_verdicts(there / "data" / "test")
        code_, out, err = drift(*words)
        assert code_ == 0, (words, err)
        said.append(out)
        if words[1] == "draw":
            name = words[words.index("--out") + 1]
            ana, ben = readers.pop(name)
            code(tmp_path / name / "sheet.csv", tmp_path / "ana.csv", ana)
            code(tmp_path / name / "sheet-ben.csv", tmp_path / "ben.csv", ben)
        if words[1] == "adjudicate":
            code(tmp_path / "study" / "adjudicate.csv", tmp_path / "cleo.csv", plain)
    assert not readers
    shapes, verdicts = said[8:11], said[11:]
    assert "read for shape, against shapes, rules" in shapes[0]
    assert "redirect and scope-narrow: redirect / scope-narrow 0, " in shapes[1]
    rules = rules_hash(asked_of("steady"))[:12]
    assert f"read for entailment, against entailment-steady, rules {rules}" in verdicts[0]
    assert (
        "of the judge's no: precision" in verdicts[1]
        and "rates of No over all answers" in verdicts[1]
    )
    for out in (shapes[2], verdicts[2]):
        assert "sealed as labels of ana: 20260301T000500Z" in out
    drawn, first, differ, final, *sealed, verified = said[:8]
    assert "68 units drawn of 68" in drawn and "left out: 14 control" in drawn
    assert "ana and ben" in first and "judge and ben" in first
    assert "of them differently" in differ
    assert "judge and adjudicated" in final
    for name, out in zip(("ana", "ben", "adjudicated"), sealed, strict=True):
        assert f"sealed as labels of {name}: 20260301T000500Z" in out
    assert "holds; assurance partial" in verified
    assert "204 labels are not re-derivable" in verified
    chain = there / "data" / "test" / "chain.jsonl"
    before = chain.read_bytes()
    again = drift("code", "seal", "verdicts", "ana.csv", "--coder", "ana")
    assert again[0] == 0 and "nothing new" in again[1] and chain.read_bytes() == before


@pytest.fixture
def study(tmp_path: Path, drift: Callable[..., Said]) -> Path:
    folder = tmp_path / "study"
    arms = ("--arms", "all", "--n", "150", "--seed", "7")
    assert drift("code", "draw", "--panel", "test", *arms, "--out", str(folder))[0] == 0
    return folder


def test_sealed_labels_carry_how_many_were_read_of_how_many(
    study: Path, there: Path, tmp_path: Path, drift: Callable[..., Said]
) -> None:
    ana = code(study / "sheet.csv", tmp_path / "made-up-ana.csv", plain)
    assert drift("code", "seal", str(study), str(ana), "--coder", "made-up-ana")[0] == 0
    (path,) = (there / "data" / "test" / "labels").glob("made-up-ana-*/*.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    key = json.loads((study / "key.json").read_text())
    pairs = {(it["model"], it["drawn"], it["units"]) for it in key["strata"]}
    assert {(row["model"], *row["drawn"]) for row in rows} == pairs
    assert {row["rule"] for row in rows} == {"reader"}


def test_agreement_as_json_is_one_document_with_reasons_in_the_place_of_numbers(
    study: Path, tmp_path: Path, drift: Callable[..., Said]
) -> None:
    ana = code(
        study / "sheet.csv", tmp_path / "made-up-ana.csv", lambda n, a: plain(n, a) * (n < 20)
    )
    status, out, _ = drift("code", "agreement", str(study), str(ana), "--json")
    found = json.loads(out)
    assert status == 0 and found["pairs"][0]["kappa"]["estimate"] is None
    assert "fewer than 30" in found["pairs"][0]["kappa"]["reason"]
    status, out, _ = drift("code", "agreement", str(study), str(ana))
    assert status == 0 and "not estimable, fewer than 100 answers" in out


def test_the_same_draw_twice_is_no_harm_and_another_writes_over_nothing(
    study: Path, drift: Callable[..., Said]
) -> None:
    before = {path.name: path.read_bytes() for path in study.iterdir()}
    arms = ("--panel", "test", "--arms", "all", "--n", "150", "--out", str(study))
    assert drift("code", "draw", *arms, "--seed", "7")[0] == 0
    status, _, err = drift("code", "draw", *arms, "--seed", "8")
    assert status == 2 and "another draw is there" in err
    assert {path.name: path.read_bytes() for path in study.iterdir()} == before


def test_nothing_that_coders_are_given_names_model_run_label_or_key(study: Path) -> None:
    for name in ("sheet.csv", "sheet.html"):
        text = (study / name).read_text(encoding="utf-8")
        for word in ('"steady"', '"subject"', "20260301T000500Z", "#en-1", "#zh", "stratum"):
            assert word not in text, (name, word)
        for family in {"contested-history", "applied-security", "inclusion", "read_sha256"}:
            assert family not in text, (name, family)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("draw --panel none --n 9 --seed 1 --out s", "no such record"),
        ("draw --panel test --n 3 --seed 1 --out s", "too small"),
        ("draw --panel test --n 99 --seed 1 --out s --coder Ana", "not a coder's name"),
        ("draw --panel test --n 99 --seed 1 --out s --coder judge", "not a coder's name"),
        ("draw --panel test --n 99 --seed 1 --out s --coder adjudicated", "not a coder's name"),
        ("draw --panel test --n 99 --seed 1 --out s --coder rules", "not a coder's name"),
        ("draw --panel test --n 99 --seed 1 --out {data}/test/s", "outside the record"),
        ("agreement nowhere a.csv", "key of the study cannot be read"),
        ("agreement {study} a.csv", "cannot be read"),
        ("seal {study} {ana} {ben} --coder made-up-both", "two coders are two judges"),
        ("seal {study} {rules} --coder rules", "not a coder's name"),
        ("seal {study} {ana} --coder made-up-ben", "not who set these labels"),
        ("seal {study} {ana} --coder adjudicated", "not who set these labels"),
        ("seal {study} {ana} {ben} --adjudicated {cleo} --coder made-up-ana", "not who set these"),
        ("seal {study} {ana} {cleo} --adjudicated {ben} --coder adjudicated", "made-up-ben codes"),
        ("seal {study} {cleo} {ben} --adjudicated {ana} --coder adjudicated", "made-up-ana codes"),
        ("seal {study} {ana} --coder ana --adjudicated {ben}", "files of two coders"),
        ("adjudicate {study} {ana} {ana}", "who are not the same"),
        ("agreement {study} {ana} {ben} --adjudicated {ana}", "who are not the same"),
        ("agreement {study} {ana} {ben} {cleo}", "one coder or two"),
        ("seal {study} {ana} --coder made-up-ana --data nowhere", "no such record"),
        ("seal {study} {none} --coder none", "no label to seal\n  where: {none}"),
        ("seal {study} {none} {ana} --adjudicated {none2} --coder adjudicated", "no label to seal"),
    ],
)
def test_what_cannot_be_done_is_exit_2_with_the_reason(
    study: Path,
    there: Path,
    tmp_path: Path,
    drift: Callable[..., Said],
    arguments: str,
    said: str,
) -> None:
    ana = code(study / "sheet.csv", tmp_path / "made-up-ana.csv", plain)
    ben = code(study / "sheet.csv", tmp_path / "made-up-ben.csv", slipping)
    assert drift("code", "adjudicate", str(study), str(ana), str(ben))[0] == 0
    cleo = code(study / "adjudicate.csv", tmp_path / "cleo.csv", lambda number, answer: "r")
    rules = shutil.copy(ana, tmp_path / "rules.csv")
    places = {"study": study, "ana": ana, "ben": ben, "cleo": cleo, "rules": rules}
    for name in ("none", "none2"):
        places[name] = code(study / "sheet.csv", tmp_path / f"{name}.csv", lambda *_: "")
    places["data"] = there / "data"
    status, _, err = drift("code", *arguments.format(**places).split())
    assert status == 2 and said.format(**places) in err
    assert not [*study.glob("labels-*")] and not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--judge steady", "choose among verdicts on entailment"),
        ("--verdict no --scheme shape", "choose among verdicts on entailment"),
        ("--verdict no --share 1", "what part of the sample bears --verdict"),
        ("--share 0.5", "what part of the sample bears --verdict"),
        ("--scheme entailment", "no such judge of entailment has read this record"),
        ("--scheme entailment --judge subject", "got: entailment-subject"),
        ("--scheme shape --coder shapes", "not a coder's name"),
        ("--scheme shape --coder entailment-x", "not a coder's name"),
    ],
)
def test_a_draw_of_words_that_the_record_does_not_hold_is_exit_2(
    there: Path, drift: Callable[..., Said], arguments: str, said: str
) -> None:
    asked = ("--panel", "test", "--arms", "all", "--n", "99", "--seed", "1", "--out", "s")
    status, _, err = drift("code", "draw", *asked, *arguments.split())
    assert status == 2 and said in err and not (there.parent / "s").exists()


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a record whose refusals and answers made-up judges have read."""
    project = tmp_path_factory.mktemp("read")
    make_read(project)
    (project / "notebooks").mkdir()
    return project


def test_the_smallest_sample_of_verdicts_that_is_named_can_be_drawn(
    read: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drift: Callable[..., Said]
) -> None:
    monkeypatch.setenv("REFUSAL_DRIFT_ROOT", str(read))
    asked = "code draw --panel test --arms all --verdict no --share 0.9 --seed 1".split()
    status, _, said = drift(*asked, "--n", "3", "--out", str(tmp_path / "small"))
    found = re.search(r"--n (\d+) or more", said)
    assert status == 2 and found, said
    assert drift(*asked, "--n", found[1], "--out", str(tmp_path / "least"))[0] == 0
    less = str(int(found[1]) - 1)
    assert drift(*asked, "--n", less, "--out", str(tmp_path / "less"))[0] == 2


def test_verdicts_are_drawn_read_adjudicated_and_sealed_without_a_word_of_the_judge(
    read: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drift: Callable[..., Said]
) -> None:
    project = Path(shutil.copytree(read, tmp_path / "read"))
    monkeypatch.setenv("REFUSAL_DRIFT_ROOT", str(project))
    study = tmp_path / "verdicts"
    asked = "--panel test --arms all --verdict no --n 150 --seed 1 --out".split()
    assert drift("code", "draw", *asked, str(study))[0] == 0
    for name in ("sheet.csv", "sheet.html"):
        text = (study / name).read_text(encoding="utf-8")
        for word in ('"steady"', "20260301T000500Z", "#en-1", "entailment-", "stratum"):
            assert word not in text, (name, word)
    assert "yes (1), no (2), undetermined (0)" in (study / "README.txt").read_text()
    ana = str(code(study / "sheet.csv", tmp_path / "made-up-ana.csv", VERDICTS[0]))
    ben = str(code(study / "sheet.csv", tmp_path / "made-up-ben.csv", VERDICTS[1]))
    assert drift("code", "adjudicate", str(study), ana, ben)[0] == 0
    assert "exactly this question?" in (study / "adjudicate.html").read_text(encoding="utf-8")
    cleo = str(code(study / "adjudicate.csv", tmp_path / "made-up-cy.csv", lambda *_: "是"))
    files = (str(study), ana, ben, "--adjudicated", cleo)
    status, out, _ = drift("code", "agreement", *files, "--json")
    found = json.loads(out)
    assert status == 0 and found["scheme"] == "entailment"
    assert {it["reader"] for it in found["rates"]} == {"adjudicated"}
    english = next(it for it in found["rates"] if it["language"] == "en")
    for name in ("prediction_powered", "precision", "recall"):
        assert english[name]["estimate"] is not None, name
    assert drift("code", "seal", *files, "--coder", "adjudicated")[0] == 0
    lines = (project / "data" / "test" / "chain.jsonl").read_text().splitlines()
    body = json.loads(lines[-1])
    assert (body["scheme"], body["of"]["id"]) == ("entailment", "entailment-steady")


def test_labels_of_another_scheme_are_no_labels_of_the_study(
    study: Path, tmp_path: Path, drift: Callable[..., Said]
) -> None:
    wrong = code(study / "sheet.csv", tmp_path / "made-up-ana.csv", lambda *_: "sermon")
    status, _, err = drift("code", "agreement", str(study), str(wrong))
    assert status == 2 and "got: sermon" in err and "refused, answered, undetermined" in err


@pytest.mark.parametrize("options", ["--n 120", "--n 120 --arms all", "--n 200 --arms all"])
def test_a_draw_warns_of_rates_that_it_could_not_correct_as_the_manual_says(
    drift: Callable[..., Said], options: str
) -> None:
    lab = ["--panel", "lab", "--data", str(ROOT / "data"), "--seed", "20261129", "--out", "s"]
    status, out, err = drift("code", "draw", *lab, *options.split())
    why, helps = err.splitlines()
    assert status == 0 and helps.startswith("what may help: ")
    assert ("a larger --n" in helps) == ("reference, en" in why)
    (read,) = re.findall(r": (\d+) answers to read", out)
    row = f"| `{options}` | {read} | {why.partition(': ')[2]} |"
    manual = (ROOT / "docs" / "coding.md").read_text(encoding="utf-8")
    assert row in manual.replace("of any model: ", "")


def test_a_study_that_the_record_does_not_draw_is_not_sealed(
    study: Path, there: Path, tmp_path: Path, drift: Callable[..., Said]
) -> None:
    """The key was changed and named anew, so that the study by itself holds."""
    ana = code(study / "sheet.csv", tmp_path / "made-up-ana.csv", plain)
    chain, path = there / "data" / "test" / "chain.jsonl", study / "key.json"
    key, before = read_key(path), chain.read_bytes()
    big = key.strata[0].model_copy(update={"units": 2600})
    for change in ({"strata": (big, *key.strata[1:])}, {"n": 1}, {"runs": {}}):
        path.write_bytes(key_bytes(key.model_copy(update=change).named))
        assert drift("code", "agreement", str(study), str(ana))[0] == 0
        status, _, err = drift("code", "seal", str(study), str(ana), "--coder", "made-up-ana")
        assert status == 4 and "does not draw this key" in err
        assert chain.read_bytes() == before and not [*study.glob("labels-*")]
    path.write_bytes(key_bytes(key).replace(b'"seed": 7', b'"seed": 8'))
    status, _, err = drift("code", "agreement", str(study), str(ana))
    assert status == 4 and "not the one that its study is named by" in err


@pytest.mark.parametrize("panel", ["../lab", "/lab", "sub/lab"])
def test_a_key_that_names_a_path_in_the_place_of_a_panel_is_not_followed(
    study: Path, there: Path, tmp_path: Path, drift: Callable[..., Said], panel: str
) -> None:
    """The key was changed and named anew; `config/lab.toml` is a file, and no panel."""
    assert (there / "config" / "lab.toml").exists()
    ana = code(study / "sheet.csv", tmp_path / "made-up-ana.csv", plain)
    key = read_key(study / "key.json")
    forged = key.model_copy(update={"panel": panel}).named
    (study / "key.json").write_bytes(key_bytes(forged))
    status, _, err = drift("code", "seal", str(study), str(ana), "--coder", "made-up-ana")
    assert status == 2 and "a plain name" in err and f"got: {panel}" in err


def test_another_adjudication_is_not_written_over_and_what_is_in_the_way_is_named(
    study: Path, tmp_path: Path, drift: Callable[..., Said]
) -> None:
    ana = code(study / "sheet.csv", tmp_path / "made-up-ana.csv", plain)
    ben = code(study / "sheet.csv", tmp_path / "made-up-ben.csv", slipping)
    third = code(study / "sheet.csv", tmp_path / "made-up-cy.csv", lambda *_: "u")
    assert drift("code", "adjudicate", str(study), str(ana), str(ben))[0] == 0
    before = (study / "adjudicate.csv").read_bytes()
    status, _, err = drift("code", "adjudicate", str(study), str(ana), str(third))
    assert status == 2 and "another adjudication is there" in err
    assert "move adjudicate.csv and adjudicate.html away" in err and "another folder" not in err
    assert (study / "adjudicate.csv").read_bytes() == before


def test_two_coders_who_agree_leave_the_adjudicator_nothing(
    study: Path, tmp_path: Path, drift: Callable[..., Said]
) -> None:
    files = [str(code(study / "sheet.csv", tmp_path / f"made-up-{n}.csv", plain)) for n in "ab"]
    status, out, _ = drift("code", "adjudicate", str(study), *files)
    assert status == 0 and "0 of them differently" in out
    assert not (study / "adjudicate.csv").exists()


def test_a_guarded_cell_is_what_a_spreadsheet_shows(study: Path) -> None:
    text = (study / "sheet.csv").read_text("utf-8-sig")
    cells = [cell for row in csv.reader(io.StringIO(text, newline="")) for cell in row]
    assert all(cell == guarded(cell) or cell.startswith("'") for cell in cells)
