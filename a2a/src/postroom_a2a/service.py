"""The port between the operations of A2A and the tasks behind them, without the SDK."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import Event, Message, Task, state_of

PAGE = 50
"""Tasks on a page of a list by default (A2A 1.0, section 3.1.4)."""


@dataclass(frozen=True, slots=True)
class TaskVersion:
    """A task after one of its changes."""

    task: Task = field(hash=False)
    sequence: int

    @property
    def state(self) -> TaskState:
        """The task's state after the change."""
        return state_of(self.task)


class TaskChange(Protocol):
    """A stored change of a task."""

    @property
    def sequence(self) -> int:
        """Its number; later changes have higher ones."""

    @property
    def event(self) -> Event | None:
        """A2A StreamResponse; None for the first change, which creates the task."""

    @property
    def settled(self) -> bool:
        """Whether the task has ended with this change or waits for an answer."""


@dataclass(frozen=True, slots=True)
class TaskQuery:
    """A query for tasks, newest status first.

    Attributes:
        context: context id, "" for any.
        state: None for any.
        since: earliest change of the status, seconds since the epoch.
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
    """At most `limit` tasks, and fewer where they would not fit an answer.

    Attributes:
        total: tasks on all pages.
        next_page: token of the next page, "" after the last.
    """

    tasks: list[Task]
    total: int
    next_page: str = ""


class Submitted(NamedTuple):
    """A stored request: the id of its task, and whether the same request was stored before (`again`)."""

    task: str
    again: bool = False


class TaskService(Protocol):
    """The tasks of one agent, as far as a requester may see them.

    `requester` is the proven caller, "" without proof. Each call raises `NotFound` both for a missing task and for one
    that the requester may not see. Any other error of `postroom_a2a.errors` means that there is no answer. An
    `RpcError` reaches the caller unchanged.
    """

    async def submit(self, message: Message, requester: str, /, *, follow: bool) -> Submitted:
        """Store the request for a task.

        The same `messageId` of the same requester with the same content is the same request, with the same task. With
        `follow` the requester is about to follow the task.

        Raises:
            InvalidInput: the message cannot be sent, or its `messageId` was used for another one; the text then names
                the task of that.
        """

    async def get(self, task: str, requester: str, /) -> TaskVersion:
        """The present version of a task."""

    async def wait(self, task: str, requester: str, seconds: float, /) -> TaskVersion | None:
        """Return when the task has ended, waits for an answer, or `seconds` have passed.

        Returns:
            The task's version then; None where only `get` knows it.
        """

    async def list(self, query: TaskQuery, requester: str, /) -> TaskPage:
        """A page of tasks.

        Raises:
            InvalidInput: `query.page` is not a token of ours.
        """

    async def cancel(self, task: str, requester: str, /) -> Task:
        """End a task and return its new state; past an internal deadline it may not have ended yet.

        Raises:
            Conflict: the task has ended already, or the requester may not end it.
        """

    async def answer(self, task: str, message: Message, requester: str, /) -> bool:
        """Store the answer that a task waits for; returns whether the task has had it before.

        Raises:
            InvalidInput: as `submit`.
            Conflict: the task waits for nothing, or not for this requester.
        """

    def follow(self, task: str, requester: str, after: int, /) -> AsyncGenerator[TaskChange, None]:
        """Every stored change behind sequence `after`, in order, up to a terminal one."""


@dataclass(frozen=True, slots=True)
class PushConfig:
    """Where the changes of a task are pushed: A2A's TaskPushNotificationConfig.

    Attributes:
        id: "" in a new one without; the service then chooses one, the same for the same `url`.
        token: goes out with each push, so that the receiver knows whom it is from. Never comes back.
        scheme, credentials: of the Authorization of each push, "" for none. The credentials never come back.
        version: of A2A in which the pushes are written.
    """

    task: str
    url: str
    id: str = ""
    token: str = field(default="", repr=False)
    scheme: str = ""
    credentials: str = field(default="", repr=False)
    version: str = "1.0"


@dataclass(frozen=True, slots=True)
class PushConfigPage:
    """At most `limit` configs, in the order of their ids; `next_page` is "" after the last."""

    configs: list[PushConfig]
    next_page: str = ""


class PushConfigs(Protocol):
    """Where the changes of one agent's tasks are pushed, as far as a requester has said so.

    `requester` and errors as in `TaskService`; a task that the requester may not see raises `NotFound`. A config
    belongs to who made it: for everybody else it is not there.
    """

    async def check(self, config: PushConfig, requester: str, /) -> None:
        """Refuse what `create` would refuse, before there is a task.

        Raises:
            InvalidInput: the config cannot be taken: its `url` above all.
        """

    async def create(
        self, config: PushConfig, requester: str, /, *, after: int | None = None
    ) -> PushConfig:
        """Push every change of the task from now on, or behind sequence `after`, which may be past.

        One with the same id takes the place of the one before and goes on where that was.

        Raises:
            InvalidInput: as `check`.
            Refused: there are too many.
        """

    async def get(self, task: str, config: str, requester: str, /) -> PushConfig | None:
        """A config; None if the requester has none of that id."""

    async def list(self, task: str, requester: str, /, *, limit: int, page: str) -> PushConfigPage:
        """The requester's configs of a task.

        Raises:
            InvalidInput: `page` is not a token of ours.
        """

    async def delete(self, task: str, config: str, requester: str, /) -> None:
        """Push no further change there; one that is not there is deleted already."""
