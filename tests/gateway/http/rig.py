"""A proxy with a real unix socket before it, and real servers of the outside that the test scripts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h11
import trustme

from postroom.errors import PostroomError, StateUnwritable
from postroom.gateway.connection import Cause, GatewayConnection
from postroom.gateway.credentials import BoundCredential, Credentials, Refusals
from postroom.gateway.http.egress import EgressProxy
from postroom.gateway.http.exchange import Timeouts
from postroom.gateway.limits import RateLimit
from postroom.gateway.port import DoorSpec
from postroom.gateway.stream_proxy import StreamServer
from postroom.http.outbound import OutboundPolicy, PrivateAccess, Resolve
from postroom.identity.tokens import digest
from postroom.protocol.alerts import Alert
from postroom.protocol.audit import AuditRecord

DEADLINE = 20.0
UID = "a" * 32
TOKEN = "workers0wnt0ken"
HOST = "api.example.test"
SECRET = "sk-very-secret"

Answer = Callable[["Call"], Awaitable[None]]


class Sink:
    """An audit log in memory; `full` makes it refuse."""

    def __init__(self) -> None:
        self.records: list[AuditRecord] = []
        self.full = False

    def write(self, lines: bytes) -> None:
        if self.full:
            raise StateUnwritable("no space left")
        self.records += [AuditRecord.decode(line) for line in lines.splitlines()]

    @property
    def text(self) -> str:
        return "".join(record.encode().decode() for record in self.records)


@dataclass
class Call:
    """One request as the upstream has read it, and the stream to answer on."""

    request: h11.Request
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    http: h11.Connection
    body: bytes = b""

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.request.headers}

    @property
    def target(self) -> str:
        return self.request.target.decode()

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def read_body(self) -> bytes:
        while True:
            event = self.http.next_event()
            if event is h11.NEED_DATA:
                self.http.receive_data(await self.reader.read(65536))
            elif isinstance(event, h11.Data):
                self.body += event.data
            else:
                return self.body


async def plain(call: Call) -> None:
    """Read everything, say `ok`."""
    await call.read_body()
    await call.say(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


class Outside:
    """A server of the outside: HTTP/1.1 read by h11, answered by the test; with TLS if it has a context."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.calls: list[Call] = []
        self.answer: Answer = plain
        self.connections = 0
        self.port = 0
        self.ended = asyncio.Event()
        self._context = context

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Outside]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        http = h11.Connection(h11.SERVER)
        try:
            while (event := http.next_event()) is h11.NEED_DATA:
                http.receive_data(await reader.read(65536))
            if isinstance(event, h11.Request):
                call = Call(event, reader, writer, http)
                self.calls.append(call)
                await self.answer(call)
        except (OSError, h11.RemoteProtocolError):
            pass
        finally:
            self.ended.set()
            writer.close()
            with contextlib.suppress(OSError, ssl.SSLError):
                await writer.wait_closed()


@dataclass
class Reply:
    """What the sandbox reads."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def problem(self) -> dict[str, Any]:
        assert self.headers["content-type"] == "application/problem+json"
        return json.loads(self.body)


class Near:
    """The sandbox's end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.http = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def ask(
        self, target: str, method: str = "GET", body: bytes | None = None, **headers: str
    ) -> Reply:
        """One request, and its whole answer."""
        lines = [("host", "gateway")]
        lines += [(name.replace("_", "-"), value) for name, value in headers.items()]
        if body is not None:
            lines.append(("content-length", str(len(body))))
        request = h11.Request(method=method, target=target, headers=lines)
        data = self.http.send(request) or b""
        data += (self.http.send(h11.Data(data=body)) or b"") if body else b""
        data += self.http.send(h11.EndOfMessage()) or b""
        await self.send(data)
        reply = await self.reply()
        if self.http.our_state is h11.DONE and self.http.their_state is h11.DONE:
            self.http.start_next_cycle()
        return reply

    async def event(self) -> Any:
        while (event := self.http.next_event()) is h11.NEED_DATA:
            self.http.receive_data(await self.reader.read(65536))
        return event

    async def reply(self) -> Reply:
        async with asyncio.timeout(DEADLINE):
            head = await self.event()
            while isinstance(head, h11.InformationalResponse):
                head = await self.event()
            assert isinstance(head, h11.Response), head
            body = b""
            while isinstance(event := await self.event(), h11.Data):
                body += event.data
            headers = {name.decode(): value.decode() for name, value in head.headers}
            return Reply(head.status_code, headers, body)

    async def rest(self) -> bytes:
        """Everything until the other side ends."""
        async with asyncio.timeout(DEADLINE):
            try:
                return await self.reader.read(-1)
            except ConnectionError:
                return b""


