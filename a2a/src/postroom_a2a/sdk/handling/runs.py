"""The tasks of an agent that are under way in this process."""

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
"""Tasks whose failure could not be stored that are remembered, to try again."""

_log = logging.getLogger(__name__)


class TaskRuns:
    """At most one run for each task, and what they share.

    Args:
        push: who is told of each change, if anybody.
        idle: seconds after which a task that waits for an answer is forgotten here; None for never.
    """

    def __init__(
        self,
        executor: AgentExecutor,
        store: TaskStore,
        push: PushNotificationSender | None,
        idle: float | None,
    ) -> None:
        # Whoever has an executor has loaded this already; to import the handler alone it would be dear.
        from a2a.server.agent_execution.context import RequestContext

        self.request_context = RequestContext
        self._host = Host(executor, store, push, idle, RequestContext, self._discard)
        self._runs: dict[str, TaskRun] = {}
        self._unsaved: OrderedDict[str, TaskRun] = OrderedDict()
        self._closed = False

    def __len__(self) -> int:
        """How many tasks are under way, wait for an answer, or are watched."""
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
        """Forget a run; another may have taken its place."""
        if self._runs.get(run.id) is run:
            del self._runs[run.id]
        if run.unsaved:
            self._unsaved[run.id] = run
            if len(self._unsaved) > MAX_UNSAVED:
                self._unsaved.popitem(last=False)

    def at_work(self, task_id: str) -> Callable[[], Awaitable[None]] | None:
        """What returns when nothing is to be done for a task any more; None if nothing is."""
        run = self._unsaved.get(task_id) or self._runs.get(task_id)
        if run is None or (run.current is None and not run.unsaved):
            return None
        return partial(self._settle, run)

    async def _settle(self, run: TaskRun) -> None:
        await run.quiet()
        if self._unsaved.pop(run.id, None) is not None:
            await run.save()

    async def aclose(self) -> None:
        """Take nothing more, cancel the executors, end all streams; their tasks stay as they are."""
        self._closed = True
        workers = [run.stop() for run in tuple(self._runs.values())]
        running = [worker for worker in workers if worker is not None]
        if running:
            _, late = await asyncio.wait(running, timeout=GRACE)
            for worker in late:
                _log.error("task %s: its agent does not end", worker.get_name())
        for run in tuple(self._runs.values()):
            run.close()
