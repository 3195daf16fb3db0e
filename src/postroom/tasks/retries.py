"""Asks for a task again that has failed, was canceled or rejected: a new task with the same message.

The new request names the old task, for Postroom (`protocol.envelope.TaskRequest.retry_of`) and for A2A
(`referenceTaskIds`). Who asks again is its requester: nobody is given a result that they did not ask for.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from weakref import WeakValueDictionary

from postroom.errors import Conflict, Forbidden, NotFound
from postroom.protocol.content import REFERENCES, Content
from postroom.protocol.ids import NAME
from postroom.protocol.limits import SHORT_ID
from postroom.protocol.principal import Principal
from postroom.store.agents import Agent
from postroom.store.database import Database, Store
from postroom.store.ports import TaskHead, TaskRow
from postroom.tasks.service import OrgTaskService
from postroom.tasks.views import TaskView
from postroom_a2a.task_state import TaskState


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
