"""One worker's requests, however they are cut, leave the others their turn."""

from __future__ import annotations

import asyncio
import socket

import h11
import pytest

from postroom.gateway.limits import RateLimit
from postroom.gateway.port import Rates
from postroom.http.connection import MAX_HEADERS, TURN, HttpConnection
from tests.gateway.http.rig import DEADLINE, Site

pytestmark = pytest.mark.anyio


class Turns:
    """Counts the turns of the loop that somebody else has."""

    def __init__(self) -> None:
        self.count = 0
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.count += 1

    def end(self) -> int:
        self._task.cancel()
        return self.count


@pytest.mark.requirement("attack-flood-slowed")
async def test_ten_thousand_chunks_of_one_byte_leave_the_others_their_turn(site: Site):
    async with site.way.open() as enter:
        near = await enter()
        turns = Turns()
        head = f"POST {site.base}/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        await near.send(head.encode() + b"1\r\na\r\n" * 10_000 + b"0\r\n\r\n")
        reply = await near.reply()

    assert reply.status == 200
    assert turns.end() >= 10_000 // TURN
    assert site.outside.calls[0].body == b"a" * 10_000


@pytest.mark.requirement("attack-flood-slowed")
async def test_requests_that_come_at_once_leave_the_others_their_turn(site: Site):
    async with site.way.open() as enter:
        near = await enter()
        turns = Turns()
        near.writer.write(b"GET /https/other.test/ HTTP/1.1\r\nHost: a\r\n\r\n" * 1000)
        refused = 0
        while refused < 1000:
            async with asyncio.timeout(10):
                data = await near.reader.readuntil(b"\r\n\r\n")
            refused += data.count(b"HTTP/1.1 403")

    assert turns.end() >= 1000 // TURN
    assert len(site.way.sink.records) == 1000


async def test_a_head_of_too_many_headers_is_refused(site: Site):
    async with site.way.open() as enter:
        near = await enter()
        head = f"GET {site.base}/x HTTP/1.1\r\nHost: a\r\n".encode()
        await near.send(head + b"a:\r\n" * MAX_HEADERS + b"\r\n")
        reply = await near.reply()

    assert reply.status == 400
    assert site.outside.calls == []


async def test_what_is_over_the_rate_of_a_worker_waits():
    rate_limit = RateLimit(Rates(messages=100, bytes=0))
    rate_limit.take(1000, 0)
    near, far = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=near)
    wire = HttpConnection(h11.SERVER, reader, writer, rate_limit.piece)
    far.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")

    await wire.next_event(DEADLINE)

    assert rate_limit.debt() == pytest.approx(0.0, abs=0.001)  # it has waited until that was paid
    wire.abort()
    far.close()


async def test_large_pieces_of_a_body_do_not_count():
    rate_limit = RateLimit(Rates(messages=100, bytes=0))
    near, far = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=near)
    wire = HttpConnection(h11.SERVER, reader, writer, rate_limit.piece)
    far.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 400000\r\n\r\n")
    await wire.next_event(DEADLINE)
    rate_limit.take(990, 0)
    for _ in range(100):
        far.send(b"x" * 4000)
        await wire.next_event(DEADLINE)

    assert rate_limit.debt() == 0.0
    wire.abort()
    far.close()
