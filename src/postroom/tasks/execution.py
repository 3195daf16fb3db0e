"""One task in the hands of its executor: what it knows of it, and what it can say.

Everything an executor says is stored before the call returns.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from postroom.errors import Conflict
from postroom.tasks.records import TaskRecord
from postroom_a2a import tasks
from postroom_a2a.task_state import TaskState, allowed
from postroom_a2a.tasks import Event, Message, Task

Write = Callable[["Execution", TaskRecord], Awaitable[None]]


@dataclass(slots=True, eq=False)
class Execution:
    """A task that is being worked on.

    Attributes:
        record: the last one that is stored.
        heard: what the agent is told now if it has begun before: the answer to its question; None at a (new) start.
        begun: that the attempt begins is stored; before, nothing can be said of it.
        canceling: somebody wants it to end.
        settled: the task waits for an answer, or has ended.
        finished: nobody works on it any more; what was said of it last is stored.
        lost: another writer has taken it away.
        left_out: results that were refused, since they are too large.
    """

    record: TaskRecord
    sequence: int
    write: Write = field(repr=False)
    heard: Message | None = None
    begun: bool = False
    canceling: bool = False
    cancel_reason: str = ""
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    lost: bool = False
    left_out: int = 0
    now: Callable[[], float] = time.time
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def id(self) -> str:
        """Of the task."""
        return self.record.id

    @property
    def task(self) -> Task:
        """The task as it is stored."""
        return self.record.task

    @property
    def context(self) -> str:
        """A2A context id."""
        return str(self.task["contextId"])

    @property
    def request(self) -> Message:
        """The message that asked for the task."""
        history = self.task.get("history") or [{}]
        return history[0]

    @property
    def attempt(self) -> int:
        """1 for the first."""
        return self.record.attempt

    @property
    def state(self) -> TaskState:
        """As it is stored."""
        return self.record.state

    async def say(self, state: TaskState, text: str = "", *, force: bool = False) -> None:
        """Change the state; `working` again is progress. With `force` a full task says less (`TaskRecord.fitting`).

        Raises:
            Conflict: the task is no longer worked on.
            LostUpdate: somebody else has changed it.
            MessageTooLarge: it was not stored.
        """
        message = tasks.agent_message(self.task, text) if text else None
        await self.put(tasks.status_update(self.task, state, self.now(), message), force=force)

    async def result(self, artifact: dict[str, object], *, append: bool, last: bool) -> None:
        """Store an artifact, or a further piece of it. Raises as `say`."""
        await self.put(tasks.artifact_update(self.task, artifact, append=append, last=last))

    async def put(self, event: Event, *, force: bool = False) -> None:
        """Store any change that an A2A StreamResponse can say. Raises as `say`."""
        async with self._turn:
            if self.settled.is_set():
                how = "somebody else's" if self.lost else self.state.value
                raise Conflict(f"task {self.id} is {how}: nothing can be added to it")
            record = self.record.then(event)
            if not allowed(self.state, record.state):
                # Whoever reads the log would leave it out, and all that follows it.
                raise Conflict(
                    f"task {self.id} is {self.state.value}: it cannot be {record.state.value} next"
                )
            await self.write(self, record.fitting() if force else record)
            if record.state.terminal or record.state.interrupted:
                self.settled.set()


class Executor(Protocol):
    """Works on tasks, one call of `execute` for each."""

    async def ready(self) -> None:
        """Wait until one more task can be handed over.

        Raises:
            ExecutorGone: there will be nobody.
        """

    async def execute(self, execution: Execution) -> None:
        """Work until the task is settled; a task that is not settled on return has failed.

        Called again for the same task with `heard` when its question was answered.

        Raises:
            AttemptLost: whoever worked on it is gone.
        """

    async def cancel(self, execution: Execution) -> str:
        """Make a running `execute` end, by force if need be; returns what to tell people, "" if it went well."""

    async def forget(self, task_id: str) -> None:
        """A task that waited for an answer has ended otherwise."""
