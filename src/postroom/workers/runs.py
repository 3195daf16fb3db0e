"""The starts of workers in this process: made of wall, credential, consumers, door and sandbox, watched to their end.

A failure of one worker is reported, and concerns no other worker. One that found no wall is tried again, since that may
have been for a moment only.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, ItemsView
from dataclasses import dataclass, field

from postroom.directory.cards import Card
from postroom.errors import EnvironmentFault, Forbidden, PostroomError
from postroom.gateway.port import DoorSpec
from postroom.identity.tokens import digest, new_token
from postroom.observe import get_logger
from postroom.observe.supervision import guarded, unforeseen
from postroom.protocol.alerts import STALLED, Alert
from postroom.protocol.presence import OUT_OF_MEMORY
from postroom.protocol.streams import AGENT_CONSUMER_STREAMS, agent_consumer
from postroom.sandbox.limit_monitor import LimitedHandle, LimitMonitor, memory_exceeded
from postroom.sandbox.port import ExitStatus, FarHandle, Level, Limits, SandboxHandle
from postroom.store.agents import Agent
from postroom.store.workers import WorkerRecord, autonomy_of, patterns_of
from postroom.workers.launch import WorkerFolders, WorkerIdentity, card_of, compose, unwritable
from postroom.workers.parts import WorkerParts
from postroom.workers.preparing import Prepared
from postroom.workers.workspaces.service import Placed
from postroom_a2a.retry import Backoff

log = get_logger(__name__)

Limited = Callable[[str, str], Awaitable[None]]
"""Called when a worker was ended for a limit, with its uid and the limit in words."""

FIRST, LAST = 10.0, 600.0
"""Seconds of the first pause and of any later one, at most: each trial starts a real sandbox."""


@dataclass(slots=True)
class Run:
    """One start of a worker in this process.

    Attributes:
        provider: name of the sandbox provider.
        card: not signed; from the template, or as the worker announced it since.
        id: of this start; the worker's task records carry it.
        interactive: its template lets it report events.
        unenforced: those limits that this machine cannot enforce.
        stopping: somebody asked it to end.
        ended: how it ended, None while it runs.
        detail: why it ended, for people.
        exceeded: the limit that it was ended for, "" for none.
    """

    handle: SandboxHandle
    provider: str
    started_at: float
    nick: str
    card: Card
    id: str
    interactive: bool
    limits: Limits = field(default_factory=Limits)
    unenforced: tuple[str, ...] = ()
    stopping: bool = False
    ended: ExitStatus | None = None
    detail: str = ""
    exceeded: str = ""

    @property
    def far(self) -> FarHandle | None:
        """The handle of a worker that runs on another machine, None for one on this machine."""
        return self.handle.far if isinstance(self.handle, LimitedHandle) else None

    @property
    def running(self) -> bool:
        """Whether it has not ended, as far as is known."""
        return self.ended is None


def exceeded(ended: ExitStatus, limits: Limits) -> str:
    """The limit that a sandbox with these `limits` was ended for, or ""."""
    if not ended.exceeded and ended.code == OUT_OF_MEMORY and limits.memory is not None:
        return memory_exceeded(limits.memory)
    return ended.exceeded


def how(ended: ExitStatus) -> str:
    """How a sandbox ended, for people."""
    if ended.signal is not None:
        return f"sandbox ended by signal {ended.signal}"
    return f"sandbox ended with exit code {ended.code}"


@dataclass(slots=True)
class RunStatistics:
    """Counters since the start.

    Attributes:
        started: sandboxes.
        not_started: that failed to start.
        ended: that ended by themselves, `limited` of them for a limit.
    """

    started: int = 0
    not_started: int = 0
    ended: int = 0
    limited: int = 0


class Runs:
    """The starts of the workers of this post room."""

    def __init__(self, parts: WorkerParts) -> None:
        self._database = parts.database
        self._gateway = parts.gateway
        self._alert = parts.alerts.raise_alert
        self._tasks = parts.tasks
        self._changed = parts.changed
        self._grace = parts.settings.stop_grace
        self.limited: Limited | None = None
        self.statistics = RunStatistics()
        self._last: dict[str, Run] = {}
        self._failures: dict[str, str] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    def get(self, uid: str) -> Run | None:
        """The last start of worker `uid`, None if there was none or it failed."""
        return self._last.get(uid)

    def items(self) -> ItemsView[str, Run]:
        """Each worker's last start, by uid."""
        return self._last.items()

    def failure(self, uid: str) -> str:
        """Why worker `uid` could not be started; "" if it could, or nobody tried."""
        return self._failures.get(uid, "")

    def lock(self, uid: str) -> asyncio.Lock:
        """The lock that is held while worker `uid` is started or ended."""
        return self._locks.setdefault(uid, asyncio.Lock())

    def begin(self, agent: Agent, run: Run) -> None:
        """Record a start, and watch it."""
        self.statistics.started += 1
        self._last[agent.uid] = run
        self._failures.pop(agent.uid, None)
        self._changed()
        self._tasks.create_task(self._watch(agent, run), name=f"watch {agent.uid}")

    async def fail(self, agent: Agent, error: Exception) -> None:
        """Record that a worker could not be started, and raise an alert; a run that goes on stays."""
        run = self._last.get(agent.uid)
        if run is not None and run.running:
            return
        self._last.pop(agent.uid, None)
        self.statistics.not_started += 1
        self._failures[agent.uid] = in_words(error)
        log.warning("worker %s was not started: %s", agent.uid, error, exc_info=unforeseen(error))
        self._changed()
        text = f"was not started: {in_words(error)}"
        await self._alert(Alert("worker-not-started", text, agent.uid))

    def forget(self, uid: str) -> None:
        """Drop the run of a removed worker."""
        self._last.pop(uid, None)
        self._failures.pop(uid, None)

    async def end(self, uid: str) -> None:
        """End worker `uid` if it runs, and close its door.

        Raises:
            EnvironmentFault: its processes do not end.
        """
        run = self._last.get(uid)
        if run is not None and run.running:
            run.stopping = True
            run.ended = await self._stopped(run)
            self._changed()
        await self._gateway.close_door(uid)

    async def _stopped(self, run: Run) -> ExitStatus:
        try:
            return await run.handle.stop(self._grace)
        except TimeoutError as error:
            # The worker may live on: a start beside it would be a second worker of that name.
            raise EnvironmentFault(
                f"the processes of @{run.nick} do not end",
                remedy=f"kill process {run.handle.pid}, then do it again",
            ) from error
        except Exception:
            log.exception("cannot watch the end of @%s", run.nick)
            return ExitStatus(1)

    async def close(self) -> None:
        """End every sandbox; one that cannot be ended does not keep the others."""
        ends = await asyncio.gather(
            *(self.end(uid) for uid in list(self._last)), return_exceptions=True
        )
        for end in ends:
            if isinstance(end, Exception):
                log.error("a worker could not be ended", exc_info=end)

    async def _watch(self, agent: Agent, run: Run) -> None:
        with guarded(f"cannot record how worker {agent.uid} ended"):
            await self._follow(agent, run)

    async def _follow(self, agent: Agent, run: Run) -> None:
        try:
            run.ended = await run.handle.wait()
            run.exceeded = "" if run.stopping else exceeded(run.ended, run.limits)
            run.detail = run.exceeded or ("" if run.stopping else how(run.ended))
        except Exception as error:
            run.ended = ExitStatus(1)
            run.detail = in_words(error)
            log.warning(
                "the sandbox of worker %s failed: %s", agent.uid, error, exc_info=unforeseen(error)
            )
        self._changed()
        self.statistics.ended += not run.stopping
        self.statistics.limited += bool(run.exceeded)
        if run.exceeded:
            await self._note_limit(agent, run)
        elif not run.stopping:
            log.warning("worker %s ended: %s", agent.uid, run.detail)
            text = f"ended: {run.detail}; postroom restart {agent.nick}"
            await self._alert(Alert("worker-ended", text, agent.uid))
        await self._alert(
            Alert(STALLED, "", agent.uid)
        )  # whatever its agent said nothing about is over

    async def _note_limit(self, agent: Agent, run: Run) -> None:
        log.warning("worker %s was ended: %s", agent.uid, run.exceeded)
        async with self.lock(agent.uid):
            if self._last.get(agent.uid) is not run:
                return  # a person has started it again
            await self._database.write(
                lambda store: store.workers.set_exceeded(agent.uid, run.exceeded)
            )
            if self.limited is not None:
                await self.limited(agent.uid, run.exceeded)
        text = f"was ended: {run.exceeded}; postroom restart {agent.nick}"
        await self._alert(Alert("worker-limit", text, agent.uid))


