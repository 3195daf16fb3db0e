"""What an agent that Postroom does not run says of its tasks; the control plane writes the records in its name.

Such an agent is the one runner of its tasks for as long as it has its address. So no crash of its process takes a task
away: the task stays as it is until the agent says more, its requester cancels it, or the agent is removed. The log
decides between two reports at once, as between two runners.

Nobody can say whether such an agent still works. So people are told of one that does not call after as long as of one
that does not take its messages, and of one that calls and says nothing of its task after many times as long.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from postroom.directory.agents import check_files
from postroom.errors import Conflict, LostUpdate, NotFound, RequestTimeout
from postroom.projection.changes import FOLD_WAIT
from postroom.protocol.alerts import Alert, RaiseAlert
from postroom.protocol.content import Content
from postroom.protocol.limits import SHORT_ID
from postroom.protocol.receipts import State
from postroom.store.alerts import SILENT
from postroom.store.database import Database, Store
from postroom.store.ports import TaskEventRow, TaskHead, TaskRow
from postroom.tasks.chain import Chain
from postroom.tasks.records import TaskRecord, Weight
from postroom.tasks.service import OrgTaskService
from postroom.tasks.views import TaskView
from postroom_a2a.task_state import FIRST, TERMINAL, TaskState, allowed
from postroom_a2a.tasks import Event, Task, apply, artifact_update, status_update

TRIES = 8
"""Times that a report is put behind a change that came first; each takes one change of somebody else."""

FIRST_ENDS = FIRST & TERMINAL
"""Ends that a task may have before it was begun; for anything else it is begun first."""

MakeEvent = Callable[[Task], Event]
"""Makes the event of a report for a task as it is."""

PATIENCE = 12
"""Times as long as an absent agent an agent that calls may say nothing of its task."""

ROUND = 30.0
"""The longest pause in seconds between two looks."""


class TaskReports:
    """Stores reports, in the name of an agent that the caller has authenticated."""

    def __init__(
        self,
        office: OrgTaskService,
        database: Database,
        chain: Chain,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._office = office
        self._database = database
        self._chain = chain
        self._clock = clock

    async def status(
        self,
        agent: str,
        ref: str,
        state: TaskState,
        said: Content | None = None,
        seq: int | None = None,
        *,
        metadata: dict[str, Any] | None = None,
    ) -> TaskView:
        """Change the state of a task; another `working` is progress. On return the change is in the log, on disk.

        Args:
            agent: uid of the task's worker.
            ref: id of the task, or its first digits.
            said: None for a state without words.
            seq: sequence of the task as the agent knows it: the change counts only if no other came since, and doing
                it again has no second effect. None to put it behind whatever came last.
            metadata: what the task's metadata has from then on.

        Raises:
            NotFound: the agent has no such task.
            Conflict: the task has ended, cannot be in that state next, or has changed since `seq`.
            MessageTooLarge, InvalidInput: it cannot be stored as it is, or names a blob that the agent may not read.
            NotShownYet: it is stored, and no answer could show it yet; doing it again with `seq` has no second effect.
            StreamFull, RequestTimeout, BusDisconnected: perhaps stored; do it again with `seq`.
        """
        if said is not None:
            await self._check_files(agent, said)

        def event(task: Task) -> Event:
            message = None
            if said is not None:
                message = said.message(secrets.token_hex(16))
                message |= {"contextId": task["contextId"], "taskId": task["id"]}
            made = status_update(task, state, self._clock(), message)
            if metadata:
                made["statusUpdate"]["metadata"] = metadata
            return made

        return await self._report(agent, ref, state, event, seq)

    async def artifact(
        self,
        agent: str,
        ref: str,
        artifact: dict[str, Any],
        *,
        append: bool = False,
        last: bool = True,
        seq: int | None = None,
    ) -> TaskView:
        """Store an artifact `{"artifactId", "name"?, "parts", ...}` or, with `append`, a further piece of it.

        Raises:
            PostroomError: as `status`.
        """
        await self._check_files(agent, Content(tuple(artifact["parts"])))

        def event(task: Task) -> Event:
            return artifact_update(task, artifact, append=append, last=last)

        return await self._report(agent, ref, TaskState.WORKING, event, seq)

    # ── inside ──────────────────────────────────────────────────────────────────────────────────────────

    async def _report(
        self, agent: str, ref: str, state: TaskState, make: MakeEvent, seq: int | None
    ) -> TaskView:
        for _ in range(TRIES):
            row = await self._own(agent, ref)
            task: Task = json.loads(row.snapshot)
            event = make(task)
            begins = _is_begin(event)
            if begins and seq == 0 and row.attempt:
                return await self._office.get(row.id)
            if later := await self._later(row, seq):
                if _same(later[0], event, task):
                    return await self._office.get(row.id)
                raise Conflict(
                    f"the task has changed since {seq}: it is {row.state}, at {row.seq}",
                    remedy="read it again, then decide",
                )
            if not row.seq and state not in FIRST_ENDS:
                stored = await self._store(row, _begun(row, agent, self._clock(), event))
                view = await self._office.stored(row.id, stored or 1)
                if stored and begins:
                    return view
                continue
            stored = await self._store(row, _record(row, task, agent, state, event))
            if stored:
                return await self._office.stored(row.id, stored)
            await self._office.reached(row.id, row.seq + 1, FOLD_WAIT)
        raise RequestTimeout("the task is changed all the time", remedy="say it again")

    async def _check_files(self, agent: str, said: Content) -> None:
        await self._database.point(lambda store: check_files(store, agent, said))

    async def _own(self, agent: str, ref: str) -> TaskRow:
        row = await self._office.find(ref, agent)
        if row.worker != agent:
            raise NotFound(f"no task {row.id[:SHORT_ID]} was given to you")
        return row

    async def _later(self, row: TaskRow, seq: int | None) -> list[TaskEventRow]:
        """The changes that came after `seq`, which is what the agent knows; not the begin that a report brought."""
        if seq is None or row.seq == seq:
            return []
        found = await self._database.point(lambda store: store.tasks.events_of(row.id, seq, 2))
        begun = found and not seq and not found[0].event and found[0].state == TaskState.WORKING
        return found[1:] if begun else found

    async def _store(self, row: TaskRow, record: TaskRecord) -> int:
        """The sequence of the stored record; 0 if another one was stored before it."""
        before = Weight(row.weight, row.since) if row.seq else None
        try:
            return await self._chain.append(row, record, before)
        except LostUpdate:
            return 0


def _begun(row: TaskRow, agent: str, at: float, event: Event) -> TaskRecord:
    """The first record of a task: it is begun, by `event` if that says no more."""
    task = json.loads(row.snapshot)
    begins = event if _is_begin(event) else status_update(task, TaskState.WORKING, at)
    after = apply(task, begins)
    return TaskRecord(after, row.request, row.requester, attempt=1, runner=agent)


def _record(row: TaskRow, task: Task, agent: str, state: TaskState, event: Event) -> TaskRecord:
    """The record of `event`.

    Raises:
        Conflict: it cannot follow.
    """
    before = TaskState(row.state)
    if before.terminal or (row.seq and not allowed(before, state)):
        raise Conflict(f"the task is {before.value} already: nothing can be added to it")
    if before.interrupted and "artifactUpdate" in event:
        raise Conflict(f"the task is {before.value}", remedy="say first that it is working")
    known = TaskRecord(task, row.request, row.requester, None, row.attempt, row.lost, agent)
    if not row.seq:  # the task itself is the first record
        return replace(known, task=apply(task, event))
    return known.then(event)


def _is_begin(event: Event) -> bool:
    """Whether it says no more than that the task is begun."""
    status = event.get("statusUpdate", {}).get("status", {})
    return status.get("state") == TaskState.WORKING.a2a and "message" not in status


def _same(stored: TaskEventRow, event: Event, task: Task) -> bool:
    """Whether a change says what `event` says, whenever it was said."""
    if stored.event:
        return _words(json.loads(stored.event)) == _words(event)
    return _words({"statusUpdate": {"status": task["status"]}}) == _words(event)


def _words(event: Event) -> object:
    update = event.get("statusUpdate")
    if update is None:
        update = event.get("artifactUpdate", {})
        return [update.get(key) for key in ("artifact", "append", "lastChunk")]
    message = update["status"].get("message") or {}
    return [update["status"]["state"], message.get("parts"), message.get("metadata")]


class SilentTasks:
    """Looks for such tasks.

    Args:
        after: seconds without a word that are too long while its agent does not call.
        there: whether that agent calls.
    """

    def __init__(
        self,
        database: Database,
        alert: RaiseAlert,
        there: Callable[[str], bool],
        after: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._alert = alert
        self._there = there
        self._after = after
        self._clock = clock

    @property
    def every(self) -> float:
        """Seconds between two looks."""
        return min(ROUND, self._after)

    async def look(self) -> None:
        """Raise an alert for each task that stands still and has none."""
        now = self._clock()
        found = await self._database.read(partial(_silent, before=now - self._after))
        for task in found:
            still = now - task.updated_at
            if self._there(task.worker) and still < PATIENCE * self._after:
                continue
            short = task.id[:SHORT_ID]
            text = (
                f"has said nothing of task {short} for {still:.0f} s: it is {task.state};"
                f" postroom task cancel {short}"
            )
            await self._alert(Alert(SILENT, text, task.worker, _about(task)))


def _silent(store: Store, before: float) -> list[TaskHead]:
    outside = store.agents.outside()
    if not outside:
        return []
    found = [
        task
        for task in store.tasks.silent(outside, before)
        if not store.alerts.is_raised(SILENT, _about(task))
    ]
    requests = {
        row.seq: row for row in store.messages.messages_at([t.requested_seq for t in found])
    }
    # Of a request that was not taken the alert about its agent's messages tells.
    return [
        task
        for task in found
        if task.seq
        or (row := requests.get(task.requested_seq)) is None
        or row.state != State.ACCEPTED.value
    ]


def _about(task: TaskHead) -> str:
    return f"{task.id}/{task.seq}"
