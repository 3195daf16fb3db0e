"""Applies an agent's events to its task (A2A 1.0, section 4.1), and gives them to those who follow it.

The former are plain functions that change the task in place. A subscriber is a stream of the events, or a call that
waits for the result.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from typing import Protocol

from a2a.types import (
    Message,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from a2a.utils.errors import InternalError, InvalidAgentResponseError

Event = Message | Task | TaskStatusUpdateEvent | TaskArtifactUpdateEvent

TERMINAL = frozenset(
    {
        TaskState.TASK_STATE_COMPLETED,
        TaskState.TASK_STATE_CANCELED,
        TaskState.TASK_STATE_FAILED,
        TaskState.TASK_STATE_REJECTED,
    }
)
INTERRUPTED = frozenset({TaskState.TASK_STATE_AUTH_REQUIRED, TaskState.TASK_STATE_INPUT_REQUIRED})
SETTLED = TERMINAL | INTERRUPTED
"""States in which the agent does nothing until the client does, or never again."""


def begun(task_id: str, context_id: str, message: Message | None) -> Task:
    """A new task, before any event of its agent."""
    task = Task(id=task_id, context_id=context_id)
    task.status.state = TaskState.TASK_STATE_SUBMITTED
    if message is not None:
        task.history.append(message)
    return task


def copied(task: Task) -> Task:
    """A copy of the task."""
    copy = Task()
    copy.CopyFrom(task)
    return copy


def say(task: Task, message: Message) -> None:
    """Put the user's message into the history, once, behind the message of the present status."""
    if any(said.message_id == message.message_id for said in task.history):
        return
    status = task.status
    if status.HasField("message"):
        task.history.append(status.message)
        status.ClearField("message")
    task.history.append(message)


def put_status(task: Task, event: TaskStatusUpdateEvent) -> None:
    """Set the status; the message of the old one goes into the history."""
    if task.status.HasField("message"):
        task.history.append(task.status.message)
    if event.HasField("metadata"):
        task.metadata.MergeFrom(event.metadata)
    task.status.CopyFrom(event.status)


def put_artifact(task: Task, event: TaskArtifactUpdateEvent) -> None:
    """Add an artifact, replace it, or append parts to it.

    Raises:
        InvalidAgentResponseError: parts for an artifact that the task does not have.
    """
    new = event.artifact
    known = next((each for each in task.artifacts if each.artifact_id == new.artifact_id), None)
    if known is None:
        if event.append:
            raise InvalidAgentResponseError(
                f"append=True for nonexistent artifact_id={new.artifact_id!r} in task {task.id!r}. "
                "The artifact must be created (append=False) before appending parts to it."
            )
        task.artifacts.append(new)
    elif event.append:
        known.parts.extend(new.parts)
        if new.HasField("metadata"):
            known.metadata.MergeFrom(new.metadata)
    else:
        known.CopyFrom(new)


def failure_of(task: Task, text: str) -> TaskStatusUpdateEvent:
    """An update to "failed", now, with the reason."""
    event = status_of(task, TaskState.TASK_STATE_FAILED)
    said = event.status.message
    said.message_id, said.role = str(uuid.uuid4()), Role.ROLE_AGENT
    said.task_id, said.context_id = task.id, task.context_id
    said.parts.add(text=text)
    return event


def status_of(task: Task, state: TaskState, *, keep: bool = False) -> TaskStatusUpdateEvent:
    """An update to `state`, now; with the message of the present status if that is to stay."""
    status = TaskStatus(state=state)
    if keep and task.status.HasField("message"):
        status.message.CopyFrom(task.status.message)
    status.timestamp.GetCurrentTime()
    return TaskStatusUpdateEvent(task_id=task.id, context_id=task.context_id, status=status)


# ── subscribers ───────────────────────────────────────────────────────────────────────────────────


BUFFER = 256
"""Unread events of a stream; then the agent waits."""

STALL = 60.0
"""Seconds after which the handler ends a stalled stream, which would hold the agent for ever."""


class Subscriber(Protocol):
    """Gets the events of a task in their order; no method but `room` waits."""

    __slots__ = ()

    @property
    def full(self) -> bool:
        """Whether the agent has to wait before its next event."""

    async def room(self) -> None:
        """Return when it has room, or was ended because it stalled."""

    def notify(self, event: Event, task: Task | None) -> None:
        """Take an event, and the task after it (the handler's own object: copy it)."""

    def done(self, request: object) -> None:
        """The agent has returned from a request."""

    def fail(self, error: Exception) -> None:
        """The last call: the agent has failed."""

    def end(self) -> None:
        """The last call: nothing follows."""


