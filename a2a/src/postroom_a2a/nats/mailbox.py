"""The answers to a connection's calls: one wildcard subscription, and a token for each call or stream that waits.

The mailbox drops and counts a frame whose token nobody waits for, so a late answer cannot reach another call.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from postroom_a2a.errors import (
    BusDisconnected,
    PostroomError,
    Refused,
    RequestTimeout,
    StreamBroken,
)
from postroom_a2a.nats.deadlines import AnswerDeadlines
from postroom_a2a.nats.natspy import adapted
from postroom_a2a.nats.port import (
    FAULTS,
    Connection,
    Frame,
    Subscription,
)

MAX_WAITING = 16_384
"""Calls and streams that may wait in one mailbox at a time."""

MAX_UNREAD = 1024
"""Frames of one stream that may lie unread; a peer that sends more ends the stream."""

RECOVERY = 10.0
"""Seconds after a reconnect in which a server may still be loading its streams."""

NewInbox = Callable[[str], str]
"""Gives the prefix of the subjects for a peer's answers; the argument is the subject that the peer serves."""


class Mailbox:
    """The answers to the calls of one connection.

    Args:
        prefix: the reply subjects without their last token; "" for a new inbox of the connection.
        within: another mailbox of the connection, whose subscription covers that prefix: with a second subscription
            the server would send each answer twice.
    """

    def __init__(
        self, connection: Connection, *, prefix: str = "", within: Mailbox | None = None
    ) -> None:
        self.connection = adapted(connection)
        self.prefix = prefix or self.connection.new_inbox()
        self._has_own_prefix = bool(prefix)
        self.late = 0
        # `get_running_loop` asks the system for the process at each call, until Python 3.12.
        self.loop = asyncio.get_running_loop()
        self.deadlines = AnswerDeadlines()
        self.hears_changes = self.connection.changed is not None
        self._changed_at = float("-inf")
        self._asked: dict[str, tuple[asyncio.Future[Frame], str, bool]] = {}
        self._waiting: dict[str, Callable[[Frame], None]] = {}
        self._publish = self.connection.publish
        self.post = self.connection.post
        self._post_later = self.connection.post_later
        self._within = within
        self._routes: dict[str, list[Callable[[Frame], None]]] = {}
        self._subscription: Subscription | None = None
        self._opening: asyncio.Lock = asyncio.Lock()

    async def open(self) -> None:
        """Subscribe, unless that is done already."""
        if self._subscription is None:
            async with self._opening:
                if self._subscription is None:
                    try:
                        self._subscription = await self._subscribe()
                    except FAULTS as error:
                        raise BusDisconnected(f"the NATS connection failed: {error}") from error
                    self.connection.watch_denials(self._denied)
                    self._await_change()

    async def _subscribe(self) -> Subscription:
        if self._within is None:
            return await self.connection.subscribe_now(f"{self.prefix}.*", self._arrived)
        await self._within.open()
        return self._within.route(self.prefix, self._arrived)

    def route(self, prefix: str, arrived: Callable[[Frame], None]) -> Route:
        """Call `arrived` with each frame under `prefix` that is not an answer to this mailbox itself.

        Args:
            prefix: the subjects without their last token; the mailbox's own prefix for all of them.
        """
        return Route(self._routes, prefix, arrived)

    async def close(self) -> None:
        """End the subscription; calls that still wait run into their deadlines."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None and not self.connection.is_closed:
            with suppress(*FAULTS):  # the connection is on its way out
                await subscription.unsubscribe()

    def new_inbox(self) -> str:
        """A subject for frames that are not answers, outside the mailbox's own subjects."""
        if self._has_own_prefix:
            return f"{self.prefix}.p.{secrets.token_hex(12)}"
        return self.connection.new_inbox()

    @property
    def recovering(self) -> bool:
        """Whether the server may still be loading its streams, since the connection came back lately or is down."""
        return not self.connection.is_connected or self.loop.time() - self._changed_at < RECOVERY

    def _await_change(self) -> None:
        change = self.connection.changed
        if change is not None:
            change.add_done_callback(self._changed)

    def _changed(self, _: asyncio.Future[None]) -> None:
        """Fail calls whose answers may be lost, since the connection came back or is closed for good."""
        if self._subscription is None:
            return
        self._changed_at = self.loop.time()
        over = self.connection.is_closed
        for answer, _subject, until_change in self._asked.values():
            if (over or until_change) and not answer.done():
                answer.set_exception(self._broken())
        if not over:
            self._await_change()

    def _broken(self) -> PostroomError:
        lost = self.connection.lost
        if lost is not None:
            return type(lost)(lost.message)
        return RequestTimeout("the connection broke before the answer came")

    async def connected(self, deadline: float) -> None:
        """Wait until the connection has a server; return at once if it does not report its changes.

        Args:
            deadline: a time of the loop's clock.

        Raises:
            BusDisconnected: it had no server until then.
        """
        connection = self.connection
        while not connection.is_connected and not connection.is_closed:
            change = connection.changed
            if change is None:
                return
            await asyncio.wait({change}, timeout=max(0.0, deadline - self.loop.time()))
            if not connection.is_connected and self.loop.time() >= deadline:
                raise BusDisconnected(
                    "there is no connection to a NATS server",
                    remedy="wait until nats-server is back, then do it again",
                )

    def token(self, arrived: Callable[[Frame], None], *, prefix: str = "") -> str:
        """A new reply subject; the mailbox calls `arrived` with each frame for it, until `forget`.

        Its last token is random, so a peer that has seen one call cannot answer another, or end another's stream.

        Args:
            prefix: the prefix of this subject, where the mailbox's own has a wildcard.

        Raises:
            Refused: `MAX_WAITING` calls and streams wait already.
        """
        if len(self._waiting) >= MAX_WAITING:
            raise Refused(_TOO_MANY)
        reply = f"{prefix or self.prefix}.{_random_token()}"
        self._waiting[reply] = arrived
        return reply

    def forget(self, reply: str) -> None:
        """Drop what comes for `reply` from now on."""
        self._waiting.pop(reply, None)

    def _arrived(self, frame: Frame) -> None:
        subject = frame.subject
        asked = self._asked.pop(subject, None)
        if asked is not None:
            answer = asked[0]
            if not answer.done():
                answer.set_result(frame)
            return
        arrived = self._waiting.get(subject)
        if arrived is not None:
            arrived(frame)
        elif self._routes:
            self._pass_on(frame)
        else:
            self.late += 1

    def _pass_on(self, frame: Frame) -> None:
        narrow = self._routes.get(frame.subject.rpartition(".")[0], ())
        takers = (*narrow, *self._routes.get(self.prefix, ()))
        if not takers:
            self.late += 1
        for take in takers:
            take(frame)

    def _denied(self, error: PostroomError, subject: str) -> bool:
        """Fail the calls to `subject`, to which this identity may not publish; False if there are none."""
        waiting = [answer for answer, asked, _ in self._asked.values() if asked == subject]
        for answer in waiting:
            if not answer.done():
                answer.set_exception(error)
        return bool(waiting)

    async def ask(
        self,
        subject: str,
        payload: bytes,
        *,
        timeout: float,
        headers: dict[str, str] | None = None,
        prefix: str = "",
        until_change: bool = False,
    ) -> Frame:
        """Publish, and wait for one answer; a status of the server ("503") is an answer as well.

        Args:
            prefix: the prefix of the reply subject, where the mailbox's own has a wildcard.
            until_change: whether a reconnect ends the wait.

        Raises:
            RequestTimeout: no answer came in time; the peer may have acted all the same.
            Forbidden: this identity may not publish there (over nats-py it is a time-out: its denials are not known).
            As `send`.
        """
        if self._subscription is None:
            await self.open()
        answer: asyncio.Future[Frame] = self.loop.create_future()
        if len(self._asked) >= MAX_WAITING:
            raise Refused(_TOO_MANY)
        reply = f"{prefix or self.prefix}.{_random_token()}"
        self._asked[reply] = answer, subject, until_change
        self.deadlines.watch(answer, timeout, _late)
        try:
            if not self.post(subject, payload, reply, headers):
                await self._publish(subject, payload, reply, headers)
            return await answer
        finally:
            self.deadlines.forget(answer)
            self._asked.pop(reply, None)

    async def send(
        self,
        subject: str,
        payload: bytes,
        *,
        reply: str = "",
        headers: dict[str, str] | None = None,
    ) -> None:
        """Publish.

        Raises:
            MessageTooLarge: the message is over the server's limit; nothing was sent.
            BusDisconnected: there is no connection, or too much waits for it to come back.
            InvalidInput: the subject or a header is malformed.
        """
        if not self.post(subject, payload, reply, headers):
            await self._publish(subject, payload, reply, headers)

    async def send_later(self, subject: str, payload: bytes) -> None:
        """As `send`, for what nobody waits for, such as an acknowledgement: it goes with the next message, or soon."""
        if not self._post_later(subject, payload):
            await self._publish(subject, payload)


