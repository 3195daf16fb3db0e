"""What a push says, in the version of A2A that its receiver speaks."""

from __future__ import annotations

import json

from postroom.store.database import Store
from postroom.store.ports import TaskEventRow
from postroom.store.pushes import ConfigRow
from postroom.tasks.operations import stream_response
from postroom_a2a.ecma_json import dumps
from postroom_a2a.http.v03_objects import task_down
from postroom_a2a.task_state import TaskState

OLD = "0.3"
"""The version in which a push is the whole task, as it is at the attempt."""

TOKENS = ("X-A2A-Notification-Token", "A2A-Notification-Token")
"""A2A names no header for a config's token; each of its reference libraries reads one of these."""


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
