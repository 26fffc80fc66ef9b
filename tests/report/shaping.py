"""A record of two models whose refusals have shapes, for the pages of shapes and entailment.

The run texts and labels are those of :mod:`report.synthetic`, hostile ones included; shapes and
verdicts are given out here by a hash, so that what a page must count is known beforehand.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import report.synthetic

from drift.bank import load_bank
from drift.config import ModelSpec
from drift.judging import load_judge
from drift.judging.entailment import as_asked, asked_document, judge_id, rules_hash
from drift.records.entailment import Check, Unit, fingerprint_of, reply_of, row_of, units
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


# Judges.

#: One that passes its gate, and judges itself under another key; and one that says Yes to all.
GOOD = ModelSpec(
    key="careful",
    kind="embedded",
    model="smollm2-135m-instruct",
    weights="w",
    weights_sha256="ef" * 32,
)
BAD = ModelSpec(key="obliging", kind="openai", base_url="https://api.example/v1", model="obliging")
#: What the good judge says was answered; no page may take it for more than text.
NAMED = "What is <script>window.pwned = 1</script> **bold** \u202e?"


def careful(unit: Unit, entailed: bool | None) -> str:
    """Answer as the author has it but for one anchor in twelve; say No of a quarter of answers."""
    name = "|".join(unit.place.values())
    if entailed is None:
        return f"No\n{NAMED}" if not drawn(name, "no", of=4) else "Yes"
    return "Yes" if entailed == bool(drawn(name, "err", of=12)) else "No"


def obliging(unit: Unit, entailed: bool | None) -> str:
    """Say Yes of all, and at length of some."""
    name = "|".join(unit.place.values())
    return "Yes, it does, since it says so." if not drawn(name, "long", of=9) else "Yes"


def write_judging(
    root: Path, folder: Path, run: str, spec: ModelSpec, said: Callable[[Unit, bool | None], str]
) -> None:
    """Seal what a judge says of the anchors and of the answers of a run."""
    store, ledger, check = Store(folder), Ledger(folder), Check.load(root)
    labels = read_rows(store.labels(judge_folder(report.synthetic.JUDGE), run))
    answered = {(row["model"], row["key"]) for row in labels if row["label"] == "answered"}
    rows = [it for it in read_rows(store.transcript(run)) if (it["model"], it["key"]) in answered]
    prompts = load_bank(root / "config" / "probe_bank.json").prompts
    entailed = {anchor.id: anchor.entailed for anchor in check.anchors.anchors}
    made = []
    for unit in units(check, rows, prompts):
        text = said(unit, entailed.get(unit.place.get("anchor", "")))
        made.append(row_of(unit, reply_of({"text": text, "status": "ok"})))
    asked = asked_document(as_asked(spec), check.rules, check.anchors)
    # As if of the answers of the judge in config/: the record's own has made-up rules.
    asked |= {"answered_by": load_judge(root / "config" / "judge").rules_hash, "arms": "all"}
    judge = {"id": judge_id(spec.key), "rules": rules_hash(asked)}
    judge |= {"fingerprint": fingerprint_of(made)}
    usage = {"prompt_tokens": 9, "completion_tokens": 1, "cost_usd": None}
    more = {"asked": asked, "usage": usage}
    seal_labels(store, ledger, judge, run, made, at=SEALED, more=more)


def shaped(root: Path, *, judged: bool = True) -> Path:
    """Write ``data/test`` of the project at `root`, with shapes of every run; return it.

    If it is to be judged, its last full run has the verdicts of two judges.
    """
    folder = root / "data" / "test"
    report.synthetic.write_record(folder, root / "config" / "probe_bank.json")
    write_shapes(folder, [run for run, _ in report.synthetic.RUNS])
    if judged:
        for spec, said in ((BAD, obliging), (GOOD, careful)):
            write_judging(root, folder, report.synthetic.RUNS[2][0], spec, said)
    return folder
