"""Rows where no log is: as text of Rich."""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text

from postroom.lines.rows import Row
from postroom.tui.looks import LOOKS


def text_of(rows: Iterable[Row]) -> Text:
    """A line for each row; what does not fit is left to the widget."""
    return Text("\n").join(map(_line, rows))


def _line(row: Row) -> Text:
    line = Text(" " * row.indent)
    for span in row.spans:
        line.append(span.text, LOOKS[span.style])
    return line
