"""Labels that people set: read from a file, counted beside ours, sealed as a further judge.

A labels file holds one JSON object a line and no header, so that files can be joined: ``run``,
``model``, ``key``, ``label``, ``rule`` (what decided; ``reader`` is a reader's own word),
``span`` (offsets of the deciding words in the text, or null) and ``text_sha256``, the SHA-256
of the response as UTF-8, which ties the label to the text that was read. A label of a study has
``drawn`` as well, how many units were read of how many in its stratum. A file need not name every
response. The page `transcripts` exports and imports this form, and `drift code seal` writes it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import orjson
from pydantic import Field, PositiveInt, StrictInt, ValidationError

from drift.config import Clock, Strict, sha256_hex
from drift.errors import ConfigurationError
from drift.records.ledger import Ledger, Line
from drift.records.reading import canonical_rate, family_rate
from drift.records.registration import registered_bank
from drift.records.run import load_run
from drift.records.scheme import REFUSAL, Scheme, taken
from drift.records.sealing import seal_labels
from drift.records.store import Store, by_model, read_bytes, read_rows

#: The names that people can be sealed under.
CODER = re.compile("[a-z0-9][a-z0-9._-]{0,63}")


class Row(Strict):
    """One line of a labels file."""

    run: str
    model: str
    key: str
    label: str
    rule: str = Field(min_length=1, max_length=80)
    span: tuple[StrictInt, StrictInt] | None
    text_sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    drawn: tuple[PositiveInt, PositiveInt] | None = None


@dataclass(frozen=True)
class CodedRun:
    """What a file says of one run: its rows by model and key, and what is sealed of the run.

    ``labels`` is a labels line of the run: the first, that of the judge registered for it, where
    no other judge was asked for.
    """

    body: dict[str, Any]
    registration: dict[str, Any]
    labels: dict[str, Any] = field(default_factory=dict)
    rows: dict[tuple[str, str], Row] = field(default_factory=dict)


@dataclass(frozen=True)
class Coding:
    """A labels file whose every row names a stored response, with the file's SHA-256."""

    sha256: str
    runs: dict[str, CodedRun]


