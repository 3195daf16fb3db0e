"""Somebody sits between a client that wants TLS and the server, and says that there is none."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress

import pytest

from postroom.bus.address import BusAddress
from postroom.bus.nats import NatsBus
from postroom.errors import InvalidInput
from postroom.gateway.nats.upstream import dial
from postroom.identity.account_publisher import system_connection
from postroom.identity.jwt import Credential
from postroom.identity.nkeys import KeyPair, Kind
from tests.bus.embedding import PATIENCE
from tests.rig import new_uid

pytestmark = pytest.mark.anyio

INFO = b'INFO {"server_id":"x","version":"2.11.0","nonce":"abc","max_payload":1048576}\r\n'


class Stripper:
    """Greets without TLS, and keeps what it is told."""

    def __init__(self) -> None:
        self.heard: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(INFO)
        with suppress(ConnectionResetError):
            said = await reader.read(4096)
            if said and not self.heard.done():  # a look whether anybody is there says nothing
                self.heard.set_result(said)
        writer.close()


@pytest.mark.requirement("tls-beyond-loopback")
@pytest.mark.parametrize("who", ["bus", "system", "gateway"])
async def test_who_is_told_that_there_is_no_tls_says_nothing_in_clear(who: str):
    stripper = Stripper()
    server = await asyncio.start_server(stripper.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    address = BusAddress((f"tls://127.0.0.1:{port}",), ssl.create_default_context())
    user = KeyPair.generate(Kind.USER)
    credential = Credential("jwt", user.seed)

    async def connect() -> object:
        if who == "bus":
            return await NatsBus.connect(
                address, uid=new_uid(), jwt=lambda: credential.jwt, sign=credential.sign
            )
        if who == "system":
            return await system_connection(address, credential)
        return await dial(lambda: address, PATIENCE)

    async with server:
        connecting = asyncio.create_task(connect())
        heard = await asyncio.wait_for(stripper.heard, PATIENCE)
        connecting.cancel()
        await asyncio.wait({connecting})

    assert b"CONNECT" not in heard
    assert heard.startswith(b"\x16\x03")  # the beginning of a TLS handshake


def test_an_address_that_promises_tls_needs_somebody_to_trust():
    with pytest.raises(InvalidInput, match="tls://"):
        BusAddress(("nats://127.0.0.1:4222", "tls://127.0.0.1:4223"))
