"""The agent program over all of its runs: started, watched, started again, stopped.

The sidecar restarts it after growing pauses, and gives it up after a number of restarts in a row without a confirmed
message. Exit code 0 is final.

The worker is `starting` until the program has printed an action, has read its first line and run on for a moment, or
has run for `STARTED_AFTER` seconds.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from postroom.observe import get_logger
from postroom.protocol.alerts import Alert, RaiseAlert
from postroom.protocol.presence import WorkerState
from postroom.sidecar.adapters import MalformedLine, Output, Said, make_adapter
from postroom.sidecar.bus import BACKOFF
from postroom.sidecar.config import AgentConfig
from postroom.sidecar.keys import Owner
from postroom.sidecar.process import AgentProcess, Exit
from postroom.sidecar.reading import Hearing
from postroom.sidecar.session import AgentRun, AgentSession, attend
from postroom.sidecar.status import StatusReporter

STARTED_AFTER = 1.0
"""Seconds after which an agent that neither reads nor prints anything counts as started."""

STARTED_AFTER_READ = 0.25
"""The same after the agent has read its first line: a program that fails on that line fails at once."""

NOT_EXECUTABLE = 127
"""The shells' exit code for a program that cannot be started."""

_log = get_logger(__name__)


class AgentGone(Exception):
    """The agent does not run and will not be started again; internal to the sidecar."""


class AgentHost(Protocol):
    """The part of the sidecar that acts for the agent's runs."""

    def owner_of(self, said: Said) -> Owner:
        """To which message or task a line belongs that the agent has printed just now."""

    def at_work(self, task: str) -> bool:
        """Whether the task has begun here, and is neither settled nor asking."""

    async def act(self, session: AgentRun, said: Said, owner: Owner) -> None:
        """Carry out what the agent said; raises nothing for the agent's mistakes."""

    async def gone(self) -> None:
        """A run has ended: give back what it held unconfirmed."""

    async def give_back(self, message_id: str) -> None:
        """Give back a message whose run has failed: unless it is confirmed, it is delivered again."""


class AgentProgram(ABC):
    """The agent program of one worker over all of its runs, for the parts that hand it something."""

    def __init__(
        self,
        config: AgentConfig,
        *,
        env: Mapping[str, str],
        cwd: str,
        status: StatusReporter,
        raise_alert: RaiseAlert,
    ) -> None:
        self._config = config
        self._env = env
        self._cwd = cwd
        self._status = status
        self._raise_alert = raise_alert
        self._stop = asyncio.Event()

    @property
    @abstractmethod
    def session(self) -> AgentRun | None:
        """The run that takes records beside messages, if there is one."""

    @property
    @abstractmethod
    def runs(self) -> bool:
        """Whether `running` has a run at once."""

    @property
    def free(self) -> bool:
        """Whether a task would begin at once, as far as the program knows."""
        return self.runs

    @property
    def goes_on(self) -> bool:
        """Whether its next run takes up where the last one was, in a session that outlived it."""
        return False

    @abstractmethod
    async def running(self) -> AgentRun:
        """Wait for a run that takes messages and tasks.

        Raises:
            AgentGone: no run will follow.
        """

    @abstractmethod
    def confirmed(self) -> None:
        """The agent has confirmed a message: begin to count restarts anew."""

    @abstractmethod
    async def run(self, host: AgentHost, grace: float) -> None:
        """Run the program as its adapter demands; returns after the last run."""

    def stop(self) -> None:
        """Ask for the end: `run` returns once the agent has ended, by itself within its grace or by force."""
        self._stop.set()

    @property
    def stopped(self) -> bool:
        """Whether the end was asked for."""
        return self._stop.is_set()

    async def stopping(self) -> None:
        """Wait until the end was asked for."""
        await self._stop.wait()


