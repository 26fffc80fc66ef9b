"""The chain alone: form, order and links of its lines, and what they state.

No text is read here; :mod:`drift.records.verify` goes on from the lines that hold.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drift.bank import Bank, load_bank, prompt_hashes, registry_hash
from drift.config import canonical_json, parse_timestamp, sha256_hex
from drift.errors import ConfigurationError, IntegrityError
from drift.records.ledger import GENESIS, Ledger, Line, parse_line
from drift.records.registration import Registration, registered_bank
from drift.records.run import run_id
from drift.records.store import Store, judge_folder, plain_name


@dataclass(frozen=True)
class Problem:
    """One disagreement: the step that found it, where, and how it came about.

    ``how`` is one of edited, reordered, inserted, deleted, cut, reworded prompt,
    judge moved.
    """

    step: str
    where: str
    how: str
    detail: str


@dataclass
class Verification:
    """What was checked and what disagreed; ``seconds`` by step.

    ``assurance`` is ``complete`` when every sealed label was derived again with the
    judge in ``config/``, else ``partial``.
    """

    panel: str
    rederived: bool = True
    lines: int = 0
    runs: int = 0
    responses: int = 0
    labels: int = 0
    labels_not_rederivable: int = 0
    head: dict[str, Any] | None = None
    notes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def assurance(self) -> str:
        return "complete" if self.rederived and not self.labels_not_rederivable else "partial"

    def add(self, step: str, where: str, how: str, detail: str) -> None:
        self.problems.append(Problem(step, where, how, detail))

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        start = time.monotonic()
        yield
        self.seconds[step] = round(time.monotonic() - start, 3)


def check_chain(ledger: Ledger, found: Verification) -> list[Line]:
    """Check every line's form, order and link, and the head; return the readable lines."""
    *pieces, torn = ledger.chain.read_bytes().split(b"\n")
    parsed: list[Line | None] = []
    for number, piece in enumerate(pieces, start=1):
        try:
            parsed.append(parse_line(piece, where=f"chain.jsonl:{number}"))
        except IntegrityError as error:
            parsed.append(None)
            found.add("chain", f"chain.jsonl:{number}", "edited", error.what)
    _check_links(parsed, found)
    lines = [line for line in parsed if line is not None]
    found.lines = len(lines)
    try:
        head = found.head = ledger.read_head()
    except IntegrityError as error:
        found.add("head", "head.json", "edited", error.what)
        return lines
    seq, hash = (lines[-1].seq, lines[-1].hash) if lines else (-1, GENESIS)
    counted = head is not None and head["seq"] == seq and head["hash"] == hash
    if torn and counted:
        found.notes.append("unfinished seal: the next command drops a torn last line")
    elif torn:
        found.add("chain", f"chain.jsonl:{len(pieces) + 1}", "cut", "the last line does not end")
    if head is None and len(lines) == 1:
        found.notes.append("unfinished seal: the next command writes head.json")
    elif head is None:
        found.add("head", "head.json", "deleted", "there is no head.json")
    elif ledger.head.read_bytes() != canonical_json(head) + b"\n":
        found.add("head", "head.json", "edited", "not in canonical form")
    elif head == {"seq": seq, "hash": hash} or not lines:
        pass
    elif (head["seq"], head["hash"]) == (seq - 1, lines[-1].body["prev"]):
        found.notes.append("unfinished seal: the next command brings head.json up to date")
    elif head["seq"] > seq:
        detail = f"the head counts {head['seq'] + 1} lines"
        found.add("chain", f"chain.jsonl:{len(pieces) + 1}", "cut", detail)
    elif head["seq"] == seq:
        detail = "the last line is not the one that head.json names"
        found.add("chain", f"chain.jsonl:{len(pieces)}", "edited", detail)
    else:
        detail = "lines which head.json does not count"
        found.add("chain", f"chain.jsonl:{head['seq'] + 2}", "inserted", detail)
    return lines


def _check_links(parsed: list[Line | None], found: Verification) -> None:
    """Name the first line whose place or link disagrees, and how that came about."""
    seqs = [line.seq if line else None for line in parsed]
    for position, line in enumerate(parsed):
        if line is None:
            continue
        where = f"chain.jsonl:{position + 1}"
        if line.seq != position:
            displaced = position in seqs[position + 1 :]
            if line.seq < position or seqs.count(line.seq) > 1:
                how = "inserted"
            else:
                how = "reordered" if displaced else "deleted"
            found.add("chain", where, how, f"line {line.seq} stands where {position} belongs")
            return
        before = parsed[position - 1] if position else None
        if (position and before is None) or line.body["prev"] == (
            before.hash if before else GENESIS
        ):
            continue
        after = parsed[position + 1] if position + 1 < len(parsed) else None
        if position and after is not None and after.body["prev"] == line.hash:
            where = f"chain.jsonl:{position}"
        found.add("chain", where, "edited", f"line {position} names another hash before it")
        return


