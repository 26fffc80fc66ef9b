"""The draw of a coder study: which stored answers people are to read, and with what probability.

The population is every response of the runs chosen to a sensitive family (controls enter no rate)
that the judge of the study's scheme gave a label that the scheme draws: a refusal label to any
text, a shape to what is refused, a verdict to what is answered. A *unit* is one text of one model
to one question with one label: the same text stored in several runs is one unit that stands for
all of them, so nobody reads it twice. Strata are model x judge's label x language; in each, units
are drawn without replacement, in the order of a hash that the seed keys, and n_h/N_h is recorded.
Where a verdict is named, the strata that bear it get a stated share of the sample, and the others
the rest. Strata are drawn independently: a text that two models gave to one question can be drawn
for both. It is then one row of the sheet, read once, and the reading holds for both units; a sheet
may so have fewer rows than units were drawn.

A row's id is a keyed hash of what its reader sees, so it can reveal nothing else. The study is
named by the hash of its whole key.
"""

from __future__ import annotations

import hmac
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
from pydantic import Field, ValidationError, model_validator

from drift.config import Strict, canonical_json, sha256_hex
from drift.errors import ConfigurationError
from drift.records.coding import CodedRun, labelled_runs
from drift.records.ledger import Ledger, Line
from drift.records.registration import registered_bank
from drift.records.run import family
from drift.records.scheme import REFUSAL, SCHEMES, SHAPE, Name, Scheme
from drift.records.store import Store, judge_folder, read_rows
from drift.stats.survey import allocate

Arms = Literal["canonical", "all"]
Hash = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Place(Strict):
    """Where a response is stored."""

    run: str
    model: str
    key: str


class Unit(Strict):
    """One drawn unit: its stratum, its inclusion probability, and the responses it stands for."""

    stratum: int = Field(ge=0)
    inclusion: float = Field(gt=0, le=1)
    responses: tuple[Place, ...] = Field(min_length=1)


class KeyRow(Strict):
    """What one row of the sheet is; ``read_sha256`` is that of all that its reader sees."""

    read_sha256: Hash
    units: tuple[Unit, ...] = Field(min_length=1)


class Stratum(Strict):
    """All units that share model, judge's label and language, and how many of them were drawn."""

    model: str
    label: str
    language: str
    units: int = Field(ge=1)
    responses: int = Field(ge=1)
    drawn: int = Field(ge=1)


class Key(Strict):
    """The key of a study, ``key.json``: what coders must not see.

    ``study`` begins the SHA-256 of the file without it. A key without ``scheme`` is of refusals;
    ``share`` of the sample was drawn from what bears the ``verdict``, where one was named.
    """

    study: str
    panel: str
    scheme: Name = "refusal"
    verdict: str | None = None
    share: Decimal | None = Field(default=None, gt=0, lt=1)
    judge: dict[str, str]
    arms: Arms
    runs: dict[str, tuple[str, ...]]
    seed: int
    n: int
    floor: int
    left_out: dict[str, int]
    strata: tuple[Stratum, ...]
    rows: dict[str, KeyRow]

    @model_validator(mode="after")
    def _words_of_the_scheme(self) -> Key:
        judged = SCHEMES[self.scheme].judged
        if wrong := {stratum.label for stratum in self.strata} - {*judged}:
            raise ValueError(f"no label that {self.scheme} draws: {', '.join(sorted(wrong))}")
        return self

    @property
    def arguments(self) -> dict[str, Any]:
        """What the study was drawn with: with its judge, all that draws it again."""
        named = {"study", "arms", "runs", "seed", "n", "floor", "verdict", "share"}
        return self.model_dump(mode="json", include=named, exclude_none=True)

    @property
    def named(self) -> Key:
        """The same key with the ``study`` that belongs to it."""
        unnamed = self.model_copy(update={"study": ""})
        return self.model_copy(update={"study": sha256_hex(key_bytes(unnamed))[:16]})


