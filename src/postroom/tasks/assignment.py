"""Assigns a task to a worker, the one that the requester names or the least busy one with the skill; also once more.

A task that has failed, was canceled or rejected is asked for again as a new task with the same message. The new request
names the old task, for Postroom (`protocol.envelope.TaskRequest.retry_of`) and for A2A (`referenceTaskIds`). Who asks
again is its requester: nobody is given a result that they did not ask for.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from weakref import WeakValueDictionary

from postroom.directory.agents import Directory
from postroom.directory.grants import GrantScope, among
from postroom.directory.search import AgentSearch
from postroom.errors import Conflict, Forbidden, InvalidInput, NotFound, StreamFull
from postroom.protocol.content import REFERENCES, Content
from postroom.protocol.ids import NAME
from postroom.protocol.limits import SHORT_ID
from postroom.protocol.principal import Principal
from postroom.store.agents import Agent
from postroom.store.database import Database, Store
from postroom.store.ports import TaskHead, TaskRow
from postroom.tasks.requests import Requests, request_key
from postroom.tasks.service import OrgTaskService
from postroom.tasks.views import TaskView
from postroom_a2a.task_state import TaskState
from postroom_a2a.text import one_line

MAX_CHOSEN = 1024
"""Choices that are remembered for a key that is used again at once; older ones are folded, and found in SQL."""


class TaskAssigner:
    """Finds the worker of a task, and sends it the request.

    A repeated request with the same key goes to the same worker.
    """

    def __init__(
        self,
        office: OrgTaskService,
        requests: Requests,
        directory: Directory,
        search: AgentSearch,
        database: Database,
    ) -> None:
        self._office = office
        self._requests = requests
        self._directory = directory
        self._database = database
        self._search = search
        self._chosen: dict[tuple[str, str], str] = {}

    async def delegate(
        self,
        requester: str,
        *,
        to: Agent | None,
        skill: str,
        said: Content | str,
        key: str = "",
        door: str = "",
    ) -> TaskView:
        """Request a task from the agent `to` or, with `skill` alone, from the least busy agent that has the skill.

        Whether `requester` may reach `to`, the caller has found out; nobody else is chosen.

        Raises:
            NotFound: no agent has the skill.
            InvalidInput: neither `to` nor `skill` is given.
            PostroomError: as `OrgTaskService.delegate`.
        """
        if not (to or skill):
            raise InvalidInput(
                "a task needs a worker or a skill", remedy="name an agent or a skill"
            )
        named = request_key(key)
        worker = to or await self.choose(requester, skill, named)
        try:
            return await self._office.delegate(
                requester, worker, said, skill=skill, key=key, door=door
            )
        except StreamFull:
            self._chosen.pop(
                (requester, named), None
            )  # nothing was sent: another worker may have room
            raise

    async def choose(self, requester: str, skill: str, key: str) -> Agent:
        """The agent that gets the task: of those with the skill and online, the one with the least to do.

        Args:
            requester: uid; it is not chosen itself.
            key: key of the request's message id. An earlier request under it decides the agent. "" for none.

        Raises:
            NotFound: no other agent has the skill.
        """
        if key and (given := await self._given(requester, key)) is not None:
            return given
        having = [found for found in await self._search.having(skill) if found[0].uid != requester]
        named = [agent.uid for agent, _ in having]
        reached = await self._database.point(
            lambda store: among(store, requester, named, GrantScope.TASK, time.time())
        )
        having = [found for found in having if found[0].uid in reached]
        if not having:
            raise NotFound(
                f"no other agent has the skill {one_line(skill, 80)!r}",
                remedy="postroom agents lists skills",
            )
        counts = await self._office.open_counts()
        worker, _ = min(
            having,
            key=lambda found: (
                bool(self._office.blocker(found[0].uid)),
                not found[1],
                counts.get(found[0].uid, 0),
                found[0].nick,
            ),
        )
        if key:
            self._chosen[requester, key] = worker.uid
            while len(self._chosen) > MAX_CHOSEN:
                del self._chosen[next(iter(self._chosen))]
        return worker

    async def _given(self, requester: str, key: str) -> Agent | None:
        # Even one that no longer has the skill: it had the skill when it got the request.
        everybody = {agent.uid: agent for agent in await self._directory.all()}
        chosen = self._chosen.get((requester, key), "")
        return everybody.get(chosen or await self._requests.given(requester, key, everybody))


class TaskRetries:
    """Retries of the tasks of an organisation."""

    def __init__(self, office: OrgTaskService, database: Database) -> None:
        self._office = office
        self._database = database
        # By task: of two that ask at once the second finds what the first one made.
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def retry(
        self, ref: str, me: Principal, *, key: str = "", force: bool = False, door: str = ""
    ) -> TaskView:
        """Ask for a task again, of the same agent; returns the new task when its request is on disk.

        Args:
            ref: as for `OrgTaskService.find`.
            key: one key gives one new task. Without one a task has one retry, whoever asks and how often.
            force: also for a completed task.
            door: as for `OrgTaskService.delegate`.

        Raises:
            NotFound: no such task that `me` may see, or its request is no longer kept.
            Forbidden: another asked for it.
            Conflict: it has not ended, it is completed, or its agent was removed.
            PostroomError: as `Requests.store`.
        """
        row = await self._office.find(ref, me.only)
        if me.only and row.requester != me.only:
            raise Forbidden("only who asked for a task can ask for it again")
        _check_state(row, force=force)
        turn = self._turns.setdefault(row.id, asyncio.Lock())
        async with turn:
            before = [] if key else await self._made(row.id)
            if before:
                return await self._office.get(before[-1].id)
            worker, said = await self._database.point(lambda store: _asked(store, row))
            return await self._office.delegate(
                me.uid,
                worker,
                said,
                skill=row.skill,
                key=f"retry\0{row.id}\0{key}",
                door=door,
                retry_of=row.id,
            )

    async def _made(self, task: str) -> list[TaskHead]:
        return await self._database.point(lambda store: store.tasks.retries_of(task))


def _check_state(row: TaskRow, *, force: bool) -> None:
    short = row.id[:SHORT_ID]
    if not row.final:
        raise Conflict(
            f"the task is {row.state}: it has not ended", remedy=f"postroom task cancel {short}"
        )
    if row.state == TaskState.COMPLETED and not force:
        raise Conflict(
            "the task is completed: asked for again, it is done twice",
            remedy=f"postroom task retry {short} --force",
        )


def _asked(store: Store, row: TaskRow) -> tuple[Agent, Content]:
    """The agent of a task, and what it was asked: the message of the requester, not what its worker made of it."""
    worker = store.agents.agent_by_uid(row.worker)
    if worker is None or worker.retired:
        named = (
            f"@{worker.nick}" if worker is not None and NAME.fullmatch(worker.nick) else "its agent"
        )
        raise Conflict(
            f"{named} was removed: it cannot be asked again", remedy="postroom delegate @NICK TEXT"
        )
    message = store.messages.message_at(row.requested_seq)
    if message is None or message.sender != row.requester:
        raise NotFound("the request of this task is no longer kept")
    said = Content.whole(json.loads(message.message))
    named = said.more.get(REFERENCES)
    others = [each for each in named if each != row.id] if isinstance(named, list) else []
    more = {**said.more, REFERENCES: [row.id, *others]}
    return worker, replace(said, thread=row.context_id, more=more)
