"""What the streams brought and is not folded yet: one bounded queue for each stream, and one reader of all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from postroom.bus.port import Message

Mark = Callable[[], None]


class Intake:
    """Joins the records of several streams.

    Args:
        limit: records of one stream that may wait; who brings more waits for room. No stream takes another's room.
    """

    def __init__(self, streams: Iterable[str], limit: int) -> None:
        self._limit = limit
        self._records: dict[str, list[Message]] = {stream: [] for stream in streams}
        self._marks: dict[str, list[Mark]] = {stream: [] for stream in streams}
        self._blocked: set[str] = set()
        self._more = asyncio.Event()
        self._room = asyncio.Event()

    async def put(self, stream: str, record: Message) -> None:
        """Add a record; waits for room."""
        waiting = self._records[stream]
        while len(waiting) >= self._limit:
            self._room.clear()
            await self._room.wait()
        waiting.append(record)
        self._more.set()

    def mark(self, stream: str, done: Mark) -> None:
        """Have `done` called when what the stream has brought so far is folded."""
        self._marks[stream].append(done)
        self._more.set()

    def drop(self, stream: str) -> None:
        """Forget what the stream has brought."""
        self._records[stream].clear()
        self._marks[stream].clear()
        self._room.set()
        self.unblock(stream)

    def poke(self) -> None:
        """Let the reader come back, also with nothing."""
        self._more.set()

    def unblock(self, stream: str) -> None:
        """Hand out the records of a stream again."""
        self._blocked.discard(stream)
        self._more.set()

    async def take(self) -> tuple[dict[str, Sequence[Message]], dict[str, Sequence[Mark]]]:
        """All that waits, at once, and the marks behind it; waits until there is something."""
        await self._more.wait()
        self._more.clear()
        free = [stream for stream in self._records if stream not in self._blocked]
        taken: dict[str, Sequence[Message]] = {}
        marks: dict[str, Sequence[Mark]] = {}
        for stream in free:
            if records := self._records[stream]:
                taken[stream] = records[:]
                records.clear()
            if waiting := self._marks[stream]:
                marks[stream] = waiting[:]
                waiting.clear()
        self._room.set()
        return taken, marks

    def give_back(self, stream: str, records: Sequence[Message], marks: Sequence[Mark]) -> None:
        """Put records back to the front of their stream, and block it."""
        self._records[stream][:0] = records
        self._marks[stream][:0] = marks
        self._blocked.add(stream)
