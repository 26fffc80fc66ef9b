"""The record itself as the site gives it away: its ledger, and one zip a month.

Nothing is published but what a line of the chain names, cut after the run that the
pages show. Transcripts, labels and readings of a month lie in its zip as they lie in
the record; a zip is made again only when one of them has changed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import orjson

from drift.config import canonical_json, sha256_hex
from drift.errors import IntegrityError
from drift.records.derive import derive_all, series_bytes
from drift.records.ledger import PASSES, WORDS, Line
from drift.records.registration import corpus_copy
from drift.records.store import exists, judge_folder, plain_name, read_bytes
from drift.report.tables import Record

#: Runs whose transcripts and labels also lie uncompressed beside the zips.
LATEST = 4
SUMS = "SHA256SUMS"
#: Effort of compression: three times as fast as the usual 6, for a twentieth more bytes.
LEVEL = 4


@dataclass(frozen=True)
class Sealed:
    """What the lines of a record's chain name, up to the run that its pages show."""

    record: Record

    @cached_property
    def run(self) -> str:
        """The run that is shown; empty in a record without one."""
        return str(self.record.reading.get("run", ""))

    @property
    def lines(self) -> list[tuple[Line, bytes]]:
        """Each line with its bytes; IntegrityError where one is not canonical."""
        return self.record.sealed

    def of(self, *kinds: str) -> Iterator[dict[str, Any]]:
        """Yield the bodies of the lines of these kinds."""
        return (line.body for line, _ in self.lines if line.kind in kinds)

    @property
    def head(self) -> dict[str, Any]:
        """What ``head.json`` holds where this is the end of the chain."""
        return self.record.head

    @cached_property
    def runs(self) -> list[str]:
        """The sealed runs, oldest first."""
        return [body["run"] for body in self.of("run")]

    def latest(self) -> list[dict[str, Any]]:
        """Return the last runs and each model's last full one, and where their texts lie."""
        store = self.record.store
        full = {model["full"]["run"] for model in self.record.models.values() if model["full"]}
        found = []
        for run in sorted({*self.runs[-LATEST:], *full}):
            named = [item["judge"] for item in self.of("labels") if item["run"] == run]
            paths = [store.transcript(run)]
            paths += [store.labels(judge_folder(judge), run) for judge in named]
            first, *labels = (path.relative_to(store.folder).as_posix() for path in paths)
            found.append({"run": run, "transcript": first, "labels": labels})
        return found

    def months(self) -> dict[str, list[Path]]:
        """Return by month the transcripts, labels and readings as they lie in the record.

        Those of batches and nights lie in it by the same names.
        """
        store, found = self.record.store, dict[str, list[Path]]()
        named = [(body["run"], store.transcript(body["run"])) for body in self.of(*PASSES)]
        for body in self.of(*WORDS):
            named.append((body["run"], store.labels(judge_folder(body["judge"]), body["run"])))
        readings = [(run, store.reading(run)) for run, _ in named]
        named += [(run, path) for run, path in dict(readings).items() if exists(path)]
        for run, path in named:
            found.setdefault(month_of(run), []).append(_lying(path))
        return {month: sorted(paths) for month, paths in sorted(found.items())}

    def corpora(self) -> list[Path]:
        """Return the record's copies of the questions that were registered or asked."""
        named = [body["corpus"] for body in self.of("registration", *PASSES)]
        for corpus in named:
            plain_name(corpus["name"])
        return [*dict.fromkeys(corpus_copy(self.record.store, corpus) for corpus in named)]

    def ledger(self) -> dict[str, bytes]:
        """Return the files that belong to no run, by their name in the record."""
        store, newest = self.record.store, b""
        files = {
            "chain.jsonl": b"".join(raw + b"\n" for _, raw in self.lines),
            "head.json": canonical_json(self.head) + b"\n",
        }
        for path in self.corpora():
            files[f"corpora/{path.name}"] = read_bytes(path)
        for line, raw in self.lines:
            if line.kind == "registration":
                newest = raw
                declared = line.body["panel"]
                for path, of in ((store.truth, "truth_sha256"), (store.plan, "plan_sha256")):
                    # A plan is opened when its author opens it; nothing else has its name here.
                    data = path.read_bytes() if declared.get(of) and path.exists() else b""
                    if data and sha256_hex(data) == declared[of]:
                        files[path.name] = data
        if any("truth_sha256" in body for body in self.of("night")):
            files[store.board_truth.name] = read_bytes(store.board_truth)
        files["registration.json"] = newest + b"\n"
        if self.run:
            logs = filter(exists, (store.churn, store.findings))
            files |= {log.name: self._rows(log) for log in logs}
            files["series.json"] = self._series()
        return files

    def _rows(self, log: Path) -> bytes:
        """Return the rows of a derived log up to the run."""
        whole = read_bytes(log).splitlines(keepends=True)
        return b"".join(raw for raw in whole if orjson.loads(raw)["run"] <= self.run)

    def _series(self) -> bytes:
        """Return where the fold stands after the run; folded again where it went on since."""
        path = self.record.store.series
        kept = path.read_bytes() if path.exists() else b"{}"
        if orjson.loads(kept).get("run") == self.run:
            return kept
        for fold, _ in derive_all(self.record.store, (line for line, _ in self.lines)):
            kept = series_bytes(fold)
        return kept


