"""Speed of the board's scoring: ``python benchmarks/board.py`` prints one JSON object.

``pairs`` are 100,000 pairs of answers of 100 words (one in five in Chinese, 160 characters), made
of the words of the judge's anchors: each second answer repeats its first but for none, 5 %, 20 %,
50 % or all of its words. They are scored in two processes; the seconds are those of the slower
one in the better of two passes, ``processor_seconds`` those of both that were computed with.
``encoder`` reads 400 such answers of 20 words and of 90, in one process and in each of two.
``digest`` is over all distances and ``vectors`` over the bytes of all points; each pass has new
processes, and ``stable`` says that they gave the same. ``levels`` compares the levels of graph
optimisation with the one in use, as a stand-in for processors with other kernels: the largest
difference of a distance before rounding, and the share of pairs that round otherwise.
``hostile`` is the slowest of strings of 1 MB. ``load`` is the machine's mean load in the minute
before: figures taken while others compute are too slow.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import onnxruntime

from drift.config import project_root
from drift.errors import DriftError
from drift.judging import load_judge
from drift.judging.answers import Scorer, load_board_rules
from drift.judging.encoder import DIGITS, Encoder

PAIRS, BLOCK, PROCESSES, WORDS, HAN, TEXTS = 100_000, 2_500, 2, 100, 160, 400
CHANGED = (0.0, 0.05, 0.2, 0.5, 1.0)
ROOT = project_root()
RULES = load_board_rules(ROOT / "config" / "board.toml")
LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED")
PIECES = (
    "a ", "1,", "http://", "www.", "(", "](", "\\_", "*", "\n", "\u200b", "\u0300\u0316", "e\u0301",
    "中", "我们的", "抱歉，", "ﷺ", "İ", "YES ", "http://a.b/(", "I can't ",
)  # fmt: skip


@cache
def vocabulary(language: str) -> list[str]:
    """Return the words of the anchors, or their characters in Chinese, as often as they stand."""
    anchors = load_judge(ROOT / "config" / "judge").anchors
    texts = [anchor.text for anchor in anchors if anchor.language == language]
    return [*"".join(texts)] if language == "zh" else " ".join(texts).split()


def pairs(start: int) -> Iterator[tuple[str, str]]:
    """Yield a block of pairs, the same ones for the same start."""
    rng = random.Random(start)
    for number in range(BLOCK):
        language, share = ("zh" if number % 5 == 0 else "en"), rng.choice(CHANGED)
        words, joint = vocabulary(language), "" if language == "zh" else " "
        first = rng.choices(words, k=HAN if language == "zh" else WORDS)
        second = [rng.choice(words) if rng.random() < share else word for word in first]
        yield joint.join(first), joint.join(second)


def score(share: int) -> tuple[float, float, list[str]]:
    """Score every block of one process; return the seconds, those of the processor, and digests."""
    scorer, seconds, busy, digests = Scorer(RULES), 0.0, 0.0, []
    for start in range(share * BLOCK, PAIRS, PROCESSES * BLOCK):
        block = list(pairs(start))
        begun, before = time.perf_counter(), time.process_time()
        found = [scorer.distance(*pair) for pair in block]
        seconds += time.perf_counter() - begun
        busy += time.process_time() - before
        digests.append(digest(json.dumps(found).encode()))
    return seconds, busy, digests


def encode(words: int) -> tuple[float, float, str]:
    """Encode answers of so many words; return both kinds of seconds and a digest of the points."""
    encoder, answers = Encoder.load(RULES.encoder, root=ROOT), texts(words)
    encoder.vectors(answers[:8])
    begun, before = time.perf_counter(), time.process_time()
    found = encoder.vectors(answers)
    took, busy = time.perf_counter() - begun, time.process_time() - before
    return took, busy, digest(found.tobytes())


def texts(words: int) -> list[str]:
    rng = random.Random(words)
    return [" ".join(rng.choices(vocabulary("en"), k=words)) for _ in range(TEXTS)]


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def spread(function: Callable[[int], Any], jobs: list[int]) -> list[Any]:
    """Run jobs at once, each in a process that has done nothing before."""
    with ProcessPoolExecutor(len(jobs), multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(function, jobs))


def lexical() -> dict[str, Any]:
    passes = [spread(score, list(range(PROCESSES))) for _ in range(2)]
    digests = [[part for *_, parts in both for part in parts] for both in passes]
    return {
        "number": PAIRS,
        "seconds_on_two": round(min(max(took for took, *_ in both) for both in passes), 1),
        "processor_seconds": round(min(sum(busy for _, busy, _ in both) for both in passes), 1),
        "digest": digest("".join(digests[0]).encode()),
        "stable": digests[0] == digests[1],
    }


def encoding(words: int) -> dict[str, Any]:
    (alone,), both = spread(encode, [words]), spread(encode, [words] * 2)
    return {
        "answers_per_second": round(TEXTS / alone[0], 1),
        "per_processor_second": round(TEXTS / alone[1], 1),
        "on_two": round(2 * TEXTS / max(took for took, *_ in both), 1),
        "vectors": alone[2],
        "stable": len({found for *_, found in (alone, *both)}) == 1,
    }


def levels() -> dict[str, Any]:
    """Compare the distances of all pairs of some answers between the levels of optimisation."""
    encoder, answers = Encoder.load(RULES.encoder, root=ROOT), texts(30)[:100]
    path = ROOT / ".cache" / "weights" / RULES.encoder.weights
    upper = np.triu_indices(len(answers), 1)

    def distances(one: Encoder) -> Any:
        points = one.vectors(answers)
        return (1 - points @ points.T)[upper]

    used, found = distances(encoder), {}
    for level in LEVELS:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        options.intra_op_num_threads = 1
        other = distances(replace(encoder, session=onnxruntime.InferenceSession(path, options)))
        found[level] = {
            "largest": float(f"{np.abs(other - used).max():.2g}"),
            "rounded_otherwise": float(np.mean(other.round(DIGITS) != used.round(DIGITS))),
        }
    return found | {"pairs": len(used)}


def hostile() -> dict[str, Any]:
    """Read strings of 1 MB by every rule; name the slowest."""
    scorer, seconds = Scorer(RULES), {}
    for piece in PIECES:
        text = piece * (10**6 // len(piece.encode()))
        begun = time.perf_counter()
        scorer.opening(text, "en"), scorer.verdict(text), scorer.urls(text)
        scorer.distance(text, f"{text}!")
        seconds[ascii(piece)] = round(time.perf_counter() - begun, 2)
    worst = sorted(seconds, key=lambda piece: -seconds[piece])[:2]
    return {piece: seconds[piece] for piece in worst}


def main() -> None:
    found: dict[str, Any] = {"load": round(os.getloadavg()[0], 2), "pairs": lexical()}
    try:
        named = Encoder.load(RULES.encoder, root=ROOT)
        found["encoder"] = {"id": named.id, "20_words": encoding(20), "90_words": encoding(90)}
        found["levels"] = levels()
    except DriftError as error:
        found["encoder"] = f"not measured: {error.what}"
    print(json.dumps(found | {"hostile_seconds": hostile()}, indent=1))


if __name__ == "__main__":
    main()
