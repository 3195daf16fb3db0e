"""What a front door needs of the tasks of one agent: a port without the SDK, so who implements it loads none of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Protocol

from postroom_a2a import tasks
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import Event, Message, Task

PAGE = 50
"""Tasks on a page of a list, if nothing else is said (A2A 1.0, section 3.1.4)."""


@dataclass(frozen=True, slots=True)
class TaskVersion:
    """A task after one of its changes.

    Attributes:
        task: A2A Task.
        sequence: of the change, growing; 0 while nobody has taken the request.
        event: the change as a StreamResponse; None for the first one, or where it was not asked for.
    """

    task: Task = field(hash=False)
    sequence: int
    event: Event | None = field(default=None, hash=False)

    @property
    def state(self) -> TaskState:
        """After the change."""
        return tasks.state_of(self.task)

    @property
    def settled(self) -> bool:
        """Whether it has ended or waits for an answer."""
        return self.state.terminal or self.state.interrupted


@dataclass(frozen=True, slots=True)
class TaskQuery:
    """Which tasks of the requester are wanted; newest status first.

    Attributes:
        context: context id, "" for any.
        state: None for any.
        since: the status changed at that time or later, seconds since the epoch.
        limit: tasks on a page.
        page: `next_page` of the page before, "" for the first one.
    """

    context: str = ""
    state: TaskState | None = None
    since: float = 0.0
    limit: int = PAGE
    page: str = ""


@dataclass(frozen=True, slots=True)
class TaskPage:
    """Some tasks.

    Attributes:
        tasks: A2A Tasks.
        total: how many there are on all pages.
        next_page: names the next page, "" if this is the last.
    """

    tasks: list[Task]
    total: int
    next_page: str = ""


class TaskService(Protocol):
    """The tasks that one agent was asked for. A requester sees its own and nobody else's.

    Each call raises `NotFound` for a task that the requester may not see, as for one that does not exist.
    """

    async def submit(self, message: Message, requester: str) -> str:
        """Ask for a task; on return the request is stored. Returns the task's id.

        The same `messageId` of the same requester is the same request: its task is returned.

        Raises:
            InvalidInput: the message cannot be sent.
        """

    async def get(self, task: str, requester: str) -> TaskVersion:
        """A task as it is now."""

    async def list(self, query: TaskQuery, requester: str) -> TaskPage:
        """A page of tasks.

        Raises:
            InvalidInput: `query.page` is no page.
        """

    async def cancel(self, task: str, requester: str) -> TaskVersion:
        """End a task; returns it as it is then, which within a deadline may be not yet ended.

        Raises:
            Conflict: it has ended already.
        """

    async def answer(self, task: str, message: Message, requester: str) -> None:
        """Give a task what it waits for; on return the answer is stored.

        Raises:
            Conflict: it waits for nothing.
        """

    def follow(self, task: str, requester: str, after: int) -> AsyncGenerator[TaskVersion]:
        """Every stored change behind sequence `after`, in order, with its event; ends after a terminal one."""
