"""Peers that would make a server deaf: it hears the next caller, on every kind of connection that it may be given."""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import nats
import pytest
import trustme
from nats.aio.client import Client

import postroom_a2a as a2a
from library.nats import durableagent
from library.nats.agent import SUBJECT, TIMEOUT, PlainAgent
from library.nats.rawpeer import RawClient, Wire, wire
from library.nats.wireserver import ConfiguredServer, Proxy, UserKey
from library.servers import open_server
from postroom_a2a.binding.frames import Request
from postroom_a2a.durable.client import DurableCaller
from postroom_a2a.durable.server import DurableServer
from postroom_a2a.errors import InvalidInput, RequestTimeout, Unauthorized
from postroom_a2a.live.calling import CoreCaller, new_id
from postroom_a2a.live.serving import CoreServer
from postroom_a2a.nats import WireConnection
from postroom_a2a.nats.mailbox import Mailbox
from postroom_a2a.nats.natspy import AdaptedConnection

pytestmark = pytest.mark.anyio

Connect = Callable[[str], Awaitable[Any]]
"""Gives the connection that a server is handed."""


async def adapter_of_nats_py(url: str) -> Any:
    """A mailbox's connection, which somebody may hand on."""
    return Mailbox(await nats.connect(url)).connection


CONNECTIONS: dict[str, Connect] = {
    "own": a2a.connect,
    "nats-py": nats.connect,
    "nats-py-adapted": adapter_of_nats_py,
}


class Stage:
    """A server of one kind on a connection of one kind, and the subject at which peers find it."""

    def __init__(self, url: str, *, stored: bool) -> None:
        self.url = url
        self.stored = stored
        self.subject = durableagent.SUBJECT if stored else SUBJECT
        self.method = "message/stream" if stored else "stream"

    def params(self, count: int) -> Any:
        """Of a stream of so many events."""
        return durableagent.message(f"count {count}") if self.stored else {"count": count}

    async def honest_call(self) -> Any:
        """The answer to a caller that has done nothing."""
        async with await a2a.connect(self.url) as connection:
            if self.stored:
                caller = DurableCaller(connection, self.subject)
                try:
                    return await durableagent.ask(caller, "hello", TIMEOUT)
                finally:
                    await caller.close()
            caller = CoreCaller(connection, self.subject)
            try:
                return (
                    await caller.call(Request(new_id(), "echo", "hello"), timeout=TIMEOUT)
                ).result
            finally:
                await caller.close()


@asynccontextmanager
async def staged(folder: Path, kind: str, *, stored: bool) -> AsyncGenerator[Stage]:
    async with open_server(folder, jetstream=stored) as url, AsyncExitStack() as stack:
        given = await CONNECTIONS[kind](url)
        stack.push_async_callback(getattr(given, "connection", given).close)
        stage = Stage(url, stored=stored)
        await stack.enter_async_context(
            DurableServer(given, stage.subject, durableagent.Agent(), drain=1.0)
            if stored
            else CoreServer(given, stage.subject, PlainAgent(), drain=1.0)
        )
        assert await stage.honest_call()
        yield stage


HEADERS = {
    "version-alone": b"NATS/1.0",
    "half-a-line": b"NATS/1.0\r",
    "no-text": b"NATS/1.0\r\n\xff\xfe: \xff\r\n\r\n",
    "no-version": b"\r\n\r\n",
}


async def malformed_frames(stage: Stage) -> None:
    """Publish frames whose headers, or whose subject, cannot be read."""
    async with wire(stage.url) as peer:
        for headers in HEADERS.values():
            peer.publish(stage.subject, b"x", headers=headers)
            peer.publish(stage.subject, b"", "_INBOX.nobody", headers=headers)
        await peer.flush()


async def leave_early(stage: Stage) -> None:
    """Begin streams and leave each after its first event; a stored one before it."""
    async with wire(stage.url) as peer:
        client = RawClient(peer, stage.subject)
        for _ in range(30):
            if stage.stored:
                peer.publish(stage.subject, client.frame(stage.method, stage.params(300)))
                await peer.flush()
                continue
            with suppress(TimeoutError):
                async with aclosing(client.stream(stage.method, stage.params(300))) as events:
                    await anext(events)


