"""The site in a real browser: quiet, self-contained, readable in the dark and on a phone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import report.synthetic
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("built")]

RECORD = (
    "reading", "rates", "alarm", "wording", "language", "transcripts", "findings", "judge",
    "integrity", "instrument", "runs", f"runs/{report.synthetic.RUNS[-1][0]}",
)  # fmt: skip
PAGES = (
    "index.html",
    *(f"report/embedded/{page}.html" for page in RECORD),
    "report/empty/reading.html",
    *(f"report/method/{page}.html" for page in ("method", "limits", "ville", "power")),
    *(f"report/method/{page}.html" for page in ("reproduction", "attribution", "aftermath")),
)
READING, RATES, TRANSCRIPTS, RUN = (PAGES[place] for place in (1, 2, 6, 12))
UNFOLD = "document.querySelectorAll('details').forEach(part => { part.open = true })"


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_quiet_and_asks_nobody_else(visit: Callable[..., Any], page: str) -> None:
    tab = visit(page)
    assert "efusal drift" in tab.title()
    assert tab.evaluate("window.pwned") is None


@pytest.mark.parametrize("page", PAGES)
def test_a_page_does_not_overflow_a_phone(visit: Callable[..., Any], page: str) -> None:
    tab = visit(page, width=375)
    tab.evaluate(UNFOLD)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 375
    assert tab.evaluate("document.body.scrollWidth") <= 375


def serious(tab: Any, scheme: str) -> list[Any]:
    """Return what axe-core calls serious or critical on a page with its folded parts open."""
    # The families of the transcripts are alike, and axe takes its time with each.
    tab.evaluate(UNFOLD.replace(".forEach", ".values().take(24).forEach"))
    tab.wait_for_selector("html.quarto-dark" if scheme == "dark" else "html:not(.quarto-dark)")
    found = Axe().run(tab, options={"resultTypes": ["violations"]}).response["violations"]
    return [
        (rule["id"], node["target"], node["html"][:120])
        for rule in found
        if rule["impact"] in ("serious", "critical")
        for node in rule["nodes"]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("page", PAGES)
def test_axe_finds_nothing_serious_in_light_and_dark(
    visit: Callable[..., Any], page: str, scheme: str
) -> None:
    assert serious(visit(page, scheme=scheme), scheme) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_truth_of_a_phantom_is_as_readable_as_any_page(
    visit: Callable[..., Any], scripted: Path, scheme: str
) -> None:
    tab = visit("report/phantom/truth.html", site=scripted, scheme=scheme, width=375)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 375
    assert serious(tab, scheme) == []


@pytest.mark.parametrize("page", PAGES)
def test_a_page_runs_no_script_but_the_sites_own(visit: Callable[..., Any], page: str) -> None:
    tab = visit(page, quiet=False)
    policy = tab.locator("meta[http-equiv='Content-Security-Policy']").get_attribute("content")
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'" and rules["connect-src"] == "'self'"
    assert not {"'unsafe-inline'", "'unsafe-eval'", "data:"} & set(rules["script-src"].split())
    tab.evaluate(
        """() => {
          const script = document.createElement('script');
          script.textContent = 'window.pwned = 5';
          document.body.append(script);
          const link = document.createElement('a');
          link.setAttribute('onclick', 'window.pwned = 6');
          document.body.append(link);
          link.click();
        }"""
    )
    assert tab.evaluate("window.pwned") is None
    assert (
        tab.locator("main :is(script:not([type='application/json']), iframe, object)").count() == 0
    )


def test_no_page_is_larger_than_three_megabytes(built: Path) -> None:
    pages = [*(built / "report" / "_site").rglob("*.html")]
    assert len(pages) > len(PAGES)
    assert [page for page in pages if page.stat().st_size > 3_000_000] == []


def test_dark_mode_toggles_and_is_remembered(visit: Callable[..., Any]) -> None:
    tab = visit(READING)
    body = tab.locator("body")
    light = body.evaluate("body => getComputedStyle(body).backgroundColor")
    tab.click(".quarto-color-scheme-toggle")
    expect(body).not_to_have_css("background-color", light)
    dark = body.evaluate("body => getComputedStyle(body).backgroundColor")
    tab.reload()
    expect(body).to_have_css("background-color", dark)
    tab.click(".quarto-color-scheme-toggle")
    expect(body).to_have_css("background-color", light)


def test_search_finds_a_section_and_opens_it_by_keyboard(visit: Callable[..., Any]) -> None:
    tab = visit(READING)
    tab.keyboard.press("/")
    tab.keyboard.type("canonical arms")
    tab.wait_for_selector(".search-result:visible")
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/*.html#*")
    expect(tab.locator(f"[id='{tab.url.partition('#')[2]}']")).to_be_in_viewport()


def test_search_finds_a_family_by_its_question_and_opens_its_responses(
    visit: Callable[..., Any],
) -> None:
    tab = visit(RATES)
    tab.fill("#quarto-search input", "Tiananmen Square")
    tab.locator(".search-result", has_text="tiananmen-1989").first.click()
    tab.wait_for_url(f"**/{TRANSCRIPTS}#contested-history-tiananmen-1989")
    expect(tab.locator("#contested-history-tiananmen-1989 pre").first).to_be_visible()


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("does not show that nothing changed", "index.html"),
        ("temperature", "report/method/limits.html#limits-1"),
        ("suspect the instrument", "report/embedded/alarm.html#tally"),
    ],
)
def test_search_finds_what_a_page_generates(
    visit: Callable[..., Any], words: str, page: str
) -> None:
    tab = visit(RATES)
    tab.fill("#quarto-search input", words)
    found = tab.locator(".search-result", has_text=words)
    found.first.wait_for()
    assert page in [link.get_attribute("href").removeprefix("../../") for link in found.all()]


def test_an_address_of_a_family_opens_its_responses(visit: Callable[..., Any]) -> None:
    tab = visit(f"{TRANSCRIPTS}#science-photosynthesis")
    expect(tab.locator("#science-photosynthesis pre").first).to_be_visible()
    expect(tab.locator("#science-photosynthesis")).to_be_in_viewport()
    tab.evaluate("location.hash = '#contested-history-tiananmen-1989'")
    expect(tab.locator("#contested-history-tiananmen-1989 pre").first).to_be_visible()


def test_paper_shows_what_is_folded_and_the_page_folds_it_again(visit: Callable[..., Any]) -> None:
    tab = visit(TRANSCRIPTS)
    folded = "document.querySelectorAll('details:not([open])').length"
    assert tab.evaluate(folded) > 41
    tab.evaluate(f"addEventListener('beforeprint', () => {{ window.folded = {folded}; }})")
    before = tab.evaluate(folded)
    tab.pdf()
    assert (tab.evaluate("window.folded"), tab.evaluate(folded)) == (0, before)


def test_what_a_reader_copies_is_the_text_shown(visit: Callable[..., Any]) -> None:
    tab = visit(RUN, permissions=["clipboard-read", "clipboard-write"])
    tab.evaluate(UNFOLD)
    press = tab.locator(".drift-copy").first
    press.focus()
    tab.keyboard.press("Enter")
    expect(press).to_have_text("Copied")
    source = tab.locator(f"[id='{press.get_attribute('data-copy')}']")
    assert tab.evaluate("navigator.clipboard.readText()") == source.text_content()
    expect(press.locator("+ [role=status]")).to_have_text("Copied")


def test_a_response_without_a_text_is_given_no_label(visit: Callable[..., Any]) -> None:
    tab = visit(TRANSCRIPTS)
    unlabelled = tab.locator(".drift-response[data-label='failed']")
    assert unlabelled.count() > 0
    assert unlabelled.locator("select").count() == 0
    labelled = tab.locator(".drift-response:not([data-label='failed'])")
    assert labelled.locator("select").count() == labelled.count()


def test_responses_are_folded_until_they_are_opened(visit: Callable[..., Any]) -> None:
    tab = visit(TRANSCRIPTS)
    family = tab.locator(".drift-family").first
    assert not family.locator("pre").first.is_visible()
    family.locator("summary").click()
    assert family.locator("pre").first.is_visible()
    family.locator("summary").press("Enter")
    assert not family.locator("pre").first.is_visible()


def test_a_link_from_the_reading_lands_on_the_family(visit: Callable[..., Any]) -> None:
    tab = visit(READING)
    link = tab.locator("main a[href^='transcripts.html#']").first
    anchor = link.get_attribute("href").partition("#")[2]
    link.click()
    tab.wait_for_url(f"**/transcripts.html#{anchor}")
    expect(tab.locator(f"[id='{anchor}']")).to_be_in_viewport()


def test_a_figure_takes_its_ink_from_the_page(visit: Callable[..., Any]) -> None:
    inks = []
    for scheme in ("light", "dark"):
        tab = visit(RATES, scheme=scheme)
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
