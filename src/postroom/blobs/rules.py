"""Folds from the log who may read a blob.

A message that names a blob gives its recipient the right to read it, if the sender has that right. A record of a task
does the same, from its worker to the task's requester; a post and an announcement, for everybody of the organisation.
Naming a blob that one may not read gives nobody anything, so no agent can gain a blob by guessing its hash. A request
is no way around that, although its worker repeats it in the history of the task.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from postroom.bus.port import Message
from postroom.errors import InvalidInput, ProtocolViolation
from postroom.projection.changes import Change
from postroom.projection.rules import Rule
from postroom.protocol import subjects
from postroom.protocol.blobs import PREFIX, named_in
from postroom.protocol.envelope import Envelope
from postroom.store.blobs import EVERYBODY
from postroom.store.database import Store

_NAME = PREFIX.encode()


def _fold_message(store: Store, record: Message) -> Sequence[Change]:
    if _NAME not in record.payload:
        return ()
    try:
        said = subjects.parse(record.subject)
        envelope = Envelope.decode(record.payload)
    except (InvalidInput, ProtocolViolation):
        return ()
    if envelope.to == said.recipient:
        store.blobs.pass_on(named_in(envelope.message), said.sender, said.recipient)
    return ()


def _fold_post(store: Store, record: Message) -> Sequence[Change]:
    """A post, if it counted: then a row has its sequence. Everybody of the organisation may read a feed."""
    if _NAME in record.payload and store.records.has_post(record.sequence):
        said = subjects.parse(record.subject)
        named = named_in(Envelope.decode(record.payload).message)
        store.blobs.pass_on(named, said.sender, EVERYBODY)
    return ()


def _fold_announcement(store: Store, record: Message) -> Sequence[Change]:
    """An announcement, if it counted: then a row has its sequence."""
    if _NAME in record.payload and store.announcements.has(record.sequence):
        named = named_in(Envelope.decode(record.payload).message)
        store.blobs.pass_on(named, subjects.parse(record.subject).sender, EVERYBODY)
    return ()


def _fold_record(store: Store, record: Message) -> Sequence[Change]:
    """A record of TASKS, if it counted: then an event has its sequence."""
    if _NAME not in record.payload:
        return ()
    for event in store.tasks.events_at([record.sequence]):
        row = store.tasks.head_by_id(event.task)
        if row is not None:
            said = json.loads(event.event) if event.event else _of_worker(store, row.id)
            store.blobs.pass_on(named_in(said), row.worker, row.requester)
    return ()


def _of_worker(store: Store, task_id: str) -> list[Any]:
    """The worker's own part of a task: not its history, which holds the requester's words."""
    row = store.tasks.task_by_id(task_id)
    task = json.loads(row.snapshot) if row is not None else {}
    return [task.get("status"), task.get("artifacts")]


RULES: dict[str, tuple[Rule, ...]] = {
    "INBOX": (_fold_message,),
    "FEED": (_fold_post,),
    "TASKS": (_fold_record,),
    "OUTBOX": (_fold_announcement,),
}
"""These run after the rules of posts, tasks and announcements, which decide whether a record counts."""
