"""Commands about the judge: how well it agrees with coded answers, and what another one moves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from drift.cli.options import DataOption, JsonOption, named_records
from drift.config import project_root
from drift.errors import ConfigurationError
from drift.judging import Judge, load_judge
from drift.judging.measure import CODED, JUDGED, MEASURES, Judged, judge_rows, measure, read_set
from drift.judging.measured import OPTIMISTIC, Measured, kept_bytes, measured_name, read_measured
from drift.records.ledger import write_atomically
from drift.records.moves import Comparison, anchor_moves, compare_judges, judge_or_stored
from drift.terminal import bar, say, warn

#: Characters of a prompt, and of a response on each side of the span, that are shown.
SHOWN = 100


def judge_evaluate(
    file: Annotated[
        Path, typer.Argument(help="Coded answers, JSON lines: prompt, response, label.")
    ],
    name: Annotated[
        str, typer.Option(help="Name of the set; by default the file's, no _dev.")
    ] = "",
    title: Annotated[str, typer.Option(help="What the set is, in a line.")] = "",
    licence: Annotated[str, typer.Option(help="Licence of the set.")] = "",
    store: Annotated[
        bool, typer.Option(help="Keep figures and counts in config/judge/measured; no text.")
    ] = True,
    show: Annotated[
        int, typer.Option(min=0, help="Print so many single disagreements, the span in »«.")
    ] = 0,
    as_json: JsonOption = False,
) -> None:
    """Measure the judge on coded answers: accuracy, precision, recall and Cohen's kappa.

    Rows labelled refused or answered count; a judge's undetermined is then the wrong label.
    Intervals at 95 %: 2,000 bootstrap resamples of whole prompts, seed fixed. Fewer than 30 rows
    or 10 prompts, or one label only, is not estimable.
    """
    if show and as_json:
        raise ConfigurationError("--json prints no text of a set", next_step="leave out --show")
    judge = load_judge(project_root() / "config" / "judge")
    coded = read_set(file, judge.names)
    judged = judge_rows(judge, coded.rows)
    named = measured_name(file, name)
    path = project_root() / "config" / "judge" / "measured" / f"{named}.json"
    before = read_measured(path) if path.exists() else None
    found: dict[str, Any] = {
        "set": named,
        "title": title or (before.title if before else ""),
        "licence": licence or (before.licence if before else ""),
        "development": (seen := file.stem.endswith("_dev")),
        "note": OPTIMISTIC if seen else "",
        "sha256": coded.sha256,
        "rules": judge.rules_hash,
        "fingerprint": judge.fingerprint,
        **measure(judged),
    }
    if store:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, kept_bytes(found))
        warn(f"kept in {path}")
    if as_json:
        print(json.dumps(found))
    else:
        _say_measurement(Measured.model_validate(found))
        _show([one for one in judged if _wrong(one)][:show])


def _wrong(one: Judged) -> bool:
    return one.row.label in CODED and one.found.label != one.row.label


def _say_measurement(found: Measured) -> None:
    coders = ", ".join(f"{who} {n}" for who, n in found.label_by.items())
    say(f"{found.set}: {found.rows} rows coded refused or answered; labels by {coders}")
    if found.note:
        say(f"  {found.note}")
    rows: list[tuple[str, ...]] = [("", "rows", *MEASURES)]
    few: list[str] = []
    for kind, groups in ({"": {"all": found.model_dump()}} | found.groups).items():
        for value, group in groups.items():
            if reason := group["accuracy"].get("reason"):
                few.append(f"{kind} {value}: {reason}".strip())
            else:
                figures = (_figure(group[name]) for name in MEASURES)
                rows.append((f"{kind} {value}".strip(), str(group["rows"]), *figures))
    say_aligned(rows)
    if few:
        more = f"; and {len(few) - 3} groups more" if len(few) > 3 else ""
        say(f"not estimable: {'; '.join(few[:3])}{more}")
    if found.coverage is not None:
        say(f"coverage: {100 * found.coverage:.1f} % of the rows have a determined label")
    rows = [("coded", *(f"judged {word}" for word in JUDGED))]
    for label, row in {**found.confusion, **found.apart}.items():
        apart = "" if label in CODED else " (apart, in no figure)"
        rows.append((label + apart, *(str(row[word]) for word in JUDGED)))
    say_aligned(rows)
    for row in found.disagreements:
        say("  {rows:>4} coded {coded}, judged {judged} by {rule}".format(**row))


def say_aligned(rows: Sequence[Sequence[str]]) -> None:
    """Print a table: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *rest in rows:
        cells = [f"{cell:>{width}}" for cell, width in zip(rest, widths[1:], strict=True)]
        say("  ".join([f"  {first:<{widths[0]}}", *cells]))


