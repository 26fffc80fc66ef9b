"""Draws of refusals for their shape and of verdicts on entailment, by labels of made-up judges."""

from __future__ import annotations

import shutil
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pytest
from words import make_read, refuses, seal_shapes, seal_verdicts, seal_words

from drift.errors import ConfigurationError
from drift.records.draw import Drawn, Key, draw, key_bytes, redraw
from drift.records.ledger import Ledger
from drift.records.scheme import ENTAILMENT, SHAPE, Scheme
from drift.records.store import Store, judge_folder, read_rows

FIRST, SECOND = "20260301T000500Z", "20260301T060500Z"


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a record of two runs, whose refusals and answers are read."""
    return make_read(tmp_path_factory.mktemp("read"), runs=2)


def drawn(folder: Path, scheme: Scheme, **options: Any) -> Drawn:
    asked = {"n": 60, "seed": 1, "arms": "all", "floor": 1, "scheme": scheme} | options
    return draw(Store(folder), Ledger(folder), **asked)


def labels(folder: Path, key: Key, run: str = FIRST) -> dict[tuple[str, str], str]:
    rows = read_rows(Store(folder).labels(judge_folder(key.judge), run))
    return {(row["model"], row["key"]): row["label"] for row in rows if "model" in row}


def test_of_shapes_the_refusals_are_drawn_each_in_the_stratum_of_its_shape(read: Path) -> None:
    found = drawn(read, SHAPE)
    said = labels(read, found.key)
    assert found.key.scheme == "shape" and found.key.judge["id"] == "shapes"
    strata = {stratum.label for stratum in found.key.strata}
    assert len(strata) > 3 and strata <= {*said.values()}
    for name, row in found.key.rows.items():
        assert refuses({"text": found.rows[name].answer})
        for unit in row.units:
            for place in unit.responses:
                assert said[place.model, place.key] == found.key.strata[unit.stratum].label
    assert found.key.left_out["not refused"] > 0


def test_of_verdicts_yes_and_no_are_drawn_and_what_is_missing_is_counted(read: Path) -> None:
    found = drawn(read, ENTAILMENT)
    said = labels(read, found.key)
    assert {stratum.label for stratum in found.key.strata} == {"yes", "no"}
    assert "missing" in said.values() and found.key.left_out["verdict missing"] > 0
    assert not any(refuses({"text": row.answer}) for row in found.rows.values())
    assert found.key.left_out["not answered"] > 0


@pytest.mark.parametrize(("share", "of_no"), [("0.7", 42), ("0.25", 15)])
def test_a_named_verdict_gets_its_share_of_the_sample(read: Path, share: str, of_no: int) -> None:
    key = drawn(read, ENTAILMENT, verdict="no", share=Decimal(share)).key
    drew = Counter[str]()
    for stratum in key.strata:
        drew[stratum.label] += stratum.drawn
    assert drew == {"no": of_no, "yes": 60 - of_no}
    assert (key.verdict, key.share) == ("no", Decimal(share))
    for row in key.rows.values():
        for unit in row.units:
            stratum = key.strata[unit.stratum]
            assert unit.inclusion == stratum.drawn / stratum.units


@pytest.mark.parametrize(("verdict", "share"), [("no", "0.99"), ("no", "0.01"), ("yes", "0.99")])
def test_what_one_verdict_has_not_goes_to_the_other(read: Path, verdict: str, share: str) -> None:
    everything = drawn(read, ENTAILMENT, n=10_000).key
    there = Counter[str]()
    for stratum in everything.strata:
        there[stratum.label] += stratum.units
    n = there.total() - 5
    key = drawn(read, ENTAILMENT, n=n, verdict=verdict, share=Decimal(share)).key
    assert key.n == n == sum(stratum.drawn for stratum in key.strata)


@pytest.mark.parametrize(
    ("scheme", "options"),
    [
        (SHAPE, {}),
        (SHAPE, {"n": 10_000, "runs": [FIRST, SECOND]}),
        (ENTAILMENT, {"verdict": "no", "share": Decimal("0.7")}),
        (ENTAILMENT, {"verdict": "no", "share": Decimal("0.7"), "n": 10_000}),
    ],
)
def test_what_a_key_of_any_scheme_names_draws_it_again(
    read: Path, scheme: Scheme, options: dict[str, Any]
) -> None:
    found = drawn(read, scheme, **options)
    key = Key.model_validate(orjson.loads(key_bytes(found.key)))
    assert key == found.key == key.named
    assert redraw(key, Store(read), Ledger(read).forwards()) == found


def test_a_key_without_a_scheme_is_of_refusals(read: Path) -> None:
    key = draw(Store(read), Ledger(read), n=60, seed=1).key
    assert key.scheme == "refusal" and key.judge["id"] == "rules"
    assert not {"scheme", "verdict", "share"} & orjson.loads(key_bytes(key)).keys()


def test_a_key_whose_labels_are_of_another_scheme_is_none(read: Path) -> None:
    document = orjson.loads(key_bytes(drawn(read, SHAPE).key))
    with pytest.raises(ValueError, match="no label that entailment draws"):
        Key.model_validate(document | {"scheme": "entailment"})


def test_the_newest_words_of_a_judge_are_drawn_and_a_key_draws_those_that_it_names(
    read: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(read, tmp_path / "test"))
    old = drawn(folder, SHAPE)
    newer = seal_shapes(folder, rules="6" * 64)
    assert drawn(folder, SHAPE).key.judge == newer != old.key.judge
    assert redraw(old.key, Store(folder), Ledger(folder).forwards()) == old
    # The same model by the same rules said other words: those of the first time count.
    before = drawn(folder, ENTAILMENT)
    again = seal_verdicts(folder, fingerprint="0" * 64)
    assert drawn(folder, ENTAILMENT) == before and again != before.key.judge
    assert redraw(before.key, Store(folder), Ledger(folder).forwards()) == before


def test_of_several_judge_models_one_must_be_named(read: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(read, tmp_path / "test"))
    seal_verdicts(folder, model="subject")
    with pytest.raises(ConfigurationError, match="several judges of entailment") as error:
        drawn(folder, ENTAILMENT)
    assert error.value.expected == "entailment-steady, entailment-subject"
    assert drawn(folder, ENTAILMENT, judge="entailment-subject").key.judge["id"].endswith("subject")
    with pytest.raises(ConfigurationError, match="no such judge of entailment"):
        drawn(folder, ENTAILMENT, judge="entailment-none")


def test_a_record_that_no_judge_of_the_scheme_has_read_names_the_command(made: Path) -> None:
    with pytest.raises(ConfigurationError, match="no such judge") as error:
        drawn(made / "data" / "test", ENTAILMENT)
    assert "drift entail --panel test" in str(error.value)


def test_runs_that_a_judge_model_read_with_other_words_are_not_mixed(
    read: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(read, tmp_path / "test"))
    judge = {"id": "entailment-steady", "rules": "e" * 64, "fingerprint": "1" * 64}
    later = seal_words(folder, judge, lambda row: "yes")
    assert drawn(folder, ENTAILMENT, runs=[FIRST, SECOND]).key.judge == later
    lines = [*Ledger(folder).forwards()]
    # Of the second run the newest words are those of before.
    assert lines.pop().body["run"] == SECOND
    (folder / "chain.jsonl").write_bytes(
        b"\n".join((folder / "chain.jsonl").read_bytes().split(b"\n")[: len(lines)]) + b"\n"
    )
    with pytest.raises(ConfigurationError, match="several versions of the judge"):
        drawn(folder, ENTAILMENT, runs=[FIRST, SECOND])


def test_verdicts_on_cut_answers_are_counted_and_not_drawn_while_cut_refusals_are(
    read: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(read, tmp_path / "cut"))
    for run in (FIRST, SECOND):
        path = Store(folder).transcript(run)
        rows = path.read_bytes().replace(b'"status":"ok"', b'"status":"truncated"')
        # Every second line is of an answer that was cut.
        old = path.read_bytes().splitlines(True)
        new = rows.splitlines(True)
        path.write_bytes(
            b"".join(b if n % 2 else a for n, (a, b) in enumerate(zip(old, new, strict=True)))
        )
    found = drawn(folder, ENTAILMENT)
    assert found.key.left_out["cut"] > 0
    assert not any(row.cut for row in found.rows.values())
    assert any(row.cut for row in drawn(folder, SHAPE).rows.values())
