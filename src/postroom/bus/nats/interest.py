"""Interest in a subject that outlives the connection it was declared on.

While one connection takes over from another both are subscribed for a moment, so that nothing is missed. With a
queue group the server hands each message to one of the two. Without one it sends it to both: the frames of the
former connection are handed on first, then those of the new one without what the former had too. So each message is
handed on once, and those of one publisher in its order.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from typing import Any

from nats import errors as nats_errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as NatsSubscription

from postroom.bus.nats.client import RobustClient
from postroom.observe import get_logger

log = get_logger("postroom.bus")

OnFrame = Callable[[Msg], Awaitable[None]]

Key = tuple[Any, ...]

_END: Any = object()
"""In a queue of frames: no more of them come over this connection."""

FINISH_TIMEOUT = 5.0
"""Seconds that a drained interest has to hand on what has arrived."""


class _Source:
    """The subscription on one connection.

    Attributes:
        brought: what the connection before has brought since this one is there.
        notes: the same, for the connection after this one.
        taken: frames that were read from its queue.
        noted_from: frames after that many may come over the next connection too; None while there is no next one.
        checked_to: frames up to that many may have come over the connection before; None while more may.
    """

    def __init__(
        self, client: RobustClient, subscription: NatsSubscription, brought: Counter[Key]
    ) -> None:
        self.client = client
        self.brought = brought
        self.notes: Counter[Key] = Counter()
        self.subscription = subscription
        self.taken = 0
        self.noted_from: int | None = None
        self.checked_to: int | None = None
        self.finished = False

    @property
    def received(self) -> int:
        return self.subscription.delivered

    async def next(self) -> Msg:
        frame = await self.subscription._pending_queue.get()  # noqa: SLF001
        if frame is not _END:
            self.taken += 1
            self.subscription._pending_size -= len(frame.data)  # noqa: SLF001
        return frame

    def finish(self) -> None:
        if self.finished:
            return
        self.finished = True
        queue = self.subscription._pending_queue  # noqa: SLF001
        if queue.full():
            queue.get_nowait()  # what comes into a full queue is dropped anyway
        queue.put_nowait(_END)

    async def unsubscribe(self) -> None:
        try:
            await self.subscription.unsubscribe()
        except (nats_errors.Error, OSError) as error:
            log.debug("bus: a subscription did not end in order: %r", error)


class Interest:
    """A subscription, on one connection after the other.

    Args:
        subject, queue: of the subscription.
        on_frame: awaited for one frame after the other.
        on_error: told what `on_frame` raised.
        on_closed: told when it has ended.
    """

    def __init__(
        self,
        subject: str,
        queue: str,
        on_frame: OnFrame,
        *,
        on_error: Callable[[Exception], Awaitable[None]],
        on_closed: Callable[[Interest], None],
    ) -> None:
        self.subject, self.queue = subject, queue
        self._on_frame, self._on_error, self._on_closed = on_frame, on_error, on_closed
        self._sources: deque[_Source] = deque()
        self._reader: asyncio.Task[None] | None = None
        self._closed = False

    async def join(self, client: RobustClient) -> None:
        """Subscribe on `client`, beside the connection of before if there is one.

        Raises:
            nats.errors.Error, OSError: as nats-py's `subscribe`.
        """
        if self._closed:
            return
        if self._sources and not self.queue:
            self._sources[-1].noted_from = self._sources[-1].received
        brought = self._sources[-1].notes if self._sources else Counter[Key]()
        source = _Source(client, await client.subscribe(self.subject, self.queue), brought)
        self._sources.append(source)
        if self._closed:
            await source.unsubscribe()
        elif self._reader is None:
            self._reader = asyncio.create_task(self._read(), name=f"read {self.subject}")

    async def leave(self, client: RobustClient) -> None:
        """Have the server send nothing more over `client`; what is on its way is taken."""
        for source in self._on(client):
            await client.end_interest(source.subscription._id)  # noqa: SLF001

    def left(self, client: RobustClient) -> None:
        """Everything that came over `client` has arrived: go on with the next connection's frames."""
        for source in self._on(client):
            source.finish()

    def settled(self, client: RobustClient) -> None:
        """What arrives over `client` from now on did not come over the connection before."""
        for source in self._on(client):
            if source.checked_to is None:
                source.checked_to = source.received

    def abandon(self, client: RobustClient) -> None:
        """`client` will not take over from the connection before it."""
        for source in self._on(client):
            self._sources.remove(source)
            if self._sources:
                self._sources[-1].noted_from = None
                self._sources[-1].notes.clear()

    def _on(self, client: RobustClient) -> list[_Source]:
        return [source for source in self._sources if source.client is client]

    # Reading.

    async def _read(self) -> None:
        while self._sources and not self._closed:
            source = self._sources[0]
            frame = await source.next()
            if frame is _END:
                self._sources.popleft()
            elif not self._repeats(source, frame):
                await self._hand_on(frame)

    def _repeats(self, source: _Source, frame: Msg) -> bool:
        """Whether the connection before has brought this frame."""
        repeated = False
        if source.brought:
            if source.checked_to is not None and source.taken > source.checked_to:
                source.brought = Counter()
            elif source.brought[key := _key(frame)]:
                source.brought[key] -= 1
                repeated = True
        if source.noted_from is not None and source.taken > source.noted_from:
            source.notes[_key(frame)] += 1
        return repeated

    async def _hand_on(self, frame: Msg) -> None:
        try:
            await self._on_frame(frame)
        except Exception as error:  # noqa: BLE001 (one bad frame must not end the subscription)
            await self._on_error(error)

    # Ending.

    async def unsubscribe(self) -> None:
        """End it at once; what has arrived and was not handed on is dropped."""
        self._closed = True
        for source in list(self._sources):
            await source.unsubscribe()
        if self._reader is not None and self._reader is not asyncio.current_task():
            self._reader.cancel()
        self._on_closed(self)

    async def drain(self, settle: Callable[[], Awaitable[None]]) -> None:
        """End it, but hand on what the server has sent.

        Args:
            settle: returns when the server has worked through everything that was sent to it.
        """
        for source in list(self._sources):
            await source.client.end_interest(source.subscription._id)  # noqa: SLF001
        try:
            await settle()
            for source in self._sources:
                source.finish()
            if self._reader is not None and self._reader is not asyncio.current_task():
                await asyncio.wait({self._reader}, timeout=FINISH_TIMEOUT)
        finally:
            await self.unsubscribe()


def _key(frame: Msg) -> Key:
    """What tells a message from another: the server sends the same bytes over both connections."""
    return frame.subject, frame.reply, tuple((frame.headers or {}).items()), frame.data
