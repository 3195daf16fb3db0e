"""The part of a log that is seen: where it stands while rows come and go, and how its lines are drawn."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style as RichStyle
from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from postroom.tui.rowlog.drawn import GUTTER, Drawing, drawn
from postroom.tui.rowlog.kept import Block, Kept, Rows, Wrapped

SETTLES = 4
"""Times that heights near the screen are counted again, since counted ones bring others near."""


STRIPS = 512
"""Lines that are kept as they were drawn."""


class Anchor(NamedTuple):
    """A line that stays where it is on the screen: of a block, its row and line, and the line on the screen."""

    kept: Kept
    row: int
    sub: int
    behind: int
    shown: int


class RowView(ScrollView):
    """Blocks below each other; their end is followed until the person scrolls up."""

    DEFAULT_CSS = """
    RowView {
        height: 1fr;
        overflow-x: hidden;
        overflow-y: scroll;
        scrollbar-size-vertical: 1;
    }
    """

    class AtTop(Message, namespace="row_log"):
        """The person has scrolled to the top, and wants older blocks (`put_before`)."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes=classes)
        self._rows = Rows()
        self._follows = True
        self._new = 0
        self._moving = False
        self._told_top = False
        self._base = RichStyle()
        self._strips: dict[object, tuple[Wrapped, Strip]] = {}

    # -- what the panes do ---------------------------------------------------------------------------------

    def put(self, blocks: Sequence[Block]) -> None:
        """Append blocks; one whose key is there already takes the place of that one."""
        rows = self._rows
        before = len(rows) + rows.dropped
        with self._held() as moved:
            changed = rows.put(blocks)
            if not self._follows:
                self._new += max(0, len(rows) + rows.dropped - before)
            moved.append(changed)

    def put_before(self, blocks: Sequence[Block]) -> None:
        """Put older blocks at the top; what the person sees stays where it is."""
        self._told_top = False
        with self._held():
            self._rows.put_before(blocks)

    def clear(self) -> None:
        """Forget everything."""
        self._told_top = False
        self._rows = Rows()
        self._follows, self._new = True, 0
        with self._held():
            self._rows.resize(self._width)

    @property
    def follows(self) -> bool:
        """Whether it shows its end, and goes on doing so."""
        return self._follows

    at_end = follows

    @property
    def row_count(self) -> int:
        """Rows that are kept."""
        return len(self._rows)

    # -- places --------------------------------------------------------------------------------------------

    @property
    def _height(self) -> int:
        return self.scrollable_content_region.height

    @property
    def _width(self) -> int:
        return max(0, self.scrollable_content_region.width - GUTTER)

    @property
    def _top(self) -> int:
        return round(self.scroll_y)

    def _anchor(self, shown: int) -> Anchor | None:
        """What stands in a line of the screen."""
        rows = self._rows
        line = min(self._top + shown, rows.lines - 1)
        if line < 0:
            return None
        index, sub = rows.at(line)
        kept = rows.owners[index]
        behind = rows.height(index) - sub
        return Anchor(kept, index - rows.start(kept), sub, behind, line - self._top)

    def _top_for(self, anchor: Anchor) -> int:
        """The line that is at the top when an anchor is where it was."""
        rows = self._rows
        if not rows.holds(anchor.kept):
            return 0
        index = rows.start(anchor.kept) + min(anchor.row, anchor.kept.count - 1)
        # At the top of the screen the end of a row stays, since the person reads upwards into it.
        height = rows.height(index)
        sub = anchor.sub if anchor.shown else height - anchor.behind
        return rows.line(index) + min(max(0, sub), max(0, height - 1)) - anchor.shown

    @contextmanager
    def _held(self, *, below: bool = False) -> Generator[list[int]]:
        """Change the rows, and leave in its place what is seen: the first line, or the last one (`below`)."""
        anchor = None if self._follows else self._anchor(self._height - 1 if below else 0)
        changed: list[int] = []
        yield changed
        self._settle(anchor)
        self._draw(changed[0] if changed else 0)

    def _settle(self, anchor: Anchor | None) -> None:
        """Count the heights of what is seen, and scroll to the end, or to where the anchor is in its place."""
        rows, height = self._rows, self._height
        for _ in range(SETTLES):
            line = rows.lines if anchor is None else self._top_for(anchor)
            top = max(0, min(line, rows.lines - height))
            if not rows.measure(top - 1, top + height):
                break
        self._scroll(top)

    def _scroll(self, top: int) -> None:
        """Tell Textual how many lines there are, without laying out the screen, and where they are seen."""
        size = Size(self._width + GUTTER, self._rows.lines)
        self._moving = True
        try:
            if size != self.virtual_size:
                self.set_reactive(Widget.virtual_size, size)
                bar = self.vertical_scrollbar
                bar.window_virtual_size, bar.window_size = size.height, self._height
            self.scroll_target_y = self.scroll_y = top
        finally:
            self._moving = False

    def _draw(self, changed: int) -> None:
        """Draw anew, only the mark at the bottom if all that has changed is below the screen."""
        rows, height = self._rows, self._height
        below = changed > 0 and rows.line(min(changed, len(rows) - 1)) >= self._top + height
        if below and not self._follows:
            self.refresh(Region(0, height - 1, self.size.width, 1))
        else:
            self.refresh()

    def on_resize(self, _event: events.Resize) -> None:
        """Lay the rows out anew if there is another width."""
        with self._held():
            if self._width != self._rows.width and self._width:
                self._rows.resize(self._width)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Follow the end again once it is reached; count heights that were estimated until now."""
        super().watch_scroll_y(old_value, new_value)
        if self._moving or not self.is_mounted:
            return
        self._follows = new_value >= self.max_scroll_y
        if self._follows:
            self._new = 0
        up = new_value < old_value
        self._told_top = self._told_top and self._top == 0
        self._settle(self._anchor(self._height - 1 if up else 0))
        self.refresh()
        if up and self._top == 0:
            self._tell_top()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Tell of the top; Textual's own handler scrolls, behind this one."""
        if self._top == 0:
            event.stop()
            self._tell_top()

    def _tell_top(self) -> None:
        """Say that the top is reached, once until older blocks have come or the person was elsewhere."""
        if not self._told_top:
            self._told_top = True
            self.post_message(self.AtTop())

    def _go(self, top: int) -> None:
        """Scroll so that a line is the first, as a person does."""
        if self._top == 0 and top < 0:
            self._tell_top()
        self.scroll_to(y=max(0, min(top, self.max_scroll_y)), animate=False)

    # -- drawing -------------------------------------------------------------------------------------------

    def render_lines(self, crop: Region) -> list[Strip]:
        """Lines of the screen; the style of the widget is found once for them, since that takes long."""
        self._base = self.rich_style
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        """A line of the screen."""
        width, base = self.scrollable_content_region.width, self._base
        line = self._top + y
        if line >= self._rows.lines:
            return Strip.blank(width, base)
        strip = self._strip(*self._rows.at(line))
        below = self._below() if y == self._height - 1 else ""
        strip = strip.adjust_cell_length(width - len(below), base)
        if below:
            mark = Segment(below, base + RichStyle(reverse=True, meta={"below": True}))
            strip = Strip([*strip, mark], width)
        return strip

    def _strip(self, index: int, sub: int) -> Strip:
        """A line of a row, the same one as the last time if nothing about it has changed: drawing costs more."""
        rows, how = self._rows, self._how(index)
        kept, wrapped = rows.owners[index], rows.wrapped(rows.rows[index])
        first = index == 0 or rows.owners[index - 1] is not kept
        state = (kept.folds, kept.folded, kept.count, first, rows.width)
        key = (id(wrapped), index + rows.dropped, sub, how, state)
        found = self._strips.get(key)
        if found is None:
            if len(self._strips) >= STRIPS:
                self._strips.clear()
            # The wrapped row stays with the strip, so that no other one can have its id.
            found = self._strips[key] = (wrapped, Strip(drawn(rows, index, sub, how)))
        return found[1]

    def _below(self) -> str:
        """The mark for what has come below the screen."""
        return f" ↓ {self._new:,} new, G " if self._new and not self._follows else ""

    def _how(self, index: int) -> Drawing:
        """What a row is drawn with."""
        raise NotImplementedError
