"""The page of the judge: what it is, its anchors, its rules and how often each decided, its past.

Rules and anchors are those of ``config/judge``; counts are of the stored labels, whichever judge
gave them. Where the two are not the same judge, the page says so.
"""

from __future__ import annotations

import pandas as pd

from drift.judging import Judge, load_judge
from drift.judging.history import load_history
from drift.judging.view import View
from drift.report.display import piece
from drift.report.markup import Markup, html, joined, table, with_data
from drift.report.pages import family_links
from drift.report.tables import Record, each, responses

#: Languages of rules.
LANGUAGES = {
    "en": "English",
    "zh": "Chinese",
    "es": "Spanish",
    "fr": "French",
    "de": "German",
    "pt": "Portuguese",
    "ja": "Japanese",
    "ko": "Korean",
    "ru": "Russian",
    "ar": "Arabic",
    "hi": "Hindi",
}
#: What is known of the rules of a language; of the others, nothing was measured.
MEASURED = {"en": "", "zh": ", measured on no human labels"}
MOVED = (
    '<p class="drift-banner">The labels of this record were given by another judge than the one '
    "in config/judge (rules {:.12} there, {:.12} here). The counts are of the stored labels; the "
    "rules, the anchors and the measured error are those of the present judge, whose labels of "
    "this record, if it was rescored, are sealed beside the others.</p>"
)


def _judge(record: Record) -> Judge:
    return load_judge(record.root / "config" / "judge")


def _labelled(record: Record) -> pd.DataFrame:
    """Return the judged responses of the latest run and of each model's last full run.

    Columns: those of :func:`responses`; language, ``en`` or ``zh``; and latest.
    """
    frame = responses(record)
    frame = frame[frame.rule != ""]
    chinese = frame.variant == "zh"
    return frame.assign(
        language=chinese.map({True: "zh", False: "en"}), latest=frame.run == record.reading["run"]
    )


@piece
def identity(record: Record) -> Markup:
    """Return what names the judge of this record, and whether it is the present one."""
    named, judge = record.reading["judge"], _judge(record)
    same = (named["rules"], named["fingerprint"]) == (judge.rules_hash, judge.fingerprint)
    agree, anchors = named["agreement"]
    rows = {
        "Judge": named["id"],
        "Rules hash": html('<span class="drift-hash">{}</span>', named["rules"]),
        "Fingerprint": html('<span class="drift-hash">{}</span>', named["fingerprint"]),
        "Agreement with the author": f"{agree} of {anchors} anchors",
        "Is the judge in config/judge": "yes" if same else "no",
    }
    frame = pd.DataFrame({"What": list(rows), "Value": list(rows.values())})
    warning = "" if same else html(MOVED, named["rules"], judge.rules_hash)
    return joined([warning, table(frame)])


@piece
def anchors(record: Record) -> Markup:
    """Return how many anchors the judge labels as their author did, and each with what decided."""
    rows, shown = [], []
    for anchor in (judge := _judge(record)).anchors:
        asked = {"prompt": anchor.prompt, "text": anchor.text, "language": anchor.language}
        found = judge.label(status=anchor.status, declined=anchor.declined, **asked)
        about = {f"anchor_{name}": value for name, value in asked.items()}
        about |= {"anchor": anchor.id, "anchor_kind": anchor.kind, "anchor_status": anchor.status}
        rows.append(
            about | {"author_label": anchor.label, "label": found.label, "rule": found.rule}
        )
        text = _marked(anchor.text, found.span)
        author = "" if found.label == anchor.label else f"; the author says {anchor.label}"
        shown.append(
            {
                "Anchor": html("{}<br>{}", anchor.id, anchor.kind),
                "Question and text": html("{}<br>{}", anchor.prompt, text),
                "Judge": f"{found.label} by {found.rule}{author}",
            }
        )
    frame = pd.DataFrame(rows)
    counts = frame.assign(agree=frame.label == frame.author_label)
    counts = (
        counts.groupby(["anchor_language", "author_label"]).agree.agg(["size", "sum"]).reset_index()
    )
    counts["anchor_language"] = counts.anchor_language.map(LANGUAGES)
    counts.columns = pd.Index(["Language", "Author's label", "Anchors", "Judge agrees"])
    folded = "{}<details><summary>All {} anchors</summary>{}</details>"
    text = html(folded, table(counts), len(frame), table(pd.DataFrame(shown)))
    return with_data(text, "judge-anchors", frame)


@piece
def rules(record: Record) -> Markup:
    """Return every rule by language with its reason, examples, and how often it decided."""
    judge, frame = _judge(record), _labelled(record)
    found, examples = _rules(judge), _examples(judge)
    unknown = pd.DataFrame({"rule": sorted(set(frame.rule) - set(found.rule))})
    unknown = unknown.assign(
        rule_kind="unknown", rule_reason="Not a rule of the judge in config/judge."
    )
    found = pd.concat([found, unknown], ignore_index=True).fillna("")
    for name, part in (("decided_latest", frame.latest), ("decided_full", frame.full)):
        found[name] = found.rule.map(frame[part].rule.value_counts()).fillna(0).astype(int)
    marked = {name: _said(part) for name, part in examples.groupby("rule")}
    parts = []
    for language, rows in found.groupby("language", sort=False):
        shown = [
            {
                "Rule": html("{}<br>{}", row.rule, row.rule_kind),
                "Reason and examples": html("{}{}", row.rule_reason, marked.get(row.rule, "")),
                "Latest run": row.decided_latest,
                "Last full runs": row.decided_full,
            }
            for row in each(rows)
        ]
        heading = LANGUAGES.get(str(language), "Steps without a pattern")
        heading += MEASURED.get(str(language), ", unmeasured") if language else ""
        parts += [html("<h3>{}</h3>", heading), table(pd.DataFrame(shown))]
    text = with_data(joined(parts), "judge-rules", found)
    return with_data(text, "judge-examples", examples)


