"""The control plane: composition roots and the HTTP API."""

from __future__ import annotations

import gc

from postroom.settings import Settings

STARTING = 200_000
"""New objects after which Python's collector looks for cycles while a post room starts.

Nearly all that is made then is modules and tables, which stay: to look through them again and again was a seventh of
the processor time of a start. `event_loop.settle` sets what holds from then on.
"""


def run(settings: Settings) -> int:
    """Run a post room in the foreground until it is told to end; returns the exit status."""
    gc.set_threshold(STARTING)
    from postroom.control import up  # a heavy import, for a real start only

    return up.run(settings)
