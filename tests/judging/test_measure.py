"""Measuring the judge: what counts, what is kept, and what is not estimable.

Every coded answer here is made up, label and all, for the test.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drift.errors import ConfigurationError
from drift.judging import load_judge
from drift.judging.measure import (
    CELLS,
    MEASURES,
    SEED,
    Judged,
    Label,
    Row,
    estimates,
    judge_rows,
    measure,
    read_set,
)
from drift.judging.measured import Measured, kept_bytes, measured_name, measured_sets
from drift.stats.agreement import cohen_kappa

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "config" / "judge" / "measured"


def judged(coded: str, said: str, prompt: str, **others: str) -> Judged:
    row = Row(prompt=prompt, response="secret words", label=coded, label_by="made-up", **others)
    return Judged(row, Label(said, f"rule-{said}", None))


def rows(refused: int, missed: int, spurious: int, answered: int, unsaid: int = 0) -> list[Judged]:
    kinds = [("refused", "refused"), ("refused", "answered"), ("answered", "refused")]
    kinds += [("answered", "answered"), ("refused", "undetermined")]
    numbers = (refused, missed, spurious, answered, unsaid)
    made = [kind for kind, n in zip(kinds, numbers, strict=True) for _ in range(n)]
    return [judged(*kind, prompt=f"question {i}") for i, kind in enumerate(made)]


def test_the_four_figures_are_those_of_the_table_of_two_labels():
    found = measure(rows(45, 5, 10, 40))
    assert found["accuracy"]["estimate"] == 0.85
    assert found["precision"]["estimate"] == pytest.approx(45 / 55)
    assert found["recall"]["estimate"] == 0.9
    assert found["kappa"]["estimate"] == pytest.approx(cohen_kappa([[45, 5], [10, 40]])) == 0.7
    assert all(
        found[name]["low"] < found[name]["estimate"] < found[name]["high"] for name in MEASURES
    )
    assert found["coverage"] == 1 and found["rows"] == 100
    assert found["seed"] == SEED and found["resamples"] == 2000


def test_an_undetermined_label_counts_as_the_wrong_one_and_leaves_the_coverage():
    found, wrong = measure(rows(40, 5, 10, 40, 5)), measure(rows(40, 10, 10, 40))
    for name in MEASURES:
        # Other patterns draw other numbers: the limits agree as two bootstraps do.
        assert found[name] == pytest.approx(wrong[name], abs=0.02)
        assert found[name]["estimate"] == wrong[name]["estimate"]
    assert found["coverage"] == 0.95
    assert found["confusion"]["refused"] == {"refused": 40, "answered": 5, "undetermined": 5}
    assert {
        "coded": "refused",
        "judged": "undetermined",
        "rule": "rule-undetermined",
        "rows": 5,
    } in (found["disagreements"])


def test_other_labels_are_tallied_apart_and_enter_no_figure():
    others = [judged("partial", "refused", "p"), judged("other", "answered", "q")]
    found, without = measure(rows(20, 2, 3, 20) + others), measure(rows(20, 2, 3, 20))
    assert found.pop("apart") == {
        "partial": {"refused": 1, "answered": 0, "undetermined": 0},
        "other": {"refused": 0, "answered": 1, "undetermined": 0},
    }
    assert without.pop("apart") == {}
    assert found == without


def test_answers_to_one_question_are_drawn_together():
    """Five answers of one outcome to each of 20 questions tell no more than one to each."""
    kinds = [("refused", "refused")] * 8 + [("refused", "answered")] * 2
    kinds += [("answered", "answered")] * 10
    many = [judged(*kind, prompt=f"{i}") for i, kind in enumerate(kinds) for _ in range(5)]
    apart = [judged(*one, prompt=f"{i}/{j}") for i, one in enumerate(kinds) for j in range(5)]
    together, alone = measure(many)["recall"], measure(apart)["recall"]
    assert together["estimate"] == alone["estimate"] == 0.8
    assert together["high"] - together["low"] > 1.8 * (alone["high"] - alone["low"])
    assert measure(many)["prompts"] == [
        [0, 0, 0, 0, 5, 0, 10],
        [0, 5, 0, 0, 0, 0, 2],
        [5, 0, 0, 0, 0, 0, 8],
    ]


def test_an_interval_is_that_of_a_plain_bootstrap_over_the_questions():
    rng, made = np.random.default_rng(1), rows(45, 5, 10, 40)
    right = np.array([one.row.label == one.found.label for one in made])
    plain = np.quantile(right[rng.integers(0, 100, (20_000, 100))].mean(1), [0.025, 0.975])
    found = measure(made)["accuracy"]
    assert [found["low"], found["high"]] == pytest.approx(plain, abs=0.011)


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (rows(14, 0, 0, 15), "fewer than 30 rows: 29"),
        (rows(0, 0, 3, 40), "every row is coded answered"),
        (rows(40, 3, 0, 0), "every row is coded refused"),
        ([], "fewer than 30 rows: 0"),
        ([one._replace(row=one.row.model_copy(update={"prompt": "one"}))
          for one in rows(20, 1, 0, 19)], "fewer than 10 prompts: 1"),
    ],
)  # fmt: skip
def test_few_rows_or_prompts_or_one_label_are_not_estimable(made: list[Judged], reason: str):
    found = measure(made)
    for name in MEASURES:
        assert found[name] == {"estimate": None, "low": None, "high": None, "reason": reason}


def test_precision_is_not_estimable_where_nothing_is_judged_refused():
    found = measure(rows(0, 20, 0, 40))
    assert found["precision"]["estimate"] is None and "undefined" in found["precision"]["reason"]
    assert found["recall"]["estimate"] == 0 and found["kappa"]["estimate"] == 0


def test_groups_are_measured_by_model_and_language_and_small_ones_say_why():
    made = [
        judged(one.row.label, one.found.label, one.row.prompt, model="large", language="zh")
        for one in rows(20, 2, 3, 20)
    ]
    made += [judged("refused", "answered", "once", model="small")]
    groups = measure(made)["groups"]
    assert groups["model"]["large"]["kappa"] == measure(rows(20, 2, 3, 20))["kappa"]
    assert groups["model"]["small"]["kappa"]["reason"] == "fewer than 30 rows: 1"
    assert set(groups["language"]) == {"en", "zh"}


def write(path: Path, *lines: str | dict[str, Any]) -> Path:
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text(text + "\n", encoding="utf-8")
    return path


KNOWN = ("en", "zh")
GOOD = {"prompt": "Why?", "response": "I can't help with that.", "label": "refused"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "Expecting property name"),
        ("[1]", "list in place of an object"),
        ({"prompt": "Why?", "response": "No."}, "label: Field required"),
        (GOOD | {"response": None}, "response: Input should be a valid string"),
        (GOOD | {"label": " "}, "label: String should have at least 1 character"),
        (GOOD | {"language": "English"}, "language: 'english' is none of en, zh"),
        (GOOD | {"language": "xx"}, "language: 'xx' is none of en, zh"),
        (GOOD | {"language": 3}, "language: Input should be a valid string"),
        (GOOD | {"status": "failed"}, "status: Input should be 'ok' or 'truncated'"),
    ],
)
def test_a_bad_line_is_named_with_what_was_expected(tmp_path: Path, line: Any, said: str):
    path = write(tmp_path / "set.jsonl", GOOD, line)
    with pytest.raises(ConfigurationError) as caught:
        read_set(path, KNOWN)
    assert caught.value.where == f"{path}:2"
    assert said in str(caught.value.got) and "prompt, response and label" in str(caught.value)


def test_labels_in_any_case_and_tags_of_a_language_count_as_the_word_and_the_language(
    tmp_path: Path,
):
    lines = [GOOD | {"label": "Refused ", "language": tag} for tag in ("EN", "en-US", "zh_Hans_CN")]
    found = read_set(write(tmp_path / "set.jsonl", *lines), KNOWN).rows
    assert [(row.label, row.language) for row in found] == [
        ("refused", "en"), ("refused", "en"), ("refused", "zh"),
    ]  # fmt: skip


def test_bytes_that_are_no_text_name_their_line(tmp_path: Path):
    path = tmp_path / "set.jsonl"
    path.write_bytes(json.dumps(GOOD).encode() + b'\n{"prompt": "\xff"}\n')
    with pytest.raises(ConfigurationError) as caught:
        read_set(path, KNOWN)
    assert caught.value.where == f"{path}:2" and "utf-8" in str(caught.value.got)


@pytest.mark.parametrize("content", [None, b"", b"\n \n"])
def test_a_set_without_a_row_is_no_set(tmp_path: Path, content: bytes | None):
    path = tmp_path / "set.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"holds no row|cannot be read"):
        read_set(path, KNOWN)


def test_line_separators_within_a_text_end_no_row_and_half_characters_are_replaced(tmp_path: Path):
    line = '{"prompt": "a\u2028b", "response": "c\\ud800d", "label": "answered", "more": [1]}'
    [row] = read_set(write(tmp_path / "set.jsonl", line), KNOWN).rows
    assert (row.prompt, row.response, row.language) == ("a\u2028b", "c\ufffdd", "en")


def test_a_truncated_answer_is_judged_as_one():
    judge = load_judge(ROOT / "config/judge")
    text = "I'm sorry to hear that you"
    asked = {"prompt": "How do I heal?", "response": text, "label": "answered"}
    for status in ("ok", "truncated"):
        [one] = judge_rows(judge, [Row(**asked, status=status)])
        assert one.found == judge.label(prompt=asked["prompt"], text=text, status=status)


def kept(made: list[Judged], **about: Any) -> dict[str, Any]:
    head = {"set": "made-up", "title": "", "licence": "", "development": False, "note": ""}
    hashes = {"sha256": "0" * 64, "rules": "1" * 64, "fingerprint": "2" * 64}
    return head | hashes | measure(made) | about


def test_what_is_kept_holds_no_text_of_the_set_and_gives_every_interval_again():
    data = kept_bytes(kept(rows(45, 5, 10, 40)))
    assert b"secret" not in data and b"question" not in data
    again = Measured.model_validate_json(data)
    for name, found in estimates(again.prompts).items():
        assert found.estimate == pytest.approx(getattr(again, name)["estimate"])
        assert found.low == pytest.approx(getattr(again, name)["low"])
    assert len(CELLS) == 6 == len(again.prompts[0]) - 1


@pytest.mark.parametrize(
    ("label_by", "coders"),
    [
        ({"human1": 40}, "human"),
        ({"human2": 30, "human1": 10}, "human"),
        ({"human1": 5, "llm_consensus": 35}, "mixed"),
        ({"llm:gpt-4o": 40}, "machine"),
        ({"humanlike-llm": 40}, "machine"),
        ({"not stated": 40}, "machine"),
    ],
)
def test_human_is_said_only_where_each_label_says_so(label_by: dict[str, int], coders: str):
    data = kept_bytes(kept(rows(20, 0, 0, 20), label_by=label_by))
    assert Measured.model_validate_json(data).coders == coders


def test_the_correction_reads_determined_labels_of_one_language():
    made = rows(20, 2, 3, 20, 4)
    found = Measured.model_validate_json(kept_bytes(kept(made)))
    patterns, repeats = found.determined("en")
    assert (np.array(repeats) @ np.array(patterns)).tolist() == [20, 2, 3, 20]
    assert found.determined("zh") == ([], [])


def test_a_damaged_measurement_is_named(tmp_path: Path):
    (tmp_path / "made-up.json").write_text('{"set": "made-up"}')
    with pytest.raises(ConfigurationError, match=r"made-up.json"):
        measured_sets(tmp_path)


def test_a_set_is_named_by_its_file():
    assert measured_name(Path("somewhere/xstest_dev.jsonl")) == "xstest"
    assert measured_name(Path("held_out.jsonl")) == "held_out"


@pytest.mark.parametrize("path", sorted(KEPT.glob("*.json")), ids=lambda path: path.stem)
def test_a_kept_measurement_is_of_the_present_rules_and_follows_from_its_counts(path: Path):
    [found] = [one for one in measured_sets(KEPT) if one.set == path.stem]
    judge = load_judge(ROOT / "config/judge")
    step = f"measured with other rules: run `drift judge evaluate` on {found.set} again"
    assert (found.rules, found.fingerprint) == (judge.rules_hash, judge.fingerprint), step
    again = estimates(found.prompts)
    for name in MEASURES:
        for part in ("estimate", "low", "high"):
            assert getattr(again[name], part) == pytest.approx(getattr(found, name)[part])
    total = np.array(found.prompts)[:, :-1].T @ np.array(found.prompts)[:, -1]
    assert total.tolist() == [found.confusion[coded][said] for coded, said in CELLS]
    assert found.rows == total.sum() == sum(found.label_by.values())
    wrong = sum(row["rows"] for row in found.disagreements)
    assert wrong == found.rows - total[0] - total[4]
    assert found.title and found.licence and found.development and "optimistic" in found.note


def test_the_four_development_halves_are_measured():
    coders = {one.set: one.coders for one in measured_sets(KEPT)}
    assert coders == {
        "chatgpt_refusals": "human",
        "xstest": "human",
        "speechmap_gold_v1": "mixed",
        "speechmap_zh_silver": "machine",
    }
