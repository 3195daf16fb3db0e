"""The engine of one worker: takes requests, runs one task after the other, and records each change.

1. A request becomes a task when its first record is stored. A repeated request finds that record and changes nothing.
2. Tasks wait in the order of their requests. Answered tasks go on before tasks that have not begun.
3. An attempt begins with a `working` record, which is the task's first one if nothing waits or runs. If its executor is
   gone, the engine begins a new attempt, if `Attempts` has one left.
4. The log decides between two writers: the one that it refuses stops and writes no more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from postroom.errors import (
    Conflict,
    LostUpdate,
    MessageTooLarge,
    NotFound,
    PostroomError,
)
from postroom.observe import get_logger
from postroom.protocol.tasks import SKILL, task_id
from postroom.tasks.attempts import Attempts, gave_up
from postroom.tasks.backlog import Backlog, Waiting
from postroom.tasks.execution import Execution, Executor
from postroom.tasks.log import (
    RETRY,
    AttemptLost,
    ExecutorGone,
    StoredTask,
    TaskLog,
    TaskSource,
)
from postroom.tasks.records import TaskRecord
from postroom_a2a import tasks
from postroom_a2a.messages import context_fault, context_of
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import Event, Message

CANCEL_TRIES = 5

STOPPED = "the worker was stopped"
"""The reason of an attempt that was stopped on purpose."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Ask:
    """A request for a task.

    Attributes:
        requester: uid of its sender, as the server has checked it.
        message: A2A Message.
        skill: wanted skill of the worker's card, "" for any.
    """

    request: str
    requester: str
    message: Message = field(hash=False)
    skill: str = ""


