"""The line at the top of the screen: which post room, who one is, how many need one, and whether it is there."""

from __future__ import annotations

import time
from urllib.parse import urlsplit

from rich.text import Text
from textual.widgets import Static

from postroom.lines.words import columns, shortened
from postroom.settings import DEFAULT_ORG
from postroom.tui.news import Away, Snapshot
from postroom.view.room import Room
from postroom_a2a.text import one_line


class Head(Static):
    """One line, also while a pane covers the others.

    Args:
        start: the command that starts the post room where the key `u` does, "" where it does not.
    """

    def __init__(self, start: str = "", *, id: str | None = None) -> None:  # noqa: A002 (as Textual calls it)
        super().__init__("postroom", id=id, markup=False)
        self._way = f"u starts it ({start})" if start else "waiting for it"
        self._state: Room | None = None
        self._away = ""

    def on_snapshot(self, event: Snapshot) -> None:
        """Another state."""
        self._state = event.room
        self._show()

    def on_away(self, event: Away) -> None:
        """It has gone, or is back."""
        since = time.strftime("%H:%M:%S")
        # What has no way back says why.
        gone = one_line(event.why, 200) or f"the post room is down since {since}; {self._way}"
        self._away = gone if event.away else ""
        self.set_class(event.away, "-away")
        self._show()

    def on_resize(self) -> None:
        """Another width."""
        self._show()

    def _show(self) -> None:
        width = self.size.width
        if self._away:
            self.update(Text(shortened(self._away, width)))
            return
        if self._state is None:
            return
        left, right = head_of(self._state, width)
        gap = " " * max(1, width - columns(left) - columns(right))
        self.update(
            Text.assemble(left, gap, (right, "bold yellow" if self._state.needs else "dim"))
        )


def head_of(room: Room, width: int) -> tuple[str, str]:
    """The left and the right of the line, which fit into `width` columns."""
    count, org = len(room.needs), room.status["org"]
    right = f"{count} need{'s' if count == 1 else ''} you" if count else "nothing needs you"
    where = urlsplit(room.reached or room.status["server"]["url"]).netloc
    who = f"@{one_line(room.me['nick'], 64)}"
    named = f"{one_line(org, 64)} at {where}" if org != DEFAULT_ORG else where
    left = f"postroom {named} · you are {who}"
    if columns(left) + columns(right) >= width:
        left = f"{who} {named}"
    return shortened(left, max(1, width - columns(right) - 1)), right
