"""One run of the agent as the rest of the sidecar sees it: lines in, lines out, and how it is brought to its end.

Its input has one writer at a time. Messages are written and awaited until they were read; what is beside
messages (receipts, errors) waits in a bounded queue, and the newest is dropped when the agent does not read.
"""

from __future__ import annotations

import asyncio
import signal
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from postroom.observe import get_logger
from postroom.sidecar.adapters import Adapter, End, Incoming, IncomingTask, Said
from postroom.sidecar.lines import LineReader, Overlong
from postroom.sidecar.process import AgentProcess, Exit
from postroom.sidecar.status import StatusReporter
from postroom_a2a.text import printable

STALLED_AFTER = 60.0
"""Seconds that the agent may leave its input unread before it counts as stalled."""

QUEUE = 256
"""Records beside messages that wait for the agent to read."""

CHUNK = 64 * 1024
LOGGED = 2000
"""Characters of one line of output that go to the log."""

LAST_WORDS = 20
"""Lines of its standard error that are kept of an agent that ends."""

SAY_TIMEOUT = 0.5
"""Seconds to get the `stop` record into an input that may be full."""

TERM_GRACE = 1.0
"""Seconds between SIGTERM and SIGKILL."""

DRAIN_TIMEOUT = 10.0
"""Seconds to carry out what an ended agent had printed before its end."""

STOP_TIMEOUT = 1.0
"""The same when the worker is being stopped, and whoever stops it will not wait for long."""

_log = get_logger(__name__)

Handed = Incoming | IncomingTask | Mapping[str, Any]
"""What an agent can be handed: a message, a task, or a record beside them."""


