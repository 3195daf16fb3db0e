"""Pushes the changes of tasks to the receivers that their callers named.

    a change is folded ──► its pushes are rows, and the cursor of the config moves ──► each goes out in its lane

The first step reads what is stored past the config's cursor, so it is done again from there after a crash: no change is
missed, and nothing is pushed that is not stored. The rows and the cursor are one transaction, apart from the fold's. An
attempt is written down when it has ended. If the control plane is killed in between, the receiver gets the push twice,
with the same `webhook-id`. What a push says (`body_of`) is in the version of A2A that its receiver speaks.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial

from postroom.observe.supervision import well
from postroom.projection.changes import Change, Changes
from postroom.protocol.alerts import Alert, RaiseAlert
from postroom.protocol.limits import SHORT_ID
from postroom.protocol.principal import OPERATOR_KEY
from postroom.protocol.traces import TRACEPARENT, trace_of
from postroom.store.database import Database, Store
from postroom.store.ports import TaskEventRow
from postroom.store.pushes import DELIVERED, GIVEN_UP, ConfigRow, PushRow, push_id
from postroom.tasks.operations import stream_response
from postroom.webhooks.lanes import Lane, Lanes
from postroom.webhooks.sender import Outcome, Schedule, Sender, Target, WebhookKey
from postroom_a2a.ecma_json import dumps
from postroom_a2a.http.v03_objects import task_down
from postroom_a2a.task_state import TaskState

ALERT = "push-failed"
"""Kind of the alert about a receiver that was given up; its `about` is the key of the config."""

TASKS = 100
"""Tasks whose changes one transaction takes."""

PAGE = 50
"""Changes of one config that one transaction takes."""

FAILED = "failed"
OUTCOMES = (DELIVERED, FAILED, GIVEN_UP)
"""How an attempt ends, for metrics: the last one that failed is `GIVEN_UP`."""

NOT_KEPT = "what it was about is no longer kept"
NO_KEY = "the key that it was made with is not valid any more"
NO_OWNER = "who made it has no address any more"

OLD = "0.3"
"""The version in which a push is the whole task, as it is at the attempt."""

TOKENS = ("X-A2A-Notification-Token", "A2A-Notification-Token")
"""A2A names no header for a config's token; each of its reference libraries reads one of these."""


@dataclass(frozen=True, slots=True)
class _Head:
    """The next push of a receiver, with all that it needs.

    Attributes:
        body: "" where its change is no longer kept.
        stopped: why nothing may go there any more, "" for no reason.
        alerted: people were told that it was given up.
        trace: `traceparent` of the task, "" for none.
    """

    config: ConfigRow
    push: PushRow
    body: str
    stopped: str
    alerted: bool
    trace: str


