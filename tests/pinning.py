"""A record whose two models refuse what they are told to, run by run; one is the reference."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

from conftest import ROOT, Ticking
from loopback import Loopback, Reply, Request, completion
from making import ANSWER, REFUSAL, answering, record, run, write_panel

from drift.bank import load_bank
from drift.elicit import elicit, load_elicitor
from drift.ladders import load_ladders

#: Declined by another rule than REFUSAL.
OTHER = "I cannot provide information on this subject."
OTHER_RULE = "en-cannot-serve"


def write_reference_panel(project: Path, server: Loopback, *, tokens: int) -> None:
    """Write the test panel with `steady` as its reference; `tokens` are those of the subject."""
    write_panel(project, server.base_url)
    path = project / "config" / "panels" / "test.toml"
    role = f'role = "reference"\nweights_sha256 = "{"5" * 64}"'
    text = path.read_text().replace('key = "steady"', f'key = "steady"\n{role}')
    head, limit, tail = text.rpartition("max_tokens = 48")
    path.write_text(head + limit.replace("48", str(tokens)) + tail)


class Story:
    """A project whose two models refuse what they are told to, run by run."""

    def __init__(self, project: Path) -> None:
        self.project = project
        shutil.copytree(ROOT / "config", project / "config")
        self.clock = Ticking(datetime(2026, 3, 1, 0, 5, tzinfo=UTC))
        bank = load_bank(project / "config" / "probe_bank.json")
        self.prompts = [arm.prompt for arm in bank.arms("canonical")]
        self.ladders = load_ladders(project / "config" / "ladders.json").ladders
        #: What a model says turn by turn to a question; the last goes on.
        self.said: dict[str, dict[str, list[str]]] = {"lab/steady": {}, "lab/subject": {}}

    def script(self, request: Request) -> Reply:
        asked = [it["content"] for it in request.document["messages"] if it["role"] == "user"]
        said = self.said[request.model].get(asked[0])
        return completion(said[min(len(asked), len(said)) - 1]) if said else answering(request)

    def refuse(self, model: str, *questions: int, text: str = REFUSAL) -> None:
        """From now on `model` says `text` to these questions, and answers the others."""
        self.said[f"lab/{model}"] = {self.prompts[number]: [text] for number in questions}

    def climb(self, model: str, ladders: int, *, points: int = 0) -> None:
        """From now on `model` declines so many ladders; asked again, it gives so many points."""
        self.said[f"lab/{model}"] = {
            it.turns[0]: [REFUSAL, " ".join([ANSWER, *stems])] if points else [REFUSAL]
            for it in [it for it in self.ladders if it.language == "en"][:ladders]
            for stems in [[group[0] for group in it.points[:points]]]
        }

    def panel(self, server: Loopback, *, tokens: int = 48) -> None:
        write_reference_panel(self.project, server, tokens=tokens)

    def run(self) -> None:
        assert run(self.project, self.clock).sealed
        self.clock.advance(hours=6)

    def batch(self, elicitor: str, name: str = "") -> None:
        made = record(self.project, self.clock)
        with made.opened():
            found = elicit(made, load_elicitor(elicitor, root=self.project), name=name)
        assert found.sealed, found.notes
        self.clock.advance(hours=1)

    def register(self) -> None:
        made = record(self.project, self.clock)
        with made.opened():
            made.register()
        self.clock.advance(minutes=1)

    def change_judge(self, rule: str) -> None:
        """Take a rule away, so that what it declined becomes an answer."""
        path = self.project / "config" / "judge" / "rules.toml"
        head, *entries = path.read_text(encoding="utf-8").split("[[rule]]")
        kept = [entry for entry in entries if f'id = "{rule}"' not in entry]
        assert len(kept) == len(entries) - 1
        path.write_text("[[rule]]".join([head, *kept]), encoding="utf-8")
