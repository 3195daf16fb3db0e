"""Calls of an A2A agent over core NATS: request and reply, and streams (docs/binding.md, Streams).

Nothing here knows a type of A2A: requests and responses are frames, whose params and results somebody else reads.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Protocol

from postroom_a2a.binding import flow as flows
from postroom_a2a.binding.frames import COMPLETE, Request, Response, decode_response, encode_request
from postroom_a2a.binding.headers import DEADLINE, STREAM, Flow, milliseconds
from postroom_a2a.binding.subjects import may_be_told
from postroom_a2a.errors import (
    PostroomError,
    ProtocolViolation,
    RequestTimeout,
    StreamBroken,
)
from postroom_a2a.nats.mailbox import FrameQueue, Mailbox
from postroom_a2a.nats.port import NO_RESPONDERS, Connection, Frame, status_of

FLOW = Flow(window=32, beat=10.0)
"""What a caller takes of a stream unless it is told otherwise."""

LINGER = 60.0
"""Seconds for which the first frame of a stream is waited for whose reader is gone."""

_ENDINGS: set[asyncio.Task[None]] = set()
_STEM = secrets.token_hex(8)
_COUNT = itertools.count(1)


def new_id() -> str:
    """An id for a call that no other call of any process has."""
    return f"{_STEM}{next(_COUNT):x}"


class Caller(Protocol):
    """The client's end of one agent's subject."""

    async def call(self, request: Request, *, timeout: float) -> Response:
        """Call, and wait for the answer; an answered error comes as `Response.error`.

        Args:
            request: with an id of its own (`new_id`).

        Raises:
            NoResponders: nobody serves the subject; nothing was begun.
            RequestTimeout: no answer in time; it may have been acted on.
            MessageTooLarge: over the server's limit; nothing was sent.
            BusDisconnected: the connection takes nothing.
            ProtocolViolation: the answer is not one.
        """
        ...

    def stream(self, request: Request, *, timeout: float) -> AsyncGenerator[Response, None]:
        """Call, and yield the events of the answer as they come; an error comes as the last `Response.error`.

        Closing the generator early tells the server that nobody reads any more; the task goes on.

        Args:
            request: with an id of its own (`new_id`).
            timeout: seconds until the first sign of the server.

        Raises:
            StreamBroken: frames were lost, the server fell silent, or it says that the stream failed.
            As `call`.
        """
        ...

    async def close(self) -> None:
        """Give back what the caller holds; the connection stays open."""
        ...


class CoreCaller:
    """A caller over core NATS.

    Args:
        connection: an open one, ours or of nats-py.
        mailbox: for the answers, shared with other callers of the connection; None for one of its own.
        within: a mailbox whose subscription covers that one's (`Mailbox`).
        sender: token of the caller that is appended to the subject (extension `urn:postroom:a2a:sender-token:1`); the
            subject's second token is then who answers, on `_I.<sender>.<answerer>`.
        flow: what the caller takes of a stream.
        idle: seconds of silence that end a stream; 0 for three beats of a server that beats, and 300 s of another.
    """

    def __init__(
        self,
        connection: Connection,
        subject: str,
        *,
        mailbox: Mailbox | None = None,
        within: Mailbox | None = None,
        sender: str = "",
        flow: Flow = FLOW,
        idle: float = 0.0,
    ) -> None:
        self.subject = f"{subject}.{sender}" if sender else subject
        prefix = reply_prefix(subject, sender)
        self._mailbox = mailbox or Mailbox(connection, prefix=prefix, within=within)
        self._owned = mailbox is None
        self._flow = flow
        self._idle = idle

    async def call(self, request: Request, *, timeout: float) -> Response:
        """As `Caller.call`."""
        frame = await self._mailbox.ask(
            self.subject, encode_request(request), timeout=timeout, headers=_headers(request, None)
        )
        if status := status_of(frame):
            if status == NO_RESPONDERS:
                raise flows.nobody(self.subject)
            raise ProtocolViolation(f"the server answered with status {status}")
        response = decode_response(frame.data)
        if response.kind == COMPLETE or not flows.answers(response, request.id):
            raise ProtocolViolation(f"what came on {self.subject} does not answer {request.id!r}")
        return response

    async def stream(self, request: Request, *, timeout: float) -> AsyncGenerator[Response, None]:
        """As `Caller.stream`."""
        mailbox = self._mailbox
        reading = flows.Reading(request.id, self.subject, self._flow, self._idle)
        payload = encode_request(request)
        await mailbox.open()
        inlet = _Inlet(mailbox, self._flow)
        try:
            headers = _headers(request, self._flow)
            await mailbox.send(self.subject, payload, reply=inlet.reply, headers=headers)
            frame = await inlet.frames.get(timeout)
            while True:
                response = reading.read(frame)
                if response is not None:
                    yield response
                if reading.over:
                    return
                if sequence := reading.due():
                    await mailbox.send(reading.back, flows.ack(sequence))
                try:
                    frame = await inlet.frames.get(reading.idle)
                except RequestTimeout as error:
                    raise StreamBroken(f"nothing came for {reading.idle:g} s") from error
        finally:
            await inlet.close(over=reading.over)

    async def close(self) -> None:
        """As `Caller.close`."""
        if self._owned:
            await self._mailbox.close()


class _Inlet:
    """Where the frames of one stream arrive; a server that does not know yet that its reader is gone is told."""

    def __init__(self, mailbox: Mailbox, flow: Flow) -> None:
        # An error and the end come also where there is no room.
        frames = flow.window + 2 if flow.window else 0
        self.frames = FrameQueue(size_limit=frames * mailbox.connection.max_payload)
        self.reply = mailbox.token(self._arrived)
        self._mailbox = mailbox
        self._back = ""
        self._gone = False

    def _arrived(self, frame: Frame) -> None:
        if not self._back and may_be_told(frame.reply):
            self._back = frame.reply
        if not self._gone:
            self.frames.put(frame)
        elif self._back:
            self._mailbox.forget(self.reply)
            ending = asyncio.create_task(self._end())
            _ENDINGS.add(ending)
            ending.add_done_callback(_ENDINGS.discard)

    async def close(self, *, over: bool) -> None:
        """Take no more frames; unless the stream is over, tell the server as soon as it has said where."""
        self._gone = True
        if over or self._back:
            self._mailbox.forget(self.reply)
        else:
            asyncio.get_running_loop().call_later(LINGER, self._mailbox.forget, self.reply)
        if self._back and not over:
            await self._end()

    async def _end(self) -> None:
        with suppress(PostroomError):  # the server finds out by itself, later
            await self._mailbox.send(self._back, flows.END)


def reply_prefix(subject: str, sender: str) -> str:
    """Prefix of the replies to `sender`, "" for any inbox of the connection."""
    return f"_I.{sender}.{subject.split('.')[1]}" if sender else ""


def _headers(request: Request, flow: Flow | None) -> dict[str, str] | None:
    headers: dict[str, str] = {}
    if flow is not None:
        headers[STREAM] = flow.header()
    if not request.binary and (deadline := milliseconds(request.deadline)):
        headers[DEADLINE] = str(deadline)
    return headers or None
