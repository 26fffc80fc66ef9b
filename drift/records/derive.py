"""Derived files: churn, findings and readings, rebuilt or brought up to date.

Sealed lines are folded in their order. ``series.json`` keeps where the fold stands
and is written last, so a kill at any point leaves at most rows of one run to drop
and derive again. Nothing derived is an input of anything sealed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from drift.bank import Bank
from drift.errors import IntegrityError
from drift.records.ledger import Ledger, Line, write_atomically
from drift.records.reading import build_reading
from drift.records.registration import Registration, in_force, registered_bank
from drift.records.run import load_run
from drift.records.series import SeriesState, Step, step
from drift.records.store import Store, append_rows, drop_rows_of


@dataclass(frozen=True)
class Derived:
    """What one labelled run adds to the derived files."""

    run: str
    steps: dict[str, Step]
    churn: list[dict[str, Any]]
    findings: list[dict[str, Any]]
    reading: dict[str, Any]


@dataclass
class Fold:
    """The fold over a chain: feed it lines in their order."""

    store: Store
    seq: int = -1
    run: str | None = None
    series: dict[str, SeriesState] = field(default_factory=dict)
    registrations: dict[str, Registration] = field(default_factory=dict)
    _banks: dict[str, Bank] = field(default_factory=dict)
    _waiting: dict[str, Any] | None = None

    def feed(self, line: Line) -> Derived | None:
        """Take one line; return what it adds if it labels the run before it.

        Labels by another judge than the registered one (a rescoring, a second
        judge, people) belong to no series and are passed over.
        """
        body = line.body
        if line.kind == "registration":
            self.registrations[line.hash] = Registration(body, line.hash)
        elif line.kind == "run":
            self._waiting = body
        elif line.kind == "labels" and self._waiting and body["run"] == self._waiting["run"]:
            registration = self.registrations[self._waiting["registration"]]
            registered = registration.body["judge"]
            if all(body["judge"][name] == registered[name] for name in ("id", "rules")):
                sealed, self._waiting = self._waiting, None
                return self._derive(sealed, line, registration)
        return None

    def _derive(self, sealed: dict[str, Any], line: Line, registration: Registration) -> Derived:
        run = load_run(self.store, sealed, line.body)
        steps = {
            model: step(
                self.series.get(model, SeriesState()),
                run,
                model,
                identity=registration.identity(model),
                canonical=registration.canonical,
                registry=registration.registry,
                moved=registration.moved(model),
            )
            for model in sorted(run.models)
        }
        self.series |= {model: done.state for model, done in steps.items()}
        self.run, self.seq = run.run, line.seq
        reading = build_reading(
            run,
            steps,
            registration=registration,
            bank=self._bank(registration),
            head={"seq": line.seq, "hash": line.hash},
        )
        return Derived(
            run=run.run,
            steps=steps,
            churn=[done.churn for done in steps.values()],
            findings=[item for done in steps.values() for item in done.findings],
            reading=reading,
        )

    def _bank(self, registration: Registration) -> Bank:
        sha256 = registration.body["corpus"]["sha256"]
        if sha256 not in self._banks:
            self._banks[sha256] = registered_bank(self.store, registration.body)
        return self._banks[sha256]

    def document(self) -> dict[str, Any]:
        """Return the state as ``series.json`` holds it."""
        return {
            "seq": self.seq,
            "run": self.run,
            "models": {model: asdict(state) for model, state in sorted(self.series.items())},
        }


def series_bytes(fold: Fold) -> bytes:
    """Return the bytes of ``series.json``."""
    return orjson.dumps(fold.document(), option=orjson.OPT_INDENT_2) + b"\n"


def reading_bytes(reading: dict[str, Any]) -> bytes:
    """Return the bytes of a reading's file."""
    return orjson.dumps(reading, option=orjson.OPT_INDENT_2) + b"\n"


def derive(store: Store, ledger: Ledger) -> list[Derived]:
    """Bring the derived files up to the chain's end; return what was added.

    The cost depends on the lines since the last call, not on the record's length.
    """
    fold = Fold(store)
    registration = in_force(store, ledger)
    if registration is None:
        return []
    if store.series.exists():
        kept = _read_series(store)
        fold.seq, fold.run = kept["seq"], kept["run"]
        fold.series = {
            model: SeriesState.from_document(state) for model, state in kept["models"].items()
        }
        fold.registrations[registration.hash] = registration
    else:
        for log in (store.churn, store.findings):
            log.unlink(missing_ok=True)
    added = []
    for line in _after(ledger, fold.seq):
        derived = fold.feed(line)
        if derived is None:
            continue
        for log, rows in ((store.churn, derived.churn), (store.findings, derived.findings)):
            drop_rows_of(log, derived.run)
            append_rows(log, rows)
        write_atomically(store.reading(derived.run), reading_bytes(derived.reading))
        write_atomically(store.series, series_bytes(fold))
        added.append(derived)
    return added


def derive_all(store: Store, lines: Iterable[Line]) -> Iterator[tuple[Fold, Derived]]:
    """Yield what every labelled run of `lines` adds, writing nothing."""
    fold = Fold(store)
    for line in lines:
        derived = fold.feed(line)
        if derived is not None:
            yield fold, derived


def _after(ledger: Ledger, seq: int) -> list[Line]:
    lines = []
    for line in ledger.backwards():
        if line.seq <= seq:
            break
        lines.append(line)
    return lines[::-1]


def _read_series(store: Store) -> dict[str, Any]:
    try:
        kept: dict[str, Any] = orjson.loads(store.series.read_bytes())
        return kept
    except orjson.JSONDecodeError as error:
        raise IntegrityError(
            "series.json cannot be read",
            where=str(store.series),
            got=str(error),
            next_step="delete it together with churn.jsonl and findings.jsonl; "
            "the next command derives all three again from the sealed runs",
        ) from None
