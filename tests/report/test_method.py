"""The method's own pages: what is claimed, what we find, and how a rival is tried."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from report.conftest import keep

from drift.report import claims, method
from drift.report.execute import execute
from drift.report.job import Job, read_notebook
from drift.stats.zoo import ZOO

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
            bool(row.assumption) == (row.verdict == "holds under an assumption")
            or row.verdict[:4] == "does"
        )
        assert row.note or row.verdict[:5] in ("holds", "not s"), row.says


def test_what_the_document_does_not_state_is_neither_claimed_nor_called_wrong(
    reproduced: pd.DataFrame,
) -> None:
    ours = reproduced[reproduced.verdict == "not stated: our extension"]
    assert (ours.claimed == "").all()
    shown = claims.claims_table(reproduced).text
    assert "✗ not" not in shown
    assert "✓ not" not in shown
    assert shown.count("<td></td>") == len(ours)
    assert "✓ holds under an assumption (arithmetic)" in shown


def test_a_simulated_share_has_its_interval_and_its_lifetimes_beside_it(
    reproduced: pd.DataFrame,
) -> None:
    simulated = reproduced[reproduced.compute.isin(claims.SIMULATED)]
    assert simulated.detail.str.fullmatch(r"([\d.]+.% to [\d.]+.%; )?(400|39\d) lifetimes").all()
    shares = simulated.compute != "delay"
    assert (simulated.detail.str.contains(" to ") == shares).all()


def test_the_exact_interval_is_a_tenth_wider_at_all_but_the_outermost_counts() -> None:
    excess = [claims.clopper_pearson_excess(34, at) for at in (0, 2 / 34, 0.5, 1)]
    assert excess == pytest.approx([0.0128, 0.0596, 0.1033, 0.1040], abs=1e-4)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("with 2 % bad runs", "does not hold"),
        ("two backends that answer whole runs", "does not hold"),
        ("The size of the exact mid-p test", "not stated: our extension"),
        ("when one family has flipped the other way", "not stated: our extension"),
        ("e-BH over four models at 5 %", "not stated: our extension"),
        ("undetectable churn is p0 itself", "does not hold"),
        ("with the 41 arms of the bank", "not stated: our extension"),
        ("The median delay of that catch", "holds under an assumption"),
        ("on day one, 12 arms", "does not hold"),
        ("on day one, 41 arms", "not stated: our extension"),
        ("34 of 41 families at once", "not stated: our extension"),
        ("within 30 refreshes", "not stated: our extension"),
        ("Clopper-Pearson is wastefully wide", "holds"),
        ("at the worst count", "holds"),
        ("about $100 a year", "not checkable here"),
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
    assert "73 of 790" in claims.published_table(published).text


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
    home, mixture = method.crossings_summary(found).text.split("<b>mixture</b>")
    assert "within its bound in all 2 cells" in home
    zoo = method.zoo_table().text
    assert "bad runs 2 %, 0.35 (share = 0.02, p = 0.35)" in zoo
    assert "weekday (no parameter)" in zoo
    assert "Above it where nothing is claimed: bad runs 2 %, 0.35 (n = 14)" in mixture
    drawn = method.crossings_plot(found, "See.").text
    assert "mixture, bound 7.5" in drawn
    assert "1 of 1 models above it" in drawn
    size = {"horizon": 100, "lifetimes": 50, "burn_in": 0, "p": 0.0, "seed": SEED}
    quiet = method.ville("mixture", member="visits 0.001, 0.1", n="14", **size)
    assert "0.0 to 7.1), not claimed<" in method.crossings_plot(quiet, "See.").text
    assert re.search(r'drift-warning">✗ [\d.]+.% \(.*?\), above 7.5.%, not claimed', drawn)


def test_a_share_entered_is_shown_where_it_is_not_the_share_crossed() -> None:
    size = {"horizon": 600, "lifetimes": 300, "burn_in": 0, "p": 0.0, "seed": SEED}
    found = method.ville("home", member="iid flips 0.2 %", n=14, **size)
    shown = method.crossings_plot(found, "See.").text
    differ = found.entered != found.crossed
    assert differ.any()
    assert shown.count(", entered ") == differ.sum()


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("process", " , ", "at least one name"),
        ("n", "abc", "from 1 to 64"),
        ("n", "14.5", "from 1 to 64"),
        ("n", "", "from 1 to 64"),
        ("n", 65, "from 1 to 64"),
        ("p", 1.0, "a share below 1"),
        ("p", float("nan"), "a share below 1"),
        ("horizon", 1, "2 or more"),
        ("lifetimes", 0, "1 or more"),
        ("burn_in", -1, "0 or more"),
    ],
)
def test_a_parameter_out_of_range_is_named_with_what_is_expected(
    name: str, value: object, expected: str
) -> None:
    given = {"process": "home", "member": "", "p": 0.0, "n": "14", "horizon": 100}
    given |= {"burn_in": 0, "lifetimes": 10, "seed": SEED}
    found = f"^{name}: got {re.escape(repr(value))}, expected .*{expected}.*; set {name} so"
    with pytest.raises(ValueError, match=found):
        method.ville(**given | {name: value})


def test_the_members_that_an_error_lists_can_be_given_as_they_stand() -> None:
    size: dict[str, Any] = {"p": 0.0, "n": 14, "horizon": 2, "burn_in": 0, "lifetimes": 1}
    with pytest.raises(ValueError, match=r"^member: got 'bad runs'") as refused:
        method.ville("home", member="weekday; bad runs", seed=SEED, **size)
    listed = str(refused.value).partition("expected one of ")[2]
    found = method.ville("home", member=listed, seed=SEED, **size)
    assert found.member.drop_duplicates().tolist() == [*ZOO]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("after", "0.1, 1.5", "a share between 0 and 1"),
        ("before", 0.0, "a share between 0 and 1"),
        ("threshold", 0.5, "a number above 1"),
        ("quiet", "0, -5", "0 or more"),
        ("quiet", "0, 1500", "fewer refreshes than the horizon, 1500"),
    ],
)
def test_a_change_that_cannot_be_simulated_is_refused(
    name: str, value: object, expected: str
) -> None:
    given = {"process": "mixture", "n": "14", "quiet": "0", "after": "0.1", "lifetimes": 10}
    with pytest.raises(ValueError, match=f"^{name}: got .*, expected {expected}"):
        method.delays(**given | {name: value})


def test_a_method_version_that_was_not_published_is_refused_with_those_that_were() -> None:
    with pytest.raises(ValueError, match=r"^method_version: got 9, expected one of .*3"):
        claims.published("mixture", method_version=9, burn_in=20, seed=SEED)


def test_a_claim_that_fails_where_it_is_made_is_a_failure_in_words() -> None:
    size = {"horizon": 600, "lifetimes": 150, "burn_in": 0, "p": 0.0, "seed": SEED}
    found = method.ville("point null", member="iid flips 1.5 %", n="14", **size)
    assert "✗ beyond its bound: iid flips 1.5 % (n = 14)" in method.crossings_summary(found).text


def test_designs_known_to_fail_do_fail() -> None:
    shown = method.controls_table(n="14, 41", lifetimes=200, seed=SEED).text
    assert shown.count("✓ fails, as it must") == 4
    blind = method.controls_table(n="1", lifetimes=50, seed=SEED).text
    assert "the check is too weak" in blind


def test_the_exact_values_of_the_point_null_are_those_stated() -> None:
    cells = re.findall(r"<td>([\d.]+ %)</td>", method.point_null_table().text)
    assert cells == [value for value in method.POINT_NULL.values() for _ in range(2)]


def test_a_delay_beyond_what_was_followed_is_written_out_and_not_drawn() -> None:
    frame = method.delays(
        "mixture", n="14", quiet="0, 500", after="0.1", lifetimes=60, seed=SEED, followed=100
    )
    assert frame["median"].isna().tolist() == [False, True]
    shown = method.delays_plot(frame, "quiet", "See.").text
    assert "over 100 refreshes" in shown
    setting = "Threshold 20, 60 lifetimes a point, churn 1.5.% before the change and 10.0.% after"
    assert re.search(setting, shown)


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
    notebook = read_notebook(fresh_project / "notebooks" / "ville.ipynb")
    jobs = [Job("method/ville", notebook, changed)]
    page = execute(jobs, root=fresh_project)["method/ville.ipynb"]
    assert "rival:records" in page
    assert "n = 20, threshold 20" in page
