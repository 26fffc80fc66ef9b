"""What a change of the judge moves: every stored label under two judges, by rule.

Answers are judged again in memory; nothing is written and nothing is asked.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from drift.errors import ConfigurationError
from drift.judging import Anchor, Judge, load_judge
from drift.records.batch import label_turns, registered_ladders, sealed_batches
from drift.records.derive import read_series
from drift.records.ledger import Ledger, Line
from drift.records.parallel import spread
from drift.records.registration import judge_identity, registered_bank
from drift.records.run import label_rows
from drift.records.scheme import REFUSAL, scheme_of
from drift.records.store import Store, judge_folder, read_rows
from drift.records.verify import RunJob, run_jobs

#: Names the labels that each run was first read with.
REGISTERED = "registered"
#: What the label of an anchor stands beside where the other judge lacks the anchor.
NONE = ("none", "none")


@dataclass(frozen=True)
class Move:
    """One label that differs under two judges, with the rules that decided."""

    run: str
    model: str
    key: str
    before: str
    before_rule: str
    after: str
    after_rule: str


@dataclass
class Comparison:
    """A record's stored answers under two judges.

    ``before`` and ``after`` name the judges by {id, rules, fingerprint}, as the ledger does;
    ``labels`` counts the answers that both label, ``one_sided`` those that one of them does, as
    where people coded a part; ``other_rule`` counts labels that stay and are decided by another
    rule; ``unread`` are runs without labels of a judge that was named by its stored ones;
    ``closes`` maps each model whose open series would end to the reason.
    """

    record: str
    before: dict[str, str] = field(default_factory=dict)
    after: dict[str, str] = field(default_factory=dict)
    runs: int = 0
    unread: int = 0
    labels: int = 0
    one_sided: int = 0
    other_rule: int = 0
    moves: list[Move] = field(default_factory=list)
    closes: dict[str, str] = field(default_factory=dict)

    @property
    def fingerprint_moves(self) -> bool:
        return self.before["fingerprint"] != self.after["fingerprint"]

    def document(self) -> dict[str, Any]:
        """Return the comparison as JSON holds it, with its counts."""
        kinds = Counter((move.before, move.after) for move in self.moves)
        rules = Counter((move.before_rule, move.after_rule) for move in self.moves)
        return asdict(self) | {
            "moved": len(self.moves),
            "fingerprint_moves": self.fingerprint_moves,
            "by_label": [
                {"before": before, "after": after, "labels": n}
                for (before, after), n in kinds.most_common()
            ],
            "by_rule": [
                {"before_rule": before, "after_rule": after, "labels": n}
                for (before, after), n in rules.most_common()
            ],
        }


def judge_or_stored(name: str) -> Judge | str:
    """Return the judge of a folder; any other name means labels that a record stores.

    ConfigurationError if it is neither a folder nor the form of a rules hash.
    """
    if Path(name).is_dir():
        try:
            return load_judge(Path(name))
        except ConfigurationError as error:
            error.next_step = error.next_step or (
                "rules of an older format are not read by this code: name that judge by the "
                "rules hash under which a record stores its labels"
            )
            raise
    if name != REGISTERED and not re.fullmatch("[0-9a-f]{6,64}", name):
        raise ConfigurationError(
            "no such judge",
            got=name,
            expected="a folder with rules.toml and anchors.json, the first 6 to 64 hex digits "
            f"of a stored judge's rules hash, or {REGISTERED!r}",
        )
    return name


def compare_judges(
    folder: Path,
    old: Judge | str,
    new: Judge | str,
    *,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Comparison:
    """Compare two judges on every sealed answer of the record in `folder`.

    A judge given by name is read from its stored labels; those of :data:`REGISTERED` are the
    ones that each run was first read with. `workers` and `progress` are as in ``verify_record``.

    Raises
    ------
    ConfigurationError
        The record stores no labels of a judge that is named.
    """
    store, lines = Store(folder), list(Ledger(folder).forwards())
    runs = [
        (run, [labels for labels in read if scheme_of(labels) is REFUSAL])
        for run, read in run_jobs(lines)
    ]
    found = Comparison(folder.name, _identity(old, runs, folder), _identity(new, runs, folder))
    jobs = [*runs, *sealed_batches(lines)]
    registered = [line for line in lines if line.kind == "registration"]
    prompts = {line.hash: registered_bank(store, line.body).prompts for line in registered}
    comparer = _Comparer(store, old, new, prompts)
    for number, part in enumerate(spread(comparer, jobs, workers), start=1):
        found.runs += part is not None
        found.unread += part is None
        if part:
            found.labels += part[0]
            found.one_sided += part[1]
            found.other_rule += part[2]
            found.moves += part[3]
        if progress:
            progress(number, len(jobs))
    if registered and found.before != found.after:
        found.closes = _closes(store, registered[-1], found, {run["run"] for run, _ in runs})
    return found


def _identity(side: Judge | str, jobs: list[RunJob], folder: Path) -> dict[str, str]:
    """Return how the ledger names a judge; of :data:`REGISTERED`, the last one read with."""
    if isinstance(side, Judge):
        return judge_identity(side)
    if side == REGISTERED:
        read = [labels[0]["judge"] for _, labels in jobs if labels]
        found = read[-1:]
    else:
        judges = [line["judge"] for _, labels in jobs for line in labels]
        distinct = {one["rules"]: one for one in judges if one["rules"].startswith(side)}
        found = list(distinct.values())
        read = judges
    if len(found) != 1:
        known = sorted({f"{one['id']} {one['rules'][:12]}" for one in read})
        raise ConfigurationError(
            "the record stores labels of no such judge" if not found else "two judges begin so",
            where=str(folder),
            got=side,
            expected=", ".join(known) or "a record with labels",
        )
    return dict(found[0])


def _closes(store: Store, registration: Line, found: Comparison, runs: set[str]) -> dict[str, str]:
    """Return the models whose open series ends if the one judge follows the other, and why.

    A series goes by the judge that was registered: the labels of people end none, nor do those
    of a batch.
    """
    if {found.before["id"], found.after["id"]} != {registration.body["judge"]["id"]}:
        return {}
    kept = read_series(store)["models"] if store.series.exists() else {}
    moved = Counter(move.model for move in found.moves if move.run in runs)
    closes = {}
    for model in registration.body["instruments"]:
        if model not in kept:
            continue
        if found.fingerprint_moves:
            closes[model] = f"series {kept[model].number}: the judge's fingerprint moves"
        elif moved[model]:
            closes[model] = f"series {kept[model].number}: {moved[model]} stored labels move"
    return closes


@dataclass(frozen=True)
class _Comparer:
    """Compares one run after another, in this process or in workers."""

    store: Store
    old: Judge | str
    new: Judge | str
    prompts: Mapping[str, Mapping[str, str]]

    def __call__(self, job: RunJob) -> tuple[int, int, int, list[Move]] | None:
        """Return the labels of both, those of one, those that change the rule alone, the moves."""
        before, after = (self._labels(side, job) for side in (self.old, self.new))
        if before is None or after is None:
            return None
        moves, other = [], 0
        both = sorted(before.keys() & after.keys())
        for place in both:
            old, new = before[place], after[place]
            if old[0] != new[0]:
                moves.append(Move(job[0]["run"], *place, *old, *new))
            other += old[0] == new[0] and old[1] != new[1]
        return len(both), len(before.keys() ^ after.keys()), other, moves

    def _labels(
        self, side: Judge | str, job: RunJob
    ) -> dict[tuple[str, str], tuple[str, str]] | None:
        run, lines = job
        # In the judge of a batch the lexical one is a part.
        batch, rules = "turns" in run, "lexical" if "turns" in run else "rules"
        if isinstance(side, Judge):
            answers = read_rows(self.store.transcript(run["run"]))
            if batch:
                rows = label_turns(side, run, answers, registered_ladders(self.store, run))
            else:
                rows = label_rows(side, answers, self.prompts[run["registration"]])
        else:
            named = [
                line["judge"]
                for line in lines
                if side == REGISTERED or line["judge"][rules].startswith(side)
            ]
            if not named:
                return None
            rows = read_rows(self.store.labels(judge_folder(named[0]), run["run"]))
        return {(row["model"], row["key"]): (row["label"], row["rule"]) for row in rows}


def anchor_moves(old: Judge, new: Judge) -> list[dict[str, str]]:
    """Return the anchors of either judge on which they differ, or that one of them lacks.

    Each as {anchor, author, before, before_rule, after, after_rule}; of an anchor that a judge
    lacks its side says "none".
    """
    mine, theirs = ({anchor.id: anchor for anchor in judge.anchors} for judge in (old, new))
    rows = []
    for name in sorted(mine.keys() | theirs.keys()):
        before = _of(old, mine[name]) if name in mine else NONE
        after = _of(new, theirs[name]) if name in theirs else NONE
        if before[0] != after[0]:
            row = {"anchor": name, "author": (theirs.get(name) or mine[name]).label}
            row |= dict(zip(("before", "before_rule"), before, strict=True))
            rows.append(row | dict(zip(("after", "after_rule"), after, strict=True)))
    return rows


def _of(judge: Judge, anchor: Anchor) -> tuple[str, str]:
    found = judge.label(
        prompt=anchor.prompt,
        text=anchor.text,
        status=anchor.status,
        declined=anchor.declined,
        language=anchor.language,
    )
    return found.label, found.rule
