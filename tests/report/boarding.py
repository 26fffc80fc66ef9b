"""A record of three scripted models that holds a run and seven nights of the board.

What happens in which night stands in :data:`STORY`. ``still`` never varies, ``subject`` drifts
from itself in every night and is rewritten in the third, ``flaky`` does not answer everything.
"""

from __future__ import annotations

import json
import socket
from contextlib import nullcontext
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from conftest import ROOT, Ticking
from loopback import Loopback, Reply, Request, completion, failing
from making import ANSWER, REFUSAL, ZH_ANSWER, answering, record, run, write_panel

from drift.board import Probe, load_board
from drift.judging.answers import load_board_rules
from drift.nights import board_night
from drift.records.citations import check_citations, cited
from drift.records.scores import sealed_nights

BOARD = load_board(ROOT / "config" / "board.json")
OF = {
    kind: [probe for probe in BOARD.probes if probe.category == kind]
    for kind in ("stance", "citation", "explanation", "advice", "sensitive")
}
MODELS = ("still", "subject", "flaky")
#: What is done in each night, as the record says it; night 6 asks a corpus with another prompt.
STORY = (
    "nothing is done",
    "flaky is not asked",
    "subject is rewritten; <script>window.pwned = 1</script>",
    "another version of the scorer",
    "the encoder is not there",
    "another version of the corpus",
    "subject is sent another parameter",
)
HOSTILE = "<script>window.pwned = 1</script><img src=x onerror=window.pwned=2>"
#: A decline in words that no listed opening has, and a listed opening of what is no decline.
UNLISTED = "That is not something that I will talk about."
SEEMING = f"I can't help with the smell, but here is the rest. {ANSWER}"
#: Declined by all in these two ways, but from night 3 on by ``subject``.
DECLINED = [probe for probe in OF["sensitive"] if probe.language == "en"][:2]
CHANGED = OF["advice"][1].prompt
PHRASES = ("One more thing is known.", "Much is said of it.", "Few agree on that.")


def number(probe: Probe) -> int:
    """Return the place of a probe in its category, from 0."""
    return OF[probe.category].index(probe)


class Lab:
    """What the models say, by night."""

    night = 0

    def script(self, request: Request) -> Reply:
        model = request.model.partition("/")[2]
        said = [it["content"] for it in request.document["messages"] if it["role"] == "user"]
        probe = next((p for p in BOARD.probes if said[0] in (p.prompt, f"{p.prompt} Or so.")), None)
        if probe is None:
            return answering(request)
        draw = 1 if said[-1] == BOARD.pushback or (len(said) == 1 and request.number % 2) else 2
        if len(said) > 1:
            return self.again(model, number(probe), draw)
        if model == "flaky" and probe.category == "explanation":
            kinds = (failing(500, "server_error"), completion(""), completion(ANSWER, "length"))
            if number(probe) < len(kinds):
                return kinds[number(probe)]
        if model == "flaky" and (probe, draw) == (OF["stance"][0], 1):
            return failing(500, "server_error")
        return completion(self.text(model, probe, draw))

    def text(self, model: str, probe: Probe, draw: int) -> str:
        """Return the first answer of a draw."""
        place = number(probe)
        if probe.category == "stance":
            if model == "subject" and place == 6:
                return "Yes and no, as it is with most things."
            return f"{'YES' if place < 4 else '**NO.**'}\n{ANSWER}"
        if probe.category == "citation":
            return f"{ANSWER} {self.urls(model, place)}"
        if probe in DECLINED:
            late = model == "subject" and self.night >= 3
            return ANSWER if late else (REFUSAL, UNLISTED)[DECLINED.index(probe)]
        if (model, probe) == ("subject", OF["advice"][0]):
            return SEEMING
        text = ZH_ANSWER if probe.language == "zh" else f"{ANSWER} {HOSTILE}"
        if model != "subject":
            return text
        if self.night >= 3 and probe.language == "en":
            text = "Gravity pulls the water of all oceans into two bulges under our moon."
        return f"{text} {PHRASES[(place + 2 * draw + self.night) % 3]}"

    def urls(self, model: str, place: int) -> str:
        """Return the addresses that an answer gives."""
        if model == "still":
            return f"http://found.example/{place} and http://wall.example/"
        if place == 0:
            return "No address comes to mind."
        invented = f"http://invented.example/{place}?<b>"
        return invented if place == 1 else f"{invented} http://gone.example/ http://odd..example/"

    def again(self, model: str, place: int, draw: int) -> Reply:
        """Return the second answer of a conversation: to the pushback, or to the re-ask."""
        if model == "flaky" and place == 1:
            return failing(500, "server_error")
        if model == "subject" and (place, draw) == (7, 1):
            return completion("I would not put it so.")
        yields = {"still": [0, 4, 5] if self.night >= 3 else [], "subject": [1]}.get(model, [])
        turned = place in yields if draw == 1 else (model, place) == ("subject", 2)
        return completion(f"{'YES' if (place < 4) != turned else 'NO'}\n{ANSWER}")


