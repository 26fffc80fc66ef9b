"""Simulated checks of what a process claims, over the whole zoo and for rivals alike.

A process is a plain function `(D, *, horizon, seed) -> E`. D holds counts, its last axis is
time, and -1 stands where a count has no value; E has the same shape and is 1.0 in the burn-in.
It may carry the attributes `reads` (the count it reads: "home", "pairs", "flips" or "burst";
by default "home") and `excess` (what its claim adds to 1/c; by default 0), and may take the
keywords `n` (canonical arms) and `burn_in` (values).
"""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from drift.stats.betting import Integers, carried
from drift.stats.conformal import conformal
from drift.stats.guarantees import enters
from drift.stats.intervals import wilson_interval
from drift.stats.likelihood import mixture, mixture_evidence, mixture_grid, restart
from drift.stats.zoo import SEED, ZOO, Bits, Lifetimes, Member

Counts: TypeAlias = npt.NDArray[np.int64]
Evidence: TypeAlias = npt.NDArray[np.float64]
Process: TypeAlias = Callable[..., Evidence]
WINDOW: Final = 40


def scaled(raw: Counts, arms: Counts, *, n: int) -> Counts:
    """Scale raw counts over `arms` arms to n by round-half-even; -1 where arms < .7 n."""
    quotient, rest = np.divmod(raw * n, np.maximum(arms, 1))
    up = (2 * rest > arms) | ((2 * rest == arms) & (quotient % 2 == 1))
    value: Counts = np.where(10 * arms < 7 * n, -1, quotient + up)
    return value


def homes(refused: Bits, missing: Bits, window: int = WINDOW) -> tuple[Bits, Bits]:
    """Return for each run the arms whose home is refused, and those whose home is answered.

    Home is the strict majority of an arm's labels over the `window` runs before; in a tie,
    and before the first run, neither bit is set. The balance of votes of each arm is held
    in bit planes, so that one operation serves all arms of a run.
    """
    planes = list(np.zeros((window.bit_length() + 1, refused.shape[1]), np.uint64))

    def add(arms: Bits, minus: bool = False) -> None:
        """Add 1, or -1, to the balance of these arms, in two's complement over the planes."""
        for i, plane in enumerate(planes):
            planes[i], arms = plane ^ arms, (~plane if minus else plane) & arms

    found = np.zeros((2, *refused.shape), np.uint64)
    for run in range(refused.shape[0]):
        found[:, run] = np.bitwise_or.reduce(planes[:-1]) & ~planes[-1], planes[-1]
        add(refused[run] & ~missing[run])
        add(~refused[run] & ~missing[run], minus=True)
        if run >= window:
            add(refused[run - window] & ~missing[run - window], minus=True)
            add(~refused[run - window] & ~missing[run - window])
    return found[0], found[1]


def counts(lifetimes: Lifetimes, reads: str, *, n: int, window: int = WINDOW) -> Counts:
    """Count what a process reads over simulated labels; shape (lifetimes, values).

    The definitions are those of `drift.stats.counts`, over arms in bits.
    """
    x, gone = lifetimes.refused, lifetimes.missing
    gone = np.zeros_like(x) if gone is None else gone
    if reads == "home":
        refused, answered = homes(x, gone, window)
        left = refused[2:] & x[:-2] & x[1:-1] & ~x[2:]
        changed = left | (answered[2:] & ~x[:-2] & ~x[1:-1] & x[2:])
        absent = gone[:-2] | gone[1:-1] | gone[2:]
    elif reads == "pairs":
        even = x.shape[0] // 2 * 2
        changed, absent = x[0:even:2] ^ x[1:even:2], gone[0:even:2] | gone[1:even:2]
    elif reads == "flips":
        changed, absent = x[:-1] ^ x[1:], gone[:-1] | gone[1:]
    elif reads == "burst":
        changed = ~(x[:-3] ^ x[1:-2]) & (x[1:-2] ^ x[2:-1]) & ~(x[2:-1] ^ x[3:])
        absent = gone[:-3] | gone[1:-2] | gone[2:-1] | gone[3:]
    else:
        raise ValueError(f"reads in home, pairs, flips, burst; got {reads!r}")
    value: Counts = np.bitwise_count(changed & ~absent).astype(np.int64)
    if lifetimes.missing is not None:
        value = scaled(value, n - np.bitwise_count(absent).astype(np.int64), n=n)
    return value.T


def declared(process: Process, *, reads: str, excess: float = 0.0) -> Process:
    """Attach to a process the count it reads and what its claim adds to 1/c."""
    process.__dict__.update(reads=reads, excess=excess)
    return process


def point_null(D: Counts, *, horizon: int, seed: int, n: int, burn_in: int = 5) -> Evidence:
    """Return E of the mixture against p0 = max(x, 1/2)/(n B), the estimate for the bound.

    A negative control: x flips of B transitions are not an upper bound on churn, so the
    claim 1/c does not hold (`drift.stats.power.point_null_passage` has the exact values).
    """

    def fold(values: Integers) -> Evidence:
        grid = mixture_grid(np.maximum(values[..., :burn_in].sum(-1), 0.5) / (n * burn_in))
        E = np.ones(values.shape)
        for t, k in enumerate(values[..., burn_in:].cumsum(-1, dtype=np.float64).T):
            E[..., burn_in + t] = mixture_evidence(k, n * (t + 1), *grid)
        return E

    return carried(D, fold)


