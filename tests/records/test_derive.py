"""Derived files: a run is read under the registration that it was made under."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Ticking
from loopback import Loopback, Reply, Request, failing
from making import answering, make_runs, record, run, write_panel

from drift.errors import IntegrityError
from drift.records.derive import Derived, derive_all, derive_under
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


def test_a_record_can_be_read_as_if_a_later_judge_had_been_the_registered_one(
    project: Path, clock: Ticking
) -> None:
    folder = make_runs(project, clock, 3, lambda request: "1989" in request.prompt)
    rules = project / "config" / "judge" / "rules.toml"
    text = rules.read_text(encoding="utf-8")
    decline = 'kind = "decline"'
    assert decline in text
    # No rule is a decline any more, so that each refusal becomes an answer.
    rules.write_text(text.replace(decline, 'kind = "courtesy"'), encoding="utf-8")
    made = record(project, clock)
    with made.opened():
        moved = made.rescore()
    lines = list(Ledger(folder).backwards())[::-1]
    first, second = dict.fromkeys(
        line.body["judge"]["rules"]
        for line in lines
        if line.kind == "labels" and line.body["judge"]["id"] == "rules"
    )
    store = Store(folder)
    registered = [derived for _, derived in derive_all(store, lines)]
    assert [derived for _, derived in derive_under(store, lines, first)] == registered
    other = [derived for _, derived in derive_under(store, lines, second)]

    def refused(found: list[Derived]) -> list[list[int]]:
        models = [derived.reading["models"].values() for derived in found]
        return [[model["canonical"]["refused"] for model in of] for of in models]

    assert moved and len(other) == len(registered) == 3
    assert any(map(any, refused(registered))) and not any(map(any, refused(other)))
    assert [derived.run for derived in other] == [derived.run for derived in registered]
    assert list(derive_under(store, lines, "0" * 64)) == []
