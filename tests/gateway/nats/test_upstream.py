"""Reaching the bus: several servers, TLS before or after the greeting; and a sandbox that does not read."""

from __future__ import annotations

import asyncio
import itertools
import ssl
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trustme

from library.servers import open_server
from postroom.bus.address import BusAddress
from postroom.errors import BusDisconnected
from postroom.gateway.nats.proxy import NatsProxy
from postroom.gateway.nats.side import WRITE_BUFFER
from postroom.gateway.nats.upstream import dial
from postroom.gateway.port import DoorSpec
from postroom.gateway.server import Gateway
from postroom.identity.nkeys import KeyPair, Kind
from postroom.identity.tokens import digest
from postroom.identity.trust import Trust
from postroom.protocol.alerts import Alert
from postroom.protocol.preface import Preface
from tests.gateway.nats.rig import Kept, Raw
from tests.gateway.rig import SCOUT, End, Upstream, soon

pytestmark = pytest.mark.anyio

INFO = b'INFO {"nonce":"abc","max_payload":1048576}\r\n'


def _place(upstream: Upstream) -> str:
    return f"nats://127.0.0.1:{upstream.port}"


async def test_the_bus_is_reached_over_tls(tmp_path: Path):
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    issued.cert_chain_pems[0].write_to_path(certificate)
    issued.private_key_pem.write_to_path(key)
    config = tmp_path / "server.conf"
    config.write_text(
        f"tls {{ cert_file: '{certificate}', key_file: '{key}', handshake_first: true }}"
    )
    context = ssl.create_default_context()
    authority.configure_trust(context)

    async with open_server(tmp_path / "nats", jetstream=False, config=config) as url:
        port = url.rsplit(":", 1)[1]
        address = BusAddress((f"tls://127.0.0.1:{port}",), context)
        upstream = await soon(dial(lambda: address, 5.0))
        try:
            assert upstream.transport.get_extra_info("cipher")
            assert upstream.info["max_payload"]
        finally:
            upstream.transport.abort()


async def test_of_several_servers_one_that_answers_is_found():
    good, gone = Upstream(), Upstream()
    await good.start()
    await gone.start()
    await gone.refuse()
    address = BusAddress((_place(gone), _place(good)))
    for _ in range(6):  # they are tried in any order
        dialling = asyncio.ensure_future(dial(lambda: address, 5.0))
        await (await good.accept()).send(INFO)
        (await soon(dialling)).transport.abort()
    await good.stop()


@pytest.mark.requirement("nats-node-death-keeps-accepted")
async def test_who_leaves_one_of_several_servers_is_given_another_one(folder: Path, tmp_path: Path):
    servers = [Upstream(), Upstream()]
    gateway, enter = await _door(folder, tmp_path, servers)
    accepting = [asyncio.ensure_future(server.accept()) for server in servers]
    seen = []
    for _ in range(5):
        raw = await enter()
        await asyncio.wait(accepting, return_when=asyncio.FIRST_COMPLETED)
        given = next(number for number, each in enumerate(accepting) if each.done())
        far = accepting[given].result()
        await far.send(INFO)
        await raw.greeted()
        assert raw.info["cluster"] == "postroom"
        await far.close()
        await soon(raw.rest())
        raw.close()
        accepting[given] = asyncio.ensure_future(servers[given].accept())
        seen.append(given)

    assert all(one != next_one for one, next_one in itertools.pairwise(seen)), seen
    for each in accepting:
        each.cancel()
    await gateway.close()
    for server in servers:
        await server.stop()


@pytest.mark.parametrize(
    "greeting", [b"HTTP/1.1 400 Bad Request\r\n", b"INFO []\r\n", b"x" * 70_000]
)
async def test_what_is_no_server_of_the_bus_is_given_up(greeting: bytes):
    strange = Upstream()
    await strange.start()
    dialling = asyncio.ensure_future(dial(lambda: BusAddress((_place(strange),)), 5.0))
    end = await strange.accept()
    end.writer.write(greeting)

    with pytest.raises(BusDisconnected):
        await soon(dialling)
    await strange.stop()