def _figure(one: dict[str, Any]) -> str:
    if one["estimate"] is None:
        return "not estimable"
    return "{estimate:.3f} [{low:.3f}, {high:.3f}]".format(**one)


def _show(wrong: Sequence[Judged]) -> None:
    for row, found in wrong:
        say(f"\ncoded {row.label}, judged {found.label} by {found.rule} {found.note}".rstrip())
        say(f"  asked: {_cut(row.prompt, 0, SHOWN)}")
        start, end = found.span or (0, 0)
        before = _cut(row.response, max(start - SHOWN, 0), start)
        span = f"»{row.response[start:end]}«" if found.span else ""
        say(f"  said:  {before}{span}{_cut(row.response, end, end + 2 * SHOWN)}")


def _cut(text: str, start: int, end: int) -> str:
    return " ".join(("…" * (start > 0) + text[start:end] + "…" * (end < len(text))).split("\n"))


def judge_diff(
    old: Annotated[str, typer.Argument(help="A folder, or a judge whose labels are stored.")],
    new: Annotated[str, typer.Argument(help="The same; by default config/judge.")] = "",
    panel: Annotated[
        list[str] | None, typer.Option("--panel", help="Records to judge again; by default all.")
    ] = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Judge stored answers under two judges and list every label that moves, by rule.

    A folder holds rules.toml and anchors.json, and is applied by the present code. A stored judge
    is named by the first digits of its rules hash, or as `registered`: what each run was first
    read with. Nothing is written. Says which series a change from OLD to NEW would close;
    the labels of people close none.
    """
    sides = [judge_or_stored(name) for name in (old, new or str(project_root() / "config/judge"))]
    found = []
    for name, folder in named_records(panel, data):
        with bar("runs") as progress:
            told = partial(progress, name)
            found.append(compare_judges(folder, *sides, progress=told))
    first, second = sides
    moved = None
    if isinstance(first, Judge) and isinstance(second, Judge):
        moved = anchor_moves(first, second)
    if as_json:
        records = [item.document() for item in found]
        print(json.dumps({"anchors": moved, "records": records}))
        return
    for item in found:
        _say_comparison(item)
    if not found:
        say(f"no record in {data or project_root() / 'data'}")
    for row in moved or ():
        say(
            "anchor {anchor} (author: {author}): {before} by {before_rule} -> {after} by "
            "{after_rule}".format(**row)
        )
    if moved is None:
        say("anchors: not compared, a stored judge is known by its labels alone")
    else:
        say(f"{len(moved)} anchors move")


def _say_comparison(item: Comparison) -> None:
    found = item.document()
    for move in item.moves:
        say(
            f"{move.run} {move.model} {move.key}: {move.before} by {move.before_rule} -> "
            f"{move.after} by {move.after_rule}"
        )
    say(
        f"{item.record}: {len(item.moves)} of {item.labels} labels move in {item.runs} runs; "
        f"{item.other_rule} stay and are decided by another rule"
    )
    for row in found["by_label"]:
        say("  {labels:>5} {before} -> {after}".format(**row))
    for row in found["by_rule"]:
        say("  {labels:>5} {before_rule} -> {after_rule}".format(**row))
    if item.one_sided:
        say(f"  {item.one_sided} answers are labelled by one of the two alone, and not counted")
    if item.unread:
        say(f"  {item.unread} runs hold no labels of a judge that was named; left out")
    for name in ("rules", "fingerprint"):
        before, after = item.before[name], item.after[name]
        say(f"  {name} {before:.12} " + ("stays" if before == after else f"-> {after:.12}"))
    for model, why in item.closes.items():
        say(f"  would close {model}, {why}")
    if not item.closes:
        say("  no open series would close")
