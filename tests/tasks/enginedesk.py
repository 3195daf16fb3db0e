"""An engine over a real bus, with a source that folds the log itself and an executor that the test steers."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from postroom.bus.nats import NatsBus
from postroom.errors import NotFound
from postroom.protocol.tasks import follows, parse_task_subject, task_id
from postroom.tasks.engine import Ask, TaskEngine
from postroom.tasks.execution import Execution
from postroom.tasks.log import ExecutorGone, StoredTask, TaskLog
from postroom.tasks.records import Link, TaskRecord
from postroom_a2a.messages import ROLE_USER, text_message
from postroom_a2a.task_state import TaskState, allowed
from postroom_a2a.tasks import new_task, status_text
from tests.rig import Rig, new_uid

PATIENCE = 20.0
Script = Callable[[Execution], Coroutine[Any, Any, None]]


@dataclass
class Log:
    """What the log holds of one worker's tasks, by the rule of the fold; a `TaskSource`."""

    rig: Rig
    worker: str
    asks: dict[str, Ask] = field(default_factory=dict)

    async def records(self, task: str) -> list[tuple[int, TaskRecord]]:
        """(sequence, record) of every record of a task that counts."""
        found: list[tuple[int, TaskRecord]] = []
        subject = f"worker.{self.worker}.tasks.{task}.>"
        async for message in self.rig.admin.replay("TASKS", subjects=(subject,)):
            said = parse_task_subject(message.subject)
            assert said is not None
            last, state = (found[-1][0], found[-1][1].state) if found else (0, None)
            if follows(message.metadata, self.worker, task, last) and allowed(state, said[2]):
                before = found[-1][1].task if found else None
                found.append((message.sequence, Link.decode(message.payload).after(before)))
        return found

    async def get(self, task_id: str) -> StoredTask:
        found = await self.records(task_id)
        if found:
            return StoredTask(found[-1][1], found[-1][0])
        ask = self.asks.get(task_id)
        if ask is None:
            raise NotFound(f"no task {task_id}")
        record = TaskRecord(
            new_task(task_id, task_id, ask.message, 0.0),
            request=ask.request,
            requester=ask.requester,
        )
        return StoredTask(record, 0)

    async def states(self, task: str) -> list[str]:
        """The states of a task, in order."""
        return [record.state.value for _, record in await self.records(task)]

    async def stored(self, task: str) -> int:
        """How many records there are, counted or not."""
        subject = f"worker.{self.worker}.tasks.{task}.>"
        return len([m async for m in self.rig.admin.replay("TASKS", subjects=(subject,))])

    async def until(self, task: str, state: TaskState) -> TaskRecord:
        """Wait for a record in that state; the test's own fold of the log, so it looks until it is there."""
        async with asyncio.timeout(PATIENCE):
            while True:
                for _, record in await self.records(task):
                    if record.state is state:
                        return record
                await asyncio.sleep(0.01)


@dataclass
class Scripted:
    """An executor that runs the test's own coroutine for each task."""

    script: Script
    here: asyncio.Event = field(default_factory=asyncio.Event)
    gone: bool = False
    begun: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    work: asyncio.Task[None] | None = None

    async def ready(self) -> None:
        await self.here.wait()
        if self.gone:
            raise ExecutorGone("the agent has ended")

    def free(self) -> bool:
        return self.here.is_set() and not self.gone

    async def execute(self, execution: Execution) -> None:
        self.begun.append(execution.id)
        self.work = asyncio.create_task(self.script(execution))
        try:
            await asyncio.shield(self.work)
        except asyncio.CancelledError:
            if not self.work.cancelled():
                self.work.cancel()
                raise

    async def cancel(self, execution: Execution) -> str:
        if self.work is not None:
            self.work.cancel()
        return ""

    async def forget(self, task_id: str) -> None:
        self.forgotten.append(task_id)


@dataclass
class Desk:
    """One worker with its engine."""

    log: Log
    bus: NatsBus
    engine: TaskEngine
    executor: Scripted
    alice: str
    running: asyncio.Task[None] | None = None

    async def ask(self, text: str, **fields: Any) -> str:
        """Give the engine a request of alice's; returns the task's id."""
        return await self.give(self.request(text, **fields))

    def request(self, text: str, **fields: Any) -> Ask:
        """A request of alice's."""
        new = fields.pop("id", secrets.token_hex(16))
        message = fields.pop("message", text_message(new, text, role=ROLE_USER))
        return Ask(new, self.alice, message, **fields)

    async def give(self, ask: Ask) -> str:
        """Deliver a request."""
        task = task_id(self.log.worker, ask.requester, ask.request)
        self.log.asks[task] = ask
        await self.engine.accept(ask)
        return task

    async def over(self) -> None:
        """Wait until the engine works on nothing more, since its executor is gone."""
        assert self.running is not None
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait({self.running})

    async def text(self, task: str) -> str:
        """What was said with the last state."""
        return status_text((await self.log.get(task)).record.task)


async def done(execution: Execution) -> None:
    """The script of an agent that answers at once."""
    await execution.say(TaskState.COMPLETED, "done")


@asynccontextmanager
async def running_desk(
    rig: Rig,
    script: Script = done,
    *,
    bus: NatsBus | None = None,
    alice: str = "",
    recover: tuple[str, ...] = (),
    here: bool = True,
    **options: Any,
) -> AsyncGenerator[Desk]:
    """A new start of a worker; with `bus` of one that ran before."""
    bus = bus or await rig.agent()
    log = Log(rig, bus.uid)
    executor = Scripted(script)
    if here:
        executor.here.set()
    run = secrets.token_hex(16)
    engine = TaskEngine(
        TaskLog(bus, log, worker=bus.uid, run=run), log, executor, worker=bus.uid, **options
    )
    for task in recover:
        engine.recover(task, (await log.get(task)).record.state)
    desk = Desk(log, bus, engine, executor, alice or new_uid())
    async with asyncio.TaskGroup() as group:
        desk.running = group.create_task(engine.run())
        yield desk
        desk.running.cancel()
