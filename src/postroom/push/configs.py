"""The push notification configs of one agent's tasks, for a principal, and what was pushed by them.

`AgentPushes` is what A2A's operations need; `PushService` shows what became of pushes, and sends one again by hand.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from postroom.errors import InvalidInput, NotFound, Refused
from postroom.protocol import shapes
from postroom.protocol.limits import MAX_OPEN_PUSH_CONFIGS, MAX_PUSH_CONFIGS
from postroom.protocol.principal import DOOR, Principal
from postroom.push.changes import place, take
from postroom.push.pusher import ALERT, Pusher
from postroom.push.receivers import Receiver
from postroom.store.agents import Agent
from postroom.store.database import Database, Store
from postroom.store.ports import TaskEventRow, TaskHead
from postroom.store.pushes import ConfigRow, PushRow, key_of
from postroom.tasks.operations import sees
from postroom.tasks.service import OrgTaskService
from postroom.webhooks.signing import WebhookKey
from postroom_a2a.rpc import Code, RpcError
from postroom_a2a.service import PushConfig, PushConfigPage, PushConfigs
from postroom_a2a.times import format_time


class AgentPushes(PushConfigs):
    """The configs of the tasks of `worker`, for the principal `me`; implements `postroom_a2a.service.PushConfigs`.

    The requester that `PushConfigs` names is not looked at: `me` is who asks. A config is bound to the key that it was
    made with, and nothing is pushed any more when that is revoked.
    """

    def __init__(
        self,
        pusher: Pusher,
        database: Database,
        worker: Agent,
        me: Principal,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._pusher = pusher
        self._database = database
        self._worker = worker
        self._me = me
        self._clock = clock

    async def check(self, config: PushConfig, _requester: str) -> None:
        if self._me.method == DOOR:
            # What a worker may send to the outside is its gateway's to judge.
            raise RpcError(
                Code.PUSH_NOTIFICATION_NOT_SUPPORTED, "there are no push notifications for workers"
            )
        try:
            self._pusher.sender.check(config.url)
        except InvalidInput as error:
            raise InvalidInput(f"'url': {error.message}", remedy=error.remedy) from error

    async def create(
        self, config: PushConfig, requester: str, *, after: int | None = None
    ) -> PushConfig:
        await self.check(config, requester)
        config = replace(config, id=config.id or _id_for(config.url))
        try:
            stored = await self._database.write(
                partial(self._create, config=config, after=after), accounts=False
            )
        finally:
            # Also where the caller has gone: perhaps it was stored.
            self._pusher.watch(config.task)
            self._pusher.touch(config.task)
        self._pusher.wake(Receiver.of(stored))
        return _shown(stored)

    def _create(self, store: Store, config: PushConfig, after: int | None) -> ConfigRow:
        head = self._head(store, config.task)
        key = key_of(config.task, self._me.uid, config.id)
        known = store.pushes.config(key)
        if known is None:
            self._check_room(store, config.task)
        sealer = self._pusher.sealer
        row = ConfigRow(
            key=key,
            id=config.id,
            task=config.task,
            owner=self._me.uid,
            api_key=self._me.key_id,
            url=config.url,
            token=sealer.seal(config.token, place(key, "token")),
            scheme=config.scheme,
            credentials=sealer.seal(config.credentials, place(key, "credentials")),
            version=config.version,
            made_at=self._clock(),
            seq=head.seq if after is None else after,
            sealed=True,
        )
        store.pushes.put(row)
        stored = known or row
        if not stored.final:
            take(store, stored, self._clock())
        return row

    def _check_room(self, store: Store, task: str) -> None:
        me, most = self._me.uid, MAX_PUSH_CONFIGS
        if len(store.pushes.configs(task, me, after="", limit=most)) >= most:
            raise Refused(
                f"the task has {most} push notification configs of yours, the most that it can have",
                remedy="delete one",
            )
        if store.pushes.count_open(me) >= MAX_OPEN_PUSH_CONFIGS:
            raise Refused(
                f"you have {MAX_OPEN_PUSH_CONFIGS} push notification configs for open tasks",
                remedy="delete some",
            )

    async def get(self, task: str, config: str, _requester: str) -> PushConfig | None:

        def find(store: Store) -> ConfigRow | None:
            self._head(store, task)
            return store.pushes.config(key_of(task, self._me.uid, config))

        found = await self._database.point(find)
        return None if found is None else _shown(found)

    async def list(self, task: str, _requester: str, *, limit: int, page: str) -> PushConfigPage:
        """As `PushConfigs.list`; the token of a page is the last id before it."""

        def find(store: Store) -> list[ConfigRow]:
            self._head(store, task)
            return store.pushes.configs(task, self._me.uid, after=page, limit=limit + 1)

        found = await self._database.read(find)
        shown = [_shown(row) for row in found[:limit]]
        return PushConfigPage(shown, shown[-1].id if len(found) > limit else "")

    async def delete(self, task: str, config: str, _requester: str) -> None:
        key = key_of(task, self._me.uid, config)

        def delete(store: Store) -> bool:
            self._head(store, task)
            store.pushes.delete(key)
            return store.alerts.is_raised(ALERT, key)

        if await self._database.write(delete, accounts=False):
            await self._pusher.recovered(self._me.uid, key)

    def _head(self, store: Store, task: str) -> TaskHead:
        head = store.tasks.head_by_id(task)
        if head is None or head.worker != self._worker.uid or not sees(self._me, head):
            raise NotFound("there is no such task")
        return head


def _id_for(url: str) -> str:
    """The id of a config that came without: the same for the same URL, so that a repeated call makes no second one."""
    return hashlib.sha256(url.encode()).hexdigest()[:16]


def _shown(row: ConfigRow) -> PushConfig:
    return PushConfig(row.task, row.url, row.id, scheme=row.scheme, version=row.version)


@dataclass(frozen=True, slots=True)
class PushView:
    """A push as its owner sees it.

    Attributes:
        first: the oldest of its receiver that is pending; those behind it have no instant yet.
    """

    row: PushRow
    config: ConfigRow
    what: str
    first: bool

    def as_json(self) -> shapes.Push:
        """Shape of the API."""
        row = self.row
        return {
            "id": row.id,
            "config": self.config.id,
            "url": self.config.url,
            "seq": row.seq,
            "what": self.what,
            "state": row.state,
            "attempts": row.attempts,
            "status": row.status,
            "reason": row.reason,
            "tried_at": _time(row.at),
            "next_at": _time(row.next_at) if self.first else None,
        }


class PushService:
    """The pushes of tasks, for who made their configs; who operates sees everybody's."""

    def __init__(
        self,
        tasks: OrgTaskService,
        database: Database,
        pusher: Pusher,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._tasks = tasks
        self._database = database
        self._pusher = pusher
        self._clock = clock

    @property
    def pusher(self) -> Pusher:
        """What sends them."""
        return self._pusher

    @property
    def key(self) -> WebhookKey:
        """What signs them."""
        return self._pusher.key

    async def of_task(
        self, ref: str, me: Principal, *, after: int = 0, limit: int
    ) -> list[PushView]:
        """The pushes of the first `limit` changes past sequence `after`, in their order.

        Raises:
            NotFound: the task is not there for `me`.
        """
        task = (await self._tasks.find(ref, me.only)).id

        def find(store: Store) -> list[PushView]:
            configs = {row.key: row for row in store.pushes.of_task(task) if me.sees(row.owner)}
            rows = store.pushes.about(task, configs, after=after, limit=limit)
            changes = {row.seq: row for row in store.tasks.events_at({row.seq for row in rows})}
            heads = {head.id for key in configs if (head := store.pushes.head(key)) is not None}
            return [
                PushView(row, configs[row.hook], _what(changes.get(row.seq)), row.id in heads)
                for row in rows
            ]

        return await self._database.read(find)

    async def again(self, ref: str, push: str, me: Principal) -> PushView:
        """Send a push again at once, whatever became of it.

        Raises:
            NotFound: the task or the push is not there for `me`.
        """
        task = (await self._tasks.find(ref, me.only)).id

        def again(store: Store) -> PushView:
            found = store.pushes.push(push)
            config = None if found is None else store.pushes.config(found.hook)
            if found is None or found.about != task or config is None or not me.sees(config.owner):
                raise NotFound("the task has no such push", remedy=f"postroom task pushes {ref}")
            store.pushes.again(push, self._clock())
            (change,) = store.tasks.events_at([found.seq]) or [None]
            head = store.pushes.head(found.hook)
            first = head is not None and head.id == push
            return PushView(store.pushes.push(push) or found, config, _what(change), first)

        view = await self._database.write(again, accounts=False)
        self._pusher.wake(Receiver.of(view.config))
        return view


def _what(change: TaskEventRow | None) -> str:
    """The state of the change, or that it is an artifact; "" if it is no longer kept."""
    if change is None:
        return ""
    artifact = bool(change.event) and "artifactUpdate" in json.loads(change.event)
    return "artifact" if artifact else change.state


def _time(at: float | None) -> str | None:
    return None if at is None else format_time(at)
