"""Calls of an A2A agent over core NATS: request and reply, and streams (docs/binding.md, Streams).

Nothing here knows a type of A2A: the params and results in the frames are for the layer above.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from time import monotonic
from typing import Protocol

from postroom_a2a.binding import flow as flows
from postroom_a2a.binding.frames import (
    COMPLETE,
    DEADLINE,
    STREAM,
    Flow,
    Request,
    Response,
    decode_response,
    encode_request,
    milliseconds,
)
from postroom_a2a.binding.subjects import may_publish_to
from postroom_a2a.errors import (
    PostroomError,
    ProtocolViolation,
    RequestTimeout,
    StreamBroken,
)
from postroom_a2a.nats.mailbox import FrameQueue, Mailbox
from postroom_a2a.nats.port import NO_RESPONDERS, Connection, Frame, status_of
from postroom_a2a.retry import RetryPolicy
from postroom_a2a.rpc import Code

FLOW = Flow(window=32, beat=10.0)
"""A caller's flow control by default."""

LINGER = 60.0
"""Seconds to wait for the first frame of a stream whose reader is gone: it names the subject for `end`."""

_END_TASKS: set[asyncio.Task[None]] = set()
_STEM = secrets.token_hex(8)
_COUNT = itertools.count(1)


def new_id() -> str:
    """An id for a call, unique over all processes."""
    return f"{_STEM}{next(_COUNT):x}"


class Caller(Protocol):
    """The client's end of one agent's subject."""

    async def call(self, request: Request, *, timeout: float) -> Response:
        """Call, and wait for the answer; an answered error comes as `Response.error`.

        Args:
            request: with an id of its own (`new_id`).

        Raises:
            NoResponders: nobody serves the subject; no agent began the call.
            RequestTimeout: no answer in time; the agent may have acted on the call.
            MessageTooLarge: the request exceeds the NATS server's limit and was not sent.
            BusDisconnected: the connection takes nothing.
            ProtocolViolation: the answer is malformed or another call's.
        """
        ...

    def stream(self, request: Request, *, timeout: float) -> AsyncGenerator[Response, None]:
        """Call, and yield the events of the answer; an error comes as the last `Response.error`.

        Closing the generator early ends the stream at the server; the task goes on.

        Args:
            request: with an id of its own (`new_id`).
            timeout: seconds until the first sign of the server.

        Raises:
            StreamBroken: frames were lost, the server fell silent, or it reports a failure of the stream.
            As `call`.
        """
        ...

    async def close(self) -> None:
        """Release the caller's subscriptions; the connection stays open."""
        ...


