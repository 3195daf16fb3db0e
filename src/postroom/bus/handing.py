"""Handing deliveries to a handler: one at a time, in order, with in-progress beats for all open ones.

Both implementations of the bus use it; they differ in how deliveries arrive and are answered. They have `BusTasks`:
background tasks whose failures are reported, and which all end with the bus.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Protocol

from postroom.bus.port import Counters, Delivery, DeliveryHandler
from postroom.errors import PostroomError
from postroom.protocol.streams import redelivery_delay

FINISH_TIMEOUT = 5.0
"""Seconds that a running handler has to end when receiving stops."""

Report = Callable[[Exception], None]


class BusTasks:
    """Keeps tasks, reports one that fails, ends all of them.

    Args:
        report: gets every exception that a task ended with.
    """

    def __init__(self, report: Report) -> None:
        self._report = report
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a task."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, Exception):
            self._report(error)

    async def stop(self, *tasks: asyncio.Task[None], timeout: float) -> None:
        """Cancel `tasks`, or all if none is named, and wait at most `timeout` seconds for their end."""
        current = asyncio.current_task()
        ending = {task for task in (tasks or self._tasks) if task is not current}
        for task in ending:
            task.cancel()
        if ending:
            await asyncio.wait(ending, timeout=timeout)


class OpenDelivery(Delivery, Protocol):
    """A delivery that knows whether it is open, and whether it was set aside."""

    open: bool
    aside: bool


class Handing:
    """Holds the open deliveries of one consumer and hands them to the handler.

    Args:
        handler: awaited for one delivery at a time.
        batch: most open deliveries, without those set aside.
        report: gets the handler's exceptions.
        beat: seconds between in-progress beats.
        sleep: waits for seconds; by a test's clock if it brings one.
        changed: called when there may be room for more.
    """

    def __init__(
        self,
        handler: DeliveryHandler,
        batch: int,
        *,
        counters: Counters,
        background: BusTasks,
        report: Callable[[Exception], None],
        beat: float,
        changed: Callable[[], None],
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._handler, self._batch = handler, batch
        self._counters, self._background, self._report = counters, background, report
        self._beat, self._changed, self._sleep = beat, changed, sleep
        self._open: dict[int, OpenDelivery] = {}
        self._aside: set[int] = set()
        self._queue: deque[OpenDelivery] = deque()
        self._filled = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, title: str) -> None:
        """Begin; `title` names the tasks."""
        for name, work in (("hand", self._hand()), ("beat", self._beats())):
            self._tasks.append(self._background.spawn(work, f"{name} {title}"))

    @property
    def open(self) -> int:
        """Deliveries that are neither acked nor given back."""
        return len(self._open)

    @property
    def room(self) -> int:
        """Number of further deliveries that may be open."""
        return self._batch - self._counted

    @property
    def hungry(self) -> bool:
        """Whether to ask for more: half is free, or the handler is idle."""
        half_free = self._counted <= self._batch // 2
        return half_free or (not self._queue and self.room > 0)

    @property
    def _counted(self) -> int:
        return len(self._open) - len(self._aside)

    @property
    def within(self) -> bool:
        """Whether the caller runs inside the handler."""
        return bool(self._tasks) and asyncio.current_task() is self._tasks[0]

    def take(self, delivery: OpenDelivery) -> None:
        """Take a delivery that arrived."""
        sequence = delivery.message.sequence
        if (older := self._open.get(sequence)) is not None:
            older.open = False  # a redelivery replaces the older one
            self._aside.discard(sequence)
        self._open[sequence] = delivery
        self._queue.append(delivery)
        self._filled.set()

    def answered(self, delivery: OpenDelivery) -> None:
        """Note that a delivery is no longer open, or was set aside."""
        sequence = delivery.message.sequence
        if self._open.get(sequence) is delivery:
            if delivery.open:
                self._aside.add(sequence)
            else:
                del self._open[sequence]
                self._aside.discard(sequence)
        self._changed()

    async def _hand(self) -> None:
        while True:
            while not self._queue or self._stopping:
                self._filled.clear()
                await self._filled.wait()
            delivery = self._queue.popleft()
            self._changed()
            if delivery.open:
                self._idle.clear()
                try:
                    await self._handle(delivery)
                finally:
                    self._idle.set()

    async def _handle(self, delivery: OpenDelivery) -> None:
        self._counters.received += 1
        try:
            await self._handler(delivery)
        except Exception as error:  # noqa: BLE001 (whatever a handler raises, the record is given back)
            self._counters.handler_errors += 1
            self._report(error)
            with suppress(PostroomError):  # otherwise it comes again after `ack_wait`
                await delivery.nak(redelivery_delay(delivery.attempt))

    async def _beats(self) -> None:
        while True:
            await self._sleep(self._beat)
            for delivery in list(self._open.values()):
                with suppress(PostroomError):  # a lost connection loses the beat
                    await delivery.in_progress()

    def halt(self) -> None:
        """Stop handing over."""
        self._stopping = True

    async def stop(self) -> None:
        """Let a running handler finish; give the waiting deliveries back at once."""
        self.halt()
        if not self.within:
            with suppress(TimeoutError):
                async with asyncio.timeout(FINISH_TIMEOUT):
                    await self._idle.wait()
        await self._background.stop(*self._tasks, timeout=1)
        waiting = [delivery for delivery in self._queue if delivery.open]
        self._queue.clear()
        for delivery in waiting:
            with suppress(PostroomError):
                await delivery.nak()
