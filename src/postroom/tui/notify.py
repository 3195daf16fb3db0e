"""Calls the person back to the terminal when something new needs them: a bell, or a desktop notification.

Nothing is called out for what was there when the screen opened, nor while the person is there: their terminal says that
it has the focus or, where it never says so, a key was pressed just now. What comes in quick succession is called out
once, and what is answered by then is left out.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.view.needs import Need
    from postroom.view.room import Room

GAP = 5.0
"""Seconds between two calls, and after a key in which a person counts as there."""

LONGEST = 120
"""Characters of a notification: a corner of a screen shows no more."""

TITLE = "Postroom"

BELL = "\x07"


class Way(StrEnum):
    """How to call (the setting `screen.notify`)."""

    OFF = "off"
    BELL = "bell"
    OSC9 = "osc9"
    OSC777 = "osc777"


class Notices:
    """Calls one person. Used on the event loop.

    Args:
        write: writes to the terminal.
        pressed_at: when a key was last pressed, on the clock `now`.
        environment: says what terminal it is.
    """

    def __init__(
        self,
        way: Way,
        write: Callable[[str], None],
        *,
        pressed_at: Callable[[], float],
        environment: Mapping[str, str],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._way = way
        self._write = write
        self._pressed_at = pressed_at
        self._environment = environment
        self._now = now
        self._seen: set[str] | None = None
        self._new: dict[str, Need] = {}
        self._called_at = float("-inf")
        self._later: asyncio.TimerHandle | None = None
        self._focus: bool | None = None  # until the terminal says it

    def see(self, room: Room) -> None:
        """Look at the newest state."""
        needs = {need.key: need for need in room.needs}
        known, self._seen = self._seen, set(needs)
        if known is None or self._way is Way.OFF:
            return
        # What is settled meanwhile need not be called out any more.
        waiting = {key: needs[key] for key in self._new if key in needs}
        self._new = waiting | {key: need for key, need in needs.items() if key not in known}
        self._call()

    def focus(self, has: bool) -> None:
        """The terminal says whether it has the focus."""
        self._focus = has

    def close(self) -> None:
        """Call nobody any more."""
        if self._later is not None:
            self._later.cancel()

    @property
    def _there(self) -> bool:
        if self._focus is not None:
            return self._focus
        return self._now() - self._pressed_at() < GAP

    def _call(self) -> None:
        """Call for what is new: now, or when the last call is long enough ago."""
        if self._there:
            self._new = {}
        if not self._new or self._later is not None:
            return
        wait = self._called_at + GAP - self._now()
        if wait > 0:
            self._later = asyncio.get_running_loop().call_later(wait, self._call_later)
            return
        self._called_at = self._now()
        text = said(list(self._new.values()))
        self._new = {}
        self._write(sequence(self._way, text, self._environment))

    def _call_later(self) -> None:
        self._later = None
        self._call()


def said(needs: Sequence[Need]) -> str:
    """What a notification says: the first need, and how many more there are."""
    first = needs[0]
    text = f"{first.who} {first.text}" if first.who else first.text
    more = len(needs) - 1
    return f"{harmless(text)} (and {more} more)" if more else harmless(text)


def harmless(text: str) -> str:
    """Text of agents as one field of a notification: nothing of it ends the field or begins another sequence."""
    return one_line(text.replace(";", ","), LONGEST)


def sequence(way: Way, text: str, environment: Mapping[str, str]) -> str:
    """What is written to the terminal.

    tmux keeps a notification to itself unless it is wrapped, and throws it away unless `allow-passthrough` is on: so
    the bell goes with it, which marks the window. GNU screen and the Linux console get the bell alone.
    """
    term = environment.get("TERM", "")
    in_tmux = bool(environment.get("TMUX")) or term.startswith("tmux")
    plain = not in_tmux and term.startswith(("screen", "linux"))
    if way is Way.OFF:
        return ""
    if way is Way.BELL or plain:
        return BELL
    # A terminal may take OSC 9 with a number first as something else: the title is in front.
    body = f"9;{TITLE}: {text}" if way is Way.OSC9 else f"777;notify;{TITLE};{text}"
    made = f"\x1b]{body}{BELL}"
    return f"\x1bPtmux;{made.replace(chr(27), chr(27) * 2)}\x1b\\{BELL}" if in_tmux else made
