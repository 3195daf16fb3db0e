"""`postroom alerts`: list and clear."""

from __future__ import annotations

import time

import click

from postroom.cli.options import connect, json_option, state_option
from postroom.cli.output import print_json
from postroom.lines.words import clock
from postroom_a2a.text import one_line


@click.group("alerts", invoke_without_command=True)
@click.option("--all", "ended", is_flag=True, help="Also those that have ended.")
@json_option
@state_option()
@click.pass_context
def command(context: click.Context, ended: bool, as_json: bool) -> None:
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


@command.command("clear", short_help="Clear one, or all.")
@click.argument("alert", metavar="[ID]", default="")
@json_option
@state_option()
def clear(alert: str, as_json: bool) -> None:
    """Clear the alert ID, or all that there are now. What happens again is told again."""
    with connect() as client:
        cleared = client.clear_alerts(alert)
    if as_json:
        print_json({"cleared": cleared})
    else:
        click.echo(f"cleared {cleared} alert{'s' * (cleared != 1)}")
