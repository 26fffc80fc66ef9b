"""A record as the pages read it: the latest reading, and tidy frames out of its files.

Nothing is computed here that a reading already holds: the pages show the numbers
that were derived when the run was read, and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import orjson
import pandas as pd

from drift.bank import Bank, Family, load_bank
from drift.config import project_root
from drift.records.ledger import Line, parse_line
from drift.records.registration import corpus_copy
from drift.records.store import Store, exists, judge_folder, read_bytes, read_rows

VARIANTS = ("en-1", "en-2", "en-3", "zh")
EXCLUDED = ("undetermined", "tie", "empty", "blocked", "failed", "missing")
PROCESSES = ("home", "pairs", "mixture", "restart", "burst", "coverage")
TWINS = ("refused_zh_only", "refused_en_only", "both_refused", "both_answered", "not_compared")
#: What a row of :func:`responses` takes from the transcript or the labels as it stands.
STORED = "key model status text rule note served_model provider fingerprint".split()


@dataclass(frozen=True)
class Record:
    """One record of the project at `root`, as of one of its runs.

    ``reading`` is empty in a record without a run; ``as_of`` where no run was named.
    """

    root: Path
    name: str
    store: Store
    reading: dict[str, Any]
    as_of: str

    @property
    def models(self) -> dict[str, dict[str, Any]]:
        """The reading of each model by its key, in the panel's order."""
        found: dict[str, dict[str, Any]] = self.reading.get("models", {})
        return found

    @cached_property
    def sealed(self) -> list[tuple[Line, bytes]]:
        """The lines of the chain up to this run, each with its bytes.

        As of a run that was named nothing follows its labels, their shapes and the baselines it
        called for; otherwise only later runs are left out, which a command may be adding at this
        moment. IntegrityError where a line is not canonical.
        """
        path, run = self.store.folder / "chain.jsonl", self.reading.get("run", "")
        whole = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        found, read = [], False
        for number, raw in enumerate(whole, start=1):
            line = parse_line(raw, where=f"{path}:{number}")
            of, mine = line.body.get("run", ""), line.body.get("run") == run
            if line.kind == "run" and of > run:
                break
            shapes = line.kind == "labels" and line.body["judge"]["id"] == "shapes"
            if self.as_of and read and not (mine and (line.kind == "baseline" or shapes)):
                break
            read = read or (line.kind == "labels" and mine)
            found.append((line, raw))
        return found

    @property
    def head(self) -> dict[str, Any]:
        """What ``head.json`` holds where :attr:`sealed` is the whole chain; empty without one."""
        return self.sealed[-1][0].named if self.sealed else {}

    @cached_property
    def registrations(self) -> dict[str, dict[str, Any]]:
        """Every registration up to this run, by the hash of its line."""
        return {line.hash: line.body for line, _ in self.sealed if line.kind == "registration"}

    @cached_property
    def registration(self) -> dict[str, Any]:
        """The registration that the run was made under, without a run the last; else empty."""
        newest = next(reversed(self.registrations), "")
        return self.registrations.get(self.reading.get("registration", newest), {})

    @property
    def panel(self) -> dict[str, Any]:
        """The panel as it was registered; empty in a record without a registration."""
        found: dict[str, Any] = self.registration.get("panel", {})
        return found

    @property
    def instruments(self) -> dict[str, Any]:
        """The instruments as they were registered, by model."""
        found: dict[str, Any] = self.registration.get("instruments", {})
        return found

    @cached_property
    def bank(self) -> Bank | None:
        """The record's own copy of the bank that was asked; no other is shown in its place."""
        return self.bank_of(self.reading)

    def bank_of(self, reading: Mapping[str, Any]) -> Bank | None:
        """Return the bank that was asked in the run of `reading`; None without a copy of it."""
        path = corpus_copy(self.store, reading["corpus"]) if reading else None
        bank = load_bank(path) if path and path.exists() else None
        return bank if bank and bank.sha256 == reading["corpus"]["sha256"] else None

    @cached_property
    def families(self) -> dict[str, Family]:
        """The families of the bank by id; empty without the bank."""
        return {item.id: item for item in self.bank.families} if self.bank else {}

    @cached_property
    def findings(self) -> list[dict[str, Any]]:
        """Every finding up to this run, newest first."""
        return self._logged(self.store.findings)[::-1]

    @cached_property
    def dated(self) -> dict[str, list[dict[str, Any]]]:
        """The findings up to this run by their run, in the order in which they were made."""
        found: dict[str, list[dict[str, Any]]] = {}
        for row in reversed(self.findings):
            found.setdefault(row["run"], []).append(row)
        return found

    @cached_property
    def churn(self) -> list[dict[str, Any]]:
        """The rows of ``churn.jsonl`` up to this run, oldest first: one a run and model."""
        return self._logged(self.store.churn)

    @cached_property
    def runs(self) -> list[str]:
        """The runs up to this one, oldest first."""
        return [run for run in run_ids(self.store.folder) if run <= self.reading.get("run", "")]

    def reading_of(self, run: str) -> dict[str, Any]:
        """Return the reading of one run of the record."""
        found: dict[str, Any] = orjson.loads(read_bytes(self.store.reading(run)))
        return found

    @cached_property
    def stored(self) -> Callable[[str], StoredRun]:
        """Return one run of the record with its answers; the last few stay in memory."""
        return lru_cache(maxsize=8)(partial(_stored, self))

    def _logged(self, path: Path) -> list[dict[str, Any]]:
        rows = read_rows(path) if self.reading and exists(path) else []
        return [row for row in rows if row["run"] <= self.reading["run"]]


