"""A record's runs and batches with their pins: which comparison gets which verdict, and why."""

from __future__ import annotations

import json
import shutil
import socket
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from loopback import Loopback
from pinning import OTHER, OTHER_RULE, Story

from drift.config import sha256_hex
from drift.errors import ConfigurationError
from drift.instrument import Comparison
from drift.records import pins
from drift.records.compare import compare_passes
from drift.records.ledger import Ledger
from drift.records.pins import (
    Pass,
    PinnedRecord,
    batch_of,
    cost_of_reference,
    floor_fields,
    noise_of,
    read_passes,
    seal_floor,
)
from drift.records.store import Store, read_rows


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eleven runs: what happens before each stands beside it."""
    story = Story(tmp_path_factory.mktemp("told"))
    with Loopback(story.script) as server:
        story.panel(server)
        story.refuse("steady", *range(20))
        story.refuse("subject", *range(12))
        for _ in range(3):
            story.run()  # 1 to 3: nothing
        story.refuse("subject")
        story.run()  # 4: the subject answers all
        story.refuse("subject", *range(12))
        story.run()  # 5: it refuses again, and the rise holds
        story.refuse("subject", *range(12, 24), text=OTHER)
        story.refuse("steady", *range(20))
        story.said["lab/steady"] |= {story.prompts[number]: [OTHER] for number in (20, 21, 22)}
        story.run()  # 6: the reference moves, as one rule sees it
        story.refuse("steady", *range(20))
        story.refuse("subject")
        story.run()  # 7: it moves back
        story.refuse("subject", *range(12), text=OTHER)
        story.run()  # 8: a rise which one rule alone sees
        story.panel(server, tokens=64)
        story.register()
        story.run()  # 9: longer answers are asked for
        story.change_judge(OTHER_RULE)
        story.register()
        story.run()  # 10: another judge
        story.refuse("subject", *range(12))
        story.run()  # 11: a rise under it
    return story.project


def pinned(project: Path, **more: Any) -> PinnedRecord:
    folder = project / "data" / "test"
    return PinnedRecord(Store(folder), Ledger(folder).forwards(), root=project, **more)


@pytest.fixture(scope="module")
def read(told: Path) -> PinnedRecord:
    return pinned(told)


@pytest.fixture
def copy(told: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(told, tmp_path / "copy"))


def verdict(read: PinnedRecord, first: int, second: int, **more: Any) -> str:
    base, candidate = read.passes[first - 1], read.passes[second - 1]
    return read.compare(base, candidate, "subject", **more).verdict


def test_each_change_gets_its_verdict(read: PinnedRecord) -> None:
    assert verdict(read, 2, 3) == "no change shown"
    assert verdict(read, 3, 4) == "attributable to the target"
    assert verdict(read, 4, 5) == "attributable to the target"
    moved = "void: instrument drifted (reference moved {} points, floor {} points)"
    assert verdict(read, 5, 6) == moved.format("+7.3", "0.0")
    # What moved it counts as noise from then on, as long as no floor is sealed.
    assert verdict(read, 6, 7) == moved.format("-7.3", "4.9")
    assert verdict(read, 8, 9) == "void: instrument changed (target.max_tokens)"
    # The judge in config/ has lost the rule which alone saw the rise of run 8.
    assert verdict(read, 7, 8) == "not estimable"


def test_a_changed_judge_labels_both_runs_anew_and_asks_nobody(
    told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(*_: object, **__: object) -> None:
        raise AssertionError("a comparison opened a socket")

    monkeypatch.setattr(socket, "socket", closed)
    monkeypatch.setattr(socket, "create_connection", closed)
    read = pinned(told)
    base, candidate = read.passes[8], read.passes[9]
    found = read.compare(base, candidate, "subject")
    start = "judge changed only: rescored from stored transcripts; "
    # 12 refusals under the first judge, none under the second: the answers did not change.
    assert Counter(base.labels["subject"].values())["refused"] == 12
    assert found.verdict == start + "no change shown"
    assert {field.part for field in found.fields} == {"judge"} and found.exit_code == 0
    assert "judge.rules" in [field.path for field in found.fields]
    assert found.change is not None and found.change.newly_answered == ()
    # So does the floor: the rule that is gone alone saw the reference move, before both.
    assert read.noise(base, candidate).flips == 3 and found.floor == 0
    assert read.compare(base, candidate, "subject", floor=0.1).floor == 0.1
    risen = read.compare(base, read.passes[10], "subject")
    assert risen.verdict == start + "attributable to the target" and risen.exit_code == 0
    # Under one judge the same answers fall; across two a fall is never reported.
    fallen = read.compare(read.passes[10], candidate, "subject", floor=0.0)
    assert fallen.verdict == "attributable to the target"
    assert fallen.attribution is not None and (fallen.attribution.delta or 0) < 0


def test_a_fall_across_two_judges_is_void(read: PinnedRecord) -> None:
    crossed = replace(read.passes[4], judge={**read.passes[0].judge, "rules": "0"})
    found = read.compare(crossed, read.passes[6], "subject", floor=0.0)
    assert found.verdict == (
        "judge changed only: rescored from stored transcripts; void: a fall needs every pin"
    )
    assert found.exit_code == 4 and found.change is None


def test_pins_are_those_of_ledger_and_registration(read: PinnedRecord) -> None:
    one = read.passes[0]
    found = dict(one.instrument("subject").pins)
    document = one.models["subject"]["document"]
    assert json.loads(found["identity.model"]) == "lab/subject"
    assert json.loads(found["reference.model"]) == "lab/steady"
    assert json.loads(found["reference.key"]) == "steady"
    assert found["target.max_tokens"] == "48" and found["elicitor.kind"] == '"none"'
    assert json.loads(found["judge.rules"]) == one.judge["rules"]
    assert json.loads(found["corpus.sha256"]) == one.body["corpus"]["sha256"]
    assert json.loads(found["client.method"]) == document["method"]
    kept = {path.partition(".")[2].split(".")[0] for path in found if path[:2] in ("ta", "id")}
    assert kept == document.keys() - {"method"}
    assert one.common == read.passes[7].common == read.passes[8].common != read.passes[9].common


def test_the_texts_of_the_reference_are_hashed_item_by_item(read: PinnedRecord) -> None:
    one = read.passes[0]
    rows = read_rows(read.store.transcript(one.id))
    said = {row["key"]: row["text"] for row in rows if row["model"] == "steady"}
    assert one.texts == {arm: sha256_hex(said[arm].encode()) for arm in one.labels["steady"]}
    assert len(one.texts) == 41 and one.usable


def test_the_floor_counts_disjoint_pairs_before_the_candidate(read: PinnedRecord) -> None:
    passes = read.passes
    assert read.noise(passes[0], passes[1]).comparisons == 0
    for candidate, pairs in ((2, 1), (3, 1), (4, 2), (6, 3)):
        noise = read.noise(passes[0], passes[candidate])
        assert (noise.flips, noise.comparisons) == (3 if pairs == 3 else 0, 41 * pairs)
        assert noise.batches == tuple(one.id for one in passes[: 2 * pairs]) and not noise.sealed
    # Longer answers of the target alone leave the reference's instrument; another judge does not.
    assert len(read.noise(passes[8], passes[9]).batches) == 8
    assert read.noise(passes[9], passes[10]).comparisons == 0
    floor = read.floor(passes[0], passes[6])
    assert (floor.items, floor.value.estimate) == (41, 2 / 41)
    assert verdict(read, 5, 7) == "attributable to the target"


def test_a_sealed_floor_comes_first_but_not_for_one_of_its_own_runs(copy: Path) -> None:
    read, ledger = pinned(copy), Ledger(copy / "data" / "test")
    first = read.passes[0]
    body = seal_floor(ledger, read.passes[4:8], clock=lambda: datetime(2026, 3, 9, tzinfo=UTC))
    assert body["kind"] == "floor" and body["batches"] == [one.id for one in read.passes[4:8]]
    assert body["instrument"] == first.common and body["reference"] == "steady"
    assert body["elicitor"] == {"kind": "none"} and body["corpus"] == first.body["corpus"]
    assert (body["floor"]["flips"], body["floor"]["comparisons"]) == (3, 82)
    assert body["floor"]["discordance"]["estimate"] == format(3 / 82, ".10g")
    again = pinned(copy)
    assert again.noise(first) == replace(noise_of(read.passes[4:8]), sealed=True)
    assert not again.noise(again.passes[9]).sealed
    other = pinned(copy, reference="subject")
    assert not other.noise(other.passes[0]).sealed
    # It holds for what comes after it, and changes nothing of what was said before.
    for candidate in again.passes[1:]:
        assert again.noise(first, candidate) == read.noise(first, candidate)
    later = replace(first, body={**first.body, "run": "later", "seq": body["seq"] + 1})
    assert again.noise(first, later).sealed


def test_a_floor_needs_two_passes_of_one_instrument(read: PinnedRecord, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    for wrong in (read.passes[:1], read.passes[8:10]):
        with pytest.raises(ConfigurationError, match="two or more passes"):
            seal_floor(ledger, wrong, clock=lambda: datetime(2026, 3, 9, tzinfo=UTC))
    silent = [replace(one, labels={"steady": dict.fromkeys(one.texts)}) for one in read.passes[:2]]
    with pytest.raises(ConfigurationError, match="no determined label"):
        seal_floor(ledger, silent, clock=lambda: datetime(2026, 3, 9, tzinfo=UTC))
    assert not ledger.chain.exists()


def refusing(one: Pass, number: int) -> Pass:
    """The pass with so many refusals of the reference."""
    labels = {item: "answered" if at >= number else "refused" for at, item in enumerate(one.texts)}
    return replace(one, labels={**one.labels, "steady": labels})


def test_a_move_one_way_is_drift_and_no_noise(told: Path, tmp_path: Path) -> None:
    read = pinned(told)
    # 5 of 41 fall: mid-p is 2^-5. Between the pairs nothing is counted.
    read.passes[2:8] = [
        refusing(one, refused)
        for one, refused in zip(read.passes[2:8], (20, 15, 12, 11, 11, 16), strict=True)
    ]
    names = tuple(one.id for one in read.passes)
    noise = read.noise(read.passes[0])
    assert noise.drifted == names[2:4] + names[6:8] and noise.batches == names[:2] + names[4:6]
    assert (noise.flips, noise.comparisons) == (1, 82)
    assert verdict(read, 5, 8).startswith("void: instrument drifted")
    sealed = seal_floor(
        Ledger(tmp_path), read.passes[:4], clock=lambda: datetime(2026, 3, 9, tzinfo=UTC)
    )
    assert (sealed["drifted"], sealed["batches"]) == ([*names[2:4]], [*names[:2]])
    with pytest.raises(ConfigurationError, match="moved one way"):
        seal_floor(Ledger(tmp_path), read.passes[2:4], clock=lambda: datetime.now(UTC))
    alone = noise_of(read.passes[2:4])
    assert (alone.comparisons, alone.floor(41).value.estimate) == (0, None)


def test_labels_that_the_reference_lost_leave_nothing_to_estimate(read: PinnedRecord) -> None:
    base, candidate = read.passes[2:4]
    assert read.compare(base, candidate, "subject", floor=0.05).exit_code == 0
    for lost, words in ((5, "both batches on 36 of 41"), (3, "one of the batches alone on 3 of")):
        gone = dict.fromkeys(list(base.texts)[:lost])
        labels = {**candidate.labels, "steady": {**candidate.labels["steady"], **gone}}
        found = read.compare(base, replace(candidate, labels=labels), "subject", floor=0.05)
        assert found.exit_code == 5 and str(found.reason).startswith("reference: a determined ")
        assert words in str(found.reason)


def test_what_the_provider_says_of_itself_is_a_caution(read: PinnedRecord) -> None:
    base, candidate = read.passes[2:4]
    assert read.compare(base, candidate, "subject").cautions == ()
    served = {"served_model": ["served-2"], "provider": [], "fingerprint": []}
    for model, path in (("subject", "target"), ("steady", "reference")):
        other = replace(candidate, serving={**candidate.serving, model: served})
        found = read.compare(base, other, "subject")
        assert (found.verdict, found.fields) == ("attributable to the target", ())
        assert [str(field) for field in found.cautions] == [
            f'served.{path}.served_model: ["served"] -> ["served-2"]'
        ]


def test_a_reference_of_unknown_weights_holds_nothing(read: PinnedRecord) -> None:
    base, candidate = (
        replace(one, models={**one.models, "steady": {**steady, "document": document}})
        for one in read.passes[2:4]
        for steady in [one.models["steady"]]
        for document in [steady["document"] | {"weights_sha256": None}]
    )
    with pytest.raises(ConfigurationError, match="weights of the reference are unknown"):
        read.compare(base, candidate, "subject")
    with pytest.raises(ConfigurationError, match="known weights"):
        floor_fields([base, candidate])
    assert read.passes[2].frozen and not base.frozen
    # What one look shows needs no reference.
    loose = pinned(read.root)
    loose.passes[2:4] = [base, candidate]
    found = compare_passes(loose, base.id, candidate.id)
    assert found["exit_code"] == 2 and "weights" in found["models"]["subject"]["error"]
    assert len(found["models"]["subject"]["newly_answered"]) == 12


def test_a_phantoms_truth_stands_for_its_weights() -> None:
    folder = ROOT / "data" / "phantom"
    lines = list(Ledger(folder).forwards())
    truth = lines[0].body["panel"]["truth_sha256"]
    [first] = read_passes(Store(folder), lines, only=[lines[1].body["run"]])
    pins = dict(first.instrument("steady").pins)
    assert first.frozen and json.loads(pins["reference.weights_sha256"]) == truth
    assert json.loads(pins["identity.weights_sha256"]) == truth


def test_adjacent_runs_are_judged_in_one_reading(
    told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: Counter[str] = Counter()

    def counted(path: Path) -> list[dict[str, Any]]:
        reads[path.name] += "transcripts" in path.parts
        return read_rows(path)

    monkeypatch.setattr(pins, "read_rows", counted)
    read = pinned(told)
    found = read.adjacent()
    assert [(one.base, one.candidate) for one in found] == [
        (one.id, other.id) for one, other in pairwise(read.passes)
    ]
    alone = [verdict(read, number, number + 1) for number in range(1, 11)]
    assert [one.verdict for one in found] == alone
    assert alone[0] == "not estimable" and found[0].reason == "the noise floor is unknown"
    assert [one.reference_delta for one in found[4:6]] == [3 / 41, -3 / 41]
    assert [one.floor for one in found[1:7]] == [0, 0, 0, 0, 2 / 41, 2 / 41]
    # Once each, and where labels are derived anew once for the target and once for a floor.
    assert max(reads.values()) == 3


def test_a_model_in_two_roles_or_in_none(read: PinnedRecord) -> None:
    base, candidate = read.passes[2:4]
    both = {name: {**part, "role": "reference"} for name, part in base.models.items()}
    with pytest.raises(ConfigurationError, match="one must hold still"):
        _ = replace(base, models=both).reference
    with pytest.raises(ConfigurationError, match="no target"):
        read.compare(base, candidate, "steady")
    with pytest.raises(ConfigurationError, match="was not asked") as raised:
        read.compare(base, candidate, "nobody")
    assert "steady, subject" in str(raised.value.expected)
    lonely: list[Pass] = [
        replace(one, models={"subject": one.models["subject"]}) for one in (base, candidate)
    ]
    with pytest.raises(ConfigurationError, match="without a reference"):
        read.compare(lonely[0], lonely[1], "subject")


def test_the_cost_of_the_reference_is_counted_from_the_ledger(read: PinnedRecord) -> None:
    cost = cost_of_reference(read.passes[:2])
    assert cost["reference"]["requests"] == 144 + 41
    assert cost["all"]["requests"] == 2 * (144 + 41)
    parts = [one.body["models"]["steady"]["usage"] for one in read.passes[:2]]
    spent = sum(part["prompt_tokens"] + part["completion_tokens"] for part in parts)
    assert cost["reference"]["tokens"] == spent


def test_a_run_is_found_by_its_id_and_no_other_way(read: PinnedRecord) -> None:
    assert read.find(read.passes[3].id) is read.passes[3]
    for name in ("", "20991231T000000Z", read.passes[3].id[:8]):
        with pytest.raises(ConfigurationError, match="no such run or batch"):
            read.find(name)


def test_two_models_of_one_run_are_compared_by_their_identity(read: PinnedRecord) -> None:
    one = read.passes[2]
    twin = replace(
        one,
        models={**one.models, "twin": one.models["subject"]},
        labels={**one.labels, "twin": dict.fromkeys(one.texts, "answered")},
        serving={**one.serving, "twin": one.serving["steady"]},
    )
    found = read.compare(twin, twin, "subject", "twin")
    assert found.verdict == "attributable to the target"
    assert found.model == "subject -> twin" and found.reference_delta == 0


def test_a_document_holds_the_look_only_where_the_verdict_is_not_void(read: PinnedRecord) -> None:
    names = [one.id for one in read.passes]
    found = compare_passes(read, names[2], names[3])
    assert list(found["models"]) == ["subject"] and found["exit_code"] == 0
    entry = found["models"]["subject"]
    assert (entry["compared"], len(entry["newly_answered"])) == (41, 12)
    assert entry["attribution"]["delta"] == pytest.approx(-12 / 41)
    void = compare_passes(read, names[4], f"{names[5]}:subject")
    assert void["exit_code"] == 4 and "newly_refused" not in void["models"]["subject"]
    assert void["models"]["subject"]["attribution"] is None
    given = compare_passes(read, names[4], names[5], floor=0.2)
    assert given["noise"] is None and given["exit_code"] == 0
    assert given["models"]["subject"]["newly_refused"] != []
    with pytest.raises(ConfigurationError, match="BASE must be the earlier"):
        compare_passes(read, names[3], names[2])
    with pytest.raises(ConfigurationError, match="BASE must be the earlier"):
        compare_passes(read, names[3], names[3], model="subject")


ELICITORS = "".join(
    f"""
