"""How the shape coder's words stand to what others coded: counted, and estimated.

Others coded in words of their own. A word *admits* the shapes that it is compatible with
(``config/shapes/proxies.toml``), and the words of a set coded in our shapes admit themselves. A
word that admits none says that its rows should have no shape; one that is not named says nothing.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from drift.config import Strict, load_toml
from drift.errors import ConfigurationError
from drift.judging.measure import SEED, UNSTATED, base_language, plain
from drift.judging.shapes import SHAPES, Coded, Shape, ShapeCoder
from drift.stats.agreement import RESAMPLES, Estimate, percentiles, resampled, too_few
from drift.stats.intervals import wilson_interval

#: What the coder says of a response: a shape that rules can say, or that it is no refusal.
NO_REFUSAL = "no refusal"
CODES = tuple(shape for shape in SHAPES if shape != "scope-narrow")
SAID = (*CODES, NO_REFUSAL)
#: Why a shape has no precision.
SEVERAL = "only words that admit other shapes too admit it"
UNNAMED = "no word of the set admits it"
EXPECTED = (
    "a JSON object with prompt (or question) and response (or text, answer); model, language, "
    "topic, wording, status, declined may be given"
)


class Stored(BaseModel):
    """One stored answer of anyone's; other fields of its line are kept beside it."""

    model_config = ConfigDict(frozen=True, strict=True, extra="allow")

    prompt: str = Field(validation_alias=AliasChoices("prompt", "question"))
    response: str = Field(validation_alias=AliasChoices("response", "text", "answer"))
    model: str = UNSTATED
    language: Annotated[str, BeforeValidator(base_language)] = "en"
    topic: str = ""
    wording: str = ""
    status: Literal["ok", "truncated", "empty", "blocked", "failed"] = "ok"
    declined: bool = False


class ShapedRow(NamedTuple):
    """An answer, and its shape; None for what is no refusal."""

    row: Stored
    coded: Coded | None

    @property
    def said(self) -> str:
        return self.coded.label if self.coded else NO_REFUSAL


class ProxySet(Strict):
    """A set that others coded, and what its words admit."""

    name: str
    field: str
    title: str
    licence: str
    limits: list[str] = Field(min_length=1)
    admits: dict[str, list[Shape]]


class _Proxies(Strict):
    set: list[ProxySet]