@dataclass(frozen=True)
class StoredRun:
    """One run: its reading, what came back by model and key, each with its label if any, and
    the prompt of each arm; none without a copy of the bank."""

    reading: dict[str, Any]
    answers: dict[tuple[str, str], dict[str, Any]]
    prompts: dict[str, str]


def _stored(record: Record, run: str) -> StoredRun:
    reading = record.reading_of(run)
    labels = record.store.labels(judge_folder(reading["judge"]), run)
    answers = {(row["model"], row["key"]): row for row in read_rows(record.store.transcript(run))}
    for row in read_rows(labels):
        answers.setdefault((row["model"], row["key"]), {}).update(row)
    bank = record.bank_of(reading)
    return StoredRun(reading, answers, bank.prompts if bank else {})


def run_ids(folder: Path) -> list[str]:
    """Return the runs of the record in `folder` that have a reading, oldest first."""
    paths = (folder / "readings").glob("*.json*")
    return sorted({path.name.partition(".")[0] for path in paths if path.suffix != ".part"})


def load_record(
    name: str, *, folder: str | Path = "", as_of: str = "", root: Path | None = None
) -> Record:
    """Return the record `name` with its latest run, or the latest not after run `as_of`.

    Parameters
    ----------
    folder : str or Path, optional
        Where the record lies, from `root`, if not in ``data/<name>``.
    as_of : str, optional
        A run id, of this record or another.
    root : Path, optional
        The project, if not the one the working directory is in.
    """
    root = root or project_root()
    store = Store(root / (folder or Path("data") / name))
    runs = [run for run in run_ids(store.folder) if not as_of or run <= as_of]
    reading = orjson.loads(read_bytes(store.reading(runs[-1]))) if runs else {}
    return Record(root, name, store, reading, as_of)


def rates(record: Record) -> pd.DataFrame:
    """Return every rate of the reading, one a row.

    Columns: model, measure (``canonical``, ``family`` or ``topic``), topic, run, refused,
    n, estimate, low, high (shares of 1; missing where not estimable), reason, one column
    for each kind of exclusion, if_none_refused, if_all_refused.
    """
    rows = []
    run = record.reading["run"]
    for key, model in record.models.items():
        found = [("canonical", "", run, model["canonical"])]
        if model["full"]:
            found.append(("family", "", model["full"]["run"], model["full"]["family"]))
        found += [("topic", topic, run, rate) for topic, rate in model["by_topic"].items()]
        rows += [
            {"model": key, "measure": measure, "topic": topic, "run": source}
            | {name: value for name, value in rate.items() if name != "excluded"}
            | dict.fromkeys(EXCLUDED, 0)
            | rate["excluded"]
            for measure, topic, source, rate in found
        ]
    return pd.DataFrame(rows)


def readings(record: Record) -> Iterator[dict[str, Any]]:
    """Yield the readings up to this run, oldest first."""
    return map(record.reading_of, record.runs)


def rates_over_runs(record: Record) -> pd.DataFrame:
    """Return the canonical rate of every run and the family rate of every full one.

    Columns: model, measure (``canonical`` or ``family``), run, started_at, slot, scope,
    series, usable, refused, n, estimate, low, high, reason.
    """
    kept = ("refused", "n", "estimate", "low", "high", "reason")
    rows = []
    for reading in readings(record):
        for key, model in reading["models"].items():
            found = {"canonical": model["canonical"]}
            if is_full(reading, model):
                found["family"] = model["full"]["family"]
            rows += [
                {"model": key, "measure": measure}
                | _place(reading, model)
                | {name: rate[name] for name in kept}
                for measure, rate in found.items()
            ]
    return pd.DataFrame(rows)


def is_full(reading: Mapping[str, Any], model: Mapping[str, Any]) -> bool:
    """Tell whether this run is itself the last full one of the model."""
    return bool(model["full"]) and model["full"]["run"] == reading["run"]


def _place(reading: Mapping[str, Any], model: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "run": reading["run"],
        "started_at": pd.Timestamp(reading["started_at"]),
        "slot": reading.get("slot"),
        "scope": reading["scope"],
        "series": model["series"]["number"],
        "usable": model["coverage"]["usable"],
    }


