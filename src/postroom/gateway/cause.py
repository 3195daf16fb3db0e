"""What a worker is at, as its own traffic says: the cause of what it asks of the outside.

The gateway sees which tasks the worker has begun and not ended (its records on `worker.<own>.tasks.<task>.<state>`)
and which messages were handed to it and not acknowledged. It is the worker's claim; it is exact while there is one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

KEPT = 64
"""Open tasks and open messages that are remembered of one worker."""


@dataclass(slots=True)
class Cause:
    """Open tasks and messages of one worker, oldest first."""

    tasks: dict[str, None] = field(default_factory=dict)
    messages: dict[str, None] = field(default_factory=dict)

    def task_changed(self, task: str, state: str) -> None:
        """The worker has published a record of `task`."""
        if state == "working":
            _add(self.tasks, task)
        else:
            self.tasks.pop(task, None)

    def delivered(self, message: str) -> None:
        """A message was handed to the worker."""
        _add(self.messages, message)

    def settled(self, message: str) -> None:
        """The worker has acknowledged it."""
        self.messages.pop(message, None)

    def now(self) -> tuple[str, str, bool]:
        """Message, task, and whether it was at nothing else; "" where there is none."""
        task = next(reversed(self.tasks), "")
        message = next(reversed(self.messages), "")
        return message, task, len(self.tasks) + (not self.tasks) * len(self.messages) == 1


def _add(known: dict[str, None], name: str) -> None:
    known.pop(name, None)
    known[name] = None
    if len(known) > KEPT:
        del known[next(iter(known))]
