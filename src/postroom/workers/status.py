"""The state of each worker as people see it, from its status messages and from ended processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

from postroom.bus.port import BusAdmin
from postroom.directory.cards import Card
from postroom.directory.presence import FRESH, PresenceBoard
from postroom.errors import BusDisconnected, InvalidTemplate, NotFound, PeerError
from postroom.events.service import EventLog
from postroom.gateway.limits import CUT_OFF, VIOLATION
from postroom.mail.alerts import AlertService, AlertView
from postroom.protocol import shapes
from postroom.protocol.autonomy import word_of
from postroom.protocol.limits import MAX_STATUS
from postroom.protocol.presence import ONLINE, OVER, Presence, WorkerState
from postroom.protocol.template import LINE_ADAPTERS, parse_template
from postroom.store.agents import Agent
from postroom.store.events import Usage
from postroom.store.workers import REVOKED, RUNNING, STOPPED, WorkerRecord, autonomy_of
from postroom.tasks.service import OrgTaskService
from postroom.tasks.views import TaskView
from postroom.workers.lifecycle import Workers
from postroom.workers.runs import Run
from postroom_a2a.text import one_line
from postroom_a2a.times import format_time

START_UP = 20.0
"""Seconds until a worker's first status message; after that its state is `unknown`, no longer `starting`."""

SHORT_WAIT = 3.0
"""Seconds of an agent's wait before it tries again up to which nobody is told its end."""

COUNTING = 2.0
"""Seconds to count the unread messages of all inboxes; while the bus is away a view has no count."""


class WorkerChanges:
    """Passes on that a worker has changed; `tell` is set once there is a listener."""

    def __init__(self) -> None:
        self.tell: Callable[[], None] = lambda: None
        self._next = asyncio.Event()

    def __call__(self) -> None:
        """Report a change."""
        self.tell()
        self._next.set()
        self._next = asyncio.Event()

    async def wait(self) -> None:
        """Wait for the next change."""
        await self._next.wait()


class WorkerStates:
    """The state of each worker, by its process and its status messages."""

    def __init__(
        self, workers: Workers, presence: PresenceBoard, now: Callable[[], float] = time.time
    ) -> None:
        self._workers = workers
        self._presence = presence
        self._now = now

    def of(self, uid: str, desired: str = RUNNING, why: str = "") -> tuple[WorkerState, str]:
        """State and detail of worker `uid`; for `desired` and `why` see `state_of`."""
        run, said = self._workers.run_of(uid), self._presence.of(uid)
        return state_of(desired, run, said, self._now(), self._workers.failure(uid) or why)

    def there(self, uid: str) -> bool:
        """Whether the worker runs and reported so a moment ago."""
        return self.of(uid)[0] in ONLINE

    def seen_at(self, uid: str) -> float | None:
        """The instant of its last status message, None for none."""
        said = self._presence.of(uid)
        return None if said is None else said.at

    def cards(self) -> dict[str, Card | None]:
        """The card of each worker that was started in this process, None while it is not online."""
        return {uid: run.card if self.there(uid) else None for uid, run in self._workers.runs()}

    def blocker(self, uid: str) -> str:
        """Why worker `uid` does not work on its tasks; "" if it does, or that is not known."""
        return blocker(*self.of(uid)) or (f": {said}" if (said := self.trouble(uid)) else "")

    def trouble(self, uid: str) -> str:
        """The newest error that the agent of worker `uid`, which runs, has met; "" once it goes on."""
        said = self._presence.of(uid)
        if said is None or not said.trouble or not self.there(uid):
            return ""
        if said.until - self._now() < SHORT_WAIT:
            return said.trouble
        return f"{said.trouble}, at {time.strftime('%H:%M:%S', time.localtime(said.until))}"

    def begun(self, uid: str) -> bool | None:
        """Whether the agent of worker `uid` has started, None if that is not known yet."""
        run, said = self._workers.run_of(uid), self._presence.of(uid)
        if run is None:
            return False
        if self._presence.ran_at(uid) >= run.started_at:
            return True
        over = said is not None and said.at >= run.started_at and said.state in OVER
        return False if over or not run.running else None


@dataclass(frozen=True, slots=True)
class Load:
    """By uid: each worker's current task, its number of open tasks, the rule that it last broke, and what it used."""

    current: Mapping[str, TaskView]
    counts: Mapping[str, int]
    broken: Mapping[str, str]
    usage: Mapping[str, Usage]


