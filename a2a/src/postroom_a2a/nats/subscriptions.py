"""Subscriptions of a connection, and the tasks and functions that take their frames."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import WeakMethod

from postroom_a2a.errors import PostroomError, Refused
from postroom_a2a.nats.frame import WireFrame

if TYPE_CHECKING:
    from postroom_a2a.nats.inbound import Inbound


class WireSubscription:
    """A subscription, an implementation of the port `Subscription`.

    Attributes:
        sid: its number in the protocol.
        queue: its queue group, "" for none.
        take: the connection calls it with each frame as it reads it; it must not wait.
        reader: hands the frames to an async function; None if `take` is the subscriber's own function.
        denied: the server's refusal, if there is one.
        awaited: whether a call waits for the server to accept or refuse the subscription.
    """

    def __init__(self, inbound: Inbound, sid: int, subject: str, queue: str) -> None:
        self.sid = sid
        self.subject = subject
        self.queue = queue
        self.take: Callable[[WireFrame], None] = _ignore
        self.reader: Reader | None = None
        self.denied: PostroomError | None = None
        self.awaited = False
        self._inbound = inbound

    @property
    def dropped(self) -> int:
        """Frames that were dropped because too many lay unread."""
        return self.reader.dropped if self.reader else 0

    @property
    def line(self) -> bytes:
        """The line that begins it at the server."""
        queue = f" {self.queue}" if self.queue else ""
        return f"SUB {self.subject}{queue} {self.sid}\r\n".encode("utf-8", "surrogateescape")

    @property
    def end(self) -> bytes:
        """The line that ends it at the server."""
        return b"UNSUB %d\r\n" % self.sid

    async def unsubscribe(self) -> None:
        """End it at once."""
        self._inbound.forget(self)
        if self.reader is not None:
            self.reader.cancel()

    async def drain(self) -> None:
        """End it once what the server has sent already is handled."""
        try:
            await self._inbound.stop(self)
            if self.reader is not None:
                await self.reader.finish()
        finally:
            await self.unsubscribe()


class Reader:
    """Hands the frames of a subscription to an async function, one after the other.

    Args:
        unread: frames that may lie unread; `put` drops one too many.
        unread_size: bytes that may lie unread.
    """

    def __init__(
        self,
        inbound: Inbound,
        subject: str,
        arrived: Callable[[WireFrame], Awaitable[None]],
        unread: int,
        unread_size: int,
    ) -> None:
        self.dropped = 0
        self._inbound = inbound
        self._subject = subject
        self._arrived = arrived
        self._unread = unread
        self._unread_size = unread_size
        self._frames: deque[WireFrame] = deque()
        self._size = 0
        self._more = asyncio.Event()
        self._finishing = False
        self._task = asyncio.create_task(self._run(), name=f"read {subject}")

    def put(self, frame: WireFrame) -> None:
        """Take a frame, or drop it."""
        size = len(frame.data)
        if len(self._frames) >= self._unread or self._size + size > self._unread_size:
            self.dropped += 1
            self._inbound.dropped += 1
            if self.dropped.bit_count() == 1:  # 1, 2, 4, ...: a flood must not become another
                self._inbound.report(
                    Refused(
                        f"a frame on {self._subject} was dropped: {len(self._frames)} lie unread"
                    )
                )
            return
        self._frames.append(frame)
        self._size += size
        self._more.set()

    async def finish(self) -> None:
        """Return when everything that came is handled."""
        self._finishing = True
        self._more.set()
        if asyncio.current_task() is not self._task:
            await asyncio.wait({self._task})

    def cancel(self) -> None:
        """End it, and cancel the function that handles a frame, unless that function calls this."""
        self._frames.clear()
        self._finishing = True
        self._more.set()
        with suppress(RuntimeError):
            if asyncio.current_task() is self._task:
                return
        self._task.cancel()

    async def _run(self) -> None:
        frames = self._frames
        while True:
            while frames:
                frame = frames.popleft()
                self._size -= len(frame.data)
                try:
                    await self._arrived(frame)
                except Exception as error:  # noqa: BLE001 - the next frame must be handled
                    self._inbound.report(error)
            if self._finishing:
                return
            self._more.clear()
            await self._more.wait()


class Watchers:
    """Bound methods to call at a denial, each as long as its object lives."""

    def __init__(self) -> None:
        self._methods: list[WeakMethod[Callable[[PostroomError, str], bool]]] = []

    def add(self, method: Callable[[PostroomError, str], bool]) -> None:
        """Add a method."""
        self._methods = [each for each in self._methods if each() is not None]
        self._methods.append(WeakMethod(method))

    def __iter__(self) -> Iterator[Callable[[PostroomError, str], bool]]:
        """The methods whose objects live."""
        for each in self._methods:
            method = each()
            if method is not None:
                yield method


def _ignore(_: WireFrame) -> None:
    """Drop a frame that comes before the subscription has its function."""
