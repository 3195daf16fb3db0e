"""The pane."""

from __future__ import annotations

from textual.containers import Vertical

from postroom.tui.news import Target


class WorkerPane(Vertical):
    """What the agent of a worker does, its usage and its tasks."""

    def show(self, target: Target) -> None:
        """Show another one."""
