"""The tasks of an organisation for people and the API: delegate, list, wait, cancel, answer.

Agents in sandboxes delegate through their sidecars, on the bus; the fold treats both alike. The caller checks
permissions.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, TypeVar

from postroom.bus.port import MessageBusProvider
from postroom.directory.agents import check_files
from postroom.errors import Conflict, Forbidden, LostUpdate, RequestTimeout, StreamFull
from postroom.projection.changes import FOLD_WAIT, Change, Changes, of_task
from postroom.protocol import priority, subjects
from postroom.protocol.content import Content, content, parts_of, says_same
from postroom.protocol.envelope import TaskRequest
from postroom.protocol.ids import CONTROL_PLANE, ID_PREFIX, MAX_CANDIDATES, only_one
from postroom.protocol.priority import Cancel, Input
from postroom.protocol.tasks import ANSWERED_BY, TASK_ID, used_before
from postroom.store.agents import Agent
from postroom.store.database import Database, Store
from postroom.store.ports import TaskEventRow, TaskRow
from postroom.store.words import words_of
from postroom.tasks import views
from postroom.tasks.chain import Chain, ended
from postroom.tasks.finding import tasks_having
from postroom.tasks.records import TaskRecord
from postroom.tasks.requests import Requests
from postroom.tasks.unfolded import STORED_WAIT, UNREADABLE, Unfolded, not_shown, unknown
from postroom.tasks.views import Blocker, Known, TaskEvent, TaskView
from postroom_a2a.messages import ROLE_USER
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import Message, answer_in, answer_update, status_update

T = TypeVar("T")

PAGE = 50
"""Tasks or changes of one answer where the caller names no limit."""

CANCEL_TRIES = 5


class OrgTaskService:
    """The tasks of an organisation.

    Args:
        requests: stores requests for tasks.
        running: whether that worker runs, so that its sidecar hears of cancels and answers.
        there: whether that agent, of whatever kind, works or calls.
        owner: uid of the owner of all workers.
        blocker: returns why an agent that is there does nothing for its tasks, "" for no known reason.
    """

    def __init__(
        self,
        bus: MessageBusProvider,
        database: Database,
        changes: Changes,
        chain: Chain,
        requests: Requests,
        *,
        running: Callable[[str], bool],
        owner: str = "",
        there: Callable[[str], bool],
        blocker: Blocker = lambda _: "",
        clock: Callable[[], float] = time.time,
        new_id: Callable[[], str] = lambda: secrets.token_hex(16),
    ) -> None:
        self._bus = bus
        self._database = database
        self._changes = changes
        self._chain = chain
        self._requests = requests
        self._running = running
        self._owner = owner
        self._there = there
        self._kept_by = blocker
        self._clock = clock
        self._new_id = new_id
        self._unfolded = Unfolded(database, changes)

    async def delegate(
        self,
        requester: str,
        worker: Agent,
        said: Content | str,
        *,
        skill: str = "",
        key: str = "",
        as_message: str = "",
        door: str = "",
        retry_of: str = "",
    ) -> TaskView:
        """Request a task from `worker`; on return the request is in the log, on disk (`Requests.store`).

        Args:
            door: the `protocol.tasks.Door` by which it was asked for.
        """
        request = TaskRequest(skill, door=door, retry_of=retry_of)
        with self._changes.listen() as listener:
            row, author, again = await self._requests.store(
                requester,
                worker,
                said,
                request,
                key=key,
                as_message=as_message,
                named=lambda task: listener.join((of_task(task),)),
            )
            known = Known(row, {each.uid: each.party_in(worker.org) for each in (author, worker)})

            async def first() -> tuple[Known, bool]:
                # Under a key it may have been stored and folded before.
                found = await self._known(row.id) if key else None
                return found or known, found is not None

            try:
                known, there = await listener.until(
                    first, lambda found: found[1], FOLD_WAIT, _folded
                )
                if not there:
                    self._unfolded.note(row.id)
                return replace(await self._show(known), again=again)
            except UNREADABLE as error:
                self._unfolded.note(row.id)
                raise not_shown(row.id) from error

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────

    async def find(self, ref: str, only: str = "") -> TaskRow:
        """The task with that id, or with an id that begins with those four or more digits.

        Args:
            only: uid of the only agent whose tasks are there, as worker or requester (`Principal.only`); "" for
                everybody's.

        Raises:
            NotFound: no task fits.
        """
        if TASK_ID.fullmatch(ref):
            found = await self.row(ref)
        elif ID_PREFIX.fullmatch(ref):
            limit = MAX_CANDIDATES + 1
            heads = await self._database.point(
                lambda store: store.tasks.tasks_by_prefix(ref, limit, only)
            )
            ids = [head.id for head in heads]
            ids += [task for task in self._unfolded.named(ref) if task not in ids]
            one = only_one(ref, ids, "tasks")
            found = await self.row(one) if one else None
        else:
            found = None
        if found is None or (only and only not in (found.worker, found.requester)):
            raise unknown(ref)
        return found

    async def row(self, task: str) -> TaskRow | None:
        """The task with that id; one that was stored here a moment ago is waited for.

        Raises:
            NotShownYet: the fold did not come to it in time.
        """
        return await self._unfolded.row(task)

    async def get(self, ref: str, only: str = "") -> TaskView:
        """The task as it is now; `only` as in `find`."""
        row = await self.find(ref, only)
        return await self._database.point(lambda c: views.whole(c, row, self.blocker))

    async def wait(
        self, ref: str, timeout: float, *, settled: bool = False, only: str = ""
    ) -> TaskView:
        """The task once it is final or, with `settled`, waits for an answer; after `timeout` seconds as it is, with
        `timed_out`; `only` as in `find`.

        Raises:
            Refused: too many callers wait.
        """

        def done(known: Known) -> bool:
            return _settled(known.row) if settled else known.row.final

        return await self._shown_once(ref, done, timeout, only)

    async def settled(self, task: str, timeout: float) -> TaskRow:
        """The row of a task once it is final or waits for an answer, or after `timeout` seconds.

        It is read once; after that each change brings it.

        Raises:
            NotFound: there is no such task.
            Refused: too many callers wait.
        """

        async def read() -> TaskRow:
            row = await self.row(task)
            if row is None:
                raise unknown(task)
            return row

        def brought(row: TaskRow, change: Change) -> TaskRow:
            return change.row if change.kind == "task" and change.seq > row.seq else row

        return await self._changes.until(of_task(task), read, _settled, timeout, brought)

    async def reached(self, ref: str, seq: int, timeout: float, only: str = "") -> TaskView:
        """The task once its record at `seq`, or a later one, is folded, or none will come; after `timeout` seconds as
        it is, with `timed_out`; `only` as in `find`.

        Raises:
            Refused: too many callers wait.
        """

        def done(known: Known) -> bool:
            return known.row.seq >= seq or known.row.final

        return await self._shown_once(ref, done, timeout, only)

    async def stored(self, task: str, seq: int) -> TaskView:
        """The task with its record at `seq`, which the caller has stored.

        Raises:
            NotShownYet: the record is not folded in time.
        """
        try:
            view = await self.reached(task, seq, STORED_WAIT)
        except UNREADABLE as error:
            raise not_shown(task, "what was said of the task") from error
        if view.timed_out:
            raise not_shown(task, "what was said of the task")
        return view

    async def listed(
        self,
        *,
        worker: str = "",
        requester: str = "",
        states: Collection[TaskState] = (),
        open_only: bool | None = None,
        limit: int = PAGE,
        before: int = 0,
        only: str = "",
        door: str = "",
        text: str = "",
    ) -> list[TaskView]:
        """Tasks without their artifacts, the newest request first; `only` as in `find`.

        Args:
            before: a `requested` of an earlier answer.
            door: as in `delegate`; "" for any.
            text: its request has each of these words (`store.words`).
        """
        words, named = words_of(text), [state.value for state in states]
        wanted: dict[str, Any] = {"worker": worker, "requester": requester, "states": named}
        wanted |= {"open_only": open_only, "party": only, "door": door}

        def find(store: Store) -> list[TaskView]:
            heads = tasks_having(store, words, limit=limit, before=before, **wanted)
            return views.listed(store, heads, self.blocker)

        return await self._database.read(find)

    async def attention(self, only: str = "") -> list[TaskView]:
        """The tasks that wait for an answer, the oldest request first; with `only` those that this uid asked for."""

        def find(store: Store) -> list[TaskView]:
            heads = [head for head in store.tasks.interrupted() if only in ("", head.requester)]
            return views.listed(store, heads, self.blocker)

        return await self._database.read(find)

    async def events(
        self, ref: str, *, after: int = 0, limit: int = PAGE, only: str = ""
    ) -> list[TaskEvent]:
        """The first `limit` changes of a task past sequence `after`, in their order; `only` as in `find`."""
        row = await self.find(ref, only)
        return await self._database.read(
            lambda store: [
                views.event(each, row) for each in store.tasks.events_of(row.id, after, limit)
            ]
        )

    async def course(
        self, task: str, after: int, limit: int, shown: Callable[[TaskEventRow, TaskRow], T]
    ) -> tuple[Known, list[tuple[int, T]]]:
        """A task, given by its id, and the first `limit` of its changes past `after`: the sequence of each, and it."""

        def find(store: Store) -> tuple[Known, list[tuple[int, T]]] | None:
            row = store.tasks.task_by_id(task)
            if row is None:
                return None
            rows = store.tasks.events_of(task, after, limit)
            return Known.read(store, row), [(each.seq, shown(each, row)) for each in rows]

        found = await self._database.read(find)
        if found is None and await self.row(task) is not None:
            found = await self._database.read(find)
        if found is None:
            raise unknown(task)
        return found

    async def open_counts(self) -> dict[str, int]:
        """The number of open tasks of each worker that has any."""
        return await self._database.read(lambda store: store.tasks.counts())

    async def current(self) -> dict[str, TaskView]:
        """The current task of each worker: the one that runs, else the oldest that waits for an answer."""

        def find(store: Store) -> list[TaskView]:
            heads = list(store.tasks.current().values())
            return views.listed(store, heads, self.blocker)

        return {view.worker.uid: view for view in await self._database.read(find)}

    # ── cancel and answer ───────────────────────────────────────────────────────────────────────────────

    async def cancel(
        self, ref: str, by: str, *, reason: str = "", timeout: float, only: str = ""
    ) -> TaskView:
        """End a task; returns it when it is final, or after `timeout` seconds as it is, with `timed_out`.

        A worker that works on the task gets a cancel. Where none does, or its priority lane is full, this post room
        writes the end itself. If a worker begins in that moment, the log decides who was first.

        Args:
            ref: as for `find`.
            by: uid of who cancels it.
            only: uid of the only agent that may have asked for it (`Principal.only`), "" for any.

        Raises:
            Conflict: several ids begin with `ref`, or the task has ended otherwise.
            Forbidden: it is a task of `only`, which others asked for.
            RequestTimeout, BusDisconnected, StreamFull: the worker may not know; cancel again.
        """
        row = await self._requested(ref, only)
        if row.state == TaskState.CANCELED:
            return await self.get(row.id)  # a second cancel has no effect (A2A 1.0, section 3.1.5)
        if row.final:
            raise Conflict(
                f"the task is {row.state} already", remedy=f"postroom task show {row.id[:8]}"
            )
        for _ in range(CANCEL_TRIES):
            if row.final:
                break
            if row.seq and self._running(row.worker) and await self._tell(row, by, reason):
                break
            if await self._end(row, by, reason):
                break
            row = await self._past(row)
        else:
            raise RequestTimeout("the task is changed all the time", remedy="cancel it again")
        return await self.wait(row.id, timeout)

    async def answer(
        self, ref: str, by: str, said: Content | str, named: str = "", only: str = ""
    ) -> TaskView:
        """Give a task its answer; on return the answer is in the log, on disk.

        Args:
            named: its `messageId`. The same message again, which the task has had, gives the task (`again`).

        Raises:
            Conflict: several ids begin with `ref`, the task waits for no answer, or another answer was first.
            Forbidden: as for `cancel`.
            ContentNotTaken: the worker's card says that it does not take a part.
            InvalidInput: nothing is said, a malformed part, a blob that the answerer may not read, or a `messageId`
                that the task has of another message.
            MessageTooLarge: nothing was answered.
            RequestTimeout, BusDisconnected, StreamFull: perhaps not answered; answer again.
        """
        said = content(said)
        row = await self._requested(ref, only)
        message = replace(said, thread=row.context_id).message(named or self._new_id(), ROLE_USER)
        message["taskId"] = row.id
        if named and _has_had(row, message):
            return replace(await self.get(row.id), again=True)
        if not TaskState(row.state).interrupted:
            raise Conflict(
                f"the task is {row.state}: it waits for no answer",
                remedy=f"postroom task show {row.id[:8]}",
            )
        await self._check_said(row, by, said)
        self._check_answer(row, message)
        if not await self._is_run(row.worker):
            message["metadata"] = {**message.get("metadata", {}), ANSWERED_BY: by}
            return await self._take_answer(row, message, runner=row.worker)
        payload = priority.encode(Input(row.id, message))
        lane = subjects.priority(row.worker, self._voice(row, by))
        if not self._running(row.worker):
            signed = {**message.get("metadata", {}), ANSWERED_BY: self._voice(row, by)}
            message["metadata"] = signed
            view = await self._take_answer(row, message, runner=CONTROL_PLANE, released=True)
            if self._running(
                row.worker
            ):  # it may have read its tasks before this record was folded
                await self._bus.publish(lane, payload)
            return view
        await self._bus.publish(lane, payload)
        if (await self._past(row)).seq > row.seq:
            await self._check_taken(row, said)
            return await self.get(row.id)
        view = await self.get(row.id)
        return replace(view, detail=f"the answer is on its way to @{view.worker.nick}")

    async def _is_run(self, worker: str) -> bool:
        """Whether Postroom runs that agent, so that it has a sidecar with a priority lane."""
        agent = await self._database.point(lambda store: store.agents.agent_by_uid(worker))
        return agent is None or agent.kind == "worker"

    async def _take_answer(
        self, row: TaskRow, message: Message, *, runner: str, released: bool = False
    ) -> TaskView:
        """Write the answer as its worker's sidecar would, where none runs."""
        known = TaskRecord(
            json.loads(row.snapshot),
            row.request,
            row.requester,
            None,
            row.attempt,
            row.lost,
        )
        event = answer_update(known.task, self._clock(), message)
        record = known.then(event, heard=message, runner=runner, released=released)
        try:
            stored = await self._chain.append(row, record)
        except LostUpdate as error:
            raise Conflict(
                "the task has changed meanwhile", remedy=f"postroom task show {row.id[:8]}"
            ) from error
        return await self.stored(row.id, stored)

    async def _check_said(self, row: TaskRow, by: str, said: Content) -> None:
        """Raise unless the files of an answer are there, and the worker takes it; it may read the files from now on."""

        def find(store: Store) -> tuple[Agent | None, dict[str, int]]:
            return store.agents.agent_by_uid(row.worker), check_files(store, by, said)

        worker, files = await self._database.point(find)
        if worker is not None:
            await self._requests.takers.check(worker, said, row.skill)
        if files:
            # Not folded from the log, as for a message: the lane that brings the answer is not folded, and the record
            # that the worker writes of it proves nothing about who said it.
            await self._database.write(
                lambda store: store.blobs.pass_on(list(files), by, row.worker)
            )

    async def fail_at_work(self, worker: str, why: str) -> None:
        """End the running task of `worker` as failed: the worker was ended for good, and a new attempt would end the
        same way.

        Other tasks wait for the worker's next start.

        Raises:
            RequestTimeout, BusDisconnected, StreamFull: perhaps not ended.
        """
        for head in await self._database.read(lambda store: store.tasks.open_tasks(worker)):
            row = await self.find(head.id)
            for _ in range(CANCEL_TRIES):
                if row.state != TaskState.WORKING or await self._write_end(
                    row, TaskState.FAILED, why
                ):
                    break
                row = await self._past(row)

    async def _check_taken(self, row: TaskRow, said: Content) -> None:
        """Raise `Conflict` if another answer followed the question of `row`."""
        (next_one,) = await self._database.point(
            lambda store: store.tasks.events_of(row.id, row.seq, 1)
        )
        taken = answer_in(json.loads(next_one.event)) if next_one.event else ""
        whole = parts_of(json.loads(next_one.answer)) if next_one.answer else list(said.parts)
        if (taken and taken != said.text) or whole != list(said.parts):
            raise Conflict(
                "somebody else has answered before", remedy=f"postroom task show {row.id[:8]}"
            )

    def _check_answer(self, row: TaskRow, message: Message) -> None:
        """Raise `MessageTooLarge` if the task's next record could not hold the answer."""
        record = TaskRecord(json.loads(row.snapshot), row.request, row.requester)
        event = status_update(record.task, TaskState.WORKING, self._clock())
        record.then(event, heard=message).encode()

    async def _tell(self, row: TaskRow, by: str, reason: str) -> bool:
        """Send the worker a cancel; False if the priority lane has no room.

        Then the service writes the end itself: the log refuses the worker's next record, and the worker stops.
        """
        payload = priority.encode(Cancel(row.id, reason))
        try:
            await self._bus.publish(subjects.priority(row.worker, self._voice(row, by)), payload)
        except StreamFull:
            return False
        return True

    async def _end(self, row: TaskRow, by: str, reason: str) -> bool:
        """Write that the task is canceled; False if another writer has changed it meanwhile."""
        nick = await self._database.point(lambda store: views.canceler(store, row, by))
        why = f"canceled by @{nick}" if nick else "canceled"
        return await self._write_end(row, TaskState.CANCELED, f"{why}: {reason}" if reason else why)

    async def _write_end(self, row: TaskRow, state: TaskState, why: str) -> bool:
        record = ended(row, state, why, self._clock())
        try:
            await self._chain.append(row, record)
        except LostUpdate:
            return False
        return True

    async def _past(self, row: TaskRow) -> TaskRow:
        """The task once a record after that of `row` is folded."""
        known = await self._until(row.id, lambda known: known.row.seq > row.seq, FOLD_WAIT)
        return known.row if known.row.snapshot else await self.find(row.id)

    # ── inside ──────────────────────────────────────────────────────────────────────────────────────────

    def _voice(self, row: TaskRow, by: str) -> str:
        """The uid under which the worker hears `by`: it obeys its owner, who asked, and the post room."""
        return by if by in (row.requester, self._owner) else CONTROL_PLANE

    async def _requested(self, ref: str, only: str) -> TaskRow:
        row = await self.find(ref, only)
        if only and row.requester != only:
            raise Forbidden("only who asked for a task can cancel or answer it")
        return row

    async def _known(self, task: str) -> Known | None:
        def find(store: Store) -> Known | None:
            row = store.tasks.task_by_id(task)
            return None if row is None else Known.read(store, row)

        return await self._database.point(find)

    async def _shown_once(
        self, ref: str, done: Callable[[Known], bool], timeout: float, only: str
    ) -> TaskView:
        """The task once it is `done`; after `timeout` seconds as it is, with `timed_out`; `only` as in `find`."""
        task = ref if TASK_ID.fullmatch(ref) else (await self.find(ref, only)).id
        known = await self._until(task, done, timeout, only)
        return replace(await self._show(known), timed_out=not done(known))

    async def _until(
        self, task: str, done: Callable[[Known], bool], timeout: float, only: str = ""
    ) -> Known:
        """The task once it is `done`, or after `timeout` seconds as it is; `only` as in `find`."""

        async def read() -> Known:
            known = await self._known(task)
            if known is None and await self.row(task) is not None:
                known = await self._known(task)
            if known is None or (only and only not in (known.row.worker, known.row.requester)):
                raise unknown(task)
            return known

        return await self._changes.until(of_task(task), read, done, timeout, Known.then)

    async def _show(self, known: Known) -> TaskView:
        if not known.row.snapshot:
            return await self.get(known.row.id)
        shown = known.shown(self.blocker)
        if shown is not None:
            return shown
        return await self._database.point(lambda c: views.whole(c, known.row, self.blocker))

    def blocker(self, worker: str) -> str:
        """Why a worker does nothing for its tasks now, "" for no known reason."""
        return self._kept_by(worker) or ("" if self._there(worker) else views.OFFLINE)


def _settled(row: TaskRow) -> bool:
    """Whether a task is final or waits for an answer."""
    return row.final or TaskState(row.state).interrupted


def _has_had(row: TaskRow, message: Message) -> bool:
    """Whether a message of a user is in the task already; raises InvalidInput if one of its id says something else."""
    named = message["messageId"]
    for each in json.loads(row.snapshot).get("history") or ():
        if each.get("messageId") == named and each.get("role") == ROLE_USER:
            if says_same({"contextId": row.context_id, **each}, message):
                return True
            raise used_before(row.id)
    return False


def _folded(found: tuple[Known, bool], change: Change) -> tuple[Known, bool]:
    """A task that was asked for just now, after a change."""
    if change.kind != "task":
        return found
    known, _ = found
    new = change.event is None
    return replace(known, row=change.row) if new else known.then(change), True
