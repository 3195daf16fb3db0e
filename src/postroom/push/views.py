"""What was pushed of a task, and what became of it; sending one again by hand."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass

from postroom.errors import NotFound
from postroom.protocol import shapes
from postroom.protocol.principal import Principal
from postroom.push.pusher import Pusher
from postroom.store.database import Database, Store
from postroom.store.ports import TaskEventRow
from postroom.store.pushes import ConfigRow, PushRow
from postroom.tasks.service import OrgTaskService
from postroom.webhooks.signing import WebhookKey
from postroom_a2a.times import format_time


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
        self._pusher.wake(view.config)
        return view


def _what(change: TaskEventRow | None) -> str:
    """The state of the change, or that it is an artifact; "" if it is no longer kept."""
    if change is None:
        return ""
    artifact = bool(change.event) and "artifactUpdate" in json.loads(change.event)
    return "artifact" if artifact else change.state


def _time(at: float | None) -> str | None:
    return None if at is None else format_time(at)
