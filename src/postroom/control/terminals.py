"""Terminals that people have open in the sandboxes of workers: each joins a person and a sidecar in this process.

The person comes by a WebSocket, the sidecar by two requests through its door (`protocol.terminals`). Nothing of what is
typed or printed is stored. That a terminal was opened and closed is in the log, as events of the worker, and in the
audit log.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from contextlib import asynccontextmanager
from typing import Any

from postroom.audit.log import AuditLog
from postroom.errors import Conflict, NotFound, RequestTimeout
from postroom.events.service import EventLog
from postroom.protocol.audit import API, AuditRecord
from postroom.protocol.events import EventKind
from postroom.protocol.principal import Principal
from postroom.protocol.terminals import (
    BEAT_EVERY,
    MAX_PIECE,
    SILENCE,
    FrameKind,
    FrameReader,
    end,
    frame,
    reason_in,
    resize,
    status_in,
)
from postroom.store.agents import Agent
from postroom_a2a.times import format_time

MEET = 10.0
"""Seconds for the sidecar to open what it was asked for."""

WAITING = 16
"""Pieces that wait in each direction; then their sender has to wait."""

SIDES = ("input", "output")
"""The two requests of a sidecar."""


class _Pieces:
    """A bounded queue of pieces that can be closed, for one writer and one reader."""

    def __init__(self) -> None:
        self._waiting: deque[bytes] = deque()
        self._closed = False
        self._changed = asyncio.Event()

    async def put(self, piece: bytes) -> None:
        """Wait for room; after `close` it is dropped."""
        while len(self._waiting) >= WAITING and not self._closed:
            await self._change()
        if not self._closed:
            self._waiting.append(piece)
            self._changed.set()

    async def get(self) -> bytes | None:
        """Wait for the next piece; None when it is closed and empty."""
        while not self._waiting:
            if self._closed:
                return None
            await self._change()
        self._changed.set()
        return self._waiting.popleft()

    def close(self) -> None:
        """No further pieces are taken."""
        self._closed = True
        self._changed.set()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()


class OpenTerminal:
    """One terminal, from both sides.

    Attributes:
        holder: who has opened it.
        status: the shell's exit status, None as long as it is not known.
        reason: why it has ended, "" as long as it has not.
        typed, printed: bytes that have passed.
    """

    def __init__(self, worker: str, holder: Principal, now: float) -> None:
        self.id = secrets.token_hex(16)
        self.worker = worker
        self.holder = holder
        self.since = now
        self.status: int | None = None
        self.reason = ""
        self.typed = self.printed = 0
        self._down, self._up = _Pieces(), _Pieces()
        self._sides: set[str] = set()
        self._ready = asyncio.Event()
        """set when the sidecar has come, or the terminal has ended"""

    async def met(self) -> None:
        """Wait for the sidecar; raises RequestTimeout."""
        try:
            async with asyncio.timeout(MEET):
                await self._ready.wait()
        except TimeoutError:
            raise RequestTimeout(
                f"the worker has not opened a terminal within {MEET:g} s",
                remedy="see what it logs: postroom logs --all",
            ) from None

    async def type(self, data: bytes) -> None:
        """Pass on what the person types."""
        for start in range(0, len(data), MAX_PIECE):
            piece = data[start : start + MAX_PIECE]
            self.typed += len(piece)
            await self._down.put(frame(FrameKind.DATA, piece))

    async def resize(self, columns: int, rows: int) -> None:
        """Pass on the size of the person's terminal."""
        await self._down.put(resize(columns, rows))

    async def output(self) -> AsyncGenerator[bytes]:
        """What the shell prints, up to the end of the terminal."""
        while (piece := await self._up.get()) is not None:
            yield piece

    def finish(self, reason: str) -> None:
        """End it for both sides; the first reason counts. What was printed can still be read."""
        self.reason = self.reason or reason
        self._ready.set()
        self._down.close()
        self._up.close()

    async def typed_frames(self) -> AsyncGenerator[bytes]:
        """The answer to the sidecar's first request: frames, up to the end of the terminal."""
        self._join("input")
        try:
            while True:
                try:
                    async with asyncio.timeout(BEAT_EVERY):
                        piece = await self._down.get()
                except TimeoutError:
                    piece = frame(FrameKind.BEAT)
                if piece is None:
                    yield end()
                    return
                yield piece
        finally:
            self.finish("the worker has ended it")

    async def take_printed(self, body: AsyncIterable[bytes]) -> None:
        """Take the body of the sidecar's second request, up to the end of the terminal.

        Raises:
            ProtocolViolation: it is not made of frames.
        """
        self._join("output")
        reader, pieces = FrameReader(), aiter(body)
        try:
            while not self.reason:
                async with asyncio.timeout(SILENCE):
                    piece = await anext(pieces, b"")
                if not piece:
                    return
                for kind, rest in reader.feed(piece):
                    await self._take(kind, rest)
        except TimeoutError:
            self.finish("the worker has fallen silent")
        finally:
            self.finish("the worker has ended it")

    async def _take(self, kind: FrameKind, rest: bytes) -> None:
        if kind is FrameKind.DATA:
            self.printed += len(rest)
            await self._up.put(rest)
        elif kind is FrameKind.END:
            self.status = status_in(rest)
            self.finish("the shell has ended")
        elif kind is FrameKind.FAILED:
            self.finish(f"it is broken: {reason_in(rest)}")

    def _join(self, side: str) -> None:
        if side in self._sides or self.reason:
            raise Conflict("this side of the terminal is taken")
        self._sides.add(side)
        if len(self._sides) == len(SIDES):
            self._ready.set()