class ResidentProgram(AgentProgram):
    """A program that runs all the time and takes one request after the other; `hello` is its first record."""

    def __init__(
        self,
        config: AgentConfig,
        *,
        env: Mapping[str, str],
        cwd: str,
        hello: Mapping[str, Any],
        status: StatusReporter,
        raise_alert: RaiseAlert,
    ) -> None:
        super().__init__(config, env=env, cwd=cwd, status=status, raise_alert=raise_alert)
        self._hello = hello
        self._restarts = 0
        self._last_words: Sequence[str] = ()
        self._session: AgentSession | None = None
        self._changed = asyncio.Condition()
        self._over = False

    @property
    def session(self) -> AgentSession | None:
        return self._session

    @property
    def runs(self) -> bool:
        return self._session is not None

    async def running(self) -> AgentSession:
        async with self._changed:
            while self._session is None:
                if self._over:
                    raise AgentGone
                await self._changed.wait()
            return self._session

    def confirmed(self) -> None:
        self._restarts = 0

    async def run(self, host: AgentHost, grace: float) -> None:
        """Start the agent, and start it again until it ends well or has failed too often."""
        try:
            while not self._stop.is_set():
                ended = await self._one_run(host, grace)
                if self._stop.is_set() or await self._final(ended):
                    break
                self._restarts += 1
                self._status.fixed(
                    WorkerState.STARTING, f"restarted after {ended.detail}", self._last_words
                )
                await self._pause()
        finally:
            self._over = True
            await self._publish(None)

    async def _final(self, ended: Exit) -> bool:
        """Whether no further run follows; if so, the status and an alert say it."""
        if ended == Exit(0):
            self._status.fixed(WorkerState.EXITED, ended.detail, self._last_words)
            return True
        _log.warning("the agent ended: %s", ended.detail)
        if self._restarts < self._config.restart_limit:
            return False
        self._status.fixed(WorkerState.FAILED, ended.detail, self._last_words)
        text = f"the agent ended {self._restarts + 1} times in a row, last with {ended.detail}"
        await self._raise_alert(Alert("agent-failed", text))
        return True

    async def _one_run(self, host: AgentHost, grace: float) -> Exit:
        try:
            process = await AgentProcess.start(self._config.command, self._env, self._cwd)
        except (OSError, ValueError) as error:  # a word of the command may not be encodable
            _log.error("the agent cannot be started: %s", error)
            self._last_words = [str(error)]
            return Exit(NOT_EXECUTABLE)
        session = AgentSession(process, make_adapter(self._config.adapter), self._status)

        started = asyncio.Event()

        async def act(action: Said, owner: Owner) -> None:
            if not isinstance(action, (MalformedLine, Output)) and not started.is_set():
                started.set()
                self._status.running()
                # Now: the agent may print all of its answer and end before the next presence record.
                await self._status.publish()
            await host.act(session, action, owner)

        async def withdraw() -> None:
            writer.cancel()
            await asyncio.wait({writer})  # the writer must not publish this run after its end
            await self._publish(None)

        async with asyncio.TaskGroup() as tasks:
            writer = tasks.create_task(self._write(session, started))
            ended = await attend(session, Hearing(host.owner_of, act), self._stop, grace, withdraw)
        self._last_words = list(session.words.lines)
        await host.gone()
        return ended

    async def _write(self, session: AgentSession, started: asyncio.Event) -> None:
        try:
            greeted = await session.say(self._hello)
        except BrokenPipeError:
            _log.warning("the agent closed its input at once")
            greeted = False
        await self._publish(session)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._wait_started(session, started, greeted))
            await session.write_queued()

    async def _wait_started(
        self, session: AgentSession, started: asyncio.Event, greeted: bool
    ) -> None:
        """Wait until the agent counts as started."""
        with suppress(TimeoutError):
            async with asyncio.timeout(STARTED_AFTER):
                if greeted:
                    with suppress(BrokenPipeError):
                        await session.taken()
                        await asyncio.sleep(STARTED_AFTER_READ)
                        return self._mark_started(started)
                await started.wait()
        return self._mark_started(started)

    def _mark_started(self, started: asyncio.Event) -> None:
        if not started.is_set():
            started.set()
            self._status.running()

    async def _publish(self, session: AgentSession | None) -> None:
        async with self._changed:
            self._session = session
            self._changed.notify_all()

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(BACKOFF.delay(self._restarts)):
                await self._stop.wait()
        except TimeoutError:
            return
