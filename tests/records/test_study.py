"""A study that was read: agreement, adjudication, rates, and labels to seal.

Every label here is made up, by a rule or a seed; no person has read anything.
"""

from __future__ import annotations

import csv
import io
import random
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from studies import judged, made_up, marks

from drift.config import sha256_hex
from drift.errors import ConfigurationError, IntegrityError
from drift.records.draw import Place, key_bytes
from drift.records.readers import compare
from drift.records.sheet import Marks, sheet_bytes
from drift.records.study import (
    Study,
    adjudicated,
    disagreements,
    label_lines,
    read_coders,
    read_study,
    too_few,
)
from drift.stats.agreement import ORDER


def slipping(study: Study, name: str, share: float, seed: int) -> Marks:
    """Return made-up labels: the judge's, but for a share that is drawn at random."""
    chance = random.Random(seed)
    labels = {
        row: chance.choice(ORDER) if chance.random() < share else label
        for row, label in judged(study).items()
    }
    return marks(name, labels)


def test_a_coder_who_says_what_the_judge_says_agrees_wholly_and_moves_no_rate() -> None:
    study = made_up()
    found = compare(study, [marks("ana", judged(study))])
    (pair,) = found["pairs"]
    assert (pair["first"], pair["second"], pair["rows"]) == ("judge", "made-up-ana", 125)
    assert pair["raw"]["estimate"] == 1 and pair["raw"]["low"] < 1
    assert pair["kappa"]["estimate"] == 1 and pair["kappa"]["low"] is None
    for rate in found["rates"]:
        share = rate["judged"]["refused"] / rate["judged"]["n"]
        for name in ("design_based", "prediction_powered"):
            assert rate[name]["estimate"] == pytest.approx(share)
            assert rate[name]["low"] < share < rate[name]["high"]


def test_the_tables_count_what_was_read_and_what_it_speaks_for() -> None:
    study = made_up()
    labels = judged(study) | {"000000000000": "refused", "000200000001": "undetermined"}
    (pair,) = compare(study, [marks("ana", labels)])["pairs"]
    answered = ORDER.index("answered")
    assert pair["counts"][answered] == [1, 1, 93]
    assert pair["weighted"][answered] == [4, 2, 284]
    assert sum(map(sum, pair["weighted"])) == 340
    kappas = [pair[name]["estimate"] for name in ("kappa", "weighted_kappa")]
    assert kappas[0] < 1 and kappas[1] < 1 and kappas[0] != kappas[1]


def test_a_coder_who_finds_more_refusals_raises_the_rate_by_their_weight() -> None:
    study = made_up()
    labels = judged(study) | {f"0000{n:08x}": "refused" for n in range(5)}
    rates = {it["model"]: it for it in compare(study, [marks("ana", labels)])["rates"]}
    assert rates["m1"]["judged"] == {"refused": 40, "n": 240}
    assert rates["m1"]["design_based"]["estimate"] == pytest.approx((40 + 5 * 4) / 240)
    assert rates["m1"]["prediction_powered"]["estimate"] == pytest.approx((40 + 5 * 4) / 240)
    assert rates["m2"]["design_based"]["estimate"] == pytest.approx(0.1)


def test_two_coders_are_compared_with_each_other_and_the_judge_and_what_came_of_them() -> None:
    study = made_up()
    one, two = slipping(study, "ana", 0.1, 1), slipping(study, "ben", 0.2, 2)
    third = marks("cleo", {row: "undetermined" for row in disagreements(one, two)})
    final = adjudicated(one, two, third)
    found = compare(study, [one, two], final)
    assert [(it["first"], it["second"]) for it in found["pairs"]] == [
        ("made-up-ana", "made-up-ben"),
        ("judge", "made-up-ana"),
        ("judge", "made-up-ben"),
        ("judge", "adjudicated"),
    ]
    for pair in found["pairs"]:
        assert pair["kappa"]["low"] < pair["kappa"]["estimate"] < pair["kappa"]["high"]
    assert {rate["reader"] for rate in found["rates"]} == {"adjudicated"}
    assert found == compare(study, [one, two], final)


