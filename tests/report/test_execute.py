"""Executing: what runs again and why, strict parameters, and kernels that start and end alone."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from report.conftest import keep, refs

from drift.errors import ConfigurationError, DriftError
from drift.report.execute import execute, inputs, why_again
from drift.report.inputs import code, package
from drift.report.job import Job, check_parameters, named, read_notebook
from drift.report.kernels import Failure, Run, outcomes
from drift.report.site import plan


def notebook(*cells: str) -> str:
    """Return a notebook with these code cells, as JSON."""
    metadata = {"kernelspec": {"name": "python3", "language": "python", "display_name": "Python 3"}}
    made = [
        {"cell_type": "code", "id": f"c{n}", "metadata": {}, "outputs": [], "source": [source]}
        | {"execution_count": None}
        for n, source in enumerate(cells)
    ]
    return json.dumps({"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5})


def run(root: Path, *notebooks: str) -> dict[str, str | Failure]:
    """Run notebooks side by side; return what came of each by its number."""
    runs = [Run(str(n), f"notebooks/{n}.ipynb", text, {}) for n, text in enumerate(notebooks)]
    return dict(outcomes(runs, root=root))


def shown(text: str | Failure) -> str:
    """Return what the last cell of an executed notebook printed."""
    assert isinstance(text, str), text
    return "".join(json.loads(text)["cells"][-1]["outputs"][0]["text"]).strip()


# Kernels


def test_a_kernel_knows_nothing_of_what_another_notebook_did(tmp_path: Path) -> None:
    stain = notebook("import math, sys; math.pi = 3; sys.stained = True; left_behind = 1")
    look = notebook(
        "import math, sys\nprint(math.pi, hasattr(sys, 'stained'), 'left_behind' in dir())"
    )
    found = run(tmp_path, stain, look, stain, look)
    assert shown(found["1"]) == shown(found["3"]) == "3.141592653589793 False False"


def test_a_kernel_runs_in_the_project_under_the_same_settings_on_any_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    monkeypatch.setenv("MPLBACKEND", "module://none")
    (tmp_path / "rival.py").write_text("name = 'found'")
    cell = (
        "import os, rival, sys, matplotlib\n"
        "print(os.getcwd(), os.environ['REFUSAL_DRIFT_ROOT'], rival.name)\n"
        "print(sys.flags.hash_randomization, matplotlib.get_backend())"
    )
    first, second = shown(run(tmp_path, notebook(cell))["0"]).splitlines()
    assert first == f"{tmp_path} {tmp_path} found"
    assert second == "0 agg"


def test_a_users_own_start_up_files_do_not_reach_a_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    startup = tmp_path / "ipython" / "profile_default" / "startup" / "mine.py"
    startup.parent.mkdir(parents=True)
    startup.write_text("mine = 1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    assert shown(run(tmp_path, notebook("print('mine' in dir())"))["0"]) == "False"


def test_a_kernel_that_dies_fails_its_own_page_and_no_other(tmp_path: Path) -> None:
    found = run(tmp_path, notebook("import os; os._exit(3)"), notebook("print(1)"))
    assert isinstance(found["0"], Failure)
    assert "DeadKernel" in found["0"].error
    assert shown(found["1"]) == "1"


def test_a_process_that_is_killed_beside_its_kernel_fails_its_own_page(tmp_path: Path) -> None:
    kill = "import os, signal; os.kill(os.getppid(), signal.SIGKILL); import time; time.sleep(60)"
    found = run(tmp_path, notebook(kill), notebook("print(1)"))
    assert isinstance(found["0"], Failure)
    assert "died" in found["0"].error
    assert shown(found["1"]) == "1"


def test_a_notebook_that_is_no_notebook_fails_its_own_page(tmp_path: Path) -> None:
    found = run(tmp_path, "{", notebook("print(1)"))
    assert isinstance(found["0"], Failure)
    assert shown(found["1"]) == "1"


linux = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="watches processes by Linux")
#: Tells the pipe "pids" of the kernel, of its page and of a child, and goes on for long.
LASTING = """
import os, pathlib, subprocess, time
child = subprocess.Popen(["sleep", "600"])
pathlib.Path("pids").write_text(f"{os.getpid()} {os.getppid()} {child.pid}")
time.sleep(600)
"""


def watched(folder: Path, start: Callable[[], object]) -> list[int]:
    """Return a handle of each process of `LASTING`, which `start` begins in `folder`."""
    os.mkfifo(folder / "pids")
    told = os.open(folder / "pids", os.O_RDWR)
    start()
    assert ended(told), "nothing was told"
    return [os.pidfd_open(int(pid)) for pid in os.read(told, 99).split()]


def ended(handle: int) -> bool:
    """Tell whether a process has ended, or does within a minute."""
    return bool(select.select([handle], [], [], 60)[0])


@linux
def test_nothing_is_left_running_when_a_build_is_cut_short(tmp_path: Path) -> None:
    runs = [Run("quick", "q", notebook("print(1)"), {}), Run("slow", "s", notebook(LASTING), {})]
    ending = outcomes(runs, root=tmp_path)
    handles = watched(tmp_path, lambda: next(ending))
    assert not select.select(handles, [], [], 0)[0]
    ending.close()
    assert all(map(ended, handles))


@linux
def test_nothing_is_left_running_when_the_command_itself_is_killed(tmp_path: Path) -> None:
    (tmp_path / "slow.ipynb").write_text(notebook(LASTING))
    work = (
        "from pathlib import Path; from drift.report.kernels import Run, outcomes\n"
        "text = Path('slow.ipynb').read_text()\n"
        "print(*outcomes([Run('slow', 's', text, {})], root=Path.cwd()))"
    )
    started: list[subprocess.Popen[bytes]] = []
    command = [sys.executable, "-c", work]
    handles = watched(tmp_path, lambda: started.append(subprocess.Popen(command, cwd=tmp_path)))
    started[0].kill()
    started[0].wait()
    assert all(map(ended, handles))


# What runs again


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The pages that ran, in this order; none really does."""
    pages: list[str] = []

    def pretended(runs: list[Run], *, root: Path) -> Iterator[tuple[str, str | Failure]]:
        for run in runs:
            pages.append(run.page)
            yield run.page, f"text {len(pages)}\n{run.page}"

    monkeypatch.setattr("drift.report.execute.outcomes", pretended)
    return pages


