"""Shapes held against what others coded: counts, estimates, and what a word admits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drift.config import project_root
from drift.errors import ConfigurationError
from drift.judging import load_judge, load_shape_coder
from drift.judging.measure import read_answers
from drift.judging.shape_measure import (
    CODES,
    EXPECTED,
    SAID,
    MeasuredShapes,
    ShapedRow,
    Stored,
    code_rows,
    figures,
    kept_bytes,
    load_proxies,
    measure_shapes,
    measured_shapes,
)
from drift.judging.shapes import Coded, Shape

ROOT = project_root()
FOLDER = ROOT / "config" / "shapes"
CODER = load_shape_coder(FOLDER, load_judge(ROOT / "config" / "judge"))
KEPT = measured_shapes(FOLDER / "measured")
ADMITS: dict[str, list[Shape]] = {"led": ["redirect"], "no": ["flat-no", "sermon"]}


def made(*rows: tuple[str, Shape | None, str]) -> tuple[list[ShapedRow], list[str]]:
    """Return made-up answers: the word of another, the shape, the prompt."""
    coded = [
        ShapedRow(
            Stored.model_validate({"prompt": prompt, "response": "secret"}),
            Coded(said, "made-up") if said else None,
        )
        for _, said, prompt in rows
    ]
    return coded, [word for word, _, _ in rows]


def test_recall_is_of_the_words_rows_and_precision_of_the_shapes() -> None:
    rows: list[tuple[str, Shape | None, str]] = []
    rows += [("led", "redirect", f"a{n}") for n in range(6)]
    rows += [("led", "sermon", f"b{n}") for n in range(2)]
    rows += [("led", None, f"c{n}") for n in range(4)]
    rows += [("no", "flat-no", f"d{n}") for n in range(5)]
    rows += [("no", "redirect", f"e{n}") for n in range(3)]
    rows += [("other", "redirect", f"f{n}") for n in range(9)]
    found = measure_shapes(*made(*rows), ADMITS)
    assert found["words"]["led"]["recall"]["estimate"] == 0.5
    assert found["words"]["led"]["recall_if_refused"]["estimate"] == 0.75
    assert found["words"]["no"]["recall"]["estimate"] == 0.625
    assert found["shapes"]["redirect"]["rows"] == 9
    assert found["shapes"]["redirect"]["precision"]["estimate"] == pytest.approx(2 / 3)
    assert found["confusion"]["other"]["redirect"] == 9 and "other" not in found["words"]


def test_what_the_judge_let_through_of_a_word_that_admits_no_shape_counts_as_wrong() -> None:
    rows: list[tuple[str, Shape | None, str]] = []
    rows += [("led", "redirect", f"a{n}") for n in range(6)]
    rows += [("fine", "redirect", f"b{n}") for n in range(2)]
    rows += [("fine", None, f"c{n}") for n in range(30)]
    told = measure_shapes(*made(*rows), ADMITS | {"fine": []})
    untold = measure_shapes(*made(*rows), ADMITS)
    assert told["shapes"]["redirect"]["precision"]["estimate"] == 0.75
    assert untold["shapes"]["redirect"]["precision"]["estimate"] == 1
    assert told["admits"]["fine"] == [] and "fine" not in told["words"]


def test_a_shape_that_no_word_admits_alone_has_no_precision() -> None:
    rows: list[tuple[str, Shape | None, str]] = []
    rows += [("no", "sermon", f"a{n}") for n in range(5)]
    rows += [("led", "sermon", f"b{n}") for n in range(2)]
    rows += [("led", "mixed", f"c{n}") for n in range(3)]
    found = measure_shapes(*made(*rows), ADMITS)["shapes"]
    assert (found["sermon"]["rows"], found["sermon"]["not_contradicted"]) == (7, 5)
    assert found["mixed"]["rows"] == 3 and found["mixed"]["not_contradicted"] is None
    for shape in ("sermon", "mixed", "flat-no"):
        precision = found[shape]["precision"]
        assert found[shape]["right"] is precision["estimate"] is precision["low"] is None
    assert "other shapes" in found["sermon"]["precision"]["reason"]
    assert "no word" in found["mixed"]["precision"]["reason"]


def test_a_set_without_a_word_for_a_shape_has_no_figure_of_shapes() -> None:
    found = measure_shapes(*made(("fine", "sermon", "a"), ("fine", None, "b")), {"fine": []})
    assert found["words"] == found["shapes"] == {}
    assert found["confusion"]["fine"]["sermon"] == 1


def test_one_row_a_prompt_has_wilsons_limits_and_several_a_bootstrap_or_none() -> None:
    single = measure_shapes(*made(*[("led", "redirect", str(n)) for n in range(5)]), ADMITS)
    low = single["words"]["led"]["recall"]["low"]
    assert 0.5 < low < 1 and single["words"]["led"]["recall"]["high"] == 1
    few = measure_shapes(*made(*[("led", "redirect", "one") for _ in range(40)]), ADMITS)
    assert few["words"]["led"]["recall"]["reason"] == "fewer than 10 prompts: 1"
    rows: list[tuple[str, Shape | None, str]] = []
    for n in range(20):
        rows += [("led", "redirect" if n % 3 else "sermon", str(n))] * 3
    many = measure_shapes(*made(*rows), ADMITS)["words"]["led"]["recall"]
    plain = measure_shapes(*made(*[(w, s, f"{p}{n}") for n, (w, s, p) in enumerate(rows)]), ADMITS)[
        "words"
    ]["led"]["recall"]
    assert many["estimate"] == plain["estimate"]
    assert many["high"] - many["low"] > plain["high"] - plain["low"]


def test_a_figure_without_a_row_is_not_estimable() -> None:
    found = measure_shapes(*made(("led", None, "a")), ADMITS)
    assert found["words"]["led"]["recall"]["estimate"] == 0
    assert found["words"]["led"]["recall_if_refused"]["reason"] == "no row"
    assert found["shapes"]["redirect"]["precision"]["estimate"] is None


def test_what_is_kept_holds_no_text_of_the_set() -> None:
    about: dict[str, Any] = dict.fromkeys(
        ("title", "licence", "sha256", "rules", "fingerprint"), ""
    )
    about |= {"set": "made-up", "field": "word", "limits": ["made up"]}
    data = kept_bytes(about | measure_shapes(*made(("led", "redirect", "a question")), ADMITS))
    assert b"secret" not in data and b"question" not in data
    assert MeasuredShapes.model_validate_json(data).words["led"]["rows"] == 1


@pytest.mark.parametrize("found", KEPT, ids=[one.set for one in KEPT])
def test_a_kept_measurement_is_of_the_present_rules_and_follows_from_its_counts(
    found: MeasuredShapes,
) -> None:
    step = "measured with other rules: run `drift shapes FILE --against FIELD --keep` again"
    assert (found.rules, found.fingerprint) == (CODER.rules_hash, CODER.fingerprint), step
    again = figures(found.prompts, [*found.confusion], found.admits)
    assert again == {name: getattr(found, name) for name in ("confusion", "words", "shapes")}
    stated = load_proxies(FOLDER / "proxies.toml")[found.set]
    assert (found.field, found.limits) == (stated.field, stated.limits)
    total = np.array(found.prompts)[:, :-1].T @ np.array(found.prompts)[:, -1]
    assert total.tolist() == [n for row in found.confusion.values() for n in row.values()]


def test_each_proxy_is_measured_and_states_its_limits() -> None:
    proxies = load_proxies(FOLDER / "proxies.toml")
    sets = {"chatgpt_refusals", "xstest", "own_texts", "held_out"}
    assert {one.set for one in KEPT} == proxies.keys() == sets
    assert all(one.limits and one.licence for one in proxies.values())


def test_texts_of_our_own_are_coded_no_worse_than_when_they_were_scored() -> None:
    """Floors under what was reached; since version 2 the rules are fitted to these texts."""
    path = Path(__file__).parent / "texts" / "shapes.jsonl"
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert (
        len({row["response"] for row in lines}) == len({row["id"] for row in lines}) == len(lines)
    )
    rows, _ = read_answers(path, CODER.judge.names, Stored.model_validate, expected=EXPECTED)
    right = [
        one.said == line["shape"] for one, line in zip(code_rows(CODER, rows), lines, strict=True)
    ]
    refused = [one.coded is not None for one in code_rows(CODER, rows)]
    assert sum(right) >= 58 and sum(refused) >= 58


def write(path: Path, *lines: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path


def test_an_answer_is_read_under_any_of_its_names(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.jsonl",
        {"question": "q", "answer": "a", "topic": "t", "coded": "x"},
        {"prompt": "q", "text": "b", "language": "zh-CN", "status": "blocked"},
    )
    rows, _ = read_answers(path, CODER.judge.names, Stored.model_validate, expected=EXPECTED)
    assert [(row.prompt, row.response, row.language) for row in rows] == [
        ("q", "a", "en"),
        ("q", "b", "zh"),
    ]
    assert (rows[0].model_extra or {})["coded"] == "x"
    assert len(code_rows(CODER, rows)) == 1


def test_a_damaged_file_of_proxies_or_measurements_is_named(tmp_path: Path) -> None:
    (tmp_path / "proxies.toml").write_text('[[set]]\nname = "x"\n')
    with pytest.raises(ConfigurationError, match="proxies"):
        load_proxies(tmp_path / "proxies.toml")
    (tmp_path / "x.json").write_text('{"set": "x"}')
    with pytest.raises(ConfigurationError, match=r"x\.json"):
        measured_shapes(tmp_path)


def test_what_can_be_said_is_every_shape_but_the_one_that_no_rule_sees() -> None:
    assert "scope-narrow" not in SAID and len(CODES) == 7
