"""Rows where no log is: a view that fits their number and scrolls, a list that draws only those that have changed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style as RichStyle
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from postroom.lines.rows import Line, Row, broken
from postroom.tui.looks import look_of
from postroom.tui.sidebar.items import Item


class RowsView(ScrollView, can_focus=True, inherit_bindings=False):
    """Rows, wrapped to its width. Text of agents gets in by `Row` alone, which makes it harmless."""

    DEFAULT_CSS = """
    RowsView { height: auto; overflow-x: hidden; overflow-y: auto; scrollbar-size-vertical: 1; }
    """
    # Left and right go to another need.
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "scroll_up", show=False),
        Binding("down", "scroll_down", show=False),
        Binding("home", "scroll_home", show=False),
        Binding("end", "scroll_end", show=False),
        Binding("pageup", "page_up", show=False),
        Binding("pagedown,space", "page_down", show=False),
    ]

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 (Textual's own word)
        super().__init__(id=id)
        self._rows: Sequence[Row] = ()
        self._lines: list[Line] = []
        self._width = 0

    def show(self, rows: Sequence[Row], *, from_top: bool = True) -> None:
        """Show these instead, from the first one or from where one reads."""
        self._rows, self._width = rows, 0
        if from_top:
            self.scroll_to(y=0, animate=False)
        self.refresh(layout=True)

    @property
    def text(self) -> str:
        """What is shown, without styles."""
        return "\n".join(row.text for row in self._rows)

    @property
    def hidden_below(self) -> int:
        """Lines that stand below what is seen."""
        return max(0, len(self._lines) - self.scroll_offset.y - self.size.height)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002
        """Lines at that width."""
        self._break(width)
        if len(self._lines) > viewport.height:  # the scrollbar takes its column
            self._break(width - 1)
        return len(self._lines)

    def on_resize(self, _: Resize) -> None:
        """Wrap anew."""
        self._break(self.scrollable_content_region.width)

    def render_line(self, y: int) -> Strip:
        """One line of the screen."""
        number = y + self.scroll_offset.y
        width = self.size.width
        if number >= len(self._lines):
            return Strip.blank(width, self.rich_style)
        indent, spans = self._lines[number]
        base = self.rich_style
        pieces = [Segment(" " * indent, base)]
        pieces += [Segment(span.text, base + look_of(span)) for span in spans]
        return Strip(pieces).adjust_cell_length(width, base)

    def _break(self, width: int) -> None:
        if width <= 0 or width == self._width:
            return
        self._width = width
        self._lines = [line for row in self._rows for line in broken(row, width)]
        self.virtual_size = Size(width, len(self._lines))


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
