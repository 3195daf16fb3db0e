"""What happens, and what went wrong: `postroom watch` and `alerts`."""

from __future__ import annotations

import json
import time

import click

from postroom.cli.options import connect, json_option, screen_options, state_option, without_mouse
from postroom.cli.output import print_json
from postroom.lines.words import clock
from postroom_a2a.text import one_line


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
        from postroom.cli.following import say_away
        from postroom.cli.output import terminal_width
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


@click.group("alerts", invoke_without_command=True)
@click.option("--all", "ended", is_flag=True, help="Also those that have ended.")
@json_option
@state_option()
@click.pass_context
def alerts(context: click.Context, ended: bool, as_json: bool) -> None:
    """List what went wrong, the newest last. An alert goes when its cause goes, or when you clear it."""
    if context.invoked_subcommand is not None:
        return
    with connect() as client:
        alerts = client.alerts(ended=ended)
    if as_json:
        print_json({"alerts": alerts})
        return
    if not alerts:
        click.echo("no alerts")
        return
    from postroom.view.workers import alert_line

    now = time.time()
    for alert in sorted(alerts, key=lambda alert: alert["at"]):
        line = alert_line(alert, now)
        if alert["ended"]:
            when = f" at {clock(alert['ended_at'], now)}" if alert["ended_at"] else ""
            line = click.style(f"{line}; ended{when}: {one_line(alert['ended'], 100)}", dim=True)
        click.echo(line)


@alerts.command("clear", short_help="Clear one, or all.")
@click.argument("alert", metavar="[ID]", default="")
@json_option
@state_option()
def clear_alerts(alert: str, as_json: bool) -> None:
    """Clear the alert ID, or all that there are now. What happens again is told again."""
    with connect() as client:
        cleared = client.clear_alerts(alert)
    if as_json:
        print_json({"cleared": cleared})
    else:
        click.echo(f"cleared {cleared} alert{'s' * (cleared != 1)}")
