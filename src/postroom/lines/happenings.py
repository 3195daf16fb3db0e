"""What happens, in the whole post room and in a project beside its posts, as text of a terminal."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from postroom.lines.rows import Row, Span, Style, colour_of, style_of
from postroom.lines.text import fitted, shortened
from postroom.view.happenings import activity_words
from postroom.view.tasks import short
from postroom.view.words import address, clock
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.protocol.shapes import Activity
    from postroom.view.happenings import SeenEvent


def seen_line(seen: SeenEvent, now: float, width: int | None) -> str:
    """An event on one line, at most `width` columns; None for no limit."""
    text = f": {seen.text}" if seen.text else ""
    line = f"{clock(seen.at, now)} {seen.about} {seen.label}{text}"
    if width is not None:
        line = shortened(line, width)
    colour = colour_of(seen.state)
    return line.replace(seen.label, click.style(seen.label, fg=colour), 1) if colour else line


def seen_row(seen: SeenEvent, now: float) -> Row:
    """The same as a row that wraps."""
    return Row(
        (
            Span(f"{clock(seen.at, now)} ", Style.DIM),
            Span(seen.about, who=seen.who),
            Span(f" {seen.label}", style_of(seen.state)),
            Span(f": {seen.text}" if seen.text else ""),
        ),
        wraps=True,
    )


# ── in a project beside its posts ──

SHOWN = 200
"""Characters of a text."""


def activity_line(record: Activity, width: int | None) -> str:
    """One line of at most `width` columns, None for no limit: when, who, what, and the text."""
    when = click.style(clock(record["at"], time.time()), dim=True)
    said, state = activity_words(record)
    text = one_line(record["text"], SHOWN)
    colour = colour_of(state)
    line = f"· {address(record['worker'])} {said}{f': {text}' if text else ''}"
    room = None if width is None else max(20, width - len(clock(record["at"], time.time())) - 1)
    shown = fitted(line, room)
    return f"{when} {click.style(shown, fg=colour, dim=not colour or None)}"


def activity_row(record: Activity, head: Span) -> Row:
    """The same as a row after `head`, without an end: a screen breaks it."""
    said, state = activity_words(record)
    text = one_line(record["text"], SHOWN)
    style = style_of(state) if colour_of(state) else Style.DIM
    worker = record["worker"]
    return Row(
        (
            head,
            Span("· ", style),
            Span(address(worker), style, who=worker["uid"]),
            Span(f" {said}{f': {text}' if text else ''}", style),
        ),
        wraps=True,
    )


def activity_hint(record: Activity) -> str:
    """How to answer what is asked, "" for anything else."""
    if record["what"] == "asks" and record["task"]:
        return f"    /answer {short(record['task'])} TEXT"
    if record["what"] == "approval" and record["approval"]:
        request = short(record["approval"])
        until = f", or /all {request} until its task ends" if record["task"] else ""
        return f"    /approve {request}, or /deny {request} REASON{until}"
    return ""
