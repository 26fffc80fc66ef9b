"""The numbers of the mission document, recomputed; and its published counts, watched again.

``config/claims.toml`` holds the claims as data; the functions here are those it names.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import binom

from drift.bank import load_bank
from drift.config import project_root
from drift.report.curves import lines_picture
from drift.report.display import figure, shown
from drift.report.markup import Markup, html, joined, percent, table, with_data
from drift.report.method import checked, unfit
from drift.report.tables import each
from drift.stats.counts import Count
from drift.stats.intervals import clopper_pearson_upper, wilson_interval
from drift.stats.likelihood import (
    Mixture,
    Restart,
    churn_bound,
    mixture_evidence,
    mixture_grid,
    mixture_no_growth,
)
from drift.stats.paired import midp_mcnemar, minimum_detectable_flips
from drift.stats.power import delay, first_passage, point_null_passage
from drift.stats.simulation import crossings, evidence, load_process

#: How each verdict is shown.
VERDICTS = {
    "holds": "✓ {}{}",
    "holds under an assumption": "✓ {}{}",
    "does not hold": '<span class="drift-warning">✗ {}{}</span>',
    "not stated: our extension": "{}{}",
    "not checkable here": "{}{}",
}
CLAIM = '{}<br><span class="drift-small">{} {}</span>'
#: Canonical arms behind the published counts.
ARMS = 41
#: Columns of :func:`claims` in its download.
CLAIMED = {
    "where": "section",
    "says": "claim",
    "claimed": "claimed_value",
    "ours": "our_value",
    "detail": "our_detail",
    "verdict": "verdict",
    "assumption": "assumption",
    "note": "remark",
}


def clopper_pearson_excess(trials: int, quantile: float) -> float:
    """Return how much wider the exact interval is than Wilson's: a quantile over counts."""
    highs = np.array([clopper_pearson_upper(x, trials).high for x in range(trials + 1)])
    wilson = np.array([wilson_interval(x, trials).high for x in range(trials + 1)])
    excess = (highs + highs[::-1] - 1) / (wilson + wilson[::-1] - 1) - 1
    return float(np.quantile(excess, quantile))


def midp_size(most: int, level: float = 0.05) -> float:
    """Return the largest conditional size of the mid-p test at up to `most` discordant pairs."""
    sizes = (
        sum(math.comb(n, k) for k in range(n + 1) if midp_mcnemar(k, n - k) <= level) / 2**n
        for n in range(1, most + 1)
    )
    return float(max(sizes))


def wilson_miss(compared: int, most: float = 0.05) -> float:
    """Return how often Wilson's 97.5 % upper limit misses the churn, at worst up to `most`."""
    highs = np.array([wilson_interval(x, compared).high for x in range(compared + 1)])
    highs = highs[highs <= most]
    # Just above a limit, every count that gives this limit or a lower one misses.
    return float(binom.cdf(np.arange(len(highs)), compared, highs).max())


def flattening(n: int, churn: float) -> float:
    """Return what a pair takes off the mean p0 at 40 to 80 pairs, as a share of 20 to 40."""
    bound = np.vectorize(lambda x, compared: churn_bound(int(x), compared) or 1.0)
    sizes = [pairs * n for pairs in (20, 40, 80)]
    at = [binom(m, churn).expect(partial(bound, compared=m)) for m in sizes]
    return float((at[1] - at[2]) / (at[0] - at[1]) / 2)


def silent_share(refreshes: int) -> float:
    """Return the share of the point null's crossings whose burn-in had seen no flip."""
    silent = first_passage(n=12, p0=0.5 / 60, p=0.015, refreshes=refreshes)[-1]
    every = point_null_passage(refreshes=refreshes)[-1]
    return float(binom.pmf(0, 60, 0.015) * silent / every)


def none_in(lifetimes: int, refreshes: int) -> float:
    """Return P(no alarm in so many lifetimes): 12 arms, 20 pairs, 1.5 % churn, threshold 100."""
    shape: dict[str, Any] = {"n": 12, "p": 0.015, "threshold": 100, "refreshes": refreshes}
    chance = binom.pmf(np.arange(241), 240, 0.015)
    likely = np.flatnonzero(chance > 1e-9).tolist()
    bounds = {x: churn_bound(x, 240) or 1.0 for x in likely}
    crossed = sum(chance[x] * first_passage(p0=bounds[x], **shape)[-1] for x in likely)
    return float((1 - crossed) ** lifetimes)


def mixture_after(flips: int, compared: int, p0: float) -> float:
    """Return E of the mixture at cumulative counts."""
    return float(mixture_evidence(flips, compared, *mixture_grid(p0)))


