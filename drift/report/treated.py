"""What was done to the models of a record: changes that its plan opens, prompts, shared weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from drift.report.markup import Markup, html, joined
from drift.report.plan import Lab, closed
from drift.report.tables import Record


@dataclass(frozen=True)
class Treatment:
    """What a model of a record was put to: ``changes`` as (run, words), and a system prompt.

    Of its ``refusals``, ``dictated`` stand word for word in that prompt.
    """

    changes: tuple[tuple[int, str], ...]
    prompt: str
    dictated: int
    refusals: int

    @property
    def short(self) -> str:
        """In a few words, for a row."""
        if self.dictated:
            return "told by its system prompt to decline"
        if self.prompt:
            return "with a system prompt"
        return f"server changed in run {', '.join(str(run) for run, _ in self.changes)}"


def treatments(
    record: Record, full: Mapping[str, str], texts: Mapping[str, Sequence[str]]
) -> dict[str, Treatment]:
    """Return what was done to each model up to its run in `full`; `texts` are its refusals there.

    The changes are those of the plan that a laboratory record opens; a system prompt is that of
    the last change, else the registered one, which is told only where it dictates a refusal.
    """
    opened = record.panel.get("plan_sha256") and not closed(record)
    made = (
        sorted(Lab(record).plan["interventions"], key=lambda it: int(it["run"])) if opened else []
    )
    found = {}
    for model, run in full.items():
        reached = record.runs.index(run) + 1
        mine = [it for it in made if it["model"] == model and it["run"] <= reached]
        prompt = document(record, model).get("system_prompt") or ""
        for it in mine:
            prompt = it["server"].get("system_prompt") or prompt
        said = texts.get(model, ())
        dictated = sum(bool(text.strip()) and text.strip() in prompt for text in said)
        if mine or dictated:
            changes = tuple((it["run"], it["what"]) for it in mine)
            found[model] = Treatment(changes, prompt, dictated, len(said))
    return found


def document(record: Record, model: str) -> Mapping[str, str]:
    """Return the registered instrument of a model; empty if it is not registered."""
    found: Mapping[str, str] = record.instruments.get(model, {}).get("document", {})
    return found


def weights(record: Record, model: str) -> str:
    """Return what makes two models one: their weights, else the model that is requested."""
    of = document(record, model)
    return of.get("weights_sha256") or of.get("model") or model


def twins(record: Record, models: Iterable[str]) -> list[list[str]]:
    """Return the models that are one by :func:`weights`, each group of two or more."""
    groups: dict[str, list[str]] = {}
    for model in models:
        groups.setdefault(weights(record, model), []).append(model)
    return [group for group in groups.values() if len(group) > 1]


def together(record: Record, models: Iterable[str]) -> Markup:
    """Say which models are one, and that what was done to them is not known, if it is not."""
    unread = closed(record) if record.panel.get("plan_sha256") else ""
    same = "<p><b>{}</b> have the same weights: settings of one model, not {} models.</p>"
    groups = twins(record, models)
    return joined([unread, *(html(same, " and ".join(of), len(of)) for of in groups)])


def done(of: Treatment) -> Markup:
    """Say what was done to a model, and which of its refusals a prompt dictates."""
    changed = "; ".join(f"from run {run} on {what}" for run, what in of.changes)
    prompt = html(" Its system prompt: “{}”", of.prompt) if of.prompt else ""
    dictated = ""
    if of.dictated:
        dictated = html(
            " <b>{} of its {} refusals stand word for word in that prompt</b>: their shape is that "
            "of whoever wrote it, and says nothing of the model.",
            *(of.dictated, of.refusals),
        )
    lead = f" Done to it: {changed}." if changed else ""
    return html("{}{}{}", lead, prompt, dictated)
