"""What people are shown of each worker: state from presence and from processes that we have reaped, never guessed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from postroom.bus.port import BusAdmin
from postroom.control.presence import FRESH, PresenceBoard
from postroom.control.run import Run
from postroom.control.workers import Workers
from postroom.errors import BusDisconnected, NotFound, PeerError
from postroom.gateway.conduct import CUT_OFF, VIOLATION
from postroom.mail.alerts import Alarm, AlertOffice
from postroom.protocol.presence import Presence, WorkerState
from postroom.protocol.text import one_line
from postroom.store.agents import Agent
from postroom.store.tasks import TaskHead
from postroom.store.workers import REVOKED, STOPPED, WorkerRecord
from postroom.tasks.office import TaskOffice

START_UP = 20.0
"""Seconds that a worker has for its first word before its state is unknown and no longer `starting`."""

COUNTING = 2.0
"""Seconds for asking the bus what waits in all inboxes: while it is away everything else is shown without."""

MAX_TEXT = 200
"""Characters that are shown of what a worker was asked for."""


@dataclass(frozen=True, slots=True)
class Load:
    """What the workers are at, how many open tasks each has, and which rule it broke last; by uid."""

    current: Mapping[str, TaskHead]
    counts: Mapping[str, int]
    broken: Mapping[str, str]


class Roster:
    """Views of workers.

    Args:
        workers: their records and runs.
        presence: what they said of themselves.
        admin: how much waits in their inboxes.
        tasks: what they are at.
        alerts: which rules they broke.
    """

    def __init__(
        self,
        workers: Workers,
        presence: PresenceBoard,
        admin: BusAdmin,
        tasks: TaskOffice,
        alerts: AlertOffice,
    ) -> None:
        self._workers = workers
        self._presence = presence
        self._admin = admin
        self._tasks = tasks
        self._alerts = alerts

    async def all(self) -> list[dict[str, Any]]:
        """Every worker, oldest first; shape in docs/api.md, Worker."""
        load = await self._load()
        end = asyncio.get_running_loop().time() + COUNTING
        return [
            await self._view(agent, record, load, end)
            for agent, record in await self._workers.records()
        ]

    async def one(self, ref: str) -> dict[str, Any]:
        """One worker.

        Raises:
            NotFound: there is no such worker.
        """
        end = asyncio.get_running_loop().time() + COUNTING
        return await self._view(*await self._workers.record(ref), await self._load(), end)

    async def _load(self) -> Load:
        broke = await self._alerts.standing(kinds=(CUT_OFF, VIOLATION))
        broken = {alarm.row.who: _broken(alarm) for alarm in reversed(broke)}  # the newest counts
        return Load(await self._tasks.current(), await self._tasks.open_counts(), broken)

    async def _view(
        self, agent: Agent, record: WorkerRecord, load: Load, end: float
    ) -> dict[str, Any]:
        run = self._workers.run_of(agent.uid)
        said = self._presence.of(agent.uid)
        state, detail = state_of(record.desired, run, said, time.time(), record.exceeded)
        running = run is not None and run.running
        level = run.handle.level.value if run is not None and running else record.level
        return {
            "uid": agent.uid,
            "nick": agent.nick,
            "project": record.project,
            "desired": record.desired,
            "state": state.value,
            "detail": "; ".join(filter(None, (detail, load.broken.get(agent.uid)))),
            "sandbox": {"provider": record.sandbox, "level": level},
            "unenforced": list(run.unenforced) if run is not None and running else [],
            "last_seen": said.at if said else None,
            "unread": await self._unread(agent.uid, end),
            "task": _at_work(load.current.get(agent.uid)),
            "open_tasks": load.counts.get(agent.uid, 0),
            "pid": run.handle.pid if run is not None and running else None,
            "created_at": record.created_at,
        }

    async def _unread(self, uid: str, end: float) -> int | None:
        try:
            async with asyncio.timeout_at(end):
                return sum(await self._admin.pending("INBOX", uid))
        except (NotFound, BusDisconnected, PeerError, TimeoutError):
            return None


def _broken(alarm: Alarm) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(alarm.row.at))
    return f"{alarm.row.text} ({when})"


def _at_work(task: TaskHead | None) -> dict[str, Any] | None:
    if task is None:
        return None
    text = one_line(task.text, MAX_TEXT)
    return {"id": task.id, "state": task.state, "text": text, "attempt": task.attempt}


def state_of(
    desired: str, run: Run | None, said: Presence | None, now: float, exceeded: str = ""
) -> tuple[WorkerState, str]:
    """State and detail of a worker.

    Args:
        desired: what it should do.
        run: its last start in this process.
        said: its last status message.
        now: seconds since the epoch.
        exceeded: the limit that it was ended for before this process, "" for none.
    """
    if desired == REVOKED and (run is None or not run.running):
        return WorkerState.STOPPED, "revoked"
    if run is None:
        if exceeded and desired != STOPPED:
            return WorkerState.FAILED, exceeded
        return (
            (WorkerState.STOPPED, "")
            if desired == STOPPED
            else (WorkerState.UNKNOWN, "not started")
        )
    if not run.running:
        ended = WorkerState.STOPPED if run.stopping else WorkerState.FAILED
        return ended, run.detail
    # What was said before this start is about another process.
    if said is None or said.at < run.started_at:
        waited = now - run.started_at
        return (
            (WorkerState.STARTING, "")
            if waited < START_UP
            else (WorkerState.UNKNOWN, "it says nothing")
        )
    if now - said.at > FRESH:
        return WorkerState.UNKNOWN, f"silent for {now - said.at:.0f} s"
    return said.state, said.detail


def hindrance(state: WorkerState, detail: str) -> str:
    """Why a worker in that state does nothing for its tasks, "" if it does or that is not known."""
    why = {
        WorkerState.FAILED: "has failed",
        WorkerState.EXITED: "has ended",
        WorkerState.STALLED: "is stalled",
    }.get(state, "")
    return f"{why} ({detail})" if why and detail else why
