"""The line at the top and the one at the bottom of the screen."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Protocol, cast
from urllib.parse import urlsplit

from rich.text import Text
from textual.app import ComposeResult
from textual.events import Resize
from textual.widget import Widget
from textual.widgets import Footer, Static

from postroom.lines.text import columns, shortened
from postroom.settings import DEFAULT_ORG
from postroom.tui.news import Away, Snapshot
from postroom.tui.port import port_of
from postroom.view.room import Room
from postroom_a2a.text import one_line

RANKS = {
    "type": 0,
    "help": 0,
    "quit": 0,
    "back": 1,
    "merge": 1,
    "undo": 1,
    "send": 1,
    "decide": 1,
    "discard": 3,
    "look": 1,
    "open": 1,
    "next_need": 3,
    "head": 3,
    "mark": 4,
    "interrupt": 4,
}
"""Actions by how late their key goes as the room gets narrower: 0 last of all."""

DEFAULT, OF_LOGS, PALETTE = 2, 4, 5
"""Ranks of the other keys of a pane, of those that every log has, and of the palette's."""

LOGS = frozenset({"fold", "find", "copy", "again"})


class FooterKey(Protocol):
    """What Textual's line of keys is made of; its class has no public place."""

    key_display: str
    description: str
    action: str

    def has_class(self, *class_names: str) -> bool:
        """See `textual.dom.DOMNode`."""
        ...


class KeyLine(Footer):
    """The keys: as many as the terminal has room for, the ones that a newcomer needs before all others."""

    def compose(self) -> ComposeResult:
        """The keys that fit, in the order of their widgets: those of the pane first."""
        app = port_of(self)
        here = app.pane if self.screen is app.screen_stack[0] else ""
        keys = [
            cast("FooterKey", each) for each in super().compose() if hasattr(each, "key_display")
        ]
        # None leads to where one is.
        ranked = [(_rank(each, here), each) for each in keys if each.action != f"look('{here}')"]
        shown = set(fitting(ranked, self.app.size.width))
        yield from (cast("Widget", each) for each in keys if each in shown)

    def on_resize(self, _: Resize) -> None:
        """There is room for more, or for less."""
        self.call_after_refresh(self.recompose)


def fitting(keys: Iterable[tuple[int, FooterKey]], width: int) -> Iterator[FooterKey]:
    """The keys that have room, those with a low rank first; a blank stands between two."""
    left = width + 1
    for _, key in sorted(keys, key=lambda each: each[0]):
        columns = len(key.key_display) + 1 + len(key.description) + 1
        columns += 2 * key.has_class(
            "-command-palette"
        )  # its line on the left, a blank on the right
        if columns <= left:
            left -= columns
            yield key


def _rank(key: FooterKey, here: str) -> int:
    """How early a key goes as the room gets narrower: the last one has 0."""
    if key.has_class("-command-palette"):
        return PALETTE
    if here != "talk" and key.action == "look('talk')":
        return DEFAULT + 1  # from the list Enter leads there, too
    name, _, argument = key.action.removeprefix("app.").partition("(")
    if name == "act":
        name = argument.strip("')")
    if name == "open" and here != "sidebar":
        return OF_LOGS  # a link
    return RANKS.get(name, OF_LOGS if name in LOGS else DEFAULT)


class Head(Static):
    """Which post room, who one is, how many need one, and whether it is there; also while a pane covers the others.

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
