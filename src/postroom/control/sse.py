"""Live views as server-sent events: what SQL holds past a cursor, then each change as it is committed.

`id:` is the sequence in the log, so a reader that comes back with its last id misses nothing (WHATWG HTML,
server-sent events).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from postroom.projection.changes import Change, ChangeListener, Changes, Signal, Topic
from postroom.protocol.intervals import STREAM_BEAT

PAGE = 200


class Numbered(Protocol):
    """Something of the log that is shown."""

    @property
    def seq(self) -> int:
        """Its sequence in its stream."""

    def as_json(self) -> Mapping[str, Any]:
        """How the API shows it."""


OPENED = Change("open", 0)
"""What is shown of it comes before all records."""

Read = Callable[[int], Awaitable[list[Any]]]
"""Records past a sequence, oldest first, one page at most."""

Show = Callable[[Change], Awaitable[tuple[str, Numbered] | None]]
"""Event name and record of a change that is no new record (a receipt), None to leave it out."""

Ended = Callable[[int], Awaitable[bool]]


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
) -> AsyncIterator[str]:
    """Events of `topics` past sequence `after`, until they have ended, the reader goes or the post room ends.

    Args:
        topics: to listen to; listening begins before the first read, so nothing falls between.
        name: of the event of a new record.
        after: sequence of the last record that the reader has.
        ended: whether there will be no record past a sequence; None for topics that never end.
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
            if ended is not None and await ended(after):
                return
            text = await _next(listener, after, show)
            if text is None:
                return
            if text:
                yield text


async def _next(listener: ChangeListener, after: int, show: Show | None) -> str | None:
    """What to send for the next change: "" if it is new records that are to be read, None at the end."""
    while True:
        change = await listener.next(STREAM_BEAT)
        if change is Signal.CLOSED:
            return None
        if change is Signal.QUIET:
            return ": quiet\n\n"
        if change is Signal.GAP or not isinstance(change, Change):
            return ""
        if change.kind in ("mail", "post", "task"):
            if change.seq > after:
                return ""
            continue
        if show is not None:
            shown = await show(change)
            if shown is not None:
                return event(shown[0], shown[1], with_id=False)
