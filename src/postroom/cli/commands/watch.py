"""`postroom watch`."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import click

from postroom.cli.options import connect, json_option, state_option
from postroom.lines.parts import gist
from postroom.lines.status import FAILED
from postroom.lines.tasks import Updates, short
from postroom.lines.words import address, clock, shortened
from postroom_a2a.text import one_line
from postroom_a2a.times import format_time

if TYPE_CHECKING:
    from postroom.client.stream import Event


@click.command("watch")
@json_option
@state_option()
def command(as_json: bool) -> None:
    """Show what happens from now on, a line each: tasks, messages to you, projects, alerts, workers that fail.

    It waits for a post room that goes down and goes on when it is up again; Ctrl-C ends it. With --json each line is
    a JSON object whose `type` says what happened.
    """
    with connect() as client:
        from postroom.cli.output import terminal_width
        from postroom.cli.tasks.following import say_away

        lines = ChangeLines(terminal_width())
        for event in client.follow_everything(away=say_away):
            if as_json and event.kind != "open":
                click.echo(json.dumps({"type": event.kind, **event.data}, ensure_ascii=True))
            elif line := "" if as_json else lines.line(event):
                click.echo(line)


SHOWN_STATES = {**FAILED, "starting": "starts", "stopped": "is stopped"}
"""States of a worker that are shown; its tasks show its work."""

TIMES = ("at", "sent_at", "created_at")
"""Fields of a record that hold its time."""

ATTEMPTS_KEPT = 1000
"""Tasks whose attempt is remembered, to recognise the begin of another one."""


class ChangeLines:
    """Formats changes in lines of at most `width` columns, None for no limit."""

    def __init__(self, width: int | None) -> None:
        self._width = width
        self._updates: dict[str, Updates] = {}

    def line(self, event: Event) -> str:
        """The line of an event, "" for an event that a person need not see."""
        about, label, colour, text = self._parts(event.kind, event.data)
        if not about:
            return ""
        now = time.time()
        said = next((event.data[key] for key in TIMES if event.data.get(key)), format_time(now))
        when = clock(said, now)
        line = f"{when} {about} {label}: {one_line(text)}" if text else f"{when} {about} {label}"
        if self._width is not None:
            line = shortened(line, self._width)
        if colour and label in line:
            line = line.replace(label, click.style(label, fg=colour), 1)
        return line

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
            case "alert":
                about = f"@{one_line(data['nick'], 64)}" if data["nick"] else "post room"
                return about, "alert", "red", data["text"]
            case "worker" if data["state"] in SHOWN_STATES:
                colour = "red" if data["state"] in FAILED else None
                return (
                    f"@{one_line(data['nick'])}",
                    SHOWN_STATES[data["state"]],
                    colour,
                    data["detail"],
                )
        return "", "", None, ""

    def _update(self, data: Any) -> tuple[str, str, str | None, str]:
        task = data["task"]
        updates = self._updates.pop(task, None) or Updates(data["worker"], time.time())
        if not data["final"]:
            self._updates[task] = updates
            while len(self._updates) > ATTEMPTS_KEPT:
                self._updates.pop(next(iter(self._updates)))
        label, colour, text = updates.parts(data)
        return address(data["worker"]), f"{short(task)} {label}", colour, text
