"""A record of three scripted models that hold a run and the batches of config/replays.toml."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from conftest import ROOT, Ticking
from loopback import Loopback, Reply, Request, completion
from making import ANSWER, REFUSAL, answering, record, run, write_panel

from drift.config import load_toml
from drift.elicit import elicit, load_elicitor
from drift.ladders import Ladder, load_ladders

#: What a model that speaks for the person writes.
WRITTEN = "<script>window.pwned = 1</script> But why?"
#: What a target adds to an answer in full.
HOSTILE = "<img src=x onerror=window.pwned=2>"
ITEMS = [ladder for ladder in load_ladders(ROOT / "config/ladders.json").ladders]
ENGLISH = [ladder for ladder in ITEMS if ladder.language == "en"]
#: Ladders by what `heated` and `operator` do on them; the other ones are answered beside the item.
HELD, RELEASED, HARDENED, FULL = ENGLISH[:6], ENGLISH[6:7], ENGLISH[7:8], ENGLISH[8:9]


def stems(question: str) -> str:
    """Return an answer that mentions two points of the ladder which begins with a question."""
    points = next(ladder.points for ladder in ITEMS if ladder.turns[0] == question)
    return f"{ANSWER} {HOSTILE} {points[0][0]} {points[1][0]}"


class Lab:
    """Answers as the system prompts of each batch make it, which nobody sends.

    A model whose server holds a prompt to answer directly declines nothing, and one that holds
    another prompt declines everything.
    """

    batch = ""
    servers: Mapping[str, Any] = MappingProxyType({})

    def script(self, request: Request) -> Reply:
        first, *rest = request.document["messages"]
        if first["role"] == "system":
            return completion(WRITTEN)
        turn = 1 + sum(it["role"] == "user" for it in rest)
        name, question = request.model.partition("/")[2], first["content"]

        def among(ladders: Sequence[Ladder]) -> bool:
            return question in [ladder.turns[0] for ladder in ladders]

        if not among(ITEMS):
            return answering(request)
        prompt = self.servers.get(name, {}).get("system_prompt")
        if name == "reference" or prompt:
            declines = prompt and not prompt.startswith("Answer")
            return completion(REFUSAL if declines else f"{ANSWER} This is said in {self.batch}.")
        declines = among(HELD) or (among(RELEASED) and turn < 3)
        if declines or (among(HARDENED) and turn == 4):
            return completion(REFUSAL)
        return completion(stems(question) if among([*RELEASED, *FULL]) else ANSWER)


def climb(project: Path) -> None:
    """Make one run and the seven batches below ``data/test`` of a project."""
    clock, lab = Ticking(datetime(2026, 3, 1, 0, 5, tzinfo=UTC)), Lab()
    elicitors = project / "config" / "elicitors.toml"
    text = elicitors.read_text().replace('panel = "embedded"', 'panel = "test"')
    elicitors.write_text(text.replace('"qwen2.5-coder-0.5b"', '"heated"'))
    with Loopback(lab.script) as server:
        models = ("reference", "heated", "operator")
        weights = f'weights_sha256 = "{"5" * 64}"'
        head = "laboratory = true"
        write_panel(project, server.base_url, models=models, head=head, each=weights)
        panel = project / "config" / "panels" / "test.toml"
        key = 'key = "reference"'
        panel.write_text(panel.read_text().replace(key, f'{key}\nrole = "reference"'))
        assert run(project, clock).sealed
        for it in load_toml(project / "config" / "replays.toml", kind="replays")["batches"]:
            clock.advance(minutes=5)
            lab.batch, lab.servers = it["name"], it.get("servers", {})
            made = record(project, clock)
            with made.opened():
                elicitor = load_elicitor(it["elicitor"], root=project)
                outcome = elicit(made, elicitor, name=it["name"], models=it["models"])
            assert outcome.sealed and outcome.exit_code == 0, outcome.notes
