"""What the network said of a URL, asked of loopback servers alone, and what is never asked."""

from __future__ import annotations

import asyncio
import gzip
import ipaddress
import random
import shutil
import socket
import ssl
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Callable
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from asking import NOON
from conftest import need
from hypothesis import given, settings
from hypothesis import strategies as st

from drift.errors import DriftError
from drift.probing.addresses import public
from drift.probing.citations import CLASSES, Checked, Limits, check_urls, lookup

LIMITS = Limits(control="http://example.org/", timeout_s=30, pause_s=0)
#: For what ends by the timeout alone.
BRIEF = Limits(control="http://example.org/", timeout_s=1, pause_s=0)
HEAD_OK = b"HTTP/1.1 200 OK\r\n"
OK = HEAD_OK + b"content-length: 0\r\n\r\n"
FOREVER = 10**9


class Seen(NamedTuple):
    """A request as the server read it; ``number`` counts those of its target, from 1."""

    method: str
    host: str
    target: str
    headers: dict[str, str]
    number: int


Script = Callable[[Seen], bytes | AsyncIterator[bytes]]


class Web:
    """A server on 127.0.0.1 that sends what its script says, to the byte, and then closes."""

    def __init__(self, script: Script, tls: ssl.SSLContext | None = None) -> None:
        self.script, self.tls = script, tls
        self.requests: list[Seen] = []
        self.sent = self.in_flight = self.most_in_flight = 0

    async def __aenter__(self) -> Web:
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0, ssl=self.tls)
        self.address = ("127.0.0.1", self.server.sockets[0].getsockname()[1])
        self.tasks: set[asyncio.Task[Any]] = set()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.server.wait_closed()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self.tasks.add(task)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in lines)
            method, target, _ = first.split()
            host = headers["host"]
            number = 1 + sum((host, target) == seen[1:3] for seen in self.requests)
            self.requests.append(Seen(method, host, target, headers, number))
            said = self.script(self.requests[-1])
            async for part in said if isinstance(said, AsyncIterator) else whole(said):
                writer.write(part)
                await writer.drain()
                self.sent += len(part)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.in_flight -= 1
            writer.transport.abort() if self.sent > 1 << 20 else writer.close()


async def whole(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def repeated(first: bytes, then: bytes, wait: float = 0) -> AsyncIterator[bytes]:
    yield first
    while True:
        await asyncio.sleep(wait)
        yield then


class Night:
    """What one call of `check_urls` left."""

    def __init__(self) -> None:
        self.kept: list[Checked] = []
        self.looked_up: Counter[str] = Counter()
        self.waits: list[float] = []
        self.share = 0.0
        self.web: Any = None

    @property
    def one(self) -> Checked:
        assert len(self.kept) == 1, self.kept
        return self.kept[0]

    @property
    def requests(self) -> list[tuple[str, str]]:
        return [(seen.method, seen.host + seen.target) for seen in self.web.requests]


def script_of(replies: dict[str, bytes] | bytes) -> Script:
    return lambda seen: replies if isinstance(replies, bytes) else replies[seen.host + seen.target]


def check(
    script: Script | dict[str, bytes] | bytes,
    *urls: str,
    names: dict[str, Any] | None = None,
    limits: Limits = LIMITS,
    served_tls: ssl.SSLContext | None = None,
    **options: Any,
) -> Night:
    """Check `urls` against one server for every ``*.org`` but those in `names`.

    `names` holds addresses, an error, or a list of either for the n-th lookup. What the network
    check itself asked is left out of the lookups and requests.
    """
    night = Night()
    known = {} if names is None else names
    follow = script if callable(script) else script_of(script)

    async def keep(checked: Checked) -> None:
        night.kept.append(checked)

    async def sleep(seconds: float) -> None:
        night.waits.append(seconds)

    async def resolve(host: str, port: int) -> list[tuple[str, int]]:
        if host == "example.org" and host not in known:
            return [front.address]
        if len(host) > 32 and host not in known:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        night.looked_up[host] += 1
        found = known.get(host, [night.web.address])
        if callable(found):
            found = found(night)
        if isinstance(found, BaseException):
            raise found
        if found == "silence":
            await asyncio.sleep(FOREVER)
        return list(found)

    async def run() -> None:
        nonlocal front
        async with Web(lambda seen: OK) as front, Web(follow, served_tls) as web:
            night.web = web
            allow = {web.address, front.address} | set(options.pop("allow", ()))
            settings = {"seed": "n", "clock": lambda: NOON, "resolve": resolve, "sleep": sleep}
            settings |= {"keep": keep, "allow": allow, "limits": limits} | options
            night.share = await check_urls(urls, **settings)

    front: Any = None
    asyncio.run(run())
    return night


def reply(status: int, **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} Said", "content-length: 0"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogatepass")


