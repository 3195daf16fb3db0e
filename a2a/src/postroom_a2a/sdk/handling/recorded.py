"""Records a task: each event of the agent changes the task, is saved, and goes to the subscribers, in one order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from a2a.server.events.event_queue import EventQueue
from a2a.types import (
    Message,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatusUpdateEvent,
)
from a2a.utils.errors import InternalError, InvalidAgentResponseError, InvalidParamsError

from postroom_a2a.errors import Conflict, LostUpdate
from postroom_a2a.sdk.handling import changes
from postroom_a2a.sdk.handling.changes import SETTLED, TERMINAL, Event, Subscriber

if TYPE_CHECKING:
    from a2a.server.agent_execution import AgentExecutor, RequestContext
    from a2a.server.context import ServerCallContext
    from a2a.server.tasks.push_notification_sender import PushNotificationSender
    from a2a.server.tasks.task_store import TaskStore

Update = Task | TaskStatusUpdateEvent | TaskArtifactUpdateEvent

OVERTAKEN = (LostUpdate, Conflict)
"""The errors of a store that another writer has changed the task, or ended it."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Host:
    """What all tasks of an agent share.

    Attributes:
        push: called with each change, unless None.
        idle: seconds after which a task that waits for an answer leaves memory; None for never.
    """

    executor: AgentExecutor
    store: TaskStore
    push: PushNotificationSender | None
    idle: float | None
    request_context: type[RequestContext]
    discard: Callable[[Any], None]


