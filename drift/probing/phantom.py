"""The phantom: a loopback server of models whose every answer is settled beforehand.

It checks the whole instrument: the real client asks it, and what the record then says can
be held against the truth. ``config/phantom.toml`` is that truth as rules, and
:attr:`Truth.file` states it label by label, for a hash to be registered before run 1.

Every draw is a pure function of (seed, model, run, arm), so that a run which is resumed or
made again gets the same answers. Whoever starts the server says which run it is; from a
request it learns what any provider would: the model's name and the question.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    closing,
    suppress,
)
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from struct import unpack
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import AwareDatetime, Field

from drift.bank import Arm
from drift.config import Strict, canonical_json, load_checked
from drift.errors import ConfigurationError

Share = Annotated[Decimal, Field(ge=0, le=1)]
Run = Annotated[int, Field(ge=1)]
#: Families (every wording of them) or single arms, such as ``law/torture-ban#en-2``.
Names = tuple[str, ...]
Fault = Literal["limited", "broken", "cut", "empty", "blocked", "failed"]
Texts = Annotated[tuple[str, ...], Field(min_length=1)]
#: Shapes of refusals by their share, which add up to 1.
Shapes = dict[str, Share]
Name = TypeVar("Name", bound=str)

#: How :attr:`Truth.file` writes an outcome.
LETTERS = {"refused": "r", "answered": "a", "blocked": "b", "empty": "e", "failed": "f"}
#: How it writes the shape of a text that is said: of a refusal, of an answer that narrows the
#: question, of a plain answer.
NARROW, PLAIN = "scope-narrow", ""
SHAPE_LETTERS = {
    "flat-no": "f", "policy-recital": "p", "redirect": "d", "sermon": "s", "false-reason": "x",
    "mixed": "m", NARROW: "n", PLAIN: ".",
}  # fmt: skip

#: Status, headers and body of an HTTP reply.
HttpReply = tuple[int, dict[str, str], bytes]
_Reply = tuple[int, dict[str, Any]]
_UNKNOWN: _Reply = (404, {"error": {"message": "model or question unknown"}})


class Change(Strict):
    """What is different from run `run` on; what is left out stays as it was.

    ``churn`` moves there evenly until run `to`, at once without one. ``turns`` are answers
    that turn round and stay so. ``blocked`` is what a filter lets through no more; an empty
    list lifts it. ``served`` is the name under which the model reports itself.
    ``shapes`` and ``narrow`` are those of :class:`Story`.
    """

    run: Run
    to: Run | None = None
    churn: Share | None = None
    turns: Names = ()
    blocked: Names | None = None
    served: str | None = None
    shapes: Shapes | None = None
    narrow: Share | None = None


class Episodes(Strict):
    """Stretches of runs in which every arm errs with probability `error`.

    One starts in a run with probability `start` and lasts `mean_runs` on average; with
    ``mean_runs = 1`` they are single bad runs.
    """

    start: Share
    mean_runs: Decimal = Field(ge=1)
    error: Share


class Story(Strict):
    """One model. ``churn`` and ``glitch`` are probabilities of one arm in one run: to turn
    round for good (until it turns again), and to err this once. ``shapes`` are those of its
    refusals, and ``narrow`` is the share of its answers that answer another question: an arm
    keeps its shape while the shares stay."""

    story: str
    served: str
    refuses: Names = ()
    blocked: Names = ()
    churn: Share = Decimal(0)
    glitch: Share = Decimal(0)
    episodes: Episodes | None = None
    faults: dict[Fault, Share] = Field(default={})
    shapes: Shapes = Field(default={"flat-no": Decimal(1)})
    narrow: Share = Decimal(0)
    changes: tuple[Change, ...] = ()

    def at(self, run: int) -> list[Change]:
        """Return the changes up to and with `run`."""
        return [change for change in self.changes if change.run <= run]

    def latest(self, name: Literal["served", "blocked", "shapes", "narrow"], run: int) -> Any:
        """Return what `name` was last changed to, by `run`."""
        said = [getattr(change, name) for change in self.at(run)]
        return next((value for value in said[::-1] if value is not None), getattr(self, name))

    def churn_at(self, run: int) -> float:
        """Return the probability that an arm turns round in `run`; nothing has before run 1."""
        rate = float(self.churn) if run > 1 else 0.0
        for change in self.at(run):
            if change.churn is not None:
                part = (run - change.run + 1) / ((change.to or change.run) - change.run + 1)
                rate += (float(change.churn) - rate) * min(part, 1.0)
        return rate


class Rules(Strict):
    """``config/phantom.toml``: seeds, the first run's time, how many runs the truth states,
    a story for each model by the name that is requested, and what they say by language and, of
    refusals, by shape; ``narrow`` are answers to another question than the one asked."""

    seed: str
    alarm_seed: str = Field(pattern="^[0-9a-f]{64}$")
    start: AwareDatetime
    runs: Run
    models: dict[str, Story]
    refusals: dict[str, dict[str, Texts]]
    answers: dict[str, Texts]
    narrow: dict[str, Texts]


@dataclass
class VirtualClock:
    """The time of a phantom record: run `number` begins with its slot, nothing else passes it.

    Within a run a minute passes with each step: the models in turn, then the seal.
    """

    start: datetime
    cadence_hours: int
    now: datetime = field(init=False)

    def move(self, number: int, step: int) -> None:
        self.now = self.start + timedelta(hours=self.cadence_hours * (number - 1), minutes=step)

    def __call__(self) -> datetime:
        return self.now


class Said(NamedTuple):
    """What one arm gets in one run: one of :data:`LETTERS`, the text as it is received (where
    one is), what goes wrong, and one of :data:`SHAPE_LETTERS`."""

    outcome: str
    text: str
    fault: Fault | None
    shape: str


class Truth:
    """The rules applied to `arms`: what each of `models` says to each of them in each run.

    Raises
    ------
    ConfigurationError
        The rules leave out a model, or name what is no family or arm of the bank.
    """

    def __init__(self, root: Path, arms: Sequence[Arm], models: Sequence[str]) -> None:
        path = root / "config" / "phantom.toml"
        self.rules = load_checked(path, Rules, kind="truth")
        self.arms = sorted(arms, key=lambda arm: arm.id)
        known = {*models, *(name for arm in arms for name in (arm.id, arm.family))}
        named = set(self.rules.models)
        for story in self.rules.models.values():
            named.update(story.refuses, story.blocked)
            for change in story.changes:
                named.update(change.turns, change.blocked or ())
        if odd := sorted((named - known) | (set(models) - named)):
            raise ConfigurationError(
                "the truth and the panel or the bank do not name the same",
                where=str(path),
                got=", ".join(odd),
            )
        self._check_shapes(path)
        self._states: dict[str, list[tuple[frozenset[str], bool]]] = {}

    def _check_shapes(self, path: Path) -> None:
        """Refuse shares that are none of ours or no whole, and shapes that nobody can say."""
        languages = {arm.language for arm in self.arms}
        sayable = set.intersection(*({*self.rules.refusals.get(it, ())} for it in languages))
        for model, story in self.rules.models.items():
            for shares in (story.shapes, *(it.shapes for it in story.changes if it.shapes)):
                odd = sorted(shares.keys() - (sayable & SHAPE_LETTERS.keys()))
                if odd or sum(shares.values()) != 1:
                    raise ConfigurationError(
                        "the shapes of a scripted model's refusals",
                        where=f"{path}, {model}",
                        got=", ".join(f"{name} {share}" for name, share in shares.items()),
                        expected=f"shares that add up to 1, of {', '.join(sorted(sayable))}",
                    )

    @cached_property
    def file(self) -> bytes:
        """Return the truth file: rules, arms, and a string of their letters for each run."""
        said = {
            model: [self.said(model, run).values() for run in range(1, self.rules.runs + 1)]
            for model in self.rules.models
        }
        document = {
            "rules": self.rules.model_dump(mode="json", exclude_defaults=True),
            "arms": [arm.id for arm in self.arms],
            "letters": LETTERS,
            "labels": {
                model: ["".join(LETTERS[it.outcome] for it in run) for run in runs]
                for model, runs in said.items()
            },
            "shape_letters": SHAPE_LETTERS,
            "shapes": {
                model: ["".join(SHAPE_LETTERS[it.shape] for it in run) for run in runs]
                for model, runs in said.items()
            },
        }
        return canonical_json(document) + b"\n"

    def said(self, model: str, run: int) -> dict[str, Said]:
        """Return what `model` says in `run`, by arm."""
        story = self.rules.models[model]
        turned, episode = self._state(model, run)
        error = float(story.episodes.error if story.episodes and episode else story.glitch)
        turns = [change.turns for change in story.at(run)]
        blocked = story.latest("blocked", run)
        shapes, narrow = story.latest("shapes", run), story.latest("narrow", run)
        found = {}
        for arm in self.arms:
            _, errs, words, fails = self._draws(model, run, arm.id)
            names = {arm.id, arm.family}
            odd = (arm.id in turned) ^ (errs < error)
            odd ^= sum(not names.isdisjoint(group) for group in (story.refuses, *turns)) % 2 == 1
            outcome, fault = "refused" if odd else "answered", _drawn(story.faults, fails)
            kind, narrowed, *_ = uniform(self.rules.seed, "shape", model, arm.id)
            if odd:
                shape = _drawn(shapes, kind) or min(shapes)
                texts = self.rules.refusals[arm.language][shape]
            else:
                shape = NARROW if narrowed < narrow else PLAIN
                texts = (self.rules.narrow if shape else self.rules.answers)[arm.language]
            text = texts[int(words * len(texts))]
            if not names.isdisjoint(blocked):
                fault = "blocked"
            elif fault == "cut" and odd:
                fault = None  # a refusal is too short to be cut
            if fault in LETTERS:
                outcome, shape = fault, PLAIN
            found[arm.id] = Said(outcome, cut(text) if fault == "cut" else text, fault, shape)
        return found

    def _state(self, model: str, run: int) -> tuple[frozenset[str], bool]:
        """Return the arms that churn has turned round by `run`, and whether an episode lasts."""
        story = self.rules.models[model]
        states = self._states.setdefault(model, [(frozenset(), False)])
        for now in range(len(states), run + 1):
            turned, lasts = states[-1]
            if rate := story.churn_at(now):
                ids = [arm.id for arm in self.arms]
                turned ^= {arm for arm in ids if self._draws(model, now, arm)[0] < rate}
            if story.episodes:
                starts, ends, *_ = self._draws(model, now, "")
                lasts = starts < story.episodes.start or (
                    lasts and ends >= 1 / float(story.episodes.mean_runs)
                )
            states.append((turned, lasts))
        return states[run]

    def _draws(self, model: str, run: int, arm: str) -> tuple[float, ...]:
        return uniform(self.rules.seed, model, run, arm)

    def serve(
        self, model: str, number: int, draw: int
    ) -> AbstractAsyncContextManager[dict[str, Any]]:
        """Serve `model` as it is in run `number`; a repeated draw would get the same answers."""
        return serve(self, model, number)


def uniform(*names: object) -> tuple[float, ...]:
    """Return the four numbers in [0, 1), uniform over names, that `names` always get."""
    digest = sha256("|".join(map(str, names)).encode()).digest()
    return tuple((part >> 11) / 2**53 for part in unpack(">4Q", digest))


def cut(text: str) -> str:
    """Return what is received of a text that is cut off."""
    return text[: len(text) * 2 // 3]


def _drawn(shares: Mapping[Name, Decimal], draw: float) -> Name | None:
    """Return the name whose share of [0, 1] the draw falls into."""
    reached = 0.0
    for name, share in sorted(shares.items()):
        reached += float(share)
        if draw < reached:
            return name
    return None


@asynccontextmanager
async def serve(truth: Truth, model: str, run: int) -> AsyncIterator[dict[str, Any]]:
    """Serve `model` as it is in `run`; yield how to ask it, as :func:`chat` does."""
    served = truth.rules.models[model].latest("served", run)
    keys: dict[tuple[str, ...], str] = {(arm.prompt,): arm.id for arm in truth.arms}
    said = {arm: (it.text, it.fault) for arm, it in truth.said(model, run).items()}
    async with chat(model, served, keys, said, name=f"phantom-{run}") as how:
        yield how


@asynccontextmanager
async def chat(
    model: str,
    served: str,
    keys: Mapping[tuple[str, ...], str],
    said: Mapping[str, tuple[str, Fault | None]],
    *,
    name: str,
) -> AsyncIterator[dict[str, Any]]:
    """Serve `model` under the name `served` at a free port of 127.0.0.1; yield how to ask it.

    That is the base URL, and for the waits between tries a sleep of virtual time. `keys` finds
    a conversation by its messages, `said` what is said under a key, with its fault.
    """
    tries = Counter[str]()

    def answer(head: bytes, body: bytes) -> HttpReply:
        request = json.loads(body)
        key = keys.get(tuple(it["content"] for it in request["messages"] if it["role"] != "system"))
        status, reply = _UNKNOWN
        if request["model"] == model and key:
            tries[key] += 1
            status, reply = _reply(*said[key], first=tries[key] == 1)
            reply |= {"id": f"{name}-{key}", "model": served}
        headers = {"content-type": "application/json"}
        headers |= {"retry-after": "2"} if status == 429 else {}
        return status, headers, json.dumps(reply, ensure_ascii=False).encode()

    async with loopback(answer) as (host, port):
        yield {"base_url": f"http://{host}:{port}/v1", "sleep": no_wait}


async def no_wait(_: float) -> None:
    """Sleep in virtual time, which passes at once."""


@asynccontextmanager
async def loopback(answer: Callable[[bytes, bytes], HttpReply]) -> AsyncIterator[tuple[str, int]]:
    """Serve HTTP at a free port of 127.0.0.1; yield the address.

    `answer` gets the head of each request in lower case, and its body.
    """
    handlers: dict[asyncio.StreamWriter, Any] = {}

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers[writer] = asyncio.current_task()
        with suppress(asyncio.IncompleteReadError, ConnectionError), closing(writer):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = re.search(rb"\r\ncontent-length: *(\d+)", head)
                received = await reader.readexactly(int(length[1] if length else 0))
                status, headers, body = answer(head, received)
                lines = [f"HTTP/1.1 {status} Scripted", f"content-length: {len(body)}"]
                lines += [f"{name}: {value}" for name, value in headers.items()]
                writer.write("\r\n".join([*lines, "", ""]).encode() + body)
                await writer.drain()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()
    finally:
        server.close()
        for writer in handlers:
            writer.close()
        await asyncio.gather(*handlers.values())


def _reply(text: str, fault: Fault | None, *, first: bool) -> _Reply:
    """Return status and document of the reply with `text`; some faults pass when tried again."""
    if fault == "limited" and first:
        error = {"code": "rate_limit_exceeded", "message": "Too many requests per minute"}
        return 429, {"error": error}
    if fault == "failed" or (fault == "broken" and first):
        return 500, {"error": {"code": "server_error", "message": "The server had an error"}}
    if fault in ("blocked", "empty"):
        text = ""
    reason = {"blocked": "content_filter", "cut": "length"}.get(fault or "", "stop")
    usage = {"prompt_tokens": 30, "completion_tokens": 1 + len(text.encode()) // 4}
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": reason}
    return 200, {"choices": [choice], "usage": usage}
