"""What a page shows: pieces of HTML out of a record, for the notebooks to display.

A piece of a record without a run is one sentence that says so.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pandas as pd
from IPython.display import HTML

from drift.report import figures
from drift.report.markup import Markup, digest, escaped, percent, rate_text, table, when
from drift.report.tables import EXCLUDED, VARIANTS, Record, each, label_grid, rates, responses

#: Characters of a response shown on the page; the record holds the whole text.
SHOWN = 20_000
NO_FULL = "no full run in this series yet"
NO_RUN = "This record holds no run yet; <code>drift refresh</code> makes one."
COVERAGE = "asked determined undetermined truncated empty blocked failed missing".split()


def piece(function: Callable[..., str]) -> Callable[..., HTML]:
    """Make a function that returns HTML a piece of a page; without a run it says so."""

    @functools.wraps(function)
    def shown(record: Record, *args: str) -> HTML:
        text = function(record, *args) if record.reading else f"<p>{NO_RUN}</p>"
        return HTML(text)  # type: ignore[no-untyped-call]

    return shown


def _anchor(family: str) -> Markup:
    return escaped(family.partition("#")[0].replace("/", "-"))


def _links(families: Iterable[str]) -> Markup:
    links = (
        f'<a href="transcripts.html#{_anchor(item)}">{escaped(item.partition("/")[2])}</a>'
        for item in families
    )
    return Markup(", ".join(links) or "none")


def controls_text(controls: Mapping[str, Any]) -> Markup:
    """Return the verdict on a model's controls, which comes before any claim about topics."""
    if controls["refused"]:
        verdict = f'<span class="drift-warning">{escaped(controls["verdict"])}</span>'
        return Markup(f"{verdict}: refused {_links(controls['refused'])}")
    return escaped(f"{controls['verdict']}, {controls['determined']} of {controls['n']} determined")


def change_text(model: Mapping[str, Any]) -> Markup:
    """Return what changed since the last comparable run, in one sentence."""
    change, opened = model["change"], model["series"]["reason"]
    if not change:
        usable = model["coverage"]["usable"]
        plain = "no earlier usable run in this series" if usable else "this run is not usable"
        return Markup(f"Not compared: {escaped(opened or plain)}.")
    kinds = (("newly_refused", "newly refused"), ("newly_answered", "newly answered"))
    moved = [f"{len(change[k])} {word} ({_links(change[k])})" for k, word in kinds if change[k]]
    return Markup(
        f"{' and '.join(moved) or 'No flip'} in {change['compared']} families since run "
        f"{escaped(change['previous_run'])}."
    )


def _range(model: Mapping[str, Any]) -> str:
    rate = model["canonical"]
    if rate["if_none_refused"] is None:
        return "not estimable"
    return f"{percent(rate['if_none_refused'])} to {percent(rate['if_all_refused'])}"


def _midp(model: Mapping[str, Any]) -> str:
    found = model["full"]["language"] if model["full"] else {"reason": NO_FULL}
    return f"not estimable: {found['reason']}" if found["reason"] else f"{found['midp']:.4g}"


def _consistent(model: Mapping[str, Any]) -> str:
    found = model["full"]["wording"] if model["full"] else {"estimate": None, "reason": NO_FULL}
    return rate_text({"refused": found.get("consistent"), **found})


