"""The orchestrator: register, ask, seal, judge, derive.

A run is asked into ``open/<run>.jsonl`` and sealed when every question has been put.
Killed at any point, the next command goes on where it stopped: it completes an
unfinished seal, resumes a run whose slot is not over, and seals one whose slot is.
A run in which no model gave any answer is left open in the same way.
A phantom's time is virtual and follows from the number of the run alone.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from drift.bank import Bank, load_bank
from drift.config import Clock, ModelSpec, Panel, parse_timestamp, sha256_hex, timestamp, utc_now
from drift.errors import (
    ConfigurationError,
    DriftError,
    IntegrityError,
    PartialError,
    PausedError,
    StorageError,
    worst_exit_code,
)
from drift.judging import Judge, load_judge
from drift.judging.ladder import load_rubric
from drift.probing import phantom
from drift.probing.client import read_secret
from drift.probing.weights import weights_path
from drift.records.asking import (
    DAILY_BUDGET,
    Progress,
    afford,
    announcement,
    ask,
    bare_questions,
    open_cost,
    spent_usd,
)
from drift.records.batch import rescore_batches
from drift.records.derive import derive, read_series
from drift.records.entailment import judged_usd
from drift.records.ledger import PASSES, Ledger, complete_end, write_atomically
from drift.records.registration import (
    Registration,
    build,
    differences,
    in_force,
    new_seed,
    registered_bank,
    seal_registration,
)
from drift.records.run import run_id
from drift.records.scores import Scoring, rescore_nights
from drift.records.sealing import OpenRun, label_run, label_unread, rescore, seal_run
from drift.records.shapes import load_coder
from drift.records.store import Store, append_rows

#: Largest share of the arms that may be missing or failed in a run that is not partial.
MISSING_SHARE = 0.1


@dataclass
class Outcome:
    """What a refresh did; ``codes`` hold the exit codes of what went wrong.

    ``asked`` counts the responses stored, those that failed included; ``failed`` counts these.
    ``paused`` says that a model is to be asked further by the next command.
    """

    run: str | None = None
    scope: str | None = None
    sealed: bool = False
    asked: int = 0
    failed: int = 0
    paused: bool = False
    notes: list[str] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        return worst_exit_code(self.codes)

    def problem(self, error: DriftError) -> None:
        self.notes.append(str(error))
        self.codes.append(error.exit_code)

    @contextmanager
    def answering_for(self, model: str, current: OpenRun) -> Iterator[None]:
        """Keep what goes wrong with one model to it; what touches the record goes further."""
        try:
            yield
        except (IntegrityError, StorageError):
            raise
        except PausedError as error:
            # The budget is a rule of ours: the others go on without the model.
            self.problem(error)
            if error.where == DAILY_BUDGET:
                current.stop(model, DAILY_BUDGET)
            else:
                self.paused = True
        except DriftError as error:
            self.problem(error)
            current.stop(model, error.what)

    def count(self, current: OpenRun) -> None:
        """Count the responses that an open run or batch stores."""
        stored = current.responses()
        self.asked = len(stored)
        self.failed = sum(row["status"] == "failed" for row in stored)


class Record:
    """One record opened for writing: its files, ledger, judge and the project around it.

    A phantom panel brings its own clock, and its truth with it.
    """

    def __init__(self, panel: Panel, *, folder: Path, root: Path, clock: Clock = utc_now) -> None:
        self.panel, self.root, self.clock = panel, root, clock
        self.store, self.ledger = Store(folder), Ledger(folder)
        self.judge: Judge = load_judge(root / "config" / "judge")
        self.coder = load_coder(root, self.judge)
        self.bank_file = root / "config" / "probe_bank.json"
        self.notes: list[str] = []
        self.truth: phantom.Truth | None = None
        if panel.phantom:
            names = [model.model for model in panel.models]
            self.truth = phantom.Truth(root, load_bank(self.bank_file).arms("full"), names)
            digest = sha256_hex(self.truth.file)
            self.panel = panel.model_copy(update={"truth_sha256": digest})
            self.clock = phantom.VirtualClock(self.truth.rules.start, panel.cadence_hours or 0)

    @contextmanager
    def opened(self) -> Iterator[Record]:
        """Hold the lock and complete what a killed command left unfinished."""
        with self.store.locked():
            self.notes += self.ledger.recover()
            self._tick(self.runs)
            last = self.ledger.last()
            if last and isinstance(self.clock, phantom.VirtualClock):
                # Its nights follow its runs.
                self.clock.now = max(self.clock.now, parse_timestamp(last.body["at"]))
            now = timestamp(self.clock())
            if last and now < last.body["at"]:
                raise ConfigurationError(
                    "the clock stands before the record's last line",
                    where=str(self.store.folder),
                    got=now,
                    expected=f"not before {last.body['at']}",
                    next_step="set the machine's clock; nothing was changed",
                )
            registration = in_force(self.store, self.ledger)
            if registration is not None:
                self._complete(registration)
            yield self

    @property
    def runs(self) -> int:
        """The number of the last sealed run."""
        return next((int(run["number"]) for run in self._runs_since("")), 0)

    def _tick(self, number: int, step: int | None = None) -> None:
        """Move a phantom's clock to the `step`-th model of a run, by default to the run's end."""
        if isinstance(self.clock, phantom.VirtualClock):
            self.clock.move(number, len(self.panel.models) if step is None else step)

    def _complete(self, registration: Registration) -> None:
        """Finish a seal: transcript without its line, line without labels, labels not derived."""
        for path in self.store.open_runs():
            if not complete_end(path):
                path.unlink()
                self.notes.append(f"run {path.stem} was killed before it began; removed its file")
            elif self._sealed(path.stem):
                path.unlink()
                self.notes.append(f"run {path.stem} was sealed already; removed its open file")
            elif self.store.transcript(path.stem).exists():
                self._seal(OpenRun.read(path), registration)
                self.notes.append(f"completed the seal of run {path.stem}")
        labelled = set()
        for line in self.ledger.backwards():
            if line.kind == "labels":
                labelled.add(line.body["run"])
            elif line.kind == "run":
                if line.body["run"] not in labelled:
                    self._label(line.body, registration)
                    self.notes.append(f"labelled run {line.body['run']}")
                break
        self._publish_truth(registration)
        derive(self.store, self.ledger, clock=self.clock)

    def _registered_judge(self, registration: Registration) -> None:
        """Refuse to label with another judge than the registered one: a series reads no other."""
        if registration.body["judge"]["rules"] != self.judge.rules_hash:
            raise ConfigurationError(
                "a run waits to be labelled by the registered judge, and config/judge has changed",
                where=str(self.store.folder),
                got=f"rules {self.judge.rules_hash}",
                expected=f"rules {registration.body['judge']['rules']}",
                next_step="put the registered rules back, run `drift refresh`, then change them",
            )

    def _sealed(self, run: str) -> bool:
        """Tell whether the chain holds a run; ids are in order of time, so the tail will do."""
        return next((body["run"] for body in self._runs_since("") if body["run"] <= run), "") == run

    def _label(self, run: Mapping[str, Any], registration: Registration) -> None:
        self._registered_judge(registration)
        label_run(self.store, self.ledger, self.judge, run, registration, at=self.clock())

    def register(self, *, seed: str | None = None) -> tuple[Registration, list[str]]:
        """Seal a registration of the present configuration; return it and what changed.

        A first registration commits a fresh seed. A later one keeps the seed, seals
        an open run with its gaps, and rescores the stored answers if the judge's
        rules moved. Without a change nothing is written.
        """
        before = in_force(self.store, self.ledger)
        kept = before.body["alarm"]["seed"] if before else None
        if seed and not re.fullmatch("[0-9a-f]{64}", seed):
            expected = "64 lower-case hex digits"
            raise ConfigurationError("not an alarm seed", got=seed, expected=expected)
        if seed and kept and seed != kept:
            raise ConfigurationError("the alarm's seed is registered already and cannot change")
        if before and before.body["panel"]["name"] != self.panel.name:
            raise ConfigurationError(
                "a registered panel keeps its name: the alarm's draws depend on it",
                got=self.panel.name,
                expected=before.body["panel"]["name"],
            )
        scripted = self.truth.rules.alarm_seed if self.truth else None
        body, changes = self._present(kept or seed or scripted or new_seed(), before)
        if before and not changes:
            return before, []
        if before:
            for path in self.store.open_runs():
                self._seal(OpenRun.read(path), before)
            derive(self.store, self.ledger, clock=self.clock)
            body["changes"] = changes
            series = read_series(self.store)["models"] if self.store.series.exists() else {}
            # A model may not have run since an earlier change of the rules.
            if any(state.rules != self.judge.rules_hash for state in series.values()):
                moves = self.rescore()
                # Only the series that are open can be ended by a label that moves.
                moved = Counter(
                    move["model"]
                    for move in moves
                    if move["run"] >= series[move["model"]].opened_at_run
                )
                body["rescored"] = {
                    "from": before.body["judge"]["rules"],
                    "moved": dict(sorted(moved.items())),
                }
        sealed = seal_registration(
            self.store, self.ledger, body, bank_file=self.bank_file, clock=self.clock
        )
        self._publish_truth(sealed)
        return sealed, changes

    def _publish_truth(self, registration: Registration) -> None:
        """Write a phantom's truth beside its record once it is registered."""
        if self.truth and registration.body["panel"]["truth_sha256"] == self.panel.truth_sha256:
            write_atomically(self.store.truth, self.truth.file)

    def _present(self, seed: str, before: Registration | None) -> tuple[dict[str, Any], list[str]]:
        """Return what would be registered now, and in what that is not what was."""
        bank = load_bank(self.bank_file)
        body = build(self.panel, bank, self.judge, root=self.root, seed=seed)
        return body, differences(before.body, body) if before else []

    def undeclared(self) -> list[str]:
        """Name what differs from the registration in force; nothing before the first."""
        before = in_force(self.store, self.ledger)
        return self._present(before.body["alarm"]["seed"], before)[1] if before else []

    def code_shapes(self) -> list[str]:
        """Say the shapes of the refusals in every run that this coder has not read."""
        return label_unread(self.store, self.ledger, self.coder, clock=self.clock)

    def rescore(self) -> list[dict[str, str]]:
        """Label every sealed run with the present judge; see :func:`records.sealing.rescore`."""
        return rescore(self.store, self.ledger, self.judge, clock=self.clock)

    def rescore_batches(self) -> list[str]:
        """Judge every sealed batch with the present judge; return those it had not read."""
        rubric = load_rubric(self.root / "config" / "rubric.toml")
        return rescore_batches(self.store, self.ledger, self.judge, rubric, clock=self.clock)

    def rescore_nights(self) -> list[str]:
        """Score every sealed night with the present scorer; return those it had not read."""
        if not any(line.kind == "night" for line in self.ledger.backwards()):
            return []
        scoring = Scoring.load(self.root, self.judge)
        return rescore_nights(self.store, self.ledger, scoring, clock=self.clock)

    def refresh(
        self,
        *,
        models: Sequence[str] = (),
        progress: Progress | None = None,
        say: Callable[[str], None] = lambda text: None,
        environ: Mapping[str, str] = os.environ,
    ) -> Outcome:
        """Make one run: ask, seal, judge, derive. Register first if nothing is registered.

        Before the first question `say` is told what is asked and what it costs at most.
        Nothing is asked, and no run made, if the configuration is not the registered one,
        if weights or seals do not hold, or if no model can be asked on this machine.
        """
        outcome = Outcome(notes=self.notes)
        if in_force(self.store, self.ledger) is None:
            # Nothing is committed to a record that cannot be asked from here.
            self.reachable(self.panel.narrowed(tuple(models)), environ)
        registration = self.registered(say)
        bank = registered_bank(self.store, registration.body)
        prompts = bank.prompts
        self._tick(self.runs + 1, 0)
        last = self.ledger.last()
        if self.truth and last and timestamp(self.clock()) < last.body["at"]:
            raise ConfigurationError(
                "a phantom's runs come before its nights, which are made already",
                where=str(self.store.folder),
                next_step="make all runs first, in a new record",
            )
        current = self._resumable(registration)
        chosen = self.panel.narrowed(tuple(current.header["models"] if current else models))
        ready = self.reachable(chosen, environ)
        if current:
            say(f"resuming run {current.run}")
            begun = current.header["models"]
            if [model.key for model in self.panel.narrowed(tuple(models))] != [*begun]:
                say(f"it was begun with {', '.join(begun)}, and asks these and no others")
            if not current.heard:
                current.ask_again(self.clock())
        else:
            current = self._begin(chosen, bank, registration)
        outcome.run, outcome.scope = current.run, current.header["scope"]
        say(announcement(current, chosen, prompts))
        for step, model in enumerate(chosen):
            self._tick(current.header["number"], step)
            if model.key in current.stopped:
                continue
            with outcome.answering_for(model.key, current):
                weights = ready[model.key]
                if isinstance(weights, DriftError):
                    raise weights
                afford(
                    model,
                    self.panel,
                    cost=open_cost(model, current, prompts),
                    spent=self.spent_usd(current),
                )
                ask(
                    current,
                    model,
                    bare_questions(current, model.key, prompts),
                    weights=weights,
                    truth=self.truth,
                    clock=self.clock,
                    time_budget_s=self.panel.time_budget_s,
                    progress=progress,
                    environ=environ,
                )
        outcome.count(current)
        # What a phantom keeps silent about is in its truth.
        if not current.heard and not self.truth:
            outcome.problem(self._unheard(current))
        elif not outcome.paused:
            self._seal(current, registration)
            self.code_shapes()
            outcome.sealed = True
            self._report_missing(current, outcome)
            if again := self._in_slot_before(current):
                note = "the slot was used already: this run is stored and shown, never bet on"
                outcome.notes.append(f"{', '.join(again)}: {note}")
            outcome.notes += [
                f"{found['model']}: {found['detail']} (series {found['series']})"
                for found in derive(self.store, self.ledger, clock=self.clock)
                if found["kind"] == "alarm_state"
            ]
        return outcome

    def refresh_to(self, runs: int, *, progress: Progress | None = None, **options: Any) -> Outcome:
        """Make runs until a phantom's record holds as many; a killed one is resumed.

        `progress` is told of runs; `options` are those of :meth:`refresh`.
        """
        if not self.truth:
            raise ConfigurationError(
                "only a phantom's runs follow each other at once: its time is virtual",
                got=f"{runs} runs of panel {self.panel.name}",
                next_step="make one run a slot, for example from a scheduler",
            )
        total = Outcome(notes=self.notes, sealed=True)
        while total.sealed and self.runs < runs:
            made = self.refresh(**options)
            asked, failed = total.asked + made.asked, total.failed + made.failed
            total = replace(made, asked=asked, failed=failed, codes=total.codes + made.codes)
            if progress:
                progress("runs", self.runs, runs)
        self.notes.append(f"the record holds {self.runs} runs")
        return total

    def _in_slot_before(self, current: OpenRun) -> list[str]:
        """Return the models of a run that an earlier one asked in the same slot."""
        slot, asked = current.header["slot"], set[str]()
        for run in self._runs_since("") if slot is not None else ():
            if run["run"] != current.run:
                if run["slot"] != slot:
                    break
                asked |= {model for model, part in run["models"].items() if part["counts"]}
        return sorted(asked & {*current.header["models"]})

    def registered(self, say: Callable[[str], None]) -> Registration:
        """Return the registration in force, which the configuration must meet; make the first."""
        registration = in_force(self.store, self.ledger)
        if registration is None:
            registration, _ = self.register()
            say(f"registered the record before its first run: {registration.hash}")
        if changed := self.undeclared():
            raise ConfigurationError(
                "the configuration is not the registered one",
                where=str(self.store.folder),
                got=f"changed: {', '.join(changed)}",
                next_step="undo the change, or declare it by `drift register` with the same "
                "--panel and --data; that closes the series it touches",
            )
        return registration

    def _resumable(self, registration: Registration) -> OpenRun | None:
        """Return the open run of the present slot; seal one whose slot is over."""
        for path in self.store.open_runs():
            current = OpenRun.read(path)
            started = parse_timestamp(current.header["started_at"])
            if self.panel.laboratory or self._window(started) >= self._window(self.clock()):
                return current
            self._seal(current, registration)
            derive(self.store, self.ledger, clock=self.clock)
            self.notes.append(f"run {current.run} was sealed with its gaps: its slot is over")
        return None

    def _window(self, moment: datetime) -> int:
        """Return the slot of a moment; without a cadence a run may be resumed all UTC day."""
        return int(moment.timestamp()) // self._width

    @property
    def _width(self) -> int:
        """The length of a slot in seconds."""
        return 3600 * (self.panel.cadence_hours or 24)

    def _unheard(self, current: OpenRun) -> PausedError:
        """Say that a run is open since no model answered, and how long it can be resumed."""
        again = "mend the cause and run the same command: it asks this run again"
        if not self.panel.laboratory:
            slot = self._window(parse_timestamp(current.header["started_at"]))
            end = timestamp(datetime.fromtimestamp((slot + 1) * self._width, UTC))
            again += f", until {end}; later it is sealed with its gaps"
        return PausedError(
            "no model gave any answer: the run is open, not sealed",
            where=f"run {current.run}",
            next_step=again,
        )

    def reachable(
        self, chosen: Sequence[ModelSpec], environ: Mapping[str, str]
    ) -> dict[str, Path | DriftError | None]:
        """Return each model's weights, None for one without, or why it cannot be asked at all.

        Where none can be asked, the first reason is raised.
        """
        ready: dict[str, Path | DriftError | None] = {}
        for model in chosen:
            try:
                named = model.weights if model.kind == "embedded" else None
                ready[model.key] = weights_path(named, root=self.root) if named else None
                read_secret(model, environ)
            except IntegrityError:
                raise
            except DriftError as error:
                ready[model.key] = error
        refused = [found for found in ready.values() if isinstance(found, DriftError)]
        if len(refused) == len(chosen):
            raise refused[0]
        return ready

    def _begin(
        self, chosen: Sequence[ModelSpec], bank: Bank, registration: Registration
    ) -> OpenRun:
        last, now = next(self._runs_since(""), None), self.clock()
        run = run_id(now)
        if last and run <= last["run"]:
            raise ConfigurationError(
                "a run must begin after the record's last run",
                got=f"the clock says {run}",
                expected=f"later than {last['run']}",
                next_step="wait a second, or set the machine's clock",
            )
        number = last["number"] + 1 if last else 1
        scope = self._scope(now, number)
        slot = self._window(now) if self.panel.cadence_hours else None
        header = {
            "run": run,
            "number": number,
            "scope": scope,
            "slot": number if self.panel.laboratory else slot,
            "started_at": timestamp(now),
            "registration": registration.hash,
            "models": [model.key for model in chosen],
            "keys": [arm.id for arm in bank.arms(scope)],
        }
        path = self.store.open_run(run)
        append_rows(path, [header])
        return OpenRun(path, header)

    def _scope(self, now: datetime, number: int) -> str:
        """Decide from the record: full is the first run of a UTC day, or what was listed.

        One that nobody answered does not count, nor does the first that was cut off; were a
        second not counted, a budget too small for full runs would leave no canonical one.
        """
        if self.panel.scope_plan == "listed":
            return "full" if number in self.panel.full_runs else "canonical"
        today = self._runs_since(timestamp(now)[:10])
        full = [run for run in today if run["scope"] == "full" and answered(run)]
        return "canonical" if len(full) > 1 or not all(map(cut_off, full)) else "full"

    def spent_usd(self, current: OpenRun) -> Decimal:
        """Return what was paid on the day that an open run, batch or judging began, in USD."""
        day = current.header["started_at"][:10]
        judged = judged_usd(self.ledger.backwards(), day)
        return judged + spent_usd(self.panel, current, self._runs_since(day, kinds=PASSES))

    def _runs_since(
        self, day: str, *, kinds: Collection[str] = ("run",)
    ) -> Iterator[dict[str, Any]]:
        """Yield the run lines of a UTC day and later, last first; reads the tail alone."""
        for line in self.ledger.backwards():
            if line.kind in kinds:
                if line.body["started_at"][:10] < day:
                    return
                yield line.body

    def _seal(self, current: OpenRun, registration: Registration) -> None:
        """Seal a run, judge it from its stored bytes, and drop its open file."""
        self._registered_judge(registration)
        self._tick(current.header["number"])
        specs = {model.key: model for model in self.panel.models}
        body = seal_run(self.store, self.ledger, current, registration, specs, at=self.clock())
        self._label(body, registration)
        current.path.unlink()

    def _report_missing(self, current: OpenRun, outcome: Outcome) -> None:
        """Print isolated gaps; a model gone, or more than a tenth of its arms, is partial."""
        total = len(current.header["keys"])
        for name in current.header["models"]:
            good = {row["key"] for row in current.rows_of(name) if row["status"] != "failed"}
            gone = total - len(good)
            if gone > MISSING_SHARE * total:
                what = f"{name}: {gone} of {total} arms are missing in {current.run}"
                outcome.problem(PartialError(what))
            elif gone:
                first = sorted(set(current.header["keys"]) - good)[0]
                outcome.notes.append(f"{name}: {gone} of {total} arms missing, first {first}")


def answered(run: Mapping[str, Any]) -> bool:
    """Tell whether any model gave any answer in a run, from its ledger line."""
    counts = [model["counts"] for model in run["models"].values()]
    return any(status != "failed" for count in counts for status in count)


def cut_off(run: Mapping[str, Any]) -> bool:
    """Tell whether a run ended before a model that did not stop had been asked nine tenths."""
    total = len(run["keys"])
    asked = [sum(it["counts"].values()) for it in run["models"].values() if "stopped" not in it]
    return any(total - number > MISSING_SHARE * total for number in asked)
