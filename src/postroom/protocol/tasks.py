"""The life of an A2A task as one transition table, its id, and the chain of its records (docs/architecture.md, Tasks).

    submitted → working → completed | failed | canceled | rejected
                  ⇅
        input-required, auth-required

A change of a task is one record on `worker.<runner>.tasks.<task>.<state>`. Its headers name the record that it
follows, so the sequence in TASKS is the task's version, and of two writers that follow the same record the server
stores one. A record without these headers would be stored, too: so it counts only if it is the next link of the
chain (`follows`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from enum import StrEnum

from postroom.errors import InvalidInput
from postroom.protocol import subjects

EXPECTED = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_SUBJECT = "Nats-Expected-Last-Subject-Sequence-Subject"
"""Headers by which the server stores a record only if it follows the last one on those subjects."""

TASK_ID = re.compile(r"[0-9a-f]{32}")


class TaskState(StrEnum):
    """State of a task; the value is the last token of its record's subject (A2A 1.0, section 4.1.3)."""

    SUBMITTED = "submitted"
    WORKING = "working"
    INPUT_REQUIRED = "input-required"
    AUTH_REQUIRED = "auth-required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    REJECTED = "rejected"

    @property
    def a2a(self) -> str:
        """The state's name in A2A 1.0 JSON."""
        return "TASK_STATE_" + self.value.upper().replace("-", "_")

    @classmethod
    def from_a2a(cls, name: object) -> TaskState:
        """The state with that A2A 1.0 name.

        Raises:
            ValueError: there is none.
        """
        if not isinstance(name, str) or not name.startswith("TASK_STATE_"):
            raise ValueError(f"{name!r} is no state of a task")
        return cls(name.removeprefix("TASK_STATE_").lower().replace("_", "-"))

    @property
    def terminal(self) -> bool:
        """Whether nothing follows."""
        return self in TERMINAL

    @property
    def interrupted(self) -> bool:
        """Whether it waits for somebody to say something."""
        return self in INTERRUPTED


TERMINAL = frozenset(
    {TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED}
)
INTERRUPTED = frozenset({TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED})

_END_EARLY = frozenset({TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED})

FIRST = frozenset({TaskState.SUBMITTED}) | _END_EARLY
"""States that the first record of a task may have."""

TRANSITIONS: dict[TaskState, frozenset[TaskState]] = {
    TaskState.SUBMITTED: frozenset({TaskState.WORKING}) | _END_EARLY,
    TaskState.WORKING: frozenset({TaskState.WORKING}) | INTERRUPTED | TERMINAL,
    TaskState.INPUT_REQUIRED: frozenset({TaskState.WORKING}) | INTERRUPTED | TERMINAL,
    TaskState.AUTH_REQUIRED: frozenset({TaskState.WORKING}) | INTERRUPTED | TERMINAL,
    **{state: frozenset() for state in TERMINAL},
}
"""What may follow what. `working` follows itself: progress, artifacts, another attempt."""


EXIT_CODES: dict[str, int] = {
    TaskState.COMPLETED: 0,
    TaskState.FAILED: 11,
    TaskState.CANCELED: 12,
    TaskState.REJECTED: 13,
}
"""Exit status of a command that waited for a task, by its final state."""


def task_id(worker: str, sender: str, message_id: str) -> str:
    """The id of the task that `worker` makes of the request `message_id` of `sender`.

    It follows from the request, so the same message of the same sender is the same task however often it is
    delivered, and the sender knows the id as soon as the request is stored.
    """
    named = f"task\0{worker}\0{sender}\0{message_id}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(named).hexdigest()[:32]


def chain(worker: str, task: str) -> str:
    """The subjects of all records of a task, as the server compares them."""
    return f"worker.{worker}.tasks.{task}.>"


def chain_headers(worker: str, task: str, last: int) -> dict[str, str]:
    """Headers of the record that follows sequence `last` (0: of the first one)."""
    return {EXPECTED: str(last), EXPECTED_SUBJECT: chain(worker, task)}


def follows(headers: Mapping[str, str], worker: str, task: str, last: int) -> bool:
    """Whether a stored record's headers say that it follows sequence `last` of this task."""
    return headers.get(EXPECTED) == str(last) and headers.get(EXPECTED_SUBJECT) == chain(
        worker, task
    )


def allowed(before: TaskState | None, after: TaskState) -> bool:
    """Whether a task in `before` (None: no record yet) may be in `after` next."""
    return after in (FIRST if before is None else TRANSITIONS[before])


def parse_task_subject(subject: str) -> tuple[str, str, TaskState] | None:
    """(worker, task, state) of a record's subject; None if it is no task's."""
    try:
        said = subjects.parse(subject)
        if said.kind != "tasks" or TASK_ID.fullmatch(said.rest[0]) is None:
            return None
        return said.sender, said.rest[0], TaskState(said.rest[1])
    except (ValueError, InvalidInput):
        return None
