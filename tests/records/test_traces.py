"""Traces of people: what is kept of them, what is dropped, and what refuses the file."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT
from hypothesis import given
from hypothesis import strategies as st

from drift.errors import ConfigurationError
from drift.records.scenario import (
    AT,
    BY_LENGTH,
    BY_SHAPE,
    REFUSALS,
    SCENARIOS,
    SPREAD,
    Scenario,
    made_up,
    scenario_of,
)
from drift.records.traces import (
    ACTIONS,
    BASE,
    SHAPES_OR_NONE,
    UNSHOWN,
    Traces,
    after_shapes,
    kept_bytes,
    personal,
    read_traces,
)

TRACE: dict[str, Any] = {
    "shape": "sermon",
    "next_action": "rephrase",
    "model": "gpt-4o-2024-08-06",
    "when": "2026-03-02T23:30:00-05:00",
    "length": 240,
    "consent": True,
}
#: A text that stands in hostile rows and must be found nowhere afterwards.
SECRET = "Xylophon4711"

Read = Callable[..., Traces]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Read rows, given as objects or as raw lines."""

    def call(*rows: Any) -> Traces:
        path = tmp_path / "traces.jsonl"
        lines = (row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows)
        path.write_bytes(b"\n".join(lines))
        return read_traces(path)

    return call


def refused(read: Read, *rows: Any) -> str:
    """Return what is said of a file that is not taken; no value of it may be in that."""
    with pytest.raises(ConfigurationError) as error:
        read(*rows)
    assert error.value.exit_code == 2
    assert SECRET not in str(error.value) and error.value.__cause__ is None
    return str(error.value)


def test_of_a_trace_the_day_in_utc_and_closed_words_are_kept(read: Read) -> None:
    found = read(TRACE)
    (row,) = found.rows
    assert row.document == TRACE | {"when": "2026-03-03"}
    assert found.dropped == {} and found.synthetic == 0


def test_what_is_kept_reads_again_as_itself(read: Read) -> None:
    rows = made_up()[:50]
    assert read(*kept_bytes(rows).splitlines()).rows == rows


def test_the_order_of_the_file_is_not_kept(read: Read) -> None:
    rows = [TRACE | {"when": day, "length": n} for n, day in enumerate(["2026-03-04"] * 4, 7)]
    assert read(*rows) == read(*rows[::-1])
    without = {name: value for name, value in TRACE.items() if name != "length"}
    assert [row.length for row in read(TRACE, without).rows] == [None, 240]


def test_free_text_is_dropped_and_counted_by_name_alone(read: Read) -> None:
    found = read(
        TRACE | {"prompt": SECRET, "rating": 4},
        TRACE | {"prompt": f"{SECRET} again", "nested": {"deep": [{"text": SECRET}]}},
        TRACE | {"备注": SECRET, "two words": 1},
    )
    assert found.dropped == {UNSHOWN: 3, "prompt": 2, "rating": 1}
    assert SECRET not in repr(found) and SECRET.encode() not in kept_bytes(found.rows)


@pytest.mark.parametrize(
    "name",
    [
        "user", "User_ID", "userId", "ID", "trace-id", "email", "e-mail", "E Mail", "ip",
        "IPAddress", "client_ip", "full name", "Surname", "session", "SESSION_KEY", "cookie",
        "deviceModel", "account", "phone", "post_code_location", "uuid", "dob", "us\u200ber",
        "ｕｓｅｒ", "u.s.e.r", "usеr", "sеssiоn", "用户名", "手机号", "nhs_number", "lat",
        "accessToken", "tel", "homeTel", "tel2", "fax", "faxno", "workphone", "employee",
        "employee_no", "staff", "staffcode", "ni_number", "ninumber", "NI", "cpf", "imsi", "street",
        "homestreet",
        "gender", "sex", "birthdate", "place_of_birth", "age", "城市街道", "性别",
    ],
)  # fmt: skip
def test_a_field_that_tells_of_a_person_refuses_the_file_however_it_is_written(
    read: Read, name: str
) -> None:
    assert personal(name)
    for row in (
        TRACE | {name: SECRET},
        TRACE | {name: None},
        TRACE | {"meta": {"inner": [1, {name: SECRET}]}},
    ):
        said = refused(read, TRACE, row)
        assert "may tell who it was" in said and "traces.jsonl:2" in said


