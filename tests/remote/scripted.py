"""A server on a real socket that answers each request as a test says, byte for byte, or not at all."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import h11

Script = Callable[["Asked", asyncio.StreamWriter], Awaitable[None]]
"""Answers one request; the connection is closed afterwards."""


@dataclass
class Asked:
    """A request as it came."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    reader: asyncio.StreamReader

    @property
    def call(self) -> dict[str, Any]:
        return json.loads(self.body)

    @property
    def message_id(self) -> str:
        return self.call["params"]["message"]["messageId"]


@dataclass
class Scripted:
    """Does the scripts in their order, the last one for ever."""

    url: str
    scripts: list[Script] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    came: asyncio.Condition = field(default_factory=asyncio.Condition)

    def then(self, *scripts: Script) -> None:
        self.scripts = list(scripts)
        self.asked.clear()

    async def until(self, requests: int) -> None:
        async with asyncio.timeout(10), self.came:
            await self.came.wait_for(lambda: len(self.asked) >= requests)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked = await _read(reader)
            if asked is not None:
                async with self.came:
                    self.asked.append(asked)
                    self.came.notify_all()
                script = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
                await script(asked, writer)
        except ConnectionError:
            pass  # the client has gone
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Asked | None:
    http, body, request = h11.Connection(h11.SERVER), b"", None
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(await reader.read(65536))
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            assert request is not None
            headers = {name.decode(): value.decode() for name, value in request.headers}
            return Asked(request.method.decode(), request.target.decode(), headers, body, reader)
        else:
            return None


@asynccontextmanager
async def scripted() -> AsyncGenerator[Scripted]:
    served = Scripted("")
    server = await asyncio.start_server(served._serve, "127.0.0.1", 0)
    served.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield served


def refusing() -> tuple[socket.socket, str]:
    """A port that refuses connections for as long as the socket is open."""
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    return taken, f"http://127.0.0.1:{taken.getsockname()[1]}"


# ── scripts ──────────────────────────────────────────────────────────────────────────────────────────


def answer(status: int, body: bytes | str = b"", **headers: str) -> Script:
    """A whole answer; names of headers with `_` for `-`."""
    content = body.encode() if isinstance(body, str) else body
    lines = {
        "content-type": "application/json",
        **{k.replace("_", "-"): v for k, v in headers.items()},
    }

    async def script(_: Asked, writer: asyncio.StreamWriter) -> None:
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        writer.write(
            f"HTTP/1.1 {status} X\r\n{head}content-length: {len(content)}\r\n\r\n".encode()
            + content
        )
        await writer.drain()

    return script


def result(value: Any) -> Script:
    """The answer of JSON-RPC."""

    async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
        document = {"jsonrpc": "2.0", "id": asked.call["id"], "result": value}
        await answer(200, json.dumps(document))(asked, writer)

    return script


def error(code: int, message: str = "no", status: int = 200) -> Script:
    """An error of JSON-RPC."""
    return answer(
        status, json.dumps({"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": message}})
    )


def reset(after: bytes = b"") -> Script:
    """Send some bytes, then RST."""

    async def script(_: Asked, writer: asyncio.StreamWriter) -> None:
        if after:
            writer.write(after)
            await writer.drain()
        raw = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        writer.transport.abort()

    return script


def closing(after: bytes = b"") -> Script:
    """Send some bytes, or none, then close: so do a process that was killed and a proxy that gives up."""

    async def script(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(after)

    return script


async def silent(asked: Asked, _: asyncio.StreamWriter) -> None:
    """No answer until the client has gone."""
    await asked.reader.read()


def events(
    *values: Any, first: int = 1, hold: asyncio.Event | None = None, cut: bool = False
) -> Script:
    """A stream of JSON-RPC results with ids, then its end, or none until `hold` is set.

    Args:
        cut: in chunks, whose last one never comes: so ends the stream of a server that was killed.
    """
    coding = b"transfer-encoding: chunked\r\n" if cut else b""

    async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n"
            + coding
            + b"\r\n"
        )
        for number, value in enumerate(values, first):
            document = {"jsonrpc": "2.0", "id": asked.call["id"], "result": value}
            piece = f": beat\nid: {number}\ndata: {json.dumps(document)}\n\n".encode()
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if cut else piece)
        await writer.drain()
        if hold is not None:
            gone = asyncio.create_task(asked.reader.read())
            held = asyncio.create_task(hold.wait())
            await asyncio.wait({gone, held}, return_when=asyncio.FIRST_COMPLETED)
            gone.cancel()
            held.cancel()

    return script


def agent(card: dict[str, Any], *scripts: Script) -> Script:
    """A card for every GET, and the scripts in their order for the calls, the last one for ever."""
    left = list(scripts)

    async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.method == "GET":
            await answer(200, json.dumps(card))(asked, writer)
            return
        await (left.pop(0) if len(left) > 1 else left[0])(asked, writer)

    return script


@asynccontextmanager
async def losing(url: str, *targets: str) -> AsyncGenerator[tuple[str, list[Asked]]]:
    """A proxy that closes behind the first request to each of `targets`, once the server has answered it.

    Gives its address and what it has passed on.
    """
    left, passed = set(targets), []

    async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
        passed.append(asked)
        place = urlsplit(url)
        reader, far = await asyncio.open_connection(place.hostname, place.port)
        dropped = {"connection", "content-length", "transfer-encoding"}
        lines = [f"{k}: {v}\r\n" for k, v in asked.headers.items() if k not in dropped]
        head = f"{asked.method} {asked.target} HTTP/1.1\r\n{''.join(lines)}"
        size = f"connection: close\r\ncontent-length: {len(asked.body)}\r\n\r\n"
        far.write((head + size).encode() + asked.body)
        lost = asked.target in left
        left.discard(asked.target)
        while piece := await reader.read(65536):
            if not lost:
                writer.write(piece.replace(url.encode(), served.url.encode()))
                await writer.drain()
        far.close()

    async with scripted() as served:
        served.then(script)
        yield served.url, passed