async def test_a_server_that_does_not_greet_in_time_is_given_up():
    silent = Upstream()
    await silent.start()

    with pytest.raises(BusDisconnected):
        await dial(lambda: BusAddress((_place(silent),)), 0.05)
    await silent.stop()


@pytest.mark.requirement("attack-flood-slowed")
async def test_a_sandbox_that_does_not_read_stops_the_server_and_loses_nothing(
    folder: Path, tmp_path: Path
):
    server, raw, gateway = await _played(folder, tmp_path)
    far = await server.accept()
    await far.send(INFO)
    await raw.greeted()
    await raw.send(raw.connect_line())
    assert b"proxy_sig" in await soon(far.reader.readline())
    frame = b"MSG a 1 65536\r\n" + b"x" * 65536 + b"\r\n"
    far.writer.transport.set_write_buffer_limits(high=0)
    sent = 0
    while sent < 1000:
        far.writer.write(frame)
        sent += 1
        try:
            async with asyncio.timeout(1):  # no progress at all: everything between is full
                await far.writer.drain()
        except TimeoutError:
            break
    assert sent * len(frame) < 64 * WRITE_BUFFER

    far.writer.write_eof()

    assert await soon(raw.rest()) == frame * sent
    raw.close()
    await gateway.close()
    await server.stop()


async def test_our_own_answers_come_between_the_servers_frames(folder: Path, tmp_path: Path):
    server, raw, gateway = await _played(folder, tmp_path)
    far = await server.accept()
    await far.send(INFO)
    await raw.greeted()
    await raw.send(raw.connect_line() + b"PUB no 0\r\n\r\n")
    assert (await raw.line()).startswith(b"-ERR ")
    body = b"x" * 9000

    await far.send(b"MSG a 1 18000\r\n" + body)
    assert await raw.line() == b"MSG a 1 18000"
    await soon(raw.reader.readexactly(len(body)))
    await raw.send(b"PUB no 0\r\n\r\nPING\r\n")
    await soon(far.reader.readuntil(b"PING\r\n"))
    await far.send(body + b"\r\nPONG\r\n")

    assert await soon(raw.reader.readexactly(len(body) + 2)) == body + b"\r\n"
    assert {(await raw.line())[:4], (await raw.line())[:4]} == {b"PONG", b"-ERR"}
    raw.close()
    await gateway.close()
    await server.stop()


async def _played(folder: Path, tmp_path: Path) -> tuple[Upstream, Raw, Gateway]:
    """A server that the test plays, a client before a door to it, and the gateway."""
    server = Upstream()
    gateway, enter = await _door(folder, tmp_path, [server])
    return server, await enter(), gateway


async def _door(
    folder: Path, tmp_path: Path, servers: list[Upstream]
) -> tuple[Gateway, Callable[[], Awaitable[Raw]]]:
    """The gateway before these servers, and a function that makes a client before a door to it."""
    for server in servers:
        await server.start()
    trust = Trust.load_or_create(tmp_path / "keys")
    address = BusAddress(tuple(map(_place, servers)))

    async def note(org: str, alert: Alert) -> None:
        del org, alert

    proxy = NatsProxy(lambda: address, KeyPair.generate(Kind.USER).sign)
    gateway = Gateway(folder, {"nats": proxy}, Kept(), alert=note)
    path = await gateway.open_door(DoorSpec(SCOUT, "default", digest("t0ken")))
    credential = trust.mint_agent(SCOUT, (), lifetime=60, now=time.time(), proxied=True)

    async def enter() -> Raw:
        end = End(*await asyncio.open_unix_connection(path, limit=1 << 22))
        await end.send(Preface("nats", "t0ken").encode())
        return Raw(end.reader, end.writer, credential)

    return gateway, enter
