"""The page on what people do after a refusal: synthetic traces marked so, and one's own."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from report.conftest import ROOT, keep

from drift.errors import ConfigurationError
from drift.records.scenario import BY_LENGTH, BY_SHAPE, REFUSALS, SCENARIOS, Scenario, made_up
from drift.records.traces import ACTIONS, kept_bytes
from drift.report import aftermath
from drift.report.execute import execute, inputs
from drift.report.job import Job, read_notebook


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Read traces as if they lay in a project of their own."""

    def read(*rows: Any) -> aftermath.Found:
        folder = tmp_path / "data" / "own"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "traces.jsonl").write_bytes(kept_bytes(rows))
        return aftermath.found("own")

    monkeypatch.setattr(aftermath, "project_root", lambda: tmp_path)
    return read


def data(shown: Any) -> tuple[str, pd.DataFrame]:
    """Return the name and the table of the one download of a piece."""
    ((name, frame),) = shown.text.data.items()
    return name, frame


def pieces(found: aftermath.Found) -> list[Any]:
    """Return every piece that has a download."""
    figures = aftermath.retries_plot(found, "A caption.")
    return [figures, aftermath.differences_table(found), aftermath.actions_table(found)]


def of_scenario(scenario: Scenario) -> aftermath.Found:
    return aftermath.found("synthetic", scenario.file)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda it: it.name)
def test_synthetic_traces_are_marked_in_banner_heading_caption_rows_and_name_of_file(
    scenario: Scenario,
) -> None:
    found, heading = of_scenario(scenario), f"Synthetic traces, 1,100, {scenario.heading}"
    banner = aftermath.banner(found).text
    assert "Synthetic: 1,100 of 1,100 traces are made up" in banner and scenario.note in banner
    for piece in pieces(found):
        assert heading in piece.text
        name, frame = data(piece)
        assert name.startswith(f"synthetic-{scenario.name}-")
        assert set(frame.trace_kind) == {"synthetic"}
        assert set(frame.trace_scenario) == {scenario.name}
    drawn = pieces(found)[0].text
    assert re.search(rf"<figcaption[^>]*>.*?{heading}\. A caption\.", drawn, re.S)
    assert re.search(r'aria-label="synthetic, 1,100 traces', drawn)


def test_the_first_scenario_says_that_its_shares_were_chosen_near_published_ones() -> None:
    said = aftermath.banner(of_scenario(BY_SHAPE)).text
    assert "chosen near the figures that the source document reports" in said
    assert "published figures of others" in said
    assert "published" not in aftermath.banner(of_scenario(BY_LENGTH)).text


def test_the_figure_shows_each_shape_with_its_count_and_limits() -> None:
    found = aftermath.found("synthetic")
    shown = aftermath.retries_plot(found, "")
    assert "138 of 220" in shown.text and "62.7\N{NO-BREAK SPACE}% (56.0 to 69.1)" in shown.text
    _, frame = data(shown)
    assert dict(zip(frame.trace_shape, frame.traces, strict=True)) == {
        shape: many for shape, (many, _) in REFUSALS.items()
    }
    assert (frame.again_low < frame.again).all() and (frame.again < frame.again_high).all()
    assert frame.again_stated.tolist() == [*BY_SHAPE.shares.values()]


def test_differences_stand_beside_their_truth_and_say_where_there_is_none() -> None:
    shown = aftermath.differences_table(aftermath.found("synthetic"))
    assert "not estimable: 16 refusals against 260, fewer than 20 of one" in shown.text
    _, frame = data(shown)
    rows = frame.set_index("trace_shape")
    assert "flat-no" not in rows.index
    assert rows.again_difference_stated["sermon"] == 0.37
    assert pd.isna(rows.again_adjusted["scope-narrow"]) and rows.reason["scope-narrow"]
    held = rows.dropna(subset="again_adjusted")
    assert (held.again_adjusted_low <= held.again_difference_stated).all()
    assert (held.again_difference_stated <= held.again_adjusted_high).all()
    assert rows.again_adjusted_stated.equals(
        rows.again_difference_stated.rename("again_adjusted_stated")
    )


