"""The operations of A2A 1.0 (section 3.1) for an unchanged `AgentExecutor` of the SDK.

The rules are those of the SDK's `DefaultRequestHandlerV2`; docs/binding.md, Handler, lists the differences. Of the
SDK's server it imports nothing beyond what the executor imports anyway.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TYPE_CHECKING

from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)
from a2a.utils.errors import (
    InternalError,
    InvalidAgentResponseError,
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from a2a.utils.input_mode_validator import validate_input_modes as check_input_modes
from a2a.utils.proto_utils import warn_on_missing_required_fields
from a2a.utils.task import apply_history_length, validate_history_length, validate_page_size

from postroom_a2a.errors import LostUpdate
from postroom_a2a.sdk.handling import changes
from postroom_a2a.sdk.handling.changes import (
    BUFFER,
    SETTLED,
    STALL,
    TERMINAL,
    Event,
    EventStream,
    Waiter,
)
from postroom_a2a.sdk.handling.configs import CardModifier, ConfigOperations, UrlCheck, require
from postroom_a2a.sdk.handling.memory import MemoryTaskStore
from postroom_a2a.sdk.handling.run import QueuedRequest, TaskRun, TaskRuns, terminal

if TYPE_CHECKING:
    from a2a.server.agent_execution import AgentExecutor, RequestContext, RequestContextBuilder
    from a2a.server.context import ServerCallContext
    from a2a.server.tasks import PushNotificationConfigStore, PushNotificationSender, TaskStore

CANCELS = 64
"""Tries of a cancel while another process changes the task faster than this one can."""

ASSIGNED = "task_id"
"""Key in the state of a call context: the id for the task that the call begins. A server that may hand a call over
twice sets it; the second time the call joins the task, or gets it as the answer."""


class AgentRequestHandler(ConfigOperations):
    """Runs an agent, stores its tasks, and notifies subscribers of their events.

    Args:
        agent_card: states the optional operations.
        task_store: default: in memory.
        push_config_store: without it, there are no push notification settings.
        push_sender: called with each change of a task, before the next one.
        request_context_builder: makes the executor's context; default: the SDK's rules.
        extended_agent_card: for callers who may see it.
        extended_card_modifier: adapts it to a caller.
        push_url_validator: whether a URL may be called.
        validate_input_modes: refuse parts of media types that the card does not name.
        interrupted_task_timeout: seconds after which a task that waits for an answer leaves memory, though not the
            store; None for never.
        buffer: events that a stream may lag behind; then the agent waits.
        stall: seconds that the agent waits for a stalled reader; then the handler ends the stream.

    Raises:
        ValueError: a number is not positive.
    """

    def __init__(
        self,
        agent_executor: AgentExecutor,
        agent_card: AgentCard,
        task_store: TaskStore | None = None,
        *,
        push_config_store: PushNotificationConfigStore | None = None,
        push_sender: PushNotificationSender | None = None,
        request_context_builder: RequestContextBuilder | None = None,
        extended_agent_card: AgentCard | None = None,
        extended_card_modifier: CardModifier | None = None,
        push_url_validator: UrlCheck | None = None,
        validate_input_modes: bool = False,
        interrupted_task_timeout: float | None = None,
        buffer: int = BUFFER,
        stall: float = STALL,
    ) -> None:
        if interrupted_task_timeout is not None and interrupted_task_timeout <= 0:
            raise ValueError("interrupted_task_timeout must be greater than 0")
        if buffer < 1 or stall <= 0:
            raise ValueError("buffer and stall must be greater than 0")
        store = MemoryTaskStore() if task_store is None else task_store
        super().__init__(
            agent_card,
            store,
            push_config_store=push_config_store,
            push_url_validator=push_url_validator,
            extended_agent_card=extended_agent_card,
            extended_card_modifier=extended_card_modifier,
        )
        self._store = store
        self._builder = request_context_builder
        self._validate_input_modes = validate_input_modes
        self._buffer = buffer
        self._stall = stall
        self._runs = TaskRuns(agent_executor, store, push_sender, interrupted_task_timeout)
        warn_on_missing_required_fields(agent_card, "agent_card of AgentRequestHandler:")

    @property
    def running(self) -> int:
        """Tasks that run, wait for an answer, or have subscribers."""
        return len(self._runs)

    async def aclose(self) -> None:
        """Take no more requests, cancel the agent's executions, end all streams.

        Tasks stay in the store as they are. A second call does nothing.
        """
        await self._runs.aclose()

    # ── messages ────────────────────────────────────────────────────────────────────────────────────

    async def on_message_send(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> Task | Message:
        """Begin a task or answer one; returns when it has ended or asks, or at once on request."""
        require(params)
        configuration = params.configuration
        begun = await self._begin(params, context)
        if isinstance(begun, Task):
            return apply_history_length(begun, configuration)
        run, request, task = begun
        if task is not None and configuration.return_immediately:
            return apply_history_length(task, configuration)
        waiter = Waiter(request or run.current, at_once=configuration.return_immediately)
        run.join(waiter)
        if request is not None:
            run.submit(request)
        try:
            result = await waiter.result
        finally:
            run.leave(waiter)
        if result is None:
            if run.task is None:
                raise InvalidAgentResponseError("the agent has ended without an answer")
            result = changes.copied(run.task)
        if isinstance(result, Task):
            _check_id(run, result)
            return apply_history_length(result, configuration)
        return result

    async def on_message_send_stream(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        """Begin a task or answer one; yields its events until the agent returns."""
        require(params)
        self._check_streaming()
        begun = await self._begin(params, context)
        if isinstance(begun, Task):
            yield apply_history_length(begun, params.configuration)
            return
        run, request, task = begun
        if task is not None:
            yield apply_history_length(task, params.configuration)
        stream = self._stream(request or run.current)
        run.join(stream)
        if request is not None:
            run.submit(request)
        try:
            while (event := await stream.next()) is not None:
                if isinstance(event, Task):
                    _check_id(run, event)
                    yield apply_history_length(event, params.configuration)
                else:
                    yield event
        finally:
            run.leave(stream)

    async def _begin(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> tuple[TaskRun, QueuedRequest | None, Task | None] | Task:
        """The run of a message, its request, and the task to show first.

        If the same call runs already, the request is None; if it has ended, the result is its Task.
        """
        message, configuration = params.message, params.configuration
        validate_history_length(configuration)
        if self._validate_input_modes:
            check_input_modes(message, self._card)
        task_id, context_id = message.task_id, message.context_id
        known = False
        if task_id:
            task = await self._followed(message, context)
            context_id = task.context_id or context_id
            known = True
        elif assigned := context.state.get(ASSIGNED):
            task = await self._store.get(assigned, context)
            run = self._runs.get(assigned)
            _check_same(assigned, task, message)
            if run is not None and run.current is not None:
                return run, None, None if run.task is None else changes.copied(run.task)
            if task is not None and task.status.state in SETTLED:
                return task
            if task is not None:
                context_id = task.context_id
            task_id, known = assigned, task is not None
        builder = self._builder
        if builder is None:
            built = self._runs.request_context(
                call_context=context,
                request=params,
                task_id=task_id or str(uuid.uuid4()),
                context_id=context_id or str(uuid.uuid4()),
            )
        else:
            built = await builder.build(
                params=params,
                task_id=task_id or None,
                context_id=context_id or None,
                task=None,
                context=context,
            )
            known = True
        if configuration.HasField("task_push_notification_config"):
            await self._configure(
                str(built.task_id), configuration.task_push_notification_config, context
            )
        return self._run_of(built, context), QueuedRequest(built, known), None

    async def _followed(self, message: Message, context: ServerCallContext) -> Task:
        """The task that a message answers."""
        task = await self._store.get(message.task_id, context)
        if task is None:
            raise TaskNotFoundError(f"Task {message.task_id} not found")
        if message.context_id and message.context_id != task.context_id:
            raise InvalidParamsError(
                f"Context {message.context_id} does not match context {task.context_id} of task {task.id}"
            )
        if task.status.state in TERMINAL:
            raise terminal(task)
        return task

    def _run_of(self, built: RequestContext, context: ServerCallContext) -> TaskRun:
        task_id, context_id = str(built.task_id), str(built.context_id)
        run = self._runs.get(task_id)
        if run is None:
            run = self._runs.open(task_id, context_id, context, built.message)
        return run

    def _stream(self, request: QueuedRequest | None = None) -> EventStream:
        return EventStream(request, buffer=self._buffer, stall=self._stall)

    # ── tasks ───────────────────────────────────────────────────────────────────────────────────────

    async def on_get_task(self, params: GetTaskRequest, context: ServerCallContext) -> Task | None:
        """A task in its present state."""
        require(params)
        validate_history_length(params)
        task = await self._store.get(params.id, context)
        if task is None:
            raise TaskNotFoundError
        return apply_history_length(task, params)

    async def on_list_tasks(
        self, params: ListTasksRequest, context: ServerCallContext
    ) -> ListTasksResponse:
        """The caller's tasks, in pages."""
        require(params)
        validate_history_length(params)
        if params.HasField("page_size"):
            validate_page_size(params.page_size)
        page = await self._store.list(params, context)
        for task in page.tasks:
            if not params.include_artifacts:
                task.ClearField("artifacts")
            shorter = apply_history_length(task, params)
            if shorter is not task:
                task.CopyFrom(shorter)
        return page

    async def on_cancel_task(
        self, params: CancelTaskRequest, context: ServerCallContext
    ) -> Task | None:
        """End a task, by its executor if possible."""
        require(params)
        for _ in range(CANCELS):
            try:
                return await self._cancel(params.id, context)
            except LostUpdate:
                continue  # another process has changed the task meanwhile
        return await self._cancel(params.id, context)

    async def _cancel(self, task_id: str, context: ServerCallContext) -> Task:
        task = await self._store.get(task_id, context)
        if task is None:
            raise TaskNotFoundError
        if task.status.state in TERMINAL:
            raise TaskNotCancelableError
        run = self._runs.get(task_id)
        if run is not None:
            try:
                return await run.cancel(context)
            except UnsupportedOperationError as error:
                raise TaskNotCancelableError from error
        # No executor of this process has it.
        event = changes.status_of(task, TaskState.TASK_STATE_CANCELED, keep=True)
        task.status.CopyFrom(event.status)
        await self._store.save(task, context)
        return changes.copied(task)

    # ── for a server of stored requests ─────────────────────────────────────────────────────────────

    def at_work(self, task_id: str) -> Callable[[], Awaitable[None]] | None:
        """The wait for the end of the work on a task; None if no work is left."""
        return self._runs.at_work(task_id)

    async def on_task_lost(self, task_id: str, context: ServerCallContext) -> Task | None:
        """Fail a task whose process is gone or ends, unless it has ended or waits for an answer.

        Returns:
            The task in its new state; None if it is unknown.
        """
        task = await self._store.get(task_id, context)
        run = self._runs.get(task_id)
        if run is None:
            if task is None or task.status.state in SETTLED:
                return task
            run = self._runs.open(task_id, task.context_id, context)
        return await run.lose(context, "the agent's server ended while it worked on this task")

    async def on_subscribe_to_task(
        self, params: SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        """The Task, then its events until it has ended."""
        require(params)
        self._check_streaming()
        task = await self._store.get(params.id, context)
        if task is None:
            raise TaskNotFoundError
        if task.status.state in TERMINAL:
            raise terminal(task)
        run = self._runs.get(params.id)
        if run is None:
            run = self._runs.open(params.id, task.context_id, context)
        stream = self._stream()
        run.join(stream)
        try:
            if run.task is None:
                # Read again: it may have ended before the run existed.
                task = await self._store.get(params.id, context) or task
                if task.status.state in TERMINAL:
                    raise terminal(task)
            yield task if run.task is None else changes.copied(run.task)
            while (event := await stream.next()) is not None:
                yield event
        finally:
            run.leave(stream)


def _check_id(run: TaskRun, task: Task) -> None:
    if task.id != run.id:
        raise InternalError("Task ID mismatch in agent response")


def _check_same(task_id: str, task: Task | None, message: Message) -> None:
    """Raise `InvalidParamsError` if another message of the same id has begun the task."""
    first = task.history[0] if task is not None and task.history else None
    if first is None or first.message_id != message.message_id:
        return  # it is new, or its agent keeps no history
    said = [*first.parts], [*first.reference_task_ids]
    if said != ([*message.parts], [*message.reference_task_ids]) or (
        message.context_id and first.context_id not in {"", message.context_id}
    ):
        raise InvalidParamsError(f"this messageId was used for another message, in task {task_id}")
