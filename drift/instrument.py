"""The instrument of a measurement, and what two batches under it say of a target.

A refusal is the joint product of a target and of what asks and judges it. A difference between
two batches is attributed to the target only if all else is byte-identical, and if a reference
target, whose weights cannot change, did not move by more than its measured noise floor::

    found = compare(base, candidate, floor=0.02)   # raises InstrumentDriftError
    found.verdict                                  # "attributable to the target"

Nothing here reads a file: :mod:`drift.records.pins` makes batches from a record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import InitVar, dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

from drift.config import canonical_json, sha256_hex
from drift.errors import ConfigurationError, InstrumentDriftError
from drift.stats import Flips, flips
from drift.stats.attribution import ROUNDING, Attribution, attribute, pairs_of

OK, VOID, NOT_ESTIMABLE = 0, 4, 5
ATTRIBUTABLE = "attributable to the target"
NO_CHANGE = "no change shown"
RESCORED = "judge changed only: rescored from stored transcripts"
NOT_RESCORED = "judge changed only: not rescored"
NEW_SUITE = "elicitor changed: new suite version, fresh baseline"
#: What stands for a pin that one instrument has and the other has not.
ABSENT = "absent"

ANEW = "label both from their stored transcripts by one judge"
PARTS = ("target", "identity", "reference", "elicitor", "judge", "corpus", "client")
DETERMINED = ("refused", "answered")

Labels = Mapping[str, str | None]
Pins: TypeAlias = tuple[tuple[str, str], ...]


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
    ``reference`` is all of that for the reference target, and its ``key``; ``elicitor`` has a
    ``kind``: none, script or model.

    Raises
    ------
    ConfigurationError
        A part holds what no canonical JSON can, such as a float, or the elicitor is of no kind.
    """

    target: InitVar[Mapping[str, Any]]
    identity: InitVar[Mapping[str, Any]]
    reference: InitVar[Mapping[str, Any]]
    elicitor: InitVar[Mapping[str, Any]]
    judge: InitVar[Mapping[str, Any]]
    corpus: InitVar[Mapping[str, Any]]
    client: InitVar[Mapping[str, Any]]
    pins: Pins = field(init=False)

    def __post_init__(self, *parts: Mapping[str, Any]) -> None:
        try:
            named = zip(PARTS, parts, strict=True)
            found = sorted(pin for name, part in named for pin in _pins(name, part))
        except (TypeError, ValueError) as error:
            raise ConfigurationError(
                "a pin cannot be written as canonical JSON",
                got=str(error),
                expected="texts, integers, decimals as text, truth values, null, lists and maps",
            ) from None
        kind = dict(found).get("elicitor.kind", ABSENT)
        if kind not in ('"none"', '"script"', '"model"'):
            expected = "none, script or model"
            raise ConfigurationError("not a kind of elicitor", got=kind, expected=expected)
        object.__setattr__(self, "pins", tuple(found))

    @property
    def sha256(self) -> str:
        return sha256_hex(canonical_json(dict(self.pins)))

    def differences(self, other: Instrument) -> tuple[Field, ...]:
        """Name field by field in what `other` is not this instrument."""
        return _differing(self.pins, other.pins)


def _differing(one: Pins, other: Pins) -> tuple[Field, ...]:
    before, after = dict(one), dict(other)
    fields = (
        Field(path, before.get(path, ABSENT), after.get(path, ABSENT))
        for path in sorted(before.keys() | after.keys())
    )
    return tuple(field for field in fields if field.before != field.after)


