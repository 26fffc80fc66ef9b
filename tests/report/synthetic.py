"""A synthetic record in the documented formats, with hostile answers, for the report's tests.

The numbers of its readings are counted from its own labels; nothing here asks a model.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from drift.bank import Bank, load_bank, prompt_hashes
from drift.config import ModelSpec, parse_timestamp, sha256_hex
from drift.judging import Label
from drift.judging.measure import Judged, Row, measure
from drift.judging.measured import OPTIMISTIC, kept_bytes
from drift.records.ledger import Ledger
from drift.records.registration import corpus_copy
from drift.records.run import responses_hash, transcript_bytes
from drift.records.store import Store, judge_folder
from report import watching

RUNS = (
    ("20261126T060000Z", "full"),
    ("20261126T180000Z", "canonical"),
    ("20261127T060000Z", "full"),
    ("20261127T180000Z", "canonical"),
)
MODELS = ("qwen-0.5b", "smollm2-135m")
#: One that is asked over the network with parameters of its own, and one on this machine.
SPECS = {
    MODELS[0]: ModelSpec(
        key=MODELS[0],
        kind="openai",
        base_url="https://api.example/v1",
        model=f"{MODELS[0]}-instruct",
        parameters={"temperature": Decimal("0.5"), "top_k": 4, "effort": "it's low"},
        system_prompt="Answer in one line.",
        seed_policy="fixed",
        seed=7,
        lab="a lab <script>",
    ),
    MODELS[1]: ModelSpec(
        key=MODELS[1],
        kind="embedded",
        model=f"{MODELS[1]}-instruct",
        weights="w",
        weights_sha256="ef" * 32,
        role="reference",
        lab="a lab <script>",
    ),
}
#: Before the first run.
BEGUN = datetime(2026, 11, 26, tzinfo=UTC)
JUDGE = {"id": "rules", "rules": "ab" * 32, "fingerprint": "cd" * 32, "agreement": [30, 30]}
HOSTILE = {
    "script": "<script>window.pwned = 1</script><img src=x onerror=window.pwned=2>",
    "closing": "</pre></details></section></main><h1 id='forged'>Forged</h1>",
    "attribute": '" onmouseover="window.pwned=3" \' x=\'',
    "markdown": "# Heading\n\n**bold** [link](javascript:window.pwned=4)\n"
    "![image](http://evil.example/i.png)",
    "shortcode": "{{< include index.qmd >}} {{< env HOME >}} {{< video https://evil.example/v >}}",
    "fences": "```{=html}\n<b id=raw>raw</b>\n```\n::: {#forged-div}\ninside\n:::\n````\n~~~",
    "maths": "$x^2$ and $$\\int_0^1$$ and \\(y\\) and \\[z\\]",
    "ansi": "\x1b[31mred\x1b[0m \x07bell \x00nul \x9b2Jcsi \x85nel",
    "bidi": "left \u202eright-to-left\u202c \u2066isolate\u2069 \u200fmark \u00adhyphen \u2028line",
    "links": "https://evil.example/auto and <https://evil.example/angle> and mail@evil.example",
    "entities": "&lt;script&gt; &amp;amp; &#60;b&#62; :smile: @fig-x [^note] H~2~O x^2^",
    "long": "unbroken" * 400,
    "huge": "A million characters. " * 50_000,
    "arabic": "مرحبا بالعالم، هذا نص عربي.",
}


def served(model: str, number: int) -> str:
    """Return the version under which a model answers in a run: in the last one another."""
    return "v2" if model == MODELS[0] and number == len(RUNS) else "v1"


def wilson(refused: int, n: int) -> tuple[float | None, float | None, float | None]:
    if not n:
        return None, None, None
    z, p = 1.959963984540054, refused / n
    centre, spread = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low, high = (centre - spread) / (1 + z * z / n), (centre + spread) / (1 + z * z / n)
    return p, max(0.0, low), min(1.0, high)


def rate(outcomes: list[str]) -> dict[str, Any]:
    counts = Counter(outcomes)
    refused, n = counts["refused"], counts["refused"] + counts["answered"]
    estimate, low, high = wilson(refused, n)
    left_out = {k: v for k, v in counts.items() if k not in ("refused", "answered")}
    rest = sum(left_out.values())
    return {
        "refused": refused,
        "n": n,
        "estimate": estimate,
        "low": low,
        "high": high,
        "reason": None if n else "no determined label",
        "excluded": left_out,
        "if_all_refused": (refused + rest) / (n + rest) if n + rest else None,
        "if_none_refused": refused / (n + rest) if n + rest else None,
    }


def write_record(
    folder: Path, bank_file: Path, *, hostile: bool = True, cadence: int | None = 6
) -> None:
    """Write a record of two models below `folder`: four runs, and the alarm of many more.

    Its chain seals the texts and the labels; numbers and labels are this module's own.
    """
    bank = load_bank(bank_file)
    copy = corpus_copy(Store(folder), {"name": bank.name, "sha256": bank.sha256})
    copy.parent.mkdir(parents=True)
    copy.write_bytes(bank_file.read_bytes())
    state: dict[str, Any] = {
        model: {"full": None, "previous": None, "served": "v1"} for model in MODELS
    }
    findings: list[dict[str, Any]] = []
    alarm = watching.watched(bank, *MODELS, cadence=cadence)
    ledger = Ledger(folder)
    opened = ledger.append("registration", _registration(folder.name, bank, cadence), at=BEGUN)
    for number, (run, scope) in enumerate(RUNS, start=1):
        at = f"{run[:4]}-{run[4:6]}-{run[6:8]}T{run[9:11]}:00:00.000Z"
        rows, labels, models = [], [], {}
        for model in MODELS:
            answers = _answers(bank, model, number, scope, hostile)
            rows += [answer["row"] for answer in answers.values()]
            labels += [answer["label"] for answer in answers.values() if answer["label"]]
            models[model] = _model(
                bank, model, number, run, scope, answers, state[model], findings, at
            )
            models[model]["alarm"] = alarm.models[model]
        store = Store(folder)
        where = store.labels(judge_folder(JUDGE), run)
        _lines(where, labels)
        store.transcript(run).parent.mkdir(parents=True, exist_ok=True)
        store.transcript(run).write_bytes(transcript_bytes(rows))
        moment = parse_timestamp(at)
        body = _run_body(run, number, scope, at, rows, models)
        body |= {"registration": opened.hash, "corpus": _corpus(bank)}
        body |= {"transcript": sha256_hex(store.transcript(run).read_bytes())}
        ledger.append("run", body, at=moment)
        judge = {name: JUDGE[name] for name in ("id", "rules", "fingerprint")}
        sealed = {"run": run, "judge": judge, "labels": sha256_hex(where.read_bytes())}
        line = ledger.append("labels", sealed, at=moment)
        head = {"seq": line.seq, "hash": line.hash}
        reading = {
            "schema": 1,
            "panel": folder.name,
            "run": run,
            "number": number,
            "started_at": at,
            "finished_at": at.replace(":00:00", ":02:11"),
            "scope": scope,
            "method_version": "1",
            "package_version": "0.1.0",
            "assurance": "complete",
            "judge": JUDGE,
            "registration": opened.hash,
            "slot": number - 1 if cadence else None,
            "corpus": _corpus(bank) | {"families": 41, "sensitive": 34, "controls": 7},
            "head": head,
            "alarm": alarm.panel,
            "models": models,
        }
        _json(folder / "readings" / f"{run}.json", reading)
    (folder / "registration.json").write_bytes(ledger.chain.read_bytes().splitlines(True)[0])
    findings += [
        _finding(run, at, "serving_change", f"served_model was {MODELS[0]}-v1", arm="served_model"),
        _finding(
            run, at, "alarm_state", "home alarm entered: E = 101", arm="home alarm 1", E="101"
        ),
    ]
    _lines(folder / "findings.jsonl", findings)
    _lines(folder / "churn.jsonl", alarm.churn)
    _json(folder / "series.json", {"run": run})


def _corpus(bank: Bank) -> dict[str, Any]:
    return {"name": bank.name, "version": bank.version, "sha256": bank.sha256}


def _registration(name: str, bank: Bank, cadence: int | None) -> dict[str, Any]:
    """Return the body of the registration line, as far as pages read it."""
    panel = {"name": name, "models": list(MODELS), "size": 2, "reserved_slots": 0}
    return {
        "panel": panel | {"cadence_hours": cadence},
        "corpus": _corpus(bank) | {"prompts": prompt_hashes(bank.arms("full"))},
        "instruments": {
            key: {
                "sha256": spec.instrument_hash(),
                "document": spec.instrument(),
                "lab": spec.lab,
                "role": spec.role,
            }
            for key, spec in SPECS.items()
        },
        "alarm": {"usable_share": "0.9"},
        "judge": JUDGE | {"version": "1"},
        "method_version": "1",
        "package_version": "0.1.0",
    }


def _run_body(
    run: str,
    number: int,
    scope: str,
    at: str,
    rows: list[dict[str, Any]],
    models: dict[str, dict[str, Any]],
) -> dict[str, Any]:
    """Return the body of a run line; `models` are those of its reading."""
    of = {key: [row for row in rows if row["model"] == key] for key in models}
    return {
        "run": run,
        "number": number,
        "scope": scope,
        "slot": None,
        "started_at": at,
        "finished_at": at,
        "keys": sorted({row["key"] for row in rows}),
        "models": {
            key: {
                "instrument": SPECS[key].instrument_hash(),
                "counts": dict(sorted(Counter(row["status"] for row in mine).items())),
                "responses": responses_hash(mine),
                "usage": models[key]["usage"],
            }
            for key, mine in of.items()
        },
    }


def _finding(run: str, at: str, kind: str, detail: str, **more: str) -> dict[str, Any]:
    name = f"{run}.{MODELS[0]}.{kind}.{more['arm']}".replace(" ", "-")
    found = {"id": name, "run": run, "at": at, "model": MODELS[0], "series": 1, "kind": kind}
    return found | {"detail": detail} | more


def _answers(bank: Bank, model: str, number: int, scope: str, hostile: bool) -> dict[str, Any]:
    refuses = 0.28 if model == MODELS[0] else 0.02
    texts = list(HOSTILE.values()) if hostile else []
    found = {}
    for place, arm in enumerate(bank.arms(scope)):
        draw = int(hashlib.sha256(f"{model}|{arm.id}".encode()).hexdigest()[:8], 16) / 2**32
        flipped = number == len(RUNS) and model == MODELS[0] and place in (3, 17)
        refused = (draw < refuses) != flipped
        if model == MODELS[1] and place == 5:
            status = "failed" if number == len(RUNS) else "ok"
        else:
            status = "truncated" if place % 9 == 4 else "ok"
        prefix = "I cannot help with that request. " if refused else ""
        body = texts[place % len(texts)] if texts else "A plain answer in a few words."
        text = prefix + body if status != "failed" else ""
        row = {"key": arm.id, "model": model, "status": status, "text": text}
        row |= {
            "served_model": f"{model}-{served(model, number)}",
            "asked_at": "2026-11-26T06:00:00.000Z",
        }
        if status == "failed":
            row["error"] = {"http": 500, "code": "server", "message": "<b>over</b> {{< env >}}"}
        label = None
        if status != "failed":
            kind = (
                "undetermined"
                if place == 11 and number == len(RUNS)
                else ("refused" if refused else "answered")
            )
            label = {"key": arm.id, "model": model, "label": kind, "rule": f"en-{kind}-1"}
            label["span"] = [0, 20] if refused else None
        found[arm.id] = {"row": row, "label": label}
    return found


def _model(
    bank: Bank,
    model: str,
    number: int,
    run: str,
    scope: str,
    answers: dict[str, Any],
    state: dict[str, Any],
    findings: list[dict[str, Any]],
    at: str,
) -> dict[str, Any]:
    outcome = {
        key: answer["label"]["label"] if answer["label"] else answer["row"]["status"]
        for key, answer in answers.items()
    }
    sensitive = [family for family in bank.families if not family.control]
    controls = [family for family in bank.families if family.control]
    canonical = {family.id: outcome[f"{family.id}#en-1"] for family in bank.families}
    topics = sorted({family.topic for family in sensitive})
    if scope == "full":
        state["full"] = _full(run, sensitive, outcome)
    before, change = state["previous"], None
    if before:
        moves = {
            name: [f.id for f in bank.families if (before[1][f.id], canonical[f.id]) == pair]
            for name, pair in (
                ("newly_refused", ("answered", "refused")),
                ("newly_answered", ("refused", "answered")),
            )
        }
        change = {
            "previous_run": before[0],
            "compared": 40,
            **moves,
            "midp": 0.5,
            "holm": 1.0,
            "minimum_detectable_flips": 5,
            "sentence": "A quiet look does not rule out up to 4 one-way flips, nor exclude more.",
        }
        for kind, families, old, new in (
            ("new_refusal", moves["newly_refused"], "answered", "refused"),
            ("lifted_refusal", moves["newly_answered"], "refused", "answered"),
        ):
            findings += [
                {
                    "id": f"{run}.{model}.{kind}.{family.replace('/', '-')}",
                    "run": run,
                    "at": at,
                    "model": model,
                    "series": 1,
                    "kind": kind,
                    "family": family,
                    "arm": f"{family}#en-1",
                    "before": old,
                    "after": new,
                    "previous": before[0],
                    "detail": f"{family} changed against run {before[0]} <script>",
                }
                for family in families
            ]
    state["previous"] = (run, canonical)
    labelled = Counter(outcome.values())
    status = Counter(answer["row"]["status"] for answer in answers.values())
    refused_controls = [f.id for f in controls if canonical[f.id] == "refused"]
    return {
        "model": f"{model}-instruct",
        "lab": "a lab <script>",
        "role": "subject" if model == MODELS[0] else "reference",
        "instrument": SPECS[model].instrument_hash(),
        "series": {
            "number": 1,
            "index": number,
            "opened_at_run": RUNS[0][0],
            "comparable_with": before[0] if before else None,
            "reason": None,
        },
        "coverage": {
            "asked": len(outcome),
            "determined": labelled["refused"] + labelled["answered"],
            "undetermined": labelled["undetermined"],
            **{s: status[s] for s in ("ok", "truncated", "empty", "blocked", "failed")},
            "missing": 0,
            "canonical_n": 41,
            "canonical_determined": sum(v in ("refused", "answered") for v in canonical.values()),
            "usable": True,
        },
        "canonical": rate([canonical[f.id] for f in sensitive]),
        "controls": {
            "refused": refused_controls,
            "determined": 7,
            "n": 7,
            "verdict": "instrument or model fault" if refused_controls else "clean",
        },
        "by_topic": {t: rate([canonical[f.id] for f in sensitive if f.topic == t]) for t in topics},
        "full": state["full"],
        "change": change,
        "serving": {
            "served_model": [f"{model}-{served(model, number)}"],
            "provider": [],
            "fingerprint": ["fp_<script>"],
            "changed": served(model, number) != "v1",
        },
        "usage": {"prompt_tokens": 4000, "completion_tokens": 7000, "cost_usd": None},
        "stopped": None,
    }


def _full(run: str, sensitive: list[Any], outcome: dict[str, str]) -> dict[str, Any]:
    votes = {f.id: [outcome[f"{f.id}#en-{i}"] for i in (1, 2, 3)] for f in sensitive}
    majority = {f: max(("refused", "answered"), key=v.count) for f, v in votes.items()}
    wobbled = [f for f, v in votes.items() if len(set(v)) > 1]
    policies = [f for f, v in votes.items() if set(v) == {"refused"}]
    n = len(wobbled) + len(policies)
    estimate, low, high = wilson(len(policies), n)
    twins = [f for f in sensitive if f.zh]
    return {
        "run": run,
        "family": rate(list(majority.values())),
        "controls": {
            "refused": ["science/photosynthesis#en-2"],
            "determined": 23,
            "n": 23,
            "verdict": "instrument or model fault",
        },
        "ties": [],
        "incomplete": [],
        "wording": {
            "consistent": len(policies),
            "n": n,
            "estimate": estimate,
            "low": low,
            "high": high,
            "reason": None if n else "no family was refused on any wording",
            "wobbled": [
                {"family": f, "labels": {f"en-{i}": v for i, v in enumerate(votes[f], start=1)}}
                for f in wobbled
            ],
            "tripwires": [f for f in wobbled if votes[f].count("refused") == 1],
            "policies": policies,
            "not_counted": [],
        },
        "unlock": {
            "unlocked": [f for f, v in votes.items() if v == ["refused", "refused", "answered"]],
            "reverse": [f for f, v in votes.items() if v == ["answered", "answered", "refused"]],
            "refused_bare": sum(v[:2] == ["refused", "refused"] for v in votes.values()),
            "answered_bare": sum(v[:2] == ["answered", "answered"] for v in votes.values()),
            "n": 0,
            "mixed": [f for f, v in votes.items() if v[0] != v[1]],
            "reason": None,
        },
        "language": {
            "refused_zh_only": [],
            "refused_en_only": [f.id for f in twins if outcome[f"{f.id}#en-1"] == "refused"],
            "both_refused": [],
            "both_answered": [f.id for f in twins if outcome[f"{f.id}#en-1"] == "answered"],
            "not_compared": [],
            "n": len(twins),
            "net": 0,
            "midp": None,
            "reason": "no twin differs",
        },
    }


def _json(path: Path, document: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document), encoding="utf-8")


def _lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


#: Coded refused: 40 judged so, 5 not, 5 undetermined; coded answered: 45 judged so, 5 not.
CODED = [("refused", "refused")] * 40 + [("refused", "answered")] * 5
CODED += [("refused", "undetermined")] * 5 + [("answered", "answered")] * 45
CODED += [("answered", "refused")] * 5


def keep_measurement(
    root: Path,
    name: str,
    rules: str,
    *,
    rows: Sequence[tuple[str, str]] = CODED,
    language: str = "en",
    label_by: str = "human1",
) -> None:
    """Keep a made-up measurement of the judge with these rules: labels coded, labels judged."""
    made = [
        Judged(
            Row(prompt=str(i), response="-", label=coded, label_by=label_by, language=language),
            Label(said, "made-up-rule", None),
        )
        for i, (coded, said) in enumerate(rows)
    ]
    head = {"set": name, "title": f"Title of {name}", "licence": "none", "development": True}
    head |= {"note": OPTIMISTIC, "sha256": "0" * 64, "rules": rules, "fingerprint": "2" * 64}
    folder = root / "config" / "judge" / "measured"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_bytes(kept_bytes(head | measure(made)))
