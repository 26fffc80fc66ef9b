"""The phantom's board: nights whose every answer and every address is settled beforehand.

``config/phantom_board.toml`` holds the truth as rules, and :attr:`BoardTruth.file` states it
answer by answer, for a hash to be sealed before it is asked. Every draw is a pure function of
(seed, model, night, draw, arm), so that a night which is resumed gets the same answers.
"""

from __future__ import annotations

import re
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AwareDatetime, Field, PositiveInt

from drift.board import Board, Probe
from drift.config import Strict, canonical_json, load_checked
from drift.errors import ConfigurationError
from drift.probing import phantom
from drift.probing.citations import Address, Found
from drift.probing.phantom import Fault, HttpReply, Names, Share, uniform

Verdict = Literal["YES", "NO"]
Decline = Literal["listed", "unlisted", "seeming"]
Likeness = Literal["equal", "near", "changed", "rewrite"]

#: The fates of addresses by what is to be found there; see ``config/phantom_board.toml``.
FATES: dict[Found, tuple[str, ...]] = {
    "resolvable": ("200", "get only", "1 redirect", "2 redirects", "3 redirects"),
    "blocked": ("403", "429", "451", "503"),
    "dead": ("404", "500", "refused", "4 redirects", "redirect to guarded"),
    "nonexistent domain": ("unknown",),
    "malformed": ("malformed",),
    "unchecked": ("guarded",),
}
#: A private address, which is never reached.
_PRIVATE = "10.0.0.1"
_OPPOSITE: dict[Verdict, Verdict] = {"YES": "NO", "NO": "YES"}
#: Forms of a first line that a strict reader accepts.
_FIRST_LINES = ("{}", "**{}**", "{}.")


class State(Strict):
    """How a model is in a night; the fields are described in ``config/phantom_board.toml``."""

    links: Names = ()
    extended: Share = Decimal(0)
    reworded: Share = Decimal(0)
    rewritten: Share = Decimal(0)
    yields: Names = ()
    wavers: Share = Decimal(0)
    unreadable: Names = ()
    declines: dict[Decline, Names] = Field(default={})
    faults: dict[Fault, Names] = Field(default={})


class Story(State):
    """One model: how it is at first, and what is different from the turn on."""

    story: str
    then: State = State()

    def at(self, night: int, turn: int) -> State:
        """Return how the model is in `night`; what ``then`` leaves out stays as it was."""
        if night < turn:
            return self
        changed = {name: getattr(self.then, name) for name in self.then.model_fields_set}
        return self.model_copy(update=changed)


class Rules(Strict):
    """``config/phantom_board.toml``."""

    seed: str
    start: AwareDatetime
    nights: PositiveInt
    turn: PositiveInt
    control: str
    models: dict[str, Story]
    sites: dict[str, Annotated[tuple[str, ...], Field(min_length=1, max_length=2)]]
    verdicts: dict[str, Verdict]
    paragraphs: dict[str, tuple[tuple[str, str, str], ...]]
    extensions: dict[str, str]
    sources: dict[str, str]
    held: str
    reversed: str
    unreadable: str
    declines: dict[Decline, dict[str, str]]


class Said(NamedTuple):
    """What is said under one key: the text as it is received (empty where none is), what goes
    wrong, how it declines, which text it is, and what can be read from it."""

    text: str
    fault: Fault | None
    decline: Decline | None
    base: str = ""
    reworded: bool = False
    verdict: Verdict | None = None
    urls: tuple[str, ...] = ()