def to(location: str, status: int = 302) -> bytes:
    return reply(status, location=location)


def with_limits(**changes: Any) -> Limits:
    return Limits(**(LIMITS.model_dump() | changes))


# Classes


@pytest.mark.parametrize(
    ("status", "found"),
    [(status, "resolvable") for status in (200, 203, 204, 206, 299)]
    + [(status, "blocked") for status in (401, 403, 429, 451, 503)]
    + [(status, "dead") for status in (300, 304, 400, 402, 404, 410, 418, 500, 502, 504, 999)],
)
def test_a_status_has_its_class(status: int, found: str) -> None:
    row = check(reply(status), "http://a.org/page").one
    assert (row.found, row.http, row.reason, row.hops) == (found, status, None, 0)
    assert (row.url, row.checked_at) == ("http://a.org/page", "2026-03-01T12:00:00.000Z")


@pytest.mark.parametrize("status", [400, 403, 404, 405, 500, 501, 503, None])
def test_a_head_that_is_refused_is_asked_once_more_by_get(status: int | None) -> None:
    refused = reply(status) if status else b""
    night = check(lambda seen: refused if seen.method == "HEAD" else OK, "http://a.org/")
    assert (night.one.found, night.one.http, night.one.attempts) == ("resolvable", 200, 2)
    assert night.requests == [("HEAD", "a.org/"), ("GET", "a.org/")]
    assert night.looked_up == {"a.org": 1}


def test_a_url_that_get_refuses_too_is_not_asked_a_third_time() -> None:
    night = check(reply(403), "http://a.org/")
    assert (night.one.found, night.one.attempts) == ("blocked", 2)


@pytest.mark.parametrize(("status", "found"), [(403, "blocked"), (404, "dead")])
def test_the_status_of_head_stands_where_get_finds_no_reply(status: int, found: str) -> None:
    night = check(lambda seen: reply(status) if seen.method == "HEAD" else b"", "http://a.org/")
    assert (night.one.found, night.one.http, night.one.attempts) == (found, status, 2)


@pytest.mark.parametrize("status", [401, 429, 451])
def test_a_wall_that_no_method_passes_is_not_tried_by_get(status: int) -> None:
    assert check(reply(status), "http://a.org/").one.attempts == 1


def test_get_goes_on_once_head_was_refused() -> None:
    def script(seen: Seen) -> bytes:
        if seen.method == "HEAD":
            return reply(405)
        return OK if seen.target == "/3" else to(f"/{int(seen.target[1:]) + 1}")

    night = check(script, "http://a.org/0")
    assert (night.one.found, night.one.hops, night.one.attempts) == ("resolvable", 3, 5)
    assert [method for method, _ in night.requests] == ["HEAD"] + 4 * ["GET"]


def test_the_request_names_the_project_and_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    night = check(OK, "http://a.org/p?q=ü#part")
    agent = night.web.requests[0].headers.pop("user-agent")
    assert agent.startswith("refusal-drift/")
    assert night.web.requests[0][:3] == ("HEAD", "a.org", "/p?q=%C3%BC")
    assert night.web.requests[0].headers == {
        "host": "a.org",
        "accept": "*/*",
        "accept-encoding": "identity",
        "connection": "close",
    }
    assert night.one.found == "resolvable"


def test_a_cookie_is_not_sent_back() -> None:
    replies = {
        "a.org/": reply(302, location="/next", **{"set-cookie": "id=7; Path=/"}),
        "a.org/next": OK,
    }
    night = check(replies, "http://a.org/")
    assert night.one.found == "resolvable"
    assert not [seen for seen in night.web.requests if {"cookie", "referer"} & seen.headers.keys()]


# Redirects


def chain(seen: Seen) -> bytes:
    """``/n`` leads to the end in n redirects."""
    left = int(seen.target[1:])
    return to(f"http://a.org/{left - 1}", 301 + left % 2) if left else OK


def test_three_redirects_are_followed_and_a_fourth_is_not() -> None:
    night = check(chain, "http://a.org/3")
    assert (night.one.found, night.one.hops, night.one.attempts) == ("resolvable", 3, 4)
    night = check(chain, "http://a.org/4")
    assert (night.one.found, night.one.http, night.one.hops) == ("dead", 302, 3)
    assert night.one.reason == "more than 3 redirects"
    assert ("HEAD", "a.org/0") not in night.requests


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_may_be_relative_and_lead_to_another_name(status: int) -> None:
    replies = {
        "a.org/x/y": to("../z", status),
        "a.org/z": to("//B.org:80/w w#f"),
        "b.org/w%20w": OK,
    }
    night = check(replies, "http://a.org/x/y")
    assert (night.one.found, night.one.hops) == ("resolvable", 2), night.one
    assert night.looked_up == {"a.org": 2, "b.org": 1}


