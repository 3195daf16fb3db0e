"""The events of one worker in a log: what is past, page by page, and what comes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from postroom.errors import PostroomError
from postroom.tui.following import Following
from postroom.tui.worker.blocks import EventBlocks

if TYPE_CHECKING:
    from postroom.tui.news import Target
    from postroom.tui.port import ScreenPort
    from postroom.tui.rowlog.log import Block

FIRST = 200
"""Events that are shown at once."""

PAGE = 500
"""Events of each page of older ones."""


class Feed:
    """One worker's events, from `begin` to `close`; nothing is handed over after `close`.

    Args:
        put: takes the next blocks.
        ended: called when no more will come: with the reason.
        away: called in another thread when the post room has gone, and when it is back.

    Attributes:
        begun: it follows what comes.
        quiet: the worker has no events yet.
        whole: there are no older events than those that were handed over.
    """

    def __init__(
        self,
        app: ScreenPort,
        target: Target,
        put: Callable[[Sequence[Block]], None],
        ended: Callable[[PostroomError | None], None],
        away: Callable[[bool], None],
    ) -> None:
        self._app, self._target = app, target
        self._put, self._ended, self._away = put, ended, away
        self._live = self._oldest = EventBlocks(target.name)
        self._first = 0
        self._pages = 0
        self._following: Following | None = None
        self._closed = False
        self.quiet = True
        self.whole = True

    @property
    def begun(self) -> bool:
        """Whether it follows what comes."""
        return self._following is not None

    async def begin(self) -> None:
        """Show the newest events, and follow what comes.

        Raises:
            NotFound: the post room does not run such a worker.
            Forbidden: the person does not operate.
            PostroomError: the post room is away.
        """
        events = await self._events(FIRST, 0)
        if self._closed:
            return
        self._take(events)
        if events:
            self._first = events[0]["id"]
        self.whole = len(events) < FIRST
        client, uid = self._app.client, self._target.uid
        after = events[-1]["id"] if events else 0
        follow = partial(client.events, uid, after_id=after, for_ever=True, away=self._away)
        self._following = Following(follow, self._take, self._end, name=f"events of {uid}")

    async def older(self) -> list[Block]:
        """The blocks of the page before all that was handed over, to be put before them.

        Raises:
            PostroomError: the post room is away.
        """
        if self.whole or self._closed:
            return []
        events = await self._events(PAGE, self._first)
        if self._closed:
            return []
        self.whole = len(events) < PAGE
        if not events:
            return []
        self._first = events[0]["id"]
        self._pages += 1
        self._oldest = EventBlocks(self._target.name, f"{self._pages}-", self._oldest.late)
        return self._oldest.of(events)

    def close(self) -> None:
        """Hand over nothing more."""
        self._closed = True
        if self._following is not None:
            self._following.close()

    def _events(self, limit: int, before: int) -> Any:
        client, uid = self._app.client, self._target.uid
        return self._app.calls.run(
            partial(client.newest_events, uid, limit=limit, before_id=before)
        )

    def _take(self, events: Sequence[Any]) -> None:
        if events and not self._closed:
            self.quiet = False
            self._put(self._live.of(events))

    def _end(self, error: PostroomError | None) -> None:
        if not self._closed:
            self._ended(error)
