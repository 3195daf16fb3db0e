"""Reads of the audit log of one organisation: lines as they are in the files, oldest first, then new ones."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import aclosing, contextmanager
from functools import partial
from typing import Any

from postroom.audit import AuditLog
from postroom.audit.log import trouble_of
from postroom.audit.reading import Match, Position, Query, newest, read_lines
from postroom.projection.changes import Signal
from postroom.projection.tail import Next, TailPage, TailSource, tail
from postroom_a2a.times import parse_time

OMITTED = "omitted"
"""Field of the line that says how many lines of plumbing were left out before it."""

FOLLOW_INTERVAL = 0.1
"""Seconds between two reads of a follower, which must not slow the gateway."""

CHUNK = 64 * 1024
"""Bytes that are searched at a time."""

CHUNK_PAUSE = 0.002
"""Seconds between two chunks of stored lines: the gateway has the processor in between."""

READERS = 8
"""Requests that read stored lines at a time; further ones wait."""


class AuditView:
    """Streams the lines that match a query."""

    def __init__(self, log: AuditLog, org: str, clock: Callable[[], float] = time.time) -> None:
        self.org = org
        self.clock = clock
        self._log = log
        self._slots = asyncio.Semaphore(READERS)
        self._ending: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def trouble(self) -> str:
        """Why the log cannot be written, "" if it can."""
        return trouble_of(self._log)

    def close(self) -> None:
        """End the streams that follow."""
        if not self._ending.done():
            self._ending.set_result(None)

    async def stream(self, query: Query, *, limit: int, follow: bool) -> AsyncIterator[bytes]:
        """The lines that match `query`, with their breaks, then how many were left out, if any.

        Args:
            limit: only the last so many stored lines, 0 for all.
            follow: go on with new lines.
        """
        end = self._log.end
        async with self._slots:
            if limit:
                lines, omitted = await asyncio.to_thread(self._newest, query, limit, end)
                yield _joined(lines)
            else:
                omitted = 0
                async for chunk, left_out in self._past(query, end):
                    omitted += left_out
                    if chunk:
                        yield chunk
        if omitted:
            yield json.dumps({OMITTED: omitted}).encode() + b"\n"
        if follow:
            async with aclosing(
                tail(_NewLines(self._log, self._ending, partial(self._read, query)), end)
            ) as found:
                async for chunk in found:
                    yield b"\n" if chunk is Signal.QUIET else chunk

    def _newest(self, query: Query, limit: int, end: Position) -> tuple[list[bytes], int]:
        begin = self._begin(query)
        return newest(self._log.files, end, limit, query.match, lambda number: number >= begin)

    def _begin(self, query: Query) -> int:
        """Number of the first file that can have a record of the time in question, 0 for any."""
        if not query.since:
            return 0
        since, begin = parse_time(query.since), 0
        for number in self._log.files.closed():
            try:
                if self._log.files.closed_path(number).stat().st_mtime >= since:
                    break
            except OSError:  # deleted just now
                continue
            begin = number + 1
        return begin

    async def _past(self, query: Query, end: Position) -> AsyncIterator[tuple[bytes, int]]:
        position = Position(await asyncio.to_thread(self._begin, query))
        while not self._ending.done():
            chunk, omitted, reached = await asyncio.to_thread(self._read, query, position, end)
            if reached == position:
                return
            yield chunk, omitted
            position = reached
            await asyncio.sleep(CHUNK_PAUSE)

    def _read(self, query: Query, start: Position, end: Position) -> tuple[bytes, int, Position]:
        lines, reached = read_lines(self._log.files, start, end, CHUNK)
        matched = [(line, query.match(line)) for line in lines]
        wanted = [line for line, what in matched if what is Match.WANTED]
        return _joined(wanted), sum(what is Match.OMITTED for _, what in matched), reached


class _NewLines(TailSource[bytes, Position]):
    """Lines as the log grows; it says itself when it has."""

    def __init__(
        self, log: AuditLog, ending: asyncio.Future[None], read: Callable[..., Any]
    ) -> None:
        self._log = log
        self._ending = ending
        self._lines = read
        self._growth = log.growth()

    @contextmanager
    def listen(self) -> Generator[Next]:
        yield self._grown

    async def _grown(self, timeout: float) -> Signal:
        waited = {self._growth, self._ending}
        done, _ = await asyncio.wait(waited, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        self._growth = self._log.growth()
        if self._ending.done():
            return Signal.CLOSED
        return Signal.GAP if done else Signal.QUIET

    async def read(self, after: Position) -> TailPage[bytes, Position]:
        await asyncio.sleep(FOLLOW_INTERVAL)
        chunk, _, reached = await asyncio.to_thread(self._lines, after, self._log.end)
        return TailPage([chunk] if chunk else [], reached, reached != after, self._ending.done())


def _joined(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)
