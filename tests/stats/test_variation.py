"""Models against topics: exact values, and what simulation says of size and power."""

import numpy as np
import pytest

from drift.stats.variation import variation

K = 7
SKEWED = np.array([0.55, 0.2, 0.1, 0.08, 0.04, 0.02, 0.01])


def refusals(rng, families, *, by_model=0.0, by_topic=0.0, models=3, topics=6, alike=0.3):
    """Return refusals whose shape is the model's or topic's in these shares, else common.

    In the share `alike` it is the family's own, for all models the same.
    """
    rows, home = [], rng.integers(topics, size=families)
    for family in range(families):
        own = rng.choice(K, p=SKEWED)
        for model in range(models):
            luck = rng.random()
            if luck < by_model:
                shape = model
            elif luck < by_model + by_topic:
                shape = home[family] % 4
            else:
                shape = own if luck > 1 - alike else rng.choice(K, p=SKEWED)
            if rng.random() < 0.8:
                rows.append((shape, model, home[family], family))
    return np.array(rows).T


def refused_by_topic(rng, families, *, by_topic=0.0, topics=4):
    """Return refusals by two models: even topics are refused by the one, odd ones by the other.

    Each declines in a shape of its own, but for the share `by_topic`, in which it is the topic's.
    """
    rows, home = [], rng.integers(topics, size=families)
    for family in range(families):
        for model in (0, 1):
            if rng.random() < (0.9 if (home[family] + model) % 2 == 0 else 0.3):
                own = model if rng.random() < 0.8 else rng.integers(4)
                shape = home[family] if rng.random() < by_topic else own
                rows.append((shape, model, home[family], family))
    return np.array(rows).T


def varied(data, *, draws=199, seed=1):
    return variation(*data, k=K, draws=draws, seed=seed)


def test_a_grouping_that_settles_the_shape_explains_all_and_an_idle_one_nothing():
    families, models = np.repeat(np.arange(12), 2), np.tile([0, 1], 12)
    found = varied((models, models, families % 3, families))
    assert (found.models.r2, found.models.effect) == (1, 1)
    assert found.models.p == 1 / 200
    assert found.topics.r2 == pytest.approx(0) and found.topics.p == 1
    assert found.difference.estimate == pytest.approx(1)


def test_the_share_explained_is_goodman_and_kruskals_tau():
    # Model 0 has the shapes 6, 4 and model 1 has 1, 9 in ten families.
    shapes = [*[0] * 6, *[1] * 4, *[0] * 1, *[1] * 9]
    families = [*range(10), *range(10)]
    found = varied((shapes, [*[0] * 10, *[1] * 10], [f % 2 for f in families], families)).models
    within = 10 * (1 - 0.36 - 0.16) + 10 * (1 - 0.01 - 0.81)
    assert found.r2 == pytest.approx(1 - within / (20 * (1 - 0.35**2 - 0.65**2)))


def test_the_mean_by_chance_of_models_is_that_of_shapes_dealt_out_within_families():
    # Each family has the shapes 0 and 1, by two models: by chance each model has half of each.
    families, models = np.repeat(np.arange(12), 2), np.tile([0, 1], 12)
    found = varied((models, models, families % 3, families), draws=1999).models
    # With x of 12 shapes 0 at model 0, R2 is (x/6 - 1)^2; x is binomial, and the mean 1/12.
    assert found.by_chance == pytest.approx(1 / 12, abs=0.01)
    assert found.effect == pytest.approx(1)


def test_two_models_of_one_maker_count_as_draws_without_replacement():
    # Both shapes of each family go to maker 0 twice and maker 1 once.
    families = np.repeat(np.arange(12), 3)
    data = (np.tile([0, 1, 1], 12), np.tile([0, 0, 1], 12), families % 3, families)
    found = varied(data, draws=1999)
    assert 0 < found.models.by_chance < found.models.r2 < 1
    assert found.models.refusals == 36 and found.models.p < 0.05


@pytest.mark.parametrize("alike", [0.0, 0.6])
def test_neither_test_finds_what_is_not_there(alike):
    rng, found = np.random.default_rng(20261106), []
    for seed in range(150):
        it = varied(refusals(rng, 20, alike=alike), draws=99, seed=seed)
        found.append((it.models.p, it.topics.p, it.difference.estimate))
    p = np.array(found, dtype=float)
    # Three standard errors above the level; the difference is 0 on average, and has no limits.
    assert ((p[:, :2] <= 0.05).mean(axis=0) <= 0.05 + 3 * (0.0475 / 150) ** 0.5).all()
    assert abs(p[:, 2].mean()) < 3 * p[:, 2].std() / 150**0.5
    assert it.difference.low is it.difference.high is None


