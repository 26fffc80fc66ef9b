import json
import subprocess
import sys

import drift.stats

PROBE = """
import importlib, json, pkgutil, sys
import numpy, scipy.special
before = set(sys.modules)
import drift.stats
for module in pkgutil.iter_modules(drift.stats.__path__):
    importlib.import_module(f"drift.stats.{module.name}")
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_stats_import_numpy_and_scipy_alone():
    out = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    loaded = json.loads(out.stdout)
    own = {name for name in loaded if name.split(".")[0] == "drift"}
    assert own >= {"drift.stats", "drift.stats.intervals"}
    assert all(name == "drift" or name.startswith("drift.stats") for name in own)
    others = {name.split(".")[0] for name in loaded} - {"drift"}
    assert others <= set(sys.stdlib_module_names) | {"numpy", "scipy"}


PUBLIC = {
    "Attribution",
    "Conformal",
    "Count",
    "Dice",
    "Estimate",
    "ExpectedFalse",
    "Flips",
    "Floor",
    "Guarantee",
    "Mixture",
    "Onset",
    "Pairs",
    "Restart",
    "adjacent_counts",
    "attribute",
    "burst_count",
    "burst_counts",
    "clopper_pearson_upper",
    "closed_e_bh",
    "cohen_kappa",
    "conformal",
    "control_check",
    "corrected_rate",
    "detectability_sentence",
    "dice",
    "e_bh",
    "expected_false",
    "family_majority",
    "flips",
    "floor_value",
    "holm",
    "home_count",
    "home_counts",
    "language_asymmetry",
    "merged_mean",
    "midp_mcnemar",
    "minimum_detectable_flips",
    "mixture",
    "mixture_no_growth",
    "enters",
    "noise_floor",
    "onset",
    "pair_count",
    "pair_counts",
    "paired_interval",
    "pairs_of",
    "proportion",
    "purpose_unlock",
    "rate_range",
    "restart",
    "restart_no_growth",
    "rogan_gladen",
    "significant",
    "uniform",
    "union_threshold",
    "wilson_interval",
    "wording_invariance",
}


def test_the_public_list_is_these_names():
    found = {name for name, value in vars(drift.stats).items() if callable(value)}
    assert {name for name in found if not name.startswith("_")} == PUBLIC
