"""What the config of a task is told: from the task's changes to pushes, and from a push to its request.

What a push says is in the version of A2A that its receiver speaks.
"""

from __future__ import annotations

import json

from postroom.identity.sealing import Sealer
from postroom.protocol.traces import TRACEPARENT, trace_of
from postroom.push.receivers import NOT_KEPT, SECRET_LOST, Outgoing
from postroom.store.database import Store
from postroom.store.ports import TaskEventRow
from postroom.store.pushes import ConfigRow, PushRow, push_id
from postroom.tasks.operations import stream_response
from postroom.webhooks.signing import WebhookKey
from postroom_a2a.ecma_json import dumps
from postroom_a2a.http.v03_objects import task_down
from postroom_a2a.task_state import TaskState

PAGE = 50
"""Changes of one config that one transaction takes."""

OLD = "0.3"
"""The version in which a push is the whole task, as it is at the attempt."""

TOKENS = ("X-A2A-Notification-Token", "A2A-Notification-Token")
"""A2A names no header for a config's token; each of its reference libraries reads one of these."""


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


def is_pushed(change: TaskEventRow) -> bool:
    """Whether a change is one for receivers: the first, which only creates the task, is none."""
    return bool(change.event) or change.state != TaskState.SUBMITTED


def request(
    store: Store, config: ConfigRow, push: PushRow, key: WebhookKey, sealer: Sealer, now: float
) -> Outgoing:
    """The request of an attempt at `now`."""
    said = body_of(store, config, push.seq)
    if not said:
        return Outgoing(fault=NOT_KEPT, drop=True)
    opened = opened_of(config, sealer)
    if opened is None:
        return Outgoing(fault=SECRET_LOST)
    body, trace = said.encode(), _trace(store, config.task)
    secret = key.secret(config.owner)
    if store.agents.agent_by_uid(config.owner) is None:  # a guest
        owner = store.agents.anywhere(config.owner)
        secret = secret if owner is None else key.of(owner.org).secret(owner.uid)
    signed = key.headers([secret], push.id, now, body)
    traced = [(TRACEPARENT, trace)] if trace else []
    return Outgoing([*_headers(config, *opened), *signed, *traced], body)


def place(key: str, name: str) -> str:
    """What a secret of the config `key` is bound to; `name` is its column."""
    return f"push_configs/{key}/{name}"


def opened_of(config: ConfigRow, sealer: Sealer) -> tuple[str, str] | None:
    """Token and credentials of a config; None if they are lost."""
    if not config.sealed:
        return config.token, config.credentials
    token = sealer.open(config.token, place(config.key, "token"))
    credentials = sealer.open(config.credentials, place(config.key, "credentials"))
    return None if token is None or credentials is None else (token, credentials)


def _trace(store: Store, task: str) -> str:
    row = store.tasks.task_by_id(task)
    if row is None or TRACEPARENT not in row.snapshot:
        return ""
    history = json.loads(row.snapshot).get("history") or [{}]
    return trace_of(history[0])


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


def _headers(config: ConfigRow, token: str, credentials: str) -> list[tuple[str, str]]:
    """The headers of a push, without its signature."""
    media = "application/json" if config.version == OLD else "application/a2a+json"
    found = [("content-type", media), ("a2a-version", config.version)]
    if token:
        found.extend((name, token) for name in TOKENS)
    if config.scheme and credentials:
        found.append(("authorization", f"{config.scheme} {credentials}"))
    return found
