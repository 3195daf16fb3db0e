"""Worker lifecycle: spawn, stop, revoke, restart, and starting again what ran before this process."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path

from sqlalchemy import Connection

from postroom.bus.port import BusAdmin
from postroom.control.isolation import Demand, demand, level_of
from postroom.control.issuer import Issuer
from postroom.control.launch import SpawnRequest, WorkerFolders, decode_files
from postroom.control.run import Run, exceeded, how
from postroom.control.starting import Starter
from postroom.errors import AlreadyRunning, EnvironmentFault, NotFound, PostroomError
from postroom.gateway.port import GatewayProvider
from postroom.identity.tokens import digest, new_token
from postroom.mail.alerts import AlertOffice
from postroom.mail.directory import Directory
from postroom.observe import get_logger
from postroom.protocol.ids import check_name
from postroom.protocol.streams import AGENT_CONSUMER_STREAMS
from postroom.protocol.template import Template, parse_template
from postroom.sandbox.port import ExitStatus, Level
from postroom.sandbox.select import Chosen, stated_level
from postroom.settings import DEFAULT_PROJECT, Settings
from postroom.store import workers as worker_rows
from postroom.store.agents import Agent
from postroom.store.database import Database
from postroom.store.workers import REVOKED, RUNNING, STOPPED, WorkerRecord

log = get_logger(__name__)

Limited = Callable[[str, str], Awaitable[None]]
"""Told that a worker was ended for a limit: uid, the limit in words."""


class Workers:
    """The workers of this post room.

    Args:
        settings: folders, default sandbox, how long an end may take.
        database: records of workers.
        directory: agents and nicks.
        admin: has their consumers.
        issuer: revokes their credentials.
        gateway: their doors.
        starter: starts them.
        alerts: where unexpected ends are reported, and end when the worker runs again.
        tasks: where the watchers live; one that dies ends the post room, it is not forgotten.
        changed: told when a worker has started or ended.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        database: Database,
        directory: Directory,
        admin: BusAdmin,
        issuer: Issuer,
        gateway: GatewayProvider,
        starter: Starter,
        alerts: AlertOffice,
        tasks: asyncio.TaskGroup,
        changed: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._database = database
        self._directory = directory
        self._admin = admin
        self._issuer = issuer
        self._gateway = gateway
        self._starter = starter
        self._alerts = alerts
        self._tasks = tasks
        self._changed = changed
        self.limited: Limited | None = None
        """Set by whoever has to act on it."""
        self._runs: dict[str, Run] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    def run_of(self, uid: str) -> Run | None:
        """The last start of worker `uid` in this process, None if there was none."""
        return self._runs.get(uid)

    def running(self, uid: str) -> bool:
        """Whether worker `uid` was started and has not ended, as far as is known."""
        run = self._runs.get(uid)
        return run is not None and run.running

    def lives(self, uid: str, run: str) -> bool:
        """Whether `run` is the start of worker `uid` that has not ended."""
        present = self._runs.get(uid)
        return present is not None and present.running and present.id == run

    def state_folder(self, uid: str) -> Path:
        """The folder of worker `uid` that its sidecar may write, on the host."""
        return WorkerFolders.of(self._settings, uid).state

    async def interactive(self, uid: str) -> bool:
        """Whether the template of worker `uid` has a `[sidecar]` table: then it may report events.

        Raises:
            NotFound: there is no such worker.
        """
        run = self._runs.get(uid)
        if run is not None:
            return run.interactive
        # It may speak before its start is noted here.
        _, record = await self.record(uid)
        return parse_template(record.template, record.overrides).interactive

    def runs(self) -> list[tuple[str, Run]]:
        """The last start of each worker that was started in this process, with its uid."""
        return list(self._runs.items())

    async def records(self) -> list[tuple[Agent, WorkerRecord]]:
        """Every worker that is not retired, oldest first."""
        records = await self._database.read(worker_rows.all_workers)
        agents = {agent.uid: agent for agent in await self._directory.all()}
        return [(agents[record.uid], record) for record in records if record.uid in agents]

    async def record(self, ref: str) -> tuple[Agent, WorkerRecord]:
        """The worker with that nick (with or without `@`) or uid.

        Raises:
            NotFound: there is no such worker.
        """
        agent = await self._directory.resolve(ref)
        record = await self._database.read(lambda c: worker_rows.worker_by_uid(c, agent.uid))
        if record is None:
            raise NotFound(f"@{agent.nick} is not a worker of this post room")
        return agent, record

    async def spawn(self, request: SpawnRequest) -> Agent:
        """Make a worker and start it.

        Raises:
            InvalidTemplate, InvalidName: the template, a value or a name is not valid.
            NameTaken: another agent has the nick.
            Forbidden: the template, and nobody else, wants a weaker wall than is demanded.
            SandboxUnavailable: no such wall can be had here; nothing was made.
        """
        template = parse_template(request.template, request.values)
        files = decode_files(template, request.files)
        demanded = demand(
            template,
            sandbox=request.sandbox,
            isolation=request.isolation,
            default_sandbox=self._settings.sandbox,
            default=self._settings.isolation,
        )
        chosen = await self._starter.choose(demanded)
        project = check_name(request.project or template.project or DEFAULT_PROJECT, "project")

        def record_of(agent: Agent) -> WorkerRecord:
            return WorkerRecord(
                uid=agent.uid,
                project=project,
                template=request.template,
                sandbox=chosen.provider.name,
                level=chosen.capability.level.value,
                desired=RUNNING,
                token_sha256=digest(new_token()),
                created_at=agent.created_at,
                files=dict(request.files),
                overrides=dict(request.values),
                begun_at=time.time(),
            )

        # At once: an agent without its record would have a name and mail, and could never be started.
        agent = await self._directory.register(
            request.nick or template.name,
            kind="worker",
            projects=(project,),
            also=lambda c, agent: worker_rows.add_worker(c, record_of(agent)),
        )
        try:
            async with self._lock(agent.uid):
                await self._start(agent, record_of(agent), template, chosen, files)
        except BaseException:
            await self._undo_spawn(agent)
            raise
        return agent

    async def _undo_spawn(self, agent: Agent) -> None:
        await self._forget(agent.uid)
        await asyncio.to_thread(
            shutil.rmtree, WorkerFolders.of(self._settings, agent.uid).root, ignore_errors=True
        )

    async def _forget(self, uid: str) -> None:
        await self._gateway.close_door(uid)
        # In this order: what is left of a kill in between is a record that nobody asks for.
        await self._directory.retire(uid)
        await self._database.write(lambda c: worker_rows.remove_worker(c, uid))
        for stream in AGENT_CONSUMER_STREAMS:
            await self._admin.delete_consumer(stream, uid)

    async def remove(self, ref: str) -> tuple[Agent, Path]:
        """End a worker and take its address away for ever; its nick is free again.

        Returns:
            The agent, and the folder with its workspace, which stays.
        """
        agent, _ = await self.record(ref)
        async with self._lock(agent.uid):
            await self._end(agent.uid)
            await self._issuer.withdraw(agent.uid)
            await self._forget(agent.uid)
            self._runs.pop(agent.uid, None)
        return agent, WorkerFolders.of(self._settings, agent.uid).root

    async def stop(self, ref: str) -> Agent:
        """End a worker; its address, inbox and workspace stay."""
        agent, record = await self.record(ref)
        async with self._lock(agent.uid):
            if record.desired != REVOKED:
                await self._database.write(lambda c: worker_rows.set_desired(c, agent.uid, STOPPED))
            await self._end(agent.uid)
            await self._issuer.withdraw(agent.uid)
        return agent

    async def revoke(self, *refs: str) -> list[Agent]:
        """Void every credential of these workers, or of all, cut their connections and end them.

        Nothing waits for what else is done with a worker just now. `restart` gives it a new key.

        Returns:
            The workers, when every server has cut them.

        Raises:
            NotFound: one is no worker; nothing was revoked.
            ServerFailed: not every server was told; they are told later, the rest is done.
        """
        agents = [(await self.record(ref))[0] for ref in refs]
        agents = agents or [agent for agent, _ in await self.records()]
        await asyncio.gather(*(self._shut_out(agent.uid) for agent in agents))
        cut = await asyncio.gather(
            *(self._issuer.void(agent.uid) for agent in agents if refs),
            *(() if refs else (self._issuer.void(),)),
            return_exceptions=True,
        )
        await asyncio.gather(*(self._end_revoked(agent.uid) for agent in agents))
        for failure in cut:
            if isinstance(failure, BaseException):
                raise failure
        return agents

    async def _shut_out(self, uid: str) -> None:
        def forbid(connection: Connection) -> None:
            worker_rows.set_desired(connection, uid, REVOKED)
            worker_rows.set_token(connection, uid, digest(new_token()))

        run = self._runs.get(uid)
        if run is not None:
            run.stopping = True  # that it ends is no surprise
        await self._database.write(forbid)
        await self._gateway.close_door(uid)

    async def _end_revoked(self, uid: str) -> None:
        async with self._lock(uid):
            # A start that was under way has made a credential since, and may have been meant to run.
            await self._shut_out(uid)
            await self._issuer.withdraw(uid)
            await self._end(uid)

    async def restart(self, ref: str) -> Agent:
        """End a worker if it runs, and start it with a new credential and token."""
        agent, record = await self.record(ref)
        async with self._lock(agent.uid):
            await self._end(agent.uid)
            now = time.time()
            await self._database.write(lambda c: worker_rows.set_desired(c, agent.uid, RUNNING))
            await self._database.write(lambda c: worker_rows.set_begun(c, agent.uid, now))
            await self._start_again(agent, replace(record, begun_at=now, exceeded=""))
        return agent

    async def restore(self) -> None:
        """Start what ran when the last process of this post room ended; a failure is an alert, not the end.

        Who was ended for a limit is started by a person only.
        """
        await self._issuer.withdraw()  # whoever held one has ended with the last process
        for agent, record in await self.records():
            if record.desired != RUNNING or record.exceeded:
                continue
            try:
                async with self._lock(agent.uid):
                    await self._start_again(agent, record)
            except PostroomError as error:
                await self._alerts.tell(
                    "worker-not-started", f"was not started: {error}", agent.uid
                )

    async def close(self) -> None:
        """End every sandbox; what they should do stays as it was."""
        await asyncio.gather(*(self._end(uid) for uid in list(self._runs)))

    # Inner parts; the caller holds the worker's lock.

    def _lock(self, uid: str) -> asyncio.Lock:
        return self._locks.setdefault(uid, asyncio.Lock())

    async def _start_again(self, agent: Agent, record: WorkerRecord) -> None:
        template = parse_template(record.template, record.overrides)
        # Never weaker than when a person spawned it.
        least = level_of(record.level) if record.level else stated_level(record.sandbox)
        chosen = await self._starter.choose(Demand(record.sandbox, least or Level.ENFORCED))
        if record.level != chosen.capability.level:
            level = chosen.capability.level.value
            await self._database.write(lambda c: worker_rows.set_level(c, agent.uid, level))
        await self._start(agent, record, template, chosen, decode_files(template, record.files))

    async def _start(
        self,
        agent: Agent,
        record: WorkerRecord,
        template: Template,
        chosen: Chosen,
        files: Mapping[str, bytes],
    ) -> None:
        present = self._runs.get(agent.uid)
        if present is not None and present.running:
            raise AlreadyRunning(f"@{agent.nick} runs already")
        before = await self._alerts.reached()
        run = await self._starter.start(agent, record, template, chosen, files)
        self._runs[agent.uid] = run
        await self._alerts.end("it was started again", who=agent.uid, upto=before)
        self._changed()
        self._tasks.create_task(self._watch(agent, run), name=f"watch {agent.uid}")

    async def _watch(self, agent: Agent, run: Run) -> None:
        try:
            run.ended = await run.handle.wait()
            run.exceeded = "" if run.stopping else exceeded(run.ended, run.limits)
            run.detail = run.exceeded or how(run.ended)
        except EnvironmentFault as error:
            run.ended = ExitStatus(1)
            run.detail = str(error)
        self._changed()
        if run.exceeded:
            await self._note_limit(agent, run)
        elif not run.stopping:
            log.warning("worker %s ended: %s", agent.uid, run.detail)
            text = f"ended: {run.detail}; postroom restart {agent.nick}"
            await self._alerts.tell("worker-ended", text, agent.uid)

    async def _note_limit(self, agent: Agent, run: Run) -> None:
        log.warning("worker %s was ended: %s", agent.uid, run.exceeded)
        async with self._lock(agent.uid):
            if self._runs.get(agent.uid) is not run:
                return  # a person has started it again
            await self._database.write(
                lambda c: worker_rows.set_exceeded(c, agent.uid, run.exceeded)
            )
            if self.limited is not None:
                await self.limited(agent.uid, run.exceeded)
        text = f"was ended: {run.exceeded}; postroom restart {agent.nick}"
        await self._alerts.tell("worker-limit", text, agent.uid)

    async def _end(self, uid: str) -> None:
        run = self._runs.get(uid)
        if run is not None and run.running:
            run.stopping = True
            run.ended = await run.handle.stop(self._settings.stop_grace)
            run.detail = "stopped"
            self._changed()
        await self._gateway.close_door(uid)
