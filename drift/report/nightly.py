"""What a model's nights come to: counts with their denominators, and distances, by metric.

Nothing is carried from one night to another. What stands beside a night of the same model before
it is there only where :meth:`drift.report.nights.Nights.step` allows the comparison.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from drift.probing.citations import CLASSES
from drift.records.passes import SAID
from drift.records.run import DETERMINED
from drift.records.store import judge_folder, read_rows
from drift.report.nights import Night, Nights, Step
from drift.stats import holm, proportion
from drift.stats.distances import Quartet, mean_interval, split_p

READERS = ("opening", "judge")
#: Up to which p-value, adjusted over the models of a night, answers are said to have changed.
ALPHA = 0.05
MOVED = ("newly_declined", "no_longer_declined", "probes_compared")
AFTER = {"pushback": 1, "plain re-ask": 2}
#: Columns of the classes of addresses.
FOUND = {name: f"addresses_{name.replace(' ', '_')}" for name in CLASSES}
LIKENESS = ("equal", "near", "changed", "rewrite")
#: Each measure of distance, which lies in [0, 1], with the least that an excess of it can be:
#: the distances between sets of words meet the triangle inequality, those of the encoder do not.
MEASURES = {"words": -0.5, "pairs": -0.5, "encoder": -1.0}
LANGUAGES = {"all": ("en", "zh"), "en": ("en",), "zh": ("zh",)}
#: The one measure that is tested, over all probes.
TESTED = ("words", "all")
NOBODY = "nobody asked the network"


Row = Mapping[str, Any]
#: What a model was to answer in a night, by arm, draw and turn.
Rows = Mapping[tuple[str, int, int], Row]


@dataclass(frozen=True)
class Asked:
    """One model in one night, and what it said in the night that it is compared with."""

    night: Night
    model: str
    step: Step
    rows: Rows
    before: Rows

    @property
    def place(self) -> dict[str, Any]:
        number = self.step.before.number if self.step.before else None
        known = {"model": self.model, "night": self.night.number, "run": self.night.run}
        return known | {"compared_night": number, "not_compared_why": self.step.reason}

    def first(self, category: str = "") -> list[Row]:
        """Return the first answers of draw 1, as they were due."""
        rows = (row for (_, draw, turn), row in self.rows.items() if (draw, turn) == (1, 1))
        return [row for row in rows if category in ("", row["category"])]

    @property
    def silent(self) -> Counter[str]:
        """What became of the answers that were due and say nothing, by status."""
        return Counter(row["status"] for row in self.rows.values() if not said(row))


class Nightly:
    """The frames behind the page, a row for each model and night at least."""

    def __init__(self, nights: Nights) -> None:
        self.nights = nights
        rows = dict[tuple[int, str], dict[tuple[str, int, int], Row]]()
        for night in nights.all:
            for row in nights.rows(night):
                of = rows.setdefault((night.number, row["model"]), {})
                of[row["arm"], row["draw"], row["turn"]] = row
        self.asked = [
            Asked(
                night,
                model,
                step := nights.step(night, model),
                rows[night.number, model],
                rows[step.before.number, model] if step.before else {},
            )
            for night in nights.all
            for model in night.body["models"]
        ]

    @cached_property
    def refusals(self) -> pd.DataFrame:
        """Declines by listed opening and by the judge, of the first answers of draw 1."""
        return _framed(row for one in self.asked for row in _refusals(one))

    @cached_property
    def reversals(self) -> pd.DataFrame:
        """Verdicts that turned after the pushback, and after the plain re-ask."""
        return _framed(row for one in self.asked for row in _reversals(one))

    @cached_property
    def citations(self) -> pd.DataFrame:
        """Addresses in the answers to citation probes, by what the network said of them."""
        return _framed(_citations(self.nights, one) for one in self.asked)

    @cached_property
    def drifts(self) -> pd.DataFrame:
        """Distances between nights, within a night, and the excess, by measure and language."""
        frame = _framed(row for one in self.asked for row in _drifts(one))
        looks = frame[frame.split_p.notna()]
        adjusted = [pd.Series(holm(list(of)), of.index) for _, of in looks.groupby("night").split_p]
        return frame.assign(night_holm=pd.concat(adjusted) if adjusted else float("nan"))

    @property
    def tested(self) -> pd.DataFrame:
        """Those rows of :attr:`drifts` whose excess is tested."""
        measure, language = TESTED
        at = (self.drifts.distance_measure == measure) & (self.drifts.probe_language == language)
        return self.drifts[at]

    @property
    def looks(self) -> int:
        """How often a night was tested against another, over all models."""
        return int(self.drifts.split_p.notna().sum())

    def looks_of(self, night: int) -> int:
        """How many models were tested in a night."""
        return int(self.tested[self.tested.night == night].split_p.count())

    def too_few(self, look: Row) -> bool:
        """Tell whether not even 3^-n, the least p-value of n probes, would name a model alone."""
        least = 3.0 ** -look["probes_compared"] * self.looks_of(look["night"])
        return bool(look["night_holm"] and look["night_holm"] > ALPHA and least > ALPHA)

    @cached_property
    def repeated(self) -> dict[tuple[str, ...], list[int]]:
        """The nights in which some models gave the same first answers, byte for byte, in that
        night and in the one that it is compared with: one look, shown once for each of them.
        """
        found = defaultdict[Any, list[str]](list)
        for one in self.asked:
            if one.step.before:
                texts = (
                    tuple(sorted((at, row["text"]) for at, row in rows.items() if at[2] == 1))
                    for rows in (one.before, one.rows)
                )
                found[one.night.number, *texts].append(one.model)
        nights = defaultdict[tuple[str, ...], list[int]](list)
        for (night, *_), models in found.items():
            nights[tuple(models)].append(night)
        return {models: of for models, of in nights.items() if len(models) > 1}

    def before(self, one: Asked) -> Asked:
        """Return the night that a model is compared with; StopIteration if there is none."""
        return next(it for it in self.asked if (it.model, it.night) == (one.model, one.step.before))

    def row(self, name: str, one: Asked, **where: str) -> dict[str, Any]:
        """Return the row of a frame that is of a model's night, None for what is not known."""
        frame: pd.DataFrame = getattr(self, name)
        of = frame[(frame.model == one.model) & (frame.night == one.night.number)]
        for column, value in where.items():
            of = of[of[column] == value]
        known = of.iloc[0].items()
        return {str(key): None if pd.isna(value) else value for key, value in known}


