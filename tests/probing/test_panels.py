"""The shipped panels, and what they cost."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from asking import subject

from drift.bank import load_bank
from drift.config import ModelSpec, Panel, load_panel, load_toml
from drift.probing.cost import estimate

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", ["embedded", "frontier", "lab", "local.example", "phantom"])
def test_a_shipped_panel_is_valid(name: str) -> None:
    panel = load_panel(name, root=ROOT)
    assert panel.models


def test_every_field_of_a_panel_is_explained_in_the_file_that_people_copy() -> None:
    text = (ROOT / "config" / "panels" / "frontier.toml").read_text(encoding="utf-8")
    fields = {*Panel.model_fields, *ModelSpec.model_fields}
    assert [name for name in sorted(fields) if name not in text] == []


def test_the_embedded_models_are_asked_one_question_a_server_at_temperature_0() -> None:
    panel = load_panel("embedded", root=ROOT)
    assert [model.role for model in panel.models] == ["reference", "subject"]
    assert panel.cadence_hours is None
    for model in panel.models:
        assert model.server.slots == model.concurrency == 2
        assert (model.parameters, model.max_tokens) == ({"temperature": 0}, 48)
        assert model.weights_sha256


def test_each_source_of_weights_names_one_member_for_each_wheel() -> None:
    for entry in load_toml(ROOT / "config" / "weights.toml", kind="weights list").values():
        wheels = [source for source in entry["sources"] if source["kind"] == "wheel"]
        assert wheels
        for source in wheels:
            assert len(source["requirements"]) == len(source["members"])
            assert all("==" in requirement for requirement in source["requirements"])


def test_the_estimate_is_an_upper_one_and_absent_without_prices() -> None:
    model = subject(
        max_tokens=100,
        price_prompt=Decimal("0.5"),
        price_completion=Decimal(2),
        system_prompt="abc",
    )
    assert estimate(model, ["x" * 27, "字" * 9]) == {
        "prompt_tokens": 52,
        "completion_tokens": 200,
        "cost_usd": "0.000426",
    }
    assert estimate(subject(), ["x"])["cost_usd"] is None


def test_four_models_every_six_hours_are_asked_1068_questions_a_day_within_the_budget() -> None:
    panel, bank = load_panel("frontier", root=ROOT), load_bank(ROOT / "config/probe_bank.json")
    assert panel.cadence_hours == 6
    day = [arm.prompt for arm in bank.arms("full")]
    day += [arm.prompt for arm in bank.arms("canonical")] * 3
    assert len(day) * len(panel.models) == 1068
    total = sum(Decimal(estimate(model, day)["cost_usd"]) for model in panel.models)
    assert panel.daily_budget_usd is not None
    assert Decimal("0.50") < total < Decimal("0.56") < panel.daily_budget_usd
