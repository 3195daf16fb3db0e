"""A coding agent over all of its turns: an `AgentProgram`.

One turn at a time; messages, posts and tasks wait in their order. A resident program is started at once, started again
when it ends, in its session, and given up after a number of restarts in a row without a turn that came to its end. Its
exit code does not matter: a coding agent works until it is stopped.
"""

from __future__ import annotations

import asyncio
import secrets
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from postroom.errors import StateUnwritable
from postroom.observe import get_logger
from postroom.protocol.alerts import Alert, RaiseAlert
from postroom.protocol.events import EventKind
from postroom.protocol.presence import WorkerState
from postroom.sidecar.adapters.turns import Answer, Asked, Event, TurnSaid, Write
from postroom.sidecar.adapters.wording import Request
from postroom.sidecar.agent import NOT_EXECUTABLE, STARTED_AFTER, AgentGone, AgentHost, AgentProgram
from postroom.sidecar.bus import BACKOFF
from postroom.sidecar.config import AgentConfig
from postroom.sidecar.process import Exit
from postroom.sidecar.status import StatusReporter
from postroom.sidecar.turns.desk import Desk
from postroom.sidecar.turns.lane import Lane
from postroom.sidecar.turns.processes import SESSION_LOST, Place, Processes
from postroom.sidecar.turns.running import Running
from postroom.sidecar.turns.runs import TurnRun
from postroom.sidecar.turns.steering import Record
from postroom.sidecar.turns.turn import Turn
from postroom_a2a.text import one_line

_log = get_logger(__name__)


@dataclass(eq=False)
class Floor:
    """What all turns of the program share.

    Attributes:
        grace: seconds for a process to end by itself once `stop` is set.
        current: the process that has a turn, and its run.
        spare: the next end of a process is the sidecar's own doing, and counts as no failure.
    """

    desk: Desk
    processes: Processes
    host: AgentHost
    grace: float
    tasks: asyncio.TaskGroup
    stop: asyncio.Event
    resident_changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    lane: Lane = field(default_factory=Lane)
    current: tuple[Running, TurnRun] | None = None
    spare: bool = False
    over: bool = False
    _resident: Running | None = None
    _turns: int = 0
    _run: str = field(default_factory=lambda: secrets.token_hex(4))

    async def resident(self) -> Running:
        """The process that runs all the time; waits for it. Raises AgentGone if none will come."""
        async with self.resident_changed:
            while (running := self._resident) is None or running.unasked is not (
                self.processes.unasked
            ):
                if self.over or self.stop.is_set():
                    raise AgentGone
                if running is not None:
                    # People have taken back that it asks for nothing: only its start says so. It is between turns.
                    self.spare = True
                    running.send_signal(signal.SIGKILL)
                await self.resident_changed.wait()
            return running

    async def publish(self, running: Running | None, *, over: bool = False) -> None:
        """Say which process runs; with `over`, that no other follows."""
        async with self.resident_changed:
            self._resident, self.over = running, over or self.over
            self.resident_changed.notify_all()

    def new_turn(self, request: Request) -> Turn:
        """A turn that begins now."""
        self._turns += 1
        loop = asyncio.get_running_loop()
        now = loop.time()
        return Turn(f"{self._run}-{self._turns}", request, now, now, loop.create_future())

    def leave(self, run: TurnRun) -> None:
        """The run's turn is over: the next one has it."""
        if self.current is not None and self.current[1] is run:
            self.current = None
        self.lane.leave()

    def gone(self, running: Running) -> None:
        """The process has ended, and all that this implies was heard."""
        self.processes.ended(running)
        if self.current is not None and self.current[0] is running:
            self.current[1].lost()

    def used(self, usage: Mapping[str, Any]) -> None:
        """Count a usage event."""
        before = self.desk.budget.spent
        try:
            self.desk.budget.add(usage)
        except StateUnwritable as error:
            _log.warning("the usage is not kept over a restart: %s", error)
        if (why := self.desk.budget.spent) and not before:
            self.desk.status.stalled(why)
            self.tasks.create_task(_alert(self.desk, Alert("budget", why)))


async def _alert(desk: Desk, alert: Alert) -> None:
    await desk.raise_alert(alert)