@dataclass(frozen=True)
class SheetRow:
    """What a reader sees of one answer; `cut` says that it stopped at the token limit."""

    id: str
    question: str
    answer: str
    cut: bool
    language: str

    @property
    def sha256(self) -> str:
        return sha256_hex(canonical_json([self.question, self.answer, self.cut, self.language]))


@dataclass(frozen=True)
class Drawn:
    """A study as drawn: the key, and the rows of the sheet by id."""

    key: Key
    rows: dict[str, SheetRow]


@dataclass(frozen=True)
class _Seen:
    """One unit of the population: what is read, by whom it was said, how the judge called it."""

    model: str
    label: str
    language: str
    question: str
    answer: str
    cut: bool


def draw(
    store: Store,
    ledger: Ledger,
    *,
    n: int,
    seed: int,
    floor: int = 4,
    arms: Arms = "canonical",
    runs: Collection[str] = (),
    scheme: Scheme = REFUSAL,
    judge: str | None = None,
    verdict: str | None = None,
    share: Decimal = Decimal("0.7"),
) -> Drawn:
    """Draw `n` units of the record in `store`; the same arguments draw the same.

    `runs` are those whose answers are drawn from, by default the latest full run of each model
    that the judge has read. Refusals are those of the judge that was registered for a run; of
    another scheme the newest labels of a run count, by the `judge` with this id. Every stratum
    gets at least min(N_h, `floor`) units, the rest is shared in proportion: over all strata, or
    with a `verdict` for `share` of the sample over those that bear it, and over the others for
    the rest. What one side has not goes to the other.

    Raises
    ------
    ConfigurationError
        No such run, none that is full, or runs judged by two versions of the judge; no such
        judge, or several and none is named; `n` is smaller than the strata's least shares
        together.
    """
    known = _judged_runs([*ledger.forwards()], scheme, judge, store)
    chosen = _runs(known, runs, store)
    asked = _Asked(scheme, n, seed, floor, arms, verdict, share if verdict else None)
    return _draw(store, chosen, asked)


def redraw(key: Key, store: Store, lines: Iterable[Line]) -> Drawn:
    """Draw again with the arguments that a key names; runs that the record lacks are left out."""
    scheme = SCHEMES[key.scheme]
    known = labelled_runs(lines, by=None if scheme is REFUSAL else key.judge)
    held = {model: [known[it] for it in of if it in known] for model, of in key.runs.items()}
    chosen = {model: of for model, of in held.items() if of}
    asked = _Asked(scheme, key.n, key.seed, key.floor, key.arms, key.verdict, key.share)
    return _draw(store, chosen, asked)


@dataclass(frozen=True)
class _Asked:
    """The arguments of a draw."""

    scheme: Scheme
    n: int
    seed: int
    floor: int
    arms: Arms
    verdict: str | None
    share: Decimal | None


def _draw(store: Store, chosen: dict[str, list[CodedRun]], asked: _Asked) -> Drawn:
    population, left_out = _population(store, chosen, asked.arms, asked.scheme)
    strata: dict[tuple[str, str, str], list[_Seen]] = defaultdict(list)
    for unit in population:
        strata[unit.model, unit.label, unit.language].append(unit)
    names = sorted(strata)
    shares = _shares({name: len(strata[name]) for name in names}, asked)
    rows, units = {}, defaultdict(list)
    for number, (name, share) in enumerate(zip(names, shares, strict=True)):
        of = strata[name]
        of.sort(key=lambda it: _keyed(asked.seed, *name, it.question, it.answer, it.cut))
        for unit in of[:share]:
            row = _row(unit, asked.seed)
            rows[row.id] = row
            drawn = Unit(stratum=number, inclusion=share / len(of), responses=population[unit])
            units[row.id].append(drawn)
    keyed = {
        row: KeyRow(read_sha256=rows[row].sha256, units=tuple(units[row])) for row in sorted(rows)
    }
    body = {
        "study": "",
        "panel": store.folder.name,
        "scheme": asked.scheme.name,
        "verdict": asked.verdict,
        "share": asked.share,
        "judge": next(iter(chosen.values()))[0].labels["judge"],
        "arms": asked.arms,
        "runs": {model: [run.body["run"] for run in of] for model, of in chosen.items()},
        "seed": asked.seed,
        "n": sum(shares),
        "floor": asked.floor,
        "left_out": left_out,
        "strata": [
            dict(zip(("model", "label", "language"), name, strict=True))
            | {"units": len(strata[name]), "drawn": share}
            | {"responses": sum(len(population[unit]) for unit in strata[name])}
            for name, share in zip(names, shares, strict=True)
        ],
    }
    return Drawn(Key.model_validate({**body, "rows": keyed}).named, rows)


