"""Pulling requests from a durable: never more than there is room for, and again whatever happens to the server.

One subscription receives the deliveries and the statuses of all pulls of a loop. A pull is asked for when half of
what may be asked for is used up, so that a pull costs a message only every few requests.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from postroom_a2a.errors import BusDisconnected, PostroomError
from postroom_a2a.nats.jetstream import JetStream
from postroom_a2a.nats.port import (
    FAULTS,
    NO_RESPONDERS,
    Frame,
    Subscription,
    receive,
    status_of,
)

EXPIRES = 30.0
"""Seconds that a pull waits at the server."""

HEARTBEAT = 2.0
"""Seconds between the server's signs of life during a pull."""

SILENCE = 2.5 * HEARTBEAT
"""Seconds after which a pull without a sign of life is taken as lost."""

PAUSE_CAP = 5.0
"""Seconds: longest pause before a pull that was refused is tried again, before jitter."""

ACK = b"+ACK"
WORKING = b"+WPI"
GIVE_BACK = b"-NAK"

_OVER = frozenset({"404", "408"})  # nothing there, time is up
_HEARTBEAT = "100"

_log = logging.getLogger(__name__)


class Place(NamedTuple):
    """Where a message lies in its stream.

    Attributes:
        stream: name.
        sequence: in it.
        stamp: nanoseconds since the epoch at which it was stored. A stream that was deleted and made again counts
            from 1 again, so the sequence alone does not name a message.
        key: all three, as the end of a subject.
    """

    stream: str
    sequence: int
    stamp: int
    key: str


@dataclass(slots=True)
class Delivery:
    """A stored message, handed to us.

    Attributes:
        frame: of the message.
        reply: where it is acknowledged.
        place: in its stream.
        consumer: that delivered it.
        attempt: 1 for the first delivery.
        number: of the delivery in its consumer, 1, 2, 3, ...
    """

    frame: Frame
    reply: str
    place: Place
    consumer: str
    attempt: int
    number: int


def delivery_of(frame: Frame) -> Delivery | None:
    """The delivery that a frame is, by its reply subject; None for any other frame."""
    reply = frame.reply
    tokens = reply.split(".")
    if len(tokens) >= 11:  # with domain and account before the stream
        tokens[2:4] = []
    if len(tokens) < 9 or tokens[0] != "$JS" or tokens[1] != "ACK":
        return None
    try:
        attempt, sequence, number, stamp = map(int, tokens[4:8])
    except ValueError:
        return None
    place = Place(tokens[2], sequence, stamp, f"{tokens[2]}.{sequence}.{stamp}")
    return Delivery(frame, reply, place, tokens[3], attempt, number)


@dataclass(slots=True)
class _Pull:
    left: int
    heard: float


@dataclass(slots=True)
class PullCounters:
    """What a loop has seen.

    Attributes:
        pulls: asked for.
        lost: pulls that the server refused, or that fell silent.
    """

    pulls: int = 0
    lost: int = 0


