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
from drift.records.scenario import SCENARIO, made_up
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


def test_synthetic_traces_are_marked_in_banner_heading_caption_and_name_of_file() -> None:
    found = aftermath.found("synthetic")
    assert "Synthetic: 1,100 of 1,100 traces are made up" in aftermath.banner(found).text
    for piece in pieces(found):
        assert "Synthetic traces, 1,100" in piece.text
        name, frame = data(piece)
        assert name.startswith("synthetic-") and set(frame.trace_kind) == {"synthetic"}
    drawn = pieces(found)[0].text
    assert re.search(r"<figcaption[^>]*>.*?Synthetic traces, 1,100\. A caption\.", drawn, re.S)
    assert re.search(r'aria-label="synthetic, 1,100 traces', drawn)


def test_the_figure_shows_each_shape_with_its_count_and_limits() -> None:
    found = aftermath.found("synthetic")
    shown = aftermath.retries_plot(found, "")
    assert "138 of 220" in shown.text and "62.7\N{NO-BREAK SPACE}% (56.0 to 69.1)" in shown.text
    _, frame = data(shown)
    assert dict(zip(frame.trace_shape, frame.traces, strict=True)) == {
        shape: many for shape, (many, _, _) in SCENARIO.items()
    }
    assert (frame.again_low < frame.again).all() and (frame.again < frame.again_high).all()
    assert frame.again_stated.tolist() == [share for _, share, _ in SCENARIO.values()]


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
        assert set(frame.trace_kind) == {"own"} and "Truth" not in piece.text


def test_one_synthetic_trace_among_imported_ones_marks_them_all(own: Any) -> None:
    first, *rest = made_up()
    found = own(first, *(row._replace(synthetic=False) for row in rest))
    assert "1 of 1,100 traces are made up" in aftermath.banner(found).text
    for piece in pieces(found):
        assert "Partly synthetic traces, 1,100" in piece.text
        assert data(piece)[0].startswith("partly-synthetic-")


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
    assert "138 of 220" in text and "synthetic-retries" in text
    before = inputs(jobs, root)["method/aftermath"]["data/synthetic/traces.jsonl"]
    path = root / "data" / "synthetic" / "traces.jsonl"
    path.write_bytes(path.read_bytes() + b"\n")
    assert inputs(jobs, root)["method/aftermath"]["data/synthetic/traces.jsonl"] != before


def test_the_page_states_that_no_real_trace_comes_with_the_project() -> None:
    cells = json.loads((ROOT / "notebooks/aftermath.ipynb").read_text())["cells"]
    words = (part for c in cells if c["cell_type"] == "markdown" for part in c["source"])
    prose = " ".join(" ".join(words).split())
    for said in ("none come with this project", "2,100 consented traces", "62 % after a sermon",
                 "figures of others", "Adjusted is not causal", "`drift traces FILE`"):  # fmt: skip
        assert said in prose
