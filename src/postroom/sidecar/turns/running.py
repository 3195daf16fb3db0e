"""One process of a coding agent: its input written, its output read, up to its end."""

from __future__ import annotations

import asyncio
import signal
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from postroom.protocol.events import EventKind
from postroom.sidecar.adapters.adapter import End
from postroom.sidecar.adapters.turns import Event, TurnAdapter, TurnSaid
from postroom.sidecar.process import AgentProcess, Exit
from postroom.sidecar.reading import CHUNK
from postroom.sidecar.session import DRAIN_TIMEOUT, LastWords, end

_NO_BEGIN = frozenset({EventKind.ERROR, EventKind.RAW, EventKind.RESULT})
"""Events that a program may make that cannot begin its work."""


class Running:
    """A running process with its adapter.

    Args:
        hear: called for all that the adapter makes of the output, in order.

    Attributes:
        begun: set when it has printed something.
        heard: it has begun its work: something other than errors was heard before its end.
        resumed: it was started to go on with a session.
        unasked: it was started to ask for nothing.
        over: the process has ended; what is heard then is what its end implies.
        ended: set when all of its output was heard.
        how: its end, once there is one.
    """

    def __init__(
        self,
        process: AgentProcess,
        adapter: TurnAdapter,
        hear: Callable[[Running, TurnSaid], None],
    ) -> None:
        self.process = process
        self.adapter = adapter
        self._hear = hear
        self._out: deque[bytes | None] = deque()
        self._more = asyncio.Event()
        self.words = LastWords()
        self.signalled = False
        self.begun = asyncio.Event()
        self.heard = False
        self.resumed = False
        self.unasked = False
        self.over = False
        self.ended = asyncio.Event()
        self.how = Exit(0)

    @property
    def in_vain(self) -> bool:
        """Whether it has failed before it could go on with its session."""
        failed = bool(self.how.code) and not self.how.signal
        return self.over and self.resumed and not self.heard and failed

    def write(self, data: bytes) -> None:
        """Write into its input, behind what was written before."""
        if data:
            self._out.append(data)
            self._more.set()

    def close_input(self) -> None:
        """Close its input behind what was written."""
        self._out.append(None)
        self._more.set()

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the program and all of its group."""
        self.signalled = True
        self.process.send_signal(number)

    async def say(self, record: Mapping[str, Any]) -> bool:  # noqa: ARG002
        """Nothing: a coding agent reads no records."""
        return False

    async def attend(self, stop: asyncio.Event, grace: float) -> Exit:
        """Read what it says, up to its end and what the end implies; once `stop` is set, end it."""
        process = self.process
        try:
            async with asyncio.TaskGroup() as tasks:
                readers = [
                    tasks.create_task(self._read()),
                    tasks.create_task(self.words.read(process.stderr)),
                ]
                writer = tasks.create_task(self._write())
                self.how = await end(self, stop, grace)
                writer.cancel()
                process.read_rest()
                await asyncio.wait(readers, timeout=DRAIN_TIMEOUT)
                for reader in readers:
                    reader.cancel()
        finally:
            process.close()
        self.over = True
        final = End(self.how.code, self.how.signal, self.signalled, self.words.text)
        self._take(self.adapter.finish(final))
        self.ended.set()
        return self.how

    async def _read(self) -> None:
        while data := await self.process.stdout.read(CHUNK):
            self.begun.set()
            self._take(self.adapter.feed(data))
            # A reader with data at hand does not wait: others would never have their turn.
            await asyncio.sleep(0)

    def _take(self, said: list[TurnSaid]) -> None:
        for each in said:
            if isinstance(each, Event) and each.kind not in _NO_BEGIN and not self.over:
                self.heard = True
            self._hear(self, each)

    async def _write(self) -> None:
        try:
            while True:
                await self._more.wait()
                self._more.clear()
                while self._out:
                    data = self._out.popleft()
                    if data is None:
                        await self.process.input.drained()
                        self.process.input.close()
                        return
                    await self.process.input.write(data)
        except BrokenPipeError:
            return  # its end, or its silence, says the rest
