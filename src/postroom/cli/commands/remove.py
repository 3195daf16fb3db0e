"""`postroom remove`."""

from __future__ import annotations

import click

from postroom.cli.options import connect, json_option, state_option
from postroom.cli.output import print_json
from postroom.protocol.text import one_line


@click.command("remove")
@click.argument("nick")
@json_option
@state_option()
def command(nick: str, as_json: bool) -> None:
    """Stop the worker NICK and give up its address: what waits for it is dead, its nick is free.

    Its workspace stays on disk.
    """
    with connect() as client:
        removed = client.remove(nick)
    if as_json:
        print_json(removed)
    else:
        click.echo(f"removed @{one_line(removed['nick'])}; its files stay in {removed['folder']}")
