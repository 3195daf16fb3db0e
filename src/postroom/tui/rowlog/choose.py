"""Opening a link: at once if it is what it seems, otherwise after the person has seen the address that is opened."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from postroom.tui.news import Said
from postroom.tui.rowlog.links import Link


def choose(app: App[object], found: Sequence[Link], *, ask: bool = False) -> None:
    """Open the link, or let the person choose; one whose address is not what is shown is always asked for."""
    if not ask and len(found) == 1 and found[0].plain:
        open_link(app, found[0].url)
    else:
        app.push_screen(Links([link.url for link in found]))


def open_link(app: App[object], url: str) -> None:
    """Open an address in the browser; over ssh, where that would be another machine's, copy it."""
    if "SSH_CONNECTION" in os.environ and not os.environ.get("BROWSER"):
        app.copy_to_clipboard(url)
        app.screen.post_message(Said(f"copied {url}"))
    else:
        app.open_url(url)
        app.screen.post_message(Said(f"opened {url}"))


class Links(ModalScreen[None]):
    """Addresses, exactly as they are opened."""

    DEFAULT_CSS = """
    Links { align: center middle; }
    Links > Vertical { width: 90%; max-width: 100; height: auto; max-height: 80%; border: round $primary; }
    Links OptionList { height: auto; max-height: 12; border: none; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "back")]

    def __init__(self, urls: Sequence[str]) -> None:
        super().__init__()
        self._urls = list(urls)

    def compose(self) -> ComposeResult:
        """A line of what this is, and the addresses."""
        with Vertical():
            yield Static("Open which address? Enter opens, Esc goes back.", markup=False)
            yield OptionList(*(Option(Text(url, overflow="fold")) for url in self._urls))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Open it."""
        event.stop()
        self.dismiss()
        open_link(self.app, self._urls[event.option_index])

    def action_leave(self) -> None:
        """Open none."""
        self.dismiss()