def test_of_too_few_answers_or_one_label_nothing_is_estimated_and_the_reason_is_said() -> None:
    study = made_up()
    few = dict(list(judged(study).items())[:29])
    found = compare(study, [marks("ana", few)])
    assert found["pairs"][0]["kappa"]["reason"] == "fewer than 30 answers were labelled by both"
    assert found["rates"][0]["design_based"]["estimate"] is None
    assert "fewer than 100 answers of our own are coded (29)" in str(found["rates"])
    alike = compare(study, [marks("ana", dict.fromkeys(judged(study), "answered"))])
    for name in ("raw", "kappa", "weighted_kappa"):
        assert alike["pairs"][0][name]["reason"] == "one class only"
    none = compare(study, [marks("ana", {})])
    assert none["pairs"][0]["raw"]["estimate"] is None and none["pairs"][0]["weighted"] is None


def test_a_stratum_that_nobody_read_leaves_its_model_without_a_rate() -> None:
    study = made_up()
    labels = {row: it for row, it in judged(study).items() if not row.startswith("0003")}
    rates = {it["model"]: it for it in compare(study, [marks("ana", labels)])["rates"]}
    assert rates["m1"]["design_based"]["estimate"] is not None
    assert rates["m2"]["design_based"]["reason"] == (
        "1 of its 2 strata have no answer that was coded"
    )


def test_a_model_of_which_few_answers_were_read_has_no_corrected_rate() -> None:
    study = made_up(
        [
            ("m1", "answered", "en", 200, 60),
            ("m1", "refused", "en", 40, 20),
            ("m2", "answered", "en", 90, 19),
            ("m2", "refused", "en", 10, 10),
        ]
    )
    rates = {it["model"]: it for it in compare(study, [marks("ana", judged(study))])["rates"]}
    assert rates["m1"]["prediction_powered"]["low"] is not None
    for name in ("design_based", "prediction_powered"):
        assert rates["m2"][name]["estimate"] is None
        assert rates["m2"][name]["reason"] == "fewer than 30 of its answers are coded (29)"


@pytest.mark.parametrize(
    ("drawn", "there", "said", "helps"),
    [
        ((80, 29), (240, 100), "m2, en (29 of 100)", "a larger --n, --arms all, further"),
        ((80, 29), (240, 29), "m2, en (29 of 29)", "--arms all, further runs by --run"),
        (
            (69, 30),
            (240, 100),
            "no model gets a corrected rate: 99 answers",
            "a larger --n, --arms",
        ),
        ((69, 30), (69, 30), "no model gets a corrected rate: 99 answers", "--arms all, further"),
        ((70, 30), (240, 100), "", ""),
    ],
)
def test_a_draw_says_which_rates_could_not_be_corrected_if_all_of_it_was_read(
    drawn: tuple[int, int], there: tuple[int, int], said: str, helps: str
) -> None:
    models = zip(("m1", "m2"), there, drawn, strict=True)
    study = made_up([(model, "answered", "en", units, n) for model, units, n in models])
    found = too_few(study.key)
    assert said in "".join(found[:1]) and helps in "".join(found[1:])
    rates = compare(study, [marks("ana", judged(study))])["rates"]
    none = [it["model"] for it in rates if it["design_based"]["estimate"] is None]
    assert bool(none) == bool(found) and (len(none) == 2 or all(it in found[0] for it in none))
    everything = study.key.model_copy(update={"arms": "all"})
    assert "--arms" not in "".join(too_few(everything))


def test_who_stops_early_has_read_a_smaller_part_of_each_stratum() -> None:
    study = made_up()
    labels = {row: it for row, it in judged(study).items() if int(row[4:], 16) % 2 == 0}
    labels |= {f"0000{n:08x}": "answered" for n in range(50)}
    found = compare(study, [marks("ana", labels)])
    assert found["pairs"][0]["not_coded"] == 125 - len(labels)
    assert sum(map(sum, found["pairs"][0]["weighted"])) == pytest.approx(340)


def test_the_adjudicator_decides_only_what_two_call_differently_and_all_of_it() -> None:
    study = made_up()
    one = marks("ana", judged(study))
    two = marks("ben", judged(study) | {"000000000000": "refused", "000000000001": "refused"})
    assert disagreements(one, two) == ["000000000000", "000000000001"]
    third = marks("cleo", {"000000000000": "undetermined"})
    with pytest.raises(ConfigurationError, match="1 of 2 disagreements are not adjudicated"):
        adjudicated(one, two, third)
    third.labels["000000000001"] = "refused"
    more = replace(third, labels={**third.labels, "000000000002": "refused"})
    with pytest.raises(ConfigurationError, match="do not call differently"):
        adjudicated(one, two, more)
    final = adjudicated(one, two, third)
    moved = {row: it for row, it in final.labels.items() if it != judged(study)[row]}
    assert moved == {"000000000000": "undetermined", "000000000001": "refused"}