#: The sections of the reading: what each line is called, and where it stands in the
#: reading of a model, or how it is made of it.
SECTIONS: dict[str, dict[str, str | Callable[[Mapping[str, Any]], str]]] = {
    "rates": {
        "Role": "role",
        "Canonical rate, this run": "canonical",
        "Family rate, last full run": "full.family",
        "Controls, this run": lambda model: controls_text(model["controls"]),
        "Controls, all wordings of the last full run": lambda model: (
            controls_text(model["full"]["controls"]) if model["full"] else NO_FULL
        ),
    },
    "coverage": {
        **{name.capitalize(): f"coverage.{name}" for name in COVERAGE},
        "Canonical arms": "coverage.canonical_n",
        "Canonical arms determined": "coverage.canonical_determined",
        "Usable": "coverage.usable",
        "Canonical rate if none or all of the rest were refusals": _range,
        "Stopped early": "stopped",
    },
    "wording": {
        "Consistent": _consistent,
        "Wobbled": "full.wording.wobbled",
        "Tripwires": "full.wording.tripwires",
        "Policies": "full.wording.policies",
        "Ties": "full.ties",
        "A wording without a label": "full.incomplete",
        "Not counted": "full.wording.not_counted",
        "Full run": "full.run",
    },
    "unlock": {
        "Unlocked by a purpose": "full.unlock.unlocked",
        "… of families refused on both bare wordings": "full.unlock.refused_bare",
        "Reverse": "full.unlock.reverse",
        "… of families answered on both bare wordings": "full.unlock.answered_bare",
        "Bare wordings disagree, not counted": "full.unlock.mixed",
        "Full run": "full.run",
    },
    "language": {
        "Refused in Chinese alone": "full.language.refused_zh_only",
        "Refused in English alone": "full.language.refused_en_only",
        "Refused in both": "full.language.both_refused",
        "Twins compared": "full.language.n",
        "Net": "full.language.net",
        "Mid-p": _midp,
        "Full run": "full.run",
    },
    "serving": {
        "Requested": "model",
        "Served model": "serving.served_model",
        "Provider": "serving.provider",
        "Fingerprint": "serving.fingerprint",
        "Changed at this run": "serving.changed",
    },
    "series": {
        "Series": "series.number",
        "Usable runs": "series.index",
        "Opened at run": "series.opened_at_run",
        "Because": lambda model: model["series"]["reason"] or "first run of this model",
        "Instrument": "instrument",
    },
}


def _line(model: Mapping[str, Any], line: str | Callable[[Mapping[str, Any]], str]) -> Markup:
    if callable(line):
        return escaped(line(model))
    value: Any = model
    for name in line.split("."):
        if value is None:
            return escaped(NO_FULL)
        value = value[name]
    match value:
        case bool() | None:
            return escaped("yes" if value else "no")
        case list() if line.startswith("serving."):
            return escaped(", ".join(value) or "not reported")
        case list():
            return _links(item if isinstance(item, str) else item["family"] for item in value)
        case {"estimate": _}:
            return rate_text(value)
    return digest(value) if line == "instrument" else escaped(value)


@piece
def section(record: Record, name: str) -> str:
    """Return one section of the reading: its lines down, the models across."""
    columns: dict[str, list[Any]] = {"": list(SECTIONS[name])}
    for key, model in record.models.items():
        columns[key] = [_line(model, line) for line in SECTIONS[name].values()]
    return table(pd.DataFrame(columns))


@piece
def changes(record: Record) -> str:
    """Return for each model what changed since the run before, and what such a look can see."""
    return "".join(
        f"<p><b>{escaped(key)}</b>: {change_text(model)} "
        f"{escaped(model['change']['sentence'] if model['change'] else '')}</p>"
        for key, model in record.models.items()
    )


@piece
def masthead(record: Record) -> str:
    """What the page reads: run, judge, method, assurance and the head of the ledger."""
    reading = record.reading or {}
    judge, head = reading["judge"], reading["head"]
    facts = {
        "Record": record.name,
        "Run": f"{reading['run']} (number {reading['number']}, {reading['scope']})",
        "When": when(reading["started_at"]),
        "Method": f"version {reading['method_version']}",
        "Judge": f"{judge['id']}, fingerprint {judge['fingerprint'][:12]}",
        "Assurance": reading["assurance"],
        "Head": f"{head['seq']}, {head['hash'][:16]}…",
    }
    items = "".join(f"<div><dt>{k}</dt><dd>{escaped(v)}</dd></div>" for k, v in facts.items())
    return f'{banner(record)}<dl class="drift-facts">{items}</dl>'


def banner(record: Record) -> str:
    """Return a notice where the record is shown as of an earlier run."""
    if record.as_of is None:
        return ""
    text = f"The record as of run {escaped(record.as_of)}; later runs are left out."
    return f'<p class="drift-banner">{text}</p>'


