"""What the worker's own agent asks of an agent by A2A: of another one, or of itself.

A task that comes in here goes the one way that all tasks go: a request to the inbox of who is to do it. So it is
durable before it is answered, and it waits its turn. What becomes of it is what the log says (docs/architecture.md,
Tasks).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Protocol

from postroom.errors import Conflict, Forbidden, NotFound
from postroom.protocol.verbs import AnswerTask, CancelTask, Delegate
from postroom.sidecar.a2a.changes import Change, Page, until_over
from postroom.sidecar.a2a.methods import WAIT, Methods, Params, no_task
from postroom.sidecar.a2a.params import (
    Listing,
    check_message,
    history_length,
    name_param,
    remaining,
    shortened,
    token_after,
)
from postroom.sidecar.delegations import Delegated
from postroom_a2a.ecma_json import dumps
from postroom_a2a.messages import context_of
from postroom_a2a.operations import Call
from postroom_a2a.rpc import Code, RpcError
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import Task, new_task, state_of
from postroom_a2a.times import parse_time

PAGE_BYTES = 768 * 1024
"""Bytes of the tasks in one answer to ListTasks: it has to fit a message of the bus."""

SLICE = 20.0
"""Seconds of one wait for a task."""


class Tasks(Protocol):
    """Tasks as an A2A server needs them. A task is known to all of it as soon as `delegate` has returned."""

    async def delegate(self, action: Delegate, /) -> Delegated:
        """Ask for a task; returns when the request is stored.

        Raises:
            PostroomError: it was not accepted; also by the others.
        """
        ...

    async def task(self, task_id: str, /, *, wait: bool, timeout: float) -> Mapping[str, Any]:
        """The TaskView of a task that this worker does or asked for.

        Args:
            task_id: of it.
            wait: until it is final or interrupted.
            timeout: seconds for that.

        Raises:
            NotFound: there is none.
        """
        ...

    async def tasks(self, role: str, /, *, open_only: bool, other: str) -> list[dict[str, Any]]:
        """TaskViews without artifacts; with `other` only those with that agent on the other side."""
        ...

    async def snapshot(self, task_id: str, /) -> dict[str, Any]:
        """The same task as an A2A Task.

        Raises:
            NotFound: there is none.
        """
        ...

    async def changes(self, task_id: str, after: int, /) -> Page:
        """What is stored of it past a sequence.

        Raises:
            NotFound: there is none.
        """
        ...

    def follow(self, task_id: str, after: int, worker: str, /) -> AsyncGenerator[Change, None]:
        """What follows the record of sequence `after`, each change once; ends with the task."""
        ...

    async def cancel_task(self, action: CancelTask, /) -> Mapping[str, Any]:
        """End a task that this worker asked for; its TaskView.

        Raises:
            Conflict: it has ended.
        """
        ...

    async def answer_task(self, action: AnswerTask, /) -> Mapping[str, Any]:
        """Answer what a task that this worker asked for waits for; its TaskView.

        Raises:
            Conflict: it waits for nothing.
        """
        ...


class AskingOperations(Methods):
    """The operations of one agent, for the agent of this worker.

    Args:
        tasks: of this worker.
        own: its uid.
        worker: uid of the agent.
    """

    def __init__(self, tasks: Tasks, own: str, worker: str) -> None:
        super().__init__(
            {
                "SendMessage": self._send,
                "GetTask": self._get,
                "ListTasks": self._list,
                "CancelTask": self._cancel,
            },
            {"SendStreamingMessage": self._send_and_follow, "SubscribeToTask": self._subscribe},
        )
        self._tasks = tasks
        self._own = own
        self._worker = worker

    # ── messages ────────────────────────────────────────────────────────────────────────────────────

    async def _send(self, params: Params, _: Call) -> dict[str, Any]:
        message, text, configuration, limit = _said(params)
        if message.get("taskId"):
            task = (await self._follow_up(message, text))[0]
        else:
            task = await self._begin(message, text, stream=False)
        if configuration.get("returnImmediately") is not True:
            await self._settled(task)
        return {"task": shortened(await self._tasks.snapshot(task), limit)}

    async def _send_and_follow(
        self, params: Params, _: Call
    ) -> AsyncGenerator[dict[str, Any], None]:
        message, text, _configuration, limit = _said(params)
        if message.get("taskId"):
            task, after = await self._follow_up(message, text)
            first: Task = await self._tasks.snapshot(task)
        else:
            # From its first change on, so that each stream of it shows the same, however soon it was begun.
            task, after = await self._begin(message, text, stream=True), 0
            first = _as_asked(await self._tasks.snapshot(task))
        yield {"task": shortened(first, limit)}
        async with aclosing(self._following(task, after)) as changes:
            async for change in changes:
                if change.event is not None:
                    yield change.event
                if change.settled:
                    return

    async def _begin(self, message: dict[str, Any], text: str, *, stream: bool) -> str:
        key = hashlib.sha256(message["messageId"].encode("utf-8", "replace")).hexdigest()
        context = context_of(message)
        ask = Delegate(
            self._worker,
            "",
            text,
            key=f"a2a:{key}",
            stream=stream,
            context=context,
            quiet=stream,
            named=message["messageId"],
        )
        return (await self._tasks.delegate(ask)).task

    async def _follow_up(self, message: dict[str, Any], text: str) -> tuple[str, int]:
        """Answer a task; returns its id, and the sequence of the record with its question."""
        task = name_param(message, "taskId")
        view = await self._found(task)
        context = context_of(message)
        if context and context != view["context"]:
            raise RpcError(Code.INVALID_PARAMS, "the task belongs to another context", taskId=task)
        try:
            await self._tasks.answer_task(AnswerTask(task, text, named=message["messageId"]))
        except (Conflict, Forbidden) as error:
            raise RpcError(Code.UNSUPPORTED_OPERATION, error.message, taskId=task) from error
        return task, int(view["seq"])

    async def _settled(self, task: str) -> None:
        """Wait until the task is final or interrupted."""
        clock = asyncio.get_running_loop().time
        end = clock() + WAIT
        while (left := end - clock()) > 0:
            view = await self._tasks.task(task, wait=True, timeout=min(SLICE, left))
            state = TaskState(view["state"])
            if state.terminal or state.interrupted:
                return

    # ── tasks ───────────────────────────────────────────────────────────────────────────────────────

    async def _get(self, params: Params, _: Call) -> dict[str, Any]:
        task, limit = name_param(params, "id"), history_length(params)
        await self._found(task)
        return shortened(await self._tasks.snapshot(task), limit)

    async def _list(self, params: Params, _: Call) -> dict[str, Any]:
        listing = Listing.of(params)
        if self._worker == self._own:
            views = await self._tasks.tasks("worker", open_only=False, other="")
        else:
            views = await self._tasks.tasks("requester", open_only=False, other=self._worker)
        return await listed(views, listing, self._tasks)

    async def _cancel(self, params: Params, _: Call) -> dict[str, Any]:
        task = name_param(params, "id")
        await self._found(task)
        try:
            await self._tasks.cancel_task(CancelTask(task))
        except (Conflict, Forbidden, NotFound) as error:
            # It is there (see above): so it has ended, or somebody else asked for it.
            raise RpcError(Code.TASK_NOT_CANCELABLE, error.message, taskId=task) from error
        return await self._tasks.snapshot(task)

    async def _subscribe(self, params: Params, _: Call) -> AsyncGenerator[dict[str, Any], None]:
        task = name_param(params, "id")
        await self._found(task)
        # A sequence that nothing has: what is told of the task is the task itself.
        page = await self._tasks.changes(task, 2**53)
        if page.state.terminal:
            raise RpcError(Code.UNSUPPORTED_OPERATION, f"it is {page.state.value}", taskId=task)
        yield {"task": page.task}
        async with aclosing(self._following(task, page.sequence)) as changes:
            async for change in changes:
                if change.event is not None:
                    yield change.event

    def _following(self, task: str, after: int) -> AsyncGenerator[Change, None]:
        return until_over(self._tasks.follow(task, after, self._worker), WAIT)

    async def _found(self, task: str) -> Mapping[str, Any]:
        """The view of a task that the agent does; one that another does is another's."""
        try:
            view = await self._tasks.task(task, wait=False, timeout=0)
        except NotFound as error:
            raise no_task(task) from error
        if view["worker"]["uid"] != self._worker:
            raise no_task(task)
        return view


