"""The command that says in which shape refusals were made: of a file, or of a record's runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from drift.cli.judge import say_aligned
from drift.cli.options import DataOption, JsonOption, open_record, refuse_existing
from drift.config import project_root
from drift.errors import ConfigurationError
from drift.judging import load_judge
from drift.judging.measure import plain, read_answers
from drift.judging.measured import measured_name
from drift.judging.shape_measure import (
    CODES,
    EXPECTED,
    NO_REFUSAL,
    SAID,
    MeasuredShapes,
    ProxySet,
    ShapedRow,
    Stored,
    code_rows,
    kept_bytes,
    load_proxies,
    measure_shapes,
)
from drift.judging.shapes import SHAPES, Shape, ShapeCoder, load_shape_coder
from drift.records.ledger import write_atomically
from drift.stats.shapes import simultaneous_shares
from drift.terminal import say, warn

#: What answers are grouped by, where their rows say it.
GROUPS = ("model", "topic", "language", "wording")
#: The word of the manual for what is no refusal.
NOT_REFUSED = "not-refused"


def shapes(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="Stored answers, JSON lines: prompt or question; response, text or answer."
        ),
    ] = None,
    against: Annotated[
        str,
        typer.Option(help="A field that holds what others said: measures the coder against it."),
    ] = "",
    name: Annotated[
        str, typer.Option(help="Name of the set; by default the file's, no _dev.")
    ] = "",
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep counts in config/shapes/measured; no text.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Write shape, rule and span of each row to this new file.")
    ] = None,
    panel: Annotated[
        str, typer.Option(help="Code the runs of this record that the coder has not read.")
    ] = "",
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say in which shape each refusal of a file, or of a record, was made.

    What the refusal judge does not call refused has no shape. Shares are means over prompts, with
    limits at 95 % that hold for all shapes at once, for each group by itself, of what the coder
    calls so.
    """
    alone = (panel and (against or out)) or ((keep or name) and not against)
    if alone or (file is None) == (not panel):
        raise ConfigurationError(
            "a file or a record, with the options that belong to it",
            got=" and ".join(filter(None, (str(file or ""), panel and f"--panel {panel}")))
            or "neither",
            expected="FILE, with --out or --against (and then --keep, --name); or --panel",
        )
    if file is None:
        return _code_record(panel, data, as_json=as_json)
    refuse_existing(out, "--out")
    root = project_root()
    coder = load_shape_coder(root / "config" / "shapes", load_judge(root / "config" / "judge"))
    rows, sha256 = read_answers(file, coder.judge.names, Stored.model_validate, expected=EXPECTED)
    coded = code_rows(coder, rows)
    if out:
        write_atomically(out, b"".join(map(_line, coded)))
        warn(f"wrote {len(coded)} rows to {out}")
    if against:
        found = _measured(root, coder, coded, against, measured_name(file, name), sha256)
        if keep:
            path = root / "config" / "shapes" / "measured" / f"{found.set}.json"
            write_atomically(path, kept_bytes(found.model_dump()))
            warn(f"kept in {path}")
        print(found.model_dump_json()) if as_json else _say_measured(found)
        return None
    document = {
        "rules": coder.rules_hash,
        "fingerprint": coder.fingerprint,
        "answers": len(rows),
        "without_text": len(rows) - len(coded),
        "refused": sum(one.coded is not None for one in coded),
        "groups": _distributions(coded),
    }
    print(json.dumps(document)) if as_json else _say_distributions(document)
    return None


def _code_record(panel: str, data: Path | None, *, as_json: bool) -> None:
    record = open_record(panel, data)
    if record.ledger.last() is None:
        raise ConfigurationError(
            "no such record", where=str(record.store.folder), next_step="correct --panel or --data"
        )
    with record.opened():
        runs = record.code_shapes()
    if as_json:
        print(
            json.dumps(
                {"record": record.panel.name, "rules": record.coder.rules_hash, "runs": runs}
            )
        )
        return
    if not runs:
        say(f"{record.panel.name}: the refusals of every run have shapes by this coder already")
        return
    say(f"{record.panel.name}: shapes said of the refusals of {len(runs)} runs")
    for run in runs:
        say(f"  {run}")


def _line(one: ShapedRow) -> bytes:
    coded = one.coded
    row = {
        "prompt": one.row.prompt,
        "model": one.row.model,
        "shape": coded.label if coded else None,
        "rule": coded.rule if coded else None,
        "span": coded.span if coded else None,
        "note": coded.note if coded else "",
    }
    return json.dumps(row, ensure_ascii=False).encode() + b"\n"


