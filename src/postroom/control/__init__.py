"""The control plane: composition root and thin routes."""

from __future__ import annotations

from postroom.settings import Settings


def run(settings: Settings) -> int:
    """Run a post room in the foreground until it is told to end; returns the exit status.

    Raises:
        PostroomError: it could not be started.
    """
    from postroom.control.up import (
        run as run_foreground,
    )  # heavy: only when a post room really starts

    return run_foreground(settings)
