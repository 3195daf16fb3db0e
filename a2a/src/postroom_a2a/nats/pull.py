"""Pulls from a durable consumer: never more than there is room for, and again after every trouble of the server.

One subscription receives the deliveries and the statuses of all pulls of a loop. The loop sends the next pull when half
of the room is free, so several deliveries cost one request.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from postroom_a2a.errors import BusDisconnected, PostroomError, RequestTimeout
from postroom_a2a.nats.acks import AckSubject, parse_ack_subject
from postroom_a2a.nats.connection import WireConnection
from postroom_a2a.nats.jetstream import JetStream
from postroom_a2a.nats.port import (
    FAULTS,
    NO_RESPONDERS,
    Frame,
    Subscription,
    description_of,
    status_of,
)
from postroom_a2a.nats.silence import Silence
from postroom_a2a.retry import RetryPolicy

EXPIRES = 30.0
"""Seconds that a pull waits at the server."""

HEARTBEAT = 2.0
"""Seconds between the server's heartbeats during a pull; after 2.5 times as long the loop takes a pull as lost."""

PAUSES = RetryPolicy(base=0.05, cap=5.0)
"""Seconds before a pull that the server refused is tried again."""

_OVER = frozenset({"404", "408"})  # nothing there, time is up
_HEARTBEAT = "100"

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Pull:
    left: int
    heard: float


@dataclass(slots=True)
class PullCounters:
    """Counts the pulls that a loop sent, and the `lost` ones: refused by the server, or fallen silent."""

    pulls: int = 0
    lost: int = 0


