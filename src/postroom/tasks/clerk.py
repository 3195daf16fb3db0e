"""The post office's own records about tasks, appended after the fold that causes them.

The clerk tells requesters of changes, tells people of questions, and ends tasks that no worker will ever run. After a
crash it may repeat each of these without effect: an update carries its sequence, an end is a link of the task's
chain, an alert is known by its subject, and a receipt moves a message forward once.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from postroom.bus.port import MessageBusProvider
from postroom.directory.cards import not_offered
from postroom.errors import InvalidInput, LostUpdate, MessageTooLarge, StreamFull
from postroom.observe import get_logger
from postroom.projection.changes import Change
from postroom.projection.following import After, Quota
from postroom.protocol import priority, subjects
from postroom.protocol.alerts import Alert, RaiseAlert
from postroom.protocol.deadletters import (
    DEAD_ATTEMPTS,
    DEAD_ORIGIN,
    DEAD_REASON,
    task_origin,
)
from postroom.protocol.envelope import Envelope, TaskRequest
from postroom.protocol.limits import MAX_DETAIL, SHORT_ID
from postroom.protocol.priority import Requested, Update
from postroom.protocol.receipts import Reason, Receipt, State
from postroom.protocol.tasks import GAVE_UP
from postroom.store.agents import Agent
from postroom.store.alerts import QUESTION
from postroom.store.database import Database, Store
from postroom.store.messages import MessageRow
from postroom.store.ports import TOLD, TaskEventRow, TaskHead, TaskRow
from postroom.tasks.attempts import lost_in
from postroom.tasks.chain import Chain, ended
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import status_update
from postroom_a2a.text import one_line

log = get_logger(__name__)

AT_ONCE = 16
"""Changes that the sweep reads at once: each may have a large snapshot."""

TOGETHER = 32
"""Receipts that are on their way to the log at once."""

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
class _Letter:
    """The dead letter of a task whose attempts are used up.

    Attributes:
        subject: of the task's request.
        payload: an envelope with that request.
    """

    subject: str
    payload: bytes
    origin: str
    reason: str
    attempts: int


@dataclass(frozen=True, slots=True)
class _Told:
    """A change, the task as it is now, its requester (None: the directory has no such agent), and the dead letter of a
    task that was given up.
    """

    event: TaskEventRow
    task: TaskRow
    requester: Agent | None
    letter: _Letter | None = None


@dataclass(frozen=True, slots=True)
class Follows:
    """What follows from one change.

    Attributes:
        dead: the request died with this reason, before a worker took it.
        misdirected: no worker will ever take the task, or its agent does not offer the work.
        waits: the request lies behind messages that its worker does not confirm.
        told: the record that the requester may hear of.
        asks: people are told of the task's question.
        receipt: the state that the request does not show yet.
        hopeless: a message died; tasks may have lost their request.
    """

    task: TaskRow | None = None
    dead: str | None = None
    misdirected: bool = False
    waits: bool = False
    told: _Told | None = None
    asks: bool = False
    receipt: State | None = None
    hopeless: bool = False


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
        self._alerts = Quota(MOST_ALERTS, ALERT_WINDOW)
        self._said = Quota(MAX_NOTICE_BYTES, NOTICE_WINDOW)
        self._told = self._saved = 0
        self._owes = False

    @property
    def after(self) -> After:
        """The clerk's work after the fold."""
        return After(self.find, self.settle, self.sweep, self._begin, lambda: self._owes)

    def _begin(self, store: Store) -> None:
        self._told = self._saved = store.tasks.cursors.get(TOLD)

    def find(self, store: Store, changes: Sequence[Change]) -> list[Follows]:
        """What follows from the changes, one entry for each; also notes up to where requesters were told."""
        if self._told > self._saved:
            store.tasks.cursors.set(TOLD, self._told)
            self._saved, self._owes = self._told, False
        return find(store, changes)

    async def settle(self, found: Sequence[Follows]) -> None:
        """End the tasks that no worker can ever take, and tell requesters, workers and people."""
        for each in found:
            if each.task is None:
                continue
            if each.dead is not None:
                await self._fail([(each.task, each.dead)])
            elif each.misdirected:
                await self._reject([each.task])
            elif each.waits:
                await self._tell_worker(each.task)
            if each.told is not None:
                await self._tell(each.told)
            if each.asks:
                await self._tell_people(each.task)
        await self._report(
            [(each.task, each.receipt) for each in found if each.task and each.receipt]
        )
        if self._contested or any(each.hopeless for each in found):
            await self.end_hopeless()

    async def _tell_worker(self, task: TaskRow) -> None:
        subject = subjects.priority(task.worker, self._bus.uid)
        try:
            await self._bus.publish(subject, priority.encode(Requested(task.id)))
        except StreamFull as error:
            log.warning("%s takes task %s in its turn: %s", task.worker, task.id, error)

    async def sweep(self) -> None:
        """Append everything that a crash left out."""
        await self.end_hopeless()
        after = 0
        while seqs := await self._database.read(
            lambda store, after=after: store.pending.open_requests(after)
        ):
            await self._report(await self._database.read(lambda store: _behind(store, seqs)))
            after = seqs[-1]
        for task in await self._database.read(_asking):
            await self._tell_people(task)
        while told := await self._database.read(partial(_untold, after=self._told)):
            for each in told:
                await self._tell(each)

    async def end_hopeless(self) -> None:
        """End every open task that no worker will ever run; also when an agent was retired."""
        self._overtaken = True
        while self._overtaken:
            self._contested = self._overtaken = False
            await self._end_untakable()
            await self._end_orphaned()

    async def _end_orphaned(self) -> None:
        for agent in await self._database.read(_retired_with_tasks):
            why = f"the {'worker' if agent.kind == 'worker' else 'agent'} was removed"
            after = 0
            while rows := await self._database.read(
                lambda store, uid=agent.uid, after=after: store.tasks.open_of(uid, after)
            ):
                for row in rows:
                    await self._end(row, TaskState.FAILED, why)
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
            name = _shown(await self._agent(row.worker), row.worker)
            await self._end(row, TaskState.FAILED, f"never reached {name}: {reason}")

    async def _reject(self, rows: Iterable[TaskRow]) -> None:
        for row in rows:
            agent = await self._agent(row.worker)
            refusal = await self._database.point(
                lambda store, row=row, agent=agent: _refusal(store, row, agent)
            )
            if refusal:
                await self._end(row, TaskState.REJECTED, refusal)
            elif agent is not None and agent.kind == "human":
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
            now = await self._database.read(lambda store: store.tasks.head_by_id(row.id))
            if now is not None and now.seq > row.seq:
                self._overtaken = True
            return
        except StreamFull as error:
            # The records of others must not wait for room in TASKS. The next fold tries this again.
            log.warning("task %s cannot be ended yet: %s", row.id, error)
            self._contested = True
            return
        except InvalidInput:
            # It will never be possible, so not again until the next start.
            log.exception("task %s cannot be ended", row.id)
        self._ended[row.id] = row.seq
        if len(self._ended) > MOST_ENDED:
            del self._ended[next(iter(self._ended))]

    async def _agent(self, uid: str) -> Agent | None:
        return await self._database.point(lambda store: store.agents.agent_by_uid(uid))

    # ── updates ───────────────────────────────────────────────────────────────────────────────────────────────

    async def _tell(self, told: _Told) -> None:
        if told.event.seq > self._told:  # a sweep may have been first
            if told.letter is not None:
                await self._bury(told.letter)
            await self._tell_requester(told.event, told.task, told.requester)
            self._told = told.event.seq

    async def _bury(self, letter: _Letter) -> None:
        headers = {
            DEAD_ORIGIN: letter.origin,
            DEAD_REASON: letter.reason,
            DEAD_ATTEMPTS: str(letter.attempts),
        }
        subject = subjects.deadletter(letter.subject)
        self._owes = True
        try:
            await self._bus.publish(subject, letter.payload, id=letter.origin, metadata=headers)
        except (StreamFull, MessageTooLarge) as error:
            # The task has failed and says why; letters of others must not wait for this one.
            log.warning("a task that was given up has no dead letter: %s", error)

    async def _tell_requester(
        self, event: TaskEventRow, task: TaskRow, requester: Agent | None
    ) -> None:
        state = TaskState(event.state)
        ends = state.terminal or state.interrupted
        if not _hears(requester):
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
        if not state.terminal and not self._said.take(task.worker, self._clock(), len(payload)):
            log.warning(
                "worker %s says too much; %s does not hear of every change",
                task.worker,
                task.requester,
            )
            return
        self._owes = True
        try:
            await self._bus.publish(subject, payload)
        except StreamFull as error:
            # Updates to others must not wait for room. The requester can still read the task.
            log.warning("%s was not told of task %s: %s", task.requester, task.id, error)

    async def _tell_people(self, task: TaskHead) -> None:
        if not self._alerts.take(task.worker, self._clock()):
            log.warning("worker %s asks too often; no alert about task %s", task.worker, task.id)
            return
        short = task.id[:SHORT_ID]
        asks = "asks to be let in for" if task.state == TaskState.AUTH_REQUIRED else "asks about"
        text = (
            f"{asks} task {short}: {one_line(task.said, MAX_DETAIL)}; "
            f"postroom task answer {short} TEXT"
        )
        await self._alert(Alert(QUESTION, text, task.worker, _question(task)))

    async def _report(self, behind: Sequence[tuple[TaskHead, State]]) -> None:
        """Append the receipts of requests: seen when the task was taken (delivered, by an agent that reads its inbox
        itself), answered when it has ended.
        """
        if len(behind) == 1:
            await self._receipt(*behind[0])
            return
        for at in range(0, len(behind), TOGETHER):
            some = behind[at : at + TOGETHER]
            await asyncio.gather(*(self._receipt(task, state) for task, state in some))

    async def _receipt(self, task: TaskHead, state: State) -> None:
        receipt = Receipt(task.request, task.worker, state, self._clock())
        subject = subjects.receipts(task.requester, self._bus.uid)
        await self._bus.publish(subject, receipt.encode())


