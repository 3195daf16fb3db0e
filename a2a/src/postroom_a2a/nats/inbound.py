"""The receiving half of a connection: subscriptions, the frames that arrive for them, and denials of the server."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable

from postroom_a2a.errors import (
    BusDisconnected,
    Forbidden,
    InvalidInput,
    PostroomError,
    Refused,
)
from postroom_a2a.nats.frame import WireFrame, is_subject
from postroom_a2a.nats.options import Options
from postroom_a2a.nats.outbound import Outbound
from postroom_a2a.nats.port import Frame
from postroom_a2a.nats.server_errors import Denied
from postroom_a2a.nats.session import ServerSession
from postroom_a2a.nats.subscriptions import Reader, Watchers, WireSubscription

_log = logging.getLogger(__name__)


class Inbound(Outbound):
    """Receives for subscriptions, which outlive a session: SUB and UNSUB lines go out in order with what is published.

    Attributes:
        dropped: messages that were dropped because too many lay unread.
    """

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.received = 0
        self.dropped = 0
        self._routes: dict[bytes, WireSubscription] = {}
        self._sids = 0
        self._stem = f"{options.inbox_prefix}.{secrets.token_hex(11)}"
        self._inboxes = 0
        self._denials = Watchers()
        self._delivering: dict[str, list[asyncio.Future[None]]] = {}
        self._both: tuple[ServerSession, ...] = ()
        self._overlapping: asyncio.Future[None] | None = None

    def new_inbox(self) -> str:
        """A subject that nobody else has."""
        self._inboxes += 1
        return f"{self._stem}{self._inboxes:x}"

    # ── subscriptions ────────────────────────────────────────────────────────────────────────────────

    async def subscribe(
        self,
        subject: str,
        queue: str = "",
        cb: Callable[[Frame], Awaitable[None]] | None = None,
    ) -> WireSubscription:
        """Receive what is published from now on; one task calls `cb` for one frame after the other.

        Raises:
            InvalidInput: the subject or the queue group is malformed, or there is no `cb`.
        """
        if cb is None:
            raise InvalidInput("a subscription needs a function that takes its frames: pass `cb`")
        subscription = self._open(subject, queue)
        options = self._options
        reader = Reader(self, subject, cb, options.unread, options.unread_size)
        subscription.reader, subscription.take = reader, reader.put
        self._announce(subscription)
        return subscription

    async def subscribe_now(
        self, subject: str, arrived: Callable[[Frame], None], queue: str = ""
    ) -> WireSubscription:
        """Receive with a function that never waits: the connection calls it as it reads the frame, without a task.

        It must be quick, since nothing else is read meanwhile. The connection reports what it raises.

        Raises:
            InvalidInput: the subject or the queue group is malformed.
        """
        subscription = self._open(subject, queue)
        subscription.take = arrived
        self._announce(subscription)
        return subscription

    def _open(self, subject: str, queue: str) -> WireSubscription:
        if self._closed:
            raise self.lost or BusDisconnected("the connection was closed")
        if not is_subject(subject) or (queue and not is_subject(queue)):
            raise InvalidInput(f"{subject!r} cannot be subscribed")
        self._sids += 1
        return WireSubscription(self, self._sids, subject, queue)

    def _announce(self, subscription: WireSubscription) -> None:
        self._routes[b"%d" % subscription.sid] = subscription
        self._write_line(subscription.line)

    def _write_line(self, line: bytes) -> None:
        """Write a line about a subscription to every session that is up; a later session begins with all of them."""
        self._write_out()
        for session in self._both:
            session.write(line)
        if self._write is not None and not self._both:
            self._write(line)

    async def confirm(self, subscription: WireSubscription, timeout: float = 10) -> None:
        """Return when the server knows a subscription.

        Raises:
            Forbidden: this identity may not subscribe there.
            As `settle`.
        """
        subscription.awaited = True
        try:
            await self.settle(timeout)
        finally:
            subscription.awaited = False
        if subscription.denied is not None:
            raise subscription.denied

    def forget(self, subscription: WireSubscription) -> None:
        """End a subscription at once."""
        if self._routes.pop(b"%d" % subscription.sid, None) is not None:
            self._write_line(subscription.end)

    async def stop(self, subscription: WireSubscription) -> None:
        """Have the server send no more to a subscription, and take what it has sent; raises as `flush` does."""
        while self._overlapping is not None:  # what the next session has brought is held back
            await asyncio.shield(self._overlapping)
        self._write_line(subscription.end)
        if self._session is not None:
            await self.flush()

    # ── from the session ─────────────────────────────────────────────────────────────────────────────

    def arrived(self, sid: bytes, subject: bytes, reply: bytes, block: bytes, data: bytes) -> None:
        """Hand a message to its subscription."""
        self.received += 1
        subscription = self._routes.get(sid)
        if subscription is not None:
            try:
                subscription.take(WireFrame(subject, reply, block, data))
            except Exception as error:  # noqa: BLE001 - the frames behind it must be read
                self.report(error)

    def report(self, error: Exception) -> None:
        """Report an error that no call waits for."""
        if self._options.on_error is not None:
            self._options.on_error(error)
        else:
            _log.warning(
                "NATS connection: %s",
                error,
                exc_info=None if isinstance(error, PostroomError) else error,
            )

    def refused(self, error: PostroomError) -> None:
        """Take an error of the server; it is reported unless a call waits for it."""
        if not isinstance(error, Denied) or not self._fail_denied(error):
            self.report(error)

    # ── denials ──────────────────────────────────────────────────────────────────────────────────────

    async def deliver(
        self,
        subject: str,
        payload: bytes,
        reply: str = "",
        headers: dict[str, str] | None = None,
        *,
        timeout: float = 10,
    ) -> None:
        """Publish, and return when the server has taken the message.

        Raises:
            Forbidden: this identity may not publish there.
            As `publish` and `settle`.
        """
        denied: asyncio.Future[None] = self._loop.create_future()
        self._delivering.setdefault(subject, []).append(denied)
        try:
            await self.publish(subject, payload, reply, headers)
            await self.settle(timeout)
            if denied.done():
                denied.result()
        finally:
            waiting = self._delivering[subject]
            waiting.remove(denied)
            if not waiting:
                del self._delivering[subject]
            if not denied.cancel():
                denied.exception()  # seen, also where something else was raised

    def watch_denials(self, denied: Callable[[PostroomError, str], bool]) -> None:
        """Call a method with each subject to which the server denied a publish, as long as the method's object lives.

        It answers whether a call waited for that; the connection reports what no call waits for.
        """
        self._denials.add(denied)

    def _fail_denied(self, error: Denied) -> bool:
        """Fail the calls that wait for what was denied; False if there are none."""
        if error.verb == "publish":
            waiting = self._delivering.get(error.subject, [])
            for each in waiting:
                if not each.done():
                    each.set_exception(Forbidden(error.message))
            watched = [method(error, error.subject) for method in self._denials]
            return any(watched) or bool(waiting)
        denied = [each for each in self._routes.values() if each.subject == error.subject]
        for each in denied:
            each.denied = error
        return any(each.awaited for each in denied)

    # ── for the renewal ──────────────────────────────────────────────────────────────────────────────

    def _is_shared(self, sid: bytes) -> bool:
        subscription = self._routes.get(sid)
        return subscription is not None and bool(subscription.queue)

    def _drop_held(self) -> None:
        self.dropped += 1
        if self.dropped.bit_count() == 1:
            self.report(
                Refused("a frame was dropped: too many came while the connection was renewed")
            )
