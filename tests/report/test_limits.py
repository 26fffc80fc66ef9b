"""Each limit stands on its page, with numbers that are computed, and no source is invented."""

from __future__ import annotations

import html as html_module
import json
import re
import tomllib
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import drift.stats
from drift.bank import load_bank
from drift.report import statements
from drift.stats.intervals import wilson_interval
from drift.stats.simulation import crossings

ROOT = Path(__file__).resolve().parents[2]
STATED = tomllib.loads((ROOT / "config/statements.toml").read_text(encoding="utf-8"))
#: What each limit that must be named is about, in a word of its title.
NAMED = {
    "not-a-sample": "modest bank, and not a sample",
    "wide-intervals": "wide intervals",
    "purpose": "third wording",
    "binary": "binary",
    "serving-path": "serving path",
    "public-bank": "trained on",
    "anchors": "labelled by their author",
    "quote-guard": "quotation is finite",
    "bursty-churn": "bursts",
    "truncation": "cut short",
    "chinese": "no second reader",
    "small-models": "small models",
    "author-of-the-chain": "does not bind its author",
    "one-change": "changes for good",
    "simulated-bound": "simulated",
}


def visible(text: str) -> str:
    return " ".join(html_module.unescape(re.sub(r"<[^>]+>", " ", text)).split())


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """The pages `limits` and `method`, executed: their prose, and the HTML of their cells."""
    found = {}
    for page in ("limits", "method"):
        notebook = nbformat.read(ROOT / f"notebooks/{page}.ipynb", as_version=4)  # type: ignore[no-untyped-call]
        there = {"metadata": {"path": str(ROOT / "notebooks")}}
        NotebookClient(notebook, kernel_name="python3", resources=there).execute()
        outputs = (out for cell in notebook.cells for out in cell.get("outputs", []))
        prose = (cell.source for cell in notebook.cells if cell.cell_type == "markdown")
        found[page] = "\n".join([*prose, *(out["data"]["text/html"] for out in outputs)])
    return found


@pytest.mark.parametrize("limit", NAMED)
def test_each_named_limit_stands_on_its_page_with_its_consequence(
    pages: dict[str, str], limit: str
) -> None:
    (section,) = re.findall(
        rf'<section class="drift-limit" id="{limit}">.*?</section>', pages["limits"], re.S
    )
    title = visible(re.findall(r"<h3>(.*?)</h3>", section)[0])
    assert NAMED[limit] in title
    said = [visible(part) for part in re.findall(r"<p>(.*?)</p>", section, re.S)]
    assert len(said) == 3
    assert said[1].startswith("What follows. ") and said[2].startswith("Against it. ")
    assert all(len(part) > 30 for part in said)


def test_no_limit_is_stated_that_is_not_on_the_page_or_twice(pages: dict[str, str]) -> None:
    ids = [entry["id"] for entry in STATED["limit"]]
    assert len(ids) == len(set(ids))
    assert set(NAMED) <= set(ids)
    assert re.findall(r'class="drift-limit" id="([^"]+)"', pages["limits"]) == ids


def test_the_interval_of_no_refusal_is_that_of_the_bank_and_is_computed(
    pages: dict[str, str],
) -> None:
    bank = load_bank(ROOT / "config/probe_bank.json")
    n = sum(not family.control for family in bank.families)
    high = wilson_interval(0, n).high
    assert high == pytest.approx(0.101514554153324, abs=1e-15)
    text = visible(pages["limits"])
    assert f"With 0 refusals of {n} families the Wilson interval at 95 % is [0, 10.2 %]" in text
    assert f"0.0 % (0 of {n}; 95 % interval 0.0 to 10.2 %)" in text


