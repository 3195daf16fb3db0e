"""The cause of a worker's requests: the tasks and messages that it works on, by its own traffic.

The gateway sees which tasks the worker has begun and not ended (its records on `worker.<own>.tasks.<task>.<state>`)
and which messages the bus delivered that it has not acknowledged. This is the worker's claim; with one open task it
is exact.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

KEPT = 64
"""Open tasks and open messages that the gateway remembers of one worker."""


@dataclass(slots=True)
class Cause:
    """Open tasks and messages of one worker, oldest first.

    Attributes:
        places: the id of a message by its sequence in INBOX, which the acknowledgement carries.
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
        """The bus has delivered a message to the worker."""
        _add(self.messages, message, None)
        _add(self.places, sequence, message)

    def settled(self, sequence: str) -> None:
        """The worker has acknowledged the message."""
        self.messages.pop(self.places.pop(sequence, ""), None)

    def now(self) -> tuple[str, str, bool]:
        """Message, task, and whether anything else was open; "" for no message or no task."""
        task = next(reversed(self.tasks), "")
        message = next(reversed(self.messages), "")
        return message, task, len(self.tasks) + (not self.tasks) * len(self.messages) == 1


T = TypeVar("T")


def _add(known: dict[str, T], name: str, value: T) -> None:
    known.pop(name, None)
    known[name] = value
    if len(known) > KEPT:
        del known[next(iter(known))]
