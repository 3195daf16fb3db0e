"""What happens in the whole post room, and in a project beside its posts, a line each.

Agents wrote the texts, so all of it is made harmless here.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from postroom.lines.parts import gist
from postroom.lines.rows import Row, Span, Style
from postroom.lines.words import address, clock, fitted, shortened
from postroom.view.approvals import COLOURS as DECIDED
from postroom.view.approvals import decider, what
from postroom.view.tasks import STYLES, TaskUpdates, colour_of, short
from postroom.view.workers import FAILED
from postroom_a2a.text import one_line
from postroom_a2a.times import format_time

if TYPE_CHECKING:
    from postroom.protocol.shapes import Activity

SHOWN_STATES = {
    **FAILED,
    "starting": "starts",
    "stopped": "is stopped",
    "removed": "is removed",
}
"""States of a worker that are shown; its tasks show its work."""

TOLD_OTHERWISE = frozenset({"approval"})
"""Kinds of alerts about what has a line of its own."""

TIMES = ("sent_at", "created_at")
"""Fields of a record that hold its time, where it is not `at`."""

ATTEMPTS_KEPT = 1000
"""Tasks whose attempt is remembered, to recognise the begin of another one."""


@dataclass(frozen=True, slots=True)
class SeenEvent:
    """An event that a person sees: when, whom it is about, a few words in their colour, and the text."""

    when: str
    about: str
    label: str
    colour: str | None
    text: str
    who: str = ""

    def line(self, width: int | None) -> str:
        """One line of a terminal, at most `width` columns; None for no limit."""
        line = f"{self.when} {self.about} {self.label}{f': {self.text}' if self.text else ''}"
        if width is not None:
            line = shortened(line, width)
        if self.colour and self.label in line:
            line = line.replace(self.label, click.style(self.label, fg=self.colour), 1)
        return line

    def row(self) -> Row:
        """The same as a row that wraps."""
        return Row(
            (
                Span(f"{self.when} ", Style.DIM),
                Span(self.about, who=self.who),
                Span(f" {self.label}", STYLES[self.colour]),
                Span(f": {self.text}" if self.text else ""),
            ),
            wraps=True,
        )


class ChangeLines:
    """Makes a `SeenEvent` of each event that a person need see."""

    def __init__(self) -> None:
        self._updates: dict[str, TaskUpdates] = {}

    def happening(self, kind: str, data: dict[str, Any], now: float) -> SeenEvent | None:
        """What a person sees of an event of the stream of everything, None for one that they need not see.

        Args:
            now: seconds since the epoch.
        """
        if kind == "approval":
            return _approval(data, now)
        about, label, colour, text = self._parts(kind, data)
        if not about:
            return None
        at = next((data[key] for key in ("at", *TIMES) if data.get(key)), format_time(now))
        return SeenEvent(clock(at, now), about, label, colour, one_line(text), _uid(kind, data))

    def _parts(self, kind: str, data: dict[str, Any]) -> tuple[str, str, str | None, str]:
        """The subject, a few words about the event, their colour, and the text."""
        match kind:
            case "task":
                given = f"task {short(data['id'])} from {address(data['requester'])}"
                return address(data["worker"]), given, None, data["text"]
            case "update":
                return self._update(data)
            case "mail":
                return address(data["from"]), "to you", "yellow", gist(data)
            case "post":
                return f"#{one_line(data['project'])}", address(data["from"]), None, gist(data)
            case "alert" if data["kind"] not in TOLD_OTHERWISE:
                about = f"@{one_line(data['nick'], 64)}" if data["nick"] else "post room"
                return about, "alert", "red", data["text"]
            case "worker" if data["state"] in SHOWN_STATES:
                colour = "red" if data["state"] in FAILED else None
                said = SHOWN_STATES[data["state"]]
                return f"@{one_line(data['nick'])}", said, colour, data["detail"]
        return "", "", None, ""

    def _update(self, data: Any) -> tuple[str, str, str | None, str]:
        task = data["task"]
        updates = self._updates.pop(task, None) or TaskUpdates(data["worker"], time.time())
        if not data["final"]:
            self._updates[task] = updates
            while len(self._updates) > ATTEMPTS_KEPT:
                self._updates.pop(next(iter(self._updates)))
        label, colour, text = updates.parts(data)
        return address(data["worker"]), f"{short(task)} {label}", colour, text


def _approval(data: Any, now: float) -> SeenEvent:
    """What is asked for, or how that was decided."""
    who, id_, answer = address(data["worker"]), short(data["id"]), data["answer"]
    state, uid = one_line(data["state"], 40), data["worker"]["uid"]
    if state == "pending":
        asked = f"asks for approval {id_}"
        text = f"{one_line(data['tool'], 80)}: {what(data)}"
        return SeenEvent(clock(data["asked_at"], now), who, asked, "yellow", text, uid)
    by = f" by {decider(answer)}" if answer else ""
    at = answer["at"] if answer else format_time(now)
    text = one_line(answer["reason"], 300) if answer else ""
    label = f"has its request {id_} {state}{by}"
    return SeenEvent(clock(at, now), who, label, DECIDED.get(state), text, uid)


def _uid(kind: str, data: dict[str, Any]) -> str:
    """The agent that an event is about, "" for a project and for the post room itself."""
    match kind:
        case "task" | "update":
            return data["worker"]["uid"]
        case "mail":
            return data["from"]["uid"]
        case "worker":
            return data["uid"]
        case "alert":
            return data["who"]["uid"] if data["who"] else ""
    return ""


# ── in a project beside its posts ──

SHOWN = 200
"""Characters of a text."""

_COLOURS = {"asks": "yellow", "approval": "yellow", "failed": "red"}
_DECIDED = {"allowed": "green", "edited": "green", "denied": "red", "expired": "red"}


def activity_line(record: Activity, width: int | None) -> str:
    """One line of at most `width` columns, None for no limit: when, who, what, and the text."""
    when = click.style(clock(record["at"], time.time()), dim=True)
    said, colour = _said(record)
    text = one_line(record["text"], SHOWN)
    line = f"· {address(record['worker'])} {said}{f': {text}' if text else ''}"
    room = None if width is None else max(20, width - len(clock(record["at"], time.time())) - 1)
    shown = fitted(line, room)
    return f"{when} {click.style(shown, fg=colour, dim=not colour or None)}"


def activity_row(record: Activity, head: Span) -> Row:
    """The same as a row after `head`, without an end: a screen breaks it."""
    said, colour = _said(record)
    text = one_line(record["text"], SHOWN)
    style = STYLES[colour] if colour else Style.DIM
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