def full_over_runs(record: Record) -> pd.DataFrame:
    """Return what every full run said of wordings, stated purposes and languages.

    Columns beside those that place the run: consistent, counted, estimate, low, high (of
    the consistent share), wobbled, tripwires, policies, ties; unlocked, refused_bare, reverse,
    answered_bare, mixed; refused_zh_only, refused_en_only, both_refused, both_answered,
    not_compared, twins, net, midp. All but estimate, low, high and midp are counts of families.
    """
    rows = []
    for reading in readings(record):
        for key, model in reading["models"].items():
            if is_full(reading, model):
                rows.append({"model": key} | _place(reading, model) | full_counts(model["full"]))
    return pd.DataFrame(rows)


def full_counts(full: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of one full run on wordings, purposes and languages."""
    wording, unlock, language = full["wording"], full["unlock"], full["language"]
    return {
        **{name: wording[name] for name in ("consistent", "estimate", "low", "high")},
        "counted": wording["n"],
        **{name: len(wording[name]) for name in ("wobbled", "tripwires", "policies")},
        "ties": len(full["ties"]),
        **{name: len(unlock[name]) for name in ("unlocked", "reverse", "mixed")},
        **{name: unlock[name] for name in ("refused_bare", "answered_bare")},
        **{name: len(language[name]) for name in TWINS},
        "twins": language["n"],
        "net": language["net"],
        "midp": language["midp"],
    }


def alarm_rows(record: Record, model: str = "", series: int = 0) -> list[dict[str, Any]]:
    """Return the rows of the runs that entered the alarm, up to this run, oldest first.

    Of all models and series, or of one.
    """
    return [
        row
        for row in record.churn
        if row["alarm"] and model in ("", row["model"]) and series in (0, row["series"])
    ]


def evidence(record: Record) -> pd.DataFrame:
    """Return E of every process at every run that gave it a value, up to this run.

    Columns: model, process, run, x (when the run began), y (E), part (the series), entered
    (the state of the process entered there, else empty). Empty where nothing was bet on.
    """
    rows = []
    for row in alarm_rows(record):
        values = [(name, row["series"], row["alarm"][name]) for name in PROCESSES]
        values += [(one["process"], one["series"], one) for one in row["alarm"]["earlier"]]
        rows += [
            (row["model"], name, row["run"], pd.Timestamp(row["at"]), value["E"], part)
            for name, part, value in values
            if value and value["E"] is not None
        ]
    frame = pd.DataFrame(rows, columns=["model", "process", "run", "x", "y", "part"])
    entered = {
        (watch["model"], what.partition(" ")[0], run, watch["series"]): what.partition(" ")[2]
        for watch in record.reading["alarm"]["watches"]
        for what, run in watch["entered"].items()
    }
    places = zip(frame.model, frame.process, frame.run, frame.part, strict=True)
    frame["entered"] = [entered.get(place, "") for place in places]
    frame["order"] = frame.process.map(PROCESSES.index)
    return frame.sort_values(["order", "part", "x"], kind="stable", ignore_index=True)


def responses(record: Record) -> pd.DataFrame:
    """Return every response of the latest run and of each model's last full run.

    One row for each arm that was to be asked, sorted by family, model, run and
    key. ``outcome`` is the label, else the status, else ``missing``; ``span`` is (0, 0)
    without a span; ``full`` tells whether the run is the model's last full one. Columns
    beside those of ``STORED``: topic, family, variant, run, outcome, span, error, full,
    control.
    """
    full = {key: model["full"]["run"] for key, model in record.models.items() if model["full"]}
    shown = {(record.reading["run"], key) for key in record.models}
    shown |= {(run, key) for key, run in full.items()}
    frame = pd.DataFrame(
        [row for run in {run for run, _ in shown} for row in _run_rows(record, run, shown)],
        dtype=object,
    )
    controls = [item.id for item in record.families.values() if item.control]
    frame["control"] = frame.family.isin(controls)
    frame["full"] = frame.run == frame.model.map(full)
    return frame.sort_values(["family", "model", "run", "key"], ignore_index=True)


def each(frame: pd.DataFrame) -> Iterator[Any]:
    """Return the rows of `frame`, whose columns are attributes."""
    return frame.itertuples(index=False)


def _run_rows(record: Record, run: str, shown: set[tuple[str, str]]) -> Iterator[dict[str, object]]:
    stored = record.stored(run)
    asked = record.bank.arms(stored.reading["scope"]) if record.bank else ()
    rows: dict[tuple[str, str], dict[str, Any]] = {
        (model, arm.id): {"model": model, "key": arm.id, "status": "missing"}
        for of, model in shown
        for arm in asked
        if of == run
    }
    rows |= {place: row for place, row in stored.answers.items() if (run, place[0]) in shown}
    for row in rows.values():
        family, _, arm = row["key"].partition("#")
        error = row.get("error") or {}
        yield {
            "topic": family.partition("/")[0],
            "family": family,
            "variant": arm.partition("@")[0].partition("~")[0],
            "run": run,
            "outcome": row.get("label") or row["status"],
            "span": tuple(row.get("span") or (0, 0)),
            "error": " ".join(str(error[k]) for k in ("http", "code", "message") if error.get(k)),
            **{name: row.get(name) or "" for name in STORED},
        }