def month_of(run: str) -> str:
    """Return the month of a run, as the record's folders name it."""
    return f"{run[:4]}-{run[4:6]}"


def _lying(path: Path) -> Path:
    """Return `path`, or its compressed form if only that is there."""
    if not exists(path):
        raise IntegrityError(
            "a file which the chain names is missing",
            where=str(path),
            next_step="restore it from a copy of the record",
        )
    return path if path.exists() else path.with_name(path.name + ".gz")


def publish_record(record: Record, folder: Path, *, cache: Path) -> None:
    """Write what the chain of `record` names into `folder`; nothing where there is no chain.

    `cache` keeps the zips, which `folder` links to where the disk allows it.

    Raises
    ------
    IntegrityError
        A file that the chain names is missing, or a line is not canonical.
    """
    sealed, source = Sealed(record), record.store.folder
    if not sealed.lines:
        return
    latest, months = sealed.latest(), []
    texts = [path for run in latest for path in (run["transcript"], *run["labels"])]
    written = sealed.ledger() | {path: read_bytes(source / path) for path in texts}
    sums = {name: sha256_hex(data) for name, data in written.items()}
    for name, data in written.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    parts = sealed.months()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = pool.map(partial(_kept_zip, root=source, cache=cache), parts, parts.values())
        for month, (path, digest) in zip(parts, made, strict=True):
            name = f"{month}.zip"
            _link(path, folder / name)
            sums[name] = digest
            held = {
                kind: [body["run"] for body in sealed.of(of) if month_of(body["run"]) == month]
                for kind, of in zip(("runs", "batches", "nights"), PASSES, strict=True)
            }
            months.append({"month": month, "file": name, "sha256": digest} | held)
    index = {"head": sealed.head, "months": months, "latest": latest}
    data = orjson.dumps(index, option=orjson.OPT_INDENT_2) + b"\n"
    sums["index.json"] = sha256_hex(data)
    (folder / "index.json").write_bytes(data)
    (folder / SUMS).write_bytes(_sums(sums))


def _sums(sums: dict[str, str]) -> bytes:
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(sums.items())).encode()


def _kept_zip(month: str, paths: list[Path], *, root: Path, cache: Path) -> tuple[Path, str]:
    """Return the zip of a month and its SHA-256, made again if what lies in it has changed.

    Its name holds the digests of what is in it and of itself: what is published from it by
    a link, and edited there, is never published again.
    """
    sums = {path.relative_to(root).as_posix(): _digest(path) for path in paths}
    content = sha256_hex(_sums(sums))[:16]
    for path in cache.glob(f"{month}.{content}.*.zip"):
        digest = _digest(path)
        if path.name == f"{month}.{content}.{digest[:16]}.zip":
            return path, digest
    cache.mkdir(parents=True, exist_ok=True)
    part = cache / f"{month}.part"
    with zipfile.ZipFile(part, "w") as into:
        for path in paths:
            packed = path.suffix == ".gz"
            _add(into, path.relative_to(root).as_posix(), path.read_bytes(), packed)
        _add(into, f"{SUMS}-{month}", _sums(sums), False)
    digest = _digest(part)
    for old in cache.glob(f"{month}.*.zip"):
        old.unlink()
    return part.rename(cache / f"{month}.{content}.{digest[:16]}.zip"), digest


def _add(into: zipfile.ZipFile, name: str, data: bytes, packed: bool) -> None:
    """Add a file as if it had been made in 1980: the zip's bytes follow from what it holds."""
    item = zipfile.ZipInfo(name)
    item.create_system, item.external_attr = 3, 0o644 << 16
    into.writestr(item, data, zipfile.ZIP_STORED if packed else zipfile.ZIP_DEFLATED, LEVEL)


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _link(source: Path, target: Path) -> None:
    with suppress(OSError):
        target.hardlink_to(source)
        return
    shutil.copyfile(source, target)
