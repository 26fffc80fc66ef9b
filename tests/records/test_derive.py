"""Derived files: a run is read under the registration that it was made under."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Ticking
from loopback import Loopback, Reply, Request, failing
from making import answering, make_runs, record, run, write_panel

from drift.errors import IntegrityError
from drift.records.ledger import Ledger
from drift.records.store import Store, read_rows
from drift.records.verify import verify_record


def test_a_run_left_open_before_a_new_registration_is_derived_under_the_old_one(
    project: Path, clock: Ticking
) -> None:
    paid = True

    def script(request: Request) -> Reply:
        return answering(request) if paid else failing(429, "insufficient_quota")

    with Loopback(script) as server:
        write_panel(project, server.base_url)
        run(project, clock)
        clock.advance(hours=6)
        paid = False
        assert not run(project, clock).sealed
        panel = project / "config" / "panels" / "test.toml"
        panel.write_text(panel.read_text().replace("max_tokens = 48", "max_tokens = 50"))
        made = record(project, clock)
        with made.opened():
            made.register()
        paid = True
        clock.advance(hours=6)
        assert run(project, clock).sealed
    churn = read_rows(Store(project / "data" / "test").churn)
    assert [row["series"] for row in churn if row["model"] == "subject"] == [1, 1, 2]
    assert verify_record(project / "data" / "test", root=project).problems == []


@pytest.mark.parametrize("content", [b"null", b"{}", b"\xff", b'{"models":{"m":{"x":1}},"seq":0}'])
def test_a_damaged_series_file_stops_with_what_to_do(
    project: Path, clock: Ticking, content: bytes
) -> None:
    folder = make_runs(project, clock, 1)
    Store(folder).series.write_bytes(content)
    made = record(project, clock)
    with pytest.raises(IntegrityError, match="delete it together"), made.opened():
        pass


def test_derived_files_that_were_deleted_come_back_the_same(project: Path, clock: Ticking) -> None:
    folder = make_runs(project, clock, 3, lambda request: "1989" in request.prompt)
    store = Store(folder)
    derived = [store.series, store.churn, store.findings, *folder.glob("readings/*")]
    before = {path: path.read_bytes() for path in (*derived, folder / "chain.jsonl")}
    for path in derived:
        path.unlink()
    with record(project, clock).opened():
        pass
    assert {path: path.read_bytes() for path in before} == before, "no baseline is sealed twice"


def test_baselines_that_a_kill_left_out_are_sealed_by_the_next_command(
    project: Path, clock: Ticking
) -> None:
    folder = make_runs(project, clock, 1)
    ledger, store = Ledger(folder), Store(folder)
    lines = list(ledger.forwards())
    assert [line.body.get("event") for line in lines[-2:]] == ["opened", "opened"]
    ledger.chain.write_bytes(b"".join(ledger.chain.read_bytes().splitlines(True)[:-1]))
    ledger._write_head(lines[-2])
    store.series.unlink()
    assert verify_record(folder, root=project).problems != []
    with record(project, clock).opened():
        pass
    found = verify_record(folder, root=project)
    assert (found.problems, found.notes, found.lines) == ([], [], len(lines))
