"""Gives the tasks in the inboxes of other people's agents to those agents, a few of each at a time."""

from __future__ import annotations

import asyncio
import time
from base64 import b64encode
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from typing import Any

from postroom.directory.presence import Callers
from postroom.observe.supervision import guarded, well
from postroom.projection.changes import TASKS, Change, Changes, Signal
from postroom.protocol.blobs import PREFIX, sha256_of
from postroom.protocol.content import Content
from postroom.protocol.ids import CONTROL_PLANE
from postroom.remote.agents import RemoteAgents
from postroom.remote.task import Desk, Ended, Patience, RemoteTask
from postroom.store.database import Database, Store
from postroom.store.ports import TaskHead, TaskRow
from postroom.tasks.reports import TaskReports
from postroom_a2a.retry import Backoff, RetryPolicy
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import ANSWER

AT_ONCE = 16
"""Tasks of one agent that are worked on at a time; those that wait for an answer do not count."""

LISTENED = 1024
"""Changes that wait for this part; beyond that it reads the tasks anew."""

IDLE = 3600.0
"""Seconds of silence after which it is looked whether there will be more."""

AGAIN = 30.0
"""The longest pause in seconds until a task is begun again that an error nobody foresaw has stopped."""

MAX_INLINE = 4 * 1024 * 1024
"""Bytes of a file that goes out with a message: another post room's blobs are not there to be read."""

CANCELED_BEFORE = 24 * 3600.0
CANCELS = 50
"""Seconds and tasks of an agent for which a start says again that they are canceled: the word may not have gone out."""

RETRY = RetryPolicy(attempts=3, base=0.2, cap=2.0)
"""Attempts of one call; a task tries for longer (`Patience.away`)."""

ReadBlob = Callable[[str, str, int], Awaitable[bytes]]
"""Returns the content of a blob (by its hash) that an agent (uid) may read, of at most so many bytes."""


