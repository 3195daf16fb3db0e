"""A list of rows that draws only those that have changed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from rich.segment import Segment
from rich.style import Style as RichStyle
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from postroom.tui.looks import look_of
from postroom.tui.sidebar.items import Item

_PLAIN = RichStyle()


class ItemList(ScrollView):
    """Rows below each other, each as wide as the pane."""

    DEFAULT_CSS = """
    ItemList { overflow-x: hidden; scrollbar-size-vertical: 1; scrollbar-gutter: stable; }
    """

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 (as Textual calls it)
        super().__init__(id=id)
        self._items: Sequence[Item] = []

    @cached_property
    def _colours(self) -> bool:
        return not self.app.no_color

    @property
    def row_width(self) -> int:
        """The columns of a row."""
        return self.scrollable_content_region.width

    def put(self, items: Sequence[Item]) -> None:
        """Show other rows; those that are the same are not drawn again."""
        before, self._items = self._items, items
        self.virtual_size = Size(self.row_width, len(items))
        for y in range(max(len(before), len(items))):
            if y >= len(before) or y >= len(items) or before[y].spans != items[y].spans:
                self.refresh_line(y)

    def emphasis(self, place: int) -> RichStyle:  # noqa: ARG002 (of a list without a selection)
        """What is added to the look of a row."""
        return _PLAIN

    def render_line(self, y: int) -> Strip:
        """One row of the terminal."""
        place, width, base = y + self.scroll_offset.y, self.size.width, self.rich_style
        if place >= len(self._items):
            return Strip.blank(width, base)
        base += self.emphasis(place)
        spans = self._items[place].spans
        segments = [
            Segment(span.text, base + look_of(span, colours=self._colours)) for span in spans
        ]
        return Strip(segments).adjust_cell_length(width, base)
