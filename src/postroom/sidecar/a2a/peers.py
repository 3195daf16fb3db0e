"""Agents as A2A servers, for A2A clients beside the worker's agent: another one, or itself; their operations and cards.

Requests that begin, answer or end a task go the way of all tasks and need no running agent. Tasks and
methods that the control plane does not know are asked of the other agent itself, which answers only while it runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

from postroom.directory.cards import Card
from postroom.errors import Conflict, Forbidden, InvalidInput, NotFound, PostroomError
from postroom.protocol.content import REFERENCES, Content, says_same
from postroom.protocol.ids import UID
from postroom.protocol.tasks import key_of, used_before
from postroom.protocol.verbs import AnswerTask, CancelTask, Delegate
from postroom.sidecar.a2a.changes import LivePeers, TaskChange
from postroom.sidecar.actions import Actions
from postroom.sidecar.ctl import DirectoryClient, TaskClient
from postroom_a2a.ecma_json import dumps
from postroom_a2a.json_operations import (
    PUSH,
    UNSUPPORTED,
    JsonOperations,
    not_offered,
    read_params,
)
from postroom_a2a.operations import Call
from postroom_a2a.rpc import Code, RpcError
from postroom_a2a.service import Submitted, TaskPage, TaskQuery, TaskService, TaskVersion
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import Message, Task

KNOWN = ("GetTask", "SubscribeToTask", "CancelTask")
"""Methods about a task that may be known to the other agent alone."""


class PeerOperations(JsonOperations):
    """The operations of another agent."""

    def __init__(self, tasks: AskedTasks, live: LivePeers, worker: str) -> None:
        super().__init__(tasks)
        self._peer = worker
        self._live = live

    async def answer(self, call: Call) -> bytes:
        try:
            return await super().answer(call)
        except RpcError as error:
            if error.code is not Code.TASK_NOT_FOUND or call.method not in KNOWN:
                raise
            return await self._ask(call)

    async def other(self, call: Call) -> bytes:
        """As `JsonOperations.other`: the agent itself answers methods that are unknown here."""
        if call.method in PUSH | UNSUPPORTED:
            raise not_offered(call.method)
        return await self._ask(call)

    async def _ask(self, call: Call) -> bytes:
        try:
            return dumps(await self._live.call(self._peer, call))
        except PostroomError as error:
            raise RpcError.of(error) from error

    async def stream(self, call: Call) -> AsyncGenerator[bytes]:
        try:
            async with aclosing(super().stream(call)) as events:
                async for event in events:
                    yield event
            return
        except RpcError as error:
            if error.code is not Code.TASK_NOT_FOUND or call.method not in KNOWN:
                raise
        read_params(call)
        try:
            async with aclosing(self._live.stream(self._peer, call)) as results:
                async for result in results:
                    yield dumps(result)
        except PostroomError as error:
            raise RpcError.of(error) from error


class Peers:
    """The agents that this worker can ask."""

    def __init__(
        self,
        actions: Actions,
        directory: DirectoryClient,
        task_client: TaskClient,
        live: LivePeers,
        own: str,
    ) -> None:
        self._actions = actions
        self._directory = directory
        self._task_client = task_client
        self._live = live
        self._own = own

    async def operations(self, name: str) -> JsonOperations:
        """The operations of the agent with that nick or uid; raises InvalidInput for a person."""
        found = await self._directory.describe(await self._directory.uid_of(_ref(name)))
        if found.kind == "human":
            raise InvalidInput(f"@{found.nick} is a person", remedy="send a message")
        tasks = AskedTasks(self._actions, self._task_client, self._live, self._own, found.uid)
        if found.uid == self._own:
            return JsonOperations(tasks)
        return PeerOperations(tasks, self._live, found.uid)

    async def card(self, name: str) -> Card:
        """The agent's card."""
        card = (await self._directory.entry(_ref(name))).get("card")
        if not isinstance(card, dict):
            raise NotFound(f"{name[:80]} has no Agent Card")
        return card


def _ref(name: str) -> str:
    return name if UID.fullmatch(name) or name.startswith("@") else f"@{name}"


SLICE = 20.0
"""Seconds of one wait for a task."""

LAST = 2**53
"""A sequence after every record: the page of changes behind it has the task alone."""


class AskedTasks(TaskService):
    """The tasks of the agent `worker`, for this worker's agent."""

    def __init__(
        self, actions: Actions, task_client: TaskClient, live: LivePeers, own: str, worker: str
    ) -> None:
        self._actions = actions
        self._task_client = task_client
        self._live = live
        self._own = own
        self._worker = worker

    async def submit(self, message: Message, _requester: str, *, follow: bool) -> Submitted:
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
        await self._check(task)
        page = await self._task_client.changes(task, LAST)
        return TaskVersion(page.task, page.sequence)

    async def wait(self, task: str, _requester: str, seconds: float) -> None:
        clock = asyncio.get_running_loop().time
        end = clock() + seconds
        while (left := end - clock()) > 0:
            view = await self._actions.task(task, wait=True, timeout=min(SLICE, left))
            state = TaskState(view["state"])
            if state.terminal or state.interrupted:
                return

    async def list(self, query: TaskQuery, _requester: str) -> TaskPage:
        if self._worker == self._own:
            return await self._task_client.page("worker", "", query)
        return await self._task_client.page("requester", self._worker, query)

    async def cancel(self, task: str, _requester: str) -> Task:
        await self._check(task)
        try:
            await self._actions.cancel_task(CancelTask(task))
        except (Forbidden, NotFound) as error:
            # The task exists (see above), so another agent asked for it.
            raise Conflict(error.message) from error
        return await self._task_client.snapshot(task)

    async def answer(self, task: str, message: Message, _requester: str) -> bool:
        try:
            said = Content.whole(message)
            action = AnswerTask(task, "", named=message["messageId"], said=said)
            return (await self._actions.answer_task(action))[1]
        except Forbidden as error:
            raise Conflict(error.message) from error

    def follow(self, task: str, _requester: str, after: int) -> AsyncGenerator[TaskChange, None]:
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
