"""People's sealed labels of shapes and verdicts: read from the record, and as nothing else.

Every coder and label is made up, by a rule.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from making import reseal
from words import make_read, seal_verdicts

from drift.errors import ConfigurationError, IntegrityError
from drift.judging import load_judge
from drift.records.coding import coding_of, read_coding, seal_coding
from drift.records.draw import draw
from drift.records.ledger import Ledger, Line
from drift.records.moves import compare_judges
from drift.records.people import NOT_DRAWN, NOT_READ, corrections, read_by_people
from drift.records.readers import compare
from drift.records.scheme import ENTAILMENT, SHAPE, Scheme
from drift.records.sheet import Marks
from drift.records.store import Store, dump_line, judge_folder, read_rows
from drift.records.study import Study, adjudicated, disagreements, label_lines, sealed_of
from drift.records.verify import verify_record

FIRST = "20260301T000500Z"


@dataclass(frozen=True)
class Sealed:
    """A record in which people's labels of one study are sealed, and what they said."""

    folder: Path
    study: Study
    marks: dict[str, Marks]

    @property
    def store(self) -> Store:
        return Store(self.folder)

    @property
    def lines(self) -> list[Line]:
        return [*Ledger(self.folder).forwards()]


def seal(folder: Path, scheme: Scheme, *coders: str, **options: Any) -> Sealed:
    """Draw a study, let made-up coders slip on every ninth, tenth, ... answer, and seal."""
    store, ledger = Store(folder), Ledger(folder)
    asked = {"n": 160, "seed": 1, "arms": "all", "floor": 1, "scheme": scheme} | options
    drawn = draw(store, ledger, **asked)
    study = Study(Path("study"), drawn.key, drawn.rows)
    judged = {row: drawn.key.strata[unit.stratum].label for row, unit in study.units}
    marks = {}
    for often, name in enumerate((it for it in coders if it != "adjudicated"), start=9):
        other = {n: word for n, word in enumerate(scheme.order)}
        labels = {
            row: other[n % len(other)] if n % often == 0 else label
            for n, (row, label) in enumerate(sorted(judged.items()))
        }
        marks[name] = Marks(name, labels, {})
    if "adjudicated" in coders:
        one, two = list(marks.values())[:2]
        due = disagreements(one, two)
        third = Marks("made-up-cleo", {row: judged[row] for row in due}, {})
        marks["adjudicated"] = adjudicated(one, two, third)
    for name in coders:
        coding = coding_of(
            label_lines(study, marks[name]), Path("made-up.jsonl"), store, ledger, scheme=scheme
        )
        now = datetime(2026, 4, 1, tzinfo=UTC)
        seal_coding(
            coding, name, store, ledger, clock=lambda now=now: now, study=sealed_of(study.key)
        )
    return Sealed(folder, study, marks)


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_read(tmp_path_factory.mktemp("people"), runs=2)


@pytest.fixture
def folder(untouched: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(untouched, tmp_path / "test"))


@pytest.mark.parametrize("runs", [[], [FIRST, "20260301T060500Z"]])
@pytest.mark.parametrize(
    ("scheme", "options"), [(SHAPE, {}), (ENTAILMENT, {"verdict": "no", "share": Decimal("0.7")})]
)
def test_the_record_alone_gives_the_figures_of_the_study(
    folder: Path, scheme: Scheme, options: dict[str, Any], runs: list[str]
) -> None:
    made = seal(folder, scheme, "ana", "ben", "adjudicated", runs=runs, **options)
    (found,) = read_by_people(made.store, made.lines, scheme=scheme.name)
    ana, ben, final = made.marks.values()
    assert found == compare(made.study, [ana, ben], final) | {"reason": None}
    of = made.study.key.judge
    assert read_by_people(made.store, made.lines, scheme=scheme.name, of=of) == [found]
    assert read_by_people(made.store, made.lines, scheme=scheme.name, of={"id": "other"}) == []
    assert read_by_people(made.store, made.lines, scheme="refusal") == []


def test_a_line_names_its_scheme_its_judge_and_what_draws_the_sample_again(folder: Path) -> None:
    made = seal(folder, ENTAILMENT, "ana", verdict="no", share=Decimal("0.7"))
    body = made.lines[-1].body
    assert (body["scheme"], body["of"]) == ("entailment", made.study.key.judge)
    assert body["sample"] == {
        "study": made.study.key.study,
        "arms": "all",
        "runs": {"steady": [FIRST], "subject": [FIRST]},
        "seed": 1,
        "n": 160,
        "floor": 1,
        "verdict": "no",
        "share": "0.7",
    }
    (path,) = (folder / "labels").glob("ana-*/*.jsonl")
    assert {*read_rows(path)[0]} == {"key", "model", "label", "rule", "span", "drawn"}


def test_the_rate_of_no_is_corrected_by_what_was_adjudicated(folder: Path) -> None:
    made = seal(folder, ENTAILMENT, "ana", "ben", "adjudicated")
    found = corrections(made.store, made.lines, of=made.study.key.judge)
    assert (found.reason, found.reader, found.readers) == (None, "adjudicated", ("ana", "ben"))
    assert found.coded == len(made.study.key.rows)
    assert found.precision.estimate is not None and found.recall.estimate is not None
    english = found.rates["subject", "en"]
    assert 0 < english.no < english.n and english.coded >= 30
    assert english.rate.low < english.rate.estimate < english.rate.high
    chinese = found.rates["subject", "zh"]
    assert chinese.rate.estimate is None and "fewer than 30" in str(chinese.rate.reason)


