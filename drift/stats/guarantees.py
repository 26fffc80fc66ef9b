"""What may be claimed of each process, as data that travels with its values."""

from dataclasses import dataclass, replace
from typing import Any, Final, Literal

UNSEEN: Final = (
    "episodes of several runs (they ring: 88 % measured)",
    "trends in churn",
    "a return from a long quiet spell",
    "uneven spacing of the runs",
)


@dataclass(frozen=True)
class Guarantee:
    """A bound, what it assumes, how far it reaches and what it leaves out."""

    process: str
    kind: Literal["theorem", "verified by simulation", "model-based", "none"]
    claim: str
    assumption: str
    not_covered: tuple[str, ...]
    source: str
    watch: float | None = None  # share of series that may ever reach 20 (a panel: 20 M)
    alarm: float | None = None  # share of series that may ever reach 100 (a panel: 100 M)
    horizon: int | None = None  # bets


CONFORMAL: Final = "conformal test martingales (arXiv 2102.10439, 2412.03464); Ville's inequality"
MIXTURE: Final = Guarantee(
    "mixture",
    kind="model-based",
    watch=0.075,
    alarm=0.035,
    claim="A series ever reaches c with a chance of at most 2.5 % + 1/c.",
    assumption="Flips are independent across arms and across refreshes, and the rate of each "
    "arm stays at or below p0.",
    not_covered=(
        "a glitch of one run, which makes two flips (restart: 9.8 % watch, 6.5 % alarm)",
        "bad runs, which hit many arms at once",
    ),
    source="Robbins (1970); Ramdas, Grünwald, Vovk, Shafer (2023)",
)

GUARANTEES: Final = {
    guarantee.process: guarantee
    for guarantee in (
        Guarantee(
            "home",
            kind="verified by simulation",
            watch=0.05,
            alarm=0.01,
            claim="A series enters watch with a chance of at most 5 % and alarm of at most 1 % "
            "over its lifetime. Verified by simulation, not a theorem, for its values overlap: "
            "over 38 stationary configurations (19 models, n = 14 and 41, 2,000 lifetimes each) "
            "watch .0-3.2 %, alarm .0-.65 %.",
            assumption="What makes the labels is stationary, as in the configurations simulated: "
            "arms with memory of their label, weekday cycles, bad runs, sticky backends and "
            "missing arms among them.",
            horizon=1500,
            not_covered=(*UNSEEN, "a burst of one refresh: home is not built to see it"),
            source=CONFORMAL,
        ),
        Guarantee(
            "pairs",
            kind="theorem",
            alarm=0.01,
            claim="A series ever reaches 100, from baseline to close, with a chance of at most "
            "1 %. It confirms an alarm; alone it sets no state.",
            assumption="The vectors of labels and missingness of usable runs are exchangeable "
            "over time (iid runs suffice; arms may depend in any way); or no arm is missing and "
            "the flip vectors between consecutive usable runs are iid over time and independent "
            "of the current labels. U is uniform and independent of them.",
            horizon=750,
            not_covered=(
                *UNSEEN,
                "arms whose chance to flip depends on their label (up to 1.7 % measured)",
            ),
            source=CONFORMAL,
        ),
        MIXTURE,
        replace(MIXTURE, process="restart", horizon=1500, source="Shin, Ramdas, Rinaldo (2023)"),
        Guarantee(
            "burst",
            kind="none",
            claim="A notice at 100, outside every bound. It is false in 36 % of lifetimes under "
            "bad runs and in 82 % under sticky backends (n = 41).",
            assumption="None under which it is bounded.",
            horizon=1500,
            not_covered=("everything",),
            source="the restart process on flips that the next run confirms",
        ),
        Guarantee(
            "coverage",
            kind="theorem",
            watch=0.05,
            alarm=0.01,
            claim="A series ever reaches 20 with a chance of at most 5 %, and 100 of at most 1 %.",
            assumption="The vectors of statuses of the runs are exchangeable over time; U is "
            "uniform and independent of them.",
            horizon=3000,
            not_covered=("outages of several runs", "trends"),
            source=CONFORMAL,
        ),
        Guarantee(
            "panel",
            kind="verified by simulation",
            watch=0.05,
            alarm=0.01,
            claim="Any model of the M registered whose own null holds ever reaches 100 M with a "
            "chance of at most 1 % (20 M: 5 %): the union bound over `home`, under any "
            "dependence between models.",
            assumption="That of `home` for each model whose null holds, within one epoch of the "
            "panel and the first watch of each slot.",
            horizon=1500,
            not_covered=(
                "watches opened later: of K watches opened, expect at most K x 1 % false alarms",
                "what `home` does not cover",
            ),
            source="union bound",
        ),
        Guarantee(
            "merged",
            kind="model-based",
            claim="At the current look, never latched: e-BH and closed e-BH keep the false "
            "discovery rate at alpha + 2.5 % for each model; the mean of the e-values is one "
            "e-value of the whole panel but for the same 2.5 % each.",
            assumption="That of the mixture or restart for each model, its null holding given "
            "the pasts of all models.",
            not_covered=("running maxima", "conformal evidence, which must not be merged"),
            source="Wang, Ramdas (2022); Xu et al. (2025)",
        ),
        Guarantee(
            "look",
            kind="none",
            claim="One look between two runs, registered beforehand. Mid-p is not exact: at a "
            "nominal 5 % its conditional size reaches 7.7 %.",
            assumption="A pair that changes is as likely to change either way, and pairs are "
            "independent.",
            not_covered=("a second look", "a run picked after its result was seen"),
            source="Lancaster (1961); Fagerland, Lydersen, Laake (2013)",
        ),
    )
}


def enters(evidence: Any, value: Any, threshold: float) -> Any:
    """Tell whether E at a value enters a state: E >= threshold, and the value is above 0.

    Numbers, or arrays of one shape. A state is latched: entered once, it stays. A model that
    never flips cannot ring on the dice alone. That is a part of Ville's event, so the bounds
    hold.
    """
    return (evidence >= threshold) & (value > 0)
