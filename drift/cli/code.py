"""Commands of the coder study: draw a sheet, adjudicate, compare, seal."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from drift.cli.options import DataOption, JsonOption, PanelOption, known, open_record
from drift.config import project_root
from drift.errors import ConfigurationError
from drift.records.coding import coding_of, seal_coding
from drift.records.draw import Arms, draw
from drift.records.ledger import Ledger, write_atomically
from drift.records.readers import compare
from drift.records.scheme import REFUSAL, SCHEMES, Name, Scheme
from drift.records.sheet import Marks, sheet_bytes
from drift.records.store import Store
from drift.records.study import (
    Study,
    adjudicated,
    check_reader,
    check_study,
    disagreements,
    label_lines,
    read_coders,
    read_study,
    sealed_of,
    too_few,
)
from drift.report.coder import coder_page, study_files
from drift.stats.survey import WHOLE
from drift.terminal import say, warn

StudyArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="The folder that `drift code draw` wrote.")
]
FirstArgument = Annotated[Path, typer.Argument(metavar="A", help="What one coder handed in.")]
FilesArgument = Annotated[
    list[Path], typer.Argument(metavar="A [B]", help="What one or two coders handed in.")
]
ThirdOption = Annotated[
    Path | None,
    typer.Option("--adjudicated", help="The adjudicator's labels where A and B differ."),
]


def code_draw(
    n: Annotated[
        int,
        typer.Option(
            "--n", min=1, help="Answers to draw; fewer to read where models gave the same text."
        ),
    ],
    seed: Annotated[int, typer.Option(help="Seed of the draw; the same draws the same.")],
    out: Annotated[Path, typer.Option(help="A new folder for the study, outside the record.")],
    panel: PanelOption = "embedded",
    data: DataOption = None,
    scheme: Annotated[
        Name | None,
        typer.Option(
            help="What is read: refusal (the default), the shape of refusals, or entailment."
        ),
    ] = None,
    judge: Annotated[
        str | None,
        typer.Option(help="The model whose verdicts on entailment are drawn, if several judged."),
    ] = None,
    verdict: Annotated[
        Literal["no", "yes"] | None,
        typer.Option(help="Draw mostly these verdicts on entailment; implies --scheme."),
    ] = None,
    share: Annotated[
        float | None,
        typer.Option(help="Share of --n that bears --verdict, as far as there are; by default .7."),
    ] = None,
    arms: Annotated[
        Arms, typer.Option(help="Canonical arms only, or all wordings and languages.")
    ] = "canonical",
    run: Annotated[
        list[str] | None,
        typer.Option(
            help="Draw from this run; may be repeated. By default each model's last full."
        ),
    ] = None,
    floor: Annotated[
        int, typer.Option(min=1, help="Fewest answers of a stratum, if it has as many.")
    ] = 4,
    coder: Annotated[
        list[str] | None,
        typer.Option(help="Also write the CSV in the order of this coder; may be repeated."),
    ] = None,
) -> None:
    """Draw stored answers for people to read: a blinded sheet, stratified and seeded.

    Strata are model x judge's label x language. What each row is stands in key.json alone, with the
    probability that it was drawn. One text to one question is read once, however often stored: the
    sheet may so have fewer rows than --n. It warns if rates could not be corrected from so few.
    Shapes and verdicts are the newest of the run by their judge; refusals are those first sealed.
    """
    checks = _scheme(scheme, judge, verdict, share)
    root = project_root()
    folder = data or root / "data"
    known(folder, [panel])
    record = folder / panel
    if record.resolve() in (out.resolve(), *out.resolve().parents):
        raise ConfigurationError("a study lies outside the record", where=str(out))
    drawn = draw(
        Store(record),
        Ledger(record),
        n=n,
        seed=seed,
        floor=floor,
        arms=arms,
        runs=run or (),
        scheme=checks,
        judge=f"{checks.judge}{judge}" if judge else None,
        verdict=verdict,
        share=Decimal(str(share or 0.7)),
    )
    for name in coder or ():
        check_reader(name, [drawn.key.judge["id"]])
    files = study_files(drawn, manual=_manual(root), coders=coder or ())
    _write(out, files, "another draw is there", "name another folder, or move this file away")
    key = drawn.key
    responses = sum(stratum.responses for stratum in key.strata)
    say(
        f"study {key.study}: {len(key.rows)} answers to read, {key.n} units drawn of "
        f"{sum(stratum.units for stratum in key.strata)} in {len(key.strata)} strata, which stand "
        f"for {responses} responses"
    )
    if checks is not REFUSAL:
        say(f"read for {checks.name}, against {key.judge['id']}, rules {key.judge['rules'][:12]}")
    for model, runs in key.runs.items():
        say(f"  {model}: {', '.join(runs)}")
    if key.left_out:
        left = ", ".join(f"{count} {reason}" for reason, count in key.left_out.items())
        say(f"left out: {left}")
    for line in too_few(key):
        warn(line)
    say(f"{out}: give coders sheet.html or sheet.csv, and never key.json")


def code_adjudicate(
    folder: StudyArgument,
    first: FirstArgument,
    second: Annotated[Path, typer.Argument(metavar="B", help="What the other handed in.")],
) -> None:
    """Write the sheet of the answers that two coders labelled differently, for a third reader.

    It does not say who said what, nor which labels were given.
    """
    study = read_study(folder)
    one, two = read_coders(study, [first, second])
    differ = disagreements(one, two)
    both = one.labels.keys() & two.labels.keys()
    say(f"{len(both)} answers labelled by both, {len(differ)} of them differently")
    if not differ:
        return
    rows = [study.sheet[row] for row in differ]
    manual = _manual(project_root())
    page = coder_page(rows, study=study.key.study, manual=manual, scheme=study.scheme)
    files = {"adjudicate.csv": sheet_bytes(rows), "adjudicate.html": page}
    _write(folder, files, "another adjudication is there", f"move {' and '.join(files)} away")
    say(f"{folder}: give the adjudicator adjudicate.html or adjudicate.csv")


def code_agreement(
    folder: StudyArgument,
    files: FilesArgument,
    third: ThirdOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare coders with each other and with the judge, and correct rates by what they read.

    Agreement, Cohen's kappa and linearly weighted kappa speak for all answers drawn from, by the
    inclusion probabilities. Of shapes and entailment there is kappa of each word against the rest,
    the judge's precision and recall, and what was taken for what. Fewer than 30 answers labelled by
    both, or one label only, is not estimable; a rate is corrected from 100 coded answers on, 30 of
    its model and language.
    """
    study = read_study(folder)
    coders, final = _readings(study, files, third)
    found = compare(study, coders, final)
    if as_json:
        print(json.dumps(found))
        return
    say(
        f"study {found['study']} of {found['panel']}: {found['rows']} answers to read, "
        f"which stand for {found['responses']} responses"
    )
    say_measure = _Measures()
    for pair in found["pairs"]:
        _say_pair(pair, found["order"], say_measure)
    if (counted := study.scheme.counted) and found["rates"]:
        rates = {"refused": "refusal rates", "no": "rates of No"}[counted]
        say(f"{rates} over all answers drawn from: judged; design-based; prediction-powered")
    for rate in found["rates"]:
        judged = f"{rate['judged'][counted]} of {rate['judged']['n']}"
        names = ("design_based", "prediction_powered")
        corrected = (say_measure(rate[name], 100) for name in names)
        named = "{model}, {language}, read by {reader} ({coded} of {units})".format(**rate)
        say(f"  {named}: {judged}; {'; '.join(corrected)}")
        if "precision" in rate and rate["design_based"]["estimate"] is not None:
            say(f"    of the judge's {counted}: {_error(rate, say_measure)}")


