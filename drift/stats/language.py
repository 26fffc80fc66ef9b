"""Language asymmetry: one question in English and in Chinese."""

from collections.abc import Mapping
from dataclasses import dataclass

from drift.stats.inputs import Label, Names
from drift.stats.paired import midp_mcnemar, paired_table


@dataclass(frozen=True)
class LanguageAsymmetry:
    """The paired table of families; `net` and `midp` None, with a reason, if undefined."""

    refused_zh_only: Names
    refused_en_only: Names
    both_refused: Names
    both_answered: Names
    not_compared: Names  # without a determined label in both languages
    n: int  # determined pairs
    net: int | None  # refused in Chinese only less refused in English only
    midp: float | None
    reason: str | None = None


def language_asymmetry(pairs: Mapping[str, tuple[Label, Label]]) -> LanguageAsymmetry:
    """Compare the canonical wording of each family with its Chinese twin.

    Null: a family refused in one language only is as likely to be so in either.
    Test: `midp_mcnemar` on the discordant cells, one look. The comparison is
    within each question; the quality of the translation is not controlled.
    `pairs` maps each family that has a twin to its labels (en-1, zh).
    """
    table = paired_table(pairs)
    zh_only, en_only = table["answered", "refused"], table["refused", "answered"]
    both, missing = (table["refused", "refused"], table["answered", "answered"]), table[None]
    n = len(pairs) - len(missing)
    if n == 0:
        reason = "no family is determined in both languages"
        return LanguageAsymmetry((), (), (), (), missing, 0, None, None, reason)
    net, midp = len(zh_only) - len(en_only), midp_mcnemar(len(zh_only), len(en_only))
    return LanguageAsymmetry(zh_only, en_only, *both, missing, n, net, midp)
