"""The page of shapes: their shares by model, topic, language and wording, and who says them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from drift.judging import load_judge
from drift.judging.shape_measure import CODES
from drift.records.shapes import load_coder
from drift.report.bars import BARS
from drift.report.display import figure
from drift.report.markup import Markup, fill, html, joined, percent, table, with_data
from drift.report.shaped import SMALL, Shaped, of_shapes, shares, widest_zero
from drift.report.tables import each

#: Each shape in a line; the manual in config/codebook.md says how they are told apart.
MEANINGS = {
    "flat-no": "declines and says nothing more",
    "policy-recital": "a no with a statement of rules, guidelines, policies or training",
    "redirect": "declines as posed, and names the nearest thing it will do, or where to ask",
    "sermon": "declines, and implies that asking was suspect",
    "false-reason": "the reason given is not the reason: no access, no information, not able to",
    "scope-narrow": "does not decline, and answers another question than was asked",
    "mixed": "two shapes, neither of which outweighs the other",
    "uncodable": "refused, and none of the shapes can be told",
}
LIMITS = ["estimate", "share_low", "share_high"]
HASH = '<span class="drift-hash">{}</span>'


@of_shapes
def coder(shaped: Shaped) -> Markup:
    """Return whose refusals these are, who coded them, and if that coder is the present one."""
    root, named = shaped.record.root, shaped.newest["judge"]
    judge = load_judge(root / "config" / "judge")
    present = load_coder(root, judge)
    same = (named["rules"], named["fingerprint"]) == (present.rules_hash, present.fingerprint)
    agree, anchors = present.agreement
    runs = sorted({*shaped.full.values()})
    rows = {
        "Refusals": "responses that the refusal judge in config/judge calls refused",
        "Refusal judge": html(f"{{}}, rules {HASH}", judge.id, judge.rules_hash),
        "Coder": "a published list of patterns and a fixed order; no model is asked",
        "Coder's rules": html(HASH, named["rules"]),
        "Coder's fingerprint": html(HASH, named["fingerprint"]),
        "Is the coder in config/shapes": "yes" if same else "no: the labels are of another version",
        "Agreement with its author": f"{agree} of {anchors} anchors, which is no measure of error",
        "Runs shown": ", ".join(runs),
        "Runs coded": f"{len(shaped.lines)} of {len(shaped.record.runs)}",
    }
    frame = pd.DataFrame({"What": list(rows), "Value": list(rows.values())})
    return joined([table(frame), *_uncoded(shaped)])


def _uncoded(shaped: Shaped) -> list[Markup]:
    missing = [key for key in shaped.record.models if key not in shaped.full]
    said = "<p>Without a coded full run, so not shown: {}.</p>"
    return [html(said, ", ".join(missing))] if missing else []


@of_shapes
def meanings(shaped: Shaped) -> Markup:
    """Return each shape in a line, with how many refusals have it."""
    found = shaped.coded["shape"].value_counts()
    rows = [
        {"Shape": name, "What it is": MEANINGS[name], "Refusals here": int(found.get(name, 0))}
        for name in CODES
    ]
    kept = "<p><code>scope-narrow</code> {}. It is no refusal and no rule can say it, so that it "
    kept += 'is in no share of refusals: <a href="#answers-to-another-question">counts</a>.</p>'
    return html("{}{}", table(pd.DataFrame(rows)), html(kept, MEANINGS["scope-narrow"]))


@of_shapes
def distribution(shaped: Shaped, caption: str) -> Markup:
    """Return the shares of each model's shapes as bars, with counts and simultaneous limits."""
    found = shares(shaped.coded, ["model"])
    if found.empty:
        return Markup("<p>No model shown here declined in its last full run.</p>")
    drawn = found[found["shape"].isin(shaped.present)]
    frame = pd.DataFrame(
        {
            "group": drawn.model,
            "note": [_note(row, shaped.told(row.model)) for row in each(drawn)],
            "series": drawn["shape"],
            "text": [f"{row.shape_count} of {row.refusals}" for row in each(drawn)],
        }
    ).join(drawn[LIMITS].astype(float).set_axis(["estimate", "low", "high"], axis=1))
    behind = pd.DataFrame(
        {
            "Model": [shaped.name(model) for model in drawn.model],
            "Shape": drawn["shape"],
            "Refusals with it": drawn.shape_count,
            "Of all refusals": drawn.refusals,
            "Families with it": [f"{row.families_with} of {row.families}" for row in each(drawn)],
            "Share": [share_text(row) for row in each(drawn)],
        }
    )
    made = figure("shapes-by-model", BARS, frame, behind, caption, data=found)
    return joined([made, _width(found)])


def _note(row: Any, told: str) -> str:
    few = ", too few for limits" if pd.isna(row.share_low) else ", small n" if row.small_n else ""
    said = f"; {told}" if told else ""
    return f"{row.refusals} refusals of {row.families} families{few}{said}"


