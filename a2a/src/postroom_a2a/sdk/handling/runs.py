"""The runs of an agent's tasks in this process."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from a2a.types import Message
from a2a.utils.errors import InternalError

from postroom_a2a.sdk.handling.run import GRACE, Host, TaskRun

if TYPE_CHECKING:
    from a2a.server.agent_execution import AgentExecutor
    from a2a.server.context import ServerCallContext
    from a2a.server.tasks.push_notification_sender import PushNotificationSender
    from a2a.server.tasks.task_store import TaskStore

MAX_UNSAVED = 1024
"""Remembered tasks whose failure could not be stored, for another try."""

_log = logging.getLogger(__name__)


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
