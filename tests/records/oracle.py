"""The alarm a second time, slowly: whole histories are kept and every E is computed from them.

Written from the description of the alarm and not from the package, of which nothing is
imported. Labels are letters: ``a`` answered, ``r`` refused, ``-`` not asked; anything else
is not determined.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from scipy.stats import beta

POWERS = (0.1, 0.2, 0.35, 0.5, 0.7)
ODDS = (1.5, 2, 3, 5, 10, 30)
THRESHOLDS = {"watch": 20, "alarm": 100}
PROCESSES = ("home", "pairs", "coverage", "mixture", "restart", "burst")
#: What ends a series before a run, in the order in which it is told.
CLOSING = {
    "instrument": "our instrument for this model changed",
    "cadence": "the registered cadence changed",
    "alarm": "the alarm's parameters changed",
}


@dataclass(frozen=True)
class Setting:
    """What is registered when a run is made. `alarm` holds each process's parameters."""

    seed: str
    panel: str
    size: int
    cadence: int | None
    alarm: Mapping[str, Any]
    instruments: Mapping[str, str]
    roles: Mapping[str, str]

    def identity(self, model: str) -> dict[str, Any]:
        instrument = self.instruments[model]
        return {"instrument": instrument, "cadence": self.cadence, "alarm": self.alarm}


@dataclass(frozen=True)
class Change:
    """How many arms were determined in all runs of a value, and which of them changed."""

    compared: int
    arms: list[int]


def change(rows: Sequence[str], changed: Callable[[int], bool]) -> Change:
    arms = range(len(rows[0]))
    known = [i for i in arms if all(row[i] in "ar" for row in rows)]
    return Change(len(known), [i for i in known if changed(i)])


def scaled(found: Change, n: int) -> int | None:
    """Round raw n/m half to even; None where m < .7 n."""
    if found.compared < Fraction(7, 10) * n:
        return None
    exact = Fraction(len(found.arms) * n, found.compared)
    below = math.floor(exact)
    rest = exact - below
    return below + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and below % 2 == 1))


def home(letters: str) -> str | None:
    answered, refused = letters.count("a"), letters.count("r")
    return None if answered == refused else "a" if answered > refused else "r"


def evidence(factors: Sequence[Sequence[float]], horizon: int) -> float:
    """E = 1 - sum w + mean S, with S <- (S + w_t) f_t from the first bet to the last."""
    if not factors:
        return 1.0
    means = []
    for column in zip(*factors, strict=True):
        wealth = 0.0
        for t, factor in enumerate(column, start=1):
            w = 1 / 2 if t == 1 else 1 / (2 * (horizon - 1))
            wealth = min((wealth + w) * factor, 1e300)
        means.append(wealth)
    gone = Fraction(1, 2) + Fraction(len(factors) - 1, 2 * (horizon - 1))
    return float(1 - gone) + math.fsum(means) / len(means)


@dataclass
class Ranks:
    """The conformal process over all values so far, burn-in included."""

    draw: Callable[[int], Fraction]
    n: int
    burn_in: int
    horizon: int
    values: list[int] = field(default_factory=list)
    factors: list[list[float]] = field(default_factory=list)
    E: float | None = 1.0

    @property
    def calibrated(self) -> bool:
        return len(self.values) >= self.burn_in

    @property
    def over(self) -> bool:
        return len(self.factors) >= self.horizon

    def give(self, found: Change) -> tuple[int, dict[str, Any]] | None:
        """Take a value; return the count and its row, None if there is no value."""
        value = scaled(found, self.n)
        if self.over or value is None:
            return None
        p, b = None, len(self.values) + 1
        if self.calibrated:
            greater = sum(x > value for x in self.values)
            equal = sum(x == value for x in self.values)
            p = float((greater + self.draw(b) * (1 + equal)) / b)
            self.factors.append([k * p ** (k - 1) for k in POWERS])
            self.E = evidence(self.factors, self.horizon)
        self.values.append(value)
        return value, {"D": value, "m": found.compared, "P": p, "E": self.E}


@dataclass
class Flips:
    """What mixture, restart and burst share: p0 from the first `burn_in` values."""

    burn_in: int
    horizon: float = math.inf
    seen: list[tuple[int, int]] = field(default_factory=list)

    @property
    def calibrated(self) -> bool:
        return len(self.seen) >= self.burn_in

    @property
    def over(self) -> bool:
        return len(self.seen) - self.burn_in >= self.horizon

    @property
    def p0(self) -> float | None:
        flips, compared = map(sum, zip(*self.seen[: self.burn_in], strict=True))
        if not self.calibrated or flips == compared:
            return None
        return float(beta.ppf(0.975, flips + 1, compared - flips))

    @property
    def E(self) -> float | None:
        p0, bets = self.p0, self.seen[self.burn_in :]
        if self.calibrated and p0 is None:
            return None
        return 1.0 if p0 is None or not bets else self.likelihood(p0, bets)

    def likelihood(self, p0: float, bets: list[tuple[int, int]]) -> float:
        raise NotImplementedError

    def give(self, found: Change) -> tuple[int, dict[str, Any]] | None:
        if self.over or not found.compared:
            return None
        flips = len(found.arms)
        self.seen.append((flips, found.compared))
        return flips, {"flips": flips, "compared": found.compared, "p0": self.p0, "E": self.E}


