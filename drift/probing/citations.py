"""Asks the network about the URLs that models wrote: is there a page, a wall, or nothing?

Classes, in the order of :data:`CLASSES`
    *resolvable*: the last reply is 2xx. *blocked*: it is 401, 403, 429, 451 or 503, a wall
    before a page and no dead link. *dead*: the host exists; it gave another status, no reply,
    no valid TLS, a redirect loop, too many redirects, or a redirect to what cannot be asked
    (a malformed URL, a name that does not exist, a guarded address). *nonexistent domain*:
    DNS says that there is no such name. *malformed*: by its letters no URL of the public web.
    *unchecked*: nobody asked, or only this machine failed; the reason says why.

None of them says that a page supports the claim it was cited for. Cookies are never sent
back, so a page that needs one may show as a redirect loop.

The guard
    A model, or a server by redirect or DNS, chooses where these requests go. So only http and
    https, only the ports of the limits, and only public addresses (:func:`public`). Every
    address of a name must be public: one that is not refuses the name. A name is resolved once
    per hop, and the connection goes to the first address of that answer; another is not tried.
    Certificate and SNI are those of the name. One connection carries one request, is closed
    after its headers, and knows no proxy, cookie, credential or variable of the environment.
    What the guard refuses is *unchecked*: whether there is a page was not asked, and a public
    name may resolve to a private address only here, behind a filtering resolver.

HEAD, then GET
    HEAD is only the cheaper way to ask what a reader asks by GET, and many servers refuse it
    with 400, 403, 404, 405, 500, 501 or 503, or by closing the connection. So a status of 400
    or more and a broken reply are not believed of HEAD: GET is tried once, and goes on from
    there; where it finds no reply, the status that HEAD found stands. Walls that do not depend
    on the method (401, 429, 451), silence until the timeout, and failures to connect are
    believed.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, get_args

import httpcore
import httpx
from pydantic import Field

from drift import __version__
from drift.config import Clock, Strict, sha256_hex, timestamp
from drift.probing.addresses import LOCAL, PORTS, Verdict, host_of, is_ipv4, public, target_of

Found = Literal["resolvable", "blocked", "dead", "nonexistent domain", "malformed", "unchecked"]
CLASSES: tuple[str, ...] = get_args(Found)
#: An IP address and a port.
Address = tuple[str, int]
#: Returns the addresses of a name, for a port; raises ``socket.gaierror`` as getaddrinfo does.
Resolve = Callable[[str, int], Awaitable[list[Address]]]

_WALLS = frozenset({401, 403, 429, 451, 503})
#: What HEAD may be believed of: these do not depend on the method.
_FIRM = frozenset({401, 429, 451})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
#: Failures that are this machine's: no route, no socket, no permission.
_OURS = {errno.ENETUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}
_OURS |= {errno.EMFILE, errno.ENFILE, errno.EPERM, errno.EACCES}
_HEADERS: dict[bytes | str, bytes | str] = {
    "user-agent": f"refusal-drift/{__version__} (link check)",
    "accept": "*/*",
    "accept-encoding": "identity",
    "connection": "close",
}


class Limits(Strict):
    """How the network is asked: the section ``[citations]`` of ``config/board.toml``."""

    enabled: bool = True
    control: str = Field(
        default="https://example.org/",
        pattern=r"^https?://[a-z0-9-]+\.[a-z0-9.-]+/",
        description="a page that must be found",
    )
    ports: tuple[int, ...] = (80, 443)
    url_length: int = Field(default=8000, ge=1, description="characters (RFC 9110, 4.1)")
    redirects: int = Field(default=3, ge=0)
    timeout_s: Decimal = Field(default=Decimal(5), gt=0, description="of a lookup, of a request")
    pause_s: Decimal = Field(default=Decimal(1), ge=0, description="between requests to a host")
    concurrency: int = Field(default=8, ge=1, le=64)
    budget_s: int = Field(default=900, ge=1)
    expected_s: Decimal = Field(default=Decimal(2), gt=0, description="of a URL, to plan with")


@dataclass(frozen=True)
class Checked:
    """What the network said of one URL as a model wrote it.

    ``http`` is the last status that came, ``reason`` says what the status does not, ``hops``
    counts the redirects followed and ``attempts`` the requests sent.
    """

    url: str
    found: Found
    http: int | None = None
    reason: str | None = None
    hops: int = 0
    attempts: int = 0
    checked_at: str = ""

    def document(self) -> dict[str, Any]:
        """Return the fields that hold something, in the order of the class."""
        return {name: value for name, value in vars(self).items() if value is not None}


class _Broken(Verdict):
    """The server took the request and broke off before the end of the headers."""


async def lookup(host: str, port: int) -> list[Address]:
    """Return the addresses of `host` in the system's order; its search domains play no part.

    A name without addresses is told from one that does not exist where the C library tells
    them apart, as glibc does (EAI_NODATA and EAI_NONAME).
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(f"{host}.", port, type=socket.SOCK_STREAM)
    return [(str(entry[4][0]), int(entry[4][1])) for entry in found]


