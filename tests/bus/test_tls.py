"""The embedded server with TLS: nothing before the handshake, no lost connection when a certificate is renewed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from postroom.bus.address import BusAddress
from postroom.bus.server_config import ServerConfig, ServerTls
from postroom.bus.supervisor import Supervisor
from postroom.errors import BusDisconnected, ServerFailed
from postroom.identity.account_publisher import system_connection
from postroom.identity.certfolder import CertificateFolder
from postroom.identity.certificates import DAY
from postroom.identity.trust import Trust
from postroom.tls import client_context
from postroom_a2a.nats import WireConnection, session
from tests.bus.embedding import PATIENCE, make_config

pytestmark = pytest.mark.anyio


@dataclass
class Bench:
    """A supervised server that speaks TLS."""

    supervisor: Supervisor
    trust: Trust
    folder: CertificateFolder

    async def client(self, address: BusAddress | None = None) -> WireConnection:
        return await system_connection(
            address or self.supervisor.address, self.trust.core_credential()
        )

    async def shown(self) -> str:
        """Fingerprint of the certificate that a new connection sees."""
        address = self.supervisor.address
        _, writer = await asyncio.open_connection(
            "127.0.0.1",
            self.supervisor.server.port,
            ssl=address.tls,
            server_hostname=address.tls_name,
        )
        found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        return sha256(found).hexdigest()


def tls_config(folder: Path, trust: Trust, *, age: float = 0.0, host: str = "127.0.0.1"):
    made = CertificateFolder(folder / "tls")
    made.init((), days=90, now=time.time() - age)
    tls = ServerTls(made.server, client_context(made.ca), "localhost")
    return replace(make_config(trust, folder), tls=tls, host=host)


@asynccontextmanager
async def bench(folder: Path, config: ServerConfig, trust: Trust) -> AsyncGenerator[Bench]:
    supervisor = Supervisor(config)
    await supervisor.start()
    running = asyncio.create_task(supervisor.run())
    try:
        yield Bench(supervisor, trust, CertificateFolder(folder / "tls"))
    finally:
        await supervisor.stop()
        await running


@pytest.fixture
async def secured(tmp_path: Path) -> AsyncIterator[Bench]:
    trust = Trust.load_or_create(tmp_path / "keys")
    async with bench(tmp_path, tls_config(tmp_path, trust), trust) as made:
        yield made


@pytest.mark.requirement("tls-beyond-loopback")
async def test_a_client_without_tls_is_not_even_greeted(secured: Bench):
    async with asyncio.timeout(PATIENCE):
        reader, writer = await asyncio.open_connection("127.0.0.1", secured.supervisor.server.port)
        writer.write(b"CONNECT {}\r\nPING\r\n")
        try:
            said = await reader.read()
        except ConnectionResetError:
            said = b""
        writer.close()

    assert b"INFO" not in said
    assert b"PONG" not in said


@pytest.mark.requirement("tls-beyond-loopback")
async def test_a_client_that_trusts_another_authority_does_not_connect(
    secured: Bench, tmp_path: Path
):
    other = CertificateFolder(tmp_path / "other")
    other.init((), days=90, now=time.time())
    address = replace(secured.supervisor.address, tls=client_context(other.ca))

    with pytest.raises(BusDisconnected, match="CERTIFICATE_VERIFY_FAILED"):
        await address.connect()


async def test_connections_come_back_after_the_server_was_killed(secured: Bench):
    client = await secured.client()
    pid = secured.supervisor.server.pid
    back = client.changed

    secured.supervisor.server.kill()
    await asyncio.wait_for(back, PATIENCE)
    await client.flush(5)

    # The server takes connections a moment before its supervisor has seen that it does.
    async with asyncio.timeout(PATIENCE):
        while secured.supervisor.server.pid == pid:  # noqa: ASYNC110 (it tells nobody)
            await asyncio.sleep(0.01)
    await client.close()


async def test_a_handshake_that_the_server_leaves_in_the_middle_is_tried_again(
    secured: Bench, monkeypatch: pytest.MonkeyPatch
):
    client = await secured.client()
    back = client.changed
    dial, left = session._dial_tcp, []

    async def leave_once(*args: Any) -> Any:
        if not left:
            left.append(True)
            raise AssertionError  # as asyncio's own parts do then
        return await dial(*args)

    monkeypatch.setattr(session, "_dial_tcp", leave_once)
    secured.supervisor.server.kill()
    await asyncio.wait_for(back, PATIENCE)

    assert left
    await client.flush(5)
    await client.close()


@pytest.mark.requirement("tls-local-authority")
async def test_a_renewed_certificate_is_shown_and_no_connection_is_lost_under_load(
    secured: Bench,
):
    client = await secured.client()
    heard = 0

    async def count(_: object) -> None:
        nonlocal heard
        heard += 1

    await client.subscribe("load", cb=count)
    renewed, sent = asyncio.Event(), 0

    async def load() -> None:
        nonlocal sent
        while not renewed.is_set():
            for _ in range(100):
                await client.publish("load", b"x" * 256)
            sent += 100
            await client.flush(5)

    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as tasks:
        tasks.create_task(load())
        for _ in range(3):
            fingerprint = secured.folder.renew(now=time.time()).fingerprint
            secured.supervisor.reload()
            # The server gives no other sign.
            while await secured.shown() != fingerprint:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        renewed.set()
    await client.flush(5)

    assert client.reconnects == 0
    assert heard == sent > 0
    await client.close()


async def test_a_server_on_every_address_is_reached_on_loopback(tmp_path: Path):
    trust = Trust.load_or_create(tmp_path / "keys")
    config = tls_config(tmp_path, trust, host="0.0.0.0")
    async with bench(tmp_path, config, trust) as made:
        assert made.supervisor.address.servers[0].startswith("tls://127.0.0.1:")
        client = await made.client()
        await client.flush(5)
        await client.close()


async def test_a_server_whose_certificate_nobody_would_take_does_not_start(tmp_path: Path):
    trust = Trust.load_or_create(tmp_path / "keys")

    with pytest.raises(ServerFailed, match="expired"):
        await Supervisor(tls_config(tmp_path, trust, age=91 * DAY)).start()