def read_coding(path: Path, store: Store, ledger: Ledger) -> Coding:
    """Read a labels file against the record; ConfigurationError if it cannot be read."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(
            "the labels file cannot be read",
            where=str(path),
            got=error.strerror,
            next_step="give --labels a file that the page `transcripts` exported",
        ) from None
    return coding_of(data, path, store, ledger)


def coding_of(
    data: bytes, path: Path, store: Store, ledger: Ledger, *, scheme: Scheme = REFUSAL
) -> Coding:
    """Read the bytes of a labels file, named `path` in errors, against the record.

    Its labels are words of `scheme`.

    Raises
    ------
    ConfigurationError
        Names the line that is not of the form, names no response of the record, names one
        twice, or was given to another text.
    """
    sealed = labelled_runs(ledger.forwards())
    texts: dict[str, dict[tuple[str, str], str]] = {}
    for number, raw in enumerate(data.split(b"\n"), start=1):
        if not raw.strip():
            continue
        where = f"{path}:{number}"
        row = _row(raw, where, scheme)
        if row.run not in sealed:
            raise _unknown("run", row.run, sealed, where)
        run, place = sealed[row.run], (row.model, row.key)
        if row.run not in texts:
            rows = read_rows(store.transcript(row.run))
            judged = (answer for answer in rows if answer["status"] in ("ok", "truncated"))
            texts[row.run] = {(it["model"], it["key"]): it["text"] for it in judged}
        if place not in texts[row.run]:
            if row.model not in run.body["models"]:
                raise _unknown("model", row.model, run.body["models"], where)
            keys = [key for model, key in texts[row.run] if model == row.model]
            raise _unknown("response with a text", row.key, keys, where)
        text = texts[row.run][place]
        if (found := sha256_hex(text.encode())) != row.text_sha256:
            raise ConfigurationError(
                "the label was given to another text than the stored one",
                where=where,
                got=row.text_sha256,
                expected=found,
                next_step="is this the record that was read? `drift verify` checks its texts",
            )
        if row.span and not 0 <= row.span[0] < row.span[1] <= len(text):
            limits = f"0 <= start < end <= {len(text)}"
            raise ConfigurationError(
                "span outside the text", where=where, got=str(row.span), expected=limits
            )
        if place in run.rows:
            raise ConfigurationError("this response is labelled twice", where=where)
        run.rows[place] = row
    coded = {name: run for name, run in sealed.items() if run.rows}
    if not coded:
        raise ConfigurationError("the file holds no label", where=str(path))
    return Coding(sha256_hex(data), coded)


def labelled_runs(
    lines: Iterable[Line], *, by: Mapping[str, str] | None = None
) -> dict[str, CodedRun]:
    """Return every labelled run of a chain by its id, in their order, without rows.

    Its labels are those first sealed; with `by` the newest of the judge of whom that holds, id
    alone or with rules and fingerprint. People's labels of the same name are not that judge's. A
    model that judges a run again by the same rules changes nothing: its first words count.
    """
    registrations: dict[str, dict[str, Any]] = {}
    found: dict[str, CodedRun] = {}
    for line in lines:
        body = line.body
        if line.kind == "registration":
            registrations[line.hash] = body
        elif line.kind == "run":
            found[body["run"]] = CodedRun(body, registrations[body["registration"]])
        elif line.kind == "labels":
            first = not found[body["run"]].labels
            asked = by is not None and "scheme" not in body and by.items() <= body["judge"].items()
            if asked and not first and by_model(body["judge"]):
                asked = body["judge"]["rules"] != found[body["run"]].labels["judge"]["rules"]
            if asked if by is not None else first:
                found[body["run"]] = replace(found[body["run"]], labels=body)
    return {name: run for name, run in found.items() if run.labels}


def _row(raw: bytes, where: str, scheme: Scheme) -> Row:
    try:
        row = Row.model_validate(orjson.loads(raw))
    except orjson.JSONDecodeError as error:
        raise ConfigurationError("line is not JSON", where=where, got=str(error)) from None
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(map(str, item['loc'])) or 'line'}: {item['msg']}" for item in error.errors()
        )
        fields = ", ".join(Row.model_fields)
        raise ConfigurationError(
            f"line is not a label: {wrong}", where=where, expected=fields
        ) from None
    if row.label not in scheme.order:
        expected = ", ".join(scheme.order)
        raise ConfigurationError(
            f"line is not a label of {scheme.name}", where=where, got=row.label, expected=expected
        )
    return row


def _unknown(what: str, got: str, known: Collection[str], where: str) -> ConfigurationError:
    near = difflib.get_close_matches(got, known, n=1, cutoff=0.0)
    step = f"the nearest is {near[0]}" if near else None
    return ConfigurationError(
        f"the record holds no such {what}", where=where, got=got, next_step=step
    )


def recount(coding: Coding, store: Store) -> dict[str, Any]:
    """Count the rates of a reading again with the labels of a file in the place of ours.

    Returns ``set``, how many labels the file sets; ``moves``, those that differ from ours, as
    {run, model, key, before, after, rule}; and ``rates`` of each run and model that the file
    names, as {run, model, measure, published, recounted}: the canonical rate, and of a full run
    the family rate. ``published`` stands in the reading of the run; None if that shows none.
    """
    moves, rates = [], []
    for name, coded in sorted(coding.runs.items()):
        run, bank = (
            load_run(store, coded.body, coded.labels),
            registered_bank(store, coded.registration),
        )
        reading = orjson.loads(read_bytes(store.reading(name)))["models"]
        for model in sorted({model for model, _ in coded.rows}):
            ours = run.models[model].outcomes
            theirs = {key: row.label for (of, key), row in coded.rows.items() if of == model}
            moves += [
                {"run": name, "model": model, "key": key, "before": ours[key], "after": label}
                | {"rule": coded.rows[model, key].rule}
                for key, label in sorted(theirs.items())
                if ours[key] != label
            ]
            full = reading[model]["full"]
            measures = [("canonical", reading[model]["canonical"], canonical_rate)]
            if coded.body["scope"] == "full":
                published = full["family"] if full and full["run"] == name else None
                measures.append(("family", published, family_rate))
            rates += [
                {"run": name, "model": model, "measure": measure, "published": published}
                | {"recounted": rate(ours | theirs, bank)}
                for measure, published, rate in measures
            ]
    labels = sum(len(run.rows) for run in coding.runs.values())
    return {"set": labels, "moves": moves, "rates": rates}


def check_coder(name: str, registered: Collection[str] = ()) -> None:
    """Raise ConfigurationError if a coder cannot have this name, that of no judge `registered`."""
    if not CODER.fullmatch(name) or name in registered or taken(name):
        raise ConfigurationError(
            "not a coder's name",
            got=name,
            expected="lower-case letters, digits, '.', '_' and '-'; not the name of a judge",
        )


def seal_coding(
    coding: Coding,
    coder: str,
    store: Store,
    ledger: Ledger,
    *,
    clock: Clock,
    study: Mapping[str, Any] | None = None,
) -> list[str]:
    """Seal the labels of a file as those of the judge `coder`; return the runs that were new.

    People state no rules: the file's hash stands for rules and fingerprint, so a second file
    of the same coder is another judge, and nothing is written over. Sealed again, it adds nothing.
    `study` is what the lines say besides, of labels that are not of refusals: ``scheme``, ``of``,
    the judge whose words were read, and ``sample``, what draws the study again.

    Raises
    ------
    ConfigurationError
        `coder` is no plain name, or that of a judge.
    """
    check_coder(coder, {run.registration["judge"]["id"] for run in coding.runs.values()})
    judge = {"id": coder, "rules": coding.sha256, "fingerprint": coding.sha256}
    done = {
        line.body["run"]
        for line in ledger.forwards()
        if line.kind == "labels" and line.body["judge"] == judge
    }
    new = sorted(coding.runs.keys() - done)
    for run in new:
        rows = [
            row.model_dump(mode="json", include={"key", "model", "label", "rule", "span"})
            | ({"drawn": row.drawn} if row.drawn else {})
            for _, row in sorted(coding.runs[run].rows.items())
        ]
        seal_labels(store, ledger, judge, run, rows, at=clock(), more=study)
    return new
