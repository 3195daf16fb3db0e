"""`postroom announce`."""

from __future__ import annotations

import click

from postroom.cli.arguments import text_argument
from postroom.cli.options import connect, json_option, state_option
from postroom.cli.output import print_json
from postroom_a2a.text import one_line


@click.command("announce")
@click.argument("text", nargs=-1)
@click.option("--key", metavar="K", default="", help="Idempotency key: once only per key.")
@json_option
@state_option()
def command(text: tuple[str, ...], key: str, as_json: bool) -> None:
    """Announce TEXT to everybody; without TEXT, or for `-`, standard input is announced.

    It is kept on your outbox. Nobody is woken by it; who wants to know reads it with `postroom outbox`.
    """
    content = text_argument(text)
    with connect() as client:
        said = client.announce(content, key=key)
    if as_json:
        print_json(said)
    else:
        click.echo(f"{one_line(said['id'])} announced")