@dataclass(slots=True)
class PullLoop:
    """The deliveries of one durable consumer.

    Args:
        take: called with each frame that is not a status, and the fields of its reply subject if it is a delivery;
            returns whether the frame was one that a pull asked for. Must not wait.
        room: gives the deliveries that may come now, those of the pulls under way included.
        ensure: makes the durable again if it is gone; None to wait until somebody else makes it.
        report: called with the reason when the server keeps refusing pulls.
        expires: seconds that a pull waits at the server.
        heartbeat: seconds between the server's heartbeats.
    """

    js: JetStream
    stream: str
    durable: str
    take: Callable[[Frame, AckSubject | None], bool]
    room: Callable[[], int]
    ensure: Callable[[], Awaitable[None]] | None = None
    report: Callable[[str], None] = _log.warning
    expires: float = EXPIRES
    heartbeat: float = HEARTBEAT
    counters: PullCounters = field(default_factory=PullCounters)
    inbox: str = ""
    _pulls: dict[str, _Pull] = field(default_factory=dict)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _change: asyncio.Future[None] | None = None
    _subscription: Subscription | None = None
    _stale: bool = True
    _trouble: str = ""
    _refusals: int = 0
    _stopped: bool = False
    _silence: Silence = field(init=False)

    def __post_init__(self) -> None:
        """The loop has heard nothing yet."""
        self._silence = Silence(self.js.mailbox.connection)

    def changed(self) -> None:
        """Have the loop look whether there is more room."""
        if not self._changed.is_set() and self._want() > 0:
            self._changed.set()

    def stop(self) -> None:
        """Send no more pulls; the loop still takes what comes."""
        self._stopped = True
        self._changed.set()

    async def close(self, *, drain: bool = False) -> None:
        """End the subscription; with `drain`, first take what is on its way."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None and not self.js.mailbox.connection.is_closed:
            with suppress(*FAULTS):  # the connection is on its way out
                await (subscription.drain() if drain else subscription.unsubscribe())

    async def run(self) -> None:
        """Pull until `stop`, or until the connection is closed for good."""
        connection = self.js.mailbox.connection
        while not self._stopped and not connection.is_closed:
            self._changed.clear()
            self._watch_connection()
            if self._trouble:
                await self._recover()
                continue
            if connection.is_connected:
                await self._pull()
            if not await self._wait() and self._drop_silent():
                await self._check_connection()

    async def _pull(self) -> None:
        try:
            if self._stale:
                await self._open()
            want = self._want()
            if want > 0:
                await self._ask(f"{self.inbox}.{next(self._numbers)}", want)
        except FAULTS as error:
            self._trouble = f"the NATS connection failed: {error}"
            self._changed.set()

    async def _open(self) -> None:
        """Subscribe to a new inbox: the pulls of an earlier session end with their inbox."""
        self._stale, former = False, self._subscription
        inbox = self.js.mailbox.new_inbox()
        try:
            connection = self.js.mailbox.connection
            self._subscription = await connection.subscribe_now(f"{inbox}.*", self._arrived)
        except BaseException:
            self._stale = True
            raise
        self.inbox = inbox
        self._pulls.clear()
        if former is not None:
            with suppress(*FAULTS):  # it ends with its connection
                await former.drain()

    def _watch_connection(self) -> None:
        change = self.js.mailbox.connection.changed
        if change is not None and change is not self._change:
            self._change = change
            change.add_done_callback(self._connection_changed)

    def _connection_changed(self, _: asyncio.Future[None]) -> None:
        self._stale = True
        self._changed.set()

    def _want(self) -> int:
        """The deliveries to ask for: 0 while the pulls under way ask for more than half of the room."""
        asked = sum(pull.left for pull in self._pulls.values())
        want = self.room() - asked
        return want if want >= asked else 0

    async def _wait(self) -> bool:
        """Wait until something has changed; False if nothing did within a heartbeat."""
        try:
            async with asyncio.timeout(self.heartbeat):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def _ask(self, reply: str, batch: int) -> None:
        request = {
            "batch": batch,
            "expires": int(self.expires * 1e9),
            "idle_heartbeat": int(self.heartbeat * 1e9),
        }
        verb = f"{self.js.prefix}.CONSUMER.MSG.NEXT.{self.stream}.{self.durable}"
        self._pulls[reply] = _Pull(batch, self.js.mailbox.loop.time())
        self.counters.pulls += 1
        try:
            await self.js.mailbox.send(verb, json.dumps(request).encode(), reply=reply)
        except BusDisconnected:
            self._pulls.pop(reply, None)
            raise

    def _drop_silent(self) -> bool:
        """Forget the pulls that ended with their server or session; False if there were none."""
        oldest = self.js.mailbox.loop.time() - 2.5 * self.heartbeat
        silent = [reply for reply, pull in self._pulls.items() if pull.heard < oldest]
        for reply in silent:
            del self._pulls[reply]
            self.counters.lost += 1
        return bool(silent)

    async def _check_connection(self) -> None:
        """After silence, flush; if the server does not answer, connect again where the connection can do so."""
        connection = self.js.mailbox.connection
        if not isinstance(connection, WireConnection) or not connection.is_connected:
            return
        self._stale = True  # the server may still have the pulls that were dropped
        try:
            await connection.flush(max(1, int(self.heartbeat)))
        except RequestTimeout:
            connection.reconnect()
        except BusDisconnected:
            return
        self._silence.goes_on(self.js.mailbox.loop.time())

    async def _recover(self) -> None:
        """After a refusal, make sure that the durable exists, and wait a little longer each time."""
        trouble, self._trouble = self._trouble, ""
        self.counters.lost += 1
        self._refusals += 1
        if trouble.startswith(NO_RESPONDERS):
            self._silence.goes_on(self.js.mailbox.loop.time())
        if self._refusals in {
            3,
            30,
        }:  # fewer mean a restart, or a durable that somebody is about to make
            self.report(f"cannot pull from {self.stream}/{self.durable}: {trouble}")
        try:
            if self.ensure is not None and self.js.mailbox.connection.is_connected:
                await self.ensure()
        except PostroomError as error:
            self.report(f"the durable {self.stream}/{self.durable} is missing: {error}")
            self._refusals += 3
        await asyncio.sleep(PAUSES.delay(self._refusals))
        self._changed.set()

    def _arrived(self, frame: Frame) -> None:
        now = self.js.mailbox.loop.time()
        if status := status_of(frame):
            self._take_status(frame.subject, status, frame, now)
            return
        if not self.take(frame, parse_ack_subject(frame.reply)):
            return
        self._served()
        for reply, pull in self._pulls.items():  # the server serves the oldest pull first
            pull.heard = now
            pull.left -= 1
            if pull.left <= 0:
                del self._pulls[reply]
            break
        self.changed()

    def _served(self) -> None:
        self._refusals = 0
        self._silence.end()

    def _take_status(self, reply: str, status: str, frame: Frame, now: float) -> None:
        if status == _HEARTBEAT:
            self._served()
            # The server sends heartbeats only for the pull that it serves; those behind it live as well.
            for pull in self._pulls.values():
                pull.heard = now
            return
        self._pulls.pop(reply, None)
        if status in _OVER:
            self._served()
        else:
            described = description_of(frame)
            reason = "JetStream does not answer" if status == NO_RESPONDERS else described
            self._trouble = f"{status} {reason}"
            if status != NO_RESPONDERS and "batch" not in described.lower():
                self._pulls.clear()  # the consumer is gone or moves; so are its pulls
        self._changed.set()
