"""`postroom deadletters`: list, show, requeue and drop."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from postroom.cli.declaring import Answer, answers, asks
from postroom.cli.options import connect, state_option
from postroom.cli.output import print_table
from postroom.errors import InvalidInput
from postroom.lines.text import Cell, body_lines
from postroom.view.tasks import accepted_line, short
from postroom.view.words import address, ago, gist
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.protocol.shapes import Dead

HEAD = ("ID", "MESSAGE", "FROM", "TO", "REASON", "TRIES", "WHEN", "TEXT")


@click.group("deadletters")
@state_option()
def command() -> None:
    """Show messages that could not be delivered and tasks that were given up, and send them again or drop them.

    An ID is the number of a dead letter, or 4 or more digits of its message's id.
    """


@command.command("list")
@asks("deadletters.list")
def list_(letters: list[Dead]) -> None:
    """List them, with the reason of each."""
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
    print_table(HEAD, rows, cut=("TEXT", "REASON"), empty="no dead letters")


@command.command("show")
@asks("deadletters.show", "letter ID")
def show(dead: Dead) -> None:
    """Show one with all that it says."""
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
@asks("deadletters.requeue", "letter ID")
def requeue(message_id: str) -> None:
    """Send one again as a new message; the old one stays dead and is linked to it."""
    click.echo(f"sent again as {one_line(message_id)}")


@command.command("retry", short_help="Have a task asked for again.")
@answers("letter ID")
def retry(letter: str) -> Answer:
    """Have a task whose attempts are used up asked for again, as `postroom task retry` does; prints the new task."""
    with connect() as client:
        dead = client.deadletter(letter)
        given_up = dead.get("task")
        if not given_up:
            raise InvalidInput(
                "that letter is a message", remedy=f"postroom deadletters requeue {dead['id']}"
            )
        task = client.retry_task(given_up)
    return task, accepted_line(task)


@command.command("drop")
@asks("deadletters.drop", "letter ID", named="dropped")
def drop(_: None, letter: str) -> None:
    """Forget one."""
    click.echo(f"dropped {one_line(letter)}")
