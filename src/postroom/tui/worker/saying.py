"""The line in which a person says something about a line of a diff."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Input

from postroom_a2a.text import one_line


class SayingLine(Input):
    """Stands below the diff until Enter or Esc.

    Args:
        place: what it is about.
        before: what was said about it.
        done: takes what is said, "" for nothing; not called where the person leaves it.
    """

    DEFAULT_CSS = """
    SayingLine, SayingLine:focus { height: 1; border: none; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "back")]

    def __init__(self, below: Widget, place: str, before: str, done: Callable[[str], None]) -> None:
        hint = f"about {one_line(place, 200)}: Enter keeps it, Esc leaves it"
        super().__init__(before, placeholder=hint, select_on_focus=False)
        self.cursor_blink = False
        self._below, self._done = below, done

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep it."""
        event.stop()
        self._done(one_line(self.value.strip()))
        self.action_leave()

    def action_leave(self) -> None:
        """Go back to the diff."""
        self._below.focus()
        self.remove()
