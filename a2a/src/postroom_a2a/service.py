"""What the operations of A2A need of the tasks behind them: a port that knows nothing of the SDK."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Protocol

from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import Event, Message, Task, state_of

PAGE = 50
"""Tasks on a page of a list, if nothing else is said (A2A 1.0, section 3.1.4)."""


@dataclass(frozen=True, slots=True)
class TaskVersion:
    """A task as it is after one of its changes.

    Attributes:
        task: A2A Task.
    """

    task: Task = field(hash=False)
    sequence: int

    @property
    def state(self) -> TaskState:
        """After the change."""
        return state_of(self.task)


class TaskChange(Protocol):
    """A stored change of a task."""

    @property
    def event(self) -> Event | None:
        """A2A StreamResponse; None for the first change, which only says that the task is there."""

    @property
    def settled(self) -> bool:
        """Whether the task has ended with it or waits for an answer."""


@dataclass(frozen=True, slots=True)
class TaskQuery:
    """Which tasks are wanted; newest status first.

    Attributes:
        context: context id, "" for any.
        state: None for any.
        since: the status changed at that time or later, seconds since the epoch.
        page: `next_page` of the page before, "" for the first one.
        history: messages of each task's history, None for all.
    """

    context: str = ""
    state: TaskState | None = None
    since: float = 0.0
    limit: int = PAGE
    page: str = ""
    history: int | None = None
    artifacts: bool = False


@dataclass(frozen=True, slots=True)
class TaskPage:
    """Some tasks: at most `limit`, and fewer where they would not fit an answer.

    Attributes:
        tasks: A2A Tasks.
        total: how many there are on all pages.
        next_page: names the next page, "" if this is the last.
    """

    tasks: list[Task]
    total: int
    next_page: str = ""


class TaskService(Protocol):
    """The tasks of one agent, as somebody may have them.

    `requester` is who asks, where the way of the call proves that, else "". Each call raises `NotFound` for a task
    that the requester may not see, as for one that does not exist; other errors of `postroom_a2a.errors` say that
    there is no answer. An `RpcError` reaches the caller as it is.
    """

    async def submit(self, message: Message, requester: str, /, *, follow: bool) -> str:
        """Ask for a task; on return the request is stored. Returns the task's id.

        The same `messageId` of the same requester is the same request: its task is returned. With `follow` the
        requester is about to follow the task.

        Raises:
            InvalidInput: the message cannot be sent.
        """

    async def get(self, task: str, requester: str, /) -> TaskVersion:
        """A task as it is now."""

    async def wait(self, task: str, requester: str, seconds: float, /) -> None:
        """Return when the task has ended or waits for an answer, or the time is up."""

    async def list(self, query: TaskQuery, requester: str, /) -> TaskPage:
        """A page of tasks.

        Raises:
            InvalidInput: `query.page` is no page.
        """

    async def cancel(self, task: str, requester: str, /) -> Task:
        """End a task; returns it as it is then, which within a deadline may be not yet ended.

        Raises:
            Conflict: it has ended already, or the requester may not end it.
        """

    async def answer(self, task: str, message: Message, requester: str, /) -> None:
        """Give a task what it waits for; on return the answer is stored.

        Raises:
            Conflict: it waits for nothing, or for nothing of the requester's.
        """

    def follow(self, task: str, requester: str, after: int, /) -> AsyncGenerator[TaskChange, None]:
        """Every stored change behind sequence `after`, in order; ends after a terminal one."""
