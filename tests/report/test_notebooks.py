"""The rules that every notebook of the project keeps, and that each opens in plain Jupyter."""

from __future__ import annotations

import ast
import asyncio
import json
import re
import shutil
from pathlib import Path
from typing import Any

import nbformat
import papermill
import pytest
from nbclient import NotebookClient
from report.conftest import copy_project

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
#: Pages in their order.
OF_RECORDS = ["lab", "reading", "rates", "alarm", "wording", "language", "transcripts", "findings"]
OF_RECORDS += ["judge", "integrity", "runs", "truth", "instrument", "ladders"]
OF_RECORDS += ["board", "probes", "shapes", "entailment"]
ONCE = "method limits ville power reproduction attribution aftermath".split()
FORBIDDEN = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def read(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def code(path: Path) -> list[dict[str, Any]]:
    return [cell for cell in read(path)["cells"] if cell["cell_type"] == "code"]


each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def front_matter(path: Path) -> dict[str, str]:
    front = "".join(read(path)["cells"][0]["source"])
    return dict(re.findall(r"^(\w+): (.+)$", front, re.M))


def test_there_is_one_notebook_for_each_page_and_none_else() -> None:
    assert sorted(path.stem for path in NOTEBOOKS) == sorted(OF_RECORDS + ONCE)


def test_a_notebook_belongs_to_a_record_exactly_if_it_takes_a_panel() -> None:
    taking = {path.stem for path in NOTEBOOKS if "panel" in papermill.inspect_notebook(path)}
    assert taking == set(OF_RECORDS)


@pytest.mark.parametrize("pages", [OF_RECORDS, ONCE], ids=["of a record", "once"])
def test_the_pages_stand_in_the_order_in_which_they_are_read(pages: list[str]) -> None:
    orders = [int(front_matter(ROOT / f"notebooks/{page}.ipynb")["order"]) for page in pages]
    first = 0 if "lab" in pages else 1
    assert orders == list(range(first, first + len(pages)))


def test_a_page_that_needs_a_file_of_the_record_says_so() -> None:
    needing = {path.stem: front_matter(path).get("needs") for path in NOTEBOOKS}
    assert {page: needs for page, needs in needing.items() if needs} == {
        "board": "corpora/board-",
        "lab": "plan.toml",
        "ladders": "corpora/ladders-",
        "probes": "corpora/board-",
        "truth": "truth.json",
    }


@each_notebook
def test_a_notebook_that_simulates_takes_its_seed_as_a_parameter(path: Path) -> None:
    declared = papermill.inspect_notebook(path)
    sizes = {"lifetimes", "draws"}
    simulates = any(size in "".join(cell["source"]) for cell in code(path) for size in sizes)
    assert simulates == ("seed" in declared) == bool(sizes & declared.keys())


@each_notebook
def test_a_notebook_is_stored_without_outputs_or_traces_of_a_run(path: Path) -> None:
    for cell in code(path):
        assert cell["outputs"] == []
        assert cell["execution_count"] is None
        assert set(cell["metadata"]) <= {"tags"}


@each_notebook
def test_a_notebook_opens_with_front_matter_title_parameters_and_imports(path: Path) -> None:
    front, title, parameters, imports = read(path)["cells"][:4]
    assert front["cell_type"] == "raw"
    assert front["source"][0] == "---\n"
    assert title["cell_type"] == "markdown"
    assert re.match(r"# \S", title["source"][0])
    assert parameters["metadata"]["tags"] == ["parameters"]
    tree = ast.parse("".join(imports["source"]))
    assert all(isinstance(line, ast.Import | ast.ImportFrom) for line in tree.body)


@each_notebook
def test_one_cell_alone_holds_parameters_and_one_alone_holds_imports(path: Path) -> None:
    cells = code(path)
    assert sum("parameters" in cell["metadata"].get("tags", []) for cell in cells) == 1
    importing = [c for c in cells if re.search(r"^\s*(import|from)\s", "".join(c["source"]), re.M)]
    assert len(importing) == 1


@each_notebook
def test_every_parameter_is_typed_has_a_default_and_a_comment(path: Path) -> None:
    assert papermill.inspect_notebook(path)
    cell = next(c for c in code(path) if "parameters" in c["metadata"].get("tags", []))
    for line in cell["source"]:
        assert re.fullmatch(r"\w+: (str|int|float|bool) = .+  # \S.*\n?", line)


@each_notebook
def test_a_notebook_defines_nothing_and_touches_no_path_or_host(path: Path) -> None:
    for cell in code(path):
        source = "".join(cell["source"])
        assert not [node for node in ast.walk(ast.parse(source)) if isinstance(node, FORBIDDEN)]
        assert not re.search(r"\bPath\b|\bopen\(|https?:|\bos\.|\.json|\.csv|/work|\.\./", source)


@each_notebook
def test_a_cell_has_at_most_fifteen_lines_stored_as_a_list(path: Path) -> None:
    for cell in read(path)["cells"]:
        assert isinstance(cell["source"], list)
        assert len(cell["source"]) <= 15
        assert all(line.endswith("\n") for line in cell["source"][:-1])


@each_notebook
def test_every_code_cell_after_the_imports_carries_a_label_of_its_own(path: Path) -> None:
    labels = [re.match(r"#\| label: (\S+)\n", cell["source"][0]) for cell in code(path)[2:]]
    assert all(labels)
    names = [label[1] for label in labels if label]
    assert len(names) == len(set(names))


@each_notebook
def test_kernel_and_language_are_named_or_papermill_stops(path: Path) -> None:
    metadata = read(path)["metadata"]
    assert metadata["kernelspec"]["name"] == "python3"
    assert metadata["language_info"] == {"name": "python"}


@each_notebook
def test_prose_uses_no_syntax_that_one_renderer_alone_reads(path: Path) -> None:
    prose = "".join("".join(c["source"]) for c in read(path)["cells"] if c["cell_type"] != "code")
    assert not re.search(r"\{\{<|@(fig|tbl|sec)-|\$\$|\[@", prose)


# Plain Jupyter: the kernel that it finds, the notebooks' own folder, no papermill and no site.


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a clean clone holds: no run of this machine, and the shipped phantom."""
    root = copy_project(tmp_path_factory.mktemp("clone"))
    shutil.copytree(ROOT / "data/phantom", root / "data/phantom")
    return root


def opened(clone: Path, page: str, **parameters: str) -> Any:
    """Return a notebook of the clone, the defaults of parameters typed over."""
    notebook = nbformat.read(clone / "notebooks" / f"{page}.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    cell = next(c for c in notebook.cells if "parameters" in c.metadata.get("tags", []))
    for name, value in parameters.items():
        cell.source, changed = re.subn(
            rf'^({name}: \w+ = )("[^"]*"|\S+)', rf"\g<1>{value}", cell.source, flags=re.M
        )
        assert changed == 1
    return notebook


def run_all(clone: Path, notebooks: dict[str, Any]) -> dict[str, str]:
    """Run all cells of each notebook, two kernels at a time; return the HTML of each."""
    there = {"metadata": {"path": str(clone / "notebooks")}}
    gate = asyncio.Semaphore(2)

    async def one(notebook: Any) -> None:
        async with gate:
            await NotebookClient(notebook, kernel_name="python3", resources=there).async_execute()

    async def every() -> None:
        await asyncio.gather(*map(one, notebooks.values()))

    asyncio.run(every())
    return {page: html_of(notebook.cells) for page, notebook in notebooks.items()}


def html_of(cells: list[Any]) -> str:
    outputs = (output for cell in cells for output in cell.get("outputs", []))
    return "".join(output.get("data", {}).get("text/html", "") for output in outputs)


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting of this project, of the report's engine or of the user."""
    monkeypatch.delenv("REFUSAL_DRIFT_ROOT", raising=False)
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))


