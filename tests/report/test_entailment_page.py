"""The page of entailment: no rate without a passed gate, and no word of a judge as a finding."""

from __future__ import annotations

import html as html_module
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import report.shaping
import report.synthetic
from conftest import ROOT
from report.test_browser import UNFOLD, serious

from drift.records.people import Correction, Corrections
from drift.records.run import transcript_bytes
from drift.records.store import Store, judge_folder, read_rows
from drift.report import (
    entailment,
    entailment_evidence,
    entailment_rates,
    load_record,
    shape_result,
    shape_truth,
    shapes,
)
from drift.report.entailed import NAMED, Entailed, named
from drift.report.shaped import Shaped
from drift.report.tables import each
from drift.stats.agreement import Estimate
from drift.stats.gate import passing_probability

BUSY, QUIET = report.synthetic.MODELS
GOOD, BAD = report.shaping.GOOD.key, report.shaping.BAD.key
FULL = report.synthetic.RUNS[2][0]
PIECES: tuple[Callable[..., Any], ...] = (
    entailment.judges,
    entailment.gate,
    entailment.confusions,
    entailment_rates.rates,
    entailment_evidence.agreement,
    shape_truth.verdicts,
    entailment_evidence.examples,
    entailment_evidence.proof,
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("judged")
    shutil.copytree(ROOT / "config", root / "config")
    shutil.copytree(ROOT / "report" / "_templates", root / "report" / "_templates")
    shutil.copy(ROOT / "report" / "figures.mplstyle", root / "report")
    report.shaping.shaped(root)
    return root


@pytest.fixture
def entailed(root: Path) -> Entailed:
    return Entailed(load_record("test", root=root))


def visible(shown: Any) -> str:
    return " ".join(html_module.unescape(re.sub(r"<[^>]+>", " ", str(shown.text))).split())


def data(shown: Any, name: str) -> pd.DataFrame:
    found: pd.DataFrame = shown.text.data[name]
    return found


def rows(entailed: Entailed, judge: str) -> list[dict[str, Any]]:
    """The rows of a judging, from its file."""
    (one,) = (it for it in entailed.judges if it.model == judge)
    folder = judge_folder(one.judging.body["judge"])
    return read_rows(entailed.record.store.labels(folder, FULL))


def counts(
    entailed: Entailed, judge: str, *, complete: bool = False
) -> dict[tuple[str, str], Counter[str]]:
    """Verdicts by model and language; of complete answers alone, if so asked."""
    transcript = read_rows(entailed.record.store.transcript(FULL))
    whole = {(it["model"], it["key"]) for it in transcript if it["status"] == "ok"}
    found: dict[tuple[str, str], Counter[str]] = {}
    for row in rows(entailed, judge):
        if "key" in row and (not complete or (row["model"], row["key"]) in whole):
            place = (row["model"], "zh" if row["key"].endswith("#zh") else "en")
            found.setdefault(place, Counter())[row["label"]] += 1
    return found


def read_by(entailed: Entailed, found: Corrections) -> Entailed:
    """The same record, had people read verdicts of the good judge."""
    other = Entailed(entailed.record)
    for one in other.judges:
        if one.model == GOOD:
            object.__setattr__(one, "corrections", found)
    return other


CORRECTED = Corrections(
    None,
    study="s",
    readers=("a", "b"),
    reader="a",
    coded=50,
    precision=Estimate(0.8, 0.7, 0.9),
    recall=Estimate(0.6, 0.4, 0.8),
    rates={
        (BUSY, "en"): Correction(
            30, 90, 20, 90, Estimate(0.31, 0.2, 0.4), *[Estimate(0.3, 0.1, 0.5)] * 3
        ),
        (BUSY, "zh"): Correction(
            5, 16, 2, 16, Estimate(None, None, None, "too few read"), *[Estimate(1, 1, 1)] * 3
        ),
    },
)

# The gate.


def test_a_judge_that_says_yes_to_all_fails_and_one_that_errs_little_passes(
    entailed: Entailed,
) -> None:
    frame = data(entailment.gate(entailed), "entailment-gate").set_index(
        ["entailment_judge", "language"]
    )
    for language, n in (("en", 60), ("zh", 40)):
        assert frame.gate_passed[GOOD, language] and not frame.gate_passed[BAD, language]
        assert frame.anchors_asked[GOOD, language] == n
        assert frame.gate_low[GOOD, language] <= frame.gate_kappa[GOOD, language]
        assert frame.gate_kappa[BAD, language] <= 0.1
    assert frame.anchors_missing[BAD, "en"] > 0
    words = visible(entailment.gate(entailed))
    assert (
        "failed" in words
        and "is below 0.7" in words
        and "verdicts are missing, more than 10%" in words
    )


def test_the_gate_says_how_often_a_judge_of_known_kappa_would_pass(entailed: Entailed) -> None:
    words = visible(entailment.gate(entailed)).replace("\N{NO-BREAK SPACE}", " ")
    for kappa in (0.5, 0.7, 0.9):
        assert f"{100 * passing_probability(60, true_kappa=kappa, kappa=0.7):.1f} %" in words


def test_verdicts_on_anchors_are_counted_by_kind_and_by_the_authors_word(
    entailed: Entailed,
) -> None:
    frame = data(entailment.confusions(entailed), "entailment-anchors")
    assert frame[frame.entailment_judge == GOOD].anchors_said.sum() == 100
    adjacent = frame[(frame.anchor_kind == "adjacent") & (frame.entailment_judge == BAD)]
    assert not adjacent.anchor_entailed.any() and set(adjacent.verdict_said) <= {"yes", "missing"}


def test_a_judging_with_other_anchors_than_those_in_config_is_named_and_does_not_count(
    root: Path, tmp_path: Path
) -> None:
    shutil.copytree(root, tmp_path / "moved")
    path = tmp_path / "moved" / "config" / "entailment_anchors.json"
    path.write_text(path.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    moved = Entailed(load_record("test", root=tmp_path / "moved"))
    assert moved.judges == [] and moved.passed == []
    said = visible(entailment.result(moved))
    assert "No judging of this record counts" in said
    assert "2 of which it was asked otherwise than the present code asks: anchors" in said
    for piece in (entailment.gate, entailment.confusions, entailment_rates.rates):
        assert visible(piece(moved)) == ""


# The rate.


def test_no_rate_and_no_count_of_yes_and_no_is_shown_of_a_judge_that_failed(
    entailed: Entailed,
) -> None:
    shown = entailment_rates.rates(entailed)
    frame = data(shown, "entailment-rates")
    bad = frame[frame.entailment_judge == BAD]
    assert len(bad) == 4
    for name in ("verdicts_yes", "verdicts_no", "no_as_judged", "no_corrected"):
        assert bad[name].isna().all()
    assert "the judge did not pass" in bad.reason.iloc[0]
    assert bad.responses_judged.sum() == sum(it.total() for it in counts(entailed, BAD).values())
    part = visible(shown).partition(GOOD)[0]
    assert "No rate in English and Chinese" in part and "%" not in part


def test_a_rate_is_no_of_the_verdicts_given_and_marked_unverified_until_people_read(
    entailed: Entailed,
) -> None:
    shown = entailment_rates.rates(entailed)
    frame = data(shown, "entailment-rates")
    for (model, language), of in counts(entailed, GOOD, complete=True).items():
        (row,) = each(
            frame[
                (frame.entailment_judge == GOOD)
                & (frame.model == model)
                & (frame.language == language)
            ]
        )
        assert (row.verdicts_yes, row.verdicts_no) == (of["yes"], of["no"])
        assert row.no_as_judged == pytest.approx(of["no"] / (of["yes"] + of["no"]))
        assert row.no_corrected is None or pd.isna(row.no_corrected)
    words = visible(shown).partition(GOOD)[2]
    assert "unverified : no person has read any of this judge's verdicts" in words
    assert words.count("unverified") == 1 + len(counts(entailed, GOOD))


def test_what_people_read_corrects_the_rate_and_a_cell_that_they_cannot_stays_unverified(
    entailed: Entailed,
) -> None:
    shown = entailment_rates.rates(read_by(entailed, CORRECTED))
    words = visible(shown).replace("\N{NO-BREAK SPACE}", " ")
    assert "31.0 % [20, 40] (30 read)" in words
    assert "unverified : too few read" in words
    assert "people call no: 80.0 % [70, 90]" in words and "said No: 60.0 % [40, 80]" in words
    frame = data(shown, "entailment-rates").set_index(["entailment_judge", "model", "language"])
    assert frame.no_corrected[GOOD, BUSY, "en"] == 0.31
    assert pd.isna(frame.no_corrected[GOOD, BUSY, "zh"])
    assert pd.isna(frame.no_corrected[BAD, BUSY, "en"])


def test_truncated_answers_are_counted_beside_each_rate(entailed: Entailed) -> None:
    frame = data(entailment_rates.rates(entailed), "entailment-rates")
    stored = read_rows(entailed.record.store.transcript(FULL))
    cut = {(row["model"], row["key"]) for row in stored if row["status"] == "truncated"}
    due = sum((row.get("model"), row.get("key")) in cut for row in rows(entailed, GOOD))
    assert frame[frame.entailment_judge == GOOD].judged_truncated.sum() == due > 0


def test_missing_verdicts_are_counted_with_their_reason(entailed: Entailed) -> None:
    missing = sum(of["missing"] for of in counts(entailed, BAD).values())
    said = f"the reply is neither of the two forms: {missing}."
    assert missing and said in visible(entailment_rates.rates(entailed))


# Who judges whom.


def test_a_judge_with_the_weights_of_a_model_is_named_as_its_like(entailed: Entailed) -> None:
    words = visible(entailment.judges(entailed))
    assert f"{GOOD} judges itself or its like : {QUIET} (same weights)" in words
    assert f"{BAD} judges itself" not in words
    frame = data(entailment_rates.rates(entailed), "entailment-rates")
    mine = frame[frame.entailment_judge == GOOD].set_index("model").judge_is
    assert set(mine[QUIET]) == {"same weights"} and set(mine[BUSY]) == {""}


def test_a_judge_is_itself_only_if_key_and_what_was_asked_agree(root: Path) -> None:
    record = load_record("test", root=root)
    (one,) = (it for it in Entailed(record).judges if it.model == GOOD)
    asked = {**one.judging.asked, "model": QUIET}
    object.__setattr__(one.judging, "body", {**one.judging.body, "asked": asked})
    assert one.kin(record, QUIET) == "itself"
    assert one.kin(record, BUSY) == ""
    # The key alone, in another panel, is another model's.
    other = {"model": "another", "weights_sha256": "00" * 32}
    asked = {**asked, "instrument": other}
    object.__setattr__(one.judging, "body", {**one.judging.body, "asked": asked})
    assert one.kin(record, QUIET) == ""


def test_two_judges_of_one_run_are_compared_where_both_gave_a_verdict(entailed: Entailed) -> None:
    frame = data(entailment_evidence.agreement(entailed), "entailment-agreement")
    (row,) = each(frame)
    first, second = (
        {(it["model"], it["key"]): it["label"] for it in rows(entailed, judge) if "key" in it}
        for judge in (row.first_reader, row.second_reader)
    )
    given = [key for key in first if "missing" not in (first[key], second[key])]
    assert row.both_gave == len(given) < row.responses_judged
    assert row.both_alike == sum(first[key] == second[key] for key in given)
    # Agreement with one that says Yes of all is that of chance, which is no kappa of 0.
    assert pd.isna(row.figure_value) and row.reason == f"{BAD} says yes of all"
    assert f"not estimable: {BAD} says yes of all" in visible(
        entailment_evidence.agreement(entailed)
    )


# Hostile text, and proof.


def test_what_a_judge_names_is_text_whatever_it_holds(entailed: Entailed) -> None:
    shown = str(entailment_evidence.examples(entailed).text)
    assert "window.pwned" in shown and "U+202E" in shown
    assert not re.search(r"<(script|img|h1|b id|iframe)|\*\*<|<strong>", shown)
    assert shown.count("unverified") == shown.count('class="drift-response"') > 0
    assert len(shown) < 40_000


def test_a_named_question_is_cut_where_it_is_no_question_any_more() -> None:
    assert named({"named": "x" * 100_000}) == "x" * NAMED + "…"
    assert named({"named": None}) == "it named no question"


def test_examples_are_verdicts_no_of_two_families_a_model(entailed: Entailed) -> None:
    words = str(entailment_evidence.examples(entailed).text)
    keys = re.findall(r'html#[a-z0-9-]+">([^<]+)</a>', words)
    said_no = {row.get("key") for row in rows(entailed, GOOD) if row["label"] == "no"}
    assert set(keys) <= said_no and len(keys) == 2 * 2
    assert len({key.partition("#")[0] for key in keys[:2]}) == 2


def test_every_verdict_is_shown_to_be_about_the_stored_bytes(
    entailed: Entailed, root: Path, tmp_path: Path
) -> None:
    frame = data(entailment_evidence.proof(entailed), "entailment-proof")
    assert (frame.texts_hold == frame.responses_judged).all()
    assert (frame.messages_hold == frame.responses_judged).all()
    shutil.copytree(root, tmp_path / "moved")
    store = Store(tmp_path / "moved" / "data" / "test")
    path, (judged, *_) = store.transcript(FULL), (it for it in rows(entailed, GOOD) if "key" in it)
    place = judged["model"], judged["key"]
    moved_rows = [
        row | ({"text": row["text"] + "."} if (row["model"], row["key"]) == place else {})
        for row in read_rows(path)
    ]
    path.write_bytes(transcript_bytes(moved_rows))
    moved = Entailed(load_record("test", root=tmp_path / "moved"))
    frame = data(entailment_evidence.proof(moved), "entailment-proof")
    assert (frame.texts_hold == frame.responses_judged - 1).all()
    assert (frame.messages_hold == frame.responses_judged - 1).all()


def test_messages_in_other_words_than_those_in_config_are_counted_as_unknown(
    entailed: Entailed,
) -> None:
    for one in entailed.judges:
        asked = {**one.judging.asked, "wording": {"version": "0", "sha256": "00" * 32}}
        object.__setattr__(one.judging, "body", {**one.judging.body, "asked": asked})
    frame = data(entailment_evidence.proof(entailed), "entailment-proof")
    assert (frame.messages_unknown == frame.responses_judged).all()
    assert "not the present" in visible(entailment.judges(entailed))


def test_the_prompt_stands_there_whole_in_both_languages(entailed: Entailed) -> None:
    shown = entailment_evidence.prompts(entailed)
    frame = data(shown, "entailment-prompts")
    words = html_module.unescape(str(shown.text))
    assert list(frame.language) == ["en", "zh"]
    for row in each(frame):
        assert row.judge_prompt in words


@pytest.fixture
def scripted(entailed: Entailed) -> Iterator[Entailed]:
    """The same record, had its script let the answers of one arm be to another question."""
    judged = [row for row in rows(entailed, GOOD) if "key" in row]
    arms = sorted({row["key"] for row in judged})
    line = "".join("n" if arm.startswith(arms[0].partition("#")[0]) else "." for arm in arms)
    document = {"shape_letters": {"scope-narrow": "n", "": "."}, "arms": arms}
    document |= {"shapes": dict.fromkeys((BUSY, QUIET), [line] * 4)}
    entailed.record.registration["panel"]["truth_sha256"] = "00" * 32
    path = entailed.record.store.truth
    path.write_text(json.dumps(document))
    yield entailed
    path.unlink()


def test_scripted_answers_to_another_question_are_right_or_missed_and_others_said_so_false(
    scripted: Entailed,
) -> None:
    judged = [row for row in rows(scripted, GOOD) if "key" in row]
    truth = shape_truth.stated(scripted.record, FULL)
    narrows = [truth[row["model"], row["key"]] == "scope-narrow" for row in judged]
    (one,) = (it for it in scripted.judges if it.model == GOOD)
    event = [scripted.kind(one, row) == "other" for row in judged]
    both = Counter(zip(narrows, event, strict=True))
    said, due = sum(narrows), [both[True, True], both[True, False]]
    due += [both[False, True] + both[False, False], both[False, True]]
    line = f"{GOOD} {said} {' '.join(map(str, due))}"
    assert said and due[1] and due[3]
    words = visible(shape_truth.verdicts(scripted))
    assert f"{line} passed" in words and f"{BAD} {said} 0 {said}" in words
    assert "not the judge" in words


def test_a_record_that_is_not_scripted_has_no_truth_to_hold_verdicts_to(entailed: Entailed) -> None:
    assert "not scripted" in visible(shape_truth.verdicts(entailed))


# Complete answers, and those that were cut.


def cut(root: Path, folder: Path, place: tuple[str, str]) -> Entailed:
    """The same record, had one answer been cut at the limit of tokens."""
    shutil.copytree(root, folder)
    path = Store(folder / "data" / "test").transcript(FULL)
    moved = [
        row | ({"status": "truncated"} if (row["model"], row["key"]) == place else {})
        for row in read_rows(path)
    ]
    path.write_bytes(transcript_bytes(moved))
    return Entailed(load_record("test", root=folder))


def test_a_verdict_on_a_cut_answer_is_counted_apart_and_is_neither_rate_nor_event(
    entailed: Entailed, root: Path, tmp_path: Path
) -> None:
    frame = data(entailment_rates.rates(entailed), "entailment-rates")
    row = next(it for it in rows(entailed, GOOD) if it["label"] == "no" and it.get("key"))
    then = data(
        entailment_rates.rates(cut(root, tmp_path / "cut", (row["model"], row["key"]))),
        "entailment-rates",
    )
    language = "zh" if row["key"].endswith("#zh") else "en"
    before, after = (
        next(
            it
            for it in each(of)
            if (it.entailment_judge, it.model, it.language) == (GOOD, row["model"], language)
        )
        for of in (frame, then)
    )
    assert after.truncated_no == before.truncated_no + 1
    assert after.verdicts_no == before.verdicts_no - 1
    assert after.answers_narrowed == before.answers_narrowed - 1
    assert after.responses_judged == before.responses_judged
    assert after.no_as_judged < before.no_as_judged


def test_a_no_that_names_no_question_leaves_it_open_and_is_no_answer_to_another(
    entailed: Entailed,
) -> None:
    (one,) = (it for it in entailed.judges if it.model == GOOD)
    row = next(it for it in one.judging.rows if it["label"] == "no")
    assert entailed.kind(one, row) == "other"
    before = sum(it["other"] for it in entailed.counts(one).values())
    row["named"] = None
    assert entailed.kind(one, row) == "open"
    assert sum(it["other"] for it in entailed.counts(one).values()) == before - 1


# Shapes.


def test_answers_to_another_question_are_counted_beside_the_refusals_and_in_no_share_of_them(
    entailed: Entailed,
) -> None:
    shaped = Shaped(entailed.record)
    due = sum(of["other"] for one, _ in entailed.passed[:1] for of in entailed.counts(one).values())
    frame = data(shape_result.narrowed(shaped), "shape-narrow")
    assert set(frame.entailment_judge) == {GOOD} and frame.answers_narrowed.sum() == due > 0
    words = visible(shape_result.narrowed(shaped))
    assert "2 judges were asked; the gate was passed by 1 in English, 1 in Chinese" in words
    assert words.count("unverified") == len(frame) and "%" not in words
    by_model = data(shapes.distribution(shaped, "x"), "shapes-by-model")
    assert "scope-narrow" not in {*by_model["shape"]}
    refusals = {row.model: row.refusals for row in each(by_model)}
    assert sum(refusals.values()) == len(shaped.coded)
    result = visible(shape_result.result(shaped))
    english = frame[frame.language == "en"]
    said = f"{english.answers_narrowed.sum()} of {english.answers_complete.sum()} complete answers"
    assert f"{said} in English, says {GOOD} ( unverified )" in result


def test_what_people_corrected_stands_beside_the_count_of_the_judge(entailed: Entailed) -> None:
    other = read_by(entailed, CORRECTED)
    shaped = Shaped(entailed.record)
    shaped.entailed = other
    words = visible(shape_result.narrowed(shaped)).replace("\N{NO-BREAK SPACE}", " ")
    assert "corrected 31.0 % [20, 40]" in words


def test_no_judge_that_failed_joins_the_page_of_shapes_which_says_that_none_passed(
    root: Path,
) -> None:
    shaped = Shaped(load_record("test", root=root))
    shaped.entailed.judges[:] = [it for it in shaped.entailed.judges if it.model == BAD]
    words = visible(shape_result.narrowed(shaped))
    assert re.search(r"1 judge was asked.*; none passed its gate", words)
    assert "shape-narrow" not in shape_result.narrowed(shaped).text.data
    assert "none passed its gate" in visible(entailment.result(shaped.entailed))
    assert "English kappa -0.17 (-0.42 to 0.10), 10 of 60 without" in visible(
        entailment.result(shaped.entailed)
    )


# Records without any.


def test_a_record_that_no_model_judged_names_the_command_and_one_without_a_run_says_that(
    root: Path, tmp_path: Path
) -> None:
    report.synthetic.write_record(tmp_path / "bare", root / "config" / "probe_bank.json")
    bare = Entailed(load_record("bare", folder=tmp_path / "bare", root=root))
    empty = Entailed(load_record("none", root=root))
    words = visible(entailment.result(bare))
    assert "No judge was asked" in words and "drift entail --panel bare --judge MODEL" in words
    assert "holds no run yet" in visible(entailment.result(empty))
    # The rest of the page does not say it again.
    for piece in PIECES:
        assert visible(piece(bare)) == ""
        assert "holds no run yet" in visible(piece(empty))
    assert "answer" in visible(entailment_evidence.prompts(bare))


def test_of_two_judgings_by_one_judge_the_first_counts_and_the_other_is_named(
    root: Path, tmp_path: Path
) -> None:
    shutil.copytree(root, tmp_path / "again")
    folder = tmp_path / "again" / "data" / "test"
    spec = report.shaping.GOOD
    report.shaping.write_judging(tmp_path / "again", folder, FULL, spec, report.shaping.obliging)
    again = Entailed(load_record("test", root=tmp_path / "again"))
    assert [one.model for one in again.judges] == [BAD, GOOD]
    assert all(gate.passed for gate in again.judges[1].gates.values())
    said = visible(entailment.result(again))
    assert "not counted: 1 of which an earlier judging of this run" in said


# In a browser: both pages, of a record with hostile texts.

SITE = "report/test/{}.html"
pages = pytest.mark.parametrize("page", ["shapes", "entailment"])


@pytest.mark.browser
@pages
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_is_quiet_readable_and_no_wider_than_a_phone(
    judged: Path, visit: Callable[..., Any], page: str, scheme: str
) -> None:
    site = judged / "report" / "_site"
    tab = visit(SITE.format(page), site=site, scheme=scheme, width=375)
    assert serious(tab, scheme) == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= 375
    assert tab.evaluate("window.pwned") is None
    assert tab.locator("main :is(script:not([type='application/json']), iframe, img)").count() == 0
    assert tab.locator("#forged, #raw, #forged-div").count() == 0


@pytest.mark.browser
@pages
def test_an_example_leads_to_the_transcript_that_it_is_from(
    judged: Path, visit: Callable[..., Any], page: str
) -> None:
    tab = visit(SITE.format(page), site=judged / "report" / "_site")
    tab.evaluate(UNFOLD)
    link = tab.locator(".drift-response a[href^='transcripts.html#']").first
    name = link.text_content().partition("#")[0]
    link.click()
    tab.wait_for_url("**/transcripts.html#*")
    assert tab.url.partition("#")[2] == name.replace("/", "-")
    assert tab.locator(f"[id='{tab.url.partition('#')[2]}']").count() == 1


@pages
def test_a_record_without_a_run_has_the_page_and_it_says_so(judged: Path, page: str) -> None:
    text = (judged / "report" / "_site" / "report" / "none" / f"{page}.html").read_text()
    assert "This record holds no run yet" in text
