"""Live events for tasks of an event loop: the rules of `client.stream`, with nothing that blocks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable

import httpx2

from postroom.client.async_transport import AsyncTransport
from postroom.client.rules import Query
from postroom.client.stream import FOR_EVER, Event, Losses, SeenEvents, event_of
from postroom.errors import NotRunning, PeerError, PostroomError
from postroom.protocol.intervals import STREAM_SILENCE
from postroom_a2a.retry import RetryPolicy


async def follow(
    transport: AsyncTransport,
    path: str,
    *,
    after: int = 0,
    params: Query | None = None,
    is_last: Callable[[Event], bool] | None = None,
    retry: RetryPolicy = FOR_EVER,
) -> AsyncGenerator[Event]:
    """The events of `path` behind the record `after`, up to the last one; lost connections are made again.

    Each event comes once, whatever is lost in between. Close the generator when it is left early.

    Raises:
        PostroomError: the server refused, or could not be reached again.
    """
    losses, seen, last = Losses(retry), SeenEvents(), str(after)
    while True:
        try:
            query = {**(params or {}), "after": last}
            async with transport.stream(path, query, silence=STREAM_SILENCE) as response:
                losses.connected()
                async for raw in httpx2.EventSource(response):
                    if not seen.is_new(raw):
                        continue
                    event = event_of(raw)
                    if event.is_record:
                        last = event.id
                    yield event
                    if is_last is not None and is_last(event):
                        return
            pause = losses.after(PeerError("the post room ended the stream"))
        except PostroomError as error:
            if transport.hopeless(error):
                raise
            pause = losses.after(error)
        await asyncio.sleep(pause)
        with contextlib.suppress(NotRunning):  # not yet: the next attempt fails and counts
            transport.look_up()
