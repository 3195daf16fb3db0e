"""What is said to everybody: `postroom announce` and `outbox`."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any, cast

import click

from postroom.cli.content import Given, content_options, said, talk_options, upload_parts
from postroom.cli.declaring import Answer, answers, limit_option
from postroom.cli.options import connect
from postroom.lines.text import body_lines
from postroom.view.tasks import short
from postroom.view.words import address, clock
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.protocol.shapes import Announcement


@click.command("announce")
@answers(
    "text [TEXT]...", "--key K: Idempotency key: once only per key.", content_options, talk_options
)
def command(text: tuple[str, ...], key: str, **content: Any) -> Answer:
    """Announce TEXT to everybody; without TEXT, or for `-`, standard input is announced.

    It is kept on your outbox. Nobody is woken by it; who wants to know reads it with `postroom outbox`.
    """
    given = Given(**content)
    words = said(text, given)
    with connect() as client:
        parts = upload_parts(client, given)
        made = client.announce(words, key=key, parts=parts, **given.talk)
    return made, f"{one_line(made['id'])} announced"


@click.command("outbox")
@answers(
    "agent @NICK",
    "-f --follow: Go on with what is announced, until Ctrl-C.",
    limit_option(20, "Most announcements shown."),
)
def outbox(agent: str, follow: bool, limit: int, as_json: bool) -> Answer:
    """Show what an agent has announced, oldest first.

    With --follow and --json each line is one JSON object.
    """
    with connect() as client:
        said = client.outbox(agent, limit=limit)
        if as_json and not follow:
            return {"announcements": said}, ()
        for one in said:
            _print_announcement(one, as_json=as_json)
        if not follow:
            if not said:
                click.echo("no announcements")
            return None
        sys.stdout.flush()
        for event in client.follow_outbox(agent, after=said[-1]["seq"] if said else 0):
            _print_announcement(cast("Announcement", event.data), as_json=as_json)
    return None


def _print_announcement(said: Announcement, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(said, ensure_ascii=True))
        return
    when = click.style(clock(said["at"], time.time()), dim=True)
    sender = click.style(address(said["from"]), bold=True)
    click.echo(f"{when} {sender} {click.style(short(said['id']), dim=True)}")
    for line in body_lines(said):
        click.echo(line)
