"""Counts of labels: pure functions on numpy and scipy, no I/O, no configuration.

What cannot be computed is None with a `reason`, never 0 or NaN. An argument
outside its range is a ValueError which names the bound and the value. A label
is "refused", "answered", "undetermined" or None; the last two are not counted.
"""

from drift.stats.aftermath import Dice as Dice
from drift.stats.aftermath import Onset as Onset
from drift.stats.aftermath import dice as dice
from drift.stats.aftermath import onset as onset
from drift.stats.agreement import Estimate as Estimate
from drift.stats.agreement import cohen_kappa as cohen_kappa
from drift.stats.agreement import corrected_rate as corrected_rate
from drift.stats.agreement import rogan_gladen as rogan_gladen
from drift.stats.attribution import Attribution as Attribution
from drift.stats.attribution import Pairs as Pairs
from drift.stats.attribution import attribute as attribute
from drift.stats.attribution import paired_interval as paired_interval
from drift.stats.attribution import pairs_of as pairs_of
from drift.stats.conformal import Conformal as Conformal
from drift.stats.conformal import conformal as conformal
from drift.stats.conformal import uniform as uniform
from drift.stats.controls import control_check as control_check
from drift.stats.counts import Count as Count
from drift.stats.counts import adjacent_counts as adjacent_counts
from drift.stats.counts import burst_count as burst_count
from drift.stats.counts import burst_counts as burst_counts
from drift.stats.counts import home_count as home_count
from drift.stats.counts import home_counts as home_counts
from drift.stats.counts import pair_count as pair_count
from drift.stats.counts import pair_counts as pair_counts
from drift.stats.flips import Flips as Flips
from drift.stats.flips import flips as flips
from drift.stats.floor import Floor as Floor
from drift.stats.floor import floor_value as floor_value
from drift.stats.floor import noise_floor as noise_floor
from drift.stats.guarantees import GUARANTEES as GUARANTEES
from drift.stats.guarantees import Guarantee as Guarantee
from drift.stats.guarantees import enters as enters
from drift.stats.intervals import clopper_pearson_upper as clopper_pearson_upper
from drift.stats.intervals import proportion as proportion
from drift.stats.intervals import rate_range as rate_range
from drift.stats.intervals import significant as significant
from drift.stats.intervals import wilson_interval as wilson_interval
from drift.stats.language import language_asymmetry as language_asymmetry
from drift.stats.likelihood import Mixture as Mixture
from drift.stats.likelihood import Restart as Restart
from drift.stats.likelihood import mixture as mixture
from drift.stats.likelihood import mixture_no_growth as mixture_no_growth
from drift.stats.likelihood import restart as restart
from drift.stats.likelihood import restart_no_growth as restart_no_growth
from drift.stats.paired import detectability_sentence as detectability_sentence
from drift.stats.paired import midp_mcnemar as midp_mcnemar
from drift.stats.paired import minimum_detectable_flips as minimum_detectable_flips
from drift.stats.panel import ExpectedFalse as ExpectedFalse
from drift.stats.panel import closed_e_bh as closed_e_bh
from drift.stats.panel import e_bh as e_bh
from drift.stats.panel import expected_false as expected_false
from drift.stats.panel import holm as holm
from drift.stats.panel import merged_mean as merged_mean
from drift.stats.panel import union_threshold as union_threshold
from drift.stats.unlock import purpose_unlock as purpose_unlock
from drift.stats.wording import family_majority as family_majority
from drift.stats.wording import wording_invariance as wording_invariance
