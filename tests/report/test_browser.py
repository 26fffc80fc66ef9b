"""The site in a real browser: quiet, self-contained, readable in the dark and on a phone."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.browser

FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
PAGES = (
    "index.html",
    "report/embedded/reading.html",
    "report/embedded/rates.html",
    "report/embedded/transcripts.html",
    "report/embedded/alarm.html",
    "report/empty/reading.html",
    "report/method/ville.html",
    "report/method/power.html",
    "report/method/reproduction.html",
)
#: Contrast of an element's text against the nearest opaque ground behind it (WCAG 2).
CONTRAST = """element => {
  const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  let ground = [255, 255, 255];
  for (let e = element; e; e = e.parentElement) {
    const found = numbers(getComputedStyle(e).backgroundColor);
    if (found.length === 3 || found[3] > .99) { ground = found; break; }
  }
  const [a, b] = [light(numbers(getComputedStyle(element).color)), light(ground)];
  return (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
}"""
TEXTS = (
    "main p, main td, main th, main dt, main dd, main h1, main h2, main h3, main a, main summary, "
    "main figcaption, main pre, main mark, .drift-chip, .drift-small, .drift-hidden, .drift-cut, "
    ".drift-footer, .sidebar-link, .sidebar-title a, #TOC a, .breadcrumb-item"
)


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def address(built: Path) -> Iterator[str]:
    """The built site, served on this machine."""
    handler = functools.partial(_Quiet, directory=str(built / "report" / "_site"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=FLAGS.split())
        yield launched
        launched.close()


@pytest.fixture
def visit(browser: Any, address: str) -> Iterator[Callable[..., Any]]:
    """Open a page; whatever it says on the console or asks of others fails the test."""
    contexts, complaints = [], []

    def open_page(page: str, *, width: int = 1280, scheme: str = "light") -> Any:
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        contexts.append(context)
        tab = context.new_page()
        tab.on("console", lambda message: complaints.append(message.text))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("request", lambda r: None if r.url.startswith(address) else complaints.append(r.url))
        tab.goto(address + page)
        return tab

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_quiet_and_asks_nobody_else(visit: Callable[..., Any], page: str) -> None:
    tab = visit(page)
    assert "efusal drift" in tab.title()
    assert tab.evaluate("window.pwned") is None


@pytest.mark.parametrize("page", PAGES)
def test_a_page_does_not_overflow_a_phone(visit: Callable[..., Any], page: str) -> None:
    tab = visit(page, width=375)
    tab.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
    assert tab.evaluate("document.documentElement.scrollWidth") <= 375
    assert tab.evaluate("document.body.scrollWidth") <= 375


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("page", PAGES)
def test_all_text_is_readable_in_light_and_dark(
    visit: Callable[..., Any], page: str, scheme: str
) -> None:
    tab = visit(page, scheme=scheme)
    tab.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
    dark = "document.documentElement.classList.contains('quarto-dark')"
    tab.wait_for_function(dark if scheme == "dark" else f"!{dark}")
    found = tab.eval_on_selector_all(
        TEXTS,
        f"""elements => elements.filter(e => e.textContent.trim() && e.offsetParent)
            .map(e => [({CONTRAST})(e), e.className || e.tagName, e.textContent.slice(0, 40)])
            .filter(([contrast]) => contrast < 4.5)""",
    )
    assert found == []


def test_dark_mode_toggles_and_is_remembered(visit: Callable[..., Any]) -> None:
    tab = visit(PAGES[1])
    ground = "getComputedStyle(document.body).backgroundColor"
    light = tab.evaluate(ground)
    tab.click(".quarto-color-scheme-toggle")
    tab.wait_for_function(f"{ground} !== {light!r}")
    dark = tab.evaluate(ground)
    tab.reload()
    tab.wait_for_function(f"{ground} === {dark!r}")
    tab.click(".quarto-color-scheme-toggle")
    tab.wait_for_function(f"{ground} === {light!r}")


def test_responses_are_folded_until_they_are_opened(visit: Callable[..., Any]) -> None:
    tab = visit(PAGES[3])
    family = tab.locator(".drift-family").first
    assert not family.locator("pre").first.is_visible()
    family.locator("summary").click()
    assert family.locator("pre").first.is_visible()
    family.locator("summary").press("Enter")
    assert not family.locator("pre").first.is_visible()


def test_a_link_from_the_reading_lands_on_the_family(visit: Callable[..., Any]) -> None:
    tab = visit(PAGES[1])
    link = tab.locator("main a[href^='transcripts.html#']").first
    anchor = link.get_attribute("href").partition("#")[2]
    link.click()
    tab.wait_for_url(f"**/transcripts.html#{anchor}")
    tab.wait_for_function(
        f"(top => top >= 0 && top < 800)(document.getElementById('{anchor}')"
        ".getBoundingClientRect().top)"
    )


def test_a_figure_takes_its_ink_from_the_page(visit: Callable[..., Any]) -> None:
    inks = []
    for scheme in ("light", "dark"):
        tab = visit(PAGES[2], scheme=scheme)
        ink = "e => getComputedStyle(e).fill"
        inks.append(tab.locator("svg text").last.evaluate(ink))
    assert inks[0] != inks[1]


def test_the_site_works_from_files_without_a_server(browser: Any, built: Path) -> None:
    context = browser.new_context()
    tab = context.new_page()
    asked: list[str] = []
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto((built / "report" / "_site" / "index.html").as_uri())
    tab.click("text=Transcripts")
    tab.wait_for_load_state()
    assert tab.locator(".drift-family").count() == 41
    assert all(url.startswith(("file:", "data:")) for url in asked)
    context.close()