class Way:
    """The egress proxy of one worker."""

    def __init__(self, folder: Path, authority: trustme.CA) -> None:
        self.folder = folder
        self.authority = authority
        self.sink = Sink()
        self.cause = Cause()
        self.offences: list[str] = []
        self.warnings: list[str] = []
        self.alerts: list[Alert] = []
        self.refusals = Refusals(self._raised)
        self.credentials = Credentials(folder / "keys" / "credentials.json")
        self.private: list[PrivateAccess] = []
        self.names: dict[str, list[str]] = {}
        self.asked: list[str] = []
        self.timeouts = Timeouts(connect=DEADLINE)
        self.spec = DoorSpec(UID, "default", digest(TOKEN))
        self.failures: list[BaseException] = []
        self._nears: list[Near] = []

    async def _raised(self, org: str, alert: Alert) -> None:
        assert org == self.spec.org
        self.alerts.append(alert)

    def allow(
        self, *rules: str, credentials: tuple[str, ...] = (), projects: tuple[str, ...] = ()
    ) -> None:
        self.spec = DoorSpec(UID, "default", digest(TOKEN), projects, rules, credentials)

    def keep(self, host: str, name: str = "key", secret: str = SECRET, **more: Any) -> None:
        bound = BoundCredential.bind(name, "default", host, secret=secret, **more)
        self.credentials.add(bound, replacing=True)

    def name(self, host: str, port: int, *addresses: str) -> None:
        """`host` is at `addresses` of this machine, opened on `port`."""
        self.names[host] = list(addresses or ("127.0.0.1",))
        self.private.append(PrivateAccess.parse(f"{host}:{port}"))

    @property
    def resolve(self) -> Resolve:
        async def look_up(host: str, _port: int) -> list[str]:
            self.asked.append(host)
            if host not in self.names:
                raise OSError(-2, "Name or service not known")
            return self.names[host]

        return look_up

    def proxy(self) -> EgressProxy:
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        policy = OutboundPolicy(tuple(self.private), self.resolve)
        return EgressProxy(policy, self.credentials, lambda: context, self.refusals, self.timeouts)

    def conn(self, protocol: str = "egress") -> GatewayConnection:
        rate_limit = RateLimit(self.spec.rates)
        offend = self.offences.append
        return GatewayConnection(
            self.spec,
            "c1",
            protocol,
            self.sink,
            self.cause,
            offend,
            self.warnings.append,
            rate_limit,
        )

    @asynccontextmanager
    async def open(
        self, proxy: StreamServer | None = None, protocol: str = "egress"
    ) -> AsyncGenerator[Callable[[], Awaitable[Near]]]:
        """Opens connections to the proxy."""
        path = self.folder / "door"

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await (proxy or self.proxy())(self.conn(protocol), reader, writer)
            except (PostroomError, OSError) as error:
                self.failures.append(error)
            finally:
                writer.transport.abort()

        async def enter() -> Near:
            near = Near(*await asyncio.open_unix_connection(path))
            self._nears.append(near)
            return near

        server = await asyncio.start_unix_server(serve, path, limit=65536)
        try:
            yield enter
        finally:
            server.close()
            for near in self._nears:
                near.writer.transport.abort()

    def said(self, *fields: str) -> list[tuple[Any, ...]]:
        """Those fields of all records."""
        return [tuple(getattr(record, name) for name in fields) for record in self.sink.records]

    async def until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE):
            while not reached():  # noqa: ASYNC110
                await asyncio.sleep(0.005)  # a list sends no event


@dataclass
class Site:
    """A server with TLS whose name the worker may reach."""

    way: Way
    outside: Outside
    base: str = field(default="")
    rule: str = field(default="")
