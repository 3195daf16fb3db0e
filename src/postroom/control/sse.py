"""Live views as server-sent events: the records in SQL past a cursor, then each change as it is committed.

`id:` is the sequence in the log, so a reader that comes back with its last id misses nothing (WHATWG HTML,
server-sent events).
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Protocol, cast

from starlette.responses import StreamingResponse

from postroom.errors import EnvironmentFault
from postroom.observe import get_logger
from postroom.projection import tail
from postroom.projection.changes import Change, Changes, Signal, Topic
from postroom.projection.tail import OPENED, Brought, Ended, Read
from postroom.protocol.intervals import STREAM_BEAT

log = get_logger(__name__)

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


def response(events: AsyncIterator[str], headers: Mapping[str, str]) -> StreamingResponse:
    """The answer that sends `events`.

    A fault of the machine ends it as a lost connection would: the reader comes back with its last id.
    """
    return StreamingResponse(_until_away(events), media_type="text/event-stream", headers=headers)


async def _until_away(events: AsyncIterator[str]) -> AsyncIterator[str]:
    async with aclosing(cast("AsyncGenerator[str]", events)) as found:
        try:
            async for each in found:
                yield each
        except EnvironmentFault as error:
            log.warning("a stream ends, and its reader comes back: %s", error)


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
