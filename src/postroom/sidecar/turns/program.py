"""A coding agent over all of its turns: an `AgentProgram`.

One turn at a time; messages, posts and tasks wait in their order. A resident program is started at once, started again
when it ends, in its session, and given up after a number of restarts in a row without a turn that came to its end. Its
exit code does not matter: a coding agent works until it is stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from postroom.errors import PostroomError, StateUnwritable
from postroom.observe import get_logger
from postroom.protocol.alerts import Alert, RaiseAlert
from postroom.protocol.events import EventKind
from postroom.protocol.ids import AGENT_COMMAND
from postroom.protocol.presence import WorkerState
from postroom.protocol.template import McpServer
from postroom.sidecar.adapters.turns import Answer, Asked, Event, TurnSaid, Write
from postroom.sidecar.agent import NOT_EXECUTABLE, STARTED_AFTER, AgentGone, AgentHost, AgentProgram
from postroom.sidecar.bus import BACKOFF
from postroom.sidecar.config import AgentConfig, SidecarConfig, filled
from postroom.sidecar.process import Exit
from postroom.sidecar.status import StatusReporter
from postroom.sidecar.turns.context import Budget, Limits, TurnContext
from postroom.sidecar.turns.control import ControlChannel, Record
from postroom.sidecar.turns.home import StateFile
from postroom.sidecar.turns.policy import Approvals, Policy, Rules
from postroom.sidecar.turns.process import SESSION_LOST, Place, Processes, Running
from postroom.sidecar.turns.prompts import Base, instructions
from postroom.sidecar.turns.run import ProgramState, TurnRun
from postroom_a2a.text import one_line

_log = get_logger(__name__)

API = "POSTROOM_API"
"""The variable with the address of the local API."""


class TurnProgram(AgentProgram):
    """The program of a coding agent.

    Args:
        place: where it runs.
        context: what it may do, and who is told.
    """

    session = None
    """None: no run reads records beside its request."""

    def __init__(
        self,
        config: AgentConfig,
        place: Place,
        context: TurnContext,
        *,
        status: StatusReporter,
        raise_alert: RaiseAlert,
    ) -> None:
        super().__init__(
            config, env=place.env, cwd=place.cwd, status=status, raise_alert=raise_alert
        )
        self._context = context
        self._processes = Processes(config, place, hear=self._hear, lost_session=self._session_lost)
        self._shared: ProgramState | None = None
        self._ready = asyncio.Event()
        self._restarts = 0
        self._last_words: list[str] = []
        context.control.interrupted = self._interrupted

    @property
    def runs(self) -> bool:
        return self._shared is not None and not self._shared.over

    @property
    def free(self) -> bool:
        return self._shared is not None and not self._shared.over and self._shared.queue.free

    @property
    def goes_on(self) -> bool:
        return bool(self._processes.session)

    async def running(self) -> TurnRun:
        """A run whose turn begins when it is handed something. Raises as `AgentProgram`."""
        await self._ready.wait()
        if self._shared is None or self._shared.over:
            raise AgentGone
        return TurnRun(self._shared)

    def confirmed(self) -> None:
        self._restarts = 0

    async def run(self, host: AgentHost, grace: float) -> None:
        """Let turns begin until `stop`, then wait for the end of the one that goes on."""
        try:
            if missing := self._processes.missing():
                await self._give_up(f"the agent cannot be started: {missing}", [])
                return
            async with asyncio.TaskGroup() as tasks:
                self._shared = ProgramState(
                    self._context, self._processes, host, grace, tasks, self._stop
                )
                if self._processes.resident:
                    await self._keep(self._shared)
                else:
                    self._status.running()
                    self._ready.set()
                    await self._stop.wait()
        finally:
            if self._shared is not None:
                self._shared.over = True
            self._ready.set()
        await host.gone()

    # ── a resident program ──────────────────────────────────────────────────────────────────────────

    async def _keep(self, shared: ProgramState) -> None:
        """Start the program, and start it again until it is stopped or has failed too often."""
        while not self._stop.is_set():
            ended = await self._one_process(shared)
            if self._stop.is_set():
                break
            if shared.spare:
                shared.spare, self._restarts = False, 0
            elif self._restarts >= self._config.restart_limit:
                times = self._restarts + 1
                text = f"the agent ended {times} times in a row, last with {ended.detail}"
                await shared.publish(None, over=True)
                await self._give_up(text, self._last_words, ended.detail)
                return
            self._restarts += 1
            self._status.fixed(
                WorkerState.STARTING, f"restarted after {ended.detail}", self._last_words
            )
            await self._pause()
        await shared.publish(None, over=True)

    async def _one_process(self, shared: ProgramState) -> Exit:
        try:
            running = await self._processes.start()
        except (OSError, ValueError, StateUnwritable) as error:
            _log.error("the agent cannot be started: %s", error)
            self._last_words = [str(error)]
            self._ready.set()
            return Exit(NOT_EXECUTABLE)
        starting = asyncio.create_task(self._started(running))
        await shared.publish(running)
        self._ready.set()
        try:
            ended = await running.attend(self._stop, shared.grace)
        finally:
            starting.cancel()
        await shared.publish(None)
        self._last_words = list(running.words.lines)
        if not self._stop.is_set():
            _log.warning("the agent ended: %s", ended.detail)
        shared.gone(running)
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
        shared = self._shared
        if shared is not None and shared.current is not None and shared.current[0] is running:
            shared.current[1].hear(running, said)
            return
        match said:  # between turns
            case Event():
                self._context.report(said.kind, said.fields, said.raw)
                if said.kind is EventKind.USAGE and shared is not None:
                    shared.used(said.fields)
            case Write():
                running.write(said.data)
            case Asked():
                answer = Answer(False, text="it asked outside a turn, where nobody is asked")
                running.write(running.adapter.answer(said.request, answer))

    def _session_lost(self, session: str) -> None:
        text = f"the session {session} cannot be resumed: a new one begins"
        self._context.report(EventKind.ERROR, {"text": text, "code": SESSION_LOST})

    def _interrupted(self, record: Record) -> None:
        """A person ends the turn that goes on."""
        if self._shared is None or self._shared.current is None:
            return
        by = record.get("by")
        nick = str(by.get("nick") or "") if isinstance(by, dict) else ""
        who = f"@{one_line(nick, 64)}" if nick else "a person"
        reason = one_line(str(record.get("reason") or ""), 500)
        self._shared.current[1].stop_for(
            f"interrupted by {who}" + (f": {reason}" if reason else "")
        )


STEERING = "steering"
"""Name of the file with the answers of people in the state folder."""

BUDGET = "usage"
"""Name of the file with the agent's usage there."""

