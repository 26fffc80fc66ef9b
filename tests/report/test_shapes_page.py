"""The page of shapes: what is counted, of whom, and that no text of a model is more than text."""

from __future__ import annotations

import html as html_module
import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import report.shaping
import report.synthetic
from conftest import ROOT

from drift.judging import load_judge
from drift.judging.shape_measure import CODES
from drift.judging.shape_measure import measured_shapes as kept_sets
from drift.records.run import label_rows
from drift.records.shapes import load_coder
from drift.records.store import Store, read_rows
from drift.report import (
    load_record,
    measured_shapes,
    shape_course,
    shape_evidence,
    shape_result,
    shape_truth,
    shape_variation,
    shapes,
    treated,
)
from drift.report.bars import BARS, COURSE
from drift.report.figures import svg
from drift.report.shaped import SMALL, Shaped, shares, widest_zero
from drift.report.tables import each
from drift.stats.shapes import simultaneous_shares

BUSY, QUIET = report.synthetic.MODELS
FULL = report.synthetic.RUNS[2][0]
BEFORE = report.synthetic.RUNS[0][0]
OPTIONS = {"draws": 200, "seed": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shaped")
    shutil.copytree(ROOT / "config", root / "config")
    shutil.copytree(ROOT / "report" / "_templates", root / "report" / "_templates")
    shutil.copy(ROOT / "report" / "figures.mplstyle", root / "report")
    report.shaping.shaped(root, judged=False)
    return root


@pytest.fixture(scope="module")
def shaped(folder: Path) -> Shaped:
    return Shaped(load_record("test", root=folder))


def visible(shown: Any) -> str:
    return " ".join(html_module.unescape(re.sub(r"<[^>]+>", " ", str(shown.text))).split())


def data(shown: Any, name: str) -> pd.DataFrame:
    found: pd.DataFrame = shown.text.data[name]
    return found


def coded(shaped: Shaped, run: str = FULL) -> list[dict[str, Any]]:
    """The rows of a run's shapes, from their file."""
    return read_rows(shaped.record.store.folder / "labels" / "shapes-515151515151" / f"{run}.jsonl")


def test_every_refusal_of_the_last_full_run_is_counted_once_with_its_shape(shaped: Shaped) -> None:
    frame = data(shapes.distribution(shaped, "x"), "shapes-by-model")
    for model in (BUSY, QUIET):
        mine = frame[frame.model == model]
        due = Counter(row["label"] for row in coded(shaped) if row["model"] == model)
        assert {row.shape: row.shape_count for row in each(mine) if row.shape_count} == due
        assert set(mine.refusals) == {due.total()}
        assert tuple(mine["shape"]) == CODES


def test_a_share_is_the_mean_over_families_with_limits_that_hold_at_once(shaped: Shaped) -> None:
    frame = data(shapes.distribution(shaped, "x"), "shapes-by-model")
    families: dict[str, Counter[str]] = {}
    for row in coded(shaped):
        if row["model"] == BUSY:
            families.setdefault(row["key"].partition("#")[0], Counter())[row["label"]] += 1
    due = simultaneous_shares([[of[name] for name in CODES] for of in families.values()])
    for row, one in zip(each(frame[frame.model == BUSY]), due, strict=True):
        own = [of[row.shape] / of.total() for of in families.values()]
        assert row.estimate == pytest.approx(sum(own) / len(own))
        assert (row.share_low, row.share_high) == (one.low, one.high)
        assert row.share_low <= row.estimate <= row.share_high
    assert max(of.total() for of in families.values()) > 1


def test_few_families_are_marked_and_what_they_cannot_show_is_said(shaped: Shaped) -> None:
    shown = shapes.distribution(shaped, "x")
    frame = data(shown, "shapes-by-model")
    assert set(frame[frame.model == QUIET].small_n) == {True}
    families = frame[frame.model == QUIET].families.iloc[0]
    assert families < SMALL <= frame[frame.model == BUSY].families.iloc[0]
    assert f"{QUIET} ({families} families: {100 * widest_zero(families):.1f}" in visible(
        shown
    ).replace("\N{NO-BREAK SPACE}", " ")
    assert re.search(rf"{families} refusals of {families} families, small n", str(shown.text))


def test_the_limit_of_a_shape_never_seen_shrinks_with_families_and_never_reaches_none() -> None:
    limits = [widest_zero(n) for n in (1, 5, 20, 100)]
    assert limits == sorted(limits, reverse=True)
    assert limits[0] > 0.98 and 0 < limits[-1] < 0.06


def test_wordings_have_one_response_a_family_and_model_so_their_counts_add_up(
    shaped: Shaped,
) -> None:
    frame = data(shapes.by_wording(shaped), "shapes-by-wording")
    each_model = frame[frame.model != "all"]
    assert (each_model.refusals == each_model.families).all()
    whole = frame[frame.model == "all"].groupby("variant").shape_count.sum()
    due = Counter(row["key"].partition("#")[2] for row in coded(shaped))
    assert whole.to_dict() == due


def test_languages_are_compared_on_families_that_have_both(shaped: Shaped) -> None:
    frame = data(shapes.by_language(shaped), "shapes-by-language")
    twins = {item.id for item in shaped.record.families.values() if item.zh}
    rows = [row["key"].split("#") for row in coded(shaped)]
    due = Counter(
        "zh" if arm == "zh" else "en"
        for family, arm in rows
        if family in twins and arm in ("en-1", "zh")
    )
    whole = frame[frame.model == "all"].groupby("language").shape_count.sum()
    assert whole.to_dict() == due


def test_topics_hold_every_refusal_and_are_folded_out_by_model(shaped: Shaped) -> None:
    shown = shapes.by_topic(shaped)
    frame = data(shown, "shapes-by-topic")
    assert frame[frame.model == "all"].shape_count.sum() == len(coded(shaped))
    assert frame[frame.model != "all"].shape_count.sum() == len(coded(shaped))
    assert "Each model by itself" in visible(shown)


def test_no_share_is_told_by_colour_alone(shaped: Shaped) -> None:
    cells = re.findall(r"<td>(\d+)(.*?)</td>", str(shapes.by_topic(shaped).text))
    assert len(cells) > 20
    barred = [rest for _, rest in cells if "drift-bar" in rest]
    assert barred and all(re.search(r"\d+–\d+ %", rest) for rest in barred)
    picture = str(shapes.distribution(shaped, "x").text)
    for row in each(data(shapes.distribution(shaped, "x"), "shapes-by-model")):
        if row.shape in shaped.present:
            assert f"{row.shape_count} of {row.refusals}" in picture


def test_runs_are_counted_by_their_canonical_refusals(shaped: Shaped) -> None:
    frame = data(shape_course.over_runs(shaped, "x"), "shapes-over-runs")
    for run, _ in report.synthetic.RUNS:
        for model in (BUSY, QUIET):
            mine = frame[(frame.run == run) & (frame.model == model)]
            due = Counter(
                row["label"]
                for row in coded(shaped, run)
                if row["model"] == model and row["key"].endswith("#en-1")
            )
            assert {r.shape: r.shape_count for r in each(mine) if r.shape_count} == due
            assert set(mine.canonical_refusals) == {due.total()}


def test_transitions_are_of_arms_determined_in_both_full_runs_answers_among_them(
    shaped: Shaped,
) -> None:
    shown = shape_course.transitions(shaped, **OPTIONS)
    frame = data(shown, "shape-transitions")
    assert set(frame.previous) == {BEFORE} and set(frame.run) == {FULL}
    then, now = (
        {(row["model"], row["key"]): row["label"] for row in coded(shaped, run)}
        for run in (BEFORE, FULL)
    )
    due = Counter((then[key], now[key]) for key in then.keys() & now.keys())
    found = frame[(frame.shape_before != "answered") & (frame.shape_after != "answered")]
    counts = found.groupby(["shape_before", "shape_after"]).arms_moved.sum()
    assert counts.to_dict() == due
    assert due["flat-no", "sermon"] > 0
    assert (frame.shape_before == "answered").any()


def test_a_model_whose_flat_refusals_turned_to_sermons_has_a_small_p_and_a_still_one_none(
    shaped: Shaped,
) -> None:
    words = visible(shape_course.transitions(shaped, **OPTIONS))
    for test in (shape_course.WHOLE, shape_course.REFUSED):
        row = rf"{BUSY} \S+ to \S+ {test} (\d+) (\d+) (\d+) of \d+ (\.\d+) (\.\d+)"
        moved = re.search(row, words)
        assert moved and moved[2] == moved[3] == "7" and moved[4] == moved[5] == ".016"
    assert re.search(rf"{QUIET} .*?not estimable: no family's shapes moved", words)


def test_arms_that_were_refused_in_both_runs_have_a_test_of_their_own_without_answers(
    shaped: Shaped,
) -> None:
    words = visible(shape_course.transitions(shaped, **OPTIONS))
    then, now = (
        {row["key"] for row in coded(shaped, run) if row["model"] == BUSY} for run in (BEFORE, FULL)
    )
    row = rf"{BUSY} \S+ to \S+ {shape_course.REFUSED} (\d+) "
    assert (found := re.search(row, words)) and int(found[1]) == len(then & now) > 0
    # The labels were given out by hand, so that the page does not lay them to the present judge.
    assert "of another version of the coder" in words and "the record's own judge said" in words


def test_answered_is_the_word_of_the_judge_whose_refusals_the_coder_reads(shaped: Shaped) -> None:
    other, judge = Shaped(shaped.record), load_judge(shaped.record.root / "config" / "judge")
    rules = load_coder(shaped.record.root, judge).rules_hash
    other.lines = {
        run: {**body, "judge": {**body["judge"], "rules": rules}}
        for run, body in shaped.lines.items()
    }
    by, stored = shape_course.Answered(other), shaped.record.stored(FULL)
    mine = [row for (model, _), row in stored.answers.items() if model == BUSY]
    due = {
        row["key"] for row in label_rows(judge, mine, stored.prompts) if row["label"] == "answered"
    }
    assert by.arms(stored.reading, BUSY) == due
    # The labels of this record were given out by hand, and are other ones.
    assert due != {row["key"] for row in mine if row.get("label") == "answered"}
    assert judge.rules_hash[:16] in by.said


def test_model_against_topic_says_why_it_cannot_tell_where_too_few_families_are_shared(
    shaped: Shaped,
) -> None:
    shown = shape_variation.against_topic(shaped, **OPTIONS)
    frame = data(shown, "shape-variation").set_index("shape_by")
    assert set(frame.index) == {"model", "topic"}
    assert pd.isna(frame.effect["model"]) and "fewer than" in frame.reason["model"]
    assert "The difference is not estimable" in visible(shown)


def test_labs_stand_for_models_where_a_panel_names_more_than_one(shaped: Shaped) -> None:
    events = shaped.coded
    other = Shaped(shaped.record)
    doubled = events[events.model == BUSY].assign(model=QUIET, lab="another")
    other.coded = pd.concat([events[events.model == BUSY], doubled], ignore_index=True)
    frame = data(shape_variation.against_topic(other, **OPTIONS), "shape-variation")
    assert list(frame.shape_by) == ["lab", "topic"]
    # Both labs refuse alike: nothing goes with the lab.
    assert frame.effect.iloc[0] <= 0 and frame.effect_p.iloc[0] == 1


def test_models_of_the_same_weights_are_one_model_of_which_nothing_is_claimed(
    shaped: Shaped, monkeypatch: pytest.MonkeyPatch
) -> None:
    same = {"document": {"model": "one", "weights_sha256": "ab" * 32}, "lab": "x"}
    instruments = dict.fromkeys((BUSY, QUIET), same)
    monkeypatch.setitem(shaped.record.registration, "instruments", instruments)
    other = Shaped(shaped.record)
    shown = shape_variation.against_topic(other, **OPTIONS)
    frame = data(shown, "shape-variation").set_index("shape_by")
    assert pd.isna(frame.effect["model"]) and frame.reason["model"] == "one set of weights"
    words = visible(shown)
    assert "The difference is not estimable: one set of weights" in words
    assert f"so one model here: {' and '.join(sorted((BUSY, QUIET)))}" in words
    result = visible(shape_result.result(other))
    assert f"{BUSY} and {QUIET} have the same weights" in result
    # Without weights, it is the model that was requested.
    asked = {"document": {"model": "one", "weights_sha256": None}}
    monkeypatch.setitem(instruments, BUSY, asked)
    monkeypatch.setitem(instruments, QUIET, asked)
    assert treated.twins(shaped.record, [BUSY, QUIET]) == [[BUSY, QUIET]]


# The result, and what was done to the models.


def test_the_page_says_first_how_often_each_model_declined_and_in_what_shapes(
    shaped: Shaped,
) -> None:
    words = visible(shape_result.result(shaped)).replace("\N{NO-BREAK SPACE}", " ")
    due = Counter(row["label"] for row in coded(shaped) if row["model"] == BUSY)
    asked = sum(of == BUSY for of, _ in shaped.record.stored(FULL).answers)
    number = shaped.record.runs.index(FULL) + 1
    assert f"In run {number} {BUSY} declined {due.total()} of {asked} times" in words
    frame = data(shapes.distribution(shaped, "x"), "shapes-by-model")
    most, n = due.most_common(1)[0]
    (row,) = each(frame[(frame.model == BUSY) & (frame["shape"] == most)])
    share = f"{100 * row.estimate:.1f} %, {100 * row.share_low:.0f} to {100 * row.share_high:.0f}"
    assert f"{n} were {shape_result.NAMES[most]} (share of families {share})" in words
    assert "No person has read these" in words and "The coder errs" in words
    assert "No judge was asked" in words


def test_a_model_is_named_with_the_prompt_that_dictates_its_refusals(
    shaped: Shaped, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = Counter(shaped.coded[shaped.coded.model == QUIET].text)
    said, n = texts.most_common(1)[0]
    prompt = f"Speak of ships. Else say: {said}"
    registered = {**shaped.record.instruments[QUIET]}
    registered["document"] = {**registered["document"], "system_prompt": prompt}
    monkeypatch.setitem(shaped.record.instruments, QUIET, registered)
    other = Shaped(shaped.record)
    words = visible(shape_result.result(other))
    assert f"{n} of its {texts.total()} refusals stand word for word in that prompt" in words
    assert other.told(QUIET) == "told by its system prompt to decline"
    # A prompt under which a model was always asked, and which dictates nothing, marks no row.
    assert not other.told(BUSY)
    assert "told by its system prompt" in str(shapes.distribution(other, "x").text)
    assert "told by its system prompt" in visible(shape_course.transitions(other, **OPTIONS))


def test_changes_of_an_opened_plan_are_told_of_the_models_that_they_reached() -> None:
    if not (ROOT / "data" / "lab" / "plan.toml").exists():
        pytest.skip("no laboratory record")
    lab = Shaped(load_record("lab", root=ROOT))
    assert {*lab.treated} == {"heated", "operator"}
    operator = lab.treated["operator"]
    assert operator.dictated > 0.9 * operator.refusals > 0 and operator.changes[0][0] == 53
    before = treated.treatments(lab.record, {"operator": lab.record.runs[51]}, {})
    assert before == {}


def test_which_refusals_the_judge_lets_through_stands_beside_the_figure(shaped: Shaped) -> None:
    words = visible(measured_shapes.let_through(shaped))
    folder = shaped.record.root / "config" / "shapes" / "measured"
    (one,) = (it for it in kept_sets(folder) if it.set == measured_shapes.HELD_OUT)
    for word, of in one.words.items():
        assert f"{word} {of['refused']} of {of['rows']}" in words
    assert f"of {len(shaped.coded)} refusals were cut" in words


def test_examples_are_of_the_record_escaped_with_the_deciding_words_marked(shaped: Shaped) -> None:
    shown = shape_evidence.examples(shaped)
    text = str(shown.text)
    assert "<mark>cannot help with that request</mark>" in text
    assert not re.search(r"<(script|img|h1|b id|iframe|i>made)", text)
    assert "window.pwned" in text and "javascript:" in text
    frame = data(shown, "shape-examples")
    assert (frame.groupby(["shape", "model"]).size() <= shape_evidence.EXAMPLES).all()
    for row in each(frame):
        assert any(
            it["key"] == row.key and it["model"] == row.model and it["label"] == row.shape
            for it in coded(shaped)
        )
    assert re.search(r'href="transcripts.html#[a-z-]+[a-z0-9-]*"', text)


def test_no_example_is_longer_than_its_room_however_long_the_answer(shaped: Shaped) -> None:
    other = Shaped(shaped.record)
    other.coded = shaped.coded[shaped.coded.text.str.len() > 100_000]
    shown = str(shape_evidence.examples(other).text)
    assert "the record holds the whole text" in shown
    assert shown.count("A million characters.") < 2 * shape_evidence.ROOM * len(other.coded) / 22


def test_rules_are_counted_as_often_as_they_decided_and_foreign_ones_named_so(
    shaped: Shaped,
) -> None:
    shown = shape_evidence.rules(shaped)
    frame = data(shown, "shape-rules").set_index("rule")
    due = Counter(row["rule"] for row in coded(shaped))
    assert {name: frame.decided_full[name] for name in due} == due
    assert frame.decided_full.sum() == len(coded(shaped))
    assert {frame.rule_kind[name] for name in due} == {"of another version"}


def test_a_record_that_nobody_read_says_so(shaped: Shaped) -> None:
    assert "No person has read refusals of this record" in visible(shape_evidence.people(shaped))


def test_the_page_names_the_coder_and_whether_it_is_the_present_one(shaped: Shaped) -> None:
    words = visible(shapes.coder(shaped))
    assert report.shaping.CODER["rules"] in words
    assert "no: the labels are of another version" in words
    assert "Runs coded 4 of 4" in words


def test_without_a_judge_the_page_says_that_none_was_asked_and_counts_no_scope_narrow(
    shaped: Shaped,
) -> None:
    assert "No judge was asked" in visible(shape_result.narrowed(shaped))
    frame = data(shapes.distribution(shaped, "x"), "shapes-by-model")
    assert "scope-narrow" not in {*frame["shape"]}


def test_scripted_shapes_stand_beside_coded_ones(shaped: Shaped, folder: Path) -> None:
    rows = coded(shaped)
    arms = [*sorted({row["key"] for row in rows}), "never/asked#en-1"]
    said = {(row["model"], row["key"]): row["label"] for row in rows}
    letters = {"flat-no": "f", "policy-recital": "p", "redirect": "d", "sermon": "s",
               "false-reason": "x", "mixed": "m", "scope-narrow": "n", "": "."}  # fmt: skip
    line = "".join(letters[said.get((BUSY, arm), "")] for arm in arms[:-1]) + "f"
    wrong = line.replace("s", "d", 1)
    document = {"shape_letters": letters, "arms": arms, "shapes": {BUSY: [line, line, wrong]}}
    path = Store(folder / "data" / "test").truth
    path.write_text(json.dumps(document))
    try:
        frame = shape_truth.scripted_shapes(shaped)
    finally:
        path.unlink()
    assert len(frame) == sum(letter != "." for letter in wrong)
    differ = frame[frame.scripted_shape != frame["shape"]]
    assert [(row.scripted_shape, row.shape) for row in each(differ)] == [
        ("redirect", "sermon"),
        ("flat-no", "not-refused"),
    ]
    assert "not scripted" in visible(shape_truth.shapes(shaped))


def test_a_text_counts_once_as_coded_however_many_responses_it_stands_for(
    shaped: Shaped, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = shaped.coded[shaped.coded.model == BUSY]
    arms = sorted(frame.key)
    letters = {"sermon": "s", "": "."}
    document = {"shape_letters": letters, "arms": arms, "shapes": {BUSY: ["s" * len(arms)] * 4}}
    monkeypatch.setitem(shaped.record.registration["panel"], "truth_sha256", "00" * 32)
    path = Store(folder / "data" / "test").truth
    path.write_text(json.dumps(document))
    try:
        words = visible(shape_truth.shapes(shaped))
    finally:
        path.unlink()
    right = frame["shape"] == "sermon"
    texts = right.groupby(frame.text).all()
    assert len(texts) < len(frame)
    said = f"{texts.sum()} of {len(texts)} distinct texts, standing for {right.sum()} of "
    assert said + f"{len(frame)} responses" in words
    assert "no judge of this record passed its gate" in words


def test_a_record_without_shapes_names_the_command_and_one_without_a_run_says_that(
    folder: Path, tmp_path: Path
) -> None:
    report.synthetic.write_record(tmp_path / "bare", folder / "config" / "probe_bank.json")
    bare = Shaped(load_record("bare", folder=tmp_path / "bare", root=folder))
    empty = Shaped(load_record("none", root=folder))
    for piece in (shapes.coder, shapes.by_topic, shape_evidence.rules):
        assert "drift shapes --panel bare" in visible(piece(bare))
        assert "holds no run yet" in visible(piece(empty))


def test_a_model_that_refused_nothing_is_named_and_has_no_share(shaped: Shaped) -> None:
    other = Shaped(shaped.record)
    other.coded = shaped.coded[shaped.coded.model == BUSY]
    assert re.search(rf"{QUIET} declined none of \d+ times", visible(shape_result.result(other)))
    frame = data(shapes.distribution(other, "x"), "shapes-by-model")
    assert set(frame.model) == {BUSY}


def test_a_share_without_limits_is_shown_without_a_bar() -> None:
    events = pd.DataFrame({"family": ["a/b", "a/b"], "shape": ["sermon", "flat-no"], "by": "x"})
    frame = shares(events, ["by"])
    assert frame.share_low.isna().all() and frame.estimate.notna().all()
    assert set(frame.reason) != {""}


def test_pictures_hold_their_numbers_as_text_and_in_words() -> None:
    frame = pd.DataFrame(
        {"group": ["m<b>", "m<b>"], "note": "3 refusals", "series": ["sermon", "mixed"],
         "estimate": [0.5, None], "low": [0.1, None], "high": [0.9, None], "text": "1 of 3"}
    )  # fmt: skip
    picture = svg(BARS, frame, label="f")
    assert "not estimable" in picture and "sermon 50 % (10 to 90; 1 of 3)" in picture
    assert "<b>" not in picture
    few = frame.assign(estimate=0.5, low=float("nan"), high=float("nan"))
    assert "sermon 50 % (no limits; 1 of 3)" in svg(BARS, few, label="f")
    runs = pd.DataFrame(
        {"group": "m", "series": ["sermon", "mixed"], "column": "7", "place": 0, "count_": [2, 0],
         "share": [1.0, 0.0], "cases": 2}
    )  # fmt: skip
    assert 'aria-label="m, 7, 2 refusals: 2 sermon"' in svg(COURSE, runs, label="g")


# Measured error, and readers.


def measured_with(root: Path, rules: str) -> Shaped:
    """The record of a project whose measurements were made with these rules."""
    for path in (root / "config" / "shapes" / "measured").glob("*.json"):
        path.write_text(json.dumps(json.loads(path.read_bytes()) | {"rules": rules}))
    return Shaped(load_record("test", root=root))


def test_the_measured_error_is_shown_by_shape_with_what_a_set_cannot_show(
    folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder, tmp_path / "fresh")
    fresh = measured_with(tmp_path / "fresh", load_coder(folder).rules_hash)
    shown = measured_shapes.sets(fresh)
    frame = data(shown, "shape-measured")
    kept = kept_sets(tmp_path / "fresh" / "config" / "shapes" / "measured")
    assert {one.set for one in kept} >= set(frame.coded_set) and len(frame)
    words = html_module.unescape(str(shown.text))
    for one in kept:
        for shape, of in one.shapes.items():
            (row,) = each(frame[(frame.coded_set == one.set) & (frame.part_value == shape)
                                & (frame.figure == "precision")])  # fmt: skip
            value = None if pd.isna(row.figure_value) else row.figure_value
            assert (row.coded_rows, value) == (
                of["rows"],
                of["precision"]["estimate"],
            )
        for limit in one.limits:
            assert limit.split("`")[0] in words
    counts = data(shown, "shape-confusion")
    assert counts.coded_rows.sum() == sum(
        sum(row.values()) for one in kept for row in one.confusion.values()
    )


def test_a_measurement_with_other_rules_is_named_and_not_shown(
    folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder, tmp_path / "stale")
    stale = measured_with(tmp_path / "stale", "00" * 32)
    shown = measured_shapes.sets(stale)
    assert "not shown: chatgpt_refusals" in visible(shown)
    assert shown.text.data == {}
    shutil.rmtree(tmp_path / "stale" / "config" / "shapes" / "measured")
    assert "has been measured on no set" in visible(measured_shapes.sets(stale))


def test_what_people_read_is_shown_by_shape_with_the_confusions_in_their_order(
    shaped: Shaped, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {"estimate": 0.7, "low": 0.6, "high": 0.8, "reason": None}
    unknown = {"estimate": None, "low": None, "high": None, "reason": "fewer than 30 rows: 4"}
    pair = {
        "first": "judge",
        "second": "ann",
        "rows": 60,
        "kappa": known,
        "by_word": {"redirect": {"kappa": known, "precision": known, "recall": unknown}},
        "confusions": [{"words": ["redirect", "scope-narrow"], "units": [3, 1], "responses": 4.0}],
    }
    studies = [{"reason": None, "pairs": [pair]}]
    monkeypatch.setattr(shape_evidence, "read_by_people", lambda *_, **__: studies)
    shown = shape_evidence.people(shaped)
    words = visible(shown)
    assert "the coder and ann all 60 0.70 [0.60, 0.80] – –" in words
    assert "redirect 60 0.70 [0.60, 0.80] 0.70 [0.60, 0.80] not estimable: fewer than 30" in words
    assert "redirect and scope-narrow: 3 and 1" in words
    frame = data(shown, "shape-people")
    assert len(frame) == 2 * 3 and frame.figure_value.notna().sum() == 3
    studies[0]["reason"] = "the record does not draw again the sample that was read"
    assert "not shown: the record does not draw" in visible(shape_evidence.people(shaped))


def test_as_of_a_run_its_own_shapes_are_read_and_none_that_were_coded_after_a_later_run(
    folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder, tmp_path / "again")
    later = Shaped(load_record("test", as_of=FULL, root=folder))
    assert later.full == {}
    record = tmp_path / "again" / "data" / "test"
    raws = (record / "chain.jsonl").read_bytes().splitlines(keepends=True)
    lines = [json.loads(raw) for raw in raws]
    place = max(n for n, line in enumerate(lines) if line.get("run") == FULL and n < len(lines) - 4)
    coding = next(n for n, line in enumerate(lines) if line.get("run") == FULL and n > place)
    # Coded when the run was made: the line stands beside those of the run.
    moved = [*raws[: place + 1], raws[coding], *raws[place + 1 : coding], *raws[coding + 1 :]]
    (record / "chain.jsonl").write_bytes(b"".join(moved))
    then = Shaped(load_record("test", as_of=FULL, root=tmp_path / "again"))
    assert set(then.lines) == {FULL} and set(then.full.values()) == {FULL}
