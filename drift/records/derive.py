"""Derived files: churn, findings and readings, rebuilt or brought up to date.

Sealed lines are folded in their order. ``series.json`` keeps where the fold stands
and is written last, so a kill at any point leaves at most rows of one run to drop
and derive again. Nothing derived is an input of anything sealed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from drift.config import Clock
from drift.errors import IntegrityError
from drift.records.alarm import panel_alarm
from drift.records.ledger import Ledger, Line, write_atomically
from drift.records.reading import build_reading
from drift.records.registration import Registration, in_force, registered_bank
from drift.records.run import Run, load_run
from drift.records.series import SeriesState, step
from drift.records.store import Store, append_rows, drop_rows_of, dump_line
from drift.records.watch import Epoch


@dataclass(frozen=True)
class Derived:
    """What one labelled run adds to the derived files, and the ledger lines it calls for."""

    run: str
    churn: list[dict[str, Any]]
    findings: list[dict[str, Any]]
    reading: dict[str, Any]
    baselines: list[dict[str, Any]]


@dataclass
class Fold:
    """The fold over a chain: feed it lines in their order.

    ``baselines`` are the bodies of the ledger lines that the runs call for, each with the
    number of the labels line that it follows; ``found`` holds the states of the models that
    each registration found, by its line's hash.
    """

    store: Store
    seq: int = -1
    run: str | None = None
    series: dict[str, SeriesState] = field(default_factory=dict)
    epoch: Epoch = field(default_factory=Epoch)
    registrations: dict[str, Registration] = field(default_factory=dict)
    baselines: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    found: dict[str, dict[str, SeriesState]] = field(default_factory=dict)
    _waiting: dict[str, Any] | None = None

    def feed(self, line: Line) -> Derived | None:
        """Take one line; return what it adds if it labels the run before it.

        Labels by another judge than the registered one (a rescoring, a second
        judge, people) belong to no series and are passed over.
        """
        body = line.body
        if line.kind == "registration":
            self.registrations[line.hash] = Registration(body, line.hash)
            self.found[line.hash] = dict(self.series)
        elif line.kind == "run":
            self._waiting = body
        elif line.kind == "labels" and self._waiting and body["run"] == self._waiting["run"]:
            registration = self.registrations[self._waiting["registration"]]
            registered = registration.body["judge"]
            if all(body["judge"][name] == registered[name] for name in ("id", "rules")):
                sealed, self._waiting = self._waiting, None
                return self._derive(load_run(self.store, sealed, body), line, registration)
        return None

    def _derive(self, run: Run, line: Line, registration: Registration) -> Derived:
        self.epoch = self.epoch.under(registration)
        steps = {}
        for model in sorted(run.models):
            before = self.series.get(model, SeriesState())
            steps[model] = done = step(before, run, model, registration, self.epoch)
            self.series[model] = done.state
            if done.watched:
                self.epoch = self.epoch.joined([model])
        self.run, self.seq = run.id, line.seq
        baselines = [body for done in steps.values() for body in done.baselines]
        self.baselines += [(line.seq, body) for body in baselines]
        bank = registered_bank(self.store, registration.body)
        head = {"seq": line.seq, "hash": line.hash}
        return Derived(
            run=run.id,
            churn=[done.churn for done in steps.values()],
            findings=[item for done in steps.values() for item in done.findings],
            reading=build_reading(
                run,
                steps,
                registration=registration,
                bank=bank,
                head=head,
                alarm=panel_alarm(self.series, self.epoch, registration),
            ),
            baselines=baselines,
        )


def series_bytes(fold: Fold) -> bytes:
    """Return the bytes of ``series.json``: where the fold stands."""
    models = dict(sorted(fold.series.items()))
    return reading_bytes({"seq": fold.seq, "run": fold.run, "epoch": fold.epoch, "models": models})


def reading_bytes(reading: dict[str, Any]) -> bytes:
    """Return the bytes of a reading's file."""
    return orjson.dumps(reading, option=orjson.OPT_INDENT_2) + b"\n"