class TaskEngine:
    """Runs the tasks of one worker. For one event loop.

    Args:
        refuse: returns why the worker does not take a request, "" if it does.
        attempts: how often a task is begun.
        trusted: uids that may cancel and answer the tasks of others.
        changed: called when a task begins or ends.
    """

    def __init__(
        self,
        log: TaskLog,
        source: TaskSource,
        executor: Executor,
        *,
        worker: str,
        refuse: Callable[[Ask], str] = lambda _: "",
        attempts: Attempts | None = None,
        trusted: Iterable[str] = (),
        changed: Callable[[], None] = lambda: None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._log = log
        self._source = source
        self._executor = executor
        self._worker = worker
        self._refuse = refuse
        self._attempts = attempts or Attempts()
        self._trusted = frozenset(trusted)
        self._changed = changed
        self._now = now
        self._backlog = Backlog()
        self._executions: dict[str, Execution] = {}
        self._accepting = asyncio.Lock()
        # Held by who chooses the next task: by a request that begins at once, until its record is stored.
        self._choosing = asyncio.Lock()
        self._busy = False
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._stopping = False
        self._gone = ""

    # ── state ──

    @property
    def executions(self) -> list[Execution]:
        """Tasks that are being worked on, oldest first."""
        return list(self._executions.values())

    @property
    def waiting(self) -> int:
        """Tasks that wait for their turn."""
        return len(self._backlog)

    def execution(self, task: str = "") -> Execution:
        """The running task with that id; with "" the one that began last.

        Before the executor has the task, its words are about another one: they would end a task that nobody has read,
        and their record would race with the one that begins the attempt.
        """
        begun = {found.id: found for found in self._executions.values() if found.begun}
        if not task and begun:
            return next(reversed(begun.values()))
        found = begun.get(task)
        if found is None:
            named = f"task {task[:64]!r} is not" if task else "no task is"
            raise NotFound(f"{named} being worked on here")
        return found

    # ── requests ────────────────────────────────────────────────────────────────────────────────────

    async def accept(self, ask: Ask) -> None:
        """Make a request a task; on return its first record is stored, now or before.

        Raises:
            PostroomError: perhaps not stored; give the request again.
        """
        async with self._accepting:  # the same request may arrive by two ways at once
            await self._accept(ask)

    async def _accept(self, ask: Ask) -> None:
        new = task_id(self._worker, ask.requester, ask.request)
        if new in self._executions or new in self._backlog:
            return
        record = self._first(new, ask)
        if record.state.terminal or not self._free():
            await self._store_first(record)
            return
        async with self._choosing:
            await self._store_first(self._begun(record))

    def _free(self) -> bool:
        """Whether a new task would begin at once."""
        taken = self._busy or self._choosing.locked() or len(self._backlog) > 0
        return not (taken or self._stopping or self._gone) and self._executor.free()

    async def _store_first(self, record: TaskRecord) -> None:
        try:
            stored = await self._log.append(record, 0)
        except MessageTooLarge as error:
            bare = replace(record, task=_without_text(record.task), attempt=0)
            stored = await self._log.append(self._refused(bare, error.message), 0)
        except LostUpdate:
            await self._adopt(record.id)
            return
        if stored.record.state.terminal:
            return
        started = stored.record.state is TaskState.WORKING
        if started and self._stopping:
            await self._release(stored, STOPPED)
        else:
            self._queue(Waiting(record.id, stored, started=started), first=started)

    def _first(self, new: str, ask: Ask) -> TaskRecord:
        task = tasks.new_task(new, context_of(ask.message) or new, ask.message, self._now())
        if ask.skill:
            task["metadata"] = {SKILL: ask.skill}
        record = TaskRecord(task, ask.request, ask.requester, runner=self._log.run)
        refusal = context_fault(ask.message.get("contextId", "")) or self._refuse(ask)
        return self._refused(record, refusal) if refusal else record

    def _begun(self, record: TaskRecord) -> TaskRecord:
        event = self._status(record, TaskState.WORKING)
        return replace(record, task=tasks.apply(record.task, event), attempt=1)

    def _refused(self, record: TaskRecord, why: str) -> TaskRecord:
        event = self._status(record, TaskState.REJECTED, why)
        return replace(record, task=tasks.apply(record.task, event))

    async def _adopt(self, task: str) -> None:
        """Go on with a task that has begun before, if no other runner does."""
        self._go_on(await self._source.get(task))

    def _go_on(self, stored: StoredTask, why: str = "") -> None:
        state = stored.record.state
        if state.terminal or state.interrupted or not stored.free:
            return
        begun = state is TaskState.WORKING
        self._queue(Waiting(stored.record.id, stored, begun=begun, why=why), first=bool(why))

    def recover(self, task: str, state: TaskState) -> None:
        """Take over the tasks that this worker left when it ended. Call it in the order of their requests."""
        known = task in self._executions or task in self._backlog
        if not (known or state.terminal or state.interrupted):
            self._queue(Waiting(task, begun=state is TaskState.WORKING))

    # ── cancel and answer ───────────────────────────────────────────────────────────────────────────

    async def cancel(self, task: str, by: str, reason: str = "") -> None:
        """End a task; on return it has ended. A task in which `by` has no part stays as it is.

        Raises:
            PostroomError: perhaps not ended; cancel again.
        """
        for _ in range(CANCEL_TRIES):
            execution = self._executions.get(task)
            if execution is not None:
                if not self._concerns(execution.record, by):
                    return
                await self._interrupt(execution, reason)
                if not execution.state.interrupted:
                    return
                # The agent has asked at that moment: it waits for an answer that will not come.
            stored = await self._find(task)
            if stored is None or stored.record.state.terminal:
                return
            if not self._concerns(stored.record, by):
                return
            if await self._end(stored, TaskState.CANCELED, reason):
                self._backlog.take(task)
                await self._executor.forget(task)
                return
            # The task changed meanwhile: it may have begun.
        raise LostUpdate(f"task {task} is changed by somebody else all the time")

    async def _interrupt(self, execution: Execution, reason: str) -> None:
        execution.canceling = True
        execution.cancel_reason = reason
        note = await self._executor.cancel(execution)
        execution.cancel_reason = note or execution.cancel_reason
        await execution.finished.wait()

    async def answer(self, task: str, by: str, message: Message) -> None:
        """Give a task its answer; on return the answer is stored. A task that waits for none stays as it is.

        Raises:
            PostroomError: perhaps not stored; answer again.
        """
        stored = await self._find(task)
        if stored is None or not self._concerns(stored.record, by):
            return
        record = stored.record
        known = task in self._executions or task in self._backlog or self._stopping
        if record.released and not known:
            self._go_on(
                stored
            )  # it was answered while no sidecar ran, after this one had read its tasks
            return
        if not record.state.interrupted:
            _log.info("task %s is %s: it waits for no answer", task, record.state.value)
            return
        named = message.get("messageId")
        if any(each.get("messageId") == named for each in record.task.get("history") or ()):
            _log.info("task %s has had the answer %s", task, named)  # sent twice before it was read
            return
        if self._gone and not self._stopping:
            await self._end(stored, TaskState.FAILED, self._gone)
            return
        event = tasks.answer_update(record.task, self._now(), message)
        after = record.then(event, heard=message, runner=self._log.run, released=self._stopping)
        try:
            answered = await self._log.append(after, stored.sequence)
        except LostUpdate as error:
            _log.info("an answer came too late: %s", error)
            return
        self._queue(Waiting(task, answered, heard=message), first=True)

    async def _find(self, task: str) -> StoredTask | None:
        try:
            return await self._source.get(task)
        except NotFound:
            _log.info("nobody has asked for task %s", task)
            return None

    def _concerns(self, record: TaskRecord, by: str) -> bool:
        if by == record.requester or by in self._trusted:
            return True
        _log.warning("%s has no say in task %s", by, record.id)
        return False

    # ── running ─────────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Work on tasks, one at a time, until cancelled."""
        while True:
            await self._wake.wait()
            try:
                await self._executor.ready()
            except ExecutorGone as error:
                if not self._stopping:
                    await self._give_up(error)
                return
            if self._stopping:
                return  # the rest waits for the next start
            async with self._choosing:
                waiting = self._backlog.next() if len(self._backlog) else None
                if not len(self._backlog):
                    self._wake.clear()
                self._busy = waiting is not None
            if waiting is not None:
                try:
                    await self._work(waiting)
                finally:
                    self._busy = False

    def stop(self) -> None:
        """Count every later end of an attempt as intended."""
        self._stopping = True
        self._wake.set()

    async def settled(self, timeout: float) -> None:
        """Wait at most `timeout` seconds until running and answered tasks are put down."""
        try:
            async with asyncio.timeout(timeout):
                await self._idle.wait()
                for waiting in self._backlog.begun():
                    if waiting.stored is not None and waiting.begins:
                        await self._release(waiting.stored, STOPPED)
        except TimeoutError:
            _log.warning("a task could not be put down in time")

    async def _work(self, waiting: Waiting) -> None:
        stored = waiting.stored or await self._fetch(waiting.id)
        state = None if stored is None else stored.record.state
        if stored is None or state is None or state.terminal or state.interrupted or self._stopping:
            return
        execution = Execution(
            stored.record, stored.sequence, self._write, heard=waiting.heard, now=self._now
        )
        self._executions[waiting.id] = execution
        self._idle.clear()
        self._changed()
        try:
            if await self._begin(execution, waiting):
                execution.begun = True
                await self._execute(execution)
        except LostUpdate as error:
            _log.warning("task %s is somebody else's now: %s", waiting.id, error)
        finally:
            del self._executions[waiting.id]
            execution.finished.set()
            if not self._executions:
                self._idle.set()
            self._changed()
        if execution.lost:
            await self._look_again(execution)

    async def _look_again(self, execution: Execution) -> None:
        """Another record was stored. If it is an earlier one of our own, nobody else goes on with the task."""
        stored = await self._fetch(execution.id)
        if stored is not None and stored.sequence > execution.sequence:
            self._go_on(stored, "its records were not known")

    async def _begin(self, execution: Execution, waiting: Waiting) -> bool:
        """Store the begin of the attempt; False if there is no attempt."""
        if waiting.begins:
            return True
        record = execution.record
        lost = record.lost + (waiting.begun and not record.released)
        why = waiting.why or "its worker ended"
        if lost > record.lost and (over := self._attempts.over(lost, why)):
            await self._abandon(execution, over, lost)
            return False
        text = f"begun again: {why}" if lost > record.lost else ""
        attempt = record.attempt + 1
        await self._say(execution, TaskState.WORKING, text, lost=lost, attempt=attempt)
        return True

    async def _execute(self, execution: Execution) -> None:
        try:
            if not execution.canceling:
                await self._executor.execute(execution)
        except AttemptLost as error:
            if not (execution.canceling or execution.settled.is_set()):
                await self._put_down(execution, error.message)
                return
        try:
            if execution.canceling:
                await execution.say(TaskState.CANCELED, execution.cancel_reason, force=True)
            else:
                why = "the agent ended its work without a result"
                await execution.say(TaskState.FAILED, why, force=True)
        except Conflict:
            _log.debug("task %s had its result", execution.id)

    async def _release(self, stored: StoredTask, why: str) -> None:
        """Release a task that had begun and was not reached: its next attempt must not count a lost one."""
        event = self._status(stored.record, TaskState.WORKING, why)
        after = stored.record.then(event, runner=self._log.run, released=True)
        with suppress(LostUpdate):  # canceled by another writer
            await self._log.append(after, stored.sequence, fitting=True)

    async def _put_down(self, execution: Execution, why: str) -> None:
        if self._stopping and self._attempts.safe:
            await self._say(execution, TaskState.WORKING, STOPPED, released=True)
            return
        if self._stopping:
            lost = execution.record.lost + 1
            await self._abandon(execution, self._attempts.over(lost, STOPPED), lost)
            return
        stored = StoredTask(execution.record, execution.sequence)
        self._queue(Waiting(execution.id, stored, begun=True, why=why), first=True)

    async def _give_up(self, error: ExecutorGone) -> None:
        """End all work: tasks that had begun have failed, the rest waits for the next start."""
        self._gone = error.message
        for waiting in self._backlog.begun():
            stored = waiting.stored or await self._fetch(waiting.id)
            if stored is None or stored.record.state.terminal:
                continue
            if waiting.started:  # no attempt has seen it
                await self._release(stored, error.message)
                continue
            lost = stored.record.lost + 1 if waiting.begun else 0
            why = waiting.why or error.message
            await self._end(stored, TaskState.FAILED, why, lost=lost)

    async def _fetch(self, task: str) -> StoredTask | None:
        failures = 0
        while True:
            try:
                return await self._find(task)
            except PostroomError as error:
                # This includes faults that only mean that the bus is overloaded.
                failures += 1
                _log.warning("task %s cannot be read: %s", task, error)
                await asyncio.sleep(RETRY.delay(failures))

    def _queue(self, waiting: Waiting, *, first: bool = False) -> None:
        self._backlog.add(waiting, first=first)
        self._wake.set()

    # ── records ─────────────────────────────────────────────────────────────────────────────────────

    def _status(self, record: TaskRecord, state: TaskState, text: str = "") -> Event:
        message = tasks.agent_message(record.task, text) if text else None
        return tasks.status_update(record.task, state, self._now(), message)

    async def _say(
        self,
        execution: Execution,
        state: TaskState,
        text: str,
        **changes: Any,
    ) -> None:
        record = execution.record
        event = self._status(record, state, text)
        after = record.then(event, runner=self._log.run, **changes)
        await self._write(execution, after, fitting=True)

    async def _abandon(self, execution: Execution, why: str, lost: int) -> None:
        """End a task of which `lost` attempts were lost: no further one is made."""
        record = execution.record
        event = gave_up(self._status(record, TaskState.FAILED, why), lost)
        after = record.then(event, runner=self._log.run, lost=lost)
        await self._write(execution, after, fitting=True)

    async def _write(
        self, execution: Execution, record: TaskRecord, /, *, fitting: bool = False
    ) -> None:
        try:
            stored = await self._log.append(record, execution.sequence, fitting=fitting)
        except LostUpdate:
            execution.lost = True
            execution.settled.set()
            raise
        execution.record, execution.sequence = stored.record, stored.sequence

    async def _end(self, stored: StoredTask, state: TaskState, text: str, *, lost: int = 0) -> bool:
        """End a task that does not run here; False if it was changed meanwhile.

        Args:
            lost: attempts that were lost, if the task ends for that.
        """
        event = self._status(stored.record, state, text)
        event = gave_up(event, lost) if lost else event
        counted = max(lost, stored.record.lost)
        record = stored.record.then(event, runner=self._log.run, lost=counted)
        if not stored.sequence:
            record = replace(record, event=None)  # a task's first record is the task itself
        try:
            await self._log.append(record, stored.sequence, fitting=True)
        except LostUpdate as error:
            _log.info("task %s was changed meanwhile: %s", record.id, error)
            return False
        return True


def _without_text(task: tasks.Task) -> tasks.Task:
    return {name: value for name, value in task.items() if name != "history"}
