"""Asks a model whether stored answers answer exactly their questions; asks nobody else anything.

The bytes of a run are read once their hash holds. The judge is asked the anchors first, since its
words on them name it: where a judging by the same rules and the same words is sealed already,
nothing is asked further. Replies are stored as they come, and a judging that was killed or paused
is resumed by the same command.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from drift.config import ModelSpec, Panel, canonical_json, load_panel, timestamp
from drift.errors import ConfigurationError, DriftError, PartialError, PausedError
from drift.judging.entailment import as_asked, asked_document, judge_id, rules_hash, sent_sha256
from drift.passes import asked_as
from drift.probing.cost import usage
from drift.probing.phantom_judge import (
    EntailmentTruth,
    Pair,
    Rules,
    plain_answers,
    scripted_judge,
)
from drift.probing.response import Ask, Response
from drift.records.asking import Progress, afford, announcement, ask, open_cost
from drift.records.entailment import (
    REPEATED,
    Check,
    Unit,
    answered_rows,
    fingerprint_of,
    judgings,
    reply_of,
    row_of,
    sealed_texts,
    units,
)
from drift.records.judging import Arms
from drift.records.ledger import complete_end
from drift.records.registration import registered_bank
from drift.records.sealing import OpenRun, seal_labels
from drift.records.store import append_rows
from drift.refresh import MISSING_SHARE, Outcome, Record, answered

#: The longest prompt is a limit of ours; this is what stands in the place of a reply.
TOO_LONG = "too-long"


@dataclass(frozen=True)
class _Judge:
    """A model as it is asked to judge, the panel it is of, and the script that it follows."""

    spec: ModelSpec
    panel: Panel
    script: Rules | None = None


def entail(
    record: Record,
    judge: str,
    *,
    runs: Sequence[str] = (),
    arms: Arms = "all",
    progress: Progress | None = None,
    say: Callable[[str], None] = lambda text: None,
    environ: Mapping[str, str] = os.environ,
) -> Outcome:
    """Have a model judge the answers of sealed runs, and seal its verdicts.

    `judge` is a model of the record's panel, or ``PANEL:MODEL``; a phantom's is a scripted
    judge. `runs` are ids, by default the last full run that anybody answered. Only what the
    present judge of refusals calls answered is judged.

    Raises
    ------
    ConfigurationError
        No such judge, run or record, or another judging of the run is open.
    IntegrityError
        The stored answers of a run are not the sealed ones.
    """
    check, total = Check.load(record.root), Outcome(notes=record.notes, sealed=True)
    asked_by = _judge(record, judge, check)
    weights = record.reachable([asked_by.spec], environ)[asked_by.spec.key]
    assert not isinstance(weights, DriftError)
    for body, registration in _chosen(record, runs):
        judging = _Judging(record, check, asked_by, body, registration, arms)
        made = judging.make(weights, progress=progress, say=say, environ=environ)
        total = replace(
            made,
            asked=total.asked + made.asked,
            failed=total.failed + made.failed,
            codes=total.codes + made.codes,
            sealed=made.sealed,
        )
        if not made.sealed:
            break
    return total


def _judge(record: Record, name: str, check: Check) -> _Judge:
    """Return the model of this name as it is asked; ConfigurationError if there is none."""
    panel_name, _, key = name.rpartition(":")
    panel = load_panel(panel_name, root=record.root) if panel_name else record.panel
    script = None
    if panel.phantom:
        spec, script = scripted_judge(key, root=record.root)
    else:
        spec = _named(panel, key)
    length = {"answer_tokens": check.rules.answer_tokens, "context": check.rules.context}
    return _Judge(as_asked(asked_as(spec, None, **length)), panel, script)


def _named(panel: Panel, key: str) -> ModelSpec:
    found = [model for model in panel.models if model.key == key]
    if not found:
        raise ConfigurationError(
            "no such judge",
            got=key,
            expected=f"a model of panel {panel.name}: {', '.join(it.key for it in panel.models)}",
            next_step="correct --judge; PANEL:MODEL names a model of another panel",
        )
    return found[0]


def _chosen(
    record: Record, names: Sequence[str]
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield the runs of these ids, by default the last full one, each with its registration."""
    registrations: dict[str, dict[str, Any]] = {}
    sealed: dict[str, dict[str, Any]] = {}
    for line in record.ledger.forwards():
        if line.kind == "registration":
            registrations[line.hash] = line.body
        elif line.kind == "run":
            sealed[line.body["run"]] = line.body
    full = [run for run, body in sealed.items() if body["scope"] == "full" and answered(body)]
    if unknown := [name for name in names or full[-1:] or [""] if name not in sealed]:
        raise ConfigurationError(
            "the record holds no such run" if unknown[0] else "the record holds no full run",
            where=str(record.store.folder),
            got=", ".join(unknown) or None,
            expected=f"some of the last: {', '.join([*sealed][-3:])}" if sealed else None,
            next_step="correct --run" if sealed else "make a run first: `drift refresh`",
        )
    for name in names or full[-1:]:
        yield sealed[name], registrations[sealed[name]["registration"]]


