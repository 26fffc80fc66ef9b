"""One synthetic project, executed and rendered once for all tests of the report."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import report.synthetic

from drift.report import RecordRef, build_site

ROOT = Path(__file__).resolve().parents[2]
#: Simulations of the method pages made small, in the copied notebooks alone.
SMALL = {
    "lifetimes: int = 2000": "lifetimes: int = 60",
    "lifetimes: int = 1000": "lifetimes: int = 60",
    "lifetimes: int = 40 ": "lifetimes: int = 2 ",
    'member: str = \\"\\"': 'member: str = \\"bad runs 2 %, 0.35\\"',
    'n: str = \\"14, 41\\"': 'n: str = \\"14\\"',
    'quiet: str = \\"0, 50, 100, 200, 500\\"': 'quiet: str = \\"0, 100\\"',
}


@pytest.fixture(scope="session")
def synthetic() -> ModuleType:
    """The generator of synthetic records."""
    return report.synthetic


def copy_project(to: Path) -> Path:
    """Copy what a build reads: notebooks, configuration, the site's own files."""
    for folder in ("notebooks", "config", "data/published"):
        shutil.copytree(ROOT / folder, to / folder)
    for path in (to / "notebooks").glob("*.ipynb"):
        text = path.read_text(encoding="utf-8")
        for whole, small in SMALL.items():
            text = text.replace(whole, small)
        path.write_text(text, encoding="utf-8")
    shutil.copytree(ROOT / "report" / "_templates", to / "report" / "_templates")
    for path in (ROOT / "report").iterdir():
        if path.is_file() and path.name != "failures.json":
            shutil.copy(path, to / "report")
    for name in ("_quarto.yml", "index.qmd", "CITATION.cff"):
        shutil.copy(ROOT / name, to / name)
    return to


def keep(root: Path, *names: str) -> None:
    """Take away every notebook but these."""
    for path in (root / "notebooks").glob("*.ipynb"):
        if path.stem not in names:
            path.unlink()


@pytest.fixture
def fresh_project(tmp_path: Path) -> Path:
    """A project of a test's own, without a record."""
    return copy_project(tmp_path)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory, synthetic: ModuleType) -> Path:
    """A built project: ``embedded`` holds hostile answers, ``empty`` holds no run."""
    root = copy_project(tmp_path_factory.mktemp("project"))
    synthetic.write_record(root / "data" / "embedded", root / "config" / "probe_bank.json")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", _without_quarto())
        build_site(root=root, records=refs(root), note="The lab's run is missing: <no weights>.")
    return root


def refs(root: Path) -> list[RecordRef]:
    return [RecordRef(name, root / "data" / name) for name in ("embedded", "empty")]


def _without_quarto() -> str:
    import os

    folders = os.environ["PATH"].split(os.pathsep)
    return os.pathsep.join(item for item in folders if not (Path(item) / "quarto").exists())


@pytest.fixture(scope="session")
def html(built: Path) -> Callable[[str], str]:
    """Return the rendered HTML of a page, named from the site's root."""

    def read(page: str) -> str:
        return (built / "report" / "_site" / page).read_text(encoding="utf-8")

    return read
