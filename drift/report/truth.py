"""The phantom's known truth beside what its record shows: injected facts, recovered or not.

``truth.json`` states every label beforehand, and the rules they follow from. What is due of
each rule is settled here once, for every phantom; whether it came is read from the record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import orjson
import pandas as pd

from drift.records.run import determined_labels
from drift.report.display import piece
from drift.report.markup import Markup, html, joined, table, with_data
from drift.report.tables import Record
from drift.stats import language_asymmetry, purpose_unlock, wording_invariance

NO_TRUTH = Markup("<p>This record declares no truth: its models are not scripted.</p>")
VERDICTS = {True: "yes", False: "no", None: "not counted"}


@dataclass(frozen=True)
class Fact:
    """One injected fact: `since` is the number of the run it holds from; `recovered` is None
    where nothing is claimed of it, or nothing that another fact does not imply."""

    model: str
    injected: str
    since: int
    due: str
    shown: str
    recovered: bool | None


class Truth:
    """The truth of a record, and the record read against it up to the run that is shown."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.document: dict[str, Any] = orjson.loads(record.store.truth.read_bytes())
        self.numbers = {run: number for number, run in enumerate(record.runs, start=1)}

    @cached_property
    def accuracy(self) -> pd.DataFrame:
        """How many labels are as scripted: model, run, labels_compared, as_scripted."""
        letters = self.document["letters"]
        # The record may go on after the runs whose labels were written beforehand.
        stated, rows = min(map(len, self.document["labels"].values())), []
        for run, number in islice(self.numbers.items(), stated):
            compared, alike = Counter[str](), Counter[str]()
            scripted = self.scripted(number)
            for (model, key), row in self.record.stored(run).answers.items():
                compared[model] += 1
                said = letters.get(row.get("label") or row["status"])
                alike[model] += said == scripted[model].get(key)
            rows += [
                {"model": model, "run": run, "labels_compared": n, "as_scripted": alike[model]}
                for model, n in sorted(compared.items())
            ]
        return pd.DataFrame(rows)

    def scripted(self, number: int) -> dict[str, dict[str, str]]:
        """Return the letters of the labels in run `number`, by model and arm."""
        arms = self.document["arms"]
        return {
            model: dict(zip(arms, labels[number - 1], strict=True))
            for model, labels in self.document["labels"].items()
        }

    def dated(self, model: str, number: int, *kinds: str) -> set[str]:
        """Return the arms of a model's findings of these kinds in run `number`."""
        run = self.record.runs[number - 1]
        return {
            str(item.get("arm"))
            for item in self.record.dated.get(run, ())
            if item["model"] == model and item["kind"] in kinds
        }

    def entered(self, model: str, process: str) -> dict[str, int]:
        """Return the number of the run in which a process first entered each of its states."""
        found: dict[str, int] = {}
        for items in self.record.dated.values():
            for item in items:
                name, _, state = str(item.get("arm")).rpartition(" ")[0].partition(" ")
                if (item["kind"], item["model"], name) == ("alarm_state", model, process):
                    found.setdefault(state, self.numbers[item["run"]])
        return found

    def facts(self) -> Iterator[Fact]:
        """Yield every injected fact with what is due of it and what the record shows."""
        for model, story in self.document["rules"]["models"].items():
            yield self._labels(model)
            yield from self._figures(model)
            for change in story.get("changes", ()):
                if change["run"] <= len(self.numbers):
                    yield from self._change(model, change)
            if not any("churn" in change for change in story.get("changes", ())):
                yield self._quiet(model, story)

    def _labels(self, model: str) -> Fact:
        mine = self.accuracy[self.accuracy.model == model]
        compared, alike = int(mine.labels_compared.sum()), int(mine.as_scripted.sum())
        shown = f"{alike:,} of {compared:,} stored labels"
        return Fact(model, "a label for each answer", 1, "each label", shown, alike == compared)

    def _figures(self, model: str) -> Iterator[Fact]:
        """Hold the derived figures of the last full run against those of the scripted labels."""
        full = self.record.models[model]["full"]
        bank = self.record.bank
        if not full or not bank:
            return
        number = self.numbers[full["run"]]
        names = {letter: what for what, letter in self.document["letters"].items()}
        outcomes = {arm: names[said] for arm, said in self.scripted(number)[model].items()}
        found = determined_labels(outcomes)
        labels = {
            item.id: {arm.variant: found[arm.id] for arm in item.arms()}
            for item in bank.families
            if not item.control
        }
        twins = {key: (of["en-1"], of["zh"]) for key, of in labels.items() if "zh" in of}
        wording, unlock = wording_invariance(labels), purpose_unlock(labels)
        language = language_asymmetry(twins)
        figures = {
            "tripwires": (wording.tripwires, full["wording"]["tripwires"]),
            "unlocked": (unlock.unlocked, full["unlock"]["unlocked"]),
            "in Chinese alone": (language.refused_zh_only, full["language"]["refused_zh_only"]),
            "in English alone": (language.refused_en_only, full["language"]["refused_en_only"]),
        }
        shown = ", ".join(f"{len(read)} {name}" for name, (_, read) in figures.items())
        same = all(list(scripted) == list(read) for scripted, read in figures.values())
        injected = f"wordings, purposes and languages as of run {number}"
        due = "the families that the script gives: they follow from the labels"
        # The same functions read both: where the labels are equal, this cannot fail on its own.
        yield Fact(model, injected, 1, due, shown, None if same else False)

    def _change(self, model: str, change: Mapping[str, Any]) -> Iterator[Fact]:
        since = change["run"]
        if "churn" in change:
            injected = f"churn moves to {100 * float(change['churn']):g} % of the arms a run"
            injected += f" by run {change['to']}" if "to" in change else ""
            home, pairs = self.entered(model, "home"), self.entered(model, "pairs")
            said = [f"{state} in run {number}" for state, number in home.items()]
            said += [f"pairs alarm in run {pairs['alarm']}"] if pairs else []
            came = "alarm" in home and min(home.values()) > since
            yield Fact(model, injected, since, "home enters alarm, after it", _list(said), came)
        if turns := change.get("turns"):
            scripted = self.scripted(since)[model]
            refused = self.document["letters"]["refused"]
            arms = {name if "#" in name else f"{name}#en-1" for name in turns}
            new = self.dated(model, since, "new_refusal")
            lifted = self.dated(model, since, "lifted_refusal")
            found = {
                arm for arm in arms if arm in (new if scripted.get(arm) == refused else lifted)
            }
            said = [f"{len(found)} of {len(arms)} dated in that run, in the scripted direction"]
            rung = [name for name in ("home", "pairs") if "alarm" in self.entered(model, name)]
            said += [f"{name} entered alarm" for name in rung]
            burst = self.entered(model, "burst").get("alarm", 0)
            said += [f"burst noticed in run {burst}"] if burst >= since else []
            injected = f"{len(turns)} famil{'ies turn' if len(turns) > 1 else 'y turns'} and stay"
            due = "a dated finding for each in its direction, and no alarm of home or pairs"
            yield Fact(model, injected, since, due, _list(said), arms == found and not rung)
        if "blocked" in change:
            dated = bool(self.dated(model, since, "coverage_change"))
            said = ["a change of coverage dated in that run"] if dated else []
            injected, due = "the filter is lifted", "a dated change of coverage"
            if change["blocked"]:
                injected = f"a filter blocks {len(change['blocked'])} families"
                watch = self.entered(model, "coverage").get("watch", 0)
                said += [f"coverage watch in run {watch}"] if watch >= since else []
            yield Fact(model, injected, since, due, _list(said), dated)
        if "served" in change:
            dated = "served_model" in self.dated(model, since, "serving_change")
            said = ["a change of serving dated in that run"] if dated else []
            closed = self.dated(model, since, "series_closed")
            said += ["its series closed"] if closed else ["its series goes on"]
            due = "a dated change of serving, and an open series"
            injected = f"it reports itself as {change['served']}"
            yield Fact(model, injected, since, due, _list(said), dated and not closed)

    def _quiet(self, model: str, story: Mapping[str, Any]) -> Fact:
        """Return the fact that churn never changes, with what is rightly not found."""
        home, episodes = self.entered(model, "home"), story.get("episodes")
        said = [f"home entered {state} in run {number}" for state, number in home.items()]
        said = said or ["home never left quiet"]
        if rung := self.entered(model, "restart").get("alarm"):
            said.append(f"restart, which rests on a model of churn, entered alarm in run {rung}")
        if episodes and float(episodes["mean_runs"]) > 1:
            due = "home may ring: bad runs that last are outside its bound"
            return Fact(model, "bad runs that last", 1, due, _list(said), None)
        injected = "bad runs, one at a time" if episodes else "no lasting change of churn"
        return Fact(model, injected, 1, "no state of home", _list(said), not home)


