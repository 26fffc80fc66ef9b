"""Run the notebooks of a record, in parallel, and keep nothing of a failed build.

Each notebook runs in a worker process of its own, against the interpreter that
runs this code: no kernel needs to be registered on the machine. What depends on
the moment or the machine is taken out of the executed notebook, so two builds of
the same record give the same bytes.
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
    """Where a notebook stopped: the cell by number (from 0) and label, its source, why."""

    record: str
    page: str
    notebook: str
    cell: int | None
    label: str
    source: str
    error: str
    traceback: str

    def __str__(self) -> str:
        where = "before the first cell" if self.cell is None else f"cell {self.cell}"
        named = f" ({self.label})" if self.label else ""
        return (
            f"{self.notebook}, {where}{named}, record {self.record}: {self.error}\n"
            f"{self.source}\n{self.traceback}".rstrip()
        )


class _OwnInterpreter(KernelSpecManager):
    """Offers one kernel, whatever the machine has registered: the running interpreter."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        return KernelSpec(
            argv=[
                sys.executable,
                "-m",
                "ipykernel_launcher",
                "--log-level=50",
                "-f",
                "{connection_file}",
            ],
            display_name="Python 3",
            language="python",
        )


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


def parameters_of(notebook: Path) -> dict[str, tuple[str, Any]]:
    """Return {name: (type name, default)} of the cell tagged ``parameters``.

    Raises
    ------
    ConfigurationError
        There is no such cell, or a line of it is not ``name: type = value``.
    """
    for cell in _read(notebook).cells:
        if "parameters" in cell.metadata.get("tags", []):
            break
    else:
        raise ConfigurationError("notebook has no cell tagged 'parameters'", where=str(notebook))
    found = {}
    for line in ast.parse(cell.source).body:
        match line:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=ast.Name(id=kind), value=value):
                if kind in TYPES and value is not None:
                    found[name] = (kind, ast.literal_eval(value))
                    continue
        raise ConfigurationError(
            "a parameter has no type or no default",
            where=f"{notebook}: parameters cell, line {line.lineno}",
            got=ast.unparse(line),
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
        kind = declared[name][0]
        if type(value) is not TYPES[kind]:
            raise ConfigurationError(
                f"parameter {name!r} is of the wrong type",
                where=str(notebook),
                got=f"{value!r} ({type(value).__name__})",
                expected=kind,
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
        At least one notebook failed; ``report/failures.json`` holds all failures.
    """
    jobs = tuple(jobs)
    for job in jobs:
        check_parameters(job.notebook, job.parameters)
    failures: list[Failure] = []
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
    _report(sorted(failures, key=lambda item: (item.record, item.page)), root)


def _report(failures: list[Failure], root: Path) -> None:
    path = root / "report" / "failures.json"
    if not failures:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(orjson.dumps([asdict(item) for item in failures], option=orjson.OPT_INDENT_2))
    raise DriftError(
        f"{len(failures)} of the report's notebooks failed\n" + "\n\n".join(map(str, failures)),
        where="report/failures.json",
        next_step="the site that was there before is unchanged; mend the cause and build again",
    )


def _prepare_worker(root: str, private: str) -> None:
    """Keep the user's own Jupyter and IPython settings out of the kernels."""
    os.environ.update(
        REFUSAL_DRIFT_ROOT=root,
        JUPYTER_RUNTIME_DIR=private,
        JUPYTER_CONFIG_DIR=private,
        IPYTHONDIR=private,
        JUPYTER_PLATFORM_DIRS="1",
        MPLBACKEND="agg",
        PYTHONHASHSEED="0",
        PYDEVD_DISABLE_FILE_VALIDATION="1",
    )
    logging.getLogger("papermill").setLevel(logging.CRITICAL)


def _run(job: Job, root: Path) -> str | Failure:
    import papermill
    from papermill.exceptions import PapermillExecutionError

    shown = f"{job.notebook.parent.name}/{job.notebook.name}"
    try:
        source = _read(job.notebook)
        done = papermill.execute_notebook(
            source,
            None,
            parameters=dict(job.parameters),
            progress_bar=False,
            cwd=root,
            kernel_manager_class=ReportKernel,
        )
        return _settled(done)
    except PapermillExecutionError as error:
        number, label = _authored(source, error.source)
        return Failure(
            record=job.record,
            page=job.page,
            notebook=shown,
            cell=number,
            label=label,
            source=error.source,
            error=f"{error.ename}: {error.evalue}",
            traceback=ANSI.sub("", "\n".join(error.traceback)),
        )
    except Exception as error:  # a kernel that dies or never starts, a damaged notebook
        return Failure(
            job.record, job.page, shown, None, "", "", f"{type(error).__name__}: {error}", ""
        )


def _authored(notebook: Any, source: str) -> tuple[int | None, str]:
    """Return the number and label of the failing cell in the notebook as it is kept."""
    for number, cell in enumerate(notebook.cells):
        if cell.source == source:
            label = re.search(r"^#\|\s*label:\s*(\S+)", source, re.M)
            return number, label.group(1) if label else cell.get("id", "")
    return None, "injected-parameters"


def _settled(notebook: Any) -> str:
    """Return the executed notebook as text, without what depends on moment or machine."""
    notebook.metadata.pop("papermill", None)
    notebook.metadata["language_info"] = {"name": "python"}
    for cell in notebook.cells:
        for key in ("papermill", "execution", "ExecuteTime"):
            cell.metadata.pop(key, None)
        if "injected-parameters" in cell.metadata.get("tags", []):
            cell["id"] = "injected-parameters"
    text: str = nbformat.writes(notebook)  # type: ignore[no-untyped-call]
    return text + "\n"