def _width(found: pd.DataFrame) -> Markup:
    """Say how much so many families can show at all."""
    sizes = found.drop_duplicates("model")
    said = (
        html("{} ({} families: {})", row.model, row.families, percent(widest_zero(row.families)))
        for row in each(sizes)
    )
    return html(
        '<p class="drift-small">How far the share of a shape that was never seen may still reach, '
        "with one refusal for each family: {}. <i>Small n</i> stands where there are fewer than "
        "{} families.</p>",
        joined(said, ", "),
        SMALL,
    )


def share_text(row: Any) -> Markup:
    """Return a share with its limits, or why there is none."""
    if row.estimate is None or pd.isna(row.estimate):
        return html("not estimable: {}", row.reason)
    if row.share_low is None or pd.isna(row.share_low):
        return html("<b>{}</b> (no limits: {})", percent(row.estimate), row.reason)
    low, high = 100 * row.share_low, 100 * row.share_high
    return html("<b>{}</b> [{:.0f}, {:.0f}]", percent(row.estimate), low, high)


@of_shapes
def by_topic(shaped: Shaped) -> Markup:
    """Return the shapes of each topic, of all models together and then of each."""
    return _grouped(shaped, "shapes-by-topic", "topic", shaped.coded)


@of_shapes
def by_language(shaped: Shaped) -> Markup:
    """Return the shapes of the canonical wording and its Chinese twin, of families with both."""
    events = shaped.coded
    twins = [item.id for item in shaped.record.families.values() if item.zh]
    paired = events[events.family.isin(twins) & events.variant.isin(["en-1", "zh"])]
    return _grouped(shaped, "shapes-by-language", "language", paired)


@of_shapes
def by_wording(shaped: Shaped) -> Markup:
    """Return the shapes of each wording; one response a family and model."""
    return _grouped(shaped, "shapes-by-wording", "variant", shaped.coded)


def _grouped(shaped: Shaped, name: str, by: str, events: pd.DataFrame) -> Markup:
    if events.empty:
        return html("<p>No such refusal.</p>")
    events = events.sort_values(by, kind="stable")
    whole = shares(events, [by]).assign(model="all")
    each_model = shares(events, ["model", by])
    fold = "{}<details><summary>Each model by itself</summary>{}</details>"
    parts = joined([_cells(shaped, whole, [by]), _dictated(shaped, events)])
    text = html(fold, parts, _cells(shaped, each_model, ["model", by]))
    columns = ["model", by, *[it for it in whole.columns if it not in ("model", by)]]
    return with_data(text, name, pd.concat([whole, each_model], ignore_index=True)[columns])


def _dictated(shaped: Shaped, events: pd.DataFrame) -> Markup:
    """Say how many of the refusals are of models that a system prompt tells to decline."""
    models = [key for key, of in shaped.treated.items() if of.dictated]
    n = int(events.model.isin(models).sum())
    said = "<p>{} of these {} refusals are of {}, told by a system prompt to decline.</p>"
    return html(said, n, len(events), " and ".join(models)) if n else Markup("")


HEADS = {"model": "Model", "topic": "Topic", "language": "Language", "variant": "Wording"}


def _cells(shaped: Shaped, found: pd.DataFrame, by: Sequence[str]) -> Markup:
    """Return a row for each group, and in it for each shape a count over a bar with limits."""
    rows = []
    for _, group in found.groupby([*by], sort=False):
        first = next(each(group))
        row: dict[str, Any] = {HEADS[name]: getattr(first, name) for name in by}
        if "model" in by:
            row["Model"] = shaped.name(first.model)
        row["Refusals, families"] = html("{}, {}{}", first.refusals, first.families, _few(group))
        of = {it.shape: it for it in each(group)}
        row |= {name: _cell(shaped, of[name]) for name in shaped.present}
        rows.append(row)
    return html('<div class="drift-shapes">{}</div>', table(pd.DataFrame(rows)))


def _few(group: pd.DataFrame) -> Markup:
    """Return the mark of few families; where they are too few for limits it says so."""
    first = next(each(group))
    said = "small n" if group.share_low.notna().all() else "no limits"
    mark = html(' <small class="drift-control">{}</small>', said)
    return mark if first.small_n else Markup("")


def _cell(shaped: Shaped, row: Any) -> Markup:
    if pd.isna(row.share_low):
        return html("{}", row.shape_count)
    bar = fill(shaped.record.root, "bar", **_places(row._asdict()))
    low, high = round(100 * row.share_low), round(100 * row.share_high)
    return html("{} <small>{}–{} %</small>{}", row.shape_count, low, high, bar)


def _places(row: Mapping[str, Any]) -> dict[str, float]:
    share, low, high = (round(100 * row[name], 1) for name in LIMITS)
    return {"low": low, "width": round(high - low, 1), "share": share}
