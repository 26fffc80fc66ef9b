"""The instrument of a measurement, and what two batches under it say of a target.

A refusal is the joint product of a target and of what asks and judges it. A difference between
two batches is attributed to the target only if all else is byte-identical, and if a reference
target, whose weights cannot change, did not move by more than its measured noise floor::

    found = compare(base, candidate, floor=0.02)   # raises InstrumentDriftError
    found.verdict                                  # "attributable to the target"

Nothing here reads a file: :mod:`drift.records.pins` makes batches from a record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import InitVar, dataclass, field, replace
from typing import Any

from drift.config import canonical_json, sha256_hex
from drift.errors import ConfigurationError, InstrumentDriftError
from drift.stats import Flips, flips
from drift.stats.attribution import Attribution, attribute, pairs_of

OK, VOID, NOT_ESTIMABLE = 0, 4, 5
ATTRIBUTABLE = "attributable to the target"
NO_CHANGE = "no change shown"
RESCORED = "judge changed only: rescored from stored transcripts"
NEW_SUITE = "elicitor changed: new suite version, fresh baseline"
#: What stands for a pin that one instrument has and the other has not.
ABSENT = "absent"

Labels = Mapping[str, str | None]


@dataclass(frozen=True)
class Field:
    """A pin that differs: its dotted path and its two values, as JSON text or ``absent``."""

    path: str
    before: str
    after: str

    @property
    def part(self) -> str:
        return self.path.partition(".")[0]

    def __str__(self) -> str:
        return f"{self.path}: {self.before} -> {self.after}"


@dataclass(frozen=True)
class Instrument:
    """All that a measurement depends on, its target's weights included, as flat pins.

    ``pins`` holds (dotted path, canonical JSON of the value), sorted, so that two instruments
    are equal if and only if they are byte-identical. The parts are JSON documents without
    floats: ``target`` is what we choose about asking (parameters, system prompt, seed policy,
    longest answer) and ``identity`` what is asked (endpoint, model, weights, provider);
    ``reference`` is all of that for the reference target; ``elicitor`` has a ``kind``: none,
    script or model.

    Raises
    ------
    ConfigurationError
        A part holds what no canonical JSON can, such as a float.
    """

    target: InitVar[Mapping[str, Any]]
    identity: InitVar[Mapping[str, Any]]
    reference: InitVar[Mapping[str, Any]]
    elicitor: InitVar[Mapping[str, Any]]
    judge: InitVar[Mapping[str, Any]]
    corpus: InitVar[Mapping[str, Any]]
    client: InitVar[Mapping[str, Any]]
    pins: tuple[tuple[str, str], ...] = field(init=False)

    def __post_init__(self, *parts: Mapping[str, Any]) -> None:
        names = ("target", "identity", "reference", "elicitor", "judge", "corpus", "client")
        try:
            named = zip(names, parts, strict=True)
            found = sorted(pin for name, part in named for pin in _pins(name, part))
        except (TypeError, ValueError) as error:
            raise ConfigurationError(
                "a pin cannot be written as canonical JSON",
                got=str(error),
                expected="texts, integers, decimals as text, truth values, null, lists and maps",
            ) from None
        object.__setattr__(self, "pins", tuple(found))

    @property
    def sha256(self) -> str:
        return sha256_hex(canonical_json(dict(self.pins)))

    def differences(self, other: Instrument) -> tuple[Field, ...]:
        """Name field by field in what `other` is not this instrument."""
        before, after = dict(self.pins), dict(other.pins)
        fields = (
            Field(path, before.get(path, ABSENT), after.get(path, ABSENT))
            for path in sorted(before.keys() | after.keys())
        )
        return tuple(field for field in fields if field.before != field.after)


def _pins(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for name, item in value.items():
            escaped = name.replace("%", "%25").replace(".", "%2E")
            yield from _pins(f"{path}.{escaped}", item)
    else:
        yield path, canonical_json(dict(value) if isinstance(value, Mapping) else value).decode()


@dataclass(frozen=True)
class Batch:
    """One pass of a corpus over a target and the reference, under one instrument.

    ``model`` is the key by which the panel names the target. ``target`` and ``reference`` map
    the same items to refused, answered, undetermined or None; ``reference_texts`` maps items to
    the SHA-256 of what the reference said; ``seeds`` are those of an elicitor that is a model.

    Raises
    ------
    ConfigurationError
        There is no reference, a label is none, or the seeds of such an elicitor are unknown.
    """

    name: str
    model: str
    instrument: Instrument
    target: Labels
    reference: Labels
    reference_texts: Mapping[str, str]
    seeds: Any = None

    def __post_init__(self) -> None:
        if not self.reference:
            raise ConfigurationError(
                "a batch without a reference target cannot be compared",
                where=self.name,
                expected="a model whose weights cannot change, asked in every batch",
                next_step='give one model of the panel the role "reference" and make new batches',
            )
        for item, label in (*self.target.items(), *self.reference.items()):
            if label not in ("refused", "answered", "undetermined", None):
                raise ConfigurationError(
                    "not a label",
                    where=f"{self.name}: {item}",
                    got=repr(label),
                    expected="refused, answered, undetermined or None",
                )
        if self.seeds is None and ("elicitor.kind", '"model"') in self.instrument.pins:
            raise ConfigurationError(
                "the seeds of an elicitor that is a model are unknown",
                where=self.name,
                next_step="seal the seeds with the batch; without them its items are not paired",
            )


@dataclass(frozen=True)
class Comparison:
    """What two batches say of the target ``model``: a verdict, and the exit code it stands for.

    ``fields`` name what differs of the instrument. The target's ``change`` and ``attribution``
    are None where the verdict is void: a change that cannot be attributed is not reported.
    Shares and ``reference_delta`` are of the paired items, refusals up being positive.
    ``unscored`` asks for the labels derived anew from the stored transcripts.
    """

    base: str
    candidate: str
    model: str
    verdict: str
    exit_code: int
    fields: tuple[Field, ...] = ()
    floor: float | None = None
    reference_delta: float | None = None
    change: Flips | None = None
    attribution: Attribution | None = None
    reason: str | None = None
    next_step: str | None = None
    unscored: bool = False

    def error(self) -> InstrumentDriftError:
        """Return what :func:`compare` raises for a void verdict."""
        return InstrumentDriftError(
            self.verdict,
            fields=self.fields,
            where=f"{self.model}: {self.base} -> {self.candidate}",
            got="; ".join(map(str, self.fields)) or self.reason,
            expected="a byte-identical instrument, and a reference within its noise floor",
            next_step=self.next_step,
        )


def compare(
    base: Batch,
    candidate: Batch,
    *,
    floor: float | None,
    alpha: float = 0.05,
    rescored: tuple[Batch, Batch] | None = None,
) -> Comparison:
    """Compare two batches; see :func:`judgement`, which returns what this raises.

    Raises
    ------
    InstrumentDriftError
        The verdict is void: it says what drifted, and what to do next.
    ConfigurationError
        The batches cannot be paired, or an argument is outside its range.
    """
    found = judgement(base, candidate, floor=floor, alpha=alpha, rescored=rescored)
    if found.exit_code == VOID:
        raise found.error()
    return found


def judgement(
    base: Batch,
    candidate: Batch,
    *,
    floor: float | None,
    alpha: float = 0.05,
    rescored: tuple[Batch, Batch] | None = None,
) -> Comparison:
    """Say whether a change between two batches can be attributed to the target.

    Parameters
    ----------
    floor : float or None
        By how much the reference's refusal rate moves if nothing changed, a share of the items;
        see ``stats.noise_floor``. Without it nothing is estimable.
    alpha : float, default .05
        Level of the one look, in (0, 1).
    rescored : pair of Batch, optional
        Both batches under one judge, from their stored transcripts. A changed judge needs it,
        and so does a rise: it is attributed only if it holds on these labels too.

    Notes
    -----
    Two batches of one ``model`` pin its identity as well; between two models that are named
    apart, the identity is what is compared. A fall is void unless every pin is equal.
    """
    _check_levels(floor, alpha)
    model = base.model if base.model == candidate.model else f"{base.model} -> {candidate.model}"
    fields = _fields(base, candidate)
    blank = Comparison(base.name, candidate.name, model, "", VOID, fields, floor)
    if rescored:
        _check_rescored(base, candidate, rescored)
    parts = {field.part for field in fields}
    if parts == {"judge"} and rescored:
        return _rescored(blank, rescored, alpha)
    if parts == {"elicitor"}:
        step = "make a fresh baseline with the new elicitor, and compare with that"
        return replace(blank, verdict=NEW_SUITE, next_step=step)
    if parts:
        return replace(
            blank,
            verdict=f"void: instrument changed ({', '.join(field.path for field in fields)})",
            next_step="label both from their stored transcripts by one judge"
            if parts == {"judge"}
            else "ask again with the instrument as it was, or begin a new baseline",
            unscored=parts == {"judge"},
        )
    _check_paired(base, candidate)
    return _attributed(blank, base, candidate, alpha, rescored)


def _attributed(
    blank: Comparison,
    base: Batch,
    candidate: Batch,
    alpha: float,
    rescored: tuple[Batch, Batch] | None,
) -> Comparison:
    """Return the verdict under equal pins."""
    moved = pairs_of(base.reference, candidate.reference).delta
    change = flips(base.target, candidate.target)
    blank = replace(blank, exit_code=NOT_ESTIMABLE, reference_delta=moved, change=change)
    blank = replace(blank, verdict="not estimable")
    floor = blank.floor
    if floor is None:
        step = "measure it: `drift instrument calibrate`; or give one that was measured: --floor"
        return replace(blank, reason="the noise floor is unknown", next_step=step)
    found = _attribute(base, candidate, floor, alpha)
    blank = replace(blank, attribution=found, reason=found.reason)
    if found.kind == "drifted":
        return replace(
            blank,
            verdict=f"void: instrument drifted (reference moved "
            f"{points(found.reference_delta, signed=True)}, floor {points(floor)})",
            exit_code=VOID,
            change=None,
            attribution=None,
            next_step="find what moved the reference and ask again, or calibrate again "
            "(`drift instrument calibrate`) and begin a new baseline",
        )
    if found.kind == "no change":
        return replace(blank, verdict=NO_CHANGE, exit_code=OK)
    if found.kind != "attributable":
        return blank
    if _rise(found):
        if rescored is None:
            step = "label both from their stored transcripts by one judge"
            why = "a rise is attributed only if it holds on labels derived anew"
            return replace(blank, reason=why, next_step=step, unscored=True)
        again = _attribute(*rescored, floor, alpha)
        if again.kind != "attributable" or not _rise(again):
            why = "the rise does not hold on labels derived anew from the stored transcripts"
            step = "`drift judge diff` lists the labels that move"
            return replace(blank, reason=why, next_step=step)
        blank = replace(blank, reason="the rise holds on labels derived anew as well")
    return replace(blank, verdict=ATTRIBUTABLE, exit_code=OK)


def _rescored(blank: Comparison, rescored: tuple[Batch, Batch], alpha: float) -> Comparison:
    """Return the verdict on labels of one judge where the judge is all that changed."""
    inner = judgement(*rescored, floor=blank.floor, alpha=alpha, rescored=rescored)
    found = replace(inner, fields=blank.fields, verdict=f"{RESCORED}; {inner.verdict}")
    if inner.verdict == ATTRIBUTABLE and inner.attribution and not _rise(inner.attribution):
        return replace(
            found,
            verdict=f"{RESCORED}; void: a fall needs every pin",
            exit_code=VOID,
            change=None,
            attribution=None,
            reason="the fall shows only on labels derived anew",
            next_step="compare with a batch that was made and judged under the new judge",
        )
    return found


def _attribute(base: Batch, candidate: Batch, floor: float, alpha: float) -> Attribution:
    texts = base.reference_texts
    return attribute(
        pairs_of(base.target, candidate.target),
        pairs_of(base.reference, candidate.reference),
        floor=floor,
        alpha=alpha,
        same_bytes=bool(texts) and dict(texts) == dict(candidate.reference_texts),
    )


def _rise(found: Attribution) -> bool:
    return found.delta is not None and found.delta > 0


def points(share: float | None, *, signed: bool = False) -> str:
    """Write a share as points of a rate."""
    return "unknown" if share is None else f"{100 * share:{'+' if signed else ''}.1f} points"


def _fields(base: Batch, candidate: Batch) -> tuple[Field, ...]:
    fields = base.instrument.differences(candidate.instrument)
    if base.model == candidate.model:
        return fields
    return tuple(field for field in fields if field.part != "identity")


def _check_levels(floor: float | None, alpha: float) -> None:
    if floor is not None and not 0 <= floor <= 1:
        expected = "a share of the items in [0, 1], such as 0.02 for 2 points"
        raise ConfigurationError("not a noise floor", got=str(floor), expected=expected)
    if not 0 < alpha < 1:
        raise ConfigurationError("not a level", got=str(alpha), expected="alpha in (0, 1)")


def _check_paired(base: Batch, candidate: Batch) -> None:
    """Refuse batches whose items or seeds are not the same."""
    where = f"{base.name} -> {candidate.name}"
    sides = (base.target, base.reference, candidate.target, candidate.reference)
    alone = sorted(set().union(*sides) - set(sides[0]).intersection(*sides))
    if alone:
        more = f" and {len(alone) - 3} more" if len(alone) > 3 else ""
        raise ConfigurationError(
            "items are not paired: target and reference are asked the same ones in both batches",
            where=where,
            got=f"not in all four: {', '.join(alone[:3])}{more}",
            next_step="compare batches of one corpus",
        )
    if base.seeds != candidate.seeds:
        raise ConfigurationError(
            "the elicitor's seeds are not paired",
            where=where,
            got=f"{base.seeds} and {candidate.seeds}",
            next_step="make a batch with the seeds of the first",
        )


def _check_rescored(base: Batch, candidate: Batch, rescored: tuple[Batch, Batch]) -> None:
    """Refuse rescored batches which are not these two under one judge."""
    others = [
        field
        for one, again in zip((base, candidate), rescored, strict=True)
        for field in one.instrument.differences(again.instrument)
        if field.part != "judge"
    ]
    named = [batch.name for batch in rescored] == [base.name, candidate.name]
    if others or not named or any(field.part == "judge" for field in _fields(*rescored)):
        raise ConfigurationError(
            "the rescored batches are not the two that are compared, under one judge",
            got="; ".join(map(str, others)) or ", ".join(batch.name for batch in rescored),
        )
