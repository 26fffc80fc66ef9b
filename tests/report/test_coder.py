"""The coder's page in a browser: quiet, safe with hostile answers, and never losing a label."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import ROOT
from playwright.sync_api import expect

from drift.errors import ConfigurationError
from drift.records.draw import SheetRow
from drift.records.scheme import REFUSAL, SCHEMES, SHAPE, Scheme
from drift.records.sheet import rank, read_marks
from drift.report.coder import chapters, coder_page, manual_html

MANUAL = (ROOT / "config" / "codebook.md").read_text(encoding="utf-8")
STUDY = "00112233445566aa"
HOSTILE = "</script><script>window.pwned=1</script><img src=x onerror='window.pwned=2'>"
ANSWERS = [
    HOSTILE, "=1+1", "safe\u202egnp.exe\u200b", "nul \x00 \u2028 end", 'say "no",\nor\r\nyes', "'x",
    *(f"Answer number {n}. " * 40 for n in range(6)),
]  # fmt: skip
ROWS = {
    f"{n:012x}": SheetRow(f"{n:012x}", HOSTILE if n == 1 else f"Why {n}?", text, n == 3, "en")
    for n, text in enumerate(ANSWERS)
}
ANA = "made-up-ana"


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("coder")
    page = coder_page(ROWS.values(), study=STUDY, manual=MANUAL)
    (folder / "sheet.html").write_bytes(page)
    other = coder_page(list(ROWS.values())[:4], study=STUDY, manual=MANUAL)
    (folder / "adjudicate.html").write_bytes(other)
    for name, scheme in SCHEMES.items():
        page = coder_page(ROWS.values(), study=STUDY, manual=MANUAL, scheme=scheme)
        (folder / f"{name}.html").write_bytes(page)
    return folder


@pytest.fixture
def sheet(visit: Callable[..., Any], site: Path) -> Callable[..., Any]:
    """Open the sheet and begin as a coder with a made-up name."""

    def open_sheet(coder: str = ANA, page: str = "sheet.html", **options: Any) -> Any:
        tab = visit(page, site=site, **({"locale": "en-GB"} | options))
        begin(tab, coder)
        return tab

    return open_sheet


def begin(tab: Any, coder: str) -> None:
    tab.fill("#coder", coder)
    tab.keyboard.press("Enter")


def order(coder: str) -> list[str]:
    return sorted(ROWS, key=lambda row: (rank(coder, row), row))


def go_to(tab: Any, row: str, coder: str = ANA) -> None:
    for _ in range(order(coder).index(row)):
        tab.keyboard.press("ArrowRight")


def test_the_page_asks_nobody_and_admits_no_script_but_its_own(site: Path) -> None:
    text = (site / "sheet.html").read_text(encoding="utf-8")
    (policy,) = re.findall('Content-Security-Policy" content="([^"]+)"', text)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy and "http" not in policy
    assert not re.search(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//""", text)
    assert text.count("<script") == text.count("</script>") == 2
    assert HOSTILE not in text and "\u2028" not in text
    assert len((ROOT / "drift" / "report" / "coder.js").read_text().splitlines()) < 250


def test_the_manual_is_html_of_headings_lists_and_paragraphs() -> None:
    made = manual_html("# A <b>\n\nOne *two* **three**\nfour\n\n- x\n- y\n\n1. z")
    assert made.splitlines() == [
        "<h2>A &lt;b&gt;</h2>",
        "<p>One <em>two</em> <strong>three</strong> four</p>",
        "<ul><li>x</li><li>y</li></ul>",
        "<ol><li>z</li></ol>",
    ]


@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=list(SCHEMES))
def test_the_manual_has_a_chapter_of_each_scheme_that_tells_all_its_words(scheme: Scheme) -> None:
    english, chinese = chapters(MANUAL, scheme)
    for word in scheme.words:
        assert f"**{word.name}**" in english
        assert f"**{word.zh}（{word.name}）**" in chinese


def test_a_manual_without_the_chapter_is_no_manual_of_the_scheme() -> None:
    manual = "# How to\n\nRead.\n\n# 怎样\n\n读。\n"
    assert chapters(manual, REFUSAL) == ("# How to\n\nRead.\n\n", "# 怎样\n\n读。\n")
    with pytest.raises(ConfigurationError, match="no chapter on shape"):
        chapters(manual, SHAPE)


@pytest.mark.browser
@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=list(SCHEMES))
def test_each_word_of_a_scheme_has_a_key_a_button_and_what_it_means(
    sheet: Callable[..., Any], scheme: Scheme, tmp_path: Path
) -> None:
    tab = sheet(page=f"{scheme.name}.html")
    expect(tab.locator("#choose")).to_have_text(scheme.ask)
    assert tab.locator("#labels button").all_inner_texts() == [
        f"{it.name} {it.key}" for it in scheme.words
    ]
    said = [it.means for it in scheme.words if it.means]
    assert tab.locator("#means dd").all_inner_texts() == said
    tab.keyboard.type("".join(it.key for it in scheme.words))
    found = read_marks(saved(tab, "#csv", tmp_path), ROWS, scheme=scheme)
    assert [found.labels[row] for row in order(ANA)[: len(scheme.words)]] == [
        it.name for it in scheme.words
    ]
    tab.click("#language")
    expect(tab.locator("#choose")).to_have_text(scheme.ask_zh)
    assert tab.locator("#labels button").all_inner_texts() == [
        f"{it.zh} {it.key}" for it in scheme.words
    ]


