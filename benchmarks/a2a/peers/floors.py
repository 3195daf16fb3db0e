"""The floors: nats-py alone, with frames of the size that a call and its answer have."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import NoReturn

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext

from benchmarks.a2a.peers.bare import frame
from benchmarks.a2a.peers.kinds import Caller, Options

STREAM = "FLOOR"
TIMEOUT = 30.0


class _Frames:
    """Frames of each content, built once."""

    def __init__(self) -> None:
        self._built: dict[str, bytes] = {}

    def of(self, content: str) -> bytes:
        if content not in self._built:
            self._built[content] = frame(content)
        return self._built[content]


class RequestCaller:
    """`request`; the answer is the frame that was sent."""

    def __init__(self, connection: Client, subject: str) -> None:
        self._connection = connection
        self._subject = subject
        self._frames = _Frames()

    async def unary(self, content: str) -> None:
        """One request and its reply."""
        sent = self._frames.of(content)
        answer = await self._connection.request(self._subject, sent, timeout=TIMEOUT)
        if len(answer.data) != len(sent):
            raise ValueError("another answer came back")

    async def stream(self, content: str) -> NoReturn:
        """It has none."""
        raise NotImplementedError


class PublishCaller:
    """Two acknowledged publishes, one after the other: what a durable call and its answer store."""

    def __init__(self, stream: JetStreamContext) -> None:
        self._stream = stream
        self._frames = _Frames()

    async def unary(self, content: str) -> None:
        """Publish twice."""
        sent = self._frames.of(content)
        await self._stream.publish(f"{STREAM}.request", sent, timeout=TIMEOUT)
        await self._stream.publish(f"{STREAM}.response", sent, timeout=TIMEOUT)

    async def stream(self, content: str) -> NoReturn:
        """It has none."""
        raise NotImplementedError


@asynccontextmanager
async def serve(options: Options) -> AsyncGenerator[str]:
    """Answer each request with itself; for JetStream, create the stream."""
    async with await nats.connect(options.bus) as connection:
        if options.kind == "raw-nats":
            await connection.subscribe(options.name, cb=_answer)
            await connection.flush()
        else:
            await connection.jetstream().add_stream(name=STREAM, subjects=[f"{STREAM}.*"])
        yield options.name


async def _answer(message: Msg) -> None:
    await message.respond(message.data)


@asynccontextmanager
async def connect(options: Options) -> AsyncGenerator[Caller]:
    """A client."""
    async with await nats.connect(options.bus) as connection:
        if options.kind == "raw-nats":
            yield RequestCaller(connection, options.address)
        else:
            yield PublishCaller(connection.jetstream())