def derive(store: Store, ledger: Ledger, *, clock: Clock) -> list[dict[str, Any]]:
    """Bring the derived files up to the chain's end, and seal the baselines that are due.

    Returns the findings that this added.

    The cost depends on the lines since the last call, not on the record's length.
    """
    registration = in_force(store, ledger)
    if registration is None:
        return []
    fold = Fold(store, registrations={registration.hash: registration})
    if store.series.exists():
        kept = read_series(store)
        fold.seq, fold.run = kept["seq"], kept["run"]
        fold.series, fold.epoch = kept["models"], kept["epoch"]
    else:
        for log in (store.churn, store.findings):
            log.unlink(missing_ok=True)
    lines = _after(ledger, fold.seq, registration)
    sealed = [baseline_of(line) for line in lines if line.kind == "baseline"]
    findings = []
    for derived in filter(None, map(fold.feed, lines)):
        findings += derived.findings
        for log, rows in ((store.churn, derived.churn), (store.findings, derived.findings)):
            drop_rows_of(log, derived.run)
            append_rows(log, rows)
        write_atomically(store.reading(derived.run), reading_bytes(derived.reading))
        for body in derived.baselines:
            if body not in sealed:
                ledger.append("baseline", body, at=clock())
        write_atomically(store.series, series_bytes(fold))
    return findings


def derive_all(store: Store, lines: Iterable[Line]) -> Iterator[tuple[Fold, Derived]]:
    """Yield what every labelled run of `lines` adds, writing nothing."""
    fold = Fold(store)
    for derived in filter(None, map(fold.feed, lines)):
        yield fold, derived


def derive_under(store: Store, lines: Iterable[Line], rules: str) -> Iterator[tuple[Fold, Derived]]:
    """Yield what :func:`derive_all` would, had the judge with this rules hash been registered.

    `rules` names a judge of a declared rescoring; runs that it has not labelled are left out.
    Nothing that is sealed or derived on disk reads this: it answers whether another version of
    the judge would have led to other findings.
    """
    lines = list(lines)
    labels = {
        line.body["run"]: line
        for line in lines
        if line.kind == "labels" and line.body["judge"]["rules"] == rules
    }
    fold = Fold(store)
    for line in lines:
        if line.kind == "run" and (labelled := labels.get(line.body["run"])):
            fold.feed(line)
            if derived := fold.feed(labelled):
                yield fold, derived
        elif line.kind == "registration" and labels:
            judge = line.body["judge"] | next(iter(labels.values())).body["judge"]
            fold.feed(Line({**line.body, "judge": judge}, line.hash))


def derived_files(fold: Fold, lines: Iterable[Line]) -> Iterator[tuple[Path, bytes]]:
    """Feed `lines` to a new fold; yield every derived file with its bytes, writing nothing.

    Readings come first, logs last.
    """
    store = fold.store
    logs: dict[Path, bytearray] = {store.churn: bytearray(), store.findings: bytearray()}
    for derived in filter(None, map(fold.feed, lines)):
        logs[store.churn] += b"".join(map(dump_line, derived.churn))
        logs[store.findings] += b"".join(map(dump_line, derived.findings))
        yield store.reading(derived.run), reading_bytes(derived.reading)
    series = series_bytes(fold) if fold.run else b""
    yield from ((path, bytes(data)) for path, data in (*logs.items(), (store.series, series)))


def read_series(store: Store) -> dict[str, Any]:
    """Return ``series.json``: where the fold stands, the panel's epoch, a state for each model.

    Raises
    ------
    IntegrityError
        It cannot be read.
    """
    try:
        kept: dict[str, Any] = orjson.loads(store.series.read_bytes())
        kept["models"] = {key: SeriesState.read(it) for key, it in kept["models"].items()}
        kept["epoch"] = Epoch(**kept["epoch"])
        int(kept["seq"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise IntegrityError(
            "series.json cannot be read",
            where=str(store.series),
            got=repr(error),
            next_step="delete it together with churn.jsonl and findings.jsonl; "
            "the next command derives all three again from the sealed runs",
        ) from None
    return kept


def baseline_of(line: Line) -> dict[str, Any]:
    """Return the body of a baseline line without what the ledger adds to it."""
    return {k: v for k, v in line.body.items() if k not in ("seq", "prev", "kind", "at")}


def _after(ledger: Ledger, seq: int, current: Registration) -> list[Line]:
    """Return the lines after `seq`, and before them what was registered for their runs.

    A run may be older than the registration in force: registering seals an open run.
    """
    lines: list[Line] = []
    wanted: set[str] = set()
    for line in ledger.backwards():
        if line.seq <= seq and not wanted:
            break
        if line.seq > seq or line.hash in wanted:
            lines.append(line)
        if line.seq > seq and line.kind == "run":
            wanted.add(line.body["registration"])
        wanted -= {line.hash, current.hash}
    return lines[::-1]