class MeasuredShapes(BaseModel):
    """A measurement as it is kept in ``config/shapes/measured/<set>.json``: counts, no text."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    set: str
    field: str
    title: str
    licence: str
    limits: list[str]
    sha256: str
    rules: str
    fingerprint: str
    admits: dict[str, list[Shape]]
    confusion: dict[str, dict[str, int]]
    words: dict[str, dict[str, Any]]
    shapes: dict[str, dict[str, Any]]
    prompts: list[list[int]]
    seed: int
    resamples: int


def load_proxies(path: Path) -> dict[str, ProxySet]:
    """Read ``proxies.toml``: the sets by name."""
    try:
        found = _Proxies.model_validate(load_toml(path, kind="proxies of shapes"))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigurationError(first["msg"], where=f"{path}: {where}") from None
    return {one.name: one for one in found.set}


def code_rows(coder: ShapeCoder, rows: Sequence[Stored]) -> list[ShapedRow]:
    """Code each answer which has a text, as an answer of a run is coded."""
    return [
        ShapedRow(
            row,
            coder.label(
                prompt=row.prompt,
                text=row.response,
                status=row.status,
                declined=row.declined,
                language=row.language,
            ),
        )
        for row in rows
        if row.status in ("ok", "truncated")
    ]


def measure_shapes(
    coded: Sequence[ShapedRow],
    words: Sequence[str],
    admits: Mapping[str, Sequence[Shape]],
    *,
    resamples: int = RESAMPLES,
) -> dict[str, Any]:
    """Hold shapes against the words that others gave the same answers.

    With n[w, s] the rows of word w that are coded s, over words w that `admits` names::

        recall(w)              sum of n[w, s] over the shapes that w admits / rows of w
        recall(w) if refused   the same / rows of w that the judge calls refused
        precision(s)           sum of n[w, s] over the words that admit s / rows coded s

    A precision is of the refusal judge and the coder together: rows of a word that admits no shape,
    which the judge let through as refusals, count as wrong. It is given for shapes that some word
    admits alone. Of a shape that is admitted only beside others the sum is *not contradicted*,
    which bounds the precision from above; a shape that no word admits has neither.

    Parameters
    ----------
    coded, words : sequences of equal length
        Answers with their shape, and what the other coder said of each.
    admits : mapping
        The shapes that a word is compatible with, none for a word whose rows should have no
        shape. A word that is not named says nothing: its rows are counted, in no figure.

    Returns
    -------
    dict
        ``confusion``, counts by word and by what is said; ``words`` and ``shapes``, the figures
        with their counts; ``prompts``, the distinct counts of a prompt over words (sorted) times
        `SAID`, then how many prompts have them; ``admits``, ``seed``, ``resamples``.

    Notes
    -----
    Limits at 95 %: Wilson's where no prompt has two rows in the denominator, else percentiles of a
    bootstrap over whole prompts, not estimable with fewer than 30 rows or 10 prompts. A figure
    of a word that admits several shapes says nothing about which of them is right.
    Source: Wilson (1927); Efron, Tibshirani (1993), chapter 13.
    """
    names = sorted(set(words))
    cell = {pair: n for n, pair in enumerate((w, s) for w in names for s in SAID)}
    by_prompt: dict[str, Counter[int]] = {}
    for one, word in zip(coded, words, strict=True):
        by_prompt.setdefault(one.row.prompt, Counter())[cell[word, one.said]] += 1
    patterns = Counter(tuple(n[at] for at in range(len(cell))) for n in by_prompt.values())
    prompts = [[*pattern, times] for pattern, times in sorted(patterns.items())]
    return {
        "admits": {word: list(admits[word]) for word in sorted(admits)},
        **figures(prompts, names, admits, resamples=resamples),
        "prompts": prompts,
        "seed": SEED,
        "resamples": resamples,
    }


def figures(
    prompts: Sequence[Sequence[int]],
    names: Sequence[str],
    admits: Mapping[str, Sequence[Shape]],
    *,
    resamples: int = RESAMPLES,
) -> dict[str, Any]:
    """Return ``confusion``, ``words`` and ``shapes`` of `measure_shapes` from its ``prompts``."""
    table = np.asarray(prompts, dtype=np.int64).reshape(-1, len(names) * len(SAID) + 1)
    counts, times = table[:, :-1], table[:, -1]
    shaped = counts.reshape(-1, len(names), len(SAID))
    known = np.array([word in admits for word in names], dtype=bool)
    right = np.array([[said in admits.get(w, ()) for said in SAID] for w in names], dtype=bool)
    refused = np.array([said != NO_REFUSAL for said in SAID])
    total = np.tensordot(times, shaped, 1)
    shares: dict[str, dict[str, Any]] = {}
    for w, word in enumerate(names):
        if not admits.get(word):
            continue
        hits, rows = shaped[:, w][:, right[w]].sum(1), shaped[:, w]
        shares[word] = {
            "rows": int(total[w].sum()),
            "refused": int(total[w][refused].sum()),
            "right": int(times @ hits),
            "recall": _share(hits, rows.sum(1), times, resamples),
            "recall_if_refused": _share(hits, rows[:, refused].sum(1), times, resamples),
        }
    named = {only for only, *more in filter(None, admits.values()) if not more}
    several = {shape for admitted in admits.values() for shape in admitted} - named
    shapes: dict[str, dict[str, Any]] = {}
    for s, shape in enumerate(CODES if shares else ()):
        rows, hits = shaped[:, known, s].sum(1), shaped[:, right[:, s], s].sum(1)
        n, x = int(times @ rows), int(times @ hits)
        if shape not in named | several and not n:
            continue
        found = plain(Estimate(None, None, None, SEVERAL if shape in several else UNNAMED))
        shapes[shape] = {
            "rows": n,
            "right": x if shape in named else None,
            "not_contradicted": x if shape in several else None,
            "precision": _share(hits, rows, times, resamples) if shape in named else found,
        }
    confusion = {
        word: {said: int(total[w, s]) for s, said in enumerate(SAID)}
        for w, word in enumerate(names)
    }
    return {"confusion": confusion, "words": shares, "shapes": shapes}


def _share(hits: Any, rows: Any, times: Any, resamples: int) -> dict[str, Any]:
    """Return the share of `rows` that are `hits`, both by pattern of a prompt, with its limits."""
    n, x = int(times @ rows), int(times @ hits)
    if n == 0:
        return plain(Estimate(None, None, None, "no row"))
    if rows[times > 0].max() == 1:
        wilson = wilson_interval(x, n)
        return plain(Estimate(x / n, wilson.low, wilson.high))
    if few := too_few(n, int(times[rows > 0].sum())):
        return plain(Estimate(None, None, None, few))
    drawn = resampled(np.stack([hits, rows], 1), times, seed=SEED, resamples=resamples)
    with np.errstate(divide="ignore", invalid="ignore"):
        draws = drawn[:, 0] / drawn[:, 1]
    return plain(percentiles(x / n, draws, "no row in more than 1 % of the resamples"))


def kept_bytes(found: Mapping[str, Any]) -> bytes:
    """Return a measurement as its file holds it, one word, shape or pattern a line."""
    document = MeasuredShapes.model_validate(dict(found)).model_dump()
    lines = []
    for name, value in document.items():
        text = json.dumps(value, ensure_ascii=False)
        if value and name in ("confusion", "words", "shapes", "admits"):
            inner = (f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items())
            text = "{\n" + ",\n".join(inner) + "\n }"
        elif value and name in ("prompts", "limits"):
            inner = (f"  {json.dumps(row, ensure_ascii=False)}" for row in value)
            text = "[\n" + ",\n".join(inner) + "\n ]"
        lines.append(f" {json.dumps(name)}: {text}")
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def measured_shapes(folder: Path) -> list[MeasuredShapes]:
    """Return the measurements kept in `folder`, by name."""
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            found.append(MeasuredShapes.model_validate_json(path.read_bytes()))
        except ValidationError as error:
            first = error.errors()[0]
            raise ConfigurationError(
                "not a measurement of the shape coder",
                where=str(path),
                got=f"{'.'.join(map(str, first['loc']))}: {first['msg']}",
                next_step="make it again with `drift shapes FILE --against FIELD --keep`",
            ) from None
    return found