class WorkerViews:
    """Views of workers for the API."""

    def __init__(
        self,
        workers: Workers,
        states: WorkerStates,
        presence: PresenceBoard,
        admin: BusAdmin,
        tasks: OrgTaskService,
        alerts: AlertService,
        changed: WorkerChanges,
        events: EventLog,
    ) -> None:
        self._workers = workers
        self._states = states
        self._presence = presence
        self._events = events
        self._admin = admin
        self._tasks = tasks
        self._alerts = alerts
        self._changed = changed

    async def all(self) -> list[shapes.Worker]:
        """Every worker, oldest first; shape in docs/api.md, Worker."""
        load = await self._load()
        end = asyncio.get_running_loop().time() + COUNTING
        return [
            await self._view(agent, record, load, end)
            for agent, record in await self._workers.records()
        ]

    async def states(self) -> dict[str, shapes.WorkerChange]:
        """State and detail of every worker by uid, with its nick; does not ask the bus."""
        found: dict[str, shapes.WorkerChange] = {}
        for agent, record in await self._workers.records():
            state, detail = self._states.of(agent.uid, record.desired, record.exceeded)
            found[agent.uid] = {
                "uid": agent.uid,
                "nick": agent.nick,
                "state": state.value,
                "detail": detail
                if state is WorkerState.FAILED
                else self._states.trouble(agent.uid),
            }
        return found

    async def one(self, ref: str) -> shapes.Worker:
        """One worker."""
        end = asyncio.get_running_loop().time() + COUNTING
        return await self._view(*await self._workers.record(ref), await self._load(), end)

    async def begun(self, uid: str, timeout: float) -> bool | None:
        """Whether the agent of worker `uid` has started, None if that is not known after `timeout` seconds.

        False means that it has ended, even if it is being started again.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while (begun := self._states.begun(uid)) is None:
                    await self._changed.wait()
                return begun
        said = self._presence.of(uid)
        return False if said is not None and said.stderr else None

    async def rests(self, uid: str, timeout: float) -> bool:
        """Whether the agent of worker `uid` is in no turn, at the latest after `timeout` seconds."""
        busy = (WorkerState.WORKING, WorkerState.STALLED)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self._states.of(uid)[0] in busy:
                    await self._changed.wait()
        return self._states.of(uid)[0] not in busy

    async def _load(self) -> Load:
        broke = await self._alerts.standing(kinds=(CUT_OFF, VIOLATION))
        broken = {alert.row.who: _broken(alert) for alert in reversed(broke)}  # the newest counts
        current, counts = await self._tasks.current(), await self._tasks.open_counts()
        return Load(current, counts, broken, await self._events.usage_of_workers())

    async def _view(
        self, agent: Agent, record: WorkerRecord, load: Load, end: float
    ) -> shapes.Worker:
        run = self._workers.run_of(agent.uid)
        said = self._presence.of(agent.uid)
        state, detail = self._states.of(agent.uid, record.desired, record.exceeded)
        running = run is not None and run.running
        task = load.current.get(agent.uid)
        if state is WorkerState.STOPPED and task is not None:
            detail = detail or task.detail
        level = run.handle.level.value if run is not None and running else record.level
        return {
            "uid": agent.uid,
            "nick": agent.nick,
            "project": record.project,
            "template": record.origin.get("path", ""),
            "desired": record.desired,
            "state": state.value,
            "detail": "; ".join(filter(None, (detail, load.broken.get(agent.uid)))),
            "trouble": self._states.trouble(agent.uid),
            "stderr": list(said.stderr) if said and said.state is state else [],
            "sandbox": {"provider": record.sandbox, "level": level},
            "workspace": self._workers.work.shown(agent.uid),
            "unenforced": list(run.unenforced) if run is not None and running else [],
            "last_seen": format_time(said.at) if said else None,
            "unread": await self._unread(agent.uid, end),
            "task": _at_work(task),
            "autonomy": _autonomy(record, task),
            "usage": load.usage.get(agent.uid, Usage()).as_json(),
            "open_tasks": load.counts.get(agent.uid, 0),
            "pid": run.handle.pid if run is not None and running else None,
            "created_at": format_time(record.created_at),
        }

    async def _unread(self, uid: str, end: float) -> int | None:
        try:
            async with asyncio.timeout_at(end):
                return sum(await self._admin.pending("INBOX", uid))
        except (NotFound, BusDisconnected, PeerError, TimeoutError):
            return None


def _autonomy(record: WorkerRecord, task: TaskView | None) -> str:
    known = _by_template(record.template, tuple(sorted(record.overrides.items())))
    if known is None:
        return ""
    kept = autonomy_of(record.rules)
    return word_of(kept, autonomous=known, task=task.id if task else "").value


@lru_cache(maxsize=256)
def _by_template(text: str, overrides: tuple[tuple[str, str], ...]) -> bool | None:
    """Whether a template has its coding agent ask for nothing, None where it has none."""
    try:
        template = parse_template(text, dict(overrides))
    except InvalidTemplate:  # of another version
        return None
    asks = template.interactive and template.adapter not in LINE_ADAPTERS
    return template.autonomous if asks else None


def _broken(alert: AlertView) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(alert.row.at))
    return f"{alert.row.text} ({when})"


def _at_work(task: TaskView | None) -> shapes.Current | None:
    if task is None:
        return None
    return {
        "id": task.id,
        "state": task.state,
        "text": one_line(task.text, MAX_STATUS),
        "attempt": task.attempt,
        "status_text": one_line(task.status_text, MAX_STATUS),
        "started_at": None if task.started_at is None else format_time(task.started_at),
        "updated_at": format_time(task.updated_at),
    }


def state_of(
    desired: str, run: Run | None, said: Presence | None, now: float, why: str = ""
) -> tuple[WorkerState, str]:
    """State and detail of a worker.

    Args:
        run: its last start in this process.
        why: why there is no run: the limit that it was ended for, or what failed; "" for neither.
    """
    if desired == REVOKED and (run is None or not run.running):
        return WorkerState.STOPPED, "revoked"
    if run is None:
        if why and desired != STOPPED:
            return WorkerState.FAILED, why
        return (
            (WorkerState.STOPPED, "")
            if desired == STOPPED
            else (WorkerState.UNKNOWN, "not started")
        )
    if not run.running:
        ended = WorkerState.STOPPED if run.stopping else WorkerState.FAILED
        return ended, run.detail
    # A message from before this start is about another process.
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


def blocker(state: WorkerState, detail: str) -> str:
    """Why a worker in that state does not work on its tasks; "" if it does, or that is not known."""
    why = {
        WorkerState.FAILED: "has failed",
        WorkerState.EXITED: "has ended",
        WorkerState.STALLED: "is stalled",
    }.get(state, "")
    return f"{why} ({detail})" if why and detail else why