def find(store: Store, changes: Sequence[Change]) -> list[Follows]:
    """What follows from the changes of one commit, one entry for each that something follows from."""
    of_tasks = [change for change in changes if change.kind == "task"]
    found = [
        Follows(hopeless=True)
        for change in changes
        if change.kind == "receipt" and change.state == State.DEAD.value
    ]
    if not of_tasks:
        return found
    now = {change.id: change.row for change in of_tasks}
    known = store.agents.agents_by_uid(
        {uid for change in of_tasks for uid in (change.row.requester, change.row.worker)}
    )
    for change in of_tasks:
        row, worker = now[change.id], known.get(change.row.worker)
        if change.event is not None:
            found.append(_of_record(store, change.event, row, known.get(row.requester), worker))
        elif not row.seq:
            request = store.messages.message_at(row.requested_seq)
            each = _of_request(store, row, request, worker)
            if each.dead is None and not each.misdirected:
                each = Follows(row, waits=_kept_waiting(store, worker))
            found.append(each)
    return found


def _of_request(
    store: Store, row: TaskRow, request: MessageRow | None, worker: Agent | None
) -> Follows:
    """Whether a worker can ever take a task that nobody has taken."""
    if request is not None and request.state == State.DEAD.value:
        return Follows(row, dead=request.reason)
    # Where the request has a row, its own end says that the recipient is gone.
    nobody = request is None and (worker is None or worker.retired)
    person = worker is not None and worker.kind == "human"
    return Follows(row, misdirected=nobody or person or bool(_refusal(store, row, worker)))


