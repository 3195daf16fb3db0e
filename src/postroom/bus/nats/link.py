"""One connection to the server: opened, kept, watched, ended.

What nats-py tells in callbacks (connected again, denied, closed for good) becomes something that a waiting call
can await.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from nats import errors as nats_errors

from postroom.bus.address import BusAddress
from postroom.bus.counters import Counters
from postroom.bus.nats.attachment import Attachment, Credentials, Dialing
from postroom.bus.nats.client import RobustClient
from postroom.bus.nats.dialing import remaining
from postroom.bus.nats.handover import hand_over
from postroom.bus.nats.interest import Interest, OnFrame
from postroom.errors import (
    BusDisconnected,
    Forbidden,
    InvalidInput,
    MessageTooLarge,
    PostroomError,
    RequestTimeout,
    Unauthorized,
)
from postroom.observe import get_logger
from postroom_a2a.nats.subscriptions import Watchers

log = get_logger("postroom.bus")

_DENIED = re.compile(r'permissions violation for (publish|subscription) to "([^"]*)"')

HANDOVER_TIMEOUT = 5.0
"""Seconds that what opens or ends a subscription waits for a handover to another connection."""


class Link:
    """A connection that comes back by itself until it is closed or the server ends it for good.

    Args:
        counters: of the bus.
        on_error: told about errors that no call waits for.
    """

    def __init__(self, counters: Counters, on_error: Callable[[Exception], None] | None) -> None:
        self.counters = counters
        self.generation = 0
        self.lost: PostroomError | None = None
        self.turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.interests: set[Interest] = set()
        self._current = Attachment(self)
        self._dialing: Dialing | None = None
        self._on_error = on_error
        self._closing = False
        self._opened = False
        self._reconnected_at = float("-inf")
        self.denial_watchers = Watchers()
        self._denials: dict[tuple[str, str], set[asyncio.Future[Any]]] = {}
        self._renewing = asyncio.Lock()
        self._subscribing = asyncio.Lock()
        self._held: asyncio.Future[None] | None = None
        self._successor: Attachment | None = None

    # State.

    @property
    def client(self) -> RobustClient:
        """The connection that frames are sent over now; `renew` puts another in its place."""
        return self._current.client

    @property
    def up(self) -> bool:
        """Whether frames can be sent now."""
        return self._current.up

    @property
    def recovering(self) -> bool:
        """Whether the connection came back so lately that the server may still be loading its streams."""
        return asyncio.get_running_loop().time() - self._reconnected_at < 10

    async def ready(self, deadline: float | None) -> None:
        """Wait until frames can be sent, until `deadline` of the loop's clock or for ever.

        Raises:
            BusDisconnected: not within the deadline, or never again.
        """
        while not self.up:
            if self.lost is not None:
                raise type(self.lost)(self.lost.message)
            await asyncio.wait({self.turn}, timeout=remaining(deadline))
            if not self.up and deadline is not None and remaining(deadline) == 0:
                raise BusDisconnected(
                    "there is no connection to the bus",
                    remedy="wait until nats-server is back, then do it again",
                )

    def report(self, error: Exception) -> None:
        """Tell the log and the owner about an error that no call waits for."""
        log.warning("bus: %s", error, exc_info=None if isinstance(error, PostroomError) else error)
        if self._on_error is not None:
            self._on_error(error)

    # Opening and closing.

    async def open(
        self,
        address: BusAddress,
        *,
        name: str,
        credentials: Credentials | None,
        timeout: float,
    ) -> None:
        """Connect.

        Raises:
            BusDisconnected: no server answered within `timeout` seconds.
            Unauthorized: the server refused the credential.
        """
        self._dialing = Dialing(address, name, credentials)
        await self._current.open(self._dialing, asyncio.get_running_loop().time() + timeout)
        self._opened = True

    async def renew(self, deadline: float) -> None:
        """Put a connection made with what the credentials' callbacks now return in the place of the present one.

        Make before break (`handover`): nothing is lost, nothing comes twice, no call fails. The former connection
        has ended when this returns, and not later than `deadline`. If it raises, the former one stays.

        Raises:
            BusDisconnected: no new connection was made before `deadline`.
            Unauthorized: the server refused the credential.
        """
        async with self._renewing:
            await self.ready(deadline)
            former, new = self._current, Attachment(self)
            if self._dialing is None:
                raise BusDisconnected("the link was never opened")
            try:
                self._successor = new
                await new.open(self._dialing, deadline, first=former.client.address)
                async with self._subscribing:
                    orderly = await hand_over(self, former, new, deadline)
            except (OSError, nats_errors.Error) as error:
                raise BusDisconnected(f"the new connection broke: {error}") from error
            finally:
                self._successor = None
                self.release()
                for interest in self.interests:
                    if self._current is new:  # whatever was left undone above
                        interest.left(former.client)
                        interest.settled(new.client)
                    else:
                        interest.abandon(new.client)
                ended = former if self._current is new else new
                await ended.close(min(1.0, remaining(deadline) or 0.0))
                if self._current.client.is_closed:
                    self.ended(self._current)  # it was borne while another was to take over
            if not orderly and self.lost is None:
                self._turn_over()

    def hold(self) -> None:
        """See `handover.Switchboard`."""
        self._held = asyncio.get_running_loop().create_future()

    def release(self) -> None:
        """Let what was held be sent."""
        if self._held is not None:
            self._held.set_result(None)
            self._held = None

    def switch(self, attachment: Attachment) -> None:
        """See `handover.Switchboard`."""
        self._current = attachment
        self.release()

    async def close(self) -> None:
        """End the connection for good."""
        self._closing = True
        await self._current.close()
        if self._successor is not None:
            await self._successor.close()
        for interest in list(self.interests):
            await interest.unsubscribe()
        if self.lost is None:
            self.lost = BusDisconnected("the bus was closed")
        self._advance()

    # Frames.

    async def send(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        reply: str = "",
        headers: dict[str, str] | None = None,
    ) -> None:
        """Give a frame to the connection; while it is broken, a bounded number is kept for later.

        Raises:
            MessageTooLarge: over the server's limit.
            BusDisconnected: closed, or too much waits for the connection to come back.
            InvalidInput: the subject is malformed.
        """
        self.check_size(payload, headers)
        while self._held is not None:
            await asyncio.wait({self._held})
        try:
            await self.client.publish(subject, payload, reply=reply, headers=headers or None)
        except nats_errors.MaxPayloadError as error:
            raise MessageTooLarge("the message is over the bus's limit") from error
        except (nats_errors.BadSubjectError, nats_errors.BadHeaderError) as error:
            raise InvalidInput(f"{subject!r} cannot be published: {error}") from error
        except (nats_errors.Error, OSError) as error:
            raise self.lost or BusDisconnected(f"the bus takes nothing: {error}") from error

    def check_size(self, payload: bytes, headers: dict[str, str] | None) -> None:
        """Refuse what the server would cut the connection for.

        Raises:
            MessageTooLarge: headers and payload are over the server's limit.
        """
        size = len(payload)
        if headers:
            size += 14 + sum(len(k.encode()) + len(v.encode()) + 4 for k, v in headers.items())
        if size > self.client.max_payload:
            raise MessageTooLarge(
                f"the message has {size} bytes, the bus's limit is {self.client.max_payload}"
            )

    async def settle(self, deadline: float) -> None:
        """Return when the server has worked through everything that was sent so far.

        Raises:
            RequestTimeout: not before `deadline`.
            BusDisconnected: there is no connection.
        """
        while True:
            await self.ready(deadline)
            turn, pong = self.turn, self.client.ping()
            await asyncio.wait(
                {pong, turn}, timeout=remaining(deadline), return_when=asyncio.FIRST_COMPLETED
            )
            if pong.done():
                return
            if not turn.done():
                raise RequestTimeout("the bus does not answer")

    async def listen(self, subject: str, on_frame: OnFrame, *, queue: str = "") -> Interest:
        """Receive frames; returns when the server knows the subscription.

        Raises:
            Forbidden: this identity may not subscribe there.
            RequestTimeout, BusDisconnected: the server did not confirm it.
        """
        deadline = asyncio.get_running_loop().time() + 5
        await self.ready(deadline)
        denied: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        interest = Interest(
            subject, queue, on_frame, on_error=self.failed, on_closed=self.interests.discard
        )
        with self.watching("subscription", subject, denied):
            await self._join(interest)
            try:
                await self.settle(deadline)
            except BaseException:
                await interest.unsubscribe()
                raise
            if denied.done():
                await interest.unsubscribe()
                denied.result()
        return interest

    async def _join(self, interest: Interest) -> None:
        try:
            # Not while another connection takes over: it takes over what is known when it begins.
            async with asyncio.timeout(HANDOVER_TIMEOUT), self._subscribing:
                await interest.join(self.client)
                self.interests.add(interest)
        except nats_errors.BadSubjectError as error:
            raise InvalidInput(f"{interest.subject!r} is not a subject") from error
        except (nats_errors.Error, OSError) as error:
            raise self.lost or BusDisconnected(f"the bus takes nothing: {error}") from error

    async def drain(self, interest: Interest, timeout: float = 2.0) -> None:
        """End a subscription, but hand on what the server has sent until then.

        Raises:
            RequestTimeout, BusDisconnected: the server did not answer within `timeout` seconds; it has ended all
                the same.
        """
        deadline = asyncio.get_running_loop().time() + timeout
        await interest.drain(lambda: self.settle(deadline))

    @contextmanager
    def watching(self, verb: str, subject: str, waiting: asyncio.Future[Any]) -> Generator[None]:
        """Let `waiting` fail with `Forbidden` when the server denies `verb` ("publish") on `subject`.

        The server names only the subject of what it denied, in an error line of its own; nats-py gives that line
        in lower case.
        """
        key = (verb, subject.lower())
        self._denials.setdefault(key, set()).add(waiting)
        try:
            yield
        finally:
            self._denials[key].discard(waiting)
            if not self._denials[key]:
                del self._denials[key]

    # What becomes of the connections (`attachment.Watcher`).

    async def failed(self, error: Exception) -> None:
        """See `Watcher`."""
        if denied := _DENIED.search(str(error).lower()):
            self._deny(denied[1], denied[2])
        elif isinstance(error, nats_errors.SlowConsumerError):
            self.counters.dropped += 1
            self.report(error)
        elif isinstance(error, PostroomError):
            self.counters.ignored += 1
            self.report(error)
        elif isinstance(error, (OSError, TimeoutError, nats_errors.Error)):
            log.debug("bus: %r", error)  # a connection that broke: `statistics` counts it
        else:
            self.report(error)

    def refused(self, attachment: Attachment, error: PostroomError) -> None:
        """See `Watcher`."""
        if self._opened and attachment is self._current and self._successor is None:
            self.report(error)

    def _deny(self, verb: str, subject: str) -> None:
        self.counters.refused += 1
        error = Forbidden(f"this identity may not use {subject!r} for a {verb}")
        waiting = self._denials.get((verb, subject), set())
        for future in waiting:
            if not future.done():
                future.set_exception(error)
        heard = [tell(error, subject) for tell in self.denial_watchers]
        if not waiting and not any(heard):
            self.report(error)

    def came_back(self, attachment: Attachment) -> None:
        """See `Watcher`."""
        if attachment is self._current:
            self.counters.reconnects += 1
            self._turn_over()

    def _turn_over(self) -> None:
        """What was under way over the connection may be lost: who can ask again does."""
        self.generation += 1
        self._reconnected_at = asyncio.get_running_loop().time()
        self._advance()

    def ended(self, attachment: Attachment) -> None:
        """See `Watcher`."""
        if self._closing or self.lost is not None or attachment is not self._current:
            return
        if self._successor is not None:
            return  # another is about to take over; if it does not, `_discard` comes back to this
        if not self._opened:
            return
        last, refused = attachment.last_words()
        kind = Unauthorized if refused else BusDisconnected
        self.lost = kind(f"the bus ended the connection for good: {last or 'no reason given'}")
        self._advance()
        self.report(self.lost)

    def _advance(self) -> None:
        """Wake everything that waits for a change of the connection."""
        turn, self.turn = self.turn, asyncio.get_running_loop().create_future()
        turn.set_result(None)
