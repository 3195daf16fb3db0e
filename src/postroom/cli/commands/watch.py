"""`postroom watch`."""

from __future__ import annotations

import json
import time

import click

from postroom.cli.options import (
    connect,
    json_option,
    screen_options,
    state_option,
    without_mouse,
)


@click.command("watch")
@json_option
@screen_options
@state_option()
def command(as_json: bool) -> int:
    """Show what happens from now on: tasks, messages to you, projects, alerts, approvals, workers that fail.

    In a terminal it is a page for a second screen or a pane of tmux, which nothing can be done from: what needs you,
    what each worker is at, and what happened last. With --no-tui, and in a pipe, what happens is a line each.
    It waits for a post room that goes down and goes on when it is up again; Ctrl-C ends it. With --json each line is
    a JSON object whose `type` says what happened.
    """
    from postroom.cli.screen import wanted

    with connect() as client:
        if wanted() and not as_json:
            from postroom.tui.watch import run

            client.status()  # it answers, and takes our key
            return run(client, mouse=not without_mouse())
        from postroom.cli.output import terminal_width
        from postroom.cli.tasks.following import say_away
        from postroom.view.happenings import ChangeLines

        lines, width = ChangeLines(), terminal_width()
        for event in client.follow_everything(away=say_away):
            if as_json:
                if event.kind != "open":
                    said = {"type": event.kind, **event.data}
                    click.echo(json.dumps(said, ensure_ascii=True))
            elif (found := lines.happening(event.kind, event.data, time.time())) is not None:
                click.echo(found.line(width))
    return 0