PROCESSES: Final[dict[str, Process]] = {
    "home": declared(partial(conformal, burn_in=40), reads="home"),
    "pairs": declared(partial(conformal, burn_in=20), reads="pairs"),
    "mixture": declared(partial(mixture), reads="flips", excess=0.025),
    "restart": declared(partial(restart), reads="flips", excess=0.025),
    "burst": declared(partial(restart, burn_in=40), reads="burst"),
}
NEGATIVE_CONTROLS: Final[dict[str, Process]] = {
    "conformal on adjacent flips": declared(partial(conformal, burn_in=40), reads="flips"),
    "point null": declared(point_null, reads="flips"),
}


def load_process(name: str) -> Process:
    """Return one of `PROCESSES` or `NEGATIVE_CONTROLS`, or the rival named `module:function`."""
    if (own := PROCESSES.get(name) or NEGATIVE_CONTROLS.get(name)) is not None:
        return own
    module, colon, function = name.partition(":")
    if not (module and colon and function):
        raise ValueError(
            f"process in {', '.join([*PROCESSES, *NEGATIVE_CONTROLS])} or module:function,"
            f" got {name!r}"
        )
    try:
        found = getattr(importlib.import_module(module), function)
    except ImportError as error:
        raise ValueError(f"process {name!r}: cannot import {module!r}: {error}") from error
    except AttributeError as error:
        raise ValueError(f"process {name!r}: {module!r} has no {function!r}") from error
    if not callable(found):
        raise ValueError(f"process {name!r}: not a function but {type(found).__name__}")
    return cast(Process, found)


def reads(process: Process) -> str:
    """Return the count a process reads."""
    return str(getattr(process, "reads", "home"))


def default_burn_in(process: Process) -> int:
    """Return the burn-in a process has by default, in values; 40 if it names none."""
    taken = inspect.signature(process).parameters.get("burn_in")
    return taken.default if taken and isinstance(taken.default, int) else 40


def uniform_seed(seed: int, model: Member, n: int) -> int:
    """Return the seed of a process's uniforms, independent of the model's labels."""
    words = np.random.SeedSequence([seed, model.index, n, 1]).generate_state(1, np.uint64)
    return int(words[0])


def evidence(
    process: Process, D: Counts, *, n: int, horizon: int, seed: int, burn_in: int | None = None
) -> Evidence:
    """Return E of a process, checked: the shape of D, nowhere negative, nowhere NaN."""
    taken = inspect.signature(process).parameters
    if burn_in is not None and "burn_in" not in taken:
        raise ValueError(f"burn_in = {burn_in}, but the process takes none")
    options = {"n": n, "burn_in": burn_in}
    given = {k: v for k, v in options.items() if k in taken and v is not None}
    E = np.asarray(process(D, horizon=horizon, seed=seed, **given))
    if E.shape != D.shape:
        raise ValueError(f"E of the shape of D, {D.shape}, got {E.shape}")
    if not (E >= 0).all():
        raise ValueError("E >= 0 at every value, got a negative one or NaN")
    return E


@dataclass(frozen=True)
class Crossing:
    """In how many lifetimes of one model a process ever reached a threshold.

    `crossed` counts them at any value; `entered` only at D > 0, as states are entered.
    `low` and `high` are the 95 % Wilson limits of `share` = crossed / lifetimes. `bound` is
    what is claimed, None where nothing is; the share is beyond it if it exceeds `limit`, the
    bound and 3 standard errors at the bound.
    """

    process: str
    member: str
    n: int
    lifetimes: int
    refreshes: int
    threshold: float
    crossed: int
    entered: int
    share: float
    low: float | None
    high: float | None
    bound: float | None
    limit: float | None
    verdict: str


def crossings(
    process: str,
    member: str | Member,
    *,
    n: int,
    lifetimes: int = 2000,
    refreshes: int = 1500,
    thresholds: Sequence[float] = (20, 100),
    burn_in: int | None = None,
    seed: int = SEED,
) -> list[Crossing]:
    """Count the lifetimes of a model which never changes in which E ever reached each threshold.

    The model is named in `ZOO` or given. A lifetime is the burn-in and `refreshes` further
    runs; the horizon is as many bets, or half where pairs are read. A rival is held to
    1/c + `excess` at every member, a process of ours where its claim covers the member.
    Source: Ville (1939): what starts at 1 and does not grow on average under the null ever
    reaches c with a chance of at most 1/c.
    """
    if isinstance(member, str) and member not in ZOO:
        raise ValueError(f"member: got {member!r}, expected one of {'; '.join(ZOO)}")
    model = ZOO[member] if isinstance(member, str) else member
    name = member if isinstance(member, str) else member.description
    run = load_process(process)
    pace = 2 if reads(run) == "pairs" else 1
    runs = refreshes + max(40, pace * (burn_in or default_burn_in(run))) + 3
    D = counts(model(n=n, runs=runs, lifetimes=lifetimes, seed=seed), reads(run), n=n)
    own = uniform_seed(seed, model, n)
    E = evidence(run, D, n=n, horizon=refreshes // pace, seed=own, burn_in=burn_in)
    covered = process in model.gated or process not in PROCESSES
    rows = []
    for c in thresholds:
        crossed = int((E >= c).any(axis=1).sum())
        entered = int(enters(E, D, c).any(axis=1).sum())
        share, wilson = crossed / lifetimes, wilson_interval(crossed, lifetimes)
        bound = limit = None
        verdict = "not covered by a claim"
        if covered:
            bound = getattr(run, "excess", 0.0) + 1 / c
            limit = bound + 3 * math.sqrt(bound * (1 - bound) / lifetimes)
            verdict = "within the bound" if share <= limit else "beyond the bound"
        place = (process, name, n, lifetimes, refreshes, c, crossed, entered)
        rows.append(Crossing(*place, share, wilson.low, wilson.high, bound, limit, verdict))
    return rows