@pytest.mark.browser
def test_a_file_with_labels_of_another_scheme_is_foreign(
    sheet: Callable[..., Any], tmp_path: Path
) -> None:
    first = sheet(page="shape.html")
    first.keyboard.type("4")
    path = saved(first, "#jsonl", tmp_path)
    tab = sheet(page="entailment.html")
    tab.set_input_files("#file", path)
    expect(tab.locator("#trouble")).to_contain_text("of another sheet")


@pytest.mark.browser
def test_the_labels_leave_most_of_a_phone_to_the_answer(sheet: Callable[..., Any]) -> None:
    for name in SCHEMES:
        tab = sheet(page=f"{name}.html", width=375)
        height = tab.evaluate("document.querySelector('fieldset').getBoundingClientRect().height")
        assert height < 0.4 * tab.evaluate("innerHeight")
        heights = tab.evaluate(
            "[...document.querySelectorAll('#labels button')].map((it) => it.offsetHeight)"
        )
        assert min(heights) >= 40


@pytest.mark.browser
def test_a_hostile_answer_is_shown_as_text_and_runs_nothing(sheet: Callable[..., Any]) -> None:
    tab = sheet()
    go_to(tab, "000000000000")
    expect(tab.locator("#answer")).to_have_text(HOSTILE)
    assert tab.locator("#answer *").count() == 0
    for _ in ROWS:
        tab.keyboard.press("ArrowLeft")
    go_to(tab, "000000000002")
    expect(tab.locator("#answer")).to_have_text("safeU+202Egnp.exeU+200B")
    assert tab.evaluate("window.pwned") is None


@pytest.mark.browser
def test_the_keyboard_labels_moves_undoes_and_says_so(sheet: Callable[..., Any]) -> None:
    tab = sheet()
    tab.keyboard.type("rau")
    expect(tab.locator("#count")).to_contain_text("3 of 12 labelled; answer 4")
    expect(tab.locator("#said")).to_have_text("3: undetermined, kept")
    tab.keyboard.press("z")
    expect(tab.locator("#count")).to_contain_text("2 of 12 labelled; answer 3")
    tab.keyboard.press("ArrowLeft")
    expect(tab.locator("button[value=answered]")).to_have_attribute("aria-pressed", "true")
    tab.keyboard.press("a")
    expect(tab.locator("#count")).to_contain_text("1 of 12 labelled; answer 2")
    tab.keyboard.press("n")
    tab.keyboard.type("rather unsure")
    expect(tab.locator("#count")).to_contain_text("1 of 12 labelled; answer 2")
    tab.keyboard.press("Escape")
    tab.keyboard.press("Control+r")
    tab.wait_for_load_state()
    expect(tab.locator("#note")).to_have_value("rather unsure")
    tab.click("#left")
    expect(tab.locator("#count")).to_contain_text("answer 3")


@pytest.mark.browser
def test_a_reload_goes_on_where_the_coder_stopped_and_another_begins_anew(
    sheet: Callable[..., Any],
) -> None:
    tab = sheet()
    tab.keyboard.type("ra")
    tab.reload()
    expect(tab.locator("#count")).to_have_text(f"2 of 12 labelled; answer 3 · {ANA}")
    tab.click("#who")
    begin(tab, "made-up-ben")
    expect(tab.locator("#count")).to_have_text("0 of 12 labelled; answer 1 · made-up-ben")
    tab.keyboard.type("u")
    tab.click("#who")
    begin(tab, ANA)
    expect(tab.locator("#count")).to_have_text(f"2 of 12 labelled; answer 3 · {ANA}")


@pytest.mark.browser
def test_each_coder_reads_in_the_order_of_the_csv(sheet: Callable[..., Any]) -> None:
    for coder in (ANA, "made-up-ben"):
        tab, seen = sheet(coder), []
        for _ in ROWS:
            seen.append(tab.locator("#answer").inner_text())
            tab.keyboard.press("ArrowRight")
        long = [ROWS[row].answer.strip() for row in order(coder) if len(ROWS[row].answer) > 80]
        assert [text.strip() for text in seen if text.startswith("Answer number")] == [
            text for text in long if text.startswith("Answer number")
        ]


def saved(tab: Any, button: str, to: Path) -> Path:
    with tab.expect_download() as download:
        tab.click(button)
    path = to / download.value.suggested_filename
    download.value.save_as(path)
    return path


@pytest.mark.browser
def test_what_is_downloaded_is_read_back_with_every_label_and_note(
    sheet: Callable[..., Any], tmp_path: Path
) -> None:
    tab = sheet()
    tab.keyboard.type("rau")
    tab.keyboard.press("n")
    tab.keyboard.type("=cmd")
    want = dict(zip(order(ANA), ("refused", "answered", "undetermined"), strict=False))
    for button in ("#csv", "#jsonl"):
        path = saved(tab, button, tmp_path)
        found = read_marks(path, ROWS)
        assert (found.coder, found.study, found.labels) == (ANA, STUDY, want)
        assert found.notes == {order(ANA)[3]: "=cmd"}
    assert '"\'=1+1"' in (tmp_path / f"{ANA}.csv").read_text("utf-8-sig")