@pytest.mark.parametrize(
    "name",
    [
        "prompt",
        "response",
        "reply",
        "note",
        "rating",
        "latency_ms",
        "region",
        "title",
        "language",
        "page",
        "message",
        "capacity",
        "internal",
        "anise",
    ],
)
def test_a_field_that_tells_of_no_person_is_not_taken_for_one(name: str) -> None:
    assert not personal(name)


def test_a_value_in_place_of_a_name_is_not_shown_either(read: Read) -> None:
    said = refused(read, TRACE | {f"{SECRET}@example.org": 1})
    assert "field 'number 7' may tell who it was" in said
    assert "field 'User_ID' may tell who it was" in refused(read, TRACE | {"User_ID": SECRET})
    said = refused(read, TRACE | {"user_jane_roe": 1})
    assert "field 'number 7' may tell who it was" in said and "jane" not in said
    assert read(TRACE | {"jane_roe": 1, "prompt": 1}).dropped == {UNSHOWN: 1, "prompt": 1}


@pytest.mark.parametrize(
    "value",
    [
        f"{SECRET}@example.org", "a@b", "192.168.17.4", "fe80:0:0:0:1", "555-010-4711",
        "447911123456", "m-447911-123456", "x550e8400-e29b-41d4-a716-446655440000",
        "https://example.org/a", "example.org/a", "www.example", "user-17", "deadbeef00112233",
        "gpt 4", f"gpt-4\n{SECRET}", "ɡpt-4", "", "a1" + "a" * 59, "jane-roe", "jane",
        "gpt+4", None, 4, ["gpt-4"], {"model": SECRET},
    ],
)  # fmt: skip
def test_a_model_is_a_plain_name_and_nothing_that_leads_to_a_person(read: Read, value: Any) -> None:
    said = refused(read, TRACE | {"model": value})
    assert "field 'model' is no plain name of a model" in said
    assert not isinstance(value, str) or not value or value not in said


@pytest.mark.parametrize(
    "name",
    ["gpt-4o-2024-08-06", "claude-3-5-sonnet-20241022", "Qwen/Qwen2.5-Coder-0.5B", "gpt-4-0125",
     "SmolLM2-135M-Instruct.Q4_1", "mixtral-8x22b-instruct-v0.1", "o3"],
)  # fmt: skip
def test_names_of_models_with_dates_and_sizes_are_taken(read: Read, name: str) -> None:
    assert read(TRACE | {"model": name}).rows[0].model == name.lower()


def test_a_model_without_a_digit_is_named_with_its_maker_or_made_up(read: Read) -> None:
    refused(read, TRACE | {"model": "mistral-large"})
    assert read(TRACE | {"model": "mistralai/mistral-large"}).rows[0].model.endswith("large")
    assert read(TRACE | {"model": "synthetic-a"}).rows[0].model == "synthetic-a"


def test_a_day_before_such_models_or_yet_to_come_is_refused(read: Read, tmp_path: Path) -> None:
    assert "too early" in refused(read, TRACE | {"when": "2019-12-31"})
    assert read(TRACE | {"when": "2020-01-01"}).rows[0].when == "2020-01-01"
    path, today = tmp_path / "days.jsonl", date(2026, 3, 2)
    path.write_text(json.dumps(TRACE | {"when": "2026-03-03"}))
    assert read_traces(path, today=today).rows
    path.write_text(json.dumps(TRACE | {"when": "2026-03-04"}))
    with pytest.raises(ConfigurationError, match="not yet"):
        read_traces(path, today=today)
    path.write_text(json.dumps(TRACE | {"when": "2026-03-04", "synthetic": True}))
    assert read_traces(path, today=today).synthetic == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("shape", SECRET), ("shape", None), ("shape", ["sermon"]), ("shape", "Sermon"),
        ("next_action", SECRET), ("next_action", 1), ("next_action", {"retry": 1}),
        ("when", SECRET), ("when", "2026-02-30"), ("when", "2026-03"), ("when", 1772409600),
        ("when", "2026-03-02T10:00:00 " + SECRET), ("when", "0001-01-01T00:00:00+23:00"),
        ("length", 0), ("length", "240"), ("length", 240.0), ("length", True),
        ("length", 447911123456), ("synthetic", "yes"), ("synthetic", 1),
    ],
)  # fmt: skip
def test_a_field_of_another_form_refuses_the_file_and_is_named(
    read: Read, field: str, value: Any
) -> None:
    assert f"field '{field}' is" in refused(read, TRACE | {field: value})