@pytest.mark.parametrize(
    "replies",
    [
        {"a.org/": to("/")},
        {"a.org/": to("#again")},
        {"a.org/": to("http://b.org/"), "b.org/": to("http://a.org/")},
    ],
)
def test_a_redirect_loop_is_dead(replies: dict[str, bytes]) -> None:
    night = check(replies, "http://a.org/")
    assert (night.one.found, night.one.reason) == ("dead", "redirect loop")
    assert len(night.requests) == len(replies)


FORBIDDEN = [
    "http://127.0.0.1:{other}/",
    "http://[::1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[64:ff9b::7f00:1]/",
    "http://[fe80::1%25lo]/",
    "http://169.254.169.254/latest/meta-data/",
    "http://168.63.129.16/",
    "http://2130706433/",
    "http://0x7f.1:{other}/",
    "http://0177.0.0.1/",
    "http://127.0.0.1.:{other}/",
    "http://１２７.0.0.1:{other}/",
    "http://localhost:{other}/",
    "http://LOCALHOST.:{other}/",
    "http://printer.local/",
    "http://inside.org/",
    "//inside.org/",
    "http://mapped.org/",
    "http://user:word@a.org/",
    "http://a.org@127.0.0.1:{other}/",
    "ftp://a.org/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:{other}/_x",
    "http://",
    "http://a.org:0/",
    "http://a.org:99999/",
    "http://[::1",
    "http://xn--/",
    "http://nowhere.org/",
    "http://a.org/\x00",
    "http://a.org/" + "x" * 9000,
]


@pytest.mark.parametrize("location", FORBIDDEN)
def test_a_redirect_to_what_cannot_be_asked_is_dead_and_not_followed(location: str) -> None:
    async def run() -> tuple[Night, list[Seen]]:
        async with Web(lambda seen: OK) as other:
            where = location.format(other=other.address[1])
            names = {
                "inside.org": [("10.0.0.1", 80)],
                "mapped.org": [("::ffff:127.0.0.1", other.address[1])],
                "nowhere.org": socket.gaierror(socket.EAI_NONAME, "no such name"),
            }
            script = script_of(
                {"a.org/": b"HTTP/1.1 302 x\r\nlocation: %s\r\n\r\n" % where.encode()}
            )
            return await asyncio.to_thread(
                check, script, "http://a.org/", names=names
            ), other.requests

    night, others = asyncio.run(run())
    assert (night.one.found, others) == ("dead", []), night.one
    assert {host for _, host in night.requests} == {"a.org/"}


def test_a_redirect_without_an_address_is_dead() -> None:
    assert check(reply(302), "http://a.org/").one.reason == "a redirect without an address"


def test_a_line_break_in_a_location_opens_no_second_header() -> None:
    night = check(
        {"a.org/": to("http://b.org/\r\nset-cookie: x=1\r\nhost: c.org"), "b.org/": OK},
        "http://a.org/",
    )
    assert night.one.found == "resolvable"
    assert [target for _, target in night.requests] == ["a.org/", "b.org/"]


# Malformed and guarded


MALFORMED = [
    "",
    "a.org/page",
    "www.a.org",
    "http:/a.org",
    "https://",
    "http:///page",
    "http://:80/",
    "mailto:x@a.org",
    "ftp://a.org/",
    "javascript:alert(1)//",
    "http://user@a.org/",
    "http://user:word@a.org/",
    "http://a.org\\@b.org/",
    "http://a.org\\b",
    "http://a.org:port/",
    "http://a.org:0/",
    "http://a.org:65536/",
    "http://a.org:-1/",
    "http://a.org:8_0/",
    "http://a.org:８０/",
    "http://a.org:80:80/",
    "http://a.org/two words",
    "http://a.org/\u3000",
    "http://a.org/\r\nHost: b.org",
    "http://a.org/\x7f",
    "http://a.org/\ud800",
    "http://a b.org/",
    "http://a..org/",
    "http://a.org../",
    "http://-a.org/",
    "http://a-.org/",
    f"http://{'a' * 64}.org/",
    f"http://{'a.' * 140}org/",
    "http://%61.org/",
    "http://a.org%00.b.org/",
    "http://☃.org/",
    "http://intranet/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0x7f.1/",
    "http://0177.0.0.1/",
    "http://127.1/",
    "http://256.1.1.1/",
    "http://1.2.3.4.5/",
    "http://１２７.0.0.1/",
    "http://::1/",
    "http://[::1/",
    "http://[::g]/",
    "http://[fe80::1%25eth0]/",
    "http://[fe80::1%eth0]/",
    "http://[v1.a]/",
    "http://[127.0.0.1]/",
    "http://a.org/" + "x" * 8000,
]


