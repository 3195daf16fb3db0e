"""The keys of a dialog, each shown and each a button for the mouse."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from textual.app import ComposeResult
from textual.containers import ItemGrid
from textual.widgets import Button


class Key(NamedTuple):
    """A key as people know it, what it does in a word or two, and the action of the dialog."""

    key: str
    does: str
    action: str


class Keys(ItemGrid):
    """Buttons in as many lines as they need."""

    DEFAULT_CSS = """
    Keys { height: auto; grid-gutter: 0 1; margin-top: 1; }
    Keys Button { min-width: 8; width: 100%; }
    """

    def __init__(
        self,
        keys: Iterable[Key],
        *,
        id: str | None = None,  # noqa: A002 (Textual's own word)
        classes: str | None = None,
    ) -> None:
        self._keys = list(keys)
        widest = max(len(f"{each.key} {each.does}") for each in self._keys)
        super().__init__(id=id, classes=classes, min_column_width=widest + 2, regular=False)

    def compose(self) -> ComposeResult:
        """A button for each."""
        for key, does, action in self._keys:
            yield Button(
                f"{key} {does}", compact=True, action=f"screen.{action}", id=f"key-{action}"
            )
