"""A widget of blocks of rows, which draws only what is seen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.selection import Selection
from textual.widget import Widget
from textual.widgets import Input

from postroom.lines.rows import Span
from postroom.tui.news import Said
from postroom.tui.rowlog.drawn import Drawing
from postroom.tui.rowlog.kept import MOST, Block, Kept, content, selected_text, text_of
from postroom.tui.rowlog.links import Link, choose, links
from postroom.tui.rowlog.view import SETTLES, RowView

__all__ = ["MOST", "Block", "RowLog"]


class RowLog(RowView, can_focus=True):
    """Blocks below each other; it follows its end until the person scrolls up.

    Text of agents gets in by `Row` alone, which makes it harmless; no markup is ever read.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "cursor(-1)", "up", show=False),
        Binding("down,j", "cursor(1)", "down", show=False),
        Binding("pageup", "page(-1)", "page up", show=False),
        Binding("pagedown", "page(1)", "page down", show=False),
        Binding("home,g", "first", "top", show=False),
        Binding("end,G", "last", "end", show=False),
        Binding("space", "fold", "fold"),
        Binding("enter", "enter", "open", show=False),
        Binding("f", "find", "find"),
        Binding("comma,f3", "again(True)", "earlier", key_display=","),
        Binding("full_stop,shift+f3", "again(False)", "later", key_display="."),
        Binding("c", "copy", "copy"),
        Binding("o", "open", "open link"),
    ]

    @dataclass
    class Opened(Message):
        """The person wants what a block is about: Enter, or a double click; not for a block that folds.

        Attributes:
            key: of the block.
        """

        key: str

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes=classes)
        self._cursor: Kept | None = None
        self._sought = ""
        self._found: int | None = None

    def clear(self) -> None:
        """Forget everything."""
        self._cursor = self._found = None
        super().clear()

    def find(self, text: str, *, backwards: bool = True) -> bool:
        """Go to the next row that has `text`, whatever its case; False if there is none.

        It goes on from the row that was found last, or from what is seen; it does not begin again at the other end.
        All that is seen of `text` is marked; "" takes the marks away.
        """
        sought = Span(text).text.lower()
        if sought != self._sought:
            self._sought, self._found = sought, None
            self.refresh_bindings()
            self.refresh()
        index = self._next(sought, backwards) if sought else None
        if index is None:
            return False
        self._found = index + self._rows.dropped
        self._reveal(index)
        return True

    def go_to(self, key: str) -> bool:
        """Scroll to the block of this key, and put the cursor there; False if there is none."""
        kept = self._rows.named(key)
        if kept is None:
            return False
        self._reveal(self._rows.start(kept))
        return True

    @property
    def current(self) -> str:
        """The key of the block under the cursor, or ""."""
        kept = self._seen_cursor()
        return kept.key if kept else ""

    # -- what the person does ------------------------------------------------------------------------------

    def action_page(self, pages: int) -> None:
        """A page up or down; a line of the last one stays."""
        self._go(self._top + pages * max(1, self._height - 1))
        self._cursor_near()

    def action_first(self) -> None:
        """To the top."""
        self._go(-1 if self._top == 0 else 0)
        self._cursor = self._rows.owners[0] if len(self._rows) else None
        self.refresh()

    def action_last(self) -> None:
        """To the end, and follow it."""
        self._cursor, self._follows, self._new = None, True, 0
        self._settle(None)
        self.refresh()

    def action_cursor(self, step: int) -> None:
        """To the block above or below; where that begins beyond the screen, a line up or down."""
        rows = self._rows
        if not rows.lines:
            self._go(-1)
            return
        target = self._neighbour(step)
        line = rows.line(rows.start(target)) if target else None
        if line is None or not self._top - 1 <= line <= self._top + self._height:
            if line is None and step > 0:
                self.action_last()
            else:
                self._go(self._top + step)
            return
        self._cursor = target
        if step < 0:
            self._follows = False
        if line < self._top:
            self._go(line)
        elif line >= self._top + self._height:
            self._go(line - self._height + 1)
        self.refresh()

    def _neighbour(self, step: int) -> Kept | None:
        """The block that is next to the cursor and is shown; None at the ends."""
        rows = self._rows
        cursor = self._seen_cursor()
        if cursor is None:
            edge = self._top + (self._height - 1 if step < 0 else 0)
            kept = rows.owners[rows.at(min(edge, rows.lines - 1))[0]]
            if step < 0 or rows.line(rows.start(kept)) >= self._top:
                return kept
            cursor = kept
        index = rows.start(cursor)
        while (
            0 <= (index := index - 1 if step < 0 else index + rows.owners[index].count) < len(rows)
        ):
            index = rows.start(rows.owners[index])
            if rows.height(index):
                return rows.owners[index]
        return None

    def _seen_cursor(self) -> Kept | None:
        """The block under the cursor if any of it is on the screen."""
        kept = self._cursor
        if kept is None or not self._rows.holds(kept):
            return None
        first = self._rows.start(kept)
        last = first + kept.count - 1
        above = self._rows.line(last) + self._rows.height(last) <= self._top
        return None if above or self._rows.line(first) >= self._top + self._height else kept

    def _cursor_near(self) -> None:
        """Take the cursor along when the screen has moved on without it."""
        if self._cursor is not None and self._seen_cursor() is None and len(self._rows):
            self._cursor = self._rows.owners[self._rows.at(self._top)[0]]
            self.refresh()

    def _subject(self) -> Kept | None:
        """The block that a key is about: under the cursor, or the last that is seen."""
        if not self._rows.lines:
            return None
        line = min(self._top + self._height, self._rows.lines) - 1
        return self._seen_cursor() or self._rows.owners[self._rows.at(line)[0]]

    def action_fold(self) -> None:
        """Fold or unfold the block under the cursor."""
        kept = self._seen_cursor()
        if kept is None:
            kept = self._cursor = self._subject()
        if kept is not None:
            self._fold(kept)

    def action_enter(self) -> None:
        """Fold the block under the cursor, or open what it is about."""
        kept = self._seen_cursor()
        if kept is None or kept.folds:
            self.action_fold()
        elif kept.key:
            self.post_message(self.Opened(kept.key))

    def _fold(self, kept: Kept) -> None:
        if not kept.folds or kept.count < 2:
            self.refresh()
            return
        self._follows = self._follows and kept is self._rows.owners[-1]
        with self._held():
            self._rows.fold(kept, not kept.folded)

    def on_click(self, event: events.Click) -> None:
        """A link opens, a head folds, the mark at the bottom goes to the end; twice opens a block."""
        meta = event.style.meta
        if event.chain > 1:
            if event.chain == 2 and self._seen_cursor() is not None:
                self.action_enter()
            return
        if self.text_selection is not None:
            return
        if isinstance(link := meta.get("link"), Link):
            choose(self.app, [link])
        elif meta.get("below"):
            self.action_last()
        elif (kept := self._block_at(event.y)) is not None:
            self._cursor = kept
            if meta.get("head"):
                self._fold(kept)
            self.refresh()

    def _block_at(self, shown: int) -> Kept | None:
        """The block in a line of the screen."""
        line = self._top + shown
        return self._rows.owners[self._rows.at(line)[0]] if line < self._rows.lines else None

    # -- search, copy, links -------------------------------------------------------------------------------

    def action_find(self) -> None:
        """Open the line for what is searched for."""
        if isinstance(self.parent, Widget):
            FindLine.open(self)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """The next match needs a first one."""
        return bool(self._sought) if action == "again" else super().check_action(action, parameters)

    def action_again(self, backwards: bool) -> None:
        """To the next match."""
        self.search(self._sought, backwards=backwards)

    def search(self, text: str, *, backwards: bool = True) -> None:
        """Find, and say so if there is nothing."""
        if not self.find(text, backwards=backwards) and text:
            where = "above" if backwards else "below"
            self.post_message(Said(f"nothing {where} has “{Span(text).text}”"))

    def _next(self, sought: str, backwards: bool) -> int | None:
        """The next row with a text, whatever is folded."""
        rows = self._rows
        if not rows.lines:
            return None
        if self._found is not None:
            at = self._found - rows.dropped
        elif backwards and self._follows:
            at = len(rows)
        elif backwards:
            at = rows.at(min(self._top + self._height, rows.lines) - 1)[0] + 1
        else:
            at = rows.at(self._top)[0] - 1
        ahead = (
            range(min(at, len(rows)) - 1, -1, -1)
            if backwards
            else range(max(-1, at) + 1, len(rows))
        )
        return next((i for i in ahead if sought in content(rows.rows[i]).lower()), None)

    def _reveal(self, index: int) -> None:
        """Unfold what a row is in, and scroll until it is seen."""
        rows = self._rows
        kept = rows.owners[index]
        self._follows = False
        self._cursor = kept
        if kept.folded and index > rows.start(kept):
            rows.fold(kept, folded=False)
        for _ in range(SETTLES):
            line = rows.line(index)
            near = self._top <= line < self._top + self._height - 1
            top = self._top if near else line - self._height // 2
            top = max(0, min(top, rows.lines - self._height))
            if not rows.measure(top, top + self._height):
                break
        self._scroll(top)
        self.refresh()

    def action_copy(self) -> None:
        """Copy what is selected, or the block under the cursor."""
        text = self.screen.get_selected_text()
        if not text:
            kept = self._subject()
            text = "" if kept is None else text_of(self._rows, kept)
        if text:
            self.app.copy_to_clipboard(text)
            self.post_message(Said(f"copied {text.count(chr(10)) + 1} rows"))

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The rows that are selected, without what only the screen has."""
        return selected_text(self._rows, selection), "\n"

    def selection_updated(self, selection: Selection | None) -> None:  # noqa: ARG002
        """Draw it."""
        self.refresh()

    def text_select_all(self) -> None:
        """A double click selects nothing: a log is too long to be selected as a whole."""

    def action_open(self) -> None:
        """Open the link of the block under the cursor; with several, choose."""
        kept = self._subject()
        if kept is None:
            return
        start = self._rows.start(kept)
        rows = self._rows.rows[start : start + kept.count]
        found = {link.url: link for row in rows for link in links(content(row))}
        if found:
            choose(self.app, list(found.values()), ask=len(found) > 1)
        else:
            self.post_message(Said("no link here"))

    def _how(self, index: int) -> Drawing:
        """What a row is drawn with."""
        serial, here = index + self._rows.dropped, self._rows.owners[index] is self._cursor
        how = Drawing(
            self._base,
            colours=not self.app.no_color,
            sought=self._sought,
            here=serial == self._found,
            cursor=here and self.has_focus,
        )
        selection = self.text_selection
        span = None if selection is None else selection.get_span(serial)
        if span is None:
            return how
        look = self.screen.get_component_rich_style("screen--selection")
        return replace(how, selected=span, selection=look)

    def on_focus(self) -> None:
        """Show the cursor."""
        self.refresh()

    def on_blur(self) -> None:
        """Hide it."""
        self.refresh()


class FindLine(Input):
    """Stands below its log until Enter or Esc."""

    DEFAULT_CSS = """
    FindLine, FindLine:focus {
        height: 1;
        border: none;
        padding: 0;
    }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "back"),
        Binding("up", "search(True)", "earlier"),
        Binding("down", "search(False)", "later"),
    ]

    def __init__(self, log: RowLog) -> None:
        super().__init__(placeholder="find: Enter or up for earlier, down for later, Esc")
        self.cursor_blink = False
        self._log = log

    @classmethod
    def open(cls, log: RowLog) -> None:
        """Put it below a log, once."""
        parent = log.parent
        if not isinstance(parent, Widget):
            return
        for line in parent.query(cls):
            line.focus()
            return
        line = cls(log)
        parent.mount(line, after=log)
        line.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Search, and go back to the log, where keys go on."""
        event.stop()
        self._log.search(self.value)
        self._close()

    def action_search(self, backwards: bool) -> None:
        """Search, and stay."""
        self._log.search(self.value, backwards=backwards)

    def action_leave(self) -> None:
        """Take the marks away, and go back to the log."""
        self._log.find("")
        self._close()

    def _close(self) -> None:
        self._log.focus()
        self.remove()
