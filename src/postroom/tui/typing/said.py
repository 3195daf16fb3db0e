"""What is said to the person above the line that they type: for a while, and again if they ask."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

from rich.text import Text
from textual.timer import Timer
from textual.widgets import Static

from postroom_a2a.text import printable

STAYS = 10.0
"""Seconds, unless a key is pressed before."""

MOMENT = 1.0
"""Seconds that it stays whatever is typed."""

KEPT = 100
"""Sayings that can be seen again."""


class SaidLine(Static):
    """A few lines; it takes no room while there is nothing to say."""

    DEFAULT_CSS = """
    SaidLine { height: auto; max-height: 6; display: none; padding: 0 1; }
    SaidLine.-shown { display: block; }
    """

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 (Textual's word)
        super().__init__(id=id, markup=False)
        self._kept: deque[tuple[float, str, bool]] = deque(maxlen=KEPT)
        self._timer: Timer | None = None

    def say(self, text: str, *, bad: bool = False) -> None:
        """Show a text; it goes after `STAYS` or at a key."""
        text = printable(text).rstrip()
        self._kept.append((time.time(), text, bad))
        self._show(Text(text), bad=bad)
        self._stop()
        self._timer = self.set_timer(STAYS, self.hush)

    def seen(self) -> None:
        """A key was pressed: what has been there for a moment goes."""
        if self._kept and time.time() - self._kept[-1][0] > MOMENT:
            self.hush()

    def hush(self) -> None:
        """Show nothing."""
        self._stop()
        if self.has_class("-shown"):
            self.remove_class("-shown")
            self.update("")

    def _show(self, text: Text, *, bad: bool) -> None:
        self.update(text)
        self.set_class(bad, "-bad")
        self.add_class("-shown")

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer = None

    @property
    def kept(self) -> Sequence[tuple[float, str, bool]]:
        """The last ones, the oldest first: when, what, whether it was bad."""
        return tuple(self._kept)
