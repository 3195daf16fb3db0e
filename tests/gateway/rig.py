"""A gateway with real unix sockets before real TCP servers that the test plays itself."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from postroom.audit import AuditLog
from postroom.gateway.port import DoorDeadlines, DoorSpec
from postroom.gateway.server import Gateway, Proxy
from postroom.gateway.stream_proxy import StreamProxy
from postroom.identity.tokens import digest, new_token
from postroom.protocol.alerts import Alert
from postroom.protocol.preface import Preface
from tests.gateway.pump import Pump

T = TypeVar("T")
DEADLINE = 10.0
SCOUT, OTHER = "a" * 32, "b" * 32


async def soon(awaited: Awaitable[T]) -> T:
    """The result of `awaited`, or a failed test."""
    async with asyncio.timeout(DEADLINE):
        return await awaited


class End:
    """One end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await soon(self.writer.drain())

    async def read(self, size: int) -> bytes:
        return await soon(self.reader.readexactly(size))

    async def rest(self) -> bytes:
        """What comes until the other side ends; a reset is an end, too."""
        chunks = []
        try:
            while chunk := await soon(self.reader.read(1 << 20)):
                chunks.append(chunk)
        except ConnectionError:
            pass
        return b"".join(chunks)

    def end(self) -> None:
        """Half-close: nothing more comes from here."""
        self.writer.write_eof()

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await soon(self.writer.wait_closed())


class Upstream:
    """A TCP server; the test takes its connections one by one."""

    def __init__(self) -> None:
        self.ends: list[End] = []
        self.dialled: list[str] = []
        self._arrived: asyncio.Queue[End] = asyncio.Queue(100)
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._take, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        end = End(reader, writer)
        self.ends.append(end)
        self._arrived.put_nowait(end)

    async def dial(self, uid: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self.dialled.append(uid)
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def accept(self) -> End:
        return await soon(self._arrived.get())

    async def refuse(self) -> None:
        """From now on nobody listens on the port."""
        if self._server is not None:
            self._server.close()
            await asyncio.sleep(0)

    async def stop(self) -> None:
        await self.refuse()
        for end in self.ends:
            await end.close()


class Rig:
    """A gateway with a door for `SCOUT` and one for `OTHER`, and an upstream that the test plays.

    Attributes:
        alerts: kind and text of each that was raised.
    """

    def __init__(
        self, folder: Path, log: Path, deadlines: DoorDeadlines, violations: int = 20
    ) -> None:
        self.folder = folder
        self.log = log
        self.tokens = {SCOUT: new_token(), OTHER: new_token()}
        self.http = Upstream()
        self.audit = AuditLog(log)
        self.alerts: list[tuple[str, str]] = []
        self.proxies: dict[str, Proxy] = {
            "http": StreamProxy(Pump(self.http.dial, deadlines), deadlines)
        }
        self.gateway = Gateway(
            folder,
            self.proxies,
            self.audit,
            deadlines=deadlines,
            alert=self._alert,
            violations=violations,
        )
        self.doors: dict[str, Path] = {}
        self._near: list[End] = []

    async def _alert(self, org: str, alert: Alert) -> None:
        self.alerts.append((alert.kind, alert.text))

    async def start(self) -> None:
        await self.http.start()
        for uid, token in self.tokens.items():
            self.doors[uid] = await self.gateway.open_door(DoorSpec(uid, "default", digest(token)))

    async def stop(self) -> None:
        await self.gateway.close()
        for end in self._near:
            await end.close()
        await self.http.stop()
        self.audit.close()

    async def knock(self, first: bytes = b"", *, uid: str = SCOUT, limit: int = 1 << 16) -> End:
        """A connection to a door that has sent `first`."""
        end = End(*await soon(asyncio.open_unix_connection(self.doors[uid], limit=limit)))
        self._near.append(end)
        if first:
            await end.send(first)
        return end

    def preface(self, protocol: str = "http", *, uid: str = SCOUT) -> bytes:
        return Preface(protocol, self.tokens[uid]).encode()

    async def enter(self, protocol: str = "http") -> tuple[End, End]:
        """A relayed connection: the sandbox's end and the upstream's."""
        near = await self.knock(self.preface(protocol))
        far = await self.http.accept()
        return near, far

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait until `reached` holds, looking at each turn of the loop."""
        async with asyncio.timeout(DEADLINE):
            while not reached():  # noqa: ASYNC110
                await asyncio.sleep(0.005)  # a file and counters send no event

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def endings(self) -> list[dict[str, Any]]:
        """The lines about how connections ended, or were refused."""
        return [line for line in self.lines() if "reason" in line or line["verb"] == "close"]

    async def ending(self) -> dict[str, Any]:
        """The only line of that kind."""
        await self.until(lambda: bool(self.endings()))
        [line] = self.endings()
        return line
