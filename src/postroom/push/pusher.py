"""Sends what happens to the receivers that agents named: the changes of tasks, and what webhooks are told.

    it is folded ──► its deliveries are rows, and the cursor of the receiver moves ──► each goes out in its lane

The first step reads what is stored past the cursor, so it is done again from there after a crash: nothing is missed,
and nothing is sent that is not stored. The rows and the cursor are one transaction, apart from the fold's. An attempt
is written down when it has ended. If the control plane is killed in between, the receiver gets it twice, with the same
`webhook-id`. `push.changes` and `push.hooks` know what each kind of receiver is told.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial

from postroom.directory.grants import GrantScope, among, owns
from postroom.identity.sealing import Sealer
from postroom.observe.supervision import well
from postroom.projection.changes import Change, Changes
from postroom.protocol.alerts import Alert, RaiseAlert
from postroom.protocol.limits import SHORT_ID
from postroom.protocol.principal import OPERATOR_KEY
from postroom.push import changes as config_changes
from postroom.push import hooks
from postroom.push.receivers import Outgoing, Receiver, lanes_of
from postroom.store.agents import Agent
from postroom.store.database import Database, Store
from postroom.store.pushes import DELIVERED, GIVEN_UP, ConfigRow, PushRow
from postroom.webhooks.lanes import Lane, Lanes
from postroom.webhooks.sender import GONE, Outcome, Schedule, Sender, Target
from postroom.webhooks.signing import WebhookKey

ALERT = "push-failed"
"""Kind of the alert about a receiver that was given up; its `about` is `Receiver.about`."""

TASKS = 100
"""Tasks whose changes one transaction takes."""

FAILED = "failed"
OUTCOMES = (DELIVERED, FAILED, GIVEN_UP)
"""How an attempt ends, for metrics: the last one that failed is `GIVEN_UP`."""

NO_KEY = "the key that it was made with is not valid any more"
NOT_LET_IN = "the agent of the task does not let in who made it any more"
NO_OWNER = "who made it has no address any more"
NOT_THEIRS = "the agent does not belong to who made it any more"

FOR_GOOD = (NO_KEY, NO_OWNER, NOT_THEIRS)
"""Why a webhook is disabled without a word of its receiver."""

KEPT = 7 * 86400.0
"""Seconds that a webhook's deliveries are kept when they have ended."""


@dataclass(frozen=True, slots=True)
class _Head:
    """The next delivery of a receiver, with all that it needs.

    Attributes:
        outgoing: None where it is not due.
        stopped: why nothing may go there any more, "" for no reason.
        alerted: people were told that it was given up.
    """

    receiver: Receiver
    push: PushRow
    outgoing: Outgoing | None
    stopped: str
    alerted: bool


