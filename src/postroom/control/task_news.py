"""What a session in somebody's terminal is told of its tasks, as mail: so its hooks carry it, and it is woken.

Who gave the task is told of its end and of what its agent asks, and who does it of the answer and of a cancel. Workers
hear of these on their priority lane (`tasks.clerk`); everybody else reads the task.

The change of the task is the key of the message, so it is one message however often it is sent. After a start, a fault
or a gap it is sent of each task as it stands then: what was overtaken needs nobody's attention.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from postroom.directory.sessions import Sessions
from postroom.errors import CallerError, StreamFull
from postroom.mail.office import PostOffice
from postroom.observe import get_logger
from postroom.observe.supervision import well
from postroom.projection.changes import TASKS, Change, Changes, Signal
from postroom.projection.due import LONGEST_SLEEP
from postroom.protocol.content import ABOUT, Content
from postroom.protocol.ids import CONTROL_PLANE, is_uid
from postroom.protocol.limits import SHORT_ID
from postroom.protocol.sessions import KEPT_FOR
from postroom.protocol.tasks import ANSWERED_BY
from postroom.store.database import Database, Store
from postroom.store.ports import TaskEventRow, TaskRow
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import Task, answer_in, artifacts_of, status_text

log = get_logger(__name__)

LIMIT = 256
"""Changes that wait; beyond that all tasks of sessions are looked at."""

LATEST = 200
"""Tasks of one session that are looked at."""

BRINGS = 10.0
"""Seconds that a message waits for the work of a worker to be on its branch."""

MOST = 16_000
"""Characters of a message; the tools show the rest."""


@dataclass(frozen=True, slots=True)
class _News:
    """A message to be sent; `worker` is whose work is to be on its branch before, "" for nobody's."""

    sender: str
    to: str
    subject: str
    lines: tuple[str, ...]
    worker: str = ""


class TaskNews:
    """Tells the sessions of an organisation.

    Args:
        brought: brings back the work of a worker; returns the branch that has it, "" for none.
    """

    def __init__(
        self,
        database: Database,
        changes: Changes,
        office: PostOffice,
        sessions: Sessions,
        brought: Callable[[str], Awaitable[str]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._changes = changes
        self._office = office
        self._sessions = sessions
        self._brought = brought
        self._clock = clock

    async def run(self) -> None:
        """Tell them until cancelled, or until the changes are closed."""
        with self._changes.listen(TASKS, limit=LIMIT, only=self._concerns) as listener:
            change: Change | Signal = Signal.GAP
            while change is not Signal.CLOSED:
                if change is Signal.GAP:
                    await self._catch_up()
                elif isinstance(change, Change):
                    await self._tell(change.id)
                well()
                change = await listener.next(LONGEST_SLEEP)

    def _concerns(self, change: Change) -> bool:
        return change.event is not None and (
            self._is_session(change.sender) or self._is_session(change.recipient)
        )

    def _is_session(self, uid: str) -> bool:
        return self._sessions.of(uid) is not None

    async def _catch_up(self) -> None:
        since = self._clock() - KEPT_FOR  # no session lives longer without being heard
        for uid in self._sessions.uids:
            for task in await self._database.read(partial(_changed, uid=uid, since=since)):
                await self._tell(task)

    async def _tell(self, task: str) -> None:
        found = await self._database.read(partial(_newest, task=task))
        if found is None:
            return
        row, event = found
        for news in _of(row, event):
            if self._is_session(news.to):
                await self._send(row, news)

    async def _send(self, row: TaskRow, news: _News) -> None:
        lines = list(news.lines)
        if news.worker and (branch := await self._branch(news.worker)):
            lines.insert(1, f"Its work is on the branch {branch}.")
        text = "\n".join(filter(None, lines))
        if len(text) > MOST:
            text = f"{text[:MOST]}… (tool a2a_get_task shows more)"
        said = Content(
            ({"text": text},), news.subject, row.context_id, {"metadata": {ABOUT: row.id}}
        )
        try:
            await self._office.send(
                news.sender,
                news.to,
                said,
                expects_reply=False,
                key=f"task news\0{row.id}\0{row.seq}",
                folded=False,
                removed=True,
            )
        except (StreamFull, CallerError) as error:  # it can still read the task
            log.warning("%s was not told of task %s: %s", news.to, row.id, error)

    async def _branch(self, worker: str) -> str:
        with suppress(TimeoutError):
            async with asyncio.timeout(BRINGS):
                return await self._brought(worker)
        return ""


def _changed(store: Store, *, uid: str, since: float) -> list[str]:
    """The tasks of an agent that have changed, each once."""
    given, _ = store.tasks.updated(requester=uid, since=since, limit=LATEST)
    taken, _ = store.tasks.updated(worker=uid, since=since, limit=LATEST)
    return list(dict.fromkeys(task for _, task in (*given, *taken)))


def _newest(store: Store, *, task: str) -> tuple[TaskRow, TaskEventRow] | None:
    """A task with its last change; None for one that nobody has taken."""
    row = store.tasks.task_by_id(task)
    found = store.tasks.events_at([row.seq]) if row is not None and row.seq else []
    return (row, found[0]) if row is not None and found else None


def _of(row: TaskRow, event: TaskEventRow) -> list[_News]:
    """What there is to say of a task as it stands, to its requester and to its worker."""
    state, short = TaskState(row.state), row.id[:SHORT_ID]
    task = json.loads(row.snapshot)
    subject = f"task {short}: {state.value}"
    found = []
    if state.terminal or state.interrupted:
        lines = (f"Task {short} is {state.value}.", status_text(task), *_results(task))
        found.append(_News(row.worker, row.requester, subject, lines, row.worker))
    if state is TaskState.CANCELED and event.runner == CONTROL_PLANE:
        lines = (f"Task {short} is {state.value}: do no more for it.", status_text(task))
        found.append(_News(row.requester, row.worker, subject, lines))
    if event.event and (answer := answer_in(json.loads(event.event))):
        lines = (f"The answer to what you asked about task {short}:", answer)
        found.append(_News(_author(row, task), row.worker, f"task {short}: answer", lines))
    return found


def _results(task: Task) -> list[str]:
    return [
        f"Result {artifact['name'] or artifact['id']}:\n{artifact['text']}"
        for artifact in artifacts_of(task)
    ]


def _author(row: TaskRow, task: Task) -> str:
    """The uid of who gave the last answer."""
    history = task.get("history") or [{}]
    named = (history[-1].get("metadata") or {}).get(ANSWERED_BY)
    return named if isinstance(named, str) and is_uid(named) else row.requester
