"""The line in which a person types what is searched for."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Input

if TYPE_CHECKING:
    from postroom.tui.rowlog.log import RowLog


class FindLine(Input):
    """Stands below its log until Enter or Esc."""

    DEFAULT_CSS = """
    FindLine, FindLine:focus {
        height: 1;
        border: none;
        padding: 0;
    }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "back"),
        Binding("up", "search(True)", "earlier"),
        Binding("down", "search(False)", "later"),
    ]

    def __init__(self, log: RowLog) -> None:
        super().__init__(placeholder="find: Enter or up for earlier, down for later, Esc")
        self.cursor_blink = False
        self._log = log

    @classmethod
    def open(cls, log: RowLog) -> None:
        """Put it below a log, once."""
        parent = log.parent
        if not isinstance(parent, Widget):
            return
        for line in parent.query(cls):
            line.focus()
            return
        line = cls(log)
        parent.mount(line, after=log)
        line.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Search, and go back to the log, where keys go on."""
        event.stop()
        self._log.search(self.value)
        self._close()

    def action_search(self, backwards: bool) -> None:
        """Search, and stay."""
        self._log.search(self.value, backwards=backwards)

    def action_leave(self) -> None:
        """Take the marks away, and go back to the log."""
        self._log.find("")
        self._close()

    def _close(self) -> None:
        self._log.focus()
        self.remove()
