"""Records of topics past a cursor, from SQL, then each as it is committed: none is missed, and none comes twice."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, Literal, Protocol, TypeVar

from postroom.projection.changes import Change, Changes, Signal, Topic

RECORDS = frozenset({"mail", "post", "announcement", "task"})
"""Kinds of changes that bring a record."""


class Numbered(Protocol):
    """A record with a sequence."""

    @property
    def seq(self) -> int:
        """Its sequence in its stream."""


R = TypeVar("R", bound=Numbered)

Quiet = Literal[Signal.QUIET]

OPENED = Change("open", 0)
"""The first: the topics are listened to from now on."""

Read = Callable[[int], Awaitable[Sequence[R]]]
"""Records past a sequence, oldest first, one page at most."""

Ended = Callable[[int], bool]
"""Whether no record past a sequence will come, as far as was read or brought."""

Brought = Callable[[Change], Any]
"""The record that a change brings; None if it brings none."""


async def tail(
    changes: Changes,
    topics: Sequence[Topic],
    after: int,
    read: Read[R],
    *,
    page: int,
    beat: float,
    ended: Ended | None = None,
    brought: Brought | None = None,
) -> AsyncGenerator[R | Change | Quiet]:
    """The records of `topics` past sequence `after`, until they have ended, the reader goes or the post room ends.

    Beside them come `OPENED`, each other change of the topics, and `Signal.QUIET` after `beat` seconds without any.

    Args:
        topics: to listen to; listening begins before the first read, so nothing falls between.
        after: sequence of the last record that the reader has.
        page: records that one read brings at most.
        ended: None for topics that never end.
        brought: None for topics whose records are read after each change.
    """
    with changes.listen(*topics) as listener:
        yield OPENED
        while True:
            found = await read(after)
            for record in found:
                after = record.seq
                yield record
            if len(found) >= page:
                continue
            while True:
                if ended is not None and ended(after):
                    return
                change = await listener.next(beat)
                if change is Signal.CLOSED:
                    return
                if change is Signal.GAP:
                    break  # changes were dropped: read what there is
                if isinstance(change, Change) and change.kind in RECORDS:
                    if change.seq <= after:
                        continue
                    record = brought(change) if brought is not None else None
                    if record is None:
                        break
                    after = record.seq
                    yield record
                elif change is Signal.QUIET or isinstance(change, Change):
                    yield change