@dataclass(slots=True)
class PullLoop:
    """The deliveries of one durable.

    Args:
        js: JetStream.
        stream: that the durable belongs to.
        durable: to pull from.
        take: called with each delivery; must not wait.
        room: deliveries that may come now, those that were asked for included.
        ensure: makes the durable again if it is gone.
    """

    js: JetStream
    stream: str
    durable: str
    take: Callable[[Delivery], None]
    room: Callable[[], int]
    ensure: Callable[[], Awaitable[None]]
    counters: PullCounters = field(default_factory=PullCounters)
    _pulls: dict[str, _Pull] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _subscription: Subscription | None = None
    _inbox: str = ""
    _trouble: str = ""
    _refusals: int = 0
    _stopped: bool = False

    def changed(self) -> None:
        """There may be more room."""
        if self._want() > 0:
            self._changed.set()

    def stop(self) -> None:
        """Ask for nothing more; what comes all the same is taken."""
        self._stopped = True
        self._changed.set()

    async def close(self) -> None:
        """End the subscription."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None and not self.js.mailbox.connection.is_closed:
            with suppress(*FAULTS):  # the connection is on its way out
                await subscription.unsubscribe()

    async def run(self) -> None:
        """Pull until `stop`, or until the connection is closed for good."""
        connection = self.js.mailbox.connection
        self._inbox = connection.new_inbox()
        self._subscription = await receive(connection, f"{self._inbox}.*", self._arrived)
        numbers = itertools.count(1)
        while not self._stopped and not connection.is_closed:
            self._changed.clear()
            if self._trouble:
                await self._recover()
                continue
            want = self._want()
            if want > 0 and connection.is_connected:
                await self._ask(f"{self._inbox}.{next(numbers)}", want)
            if not await self._wait():
                self._drop_silent()

    def _want(self) -> int:
        """Deliveries to ask for: none while more than half of what there is room for is asked for."""
        asked = sum(pull.left for pull in self._pulls.values())
        want = self.room() - asked
        return want if want >= asked else 0

    async def _wait(self) -> bool:
        """Until something has changed; False after a while without."""
        try:
            async with asyncio.timeout(HEARTBEAT):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def _ask(self, reply: str, batch: int) -> None:
        request = {
            "batch": batch,
            "expires": int(EXPIRES * 1e9),
            "idle_heartbeat": int(HEARTBEAT * 1e9),
        }
        verb = f"{self.js.prefix}.CONSUMER.MSG.NEXT.{self.stream}.{self.durable}"
        self._pulls[reply] = _Pull(batch, asyncio.get_running_loop().time())
        self.counters.pulls += 1
        try:
            await self.js.mailbox.send(verb, json.dumps(request).encode(), reply=reply)
        except BusDisconnected:
            self._pulls.pop(reply, None)
            self._trouble = "the connection takes nothing"

    def _drop_silent(self) -> None:
        """Forget pulls that ended with their server or connection."""
        now = asyncio.get_running_loop().time()
        silent = [reply for reply, pull in self._pulls.items() if now - pull.heard > SILENCE]
        for reply in silent:
            del self._pulls[reply]
            self.counters.lost += 1

    async def _recover(self) -> None:
        """After a refusal: see that the durable is there, and wait a little longer each time."""
        trouble, self._trouble = self._trouble, ""
        self.counters.lost += 1
        self._refusals += 1
        if self._refusals in {3, 30}:  # fewer are a restart
            _log.warning("pulling from %s/%s: %s", self.stream, self.durable, trouble)
        try:
            if self.js.mailbox.connection.is_connected:
                await self.ensure()
        except PostroomError as error:
            _log.warning("the durable %s/%s is not there: %s", self.stream, self.durable, error)
            self._refusals += 3
        pause = min(PAUSE_CAP, 0.02 * 2 ** min(self._refusals, 10))
        await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311
        self._changed.set()

    def _arrived(self, frame: Frame) -> None:
        now = asyncio.get_running_loop().time()
        if status := status_of(frame):
            self._told(frame.subject, status, frame, now)
            return
        delivery = delivery_of(frame)
        if delivery is None:
            return
        self._refusals = 0
        for reply, pull in self._pulls.items():  # the server serves the oldest first
            pull.heard = now
            pull.left -= 1
            if pull.left <= 0:
                del self._pulls[reply]
            break
        self.take(delivery)
        self.changed()

    def _told(self, reply: str, status: str, frame: Frame, now: float) -> None:
        if status == _HEARTBEAT:
            self._refusals = 0
            # Only the pull that is being served is told; those behind it live as long.
            for pull in self._pulls.values():
                pull.heard = now
            return
        self._pulls.pop(reply, None)
        if status not in _OVER:
            described = (frame.headers or {}).get("Description", "")
            gone = "nothing of JetStream answers" if status == NO_RESPONDERS else described
            self._trouble = f"{status} {gone}"
            if status != NO_RESPONDERS and "batch" not in described.lower():
                self._pulls.clear()  # the consumer is gone or moves; so are its pulls
        self._changed.set()