@piece
def findings(record: Record) -> str:
    """Every dated finding up to this run, newest first."""
    lines = [
        {
            "When": Markup(
                f'<span id="finding-{escaped(i["id"])}">{escaped(when(i["at"]))}</span>'
            ),
            "Model": i["model"],
            "Kind": i["kind"].replace("_", " "),
            "What": i["detail"],
            "Family": _links([i["family"]]) if i.get("family") else "",
        }
        for i in record.findings
    ]
    return table(pd.DataFrame(lines), empty="No finding so far.")


@piece
def provenance(record: Record) -> str:
    """The hashes that tie the page to the sealed record."""
    reading = record.reading or {}
    judge, corpus, now = reading["judge"], reading["corpus"], record.head
    agreed, anchors = judge["agreement"]
    read = reading["head"]
    lines = {
        "Ledger line read": f"{read['seq']}, {digest(read['hash'])}",
        "Head of the record": f"{now['seq']}, {digest(now['hash'])}" if now else "not stored",
        "Judge": f"{escaped(judge['id'])}, fingerprint {digest(judge['fingerprint'])}, rules "
        f"{digest(judge['rules'])}",
        "Anchors": f"{agreed} of {anchors} labels agree with the author's, which shows that the "
        "judge is unchanged, not that it is right",
        "Corpus": f"{escaped(corpus['name'])} {escaped(corpus['version'])}, {corpus['families']} "
        f"families ({corpus['sensitive']} sensitive, {corpus['controls']} controls), "
        f"{digest(corpus['sha256'])}",
        "Package and method": f"{escaped(reading['package_version'])}, version "
        f"{escaped(reading['method_version'])}",
        "Assurance": escaped(reading["assurance"]),
    }
    rows = [(name, Markup(value)) for name, value in lines.items()]
    return table(pd.DataFrame(rows, columns=["What", "Value"]))


def _figure(name: str, caption: str, picture: str, behind: pd.DataFrame) -> str:
    return (
        f'<figure class="drift-figure" id="{name}"><div tabindex="0">{picture}</div>'
        f"<figcaption>{caption}</figcaption></figure>\n"
        f"<details><summary>Table behind the figure</summary>{table(behind)}</details>"
    )


@piece
def rates_plot(record: Record, by: str) -> str:
    """Interval plot of the rates by ``model`` or by ``topic``, with the table behind it."""
    caption, measures, series = {
        "model": (
            "Share of sensitive families refused by each model, with Wilson 95 % intervals. "
            "Overlapping intervals do not show that two models are alike.",
            ("canonical", "family"),
            "measure",
        ),
        "topic": (
            "Canonical rate by topic, with Wilson 95 % intervals. A topic holds few families: "
            "look at the width before the mark.",
            ("topic",),
            "model",
        ),
    }[by]
    frame = rates(record)
    frame = frame[frame.measure.isin(measures)].sort_values(by, kind="stable", ignore_index=True)
    frame = frame.assign(group=frame[by], series=frame[series])
    name, alt = f"rates-by-{by}", escaped(figures.describe_intervals(frame))
    picture = figures.svg(figures.interval_plot, frame, label=name, alt=alt)
    behind = pd.DataFrame(
        {
            by.capitalize(): frame.group,
            series.capitalize(): frame.series,
            "Rate": [rate_text(row._asdict()) for row in each(frame)],
            **{kind: frame[kind] for kind in EXCLUDED if frame[kind].any()},
            "Run": frame.run,
        }
    )
    return _figure(name, caption, picture, behind)


@piece
def labels_by_family(record: Record) -> str:
    """Grid of what each model did on each wording of each family in its last full run."""
    frame = label_grid(responses(record), record)
    if frame.empty:
        return f"<p>{NO_FULL}</p>"
    name, alt = "labels-by-family", escaped(figures.describe_grid(frame))
    picture = figures.svg(figures.label_grid, frame, label=name, alt=alt)
    wide = frame.assign(arm=frame.model + " " + frame.variant)
    wide = wide.pivot_table(index="family", columns="arm", values="outcome", aggfunc="first")
    caption = (
        "Each model's last full run: one mark for each wording of each family. A row whose "
        "marks differ wobbles between wordings; a refused control points at the instrument."
    )
    return _figure(name, caption, picture, wide.reset_index())