_TOKEN_BYTES = 10
_random: list[str] = []
os.register_at_fork(after_in_child=_random.clear)  # parent and child must not share a token


def _random_token() -> str:
    """Twenty random digits; the system is asked for many at a time, since each question costs more than a token."""
    if not _random:
        digits = os.urandom(_TOKEN_BYTES * 64).hex()
        _random.extend(map("".join, zip(*[iter(digits)] * (2 * _TOKEN_BYTES), strict=True)))
    return _random.pop()


class Route:
    """A part of what comes for a mailbox, an implementation of the port `Subscription`."""

    def __init__(
        self,
        routes: dict[str, list[Callable[[Frame], None]]],
        prefix: str,
        arrived: Callable[[Frame], None],
    ) -> None:
        self._routes, self._prefix, self._arrived = routes, prefix, arrived
        routes.setdefault(prefix, []).append(arrived)

    async def unsubscribe(self) -> None:
        """End it at once."""
        takers = self._routes.get(self._prefix, [])
        if self._arrived in takers:
            takers.remove(self._arrived)
            if not takers:
                del self._routes[self._prefix]

    async def drain(self) -> None:
        """End it; nothing is under way, since the mailbox hands frames on as it reads them."""
        await self.unsubscribe()


def _late(_: float) -> RequestTimeout:
    return RequestTimeout("no answer came in time", remedy=_SILENT)


