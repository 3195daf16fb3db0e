"""One task in the hands of its executor.

Each report of an executor is stored before the call returns.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from postroom.errors import Conflict
from postroom.protocol.content import Content
from postroom.tasks.records import TaskRecord
from postroom_a2a import tasks
from postroom_a2a.task_state import TaskState, allowed
from postroom_a2a.tasks import Event, Message, Task


class Write(Protocol):
    """The writer of an execution's records."""

    async def __call__(
        self, execution: Execution, record: TaskRecord, /, *, fitting: bool = False
    ) -> None:
        """Store `record`, or a shorter one where that is `fitting`."""


@dataclass(slots=True, eq=False)
class Execution:
    """A running task.

    Attributes:
        record: the last stored one.
        heard: the answer to the agent's question, for a task that goes on; None at a (new) start.
        begun: the begin of the attempt is stored; before that, the executor can report nothing.
        canceling: somebody wants it to end.
        settled: the task waits for an answer, or has ended.
        finished: nobody works on it any more, and its last report is stored.
        lost: another writer has taken it away.
        left_out: results that were too large.
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
        """Id of the task."""
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
        """The stored state."""
        return self.record.state

    async def say(self, state: TaskState, said: Content | str = "", *, force: bool = False) -> None:
        """Change the state; another `working` is progress. With `force` a full task stores a shorter record
        (`TaskRecord.shortened`).

        Raises:
            Conflict: the task has ended or waits for an answer.
            LostUpdate: another writer has changed it.
            MessageTooLarge: it was not stored.
        """
        content = Content.of_text(said) if isinstance(said, str) else said
        message = None
        if not content.empty:
            message = content.message(secrets.token_hex(16))
            message |= {"contextId": self.context, "taskId": self.id}
        await self.put(tasks.status_update(self.task, state, self.now(), message), force=force)

    async def result(self, artifact: dict[str, object], *, append: bool, last: bool) -> None:
        """Store an artifact, or a further piece of it. Raises as `say`."""
        await self.put(tasks.artifact_update(self.task, artifact, append=append, last=last))

    async def put(self, event: Event, *, force: bool = False) -> None:
        """Store any change that an A2A StreamResponse can hold. Raises as `say`."""
        async with self._turn:
            if self.settled.is_set():
                how = "somebody else's" if self.lost else self.state.value
                raise Conflict(f"task {self.id} is {how}: nothing can be added to it")
            record = self.record.then(event)
            if not allowed(self.state, record.state):
                # Readers of the log would skip it and all that follows it.
                raise Conflict(
                    f"task {self.id} is {self.state.value}: it cannot be {record.state.value} next"
                )
            await self.write(self, record, fitting=force)
            if record.state.terminal or record.state.interrupted:
                self.settled.set()


class Executor(Protocol):
    """Works on tasks, one call of `execute` for each."""

    async def ready(self) -> None:
        """Wait until one more task can be handed over.

        Raises:
            ExecutorGone: no executor will come.
        """

    def free(self) -> bool:
        """Whether a task could be handed over now, without waiting."""

    async def execute(self, execution: Execution) -> None:
        """Work until the task is settled; a task that is not settled on return has failed.

        After the answer to a question, the engine calls this again for the same task with `heard`.

        Raises:
            AttemptLost: the executor is gone.
        """

    async def cancel(self, execution: Execution) -> str:
        """Make a running `execute` end, by force if need be; returns a fault to report, "" if it went well."""

    async def forget(self, task_id: str) -> None:
        """Forget a task that waited for an answer and has ended otherwise."""
