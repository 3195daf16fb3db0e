"""`postroom watch`."""

from __future__ import annotations

import json

import click

from postroom.cli.options import connect, json_option, state_option


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
        from postroom.cli.watching import Lines

        lines = Lines(terminal_width())
        for event in client.follow_everything(away=say_away):
            if as_json and event.kind != "open":
                click.echo(json.dumps({"type": event.kind, **event.data}, ensure_ascii=True))
            elif line := "" if as_json else lines.line(event):
                click.echo(line)
