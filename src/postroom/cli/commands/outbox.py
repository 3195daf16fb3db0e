"""`postroom outbox`."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, cast

import click

from postroom.cli.options import connect, json_option, state_option
from postroom.cli.output import print_json
from postroom.lines.parts import body_lines
from postroom.lines.words import address, clock
from postroom.protocol.limits import MAX_PAGE
from postroom.view.tasks import short

if TYPE_CHECKING:
    from postroom.protocol.shapes import Announcement


@click.command("outbox")
@click.argument("agent", metavar="@NICK")
@click.option("-f", "--follow", is_flag=True, help="Go on with what is announced, until Ctrl-C.")
@click.option(
    "--limit",
    type=click.IntRange(1, MAX_PAGE),
    default=20,
    show_default=True,
    metavar="N",
    help="Most announcements shown.",
)
@json_option
@state_option()
def command(agent: str, follow: bool, limit: int, as_json: bool) -> None:
    """Show what an agent has announced, oldest first.

    With --follow and --json each line is one JSON object.
    """
    with connect() as client:
        said = client.outbox(agent, limit=limit)
        if as_json and not follow:
            print_json({"announcements": said})
            return
        for one in said:
            _print(one, as_json=as_json)
        if not follow:
            if not said:
                click.echo("no announcements")
            return
        sys.stdout.flush()
        for event in client.follow_outbox(agent, after=said[-1]["seq"] if said else 0):
            _print(cast("Announcement", event.data), as_json=as_json)


def _print(said: Announcement, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(said, ensure_ascii=True))
        return
    when = click.style(clock(said["at"], time.time()), dim=True)
    sender = click.style(address(said["from"]), bold=True)
    click.echo(f"{when} {sender} {click.style(short(said['id']), dim=True)}")
    for line in body_lines(said):
        click.echo(line)