TOLD = "base"
"""Name of the file with what it was told of its person's branch there."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the program needs beside its configuration.

    Attributes:
        env: the agent's environment.
        outside: URL of the egress relay, "" for none.
        whoami: as the local API answers it.
        find: lists the other agents; raises PostroomError.
        record: takes an event for the control plane.
    """

    env: Mapping[str, str]
    outside: str
    whoami: Mapping[str, Any]
    find: Callable[[], Awaitable[list[dict[str, Any]]]]
    record: Callable[[dict[str, Any]], None]
    status: StatusReporter
    raise_alert: RaiseAlert


def turn_program(config: SidecarConfig, around: Surroundings) -> tuple[TurnProgram, ControlChannel]:
    """The program of a worker whose agent works in turns, and what people tell it.

    Raises:
        StateUnwritable: the agent's home cannot be made.
    """
    agent, turns = config.agent, config.agent.turns
    control = ControlChannel(StateFile(config.state / STEERING))
    policy = Policy(
        turns.auto_approve,
        turns.auto_deny,
        turns.autonomous,
        turns.rules,
        turns.autonomy,
        agent.cwd or config.workspace,
    )
    control.allowed = policy.allow
    rules = Rules(
        policy,
        turns.approval_default,
        turns.approval_timeout,
        people=config.interactive,
    )
    context = TurnContext(
        approvals=Approvals(config.uid, rules, control),
        control=control,
        budget=Budget(StateFile(config.state / BUDGET), turns.budget_tokens, turns.budget_usd),
        base=Base(
            Path(config.standing) if config.standing else None, StateFile(config.state / TOLD)
        ),
        limits=Limits(turns.stall_after, turns.turn_limit, config.cancel_grace),
        status=around.status,
        raise_alert=around.raise_alert,
        record=around.record,
    )
    place = Place(
        env=around.env,
        cwd=agent.cwd or config.workspace,
        state=config.state,
        command=tuple(filled(word, around.env) for word in agent.command),
        servers=inside(turns.servers, around.env, around.outside),
        instructions=_told(around) if turns.instructions else None,
        unasked=policy.unasked,
    )
    program = TurnProgram(
        agent, place, context, status=around.status, raise_alert=around.raise_alert
    )
    return program, control


def _told(around: Surroundings) -> Callable[[], Awaitable[str]]:
    async def told() -> str:
        try:
            colleagues = await around.find()
        except PostroomError as error:
            _log.info("who else is there is not known: %s", error)
            colleagues = []
        return instructions(around.whoami, colleagues)

    return told


def inside(
    servers: Iterable[McpServer], env: Mapping[str, str], outside: str
) -> tuple[McpServer, ...]:
    """The servers for the agent's configuration, as they are reached from inside the sandbox. Pure.

    A url becomes one at the gateway, which adds the credential, and `${NAME}` in a command or an environment is
    replaced as in `workstation.env`. Our own server is told where the sidecar is: some clients give their servers
    hardly any environment.

    Args:
        env: the agent's environment.
        outside: the base URL of the way out; "" where there is none.
    """
    return tuple(_inside(server, env, outside) for server in servers)


def _inside(server: McpServer, env: Mapping[str, str], outside: str) -> McpServer:
    scheme, _, rest = server.url.partition("://")
    ours = {API: env[API]} if server.command[:1] == (AGENT_COMMAND,) and API in env else {}
    return replace(
        server,
        command=tuple(filled(word, env) for word in server.command),
        env={name: filled(text, env) for name, text in server.env.items()} | ours,
        url=f"{outside}/{scheme}/{rest}" if server.url and outside else server.url,
    )
