"""The page of integrity: the chain of a record, what it registers, and how to check it.

Nothing is verified here: that is for ``drift verify`` and for the reader's own browser.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pandas as pd

from drift.records.ledger import PASSES, WORDS, Line
from drift.records.store import exists, judge_folder
from drift.report.archive import Sealed, month_of
from drift.report.display import piece
from drift.report.markup import Markup, fill, html, joined, percent, table, when, with_data
from drift.report.tables import Record

#: Newest baselines on the page; the file beside the table holds them all.
LISTED = 40
HASH = '<span class="drift-hash">{}</span>'
IN_FORCE = (
    "Questions {corpus_version}. Slots of {hours} hours. Judge {judge_fingerprint:.12}; "
    "{labels_moved} labels moved by rescoring. Models: {models}. Hash of the line: "
    '<span class="drift-hash">{line_hash}</span>'
)
NO_CHAIN = Markup("<p>This record has no chain.jsonl: nothing in it is sealed.</p>")
VERIFIER = (
    '<div class="drift-verify" data-record="record/"{}><p>Where scripts run, a button here fetches '
    "the chain and the latest runs, computes every hash again and names what fails. Without "
    "scripts, or from pages opened as files, the commands below check the same.</p></div>"
)
COMMANDS = """<p>The head below is that of this page, line {seq} of the chain (lines count from 0).
The hash of the same line in a copy of the chain that you hold, or that someone else kept:</p>
<pre><code>sed -n {number}p chain.jsonl | tr -d '\\n' | sha256sum</code></pre>
<p>It must print</p>
<pre><code>{hash}</code></pre>
<p>An older head is checked in the same way, with its own line: every feed entry, every
<code>runs/&lt;run&gt;.json</code> and every page that someone kept names one. If it fits,
nothing up to its line was changed since; if it does not, keep both.</p>"""


def ledger_lines(record: Record) -> list[Line]:
    """Return the lines of the chain as the site publishes it."""
    return [line for line, _ in Sealed(record).lines]


@piece
def chain(record: Record) -> Markup:
    """Return how many lines of each kind the chain holds, the first, the last and its head."""
    if not (lines := ledger_lines(record)):
        return NO_CHAIN
    frame = pd.DataFrame([_described(line) for line in lines])
    kinds = frame.groupby("line_kind", sort=False)
    first, last = kinds.first().reset_index(), kinds.last().reset_index()
    shown = pd.DataFrame(
        {
            "Kind": first.line_kind,
            "Lines": kinds.size().to_numpy(),
            "First": first.seq,
            "First written": first["at"].map(when),
            "Last": last.seq,
            "Last written": last["at"].map(when),
        }
    )
    end = lines[-1]
    said = html("<p>{} lines. Head: line {}, " + HASH + ".</p>", len(lines), end.seq, end.hash)
    return joined([said, with_data(table(shown), "chain", frame)])


def _described(line: Line) -> dict[str, Any]:
    body = line.body
    fields = {"seq": line.seq, "at": body["at"], "line_kind": line.kind}
    return fields | {"run": body.get("run", ""), "line_hash": line.hash}


@piece
def registrations(record: Record) -> Markup:
    """Return every registration with what it commits to and what it changed."""
    rows = []
    for line in ledger_lines(record):
        if line.kind == "registration":
            body, panel = line.body, line.body["panel"]
            moved = body.get("rescored", {}).get("moved", {})
            rows.append(
                {
                    "seq": line.seq,
                    "at": body["at"],
                    "changed": ", ".join(body.get("changes", [])),
                    "corpus_version": body["corpus"]["version"],
                    "models": ", ".join(panel["models"]),
                    "cadence_hours": panel["cadence_hours"],
                    "judge_fingerprint": body["judge"]["fingerprint"],
                    "labels_moved": sum(moved.values()),
                    "line_hash": line.hash,
                }
            )
    if not rows:
        return NO_CHAIN
    shown = [
        {
            "Line": html("{}<br>{}", row["seq"], when(row["at"])),
            "Changed": row["changed"] or "first registration",
            "In force": html(IN_FORCE, hours=row["cadence_hours"] or "no", **row),
        }
        for row in rows
    ]
    return with_data(table(pd.DataFrame(shown)), "registrations", pd.DataFrame(rows))


@piece
def judges(record: Record) -> Markup:
    """Return whose word the chain seals, on how many runs, batches or nights, and which is read."""
    found: dict[str, dict[str, Any]] = {}
    for line in ledger_lines(record):
        if line.kind in WORDS:
            judge, run = line.body["judge"], line.body["run"]
            first = {"judge": judge["id"], "rules": judge["rules"], "labels_lines": 0}
            first |= {"judge_fingerprint": judge.get("fingerprint"), "first_labelled": run}
            row = found.setdefault(judge_folder(judge), first)
            row["labels_lines"] += 1
            row["last_labelled"] = run
    if not found:
        return NO_CHAIN
    read = judge_folder(record.reading["judge"])
    frame = pd.DataFrame([row | {"is_read": name == read} for name, row in found.items()])
    shown = pd.DataFrame(
        {
            "Judge": frame.judge,
            "Rules": frame.rules.str[:12],
            "Fingerprint": frame.judge_fingerprint.str[:12],
            "Lines": frame.labels_lines,
            "First run": frame.first_labelled,
            "Last run": frame.last_labelled,
            "Read by this page": frame.is_read.map({True: "yes", False: "no"}),
        }
    )
    return with_data(table(shown), "labels-lines", frame)


#: Columns of a baseline whose plain names mean something else in other tables.
_BASELINE = {"reason": "because", "flips": "burn_in_flips", "compared": "burn_in_compared"}
_BASELINE |= {"values": "burn_in_values"}


@piece
def baselines(record: Record) -> Markup:
    """Return the newest baselines: series opened or closed, and calibrations that ended."""
    lines = [line.body for line in ledger_lines(record) if line.kind == "baseline"]
    names = "seq at event model series process run reason flips compared p0 values".split()
    frame = pd.DataFrame(lines, columns=names, dtype=object)
    frame = frame.rename(columns=_BASELINE)
    shown = pd.DataFrame(
        [
            {
                "Line": html("{}<br>{}", body["seq"], when(body["at"])),
                "Model": html("{}<br>series {}", body["model"], body["series"]),
                "What": _told(body),
            }
            for body in lines[: -LISTED - 1 : -1]
        ]
    )
    rest = len(lines) - len(shown)
    more = f"<p>The newest {LISTED}; {rest} older ones are in the file.</p>" if rest else ""
    return joined([Markup(more), with_data(table(shown), "baselines", frame)])


def _told(body: Mapping[str, Any]) -> str:
    """Return what a baseline line states, in words."""
    if body["event"] != "calibrated":
        return f"{body['event']}: {body['reason']}"
    seen = f"{body.get('values')} values"
    if "p0" in body:
        bound = "not estimable" if body["p0"] is None else percent(float(body["p0"]))
        seen = f"{body['flips']} flips of {body['compared']} arms: p0 {bound}"
    return f"{body['process']} calibrated on {seen}"


@piece
def verifier(record: Record) -> Markup:
    """Return the place of the button that verifies the record, with the head of this page."""
    named = (html(' data-{}="{}"', name, value) for name, value in record.head.items())
    return html(VERIFIER, joined(named))


@piece
def commands(record: Record) -> Markup:
    """Return the commands that fetch the whole record from the site and check it offline."""
    store, sealed = record.store, Sealed(record)
    logs = [store.series, store.churn, store.findings]
    logs += [store.truth, store.plan, store.board_truth]
    files = ["chain.jsonl", "head.json", "registration.json"]
    files += [f"corpora/{path.name}" for path in sealed.corpora()]
    files += [path.name for path in logs if exists(path)]
    lists = {"files": " ".join(files), "months": " ".join(sealed.months())}
    return fill(record.root, "fetch", name=record.name, **lists) if sealed.lines else NO_CHAIN


@piece
def head(record: Record) -> Markup:
    """Return how to hold the head of this page against a copy kept elsewhere."""
    named = record.reading["head"]
    return html(COMMANDS, number=named["seq"] + 1, **named)


@piece
def months(record: Record) -> Markup:
    """Return the record as one file a month, with the runs, batches and nights in it."""
    sealed = Sealed(record)
    runs, batches, nights = (
        Counter(month_of(body["run"]) for body in sealed.of(kind)) for kind in PASSES
    )
    link = '<a href="record/{0}.zip" download>{0}.zip</a>'
    rows = [
        {"Month": html(link, month), "Runs": runs[month]}
        | ({"Batches": batches[month]} if batches else {})
        | ({"Nights": nights[month]} if nights else {})
        for month in sealed.months()
    ]
    files = ("chain.jsonl", "head.json", "registration.json", "index.json", "SHA256SUMS")
    links = joined((html('<a href="record/{0}">{0}</a>', name) for name in files), " · ")
    return joined([html("<p>{}</p>", links), table(pd.DataFrame(rows))])