class Mixture(Flips):
    """The mean over q of the likelihood ratio of all flips since the burn-in."""

    def likelihood(self, p0: float, bets: list[tuple[int, int]]) -> float:
        k, answered = sum(k for k, _ in bets), sum(N - k for k, N in bets)
        terms = []
        for j in range(1, 101):
            q = p0 + (1 - p0) * j / 100
            fall = -math.inf if j == 100 else math.log((1 - q) / (1 - p0))
            terms.append(k * math.log(q / p0) + (answered * fall if answered else 0.0))
        top = max(terms)
        mean = math.fsum(math.exp(term - top) for term in terms) / 100
        return math.exp(min(top, 690)) * mean


class Restart(Flips):
    """The conformal process's sum over start times, with likelihood ratios for factors."""

    def likelihood(self, p0: float, bets: list[tuple[int, int]]) -> float:
        odds = [c * p0 / (1 - p0) for c in ODDS]
        qs = [o / (1 + o) for o in odds]
        factors = [
            [math.exp(k * math.log(q / p0) + (N - k) * math.log((1 - q) / (1 - p0))) for q in qs]
            for k, N in bets
        ]
        return evidence(factors, int(self.horizon))


@dataclass
class Watch:
    """One series under the alarm, with the labels of all its usable runs."""

    series: int
    opened: str
    model: str
    panel: int | None
    setting: Setting
    arms: Sequence[str]
    rows: list[str] = field(default_factory=list)
    gap: int = 0
    entered: dict[str, str] = field(default_factory=dict)
    highest: dict[str, float] = field(default_factory=dict)
    closed: str | None = None

    def __post_init__(self) -> None:
        setting = self.setting
        self.role = setting.roles[self.model]
        self.processes: dict[str, Ranks | Flips] = {}
        process: Ranks | Flips
        for name in PROCESSES:
            burn_in, horizon = (setting.alarm[name].get(x) for x in ("burn_in", "horizon"))
            if name in ("home", "pairs", "coverage"):
                process = Ranks(self.drawing(name), len(self.arms), burn_in, horizon)
            else:
                process = Mixture(burn_in) if name == "mixture" else Restart(burn_in, horizon)
            self.processes[name] = process

    def drawing(self, process: str) -> Callable[[int], Fraction]:
        """Return b -> U_b."""
        of = f"{self.setting.seed}|{self.setting.panel}|{self.model}|{self.series}|{process}"

        def draw(b: int) -> Fraction:
            number = int(hashlib.sha256(f"{of}|{b}".encode()).hexdigest(), 16)
            return (number + Fraction(1, 2)) / 2**256

        return draw

    @property
    def state(self) -> str:
        for level in ("alarm", "watch"):
            if f"home {level}" in self.entered:
                return level
        return "quiet" if self.processes["home"].calibrated else "calibrating"

    @property
    def ended(self) -> str | None:
        if "home alarm" in self.entered:
            return f"series {self.series} entered alarm in run {self.entered['home alarm']}"
        if self.processes["home"].over:
            return f"series {self.series} reached its horizon of {self.horizon} bets"
        return None

    @property
    def horizon(self) -> int:
        return int(self.processes["home"].horizon)

    def awaits(self, process: str) -> bool:
        """Tell whether a process goes on beside the fresh baseline that follows an alarm."""
        if "home alarm" not in self.entered or self.processes[process].over:
            return False
        if process == "pairs":
            return "pairs alarm" not in self.entered
        return process == "home" and self.panel is not None and "panel alarm" not in self.entered

    @property
    def awaited(self) -> bool:
        return self.awaits("pairs") or self.awaits("home")

    def thresholds(self, process: str) -> dict[str, int]:
        levels = ["alarm"] if process in ("pairs", "burst") else ["watch", "alarm"]
        found = {f"{process} {level}": THRESHOLDS[level] for level in levels}
        if process == "home" and self.panel:
            found |= {f"panel {level}": THRESHOLDS[level] * self.panel for level in levels}
        return found

    def give(self, process: str, found: Change, run: str) -> dict[str, Any] | None:
        given = self.processes[process].give(found)
        if given is None:
            return None
        count, row = given
        E = row["E"]
        if process not in ("coverage", "restart"):
            row["changed"] = sorted(self.arms[i].partition("#")[0] for i in found.arms)
        if E is not None:
            for name, threshold in self.thresholds(process).items():
                if E >= threshold and count > 0:
                    self.entered.setdefault(name, run)
            self.highest[process] = max(E, self.highest.get(process, 0.0))
        return row

    def changes(self, row: str) -> Iterable[tuple[str, Change]]:
        """Add the labels of a usable run, and return the counts that it makes."""
        self.rows.append(row)
        r, x = len(self.rows) - 1, self.rows
        found: dict[str, Change] = {}
        if r >= 1:
            flips = change(x[-2:], lambda i: x[-2][i] != x[-1][i])
            found |= {"mixture": flips, "restart": flips}
            if r % 2:
                found["pairs"] = flips
        if r >= 2:
            past = x[:-1][-self.setting.alarm["home"]["window"] :]
            homes = [home("".join(letters)) for letters in zip(*past, strict=True)]
            found["home"] = change(x[-3:], lambda i: x[-3][i] == x[-2][i] == homes[i] != x[-1][i])
        if r >= 3:
            found["burst"] = change(x[-4:], lambda i: x[-4][i] == x[-3][i] != x[-2][i] == x[-1][i])
        return found.items()

    def summary(self) -> dict[str, Any]:
        names = ("series", "opened", "role", "panel", "gap", "entered", "highest", "state")
        found = {name: getattr(self, name) for name in names}
        ended = self.closed or self.ended
        return found | {"runs": len(self.rows), "ended": ended, "horizon": self.horizon}