def _refusal(store: Store, task: TaskHead, agent: Agent | None) -> str:
    """Why an agent that has no sidecar to say so does not take a task, "" if it does: by the card that it was given."""
    if not task.skill or agent is None or agent.kind in ("worker", "human"):
        return ""
    card = store.cards.all_cards().get(agent.uid)
    return not_offered(json.loads(card), task.skill) if card else ""


def _kept_waiting(store: Store, worker: Agent | None) -> bool:
    """Whether messages of the worker delay its requests."""
    there = worker is not None and worker.kind == "worker" and not worker.retired
    return there and store.pending.keeps_waiting(worker.uid)


def _of_record(
    store: Store,
    event: TaskEventRow,
    row: TaskRow,
    requester: Agent | None,
    worker: Agent | None,
) -> Follows:
    last = event.seq == row.seq
    asks = last and TaskState(row.state).interrupted
    if asks and not row.snapshot and _hears(requester):
        row = store.tasks.task_by_id(row.id) or row
    return Follows(
        row,
        told=_Told(event, row, requester, _letter(store, event, row)),
        asks=asks and not store.alerts.is_raised(QUESTION, _question(row)),
        # Taken, or ended: receipts show no state between these.
        receipt=_missing(store, row, worker) if last and (row.final or not event.event) else None,
    )


