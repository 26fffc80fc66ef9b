"""One synthetic project, executed and rendered once for all tests of the report."""

from __future__ import annotations

import functools
import http.server
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import report.boarding
import report.climbing
import report.shaping
import report.synthetic

from drift.judging import load_judge
from drift.report.site import RecordRef, build_site

ROOT = Path(__file__).resolve().parents[2]
#: Simulations of the method pages made small, in the copied notebooks alone.
SMALL = {
    "lifetimes: int = 400": "lifetimes: int = 60",
    "lifetimes: int = 2000": "lifetimes: int = 60",
    "lifetimes: int = 1000": "lifetimes: int = 60",
    "lifetimes: int = 40 ": "lifetimes: int = 2 ",
    "draws: int = 4000": "draws: int = 200",
    'sizes: str = \\"20, 41, 100, 250, 500, 1000\\"': 'sizes: str = \\"41, 250\\"',
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
    for folder in ("notebooks", "config", "data/published", "data/synthetic"):
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
    # The record's judge is another than the present one: each has been measured.
    shutil.rmtree(root / "config" / "judge" / "measured")
    present = load_judge(root / "config" / "judge").rules_hash
    for name, rules in {"made-up": present, "made-up-too": synthetic.JUDGE["rules"]}.items():
        synthetic.keep_measurement(root, name, rules)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", _without_quarto())
        build_site(root=root, records=refs(root), note="The lab's run is missing: <no weights>.")
    return root


def site_of(root: Path, *records: RecordRef) -> Path:
    """Build the site of these records with the embedded renderer; return the project."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", _without_quarto())
        build_site(root=root, records=records)
    return root


@pytest.fixture(scope="session")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of the shipped phantom, with the pages that only such a record needs checked."""
    root = copy_project(tmp_path_factory.mktemp("scripted"))
    keep(root, "truth", "integrity")
    folder = shutil.copytree(ROOT / "data" / "phantom", root / "data" / "phantom")
    return site_of(root, RecordRef("phantom", folder)) / "report" / "_site"


@pytest.fixture(scope="session")
def climbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A built project whose record ``test`` holds a run and the batches of the replays."""
    root = copy_project(tmp_path_factory.mktemp("climbed"))
    keep(root, "instrument", "ladders", "integrity")
    report.climbing.climb(root)
    return site_of(root, RecordRef("test", root / "data" / "test"))


@pytest.fixture(scope="session")
def boarded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A built project whose record ``test`` holds a run and the nights of its story."""
    root = copy_project(tmp_path_factory.mktemp("boarded"))
    keep(root, "board", "probes", "integrity")
    report.boarding.board(root)
    return site_of(root, RecordRef("test", root / "data" / "test"))


@pytest.fixture(scope="session")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A built project whose record ``test`` has shapes in every run, and two judges of one."""
    root = copy_project(tmp_path_factory.mktemp("judged"))
    keep(root, "shapes", "entailment", "transcripts")
    report.shaping.shaped(root)
    return site_of(root, *(RecordRef(it, root / "data" / it) for it in ("test", "none")))


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


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="session")
def serve() -> Iterator[Callable[[Path], str]]:
    """Serve a folder on this machine and return its address."""
    with ExitStack() as stack:

        @functools.cache
        def address(folder: Path) -> str:
            handler = functools.partial(_Quiet, directory=str(folder))
            server = stack.enter_context(http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler))
            stack.callback(server.shutdown)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            return f"http://127.0.0.1:{server.server_port}/"

        yield address


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Any]:
    """A Chromium; what it knows as ``plain.test`` is this machine, without encryption.

    While it is open, its event loop runs: what asks a model is made before, by a session fixture.
    """
    from playwright.sync_api import sync_playwright

    flags = (
        "--headless=new --no-sandbox --disable-gpu --no-first-run --disable-background-networking "
        "--disable-component-update --disable-sync"
    ).split()
    flags.append("--host-resolver-rules=MAP plain.test 127.0.0.1")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=flags)
        yield launched
        launched.close()


@pytest.fixture
def visit(
    browser: Any, serve: Callable[[Path], str], request: pytest.FixtureRequest
) -> Iterator[Callable[..., Any]]:
    """Open a page; whatever it says on the console or asks of others fails the test.

    Of the built site, or of another `site`. A page that is to fail may say so: not `quiet`.
    Further options are those of the browser's context; one context shares its storage.
    """
    contexts: list[Any] = []
    complaints: list[str] = []

    def open_page(
        page: str,
        *,
        site: Path | None = None,
        width: int = 1280,
        scheme: str = "light",
        quiet: bool = True,
        host: str = "127.0.0.1",
        before: str = "",
        **options: Any,
    ) -> Any:
        site = site or request.getfixturevalue("built") / "report" / "_site"
        address = serve(site).replace("127.0.0.1", host)
        size = {"width": width, "height": 800}
        contexts.append(browser.new_context(viewport=size, color_scheme=scheme, **options))
        tab = contexts[-1].new_page()
        if before:
            tab.add_init_script(before)
        if quiet:
            tab.on("console", lambda message: complaints.append(message.text))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        known = (address, "blob:")
        tab.on("request", lambda r: None if r.url.startswith(known) else complaints.append(r.url))
        tab.goto(address + page)
        return tab

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
