"""Posts, messages and what happens beside them, as blocks of rows. Pure.

    ── Monday, 23 November 2026 ──
    14:02 [bob] which branch? · asks you: your next line answers
    14:03 [maria] main · seen
    14:03 · @bob takes task 1f2e3d4c of @maria: fix the tests

Only ours begins in the first column: further lines of a text are indented, so that none can forge the head of another.
"""

from __future__ import annotations

import time
from typing import Any

from postroom.lines.happenings import activity_row
from postroom.lines.markdown import drawn
from postroom.lines.rows import Row, Span, Style
from postroom.lines.tasks import answer_rows
from postroom.lines.text import shortened
from postroom.protocol.ids import MAX_ADDRESS
from postroom.protocol.limits import MAX_HOW
from postroom.protocol.receipts import State
from postroom.tui.rowlog.log import Block
from postroom.view.tasks import short
from postroom.view.timeline import QUOTED, EntryKind, TimelineEntry, at_of, is_open, need_of
from postroom.view.words import expiry, lines_of, part_lines
from postroom_a2a.text import one_line
from postroom_a2a.times import parse_time

INDENT = 4
"""Columns before the further lines of a text."""

SENDING = "sending"

LONG = 8
"""Rows of an answer beyond which it is folded."""


def block_of(entry: TimelineEntry, me: Any) -> Block:
    """An entry as a block.

    Args:
        me: uid and nick of who looks.
    """
    match entry.kind:
        case EntryKind.MESSAGE:
            return message_block(entry.record, entry.key, me=me["uid"], quote=entry.text)
        case EntryKind.ACTIVITY:
            return _activity(entry)
        case EntryKind.TASK:
            row = Row.of(f"task {short(entry.text)}", Style.DIM, indent=INDENT)
            return Block([row], entry.key)
        case EntryKind.ANSWER:
            rows = answer_rows(entry.record, time.time())
            return Block(rows, entry.key, folds=len(rows) > 1, folded=len(rows) > LONG)
        case EntryKind.SENDING:
            return _sending(entry, me)
        case EntryKind.NEW:
            return mark_block("new", entry.key, Style.ASKS)
        case EntryKind.GONE:
            return Block([], entry.key)
    return mark_block(entry.text, entry.key)


def mark_block(text: str, key: str, style: Style = Style.DIM) -> Block:
    """A line of ours between records."""
    return Block([Row.of(f"── {text} ──", style)], key)


def _activity(entry: TimelineEntry) -> Block:
    """What happened beside the posts, and how to answer it if it asks and still waits."""
    rows = [activity_row(entry.record, _when(at_of(entry.record)))]
    if entry.waits and need_of(entry.record):
        rows.append(Row.of("Enter answers it", Style.ASKS, indent=INDENT + 2))
    return Block(rows, entry.key)


def message_block(record: Any, key: str, *, me: str, quote: str = "") -> Block:
    """A post or a message; of one's own with its state, of another's with whether it wants an answer.

    Args:
        me: uid of who looks.
        quote: what it replies to, "" for nothing to say.
    """
    sender = record["from"]
    mine = sender["uid"] == me
    head = [_when(at_of(record)), *_nick(sender, mine)]
    if quote:
        head.append(Span(f"(to “{shortened(quote, QUOTED)}”) ", Style.DIM))
    subject = one_line(record.get("subject") or "")
    if subject:
        head.append(Span(f"{subject}: ", Style.STRONG))
    lines = lines_of(record["text"])
    # One's own text stands as it was typed.
    first, *more = [(Span(line),) for line in lines] if mine else drawn(lines)[0]
    if lines == [""] and (others := part_lines(record)):
        head.append(Span(others[0], Style.TOOL))
        rest = others[1:]
    else:
        head += first
        rest = part_lines(record)
    rows = [Row(tuple(head), wraps=True)]
    rows += [Row(line, indent=INDENT, wraps=True) for line in more]
    rows += [Row.of(line, Style.TOOL, indent=INDENT, wraps=True) for line in rest]
    rows[-1] = _with(rows[-1], _tail(record, mine=mine, me=me))
    return Block(rows, key)


def _sending(entry: TimelineEntry, me: Any) -> Block:
    """One's own line while it is on its way."""
    first, *more = lines_of(entry.text)
    said = first or f"{entry.parts} file{'s' if entry.parts != 1 else ''}"
    now = time.strftime("%H:%M ", time.localtime())
    head = (Span(now, Style.DIM), *_nick(me, True), Span(said))
    rows = [Row(head, wraps=True), *(Row.of(each, indent=INDENT, wraps=True) for each in more)]
    rows[-1] = _with(rows[-1], Span(f" · {SENDING}", Style.DIM))
    return Block(rows, entry.key)


def _with(row: Row, tail: Span | None) -> Row:
    return row if tail is None else Row((*row.spans, tail), row.indent, row.wraps)


def _tail(record: Any, *, mine: bool, me: str) -> Span | None:
    state = record.get("state")
    if state is None:  # a post has none
        return None
    until = expiry(record, time.time())
    ends = f" · {until}" if until else ""
    if not mine:
        asks = record["to"]["uid"] == me and is_open(record)
        return Span(f" · wants an answer{ends}", Style.ASKS) if asks else None
    if state == State.DEAD:
        reason = one_line(record.get("reason") or "", 200)
        return Span(f" · dead{f': {reason}' if reason else ''}", Style.BAD)
    how = one_line(record.get("how", ""), MAX_HOW) if state == State.DELIVERED else ""
    return Span(f" · {one_line(state, 20)}{f' by {how}' if how else ''}{ends}", Style.DIM)


def _when(at: str) -> Span:
    return Span(time.strftime("%H:%M ", time.localtime(parse_time(at))), Style.DIM)


def _nick(sender: Any, mine: bool) -> tuple[Span, Span]:
    name = one_line(str(sender.get("nick") or sender["uid"]), MAX_ADDRESS)
    style = Style.STRONG if mine else Style.PLAIN
    return Span(f"[{name}]", style, who=sender["uid"]), Span(" ")
