"""The gateway's TLS address for sandboxes on other machines."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import trustme

from postroom.gateway.connection import GatewayConnection
from postroom.gateway.listener import TlsListener, bind_listener
from postroom.gateway.port import DoorDeadlines, DoorSpec
from postroom.gateway.server import Gateway
from postroom.gateway.stream_proxy import StreamProxy
from postroom.identity.tokens import digest, new_token
from postroom.protocol.alerts import Alert
from postroom.protocol.audit import AuditRecord
from postroom.protocol.preface import Preface
from postroom.sidecar.walls import EgressRelay, by_tls, streams, with_preface

pytestmark = pytest.mark.anyio

UID = "a" * 32
OTHER = "b" * 32


class Memory:
    def __init__(self) -> None:
        self.records: list[AuditRecord] = []

    def write(self, lines: bytes) -> None:
        self.records += [AuditRecord.decode(line) for line in lines.splitlines()]


async def echo(
    conn: GatewayConnection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    writer.write(f"{conn.spec.uid}\n".encode())
    while data := await reader.read(1000):
        writer.write(data)
        await writer.drain()


async def ignore(org: str, alert: Alert) -> None:
    pass


class Gate:
    """A gateway with two workers' doors and a listener for other machines."""

    def __init__(self, folder: Path) -> None:
        self.ca = trustme.CA()
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ca.issue_cert("localhost").configure_cert(self.tls)
        self.audit = Memory()
        self.tokens = {UID: new_token(), OTHER: new_token()}
        deadlines = DoorDeadlines(preface=0.5, dial=5, flush=5)
        self.gateway = Gateway(
            folder, {"http": StreamProxy(echo)}, self.audit, deadlines=deadlines, alert=ignore
        )
        self.listener = TlsListener(
            bind_listener("127.0.0.1", 0),
            self.tls,
            self.gateway.admit,
            deadlines=deadlines,
            most=4,
        )

    @property
    def trusted(self) -> str:
        return self.ca.cert_pem.bytes().decode()

    async def dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await streams(by_tls(f"localhost:{self.listener.port}", self.trusted))

    async def ask(self, line: bytes) -> bytes:
        """What comes back for a first line, until the end."""
        reader, writer = await self.dial()
        writer.write(line)
        try:
            return await reader.readline()
        except OSError:
            return b""
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


@pytest.fixture
async def gate(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Gate]:
    import tempfile

    with tempfile.TemporaryDirectory(prefix="gate-") as folder:
        gate = Gate(Path(folder))
        for uid, token in gate.tokens.items():
            await gate.gateway.open_door(DoorSpec(uid, "default", digest(token)))
        running = asyncio.create_task(gate.listener.run())
        yield gate
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await gate.listener.close()
        await gate.gateway.close()


@pytest.mark.requirement("opensandbox-lifecycle")
async def test_a_token_opens_its_own_workers_door_and_the_visit_is_audited(gate: Gate) -> None:
    for uid, token in gate.tokens.items():
        assert await gate.ask(Preface("http", token).encode()) == f"{uid}\n".encode()
    opened = [record.worker for record in gate.audit.records if record.verb == "open"]
    assert opened == [UID, OTHER]


@pytest.mark.requirement("opensandbox-lifecycle")
async def test_the_sidecars_door_passes_both_ways_and_ends(gate: Gate) -> None:
    gateway = by_tls(f"localhost:{gate.listener.port}", gate.trusted)
    way = with_preface(gateway, "http", gate.tokens[UID])
    async with asyncio.timeout(20), EgressRelay(way) as door:
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        assert await reader.readline() == f"{UID}\n".encode()
        writer.write(b"x" * 200_000)
        assert await reader.readexactly(200_000) == b"x" * 200_000
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()


@pytest.mark.requirement("opensandbox-lifecycle")
async def test_cleartext_and_another_authority_get_nowhere(gate: Gate) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", gate.listener.port)
    writer.write(Preface("http", gate.tokens[UID]).encode())
    with contextlib.suppress(OSError):
        assert UID.encode() not in await reader.read()
    writer.close()
    other = trustme.CA().cert_pem.bytes().decode()
    with pytest.raises(ssl.SSLError):
        await streams(by_tls(f"localhost:{gate.listener.port}", other))
    assert gate.audit.records == []


@pytest.mark.requirement("opensandbox-lifecycle")
@pytest.mark.parametrize(
    "line",
    [
        Preface("http", "f" * 64).encode(),
        b"GET / HTTP/1.1\r\n",
        b"x" * 5000,
        b"POSTROOM/1 http \n",
    ],
    ids=["token", "http", "long", "none"],
)
async def test_who_shows_no_workers_token_gets_no_answer_and_no_record(
    gate: Gate, line: bytes
) -> None:
    assert await gate.ask(line) == b""
    assert gate.audit.records == []
    assert gate.listener.refused == 1


@pytest.mark.requirement("opensandbox-lifecycle")
async def test_a_closed_door_opens_no_more(gate: Gate) -> None:
    await gate.gateway.close_door(UID)
    assert await gate.ask(Preface("http", gate.tokens[UID]).encode()) == b""
    assert await gate.ask(Preface("http", gate.tokens[OTHER]).encode()) == f"{OTHER}\n".encode()


@pytest.mark.requirement("opensandbox-lifecycle")
async def test_a_flood_of_silent_strangers_keeps_a_worker_out_for_their_deadline_at_most(
    gate: Gate,
) -> None:
    held = [await asyncio.open_connection("127.0.0.1", gate.listener.port) for _ in range(12)]
    async with asyncio.timeout(20):
        while True:
            try:
                answer = await gate.ask(Preface("http", gate.tokens[UID]).encode())
            except OSError:
                answer = b""  # the places are taken for now
            if answer:
                break
    assert answer == f"{UID}\n".encode()
    assert gate.listener.refused >= 8
    for _, writer in held:
        writer.close()
