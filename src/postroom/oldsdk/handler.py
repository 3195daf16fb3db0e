"""The A2A operations over durable tasks, as the SDK's routes and gateways call them (A2A 1.0, section 3.1).

A front door (JSON-RPC, REST, gRPC) takes a `TaskRequestHandler` for the SDK's `RequestHandler`; it has the same
operations and imports none of the SDK's server. Where tasks come from is a `TaskService` (`a2a/service.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import replace
from datetime import UTC
from typing import TYPE_CHECKING

from a2a.utils.errors import (
    A2AError,
    InternalError,
    InvalidParamsError,
    InvalidRequestError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from a2a.utils.proto_utils import validate_proto_required_fields
from a2a.utils.task import apply_history_length, validate_history_length, validate_page_size

from a2a import types
from postroom.errors import Conflict, Forbidden, InvalidInput, NotFound, PostroomError
from postroom.oldsdk import translate
from postroom_a2a.service import PAGE, TaskQuery, TaskService, TaskVersion
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import Event, Message, Task

if TYPE_CHECKING:
    from a2a.server.context import ServerCallContext
    from a2a.server.request_handlers.request_handler import RequestHandler as _RequestHandler
else:
    _RequestHandler = object  # importing it costs half a second of CPU time

WAIT = 3600.0
"""Seconds that a blocking call or a stream waits for its task; then it ends with the task as it is."""

RESUME = 5.0
"""Seconds that a stream waits for an answer to be taken before it shows the task as it is."""


class TaskRequestHandler(_RequestHandler):
    """The operations of A2A 1.0 on the tasks of one agent.

    Args:
        service: the agent's tasks.
        wait: seconds that a blocking call or a stream waits.
    """

    def __init__(self, service: TaskService, *, wait: float = WAIT) -> None:
        self._service = service
        self._wait = wait

    # ── messages ────────────────────────────────────────────────────────────────────────────────────

    async def on_message_send(
        self, params: types.SendMessageRequest, context: ServerCallContext
    ) -> types.Task | types.Message:
        """Ask for a task or answer one; returns when it has ended or asks, or at once if that is wanted."""
        requester = _requester(params, context)
        version, told = await self._send(params, requester)
        if not (params.configuration.return_immediately or (told and version.settled)):
            version = await self._settled(version, requester)
        return apply_history_length(translate.to_task(version.task), params.configuration)

    async def on_message_send_stream(
        self, params: types.SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[translate.Update | types.Task]:
        """Ask for a task or answer one; yields the Task, then its changes until it has ended or asks."""
        requester = _requester(params, context)
        version, told = await self._send(params, requester)
        if version.sequence and not params.message.task_id:
            async with aclosing(self._replayed(version, params, requester)) as replayed:
                async for update in replayed:
                    yield update
            return
        if not told:
            before = version.sequence
            version = await self._resumed(version, requester)
            told = version.sequence > before
        yield apply_history_length(translate.to_task(version.task), params.configuration)
        if told and version.settled:
            return
        async with aclosing(self._changes(version, requester)) as changes:
            async for change in changes:
                for update in _updates(change):
                    yield update
                if change.settled:
                    return

    async def _replayed(
        self, version: TaskVersion, params: types.SendMessageRequest, requester: str
    ) -> AsyncGenerator[translate.Update | types.Task]:
        """A task from its first change on, so that each stream of it shows the same, however soon it was begun."""
        first = True
        async with aclosing(self._changes(replace(version, sequence=0), requester)) as changes:
            async for change in changes:
                if first:
                    yield apply_history_length(translate.to_task(change.task), params.configuration)
                else:
                    for update in _updates(change):
                        yield update
                first = False
                if change.settled and change.sequence >= version.sequence:
                    return

    async def _send(
        self, params: types.SendMessageRequest, requester: str
    ) -> tuple[TaskVersion, bool]:
        """The task, and whether the message is in it already."""
        validate_history_length(params.configuration)
        if params.configuration.HasField("task_push_notification_config"):
            raise PushNotificationNotSupportedError
        message = translate.to_json(params.message)
        if params.message.task_id:
            return await self._answer(message, params.message, requester)
        with _errors(UnsupportedOperationError):
            task = await self._service.submit(message, requester)
            return await self._service.get(task, requester), True

    async def _answer(
        self, message: Message, said: types.Message, requester: str
    ) -> tuple[TaskVersion, bool]:
        with _errors(UnsupportedOperationError):
            version = await self._service.get(said.task_id, requester)
            task = version.task
            if said.context_id and said.context_id != task["contextId"]:
                raise InvalidParamsError(f"task {said.task_id} is of another context")
            history = task.get("history", ())
            if any(each.get("messageId") == said.message_id for each in history):
                return version, True  # the same answer again
            if not version.state.interrupted:
                raise Conflict(
                    f"task {said.task_id} is {version.state.value}: it waits for no answer"
                )
            await self._service.answer(
                said.task_id, {**message, "contextId": task["contextId"]}, requester
            )
            return version, False

    async def _settled(self, version: TaskVersion, requester: str) -> TaskVersion:
        async with aclosing(self._changes(version, requester)) as changes:
            async for change in changes:
                version = change
                if change.settled:
                    break
        return version

    async def _resumed(self, version: TaskVersion, requester: str) -> TaskVersion:
        """The task with the answer in it; as it was, if its worker does not take the answer soon."""
        async with aclosing(self._changes(version, requester, RESUME)) as changes:
            async for change in changes:
                return change
        return version

    async def _changes(
        self, version: TaskVersion, requester: str, seconds: float | None = None
    ) -> AsyncGenerator[TaskVersion]:
        """What follows `version`; ends after a terminal change, and when the time is over."""
        deadline = asyncio.get_running_loop().time() + (seconds or self._wait)
        follow = self._service.follow(str(version.task["id"]), requester, version.sequence)
        async with aclosing(follow) as changes:
            while True:
                with _errors(UnsupportedOperationError):
                    try:
                        async with asyncio.timeout_at(deadline):
                            change = await anext(changes)
                    except (StopAsyncIteration, TimeoutError):
                        return
                yield change
                if change.state.terminal:
                    return

    # ── tasks ───────────────────────────────────────────────────────────────────────────────────────

    async def on_get_task(
        self, params: types.GetTaskRequest, context: ServerCallContext
    ) -> types.Task | None:
        """A task as it is now."""
        requester = _requester(params, context)
        validate_history_length(params)
        with _errors(UnsupportedOperationError):
            version = await self._service.get(params.id, requester)
        return apply_history_length(translate.to_task(version.task), params)

    async def on_list_tasks(
        self, params: types.ListTasksRequest, context: ServerCallContext
    ) -> types.ListTasksResponse:
        """The requester's tasks, newest status first, in pages."""
        requester = _requester(params, context)
        validate_history_length(params)
        if params.HasField("page_size"):
            validate_page_size(params.page_size)
        with _errors(UnsupportedOperationError):
            page = await self._service.list(_query(params), requester)
        found = [translate.to_task(task) for task in page.tasks]
        for task in found:
            if not params.include_artifacts:
                task.ClearField("artifacts")
        return types.ListTasksResponse(
            tasks=[apply_history_length(task, params) for task in found],
            next_page_token=page.next_page,
            page_size=params.page_size or PAGE,
            total_size=page.total,
        )

    async def on_cancel_task(
        self, params: types.CancelTaskRequest, context: ServerCallContext
    ) -> types.Task | None:
        """End a task."""
        requester = _requester(params, context)
        with _errors(TaskNotCancelableError):
            version = await self._service.get(params.id, requester)
            if not version.state.terminal:
                version = await self._service.cancel(params.id, requester)
                if version.state is TaskState.CANCELED or not version.state.terminal:
                    return translate.to_task(version.task)
            raise Conflict(f"task {params.id} is {version.state.value}")

    async def on_subscribe_to_task(
        self, params: types.SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[translate.Update | types.Task]:
        """The Task, then its changes until it has ended."""
        requester = _requester(params, context)
        with _errors(UnsupportedOperationError):
            version = await self._service.get(params.id, requester)
            if version.state.terminal:
                raise Conflict(f"task {params.id} is {version.state.value}")
        yield translate.to_task(version.task)
        async with aclosing(self._changes(version, requester)) as changes:
            async for change in changes:
                for update in _updates(change):
                    yield update

    # ruff: noqa: ARG002 (what is not offered has the arguments of what would be)
    # ── what is not offered ─────────────────────────────────────────────────────────────────────────

    async def on_create_task_push_notification_config(
        self, params: types.TaskPushNotificationConfig, context: ServerCallContext
    ) -> types.TaskPushNotificationConfig:
        """Not offered: subscribe to the task."""
        raise PushNotificationNotSupportedError

    async def on_get_task_push_notification_config(
        self, params: types.GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> types.TaskPushNotificationConfig:
        """Not offered."""
        raise PushNotificationNotSupportedError

    async def on_list_task_push_notification_configs(
        self, params: types.ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> types.ListTaskPushNotificationConfigsResponse:
        """Not offered."""
        raise PushNotificationNotSupportedError

    async def on_delete_task_push_notification_config(
        self, params: types.DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        """Not offered."""
        raise PushNotificationNotSupportedError

    async def on_get_extended_agent_card(
        self, params: types.GetExtendedAgentCardRequest, context: ServerCallContext
    ) -> types.AgentCard:
        """Not offered: a card says everything to everybody who may read it."""
        raise UnsupportedOperationError("there is no extended card")


def _requester(params: translate.Proto, context: ServerCallContext) -> str:
    """Who asks.

    Raises:
        InvalidParamsError: a required field of `params` is empty.
        InvalidRequestError: nobody has checked who it is.
    """
    validate_proto_required_fields(params)
    if not (context.user.is_authenticated and context.user.user_name):
        raise InvalidRequestError("it is not known who asks")
    return context.user.user_name


def _query(params: types.ListTasksRequest) -> TaskQuery:
    since = 0.0
    if params.HasField("status_timestamp_after"):
        # The way that the times of tasks are read, or a last bit would tell an instant from itself.
        since = params.status_timestamp_after.ToDatetime(tzinfo=UTC).timestamp()
    return TaskQuery(
        context=params.context_id,
        state=translate.state_of(params.status),
        since=since,
        limit=params.page_size or PAGE,
        page=params.page_token,
    )


def _updates(change: TaskVersion) -> Iterator[translate.Update]:
    """A change as it is streamed: the first record of a task, too, is one of its status."""
    event = change.event
    if event is None or "task" in event:
        if change.state is TaskState.SUBMITTED:
            return  # as the Task that was streamed first
        event = {"statusUpdate": _status_of(change.task)}
    yield translate.to_update(event)


def _status_of(task: Task) -> Event:
    return {"taskId": task["id"], "contextId": task["contextId"], "status": task["status"]}


@contextmanager
def _errors(conflict: type[A2AError]) -> Generator[None]:
    """Raise our errors as the SDK's; what may not be seen looks as if it did not exist."""
    try:
        yield
    except (NotFound, Forbidden) as error:
        raise TaskNotFoundError from error
    except Conflict as error:
        raise conflict(error.message) from error
    except InvalidInput as error:
        raise InvalidParamsError(str(error)) from error
    except PostroomError as error:
        raise InternalError(str(error)) from error