def test_a_smaller_bank_has_a_wider_interval_on_the_page(
    fresh_project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fresh_project / "config/probe_bank.json"
    bank = json.loads(path.read_bytes())
    bank["families"] = [item for item in bank["families"] if item["topic"] in ("law", "privacy")]
    sensitive = sum(not item["control"] for item in bank["families"])
    bank["counts"] = {
        "families": len(bank["families"]),
        "sensitive": sensitive,
        "controls": len(bank["families"]) - sensitive,
        "chinese": sum(bool(item["zh"]) for item in bank["families"]),
    }
    path.write_text(json.dumps(bank, ensure_ascii=False), encoding="utf-8")
    monkeypatch.setenv("REFUSAL_DRIFT_ROOT", str(fresh_project))
    said = visible(statements.limits().text)
    assert f"holds {len(bank['families'])} families, {sensitive} of them sensitive" in said
    assert f"With 0 refusals of {sensitive} families" in said
    assert f"[0, {100 * (wilson_interval(0, sensitive).high or 0):.1f} %]" in said


@pytest.mark.parametrize("entry", STATED["limit"], ids=lambda entry: entry["id"])
def test_no_count_of_the_bank_or_the_judge_is_typed_into_a_limit(entry: dict[str, str]) -> None:
    typed = re.findall(r"\d+", " ".join(entry.values()))
    # 95 % and 5 % are levels; 1 % is the bound of the alarm; 0 and en-1 to en-3 are names.
    assert set(typed) <= {"0", "1", "2", "3", "5", "95"}


# The page `method`.


@pytest.mark.parametrize("entry", STATED["source"], ids=lambda entry: entry["cites"])
def test_every_source_is_one_that_the_code_cites_for_a_function_of_that_name(
    entry: dict[str, str],
) -> None:
    folder = Path(drift.stats.__file__).parent
    cited = " ".join(
        " ".join(path.read_text(encoding="utf-8").split()) for path in folder.glob("*.py")
    )
    assert entry["cites"] in cited
    known = set(vars(drift.stats)) | {"wilson_interval", crossings.__name__}
    assert entry["function"] in known


def test_the_works_are_told_with_what_they_lack_and_our_own_lacks_stand_beside_them(
    pages: dict[str, str],
) -> None:
    works = STATED["work"]
    assert works[-1]["work"] == "This project"
    assert len(works[-1]["does_not"]) >= max(len(one["does_not"]) for one in works[:-1])
    text = visible(pages["method"])
    for one in works:
        assert one["work"] in text and one["does_not"] in text


def test_nothing_is_said_to_be_first_new_or_better(pages: dict[str, str]) -> None:
    for text in (
        *pages.values(),
        (ROOT / "README.md").read_text(),
        (ROOT / "PROTOCOL.md").read_text(),
    ):
        boast = r"\b(the first to|novel|unprecedented|state.of.the.art|unique|best|world)\b"
        assert not re.search(boast, text, re.I)


def test_the_claims_that_are_not_made_stand_on_the_page_with_the_reason(
    pages: dict[str, str],
) -> None:
    text = visible(pages["method"])
    for one in STATED["not_claimed"]:
        assert one["not_claimed"] in text and one["why"] in text


def test_the_worked_rate_is_counted_as_a_reading_counts_it() -> None:
    shown = visible(statements.worked_rate(3, 12, 4, 5, 2).text)
    low, high = wilson_interval(3, 12).low or 0, wilson_interval(3, 12).high or 0
    assert f"(3 of 12; 95 % interval {100 * low:.1f} to {100 * high:.1f} %)" in shown
    assert "18.8 % to 43.8 %" in shown  # 3 of 16, and 7 of 16
    assert "mid-p 0.289" in shown  # 37/128
    assert "Fewest flips a look can see 9" in shown  # two went the other way


def test_the_worked_alarm_stays_quiet_without_a_departure_and_keeps_a_state_it_entered() -> None:
    quiet = visible(statements.worked_alarm("34, 4, 2", "0, 0, 0, 0").text)
    assert "watch" not in quiet and "alarm" not in quiet
    loud = statements.worked_alarm("34, 4, 2", "9, 9, 9, 9, 9, 9, 0, 0, 0").text
    states = re.findall(r"<td>(quiet|watch|alarm)</td></tr>", loud)
    assert states[0] == "quiet" and states[-1] == "alarm"
    assert states == sorted(states, key=["quiet", "watch", "alarm"].index)


def test_the_headings_of_a_table_are_parts_of_what_is_stated() -> None:
    with pytest.raises(KeyError):
        statements.stated("work", "related-work", works="Work")
