"""Verdicts of a model on stored answers: their rows, their check, and whether they may count.

A judging is one ``labels`` line of a run. Its file holds a row for each anchor, then one for each
response that the judge of refusals calls answered, in the order of the transcript. Rows hold the
exact reply, and the hashes of the text that was judged and of the messages that were sent: what a
model said is proved to be about the stored bytes, and is read from them again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import takewhile
from pathlib import Path
from typing import Any

import orjson

from drift.config import sha256_hex
from drift.errors import IntegrityError
from drift.judging.entailment import (
    CODE_VERSION,
    LANGUAGES,
    Anchors,
    EntailmentRules,
    Language,
    fingerprint,
    load_anchors,
    load_entailment,
    prompt,
    read_verdict,
    sent_sha256,
)
from drift.judging.labeller import Labeller
from drift.records.judging import Arms, checked_line, checked_row
from drift.records.ledger import Line
from drift.records.run import label_rows
from drift.records.store import (
    Store,
    by_model,
    judge_folder,
    read_bytes,
    read_rows,
)
from drift.stats.agreement import Estimate
from drift.stats.gate import Gate, agreement_gate

#: What of a reply is kept beside its text and its status.
FACTS = ("served_model", "fingerprint")


@dataclass(frozen=True)
class Check:
    """The wording and the anchors in ``config/``."""

    rules: EntailmentRules
    anchors: Anchors

    @classmethod
    def load(cls, root: Path) -> Check:
        """Read both files; ConfigurationError names what is wrong."""
        config = root / "config"
        anchors = load_anchors(config / "entailment_anchors.json")
        return cls(load_entailment(config / "entailment.toml"), anchors)

    def differing(self, asked: Mapping[str, Any], judge: Labeller) -> list[str]:
        """Return in what a judging was asked otherwise than it would be now, by the line's words.

        `judge` is that of refusals: a judging is of what it calls answered.
        """
        ours = {
            "wording": self.rules.wording,
            "anchors": self.anchors.identity,
            "longest": self.rules.longest,
            "code": CODE_VERSION,
            "answered_by": judge.rules_hash,
        }
        return [name for name, value in ours.items() if asked.get(name) != value]


@dataclass(frozen=True)
class Unit:
    """One text to be judged: where it stands, its language, and what is asked about it."""

    place: dict[str, str]
    language: Language
    text: str
    prompt: str


def language_of(arm: str) -> Language:
    """Return the language of an arm."""
    return "zh" if "#zh" in arm else "en"


def sealed_texts(store: Store, run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the responses of a run whose bytes are the sealed ones; else IntegrityError."""
    path = store.transcript(run["run"])
    data = read_bytes(path)
    if (found := sha256_hex(data)) != run["transcript"]:
        raise IntegrityError(
            "the stored answers are not the sealed ones, and are not judged",
            where=str(path),
            got=f"sha256 {found}",
            expected=f"sha256 {run['transcript']}",
            next_step="`drift verify` names the row; restore it from a copy of the record",
        )
    return [orjson.loads(raw) for raw in data.splitlines()]


def answered_rows(
    rows: Sequence[dict[str, Any]], prompts: Mapping[str, str], judge: Labeller, arms: Arms
) -> list[dict[str, Any]]:
    """Return the responses that a judge of refusals calls answered, in their order."""
    labelled = label_rows(judge, rows, prompts)
    answered = {(it["model"], it["key"]) for it in labelled if it["label"] == "answered"}
    kept = [row for row in rows if (row["model"], row["key"]) in answered]
    return [row for row in kept if arms == "all" or row["key"].endswith("#en-1")]


def units(
    check: Check, answered: Iterable[Mapping[str, Any]], prompts: Mapping[str, str]
) -> list[Unit]:
    """Return what a judging asks about: the anchors, then these responses."""
    found = []

    def add(place: dict[str, str], language: Language, question: str, text: str) -> None:
        sent = prompt(check.rules, question=question, response=text, language=language)
        found.append(Unit(place, language, text, sent))

    for anchor in check.anchors.anchors:
        add({"anchor": anchor.id}, anchor.language, anchor.question, anchor.response)
    for row in answered:
        key = row["key"]
        place = {"key": key, "model": row["model"]}
        add(place, language_of(key), prompts[key], row["text"])
    return found


