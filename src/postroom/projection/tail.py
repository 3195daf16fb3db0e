"""What a source has past a cursor, page by page, then each record as it is committed: none is missed, none comes twice.

`tail` is the one reader of all live views; what it reads is a `TailSource`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from postroom.projection.changes import LISTENER_LIMIT, Change, Changes, Signal, Topic
from postroom.protocol.intervals import STREAM_BEAT

R = TypeVar("R")
C = TypeVar("C")

Quiet = Literal[Signal.QUIET]

Next = Callable[[float], Awaitable[Change | Signal]]
"""The next change within that many seconds, or a signal."""


@dataclass(frozen=True, slots=True)
class TailPage(Generic[R, C]):
    """Records past a cursor, oldest first.

    Attributes:
        cursor: behind them.
        more: there may be more already, so the next page is read at once.
        ended: there will never be more.
    """

    records: Sequence[R]
    cursor: C
    more: bool = False
    ended: bool = False


class TailSource(Generic[R, C]):
    """What one reader follows; it may remember what that reader was given.

    Attributes:
        limit: changes that wait while the reader is busy; when there are more, the source reads again instead.
    """

    limit = LISTENER_LIMIT

    def __init__(self, changes: Changes, *topics: Topic) -> None:
        self._changes = changes
        self._topics = topics

    @contextmanager
    def listen(self) -> Generator[Next]:
        """Listen to the changes after which there may be more."""
        with self._changes.listen(*self._topics, limit=self.limit, only=self.concerns) as listener:
            yield listener.next

    def concerns(self, change: Change) -> bool:  # noqa: ARG002 (for those that choose)
        """Whether a change of the topics matters."""
        return True

    async def open(self, after: C) -> TailPage[R, C]:
        """What a reader that has everything up to `after` is given first."""
        return TailPage((), after, more=True)

    async def read(self, after: C) -> TailPage[R, C]:
        """The first page past `after`."""
        raise NotImplementedError

    async def heard(self, change: Change | Quiet, after: C) -> TailPage[R, C] | None:  # noqa: ARG002
        """What a change brings, or `STREAM_BEAT` seconds in which nothing came; None to read."""
        return None


async def tail(source: TailSource[R, C], after: C) -> AsyncGenerator[R | Quiet]:
    """The records of `source` past `after`, until they have ended, the reader goes or the post room ends.

    `Signal.QUIET` comes whenever nothing else has for `STREAM_BEAT` seconds.
    """
    now = asyncio.get_running_loop().time
    # Listening begins before the first read, so nothing falls between.
    with source.listen() as following:
        page = await source.open(after)
        due = now() + STREAM_BEAT
        while True:
            for record in page.records:
                yield record
                due = now() + STREAM_BEAT
            if page.ended:
                return
            if now() >= due:  # what comes may bring this reader nothing
                yield Signal.QUIET
                due = now() + STREAM_BEAT
            cursor, change = page.cursor, Signal.GAP
            if not page.more:
                change = await following(due - now())
            if change is Signal.CLOSED:
                return
            brought = None if change is Signal.GAP else await source.heard(change, cursor)
            page = await source.read(cursor) if brought is None else brought
