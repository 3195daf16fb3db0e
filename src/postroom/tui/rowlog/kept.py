"""The rows of a log, and which line of the screen each of them begins in. Pure.

All rows stand in one list, so that a line is found by bisection. A row's height is counted when it comes near the
screen; until then it is estimated from its columns, so that a new width costs a division for each row.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, MutableSequence, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import attrgetter
from typing import Any

from textual.selection import Selection

from postroom.lines.rows import HANG, LEAST, Line, Row, Span, Style, broken
from postroom.lines.text import columns

MOST = 100_000
"""Rows that are kept."""

BLOCK_MOST = 20_000
"""Rows of one block that are kept: the first, and the last ones."""

BLOCK_TEXT = 4_000_000
"""Characters of one block that are kept."""

ROW_MOST = 16_384
"""Characters of one row that are kept."""

TEXT_MOST = 32_000_000
"""Columns of text that are kept in all."""

WRAPPED_MOST = 20_000
"""Lines that are kept for rows that were wrapped."""


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


@dataclass(slots=True, eq=False)
class Kept:
    """A block in the log; it stays the same object when the block is replaced.

    Attributes:
        order: rises from block to block.
        count: its rows, at least one; an empty block has one of no height.
        by_hand: the person has folded or unfolded it, so that a new version leaves that as it is.
    """

    key: str
    order: int
    count: int = 1
    folds: bool = False
    folded: bool = False
    by_hand: bool = False
    empty: bool = False


@dataclass(frozen=True, slots=True)
class Wrapped:
    """A row as lines: its text without the indent, and the character of it that each line begins with."""

    row: Row
    text: str
    lines: list[Line]
    starts: list[int]


_order = attrgetter("order")


class Rows:
    """Blocks below each other. A row is named by its index, the first is 0; so is a line.

    Attributes:
        width: columns; 0 while it is not known: each row is one line then.
        dropped: rows that have left the log at its top, less those that were put before it. The index of a row plus
            this stays the same while rows come and go at both ends.
    """

    def __init__(self) -> None:
        self.width = 0
        self.dropped = 0
        self.rows: list[Row] = []
        self.owners: list[Kept] = []
        self._sizes = array("q")
        self._heights = array("q")
        self._sure = bytearray()
        self._ends = array("q")
        self._base = 0
        self._columns = 0
        self._keys: dict[str, Kept] = {}
        self._wrapped: dict[int, Wrapped] = {}
        self._wrapped_lines = 0

    def __len__(self) -> int:
        return len(self.rows)

    # -- what changes them ---------------------------------------------------------------------------------

    def put(self, blocks: Iterable[Block]) -> int:
        """Append or replace blocks; returns the index of the first row that is new or another one."""
        first = len(self.rows)
        fresh: list[tuple[Kept, list[Row]]] = []
        order = self.owners[-1].order if self.owners else 0
        for block in blocks:
            kept = self._keys.get(block.key) if block.key else None
            if kept is None:
                order += 1
                kept = Kept(block.key, order)
                fresh.append((kept, self._take(kept, block)))
                continue
            self._append(fresh)
            fresh = []
            first = min(first, self._replace(kept, block))
        self._append(fresh)
        return max(0, first - self._trim())

    def put_before(self, blocks: Sequence[Block]) -> None:
        """Put older blocks at the top, the newest of them where not all fit."""
        room, text = MOST - len(self.rows), TEXT_MOST - self._columns
        fresh: list[tuple[Kept, list[Row]]] = []
        order = self.owners[0].order if self.owners else 0
        for block in reversed(blocks):
            if block.key and block.key in self._keys:
                continue
            rows = _bounded(block.rows)
            room, text = room - max(1, len(rows)), text - sum(map(abs, _sizes(rows)))
            if room < 0 or text < 0:
                break
            order -= 1
            kept = Kept(block.key, order)
            fresh.append((kept, self._take(kept, block)))
        before = Rows()
        before.width = self.width
        before._append(fresh[::-1])
        self.dropped -= len(before)
        for mine, others in zip(self._parallel(), before._parallel(), strict=True):
            mine[0:0] = others
        self._columns += before._columns
        self._forget_ends(0)

    def fold(self, kept: Kept, folded: bool) -> None:
        """Fold a block or unfold it."""
        kept.folded, kept.by_hand = folded, True
        start = self.start(kept)
        self._set_heights(kept, start)
        self._forget_ends(start)

    def resize(self, width: int) -> None:
        """Lay all rows out for another width."""
        self.width = width
        self._wrapped.clear()
        self._wrapped_lines = 0
        self._heights = self._estimates(self._sizes)
        self._sure = bytearray(len(self.rows))
        self._forget_ends(0)
        index = 0
        while index < len(self.owners):
            kept = self.owners[index]
            if kept.folded or kept.empty:
                self._set_heights(kept, index)
            index += kept.count

    def _take(self, kept: Kept, block: Block) -> list[Row]:
        """Let a block be what a new version of it says; returns its rows, at least one."""
        rows = _bounded(block.rows)
        kept.empty, kept.folds = not rows, block.folds
        rows = rows or [Row(())]
        folded = kept.folded if kept.by_hand else block.folded
        kept.folded = folded and block.folds and len(rows) > 1
        kept.count = len(rows)
        if kept.key:
            self._keys[kept.key] = kept
        return rows

    def _append(self, fresh: Sequence[tuple[Kept, list[Row]]]) -> None:
        """Put blocks at the end."""
        end = len(self.rows)
        for kept, rows in fresh:
            self.rows += rows
            self.owners += [kept] * len(rows)
        sizes = _sizes(self.rows[end:])
        self._sizes += sizes
        self._heights += self._estimates(sizes)
        self._sure += bytes(len(sizes))
        self._columns += sum(map(abs, sizes))
        for kept, rows in fresh:
            if kept.folded or kept.empty:
                self._set_heights(kept, end)
            end += len(rows)

    def _replace(self, kept: Kept, block: Block) -> int:
        """Put the rows of a block in the place of those it has; returns the first that is another one."""
        start = self.start(kept)
        end = start + kept.count
        whole = not (kept.folded or kept.empty)
        rows = self._take(kept, block)
        same = 0
        if whole and not (kept.folded or kept.empty):
            same = _same(self.rows[start:end], rows)
        at = start + same
        sizes = _sizes(rows[same:])
        self._columns += sum(map(abs, sizes)) - sum(map(abs, self._sizes[at:end]))
        self.rows[at:end] = rows[same:]
        self.owners[at:end] = [kept] * (len(rows) - same)
        self._sizes[at:end] = sizes
        self._heights[at:end] = self._estimates(sizes)
        self._sure[at:end] = bytes(len(rows) - same)
        if kept.folded or kept.empty:
            self._set_heights(kept, start)
        self._forget_ends(at)
        return at

    def _parallel(self) -> tuple[MutableSequence[Any], ...]:
        """What has an entry for each row."""
        return self.rows, self.owners, self._sizes, self._heights, self._sure

    def _trim(self) -> int:
        """Let the oldest blocks go while there are too many; returns how many rows went."""
        gone, text = 0, self._columns
        while gone < len(self.rows) and (len(self.rows) - gone > MOST or text > TEXT_MOST):
            kept = self.owners[gone]
            if gone + kept.count == len(self.rows):
                break
            text -= sum(map(abs, self._sizes[gone : gone + kept.count]))
            if kept.key:
                del self._keys[kept.key]
            gone += kept.count
        if gone:
            self._base = self._end(gone - 1)
            self._columns = text
            self.dropped += gone
            for parallel in (*self._parallel(), self._ends):
                del parallel[:gone]
        return gone

    # -- where they are ------------------------------------------------------------------------------------

    @property
    def lines(self) -> int:
        """Lines of all rows."""
        return self._end(len(self.rows) - 1) - self._base if self.rows else 0

    def start(self, kept: Kept) -> int:
        """The index of the first row of a block."""
        return bisect_left(self.owners, kept.order, key=_order)

    def named(self, key: str) -> Kept | None:
        """The block of a key."""
        return self._keys.get(key)

    def holds(self, kept: Kept) -> bool:
        """Whether the block is still there."""
        start = self.start(kept)
        return start < len(self.owners) and self.owners[start] is kept

    def at(self, line: int) -> tuple[int, int]:
        """The row that a line belongs to, and its how manieth line that is; the last row for one below all."""
        if not self.rows:
            raise IndexError(line)
        self._end(len(self.rows) - 1)
        index = min(bisect_right(self._ends, self._base + max(0, line)), len(self.rows) - 1)
        return index, max(0, line) - self.line(index)

    def line(self, index: int) -> int:
        """The line that a row begins in."""
        return (self._end(index - 1) if index else self._base) - self._base

    def height(self, index: int) -> int:
        """Lines of a row; 0 for one that is folded away."""
        return self._heights[index]

    def measure(self, top: int, bottom: int) -> bool:
        """Count the rows in these lines where they were estimated; True if any changed."""
        if not self.rows or not self.width:
            return False
        first, changed = self.at(top)[0], len(self.rows)
        for index in range(self.at(bottom)[0], first - 1, -1):
            if self._sizes[index] > self.width and not self._sure[index] and self._heights[index]:
                self._sure[index] = 1
                height = len(self.wrapped(self.rows[index]).lines)
                if height != self._heights[index]:
                    self._heights[index] = height
                    changed = index
        self._forget_ends(changed)
        return changed < len(self.rows)

    def wrapped(self, row: Row) -> Wrapped:
        """The lines of a row."""
        found = self._wrapped.get(id(row))
        if found is None:
            lines = broken(row, self.width or None)
            found = Wrapped(row, content(row), lines, _starts(content(row), lines))
            self._wrapped_lines += len(lines)
            if self._wrapped_lines > WRAPPED_MOST:
                self._wrapped.clear()
                self._wrapped_lines = len(lines)
            self._wrapped[id(row)] = found  # the row itself keeps the id from being another's
        return found

    def _estimates(self, sizes: Sequence[int]) -> array[int]:
        """Heights for columns: right for rows that fit, and for those that are cut."""
        width = self.width
        if not width:
            return array("q", [1]) * len(sizes)
        room = max(1, width - min(HANG, max(0, width - LEAST)))
        return array("q", [1 if size <= width else -(-size // room) for size in sizes])

    def _set_heights(self, kept: Kept, start: int) -> None:
        """The heights of a block that is folded, or is not any more."""
        end = start + kept.count
        self._heights[start:end] = self._estimates(self._sizes[start:end])
        self._sure[start:end] = bytes(kept.count)
        if kept.folded:
            self._heights[start + 1 : end] = array("q", [0]) * (kept.count - 1)
        if kept.empty:
            self._heights[start] = 0

    def _forget_ends(self, index: int) -> None:
        if index < len(self._ends):
            del self._ends[index:]

    def _end(self, index: int) -> int:
        """The line below a row, counted from `_base` on."""
        known = len(self._ends)
        if index >= known:
            last = self._ends[-1] if known else self._base
            self._ends.extend(accumulate(self._heights[known:], initial=last))
            del self._ends[known]  # accumulate begins with the initial value
        return self._ends[index]


def content(row: Row) -> str:
    """The text of a row without its indent."""
    return row.spans[0].text if len(row.spans) == 1 else "".join(span.text for span in row.spans)


def _starts(text: str, lines: Sequence[Line]) -> list[int]:
    """Where each line begins in the text; between two lines there are at most spaces."""
    found, place = [], 0
    for _, spans in lines:
        line = "".join(span.text for span in spans)
        here = text.find(line, place)
        place = here if here >= 0 else place  # a line that is cut ends in an ellipsis of ours
        found.append(place)
        place += len(line)
    return found


def _same(old: Sequence[Row], new: Sequence[Row]) -> int:
    """How many rows at the beginning are the same: all but a few where text grows."""
    for number, (before, after) in enumerate(zip(old, new, strict=False)):
        if before != after:
            return number
    return min(len(old), len(new))


def _bounded(rows: Sequence[Row]) -> list[Row]:
    """The rows of a block, fewer and shorter where they are too many and too long."""
    lengths = [sum([len(span.text) for span in row.spans]) for row in rows]
    kept = [
        row if long <= ROW_MOST else _short(row) for row, long in zip(rows, lengths, strict=True)
    ]
    if len(kept) <= BLOCK_MOST and sum(lengths) <= BLOCK_TEXT:
        return kept
    first = max(1, len(kept) - BLOCK_MOST + 2)
    text = sum(min(long, ROW_MOST) for long in lengths[first:])
    while text > BLOCK_TEXT:
        text -= min(lengths[first], ROW_MOST)
        first += 1
    if first == 1:
        return kept
    note = Row.of(f"… {first - 1:,} rows are left out", Style.DIM, indent=HANG)
    return [kept[0], note, *kept[first:]]


def _short(row: Row) -> Row:
    """The beginning of a row that is too long."""
    spans: list[Span] = []
    room = ROW_MOST
    for span in row.spans:
        spans.append(span.part(span.text[: max(0, room)]))
        room -= len(span.text)
    spans.append(Span(f" … {-room:,} more characters", Style.DIM))
    return replace(row, spans=tuple(spans))


def _sizes(rows: Iterable[Row]) -> array[int]:
    """Columns of rows; negative for those that are cut, and so never take more than a line."""
    sizes = array("q")
    for row in rows:
        size = row.indent + sum([columns(span.text) for span in row.spans])
        sizes.append(size if row.wraps else -size)
    return sizes


# ── text that is taken out ──


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