@pytest.mark.parametrize(("cause", "other"), [("models", "topics"), ("topics", "models")])
def test_each_test_finds_its_own_cause_and_leaves_the_other(cause, other):
    rng, seen = np.random.default_rng(20261107), []
    for seed in range(40):
        it = varied(refusals(rng, 40, **{f"by_{cause[:-1]}": 0.6}), draws=99, seed=seed)
        sign = 1 if cause == "models" else -1
        apart = sign * it.difference.estimate > 0
        seen.append((getattr(it, cause).p <= 0.05, getattr(it, other).p <= 0.05, apart))
    own, others, apart = np.mean(seen, axis=0)
    assert own >= 0.9 and others <= 0.2 and apart >= 0.9


def test_topics_that_differ_only_in_who_refuses_them_do_not_differ_in_how():
    rng, found = np.random.default_rng(20261119), []
    for seed in range(200):
        it = varied(refused_by_topic(rng, 40), draws=99, seed=seed).topics
        found.append((it.p, it.r2, it.by_chance, it.effect))
    p, r2, by_chance, effect = np.array(found).T
    assert (p <= 0.05).mean() <= 0.05 + 3 * (0.0475 / 200) ** 0.5
    # Who refuses carries the shape along: what chance explains is most of what topics do.
    assert r2.mean() > 0.15 and by_chance.mean() == pytest.approx(r2.mean(), abs=0.01)
    assert abs(effect.mean()) < 0.02


def test_a_topic_that_moves_shapes_is_found_though_topics_differ_in_who_refuses_them():
    rng, found = np.random.default_rng(20261120), []
    for seed in range(40):
        it = varied(refused_by_topic(rng, 40, by_topic=0.6), draws=99, seed=seed)
        found.append((it.topics.p <= 0.05, it.topics.effect))
    seen, effect = np.mean(found, axis=0)
    assert seen >= 0.9 and effect == pytest.approx(0.4, abs=0.05)


def test_topics_are_dealt_out_only_among_families_that_the_same_models_refused():
    # Six families of model 0 alone, six of both; those that have no like one are left out.
    models = [*[0] * 6, *[0, 1] * 6, 2]
    families = [*range(6), *np.repeat(np.arange(6, 12), 2), 12]
    topics = [f % 2 for f in families]
    shapes = [f % 2 for f in families]
    found = varied((shapes, models, topics, families), draws=999).topics
    assert (found.families, found.refusals, found.effect) == (12, 18, 1)
    # In each six, 20 ways to deal out the topics; two of all 400 part the shapes.
    assert found.p == pytest.approx(2 / 400, abs=0.01) and found.p >= 0.001
    # All of one topic are families of model 0 alone: no like one has another topic.
    confounded = [*[0] * 6, *[1] * 12, 1]
    nothing = varied((shapes, models, confounded, families)).topics
    assert nothing.reason == (
        "0 families that the same models refused as one of another topic, fewer than 10"
    )
    # One family of another topic among twelve: its place can be drawn in twelve ways.
    lone = varied(([0, 1] * 6, [0] * 12, [1, *[0] * 11], range(12))).topics
    assert lone.reason == "topics can be dealt out in 12 ways, fewer than 20"


def test_what_cannot_be_told_apart_has_a_reason():
    families = np.repeat(np.arange(12), 2)
    models, topics = np.tile([0, 1], 12), families % 3
    shapes = np.arange(24) % 2
    alone = varied((shapes, np.zeros(24, int), topics, np.arange(24) // 2))
    assert alone.models.reason == "1 model, fewer than 2" == alone.difference.reason
    assert alone.topics.effect is not None
    single = varied((shapes, models, np.zeros(24, int), families))
    assert single.topics.reason == "1 topic, fewer than 2" and single.models.effect is not None
    few = varied((shapes[:12], models[:12], topics[:12], families[:12]))
    assert few.models.reason == "6 families that two models refused, fewer than 10"
    assert few.topics.reason == (
        "6 families that the same models refused as one of another topic, fewer than 10"
    )
    same = varied((np.zeros(24, int), models, topics, families))
    assert same.models.reason == "all refusals have one shape"
    spread = varied((shapes, models, families, families))
    assert spread.topics.reason == "no topic has two families"
    empty = varied(([], [], [], []))
    assert empty.models.reason == "0 models, fewer than 2"
    with pytest.raises(ValueError, match="one topic of a family"):
        varied((shapes, models, models, families))
