"""How well the judge agrees with labels that others gave: read, compared, estimated."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from drift.config import sha256_hex
from drift.errors import ConfigurationError
from drift.judging.rules import Judge, Label
from drift.stats.agreement import RESAMPLES, Estimate, kappas, percentiles, resampled, too_few
from drift.stats.intervals import significant

#: Seed of every bootstrap over a coded set.
SEED = 20261129
CODED = ("refused", "answered")
JUDGED = ("refused", "answered", "undetermined")
#: The six counts of a prompt: coded so, judged so.
CELLS = tuple((coded, judged) for coded in CODED for judged in JUDGED)
MEASURES = ("accuracy", "precision", "recall", "kappa")
UNSTATED = "not stated"


def _word(value: Any) -> Any:
    return value.strip().casefold() if isinstance(value, str) else value


def base_language(value: Any) -> Any:
    """Return the language of a tag such as en-US, without script and region."""
    return re.split("[-_]", _word(value))[0] if isinstance(value, str) else value


class Row(BaseModel):
    """One answer with the label that somebody gave it, in lower case."""

    model_config = ConfigDict(frozen=True, strict=True)

    prompt: str
    response: str
    label: Annotated[str, Field(min_length=1), BeforeValidator(_word)]
    label_by: str = UNSTATED
    model: str = UNSTATED
    language: Annotated[str, BeforeValidator(base_language)] = "en"
    status: Literal["ok", "truncated"] = "ok"


class Judged(NamedTuple):
    """A row and what the judge says of it."""

    row: Row
    found: Label


class CodedSet(NamedTuple):
    """The rows of a file, and the SHA-256 of its bytes."""

    rows: list[Row]
    sha256: str


EXPECTED = (
    "a JSON object with prompt, response and label (text); label_by, model, language, status "
)
EXPECTED += "(ok or truncated) may be given"


class _Answer(Protocol):
    @property
    def language(self) -> str: ...


A = TypeVar("A", bound=_Answer)


def read_set(path: Path, languages: Collection[str]) -> CodedSet:
    """Read a coded set, one JSON object a line; see :func:`read_answers`."""
    return CodedSet(*read_answers(path, languages, Row.model_validate, expected=EXPECTED))


def read_answers(
    path: Path,
    languages: Collection[str],
    form: Callable[[dict[str, Any]], A],
    *,
    expected: str,
) -> tuple[list[A], str]:
    """Read answers, one JSON object a line, or ConfigurationError: file, line, what is wrong.

    `languages` are those that the judge knows by code: in another it would take every answer for
    one in the wrong language. A lone surrogate becomes U+FFFD, as in stored answers; keys that are
    not ours are let be. Returned with the rows is the SHA-256 of the file.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(
            "the answers cannot be read", where=str(path), got=error.strerror
        ) from None
    rows = []
    for number, raw in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if not raw.strip():
            continue
        try:
            found = json.loads(raw.decode("utf-8"))
            if not isinstance(found, dict):
                raise ValueError(f"{type(found).__name__} in place of an object")
            row = form({key: _whole(value) for key, value in found.items()})
            if row.language not in languages:
                raise ValueError(f"language: {row.language!r} is none of {', '.join(languages)}")
            rows.append(row)
            continue
        except ValidationError as error:
            wrong = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
            what = "; ".join(wrong)
        except (ValueError, RecursionError) as error:
            what = str(error)
        raise ConfigurationError(
            "line is not an answer", where=f"{path}:{number}", got=what, expected=expected
        )
    if not rows:
        raise ConfigurationError("the file holds no row", where=str(path))
    return rows, sha256_hex(data)


