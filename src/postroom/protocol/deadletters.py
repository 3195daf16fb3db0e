"""Dead letters: headers of their records in DEADLETTER, and the origin of those that stand for a task."""

from __future__ import annotations

DEAD_ORIGIN = "Postroom-Origin"
DEAD_REASON = "Postroom-Reason"
DEAD_ATTEMPTS = "Postroom-Attempts"
DEAD_DROPPED = "Postroom-Dropped"
"""Headers of a record in DEADLETTER. `DEAD_DROPPED` says that the letter with that sequence was dropped."""

_OF_TASK = "TASKS-"


def task_origin(sequence: int, worker: str) -> str:
    """The origin of the letter for a task that its worker gave up, in the record of TASKS at `sequence`."""
    return f"{_OF_TASK}{sequence}-{worker}"


def is_of_task(origin: str) -> bool:
    """Whether a letter stands for a task that was given up."""
    return origin.startswith(_OF_TASK)