async def flood(stage: Stage) -> None:
    """Send far more than the server takes, and hear none of the answers."""
    async with wire(stage.url) as peer:
        client = RawClient(peer, stage.subject)
        for _ in range(2000):
            peer.publish(stage.subject, client.frame(stage.method, stage.params(3)), "_INBOX.deaf")
        await peer.flush()


async def never_read(stage: Stage) -> None:
    """Ask for streams over a socket that nobody reads, and leave it open for the honest call."""
    place = urlsplit(stage.url)
    _reader, writer = await asyncio.open_connection(place.hostname, place.port, limit=1024)
    peer = Wire(_reader, writer)
    client = RawClient(peer, stage.subject)
    peer.write(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\n')
    peer.write(b"SUB _INBOX.full 1\r\nSUB a2a.client.full.responses 2\r\n")
    for _ in range(20):
        peer.publish(stage.subject, client.frame(stage.method, stage.params(20_000)), "_INBOX.full")
    await writer.drain()
    for _ in range(3):
        assert await stage.honest_call()
    writer.transport.abort()


PEERS = {each.__name__: each for each in (malformed_frames, leave_early, flood, never_read)}


@pytest.mark.requirement("core-never-deaf")
@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.parametrize("kind", CONNECTIONS)
@pytest.mark.parametrize("stored", [False, True], ids=["core", "durable"])
@pytest.mark.requirement("mend-server-hears")
@pytest.mark.requirement("mend-library-hears")
async def test_no_peer_makes_a_server_deaf(tmp_path: Path, peer: str, kind: str, stored: bool):
    async with staged(tmp_path, kind, stored=stored) as stage:
        await PEERS[peer](stage)
        assert await stage.honest_call()


# ── the connection that a server opens itself ───────────────────────────────────────────────────────


@pytest.mark.parametrize("stored", [False, True], ids=["core", "durable"])
async def test_what_a_server_opens_it_closes_and_the_given_connection_stays_open(
    tmp_path: Path, stored: bool
):
    async with open_server(tmp_path, jetstream=stored) as url:
        client = await nats.connect(url, name="program", inbox_prefix="_PROGRAM")
        server = (
            DurableServer(client, durableagent.SUBJECT, durableagent.Agent(), drain=1.0)
            if stored
            else CoreServer(client, SUBJECT, PlainAgent(), drain=1.0)
        )
        async with server:
            own = server._connection
            assert own.is_connected
            assert own.new_inbox().startswith("_PROGRAM.")
        assert own.is_closed
        assert client.is_connected
        with pytest.raises(InvalidInput, match="make another"):
            await server.__aenter__()
        await client.close()


async def test_a_server_that_cannot_begin_closes_what_it_has_opened(tmp_path: Path):
    config = "authorization { user: ann, password: pw }"
    async with ConfiguredServer(tmp_path, config) as server:
        client = await nats.connect(server.place, user="ann", password="pw")
        client.options["password"] = "no longer"
        serving = CoreServer(client, SUBJECT, PlainAgent())
        with pytest.raises(Unauthorized):
            await serving.__aenter__()
        assert not serving._connection.is_connected
        await client.close()


PAIR = UserKey()
LOGINS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "password": ("user: ann, password: pw", "nats://{}", {"user": "ann", "password": "pw"}),
    "password-functions": (
        "user: ann, password: pw",
        "nats://{}",
        {"user": lambda: "ann", "password": lambda: "pw"},
    ),
    "token": ("token: s3cret", "nats://{}", {"token": "s3cret"}),
    "token-function": ("token: s3cret", "nats://{}", {"token": lambda: "s3cret"}),
    "address": ("user: ann, password: pw", "nats://ann:pw@{}", {}),
    "address-token": ("token: s3cret", "nats://s3cret@{}", {}),
    "password-before-address": (
        "user: ann, password: pw",
        "nats://bob:other@{}",
        {"user": "ann", "password": "pw"},
    ),
    "nkey": (f"users: [ {{ nkey: {PAIR.public} }} ]", "nats://{}", {"nkeys_seed_str": "SU"}),
}


