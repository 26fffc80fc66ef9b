"""The finished pages: what may run in them, where they lead, and the pages of single runs."""

from __future__ import annotations

import base64
import functools
import hashlib
import http.server
import json
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drift.report import cards
from drift.report import finish as finishing
from drift.report.finish import PARTS, Page, finish, finished, policy, stamped
from drift.report.markup import Markup
from drift.report.search import MOST
from drift.report.site import _render_smalldocs, publish
from drift.report.tables import Record, load_record

ROOT = Path(__file__).resolve().parents[2]
SIDEBAR = (
    '<nav id="quarto-sidebar" class="sidebar"><a href="../../">Refusal drift</a>'
    '<a class="sidebar-link" data-bs-toggle="collapse" data-bs-target="#quarto-sidebar-section-1" '
    'role="navigation" aria-expanded="true">Embedded</a><a href="{own}">Runs</a></nav>'
)
#: Pages as each renderer writes them, cut to what the module looks at.
SMALLDOCS = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Runs – Refusal drift</title>'
    '<link rel="stylesheet" href="../site.css"><meta name="smalldocs:offset" content="../../">'
    '<script src="../../site_libs/smalldocs.js" defer></script><script>early()</script></head>'
    '<body><header id="quarto-header"><nav class="quarto-secondary-nav"></nav></header>'
    + SIDEBAR.format(own="runs.html")
    + '<a href="" onclick="window.smalldocsToggleScheme(); return false;">dark</a>'
    '<nav id="TOC" role="doc-toc"><a href="#all">All</a></nav>'
    '<main class="content" id="quarto-document-content">MAIN</main><footer></footer></body></html>'
)
QUARTO = (
    '<!DOCTYPE html>\n<html lang="en"><head>\n\n<meta charset="utf-8">\n'
    "<title>Runs – Refusal drift</title>\n"
    '<script src="../../site_libs/quarto-nav/quarto-nav.js"></script>\n'
    '<script id="quarto-search-options" type="application/json">{"a": "data"}</script>\n'
    '</head><body><script id="quarto-html-before-body" type="application/javascript">early()'
    '</script>\n<header><nav class="quarto-secondary-nav">'
    '<a class="flex-grow-1" role="navigation" data-bs-target=".quarto-sidebar-collapse-item" '
    'onclick="if (window.f) { window.f(&quot;x&quot;); }"></a></nav></header>'
    + SIDEBAR.format(own="../../report/embedded/runs.html")
    + '<a href="" onclick="window.quartoToggleColorScheme(); return false;">dark</a>'
    '<nav id="TOC" role="doc-toc"><a href="#all">All</a></nav>'
    '<main class="content" id="quarto-document-content">MAIN</main> <!-- /main -->\n'
    '<script type="module">late()</script></body></html>'
)
BOTH = pytest.mark.parametrize("html", [SMALLDOCS, QUARTO], ids=["smalldocs", "quarto"])


def parts(html: str, main: str = "") -> Page:
    found = PARTS.fullmatch(html.replace("MAIN", main))
    assert found
    return Page(*found.groups())


def allows(text: str, rules: str) -> bool:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'" in rules


def test_the_renderers_own_scripts_and_handlers_are_allowed_by_hash_and_data_is_none() -> None:
    assert parts(SMALLDOCS).inline == {"early()", "window.smalldocsToggleScheme(); return false;"}
    assert parts(QUARTO).inline == {
        "early()",
        "late()",
        'if (window.f) { window.f("x"); }',
        "window.quartoToggleColorScheme(); return false;",
    }
    rules = policy(parts(QUARTO).inline)
    assert all(allows(text, rules) for text in parts(QUARTO).inline)
    scripts = next(part for part in rules.split("; ") if part.startswith("script-src"))
    assert "'unsafe-inline'" not in scripts and "'unsafe-hashes'" in scripts
    assert "default-src 'none'" in rules


def test_a_page_without_inline_scripts_allows_none() -> None:
    assert "script-src 'self'; " in policy(frozenset())


