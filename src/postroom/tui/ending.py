"""The ends of the screen that no key makes: SIGTERM, a terminal that is gone, an error that nobody expected."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

from postroom.errors import PostroomError
from postroom.tui.news import trouble

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import App


TERMINATED = 128 + signal.SIGTERM
"""Exit status after SIGTERM, as shells have it."""


def on_signals(app: App[int]) -> None:
    """Have SIGTERM give the terminal back, and end the process once the terminal is gone."""
    terminal = sys.__stdin__.fileno() if sys.__stdin__ else 0  # as Textual reads it
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, lambda: app.exit(return_code=TERMINATED))
    threading.Thread(target=_hung_up, args=(terminal,), name="hang-up", daemon=True).start()


def _hung_up(terminal: int) -> None:
    """Wait until the terminal is gone, and end as by SIGHUP, also where that is ignored (nohup, disown).

    Nobody can see or type anything any more: reading would go on without an end, and writing blocks the loop.
    """
    watch = select.poll()
    watch.register(terminal, 0)  # what is said of it without being asked for: that it is gone
    watch.poll()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    os.kill(os.getpid(), signal.SIGKILL if _ignored() else signal.SIGHUP)


def _ignored() -> bool:
    # Another thread than the main one may not change that.
    return signal.getsignal(signal.SIGHUP) is not signal.SIG_DFL


class Unexpected:
    """Brings errors of callbacks and tasks on the event loop to the screen; without that they would only be logged,
    and the screen would stand still without a word.

    Args:
        failed: ends the screen.
    """

    def __init__(self, app: App[int], failed: Callable[[Exception], None]) -> None:
        self._app, self._failed = app, failed
        self._loop = asyncio.get_running_loop()
        self._before = self._loop.get_exception_handler()
        self._loop.set_exception_handler(self._handle)

    def close(self) -> None:
        """Leave the loop as it was."""
        self._loop.set_exception_handler(self._before)

    def _handle(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, asyncio.InvalidStateError):
            # anyio wakes a call over a unix socket even where that was cancelled in the same turn of the loop.
            return
        if isinstance(error, PostroomError):
            self._app.post_message(trouble(error))
        elif isinstance(error, Exception):
            self._failed(error)
        elif self._before is not None:
            self._before(loop, context)
        else:
            loop.default_exception_handler(context)
