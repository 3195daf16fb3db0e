"""Events of feeds: what is told to a reader, where it comes back, and the form in which it is written.

As server-sent event each has the cursor behind it as its `id:` (WHATWG HTML), so a reader that comes back with its last
id misses nothing. On a WebSocket a message is the record alone.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import astuple, dataclass, fields, replace
from typing import Any, Self, TypeVar

from starlette.responses import StreamingResponse

from postroom.errors import EnvironmentFault, InvalidInput
from postroom.observe import get_logger
from postroom.projection.changes import Signal
from postroom.projection.tail import TailPage, TailSource, tail
from postroom_a2a import strict_json

log = get_logger(__name__)

C = TypeVar("C")

PAGE = 200
"""Records of one read: a reader that is far behind holds no more at once."""


@dataclass(frozen=True, slots=True)
class FeedEvent:
    """One event: its kind, its record in the form of the API, and the cursor behind it, "" if it moves none."""

    kind: str
    record: Mapping[str, Any] | None = None
    id: str | int = ""

    def __str__(self) -> str:
        """As server-sent event; without a record as a comment, of which no reader is told."""
        if self.record is None:
            return f": {self.kind}\n\n"
        head = f"id: {self.id}\n" if self.id != "" else ""
        return f"{head}event: {self.kind}\ndata: {self.text}\n\n"

    @property
    def text(self) -> str:
        """Its record alone, as JSON."""
        return strict_json.dumps(self.record).decode()


OPENED = FeedEvent("open")

QUIET = str(FeedEvent("quiet"))

FeedPage = TailPage[FeedEvent, C]
FeedSource = TailSource[FeedEvent, C]


def streamed(source: FeedSource[C], after: C) -> StreamingResponse:
    """The answer that sends the events of `source` past `after` as server-sent events."""
    return StreamingResponse(
        _written(source, after),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store"},
    )


async def _written(source: FeedSource[C], after: C) -> AsyncGenerator[str]:
    """A fault of the machine ends them as a lost connection would: the reader comes back with its last id."""
    async with aclosing(tail(source, after)) as found:
        try:
            async for event in found:
                yield QUIET if event is Signal.QUIET else str(event)
        except EnvironmentFault as error:
            log.warning("a stream ends, and its reader comes back: %s", error)


@dataclass(frozen=True, slots=True)
class FeedCursor:
    """The position of a reader of several sources: a number in each."""

    def __str__(self) -> str:
        """The form in which a reader gives it back."""
        return "-".join(map(str, astuple(self)))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the cursor that a reader gave back."""
        if (
            re.fullmatch(rf"\d{{1,18}}(-\d{{1,18}}){{{len(fields(cls)) - 1}}}", text, re.ASCII)
            is None
        ):
            raise InvalidInput("that is not a cursor of this stream", remedy="leave it out")
        return cls(*map(int, text.split("-")))

    def past(self, source: str, number: int) -> Self:
        """The position behind `number` in one of the sources."""
        return replace(self, **{source: max(number, getattr(self, source))})


Composite = TypeVar("Composite", bound=FeedCursor)


@dataclass(frozen=True, slots=True)
class Happening:
    """What a source of several has: its number there, when it was, its kind, and its record, None if nobody is told."""

    source: str
    number: int
    kind: str = ""
    record: Mapping[str, Any] | None = None
    at: float = 0.0


def told(found: Iterable[Happening], cursor: Composite) -> tuple[list[FeedEvent], Composite]:
    """The events of what was found past `cursor`, in its order, and the cursor behind it."""
    events = []
    for one in found:
        cursor = cursor.past(one.source, one.number)
        if one.record is not None:
            events.append(FeedEvent(one.kind, one.record, str(cursor)))
    return events, cursor


def is_full(page: Sequence[Happening]) -> bool:
    """Whether a source may have more than it gave."""
    return len(page) >= PAGE