def in_words(error: Exception) -> str:
    """The failure, for people; an unforeseen one names its type and points to the log."""
    if isinstance(error, Forbidden):
        return f"{error.message}: {error.remedy}"  # who may do it is another person
    if isinstance(error, PostroomError):
        return error.message
    return f"{type(error).__name__}: {error}; the control plane's log has it"


class Unwalled:
    """The workers of an organisation that wait for a wall.

    Args:
        start: starts the worker with that uid; False if there is still no wall.
    """

    def __init__(self, tasks: asyncio.TaskGroup, start: Callable[[str], Awaitable[bool]]) -> None:
        self._tasks = tasks
        self._start = start
        self._uids: set[str] = set()
        self._running: asyncio.Task[None] | None = None

    def add(self, uid: str) -> None:
        """Try that worker again, with longer and longer pauses."""
        self._uids.add(uid)
        if self._running is None or self._running.done():
            self._running = self._tasks.create_task(self._run(), name="workers without a wall")

    def close(self) -> None:
        """Try none again."""
        self._uids.clear()
        if self._running is not None:
            self._running.cancel()

    async def _run(self) -> None:
        pauses = Backoff(FIRST, LAST)
        while self._uids:
            await asyncio.sleep(pauses.next())
            for uid in sorted(self._uids):
                with guarded(f"worker {uid} was not tried again"):
                    if await self._start(uid):
                        self._uids.discard(uid)