@pytest.mark.browser
def test_a_downloaded_file_goes_on_elsewhere_and_a_foreign_one_is_refused(
    sheet: Callable[..., Any], tmp_path: Path
) -> None:
    first = sheet()
    first.keyboard.type("ra")
    path = saved(first, "#jsonl", tmp_path)
    tab = sheet()
    tab.keyboard.type("u")
    tab.set_input_files("#file", path)
    expect(tab.locator("#said")).to_contain_text("1 labels taken; 1 that you set here")
    expect(tab.locator("#count")).to_contain_text("2 of 12 labelled")
    line = json.loads(path.read_text().splitlines()[0])
    for change, said in (
        ({"study": "ffff"}, "of another sheet"),
        ({"label": "maybe"}, "of another sheet"),
        ({"coder": "made-up-ben"}, "of another coder"),
    ):
        path.write_text(json.dumps(line | change) + "\n")
        tab.set_input_files("#file", path)
        expect(tab.locator("#trouble")).to_contain_text(said)
    expect(tab.locator("#count")).to_contain_text("2 of 12 labelled")


@pytest.mark.browser
def test_a_browser_that_keeps_nothing_is_named_and_the_download_still_works(
    sheet: Callable[..., Any], tmp_path: Path
) -> None:
    refuse = "Storage.prototype.setItem = () => { throw new DOMException('', 'QuotaExceeded'); }"
    tab = sheet(before=refuse)
    tab.keyboard.type("r")
    expect(tab.locator("#trouble")).to_contain_text("keeps nothing for this page")
    assert len(read_marks(saved(tab, "#jsonl", tmp_path), ROWS).labels) == 1


@pytest.mark.browser
def test_a_browser_that_keeps_nothing_asks_before_another_coder_begins(
    sheet: Callable[..., Any], tmp_path: Path
) -> None:
    tab = sheet(before="Storage.prototype.setItem = () => { throw new DOMException('', 'Quota'); }")
    asked, yes = [], []

    def answer(dialog: Any) -> None:
        asked.append(dialog.message)
        (dialog.accept if yes else dialog.dismiss)()

    tab.on("dialog", answer)
    tab.keyboard.type("ra")
    tab.click("#who")
    expect(tab.locator("#count")).to_contain_text("2 of 12 labelled")
    saved(tab, "#jsonl", tmp_path)
    tab.click("#who")
    expect(tab.locator("#start")).to_be_visible()
    assert len(asked) == 1 and "labels that were not downloaded are lost" in asked[0]
    begin(tab, ANA)
    tab.keyboard.type("r")
    yes.append(True)
    tab.click("#who")
    expect(tab.locator("#start")).to_be_visible()
    assert len(asked) == 2


@pytest.mark.browser
def test_the_page_works_from_a_file_without_a_server(browser: Any, site: Path) -> None:
    context = browser.new_context(locale="zh-CN")
    tab = context.new_page()
    asked: list[str] = []
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto((site / "sheet.html").as_uri())
    begin(tab, ANA)
    tab.keyboard.type("r")
    tab.reload()
    expect(tab.locator("#count")).to_contain_text("已标 1 / 12")
    assert len(asked) == 2 and all(url.startswith("file:") for url in asked)
    tab.goto((site / "adjudicate.html").as_uri())
    expect(tab.locator("#start")).to_be_visible()
    context.close()


@pytest.mark.browser
def test_the_language_of_the_page_changes_and_not_that_of_the_answer(
    sheet: Callable[..., Any],
) -> None:
    tab = sheet()
    tab.click("#language")
    assert tab.evaluate("document.documentElement.lang") == "zh-CN"
    expect(tab.locator("button[value=refused]")).to_contain_text("拒绝")
    assert tab.locator("#answer").get_attribute("lang") == "en"
    tab.locator("summary").click()
    expect(tab.locator("#manual-zh")).to_be_visible()
    expect(tab.locator("#manual-en")).to_be_hidden()


@pytest.fixture
def unfolded(sheet: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    def open_unfolded(**options: Any) -> Any:
        tab = sheet(**options)
        tab.keyboard.type("r0")
        tab.evaluate("document.querySelector('details').open = true")
        return tab

    yield open_unfolded


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("locale", ["en-GB", "zh-CN"])
@pytest.mark.parametrize("page", SCHEMES)
def test_axe_finds_nothing_serious_and_a_phone_does_not_overflow(
    unfolded: Callable[..., Any], page: str, scheme: str, locale: str
) -> None:
    tab = unfolded(page=f"{page}.html", scheme=scheme, locale=locale, width=375)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 375
    found = Axe().run(tab, options={"resultTypes": ["violations"]}).response["violations"]
    assert [(it["id"], it["nodes"][0]["html"]) for it in found] == []
