"""A program that the sidecar starts for each message and each task: the adapter `text`.

It handles messages and posts one after the other, and tasks likewise; neither kind waits for the other. A run's output
belongs to its request.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from postroom.observe import get_logger
from postroom.protocol.alerts import Alert, RaiseAlert
from postroom.protocol.presence import WorkerState
from postroom.protocol.verbs import Fail
from postroom.sidecar.adapters import (
    Incoming,
    IncomingTask,
    PlainText,
    Said,
    run_environment,
)
from postroom.sidecar.agent import AgentGone, AgentHost, AgentProgram
from postroom.sidecar.config import AgentConfig
from postroom.sidecar.keys import Owner
from postroom.sidecar.process import AgentProcess, Exit
from postroom.sidecar.reading import Hearing
from postroom.sidecar.session import AgentRun, AgentSession, Handed, attend, nothing
from postroom.sidecar.status import StatusReporter

LINGER = 10.0
"""Seconds that a run may go on after its task has ended; the next task waits for it."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Runs:
    """The common part of all runs of the program.

    Attributes:
        grace: seconds for a run to end by itself once `stop` is set.
        stop: set when the worker is being stopped.
        lanes: one run at a time in each.
    """

    command: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    status: StatusReporter
    host: AgentHost
    grace: float
    tasks: asyncio.TaskGroup
    stop: asyncio.Event
    lanes: Mapping[type, asyncio.Lock] = field(
        default_factory=lambda: {IncomingTask: asyncio.Lock(), Incoming: asyncio.Lock()}
    )


class RequestProgram(AgentProgram):
    """A program that runs anew for each request, which further variables in `env` describe."""

    session = None
    """None: no run reads records beside its request."""

    def __init__(
        self,
        config: AgentConfig,
        *,
        env: Mapping[str, str],
        cwd: str,
        status: StatusReporter,
        raise_alert: RaiseAlert,
    ) -> None:
        super().__init__(config, env=env, cwd=cwd, status=status, raise_alert=raise_alert)
        self._runs: _Runs | None = None
        self._changed = asyncio.Event()

    @property
    def runs(self) -> bool:
        return self._runs is not None

    async def running(self) -> RequestRun:
        """A run that has not begun; it begins with its request. Raises as `AgentProgram`."""
        await self._changed.wait()
        if self._runs is None:
            raise AgentGone
        return RequestRun(self._runs)

    def confirmed(self) -> None:
        """Do nothing: restarts are not counted here."""

    async def run(self, host: AgentHost, grace: float) -> None:
        """Let runs begin until `stop`, then wait for those that go on."""
        if missing := self._missing():
            await self._refuse(missing)
            return
        async with asyncio.TaskGroup() as tasks:
            self._runs = _Runs(
                self._config.command,
                self._env,
                self._cwd,
                self._status,
                host,
                grace,
                tasks,
                self._stop,
            )
            self._status.running()
            self._changed.set()
            await self._stop.wait()
            self._runs = None
        await host.gone()

    def _missing(self) -> str:
        """What is wrong with the command, "" if its program can be started."""
        program, path = self._config.command[0], self._env.get("PATH", "")
        if "/" in program:
            found = shutil.which(str(Path(self._cwd) / program))
            return "" if found else f"{program} is not a program"
        return "" if shutil.which(program, path=path) else f"{program} is not in PATH, {path}"

    async def _refuse(self, why: str) -> None:
        said = f"the agent cannot be started: {why}"
        _log.error("%s", said)
        self._status.fixed(WorkerState.FAILED, said)
        self._changed.set()
        await self._raise_alert(Alert("agent-failed", said))


