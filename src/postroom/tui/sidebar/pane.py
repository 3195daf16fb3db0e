"""The pane."""

from __future__ import annotations

from textual.containers import Vertical

from postroom.tui.news import Target


class Sidebar(Vertical):
    """What needs the person, projects, workers; sends Chosen and NeedChosen."""

    def show(self, target: Target) -> None:
        """Show another one."""
