"""The tasks of one agent, for a principal: what A2A's operations need of the control plane.

`JsonOperations(AgentTasks(...))` is the whole A2A server of that agent for that principal, whoever calls it. What
workers ask by `ctl` is made of the same parts. Who may not know of a task is told that there is none. Pages of
ListTasks (A2A 1.0, section 3.1.4) have those first that changed last.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, TypeVar

from postroom.errors import Conflict, InvalidInput, NotFound
from postroom.projection.changes import Change, Changes, Topic, of_task
from postroom.projection.tail import Quiet, TailPage, TailSource, tail
from postroom.protocol.content import Content
from postroom.protocol.limits import LONGEST_WAIT, MAX_PAGE_BYTES
from postroom.protocol.principal import Principal
from postroom.protocol.tasks import key_of, skill_in
from postroom.store.agents import Agent
from postroom.store.database import Database, Store
from postroom.store.ports import TaskEventRow, TaskHead, TaskRow
from postroom.tasks.service import OrgTaskService
from postroom.tasks.unfolded import UNREADABLE, not_shown
from postroom.tasks.views import Known
from postroom_a2a.ecma_json import dumps
from postroom_a2a.params import shortened
from postroom_a2a.service import Submitted, TaskPage, TaskQuery, TaskService, TaskVersion
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import Event, Message, Task, status_update

R = TypeVar("R")

CANCEL_WAIT = 20.0
"""Seconds that a cancel waits for the end of its task, which it reaches in any case."""

PAGE = 100
"""Changes that one read brings."""

Position = tuple[float, str]
"""The place of a task in a list: the instant of its last change, and its id."""


@dataclass(frozen=True, slots=True)
class StoredChange:
    """A stored change of a task; a `postroom_a2a.service.TaskChange`."""

    seq: int
    state: TaskState
    event: Event | None = field(hash=False)

    @property
    def sequence(self) -> int:
        """Its sequence in TASKS."""
        return self.seq

    @property
    def settled(self) -> bool:
        """Whether the task has ended or asks."""
        return self.state.terminal or self.state.interrupted


class AgentTasks(TaskService):
    """The tasks of the agent `worker`, for the principal `me`; implements `postroom_a2a.service.TaskService`.

    Args:
        door: the `protocol.tasks.Door` by which `me` calls, "" for none that is known.

    The requester that `TaskService` names is not looked at: `me` is who asks.
    """

    def __init__(
        self,
        office: OrgTaskService,
        database: Database,
        changes: Changes,
        worker: Agent,
        me: Principal,
        door: str = "",
    ) -> None:
        self._office = office
        self._database = database
        self._changes = changes
        self._worker = worker
        self._me = me
        self._door = door

    async def submit(
        self,
        message: Message,
        _requester: str,
        *,
        follow: bool,  # noqa: ARG002
    ) -> Submitted:
        view = await self._office.delegate(
            self._me.uid,
            self._worker,
            Content.whole(message),
            skill=skill_in(message),
            key=key_of(message["messageId"]),
            as_message=message["messageId"],
            door=self._door,
        )
        try:
            await self._office.row(view.id)  # or nobody could follow it, or have it pushed
        except UNREADABLE as error:
            raise not_shown(view.id) from error
        return Submitted(view.id, view.again)

    async def get(self, task: str, _requester: str) -> TaskVersion:
        row = await self._row(task)
        return TaskVersion(json.loads(row.snapshot), row.seq)

    async def wait(self, task: str, _requester: str, seconds: float) -> TaskVersion | None:
        row = await self._office.settled(task, min(seconds, LONGEST_WAIT))
        return TaskVersion(json.loads(row.snapshot), row.seq) if row.snapshot else None

    async def list(self, query: TaskQuery, _requester: str) -> TaskPage:
        worker = self._worker.uid
        requester = "" if self._me.uid == worker else self._me.only
        return await self._database.read(
            lambda store: page_of(store, query, worker=worker, requester=requester)
        )

    async def cancel(self, task: str, _requester: str) -> Task:
        self._check_asked(await self._row(task))
        await self._office.cancel(task, self._me.uid, timeout=CANCEL_WAIT)
        return json.loads((await self._row(task)).snapshot)

    async def answer(self, task: str, message: Message, _requester: str) -> bool:
        self._check_asked(await self._row(task))
        said, named = Content.whole(message), message["messageId"]
        return (await self._office.answer(task, self._me.uid, said, named)).again

    async def follow(
        self, task: str, _requester: str, after: int
    ) -> AsyncGenerator[StoredChange, None]:
        source = _StoredChanges(self._changes, self._office, task)
        async with aclosing(tail(source, after)) as found:
            async for change in found:
                if isinstance(change, StoredChange):
                    yield change

    async def _row(self, task: str) -> TaskRow:
        row = await self._office.row(task)
        if row is None or row.worker != self._worker.uid or not sees(self._me, row):
            raise NotFound("there is no such task")
        return row

    def _check_asked(self, row: TaskRow) -> None:
        """Raise `Conflict` where another asked for the task, so that only they may end or answer it."""
        if not self._me.sees(row.requester):
            raise Conflict("another agent asked for it")


class TaskChanges(TailSource[R, int]):
    """The changes of a task, until its end, each as `shown` makes it; what is known of the task comes with them."""

    known: Known

    def __init__(self, changes: Changes, tasks: OrgTaskService, task: str, *topics: Topic) -> None:
        super().__init__(changes, of_task(task), *topics)
        self._tasks = tasks
        self._task = task

    def shown(self, change: TaskEventRow, task: TaskRow) -> R:
        """A change of `task`, which is as that change or a later one has made it."""
        raise NotImplementedError

    async def read(self, after: int) -> TailPage[R, int]:
        self.known, found = await self._tasks.course(self._task, after, PAGE, self.shown)
        return self._page(found, after)

    async def heard(self, change: Change | Quiet, after: int) -> TailPage[R, int] | None:
        if not isinstance(change, Change) or change.seq <= after:
            return TailPage((), after)
        if change.event is None:
            return None
        self.known = self.known.then(change)
        return self._page([(change.seq, self.shown(change.event, self.known.row))], after)

    def _page(self, found: Sequence[tuple[int, R]], after: int) -> TailPage[R, int]:
        task, cursor = self.known.row, found[-1][0] if found else after
        ended = task.final and task.seq <= cursor
        return TailPage([one for _, one in found], cursor, len(found) >= PAGE, ended)


class _StoredChanges(TaskChanges[StoredChange]):
    def shown(self, change: TaskEventRow, task: TaskRow) -> StoredChange:
        return stored_change(change, task)


def sees(me: Principal, row: TaskHead) -> bool:
    """Whether a principal may know of a task."""
    return me.sees(row.worker, row.requester)


def stored_change(change: TaskEventRow, task: TaskRow) -> StoredChange:
    """A stored change of `task`, which is as that change or a later one has made it."""
    return StoredChange(change.seq, TaskState(change.state), stream_response(change, task))


def stream_response(change: TaskEventRow, task: TaskRow) -> Event | None:
    """A change as A2A StreamResponse; None for the first record, which only creates the task."""
    if change.event:
        return json.loads(change.event)
    if change.state == TaskState.SUBMITTED:
        return None
    bare = {"id": task.id, "contextId": task.context_id}
    event = status_update(bare, TaskState(change.state), change.at)
    if change.seq == task.seq and task.snapshot:
        status = event["statusUpdate"]["status"]
        # The time is the record's: a stream that is opened when the task has gone on shows the same.
        event["statusUpdate"]["status"] = json.loads(task.snapshot)["status"] | {
            "timestamp": status["timestamp"]
        }
    return event


def page_of(store: Store, query: TaskQuery, *, worker: str = "", requester: str = "") -> TaskPage:
    """The page that `query` asks for, of the tasks of that worker and that requester, "" for any.

    Raises:
        InvalidInput: its token is not one of ours.
    """
    found, total = store.tasks.updated(
        worker=worker,
        requester=requester,
        context=query.context,
        state="" if query.state is None else query.state.value,
        since=query.since,
        past=position_in(query.page) if query.page else None,
        limit=query.limit + 1,
    )
    tasks: list[dict[str, Any]] = []
    room = MAX_PAGE_BYTES
    for _, task in found[: query.limit]:
        row = store.tasks.task_by_id(task)
        shown = listed(json.loads(row.snapshot), query) if row is not None else {}
        room -= len(dumps(shown))
        if tasks and room < 0:
            break
        tasks.append(shown)
    more = len(found) > len(tasks)
    return TaskPage(tasks, total, token_of(found[len(tasks) - 1]) if more else "")


def listed(task: dict[str, Any], query: TaskQuery) -> dict[str, Any]:
    """A task as the page of that query shows it."""
    shown = shortened(task, query.history)
    if not query.artifacts:
        shown.pop("artifacts", None)
    return shown


def token_of(position: Position) -> str:
    """The name of the page after the task in that place."""
    return base64.urlsafe_b64encode(json.dumps(position).encode()).decode()


def position_in(token: str) -> Position:
    """The place that a token names.

    Raises:
        InvalidInput: it is not one of ours.
    """
    try:
        at, task = json.loads(base64.urlsafe_b64decode(token))
        return float(at), str(task)
    except (ValueError, TypeError, OverflowError, RecursionError, binascii.Error) as error:
        raise InvalidInput("'pageToken' is not one of this server's") from error
