"""Run the notebooks of a record, in parallel, and keep nothing of a failed build.

Each notebook runs against the interpreter that runs this code: no kernel needs to be
registered on the machine. What depends on the moment or the machine is taken out of
the executed notebook, so two builds of one record give the same bytes.
"""

from __future__ import annotations

import ast
import difflib
import logging
import multiprocessing
import os
import re
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import nbformat
import orjson
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from traitlets import default

from drift.errors import ConfigurationError, DriftError

#: Called with the page that has just ended, how many have ended, and how many there are.
Progress = Callable[[str, int, int], None]

ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
TYPES: dict[str, type] = {"str": str, "int": int, "float": float, "bool": bool}


@dataclass(frozen=True)
class Job:
    """One notebook to run with its parameters, for the page `page` of `record`."""

    record: str
    page: str
    notebook: Path
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class Failure:
    """Where a notebook stopped: the cell's number (from 0), label and source, and why."""

    record: str
    page: str
    notebook: str
    error: str
    cell: int | None = None
    label: str = ""
    source: str = ""
    traceback: str = ""

    def __str__(self) -> str:
        where = f"cell {self.label or self.cell}" if self.source else "outside any cell"
        head = f"{self.notebook}, {where}, record {self.record}: {self.error}"
        return "\n".join(filter(None, (head, self.source, self.traceback)))


class _OwnInterpreter(KernelSpecManager):
    """Offers one kernel, whatever the machine has registered: the running interpreter."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        # The level keeps the log quiet when a finished kernel is interrupted.
        command = [sys.executable, "-m", "ipykernel_launcher", "--log-level=50", "-f"]
        return KernelSpec(argv=[*command, "{connection_file}"], language="python")


class ReportKernel(AsyncKernelManager):
    """A kernel of the running interpreter, reached over local sockets, not over TCP."""

    @default("kernel_spec_manager")
    def _kernel_spec_manager_default(self) -> KernelSpecManager:
        return _OwnInterpreter()

    @default("transport")
    def _transport_default(self) -> str:
        return "tcp" if os.name == "nt" else "ipc"

    @default("connection_file")
    def _connection_file_default(self) -> str:
        # The sockets take their names from it: two kernels with one name would share them.
        return str(Path(os.environ["JUPYTER_RUNTIME_DIR"]) / f"{uuid.uuid4().hex[:8]}.json")


def _read(notebook: Path) -> Any:
    return nbformat.read(notebook, as_version=4)  # type: ignore[no-untyped-call]


def parameters_of(notebook: Path) -> dict[str, str]:
    """Return {name: type} of the cell tagged ``parameters``.

    Raises
    ------
    ConfigurationError
        A line of that cell is not ``name: type = value``.
    """
    cells = [c for c in _read(notebook).cells if "parameters" in c.metadata.get("tags", [])]
    found = {}
    for line in ast.parse("\n".join(cell.source for cell in cells)).body:
        match line:
            case ast.AnnAssign(ast.Name(name), ast.Name(kind), ast.expr()) if kind in TYPES:
                found[name] = kind
            case _:
                raise ConfigurationError(
                    "a parameter has no type or no default",
                    where=f"{notebook}: {ast.unparse(line)}",
                    expected=f"name: {' | '.join(TYPES)} = value",
                )
    return found


def check_parameters(notebook: Path, parameters: Mapping[str, Any]) -> None:
    """Refuse a parameter that the notebook does not declare, or of another type.

    Raises
    ------
    ConfigurationError
        Names the parameter and the nearest declared one, or both types.
    """
    declared = parameters_of(notebook)
    for name, value in parameters.items():
        if name not in declared:
            near = difflib.get_close_matches(name, declared, n=1, cutoff=0.0)
            raise ConfigurationError(
                f"unknown parameter {name!r}",
                where=str(notebook),
                expected=f"one of: {', '.join(declared)}",
                next_step=f"did you mean {near[0]!r}?" if near else None,
            )
        if type(value) is not TYPES[declared[name]]:
            raise ConfigurationError(
                f"parameter {name!r} is of the wrong type",
                where=str(notebook),
                got=f"{value!r} ({type(value).__name__})",
                expected=declared[name],
            )


def execute(
    jobs: Iterable[Job], into: Path, *, root: Path, progress: Progress | None = None
) -> None:
    """Run every job and write ``<into>/<record>/<page>.ipynb``.

    Raises
    ------
    ConfigurationError
        A parameter is unknown or of the wrong type; nothing has run.
    DriftError
        A notebook failed; ``report/failures.json`` holds all failures.
    """
    jobs, failures = tuple(jobs), []
    for job in jobs:
        check_parameters(job.notebook, job.parameters)
    context = multiprocessing.get_context("spawn")
    workers = max(1, min(len(jobs), os.cpu_count() or 1))
    # Socket paths hold about a hundred characters, so the sockets' folder needs a short path.
    with (
        tempfile.TemporaryDirectory(prefix="rd") as private,
        ProcessPoolExecutor(workers, context, _prepare_worker, (str(root), private)) as pool,
    ):
        running = {pool.submit(_run, job, root): job for job in jobs}
        for done, future in enumerate(as_completed(running), start=1):
            job, outcome = running[future], future.result()
            if isinstance(outcome, Failure):
                failures.append(outcome)
            else:
                target = into / job.record / f"{job.page}.ipynb"
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(outcome, encoding="utf-8")
            if progress:
                progress(f"{job.record}/{job.page}", done, len(jobs))
    listed = root / "report" / "failures.json"
    listed.unlink(missing_ok=True)
    if failures:
        failures.sort(key=lambda failure: (failure.record, failure.page))
        found = [asdict(failure) for failure in failures]
        listed.write_bytes(orjson.dumps(found, option=orjson.OPT_INDENT_2))
        raise DriftError(
            f"{len(failures)} of {len(jobs)} pages failed\n" + "\n\n".join(map(str, failures)),
            where="report/failures.json",
            next_step="the site from before is unchanged; mend the cause and build again",
        )


def _prepare_worker(root: str, private: str) -> None:
    """Keep the user's own Jupyter and IPython settings out of the kernels."""
    own = dict.fromkeys(("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"), private)
    os.environ.update(own, REFUSAL_DRIFT_ROOT=root, MPLBACKEND="agg", PYTHONHASHSEED="0")
    logging.getLogger("papermill").setLevel(logging.CRITICAL)


