"""One run of the agent program: lines in, lines out, and its end.

Its input has one writer at a time. A message counts as handed over when the agent has read it. Records beside messages
(receipts, errors) wait in a bounded queue; when the agent does not read, the newest are dropped.
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
from postroom.sidecar.reading import CHUNK, LOGGED, Hearing, Reading, log_output
from postroom.sidecar.status import StatusReporter

STALLED_AFTER = 60.0
"""Seconds that the agent may leave its input unread before it counts as stalled."""

QUEUE = 256
"""Records beside messages that may wait for the agent."""

LAST_WORDS = 20
"""Last lines of an agent's standard error that are kept."""

SAY_TIMEOUT = 0.5
"""Seconds to write the `stop` record into an input that may be full."""

TERM_GRACE = 1.0
"""Seconds between SIGTERM and SIGKILL."""

DRAIN_TIMEOUT = 10.0
"""Seconds to carry out the last lines of an agent that has ended."""

STOP_TIMEOUT = 1.0
"""The same when the worker is being stopped, which must not take long."""

_log = get_logger(__name__)

Handed = Incoming | IncomingTask | Mapping[str, Any]
"""Something for the agent: a message, a task, or a record beside them."""


class AgentRun(Protocol):
    """A run of the agent program, for the parts that hand it something.

    Attributes:
        ended: set when the run has ended and all that it said is carried out.
        how_ended: its end, for people.
        queues: what it is handed may wait long for its turn.
        begins: called when what it was handed has its turn, where it `queues`.
    """

    ended: asyncio.Event
    how_ended: str
    queues: bool
    begins: Callable[[], None]

    async def hand_over(self, incoming: Handed) -> bool:
        """Hand over a message, a task or a record; returns when the run has it, False if its adapter omits such.

        Raises:
            BrokenPipeError: the run will not read it.
        """
        ...

    def tell(self, record: Mapping[str, Any]) -> None:
        """Queue a record beside messages; it may be dropped."""
        ...

    async def say(self, record: Mapping[str, Any]) -> bool:
        """Write a record now. Returns and raises as `hand_over`."""
        ...

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the program and all of its group."""
        ...

    @property
    def free(self) -> bool:
        """Whether the run takes a task without waiting for the end of its last one."""
        ...

    @property
    def waits(self) -> bool:
        """Whether the run itself takes the answer to the question that it asked last."""
        ...

    async def let_go(self) -> None:
        """Wait until the run no longer works on its task, which has ended."""
        ...


class LastWords:
    """The last lines of an agent's standard error."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=LAST_WORDS)

    @property
    def text(self) -> str:
        """All of them."""
        return "\n".join(self.lines)

    async def read(self, stderr: asyncio.StreamReader) -> None:
        """Log the standard error to its end and keep its last lines."""
        reader = LineReader()
        while data := await stderr.read(CHUNK):
            for line in reader.feed(data):
                self._keep(line)
        for line in reader.finish():
            self._keep(line)

    def _keep(self, line: str | Overlong) -> None:
        text = line.prefix if isinstance(line, Overlong) else line
        log_output("stderr", text)
        self.lines.append(text[:LOGGED])


def nothing() -> None:
    """Do nothing."""


