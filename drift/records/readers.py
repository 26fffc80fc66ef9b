"""What readers say of the answers of a study: agreement, the judge's error, corrected rates.

Coders are compared with each other and with the judge, in raw agreement and Cohen's kappa, each
weighted to all answers that the study was drawn from. Where the words of the scheme lie in an
order there is kappa with linear weights; where they do not, each word is set against the rest:
its kappa, and of the judge its precision (of what it calls so, what readers do) and recall (of
what readers call so, what it does). An answer that a coder left uncoded counts as not drawn: each
coder reads in an order of their own, so who stops early has read a random part; who passes over
the hard ones has not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, Final

import numpy as np

from drift.records.draw import Unit
from drift.records.sheet import Marks
from drift.records.study import FEWEST_CODED, FEWEST_ROWS, JUDGE, Study
from drift.stats.agreement import Estimate
from drift.stats.survey import (
    AGREEMENT,
    Floats,
    Sample,
    kappa_interval,
    precision,
    recall,
    stratified_share,
    weighted_table,
)

#: The seed of the bootstrap.
SEED: Final = 20261129
#: What a reader of shapes says who sees no refusal.
NOT_REFUSED: Final = "not-refused"


def compare(study: Study, coders: Sequence[Marks], final: Marks | None = None) -> dict[str, Any]:
    """Return agreement and rates of a study as a JSON-able document.

    ``pairs`` compares the coders with each other and the judge with each of them and with the
    adjudicated labels; ``rates`` gives for each model and language what :func:`rates` says, by
    the adjudicated labels, or without any by those of each coder. What cannot be computed is None
    with a reason.
    """
    readers = [*coders, *([final] if final else [])]
    pairs = [_pair(study, *two) for two in combinations(coders, 2)]
    pairs += [_pair(study, None, marks) for marks in readers]
    key = study.key
    return {
        "study": key.study,
        "panel": key.panel,
        "scheme": key.scheme,
        "judge": key.judge,
        "order": list(study.scheme.order),
        "rows": len(key.rows),
        "units": len(study.units),
        "responses": sum(stratum.responses for stratum in key.strata),
        "pairs": pairs,
        "rates": [it for marks in ([final] if final else coders) for it in rates(study, marks)],
    }


@dataclass(frozen=True)
class Read:
    """Units of a study with two labels each: the readers', and those that they are held to."""

    study: Study
    units: Sequence[tuple[str, Unit]]
    ours: Sequence[str]
    theirs: Sequence[str]

    @cached_property
    def sample(self) -> Sample:
        """These units as a sample of the strata in which any of them was read."""
        numbers = [unit.stratum for _, unit in self.units]
        present = sorted(set(numbers))
        return Sample(
            np.array([self.study.key.strata[number].units for number in present], dtype=np.int64),
            np.searchsorted(present, numbers),
            np.array([len(unit.responses) for _, unit in self.units], dtype=np.int64),
        )

    @property
    def unread(self) -> int:
        """How many strata of the study no unit of these is of."""
        return len(self.study.key.strata) - len({unit.stratum for _, unit in self.units})

    def table(self, *, weighted: bool) -> Floats:
        """Count the units by the two labels, or the responses that they speak for."""
        weights = self.sample.weights if weighted else np.ones(len(self.units))
        return weighted_table(self.ours, self.theirs, weights, order=self.study.scheme.order)

    def raw(self) -> Estimate:
        """Return the share of responses with the same label."""
        same = ["same" if a == b else "other" for a, b in zip(self.ours, self.theirs, strict=True)]
        return stratified_share(self.sample, same, AGREEMENT)

    def kappa(self) -> Estimate:
        order = self.study.scheme.order
        return kappa_interval(self.sample, self.ours, self.theirs, order=order, seed=SEED)

    def weighted_kappa(self) -> Estimate:
        order = self.study.scheme.order
        return kappa_interval(
            self.sample, self.ours, self.theirs, weights="linear", order=order, seed=SEED
        )

    def kappa_of(self, word: str) -> Estimate:
        """Return the kappa of `word` against all other words taken together.

        Where one of the two never says it, that is 0 by the form of kappa, and says nothing.
        """
        if word not in self.ours or word not in self.theirs:
            return _none(f"one of the two never says {word}")
        two = ([it if it == word else "" for it in of] for of in (self.ours, self.theirs))
        return kappa_interval(self.sample, *two, order=("", word), seed=SEED)

    def precision(self, word: str) -> Estimate:
        aside = self.study.scheme.aside
        return precision(self.sample, word, self.ours, self.theirs, aside=aside)

    def recall(self, word: str) -> Estimate:
        return recall(self.sample, word, self.ours, self.theirs)

    def share(self, word: str) -> Estimate:
        """Return the share of responses that the readers call `word`."""
        kinds = {it: (int(it == word), 1) for it in self.study.scheme.order}
        return stratified_share(self.sample, self.theirs, kinds)


def _read(study: Study, first: Marks | None, second: Marks) -> Read:
    """Return the units that both labelled; the judge (None) labelled all."""
    units = [
        (row, unit)
        for row, unit in study.units
        if row in second.labels and (first is None or row in first.labels)
    ]
    strata = study.key.strata
    ours = [first.labels[row] if first else strata[unit.stratum].label for row, unit in units]
    return Read(study, units, ours, [second.labels[row] for row, _ in units])


