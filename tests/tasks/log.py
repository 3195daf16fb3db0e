"""Records of tasks made by hand, and the task that a request makes; no bus, no clock."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from postroom.bus.port import Message
from postroom.mail import projection
from postroom.projection.rules import Folded, fold, together
from postroom.protocol.envelope import TaskRequest
from postroom.protocol.tasks import chain_headers, task_id
from postroom.store.database import Store
from postroom.store.ports import TaskRow
from postroom.tasks.records import TaskRecord
from postroom.tasks.rules import RULES as TASK_RULES
from postroom_a2a.messages import text_message
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import apply, artifact_update, new_task, status_update, text_artifact
from tests.mail.log import ALICE, BOB, Record, Rows, envelope, inbox

RULES = together(projection.RULES, TASK_RULES)

RUN = "1" * 32


def request(seq: int, message_id: str = "m", **fields: Any) -> Record:
    """Alice asks Bob for a task."""
    asked = fields.pop("request", TaskRequest())
    return inbox(seq, envelope(message_id, request=asked, expects_reply=True, **fields))


TASK = task_id(BOB, ALICE, "m")

FIRST = TaskRecord(
    new_task(TASK, TASK, text_message("m", "text of m"), 1001.0), "m", ALICE, runner=RUN
)
"""What Bob's sidecar stores first."""


def next_of(
    before: TaskRecord, state: TaskState, text: str = "", *, artifact: str = ""
) -> TaskRecord:
    """The record that follows `before`."""
    if artifact:
        event = artifact_update(before.task, text_artifact("a", artifact))
    else:
        said = text_message("s", text) if text else None
        event = status_update(before.task, state, 1002.0, said)
    return replace(before, task=apply(before.task, event), event=event, attempt=1)


def stored(
    seq: int,
    record: TaskRecord | bytes,
    follows: int,
    *,
    worker: str = BOB,
    task: str = TASK,
    state: str = "",
    headers: dict[str, str] | None = None,
) -> Message:
    """`record` as the log has it, behind sequence `follows`."""
    body = record if isinstance(record, bytes) else record.encode()
    told = state or (record.state.value if isinstance(record, TaskRecord) else "working")
    subject = f"worker.{worker}.tasks.{task}.{told}"
    chained = chain_headers(worker, task, follows) if headers is None else headers
    return Message("", worker, subject, body, chained, 3000.0 + seq, seq)


def fold_all(store: Store, *given: Record) -> list[Folded]:
    return [fold(store, RULES, stream, [record]) for stream, record in given]


def fold_tasks(store: Store, *given: Message) -> list[Folded]:
    return fold_all(store, *(("TASKS", record) for record in given))


def row_of(store: Store, task: str = TASK) -> TaskRow:
    row = store.tasks.task_by_id(task)
    assert row is not None
    return row


def asked() -> Rows:
    """A projection in which Alice has asked Bob for `TASK`."""
    rows = Rows()
    fold_all(rows.store, request(1))
    return rows


def with_task(record: TaskRecord, **changed: Any) -> TaskRecord:
    return replace(record, task={**record.task, **changed})


def hostile(record: TaskRecord, **changed: Any) -> bytes:
    """The record's payload with other fields."""
    return json.dumps(json.loads(record.encode()) | changed).encode()
