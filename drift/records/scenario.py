"""Made-up traces, of a known truth: nobody's, and no measurement of anything.

Two scenarios with the same shapes and lengths, so that the two differences of a page have truths
to be held against. In one, retries follow the shape and length moves nothing; its shares were
chosen near the figures that the source document reports, which are published figures of others.
In the other, retries follow the length and the shape moves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

import numpy as np
from scipy.special import expit, logit

from drift.records.traces import BASE, Trace, in_order

MODELS: Final = ("synthetic-a", "synthetic-b", "synthetic-c")
#: Of each shape: how many, and the median length in characters.
REFUSALS: Final = {
    "flat-no": (260, 110),
    "policy-recital": (240, 260),
    "redirect": (260, 220),
    "sermon": (220, 240),
    "false-reason": (60, 140),
    "scope-narrow": (16, 420),
    "mixed": (44, 300),
}
#: Spread of the log of a length, for all shapes alike.
SPREAD: Final = 0.8
#: Length at which a scenario states its shares: the median of a flat no.
AT: Final = REFUSALS[BASE][1]
_DAYS: Final = 60
_FIRST: Final = date(2026, 9, 1)


@dataclass(frozen=True)
class Scenario:
    """How made-up retries come about: log odds = logit(share of the shape) + slope log(length/AT).

    Either the slope is 0 or the shares are the same: only then has a difference at the same
    length one truth at every length.
    """

    name: str
    file: str  # under data/synthetic
    heading: str
    note: str
    seed: int
    shares: Mapping[str, float]  # at the length AT
    slope: float = 0.0

    def share(self, shape: str) -> float:
        """Return the share asked again after a shape, over its own lengths."""
        if not self.slope:
            return self.shares[shape]
        nodes, weights = np.polynomial.hermite_e.hermegauss(40)
        lengths = np.log(REFUSALS[shape][1] / AT) + SPREAD * nodes
        odds = logit(self.shares[shape]) + self.slope * lengths
        return round(float(weights @ expit(odds) / weights.sum()), 10)

    def difference(self, shape: str) -> float:
        """Return that share less that of a flat no."""
        return round(self.share(shape) - self.share(BASE), 10)

    def adjusted(self, shape: str) -> float:
        """Return the difference from a flat no at the same length, whatever that is."""
        return round(self.shares[shape] - self.shares[BASE], 10)


BY_SHAPE: Final = Scenario(
    name="by-shape",
    file="traces",
    heading="retries follow the shape",
    note="Retries follow the shape, and length moves nothing. The shares were chosen near the "
    "figures that the source document reports, published figures of others: that they look like "
    "those is by design, and no support.",
    seed=20261201,
    shares={
        "flat-no": 0.25,
        "policy-recital": 0.25,
        "redirect": 0.25,
        "sermon": 0.62,
        "false-reason": 0.35,
        "scope-narrow": 0.10,
        "mixed": 0.35,
    },
)
BY_LENGTH: Final = Scenario(
    name="by-length",
    file="synthetic-by-length",
    heading="retries follow the length",
    note=f"Retries follow the length, and the shape moves nothing: 25 % ask again after "
    f"{AT} characters, and the odds grow in proportion to the length.",
    seed=20261202,
    shares=dict.fromkeys(REFUSALS, 0.25),
    slope=1.0,
)
SCENARIOS: Final = (BY_SHAPE, BY_LENGTH)


def made_up(of: Scenario = BY_SHAPE) -> tuple[Trace, ...]:
    """Return the traces of a scenario, in order: its file in ``data/synthetic``, byte for byte."""
    rng, rows = np.random.default_rng(of.seed), []
    for shape, (many, median) in REFUSALS.items():
        exact = np.exp(rng.normal(np.log(median), SPREAD, many))
        odds = logit(of.shares[shape]) + of.slope * np.log(exact / AT)
        again = rng.random(many) < expit(odds)
        lengths = np.ceil(exact).astype(int)
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


def scenario_of(rows: tuple[Trace, ...]) -> Scenario | None:
    """Return the scenario that these traces are, whole and unchanged; None if they are none."""
    return next((it for it in SCENARIOS if rows == made_up(it)), None)
