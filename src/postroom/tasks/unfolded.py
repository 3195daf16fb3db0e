"""Tasks that this process has stored, and that the fold does not show yet: who asks for one waits, and is never told
that there is none.
"""

from __future__ import annotations

from postroom.errors import DatabaseAway, NotFound, NotShownYet, RequestTimeout
from postroom.projection.changes import Changes, of_task
from postroom.store.database import Database
from postroom.store.ports import TaskRow

STORED_WAIT = 20.0
"""Seconds that a call waits until the fold shows what the call, or one before it, has stored."""

MOST = 4096
"""Tasks that are remembered; the oldest is forgotten first."""


UNREADABLE = (DatabaseAway, RequestTimeout)
"""Why what is stored can perhaps not be read."""


class Unfolded:
    """The ids of such tasks."""

    def __init__(self, database: Database, changes: Changes) -> None:
        self._database = database
        self._changes = changes
        self._tasks: dict[str, None] = {}

    def note(self, task: str) -> None:
        """The request of `task` is in the log, and was not folded in time."""
        self._tasks[task] = None
        if len(self._tasks) > MOST:
            del self._tasks[next(iter(self._tasks))]

    def named(self, prefix: str) -> list[str]:
        """Those whose ids begin so."""
        return [task for task in self._tasks if task.startswith(prefix)]

    async def row(self, task: str) -> TaskRow | None:
        """The task; one of these is waited for.

        Raises:
            NotShownYet: it is not folded in time.
        """

        async def read() -> TaskRow | None:
            return await self._database.point(lambda store: store.tasks.task_by_id(task))

        if task not in self._tasks:
            return await read()
        try:
            row = await self._changes.until(of_task(task), read, bool, STORED_WAIT)
        except UNREADABLE as error:
            raise not_shown(task) from error
        if row is None:
            raise not_shown(task)
        self._tasks.pop(task, None)
        return row


def not_shown(task: str, what: str = "the task") -> NotShownYet:
    """The error for a caller who is to know that `what` is stored."""
    return NotShownYet(
        f"{what} {task} is stored, and not shown yet: the post room is behind its log",
        remedy="do the same again, with the same key, messageId or seq: nothing is done twice",
    )


def unknown(ref: str) -> NotFound:
    """The error for a reference that names no task."""
    return NotFound(
        f"there is no task {ref[:64]!r}", remedy="give its id, or 4 or more digits of it"
    )
