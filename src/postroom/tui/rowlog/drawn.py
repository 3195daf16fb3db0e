"""A line of a row as segments: its styles, links, what was found and what is selected."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style as RichStyle
from textual.strip import Strip

from postroom.tui.looks import FOUND, FOUND_HERE, LINK, look_of
from postroom.tui.rowlog.kept import Kept, Rows, Wrapped
from postroom.tui.rowlog.links import Link, links

GUTTER = 1
"""Columns at the left for the cursor and the mark of a fold: no row reaches them."""

HEAD = RichStyle.from_meta({"head": True})
"""What a click on the head of a block that folds finds."""

Mark = tuple[int, int, RichStyle]
"""A style for a stretch of a row's text."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """What the lines of a row are drawn with.

    Attributes:
        base: the style of the widget.
        colours: whether there are any.
        sought: what is searched for, in small letters, or "".
        here: the row is the one that was found last.
        cursor: it belongs to the block under the cursor.
        selected: first and last character that are selected, -1 for the end; None for none.
    """

    base: RichStyle
    colours: bool
    sought: str = ""
    here: bool = False
    selected: tuple[int, int] | None = None
    selection: RichStyle = RichStyle()  # noqa: RUF009 (a style never changes)
    cursor: bool = False


def drawn(rows: Rows, index: int, sub: int, how: Drawing) -> list[Segment]:
    """A line of a row with the gutter before it, and behind it what is folded away."""
    kept, wrapped = rows.owners[index], rows.wrapped(rows.rows[index])
    sub = min(sub, len(wrapped.lines) - 1)
    line = segments(wrapped, sub, index + rows.dropped, how)
    first = sub == 0 and (index == 0 or rows.owners[index - 1] is not kept)
    line.insert(0, _gutter(kept, first, how))
    if first and kept.folds:
        line = [Segment(each.text, (each.style or how.base) + HEAD) for each in line]
    if kept.folded and sub == len(wrapped.lines) - 1:
        more = f" … {kept.count - 1:,} more"
        room = rows.width + GUTTER - len(more)
        if width_of(line) > room:
            line = list(Strip(line).adjust_cell_length(room, how.base))
        line.append(Segment(more, how.base + HEAD + RichStyle(dim=True)))
    return line


def _gutter(kept: Kept, first: bool, how: Drawing) -> Segment:
    """The cursor, and the mark of a fold."""
    if first and kept.folds and kept.count > 1:
        mark = "▸" if kept.folded else "▾"
        return Segment(mark, how.base + RichStyle(bold=True, reverse=how.cursor))
    return Segment("▌" if how.cursor else " ", how.base)


def segments(wrapped: Wrapped, sub: int, serial: int, how: Drawing) -> list[Segment]:
    """One line of a row. Each segment knows the row and the character it begins with, for a selection by mouse."""
    place = wrapped.starts[sub]
    indent, spans = wrapped.lines[sub]
    end = place + sum(len(span.text) for span in spans)
    marks = [mark for mark in _marks(wrapped.text, how) if mark[0] < end and mark[1] > place]
    # One by one, since a place within a segment counts as a place within the text.
    drawn = [Segment(" ", _at(how.base, place, serial))] * indent
    for span in spans:
        style = how.base + look_of(span, colours=how.colours)
        for piece, marked in _cut(span.text, place, style, marks):
            drawn.append(Segment(piece, _at(marked, place, serial)))
            place += len(piece)
    return drawn


def width_of(drawn: Sequence[Segment]) -> int:
    """Columns of segments, as Textual counts them."""
    return sum(cell_len(segment.text) for segment in drawn)


def _at(style: RichStyle, place: int, serial: int) -> RichStyle:
    return style + RichStyle.from_meta({"offset": (place, serial)})


def _marks(text: str, how: Drawing) -> Iterator[Mark]:
    """What a row has beside its styles; a later one goes over an earlier one."""
    for link in links(text):
        yield link.start, link.end, _link_style(link)
    low = text.lower()
    if how.sought and len(low) == len(text):
        place = low.find(how.sought)
        while place >= 0:
            yield place, place + len(how.sought), FOUND_HERE if how.here else FOUND
            place = low.find(how.sought, place + len(how.sought))
    if how.selected is not None:
        first, last = how.selected
        yield first, len(text) if last < 0 else last, how.selection


@lru_cache(maxsize=1024)
def _link_style(link: Link) -> RichStyle:
    """Its look, and what a click finds; a terminal may open a plain one by itself (OSC 8)."""
    meta: dict[str, Any] = {"link": link}
    return LINK + RichStyle(link=link.url if link.plain else None, meta=meta)


def _cut(
    text: str, place: int, style: RichStyle, marks: Sequence[Mark]
) -> Iterator[tuple[str, RichStyle]]:
    """A text in the stretches that look the same."""
    end = place + len(text)
    edges = {place, end}
    for first, last, _ in marks:
        edges.update(edge for edge in (first, last) if place < edge < end)
    ordered = sorted(edges)
    for left, right in pairwise(ordered):
        marked = style
        for first, last, more in marks:
            if first <= left and right <= last:
                marked += more
        yield text[left - place : right - place], marked
