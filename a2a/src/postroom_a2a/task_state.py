"""The life of an A2A task as one transition table (A2A 1.0, section 4.1.3). Pure.

submitted → working → completed | failed | canceled | rejected
              ⇅
    input-required, auth-required

A task whose agent begins at once is `working` from its first record on.
"""

from __future__ import annotations

from enum import StrEnum


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
        return _A2A[self]

    @classmethod
    def from_a2a(cls, name: object) -> TaskState:
        """The state with that A2A 1.0 name."""
        if isinstance(name, str) and (known := _BY_A2A.get(name)) is not None:
            return known  # a task is asked for its state many times
        if not isinstance(name, str) or not name.startswith("TASK_STATE_"):
            raise ValueError(f"{name!r} is not a state of a task")
        return cls(name.removeprefix("TASK_STATE_").lower().replace("_", "-"))

    @property
    def terminal(self) -> bool:
        """Whether no state follows."""
        return self in TERMINAL

    @property
    def interrupted(self) -> bool:
        """Whether the task waits for an answer."""
        return self in INTERRUPTED


_A2A = {state: "TASK_STATE_" + state.value.upper().replace("-", "_") for state in TaskState}
_BY_A2A = {name: state for state, name in _A2A.items()}

TERMINAL = frozenset(
    {TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED}
)
INTERRUPTED = frozenset({TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED})

_END_EARLY = frozenset({TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED})

FIRST = frozenset({TaskState.SUBMITTED, TaskState.WORKING}) | _END_EARLY
"""States that the first record of a task may have."""

TRANSITIONS: dict[TaskState, frozenset[TaskState]] = {
    TaskState.SUBMITTED: frozenset({TaskState.WORKING}) | _END_EARLY,
    TaskState.WORKING: frozenset({TaskState.WORKING}) | INTERRUPTED | TERMINAL,
    TaskState.INPUT_REQUIRED: frozenset({TaskState.WORKING}) | INTERRUPTED | TERMINAL,
    TaskState.AUTH_REQUIRED: frozenset({TaskState.WORKING}) | INTERRUPTED | TERMINAL,
    **{state: frozenset() for state in TERMINAL},
}
"""The states that may follow each state. `working` follows itself: progress, artifacts, another attempt."""


def allowed(before: TaskState | None, after: TaskState) -> bool:
    """Whether `after` may follow `before` (None: no record yet)."""
    return after in (FIRST if before is None else TRANSITIONS[before])
