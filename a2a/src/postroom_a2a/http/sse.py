"""Streams of results as server-sent events (WHATWG HTML, section 9.2).

`id:` is the sequence of a change, so that a client that comes back with `Last-Event-ID` misses nothing. The end of the
client's connection ends the stream at once; its task goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from postroom_a2a.http.exchange import ClientGone, Exchange
from postroom_a2a.operations import Numbered

QUIET = b": quiet\n\n"

HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)
"""The last one is for proxies that would hold back an answer until it is long enough."""

Write = Callable[[bytes], bytes]


def event(data: bytes, result: bytes = b"") -> bytes:
    """One event; its id is that of `result`. `data` is JSON text on one line."""
    if isinstance(result, Numbered):
        return b"id: %d\ndata: %b\n\n" % (result.sequence, data)
    return b"data: %b\n\n" % data


async def send(
    exchange: Exchange,
    results: AsyncGenerator[bytes, None],
    write: Write,
    failed: Callable[[Exception], bytes],
    beat: float,
) -> None:
    """Answer with a stream, once it has begun: a refusal before its first result is raised.

    Args:
        write: makes the data of an event of a result.
        failed: makes the data of the last event of a stream that broke off; raises what is not for the client.
    """
    gone = asyncio.ensure_future(exchange.gone())
    step: asyncio.Future[bytes | None] | None = None
    try:
        async with aclosing(results):
            try:
                step = asyncio.ensure_future(anext(results, None))
                while await _came(step, gone, exchange, beat):
                    result = step.result()
                    if not exchange.started:
                        await exchange.begin(200, *HEADERS)
                    if result is None:
                        break
                    await exchange.piece(event(write(result), result))
                    step = asyncio.ensure_future(anext(results, None))
            except Exception as error:
                if not exchange.started or isinstance(error, ClientGone):
                    raise
                await exchange.piece(event(failed(error)))
            finally:
                if step is not None and not step.done():
                    step.cancel()
                    await asyncio.wait((step,))
        await exchange.piece(b"", more=False)
    finally:
        gone.cancel()


async def _came(
    step: asyncio.Future[bytes | None], gone: asyncio.Future[None], exchange: Exchange, beat: float
) -> bool:
    """Wait for the next result; silence of `beat` seconds is told to the client. Raises ClientGone."""
    while not step.done():
        await asyncio.wait((step, gone), timeout=beat, return_when=asyncio.FIRST_COMPLETED)
        if gone.done():
            raise ClientGone
        if not step.done():
            if not exchange.started:
                await exchange.begin(200, *HEADERS)
            await exchange.piece(QUIET)
    return True
