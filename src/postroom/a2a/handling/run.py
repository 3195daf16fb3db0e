"""One task in the hands of its agent: runs its requests one after the other, stores and tells what comes of it."""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from a2a.types import (
    Message,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatusUpdateEvent,
)
from a2a.utils.errors import (
    InvalidAgentResponseError,
    InvalidParamsError,
    TaskNotFoundError,
    UnsupportedOperationError,
)

from postroom.a2a.handling import changes
from postroom.a2a.handling.changes import INTERRUPTED, TERMINAL, Event
from postroom.a2a.handling.queue import TaskQueue
from postroom.a2a.handling.subscribers import Subscriber
from postroom.observe import get_logger

if TYPE_CHECKING:
    from a2a.server.agent_execution import AgentExecutor, RequestContext
    from a2a.server.context import ServerCallContext
    from a2a.server.tasks.push_notification_sender import PushNotificationSender
    from a2a.server.tasks.task_store import TaskStore

GRACE = 5.0
"""Seconds that an executor has to end when it is cancelled; then the task is canceled without it."""

Update = Task | TaskStatusUpdateEvent | TaskArtifactUpdateEvent

_log = get_logger(__name__)


def terminal(task: Task) -> UnsupportedOperationError:
    """The error of a request about a task that has ended."""
    state = TaskState.Name(task.status.state)
    return UnsupportedOperationError(f"Task {task.id} is in terminal state: {state}")


@dataclass(slots=True, eq=False)
class Request:
    """A message for the agent.

    Attributes:
        context: what the executor is given.
        known: whether the store may have the task already.
        variables: context variables of the caller, if the request has to wait for another.
    """

    context: RequestContext
    known: bool
    variables: contextvars.Context | None = None


@dataclass(slots=True)
class Host:
    """What all tasks of an agent share.

    Attributes:
        executor: the agent.
        store: of its tasks.
        push: who is told of each change, if anybody.
        idle: seconds after which a task that waits for an answer is forgotten here; None for never.
        request_context: the SDK's class.
        discard: forgets a run.
    """

    executor: AgentExecutor
    store: TaskStore
    push: PushNotificationSender | None
    idle: float | None
    request_context: type[RequestContext]
    discard: Callable[[Run], None]


