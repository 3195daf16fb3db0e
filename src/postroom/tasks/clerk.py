"""The post office's own records about tasks, appended after the fold that causes them.

The clerk tells requesters of changes, tells people of questions, and ends tasks that no worker will ever run. After a
crash it may repeat each of these without effect: an update carries its sequence, an end is a link of the task's
chain, an alert is known by its subject, and a receipt moves a message forward once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from postroom.bus.port import Message, MessageBusProvider
from postroom.errors import InvalidInput, LostUpdate, ProtocolViolation, StreamFull
from postroom.observe import get_logger
from postroom.projection.fold import After
from postroom.protocol import priority, subjects
from postroom.protocol.alerts import Alert, RaiseAlert
from postroom.protocol.limits import MAX_DETAIL, SHORT_ID
from postroom.protocol.priority import Requested, Update
from postroom.protocol.receipts import Reason, Receipt, State
from postroom.store.agents import Agent
from postroom.store.alerts import QUESTION
from postroom.store.database import Database, Store
from postroom.store.tasks import TaskEventRow, TaskHead, TaskRow
from postroom.tasks.chain import Chain, ended
from postroom.tasks.rules import may_request
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import status_update
from postroom_a2a.text import one_line

log = get_logger(__name__)

AT_ONCE = 16
"""Changes that are read at once: each may have a large snapshot."""

MOST_ENDED = 4096
"""The most ends that are remembered until they are folded."""

MOST_ALERTS = 20
ALERT_WINDOW = 600.0
"""The most alerts within so many seconds that a worker's questions raise; further questions are in the list of tasks.
"""

MAX_NOTICE_BYTES = 16 * 1024 * 1024
NOTICE_WINDOW = 600.0
"""Bytes of updates that one worker's tasks may put into PRIORITY within so many seconds; beyond that, requesters hear
only of ends. All agents share PRIORITY, and a record lies there for a day.
"""


@dataclass(frozen=True, slots=True)
class _TaskChange:
    """A change, the task as it is now, and its requester (None: the directory has no such agent)."""

    event: TaskEventRow
    task: TaskRow
    requester: Agent | None


class TaskClerk:
    """Finds what follows from the fold of tasks, and appends it."""

    def __init__(
        self,
        bus: MessageBusProvider,
        database: Database,
        chain: Chain,
        alert: RaiseAlert,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._bus = bus
        self._database = database
        self._chain = chain
        self._alert = alert
        self._clock = clock
        # Appended ends that are perhaps not folded yet: task to the sequence before its end.
        self._ended: dict[str, int] = {}
        self._contested = False
        self._overtaken = False
        self._alerts: dict[str, tuple[float, int]] = {}
        self._said: dict[str, tuple[float, int]] = {}

    @property
    def after(self) -> dict[str, list[After]]:
        """The clerk's work after the fold of each stream."""
        return {
            "INBOX": [After(self.settle_requests, concerns=may_request)],
            "RECEIPTS": [After(self.settle_receipts, concerns=_says_dead)],
            "TASKS": [
                After(self.settle_records, self.sweep, known=("INBOX", "RECEIPTS", "ALERTS"))
            ],
        }

    async def settle_requests(self, seqs: Collection[int]) -> None:
        """End the requested tasks that no worker can ever take; `seqs` are records of INBOX.

        Where another request would wait behind messages, its worker hears of it in the priority lane.
        """
        rows = await self._database.read(lambda store: store.tasks.untaken_tasks(seqs=seqs))
        if not rows:
            return
        dead, misdirected = await self._database.read(lambda store: _untakable(store, rows))
        await self._fail(dead)
        await self._reject(misdirected)
        for worker, task in await self._database.read(lambda store: _kept_waiting(store, rows)):
            subject = subjects.priority(worker, self._bus.uid)
            try:
                await self._bus.publish(subject, priority.encode(Requested(task)))
            except StreamFull as error:
                log.warning("%s takes task %s in its turn: %s", worker, task, error)

    async def settle_receipts(self, _: Collection[int]) -> None:
        """End the tasks whose request died or whose worker was removed; a dead receipt shows either."""
        await self.end_hopeless()

    async def settle_records(self, seqs: Sequence[int]) -> None:
        """Tell requesters and people of the changes in the records of TASKS at `seqs`."""
        for start in range(0, len(seqs), AT_ONCE):
            part = seqs[start : start + AT_ONCE]
            changes, behind = await self._database.read(partial(_changes, seqs=part))
            for change in changes:
                await self._tell_requester(change)
                await self._tell_people(change.event.seq, change.task)
            await self._report(behind)
        if self._contested:
            await self.end_hopeless()

    async def sweep(self) -> None:
        """Append everything that a crash left out. Updates need no sweep: their records are delivered again."""
        await self.end_hopeless()
        after = 0
        while seqs := await self._database.read(
            lambda store, after=after: store.pending.open_requests(after)
        ):
            await self._report(await self._database.read(lambda store: _behind(store, seqs)))
            after = seqs[-1]
        for task in await self._database.read(lambda store: store.tasks.interrupted()):
            await self._tell_people(task.seq, task)

    async def end_hopeless(self) -> None:
        """End every open task that no worker will ever run; also when an agent was retired."""
        self._overtaken = True
        while self._overtaken:
            self._contested = self._overtaken = False
            await self._end_untakable()
            await self._end_orphaned()

    async def _end_orphaned(self) -> None:
        for worker in await self._database.read(_retired_with_tasks):
            after = 0
            while rows := await self._database.read(
                lambda store, worker=worker, after=after: store.tasks.open_of(worker, after)
            ):
                for row in rows:
                    await self._end(row, TaskState.FAILED, "the worker was removed")
                after = rows[-1].requested_seq

    # ── ends ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _end_untakable(self) -> None:
        after = 0
        while rows := await self._database.read(
            lambda store, after=after: store.tasks.untaken_tasks(after)
        ):
            dead, misdirected = await self._database.read(lambda store: _untakable(store, rows))
            await self._fail(dead)
            await self._reject(misdirected)
            after = rows[-1].requested_seq

    async def _fail(self, dead: Iterable[tuple[TaskRow, str]]) -> None:
        for row, reason in dead:
            name = await self._name(row.worker)
            await self._end(row, TaskState.FAILED, f"never reached {name}: {reason}")

    async def _reject(self, rows: Iterable[TaskRow]) -> None:
        for row in rows:
            agent = await self._database.read(
                lambda store, uid=row.worker: store.agents.agent_by_uid(uid)
            )
            if agent is not None and agent.kind == "human":
                why = f"@{agent.nick} is a person, and tasks are for agents"
                await self._end(row, TaskState.REJECTED, why)
            else:
                why = f"never reached {_shown(agent, row.worker)}: {Reason.NO_SUCH_RECIPIENT.value}"
                await self._end(row, TaskState.FAILED, why)

    async def _end(self, row: TaskRow, state: TaskState, why: str) -> None:
        if self._ended.get(row.id) == row.seq:
            return
        try:
            await self._chain.append(row, ended(row, state, why, self._clock()))
        except LostUpdate:
            # Another writer was first. The fold decides whether its record counts, and may have done so meanwhile.
            self._contested = True
            now = await self._database.read(lambda store: store.tasks.task_by_id(row.id))
            if now is not None and now.seq > row.seq:
                self._overtaken = True
            return
        except StreamFull as error:
            # The records of others must not wait for room in TASKS. The next fold tries this again.
            log.warning("task %s cannot be ended yet: %s", row.id, error)
            self._contested = True
            return
        except InvalidInput:
            log.exception(
                "task %s cannot be ended", row.id
            )  # never possible, so not again until the next start
        self._ended[row.id] = row.seq
        if len(self._ended) > MOST_ENDED:
            del self._ended[next(iter(self._ended))]

    async def _name(self, uid: str) -> str:
        agent = await self._database.read(lambda store: store.agents.agent_by_uid(uid))
        return _shown(agent, uid)

    # ── updates ───────────────────────────────────────────────────────────────────────────────────────────────

    async def _tell_requester(self, change: _TaskChange) -> None:
        event, task, state = change.event, change.task, TaskState(change.event.state)
        ends = state.terminal or state.interrupted
        requester = change.requester
        if requester is None or requester.retired or requester.kind == "human":
            return
        if not ends and not task.stream:
            return
        update = Update(
            task=task.id,
            worker=task.worker,
            request=task.request,
            sequence=event.seq,
            attempt=event.attempt,
            state=state,
            update=_update(event, task, whole=ends),
        )
        subject = subjects.priority(task.requester, self._bus.uid)
        payload = priority.encode(update)
        if not state.terminal and not self._may_tell(task.worker, len(payload)):
            log.warning(
                "worker %s says too much; %s does not hear of every change",
                task.worker,
                task.requester,
            )
            return
        try:
            await self._bus.publish(subject, payload)
        except StreamFull as error:
            # Updates to others must not wait for room. The requester can still read the task.
            log.warning("%s was not told of task %s: %s", task.requester, task.id, error)

    async def _tell_people(self, seq: int, task: TaskHead) -> None:
        if task.seq != seq or not TaskState(task.state).interrupted:
            return
        about = f"{task.id}/{seq}"
        if await self._database.read(lambda store: store.alerts.is_raised(QUESTION, about)):
            return
        if not self._may_alert(task.worker):
            log.warning("worker %s asks too often; no alert about task %s", task.worker, task.id)
            return
        short = task.id[:SHORT_ID]
        text = (
            f"asks about task {short}: {one_line(task.said, MAX_DETAIL)}; "
            f"postroom task answer {short} TEXT"
        )
        await self._alert(Alert(QUESTION, text, task.worker, about))

    def _may_alert(self, worker: str) -> bool:
        return self._count(self._alerts, worker, 1, ALERT_WINDOW) <= MOST_ALERTS

    def _may_tell(self, worker: str, size: int) -> bool:
        return self._count(self._said, worker, size, NOTICE_WINDOW) <= MAX_NOTICE_BYTES

    def _count(
        self, counts: dict[str, tuple[float, int]], worker: str, more: int, window: float
    ) -> int:
        now = self._clock()
        began, count = counts.get(worker, (now, 0))
        if now - began >= window:
            began, count = now, 0
        counts[worker] = began, count + more
        return count + more

    async def _report(self, behind: Sequence[tuple[TaskHead, State]]) -> None:
        """Append the receipts of requests: seen when the task was taken, answered when it has ended."""
        for task, state in behind:
            receipt = Receipt(task.request, task.worker, state, self._clock())
            subject = subjects.receipts(task.requester, self._bus.uid)
            await self._bus.publish(subject, receipt.encode())


