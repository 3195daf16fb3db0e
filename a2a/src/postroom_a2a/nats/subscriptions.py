"""Interest in subjects, and who is told of what comes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Protocol
from weakref import WeakMethod

from postroom_a2a.errors import PostroomError, Refused
from postroom_a2a.nats.frame import WireFrame


class Keeper(Protocol):
    """What a subscription needs of its connection."""

    async def stop(self, subscription: WireSubscription) -> None:
        """Tell the server to send no more, and take what it has sent."""
        ...

    def forget(self, subscription: WireSubscription) -> None:
        """End it."""
        ...

    def report(self, error: Exception) -> None:
        """Tell what no call waits for."""
        ...

    dropped: int


class WireSubscription:
    """A subscription; it keeps the port `Subscription`.

    Args:
        sid: its number in the protocol.
        queue: group, "" for none.

    Attributes:
        take: called with each frame as it is read; must not wait.
        reader: that gives the frames to an async function, None where `take` is called at once.
        denied: why the server did not take it, None if it did.
        awaited: whether a call waits for the server's word on it.
    """

    def __init__(self, keeper: Keeper, sid: int, subject: str, queue: str) -> None:
        self.sid = sid
        self.subject = subject
        self.queue = queue
        self.take: Callable[[WireFrame], None] = _ignore
        self.reader: Reader | None = None
        self.denied: PostroomError | None = None
        self.awaited = False
        self._keeper = keeper

    @property
    def dropped(self) -> int:
        """Frames that were dropped since too many lay unread."""
        return self.reader.dropped if self.reader else 0

    @property
    def line(self) -> bytes:
        """The line that tells the server of it."""
        queue = f" {self.queue}" if self.queue else ""
        return f"SUB {self.subject}{queue} {self.sid}\r\n".encode("utf-8", "surrogateescape")

    @property
    def end(self) -> bytes:
        """The line that tells the server that it is over."""
        return b"UNSUB %d\r\n" % self.sid

    async def unsubscribe(self) -> None:
        """End it at once."""
        self._keeper.forget(self)
        if self.reader is not None:
            self.reader.cancel()

    async def drain(self) -> None:
        """End it when what the server has sent already was handled."""
        try:
            await self._keeper.stop(self)
            if self.reader is not None:
                await self.reader.finish()
        finally:
            await self.unsubscribe()


class Reader:
    """Gives the frames of a subscription to an async function, one after the other; bounded.

    Args:
        subject: of the subscription, for reports.
        unread: frames that may lie unread.
        unread_size: bytes of these.
    """

    def __init__(
        self,
        keeper: Keeper,
        subject: str,
        arrived: Callable[[WireFrame], Awaitable[None]],
        unread: int,
        unread_size: int,
    ) -> None:
        self.dropped = 0
        self._keeper = keeper
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
            self._keeper.dropped += 1
            if self.dropped.bit_count() == 1:  # 1, 2, 4, ...: a flood must not become another
                self._keeper.report(
                    Refused(
                        f"a frame on {self._subject} was dropped: {len(self._frames)} lie unread"
                    )
                )
            return
        self._frames.append(frame)
        self._size += size
        self._more.set()

    async def finish(self) -> None:
        """Return when everything that came was handled."""
        self._finishing = True
        self._more.set()
        if asyncio.current_task() is not self._task:
            await asyncio.wait({self._task})

    def cancel(self) -> None:
        """End it; the function that runs is cancelled, unless it is what asks for it."""
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
                    self._keeper.report(error)
            if self._finishing:
                return
            self._more.clear()
            await self._more.wait()


class Watchers:
    """Bound methods that are told something, each as long as its object lives."""

    def __init__(self) -> None:
        self._methods: list[WeakMethod[Callable[[PostroomError, str], bool]]] = []

    def add(self, method: Callable[[PostroomError, str], bool]) -> None:
        """Tell this one as well."""
        self._methods = [each for each in self._methods if each() is not None]
        self._methods.append(WeakMethod(method))

    def __iter__(self) -> Iterator[Callable[[PostroomError, str], bool]]:
        """Those that live."""
        for each in self._methods:
            method = each()
            if method is not None:
                yield method


def guarded(keeper: Keeper, arrived: Callable[[WireFrame], None]) -> Callable[[WireFrame], None]:
    """`arrived`, whose errors are reported."""

    def take(frame: WireFrame) -> None:
        try:
            arrived(frame)
        except Exception as error:  # noqa: BLE001 - the frames behind it must be read
            keeper.report(error)

    return take


def _ignore(_: WireFrame) -> None:
    """Nobody is told yet."""
