"""What the shapes of a record rest on: texts with the deciding words, rules, readers, a script."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import orjson
import pandas as pd

from drift.judging.shapes import SHAPES
from drift.records.people import read_by_people
from drift.records.shapes import load_coder
from drift.report.markup import Markup, html, joined, percent, table, with_data
from drift.report.pages import anchor
from drift.report.shaped import Shaped, of_shapes
from drift.report.shapes import MEANINGS
from drift.report.tables import Record, each
from drift.report.transcripts import marked

#: Examples of one shape by one model, and characters shown of each around the deciding words.
EXAMPLES, ROOM = 2, 900


@of_shapes
def examples(shaped: Shaped) -> Markup:
    """Return for each shape and model a text or two of the record, the deciding words marked."""
    parts, chosen = [], []
    for shape in shaped.present:
        found = [*_chosen(shaped, shape)]
        chosen += found
        texts = joined(map(_example(shaped), found))
        fold = "<details><summary><b>{}</b>: {}; {} shown</summary>{}</details>"
        parts.append(html(fold, shape, MEANINGS[shape], len(found), texts))
    columns = ["model", "run", "key", "shape", "rule", "note"]
    behind = pd.DataFrame([{name: getattr(row, name) for name in columns} for row in chosen])
    return with_data(joined(parts), "shape-examples", behind)


def _chosen(shaped: Shaped, shape: str) -> Iterator[Any]:
    """Yield the first refusals of each model with a shape: of two families where there are."""
    events = shaped.events[shaped.events["shape"] == shape]
    for model in shaped.full:
        mine = events[events.model == model].sort_values(["variant", "family"])
        spread = pd.concat([mine.drop_duplicates("family"), mine[mine.duplicated("family")]])
        yield from each(spread.head(EXAMPLES))


def _example(shaped: Shaped) -> Any:
    def said(row: Any) -> Markup:
        question = shaped.record.stored(row.run).prompts.get(row.key)
        link = html('<a href="transcripts.html#{}">{}</a>', anchor(row.family), row.key)
        facts = joined(filter(None, (link, f"rule {row.rule}", row.note)), " · ")
        shown = marked(row, ROOM)
        tall = Markup(' tabindex="0"')
        return html(
            '<div class="drift-response"><p><b>{}</b> {}</p><p class="drift-question">{}</p>'
            "<pre{}>\n{}</pre></div>",
            *(row.model, facts, question or "The record holds no copy of the question."),
            *(tall, shown),
        )

    return said


@of_shapes
def rules(shaped: Shaped) -> Markup:
    """Return every rule of the present coder with its reason, and how often each decided here."""
    present = load_coder(shaped.record.root)
    known = {rule.id: (kind, rule.reason) for kind, of in present.rules.items() for rule in of}
    known |= {name: ("structural", reason) for name, reason in present.structural.items()}
    coded = shaped.coded
    theirs = {rule.id: rule.reason for of in present.judge.rules.values() for rule in of}
    theirs |= present.judge.structural
    for name in coded.rule.value_counts().index.difference([*known]):
        whose = "of the refusal judge" if name in theirs else "of another version"
        known[name] = (whose, theirs.get(name, ""))
    rows = [
        {"rule": name, "rule_kind": kind, "rule_reason": reason}
        | {"decided_full": int((coded.rule == name).sum())}
        | {"shapes_decided": _shapes_of(coded[coded.rule == name])}
        for name, (kind, reason) in known.items()
    ]
    frame = pd.DataFrame(rows)
    shown = frame[frame.decided_full > 0].sort_values(
        "decided_full", ascending=False, kind="stable"
    )
    text = table(
        pd.DataFrame(
            {
                "Rule": [html("{}<br>{}", row.rule, row.rule_kind) for row in each(shown)],
                "Reason": shown.rule_reason.to_list(),
                "Decided": shown.decided_full.to_list(),
                "Shape": shown.shapes_decided.to_list(),
            }
        )
    )
    idle = "<p>{} of {} rules decided nothing here: this record does not test them.</p>"
    unused = int((frame.decided_full == 0).sum())
    return with_data(joined([text, html(idle, unused, len(frame))]), "shape-rules", frame)


def _shapes_of(rows: pd.DataFrame) -> str:
    counts = rows["shape"].value_counts()
    return ", ".join(f"{name} {n}" for name, n in counts.items())


# People.


@of_shapes
def people(shaped: Shaped) -> Markup:
    """Return how far people who read refusals of this record agree with the coder, by shape."""
    lines = [line for line, _ in shaped.record.sealed]
    studies = read_by_people(shaped.record.store, lines, scheme="shape", of=shaped.newest["judge"])
    if not studies:
        return Markup(
            "<p><b>No person has read refusals of this record for their shape</b>, so how often "
            "the coder is right here is not known. <code>drift code draw --scheme shape</code> "
            "draws a sample for readers.</p>"
        )
    study = studies[-1]
    if study["reason"]:
        return html("<p>Sealed readings are not shown: {}.</p>", study["reason"])
    found = [row for pair in study["pairs"] for row in _words(pair)]
    shown = [
        {"Readers": " and ".join(of), "Shape": shape, "Texts": n}
        | {name.capitalize(): _estimate(one) for name, one in figures.items()}
        for of, shape, n, figures in found
    ]
    behind = [
        {"first_reader": of[0], "second_reader": of[1], "shape": shape, "coded_rows": n}
        | {"figure": name, "figure_value": one["estimate"]}
        | {"figure_low": one["low"], "figure_high": one["high"], "reason": one["reason"] or ""}
        for of, shape, n, figures in found
        for name, one in figures.items()
    ]
    parts = [table(pd.DataFrame(shown)), *map(_confused, study["pairs"])]
    return with_data(joined(parts), "shape-people", pd.DataFrame(behind))


NONE = {"estimate": None, "low": None, "high": None, "reason": ""}
_Word = tuple[tuple[str, str], str, int, dict[str, Mapping[str, Any]]]


def _words(pair: Mapping[str, Any]) -> Iterator[_Word]:
    """Yield the figures of two readers over all shapes, then for each against the rest."""
    of = pair["first"].replace("judge", "the coder"), pair["second"]
    for shape, figures in {"all": {"kappa": pair["kappa"]}, **pair["by_word"]}.items():
        known = {name: figures.get(name) or NONE for name in ("kappa", "precision", "recall")}
        yield of, shape, pair["rows"], known


def _estimate(one: Mapping[str, Any]) -> Markup:
    if one["estimate"] is None:
        return html("not estimable: {}", one["reason"]) if one["reason"] else Markup("–")
    if one["low"] is None:
        return html("<b>{:.2f}</b>", one["estimate"])
    return html("<b>{:.2f}</b> [{:.2f}, {:.2f}]", one["estimate"], one["low"], one["high"])


def _confused(pair: Mapping[str, Any]) -> Markup:
    """Return which shapes two readers take for each other."""
    said = [
        html("{} and {}: {}", *it["words"], " and ".join(map(str, it["units"])))
        for it in pair["confusions"]
    ]
    line = "<p>{} and {}, shapes taken for each other: {}.</p>"
    return html(line, pair["first"], pair["second"], joined(said, "; ") or "none")


# A script.

UNSCRIPTED = Markup("<p>The models of this record are not scripted: no truth to hold it to.</p>")


def stated(record: Record, run: str) -> dict[tuple[str, str], str]:
    """Return the shape that the script states of each model and arm in a run, empty of an answer.

    ``scope-narrow`` is that of an answer to another question. Empty without such a script.
    """
    path = record.store.truth
    truth: dict[str, Any] = orjson.loads(path.read_bytes()) if path.exists() else {}
    names = {letter: name for name, letter in truth.get("shape_letters", {}).items()}
    number = record.runs.index(run)
    return {
        (model, arm): names[letter]
        for model, runs in truth.get("shapes", {}).items()
        for arm, letter in zip(truth["arms"], next(islice(runs, number, None), ""), strict=False)
    }


def scripted_shapes(shaped: Shaped) -> pd.DataFrame:
    """Return each scripted shape of the runs shown beside what the coder made of the text.

    Columns: model, run, key, scripted_shape, shape. A refusal that the judge did not call one
    is ``not-refused``; empty in a record without such a script.
    """
    rows = []
    for model, run in shaped.full.items():
        coded = {row["key"]: row["label"] for row in shaped.rows(run) if row["model"] == model}
        for (of, arm), said in stated(shaped.record, run).items():
            if of == model and said not in ("", "scope-narrow"):
                place = {"model": model, "run": run, "key": arm, "scripted_shape": said}
                rows.append(place | {"shape": coded.get(arm, "not-refused")})
    return pd.DataFrame(rows, columns=["model", "run", "key", "scripted_shape", "shape"])


@of_shapes
def scripted(shaped: Shaped) -> Markup:
    """Return scripted against coded shapes, in a record whose answers were written beforehand."""
    if not shaped.record.panel.get("truth_sha256"):
        return UNSCRIPTED
    frame = scripted_shapes(shaped)
    if frame.empty:
        return Markup("<p>The script of this record states no shapes.</p>")
    alike = int((frame.scripted_shape == frame["shape"]).sum())
    counts = pd.crosstab(frame.scripted_shape, frame["shape"])
    order = [name for name in (*SHAPES, "not-refused")]
    counts = counts.reindex(index=[it for it in order if it in counts.index],
                            columns=[it for it in order if it in counts.columns])  # fmt: skip
    shown = counts.rename_axis("Scripted; as coded to the right", axis=0).rename_axis(None, axis=1)
    said = html(
        "<p>Coded as scripted: <b>{} of {}</b> ({}). The texts are few, plain and written by the "
        "authors of the manual: this shows that shapes are told apart and none is swapped on the "
        "way, and no error on real refusals.</p>",
        *(alike, len(frame), percent(alike / len(frame))),
    )
    return with_data(joined([said, table(shown.reset_index())]), "shape-truth", frame)
