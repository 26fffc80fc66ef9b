"""A record of two models whose refusals have shapes, for the pages of shapes and entailment.

The run texts and labels are those of :mod:`report.synthetic`, hostile ones included; shapes
are given out here by a hash, so that what the page must count is known without any coder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import report.synthetic

from drift.records.ledger import Ledger
from drift.records.sealing import seal_labels
from drift.records.store import Store, judge_folder, read_rows

SEALED = datetime(2026, 11, 28, tzinfo=UTC)
CODER = {"id": "shapes", "rules": "51" * 32, "fingerprint": "52" * 32}
#: Shapes by model, so that both have some of their own.
GIVEN = {
    report.synthetic.MODELS[0]: ("flat-no", "policy-recital", "redirect", "sermon", "false-reason"),
    report.synthetic.MODELS[1]: ("flat-no", "mixed"),
}


def drawn(*names: str, of: int) -> int:
    """Return a number below `of` that these names always get."""
    return int(hashlib.sha256("|".join(names).encode()).hexdigest()[:8], 16) % of


def shape(model: str, key: str) -> str:
    """Return the shape of a refusal: that of the arm's family in three of four cases."""
    family = key.partition("#")[0]
    name = family if drawn(key, "own", of=4) else key
    return GIVEN[model][drawn(name, "shape", of=len(GIVEN[model]))]


def refusals(store: Store, run: str) -> list[dict[str, Any]]:
    """Return the rows of the run's labels that say refused."""
    rows = read_rows(store.labels(judge_folder(report.synthetic.JUDGE), run))
    return [row for row in rows if row["label"] == "refused"]


def write_shapes(folder: Path, runs: Iterable[str]) -> None:
    """Seal shapes of the refusals of these runs."""
    store, ledger = Store(folder), Ledger(folder)
    for run in runs:
        rows = []
        for row in refusals(store, run):
            said = shape(row["model"], row["key"])
            # In the last run one model's flat refusals have turned to sermons.
            if run == report.synthetic.RUNS[2][0] and said == "flat-no":
                said = "sermon" if row["model"] == report.synthetic.MODELS[0] else said
            rows.append({"key": row["key"], "model": row["model"], "label": said})
            rows[-1] |= {"rule": f"made-up-{said}", "span": [2, 31], "note": "<i>made up</i>"}
        seal_labels(store, ledger, CODER, run, rows, at=SEALED)


def shaped(root: Path) -> Path:
    """Write ``data/test`` of the project at `root`, with shapes of every run; return it."""
    folder = root / "data" / "test"
    report.synthetic.write_record(folder, root / "config" / "probe_bank.json")
    write_shapes(folder, [run for run, _ in report.synthetic.RUNS])
    return folder
