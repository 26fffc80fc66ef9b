"""A record as the pages read it: the latest reading, and tidy frames out of its files.

Nothing is computed here that a reading already holds: the pages show the numbers
that were derived when the run was read, and no others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson
import pandas as pd

from drift.bank import Bank, Family, load_bank
from drift.config import project_root
from drift.records.registration import corpus_copy
from drift.records.store import Store, exists, judge_folder, read_rows

VARIANTS = ("en-1", "en-2", "en-3", "zh")
EXCLUDED = ("undetermined", "tie", "empty", "blocked", "failed", "missing")


@dataclass(frozen=True)
class Record:
    """One record, as of one of its runs.

    ``reading`` is None in a record without a run. ``bank`` is the record's own copy of
    the bank that was asked, None where it is missing: no other is shown in its place.
    """

    name: str
    store: Store
    reading: dict[str, Any] | None
    head: dict[str, Any] | None
    as_of: str | None
    bank: Bank | None

    @property
    def title(self) -> str:
        return self.name.replace("-", " ").capitalize()

    @property
    def models(self) -> dict[str, dict[str, Any]]:
        """The reading of each model by its key, in the panel's order; empty without a run."""
        found: dict[str, dict[str, Any]] = self.reading["models"] if self.reading else {}
        return found

    @cached_property
    def families(self) -> dict[str, Family]:
        """The families of the bank by id; empty without the bank."""
        return {item.id: item for item in self.bank.families} if self.bank else {}

    @cached_property
    def findings(self) -> list[dict[str, Any]]:
        """Every finding up to this run, newest first."""
        run = self.reading["run"] if self.reading else ""
        path = self.store.findings
        rows = read_rows(path) if exists(path) else []
        return [row for row in reversed(rows) if row["run"] <= run]


def run_ids(folder: Path) -> list[str]:
    """Return the runs of the record in `folder` that have a reading, oldest first."""
    return sorted(path.stem for path in (folder / "readings").glob("*.json"))


def load_record(
    name: str, *, folder: str | Path = "", as_of: str = "", root: Path | None = None
) -> Record:
    """Return the record `name` with its latest run, or the latest not after run `as_of`.

    Parameters
    ----------
    name : str
        The panel's name; the record lies in ``data/<name>`` of the project.
    folder : str or Path, optional
        Where the record lies instead; a relative path is taken from the project.
    as_of : str, optional
        A run id, of this record or another: what came after it is left out.
    root : Path, optional
        The project, if not the one the working directory is in.
    """
    root = root or project_root()
    store = Store(root / (folder or Path("data") / name))
    runs = [run for run in run_ids(store.folder) if not as_of or run <= as_of]
    reading = orjson.loads(store.reading(runs[-1]).read_bytes()) if runs else None
    head = store.folder / "head.json"
    asked = corpus_copy(store, reading["corpus"]) if reading else None
    bank = load_bank(asked) if asked and asked.exists() else None
    if reading and bank and reading["corpus"]["sha256"] != bank.sha256:
        bank = None
    ledger = orjson.loads(head.read_bytes()) if head.exists() else None
    return Record(name, store, reading, ledger, as_of or None, bank)


def rates(record: Record) -> pd.DataFrame:
    """Return every rate of the reading, one a row.

    Columns: model, lab, role, measure (``canonical``, ``family`` or ``topic``), topic,
    run, refused, n, estimate, low, high (shares of 1; missing where not estimable),
    reason, one column for each kind of exclusion, if_none_refused, if_all_refused.
    """
    rows = []
    run = record.reading["run"] if record.reading else ""
    for key, model in record.models.items():
        found = [("canonical", "", run, model["canonical"])]
        if model["full"]:
            found.append(("family", "", model["full"]["run"], model["full"]["family"]))
        found += [("topic", topic, run, rate) for topic, rate in model["by_topic"].items()]
        for measure, topic, source, rate in found:
            row = {"model": key, "lab": model["lab"], "role": model["role"]}
            row |= {"measure": measure, "topic": topic, "run": source}
            row |= {name: value for name, value in rate.items() if name != "excluded"}
            rows.append(row | dict.fromkeys(EXCLUDED, 0) | rate["excluded"])
    columns = ["model", "lab", "role", "measure", "topic", "run", "refused", "n", "estimate"]
    columns += ["low", "high", "reason", *EXCLUDED, "if_none_refused", "if_all_refused"]
    return pd.DataFrame(rows, columns=columns)