@pytest.fixture
def project(fresh_project: Path, synthetic: ModuleType) -> Path:
    """A project with one record and the notebooks of two pages: ``reading`` and ``ville``."""
    synthetic.write_record(
        fresh_project / "data" / "embedded", fresh_project / "config" / "probe_bank.json"
    )
    keep(fresh_project, "reading", "ville")
    return fresh_project


def build(root: Path, as_of: str = "", **options: Any) -> dict[str, str]:
    return execute(plan(root, refs(root)[:1], as_of), root=root, **options)


def test_a_page_whose_inputs_have_not_changed_is_not_made_again(
    project: Path, made: list[str]
) -> None:
    first = build(project)
    assert made == ["method/ville", "embedded/reading"]
    assert build(project) == first
    record = project / "data" / "embedded"
    for changed, pages in (
        (record / "churn.jsonl", ["embedded/reading"]),
        (sorted((record / "readings").iterdir())[-1], ["embedded/reading"]),
        (project / "notebooks" / "ville.ipynb", ["method/ville"]),
        (project / "config" / "claims.toml", ["method/ville", "embedded/reading"]),
    ):
        made.clear()
        build(project)
        assert made == []
        changed.write_bytes(changed.read_bytes() + b"\n")
        build(project)
        assert made == pages
    made.clear()
    (project / "config" / "panels" / "mine.toml").write_text('name = "mine"')
    build(project)
    assert made == [], "a record shows the panel that it registered"
    build(project, "20261127T060000Z")
    assert made == ["embedded/reading"]


def test_the_reason_why_a_page_runs_again_is_named(project: Path, made: list[str]) -> None:
    def why(page: str) -> list[str]:
        return why_again(plan(project, refs(project)[:1]), page, project)

    assert why("reading")[-1] == "embedded/reading runs again: no such page is kept"
    build(project)
    assert why("reading")[-1] == "embedded/reading does not run again: nothing has changed"
    assert "unchanged  data/embedded/readings/" in why("reading")
    (project / "config" / "new.toml").touch()
    (project / "config" / "claims.toml").unlink()
    (project / "data" / "embedded" / "churn.jsonl").write_text("")
    *_, first, second, third, verdict = why("embedded/reading")
    assert first == "gone       config/claims.toml"
    assert second == "new        config/new.toml"
    assert third == "changed    data/embedded/churn.jsonl"
    assert verdict.startswith("embedded/reading runs again: 3 of ")
    assert not any("data/embedded" in line for line in why("ville"))


