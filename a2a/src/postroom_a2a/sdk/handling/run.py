"""The run of one task, which performs its requests one after the other and cancels it; and all runs in this process."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from a2a.types import Message, Task, TaskState
from a2a.utils.errors import InternalError, TaskNotFoundError, UnsupportedOperationError

from postroom_a2a.sdk.handling import changes
from postroom_a2a.sdk.handling.changes import INTERRUPTED, TERMINAL, Subscriber
from postroom_a2a.sdk.handling.recorded import Host, RecordedTask, TaskQueue

if TYPE_CHECKING:
    from a2a.server.agent_execution import AgentExecutor, RequestContext
    from a2a.server.context import ServerCallContext
    from a2a.server.tasks.push_notification_sender import PushNotificationSender
    from a2a.server.tasks.task_store import TaskStore


GRACE = 5.0
"""Seconds for a cancelled executor to end; then the handler cancels the task without it."""

_log = logging.getLogger(__name__)


def terminal(task: Task) -> UnsupportedOperationError:
    """The error of a request about a task that has ended."""
    state = TaskState.Name(task.status.state)
    return UnsupportedOperationError(f"Task {task.id} is in terminal state: {state}")


@dataclass(slots=True, eq=False)
class QueuedRequest:
    """A message for the agent.

    Attributes:
        known: whether the store may have the task already.
        variables: context variables of the caller, if the request has to wait for another.
    """

    context: RequestContext
    known: bool
    variables: contextvars.Context | None = None


class TaskRun(RecordedTask):
    """A task while its agent works on it, it waits for an answer, or it has subscribers.

    It has an asyncio task only while the executor runs.

    Attributes:
        current: the request that the executor runs now.
    """

    __slots__ = ("_canceling", "_queue", "_ran", "_timer", "_waiting", "_worker", "current")

    def __init__(
        self,
        host: Host,
        task_id: str,
        context_id: str,
        context: ServerCallContext,
        first: Message | None = None,
    ) -> None:
        super().__init__(host, task_id, context_id, context, first)
        self.current: QueuedRequest | None = None
        self._ran = False
        self._waiting: deque[QueuedRequest] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._canceling: asyncio.Lock | None = None
        self._queue = TaskQueue(self)

    # ── subscribers ─────────────────────────────────────────────────────────────────────────────────

    def join(self, subscriber: Subscriber) -> None:
        """Notify a subscriber from now on."""
        self._stop_timer()
        self._subscribers.append(subscriber)

    def leave(self, subscriber: Subscriber) -> None:
        """Notify a subscriber no more."""
        if subscriber in self._subscribers:
            self._subscribers.remove(subscriber)
            if subscriber.full:
                subscriber.end()  # the agent must not wait for it
            self._release_idle()

    # ── requests ────────────────────────────────────────────────────────────────────────────────────

    def submit(self, request: QueuedRequest) -> None:
        """Run a request, after those that came before it."""
        if self._worker is None:
            self._start(request)
        else:
            request.variables = contextvars.copy_context()
            self._waiting.append(request)

    def _start(self, request: QueuedRequest) -> None:
        self._stop_timer()
        self._ran = True
        self.current = request
        self._worker = asyncio.create_task(
            self._perform(request), name=self.id, context=request.variables
        )
        # Not in the coroutine: one that is cancelled before its first step runs no line of it.
        self._worker.add_done_callback(self._returned)

    async def _perform(self, request: QueuedRequest) -> None:
        begun = False
        try:
            self._context = request.context.call_context
            if request.known and not await self._loaded(request):
                return
            self._said = request.context.message
            begun = True
            await self._host.executor.execute(request.context, self._queue)
        except asyncio.CancelledError:
            worker = asyncio.current_task()
            if worker is None or worker.cancelling():
                # By `cancel`, which stores the task's last state, or by `stop`.
                self.finished = True
            else:
                _log.exception("task %s: its agent cancelled itself", self.id)
                await self._failed(InternalError("the agent cancelled itself"), by_agent=True)
        except Exception as error:  # noqa: BLE001 (the subscribers get it)
            _log.exception("task %s: its agent failed", self.id)
            await self._failed(error, by_agent=begun)

    async def _loaded(self, request: QueuedRequest) -> bool:
        """Read the task, which may have changed meanwhile; False if it has ended."""
        self.task = task = await self._host.store.get(self.id, self._context)
        if task is None:
            return True
        if task.status.state in TERMINAL:
            self.finished = True
            self._fail(terminal(task))
            return False
        # A copy: the run's own changes with each event.
        request.context.current_task = changes.copied(task)
        return True

    def _returned(self, worker: asyncio.Task[None]) -> None:
        request, self.current, self._worker = self.current, None, None
        if worker.cancelled():
            self.finished = True
        if self._canceling is not None and self._canceling.locked():
            return  # the last state is still to come
        for subscriber in tuple(self._subscribers):
            subscriber.done(request)
        if self.finished:
            self.close()
        elif self._waiting:
            self._start(self._waiting.popleft())
        else:
            self._release_idle()

    # ── ends ────────────────────────────────────────────────────────────────────────────────────────

    def overtaken(self) -> None:
        if self._worker is not None:
            self._worker.cancel()

    async def cancel(self, context: ServerCallContext) -> Task:
        """Let the executor cancel the task, end the executor, and store the task's end.

        Raises:
            Exception: the error of the executor's `cancel`; the task has failed then.
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
                self._stop_timer()
                self._context = context
                try:
                    await self._cancel(self.task, context)
                finally:
                    if self.finished:
                        self.close()
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
            await self._host.executor.cancel(shown, TaskQueue(self, wait=False))
        except asyncio.CancelledError:
            # The caller is gone. The executor ends below, so the task must not seem to go on.
            await self._conclude(TaskState.TASK_STATE_CANCELED)
            raise
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

    async def lose(self, context: ServerCallContext, text: str) -> Task | None:
        """Fail a working task whose process is gone or ends; returns the task, None if it was never stored."""
        if self._canceling is None:
            self._canceling = asyncio.Lock()
        async with self._canceling:
            self._stop_timer()
            if self.task is None:
                self.task = await self._host.store.get(self.id, context)
            try:
                await self._give_up(text)
            finally:
                if self._worker is not None:
                    self._worker.cancel()
                self.close()
        return None if self.task is None else changes.copied(self.task)

    async def quiet(self) -> None:
        """Return when no executor runs."""
        while self._worker is not None:
            await asyncio.wait([self._worker])

    def stop(self) -> asyncio.Task[None] | None:
        """Cancel the executor, and leave the task as it is; returns the asyncio task to wait for."""
        self.finished = True
        if self._worker is None:
            self.close()
        else:
            self._worker.cancel()
        return self._worker

    def release(self) -> None:
        """Drop a task that waits for an answer from memory; the next request reads it from the store."""
        self._timer = None
        if self._worker is None and not self._subscribers:
            self.finished = True
            self._ended = True
            self._host.discard(self)

    def close(self) -> None:
        """End all subscriptions; the run stays until its executor ends."""
        self.finished = self._ended = True
        self._waiting.clear()
        for subscriber in self._subscribers:
            subscriber.end()
        self._subscribers.clear()
        self._stop_timer()
        if self._worker is None:
            self._host.discard(self)

    def _release_idle(self) -> None:
        """Free what an idle run does not need."""
        if self._worker is not None or self._subscribers or self.finished:
            return
        if not self._ran:
            self.finished = True
            self._host.discard(self)
        elif (
            self._host.idle is not None
            and self.task is not None
            and self.task.status.state in INTERRUPTED
        ):
            self._stop_timer()
            self._timer = asyncio.get_running_loop().call_later(self._host.idle, self.release)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


