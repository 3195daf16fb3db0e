"""`postroom status`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from postroom.cli.alerts import alert_line
from postroom.cli.options import connect, json_option, state_option
from postroom.cli.output import Cell, address, ago, print_json, print_table
from postroom.cli.tasks.lines import answer_hint, colour_of, is_question, short
from postroom.protocol.text import one_line

if TYPE_CHECKING:
    from postroom.client.records import Current, Status, Task, Worker

COLOURS = {
    "failed": "red",
    "stalled": "yellow",
    "unknown": "yellow",
    "starting": "cyan",
    "working": "green",
    "idle": "green",
}
WEAK = frozenset({"partial", "none"})
"""Levels of a wall that a person has to have asked for."""
QUESTION = "input-required"
"""Kind of the alerts about questions of tasks, which are shown as what needs the person."""

HEAD = ("NICK", "STATE", "TASK", "OPEN", "SANDBOX", "UNREAD", "SEEN", "PROJECT", "DETAIL")


@click.command("status")
@json_option
@state_option()
def command(as_json: bool) -> None:
    """Show what needs a person, then the workers with what each is doing.

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
    _print_attention(status.get("attention", []))
    if status.get("bus"):
        click.echo(f"{click.style('bus:', fg='red')} {one_line(status['bus'], 300)}")
    if status.get("audit"):
        click.echo(f"{click.style('audit:', fg='red')} {one_line(status['audit'], 300)}")
    # An open question stands above, an answered one needs nobody.
    for alert in status["alerts"]:
        if alert["kind"] != QUESTION:
            click.echo(f"{click.style('alert:', fg='red')} {alert_line(alert, now)}")
    if status.get("inbox"):
        click.echo(f"unread messages to you: {status['inbox']} (postroom inbox)")
    if status["deadletters"]:
        count = click.style(str(status["deadletters"]), fg="red")
        click.echo(f"dead letters: {count} (postroom deadletters list)")
    if not status["workers"]:
        click.echo("no workers (postroom spawn TEMPLATE)")
        return
    workers = sorted(status["workers"], key=_urgency)
    print_table(HEAD, [_row(worker, now) for worker in workers], cut=("DETAIL", "TASK"))


def _print_attention(tasks: list[Task]) -> None:
    if not tasks:
        return
    click.echo(click.style("needs you:", fg="yellow", bold=True))
    for task in tasks:
        question = one_line(task["detail"] or task["status_text"] or task["state"], 300)
        click.echo(f"  {short(task['id'])} {address(task['worker'])} asks: {question}")
        click.echo(f"    {answer_hint(task['id'])}")


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
        _task(worker.get("task")),
        Cell(str(worker.get("open_tasks", 0)), bold=worker.get("open_tasks", 0) > 1),
        Cell(
            f"{wall.get('provider', '')}: {level}",
            "red" if level in WEAK else None,
            bold=level in WEAK,
        ),
        _unread(worker["unread"]),
        Cell(ago(worker["last_seen"], now)),
        Cell(f"#{worker['project']}" if worker["project"] else "-"),
        Cell(one_line(worker["detail"] or "", 80)),
    ]


def _unread(count: int | None) -> Cell:
    """How many wait, unknown while the bus is away."""
    return Cell("-", dim=True) if count is None else Cell(str(count), bold=count > 0)


def _task(task: Current | None) -> Cell:
    """What a worker does now: state, task, and the beginning of its text."""
    if task is None:
        return Cell("-", dim=True)
    again = f" (attempt {task['attempt']})" if task["attempt"] > 1 else ""
    state = task["state"]
    text = f'{state} {short(task["id"])}{again} "{one_line(task["text"], 24)}"'
    return Cell(text, colour_of(state), bold=is_question(state))
