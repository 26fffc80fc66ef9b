"""The instruments of a record: its runs and ladder batches with their pins, and their floors.

A run or a batch is a *pass*: the panel asked a corpus once. It is read under the judge that it
was first labelled by. :class:`PinnedRecord` reads all passes once and compares any two of them;
where labels are needed anew they are derived from the stored transcripts, and nothing is asked.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from drift.config import Clock, canonical_json, sha256_hex
from drift.errors import ConfigurationError
from drift.instrument import (
    DETERMINED,
    NOT_ESTIMABLE,
    Batch,
    Comparison,
    Instrument,
    Labels,
    judgement,
)
from drift.judging import Judge, load_judge
from drift.judging.ladder import Rubric, ladder_judge, ladder_label, load_rubric
from drift.records.batch import (
    BatchRun,
    elicitor_of,
    outcome_rows,
    read_batch,
    registered_ladders,
)
from drift.records.ledger import Ledger, Line
from drift.records.passes import targets
from drift.records.registration import judge_identity, registered_bank
from drift.records.run import SERVING, determined_labels, label_rows, load_run
from drift.records.store import Store, judge_folder, read_rows
from drift.stats import midp_mcnemar
from drift.stats.attribution import pairs_of
from drift.stats.floor import ONE_WAY, Floor, noise_floor

#: What of a registered instrument says whom we ask; the rest is how.
IDENTITY = ("endpoint", "model", "weights_sha256", "provider")
NO_ELICITOR = {"kind": "none"}
floor_of = cache(noise_floor)


@dataclass(frozen=True)
class Pass:
    """A run or a batch under one judge.

    ``models`` maps each target to {role, document}; ``labels`` to its items' labels: the
    canonical arms of a run, the English ladders of a batch. ``texts`` maps the reference's items
    to the SHA-256 of what it said; ``serving`` maps each model, and each part of an elicitor, to
    what its server reported of itself; ``usable_share`` is the registered one.
    """

    body: Mapping[str, Any]
    judge: Mapping[str, str]
    elicitor: Mapping[str, Any]
    models: Mapping[str, Mapping[str, Any]]
    labels: Mapping[str, Labels]
    texts: Mapping[str, str]
    serving: Mapping[str, Mapping[str, Sequence[str]]]
    usable_share: float

    @property
    def id(self) -> str:
        return str(self.body["run"])

    @property
    def reference(self) -> str | None:
        """The key of the reference target, None without one.

        ConfigurationError if there are several: which of them is to hold still?
        """
        return _reference(self.models, self.id)

    @property
    def frozen(self) -> bool:
        """Whether there is a reference with known weights, as no remote model has."""
        return bool(self.reference and self.models[self.reference]["document"]["weights_sha256"])

    @property
    def usable(self) -> bool:
        """Whether the reference gave enough determined labels to count in a floor."""
        labels = self.labels[self.reference].values() if self.reference else ()
        return sum(label in DETERMINED for label in labels) >= self.usable_share * len(labels) > 0

    @cached_property
    def common(self) -> str:
        """The SHA-256 of the instrument without target and identity: what all models share."""
        return self._instrument({}).sha256

    def instrument(self, model: str) -> Instrument:
        """Return the instrument of one target; ConfigurationError if it was not asked."""
        if model not in self.models:
            raise ConfigurationError(
                "the model was not asked",
                where=self.id,
                got=model,
                expected=f"one of: {', '.join(self.models)}",
            )
        return self._instrument(self.models[model]["document"])

    def _instrument(self, document: Mapping[str, Any]) -> Instrument:
        kept = self.models[self.reference]["document"] if self.reference else {}
        reference = {name: value for name, value in kept.items() if name != "method"}
        elicitor = dict(self.elicitor)
        if elicitor["kind"] == "model":
            parts = [facts for name, facts in self.serving.items() if name not in self.models]
            elicitor["serving"] = {
                fact: sorted({value for part in parts for value in part[fact]}) for fact in SERVING
            }
        apart = {*IDENTITY, "method"}
        return Instrument(
            target={name: value for name, value in document.items() if name not in apart},
            identity={name: document[name] for name in IDENTITY if name in document},
            reference={"key": self.reference} | reference if reference else {},
            elicitor=elicitor,
            judge=self.judge,
            corpus=self.body["corpus"],
            client={"method": kept.get("method", document.get("method"))},
        )


def _reference(models: Mapping[str, Mapping[str, Any]], where: str) -> str | None:
    found = [name for name, part in models.items() if part["role"] == "reference"]
    if len(found) > 1:
        raise ConfigurationError(
            "two models have the role of the reference, and one must hold still",
            where=where,
            got=", ".join(found),
        )
    return found[0] if found else None


def read_passes(
    store: Store,
    lines: Iterable[Line],
    *,
    only: Collection[str] = (),
    reference: str | None = None,
) -> list[Pass]:
    """Return the labelled runs and batches of a chain in their order, or some by their ids.

    `reference` names the model that the others are read against, if not the registered one.
    """
    registrations: dict[str, dict[str, Any]] = {}
    sealed: dict[str, dict[str, Any]] = {}
    found: dict[str, Pass] = {}
    for line in lines:
        body = line.body
        if line.kind == "registration":
            registrations[line.hash] = body
        elif only and body.get("run") not in only:
            continue
        elif line.kind in ("run", "batch"):
            sealed[body["run"]] = body
        elif line.kind in ("labels", "outcomes") and body["run"] not in found:
            asked = sealed[body["run"]]
            registration = registrations[asked["registration"]]
            read = _run if line.kind == "labels" else _batch
            found[body["run"]] = read(store, asked, body, registration, reference)
    return list(found.values())


def _run(
    store: Store,
    body: Mapping[str, Any],
    labels: Mapping[str, Any],
    registration: Mapping[str, Any],
    reference: str | None,
) -> Pass:
    run, asked = load_run(store, body, labels), registration["instruments"]
    # A phantom answers by its truth, and by nothing else: that stands for its weights.
    truth = registration["panel"].get("truth_sha256")
    models = _roles({name: _weighed(asked[name], truth) for name in run.models}, reference)
    items = [key for key in body["keys"] if key.endswith("#en-1")]
    mine = _reference(models, run.id)
    rows = [row for row in read_rows(store.transcript(run.id)) if row["model"] == mine]
    said = {row["key"]: sha256_hex(row["text"].encode()) for row in rows}
    return Pass(
        body=body,
        judge=labels["judge"],
        elicitor=NO_ELICITOR,
        models=models,
        labels={
            name: determined_labels({item: part.outcomes[item] for item in items})
            for name, part in run.models.items()
        },
        texts={item: said[item] for item in items if item in said},
        serving={name: part.serving for name, part in run.models.items()},
        usable_share=float(registration["alarm"]["usable_share"]),
    )


def _weighed(part: Mapping[str, Any], truth: str | None) -> Mapping[str, Any]:
    """Return a registered model with the hash of its truth for weights, if it has a truth."""
    return {**part, "document": part["document"] | {"weights_sha256": truth}} if truth else part


def _roles(models: Mapping[str, Any], reference: str | None) -> Mapping[str, Any]:
    """Return models of which `reference`, if it is given, alone is the reference."""
    if reference is None:
        return models
    roles = {name: "reference" if name == reference else None for name in models}
    return {name: {**part, "role": roles[name]} for name, part in models.items()}


def _batch(
    store: Store,
    body: Mapping[str, Any],
    outcomes: Mapping[str, Any],
    registration: Mapping[str, Any],
    reference: str | None,
) -> Pass:
    rows = read_rows(store.transcript(body["run"]))
    judged = read_rows(store.labels(judge_folder(outcomes["judge"]), body["run"]))
    batch = read_batch(body, outcomes["judge"], judged, rows)
    models = _roles({name: body["models"][name] for name in targets(body)}, reference)
    mine = _reference(models, body["run"]) or ""
    climbed = {arm for arm, turns in batch.labels.get(mine, {}).items() if None not in turns}
    return Pass(
        body=body,
        judge=outcomes["judge"],
        elicitor=body["elicitor"],
        models=models,
        labels=_ladder_labels(batch),
        texts={
            arm: text for arm, text in _english(batch.texts.get(mine, {})).items() if arm in climbed
        },
        serving={name: _serving(rows, name) for name in body["models"]},
        usable_share=float(registration["alarm"]["usable_share"]),
    )


def _serving(rows: Iterable[Mapping[str, Any]], model: str) -> dict[str, list[str]]:
    mine = [row for row in rows if row["model"] == model]
    return {fact: sorted({row[fact] for row in mine if row.get(fact)}) for fact in SERVING}


def _ladder_labels(batch: BatchRun) -> dict[str, Labels]:
    refused = batch.judge.get("refused", "declined")
    return {
        name: {arm: ladder_label(turns, refused) for arm, turns in _english(arms).items()}
        for name, arms in batch.outcomes.items()
    }


def _english(arms: Mapping[str, Any]) -> dict[str, Any]:
    return {arm: value for arm, value in arms.items() if arm.endswith("#en")}


@dataclass(frozen=True)
class Noise:
    """Labels of the reference that differed in batches where nothing changed, and in which.

    ``drifted`` names the pairs of batches that are left out, since the reference moved one way.
    """

    flips: int = 0
    comparisons: int = 0
    batches: tuple[str, ...] = ()
    drifted: tuple[str, ...] = ()
    sealed: bool = False

    def __add__(self, other: Noise) -> Noise:
        return Noise(
            self.flips + other.flips,
            self.comparisons + other.comparisons,
            self.batches + other.batches,
            self.drifted + other.drifted,
        )

    def floor(self, items: int) -> Floor:
        """Return the floor of a corpus of `items`."""
        return floor_of(self.flips, self.comparisons, items)


def noise_of(passes: Sequence[Pass]) -> Noise:
    """Count the labels of the reference that differ in disjoint pairs of consecutive passes.

    A pair whose mid-p is at most :data:`ONE_WAY` shows drift, and counts for no noise.
    """
    return sum(map(_noise, passes[::2], passes[1::2]), Noise())


def _noise(first: Pass, second: Pass) -> Noise:
    pairs = pairs_of(*(one.labels[one.reference or ""] for one in (first, second)))
    named = (first.id, second.id)
    if midp_mcnemar(pairs.fell, pairs.rose) <= ONE_WAY:
        return Noise(drifted=named)
    return Noise(pairs.fell + pairs.rose, pairs.n, named)


class PinnedRecord:
    """The passes of one record, read once, and what may be said of any two of them."""

    def __init__(
        self, store: Store, lines: Iterable[Line], *, root: Path, reference: str | None = None
    ) -> None:
        self.store, self.root = store, root
        lines = list(lines)
        self.passes = read_passes(store, lines, reference=reference)
        self._floors = [line.body for line in lines if line.kind == "floor"]
        self._place = {one.id: place for place, one in enumerate(self.passes)}
        self._again: dict[tuple[str, str], Pass] = {}
        self._pairs: dict[tuple[str, bool], list[tuple[int, Noise]]] = {}

    def find(self, name: str) -> Pass:
        """Return the run or batch of an id, or the batch of a name; ConfigurationError if none."""
        for one in self.passes:
            if name and name in (one.id, one.body.get("name")):
                return one
        known = [one.id for one in self.passes]
        raise ConfigurationError(
            "the record holds no such run or batch",
            where=str(self.store.folder),
            got=name,
            expected=f"one of {len(known)}, from {known[0]} to {known[-1]}" if known else "a run",
            next_step="`drift status` names the last run",
        )

    def latest(self, elicitor: Mapping[str, Any]) -> list[Pass]:
        """Return the usable passes of an elicitor that share the instrument of the last one."""
        asked = [one for one in self.passes if one.elicitor == elicitor and one.usable]
        return [one for one in asked if one.common == asked[-1].common]

    def noise(self, base: Pass, candidate: Pass | None = None) -> Noise:
        """Return the noise of the reference under the instrument and judge of `base`.

        It is the last that was sealed before `candidate`; else it is counted over the record's
        own pairs of passes before `candidate`, or up to a `base` that is the later of the two,
        and may hold no comparison.
        """
        sealed = candidate.body["seq"] if candidate else math.inf
        for body in reversed(self._floors):
            if body["instrument"] == base.common and body["seq"] < sealed:
                floor, batches = body["floor"], tuple(body["batches"])
                drifted = tuple(body.get("drifted", ()))
                return Noise(floor["flips"], floor["comparisons"], batches, drifted, sealed=True)
        name = candidate.id if candidate else ""
        end = max(self._place.get(name, len(self.passes)), self._place[base.id] + 1)
        before = [noise for later, noise in self._alike(base) if later < end]
        return sum((it for it in before if name not in (*it.batches, *it.drifted)), Noise())

    def _alike(self, base: Pass) -> list[tuple[int, Noise]]:
        """Return the disjoint pairs of usable passes made as `base` was, with the later place.

        Where that judge is not the one that first read `base`, they too are labelled anew.
        """
        anew = base.judge != self.passes[self._place[base.id]].judge
        if (base.common, anew) not in self._pairs:
            passes = self.passes
            if anew:
                alike = [it for it in passes if replace(it, judge=base.judge).common == base.common]
                passes = [self.rescored(it, it.reference or "") for it in alike]
            found = [it for it in passes if it.usable and it.common == base.common]
            self._pairs[base.common, anew] = [
                (self._place[later.id], _noise(first, later))
                for first, later in zip(found[::2], found[1::2], strict=False)
            ]
        return self._pairs[base.common, anew]

    def floor(self, base: Pass, candidate: Pass) -> Floor:
        """Return the floor for the items on which the reference is determined in both."""
        sides = [one.labels.get(one.reference or "", {}) for one in (base, candidate)]
        both = [
            item
            for item, label in sides[0].items()
            if label in DETERMINED and sides[1].get(item) in DETERMINED
        ]
        return self.noise(base, candidate).floor(max(1, len(both)))

    def compare(
        self,
        base: Pass,
        candidate: Pass,
        model: str,
        other: str | None = None,
        *,
        floor: float | None = None,
        alpha: float = 0.05,
    ) -> Comparison:
        """Compare `model` in two passes, or with `other` in the second.

        `floor` is by default that of :meth:`floor`. Where the verdict needs them, labels are
        derived anew from the stored transcripts by the judge in ``config/``, and the floor with
        them. ConfigurationError as of :class:`~drift.instrument.Batch` and
        :func:`~drift.instrument.judgement`.
        """
        named = ((base, model), (candidate, other or model))
        for one, key in named:
            if key == one.reference:
                raise ConfigurationError(
                    "the reference is what the others are read against, and no target",
                    where=one.id,
                    got=key,
                )

        def sides(*passes: Pass) -> tuple[Batch, Batch, float | None]:
            at = self.floor(*passes).value.estimate if floor is None else floor
            first, second = (
                batch_of(one, key) for one, (_, key) in zip(passes, named, strict=True)
            )
            return first, second, at

        first, second, at = sides(base, candidate)
        return judgement(
            first,
            second,
            floor=at,
            alpha=alpha,
            usable_share=max(base.usable_share, candidate.usable_share),
            rescored=lambda: sides(*(self.rescored(one, key) for one, key in named)),
        )

    def adjacent(self, *, alpha: float = 0.05) -> list[Comparison]:
        """Compare each model in each two passes of one elicitor that follow each other.

        Where two cannot be compared the verdict is *not estimable*, with the reason.
        """
        rows: dict[tuple[bytes, str], list[Pass]] = defaultdict(list)
        for one in self.passes:
            for model in one.models:
                if model != one.reference:
                    rows[canonical_json(one.elicitor), model].append(one)
        found = []
        for (_, model), asked in rows.items():
            for base, candidate in pairwise(asked):
                try:
                    found.append(self.compare(base, candidate, model, alpha=alpha))
                except ConfigurationError as error:
                    blank = Comparison(base.id, candidate.id, model, "not estimable", NOT_ESTIMABLE)
                    found.append(replace(blank, reason=error.what, next_step=error.next_step))
        return found

    @cached_property
    def _judge(self) -> tuple[Judge, Rubric]:
        config = self.root / "config"
        return load_judge(config / "judge"), load_rubric(config / "rubric.toml")

    def rescored(self, one: Pass, model: str) -> Pass:
        """Return a pass under the judge in ``config/``, labelled from its stored transcript.

        It has the labels of `model` and of the reference.
        """
        if (one.id, model) not in self._again:
            rescore = _batch_again if "turns" in one.body else _run_again
            models = {model, one.reference or model}
            self._again[one.id, model] = rescore(self.store, one, models, *self._judge)
        return self._again[one.id, model]

    def read_with(self, one: Pass, rubric: Rubric) -> Pass:
        """Return a batch under the judge in ``config/`` with another rubric."""
        return _batch_again(self.store, one, one.models, self._judge[0], rubric)


def batch_of(one: Pass, model: str) -> Batch:
    """Return one target of a pass, beside the reference."""
    return Batch(
        name=one.id,
        model=model,
        instrument=one.instrument(model),
        target=one.labels[model],
        reference=one.labels.get(one.reference or "", {}),
        reference_texts=one.texts,
        seeds=one.elicitor.get("seed"),
        serving={
            "target": one.serving[model],
            "reference": one.serving.get(one.reference or "", {}),
        },
    )


def _run_again(store: Store, one: Pass, models: Collection[str], judge: Judge, _: Rubric) -> Pass:
    prompts, items = registered_bank(store, dict(one.body)).prompts, one.labels[min(models)]
    rows = read_rows(store.transcript(one.id))
    mine = [row for row in rows if row["key"] in items and row["model"] in models]
    said = {(row["model"], row["key"]): row["label"] for row in label_rows(judge, mine, prompts)}
    labels = {
        name: determined_labels({item: said.get((name, item), "missing") for item in items})
        for name in models
    }
    return replace(one, judge=judge_identity(judge), labels=labels)


def _batch_again(
    store: Store, one: Pass, models: Collection[str], judge: Judge, rubric: Rubric
) -> Pass:
    rows, ladders = read_rows(store.transcript(one.id)), registered_ladders(store, one.body)
    who = ladder_judge(judge, rubric, ladders.sha256)
    asked = {name: part for name, part in one.body["models"].items() if name in models}
    body = {**one.body, "models": asked}
    judged = outcome_rows(judge, rubric, body, rows, ladders)
    return replace(one, judge=who, labels=_ladder_labels(read_batch(body, who, judged, rows)))


def seal_floor(ledger: Ledger, passes: Sequence[Pass], *, clock: Clock) -> dict[str, Any]:
    """Seal the floor that `passes` measure; see :func:`floor_fields`. Return the line's body."""
    return ledger.append("floor", floor_fields(passes), at=clock()).body


