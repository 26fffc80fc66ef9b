"""What the shape of a refusal varies with: the model, or the topic."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from drift.stats.agreement import Estimate, percentiles
from drift.stats.shapes import Floats, Ints, codes, groups

#: Families, of those that inform an effect, below which it is not estimated.
LEAST_FAMILIES: Final = 10
#: Permutations behind the mean by chance of each draw of a bootstrap.
_INNER: Final = 100


@dataclass(frozen=True)
class Explained:
    """How much of the variance of shapes a grouping explains; None, with a reason, if undefined."""

    refusals: int  # of the families that inform
    families: int
    groups: int
    r2: float | None
    by_chance: float | None  # mean of R2 if the grouping meant nothing
    effect: float | None
    low: float | None
    high: float | None
    p: float | None
    reason: str | None = None


@dataclass(frozen=True)
class Variation:
    """What the shape of a refusal varies with; the difference is models less topics."""

    models: Explained
    topics: Explained
    difference: Estimate


def variation(
    shapes: ArrayLike,
    models: ArrayLike,
    topics: ArrayLike,
    families: ArrayLike,
    *,
    k: int,
    draws: int,
    seed: int,
) -> Variation:
    """Compute how much the shape of a refusal varies with the model, and with the topic.

    With n_j refusals of shape j, n_gj of them in group g, and R2 the share of categorical
    variance (which is Goodman and Kruskal's tau) that the groups explain::

        TSS = n/2 - sum_j n_j² / 2n
        WSS = sum_g (n_g/2 - sum_j n_gj² / 2n_g)
        R2 = 1 - WSS/TSS;  effect = (R2 - C) / (1 - C)

    C is the mean of R2 if the grouping means nothing: 0 is the effect of an idle grouping, 1
    that of one which settles the shape.

    Parameters
    ----------
    shapes, models, topics, families : array_like of int, (refusals,)
        Of each refusal: its shape in [0, k), and the numbers of its model, topic and family.
        A family has one topic. With the makers of models for models, one may have several
        refusals of a family; repeated answers of one model are not to be given.
    draws, seed
        Of the permutations, and of the bootstrap.

    Returns
    -------
    Variation
        p = (1 + #)/(1 + draws). Limits: 2.5 and 97.5 percentiles over draws of whole families
        with replacement; a family drawn twice moves as one where C is drawn anew.

    Notes
    -----
    Null for models: in a family, its shapes fall to the models that refused it by chance. Only
    families that two models refused inform, and the effect is that among their refusals.
    Null for topics: topics fall to families by chance. A family is one unit, so that models
    which refuse alike do not count as evidence for topics.
    Guarantee: both p are valid at every n for one look fixed beforehand. The limits have none.
    In 300 simulated sets a time, of 12 to 100 families and 2 to 4 models, they held the true
    effects, and their difference, in 95 to 100 %; where the topic settled nine shapes in ten of
    40 families, that of topics and the difference in 87 %.
    The difference has both effects on the refusals of families that two models refused, since
    effects on other refusals are not of one variance; it may differ from the effects shown.
    Undefined with one model (one topic), below ten families that inform, if all refusals have
    one shape, or if no topic has two families. Nothing is said of models and topics not asked.
    Source: Light, Margolin (1971), J. Am. Stat. Assoc. 66, 534-544; Anderson, Landis (1980),
    Commun. Stat. A 9, 1191-1206.
    """
    (shape,) = codes(k, shapes=shapes)
    n = len(shape)
    of_models, model = groups("models", models, n)
    of_topics, topic = groups("topics", topics, n)
    places, family = groups("families", families, n)
    if len(np.unique(family * (of_topics + 1) + topic)) > places:
        raise ValueError("one topic of a family, got several")
    cells = np.zeros((places, max(of_models, 1), k))
    np.add.at(cells, (family, model, shape), 1)
    home = np.zeros(places, dtype=np.int64)
    home[family] = topic
    shared = cells.any(axis=2).sum(axis=1) >= 2
    rng = np.random.default_rng(seed)
    by_topic = _explained_by_topic(cells, home, draws, rng)
    cells, home = cells[shared], home[shared]
    by_model = _explained_by_model(cells, of_models, draws, rng)
    lacking = by_model.reason or by_topic.reason
    if lacking or (lacking := _reason(cells, "topic", np.unique(home).size)):
        return Variation(by_model, by_topic, Estimate(None, None, None, lacking))
    homes, weights = _permuted(home, draws, rng), _weights(len(home), draws, rng)
    apart = _model_effect(cells, weights)[2] - _topic_effect(cells, home, homes, weights)[2]
    return Variation(by_model, by_topic, _limits(apart))


def _reason(cells: Floats, what: str, groups: int) -> str:
    """Return why a grouping of these refusals has no effect; empty if it may have one."""
    if groups < 2:
        return f"{groups} {what}{'s' * (groups != 1)}, fewer than 2"
    if len(cells) < LEAST_FAMILIES:
        refused = " that two models refused" if what == "model" else ""
        return f"{len(cells)} families{refused}, fewer than {LEAST_FAMILIES}"
    return "all refusals have one shape" if cells.any(axis=(0, 1)).sum() < 2 else ""


def _explained_by_model(
    cells: Floats, models: int, draws: int, rng: np.random.Generator
) -> Explained:
    size = int(cells.sum()), len(cells), models
    if lacking := _reason(cells, "model", models):
        return Explained(*size, None, None, None, None, None, None, lacking)
    k, n = cells.shape[2], int(cells.sum())
    family, model, shape = (
        np.repeat(it, cells[cells > 0].astype(np.int64)) for it in np.nonzero(cells)
    )

    def drawn() -> Floats:
        order = np.lexsort((rng.random(n), family))  # `family` is sorted: each stays in its place
        sums = np.bincount(model * k + shape[order], minlength=cells[0].size)
        return sums.reshape(-1, k).astype(np.float64)

    values = _r2(np.array([drawn() for _ in range(draws)]))
    effects = _model_effect(cells, _weights(len(cells), draws, rng))
    return _found(size, effects, values)


def _explained_by_topic(
    cells: Floats, home: Ints, draws: int, rng: np.random.Generator
) -> Explained:
    topics = np.unique(home).size
    size = int(cells.sum()), len(cells), topics
    lacking = _reason(cells, "topic", topics)
    if not lacking and topics == len(cells):
        lacking = "no topic has two families"
    if lacking:
        return Explained(*size, None, None, None, None, None, None, lacking)
    homes = _permuted(home, draws, rng)
    values = _r2(_onehot(homes) @ cells.sum(axis=1))
    return _found(size, _topic_effect(cells, home, homes, _weights(len(home), draws, rng)), values)


def _found(size: tuple[int, int, int], effects: tuple[Floats, ...], values: Floats) -> Explained:
    r2, by_chance = (float(it[0]) for it in effects[:2])
    it = _limits(effects[2])
    higher = int((values >= r2 - 1e-12).sum())
    p = (1 + higher) / (1 + len(values))
    return Explained(*size, r2, by_chance, it.estimate, it.low, it.high, p, it.reason)


def _limits(values: Floats) -> Estimate:
    """Return the first of the values as estimate, and percentiles of the others."""
    lost = "a draw of families often leaves one group or one shape"
    return percentiles(None if np.isnan(values[0]) else float(values[0]), values[1:], lost)


def _weights(families: int, draws: int, rng: np.random.Generator) -> Floats:
    """Return how often each family counts: once in the first row, then as drawn."""
    drawn = rng.multinomial(families, np.full(families, 1 / families), draws)
    return np.vstack([np.ones(families), drawn])


def _permuted(home: Ints, draws: int, rng: np.random.Generator) -> Ints:
    return rng.permuted(np.tile(home, (draws, 1)), axis=1)


def _onehot(homes: Ints) -> Floats:
    return np.asarray(homes[..., None, :] == np.unique(homes)[:, None], dtype=np.float64)


def _r2(sums: Floats) -> Floats:
    """Return R2 of refusals by group and shape, (..., groups, k); nan if all have one shape."""
    own, n = sums.sum(axis=-1), sums.sum(axis=(-2, -1))
    within = (sums**2).sum(axis=-1) / np.where(own > 0, own, 1)
    return _ratio(within.sum(axis=-1), (sums.sum(axis=-2) ** 2).sum(axis=-1), n)


def _ratio(within: Floats, squares: Floats, n: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        found = 1 - (n - within) / (n - squares / n)
    return np.where(n * n - squares > 0.5, found, np.nan)  # both are whole numbers


def _effect(r2: Floats, by_chance: Floats) -> tuple[Floats, Floats, Floats]:
    room = np.where(1 - by_chance > 1e-9, 1 - by_chance, np.nan)
    return r2, by_chance, (r2 - by_chance) / room


def _model_effect(cells: Floats, weights: Floats) -> tuple[Floats, Floats, Floats]:
    """Return R2 for models, its mean by chance and the effect, for each row of weights.

    With a of a family's m refusals, a model's number of shape j is hypergeometric and those of
    families are independent, so that the mean of n_gj² is known.
    """
    a, m = cells.sum(axis=2)[..., None], cells.sum(axis=(1, 2))[:, None, None]
    p = cells.sum(axis=1)[:, None] / m
    sums = np.tensordot(weights, cells, 1)
    own = sums.sum(axis=-1)
    squares = np.tensordot(weights, a * p, 1) ** 2
    squares += np.tensordot(weights**2, a * p * (1 - p) * (m - a) / (m - 1), 1)
    within = (squares.sum(axis=-1) / np.where(own > 0, own, 1)).sum(axis=-1)
    margins = (sums.sum(axis=-2) ** 2).sum(axis=-1)
    return _effect(_r2(sums), _ratio(within, margins, own.sum(axis=-1)))


def _topic_effect(
    cells: Floats, home: Ints, homes: Ints, weights: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return R2 for topics, its mean by chance and the effect, for each row of weights."""
    weighted = weights[:, :, None] * cells.sum(axis=1)
    by_chance = np.mean([_r2(_onehot(it) @ weighted) for it in homes[:_INNER]], axis=0)
    by_chance[0] = _r2(_onehot(homes) @ weighted[0]).mean()
    return _effect(_r2(_onehot(home) @ weighted), by_chance)