def _shares(sizes: Mapping[tuple[str, str, str], int], asked: _Asked) -> Sequence[int]:
    """Return how many units each stratum gets, in the order of `sizes`."""
    bearing = {name: size for name, size in sizes.items() if name[1] == asked.verdict}
    others = {name: size for name, size in sizes.items() if name not in bearing}
    floors = [sum(min(size, asked.floor) for size in it.values()) for it in (bearing, others)]
    if asked.n < sum(floors):
        raise ConfigurationError(
            f"the sample is too small for its {len(sizes)} strata",
            got=f"--n {asked.n}, --floor {asked.floor}",
            expected=f"--n {sum(floors)} or more at this floor",
            next_step="draw more, or lower --floor: strata are model x label x language",
        )
    due = round(asked.n * asked.share) if asked.share else 0
    # What one side has not goes to the other, and no side gets less than its strata's floors.
    least = max(asked.n - sum(others.values()), floors[0])
    due = min(max(due, least), sum(bearing.values()), asked.n - floors[1])
    found: dict[tuple[str, str, str], int] = {}
    for part, n in ((bearing, due), (others, asked.n - due)):
        of = allocate([*part.values()], n, floor=asked.floor) if part else ()
        found |= zip(part, of, strict=True)
    return [found[name] for name in sizes]


def _judged_runs(
    lines: Sequence[Line], scheme: Scheme, judge: str | None, store: Store
) -> dict[str, CodedRun]:
    """Return the runs that the judge of a scheme has read, each with its newest labels.

    Those of refusals are the first of a run, which its series reads.
    """
    if scheme is REFUSAL:
        return labelled_runs(lines)
    bodies = [line.body for line in lines if line.kind == "labels" and "scheme" not in line.body]
    there = sorted({it["judge"]["id"] for it in bodies if scheme.reads(it["judge"]["id"])})
    if not there or judge not in (None, *there) or (judge is None and len(there) > 1):
        many = judge is None and len(there) > 1
        command = "shapes" if scheme is SHAPE else "entail"
        read = f"have it read: `drift {command} --panel {store.folder.name}`"
        raise ConfigurationError(
            f"several judges of {scheme.name} have read this record" if many
            else f"no such judge of {scheme.name} has read this record",
            where=str(store.folder),
            got=judge,
            expected=", ".join(there) or None,
            next_step="name one with --judge" if there else read,
        )  # fmt: skip
    return labelled_runs(lines, by={"id": judge or there[0]})


def _runs(
    known: dict[str, CodedRun], wanted: Collection[str], store: Store
) -> dict[str, list[CodedRun]]:
    """Return the runs to draw from of each model, and check that one judge labelled them."""
    chosen: dict[str, list[CodedRun]] = defaultdict(list)
    for name in wanted or [*known][::-1]:
        if name not in known:
            where = str(store.folder)
            raise ConfigurationError("the record holds no such run", where=where, got=name)
        for model in known[name].body["models"]:
            if wanted or (known[name].body["scope"] == "full" and model not in chosen):
                chosen[model].append(known[name])
    if not chosen:
        raise ConfigurationError(
            "the record holds no full run",
            where=str(store.folder),
            next_step="make one, or name the runs to draw from with --run",
        )
    judges = {
        (run.labels["judge"]["rules"], run.labels["judge"]["fingerprint"]): run
        for of in chosen.values()
        for run in of
    }
    if len(judges) > 1:
        named = (f"{rules[:12]} (run {run.body['run']})" for (rules, _), run in judges.items())
        raise ConfigurationError(
            "these runs were judged by several versions of the judge",
            got=", ".join(named),
            next_step="name runs of one version with --run",
        )
    return {model: chosen[model] for model in sorted(chosen)}


