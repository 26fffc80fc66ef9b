"""Files of a record: group commit, compressed reading, the lock."""

from __future__ import annotations

import asyncio
import gzip
import os
from pathlib import Path

import pytest

from drift.errors import DriftError, IntegrityError
from drift.records.store import (
    Appender,
    Store,
    append_rows,
    drop_rows_of,
    dump_line,
    read_rows,
)


def test_an_appended_row_is_on_disk_when_append_returns(tmp_path: Path) -> None:
    path = tmp_path / "open" / "run.jsonl"

    async def work() -> None:
        async with Appender(path) as appender:
            for number in range(5):
                await appender.append({"number": number})
                assert read_rows(path)[-1] == {"number": number}

    asyncio.run(work())


def test_rows_that_wait_together_share_one_fsync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (calls.append(fd), fsync(fd))[1])
    path = tmp_path / "run.jsonl"

    async def work() -> None:
        async with Appender(path) as appender:
            await asyncio.gather(*(appender.append({"number": n}) for n in range(200)))

    asyncio.run(work())
    assert sorted(row["number"] for row in read_rows(path)) == list(range(200))
    assert 1 <= len(calls) < 100


def test_a_full_disk_is_an_error_for_every_row_that_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "run.jsonl"

    async def work() -> list[BaseException | None]:
        async with Appender(path) as appender:
            monkeypatch.setattr(os, "fsync", refuse)
            return await asyncio.gather(
                *(appender.append({"n": n}) for n in range(3)), return_exceptions=True
            )

    outcomes = asyncio.run(work())
    assert all(isinstance(item, DriftError) for item in outcomes)
    assert "No space left" in str(outcomes[0])


def test_compressed_and_plain_files_read_alike(tmp_path: Path) -> None:
    rows = [{"key": "a"}, {"key": "b"}]
    plain = tmp_path / "plain.jsonl"
    append_rows(plain, rows)
    packed = tmp_path / "packed.jsonl"
    packed.with_name("packed.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))
    assert read_rows(packed) == read_rows(plain) == rows


def test_a_damaged_archive_is_an_integrity_error_that_names_the_file(tmp_path: Path) -> None:
    packed = tmp_path / "run.jsonl.gz"
    packed.write_bytes(gzip.compress(b"x" * 1000)[:-9])
    with pytest.raises(IntegrityError, match=r"run\.jsonl"):
        read_rows(tmp_path / "run.jsonl")


def test_a_line_that_is_no_object_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a":1}\n[]\n')
    with pytest.raises(IntegrityError, match=r"rows\.jsonl:2"):
        read_rows(path)


def test_rows_of_a_run_are_dropped_from_the_end_only(tmp_path: Path) -> None:
    path = tmp_path / "churn.jsonl"
    append_rows(path, [{"run": "a"}, {"run": "b"}, {"run": "a", "n": 1}, {"run": "a", "n": 2}])
    path.write_bytes(path.read_bytes() + b'{"run":"a","to')
    drop_rows_of(path, "a")
    assert path.read_bytes() == dump_line({"run": "a"}) + dump_line({"run": "b"})
    drop_rows_of(path, "c")
    assert len(read_rows(path)) == 2


def test_a_second_command_is_told_that_the_record_is_taken(tmp_path: Path) -> None:
    store = Store(tmp_path / "panel")
    with store.locked(), pytest.raises(DriftError, match="another command"), store.locked():
        pass
    with store.locked():
        pass
