"""The chain alone: form, order and links of its lines, and what they state.

No text is read here; :mod:`drift.records.verify` goes on from the lines that hold.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drift.bank import Bank, load_bank, prompt_hashes, registry_hash
from drift.config import canonical_json, parse_timestamp, sha256_hex
from drift.errors import ConfigurationError, IntegrityError
from drift.probing.client import messages_sha256
from drift.records.judging import checked_line
from drift.records.ledger import GENESIS, NO_LINE, Ledger, Line, parse_line
from drift.records.night import SEEDS
from drift.records.passes import Kind
from drift.records.people import wrong_in_reading
from drift.records.registration import Registration, registered_bank
from drift.records.run import run_id
from drift.records.scores import IDENTITIES, named
from drift.records.store import Store, by_model, judge_folder, plain_name


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
    batches: int = 0
    nights: int = 0
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

    def count_pass(self, kind: Kind, responses: int) -> None:
        """Count a pass whose texts hold."""
        self.batches += kind == "batch"
        self.nights += kind == "night"
        self.responses += responses

    def add(self, step: str, where: str, how: str, detail: str) -> None:
        self.problems.append(Problem(step, where, how, detail))

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        start = time.monotonic()
        yield
        self.seconds[step] = round(time.monotonic() - start, 3)


@dataclass(frozen=True)
class Asked:
    """What a registration asks: the prompt of each arm, and by model the hash of its messages."""

    prompts: dict[str, str]
    sent: dict[str, dict[str, str]]


def first_difference(stored: Sequence[Any], expected: Sequence[Any]) -> tuple[int, str] | None:
    """Return position and kind of the first item that is not the expected one."""
    for position, (old, new) in enumerate(zip(stored, expected, strict=False)):
        if old == new:
            continue
        rest, due = stored[position:], expected[position:]
        if rest.count(old) <= due.count(old):
            return position, "reordered" if new in rest else "deleted"
        if new in rest:
            return position, "inserted"
        torn = isinstance(old, bytes) and not old.endswith(b"\n") and new.startswith(old)
        return position, "cut" if torn else "edited"
    if len(stored) != len(expected):
        return min(len(stored), len(expected)), "cut" if len(stored) < len(expected) else "inserted"
    return None


def check_chain(ledger: Ledger, found: Verification) -> list[Line]:
    """Check every line's form, order and link, and the head; return the lines.

    Only the first line that disagrees is named: what follows it cannot be placed.
    """
    *pieces, torn = ledger.chain.read_bytes().split(b"\n")
    lines: list[Line] = []
    unreadable: IntegrityError | None = None
    for number, piece in enumerate(pieces, start=1):
        try:
            lines.append(parse_line(piece, where=f"chain.jsonl:{number}"))
        except IntegrityError as error:
            unreadable = error
            break
    found.lines = len(lines)
    _check_links(lines, found)
    if unreadable:
        found.add("chain", f"chain.jsonl:{len(lines) + 1}", "edited", unreadable.what)
    if not found.problems:
        _check_head(ledger, lines, torn, found)
    return lines


def _check_links(lines: list[Line], found: Verification) -> None:
    seqs = [line.seq for line in lines]
    if difference := first_difference(seqs, range(max(seqs, default=-1) + 1)):
        place, how = difference
        detail = f"line {seqs[place]} stands where {place} belongs"
        found.add("chain", f"chain.jsonl:{place + 1}", how, detail)
        return
    for place, line in enumerate(lines):
        if line.body["prev"] != (lines[place - 1].hash if place else GENESIS):
            # If the next line names this one's hash, it is the line before that was edited.
            whole = lines[place + 1 :] and lines[place + 1].body["prev"] == line.hash
            where = f"chain.jsonl:{max(place, 1) if whole else place + 1}"
            found.add("chain", where, "edited", f"line {place} names another hash before it")
            return


def _check_head(ledger: Ledger, lines: list[Line], torn: bytes, found: Verification) -> None:
    try:
        found.head = ledger.read_head()
    except IntegrityError as error:
        found.add("head", "head.json", "edited", error.what)
        return
    head, last = found.head or NO_LINE, lines[-1].named if lines else NO_LINE
    if head == last:
        if torn:
            found.notes.append("unfinished seal: the next command drops a torn last line")
        return
    if lines and not torn and head == lines[-1].before:
        found.notes.append("unfinished seal: the next command brings head.json up to date")
        return
    if not found.head:
        found.add("head", "head.json", "deleted", "there is no head.json")
        return
    if torn or head["seq"] > last["seq"]:
        number, how = len(lines) + 1, "cut"
    elif head["seq"] == last["seq"]:
        number, how = len(lines), "edited"
    else:
        number, how = head["seq"] + 2, "inserted"
    detail = f"head.json names line {head['seq']} and its hash {head['hash']}"
    found.add("chain", f"chain.jsonl:{number}", how, detail)


def check_facts(lines: list[Line], found: Verification) -> None:
    """Compare what each line states with the registration before it and with the lines around.

    A run is read by the judge of its registration, before any other judge reads it and before
    the next run: the series and the counts of a rescoring rest on that.
    """
    registrations: list[Registration] = []
    labelled: dict[str, bool] = {}
    passes: dict[str, dict[str, bool]] = {"batch": {}, "night": {}}
    names, heard = set[str](), set[tuple[str, str]]()
    words: dict[str, tuple[str, str] | None] = {}
    judges: dict[str, dict[str, Any]] = {}
    at = ""
    for line in lines:
        body, where = line.body, f"chain.jsonl:{line.seq + 1}"
        try:
            wrong = [] if body["at"] >= at else ["at"]
            at = body["at"]
            if line.kind == "registration":
                registrations.append(Registration(body, line.hash))
                wrong += _wrong_in_registration(body, registrations[0].body)
            elif line.kind == "run":
                wrong += _wrong_in_run(body, registrations[-1], len(labelled) + 1)
                if body["run"] in labelled:
                    found.add("chain", where, "inserted", f"run {body['run']} stands there already")
                labelled[body["run"]] = False
                judges[body["run"]] = registrations[-1].body["judge"]
            elif line.kind in ("batch", "night"):
                sealed = passes[line.kind]
                wrong += _wrong_in_pass(body, registrations[-1], len(sealed) + 1)
                wrong += ["run"] if body["run"] < max(sealed, default="") else []
                wrong += ["name"] if body["name"] in names - {""} else []
                names.add(body["name"])
                if body["run"] in sealed:
                    stands = f"{line.kind} {body['run']} stands there already"
                    found.add("chain", where, "inserted", stands)
                sealed.setdefault(body["run"], False)
            elif line.kind in ("outcomes", "scores", "citations"):
                plain_name(judge_folder(body["judge"]))
                sealed = passes["batch" if line.kind == "outcomes" else "night"]
                read = (body["run"], judge_folder(body["judge"]))
                last = words.get(body["run"])
                wrong += [] if body["run"] in sealed else ["run"]
                # A scorer may have another word once another one had the last.
                again = last == read if line.kind == "scores" else read in heard
                wrong += ["judge, who has read it already"] if again else []
                wrong += _wrong_in_word(line.kind, body)
                sealed[body["run"]] = sealed.get(body["run"], False) or line.kind != "citations"
                heard.add(read)
                words[body["run"]] = read if line.kind == "scores" else last
            elif line.kind == "labels":
                run, judge = body["run"], body["judge"]
                plain_name(judge_folder(judge))
                wrong += _wrong_in_labels(body)
                if by_model(judge):
                    read = (run, canonical_json(judge).decode())
                    wrong += ["judge, whose same words are sealed already"] if read in heard else []
                    heard.add(read)
                if run not in labelled:
                    wrong.append("run")
                elif not labelled[run]:
                    first = all(judge[name] == judges[run][name] for name in ("id", "rules"))
                    wrong += [] if first else ["judge, who is not the registered one"]
                    if run != next(reversed(labelled)):
                        late = f"the first labels of run {run} stand after a later run"
                        found.add("chain", where, "reordered", late)
                    labelled[run] = first
        except (LookupError, TypeError, ValueError, AttributeError, IntegrityError) as error:
            wrong = [repr(error)]
        if wrong:
            detail = f"does not fit the registration or the lines before: {', '.join(wrong)}"
            found.add("chain", where, "edited", detail)
    unread = [run for run, done in labelled.items() if not done]
    if unread and unread[-1] == list(labelled)[-1]:
        found.notes.append(f"unfinished seal: the next command labels run {unread.pop()}")
    for kind, sealed in passes.items():
        for run, done in sealed.items():
            if not done and run == list(sealed)[-1]:
                found.notes.append(f"unfinished seal: the next {kind} judges {kind} {run}")
            elif not done:
                # It is read before the next one begins.
                found.add("chain", f"{kind} {run}", "deleted", f"no line reads this {kind}")
    for run in unread:
        found.add("labels", f"run {run}", "deleted", "no labels line reads this run")


def _wrong_in_registration(body: dict[str, Any], first: dict[str, Any]) -> Iterator[str]:
    for model, item in body["instruments"].items():
        if sha256_hex(canonical_json(item["document"])) != item["sha256"]:
            yield f"instruments.{model}"
    panel, seed = body["panel"], body["alarm"]["seed"]
    if seed != first["alarm"]["seed"] or not re.fullmatch("[0-9a-f]{64}", seed):
        yield "alarm.seed"
    if panel["name"] != first["panel"]["name"]:  # it enters the alarm's draws
        yield "panel.name"
    if panel["reserved_slots"] < 0 or panel["size"] != len(panel["models"]):
        yield "panel.size"
    if sorted(panel["models"]) != sorted(body["instruments"]):
        yield "panel.models"
    rescored = body.get("rescored", {"from": "", "moved": {}})
    counts = rescored["moved"].values()
    if not isinstance(rescored["from"], str) or any(type(n) is not int or n < 0 for n in counts):
        yield "rescored"


def _wrong_in_run(body: dict[str, Any], registration: Registration, number: int) -> Iterator[str]:
    """Name the fields of a run line that its registration or its place contradict."""
    corpus, hours = registration.body["corpus"], registration.body["panel"]["cadence_hours"]
    asked = registration.canonical if body["scope"] == "canonical" else corpus["prompts"].keys()
    started = parse_timestamp(body["started_at"])
    slot = int(started.timestamp()) // (3600 * hours) if hours else None
    expected = {
        "run": run_id(started),
        "number": number,
        "registration": registration.hash,
        "corpus": {name: corpus[name] for name in ("name", "version", "sha256")},
        "keys": sorted(asked),
        "slot": number if registration.cadence == "laboratory" else slot,
    }
    yield from (name for name, value in expected.items() if body[name] != value)
    if parse_timestamp(body["finished_at"]) < started:
        yield "finished_at"
    if not isinstance(body["transcript"], str):
        yield "transcript"
    for model, sealed in body["models"].items():
        if sealed["instrument"] != registration.body["instruments"][model]["sha256"]:
            yield f"models.{model}.instrument"
        if sum(sealed["counts"].values()) > len(asked) or not {"responses", "usage"} <= {*sealed}:
            yield f"models.{model}"


def _wrong_in_pass(body: dict[str, Any], registration: Registration, number: int) -> Iterator[str]:
    """Name the fields of a pass's line that its place, or another of its fields, contradict."""
    started = parse_timestamp(body["started_at"])
    expected = {
        "run": f"{run_id(started)}-{body['corpus']['name']}",
        "number": number,
        "registration": registration.hash,
        "keys": sorted(set(body["keys"])),
    }
    yield from (name for name, value in expected.items() if body[name] != value)
    if parse_timestamp(body["finished_at"]) < started:
        yield "finished_at"
    if "cadence" in body:
        yield from _wrong_in_night(body, registration)
    spoken = body.get("elicitor", {}).get("instrument")
    if spoken and body["elicitor"]["seed"] != spoken["seed"]:
        yield "elicitor.seed"
    registered = registration.body["instruments"]
    for model, sealed in body["models"].items():
        if sealed["role"] != "elicitor":
            # Of what was registered a pass may change the longest answer alone.
            length = {"max_tokens": sealed["document"]["max_tokens"]}
            if sealed["document"] != registered[model]["document"] | length:
                yield f"models.{model}.document"
            if sealed["role"] != registered[model]["role"]:
                yield f"models.{model}.role"
        document = spoken if sealed["role"] == "elicitor" else sealed["document"]
        if sha256_hex(canonical_json(document)) != sealed["instrument"]:
            yield f"models.{model}.instrument"
        if not {"counts", "responses", "usage"} <= {*sealed}:
            yield f"models.{model}"


