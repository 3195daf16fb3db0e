"""A2A requests of the worker's own agent to an agent: another one, or itself.

A task goes the way of all tasks, as a request to the worker's inbox: it is on disk before it is answered, and waits
its turn. The log has its states (docs/architecture.md, Tasks).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress

from postroom.errors import Conflict, Forbidden, NotFound
from postroom.protocol.content import REFERENCES, Content, says_same
from postroom.protocol.tasks import key_of, used_before
from postroom.protocol.verbs import AnswerTask, CancelTask, Delegate
from postroom.sidecar.a2a.changes import TaskChange
from postroom.sidecar.a2a.live import LivePeers
from postroom.sidecar.actions import Actions
from postroom.sidecar.task_client import TaskClient
from postroom_a2a.service import Submitted, TaskPage, TaskQuery, TaskVersion
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import Message, Task

SLICE = 20.0
"""Seconds of one wait for a task."""

LAST = 2**53
"""A sequence after every record: the page of changes behind it has the task alone."""


class AskedTasks:
    """The tasks of the agent `worker`, for this worker's agent; implements `postroom_a2a.service.TaskService`."""

    def __init__(
        self, actions: Actions, task_client: TaskClient, live: LivePeers, own: str, worker: str
    ) -> None:
        self._actions = actions
        self._task_client = task_client
        self._live = live
        self._own = own
        self._worker = worker

    async def submit(self, message: Message, _requester: str, *, follow: bool) -> Submitted:
        """As `TaskService.submit`."""
        ask = Delegate(
            self._worker,
            "",
            "",
            key=key_of(message["messageId"]),
            stream=follow,
            quiet=follow,
            named=message["messageId"],
            said=Content.whole(message),
        )
        found = await self._actions.delegate(ask)
        with suppress(NotFound):  # it is new, and not folded yet
            _check_same(await self._task_client.snapshot(found.task), message)
        return Submitted(found.task, found.repeated)

    async def get(self, task: str, _requester: str) -> TaskVersion:
        """As `TaskService.get`."""
        await self._check(task)
        page = await self._task_client.changes(task, LAST)
        return TaskVersion(page.task, page.sequence)

    async def wait(self, task: str, _requester: str, seconds: float) -> None:
        """As `TaskService.wait`."""
        clock = asyncio.get_running_loop().time
        end = clock() + seconds
        while (left := end - clock()) > 0:
            view = await self._actions.task(task, wait=True, timeout=min(SLICE, left))
            state = TaskState(view["state"])
            if state.terminal or state.interrupted:
                return

    async def list(self, query: TaskQuery, _requester: str) -> TaskPage:
        """As `TaskService.list`."""
        if self._worker == self._own:
            return await self._task_client.page("worker", "", query)
        return await self._task_client.page("requester", self._worker, query)

    async def cancel(self, task: str, _requester: str) -> Task:
        """As `TaskService.cancel`."""
        await self._check(task)
        try:
            await self._actions.cancel_task(CancelTask(task))
        except (Forbidden, NotFound) as error:
            # The task exists (see above), so another agent asked for it.
            raise Conflict(error.message) from error
        return await self._task_client.snapshot(task)

    async def answer(self, task: str, message: Message, _requester: str) -> bool:
        """As `TaskService.answer`."""
        try:
            said = Content.whole(message)
            action = AnswerTask(task, "", named=message["messageId"], said=said)
            return (await self._actions.answer_task(action))[1]
        except Forbidden as error:
            raise Conflict(error.message) from error

    def follow(self, task: str, _requester: str, after: int) -> AsyncGenerator[TaskChange, None]:
        """As `TaskService.follow`."""
        return self._live.follow(self._task_client, task, after, self._worker)

    async def _check(self, task: str) -> None:
        """Raise NotFound for a task that another agent works on."""
        view = await self._actions.task(task, wait=False, timeout=0)
        if view["worker"]["uid"] != self._worker:
            raise NotFound("there is no such task")


def _check_same(task: Task, message: Message) -> None:
    """Raise `InvalidInput` if another message than `message` has begun the task."""
    # The context, and the task at which the agent was at work, may have been added when it was sent.
    added = {"contextId", REFERENCES} - message.keys()
    asked = {name: value for name, value in task["history"][0].items() if name not in added}
    if not says_same(asked, message):
        raise used_before(task["id"])