def check_facts(lines: list[Line], found: Verification) -> None:
    """Compare what each line states with the registration before it and with the lines around."""
    registrations: list[Registration] = []
    runs: dict[str, bool] = {}
    at = ""
    for line in lines:
        body, where = line.body, f"chain.jsonl:{line.seq + 1}"
        try:
            wrong = [] if body["at"] >= at else ["at"]
            at = body["at"]
            if line.kind == "registration":
                for model, item in body["instruments"].items():
                    if sha256_hex(canonical_json(item["document"])) != item["sha256"]:
                        wrong.append(f"instruments.{model}")
                if (
                    registrations
                    and body["alarm"]["seed"] != registrations[0].body["alarm"]["seed"]
                ):
                    wrong.append("alarm.seed")
                registrations.append(Registration(body, line.hash))
            elif line.kind == "run":
                wrong += _wrong_in_run(body, registrations[-1], len(runs))
                if body["run"] in runs:
                    found.add("chain", where, "inserted", f"run {body['run']} stands there already")
                runs[body["run"]] = False
            elif line.kind == "labels":
                wrong += [] if body["run"] in runs and body["judge"]["id"] else ["run"]
                plain_name(judge_folder(body["judge"]))
                runs[body["run"]] = True
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            wrong = [repr(error)]
        except IntegrityError as error:
            wrong = [str(error.got)]
        if wrong:
            detail = f"does not fit the registration or the lines before: {', '.join(wrong)}"
            found.add("chain", where, "edited", detail)
    unread = [run for run, labelled in runs.items() if not labelled]
    if unread and unread[-1] == list(runs)[-1]:
        found.notes.append(f"unfinished seal: the next command labels run {unread.pop()}")
    for run in unread:
        found.add("labels", f"run {run}", "deleted", "no labels line reads this run")


def _wrong_in_run(body: dict[str, Any], registration: Registration, before: int) -> list[str]:
    """Name the fields of a run line that its registration or its place contradict."""
    corpus = registration.body["corpus"]
    asked = registration.canonical if body["scope"] == "canonical" else corpus["prompts"].keys()
    started = parse_timestamp(body["started_at"])
    hours = registration.body["panel"]["cadence_hours"]
    expected = {
        "run": run_id(started),
        "number": before + 1,
        "registration": registration.hash,
        "corpus": {name: corpus[name] for name in ("name", "version", "sha256")},
        "keys": sorted(asked),
        "slot": int(started.timestamp()) // (3600 * hours) if hours else None,
    }
    wrong = [name for name, value in expected.items() if body[name] != value]
    for model, sealed in body["models"].items():
        if sealed["instrument"] != registration.body["instruments"][model]["sha256"]:
            wrong.append(f"models.{model}.instrument")
        if not {"counts", "responses", "usage"} <= sealed.keys():
            wrong.append(f"models.{model}")
    if not isinstance(body["transcript"], str) or not started <= parse_timestamp(
        body["finished_at"]
    ):
        wrong.append("transcript or finished_at")
    return wrong


def check_registrations(
    store: Store, lines: list[Line], found: Verification, *, root: Path
) -> None:
    registrations = [line for line in lines if line.kind == "registration"]
    if not registrations:
        found.add("registration", "chain.jsonl:1", "deleted", "the chain holds no registration")
        return
    last = registrations[-1]
    raw = store.registration.read_bytes() if store.registration.exists() else b""
    if last is lines[-1] and (
        not raw or sha256_hex(raw[:-1]) in {x.hash for x in registrations[:-1]}
    ):
        found.notes.append("unfinished seal: the next command writes registration.json")
    elif not raw.endswith(b"\n") or sha256_hex(raw[:-1]) != last.hash:
        how = "edited" if raw else "deleted"
        found.add("registration", "registration.json", how, f"is not line {last.seq} of the chain")
    for line in registrations:
        corpus = line.body["corpus"]
        try:
            bank = registered_bank(store, line.body)
        except (IntegrityError, ConfigurationError) as error:
            found.add("registration", str(error.where), "edited", error.what)
            continue
        _check_prompts(corpus, bank, "the record's copy", found)
        hashes = {"canonical": registry_hash(bank.arms("canonical"))}
        if hashes | {"all": registry_hash(bank.arms("full"))} != corpus["registry"]:
            found.add("registration", f"chain.jsonl:{line.seq + 1}", "edited", "registry hash")
    corpus = last.body["corpus"]
    config = root / "config" / f"{corpus['name']}.json"
    present = load_bank(config) if config.exists() else None
    if present and present.version == corpus["version"]:
        _check_prompts(corpus, present, "config", found)
    elif present:
        found.notes.append(
            f"config holds version {present.version} of {corpus['name']}, "
            f"the record registered {corpus['version']}"
        )


def _check_prompts(corpus: dict[str, Any], bank: Bank, place: str, found: Verification) -> None:
    present = prompt_hashes(bank.arms("full"))
    for arm in sorted(present.keys() | corpus["prompts"].keys()):
        if present.get(arm) != corpus["prompts"].get(arm):
            detail = f"the prompt in {place} is not the registered one"
            found.add("registration", arm, "reworded prompt", detail)