def reply_of(response: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what a row keeps of a judge's response; of None, that no reply came."""
    if response is None:
        return {"reply": "", "status": "failed"}
    kept = {"reply": response["text"], "status": response["status"]}
    kept |= {fact: response[fact] for fact in FACTS if response.get(fact)}
    why = (response.get("error") or {}).get("code")
    return kept | ({"note": str(why)} if why else {})


def row_of(unit: Unit, kept: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of a judging: the verdict is read from the reply that it keeps."""
    verdict = read_verdict(kept["reply"], kept["status"])
    row: dict[str, Any] = {**unit.place, "label": verdict.label, "rule": "reply", "span": None}
    if "key" in unit.place:
        row |= {"named": verdict.named, "text_sha256": sha256_hex(unit.text.encode())}
    return row | {"messages_sha256": sent_sha256(unit.prompt), **kept}


def made_again(
    check: Check,
    asked: Mapping[str, Any],
    rows: Iterable[Mapping[str, Any]],
    *,
    answers: Sequence[dict[str, Any]],
    prompts: Mapping[str, str],
    judge: Labeller,
) -> list[dict[str, Any]]:
    """Return the rows of a judging that nothing sets apart, made of the replies that they keep.

    `answers` are the responses of its run, and `judge` says which of them were to be judged.
    """
    kept = {place(row): row for row in rows}
    due = units(check, answered_rows(answers, prompts, judge, asked["arms"]), prompts)
    nothing = reply_of(None)
    found = (kept.get(place(unit.place), nothing) for unit in due)
    facts = ("reply", "status", *FACTS, "note")
    return [
        row_of(unit, {name: row[name] for name in facts if name in row})
        for unit, row in zip(due, found, strict=True)
    ]


def place(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a row is about: an anchor, or a model's response."""
    return (f"anchor {row['anchor']}",) if "anchor" in row else (row["model"], row["key"])


def fingerprint_of(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the fingerprint of a judging from its rows."""
    return fingerprint((row["anchor"], row["label"]) for row in rows if "anchor" in row)


# Read back
@dataclass(frozen=True)
class Judging:
    """One sealed judging: its ledger body, its rows on the anchors, and those on responses."""

    body: Mapping[str, Any]
    anchors: list[dict[str, Any]]
    rows: list[dict[str, Any]]

    @property
    def asked(self) -> Mapping[str, Any]:
        """What the judge was asked with; ``model`` is its key."""
        asked: Mapping[str, Any] = self.body["asked"]
        return asked


def judgings(lines: Iterable[Line]) -> list[dict[str, Any]]:
    """Return the bodies of the judgings of a record, in their order.

    IntegrityError names the line that is not of their form.
    """
    bodies = (line.body for line in lines if line.kind == "labels")
    return [dict(checked_line(body)) for body in bodies if by_model(body["judge"])]


def judged_usd(backwards: Iterable[Line], day: str) -> Decimal:
    """Return what judgings cost since a UTC day began, in USD; lines come last first."""
    since = takewhile(lambda line: line.body["at"][:10] >= day, backwards)
    paid = [body["usage"]["cost_usd"] for body in judgings(since)]
    return sum((Decimal(cost or 0) for cost in paid), Decimal(0))


def read_judging(store: Store, body: Mapping[str, Any]) -> Judging:
    """Return the judging that a ledger line, given by its body, seals.

    IntegrityError names the line or the row that is not of its form.
    """
    checked_line(body)
    path = store.labels(judge_folder(body["judge"]), body["run"])
    rows = [checked_row(row, f"{path}:{n}") for n, row in enumerate(read_rows(path), start=1)]
    of_anchors = [row for row in rows if "anchor" in row]
    return Judging(body, of_anchors, [row for row in rows if "anchor" not in row])


@dataclass(frozen=True)
class Standing:
    """A judging beside the others of its record.

    ``reason`` says why its verdicts enter no figure, and is empty where they may. ``times`` is
    how many judgings of its run are sealed by the same judge, this one included.
    """

    judging: Judging
    reason: str
    times: int

    @property
    def counts(self) -> bool:
        """Whether its verdicts may enter a figure; its gate decides by itself."""
        return not self.reason

    @property
    def judge(self) -> tuple[str, str]:
        """The judge: by other rules, so other wording or anchors, it is another one."""
        return self.judging.body["judge"]["id"], self.judging.body["judge"]["rules"]


REPEATED = "an earlier judging of this run by the same rules is the one that counts"


def standings(store: Store, lines: Iterable[Line], check: Check, judge: Labeller) -> list[Standing]:
    """Return every judging of a record in its order, and whether it may count.

    One counts if the present code would ask it in the same words, so that `drift verify` reads
    its replies again; if every anchor was asked, once; and if the judge had not judged the run
    before, for a judge that is asked until it passes its gate has shown nothing. `judge` is the
    judge of refusals in ``config/``.
    """
    bodies = judgings(lines)
    times = Counter(map(_who, bodies))
    due, before, found = [it.id for it in check.anchors.anchors], set[tuple[str, ...]](), []
    for body in bodies:
        judging, reason = read_judging(store, body), ""
        if differs := check.differing(judging.asked, judge):
            reason = f"it was asked otherwise than the present code asks: {', '.join(differs)}"
        elif [row["anchor"] for row in judging.anchors] != due:
            reason = "its anchors are not those in config/, each once and in their order"
        elif _who(body) in before:
            reason = REPEATED
        before.add(_who(body))
        found.append(Standing(judging, reason, times[_who(body)]))
    return found


def counted(found: Iterable[Standing]) -> list[Standing]:
    """Return for each judge the judging that counts, of the latest run that it judged.

    The judge that judged first comes first.
    """
    latest: dict[tuple[str, str], Standing] = {}
    for one in found:
        last = latest.get(one.judge, one)
        if one.counts and one.judging.body["run"] >= last.judging.body["run"]:
            latest[one.judge] = one
    return [*latest.values()]


def _who(body: Mapping[str, Any]) -> tuple[str, str, str]:
    return body["run"], body["judge"]["id"], body["judge"]["rules"]


def gates(judging: Judging, check: Check) -> dict[str, Gate]:
    """Return for each language whether the judge's verdicts may count, by its anchors."""
    if judging.asked["anchors"] != check.anchors.identity:
        why = "its anchors are not those in config/"
        return {name: Gate(None, None, None, 0, 0, False, why) for name in LANGUAGES}
    said = {row["anchor"]: row["label"] for row in judging.anchors}
    rules, found = check.rules.gate, dict[str, Gate]()
    for name in LANGUAGES:
        pairs = [anchor for anchor in check.anchors.anchors if anchor.language == name]
        words = [said.get(anchor.id, "missing") for anchor in pairs]
        found[name] = agreement_gate(
            [anchor.entailed for anchor in pairs],
            [None if word == "missing" else word == "yes" for word in words],
            kappa=float(rules.kappa),
            missing=float(rules.missing),
        )
    return found


@dataclass
class Tally:
    """Verdicts on one model's complete responses in one language; ``cut`` are those on others.

    What was cut at the token limit may have been about to come to the point.
    """

    yes: int = 0
    no: int = 0
    missing: int = 0
    cut: int = 0

    def rate(self, gate: Gate) -> Estimate:
        """Return No / (Yes + No) as judged; not estimable where the judge did not pass.

        It has no limits: it is the judge's word, and how far that is from people's only people
        can say.
        """
        if not gate.passed:
            return Estimate(None, None, None, f"the judge did not pass its anchors: {gate.why}")
        if not self.yes + self.no:
            return Estimate(None, None, None, "no verdict")
        return Estimate(self.no / (self.yes + self.no), None, None)


def tallies(
    rows: Iterable[Mapping[str, Any]], cut: Collection[tuple[str, str]] = ()
) -> dict[tuple[str, str], Tally]:
    """Count the verdicts of a judging by model and language.

    `cut` names the responses, by model and key, that were cut at the token limit.
    """
    found: dict[tuple[str, str], Tally] = {}
    for row in rows:
        tally = found.setdefault((row["model"], language_of(row["key"])), Tally())
        name = "cut" if (row["model"], row["key"]) in cut else row["label"]
        setattr(tally, name, getattr(tally, name) + 1)
    return dict(sorted(found.items()))


def missing_reasons(rows: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """Count why verdicts are missing: what a reply's note or status says, else its form."""
    return Counter(
        row.get("note") or ("form" if row["status"] in ("ok", "truncated") else row["status"])
        for row in rows
        if row["label"] == "missing"
    )