def _letter(store: Store, event: TaskEventRow, task: TaskRow) -> _Letter | None:
    """The dead letter of a task that its worker has given up in this change; None for any other change."""
    if event.state != TaskState.FAILED or GAVE_UP not in event.event:
        return None
    lost = lost_in(json.loads(event.event))
    request = store.messages.message_at(task.requested_seq) if lost else None
    if request is None:
        return None
    envelope = Envelope(
        id=request.id,
        to=request.recipient,
        message=json.loads(request.message),
        sent_at=request.sent_at,
        expects_reply=True,
        request=TaskRequest(task.skill, task.stream),
    )
    return _Letter(
        subjects.inbox(task.worker, task.requester),
        envelope.encode(),
        task_origin(event.seq, task.worker),
        one_line(f"task given up: {task.said}", MAX_DETAIL),
        lost,
    )


def _missing(store: Store, row: TaskHead, worker: Agent | None) -> State | None:
    """The state of the task that its request does not show yet."""
    request = store.messages.message_at(row.requested_seq)
    return None if request is None else _not_shown(row, request, worker)


def _not_shown(task: TaskHead, request: MessageRow, worker: Agent | None) -> State | None:
    if request.final:
        return None
    if task.final:
        return State.ANSWERED
    if worker is not None and worker.kind == "external":
        # A report proves that it has the request, not that it would know of it after a crash: until it says that it has
        # seen it, its inbox gives it again.
        return State.DELIVERED if request.state == State.ACCEPTED.value else None
    unseen = request.state in (State.ACCEPTED.value, State.DELIVERED.value)
    return State.SEEN if unseen else None


def _behind(store: Store, seqs: Collection[int]) -> list[tuple[TaskHead, State]]:
    """The tasks requested at `seqs` of INBOX whose request does not show yet that they were taken or have ended, each
    with the missing state.
    """
    taken = {head.requested_seq: head for head in store.tasks.heads_by_requests(seqs) if head.seq}
    workers = store.agents.agents_by_uid({head.worker for head in taken.values()})
    found = []
    for row in store.messages.messages_at(taken):
        task = taken[row.seq]
        missing = _not_shown(task, row, workers.get(task.worker))
        if missing is not None:
            found.append((task, missing))
    return found


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
    found = [
        _of_request(store, row, requests.get(row.requested_seq), workers.get(row.worker))
        for row in rows
    ]
    dead = [
        (row, each.dead) for row, each in zip(rows, found, strict=True) if each.dead is not None
    ]
    return dead, [row for row, each in zip(rows, found, strict=True) if each.misdirected]


def _retired_with_tasks(store: Store) -> list[Agent]:
    """The retired agents with open tasks."""
    known = store.agents.agents_by_uid(store.tasks.counts())
    return [agent for agent in known.values() if agent.retired]


def _untold(store: Store, after: int) -> list[_Told]:
    """The first changes past `after`."""
    events = store.tasks.events_past(after, AT_ONCE)
    rows = {row.id: row for row in store.tasks.tasks_by_ids({e.task for e in events})}
    known = store.agents.agents_by_uid({row.requester for row in rows.values()})
    return [
        _Told(event, row, known.get(row.requester), _letter(store, event, row))
        for event in events
        if (row := rows.get(event.task)) is not None
    ]


def _asking(store: Store) -> list[TaskHead]:
    """The tasks whose question raised no alert."""
    return [
        task
        for task in store.tasks.interrupted()
        if not store.alerts.is_raised(QUESTION, _question(task))
    ]


def _hears(requester: Agent | None) -> bool:
    """Whether the requester is told of changes; all but workers read them over the API."""
    return requester is not None and not requester.retired and requester.kind == "worker"


def _question(task: TaskHead) -> str:
    """What the alert about the task's question is about."""
    return f"{task.id}/{task.seq}"


def _update(event: TaskEventRow, task: TaskRow, *, whole: bool) -> dict:
    if task.seq == event.seq and (whole or not event.event):
        return {"task": json.loads(task.snapshot)}
    if event.event:
        return json.loads(event.event)
    bare = {"id": task.id, "contextId": task.context_id}
    return status_update(bare, TaskState(event.state), event.at)


def _shown(agent: Agent | None, uid: str) -> str:
    return f"@{agent.nick}" if agent is not None else uid