def test_one_page_runs_alone_and_the_others_are_shown_as_they_are_kept(
    project: Path, made: list[str]
) -> None:
    first = build(project)
    (project / "config" / "claims.toml").write_text("")
    made.clear()
    said: list[str] = []
    again = build(project, only=["ville"], say=said.append)
    assert made == ["method/ville"]
    assert again["embedded/reading.ipynb"] == first["embedded/reading.ipynb"]
    assert said == ["1 other pages are shown as kept, though inputs of theirs have changed"]
    made.clear()
    build(project, only=["ville"])
    assert made == ["method/ville"], "a page that is named runs though nothing has changed"


def test_a_page_that_is_kept_as_of_another_day_is_never_shown_beside_this_one(
    project: Path, made: list[str]
) -> None:
    build(project)
    made.clear()
    build(project, "20261127T060000Z", only=["ville"])
    assert made == ["method/ville", "embedded/reading"]


def test_a_page_that_does_not_exist_is_refused_with_the_nearest(project: Path) -> None:
    jobs = plan(project, refs(project))
    assert named(jobs, ["reading"]) == {"embedded/reading", "empty/reading"}
    assert named(jobs, ["method/ville"]) == {"method/ville"}
    with pytest.raises(ConfigurationError, match="no page 'embedded/raeding'") as caught:
        named(jobs, ["embedded/raeding"])
    assert caught.value.exit_code == 2
    assert "did you mean 'embedded/reading'?" in str(caught.value)


def test_a_page_that_needs_a_file_is_made_only_where_a_record_holds_it(project: Path) -> None:
    path = project / "notebooks" / "reading.ipynb"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"order: 1\\n"', '"order: 1\\n", "needs: truth.json\\n"'))
    assert [job.page for job in plan(project, refs(project))] == ["method/ville"]
    (project / "data" / "empty").mkdir()
    (project / "data" / "empty" / "truth.json").touch()
    assert [job.page for job in plan(project, refs(project))] == ["method/ville", "empty/reading"]


def test_a_change_of_the_code_runs_only_what_imports_it(project: Path) -> None:
    """A simulation does not wait for the words of another page."""
    found = inputs(plan(project, refs(project)[:1]), project)
    assert "drift/report/pages.py" in found["embedded/reading"]
    assert "drift/report/pages.py" not in found["method/ville"]
    assert {"drift/stats/zoo.py", "drift/report/kernels.py"} <= set(found["method/ville"])


def test_every_module_that_a_page_loads_is_among_its_inputs(tmp_path: Path) -> None:
    """The interpreter itself is asked what an import brings with it."""
    imports = "from drift.report import method, load_record"
    asked = f"{imports}\nimport sys\nprint(*(n for n in sys.modules if n.split('.')[0] == 'drift'))"
    done = subprocess.run(
        [sys.executable, "-c", asked], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    modules = package()
    files = {modules[name].file for name in done.stdout.split()}
    assert files <= set(code(imports, modules))


def test_code_with_an_error_depends_on_everything() -> None:
    modules = package()
    assert len(code("from drift import (", modules)) == len(modules)


def wrong(root: Path, **parameters: object) -> Job:
    return Job("embedded/reading", read_notebook(root / "notebooks/reading.ipynb"), parameters)


def test_nothing_runs_when_a_parameter_is_wrong(project: Path, made: list[str]) -> None:
    with pytest.raises(ConfigurationError):
        execute([wrong(project, panel=1)], root=project)
    assert made == []


def test_a_parameter_that_the_notebook_does_not_have_names_the_nearest(project: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_parameters(wrong(project, pannel="embedded"))
    assert "'pannel'" in str(caught.value)
    assert "did you mean 'panel'?" in str(caught.value)


def test_a_parameter_of_another_type_is_refused(project: Path) -> None:
    with pytest.raises(ConfigurationError, match="wrong type") as caught:
        check_parameters(wrong(project, as_of=3))
    assert "as_of: str" in str(caught.value)


def test_a_notebook_that_cannot_be_read_is_named(project: Path) -> None:
    (project / "notebooks" / "torn.ipynb").write_text('{"cells": [')
    with pytest.raises(DriftError, match="cannot be read") as caught:
        plan(project, [])
    assert "torn.ipynb" in str(caught.value)
