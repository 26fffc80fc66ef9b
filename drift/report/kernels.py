"""Notebooks run side by side, each in a kernel forked from a process that has imported all.

::

    this process ── server (imports) ─┬─ one process a page (papermill) ── kernel
                                      └─ …

A kernel starts in a fraction of a second, with the modules that notebooks import and
with nothing that another notebook did. It is reached over local sockets, not over TCP,
and needs no registered kernel. Server, pages and kernels are one process group, which
ends with the last page, or with the first error here.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from jupyter_client.provisioning.provisioner_base import KernelProvisionerBase

from drift.errors import DriftError

ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
FORK = multiprocessing.get_context("fork")
#: What the server imports before it forks, beside the modules of the report.
HEAVY = ("papermill", "ipykernel.kernelapp", "matplotlib.backends.backend_svg")
#: The same on any machine, whatever its user has set: sets, figures, one core a kernel.
SETTINGS = {
    "PYTHONHASHSEED": "0",
    "MPLBACKEND": "agg",
    "MATPLOTLIBRC": os.devnull,
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}


@dataclass(frozen=True)
class Run:
    """A notebook to run for a page: its name and text, its parameters, and cells to add."""

    page: str
    notebook: str
    text: str
    parameters: dict[str, Any]
    ending: Sequence[dict[str, Any]] = ()


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


def outcomes(runs: Sequence[Run], *, root: Path) -> Generator[tuple[str, str | Failure]]:
    """Run notebooks in the project at `root`; yield each page as it ends, and what came of it.

    That is the executed notebook as JSON, or where it failed.

    Raises
    ------
    DriftError
        The server of kernels died, for example for want of memory.
    """
    if not runs:
        return
    ours, theirs = multiprocessing.Pipe()
    work = f"from drift.report.kernels import serve; serve({theirs.fileno()})"
    # Socket paths hold about a hundred characters, so the sockets' folder needs a short path.
    with tempfile.TemporaryDirectory(prefix="rd") as private:
        # The user's own Jupyter and IPython settings stay out of the kernels.
        own = dict.fromkeys(("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"), private)
        environment = os.environ | SETTINGS | own | {"REFUSAL_DRIFT_ROOT": str(root)}
        server = subprocess.Popen(
            [sys.executable, "-c", work],
            cwd=root,
            env=environment,
            pass_fds=[theirs.fileno()],
            process_group=0,
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        try:
            ours.send(list(runs))
            for _ in runs:
                yield ours.recv()
        except (EOFError, ConnectionError):
            raise DriftError(
                "the process that runs the notebooks died",
                next_step="build again; with too little memory, close other programs first",
            ) from None
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(server.pid, signal.SIGKILL)
            server.wait()
            ours.close()


def serve(channel: int) -> None:
    """Run the notebooks that come through a connection, and send back what came of each.

    As many at a time as there are cores. It has a process of its own, see :func:`outcomes`.
    """
    own = sorted(Path(__file__).parent.glob("[a-z]*.py"))
    # Nobody attaches a debugger to these kernels, and to import one takes long.
    sys.modules["debugpy"] = None  # type: ignore[assignment]
    for name in (*HEAVY, *(f"drift.report.{path.stem}" for path in own)):
        with suppress(Exception):  # the notebook that needs it will say why
            importlib.import_module(name)
    logging.getLogger("papermill").setLevel(logging.CRITICAL)
    line = Connection(channel)
    waiting: list[Run] = line.recv()
    running: dict[Any, Run] = {}  # by the connection that its outcome comes through
    while waiting or running:
        while waiting and len(running) < (os.cpu_count() or 1):
            run = waiting.pop(0)
            ours, theirs = multiprocessing.Pipe(duplex=False)
            FORK.Process(target=_send, args=(theirs, run)).start()
            theirs.close()
            running[ours] = run
        ready: list[Any] = wait([line, *running])
        if line in ready:  # nothing more was to come: who started this is gone
            os.killpg(0, signal.SIGKILL)
        for ended in ready:
            run = running.pop(ended)
            try:
                outcome = ended.recv()
            except EOFError:
                outcome = Failure(run.page, run.notebook, "the process that ran it died")
            line.send((run.page, outcome))


def _send(to: Connection, run: Run) -> None:
    to.send(_outcome(run))


def _outcome(run: Run) -> str | Failure:
    import papermill
    from papermill.exceptions import PapermillExecutionError

    try:
        notebook = nbformat.reads(run.text, as_version=4)  # type: ignore[no-untyped-call]
        done = papermill.execute_notebook(
            notebook,
            None,
            run.parameters,
            progress_bar=False,
            kernel_manager_class=ReportKernel,
            shutdown_kernel="immediate",
        )
        done.cells += map(nbformat.from_dict, run.ending)
        return _settled(done)
    except PapermillExecutionError as error:
        label = re.search(r"^#\|\s*label:\s*(\S+)", error.source, re.M)
        return Failure(
            run.page,
            run.notebook,
            error=f"{error.ename}: {error.evalue}",
            label=label[1] if label else "",
            source=error.source,
            traceback=ANSI.sub("", "\n".join(error.traceback)),
        )
    except Exception as error:  # a kernel that dies or never starts, a damaged notebook
        return Failure(run.page, run.notebook, error=f"{type(error).__name__}: {error}")


def _settled(notebook: Any) -> str:
    """Return the executed notebook as text, without what depends on moment or machine."""
    notebook.metadata["language_info"] = {"name": "python"}
    for part in (notebook, *notebook.cells):
        part.metadata.pop("papermill", None)
        part.metadata.pop("execution", None)
    for cell in notebook.cells:
        if "injected-parameters" in cell.metadata.get("tags", []):
            cell["id"] = "injected-parameters"
            # Where a record lies on this machine is nobody else's, and no reader's default.
            cell["source"] = re.sub(r"^folder = .*\n", "", cell["source"], flags=re.M)
    text: str = nbformat.writes(notebook)  # type: ignore[no-untyped-call]
    return text + "\n"


class ReportKernel(AsyncKernelManager):
    """A kernel of the running interpreter, whatever the machine has registered."""

    def __init__(self, **options: Any) -> None:
        # The sockets take their names from it: two kernels with one name would share them.
        connection = Path(os.environ["JUPYTER_RUNTIME_DIR"]) / f"{uuid.uuid4().hex[:8]}.json"
        # Without folders to search, the manager's own fallback is the running interpreter.
        own = KernelSpecManager(kernel_dirs=[])
        options |= {"connection_file": str(connection), "kernel_spec_manager": own}
        super().__init__(**options, transport="ipc")
        self.provisioner = ForkedKernel(parent=self)


class ForkedKernel(KernelProvisionerBase):
    """A kernel in a fork of this process; it ends when this process ends."""

    parent: Any
    process: ForkProcess | None = None

    @property
    def has_process(self) -> bool:
        return self.process is not None

    async def pre_launch(self, **options: Any) -> dict[str, Any]:
        self.parent.write_connection_file()
        self.connection_info = self.parent.get_connection_info()
        return {"cmd": []}

    async def launch_kernel(self, cmd: list[str], **options: Any) -> Any:
        self.process = FORK.Process(target=_kernel, args=(self.parent.connection_file,))
        self.process.start()
        return self.connection_info

    async def poll(self) -> int | None:
        return self.process.exitcode if self.process else 0

    async def wait(self) -> int | None:
        code, self.process = await self.poll(), None
        return code

    async def send_signal(self, signum: int) -> None:
        """Do nothing: the manager interrupts a kernel only on the way to its end."""

    async def kill(self, restart: bool = False) -> None:
        if self.process:
            self.process.kill()
            self.process.join()

    terminate = kill

    async def cleanup(self, restart: bool = False) -> None:
        """Do nothing: a fork leaves nothing behind."""


def _kernel(connection_file: str) -> None:
    from ipykernel.kernelapp import IPKernelApp

    # The fork was made inside the event loop of papermill, which goes on in the parent alone.
    asyncio.set_event_loop(asyncio.new_event_loop())
    options = ["-f", connection_file, "--log-level=50", "--HistoryManager.enabled=False"]
    IPKernelApp.launch_instance(options, parent_handle=os.getppid())