def _wrong_in_night(body: dict[str, Any], registration: Registration) -> Iterator[str]:
    """Name what the registration says otherwise of how nights are made."""
    panel, scripted = registration.body["panel"], "truth_sha256" in body
    virtual, nightly = bool(panel.get("truth_sha256")), registration.cadence != "laboratory"
    if body["cadence"] != ("virtual" if virtual else "nightly" if nightly else "laboratory"):
        yield "cadence"
    if scripted != virtual:
        yield "truth_sha256"
    for model, sealed in body["models"].items():
        if "seeds" in body and body["seeds"][model] != SEEDS[sealed["document"]["seed_policy"]]:
            yield f"seeds.{model}"


def _wrong_in_word(kind: str, body: dict[str, Any]) -> Iterator[str]:
    """Name the fields of a scorer's or a link check's line that are not what they must be."""
    judge = body["judge"]
    if kind == "scores":
        parts = {name: value for name, value in judge.items() if name != "rules"}
        if named(parts) != judge or not {*IDENTITIES, "fingerprint", "held"} <= parts.keys():
            yield "judge"
        if not isinstance(body["against"], dict):
            yield "against"
    if kind == "citations" and body["share"] not in ("1", "0.5"):
        yield "share"


def _wrong_in_labels(body: dict[str, Any]) -> Iterator[str]:
    """Name what of a line is not as a judge that is a model, or people who read one, say it."""
    if by_model(body["judge"]):
        try:
            checked_line(body)
        except IntegrityError as error:
            yield f"{error.where}: {error.expected}"
    elif "scheme" in body:
        yield from wrong_in_reading(body)