class Pusher:
    """Sends what happens in an organisation to its receivers.

    Args:
        key: signs every request.
        sealer: opens the secrets of receivers.
        alert: told when a receiver is given up, and when it is not any more.
        count: told how each attempt has ended, one of `OUTCOMES`.
    """

    def __init__(
        self,
        database: Database,
        changes: Changes,
        sender: Sender,
        key: WebhookKey,
        sealer: Sealer,
        alert: RaiseAlert,
        *,
        count: Callable[[str], None] = lambda _: None,
        schedule: Schedule | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.sender = sender
        self.key = key
        self.sealer = sealer
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
        # What webhooks hear of, whether it is known since the last was added, and whether something has happened.
        self._concerns: frozenset[tuple[str, str]] = frozenset()
        self._known, self._added = False, False
        self._happened = False
        self._more = asyncio.Event()
        changes.tap(self._heard)

    async def run(self) -> None:
        """Find what is to be sent until cancelled; first what was left by a fault, or an earlier process."""
        await self._resume()
        while True:
            await self._collect()
            await self._collect_hooks()
            well()
            await self._more.wait()
            self._more.clear()

    async def forget(self) -> None:
        """Forget the deliveries of webhooks that have ended long ago."""
        before = self._clock() - KEPT
        await self._database.write(lambda store: store.webhooks.forget(before), accounts=False)

    def watch(self, task: str) -> None:
        """Hear of the changes of a task from now on."""
        self._watched.add(task)

    def touch(self, task: str) -> None:
        """Look for changes of a task that have no pushes yet."""
        self._changed.add(task)
        self._more.set()

    def look(self) -> None:
        """Look for what webhooks are not told of yet, and which there are."""
        self._known, self._added = False, True
        self._happen()

    def _happen(self) -> None:
        self._happened = True
        self._more.set()

    def wake(self, receiver: Receiver) -> None:
        """Take the next step of a receiver."""
        self._lanes.wake(receiver.lane)

    async def recovered(self, owner: str, about: str) -> None:
        """End the alert about a receiver: it takes what is sent again, or there is none any more."""
        await self._alert(Alert(ALERT, "", owner, about))

    def _heard(self, change: Change) -> None:
        if change.kind == "task" and change.id in self._watched:
            self.touch(change.id)
        kind = change.kind
        whose = [""] if kind == "event" and change.id else [change.sender, change.recipient]
        if not self._known or any((who, kind) in self._concerns for who in whose):
            self._happen()

    # ── from changes to deliveries ──────────────────────────────────────────────────────────────────────

    async def _resume(self) -> None:
        after = ""
        while page := await self._database.read(lambda store, at=after: store.pushes.open(at)):
            for config in page:
                self.watch(config.task)
                self.touch(config.task)
            after = page[-1].key
        after = ""
        while found := await self._database.read(partial(_waiting, after=after)):
            for _, receiver in found:
                if receiver is not None:
                    self.wake(receiver)
            after = found[-1][0]
        self.look()

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
                self.wake(Receiver.of(config))

    async def _collect_hooks(self) -> None:
        while self._happened:
            self._happened, self._added = False, False
            try:
                work = partial(hooks.take, now=self._clock())
                taken = await self._database.write(work, accounts=False)
            except BaseException:
                self._happened = True
                raise
            # What came meanwhile counted, if it was not known whether a webhook hears of it.
            self._concerns, self._known = taken.concerns, not self._added
            self._happened = self._happened or taken.more
            for receiver in taken.receivers:
                self.wake(receiver)

    # ── from deliveries to receivers ────────────────────────────────────────────────────────────────────

    async def _step(self, lane: Lane) -> float | None:
        """Send the next delivery of a receiver if it is due; the instant of what follows, None for nothing."""
        head = await self._database.point(partial(self._head, key=lane.key, now=self._clock()))
        if head is None:
            return None
        if head.outgoing is None:
            return head.push.next_at
        return await self._send(head, head.outgoing)

    def _head(self, store: Store, *, key: str, now: float) -> _Head | None:
        receiver, push = Receiver.find(store, key), store.pushes.head(key)
        if receiver is None or push is None:
            return None
        stopped, outgoing = stopped_of(store, receiver, now), None
        if push.next_at is None or push.next_at <= now:
            row, more = receiver.row, (self.key, self.sealer, now)
            if isinstance(row, ConfigRow):
                outgoing = config_changes.request(store, row, push, *more)
            else:
                outgoing = hooks.request(store, row, push, *more)
        alerted = store.alerts.is_raised(ALERT, receiver.about)
        return _Head(receiver, push, outgoing, stopped, alerted)

    async def _send(self, head: _Head, outgoing: Outgoing) -> float | None:
        receiver, push = head.receiver, head.push
        if head.stopped or (outgoing.fault and not outgoing.drop):
            return await self._stop(receiver, head.stopped or outgoing.fault)
        if outgoing.fault:
            reason = outgoing.fault
            return await self._store(replace(push, state=GIVEN_UP, next_at=None, reason=reason))
        outcome = await self.sender.post(receiver.url, outgoing.headers, outgoing.body)
        now = self._clock()
        tried = replace(
            push, attempts=push.attempts + 1, at=now, status=outcome.status, reason=outcome.reason
        )
        if outcome.delivered:
            self._count(DELIVERED)
            next_at = await self._store(replace(tried, state=DELIVERED, next_at=None))
            if head.alerted:
                await self.recovered(receiver.owner, receiver.about)
            return next_at
        return await self._failed(receiver, tried, outcome, now)

    async def _failed(
        self, receiver: Receiver, tried: PushRow, outcome: Outcome, now: float
    ) -> float | None:
        following = self._schedule.after(outcome, tried.attempts, now)
        self._count(FAILED if following.at is not None else GIVEN_UP)
        if following.at is not None:
            await self._store(replace(tried, next_at=following.at))
            return following.at
        next_at = await self._store(replace(tried, state=GIVEN_UP, next_at=None))
        gone = outcome.status == GONE
        if following.all:
            reason = f"given up with the one before it: {outcome.reason}"
            next_at = await self._stop(receiver, reason, gone=gone)
        await self._alert(
            Alert(ALERT, _told(receiver, tried, outcome), receiver.owner, receiver.about)
        )
        return next_at

    async def _stop(self, receiver: Receiver, reason: str, *, gone: bool = False) -> None:
        """Give up what waits for a receiver; a webhook that is `gone`, or may not be told, is disabled."""
        disable = not isinstance(receiver.row, ConfigRow) and (gone or reason in FOR_GOOD)
        stop = partial(_stop, receiver=receiver, reason=reason, disable=disable)
        await self._database.write(stop, accounts=False)

    async def _store(self, row: PushRow) -> float | None:
        """Write down how far a delivery has come; then the one behind it is due."""
        await self._database.write(lambda store: store.pushes.tried(row), accounts=False)
        return 0.0


def _told(receiver: Receiver, push: PushRow, outcome: Outcome) -> str:
    """The text of the alert about a delivery that was given up."""
    host, attempts = Target.parse(receiver.url).host, push.attempts
    tried = f"after {attempts} attempt{'s' if attempts > 1 else ''}: {outcome.reason}"
    if isinstance(receiver.row, ConfigRow):
        short = receiver.row.task[:SHORT_ID]
        return (
            f"a push of task {short} to {host} was given up {tried}; postroom task pushes {short}"
        )
    hook = receiver.row.id
    if outcome.status == GONE:
        return (
            f"the webhook {hook} is disabled: {host} wants nothing more (410);"
            f" postroom webhooks test {hook} when it does"
        )
    return f"a delivery to {host} was given up {tried}; postroom webhooks deliveries {hook}"


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
            new, more = config_changes.take(store, config, now)
            if new:
                waiting.append(config)
            if more:
                left.add(task)
        head = store.tasks.head_by_id(task)
        if task not in left and (not configs or (head is not None and head.final)):
            ended.add(task)
    return waiting, left, ended


def _waiting(store: Store, *, after: str) -> list[tuple[str, Receiver | None]]:
    return [(key, Receiver.find(store, key)) for key in store.pushes.waiting(after)]


def stopped_of(store: Store, receiver: Receiver, now: float) -> str:
    """Why nothing may go to a receiver any more: its owner, the key that it was made with, or what they had in common,
    has gone.
    """
    owner = store.agents.anywhere(receiver.owner)
    if owner is None or owner.retired:
        return NO_OWNER
    if store.agents.agent_by_uid(owner.uid) is None and not _let_in(store, receiver, owner, now):
        return NOT_LET_IN
    if receiver.api_key in ("", OPERATOR_KEY):
        return ""
    key = store.keys.guest(key_id=receiver.api_key)
    valid = key is not None and key.revoked_at is None
    if key is None or not valid or (key.expires_at is not None and key.expires_at <= now):
        return NO_KEY
    theirs = key.uid == receiver.owner or owns(store, key.uid, receiver.owner)
    return "" if theirs else NOT_THEIRS


def _let_in(store: Store, receiver: Receiver, owner: Agent, now: float) -> bool:
    """Whether the agent of the task still lets in the owner of a config, who is of another organisation."""
    config = receiver.row
    head = store.tasks.head_by_id(config.task) if isinstance(config, ConfigRow) else None
    return head is not None and bool(among(store, owner.uid, [head.worker], GrantScope.TASK, now))


def _stop(store: Store, *, receiver: Receiver, reason: str, disable: bool) -> None:
    for lane in lanes_of(receiver.about) if disable else [receiver.key]:
        store.pushes.give_up(lane, reason)
    if disable:
        store.webhooks.disable(receiver.about, reason)
