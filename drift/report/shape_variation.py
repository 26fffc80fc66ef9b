"""What the shape of a refusal varies with in a record: who refused, or what was asked."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd

from drift.judging.shapes import SHAPES
from drift.report.markup import Markup, html, joined, percent, table, with_data
from drift.report.metrics import p_text
from drift.report.shaped import Shaped, of_shapes
from drift.report.treated import twins, weights
from drift.stats.agreement import Estimate
from drift.stats.variation import Explained, Variation, variation

ONE = "one set of weights"
#: What the refusals of a row are.
COUNTED = {
    "who": "canonical refusals of families that two of the groups refused",
    "topic": "canonical refusals of families that the same models refused as one of another topic",
}


@of_shapes
def against_topic(shaped: Shaped, *, draws: int, seed: int) -> Markup:
    """Return how much of the variation of shapes goes with the model, and with the topic.

    Models of the same weights are one, which a family's refusal by the first of them stands for.
    """
    events = shaped.coded[shaped.coded.variant == "en-1"]
    order = events.model.map([*shaped.record.models].index)
    own = [weights(shaped.record, model) for model in events.model]
    events = events.assign(order=order, weights=own).sort_values("order", kind="stable")
    events = events.drop_duplicates(["weights", "family"])
    by = "lab" if events.lab.nunique() > 1 else "weights"
    chosen = events.drop_duplicates([by, "family"])
    codes = {name: pd.factorize(chosen[name], sort=True)[0] for name in (by, "topic", "family")}
    shape = np.array([SHAPES.index(it) for it in chosen["shape"]], dtype=np.int64)
    found = variation(
        shape, codes[by], codes["topic"], codes["family"], k=len(SHAPES), draws=draws, seed=seed
    )
    if own and len({*own}) < 2:
        models = dataclasses.replace(found.models, reason=ONE)
        found = Variation(models, found.topics, Estimate(None, None, None, ONE))
    who = "lab" if by == "lab" else "model"
    frame = pd.DataFrame(
        [_behind(who, "who", found.models), _behind("topic", "topic", found.topics)]
    )
    whose = {"lab": "lab, one refusal of a family each", "model": "model, all of one lab"}[who]
    rows = [{"Shape by": name} | _part(part)
            for name, part in ((whose, found.models), ("topic", found.topics))]  # fmt: skip
    text = joined([_same(shaped), table(pd.DataFrame(rows)), _counts(), _difference(found)])
    return with_data(text, "shape-variation", frame)


def _same(shaped: Shaped) -> Markup:
    """Say which models are one here."""
    groups = twins(shaped.record, {*shaped.coded.model})
    said = joined((" and ".join(sorted(group)) for group in groups), "; ")
    return (
        html("<p>Of the same weights, so one model here: {}.</p>", said) if groups else Markup("")
    )


def _counts() -> Markup:
    said = '<p class="drift-small">Refusals counted: by who refused, {who}; by topic, {topic}.</p>'
    return html(said, **COUNTED)


def _part(part: Explained) -> dict[str, object]:
    counts = {"Groups": part.groups, "Refusals": part.refusals, "Families": part.families}
    if part.effect is None:
        return counts | {"Explained": "–", "By chance": "–", "p": "–",
                         "Adjusted effect": f"not estimable: {part.reason}"}  # fmt: skip
    return counts | {
        "Explained": percent(part.r2 or 0),
        "By chance": percent(part.by_chance or 0),
        "p": p_text(part.p),
        "Adjusted effect": html("<b>{}</b>", _signed(part.effect)),
    }


def _signed(value: float) -> str:
    return f"{value:.2f}".replace("-", "\N{MINUS SIGN}")


def _behind(name: str, counted: str, part: Explained) -> dict[str, object]:
    return {
        "shape_by": name,
        "refusals_are": COUNTED[counted],
        "refusals": part.refusals,
        "families": part.families,
        "shape_groups": part.groups,
        "explained": part.r2,
        "explained_by_chance": part.by_chance,
        "effect": part.effect,
        "effect_p": part.p,
        "reason": part.reason or "",
    }


def _difference(found: Variation) -> Markup:
    one = found.difference
    if one.estimate is None:
        return html("<p>The difference is not estimable: {}.</p>", one.reason)
    return html(
        "<p>Difference, models less topics: <b>{}</b>, in these refusals; {}. It is computed on "
        "other refusals than either row, those of families that inform of both, so it need not be "
        "the difference of the two effects.</p>",
        _signed(one.estimate),
        one.reason,
    )
