"""`postroom watch`: one page for a second screen or a pane of tmux, which nothing can be done from."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Static

from postroom.lines.happenings import seen_row
from postroom.tui.ending import Unexpected, on_signals
from postroom.tui.frame import Head
from postroom.tui.link import Link
from postroom.tui.news import Happened, Said, Snapshot
from postroom.tui.rowlists import ItemList
from postroom.tui.rowlog.log import Block, RowLog
from postroom.tui.sidebar.items import items
from postroom.view.happenings import ChangeLines
from postroom.view.room import Room
from postroom_a2a.text import printable

if TYPE_CHECKING:
    from postroom.client.http import AsyncClient

AGEING = 30.0
"""Seconds after which ages are written anew."""

LEAST = 3
"""Rows of the page that what happened keeps, however much there is above."""


class Board(ItemList, can_focus=True):
    """What needs the person, and what each worker is at."""

    def on_mount(self) -> None:
        """Ages grow by themselves."""
        self._state: Room | None = None
        self.set_interval(AGEING, self._make)

    def on_snapshot(self, event: Snapshot) -> None:
        """Another state."""
        self._state = event.room
        self._make()

    def on_resize(self) -> None:
        """Rows are as wide as the page."""
        self._make()

    def _make(self) -> None:
        if self._state is None:
            return
        self.put(items(self._state, self.row_width, time.time(), {}, others=False))
        self.styles.height = len(self._items)


class WatchApp(App[int]):
    """The page.

    Args:
        client: of the post room; the page closes it.
    """

    TITLE = "postroom watch"
    CSS_PATH = "watch.tcss"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "leave"),
        Binding("tab", "app.focus_next", "other part"),
    ]

    def __init__(self, client: AsyncClient) -> None:
        super().__init__()
        self.client = client
        self.link: Link | None = None
        self._unexpected: Unexpected | None = None
        self._lines = ChangeLines()

    def compose(self) -> ComposeResult:
        """What is to do, and what happened."""
        yield Head(id="head")
        with Vertical(id="page"):
            yield Board(id="board")
            happened = RowLog(id="happened")
            happened.border_title = "what happens · q leaves"
            yield happened
        yield Static(id="said", markup=False)

    def on_mount(self) -> None:
        """Begin."""
        self._unexpected = Unexpected(self, self._handle_exception)
        if not self.is_headless:
            on_signals(self)
        self.query_one(RowLog).focus()
        self.link = Link(self, self.client)
        self.link.start()

    def on_resize(self) -> None:
        """What happened keeps some rows on the smallest page."""
        height = self.size.height - 2  # the line at the top, and the one between the parts
        self.query_one(Board).styles.max_height = max(1, min(height - LEAST, height * 2 // 3))

    def on_happened(self, event: Happened) -> None:
        """Say it."""
        now = time.time()
        found = [self._lines.happening(one.kind, one.data, now) for one in event.events]
        blocks = [Block((seen_row(one, now),)) for one in found if one is not None]
        self.query_one(RowLog).put(blocks)

    def on_said(self, event: Said) -> None:
        """Show what is wrong."""
        self.query_one("#said", Static).update(printable(event.text))

    async def on_unmount(self) -> None:
        """Let go of what runs."""
        if self.link is not None:
            self.link.close()
        await self.client.close()
        if self._unexpected is not None:
            self._unexpected.close()


def run(client: AsyncClient, *, mouse: bool = True) -> int:
    """Show the page until the person leaves; returns the exit status."""
    app = WatchApp(client)
    app.run(mouse=mouse)
    return app.return_code or 0
