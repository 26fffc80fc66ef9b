"""The chain: canonical, linked, and recoverable after a kill between its two files."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drift.config import canonical_json, sha256_hex
from drift.errors import IntegrityError
from drift.records.ledger import GENESIS, Ledger, complete_end, drop_torn_tail, lines_backwards

AT = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    found = Ledger(tmp_path)
    for number in range(3):
        found.append("release", {"number": number}, at=AT)
    return found


def test_each_line_names_the_hash_of_the_line_before(ledger: Ledger) -> None:
    raw = ledger.chain.read_bytes().splitlines()
    lines = list(ledger.forwards())
    assert [line.seq for line in lines] == [0, 1, 2]
    assert lines[0].body["prev"] == GENESIS
    for before, line in zip(raw, lines[1:], strict=False):
        assert line.body["prev"] == sha256_hex(before)


def test_the_head_repeats_the_last_line(ledger: Ledger) -> None:
    last = ledger.last()
    assert last is not None
    assert ledger.read_head() == {"seq": 2, "hash": last.hash}


def test_lines_are_rfc_8785_canonical(ledger: Ledger) -> None:
    for raw, line in zip(ledger.chain.read_bytes().splitlines(), ledger.forwards(), strict=True):
        assert canonical_json(line.body) == raw


def test_a_float_is_refused_and_nothing_is_written(ledger: Ledger) -> None:
    before = ledger.chain.read_bytes()
    with pytest.raises(TypeError, match=r"float 0\.5"):
        ledger.append("release", {"rate": 0.5}, at=AT)
    assert ledger.chain.read_bytes() == before


def test_a_line_with_a_duplicate_key_is_not_canonical(ledger: Ledger) -> None:
    raw = ledger.chain.read_bytes()
    ledger.chain.write_bytes(raw.replace(b'"number":2', b'"number":1,"number":2'))
    with pytest.raises(IntegrityError, match="canonical"):
        list(ledger.forwards())


def test_a_head_one_line_behind_is_brought_up_to_date(ledger: Ledger) -> None:
    behind = ledger.head.read_bytes()
    ledger.append("release", {"number": 3}, at=AT)
    current = ledger.head.read_bytes()
    ledger.head.write_bytes(behind)
    assert ledger.recover() == ["brought head.json up to line 3"]
    assert ledger.head.read_bytes() == current
    assert ledger.recover() == []


def test_a_first_line_without_a_head_is_an_unfinished_seal(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.append("release", {}, at=AT)
    ledger.head.unlink()
    assert ledger.recover() == ["brought head.json up to line 0"]


def test_a_torn_line_that_the_head_does_not_count_is_dropped(ledger: Ledger) -> None:
    whole = ledger.chain.read_bytes()
    ledger.chain.write_bytes(whole + b'{"at":"2026-')
    assert ledger.recover() == ["dropped a torn last line of chain.jsonl"]
    assert ledger.chain.read_bytes() == whole


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_a_cut_tail_is_an_integrity_error(ledger: Ledger, kept: int) -> None:
    lines = ledger.chain.read_bytes().splitlines(keepends=True)
    ledger.chain.write_bytes(b"".join(lines[:kept]))
    with pytest.raises(IntegrityError, match="disagree"):
        ledger.recover()


def test_a_head_two_lines_behind_is_no_unfinished_seal(ledger: Ledger) -> None:
    behind = ledger.head.read_bytes()
    ledger.append("release", {}, at=AT)
    ledger.append("release", {}, at=AT)
    ledger.head.write_bytes(behind)
    with pytest.raises(IntegrityError, match="disagree"):
        ledger.recover()


@given(
    st.lists(st.binary(max_size=40).filter(lambda b: b and b"\n" not in b)), st.binary(max_size=9)
)
def test_reading_backwards_gives_the_complete_lines_in_reverse(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], tail: bytes
) -> None:
    path = tmp_path_factory.mktemp("lines") / "log"
    torn = tail.replace(b"\n", b"")
    path.write_bytes(b"".join(line + b"\n" for line in lines) + torn)
    assert list(lines_backwards(path)) == lines[::-1]
    assert complete_end(path) == sum(len(line) + 1 for line in lines)
    assert drop_torn_tail(path) == bool(torn)
    assert path.read_bytes() == b"".join(line + b"\n" for line in lines)


def test_the_last_line_is_read_without_reading_the_chain(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.append("release", {"note": "x" * 200_000}, at=AT)
    ledger.append("release", {"note": "short"}, at=AT)
    raw = bytearray(ledger.chain.read_bytes())
    raw[10] ^= 1  # the first line no longer parses, and nobody looks
    ledger.chain.write_bytes(raw)
    last = ledger.last()
    assert last is not None and last.body["note"] == "short"


def test_a_counted_last_line_that_lost_its_newline_gets_it_back(ledger: Ledger) -> None:
    whole = ledger.chain.read_bytes()
    ledger.chain.write_bytes(whole[:-1])
    assert ledger.recover() == ["ended the last line of chain.jsonl, which head.json counts"]
    assert ledger.chain.read_bytes() == whole


@pytest.mark.parametrize("head", [b"{}", b"null", b'{"hash":"x","seq":1e300}', b"\xff"])
def test_a_head_of_another_form_is_an_integrity_error(ledger: Ledger, head: bytes) -> None:
    ledger.head.write_bytes(head)
    with pytest.raises(IntegrityError, match=r"head\.json"):
        ledger.recover()