def responses(record: Record) -> pd.DataFrame:
    """Return every response of the latest run and of each model's last full run.

    One row for each arm that was to be asked, sorted by family, model, run and
    key. ``outcome`` is the label, else the status, else ``missing``. Columns:
    topic, family, variant, key, model, run, outcome, status, text, rule, start, end,
    note, served_model, provider, fingerprint, error.
    """
    rows = [
        row for run, models in _runs_shown(record).items() for row in _run_rows(record, run, models)
    ]
    columns = ["topic", "family", "variant", "key", "model", "run", "outcome", "status", "text"]
    columns += ["rule", "start", "end", "note", "served_model", "provider", "fingerprint", "error"]
    frame = pd.DataFrame(rows, columns=columns, dtype=object)
    return frame.sort_values(["family", "model", "run", "key"], ignore_index=True)


def label_grid(frame: pd.DataFrame, record: Record) -> pd.DataFrame:
    """Return the rows of :func:`responses` of each model's last full run, with ``control``."""
    full = {key: model["full"]["run"] for key, model in record.models.items() if model["full"]}
    kept = [full.get(model) == run for model, run in zip(frame.model, frame.run, strict=True)]
    controls = {item.id for item in record.families.values() if item.control}
    return frame.loc[kept].assign(control=frame.family.isin(controls)).reset_index(drop=True)


def each(frame: pd.DataFrame) -> Iterator[Any]:
    """Return the rows of `frame`, whose columns are attributes."""
    return frame.itertuples(index=False)


def _runs_shown(record: Record) -> dict[str, list[str]]:
    if record.reading is None:
        return {}
    shown = {record.reading["run"]: list(record.models)}
    for key, model in record.models.items():
        if model["full"] and model["full"]["run"] != record.reading["run"]:
            shown.setdefault(model["full"]["run"], []).append(key)
    return shown


def _run_rows(record: Record, run: str, models: list[str]) -> Iterator[dict[str, Any]]:
    reading = orjson.loads(record.store.reading(run).read_bytes())
    judge = reading["judge"]
    labels = {
        (row["model"], row["key"]): row
        for row in read_rows(record.store.labels(judge_folder(judge), run))
    }
    stored = {
        (row["model"], row["key"]): row
        for row in read_rows(record.store.transcript(run))
        if row["model"] in models
    }
    if record.bank:
        asked = [arm.id for arm in record.bank.arms(reading["scope"])]
        for model in models:
            for key in asked:
                stored.setdefault((model, key), {"model": model, "key": key, "status": "missing"})
    for (model, key), row in stored.items():
        label = labels.get((model, key), {})
        family, _, arm = key.partition("#")
        error = row.get("error") or {}
        start, end = label.get("span") or (None, None)
        yield {
            "topic": family.partition("/")[0],
            "family": family,
            "variant": arm.partition("@")[0].partition("~")[0],
            "key": key,
            "model": model,
            "run": run,
            "outcome": label.get("label") or row["status"],
            "status": row["status"],
            "text": row.get("text", ""),
            "rule": label.get("rule") or "",
            "start": start,
            "end": end,
            "note": label.get("note") or "",
            "served_model": row.get("served_model") or "",
            "provider": row.get("provider") or "",
            "fingerprint": row.get("fingerprint") or "",
            "error": " ".join(str(error[k]) for k in ("http", "code", "message") if error.get(k)),
        }