@BOTH
@pytest.mark.parametrize(
    "hostile",
    ["<script>own()</script>", "</main><script>own()</script>", '<p onclick="own()">x</p>'],
)
def test_no_script_that_one_page_brings_is_allowed(
    html: str, hostile: str, site: Path, record: Record
) -> None:
    rendered(site, html, runs="", transcripts=hostile)
    finish(site, root=record.root, shown=[])
    for path in site.rglob("*.html"):
        assert not allows("own()", path.read_text(encoding="utf-8"))
        assert allows("early()", path.read_text(encoding="utf-8"))


@BOTH
def test_every_landmark_has_a_name_and_what_folds_is_a_button_for_the_keyboard(html: str) -> None:
    text = finished(parts(html), head="").text()
    navs = re.findall("<nav[^>]*>", text)
    names = [re.findall('aria-label="([^"]+)"', nav) for nav in navs]
    assert all(names) and len({name[0] for name in names}) == len(navs) == 3
    assert 'role="navigation"' not in text
    fold = re.search(r'<a[^>]*data-bs-target="#quarto-sidebar-section-1"[^>]*>', text)
    assert fold and 'href="#quarto-sidebar-section-1"' in fold[0] and 'role="button"' in fold[0]


@BOTH
def test_a_link_to_a_folder_leads_to_its_page(html: str) -> None:
    text = finished(parts(html), head="").text()
    assert '<a href="../../index.html">Refusal drift</a>' in text
    assert 'content="../../"' in text or html == QUARTO


def test_the_policy_comes_before_anything_that_runs() -> None:
    text = finished(parts(QUARTO), head="<meta policy>").text()
    assert text.index("<meta policy>") < text.index("<script")
    assert text.index("<meta charset") < text.index("<meta policy>")


def test_figures_are_numbered_in_their_order() -> None:
    figures = "<figcaption>One.</figcaption><p></p><figcaption>Two.</figcaption>"
    main = finished(parts(QUARTO, figures), head="").main
    assert re.findall(r"<figcaption>(.*?)</figcaption>", main) == [
        "<b>Figure 1.</b> One.",
        "<b>Figure 2.</b> Two.",
    ]


@BOTH
def test_the_page_of_a_run_is_the_shell_of_the_runs_one_folder_deeper(html: str) -> None:
    shell = finished(parts(html, "every run"), head="")
    page = stamped(shell, '<p><a href="../runs.html">all</a></p>', title="Run r1").text()
    assert "<title>Run r1 – Refusal drift</title>" in page
    assert 'id="TOC"' not in page and "every run" not in page
    assert '<p><a href="../runs.html">all</a></p>' in page
    assert 'src="../../../site_libs/' in page
    assert '<a href="../../../index.html">' in page
    assert 'href="#quarto-sidebar-section-1"' in page and 'href=""' in page
    own = "../runs.html" if html == SMALLDOCS else "../../../report/embedded/runs.html"
    assert f'<a href="{own}">Runs</a>' in page
    assert 'content="../../../"' in page or html == QUARTO


def project_files(root: Path) -> None:
    """Copy what a project has beside its notebooks and records."""
    for folder in ("config", "report/_templates"):
        shutil.copytree(ROOT / folder, root / folder)
    for name in ("site.css", "dark.scss", "favicon.svg", "figures.mplstyle"):
        shutil.copy(ROOT / "report" / name, root / "report")
    for name in ("_quarto.yml", "CITATION.cff"):
        shutil.copy(ROOT / name, root)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return tmp_path / "site"


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """A record of three runs, of which only the readings are there."""
    folder = tmp_path / "data" / "embedded"
    (folder / "readings").mkdir(parents=True)
    for run in ("r1", "r2", "r3"):
        (folder / "readings" / f"{run}.json").write_text(json.dumps({"run": run, "models": {}}))
    project_files(tmp_path)
    (tmp_path / "report" / "site.js").write_text("'own';")
    return again(tmp_path)


def again(root: Path) -> Record:
    return load_record("embedded", folder=root / "data" / "embedded", root=root)