class AgentRun(Protocol):
    """A run of the agent program, as those see it who hand it something.

    Attributes:
        ended: set when all that it has said was acted on.
        how_ended: for people, once it has.
    """

    ended: asyncio.Event
    how_ended: str

    async def hand_over(self, incoming: Handed) -> bool:
        """Give it a message, a task or a record; returns when it has it. False if it is not shown such.

        Raises:
            BrokenPipeError: it will not read it.
        """
        ...

    def tell(self, record: Mapping[str, Any]) -> None:
        """Give it a record beside messages when it reads; it may be dropped."""
        ...

    async def say(self, record: Mapping[str, Any]) -> bool:
        """Write a record now; False if it is not shown such. Raises as `hand_over`."""
        ...

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the program and all of its group."""
        ...

    async def let_go(self) -> None:
        """Its task is over: wait until it has nothing more to do with it."""
        ...


class AgentSession:
    """The running agent program with its adapter."""

    def __init__(self, process: AgentProcess, adapter: Adapter, status: StatusReporter) -> None:
        self.process = process
        self.adapter = adapter
        self._status = status
        self._writing = asyncio.Lock()
        self._queue: deque[bytes] = deque()
        self._queued = asyncio.Event()
        self._dropped = 0
        self.ended = asyncio.Event()
        self.how_ended = ""
        self.told_to_end = False
        self.last_words: deque[str] = deque(maxlen=LAST_WORDS)

    async def hand_over(self, incoming: Handed) -> bool:
        """Write a message, a task or a record, and wait until the agent has read its input empty.

        Returns:
            False if it is not shown such.

        Raises:
            BrokenPipeError: the agent will not read it.
        """
        match incoming:
            case IncomingTask():
                line = self.adapter.render_task(incoming)
            case Incoming():
                line = self.adapter.render(incoming)
            case _:
                line = self.adapter.render_control(incoming)
        if not line:
            return False
        loop = asyncio.get_running_loop()
        alarm = loop.call_later(STALLED_AFTER, self._status.stalled, "it does not read its input")
        try:
            async with self._writing:
                await self.process.input.write(line)
                await self.process.input.drained()
        except BrokenPipeError:
            self._status.stalled("it closed its input")
            raise
        finally:
            alarm.cancel()
        self._status.stalled("")
        return True

    def tell(self, record: Mapping[str, Any]) -> None:
        """Queue a record beside messages; it is dropped if the agent leaves too many unread."""
        line = self.adapter.render_control(record)
        if not line:
            return
        if len(self._queue) >= QUEUE:
            self._dropped += 1
            if self._dropped == 1:
                _log.warning("the agent does not read its input: receipts are dropped")
            return
        self._queue.append(line)
        self._queued.set()

    async def say(self, record: Mapping[str, Any]) -> bool:
        """Write a record now; False if the agent is not shown such.

        Raises:
            BrokenPipeError: the agent will not read it.
        """
        line = self.adapter.render_control(record)
        if not line:
            return False
        async with self._writing:
            await self.process.input.write(line)
        return True

    async def taken(self) -> None:
        """Wait until the agent has read all that it was told.

        Raises:
            BrokenPipeError: it will not.
        """
        async with self._writing:
            await self.process.input.drained()

    def send_signal(self, number: signal.Signals) -> None:
        """See `Run`."""
        self.told_to_end = True
        self.process.send_signal(number)

    async def let_go(self) -> None:
        """Return at once: the program works on one task after the other."""

    def over(self, how: str) -> None:
        """Everything that the agent has said was acted on; nothing more comes."""
        self.how_ended = how
        self.ended.set()

    async def write_queued(self) -> None:
        """Write what `tell` queued, until the agent stops reading."""
        try:
            while True:
                await self._queued.wait()
                self._queued.clear()
                while self._queue:
                    async with self._writing:
                        await self.process.input.write(self._queue.popleft())
        except BrokenPipeError:
            return

    async def read_stdout(self, act: Callable[[Said], Awaitable[None]]) -> None:
        """Act on each line the agent prints, one after the other, until it closes its output.

        Not reading on while an action is carried out is the back-pressure: the pipe fills, and the agent waits.
        """
        reader = LineReader()
        while data := await self.process.stdout.read(CHUNK):
            for line in reader.feed(data):
                await self._act_on(line, act)
        for line in reader.finish():
            await self._act_on(line, act)

    async def read_stderr(self) -> None:
        """Log what the agent prints to its standard error, and keep its last lines."""
        reader = LineReader()
        while data := await self.process.stderr.read(CHUNK):
            for line in reader.feed(data):
                self._keep(line)
        for line in reader.finish():
            self._keep(line)

    def _keep(self, line: str | Overlong) -> None:
        text = line.prefix if isinstance(line, Overlong) else line
        log_output("stderr", text)
        self.last_words.append(text[:LOGGED])

    async def _act_on(self, line: str | Overlong, act: Callable[[Said], Awaitable[None]]) -> None:
        if isinstance(line, Overlong):
            log_output("over-long line", line.prefix)
        actions = self.adapter.skip() if isinstance(line, Overlong) else self.adapter.feed(line)
        for action in actions:
            await act(action)


async def attend(
    session: AgentSession,
    act: Callable[[Said], Awaitable[None]],
    stop: asyncio.Event,
    grace: float,
    withdraw: Callable[[], Awaitable[None]],
) -> Exit:
    """Carry out what a run of the agent says, up to its end and all that its end implies.

    Args:
        stop: set to end it, which takes `grace` and some seconds.
        grace: seconds that it has to end by itself then.
        withdraw: called as soon as it has ended, so that nothing more is handed to it.
    """
    process = session.process
    try:
        async with asyncio.TaskGroup() as tasks:
            readers = [
                tasks.create_task(session.read_stdout(act)),
                tasks.create_task(session.read_stderr()),
            ]
            ended = await end(session, stop, grace)
            await withdraw()
            process.read_rest()
            drain = STOP_TIMEOUT if stop.is_set() else DRAIN_TIMEOUT
            await asyncio.wait(readers, timeout=drain)
            for task in readers:
                task.cancel()
    finally:
        process.close()
    final = End(ended.code, ended.signal, session.told_to_end, "\n".join(session.last_words))
    for action in session.adapter.finish(final):
        await act(action)
    session.over(ended.detail)
    return ended


async def end(session: AgentSession, stop: asyncio.Event, grace: float) -> Exit:
    """Wait for the end of the run; once `stop` is set, bring it about within `grace` and some seconds."""
    ended = asyncio.ensure_future(session.process.ended())
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({ended, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            await _stop(session, ended, grace)
        return await ended
    finally:
        stopping.cancel()
        ended.cancel()


async def _stop(session: AgentSession, ended: asyncio.Future[Exit], grace: float) -> None:
    try:
        async with asyncio.timeout(SAY_TIMEOUT):
            await session.say({"type": "stop"})
    except (TimeoutError, BrokenPipeError):
        pass  # it does not read; the end of its input and the signals say the same
    session.process.input.close()
    for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, TERM_GRACE)):
        await asyncio.wait({ended}, timeout=seconds)
        if ended.done():
            return
        session.send_signal(number)


def log_output(source: str, text: str) -> None:
    """Log a line of the agent's, made harmless for terminals; its indentation stays, since it says something."""
    line = printable(text).replace("\n", " ").rstrip()
    _log.info("agent %s: %s", source, line if len(line) <= LOGGED else f"{line[: LOGGED - 1]}…")
