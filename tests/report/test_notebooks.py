"""The rules that every notebook of the project keeps."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import papermill
import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
FORBIDDEN = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def read(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def code(path: Path) -> list[dict[str, Any]]:
    return [cell for cell in read(path)["cells"] if cell["cell_type"] == "code"]


each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def test_every_page_has_a_notebook() -> None:
    of_records = {"reading", "rates", "transcripts", "alarm"}
    once = {"ville", "power", "reproduction"}
    assert of_records | once <= {path.stem for path in NOTEBOOKS}


def test_a_notebook_belongs_to_a_record_exactly_if_it_takes_a_panel() -> None:
    taking = {path.stem for path in NOTEBOOKS if "panel" in papermill.inspect_notebook(path)}
    assert taking == {"reading", "rates", "transcripts", "alarm"}


@each_notebook
def test_a_notebook_that_simulates_takes_its_seed_as_a_parameter(path: Path) -> None:
    declared = papermill.inspect_notebook(path)
    simulates = any("lifetimes" in "".join(cell["source"]) for cell in code(path))
    assert simulates == ("seed" in declared) == ("lifetimes" in declared)


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