def code_seal(
    folder: StudyArgument,
    files: FilesArgument,
    coder: Annotated[
        str,
        typer.Option(help="Who set the labels: the coder's name in the file, or adjudicated."),
    ],
    third: ThirdOption = None,
    data: DataOption = None,
) -> None:
    """Seal labels that people set in a study as those of a further judge of the record.

    One file is one coder's labels; two files with --adjudicated are what came of them. The key must
    be the one that the record draws. The labels file stays in the study's folder. Sealed again, it
    adds nothing.
    """
    study = read_study(folder)
    coders, final = _readings(study, files, third)
    if len(coders) == 2 and final is None:
        raise ConfigurationError(
            "two coders are two judges",
            next_step="seal each file by itself, or both with --adjudicated",
        )
    marks = final or coders[0]
    if marks.coder != coder:
        raise ConfigurationError("not who set these labels", got=coder, expected=marks.coder)
    if not marks.labels:
        where = ", ".join(map(str, files))
        raise ConfigurationError("there is no label to seal", where=where)
    known(data or project_root() / "data", [study.key.panel])
    record = open_record(study.key.panel, data)
    check_study(study, record.store, record.ledger)
    path, lines = folder / f"labels-{coder}.jsonl", label_lines(study, marks)
    coding = coding_of(lines, path, record.store, record.ledger, scheme=study.scheme)
    with record.opened():
        sealed = seal_coding(
            coding,
            coder,
            record.store,
            record.ledger,
            clock=record.clock,
            study=sealed_of(study.key),
        )
    write_atomically(path, lines)
    labels = sum(len(run.rows) for run in coding.runs.values())
    say(f"{path}: {len(marks.labels)} answers read, {labels} labels")
    say(f"sealed as labels of {coder}: {', '.join(sealed) or 'nothing new'}")
    say(f"in the record {record.store.folder}")


