"""Records of PRIORITY: what must overtake work (docs/architecture.md, Tasks).

To who runs a task, from who asked for it, its owner or the control plane:

    {"v": 1, "kind": "cancel", "task", "reason"?}
    {"v": 1, "kind": "input", "task", "message": {A2A Message}}

To who is to run a task whose request lies behind messages, from the control plane:

    {"v": 1, "kind": "requested", "task"}

To who asked for a task, from the control plane, after the record was stored and folded:

    {"v": 1, "kind": "update", "task", "worker", "request", "sequence", "attempt", "state",
     "update": {A2A StreamResponse}}
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from postroom.errors import ProtocolViolation
from postroom.protocol.ids import MESSAGE_ID, UID
from postroom.protocol.limits import MAX_REASON, MAX_RECORD_VALUES
from postroom.protocol.records import PRIORITY_DEPTH, read_record
from postroom.protocol.tasks import TASK_ID
from postroom_a2a import strict_json
from postroom_a2a.task_state import TaskState
from postroom_a2a.text import one_line


@dataclass(frozen=True, slots=True)
class Cancel:
    """End this task."""

    task: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Input:
    """The answer to a task in `input-required` or `auth-required`.

    Attributes:
        message: A2A Message.
    """

    task: str
    message: dict[str, Any] = field(hash=False)


@dataclass(frozen=True, slots=True)
class Update:
    """A change of a task that the recipient requested.

    Attributes:
        worker: uid.
        request: id of the message that requested it.
        sequence: of the record in TASKS; a later one has a greater one.
        attempt: 0 before the first one.
        update: A2A StreamResponse; it holds a `task` where the change ends or interrupts the task.
    """

    task: str
    worker: str
    request: str
    sequence: int
    attempt: int
    state: TaskState
    update: dict[str, Any] = field(hash=False)


@dataclass(frozen=True, slots=True)
class Requested:
    """A request for this task, and perhaps for others, lies behind messages that are not confirmed."""

    task: str


PriorityRecord = Cancel | Input | Update | Requested


def encode(record: PriorityRecord) -> bytes:
    """The record's payload."""
    match record:
        case Cancel(task, reason):
            said = {"kind": "cancel", "task": task} | ({"reason": reason} if reason else {})
        case Input(task, message):
            said = {"kind": "input", "task": task, "message": message}
        case Requested(task):
            said = {"kind": "requested", "task": task}
        case Update():
            said = {
                "kind": "update",
                "task": record.task,
                "worker": record.worker,
                "request": record.request,
                "sequence": record.sequence,
                "attempt": record.attempt,
                "state": record.state.value,
                "update": record.update,
            }
    return strict_json.dumps({"v": 1, **said})


def decode(payload: bytes) -> PriorityRecord:
    """The record in a payload."""
    record = read_record(payload, PRIORITY_DEPTH, MAX_RECORD_VALUES)
    task = record.get("task")
    if record.get("v") != 1 or not isinstance(task, str) or TASK_ID.fullmatch(task) is None:
        raise ProtocolViolation("not a priority record of version 1")
    match record.get("kind"):
        case "cancel":
            return Cancel(task, one_line(str(record.get("reason", "")), MAX_REASON))
        case "input":
            return Input(task, _object(record, "message"))
        case "requested":
            return Requested(task)
        case "update":
            return _update(task, record)
    raise ProtocolViolation("a priority record of no known kind")


def _update(task: str, record: dict[str, Any]) -> Update:
    worker, request = record.get("worker"), record.get("request")
    if not isinstance(worker, str) or UID.fullmatch(worker) is None:
        raise ProtocolViolation("an update names the worker")
    if not isinstance(request, str) or MESSAGE_ID.fullmatch(request) is None:
        raise ProtocolViolation("an update names the request")
    try:
        state = TaskState(str(record.get("state")))
    except ValueError as error:
        raise ProtocolViolation("an update names a state") from error
    return Update(
        task,
        worker,
        request,
        _number(record, "sequence"),
        _number(record, "attempt"),
        state,
        _object(record, "update"),
    )


def _object(record: dict[str, Any], key: str) -> dict[str, Any]:
    value = record.get(key)
    if not isinstance(value, dict):
        raise ProtocolViolation(f"{key} is no object")
    return value


def _number(record: dict[str, Any], key: str) -> int:
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise ProtocolViolation(f"{key} is no number")
    return value