def rendered(site: Path, html: str, **pages: str) -> None:
    """Write a rendered site: its index, and pages of one record."""
    folder = site / "report" / "embedded"
    folder.mkdir(parents=True)
    (site / "index.html").write_text(html.replace("MAIN", "front"), encoding="utf-8")
    for name, main in pages.items():
        (folder / f"{name}.html").write_text(html.replace("MAIN", main), encoding="utf-8")


def test_a_page_loads_the_site_s_script_and_names_the_feeds_that_are_there(
    site: Path, record: Record
) -> None:
    rendered(site, QUARTO, reading="")
    for place in (site, site / "report" / "embedded"):
        (place / "feed.xml").write_text("<feed/>")
    finish(site, root=record.root, shown=[])
    assert (site / "site.js").read_text() == "'own';"
    front = (site / "index.html").read_text(encoding="utf-8")
    assert front.count('<script src="site.js" defer>') == front.count("atom+xml") == 1
    page = (site / "report" / "embedded" / "reading.html").read_text(encoding="utf-8")
    assert '<script src="../../site.js" defer>' in page
    feeds = re.findall(r'type="application/atom\+xml" href="([^"]*)"', page)
    assert feeds == ["feed.xml", "../../feed.xml"]


def test_the_index_gains_visible_text_by_section_and_no_answer_figure_row_or_fold(
    site: Path, record: Record
) -> None:
    part = (
        '<p>Written.</p><section id="part"><h2>Part</h2><p>Prose.</p><div id="cell"><p>Made of '
        "&lt;counts&gt; and <b>runs</b>.</p><p>Made of &lt;counts&gt; and <b>runs</b>.</p>"
        "<pre>An answer.</pre><svg><text>Ink</text></svg><details><p>Folded.</p></details>"
        "<table><thead><tr><th>Head</th></tr></thead><tbody><tr><td>Row</td></tr></tbody></table>"
        f"{''.join(f'<p>Long {n:05}.</p>' for n in range(MOST))}</div></section>"
    )
    rendered(site, SMALLDOCS, reading=part, transcripts=part)
    entries = [
        {"objectID": place, "href": place, "title": "T", "section": "Part", "text": "Prose."}
        for place in (f"report/embedded/{page}.html#part" for page in ("reading", "transcripts"))
    ]
    (site / "search.json").write_text(json.dumps(entries))
    finish(site, root=record.root, shown=[])
    found = {it["href"]: it["text"] for it in json.loads((site / "search.json").read_bytes())}
    reading = "report/embedded/reading.html"
    assert found.keys() == {reading, *(entry["href"] for entry in entries)}
    assert found[reading] == "Written."
    assert found[f"{reading}#part"].startswith("Prose. Made of <counts> and runs. Head Long 00000.")
    assert MOST - 20 < len(found[reading] + found[f"{reading}#part"]) < MOST + 20
    assert found["report/embedded/transcripts.html#part"] == "Prose."


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs whose page was made, in place of real ones."""
    asked: list[str] = []

    def run_page(record: Record, run: str) -> Markup:
        asked.append(run)
        return Markup(f"<h1>{run} as of {record.as_of or 'now'}</h1>")

    monkeypatch.setattr(cards, "run_page", run_page)
    monkeypatch.setattr(cards, "run_pages", lambda record: record.runs)
    return asked


def test_the_page_of_a_run_is_made_again_only_when_what_it_shows_has_changed(
    site: Path, record: Record, made: list[str]
) -> None:
    def pages(name: str, record: Record) -> dict[str, str]:
        rendered(site / name, SMALLDOCS, runs="all")
        finish(site / name, root=record.root, shown=[record])
        folder = site / name / "report" / "embedded" / "runs"
        return {path.stem: path.read_text(encoding="utf-8") for path in folder.iterdir()}

    first = pages("a", record)
    assert made == ["r1", "r2", "r3"] and "<h1>r2 as of now</h1>" in first["r2"]
    assert pages("b", again(record.root)) == first and len(made) == 3
    folder = record.store.folder
    (folder / "readings" / "r4.json").write_text('{"run": "r4", "models": {}}')
    pages("c", again(record.root))
    assert made[3:] == ["r3", "r4"]  # the run before leads to the new one
    finding = {"id": "f", "run": "r1", "kind": "new_refusal", "model": "a", "at": "", "detail": ""}
    (folder / "findings.jsonl").write_text(json.dumps(finding) + "\n")
    pages("d", again(record.root))
    assert made[5:] == ["r1"]


def test_many_pages_of_runs_are_the_same_when_several_processes_make_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    phantom = load_record("phantom", as_of="20260102T000000Z", root=ROOT)
    alone = list(finishing._made(phantom, phantom.runs))
    monkeypatch.setattr(finishing, "PIECE", 2)
    assert len(alone) == 5 and list(finishing._made(phantom, phantom.runs)) == alone


def test_pages_of_runs_that_are_left_out_are_not_published(
    site: Path, record: Record, made: list[str]
) -> None:
    rendered(site, SMALLDOCS, runs="all")
    cut = load_record("embedded", folder=record.store.folder, as_of="r2", root=record.root)
    finish(site, root=record.root, shown=[cut])
    found = {path.stem for path in (site / "report" / "embedded" / "runs").iterdir()}
    assert found == {"r1", "r2"}


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small site as the embedded renderer makes it, finished."""
    root = tmp_path_factory.mktemp("small")
    folder = root / "report" / "embedded"
    folder.mkdir(parents=True)
    project_files(root)
    (root / "report" / "_generated").mkdir()
    (root / "report" / "_generated" / "footer.html").write_text("<footer></footer>")
    (root / "index.qmd").write_text("---\ntitle: Refusal drift\n---\n\nA needle in the front page.")
    front = {"cell_type": "raw", "metadata": {}, "source": ["---\n", "title: Reading\n", "---"]}
    text = {"cell_type": "markdown", "metadata": {}, "source": ["## Part\n", "\n", "Text."]}
    meta = {"kernelspec": {"name": "python3", "language": "python", "display_name": "Python"}}
    notebook = {"cells": [front, text], "metadata": meta, "nbformat": 4, "nbformat_minor": 5}
    (folder / "reading.ipynb").write_text(json.dumps(notebook))
    (root / "report" / "site.js").write_text("document.documentElement.dataset.own = 'ran';")
    site = root / "report" / "_site"

    def make(fresh: Path) -> None:
        _render_smalldocs(root, fresh)
        finish(fresh, root=root, shown=[])

    publish(make, site)
    return site


