"""What a terminal is shown: text, and progress; providers' words never steer it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

out = Console(soft_wrap=True, highlight=False)
err = Console(stderr=True, soft_wrap=True, highlight=False)


def _inert(text: str) -> str:
    """Return text that a terminal shows and does not obey."""
    shown = (mark if mark.isprintable() or mark == "\n" else f"\\x{ord(mark):02x}" for mark in text)
    return escape("".join(shown))


def say(text: str) -> None:
    """Print a result."""
    out.print(_inert(text))


def warn(text: str) -> None:
    """Print what is no result, apart from the results."""
    err.print(_inert(text))


@contextmanager
def bar(unit: str) -> Iterator[Callable[[str, int, int], None]]:
    """Show progress: bars on a terminal, a line at every tenth otherwise."""
    if err.is_terminal:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f} " + unit),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=err) as bars:
            tasks: dict[str, Any] = {}

            def show(name: str, done: int, total: int) -> None:
                if name not in tasks:
                    tasks[name] = bars.add_task(escape(name), total=total)
                bars.update(tasks[name], completed=done, total=total)

            yield show
        return
    tenths: dict[str, int] = {}

    def tell(name: str, done: int, total: int) -> None:
        tenth = 10 * done // total if total else 0
        if tenth != tenths.get(name):
            tenths[name] = tenth
            warn(f"{name}: {done:.0f} of {total:.0f} {unit}")

    yield tell