@pytest.mark.parametrize("url", MALFORMED)
def test_a_url_is_malformed_by_its_letters_alone(url: str) -> None:
    night = check(OK, url)
    assert (night.one.found, night.one.attempts, night.one.url) == ("malformed", 0, url), night.one
    assert night.one.reason
    assert (night.looked_up, night.requests) == ({}, [])


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("HTTP://A.ORG", "a.org/"),
        ("http://a.org./x", "a.org/x"),
        ("http://a.org:80/x", "a.org/x"),
        ("http://a.org:/x", "a.org/x"),
        ("http://bücher.org/ü", "xn--bcher-kva.org/%c3%bc"),
        ("http://例子。org/", "xn--fsqu00a.org/"),
        ("http://xn--a.org/", "xn--a.org/"),
        ("http://under_score.a.org/a%2Fb?c[]=d", "under_score.a.org/a%2fb?c[]=d"),
        ("http://a.org/?", "a.org/?"),
    ],
)
def test_what_a_server_is_asked_for(url: str, asked: str) -> None:
    night = check(OK, url)
    assert night.one.found == "resolvable"
    assert [target.lower() for _, target in night.requests] == [asked]


GUARDED = [
    "http://127.0.0.1:1/",
    "http://127.0.0.1./",
    "http://10.1.2.3/",
    "http://100.64.0.1/",
    "http://169.254.169.254/latest",
    "http://192.168.0.1/",
    "http://224.0.0.1/",
    "http://255.255.255.255/",
    "http://0.0.0.0/",
    "http://[::]/",
    "http://[::1]/",
    "http://[0:0:0:0:0:0:0:1]/",
    "http://[fe80::1]/",
    "http://[fd00:ec2::254]/",
    "http://[ff02::1]/",
    "http://[::ffff:8.8.8.8]/",
    "http://[::8.8.8.8]/",
    "http://[64:ff9b::8.8.8.8]/",
    "http://[2002:0808:0808::1]/",
    "http://[2001:0:808:808::1]/",
    "http://localhost/",
    "http://LocalHost./",
    "http://a.localhost/",
    "http://printer.local/",
    "http://metadata.google.internal/",
    "http://abc.onion/",
    "http://router.home.arpa/",
]


@pytest.mark.parametrize("url", GUARDED)
def test_a_guarded_address_is_unchecked_and_neither_looked_up_nor_asked(url: str) -> None:
    night = check(OK, url)
    assert (night.one.found, night.one.attempts) == ("unchecked", 0)
    assert str(night.one.reason).startswith("guarded: ")
    assert (night.looked_up, night.requests) == ({}, [])


@pytest.mark.parametrize("hidden", ["10.0.0.1", "127.0.0.1", "::1", "fe80::1%lo", "x", ""])
def test_one_forbidden_address_refuses_the_whole_name(hidden: str) -> None:
    def addresses(night: Night) -> list[tuple[str, int]]:
        return [night.web.address, (hidden, 80)]

    night = check(OK, "http://a.org/", names={"a.org": addresses})
    assert (night.one.found, night.requests) == ("unchecked", [])


def test_a_public_address_at_another_port_is_not_asked() -> None:
    night = check(OK, "http://a.org:8080/", names={"a.org": [("8.8.8.8", 8080)]})
    assert (night.one.found, night.one.reason) == ("unchecked", "port 8080 is not asked")


def test_a_name_is_looked_up_once_and_that_answer_is_connected_to() -> None:
    """The second answer would lead into this machine: nobody asks for it."""

    def rebinding(night: Night) -> list[tuple[str, int]]:
        return [night.web.address] if night.looked_up["a.org"] == 1 else [("127.0.0.1", 1)]

    night = check(reply(404), "http://a.org/", names={"a.org": rebinding})
    assert (night.one.found, night.one.http, night.one.attempts) == ("dead", 404, 2)
    assert night.looked_up == {"a.org": 1}
    night = check(to("/next"), "http://a.org/", names={"a.org": rebinding})
    assert (night.one.found, night.looked_up["a.org"]) == ("dead", 2)
    assert night.one.reason == "redirect to guarded: 127.0.0.1 is not a public address"
    assert len(night.requests) == 1