class RequestRun(AgentRun):
    """One run of the program, from its request to its end."""

    def __init__(self, runs: _Runs) -> None:
        self._runs = runs
        self._session: AgentSession | None = None
        # Set when the run has read its message or never will; for a task, when it was started.
        self._handed = asyncio.Event()
        self.ended = asyncio.Event()
        self.how_ended = ""
        self.queues = False
        self.begins: Callable[[], None] = nothing

    async def hand_over(self, incoming: Handed) -> bool:
        """See `session.AgentRun`. A message or a task starts the program when the run before has ended."""
        if isinstance(incoming, Mapping):
            return False
        lane = self._runs.lanes[type(incoming)]
        await lane.acquire()
        if self._runs.stop.is_set():
            self._over("the worker was stopped")
        if self.ended.is_set():
            lane.release()
            raise BrokenPipeError
        # No `await` since the check of `stop`.
        self._runs.tasks.create_task(self._live(incoming, lane))
        await self._handed.wait()
        return True

    def tell(self, record: Mapping[str, Any]) -> None:
        """Do nothing: the run reads nothing but its request."""

    async def say(self, record: Mapping[str, Any]) -> bool:  # noqa: ARG002
        return False

    def send_signal(self, number: signal.Signals) -> None:
        """See `session.AgentRun`. A run that has not begun never begins."""
        if self._session is None:
            self._over("it was ended before it began")
        else:
            self._session.send_signal(number)

    @property
    def free(self) -> bool:
        return self._session is None or self.ended.is_set()

    @property
    def waits(self) -> bool:
        """False: a run reads nothing but its request."""
        return False

    async def let_go(self) -> None:
        """See `session.AgentRun`. A run that goes on for `LINGER` seconds is ended by force."""
        if self._session is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER):
                await self.ended.wait()
        if not self.ended.is_set():
            _log.warning("the agent is killed: it went on for %g s after its task", LINGER)
            self.send_signal(signal.SIGKILL)
            await self.ended.wait()

    async def _live(self, incoming: Incoming | IncomingTask, lane: asyncio.Lock) -> None:
        try:
            how = await self._attend(incoming)
            self._over(how)
            if isinstance(incoming, Incoming) and not incoming.to.startswith("#"):
                await self._runs.host.give_back(incoming.id)
        finally:
            self._handed.set()
            lane.release()

    async def _attend(self, incoming: Incoming | IncomingTask) -> str:
        """Start the program and carry out what it says; returns how it ended."""
        runs = self._runs
        env = {**runs.env, **run_environment(incoming)}
        try:
            process = await AgentProcess.start(runs.command, env, runs.cwd)
        except (OSError, ValueError) as error:  # a word of the command may not be encodable
            _log.error("the agent cannot be started: %s", error)
            if isinstance(incoming, IncomingTask):
                failed = Fail(incoming.id, f"the agent cannot be started: {error}")
                await self._act(failed, runs.host.owner_of(failed))
            return "it cannot be started"
        session = self._session = AgentSession(process, PlainText(), runs.status)
        if self.ended.is_set():
            session.send_signal(signal.SIGKILL)
        feeding = asyncio.create_task(self._feed(session, incoming))

        async def withdraw() -> None:
            process.input.close()
            await asyncio.wait({feeding})

        try:
            hearing = Hearing(runs.host.owner_of, self._act)
            ended = await attend(session, hearing, runs.stop, runs.grace, withdraw)
        finally:
            feeding.cancel()
        if ended != Exit(0):
            _log.warning("the agent ended: %s", ended.detail)
        return ended.detail

    async def _feed(self, session: AgentSession, incoming: Incoming | IncomingTask) -> None:
        """Write the request and close the input; a program need not read it."""
        if isinstance(incoming, IncomingTask):
            text = session.adapter.render_task(incoming)
            self._handed.set()  # before the program has read the task: it may report on it already
        else:
            text = session.adapter.render(incoming)
        try:
            with suppress(BrokenPipeError):
                await session.process.input.write(text)
                await session.process.input.drained()
        finally:
            session.process.input.close()
            self._handed.set()

    async def _act(self, action: Said, owner: Owner) -> None:
        await self._runs.host.act(self, action, owner)

    def _over(self, how: str) -> None:
        """All that the run has said is carried out."""
        self.how_ended = self.how_ended or how
        self.ended.set()