class Run:
    """A task while its agent works on it, waits for an answer, or somebody watches it.

    It has an asyncio task only while the executor runs. Events are recorded in the executor's own coroutine: folded
    into the task, saved, told. Once the task is terminal nothing is written any more.

    Attributes:
        id: of the task.
        task: as it was saved last; None before the agent has begun one.
        finished: takes no more requests: the task has ended, or the answer was a message.
        current: the request that the executor runs now.
    """

    __slots__ = (
        "_canceling", "_context", "_context_id", "_deaf", "_first", "_host", "_lock", "_queue", "_ran", "_said",
        "_subscribers", "_tasked", "_timer", "_waiting", "_worker", "current", "finished", "id", "task",
    )  # fmt: skip

    def __init__(
        self,
        host: Host,
        task_id: str,
        context_id: str,
        context: ServerCallContext,
        first: Message | None = None,
    ) -> None:
        self._host = host
        self.id = task_id
        self.task: Task | None = None
        self.finished = False
        self.current: Request | None = None
        self._context_id = context_id
        self._context = context
        self._first = first
        self._said: Message | None = None
        # Whether the agent has chosen a task (True) or a message (False) for its answer.
        self._tasked: bool | None = None
        self._deaf = False
        self._ran = False
        self._subscribers: list[Subscriber] = []
        self._waiting: deque[Request] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._lock = asyncio.Lock()
        self._canceling: asyncio.Lock | None = None
        self._queue = TaskQueue(self)

    # ── who is told ─────────────────────────────────────────────────────────────────────────────────

    def join(self, subscriber: Subscriber) -> None:
        """Tell a subscriber what happens from now on."""
        self._keep()
        self._subscribers.append(subscriber)

    def leave(self, subscriber: Subscriber) -> None:
        """Tell it nothing more."""
        if subscriber in self._subscribers:
            self._subscribers.remove(subscriber)
            if subscriber.full:
                subscriber.end()  # the agent must not wait for it
            self._rest()

    async def room(self) -> None:
        """Return when every subscriber has room."""
        for subscriber in self._subscribers:
            if subscriber.full:
                break
        else:
            return
        for subscriber in tuple(self._subscribers):
            await subscriber.room()

    # ── requests ────────────────────────────────────────────────────────────────────────────────────

    def submit(self, request: Request) -> None:
        """Run a request, after those that came before it."""
        if self._worker is None:
            self._start(request)
        else:
            request.variables = contextvars.copy_context()
            self._waiting.append(request)

    def _start(self, request: Request) -> None:
        self._keep()
        self._ran = True
        self.current = request
        self._worker = asyncio.create_task(
            self._perform(request), name=self.id, context=request.variables
        )

    async def _perform(self, request: Request) -> None:
        try:
            self._context = request.context.call_context
            if request.known and not await self._loaded(request):
                return
            self._said = request.context.message
            await self._host.executor.execute(request.context, self._queue)
        except asyncio.CancelledError:
            self._finish()
        except Exception as error:  # noqa: BLE001 (told to whoever asked)
            _log.exception("task %s: its agent failed", self.id)
            async with self._lock:
                await self._break(error, by_agent=True)
        finally:
            self._returned(request)

    async def _loaded(self, request: Request) -> bool:
        """Read the task, which may have changed meanwhile; False if it has ended."""
        self.task = task = await self._host.store.get(self.id, self._context)
        if task is None:
            return True
        if task.status.state in TERMINAL:
            self._finish()
            self._fail(terminal(task))
            return False
        # Its own: this one changes with each event.
        request.context.current_task = changes.copied(task)
        return True

    def _returned(self, request: Request) -> None:
        self._worker = self.current = None
        for subscriber in tuple(self._subscribers):
            subscriber.done(request)
        if self.finished:
            self._close()
        elif self._waiting:
            self._start(self._waiting.popleft())
        else:
            self._rest()

    # ── events ──────────────────────────────────────────────────────────────────────────────────────

    async def record(self, event: Event) -> None:
        """Fold an event into the task, save that, and tell the subscribers."""
        async with self._lock:
            if self._deaf:
                kind = type(event).__name__
                _log.warning("task %s is over for its agent: %s dropped", self.id, kind)
                return
            try:
                await self._take(event)
            except Exception as error:  # noqa: BLE001 (told to whoever asked)
                _log.exception("task %s: %s not taken", self.id, type(event).__name__)
                await self._break(error, by_agent=False)

    async def _take(self, event: Event) -> None:
        if isinstance(event, Message):
            self._answer()
            self._tell(event)
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
            raise InvalidAgentResponseError(f"{type(event).__name__} is no event of a task")
        self._tasked = True
        if task is None:
            self._tell(event)
            return
        self.task = task
        try:
            await self._store(task, event)
        except asyncio.CancelledError:
            # Nobody knows whether it is saved: an event is stored and told as a whole, or not at all.
            await self._store(task, event)
            raise

    async def _store(self, task: Task, event: Update) -> None:
        await self._host.store.save(task, self._context)
        if task.status.state in TERMINAL:
            self._finish()
            self._deaf = True
        if self._host.push is not None:
            await self._push(self._host.push, task if isinstance(event, Task) else event)
        self._tell(event)

    def _answer(self) -> None:
        if self._tasked is not None:
            raise InvalidAgentResponseError(
                "Received Message object in task mode. Use TaskStatusUpdateEvent or "
                "TaskArtifactUpdateEvent instead."
                if self._tasked
                else "Multiple Message objects received."
            )
        self._tasked = False
        self._finish()

    def _begin(self, event: Task) -> Task | None:
        """The task that the agent begins; None if it has been begun before."""
        self._said = None
        if self.task is not None:
            _log.error("task %s exists already: its replacement is ignored", self.id)
            return None
        self._check(event.id)
        if event.context_id != self._context_id:
            raise InvalidParamsError(
                f"Context in event doesn't match TaskManager {self._context_id} : {event.context_id}"
            )
        # An agent may go on changing the one that it has sent.
        return changes.copied(event)

    def _task_for(self, event: TaskStatusUpdateEvent | TaskArtifactUpdateEvent) -> Task:
        """The task that an update changes, with what the user said last."""
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

    def _tell(self, event: Event) -> None:
        for subscriber in self._subscribers:
            subscriber.tell(event, self.task)

    async def _push(self, push: PushNotificationSender, event: Update) -> None:
        try:
            await push.send_notification(self.id, event)
        except Exception:  # noqa: BLE001
            # Best effort, as the SDK's interface says: the task goes on.
            _log.exception("task %s: its push notification failed", self.id)

    # ── ends ────────────────────────────────────────────────────────────────────────────────────────

    async def cancel(self, context: ServerCallContext) -> Task:
        """Let the executor cancel the task, end it, and see to it that the task is over.

        Raises:
            Exception: what the executor's `cancel` raised; the task has failed then.
        """
        if self._canceling is None:
            self._canceling = asyncio.Lock()
        async with self._canceling:
            task = self.task or await self._host.store.get(self.id, context)
            if task is None:
                raise TaskNotFoundError
            if self.task is None:
                self.task = task
            if not self.finished:
                self._keep()
                self._context = context
                await self._cancel(self.task, context)
        return changes.copied(self.task)

    async def _cancel(self, task: Task, context: ServerCallContext) -> None:
        shown = self._host.request_context(
            call_context=context,
            task_id=self.id,
            context_id=task.context_id,
            task=changes.copied(task),
        )
        worker = self._worker
        try:
            await self._host.executor.cancel(shown, TaskQueue(self, patient=False))
        except Exception:
            _log.exception("task %s: its agent failed to cancel it", self.id)
            await self._conclude(TaskState.TASK_STATE_FAILED)
            raise
        finally:
            self._waiting.clear()
            if worker is not None:
                worker.cancel()
        if not self.finished and worker is not None:
            await asyncio.wait([worker], timeout=GRACE)
        await self._conclude(TaskState.TASK_STATE_CANCELED)

    async def _conclude(self, state: TaskState) -> None:
        """Give the task its last state, if it has none."""
        async with self._lock:
            if self.task is not None and self.task.status.state not in TERMINAL:
                event = changes.status_of(
                    self.task, state, keep=state == TaskState.TASK_STATE_CANCELED
                )
                self.task.status.CopyFrom(event.status)
                await self._store(self.task, event)
            self._finish()
            self._deaf = True
        if self._worker is None:
            self._close()

    async def _break(self, error: Exception, *, by_agent: bool) -> None:
        """Fail the task, if it has not ended, and everybody who waits for it."""
        try:
            await self._write_failure(by_agent=by_agent)
        except Exception:  # noqa: BLE001 (the first error is the one that is told)
            _log.exception("task %s: its failure was not stored", self.id)
        self._finish()
        self._deaf = True
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

    def stop(self) -> asyncio.Task[None] | None:
        """Cancel the executor, leave the task as it is; returns what has to be waited for."""
        self._finish()
        if self._worker is None:
            self._close()
        else:
            self._worker.cancel()
        return self._worker

    def release(self) -> None:
        """Forget a task that waits for an answer; a request for it begins with the store."""
        self._timer = None
        if self._worker is None and not self._subscribers:
            self._finish()
            self._deaf = True
            self._host.discard(self)

    def _finish(self) -> None:
        self.finished = True
        self._waiting.clear()

    def _fail(self, error: Exception) -> None:
        for subscriber in self._subscribers:
            subscriber.fail(error)

    def _close(self) -> None:
        self._deaf = True
        for subscriber in self._subscribers:
            subscriber.end()
        self._subscribers.clear()
        self._keep()
        self._host.discard(self)

    def _rest(self) -> None:
        """Hold as little as possible, now that nothing runs."""
        if self._worker is not None or self._subscribers or self.finished:
            return
        if not self._ran:
            self._finish()
            self._host.discard(self)
        elif (
            self._host.idle is not None
            and self.task is not None
            and self.task.status.state in INTERRUPTED
        ):
            self._keep()
            self._timer = asyncio.get_running_loop().call_later(self._host.idle, self.release)

    def _keep(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