class Waiter(Subscriber):
    """A call without a stream: waits for the result of its request.

    Attributes:
        result: a future of the task or the message; None if the agent returned without either.
    """

    __slots__ = ("_at_once", "_found", "_request", "result")

    full = False

    def __init__(self, request: object, *, at_once: bool) -> None:
        self._request = request
        self._at_once = at_once
        self._found: Task | Message | None = None
        loop = asyncio.get_running_loop()
        self.result: asyncio.Future[Task | Message | None] = loop.create_future()

    async def room(self) -> None:
        """Always at once: it holds one result."""

    def notify(self, event: Event, task: Task | None) -> None:
        if self.result.done():
            return
        if isinstance(event, Message):
            self._found = event  # not the end: a second one would be an error
            return
        if isinstance(event, Task):
            state, shown = event.status.state, event
        elif isinstance(event, TaskStatusUpdateEvent) and task is not None:
            state, shown = task.status.state, task
        else:
            return
        if not self._at_once and state not in SETTLED:
            return
        self._found = copied(shown)
        # A failed task may be followed by the exception that made it fail.
        if self._at_once or state != TaskState.TASK_STATE_FAILED:
            self.result.set_result(self._found)

    def done(self, request: object) -> None:
        if request is self._request:
            self.end()

    def fail(self, error: Exception) -> None:
        if not self.result.done():
            self.result.set_exception(error)

    def end(self) -> None:
        if not self.result.done():
            self.result.set_result(self._found)


class EventStream(Subscriber):
    """The events of a task, for one reader.

    Args:
        request: its end ends the stream; None for all requests of the task.
        buffer: unread events.
        stall: seconds that the buffer may stay full.
    """

    __slots__ = (
        "_buffer", "_closed", "_error", "_events", "_full_at", "_loop", "_reader", "_request",
        "_stall", "_writer",
    )  # fmt: skip

    def __init__(
        self, request: object = None, *, buffer: int = BUFFER, stall: float = STALL
    ) -> None:
        self._request = request
        self._buffer = buffer
        self._stall = stall
        self._loop = asyncio.get_running_loop()
        self._events: deque[Event] = deque()
        self._closed = False
        self._error: Exception | None = None
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._full_at = 0.0

    @property
    def full(self) -> bool:
        """Whether the reader lags behind by the whole buffer."""
        return len(self._events) >= self._buffer and not self._closed

    async def room(self) -> None:
        """Wait for the reader; end the stream if it stalls for too long."""
        while self.full:
            if self._writer is None:
                self._writer = self._loop.create_future()
            await asyncio.wait(
                [self._writer], timeout=self._full_at + self._stall - self._loop.time()
            )
            if self.full and self._loop.time() >= self._full_at + self._stall:
                self._events.clear()
                self.fail(
                    InternalError(
                        f"the stream was not read for {self._stall:g} s and was ended; "
                        "subscribe to the task again"
                    )
                )

    def notify(self, event: Event, task: Task | None) -> None:  # noqa: ARG002
        if self._closed:
            return
        # An agent may go on changing a Task that it has sent; its updates are new objects each time.
        self._events.append(copied(event) if isinstance(event, Task) else event)
        if len(self._events) == self._buffer:
            self._full_at = self._loop.time()
        self._wake()

    def done(self, request: object) -> None:
        if request is self._request:
            self.end()

    def fail(self, error: Exception) -> None:
        if not self._closed:
            self._error = error
            self.end()

    def end(self) -> None:
        self._closed = True
        self._wake()
        self._make_room()

    async def next(self) -> Event | None:
        """The next event; None at the end.

        Raises:
            Exception: the agent's error.
            InternalError: the reader was too slow.
        """
        while not self._events:
            if self._closed:
                if self._error is not None:
                    raise self._error
                return None
            self._reader = self._loop.create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        self._full_at = self._loop.time()
        event = self._events.popleft()
        self._make_room()
        return event

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _make_room(self) -> None:
        if self._writer is not None:
            if not self._writer.done():
                self._writer.set_result(None)
            self._writer = None
