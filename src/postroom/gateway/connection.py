"""One connection through a door: its worker, what caused its requests, and the making of its audit records.

`Cause`: the gateway sees which tasks the worker has begun and not ended (its records on
`worker.<own>.tasks.<task>.<state>`) and which messages the bus delivered that it has not acknowledged. This is the
worker's claim; with one open task it is exact.

`Plumbing`: frames that only keep a connection to the bus alive are counted, not listed (docs/security.md, The audit
log). A line precedes the first such frame and covers what follows for a while. The next line says exactly how much that
was. So every byte has a line before it, also after a kill.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from postroom.gateway.limits import RateLimit
from postroom.gateway.port import AuditSink, DoorSpec
from postroom.protocol.audit import PLUMBING, AuditRecord
from postroom_a2a.times import format_time

KEPT = 64
"""Open tasks and open messages that the gateway remembers of one worker."""

WINDOW = 60.0
MOST_FRAMES = 1000
MOST_BYTES = 1024 * 1024
"""Seconds, frames and bytes that one line covers at most."""

LARGEST = 8 * 1024
"""Bytes of a frame that may be counted; a larger one has a line of its own."""

BEAT, PULL, ANSWER = "beats", "pulls", "answers"
"""Kinds: signs of life of the worker and of its work; requests for messages; what the bus answers."""


@dataclass(slots=True)
class Cause:
    """Open tasks and messages of one worker, oldest first.

    Attributes:
        places: the id of a message by its sequence in INBOX, which the acknowledgement carries.
        heard: the sender of each message that was delivered, by its id.
        owed: the answers that each of them may still get without a grant.
        answered: to whom each answer went so, by its id.
    """

    tasks: dict[str, None] = field(default_factory=dict)
    messages: dict[str, None] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    heard: dict[str, str] = field(default_factory=dict)
    owed: dict[str, int] = field(default_factory=dict)
    answered: dict[str, str] = field(default_factory=dict)

    def task_changed(self, task: str, state: str) -> None:
        """The worker has published a record of `task`."""
        if state == "working":
            _add(self.tasks, task, None)
        else:
            self.tasks.pop(task, None)

    def delivered(self, message: str, sequence: str, sender: str = "") -> None:
        """The bus has delivered a message to the worker."""
        _add(self.messages, message, None)
        _add(self.places, sequence, message)
        if sender and message not in self.heard:
            _add(self.heard, message, sender)
            _add(self.owed, sender, self.owed.get(sender, 0) + 1)

    def may_answer(self, to: str, message: str) -> bool:
        """Whether `message` can be an answer to what `to` has sent: one for each; notes that it is."""
        if message and self.answered.get(message) == to:
            return True  # sent again
        left = self.owed.get(to, 0)
        if left:
            self.owed[to] = left - 1
            _add(self.answered, message, to)
        return left > 0

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


class Plumbing:
    """The plumbing of one connection since its last line."""

    def __init__(self) -> None:
        self.frames = self.bytes = 0
        self._counts: dict[str, list[int]] = {}
        self._until = float("-inf")

    def covered(self, now: float, size: int) -> bool:
        """Whether the last line covers a frame of `size` bytes at `now`."""
        return (
            self._until - WINDOW <= now < self._until
            and self.frames < MOST_FRAMES
            and self.bytes + size <= MOST_BYTES
        )

    def line(self, now: float = 0.0) -> dict[str, Any]:
        """The fields of a record of what passed since the last one. With `now`, the line also covers what follows."""
        said = [f"{count} {kind} {size} B" for kind, (count, size) in self._counts.items()]
        if now:
            said.append(f"beats, pulls and answers of up to {WINDOW:.0f} s follow")
        fields = {"count": self.frames, "size": self.bytes, "reason": "; ".join(said)}
        self.frames = self.bytes = 0
        self._counts = {}
        self._until = now + WINDOW if now else float("-inf")
        return fields

    def count(self, kind: str, size: int) -> None:
        """Count a frame that passes."""
        self.frames += 1
        self.bytes += size
        counted = self._counts.setdefault(kind, [0, 0])
        counted[0] += 1
        counted[1] += size


@dataclass(slots=True)
class GatewayConnection:
    """One connection, from its preface to its end.

    Attributes:
        connection: name that its records share.
        protocol: as in `AuditRecord`; "" until the preface has named it.
        cause: what the worker works on; shared by the connections of a door.
        offend: counts a violation for a reason: an alert, and cut-off after too many.
        warn: raises an alert that the gateway slows the worker down, and does nothing else.
        rate_limit: shared by the connections of a door.
        passed: bytes both ways, for the record of the end; the proxy counts them.
        plumbing: frames that passed and that no line has counted yet.
    """

    spec: DoorSpec
    connection: str
    protocol: str
    audit: AuditSink
    cause: Cause
    offend: Callable[[str], None]
    warn: Callable[[str], None]
    rate_limit: RateLimit
    passed: int = 0
    clock: Callable[[], float] = field(default=time.time)
    plumbing: Plumbing = field(default_factory=Plumbing)

    def record(self, **said: Any) -> AuditRecord:
        """A record of this moment with the fields `said`."""
        return AuditRecord(
            at=format_time(self.clock()),
            org=self.spec.org,
            worker=self.spec.uid,
            connection=self.connection,
            protocol=self.protocol,
            **said,
        )

    def write(self, **said: Any) -> None:
        """Write a record now.

        Raises:
            StateUnwritable: the log cannot keep the record, so what it describes must not happen.
        """
        self.audit.write(self.record(**said).encode())

    def write_ending(self, reason: str) -> None:
        """Write the plumbing that no line has counted, then how the connection has ended."""
        if self.plumbing.frames:
            self.write(verb=PLUMBING, **self.plumbing.line())
        self.write(verb="close", size=self.passed, reason=reason)