class Pusher:
    """Pushes the changes of an organisation's tasks.

    Args:
        key: signs every push.
        alert: told when a receiver is given up, and when it is not any more.
        count: told how each attempt has ended, one of `OUTCOMES`.
    """

    def __init__(
        self,
        database: Database,
        changes: Changes,
        sender: Sender,
        key: WebhookKey,
        alert: RaiseAlert,
        *,
        count: Callable[[str], None] = lambda _: None,
        schedule: Schedule | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.sender = sender
        self.key = key
        self._database = database
        self._alert = alert
        self._count = count
        self._schedule = schedule or Schedule()
        self._clock = clock
        self._lanes = Lanes(self._step, clock)
        self.push = self._lanes.run
        """sends what is due, until cancelled"""
        # Tasks with an open config, and those of them that have changed.
        self._watched: set[str] = set()
        self._changed: set[str] = set()
        self._more = asyncio.Event()
        changes.tap(self._heard)

    async def run(self) -> None:
        """Find what is to be pushed until cancelled; first what was left by a fault, or an earlier process."""
        await self._resume()
        while True:
            await self._collect()
            well()
            await self._more.wait()
            self._more.clear()

    def watch(self, task: str) -> None:
        """Hear of the changes of a task from now on."""
        self._watched.add(task)

    def touch(self, task: str) -> None:
        """Look for changes of a task that have no pushes yet."""
        self._changed.add(task)
        self._more.set()

    def wake(self, config: ConfigRow) -> None:
        """Take the next step of a receiver."""
        self._lanes.wake(lane_of(config))

    async def recovered(self, owner: str, key: str) -> None:
        """End the alert about a receiver: it takes pushes again, or there is none any more."""
        await self._alert(Alert(ALERT, "", owner, key))

    def _heard(self, change: Change) -> None:
        if change.kind == "task" and change.id in self._watched:
            self.touch(change.id)

    # ── from changes to pushes ──────────────────────────────────────────────────────────────────────

    async def _resume(self) -> None:
        after = ""
        while page := await self._database.read(lambda store, at=after: store.pushes.open(at)):
            for config in page:
                self.watch(config.task)
                self.touch(config.task)
            after = page[-1].key
        after = ""
        while found := await self._database.read(partial(_waiting, after=after)):
            for _, config in found:
                if config is not None:
                    self.wake(config)
            after = found[-1][0]

    async def _collect(self) -> None:
        while self._changed:
            taken = {self._changed.pop() for _ in range(min(TASKS, len(self._changed)))}
            try:
                work = partial(_collect, tasks=taken, now=self._clock())
                new, left, ended = await self._database.write(work, accounts=False)
            except BaseException:
                self._changed |= taken
                raise
            self._watched -= ended - self._changed
            self._changed |= left
            for config in new:
                self.wake(config)

    # ── from pushes to receivers ────────────────────────────────────────────────────────────────────

    async def _step(self, lane: Lane) -> float | None:
        """Send the next push of a receiver if it is due; the instant of what follows, None for nothing."""
        now = self._clock()
        head = await self._database.point(partial(_head, key=lane.key, now=now))
        if head is None:
            return None
        if head.push.next_at is not None and head.push.next_at > now:
            return head.push.next_at
        return await self._send(head)

    async def _send(self, head: _Head) -> float | None:
        config, push = head.config, head.push
        if head.stopped:
            return await self._stop(config, head.stopped)
        if not head.body:
            return await self._store(replace(push, state=GIVEN_UP, next_at=None, reason=NOT_KEPT))
        body = head.body.encode()
        signed = self.key.headers(config.owner, push.id, self._clock(), body)
        traced = [(TRACEPARENT, head.trace)] if head.trace else []
        headers = [*headers_of(config), *signed, *traced]
        outcome = await self.sender.post(config.url, headers, body)
        now = self._clock()
        tried = replace(
            push, attempts=push.attempts + 1, at=now, status=outcome.status, reason=outcome.reason
        )
        if outcome.delivered:
            self._count(DELIVERED)
            next_at = await self._store(replace(tried, state=DELIVERED, next_at=None))
            if head.alerted:
                await self.recovered(config.owner, config.key)
            return next_at
        return await self._failed(config, tried, outcome, now)

    async def _failed(
        self, config: ConfigRow, tried: PushRow, outcome: Outcome, now: float
    ) -> float | None:
        following = self._schedule.after(outcome, tried.attempts, now)
        self._count(FAILED if following.at is not None else GIVEN_UP)
        if following.at is not None:
            await self._store(replace(tried, next_at=following.at))
            return following.at
        next_at = await self._store(replace(tried, state=GIVEN_UP, next_at=None))
        if following.all:
            next_at = await self._stop(config, f"given up with the one before it: {outcome.reason}")
        await self._tell(config, tried, outcome)
        return next_at

    async def _tell(self, config: ConfigRow, push: PushRow, outcome: Outcome) -> None:
        short, attempts = config.task[:SHORT_ID], push.attempts
        text = (
            f"a push of task {short} to {Target.parse(config.url).host} was given up after"
            f" {attempts} attempt{'s' if attempts > 1 else ''}: {outcome.reason};"
            f" postroom task pushes {short}"
        )
        await self._alert(Alert(ALERT, text, config.owner, config.key))

    async def _stop(self, config: ConfigRow, reason: str) -> None:
        give_up = partial(_give_up, key=config.key, reason=reason)
        await self._database.write(give_up, accounts=False)

    async def _store(self, row: PushRow) -> float | None:
        """Write down how far a push has come; then the one behind it is due."""
        await self._database.write(lambda store: store.pushes.tried(row), accounts=False)
        return 0.0


def lane_of(config: ConfigRow) -> Lane:
    """The lane of a receiver."""
    return Lane(config.key, config.owner, Target.parse(config.url).host)


def take(store: Store, config: ConfigRow, now: float) -> tuple[bool, bool]:
    """Give the changes past a config's cursor their pushes; returns whether there are new ones, and more to take."""
    head = store.tasks.head_by_id(config.task)
    found = store.tasks.events_of(config.task, config.seq, PAGE)
    if head is None:
        return False, False
    new = [
        PushRow(push_id(config.key, change.seq), config.key, config.task, change.seq, next_at=now)
        for change in found
        if is_pushed(change)
    ]
    store.pushes.add(new)
    seq = found[-1].seq if found else config.seq
    more = len(found) == PAGE
    store.pushes.move(config.key, seq, final=head.final and not more)
    return bool(new), more


def _collect(
    store: Store, *, tasks: Collection[str], now: float
) -> tuple[list[ConfigRow], set[str], set[str]]:
    """Take the changes of tasks: the receivers with new pushes, the tasks with more to take, those that have ended."""
    waiting: list[ConfigRow] = []
    left: set[str] = set()
    ended: set[str] = set()
    for task in tasks:
        configs = [config for config in store.pushes.of_task(task) if not config.final]
        for config in configs:
            new, more = take(store, config, now)
            if new:
                waiting.append(config)
            if more:
                left.add(task)
        head = store.tasks.head_by_id(task)
        if task not in left and (not configs or (head is not None and head.final)):
            ended.add(task)
    return waiting, left, ended


def _waiting(store: Store, *, after: str) -> list[tuple[str, ConfigRow | None]]:
    return [(key, store.pushes.config(key)) for key in store.pushes.waiting(after)]


def _head(store: Store, *, key: str, now: float) -> _Head | None:
    config, push = store.pushes.config(key), store.pushes.head(key)
    if config is None or push is None:
        return None
    said = trace = ""
    if push.next_at is None or push.next_at <= now:
        said, trace = body_of(store, config, push.seq), _trace(store, config.task)
    alerted = store.alerts.is_raised(ALERT, key)
    return _Head(config, push, said, _stopped(store, config, now), alerted, trace)


def _trace(store: Store, task: str) -> str:
    row = store.tasks.task_by_id(task)
    if row is None or TRACEPARENT not in row.snapshot:
        return ""
    history = json.loads(row.snapshot).get("history") or [{}]
    return trace_of(history[0])


def _stopped(store: Store, config: ConfigRow, now: float) -> str:
    """Why nothing may go to a receiver any more: its owner, or the key that it was made with, has gone."""
    owner = store.agents.agent_by_uid(config.owner)
    if owner is None or owner.retired:
        return NO_OWNER
    if config.api_key in ("", OPERATOR_KEY):
        return ""
    key = store.keys.get(config.api_key)
    valid = key is not None and key.revoked_at is None
    if key is None or not valid or (key.expires_at is not None and key.expires_at <= now):
        return NO_KEY
    return ""


def _give_up(store: Store, *, key: str, reason: str) -> None:
    store.pushes.give_up(key, reason)


def is_pushed(change: TaskEventRow) -> bool:
    """Whether a change is one for receivers: the first, which only creates the task, is none."""
    return bool(change.event) or change.state != TaskState.SUBMITTED


def body_of(store: Store, config: ConfigRow, seq: int) -> str:
    """The body of the push of the change at `seq`, "" if that is no longer kept.

    It is A2A's StreamResponse; for 0.3 the task.
    """
    found = store.tasks.events_at([seq])
    if not found:
        return ""
    (change,) = found
    if config.version != OLD and change.event:
        return change.event
    task = store.tasks.task_by_id(config.task)
    if task is None:
        return ""
    if config.version == OLD:
        return dumps(task_down(json.loads(task.snapshot))).decode()
    return dumps(stream_response(change, task)).decode()


def headers_of(config: ConfigRow) -> list[tuple[str, str]]:
    """The headers of a push, without its signature."""
    media = "application/json" if config.version == OLD else "application/a2a+json"
    found = [("content-type", media), ("a2a-version", config.version)]
    if config.token:
        found.extend((name, config.token) for name in TOKENS)
    if config.scheme and config.credentials:
        found.append(("authorization", f"{config.scheme} {config.credentials}"))
    return found
