"""When a record of a task holds a snapshot, beside its event. Pure.

A snapshot follows every 64 records and every 64 KiB of events, but not before the events weigh half as much as the
snapshot: so all snapshots together weigh at most twice as much as the events, and what is stored of a task grows with
what is said. It follows at the end, too, and whenever the task might else be larger than a task may be. Readers hold to
the last rule as well (`Weight.bounded`): a worker that leaves snapshots out makes no task that is too large to read.
"""

from __future__ import annotations

from dataclasses import dataclass

from postroom.protocol.limits import MAX_TASK_BYTES
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import Event

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
