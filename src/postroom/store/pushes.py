"""Where the changes of tasks are pushed (A2A's push notification configs), and each push with its attempts.

The deliveries to webhooks (`store.webhooks`) are rows of the same table.

A config has a cursor in TASKS: the changes up to it have their pushes. So a push follows from what is stored, whatever
was killed in between, and no fold waits for it. A push is due in the order of the changes: of each receiver the oldest
pending one is its head, and the others wait for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, fields

from sqlalchemy import bindparam, delete, false, func, or_, select, update

from postroom.store.schema import push_configs, pushes
from postroom.store.session import Session, among, insert_new, prepared, upsert, values_of

PENDING, DELIVERED, GIVEN_UP = "pending", "delivered", "given-up"
"""States of a push: its receiver has not taken it yet, has taken it, or is not tried any more."""

PAGE = 500
"""Rows of one read of everything that is open."""


@dataclass(frozen=True, slots=True)
class ConfigRow:
    """A push notification config.

    Attributes:
        key: `key_of` its task, its owner and its id; the receiver of its pushes.
        owner: uid of who made it.
        api_key: id of the API key that it was made with.
        version: of A2A in which the pushes are written.
        seq: sequence in TASKS up to which the changes have their pushes.
        final: the task's end is one of them, so none follows.
        sealed: token and credentials are (`identity.sealing`); those of earlier versions are until the next start not.
    """

    key: str
    id: str
    task: str
    owner: str
    api_key: str
    url: str
    token: str = field(repr=False)
    scheme: str
    credentials: str = field(repr=False)
    version: str
    made_at: float
    seq: int
    final: bool = False
    sealed: bool = False


@dataclass(frozen=True, slots=True)
class PushRow:
    """A push of one change to one receiver.

    Attributes:
        id: the `webhook-id` of all its attempts.
        hook: the receiver: key of a config, or a stream of a webhook (`push.hooks`).
        about: id of the task, the message or the approval.
        seq: sequence in TASKS of the change; of a webhook the number of what happened in that stream.
        attempts: how many there were.
        next_at: instant of the next attempt; None when there is none.
        at: instant of the last attempt; None before the first.
        status: HTTP status of its answer, 0 for none.
        reason: why it failed, "" if it did not.
    """

    id: str
    hook: str
    about: str
    seq: int
    state: str = PENDING
    attempts: int = 0
    next_at: float | None = None
    at: float | None = None
    status: int = 0
    reason: str = ""


def key_of(task: str, owner: str, config: str) -> str:
    """The key of the config of that id."""
    return hashlib.sha256(f"{task}\n{owner}\n{config}".encode()).hexdigest()[:32]


def push_id(hook: str, seq: int) -> str:
    """The id of the push of the change at `seq`: the same whenever it is made."""
    return f"push_{hashlib.sha256(f'{hook}/{seq}'.encode()).hexdigest()[:32]}"


_CONFIG = [push_configs.c[field.name] for field in fields(ConfigRow)]
_PUSH = [pushes.c[field.name] for field in fields(PushRow)]
_PUT = upsert(
    push_configs,
    ["key"],
    ["api_key", "url", "token", "scheme", "credentials", "version", "sealed"],
)
_BY_KEY = prepared(select(*_CONFIG).where(push_configs.c.key == bindparam("named")))
_LISTED = (
    select(*_CONFIG)
    .where(push_configs.c.task == bindparam("about"), push_configs.c.id > bindparam("after"))
    .order_by(push_configs.c.id, push_configs.c.owner)
    .limit(bindparam("most"))
)
_OF_OWNER = prepared(_LISTED.where(push_configs.c.owner == bindparam("whose")))
_OF_TASK = prepared(select(*_CONFIG).where(push_configs.c.task == bindparam("about")))
_OPEN_OF = prepared(
    select(func.count()).where(
        push_configs.c.owner == bindparam("whose"), push_configs.c.final == false()
    )
)
_OPEN = prepared(
    select(*_CONFIG)
    .where(push_configs.c.final == false(), push_configs.c.key > bindparam("after"))
    .order_by(push_configs.c.key)
    .limit(PAGE)
)
_NOT_SEALED = prepared(
    select(*_CONFIG)
    .where(push_configs.c.sealed == false())
    .order_by(push_configs.c.key)
    .limit(PAGE)
)
_WITH_SECRETS = prepared(
    select(*_CONFIG).where(
        or_(push_configs.c.token != "", push_configs.c.credentials != ""),
        push_configs.c.final == false(),
    )
)
_MOVE = prepared(
    update(push_configs)
    .where(push_configs.c.key == bindparam("named"))
    .values(seq=bindparam("to"), final=bindparam("ended"))
)
_DELETE = (
    prepared(delete(pushes).where(pushes.c.hook == bindparam("named"))),
    prepared(delete(push_configs).where(push_configs.c.key == bindparam("named"))),
)
_ADD = insert_new(pushes)
_IS_PENDING = pushes.c.state == PENDING
_HEAD = prepared(
    select(*_PUSH)
    .where(_IS_PENDING, pushes.c.hook == bindparam("named"))
    .order_by(pushes.c.seq)
    .limit(1)
)
_PENDING_OF = prepared(select(func.count()).where(_IS_PENDING, pushes.c.hook == bindparam("named")))
_NEWEST = prepared(
    select(*_PUSH)
    .where(pushes.c.hook == bindparam("named"))
    .order_by(pushes.c.seq.desc())
    .limit(bindparam("most"))
)
_WAITING = prepared(
    select(pushes.c.hook)
    .distinct()
    .where(_IS_PENDING, pushes.c.hook > bindparam("after"))
    .order_by(pushes.c.hook)
    .limit(PAGE)
)
_BY_ID = prepared(select(*_PUSH).where(pushes.c.id == bindparam("named")))
_ABOUT = prepared(
    select(*_PUSH)
    .where(pushes.c.about == bindparam("about"), pushes.c.seq > bindparam("after"))
    .where(among(pushes.c.hook, "hooks"))
)
_TRIED = prepared(
    update(pushes)
    .where(pushes.c.id == bindparam("named"), _IS_PENDING)
    .values(
        state=bindparam("then"),
        attempts=bindparam("tries"),
        next_at=bindparam("again_at"),
        at=bindparam("tried_at"),
        status=bindparam("answer"),
        reason=bindparam("why"),
    )
)
_GIVE_UP = prepared(
    update(pushes)
    .where(pushes.c.hook == bindparam("named"), _IS_PENDING)
    .values(state=GIVEN_UP, next_at=None, reason=bindparam("why"))
)
_AGAIN = prepared(
    update(pushes)
    .where(pushes.c.id == bindparam("named"))
    .values(state=PENDING, attempts=0, next_at=bindparam("now"))
)


class PushStore:
    """Configs and pushes of the tasks of an organisation."""

    def __init__(self, session: Session) -> None:
        self._session = session

    # ── configs ─────────────────────────────────────────────────────────────────────────────────────

    def put(self, row: ConfigRow) -> None:
        """Store a config; one that is there keeps its place in the log."""
        self._session.run(_PUT, values_of(row))

    def config(self, key: str) -> ConfigRow | None:
        """The config with that key."""
        return self._session.first(ConfigRow, _BY_KEY, named=key)

    def configs(self, task: str, owner: str, *, after: str, limit: int) -> list[ConfigRow]:
        """The configs of a task that `owner` has made, in the order of their ids, past `after`."""
        found = {"about": task, "whose": owner, "after": after, "most": limit}
        return self._session.all(ConfigRow, _OF_OWNER, **found)

    def of_task(self, task: str) -> list[ConfigRow]:
        """All configs of a task."""
        return self._session.all(ConfigRow, _OF_TASK, about=task)

    def count_open(self, owner: str) -> int:
        """The configs of `owner` whose tasks have not ended."""
        return self._session.scalar(_OPEN_OF, whose=owner) or 0

    def open(self, after: str = "") -> list[ConfigRow]:
        """A page of the configs whose tasks have not ended, past that key."""
        return self._session.all(ConfigRow, _OPEN, after=after)

    def not_sealed(self) -> list[ConfigRow]:
        """A page of the configs whose secrets an earlier version has stored as they are."""
        return self._session.all(ConfigRow, _NOT_SEALED)

    def with_secrets(self) -> list[ConfigRow]:
        """The configs of open tasks that have a token or credentials."""
        return self._session.all(ConfigRow, _WITH_SECRETS)

    def move(self, key: str, seq: int, *, final: bool) -> None:
        """Note that the changes up to `seq` have their pushes."""
        self._session.run(_MOVE, {"named": key, "to": seq, "ended": final})

    def delete(self, key: str) -> None:
        """Forget a config and its pushes."""
        for statement in _DELETE:
            self._session.run(statement, {"named": key})

    # ── pushes ──────────────────────────────────────────────────────────────────────────────────────

    def add(self, rows: Sequence[PushRow]) -> None:
        """Store new pushes; those that are there stay as they are."""
        for row in rows:
            self._session.run(_ADD, values_of(row))

    def head(self, hook: str) -> PushRow | None:
        """The oldest pending push of a receiver."""
        return self._session.first(PushRow, _HEAD, named=hook)

    def count_pending(self, hook: str) -> int:
        """How many wait for a receiver."""
        return self._session.scalar(_PENDING_OF, named=hook) or 0

    def waiting(self, after: str = "") -> list[str]:
        """A page of the receivers with pending pushes, past that one."""
        return self._session.column(_WAITING, after=after)

    def push(self, push: str) -> PushRow | None:
        """The push with that id."""
        return self._session.first(PushRow, _BY_ID, named=push)

    def newest(self, hook: str, limit: int) -> list[PushRow]:
        """The last pushes to a receiver, the last first."""
        return self._session.all(PushRow, _NEWEST, named=hook, most=limit)

    def about(self, task: str, hooks: Collection[str], *, after: int, limit: int) -> list[PushRow]:
        """Pushes of a task to those receivers, of the first `limit` changes past `after`, in their order."""
        found = self._session.all(PushRow, _ABOUT, about=task, after=after, hooks=list(hooks))
        chosen = set(sorted({row.seq for row in found})[:limit])
        return sorted(
            (row for row in found if row.seq in chosen), key=lambda row: (row.seq, row.hook)
        )

    def tried(self, row: PushRow) -> bool:
        """Store an attempt; False if the push has gone or ended meanwhile."""
        values = {
            "named": row.id,
            "then": row.state,
            "tries": row.attempts,
            "again_at": row.next_at,
            "tried_at": row.at,
            "answer": row.status,
            "why": row.reason,
        }
        return self._session.run(_TRIED, values) == 1

    def give_up(self, hook: str, reason: str) -> int:
        """Give up every pending push of a receiver; returns how many."""
        return self._session.run(_GIVE_UP, {"named": hook, "why": reason})

    def again(self, push: str, now: float) -> None:
        """Make a push due now, as a new one."""
        self._session.run(_AGAIN, {"named": push, "now": now})