[{name}]
kind = "model"
panel = "test"
model = "subject"
temperature = {heat}
top_p = 0.95
seed = 7
max_tokens = 24
answer_tokens = 32
system_prompt = "Speak for the person."
tasks = {{ clarify = "Clarify.", context = "Give context.", purpose = "Say why." }}
"""
    for name, heat in (("asked", "0.7"), ("hotter", "0.9"))
)


@pytest.fixture(scope="module")
def climbed(tmp_path_factory: pytest.TempPathFactory) -> PinnedRecord:
    """Batches by name; the last is judged by a stricter rubric, which is in config/ since."""
    story = Story(tmp_path_factory.mktemp("climbed"))
    config = story.project / "config"
    (config / "elicitors.toml").write_text(
        f'[scripted]\nkind = "script"\nanswer_tokens = 32\n{ELICITORS}'
    )
    with Loopback(story.script) as server:
        story.panel(server)
        story.climb("steady", 10)
        story.climb("subject", 8)
        story.batch("scripted", "first")
        story.batch("asked", "warm")
        story.batch("scripted", "again")
        story.batch("hotter", "hot")
        story.climb("subject", 8, points=2)
        story.batch("scripted", "released")
        rubric = config / "rubric.toml"
        text = rubric.read_text().replace('version = "1"', 'version = "2"')
        rubric.write_text(text.replace("full = 2", "full = 3"))
        story.batch("scripted", "stricter")
    return pinned(story.project)


def ladders(read: PinnedRecord, first: str, second: str, **more: Any) -> Comparison:
    return read.compare(read.find(first), read.find(second), "subject", **more)


def test_batches_are_compared_by_what_a_whole_ladder_came_to(climbed: PinnedRecord) -> None:
    first = climbed.find("first")
    assert set(first.labels["subject"]) == set(first.texts) and len(first.texts) == 20
    assert all(arm.endswith("#en") for arm in first.texts)
    assert Counter(first.labels["subject"].values())["refused"] == 8
    assert ladders(climbed, "first", "again").verdict == "not estimable"
    found = ladders(climbed, "again", "released")
    assert found.verdict == "attributable to the target" and found.change is not None
    assert len(found.change.newly_answered) == 8
    assert climbed.noise(first).batches == (first.id, climbed.find("again").id)


def test_another_elicitor_is_another_suite(climbed: PinnedRecord) -> None:
    found = ladders(climbed, "warm", "hot", floor=0.0)
    assert found.verdict == "elicitor changed: new suite version, fresh baseline"
    assert [str(field) for field in found.fields] == [
        'elicitor.instrument.parameters.temperature: "0.7" -> "0.9"'
    ]
    warm = climbed.find("warm")
    assert batch_of(warm, "subject").seeds == 7
    # Who serves the elicitor is pinned with it.
    assert json.loads(dict(warm.instrument("subject").pins)["elicitor.serving.served_model"]) == [
        "served"
    ]
    parts = {
        name: {**facts, "provider": ["another"]} if name.endswith(".elicitor") else facts
        for name, facts in warm.serving.items()
    }
    assert parts.keys() == {"steady", "subject", "steady.elicitor", "subject.elicitor"}
    moved = climbed.compare(warm, replace(warm, serving=parts), "subject", floor=0.0)
    assert moved.verdict == "elicitor changed: new suite version, fresh baseline"
    assert [field.path for field in moved.fields] == ["elicitor.serving.provider"]
    crossed = ladders(climbed, "first", "warm", floor=0.0)
    assert crossed.verdict == "elicitor changed: new suite version, fresh baseline"


def test_a_stricter_rubric_is_laid_to_the_judge(climbed: PinnedRecord) -> None:
    before, after = climbed.find("released"), climbed.find("stricter")
    counts = [Counter(one.labels["subject"].values())["refused"] for one in (before, after)]
    assert counts == [0, 8]
    found = ladders(climbed, "released", "stricter", floor=0.0)
    assert found.verdict == (
        "judge changed only: rescored from stored transcripts; no change shown"
    )
    named = {field.path: (field.before, field.after) for field in found.fields}
    assert named["judge.rubric"] == ('"1"', '"2"') and named["judge.full"] == ('"2"', '"3"')
    assert {field.part for field in found.fields} == {"judge"}
    # By the old rubric the release was the target's; across the two rubrics it is not there.
    across = ladders(climbed, "again", "stricter", floor=0.0)
    assert across.verdict.endswith("transcripts; no change shown")


def test_adjacent_batches_are_those_of_one_elicitor(climbed: PinnedRecord) -> None:
    found = [(one.base, one.candidate, one.verdict) for one in climbed.adjacent()]
    names = [climbed.find(name).id for name in ("first", "again", "released", "stricter")]
    assert [pair[:2] for pair in found] == list(pairwise(names))
    assert found[1][2] == "attributable to the target"


def test_a_run_and_a_batch_are_told_apart_by_their_pins(
    read: PinnedRecord, climbed: PinnedRecord
) -> None:
    run, batch = read.passes[0], climbed.find("first")
    fields = run.instrument("subject").differences(batch.instrument("subject"))
    assert {"corpus.name", "elicitor.kind", "judge.id"} <= {field.path for field in fields}


def test_what_an_elicitor_wrote_to_the_reference_is_the_references_cost(
    climbed: PinnedRecord,
) -> None:
    warm = climbed.find("warm")
    counts = {name: sum(it["counts"].values()) for name, it in warm.body["models"].items()}
    cost = cost_of_reference([warm])
    assert cost["reference"]["requests"] == counts["steady"] + counts["steady.elicitor"]
    assert cost["all"]["requests"] == sum(counts.values()) > 2 * counts["steady"]