@pytest.fixture(params=["http", "file"])
def address(published: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """Where the site is: served on this machine, or opened as files."""
    if request.param == "file":
        yield published.as_uri() + "/"
        return
    handler = functools.partial(_Quiet, directory=str(published))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture
def tab(chromium: str) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        yield browser.new_page()
        browser.close()


@pytest.mark.browser
def test_under_the_policy_the_page_s_own_scripts_run_and_no_other(tab: Any, address: str) -> None:
    complaints: list[str] = []
    tab.on("console", lambda message: complaints.append(message.text))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.goto(address + "report/embedded/reading.html")
    assert tab.evaluate("document.documentElement.dataset.own") == "ran"
    ground = "getComputedStyle(document.body).backgroundColor"
    light = tab.evaluate(ground)
    tab.click(".quarto-color-scheme-toggle")
    tab.wait_for_function(f"{ground} !== {light!r}")
    fold = tab.locator("a.sidebar-item-toggle").first
    section = tab.locator("#quarto-sidebar-section-1")
    shown = section.is_visible()
    fold.focus()
    tab.keyboard.press("Enter")
    section.wait_for(state="hidden" if shown else "visible")
    tab.click(".sidebar-title a")
    tab.wait_for_url("**/index.html")
    if address.startswith("http"):
        tab.fill("#quarto-search input", "needle")
        tab.wait_for_selector(".search-result")
    assert complaints == []
    tab.evaluate(
        "const s = document.createElement('script'); s.textContent = 'window.pwned = 1';"
        "document.body.append(s); document.body.setAttribute('onclick', 'window.pwned = 2');"
        "document.body.click();"
    )
    assert tab.evaluate("window.pwned") is None
    assert len(complaints) == 2 and all("Content Security Policy" in text for text in complaints)