def _run(job: Job, root: Path) -> str | Failure:
    import papermill
    from papermill.exceptions import PapermillExecutionError

    place = (job.record, job.page, f"{job.notebook.parent.name}/{job.notebook.name}")
    try:
        notebook = _read(job.notebook)
        sources = [cell.source for cell in notebook.cells]
        options = {"progress_bar": False, "cwd": root, "kernel_manager_class": ReportKernel}
        done = papermill.execute_notebook(notebook, None, dict(job.parameters), **options)
        return _settled(done)
    except PapermillExecutionError as error:
        label = re.search(r"^#\|\s*label:\s*(\S+)", error.source, re.M)
        return Failure(
            *place,
            error=f"{error.ename}: {error.evalue}",
            cell=sources.index(error.source) if error.source in sources else None,
            label=label[1] if label else "",
            source=error.source,
            traceback=ANSI.sub("", "\n".join(error.traceback)),
        )
    except Exception as error:  # a kernel that dies or never starts, a damaged notebook
        return Failure(*place, error=f"{type(error).__name__}: {error}")


def _settled(notebook: Any) -> str:
    """Return the executed notebook as text, without what depends on moment or machine."""
    notebook.metadata.pop("papermill", None)
    notebook.metadata["language_info"] = {"name": "python"}
    for cell in notebook.cells:
        cell.metadata.pop("papermill", None)
        cell.metadata.pop("execution", None)
        if "injected-parameters" in cell.metadata.get("tags", []):
            cell["id"] = "injected-parameters"
    text: str = nbformat.writes(notebook)  # type: ignore[no-untyped-call]
    return text + "\n"
