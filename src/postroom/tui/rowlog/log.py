"""A widget of blocks of rows, which draws only what is seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual.scroll_view import ScrollView

from postroom.lines.rows import Row

MOST = 100_000
"""Rows that are kept."""


@dataclass(slots=True)
class Block:
    """Rows that belong together: a message, a stretch of text, a call of a tool.

    Attributes:
        key: names it, so that it can be replaced; "" for one that never is.
        folds: only the first row is shown while it is folded.
    """

    rows: Sequence[Row]
    key: str = ""
    folds: bool = False
    folded: bool = False


class RowLog(ScrollView, can_focus=True):
    """Blocks below each other; it follows its end until the person scrolls up.

    Text of agents gets in by `Row` alone, which makes it harmless; no markup is ever read.
    """

    def put(self, blocks: Sequence[Block]) -> None:
        """Append blocks; one whose key is there already takes the place of that one."""

    def put_before(self, blocks: Sequence[Block]) -> None:
        """Put older blocks at the top; what the person sees stays where it is."""

    def clear(self) -> None:
        """Forget everything."""

    def find(self, text: str, *, backwards: bool = True) -> bool:
        """Go to the next row that has `text`, whatever its case; False if there is none."""
        raise NotImplementedError

    class Top:
        """The person has scrolled to the top, and wants older blocks."""
