"""Text that is taken out of a log: whole rows, without the breaks, marks and common indent of the screen. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from textual.selection import Selection

from postroom.lines.rows import Row
from postroom.tui.rowlog.kept import Kept, Rows, content


def text_of(rows: Rows, kept: Kept) -> str:
    """The text of a block, folded or not."""
    if kept.empty:
        return ""
    start = rows.start(kept)
    taken = rows.rows[start : start + kept.count]
    return _joined((row, content(row)) for row in taken)


def selected_text(rows: Rows, selection: Selection) -> str:
    """What is selected, from a character of a row to one of another; what is folded away is not."""
    taken: list[tuple[Row, str]] = []
    start, end = selection
    first = 0 if start is None else max(0, start.y - rows.dropped)
    last = len(rows) - 1 if end is None else min(len(rows) - 1, end.y - rows.dropped)
    for index in range(first, last + 1):
        if not rows.height(index):
            continue
        text = content(rows.rows[index])
        if end is not None and index + rows.dropped == end.y:
            text = text[: end.x]
        if start is not None and index + rows.dropped == start.y:
            text = text[start.x :]
        taken.append((rows.rows[index], text))
    return _joined(taken)


def _joined(taken: Iterable[tuple[Row, str]]) -> str:
    """Rows with what their indents differ by."""
    pairs = list(taken)
    least = min((row.indent for row, text in pairs if text), default=0)
    return "\n".join(
        " " * max(0, row.indent - least) * bool(text) + text.rstrip() for row, text in pairs
    )
