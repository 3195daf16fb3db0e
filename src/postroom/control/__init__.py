"""The control plane: composition roots and the HTTP API."""

from __future__ import annotations

from postroom.settings import Settings


def run(settings: Settings) -> int:
    """Run a post room in the foreground until it is told to end; returns the exit status."""
    from postroom.control import up  # a heavy import, for a real start only

    return up.run(settings)
