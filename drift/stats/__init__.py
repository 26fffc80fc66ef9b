"""Counts of labels: pure functions on numpy and scipy, no I/O, no configuration.

What cannot be computed is None with a `reason`, never 0 or NaN. An argument
outside its range is a ValueError which names the bound and the value. A label
is "refused", "answered", "undetermined" or None; the last two are not counted.
"""

from drift.stats.controls import control_check as control_check
from drift.stats.flips import Flips as Flips
from drift.stats.flips import flips as flips
from drift.stats.intervals import clopper_pearson_upper as clopper_pearson_upper
from drift.stats.intervals import proportion as proportion
from drift.stats.intervals import rate_range as rate_range
from drift.stats.intervals import significant as significant
from drift.stats.intervals import wilson_interval as wilson_interval
from drift.stats.language import language_asymmetry as language_asymmetry
from drift.stats.paired import detectability_sentence as detectability_sentence
from drift.stats.paired import midp_mcnemar as midp_mcnemar
from drift.stats.paired import minimum_detectable_flips as minimum_detectable_flips
from drift.stats.unlock import purpose_unlock as purpose_unlock
from drift.stats.wording import family_majority as family_majority
from drift.stats.wording import wording_invariance as wording_invariance
