"""Answers of a connection: one wildcard subscription, and a token for each call or stream that waits.

A frame for a token that nobody waits for is dropped and counted, so that a late answer cannot reach another call.
"""

from __future__ import annotations

import asyncio
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
    change_of,
    receive,
    watch_denials,
)

MAX_WAITING = 16_384
"""Calls and streams of one mailbox that may wait at a time."""

MAX_UNREAD = 1024
"""Frames of one stream that may lie unread; a peer that sends more than it was allowed ends the stream."""

RECOVERY = 10.0
"""Seconds after a reconnect in which a server may still be loading its streams."""

NewInbox = Callable[[str], str]
"""Prefix of the subjects on which answers of a peer are received; the argument is the subject that the peer serves."""


class Mailbox:
    """The answers of one connection.

    Args:
        prefix: of the reply subjects, without the last token; "" for a new inbox of the connection.
        within: another mailbox of the connection, whose subscription covers that prefix: a second subscription would
            have the server send each answer twice.
    """

    def __init__(
        self, connection: Connection, *, prefix: str = "", within: Mailbox | None = None
    ) -> None:
        self.connection = adapted(connection)
        self.prefix = prefix or self.connection.new_inbox()
        self._has_own_prefix = bool(prefix)
        self.late = 0
        self._loop = asyncio.get_running_loop()
        self.deadlines = AnswerDeadlines()
        self.hears_changes = self.connection.changed is not None
        self._changed_at = float("-inf")
        self._asked: dict[str, tuple[asyncio.Future[Frame], str, bool]] = {}
        self._waiting: dict[str, Callable[[Frame], None]] = {}
        self._publish = self.connection.publish
        self._within = within
        self._routes: dict[str, list[Callable[[Frame], None]]] = {}
        self._subscription: Subscription | None = None
        self._opening: asyncio.Lock = asyncio.Lock()

    async def open(self) -> None:
        """Subscribe; done already, nothing happens."""
        if self._subscription is None:
            async with self._opening:
                if self._subscription is None:
                    try:
                        self._subscription = await self._subscribe()
                    except FAULTS as error:
                        raise BusDisconnected(
                            f"the NATS connection takes nothing: {error}"
                        ) from error
                    watch_denials(self.connection, self._denied)
                    self._await_change()

    async def _subscribe(self) -> Subscription:
        if self._within is None:
            return await receive(self.connection, f"{self.prefix}.*", self._arrived)
        await self._within.open()
        return self._within.route(self.prefix, self._arrived)

    def route(self, prefix: str, arrived: Callable[[Frame], None]) -> Route:
        """Have `arrived` called with what comes under `prefix` and is no answer to this mailbox itself.

        Args:
            prefix: all but the last token of the subjects; that of the mailbox itself for all of them.
        """
        return Route(self._routes, prefix, arrived)

    async def close(self) -> None:
        """End the subscription; what still waits runs into its deadline."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None and not self.connection.is_closed:
            with suppress(*FAULTS):  # the connection is on its way out
                await subscription.unsubscribe()

    def new_inbox(self) -> str:
        """A subject for frames that are not answers, beside those of the mailbox."""
        if self._has_own_prefix:
            return f"{self.prefix}.p.{secrets.token_hex(12)}"
        return self.connection.new_inbox()

    @property
    def recovering(self) -> bool:
        """Whether the connection came back so lately that the server may still be loading its streams."""
        return not self.connection.is_connected or self._loop.time() - self._changed_at < RECOVERY

    def _await_change(self) -> None:
        change = change_of(self.connection)
        if change is not None:
            change.add_done_callback(self._changed)

    def _changed(self, _: asyncio.Future[None]) -> None:
        """The connection came back, or is over: answers to what was asked before may be lost."""
        if self._subscription is None:
            return
        self._changed_at = self._loop.time()
        over = self.connection.is_closed
        for answer, _subject, until_change in self._asked.values():
            if (over or until_change) and not answer.done():
                answer.set_exception(self._broken())
        if not over:
            self._await_change()

    def _broken(self) -> PostroomError:
        lost: PostroomError | None = getattr(self.connection, "lost", None)
        if lost is not None:
            return type(lost)(lost.message)
        return RequestTimeout("the connection broke before the answer came")

    async def connected(self, deadline: float) -> None:
        """Wait until there is a connection; of one that does not tell, nothing is waited for.

        Args:
            deadline: of the loop's clock.

        Raises:
            BusDisconnected: there was none until then.
        """
        connection = self.connection
        while not connection.is_connected and not connection.is_closed:
            change = change_of(connection)
            if change is None:
                return
            await asyncio.wait({change}, timeout=max(0.0, deadline - self._loop.time()))
            if not connection.is_connected and self._loop.time() >= deadline:
                raise BusDisconnected(
                    "there is no connection to a NATS server",
                    remedy="wait until nats-server is back, then do it again",
                )

    def token(self, arrived: Callable[[Frame], None], *, prefix: str = "") -> str:
        """A new reply subject; `arrived` is called with each frame that comes for it, until `forget`.

        It is random as a whole, so that a peer that has seen one call cannot answer another, or end another's stream.

        Args:
            prefix: of this subject, where the mailbox's own has a wildcard.

        Raises:
            Refused: too much waits.
        """
        if len(self._waiting) >= MAX_WAITING:
            raise Refused("too many calls wait for answers on this connection")
        reply = f"{prefix or self.prefix}.{secrets.token_hex(10)}"
        self._waiting[reply] = arrived
        return reply

    def forget(self, reply: str) -> None:
        """What comes for `reply` from now on is dropped."""
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
        """The server lets nobody of this identity publish to `subject`; whether a call waits for it."""
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
            prefix: of the reply subject, where the mailbox's own has a wildcard.
            until_change: do not wait any longer when the connection came back in between.

        Raises:
            RequestTimeout: no answer in time; it may have been acted on.
            Forbidden: this identity may not publish there (a connection of nats-py does not tell: it is a time-out).
            As `send`.
        """
        if self._subscription is None:
            await self.open()
        answer: asyncio.Future[Frame] = self._loop.create_future()
        if len(self._asked) >= MAX_WAITING:
            raise Refused("too many calls wait for answers on this connection")
        reply = f"{prefix or self.prefix}.{secrets.token_hex(10)}"
        self._asked[reply] = answer, subject, until_change
        self.deadlines.watch(answer, timeout, _late)
        try:
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
            MessageTooLarge: over the server's limit; nothing was sent.
            BusDisconnected: there is no connection, or too much waits for it to come back.
            InvalidInput: the subject or a header is malformed.
        """
        await self._publish(subject, payload, reply, headers)


class Route:
    """A part of what comes for a mailbox; it keeps the port `Subscription`."""

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
        """End it; nothing is under way, since frames are handed on as they are read."""
        await self.unsubscribe()


def _late(_: float) -> RequestTimeout:
    return RequestTimeout("no answer came in time", remedy=_SILENT)


_SILENT = "the peer is busy, or this connection has no right to publish there or to hear the answer"


class FrameQueue:
    """Frames of one stream, in order, read by one reader; bounded.

    Use `put` as the `arrived` of a mailbox token.

    Args:
        limit: frames that may lie unread.
        room: bytes that may lie unread; 0 for any number.
    """

    def __init__(self, limit: int = MAX_UNREAD, room: int = 0) -> None:
        self._limit = limit
        self._room = room
        self._unread = 0
        self._frames: deque[Frame] = deque()
        self._overrun = False
        self._waiter: asyncio.Future[None] | None = None

    def put(self, frame: Frame) -> None:
        """Take a frame; the one too many marks the stream as broken."""
        size = len(frame.data)
        full = len(self._frames) >= self._limit or (0 < self._room < self._unread + size)
        if full or self._overrun:
            self._overrun = True
        else:
            self._frames.append(frame)
            self._unread += size
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def get(self, timeout: float) -> Frame:
        """The next frame.

        Raises:
            StreamBroken: more came than may lie unread.
            RequestTimeout: none within `timeout` seconds.
        """
        if not self._frames:
            if self._overrun:
                raise StreamBroken("more of a stream lay unread than its reader takes")
            loop = asyncio.get_running_loop()
            self._waiter = waiter = loop.create_future()
            alarm = loop.call_later(timeout, _expire, waiter)
            try:
                await waiter
            finally:
                alarm.cancel()
                self._waiter = None
        frame = self._frames.popleft()
        self._unread -= len(frame.data)
        return frame


def _expire(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_exception(RequestTimeout("nothing came in time", remedy=_SILENT))