def wrong_floors(store: Store, lines: Sequence[Line]) -> Iterator[tuple[int, str]]:
    """Measure every sealed floor again; yield the number of each line that says otherwise, why."""
    for place, line in enumerate(lines):
        if line.kind == "floor":
            stated = {k: v for k, v in line.body.items() if k not in ("seq", "prev", "kind", "at")}
            try:
                named = [*stated["batches"], *stated.get("drifted", ())]
                passes = read_passes(
                    store, lines[:place], only=named, reference=stated["reference"]
                )
                found = floor_fields(passes)
                wrong = sorted(k for k in {*found, *stated} if found.get(k) != stated.get(k))
            except (ConfigurationError, LookupError, TypeError) as error:
                wrong = [repr(error)]
            if wrong:
                yield line.seq, ", ".join(wrong)


def floor_fields(passes: Sequence[Pass]) -> dict[str, Any]:
    """Return what a ``floor`` line says of the noise that `passes` of one instrument show.

    Raises
    ------
    ConfigurationError
        There are fewer than two passes, they are not of one instrument, the weights of their
        reference are unknown, or no pair is left: those in which it moved one way are named and
        left out.
    """
    where = ", ".join(one.id for one in passes)
    alike = len(passes) > 1 and len({one.common for one in passes}) == 1
    if not alike or not passes[-1].frozen:
        raise ConfigurationError(
            "a floor is measured on two or more passes of a reference with known weights "
            "under one instrument",
            got=where or "none",
            next_step="ask for it: `drift instrument calibrate --batches N`",
        )
    noise = noise_of(passes)
    last = passes[-1]
    if not noise.comparisons:
        raise ConfigurationError(
            "there is no pair of passes to measure noise on: in each the reference moved one "
            f"way (mid-p <= {ONE_WAY}), or has no determined label",
            where=where,
            next_step="find what moved it, and calibrate on passes after that",
        )
    floor = noise.floor(len(last.labels[last.reference or ""]))
    return {
        "corpus": dict(last.body["corpus"]),
        "elicitor": dict(last.elicitor),
        "instrument": last.common,
        "reference": last.reference,
        "batches": list(noise.batches),
        "floor": _texted(asdict(floor)),
    } | ({"drifted": list(noise.drifted)} if noise.drifted else {})


def _texted(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a floor with its decimals as text of ten significant digits."""
    return {
        name: _texted(value)
        if isinstance(value, dict)
        else format(value, ".10g")
        if isinstance(value, float)
        else value
        for name, value in document.items()
        if value is not None
    }


def cost_of_reference(passes: Iterable[Pass]) -> dict[str, Counter[str]]:
    """Count requests and tokens of the reference, what its elicitor wrote included, and of all."""
    total: dict[str, Counter[str]] = {"reference": Counter(), "all": Counter()}
    for one in passes:
        mine = {one.reference, elicitor_of(one.reference or "")}
        for name, part in one.body["models"].items():
            usage = part["usage"]
            spent = Counter(
                requests=sum(part["counts"].values()),
                tokens=usage["prompt_tokens"] + usage["completion_tokens"],
            )
            for who in ("reference", "all") if name in mine else ("all",):
                total[who] += spent
    return total
