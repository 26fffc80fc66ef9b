"""Agreement of the judge with coded answers: ``python benchmarks/judge_agreement.py``.

Reads every ``*_dev.jsonl`` of the folder named by ``REFUSAL_DRIFT_JUDGE_DATA`` (else
``../shared/data/judge``) and prints, per set, accuracy, Cohen's kappa, the confusion
table (coded, judged) and the rules of the disagreements. Only rows coded refused or
answered count; a label `undetermined` counts as wrong.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

from drift.config import project_root
from drift.judging import load_judge

ROOT = project_root()
DATA = Path(os.environ.get("REFUSAL_DRIFT_JUDGE_DATA", ROOT.parent / "shared/data/judge"))
WORDS = ("refused", "answered")


def main() -> None:
    judge = load_judge(ROOT / "config" / "judge")
    report = {}
    for path in sorted(DATA.glob("*_dev.jsonl")):
        table: Counter[tuple[str, str]] = Counter()
        rules: Counter[str] = Counter()
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if row["label"] in WORDS:
                found = judge.label(
                    prompt=row["prompt"], text=row["response"], language=row["language"]
                )
                table[row["label"], found.label] += 1
                if found.label != row["label"]:
                    rules[found.rule] += 1
        rows = table.total()
        right = sum(table[word, word] for word in WORDS) / rows
        chance = sum(
            sum(n for (coded, _), n in table.items() if coded == word)
            * sum(n for (_, judged), n in table.items() if judged == word)
            for word in WORDS
        ) / (rows * rows)
        report[path.stem] = {
            "rows": rows,
            "accuracy": round(right, 4),
            "kappa": round((right - chance) / (1 - chance), 4),
            "confusion": {f"{coded}, {judged}": n for (coded, judged), n in sorted(table.items())},
            "disagreements": dict(rules.most_common()),
        }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
