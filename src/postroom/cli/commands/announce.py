"""What is said to everybody: `postroom announce` and `outbox`."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, cast

import click

from postroom.cli.content import Given, content_options, said, talk_options, upload_parts
from postroom.cli.options import connect, json_option, state_option
from postroom.cli.output import print_json
from postroom.lines.parts import body_lines
from postroom.lines.words import address, clock
from postroom.protocol.limits import MAX_PAGE
from postroom.view.tasks import short
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.protocol.shapes import Announcement


@click.command("announce")
@click.argument("text", nargs=-1)
@click.option("--key", metavar="K", default="", help="Idempotency key: once only per key.")
@content_options
@talk_options
@json_option
@state_option()
def command(
    text: tuple[str, ...],
    key: str,
    files: tuple[str, ...],
    kind: str,
    data: tuple[str, ...],
    subject: str,
    thread: str,
    as_json: bool,
) -> None:
    """Announce TEXT to everybody; without TEXT, or for `-`, standard input is announced.

    It is kept on your outbox. Nobody is woken by it; who wants to know reads it with `postroom outbox`.
    """
    given = Given(files, kind, data)
    content = said(text, given)
    with connect() as client:
        parts = upload_parts(client, given)
        made = client.announce(content, key=key, parts=parts, subject=subject, thread=thread)
    if as_json:
        print_json(made)
    else:
        click.echo(f"{one_line(made['id'])} announced")


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
def outbox(agent: str, follow: bool, limit: int, as_json: bool) -> None:
    """Show what an agent has announced, oldest first.

    With --follow and --json each line is one JSON object.
    """
    with connect() as client:
        said = client.outbox(agent, limit=limit)
        if as_json and not follow:
            print_json({"announcements": said})
            return
        for one in said:
            _print_announcement(one, as_json=as_json)
        if not follow:
            if not said:
                click.echo("no announcements")
            return
        sys.stdout.flush()
        for event in client.follow_outbox(agent, after=said[-1]["seq"] if said else 0):
            _print_announcement(cast("Announcement", event.data), as_json=as_json)


def _print_announcement(said: Announcement, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(said, ensure_ascii=True))
        return
    when = click.style(clock(said["at"], time.time()), dim=True)
    sender = click.style(address(said["from"]), bold=True)
    click.echo(f"{when} {sender} {click.style(short(said['id']), dim=True)}")
    for line in body_lines(said):
        click.echo(line)