def test_in_a_clean_clone_every_notebook_opens_in_jupyter_and_says_that_no_run_is_there(
    clone: Path, plain: None
) -> None:
    notebooks = {page: opened(clone, page) for page in OF_RECORDS}
    joined = opened(clone, OF_RECORDS[0])
    joined.cells = [cell for notebook in notebooks.values() for cell in notebook.cells]
    for number, cell in enumerate(joined.cells):  # one kernel for all: it starts in seconds
        cell["id"] = f"cell-{number}"
    run_all(clone, {"all": joined})
    for page, notebook in notebooks.items():
        assert "This record holds no run yet" in html_of(notebook.cells), page


def test_every_notebook_of_a_record_runs_in_jupyter_over_the_shipped_one(
    clone: Path, plain: None
) -> None:
    notebooks = {page: opened(clone, page, panel='"phantom"') for page in OF_RECORDS}
    notebooks["alarm"] = opened(clone, "alarm", panel='"phantom"', lifetimes="2")
    shown = run_all(clone, notebooks)
    run = json.loads((clone / "data/phantom/series.json").read_bytes())["run"]
    for page, html in shown.items():
        assert run in html, page
        assert "no run yet" not in html, page


def test_the_notebooks_of_the_method_run_in_jupyter(clone: Path, plain: None) -> None:
    shown = run_all(clone, {page: opened(clone, page) for page in ("method", "limits")})
    assert all(len(html) > 2000 for html in shown.values())
