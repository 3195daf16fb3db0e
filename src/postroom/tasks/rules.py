"""The rules that fold requests from INBOX and changes from TASKS into rows, and when records are over
(docs/architecture.md, Tasks).

A worker may store anything under its own uid. A record counts only if it is the next link of the chain of a task that
somebody requested from this worker; any other record has no effect.
"""

from __future__ import annotations

from typing import Any

from postroom.bus.port import Message
from postroom.errors import InvalidInput, ProtocolViolation
from postroom.projection.changes import Change
from postroom.projection.fold import Order
from postroom.projection.retention import Over
from postroom.projection.rules import Early, Rule
from postroom.protocol import priority, subjects
from postroom.protocol.blobs import PREFIX
from postroom.protocol.envelope import Envelope, TaskRequest
from postroom.protocol.ids import UID
from postroom.protocol.limits import MAX_SAID, MAX_TASK_BYTES, MAX_TASK_EVENT_BYTES
from postroom.protocol.tasks import EXPECTED, Door, follows, parse_task_subject, task_id
from postroom.store.database import Store
from postroom.store.ports import TaskEventRow, TaskHead, TaskRow
from postroom.store.session import values_of
from postroom.tasks.records import Link, Weight, artifact_size
from postroom_a2a import strict_json
from postroom_a2a.messages import context_of, text_of
from postroom_a2a.task_state import TaskState, allowed
from postroom_a2a.tasks import new_task, state_of, status_text


def may_request(record: Message) -> bool:
    """Whether a record of INBOX may request a task; saves decoding most messages twice."""
    return b'"request"' in record.payload or b"\\u" in record.payload


def fold_request(store: Store, record: Message) -> list[Change]:
    """A record of INBOX: a request creates a task.

    This holds even if its sender has used the message's id before, toward another recipient. For messages that is a
    copy, but the worker takes the request, and people must see what a worker works on.
    """
    if not may_request(record):
        return []
    try:
        said = subjects.parse(record.subject)
        envelope = Envelope.decode(record.payload)
    except (InvalidInput, ProtocolViolation):
        return []
    worker, requester = said.recipient, said.sender
    if envelope.request is None or envelope.to != worker:
        return []
    if UID.fullmatch(worker) is None or UID.fullmatch(requester) is None:
        return []
    named = task_id(worker, requester, envelope.id)
    context = context_of(envelope.message) or named
    try:
        task = new_task(named, context, envelope.message, record.timestamp)
        snapshot = _text(task)
    except RecursionError:
        return []  # nested so deep that no record of it could be stored either
    row = TaskRow(
        id=named,
        worker=worker,
        requester=requester,
        request=envelope.id,
        requested_seq=record.sequence,
        context_id=context,
        skill=envelope.request.skill,
        stream=envelope.request.stream,
        door=_door(store, requester, envelope.request),
        retry_of=_retried(store, envelope, worker, requester),
        text=text_of(envelope.message),
        snapshot=snapshot,
        created_at=record.timestamp,
        updated_at=record.timestamp,
    )
    return [_change(row)] if store.tasks.insert_task(row) else []


def _door(store: Store, requester: str, request: TaskRequest) -> str:
    """The door of a request. A worker has the bus alone; in the name of all others the control plane alone writes."""
    return request.door if _has_no_bus(store, requester) else Door.BUS


def _has_no_bus(store: Store, uid: str) -> bool:
    agent = store.agents.agent_by_uid(uid)
    return agent is not None and agent.kind != "worker"


def _retried(store: Store, envelope: Envelope, worker: str, requester: str) -> str:
    """The task that is asked for again, "" for none. A worker retries what it asked for itself, and nothing else."""
    named = envelope.request.retry_of if envelope.request is not None else ""
    if not named and envelope.requeue_of:
        named = task_id(worker, requester, envelope.requeue_of)
    before = store.tasks.head_by_id(named) if named else None
    if before is None or (before.requester != requester and not _has_no_bus(store, requester)):
        return ""
    return before.id


def fold_record(store: Store, record: Message) -> list[Change]:
    """A record of TASKS: if it is the task's next link, the task's row takes its content."""
    said = parse_task_subject(record.subject)
    if said is None:
        return []
    worker, task, state = said
    head = store.tasks.head_by_id(task)
    if head is None and record.metadata.get(EXPECTED) == "0":
        # Its request was stored before it, so it may be on its way here. A later record follows one that is folded.
        raise Early
    if head is None or head.worker != worker or head.final:
        return []
    before = TaskState(head.state) if head.seq else None
    if not follows(record.metadata, worker, task, head.seq) or not allowed(before, state):
        return []
    try:
        row, event, answer = _change_of(record, head, state)
    except (ProtocolViolation, RecursionError):
        return []
    if row.snapshot and head.snapshot_seq:
        store.tasks.drop_snapshot(head.snapshot_seq)
    counted = TaskEventRow(
        seq=row.seq,
        task=row.id,
        worker=row.worker,
        state=row.state,
        attempt=row.attempt,
        runner=row.runner,
        at=row.updated_at,
        event=event,
        answer=answer,
    )
    store.tasks.record_change(row, counted)
    return [_change(row, counted)]


