"""The method's own pages: what is claimed, what we find, and how a rival is tried."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from report.conftest import keep

from drift.report import claims, method
from drift.report.execute import Job, execute

ROOT = Path(__file__).resolve().parents[2]
SEED = 20261129


@pytest.fixture(scope="module")
def reproduced() -> pd.DataFrame:
    return claims.claims(lifetimes=400, seed=SEED)


@pytest.fixture(scope="module")
def published() -> pd.DataFrame:
    return claims.published("mixture, restart", method_version=3, burn_in=20, seed=SEED)


def verdict(found: pd.DataFrame, words: str) -> list[str]:
    return found[found.says.str.contains(words, regex=False)].verdict.tolist()


def test_every_claim_has_a_verdict_and_every_assumption_its_words(
    reproduced: pd.DataFrame,
) -> None:
    assert set(reproduced.verdict) == set(claims.VERDICTS)
    for row in reproduced.itertuples():
        assert (
            bool(row.assumption) == (row.verdict == claims.VERDICTS[1]) or row.verdict[:4] == "does"
        )
        assert row.note or row.verdict[:4] != "does", row.says


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("with 2 % bad runs", "does not hold"),
        ("two backends that answer whole runs", "does not hold"),
        ("The mid-p test is exact", "does not hold"),
        ("when one family has flipped the other way", "does not hold"),
        ("e-BH over four models at 5 %", "does not hold"),
        ("undetectable churn is p0 itself", "does not hold"),
        ("with the 41 arms of the bank", "does not hold"),
        ("The median delay of that catch", "does not hold"),
        ("34 of 41 families at once", "does not hold"),
        ("asks this many arms", "does not hold"),
        ("Five pairs put the bound", "holds under an assumption"),
        ("reaches watch", "holds under an assumption"),
        ("flips independent (1.5 %", "holds under an assumption"),
        ("No refusal among 34 families", "holds"),
        ("Requests a day", "holds"),
        ("One flip gives p", "holds"),
    ],
)
def test_the_published_design_is_right_and_wrong_where_it_was_measured_to_be(
    reproduced: pd.DataFrame, words: str, expected: str
) -> None:
    assert set(verdict(reproduced, words)) == {expected}


def test_the_mixture_stands_deep_in_debt_on_the_published_counts(published: pd.DataFrame) -> None:
    mixture = published[published.series == "mixture"].groupby("model", sort=False)
    assert [f"{y:.1e}" for y in mixture.y.last()] == ["6.0e-05", "1.7e-06", "3.7e-05", "1.5e-05"]
    assert mixture.p0.last()["mistralai/mistral-nemo"] == pytest.approx(0.115, abs=5e-4)
    assert "73 of 790" in claims.published_table(published).data


def test_counts_of_two_method_versions_are_never_pooled(published: pd.DataFrame) -> None:
    assert set(published.method_version) == {3}
    assert (published.groupby(["model", "series"]).size() == 41).all()


def test_a_model_that_is_outside_a_claim_and_above_its_bound_is_named_in_words() -> None:
    found = method.ville(
        "home, mixture",
        member="bad runs 2 %, 0.35",
        p=0.0,
        n="14",
        horizon=600,
        lifetimes=150,
        burn_in=0,
        seed=SEED,
    )
    home, mixture = method.crossings_summary(found).data.split("<b>mixture</b>")
    assert "within its bound in all 2 cells" in home
    assert "Above it where nothing is claimed: bad runs 2 %, 0.35 (n = 14)" in mixture
    drawn = method.crossings_plot(found, "See.").data
    assert "mixture, bound 7.5" in drawn
    assert "1 of 1 models above it" in drawn
    size = {"horizon": 100, "lifetimes": 50, "burn_in": 0, "p": 0.0, "seed": SEED}
    quiet = method.ville("mixture", member="visits 0.001, 0.1", n="14", **size)
    assert "0.0 to 7.1), not claimed<" in method.crossings_plot(quiet, "See.").data
    assert re.search(r'drift-warning">✗ [\d.]+.% \(.*?\), above 7.5.%, not claimed', drawn)


def test_a_claim_that_fails_where_it_is_made_is_a_failure_in_words() -> None:
    size = {"horizon": 600, "lifetimes": 150, "burn_in": 0, "p": 0.0, "seed": SEED}
    found = method.ville("point null", member="iid flips 1.5 %", n="14", **size)
    assert "✗ beyond its bound: iid flips 1.5 % (n = 14)" in method.crossings_summary(found).data


def test_designs_known_to_fail_do_fail() -> None:
    shown = method.controls_table(n="14, 41", lifetimes=200, seed=SEED).data
    assert shown.count("✓ fails, as it must") == 4
    blind = method.controls_table(n="1", lifetimes=50, seed=SEED).data
    assert "the check is too weak" in blind


def test_the_exact_values_of_the_point_null_are_those_stated() -> None:
    cells = re.findall(r"<td>([\d.]+ %)</td>", method.point_null_table().data)
    assert cells == [value for value in method.POINT_NULL.values() for _ in range(2)]


def test_a_delay_beyond_what_was_followed_is_written_out_and_not_drawn() -> None:
    frame = method.delays(
        "mixture", n="14", quiet="0, 500", after="0.1", lifetimes=60, seed=SEED, followed=100
    )
    assert frame["median"].isna().tolist() == [False, True]
    shown = method.delays_plot(frame, "quiet", "See.").data
    assert "over 100 refreshes" in shown


def test_the_guide_for_a_rival_works_as_it_is_printed(
    fresh_project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide = (ROOT / "docs" / "rival-process.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", guide, re.S)
    (fresh_project / "rival.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(fresh_project)
    rival = "rival:records"
    found = method.ville(
        rival, member="", p=0.02, n="14", horizon=300, lifetimes=200, burn_in=0, seed=SEED
    )
    assert len(found) == 2 * 22
    covered = found[found.member.str.contains("iid|knife|bad|symmetric")]
    assert set(covered.verdict) == {"within the bound"}
    evidence = claims.published(rival, method_version=3, burn_in=20, seed=SEED)
    assert len(evidence) == 4 * 41
    assert np.isfinite(evidence.y).all()


def test_a_methodologist_changes_the_parameter_cell_and_runs_a_notebook_again(
    fresh_project: Path,
) -> None:
    keep(fresh_project, "ville")
    guide = (ROOT / "docs" / "rival-process.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", guide, re.S)
    (fresh_project / "rival.py").write_text(code, encoding="utf-8")
    changed = {"process": "home, rival:records", "member": "weekday", "n": "20", "seed": 5}
    notebook = fresh_project / "notebooks" / "ville.ipynb"
    page = execute([Job("method/ville", notebook, changed)], root=fresh_project)[
        "method/ville.ipynb"
    ]
    assert "rival:records" in page
    assert "n = 20, threshold 20" in page
