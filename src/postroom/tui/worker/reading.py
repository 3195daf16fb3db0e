"""A screen with one long text that was fetched: a diff, a task."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import Static

from postroom.errors import PostroomError
from postroom.lines.rows import Row, Style
from postroom.tui.frame import KeyLine
from postroom.tui.looks import text_of
from postroom.tui.port import ScreenPart
from postroom.tui.rowlog.log import Block, RowLog
from postroom.tui.typing.line import SaidLine
from postroom_a2a.text import one_line

Read = tuple[Sequence[Row], Sequence[Block]]
"""What stands above the log, and in it."""


class Reading(ScreenPart, ModalScreen[None]):
    """Shows what a call brings, over the whole terminal; Esc goes back.

    Args:
        title: what it is, at once.
        read: fetches it.
    """

    DEFAULT_CSS = """
    Reading { background: $background; }
    Reading > #reading-title, Reading > #reading-head { height: auto; padding: 0 1; }
    Reading > #reading-head { max-height: 50%; border-bottom: solid $surface-lighten-2; }
    Reading > RowLog { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "back", "back"),
        Binding("ctrl+r", "again", "fetch again"),
    ]

    def __init__(self, title: str, read: Callable[[], Awaitable[Read]]) -> None:
        super().__init__()
        self._title, self._read = one_line(title), read

    def compose(self) -> ComposeResult:
        """Title, head, text, what is said, keys."""
        yield Static(Text(self._title, style="bold"), id="reading-title", markup=False)
        yield Static("fetching ...", id="reading-head", markup=False)
        yield self.made_log()
        yield SaidLine(id="said")
        yield KeyLine(compact=True)

    def made_log(self) -> RowLog:
        """A log for it."""
        return RowLog()

    def on_mount(self) -> None:
        """Fetch it."""
        self.query_one(RowLog).focus()
        self.action_again()

    def action_again(self) -> None:
        """Fetch it, also once more."""
        self.run_worker(self._fetch, exclusive=True)

    def action_back(self) -> None:
        """Go."""
        self.dismiss(None)

    def head(self, rows: Sequence[Row]) -> None:
        """What stands above the text; the keys may be others now."""
        head = self.query_one("#reading-head", Static)
        head.update(text_of(rows))
        head.display = bool(rows)
        self.refresh_bindings()

    async def _fetch(self) -> None:
        head = self.query_one("#reading-head", Static)
        try:
            rows, blocks = await self._read()
        except PostroomError as error:
            said = [Row.of(error.message, Style.BAD, wraps=True)]
            if error.remedy:
                said.append(Row.of(error.remedy, Style.DIM, wraps=True))
            head.update(text_of(said))
            return
        self.head(rows)
        log = self.query_one(RowLog)
        log.clear()
        log.put(blocks)
        # One begins at the beginning, unlike in what goes on.
        log.call_after_refresh(log.scroll_home, animate=False)