def _untakable(
    store: Store, rows: Sequence[TaskRow]
) -> tuple[list[tuple[TaskRow, str]], list[TaskRow]]:
    """Those of `rows`, which nobody has taken, that no worker can ever take.

    Returns:
        Tasks whose request is dead, each with the reason, and tasks whose request went to a person, or to nobody by a
        message that is a copy.
    """
    requests = {row.seq: row for row in store.messages.messages_at([r.requested_seq for r in rows])}
    workers = store.agents.agents_by_uid({row.worker for row in rows})
    dead, misdirected = [], []
    for row in rows:
        request, worker = requests.get(row.requested_seq), workers.get(row.worker)
        nobody = worker is None or worker.retired
        if request is not None and request.state == State.DEAD.value:
            dead.append((row, request.reason))
        # Where the request has a row, its own end says that the recipient is gone.
        elif (worker is not None and worker.kind == "human") or (request is None and nobody):
            misdirected.append(row)
    return dead, misdirected


def _retired_with_tasks(store: Store) -> list[str]:
    """The retired workers with open tasks."""
    known = store.agents.agents_by_uid(store.tasks.counts())
    return [uid for uid, agent in known.items() if agent.retired]


def _kept_waiting(store: Store, rows: Sequence[TaskRow]) -> list[tuple[str, str]]:
    """The workers whose messages delay the requests of `rows`, which nobody has taken, each with one such task."""
    asked = {row.worker: row.id for row in rows}
    known = store.agents.agents_by_uid(asked)
    return [
        (worker, task)
        for worker, task in asked.items()
        if worker in known
        and known[worker].kind != "human"
        and not known[worker].retired
        and store.pending.keeps_waiting(worker)
    ]