class Terminals:
    """The open terminals of an organisation, one of each worker.

    Args:
        events: gets an event when one is opened, which the sidecar hears of, and when one is closed.
    """

    def __init__(
        self, events: EventLog, audit: AuditLog, org: str, clock: Callable[[], float] = time.time
    ) -> None:
        self._events = events
        self._audit = audit
        self._org = org
        self._clock = clock
        self._open: dict[str, OpenTerminal] = {}

    def of_worker(self, worker: str, terminal: str) -> OpenTerminal:
        """The open terminal with that id, for the sidecar of its worker; raises NotFound."""
        found = self._open.get(worker)
        if found is None or found.id != terminal:
            raise NotFound("nobody waits for this terminal")
        return found

    @asynccontextmanager
    async def opened(
        self, worker: Agent, holder: Principal, size: tuple[int, int]
    ) -> AsyncGenerator[OpenTerminal]:
        """Open a terminal in a worker's sandbox; it is closed at the end of the block.

        Raises:
            Conflict: somebody has one open there.
            RequestTimeout: the sidecar does not come.
        """
        other = self._open.get(worker.uid)
        if other is not None:
            since = format_time(other.since)
            raise Conflict(
                f"@{other.holder.nick} has a terminal open in @{worker.nick} since {since}",
                remedy="there is one at a time",
            )
        terminal = self._open[worker.uid] = OpenTerminal(worker.uid, holder, self._clock())
        self._note(terminal, "open")
        try:
            await self._say(terminal, "opened", cols=size[0], rows=size[1])
            await terminal.met()
            yield terminal
        finally:
            terminal.finish("the person has gone")
            del self._open[worker.uid]
            self._note(terminal, "close")
            await self._say(
                terminal,
                "closed",
                reason=terminal.reason,
                typed=terminal.typed,
                printed=terminal.printed,
            )

    def close(self) -> None:
        """End all of them: the post room goes down."""
        for terminal in self._open.values():
            terminal.finish("the post room goes down")

    async def _say(self, terminal: OpenTerminal, state: str, **more: Any) -> None:
        by = {"uid": terminal.holder.uid, "nick": terminal.holder.nick}
        about = {"type": EventKind.TERMINAL.value, "terminal": terminal.id, "state": state}
        await self._events.append(terminal.worker, [{**about, "by": by, **more}])

    def _note(self, terminal: OpenTerminal, verb: str) -> None:
        record = AuditRecord(
            at=format_time(self._clock()),
            by=API,
            org=self._org,
            protocol="terminal",
            verb=verb,
            worker=terminal.worker,
            about=terminal.id,
            size=terminal.typed + terminal.printed,
            reason=terminal.reason,
            principal=terminal.holder.uid,
            nick=terminal.holder.nick,
            key=terminal.holder.key_id,
        )
        self._audit.note(record.encode())
