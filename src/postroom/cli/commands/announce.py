"""`postroom announce`."""

from __future__ import annotations

import click

from postroom.cli.content import Given, content_options, said, talk_options, upload_parts
from postroom.cli.options import connect, json_option, state_option
from postroom.cli.output import print_json
from postroom_a2a.text import one_line


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