class Starter:
    """Starts workers."""

    def __init__(self, parts: WorkerParts) -> None:
        self._parts = parts
        self._limits = LimitMonitor()

    async def start(
        self,
        agent: Agent,
        record: WorkerRecord,
        prepared: Prepared,
        placed: Placed,
    ) -> Run:
        """Start a worker that does not run, with a new credential and token; former ones are revoked."""
        template, chosen = prepared.template, prepared.chosen
        folders = WorkerFolders.of(self._parts.settings, agent.uid)
        await asyncio.to_thread(folders.make, prepared.files)
        provider, level = chosen.provider, chosen.capability.level
        card = card_of(agent, record, template)
        identity = await self._identity(agent, record, level, card)
        for stream in AGENT_CONSUMER_STREAMS:
            await self._parts.admin.ensure_consumer(
                agent_consumer(stream, agent.uid, identity.projects)
            )
        door = DoorSpec(
            uid=agent.uid,
            org=agent.org,
            token_sha256=digest(identity.token),
            projects=identity.projects,
            egress=template.egress,
            credentials=template.credentials,
        )
        socket = await self._parts.gateway.open_door(door)
        spec = compose(
            provider,
            template,
            identity,
            folders,
            socket,
            self._parts.canaries,
            prepared.reach,
            placed,
        )
        gone, grace = (
            time.time() - (record.begun_at or record.created_at),
            self._parts.settings.stop_grace,
        )
        try:
            handle = await self._limits.start(provider, spec, elapsed=gone, grace=grace)
        except OSError as error:
            raise unwritable(error) from error
        if handle.unenforced:
            log.warning("worker %s: not enforced here: %s", agent.uid, ", ".join(handle.unenforced))
        return Run(
            handle,
            provider.name,
            time.time(),
            agent.nick,
            card,
            identity.run,
            template.interactive,
            spec.limits,
            handle.unenforced,
        )

    async def _identity(
        self, agent: Agent, record: WorkerRecord, level: Level, card: Card
    ) -> WorkerIdentity:
        token = new_token()
        await self._parts.database.write(
            lambda store: store.workers.set_token(agent.uid, digest(token))
        )
        secret = await self._parts.directory.message_secret(agent.uid)
        projects = (record.project,)
        await self._parts.issuer.withdraw(agent.uid)
        credential = await self._parts.issuer.issue(agent.uid, projects)
        # Not `record`: a person may have changed them since that was read. Of a later change the sidecar hears.
        kept = await self._parts.database.read(
            lambda store: store.workers.worker_by_uid(agent.uid) or record
        )
        return WorkerIdentity(
            agent.uid,
            agent.nick,
            agent.org,
            projects,
            credential,
            token,
            secret,
            self._parts.owner,
            level.value,
            card,
            secrets.token_hex(16),
            tuple(patterns_of(kept.rules)),
            autonomy_of(kept.rules),
        )
