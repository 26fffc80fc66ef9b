"""Panels, instruments and the clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import pytest

from drift.config import (
    ModelSpec,
    Panel,
    canonical_json,
    load_panel,
    parse_timestamp,
    timestamp,
)
from drift.errors import ConfigurationError, DriftError, worst_exit_code

PLAIN = {"key": "m", "kind": "openai", "model": "lab/m", "base_url": "http://127.0.0.1:9/v1"}


def spec(**fields: object) -> ModelSpec:
    return ModelSpec.model_validate(PLAIN | fields)


@pytest.mark.parametrize(
    "change",
    [
        {"model": "lab/m2"},
        {"base_url": "http://127.0.0.1:8/v1"},
        {"parameters": {"temperature": Decimal("0.3")}},
        {"system_prompt": "Be brief."},
        {"max_tokens": 64},
        {"seed_policy": "fixed", "seed": 1},
        {"seed_policy": "per-run", "seed": 1},
        {"provider": {"order": ["x"]}},
    ],
)
def test_what_we_choose_about_asking_moves_the_instrument(change: dict[str, object]) -> None:
    assert spec(**change).instrument_hash() != spec().instrument_hash()


@pytest.mark.parametrize(
    "change",
    [
        {"concurrency": 2},
        {"timeout_s": 5},
        {"attempts": 1},
        {"price_prompt": Decimal(1)},
        {"lab": "Someone"},
        {"server": {"sampling": {"temp": Decimal("0.7")}, "system_prompt": "Be careful."}},
    ],
)
def test_how_fast_we_ask_and_what_a_server_holds_leave_it(change: dict[str, object]) -> None:
    assert spec(**change).instrument_hash() == spec().instrument_hash()


def test_a_float_is_never_hashed() -> None:
    with pytest.raises(TypeError, match="float"):
        canonical_json({"temperature": 0.3})
    assert canonical_json({"b": Decimal("0.30"), "a": [1, (2,)]}) == b'{"a":[1,[2]],"b":"0.30"}'


def test_times_are_utc_with_milliseconds_and_read_back() -> None:
    moment = datetime(2026, 3, 1, 1, 5, 0, 123456, tzinfo=timezone(timedelta(hours=1)))
    assert timestamp(moment) == "2026-03-01T00:05:00.123Z"
    assert parse_timestamp("2026-03-01T00:05:00.123Z") == datetime(
        2026, 3, 1, 0, 5, 0, 123000, tzinfo=UTC
    )
    with pytest.raises(ValueError, match="without a zone"):
        timestamp(moment.replace(tzinfo=None))


@pytest.mark.parametrize("name", ["embedded", "frontier"])
def test_the_shipped_panels_are_valid(project: Path, name: str) -> None:
    panel = load_panel(name, root=project)
    assert panel.name == name
    if name == "embedded":
        assert [model.role for model in panel.models] == ["reference", "subject"]
        assert all(model.weights_sha256 for model in panel.models)
    else:
        assert len({model.lab for model in panel.models}) == 4
        assert {model.api_key_env for model in panel.models} == {"OPENROUTER_API_KEY"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ('kind = "openai"\nbase_url = "ftp://x"', "base_url"),
        ('kind = "embedded"', "weights"),
        ('kind = "embedded"\nweights = "nosuch.gguf"', "nosuch.gguf"),
        ('kind = "openai"\nbase_url = "http://x/v1"\nseed = 3', "seed_policy"),
        ('kind = "openai"\nbase_url = "http://x/v1"\nkey = "../up"', "key"),
        ('kind = "openai"\nbase_url = "https://me:secret@x/v1"', "api_key_env"),
        ('kind = "openai"\nbase_url = "https://x/v1?token=secret"', "api_key_env"),
        ('kind = "openai"\nbase_url = "http://x/v1"\nmax_tokens = 10000000000', "max_tokens"),
        ('kind = "openai"\nbase_url = "http://x/v1"\nparameters = {top_k = 9007199254740993}', "m"),
    ],
)
def test_a_wrong_model_is_refused_with_the_field(project: Path, change: str, said: str) -> None:
    key = "" if "key" in change else 'key = "m"\n'
    path = project / "config" / "panels" / "wrong.toml"
    path.write_text(f'name = "wrong"\ntitle = "t"\n[[models]]\n{key}model = "m"\n{change}\n')
    with pytest.raises(ConfigurationError, match=said):
        load_panel("wrong", root=project)


@pytest.mark.parametrize("models", ["3", "[]", "[1]"])
def test_models_that_are_no_tables_are_refused_with_their_place(project: Path, models: str) -> None:
    path = project / "config" / "panels" / "wrong.toml"
    path.write_text(f'name = "wrong"\ntitle = "t"\nmodels = {models}\n')
    with pytest.raises(ConfigurationError, match="models"):
        load_panel("wrong", root=project)


def test_an_error_says_what_where_got_expected_and_next() -> None:
    error = DriftError("it broke", where="a:1", got="x", expected="y", next_step="mend it")
    assert str(error).splitlines() == [
        "it broke", "  where: a:1", "  got: x", "  expected: y", "  next: mend it",
    ]  # fmt: skip


def test_integrity_and_configuration_outrank_a_pause_and_a_gap() -> None:
    assert worst_exit_code([5, 3, 4, 2]) == 4
    assert worst_exit_code([5, 2, 3]) == 2
    assert worst_exit_code([5, 3]) == 3
    assert worst_exit_code([]) == 0


@pytest.mark.parametrize("models", ['"x"', "5", "[1]", "[]"])
def test_models_of_another_form_are_refused(project: Path, models: str) -> None:
    path = project / "config" / "panels" / "wrong.toml"
    path.write_text(f'name = "wrong"\ntitle = "t"\nmodels = {models}\n')
    with pytest.raises(ConfigurationError, match="models"):
        load_panel("wrong", root=project)


def test_a_panel_without_a_model_is_refused_in_our_words(project: Path) -> None:
    path = project / "config" / "panels" / "empty.toml"
    path.write_text('name = "empty"\ntitle = "t"\nmodels = []\n')
    with pytest.raises(ConfigurationError, match="models: at least 1 needed, 0 given"):
        load_panel("empty", root=project)


def test_a_folder_is_no_panel_file(project: Path) -> None:
    (project / "config" / "panels" / "folder.toml").mkdir()
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_panel("folder", root=project)


def test_a_panel_is_named_like_its_file(project: Path) -> None:
    path = project / "config" / "panels" / "mine.toml"
    path.write_text((project / "config" / "panels" / "embedded.toml").read_text())
    with pytest.raises(ConfigurationError, match="named like its file"):
        load_panel("mine", root=project)


def test_a_weights_entry_of_another_form_is_refused(project: Path) -> None:
    path = project / "config" / "weights.toml"
    path.write_text('"SmolLM2-135M-Instruct.Q4_1.gguf" = 1\n')
    with pytest.raises(ConfigurationError, match="lists no weights"):
        load_panel("embedded", root=project)


@pytest.mark.parametrize(
    "change",
    [{"cadence_hours": None}, {"models": [PLAIN | {"kind": "phantom"}, PLAIN | {"key": "n"}]}],
)
def test_a_phantom_panel_has_a_cadence_and_no_model_of_another_kind(
    change: dict[str, object],
) -> None:
    plain = {"name": "p", "title": "P", "cadence_hours": 6, "models": [PLAIN | {"kind": "phantom"}]}
    assert Panel.model_validate(plain).phantom
    with pytest.raises(ValueError, match="virtual"):
        Panel.model_validate(plain | change)
