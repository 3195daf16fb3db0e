from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from postroom.protocol.preface import Preface
from postroom.sidecar.walls import CONNECTIONS, EgressRelay, by_socket, with_preface

pytestmark = pytest.mark.anyio

PREFACE = Preface("nats", "t0ken")


def door_to(path: str) -> EgressRelay:
    return EgressRelay(with_preface(by_socket(path), PREFACE.protocol, PREFACE.token))


class Gateway:
    """The other side: checks the preface, then sends everything back, and waits for the end first."""

    def __init__(self) -> None:
        self.prefaces: list[bytes] = []
        self.hold = asyncio.Event()
        self.hold.set()
        self.taken = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.prefaces.append(await reader.readline())
        await self.hold.wait()
        while data := await reader.read(65536):
            self.taken += len(data)
            writer.write(data)
            await writer.drain()
        writer.write(b"end")
        writer.close()


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[tuple[Gateway, str]]:
    found = Gateway()
    path = str(tmp_path / "gw")
    async with await asyncio.start_unix_server(found.serve, path):
        yield found, path


async def test_bytes_pass_both_ways_after_the_preface_and_ends_are_passed_on(
    gateway: tuple[Gateway, str],
):
    far, path = gateway
    async with asyncio.timeout(20), door_to(path) as door:
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        blob = bytes(range(256)) * 8192

        async def send() -> None:
            writer.write(blob)
            writer.write_eof()
            await writer.drain()

        received, _ = await asyncio.gather(reader.read(-1), send())
        writer.close()

    assert received == blob + b"end"
    assert far.prefaces == [PREFACE.encode()]


async def test_a_far_end_that_does_not_read_holds_the_writer_back(gateway: tuple[Gateway, str]):
    far, path = gateway
    far.hold.clear()
    async with asyncio.timeout(20), door_to(path) as door:
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        writer.transport.set_write_buffer_limits(high=0)
        sent = 0
        try:
            while True:
                writer.write(b"x" * 65536)
                sent += 65536
                async with asyncio.timeout(1):
                    await writer.drain()
        except TimeoutError:
            pass
        far.hold.set()
        writer.write_eof()
        received = await reader.read(-1)
        writer.close()

    assert len(received) == sent + len(b"end")
    assert sent < 64 * 1024 * 1024


async def test_without_a_gateway_a_connection_is_closed_and_the_door_stays_open(tmp_path: Path):
    async with asyncio.timeout(20), door_to(str(tmp_path / "missing")) as door:
        for _ in range(CONNECTIONS + 3):
            reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
            assert await reader.read(-1) == b""
            writer.close()


async def test_more_connections_than_the_bound_are_closed(gateway: tuple[Gateway, str]):
    _, path = gateway
    async with asyncio.timeout(20), door_to(path) as door:
        writers = []
        for _ in range(CONNECTIONS):
            reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
            writer.write(b"x")
            assert await reader.read(1) == b"x"
            writers.append(writer)
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        assert await reader.read(-1) == b""
        for each in (*writers, writer):
            each.close()
