"""The registration: what a record commits to before its first run.

It names the corpus with a hash of every prompt, the panel with its cadence and
size, every instrument, the judge and the alarm's seed and parameters. A later
registration line amends it: what changed is listed in it, and it closes the
series which it touches.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from drift import __version__
from drift.bank import Bank, load_bank, prompt_hashes, registry_hash
from drift.config import METHOD_VERSION, Clock, Panel, canonical_json, load_toml, sha256_hex
from drift.errors import ConfigurationError, IntegrityError
from drift.judging import Judge
from drift.judging.labeller import Labeller
from drift.records.ledger import Ledger, lines_backwards, write_atomically
from drift.records.store import Store

#: Fields of a panel that a registration leaves out: ``instruments`` holds the models.
_NOT_REGISTERED = {"description", "daily_budget_usd", "time_budget_s", "models"}


@dataclass(frozen=True)
class Registration:
    """The registration in force, as sealed: its body and the hash of its line."""

    body: dict[str, Any]
    hash: str

    @property
    def canonical(self) -> frozenset[str]:
        """The canonical arms."""
        return frozenset(arm for arm in self.body["corpus"]["prompts"] if arm.endswith("#en-1"))

    @property
    def registry(self) -> str:
        """Hash of all arms with their prompts."""
        return str(self.body["corpus"]["registry"]["all"])

    @property
    def cadence(self) -> str:
        """The hours of a slot, ``laboratory`` where each run is one, or ``none``."""
        panel = self.body["panel"]
        if panel.get("laboratory"):
            return "laboratory"
        return "none" if panel["cadence_hours"] is None else str(panel["cadence_hours"])

    def identity(self, model: str) -> dict[str, str]:
        """Return what must stay the same in a series of `model`, each a hash or a figure."""
        return {
            "instrument": self.body["instruments"][model]["sha256"],
            "bank": self.body["corpus"]["registry"]["canonical"],
            "fingerprint": self.body["judge"]["fingerprint"],
            "cadence": self.cadence,
            "alarm": sha256_hex(canonical_json({**self.body["alarm"], "seed": ""})),
        }

    def moved(self, model: str) -> int:
        """Return how many stored labels of `model` this registration's rescoring moved."""
        return int(self.body.get("rescored", {}).get("moved", {}).get(model, 0))


def build(panel: Panel, bank: Bank, judge: Judge, *, root: Path, seed: str) -> dict[str, Any]:
    """Return the body of a registration for the present configuration."""
    arms, canonical = bank.arms("full"), bank.arms("canonical")
    alarm = load_toml(root / "config" / "alarm.toml", kind="alarm")
    if alarm["home"]["window"] < 3:
        raise ConfigurationError("home.window is 3 runs or more", where="config/alarm.toml")
    return {
        "panel": panel.model_dump(mode="json", exclude=_NOT_REGISTERED)
        | {"models": [model.key for model in panel.models], "size": len(panel.models)},
        "corpus": {
            "name": bank.name,
            "version": bank.version,
            "sha256": bank.sha256,
            "registry": {"canonical": registry_hash(canonical), "all": registry_hash(arms)},
            "prompts": prompt_hashes(arms),
        },
        "instruments": {
            model.key: {
                "sha256": model.instrument_hash(),
                "document": model.instrument(),
                "lab": model.lab,
                "role": model.role,
            }
            for model in panel.models
        },
        "judge": judge_identity(judge)
        | {"version": judge.version, "agreement": list(judge.agreement)},
        "alarm": {**alarm, "seed": seed},
        "method_version": METHOD_VERSION,
        "package_version": __version__,
    }


def judge_identity(judge: Labeller) -> dict[str, str]:
    """Return how a ledger line names a judge."""
    return {"id": judge.id, "rules": judge.rules_hash, "fingerprint": judge.fingerprint}


def differences(registered: dict[str, Any], present: dict[str, Any]) -> list[str]:
    """Name the registered fields that the present configuration does not meet.

    The package version may move without a new registration.
    """
    found = [
        f"{section}.{name}"
        for section in ("panel", "corpus", "instruments", "judge", "alarm")
        for name in sorted(registered[section].keys() | present[section].keys())
        if registered[section].get(name) != present[section].get(name) and name != "title"
    ]
    if registered["method_version"] != present["method_version"]:
        found.append("method_version")
    return found


def in_force(store: Store, ledger: Ledger) -> Registration | None:
    """Return the registration in force, checked against the chain; None before the first.

    Raises
    ------
    IntegrityError
        ``registration.json`` is not the line that the chain names.
    """
    last = ledger.last()
    if last is None:
        return None
    newest = next(
        (line for line in ledger.backwards() if line.kind in ("registration", "run")), None
    )
    if newest is None:
        raise IntegrityError("the chain holds no registration", where=str(ledger.chain))
    named = newest.hash if newest.kind == "registration" else newest.body["registration"]
    raw = store.registration.read_bytes() if store.registration.exists() else b""
    if last.hash == named and sha256_hex(raw[:-1]) != named:
        # The seal of a registration was interrupted between its two files.
        raw = _write_registration(store, ledger)
    found = sha256_hex(raw[:-1])
    if found != named:
        raise IntegrityError(
            "registration.json is not the registration that the chain names",
            where=str(store.registration),
            got=found,
            expected=named,
            next_step="restore the file from a copy of the record",
        )
    return Registration(orjson.loads(raw), named)


def _write_registration(store: Store, ledger: Ledger) -> bytes:
    """Repeat the chain's last line in ``registration.json``; return the file's bytes."""
    raw = next(lines_backwards(ledger.chain)) + b"\n"
    write_atomically(store.registration, raw)
    return raw


def corpus_copy(store: Store, corpus: dict[str, Any]) -> Path:
    """Return where the record keeps the corpus file that it registered."""
    return store.folder / "corpora" / f"{corpus['name']}-{corpus['sha256'][:12]}.json"


def kept_corpus(store: Store, corpus: dict[str, Any]) -> Path:
    """Return the record's copy of a corpus that a line names.

    IntegrityError if it is missing, or if its hash is not the named one.
    """
    path = corpus_copy(store, corpus)
    found = sha256_hex(path.read_bytes()) if path.exists() else "no file"
    if found != corpus["sha256"]:
        raise IntegrityError(
            "the registered corpus is not the one the record keeps",
            where=str(path),
            got=found,
            expected=corpus["sha256"],
        )
    return path


def registered_bank(store: Store, registration: dict[str, Any]) -> Bank:
    """Return the bank that a registration commits to, from the record's own copy.

    Raises
    ------
    IntegrityError
        The copy is missing or its hash is not the registered one.
    """
    return load_bank(kept_corpus(store, registration["corpus"]))


def seal_registration(
    store: Store, ledger: Ledger, body: dict[str, Any], *, bank_file: Path, clock: Clock
) -> Registration:
    """Seal `body`, keep a copy of the corpus file, and write ``registration.json``."""
    raw_bank = bank_file.read_bytes()
    if sha256_hex(raw_bank) != body["corpus"]["sha256"]:
        raise ConfigurationError("the corpus file changed while it was read", where=str(bank_file))
    write_atomically(corpus_copy(store, body["corpus"]), raw_bank)
    line = ledger.append("registration", body, at=clock())
    _write_registration(store, ledger)
    return Registration(line.body, line.hash)


def new_seed() -> str:
    """Return a fresh alarm seed: 64 lower-case hex digits from the system's generator."""
    return secrets.token_hex(32)