class TurnProgram(AgentProgram):
    """The program of a coding agent.

    Args:
        place: where it runs.
        desk: what it may do, and who is told.
    """

    session = None
    """None: no run reads records beside its request."""

    def __init__(
        self,
        config: AgentConfig,
        place: Place,
        desk: Desk,
        *,
        status: StatusReporter,
        raise_alert: RaiseAlert,
    ) -> None:
        super().__init__(
            config, env=place.env, cwd=place.cwd, status=status, raise_alert=raise_alert
        )
        self._desk = desk
        self._processes = Processes(config, place, hear=self._hear, lost_session=self._session_lost)
        self._floor: Floor | None = None
        self._ready = asyncio.Event()
        self._restarts = 0
        self._last_words: list[str] = []
        desk.steering.interrupted = self._interrupted

    @property
    def runs(self) -> bool:
        """See `AgentProgram`."""
        return self._floor is not None and not self._floor.over

    @property
    def free(self) -> bool:
        """See `AgentProgram`."""
        return self._floor is not None and not self._floor.over and self._floor.lane.free

    @property
    def goes_on(self) -> bool:
        """See `AgentProgram`."""
        return bool(self._processes.session)

    async def running(self) -> TurnRun:
        """A run whose turn begins when it is handed something. Raises as `AgentProgram`."""
        await self._ready.wait()
        if self._floor is None or self._floor.over:
            raise AgentGone
        return TurnRun(self._floor)

    def confirmed(self) -> None:
        """See `AgentProgram`."""
        self._restarts = 0

    async def run(self, host: AgentHost, grace: float) -> None:
        """Let turns begin until `stop`, then wait for the end of the one that goes on."""
        try:
            if missing := self._processes.missing():
                await self._give_up(f"the agent cannot be started: {missing}", [])
                return
            async with asyncio.TaskGroup() as tasks:
                self._floor = Floor(self._desk, self._processes, host, grace, tasks, self._stop)
                if self._processes.resident:
                    await self._keep(self._floor)
                else:
                    self._status.running()
                    self._ready.set()
                    await self._stop.wait()
        finally:
            if self._floor is not None:
                self._floor.over = True
            self._ready.set()
        await host.gone()

    # ── a resident program ──────────────────────────────────────────────────────────────────────────

    async def _keep(self, floor: Floor) -> None:
        """Start the program, and start it again until it is stopped or has failed too often."""
        while not self._stop.is_set():
            ended = await self._one_process(floor)
            if self._stop.is_set():
                break
            if floor.spare:
                floor.spare, self._restarts = False, 0
            elif self._restarts >= self._config.restart_limit:
                times = self._restarts + 1
                text = f"the agent ended {times} times in a row, last with {ended.detail}"
                await floor.publish(None, over=True)
                await self._give_up(text, self._last_words, ended.detail)
                return
            self._restarts += 1
            self._status.fixed(
                WorkerState.STARTING, f"restarted after {ended.detail}", self._last_words
            )
            await self._pause()
        await floor.publish(None, over=True)

    async def _one_process(self, floor: Floor) -> Exit:
        try:
            running = await self._processes.start()
        except (OSError, ValueError, StateUnwritable) as error:
            _log.error("the agent cannot be started: %s", error)
            self._last_words = [str(error)]
            self._ready.set()
            return Exit(NOT_EXECUTABLE)
        starting = asyncio.create_task(self._started(running))
        await floor.publish(running)
        self._ready.set()
        try:
            ended = await running.attend(self._stop, floor.grace)
        finally:
            starting.cancel()
        await floor.publish(None)
        self._last_words = list(running.words.lines)
        if not self._stop.is_set():
            _log.warning("the agent ended: %s", ended.detail)
        floor.gone(running)
        return ended

    async def _started(self, running: Running) -> None:
        """Say that the agent runs once it has printed something, or has lived for a moment."""
        with suppress(TimeoutError):
            async with asyncio.timeout(STARTED_AFTER):
                await running.begun.wait()
        self._status.running()

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(BACKOFF.delay(self._restarts)):
                await self._stop.wait()
        except TimeoutError:
            return

    async def _give_up(self, text: str, words: list[str], detail: str = "") -> None:
        _log.error("%s", text)
        self._status.fixed(WorkerState.FAILED, detail or text, words)
        await self._raise_alert(Alert("agent-failed", text))

    # ── what is heard ───────────────────────────────────────────────────────────────────────────────

    def _hear(self, running: Running, said: TurnSaid) -> None:
        floor = self._floor
        if floor is not None and floor.current is not None and floor.current[0] is running:
            floor.current[1].hear(running, said)
            return
        match said:  # between turns
            case Event():
                self._desk.report(said.kind, said.fields, said.raw)
                if said.kind is EventKind.USAGE and floor is not None:
                    floor.used(said.fields)
            case Write():
                running.write(said.data)
            case Asked():
                answer = Answer(False, text="it asked outside a turn, where nobody is asked")
                running.write(running.adapter.answer(said.request, answer))

    def _session_lost(self, session: str) -> None:
        text = f"the session {session} cannot be resumed: a new one begins"
        self._desk.report(EventKind.ERROR, {"text": text, "code": SESSION_LOST})

    def _interrupted(self, record: Record) -> None:
        """A person ends the turn that goes on."""
        if self._floor is None or self._floor.current is None:
            return
        by = record.get("by")
        nick = str(by.get("nick") or "") if isinstance(by, dict) else ""
        who = f"@{one_line(nick, 64)}" if nick else "a person"
        reason = one_line(str(record.get("reason") or ""), 500)
        self._floor.current[1].stop_for(f"interrupted by {who}" + (f": {reason}" if reason else ""))