def _pins(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for name, item in value.items():
            if not isinstance(name, str):
                raise TypeError(f"{path} has the name {name!r}, which is no text")
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
    ``serving`` maps target and reference to what the providers report of themselves: a
    difference there is told beside a verdict and changes none.

    Raises
    ------
    ConfigurationError
        There is no reference with known weights, a part of the instrument is empty, a label is
        none, or the seeds of such an elicitor are unknown.
    """

    name: str
    model: str
    instrument: Instrument
    target: Labels
    reference: Labels
    reference_texts: Mapping[str, str]
    seeds: Any = None
    serving: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        pins = dict(self.instrument.pins)
        if not self.reference:
            raise ConfigurationError(
                "a batch without a reference target cannot be compared",
                where=self.name,
                expected="a model whose weights cannot change, asked in every batch",
                next_step='give one model of the panel the role "reference" and make new batches',
            )
        if empty := [part for part in PARTS if part in pins]:
            raise ConfigurationError(
                "an instrument of which nothing is pinned", where=self.name, got=", ".join(empty)
            )
        if pins.get("reference.weights_sha256", "null") in ("null", '""'):
            raise ConfigurationError(
                "the weights of the reference are unknown: it may have changed unseen",
                where=self.name,
                expected="a reference whose weights are named by SHA-256",
                next_step='give the role "reference" to an embedded model and make new batches',
            )
        for item, label in (*self.target.items(), *self.reference.items()):
            if label not in (*DETERMINED, "undetermined", None):
                raise ConfigurationError(
                    "not a label",
                    where=f"{self.name}: {item}",
                    got=repr(label),
                    expected="refused, answered, undetermined or None",
                )
        if self.seeds in (None, "", (), [], {}) and pins["elicitor.kind"] == '"model"':
            raise ConfigurationError(
                "the seeds of an elicitor that is a model are unknown",
                where=self.name,
                next_step="seal the seeds with the batch; without them its items are not paired",
            )


#: Both batches under one judge, from their stored transcripts, and the floor on those labels.
Rescored: TypeAlias = Callable[[], tuple[Batch, Batch, float | None]]


@dataclass(frozen=True)
class Comparison:
    """What two batches say of the target ``model``: a verdict, and the exit code it stands for.

    ``fields`` name what differs of the instrument, ``cautions`` what differs of the serving
    facts. The target's ``change`` and ``attribution`` are None where the verdict is void. Where
    it is *not estimable* they may stand, as for a change for which the reference had no room or
    a rise that is not confirmed: they say what was seen, and lay it to nobody.
    Shares and ``reference_delta`` are of the paired items, refusals up being positive.
    """

    base: str
    candidate: str
    model: str
    verdict: str
    exit_code: int
    fields: tuple[Field, ...] = ()
    cautions: tuple[Field, ...] = ()
    floor: float | None = None
    reference_delta: float | None = None
    change: Flips | None = None
    attribution: Attribution | None = None
    reason: str | None = None
    next_step: str | None = None

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
    usable_share: float = 0.9,
    rescored: Rescored | None = None,
) -> Comparison:
    """Compare two batches; see :func:`judgement`, which returns what this raises.

    Raises
    ------
    InstrumentDriftError
        The verdict is void: it says what drifted, and what to do next.
    ConfigurationError
        The batches cannot be paired, or an argument is outside its range.
    """
    found = judgement(
        base, candidate, floor=floor, alpha=alpha, usable_share=usable_share, rescored=rescored
    )
    if found.exit_code == VOID:
        raise found.error()
    return found


def judgement(
    base: Batch,
    candidate: Batch,
    *,
    floor: float | None,
    alpha: float = 0.05,
    usable_share: float = 0.9,
    rescored: Rescored | None = None,
) -> Comparison:
    """Say whether a change between two batches can be attributed to the target.

    Parameters
    ----------
    floor : float or None
        By how much the reference's refusal rate moves if nothing changed, a share of the items;
        see ``stats.noise_floor``. Without it nothing is estimable.
    alpha : float, default .05
        Level of the one look, in (0, 1).
    usable_share : float, default .9
        Of the items, as many must have a determined label in both batches, for target and
        reference alike; in [0, 1].
    rescored : callable, optional
        Called where labels are needed anew: by a changed judge, and by a rise, which is
        attributed only if it holds on these labels too. Where the judge is the one that
        labelled the batches, that shows only stored labels which its transcripts do not give.

    Notes
    -----
    Two batches of one ``model`` pin its identity as well; between two models that are named
    apart, the identity is what is compared. A fall is void unless every pin is equal.
    """
    _check_share("noise floor", 0.0 if floor is None else floor)
    _check_share("usable share", usable_share)
    _check_share("level", alpha)
    if not 0 < 1 - alpha < 1:
        raise ConfigurationError("not a level", got=str(alpha), expected="alpha in (0, 1)")
    model = base.model if base.model == candidate.model else f"{base.model} -> {candidate.model}"
    fields = _apart(base, candidate, "identity", base.instrument.differences(candidate.instrument))
    parts = {field.part for field in fields}
    served = [tuple(_pins("served", dict(one.serving))) for one in (base, candidate)]
    blank = Comparison(
        *(base.name, candidate.name, model, "", VOID, fields),
        cautions=_apart(base, candidate, "served.target", _differing(*served)),
        floor=floor,
    )
    if parts == {"elicitor"}:
        step = "make a fresh baseline with the new elicitor, and compare with that"
        return replace(blank, verdict=NEW_SUITE, next_step=step)
    if parts - {"judge"}:
        return replace(
            blank,
            verdict=f"void: instrument changed ({', '.join(field.path for field in fields)})",
            next_step="ask again with the instrument as it was, or begin a new baseline",
        )
    _check_paired(base, candidate)
    if parts and rescored is None:
        return replace(blank, verdict=NOT_RESCORED, next_step=ANEW)
    look = partial(_look, blank, alpha=alpha, usable_share=usable_share)
    if parts and rescored:
        return _across_judges(look(*_anew(base, candidate, rescored)))
    found = look(base, candidate, floor)
    if not _rises(found):
        return found
    unconfirmed = replace(found, verdict="not estimable", exit_code=NOT_ESTIMABLE)
    if rescored is None:
        why = "a rise is attributed only if it holds on labels derived anew"
        return replace(unconfirmed, reason=why, next_step=ANEW)
    if not _rises(look(*_anew(base, candidate, rescored))):
        why = "the rise does not hold on labels derived anew from the stored transcripts"
        step = "`drift judge diff` lists the labels that move"
        return replace(unconfirmed, reason=why, next_step=step)
    return replace(found, reason="the rise holds on labels derived anew as well")


def _look(
    blank: Comparison,
    base: Batch,
    candidate: Batch,
    floor: float | None,
    *,
    alpha: float,
    usable_share: float,
) -> Comparison:
    """Return the verdict on labels of one judge, but for the confirmation of a rise."""
    moved = pairs_of(base.reference, candidate.reference).delta
    change = flips(base.target, candidate.target)
    blank = replace(blank, verdict="not estimable", exit_code=NOT_ESTIMABLE, floor=floor)
    blank = replace(blank, reference_delta=moved, change=change)
    if floor is None:
        step = "measure it: `drift instrument calibrate`; or give one that was measured: --floor"
        return replace(blank, reason="the noise floor is unknown", next_step=step)
    said = dict(base.reference_texts)
    found = attribute(
        pairs_of(base.target, candidate.target),
        pairs_of(base.reference, candidate.reference),
        floor=floor,
        alpha=alpha,
        same_bytes=said.keys() >= base.reference.keys() and said == candidate.reference_texts,
    )
    if found.kind == "drifted":
        return replace(
            blank,
            verdict=f"void: instrument drifted (reference moved "
            f"{points(found.reference_delta, signed=True)}, floor {points(floor)})",
            exit_code=VOID,
            reason=found.reason,
            change=None,
            next_step="find what moved the reference and ask again, or calibrate again "
            "(`drift instrument calibrate`) and begin a new baseline",
        )
    blank = replace(blank, attribution=found, reason=found.reason)
    if gaps := _gaps(base, candidate, floor, usable_share):
        return replace(blank, reason=gaps, next_step="find why labels are missing, and ask again")
    if found.kind == "no change":
        return replace(blank, verdict=NO_CHANGE, exit_code=OK)
    if found.kind == "attributable":
        return replace(blank, verdict=ATTRIBUTABLE, exit_code=OK)
    return blank


def _gaps(base: Batch, candidate: Batch, floor: float, usable_share: float) -> str | None:
    """Say why the labels that are missing leave a verdict open, if they do.

    A label that the reference has in one batch alone may hide a move either way: with all of
    them against us it must still be within its floor.
    """
    known: Counter[int] = Counter()
    sides = {"target": (base.target, candidate.target)}
    for name, labels in (sides | {"reference": (base.reference, candidate.reference)}).items():
        known = Counter(sum(label[item] in DETERMINED for label in labels) for item in labels[0])
        if known[2] < usable_share * known.total() - ROUNDING:
            return (
                f"{name}: a determined label in both batches on {known[2]} of {known.total()} "
                f"items, fewer than {100 * usable_share:g} %"
            )
    # Of the reference, which came last.
    pairs = pairs_of(base.reference, candidate.reference)
    if abs(pairs.rose - pairs.fell) + known[1] <= floor * pairs.n + ROUNDING:
        return None
    return (
        f"reference: a determined label in one of the batches alone on {known[1]} of "
        f"{known.total()} items, which may hide a move beyond the floor"
    )


def _across_judges(found: Comparison) -> Comparison:
    """Return the verdict on labels of one judge where the judge is all that changed."""
    if found.verdict != ATTRIBUTABLE or _rises(found):
        return replace(found, verdict=f"{RESCORED}; {found.verdict}")
    return replace(
        found,
        verdict=f"{RESCORED}; void: a fall needs every pin",
        exit_code=VOID,
        change=None,
        attribution=None,
        reason="the fall shows only on labels derived anew",
        next_step="compare with a batch that was made and judged under the new judge",
    )


def _rises(found: Comparison) -> bool:
    """Return whether a rise is laid to the target."""
    laid = found.attribution
    return found.verdict == ATTRIBUTABLE and laid is not None and (laid.delta or 0) > 0


def points(share: float | None, *, signed: bool = False) -> str:
    """Write a share as points of a rate."""
    return "unknown" if share is None else f"{100 * share:{'+' if signed else ''}.1f} points"


def _apart(
    base: Batch, candidate: Batch, path: str, fields: tuple[Field, ...]
) -> tuple[Field, ...]:
    """Return the fields, without those under `path` where two models are named apart."""
    if base.model == candidate.model:
        return fields
    return tuple(field for field in fields if not field.path.startswith(f"{path}."))


def _check_share(what: str, share: Any) -> None:
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        expected = "a share in [0, 1], such as 0.02 for 2 points"
        raise ConfigurationError(f"not a {what}", got=repr(share), expected=expected)


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


def _anew(base: Batch, candidate: Batch, rescored: Rescored) -> tuple[Batch, Batch, float | None]:
    """Return both batches under one judge; ConfigurationError if more than the labels differ."""
    one, other, floor = rescored()
    odd = [field for field in one.instrument.differences(other.instrument) if field.part == "judge"]
    same = True
    for given, again in ((base, one), (candidate, other)):
        fields = given.instrument.differences(again.instrument)
        odd += [field for field in fields if field.part != "judge"]
        named = replace(again, instrument=given.instrument, target=given.target)
        same &= replace(named, reference=given.reference) == given
        same &= again.target.keys() == again.reference.keys() == given.target.keys()
    if odd or not same:
        raise ConfigurationError(
            "the rescored batches are not the two that are compared, under one judge",
            where=f"{base.name} -> {candidate.name}",
            got="; ".join(map(str, odd)) or f"{one.name}, {other.name}",
            expected="the same items, seeds and texts, with other labels at most",
        )
    _check_share("noise floor", 0.0 if floor is None else floor)
    return one, other, floor
