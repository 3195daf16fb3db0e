"""Records of TASKS: one change of a task each (docs/architecture.md, Tasks).

    {"v": 2, "request", "requester", "attempt", "lost", "runner", "released"?, "task"?: {A2A Task},
     "event"?: {A2A StreamResponse}, "answer"?: {A2A Message}}

`event` is the change, and the task is what `postroom_a2a.tasks.apply` makes of it and of the task before. Where a
snapshot is due (`Weight`), `task` is the task after the change. The first record has no event: the task is it.
`answer` is the message that the event brings into the history, unless a snapshot shows it. Version 1 had a snapshot in
each record.

A snapshot follows every 64 records and every 64 KiB of events, but not before the events weigh half as much as the
snapshot: so all snapshots together weigh at most twice as much as the events, and what is stored of a task grows with
what is said. It follows at the end, too, and whenever the task might else be larger than a task may be. Readers hold to
the last rule as well (`Weight.bounded`): a worker that leaves snapshots out makes no task that is too large to read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

from postroom.errors import InvalidInput, MessageTooLarge, ProtocolViolation
from postroom.protocol import subjects
from postroom.protocol.ids import MESSAGE_ID, UID
from postroom.protocol.limits import MAX_RECORD_VALUES, MAX_TASK_BYTES, MAX_TASK_VALUES, TASK_DEPTH
from postroom.protocol.records import AS_FILE, check_written, read_record
from postroom_a2a import strict_json
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import Event, Message, Task, apply, state_of

MAX_RUNNER = 64

_ANSWER_DEPTH = TASK_DEPTH - 3
"""Levels of an answer: in a snapshot it lies within record, task and history."""

SNAPSHOT_RECORDS = 64
SNAPSHOT_BYTES = 64 * 1024
"""Records, and bytes of events, after which a snapshot follows."""

STATUS_ROOM = 2048
"""Bytes of a status for which there is always room: so much progress needs no snapshot, however full the task is."""

_AROUND = 32
"""Bytes of JSON around what an event adds to a task, at most."""


@dataclass(frozen=True, slots=True)
class Weight:
    """What a task weighs after a record.

    Attributes:
        size: bytes of the task, at most; a status of `STATUS_ROOM` comes on top.
        since: bytes of the events since the last snapshot, with the answers beside them.
        records: the records since then.
    """

    size: int
    since: int = 0
    records: int = 0

    def plus(self, event: Event, size: int, artifact: int, answer: int = 0) -> Weight:
        """What it weighs after a further event.

        Args:
            size: bytes of the event.
            artifact: bytes of the event's artifact, 0 for a status.
            answer: bytes of the answer that came with it.
        """
        return Weight(
            self.size + _more(event, size, artifact, answer),
            self.since + size + answer,
            self.records + 1,
        )

    @property
    def bounded(self) -> bool:
        """Whether the task is surely within its limit, and its events are quickly read."""
        return self.size + STATUS_ROOM <= MAX_TASK_BYTES and self.since <= MAX_TASK_BYTES

    @property
    def due(self) -> bool:
        """Whether the next record is to hold a snapshot."""
        # One more status of room than readers ask for: they may write JSON a few bytes longer.
        if self.size + 2 * STATUS_ROOM > MAX_TASK_BYTES:
            return True
        often = self.records >= SNAPSHOT_RECORDS or self.since >= SNAPSHOT_BYTES
        return often and 2 * self.since >= self.size


def _more(event: Event, size: int, artifact: int, answer: int) -> int:
    """The bytes that an event adds to a task, at most."""
    if artifact:
        return artifact + _AROUND
    update = event.get("statusUpdate", {})
    # A question stays in the history once it is answered, metadata stay for ever.
    stays = (
        bool(update.get("metadata")) or TaskState.from_a2a(update["status"]["state"]).interrupted
    )
    return max(0, size - STATUS_ROOM) if not (stays or answer) else size + answer + _AROUND


@dataclass(frozen=True, slots=True)
class Link:
    """A record of TASKS as it is read: without a snapshot, it makes sense only after the one before it.

    Attributes:
        event: the change; None for the first record.
        task: the task after the change; None if the record holds no snapshot.
        answer: the message that the change brings into the history.
        request: id of the message that asked for the task.
        attempt: number of attempts so far.
        lost: how many of them ended without a report.
        runner: the start of the worker that wrote it, or the control plane's uid.
        released: the runner has stopped working on it, so a new attempt counts no lost one.
    """

    request: str
    requester: str
    event: Event | None = field(default=None, hash=False)
    task: Task | None = field(default=None, hash=False)
    answer: Message | None = field(default=None, hash=False)
    attempt: int = 0
    lost: int = 0
    runner: str = ""
    released: bool = False

    @classmethod
    def decode(cls, payload: bytes) -> Link:
        """The record in a payload.

        Raises:
            ProtocolViolation: it is none, or it lacks the snapshot of a first or a last record.
        """
        record = read_record(payload, TASK_DEPTH, MAX_RECORD_VALUES)
        version, task, event = record.get("v"), record.get("task"), record.get("event")
        if version != 2 or not (task is None or _is_task(task)):
            raise ProtocolViolation("not a task record of version 2")
        if event is not None and not isinstance(event, dict):
            raise ProtocolViolation("the event of a task record is no object")
        if task is None and (event is None or _ends(event)):
            raise ProtocolViolation("a task record without its snapshot")
        answer = record.get("answer")
        if answer is not None and (not isinstance(answer, dict) or _deep(answer)):
            raise ProtocolViolation("the answer in a task record is no message")
        request, requester = record.get("request"), record.get("requester")
        if not isinstance(request, str) or MESSAGE_ID.fullmatch(request) is None:
            raise ProtocolViolation("a task record names its request")
        if not isinstance(requester, str) or UID.fullmatch(requester) is None:
            raise ProtocolViolation("a task record names its requester")
        return cls(
            request=request,
            requester=requester,
            event=event,
            task=task,
            answer=answer if task is None else None,
            attempt=_count(record, "attempt"),
            lost=_count(record, "lost"),
            runner=str(record.get("runner", ""))[:MAX_RUNNER],
            released=record.get("released") is True,
        )

    def after(self, before: Task | None) -> TaskRecord:
        """The record with its task, which it makes of the one before.

        Raises:
            ProtocolViolation: there is no task before it, and it holds no snapshot.
        """
        task = self.task
        if task is None:
            if before is None or self.event is None:
                raise ProtocolViolation("a task record without the task that it changes")
            task = apply(before, self.event, answer=self.answer)
        return TaskRecord(
            task,
            self.request,
            self.requester,
            self.event,
            self.attempt,
            self.lost,
            self.runner,
            self.released,
            self.answer,
        )


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """One change of a task, with the task after it.

    Attributes:
        event, answer, request, attempt, lost, runner, released: as in `Link`.
    """

    task: Task = field(hash=False)
    request: str
    requester: str
    event: Event | None = field(default=None, hash=False)
    attempt: int = 0
    lost: int = 0
    runner: str = ""
    released: bool = False
    answer: Message | None = field(default=None, hash=False)

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
        after = apply(self.task, event, answer=heard)
        fields = {"task": after, "event": event, "answer": heard, "released": False, **changes}
        return replace(self, **fields)

    def same_as(self, other: TaskRecord) -> bool:
        """Whether both say the same of the task, whatever the change was."""
        bare = {"event": None, "answer": None}
        mine = replace(self, task=json.loads(_json(self.task)), **bare)
        return mine == replace(other, task=json.loads(_json(other.task)), **bare)

    def fitting(self) -> TaskRecord:
        """This record or, if the task has no room for it, `shortened`."""
        try:
            self.encode()
        except MessageTooLarge:
            return self.shortened()
        return self

    def shortened(self) -> TaskRecord:
        """This record without its text or, at the task's end, without all else.

        That a task goes on, or is over, matters more than a line of text or, at its end, than its content, which
        earlier records still hold. Its snapshot is not what its event makes, so it has to be stored.
        """
        status = {key: value for key, value in self.task["status"].items() if key != "message"}
        if self.state.terminal:
            kept = {key: self.task[key] for key in ("id", "contextId", "status")}
            return replace(self, task=kept)
        return replace(self, task={**self.task, "status": status})

    def subject(self, worker: str) -> str:
        """The subject under which it is stored."""
        return subjects.task(worker, self.id, self.state.value)

    def encode(self) -> bytes:
        """The payload with a snapshot. Raises as `packed`."""
        return self.packed(None)[0]

    def packed(self, before: Weight | None) -> tuple[bytes, Weight]:
        """The payload, and what the task weighs then.

        Args:
            before: what it weighed before; None if nobody knows, so that a snapshot is needed.

        Raises:
            MessageTooLarge: the snapshot is over `MAX_TASK_BYTES` or `MAX_TASK_VALUES`.
            InvalidInput: it holds a value that JSON cannot express.
        """
        event = b"" if self.event is None else _json(self.event)
        answer = heard = b"" if self.answer is None else _json(self.answer)
        weight = None
        if before is not None and self.event is not None and not self.state.terminal:
            weight = before.plus(
                self.event, len(event), artifact_size(self.event, len(event)), len(answer)
            )
        snapshot = b""
        if weight is None or weight.due:
            snapshot, answer = _json(self.task), b""
            weight = Weight(len(snapshot))
        if len(snapshot) > MAX_TASK_BYTES:
            raise MessageTooLarge(
                f"the task would have {len(snapshot)} bytes, the limit is {MAX_TASK_BYTES}",
                remedy=AS_FILE,
            )
        parts = {b"task": snapshot, b"event": event, b"answer": answer}
        said = b"".join(b',"%s":%s' % part for part in parts.items() if part[1])
        payload = _json(self._head())[:-1] + said + b"}"
        check_written(payload, "the task", TASK_DEPTH, MAX_RECORD_VALUES)
        check_written(snapshot or event, "the task", TASK_DEPTH, MAX_TASK_VALUES)
        check_written(heard, "the task", _ANSWER_DEPTH, MAX_TASK_VALUES)
        return payload, weight

    def _head(self) -> dict[str, Any]:
        head: dict[str, Any] = {
            "v": 2,
            "request": self.request,
            "requester": self.requester,
            "attempt": self.attempt,
            "lost": self.lost,
            "runner": self.runner,
        }
        if self.released:
            head["released"] = True
        return head


def artifact_size(event: Event, size: int) -> int:
    """The bytes of the artifact in an event of `size` bytes, 0 if it has none."""
    update = event.get("artifactUpdate")
    if update is None:
        return 0
    return size - len(_json({"artifactUpdate": {**update, "artifact": 0}})) + 1


def _ends(event: dict[str, Any]) -> bool:
    update = event.get("statusUpdate")
    try:
        return isinstance(update, dict) and state_of(update).terminal
    except InvalidInput:
        return False


def _deep(answer: Message) -> bool:
    try:
        check_written(_json(answer), "an answer", _ANSWER_DEPTH, MAX_RECORD_VALUES)
    except InvalidInput:
        return True
    return False


def _is_task(task: object) -> bool:
    if not isinstance(task, dict):
        return False
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
        and isinstance(task.get("metadata", {}), dict)
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
        return strict_json.dumps(value)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"the task cannot be written as JSON: {error}") from error
