"""What the worker's own agent asks of an agent by A2A: of another one, or of itself.

A task that comes in here goes the one way that all tasks go: a request to the inbox of who is to do it. So it is
durable before it is answered, and it waits its turn. What becomes of it is what the log says (docs/architecture.md,
Tasks).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Protocol

from postroom.errors import Conflict, Forbidden, InvalidInput, NotFound
from postroom.protocol.verbs import AnswerTask, CancelTask, Delegate
from postroom.sidecar.a2a.changes import Change, Page
from postroom.sidecar.delegations import Delegated
from postroom_a2a.ecma_json import dumps
from postroom_a2a.messages import context_of, text_of
from postroom_a2a.params import shortened
from postroom_a2a.service import TaskPage, TaskQuery, TaskVersion
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import Message, Task

PAGE_BYTES = 768 * 1024
"""Bytes of the tasks in one answer to ListTasks: it has to fit a message of the bus."""

SLICE = 20.0
"""Seconds of one wait for a task."""

LAST = 2**53
"""A sequence that nothing has: what is told of a task behind it is the task itself."""


class Tasks(Protocol):
    """Tasks as the agent has them. A task is known to all of it as soon as `delegate` has returned.

    Who neither runs a task nor asked for it gets `NotFound`.
    """

    async def delegate(self, action: Delegate, /) -> Delegated:
        """Ask for a task; returns when the request is stored."""
        ...

    async def task(self, task_id: str, /, *, wait: bool, timeout: float) -> Mapping[str, Any]:
        """The TaskView of a task; with `wait` when it is settled, at most `timeout` seconds."""
        ...

    async def tasks(self, role: str, /, *, open_only: bool, other: str) -> list[dict[str, Any]]:
        """TaskViews without artifacts; with `other` only those with that agent on the other side."""
        ...

    async def snapshot(self, task_id: str, /) -> dict[str, Any]:
        """The same task as an A2A Task."""
        ...

    async def changes(self, task_id: str, after: int, /) -> Page:
        """What is stored of it past a sequence."""
        ...

    def follow(self, task_id: str, after: int, worker: str, /) -> AsyncGenerator[Change, None]:
        """What follows the record of sequence `after`, each change once; ends with the task."""
        ...

    async def cancel_task(self, action: CancelTask, /) -> Mapping[str, Any]:
        """End a task that this worker asked for; raises `Conflict` if it has ended."""
        ...

    async def answer_task(self, action: AnswerTask, /) -> Mapping[str, Any]:
        """Answer what a task that this worker asked for waits for; raises `Conflict` if it waits for nothing."""
        ...


class AskedTasks:
    """The tasks of one agent, for the agent of this worker; implements `postroom_a2a.service.TaskService`.

    Args:
        tasks: of this worker.
        own: its uid.
        worker: uid of the agent that does the tasks.
    """

    def __init__(self, tasks: Tasks, own: str, worker: str) -> None:
        self._tasks = tasks
        self._own = own
        self._worker = worker

    async def submit(self, message: Message, _requester: str, *, follow: bool) -> str:
        """As `TaskService.submit`."""
        key = hashlib.sha256(message["messageId"].encode("utf-8", "replace")).hexdigest()
        ask = Delegate(
            self._worker,
            "",
            text_of(message),
            key=f"a2a:{key}",
            stream=follow,
            context=context_of(message),
            quiet=follow,
            named=message["messageId"],
        )
        return (await self._tasks.delegate(ask)).task

    async def get(self, task: str, _requester: str) -> TaskVersion:
        """As `TaskService.get`."""
        await self._check(task)
        page = await self._tasks.changes(task, LAST)
        return TaskVersion(page.task, page.sequence)

    async def wait(self, task: str, _requester: str, seconds: float) -> None:
        """As `TaskService.wait`."""
        clock = asyncio.get_running_loop().time
        end = clock() + seconds
        while (left := end - clock()) > 0:
            view = await self._tasks.task(task, wait=True, timeout=min(SLICE, left))
            state = TaskState(view["state"])
            if state.terminal or state.interrupted:
                return

    async def list(self, query: TaskQuery, _requester: str) -> TaskPage:
        """As `TaskService.list`."""
        if self._worker == self._own:
            views = await self._tasks.tasks("worker", open_only=False, other="")
        else:
            views = await self._tasks.tasks("requester", open_only=False, other=self._worker)
        return await page_of(views, query, self._tasks)

    async def cancel(self, task: str, _requester: str) -> Task:
        """As `TaskService.cancel`."""
        await self._check(task)
        try:
            await self._tasks.cancel_task(CancelTask(task))
        except (Forbidden, NotFound) as error:
            # It is there (see above): so somebody else asked for it.
            raise Conflict(error.message) from error
        return await self._tasks.snapshot(task)

    async def answer(self, task: str, message: Message, _requester: str) -> None:
        """As `TaskService.answer`."""
        try:
            action = AnswerTask(task, text_of(message), named=message["messageId"])
            await self._tasks.answer_task(action)
        except Forbidden as error:
            raise Conflict(error.message) from error

    def follow(self, task: str, _requester: str, after: int) -> AsyncGenerator[Change, None]:
        """As `TaskService.follow`."""
        return self._tasks.follow(task, after, self._worker)

    async def _check(self, task: str) -> None:
        """Let pass a task that the agent does; one that another does is another's."""
        view = await self._tasks.task(task, wait=False, timeout=0)
        if view["worker"]["uid"] != self._worker:
            raise NotFound("there is no such task")


class Snapshots(Protocol):
    """Tasks by their ids."""

    async def snapshot(self, task_id: str, /) -> dict[str, Any]:
        """A task as JSON."""
        ...


async def page_of(
    views: Sequence[Mapping[str, Any]], query: TaskQuery, snapshots: Snapshots
) -> TaskPage:
    """The page of the tasks with these TaskViews that `query` wants.

    Raises:
        InvalidInput: `query.page` is not a page of this server's.
    """
    found = sorted(
        (
            (float(view["updated_at"]), str(view["id"]))
            for view in views
            if query.context in ("", view["context"])
            and query.state in (None, view["state"])
            and view["updated_at"] >= query.since
        ),
        reverse=True,
    )
    after = _position(query.page) if query.page else None
    rest = [each for each in found if after is None or each < after]
    tasks: list[dict[str, Any]] = []
    room = PAGE_BYTES
    for _, task in rest[: query.limit]:
        snapshot = shortened(await snapshots.snapshot(task), query.history)
        if not query.artifacts:
            snapshot.pop("artifacts", None)
        room -= len(dumps(snapshot))
        if tasks and room < 0:
            break
        tasks.append(snapshot)
    more = len(rest) > len(tasks)
    return TaskPage(tasks, len(found), _token(rest[len(tasks) - 1]) if more else "")


def _token(position: tuple[float, str]) -> str:
    """The name of the page that follows the task with this (time of the last change, id)."""
    return base64.urlsafe_b64encode(json.dumps(position).encode()).decode()


def _position(token: str) -> tuple[float, str]:
    try:
        at, task = json.loads(base64.urlsafe_b64decode(token))
        return float(at), str(task)
    except (ValueError, TypeError, OverflowError, RecursionError, binascii.Error) as error:
        raise InvalidInput("'pageToken' is not one of this server's") from error
