"""The pull loop of a durable consumer: fetch, hand over in order, beat, survive.

Three tasks share the open deliveries: one keeps a pull waiting at the server, one hands deliveries to the
handler, one sends in-progress beats. A pull ends with its last message or with a status frame; if neither comes
and the heartbeats stop, the connection is checked and a new pull is made.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as NatsSubscription

from postroom.bus.nats.delivery import NatsDelivery
from postroom.bus.nats.dialing import remaining
from postroom.bus.nats.frames import parse_ack_subject, status_of
from postroom.bus.nats.link import Link
from postroom.bus.nats.replies import Replies, new_token
from postroom.bus.nats.supervisor import Supervisor
from postroom.bus.port import DeliveryHandler
from postroom.errors import BusDisconnected, NotFound, PostroomError, RequestTimeout
from postroom.protocol.streams import redelivery_delay

PULL_EXPIRES = 30.0
"""Seconds that a pull waits at the server for messages."""

HEARTBEAT = 5.0
"""Seconds between the server's signs of life during a pull."""

FINISH_TIMEOUT = 5.0
"""Seconds that a running handler has to end when the loop is closed."""

TROUBLE_CAP = 5.0
"""Seconds: longest pause before a pull that the server refused is tried again, before jitter."""

_OVER = frozenset({"404", "408"})
"""Statuses that end a pull in order: nothing there, time is up."""