def _population(
    store: Store, chosen: dict[str, list[CodedRun]], arms: Arms, scheme: Scheme
) -> tuple[dict[_Seen, tuple[Place, ...]], dict[str, int]]:
    """Return every unit with the responses it stands for, and the answers left out by reason."""
    units: dict[_Seen, list[Place]] = defaultdict(list)
    left_out: dict[str, int] = defaultdict(int)
    runs = {run.body["run"]: run for of in chosen.values() for run in of}
    for _, run in sorted(runs.items()):
        models = {model for model, of in chosen.items() if run in of}
        for place, unit in _answers(store, run, models, arms, scheme):
            if isinstance(unit, str):
                left_out[unit] += 1
            else:
                units[unit].append(place)
    found = {unit: tuple(places) for unit, places in units.items()}
    if not found:
        raise ConfigurationError("these runs hold no answer to read", where=str(store.folder))
    return found, dict(sorted(left_out.items()))


def _answers(
    store: Store, run: CodedRun, models: Collection[str], arms: Arms, scheme: Scheme
) -> Iterator[tuple[Place, _Seen | str]]:
    """Yield each answer of a run with its place, or with the reason why it is left out."""
    bank = registered_bank(store, run.registration)
    controls = {item.id for item in bank.families if item.control}
    variants = {arm.id: arm for arm in bank.arms("full" if arms == "all" else "canonical")}
    name = run.body["run"]
    judged = read_rows(store.labels(judge_folder(run.labels["judge"]), name))
    # A judge model's verdicts on its anchors are of no model of the panel.
    labels = {(row["model"], row["key"]): row["label"] for row in judged if "model" in row}
    for row in read_rows(store.transcript(name)):
        place, arm = Place(run=name, model=row["model"], key=row["key"]), variants.get(row["key"])
        if row["model"] not in models or arm is None:
            continue
        if family(row["key"]) in controls:
            yield place, "control"
        elif (label := labels.get((row["model"], row["key"]))) is None:
            read = row["status"] in ("ok", "truncated")
            yield place, scheme.undrawn if read else row["status"]
        elif label not in scheme.judged:
            yield place, f"verdict {label}"
        elif (cut := row["status"] == "truncated") and scheme.whole:
            yield place, "cut"
        else:
            yield place, _Seen(row["model"], label, arm.language, arm.prompt, row["text"], cut)


def _row(unit: _Seen, seed: int) -> SheetRow:
    name = _keyed(seed, unit.question, unit.answer, unit.cut)[:12]
    return SheetRow(name, unit.question, unit.answer, unit.cut, unit.language)


def _keyed(seed: int, *seen: object) -> str:
    """Return a hash of what is given that cannot be foreseen without the seed."""
    return hmac.new(str(seed).encode(), canonical_json([*seen]), "sha256").hexdigest()


def read_key(path: Path) -> Key:
    """Read the key of a study; ConfigurationError if it is none."""
    try:
        return Key.model_validate(orjson.loads(path.read_bytes()))
    except OSError as error:
        got: str | None = error.strerror
    except (ValidationError, orjson.JSONDecodeError) as error:
        got = str(error).splitlines()[0]
    raise ConfigurationError(
        "the key of the study cannot be read",
        where=str(path),
        got=got,
        next_step="give the folder that `drift code draw` wrote",
    )


def key_bytes(key: Key) -> bytes:
    """Return the bytes of ``key.json``."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS
    # What a study of refusals does not name is left out: its key is as it always was.
    return orjson.dumps(key.model_dump(mode="json", exclude_defaults=True), option=options) + b"\n"