def _draw(seed: str, key: str) -> float:
    """Return the place of `key` in [0, 1) that `seed` gives it."""
    digest = sha256_hex(f"{seed}\n{key}".encode("utf-8", "backslashreplace"))
    return int(digest[:8], 16) / 2**32


def estimate_s(targets: Iterable[httpx.URL], limits: Limits) -> Decimal:
    """Return the seconds that `targets` are expected to take.

    ``expected_s`` for each over all workers; or, if that is longer, for those of the busiest
    host one after the other, with the pauses. The figure plans; it is not a measurement.
    """
    hosts = Counter(map(host_of, targets))
    alone = max(hosts.values(), default=0) * (limits.expected_s + limits.pause_s)
    return max(hosts.total() * limits.expected_s / limits.concurrency, alone)


async def check_urls(
    urls: Iterable[str],
    *,
    limits: Limits,
    seed: str,
    keep: Callable[[Checked], Awaitable[None]],
    clock: Clock,
    done: Collection[str] = (),
    resolve: Resolve = lookup,
    allow: Collection[Address] = frozenset(),
    tls: ssl.SSLContext | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> float:
    """Class each of `urls` and hand it to `keep` as soon as it is known; return the share drawn.

    URLs that differ in their fragment alone are one target, which is requested once. Where
    :func:`estimate_s` of them all exceeds ``budget_s``, the half that a hash of `seed` (the
    night's id) and target draws is checked and 0.5 returned; malformed URLs are drawn like
    others, or they would weigh twice. Requests go in the order of the same hash, so that a
    budget which ends all the same ends for no model rather than another; URLs that need no
    request are by then all known. `done` are URLs that an earlier, interrupted call kept:
    they count in the estimate and are not asked again.

    Before the first request ``limits.control`` must be found, and DNS must say that a random
    name beside it does not exist. Otherwise the network is closed, or nonexistent domains
    cannot be told, and every URL is unchecked, malformed ones too, for a rate without the
    others would mislead.

    One request at a time goes to a host, by its name (servers of many names are not throttled
    by address), and ``pause_s`` lies between two of them. `resolve` stands in for DNS and may
    lead a name to any address and port; `allow` holds those that are reached although the
    guard forbids them (for tests and the phantom). `tls` and `sleep` stand in too.
    """
    groups: dict[str, list[str]] = defaultdict(list)
    targets: dict[str, httpx.URL] = {}
    for url in dict.fromkeys(urls):
        try:
            target = target_of(url, limits.url_length)
            targets[key := str(target)] = target
        except Verdict:
            key = url
        groups[key].append(url)
    share = 0.5 if estimate_s(targets.values(), limits) > limits.budget_s else 1.0
    order = sorted(groups, key=lambda key: (_draw(seed, key), key))
    skipped = set(done)
    left = {key: [url for url in groups[key] if url not in skipped] for key in order}
    wanted = [key for key in order if left[key]]
    if not wanted:
        return share
    tls = tls or httpx.create_ssl_context(trust_env=False)
    visitor = _Visitor(limits, resolve, allow, tls, sleep)

    async def report(key: str, **found: Any) -> None:
        for url in left[key]:
            await keep(Checked(url, checked_at=timestamp(clock()), **found))

    async def visit(key: str) -> None:
        await report(key, **await visitor.visit(left[key][0]))

    reason = await visitor.closed(seed) if limits.enabled else "checking is off"
    drawn = [key for key in wanted if not reason and _draw(seed, key) < share]
    for key in wanted:
        if reason or _draw(seed, key) >= share:
            await report(key, found="unchecked", reason=reason or "not drawn into the sample")
    try:
        async with asyncio.TaskGroup() as group:
            for key in drawn:
                group.create_task(visit(key))
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return share


@dataclass
class _Trace:
    """How far one visit has come."""

    method: str = "HEAD"
    http: int | None = None
    hops: int = 0
    attempts: int = 0


class _Visitor:
    """What the visits of one night share."""

    def __init__(
        self,
        limits: Limits,
        resolve: Resolve,
        allow: Collection[Address],
        tls: ssl.SSLContext,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self.limits, self.resolve, self.allow = limits, resolve, allow
        self.tls, self.sleep = tls, sleep
        self.timeout_s = float(limits.timeout_s)
        self.deadline = time.monotonic() + limits.budget_s
        self.slots = asyncio.Semaphore(limits.concurrency)
        self.turns: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        #: From when on (by ``time.monotonic``) a host may be asked again.
        self.ready: dict[str, float] = defaultdict(float)

    async def closed(self, seed: str) -> str | None:
        """Return why nothing could be concluded from this network; None if it can be used."""
        control = await self.visit(self.limits.control)
        if control["found"] != "resolvable":
            why = control["reason"] or f"HTTP {control['http']}"
            return f"the network is closed: {self.limits.control} is {control['found']} ({why})"
        parent = host_of(target_of(self.limits.control)).partition(".")[2]
        try:
            await self.addresses(f"{sha256_hex(seed.encode())[:32]}.{parent}", 80)
        except Verdict as verdict:
            if verdict.found == "nonexistent domain":
                return None
        return "nonexistent domains cannot be told: DNS does not deny a name that is not there"

    async def visit(self, text: str) -> dict[str, Any]:
        """Return the fields of :class:`Checked` that a visit to the URL `text` finds."""
        trace = _Trace()
        try:
            found, reason = await self.follow(trace, text)
        except Verdict as verdict:
            found, reason = verdict.found, verdict.reason
            if trace.hops and found in ("malformed", "guarded", "nonexistent domain"):
                found, reason = "dead", f"redirect to {found}: {reason}"
            elif found == "guarded":
                found, reason = "unchecked", f"guarded: {reason}"
        seen = {"http": trace.http, "hops": trace.hops, "attempts": trace.attempts}
        return {"found": found, "reason": reason, **seen}

    async def follow(self, trace: _Trace, text: str) -> tuple[str, str | None]:
        """Follow redirects to the last reply."""
        url, seen = target_of(text, self.limits.url_length), set[httpx.URL]()
        while url not in seen:
            seen.add(url)
            http, location = await self.ask(trace, url)
            if http not in _REDIRECTS:
                found = "blocked" if http in _WALLS else "dead"
                return ("resolvable" if 200 <= http < 300 else found), None
            if location is None:
                return "dead", "a redirect without an address"
            if trace.hops == self.limits.redirects:
                return "dead", f"more than {self.limits.redirects} redirects"
            trace.hops += 1
            try:
                location = str(url.join(location))
            except (httpx.InvalidURL, ValueError):
                raise Verdict("malformed", "no usable address") from None
            url = target_of(location, self.limits.url_length)
        return "dead", "redirect loop"

    async def ask(self, trace: _Trace, url: httpx.URL) -> tuple[int, str | None]:
        """Return status and Location of one hop: by HEAD, and by GET where that is refused."""
        refused = None
        async with self.turn(host_of(url)):
            address = await self.address(url)
            try:
                reply = await self.request(trace, url, address)
                if trace.method == "GET" or reply[0] < 400 or reply[0] in _FIRM:
                    return reply
                refused = reply
            except _Broken:
                if trace.method == "GET":
                    raise
        trace.method = "GET"
        async with self.turn(host_of(url)):
            try:
                return await self.request(trace, url, address)
            except Verdict as verdict:
                if refused and verdict.found == "dead":
                    return refused
                raise

    @asynccontextmanager
    async def turn(self, host: str) -> AsyncIterator[None]:
        """Wait for the host's turn and pause, then for a free slot."""
        async with self.turns[host]:
            await self.sleep(max(0.0, self.ready[host] - time.monotonic()))
            async with self.slots:
                if time.monotonic() >= self.deadline:
                    raise Verdict("unchecked", "over the time budget")
                try:
                    yield
                finally:
                    self.ready[host] = time.monotonic() + float(self.limits.pause_s)

    async def address(self, url: httpx.URL) -> Address:
        """Return the address to connect to; every one that the host has must be allowed."""
        host, port = host_of(url), url.port or PORTS[url.scheme]
        if f".{host}".endswith(LOCAL):
            raise Verdict("guarded", "a name that no public server has")
        literal = ":" in host or is_ipv4(host)
        found = [(host, port)] if literal else await self.addresses(host, port)
        for ip, at in found:
            if (ip, at) in self.allow:
                continue
            if not public(ip):
                raise Verdict("guarded", f"{ip} is not a public address")
            if at not in self.limits.ports:
                raise Verdict("unchecked", f"port {at} is not asked")
        return found[0]

    async def addresses(self, host: str, port: int) -> list[Address]:
        try:
            async with asyncio.timeout(self.timeout_s):
                found = await self.resolve(host, port)
        except TimeoutError:
            raise Verdict("unchecked", f"DNS gave no answer in {self.timeout_s:g} s") from None
        except socket.gaierror as error:
            if error.errno == socket.EAI_NONAME:
                raise Verdict("nonexistent domain", "DNS knows no such name") from None
            if error.errno != socket.EAI_NODATA:
                raise Verdict("unchecked", f"DNS failed: {error.strerror}") from None
            found = []
        if not found:
            raise Verdict("dead", "the name has no address")
        return found

    async def request(
        self, trace: _Trace, url: httpx.URL, address: Address
    ) -> tuple[int, str | None]:
        """Send one request to `address` and return status and Location; no body is read."""
        trace.attempts += 1
        request = httpcore.Request(
            trace.method,
            httpcore.URL(
                scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
            ),
            headers={"host": url.netloc, **_HEADERS},
        )
        backend = _Pinned(address)
        try:
            async with (
                asyncio.timeout(self.timeout_s),
                httpcore.AsyncHTTPConnection(
                    request.url.origin, self.tls, network_backend=backend
                ) as connection,
            ):
                reply = await connection.handle_async_request(request)
        except (TimeoutError, httpcore.TimeoutException):
            raise Verdict("dead", f"no reply in {self.timeout_s:g} s") from None
        except (httpcore.NetworkError, httpcore.ProtocolError, OSError, ValueError) as error:
            raise _failure(error) from None
        finally:
            await backend.aclose()
        trace.http = reply.status
        return reply.status, httpx.Headers(reply.headers).get("location")


class _Pinned(httpcore.AsyncNetworkBackend):
    """Connects to one address, whatever the name, and closes what it opened."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.stream: httpcore.AsyncNetworkStream | None = None

    async def connect_tcp(self, *_: Any, **options: Any) -> httpcore.AsyncNetworkStream:
        ip, port = self.address
        self.stream = await httpcore.AnyIOBackend().connect_tcp(
            **options | {"host": ip, "port": port}
        )
        return self.stream

    async def aclose(self) -> None:
        if self.stream:
            await self.stream.aclose()


def _failure(error: BaseException) -> Verdict:
    """Return what a request that failed with `error` shows, in words of our own."""
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLError):
            why = getattr(cause, "verify_message", "") or cause.reason
            return Verdict("dead", f"TLS: {why}")
        if isinstance(cause, OSError) and cause.errno in _OURS:
            return Verdict("unchecked", f"this machine could not ask: {cause.strerror}")
    broken = isinstance(error, (httpcore.ReadError, httpcore.RemoteProtocolError))
    return (_Broken if broken else Verdict)("dead", f"no reply: {type(error).__name__}")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error:
        yield error
        error = error.__cause__ or error.__context__