def _pair(study: Study, first: Marks | None, second: Marks) -> dict[str, Any]:
    """Compare two coders, or the judge (None) with one, on the units that both labelled."""
    read = _read(study, first, second)
    rows = {row for row, _ in read.units}
    found: dict[str, Any] = {
        "first": first.coder if first else JUDGE,
        "second": second.coder,
        "rows": len(rows),
        "not_coded": len(study.key.rows) - len(rows),
        "strata_not_read": read.unread,
        "counts": read.table(weighted=False).astype(int).tolist(),
        "weighted": None,
    }
    why = ""
    if len(rows) < FEWEST_ROWS:
        why = f"fewer than {FEWEST_ROWS} answers were labelled by both"
    elif len(set(read.ours)) < 2 or len(set(read.theirs)) < 2:
        why = "one class only"
    if read.units:
        weighted = read.table(weighted=True).tolist()
        found["weighted"] = [[round(cell, 6) for cell in row] for row in weighted]
    measures: dict[str, Callable[[], Estimate]] = {"raw": read.raw, "kappa": read.kappa}
    if study.scheme.ordered:
        measures["weighted_kappa"] = read.weighted_kappa
    found |= {name: asdict(_none(why) if why else of()) for name, of in measures.items()}
    if not study.scheme.ordered:
        few = len(rows) < FEWEST_ROWS
        found["by_word"] = _by_word(read, judge=first is None, why=why if few else "")
        found["confusions"] = _confusions(study, found)
    if NOT_REFUSED in study.scheme.order and first is None:
        share = _none(why) if len(rows) < FEWEST_ROWS else read.share(NOT_REFUSED)
        found["not_refused"] = asdict(share)
    return found


def _by_word(read: Read, *, judge: bool, why: str) -> dict[str, Any]:
    """Return how far two agree on each word that either used, against the rest."""
    measures: dict[str, Callable[[str], Estimate]] = {"kappa": read.kappa_of}
    if judge:
        measures |= {"precision": read.precision, "recall": read.recall}
    used = {*read.ours, *read.theirs}
    return {
        word: {name: asdict(_none(why) if why else of(word)) for name, of in measures.items()}
        for word in read.study.scheme.order
        if word in used
    }


def _confusions(study: Study, pair: dict[str, Any]) -> list[dict[str, Any]]:
    """Return which words were taken for which: the pair that is named first, then by size."""
    order, named = study.scheme.order, study.scheme.first
    counts, weighted = pair["counts"], pair["weighted"] or pair["counts"]
    found = []
    for a, b in combinations(range(len(order)), 2):
        units = [counts[a][b], counts[b][a]]
        if any(units) or (order[a], order[b]) == named:
            both = round(weighted[a][b] + weighted[b][a], 6)
            found.append({"words": [order[a], order[b]], "units": units, "responses": both})
    return sorted(found, key=lambda it: (tuple(it["words"]) != named, -it["responses"]))


def _none(reason: str) -> Estimate:
    return Estimate(None, None, None, reason)


def rates(study: Study, marks: Marks) -> list[dict[str, Any]]:
    """Return rates of each model and language as one reader's labels correct them.

    ``judged`` is the judge's own rate over all answers drawn from, ``design_based`` and
    ``prediction_powered`` are those of :func:`drift.stats.survey.stratified_share`. They are
    answers of the study's runs and arms; a rate of a reading is of one run's canonical arms.
    Where the words have no order, ``precision`` and ``recall`` are those of the judge there.
    """
    if study.scheme.kinds is None:
        return []
    names = sorted({(stratum.model, stratum.language) for stratum in study.key.strata})
    return [
        {"reader": marks.coder, "model": model, "language": language}
        | _rate(study, marks, model, language)
        for model, language in names
    ]


def _rate(study: Study, marks: Marks, model: str, language: str) -> dict[str, Any]:
    scheme, kinds = study.scheme, study.scheme.kinds or {}
    strata = {
        number: stratum
        for number, stratum in enumerate(study.key.strata)
        if (stratum.model, stratum.language) == (model, language)
    }
    units = [it for it in study.units if it[1].stratum in strata and it[0] in marks.labels]
    judged = [study.key.strata[unit.stratum].label for _, unit in units]
    read = Read(study, units, judged, [marks.labels[row] for row, _ in units])
    said: Counter[str] = Counter()
    for stratum in strata.values():
        said[stratum.label] += stratum.responses
    top, bottom = (sum(said[word] * kinds[word][part] for word in said) for part in (0, 1))
    coded, unread = len(marks.labels), len(strata) - len({unit.stratum for _, unit in units})
    why = ""
    if coded < FEWEST_CODED:
        why = f"fewer than {FEWEST_CODED} answers of our own are coded ({coded})"
    elif len(units) < FEWEST_ROWS:
        why = f"fewer than {FEWEST_ROWS} of its answers are coded ({len(units)})"
    elif unread:
        why = f"{unread} of its {len(strata)} strata have no answer that was coded"
    measures: dict[str, Callable[[], Estimate]] = {
        "design_based": lambda: stratified_share(read.sample, read.theirs, kinds),
        "prediction_powered": lambda: stratified_share(
            read.sample, read.theirs, kinds, predicted=judged, totals=(top, bottom)
        ),
    }
    if not scheme.ordered:
        measures["precision"] = lambda: read.precision(scheme.counted)
        measures["recall"] = lambda: read.recall(scheme.counted)
    return {
        "coded": len(units),
        "units": sum(stratum.units for stratum in strata.values()),
        "judged": {scheme.counted: top, "n": bottom},
        **{name: asdict(_none(why) if why else of()) for name, of in measures.items()},
    }
