"""Keeps both sides of a workspace current: the work of workers comes back, and persons' branches are seen inside."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from postroom.errors import DatabaseAway, NotFound, PostroomError, leaves
from postroom.observe import get_logger
from postroom.observe.supervision import guarded, well
from postroom.projection.changes import TASKS, Change, Changes, Signal
from postroom.store.agents import Agent
from postroom.store.workers import WorkerRecord
from postroom.workers.lifecycle import Workers
from postroom.workers.workspaces import tracking
from postroom.workers.workspaces.records import Held
from postroom_a2a.task_state import INTERRUPTED, TERMINAL, TaskState

log = get_logger(__name__)

IDLE = 3600.0
LIMIT = 256
"""Changes that wait; beyond that all workers' work is brought back."""

AT_ONCE = 4
"""Workers whose work is brought back at the same time: each takes a processor, and memory for git."""

EVERY = 2.0
"""Seconds between two looks at a repository."""

RESTING = frozenset(state.value for state in TERMINAL | INTERRUPTED)


class WorkFollower:
    """Brings back the work of a worker whenever a task of it ends or waits for an answer; several side by side."""

    def __init__(self, workers: Workers, changes: Changes) -> None:
        self._workers = workers
        self._changes = changes
        self._places = asyncio.Semaphore(AT_ONCE)
        self._missed = False
        self._busy: set[str] = set()
        self._again: set[str] = set()

    async def run(self) -> None:
        """Follow until it is cancelled; what a fault kept from it comes first."""
        lost = self._missed or bool(self._busy)
        self._busy.clear()
        self._again.clear()
        try:
            await self._follow(lost=lost)
        except ExceptionGroup as group:
            raise next(leaves(group)) from group

    async def _follow(self, *, lost: bool) -> None:
        with self._changes.listen(TASKS, limit=LIMIT, only=self._counts) as listener:
            async with asyncio.TaskGroup() as group:
                if lost:
                    await self._begin("", group)
                while (change := await listener.next(IDLE)) is not Signal.CLOSED:
                    if change is Signal.GAP:
                        await self._begin("", group)
                    elif isinstance(change, Change):
                        await self._begin(change.recipient, group)

    def _counts(self, change: Change) -> bool:
        rests = change.kind == "task" and change.state in RESTING
        return rests and self._workers.work.held(change.recipient) is not None

    async def _begin(self, uid: str, group: asyncio.TaskGroup) -> None:
        """Begin to bring back the work of one worker, or of all for ""."""
        self._missed = True
        for agent, record in await self._workers.records():
            if uid not in ("", agent.uid):
                continue
            if agent.uid in self._busy:
                self._again.add(agent.uid)
            else:
                self._busy.add(agent.uid)
                group.create_task(self._bring(agent, record), name=f"work of {agent.uid}")
        self._missed = False
        well()

    async def _bring(self, agent: Agent, record: WorkerRecord) -> None:
        more = True
        while more:
            async with self._places:
                failure = f"the work of {agent.uid} was not brought back"
                with guarded(failure, fatal=(DatabaseAway,)):
                    await self._workers.work.after(agent, record)
            more = agent.uid in self._again
            self._again.discard(agent.uid)
        self._busy.discard(agent.uid)


async def brought_back(workers: Workers, uid: str) -> str:
    """Bring back the work of a worker; returns the branch that has it, "" for none."""
    with suppress(NotFound):  # of one that was removed it was brought back then
        await workers.work.after(*await workers.record(uid))
    held = workers.work.held(uid)
    return held.branch if held is not None and held.placed else ""


class BranchFollower:
    """Has each worker see the branches of its person as they are, `EVERY` seconds and when it begins with a task."""

    def __init__(self, workers: Workers, changes: Changes) -> None:
        self._workers = workers
        self._changes = changes
        self._seen: dict[str, tuple[object, ...]] = {}
        self._at: dict[str, float] = {}

    async def run(self) -> None:
        """Follow until it is cancelled."""
        with self._changes.listen(TASKS, limit=1, only=_begins) as listener:
            change: Change | Signal = Signal.QUIET
            while change is not Signal.CLOSED:
                tracked = await asyncio.to_thread(self._workers.work.spaces.tracked)
                for top, helds in tracked.items():
                    await self._look(top, helds)
                well()
                change = await listener.next(EVERY)

    async def _look(self, top: str, helds: Mapping[str, Held]) -> None:
        spaces, uids = self._workers.work.spaces, tuple(helds)
        try:
            workers = any(map(tracking.of_workers, helds.values()))
            now = (*await asyncio.to_thread(tracking.marks, Path(top), workers=workers), *uids)
            if now == self._seen.get(top) or time.monotonic() < self._at.get(top, 0.0):
                return
            before = [spaces.standing.get(uid) for uid in uids]
            for uid in uids:
                await spaces.track(uid)
        except PostroomError as error:
            log.info("the branches of %s are not known: %s", top, error)
            return
        self._seen[top], self._at[top] = now, time.monotonic() + EVERY
        if before != [spaces.standing.get(uid) for uid in uids]:
            self._changes.publish([Change("worker", 0)])


def _begins(change: Change) -> bool:
    return change.kind == "task" and change.state == TaskState.WORKING.value