# ── all runs ──────────────────────────────────────────────────────────────────────────────────────


MAX_UNSAVED = 1024
"""Remembered tasks whose failure could not be stored, for another try."""


class TaskRuns:
    """At most one run for each task; the arguments are those of `Host`."""

    def __init__(
        self,
        executor: AgentExecutor,
        store: TaskStore,
        push: PushNotificationSender | None,
        idle: float | None,
    ) -> None:
        # A program with an executor has loaded this already; for the import of the handler alone it is slow.
        from a2a.server.agent_execution.context import RequestContext

        self.request_context = RequestContext
        self._host = Host(executor, store, push, idle, RequestContext, self._discard)
        self._runs: dict[str, TaskRun] = {}
        self._unsaved: OrderedDict[str, TaskRun] = OrderedDict()
        self._closed = False

    def __len__(self) -> int:
        """Tasks that run, wait for an answer, or have subscribers."""
        return len(self._runs)

    def get(self, task_id: str) -> TaskRun | None:
        """The run that takes requests for a task."""
        run = self._runs.get(task_id)
        return None if run is None or run.finished else run

    def open(
        self,
        task_id: str,
        context_id: str,
        context: ServerCallContext,
        first: Message | None = None,
    ) -> TaskRun:
        """A run for a task that has none.

        Raises:
            InternalError: the handler is closed.
        """
        if self._closed:
            raise InternalError("the agent is closing")
        run = self._runs[task_id] = TaskRun(self._host, task_id, context_id, context, first)
        return run

    def _discard(self, run: TaskRun) -> None:
        """Drop a run, unless another has taken its place."""
        if self._runs.get(run.id) is run:
            del self._runs[run.id]
        if run.unsaved:
            self._unsaved[run.id] = run
            if len(self._unsaved) > MAX_UNSAVED:
                self._unsaved.popitem(last=False)

    def at_work(self, task_id: str) -> Callable[[], Awaitable[None]] | None:
        """The wait for the end of the work on a task; None if no work is left."""
        run = self._unsaved.get(task_id) or self._runs.get(task_id)
        if run is None or (run.current is None and not run.unsaved):
            return None
        return partial(self._settle, run)

    async def _settle(self, run: TaskRun) -> None:
        await run.quiet()
        if self._unsaved.pop(run.id, None) is not None:
            await run.save()

    async def aclose(self) -> None:
        """Take no more requests, cancel the executors, end all streams; the tasks stay as they are."""
        self._closed = True
        workers = [run.stop() for run in tuple(self._runs.values())]
        running = [worker for worker in workers if worker is not None]
        if running:
            _, late = await asyncio.wait(running, timeout=GRACE)
            for worker in late:
                _log.error("task %s: its agent does not end", worker.get_name())
        for run in tuple(self._runs.values()):
            run.close()