@pytest.mark.parametrize("value", [False, None, "true", 1, [True], "absent"])
def test_without_consent_nothing_is_taken(read: Read, value: Any) -> None:
    row = {name: it for name, it in TRACE.items() if name != "consent"}
    row |= {} if value == "absent" else {"consent": value}
    said = refused(read, TRACE, row)
    assert "field 'consent' is not true" in said and ":2" in said


def raw(**fields: str) -> bytes:
    """Return a line with fields written as given, behind those of a good trace."""
    good = json.dumps(TRACE)[:-1]
    return (good + "".join(f', "{name}": {value}' for name, value in fields.items()) + "}").encode()


@pytest.mark.parametrize(
    "line",
    [
        raw(rating="NaN"), raw(rating="-Infinity"), raw(rating="1" * 5000),
        b"[" * 30_000, b'{"a":' * 9_000, b"[]", b'"text"', b"null", b"{", b"Xylophon4711",
        json.dumps(TRACE).encode("utf-16"), b"\xff\xfe" + json.dumps(TRACE).encode(),
        json.dumps(TRACE).encode() + b'{"more": 1}',
        raw(note='"\xff"').replace(b"\xc3\xbf", b"\xff"),
    ],
    ids=range(14),
)  # fmt: skip
def test_a_line_that_is_no_object_refuses_the_file_without_being_quoted(
    read: Read, line: bytes
) -> None:
    said = refused(read, TRACE, line)
    assert "the line is no JSON object in UTF-8" in said and ":2" in said


def test_a_field_that_comes_twice_refuses_the_file_at_any_depth(read: Read) -> None:
    assert "field 'model' comes twice" in refused(read, raw(model=f'"{SECRET}"'))
    assert "field 'text' comes twice" in refused(read, raw(x='{"text": 1, "text": 2}'))
    # Written otherwise, it is the same field.
    assert "'consent' comes twice" in refused(read, raw(**{"c\\u006fnsent": "false"}))
    assert "'number 1' comes twice" in refused(read, raw(x=f'{{"{SECRET}@x": 1, "{SECRET}@x": 2}}'))


def test_a_line_is_read_up_to_a_stated_size(read: Read) -> None:
    assert read(TRACE | {"text": "x" * 65_000}).dropped == {"text": 1}
    said = refused(read, TRACE, TRACE | {"text": SECRET * 10_000})
    assert "too long for a trace" in said and "65,536 bytes" in said and ":2" in said


def test_a_mark_of_the_byte_order_may_stand_at_the_very_beginning_alone(read: Read) -> None:
    line = json.dumps(TRACE).encode()
    assert read(b"\xef\xbb\xbf" + line, b"", line + b"\r").rows == read(TRACE, TRACE).rows
    refused(read, line, b"\xef\xbb\xbf" + line)


