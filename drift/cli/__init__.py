"""The ``drift`` command.

Exit codes: 0 ok, 1 failure, 2 usage or configuration, 3 paused (resume later),
4 integrity, or a void comparison, 5 partial, or not estimable.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from drift import __version__
from drift.cli import (
    asking,
    checking,
    code,
    entail,
    instrument,
    judge,
    records,
    report,
    shapes,
    traces,
)
from drift.errors import DriftError
from drift.terminal import warn

app = typer.Typer(
    help="Ask a panel of models the same benign questions, seal and judge the answers, "
    "and show when a model's answering behaviour changes.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
#: Commands by group, in the order of the help; "" for those without one.
COMMANDS = {
    "": (
        asking.refresh,
        report.report,
        checking.verify,
        checking.reproduce,
        asking.register,
        asking.elicit,
        asking.board,
        shapes.shapes,
        entail.entail,
        records.rescore,
        records.status,
        records.compare,
        traces.traces,
    ),
    "instrument": (instrument.instrument_calibrate, instrument.instrument_show),
    "judge": (judge.judge_evaluate, judge.judge_diff),
    "code": (code.code_draw, code.code_adjudicate, code.code_agreement, code.code_seal),
    "lab": (asking.lab_record, asking.lab_ladders, asking.lab_nights),
    "bank": (asking.bank_check,),
    "weights": (asking.weights_fetch,),
}
GROUPS = {
    "instrument": "The instrument: its pins, and the noise floor of its reference.",
    "judge": "The judge, and how far it agrees with people.",
    "code": "People who read: draw answers for them, compare them, seal their labels.",
    "lab": "The laboratory record.",
    "bank": "The probe bank.",
    "weights": "Weights of the embedded models.",
}
for group, commands in COMMANDS.items():
    target = typer.Typer(help=GROUPS[group], no_args_is_help=True) if group else app
    for command in commands:
        target.command(command.__name__.removeprefix(f"{group}_"))(command)
    if group:
        app.add_typer(target, name=group)


def main() -> None:
    """Run the command line; a known error becomes a message and its exit code."""
    try:
        app(prog_name="drift", standalone_mode=True)
    except DriftError as error:
        warn(f"error: {error}")
        sys.exit(error.exit_code)
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        warn(f"error: {error.strerror or error}{where}; what was stored stays, run it again")
        sys.exit(1)
    except KeyboardInterrupt:
        warn("interrupted; a run that was being asked is resumed by the next refresh")
        sys.exit(130)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"drift {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass
