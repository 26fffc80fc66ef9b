"""Run the notebooks of a record, in parallel, and keep nothing of a failed build.

Each notebook runs against the interpreter that runs this code: no kernel needs to be
registered on the machine. What depends on the moment or the machine is taken out of
the executed notebook, so two builds of one record give the same bytes. A page is kept
in ``.cache/pages`` below the digest of all that it depends on, and not made again.
"""

from __future__ import annotations

import difflib
import hashlib
import logging
import multiprocessing
import os
import re
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import nbformat
import orjson
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager

from drift.errors import ConfigurationError, DriftError
from drift.records.ledger import write_atomically

#: Called with the page that has just ended, how many have ended, and how many there are.
Progress = Callable[[str, int, int], None]

ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@dataclass(frozen=True)
class Job:
    """One notebook to run with its parameters, for a page named ``<record>/<page>``.

    ``reads`` are the files of the record whose change makes the page another one.
    """

    page: str
    notebook: Path
    parameters: dict[str, Any]
    reads: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Failure:
    """Where a notebook stopped, and why; without a source it was outside any cell."""

    page: str
    notebook: str
    error: str
    label: str = ""
    source: str = ""
    traceback: str = ""

    def __str__(self) -> str:
        where = f"cell {self.label or 'without a label'}" if self.source else "outside any cell"
        head = f"{self.notebook}, {where}, page {self.page}: {self.error}"
        return "\n".join(filter(None, (head, self.source, self.traceback)))


class ReportKernel(AsyncKernelManager):
    """A kernel of the running interpreter, whatever the machine has registered.

    It is reached over local sockets, not over TCP.
    """

    def __init__(self, **options: Any) -> None:
        # The sockets take their names from it: two kernels with one name would share them.
        connection = Path(os.environ["JUPYTER_RUNTIME_DIR"]) / f"{uuid.uuid4().hex[:8]}.json"
        # Without folders to search, the manager's own fallback is the running interpreter.
        own = KernelSpecManager(kernel_dirs=[])
        options |= {"connection_file": str(connection), "kernel_spec_manager": own}
        super().__init__(**options, transport="ipc")


def check_parameters(job: Job) -> None:
    """Refuse a parameter that the notebook does not declare, or of another type.

    Raises
    ------
    ConfigurationError
        Names the parameter, the nearest declared one and all that are declared.
    """
    found = declared(job.notebook)
    for name, value in job.parameters.items():
        kind = type(value).__name__
        if found.get(name) != kind:
            near = difflib.get_close_matches(name, found, n=1, cutoff=0.0)
            raise ConfigurationError(
                f"parameter {name!r} is {'of the wrong type' if name in found else 'unknown'}",
                where=str(job.notebook),
                got=f"{value!r} ({kind})",
                expected=", ".join(f"{name}: {kind}" for name, kind in found.items()),
                next_step=f"did you mean {near[0]!r}?" if near and name not in found else None,
            )


def declared(notebook: Path) -> dict[str, str]:
    """Return the parameters that `notebook` declares, and their types by name."""
    import papermill

    found = papermill.inspect_notebook(notebook)
    return {name: found[name]["inferred_type_name"] for name in found}


def _digest(parts: Iterable[bytes]) -> bytes:
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).digest()


def _surroundings(root: Path) -> Iterator[bytes]:
    """Yield what every page depends on: this code, the project's files, what is installed."""
    yield sys.version.encode()
    yield from sorted(f"{item.name} {item.version}".encode() for item in distributions())
    own = (root / "config", root / "data" / "published", root / "report" / "_templates")
    for folder in (Path(__file__).parents[1], *own):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                yield from (path.name.encode(), path.read_bytes())
    yield (root / "report" / "figures.mplstyle").read_bytes()


def _key(job: Job, surroundings: bytes) -> str:
    named = orjson.dumps(job.parameters, option=orjson.OPT_SORT_KEYS)
    read = (part for path in job.reads for part in (path.name.encode(), path.read_bytes()))
    return _digest((surroundings, named, job.notebook.read_bytes(), *read)).hex()


def execute(jobs: Sequence[Job], *, root: Path, progress: Progress | None = None) -> dict[str, str]:
    """Run every job that is not kept; return executed notebooks by ``<record>/<page>.ipynb``.

    Raises
    ------
    ConfigurationError
        A parameter is unknown or of the wrong type; nothing has run.
    DriftError
        A notebook failed; ``report/failures.json`` holds all failures.
    """
    for job in jobs:
        check_parameters(job)
    done: dict[str, str] = {}
    failures: list[Failure] = []
    surroundings = _digest(_surroundings(root))
    keys = {job.page: _key(job, surroundings) for job in jobs}
    kept = {job.page: root / ".cache" / "pages" / f"{job.page}.ipynb" for job in jobs}
    for page, path in kept.items():
        key, _, text = (path.read_text(encoding="utf-8") if path.exists() else "").partition("\n")
        if key == keys[page]:
            done[f"{page}.ipynb"] = text
    waiting = [job for job in jobs if f"{job.page}.ipynb" not in done]
    for ended, (page, outcome) in enumerate(_outcomes(waiting, root), start=1):
        if isinstance(outcome, Failure):
            failures.append(outcome)
        else:
            done[f"{page}.ipynb"] = outcome
            write_atomically(kept[page], f"{keys[page]}\n{outcome}".encode())
        if progress:
            progress(page, ended, len(waiting))
    listed = root / "report" / "failures.json"
    listed.unlink(missing_ok=True)
    if failures:
        failures.sort(key=lambda failure: failure.page)
        listed.write_bytes(orjson.dumps(failures, option=orjson.OPT_INDENT_2))
        raise DriftError(
            f"{len(failures)} of {len(jobs)} pages failed\n" + "\n\n".join(map(str, failures)),
            where="report/failures.json",
            next_step="the site from before is unchanged; mend the cause and build again",
        )
    return done


def _outcomes(jobs: Sequence[Job], root: Path) -> Iterator[tuple[str, str | Failure]]:
    """Run the jobs in parallel; yield the page and what came of it as each one ends."""
    if not jobs:
        return
    context = multiprocessing.get_context("spawn")
    workers = min(len(jobs), os.cpu_count() or 1)
    # Socket paths hold about a hundred characters, so the sockets' folder needs a short path.
    with (
        tempfile.TemporaryDirectory(prefix="rd") as private,
        ProcessPoolExecutor(workers, context, _prepare_worker, (str(root), private)) as pool,
    ):
        running = {pool.submit(_run, job, root): job.page for job in jobs}
        for future in as_completed(running):
            yield running[future], future.result()


def _prepare_worker(root: str, private: str) -> None:
    """Keep the user's own Jupyter and IPython settings out of the kernels."""
    own = dict.fromkeys(("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"), private)
    os.environ.update(own, REFUSAL_DRIFT_ROOT=root, MPLBACKEND="agg", PYTHONHASHSEED="0")
    logging.getLogger("papermill").setLevel(logging.CRITICAL)


def _run(job: Job, root: Path) -> str | Failure:
    import papermill
    from papermill.exceptions import PapermillExecutionError

    place = (job.page, f"{job.notebook.parent.name}/{job.notebook.name}")
    try:
        notebook = nbformat.read(job.notebook, as_version=4)  # type: ignore[no-untyped-call]
        done = papermill.execute_notebook(
            notebook,
            None,
            job.parameters,
            progress_bar=False,
            cwd=root,
            kernel_manager_class=ReportKernel,
            # Keeps the log quiet when a finished kernel is interrupted.
            extra_arguments=["--log-level=50"],
        )
        return _settled(done)
    except PapermillExecutionError as error:
        label = re.search(r"^#\|\s*label:\s*(\S+)", error.source, re.M)
        return Failure(
            *place,
            error=f"{error.ename}: {error.evalue}",
            label=label[1] if label else "",
            source=error.source,
            traceback=ANSI.sub("", "\n".join(error.traceback)),
        )
    except Exception as error:  # a kernel that dies or never starts, a damaged notebook
        return Failure(*place, error=f"{type(error).__name__}: {error}")


def _settled(notebook: Any) -> str:
    """Return the executed notebook as text, without what depends on moment or machine."""
    notebook.metadata["language_info"] = {"name": "python"}
    for part in (notebook, *notebook.cells):
        part.metadata.pop("papermill", None)
        part.metadata.pop("execution", None)
    for cell in notebook.cells:
        if "injected-parameters" in cell.metadata.get("tags", []):
            cell["id"] = "injected-parameters"
    text: str = nbformat.writes(notebook)  # type: ignore[no-untyped-call]
    return text + "\n"