def test_a_file_without_a_trace_or_without_being_there_is_refused(
    read: Read, tmp_path: Path
) -> None:
    assert "holds no trace" in refused(read, b"", b"\n")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_traces(tmp_path / "none.jsonl")


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=4))
def test_whatever_else_a_row_holds_only_its_own_fields_are_kept(
    tmp_path_factory: pytest.TempPathFactory, extra: dict[str, str]
) -> None:
    path = tmp_path_factory.mktemp("rows") / "traces.jsonl"
    path.write_text(json.dumps(extra | TRACE))
    try:
        found = read_traces(path)
    except ConfigurationError:
        assert any(map(personal, extra))
        return
    assert found.rows[0].document == TRACE | {"when": "2026-03-03"}
    assert sum(found.dropped.values()) == len(extra.keys() - TRACE.keys() - {"synthetic"})


# After the refusal.


def test_asked_again_is_the_same_in_the_same_or_in_other_words(read: Read) -> None:
    rows = [TRACE | {"next_action": action} for action in ACTIONS]
    found = after_shapes(read(*rows, TRACE | {"shape": "none"}).rows)
    assert (found["sermon"].refusals, found["sermon"].retried) == (5, 2)
    assert (found["none"].refusals, found["none"].retried) == (1, 1)
    assert tuple(found) == SHAPES_OR_NONE


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda it: it.name)
def test_the_synthetic_traces_are_those_of_their_scenario_and_all_marked(
    scenario: Scenario,
) -> None:
    path = ROOT / "data" / "synthetic" / f"{scenario.file}.jsonl"
    assert path.read_bytes() == kept_bytes(made_up(scenario))
    lines = path.read_text().splitlines()
    assert len(lines) == sum(many for many, _ in REFUSALS.values())
    assert all(json.loads(line)["synthetic"] is True for line in lines)


def test_both_scenarios_have_the_same_shapes_and_are_known_by_their_traces() -> None:
    rows = {it.name: made_up(it) for it in SCENARIOS}
    for scenario in SCENARIOS:
        found = scenario_of(rows[scenario.name])
        assert found is scenario and scenario.shares.keys() == REFUSALS.keys()
        assert not scenario.slope or len({*scenario.shares.values()}) == 1
    assert scenario_of(rows["by-shape"][1:]) is None
    assert scenario_of(tuple(row._replace(synthetic=False) for row in rows["by-shape"])) is None


def test_what_is_found_where_retries_follow_the_shape_holds_its_truth() -> None:
    found = after_shapes(made_up(BY_SHAPE))
    for shape, (many, _) in REFUSALS.items():
        it, share = found[shape], BY_SHAPE.share(shape)
        assert it.refusals == it.with_length == many
        assert it.rate.low is not None and it.rate.high is not None
        assert it.rate.low <= share <= it.rate.high
        if shape != BASE and it.adjusted.low is not None and it.adjusted.high is not None:
            assert it.adjusted.low <= BY_SHAPE.adjusted(shape) <= it.adjusted.high
            assert BY_SHAPE.adjusted(shape) == BY_SHAPE.difference(shape)
    sermon, recital = found["sermon"].adjusted, found["policy-recital"].adjusted
    assert sermon.low is not None and sermon.low > 0.2
    assert recital.low is not None and recital.high is not None
    assert recital.low < 0 < recital.high
    assert str(found["scope-narrow"].adjusted.reason).startswith("16 refusals against 260")


@pytest.mark.parametrize("shape", ["policy-recital", "redirect", "sermon"])
def test_where_retries_follow_the_length_the_two_differences_part(shape: str) -> None:
    found = after_shapes(made_up(BY_LENGTH))[shape]
    before, after = found.unadjusted, found.adjusted
    assert before.low is not None and before.high is not None
    assert after.low is not None and after.high is not None
    assert 0 < before.low <= BY_LENGTH.difference(shape) <= before.high
    assert BY_LENGTH.adjusted(shape) == 0 and after.low < 0 < after.high


def test_the_stated_share_of_the_second_scenario_is_the_mean_over_its_lengths() -> None:
    rng = np.random.default_rng(20261121)
    for shape, (_, median) in REFUSALS.items():
        odds = (1 / 3) * rng.lognormal(np.log(median), SPREAD, 200_000) / AT
        assert BY_LENGTH.share(shape) == pytest.approx((odds / (1 + odds)).mean(), abs=0.002)
