"""Worker lifecycle: spawn, stop, revoke, restart, remove, and restoring the workers of an earlier process."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path

from postroom.directory.cards import Card, read_card
from postroom.errors import (
    AlreadyRunning,
    Conflict,
    Forbidden,
    InvalidInput,
    InvalidTemplate,
    NotFound,
    SandboxUnavailable,
    StateUnwritable,
)
from postroom.identity.tokens import digest, new_token
from postroom.observe import get_logger
from postroom.protocol.ids import check_name
from postroom.protocol.streams import AGENT_CONSUMER_STREAMS
from postroom.protocol.template import parse_template
from postroom.settings import DEFAULT_PROJECT
from postroom.store.agents import Agent
from postroom.store.database import Store
from postroom.store.workers import REVOKED, RUNNING, STOPPED, WorkerRecord
from postroom.workers.launch import SpawnRequest, WorkerFolders, card_of, limits_of
from postroom.workers.leftovers import Leftover, delete, folders, measured
from postroom.workers.parts import WorkerParts
from postroom.workers.preparing import Prepared, Preparing
from postroom.workers.reach import BY, Reach, given_by
from postroom.workers.returning import Returning
from postroom.workers.runs import Limited, Run, Runs, RunStatistics, Starter, Unwalled

log = get_logger(__name__)

Permit = Callable[[], Awaitable[None]]
"""Raises what keeps a person from changing what a worker may do: a PIN that is missing or wrong."""


class Workers:
    """The workers of an organisation.

    Attributes:
        work: brings back what they have done in the folders that they work on.
    """

    def __init__(self, parts: WorkerParts) -> None:
        self._settings = parts.settings
        self._database = parts.database
        self._directory = parts.directory
        self._admin = parts.admin
        self._issuer = parts.issuer
        self._gateway = parts.gateway
        self._alerts = parts.alerts
        self._changed = parts.changed
        self._space = parts.space
        self._preparing = Preparing(parts)
        self._starter = Starter(parts)
        self._runs = Runs(parts)
        self.work = Returning(parts, self._preparing)
        self._unwalled = Unwalled(parts.tasks, self._try_again)

    def on_limit(self, limited: Limited) -> None:
        """Call `limited` when a worker was ended for a limit, with its uid and the limit in words."""
        self._runs.limited = limited

    def run_of(self, uid: str) -> Run | None:
        """The last start of worker `uid` in this process, None if there was none."""
        return self._runs.get(uid)

    def running(self, uid: str) -> bool:
        """Whether worker `uid` was started and has not ended, as far as is known."""
        run = self._runs.get(uid)
        return run is not None and run.running

    def failure(self, uid: str) -> str:
        """Why worker `uid` could not be started in this process; "" if it could, or nobody tried."""
        return self._runs.failure(uid)

    def lives(self, uid: str, run: str) -> bool:
        """Whether `run` is the start of worker `uid` that has not ended."""
        present = self._runs.get(uid)
        return present is not None and present.running and present.id == run

    def state_folder(self, uid: str) -> Path:
        """The folder of worker `uid` on the host that its sidecar may write."""
        return WorkerFolders.of(self._settings, uid).state

    async def interactive(self, uid: str) -> bool:
        """Whether worker `uid` may report events: its template has a `[sidecar]` table."""
        run = self._runs.get(uid)
        if run is not None:
            return run.interactive
        # The worker may report before its start is noted here.
        _, record = await self.record(uid)
        return parse_template(record.template, record.overrides).interactive

    def statistics(self) -> RunStatistics:
        """Starts and failures of this process."""
        return replace(self._runs.statistics)

    def runs(self) -> list[tuple[str, Run]]:
        """The uid and last start of each worker that was started in this process."""
        return list(self._runs.items())

    async def cards(self, uid: str = "") -> dict[str, Card]:
        """The cards by uid, of one worker or of all; a worker without a run has the card of its template."""
        found = {known: run.card for known, run in self.runs() if uid in ("", known)}
        if uid in found:
            return found
        for agent, record in await self.records():
            if agent.uid not in found and uid in ("", agent.uid):
                # A template of another version cannot be read; its worker cannot be started either.
                with contextlib.suppress(InvalidTemplate):
                    template = parse_template(record.template, record.overrides)
                    found[agent.uid] = card_of(agent, record, template)
        return found

    def take_card(self, uid: str, announced: bytes) -> None:
        """Give worker `uid` the card that it announced; a ProtocolViolation if it may not have that card."""
        run = self.run_of(uid)
        if run is None or not run.running:
            log.info("%s announced a card and does not run", uid)
            return
        card = read_card(announced, uid, run.nick)
        if card != run.card:
            run.card = card
            self._changed()

    async def records(self) -> list[tuple[Agent, WorkerRecord]]:
        """Every worker that is not retired, oldest first."""
        records = await self._database.read(lambda store: store.workers.all_workers())
        agents = {agent.uid: agent for agent in await self._directory.all()}
        return [(agents[record.uid], record) for record in records if record.uid in agents]

    async def record(self, ref: str) -> tuple[Agent, WorkerRecord]:
        """The worker with that nick (with or without `@`) or uid."""
        agent = await self._directory.resolve(ref)
        record = await self._database.read(lambda store: store.workers.worker_by_uid(agent.uid))
        if record is None:
            raise NotFound(f"@{agent.nick} is not a worker of this post room")
        return agent, record

    async def is_public(self, uid: str) -> bool:
        """Whether the card of worker `uid` is for everybody, by its template."""
        record = await self._database.read(lambda store: store.workers.worker_by_uid(uid))
        if record is None:
            return False
        with contextlib.suppress(InvalidTemplate):
            return parse_template(record.template, record.overrides).public
        return False

    async def spawn(self, request: SpawnRequest, permit: Permit) -> Agent:
        """Make a worker and start it; `permit` is asked before anything is made.

        Raises:
            InvalidTemplate, InvalidName: the template, a value or a name is not valid.
            InvalidInput: its agent asks nobody, and is to be allowed something.
            NameTaken: another agent has the nick.
            Forbidden: only the template asks for a weaker wall than is demanded, or it is beyond the reach of who asks.
            SandboxUnavailable: this machine has no such wall; nothing was made.
            StateUnwritable: the disk is full; nothing was made.
        """
        self._space()
        reach = await self._preparing.reach(request.by)
        prepared = await self._preparing.prepare(
            request.template,
            request.files,
            request.values,
            reach,
            sandbox=request.sandbox,
            isolation=request.isolation,
        )
        template, chosen = prepared.template, prepared.chosen
        if request.rules and not template.interactive:
            raise InvalidInput("its agent asks nobody", remedy="leave --autonomous out")
        planned = await self.work.spaces.plan(
            request.workspace, request.mode, chosen.provider, reach, request.branches
        )
        if planned is not None:
            request = replace(request, workspace=str(planned.folder), mode=planned.mode)
        await permit()
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
                origin=request.origin,
                rules=list(request.rules),
            )

        # One transaction: an agent without its record would have a name and mail, and could never be started.
        agent = await self._directory.register(
            request.nick or template.name,
            kind="worker",
            projects=(project,),
            also=lambda c, agent: c.workers.add_worker(record_of(agent)),
        )
        try:
            async with self._runs.lock(agent.uid):
                await self._start(agent, record_of(agent), prepared)
        except BaseException:
            await self._undo_spawn(agent)
            raise
        return agent

    async def _undo_spawn(self, agent: Agent) -> None:
        await self._forget(agent.uid)
        await self.work.spaces.forget(agent.uid)
        await asyncio.to_thread(
            shutil.rmtree, WorkerFolders.of(self._settings, agent.uid).root, ignore_errors=True
        )

    async def _forget(self, uid: str) -> None:
        await self._gateway.close_door(uid)
        # In this order a kill in between leaves only a record that nobody asks for.
        await self._directory.retire(uid)
        await self._database.write(lambda store: store.workers.remove_worker(uid))
        for stream in AGENT_CONSUMER_STREAMS:
            await self._admin.delete_consumer(stream, uid)

    async def remove(self, ref: str, *, purge: bool = False) -> tuple[Agent, Path]:
        """End a worker and take its address away for ever; its nick is free again.

        Returns:
            The agent, and the folder with its workspace, which stays unless it is purged.

        Raises:
            StateUnwritable: its folder cannot be deleted; the worker is removed all the same.
            Conflict: its folder has work that is nowhere else, and is kept; the worker is removed all the same.
        """
        agent, record = await self.record(ref)
        async with self._runs.lock(agent.uid):
            await self._runs.end(agent.uid)
            await self._issuer.withdraw(agent.uid)
            unsaved = await self.work.at_end(agent, record)
            await self._forget(agent.uid)
            self._runs.forget(agent.uid)
        self._changed()
        folder = WorkerFolders.of(self._settings, agent.uid).root
        if purge and unsaved:
            raise Conflict(
                f"@{agent.nick} is removed, and its folder {folder} is kept: {unsaved}",
                remedy="save what you need, then: postroom prune",
            )
        if not unsaved:
            await self.work.spaces.forget(agent.uid)
        if purge:
            await asyncio.to_thread(delete, folder)
        return agent, folder

    async def left(self) -> list[tuple[Leftover, str]]:
        """The folders of removed workers, each with the nick that its worker had, "" if unknown."""
        # Folders first: a worker that is spawned meanwhile has its record before its folder.
        found = await asyncio.to_thread(folders, self._settings.workers)
        kept = {
            record.uid
            for record in await self._database.read(lambda store: store.workers.all_workers())
        }
        nicks = {agent.uid: agent.nick for agent in await self._directory.all(retired=True)}
        return [
            (await asyncio.to_thread(measured, folder), nicks.get(folder.name, ""))
            for folder in found
            if folder.name not in kept
        ]

    async def prune(self) -> list[tuple[Leftover, str]]:
        """Delete the folders of removed workers; returns what they were."""
        found = await self.left()
        for left, _ in found:
            await asyncio.to_thread(delete, left.folder)
        return found

    async def stop(self, ref: str) -> Agent:
        """End a worker; its address, inbox and workspace stay.

        Raises:
            StateUnwritable: the disk is full; the worker has ended, and the next start of the post room starts it.
        """
        agent, record = await self.record(ref)
        async with self._runs.lock(agent.uid):
            try:
                if record.desired != REVOKED:
                    await self._database.write(
                        lambda store: store.workers.set_desired(agent.uid, STOPPED)
                    )
            except StateUnwritable as error:
                await self._runs.end(agent.uid)  # it may be what fills the disk
                raise StateUnwritable(
                    f"@{agent.nick} has ended, and that is not noted: {error.message}",
                    remedy=f"free space, then postroom stop {agent.nick}: else it starts with the post room",
                ) from error
            await self._runs.end(agent.uid)
            await self._issuer.withdraw(agent.uid)
            try:
                await self.work.after(agent, record)
            finally:
                self.work.ended(agent.uid)
        return agent

    async def revoke(self, *refs: str) -> list[Agent]:
        """Revoke every credential of these workers, or of all, cut their connections and end them.

        It does not wait for a start or stop that is under way, and returns when every server has cut the
        connections. `restart` gives a worker a new key.

        Raises:
            NotFound: one is not a worker; nothing was revoked.
            ServerFailed: not every server has the revocation; they get it later, and the rest is done.
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
        def forbid(store: Store) -> None:
            store.workers.set_desired(uid, REVOKED)
            store.workers.set_token(uid, digest(new_token()))

        run = self._runs.get(uid)
        if run is not None:
            run.stopping = True  # so that its end raises no alert
        await self._database.write(forbid)
        await self._gateway.close_door(uid)

    async def _end_revoked(self, uid: str) -> None:
        async with self._runs.lock(uid):
            # A start that was under way has made a credential since, and set the worker to running.
            await self._shut_out(uid)
            await self._issuer.withdraw(uid)
            await self._runs.end(uid)

    async def restart(
        self,
        ref: str,
        by: str,
        permit: Permit,
        template: str = "",
        files: Mapping[str, str] | None = None,
    ) -> tuple[Agent, tuple[str, ...]]:
        """End a worker if it runs, and start it with a new credential and token.

        Args:
            by: who asks (`SpawnRequest.by`).
            permit: asked before the worker becomes another: of another template, or judged for another.
            template: text of a new template; "" for the one that it has.
            files: that the new template names, in base64.

        Returns:
            The worker, and what is new in its template and files.

        Raises:
            StateUnwritable: the disk is full; nothing was changed.
            CallerError: the new template cannot be taken, or is beyond the reach of who asks; nothing was changed.
            PostroomError: the worker could not be started; it is shown as failed.
        """
        agent, record = await self.record(ref)
        self._space()
        judged = given_by(record.origin, by, template=bool(template))
        another = judged != record.origin.get(BY, "")
        record = replace(record, origin=record.origin | {BY: judged})
        renewal = None
        if template:
            renewal = await self._preparing.renew(agent, record, template, files or {})
            record = renewal.record
        if another or (renewal is not None and renewal.changed):
            await permit()
        async with self._runs.lock(agent.uid):
            try:
                await self._runs.end(agent.uid)
                await self._note_restart(record)
                prepared = renewal.prepared if renewal else await self._preparing.again(record)
                again = replace(record, begun_at=time.time(), exceeded="")
                await self._start(agent, again, prepared)
            except Exception as error:
                await self._fail(agent, error)
                raise
        return agent, renewal.changed if renewal else ()

    async def _note_restart(self, record: WorkerRecord) -> None:
        def note(store: Store) -> None:
            store.workers.set_desired(record.uid, RUNNING)
            store.workers.set_begun(record.uid, time.time())
            store.workers.set_template(record)

        await self._database.write(note)

    async def refuse_beyond(self, ref: str, by: str) -> None:
        """Raise Forbidden if a worker has more of the machine than `by` may give one: a shell in it would be theirs."""
        agent, record = await self.record(ref)
        await self._preparing.refuse_beyond(record, by)
        await self.work.refuse_beyond(agent, record, by)

    async def enforce(self) -> None:
        """End the workers that have more of the machine than whoever they are judged for may give them now."""
        for agent, record in await self.records():
            if not self.running(agent.uid):
                continue
            try:
                await self.refuse_beyond(agent.uid, record.origin.get(BY, ""))
            except Forbidden as error:
                async with self._runs.lock(agent.uid):
                    await self._runs.end(agent.uid)
                await self._runs.fail(agent, error)

    async def restore(self) -> None:
        """Start the workers that ran when the last process of this post room ended; each failure is an alert.

        A worker that was ended for a limit stays down until a person starts it.
        """
        await self._issuer.withdraw()  # the workers that held one ended with the last process
        for agent, record in await self.records():
            if record.desired != RUNNING or record.exceeded:
                continue
            try:
                async with self._runs.lock(agent.uid):
                    await self._start(agent, record, await self._preparing.again(record))
            except Exception as error:  # noqa: BLE001 (`fail` reports it)
                await self._fail(agent, error)

    async def _fail(self, agent: Agent, error: Exception) -> None:
        await self._runs.fail(agent, error)
        if isinstance(error, SandboxUnavailable):
            self._unwalled.add(agent.uid)

    async def _try_again(self, uid: str) -> bool:
        """Start a worker that found no wall; False if there is still none."""
        try:
            async with self._runs.lock(uid):
                agent, record = await self.record(uid)
                if record.desired == RUNNING and not record.exceeded and not self.running(uid):
                    await self._start(agent, record, await self._preparing.again(record))
        except SandboxUnavailable:
            return False
        except NotFound:
            return True
        except Exception as error:  # noqa: BLE001 (`fail` reports it)
            await self._runs.fail(agent, error)
        return True

    async def close(self) -> None:
        """End every sandbox; the wanted state of the workers stays."""
        self._unwalled.close()
        await self._runs.close()
        for uid, _ in self.runs():
            self.work.ended(uid)

    # Inner parts; the caller holds the worker's lock.

    async def _start(self, agent: Agent, record: WorkerRecord, prepared: Prepared) -> None:
        present = self._runs.get(agent.uid)
        if present is not None and present.running:
            raise AlreadyRunning(f"@{agent.nick} runs already")
        chosen = prepared.chosen
        if record.level != chosen.capability.level:
            level = chosen.capability.level.value
            await self._database.write(lambda store: store.workers.set_level(agent.uid, level))
        before = await self._alerts.reached()
        said = record.origin
        placed = await self.work.spaces.ready(
            agent,
            said.get("workspace", ""),
            said.get("mode", ""),
            chosen.provider,
            limits_of(prepared.template).disk,
            prepared.reach,
            said.get("branches", "").split("\n") if "branches" in said else (),
        )
        run = await self._starter.start(agent, record, prepared, placed)
        self._runs.begin(agent, run)
        await self._refuse_closed(agent, record, prepared.reach)
        await self._alerts.end("it was started again", who=agent.uid, upto=before)

    async def _refuse_closed(self, agent: Agent, record: WorkerRecord, reach: Reach) -> None:
        """End a worker that has what was closed while it started; from here on `enforce` finds it running."""
        by = record.origin.get(BY, "")
        if await self._preparing.reach(by) == reach:
            return
        try:
            await self.refuse_beyond(agent.uid, by)
        except Forbidden:
            await self._runs.end(agent.uid)
            raise