class RemoteWork(Desk):
    """The tasks of all of an organisation's agents of other people; a `remote.task.Desk` for each."""

    def __init__(
        self,
        agents: RemoteAgents,
        reports: TaskReports,
        database: Database,
        changes: Changes,
        callers: Callers,
        read_blob: ReadBlob,
        *,
        patience: Patience | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.patience = patience or Patience()
        self._agents = agents
        self._reports = reports
        self._database = database
        self._changes = changes
        self._callers = callers
        self._read_blob = read_blob
        self._clock = clock
        self._lanes: dict[str, _Lane] = {}
        self._there: dict[str, ExitStack] = {}

    def followed(self, worker: str, task: str) -> str:
        """How a task of that agent is followed, "" for one that is not."""
        lane = self._lanes.get(worker)
        found = lane.running.get(task) if lane is not None else None
        return found.how if found is not None else ""

    async def run(self) -> None:
        """Work until cancelled, or until the changes are closed."""
        try:
            async with asyncio.TaskGroup() as group:
                with self._changes.listen(TASKS, limit=LISTENED, only=self._ours) as listener:
                    await self._look(group, first=True)
                    while True:
                        well()
                        change = await listener.next(IDLE)
                        if change is Signal.CLOSED:
                            break
                        if isinstance(change, Change):
                            self._heard(change, group)
                        elif change is Signal.GAP:
                            await self._look(group)
                for lane in self._lanes.values():
                    lane.close()
        finally:
            for stack in self._there.values():
                stack.close()
            self._there.clear()

    def _ours(self, change: Change) -> bool:
        return change.recipient in self._agents.uids

    def _heard(self, change: Change, group: asyncio.TaskGroup) -> None:
        row, lane = change.row, self._lane(change.recipient)
        running = lane.running.get(change.id)
        if running is None:
            if not row.final:
                lane.add(change.id)
        elif row.final or (change.event is not None and ANSWER in change.event.event):
            running.wake()
        self._fill(lane, group)

    async def _look(self, group: asyncio.TaskGroup, *, first: bool = False) -> None:
        """Find what is to be done, also after a crash or a gap."""
        for uid in self._agents.uids:
            self.reached(uid, there=True)
            lane = self._lane(uid)
            heads, ended = await self._database.read(lambda store, uid=uid: _open(store, uid))
            for running in lane.running.values():
                running.wake()
            if first:
                lane.resumed.update(head.id for head in heads)
            for head in heads:
                if head.id not in lane.running:
                    lane.add(head.id)
            if first:
                self._cancel_again(uid, ended, group)
            self._fill(lane, group)

    def _cancel_again(self, uid: str, ended: list[TaskHead], group: asyncio.TaskGroup) -> None:
        since = self._clock() - CANCELED_BEFORE
        for head in ended:
            if head.runner == CONTROL_PLANE and head.updated_at > since:
                ended_here = self._task(uid, head.id, resumed=True)
                group.create_task(self._surely(ended_here.cancel_there))

    def _lane(self, uid: str) -> _Lane:
        return self._lanes.setdefault(uid, _Lane(uid))

    def _task(self, uid: str, task: str, *, resumed: bool) -> RemoteTask:
        remote = self._agents.of(uid)
        client = self._agents.client(remote, RETRY)
        return RemoteTask(self, remote, client, task, resumed=resumed, clock=self._clock)

    def _fill(self, lane: _Lane, group: asyncio.TaskGroup) -> None:
        if lane.uid not in self._agents.uids:
            lane.forget()  # it was removed, which ends its tasks
        while lane.waiting and lane.busy < AT_ONCE:
            task = lane.next()
            resumed = task in lane.resumed
            lane.resumed.discard(task)
            lane.running[task] = self._task(lane.uid, task, resumed=resumed)
            lane.work[task] = group.create_task(self._do(lane, task, group))

    async def _do(self, lane: _Lane, task: str, group: asyncio.TaskGroup) -> None:
        backoff = Backoff(self.patience.retry, AGAIN)
        try:
            while not await _ended(lane.running[task].run()):
                await asyncio.sleep(backoff.next())
                if lane.uid not in self._agents.uids:
                    return
                lane.running[task] = self._task(lane.uid, task, resumed=True)
        finally:
            lane.running.pop(task, None)
            lane.work.pop(task, None)
        self._fill(lane, group)

    async def _surely(self, work: Callable[[], Awaitable[None]]) -> None:
        backoff = Backoff(self.patience.retry, AGAIN)
        while True:
            if await _ended(work()):
                return
            await asyncio.sleep(backoff.next())

    # ── as a desk ────────────────────────────────────────────────────────────────────────────────────────

    async def row(self, task: str) -> TaskRow | None:
        return await self._database.point(lambda store: store.tasks.task_by_id(task))

    async def status(
        self,
        agent: str,
        task: str,
        state: TaskState,
        said: Content | None,
        metadata: dict[str, Any],
    ) -> None:
        await self._reports.status(agent, task, state, said, metadata=metadata)

    async def artifact(
        self, agent: str, task: str, artifact: dict[str, Any], append: bool, last: bool
    ) -> None:
        await self._reports.artifact(agent, task, artifact, append=append, last=last)

    async def outgoing(self, agent: str, part: dict[str, Any]) -> dict[str, Any]:
        url = part.get("url")
        if not (isinstance(url, str) and url.startswith(PREFIX)):
            return part
        content = await self._read_blob(sha256_of(url), agent, MAX_INLINE)
        rest = {name: value for name, value in part.items() if name != "url"}
        return {**rest, "raw": b64encode(content).decode()}

    def reached(self, agent: str, *, there: bool) -> None:
        """As `Desk.reached`: such an agent is there as long as it is not known to be away."""
        if there and agent not in self._there:
            self._there[agent] = stack = ExitStack()
            stack.enter_context(self._callers.waiting(agent))
            self._callers.changed()
        elif not there and (left := self._there.pop(agent, None)) is not None:
            left.close()


class _Lane:
    """The tasks of one agent: those that are worked on, and those that wait, in their order."""

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.running: dict[str, RemoteTask] = {}
        self.work: dict[str, asyncio.Task[None]] = {}
        self.waiting: deque[str] = deque()
        self.resumed: set[str] = set()
        self._queued: set[str] = set()

    @property
    def busy(self) -> int:
        """Tasks that are worked on."""
        return sum(not each.asks for each in self.running.values())

    def add(self, task: str) -> None:
        """Have it wait."""
        if task not in self._queued:
            self._queued.add(task)
            self.waiting.append(task)

    def next(self) -> str:
        """The one that waited longest."""
        task = self.waiting.popleft()
        self._queued.discard(task)
        return task

    def forget(self) -> None:
        """Have nothing wait."""
        self.waiting.clear()
        self._queued.clear()

    def close(self) -> None:
        """End the work; what is open goes on with the next process."""
        self.forget()
        for each in self.work.values():
            each.cancel()


async def _ended(work: Awaitable[None]) -> bool:
    """Whether the work on a task came to its end, so that it is not begun again."""
    with guarded("a task of somebody else's agent is begun again") as guard, suppress(Ended):
        await work
    return guard.error is None


def _open(store: Store, uid: str) -> tuple[list[TaskHead], list[TaskHead]]:
    """An agent's open tasks in the order of their requests, and those that were canceled last."""
    taken = store.tasks.open_tasks(uid)
    untaken = store.tasks.open_tasks(uid, taken=False)
    canceled = store.tasks.list_tasks(
        worker=uid, states=[TaskState.CANCELED.value], open_only=False, limit=CANCELS
    )
    return sorted([*taken, *untaken], key=lambda head: head.requested_seq), canceled