def _framed(rows: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """Return rows as a frame; counts that are not known leave the others whole numbers."""
    frame = pd.DataFrame(rows)
    counts = ["compared_night", *MOVED, *(f"{name}_answers" for name in LIKENESS)]
    kinds = dict.fromkeys(counts, "Int64") | dict.fromkeys(["split_p", "estimate"], "float")
    return frame.astype({name: kind for name, kind in kinds.items() if name in frame})


def one_seed(night: Night) -> bool:
    """Tell whether one seed served all answers of a draw to any model of a night."""
    policies = {it["document"]["seed_policy"] for it in night.body["models"].values()}
    return "fixed" in policies or ("per-run" in policies and "seeds" not in night.body)


def said(row: Row) -> bool:
    """Tell whether an answer says something, be it cut short."""
    return row["status"] in SAID


def _share(counted: int, out_of: int) -> dict[str, Any]:
    found = proportion(counted, out_of)
    names = ("estimate", "low", "high", "reason")
    return {"cases": counted, "out_of": out_of} | {it: getattr(found, it) for it in names}


def _declined(row: Row) -> dict[str, bool | None]:
    """Return whether an answer is a decline, by reader; None where a reader does not know."""
    judged = row["label"] == "refused" if row["label"] in DETERMINED else None
    return dict(zip(READERS, (row["opening"] is not None, judged), strict=True))


def _refusals(one: Asked) -> Iterator[dict[str, Any]]:
    answered = {row["arm"]: _declined(row) for row in one.first() if said(row)}
    earlier = (one.before.get((arm, 1, 1)) for arm in answered)
    before = {row["arm"]: _declined(row) for row in earlier if row and said(row)}
    both = [(it["opening"] is True, it["judge"] is True) for it in answered.values()]
    of_all = {
        "answers_due": len(one.first()),
        "answered": len(answered),
        "truncated": sum(row["status"] == "truncated" for row in one.first()),
        "opening_only": sum(it == (True, False) for it in both),
        "judge_only": sum(it == (False, True) for it in both),
    }
    for reader in READERS:
        now = {arm: it[reader] for arm, it in answered.items() if it[reader] is not None}
        pairs = Counter((before[arm][reader], it) for arm, it in now.items() if arm in before)
        compared = sum(n for (then, _), n in pairs.items() if then is not None)
        counts = (pairs[False, True], pairs[True, False], compared)
        share = _share([*now.values()].count(True), len(now))
        moved = dict(zip(MOVED, counts if one.step.before else [None] * 3, strict=True))
        yield one.place | of_all | {"reader": reader} | share | moved


def _reversals(one: Asked) -> Iterator[dict[str, Any]]:
    for after, draw in AFTER.items():
        found: Counter[Any] = Counter()
        for row in one.first("stance"):
            first, second = (one.rows[row["arm"], draw, turn] for turn in (1, 2))
            verdicts = (first["verdict"], second["verdict"])
            if not said(first) or not said(second):
                found["unanswered"] += 1
            else:
                found["unreadable" if None in verdicts else verdicts] += 1
        turned = {"yes_to_no": found["YES", "NO"], "no_to_yes": found["NO", "YES"]}
        left_out = {name: found[name] for name in ("unreadable", "unanswered")}
        due = found.total()
        share = _share(sum(turned.values()), due - sum(left_out.values()))
        yield one.place | {"asked_after": after, "answers_due": due} | share | turned | left_out


def _citations(nights: Nights, one: Asked) -> dict[str, Any]:
    due, line = one.first("citation"), one.night.citations
    answers = [row["urls"] for row in due if said(row)]
    told: dict[str, Any] = {}
    if line:
        folder = judge_folder(line["judge"])
        rows = read_rows(nights.record.store.labels(folder, one.night.run))
        told = {row["url"]: row for row in rows}
    urls = [url for of in answers for url in of]
    found = Counter(told[url]["found"] if url in told else "unchecked" for url in urls)
    reasons = Counter(
        told[url].get("reason", "") if url in told else NOBODY
        for url in urls
        if url not in told or told[url]["found"] == "unchecked"
    )
    checked = len(urls) - found["unchecked"]
    share = _share(found["resolvable"], checked)
    # Addresses of one answer are no independent draws: no interval.
    del share["low"], share["high"]
    if not checked:
        why = "; ".join(reasons)
        share["reason"] = f"not checked: {why}" if urls else "no address was given"
    return (
        one.place
        | _link_step(one)
        | {"answers_due": len(due), "answered": len(answers)}
        | {"without_address": sum(not of for of in answers), "addresses": len(urls)}
        | {column: found[name] for name, column in FOUND.items()}
        | share
        | {"share_drawn": float(line["share"]) if line else None}
        | {"unchecked_why": "; ".join(f"{n} {why}" for why, n in reasons.items())}
    )


def _link_step(one: Asked) -> dict[str, Any]:
    """Return why addresses have no night beside them although the answers have one."""
    lines = [it.citations for it in (one.step.before, one.night) if it]
    if one.step.reason or (
        None not in lines and len({it["judge"]["rules"] for it in lines if it}) == 1
    ):
        return {}
    reason = "addresses not checked" if None in lines else "methodology changed: link check"
    return {"compared_night": None, "not_compared_why": reason}


def _drifts(one: Asked) -> Iterator[dict[str, Any]]:
    likeness = Counter(
        row["between"][0]["likeness"]
        for row in one.first()
        if one.step.before and row["between"] and row["between"][0]
    )
    for measure, least in MEASURES.items():
        for language, codes in LANGUAGES.items():
            if measure == "encoder" and language != "en":
                continue
            rows = [row for row in one.first() if row["language"] in codes]
            quartets = [*_quartets(one, rows, measure)]
            values = {
                "within": [*_known([row["within"] for row in rows], measure)],
                "between": [*_between(one, rows, measure)],
                "excess": [it.excess for it in quartets],
            }
            tested = (measure, language) == TESTED
            for quantity, of in values.items():
                found = mean_interval(of, least=least if quantity == "excess" else 0.0)
                reason = found.reason
                if quantity != "within" and one.step.reason:
                    reason = one.step.reason
                elif measure == "encoder" and one.night.scores["judge"]["held"] != "yes":
                    reason = one.night.scores["judge"]["held"]
                counts = likeness if tested and quantity == "between" else None
                yield one.place | {
                    "distance_measure": measure,
                    "probe_language": language,
                    "quantity": quantity,
                    "probes_compared": found.n,
                    "mean_distance": found.estimate,
                    "mean_low": found.low,
                    "mean_high": found.high,
                    "reason": reason,
                    **{f"{it}_answers": counts[it] if counts else None for it in LIKENESS},
                    "split_p": split_p(quartets) if tested and quantity == "excess" else None,
                }


def _known(found: Iterable[Row | None], measure: str) -> list[float]:
    """Return the distances that are known; a cosine below 0 counts as one of 0, distance 1."""
    return [min(1.0, it[measure]) for it in found if it and it[measure] is not None]


def _between(one: Asked, rows: Iterable[Row], measure: str) -> Iterator[float]:
    """Yield for each probe the mean over the pairs of draws, one of each night, that are there."""
    for row in rows if one.step.before else ():
        if four := _known(row["between"] or (), measure):
            yield sum(four) / len(four)


def _quartets(one: Asked, rows: Iterable[Row], measure: str) -> Iterator[Quartet]:
    """Yield the six distances of each probe that has both answers of both nights."""
    for row in rows if one.step.before else ():
        then = one.before.get((row["arm"], 1, 1), {})
        six = _known([row["within"], then.get("within"), *(row["between"] or ())], measure)
        if len(six) == 6:
            yield Quartet((six[0], six[1]), (six[2], six[3], six[4], six[5]))
