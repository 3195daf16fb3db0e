"""Who may read a blob, folded from the log: what names it passes it on, from who may read it to whom it is for.

A message does so from its sender to its recipient, a record of a task from its worker to who asked for the task. To
name a blob that one may not read oneself gives nobody anything, so no hash can be guessed or fished for: not by a
request either, which its worker repeats in the history of the task.
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
from postroom.store import blobs, tasks
from postroom.store.database import Connection

_NAME = PREFIX.encode()


def _fold_message(connection: Connection, record: Message) -> Sequence[Change]:
    if _NAME not in record.payload:
        return ()
    try:
        said = subjects.parse(record.subject)
        envelope = Envelope.decode(record.payload)
    except (InvalidInput, ProtocolViolation):
        return ()
    if envelope.to == said.recipient:
        blobs.pass_on(connection, named_in(envelope.message), said.sender, said.recipient)
    return ()


def _fold_record(connection: Connection, record: Message) -> Sequence[Change]:
    """A record of TASKS, if it counted: then there is an event of its sequence."""
    if _NAME not in record.payload:
        return ()
    for event in tasks.events_at(connection, [record.sequence]):
        row = tasks.task_by_id(connection, event.task)
        if row is not None:
            said = json.loads(event.event) if event.event else _of_worker(row.snapshot)
            blobs.pass_on(connection, named_in(said), row.worker, row.requester)
    return ()


def _of_worker(snapshot: str) -> list[Any]:
    """What the worker says in a task: not its history, which has the words of who asked."""
    task = json.loads(snapshot)
    return [task["status"], task.get("artifacts")]


RULES: dict[str, tuple[Rule, ...]] = {"INBOX": (_fold_message,), "TASKS": (_fold_record,)}
"""Behind those of tasks, which say whether a record counts."""