def test_labels_to_seal_name_every_response_with_its_probability() -> None:
    study = made_up()
    row = study.key.rows["000100000000"]
    again = Place(run="20260302T000500Z", model="m1", key="t/q-1-0#en-1")
    unit = row.units[0].model_copy(update={"responses": (again, *row.units[0].responses)})
    rows = study.key.rows | {"000100000000": row.model_copy(update={"units": (unit,)})}
    study = replace(study, key=study.key.model_copy(update={"rows": rows}))
    lines = label_lines(study, marks("ana", {"000100000000": "refused"})).splitlines()
    found = [orjson.loads(line) for line in lines]
    assert [line["run"] for line in found] == ["20260301T000500Z", "20260302T000500Z"]
    for line in found:
        assert (line["label"], line["rule"], line["span"]) == ("refused", "reader", None)
        assert line["drawn"] == [1, 40]
        assert line["text_sha256"] == sha256_hex(b"answer 0")


def folder(study: Study, path: Path) -> Path:
    (path / "key.json").write_bytes(key_bytes(study.key))
    (path / "sheet.csv").write_bytes(sheet_bytes(study.sheet.values()))
    return path


def test_a_study_is_read_back_and_a_sheet_that_was_changed_is_not(tmp_path: Path) -> None:
    study = made_up()
    found = read_study(folder(study, tmp_path))
    assert (found.key, found.sheet) == (study.key, study.sheet)
    path = tmp_path / "sheet.csv"
    for change in ((b"answer 7", b"answer 8"), (b"Why?", b"Who?")):
        path.write_bytes(sheet_bytes(study.sheet.values()).replace(*change))
        with pytest.raises(IntegrityError, match="not the one that its key was drawn with"):
            read_study(tmp_path)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"units": 200', b'"units": 2600'),
        (b'"label": "answered"', b'"label": "undetermined"'),
        (b'"inclusion": 0.25', b'"inclusion": 0.5'),
        (b'"key": "t/q-0-0#en-1"', b'"key": "t/q-0-1#en-1"'),
        (b'"panel": "test"', b'"panel": "other"'),
    ],
)
def test_a_key_that_was_changed_after_the_draw_is_no_key(
    tmp_path: Path, before: bytes, after: bytes
) -> None:
    path = folder(made_up(), tmp_path) / "key.json"
    assert before in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(before, after))
    with pytest.raises(IntegrityError, match="not the one that its study is named by"):
        read_study(tmp_path)


def handed_in(path: Path, made: Study, /, **more: str) -> Path:
    """Write a file with made-up labels as the page would export it."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream)
    writer.writerow(["id", "label", *more])
    writer.writerows([row, label, *more.values()] for row, label in judged(made).items())
    path.write_text(stream.getvalue())
    return path


def test_coders_are_told_apart_by_name_and_studies_by_theirs(tmp_path: Path) -> None:
    study = made_up()
    one = handed_in(tmp_path / "made-up-ana.csv", study)
    two = handed_in(tmp_path / "b.csv", study, coder="made-up-ben", study=study.key.study)
    assert [it.coder for it in read_coders(study, [one, two])] == ["made-up-ana", "made-up-ben"]
    same = handed_in(tmp_path / "c.csv", study, coder="made-up-ana")
    wrong = [
        ([one, same], "who are not the same"),
        ([one, two, two], "who are not the same"),
        ([handed_in(tmp_path / "adjudicated.csv", study)], "not a coder's name"),
        ([handed_in(tmp_path / "judge.csv", study)], "not a coder's name"),
        ([handed_in(tmp_path / "d.csv", study, coder="Made Up")], "not a coder's name"),
        ([handed_in(tmp_path / "e.csv", study, study="1" * 16)], "another study"),
    ]
    for paths, said in wrong:
        with pytest.raises(ConfigurationError, match=said):
            read_coders(study, paths)