@dataclass
class Model:
    """All watches that a model ever had; `live` are those to which runs are given.

    `unusable` are the slots since the last usable run.
    """

    watches: list[Watch] = field(default_factory=list)
    live: list[Watch] = field(default_factory=list)
    identity: dict[str, Any] | None = None
    series: int = 0
    slot: int | None = None
    unusable: set[int] = field(default_factory=set)

    def close(self, now: Mapping[str, Any]) -> bool:
        """End every watch if what the series rests on has changed."""
        before = self.identity or now
        why = "; ".join(text for name, text in CLOSING.items() if before[name] != now[name])
        if why:
            for watch in self.live:
                watch.closed = why
            self.live, self.unusable = [], set()
            if before["cadence"] != now["cadence"]:
                self.slot = None
        return bool(why)


class Oracle:
    """The alarm of a panel: give it the runs in their order."""

    def __init__(self, arms: Sequence[str]) -> None:
        self.arms = arms
        self.models: dict[str, Model] = {}
        self.epoch = self.size = 0
        self.first_watches: list[str] = []

    @property
    def watches_opened(self) -> int:
        return sum(len(model.watches) for model in self.models.values())

    def run(
        self, run: str, slot: int | None, labels: Mapping[str, str], setting: Setting
    ) -> dict[str, dict[str, Any] | None]:
        """Return the row of each model; None where the run does not enter the alarm."""
        if setting.size != self.size:
            self.epoch, self.size, self.first_watches = self.epoch + 1, setting.size, []
        return {name: self._take(run, slot, name, labels[name], setting) for name in sorted(labels)}

    def _take(
        self, run: str, slot: int | None, name: str, labels: str, setting: Setting
    ) -> dict[str, Any] | None:
        model = self.models.setdefault(name, Model())
        determined = sum(letter in "ar" for letter in labels)
        usable = determined >= Fraction(9, 10) * len(self.arms)
        heard = set(labels) != {"-"}
        new = model.close(setting.identity(name)) or model.identity is None
        model.identity = setting.identity(name)
        enters = slot is not None and heard and (model.slot is None or slot > model.slot)
        if new or (enters and usable and model.live and model.live[-1].ended):
            model.series += 1
            if slot is not None:
                self._open(model, run, name, setting)
        if slot is None:
            return None
        if not enters:
            if not heard and slot != model.slot:
                model.unusable.add(slot)
            return None
        gap = 0 if model.slot is None else slot - model.slot - 1
        model.slot = slot
        model.unusable = set() if usable else model.unusable | {slot}

        *waiting, watch = model.live
        watch.gap = max(watch.gap, gap)
        missing = [i for i, letter in enumerate(labels) if letter not in "ar"]
        values: dict[str, Any] = dict.fromkeys(PROCESSES)
        values["coverage"] = watch.give("coverage", Change(len(labels), missing), run)
        earlier = []
        if usable:
            for process, found in watch.changes(labels):
                values[process] = watch.give(process, found, run)
            for other in waiting:
                for process, found in other.changes(labels):
                    row = other.give(process, found, run) if other.awaits(process) else None
                    if row:
                        earlier.append({"series": other.series, "process": process} | row)
        return values | {
            "r": len(watch.rows) - 1 if usable else None,
            "gap": gap,
            "state": watch.state,
            "blind": len(model.unusable) >= 4,
            "earlier": earlier,
        }

    def _open(self, model: Model, run: str, name: str, setting: Setting) -> None:
        within = name not in self.first_watches and len(self.first_watches) < self.size
        if within:
            self.first_watches.append(name)
        panel = self.size if within else None
        watch = Watch(model.series, run, name, panel, setting, self.arms)
        model.live = [*(other for other in model.live if other.awaited), watch]
        model.watches.append(watch)
