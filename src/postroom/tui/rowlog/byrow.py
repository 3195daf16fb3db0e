"""A log whose cursor is a row, where a block is many lines that one speaks about one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType

from postroom.tui.rowlog.drawn import Drawing
from postroom.tui.rowlog.log import RowLog
from postroom.tui.rowlog.view import SETTLES


class ByRow(RowLog):
    """Blocks below each other, and a cursor that goes row by row."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right_square_bracket", "block(1)", "next", show=False),
        Binding("left_square_bracket", "block(-1)", "previous", show=False),
    ]

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes=classes)
        self._row = -1

    @property
    def place(self) -> tuple[str, int]:
        """The key of the block under the cursor and the row in it; ("", 0) for none."""
        row = self._seen_row()
        if row is None:
            return "", 0
        kept = self._rows.owners[row]
        return kept.key, row - self._rows.start(kept)

    def to(self, key: str, row: int = 0) -> bool:
        """Put the cursor on a row of a block; False if there is no such block."""
        kept = self._rows.named(key)
        if kept is None:
            return False
        start = self._rows.start(kept)
        self._to(start + (0 if kept.folded else min(row, kept.count - 1)))
        return True

    def fold(self, key: str, *, folded: bool) -> None:
        """Fold or unfold a block."""
        kept = self._rows.named(key)
        if kept is not None and kept.folds and kept.count > 1:
            self._follows = False
            with self._held():
                self._rows.fold(kept, folded)

    def clear(self) -> None:
        """Forget everything."""
        self._row = -1
        super().clear()

    # -- what the person does ------------------------------------------------------------------------------

    def action_cursor(self, step: int) -> None:
        """To the row above or below."""
        rows, row = self._rows, self._seen_row()
        if not rows.lines:
            return
        if row is None:
            edge = self._top if step > 0 else min(self._top + self._height, rows.lines) - 1
            row = rows.at(edge)[0]
        else:
            row += step
            while 0 <= row < len(rows) and not rows.height(row):
                row += step
        if 0 <= row < len(rows):
            self._to(row)

    def action_block(self, step: int) -> None:
        """To the first row of the block below, or of this one and then of the one above."""
        rows = self._rows
        if not rows.lines:
            return
        row = self._seen_row()
        row = rows.at(self._top)[0] if row is None else row
        kept = rows.owners[row]
        start = rows.start(kept)
        if step > 0:
            start += kept.count
        elif row == start:
            start = rows.start(rows.owners[max(0, start - 1)])
        if start < len(rows):
            self._to(start)

    def action_first(self) -> None:
        """To the top."""
        super().action_first()
        self._row = 0 if len(self._rows) else -1

    def action_last(self) -> None:
        """To the end."""
        super().action_last()
        if self._rows.lines:
            self._to(self._rows.at(self._rows.lines - 1)[0])

    def action_fold(self) -> None:
        """Fold or unfold the block under the cursor; of a folded one its first row is left."""
        super().action_fold()
        if self._cursor is not None and self._cursor.folded:
            self._row = self._rows.start(self._cursor)

    def on_click(self, event: events.Click) -> None:
        """The row that was clicked."""
        line = self._top + event.y
        if line < self._rows.lines:
            self._row = self._rows.at(line)[0]
        super().on_click(event)

    def _to(self, row: int) -> None:
        rows = self._rows
        self._row, self._cursor, self._follows = row, rows.owners[row], False
        for _ in range(SETTLES):
            line = rows.line(row)
            top = min(line, max(self._top, line + rows.height(row) - self._height))
            if not rows.measure(top, top + self._height):
                break
        self._scroll(max(0, top))
        self.refresh()

    def _seen_row(self) -> int | None:
        """The row under the cursor, if any of it is on the screen."""
        rows, row = self._rows, self._row
        if self._cursor is None or not 0 <= row < len(rows) or rows.owners[row] is not self._cursor:
            return None
        line, height = rows.line(row), rows.height(row)
        return (
            row
            if height and line < self._top + self._height and line + height > self._top
            else None
        )

    def _cursor_near(self) -> None:
        if len(self._rows) and self._row >= 0 and self._seen_row() is None:
            self._row = self._rows.at(self._top)[0]
            self._cursor = self._rows.owners[self._row]
            self.refresh()

    def _reveal(self, index: int) -> None:
        super()._reveal(index)
        self._row = index

    def _how(self, index: int) -> Drawing:
        how = super()._how(index)
        return replace(how, cursor=how.cursor and index == self._row)
