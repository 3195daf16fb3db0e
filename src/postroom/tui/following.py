"""A stream of the client read in a thread of its own, handed to the screen in batches.

The client's streams block. A batch is at most one frame's worth: twenty a second are as many as a person can see, and
a batch costs the screen about as much as one event.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from postroom.errors import PostroomError

FRAME = 0.05
"""Seconds between two batches."""

BOUND = 2000
"""Items that wait; the thread reads no further until they are taken."""


class Source(Protocol):
    """What is followed: `client.stream.EventStream` or `client.stream.WorkerEvents`."""

    def __iter__(self) -> Iterator[Any]:
        """The items, until `close`."""
        ...

    def close(self) -> None:
        """End the iteration, from any thread."""
        ...


class Following:
    """Reads one source until `close`. Make it on the event loop that takes the batches.

    Args:
        source: opened in the thread, since that may already wait for the post room.
        take: called on the event loop with the next items, the oldest first.
        ended: called there once when the source ends by itself: with the error, or None.
    """

    def __init__(
        self,
        source: Callable[[], Source],
        take: Callable[[Sequence[Any]], None],
        ended: Callable[[PostroomError | None], None],
        *,
        name: str,
    ) -> None:
        self._open = source
        self._take, self._ended = take, ended
        self._loop = asyncio.get_running_loop()
        self._items: list[Any] = []
        self._room = threading.Condition()
        self._due = False
        self._closed = False
        self._source: Source | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Read no further; nothing is handed over any more."""
        with self._room:
            self._closed = True
            source = self._source
            self._room.notify_all()
        if source is not None:
            source.close()

    def _run(self) -> None:
        error: PostroomError | None = None
        try:
            source = self._open()
            with self._room:
                self._source = source
                closed = self._closed
            if closed:
                source.close()
                return
            for item in source:
                if not self._put(item):
                    return
        except PostroomError as found:
            error = found
        except Exception as unexpected:  # noqa: BLE001 (the loop raises it, in its turn behind the items)
            self._on_loop(self._raise, unexpected)
            return
        self._on_loop(self._end, error)

    def _put(self, item: Any) -> bool:
        """Keep an item for the next batch; False once closed."""
        with self._room:
            self._room.wait_for(lambda: self._closed or len(self._items) < BOUND)
            if self._closed:
                return False
            self._items.append(item)
            due, self._due = self._due, True
        if not due:
            self._on_loop(self._loop.call_later, FRAME, self._hand_over)
        return True

    def _hand_over(self) -> None:
        with self._room:
            items, self._items = self._items, []
            self._due = False
            closed = self._closed
            self._room.notify_all()
        if items and not closed:
            self._take(items)

    def _end(self, error: PostroomError | None) -> None:
        self._hand_over()
        if not self._closed:
            self._ended(error)

    def _raise(self, error: Exception) -> None:
        """What nobody expected is the loop's: it ends the screen, which would show no news any more."""
        if not self._closed:
            raise error

    def _on_loop(self, call: Callable[..., Any], *values: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *values)
        except RuntimeError:  # the loop has ended: so has the screen
            self._closed = True
