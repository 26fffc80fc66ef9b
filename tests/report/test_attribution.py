"""The page on what the guard controls, and what it does not."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
from report.conftest import ROOT, keep

from drift.records import pins
from drift.report import attribution
from drift.report.execute import execute
from drift.report.job import Job, read_notebook
from drift.stats.floor import ONE_WAY

GRID: dict[str, str] = {
    "sizes": "41, 250",
    "discordances": "0, 0.18",
    "shifts": "0, 0.05",
    "sensitivities": "1.5, 1, 0.5, 0",
    "rates": "0.5, 0.04",
}
SIZE: dict[str, Any] = {"alpha": 0.05, "draws": 500, "seed": 1}
ONE: dict[str, Any] = {"items": 250, "flips": 0.05}


def words(shown: Any) -> list[list[str]]:
    """Return the cells of each row of a table."""
    rows = re.findall(r"<tr>(.*?)</tr>", shown.text, re.S)
    cells = [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.S) for row in rows]
    return [[re.sub("<[^>]+>", "", cell).replace("\xa0", " ") for cell in row] for row in cells]


def tables(shown: Any) -> list[list[list[str]]]:
    """Return the rows of each table; the first is its head."""
    found: list[list[list[str]]] = []
    for row in words(shown):
        if row[0] in ("Items", "Floor from"):
            found.append([])
        found[-1].append(row)
    return found


def test_an_error_is_of_an_instrument_that_moved_the_reference_as_far_or_of_nothing() -> None:
    found = attribution.errors(**GRID, **SIZE)
    assert set(found.floor) == {1.0}
    assert set(found.sensitivity) == {1.0, 1.5}
    still = found[found["shift"] == 0]
    assert set(still.sensitivity) == {1.0}
    # With 18 % of the items flipping, a reference that refuses 4 % cannot be.
    assert set(found[found.reference_rate == 0.04].reference_discordance) == {0.0}
    assert len(found) == 2 * 2 * (2 + 1) * (1 + 2)


def test_the_highest_error_of_each_size_is_drawn_anew_and_held_against_alpha() -> None:
    found = attribution.errors(**GRID, **SIZE)
    shown = attribution.errors_table(found, alpha=0.05, draws=40_000, seed=1)
    _, *rows = words(shown)
    assert [row[0] for row in rows] == ["41", "250"]
    assert [row[2] for row in rows] == ["✓ at most 5.0 % here"] * 2
    assert f"highest of {len(found)} settings with 500 draws each" in shown.text
    assert "then 40,000 new draws of it. The mark is for that one setting" in shown.text
    data = shown.text.data["attribution-errors"]
    assert data.draws.value_counts().to_dict() == {500: len(found), 40_000: 2}


def test_an_error_above_alpha_or_not_told_from_it_is_said_in_words() -> None:
    grid = GRID | {"sizes": "250", "sensitivities": "1", "rates": "0.5"}
    found = attribution.errors(**grid, **SIZE)
    few = attribution.errors_table(found, alpha=0.05, draws=200, seed=1)
    assert words(few)[1][2] == "not told from 5.0 % by so many draws"
    blind = found[found["shift"] > 0].assign(sensitivity=0.0)
    above = attribution.errors_table(blind, alpha=0.05, draws=200, seed=1)
    assert words(above)[1][2] == "✗ above 5.0 %"
    assert "drift-warning" in above.text


def test_the_figure_shows_what_the_guard_cannot_do() -> None:
    lists = {"shifts": "0, 0.05", "sensitivities": "1, 0"}
    shown = attribution.sensitivity_plot("See.", **lists, **ONE, **SIZE)
    alt = re.search(r'aria-label="([^"]*)"', shown.text)
    assert alt
    shares = re.findall(r"([\d.]+).% at 5", alt[1])
    blind = float(shares[1])
    assert float(shares[0]) < 5 < 30 < blind
    assert "250 items, 5.0" in shown.text and "floor 2.8" in shown.text
    data = shown.text.data["attribution-by-sensitivity"]
    assert data.share_attributable.iloc[-1] == pytest.approx(blind / 100, abs=5e-4)


def test_power_grows_with_the_corpus_and_falls_with_noise() -> None:
    lists = {"sizes": "41, 250, 1000", "discordances": "0, 0.05, 0.18"}
    shown = attribution.power_plot("See.", drop=0.05, **lists, **SIZE)
    data = shown.text.data["attribution-power"]
    for _, rows in data.groupby("target_discordance"):
        assert rows.share_attributable.is_monotonic_increasing
    largest = data[data["items"] == 1000].share_attributable
    assert largest.is_monotonic_decreasing
    assert largest.iloc[0] > 0.99
    assert set(data.sensitivity) == {0}


def test_each_case_has_the_verdict_that_is_due_and_two_cannot_be_parted() -> None:
    shown = attribution.verdicts_table(drop=0.05, **{**ONE, "items": 500}, **SIZE)
    header, *rows = words(shown)
    assert header[1:] == ["Attributable", "Drifted", "No room", "No change"]
    most = [header[1 + max(range(4), key=lambda i: float(row[1 + i][:-2]))] for row in rows]
    assert most == ["No change", "Attributable", "Drifted", "Drifted", "Attributable", "No room"]
    assert rows[1][1:] == rows[4][1:]


NOISE = {"sizes": "41, 120", "discordances": "0, 0.02, 0.18"}


def points(cell: str) -> float:
    """Return the share that a cell begins with."""
    return float(re.findall(r"[\d.]+", cell)[0])


def test_clusters_break_the_level_and_the_floor_and_are_marked() -> None:
    shown = attribution.clusters_table(clusters="1, 2, 5", **NOISE, **SIZE)
    error, void = (rows[1:] for rows in tables(shown))
    assert words(shown)[0] == ["Items", "Flips", "one by one", "2 at once", "5 at once"]
    assert [row[:2] for row in error] == [
        [n, d] for n in ("41", "120") for d in ("2.0 %", "18.0 %")
    ]
    for row in error:
        assert points(row[2]) < 5
    assert [cell[:1] for cell in error[3][2:]] == ["3", "✗", "✗"]
    assert points(error[3][3]) < points(error[3][4]) and points(void[3][4]) > 20
    data = shown.text.data["attribution-clusters"]
    assert len(data) == 2 * 2 * 2 * 3
    assert set(data.cluster) == {1, 2, 5}


def test_a_floor_from_few_pairs_voids_often_and_lets_no_more_through() -> None:
    one = (120, 0.05, 0.1)
    shown = attribution.floors_table(one, pairs="1, 20", **NOISE, **SIZE | {"draws": 2000})
    void, laid = tables(shown)
    assert void[0][2:] == ["1 pair", "20 pairs", "known"]
    assert points(void[1][2]) > 15 > 5 > points(void[1][3]) > points(void[1][4])
    assert laid[0] == ["Floor from", "Nothing changed", "Both fell", "The target fell"]
    assert [row[0] for row in laid[1:]] == ["1 pair", "20 pairs", "known"]
    for row in laid[1:]:
        assert max(points(row[1]), points(row[2])) < 5
    assert points(laid[1][3]) < points(laid[2][3])
    assert "120 items of which 5.0\xa0% flip; a fall is of 10 points" in shown.text


def test_labels_lost_by_kind_break_the_level_and_too_many_are_not_estimable() -> None:
    lists = {"discordances": "0, 0.02, 0.18", "lost": "0, 0.05, 0.15, 0.5"}
    shown = attribution.losses_table(items=500, drop=0.05, **lists, **SIZE | {"draws": 2000})
    rows = words(shown)[1:]
    assert [row[:3] for row in rows[:4]] == [
        ["2.0 %", lost, turn]
        for lost, turn in (
            ("0.0 %", "0.0 %"),
            ("5.0 %", "1.3 %"),
            ("15.0 %", "4.0 %"),
            ("50.0 %", "15.9 %"),
        )
    ]
    assert rows[7][3] == rows[7][4] == "not estimable"
    assert rows[6][4].startswith("✗")
    assert points(rows[5][3]) < 7 < points(rows[6][4])
    assert "not estimable" in rows[7][5] and points(rows[7][5]) == 0


def test_the_page_takes_the_registered_usable_share_and_leaves_out_what_a_record_does() -> None:
    assert pins.ONE_WAY is ONE_WAY
    registered = tomllib.loads((ROOT / "config" / "alarm.toml").read_text(encoding="utf-8"))
    assert float(registered["usable_share"]) == attribution.USABLE


def test_two_points_are_right_for_under_six_per_cent_of_flips() -> None:
    rows = words(attribution.stated_table("0.05"))[1:]
    assert [row[0] for row in rows] == ["5.00 %", "5.74 %", "18.00 %"]
    assert [row[2] for row in rows] == ["2.0", "2.0", "3.8"]
    assert [row[3] for row in rows] == ["3.6 %", "5.0 %", "26.8 %"]
    assert rows[2][1] == "1.90"
    assert rows[2][4] == "two independent draws, every item refused at 0.9"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("sizes", "20.5", "whole numbers, 1 or more"),
        ("discordances", "0, 1.2", "shares from 0 to 1"),
        ("shifts", "a", "shares from 0 to 1"),
        ("rates", "", "shares from 0 to 1"),
        ("sensitivities", "-1", "numbers, 0 or more"),
        ("clusters", "0", "whole numbers, 1 or more"),
        ("pairs", "1.5", "whole numbers, 1 or more"),
        ("lost", "2", "shares from 0 to 1"),
    ],
)
def test_a_parameter_out_of_range_is_named_with_what_is_expected(
    name: str, value: str, expected: str
) -> None:
    with pytest.raises(ValueError, match=f"^{name}: got '{value}', expected {expected}, commas"):
        attribution.listed(**{name: value})


def test_a_methodologist_changes_the_parameters_and_gets_the_same_page_twice(
    fresh_project: Path,
) -> None:
    keep(fresh_project, "attribution")
    changed = {"items": 100, "flips": 0.1, "alpha": 0.01, "seed": 5}
    notebook = read_notebook(fresh_project / "notebooks" / "attribution.ipynb")
    jobs = [Job("method/attribution", notebook, changed)]
    page = execute(jobs, root=fresh_project)["method/attribution.ipynb"]
    assert "100 items, 10.0" in page
    assert "at most 1.0" in page
    shutil.rmtree(fresh_project / ".cache" / "pages")
    assert execute(jobs, root=fresh_project)["method/attribution.ipynb"] == page
