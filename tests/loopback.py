"""A small real HTTP server on 127.0.0.1 that answers chat completions by script.

::

    with Loopback(lambda request: completion("Water boils at 100 °C.")) as server:
        ...ask server.base_url...
    assert server.counts["my-model", "the prompt"] == 1

A script is a function from :class:`Request` to :class:`Reply`. It runs in the server's
thread. ``python tests/loopback.py --delay 0.2`` serves in a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gzip
import json
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Request:
    """One request. ``number`` counts those for its (model, prompt), from 1."""

    path: str
    headers: dict[str, str]
    document: dict[str, Any]
    number: int

    @property
    def model(self) -> str:
        return str(self.document.get("model"))

    @property
    def prompt(self) -> str:
        """The last message's text."""
        messages = self.document.get("messages") or [{}]
        return str(messages[-1].get("content"))


@dataclass(frozen=True)
class Reply:
    """What to send back.

    ``delay`` is in seconds and ``repeat`` sends the body so many times over. ``raw``
    is sent in place of a reply, and the connection is closed; ``reset`` breaks the
    connection; ``cut`` sends a chunked body without its end.
    """

    body: bytes = b""
    status: int = 200
    headers: tuple[tuple[str, str], ...] = (("content-type", "application/json"),)
    delay: float = 0.0
    repeat: int = 1
    raw: bytes | None = None
    reset: bool = False
    cut: bool = False


Script = Callable[[Request], Reply]


def as_json(document: object, status: int = 200, **reply: Any) -> Reply:
    """Reply with `document` as JSON."""
    return Reply(json.dumps(document).encode(), status, **reply)


def completion(content: object, finish_reason: str = "stop", **reply: Any) -> Reply:
    """Reply with a plain completion."""
    return as_json(completion_document(content, finish_reason), **reply)


def completion_document(
    content: object, finish_reason: str | None = "stop", **message: object
) -> dict[str, Any]:
    """Return the document of a plain completion; `message` adds to its message."""
    said = {"role": "assistant", "content": content} | message
    return {
        "id": "reply-1",
        "model": "served",
        "choices": [{"index": 0, "message": said, "finish_reason": finish_reason}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12},
    }


def failing(status: int, code: object = None, message: str = "no", **headers: str) -> Reply:
    """Reply with an error object; `headers` such as ``retry_after="3"``."""
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return as_json({"error": {"code": code, "message": message}}, status, headers=named)


def gzip_cut(document: object) -> Reply:
    """Reply with a gzip body whose end is missing."""
    packed = gzip.compress(json.dumps(document).encode())[:-12]
    return Reply(packed, headers=(("content-encoding", "gzip"),))


def in_turn(*replies: Reply) -> Script:
    """Answer the n-th request for a (model, prompt) with the n-th reply, then with the last."""
    return lambda request: replies[min(request.number, len(replies)) - 1]


@dataclass
class Loopback:
    """The server; a context manager. Counts are read after or during a run."""

    script: Script
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    requests: list[Request] = field(default_factory=list)
    bytes_sent: int = 0
    in_flight: int = 0
    most_in_flight: int = 0
    base_url: str = ""

    def __enter__(self) -> Loopback:
        ready = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(ready)), name="loopback", daemon=True
        )
        self._thread.start()
        ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _serve(self, ready: threading.Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        tasks: set[asyncio.Task[None]] = set()

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = self._loop.create_task(self._connection(reader, writer))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        server = await asyncio.start_server(connected, "127.0.0.1", 0, backlog=1024)
        port = server.sockets[0].getsockname()[1]
        self.base_url = f"http://127.0.0.1:{port}/v1"
        ready.set()
        await self._stop.wait()
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._exchange(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.rstrip("\r\n").split("\r\n")
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        document = json.loads(body) if body else {}
        asked = Request(first.split()[1], headers, document, 0)
        place = (asked.model, asked.prompt)
        self.counts[place] += 1
        request = Request(asked.path, headers, document, self.counts[place])
        self.requests.append(request)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return await self._answer(self.script(request), writer)
        finally:
            self.in_flight -= 1

    async def _answer(self, reply: Reply, writer: asyncio.StreamWriter) -> bool:
        if reply.delay:
            await asyncio.sleep(reply.delay)
        if reply.reset:
            linger = struct.pack("ii", 1, 0)
            found = writer.get_extra_info("socket")
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()
            return False
        if reply.raw is not None:
            writer.write(reply.raw)
            await writer.drain()
            return False
        lines = [f"HTTP/1.1 {reply.status} Scripted"]
        lines += [f"{name}: {value}" for name, value in reply.headers]
        if reply.cut:
            lines.append("transfer-encoding: chunked")
        else:
            lines.append(f"content-length: {len(reply.body) * reply.repeat}")
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        if reply.cut:
            writer.write(head + f"{len(reply.body) + 9:x}\r\n".encode() + reply.body)
            await writer.drain()
            return False
        writer.write(head)
        for _ in range(reply.repeat):
            writer.write(reply.body)
            await writer.drain()
            self.bytes_sent += len(reply.body)
        return True


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before each reply")
    parser.add_argument("--text", default="Water boils at 100 degrees at sea level. " * 12)
    options = parser.parse_args()
    reply = completion(options.text, delay=options.delay)
    with Loopback(lambda request: reply) as server:
        print(server.base_url, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    _main()
