"""Reading a stream from a position to its end, with a consumer that the server forgets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from postroom.bus.nats.api import Api
from postroom.bus.nats.config import nanoseconds
from postroom.bus.nats.frames import parse_ack_subject, status_of, stored_message
from postroom.bus.nats.link import Link
from postroom.bus.nats.replies import new_token
from postroom.bus.port import Message
from postroom.errors import BusDisconnected, PostroomError, RequestTimeout
from postroom_a2a.nats.port import Frame

BATCH = 256
FRAME_TIMEOUT = 5.0
"""Seconds to wait for the next frame of a batch."""

ATTEMPTS = 5
"""Times in a row that a replay is taken up again without a record in between."""

IDLE = 30.0
"""Seconds after which the server forgets the consumer of a reader that went away."""


async def replay(
    link: Link, api: Api, own: str, stream: str, after: int, subjects: tuple[str, ...]
) -> AsyncIterator[Message]:
    """Records after sequence `after`, in order, up to the last one that was there at the beginning.

    Raises:
        NotFound: there is no such stream.
        RequestTimeout: the server stopped answering.
    """
    end = int((await api.do(f"STREAM.INFO.{stream}"))["state"]["last_seq"])
    failures = 0
    while after < end:
        try:
            async for message in _pass(link, api, own, stream, after, subjects, end):
                after, failures = message.sequence, 0
                yield message
        except (RequestTimeout, BusDisconnected):
            failures += 1
            if failures == ATTEMPTS or link.lost is not None:
                raise
        else:
            return


async def _pass(
    link: Link, api: Api, own: str, stream: str, after: int, subjects: tuple[str, ...], end: int
) -> AsyncIterator[Message]:
    """One consumer's worth: until `end`, or until the connection breaks."""
    frames: asyncio.Queue[Frame] = asyncio.Queue(BATCH + 8)

    async def arrived(frame: Frame) -> None:
        await frames.put(frame)

    inbox = f"_I.{own}.js.p.{new_token()}"
    subscription = await link.listen(inbox, arrived)
    consumer = ""
    try:
        consumer = await _consumer(api, stream, after, subjects)
        while True:
            await link.send(
                f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}",
                json.dumps({"batch": BATCH, "no_wait": True}).encode(),
                reply=inbox,
            )
            for _ in range(BATCH):
                frame = await _next(frames)
                ack = parse_ack_subject(frame.reply)
                if ack is None:
                    code, description = status_of(frame)
                    if code == "404":
                        return
                    raise RequestTimeout(f"the replay was cut: {code} {description}")
                if ack.sequence > end:
                    return
                yield stored_message(frame, ack)
                if ack.sequence == end:
                    return
    finally:
        await subscription.unsubscribe()
        if consumer:
            with suppress(PostroomError):  # the server forgets it by itself
                await api.do(f"CONSUMER.DELETE.{stream}.{consumer}")


async def _next(frames: asyncio.Queue[Frame]) -> Frame:
    try:
        # Not `wait_for`: on Python 3.11 it can swallow a cancellation that comes with the result.
        async with asyncio.timeout(FRAME_TIMEOUT):
            return await frames.get()
    except TimeoutError as error:
        raise RequestTimeout("the replay stands still") from error


async def _consumer(api: Api, stream: str, after: int, subjects: tuple[str, ...]) -> str:
    config: dict[str, Any] = {
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": after + 1,
        "ack_policy": "none",
        "filter_subjects": list(subjects),
        "inactive_threshold": nanoseconds(IDLE),
        "mem_storage": True,
    }
    request = {"stream_name": stream, "config": config}
    return str((await api.do(f"CONSUMER.CREATE.{stream}", request))["name"])
