"""The processes of a coding agent, one after the other, in one session that outlives each of them."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from postroom.errors import StateUnwritable
from postroom.observe import get_logger
from postroom.protocol.template import McpServer
from postroom.sidecar.adapters.registry import turn_adapter
from postroom.sidecar.adapters.turns import Event, Setup, TurnAdapter, TurnSaid
from postroom.sidecar.config import AgentConfig
from postroom.sidecar.process import AgentProcess
from postroom.sidecar.turns.home import make_home, write_files
from postroom.sidecar.turns.running import Running
from postroom.sidecar.turns.state import StateFile

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
