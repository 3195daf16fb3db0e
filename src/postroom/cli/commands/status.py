"""`postroom status`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from postroom.cli.options import connect, json_option, state_option
from postroom.cli.output import Cell, address, ago, print_json, print_table
from postroom.protocol.text import one_line

if TYPE_CHECKING:
    from postroom.client.records import Status, Worker

COLOURS = {
    "failed": "red",
    "stalled": "yellow",
    "unknown": "yellow",
    "starting": "cyan",
    "working": "green",
    "idle": "green",
}
LEVELS = {"none": "red", "partial": "yellow"}
HEAD = ("NICK", "STATE", "SANDBOX", "UNREAD", "SEEN", "PROJECT", "DETAIL")


@click.command("status")
@json_option
@state_option()
def command(as_json: bool) -> None:
    """Show the post room and its workers, those that need attention first.

    The exit status is 3 if no post room is running.
    """
    with connect() as client:
        status = client.status()
    if as_json:
        print_json(status)
    else:
        _print(status, time.time())


def _print(status: Status, now: float) -> None:
    server, me = status["server"], status["me"]
    click.echo(
        f"post room {one_line(str(status['version']))} at {one_line(str(server['url']))} (pid {server['pid']}),"
        f" org {one_line(status['org'])}, you are @{one_line(me.get('nick', '?'))}"
    )
    for alert in status["alerts"]:
        click.echo(f"{click.style('alert:', fg='red')} {_alert(alert)}")
    if status.get("inbox"):
        click.echo(f"unread messages to you: {status['inbox']} (postroom inbox)")
    if status["deadletters"]:
        count = click.style(str(status["deadletters"]), fg="red")
        click.echo(f"dead letters: {count} (postroom deadletters list)")
    if not status["workers"]:
        click.echo("no workers (postroom spawn TEMPLATE)")
        return
    workers = sorted(status["workers"], key=_urgency)
    print_table(HEAD, [_row(worker, now) for worker in workers])


def _urgency(worker: Worker) -> tuple[int, str]:
    """Sorts first what a person has to look after."""
    state = worker["state"]
    ended = state in ("exited", "stopped", "unknown") and worker["desired"] == "running"
    if state == "failed" or ended:
        return 0, worker["nick"]
    if state == "stalled":
        return 1, worker["nick"]
    return (3 if state in ("stopped", "exited") else 2), worker["nick"]


def _row(worker: Worker, now: float) -> list[Cell]:
    state, wall = worker["state"], worker["sandbox"]
    level = str(wall.get("level", "")) or "unknown"
    return [
        Cell(f"@{worker['nick']}"),
        Cell(state, COLOURS.get(state), bold=_urgency(worker)[0] < 2, dim=state == "stopped"),
        Cell(f"{wall.get('provider', '')}: {level}", LEVELS.get(level), bold=level == "none"),
        Cell(str(worker["unread"]), bold=worker["unread"] > 0),
        Cell(ago(worker["last_seen"], now)),
        Cell(f"#{worker['project']}" if worker["project"] else "-"),
        Cell(one_line(worker["detail"] or "", 80)),
    ]


def _alert(alert: Any) -> str:
    """The text of an alert with the one who raised it, whatever its shape."""
    raiser = ""
    if isinstance(alert, dict):
        raiser = f"{address(alert['from'])}: " if alert.get("from") else ""
        alert = next((alert[key] for key in ("text", "detail", "message") if alert.get(key)), alert)
    return raiser + one_line(str(alert), 300)