def _distributions(coded: Sequence[ShapedRow]) -> list[dict[str, Any]]:
    """Return the shapes of each group's refusals: counts, and shares over prompts with limits."""
    groups = [("", "all")]
    for kind in GROUPS:
        values = sorted({getattr(one.row, kind) for one in coded} - {""})
        if len(values) > 1 or kind == "model":
            groups += [(kind, value) for value in values]
    found = []
    for kind, value in groups:
        members = [one for one in coded if not kind or getattr(one.row, kind) == value]
        own = [one for one in members if one.coded]
        places = {prompt: n for n, prompt in enumerate(dict.fromkeys(o.row.prompt for o in own))}
        counts = [[0] * len(CODES) for _ in places]
        for one in own:
            counts[places[one.row.prompt]][CODES.index(one.said)] += 1
        shares = simultaneous_shares(counts or [[0] * len(CODES)])
        found.append({
            "by": kind,
            "value": value,
            "answers": len(members),
            "refused": len(own),
            "prompts": len(places),
            "shapes": {
                shape: {"count": sum(row[n] for row in counts), **plain(share)}
                for n, (shape, share) in enumerate(zip(CODES, shares, strict=True))
            },
        })  # fmt: skip
    return found


def _say_distributions(document: dict[str, Any]) -> None:
    say("{answers} answers, {refused} refused, {without_text} without a text".format(**document))
    for group in document["groups"]:
        head = " ".join(filter(None, (group["by"], group["value"])))
        said = "{refused} of {answers} answers refused, {prompts} prompts".format(**group)
        say(f"\n{head}: {said}")
        if not group["refused"]:
            continue
        rows = [("shape", "answers", "share of prompts")]
        for shape, found in group["shapes"].items():
            rows.append((shape, str(found["count"]), _figure(found)))
        say_aligned(rows)
    say("\nlimits hold for all shapes, for each group by itself, of what the coder calls so")
    say("scope-narrow declines nothing: no rule can see it, see `drift entail`")


def _figure(one: dict[str, Any]) -> str:
    if one["estimate"] is None:
        return f"not estimable: {one['reason']}"
    if one["low"] is None:
        return f"{one['estimate']:.2f} (limits not estimable: {one['reason']})"
    return "{estimate:.2f} [{low:.2f}, {high:.2f}]".format(**one)


def _measured(
    root: Path,
    coder: ShapeCoder,
    coded: Sequence[ShapedRow],
    field: str,
    name: str,
    sha256: str,
) -> MeasuredShapes:
    """Hold what the coder says against `field`; its words are a known set's, or our shapes."""
    words = [(one.row.model_extra or {}).get(field) for one in coded]
    wrong = sorted({type(word).__name__ for word in words if not (isinstance(word, str) and word)})
    if wrong:
        raise ConfigurationError(
            f"the field {field!r} is not given in each row as text", got=", ".join(wrong)
        )
    stated = load_proxies(root / "config" / "shapes" / "proxies.toml").get(name)
    if stated is None or stated.field != field:
        own: dict[str, list[Shape]] = {}
        if {*words} & {*SHAPES}:
            own = {shape: [shape] for shape in SHAPES} | {NOT_REFUSED: []}
        stated = ProxySet(
            name=name,
            field=field,
            title="",
            licence="",
            limits=[f"Words other than our shapes and {NOT_REFUSED} enter no figure."],
            admits=own,
        )
    about = {key: getattr(stated, key) for key in ("field", "title", "licence", "limits")}
    figures = measure_shapes(coded, [*map(str, words)], stated.admits)
    judged = {"rules": coder.rules_hash, "fingerprint": coder.fingerprint}
    return MeasuredShapes.model_validate(
        {"set": name, **about, "sha256": sha256, **judged, **figures}
    )


def _say_measured(found: MeasuredShapes) -> None:
    say(f"{found.set}, {found.field}: what is said of the rows of each word")
    said = [one for one in SAID if any(row[one] for row in found.confusion.values())]
    say_aligned(
        [("word", *said)]
        + [(word, *(str(row[one]) for one in said)) for word, row in found.confusion.items()]
    )
    for word, row in found.confusion.items():
        if found.admits.get(word) == []:
            n = sum(row.values())
            say(f"{word} admits no shape: {n - row[NO_REFUSAL]} of its {n} rows have one, wrongly")
    if found.words:
        say(f"\nrecall: the share coded in a shape that the word admits; {NO_REFUSAL} is wrong")
        rows: list[tuple[str, ...]] = [
            ("word", "rows", "recall", "refused", "recall if refused", "admits")
        ]
        for word, one in found.words.items():
            rows.append((
                word, str(one["rows"]), _figure(one["recall"]), str(one["refused"]),
                _figure(one["recall_if_refused"]), ", ".join(found.admits[word]),
            ))  # fmt: skip
        say_aligned(rows)
        say("\nprecision, end to end: the share of a shape's rows whose word admits it")
        rows = [("shape", "rows", "not contradicted", "precision")]
        for shape, one in found.shapes.items():
            compatible = one["not_contradicted"]
            rows.append((
                shape, str(one["rows"]), "" if compatible is None else str(compatible),
                _figure(one["precision"]),
            ))  # fmt: skip
        say_aligned(rows)
    else:
        say("\nno word of this set admits a shape: neither precision nor recall is estimable")
    say("\nwhat this does not show")
    for limit in found.limits:
        say(f"  - {limit}")
