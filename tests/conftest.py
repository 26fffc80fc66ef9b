"""Shared fixtures: no socket but loopback, and skips that `DRIFT_REQUIRE` turns into failures."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import settings

from drift import cli
from drift.errors import DriftError
from drift.judging.answers import load_board_rules
from drift.judging.encoder import Encoder
from drift.probing.weights import weights_path

ROOT = Path(__file__).resolve().parent.parent
NOT_RUN: set[str] = set()
#: Exit code, output and errors of a command.
Said = tuple[int, str, str]
# A deadline would assert on the wall clock.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture(autouse=True)
def loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test talk to this machine alone."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: object) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6):
            host = address[0] if isinstance(address, tuple) else address
            if host not in ("127.0.0.1", "::1", "localhost"):
                raise AssertionError(f"a test tried to reach {address!r}")
        connect(self, address)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "connect", guarded)


@pytest.fixture
def no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail a test in which Python opens a socket or looks a name up."""

    def refused(*args: object, **options: object) -> None:
        raise AssertionError(f"a socket was opened or a name looked up: {args}")

    for name in ("socket", "create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, refused)


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., Said]:
    """Call ``drift`` with these arguments; return exit code, output and errors."""

    def call(*arguments: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["drift", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return (int(ended.value.code or 0), *capfd.readouterr())

    return call


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a copy of the configuration, which commands are called in."""
    shutil.copytree(ROOT / "config", tmp_path / "config")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    monkeypatch.setenv("REFUSAL_DRIFT_ROOT", str(tmp_path))
    return tmp_path


def need(what: str, present: bool) -> None:
    """Skip unless `present`; fail instead where ``DRIFT_REQUIRE`` lists `what`."""
    if present:
        return
    if what in os.environ.get("DRIFT_REQUIRE", "").split(","):
        pytest.fail(f"{what} is required here (DRIFT_REQUIRE) and absent")
    NOT_RUN.add(what)
    pytest.skip(f"no {what} on this machine")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if NOT_RUN:
        terminalreporter.write_line(
            f"not run on this machine: tests that need {', '.join(sorted(NOT_RUN))}"
        )


@pytest.fixture(scope="session")
def smollm2_weights() -> Path:
    """The reference target's weights, checked."""
    try:
        return weights_path("SmolLM2-135M-Instruct.Q4_1.gguf", root=ROOT)
    except DriftError:
        need("weights", False)
        raise


@pytest.fixture(scope="session")
def encoder() -> Encoder:
    """The board's sentence encoder, its files checked."""
    rules = load_board_rules(ROOT / "config" / "board.toml")
    try:
        return Encoder.load(rules.encoder, root=ROOT)
    except DriftError:
        need("weights", False)
        raise


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of a Chromium."""
    path = shutil.which("chromium")
    need("browser", path is not None)
    assert path is not None
    return path


class Ticking:
    """A clock that moves only when it is told to."""

    def __init__(self, start: datetime) -> None:
        self.now = start

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **delta: float) -> None:
        self.now += timedelta(**delta)


@pytest.fixture
def clock() -> Ticking:
    return Ticking(datetime(2026, 3, 1, 0, 5, tzinfo=UTC))


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    """A project folder with the shipped configuration, which a test may change."""
    shutil.copytree(ROOT / "config", tmp_path / "config")
    (tmp_path / "notebooks").mkdir()
    yield tmp_path