@piece
def transcripts(record: Record) -> str:
    """Every response of the latest run and of each model's last full run, by topic."""
    links, parts = [], []
    for topic, families in responses(record).groupby("topic", sort=True):
        name, anchor = escaped(str(topic).replace("-", " ")), f"topic-{escaped(topic)}"
        links.append(f'<a href="#{anchor}">{name}</a> ({families.family.nunique()})')
        parts.append(f'<h2 id="{anchor}">{name}</h2>')
        parts += [_family(record, str(key), rows) for key, rows in families.groupby("family")]
    return "\n".join([f'<p class="drift-topics">{" · ".join(links)}</p>', *parts])


def _family(record: Record, family: str, rows: pd.DataFrame) -> str:
    item = record.families.get(family)
    asked = dict(zip(VARIANTS, (*item.wordings, item.zh), strict=True)) if item else {}
    control = ' <span class="drift-control">control</span>' if item and item.control else ""
    latest = rows.sort_values("run").drop_duplicates(["model", "key"], keep="last")
    chips = [
        f"<div><b>{escaped(model)}</b> "
        + " ".join(_chip(row.outcome, row.variant) for row in each(answers))
        + "</div>"
        for model, answers in latest.sort_values("key").groupby("model")
    ]
    shown = [f"<p>Why it is benign: {escaped(item.why_benign)}</p>"] if item else []
    for variant, answers in rows.groupby("variant", sort=True):
        question = asked.get(str(variant)) or "The record holds no copy of the question."
        shown.append(f'<p class="drift-question"><b>{escaped(variant)}</b> {escaped(question)}</p>')
        shown += [_response(row) for row in each(answers)]
    return (
        f'<section class="drift-family" id="{_anchor(family)}">'
        f"<h3>{escaped(family.partition('/')[2])}{control}</h3>"
        f'<p>{escaped(asked.get("en-1", ""))}</p><div class="drift-chips">{"".join(chips)}</div>'
        f"<details><summary>{len(rows)} responses</summary>{''.join(shown)}</details></section>"
    )


def _chip(outcome: str, text: str) -> Markup:
    kind = outcome if outcome in figures.OUTCOME_SHAPES else "other"
    return Markup(
        f'<span class="drift-chip drift-{kind}">{escaped(text)} {escaped(outcome)}</span>'
    )


def _response(row: Any) -> str:
    facts = [row.run, f"rule {row.rule}" if row.rule else "", row.note]
    facts += [f"status {row.status}" if row.status != "ok" else "", row.error]
    facts += [f"served by {row.served_model}" if row.served_model else "", row.provider]
    # HTML drops one newline after <pre>: ours, so that none of the text's is lost.
    text = "" if row.status == "missing" else f"<pre>\n{_marked(row)}</pre>"
    return (
        f'<div class="drift-response"><p><b>{escaped(row.model)}</b> '
        f"{_chip(row.outcome, '')} {escaped(' · '.join(filter(None, facts)))}</p>{text}</div>"
    )


def _marked(row: Any) -> str:
    """Return the text with the judge's span marked, cut to what a page can hold."""
    start, end = (row.start, row.end) if row.start is not None else (0, 0)
    first = max(0, start - SHOWN // 2) if end > SHOWN else 0
    last = min(len(row.text), first + SHOWN)
    start, end = min(max(start, first), last), min(end, last)
    text = f"{escaped(row.text[first:start])}<mark>{escaped(row.text[start:end])}</mark>"
    text = text.replace("<mark></mark>", "") + escaped(row.text[max(first, end) : last])
    if last - first < len(row.text):
        text += (
            f'\n<i class="drift-cut">Characters {first:,} to {last:,} of {len(row.text):,}; '
            "the record holds the whole text.</i>"
        )
    return text or '<i class="drift-cut">no text</i>'