def _behind(store: Store, seqs: Collection[int]) -> list[tuple[TaskHead, State]]:
    """The tasks requested at `seqs` of INBOX whose request does not show yet that they were taken or have ended, each
    with the missing state.
    """
    taken = {head.requested_seq: head for head in store.tasks.heads_by_requests(seqs) if head.seq}
    unseen = (State.ACCEPTED.value, State.DELIVERED.value)
    return [
        (head, State.ANSWERED if head.final else State.SEEN)
        for row in store.messages.messages_at(taken)
        if not row.final and ((head := taken[row.seq]).final or row.state in unseen)
    ]


def _says_dead(record: Message) -> bool:
    try:
        return Receipt.decode(record.payload).state is State.DEAD
    except ProtocolViolation:
        return False


def _changes(
    store: Store, seqs: Sequence[int]
) -> tuple[list[_TaskChange], list[tuple[TaskHead, State]]]:
    """The changes in the records at `seqs`, and the tasks whose request does not show them yet."""
    events = store.tasks.events_at(seqs)
    rows = {row.id: row for row in store.tasks.tasks_by_ids({e.task for e in events})}
    known = store.agents.agents_by_uid({row.requester for row in rows.values()})
    changes = [
        _TaskChange(event, row, known.get(row.requester))
        for event in events
        if (row := rows.get(event.task)) is not None
    ]
    # Taken, or ended: receipts show no state between these.
    requests = {
        change.task.requested_seq
        for change in changes
        if not change.event.event or change.task.final
    }
    return changes, _behind(store, requests) if requests else []


def _update(event: TaskEventRow, task: TaskRow, *, whole: bool) -> dict:
    if task.seq == event.seq and (whole or not event.event):
        return {"task": json.loads(task.snapshot)}
    if event.event:
        return json.loads(event.event)
    bare = {"id": task.id, "contextId": task.context_id}
    return status_update(bare, TaskState(event.state), event.at)


def _shown(agent: Agent | None, uid: str) -> str:
    return f"@{agent.nick}" if agent is not None else uid
