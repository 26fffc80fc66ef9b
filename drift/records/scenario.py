"""Made-up traces, of a known truth: nobody's, and no measurement of anything.

The shares of retries are of the order that published figures have, so that the page shows what
its figures look like; length moves nothing, so that the adjusted differences have a truth to be
held against. ``data/synthetic/traces.jsonl`` is :func:`made_up`, byte for byte.
"""

from __future__ import annotations

from datetime import date, timedelta
from typing import Final

import numpy as np

from drift.records.traces import Trace, in_order

SEED: Final = 20261201
MODELS: Final = ("synthetic-a", "synthetic-b", "synthetic-c")
#: Of each shape: how many, the share asked again, and the median length in characters.
SCENARIO: Final = {
    "flat-no": (260, 0.25, 110),
    "policy-recital": (240, 0.25, 260),
    "redirect": (260, 0.25, 220),
    "sermon": (220, 0.62, 240),
    "false-reason": (60, 0.35, 140),
    "scope-narrow": (16, 0.10, 420),
    "mixed": (44, 0.35, 300),
}
#: Spread of the log of a length, for all shapes alike.
SPREAD: Final = 0.8
_DAYS: Final = 60
_FIRST: Final = date(2026, 9, 1)


def made_up(seed: int = SEED) -> tuple[Trace, ...]:
    """Return the traces of the scenario, in order."""
    rng, rows = np.random.default_rng(seed), []
    for shape, (many, share, median) in SCENARIO.items():
        lengths = np.ceil(np.exp(rng.normal(np.log(median), SPREAD, many))).astype(int)
        again = rng.random(many) < share
        for length, retried in zip(lengths.tolist(), again.tolist(), strict=True):
            # What was asked again is reworded three times in four.
            words = ("retry", "rephrase") if retried else ("accept", "other", "stop")
            chances = (0.25, 0.75) if retried else (0.2, 0.3, 0.5)
            rows.append(
                Trace(
                    when=(_FIRST + timedelta(days=int(rng.integers(_DAYS)))).isoformat(),
                    model=str(rng.choice(MODELS)),
                    shape=shape,
                    next_action=str(rng.choice(words, p=chances)),
                    length=length,
                    synthetic=True,
                )
            )
    return in_order(rows)
