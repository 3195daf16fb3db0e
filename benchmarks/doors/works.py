"""What a connection is loaded with; each work gives the seconds that it took."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Sequence

from benchmarks.doors.wire import Place, Wire

TIMEOUT = 60.0
FLUSH = 64
"""Messages of a one-way stream that are written before the loop turns."""

PULL = 256


async def requests(
    wire: Wire, own: str, peer: str, *, total: int, flight: int, size: int
) -> tuple[float, list[float]]:
    """Requests to a responder, `flight` at a time; also the seconds that each took."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    payload = b"x" * size
    head = b"PUB worker.%b.rpc.%b " % (peer.encode(), own.encode())
    inbox = b"_I.%b.%b.t" % (own.encode(), peer.encode())
    begun: dict[bytes, float] = {}
    took: list[float] = []
    numbers = itertools.count()
    clock = time.perf_counter

    def send() -> None:
        token = b"%b%d" % (inbox, next(numbers))
        begun[token] = clock()
        wire.write(b"%b%b %d\r\n%b\r\n" % (head, token, size, payload))

    def on(subject: bytes, *_: bytes) -> None:
        took.append(clock() - begun.pop(subject))
        if len(took) == total:
            done.set_result(None)
        elif len(took) + len(begun) < total:
            send()

    wire.on = on
    begin = clock()
    for _ in range(min(flight, total)):
        send()
    await _within(done)
    return clock() - begin, took


async def one_way(wire: Wire, own: str, nobody: str, *, total: int, size: int) -> float:
    """Messages that nobody has subscribed to, until the server has read the last."""
    frame = b"PUB worker.%b.rpc.%b %d\r\n%b\r\n" % (
        nobody.encode(),
        own.encode(),
        size,
        b"x" * size,
    )
    begin = time.perf_counter()
    for _ in range(total // FLUSH):
        wire.write(frame * FLUSH)
        await wire.room()
    await wire.ping()
    return time.perf_counter() - begin


async def stored(wire: Wire, own: str, to: str, *, total: int, window: int, size: int) -> float:
    """Messages to an inbox, each acknowledged by JetStream, `window` unacknowledged at a time."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    payload = b"x" * size
    run = time.monotonic_ns()
    sent = acknowledged = 0

    def send() -> None:
        nonlocal sent
        header = b"NATS/1.0\r\nNats-Msg-Id: %x-%d\r\n\r\n" % (run, sent)
        line = b"HPUB worker.%b.inbox.%b _I.%b.js.t%d %d %d\r\n" % (
            to.encode(),
            own.encode(),
            own.encode(),
            sent,
            len(header),
            len(header) + size,
        )
        wire.write(b"%b%b%b\r\n" % (line, header, payload))
        sent += 1

    def on(_subject: bytes, _reply: bytes, body: bytes) -> None:
        nonlocal acknowledged
        if b'"error"' in body:
            done.set_exception(RuntimeError(body.decode()))
            return
        acknowledged += 1
        if sent < total:
            send()
        elif acknowledged == total and not done.done():
            done.set_result(None)

    wire.on = on
    begin = time.perf_counter()
    for _ in range(window):
        send()
    await _within(done)
    return time.perf_counter() - begin


async def pulled(wire: Wire, own: str, *, total: int) -> float:
    """As many messages of the own inbox, pulled and acknowledged."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    taken = 0

    def pull() -> None:
        body = b'{"batch":%d,"expires":30000000000}' % min(PULL, total - taken)
        wire.write(
            b"PUB $JS.API.CONSUMER.MSG.NEXT.INBOX.%b _I.%b.js.p %d\r\n%b\r\n"
            % (own.encode(), own.encode(), len(body), body)
        )

    def on(_subject: bytes, reply: bytes, *_: bytes) -> None:
        nonlocal taken
        if not reply.startswith(b"$JS.ACK."):
            return
        wire.write(b"PUB %b 4\r\n+ACK\r\n" % reply)
        taken += 1
        if taken == total:
            done.set_result(None)
        elif taken % PULL == 0:
            pull()

    wire.on = on
    begin = time.perf_counter()
    pull()
    await _within(done)
    await wire.ping()
    return time.perf_counter() - begin


async def crowd(places: Sequence[Place]) -> tuple[float, float, list[Wire]]:
    """All connect at the same time, then each sends; seconds until the last is in, and until all have sent."""
    begin = time.perf_counter()
    async with asyncio.timeout(TIMEOUT):
        wires = await asyncio.gather(*(_enter(place) for place in places))
        entered = time.perf_counter()
        sendings = zip(wires, places, strict=True)
        await asyncio.gather(
            *(
                stored(wire, place.uid, place.uid, total=1, window=1, size=256)
                for wire, place in sendings
            )
        )
    return entered - begin, time.perf_counter() - entered, wires


async def _enter(place: Place) -> Wire:
    wire = await Wire.connect(place)
    wire.write(b"SUB _I.%b.> 1\r\n" % place.uid.encode())
    return wire


async def _within(done: asyncio.Future[None]) -> None:
    async with asyncio.timeout(TIMEOUT):
        await done
