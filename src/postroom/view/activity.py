"""What happens in a project beside its posts, one line each. Agents wrote the texts, so all of it is made harmless."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from postroom.lines.rows import Row, Span, Style
from postroom.lines.words import address, clock, fitted
from postroom.view.tasks import colour_of, short
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.protocol.shapes import Activity

SHOWN = 200
"""Characters of a text."""

_COLOURS = {"asks": "yellow", "approval": "yellow", "failed": "red"}
_DECIDED = {"allowed": "green", "edited": "green", "denied": "red", "expired": "red"}
_STYLES = {None: Style.DIM, "green": Style.GOOD, "red": Style.BAD, "yellow": Style.ASKS}


def line_of(record: Activity, width: int | None) -> str:
    """One line of at most `width` columns, None for no limit: when, who, what, and the text."""
    when = click.style(clock(record["at"], time.time()), dim=True)
    said, colour = _said(record)
    text = one_line(record["text"], SHOWN)
    line = f"· {address(record['worker'])} {said}{f': {text}' if text else ''}"
    room = None if width is None else max(20, width - len(clock(record["at"], time.time())) - 1)
    shown = fitted(line, room)
    return f"{when} {click.style(shown, fg=colour, dim=not colour or None)}"


def row_of(record: Activity, head: Span) -> Row:
    """The same as a row after `head`, without an end: a screen breaks it."""
    said, colour = _said(record)
    text = one_line(record["text"], SHOWN)
    style = _STYLES[colour]
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


def hint_of(record: Activity) -> str:
    """How to answer what is asked, "" for anything else."""
    if record["what"] == "asks" and record["task"]:
        return f"    /answer {short(record['task'])} TEXT"
    if record["what"] == "approval" and record["approval"]:
        request = short(record["approval"])
        until = f", or /all {request} until its task ends" if record["task"] else ""
        return f"    /approve {request}, or /deny {request} REASON{until}"
    return ""


def _said(record: Activity) -> tuple[str, str | None]:
    """What happened in a few words, and its colour."""
    what, task = record["what"], short(record["task"] or "")
    by, state = record["by"], one_line(record["state"], 40)
    match what:
        case "took":
            return f"takes task {task} of {address(by)}" if by else f"takes task {task}", None
        case "asks":
            return f"asks about task {task}", _COLOURS[what]
        case "ended":
            return f"has ended task {task}, {state}", colour_of(state)
        case "approval":
            return f"asks for approval {short(record['approval'] or '')}", _COLOURS[what]
        case "decided":
            request = short(record["approval"] or "")
            # The worker is the one that asked, and not who decided.
            of = f"has its request {request} {state}"
            return f"{of}{f' by {address(by)}' if by else ''}", _DECIDED.get(state)
        case "failed":
            return "has failed", _COLOURS[what]
        case "joined" | "left":  # a spawn of a worker, its removal
            return "was added" if what == "joined" else "was removed", None
    return f"has {one_line(what, 40)}", None
