"""The screen's link to the post room: what happens there, its state, and whether it is there at all.

    /v1/events ── follow ──▶ Happened ──▶ the parts
                   └─ stale ──▶ status, projects, agents ──▶ Snapshot ──▶ the parts

The state is fetched when something has happened, never more than twice a second, and never while nothing happens.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from postroom.errors import (
    BusDisconnected,
    EnvironmentFault,
    Forbidden,
    NotRunning,
    PeerError,
    PostroomError,
    Unauthorized,
)
from postroom.protocol.limits import MAX_PAGE
from postroom.tui.following import follow
from postroom.tui.news import Away, Happened, Said, Snapshot
from postroom.view.room import Room
from postroom.view.words import natural

if TYPE_CHECKING:
    from textual.app import App
    from textual.dom import DOMNode
    from textual.message import Message
    from textual.worker import Worker

    from postroom.client.http import AsyncClient
    from postroom.protocol.shapes import Approval, Listed, Status

PAUSE = 0.5
"""Seconds between two snapshots: each makes the post room look at every worker."""

AGAIN = 10.0
"""Seconds until what failed here, and not because the post room is away, is tried again."""

SHOWN = 20
"""Approvals that an answer of the status has at most."""

ALERTS = 10
"""Alerts that an answer of the status has at most."""

AGENTS_LAST = 5.0
"""Seconds for which the list of the agents that are no workers counts as fresh."""

_LOST = (NotRunning, PeerError, BusDisconnected)


class Link:
    """Follows everything and keeps the state of `app` fresh, from `start` to `close`, both on the event loop.

    Attributes:
        away: since when the post room is gone, in seconds since the epoch; None while it is there.
    """

    def __init__(self, app: App[int], client: AsyncClient) -> None:
        self._app, self._client = app, client
        self.away: float | None = None
        self._mended = True
        self._stale = asyncio.Event()
        self._workers: list[Worker[None]] = []
        self._again: asyncio.TimerHandle | None = None
        self._older: asyncio.TimerHandle | None = None
        self._agents: tuple[float, tuple[Listed, ...]] = (0.0, ())

    def start(self) -> None:
        """Begin."""
        self._workers = [self._app.run_worker(self._keep), self._app.run_worker(self._follow)]
        self.refresh()

    def close(self) -> None:
        """End; nothing is posted any more."""
        for worker in self._workers:
            worker.cancel()
        for timer in (self._again, self._older):
            if timer is not None:
                timer.cancel()

    def refresh(self) -> None:
        """Fetch the state soon: something was done that the post room tells nobody, such as reading a message."""
        self._stale.set()

    # ── what happens ──

    async def _follow(self) -> None:
        """Follow all that happens; it goes on for ever unless the post room refuses, or something is wrong here."""
        client = self._client
        everything = True
        while True:
            stream = client.follow_everything if everything else client.follow_inbox
            error: PostroomError | None = None
            try:
                await follow(stream(away=self._went), self._take)
            except PostroomError as found:
                error = found
            may_not = isinstance(error, Forbidden) and not isinstance(error, Unauthorized)
            if may_not and everything:
                everything = False  # who does not operate is told of their own messages alone
                continue
            why = error.message if error is not None else "the post room has ended the stream"
            if self.away is None:
                self._app.post_message(Said(why, bad=True))
            self._went(True, why)
            if isinstance(error, Forbidden):
                return
            await asyncio.sleep(AGAIN)
            # An answer with the state shows that it is mended.
            self._mended = False
            self.refresh()

    def _take(self, events: Sequence[Any]) -> None:
        happened = [event for event in events if event.kind != "open"]
        if happened:
            self._tell(lambda: Happened(happened))
        self.refresh()

    def _went(self, gone: bool, why: str = "") -> None:
        self.away = (self.away or time.time()) if gone else None
        self._tell(lambda: Away(gone, why))
        if not gone:
            self.refresh()

    # ── the state ──

    async def _keep(self) -> None:
        """Fetch the state whenever it is stale; what happens meanwhile makes it stale again."""
        while True:
            await self._stale.wait()
            self._stale.clear()
            if self._again is not None:
                self._again.cancel()
            try:
                room = await self._fetch()
            except PostroomError as error:
                self._failed(error)
            else:
                self._show(room)
                if not self._mended:
                    self._mended = True
                    self._went(False)
            await asyncio.sleep(PAUSE)

    def _show(self, room: Room) -> None:
        """Give the state to the parts; again when time alone has put another need first."""
        self._tell(lambda: Snapshot(room))
        if self._older is not None:
            self._older.cancel()
        if (left := room.until_another) is not None:
            later = replace(room, at=room.at + left)
            self._older = asyncio.get_running_loop().call_later(left, self._show, later)

    def _failed(self, error: PostroomError) -> None:
        # The stream notices a post room that has gone, and says when it is back.
        if not isinstance(error, _LOST) and type(error) is not EnvironmentFault:
            self._app.post_message(Said(str(error), bad=True))
        self._again = asyncio.get_running_loop().call_later(AGAIN, self.refresh)

    async def _fetch(self) -> Room:
        client = self._client
        status, others, agents = await asyncio.gather(
            client.status(), client.projects(), self._elsewhere()
        )
        if len(status["alerts"]) >= ALERTS:
            status["alerts"] = await client.alerts()
        projects = {name for w in status["workers"] if (name := w["project"])}
        return Room(
            status,
            tuple(sorted(projects | set(others), key=natural)),
            await pending(client, status),
            agents,
            tuple(await client.inbox(limit=MAX_PAGE)) if status.get("inbox") else (),
            client.transport.server.url,
            time.time(),
        )

    async def _elsewhere(self) -> tuple[Listed, ...]:
        fetched, agents = self._agents
        if not fetched or time.monotonic() - fetched > AGENTS_LAST:
            found = [await self._client.agents(kind=kind) for kind in ("external", "human")]
            agents = tuple(agent for some in found for agent in some)
            self._agents = time.monotonic(), agents
        return agents

    # ── the parts ──

    def _tell(self, message: Callable[[], Message]) -> None:
        """Give a message to the application and each part that takes it."""
        handler = message().handler_name
        for node in self._nodes():
            if hasattr(node, handler):
                node.post_message(message())

    def _nodes(self) -> Iterator[DOMNode]:
        yield self._app
        for screen in self._app.screen_stack:
            yield screen
            yield from screen.walk_children()


async def pending(client: AsyncClient, status: Status) -> tuple[Approval, ...] | None:
    """All pending approvals, the oldest first; None where the status has all."""
    if len(status.get("approvals", [])) < SHOWN:
        return None
    found: list[Approval] = []
    while page := await client.approvals(limit=MAX_PAGE, before=found[-1]["seq"] if found else 0):
        found += page
        if len(page) < MAX_PAGE:
            break
    return tuple(reversed(found))
