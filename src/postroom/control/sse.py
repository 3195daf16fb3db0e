"""Live views as server-sent events: the records in SQL past a cursor, then each change as it is committed.

`id:` is the sequence in the log, so a reader that comes back with its last id misses nothing (WHATWG HTML,
server-sent events).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from postroom.projection.changes import Change, Changes, Signal, Topic
from postroom.protocol.intervals import STREAM_BEAT

PAGE = 200


class Numbered(Protocol):
    """A record with a sequence."""

    @property
    def seq(self) -> int:
        """Its sequence in its stream."""

    def as_json(self) -> Mapping[str, Any]:
        """Its form in the API."""


OPENED = Change("open", 0)
"""The change for which `Show` gives the event before all records."""

Read = Callable[[int], Awaitable[list[Any]]]
"""Records past a sequence, oldest first, one page at most."""

Show = Callable[[Change], Awaitable[tuple[str, Numbered] | None]]
"""Event name and record for a change that is not a new record (a receipt), None to leave it out."""

Ended = Callable[[int], bool]
"""Whether no record past a sequence will come, as far as was read or brought."""

Brought = Callable[[Change], Numbered | None]
"""The record that a change brings; None if it brings none."""


def event(name: str, record: Numbered, *, with_id: bool = True) -> str:
    """One event in its wire form."""
    head = f"id: {record.seq}\n" if with_id else ""
    return f"{head}event: {name}\ndata: {json.dumps(record.as_json(), ensure_ascii=False)}\n\n"


async def follow(
    changes: Changes,
    topics: Sequence[Topic],
    name: str,
    after: int,
    read: Read,
    show: Show | None = None,
    ended: Ended | None = None,
    brought: Brought | None = None,
) -> AsyncIterator[str]:
    """Events of `topics` past sequence `after`, until they have ended, the reader goes or the post room ends.

    Args:
        topics: to listen to; listening begins before the first read, so nothing falls between.
        name: of the event for a new record.
        after: sequence of the last record that the reader has.
        ended: None for topics that never end.
        brought: None for topics whose records are read after each change.
    """
    with changes.listen(*topics) as listener:
        yield ": open\n\n"
        if show is not None and (first := await show(OPENED)) is not None:
            yield event(first[0], first[1], with_id=False)
        while True:
            page = await read(after)
            for record in page:
                after = record.seq
                yield event(name, record)
            if len(page) >= PAGE:
                continue
            while True:
                if ended is not None and ended(after):
                    return
                change = await listener.next(STREAM_BEAT)
                if change is Signal.CLOSED:
                    return
                if change is Signal.QUIET:
                    yield ": quiet\n\n"
                elif not isinstance(change, Change):
                    break  # changes were dropped: read what there is
                elif change.kind in ("mail", "post", "announcement", "task"):
                    if change.seq <= after:
                        continue
                    record = brought(change) if brought is not None else None
                    if record is None:
                        break
                    after = record.seq
                    yield event(name, record)
                elif show is not None and (shown := await show(change)) is not None:
                    yield event(shown[0], shown[1], with_id=False)