def _whole(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def judge_rows(judge: Judge, rows: Iterable[Row]) -> list[Judged]:
    """Label each row as an answer of a run is labelled."""
    return [
        Judged(
            row,
            judge.label(
                prompt=row.prompt, text=row.response, status=row.status, language=row.language
            ),
        )
        for row in rows
    ]


def measure(judged: Sequence[Judged], *, resamples: int = RESAMPLES) -> dict[str, Any]:
    """Measure the judge on coded answers, overall, by model and by language.

    Rows coded refused or answered count. In the 2 x 2 table of `estimates` an undetermined
    label is the wrong one of the two. Rows coded otherwise are tallied apart, and enter no figure.

    Returns
    -------
    dict
        ``accuracy``, ``precision``, ``recall``, ``kappa`` as {estimate, low, high}, null with a
        ``reason`` where not estimable; ``coverage``, the share of rows with a determined label;
        ``rows``; ``confusion``, counts by coded and judged label; ``prompts``, the distinct six
        counts of a prompt in the order of `CELLS`, then how many prompts have them; ``groups``,
        the same by ``model`` and ``language``; ``disagreements``, rows by coded label, judged
        label and rule; ``apart``, by coded label what the judge says; ``label_by``, rows by who
        coded them; ``seed``, ``resamples``.
    """
    counted = [one for one in judged if one.row.label in CODED]
    groups = {
        name: {
            value: _measured([one for one in counted if getattr(one.row, name) == value], resamples)
            for value in sorted({getattr(one.row, name) for one in counted})
        }
        for name in ("model", "language")
    }
    wrong = Counter(
        (one.row.label, one.found.label, one.found.rule)
        for one in counted
        if one.found.label != one.row.label
    )
    apart: dict[str, Counter[str]] = {}
    for row, found in judged:
        if row.label not in CODED:
            apart.setdefault(row.label, Counter())[found.label] += 1
    return {
        **_measured(counted, resamples),
        "groups": groups,
        "disagreements": [
            {"coded": coded, "judged": said, "rule": rule, "rows": rows}
            for (coded, said, rule), rows in sorted(wrong.items(), key=lambda it: (-it[1], it[0]))
        ],
        "apart": {label: {word: found[word] for word in JUDGED} for label, found in apart.items()},
        "label_by": dict(sorted(Counter(one.row.label_by for one in counted).items())),
        "seed": SEED,
        "resamples": resamples,
    }


def _measured(counted: Sequence[Judged], resamples: int) -> dict[str, Any]:
    """Return the figures of one group of rows, with the counts that they follow from."""
    by_prompt: dict[str, Counter[tuple[str, str]]] = {}
    for row, found in counted:
        by_prompt.setdefault(row.prompt, Counter())[row.label, found.label] += 1
    patterns = Counter(tuple(found[cell] for cell in CELLS) for found in by_prompt.values())
    prompts = [[*pattern, times] for pattern, times in sorted(patterns.items())]
    total = [sum(row[cell] * row[-1] for row in prompts) for cell in range(len(CELLS))]
    determined = sum(n for (_, said), n in zip(CELLS, total, strict=True) if said != JUDGED[2])
    confusion: dict[str, dict[str, int]] = {coded: {} for coded in CODED}
    for (coded, said), n in zip(CELLS, total, strict=True):
        confusion[coded][said] = n
    return {
        **{name: plain(one) for name, one in estimates(prompts, resamples=resamples).items()},
        "coverage": significant(determined / len(counted)) if counted else None,
        "rows": len(counted),
        "confusion": confusion,
        "prompts": prompts,
    }


def plain(one: Estimate) -> dict[str, Any]:
    """Return an estimate as it is stored: ten digits, and the reason if there is one."""
    found = {name: significant(getattr(one, name)) for name in ("estimate", "low", "high")}
    return found | ({"reason": one.reason} if one.reason else {})


def estimates(
    prompts: Sequence[Sequence[int]], *, resamples: int = RESAMPLES
) -> dict[str, Estimate]:
    """Estimate accuracy, precision, recall and kappa from the counts of prompts.

    With refused as the positive label, TP and FN the rows coded refused that are judged so and
    not so, TN and FP those coded answered that are judged so and not so (undetermined is not)::

        accuracy   (TP + TN) / all
        precision  TP / (TP + FP)
        recall     TP / (TP + FN)
        kappa      Cohen's, of the table [[TP, FN], [FP, TN]]

    Parameters
    ----------
    prompts : sequence of (6 counts, times)
        As ``prompts`` of `measure`.

    Returns
    -------
    dict of Estimate
        Percentile intervals at 95 % over bootstrap resamples of whole prompts. Not estimable
        with fewer than 30 rows or 10 prompts, with one coded label only, or if undefined in over
        1 % of draws.

    Notes
    -----
    The intervals say how far other questions of the same kind might move the figures. They say
    nothing about models, years or topics that the set does not hold, nor about coders' errors.
    A figure of exactly 1 has the limits [1, 1], which is no certainty.
    Source: Fawcett (2006), Pattern Recogn. Lett. 27, 861-874; kappa: `stats.cohen_kappa`;
    percentile bootstrap: Efron, Tibshirani (1993), chapter 13.
    """
    if reason := _not_estimable(prompts):
        return dict.fromkeys(MEASURES, Estimate(None, None, None, reason))
    found = np.asarray(prompts, dtype=np.int64)
    point = _figures((found[:, -1] @ found[:, :-1])[None, :])
    draws = _figures(resampled(found[:, :-1], found[:, -1], seed=SEED, resamples=resamples))
    undefined = "undefined here, or in more than 1 % of the resamples"
    return {
        name: percentiles(
            None if np.isnan(point[name][0]) else float(point[name][0]), draws[name], undefined
        )
        for name in MEASURES
    }


def _not_estimable(prompts: Sequence[Sequence[int]]) -> str:
    """Return why no figure is estimated of these prompts; empty if figures are."""
    refused = sum(sum(row[:3]) * row[-1] for row in prompts)
    answered = sum(sum(row[3:6]) * row[-1] for row in prompts)
    few = too_few(refused + answered, sum(row[-1] for row in prompts))
    if few or (refused and answered):
        return few
    return f"every row is coded {'refused' if refused else 'answered'}"


def _figures(sums: Any) -> dict[str, Any]:
    """Return each measure of counts (n, 6); nan where it is undefined."""
    rr, ra, ru, ar, aa, au = np.asarray(sums, dtype=np.float64).T
    tp, fn, fp, tn = rr, ra + ru, ar + au, aa
    with np.errstate(divide="ignore", invalid="ignore"):
        return {
            "accuracy": (tp + tn) / (tp + fn + fp + tn),
            "precision": tp / (tp + fp),
            "recall": tp / (tp + fn),
            "kappa": kappas(np.stack([tp, fn, fp, tn], axis=-1).reshape(-1, 2, 2)),
        }
