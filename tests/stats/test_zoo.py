import numpy as np
import pytest

from drift.stats.zoo import BIT, SEED, ZOO, Member, Size, change, scattered

INDEX = {
    "iid flips 0.2 %": 1,
    "iid flips 0.5 %": 2,
    "iid flips 1.5 %": 3,
    "iid flips 3 %": 4,
    "iid glitch 0.25 %": 5,
    "iid glitch 0.75 %": 6,
    "knife-edge 0.1": 7,
    "knife-edge 0.5": 8,
    "bad runs 2 %, 0.35": 9,
    "bad runs 0.5 %, 0.5": 10,
    "symmetric backends": 11,
    "asymmetric backends": 12,
    "visits 0.005, 0.05": 13,
    "visits 0.001, 0.1": 14,
    "visits 0.002, 0.02": 15,
    "visits 0.01, 0.5": 16,
    "weekday": 17,
    "every fourth run": 18,
    "missingness": 19,
    "episodes": 20,
    "all zero": 21,
}


def chain(leave, back):
    """Moves per run of a two-state chain."""
    return 2 * leave * back / (leave + back)


def glitch(p, q=None):
    """Flips per transition if runs err independently, with chances p and q in turn."""
    q = p if q is None else q
    return p * (1 - q) + q * (1 - p)


# Flips per arm and transition at n = 14 and n = 41.
FLIPS = {
    "iid flips 0.2 %": (0.002, 0.002),
    "iid flips 0.5 %": (0.005, 0.005),
    "iid flips 1.5 %": (0.015, 0.015),
    "iid flips 3 %": (0.03, 0.03),
    "iid glitch 0.25 %": (glitch(0.0025),) * 2,
    "iid glitch 0.75 %": (glitch(0.0075),) * 2,
    "knife-edge 0.1": (glitch(0.1) / 14, 2 * glitch(0.1) / 41),
    "knife-edge 0.5": (glitch(0.5) / 14, 2 * glitch(0.5) / 41),
    "bad runs 2 %, 0.35": (glitch(0.02 * 0.35),) * 2,
    "bad runs 0.5 %, 0.5": (glitch(0.005 * 0.5),) * 2,
    "symmetric backends": (0.03 * 2 / 14, 0.03 * 6 / 41),
    "asymmetric backends": (chain(0.002, 0.05) * 2 / 14, chain(0.002, 0.05) * 6 / 41),
    "visits 0.005, 0.05": (chain(0.005, 0.05),) * 2,
    "visits 0.001, 0.1": (chain(0.001, 0.1),) * 2,
    "visits 0.002, 0.02": (chain(0.002, 0.02),) * 2,
    "visits 0.01, 0.5": (chain(0.01, 0.5),) * 2,
    "weekday": ((20 * 0.005 + 8 * 0.04) / 28,) * 2,
    "every fourth run": ((2 * glitch(0.03, 0.0025) + 2 * glitch(0.0025)) / 4,) * 2,
    "missingness": (0.015, 0.015),
    "all zero": (0.0, 0.0),
}
# In an episode an arm errs anew each run, so both ends of a transition matter.
INSIDE = 0.005 / 0.255
FLIPS["episodes"] = (INSIDE * (0.75 * glitch(0.35) + 2 * 0.25 * 0.35),) * 2


def test_a_member_keeps_its_index_for_ever():
    assert {name: member.index for name, member in ZOO.items()} == INDEX


@pytest.mark.parametrize("n", [14, 41])
@pytest.mark.parametrize("name", ZOO)
def test_each_member_flips_at_its_rate_and_in_the_canonical_arms_alone(name, n):
    refused = ZOO[name](n=n, runs=401, lifetimes=500).refused
    assert refused.shape == (401, 500)
    assert not (refused >> np.uint64(n)).any()
    per_lifetime = np.bitwise_count(refused[1:] ^ refused[:-1]).mean(axis=0) / n
    spread = per_lifetime.std(ddof=1) / np.sqrt(500)
    assert abs(per_lifetime.mean() - FLIPS[name][n == 41]) <= 4.5 * spread


def test_labels_are_the_same_for_the_same_seed_and_differ_between_members_and_sizes():
    first = ZOO["iid flips 1.5 %"](n=14, runs=50, lifetimes=20).refused
    again = ZOO["iid flips 1.5 %"](n=14, runs=50, lifetimes=20, seed=SEED).refused
    assert (first == again).all()
    others = [
        Member(99, ZOO["iid flips 1.5 %"].draw)(n=14, runs=50, lifetimes=20),
        ZOO["iid flips 1.5 %"](n=14, runs=50, lifetimes=20, seed=1),
    ]
    assert all((first != other.refused).any() for other in others)


