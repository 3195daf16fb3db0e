"""The pane."""

from __future__ import annotations

from textual.containers import Vertical

from postroom.tui.news import Target


class Talk(Vertical):
    """The feed of a project or the conversation with an agent."""

    def show(self, target: Target) -> None:
        """Show another one."""
