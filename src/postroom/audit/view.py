"""Reads of the audit log of one organisation: lines as they are in the files, oldest first, then new ones."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable

from postroom.audit import AuditLog
from postroom.audit.log import trouble_of
from postroom.audit.reading import Match, Position, Query, newest, read_lines
from postroom.protocol.intervals import STREAM_BEAT
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
            async for chunk in self._live(query, end):
                yield chunk

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

    async def _live(self, query: Query, position: Position) -> AsyncIterator[bytes]:
        while not self._ending.done():
            growth = self._log.growth()
            chunk, _, reached = await asyncio.to_thread(self._read, query, position, self._log.end)
            if chunk:
                yield chunk
            if reached == position:
                waited = {growth, self._ending}
                done, _ = await asyncio.wait(
                    waited, timeout=STREAM_BEAT, return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    yield b"\n"
            position = reached
            await asyncio.sleep(FOLLOW_INTERVAL)

    def _read(self, query: Query, start: Position, end: Position) -> tuple[bytes, int, Position]:
        lines, reached = read_lines(self._log.files, start, end, CHUNK)
        matched = [(line, query.match(line)) for line in lines]
        wanted = [line for line, what in matched if what is Match.WANTED]
        return _joined(wanted), sum(what is Match.OMITTED for _, what in matched), reached


def _joined(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)