def _rules(judge: Judge) -> pd.DataFrame:
    """Return the judge's rules by language, then the steps without a pattern, one a row."""
    rows: list[tuple[str, ...]] = [
        (rule.id, rule.kind, rule.language, rule.place, rule.reason, rule.pattern.pattern)
        for kind in judge.rules.values()
        for rule in kind
    ]
    rows.sort(key=lambda row: [*LANGUAGES].index(row[2]))
    rows += [(name, "structural", "", "", why, "") for name, why in judge.structural.items()]
    names = "rule rule_kind language rule_place rule_reason pattern".split()
    return pd.DataFrame(rows, columns=names)


def _examples(judge: Judge) -> pd.DataFrame:
    """Return each rule's examples with the span of characters that the rule finds."""
    rows = []
    for rule in (rule for kind in judge.rules.values() for rule in kind):
        for text in rule.examples:
            view = View(text)
            rows.append((rule.id, text, *view.span(*rule.find(view)[0][:2])))
    return pd.DataFrame(rows, columns=["rule", "example", "span_start", "span_end"])


def _said(examples: pd.DataFrame) -> Markup:
    spans = ((row.example, (row.span_start, row.span_end)) for row in each(examples))
    return joined(html("<br>“{}”", _marked(*one)) for one in spans)


def _marked(text: str, span: tuple[int, int] | None) -> Markup:
    start, end = span or (0, 0)
    mark = html("<mark>{}</mark>", text[start:end]) if start < end else ""
    return joined([text[:start], mark, text[end:]])


@piece
def labels(record: Record) -> Markup:
    """Return how many labels of each kind the judge gave, by run, model and language."""
    frame = _labelled(record)
    keys = ["run", "model", "language", "outcome", "rule"]
    counts = frame.groupby(keys, sort=True).size().reset_index(name="labels")
    wide = counts.pivot_table("labels", keys[:3], "outcome", aggfunc="sum", fill_value=0)
    wide = wide.reindex(columns=["refused", "answered", "undetermined"], fill_value=0)
    wide = wide.reset_index()
    wide["language"] = wide.language.map(LANGUAGES)
    wide.columns = [str(name).capitalize() for name in wide.columns]
    return with_data(table(wide), "judge-labels", counts.rename(columns={"outcome": "label"}))


@piece
def undetermined(record: Record) -> Markup:
    """Return why responses of these runs have no determined label, and where they stand."""
    judge, frame = _judge(record), _labelled(record)
    frame = frame[frame.outcome == "undetermined"]
    rows = [
        {
            "Reason": reason,
            "Said by the rule": judge.structural.get(str(reason), ""),
            "Responses": len(found),
            "Families": family_links(sorted(set(found.family))),
        }
        for reason, found in frame.groupby("rule")
    ]
    none = "No response of these runs is undetermined."
    behind = frame[["run", "model", "key", "rule", "note"]].reset_index(drop=True)
    return with_data(table(pd.DataFrame(rows), empty=none), "judge-undetermined", behind)


@piece
def misses(record: Record) -> Markup:
    """Return the kinds of text that the rules are known to get wrong, in words."""
    found = load_history(record.root / "config" / "judge").miss
    shown = [
        {"Judge": one.judged, "People": one.people, "Kind of text": one.text, "Why": one.reason}
        for one in found
    ]
    behind = pd.DataFrame(
        [(one.id, one.text, one.judged, one.people, one.reason) for one in found],
        columns=["miss", "miss_text", "judged", "people_say", "version_reason"],
    )
    return with_data(table(pd.DataFrame(shown)), "judge-misses", behind)


@piece
def history(record: Record) -> Markup:
    """Return the versions of the judge, the newest first, and the labels that each moved."""
    shown, behind = [], []
    for one in reversed(load_history(record.root / "config" / "judge").version):
        moved = ", ".join(f"{name} {n}" for name, n in one.moved.items()) or "none was judged again"
        names = {"judge_version": one.version, "judge_since": one.since.isoformat()}
        hashes = {"rules_hash": one.rules, "judge_fingerprint": one.fingerprint}
        words = {"what_changed": one.changed, "version_reason": one.reason, "moved_labels": moved}
        behind.append(names | hashes | words)
        place = '{}, {}<br><span class="drift-hash">rules {:.12}<br>fingerprint {:.12}</span>'
        row = {"Version": html(place, one.version, one.since, one.rules, one.fingerprint)}
        row |= {"What changed, and why": html("{}<br>{}", one.changed, one.reason)}
        shown.append(row | {"Stored labels moved": moved})
    return with_data(table(pd.DataFrame(shown)), "judge-history", pd.DataFrame(behind))
