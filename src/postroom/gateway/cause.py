"""What a worker is at, as its own traffic says: the cause of what it asks of the outside.

The gateway sees which tasks the worker has begun and not ended (its records on `worker.<own>.tasks.<task>.<state>`)
and which messages were handed to it and not acknowledged. It is the worker's claim; it is exact while there is one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

KEPT = 64
"""Open tasks and open messages that are remembered of one worker."""


@dataclass(slots=True)
class Cause:
    """Open tasks and messages of one worker, oldest first.

    Attributes:
        tasks: begun and not ended.
        messages: handed over and not acknowledged.
        places: sequence in INBOX of a message, by which it is acknowledged, and its id.
    """

    tasks: dict[str, None] = field(default_factory=dict)
    messages: dict[str, None] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)

    def task_changed(self, task: str, state: str) -> None:
        """The worker has published a record of `task`."""
        if state == "working":
            _add(self.tasks, task, None)
        else:
            self.tasks.pop(task, None)

    def delivered(self, message: str, sequence: str) -> None:
        """A message was handed to the worker."""
        _add(self.messages, message, None)
        _add(self.places, sequence, message)

    def settled(self, sequence: str) -> None:
        """The worker has acknowledged it."""
        self.messages.pop(self.places.pop(sequence, ""), None)

    def now(self) -> tuple[str, str, bool]:
        """Message, task, and whether it was at nothing else; "" where there is none."""
        task = next(reversed(self.tasks), "")
        message = next(reversed(self.messages), "")
        return message, task, len(self.tasks) + (not self.tasks) * len(self.messages) == 1


T = TypeVar("T")


def _add(known: dict[str, T], name: str, value: T) -> None:
    known.pop(name, None)
    known[name] = value
    if len(known) > KEPT:
        del known[next(iter(known))]
