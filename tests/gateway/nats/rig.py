"""Doors before a real nats-server with Postroom's accounts, and a client that says any bytes."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from postroom.bus.address import BusAddress
from postroom.bus.nats import NatsBus
from postroom.errors import StateUnwritable
from postroom.gateway.nats.proxy import NatsProxy
from postroom.gateway.port import DoorDeadlines, DoorSpec, Rates
from postroom.gateway.server import Gateway
from postroom.identity.jwt import Credential
from postroom.identity.tokens import digest
from postroom.protocol.alerts import Alert
from postroom.protocol.audit import AuditRecord
from postroom.protocol.preface import Preface
from postroom.protocol.streams import AGENT_CONSUMER_STREAMS, agent_consumer
from postroom.sidecar.walls import bus_behind, by_socket
from tests.gateway.rig import soon
from tests.rig import Rig as Bus
from tests.rig import new_uid, running_bus

PROJECTS = ("main",)
RATES = Rates()


class Kept:
    """An audit log in memory, whose disk may be full."""

    def __init__(self) -> None:
        self.written = b""
        self.full = False

    def write(self, lines: bytes) -> None:
        if self.full:
            raise StateUnwritable("No space left")
        self.written += lines

    @property
    def records(self) -> list[AuditRecord]:
        return [AuditRecord.decode(line) for line in self.written.splitlines()]

    def of(self, verb: str) -> list[AuditRecord]:
        return [record for record in self.records if record.verb == verb]

    @property
    def denied(self) -> list[AuditRecord]:
        return [record for record in self.records if record.verdict == "denied"]


class Raw:
    """A NATS connection whose lines a test writes itself."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        credential: Credential,
    ) -> None:
        self.reader, self.writer, self.credential = reader, writer, credential
        self.info: dict[str, Any] = {}

    async def greeted(self) -> Raw:
        line = await self.any_line()
        assert line.startswith(b"INFO "), line
        self.info = json.loads(line[5:])
        return self

    def connect_line(self, **more: Any) -> bytes:
        signature = base64.b64encode(self.credential.sign(self.info["nonce"].encode())).decode()
        options = {
            "jwt": self.credential.jwt,
            "sig": signature,
            "verbose": False,
            "pedantic": False,
            "lang": "test",
            "version": "1",
            "protocol": 1,
            "headers": True,
            "no_responders": True,
        }
        return b"CONNECT " + json.dumps(options | more).encode() + b"\r\n"

    async def connect(self, **more: Any) -> Raw:
        await self.send(self.connect_line(**more))
        assert await self.pinged() == []
        return self

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await soon(self.writer.drain())

    async def any_line(self) -> bytes:
        return (await soon(self.reader.readuntil(b"\r\n")))[:-2]

    async def line(self) -> bytes:
        """The next line but INFO and PING, which may come at any time."""
        while (line := await self.any_line()).startswith(b"INFO ") or line == b"PING":
            continue
        return line

    async def pinged(self) -> list[bytes]:
        """Lines that come until the server has read all that was sent."""
        await self.send(b"PING\r\n")
        lines: list[bytes] = []
        while (line := await self.line()) != b"PONG":
            lines.append(line)
        return lines

    async def rest(self) -> bytes:
        """What comes until the connection ends."""
        found = []
        try:
            while chunk := await soon(self.reader.read(1 << 20)):
                found.append(chunk)
        except ConnectionError:
            pass
        return re.sub(rb"INFO [^\r]*\r\n", b"", b"".join(found))

    def close(self) -> None:
        self.writer.transport.abort()


@dataclass
class Worker:
    """A worker's door and credential."""

    uid: str
    token: str
    socket: Path
    credential: Credential


@dataclass
class House:
    """A gateway before a real server."""

    bus: Bus
    gateway: Gateway
    audit: Kept
    stack: AsyncExitStack
    alerts: list[tuple[str, str]] = field(default_factory=list)

    async def worker(
        self, rates: Rates = RATES, *, consumers: bool = True, uid: str = ""
    ) -> Worker:
        uid = uid or new_uid()
        for stream in AGENT_CONSUMER_STREAMS if consumers else ():
            await self.bus.admin.ensure_consumer(agent_consumer(stream, uid, PROJECTS))
        token = f"t{uid}"
        socket = await self.gateway.open_door(
            DoorSpec(uid, "default", digest(token), PROJECTS, rates=rates)
        )
        return Worker(uid, token, socket, self.credential(uid))

    def credential(self, uid: str) -> Credential:
        return self.bus.trust.mint_agent(
            uid, PROJECTS, lifetime=3600, now=time.time(), proxied=True
        )

    async def knock(self, worker: Worker, credential: Credential | None = None) -> Raw:
        """A connection through the door of `worker` that the server has greeted."""
        reader, writer = await asyncio.open_unix_connection(worker.socket, limit=1 << 22)
        raw = Raw(reader, writer, credential or worker.credential)
        self.stack.callback(raw.close)
        await raw.send(Preface("nats", worker.token).encode())
        return await raw.greeted()

    async def enter(self, worker: Worker) -> Raw:
        return await (await self.knock(worker)).connect()

    async def direct(self, credential: Credential) -> Raw:
        """A connection to the server itself."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.bus.server.port)
        raw = Raw(reader, writer, credential)
        self.stack.callback(raw.close)
        return await raw.greeted()

    async def client(self, worker: Worker) -> NatsBus:
        """The sidecar's client, through the gateway, with the credential that `worker` has at each connect."""

        def sign(nonce: bytes) -> bytes:
            return worker.credential.sign(nonce)

        bus = await NatsBus.connect(
            bus_behind(by_socket(str(worker.socket)), worker.token),
            uid=worker.uid,
            jwt=lambda: worker.credential.jwt,
            sign=sign,
            projects=PROJECTS,
            on_error=self.bus.errors.append,
        )
        self.stack.push_async_callback(bus.close)
        return bus

    async def until(self, reached: Any) -> None:
        async with asyncio.timeout(10):
            while not reached():  # noqa: ASYNC110
                await asyncio.sleep(0.005)  # records and counters send no event


@asynccontextmanager
async def open_house(
    folder: Path, *, memory: bool = True, violations: int = 20
) -> AsyncGenerator[House]:
    async with (
        running_bus(folder, memory=memory) as bus,
        house_before(bus, violations=violations) as house,
    ):
        yield house


@asynccontextmanager
async def house_before(bus: Bus, *, violations: int = 20) -> AsyncGenerator[House]:
    """A gateway before a bus that runs."""
    with tempfile.TemporaryDirectory(prefix="door") as sockets:
        async with AsyncExitStack() as stack:
            audit = Kept()
            alerts: list[tuple[str, str]] = []

            async def note(org: str, alert: Alert) -> None:
                alerts.append((alert.kind, alert.text))

            deadlines = DoorDeadlines(dial=10.0, flush=2.0)
            proxy = NatsProxy(lambda: BusAddress((bus.url,)), bus.trust.sign_as_proxy, deadlines)
            gateway = Gateway(
                Path(sockets),
                {"nats": proxy},
                audit,
                deadlines=deadlines,
                alert=note,
                violations=violations,
            )
            stack.push_async_callback(gateway.close)
            yield House(bus, gateway, audit, stack, alerts)