class Snapshots(Protocol):
    """Tasks by their ids."""

    async def snapshot(self, task_id: str, /) -> dict[str, Any]:
        """A task as JSON."""
        ...


async def listed(
    views: list[dict[str, Any]], listing: Listing, snapshots: Snapshots
) -> dict[str, Any]:
    """A page of `views` as the answer to ListTasks; it has fewer tasks than wanted where they are large."""
    rest, total = remaining(views, listing)
    tasks: list[dict[str, Any]] = []
    room = PAGE_BYTES
    for _, task in rest[: listing.size]:
        snapshot = shortened(await snapshots.snapshot(task), listing.history)
        if not listing.artifacts:
            snapshot.pop("artifacts", None)
        room -= len(dumps(snapshot))
        if tasks and room < 0:
            break
        tasks.append(snapshot)
    token = token_after(rest[len(tasks) - 1]) if len(rest) > len(tasks) else ""
    return {"tasks": tasks, "nextPageToken": token, "pageSize": listing.size, "totalSize": total}


def _said(params: Params) -> tuple[dict[str, Any], str, dict[str, Any], int | None]:
    """Message, its text, configuration and length of the history that a call to send states."""
    message, text = check_message(params)
    configuration = params.get("configuration") or {}
    if not isinstance(configuration, dict):
        raise RpcError(Code.INVALID_PARAMS, "'configuration' has to be an object")
    if configuration.get("taskPushNotificationConfig"):
        raise RpcError(Code.PUSH_NOTIFICATION_NOT_SUPPORTED, "there are no push notifications")
    return message, text, configuration, history_length(configuration)


def _as_asked(task: Task) -> Task:
    """The task as it was when nothing had become of it yet."""
    history = task.get("history") or []
    if state_of(task) is TaskState.SUBMITTED or not history:
        return task
    at = parse_time(str(task["status"].get("timestamp", "1970-01-01T00:00:00Z")))
    return new_task(task["id"], task["contextId"], history[0], at)
