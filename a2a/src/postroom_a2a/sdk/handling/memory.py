"""Tasks in memory, for agents whose tasks need not outlive their process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from a2a.types import ListTasksRequest, ListTasksResponse, Task
from a2a.utils.constants import DEFAULT_LIST_TASKS_PAGE_SIZE
from a2a.utils.errors import InvalidParamsError
from a2a.utils.task import (
    ListTasksCursor,
    decode_list_tasks_cursor,
    decode_page_token,
    encode_list_tasks_cursor,
)

from postroom_a2a.sdk.handling.changes import TERMINAL, copied

if TYPE_CHECKING:
    from a2a.server.context import ServerCallContext
    from a2a.server.tasks.task_store import TaskStore as _TaskStore
else:
    _TaskStore = object  # importing it brings the SDK's databases along

LIMIT = 10_000
"""Tasks that are kept by default; an average one takes two to four KiB."""

Owner = Callable[["ServerCallContext"], str]


def owner_of(context: ServerCallContext) -> str:
    """The owner of a call's tasks: the user's name, as in the SDK's own stores."""
    return context.user.user_name


class MemoryTaskStore(_TaskStore):
    """The tasks of each owner, the SDK's `TaskStore`.

    `save` does not copy: the caller may change a saved task only to save it again. `get` and `list` return copies.
    Beyond `limit` the store drops the task that ended first; it never drops one that has not ended.

    Args:
        limit: tasks of all owners together.

    Raises:
        ValueError: `limit` is not positive.
    """

    def __init__(self, limit: int = LIMIT, *, owner_resolver: Owner = owner_of) -> None:
        if limit < 1:
            raise ValueError("limit must be at least 1")
        self._limit = limit
        self._owner = owner_resolver
        self._tasks: dict[str, dict[str, Task]] = {}
        self._count = 0
        self._ended: dict[tuple[str, str], None] = {}
        """The order in which tasks ended."""

    def __len__(self) -> int:
        """The number of tasks."""
        return self._count

    async def save(self, task: Task, context: ServerCallContext) -> None:
        """Store a task."""
        owner = self._owner(context)
        tasks = self._tasks.get(owner)
        if tasks is None:
            tasks = self._tasks[owner] = {}
        name = task.id
        if name not in tasks:
            self._count += 1
        tasks[name] = task
        if task.status.state in TERMINAL:
            self._ended[owner, name] = None
        elif self._ended:
            self._ended.pop((owner, name), None)
        while self._count > self._limit and self._ended:
            self._drop(*next(iter(self._ended)))

    async def get(self, task_id: str, context: ServerCallContext) -> Task | None:
        """The caller's task of that id."""
        task = self._tasks.get(self._owner(context), {}).get(task_id)
        return None if task is None else copied(task)

    async def list(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        """A page of the caller's tasks, the last changed first.

        Raises:
            InvalidParamsError: the page token is not one of ours.
        """
        tasks = list(_matching(self._tasks.get(self._owner(context), {}).values(), params))
        tasks.sort(key=_position, reverse=True)
        size = params.page_size or DEFAULT_LIST_TASKS_PAGE_SIZE
        first = _first(tasks, params.page_token) if params.page_token else 0
        last = first + size
        token = encode_list_tasks_cursor(_cursor(tasks[last - 1])) if last < len(tasks) else None
        return ListTasksResponse(
            tasks=tasks[first:last], next_page_token=token, total_size=len(tasks), page_size=size
        )

    async def delete(self, task_id: str, context: ServerCallContext) -> None:
        """Forget the caller's task of that id, if there is one."""
        owner = self._owner(context)
        if task_id in self._tasks.get(owner, {}):
            self._drop(owner, task_id)

    def _drop(self, owner: str, task_id: str) -> None:
        tasks = self._tasks[owner]
        del tasks[task_id]
        if not tasks:
            del self._tasks[owner]
        self._ended.pop((owner, task_id), None)
        self._count -= 1


def _matching(tasks: Iterable[Task], params: ListTasksRequest) -> Iterable[Task]:
    after = params.status_timestamp_after if params.HasField("status_timestamp_after") else None
    for task in tasks:
        if params.context_id and task.context_id != params.context_id:
            continue
        if params.status and task.status.state != params.status:
            continue
        if after is not None:
            timed, nanoseconds, _ = _position(task)
            if not timed or nanoseconds < after.ToNanoseconds():
                continue
        yield task


def _position(task: Task) -> tuple[bool, int, str]:
    """The sort key of a task in a list, which goes from the greatest down."""
    if task.status.HasField("timestamp"):
        return True, task.status.timestamp.ToNanoseconds(), task.id
    return False, 0, task.id


def _cursor(task: Task) -> ListTasksCursor:
    timed, nanoseconds, task_id = _position(task)
    return ListTasksCursor(timestamp_ns=nanoseconds if timed else None, task_id=task_id)


def _first(tasks: list[Task], token: str) -> int:
    """The index at which the page of that token begins; tokens of before SDK 1.3 name its first task."""
    cursor = decode_list_tasks_cursor(token)
    if cursor is None:
        named = decode_page_token(token)
        for index, task in enumerate(tasks):
            if task.id == named:
                return index
        raise InvalidParamsError(f"Invalid page token: {token}")
    after = cursor.sort_key()
    return next((i for i, task in enumerate(tasks) if _position(task) < after), len(tasks))