def test_without_adjudication_the_labels_of_who_read_most_correct(folder: Path) -> None:
    made = seal(folder, ENTAILMENT, "ana", "ben")
    found = corrections(made.store, made.lines, of=made.study.key.judge)
    assert (found.reader, found.readers) == ("ana", ("ana", "ben"))


def test_verdicts_that_nobody_read_are_corrected_by_nothing(folder: Path) -> None:
    made = seal(folder, ENTAILMENT, "ana")
    again = seal_verdicts(folder, fingerprint="0" * 64)
    other = corrections(made.store, made.lines, of=again)
    assert other.reason == NOT_READ and other.rates == {} and other.precision.estimate is None
    # The judging that was read stays corrected beside the newer one.
    assert corrections(made.store, made.lines, of=made.study.key.judge).reason is None


@pytest.mark.parametrize(
    "change", [{"seed": 2}, {"n": 90}, {"runs": {}}, {"arms": "canonical"}, {"floor": 0}]
)
def test_a_sample_that_the_record_does_not_draw_corrects_nothing(
    folder: Path, change: dict[str, Any]
) -> None:
    made = seal(folder, ENTAILMENT, "ana")
    line = made.lines[-1]
    reseal(folder, line.seq, line.body | {"sample": line.body["sample"] | change})
    found = corrections(made.store, made.lines, of=made.study.key.judge)
    assert (found.reason, found.rates) == (NOT_DRAWN, {})
    (document,) = read_by_people(made.store, made.lines, scheme="entailment")
    assert document["pairs"] == [] and document["reason"] == NOT_DRAWN


HASHES = {"rules": "e" * 64, "fingerprint": "f" * 64}


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("sample", ({}, "all", {"study": 3}, None)),
        (
            "of",
            (
                {},
                "x",
                None,
                {"id": "entailment-steady"},
                HASHES | {"id": 3},
                HASHES | {"id": "shapes"},
            ),
        ),
        ("scheme", ("bogus", ["entailment"], None, "shape")),
    ],
)
def test_a_line_that_does_not_say_what_was_read_is_found_and_named(
    folder: Path, field: str, values: tuple[Any, ...]
) -> None:
    made = seal(folder, ENTAILMENT, "ana")
    line = made.lines[-1]
    for value in values:
        reseal(folder, line.seq, line.body | {field: value})
        with pytest.raises(IntegrityError, match="does not say what was read") as error:
            corrections(made.store, made.lines, of=made.study.key.judge)
        assert f"line {line.seq + 1}, " in str(error.value.where)
        found = verify_record(folder, root=ROOT, rederive=False, workers=1)
        assert [it.how for it in found.problems] == ["edited"], value


def test_a_row_that_is_no_label_of_people_is_named(folder: Path) -> None:
    made = seal(folder, ENTAILMENT, "ana")
    (path,) = (folder / "labels").glob("ana-*/*.jsonl")
    first, *rest = read_rows(path)
    for odd in ({}, first | {"label": "perhaps"}, first | {"label": ["no"]}, first | {"key": 3}):
        path.write_bytes(b"".join(map(dump_line, [odd, *rest])))
        with pytest.raises(IntegrityError, match="no label of people"):
            corrections(made.store, made.lines, of=made.study.key.judge)


def test_a_labels_file_of_one_scheme_is_none_of_another(folder: Path, tmp_path: Path) -> None:
    made = seal(folder, SHAPE, "ana")
    path = tmp_path / "made-up.jsonl"
    path.write_bytes(label_lines(made.study, made.marks["ana"]))
    with pytest.raises(ConfigurationError, match="not a label of refusal"):
        read_coding(path, made.store, Ledger(folder))


def test_words_of_other_schemes_are_not_compared_as_labels_of_refusals(folder: Path) -> None:
    made = seal(folder, ENTAILMENT, "ana")
    judge = load_judge(ROOT / "config" / "judge")
    for rules in (made.lines[-1].body["judge"]["rules"], made.study.key.judge["rules"], "5" * 12):
        with pytest.raises(ConfigurationError, match="no such judge") as error:
            compare_judges(folder, rules, judge, workers=1)
        assert "ana" not in str(error.value.expected)
    found = verify_record(folder, root=ROOT, rederive=False, workers=1)
    assert found.problems == []


@pytest.mark.parametrize("name", ["shapes", "entailment-steady", "rules"])
def test_nobody_seals_labels_under_the_name_of_a_judge(folder: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="not a coder's name"):
        seal(folder, SHAPE, name)


def test_labels_of_shapes_are_sealed_once_and_name_every_response_of_a_unit(folder: Path) -> None:
    runs = [FIRST, "20260301T060500Z"]
    made = seal(folder, SHAPE, "ana", runs=runs)
    before = (folder / "chain.jsonl").read_bytes()
    lines = label_lines(made.study, made.marks["ana"])
    coding = coding_of(lines, Path("made-up.jsonl"), made.store, Ledger(folder), scheme=SHAPE)
    clock: Callable[[], datetime] = lambda: datetime(2026, 4, 2, tzinfo=UTC)  # noqa: E731
    more = sealed_of(made.study.key)
    assert seal_coding(coding, "ana", made.store, Ledger(folder), clock=clock, study=more) == []
    assert (folder / "chain.jsonl").read_bytes() == before
    bodies = [line.body for line in made.lines if line.body.get("scheme")]
    assert [body["run"] for body in bodies] == runs
    said = [
        (body["run"], row["model"], row["key"])
        for body in bodies
        for row in read_rows(made.store.labels(judge_folder(body["judge"]), body["run"]))
    ]
    places = [it for _, unit in made.study.units for it in unit.responses]
    assert sorted(said) == sorted((it.run, it.model, it.key) for it in places)