def _change_of(record: Message, head: TaskHead, state: TaskState) -> tuple[TaskRow, str, str]:
    """The task after a record, with the record's snapshot or ""; its event and the answer as JSON texts, "" for none.

    Raises:
        ProtocolViolation: it is no change of this task.
    """
    link = Link.decode(record.payload)
    if (link.request, link.requester) != (head.request, head.requester):
        raise ProtocolViolation("a record of another task")
    if link.event is not None and not _is_event(link.event, state):
        raise ProtocolViolation("an event of another state, or of none")
    event, answer, snapshot = (_text(each) for each in (link.event, link.answer, link.task))
    if _size(event) > MAX_TASK_EVENT_BYTES:
        raise ProtocolViolation("an event that is too large")
    if link.task is None:
        weight = _weight(link, head, _size(event), _size(answer))
        snapshot_seq, said = head.snapshot_seq, _said(link, head, state)
    else:
        weight = Weight(_size(snapshot))
        snapshot_seq, said = record.sequence, status_text(link.task)
        if (link.task["id"], state_of(link.task)) != (head.id, state):
            raise ProtocolViolation("a snapshot of another task, or of another state")
        if weight.size > MAX_TASK_BYTES:
            raise ProtocolViolation("a snapshot that is too large")
    after: dict[str, Any] = values_of(head) | {
        "state": state.value,
        "seq": record.sequence,
        "attempt": link.attempt,
        "lost": link.lost,
        "runner": link.runner,
        "released": link.released,
        "said": said[:MAX_SAID],
        "snapshot_seq": snapshot_seq,
        "weight": weight.size,
        "since": weight.since,
        "final": state.terminal,
        "updated_at": record.timestamp,
    }
    return TaskRow(**after, snapshot=snapshot), event, answer


def _weight(link: Link, head: TaskHead, event: int, answer: int) -> Weight:
    """What the task weighs after a record without a snapshot; the arguments are bytes.

    Raises:
        ProtocolViolation: such a record cannot follow.
    """
    if link.event is None or not head.seq:
        raise ProtocolViolation("the first record of a task is the task")
    artifact = artifact_size(link.event, event)
    weight = Weight(head.weight, head.since).plus(link.event, event, artifact, answer)
    if not weight.bounded:
        raise ProtocolViolation("a snapshot is missing")
    return weight


def _said(link: Link, head: TaskHead, state: TaskState) -> str:
    update = (link.event or {}).get("statusUpdate")
    if update is not None:
        return status_text(update)
    if state != head.state:
        raise ProtocolViolation("an artifact changes no state")
    return head.said


def _builds(record: Message) -> bool:
    # A message that names a blob passes on what its worker may read.
    return PREFIX.encode() in record.payload


def _is_event(event: dict[str, Any], state: TaskState) -> bool:
    """Whether it is one of the two kinds of event that a record may carry, with the fields that its readers need."""
    match event:
        case {"statusUpdate": {"status": dict(status)} as update} if len(event) == 1:
            try:
                same = state_of({"status": status}) is state
            except InvalidInput:
                return False
            return same and isinstance(update.get("metadata", {}), dict)
        case {"artifactUpdate": {"artifact": {"artifactId": str(), "parts": list(parts)}}}:
            return len(event) == 1 and all(isinstance(part, dict) for part in parts)
    return False


def _text(value: dict[str, Any] | None) -> str:
    """JSON text, "" for None."""
    return "" if value is None else strict_json.dumps(value).decode()


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _change(row: TaskRow, event: TaskEventRow | None = None) -> Change:
    return Change(
        "task", row.seq, row.id, row.requester, row.worker, state=row.state, row=row, event=event
    )


RULES: dict[str, tuple[Rule, ...]] = {"INBOX": (fold_request,), "TASKS": (fold_record,)}
"""The rules of each stream."""

ORDER = {"TASKS": Order(("INBOX",), builds=_builds)}
"""A record that names a blob comes after the messages before it. Where the first record of a task comes before its
request, `fold_record` says so.
"""

LONGER = 6 * 86400.0
"""Seconds beyond `KEEP` that PRIORITY keeps a record about a task that is still open."""


def _record_over(store: Store, record: Message, before: float) -> bool:
    said = parse_task_subject(record.subject)
    return said is None or _over(store, said[1], before)


def _priority_over(store: Store, record: Message, before: float) -> bool:
    # PRIORITY is not folded: its content is in TASKS too, or waits for the task's worker.
    try:
        task = priority.decode(record.payload).task
    except ProtocolViolation:
        return True
    return record.timestamp < before - LONGER or _over(store, task, before)


def _over(copy: Store, task: str, before: float) -> bool:
    row = copy.tasks.head_by_id(task)
    return row is None or (row.final and row.updated_at < before)


OVER: dict[str, Over] = {
    "TASKS": Over(_record_over),
    "PRIORITY": Over(_priority_over, folded=False),
}