def _nkeys() -> Any:
    """The few names of the package `nkeys` that nats-py calls."""

    def from_seed(_seed: bytearray) -> Any:
        return SimpleNamespace(public_key=PAIR.public.encode(), sign=PAIR.sign, wipe=lambda: None)

    return SimpleNamespace(from_seed=from_seed)


@pytest.mark.requirement("core-never-deaf")
@pytest.mark.parametrize("login", LOGINS)
async def test_a_server_logs_in_as_the_connection_of_nats_py_does(
    tmp_path: Path, login: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "nkeys", _nkeys())
    config, address, options = LOGINS[login]
    async with ConfiguredServer(tmp_path, f"authorization {{ {config} }}") as server:
        client = await nats.connect(address.format(server.place), **options)
        caller = CoreCaller(client, SUBJECT)
        async with CoreServer(client, SUBJECT, PlainAgent()) as serving:
            assert isinstance(serving._connection, WireConnection)
            said = await caller.call(Request(new_id(), "echo", 1), timeout=TIMEOUT)
            assert said.result == 1
        await caller.close()
        await client.close()


@pytest.mark.requirement("core-never-deaf")
@pytest.mark.parametrize("first", [False, True])
async def test_a_server_speaks_tls_as_the_connection_of_nats_py_does(tmp_path: Path, first: bool):
    authority = trustme.CA()
    issued = authority.issue_cert("bus.test")
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    issued.private_key_pem.write_to_path(key)
    issued.cert_chain_pems[0].write_to_path(cert)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    config = (
        f'tls {{ cert_file: "{cert}", key_file: "{key}", handshake_first: {str(first).lower()} }}'
    )
    async with ConfiguredServer(tmp_path, config) as server:
        client = await nats.connect(
            f"tls://{server.place}",
            tls=trusting,
            tls_hostname="bus.test",
            tls_handshake_first=first,
        )
        async with CoreServer(client, SUBJECT, PlainAgent()):
            caller = CoreCaller(client, SUBJECT)
            said = await caller.call(Request(new_id(), "echo", 1), timeout=TIMEOUT)
            assert said.result == 1
            await caller.close()
        await client.close()


@pytest.mark.requirement("core-never-deaf")
@pytest.mark.parametrize("kind", ["websocket", "not-connected", "no-nats-py"])
async def test_a_server_refuses_a_connection_whose_like_it_cannot_open(kind: str):
    client: Any = Client() if kind != "no-nats-py" else SimpleNamespace()
    if kind == "websocket":
        client._setup_server_pool("ws://127.0.0.1:1")
        client.options = dict.fromkeys(("user", "password", "token", "name"), None)
        client.options |= {"tls_handshake_first": False, "connect_timeout": 2, "ping_interval": 9}
    for make in (
        lambda: CoreServer(client, SUBJECT, PlainAgent()),
        lambda: DurableServer(client, durableagent.SUBJECT, durableagent.Agent()),
    ):
        with pytest.raises(InvalidInput, match=r"postroom_a2a\.connect"):
            make()


# ── clients on nats-py ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("core-never-deaf")
@pytest.mark.parametrize("how", ["cancelled", "timed-out"])
@pytest.mark.requirement("mend-flush-given-up")
async def test_a_flush_that_ends_early_leaves_a_client_on_nats_py_hearing(tmp_path: Path, how: str):
    async with open_server(tmp_path, jetstream=False) as url, AsyncExitStack() as stack:
        gate = Proxy(urlsplit(url).netloc)
        client = await nats.connect(await stack.enter_async_context(gate))
        stack.push_async_callback(client.close)
        serving = await stack.enter_async_context(await a2a.connect(url))
        await stack.enter_async_context(CoreServer(serving, SUBJECT, PlainAgent()))
        adapted = AdaptedConnection(client)
        gate.shut()
        flush = asyncio.create_task(adapted.flush(1))
        if how == "cancelled":
            await asyncio.wait({flush}, timeout=0.05)
            flush.cancel()
        await asyncio.wait({flush})
        assert how == "cancelled" or isinstance(flush.exception(), RequestTimeout)
        gate.open()
        caller = CoreCaller(client, SUBJECT)
        said = await caller.call(Request(new_id(), "echo", 1), timeout=TIMEOUT)
        assert said.result == 1
        await caller.close()
