"""The two kinds of subscription to a memory broker: live messages, and deliveries of a consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from postroom.bus.handing import BusTasks, Handing
from postroom.bus.memory.broker import Interest, MemoryBroker
from postroom.bus.memory.consumer import MemoryConsumer, Taker
from postroom.bus.port import Counters, DeliveryHandler, Handler, Message, Subscription
from postroom.errors import BusDisconnected

FINISH_TIMEOUT = 5.0
MAX_QUEUED = 65_536
"""Live messages that wait for a slow handler; further ones are dropped and counted."""


class LiveSubscription(Subscription):
    """A `Subscription` to live messages.

    Args:
        work: handles one message; its exceptions go to `report`.
    """

    def __init__(
        self,
        counters: Counters,
        accepts: Callable[[Message], bool],
        work: Handler,
        report: Callable[[Exception], None],
    ) -> None:
        self._counters, self._accepts, self._work, self._report = counters, accepts, work, report
        self._queue: asyncio.Queue[Message] = asyncio.Queue(MAX_QUEUED)
        self._idle = asyncio.Event()
        self._idle.set()
        self._end: Callable[[], None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._background: BusTasks | None = None

    def open(self, broker: MemoryBroker, subject: str, queue: str, background: BusTasks) -> None:
        """Begin."""
        self._background = background
        self._end = broker.listen(Interest(subject, queue, self._take))
        self._task = background.spawn(self._run(), f"handle {subject}")

    def _take(self, message: Message) -> None:
        if not self._accepts(message):
            self._counters.ignored += 1
        elif self._queue.full():
            self._counters.dropped += 1
        else:
            self._queue.put_nowait(message)

    async def _run(self) -> None:
        while True:
            message = await self._queue.get()
            self._counters.received += 1
            self._idle.clear()
            try:
                await self._work(message)
            except Exception as error:  # noqa: BLE001 (whatever a handler raises is reported)
                self._counters.handler_errors += 1
                self._report(error)
            finally:
                self._idle.set()

    def cut(self) -> None:
        """Stop receiving at once."""
        if self._end is not None:
            self._end()

    async def close(self) -> None:
        self.cut()
        if self._task is None or self._background is None or asyncio.current_task() is self._task:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(FINISH_TIMEOUT):
                await self._idle.wait()
        await self._background.stop(self._task, timeout=1)


class MemoryDelivery:
    """A `Delivery`."""

    def __init__(
        self, subscription: ConsumerSubscription, message: Message, attempt: int, pending: int
    ) -> None:
        self._subscription = subscription
        self.message = message
        self.attempt = attempt
        self.pending = pending
        self.open = True
        self.aside = False

    def _close(self) -> MemoryConsumer | None:
        if not self.open:
            return None
        self.open = False
        return self._subscription.answered(self)

    async def ack(self, *, confirm: bool = False) -> None:  # noqa: ARG002 (memory always confirms)
        """As `Delivery.ack`."""
        if (consumer := self._close()) is not None:
            self._subscription.counters.acked += 1
            consumer.ack(self.message.sequence)

    async def nak(self, delay: float = 0.0) -> None:
        """As `Delivery.nak`."""
        if (consumer := self._close()) is not None:
            consumer.nak(self.message.sequence, delay)

    async def in_progress(self) -> None:
        """As `Delivery.in_progress`."""
        if self.open:
            self._subscription.connected_consumer().in_progress(self.message.sequence)

    def set_aside(self) -> None:
        """As `Delivery.set_aside`."""
        if self.open and not self.aside:
            self.aside = True
            self._subscription.answered(self)

    async def term(self, reason: str) -> None:
        """As `Delivery.term`."""
        if (consumer := self._close()) is not None:
            consumer.term(self.message.sequence, reason)


class ConsumerSubscription(Taker, Subscription):
    """A `Subscription` to the deliveries of a durable consumer."""

    def __init__(
        self,
        broker: MemoryBroker,
        background: BusTasks,
        handler: DeliveryHandler,
        *,
        batch: int,
        counters: Counters,
        report: Callable[[Exception], None],
        accepts: Callable[[Message], bool],
        beat: float,
    ) -> None:
        self.counters = counters
        self._broker, self._background, self._accepts = broker, background, accepts
        self._consumer: MemoryConsumer | None = None
        self._attaching: asyncio.Task[None] | None = None
        self._closed = False
        self._disconnected = False
        self._handing = Handing(
            handler,
            batch,
            counters=counters,
            background=background,
            report=report,
            beat=beat,
            changed=self._pump,
            sleep=broker.clock.sleep,
        )

    def start(self, stream: str, durable: str) -> None:
        """Begin, as soon as the consumer exists."""
        self._handing.start(f"{stream}/{durable}")
        attach = self._attach(stream, durable)
        self._attaching = self._background.spawn(attach, f"attach {stream}/{durable}")

    async def _attach(self, stream: str, durable: str) -> None:
        self._consumer = await self._broker.await_consumer(stream, durable)
        self._consumer.attach(self)

    def _pump(self) -> None:
        if self._consumer is not None:
            self._consumer.pump()

    @property
    def room(self) -> int:
        return 0 if self._closed else self._handing.room

    @property
    def open_deliveries(self) -> int:
        """Number of deliveries that are neither acked nor given back."""
        return self._handing.open

    def take(self, message: Message, attempt: int, pending: int) -> None:
        if not self._accepts(message):
            self.counters.ignored += 1
            return
        self._handing.take(MemoryDelivery(self, message, attempt, pending))

    def connected_consumer(self) -> MemoryConsumer:
        """The consumer for an answer; raises BusDisconnected after the connection has ended."""
        if self._disconnected or self._consumer is None:
            raise BusDisconnected("the bus was closed")
        return self._consumer

    def answered(self, delivery: MemoryDelivery) -> MemoryConsumer:
        """Note that a delivery is no longer open, or was set aside; return its consumer."""
        self._handing.answered(delivery)
        return self.connected_consumer()

    def cut(self) -> None:
        """Lose the connection: give nothing back; no answer arrives any more."""
        self._closed = self._disconnected = True
        if self._consumer is not None:
            self._consumer.detach(self)

    async def close(self) -> None:
        self._closed = True
        self._handing.halt()
        if self._attaching is not None:
            await self._background.stop(self._attaching, timeout=1)
        if self._consumer is not None:
            self._consumer.detach(self)
        await self._handing.stop()