_SILENT = "the peer is busy, or this connection may not publish there or receive the answer"
_TOO_MANY = "too many calls wait for answers on this connection: wait until some have ended"


class FrameQueue:
    """The unread frames of one stream, in order, for one reader; `put` is the `arrived` of a mailbox token.

    Args:
        limit: frames that may lie unread.
        size_limit: bytes that may lie unread; 0 for any number.
    """

    def __init__(self, limit: int = MAX_UNREAD, size_limit: int = 0) -> None:
        self._limit = limit
        self._size_limit = size_limit
        self._unread = 0
        self._frames: deque[Frame] = deque()
        self._over = ""  # why no frame is taken any more
        self._waiter: asyncio.Future[None] | None = None

    def put(self, frame: Frame) -> None:
        """Take a frame; one beyond the limits breaks the stream."""
        size = len(frame.data)
        full = len(self._frames) >= self._limit or (0 < self._size_limit < self._unread + size)
        if full or self._over:
            self.end("more frames of a stream lay unread than its reader takes")
            return
        self._frames.append(frame)
        self._unread += size
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def end(self, why: str) -> None:
        """Take no more frames; the reader gets `StreamBroken` behind those that it has not read."""
        self._over = self._over or why
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def get(self, timeout: float) -> Frame:
        """The next frame.

        Raises:
            StreamBroken: more frames came than may lie unread, or somebody ended the stream.
            RequestTimeout: no frame came within `timeout` seconds.
        """
        if not self._frames and not self._over:
            loop = asyncio.get_running_loop()
            self._waiter = waiter = loop.create_future()
            timer = loop.call_later(timeout, _expire, waiter)
            try:
                await waiter
            finally:
                timer.cancel()
                self._waiter = None
        if not self._frames:
            raise StreamBroken(self._over)
        frame = self._frames.popleft()
        self._unread -= len(frame.data)
        return frame


def _expire(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_exception(RequestTimeout("nothing came in time", remedy=_SILENT))
