"""Live views as server-sent events: the records in SQL past a cursor, then each change as it is committed.

`id:` is the sequence in the log, so a reader that comes back with its last id misses nothing (WHATWG HTML,
server-sent events).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Protocol

from postroom.projection import tail
from postroom.projection.changes import Change, Changes, Signal, Topic
from postroom.projection.tail import OPENED, Brought, Ended, Read
from postroom.protocol.intervals import STREAM_BEAT

PAGE = 200


class Numbered(tail.Numbered, Protocol):
    """A record with a sequence."""

    def as_json(self) -> Mapping[str, Any]:
        """Its form in the API."""


Show = Callable[[Change], Awaitable[tuple[str, Numbered] | None]]
"""Event name and record for a change that is not a new record (a receipt), None to leave it out; `OPENED` stands for
the event before all records."""


def event(name: str, record: Numbered, *, with_id: bool = True) -> str:
    """One event in its wire form."""
    head = f"id: {record.seq}\n" if with_id else ""
    return f"{head}event: {name}\ndata: {json.dumps(record.as_json(), ensure_ascii=False)}\n\n"


async def follow(
    changes: Changes,
    topics: Sequence[Topic],
    name: str,
    after: int,
    read: Read[Any],
    show: Show | None = None,
    ended: Ended | None = None,
    brought: Brought | None = None,
) -> AsyncIterator[str]:
    """Events of `topics` past sequence `after`, as `tail` finds them; `name` is that of a new record's event."""
    records = tail.tail(
        changes, topics, after, read, page=PAGE, beat=STREAM_BEAT, ended=ended, brought=brought
    )
    async with aclosing(records) as found:
        async for one in found:
            if one is OPENED:
                yield ": open\n\n"
            if one is Signal.QUIET:
                yield ": quiet\n\n"
            elif isinstance(one, Change):
                if show is not None and (shown := await show(one)) is not None:
                    yield event(shown[0], shown[1], with_id=False)
            else:
                yield event(name, one)