class Ending(Protocol):
    """What `end` needs of a run."""

    process: AgentProcess

    async def say(self, record: Mapping[str, Any]) -> bool:
        """Write a record now; returns and raises as `AgentRun.say`."""
        ...

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the program and all of its group."""
        ...


class AgentSession(AgentRun):
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
        self.queues = False
        self.begins: Callable[[], None] = nothing
        self.signalled = False
        self.words = LastWords()

    async def hand_over(self, incoming: Handed) -> bool:
        """See `AgentRun`. Returns when the agent has read all of its input."""
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
        """See `AgentRun`. The record is dropped while `QUEUE` records are unread."""
        line = self.adapter.render_control(record)
        if not line:
            return
        if len(self._queue) >= QUEUE:
            self._dropped += 1
            if self._dropped == 1:
                _log.warning(
                    "the agent does not read its input: records beside messages are dropped"
                )
            return
        self._queue.append(line)
        self._queued.set()

    async def say(self, record: Mapping[str, Any]) -> bool:
        line = self.adapter.render_control(record)
        if not line:
            return False
        async with self._writing:
            await self.process.input.write(line)
        return True

    async def taken(self) -> None:
        """Wait until the agent has read all of its input; raises BrokenPipeError."""
        async with self._writing:
            await self.process.input.drained()

    def send_signal(self, number: signal.Signals) -> None:
        self.signalled = True
        self.process.send_signal(number)

    @property
    def free(self) -> bool:
        """True: the program works on one task after the other."""
        return True

    @property
    def waits(self) -> bool:
        """True while it runs."""
        return not self.ended.is_set()

    async def let_go(self) -> None:
        """Return at once: the program works on one task after the other."""

    def over(self, how: str) -> None:
        """Mark the run as ended: all that the agent has said is carried out."""
        self.how_ended = how
        self.ended.set()

    async def write_queued(self) -> None:
        """Write the records that `tell` queued, until the agent closes its input."""
        try:
            while True:
                await self._queued.wait()
                self._queued.clear()
                while self._queue:
                    async with self._writing:
                        await self.process.input.write(self._queue.popleft())
        except BrokenPipeError:
            return


async def attend(
    session: AgentSession,
    hearing: Hearing,
    stop: asyncio.Event,
    grace: float,
    withdraw: Callable[[], Awaitable[None]],
) -> Exit:
    """Carry out what a run of the agent says, up to its end and what the end implies.

    Args:
        stop: ends the run when set.
        grace: seconds for the run to end by itself then.
        withdraw: called at the end of the run, so that nothing more is handed to it.
    """
    process = session.process
    try:
        async with asyncio.TaskGroup() as tasks:
            reading = Reading(process.stdout, session.adapter, hearing, tasks)
            readers = [
                tasks.create_task(reading.run()),
                tasks.create_task(session.words.read(process.stderr)),
            ]
            ended = await end(session, stop, grace)
            await withdraw()
            process.read_rest()
            drain = STOP_TIMEOUT if stop.is_set() else DRAIN_TIMEOUT
            await asyncio.wait(readers, timeout=drain)
            for task in readers:
                task.cancel()
            left = await reading.cancel()
    finally:
        process.close()
    final = End(ended.code, ended.signal, session.signalled, session.words.text)
    rest = deque(session.adapter.finish(final))
    if not left:  # what follows something that is lost is lost with it
        await _carry_out(rest, hearing, STOP_TIMEOUT if stop.is_set() else None)
    if left + len(rest):
        what = "%d actions of the agent could not be carried out before its end"
        _log.warning(what, left + len(rest))
    session.over(ended.detail)
    return ended


async def _carry_out(rest: deque[Said], hearing: Hearing, seconds: float | None) -> None:
    """Carry out what the end implies, at most for so long; what is left was not."""
    try:
        async with asyncio.timeout(seconds) as bound:
            while rest:
                await hearing.act(rest[0], hearing.owner_of(rest[0]))
                rest.popleft()
    except TimeoutError:
        if not bound.expired():
            raise


async def end(session: Ending, stop: asyncio.Event, grace: float) -> Exit:
    """Wait for the end of the run; once `stop` is set, end it within `grace` and some seconds."""
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


async def _stop(session: Ending, ended: asyncio.Future[Exit], grace: float) -> None:
    try:
        async with asyncio.timeout(SAY_TIMEOUT):
            await session.say({"type": "stop"})
    except (TimeoutError, BrokenPipeError):
        pass  # the agent does not read; the end of its input and the signals say the same
    session.process.input.close()
    for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, TERM_GRACE)):
        await asyncio.wait({ended}, timeout=seconds)
        if ended.done():
            return
        session.send_signal(number)