class RecordedTask:
    """One task, recorded from its agent's events, and its subscribers.

    The executor's own coroutine records the events. Nothing changes a terminal task any more.

    Attributes:
        task: as saved last; None before the agent has begun one.
        unsaved: its failure could not be stored, so the store may still have it as working.
        finished: takes no more requests: the task has ended, or the answer was a message.
    """

    __slots__ = (
        "_context",
        "_context_id",
        "_ended",
        "_first",
        "_host",
        "_lock",
        "_said",
        "_subscribers",
        "_tasked",
        "finished",
        "id",
        "task",
        "unsaved",
    )

    def __init__(
        self,
        host: Host,
        task_id: str,
        context_id: str,
        context: ServerCallContext,
        first: Message | None,
    ) -> None:
        self._host = host
        self.id = task_id
        self.task: Task | None = None
        self.finished = False
        self.unsaved = False
        self._context_id = context_id
        self._context = context
        self._first = first
        self._said: Message | None = None
        # Whether the agent has chosen a task (True) or a message (False) for its answer.
        self._tasked: bool | None = None
        self._ended = False
        self._subscribers: list[Subscriber] = []
        self._lock = asyncio.Lock()

    async def room(self) -> None:
        """Return when every subscriber has room."""
        for subscriber in self._subscribers:
            if subscriber.full:
                break
        else:
            return
        for subscriber in tuple(self._subscribers):
            await subscriber.room()

    async def record(self, event: Event) -> None:
        """Apply an event to the task, save the task, and notify the subscribers."""
        async with self._lock:
            if self._ended:
                kind = type(event).__name__
                _log.warning("task %s is over for its agent: %s dropped", self.id, kind)
                return
            try:
                await self._take(event)
            except OVERTAKEN:
                await self._yield()
            except Exception as error:  # noqa: BLE001 (the subscribers get it)
                _log.exception("task %s: %s not taken", self.id, type(event).__name__)
                await self._break(error, by_agent=False)

    async def _take(self, event: Event) -> None:
        if isinstance(event, Message):
            self._answer()
            self._notify(event, self._subscribers)
            return
        if self._tasked is False:
            raise InvalidAgentResponseError(
                f"Received {type(event).__name__} in message mode. Use Task with "
                "TaskStatusUpdateEvent and TaskArtifactUpdateEvent instead."
            )
        if isinstance(event, Task):
            task = self._begin(event)
        elif isinstance(event, TaskStatusUpdateEvent):
            task = self._task_for(event)
            changes.put_status(task, event)
        elif isinstance(event, TaskArtifactUpdateEvent):
            task = self._task_for(event)
            changes.put_artifact(task, event)
        else:
            raise InvalidAgentResponseError(f"{type(event).__name__} is not an event of a task")
        self._tasked = True
        if task is None:
            self._notify(event, self._subscribers)
            return
        self.task = task
        await self._store(task, event)

    async def _store(self, task: Task, event: Update) -> None:
        """Save the task and notify of the event; a cancellation waits until both are done."""
        # A subscriber that joins during the save sees the task with the event, and must not get the event again.
        subscribers = tuple(self._subscribers)
        try:
            await self._host.store.save(task, self._context)
        except asyncio.CancelledError:
            await self._host.store.save(task, self._context)  # it is unknown whether it was saved
            self._saved(task, event, subscribers)
            raise
        self._saved(task, event, subscribers)
        if self._host.push is not None:
            await self._push(self._host.push, task if isinstance(event, Task) else event)

    def _saved(self, task: Task, event: Event, subscribers: Sequence[Subscriber]) -> None:
        if task.status.state in TERMINAL:
            self.finished = self._ended = True
        self._notify(event, subscribers)

    def _answer(self) -> None:
        if self._tasked is not None:
            raise InvalidAgentResponseError(
                "Received Message object in task mode. Use TaskStatusUpdateEvent or "
                "TaskArtifactUpdateEvent instead."
                if self._tasked
                else "Multiple Message objects received."
            )
        self._tasked = False
        self.finished = True

    def _begin(self, event: Task) -> Task | None:
        """The task that the agent begins; None if it has begun before."""
        self._said = None
        if self.task is not None:
            _log.error("task %s exists already: its replacement is ignored", self.id)
            return None
        self._check(event.id)
        if event.context_id != self._context_id:
            raise InvalidParamsError(
                f"Context in event doesn't match TaskManager {self._context_id} : {event.context_id}"
            )
        # An agent may go on changing the object that it has sent.
        return changes.copied(event)

    def _task_for(self, event: TaskStatusUpdateEvent | TaskArtifactUpdateEvent) -> Task:
        """The task that an update changes, with the user's last message."""
        self._check(event.task_id)
        task = self.task
        if task is None:
            if isinstance(event, TaskStatusUpdateEvent):
                raise InvalidAgentResponseError(
                    "Agent should enqueue Task before TaskStatusUpdateEvent event"
                )
            task = changes.begun(self.id, event.context_id, self._first)
        if self._said is not None:
            changes.say(task, self._said)
            self._said = None
        return task

    def _check(self, task_id: str) -> None:
        if task_id != self.id:
            raise InvalidParamsError(
                f"Task in event doesn't match TaskManager {self.id} : {task_id}"
            )

    def _notify(self, event: Event, subscribers: Sequence[Subscriber]) -> None:
        for subscriber in subscribers:
            subscriber.notify(event, self.task)

    async def _push(self, push: PushNotificationSender, event: Update) -> None:
        try:
            await push.send_notification(self.id, event)
        except Exception:  # noqa: BLE001
            # Best effort, as the SDK's interface says: the task goes on.
            _log.exception("task %s: its push notification failed", self.id)

    async def _yield(self) -> None:
        """Leave the task to its other writer, and stop this agent; the subscribers see the end, if it has one."""
        self.finished = self._ended = True
        try:
            stored = await self._host.store.get(self.id, self._context)
        except Exception as error:  # noqa: BLE001 (the subscribers get it)
            self._fail(error)
            stored = None
        if stored is None or stored.status.state not in TERMINAL:
            self._fail(InternalError("another process works on this task: ask for the task again"))
        else:
            self.task = stored
            event = TaskStatusUpdateEvent(
                task_id=self.id, context_id=stored.context_id, status=stored.status
            )
            self._notify(event, self._subscribers)
        self.overtaken()  # last: it cancels the agent's coroutine, which may be this one

    def overtaken(self) -> None:
        """Another process has changed the task: end what works on it here."""

    async def _conclude(self, state: TaskState) -> None:
        """Give the task its last state, unless it has ended."""
        async with self._lock:
            if self.task is not None and self.task.status.state not in TERMINAL:
                event = changes.status_of(
                    self.task, state, keep=state == TaskState.TASK_STATE_CANCELED
                )
                self.task.status.CopyFrom(event.status)
                await self._store(self.task, event)
            self.finished = self._ended = True

    async def _give_up(self, text: str) -> None:
        """Fail the task, unless it has ended or waits for an answer."""
        async with self._lock:
            if self.task is not None and self.task.status.state not in SETTLED:
                event = changes.failure_of(self.task, text)
                changes.put_status(self.task, event)
                await self._store(self.task, event)
            self.finished = self._ended = True

    async def _failed(self, error: Exception, *, by_agent: bool) -> None:
        """Fail a request. One that failed before its agent began leaves the stored task as it is."""
        async with self._lock:
            if by_agent:
                await self._break(error, by_agent=True)
            else:
                self.finished = self._ended = True
                self._fail(error)

    async def _break(self, error: Exception, *, by_agent: bool) -> None:
        """Fail the task, unless it has ended, and its subscribers."""
        try:
            await self._write_failure(by_agent=by_agent)
        except Exception:  # noqa: BLE001 (the subscribers get the first error)
            _log.exception("task %s: its failure was not stored", self.id)
            self.unsaved = True
        self.finished = self._ended = True
        self._fail(error)

    async def _write_failure(self, *, by_agent: bool) -> None:
        task = self.task
        if task is None:
            if not by_agent:
                return
            task = self.task = changes.begun(self.id, self._context_id, self._first)
        if task.status.state in TERMINAL:
            return
        if self._said is not None:
            changes.say(task, self._said)
        event = changes.status_of(task, TaskState.TASK_STATE_FAILED)
        changes.put_status(task, event)
        await self._host.store.save(task, self._context)
        if self._host.push is not None:
            await self._push(self._host.push, event)

    async def save(self) -> None:
        """Try again to store the failure."""
        if self.task is not None:
            await self._host.store.save(self.task, self._context)

    def _fail(self, error: Exception) -> None:
        for subscriber in self._subscribers:
            subscriber.fail(error)


class TaskQueue(EventQueue):
    """An executor's event queue, which returns when an event is stored and the subscribers have it.

    Each event waits for the slowest subscriber. An executor's `cancel` gets a queue with `wait=False`: a slow
    subscriber must not hold up a cancellation.
    """

    def __init__(self, task: RecordedTask, *, wait: bool = True) -> None:
        self._task = task
        self._wait = wait
        self._turn = asyncio.Lock()

    async def enqueue_event(self, event: Event) -> None:
        """Record an event; an event out of turn goes to the subscribers as an error, as with the SDK."""
        async with self._turn:
            if self._wait:
                await self._task.room()
            await self._task.record(event)