def test_where_retries_follow_the_length_both_differences_stand_beside_truths_that_part() -> None:
    shown = aftermath.differences_table(of_scenario(BY_LENGTH))
    assert "Its truth" in shown.text and "Truth, same length" in shown.text
    _, frame = data(shown)
    rows = frame.set_index("trace_shape")
    assert set(rows.again_adjusted_stated) == {0}
    sermon = rows.loc["sermon"]
    assert sermon.again_difference_low > 0 > sermon.again_adjusted_low
    assert sermon.again_difference_stated == pytest.approx(0.156, abs=0.001)
    # The page says which interval misses its truth.
    missed = rows.index[
        (rows.again_difference_stated < rows.again_difference_low)
        | (rows.again_difference_stated > rows.again_difference_high)
    ]
    assert [*missed] == ["scope-narrow"] and rows.traces["scope-narrow"] == 16
    drawn = data(aftermath.retries_plot(of_scenario(BY_LENGTH), ""))[1].set_index("trace_shape")
    assert drawn.again_stated["sermon"] == pytest.approx(0.431, abs=0.001)


def test_what_was_done_next_adds_up_to_all_traces() -> None:
    _, frame = data(aftermath.actions_table(aftermath.found("synthetic")))
    assert frame.traces.sum() == 1100 and set(frame.next_action) == set(ACTIONS)
    assert frame[frame.is_again].groupby("trace_shape").traces.sum()["sermon"] == 138


def test_imported_traces_are_called_so_and_have_no_truth(own: Any) -> None:
    found = own(*(row._replace(synthetic=False) for row in made_up()))
    assert "1,100 imported traces" in aftermath.banner(found).text
    for piece in pieces(found):
        name, frame = data(piece)
        assert name.startswith("own-") and "ynthetic" not in piece.text
        assert set(frame.trace_kind) == {"own"} and "ruth" not in piece.text
        assert frame.trace_scenario.isna().all()


def test_one_synthetic_trace_among_imported_ones_marks_them_all(own: Any) -> None:
    first, *rest = made_up()
    found = own(first, *(row._replace(synthetic=False) for row in rest))
    assert "1 of 1,100 traces are made up" in aftermath.banner(found).text
    for piece in pieces(found):
        assert "Partly synthetic traces, 1,100" in piece.text
        assert data(piece)[0].startswith("partly-synthetic-") and "ruth" not in piece.text


def test_a_file_without_a_flat_no_has_rates_and_no_differences(own: Any) -> None:
    found = own(*(row for row in made_up() if row.shape == "sermon"))
    assert "62.7" in aftermath.retries_plot(found, "").text
    shown = aftermath.differences_table(found).text
    assert "not estimable: no refusal of the shape to compare with" in shown
    alone = own(*(row for row in made_up() if row.shape == "flat-no"))
    assert "None." in aftermath.differences_table(alone).text


@pytest.mark.parametrize("name", ["../synthetic", "a/b", "", ".hidden", "Own"])
def test_traces_are_named_by_a_folder_and_by_no_path(name: str) -> None:
    with pytest.raises(ValueError, match="the name of a folder of data"):
        aftermath.found(name)
    with pytest.raises(ValueError, match="and of a file in it"):
        aftermath.found("synthetic", name)


def test_a_folder_without_traces_is_an_error_that_names_the_file(own: Any) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        aftermath.found("none")


def test_the_page_runs_from_its_notebook_and_again_when_the_traces_change(
    fresh_project: Path,
) -> None:
    root = fresh_project
    keep(root, "aftermath")
    notebook = read_notebook(root / "notebooks" / "aftermath.ipynb")
    jobs = [Job("method/aftermath", notebook, {})]
    made = json.loads(execute(jobs, root=root)["method/aftermath.ipynb"])
    text = json.dumps(made)
    assert "138 of 220" in text and "synthetic-by-shape-retries" in text
    assert "synthetic-by-length-retries" in text
    before = inputs(jobs, root)["method/aftermath"]["data/synthetic/traces.jsonl"]
    path = root / "data" / "synthetic" / "traces.jsonl"
    path.write_bytes(path.read_bytes() + b"\n")
    assert inputs(jobs, root)["method/aftermath"]["data/synthetic/traces.jsonl"] != before


def test_the_page_states_that_no_real_trace_comes_with_the_project() -> None:
    cells = json.loads((ROOT / "notebooks/aftermath.ipynb").read_text())["cells"]
    words = (part for c in cells if c["cell_type"] == "markdown" for part in c["source"])
    prose = " ".join(" ".join(words).split())
    for said in ("none come with this project", "2,100 consented traces", "62 % after a sermon",
                 "figures of others", "Adjusted is not causal", "`drift traces FILE`",
                 "were chosen near these figures", "two **synthetic** files",
                 "leaves out whatever goes with a shape through its length"):  # fmt: skip
        assert said in prose
    assert not re.search(r"effect of the shape|the shape makes", prose)
