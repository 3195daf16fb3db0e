"""Readers of streams that go away or stand still, as peers of other makers do: the server answers everybody else."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from contextlib import aclosing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from library.nats.agent import SUBJECT, TIMEOUT, Scene, scene
from library.nats.rawpeer import RawClient, compact, wire
from postroom_a2a.binding.flow import BURST
from postroom_a2a.binding.frames import Flow

pytestmark = pytest.mark.anyio

LARGE = {"count": 300, "bytes": 20_000}


IMPATIENT = "max_payload: 65536\nmax_pending: 262144\nwrite_deadline: 100ms\n"
"""Settings of a NATS server that soon cuts off who does not read."""


async def answered(s: Scene) -> None:
    """Others are answered, and nothing of who left runs on."""
    async with asyncio.timeout(TIMEOUT):
        assert (await s.call("echo", [1])).result == [1]
        while s.server.statistics().running:
            await s.call("get")


@pytest.mark.requirement("core-busy-told")
async def test_a_peer_without_a_window_that_leaves_its_streams_early_makes_no_server_deaf(
    tmp_path: Path,
):
    async with scene(tmp_path) as s, wire(s.url) as peer:
        client = RawClient(peer, SUBJECT)
        for frames in (1, 2, 4, 8, 16, 32, BURST) * 3:
            async with aclosing(client.stream("stream", LARGE)) as events:
                for _ in range(frames):
                    await anext(events)
            await answered(s)


@pytest.mark.requirement("core-busy-told")
async def test_a_peer_that_stands_still_and_is_cut_off_makes_no_server_deaf(tmp_path: Path):
    config = tmp_path / "nats.conf"
    config.write_text(IMPATIENT)
    async with scene(tmp_path, config=config) as s:
        place = urlsplit(s.url)
        for _ in range(3):
            with socket.socket() as peer:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                peer.connect((place.hostname, place.port))
                peer.sendall(still())
                await asyncio.wait_for(s.agent.closed.wait(), TIMEOUT)
                s.agent.closed.clear()
                await answered(s)


def still() -> bytes:
    """What a peer sends that calls a stream and reads nothing."""
    call = {"jsonrpc": "2.0", "method": "stream", "params": LARGE, "id": 1}
    payload = compact({"protocol": "a2a-nats/1", "request": call})
    options = compact({"verbose": False, "headers": True, "no_responders": True})
    size = len(payload)
    return b"CONNECT %s\r\nSUB _INBOX.still 1\r\nPUB %s _INBOX.still %d\r\n%s\r\n" % (
        options,
        SUBJECT.encode(),
        size,
        payload,
    )


@pytest.mark.requirement("core-busy-told")
async def test_a_deadline_ends_a_stream_also_where_the_nats_server_takes_nothing(tmp_path: Path):
    async with scene(tmp_path, flow=Flow(window=0, beat=0)) as s:
        await s.call("get")
        (ports,) = tmp_path.glob("*.ports")
        server = int(ports.stem.rpartition("_")[2])
        request = s.ask("stream", {"count": 500, "bytes": 900_000}, deadline=time.time() + 0.5)
        events = s.caller.stream(request, timeout=TIMEOUT)
        await anext(events)
        os.kill(server, signal.SIGSTOP)
        try:
            await asyncio.wait_for(s.agent.closed.wait(), TIMEOUT)
        finally:
            os.kill(server, signal.SIGCONT)
        last = [event async for event in events][-1]
        assert last.error is not None
        assert "deadline exceeded" in last.error.message