def burst_after_quiet(n: int, changed: int, quiet: int, churn: float) -> float:
    """Return E of the mixture after `changed` arms flip at once, flips before it as expected."""
    flips = round(churn * n * quiet) + changed
    return mixture_after(flips, n * (quiet + 1), churn_bound(round(20 * n * churn), 20 * n) or 1.0)


def arms(scope: str) -> int:
    """Return how many arms the bank has in a run of this scope."""
    return len(load_bank(project_root() / "config" / "probe_bank.json").arms(scope))


def requests(models: int, cadence_hours: int) -> int:
    """Return the requests of a day: one full run, canonical ones in the other slots."""
    return models * ((24 // cadence_hours - 1) * arms("canonical") + arms("full"))


def false_alarms(threshold: float, **given: Any) -> tuple[float, int]:
    """Return the share of simulated lifetimes in which the mixture ever reached a threshold."""
    found = crossings("mixture", thresholds=[threshold], **given)[0]
    return found.share, found.lifetimes


def shifted(what: str, **given: Any) -> tuple[float | None, int]:
    """Return a figure of the mixture's delay from 1.5 % to 10 % churn, and its lifetimes."""
    found = delay("mixture", after=0.1, **given)
    return getattr(found, what), found.lifetimes - found.early


#: Simulated: each gives its value and the lifetimes behind it.
SIMULATED = ("false_alarms", "caught", "delay")
COMPUTE: dict[str, Callable[..., Any]] = {
    "clopper_pearson_excess": clopper_pearson_excess,
    "detectable": lambda **given: minimum_detectable_flips(**given).flips,
    "false_alarms": false_alarms,
    "evidence": mixture_after,
    "midp_size": midp_size,
    "midp": midp_mcnemar,
    "any_of": lambda looks, level: 1 - (1 - level) ** looks,
    "estimate_below": lambda compared, churn: binom.cdf(
        math.ceil(churn * compared) - 1, compared, churn
    ),
    "point_null": lambda refreshes: point_null_passage(refreshes=refreshes)[-1],
    "point_null_silent_share": silent_share,
    "no_growth": mixture_no_growth,
    "wilson_miss": wilson_miss,
    "compound": lambda models, threshold: models * 0.025 + 1 / threshold,
    "churn_bound": churn_bound,
    "flattening": flattening,
    "none_in": none_in,
    "caught": partial(shifted, "share"),
    "delay": partial(shifted, "median"),
    "burst_after_quiet": burst_after_quiet,
    "arms": arms,
    "requests": requests,
    "usd_a_thousand": lambda usd_a_year, **given: usd_a_year / requests(**given) / 365 * 1000,
    "wilson_high": lambda **given: wilson_interval(**given).high,
}


def claims(*, lifetimes: int, seed: int) -> pd.DataFrame:
    """Return every claim of ``config/claims.toml`` with our value and the verdict.

    Columns: where, says, claimed, ours, detail, verdict, arithmetic, assumption, note. A
    simulated value is that of so many lifetimes under `seed`, as the detail says.
    """
    checked(lifetimes=lifetimes, seed=seed)
    path = project_root() / "config" / "claims.toml"
    rows = []
    for claim in tomllib.loads(path.read_text(encoding="utf-8"))["claim"]:
        dice = {"lifetimes": lifetimes, "seed": seed} if claim["compute"] in SIMULATED else {}
        value = COMPUTE[claim["compute"]](**claim["arguments"], **dice)
        detail = ""
        if dice:
            value, count = value
            detail = f"{count:,} lifetimes"
            if value is not None and "%" in claim["format"]:
                limits = wilson_interval(round(value * count), count)
                detail = f"{percent(limits.low or 0)} to {percent(limits.high or 0)}; {detail}"
        least, most = claim.get("holds", (0, 0))
        holds = value is not None and least - 1e-12 <= value <= most + 1e-12
        place = int("assumption" in claim) if holds else 2
        place = place if "holds" in claim else 4 if "claimed" in claim else 3
        ours = "not reached" if value is None else claim["format"].format(value)
        claim |= {"ours": ours.replace("%", "\N{NO-BREAK SPACE}%"), "detail": detail}
        rows.append(claim | {"verdict": list(VERDICTS)[place]})
    return pd.DataFrame(rows).fillna(
        {"claimed": "", "assumption": "", "note": "", "arithmetic": ""}
    )


@shown
def claims_table(found: pd.DataFrame) -> Markup:
    """Return the claims by their place in the document, with verdicts in words and colour."""
    parts = []
    for where, rows in found.groupby("where", sort=False):
        lines = [
            {
                "Claim": html(
                    CLAIM, row.says, row.assumption and f"If {row.assumption}.", row.note
                ),
                "Claimed": row.claimed,
                "Ours": html("<b>{}</b>{}", row.ours, row.detail and f" ({row.detail})"),
                "Verdict": html(VERDICTS[row.verdict], row.verdict, row.arithmetic),
            }
            for row in each(rows)
        ]
        parts.append(html("<h3>{}</h3>{}", where, table(pd.DataFrame(lines))))
    shown = html('<div class="drift-claims">{}</div>', joined(parts))
    return with_data(shown, "claims", found[list(CLAIMED)].rename(columns=CLAIMED))


def published(process: str, *, method_version: int, burn_in: int, seed: int) -> pd.DataFrame:
    """Return E of processes on the published counts of one method version.

    Columns: model, series (the process), x (when), y (E), flips, compared, p0, part, entered.
    The mixture and the restart process read flips and arms compared, after 20 transitions; any
    other, ours or a rival, reads the flips scaled to 41 arms, whatever it reads in a record:
    only flips were published. A burn-in of 0 is its own.
    """
    frame = pd.read_csv(project_root() / "data" / "published" / "refusal_drift_churn.csv")
    names = checked(process=process, burn_in=burn_in, seed=seed)["process"]
    if method_version not in set(frame.method_version):
        known = ", ".join(map(str, frame.method_version.unique()))
        raise unfit("method_version", method_version, f"one of {known}")
    frame = frame[frame.method_version == method_version]
    parts = []
    for _, rows in frame.groupby("model", sort=False):
        counts = list(zip(rows.flips.tolist(), rows.compared.tolist(), strict=True))
        D = np.array([Count(m, tuple(range(x))).value(ARMS) for x, m in counts])
        for name in names:
            p0 = None
            if name in ("mixture", "restart"):
                start: Any = Mixture() if name == "mixture" else Restart()
                states = list(accumulate(counts, lambda state, at: state.step(*at), initial=start))
                y, p0 = [state.evidence for state in states[1:]], states[-1].p0
            else:
                size: Any = {"n": ARMS, "horizon": 1500, "burn_in": burn_in or None}
                y = evidence(load_process(name), D, seed=seed, **size).tolist()
            short = name.removesuffix(" on adjacent flips")
            parts.append(rows.assign(series=short, x=pd.to_datetime(rows["at"]), y=y, p0=p0))
    return pd.concat(parts, ignore_index=True).assign(part=0, entered="")


@shown
def published_plot(frame: pd.DataFrame, caption: str) -> Markup:
    """Return one figure for each model of the published counts."""
    options = {"xlabel": "transition, UTC", "ylabel": "evidence E", "debt": "mixture"}
    kind = lines_picture(levels={"watch 20": 20.0, "alarm 100": 100.0}, **options)
    parts = []
    for model, rows in frame.groupby("model", sort=False):
        behind = rows.pivot_table("y", ["at", "flips", "compared"], "series", sort=False)
        name = str(model).rpartition("/")[2].replace(".", "-")
        text = f"{model}. {caption.strip()}"
        tidy = rows.drop(columns="at").rename(
            columns={"series": "process", "y": "evidence", "x": "at"}
        )
        columns = "model method_version at process evidence flips compared p0".split()
        made = figure(
            f"published-{name}", kind, rows, behind.reset_index(), text, data=tidy[columns]
        )
        parts.append(made)
    return joined(parts, "\n")


@shown
def published_table(frame: pd.DataFrame) -> Markup:
    """Return for each model what was calibrated, what was monitored, and where E ended."""
    rows, shown = [], []
    for model, lines in frame.groupby("model", sort=False):
        one = lines[lines.series == lines.series.iloc[0]]
        bounds = lines.p0.dropna()
        first, rest = one[:20], one[20:]
        counts = {
            "model": model,
            "p0": bounds.iloc[0] if len(bounds) else None,
            "burn_in_flips": first.flips.sum(),
            "burn_in_compared": first.compared.sum(),
            "flips": rest.flips.sum(),
            "compared": rest.compared.sum(),
            "transitions": len(rest),
        }
        row = {
            "Model": model,
            "Flips in 20 transitions": "{burn_in_flips} of {burn_in_compared}".format(**counts),
            "p0": percent(bounds.iloc[0]) if len(bounds) else "",
            "Flips in the other transitions": "{flips} of {compared}, in {transitions}".format(
                **counts
            ),
        }
        for name, path in lines.groupby("series", sort=False):
            last, top = path.y.iloc[-1], path.y.max()
            rows.append(counts | {"process": name, "evidence": last, "highest": top})
            row[f"E, {name}"] = f"{last:.2g}, highest {top:.2g}"
        shown.append(row)
    return with_data(table(pd.DataFrame(shown)), "published-counts", pd.DataFrame(rows))
