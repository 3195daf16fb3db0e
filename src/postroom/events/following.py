"""Events of a worker past an id, from SQL, then each record as it is committed: none is missed, none comes twice."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from postroom.events.service import EventLog
from postroom.projection.changes import Change, Changes, Signal, of_worker_events
from postroom.protocol.intervals import STREAM_BEAT
from postroom.store.events import EventRow

PAGE = 200
"""Rows of one read: a follower that is far behind holds no more at once."""

FROM_NOW = -1
"""Instead of an id: only what comes later."""


async def follow(
    events: EventLog, changes: Changes, worker: str, after: int
) -> AsyncGenerator[Sequence[EventRow]]:
    """The events of `worker` past the id `after`, oldest first, as many at a time as there are, until the post room
    ends.

    The reader may be slow: what comes meanwhile is read again from SQL.

    Args:
        after: `FROM_NOW` for none that is there already.
    """
    # Listening begins before the first read, so nothing falls between.
    with changes.listen(of_worker_events(worker)) as listener:
        if after == FROM_NOW:
            after = await events.last_id(worker)
        while True:
            found = await events.past(worker, after, PAGE)
            if found:
                after = found[-1].id
                yield found
            if len(found) >= PAGE:
                continue
            while (change := await listener.next(STREAM_BEAT)) is not Signal.GAP:
                if change is Signal.CLOSED:
                    return
                if isinstance(change, Change) and change.seq > after:
                    new = [row for row in change.row if row.id > after]
                    after = change.seq
                    yield new
