"""The keys at the bottom: as many as the terminal has room for, the ones that a newcomer needs before all others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from textual.app import ComposeResult
from textual.events import Resize
from textual.widgets import Footer
from textual.widgets._footer import FooterKey

from postroom.tui.port import port_of

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


class KeyLine(Footer):
    """One line, of which nothing is cut off."""

    def compose(self) -> ComposeResult:
        """The keys that fit, in the order of their widgets: those of the pane first."""
        app = port_of(self)
        here = app.pane if self.screen is app.screen_stack[0] else ""
        keys = [each for each in super().compose() if isinstance(each, FooterKey)]
        # None leads to where one is.
        ranked = [(_rank(each, here), each) for each in keys if each.action != f"look('{here}')"]
        shown = set(fitting(ranked, self.app.size.width))
        yield from (each for each in keys if each in shown)

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
