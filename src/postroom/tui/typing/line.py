"""The line in which the person types."""

from __future__ import annotations

from textual.widgets import Input

from postroom.tui.news import Typed


class TypingLine(Input):
    """Sends `Typed` for each line."""

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Hand the line over."""
        event.stop()
        self.value = ""
        self.post_message(Typed(event.value))
