"""The draw: stratified, seeded, blinded, with a probability for every unit."""

from __future__ import annotations

import shutil
from collections import Counter
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Ticking
from loopback import Loopback, Reply, Request, completion
from making import ANSWER, REFUSAL, answering, record, run, write_panel

from drift.errors import ConfigurationError
from drift.records.draw import Drawn, draw, key_bytes, read_key, redraw
from drift.records.ledger import Ledger
from drift.records.sheet import sheet_bytes
from drift.records.store import Store, read_rows

FIRST, SECOND, LAST = "20260301T000500Z", "20260301T060500Z", "20260301T120500Z"


def drawn(project: Path, **options: Any) -> Drawn:
    folder = project / "data" / "test"
    return draw(Store(folder), Ledger(folder), **({"n": 40, "seed": 1} | options))


@pytest.fixture(scope="module")
def varied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which two models say the same only where both refuse, or are cut."""
    project = tmp_path_factory.mktemp("varied")
    shutil.copytree(ROOT / "config", project / "config")

    def script(request: Request) -> Reply:
        if "1989" in request.prompt:
            return completion(REFUSAL)
        if "1959" in request.prompt:
            return completion(ANSWER, "length")
        return completion(f"{ANSWER} {request.model}")

    clock = Ticking(datetime(2026, 3, 1, 0, 5, tzinfo=UTC))
    with Loopback(script) as server:
        write_panel(project, server.base_url)
        run(project, clock)
    return project


def test_the_same_arguments_draw_the_same_and_another_seed_others(made: Path) -> None:
    assert drawn(made) == drawn(made)
    assert drawn(made).key.rows != drawn(made, seed=2).key.rows


def test_the_default_is_the_last_full_run_of_each_model(made: Path) -> None:
    key = drawn(made).key
    assert key.runs == {"steady": (FIRST,), "subject": (FIRST,)}
    assert drawn(made, runs=[LAST]).key.runs["subject"] == (LAST,)


@pytest.mark.parametrize("arms", ["canonical", "all"])
def test_every_stratum_is_drawn_from_and_the_probabilities_are_recorded(
    made: Path, arms: str
) -> None:
    key = drawn(made, arms=arms).key
    units = [unit for row in key.rows.values() for unit in row.units]
    assert len(units) == key.n == 40
    read = Counter(unit.stratum for unit in units)
    for number, stratum in enumerate(key.strata):
        assert read[number] == stratum.drawn >= min(stratum.units, key.floor)
    for unit in units:
        stratum = key.strata[unit.stratum]
        assert unit.inclusion == stratum.drawn / stratum.units
        for place in unit.responses:
            assert place.model == stratum.model
            assert place.key.endswith("#zh") == (stratum.language == "zh")
    languages = {stratum.language for stratum in key.strata}
    assert languages == ({"en"} if arms == "canonical" else {"en", "zh"})


def test_a_row_is_the_stored_text_and_its_label_is_the_stratums(made: Path) -> None:
    found = drawn(made)
    rows = read_rows(Store(made / "data" / "test").transcript(FIRST))
    stored = {(row["model"], row["key"]): row["text"] for row in rows}
    path = next((made / "data" / "test" / "labels").glob(f"rules-*/{FIRST}.jsonl"))
    labels = {(row["model"], row["key"]): row["label"] for row in read_rows(path)}
    for name, row in found.key.rows.items():
        assert found.rows[name].sha256 == row.read_sha256
        for unit in row.units:
            for place in unit.responses:
                assert stored[place.model, place.key] == found.rows[name].answer
                assert labels[place.model, place.key] == found.key.strata[unit.stratum].label


def test_controls_are_left_out_and_counted(made: Path) -> None:
    key = drawn(made).key
    assert key.left_out == {"control": 14}
    assert sum(stratum.responses for stratum in key.strata) == 2 * 34


def test_one_text_stored_in_several_runs_is_one_unit_and_stands_for_all(made: Path) -> None:
    key = drawn(made, runs=[FIRST, SECOND, LAST], n=500).key
    assert sum(stratum.units for stratum in key.strata) == 2 * 34
    assert sum(stratum.responses for stratum in key.strata) == 3 * 2 * 34
    for row in key.rows.values():
        for unit in row.units:
            assert [place.run for place in unit.responses] == [FIRST, SECOND, LAST]
            assert len({place.key for place in unit.responses}) == 1


def test_what_two_models_said_alike_is_one_row_and_two_units(varied: Path) -> None:
    found = drawn(varied, n=500, arms="all")
    shared = [name for name, row in found.key.rows.items() if len(row.units) == 2]
    assert {found.rows[name].answer for name in shared} == {REFUSAL, ANSWER}
    assert {found.rows[name].cut for name in shared if found.rows[name].answer == ANSWER} == {True}
    for name in shared:
        one, two = found.key.rows[name].units
        assert {found.key.strata[it.stratum].model for it in (one, two)} == {"steady", "subject"}
    assert len(found.key.rows) + len(shared) == found.key.n


def test_the_sheet_says_nothing_of_model_run_label_or_stratum(made: Path) -> None:
    found = drawn(made, arms="all", n=60)
    text = sheet_bytes(found.rows.values()).decode()
    for word in ('"steady"', '"subject"', FIRST, "#en-1", "contested-history/", '"refused"'):
        assert word not in text
    # An id hangs on what its reader sees and on the seed, and on nothing else.
    ids = {(row.question, row.answer): name for name, row in found.rows.items()}
    again = drawn(made, arms="all", n=60, floor=1)
    same = [name for name, row in again.rows.items() if (row.question, row.answer) in ids]
    assert same and all(name in found.rows for name in same)


def test_the_order_of_the_sheet_does_not_follow_the_strata(made: Path) -> None:
    found = drawn(made, arms="all", n=60)
    lines = sheet_bytes(found.rows.values()).decode("utf-8-sig").splitlines()[1:]
    order = [line[1:13] for line in lines if line[1:13] in found.rows]
    strata = [found.key.rows[name].units[0].stratum for name in order]
    changes = sum(a != b for a, b in pairwise(strata))
    assert changes > 2 * len(set(strata))


def test_the_key_comes_back_from_its_file_and_a_broken_one_is_refused(
    made: Path, tmp_path: Path
) -> None:
    path, key = tmp_path / "key.json", drawn(made).key
    path.write_bytes(key_bytes(key))
    assert read_key(path) == key
    path.write_bytes(key_bytes(key).replace(b'"inclusion": ', b'"inclusion": 7'))
    for wrong in (path, tmp_path / "none.json"):
        with pytest.raises(ConfigurationError, match="key of the study") as error:
            read_key(wrong)
        assert error.value.where == str(wrong)


@pytest.mark.parametrize(
    "options", [{}, {"arms": "all", "n": 60}, {"runs": [LAST, FIRST]}, {"n": 500}]
)
def test_what_a_key_names_draws_it_again(made: Path, options: dict[str, Any]) -> None:
    found, folder = drawn(made, **options), made / "data" / "test"
    assert redraw(found.key, Store(folder), Ledger(folder).forwards()) == found


def test_a_study_is_named_by_its_whole_key(made: Path) -> None:
    key = drawn(made).key
    assert key == key.named and len(key.study) == 16
    for change in (
        {"seed": 2},
        {"strata": key.strata[::-1]},
        {"rows": dict([*key.rows.items()][1:])},
    ):
        assert key.model_copy(update=change).named.study != key.study


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"n": 3}, "too small"),
        ({"runs": ["20260301T000501Z"]}, "no such run"),
    ],
)
def test_what_cannot_be_drawn_is_said(made: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        drawn(made, **options)


def test_a_record_without_a_full_run_asks_for_runs_by_name(tmp_path: Path) -> None:
    (tmp_path / "data" / "test").mkdir(parents=True)
    with pytest.raises(ConfigurationError, match="no full run") as error:
        drawn(tmp_path)
    assert "--run" in str(error.value)


def test_runs_under_two_versions_of_the_judge_are_not_mixed(copy: Path, clock: Ticking) -> None:
    rules = copy / "config" / "judge" / "rules.toml"
    rules.write_text(rules.read_text(encoding="utf-8") + "\n# another version\n", "utf-8")
    clock.advance(days=2)
    with Loopback(answering) as server:
        write_panel(copy, server.base_url)
        changed = record(copy, clock)
        with changed.opened():
            changed.register()
        run(copy, clock)
    assert drawn(copy).key.judge["rules"] != drawn(copy, runs=[FIRST]).key.judge["rules"]
    with pytest.raises(ConfigurationError, match="several versions of the judge"):
        drawn(copy, runs=[FIRST, drawn(copy).key.runs["subject"][0]])
