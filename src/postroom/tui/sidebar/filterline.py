"""The line in which a person types what the list on the left is filtered by."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.widgets import Input

from postroom.tui.typing.commands import BY_NAME

if TYPE_CHECKING:
    from postroom.tui.sidebar.pane import Sidebar


class FilterLine(Input):
    """Stands below the panes until Enter, which keeps the filter, or Esc, which clears it."""

    DEFAULT_CSS = """
    FilterLine, FilterLine:focus { height: 1; border: none; padding: 0; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "all again"),
        Binding("up", "move(-1)", "up", show=False),
        Binding("down", "move(1)", "down", show=False),
    ]

    def __init__(self, of: Sidebar) -> None:
        super().__init__(of.wanted, placeholder="filter: words of a name, a state or what is said")
        self.cursor_blink = False
        self._of = of

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter with each letter."""
        event.stop()
        self._of.narrow(self.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Go on in what is left of the list; where nothing is, a command was meant, if it is one."""
        event.stop()
        text = self.value.strip()
        if self._of.selected is not None:
            self._of.focus()
        elif text.partition(" ")[0] in BY_NAME:
            self._of.narrow("")
            self._of.app.begin(f"/{text}")

    def action_move(self, rows: int) -> None:
        """Select another row."""
        self._of.action_move(rows)

    def action_leave(self) -> None:
        """Show all again."""
        self._of.narrow("")
        self._of.focus()

    def on_blur(self) -> None:
        """Something else has the keys."""
        if self.app.app_focus:  # else another window has them
            self.remove()
