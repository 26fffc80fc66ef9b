"""The command that has a model judge stored answers."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from drift.cli.options import DataOption, JsonOption, PanelOption, open_record
from drift.entail import entail as have_judged
from drift.errors import ConfigurationError
from drift.judging.entailment import VERDICTS, judge_id
from drift.records.entailment import Check, counted, gates, standings, tallies
from drift.records.judging import ARMS
from drift.records.store import read_rows
from drift.refresh import Record
from drift.terminal import bar, say, warn


def entail(
    judge: Annotated[
        str, typer.Option(help="A model of the panel by its key, or PANEL:MODEL; see --panel.")
    ],
    panel: PanelOption = "embedded",
    data: DataOption = None,
    run: Annotated[
        list[str] | None,
        typer.Option(
            help="The id of a sealed run, more than once for several; by default the last full one."
        ),
    ] = None,
    arms: Annotated[
        str, typer.Option(help="canonical: the first wording of each family alone; or all.")
    ] = "all",
    as_json: JsonOption = False,
) -> None:
    """Have a model judge whether stored answers answer their questions; seal its verdicts.

    It is asked labelled pairs first. A judging that was killed or paused is resumed by the same
    command; one that says nothing new is not sealed again. No model of the record is asked again.
    """
    if arms not in ARMS:
        raise ConfigurationError("no such choice of arms", got=arms, expected=", ".join(ARMS))
    record = open_record(panel, data)
    with record.opened(), bar("replies") as progress:
        outcome = have_judged(
            record,
            judge,
            runs=run or (),
            arms="canonical" if arms == "canonical" else "all",
            progress=progress,
            say=warn,
        )
    found = _newest(record, judge_id(judge.rpartition(":")[2])) if outcome.sealed else None
    if as_json:
        document = asdict(outcome) | {"exit_code": outcome.exit_code, "judging": found}
        print(json.dumps(document, ensure_ascii=False))
    else:
        for note in outcome.notes:
            warn(note)
        state = "sealed" if outcome.sealed else "still open"
        failed = f", {outcome.failed} failed" if outcome.failed else ""
        say(f"run {outcome.run} ({arms}): {outcome.asked} replies stored{failed}, {state}")
        if found:
            _say_judging(found)
    raise typer.Exit(outcome.exit_code)


def _newest(record: Record, judge: str) -> dict[str, Any] | None:
    """Return what counts of the judge that was asked last: gates by language, verdicts by model.

    Where none of its judgings counts it is the last one, which says why.
    """
    check = Check.load(record.root)
    found = standings(record.store, record.ledger.forwards(), check, record.judge)
    mine = [it for it in found if it.judge[0] == judge]
    if not mine:
        return None
    same = [it for it in mine if it.judge == mine[-1].judge]
    one = next(iter(counted(same)), mine[-1])
    judging = one.judging
    gate = gates(judging, check)
    answers = read_rows(record.store.transcript(judging.body["run"]))
    cut = {(row["model"], row["key"]) for row in answers if row["status"] == "truncated"}
    verdicts = [
        {"model": model, "language": language}
        | {word: getattr(tally, word) for word in (*VERDICTS, "cut")}
        | {"share_of_no": asdict(tally.rate(gate[language]))}
        for (model, language), tally in tallies(judging.rows, cut).items()
    ]
    named = {"run": judging.body["run"], "judge": judging.body["judge"]}
    named |= {"reason": one.reason, "times": one.times}
    return named | {"gate": {name: asdict(it) for name, it in gate.items()}, "verdicts": verdicts}


def _say_judging(found: dict[str, Any]) -> None:
    if found["reason"]:
        say(f"{found['judge']['id']} of run {found['run']} does not count: {found['reason']}")
    elif found["times"] > 1:
        say(f"run {found['run']} was judged {found['times']} times; the first counts, and is shown")
    for language, gate in found["gate"].items():
        if gate["kappa"] is None:
            said = f"not estimable: {gate['why']}"
        else:
            limits = f"({gate['low']:.2f} to {gate['high']:.2f})"
            said = f"kappa {gate['kappa']:.2f} {limits} on {gate['n']} labelled pairs, "
            said += f"{gate['missing']} missing: "
            said += "passed" if gate["passed"] else f"not passed, {gate['why']}"
        say(f"{found['judge']['id']}, {language}: {said}")
    for row in found["verdicts"]:
        share = row["share_of_no"]["estimate"]
        shown = f"{share:.1%} No, read by nobody" if share is not None else "no rate is shown"
        counts = ", ".join(f"{row[word]} {word}" for word in VERDICTS)
        counts += f", {row['cut']} on cut answers" if row["cut"] else ""
        say(f"{row['model']}, {row['language']}: {counts}; {shown}")
