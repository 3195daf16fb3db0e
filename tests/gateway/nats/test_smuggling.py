"""Whatever passes a door, the real server reads as the gateway did: nothing can be said between the lines.

A tap in the workers' account hears every publish. What it hears must be what the gateway has recorded as allowed.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from postroom.identity.jwt import Credential
from tests.gateway.nats.rig import House, Raw, Worker, open_house
from tests.gateway.rig import soon

pytestmark = pytest.mark.anyio

# {s} is a subject that the worker may use, {v} one that it may not; each is followed by a harmless frame.
TRICKS = [
    b"PUB {s} 2\r\nok\r\n",
    b"PUB {s}  2\r\nok\r\n",
    b"HPUB {s} 12 14\r\nNATS/1.0\r\n\r\nok\r\n",
    b"pub {s} 2\r\nok\r\n",
    b"Pub {s} 2\r\nok\r\n",
    b"PUB\t{s}\t2\r\nok\r\n",
    b"PUB {s}\t2\r\nok\r\n",
    b"PUB  {s} 2\r\nok\r\n",
    b"PUB   {s}   2\r\nok\r\n",
    b"PUB {s} 2 \r\nok\r\n",
    b"PUB {s} 2\nok\r\n",
    b"PUB {s} 2\r\r\nok\r\n",
    b"PUB {s} 02\r\nok\r\n",
    b"PUB {s} +2\r\nok\r\n",
    b"PUB {s} 2\r\nok\n",
    b"PUB {s} 2\r\nokPUB {v} 2\r\nok\r\n",
    b"PUB {s} 2\r\nok \r\n",
    b"PUB {s} 1\r\nok\r\n",
    b"PUB {s} 0\r\nPUB {v} 2\r\nok\r\n",
    b"PUB {s} 22\r\nPUB {v} 2\r\nok\r\n",
    b"PUB {s}\rPUB {v} 2\r\nok\r\n",
    b"PUB {s} 2\rPUB {v} 2\r\nok\r\n",
    b"PUB {s}\n{v} 2\r\nok\r\n",
    b"PUB {s} {v}\t2\r\nok\r\n",
    b"PUB {s} \t{v} 2\r\nok\r\n",
    b"PUB \t{v} 2\r\nok\r\n",
    b"PUB  {v} 2\r\nok\r\n",
    b"PUB {s}\x00 2\r\nok\r\n",
    b"PUB {s}\x0b{v} 2\r\nok\r\n",
    b"PUB {s}\x85{v} 2\r\nok\r\n",
    b"PUB {s}\xc2\xa0{v} 2\r\nok\r\n",
    b"HPUB {s} 0 2\r\nok\r\n",
    b"HPUB {s} 14 12\r\nNATS/1.0\r\n\r\nok\r\n",
    b"HPUB {s} 012 14\r\nNATS/1.0\r\n\r\nok\r\n",
    b"HPUB {s} 12\t14\r\nNATS/1.0\r\n\r\nok\r\n",
    b"hpub {s} 12 14\r\nNATS/1.0\r\n\r\nok\r\n",
    b"PING x\r\nPUB {v} 2\r\nok\r\n",
    b"PING\nPUB {v} 2\r\nok\r\n",
    b"PINGPUB {v} 2\r\nok\r\n",
    b"PONG\rPUB {v} 2\r\nok\r\n",
    b"SUB {s}\r\nPUB {v} 2\r\nok\r\n",
    b"UNSUB 1\tPUB\r\nPUB {v} 2\r\nok\r\n",
    b"UNSUB 1 1 1\r\nPUB {v} 2\r\nok\r\n",
    b"+OK\r\nPUB {v} 2\r\nok\r\n",
    b"-ERR 'x'\r\nPUB {v} 2\r\nok\r\n",
    b"MSG {v} 1 2\r\nok\r\n",
    b"RMSG $G {v} 2\r\nok\r\n",
    b"INFO {}\r\nPUB {v} 2\r\nok\r\n",
    b"\r\nPUB {v} 2\r\nok\r\n",
    b"\nPUB {v} 2\r\nok\r\n",
    b" PUB {v} 2\r\nok\r\n",
    b"PUB {v} 2\r\nok\r\n",
    b"PUB {v} 30\r\nPUB {s} 2\r\nok\r\n" + b"x" * 100 + b"\r\n",
]


async def _tapped(house: House) -> Raw:
    trust = house.bus.trust
    credential: Credential = trust._unscoped(trust._org.edge)
    tap = await (await house.direct(credential)).connect()
    await tap.send(b"SUB worker.> 1\r\n")
    await tap.pinged()
    return tap


async def _heard(tap: Raw, last: bytes) -> list[tuple[str, int]]:
    """Subject and size of what was published until something came on `last`."""
    heard: list[tuple[str, int]] = []
    while True:
        line = await tap.line()
        if line == b"PING":
            await tap.send(b"PONG\r\n")
            continue
        fields = line.split(b" ")
        await soon(tap.reader.readexactly(int(fields[-1]) + 2))
        if fields[1] == last:
            return heard
        heard.append((fields[1].decode("latin-1"), int(fields[-1])))


def _say(trick: bytes, own: str, peer: str) -> bytes:
    mine, foreign = f"worker.{peer}.rpc.{own}", f"worker.{own}.rpc.{peer}"
    return trick.replace(b"{s}", mine.encode()).replace(b"{v}", foreign.encode())


@pytest.mark.requirement("gateway-nats-no-smuggling")
async def test_the_server_hears_what_the_gateway_has_allowed_and_nothing_else(tmp_path: Path):
    async with open_house(tmp_path, violations=10_000) as house:
        worker, peer, marker = [await house.worker() for _ in range(3)]
        tap, mark = await _tapped(house), await house.enter(marker)
        end = f"worker.{peer.uid}.rpc.{marker.uid}".encode()
        passed = 0
        for trick in TRICKS:
            said = _say(trick, worker.uid, peer.uid)
            for pieces in ([said], [said[:9], said[9:]], [bytes([byte]) for byte in said]):
                house.audit.written = b""
                await _one(house, worker, pieces)
                allowed = [
                    (record.subject, record.size)
                    for record in house.audit.records
                    if record.verb in {"PUB", "HPUB"}
                    and record.verdict == "allowed"
                    and record.worker == worker.uid
                ]
                heard: list[tuple[str, int]] = []
                for _ in range(20):  # the server may read the worker's connection after the mark's
                    await mark.send(b"PUB %b 0\r\n\r\n" % end)
                    heard += await _heard(tap, end)
                    if len(heard) >= len(allowed):
                        break
                assert heard == allowed, trick
                assert all(subject.endswith(worker.uid) for subject, _ in heard), trick
                passed += len(heard)
        assert passed >= 9


async def _one(house: House, worker: Worker, pieces: list[bytes]) -> None:
    """Say it on a connection of its own, to the end."""
    raw = await house.enter(worker)
    try:
        for piece in pieces:
            raw.writer.write(piece)
            await asyncio.sleep(0)
        raw.writer.write(b"PING\r\n")
        raw.writer.write_eof()
        await raw.rest()
    except ConnectionError:
        pass
    finally:
        raw.close()
    # The door has closed the connection, so the server has what was to pass.
    await house.until(lambda: not house.gateway._doors[worker.uid].tasks)


@pytest.mark.requirement("gateway-nats-no-smuggling")
async def test_the_tricks_are_tricks_the_server_itself_takes_some_of_them(tmp_path: Path):
    async with open_house(tmp_path) as house:
        uid, peer = (worker.uid for worker in [await house.worker() for _ in range(2)])
        tap = await _tapped(house)
        taken = 0
        for trick in TRICKS[3:14]:
            credential = house.bus.trust.mint_agent(uid, (), lifetime=60, now=time.time())
            raw = await (await house.direct(credential)).connect()
            await raw.send(_say(trick, uid, peer))
            try:
                await raw.pinged()
            except (asyncio.IncompleteReadError, ConnectionError):
                continue
            finally:
                raw.close()
            taken += 1
        await tap.pinged()
        assert taken >= 5
