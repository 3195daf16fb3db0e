"""`postroom deadletters`: list, show, requeue and drop."""

from __future__ import annotations

import time

import click

from postroom.cli.options import connect, json_option, state_option
from postroom.cli.output import print_json, print_table
from postroom.errors import InvalidInput
from postroom.lines.parts import body_lines, gist
from postroom.lines.words import Cell, address, ago
from postroom.view.tasks import accepted_line, short
from postroom_a2a.text import one_line

HEAD = ("ID", "MESSAGE", "FROM", "TO", "REASON", "TRIES", "WHEN", "TEXT")


@click.group("deadletters")
@state_option()
def command() -> None:
    """Show messages that could not be delivered and tasks that were given up, and send them again or drop them.

    An ID is the number of a dead letter, or 4 or more digits of its message's id.
    """


@command.command("list")
@json_option
@state_option()
def list_(as_json: bool) -> None:
    """List them, with the reason of each."""
    with connect() as client:
        letters = client.deadletters()
    if as_json:
        print_json({"deadletters": letters})
        return
    if not letters:
        click.echo("no dead letters")
        return
    now = time.time()
    rows = [
        [
            Cell(str(dead["id"])),
            Cell(short(dead["message_id"] or "")),
            Cell(address(dead["from"])),
            Cell(address(dead["to"])),
            Cell(dead["reason"], "red"),
            Cell(str(dead["attempts"])),
            Cell(ago(dead["at"], now)),
            Cell(gist(dead), dim=bool(dead.get("requeued_as"))),
        ]
        for dead in letters
    ]
    print_table(HEAD, rows, cut=("TEXT", "REASON"))


@command.command("show")
@click.argument("dead_id", metavar="ID")
@json_option
@state_option()
def show(dead_id: str, as_json: bool) -> None:
    """Show one with all that it says."""
    with connect() as client:
        dead = client.deadletter(dead_id)
    if as_json:
        print_json(dead)
        return
    click.echo(
        f"{address(dead['from'])} to {address(dead['to'])}, message {one_line(dead['message_id'] or 'unknown')}"
    )
    reason = click.style(one_line(dead["reason"]), fg="red")
    click.echo(f"dead: {reason} (attempts: {dead['attempts']}, {ago(dead['at'], time.time())})")
    if task := dead.get("task"):
        click.echo(f"task {short(task)}; postroom deadletters retry {dead['id']}")
    if dead.get("requeued_as"):
        click.echo(f"sent again as {one_line(str(dead['requeued_as']))}")
    for line in body_lines(dead):
        click.echo(line)


@command.command("requeue", short_help="Send one again as a new message.")
@click.argument("dead_id", metavar="ID")
@json_option
@state_option()
def requeue(dead_id: str, as_json: bool) -> None:
    """Send one again as a new message; the old one stays dead and is linked to it."""
    with connect() as client:
        message_id = client.requeue(dead_id)
    if as_json:
        print_json({"id": message_id})
    else:
        click.echo(f"sent again as {one_line(message_id)}")


@command.command("retry", short_help="Have a task asked for again.")
@click.argument("dead_id", metavar="ID")
@json_option
@state_option()
def retry(dead_id: str, as_json: bool) -> None:
    """Have a task whose attempts are used up asked for again, as `postroom task retry` does; prints the new task."""
    with connect() as client:
        dead = client.deadletter(dead_id)
        given_up = dead.get("task")
        if not given_up:
            raise InvalidInput(
                "that letter is a message", remedy=f"postroom deadletters requeue {dead['id']}"
            )
        task = client.retry_task(given_up)
    if as_json:
        print_json(task)
    else:
        click.echo(accepted_line(task))


@command.command("drop")
@click.argument("dead_id", metavar="ID")
@json_option
@state_option()
def drop(dead_id: str, as_json: bool) -> None:
    """Forget one."""
    with connect() as client:
        client.drop(dead_id)
    if as_json:
        print_json({"dropped": dead_id})
    else:
        click.echo(f"dropped {one_line(dead_id)}")
