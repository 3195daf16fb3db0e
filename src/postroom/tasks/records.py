"""Records of TASKS: one change of a task each, with the snapshot after it (docs/architecture.md, Tasks).

    {"v": 1, "request", "requester", "attempt", "lost", "runner", "released"?, "task": {A2A Task},
     "event"?: {A2A StreamResponse}}

The first record of a task has no event: the task itself is it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

from postroom.errors import InvalidInput, MessageTooLarge, ProtocolViolation
from postroom.protocol import subjects
from postroom.protocol.ids import MESSAGE_ID, UID
from postroom.protocol.limits import MAX_TASK_BYTES, TASK_DEPTH
from postroom.protocol.records import read_record, too_deep
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import Event, Message, Task, apply, state_of

MAX_RUNNER = 64


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """One change of a task.

    Attributes:
        event: the change; None for the first record.
        request: id of the message that asked for the task.
        attempt: number of attempts so far.
        lost: how many of them ended without a report.
        runner: the start of the worker that wrote it, or the control plane's uid.
        released: the runner has stopped working on it, so a new attempt counts no lost one.
    """

    task: Task = field(hash=False)
    request: str
    requester: str
    event: Event | None = field(default=None, hash=False)
    attempt: int = 0
    lost: int = 0
    runner: str = ""
    released: bool = False

    @property
    def id(self) -> str:
        """Id of the task."""
        return str(self.task["id"])

    @property
    def state(self) -> TaskState:
        """The state after the change."""
        return state_of(self.task)

    def then(self, event: Event, *, heard: Message | None = None, **changes: Any) -> TaskRecord:
        """The record of `event`; `changes` are further fields of it, `heard` as in `tasks.apply`."""
        after = apply(self.task, event, heard=heard)
        return replace(self, **{"task": after, "event": event, "released": False, **changes})

    def fitting(self) -> TaskRecord:
        """This record or, if the task has no room for it, a shorter one.

        That a task goes on, or is over, matters more than a line of text or, at its end, than its content, which
        earlier records still hold.
        """
        try:
            self.encode()
        except MessageTooLarge:
            status = {key: value for key, value in self.task["status"].items() if key != "message"}
            if self.state.terminal:
                kept = {key: self.task[key] for key in ("id", "contextId", "status")}
                return replace(self, task=kept)
            return replace(self, task={**self.task, "status": status})
        return self

    def subject(self, worker: str) -> str:
        """The subject under which it is stored."""
        return subjects.task(worker, self.id, self.state.value)

    def encode(self) -> bytes:
        """The payload.

        Raises:
            MessageTooLarge: the snapshot is over `MAX_TASK_BYTES`.
            InvalidInput: it holds a value that JSON cannot express.
        """
        head: dict[str, Any] = {
            "v": 1,
            "request": self.request,
            "requester": self.requester,
            "attempt": self.attempt,
            "lost": self.lost,
            "runner": self.runner,
        }
        if self.released:
            head["released"] = True
        task = _json(self.task)
        if len(task) > MAX_TASK_BYTES:
            raise MessageTooLarge(
                f"the task would have {len(task)} bytes, the limit is {MAX_TASK_BYTES}",
                remedy="put large content into a file and name the file",
            )
        event = b"" if self.event is None else b',"event":' + _json(self.event)
        payload = _json(head)[:-1] + b',"task":' + task + event + b"}"
        if too_deep({"task": self.task, "event": self.event}, payload, TASK_DEPTH):
            raise InvalidInput(f"the task is nested more than {TASK_DEPTH} deep")
        return payload

    @classmethod
    def decode(cls, payload: bytes) -> TaskRecord:
        """The record in a payload."""
        record = read_record(payload, TASK_DEPTH)
        task, event = record.get("task"), record.get("event")
        if record.get("v") != 1 or not isinstance(task, dict) or not _is_task(task):
            raise ProtocolViolation("not a task record of version 1")
        if event is not None and not isinstance(event, dict):
            raise ProtocolViolation("the event of a task record is no object")
        request, requester = record.get("request"), record.get("requester")
        if not isinstance(request, str) or MESSAGE_ID.fullmatch(request) is None:
            raise ProtocolViolation("a task record names its request")
        if not isinstance(requester, str) or UID.fullmatch(requester) is None:
            raise ProtocolViolation("a task record names its requester")
        return cls(
            task=task,
            request=request,
            requester=requester,
            event=event,
            attempt=_count(record, "attempt"),
            lost=_count(record, "lost"),
            runner=str(record.get("runner", ""))[:MAX_RUNNER],
            released=record.get("released") is True,
        )


def _is_task(task: dict[str, Any]) -> bool:
    try:
        state_of(task)
    except InvalidInput:
        return False
    texts = (task.get("id"), task.get("contextId"))
    history, artifacts = task.get("history", []), task.get("artifacts", [])
    return (
        all(isinstance(text, str) for text in texts)
        and _objects(history)
        and _objects(artifacts)
        and all(
            isinstance(each.get("artifactId"), str) and _objects(each.get("parts"))
            for each in artifacts
        )
    )


def _objects(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, dict) for each in value)


def _count(record: dict[str, Any], key: str) -> int:
    value = record.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        raise ProtocolViolation(f"{key} is no number")
    return value


def _json(value: object) -> bytes:
    try:
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"the task cannot be written as JSON: {error}") from error
    return text.encode("utf-8", errors="replace")