def embedded(v4: int) -> list[str]:
    """Return the IPv6 addresses in which the IPv4 address `v4` can hide."""
    places = {"::ffff:0:0": 0, "::": 0, "64:ff9b::": 0, "2002::": 80, "2001::": 0, "fe80::": 0}
    found = [int(ipaddress.IPv6Address(base)) | v4 << shift for base, shift in places.items()]
    found.append(int(ipaddress.IPv6Address("2001::")) | (v4 ^ 0xFFFFFFFF))
    return [str(ipaddress.IPv6Address(number)) for number in found]


@given(st.ip_addresses())
def test_what_is_public_is_global_to_the_standard_library_too(address: Any) -> None:
    if public(str(address)):
        assert address.is_global and not address.is_multicast and not address.is_reserved
        assert getattr(address, "ipv4_mapped", None) is None


@given(st.integers(0, 2**32 - 1))
def test_no_embedding_of_an_ipv4_address_is_public(v4: int) -> None:
    assert not [address for address in embedded(v4) if public(address)]


@given(
    st.sampled_from(
        "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.168.0.0/16"
        " 198.18.0.0/15 224.0.0.0/4 240.0.0.0/4 ::/128 ::1/128 fc00::/7 fe80::/10 ff00::/8"
        " 2001:db8::/32 fec0::/10".split()
    ),
    st.integers(min_value=0),
)
def test_no_address_of_a_special_network_is_public(network: str, number: int) -> None:
    inside = ipaddress.ip_network(network)
    assert not public(str(inside[number % inside.num_addresses]))


@given(st.text(max_size=40))
def test_no_text_that_is_no_address_is_public(text: str) -> None:
    assert not public(text) or ipaddress.ip_address(text).is_global


@pytest.mark.parametrize(
    "ip", ["8.8.8.8", "93.184.215.14", "2606:2800:21f:cb07::1", "2a00:1450::1"]
)
def test_addresses_of_the_public_internet_are_public(ip: str) -> None:
    assert public(ip)
    assert not public(f"{ip}%eth0")


# DNS


def failing(number: int) -> socket.gaierror:
    return socket.gaierror(number, "said so")


@pytest.mark.parametrize(
    ("answer", "found", "reason"),
    [
        (failing(socket.EAI_NONAME), "nonexistent domain", "DNS knows no such name"),
        (failing(socket.EAI_NODATA), "dead", "the name has no address"),
        ([], "dead", "the name has no address"),
        (failing(socket.EAI_AGAIN), "unchecked", "DNS failed: said so"),
        (failing(socket.EAI_FAIL), "unchecked", "DNS failed: said so"),
        ("silence", "unchecked", "DNS gave no answer in 1 s"),
    ],
)
def test_what_dns_says_has_its_class(answer: Any, found: str, reason: str) -> None:
    night = check(OK, "http://a.org/", names={"a.org": answer}, limits=BRIEF)
    assert (night.one.found, night.one.reason, night.one.attempts) == (found, reason, 0)