def _scheme(
    scheme: Name | None, judge: str | None, verdict: str | None, share: float | None
) -> Scheme:
    """Return the scheme asked for, which a verdict implies; refuse options of another."""
    found = SCHEMES[scheme or ("entailment" if verdict else "refusal")]
    if not found.several and (judge or verdict):
        raise ConfigurationError(
            "--judge and --verdict choose among verdicts on entailment",
            got=f"--scheme {found.name}",
            next_step="leave them out, or say --scheme entailment",
        )
    if share is not None and (verdict is None or not 0 < share < 1):
        raise ConfigurationError(
            "--share is what part of the sample bears --verdict",
            got=str(share),
            expected="with --verdict, a number between 0 and 1",
        )
    return found


def _manual(root: Path) -> str:
    return (root / "config" / "codebook.md").read_text(encoding="utf-8")


def _write(folder: Path, files: dict[str, bytes], taken: str, next_step: str) -> None:
    """Write files where no other of these names is; the same once more is no harm."""
    for name, data in files.items():
        path = folder / name
        if name.endswith((".json", ".csv")) and path.exists() and path.read_bytes() != data:
            raise ConfigurationError(taken, where=str(path), next_step=next_step)
    for name, data in files.items():
        write_atomically(folder / name, data)


def _readings(
    study: Study, files: list[Path], third: Path | None
) -> tuple[list[Marks], Marks | None]:
    """Return what the coders handed in, and with an adjudicator's file what came of it."""
    if not 1 <= len(files) <= 2:
        raise ConfigurationError("the files of one coder or two", got=str(len(files)))
    if third is None:
        return read_coders(study, files), None
    if len(files) < 2:
        raise ConfigurationError("--adjudicated goes with the files of two coders")
    one, two, decided = read_coders(study, [*files, third])
    return [one, two], adjudicated(one, two, decided)


class _Measures:
    """Writes estimates; what it means that all was read is told once."""

    def __init__(self) -> None:
        self.told = False

    def __call__(self, measure: dict[str, Any], times: int) -> str:
        """Return an estimate with its limits, in per cent or as it is, or why there is none."""
        if measure["estimate"] is None:
            return f"not estimable, {measure['reason']}"
        digits, unit = (1, " %") if times == 100 else (2, "")
        shown = f"{times * measure['estimate']:.{digits}f}{unit}"
        if measure["low"] is None:
            whole = measure["reason"] == WHOLE
            why = "all was read" if whole and self.told else measure["reason"]
            self.told |= whole
            return f"{shown}, no interval: {why}"
        low, high = (f"{times * measure[name]:.{digits}f}" for name in ("low", "high"))
        return f"{shown} [{low}, {high}]"


def _say_pair(pair: dict[str, Any], order: list[str], text: _Measures) -> None:
    say(
        "{first} and {second}: {rows} answers labelled by both, {not_coded} not, "
        "{strata_not_read} strata without any".format(**pair)
    )
    measures = {"raw": "agreement", "kappa": "kappa", "weighted_kappa": "weighted kappa"}
    measures |= {"not_refused": "no refusal at all, as read"}
    for name, words in measures.items():
        if name in pair:
            say(f"  {words}: {text(pair[name], 1 if 'kappa' in name else 100)}")
    for word, found in pair.get("by_word", {}).items():
        both = pair["counts"][order.index(word)][order.index(word)]
        error = f"; {_error(found, text)}" if "precision" in found else ""
        say(f"  {word}, {both} by both: kappa {text(found['kappa'], 1)}{error}")
    for it in pair.get("confusions", []):
        (a, b), (there, back) = it["words"], it["units"]
        speaks = f"together {it['responses']:.1f} responses"
        say(f"  {a} and {b}: {a} / {b} {there}, {b} / {a} {back}; {speaks}")
    if "by_word" in pair and len(order) > 3:
        return
    say(f"  rows {pair['first']}, columns {pair['second']}; units read (responses they speak for)")
    weighted = pair["weighted"] or [[0] * len(order)] * len(order)
    for label, counts, weights in zip(order, pair["counts"], weighted, strict=True):
        cells = (f"{n} ({w:.1f})" for n, w in zip(counts, weights, strict=True))
        say(f"  {label:>12}: {'  '.join(f'{cell:>14}' for cell in cells)}")


def _error(found: dict[str, Any], text: _Measures) -> str:
    return "; ".join(f"{name} {text(found[name], 100)}" for name in ("precision", "recall"))