@dataclass
class _Judging:
    """One judge's verdicts on one run, from the first question to the seal."""

    record: Record
    check: Check
    judge: _Judge
    run: Mapping[str, Any]
    registration: Mapping[str, Any]
    arms: Arms
    units: list[Unit] = field(init=False)
    asked: dict[str, Any] = field(init=False)
    retried: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        rows = sealed_texts(self.record.store, self.run)
        prompts = registered_bank(self.record.store, dict(self.registration)).prompts
        kept = answered_rows(rows, prompts, self.record.judge, self.arms)
        self.units = units(self.check, kept, prompts)
        self.asked = asked_document(self.judge.spec, self.check.rules, self.check.anchors)
        self.asked |= {"answered_by": self.record.judge.rules_hash, "arms": self.arms}

    @property
    def identity(self) -> dict[str, str]:
        """What a judging is told apart by before anything was replied."""
        return {"id": judge_id(self.judge.spec.key), "rules": rules_hash(self.asked)}

    def make(
        self,
        weights: Path | None,
        *,
        progress: Progress | None,
        say: Callable[[str], None],
        environ: Mapping[str, str],
    ) -> Outcome:
        """Ask what was not asked, and seal; say why it stays open where it does."""
        record, spec = self.record, self.judge.spec
        outcome = Outcome(str(self.run["run"]), "entailment", notes=record.notes)
        prompts = {sent_sha256(unit.prompt): unit.prompt for unit in self.units}
        current = self._opened(list(prompts), say)
        say(announcement(current, [spec], prompts))
        anchors = {sent_sha256(it.prompt) for it in self.units if "anchor" in it.place}
        with self._answering(outcome):
            cost = open_cost(spec, current, prompts)
            afford(spec, self.judge.panel, cost=cost, spent=self._spent(current))
            for part in (anchors, prompts.keys() - anchors):
                if self._sealed(current):
                    break
                keys = [key for key in current.unasked(spec.key) if key in part]
                ask(
                    current,
                    spec,
                    self._asks(current, keys, prompts),
                    weights=weights,
                    truth=self._truth(),
                    clock=record.clock,
                    time_budget_s=record.panel.time_budget_s,
                    progress=progress,
                    environ=environ,
                )
        outcome.count(current)
        if sealed := self._sealed(current):
            said = f"run {outcome.run}: {spec.key} judged it by the same rules and with the same"
            outcome.notes.append(f"{said} words on the anchors ({sealed[:8]}): nothing is added")
            current.path.unlink()
            outcome.sealed = True
        elif not current.heard:
            outcome.problem(
                PausedError(
                    "the judge gave no reply: the judging is open, not sealed",
                    where=f"run {outcome.run}, {self.identity['id']}",
                    next_step="mend the cause and run the same command: it asks again",
                )
            )
        elif not current.unasked(spec.key):
            self._close(current, outcome)
        return outcome

    def _close(self, current: OpenRun, outcome: Outcome) -> None:
        """Seal what was asked to its end; where too much failed at the first try, keep it open."""
        name, rows = self.judge.spec.key, self._rows(current)
        gone = sum(row["status"] == "failed" for row in rows)
        said = f"{name}: {gone} of {len(rows)} verdicts did not come in {current.run}"
        partial = gone > MISSING_SHARE * len(rows)
        if partial and not self.retried and any(map(_failed, current.rows)):
            step = "run the same command: it asks once more for those that failed, and seals"
            outcome.problem(PausedError(said, next_step=step))
            return
        if self._judged_before():
            outcome.notes.append(
                f"{name} judged {current.run} before by the same rules: {REPEATED}"
            )
        self._seal(current, rows)
        outcome.sealed = True
        if partial:
            outcome.problem(PartialError(said))
        elif gone:
            outcome.notes.append(said)

    @contextmanager
    def _answering(self, outcome: Outcome) -> Iterator[None]:
        """Keep to the judging what goes wrong with its judge: it stays open."""
        try:
            yield
        except (PausedError, PartialError, ConfigurationError) as error:
            outcome.problem(error)
            outcome.paused = True

    def _opened(self, keys: list[str], say: Callable[[str], None]) -> OpenRun:
        """Return the open judging of this run, resumed or begun."""
        path = self.record.store.open_judging(self.run["run"])
        header = {
            "run": self.run["run"],
            "number": self.run["number"],
            "scope": "entailment",
            "slot": None,
            "registration": self.run["registration"],
            "judge": self.identity,
            "models": [self.judge.spec.key],
            "keys": keys,
        }
        if path.exists() and not complete_end(path):
            path.unlink()
        if path.exists():
            current = OpenRun.read(path)
            begun = {name: current.header.get(name) for name in header}
            if canonical_json(begun) == canonical_json(header):
                say(f"resuming the judging of run {current.run}")
                if not current.heard:
                    current.ask_again(self.record.clock())
                # What failed is asked once more; the last row of a key is the one that counts.
                # Where all had been asked, this is the second try; a pause is none.
                self.retried = not current.unasked(self.judge.spec.key)
                current.rows = [row for row in current.rows if not _failed(row)]
                return current
            if current.heard:
                raise ConfigurationError(
                    "another judging of this run is open, which was begun otherwise",
                    where=str(path),
                    got=f"judge {(begun.get('judge') or {}).get('id')}",
                    expected=f"judge {self.identity['id']}, with the present rules and anchors",
                    next_step="resume it by the command that began it, or delete the file: its "
                    "replies are then asked for again",
                )
            path.unlink()
        header |= {"started_at": timestamp(self.record.clock())}
        append_rows(path, [header])
        return OpenRun(path, header)

    def _asks(self, current: OpenRun, keys: Sequence[str], prompts: Mapping[str, str]) -> list[Ask]:
        """Return what is asked; a prompt that is too long gets a row that says so instead."""
        longest = self.check.rules.longest
        asks = []
        for key in keys:
            if (size := len(prompts[key].encode())) <= longest:
                asks.append(Ask(key, ({"role": "user", "content": prompts[key]},)))
                continue
            why = {"http": None, "code": TOO_LONG, "message": f"{size} bytes, more than {longest}"}
            row = Response(key, self.judge.spec.key, "failed", error=why, messages_sha256=key)
            append_rows(current.path, [row.document()])
            current.rows.append(row.document())
        return asks

    def _truth(self) -> EntailmentTruth | None:
        """Return what a scripted judge knows of the pairs that it is shown."""
        if self.judge.script is None:
            return None
        if self.record.truth is None:
            raise ConfigurationError(
                "a scripted judge knows the answers of phantoms alone", got=self.judge.spec.key
            )
        plain = plain_answers(self.record.truth.rules)
        anchors = {it.id: it.entailed for it in self.check.anchors.anchors}
        pairs = dict[str, Pair]()
        for unit in self.units:
            entailed = anchors.get(unit.place.get("anchor", ""), unit.text in plain)
            pairs[unit.prompt] = Pair(entailed, unit.language)
        return EntailmentTruth(self.judge.script, pairs)

    def _rows(self, current: OpenRun) -> list[dict[str, Any]]:
        replies = {row["key"]: row for row in current.responses()}
        made = [(unit, replies.get(sent_sha256(unit.prompt))) for unit in self.units]
        return [row_of(unit, reply_of(reply)) for unit, reply in made]

    def _sealed(self, current: OpenRun) -> str | None:
        """Return the fingerprint of this judging if one with the same words is sealed."""
        rows = [row for row in self._rows(current) if "anchor" in row]
        due = {sent_sha256(it.prompt) for it in self.units if "anchor" in it.place}
        if due.intersection(current.unasked(self.judge.spec.key)):
            return None
        judge = self.identity | {"fingerprint": fingerprint_of(rows)}
        sealed = judgings(self.record.ledger.forwards())
        same = (it for it in sealed if it["run"] == self.run["run"] and it["judge"] == judge)
        return judge["fingerprint"] if next(same, None) else None

    def _judged_before(self) -> bool:
        """Tell whether a judging of this run by this judge is sealed."""
        mine = self.identity.items()
        sealed = judgings(self.record.ledger.forwards())
        return any(it["run"] == self.run["run"] and mine <= it["judge"].items() for it in sealed)

    def _spent(self, current: OpenRun) -> Decimal:
        """Return what was paid for the record today, in USD; this judging included."""
        spent = self.record.spent_usd(current)
        if self.judge.panel.name != self.record.panel.name:
            spent += Decimal(usage(self.judge.spec, current.rows)["cost_usd"] or 0)
        return spent

    def _seal(self, current: OpenRun, rows: list[dict[str, Any]]) -> None:
        record = self.record
        judge = self.identity | {"fingerprint": fingerprint_of(rows)}
        spent = usage(self.judge.spec, current.responses())
        more = {"asked": self.asked, "usage": spent}
        run = str(self.run["run"])
        seal_labels(record.store, record.ledger, judge, run, rows, at=record.clock(), more=more)
        current.path.unlink()


def _failed(row: Mapping[str, Any]) -> bool:
    """Tell whether a reply did not come that may come at another time."""
    return bool(row["status"] == "failed" and (row.get("error") or {}).get("code") != TOO_LONG)