def test_the_search_domains_of_this_machine_play_no_part(monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(host: str, port: int, *_: object, **__: object) -> list[Any]:
        assert (host, port) == ("a.org.", 443)
        return [(2, 1, 6, "", ("8.8.8.8", 443)), (10, 1, 6, "", ("2606:2800::1", 443, 0, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    found = asyncio.run(lookup("a.org", 443))
    assert found == [("8.8.8.8", 443), ("2606:2800::1", 443)]


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (
            {"example.org": failing(socket.EAI_NONAME)},
            "the network is closed: http://example.org/ is nonexistent domain "
            "(DNS knows no such name)",
        ),
        (
            {"example.org": [("10.0.0.1", 80)]},
            "the network is closed: http://example.org/ is unchecked "
            "(guarded: 10.0.0.1 is not a public address)",
        ),
        (
            {"example.org": lambda night: [night.web.address]},
            "the network is closed: http://example.org/ is dead (HTTP 511)",
        ),
    ],
)
def test_on_a_closed_network_nothing_is_checked(names: dict[str, Any], reason: str) -> None:
    night = check(reply(511), "http://a.org/", "not a url", names=names)
    assert [row.found for row in night.kept] == 2 * ["unchecked"]
    assert {row.reason for row in night.kept} == {reason}
    assert "a.org" not in night.looked_up


@pytest.mark.parametrize("lie", [[("10.9.9.9", 80)], failing(socket.EAI_AGAIN)])
def test_a_resolver_that_never_denies_a_name_leaves_all_unchecked(lie: Any) -> None:
    class Liar(dict[str, Any]):
        def __contains__(self, host: object) -> bool:
            return host != "example.org"

        def get(self, host: str, default: Any = None) -> Any:
            return lie

    night = check(OK, "http://a.org/", names=Liar())
    assert night.one.found == "unchecked"
    assert "cannot be told" in str(night.one.reason)
    [asked] = night.looked_up
    assert len(asked) == len("f" * 32 + ".org")
    assert check(OK, "http://a.org/", names=Liar(), seed="m").looked_up.keys() != {asked}


def test_what_is_switched_off_asks_nothing() -> None:
    night = check(OK, "http://a.org/", limits=with_limits(enabled=False))
    assert (night.one.found, night.one.reason) == ("unchecked", "checking is off")
    assert (night.looked_up, night.requests) == ({}, [])


# Hostile servers


HOSTILE: dict[str, bytes | Callable[[], AsyncIterator[bytes]]] = {
    "nothing": b"",
    "no HTTP": b"SSH-2.0-OpenSSH_9.6\r\n",
    "HTTP/0.9": b"<html>hello</html>",
    "status line without a number": b"HTTP/1.1 OK\r\n\r\n",
    "status of four digits": b"HTTP/1.1 2000 OK\r\n\r\n",
    "status of letters": b"HTTP/1.1 \xd9\xa2\xd9\xa0\xd9\xa0 OK\r\n\r\n",
    "no end of headers": HEAD_OK + b"a: b\r\n",
    "a header without a name": HEAD_OK + b": b\r\n\r\n",
    "a null in a header": HEAD_OK + b"a: \x00\r\n\r\n",
    "two lengths": HEAD_OK + b"content-length: 1\r\ncontent-length: 2\r\n\r\n",
    "huge header": HEAD_OK + b"a: " + b"x" * (1 << 20) + b"\r\n\r\n",
    "many headers": HEAD_OK + b"a: b\r\n" * 200_000 + b"\r\n",
    "endless header": lambda: repeated(HEAD_OK + b"a: ", b"x" * 65536),
    "endless 1xx": lambda: repeated(b"", b"HTTP/1.1 103 Early\r\n\r\n" * 99),
    "slow drip": lambda: repeated(HEAD_OK, b"a", 0.02),
    "silence": lambda: repeated(b"", b"", 0.02),
    "switching protocols": b"HTTP/1.1 101 Go\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_reply_is_dead_and_ends(name: str) -> None:
    said = HOSTILE[name]
    night = check(lambda seen: said() if callable(said) else said, "http://a.org/", limits=BRIEF)
    assert (night.one.found, night.one.attempts <= 2) == ("dead", True), night.one
    assert night.web.sent < 64 << 20


def test_silence_is_given_one_timeout_and_no_get() -> None:
    night = check(lambda seen: repeated(HEAD_OK, b"a", 0.02), "http://a.org/", limits=BRIEF)
    assert (night.one.reason, night.one.attempts) == ("no reply in 1 s", 1)
    assert night.web.sent < 300, "a byte every 20 ms: six times as many as a second holds"


@pytest.mark.parametrize(
    "first", [b"transfer-encoding: chunked\r\n", b"content-length: 99999999999\r\n", b""]
)
def test_no_body_is_read(first: bytes) -> None:
    """What leaves the server before the close is what the system's buffers hold."""
    body = repeated(HEAD_OK + first + b"\r\n", b"x" * 65536)
    night = check(lambda seen: reply(405) if seen.method == "HEAD" else body, "http://a.org/large")
    assert (night.one.found, night.one.attempts) == ("resolvable", 2)
    assert night.web.sent < 4 << 20


def test_a_compressed_bomb_is_not_unpacked() -> None:
    bomb = gzip.compress(b"0" * (64 << 20))
    said = HEAD_OK + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n%s" % (len(bomb), bomb)
    night = check(lambda seen: reply(405) if seen.method == "HEAD" else said, "http://a.org/")
    assert night.one.found == "resolvable"


def test_a_server_that_is_not_there_is_dead() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        address = held.getsockname()
        night = check(OK, "http://a.org/", names={"a.org": [address]}, allow={address})
    assert (night.one.found, night.one.reason) == ("dead", "no reply: ConnectError")
    assert night.one.attempts == 1


def test_a_failure_of_this_machine_makes_no_link_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = socket.socket.connect

    def unreachable(self: socket.socket, address: Any) -> None:
        if address[1] == 9:
            raise OSError(101, "Network is unreachable")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", unreachable)
    away = ("127.0.0.1", 9)
    night = check(OK, "http://a.org/", names={"a.org": [away]}, allow={away})
    assert night.one.found == "unchecked"
    assert night.one.reason == "this machine could not ask: Network is unreachable"


def test_a_damaged_reply_becomes_a_row() -> None:
    chance = random.Random(20261129)
    whole = b"HTTP/1.1 302 Found\r\nlocation: http://b.org/next\r\ncontent-length: 0\r\n\r\n"
    pieces = [b"\r\n", b"://", b"[", b"@", b":", b"%", b"\\", b"\xff", b"#", b"xn--", b"\x00" * 99]

    def script(seen: Seen) -> bytes:
        damaged = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            place = chance.randrange(len(damaged))
            damaged[place : place + chance.randint(0, 9)] = chance.choice(
                [b"", chance.randbytes(3), *pieces]
            )
        return bytes(damaged)

    night = check(script, *(f"http://n{n}.org/" for n in range(200)))
    assert len(night.kept) == 200
    assert {row.found for row in night.kept} <= set(CLASSES)
    assert all(row.hops <= 3 and row.attempts <= 5 for row in night.kept)


@settings(max_examples=40)
@given(st.text(max_size=30))
def test_no_text_breaks_the_check(text: str) -> None:
    rows = check(to("http://" + text), "http://a.org/", text, f"http://{text}").kept
    assert {row.found for row in rows} <= set(CLASSES)


# TLS


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CA, a certificate of it for a.org, and a self-signed one for a.org."""
    openssl = shutil.which("openssl")
    need("openssl", openssl is not None)
    folder = tmp_path_factory.mktemp("keys")

    def certify(name: str, *options: str) -> None:
        new = "req -x509 -nodes -days 2 -newkey ec -pkeyopt ec_paramgen_curve:P-256".split()
        out = ["-keyout", f"{name}.key", "-out", f"{name}.pem"]
        subprocess.run(
            [str(openssl), *new, *out, *options], cwd=folder, check=True, capture_output=True
        )

    named = ("-subj", "/CN=a.org", "-addext", "subjectAltName=DNS:a.org")
    leaf = ("-addext", "basicConstraints=critical,CA:FALSE")
    certify("ca", "-subj", "/CN=test CA")
    certify("signed", *named, *leaf, "-CA", "ca.pem", "-CAkey", "ca.key")
    certify("self", *named)
    return folder


def over_tls(keys: Path, name: str, *urls: str, **options: Any) -> tuple[Night, list[str | None]]:
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(keys / f"{name}.pem", keys / f"{name}.key")
    asked: list[str | None] = []
    served.sni_callback = lambda _socket, server_name, _context: asked.append(server_name)
    return check(OK, *urls, served_tls=served, **options), asked


def test_a_certificate_is_verified_for_the_name_at_the_pinned_address(keys: Path) -> None:
    trusted = ssl.create_default_context(cafile=keys / "ca.pem")
    urls = ["https://a.org/", "https://b.org/"]
    night, asked = over_tls(keys, "signed", *urls, tls=trusted)
    rows = {row.url: row for row in night.kept}
    assert rows["https://a.org/"].found == "resolvable"
    assert rows["https://b.org/"].found == "dead"
    assert "b.org" in str(rows["https://b.org/"].reason)
    assert night.requests == [("HEAD", "a.org/")]
    assert sorted(map(str, asked)) == ["a.org", "b.org"]


def test_a_certificate_nobody_vouches_for_is_dead(keys: Path) -> None:
    for name in ("signed", "self"):
        night, _ = over_tls(keys, name, "https://a.org/")
        assert (night.one.found, night.one.attempts) == ("dead", 1)
        assert str(night.one.reason).startswith("TLS: ")
        assert night.requests == []


def test_plain_http_where_tls_is_due_is_dead() -> None:
    assert check(OK, "https://a.org/", limits=BRIEF).one.found == "dead"


# The night


def test_a_target_is_requested_once_whatever_its_fragment_and_spelling() -> None:
    urls = ["http://a.org/p", "http://a.org/p#one", "HTTP://A.org:80/p#two", "http://a.org/p"]
    night = check(OK, *urls)
    assert night.requests == [("HEAD", "a.org/p")]
    assert [row.url for row in night.kept] == urls[:3]
    assert {(row.found, row.attempts) for row in night.kept} == {("resolvable", 1)}


def many(number: int) -> list[str]:
    return [f"http://n{n}.org/" for n in range(number)]


#: The expected time of many(n) is n * 2 / 8 s.
SHORT = with_limits(budget_s=24)


def test_half_is_drawn_before_the_first_request_where_the_estimate_exceeds_the_budget() -> None:
    assert check(OK, *many(96), limits=SHORT).share == 1
    urls = [*many(97), *(f"malformed {n}" for n in range(40))]
    night = check(OK, *urls, limits=SHORT)
    assert night.share == 0.5
    left = [row for row in night.kept if row.found == "unchecked"]
    assert {row.reason for row in left} == {"not drawn into the sample"}
    assert night.kept[: len(left)] == left
    assert len(night.requests) == sum(row.found == "resolvable" for row in night.kept)
    assert 30 < len(night.requests) < 67
    assert 8 < sum(row.found == "malformed" for row in night.kept) < 32
    again = check(OK, *reversed(urls), limits=SHORT)
    assert {row.url for row in again.kept[: len(left)]} == {row.url for row in left}
    other = check(OK, *urls, limits=SHORT, seed="another night")
    assert {row.url for row in other.kept if row.found == "unchecked"} != {r.url for r in left}


def test_one_busy_host_counts_with_its_pauses() -> None:
    urls = [f"http://a.org/{n}" for n in range(10)]
    limits = with_limits(budget_s=29, pause_s=1)
    assert check(OK, *urls, limits=limits).share == 0.5
    assert check(OK, *urls[:9], limits=limits).share == 1


def test_a_night_that_was_cut_goes_on_with_the_same_sample() -> None:
    urls = many(97)
    whole = check(OK, *urls, limits=SHORT)
    begun = [row.url for row in whole.kept[:70]]
    rest = check(OK, *urls, limits=SHORT, done=begun)
    assert rest.share == whole.share
    assert sorted(begun + [row.url for row in rest.kept]) == sorted(urls)
    found = {row.url: row.found for row in whole.kept}
    assert all(row.found == found[row.url] for row in rest.kept)
    nothing = check(OK, *urls, limits=SHORT, done=urls, names={"example.org": []})
    assert (nothing.kept, nothing.looked_up) == ([], {})


def test_what_the_budget_does_not_reach_is_unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("drift.probing.citations.time", SimpleNamespace(monotonic=lambda: now))

    def script(seen: Seen) -> bytes:
        nonlocal now
        now += 10
        return OK

    limits = with_limits(concurrency=1, budget_s=25, expected_s=Decimal("0.1"))
    night = check(script, *many(9), limits=limits)
    assert [row.found for row in night.kept] == 3 * ["resolvable"] + 6 * ["unchecked"]
    assert {row.reason for row in night.kept[3:]} == {"over the time budget"}
    assert {row.url for row in night.kept[:3]} != set(many(3))


def test_each_result_is_kept_as_soon_as_it_is_known() -> None:
    kept: list[str] = []
    unkept: list[int] = []

    async def keep(row: Checked) -> None:
        kept.append(row.url)

    def script(seen: Seen) -> bytes:
        unkept.append(seen.number + len(unkept) - len(kept))
        return OK

    check(script, *many(60), keep=keep, limits=with_limits(concurrency=2))
    assert len(kept) == 60
    assert max(unkept) <= 3


def test_a_result_that_cannot_be_stored_ends_the_night_with_that_error() -> None:
    async def keep(row: Checked) -> None:
        raise DriftError("the disk is full")

    with pytest.raises(DriftError, match="the disk is full"):
        check(OK, *many(5), keep=keep)


async def after(seconds: float, said: bytes) -> AsyncIterator[bytes]:
    await asyncio.sleep(seconds)
    yield said


def test_a_host_gets_one_request_at_a_time_and_pauses_between() -> None:
    urls = [f"http://a.org/{n}" for n in range(6)]
    night = check(lambda seen: after(0.01, OK), *urls, limits=with_limits(pause_s=50))
    assert night.web.most_in_flight == 1
    assert [round(wait / 50, 1) for wait in night.waits if wait] == 5 * [1.0]


def test_other_hosts_are_asked_meanwhile_up_to_the_limit() -> None:
    busy = [f"http://a.org/{n}" for n in range(20)]
    night = check(lambda seen: after(0.01, OK), *busy, *many(20), limits=with_limits(concurrency=4))
    assert night.web.most_in_flight == 4
    assert {row.found for row in night.kept} == {"resolvable"}


def test_a_row_is_written_without_what_it_does_not_hold() -> None:
    assert check(OK, "http://a.org/").one.document() == {
        "url": "http://a.org/",
        "found": "resolvable",
        "http": 200,
        "hops": 0,
        "attempts": 1,
        "checked_at": "2026-03-01T12:00:00.000Z",
    }
    assert "http" not in check(OK, "nothing").one.document()