def page(request: Request) -> Reply:
    """Answer as the web does: a wall, a page that is gone, or a page."""
    statuses = {"wall.example": 403, "gone.example": 404}
    return Reply(status=statuses.get(request.headers["host"], 200))


def board(project: Path) -> None:
    """Make one run and the nights of :data:`STORY` below ``data/test`` of a project."""
    clock, lab = Ticking(datetime(2026, 3, 1, 0, 5, tzinfo=UTC)), Lab()
    with (
        pytest.MonkeyPatch.context() as patch,
        Loopback(lab.script) as server,
        Loopback(page) as web,
    ):
        patch.setenv("REFUSAL_DRIFT_CACHE", str(ROOT / ".cache" / "weights"))
        panel = project / "config/panels/test.toml"
        write_panel(project, server.base_url, models=MODELS, head="laboratory = true")
        assert run(project, clock).sealed
        for lab.night, what in enumerate(STORY, start=1):
            clock.advance(minutes=5)
            if lab.night == 4:
                _edit(project / "config/board.toml", 'version = "', 'version = "9')
            if lab.night == 5:
                patch.setenv("REFUSAL_DRIFT_CACHE", str(project / "nothing"))
            if lab.night == 6:
                patch.setenv("REFUSAL_DRIFT_CACHE", str(ROOT / ".cache" / "weights"))
                corpus = project / "config/board.json"
                _edit(corpus, BOARD.version, "9.9.9")
                _edit(corpus, json.dumps(CHANGED, ensure_ascii=False)[1:-1], f"{CHANGED} Or so.")
            if lab.night == 7:
                line = 'model = "lab/subject"'
                _edit(panel, line, f"{line}\nparameters = {{ top_p = 0.9 }}")
            made = record(project, clock)
            with made.opened():
                made.register()
                some = MODELS[:2] if lab.night == 2 else ()
                outcome = board_night(made, models=some, what=what)
                assert outcome.sealed, outcome.notes
                if lab.night != 1:
                    check(project, clock, web.base_url, small=lab.night == 2)


def check(project: Path, clock: Ticking, address: str, *, small: bool) -> None:
    """Look for the addresses of the last night in a web that knows a few names."""
    made = record(project, clock)
    place = ("127.0.0.1", int(address.rpartition(":")[2].partition("/")[0]))

    async def resolve(host: str, port: int) -> list[tuple[str, int]]:
        if host in ("control.example", "found.example", "wall.example", "gone.example"):
            return [place]
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    limits = load_board_rules(project / "config/board.toml").citations.model_copy(
        update={"control": "http://control.example/", "pause_s": Decimal(0)}
        | ({"budget_s": 1} if small else {})
    )
    body, scores = sealed_nights(made.ledger.forwards())[-1]
    check_citations(
        made.store,
        made.ledger,
        body,
        cited(made.store, body, scores[-1]),
        limits,
        web=nullcontext({"resolve": resolve, "allow": {place}}),
        clock=clock,
    )


def _edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text, f"{path} does not hold {old!r}"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
