"""What a notebook displays: inert HTML, and beside it the tables that a reader downloads."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from drift.config import project_root
from drift.report import figures
from drift.report.markup import Markup, fill, html, table, with_data
from drift.report.tables import Record, each

#: Under this type the output of a cell holds the tables behind what it shows.
DATA = "application/vnd.drift.tables+json"
NO_RUN = Markup("<p>This record holds no run yet; <code>drift refresh</code> makes one.</p>")


def no_run(record: Record) -> Markup:
    """Say of a record without a reading whether it has no run, or none that early."""
    if record.as_of:
        return html("<p>This record holds no run up to {}.</p>", record.as_of)
    return NO_RUN


@dataclass(frozen=True)
class Shown:
    """What a notebook displays: HTML, and beside it the tables that a reader downloads."""

    text: Markup

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        tables = {name: plain_table(frame) for name, frame in self.text.data.items()}
        # Without a plain text of our own every notebook would hold the HTML twice.
        shown = {"text/html": str(self.text), "text/plain": f"HTML, {len(self.text):,} characters"}
        return shown | ({DATA: tables} if tables else {})


def plain_table(frame: pd.DataFrame) -> dict[str, list[Any]]:
    """Return a frame as JSON can hold it: its columns, and its rows to 10 significant digits."""
    return {
        "columns": list(frame),
        "rows": [[_plain(value) for value in row] for row in each(frame)],
    }


def _plain(value: Any) -> Any:
    if isinstance(value, pd.Timestamp):
        return f"{value:%Y-%m-%dT%H:%M:%SZ}"
    value = value.item() if hasattr(value, "item") else value
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return None
    return float(f"{value:.10g}") if isinstance(value, float) else value


def shown(function: Callable[..., Markup]) -> Callable[..., Shown]:
    """Make a function that returns HTML a piece of a page, which a notebook displays."""

    @functools.wraps(function)
    def show(*args: Any, **options: Any) -> Shown:
        return Shown(function(*args, **options))

    return show


def piece(function: Callable[..., Markup]) -> Callable[..., Shown]:
    """Make a function of a record a piece of a page; without a run it says so."""

    @functools.wraps(function)
    def text(record: Record, *args: Any) -> Markup:
        return function(record, *args) if record.reading else no_run(record)

    return shown(text)


def figure(
    name: str,
    kind: figures.Picture,
    frame: pd.DataFrame,
    behind: pd.DataFrame,
    caption: str,
    *,
    data: pd.DataFrame | None = None,
) -> Markup:
    """Return a figure of `frame` with its caption, and the table behind it folded.

    `data` is what a reader downloads, if it is more than the figure draws.
    """
    picture = Markup(figures.svg(kind, frame, label=name))
    texts = {"caption": caption.strip(), "behind": table(behind)}
    made = fill(project_root(), "figure", name=name, picture=picture, **texts)
    return with_data(made, name, frame if data is None else data, kinds=("csv", "json", "svg"))