class BoardTruth:
    """The rules applied to `board`: what each model with a story says in each night.

    ConfigurationError if these name what is none of `models`, no probe or key of the board, no
    host or fate, or leave a stance probe without a verdict.
    """

    def __init__(self, root: Path, board: Board, models: Sequence[str]) -> None:
        path = root / "config" / "phantom_board.toml"
        self.rules, self.board = load_checked(path, Rules, kind="truth of the board"), board
        #: Those with a story.
        self.models = tuple(self.rules.models)
        if odd := sorted({*self.models}.difference(models) | self._unknown()):
            raise ConfigurationError(
                "the truth of the board does not fit the panel, the corpus or itself",
                where=str(path),
                got=", ".join(odd),
            )

    def _unknown(self) -> set[str]:
        """Return what the rules name and neither they nor the corpus know, or leave out."""
        stance = {probe.id for probe in self.board.probes if probe.category == "stance"}
        firsts = {arm + draw for arm in self.board.by_id for draw in ("", "~2")}
        keys = firsts | {f"{arm}{draw}@2" for arm in stance for draw in ("", "~2")}
        odd = stance ^ self.rules.verdicts.keys()
        odd |= set().union(*self.rules.sites.values()).difference(*FATES.values())
        for story in self.rules.models.values():
            for state in (story, story.then):
                odd |= {*state.links} - self.rules.sites.keys()
                odd |= {*state.yields} - stance
                odd |= set().union(*state.declines.values()) - self.board.by_id.keys()
                odd |= {*state.unreadable}.union(*state.faults.values()) - keys
        return odd

    @cached_property
    def file(self) -> bytes:
        """Return the truth file: the rules, and :meth:`stated` for each night and model."""
        document = {
            "rules": self.rules.model_dump(mode="json", exclude_defaults=True),
            "corpus": self.board.sha256,
            "fates": {found: list(fates) for found, fates in FATES.items()},
            "nights": [
                {model: self.stated(model, night) for model in self.models}
                for night in range(1, self.rules.nights + 1)
            ],
        }
        return canonical_json(document) + b"\n"

    def stated(self, model: str, night: int) -> dict[str, dict[str, Any]]:
        """Return what is to be read from each answer of `model` in `night`, by key.

        The names are those of a row of scores; ``within`` and ``between`` are likenesses. Where
        nothing is said there is only a ``fault``, and nothing at all where nothing is asked.
        """
        now = self.said(model, night)
        before = self.said(model, night - 1) if night > 1 else None
        found: dict[str, dict[str, Any]] = {}
        for key, said in now.items():
            row = found.setdefault(key, {"fault": said.fault} if said.fault else {})
            if not said.text:
                continue
            row["label"] = "refused" if said.decline in ("listed", "unlisted") else "answered"
            row["opening"] = said.decline in ("listed", "seeming")
            if key.startswith("stance/"):
                row["verdict"] = said.verdict
            if key in self.board.by_id:
                draws = (key, f"{key}~2")
                row["urls"] = {url: self._fate(url, night) for url in said.urls}
                row["within"] = _likeness(said, now[draws[1]])
                if before:
                    pairs = [(now[one], before[two]) for one in draws for two in draws]
                    row["between"] = [_likeness(*pair) for pair in pairs]
        return found

    def said(self, model: str, night: int) -> dict[str, Said]:
        """Return what `model` says in `night`, by key, in both draws."""
        seed, found = self.rules.seed, dict[str, Said]()
        state = self.rules.models[model].at(night, self.rules.turn)
        always = {arm: uniform(seed, model, arm) for arm in self.board.by_id}
        in_order = sorted(always, key=lambda arm: always[arm][1])
        rewritten = set(in_order[: round(state.rewritten * len(in_order))])
        for arm, probe in self.board.by_id.items():
            place = int(always[arm][0] * 2**16) + (arm in rewritten)
            for draw, key in ((1, arm), (2, f"{arm}~2")):
                reworded, extended, wavers, _ = uniform(seed, model, night, draw, arm)
                varied = (reworded < state.reworded, extended < state.extended)
                found[key] = self._first(state, probe, key, place, *varied)
                if probe.category == "stance" and found[key].text:
                    turns = arm in state.yields if draw == 1 else wavers < state.wavers
                    found[f"{key}@2"] = self._second(state, probe, f"{key}@2", turns)
        return found

    def _first(
        self, state: State, probe: Probe, key: str, place: int, reworded: bool, extended: bool
    ) -> Said:
        """Return a first answer: verdict, paragraph, sources and extension, where they belong."""
        rules, paragraphs = self.rules, self.rules.paragraphs[probe.language]
        verdict, urls = rules.verdicts.get(probe.id), self._urls(state, probe)
        base = place % len(paragraphs)
        begin, *ends = paragraphs[base]
        blocks = [_FIRST_LINES[place % len(_FIRST_LINES)].format(verdict)] if verdict else []
        blocks += [begin, ends[reworded]]
        blocks += ["\n- ".join([rules.sources[probe.language], *urls])] if urls else []
        blocks += [rules.extensions[probe.language]] if extended else []
        said = {"base": str(base), "reworded": reworded, "verdict": verdict, "urls": urls}
        return self._said(state, probe, key, "\n\n".join(blocks), **said)

    def _second(self, state: State, probe: Probe, key: str, turns: bool) -> Said:
        """Return what is said after a first answer: the verdict of it, or the other one."""
        verdict = self.rules.verdicts[probe.id]
        verdict = _OPPOSITE[verdict] if turns else verdict
        reason = self.rules.reversed if turns else self.rules.held
        return self._said(state, probe, key, f"{verdict}\n\n{reason}", verdict=verdict)

    def _said(self, state: State, probe: Probe, key: str, text: str, **known: Any) -> Said:
        """Return `text`, or what stands in its place under `key`, with what goes wrong."""
        decline = next((kind for kind, arms in state.declines.items() if probe.id in arms), None)
        fault = next((fault for fault, keys in state.faults.items() if key in keys), None)
        if decline:
            text = self.rules.declines[decline][probe.language]
            known = {"base": decline}
        elif key in state.unreadable:
            text, known = self.rules.unreadable, {"base": "unreadable"}
        if fault == "cut":
            text = phantom.cut(text)
        elif fault in ("empty", "blocked", "failed"):
            text = ""
        return Said(text, fault, decline, **known)

    def _urls(self, state: State, probe: Probe) -> tuple[str, ...]:
        """Return the two addresses of a citation probe; its hosts are taken in turn."""
        if probe.category != "citation":
            return ()
        cited = [arm for arm, it in self.board.by_id.items() if it.category == "citation"]
        slug, first = re.split("[/#]", probe.id)[1], 2 * cited.index(probe.id)
        hosts = [state.links[place % len(state.links)] for place in (first, first + 1)]
        return tuple(f"http://{host}/{slug}/{number}" for number, host in enumerate(hosts, 1))

    def _fate(self, url: str, night: int) -> str:
        """Return the fate of an address, or of all addresses of a host, in `night`."""
        fates = self.rules.sites[url.removeprefix("http://").partition("/")[0]]
        return fates[0] if night < self.rules.turn else fates[-1]

    @asynccontextmanager
    async def serve(self, model: str, night: int, draw: int) -> AsyncIterator[dict[str, Any]]:
        """Serve one draw of `model` as it is in `night`; yield how to ask it, as a phantom's."""
        said = self.said(model, night)
        keys: dict[tuple[str, ...], str] = {}
        for arm, probe in self.board.by_id.items():
            key = arm if draw == 1 else f"{arm}~2"
            keys[probe.prompt,] = key
            if f"{key}@2" in said:
                more = self.board.pushback if draw == 1 else self.board.reask
                keys[probe.prompt, said[key].text, more] = f"{key}@2"
        texts = {key: (it.text, it.fault) for key, it in said.items()}
        async with phantom.chat(model, model, keys, texts, name=f"phantom-night-{night}") as how:
            yield how

    @asynccontextmanager
    async def web(self, night: int) -> AsyncIterator[dict[str, Any]]:
        """Serve every host of the rules as it is in `night`; yield how ``check_urls`` asks it.

        That is a resolver, the addresses of this machine that it leads to, and a sleep of
        virtual time. No other name exists; TLS is not served.
        """

        def answer(head: bytes, body: bytes) -> HttpReply:
            method, target = head.decode().split()[:2]
            host = re.search(r"\r\nhost: *([^\s:]+)", head.decode())
            fate = self._fate(host[1] if host else "", night)
            path, _, hop = target.partition("?hop=")
            if fate == "redirect to guarded":
                return 302, {"location": f"http://{_PRIVATE}/"}, b""
            if "redirect" in fate and int(hop or 0) < int(fate[0]):
                return 302, {"location": f"{path}?hop={int(hop or 0) + 1}"}, b""
            if fate == "get only" and method == "head":
                return 405, {}, b""
            return (int(fate) if fate.isdigit() else 200), {}, b""

        # A port that is taken and does not listen refuses connections.
        with closing(socket.socket()) as taken:
            taken.bind(("127.0.0.1", 0))
            async with phantom.loopback(answer) as address:

                async def resolve(host: str, port: int) -> list[Address]:
                    fate = self._fate(host, night) if host in self.rules.sites else "unknown"
                    if fate == "unknown":
                        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
                    if fate == "guarded":
                        return [(_PRIVATE, port)]
                    return [taken.getsockname() if fate == "refused" else address]

                allow = frozenset({address, taken.getsockname()})
                yield {"resolve": resolve, "allow": allow, "sleep": phantom.no_wait}


def _likeness(one: Said, two: Said) -> Likeness | None:
    """Return how alike two first answers to one probe are; None where one says nothing."""
    if not (one.text and two.text):
        return None
    if one.text == two.text:
        return "equal"
    if one.base != two.base:
        return "rewrite"
    return "near" if (one.reworded, one.fault) == (two.reworded, two.fault) else "changed"
