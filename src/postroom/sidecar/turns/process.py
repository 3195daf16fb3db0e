"""The processes of a coding agent, one after the other, in one session that outlives each of them."""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from postroom.errors import StateUnwritable
from postroom.observe import get_logger
from postroom.protocol.events import EventKind
from postroom.protocol.template import McpServer
from postroom.sidecar.adapters.adapter import End
from postroom.sidecar.adapters.registry import turn_adapter
from postroom.sidecar.adapters.turns import Event, Setup, TurnAdapter, TurnSaid
from postroom.sidecar.config import AgentConfig
from postroom.sidecar.process import AgentProcess, Exit
from postroom.sidecar.reading import CHUNK
from postroom.sidecar.session import DRAIN_TIMEOUT, LastWords, end
from postroom.sidecar.turns.home import StateFile, make_home, write_files

SESSION = "session"
"""Name of the file with the agent's session in the state folder."""

SESSION_LOST = "session-lost"
"""Code of the ERROR event of an adapter whose program cannot go on in the session."""

UNHEARD = 2
"""Processes in a row that end at once with the session given: then it is given up for a new one."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the agent runs.

    Attributes:
        env: without what its adapter adds.
        state: the folder that keeps its session and its home.
        command, servers: of the template, with their variables filled in.
        instructions: what the agent is told of its colleagues, "" for nothing.
        unasked: whether a program that is started now is to ask for nothing (`Policy.unasked`).
    """

    env: Mapping[str, str]
    cwd: str
    state: Path
    command: tuple[str, ...]
    servers: tuple[McpServer, ...] = ()
    instructions: Callable[[], Awaitable[str]] | None = None
    unasked: Callable[..., bool] = lambda *, resident: False  # noqa: ARG005 (the default: it asks)


class Processes:
    """Starts the processes of one agent.

    Args:
        hear: called for all that a process says.
        lost_session: called when a session cannot be resumed.
    """

    def __init__(
        self,
        config: AgentConfig,
        place: Place,
        *,
        hear: Callable[[Running, TurnSaid], None],
        lost_session: Callable[[str], None],
    ) -> None:
        self._config = config
        self._place = place
        self._hear = hear
        self._lost_session = lost_session
        self._make = turn_adapter(config.adapter)
        self._file = StateFile(place.state / SESSION)
        kept = self._file.read()
        self._session = str(kept.get("session") or "") if _same(kept, config) else ""
        self._unheard = 0
        self._home = make_home(place.state)
        self._instructions = ""
        self.resident = True
        self.resident = self._adapter().resident

    @property
    def session(self) -> str:
        """The session to go on with, "" for a new one."""
        return self._session

    @property
    def unasked(self) -> bool:
        """Whether a process that is started now asks for nothing."""
        return self._place.unasked(resident=self.resident)

    def missing(self) -> str:
        """What is wrong with the command, "" if its program can be started."""
        program, path = self._adapter().command()[0], self._place.env.get("PATH", "")
        if "/" in program:
            found = shutil.which(str(Path(self._place.cwd) / program))
            return "" if found else f"{program} is not a program"
        return "" if shutil.which(program, path=path) else f"{program} is not in PATH, {path}"

    async def start(self, prompt: str = "", env: Mapping[str, str] | None = None) -> Running:
        """Start a process; raises OSError, ValueError or StateUnwritable."""
        if self._place.instructions is not None:
            self._instructions = await self._place.instructions()
        unasked, adapter = self.unasked, self._adapter()
        home = self._config.env.get("HOME") or str(self._home)
        if home == str(self._home):
            write_files(self._home, adapter.files())
        whole = {**self._place.env, "HOME": home, **adapter.environment(), **(env or {})}
        process = await AgentProcess.start(adapter.command(prompt), whole, self._place.cwd)
        running = Running(process, adapter, self._hear_of)
        running.unasked = unasked
        running.resumed = bool(self._session)
        running.write(adapter.begin())
        return running

    def ended(self, running: Running) -> None:
        """Judge the end of a process: a session that twice kept it from beginning is given up."""
        if not running.in_vain:
            self._unheard = 0
            return
        self._unheard += 1
        if self._session and self._unheard >= UNHEARD:
            self._lost_session(self._session)
            self._forget()

    def _forget(self) -> None:
        _log.warning("the session %s cannot be resumed: a new one begins", self._session)
        self._session, self._unheard = "", 0
        self._file.remove()

    def _hear_of(self, running: Running, said: TurnSaid) -> None:
        lost = isinstance(said, Event) and said.fields.get("code") == SESSION_LOST
        if lost and self._session:
            self._forget()
        elif running.heard and running.adapter.session != self._session:
            self._keep(running.adapter.session)
        self._hear(running, said)

    def _keep(self, session: str) -> None:
        self._session = session
        try:
            self._file.write({"session": session, "adapter": self._config.adapter})
        except StateUnwritable as error:
            _log.warning("the session is not kept over a restart: %s", error)

    def _adapter(self) -> TurnAdapter:
        return self._make(
            Setup(
                command=self._place.command,
                cwd=self._place.cwd,
                home=str(self._home),
                session=self._session,
                instructions=self._instructions,
                mcps=self._place.servers,
                autonomous=self.unasked,
            )
        )


def _same(kept: Mapping[str, object], config: AgentConfig) -> bool:
    """Whether the kept session is one of this agent's: `restart` may bring another template."""
    return kept.get("adapter") == config.adapter


_NO_BEGIN = frozenset({EventKind.ERROR, EventKind.RAW, EventKind.RESULT})
"""Events that a program may make that cannot begin its work."""


class Running:
    """A running process with its adapter: its input written, its output read, up to its end.

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