class PullLoop:
    """A `Subscription` to a durable consumer.

    Args:
        link, replies, supervisor: of the bus.
        own: uid of this identity, whose inbox the pulls name.
        stream, durable: the consumer.
        handler: awaited for one delivery at a time.
        batch: most open deliveries.
        accepts: whether a frame with this subject and reply subject is a delivery to us.
        beat: seconds between in-progress beats.
        on_closed: told when the loop has ended.
    """

    def __init__(
        self,
        link: Link,
        replies: Replies,
        supervisor: Supervisor,
        own: str,
        stream: str,
        durable: str,
        handler: DeliveryHandler,
        *,
        batch: int,
        accepts: Callable[[str, str], bool],
        beat: float,
        on_closed: Callable[[PullLoop], None],
    ) -> None:
        self._link, self._replies, self._supervisor = link, replies, supervisor
        self._own, self._stream, self._durable = own, stream, durable
        self._handler, self._batch, self._accepts, self._beat = handler, batch, accepts, beat
        self._on_closed = on_closed
        self._open: dict[int, NatsDelivery] = {}
        self._queue: deque[NatsDelivery] = deque()
        self._wake = asyncio.Event()
        self._filled = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._inbox = ""
        self._subscription: NatsSubscription | None = None
        self._generation = -1
        self._outstanding = 0
        self._heard = 0.0
        self._status: tuple[str, str] = ("", "")
        self._closing: asyncio.Task[None] | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self) -> None:
        """Begin."""
        work = {"fetch": self._fetch, "hand": self._hand, "beat": self._beats}
        for name, loop in work.items():
            title = f"{name} {self._stream}/{self._durable}"
            self._tasks[name] = self._supervisor.spawn(loop(), title)

    @property
    def open_deliveries(self) -> int:
        """Deliveries that are neither acked nor given back."""
        return len(self._open)

    # Frames.

    async def _arrived(self, frame: Msg) -> None:
        status = status_of(frame)
        if status[0]:
            self._heard = asyncio.get_running_loop().time()
            if status[0] != "100":
                self._status = status
                self._wake.set()
            return
        ack = parse_ack_subject(frame.reply)
        if ack is None or not self._accepts(frame.subject, frame.reply):
            self._link.counters.ignored += 1
            return
        self._heard = asyncio.get_running_loop().time()
        self._outstanding -= 1
        delivery = NatsDelivery(self._link, self._replies, frame, ack, self._delivery_closed)
        if (older := self._open.get(ack.sequence)) is not None:
            older.open = False  # it comes again, so the older one's time is over
        self._open[ack.sequence] = delivery
        self._queue.append(delivery)
        self._filled.set()
        self._wake.set()

    def _delivery_closed(self, delivery: NatsDelivery) -> None:
        if self._open.get(delivery.message.sequence) is delivery:
            del self._open[delivery.message.sequence]
        self._wake.set()

    # Fetching.

    async def _fetch(self) -> None:
        refusals = 0
        while True:
            await self._room()
            try:
                await self._link.ready(None)
                await self._fresh_inbox()
                await self._pull()
            except RequestTimeout:
                await self._check_connection()
                continue
            except BusDisconnected:
                if self._link.lost is not None:
                    return
                continue
            code, description = self._status
            if not code or code in _OVER:
                refusals = 0
                continue
            refusals += 1
            if refusals == 3:  # fewer are a restart, or a consumer that is about to be made
                self._link.report(NotFound(f"cannot pull {self._stream}: {code} {description}"))
            pause = min(TROUBLE_CAP, 0.05 * 2 ** min(refusals, 10))
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311

    async def _room(self) -> None:
        """Wait until a pull is worth it: half of the batch is free, or the handler has nothing to do."""
        while True:
            self._wake.clear()
            half_free = len(self._open) <= self._batch // 2
            if half_free or (not self._queue and len(self._open) < self._batch):
                return
            await self._wake.wait()

    async def _fresh_inbox(self) -> None:
        """A new inbox for each connection: pulls of an earlier one end with their inbox."""
        if self._generation == self._link.generation:
            return
        generation, former = self._link.generation, self._subscription
        self._inbox = f"_I.{self._own}.js.p.{new_token()}"
        self._subscription = await self._link.listen(self._inbox, self._arrived)
        self._generation = generation
        if former is not None:
            await self._retire(former)

    async def _retire(self, subscription: NatsSubscription) -> None:
        """End a subscription, but take the frames that are on their way."""
        await self._link.client.end_interest(subscription._id)  # noqa: SLF001
        with suppress(RequestTimeout, BusDisconnected):
            await self._link.settle(asyncio.get_running_loop().time() + 2)
        await self._link.forget(subscription)

    async def _pull(self) -> None:
        """One pull, until it is over or its connection is."""
        loop = asyncio.get_running_loop()
        self._outstanding = self._batch - len(self._open)
        if self._outstanding <= 0:
            return
        self._status, self._heard = ("", ""), loop.time()
        request = {
            "batch": self._outstanding,
            "expires": int(PULL_EXPIRES * 1e9),
            "idle_heartbeat": int(HEARTBEAT * 1e9),
        }
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._durable}"
        await self._link.send(subject, json.dumps(request).encode(), reply=self._inbox)
        while self._outstanding > 0 and not self._is_over():
            self._wake.clear()
            turn = self._link.turn
            if self._generation != self._link.generation:
                return
            waking = asyncio.ensure_future(self._wake.wait())
            silence = remaining(self._heard + 2 * HEARTBEAT + 1)
            try:
                await asyncio.wait({waking, turn}, timeout=silence, return_when="FIRST_COMPLETED")
            finally:
                waking.cancel()
            if remaining(self._heard + 2 * HEARTBEAT + 1) == 0:
                raise RequestTimeout("the server sent no heartbeat")

    def _is_over(self) -> bool:
        return bool(self._status[0])

    async def _check_connection(self) -> None:
        """After silence: ask the server for a sign of life, else connect again."""
        now = asyncio.get_running_loop().time()
        try:
            await self._link.settle(now + HEARTBEAT)
        except BusDisconnected:
            return
        except RequestTimeout:
            await self._link.client.force_reconnect()
        self._generation = -1

    # Handing over.

    async def _hand(self) -> None:
        while True:
            while not self._queue or self._closing is not None:
                self._filled.clear()
                await self._filled.wait()
            delivery = self._queue.popleft()
            self._wake.set()
            if delivery.open:
                self._idle.clear()
                try:
                    await self._handle(delivery)
                finally:
                    self._idle.set()

    async def _handle(self, delivery: NatsDelivery) -> None:
        self._link.counters.received += 1
        try:
            await self._handler(delivery)
        except Exception as error:  # noqa: BLE001 (whatever a handler raises, the record is given back)
            self._link.counters.handler_errors += 1
            self._link.report(error)
            with suppress(PostroomError):  # not given back now, it comes again after `ack_wait`
                await delivery.nak(redelivery_delay(delivery.attempt))

    async def _beats(self) -> None:
        while True:
            await asyncio.sleep(self._beat)
            for delivery in list(self._open.values()):
                with suppress(PostroomError):  # a beat that is lost with the connection
                    await delivery.in_progress()

    # Closing.

    async def close(self) -> None:
        """Stop receiving; what was fetched and not handed over is given back at once. Idempotent."""
        if self._closing is None:
            within = asyncio.current_task() is self._tasks.get("hand")
            self._closing = asyncio.create_task(self._close())
            if within:
                return  # the handler closes its own loop: it ends after it
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        await self._supervisor.stop(self._tasks["fetch"], timeout=1)
        if self._subscription is not None:
            await self._retire(self._subscription)
        fetched = [delivery for delivery in self._queue if delivery.open]
        self._queue.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), FINISH_TIMEOUT)
        await self._supervisor.stop(self._tasks["hand"], self._tasks["beat"], timeout=1)
        for delivery in fetched:
            with suppress(PostroomError):
                await delivery.nak()
        self._on_closed(self)
