"""The application: its layout, its keys, and what goes from part to part."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.events import Event, Key, Paste
from textual.widgets import Footer, Static

from postroom.tui.calls import Calls
from postroom.tui.link import Link
from postroom.tui.needs.bar import NeedsBar
from postroom.tui.news import Chosen, NeedChosen, Said, Snapshot, Target
from postroom.tui.sidebar.head import Head
from postroom.tui.sidebar.pane import Sidebar
from postroom.tui.talk.pane import Talk
from postroom.tui.typing.line import TypingLine
from postroom.tui.worker.pane import WorkerPane

if TYPE_CHECKING:
    from postroom.client.http import Client
    from postroom.tui.room import Room


class PostroomApp(App[int]):
    """The screen.

    Args:
        client: of the post room; the screen does not close it.
        start: what is shown first, None for the first project.
        needs: open the first dialog at once, as `postroom approvals` does.
    """

    CSS_PATH = "screen.tcss"
    TITLE = "postroom"
    # Narrow: one pane at a time. Normal: the left, and one of the others. Wide: all three.
    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012 (as Textual declares it)
        (0, "-narrow"),
        (60, "-normal"),
        (120, "-wide"),
    ]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1", "look('sidebar')", "rooms"),
        Binding("2", "look('talk')", "talk"),
        Binding("3", "look('worker')", "worker"),
        Binding("i", "type", "type"),
        Binding("n", "next_need", "needs you"),
        Binding("ctrl+n", "next_need", show=False, priority=True),
        Binding("q", "quit", "leave"),
    ]

    def __init__(self, client: Client, *, start: Target | None = None, needs: bool = False) -> None:
        super().__init__()
        self.client = client
        self.calls = Calls()
        self.link: Link | None = None
        self.room: Room | None = None
        # When a key was last pressed: no dialog opens by itself right after it.
        self.pressed_at = 0.0
        self._start, self._needs = start, needs

    def compose(self) -> ComposeResult:
        """The panes."""
        yield Head(id="head")
        with Horizontal(id="panes"):
            yield Sidebar(id="sidebar")
            yield Talk(id="talk")
            yield WorkerPane(id="worker")
        yield NeedsBar(id="needs-bar", at_once=self._needs)
        yield Static(id="said", markup=False)
        yield TypingLine(id="typing", placeholder="type a message, or / for commands")
        yield Footer()

    def on_mount(self) -> None:
        """Show what was asked for."""
        self.look("sidebar")
        if self._start is not None:
            self.post_message(Chosen(self._start))
        self.link = Link(self)
        self.link.start()

    def look(self, pane: str) -> None:
        """Show a pane (`sidebar`, `talk`, `worker`), where not all fit, and focus it."""
        for name in ("sidebar", "talk", "worker"):
            self.screen.set_class(name == pane, f"-{name}")
        self.query_one(f"#{pane}").focus()

    def action_look(self, pane: str) -> None:
        """The same by a key."""
        self.look(pane)

    def action_type(self) -> None:
        """Type."""
        self.query_one(TypingLine).focus()

    def action_next_need(self) -> None:
        """Open what needs the person next."""
        self.query_one(NeedsBar).show_need()

    async def on_event(self, event: Event) -> None:
        """Note when a key was pressed."""
        if isinstance(event, Key | Paste):
            self.pressed_at = time.monotonic()
        await super().on_event(event)

    def on_need_chosen(self, event: NeedChosen) -> None:
        """Open it."""
        self.query_one(NeedsBar).show_need(event.id)

    def on_chosen(self, event: Chosen) -> None:
        """Show it in the middle, and a worker on the right."""
        self.query_one(Sidebar).show(event.target)
        self.query_one(Talk).show(event.target)
        if not event.target.is_project:
            self.query_one(WorkerPane).show(event.target)

    def on_snapshot(self, event: Snapshot) -> None:
        """Keep the newest state."""
        self.room = event.room

    def on_said(self, event: Said) -> None:
        """Show it above the line."""
        said = self.query_one("#said", Static)
        said.update(event.text)
        said.set_class(event.bad, "-bad")

    def on_unmount(self) -> None:
        """Let go of what runs."""
        if self.link is not None:
            self.link.close()
        self.calls.close()


def run(
    client: Client, *, start: Target | None = None, needs: bool = False, mouse: bool = True
) -> int:
    """Open the screen until the person leaves; returns the exit status."""
    app = PostroomApp(client, start=start, needs=needs)
    app.run(mouse=mouse)
    return app.return_code or 0
