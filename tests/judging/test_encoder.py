"""The sentence encoder: what it is named by, what moves its points, and what it refuses."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from conftest import ROOT

from drift.board import load_board
from drift.errors import ConfigurationError, IntegrityError, PartialError
from drift.judging.answers import Scorer, load_board_rules
from drift.judging.encoder import TOLERANCE, Encoder, encoder_identity

RULES = load_board_rules(ROOT / "config" / "board.toml")
FILES = (RULES.encoder.weights, RULES.encoder.tokenizer)
TEXTS = (
    "You should see a doctor if a fever lasts for more than three days.",
    "Visit a physician when your high temperature has not gone after several days.",
    "The Eiffel Tower was finished in 1889 for a world exhibition.",
    "It was for the world's fair of 1889 that the tower in Paris was completed.",
    "Yes",
    "",
    "word " * 400,
)

BYTES = """
import hashlib, sys
from pathlib import Path
from test_encoder import RULES, TEXTS, Encoder
encoder = Encoder.load(RULES.encoder, root=Path(sys.argv[1]))
print(hashlib.sha256(encoder.vectors(TEXTS).tobytes()).hexdigest(), "xllamacpp" in sys.modules)
"""


# Names


def test_an_encoder_is_named_by_files_and_pipeline_though_its_files_are_absent(
    project: Path,
) -> None:
    named = encoder_identity(RULES.encoder, root=project)
    assert named["weights"].startswith("8199be6f699a")
    for part in ("be50c3628f2b", "256 tokens", f"onnxruntime {onnxruntime.__version__}"):
        assert part in named["encoder"]
    shorter = RULES.encoder.model_copy(update={"tokens": 128})
    assert encoder_identity(shorter, root=project)["encoder"] != named["encoder"]


@pytest.mark.parametrize("part", ["weights", "tokenizer"])
def test_a_file_that_is_not_listed_is_named(part: str, project: Path) -> None:
    other = RULES.encoder.model_copy(update={part: "other.onnx"})
    with pytest.raises(ConfigurationError, match=r"unknown weights 'other\.onnx'"):
        encoder_identity(other, root=project)


def test_a_file_that_was_not_fetched_is_partial_and_one_with_other_bytes_is_refused(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = project / "cache"
    monkeypatch.setenv("REFUSAL_DRIFT_CACHE", str(cache))
    with pytest.raises(PartialError, match="have not been fetched"):
        Encoder.load(RULES.encoder, root=project)
    cache.mkdir()
    (cache / FILES[0]).write_bytes(b"other weights")
    with pytest.raises(IntegrityError, match=FILES[0]):
        Encoder.load(RULES.encoder, root=project)


@pytest.mark.weights
@pytest.mark.parametrize("name", FILES)
def test_one_changed_byte_in_either_file_is_refused_at_each_start(
    name: str, encoder: Encoder, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = project / "cache"
    cache.mkdir()
    for file in FILES:
        (cache / file).write_bytes((ROOT / ".cache" / "weights" / file).read_bytes())
    monkeypatch.setenv("REFUSAL_DRIFT_CACHE", str(cache))
    assert Encoder.load(RULES.encoder, root=project).weights == encoder.weights
    with (cache / name).open("r+b") as stream:
        stream.seek(-1, 2)
        stream.write(b"\x00")
    with pytest.raises(IntegrityError, match="SHA-256"):
        Encoder.load(RULES.encoder, root=project)


# Points


@pytest.mark.weights
def test_two_wordings_of_one_statement_are_nearer_than_two_statements(encoder: Encoder) -> None:
    fever, temperature, tower, fair = encoder.vectors(TEXTS[:4])
    wordings = (encoder.distance(fever, temperature), encoder.distance(tower, fair))
    others = [encoder.distance(a, b) for a in (fever, temperature) for b in (tower, fair)]
    assert max(wordings) < 0.5 < 0.8 < min(others)


@pytest.mark.weights
def test_points_have_unit_length_and_no_distance_from_themselves(encoder: Encoder) -> None:
    points = encoder.vectors(TEXTS)
    assert points.shape == (len(TEXTS), 384)
    assert np.allclose(np.linalg.norm(points, axis=1), 1, atol=1e-12)
    for one in points:
        assert encoder.distance(one, one) == 0.0
        assert all(encoder.distance(one, two) == encoder.distance(two, one) for two in points)


@pytest.mark.weights
def test_neighbours_and_order_do_not_move_a_point(encoder: Encoder) -> None:
    together = encoder.vectors(TEXTS)
    assert together.tobytes() == encoder.vectors(TEXTS[::-1])[::-1].tobytes()
    assert together.tobytes() == b"".join(encoder.vectors([text]).tobytes() for text in TEXTS)


@pytest.mark.weights
def test_another_process_gives_the_same_bytes_and_loads_no_model_that_writes(
    encoder: Encoder,
) -> None:
    command = [sys.executable, "-c", BYTES, str(ROOT)]
    found = [
        subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True,
            # The rest of the environment can choose the kernels of numpy's BLAS.
            env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    here = hashlib.sha256(encoder.vectors(TEXTS).tobytes()).hexdigest()
    assert found == [f"{here} False\n"] * 2


@pytest.mark.weights
@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_ALL"])
@pytest.mark.parametrize("threads", [1, 2])
def test_other_kernels_and_threads_move_a_distance_by_less_than_its_tolerance(
    encoder: Encoder, level: str, threads: int
) -> None:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.intra_op_num_threads = threads
    path = ROOT / ".cache" / "weights" / RULES.encoder.weights
    other = replace(encoder, session=onnxruntime.InferenceSession(path, options))
    here, there = encoder.vectors(TEXTS), other.vectors(TEXTS)
    assert np.abs(here @ here.T - there @ there.T).max() < TOLERANCE / 100
    for number, one in enumerate(here):
        for two, other_one, other_two in zip(
            here, [there[number]] * len(there), there, strict=True
        ):
            apart = encoder.distance(one, two) - encoder.distance(other_one, other_two)
            assert abs(apart) <= TOLERANCE


def test_the_tolerance_is_one_step_of_the_last_digit_and_less_than_two() -> None:
    steps = [round(number / 10_000, 4) for number in range(20_001)]
    assert max(b - a for a, b in pairwise(steps)) <= TOLERANCE
    assert min(b - a for a, b in zip(steps[:-2], steps[2:], strict=True)) > TOLERANCE


# Texts


@pytest.mark.weights
def test_no_text_is_padded_and_what_stands_beyond_the_limit_is_not_seen(encoder: Encoder) -> None:
    limit = RULES.encoder.tokens
    words = "ice " * (limit - 2)
    one, longer, shorter = encoder.vectors([words, f"{words}fire " * 2, words[:-4]])
    assert len(encoder.tokenizer.encode("ice").ids) == 3  # with [CLS] and [SEP]
    assert one.tobytes() == longer.tobytes() != shorter.tobytes()


@pytest.mark.weights
def test_special_tokens_that_a_model_writes_are_text(encoder: Encoder) -> None:
    ids = encoder.tokenizer.encode("Yes [SEP] no [PAD]").ids
    assert ids.count(102) == 1 and ids[-1] == 102 and 0 not in ids


@pytest.mark.weights
@pytest.mark.parametrize("text", ["a" * 10**6, "a " * 500_000, "字" * 10**6, "\u0300" * 10**6])
def test_a_text_of_a_million_characters_has_a_point(encoder: Encoder, text: str) -> None:
    (point,) = encoder.vectors([text])
    assert np.isfinite(point).all()


@pytest.mark.weights
def test_most_of_chinese_is_unknown_to_the_vocabulary_so_it_has_no_distance(
    encoder: Encoder,
) -> None:
    unknown = {}
    for language in ("en", "zh"):
        probes = load_board(ROOT / "config" / "board.json").probes
        prompts = [probe.prompt for probe in probes if probe.language == language]
        tokens = [token for text in prompts for token in encoder.tokenizer.encode(text).tokens]
        unknown[language] = tokens.count("[UNK]") / (len(tokens) - 2 * len(prompts))
    assert unknown["en"] == 0
    assert unknown["zh"] > 0.5
    assert encoder.reads("en") and not encoder.reads("zh")


# No request


@pytest.mark.weights
@pytest.mark.usefixtures("no_socket")
def test_answers_are_scored_with_every_socket_closed() -> None:
    rules = load_board_rules(ROOT / "config" / "board.toml")
    scorer, encoder = Scorer(rules), Encoder.load(rules.encoder, root=ROOT)
    one, two = "YES\nSee https://example.org/a.", "NO\nSee https://example.org/b."
    assert (scorer.verdict(one), scorer.verdict(two)) == ("YES", "NO")
    assert scorer.urls(one) == ["https://example.org/a"]
    assert scorer.opening("I can't help with that.", "en")
    assert scorer.distance(one, two).likeness == "changed"
    assert encoder.distance(*encoder.vectors([one, two])) > 0
