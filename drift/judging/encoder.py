"""How far two answers are from each other as a small sentence encoder places them.

The encoder is all-MiniLM-L6-v2, run in this process by onnxruntime: it gives each text a point
and writes nothing. Its two files are listed in ``config/weights.toml`` and hashed at each start.

Pipeline: the tokenizer's own normaliser and special tokens, at most ``tokens`` of them; the mean
of the last layer over all tokens (one text at a time, so that none is padding and no neighbour
can move a point); unit length. What a text says beyond the limit is not seen; of a text without
end only its first 16 characters a token are cut into tokens (English has about four).

The weights are 8-bit integers, cast to 32-bit floats before anything is computed, so another
processor or another order of the sums moves a distance by its rounding alone. Of 16 answers the
120 distances on emulated processors without AVX, without AVX2 and without AVX-512 (qemu) were
within 1.3e-7 of those on one with all of them; ``benchmarks/board.py`` prints the like for the
levels of graph optimisation. Distances are rounded to 4 digits. Two that were computed on two
machines are the same number if they lie within :data:`TOLERANCE`, one step of the last digit:
no rounding is so coarse that a value never stands at its edge. Other architectures were not tried.

Source: Reimers and Gurevych (2019), Sentence-BERT, doi:10.18653/v1/D19-1410.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from drift.config import load_toml
from drift.errors import ConfigurationError
from drift.judging.answers import EncoderRules
from drift.probing.weights import weights_path

#: How far two roundings of one distance can be apart: one step, and what floats add to it.
DIGITS, TOLERANCE = 4, 1.5e-4
#: Characters read for each token of the limit.
CHARACTERS = 16
#: Raised when the code below moves a distance.
CODE_VERSION = "1"

Vector = NDArray[np.float64]


def encoder_identity(rules: EncoderRules, *, root: Path) -> dict[str, str]:
    """Return what an encoder is named by, from the lists alone: its files need not be here.

    ``encoder`` says how texts become points, ``weights`` is the SHA-256 of the model.
    ConfigurationError if one is not listed.
    """
    listed = load_toml(root / "config" / "weights.toml", kind="weights list")
    for name in (rules.weights, rules.tokenizer):
        if name not in listed:
            raise ConfigurationError(
                f"unknown weights {name!r}",
                where="config/board.toml, [encoder]",
                expected=f"one of config/weights.toml: {', '.join(sorted(listed))}",
            )
    parts = (
        rules.weights.removesuffix(".onnx"),
        f"tokenizer {listed[rules.tokenizer]['sha256'][:12]}",
        f"mean of {rules.tokens} tokens",
        *(f"{package} {version(package)}" for package in ("onnxruntime", "tokenizers")),
        f"code {CODE_VERSION}",
    )
    return {"encoder": ", ".join(parts), "weights": listed[rules.weights]["sha256"]}


@dataclass(frozen=True)
class Encoder:
    """A loaded encoder; ``id`` and ``weights`` are those of :func:`encoder_identity`."""

    id: str
    weights: str
    characters: int
    session: Any
    tokenizer: Any

    @classmethod
    def load(cls, rules: EncoderRules, *, root: Path) -> Self:
        """Check both files and load them.

        PartialError if one has not been fetched, IntegrityError if one holds other bytes.
        """
        # Here, since no command but those that score needs them.
        import onnxruntime
        from tokenizers import Tokenizer

        model, words = (weights_path(name, root=root) for name in (rules.weights, rules.tokenizer))
        tokenizer = Tokenizer.from_file(str(words))
        tokenizer.no_padding()
        tokenizer.enable_truncation(rules.tokens)
        # "[SEP]" in an answer is what a model wrote, and ends nothing.
        tokenizer.encode_special_tokens = True
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(
            str(model), options, providers=["CPUExecutionProvider"]
        )
        named = encoder_identity(rules, root=root)
        characters = rules.tokens * CHARACTERS
        return cls(named["encoder"], named["weights"], characters, session, tokenizer)

    @staticmethod
    def reads(language: str) -> bool:
        """Tell whether the vocabulary covers a language: English alone."""
        return language == "en"

    def vectors(self, texts: Sequence[str]) -> Vector:
        """Return a point of unit length for each text, shape ``(len(texts), 384)``."""
        return np.array([self._vector(text) for text in texts])

    def _vector(self, text: str) -> Vector:
        ids = np.array([self.tokenizer.encode(text[: self.characters]).ids], dtype=np.int64)
        (layer,) = self.session.run(
            None,
            {
                "input_ids": ids,
                "attention_mask": np.ones_like(ids),
                "token_type_ids": np.zeros_like(ids),
            },
        )
        mean: Vector = layer[0].mean(axis=0, dtype=np.float64)
        return mean / np.linalg.norm(mean)

    @staticmethod
    def distance(a: Vector, b: Vector) -> float:
        """Return 1 - cosine of two points, from 0 to 2, to 4 digits."""
        return max(0.0, round(1 - float(a @ b), DIGITS))