@pytest.mark.parametrize("p", [0.0005, 0.02, 0.3, 1.0])
def test_scattered_bits_are_independent_with_their_chance(p):
    words = scattered(np.random.default_rng(5), 30_000, 41, p)
    bits = (words[:, None] & BIT[:41]) != 0
    assert not (words >> np.uint64(41)).any()
    spread = np.sqrt(p * (1 - p) / 30_000)
    assert np.abs(bits.mean(axis=0) - p).max() <= 4.5 * spread + 1e-12
    # Neighbours in a word and in the order of drawing are as independent as any two.
    for left, right in ((bits[:, :-1], bits[:, 1:]), (bits[:-1, 40], bits[1:, 0])):
        limit = 4.5 * np.sqrt(p * p * (1 - p * p) / left.size) + 1e-12
        assert abs((left & right).mean() - p * p) <= 2 * limit


def test_a_chunk_that_ends_inside_a_word_loses_no_bit(monkeypatch):
    monkeypatch.setattr("drift.stats.zoo.CHUNK", 7)
    words = scattered(np.random.default_rng(5), 2_000, 10, 0.4)
    share = np.bitwise_count(words).mean() / 10
    assert abs(share - 0.4) < 4.5 * np.sqrt(0.24 / 20_000)


def test_a_visit_lasts_as_long_as_its_chance_to_return_says():
    refused = ZOO["visits 0.01, 0.5"](n=1, runs=3000, lifetimes=300).refused
    left = (refused[1:-1] & ~refused[:-2]) == 1
    one_run = (left & (refused[2:] == 0)).sum() / left.sum()
    assert abs(one_run - 0.5) < 4.5 * 0.5 / np.sqrt(left.sum())


def test_a_weekend_has_eight_times_the_flips_of_a_weekday_in_every_lifetime_of_its_own_phase():
    refused = ZOO["weekday"](n=41, runs=28 * 40 + 1, lifetimes=200).refused
    flips = np.bitwise_count(refused[1:] ^ refused[:-1]).reshape(40, 28, 200).mean(axis=0)
    days = np.sort(flips, axis=0)
    assert days[-8:].mean() / days[:20].mean() == pytest.approx(8, rel=0.1)
    first = flips.argmax(axis=0)
    assert len(set(first.tolist())) > 14


def test_a_backend_moves_all_its_arms_at_once():
    refused = ZOO["symmetric backends"](n=41, runs=200, lifetimes=50).refused
    assert set(np.unique(refused).tolist()) == {0, 0b111111}


def test_a_tenth_of_the_arms_is_missing_until_run_300_and_every_arm_as_often():
    missing = ZOO["missingness"](n=41, runs=320, lifetimes=100).missing
    assert (np.bitwise_count(missing[:300]) == 4).all()
    assert not missing[300:].any()
    share = ((missing[:300, :, None] & BIT[:41]) != 0).mean(axis=(0, 1))
    assert np.abs(share - 4 / 41).max() < 4.5 * np.sqrt(0.0976 * 0.9024 / 30_000)
    assert len(np.unique(missing[:300])) > 20_000


def test_all_zero_never_refuses():
    assert not ZOO["all zero"](n=41, runs=100, lifetimes=10).refused.any()


def test_a_change_comes_with_its_run_and_stays():
    draw = change(np.random.default_rng(3), Size(60, 4000, 41), before=0.015, after=0.1, at=20)
    flips = np.bitwise_count(draw.refused[1:] ^ draw.refused[:-1]).mean(axis=1) / 41
    spread = np.sqrt(0.1 / (4000 * 41))
    assert np.abs(flips[:19] - 0.015).max() < 4.5 * spread
    assert np.abs(flips[19:] - 0.1).max() < 4.5 * spread


def test_each_member_says_what_it_does():
    assert len({member.description for member in ZOO.values()}) == 10
    assert ZOO["iid glitch 0.75 %"].description == "Each arm errs with chance p, for one run."


@pytest.mark.parametrize("n", [0, 65])
def test_a_word_holds_one_to_sixty_four_arms(n):
    with pytest.raises(ValueError, match=rf"n in \[1, 64\], got {n}"):
        ZOO["all zero"](n=n, runs=2, lifetimes=1)