def check_registrations(
    store: Store, lines: list[Line], found: Verification, *, root: Path
) -> dict[str, Asked]:
    """Check corpora and prompts; return what each registration asks, by its line's hash.

    One whose corpus the record does not keep as registered is left out.
    """
    registrations = [line for line in lines if line.kind == "registration"]
    if not registrations:
        found.add("registration", "chain.jsonl:1", "deleted", "the chain holds no registration")
        return {}
    last = registrations[-1]
    raw = store.registration.read_bytes() if store.registration.exists() else b""
    kept = sha256_hex(raw[:-1]) if raw.endswith(b"\n") else ""
    if last is lines[-1] and (not raw or kept in {line.hash for line in registrations[:-1]}):
        found.notes.append("unfinished seal: the next command writes registration.json")
    elif kept != last.hash:
        how = "edited" if raw else "deleted"
        found.add("registration", "registration.json", how, f"is not line {last.seq} of the chain")
    panel = last.body["panel"]
    for name, path in (("truth_sha256", store.truth), ("plan_sha256", store.plan)):
        if (declared := panel.get(name)) is None:
            continue
        if not path.exists():
            if path == store.plan:
                found.notes.append("plan.toml is declared, and not opened yet")
            else:
                found.add("registration", path.name, "deleted", "was registered")
        elif sha256_hex(path.read_bytes()) != declared:
            found.add("registration", path.name, "edited", "is not the file that was registered")
    asked = {}
    for line in registrations:
        corpus = line.body["corpus"]
        try:
            bank = registered_bank(store, line.body)
        except (IntegrityError, ConfigurationError) as error:
            found.add("registration", str(error.where), "edited", error.what)
            continue
        asked[line.hash] = _asked(bank, line.body["instruments"])
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
    return asked


def _asked(bank: Bank, instruments: dict[str, Any]) -> Asked:
    sent = {}
    for model, item in instruments.items():
        system = item["document"]["system_prompt"]
        head = [] if system is None else [{"role": "system", "content": system}]
        sent[model] = {
            arm: messages_sha256([*head, {"role": "user", "content": prompt}])
            for arm, prompt in bank.prompts.items()
        }
    return Asked(bank.prompts, sent)


def _check_prompts(corpus: dict[str, Any], bank: Bank, place: str, found: Verification) -> None:
    present = prompt_hashes(bank.arms("full"))
    for arm in sorted(present.keys() | corpus["prompts"].keys()):
        if present.get(arm) != corpus["prompts"].get(arm):
            detail = f"the prompt in {place} is not the registered one"
            found.add("registration", arm, "reworded prompt", detail)
