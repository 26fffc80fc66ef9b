"""Readers who know a phantom's script correct a judge that errs: the true rate is found again.

The readers are simulated; what they say is the script.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from drift.config import load_panel
from drift.entail import entail
from drift.probing.phantom import NARROW
from drift.records.coding import coding_of, seal_coding
from drift.records.draw import Drawn, draw
from drift.records.people import corrections
from drift.records.readers import rates
from drift.records.scheme import ENTAILMENT
from drift.records.sheet import Marks
from drift.records.study import Study, label_lines, sealed_of
from drift.records.verify import verify_record
from drift.refresh import Record

ROOT = Path(__file__).resolve().parents[1]
#: Models of the phantom whose answers narrow the question now and then.
MODELS = ("steady", "filtered")


@pytest.fixture(scope="module")
def phantom(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """A phantom's record of one run, read by a judge that errs in 45 % and by one in 4 %."""
    folder = tmp_path_factory.mktemp("read") / "phantom"
    made = Record(load_panel("phantom", root=ROOT), folder=folder, root=ROOT)
    with made.opened():
        assert made.refresh(models=[*MODELS]).sealed
        for judge in ("careless", "careful"):
            assert entail(made, judge).sealed
    return made


def drawn(record: Record, judge: str, seed: int, *, n: int = 150) -> Drawn:
    return draw(
        record.store,
        record.ledger,
        n=n,
        seed=seed,
        arms="all",
        scheme=ENTAILMENT,
        judge=f"entailment-{judge}",
        verdict="no",
        share=Decimal("0.7"),
    )


@cache
def script(record: Record, model: str) -> dict[str, str]:
    """Return by arm what a reader says who knows what a model's answers were made to be."""
    assert record.truth is not None
    said = record.truth.said(model, 1)
    return {key: "no" if it.shape == NARROW else "yes" for key, it in said.items()}


def read_by_script(record: Record, of: Drawn) -> Marks:
    """Return what such a reader hands in."""
    places = {row: keyed.units[0].responses[0] for row, keyed in of.key.rows.items()}
    labels = {row: script(record, it.model)[it.key] for row, it in places.items()}
    return Marks("made-up-ana", labels, {})


def true_rate(record: Record, judge: str, model: str) -> float:
    """Return the scripted share of No in all English answers of sensitive families."""
    everything = drawn(record, judge, 1, n=100_000).key
    said = [
        script(record, model)[place.key] == "no"
        for keyed in everything.rows.values()
        for unit in keyed.units
        for place in unit.responses
        if place.model == model and not place.key.endswith("#zh")
    ]
    return sum(said) / len(said)


@pytest.mark.parametrize("judge", ["careless", "careful"])
def test_the_corrected_rate_holds_the_scripted_one_however_the_judge_errs(
    phantom: Record, judge: str
) -> None:
    truth = {model: true_rate(phantom, judge, model) for model in MODELS}
    held, off, judged = [], [], []
    for seed in range(100):
        of = drawn(phantom, judge, seed)
        study = Study(Path("study"), of.key, of.rows)
        for rate in rates(study, read_by_script(phantom, of)):
            if rate["language"] == "en":
                found, real = rate["prediction_powered"], truth[rate["model"]]
                held.append(found["low"] <= real <= found["high"])
                off.append(found["estimate"] - real)
                judged.append(abs(rate["judged"]["no"] / rate["judged"]["n"] - real))
    assert len(held) == 100 * len(MODELS)
    # 95 % less three standard errors of the draws.
    assert np.mean(held) >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / len(held))
    assert abs(np.mean(off)) < 0.02
    # Uncorrected, the rate of the careless judge is far from the script.
    assert (min(judged) > 0.1) == (judge == "careless")


def test_what_people_said_of_a_judge_that_errs_is_sealed_verified_and_read_again(
    phantom: Record,
) -> None:
    of = drawn(phantom, "careless", 1)
    study, marks = Study(Path("study"), of.key, of.rows), read_by_script(phantom, of)
    lines = label_lines(study, marks)
    coding = coding_of(lines, Path("x.jsonl"), phantom.store, phantom.ledger, scheme=ENTAILMENT)
    now = datetime(2030, 1, 1, tzinfo=UTC)
    with phantom.opened():
        seal_coding(
            coding, "ana", phantom.store, phantom.ledger, clock=lambda: now,
            study=sealed_of(of.key),
        )  # fmt: skip
    found = corrections(phantom.store, phantom.ledger.forwards(), of=of.key.judge)
    assert (found.reason, found.readers) == (None, ("ana",))
    # It errs in 45 % either way, and few answers narrow the question: most of its No is wrong.
    assert found.precision.estimate is not None and found.precision.estimate < 0.5
    for model in MODELS:
        rate = found.rates[model, "en"].rate
        assert rate.low <= true_rate(phantom, "careless", model) <= rate.high
    assert verify_record(phantom.store.folder, root=ROOT, workers=1).problems == []
