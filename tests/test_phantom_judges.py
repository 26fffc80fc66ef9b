"""Scripted judges of a phantom: the share of answers that narrow the question is found again."""

from __future__ import annotations

import re
from collections import Counter
from math import sqrt
from pathlib import Path

import pytest
from conftest import Ticking

from drift.config import load_panel
from drift.entail import entail
from drift.errors import ConfigurationError
from drift.probing.phantom import NARROW
from drift.records.entailment import Check, gates, judgings, read_judging, tallies
from drift.records.reproduce import reproduce_record
from drift.records.verify import verify_record
from drift.refresh import Outcome, Record

#: Models of the phantom, by the share of their answers that narrow the question.
SHARES = {"steady": 0.2, "filtered": 0.3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("phantom") / "phantom"


@pytest.fixture
def phantom(folder: Path, clock: Ticking) -> Record:
    """A phantom's record of one run; the judgings of earlier tests stand in it."""
    root = Path(__file__).resolve().parents[1]
    made = Record(load_panel("phantom", root=root), folder=folder, root=root)
    if not folder.exists():
        with made.opened():
            assert made.refresh(models=[*SHARES]).sealed
    return made


def judged(record: Record, judge: str) -> Outcome:
    with record.opened():
        return entail(record, judge)


def true_share(record: Record, model: str, language: str) -> tuple[float, int]:
    """Return the scripted share of No among what a model answered, and how many those are."""
    assert record.truth is not None
    said = record.truth.said(model, 1)
    answers = [
        it.shape == NARROW
        for arm, it in said.items()
        if it.outcome == "answered" and ("#zh" in arm) == (language == "zh")
    ]
    return sum(answers) / len(answers), len(answers)


def test_the_narrowed_share_is_found_within_the_error_of_the_judge(phantom: Record) -> None:
    outcome = judged(phantom, "careful")
    assert (outcome.sealed, outcome.exit_code) == (True, 0), outcome.notes
    judging = read_judging(phantom.store, judgings(phantom.ledger.forwards())[-1])
    gate = gates(judging, Check.load(phantom.root))
    assert gate["en"].passed and gate["zh"].passed
    for (model, language), tally in tallies(judging.rows).items():
        share, n = true_share(phantom, model, language)
        assert tally.yes + tally.no == n and not tally.missing
        # It errs in 4 % either way: expected is s (1 - e) + (1 - s) e.
        expected, spread = share * 0.96 + (1 - share) * 0.04, sqrt(0.04 * 0.96 / n)
        found = tally.rate(gate[language]).estimate
        assert found is not None and abs(found - expected) <= 4 * spread
        if language == "en":
            assert abs(share - SHARES[model]) < 0.12
    assert {row["named"] for row in judging.rows if row["label"] == "yes"} == {None}


def test_the_gate_opens_and_closes_as_scripted(phantom: Record) -> None:
    passed = {}
    for name in ("careful", "careless", "talkative", "obliging"):
        judged(phantom, name)
        body = [it for it in judgings(phantom.ledger.forwards()) if it["asked"]["model"] == name]
        assert len(body) == 1
        judging = read_judging(phantom.store, body[0])
        gate = gates(judging, Check.load(phantom.root))
        passed[name] = {it.passed for it in gate.values()}
        if name == "talkative":
            assert all("missing" in str(it.why) for it in gate.values())
        if name == "obliging":
            assert Counter(row["label"] for row in judging.rows).keys() == {"yes"}
            assert [it.kappa for it in gate.values()] == [0, 0]
        for tally, language in ((t, key[1]) for key, t in tallies(judging.rows).items()):
            assert (tally.rate(gate[language]).estimate is None) == (name != "careful")
    assert passed == {
        "careful": {True}, "careless": {False}, "talkative": {False}, "obliging": {False},
    }  # fmt: skip


def test_a_judged_phantom_verifies_and_reproduces_and_its_runs_go_on(
    phantom: Record, tmp_path: Path
) -> None:
    judged(phantom, "careful")
    found = verify_record(phantom.store.folder, root=phantom.root, workers=1)
    assert found.problems == [] and found.assurance == "complete"
    made = reproduce_record(phantom.store.folder, root=phantom.root, scratch=tmp_path)
    assert not made.difference
    with phantom.opened():
        assert phantom.refresh(models=["steady"]).sealed
    assert not verify_record(phantom.store.folder, root=phantom.root, workers=1).problems


def test_a_judge_says_the_same_when_it_is_asked_again(phantom: Record) -> None:
    judged(phantom, "careful")
    chain = phantom.ledger.chain.read_bytes()
    with phantom.opened():
        first = judgings(phantom.ledger.forwards())[0]["run"]
        outcome = entail(phantom, "careful", runs=[first])
    assert outcome.exit_code == 0 and re.search("nothing is added", "\n".join(outcome.notes))
    assert phantom.ledger.chain.read_bytes() == chain


def test_a_judge_that_is_not_scripted_is_refused(phantom: Record) -> None:
    with pytest.raises(ConfigurationError, match="no such scripted judge"):
        judged(phantom, "steady")
