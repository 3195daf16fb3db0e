"""What happens, and what went wrong: `postroom watch` and `alerts`."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import click

from postroom.cli.declaring import answers, asks
from postroom.cli.options import connect, connect_async, without_mouse
from postroom.view.words import clock
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.protocol.shapes import Alert


@click.command("watch")
@answers(screen=True)
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
            return run(connect_async(), mouse=not without_mouse())
        from postroom.cli.following import say_away
        from postroom.cli.output import terminal_width
        from postroom.lines.happenings import seen_line
        from postroom.view.happenings import ChangeLines

        lines, width = ChangeLines(), terminal_width()
        for event in client.follow_everything(away=say_away):
            now = time.time()
            if as_json:
                if event.kind != "open":
                    said = {"type": event.kind, **event.data}
                    click.echo(json.dumps(said, ensure_ascii=True))
            elif (found := lines.happening(event.kind, event.data, now)) is not None:
                click.echo(seen_line(found, now, width))
    return 0


@click.group("alerts", invoke_without_command=True)
@asks("alerts.list", "--all ended: Also those that have ended.")
def alerts(found: list[Alert]) -> None:
    """List what went wrong, the newest last. An alert goes when its cause goes, or when you clear it."""
    from postroom.lines.workers import alert_line

    now = time.time()
    if not found:
        click.echo("no alerts")
    for alert in sorted(found, key=lambda alert: alert["at"]):
        line = alert_line(alert, now)
        if alert["ended"]:
            when = f" at {clock(alert['ended_at'], now)}" if alert["ended_at"] else ""
            line = click.style(f"{line}; ended{when}: {one_line(alert['ended'], 100)}", dim=True)
        click.echo(line)


@alerts.command("clear", short_help="Clear one, or all.")
@asks("alerts.clear", "alert [ID]", named="cleared")
def clear_alerts(cleared: int) -> None:
    """Clear the alert ID, or all that there are now. What happens again is told again."""
    click.echo(f"cleared {cleared} alert{'s' * (cleared != 1)}")