class CoreCaller(Caller):
    """A caller over core NATS.

    Args:
        connection: an open one, ours or of nats-py.
        mailbox: for the answers, shared with other callers of the connection; None for a new one.
        within: a mailbox whose subscription covers that one's (`Mailbox`).
        sender: token of the caller, appended to the subject (extension `urn:postroom:a2a:sender-token:1`); the answers
            then come on `_I.<sender>.<the subject's second token>`.
        idle: seconds of silence that end a stream; 0 for three heartbeats, or 300 s of a server without heartbeats.
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
        frame = await self._mailbox.ask(
            self.subject, encode_request(request), timeout=timeout, headers=_headers(request, None)
        )
        if status := status_of(frame):
            if status == NO_RESPONDERS:
                raise flows.no_responders(self.subject)
            raise ProtocolViolation(f"the server answered with status {status}")
        response = decode_response(frame.data)
        if response.kind == COMPLETE or not flows.answers(response, request.id):
            raise ProtocolViolation(
                f"the answer on {self.subject} does not belong to the call {request.id!r}"
            )
        return response

    async def stream(self, request: Request, *, timeout: float) -> AsyncGenerator[Response, None]:
        mailbox = self._mailbox
        reader = flows.FrameReader(request.id, self.subject, self._flow, self._idle)
        payload = encode_request(request)
        await mailbox.open()
        inbox = _StreamInbox(mailbox, self._flow)
        try:
            headers = _headers(request, self._flow)
            await mailbox.send(self.subject, payload, reply=inbox.reply, headers=headers)
            frame = await inbox.frames.get(timeout)
            while True:
                response = reader.read(frame)
                if response is not None:
                    yield response
                if reader.over:
                    return
                if sequence := reader.due():
                    await mailbox.send(reader.back, flows.ack(sequence))
                try:
                    frame = await inbox.frames.get(reader.idle)
                except RequestTimeout as error:
                    raise StreamBroken(f"nothing came for {reader.idle:g} s") from error
        finally:
            await inbox.close(over=reader.over)

    async def close(self) -> None:
        if self._owned:
            await self._mailbox.close()


class _StreamInbox:
    """Receives the frames of one stream; once the reader is gone, it answers a frame with `end`."""

    def __init__(self, mailbox: Mailbox, flow: Flow) -> None:
        # An error and the end come also when the window is full.
        frames = flow.window + 2 if flow.window else 0
        self.frames = FrameQueue(size_limit=frames * mailbox.connection.max_payload)
        self.reply = mailbox.token(self._arrived)
        self._mailbox = mailbox
        self._back = ""
        self._gone = False

    def _arrived(self, frame: Frame) -> None:
        if not self._back and may_publish_to(frame.reply):
            self._back = frame.reply
        if not self._gone:
            self.frames.put(frame)
        elif self._back:
            self._mailbox.forget(self.reply)
            ending = asyncio.create_task(self._end())
            _END_TASKS.add(ending)
            ending.add_done_callback(_END_TASKS.discard)

    async def close(self, *, over: bool) -> None:
        """Take no more frames; unless the stream is over, send `end` once the server has named a subject for it."""
        self._gone = True
        if over or self._back:
            self._mailbox.forget(self.reply)
        else:
            asyncio.get_running_loop().call_later(LINGER, self._mailbox.forget, self.reply)
        if self._back and not over:
            await self._end()

    async def _end(self) -> None:
        with suppress(PostroomError):  # without it the server notices later
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


# ── while the server is busy ──────────────────────────────────────────────────────────────────────


RETRY = RetryPolicy(attempts=8, base=0.1, cap=2.0)


class RetryingCaller(Caller):
    """A `Caller` over another one, which it closes. A busy server has begun nothing, so every call may be repeated."""

    def __init__(self, caller: Caller, policy: RetryPolicy = RETRY) -> None:
        self._caller = caller
        self._policy = policy

    async def call(self, request: Request, *, timeout: float) -> Response:
        """As `Caller.call`; SERVER_BUSY comes back when no time or attempt is left."""
        until, failures = monotonic() + timeout, 0
        while True:
            response = await self._caller.call(request, timeout=timeout)
            failures += 1
            if not (_busy(response) and await self._pause(failures, until)):
                return response
            request.id, timeout = new_id(), until - monotonic()

    async def stream(self, request: Request, *, timeout: float) -> AsyncGenerator[Response, None]:
        """As `Caller.stream`; SERVER_BUSY comes back when no time or attempt is left."""
        until, failures = monotonic() + timeout, 0
        while True:
            async with aclosing(self._caller.stream(request, timeout=timeout)) as responses:
                first = await anext(responses, None)
                failures += 1
                if first is None:
                    return
                if not (_busy(first) and await self._pause(failures, until)):
                    yield first
                    async for response in responses:
                        yield response
                    return
            request.id, timeout = new_id(), until - monotonic()

    async def close(self) -> None:
        await self._caller.close()

    async def _pause(self, failures: int, until: float) -> bool:
        """Wait before the next attempt; False if no time or attempt is left."""
        pause = self._policy.delay(failures)
        left = until - monotonic()
        if failures >= self._policy.attempts or pause >= left:
            return False
        await asyncio.sleep(pause)
        return True


def _busy(response: Response) -> bool:
    return response.error is not None and response.error.code == Code.SERVER_BUSY