def _list(said: list[str]) -> str:
    return ", ".join(said) or "nothing"


@piece
def facts(record: Record) -> Markup:
    """Return every injected fact, what is due of it, and what the record shows."""
    if not record.store.truth.exists():
        return NO_TRUTH
    found = list(Truth(record).facts())
    claimed = [fact.recovered for fact in found if fact.recovered is not None]
    frame = pd.DataFrame(map(asdict, found))
    shown = pd.DataFrame(
        {
            "Model": frame.model,
            "Recovered": [
                html('<b class="drift-{}">{}</b>', VERDICTS[one][:3].strip(), VERDICTS[one])
                for one in (fact.recovered for fact in found)
            ],
            "Injected": frame.injected,
            "From run": frame.since,
            "Due": frame.due,
            "What the record shows": frame.shown,
        }
    )
    said = "Recovered: <b>{} of {}</b> facts that could have failed, each on its own."
    text = joined([html(f"<p>{said}</p>", sum(claimed), len(claimed)), table(shown)])
    return with_data(text, "truth", frame)


@piece
def stories(record: Record) -> Markup:
    """Return in a line each what the scripted models do."""
    if not record.store.truth.exists():
        return NO_TRUTH
    models = Truth(record).document["rules"]["models"]
    line = "<li><b>{}</b>: {}</li>"
    return html("<ul>{}</ul>", joined(html(line, key, of["story"]) for key, of in models.items()))


@piece
def labels(record: Record) -> Markup:
    """Return how many labels of each run are the scripted ones, run by run in the file."""
    if not record.store.truth.exists():
        return NO_TRUTH
    frame = Truth(record).accuracy
    by = frame.groupby("model", sort=False)[["labels_compared", "as_scripted"]].sum().reset_index()
    shown = by.set_axis(["Model", "Labels compared", "As scripted"], axis=1)
    return with_data(table(shown), "truth-labels", frame)
