"""The shapes of a record's refusals as the pages read them, and their shares by group."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from drift.judging.shape_measure import CODES
from drift.records.shapes import codings, load_coder, shape_rows
from drift.report.display import Shown, no_run, shown
from drift.report.entailed import Entailed
from drift.report.markup import Markup, html
from drift.report.tables import Record
from drift.report.treated import Treatment, treatments
from drift.stats.shapes import simultaneous_shares

#: Families below which a share is marked as one of few.
SMALL = 20
#: What a row of :attr:`Shaped.coded` says.
EVENT = "model lab run key family topic variant language shape rule span note text".split()
SHARE = "shape shape_count refusals families families_with estimate share_low share_high".split()
SHARE += ["small_n", "reason"]
UNCODED = (
    "<p>The refusals of this record have no shapes yet; <code>drift shapes --panel {}</code> codes "
    "them from the stored bytes.</p>"
)


class Shaped:
    """The coding of each run of a record, up to the run that is shown; see :func:`codings`."""

    def __init__(self, record: Record) -> None:
        self.record = record
        found = codings((line for line, _ in record.sealed), load_coder(record.root))
        self.lines: dict[str, Mapping[str, Any]] = {run: it.body for run, it in found.items()}

    @cached_property
    def full(self) -> dict[str, str]:
        """The last full run of each model whose refusals have shapes."""
        found = {key: of["full"]["run"] for key, of in self.record.models.items() if of["full"]}
        return {key: run for key, run in found.items() if run in self.lines}

    @property
    def newest(self) -> Mapping[str, Any]:
        """The line that coded the newest of the runs shown."""
        return self.lines[max(self.full.values())]

    def rows(self, run: str) -> list[dict[str, Any]]:
        """Return the coded refusals of a run, in the order of its transcript."""
        return shape_rows(self.record.store, self.lines[run])

    @cached_property
    def entailed(self) -> Entailed:
        """The judgings of the record."""
        return Entailed(self.record)

    @cached_property
    def coded(self) -> pd.DataFrame:
        """Every coded refusal of each model's last full run; columns: :data:`EVENT`."""
        rows = (
            self._event(row | {"run": run})
            for run in sorted({*self.full.values()})
            for row in self.rows(run)
            if self.full.get(row["model"]) == run
        )
        return pd.DataFrame(rows, columns=EVENT)

    @cached_property
    def treated(self) -> dict[str, Treatment]:
        """What is known to have been done to models of the record, by model."""
        texts = {str(model): of.text.to_list() for model, of in self.coded.groupby("model")}
        return treatments(self.record, self.full, texts)

    def told(self, model: str) -> str:
        """Return in a few words what was done to a model; empty if nothing is known."""
        return self.treated[model].short if model in self.treated else ""

    def name(self, model: str) -> Markup:
        """Return a model's key, with what was done to it beside."""
        mark = html('<br><span class="drift-small">{}</span>', self.told(model))
        return html("{}{}", model, mark if self.told(model) else "")

    def _event(self, row: Mapping[str, Any]) -> dict[str, Any]:
        family, _, arm = row["key"].partition("#")
        variant = arm.partition("@")[0].partition("~")[0]
        stored = self.record.stored(row["run"]).answers[row["model"], row["key"]]
        return {
            "model": row["model"],
            "lab": self.record.instruments.get(row["model"], {}).get("lab", ""),
            "run": row["run"],
            "key": row["key"],
            "family": family,
            "topic": family.partition("/")[0],
            "variant": variant,
            "language": "zh" if variant == "zh" else "en",
            "shape": row["label"],
            "rule": row["rule"],
            "span": tuple(row.get("span") or (0, 0)),
            "note": row.get("note", ""),
            "text": stored.get("text", ""),
        }

    @property
    def present(self) -> list[str]:
        """The shapes that any refusal has, in the order of the manual."""
        return [name for name in CODES if (self.coded["shape"] == name).any()]


def of_shapes(function: Callable[..., Markup]) -> Callable[..., Shown]:
    """Make a function of shapes a piece of a page; without a run or a coding it says so."""

    @functools.wraps(function)
    def text(shaped: Shaped, *args: Any, **options: Any) -> Markup:
        if not shaped.record.reading:
            return no_run(shaped.record)
        if not shaped.full:
            return html(UNCODED, shaped.record.name)
        return function(shaped, *args, **options)

    return shown(text)


def shares(events: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return the share of each shape of a refusal in each group: one row a group and shape.

    A share is the mean over the families of a group of their own shares; the limits of one
    group hold together. Columns: those of `by` and :data:`SHARE`.
    """
    rows = []
    groups = events.groupby([*by], sort=False) if by else [((), events)]
    for names, group in groups:
        place = dict(zip(by, names if isinstance(names, tuple) else (names,), strict=True))
        counts = family_counts(group)
        for number, (shape, found) in enumerate(
            zip(CODES, simultaneous_shares(counts), strict=True)
        ):
            rows.append(
                {**place, "shape": shape, "shape_count": int(counts[:, number].sum())}
                | {"refusals": len(group), "families": len(counts)}
                | {"families_with": int((counts[:, number] > 0).sum())}
                | {"estimate": found.estimate, "share_low": found.low}
                | {
                    "share_high": found.high,
                    "small_n": len(counts) < SMALL,
                    "reason": found.reason or "",
                }
            )
    return pd.DataFrame(rows, columns=[*by, *SHARE])


def family_counts(events: pd.DataFrame) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return how many refusals of each family have each shape: (families, shapes)."""
    table = pd.crosstab(events.family, events["shape"]).reindex(columns=[*CODES], fill_value=0)
    return table.to_numpy(dtype=np.int64)


def widest_zero(families: int) -> float:
    """Return the upper limit of the share of a shape that none of `families` refusals has."""
    counts = np.zeros((families, len(CODES)), dtype=np.int64)
    counts[:, 0] = 1
    return float(simultaneous_shares(counts)[1].high or 1)
